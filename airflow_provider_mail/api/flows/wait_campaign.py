"""What the polls of a campaign mean to a wait for it (document, "States and transitions"). No I/O.

Patience is a time, not a count: a state that may pass (failed polls, a campaign that is missing or shows as a draft)
ends a wait only after it has lasted, in several polls.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeAlias

from airflow_provider_mail.api.campaigns import Campaign, MailStatus
from airflow_provider_mail.api.errors import MailError

PollResult: TypeAlias = Campaign | MailError | None
"""The result of one poll: the campaign of exactly that name, nothing, or why the poll failed."""

POLL_ERROR_TIMEOUT = 600.0
"""Seconds: polls may fail in a row for so long before a wait is given up, unless it says otherwise."""

MAX_POLL_ERRORS = 2
"""At least one more poll than this must have failed, so that two errors an hour apart do not end a wait."""

CONFIRM_SECONDS = 300.0
"""A campaign that is missing after it was there, or that shows as a draft, must do so for so many seconds, in two polls
or more, to end a wait: the document does not show how soon a campaign appears, nor its status until it is sent."""

MAX_PAUSE = 300.0
"""Seconds from one poll of a scheduled campaign to the next, at most: it may be sent earlier, or clocks be changed."""

FIRST_BACKOFF, MAX_BACKOFF = 0.5, 60.0
"""Seconds to pause after the first failed poll, doubling with each one in a row, and the longest such pause."""

HEARTBEAT_SECONDS = 3600.0
"""A wait logs its status when it changes, and otherwise once in so many seconds."""


class WaitStatus(StrEnum):
    """How a wait stands."""

    WAITING = "waiting"
    COMPLETE = "complete"
    FAILED = "failed"
    """The campaign will not go out: final."""
    REFUSED = "refused"
    """The service or the connection's settings do not allow polling: no retry fixes it."""
    ERROR = "error"
    """Polls have failed for too long."""
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class PollDecision:
    """What a poll means.

    :param message: for a person: what is waited for, or why the wait is over.
    :param mail_stats: what was waited for, when it is complete: a campaign's counts, a sender's checks.
    :param pause: seconds until the next poll is useful; at least the wait's interval is kept.
    :param status: equal for polls that show the same; default: the message.
    """

    outcome: WaitStatus
    message: str
    mail_stats: dict[str, Any] = field(default_factory=dict)
    pause: float = 0.0
    status: str = ""

    def __post_init__(self) -> None:
        if not self.status:
            object.__setattr__(self, "status", self.message)


class StatusLog:
    """Decides when a wait logs its status: when that has changed, and once in :data:`HEARTBEAT_SECONDS`."""

    def __init__(self) -> None:
        self._status: str | None = None
        self._logged_at = 0.0

    def is_due(self, verdict: PollDecision, at: float) -> bool:
        """Whether to log this one.

        :param at: Unix time.
        """
        if verdict.status == self._status and 0 <= at - self._logged_at < HEARTBEAT_SECONDS:
            return False
        self._status, self._logged_at = verdict.status, at
        return True


def status_line(verdict: PollDecision, interval: float, end_time: float | None) -> str:
    """A wait's status for the log: what is known, when the next poll is, and when the wait is given up.

    :param interval: seconds from one poll to the next.
    :param end_time: Unix time; ``None`` when the wait has no deadline of its own.
    """
    if verdict.outcome is not WaitStatus.WAITING:
        return verdict.message
    deadline = "" if end_time is None else f", deadline {_utc(end_time)}"
    return f"{verdict.message}; next poll in {max(interval, verdict.pause):.4g} s{deadline}"


class Streak:
    """Polls in a row that showed the same.

    :param memory: of another object's :attr:`memory`, to continue it.
    """

    def __init__(self, memory: list[float] | None = None) -> None:
        self.since, self.polls = (float(memory[0]), int(memory[1])) if memory else (0.0, 0)

    @property
    def memory(self) -> list[float] | None:
        """As plain JSON; ``None`` while there is none."""
        return [self.since, self.polls] if self.polls else None

    def extend(self, at: float) -> None:
        """Count one more poll.

        :param at: Unix time.
        """
        self.since, self.polls = at if not self.polls else self.since, self.polls + 1

    def end(self) -> None:
        """Another poll showed something else."""
        self.polls = 0

    def lasted(self, seconds: float, at: float) -> bool:
        """Whether it is that long, in two polls or more."""
        return self.polls > 1 and at - self.since >= seconds


class PollErrorBudget:
    """How long polls may fail in a row.

    :param looked: whether a poll has worked before. A refusal then counts as one failed poll, since a key may be
        exchanged while tasks wait; when it is the first of all polls, it ends the wait at once.
    :param timeout: seconds from the first failed poll in a row to the one that ends the wait.
    :param max_errors: at least one more poll than this must have failed.
    :param memory: of another object's :attr:`memory`, to continue it.
    """

    def __init__(
        self,
        *,
        looked: bool = False,
        timeout: float = POLL_ERROR_TIMEOUT,
        max_errors: int = MAX_POLL_ERRORS,
        memory: dict[str, Any] | None = None,
    ) -> None:
        memory = memory or {}
        self._timeout = timeout
        self._max_errors = max_errors
        self._looked = looked or bool(memory.get("looked"))
        self._failed = Streak(memory.get("failed"))

    @property
    def memory(self) -> dict[str, Any]:
        """What must outlive the process, as plain JSON."""
        return {"looked": self._looked, "failed": self._failed.memory}

    def succeeded(self) -> None:
        """A poll has worked."""
        self._failed.end()
        self._looked = True

    def failed(self, error: MailError, at: float) -> PollDecision:
        """What a failed poll means, after those before it.

        :param at: Unix time of the poll.
        """
        if not error.temporary and not self._looked:
            return PollDecision(WaitStatus.REFUSED, str(error))
        self._failed.extend(at)
        polls, seconds = self._failed.polls, max(0.0, at - self._failed.since)
        if polls > self._max_errors and seconds >= self._timeout:
            outcome = WaitStatus.ERROR if error.temporary else WaitStatus.REFUSED
            return PollDecision(
                outcome,
                f"{polls} polls in a row failed, for {seconds:.0f} s (poll_error_timeout: {self._timeout:g} s), "
                f"the last with: {error}",
            )
        return PollDecision(
            WaitStatus.WAITING,
            f"poll failed ({polls} in a row; given up after {self._timeout:g} s): {error}",
            pause=min(FIRST_BACKOFF * 2.0 ** min(polls - 1, 20), MAX_BACKOFF),
            status=f"poll failed: {type(error).__name__}",
        )


