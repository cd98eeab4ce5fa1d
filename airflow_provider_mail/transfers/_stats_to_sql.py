"""Transfers of statistics to a database, published in :mod:`airflow_provider_mail.transfers.mail_to_sql`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._task.arguments import check_flags, check_number
from airflow_provider_mail.transfers._loading import BaseMailToSqlOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.warehouse.coverage import Coverage
    from airflow_provider_mail.warehouse.load import LoadResult
    from airflow_provider_mail.warehouse.table import Table


class BaseStatsToSqlOperator(BaseMailToSqlOperator):
    """What the loads of statistics share: the window.

    The window is whole days of the service, which are days in UTC. Without ``start_day`` and ``end_day`` it comes from
    the run's data interval: ``[D, D+1)`` is day D. A run without an interval (manual, by an asset, or by a cron
    schedule that Airflow 3 makes no intervals for) takes its own day, as far as it is, and the day before.

    The same window twice, out of order or in two runs at once leaves the same rows. Opens and clicks still arrive for
    days, so ``lookback_days`` reads earlier days again and restates them. Rows of which nothing changed are not written
    again: when a day was last asked for stands in ``mail_loads``, a table beside this one.

    Returns ``table``, ``start_day``, ``end_day``, ``records`` and, where the database tells, ``inserted``, ``changed``,
    ``unchanged``, ``outdated`` (rows that were not taken because the table has newer ones) and, of campaigns, ``gone``.

    :param start_day: first day, ``YYYY-MM-DD``.
    :param end_day: last day, included.
    :param lookback_days: so many days before the window are read again. Not applied to a given ``start_day``.
    """

    template_fields: Sequence[str] = (*BaseMailToSqlOperator.template_fields, "start_day", "end_day")

    def __init__(
        self,
        *,
        start_day: str | None = None,
        end_day: str | None = None,
        lookback_days: int = 7,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_number("lookback_days", lookback_days, whole=True)
        self.start_day = start_day
        self.end_day = end_day
        self.lookback_days = lookback_days

    @abstractmethod
    def transfer(self, start_day: date, end_day: date) -> tuple[LoadResult, dict[str, Any]]:
        """Ask the service and load what it says; what became of that, and what else there is to tell in XCom."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Read the window and load it."""
        tables = self.checked_table_names()
        start_day, end_day = self.window(context)
        with self.mail_errors():
            loaded, told = self._transfer(start_day, end_day)
        self.note_lineage(loaded.rows)
        counts = self.counts(loaded)
        self.log.info("%s to %s: %s records in %s %s", start_day, end_day, loaded.rows, self.table, counts)
        return {
            **tables,
            "start_day": start_day.isoformat(),
            "end_day": end_day.isoformat(),
            "records": loaded.rows,
            **counts,
            **told,
            **self.unstorable.keep(context, self.log),
        }

    def window(self, context: Context) -> tuple[date, date]:
        """First and last day to ask for."""
        from airflow_provider_mail._task.date_window import window

        return window(context, self.start_day, self.end_day, self.lookback_days)

    def _transfer(self, start_day: date, end_day: date) -> tuple[LoadResult, dict[str, Any]]:
        from airflow_provider_mail.api.errors import MailRejectedError

        try:
            return self.transfer(start_day, end_day)
        except MailRejectedError as error:
            # The document shows no longest window, and no reason why else the statistics could be refused.
            days = (end_day - start_day).days + 1
            asked = f"start_day {start_day}, end_day {end_day}: {days} days were asked for, perhaps too many"
            error.args = (f"{error}; {asked}",)
            raise


