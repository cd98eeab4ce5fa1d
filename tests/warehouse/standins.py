"""Stand-ins for warehouses that cannot be had here: their SQL, transpiled for DuckDB, and that of Redshift on Postgres.

They show that the statements parse in the dialect of the warehouse and do what they should. They show nothing of locks,
of conflicts between loads, of limits, or of drivers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from functools import cache, cached_property
from typing import Any

import sqlglot
from airflow.providers.common.sql.hooks.sql import DbApiHook
from duckdb_provider.hooks.duckdb_hook import DuckDBHook
from sqlglot import exp

from tests.warehouse.conftest import Psycopg3Hook

_DIALECTS = {"gcpbigquery": "bigquery"}
_DROPPED = (exp.Cluster, exp.PartitionedByProperty, exp.PrimaryKey)


@cache
def transpiled(sql: str, kind: str) -> list[str]:
    """The statements of a script in a warehouse's dialect, for DuckDB."""
    statements = []
    for tree in sqlglot.parse(sql, read=_DIALECTS.get(kind, kind), error_level=sqlglot.ErrorLevel.RAISE):
        assert tree is not None, sql
        assert not isinstance(tree, exp.Command), f"not understood: {sql}"
        statements.append(_for_duckdb(tree).sql("duckdb"))
    return statements


def _for_duckdb(tree: exp.Expression) -> exp.Expression:
    # What DuckDB has no equivalent of, none of which changes what a statement does: the keys are not enforced.
    if isinstance(tree, exp.Create):
        tree.set("properties", None)
    for node in [*tree.find_all(*_DROPPED)]:
        node.pop()
    for kind in tree.find_all(exp.DataType):
        if kind.this is exp.DataType.Type.VARIANT:
            kind.set("this", exp.DataType.Type.JSON)
    return tree


class _Cursor:
    def __init__(self, cursor: Any, kind: str) -> None:
        self._cursor = cursor
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def execute(self, sql: str, parameters: Any = None) -> None:
        for statement in transpiled(sql, self._kind):
            self._cursor.execute(statement, *([parameters] if parameters else []))


class _Connection:
    def __init__(self, connection: Any, kind: str) -> None:
        self._connection = connection
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def cursor(self) -> _Cursor:
        return _Cursor(self._connection.cursor(), self._kind)


def transpiling(kind: str) -> type[DbApiHook]:
    """The hook of a warehouse, which is a file of DuckDB."""

    class Hook(DuckDBHook):
        conn_type = kind
        supports_autocommit = False
        dialect_name = kind

        @cached_property
        def _database(self) -> Any:
            """Stays open, since to open a file takes longer than most loads."""
            return super().get_conn()

        def get_conn(self) -> Any:
            connection = self._database.cursor()
            connection.execute("SET TimeZone = 'UTC'")
            return _Connection(connection, kind)

    return Hook


JSON_PARSE = "CREATE FUNCTION json_parse(value text) RETURNS text LANGUAGE sql AS 'SELECT value'"
"""What Redshift has and Postgres lacks; JSON is text here."""

_REDSHIFT = ((r"\bSUPER\b", "text"), (r" SORTKEY \([^)]*\)", ""), (r",\s+PRIMARY KEY \([^)]*\)", ""))


class _RedshiftCursor(_Cursor):
    def execute(self, sql: str, parameters: Any = None) -> None:
        for pattern, instead in _REDSHIFT:
            if sql.startswith(("CREATE", "ALTER")):
                sql = re.sub(pattern, instead, sql)
        self._cursor.execute(sql, parameters)


class _RedshiftConnection(_Connection):
    def cursor(self) -> _Cursor:
        return _RedshiftCursor(self._connection.cursor(), self._kind)


class RedshiftHook(Psycopg3Hook):
    """Redshift's SQL on Postgres: no keys, and the backslash escapes. To SQLAlchemy, it is Postgres there, too."""

    conn_type = "redshift"

    def get_conn(self) -> Any:
        connection = super().get_conn()
        with closing(connection.cursor()) as cursor:
            cursor.execute("SET standard_conforming_strings = off; SET escape_string_warning = off")
        connection.commit()
        return _RedshiftConnection(connection, "redshift")

    def set_autocommit(self, conn: Any, autocommit: bool) -> None:
        conn._connection.autocommit = autocommit


STANDINS: dict[str, Callable[..., DbApiHook]] = {
    **{kind: transpiling(kind) for kind in ("snowflake", "gcpbigquery", "databricks", "trino")},
    "redshift": RedshiftHook,
}
