"""Something happens in the service while a task waits for it, at a request that the test chooses: no thread watches."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from airflow_provider_mail.emulator import Emulator


@contextmanager
def at_request(
    emulator: Emulator, operation: str, number: int, change: Callable[[], object], *, before: bool = False
) -> Iterator[None]:
    """Change something when the service has performed a request, before it responds; a fault may keep it from that.

    :param operation: the path of the request behind ``/v5/``.
    :param number: of the request, among those of this operation from now on, counted from one.
    :param before: change it before the service performs the request.
    """
    perform, numbers = emulator.service.perform, itertools.count(1)

    def changing(request: Any, *arguments: Any) -> Any:
        is_it = request.path == f"/v5/{operation}" and next(numbers) == number
        if is_it and before:
            change()
        response = perform(request, *arguments)
        if is_it and not before:
            change()
        return response

    emulator.service.perform = changing  # type: ignore[method-assign]
    try:
        yield
    finally:
        emulator.service.perform = perform  # type: ignore[method-assign]


@contextmanager
def at_every_request(emulator: Emulator, operation: str, change: Callable[[int], object]) -> Iterator[None]:
    """Do something whenever the service has performed a request, before it responds.

    :param operation: the path of the requests behind ``/v5/``.
    :param change: gets the number of the request among those of this operation from now on, counted from zero.
    """
    perform, numbers = emulator.service.perform, itertools.count()

    def changing(request: Any, *arguments: Any) -> Any:
        response = perform(request, *arguments)
        if request.path == f"/v5/{operation}":
            change(next(numbers))
        return response

    emulator.service.perform = changing  # type: ignore[method-assign]
    try:
        yield
    finally:
        emulator.service.perform = perform  # type: ignore[method-assign]


def time_out_task() -> None:
    """Let the ``execution_timeout`` of the task that runs be over: its timer sends the same signal."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
