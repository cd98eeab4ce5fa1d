"""The database side's hook, from a connection id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowFailException, BaseHook

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook


def sql_hook(sql_conn_id: str) -> DbApiHook:
    """The ``DbApiHook`` of a connection, whatever its database.

    :raises AirflowFailException: when the connection's type has none.
    """
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    hook = BaseHook.get_hook(sql_conn_id)
    if not isinstance(hook, DbApiHook):
        raise AirflowFailException(
            f"sql_conn_id: connection {sql_conn_id!r} is no database with a DbApiHook ({type(hook).__name__})"
        )
    return hook
