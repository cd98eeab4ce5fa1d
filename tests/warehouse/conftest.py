"""Real databases behind real Airflow connections."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import duckdb
import psycopg
import psycopg2
import pytest
from airflow.providers.common.sql.hooks.sql import DbApiHook
from airflow.providers.mysql.hooks.mysql import MySqlHook
from airflow.providers.postgres.hooks.postgres import PostgresHook
from airflow.providers.sqlite.hooks.sqlite import SqliteHook
from duckdb_provider.hooks.duckdb_hook import DuckDBHook

from airflow_provider_mail.warehouse.database import Clock, LoadRequest, LoadResult, Source, TableName, load
from airflow_provider_mail.warehouse.dialects import postgres as postgres_dialect
from airflow_provider_mail.warehouse.dialects.mysql import MySql
from airflow_provider_mail.warehouse.table import Table
from tests.support.mariadb import MariaDatabase, MariaServer
from tests.support.postgres import Database, PostgresServer
from tests.warehouse.tables import PLAIN, THINGS


class Psycopg3Hook(PostgresHook):
    """What `PostgresHook` is on SQLAlchemy 2."""

    def _create_connection(self, conn_args: dict[str, Any]) -> Any:
        return psycopg.connect(**conn_args)


class Psycopg2Hook(PostgresHook):
    """What `PostgresHook` is on SQLAlchemy 1.4."""

    def _create_connection(self, conn_args: dict[str, Any]) -> Any:
        return psycopg2.connect(**conn_args)


class UnknownHook(SqliteHook):
    """A database that can only be read."""

    conn_type = "unknown"
    dialect_name = "default"


HOOKS: dict[str, Callable[..., DbApiHook]] = {
    "sqlite": SqliteHook,
    "psycopg3": Psycopg3Hook,
    "psycopg2": Psycopg2Hook,
    "duckdb": DuckDBHook,
    "mysql": MySqlHook,
    "unknown": UnknownHook,
}
NOT_UNIT = {"mysql", "postgres", "psycopg2", "psycopg3", "duck", "duckdb"}
"""Databases with a server, and DuckDB, which take their time."""
ALL = ("sqlite", "psycopg3", "psycopg2", "duckdb", "mysql")
DIALECTS = ("sqlite", "psycopg3", "duckdb", "mysql")
in_each_dialect = pytest.mark.parametrize("warehouse", DIALECTS, indirect=True)
"""For tests to which the driver makes no difference."""

TESTS = Path(__file__).parents[1]
COPY, CAN_STREAM = (postgres_dialect, "copy_blocks"), (postgres_dialect, "can_stream")
"""Private functions that tests replace: where they are, and their names."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out of the unit tier what runs on such a database."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            params = item.callspec.params.values() if hasattr(item, "callspec") else ()
            names = {word for param in params for word in str(param).split()}
            names |= {"postgres", "mysql", "duck"}.intersection(getattr(item, "fixturenames", ()))
            if not NOT_UNIT.isdisjoint(names):
                item.add_marker("not_unit")


