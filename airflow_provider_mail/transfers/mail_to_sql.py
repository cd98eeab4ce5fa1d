"""From the service to a database."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, BaseOperator

from airflow_provider_mail.hooks.sql import sql_hook
from airflow_provider_mail.hooks.task import MailTask

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.warehouse.table import Table


class BaseStatsToSqlOperator(MailTask, BaseOperator):
    """What the loads of statistics share: the window and the way into the table.

    The window is whole days of the service, which are days in UTC. Without ``start_day`` and ``end_day`` it comes from
    the run's data interval: ``[D, D+1)`` is day D. A run without an interval (manual, by an asset, or by a cron
    schedule that Airflow 3 makes no intervals for) takes its own day, as far as it is, and the day before.

    A load is one transaction and can be repeated: the same window twice, out of order or in two runs at once leaves the
    same rows. Opens and clicks still arrive for days, so ``lookback_days`` reads earlier days again and restates them.

    Returns ``table``, ``start_day``, ``end_day``, ``records`` and, where the database tells, ``inserted``, ``changed``
    and ``unchanged``.

    :param mail_conn_id: the connection.
    :param sql_conn_id: the database's connection.
    :param table: the table, perhaps with its schema; made when missing.
    :param start_day: first day, ``YYYY-MM-DD``.
    :param end_day: last day, included.
    :param lookback_days: so many days before the window are read again. Not applied to a given ``start_day``.
    """

    template_fields: Sequence[str] = ("mail_conn_id", "sql_conn_id", "table", "start_day", "end_day")
    ui_color = "#e6f1f2"

    def __init__(
        self,
        *,
        mail_conn_id: str = "mail_default",
        sql_conn_id: str,
        table: str,
        start_day: str | None = None,
        end_day: str | None = None,
        lookback_days: int = 7,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if lookback_days < 0:
            raise ValueError("lookback_days: must not be negative")
        self.mail_conn_id = mail_conn_id
        self.sql_conn_id = sql_conn_id
        self.table = table
        self.start_day = start_day
        self.end_day = end_day
        self.lookback_days = lookback_days

    @cached_property
    def sql_hook(self) -> DbApiHook:
        """The hook of ``sql_conn_id``."""
        return sql_hook(self.sql_conn_id)

    @abstractmethod
    def declared_table(self) -> Table:
        """The table's columns and key."""

    @abstractmethod
    def rows(self, start_day: date, end_day: date) -> Sequence[tuple[Any, ...]]:
        """Ask the service; the rows of the table."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Read the window and load it."""
        from airflow_provider_mail.warehouse.load import load

        start_day, end_day = self.window(context)
        with self.mail_errors():
            rows = self.rows(start_day, end_day)
        loaded = load(self.sql_hook, self.declared_table(), self.table, rows)
        self.log.info("%s to %s: %s records in %s (%s)", start_day, end_day, len(rows), self.table, loaded)
        counts = {name: getattr(loaded, name) for name in ("inserted", "changed", "unchanged")}
        return {
            "table": self.table,
            "start_day": start_day.isoformat(),
            "end_day": end_day.isoformat(),
            "records": len(rows),
            **{name: count for name, count in counts.items() if count is not None},
        }

    def window(self, context: Context) -> tuple[date, date]:
        """First and last day to ask for."""
        first, last = interval_days(context)
        start_day = _day("start_day", self.start_day) if self.start_day else first - timedelta(days=self.lookback_days)
        end_day = _day("end_day", self.end_day) if self.end_day else last
        if end_day < start_day:
            raise AirflowFailException(f"end_day: {end_day} lies before start_day {start_day}")
        if start_day > _today():
            raise AirflowFailException(f"start_day: {start_day} is in the future (days are in UTC)")
        return start_day, end_day


class MailCampaignStatsToSqlOperator(BaseStatsToSqlOperator):
    """Loads the statistics of the campaigns that were sent in a window: one row a campaign, its latest state.

    .. seealso::
        For more information on how to use this operator, see ``docs/statistics.md``.

    :param mail_name: only campaigns whose name the service finds by this. The window then goes on until today, since a
        campaign may go out long after its run began; ``end_day`` still ends it.
    :param type: only ``MailList`` (ordinary) or ``ABTest`` campaigns.
    """

    template_fields: Sequence[str] = (*BaseStatsToSqlOperator.template_fields, "mail_name", "type")

    def __init__(
        self,
        *,
        table: str = "mail_campaign_stats",
        mail_name: str | None = None,
        type: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(table=table, **kwargs)
        self.mail_name = mail_name
        self.type = type

    def window(self, context: Context) -> tuple[date, date]:
        """First and last day to ask for."""
        start_day, end_day = super().window(context)
        return start_day, max(end_day, _today()) if self.mail_name and not self.end_day else end_day

    def declared_table(self) -> Table:
        """One row per connection and campaign."""
        from airflow_provider_mail.warehouse.stats import CAMPAIGN_STATS

        return CAMPAIGN_STATS

    def rows(self, start_day: date, end_day: date) -> Sequence[tuple[Any, ...]]:
        """Ask until the answer is whole."""
        from airflow_provider_mail.api.campaigns import GetCampaignStats
        from airflow_provider_mail.api.stats import campaign_stats
        from airflow_provider_mail.warehouse.stats import campaign_stats_row

        fields: dict[str, Any] = {"mail_name": self.mail_name or None, "type": self.type or None}
        request = GetCampaignStats(start_date=start_day, end_date=end_day, **fields)
        asked_at = datetime.now(UTC)
        records = self.hook.run(campaign_stats(request))
        team = self.hook.team_name
        return [
            campaign_stats_row(record, mail_conn_id=self.mail_conn_id, team=team, observed_at=asked_at)
            for record in records
        ]


class MailTransactionalStatsToSqlOperator(BaseStatsToSqlOperator):
    """Loads the daily statistics of transactional mail: one row a day.

    .. seealso::
        For more information on how to use this operator, see ``docs/statistics.md``.
    """

    def __init__(self, *, table: str = "mail_transactional_stats", **kwargs: Any) -> None:
        super().__init__(table=table, **kwargs)

    def declared_table(self) -> Table:
        """One row per connection and day."""
        from airflow_provider_mail.warehouse.stats import TRANSACTIONAL_STATS

        return TRANSACTIONAL_STATS

    def rows(self, start_day: date, end_day: date) -> Sequence[tuple[Any, ...]]:
        """Ask once: there is no paging and no total to compare with."""
        from airflow_provider_mail.api.transactional import GetTransactionalStats
        from airflow_provider_mail.warehouse.stats import transactional_stats_row

        asked_at = datetime.now(UTC)
        answer = self.hook.send(GetTransactionalStats(start_date=start_day, end_date=end_day))
        team = self.hook.team_name
        return [
            transactional_stats_row(record, mail_conn_id=self.mail_conn_id, team=team, observed_at=asked_at)
            for record in answer.mail_stats_list or []
        ]


def interval_days(context: Context) -> tuple[date, date]:
    """First and last day, in UTC, of the run's data interval; see :class:`BaseStatsToSqlOperator`."""
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is not None and end is not None and end > start:
        return _utc(start).date(), (_utc(end) - timedelta(microseconds=1)).date()
    moment = end or context["dag_run"].run_after
    day = _utc(moment).date()
    return day - timedelta(days=1), day


def _today() -> date:
    return datetime.now(UTC).date()


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _day(name: str, value: str | date) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise AirflowFailException(f"{name}: {value!r} is no day of the form YYYY-MM-DD") from None
