"""When and how fast work goes on: the service's clock, the rate, pauses and threads that an interrupt ends."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Generic, Self, TypeVar

from airflow_provider_mail.api.errors import MailInterruptedError

RESOLUTION = 1.0
"""Resolution of the ``Date`` header in seconds."""

NEW_SECONDS = 15 * 60.0
"""Seconds after its creation or send time during which the state of a campaign is not final: the specification does not
say which state a new campaign shows."""

SLOW = 2.0
"""Seconds. The ``Date`` of a response that takes longer may be much later than its data."""

MAX_OFFSET = 10 * 366 * 86_400.0
"""Seconds. A header that is further away from the local time (such as 1970) is ignored."""

_MAX_RETRY_AFTER = 1e9
"""Seconds. Larger values of ``Retry-After``, such as infinity, are ignored."""


class ServiceClock:
    """The service's time: that of the last response with a ``Date`` header, and what has passed since.

    So it stays right when the local clock is set. Without such a response it is the local time. The header has a
    resolution of one second, and time passes between the request and its response: the offset is the smallest that
    explains the header, so it is 0 for clocks that agree.
    """

    def __init__(self) -> None:
        self._offset = 0.0
        self._local_start: float | None = None
        self.asked_at: datetime | None = None
        """When the first request since `restart` was sent, by the service's clock: its data is not older.

        Accurate to a second when the local clock is wrong. ``None``: no response had a plausible ``Date`` header.
        """
        self.restart()

    def restart(self) -> None:
        self.asked_at = None
        self._asked_monotonic = self._began = time.monotonic()

    def observe(self, headers: Mapping[str, str], sent: float, received: float) -> None:
        """Update the offset from a response. One without a plausible ``Date`` header is ignored.

        :param headers: of the response, with lower-case names or case-insensitive.
        :param sent: local Unix time at which the request was sent.
        :param received: local Unix time at which its response had been read.
        """
        date = http_date(headers.get("date", ""))
        if date is None:
            return
        header_time = date.timestamp()
        # The service set the header between `sent` and `received`, at some fraction of the second that it shows.
        smallest, largest = header_time - received, header_time + RESOLUTION - sent
        offset = min(max(0.0, smallest), largest)
        if abs(offset) > MAX_OFFSET:
            return
        self._offset, self._local_start = offset, _local_start()
        # With a wrong local clock, only the header is known: it is later than the request if the response was slow.
        asked_time = sent if offset == 0.0 else min(header_time, header_time + SLOW - (received - sent))
        asked_at = datetime.fromtimestamp(asked_time, UTC)
        if self.asked_at is None:
            # The local clock may be set in the meantime, the monotonic one is not.
            now = time.monotonic()
            self._asked_monotonic = max(self._began, now - max(0.0, received - sent))
        self.asked_at = min(asked_at, self.asked_at or asked_at)

    def seconds_since_asked(self) -> float:
        """Return how long ago the first request since `restart` was sent; since `restart` without a ``Date`` header."""
        return time.monotonic() - self._asked_monotonic

    @property
    def offset(self) -> float:
        """Seconds by which the service's clock is ahead of the local one."""
        was_set = 0.0 if self._local_start is None else _local_start() - self._local_start
        return self._offset - was_set if abs(was_set) > RESOLUTION else self._offset

    def time(self) -> float:
        return time.time() + self.offset

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time(), UTC)

    def latest(self) -> datetime:
        """Return the latest possible time of the service: it is known with a resolution of one second."""
        return self.now() + timedelta(seconds=RESOLUTION)


def _local_start() -> float:
    """Return when the monotonic clock was 0 by the local one; it changes when that is set."""
    return time.time() - time.monotonic()


def http_date(text: str) -> datetime | None:
    """Parse the date of an HTTP header such as ``Date`` or ``Retry-After``; ``None`` when it is not a date."""
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, IndexError, TypeError):
        return None


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that ``Retry-After`` asks for, as a number or a date; ``None`` when absent or unreadable.

    :param headers: of the response, with lower-case names or case-insensitive.
    """
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        return _seconds_until(value)
    return seconds if 0 <= seconds < _MAX_RETRY_AFTER else None


def _seconds_until(date: str) -> float | None:
    until = http_date(date)
    return None if until is None else max(0.0, (until - datetime.now(UTC)).total_seconds())


class Throttle:
    """Space the requests of one client evenly, and pause all of them after a 429, across threads and tasks.

    :param per_second: maximum number of requests per second; ``None`` for no limit.
    :param clock: returns monotonic seconds.
    """

    def __init__(self, per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1.0 / per_second if per_second else 0.0
        self._clock = clock
        self._next_slot = 0.0
        self._paused_until = 0.0
        self._lock = threading.Lock()

    def reserve(self) -> float:
        """Reserve the next slot and return the seconds to wait for it."""
        with self._lock:
            now = self._clock()
            start = max(now, self._next_slot, self._paused_until)
            self._next_slot = start + self._interval
        return start - now

    def pause(self, seconds: float) -> None:
        with self._lock:
            self._paused_until = max(self._paused_until, self._clock() + seconds)

    @property
    def paused(self) -> bool:
        """Whether all requests are paused now, even those with a slot."""
        return self._clock() < self._paused_until


T = TypeVar("T")

GRACE_SECONDS = 2.0
"""A running attempt may continue this long after the interrupt."""

_POLL_SECONDS = 0.5
"""Interval at which a waiting thread checks for an interrupt, such as one from a signal handler."""

_interrupt: ContextVar[Interrupt | None] = ContextVar("_interrupt", default=None)


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

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let this interrupt end every request that this thread makes while the ``with`` block runs."""
        token = _interrupt.set(self)
        try:
            yield
        finally:
            _interrupt.reset(token)

    def run(self, action: Callable[..., T], *arguments: Any) -> T:
        """Call a function; this interrupt ends every request that the function makes in this thread."""
        with self.active():
            return action(*arguments)

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


def current_interrupt() -> Interrupt | None:
    """Return the interrupt of this thread's requests, if any."""
    return _interrupt.get()


def sleep(seconds: float) -> None:
    """Sleep until the time has passed or this thread's requests are interrupted.

    :raises MailInterruptedError: the requests are interrupted.
    """
    interrupt = current_interrupt()
    if interrupt is None:
        time.sleep(seconds)
    else:
        interrupt.sleep(seconds)


class Workers(Generic[T]):
    """Threads that send requests and stop within seconds after an error, a timeout or a kill.

    :param interrupt: ends the work from outside. Default: that of the thread that starts them.
    """

    def __init__(self, threads: int, name: str, interrupt: Interrupt | None = None) -> None:
        self.interrupt = interrupt or Interrupt(current_interrupt())
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
            for interrupt in (self.interrupt, current_interrupt()):
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


_THRESHOLD = 20_000
_lock = threading.Lock()
_users = 0
_before = 0


@contextmanager
def infrequent_gc() -> Iterator[None]:
    """Run the garbage collector less often during a load or an import.

    Its many small objects trigger hundreds of collections, and those that traverse all of Airflow's objects take a
    third of the processor's time. With this threshold a page or chunk is freed before a collection; reference cycles
    are still found. The threshold is global: the first user raises it, the last one restores it unless other code has
    changed it.
    """
    global _users, _before
    with _lock:
        _users += 1
        if _users == 1:
            _before = gc.get_threshold()[0]
            if 0 < _before < _THRESHOLD:  # 0: the collector is off
                gc.set_threshold(_THRESHOLD)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and gc.get_threshold()[0] == _THRESHOLD:
                gc.set_threshold(_before)
