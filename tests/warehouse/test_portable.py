"""The portable path: refused where it would double rows, honest about what the driver says."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_provider_mail.warehouse.dialects.portable import NOT_ENFORCING, Portable
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.load import LoadResult, check_database, load
from tests.warehouse.conftest import PORTABLE, UnknownSqliteHook, Warehouse, default_adapter
from tests.warehouse.tables import PLAIN, THINGS, thing

HEAP = "CREATE TABLE things (account VARCHAR(50) NOT NULL, number BIGINT NOT NULL)"


@pytest.fixture(params=PORTABLE)
def unknown(request: pytest.FixtureRequest, make_warehouse: Callable[..., Warehouse]) -> Warehouse:
    """A database that nobody has heard of."""
    return make_warehouse(request.param)


def test_a_table_that_takes_a_key_twice_is_refused(unknown: Warehouse) -> None:
    unknown.execute(HEAP)
    asked = []

    def rows() -> Any:
        asked.append(1)
        yield thing(THINGS, 1)

    with pytest.raises(
        WarehouseError, match=r"accepts two rows with one key \(account, number\).* would duplicate rows"
    ):
        unknown.load(THINGS, rows())
    assert not asked
    assert unknown.query("SELECT * FROM things") == []


def test_trying_it_out_leaves_nothing(unknown: Warehouse) -> None:
    for _ in range(2):
        unknown.load(THINGS, [thing(THINGS, 1)])
    assert [row[:2] for row in unknown.rows(THINGS)] == [("a", 1)]


class CommittingHook(UnknownSqliteHook):
    """A database without transactions: every statement counts at once."""

    def get_conn(self) -> Any:
        connection = super().get_conn()
        connection.isolation_level = None
        return connection


@default_adapter
def test_a_database_without_transactions_is_refused(make_warehouse: Callable[..., Warehouse]) -> None:
    sqlite = make_warehouse("portable_sqlite")
    sqlite.load(THINGS, [thing(THINGS, 1, name="old")])
    with pytest.raises(WarehouseError, match=r"rows stay although they were rolled back: .* has no transactions"):
        load(CommittingHook("warehouse"), THINGS, "things", [thing(THINGS, 2)])
    assert [row[:3] for row in sqlite.rows(THINGS)] == [("a", 1, "old")]


class NoRollback:
    """A connection of Trino's kind in its default, autocommit."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def rollback(self) -> None:
        raise RuntimeError("No transaction was started")


class NoRollbackHook(UnknownSqliteHook):
    def get_conn(self) -> Any:
        return NoRollback(super().get_conn())


def test_one_that_cannot_roll_back_is_refused_in_its_own_words(make_warehouse: Callable[..., Warehouse]) -> None:
    make_warehouse("portable_sqlite")
    with pytest.raises(
        WarehouseError,
        match=r"cannot roll back \(RuntimeError: No transaction was started\): a load needs a transaction",
    ):
        load(NoRollbackHook("warehouse"), THINGS, "things", [thing(THINGS, 2)])


@pytest.mark.parametrize("kind", sorted(NOT_ENFORCING))
def test_databases_that_are_known_not_to_enforce_keys(
    make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    sqlite = make_warehouse("portable_sqlite")
    monkeypatch.setattr(UnknownSqliteHook, "conn_type", kind)
    for refused in (lambda: check_database(sqlite.hook), lambda: sqlite.load(THINGS, [])):
        with pytest.raises(WarehouseError, match=rf"'warehouse': {kind} does not enforce .* would duplicate rows"):
            refused()


class DriverError(Exception):
    """Of a driver that we do not know."""


class SpeakingCursor:
    """Fails at the insert of a row of the load, as drivers do: with its values in the message."""

    def __init__(self, cursor: Any, error: Callable[[list[Any]], Exception]) -> None:
        self._cursor = cursor
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def executemany(self, statement: str, rows: list[list[Any]]) -> Any:
        raise self._error(rows[0])


def speaking(error: Callable[[list[Any]], Exception]) -> Any:
    class Connection(NoRollback):
        def cursor(self) -> Any:
            return SpeakingCursor(self._connection.cursor(), error)

        def rollback(self) -> None:
            self._connection.rollback()

    class Hook(UnknownSqliteHook):
        def get_conn(self) -> Any:
            return Connection(super().get_conn())

    return Hook("warehouse")


@default_adapter
def test_the_driver_s_message_is_kept_without_values(make_warehouse: Callable[..., Warehouse]) -> None:
    make_warehouse("portable_sqlite")

    def error(row: list[Any]) -> Exception:
        return DriverError(
            f"Can't insert: value {row[2]} of \"name\" is too long, 'cut ada@exa', near bob@example.com\n{row}"
        )

    with pytest.raises(WarehouseError) as caught:
        load(speaking(error), THINGS, "things", [thing(THINGS, 1, name="Ada Lovelace")])
    assert 'DriverError: Can\'t insert: value *** of "name" is too long, ***, near *** (1 rows read)' in str(
        caught.value
    )
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize(
    "failures",
    [
        (1213, "Deadlock found when trying to get lock"),
        (1205, "Lock wait timeout exceeded"),
        (1020, "Record has changed"),
    ],
)
@pytest.mark.filterwarnings("ignore:The default date:DeprecationWarning")
def test_a_deadlock_of_mariadb_s_is_tried_again(
    make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch, failures: tuple[int, str]
) -> None:
    """As PyMySQL and MariaDB's own driver say it, through a hook that is not Airflow's for MySQL."""
    sqlite = make_warehouse("portable_sqlite")
    left = [DriverError(*failures)] * 2
    replace = Portable._replace

    def fail_twice(self: Portable, *arguments: Any) -> int:
        written = replace(self, *arguments)
        if left:
            raise left.pop()
        return written

    monkeypatch.setattr(Portable, "_replace", fail_twice)
    assert sqlite.load(THINGS, [thing(THINGS, 1)]) == LoadResult(1, outdated=0)
    assert len(sqlite.rows(THINGS)) == 1


def test_two_loads_at_once_double_nothing(unknown: Warehouse) -> None:
    rows = [thing(PLAIN, number) for number in range(500)]

    def work(_: int) -> None:
        unknown.another().load(PLAIN, rows)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(unknown.rows(PLAIN)) == 500
