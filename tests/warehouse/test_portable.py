"""The portable path: rejected where it would double rows, honest about what the driver says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail.warehouse.dialects.portable import NOT_ENFORCING
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.load import LoadResult, check_database, load
from tests.warehouse.conftest import PORTABLE, REPLACE, UnknownSqliteHook, Warehouse, default_adapter
from tests.warehouse.standins import Proxy
from tests.warehouse.tables import THINGS, thing

HEAP = "CREATE TABLE things (account VARCHAR(50) NOT NULL, number BIGINT NOT NULL)"


@pytest.fixture(params=PORTABLE)
def unknown(request: pytest.FixtureRequest, make_warehouse: Callable[..., Warehouse]) -> Warehouse:
    """A database without a dialect of its own."""
    return make_warehouse(request.param)


def test_a_table_that_takes_a_key_twice_is_rejected(unknown: Warehouse) -> None:
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


class CommittingHook(UnknownSqliteHook):
    """A database without transactions: every statement counts at once."""

    def get_conn(self) -> Any:
        connection = super().get_conn()
        connection.isolation_level = None
        return connection


@default_adapter
def test_a_database_without_transactions_is_rejected(make_warehouse: Callable[..., Warehouse]) -> None:
    sqlite = make_warehouse("portable_sqlite")
    sqlite.load(THINGS, [thing(THINGS, 1, name="old")])
    with pytest.raises(WarehouseError, match=r"rows stay although they were rolled back: .* has no transactions"):
        load(CommittingHook("warehouse"), THINGS, "things", [thing(THINGS, 2)])
    assert [row[:3] for row in sqlite.rows(THINGS)] == [("a", 1, "old")]


def no_rollback() -> None:
    """What connections of Trino's kind do in their default, autocommit."""
    raise RuntimeError("No transaction was started")


class NoRollbackHook(UnknownSqliteHook):
    def get_conn(self) -> Any:
        return Proxy(super().get_conn(), rollback=no_rollback)


def test_what_a_database_says_that_cannot_roll_back(make_warehouse: Callable[..., Warehouse]) -> None:
    make_warehouse("portable_sqlite")
    with pytest.raises(
        WarehouseError,
        match=r"cannot roll back \(RuntimeError: No transaction was started\): a load needs a transaction",
    ):
        load(NoRollbackHook("warehouse"), THINGS, "things", [thing(THINGS, 2)])


@pytest.mark.parametrize("kind", sorted(NOT_ENFORCING)[::5])
def test_databases_that_are_known_not_to_enforce_keys(
    make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    sqlite = make_warehouse("portable_sqlite")
    monkeypatch.setattr(UnknownSqliteHook, "conn_type", kind)
    for rejected in (lambda: check_database(sqlite.hook), lambda: sqlite.load(THINGS, [])):
        with pytest.raises(WarehouseError, match=rf"'warehouse': {kind} does not enforce .* would duplicate rows"):
            rejected()


class DriverError(Exception):
    """Of a driver that we do not know."""


class SpeakingHook(UnknownSqliteHook):
    """Its driver fails at the insert of a row of the load, with its values in the message."""

    def get_conn(self) -> Any:
        connection = super().get_conn()
        return Proxy(connection, cursor=lambda: Proxy(connection.cursor(), executemany=self._fail))

    def _fail(self, statement: str, rows: list[list[Any]]) -> None:
        raise DriverError(
            f"Can't insert: value {rows[0][2]} of \"name\" is too long, 'cut ada@exa', near bob@example.com\n{rows[0]}"
        )


@default_adapter
def test_the_driver_s_message_is_kept_without_values(make_warehouse: Callable[..., Warehouse]) -> None:
    make_warehouse("portable_sqlite")
    with pytest.raises(WarehouseError) as caught:
        load(SpeakingHook("warehouse"), THINGS, "things", [thing(THINGS, 1, name="Ada Lovelace")])
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
@default_adapter
def test_a_deadlock_of_mariadb_s_is_tried_again(
    make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch, failures: tuple[int, str], clock: object
) -> None:
    """As PyMySQL and MariaDB's own driver say it, through a hook that is not Airflow's for MySQL."""
    sqlite = make_warehouse("portable_sqlite")
    left = [DriverError(*failures)] * 2
    replace = getattr(*REPLACE)

    def fail_twice(*arguments: Any) -> Any:
        written = replace(*arguments)
        if left:
            raise left.pop()
        return written

    monkeypatch.setattr(*REPLACE, fail_twice)
    assert sqlite.load(THINGS, [thing(THINGS, 1)]) == LoadResult(1, outdated=0)
    assert len(sqlite.rows(THINGS)) == 1
