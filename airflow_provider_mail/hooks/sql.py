"""The database side's hook, from a connection id."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook


def sql_hook(sql_conn_id: str) -> DbApiHook:
    """The ``DbApiHook`` of a connection, whatever its database.

    :raises AirflowFailException: when the connection's type has none, or the provider of its hook is not installed.
    """
    # Transfers import this module when a DAG file is parsed: on Airflow 3.0 all hooks would come along.
    from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, BaseHook
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    connection = BaseHook.get_connection(sql_conn_id)
    where = f"sql_conn_id: connection {sql_conn_id!r}"
    try:
        hook = connection.get_hook()
    except (AirflowException, ImportError) as error:
        raise AirflowFailException(f"{where} of type {connection.conn_type!r} has no hook: {error}") from error
    if not isinstance(hook, DbApiHook):
        raise AirflowFailException(f"{where} is no database with a DbApiHook ({type(hook).__name__})")
    return hook
