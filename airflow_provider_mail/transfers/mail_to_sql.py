"""Transfers from the service to a database."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail.transfers._lists_to_sql import MailCampaignsToSqlOperator, MailContactsToSqlOperator
from airflow_provider_mail.transfers._loading import (
    MAX_REMOVED_FRACTION,
    BaseStatsToSqlOperator,
    OnUnstorable,
    RemovesRows,
)

if TYPE_CHECKING:
    from typing import Unpack

    from airflow.sdk import Context

    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail._task.statistics import Observation, Statistics
    from airflow_provider_mail.warehouse.load import LoadResult
    from airflow_provider_mail.warehouse.table import Table

__all__ = [
    "MailCampaignStatsToSqlOperator",
    "MailCampaignsToSqlOperator",
    "MailContactsToSqlOperator",
    "MailTransactionalStatsToSqlOperator",
]


class MailCampaignStatsToSqlOperator(RemovesRows, BaseStatsToSqlOperator):
    """Load the statistics of the campaigns sent in a window into a table: one row per campaign, its latest counts.

    Without ``start_day`` and ``end_day`` the window is the run's data interval: ``[D, D+1)`` is day D in UTC. A run
    without an interval (manual, by an asset, or by a cron schedule without intervals) loads the day before the run and
    the day of the run so far. Loading the same window twice, out of order or in two concurrent runs results in the same
    rows. Opens and clicks arrive for days, so ``lookback_days`` reads earlier days again. Unchanged rows are not
    written again: the table ``mail_loads`` records when each day was last read.

    The first and the last day of the window are not recorded, since the specification does not show in which time zone
    the service's days begin, and neither is a window with ``mail_name`` or ``type``: these rows themselves show when
    they were last seen. A campaign that was deleted or renamed is marked with ``gone_at`` until it is returned again,
    if two responses for a recorded day lack it and the service does not find it by its name. A window without any
    campaign is recorded only with ``allow_empty``.

    Returns ``table``, ``start_day``, ``end_day``, ``records`` and, if the database reports them, ``inserted``,
    ``changed``, ``unchanged``, ``outdated`` (rows not stored because the table has newer ones) and ``gone``; with
    snapshots also ``snapshots_table``, and with ``on_unstorable="reject"`` also ``rejected``.

    .. seealso::
        For more information on how to use this operator, see the guide
        :ref:`howto/operator:MailCampaignStatsToSqlOperator`
        (in the package: ``airflow_provider_mail/docs/statistics.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param sql_conn_id: the connection to the database. (templated)
    :param table: the table, with its schema if needed; created if it does not exist. Default: ``mail_campaign_stats``.
        (templated)
    :param start_day: the first day of the window, ``YYYY-MM-DD`` in UTC. Default: ``lookback_days`` before the first
        day of the run's data interval. (templated)
    :param end_day: the last day of the window, included. Default: the last day of the run's data interval, or today
        with ``mail_name``. (templated)
    :param lookback_days: days before the data interval that are read again; not applied to a given ``start_day``.
        Default: 7.
    :param mail_name: load only campaigns that the service finds by this name. The window then ends today, since a
        campaign may be sent long after the run began. Default: all campaigns. (templated)
    :param type: load only campaigns of this type, ``MailList`` (ordinary) or ``ABTest``. Default: both. (templated)
    :param allow_empty: let a window that has no campaign in two responses mark all its rows as gone. If false, the task
        fails and the rows stay. Default: false.
    :param max_removed_fraction: the largest share of the window's rows, from 0 to 1, that one load may mark, net of
        added rows; not applied below ten rows. Default: 0.5.
    :param snapshots: also store one row per campaign and day of observation in a second table: the growth of the
        counts, which the service does not keep. It is loaded first, in its own transaction. Default: false.
    :param snapshots_table: the name of that table, in the schema of ``table`` unless it names another one; enables
        ``snapshots``. Default: the name of ``table`` with ``_snapshots`` appended. (templated)
    :param on_unstorable: what to do with a record that the database cannot store or that is invalid (an unsupported
        character, a number out of range, a negative count, a missing identifier): ``fail`` the load, naming record,
        column and cause; or ``reject`` the record, count it as ``rejected``, up to 1,000, and load the others. A load
        that rejects records deletes nothing and marks nothing as gone. Default: ``fail``.
    :param rejects_table: the table in the same database in which rejected records are stored with their reasons;
        created if it does not exist. It may contain personal data. Default: none. (templated)
    :param rejects_path: the file in which rejected records are stored as JSON Lines, as a path or URL of
        ``ObjectStoragePath``. It may contain personal data. Default: none. (templated)
    :param keep_days: days after which rows of ``rejects_table``, of any task, are deleted; applied when this task
        stores rows, in the same transaction. Default: never.
    :param lock_timeout: seconds that the load waits for a lock in Postgres, MySQL and MariaDB, such as that of another
        load of the table; the log shows what holds the lock, if the database reports it. Default: 600.
    """

    template_fields = (
        "mail_conn_id", "sql_conn_id", "table", "start_day", "end_day", "mail_name", "type", "snapshots_table",
        "rejects_table", "rejects_path",
    )  # fmt: skip
    resource = "campaigns/stats"
    mail_name: str | None
    type: str | None
    snapshots: bool
    snapshots_table: str | None

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        sql_conn_id: Templated[str],
        table: Templated[str] = "mail_campaign_stats",
        start_day: Templated[str] | None = None,
        end_day: Templated[str] | None = None,
        lookback_days: int = 7,
        mail_name: Templated[str] | None = None,
        type: Templated[Literal["MailList", "ABTest"]] | None = None,
        allow_empty: bool = False,
        max_removed_fraction: float = MAX_REMOVED_FRACTION,
        snapshots: bool = False,
        snapshots_table: Templated[str] | None = None,
        on_unstorable: OnUnstorable = "fail",
        rejects_table: Templated[str] | None = None,
        rejects_path: Templated[str] | None = None,
        keep_days: float | None = None,
        lock_timeout: float = 600,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(
            mail_conn_id=mail_conn_id, sql_conn_id=sql_conn_id, table=table, start_day=start_day, end_day=end_day,
            lookback_days=lookback_days, mail_name=mail_name, type=type, allow_empty=allow_empty,
            max_removed_fraction=max_removed_fraction, snapshots=snapshots, snapshots_table=snapshots_table,
            on_unstorable=on_unstorable, rejects_table=rejects_table, rejects_path=rejects_path, keep_days=keep_days,
            lock_timeout=lock_timeout,
        )  # fmt: skip

    def window(self, context: Context) -> tuple[date, date]:
        from airflow_provider_mail._task.statistics import today

        start_day, end_day = super().window(context)
        return start_day, max(end_day, today()) if self.mail_name and not self.end_day else end_day

    def declared_table(self) -> Table:
        """Return the table of campaign statistics: one row per connection and campaign."""
        from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_STATS

        return CAMPAIGN_STATS

    def table_names(self) -> dict[str, str]:
        """Return the names of the loaded tables, by argument."""
        from airflow_provider_mail.warehouse.tables.stats import snapshots_name

        names = super().table_names()
        if self.snapshots or self.snapshots_table:
            names["snapshots_table"] = snapshots_name(self.table, self.snapshots_table)
        return names

    def transfer(self, start_day: date, end_day: date) -> tuple[LoadResult, dict[str, Any]]:
        # Load the snapshots, then the latest counts.
        from airflow_provider_mail._task.statistics import Observation, read_campaign_stats

        observation = Observation(self.hook.get_conn(), self.sql_hook)
        statistics = read_campaign_stats(self.hook, observation, start_day, end_day, self.mail_name, self.type)
        # Snapshots first: tomorrow the service returns the latest counts again, but not those of today.
        snapshots = self._load_snapshots(statistics, observation)
        loaded = self.unstorable.load(
            statistics.table,
            self.table,
            statistics.rows(),
            covers=statistics.covers,
            mark_gone=statistics.mark_gone,
            now=observation.now(),
            removal=self.removal_rule(statistics.read_again),
        )
        if snapshots and loaded.rows > snapshots.rows:  # A second reading found more campaigns.
            self._load_snapshots(statistics, observation)
        return loaded, {}

    def _load_snapshots(self, statistics: Statistics, observation: Observation) -> LoadResult | None:
        from airflow_provider_mail.warehouse.stored import StoredTable
        from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_SNAPSHOTS, snapshot_rows

        if (name := self.table_names().get("snapshots_table")) is None:
            return None
        snapshots_table = StoredTable(self.sql_hook, statistics.table, self.table).beside(name)
        return self.unstorable.load(
            CAMPAIGN_SNAPSHOTS, snapshots_table, snapshot_rows(statistics.rows()), now=observation.now()
        )


class MailTransactionalStatsToSqlOperator(BaseStatsToSqlOperator):
    """Load the daily statistics of transactional mail into a table: one row per day.

    Without ``start_day`` and ``end_day`` the window is the run's data interval: ``[D, D+1)`` is day D in UTC. A run
    without an interval (manual, by an asset, or by a cron schedule without intervals) loads the day before the run and
    the day of the run so far. Loading the same window twice, out of order or in two concurrent runs results in the same
    rows. Opens and clicks arrive for days, so ``lookback_days`` reads earlier days again. Unchanged rows are not
    written again: the table ``mail_loads`` records when each day was last read.

    A day that is missing in the service's response gets no row, and an existing row is kept: missing is not zero.

    Returns ``table``, ``start_day``, ``end_day``, ``records``, ``missing_days`` (the number of days left out) and, if
    the database reports them, ``inserted``, ``changed``, ``unchanged`` and ``outdated`` (rows not stored because the
    table has newer ones); with ``on_unstorable="reject"`` also ``rejected``.

    .. seealso::
        For more information on how to use this operator, see the guide
        :ref:`howto/operator:MailTransactionalStatsToSqlOperator`
        (in the package: ``airflow_provider_mail/docs/statistics.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param sql_conn_id: the connection to the database. (templated)
    :param table: the table, with its schema if needed; created if it does not exist. Default:
        ``mail_transactional_stats``. (templated)
    :param start_day: the first day of the window, ``YYYY-MM-DD`` in UTC. Default: ``lookback_days`` before the first
        day of the run's data interval. (templated)
    :param end_day: the last day of the window, included. Default: the last day of the run's data interval. (templated)
    :param lookback_days: days before the data interval that are read again; not applied to a given ``start_day``.
        Default: 7.
    :param on_unstorable: what to do with a record that the database cannot store or that is invalid (an unsupported
        character, a number out of range, a negative count, a missing identifier): ``fail`` the load, naming record,
        column and cause; or ``reject`` the record, count it as ``rejected``, up to 1,000, and load the others. A load
        that rejects records deletes nothing and marks nothing as gone. Default: ``fail``.
    :param rejects_table: the table in the same database in which rejected records are stored with their reasons;
        created if it does not exist. It may contain personal data. Default: none. (templated)
    :param rejects_path: the file in which rejected records are stored as JSON Lines, as a path or URL of
        ``ObjectStoragePath``. It may contain personal data. Default: none. (templated)
    :param keep_days: days after which rows of ``rejects_table``, of any task, are deleted; applied when this task
        stores rows, in the same transaction. Default: never.
    :param lock_timeout: seconds that the load waits for a lock in Postgres, MySQL and MariaDB, such as that of another
        load of the table; the log shows what holds the lock, if the database reports it. Default: 600.
    """

    template_fields = ("mail_conn_id", "sql_conn_id", "table", "start_day", "end_day", "rejects_table", "rejects_path")
    resource = "transactional/stats"

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        sql_conn_id: Templated[str],
        table: Templated[str] = "mail_transactional_stats",
        start_day: Templated[str] | None = None,
        end_day: Templated[str] | None = None,
        lookback_days: int = 7,
        on_unstorable: OnUnstorable = "fail",
        rejects_table: Templated[str] | None = None,
        rejects_path: Templated[str] | None = None,
        keep_days: float | None = None,
        lock_timeout: float = 600,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(
            mail_conn_id=mail_conn_id, sql_conn_id=sql_conn_id, table=table, start_day=start_day, end_day=end_day,
            lookback_days=lookback_days, on_unstorable=on_unstorable, rejects_table=rejects_table,
            rejects_path=rejects_path, keep_days=keep_days, lock_timeout=lock_timeout,
        )  # fmt: skip

    def declared_table(self) -> Table:
        """Return the table of transactional statistics: one row per connection and day."""
        from airflow_provider_mail.warehouse.tables.stats import TRANSACTIONAL_STATS

        return TRANSACTIONAL_STATS

    def transfer(self, start_day: date, end_day: date) -> tuple[LoadResult, dict[str, Any]]:
        from airflow_provider_mail._task.statistics import Observation, read_transactional_stats

        observation = Observation(self.hook.get_conn(), self.sql_hook)
        statistics = read_transactional_stats(self.hook, observation, start_day, end_day)
        if missing := statistics.missing_days:
            shown = ", ".join(map(str, missing[:10])) + (" ..." if len(missing) > 10 else "")
            self.log.warning("The response leaves out %s days, whose rows are kept: %s", len(missing), shown)
        loaded = self.unstorable.load(
            statistics.table, self.table, statistics.rows(), covers=statistics.covers, now=observation.now()
        )
        return loaded, {"missing_days": len(missing)}
