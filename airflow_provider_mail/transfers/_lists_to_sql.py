"""Transfers of whole lists to a database, published in :mod:`airflow_provider_mail.transfers.mail_to_sql`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail.transfers._loading import MAX_REMOVED_FRACTION, BaseListToSqlOperator, OnUnstorable
from airflow_provider_mail.transfers._reading import BaseCampaignReader, BaseContactReader, OnChange

if TYPE_CHECKING:
    from typing import Unpack

    from airflow.sdk import Context

    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail.warehouse.coverage import Coverage
    from airflow_provider_mail.warehouse.load import History

PUBLISHED_IN = "airflow_provider_mail.transfers.mail_to_sql"
"""The public module, whose name Airflow stores with the task."""

Mode: TypeAlias = Literal["replace", "upsert"]
"""Whether rows of contacts that are no longer in the list are deleted."""


class MailContactsToSqlOperator(BaseContactReader, BaseListToSqlOperator):
    """Load the contacts of a list into a table: one row per contact, with all properties. It contains personal data.

    Unchanged rows are not written again: the table ``mail_loads`` records when the list was last read. With
    ``mode="upsert"`` or ``on_change="accept"``, which may keep rows that the load did not see, each row shows when it
    was last seen.

    Returns ``table``, ``list_name``, ``records``, ``readings`` (the number of times that the list was read) and, if the
    database reports them, ``inserted``, ``changed``, ``unchanged``, ``outdated`` (rows not stored because the table has
    newer ones) and ``deleted``; with ``on_unstorable="reject"`` also ``rejected``; with a history ``history_table``,
    ``joined`` and ``left`` (contacts that were added or removed since the previous reading). Never rows or addresses.

    .. seealso::
        For more information on how to use this operator, see the guide
        :ref:`howto/operator:MailContactsToSqlOperator`
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
        transaction and contain no addresses. Needs SQLite, Postgres, DuckDB, MySQL or MariaDB, and a complete reading
        of the list: not with ``on_change="accept"``. A load that rejects records is not recorded. Default: false.
    :param history_table: the name of the second table, which enables ``history``; the name of the third is this name
        with ``_readings`` appended. Default: the name of ``table`` with ``_history`` appended. (templated)
    :param allow_empty: with ``mode="replace"`` or a history, let a list that is empty in two readings delete or end all
        its rows. If false, the task fails and the rows stay. The list of another team (``team_name``), whose name
        cannot be looked up, may be empty only with this argument. Default: false.
    :param max_removed_fraction: with ``mode="replace"`` or a history, the largest share of the list's rows, from 0 to
        1, that one load may remove, net of added rows; not applied below ten rows. A load that would remove any row
        reads the list a second time, and removes only rows that both readings lack. Default: 0.5.
    :param page_size: records in a page, at most 1,000; a service that returns fewer is supported. Default: 1,000.
    :param max_in_flight: pages that are requested concurrently; the connection's own limit also applies. Default: 8.
    :param on_change: what to do when the list changes while it is read. ``retry``: accept a list that only grows after
        it is read twice, which proves that nothing was missed; otherwise start again, up to three times in total, then
        fail. ``fail``: fail at once. ``accept``: load the returned records if there are at least as many distinct
        records as the lowest total that the service reported, otherwise read the list again. Default: ``retry``.
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
        "mail_conn_id", "sql_conn_id", "table", "list_name", "team_name", "history_table", "rejects_table",
        "rejects_path",
    )  # fmt: skip
    __module__ = PUBLISHED_IN
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
        max_removed_fraction: float = MAX_REMOVED_FRACTION,
        page_size: int = 1000,
        max_in_flight: int = 8,
        on_change: OnChange = "retry",
        on_unstorable: OnUnstorable = "fail",
        rejects_table: Templated[str] | None = None,
        rejects_path: Templated[str] | None = None,
        keep_days: float | None = None,
        lock_timeout: float = 600,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(
            mail_conn_id=mail_conn_id, sql_conn_id=sql_conn_id, table=table, list_name=list_name, team_name=team_name,
            mode=mode, history=history, history_table=history_table, allow_empty=allow_empty,
            max_removed_fraction=max_removed_fraction, page_size=page_size, max_in_flight=max_in_flight,
            on_change=on_change, on_unstorable=on_unstorable, rejects_table=rejects_table, rejects_path=rejects_path,
            keep_days=keep_days, lock_timeout=lock_timeout,
        )  # fmt: skip

    def set_arguments(self, **arguments: Any) -> None:
        super().set_arguments(**arguments)
        if (self.history or self.history_table) and self.on_change == "accept":
            raise self.argument_error(
                "history: needs a list that is read whole, since a contact that is not returned has left: not "
                "on_change='accept'"
            )

    def replace_where(self) -> Mapping[str, Any] | None:
        """Return the key of this list, connection and team, whose other rows are deleted."""
        return self.list_key if self.mode == "replace" else None

    def covers(self, observed_at: datetime) -> Coverage | None:
        # With `upsert`, rows remain that the load has not seen.
        return super().covers(observed_at) if self.mode == "replace" else None

    def table_names(self) -> dict[str, str]:
        """Return the names of the loaded tables, by argument."""
        from airflow_provider_mail.warehouse.load import check_history
        from airflow_provider_mail.warehouse.tables.columns import other_name

        names = super().table_names()
        if self.history or self.history_table:
            check_history(self.sql_hook)
            names["history_table"] = name = other_name("history_table", self.table, "_history", self.history_table)
            # Check the name of the table of readings, too: it may be too long.
            other_name("history_table", name, "_readings", None)
        return names

    def recorded_in(self, observed_at: datetime) -> History | None:
        # The history of the list, if enabled.
        from airflow_provider_mail.warehouse.tables.contacts import contacts_history

        name = self.table_names().get("history_table")
        return contacts_history(name, self.list_key, observed_at) if name else None

    def execute(self, context: Context) -> dict[str, Any]:
        """Read and load the list."""
        return {"list_name": self.list_name, **super().execute(context)}


