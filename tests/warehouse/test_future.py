"""Rows that say that they were observed in the future: a load fails instead of leaving them there for ever."""

from __future__ import annotations

import datetime
import re
from typing import Any

import pytest

from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.load import FUTURE_TOLERANCE, Coverage, MarkGone, database_time
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import MARKED, NOON, THINGS, thing

AHEAD = NOON + datetime.timedelta(days=1)
WHERE = {"account": "a"}


def fix(warehouse: Warehouse, error: BaseException) -> None:
    """Do what the message says."""
    for statement in re.findall(r"UPDATE [^;]+", str(error)):
        warehouse.execute(statement)


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
    minutes = FUTURE_TOLERANCE + datetime.timedelta(minutes=1)
    later = [thing(MARKED, 1, name="now", at=NOON + minutes)]
    if how == "mark":
        options = {"mark_gone": MarkGone(NOON + minutes, lambda: [WHERE])}
    warehouse.load(MARKED, later, now=NOON + minutes, **options)
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
    with pytest.raises(
        WarehouseError, match=r"table \S*mail_loads .*: UPDATE \S*mail_loads\S* SET observed_at"
    ) as caught:
        native.load(THINGS, [thing(THINGS, 1, name="new")], covers=covers(NOON), now=NOON)
    fix(native, caught.value)
    later = NOON + datetime.timedelta(minutes=6)
    assert native.load(THINGS, [thing(THINGS, 1, name="new", at=later)], covers=covers(later), now=later).changed == 1


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
