"""Stand-ins for warehouses that cannot be had here: their SQL, transpiled for DuckDB, and that of Redshift on Postgres.

They show that the statements parse in the dialect of the warehouse and do what they should. They show nothing of limits
or of drivers. Of conflicts they show what DuckDB has: it rejects one of two transactions that write the same row. Delta
Lake and Iceberg reject one of two statements that write the same table, and so do their stand-ins.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import duckdb
import sqlglot
from airflow.providers.common.sql.hooks.sql import DbApiHook
from duckdb_provider.hooks.duckdb_hook import DuckDBHook
from sqlglot import exp

from airflow_provider_mail.warehouse.files import encode
from airflow_provider_mail.warehouse.load import LoadResult, RemovalRule
from airflow_provider_mail.warehouse.manifest import DataFile, Manifest, create_stage, merge_stage
from airflow_provider_mail.warehouse.request import Coverage, MarkGone
from airflow_provider_mail.warehouse.table import Table, TaskRun
from tests.support.sampling import EVERYTHING
from tests.warehouse.conftest import Psycopg3Hook, Warehouse

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


class Proxy:
    """Something of a driver, with some methods of its own."""

    def __init__(self, inner: Any, **own: Any) -> None:
        self.inner = inner
        vars(self).update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _Cursor(Proxy):
    kind: str

    def execute(self, sql: str, parameters: Any = None) -> None:
        statements = transpiled(sql, self.kind)
        try:
            for statement in statements:
                self.inner.execute(statement, *([parameters] if parameters else []))
        except BaseException:
            if len(statements) > 1:  # a script that fails is rolled back
                self.inner.execute("ROLLBACK")
            raise


class _Connection(Proxy):
    """A connection whose cursors translate."""

    cursors: type[_Cursor] = _Cursor
    kind: str

    def cursor(self) -> _Cursor:
        return self.cursors(self.inner.cursor(), kind=self.kind)


class Conflict(Exception):
    """What Delta Lake and Iceberg say to the second of two statements that write the same table."""

    def __init__(self) -> None:
        super().__init__("ConcurrentAppendException: files were added by a concurrent update")


VERSIONED = ("databricks", "trino")
"""Those without transactions."""

_COMMITS = (
    "CREATE SCHEMA IF NOT EXISTS delta",
    "CREATE TABLE IF NOT EXISTS delta.commits (name TEXT PRIMARY KEY, version BIGINT)",
)


class VersionedCursor(_Cursor):
    """Every MERGE is one commit of its table, as in Delta Lake: the second of two at once fails."""

    def execute(self, sql: str, parameters: Any = None) -> None:
        if not (merged := re.match(r"MERGE INTO (\S+)", sql)):
            super().execute(sql, parameters)
            return
        self.inner.execute("BEGIN TRANSACTION")
        try:
            self._or_conflict(
                "INSERT INTO delta.commits VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET version = version + 1",
                [merged[1]],
            )
            super().execute(sql, parameters)
            self.commit_table()
        except BaseException:
            self.inner.execute("ROLLBACK")
            raise

    def commit_table(self) -> None:
        self._or_conflict("COMMIT")

    def _or_conflict(self, *statement: Any) -> None:
        try:
            self.inner.execute(*statement)
        except (duckdb.ConstraintException, duckdb.TransactionException):
            raise Conflict from None


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
            return _Connection(connection, kind=kind, cursors=VersionedCursor if kind in VERSIONED else _Cursor)

    return Hook


JSON_PARSE = "CREATE OR REPLACE FUNCTION json_parse(value text) RETURNS text LANGUAGE sql AS 'SELECT value'"
"""What Redshift has and Postgres lacks; JSON is text here."""

_REDSHIFT = ((r"\bSUPER\b", "text"), (r" SORTKEY \([^)]*\)", ""), (r",\s+PRIMARY KEY \([^)]*\)", ""))


def redshift_on_postgres(sql: str) -> str:
    """A statement of Redshift, for Postgres."""
    if sql.startswith(("CREATE", "ALTER")):
        for pattern, instead in _REDSHIFT:
            sql = re.sub(pattern, instead, sql)
    return sql


class _RedshiftCursor(_Cursor):
    def execute(self, sql: str, parameters: Any = None) -> None:
        self.inner.execute(redshift_on_postgres(sql), parameters)


class RedshiftHook(Psycopg3Hook):
    """Redshift's SQL on Postgres: no keys, and the backslash escapes. To SQLAlchemy, it is Postgres there, too."""

    conn_type = "redshift"

    def get_conn(self) -> Any:
        connection = super().get_conn()
        with closing(connection.cursor()) as cursor:
            cursor.execute("SET standard_conforming_strings = off; SET escape_string_warning = off")
        connection.commit()
        return _Connection(connection, kind="redshift", cursors=_RedshiftCursor)

    def set_autocommit(self, conn: Any, autocommit: bool) -> None:
        conn.inner.autocommit = autocommit


