"""What a poll means to a wait, given those before it: for a campaign, a sender, or final statistics. No I/O.

``at`` is the Unix time of a poll.

Tolerance is a time, not a count: a state that may be temporary (failed polls, a missing object, a draft) ends a wait
only after it has lasted for some time, in at least two polls.

The service does not report when statistics are final: recipients open and click for days. Statistics are considered
final when they have not changed for long enough, or when the campaign is old enough.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_provider_mail.api.errors import MailError

if TYPE_CHECKING:
    # DAG files import this module: not the models of campaigns.
    from airflow_provider_mail.api.campaigns import Campaign, CampaignStats
    from airflow_provider_mail.api.senders import Checks


POLL_ERROR_TIMEOUT = 600.0
"""Seconds of consecutive failed polls after which a wait ends with an error."""

MAX_POLL_ERRORS = 2
"""A wait ends only after more consecutive failed polls than this, so that two errors an hour apart do not end it."""

CONFIRM_SECONDS = 300.0
"""Seconds for which an object must be missing, or show as a draft, in at least two polls, to end a wait: the
specification does not show how soon a new object appears, nor which status a campaign has before it is sent."""

FIRST_BACKOFF, MAX_BACKOFF = 0.5, 60.0
"""Seconds to pause after the first failed poll, doubled with each consecutive one, and the maximum."""

RECONNECT_SECONDS = 60.0
"""While polls fail with temporary errors, the connection is read again this often: its host may have been changed."""

HEARTBEAT_SECONDS = 3600.0
"""A wait logs its status when the status changes, and otherwise once in this many seconds."""


class WaitStatus(StrEnum):
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

    def at_deadline(self, timeout: str = "") -> PollDecision:
        """Return the decision that ends a wait at its deadline, if this one is the latest."""
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
        log_key = decision.log_key or decision.message
        if log_key == self._log_key and 0 <= at - self._logged_at < HEARTBEAT_SECONDS:
            return False
        self._log_key, self._logged_at = log_key, at
        return True


def status_line(decision: PollDecision, interval: float, end_time: float | None) -> str:
    """Format a wait's status for the log: the message, the time of the next poll, and the deadline, if it has one."""
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
        self.since, self.polls = at if not self.polls else self.since, self.polls + 1

    def end(self) -> None:
        self.polls = 0

    def is_confirmed(self, at: float) -> bool:
        """Return whether the streak has lasted for :data:`CONFIRM_SECONDS`, in at least two polls."""
        return self.polls > 1 and at - self.since >= CONFIRM_SECONDS


