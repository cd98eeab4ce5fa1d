"""Rows that say that they were observed in the future: a load fails instead of leaving them there for ever."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.load import Coverage, MarkGone, database_time
from airflow_provider_mail.warehouse.request import LOADS
from airflow_provider_mail.warehouse.tables.contacts import CONTACTS, LIST_READINGS
from tests.warehouse.conftest import Warehouse
from tests.warehouse.lists import at, read, recorded
from tests.warehouse.tables import MARKED, NOON, THINGS, thing

SOON = NOON + datetime.timedelta(seconds=1)
AHEAD = NOON + datetime.timedelta(days=1)
WHERE = {"account": "a"}


def fix(warehouse: Warehouse, error: BaseException) -> None:
    """Do what the message says."""
    statements = str(error).rpartition("a wrong clock has written them: ")[2].split("; ")
    warehouse.execute(*statements)


def test_a_row_from_the_future_fails_the_load(warehouse: Warehouse) -> None:
    """The row that is loaded, or another one of the window."""

    def load(how: str, moment: datetime.datetime) -> None:
        gone = {"mark_gone": MarkGone(moment, lambda: [WHERE])}
        options: dict[str, Any] = {"upsert": {}, "replace": {"replace_where": WHERE}, "mark": gone}[how]
        warehouse.load(MARKED, [thing(MARKED, 1, name="now", at=moment)], now=moment, **options)

    words = r"1 rows have .* lies in the future, .*: UPDATE \S*things\S* SET"
    for how, number in (("upsert", 1), ("replace", 1), ("replace", 2), ("mark", 1), ("mark", 2)):
        warehouse.execute("DROP TABLE IF EXISTS things")
        warehouse.load(MARKED, [thing(MARKED, number, name="from the future", at=AHEAD)])
        with pytest.raises(WarehouseError, match=words) as caught:
            load(how, NOON)
        assert [row[2] for row in warehouse.rows(MARKED)] == ["from the future"]
        fix(warehouse, caught.value)
        load(how, SOON)
        assert [row[2] for row in warehouse.rows(MARKED) if row[-1] is None] == ["now"]


def test_a_mark_from_the_future_fails_the_load(warehouse: Warehouse) -> None:
    warehouse.load(MARKED, [thing(MARKED, 1)])
    warehouse.load(MARKED, [thing(MARKED, 2)], mark_gone=MarkGone(AHEAD, lambda: [WHERE]))
    with pytest.raises(WarehouseError, match="lies in the future") as caught:
        warehouse.load(MARKED, [thing(MARKED, 1)], now=NOON)
    fix(warehouse, caught.value)
    warehouse.load(MARKED, [thing(MARKED, 1)], now=NOON)
    assert {row[1]: row[-1] for row in warehouse.rows(MARKED)} == {1: None, 2: None}


def test_a_part_that_was_read_in_the_future_fails_it(native: Warehouse) -> None:
    def load(moment: datetime.datetime, name: str, **options: Any) -> Any:
        covers = Coverage.one("all", WHERE, mail_conn_id="m", observed_at=moment)
        return native.load(THINGS, [thing(THINGS, 1, name=name, at=min(moment, SOON))], covers=covers, **options)

    load(AHEAD, "old")
    with pytest.raises(WarehouseError, match=r": UPDATE \S*mail_loads\S* SET observed_at") as caught:
        load(NOON, "new", now=NOON)
    fix(native, caught.value)
    assert load(SOON, "new", now=SOON).changed == 1


@pytest.mark.parametrize("which", ["every table", "readings alone"])
def test_a_reading_in_the_future_fails_the_load(native: Warehouse, which: str) -> None:
    """It would count as the latest one: who joins and leaves now would join and leave before it."""
    if native.is_postgres:
        native.hook.options = "-c timezone=Asia/Tokyo"
    for hour, contacts in ((0, [1]), (24, [1, 2]), (25, [2])):
        read(native, hour, contacts, now=at(hour))
    if which == "readings alone":
        native.execute("DELETE FROM contacts", "DELETE FROM mail_loads")
    with pytest.raises(WarehouseError, match=r"DELETE FROM \S*contacts_history_readings") as caught:
        read(native, 1, [2, 3], now=at(1))
    fix(native, caught.value)
    assert read(native, 2, [2, 3], now=at(2)).outdated == 0
    assert {row[3] for row in native.rows(CONTACTS, "contacts")} == {"c02", "c03"}
    assert recorded(native) == [("c01", at(0), at(1)), ("c02", at(1), None), ("c03", at(2), None)]
    assert [row[3] for row in native.rows(LIST_READINGS, "contacts_history_readings")] == [at(0), at(2)]
    assert [row[3] for row in native.rows(LOADS, "mail_loads")] == [at(2)]


def test_merging_loads_fail_too(way: Warehouse) -> None:
    way.load(THINGS, [thing(THINGS, 1, at=AHEAD)])
    with pytest.raises(WarehouseError, match="1 rows have a time of observation after"):
        way.load(THINGS, [thing(THINGS, 1)], now=NOON)


def test_outdated_rows_are_counted(warehouse: Warehouse) -> None:
    """Also with clocks that differ a little."""
    soon = NOON + datetime.timedelta(minutes=4)
    warehouse.load(THINGS, [thing(THINGS, number, name="soon", at=soon) for number in range(400)])
    result = warehouse.load(THINGS, [thing(THINGS, number) for number in range(0, 800, 2)], now=NOON)
    assert (result.rows, result.outdated) == (400, 200)
    assert [row[2] for row in warehouse.rows(THINGS)] == ["soon"] * 400 + [None] * 200


def test_a_database_has_its_own_time(warehouse: Warehouse) -> None:
    time = database_time(warehouse.hook)
    if warehouse.is_portable:
        assert time is None
    else:  # by the same clock as this process, so the zone is right
        assert time is not None
        assert abs(time - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(minutes=20)