class MailCampaignStatsToSqlOperator(BaseStatsToSqlOperator):
    """Loads the statistics of the campaigns that were sent in a window: one row a campaign, its latest state.

    The days between the first and the last of the window are noted in ``mail_loads``, unless ``mail_name`` or ``type``
    leave campaigns out. The zone of the service's days is not shown in the document, so of the first and the last it
    may not have told everything: their rows say themselves when they were last seen.

    A campaign of one of these days that the service does not have any more (deleted, renamed or moved to another day)
    is marked with ``gone_at``; the mark is cleared when it is there again. When no campaign comes at all, none is
    marked.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/statistics.md``.

    :param mail_name: only campaigns whose name the service finds by this. The window then goes on until today, since a
        campaign may go out long after its run began; ``end_day`` still ends it.
    :param type: only ``MailList`` (ordinary) or ``ABTest`` campaigns.
    :param snapshots: keep a second table with one row per campaign and day of observation: how the counts grew, which
        the service forgets. It is loaded first, in a transaction of its own.
    :param snapshots_table: its name, which asks for it too. Default: that of ``table`` with ``_snapshots`` at the end.
    """

    template_fields: Sequence[str] = (*BaseStatsToSqlOperator.template_fields, "mail_name", "type", "snapshots_table")

    resource = "campaigns/stats"

    def __init__(
        self,
        *,
        table: str = "mail_campaign_stats",
        mail_name: str | None = None,
        type: str | None = None,
        snapshots: bool = False,
        snapshots_table: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(table=table, **kwargs)
        check_flags(snapshots=snapshots)
        self.mail_name = mail_name
        self.type = type
        self.snapshots = snapshots
        self.snapshots_table = snapshots_table

    def window(self, context: Context) -> tuple[date, date]:
        """First and last day to ask for."""
        from airflow_provider_mail._task.date_window import today

        start_day, end_day = super().window(context)
        return start_day, max(end_day, today()) if self.mail_name and not self.end_day else end_day

    def declared_table(self) -> Table:
        """One row per connection and campaign."""
        from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_STATS

        return CAMPAIGN_STATS

    def table_names(self) -> dict[str, str]:
        """The tables that are loaded, by argument."""
        from airflow_provider_mail.warehouse.tables.stats import snapshots_name

        names = super().table_names()
        if self.snapshots or self.snapshots_table:
            names["snapshots_table"] = snapshots_name(self.table, self.snapshots_table)
        return names

    def transfer(self, start_day: date, end_day: date) -> tuple[LoadResult, dict[str, Any]]:
        """Load the history, then the latest state."""
        from airflow_provider_mail._task.observation import Observation
        from airflow_provider_mail.api.campaigns import GetCampaignStats
        from airflow_provider_mail.api.flows.statistics import campaign_stats
        from airflow_provider_mail.warehouse.load import MarkGone
        from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_SNAPSHOTS, campaign_stats_row, snapshot_rows

        fields: dict[str, Any] = {"mail_name": self.mail_name or None, "type": self.type or None}
        request = GetCampaignStats(start_date=start_day, end_date=end_day, **fields)
        observation = Observation(self.hook.get_conn(), self.sql_hook)
        records = self.hook.run(campaign_stats(request, compact=True))
        conn_id, team, asked_at = self.mail_conn_id, self.hook.team_name, observation.at

        def rows() -> Iterator[tuple[Any, ...]]:
            for record in records:
                yield campaign_stats_row(record, mail_conn_id=conn_id, team=team, observed_at=asked_at)

        if snapshots_table := self.table_names().get("snapshots_table"):
            # The history first: a latest state can be asked for again tomorrow, today's cannot.
            self.unstorable.load(CAMPAIGN_SNAPSHOTS, snapshots_table, snapshot_rows(rows()), now=observation.now())
        covers = self._covers(start_day, end_day, asked_at)
        mark_gone = MarkGone(asked_at, lambda: [covers.whole] if records else []) if covers else None
        loaded = self.unstorable.load(
            self.declared_table(), self.table, rows(), covers=covers, mark_gone=mark_gone, now=observation.now()
        )
        return loaded, {}

    def _covers(self, start_day: date, end_day: date, asked_at: datetime) -> Coverage | None:
        day = timedelta(days=1)
        if self.mail_name or self.type or end_day - start_day <= day:
            return None
        from airflow_provider_mail.warehouse.coverage import Coverage

        sent_at = self.declared_table()["mail_send_date"]
        return Coverage.days(
            sent_at, start_day + day, end_day - day, mail_conn_id=self.mail_conn_id, observed_at=asked_at
        )


class MailTransactionalStatsToSqlOperator(BaseStatsToSqlOperator):
    """Loads the daily statistics of transactional mail: one row a day.

    A day that the service's answer leaves out gets no row, and one that is there stays as it is: missing is not zero.
    Returns ``missing_days`` too, how many those were.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/statistics.md``.
    """

    resource = "transactional/stats"

    def __init__(self, *, table: str = "mail_transactional_stats", **kwargs: Any) -> None:
        super().__init__(table=table, **kwargs)

    def declared_table(self) -> Table:
        """One row per connection and day."""
        from airflow_provider_mail.warehouse.tables.stats import TRANSACTIONAL_STATS

        return TRANSACTIONAL_STATS

    def transfer(self, start_day: date, end_day: date) -> tuple[LoadResult, dict[str, Any]]:
        """Ask for the days, and once more for those that were left out."""
        from airflow_provider_mail._task.date_window import today
        from airflow_provider_mail._task.observation import Observation
        from airflow_provider_mail.api.flows.statistics import missing_days, transactional_stats
        from airflow_provider_mail.api.transactional import GetTransactionalStats
        from airflow_provider_mail.warehouse.load import Coverage
        from airflow_provider_mail.warehouse.tables.stats import transactional_stats_row

        request = GetTransactionalStats(start_date=start_day, end_date=end_day)
        observation = Observation(self.hook.get_conn(), self.sql_hook)
        records = self.hook.run(transactional_stats(request))
        asked_at = observation.at
        missing = missing_days(request, records, today())
        if missing:
            some = ", ".join(map(str, missing[:10])) + (" ..." if len(missing) > 10 else "")
            self.log.warning("The service tells nothing of %s days, which stay as they are: %s", len(missing), some)
        team = self.hook.team_name
        rows = [
            transactional_stats_row(record, mail_conn_id=self.mail_conn_id, team=team, observed_at=asked_at)
            for record in records
        ]
        table = self.declared_table()
        covers = Coverage.days(
            table["stats_date"],
            start_day,
            end_day,
            mail_conn_id=self.mail_conn_id,
            observed_at=asked_at,
            only={record.stats_date for record in records},
        )
        loaded = self.unstorable.load(table, self.table, rows, covers=covers, now=observation.now())
        return loaded, {"missing_days": len(missing)}
