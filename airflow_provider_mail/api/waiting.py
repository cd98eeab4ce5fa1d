"""What looking at a campaign means to somebody who waits for it (document, "States and transitions")."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeAlias

from airflow_provider_mail.api.campaigns import Campaign, MailStatus
from airflow_provider_mail.api.errors import MailError

Look: TypeAlias = Campaign | MailError | None
"""What one look found: the campaign of exactly that name, nothing, or why the look failed."""

MAX_POLL_ERRORS = 10
"""So many failed looks in a row are borne."""

MISSED_LOOKS = 3
"""So many looks in a row may miss a campaign that was there before, or see a draft: a new one may appear late, and the
document does not show the status it has until it is sent."""


class Outcome(StrEnum):
    """How a wait stands."""

    WAITING = "waiting"
    COMPLETE = "complete"
    FAILED = "failed"
    """The campaign will not go out: final."""
    REFUSED = "refused"
    """The service or the connection's settings do not let us look: no retry mends it."""
    ERROR = "error"
    """Looking failed too often in a row."""
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a look means.

    :param message: for a person: what is waited for, or why the wait is over.
    :param mail_stats: what was waited for, when it is complete: a campaign's counts, a sender's checks.
    """

    outcome: Outcome
    message: str
    mail_stats: dict[str, Any] = field(default_factory=dict)


class Patience:
    """How many failed looks in a row are borne.

    :param looked: whether looking has worked before. A refusal then counts as one failed look, since a key may be
        exchanged while we wait; the first look of all ends the wait at once.
    :param max_poll_errors: so many failed looks in a row are borne.
    """

    def __init__(self, *, looked: bool = False, max_poll_errors: int = MAX_POLL_ERRORS) -> None:
        self._looked = looked
        self._max_poll_errors = max_poll_errors
        self._errors = 0

    def worked(self) -> None:
        """A look has worked."""
        self._errors = 0
        self._looked = True

    def failed(self, error: MailError) -> Verdict:
        """What a failed look means, after those before it."""
        self._errors += 1
        if not error.temporary and not self._looked:
            return Verdict(Outcome.REFUSED, str(error))
        if self._errors > self._max_poll_errors:
            outcome = Outcome.ERROR if error.temporary else Outcome.REFUSED
            return Verdict(outcome, f"{self._errors} looks in a row failed, the last with: {error}")
        return Verdict(
            Outcome.WAITING, f"look failed ({self._errors} in a row, {self._max_poll_errors} are borne): {error}"
        )


class CampaignWait:
    """Judges look after look.

    ``not_before`` is the send time (Unix time) of a campaign that was last seen waiting for it, else 0: until then
    there is nothing to see.

    :param mail_name: the campaign's exact name.
    :param seen: whether it has been there before.
    :param looked: see :class:`Patience`.
    :param max_poll_errors: see :class:`Patience`.
    """

    def __init__(
        self, mail_name: str, *, seen: bool = False, looked: bool = False, max_poll_errors: int = MAX_POLL_ERRORS
    ) -> None:
        self.mail_name = mail_name
        self.seen = seen
        self.not_before = 0.0
        self._patience = Patience(looked=looked, max_poll_errors=max_poll_errors)
        self._missing = 0
        self._drafts = 0

    @property
    def in_doubt(self) -> bool:
        """Whether the last look showed a draft that may still become more."""
        return self._drafts > 0

    def judge(self, look: Look) -> Verdict:
        """What this look means, after those before it."""
        if isinstance(look, MailError):
            return self._patience.failed(look)
        self._patience.worked()
        self.not_before = _send_time_ahead(look)
        if look is None:
            self._missing += 1
            self._drafts = 0
            if self.seen and self._missing >= MISSED_LOOKS:
                return Verdict(
                    Outcome.FAILED, f"campaign {self.mail_name!r} has disappeared: deleted or cancelled at the service"
                )
            return Verdict(Outcome.WAITING, f"there is no campaign {self.mail_name!r} (yet)")
        self._missing = 0
        self.seen = True
        self._drafts = self._drafts + 1 if look.is_idle_draft else 0
        if look.mail_status == MailStatus.DRAFT and self._drafts < MISSED_LOOKS:
            return Verdict(Outcome.WAITING, f"campaign {self.mail_name!r} shows as a draft (mailStatus -1)")
        return _status(look)


def _send_time_ahead(campaign: Campaign | None) -> float:
    send_time = None if campaign is None else campaign.send_by_date_time
    return send_time.timestamp() if send_time is not None and send_time > datetime.now(UTC) else 0.0


def _status(campaign: Campaign) -> Verdict:
    name, status = repr(campaign.mail_name), campaign.mail_status
    if status == MailStatus.COMPLETE:
        stats = campaign.mail_stats.model_dump(mode="json", exclude_none=True) if campaign.mail_stats else {}
        return Verdict(Outcome.COMPLETE, f"campaign {name} has gone out", stats)
    if status == MailStatus.FAILED:
        return Verdict(Outcome.FAILED, f"campaign {name}: the service reports that sending failed (mailStatus 4)")
    if status == MailStatus.DRAFT:
        return Verdict(
            Outcome.FAILED, f"campaign {name} is a draft (mailStatus -1): saved only, or cancelled before its send time"
        )
    return Verdict(Outcome.WAITING, f"campaign {name} has mailStatus {status}")
