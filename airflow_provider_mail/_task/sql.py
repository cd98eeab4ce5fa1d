"""The hook of a database, from a connection id, and the check of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.warehouse.table import TableName


class SqlTask:
    """Mixin for a task that uses a database."""

    sql_conn_id: str

    @cached_property
    def sql_hook(self) -> DbApiHook:
        """The hook of ``sql_conn_id``."""
        return sql_hook(self.sql_conn_id)


def sql_hook(sql_conn_id: str) -> DbApiHook:
    """Return the ``DbApiHook`` of a connection to any database.

    :raises AirflowFailException: when its type has no such hook, or the provider of the hook is not installed.
    """
    # Not at the top: transfers import this module when a DAG is parsed.
    from airflow_provider_mail.version_compat import AirflowFailException
    from airflow_provider_mail.warehouse.connection import hook_of
    from airflow_provider_mail.warehouse.errors import WarehouseError

    try:
        return hook_of(sql_conn_id)
    except WarehouseError as error:
        raise AirflowFailException(f"sql_conn_id: {error}") from None


def check_tables(hook: DbApiHook, names: Mapping[str, str | None]) -> dict[str, TableName]:
    """Check a database and the tables of a task, which must all be different, before anything is sent.

    :param names: the names of the tables, by argument; ``None`` for a table that is not used.
    :raises AirflowFailException: naming the argument that is wrong, or the connection.
    """
    from airflow_provider_mail.version_compat import AirflowFailException
    from airflow_provider_mail.warehouse.errors import WarehouseError
    from airflow_provider_mail.warehouse.load import check_database
    from airflow_provider_mail.warehouse.table import TableName

    parsed: dict[str, TableName] = {}
    try:
        check_database(hook)
    except WarehouseError as error:
        raise AirflowFailException(str(error)) from None
    for argument, name in names.items():
        if name is None:
            continue
        try:
            table = TableName.parse(name)
        except WarehouseError as error:
            raise AirflowFailException(f"{argument}: {error}") from None
        if same := next((other for other in parsed if parsed[other] == table), None):
            raise AirflowFailException(f"{argument}: must be another table than `{same}`")
        parsed[argument] = table
    return parsed
