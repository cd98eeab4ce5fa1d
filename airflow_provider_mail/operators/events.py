"""The comparison of received events with the statistics of the service."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Literal, Unpack
from zoneinfo import ZoneInfo

from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail._task.storage import SqlTask, check_tables
from airflow_provider_mail.lineage import MailLineage, SqlTable
from airflow_provider_mail.operators._base import BaseMailOperator
from airflow_provider_mail.send_window import is_zone
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail.api.transactional import TransactionalStats
    from airflow_provider_mail.warehouse.event_counts import CountedOn
    from airflow_provider_mail.warehouse.tables.events import Difference, EventCounts

__all__ = ["MailReconcileEventsOperator"]

SHOWN = 20
"""Number of differences in the error and in XCom."""


class MailReconcileEventsOperator(MailLineage, SqlTask, BaseMailOperator):
    """Compare the received events of transactional mail with the daily statistics of the service.

    A lost push, a disabled event or a wrong key shows as a difference. Each day and counter is a row of ``table``, even
    if nothing differs; comparing a day again replaces its rows. Without ``start_day`` and ``end_day``, the past days of
    the run's data interval are compared; for a run without an interval, the day before it.

    The task fails when the difference of a counter on a day is larger than ``tolerance`` and larger than
    ``tolerance_fraction`` of the service's count. The rows are stored before. A retry reads the statistics and counts
    the events again, since both grow.

    Nothing is sent or changed at the service, so a connection in sandbox mode makes no difference.

    Returns ``table``, ``start_day``, ``end_day``, ``compared`` (rows), ``differing`` (rows with a difference) and
    ``differences`` (these rows, up to 20).

    .. seealso:: the guide :ref:`howto/operator:MailReconcileEventsOperator`
        (in the package: ``airflow_provider_mail/docs/events.md``).

    :param mail_conn_id: the connection to the service, whose events are compared. Default: ``mail_default``.
        (templated)
    :param sql_conn_id: the connection to the database. (templated)
    :param events_table: the table of events, with its schema if needed. Default: ``mail_events``. (templated)
    :param table: the table of differences, with its schema if needed; created if it does not exist. Default:
        ``mail_event_differences``. (templated)
    :param start_day: the first day, ``YYYY-MM-DD``. Default: ``lookback_days`` before the first day of the run's data
        interval. (templated)
    :param end_day: the last day, included. Default: the last past day of the data interval. (templated)
    :param lookback_days: days before the data interval that are compared again; not applied to a given ``start_day``.
        Default: 0.
    :param counters: the counters to compare, of ``sent_count``, ``open_count``, ``click_count``, ``bounce_count``,
        ``unsent_count`` and ``unsubscribe_count``. Default: all. (templated)
    :param tolerance: the largest difference of one counter on one day that does not fail the task. Default: 0.
    :param tolerance_fraction: the largest ratio of the difference to the service's count that does not fail the task,
        such as ``0.001``. Default: 0.
    :param edge_hours: an event within this many hours after midnight may belong to the day before, if no event shows
        when its mail was sent, as for most bounces; it counts for the day whose counts then agree. At most 24. Default:
        24.
    :param counted_on: the day for which the service counts opens, clicks and the like: the day on which the mail was
        sent (``send``), or that of the ``event``; the specification does not show it. Default: ``send``. (templated)
    :param time_zone: the time zone in which the service's days begin, such as ``Asia/Tokyo``; the specification does
        not show it. Default: ``UTC``. (templated)
    :param event_types: count only events with these values of ``EventType``. Default: events without the ``Guid`` of a
        campaign. (templated)
    """

    events_table: str
    table: str
    start_day: str | None
    end_day: str | None
    lookback_days: int
    counters: Sequence[str] | None
    tolerance: int
    tolerance_fraction: float
    edge_hours: float
    counted_on: CountedOn
    time_zone: str
    event_types: Sequence[str] | None

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        sql_conn_id: Templated[str],
        events_table: Templated[str] = "mail_events",
        table: Templated[str] = "mail_event_differences",
        start_day: Templated[str] | None = None,
        end_day: Templated[str] | None = None,
        lookback_days: int = 0,
        counters: Templated[Sequence[Templated[str]]] | None = None,
        tolerance: int = 0,
        tolerance_fraction: float = 0.0,
        edge_hours: float = 24.0,
        counted_on: Templated[Literal["send", "event"]] = "send",
        time_zone: Templated[str] = "UTC",
        event_types: Templated[Sequence[Templated[str]]] | None = None,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    def execute(self, context: Context) -> dict[str, Any]:
        """Compare the days, store the differences, and fail if one is too large."""
        from airflow_provider_mail._task.statistics import window
        from airflow_provider_mail.warehouse.tables.events import EVENT_DIFFERENCES

        self._check()
        start_day, end_day = window(context, self.start_day, self.end_day, self.lookback_days)
        if not self.end_day:
            end_day = min(end_day, datetime.now(ZoneInfo(self.time_zone)).date() - timedelta(days=1))
            if end_day < start_day:
                raise AirflowFailException(f"start_day: {start_day} is not over; only whole days can be compared")
        with self.mail_errors():
            compared = self._compare(start_day, end_day)
        events = SqlTable(self.sql_hook, self.events_table)
        differences = SqlTable(self.sql_hook, self.table)
        for source in ("transactional/stats", events):
            self.moved(source, differences, table=EVENT_DIFFERENCES, rows=len(compared))
        not_tolerated = [difference for difference in compared if not self._is_tolerated(difference)]
        # A difference that is not known exactly is None.
        differing = [difference for difference in compared if difference.difference or difference in not_tolerated]
        self.log.info("%s to %s: %s of %s counts differ", start_day, end_day, len(differing), len(compared))
        for difference in differing:
            self.log.info("%s%s", difference, "" if difference in not_tolerated else " is tolerated")
        if not_tolerated:
            raise AirflowException(self._message(not_tolerated))
        return {
            "table": self.table,
            "start_day": start_day.isoformat(),
            "end_day": end_day.isoformat(),
            "compared": len(compared),
            "differing": len(differing),
            "differences": [
                {
                    "stats_date": difference.stats_date.isoformat(),
                    "counter": difference.counter,
                    "service_count": difference.service_count,
                    "difference": difference.difference,
                }
                for difference in differing[:SHOWN]
            ],
        }

    def _check(self) -> None:
        """Check the arguments and the database before the first request."""
        from airflow_provider_mail.warehouse.tables.events import RULES

        for name in ("counters", "event_types"):
            if getattr(self, name) == []:
                raise AirflowFailException(f"{name}: is empty; name at least one, or leave it out for all")
        if unknown := set(self.counters or ()) - set(RULES):
            raise AirflowFailException(f"counters: {', '.join(sorted(unknown))}: none of {', '.join(RULES)}")
        if not is_zone(self.time_zone):
            raise AirflowFailException(f"time_zone: there is no time zone {self.time_zone!r}")
        check_tables(self.sql_hook, {"table": self.table, "events_table": self.events_table})

    def _compare(self, start_day: date, end_day: date) -> list[Difference]:
        """Compare each day, and store the rows."""
        from airflow_provider_mail._task.statistics import Observation
        from airflow_provider_mail._task.storage import current_task_run
        from airflow_provider_mail.api.flows.statistics import calendar, transactional_stats
        from airflow_provider_mail.api.transactional import GetTransactionalStats
        from airflow_provider_mail.warehouse.database import Clock, LoadRequest, Source, TableName, load
        from airflow_provider_mail.warehouse.tables.events import EVENT_DIFFERENCES

        observation = Observation(self.hook, self.sql_hook)
        request = GetTransactionalStats(start_date=start_day, end_date=end_day)
        records = {record.stats_date: record for record in transactional_stats(self.hook.get_conn(), request)}
        compared = [
            difference
            for day in calendar(start_day, end_day)
            for difference in self._differences(day, records.get(day))
        ]
        others = (self.counted_on, self.time_zone, observation.at)
        rows = Source(each.row(self.mail_conn_id, self._is_tolerated(each), *others) for each in compared)
        name, clock = TableName.parse(self.table), Clock(observation.now())
        load(self.sql_hook, LoadRequest(EVENT_DIFFERENCES, name, rows, clock=clock, task_run=current_task_run()))
        return compared

    def _differences(self, day: date, record: TransactionalStats | None) -> list[Difference]:
        """Compare the counters of one day."""
        from airflow_provider_mail.warehouse.event_counts import event_counts
        from airflow_provider_mail.warehouse.tables.events import RULES, Difference, EventCounts

        begin, end = (
            datetime.combine(date_, time.min, ZoneInfo(self.time_zone)).astimezone(UTC)
            for date_ in (day, day + timedelta(days=1))
        )

        def counts(begin: datetime, end: datetime, counted_on: CountedOn, **only: bool) -> dict[str, EventCounts]:
            return event_counts(
                self.sql_hook,
                self.events_table,
                mail_conn_id=self.mail_conn_id,
                begin=begin,
                end=end,
                counted_on=counted_on,
                event_types=self.event_types,
                **only,
            )

        edge = timedelta(hours=self.edge_hours)
        by_send = [
            counts(begin, end, "send"),
            counts(begin, begin + edge, "send", undated=True),
            counts(end, end + edge, "send", undated=True),
        ]
        nothing = dict.fromkeys(RULES, EventCounts(0, 0))
        by_event = by_send if self.counted_on == "send" else [counts(begin, end, "event"), nothing, nothing]
        differences = []
        for counter in self.counters or RULES:
            # Sent mails always count on the day on which they were sent.
            counts_by_span = by_send if counter == "sent_count" else by_event
            of_day, earlier, later = (counts_of_span[counter] for counts_of_span in counts_by_span)
            spans = RULES[counter].spans(of_day, earlier, later)
            service_count = getattr(record, counter, None)
            differences.append(Difference(day, counter, service_count, spans, earlier.mails + later.mails))
        return differences

    def _is_tolerated(self, difference: Difference) -> bool:
        return difference.is_tolerated(self.tolerance, self.tolerance_fraction)

    def _message(self, differences: Sequence[Difference]) -> str:
        """Return the error message: the differences, and a possible explanation."""
        shown = "; ".join(map(str, differences[:SHOWN])) + (" ..." if len(differences) > SHOWN else "")
        disabled = self._disabled(differences)
        return f"{len(differences)} counts of events and statistics differ: {shown}. {self.table} has all{disabled}"

    def _disabled(self, differences: Sequence[Difference]) -> str:
        """Return which of the events that differ are not pushed, as text to append."""
        from airflow_provider_mail.api.errors import MailError
        from airflow_provider_mail.api.webhooks import GetWebhook
        from airflow_provider_mail.warehouse.tables.events import RULES

        try:
            saved = self.hook.send(GetWebhook())
        except MailError:
            return ""
        if not saved.trans_enable:
            return "; transEnable is off: the service pushes no events"
        toggles = {code.lower() for difference in differences for code in RULES[difference.counter].codes}
        off = sorted(name for name in toggles if not getattr(saved.trans_event, name, None))
        return f"; the service does not push these events (transEvent): {', '.join(off)}" if off else ""
