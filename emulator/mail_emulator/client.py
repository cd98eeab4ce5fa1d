"""The emulator in another process: a client of its control interface, and a runner for the subprocess."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import mail_emulator
from mail_emulator.control_api import ControlApi
from mail_emulator.rpc import Group
from mail_emulator.settings import EmulatorSettings


class RemoteChannel:
    """Calls control functions of an emulator in another process.

    Invalid arguments raise ``ValueError`` with the emulator's message, an unreachable emulator ``OSError``.
    """

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url.rstrip("/")
        self._opener = build_opener(ProxyHandler({}))

    def call(self, group: Group, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Post a call to the emulator and return its result.

        :raises ValueError: the emulator rejects the arguments.
        :raises OSError: the emulator cannot be reached.
        """
        arguments = inspect.signature(function).bind(group, *args, **kwargs).arguments
        for name, parameter in inspect.signature(function).parameters.items():
            if name == "self":
                del arguments["self"]
            elif parameter.kind is parameter.VAR_KEYWORD:
                arguments |= arguments.pop(name, {})
        path = "/".join(filter(None, ("_emulator", group.name, function.__name__)))
        request = Request(
            f"{self.base_url}/{path}",
            json.dumps(arguments, default=_plain).encode(),
            {"Content-Type": "application/json"},
            method="POST",
        )
        try:
            with self._opener.open(request, timeout=60) as response:
                return json.load(response)
        except HTTPError as error:
            with error:
                raise ValueError(error.read().decode()) from None


def _plain(value: Any) -> Any:
    """Convert what JSON cannot represent: times, and collections other than lists."""
    return value.isoformat() if hasattr(value, "isoformat") else list(value)


class EmulatorClient(ControlApi):
    """The methods of ``Emulator``, for an emulator in another process.

    :param base_url: base URL of the emulator.
    """

    def __init__(self, base_url: str) -> None:
        self._remote = RemoteChannel(base_url)
        super().__init__(self._remote)

    @property
    def base_url(self) -> str:
        """Base URL, without a trailing slash."""
        return self._remote.base_url

    @property
    def api_key(self) -> str:
        """The accepted API key."""
        return str(self.read_settings()["api_key"])


class EmulatorProcess(EmulatorClient):
    """Run ``python -m mail_emulator`` and control it; a context manager.

    Starting it again after ``kill`` uses the same port; only a ``file`` keeps the state.

    :param settings: settings. Default: the defaults of each.
    :param file: SQLite file that keeps the state. Default: memory.
    :param port: port to listen on, on the loopback interface. Default: a free one.
    """

    def __init__(self, settings: EmulatorSettings | None = None, *, file: Path | None = None, port: int = 0) -> None:
        super().__init__("http://127.0.0.1:9")
        self._settings = settings or EmulatorSettings()
        self._file = file
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process and wait until it is ready.

        :raises RuntimeError: with its output, when it does not start.
        """
        with tempfile.TemporaryDirectory() as folder:
            ready, output = Path(folder, "ready.json"), Path(folder, "output")
            command = [
                *(sys.executable, "-m", "mail_emulator"),
                *("--host", "127.0.0.1", "--port", str(self._port), "--ready-file", str(ready), "--with-parent"),
                *(f"--setting={name}={json.dumps(value)}" for name, value in self._settings.changed().items()),
            ]
            if self._file is not None:
                command += ["--file", str(self._file)]
            home = str(Path(mail_emulator.__file__).parents[1])
            path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
            with output.open("wb") as sink:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,  # closed when this process ends, which stops the emulator
                    stdout=sink,
                    stderr=sink,
                    env={**os.environ, "PYTHONPATH": path},
                )
            deadline = time.monotonic() + 30
            while not ready.exists():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    raise RuntimeError(f"the emulator did not start: {output.read_text(errors='replace')}")
                time.sleep(0.01)
            self._remote.base_url = json.loads(ready.read_text())["base_url"]
        self._port = int(self.base_url.rpartition(":")[2])

    @property
    def pid(self) -> int:
        """Its process id; ``RuntimeError`` when it does not run."""
        if self._process is None:
            raise RuntimeError("the emulator does not run")
        return self._process.pid

    def stop(self) -> int | None:
        """End it in order (SIGTERM); its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int | None:
        """End it at once (SIGKILL)."""
        return self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> int | None:
        if self._process is None:
            return None
        process, self._process = self._process, None
        with process:
            process.send_signal(how)
            try:
                return process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                return process.wait()

    def __enter__(self) -> EmulatorProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
