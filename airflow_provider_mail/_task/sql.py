"""The hook of a database, from a connection id, and the check of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.warehouse.table import TableName


PACKAGES = {
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


def _advice(conn_type: str) -> str:
    if package := PACKAGES.get(conn_type):
        return f"On every worker: pip install {package}"
    return "Install the provider of that type on every worker, or fix the connection's type"


def sql_hook(sql_conn_id: str) -> DbApiHook:
    """Return the ``DbApiHook`` of a connection to any database.

    :raises AirflowFailException: when its type has no such hook, or the provider of the hook is not installed.
    """
    # Not at the top: on Airflow 3.0 this imports all hooks, and transfers import this module when a DAG is parsed.
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.version_compat import AirflowException, AirflowFailException, BaseHook

    connection = BaseHook.get_connection(sql_conn_id)
    connection_name = f"sql_conn_id: connection {sql_conn_id!r}"
    try:
        hook = _databricks(sql_conn_id) if connection.conn_type == "databricks" else connection.get_hook()
    except (AirflowException, ImportError) as error:
        problem = f"{connection_name} of type {connection.conn_type!r} has no hook: {error}"
        raise AirflowFailException(f"{problem}. {_advice(connection.conn_type or '')}") from None
    if not isinstance(hook, DbApiHook):
        raise AirflowFailException(f"{connection_name} is not a database with a DbApiHook ({type(hook).__name__})")
    if hasattr(hook, "use_legacy_sql") and not any(name.endswith("use_legacy_sql") for name in connection.extra_dejson):
        hook.use_legacy_sql = False  # By default, Airflow's hook uses BigQuery's legacy SQL.
    return hook


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


def _databricks(sql_conn_id: str) -> DbApiHook:
    # The connection type's own hook starts jobs.
    from airflow.providers.databricks.hooks.databricks_sql import DatabricksSqlHook

    hook: DbApiHook = DatabricksSqlHook(databricks_conn_id=sql_conn_id)
    return hook