class Wait(ABC):
    """Decides after each poll what it means, given those before it.

    :param awaited: what identifies the awaited object, as plain JSON.
    :param polled_before: whether an earlier poll succeeded. A rejection then counts as a failed poll, since a key may
        be rotated while tasks wait; when the first poll is rejected, the wait ends immediately.
    :param poll_error_timeout: seconds from the first of the consecutive failed polls to the one that ends the wait.
    :param state: the :attr:`state` of another wait, to continue from it; ignored if it is for something else.
    """

    thing: str
    """The awaited object, for messages."""

    def __init__(
        self,
        awaited: Any,
        *,
        polled_before: bool = False,
        poll_error_timeout: float = POLL_ERROR_TIMEOUT,
        state: dict[str, Any] | None = None,
    ) -> None:
        self._awaited = awaited
        self._earlier: dict[str, Any] = state if state and state.get("awaited") == awaited else {}
        errors = self._earlier.get("errors") or {}
        self._polled_before = polled_before or bool(errors.get("looked"))
        self._poll_error_timeout = poll_error_timeout
        self._failed = Streak(errors.get("failed"))
        self._missing = Streak(self._earlier.get("missing"))

    @property
    def state(self) -> dict[str, Any]:
        """The state that another process needs to continue the wait, as plain JSON."""
        errors = {"looked": self._polled_before, "failed": self._failed.state}
        return {"awaited": self._awaited, "errors": errors, "missing": self._missing.state}

    def decide(self, result: Any, at: float, offset: float = 0.0) -> PollDecision:
        """Decide what a poll means.

        :param result: the object that the poll found, ``None`` if there is none, or the poll's error.
        :param offset: seconds by which the service's clock is ahead of the local one.
        """
        if isinstance(result, MailError):
            return self._decide_error(result, at)
        self._failed.end()
        self._polled_before = True
        if result is None:
            self._missing.extend(at)
            return self._decide_missing(at)
        self._missing.end()
        return self._decide(result, at, offset)

    @abstractmethod
    def _decide(self, result: Any, at: float, offset: float) -> PollDecision:
        """Decide what a poll means that found the object."""

    def _decide_missing(self, at: float) -> PollDecision:
        """Decide what it means that a poll found no object."""
        return PollDecision(WaitStatus.WAITING, f"there is no {self.thing} (yet)")

    def _decide_error(self, error: MailError, at: float) -> PollDecision:
        if not error.temporary and not self._polled_before:
            return PollDecision(WaitStatus.REFUSED, str(error), is_seen=False)
        self._failed.extend(at)
        polls, seconds, limit = self._failed.polls, max(0.0, at - self._failed.since), self._poll_error_timeout
        if polls > MAX_POLL_ERRORS and seconds >= limit:
            return PollDecision(
                WaitStatus.ERROR if error.temporary else WaitStatus.REFUSED,
                f"{polls} polls in a row failed, for {seconds:.0f} s (poll_error_timeout: {limit:g} s), "
                f"the last with: {error}",
                is_seen=False,
            )
        return PollDecision(
            WaitStatus.WAITING,
            f"poll failed ({polls} in a row; the wait ends after {limit:g} s of failed polls): {error}",
            pause=min(FIRST_BACKOFF * 2.0 ** min(polls - 1, 20), MAX_BACKOFF),
            log_key=f"poll failed: {type(error).__name__}",
            is_seen=False,
        )


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
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"


MAX_SCHEDULED_PAUSE = 300.0
"""Maximum seconds between polls of a scheduled campaign: it may be sent earlier, or clocks may change."""

StatsPollResult: TypeAlias = "CampaignStats | MailError | None"
"""The result of one poll: the record of exactly that name, ``None`` if there is none, or the error of the poll."""

Days: TypeAlias = tuple[date, date]
"""First and last day of a window, both included, in UTC."""

INTERVAL_TOLERANCE = 0.99
"""Two observations may be one percent closer than the minimum interval, since clocks are adjusted during a wait."""

MAX_STATS_PAUSE = 3600.0
"""Maximum seconds between polls before the send time or the age is reached: the send time may change."""


PollResult: TypeAlias = "Campaign | MailError | None"
"""The result of one poll: the campaign of exactly that name, ``None`` if there is none, or the poll's error."""


