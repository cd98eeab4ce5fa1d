"""Waiting for a campaign to be sent (specification, "States and transitions"). No I/O."""

from __future__ import annotations

from typing import Any, TypeAlias

from airflow_provider_mail.api.campaigns import Campaign, MailStatus
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.flows.campaign_states import CampaignState
from airflow_provider_mail.api.flows.polling import (
    PollDecision,
    PollErrorBudget,
    Streak,
    WaitStatus,
    format_utc,
)

PollResult: TypeAlias = Campaign | CampaignState | MailError | None
"""The result of one poll: the campaign of exactly that name, ``None`` if there is none, or the poll's error."""

MAX_PAUSE = 300.0
"""Maximum seconds between polls of a scheduled campaign: it may be sent earlier, or clocks may change."""


class CampaignWait:
    """Decides after each poll whether a campaign was sent, failed, or is still awaited.

    :param mail_name: the campaign's exact name.
    :param errors: limits how long polls may fail. Default: the limits of :class:`PollErrorBudget`.
    :param seen: whether the campaign existed before; ``None`` when that is unknown.
    :param scheduled: whether the campaign is known to have been scheduled. Otherwise a campaign that shows as sending
        counts as being sent, regardless of its send time.
    :param state: the :attr:`state` of another object, to continue from it; ignored if it is of another campaign.
    """

    __slots__ = ("_drafts", "_errors", "_missing", "mail_name", "scheduled", "seen")

    def __init__(
        self,
        mail_name: str,
        errors: PollErrorBudget | None = None,
        *,
        seen: bool | None = False,
        scheduled: bool = False,
        state: dict[str, Any] | None = None,
    ) -> None:
        own = state if state and state.get("mail_name") == mail_name else {}
        self.mail_name = mail_name
        self.seen: bool | None = own.get("seen", seen)
        self.scheduled = scheduled or bool(own.get("scheduled"))
        self._errors = errors or PollErrorBudget()
        self._errors.restore(own.get("errors"))
        self._missing = Streak(own.get("missing"))
        self._drafts = Streak(own.get("drafts"))

    @property
    def state(self) -> dict[str, Any]:
        """The state that another process needs to continue the wait, as plain JSON."""
        return {
            "mail_name": self.mail_name,
            "seen": self.seen,
            "scheduled": self.scheduled,
            "errors": self._errors.state,
            "missing": self._missing.state,
            "drafts": self._drafts.state,
        }

    @property
    def has_unconfirmed_draft(self) -> bool:
        """Whether the last poll showed a draft that may still be scheduled or sent."""
        return self._drafts.polls > 0

    def decide(self, result: PollResult, at: float, offset: float = 0.0) -> PollDecision:
        """Decide what a poll means, given those before it.

        :param at: Unix time of the poll.
        :param offset: seconds by which the service's clock is ahead of the local one.
        """
        if isinstance(result, MailError):
            return self._errors.failed(result, at)
        self._errors.succeeded()
        if result is None:
            self._drafts.end()
            self._missing.extend(at)
            return self._decide_missing(at)
        self._missing.end()
        self.seen = True
        send_time = result.send_by_date_time
        seconds_ahead = 0.0 if send_time is None else send_time.timestamp() - (at + offset)
        if result.mail_status == MailStatus.DRAFT and seconds_ahead <= 0:
            self._drafts.extend(at)
        else:
            self._drafts.end()
        return self._decide_found(result, at, seconds_ahead)

    def _decide_missing(self, at: float) -> PollDecision:
        campaign = f"campaign {self.mail_name!r}"
        if self.seen and self._missing.is_confirmed(at):
            return PollDecision(WaitStatus.FAILED, f"{campaign} has disappeared: deleted or cancelled at the service")
        if self.seen is False:
            return PollDecision(
                WaitStatus.WAITING, f"{campaign} was never seen: the service has none of exactly this name (yet)"
            )
        return PollDecision(WaitStatus.WAITING, f"{campaign} was not found ({'any more' if self.seen else 'yet'})")

    def _decide_found(self, campaign: Campaign | CampaignState, at: float, seconds_ahead: float) -> PollDecision:
        description, status = f"campaign {self.mail_name!r}", campaign.mail_status
        if status == MailStatus.SENDING and (seconds_ahead <= 0 or not self.scheduled):
            return PollDecision(WaitStatus.WAITING, f"{description}: sending (mailStatus 1)")
        if status == MailStatus.COMPLETE:
            stats = campaign.mail_stats.dump_declared() if campaign.mail_stats else {}
            return PollDecision(WaitStatus.COMPLETE, f"{description} was sent", stats)
        if status == MailStatus.FAILED:
            return PollDecision(
                WaitStatus.FAILED, f"{description}: the service reports that sending failed (mailStatus 4)"
            )
        if seconds_ahead > 0:
            assert campaign.send_by_date_time is not None
            self.scheduled = True
            return PollDecision(
                WaitStatus.WAITING,
                f"{description}: scheduled for {format_utc(campaign.send_by_date_time.timestamp())} "
                f"(mailStatus {status})",
                pause=min(seconds_ahead, MAX_PAUSE),
            )
        if status == MailStatus.DRAFT and self._drafts.is_confirmed(at):
            return PollDecision(
                WaitStatus.FAILED,
                f"{description} is a draft (mailStatus -1): saved only, or cancelled before its send time",
            )
        state = "shows as a draft" if status == MailStatus.DRAFT else "waiting"
        return PollDecision(WaitStatus.WAITING, f"{description}: {state} (mailStatus {status})")