class MailCampaignsToSqlOperator(BaseCampaignReader, BaseListToSqlOperator):
    """Load the campaigns into a table: one row per campaign in any state, without its content.

    A campaign that was deleted at the service keeps its row, with the ``observed_at`` at which it was last seen. A load
    without a filter marks these rows with ``gone_at``: those of all teams with ``all_team``, otherwise those of the
    teams whose campaigns were returned. The mark is cleared when the campaign is returned again. A load that would mark
    rows reads the campaigns a second time, and marks only rows that both readings lack. With ``on_change="accept"``, no
    row is marked.

    Returns ``table``, ``records``, ``readings`` (the number of times that the list was read) and, if the database
    reports them, ``inserted``, ``changed``, ``unchanged``, ``outdated`` (rows not stored because the table has newer
    ones) and ``gone``; with ``on_unstorable="reject"`` also ``rejected``.

    .. seealso::
        For more information on how to use this operator, see the guide
        :ref:`howto/operator:MailCampaignsToSqlOperator`
        (in the package: ``airflow_provider_mail/docs/warehouse.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param sql_conn_id: the connection to the database. (templated)
    :param table: the table, with its schema if needed; created if it does not exist. Default: ``mail_campaigns``.
        (templated)
    :param mail_name: load only campaigns whose name contains this. Default: all. (templated)
    :param subject: load only campaigns whose subject contains this. Default: all. (templated)
    :param sender_mail: load only campaigns of this sender. Default: all. (templated)
    :param type: load only campaigns of this type, ``MailList`` (ordinary) or ``ABTest``. Default: both. (templated)
    :param mail_status: load only campaigns in these states: -1 draft, 1 sending, 2 sent, 4 failed. Default: all.
        (templated)
    :param all_team: load the campaigns of all teams; needs a permission. Default: false.
    :param allow_empty: let two readings without any campaign mark all campaigns of the account as gone. If false, the
        task fails and the rows stay. Not applied with a filter. Default: false.
    :param max_removed_fraction: the largest share of the rows, from 0 to 1, that one load may mark, net of added rows;
        not applied below ten rows. Default: 0.5.
    :param page_size: records in a page, at most 1,000; a service that returns fewer is supported. Default: 100, since
        each campaign is returned with its whole content.
    :param max_in_flight: pages that are requested concurrently; the connection's own limit also applies. Default: 2.
    :param on_change: what to do when the list changes while it is read. ``retry``: accept a list that only grows after
        it is read twice, which proves that nothing was missed; otherwise start again, up to three times in total, then
        fail. ``fail``: fail at once. ``accept``: load the returned records if there are at least as many distinct
        records as the lowest total that the service reported, otherwise read the list again. Default: ``retry``.
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
        "mail_conn_id", "sql_conn_id", "table", "mail_name", "subject", "sender_mail", "type", "mail_status",
        "rejects_table", "rejects_path",
    )  # fmt: skip
    __module__ = PUBLISHED_IN
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
        mail_status: Templated[Sequence[Templated[int]]] | None = None,
        all_team: bool = False,
        allow_empty: bool = False,
        max_removed_fraction: float = MAX_REMOVED_FRACTION,
        page_size: int = 100,
        max_in_flight: int = 2,
        on_change: OnChange = "retry",
        on_unstorable: OnUnstorable = "fail",
        rejects_table: Templated[str] | None = None,
        rejects_path: Templated[str] | None = None,
        keep_days: float | None = None,
        lock_timeout: float = 600,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(
            mail_conn_id=mail_conn_id, sql_conn_id=sql_conn_id, table=table, mail_name=mail_name, subject=subject,
            sender_mail=sender_mail, type=type, mail_status=mail_status, all_team=all_team, allow_empty=allow_empty,
            max_removed_fraction=max_removed_fraction, page_size=page_size, max_in_flight=max_in_flight,
            on_change=on_change, on_unstorable=on_unstorable, rejects_table=rejects_table, rejects_path=rejects_path,
            keep_days=keep_days, lock_timeout=lock_timeout,
        )  # fmt: skip
