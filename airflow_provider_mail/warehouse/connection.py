"""Connections to the user's database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.warehouse.dialects import reader_of
from airflow_provider_mail.warehouse.errors import UnstorableError, WarehouseError, connect_error_message
from airflow_provider_mail.warehouse.time_limit import CONNECT_SECONDS, current_reading, pause

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.warehouse.dialects.base import Dialect

T = TypeVar("T")

PATIENT_SECONDS = 60
"""Limit for connecting, and for a missing acknowledgement by the server, where no request waits for the result."""


_PACKAGES = {
    "athena": "apache-airflow-providers-amazon",
    "databricks": "apache-airflow-providers-databricks",
    "drill": "apache-airflow-providers-apache-drill",
    "druid": "apache-airflow-providers-apache-druid",
    "duckdb": "airflow-provider-duckdb",
    "exasol": "apache-airflow-providers-exasol",
    "gcpbigquery": "apache-airflow-providers-google",
    "hive_cli": "apache-airflow-providers-apache-hive",
    "hiveserver2": "apache-airflow-providers-apache-hive",
    "impala": "apache-airflow-providers-apache-impala",
    "jdbc": "apache-airflow-providers-jdbc",
    "mssql": "apache-airflow-providers-microsoft-mssql",
    "mysql": "apache-airflow-providers-mysql",
    "odbc": "apache-airflow-providers-odbc",
    "oracle": "apache-airflow-providers-oracle",
    "pinot": "apache-airflow-providers-apache-pinot",
    "postgres": "apache-airflow-providers-postgres",
    "presto": "apache-airflow-providers-presto",
    "redshift": "apache-airflow-providers-amazon",
    "snowflake": "apache-airflow-providers-snowflake",
    "sqlite": "apache-airflow-providers-sqlite",
    "teradata": "apache-airflow-providers-teradata",
    "trino": "apache-airflow-providers-trino",
    "vertica": "apache-airflow-providers-vertica",
}
"""The package that has the hook, by connection type."""


def hook_of(conn_id: str) -> DbApiHook:
    """Return the ``DbApiHook`` of a connection to any database.

    :raises WarehouseError: its type has no such hook, or the provider of the hook is not installed.
    :raises AirflowNotFoundException: there is no such connection.
    """
    # Not at the top: on Airflow 3.0 this imports all hooks.
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.version_compat import AirflowException, BaseHook

    connection = BaseHook.get_connection(conn_id)
    connection_name = f"connection {conn_id!r}"
    try:
        if connection.conn_type == "databricks":  # whose own hook starts jobs
            from airflow.providers.databricks.hooks.databricks_sql import DatabricksSqlHook

            hook = DatabricksSqlHook(databricks_conn_id=conn_id)
        else:
            hook = connection.get_hook()
    except (AirflowException, ImportError) as error:
        advice = "Install the provider of that type on every worker, or fix the connection's type"
        if package := _PACKAGES.get(connection.conn_type or ""):
            advice = f"On every worker: pip install {package}"
        raise WarehouseError(
            f"{connection_name} of type {connection.conn_type!r} has no hook: {error}. {advice}"
        ) from None
    if not isinstance(hook, DbApiHook):
        raise WarehouseError(f"{connection_name} is not a database with a DbApiHook ({type(hook).__name__})")
    if hasattr(hook, "use_legacy_sql") and not any(name.endswith("use_legacy_sql") for name in connection.extra_dejson):
        hook.use_legacy_sql = False  # By default, Airflow's hook uses BigQuery's legacy SQL.
    return hook


def configured_hook(option: str, conn_id: str) -> DbApiHook:
    """Return the hook of a connection that Airflow's configuration names.

    :param option: the option of the section ``[mail]``, for errors.
    :raises MailConfigError: there is no such database.
    """
    from airflow_provider_mail.version_compat import AirflowException

    try:
        return hook_of(conn_id)
    except (AirflowException, WarehouseError) as error:
        problem = f"connection {conn_id!r}: {error}" if isinstance(error, AirflowException) else str(error)
    raise MailConfigError(f"[mail] {option}: {problem}")


@contextmanager
def connected(hook: DbApiHook) -> Iterator[Any]:
    """Open a connection; on exit, roll back on an error and close.

    In a :class:`~airflow_provider_mail.warehouse.time_limit.Reading` the connection has its time limits.

    :raises WarehouseError: when the connection fails.
    """
    failure, start, reading = "", time.monotonic(), current_reading()
    longest = reading.seconds if reading else float("inf")
    with ExitStack() as held:
        try:
            if reading:
                reading.address = address(hook)
            with reader_of(hook).opening(hook, longest, held):
                connection = _open(hook, start, longest)
        except Exception as error:
            if type(error).__module__.startswith("airflow."):
                raise  # names the missing connection id or package itself
            failure = connect_error_message(error)
        if failure:
            raise WarehouseError(f"cannot connect to {hook.get_conn_id()!r}: {failure}")
        try:
            with reading.uses(connection) if reading else nullcontext():
                try:
                    yield connection
                except BaseException:
                    with suppress(Exception):  # a lost connection cannot roll back, and need not
                        connection.rollback()
                    raise
        finally:
            with suppress(Exception):
                connection.close()


def run_with_connection(
    dialect: Dialect, work: Callable[[Any], T], *, tells_rows: bool = False, connection: Any = None
) -> T:
    """Call a function with a connection; an error of the driver becomes one without values.

    :param connection: an open connection, on which a transaction that fails is rolled back. Default: a new one.
    :param tells_rows: whether its message has the number of rows that were read.
    :raises WarehouseError: naming table and connection. An error of reading the rows is raised unchanged.
    """
    source = dialect.request.source
    try:
        with connected(dialect.hook) if connection is None else _rolled_back(connection) as opened:
            return work(opened)
    except WarehouseError:
        raise
    except Exception as error:
        message = dialect.safe_message(error) + (f" ({source.read} rows read)" if tells_rows else "")
        failure = dialect.error(message).with_traceback(error.__traceback__)
    # Outside of `except`, so that the driver's exception, full of values, is not chained.
    if isinstance(source.error, UnstorableError):
        raise source.error.with_text(str(dialect.error(str(source.error))))
    raise source.error or failure


@contextmanager
def _rolled_back(connection: Any) -> Iterator[Any]:
    try:
        yield connection
    except BaseException:
        with suppress(Exception):
            connection.rollback()
        raise


def open_connection(hook: DbApiHook) -> Any:
    """Open a connection with the time limits that its driver supports. The caller closes it."""
    return _open(hook, time.monotonic(), float("inf"))


def address(hook: DbApiHook) -> str:
    """Return host and port of a database, or its file, to show to people; never the user. May be empty."""
    connection = hook.get_connection(hook.get_conn_id())
    port = f", port {connection.port}" if connection.port else ""
    return f"host {connection.host}{port}" if connection.host else ""


def _open(hook: DbApiHook, start: float, longest: float) -> Any:
    # A copy: the hook of Databricks caches its connection, and would return it again after it was closed.
    hook = copy(hook)
    reading = current_reading()
    connect_seconds = CONNECT_SECONDS if reading else PATIENT_SECONDS
    dialect = reader_of(hook)
    dialect.limit_connecting(hook, connect_seconds, reading.seconds if reading else None)
    while True:
        try:
            return copy(hook).get_conn()
        except Exception as error:
            if time.monotonic() - start >= min(dialect.busy_seconds(error), longest):
                raise
        pause()
