"""How each database is loaded and read."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_mail.warehouse.dialects.base import Dialect
from airflow_provider_mail.warehouse.dialects.duckdb import DuckDb
from airflow_provider_mail.warehouse.dialects.merging import Merging
from airflow_provider_mail.warehouse.dialects.mysql import MySql
from airflow_provider_mail.warehouse.dialects.portable import Portable
from airflow_provider_mail.warehouse.dialects.postgres import Postgres
from airflow_provider_mail.warehouse.dialects.sqlite import Sqlite

DIALECTS: Mapping[str, type[Dialect]] = {
    "sqlite": Sqlite,
    "postgresql": Postgres,
    "postgres": Postgres,
    "duckdb": DuckDb,
    "mysql": MySql,
    "mariadb": MySql,
    "bigquery": Merging,
    "databricks": Merging,
    "redshift": Merging,
    "snowflake": Merging,
    "trino": Merging,
}
"""Databases with a dialect of their own; the others are loaded and read by `Portable`."""


def dialect_of(database_name: str) -> type[Dialect]:
    """Return the dialect for a kind of database.

    :param database_name: its name, as :func:`~airflow_provider_mail.warehouse.connection.database` returns it.
    """
    return DIALECTS.get(database_name, Portable)
