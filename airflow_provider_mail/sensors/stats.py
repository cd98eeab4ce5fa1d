"""Waiting for statistics that no longer change."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._task.arguments import check_number
from airflow_provider_mail.sensors._base import BaseWaitSensor, seconds_of
from airflow_provider_mail.version_compat import AIRFLOW_V_3_3_PLUS

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api.flows.wait_stats import StatsPollResult, StatsStabilityTracker
    from airflow_provider_mail.triggers.stats import MailStatsSettledTrigger


class MailStatsSettledSensor(BaseWaitSensor):
    """Waits until the statistics of a campaign are final, and returns the last record.

    They are final when ``observations`` looks in a row, each at least ``apart`` after the one before, have found the
    same counts; or ``age`` after the campaign was sent, if that comes first. Looks in between may find other counts:
    then it begins anew. Nothing counts before the send time.

    Fails when the record has disappeared for five minutes after it was there (the campaign was deleted). A campaign
    that has no statistics yet is waited for. On a connection in sandbox mode, where nothing was created, it succeeds at
    once and says so. A refused key fails the task at once; when a poll has worked before, it counts as a failed poll,
    and the connection is read again.

    In ``mode="reschedule"`` every look is another process. Airflow 3.3 keeps what they have seen (the task state
    store); on an older one only ``age`` can end the wait in that mode.

    The returned record is plain JSON: ``mail_name``, ``mail_send_date`` (ISO 8601, UTC), ``sent_count``,
    ``open_count``, ``click_count``, ``hard_bounce``, ``soft_bounce``, ``unsent_count``, ``unsubscribe_count``.

    .. seealso::
        For more information on how to use this sensor, see ``airflow_provider_mail/docs/waiting.md``.

    :param mail_conn_id: the connection.
    :param mail_name: the campaign's exact name.
    :param observations: so many looks in a row must find the same counts, at least 2; ``None``: wait for ``age`` alone.
    :param apart: the least time between two of them; seconds or a timedelta.
    :param age: the time after sending at which counts are taken for final; seconds or a timedelta. ``None``: never.
    :param start_day: first day, ``YYYY-MM-DD`` in UTC, on which the campaign may have been sent. Default:
        ``lookback_days`` before the run's data interval.
    :param end_day: last such day. Default: the day of the look.
    :param lookback_days: used when there is no ``start_day``.
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    :param poke_interval: seconds from one poll to the next; or a timedelta. Default: 900.
    :param poll_error_timeout: polls may fail in a row for so long before the wait is given up; seconds or a timedelta.
        Default: three hours. In ``mode="reschedule"`` before Airflow 3.3, ``timeout`` alone ends the wait.
    """

    template_fields: Sequence[str] = (*BaseWaitSensor.template_fields, "mail_name", "start_day", "end_day")
    identity = "mail_name"
    absent = "campaign {!r} whose statistics could settle"
    state_key = "mail_stats_settled"
    lasting_fields = frozenset({"mail_name", "apart", "record", "same", "last"})

    _wait: StatsStabilityTracker

    def __init__(
        self,
        *,
        mail_name: str,
        observations: int | None = 3,
        apart: float | timedelta = 3600.0,
        age: float | timedelta | None = None,
        start_day: str | None = None,
        end_day: str | None = None,
        lookback_days: int = 7,
        poke_interval: float | timedelta = 900.0,
        poll_error_timeout: float | timedelta = 3 * 3600.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, poll_error_timeout=poll_error_timeout, **kwargs)
        self.mail_name = mail_name
        self.observations = observations
        self.apart = float(seconds_of(apart))
        self.age = None if age is None else float(seconds_of(age))
        self.start_day = start_day
        self.end_day = end_day
        self.lookback_days = lookback_days
        if observations is None and age is None:
            raise ValueError("observations, age: one of them must say when the statistics are final")
        if observations is not None and observations < 2:
            raise ValueError("observations: must be at least 2, since one look compares with nothing")
        if self.apart < 0 or (self.age or 0) < 0:
            raise ValueError("apart, age: must not be negative")
        check_number("lookback_days", lookback_days, whole=True)
        if self.reschedule and not self.deferrable and age is None and not AIRFLOW_V_3_3_PLUS:
            raise ValueError(
                "observations: Airflow before 3.3 keeps nothing between the looks of mode='reschedule'; "
                "use deferrable=True or mode='poke', or give an age"
            )
        self._days: tuple[date, date | None] = (date.min, None)

    @property
    def continues_elsewhere(self) -> bool:
        """Whether to store the state: observations are kept for other processes and tries in either mode."""
        return not self.deferrable

    def poll(self, context: Context) -> StatsPollResult:
        from airflow_provider_mail._task.date_window import window
        from airflow_provider_mail.api.flows.wait_stats import find_stats

        start_day, end_day = window(context, self.start_day, self.end_day or date.max, self.lookback_days)
        self._days = start_day, end_day if self.end_day else None
        return self.ask(find_stats(self.mail_name, self._wait.days(*self._days, time.time() + self.clock_offset)))

    def new_wait(self, state: dict[str, Any] | None, *, polled_before: bool) -> StatsStabilityTracker:
        from airflow_provider_mail.api.flows.wait_stats import StatsStabilityTracker

        if self.reschedule and not self.deferrable and not AIRFLOW_V_3_3_PLUS:
            self.log.info("This Airflow stores no state between polls: only the age ends the wait.")
        return StatsStabilityTracker(
            self.mail_name,
            stable_checks=self.observations,
            min_interval=self.apart,
            max_age=self.age,
            state=state,
            polled_before=polled_before,
            poll_error_timeout=self.poll_error_timeout,
        )

    def trigger(self, end_time: float) -> MailStatsSettledTrigger:
        from airflow_provider_mail.triggers.stats import MailStatsSettledTrigger

        start_day, end_day = self._days
        return MailStatsSettledTrigger(
            mail_conn_id=self.mail_conn_id,
            mail_name=self.mail_name,
            start_day=start_day.isoformat(),
            end_day=end_day.isoformat() if end_day else None,
            observations=self.observations,
            apart=self.apart,
            age=self.age,
            memory=self._wait.state,
            poke_interval=self.poke_interval,
            end_time=end_time,
            poll_error_timeout=self.poll_error_timeout,
        )
