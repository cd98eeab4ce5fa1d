"""Rows that say that they were observed in the future: a load fails instead of leaving them there for ever."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from airflow_provider_mail.warehouse.coverage import LOADS
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.load import Coverage, LoadResult, MarkGone, database_time
from airflow_provider_mail.warehouse.tables.contacts import CONTACTS, LIST_READINGS
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import MARKED, NOON, THINGS, thing
from tests.warehouse.test_history import at, read, recorded

SOON = NOON + datetime.timedelta(seconds=1)
AHEAD = NOON + datetime.timedelta(days=1)
WHERE = {"account": "a"}


def fix(warehouse: Warehouse, error: BaseException) -> None:
    """Do what the message says."""
    statements = str(error).rpartition("a wrong clock has written them: ")[2].split("; ")
    warehouse.execute(*statements)


@pytest.mark.parametrize("there", [1, 2], ids=["the same row", "another row of the window"])
@pytest.mark.parametrize("how", ["upsert", "replace", "mark"])
def test_a_row_from_the_future_fails_the_load(warehouse: Warehouse, how: str, there: int) -> None:
    options: dict[str, Any] = {
        "upsert": {},
        "replace": {"replace_where": WHERE},
        "mark": {"mark_gone": MarkGone(NOON, lambda: [WHERE])},
    }[how]
    warehouse.load(MARKED, [thing(MARKED, there, name="from the future", at=AHEAD)])
    rows = [thing(MARKED, 1, name="now")]
    if how == "upsert" and there == 2:
        warehouse.load(MARKED, rows, now=NOON)  # which it has nothing to do with
        return
    with pytest.raises(
        WarehouseError, match=r"1 rows have .* lies in the future, .*: UPDATE \S*things\S* SET"
    ) as caught:
        warehouse.load(MARKED, rows, now=NOON, **options)
    assert [row[2] for row in warehouse.rows(MARKED)] == ["from the future"]
    fix(warehouse, caught.value)
    if how == "mark":
        options = {"mark_gone": MarkGone(SOON, lambda: [WHERE])}
    warehouse.load(MARKED, [thing(MARKED, 1, name="now", at=SOON)], now=SOON, **options)
    rows = warehouse.rows(MARKED)
    assert [row[2] for row in rows if row[-1] is None] == ["now"]


def test_a_mark_from_the_future(warehouse: Warehouse) -> None:
    warehouse.load(MARKED, [thing(MARKED, 1)])
    warehouse.load(MARKED, [thing(MARKED, 2)], mark_gone=MarkGone(AHEAD, lambda: [WHERE]))
    with pytest.raises(WarehouseError, match="lies in the future") as caught:
        warehouse.load(MARKED, [thing(MARKED, 1)], now=NOON)
    fix(warehouse, caught.value)
    warehouse.load(MARKED, [thing(MARKED, 1)], now=NOON)
    assert {row[1]: row[-1] for row in warehouse.rows(MARKED)} == {1: None, 2: None}


def test_a_part_that_was_read_in_the_future(native: Warehouse) -> None:
    def covers(at: datetime.datetime) -> Coverage:
        return Coverage.one("all", WHERE, mail_conn_id="m", observed_at=at)

    native.load(THINGS, [thing(THINGS, 1, name="old")], covers=covers(AHEAD))
    with pytest.raises(WarehouseError, match=r": UPDATE \S*mail_loads\S* SET observed_at") as caught:
        native.load(THINGS, [thing(THINGS, 1, name="new")], covers=covers(NOON), now=NOON)
    fix(native, caught.value)
    assert native.load(THINGS, [thing(THINGS, 1, name="new", at=SOON)], covers=covers(SOON), now=SOON).changed == 1


@pytest.mark.parametrize("which", ["every table", "readings alone"])
def test_a_reading_in_the_future(native: Warehouse, which: str) -> None:
    """It would count as the latest one: who joins and leaves now would join and leave before it."""
    if native.is_postgres:
        native.hook.options = "-c timezone=Asia/Tokyo"

    def load(hour: int, *contacts: int) -> LoadResult:
        covers = Coverage.one("news", {"mail_conn_id": "a"}, mail_conn_id="a", observed_at=at(hour))
        return read(native, hour, contacts, covers=covers, now=at(hour))

    load(0, 1)
    load(24, 1, 2)
    load(25, 2)
    if which == "readings alone":
        native.execute("DELETE FROM contacts", "DELETE FROM mail_loads")
    with pytest.raises(WarehouseError, match=r"DELETE FROM \S*contacts_history_readings") as caught:
        load(1, 2, 3)
    fix(native, caught.value)
    assert load(2, 2, 3).outdated == 0
    assert {row[3] for row in native.rows(CONTACTS, "contacts")} == {"c2", "c3"}
    assert recorded(native) == [("c1", at(0), at(1)), ("c2", at(1), None), ("c3", at(2), None)]
    assert [row[3] for row in native.rows(LIST_READINGS, "contacts_history_readings")] == [at(0), at(2)]
    assert [row[3] for row in native.rows(LOADS, "mail_loads")] == [at(2)]


def test_clocks_may_differ_a_little(warehouse: Warehouse) -> None:
    soon = NOON + datetime.timedelta(minutes=4)
    warehouse.load(THINGS, [thing(THINGS, 1, name="soon", at=soon)])
    assert warehouse.load(THINGS, [thing(THINGS, 1, name="now")], now=NOON).outdated == 1
    assert [row[2] for row in warehouse.rows(THINGS)] == ["soon"]


def test_outdated_rows_are_counted(warehouse: Warehouse) -> None:
    warehouse.load(THINGS, [thing(THINGS, number, at=AHEAD) for number in range(400)])
    result = warehouse.load(THINGS, [thing(THINGS, number) for number in range(0, 800, 2)])
    assert (result.rows, result.outdated) == (400, 200)


def test_the_database_s_own_time(warehouse: Warehouse) -> None:
    before = datetime.datetime.now(datetime.UTC)
    told = database_time(warehouse.hook)
    if warehouse.is_portable:
        assert told is None
    else:
        assert told is not None
        second = datetime.timedelta(seconds=1)  # they have the same clock, but may round
        assert before - second < told < datetime.datetime.now(datetime.UTC) + second