class CampaignWait(Wait):
    """Decides after each poll whether a campaign was sent, failed, or is still awaited.

    :param guid: its unique identifier, if it is known; else the name identifies it.
    :param seen: whether the campaign existed before; ``None`` when that is unknown.
    :param scheduled: whether the campaign is known to have been scheduled. Otherwise a campaign that shows as sending
        counts as being sent, regardless of its send time.
    """

    def __init__(
        self,
        mail_name: str,
        guid: str | None = None,
        *,
        seen: bool | None = False,
        scheduled: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(mail_name, **options)
        self.mail_name = mail_name
        self.guid = guid
        self.seen: bool | None = self._earlier.get("seen", seen)
        self.scheduled = scheduled or bool(self._earlier.get("scheduled"))
        self._drafts = Streak(self._earlier.get("drafts"))

    @property
    def state(self) -> dict[str, Any]:
        return super().state | {"seen": self.seen, "scheduled": self.scheduled, "drafts": self._drafts.state}

    @property
    def has_unconfirmed_draft(self) -> bool:
        """Whether the last poll showed a draft that may still be scheduled or sent."""
        return self._drafts.polls > 0

    def _decide_missing(self, at: float) -> PollDecision:
        self._drafts.end()
        campaign = f"campaign {self.mail_name!r}"
        if self.seen and self._missing.is_confirmed(at):
            return PollDecision(WaitStatus.FAILED, f"{campaign} has disappeared: deleted or cancelled at the service")
        if self.seen is False:
            return PollDecision(
                WaitStatus.WAITING, f"{campaign} was never seen: the service has none of exactly this name (yet)"
            )
        return PollDecision(WaitStatus.WAITING, f"{campaign} was not found ({'any more' if self.seen else 'yet'})")

    def _decide(self, result: Campaign, at: float, offset: float) -> PollDecision:
        from airflow_provider_mail.api.campaigns import MailStatus

        self.seen = True
        campaign, status, send_time = f"campaign {self.mail_name!r}", result.mail_status, result.send_by_date_time
        seconds_ahead = 0.0 if send_time is None else send_time.timestamp() - (at + offset)
        is_draft = status == MailStatus.DRAFT
        if is_draft and seconds_ahead <= 0:
            self._drafts.extend(at)
        else:
            self._drafts.end()
        if status == MailStatus.SENDING and (seconds_ahead <= 0 or not self.scheduled):
            return PollDecision(WaitStatus.WAITING, f"{campaign}: sending (mailStatus 1)")
        if status == MailStatus.COMPLETE:
            stats = result.mail_stats.dump_declared() if result.mail_stats else {}
            return PollDecision(WaitStatus.COMPLETE, f"{campaign} was sent", stats)
        if status == MailStatus.FAILED:
            return PollDecision(
                WaitStatus.FAILED, f"{campaign}: the service reports that sending failed (mailStatus 4)"
            )
        if send_time is not None and seconds_ahead > 0:
            self.scheduled = True
            return PollDecision(
                WaitStatus.WAITING,
                f"{campaign}: scheduled for {format_utc(send_time.timestamp())} (mailStatus {status})",
                pause=min(seconds_ahead, MAX_SCHEDULED_PAUSE),
            )
        if self._drafts.is_confirmed(at):
            return PollDecision(
                WaitStatus.FAILED,
                f"{campaign} is a draft (mailStatus -1): saved only, or cancelled before its send time",
            )
        state = "shows as a draft" if is_draft else "waiting"
        return PollDecision(WaitStatus.WAITING, f"{campaign}: {state} (mailStatus {status})")


class SenderWait(Wait):
    """Decides after each poll whether all four checks of a sender are good.

    :param selector: the DKIM selector, to have the service check the sender at each poll; ``None`` to read the result
        of its last check.
    """

    def __init__(self, sender_email: str, selector: str | None = None, **options: Any) -> None:
        super().__init__(sender_email, **options)
        self.sender_email = sender_email
        self.selector = selector
        self.thing = f"sender {sender_email!r}"

    def _decide(self, result: Checks, at: float, offset: float) -> PollDecision:
        from airflow_provider_mail.api.senders import failed_checks

        if all(result.values()):
            return PollDecision(WaitStatus.COMPLETE, f"all four checks of {self.thing} are good", dict(result))
        failed = failed_checks(result)
        return PollDecision(WaitStatus.WAITING, f"{self.thing} is not valid yet{f': {failed}' if failed else ''}")


class StatsStabilityTracker(Wait):
    """Decides after each poll whether the statistics of a campaign are final.

    ``record`` is the last record found, as plain JSON with the specification's fields in snake_case.

    :param stable_checks: final after this many consecutive observations of the same counts; ``None``: by age only.
    :param min_interval: a poll that finds the same counts is an observation if it is at least this many seconds after
        the previous observation.
    :param max_age: final this many seconds after the send time, even if counts change; ``None``: never by age.
    """

    def __init__(
        self,
        mail_name: str,
        *,
        stable_checks: int | None = None,
        min_interval: float = 0.0,
        max_age: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__([mail_name, min_interval], **options)
        self.mail_name = mail_name
        self.window: tuple[date, date | None] = (date.min, None)
        """The first and the last day on which the campaign may have been sent; ``None`` for the day of the poll."""
        self._stable_checks = stable_checks
        self._min_interval = min_interval
        self._max_age = max_age
        self.record: dict[str, Any] | None = self._earlier.get("record")
        self._same = int(self._earlier.get("same", 0))
        self._last = float(self._earlier.get("last", 0.0))
        self._polled_before |= self.record is not None

    @property
    def state(self) -> dict[str, Any]:
        return super().state | {"record": self.record, "same": self._same, "last": self._last}

    @property
    def send_time(self) -> datetime | None:
        """When the campaign was or will be sent; ``None`` until it is known."""
        text = self.record["mail_send_date"] if self.record else None
        return None if text is None else datetime.fromisoformat(text)

    @property
    def not_before(self) -> float:
        """The service's Unix time before which a poll is useless."""
        sent = self.send_time
        if sent is None:
            return 0.0
        return sent.timestamp() + (self._max_age or 0.0 if self._stable_checks is None else 0.0)

    def is_unknown(self, at: float) -> bool:
        """Return whether there were no statistics for five minutes, and none before."""
        return self.record is None and self._missing.is_confirmed(at)

    def days(self, start_day: date, end_day: date | None, at: float) -> Days:
        """Return the days to request: the given days or, once the send time is known, the days around it.

        :param end_day: ``None`` for the day of the poll.
        :param at: the service's time of the poll.
        """
        sent, today = self.send_time, datetime.fromtimestamp(at, UTC).date()
        if sent is not None and sent.timestamp() <= at and not self._missing.polls:
            # The specification does not show the time zone of days; no zone differs from UTC by a full day.
            day = sent.astimezone(UTC).date()
            return day - timedelta(days=1), min(day + timedelta(days=1), today)
        return start_day, max(start_day, end_day or today)

    def _decide(self, result: CampaignStats, at: float, offset: float) -> PollDecision:
        record = result.model_dump(mode="json", include=set(type(result).model_fields))
        if record != self.record:
            self.record, self._same, self._last = record, 1, at
        elif at - self._last >= self._min_interval * INTERVAL_TOLERANCE:
            self._same, self._last = self._same + 1, at
        now = at + offset
        return replace(self._decide_found(now), pause=min(max(0.0, self.not_before - now), MAX_STATS_PAUSE))

    def _decide_found(self, at: float) -> PollDecision:
        sent, statistics = self.send_time, f"statistics of campaign {self.mail_name!r}"
        if sent is not None and sent.timestamp() > at:
            self._same = 0  # Counts before the send time are not evidence.
            return PollDecision(WaitStatus.WAITING, f"{statistics}: it will be sent at {sent:%Y-%m-%d %H:%M:%S %Z}")
        if self._max_age is not None and sent is not None and at >= sent.timestamp() + self._max_age:
            return self._final(
                f"{statistics} are final: it was sent {timedelta(seconds=int(at - sent.timestamp()))} ago"
            )
        if self._stable_checks is None:
            return PollDecision(WaitStatus.WAITING, f"{statistics} are not old enough")
        progress = f"the same in {self._same} of {self._stable_checks} observations"
        if self._same >= self._stable_checks:
            return self._final(f"{statistics} are final: {progress}")
        return PollDecision(WaitStatus.WAITING, f"{statistics}: {progress}")

    def _final(self, message: str) -> PollDecision:
        return PollDecision(WaitStatus.COMPLETE, message, dict(self.record or {}))

    def _decide_missing(self, at: float) -> PollDecision:
        campaign = f"campaign {self.mail_name!r}"
        if self.record is None:
            return PollDecision(WaitStatus.WAITING, f"there are no statistics of a {campaign} (yet)")
        if self._missing.is_confirmed(at):
            return PollDecision(WaitStatus.FAILED, f"the statistics of {campaign} have disappeared: was it deleted?")
        return PollDecision(WaitStatus.WAITING, f"the statistics of {campaign} were not found (any more)")
