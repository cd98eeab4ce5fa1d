"""Base class of the transfers from the service to a table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.arguments import MailTaskMixin, check_choice, check_keep_days
from airflow_provider_mail.lineage import MailLineage, SqlTable
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail._task.unstorable_rows import UnstorableRecords
    from airflow_provider_mail.warehouse.load import LoadResult
    from airflow_provider_mail.warehouse.table import Table

OnUnstorable: TypeAlias = Literal["fail", "reject"]
"""What to do with a record that the database cannot store."""


class BaseMailToSqlOperator(MailLineage, MailTaskMixin, BaseOperator):
    """Load records of the service into a table.

    A load is one transaction and can be repeated; a load that fails leaves the table as it was. The table is created if
    it does not exist, gets columns that a later version adds, and is never narrowed or dropped.
    """

    ui_color = "#e6f1f2"

    sql_conn_id: str
    table: str
    on_unstorable: OnUnstorable
    rejects_table: str | None
    rejects_path: str | None
    keep_days: float | None

    def set_arguments(self, arguments: Mapping[str, Any]) -> None:
        super().set_arguments(arguments)
        check_choice("on_unstorable", self.on_unstorable, OnUnstorable)
        check_keep_days(self.keep_days, self.rejects_table)

    @cached_property
    def unstorable(self) -> UnstorableRecords:
        """The handling of records that cannot be stored."""
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
        """The loaded resource of the service, for lineage, such as ``campaigns/stats``."""

    def note_lineage(self, rows: int) -> None:
        """Record the load for lineage."""
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
        """Return the counts of a load that the database reports."""
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
        """Return the loaded tables after checking the database; called before the first request."""
        from airflow_provider_mail.warehouse.errors import WarehouseError
        from airflow_provider_mail.warehouse.load import check_database

        if self.on_unstorable == "fail" and (self.rejects_table or self.rejects_path):
            raise AirflowFailException("rejects_table, rejects_path: they need on_unstorable='reject'")
        try:
            check_database(self.sql_hook)
            return self.table_names()
        except WarehouseError as error:
            raise AirflowFailException(str(error)) from None
