"""When the statistics of a campaign are final (document, "Campaign statistics record").

The service never says so: people open and click for days. They are taken for final when they have stayed the same for
long enough, or when the campaign is old enough.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeAlias

from airflow_provider_mail.api._core.requests import Flow
from airflow_provider_mail.api.campaigns import CampaignStats, GetCampaignStats
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.flows.statistics import DAY, campaign_stats
from airflow_provider_mail.api.flows.wait_campaign import (
    CONFIRM_SECONDS,
    MAX_POLL_ERRORS,
    POLL_ERROR_TIMEOUT,
    PollDecision,
    PollErrorBudget,
    Streak,
    WaitStatus,
)

StatsLook: TypeAlias = CampaignStats | MailError | None
"""What one look found: the record of exactly that name, nothing, or why the look failed."""

Days: TypeAlias = tuple[date, date]
"""First and last day of a window, both included, in UTC."""

INTERVAL_TOLERANCE = 0.99
"""Two observations may be closer than asked for by a hundredth: clocks are set while we wait."""


MAX_PAUSE = 3600.0
"""Seconds from one poll to the next, at most, while the send time or the age is ahead: either may be changed."""


def find_stats(mail_name: str, days: Days) -> Flow[CampaignStats | None]:
    """The record of the campaign of exactly that name, if it was sent in these days.

    :raises MailIncompleteError: when the answer for a single day is short.
    """
    start_day, end_day = days
    records = yield from campaign_stats(GetCampaignStats(start_date=start_day, end_date=end_day, mail_name=mail_name))
    return by_name(records).get(mail_name)


def by_name(records: list[CampaignStats]) -> dict[str, CampaignStats]:
    """The records by their campaigns' names, which are unique within a team."""
    return {record.mail_name: record for record in records}


class StatsStabilityTracker:
    """Judges look after look at the statistics of one campaign.

    ``record`` is the last record seen, as plain JSON with the document's fields in snake_case.

    :param mail_name: the campaign's exact name.
    :param observations: final after so many looks in a row that found the same counts; ``None``: by age alone.
    :param apart: a look that finds the same counts is an observation when it comes so many seconds after the last one.
    :param age: final so many seconds after the send time, whatever changes; ``None``: never for that reason.
    :param memory: of another object's :attr:`memory`, to go on where that one was.
    :param looked: see :class:`~airflow_provider_mail.api.flows.wait_campaign.PollErrorBudget`.
    :param poll_error_timeout: see :class:`~airflow_provider_mail.api.flows.wait_campaign.PollErrorBudget`.
    :param max_poll_errors: see :class:`~airflow_provider_mail.api.flows.wait_campaign.PollErrorBudget`.
    """

    def __init__(
        self,
        mail_name: str,
        *,
        observations: int | None = None,
        apart: float = 0.0,
        age: float | None = None,
        memory: dict[str, Any] | None = None,
        looked: bool = False,
        poll_error_timeout: float = POLL_ERROR_TIMEOUT,
        max_poll_errors: int = MAX_POLL_ERRORS,
    ) -> None:
        self.mail_name = mail_name
        self._observations = observations
        self._apart = apart
        self._age = age
        mine = memory if memory and (memory["mail_name"], memory["apart"]) == (mail_name, apart) else {}
        self.record: dict[str, Any] | None = mine.get("record")
        self._same = int(mine.get("same", 0))
        self._last = float(mine.get("last", 0.0))
        self._missing = Streak(mine.get("missed"))
        self._errors = PollErrorBudget(
            looked=looked or self.record is not None,
            timeout=poll_error_timeout,
            max_errors=max_poll_errors,
            memory=mine.get("errors"),
        )

    @property
    def memory(self) -> dict[str, Any]:
        """What has been seen, as plain JSON."""
        return {
            "mail_name": self.mail_name,
            "apart": self._apart,
            "record": self.record,
            "same": self._same,
            "last": self._last,
            "missed": self._missing.memory,
            "errors": self._errors.memory,
        }

    @property
    def send_time(self) -> datetime | None:
        """When the campaign was or will be sent, once that is known."""
        text = self.record["mail_send_date"] if self.record else None
        return None if text is None else datetime.fromisoformat(text)

    @property
    def not_before(self) -> float:
        """The service's Unix time before which there is nothing to see."""
        sent = self.send_time
        if sent is None:
            return 0.0
        return sent.timestamp() + (self._age or 0.0 if self._observations is None else 0.0)

    def days(self, start_day: date, end_day: date | None, at: float) -> Days:
        """The days to ask for: where the campaign may be, and as soon as it is known those around its send time.

        :param end_day: ``None`` for the day of the look.
        :param at: the service's Unix time of the look.
        """
        sent, today = self.send_time, datetime.fromtimestamp(at, UTC).date()
        if sent is not None and sent.timestamp() <= at and not self._missing.polls:
            # The zone of the service's days is not shown in the document: nowhere is it a day from UTC.
            day = sent.astimezone(UTC).date()
            return day - DAY, min(day + DAY, today)
        return start_day, max(start_day, end_day or today)

    def judge(self, look: StatsLook, at: float, offset: float = 0.0) -> PollDecision:
        """What this look means, after those before it.

        :param at: Unix time of the look.
        :param offset: seconds by which the service's clock is ahead.
        """
        if isinstance(look, MailError):
            return self._errors.failed(look, at)
        self._errors.succeeded()
        if look is None:
            self._missing.extend(at)
            return self._nothing(at)
        self._missing.end()
        record = look.model_dump(mode="json")
        if record != self.record:
            self.record, self._same, self._last = record, 1, at
        elif at - self._last >= self._apart * INTERVAL_TOLERANCE:
            self._same, self._last = self._same + 1, at
        now = at + offset
        verdict = self._found(now)
        return replace(verdict, pause=min(max(0.0, self.not_before - now), MAX_PAUSE))

    def _found(self, at: float) -> PollDecision:
        sent, named = self.send_time, f"statistics of campaign {self.mail_name!r}"
        if sent is not None and sent.timestamp() > at:
            self._same = 0  # counts that cannot have changed say nothing
            return PollDecision(WaitStatus.WAITING, f"{named}: it will be sent at {sent:%Y-%m-%d %H:%M:%S %Z}")
        if self._age is not None and sent is not None and at >= sent.timestamp() + self._age:
            return self._final(f"{named} are final: it was sent {timedelta(seconds=int(at - sent.timestamp()))} ago")
        if self._observations is None:
            return PollDecision(WaitStatus.WAITING, f"{named} are not old enough")
        seen = f"the same in {self._same} of {self._observations} observations"
        if self._same >= self._observations:
            return self._final(f"{named} are final: {seen}")
        return PollDecision(WaitStatus.WAITING, f"{named}: {seen}")

    def _final(self, message: str) -> PollDecision:
        return PollDecision(WaitStatus.COMPLETE, message, dict(self.record or {}))

    def _nothing(self, at: float) -> PollDecision:
        if self.record is not None and self._missing.lasted(CONFIRM_SECONDS, at):
            return PollDecision(
                WaitStatus.FAILED, f"the statistics of campaign {self.mail_name!r} have disappeared: was it deleted?"
            )
        if self.record is not None:
            return PollDecision(
                WaitStatus.WAITING, f"the statistics of campaign {self.mail_name!r} are not there (any more)"
            )
        return PollDecision(WaitStatus.WAITING, f"there are no statistics of a campaign {self.mail_name!r} (yet)")
