"""Waiting for statistics that no longer change."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)

from airflow_provider_mail.hooks.task import MailTask, check_flags, check_number
from airflow_provider_mail.triggers.campaigns import event_of, mail_stats_of
from airflow_provider_mail.triggers.stats import MailStatsSettledTrigger
from airflow_provider_mail.version_compat import AIRFLOW_V_3_3_PLUS

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_mail.api.settling import Days, SettlingStats, StatsLook
    from airflow_provider_mail.hooks.ledger import Ledger

MEMORY = "mail_stats_settled"


class MailStatsSettledSensor(MailTask, BaseSensorOperator):
    """Waits until the statistics of a campaign are final, and returns the last record.

    They are final when ``observations`` looks in a row, each at least ``apart`` after the one before, have found the
    same counts; or ``age`` after the campaign was sent, if that comes first. Looks in between may find other counts:
    then it begins anew. Nothing counts before the send time.

    Fails when the record has disappeared for three looks after it was there (the campaign was deleted). A campaign
    that has no statistics yet is waited for. On a connection in sandbox mode, where nothing was created, it succeeds at
    once and says so. A refused key fails the task at once; when looking has worked before, it counts as one of the ten
    failed looks in a row that are borne.

    In ``mode="reschedule"`` every look is another process. Airflow 3.3 keeps what they have seen (the task state
    store); on an older one only ``age`` can end the wait in that mode.

    The returned record is plain JSON: ``mail_name``, ``mail_send_date`` (ISO 8601, UTC), ``sent_count``,
    ``open_count``, ``click_count``, ``hard_bounce``, ``soft_bounce``, ``unsent_count``, ``unsubscribe_count``.

    .. seealso::
        For more information on how to use this sensor, see ``docs/waiting.md``.

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
    :param poke_interval: seconds from one look to the next.
    """

    template_fields: Sequence[str] = ("mail_conn_id", "mail_name", "start_day", "end_day")

    def __init__(
        self,
        *,
        mail_conn_id: str = "mail_default",
        mail_name: str,
        observations: int | None = 3,
        apart: float | timedelta = 3600.0,
        age: float | timedelta | None = None,
        start_day: str | None = None,
        end_day: str | None = None,
        lookback_days: int = 7,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poke_interval: float | timedelta = 900.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        check_flags(deferrable=deferrable)
        self.mail_conn_id = mail_conn_id
        self.mail_name = mail_name
        self.observations = observations
        self.apart = _seconds(apart)
        self.age = None if age is None else _seconds(age)
        self.start_day = start_day
        self.end_day = end_day
        self.lookback_days = lookback_days
        self.deferrable = deferrable
        if observations is None and age is None:
            raise ValueError("observations, age: one of them must say when the statistics are final")
        if observations is not None and observations < 2:
            raise ValueError("observations: must be at least 2, since one look compares with nothing")
        if self.apart < 0 or (self.age or 0) < 0:
            raise ValueError("apart, age: must not be negative")
        check_number("lookback_days", lookback_days, whole=True)
        if self.reschedule and not deferrable and age is None and not AIRFLOW_V_3_3_PLUS:
            raise ValueError(
                "observations: Airflow before 3.3 keeps nothing between the looks of mode='reschedule'; "
                "use deferrable=True or mode='poke', or give an age"
            )
        self._settling: SettlingStats | None = None

    def poke(self, context: Context) -> PokeReturnValue | bool:
        """Look once; when it is deferrable and there is something to wait for, go on in the triggerer."""
        from airflow_provider_mail.api.waiting import Outcome
        from airflow_provider_mail.hooks.ledger import task_ledger

        if not self.mail_name:
            raise AirflowFailException("mail_name: is empty")
        start_day, end_day = self._days(context)
        ledger = task_ledger(context, MEMORY)
        settling = self._settling = self._settling or self._remembered(ledger)
        at = time.time()
        look = self._look(settling.days(start_day, end_day, at))
        if look is None and self.hook.config.sandbox:
            self.log.info("Sandbox: there is no campaign %r whose statistics could settle.", self.mail_name)
            return PokeReturnValue(is_done=True, xcom_value={})
        verdict = settling.judge(look, at)
        self.log.info("%s", verdict.message)
        if verdict.outcome is not Outcome.WAITING:
            event = event_of(self.mail_conn_id, self.mail_name, verdict)
            return PokeReturnValue(is_done=True, xcom_value=mail_stats_of(event, time_up=AirflowSensorTimeout))
        if self.deferrable:
            # Not before this look: a trigger that fires at once could overtake the scheduler.
            self._defer(settling, start_day, end_day)
        elif ledger.durable:
            ledger.write(settling.memory)
        elif self.reschedule:
            self.log.info("This Airflow keeps nothing between looks: only the age ends the wait.")
        return False

    def _remembered(self, ledger: Ledger) -> SettlingStats:
        from airflow_provider_mail.api.settling import SettlingStats

        memory = None if self.deferrable else ledger.read()
        return SettlingStats(
            self.mail_name, observations=self.observations, apart=self.apart, age=self.age, memory=memory
        )

    def _days(self, context: Context) -> tuple[date, date | None]:
        from airflow_provider_mail.hooks.window import window

        start_day, end_day = window(context, self.start_day, self.end_day or date.max, self.lookback_days)
        return start_day, end_day if self.end_day else None

    def _look(self, days: Days) -> StatsLook:
        from airflow_provider_mail.api.errors import MailError
        from airflow_provider_mail.api.settling import find_stats

        try:
            return self.hook.run(find_stats(self.mail_name, days))
        except MailError as error:
            if not error.temporary:
                # The connection may be mended while we wait: the next look reads it anew.
                self.hook.close()
                del self.__dict__["hook"]
            return error

    def _defer(self, settling: SettlingStats, start_day: date, end_day: date | None) -> None:
        self.defer(
            trigger=MailStatsSettledTrigger(
                mail_conn_id=self.mail_conn_id,
                mail_name=self.mail_name,
                start_day=start_day.isoformat(),
                end_day=end_day.isoformat() if end_day else None,
                observations=self.observations,
                apart=self.apart,
                age=self.age,
                memory=settling.memory,
                poke_interval=self.poke_interval,
                end_time=time.time() + self.timeout,
            ),
            method_name="execute_complete",
            # The trigger keeps the time itself; this one is for a triggerer that is not there.
            timeout=timedelta(seconds=self.timeout + self.poke_interval + 60),
        )

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read the trigger's event."""
        return mail_stats_of(event, time_up=AirflowSensorTimeout)


def _seconds(time: float | timedelta) -> float:
    return time.total_seconds() if isinstance(time, timedelta) else float(time)
