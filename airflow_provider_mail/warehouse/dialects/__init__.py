"""How each database is loaded and read: one module, of which only that of the database at hand is imported."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from airflow_provider_mail.warehouse.errors import WarehouseError

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.warehouse.dialects.base import Dialect, Reader

DIALECTS = {
    "sqlite": "sqlite.Sqlite",
    "postgresql": "postgres.Postgres",
    "postgres": "postgres.Postgres",
    "duckdb": "duckdb.DuckDb",
    "mysql": "mysql.MySql",
    "mariadb": "mysql.MySql",
}
"""The databases whose tables are loaded, with the module and the class of each; any database can be read."""


def database(hook: DbApiHook) -> str:
    """Name the kind of database: SQLAlchemy's name if Airflow knows it, otherwise the type of the connection."""
    # The hook of Redshift derives from that of Postgres, and says that it is one.
    name = "redshift" if hook.conn_type == "redshift" else hook.dialect_name
    return str(hook.conn_type if name == "default" else name).lower()


def reader_of(hook: DbApiHook) -> type[Reader]:
    """Return how statements of the user's are read, in any database."""
    path = DIALECTS.get(database(hook), "base.Reader")
    module, class_name = path.split(".")
    reader: type[Reader] = getattr(import_module(f"{__name__}.{module}"), class_name)
    return reader


def dialect_of(hook: DbApiHook) -> type[Dialect]:
    """Return how tables are loaded.

    :raises WarehouseError: in this database they are not; names the connection and the alternatives.
    """
    if database(hook) not in DIALECTS:
        raise WarehouseError(
            f"connection {hook.get_conn_id()!r}: tables are loaded in SQLite, Postgres, DuckDB, MySQL and MariaDB, not "
            f"in {database(hook)}: use the dlt source there (docs/dlt.md), or write files (docs/object-storage.md)"
        )
    return cast("type[Dialect]", reader_of(hook))
