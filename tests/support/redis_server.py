"""A Redis of its own."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from typing import Self

import redis

from tests.support.processes import PATIENCE, free_port, wait_until

SERVER = shutil.which("redis-server") or ""
"""Empty if there is none on this machine."""


class RedisServer:
    """Runs from `with` to the end of it, and can be stopped and started meanwhile.

    :param folder: its working directory; nothing is stored.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self.url = f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        arguments = ["--port", str(self._port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self._folder)]
        self._process = subprocess.Popen([SERVER, *arguments], stdout=subprocess.DEVNULL)
        wait_until(self._answers, what="Redis")

    def freeze(self) -> None:
        """Let it respond to nothing more."""
        self._process.send_signal(signal.SIGSTOP)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        self._process.wait(PATIENCE)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _answers(self) -> bool:
        try:
            return bool(redis.Redis.from_url(self.url).ping())
        except redis.RedisError:
            return False
