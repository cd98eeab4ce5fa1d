"""Something happens in the service while a task waits for it, at a request that the test chooses: no thread watches."""

from __future__ import annotations

import functools
import itertools
import json
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from airflow_provider_mail.api._core.requests import MailRequest
from mail_emulator import Emulator
from mail_emulator.faults import Plan
from mail_emulator.journal import Entry
from mail_emulator.responses import Response
from mail_emulator.service import Request, Service


@contextmanager
def around_requests(
    emulator: Emulator, operation: str, around: Callable[[Callable[[], Response]], Response]
) -> Iterator[None]:
    """Do something around each request of an operation that the service performs; a fault may keep it from that.

    :param operation: the path of the requests behind ``/v5/``; ``*`` for all.
    :param around: gets a function that performs the request, and returns the response.
    """
    perform = emulator.service.perform

    def changed(request: Request, *arguments: Any) -> Response:
        if operation not in ("*", request.path.removeprefix("/v5/")):
            return perform(request, *arguments)
        return around(functools.partial(perform, request, *arguments))

    emulator.service.perform = changed  # type: ignore[method-assign]
    try:
        yield
    finally:
        emulator.service.perform = perform  # type: ignore[method-assign]


def at_request(
    emulator: Emulator, operation: str, number: int, change: Callable[[], object], *, before: bool = False
) -> AbstractContextManager[None]:
    """Change something when the service has performed a request, before it responds.

    :param operation: the path of the request behind ``/v5/``; ``*`` for any.
    :param number: of the request, among those of this operation from now on, counted from one.
    :param before: change it before the service performs the request.
    """
    numbers = itertools.count(1)

    def around(perform: Callable[[], Response]) -> Response:
        is_it = next(numbers) == number
        if is_it and before:
            change()
        response = perform()
        if is_it and not before:
            change()
        return response

    return around_requests(emulator, operation, around)


def at_every_request(
    emulator: Emulator, operation: str, change: Callable[[int], object]
) -> AbstractContextManager[None]:
    """Do something whenever the service has performed a request, before it responds.

    :param operation: the path of the requests behind ``/v5/``.
    :param change: gets the number of the request among those of this operation from now on, counted from zero.
    """
    numbers = itertools.count()

    def around(perform: Callable[[], Response]) -> Response:
        response = perform()
        change(next(numbers))
        return response

    return around_requests(emulator, operation, around)


def snapshot(emulator: Emulator) -> Callable[[], None]:
    """Return a function that restores what the service holds now."""
    service, copy = emulator.service, sqlite3.connect(":memory:", check_same_thread=False)
    with service.lock:
        service.store.connection.backup(copy)

    def restore() -> None:
        with service.lock:
            copy.backup(service.store.connection)
            service.store.members.clear_cache()
            service.store.generation += 1

    return restore


def time_out_task() -> None:
    """Let the ``execution_timeout`` of the task that runs be over: its timer sends the same signal."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)


def post(emulator: Emulator, path: str, **body: Any) -> dict[str, Any]:
    """Let another client do something at the service, past faults and journal; return the service's response.

    Also while a task runs, as the change of `at_request`.

    :param path: of the request behind ``/v5/``.
    """
    headers = {"apikey": emulator.api_key, "content-type": "application/json"}
    received = Request("POST", f"/v5/{path}", {}, headers, body=body)
    entry = Entry(0, received.path, "POST", 0, 0, 0, headers)
    response = Service.perform(emulator.service, received, Plan(), entry)  # not the one that `at_request` has put there
    assert response.payload is not None
    return dict(response.payload)


def by_others(emulator: Emulator, request: MailRequest[Any]) -> bool:
    """Let another client send a request; return whether the service accepts it."""
    body = json.loads(request.payload())
    return bool(post(emulator, request.path.removeprefix("/v5/"), **body)["code"] == 200)
