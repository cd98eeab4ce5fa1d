"""Waiting for a campaign, a sender, or final statistics: what a poll means, given those before it. No I/O.

The service does not report when statistics are final: recipients open and click for days. Statistics are considered
final when they have not changed for long enough, or when the campaign is old enough.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_provider_mail.api._core.requests import Client
from airflow_provider_mail.api._core.responses import compact_records
from airflow_provider_mail.api.campaigns import Campaign, CampaignStats, GetCampaigns, GetCampaignStats, MailStatus
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.flows.polling import PollDecision, PollErrorBudget, Streak, WaitStatus, format_utc

if TYPE_CHECKING:
    from airflow_provider_mail.api.senders import Checks

_STATE_FIELDS = ("mail_name", "mail_status", "send_by_date_time", "guid", "team_name", "mail_stats")
"""The fields of a campaign that polls need: without the contents, which make up most of a response."""

MAX_SCHEDULED_PAUSE = 300.0
"""Maximum seconds between polls of a scheduled campaign: it may be sent earlier, or clocks may change."""

StatsPollResult: TypeAlias = CampaignStats | MailError | None
"""The result of one poll: the record of exactly that name, ``None`` if there is none, or the error of the poll."""

Days: TypeAlias = tuple[date, date]
"""First and last day of a window, both included, in UTC."""

INTERVAL_TOLERANCE = 0.99
"""Two observations may be one percent closer than the minimum interval, since clocks are adjusted during a wait."""

MAX_STATS_PAUSE = 3600.0
"""Maximum seconds between polls before the send time or the age is reached: the send time may change."""


def get_campaign_states(statuses: list[MailStatus]) -> GetCampaigns:
    """Return the request for campaigns in some states, a hundred per page, with only the fields that polls need."""
    return compact_records(GetCampaigns(mail_status=statuses, page_size=100), _STATE_FIELDS)


PollResult: TypeAlias = Campaign | MailError | None
"""The result of one poll: the campaign of exactly that name, ``None`` if there is none, or the poll's error."""


