"""What all waits share: the status, the decision after a poll, and how long failed polls are tolerated. No I/O.

Tolerance is a time, not a count: a state that may be temporary (failed polls, a missing object, a draft) ends a wait
only after it has lasted for some time, in at least two polls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol

from airflow_provider_mail.api.errors import MailError

POLL_ERROR_TIMEOUT = 600.0
"""Seconds of consecutive failed polls after which a wait ends with an error."""

MAX_POLL_ERRORS = 2
"""A wait ends only after more consecutive failed polls than this, so that two errors an hour apart do not end it."""

CONFIRM_SECONDS = 300.0
"""Seconds for which an object must be missing, or show as a draft, in at least two polls, to end a wait: the
specification does not show how soon a new object appears, nor which status a campaign has before it is sent."""

FIRST_BACKOFF, MAX_BACKOFF = 0.5, 60.0
"""Seconds to pause after the first failed poll, doubled with each consecutive one, and the maximum."""

HEARTBEAT_SECONDS = 3600.0
"""A wait logs its status when the status changes, and otherwise once in this many seconds."""


class WaitStatus(StrEnum):
    """The status of a wait."""

    WAITING = "waiting"
    COMPLETE = "complete"
    FAILED = "failed"
    """The awaited state can no longer be reached; for instance, the campaign was cancelled."""
    REFUSED = "refused"
    """The service rejects the polls, or the connection is configured wrongly: a retry does not help."""
    ERROR = "error"
    """Polls failed with temporary errors for too long."""
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class PollDecision:
    """The conclusion of a wait from a poll.

    :param status: whether the wait continues, and how it ended if not.
    :param message: a sentence for the log or the error.
    :param result: what the wait returns when it is complete, such as the counts of a campaign.
    :param pause: seconds until the next poll is useful; the wait's interval applies in addition.
    :param log_key: equal for polls that show the same state, which is logged once. Default: the message.
    """

    status: WaitStatus
    message: str
    result: dict[str, Any] = field(default_factory=dict)
    pause: float = 0.0
    log_key: str = ""
    is_seen: bool = True
    """Whether the poll saw the state; if not, it is not even known whether the object exists."""

    def __post_init__(self) -> None:
        if not self.log_key:
            object.__setattr__(self, "log_key", self.message)

    def at_deadline(self, timeout: str = "") -> PollDecision:
        """Return the decision that ends a wait at its deadline, if this one is the latest.

        :param timeout: the duration of the wait, for the message.
        """
        status = WaitStatus.TIMEOUT if self.is_seen else WaitStatus.ERROR
        return PollDecision(status, f"the wait timed out{timeout}: {self.message}", is_seen=self.is_seen)

    def for_connection(self, mail_conn_id: str) -> PollDecision:
        """Return the decision with the connection id in the message, if the connection may be the cause."""
        connection = f"connection {mail_conn_id!r}"
        if self.status not in (WaitStatus.REFUSED, WaitStatus.ERROR) or connection in self.message:
            return self
        return replace(self, message=f"{connection}: {self.message}")


class StatusLog:
    """Decides when a wait logs its status: when it changes, and once in :data:`HEARTBEAT_SECONDS`."""

    __slots__ = ("_log_key", "_logged_at")

    def __init__(self) -> None:
        self._log_key: str | None = None
        self._logged_at = 0.0

    def is_due(self, decision: PollDecision, at: float) -> bool:
        """Return whether to log this decision.

        :param at: Unix time.
        """
        if decision.log_key == self._log_key and 0 <= at - self._logged_at < HEARTBEAT_SECONDS:
            return False
        self._log_key, self._logged_at = decision.log_key, at
        return True


def status_line(decision: PollDecision, interval: float, end_time: float | None) -> str:
    """Format a wait's status for the log: the message, the time of the next poll, and the deadline.

    :param interval: seconds between polls.
    :param end_time: Unix time of the deadline; ``None`` when the wait has none of its own.
    """
    if decision.status is not WaitStatus.WAITING:
        return decision.message
    deadline = "" if end_time is None else f", deadline {format_utc(end_time)}"
    return f"{decision.message}; next poll in {max(interval, decision.pause):.4g} s{deadline}"


class Streak:
    """Consecutive polls that showed the same state.

    :param state: the :attr:`state` of another object, to continue from it.
    """

    __slots__ = ("polls", "since")

    def __init__(self, state: list[float] | None = None) -> None:
        self.since, self.polls = (float(state[0]), int(state[1])) if state else (0.0, 0)

    @property
    def state(self) -> list[float] | None:
        return [self.since, self.polls] if self.polls else None

    def extend(self, at: float) -> None:
        """Count a poll.

        :param at: Unix time of the poll.
        """
        self.since, self.polls = at if not self.polls else self.since, self.polls + 1

    def end(self) -> None:
        self.polls = 0

    def is_confirmed(self, at: float) -> bool:
        """Return whether the streak has lasted for :data:`CONFIRM_SECONDS`, in at least two polls.

        :param at: Unix time.
        """
        return self.polls > 1 and at - self.since >= CONFIRM_SECONDS


class PollErrorBudget:
    """Limits how long polls may fail in a row.

    :param polled_before: whether an earlier poll succeeded. A rejection then counts as a failed poll, since a key may
        be rotated while tasks wait; when the first poll is rejected, the wait ends immediately.
    :param timeout: seconds from the first of the consecutive failed polls to the one that ends the wait.
    """

    __slots__ = ("_failed", "_timeout", "polled_before")

    def __init__(self, *, polled_before: bool = False, timeout: float = POLL_ERROR_TIMEOUT) -> None:
        self.polled_before = polled_before
        self._timeout = timeout
        self._failed = Streak()

    @property
    def state(self) -> dict[str, Any]:
        return {"looked": self.polled_before, "failed": self._failed.state}

    def restore(self, state: dict[str, Any] | None) -> None:
        """Continue from the state of another process.

        :param state: the :attr:`state` there; ``None`` if there is none.
        """
        if state:
            self.polled_before = self.polled_before or bool(state.get("looked"))
            self._failed = Streak(state.get("failed"))

    def succeeded(self) -> None:
        self._failed.end()
        self.polled_before = True

    def failed(self, error: MailError, at: float) -> PollDecision:
        """Decide about a failed poll.

        :param at: Unix time of the poll.
        """
        if not error.temporary and not self.polled_before:
            return PollDecision(WaitStatus.REFUSED, str(error), is_seen=False)
        self._failed.extend(at)
        polls, seconds = self._failed.polls, max(0.0, at - self._failed.since)
        if polls > MAX_POLL_ERRORS and seconds >= self._timeout:
            return PollDecision(
                WaitStatus.ERROR if error.temporary else WaitStatus.REFUSED,
                f"{polls} polls in a row failed, for {seconds:.0f} s (poll_error_timeout: {self._timeout:g} s), "
                f"the last with: {error}",
                is_seen=False,
            )
        return PollDecision(
            WaitStatus.WAITING,
            f"poll failed ({polls} in a row; the wait ends after {self._timeout:g} s of failed polls): {error}",
            pause=min(FIRST_BACKOFF * 2.0 ** min(polls - 1, 20), MAX_BACKOFF),
            log_key=f"poll failed: {type(error).__name__}",
            is_seen=False,
        )


class Wait(Protocol):
    @property
    def state(self) -> dict[str, Any]:
        """The state that another process needs to continue the wait, as plain JSON."""

    def decide(self, result: Any, at: float, offset: float = 0.0) -> PollDecision:
        """Decide what a poll means, given those before it.

        :param result: the object that the poll found, ``None`` if there is none, or the poll's error.
        :param at: Unix time of the poll.
        :param offset: seconds by which the service's clock is ahead of the local one.
        """


class Polls(Iterator[tuple[object, PollDecision]]):
    """The polls of a wait: each ``next`` polls once and returns the result with the decision about it.

    The caller pauses between polls and stops when the wait is over. Polling can continue after an exception of a poll,
    as it does for sensors with ``silent_fail``.

    :param poll: polls once; returns the object that was found, the error of the poll, or a decision that does not
        depend on the wait; and the seconds by which the service's clock is ahead.
    :param log: called with each decision that is due in :class:`StatusLog`.
    """

    def __init__(
        self, wait: Wait, poll: Callable[[], tuple[object, float]], *, log: Callable[[PollDecision], object]
    ) -> None:
        self._wait = wait
        self._poll = poll
        self._log = log
        self._status_log = StatusLog()

    def __next__(self) -> tuple[object, PollDecision]:
        # Not the time of the response: the service may have read the data as soon as the request was sent.
        at = time.time()
        result, offset = self._poll()
        decision = result if isinstance(result, PollDecision) else self._wait.decide(result, at, offset)
        if self._status_log.is_due(decision, at):
            self._log(decision)
        return result, decision


def format_utc(moment: float) -> str:
    """Format a Unix time for display.

    :param moment: Unix time.
    """
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"
