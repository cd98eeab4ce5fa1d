"""From a database to the service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_mail.hooks.task import check_flags
from airflow_provider_mail.operators.contact_import import BaseContactImportOperator, Source
from airflow_provider_mail.operators.hidden import HiddenField, revealed

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.hooks.rejects import RejectSpool


class SqlToMailContactsOperator(BaseContactImportOperator):
    """Imports the rows of a query as contacts, from any database with a ``DbApiHook``, in flat memory.

    .. seealso::
        For more information on how to use this operator, see ``docs/contacts.md``.

    :param sql_conn_id: the database's connection.
    :param sql: the query; a name that ends in ``.sql`` is read from the DAG's folder. Its columns are mapped to
        properties by ``columns``.
    :param parameters: of the query, in the driver's style. They may be addresses: Airflow does not get to see them.
    :param rejects_table: a table in the same database that keeps the rows that were set aside, with reasons; made when
        missing. It holds personal data.
    :param count_first: count the query's rows first, so that the log can tell the time left.
    """

    template_fields: Sequence[str] = (
        *BaseContactImportOperator.template_fields,
        "sql_conn_id",
        "sql",
        "parameters",
        "rejects_table",
    )
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"sql": "sql"}  # noqa: RUF012 - Airflow's own attribute
    parameters = HiddenField()

    def __init__(
        self,
        *,
        sql_conn_id: str,
        sql: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        rejects_table: str | None = None,
        count_first: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_flags(count_first=count_first)
        self.sql_conn_id = sql_conn_id
        self.sql = sql
        self.parameters = parameters
        self.rejects_table = rejects_table
        self.count_first = count_first

    @cached_property
    def sql_hook(self) -> DbApiHook:
        """The hook of ``sql_conn_id``."""
        from airflow_provider_mail.hooks.sql import sql_hook

        return sql_hook(self.sql_conn_id)

    @contextmanager
    def source(self, context: Context) -> Iterator[Source]:
        """The query's rows, by a server-side cursor where the database has one."""
        from airflow_provider_mail.warehouse.errors import WarehouseError
        from airflow_provider_mail.warehouse.read import stream_rows
        from airflow_provider_mail.warehouse.table import TableName

        if self.rejects_table:
            try:
                TableName.parse(self.rejects_table)
            except WarehouseError as error:
                raise AirflowFailException(f"rejects_table: {error}") from None
        parameters = revealed(self, self.parameters, context)
        with stream_rows(self.sql_hook, self.sql, parameters, self.chunk_size) as (columns, batches):
            yield Source(columns, batches, self._total(parameters))

    def _total(self, parameters: Any) -> int | None:
        from airflow_provider_mail.warehouse.errors import WarehouseError
        from airflow_provider_mail.warehouse.read import stream_rows

        if not self.count_first:
            return None
        # On lines of its own, since the query may end in a comment.
        counting = f"SELECT COUNT(*) FROM (\n{self.sql.strip().rstrip(';')}\n) AS contacts"
        try:
            with stream_rows(self.sql_hook, counting, parameters) as (_, batches):
                return int(next(batches)[0][0])
        except WarehouseError as error:
            self.log.info("The rows could not be counted first, so the log will not tell the time left: %s", error)
            return None

    def keep_rejects(self, spool: RejectSpool, import_id: str) -> None:
        """Store what was set aside in the table, the file, or both, in place of what an earlier try stored."""
        super().keep_rejects(spool, import_id)
        if self.rejects_table:
            from datetime import UTC, datetime

            from airflow_provider_mail.warehouse.load import load
            from airflow_provider_mail.warehouse.rejects import REJECTS, reject_row

            now = datetime.now(UTC)
            rows = (reject_row(reject, import_id=import_id, rejected_at=now) for reject in spool)
            load(self.sql_hook, REJECTS, self.rejects_table, rows, replace_where={"import_id": import_id})

    def reject_places(self) -> dict[str, str]:
        """Where it was stored, for XCom."""
        return super().reject_places() | ({"rejects_table": self.rejects_table} if self.rejects_table else {})
