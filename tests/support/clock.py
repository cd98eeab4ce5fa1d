"""Time that passes at once: each sleep makes the clock jump, so that days of waiting fit into a second.

All that runs in this process lives in this time: the package, Airflow, event loops, the emulator. Only requests, and
the time-outs of locks and threads, take real time.
"""

from __future__ import annotations

import asyncio
import datetime
import selectors
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import time_machine

from airflow_provider_mail.api._core.pacing import Interrupt
from airflow_provider_mail.api.client import MailClient

STUCK_SECONDS = 30
"""How long an event loop waits for a response before time passes in spite of it."""

STILL_SECONDS = 20
"""How long an event loop waits for its threads while time stands still."""

RESOLUTION = 1e-6
"""Of the clocks of event loops. Where a machine has been up for months, asyncio's own is lost in the rounding of times,
and a timer that is due at the very time at which a clock stands still would never end."""

_sleep, _monotonic = time.sleep, time.monotonic


class Clock:
    """Real time, plus all that was slept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.skipped = 0.0
        """Seconds that were slept."""
        self._changes: list[tuple[float, Callable[[], object]]] = []

    def monotonic(self) -> float:
        return _monotonic() + self.skipped

    def sleep(self, seconds: float) -> None:
        """Let time pass. Sleeps of several threads overlap: their pauses do not add up."""
        self.pass_until(self.monotonic() + seconds)
        _sleep(0)

    def after(self, seconds: float, change: Callable[[], object]) -> None:
        """Do something so many seconds from now: at the first sleep until then or later, before the sleeper wakes."""
        self._changes.append((self.monotonic() + seconds, change))

    def pass_until(self, moment: float) -> None:
        """Jump to a moment of `monotonic`, unless it is over, and do what is due until then."""
        with self._lock:
            left = moment - self.monotonic()
            if left > 0:
                self.skipped += left
                self._traveller.shift(left)
            due = [change for at, change in self._changes if at <= self.monotonic()]
            self._changes = [one for one in self._changes if one[1] not in due]
        for change in due:
            change()

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return _Loop(self)

    def set_wall_clock(self, seconds: float) -> None:
        """Set the time of day forward or back by so many seconds; the emulator's moves along, `monotonic` does not."""
        self._traveller.shift(seconds)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let everything live in this time."""

        def sleep(interrupt: Interrupt, seconds: float) -> None:
            self.sleep(seconds)
            interrupt.check()

        policy = asyncio.get_event_loop_policy()
        now = datetime.datetime.now(datetime.UTC)
        with pytest.MonkeyPatch.context() as patch, time_machine.travel(now) as self._traveller:
            patch.setattr(time, "sleep", self.sleep)
            patch.setattr(time, "monotonic", self.monotonic)
            patch.setattr(Interrupt, "sleep", sleep)
            patch.setattr(MailClient, "_clock", staticmethod(self.monotonic))
            patch.setattr(asyncio, "wrap_future", _wrap_future)
            asyncio.set_event_loop_policy(_Policy(self))
            try:
                yield
            finally:
                asyncio.set_event_loop_policy(policy)


class _Policy(asyncio.DefaultEventLoopPolicy):
    """Makes event loops in which time passes at once."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        # That of Airflow's in-process API outlives the test, and serves requests while time stands still.
        if sys._getframe(2).f_globals["__name__"] in ("airflow.api_fastapi.execution_api.app", "a2wsgi.asgi"):
            return super().new_event_loop()
        return self._clock.new_event_loop()


class _Loop(asyncio.SelectorEventLoop):
    """While it has nothing to do and waits for no response and no thread, it jumps to its next timer."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.threads = 0
        super().__init__(_Selector(self))
        self._clock_resolution = RESOLUTION

    def time(self) -> float:
        return self.clock.monotonic()

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        future = super().run_in_executor(executor, func, *args)
        return self.counted(future)

    def counted(self, future: Any) -> Any:
        """Let no time pass until another thread has set its result."""
        self.threads += 1
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, _: Any) -> None:
        self.threads -= 1

    @property
    def waits(self) -> bool:
        """Whether it waits for a response or a thread."""
        its_own = 1  # the pipe by which threads wake it
        return bool(self.threads) or len(self._selector.get_map()) > its_own  # type: ignore[attr-defined]


class _Selector(selectors.DefaultSelector):  # type: ignore[valid-type,misc]
    """Waits for responses in real time, and for timers not at all."""

    def __init__(self, loop: _Loop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout is None or timeout <= 0:
            return ready or super().select(timeout)
        if self._loop.waits:
            ready = super().select(min(timeout, STUCK_SECONDS))
        if not ready:
            self._loop.clock.pass_until(self._loop.time() + timeout)
        return ready


class StillClock(Clock):
    """Stands still until something sleeps or the test moves it: for event loops beside threads that the test steps."""

    def __init__(self) -> None:
        super().__init__()
        # Whole seconds, so that sums of times are exact: what lasts 60 s is over when 60 s have passed.
        self._start = float(int(_monotonic()))

    def monotonic(self) -> float:
        return self._start + self.skipped

    move = Clock.sleep

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return _StillLoop(self)


class _StillSelector(selectors.DefaultSelector):  # type: ignore[valid-type,misc]
    """Fails the test that hangs: time stands still, so no limit of the package ends it."""

    def __init__(self) -> None:
        super().__init__()
        self._idle_since: float | None = None

    def select(self, timeout: float | None = None) -> Any:
        self._idle_since = self._idle_since or _monotonic()
        ready = super().select(STILL_SECONDS if timeout is None else min(timeout, STILL_SECONDS))
        if ready or (timeout is not None and timeout <= RESOLUTION):
            self._idle_since = None
        elif _monotonic() - self._idle_since >= STILL_SECONDS:
            self._idle_since = None
            raise TimeoutError(f"nothing has happened for {STILL_SECONDS} s")
        return ready


class _StillLoop(asyncio.SelectorEventLoop):
    """Waits for its threads, and for timers until the clock is moved; that wakes it only if one of its tasks does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        super().__init__(_StillSelector())
        self._clock_resolution = RESOLUTION

    def time(self) -> float:
        return self._clock.monotonic()


def _wrap_future(future: Any, *, loop: asyncio.AbstractEventLoop | None = None) -> Any:
    """`asyncio.wrap_future`, for results that come from threads that the loop did not start."""
    wrapped = asyncio.futures.wrap_future(future, loop=loop)
    own = wrapped.get_loop()
    return own.counted(wrapped) if isinstance(own, _Loop) and not wrapped.done() else wrapped


async def passes(seconds: float) -> None:
    """Let time pass in an event loop, and everything happen that is due until then."""
    await asyncio.sleep(seconds)
    loop, idle = asyncio.get_running_loop(), 0
    assert isinstance(loop, _Loop)
    while idle < 50:  # what a response sets going takes some turns of the loop
        await asyncio.sleep(0)
        idle = 0 if loop.waits else idle + 1
