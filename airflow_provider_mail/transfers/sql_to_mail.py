"""From a database to the service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._task.arguments import check_flags, check_keep_days
from airflow_provider_mail._task.redacted_field import HiddenField, unwrap
from airflow_provider_mail.operators._contact_import import BaseContactImportOperator, Source
from airflow_provider_mail.operators.transactional import BaseSendBatchOperator
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.sdk import Context, XComArg

    from airflow_provider_mail._task.rejected_rows import RejectSpool


class SqlSource:
    """Mixin: a query on a connection, with parameters that Airflow does not get to see."""

    sql_conn_id: str
    template_ext: Sequence[str] = (".sql",)
    parameters = HiddenField()

    @cached_property
    def sql_hook(self) -> DbApiHook:
        """The hook of ``sql_conn_id``."""
        from airflow_provider_mail._task.sql import sql_hook

        return sql_hook(self.sql_conn_id)


class SqlToMailContactsOperator(SqlSource, BaseContactImportOperator):
    """Imports the rows of a query as contacts, from any database with a ``DbApiHook``, in flat memory.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/contacts.md``.

    :param sql_conn_id: the database's connection.
    :param sql: the query; a name that ends in ``.sql`` is read from the DAG's folder. Its columns are mapped to
        properties by ``columns``.
    :param parameters: of the query, in the driver's style. They may be addresses: Airflow does not get to see them.
    :param rejects_table: a table in the same database that keeps the rows that were set aside, with reasons; made when
        missing. It holds personal data.
    :param keep_days: rows of ``rejects_table`` that were set aside more than so many days ago, by whatever import, are
        deleted whenever this one stores its own, in the same transaction. Default: all are kept.
    :param count_first: count the query's rows first, so that the log can tell the time left.
    """

    template_fields: Sequence[str] = (
        *BaseContactImportOperator.template_fields,
        "sql_conn_id",
        "sql",
        "parameters",
        "rejects_table",
    )
    template_fields_renderers = {"sql": "sql"}  # noqa: RUF012 - Airflow's own attribute

    def __init__(
        self,
        *,
        sql_conn_id: str,
        sql: str,
        parameters: Sequence[Any] | Mapping[str, Any] | XComArg | None = None,
        rejects_table: str | None = None,
        keep_days: float | None = None,
        count_first: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_flags(count_first=count_first)
        check_keep_days(keep_days, rejects_table)
        self.sql_conn_id = sql_conn_id
        self.sql = sql
        self.parameters = parameters
        self.rejects_table = rejects_table
        self.keep_days = keep_days
        self.count_first = count_first

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
        parameters = unwrap(self, self.parameters, context)
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
            from airflow_provider_mail._task.rejected_rows import store_rejects

            store_rejects(self.sql_hook, self.rejects_table, spool, import_id=import_id, keep_days=self.keep_days)

    def reject_places(self) -> dict[str, str]:
        """Where it was stored, for XCom."""
        return super().reject_places() | ({"rejects_table": self.rejects_table} if self.rejects_table else {})


class SqlToMailBatchOperator(SqlSource, BaseSendBatchOperator):
    """Sends one personalized message for each row of a query, at most once, in flat memory.

    All rows are read and checked before the first message is sent, and then sent in requests of up to 100 messages. A
    further try runs the query again and goes on behind what was sent; when the rows that were sent are no longer the
    first ones, in the same order, nothing more is sent and the task fails. So the query needs an ``ORDER BY``.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/transactional.md``.

    :param sql_conn_id: the database's connection.
    :param sql: the query; a name that ends in ``.sql`` is read from the DAG's folder.
    :param parameters: of the query, in the driver's style. They may be addresses: Airflow does not get to see them.
    :param to_column: the column with the recipient's address.
    :param name_column: the column with the name beside the address. Default: none.
    :param cc_column: the column with addresses that get a copy, with commas between. Default: none.
    :param bcc_column: the same for copies that nobody sees.
    :param columns: which tag each column is the value of: ``{"first_name": "name"}`` for ``{{name}}``. Columns left out
        are not sent. Default: every column but those of ``to``, ``cc`` and ``bcc``, for the tag of its own name.
        Missing values are not sent, so that those of ``mail_params`` hold.
    """

    template_fields: Sequence[str] = (
        *BaseSendBatchOperator.template_fields,
        "sql_conn_id",
        "sql",
        "parameters",
        "to_column",
        "name_column",
        "cc_column",
        "bcc_column",
        "columns",
    )
    template_fields_renderers = {"sql": "sql", "content": "html"}  # noqa: RUF012 - Airflow's own attribute
    argument = "sql"
    things = "rows"

    def __init__(
        self,
        *,
        sql_conn_id: str,
        sql: str,
        parameters: Sequence[Any] | Mapping[str, Any] | XComArg | None = None,
        to_column: str = "email",
        name_column: str | None = None,
        cc_column: str | None = None,
        bcc_column: str | None = None,
        columns: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.sql_conn_id = sql_conn_id
        self.sql = sql
        self.parameters = parameters
        self.to_column = to_column
        self.name_column = name_column
        self.cc_column = cc_column
        self.bcc_column = bcc_column
        self.columns = columns

    @contextmanager
    def all_messages(self, context: Context) -> Iterator[Iterable[Mapping[str, Any]]]:
        """A message for each row."""
        from airflow_provider_mail._task.row_messages import RowMessages
        from airflow_provider_mail.api.errors import MailValidationError
        from airflow_provider_mail.warehouse.read import stream_rows

        parameters = unwrap(self, self.parameters, context)
        with stream_rows(self.sql_hook, self.sql, parameters) as (names, batches):
            messages = RowMessages(
                names,
                to=self.to_column,
                name=self.name_column,
                cc=self.cc_column,
                bcc=self.bcc_column,
                tags=self.columns,
            )
            try:
                yield messages.of(batches)
            except MailValidationError as error:
                raise MailValidationError(messages.by_row(str(error)), operation=error.operation) from None
