"""How each database is loaded and read: one module, of which only that of the database at hand is imported."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.warehouse.dialects.base import Dialect

DIALECTS = {
    "sqlite": "sqlite.Sqlite",
    "postgresql": "postgres.Postgres",
    "postgres": "postgres.Postgres",
    "duckdb": "duckdb.DuckDb",
    "mysql": "mysql.MySql",
    "mariadb": "mysql.MySql",
    "bigquery": "warehouses.BigQuery",
    "databricks": "warehouses.Databricks",
    "redshift": "warehouses.Redshift",
    "snowflake": "warehouses.Snowflake",
    "trino": "warehouses.Trino",
}
"""Databases with a dialect of their own: its module and class. The others are loaded and read by `Portable`."""

_BY_TYPE = {"gcpbigquery": "bigquery"} | {name: name for name in ("databricks", "redshift", "snowflake", "trino")}
"""Databases by connection type, where the hook's ``dialect_name`` is another one: that of Redshift is Postgres."""


def database(hook: DbApiHook) -> str:
    """Name the kind of database: SQLAlchemy's name if Airflow knows it, otherwise the type of the connection."""
    if warehouse := _BY_TYPE.get(str(hook.conn_type).lower()):
        return warehouse
    name = hook.dialect_name
    return str(hook.conn_type if name == "default" else name).lower()


def dialect_of(hook: DbApiHook) -> type[Dialect]:
    module, class_name = DIALECTS.get(database(hook), "portable.Portable").split(".")
    dialect: type[Dialect] = getattr(import_module(f"{__name__}.{module}"), class_name)
    return dialect
