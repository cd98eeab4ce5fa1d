"""Something happens in the service while a task waits for it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from airflow_provider_mail.emulator import Emulator


@contextmanager
def as_soon_as(look: Callable[[], Any], change: Callable[[], Any]) -> Iterator[None]:
    """Change something when there is something to see, while the body runs."""
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            if look():
                change()
                return
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def timed_out_when(look: Callable[[], Any]) -> AbstractContextManager[None]:
    """Let the ``execution_timeout`` of the task that runs be over when there is something to see, while the body runs.

    Its own timer sends the same signal.
    """
    return as_soon_as(look, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM))


def under_way(emulator: Emulator, operation: str, before: int) -> Callable[[], bool]:
    """Whether a request is under way after so many that were answered."""
    return lambda: answered(emulator, operation) == before and emulator.journal.count(operation) == before + 1


def hold(monkeypatch: pytest.MonkeyPatch, emulator: Emulator, operation: str) -> threading.Event:
    """Let the service carry out nothing more until the event is set, once it has a request of the operation.

    :param operation: the path of the request behind ``/v5/``.
    """
    go = threading.Event()
    perform = emulator.service.perform

    def held(request: Any, *arguments: Any) -> Any:
        if request.path == f"/v5/{operation}":
            assert go.wait(120)
        return perform(request, *arguments)

    monkeypatch.setattr(emulator.service, "perform", held)
    return go


def answered(emulator: Emulator, operation: str | None = None) -> int:
    """Return how many requests the service has answered; one that it only received may still see what changes."""
    return sum(entry["answered"] for entry in emulator.journal.entries(operation))
