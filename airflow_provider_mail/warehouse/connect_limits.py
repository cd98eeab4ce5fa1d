"""Limits how long drivers take to connect, and how long they wait for a server that no longer responds."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

_MYSQL_OPTIONS = {
    "_get_conn_config_mysql_client": "connect_timeout",
    "_get_conn_config_mysql_connector_python": "connection_timeout",
}
"""The options of both drivers, by the method of the hook that returns those of a connection."""


def limit_connecting(hook: DbApiHook, database_name: str, seconds: int, response_seconds: float | None = None) -> None:
    """Limit a hook, if its driver supports limits. Options that the connection sets itself take precedence.

    :param hook: a hook that nobody else uses.
    :param database_name: the database, as :func:`~airflow_provider_mail.warehouse.connection.database` returns it.
    :param response_seconds: how long to wait for the response to a statement, for a driver whose wait no other thread
        can end.
    """
    if database_name in ("postgresql", "postgres"):
        _postgres(hook, seconds)
    elif database_name in ("mysql", "mariadb"):
        _mysql(hook, seconds, response_seconds)


def _postgres(hook: DbApiHook, seconds: int) -> None:
    connection = deepcopy(hook.get_connection(hook.get_conn_id()))
    limits = {"connect_timeout": seconds, "tcp_user_timeout": 1000 * seconds, "keepalives_idle": seconds}
    connection.extra = json.dumps(limits | connection.extra_dejson)
    # The hook reads either one, depending on its version.
    hook.__dict__.update(_connection=connection, get_connection=lambda conn_id: connection)


def _mysql(hook: DbApiHook, seconds: int, response_seconds: float | None) -> None:
    # The hook passes the options that a connection has for this to neither driver.
    for method, option in _MYSQL_OPTIONS.items():
        limits = {option: seconds}
        # mysql-connector-python does not expose its socket, so no other thread can end its wait.
        if option == "connection_timeout" and response_seconds is not None and _has_read_timeout():
            limits["read_timeout"] = max(1, int(response_seconds))
        if options := getattr(hook, method, None):
            hook.__dict__[method] = lambda conn, options=options, limits=limits: {**limits, **options(conn)}


def _has_read_timeout() -> bool:
    """Whether mysql-connector-python is installed, in 9.2 or a later version."""
    try:
        from mysql.connector.constants import DEFAULT_CONFIGURATION
    except ImportError:
        return False
    return "read_timeout" in DEFAULT_CONFIGURATION
