"""What all loads of ``mail_to_sql`` share: a table in a database."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.arguments import MailTaskMixin, check_keep_days
from airflow_provider_mail.lineage import MailLineage, SqlTable
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail._task.unstorable_rows import UnstorableRecords
    from airflow_provider_mail.warehouse.load import LoadResult
    from airflow_provider_mail.warehouse.table import Table


class BaseMailToSqlOperator(MailLineage, MailTaskMixin, BaseOperator):
    """What all loads share: a connection of the service, and a table in a database.

    A load is one transaction and can be repeated; when it fails, the table is what it was. The table is made when
    missing, gets columns that a later version adds, and is never narrowed or dropped.

    :param mail_conn_id: the connection.
    :param sql_conn_id: the database's connection.
    :param table: the table, perhaps with its schema; made when missing.
    :param on_unstorable: what to do with a record that the database cannot keep or that cannot be true (a character
        that it does not know, a number that is too large, a negative count, a missing identifier). ``fail`` (default):
        the load fails, and the error names record, column and cause; ``reject``: the record is set aside and counted as
        ``rejected``, up to 1,000, and the others are loaded. Such a load deletes nothing and marks nothing as gone.
    :param rejects_table: with ``reject``, a table in the same database that keeps these records with their reasons;
        made when missing. It may hold personal data. Default: none.
    :param rejects_path: with ``reject``, where to keep them as JSON Lines: a path or URL as Airflow's
        ``ObjectStoragePath`` takes it. Default: nowhere.
    :param keep_days: rows of ``rejects_table`` that were set aside more than so many days ago, by whatever task, are
        deleted whenever this one stores its own, in the same transaction. Default: all are kept.
    """

    template_fields: Sequence[str] = ("mail_conn_id", "sql_conn_id", "table", "rejects_table", "rejects_path")
    ui_color = "#e6f1f2"

    def __init__(
        self,
        *,
        mail_conn_id: str = "mail_default",
        sql_conn_id: str,
        table: str,
        on_unstorable: Literal["fail", "reject"] = "fail",
        rejects_table: str | None = None,
        rejects_path: str | None = None,
        keep_days: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if on_unstorable not in ("fail", "reject"):
            raise ValueError(f"on_unstorable: {on_unstorable!r} is none of fail, reject")
        self.mail_conn_id = mail_conn_id
        self.sql_conn_id = sql_conn_id
        self.table = table
        self.on_unstorable = on_unstorable
        self.rejects_table = rejects_table
        self.rejects_path = rejects_path
        check_keep_days(keep_days, rejects_table)
        self.keep_days = keep_days

    @cached_property
    def unstorable(self) -> UnstorableRecords:
        """What becomes of records that cannot be stored."""
        from airflow_provider_mail._task.unstorable_rows import UnstorableRecords

        return UnstorableRecords(
            self.sql_hook, self.on_unstorable == "reject", self.rejects_table, self.rejects_path, self.keep_days
        )

    @cached_property
    def sql_hook(self) -> DbApiHook:
        """The hook of ``sql_conn_id``."""
        from airflow_provider_mail._task.sql import sql_hook

        return sql_hook(self.sql_conn_id)

    @property
    @abstractmethod
    def resource(self) -> str:
        """What of the service is loaded, for lineage, such as ``campaigns/stats``."""

    def note_lineage(self, rows: int) -> None:
        """Remember what was loaded into what."""
        self.moved(self.resource, SqlTable(self.sql_hook, self.table), table=self.declared_table(), rows=rows)

    @abstractmethod
    def declared_table(self) -> Table:
        """The table's columns and key."""

    def table_names(self) -> dict[str, str]:
        """The tables that are loaded, by argument.

        :raises WarehouseError: for one that cannot be a name.
        """
        from airflow_provider_mail.warehouse.table import TableName

        TableName.parse(self.table)
        if self.rejects_table:
            TableName.parse(self.rejects_table)
        return {"table": self.table}

    def counts(self, loaded: LoadResult) -> dict[str, int]:
        """What a load did, as far as the database tells."""
        if loaded.outdated:
            self.log.warning(
                "%s of %s records were not taken: %s has newer ones, from a load that asked the service later",
                loaded.outdated,
                loaded.rows,
                self.table,
            )
        names = ("inserted", "changed", "unchanged", "outdated", "gone")
        return {name: count for name in names if (count := getattr(loaded, name)) is not None}

    def checked_table_names(self) -> dict[str, str]:
        """The tables that are loaded, in a database that can be; called before the service is asked for anything."""
        from airflow_provider_mail.warehouse.errors import WarehouseError
        from airflow_provider_mail.warehouse.load import check_database

        if self.on_unstorable == "fail" and (self.rejects_table or self.rejects_path):
            raise AirflowFailException("rejects_table, rejects_path: they need on_unstorable='reject'")
        try:
            check_database(self.sql_hook)
            return self.table_names()
        except WarehouseError as error:
            raise AirflowFailException(str(error)) from None