STANDINS: dict[str, Callable[..., DbApiHook]] = {
    **{kind: transpiling(kind) for kind in ("snowflake", "gcpbigquery", "databricks", "trino")},
    "redshift": RedshiftHook,
}

WAYS = (*STANDINS, *(f"{kind} files" for kind in STANDINS if kind != "trino"))
"""Every stand-in, loaded by rows, and by files that it loads itself."""

SAMPLE = WAYS if EVERYTHING else ("databricks", "redshift files")
"""One with MERGE and one without."""

NO_TIME = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


def prepare(hook: DbApiHook) -> None:
    """Create what a stand-in needs in its empty database."""
    needed = {"redshift": [JSON_PARSE], **dict.fromkeys(VERSIONED, _COMMITS)}
    with native(hook) as cursor:
        for statement in needed.get(str(hook.conn_type), ()):
            cursor.execute(statement)


def loads_of(warehouse: Warehouse) -> list[str]:
    """The names of the tables with the times of loads."""
    return ["mail_loads", *(["mail_loads_begun"] if warehouse.hook.conn_type in VERSIONED else [])]


@contextmanager
def native(hook: DbApiHook) -> Iterator[Any]:
    """A cursor that takes the SQL of the stand-in instead of that of the warehouse."""
    with closing(hook.get_conn().inner) as connection, closing(connection.cursor()) as cursor:
        yield cursor
        (connection if hook.conn_type == "redshift" else cursor).commit()


def copy(hook: DbApiHook, manifest: Manifest, stage: str) -> None:
    """Append the files of a load to the table of staged rows, as COPY does, in one transaction."""
    with native(hook) as cursor:
        if hook.conn_type != "redshift":
            cursor.execute("BEGIN TRANSACTION")
        for file in manifest.files:
            path = Path(file.url.removeprefix("file://"))
            if hook.conn_type == "redshift":
                lines = f"[{','.join(path.read_text().splitlines())}]"
                cursor.execute(f"INSERT INTO {stage} SELECT * FROM json_populate_recordset(NULL::{stage}, %s)", [lines])
            else:
                read = {"jsonl": "read_json", "parquet": "read_parquet"}[manifest.file_format]
                cursor.execute(f"INSERT INTO {stage} BY NAME SELECT * FROM {read}('{path}')")


@dataclasses.dataclass(frozen=True)
class _AnyManifest(Manifest):
    """A manifest of a table that the package does not write as files."""

    declared: Table

    @property
    def table(self) -> Table:
        return self.declared


@dataclasses.dataclass(frozen=True)
class FilesWarehouse(Warehouse):
    """A stand-in that is loaded by files in a folder: they are written, loaded by the warehouse itself, and merged."""

    folder: Path

    def load(  # type: ignore[override]  # what files have
        self,
        table: Table,
        rows: Iterable[Sequence[Any]],
        name: str = "things",
        *,
        replace_where: Any = None,
        covers: Coverage | None = None,
        mark_gone: MarkGone | None = None,
        removal: RemovalRule | None = None,
    ) -> LoadResult:
        given = [tuple(row) for row in rows]
        key = [table.names.index(column) for column in table.key]
        last = [*{tuple(row[index] for index in key): row for row in given}.values()]
        at = covers or mark_gone
        observed = table.names.index(table.observed) if table.observed else None
        times = [row[observed] for row in last] if observed is not None else []
        # Two lines of JSON are values of SQL, too; DuckDB has to be told the types of those.
        file_format = "jsonl" if self.hook.conn_type == "redshift" else "parquet"
        self.folder.mkdir(exist_ok=True)
        file = self.folder / f"{uuid.uuid4().hex}.{file_format}"
        content = encode(table, last, file_format, written=TaskRun().values(table, datetime.datetime.now(datetime.UTC)))
        file.write_bytes(content)
        manifest = _AnyManifest(
            load_id=f"l{file.stem}"[:24],
            table_name=name,
            mail_conn_id=covers.mail_conn_id if covers else "",
            observed_at=at.observed_at if at else min(times, default=NO_TIME),
            file_format=file_format,
            files=(DataFile(f"file://{file}", len(last), len(content), ""),) if last else (),
            replace_where=replace_where,
            mark_gone=tuple(mark_gone.windows()) if mark_gone else (),
            covers=covers.parts if covers else None,
            covers_whole=covers.whole if covers else None,
            declared=table,
        )
        copy(self.hook, manifest, create_stage(self.hook, manifest, name))
        result = merge_stage(self.hook, manifest, name, removal=removal)
        return dataclasses.replace(result, rows=len(given))
