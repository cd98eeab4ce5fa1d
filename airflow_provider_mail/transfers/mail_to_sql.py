"""Transfers from the service to a database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail.transfers._base import (
    BaseCampaignReader,
    BaseContactReader,
    BaseListToSqlOperator,
    BaseStatsToSqlOperator,
    CampaignStatus,
    OnChange,
    RemovesRows,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail._task.statistics import Observation, Statistics
    from airflow_provider_mail.arguments import Rejects
    from airflow_provider_mail.transfers._base import Conditions
    from airflow_provider_mail.warehouse.database import LoadResult
    from airflow_provider_mail.warehouse.table import Table

__all__ = [
    "MailCampaignStatsToSqlOperator",
    "MailCampaignsToSqlOperator",
    "MailContactsToSqlOperator",
    "MailTransactionalStatsToSqlOperator",
]

Mode: TypeAlias = Literal["replace", "upsert"]
"""Whether rows of contacts that are no longer in the list are deleted."""


class MailContactsToSqlOperator(BaseContactReader, BaseListToSqlOperator):
    """Load the contacts of a list into a table: one row per contact, with all properties. It contains personal data.

    Unchanged rows are not written again: the table ``mail_loads`` records when the list was last read. With
    ``mode="upsert"`` or ``on_change="accept"``, which may keep rows that the load did not see, each row shows when it
    was last seen.

    Returns ``table``, ``list_name``, ``records``, ``readings`` (the number of times that the list was read),
    ``inserted``, ``changed``, ``unchanged``, ``outdated`` (rows not stored because the table has newer ones) and
    ``deleted``; with ``rejects`` also ``rejected``; with a history ``history_table``, ``joined`` and ``left`` (contacts
    that were added or removed since the previous reading). Never rows or addresses.

    .. seealso:: the guide :ref:`howto/operator:MailContactsToSqlOperator`
        (in the package: ``airflow_provider_mail/docs/warehouse.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param sql_conn_id: the connection to the database. (templated)
    :param table: the table, with its schema if needed; created if it does not exist. Default: ``mail_contacts``.
        (templated)
    :param list_name: the name of the list. (templated)
    :param team_name: the team that owns the list; other teams need a permission. Default: the current team. (templated)
    :param mode: ``replace``: delete the rows of contacts that are no longer in the list, in the transaction that loads
        the others; ``upsert``: keep them, with the ``observed_at`` at which they were last seen. Default: ``replace``.
    :param history: also record when each contact was in the list: one row per contact and period, with ``valid_from``
        and ``valid_to``, in a second table, and each complete reading in a third. Both are loaded in the same
        transaction and contain no addresses. A list is its identifier at the service: one that was renamed goes on, and
        one that was made again under its name is another list. Needs a complete reading of the list: not with
        ``on_change="accept"``. A load that rejects records is not recorded. Default: false.
    :param history_table: the name of the second table, which enables ``history``; the name of the third is this name
        with ``_readings`` appended. Default: the name of ``table`` with ``_history`` appended. (templated)
    :param allow_empty: with ``mode="replace"`` or a history, let a list that is empty in two readings delete or end all
        its rows. If false, the task fails and the rows stay. The list of another team (``team_name``), whose name
        cannot be looked up, may be empty only with this argument. Default: false.
    :param max_removed_fraction: with ``mode="replace"`` or a history, the largest share of the list's rows, from 0 to
        1, that one load may remove, net of added rows; not applied below ten rows. A load that would remove any row
        reads the list a second time, and removes only rows that both readings lack. Default: 0.1; and unless the list
        is dynamic, the task fails if the service still has one of up to twenty of these contacts.
    :param page_size: records in a page, at most 1,000; a service that returns fewer is supported. Default: 1,000.
    :param max_in_flight: pages that are requested concurrently; the connection's own limit also applies. Default: 8.
    :param on_change: what to do when the list changes while it is read. ``retry``: accept a list that only grows after
        it is read twice, which proves that nothing was missed; otherwise start again, up to three times in total, then
        fail. ``fail``: fail at once. ``accept``: load the returned records if there are at least as many distinct
        records as the lowest total that the service reported, otherwise read the list again. Default: ``retry``.
    :param rejects: what to do with records that the database cannot store or that are invalid (an unsupported
        character, a whole number in place of a time), see :class:`~airflow_provider_mail.arguments.Rejects`: they are
        rejected and the others stored. A load that rejects records deletes nothing and marks nothing as gone. Default:
        such a record fails the load, and nothing is stored. (templated)
    :param lock_timeout: seconds that the load waits for a lock in Postgres, MySQL and MariaDB, such as that of another
        load of the table. Default: 600.
    """

    mode: Mode
    history: bool
    history_table: str | None

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        sql_conn_id: Templated[str],
        table: Templated[str] = "mail_contacts",
        list_name: Templated[str],
        team_name: Templated[str] | None = None,
        mode: Mode = "replace",
        history: bool = False,
        history_table: Templated[str] | None = None,
        allow_empty: bool = False,
        max_removed_fraction: float | None = None,
        page_size: int = 1000,
        max_in_flight: int = 8,
        on_change: OnChange = "retry",
        rejects: Templated[Rejects] | None = None,
        lock_timeout: float = 600,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    def set_arguments(self, /, **arguments: Any) -> None:
        super().set_arguments(**arguments)
        if (self.history or self.history_table) and self.on_change == "accept":
            raise self.argument_error(
                "history: needs a list that is read whole, since a contact that is not returned has left: not "
                "on_change='accept'"
            )

    def table_names(self) -> dict[str, str]:
        from airflow_provider_mail.warehouse.table import other_name

        names = super().table_names()
        if self.history or self.history_table:
            names["history_table"] = name = other_name("history_table", self.table, "_history", self.history_table)
            # Check the name of the table of readings, too: it may be too long.
            other_name("history_table", name, "_readings", None)
        return names

    def conditions(self, observed_at: datetime) -> Conditions:
        conditions: Conditions = {}
        if self.mode == "replace":  # With `upsert`, rows remain that the load has not seen.
            conditions = {"replace_where": self.list_key, **super().conditions(observed_at)}
        if name := self.table_names().get("history_table"):
            from airflow_provider_mail.warehouse.tables.resources import contacts_history

            list_id, ended = self._identity(name, observed_at)
            conditions["history"] = contacts_history(name, self.list_key, observed_at, list_id, ended)
        return conditions

    def _identity(self, history_table: str, observed_at: datetime) -> tuple[str | None, tuple[str, ...]]:
        """Return the identifier of the list, and those of lists that had its name and are gone at the service."""
        from airflow_provider_mail.api.flows.second_source import gone_lists
        from airflow_provider_mail.api.lists import find_list
        from airflow_provider_mail.warehouse.database import StoredTable
        from airflow_provider_mail.warehouse.request import LIST_ID, READ_AT, ROWS, OneOf
        from airflow_provider_mail.warehouse.rows import moment
        from airflow_provider_mail.warehouse.table import derived_name
        from airflow_provider_mail.warehouse.tables.resources import LIST_READINGS

        if self.team_name:  # The list of another team cannot be looked up.
            return self.list_name, ()
        client = self.hook.get_conn()
        found = find_list(client, self.list_name)
        list_id = None if found is None else str(found.id or found.list_name)
        name = StoredTable(self.sql_hook, self.declared_table(), self.table).beside(
            derived_name(history_table, "_readings")
        )
        readings = StoredTable(self.sql_hook, LIST_READINGS, name)
        if LIST_ID not in readings.existing_columns():
            return list_id, ()
        account = {key: self.list_key[key] for key in ("mail_conn_id", "team_name")}
        others = {other for (other,) in readings.rows([LIST_ID], {**account, "list_name": self.list_name})} - {list_id}
        if not others:
            return list_id, ()
        last: dict[str, tuple[datetime, str, int]] = {}
        of_others = {**account, LIST_ID: OneOf([*others])}
        for at, other, *values in readings.rows([READ_AT, LIST_ID, "list_name", ROWS], of_others):
            if (read_at := moment(at)) and (other not in last or last[other][0] < read_at):
                last[other] = read_at, *values
        earlier = [
            other
            for other, (at, list_name, contacts) in last.items()
            if list_name == self.list_name and at < observed_at and contacts
        ]
        # One that was renamed goes on under its new name.
        return list_id, gone_lists(client, earlier)

    def counts(self, loaded: LoadResult) -> dict[str, int]:
        deleted = loaded.deleted if self.mode == "replace" else None
        return super().counts(loaded) | ({} if deleted is None else {"deleted": deleted})

    def execute(self, context: Context) -> dict[str, Any]:
        return {"list_name": self.list_name, **super().execute(context)}


class MailCampaignsToSqlOperator(BaseCampaignReader, BaseListToSqlOperator):
    """Load the campaigns into a table: one row per campaign in any state, without its content.

    A campaign that was deleted at the service keeps its row, with the ``observed_at`` at which it was last seen. A load
    without a filter marks these rows with ``gone_at``: those of all teams with ``all_team``, otherwise those of the
    teams whose campaigns were returned. The mark is cleared when the campaign is returned again. A load that would mark
    rows reads the campaigns a second time, and marks only rows that both readings lack. With ``on_change="accept"``, no
    row is marked.

    Returns ``table``, ``records``, ``readings`` (the number of times that the list was read), ``inserted``,
    ``changed``, ``unchanged``, ``outdated`` (rows not stored because the table has newer ones) and ``gone``;
    with ``rejects`` also ``rejected``.

    .. seealso:: the guide :ref:`howto/operator:MailCampaignsToSqlOperator`
        (in the package: ``airflow_provider_mail/docs/warehouse.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param sql_conn_id: the connection to the database. (templated)
    :param table: the table, with its schema if needed; created if it does not exist. Default: ``mail_campaigns``.
        (templated)
    :param mail_name: load only campaigns whose name contains this. Default: all. (templated)
    :param subject: load only campaigns whose subject contains this. Default: all. (templated)
    :param sender_mail: load only campaigns of this sender. Default: all. (templated)
    :param type: load only campaigns of this type, ``MailList`` (ordinary) or ``ABTest``. Default: both. (templated)
    :param mail_status: load only campaigns in these states: ``draft``, ``sending``, ``complete``, ``failed``.
        Default: all. (templated)
    :param all_team: load the campaigns of all teams; needs a permission. Default: false.
    :param allow_empty: let two readings without any campaign mark all campaigns of the account as gone. If false, the
        task fails and the rows stay. Not applied with a filter. Default: false.
    :param max_removed_fraction: the largest share of the rows, from 0 to 1, that one load may mark, net of added rows;
        not applied below ten rows. Default: 0.1.
    :param page_size: records in a page, at most 1,000; a service that returns fewer is supported. Default: 100, since
        each campaign is returned with its whole content.
    :param max_in_flight: pages that are requested concurrently; the connection's own limit also applies. Default: 2.
    :param on_change: what to do when the list changes while it is read. ``retry``: accept a list that only grows after
        it is read twice, which proves that nothing was missed; otherwise start again, up to three times in total, then
        fail. ``fail``: fail at once. ``accept``: load the returned records if there are at least as many distinct
        records as the lowest total that the service reported, otherwise read the list again. Default: ``retry``.
    :param rejects: what to do with records that the database cannot store or that are invalid (an unsupported
        character, a whole number in place of a time), see :class:`~airflow_provider_mail.arguments.Rejects`: they are
        rejected and the others stored. A load that rejects records deletes nothing and marks nothing as gone. Default:
        such a record fails the load, and nothing is stored. (templated)
    :param lock_timeout: seconds that the load waits for a lock in Postgres, MySQL and MariaDB, such as that of another
        load of the table. Default: 600.
    """

    resource = "campaigns"

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        sql_conn_id: Templated[str],
        table: Templated[str] = "mail_campaigns",
        mail_name: Templated[str] | None = None,
        subject: Templated[str] | None = None,
        sender_mail: Templated[str] | None = None,
        type: Templated[Literal["MailList", "ABTest"]] | None = None,
        mail_status: Templated[Sequence[Templated[CampaignStatus]]] | None = None,
        all_team: bool = False,
        allow_empty: bool = False,
        max_removed_fraction: float | None = None,
        page_size: int = 100,
        max_in_flight: int = 2,
        on_change: OnChange = "retry",
        rejects: Templated[Rejects] | None = None,
        lock_timeout: float = 600,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())


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

    Returns ``table``, ``start_day``, ``end_day``, ``records``, ``inserted``, ``changed``, ``unchanged``, ``outdated``
    (rows not stored because the table has newer ones) and ``gone``; with snapshots also ``snapshots_table``,
    and with ``rejects`` also ``rejected``.

    .. seealso:: the guide :ref:`howto/operator:MailCampaignStatsToSqlOperator`
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
    :param allow_empty: let a window that has no campaign in two responses mark all its rows as gone, and let the number
        of sent mails of a campaign fall to zero. If false, the task fails and the rows stay; the only campaign of a
        window is marked nevertheless if the service does not find it by its name. Default: false.
    :param max_removed_fraction: the largest share of the window's rows, from 0 to 1, that one load may mark, net of
        added rows; not applied below ten rows. Default: 0.1.
    :param snapshots: also store one row per campaign and day of observation in a second table: the growth of the
        counts, which the service does not keep. It is loaded first, in its own transaction. Default: false.
    :param snapshots_table: the name of that table, in the schema of ``table`` unless it names another one; enables
        ``snapshots``. Default: the name of ``table`` with ``_snapshots`` appended. (templated)
    :param rejects: what to do with records that the database cannot store or that are invalid (an unsupported
        character, a whole number in place of a time), see :class:`~airflow_provider_mail.arguments.Rejects`: they are
        rejected and the others stored. A load that rejects records deletes nothing and marks nothing as gone. Default:
        such a record fails the load, and nothing is stored. (templated)
    :param lock_timeout: seconds that the load waits for a lock in Postgres, MySQL and MariaDB, such as that of another
        load of the table. Default: 600.
    """

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
        max_removed_fraction: float | None = None,
        snapshots: bool = False,
        snapshots_table: Templated[str] | None = None,
        rejects: Templated[Rejects] | None = None,
        lock_timeout: float = 600,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    def window(self, context: Context) -> tuple[date, date]:
        from airflow_provider_mail._task.statistics import today

        start_day, end_day = super().window(context)
        return start_day, max(end_day, today()) if self.mail_name and not self.end_day else end_day

    def declared_table(self) -> Table:
        from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_STATS

        return CAMPAIGN_STATS

    def table_names(self) -> dict[str, str]:
        from airflow_provider_mail.warehouse.tables.stats import snapshots_name

        names = super().table_names()
        if self.snapshots or self.snapshots_table:
            names["snapshots_table"] = snapshots_name(self.table, self.snapshots_table)
        return names

    def transfer(self, start_day: date, end_day: date) -> tuple[LoadResult, dict[str, Any]]:
        # Load the snapshots, then the latest counts.
        from airflow_provider_mail._task.statistics import Observation, read_campaign_stats

        observation = Observation(self.hook, self.sql_hook)
        statistics = read_campaign_stats(self.hook, observation, start_day, end_day, self.mail_name, self.type)
        self.check_zeros(statistics)
        # Snapshots first: tomorrow the service returns the latest counts again, but not those of today.
        count = len(statistics.records)
        self._load_snapshots(statistics, observation)
        loaded = self.unstorable.load(
            statistics.table,
            self.table,
            statistics.rows(),
            covers=statistics.covers,
            mark_gone=statistics.mark_gone,
            now=observation.now(),
            removal=self.removal_rule(statistics.read_again),
        )
        if len(statistics.records) > count:  # A second reading found more campaigns.
            self._load_snapshots(statistics, observation)
        return loaded, {}

    def _load_snapshots(self, statistics: Statistics, observation: Observation) -> None:
        from airflow_provider_mail.warehouse.database import StoredTable
        from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_SNAPSHOTS, snapshot_rows

        if (name := self.table_names().get("snapshots_table")) is None:
            return
        snapshots_table = StoredTable(self.sql_hook, statistics.table, self.table).beside(name)
        self.unstorable.load(
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

    Returns ``table``, ``start_day``, ``end_day``, ``records``, ``missing_days`` (the number of days left out),
    ``inserted``, ``changed``, ``unchanged`` and ``outdated`` (rows not stored because the table has newer ones);
    with ``rejects`` also ``rejected``.

    .. seealso:: the guide :ref:`howto/operator:MailTransactionalStatsToSqlOperator`
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
    :param allow_empty: let the number of mails that were sent on a day fall to zero. If false, the task fails and the
        rows stay, since mails that were sent remain sent. Default: false.
    :param rejects: what to do with records that the database cannot store or that are invalid (an unsupported
        character, a whole number in place of a time), see :class:`~airflow_provider_mail.arguments.Rejects`: they are
        rejected and the others stored. A load that rejects records deletes nothing and marks nothing as gone. Default:
        such a record fails the load, and nothing is stored. (templated)
    :param lock_timeout: seconds that the load waits for a lock in Postgres, MySQL and MariaDB, such as that of another
        load of the table. Default: 600.
    """

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
        allow_empty: bool = False,
        rejects: Templated[Rejects] | None = None,
        lock_timeout: float = 600,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    def declared_table(self) -> Table:
        from airflow_provider_mail.warehouse.tables.stats import TRANSACTIONAL_STATS

        return TRANSACTIONAL_STATS

    def transfer(self, start_day: date, end_day: date) -> tuple[LoadResult, dict[str, Any]]:
        from airflow_provider_mail._task.statistics import Observation, read_transactional_stats

        observation = Observation(self.hook, self.sql_hook)
        statistics = read_transactional_stats(self.hook, observation, start_day, end_day)
        if missing := statistics.missing_days:
            shown = ", ".join(map(str, missing[:10])) + (" ..." if len(missing) > 10 else "")
            self.log.warning("The response leaves out %s days, whose rows are kept: %s", len(missing), shown)
        self.check_zeros(statistics)
        loaded = self.unstorable.load(
            statistics.table, self.table, statistics.rows(), covers=statistics.covers, now=observation.now()
        )
        return loaded, {"missing_days": len(missing)}
