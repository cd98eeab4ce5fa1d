"""Wait for statistics that no longer change."""

from __future__ import annotations

import time
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Unpack

from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail._task.waiting import DEFERRABLE, TIMEOUT, BaseWaitSensor
from airflow_provider_mail.api.flows.waits import PollDecision, StatsPollResult, StatsStabilityTracker, WaitStatus
from airflow_provider_mail.version_compat import AIRFLOW_V_3_3_PLUS

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.airflow_arguments import SensorArguments
    from airflow_provider_mail.api.campaigns import Campaign
    from airflow_provider_mail.api.errors import MailError
    from airflow_provider_mail.triggers.stats import MailStatsSettledTrigger

__all__ = ["MailStatsSettledSensor"]


class MailStatsSettledSensor(BaseWaitSensor):
    """Wait until the statistics of a campaign are final, and return the last record.

    They are final when ``stable_checks`` consecutive observations, at least ``min_interval`` apart, found the same
    counts; or ``max_age`` after the campaign was sent, if that is earlier. Other counts restart the observations. Polls
    before the send time are not observations.

    The task fails when the record is missing for five minutes after it existed (the campaign was deleted), and when
    there are neither statistics nor a campaign of that name, or one that has failed, for as long: the message shows the
    nearest names. On a connection in sandbox mode, where no campaign was created, the sensor succeeds at once and logs
    it. A rejected key fails the task at once; after a successful poll, a rejection counts as a failed poll, and the
    connection is read again.

    In ``mode="reschedule"`` every poll runs in another process. Airflow 3.3 keeps their state (the task state store);
    before 3.3 only ``max_age`` can end the wait in that mode.

    Returns ``mail_name``, ``mail_send_date`` (ISO 8601, UTC), ``sent_count``, ``open_count``, ``click_count``,
    ``hard_bounce``, ``soft_bounce``, ``unsent_count``, ``unsubscribe_count``; in sandbox mode also ``sandbox``.

    .. seealso:: the guide :ref:`howto/sensor:MailStatsSettledSensor`
        (in the package: ``airflow_provider_mail/docs/waiting.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param mail_name: the exact name of the campaign. (templated)
    :param stable_checks: the number of consecutive observations that must find the same counts, at least 2. ``None``:
        only ``max_age`` ends the wait. Default: 3.
    :param min_interval: the minimum time between observations; seconds or a timedelta. Default: an hour.
    :param max_age: the time after sending at which counts are final even if they still change; seconds or a timedelta.
        Default: never.
    :param start_day: the first day, ``YYYY-MM-DD`` in UTC, on which the campaign may have been sent. Default:
        ``lookback_days`` before the run's data interval. (templated)
    :param end_day: the last such day. Default: the day of the poll. (templated)
    :param lookback_days: the number of days before the run's data interval at which the search begins if ``start_day``
        is not given. Default: 7.
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    :param poke_interval: the time between polls; seconds or a timedelta. Default: 900 seconds.
    :param timeout: the time after which the wait fails; seconds or a timedelta. Default: ``[sensors] default_timeout``,
        seven days.
    :param poll_error_timeout: the time for which consecutive polls may fail before the wait fails; seconds or a
        timedelta. In ``mode="reschedule"`` before Airflow 3.3 only ``timeout`` ends the wait. Default: three hours.
    """

    identity = "mail_name"
    absent = "campaign {!r} whose statistics could settle"
    state_key = "mail_stats_settled"
    lasting_fields = frozenset({"awaited", "record", "same", "last"})
    mail_name: str
    stable_checks: int | None
    min_interval: float
    max_age: float | None
    start_day: str | None
    end_day: str | None
    lookback_days: int

    _wait: StatsStabilityTracker

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        mail_name: Templated[str],
        stable_checks: int | None = 3,
        min_interval: float | timedelta = 3600.0,
        max_age: float | timedelta | None = None,
        start_day: Templated[str] | None = None,
        end_day: Templated[str] | None = None,
        lookback_days: int = 7,
        deferrable: bool = DEFERRABLE,
        poke_interval: float | timedelta = 900.0,
        timeout: float | timedelta = TIMEOUT,
        poll_error_timeout: float | timedelta = 3 * 3600.0,
        **kwargs: Unpack[SensorArguments],
    ) -> None:
        super().__init__(poke_interval=poke_interval, timeout=timeout, **kwargs)
        self.set_arguments(**locals())

    def set_arguments(self, /, **arguments: Any) -> None:
        super().set_arguments(**arguments)
        if self.stable_checks is None and self.max_age is None:
            raise self.argument_error("stable_checks, max_age: one of them must say when the statistics are final")
        if self.reschedule and not self.deferrable and self.max_age is None and not AIRFLOW_V_3_3_PLUS:
            raise self.argument_error(
                "stable_checks: Airflow before 3.3 keeps nothing between the polls of mode='reschedule'; "
                "use deferrable=True or mode='poke', or give a max_age"
            )

    @property
    def continues_elsewhere(self) -> bool:
        """Whether to store the state: observations are kept for other processes and tries in both modes."""
        return not self.deferrable

    def poll(self, context: Context) -> StatsPollResult:
        from airflow_provider_mail._task.statistics import window
        from airflow_provider_mail.api.flows.statistics import find_stats

        start_day, end_day = window(context, self.start_day, self.end_day or date.max, self.lookback_days)
        self._wait.window = start_day, end_day if self.end_day else None
        days = self._wait.days(*self._wait.window, time.time() + self.clock_offset)
        return self.ask(find_stats, self.mail_name, days)

    def absent_decision(self) -> PollDecision | None:
        decision = super().absent_decision()
        if decision is not None or not self._wait.is_unknown(time.time()):
            return decision
        campaign = self._campaign()
        if campaign is None:
            return PollDecision(WaitStatus.FAILED, f"there is no campaign {self.mail_name!r}{self._nearest_names()}")
        if _has_failed(campaign):
            return PollDecision(WaitStatus.FAILED, f"campaign {self.mail_name!r} has failed, and has no statistics")
        return None

    def may_defer(self) -> bool:
        """Return whether there are statistics, or a campaign that will have some: a name may be misspelled."""
        campaign = self._campaign() if self._wait.record is None else self._wait.record
        return campaign is not None and not _has_failed(campaign)

    def _campaign(self) -> Campaign | MailError | None:
        """Return the campaign, or ``None``; an error if that is not known."""
        from airflow_provider_mail.api.campaigns import find_campaign

        return self.ask(find_campaign, self.mail_name)

    def _nearest_names(self) -> str:
        from difflib import get_close_matches

        from airflow_provider_mail.api.campaigns import GetCampaigns

        with self.mail_errors():
            pages = self.hook.get_conn().pages(GetCampaigns(page_size=100))
            names = {campaign.mail_name for page in pages for campaign in page}
        nearest = get_close_matches(self.mail_name, names)
        return f"; the nearest names are {', '.join(map(repr, nearest))}" if nearest else ""

    def sandbox_result(self) -> dict[str, Any]:
        from airflow_provider_mail.api.campaigns import CampaignStats, no_counts

        return {"mail_name": self.mail_name, **no_counts(CampaignStats), **super().sandbox_result()}

    def new_wait(self, **options: Any) -> StatsStabilityTracker:
        if self.reschedule and not self.deferrable and not AIRFLOW_V_3_3_PLUS:
            self.log.info("This Airflow stores no state between polls: only max_age ends the wait.")
        return StatsStabilityTracker(
            self.mail_name,
            stable_checks=self.stable_checks,
            min_interval=self.min_interval,
            max_age=self.max_age,
            **options,
        )

    def trigger(self, **options: Any) -> MailStatsSettledTrigger:
        from airflow_provider_mail.triggers.stats import MailStatsSettledTrigger

        start_day, end_day = self._wait.window
        return MailStatsSettledTrigger(
            mail_conn_id=self.mail_conn_id,
            mail_name=self.mail_name,
            start_day=start_day.isoformat(),
            end_day=end_day.isoformat() if end_day else None,
            stable_checks=self.stable_checks,
            min_interval=self.min_interval,
            max_age=self.max_age,
            state=self._wait.state,
            **options,
        )


def _has_failed(campaign: object) -> bool:
    from airflow_provider_mail.api.campaigns import Campaign, MailStatus

    return isinstance(campaign, Campaign) and campaign.mail_status == MailStatus.FAILED