class CampaignWait:
    """Judges poll after poll.

    :param mail_name: the campaign's exact name.
    :param seen: whether it has been there before; ``None`` when that is not known.
    :param scheduled: whether it is known to have been scheduled. Without that, a campaign that shows as sending is
        taken to be sending, whatever its send time.
    :param looked: see :class:`PollErrorBudget`.
    :param poll_error_timeout: see :class:`PollErrorBudget`.
    :param max_poll_errors: see :class:`PollErrorBudget`.
    :param memory: of another object's :attr:`memory`, to continue it.
    """

    def __init__(
        self,
        mail_name: str,
        *,
        seen: bool | None = False,
        scheduled: bool = False,
        looked: bool = False,
        poll_error_timeout: float = POLL_ERROR_TIMEOUT,
        max_poll_errors: int = MAX_POLL_ERRORS,
        memory: dict[str, Any] | None = None,
    ) -> None:
        mine = memory if memory and memory.get("mail_name") == mail_name else {}
        self.mail_name = mail_name
        self.seen: bool | None = mine.get("seen", seen)
        self.scheduled = scheduled or bool(mine.get("scheduled"))
        self._errors = PollErrorBudget(
            looked=looked, timeout=poll_error_timeout, max_errors=max_poll_errors, memory=mine.get("errors")
        )
        self._missing = Streak(mine.get("missing"))
        self._drafts = Streak(mine.get("drafts"))

    @property
    def memory(self) -> dict[str, Any]:
        """What must outlive the process, as plain JSON."""
        return {
            "mail_name": self.mail_name,
            "seen": self.seen,
            "scheduled": self.scheduled,
            "errors": self._errors.memory,
            "missing": self._missing.memory,
            "drafts": self._drafts.memory,
        }

    @property
    def in_doubt(self) -> bool:
        """Whether the last poll showed a draft that may still become more."""
        return self._drafts.polls > 0

    def judge(self, look: PollResult, at: float, offset: float = 0.0) -> PollDecision:
        """What this poll means, after those before it.

        :param at: Unix time of the poll.
        :param offset: seconds by which the service's clock is ahead.
        """
        if isinstance(look, MailError):
            return self._errors.failed(look, at)
        self._errors.succeeded()
        if look is None:
            self._drafts.end()
            self._missing.extend(at)
            return self._absent(at)
        self._missing.end()
        self.seen = True
        now = datetime.fromtimestamp(at + offset, UTC)
        if look.mail_status == MailStatus.DRAFT and not look.send_time_is_ahead(now):
            self._drafts.extend(at)
        else:
            self._drafts.end()
        return self._present(look, at, now)

    def _absent(self, at: float) -> PollDecision:
        named = f"campaign {self.mail_name!r}"
        if self.seen and self._missing.lasted(CONFIRM_SECONDS, at):
            return PollDecision(WaitStatus.FAILED, f"{named} has disappeared: deleted or cancelled at the service")
        if self.seen:
            return PollDecision(WaitStatus.WAITING, f"{named} is not there (any more)")
        if self.seen is None:
            return PollDecision(WaitStatus.WAITING, f"{named} is not there (yet)")
        return PollDecision(
            WaitStatus.WAITING, f"{named} was never seen: the service has none of exactly this name (yet)"
        )

    def _present(self, campaign: Campaign, at: float, now: datetime) -> PollDecision:
        named, status = f"campaign {self.mail_name!r}", campaign.mail_status
        if status == MailStatus.COMPLETE:
            stats = campaign.mail_stats.model_dump(mode="json", exclude_none=True) if campaign.mail_stats else {}
            return PollDecision(WaitStatus.COMPLETE, f"{named} has gone out", stats)
        if status == MailStatus.FAILED:
            return PollDecision(WaitStatus.FAILED, f"{named}: the service reports that sending failed (mailStatus 4)")
        send_time = campaign.send_by_date_time
        trusted = status != MailStatus.SENDING or self.scheduled
        if send_time is not None and trusted and campaign.send_time_is_ahead(now):
            self.scheduled = True
            return PollDecision(
                WaitStatus.WAITING,
                f"{named}: scheduled for {_utc(send_time.timestamp())} (mailStatus {status})",
                pause=min((send_time - now).total_seconds(), MAX_PAUSE),
            )
        if status == MailStatus.DRAFT and self._drafts.lasted(CONFIRM_SECONDS, at):
            return PollDecision(
                WaitStatus.FAILED, f"{named} is a draft (mailStatus -1): saved only, or cancelled before its send time"
            )
        shown = {MailStatus.DRAFT: "shows as a draft", MailStatus.SENDING: "sending"}.get(status, "waiting")  # type: ignore[call-overload]
        return PollDecision(WaitStatus.WAITING, f"{named}: {shown} (mailStatus {status})")


def _utc(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"
