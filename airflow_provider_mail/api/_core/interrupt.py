"""Interrupt requests in other threads: immediately between two attempts, within seconds during one."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, Self, TypeVar

from airflow_provider_mail.api.errors import MailInterruptedError

T = TypeVar("T")

GRACE_SECONDS = 2.0
"""A running attempt may continue this long after the interrupt."""

_POLL_SECONDS = 0.5
"""Interval at which a waiting thread checks for an interrupt, such as one from a signal handler."""

_current: ContextVar[Interrupt | None] = ContextVar("_current", default=None)


class Interrupt:
    """Ends all requests that were started with :meth:`run`; cannot be reused.

    :meth:`stop` may be called from a signal handler, such as an operator's ``on_kill``.

    :param parent: ends the requests, too.
    """

    def __init__(self, parent: Interrupt | None = None) -> None:
        self._parent = parent
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._aborted = False

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set() or (self._parent is not None and self._parent.stopped)

    def stop(self) -> None:
        """End all pauses and start no further attempt."""
        self._stopped.set()

    def abort(self) -> None:
        self.stop()
        with self._lock:
            self._aborted = True
            for connection in self._sockets:
                # Not SSLSocket's method, which would let the reading thread continue without TLS.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def run(self, action: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a function; this interrupt ends every request that the function makes in this thread."""
        token = _current.set(self)
        try:
            return action(*arguments, **options)
        finally:
            _current.reset(token)

    def check(self) -> None:
        """Raise an error if the work was interrupted.

        :raises MailInterruptedError: after :meth:`stop`.
        """
        if self.stopped:
            raise MailInterruptedError("the task was ended, so no further request is sent")

    def sleep(self, seconds: float) -> None:
        """Sleep until the time has passed or the work is interrupted.

        :raises MailInterruptedError: after :meth:`stop`.
        """
        self._stopped.wait(seconds)
        self.check()

    @contextmanager
    def watching(self, connection: socket.socket) -> Iterator[None]:
        """Let :meth:`abort` shut down a connection while the ``with`` block runs.

        :raises ConnectionAbortedError: after :meth:`abort`.
        """
        with self._lock:
            if self._aborted:
                raise ConnectionAbortedError
            self._sockets.add(connection)
        try:
            with contextlib.nullcontext() if self._parent is None else self._parent.watching(connection):
                yield
        finally:
            with self._lock:
                self._sockets.discard(connection)


class KillGuard(Interrupt):
    """Lets requests end by themselves, and checks between them whether the task was killed.

    :param check: called before each request and after each pause; raises an error to prevent the request.
    :param pause: sleeps, and wakes early when the task is killed.
    """

    def __init__(self, check: Callable[[], None], pause: Callable[[float], None]) -> None:
        super().__init__()
        self.check = check  # type: ignore[method-assign]
        self._pause = pause

    def sleep(self, seconds: float) -> None:
        self._pause(seconds)
        self.check()


def current() -> Interrupt | None:
    """Return the interrupt of this thread's requests, if any."""
    return _current.get()


def sleep(seconds: float) -> None:
    """Sleep until the time has passed or this thread's requests are interrupted.

    :raises MailInterruptedError: the requests are interrupted.
    """
    interrupt = current()
    if interrupt is None:
        time.sleep(seconds)
    else:
        interrupt.sleep(seconds)


class Workers(Generic[T]):
    """Threads that send requests and stop within seconds after an error, a timeout or a kill.

    :param interrupt: ends the work from outside. Default: that of the thread that starts them.
    """

    def __init__(self, threads: int, name: str, interrupt: Interrupt | None = None) -> None:
        self.interrupt = interrupt or Interrupt(current())
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._running: set[Future[T]] = set()

    def submit(self, action: Callable[..., T], *arguments: Any) -> Future[T]:
        future = self._pool.submit(self.interrupt.run, action, *arguments)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    def first_done(self, futures: Iterable[Future[T]]) -> set[Future[T]]:
        """Wait until a future is done; return all futures that are done.

        :raises MailInterruptedError: the work is interrupted from outside.
        """
        futures = list(futures)
        while not (done := wait(futures, _POLL_SECONDS, FIRST_COMPLETED).done):
            for interrupt in (self.interrupt, current()):
                if interrupt is not None:
                    interrupt.check()
        return done

    def end(self, grace: float = GRACE_SECONDS) -> None:
        """Start no further call and end the running ones.

        :param grace: seconds that running attempts get before their connections are shut down.
        """
        self.interrupt.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)
        wait(list(self._running), grace)
        self.interrupt.abort()
        # A future is done shortly before its thread removes it from the running ones.
        left = wait(list(self._running), GRACE_SECONDS).not_done
        # Do not wait for what cannot be shut down, such as a DNS lookup: it ends by its own timeout.
        self._pool.shutdown(wait=not left)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