class CampaignWait:
    """Decides after each poll whether a campaign was sent, failed, or is still awaited.

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

    def _decide_found(self, campaign: Campaign, at: float, seconds_ahead: float) -> PollDecision:
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
                pause=min(seconds_ahead, MAX_SCHEDULED_PAUSE),
            )
        if status == MailStatus.DRAFT and self._drafts.is_confirmed(at):
            return PollDecision(
                WaitStatus.FAILED,
                f"{description} is a draft (mailStatus -1): saved only, or cancelled before its send time",
            )
        state = "shows as a draft" if status == MailStatus.DRAFT else "waiting"
        return PollDecision(WaitStatus.WAITING, f"{description}: {state} (mailStatus {status})")


class SenderWait:
    """Decides after each poll whether all four checks of a sender are good.

    :param errors: limits how long polls may fail. Default: the limits of :class:`PollErrorBudget`.
    :param state: the :attr:`state` of another object, to continue from it; ignored if it is of another sender.
    """

    def __init__(
        self, sender_email: str, errors: PollErrorBudget | None = None, *, state: dict[str, Any] | None = None
    ) -> None:
        own = state if state and state.get("sender_email") == sender_email else {}
        self._sender_email = sender_email
        self._errors = errors or PollErrorBudget()
        self._errors.restore(own.get("errors"))

    @property
    def state(self) -> dict[str, Any]:
        return {"sender_email": self._sender_email, "errors": self._errors.state}

    def decide(self, result: Checks | MailError | None, at: float, offset: float = 0.0) -> PollDecision:
        """Decide what a poll means, given those before it.

        :param result: the checks, ``None`` when there is no such sender, or the error of the poll.
        :param at: Unix time of the poll.
        """
        if isinstance(result, MailError):
            return self._errors.failed(result, at)
        self._errors.succeeded()
        sender = f"sender {self._sender_email!r}"
        if result is None:
            return PollDecision(WaitStatus.WAITING, f"there is no {sender} (yet)")
        if all(result.values()):
            return PollDecision(WaitStatus.COMPLETE, f"all four checks of {sender} are good", dict(result))
        from airflow_provider_mail.api.senders import failed_checks

        failed = failed_checks(result)
        return PollDecision(WaitStatus.WAITING, f"{sender} is not valid yet{f': {failed}' if failed else ''}")


def find_stats(client: Client, mail_name: str, days: Days) -> CampaignStats | None:
    """Get the record of the campaign of exactly this name, if it was sent in these days.

    :raises MailIncompleteError: the response for a single day is incomplete.
    """
    # Imported here: it takes some time, and most waits are for a campaign.
    from airflow_provider_mail.api.flows.statistics import campaign_stats

    start_day, end_day = days
    records = campaign_stats(client, GetCampaignStats(start_date=start_day, end_date=end_day, mail_name=mail_name))
    return by_name(records).get(mail_name)


def by_name(records: list[CampaignStats]) -> dict[str, CampaignStats]:
    return {record.mail_name: record for record in records}


class StatsStabilityTracker:
    """Decides after each poll whether the statistics of a campaign are final.

    ``record`` is the last record found, as plain JSON with the specification's fields in snake_case.

    :param errors: limits how long polls may fail. Default: the limits of :class:`PollErrorBudget`.
    :param stable_checks: final after this many consecutive observations of the same counts; ``None``: by age only.
    :param min_interval: a poll that finds the same counts is an observation if it is at least this many seconds after
        the previous observation.
    :param max_age: final this many seconds after the send time, even if counts change; ``None``: never by age.
    :param state: the :attr:`state` of another object, to continue from it; ignored if it is of another campaign or
        ``min_interval``.
    """

    def __init__(
        self,
        mail_name: str,
        errors: PollErrorBudget | None = None,
        *,
        stable_checks: int | None = None,
        min_interval: float = 0.0,
        max_age: float | None = None,
        state: dict[str, Any] | None = None,
    ) -> None:
        self.mail_name = mail_name
        self._stable_checks = stable_checks
        self._min_interval = min_interval
        self._max_age = max_age
        own = state if state and (state["mail_name"], state["min_interval"]) == (mail_name, min_interval) else {}
        self.record: dict[str, Any] | None = own.get("record")
        self._same = int(own.get("same", 0))
        self._last = float(own.get("last", 0.0))
        self._missing = Streak(own.get("missed"))
        self._errors = errors or PollErrorBudget()
        self._errors.restore(own.get("errors"))
        self._errors.polled_before |= self.record is not None

    @property
    def state(self) -> dict[str, Any]:
        return {
            "mail_name": self.mail_name,
            "min_interval": self._min_interval,
            "record": self.record,
            "same": self._same,
            "last": self._last,
            "missed": self._missing.state,
            "errors": self._errors.state,
        }

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
        """Return whether there were no statistics for five minutes, and none before.

        :param at: Unix time.
        """
        return self.record is None and self._missing.is_confirmed(at)

    def days(self, start_day: date, end_day: date | None, at: float) -> Days:
        """Return the days to request: the given days or, once the send time is known, the days around it.

        :param start_day: first day on which the campaign may have been sent.
        :param end_day: last such day; ``None`` for the day of the poll.
        :param at: the service's Unix time of the poll.
        """
        sent, today = self.send_time, datetime.fromtimestamp(at, UTC).date()
        if sent is not None and sent.timestamp() <= at and not self._missing.polls:
            # The specification does not show the time zone of days; no zone differs from UTC by a full day.
            day = sent.astimezone(UTC).date()
            return day - timedelta(days=1), min(day + timedelta(days=1), today)
        return start_day, max(start_day, end_day or today)

    def decide(self, result: StatsPollResult, at: float, offset: float = 0.0) -> PollDecision:
        """Decide what a poll means, given those before it.

        :param at: Unix time of the poll.
        :param offset: seconds by which the service's clock is ahead of the local one.
        """
        if isinstance(result, MailError):
            return self._errors.failed(result, at)
        self._errors.succeeded()
        if result is None:
            self._missing.extend(at)
            return self._decide_missing(at)
        self._missing.end()
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
