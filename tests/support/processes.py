"""Processes that are ended for certain, with everything that they started."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import functools
import gc
import multiprocessing
import os
import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

import psutil

T = TypeVar("T")

_chance = random.SystemRandom()  # some tests make the other one repeatable

FORK = multiprocessing.get_context("fork")
"""The context for events and values that parent and child share."""

PATIENCE = 400.0
"""Seconds until what must happen is missed; many, since a machine may be busy with other tests."""


def free_port() -> int:
    """A port on loopback that nobody listens on.

    It is below those that the system hands out: nobody is given it before it is used, or while it must stay free.
    """
    while True:
        port = _chance.randrange(12_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            return port


async def end_of_database_threads(before: Sequence[threading.Thread]) -> None:
    """Wait for the threads of the package that read or write a database.

    :param before: those that ran before the test, which may be of tests that leave one.
    """
    for thread in threading.enumerate():
        if thread.name == "mail-database" and thread not in before:
            await asyncio.to_thread(thread.join, 20)
            assert not thread.is_alive(), "a thread hangs"


def wait_until(look: Callable[[], T | None], *, what: str, timeout: float = PATIENCE, interval: float = 0.3) -> T:
    """Look until there is something to see, and return it.

    :param look: gives `None` or `False` while it has not happened yet.
    :raises TimeoutError: names `what` after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout:g} s")
        time.sleep(interval)
    return seen


def wait_for_threads(prefix: str, *, timeout: float) -> None:
    """Wait until no thread has a name that begins like this.

    :param prefix: the beginning.
    :param timeout: seconds; use fewer than the threads would take if nothing ended them.
    :raises TimeoutError: a thread is left.
    """
    wait_until(
        lambda: not any(thread.name.startswith(prefix) for thread in threading.enumerate()),
        what=f"the end of the threads {prefix}",
        timeout=timeout,
        interval=0.01,
    )


@functools.cache
def _freeze_modules() -> None:
    """Exclude existing objects from later collections, once: they are mostly modules, and checking them takes long."""
    gc.collect()
    gc.freeze()


def fork(target: Callable[..., object], *args: Any) -> BaseProcess:
    """Start a copy of this process that calls the function; if it hangs, its stack is printed after 20 seconds."""

    def run() -> None:
        faulthandler.dump_traceback_later(20)
        target(*args)

    # SQLite connections must not be carried across a fork: close those that only reference cycles keep open.
    _freeze_modules()
    gc.collect()
    process = FORK.Process(target=run)
    process.start()
    return process


class Component:
    """One command in a session of its own, its output in a file."""

    def __init__(self, name: str, command: Sequence[str], *, env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._env = dict(env)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; its output is appended to what an earlier life wrote."""
        with self.log.open("ab") as out:
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT}
            self._process = subprocess.Popen(self._command, env=self._env, start_new_session=True, **streams)

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process.pid

    def exit_code(self) -> int | None:
        """`None` while it runs."""
        return self._process.poll() if self._process else None

    def session(self) -> list[psutil.Process]:
        """Every living process of the session, also those whose parent is gone."""
        members = []
        for process in psutil.process_iter():
            with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
                if os.getsid(process.pid) == self.pid and process.status() != psutil.STATUS_ZOMBIE:
                    members.append(process)
        return members

    def kill(self) -> None:
        """End the whole session at once, as a lost machine would."""
        for process in self.session():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self._process is not None:
            self._process.wait(60)
        wait_until(lambda: not self.session(), what=f"end of {self.name}", timeout=60, interval=0.05)

    def terminate(self) -> None:
        """Ask it to end, without waiting."""
        if self._process is not None and self.exit_code() is None:
            self._process.terminate()

    def stop(self, timeout: float = 5) -> None:
        """Ask it to end, and end the whole session for certain after `timeout` seconds."""
        if self._process is None:
            return
        self.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        self.kill()

    def tail(self, lines: int = 40) -> str:
        """The end of what it wrote."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return f"--- {self.name} ({self.log})\n" + "\n".join(text.splitlines()[-lines:])
