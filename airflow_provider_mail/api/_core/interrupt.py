"""Ending requests of other threads: between two attempts at once, within one after seconds."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from airflow_provider_mail.api.errors import MailInterruptedError

T = TypeVar("T")

GRACE_SECONDS = 2.0
"""So long may an attempt that is under way go on after its work was ended."""

_POLL_SECONDS = 0.5
"""So often does a thread that waits for others check whether the work was ended, by a signal handler for instance."""

_current: ContextVar[Interrupt | None] = ContextVar("_current", default=None)


class Interrupt:
    """Ends all requests that were begun under it. It cannot be used again.

    :meth:`stop` may be called from a signal handler, such as ``on_kill`` of an operator.
    """

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._aborted = False

    @property
    def stopped(self) -> bool:
        """Whether no further attempt may begin."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """End all pauses, and let no further attempt begin."""
        self._stopped.set()

    def abort(self) -> None:
        """Stop, and cut the connections of the attempts that are under way."""
        self.stop()
        with self._lock:
            self._aborted = True
            for each in self._sockets:
                # Not SSLSocket's own: it would let the thread that reads go on without TLS.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(each, socket.SHUT_RDWR)

    def run(self, action: Callable[..., T], *arguments: Any) -> T:
        """Call a function, and let every request that it makes in this thread end with this interrupt."""
        token = _current.set(self)
        try:
            return action(*arguments)
        finally:
            _current.reset(token)

    def check(self) -> None:
        """Refuse to go on.

        :raises MailInterruptedError: after :meth:`stop`.
        """
        if self.stopped:
            raise MailInterruptedError("the work was ended, so nothing more is sent for it")

    def sleep(self, seconds: float) -> None:
        """Wait, but not beyond the end.

        :raises MailInterruptedError: when it comes.
        """
        self._stopped.wait(seconds)
        self.check()

    @contextmanager
    def watching(self, connection: socket.socket) -> Iterator[None]:
        """Let :meth:`abort` cut a connection as long as this thread waits for it.

        :raises ConnectionAbortedError: when that has happened already.
        """
        with self._lock:
            if self._aborted:
                raise ConnectionAbortedError
            self._sockets.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._sockets.discard(connection)


def current() -> Interrupt | None:
    """What ends the requests of this thread, if anything does."""
    return _current.get()


def sleep(seconds: float) -> None:
    """Pause a thread, as long as its requests are not ended.

    :raises MailInterruptedError: when they are.
    """
    interrupt = current()
    if interrupt is None:
        time.sleep(seconds)
    else:
        interrupt.sleep(seconds)


class Workers(Generic[T]):
    """Threads that send, and that end within seconds when the work ends: by an error, a time-out or a kill.

    :param threads: how many.
    :param name: of the threads.
    :param interrupt: ends the work from outside.
    """

    def __init__(self, threads: int, name: str, interrupt: Interrupt | None = None) -> None:
        self.interrupt = interrupt or Interrupt()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._under_way: set[Future[T]] = set()

    def submit(self, action: Callable[..., T], *arguments: Any) -> Future[T]:
        """Have a function called by one of the threads."""
        future = self._pool.submit(self.interrupt.run, action, *arguments)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future

    def first_done(self, futures: Iterable[Future[T]]) -> set[Future[T]]:
        """Wait until one of the futures is done; returns those that are.

        :raises MailInterruptedError: when the work is ended from outside meanwhile.
        """
        futures = list(futures)
        while not (done := wait(futures, _POLL_SECONDS, FIRST_COMPLETED).done):
            self.interrupt.check()
        return done

    def end(self, grace: float = GRACE_SECONDS) -> None:
        """Begin nothing more, and leave nothing under way.

        :param grace: seconds that attempts under way get before their connections are cut.
        """
        self.interrupt.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)
        wait(list(self._under_way), grace)
        self.interrupt.abort()
        wait(list(self._under_way), GRACE_SECONDS)
        # What cannot be cut, such as the look-up of a name, ends by its own time-out; nobody waits for it.
        self._pool.shutdown(wait=not self._under_way)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