@dataclass(frozen=True)
class Warehouse:
    """One database, and a hook for it."""

    kind: str
    hook: DbApiHook

    @property
    def is_sqlite(self) -> bool:
        return self.kind == "sqlite"

    @property
    def is_postgres(self) -> bool:
        return self.kind in ("psycopg3", "psycopg2")

    @property
    def is_duckdb(self) -> bool:
        return self.kind.endswith("duckdb")

    @property
    def is_mysql(self) -> bool:
        return self.kind.startswith("mysql")

    def another(self) -> Self:
        """The same database behind a hook, and so a connection, of its own."""
        return replace(self, hook=type(self.hook)(self.hook.get_conn_id()))

    def load(
        self,
        table: Table,
        rows: Iterable[Sequence[Any]],
        name: str = "things",
        *,
        on_unstorable: Any = None,
        now: datetime.datetime | None = None,
        **options: Any,
    ) -> LoadResult:
        source, clock = Source(rows, on_unstorable), Clock(now) if now else None
        return load(self.hook, LoadRequest(table, TableName.parse(name), source, clock=clock, **options))

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        # Two to close: what DuckDB calls a cursor is one more connection.
        with closing(self.hook.get_conn()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def execute(self, *statements: str) -> None:
        with closing(self.hook.get_conn()) as connection, closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def rows(self, table: Table, name: str = "things") -> list[tuple[Any, ...]]:
        """What the table holds, in the order of the key, as the Python values that went in."""
        quote = "`" if self.is_mysql else ""
        names, key = (", ".join(f"{quote}{name}{quote}" for name in some) for some in (table.names, table.key))
        found = self.query(f"SELECT {names} FROM {self.spelled(name)} ORDER BY {key}")
        return [
            tuple(self._python(column.type.name, value) for column, value in zip(table.columns, row, strict=True))
            for row in found
        ]

    def varchar(self, length: int) -> str:
        """What a user declares a name as who knows the database."""
        return f"VARCHAR({length})" + (" CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" if self.is_mysql else "")

    def spelled(self, name: str) -> str:
        """A table's name for a statement of ours."""
        return MySql._qualified(None, TableName.parse(name)) if self.is_mysql else name  # type: ignore[arg-type]

    def _python(self, kind: str, value: Any) -> Any:
        if value is None:
            return None
        if kind == "timestamp":
            moment = datetime.datetime.fromisoformat(value) if self.is_sqlite else value
            moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
            return moment.astimezone(datetime.UTC)
        if kind == "date" and self.is_sqlite:
            return datetime.date.fromisoformat(value)
        if kind == "json" and not self.is_postgres:
            return json.loads(value)
        return bool(value) if kind == "boolean" else value


@pytest.fixture(scope="session")
def warehouse_database(postgres_server: PostgresServer) -> Iterator[Database]:
    """One database for all tests: emptying it is a hundred times quicker than making another."""
    with postgres_server.database() as database:
        yield database


@pytest.fixture(scope="session")
def warehouse_maria(mariadb_server: MariaServer) -> Iterator[MariaDatabase]:
    """One database for all tests."""
    with mariadb_server.database() as database:
        yield database


EMPTY = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid();
    DO $$ DECLARE name text; BEGIN
        FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
            EXECUTE format('DROP SCHEMA %I CASCADE', name);
        END LOOP;
    END $$;
    CREATE SCHEMA public;
    GRANT USAGE ON SCHEMA public TO public;
"""


@pytest.fixture
def make_warehouse(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Warehouse]]:
    """A function from the kind of warehouse, and extras of its connection, to an empty one.

    A file of DuckDB stays open until the end of the test, since to open and close it takes ten times as long as most
    statements; not with `stays_open=False`, and not in `tests/real`, where other processes open it.
    """
    until_the_end = ExitStack()
    shares = "real" in request.path.relative_to(TESTS).parts

    def make(kind: str, *, stays_open: bool = not shares, **extra: Any) -> Warehouse:
        if kind in ("sqlite", "unknown"):
            connection = {"conn_type": "sqlite", "host": str(tmp_path / "warehouse.db")}
        elif kind == "duckdb":
            connection = {"conn_type": "duckdb", "host": str(tmp_path / "warehouse.duckdb")}
        elif kind == "mysql":
            maria: MariaDatabase = request.getfixturevalue("warehouse_maria")
            maria.empty()
            connection = json.loads(maria.airflow_connection)
            extra = {**connection["extra"], **extra}
        else:
            database: Database = request.getfixturevalue("warehouse_database")
            with database.connect() as empty:
                empty.execute(EMPTY)
            connection = json.loads(database.airflow_connection)
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps({**connection, "extra": extra}))
        if kind == "duckdb" and stays_open:
            until_the_end.enter_context(closing(duckdb.connect(connection["host"])))
        return Warehouse(kind, HOOKS[kind]("warehouse"))

    with until_the_end:
        yield make


@pytest.fixture(params=ALL)
def warehouse(request: pytest.FixtureRequest, make_warehouse: Callable[..., Warehouse]) -> Warehouse:
    """Every database, with each driver."""
    return make_warehouse(request.param)


@pytest.fixture
def sqlite(make_warehouse: Callable[..., Warehouse]) -> Warehouse:
    """The quickest database."""
    return make_warehouse("sqlite")


@pytest.fixture
def postgres(make_warehouse: Callable[..., Warehouse]) -> Warehouse:
    """Postgres, with its newer driver."""
    return make_warehouse("psycopg3")


@pytest.fixture(params=DIALECTS)
def native(request: pytest.FixtureRequest, make_warehouse: Callable[..., Warehouse]) -> Warehouse:
    """Every database; with `ALL`, Postgres with both drivers."""
    return make_warehouse(request.param)


@pytest.fixture(params=[THINGS, PLAIN], ids=["observed", "plain"])
def table(request: pytest.FixtureRequest) -> Table:
    """A table of every type, with and without a time of observation."""
    return request.param
