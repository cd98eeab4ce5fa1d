"""Rows that did not change are not written again, and `mail_loads` tells when they were last seen."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.load import Between, Coverage, LoadResult
from airflow_provider_mail.warehouse.request import LOADS
from airflow_provider_mail.warehouse.tables.contacts import list_part
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import LATER, NOON, PLAIN, THINGS, thing

DAY = NOON.date()
NEXT = DAY + datetime.timedelta(days=1)
# The table of things has no mail_conn_id, so its conditions are spelled out.


def day_of(*days: datetime.date, at: datetime.datetime) -> Coverage:
    """Everything of account "a" that was made on these days, which follow each other."""
    parts = {day.isoformat(): {"account": "a", "day": day} for day in days}
    return Coverage("mail_default", at, parts, {"account": "a", "day": Between(days[0], days[-1])})


def noted(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    return [(row[2], row[3]) for row in warehouse.rows(LOADS, "mail_loads")]


def test_days_of_an_account() -> None:
    made: dict[str, Any] = {"mail_conn_id": "m", "observed_at": NOON}
    days = Coverage.days(THINGS["sold_at"], DAY, NEXT, **made)
    end = datetime.datetime(2026, 3, 1, 23, 59, 59, 999999, tzinfo=datetime.UTC)
    assert list(days.parts) == ["2026-03-01", "2026-03-02"]
    begin = end.replace(hour=0, minute=0, second=0, microsecond=0)
    assert days.parts["2026-03-01"] == {"mail_conn_id": "m", "sold_at": Between(begin, end)}
    assert days.whole == {"mail_conn_id": "m", "sold_at": Between(begin, end + datetime.timedelta(days=1))}
    only = Coverage.days(THINGS["day"], DAY, NEXT, only=[NEXT], **made)
    assert only.parts == {"2026-03-02": {"mail_conn_id": "m", "day": Between(NEXT, NEXT)}}
    assert only.whole == {"mail_conn_id": "m", "day": Between(DAY, NEXT)}
    assert not Coverage.days(THINGS["day"], NEXT, DAY, **made).parts


@pytest.mark.parametrize("column", ["sold_at", "day"])
def test_days_that_follow_each_other_are_one_window(column: str) -> None:
    last = DAY + datetime.timedelta(days=9)
    days = Coverage.days(THINGS[column], DAY, last, mail_conn_id="m", observed_at=NOON)
    parts = [*days.parts]
    assert days.windows(reversed(parts)) == [days.whole]
    one, other = ({**days.parts[parts[first]]} for first in (1, 5))
    other[column] = Between(other[column].low, days.parts[parts[7]][column].high)
    assert days.windows([parts[1], *parts[5:8]]) == [one, other]
    assert days.windows([]) == []


def test_names_of_parts_are_bounded_and_different() -> None:
    long = ["l" * 250, *(f"list {'x' * 300} {number}" for number in range(2))]
    made = [Coverage.one(name, {"account": "a"}, mail_conn_id="m", observed_at=NOON) for name in long]
    names = [next(iter(coverage.parts)) for coverage in made]
    assert ([len(name) for name in names], len(set(names)), names[0]) == ([250] * 3, 3, long[0])
    lists = {("", "news"): "news", ("Sales", "news"): "Sales/news", ("", "a/b"): r"a\/b", ("a/", r"b\c"): r"a\//b\\c"}
    assert {of_list: list_part(*of_list) for of_list in lists} == lists


def test_only_what_changed_gets_the_time_of_the_observation(native: Warehouse) -> None:
    """Of the parts that were read whole; rows outside of them are observed by themselves."""
    rows = [thing(THINGS, n, name="old", day=DAY) for n in range(3)]
    others = [thing(THINGS, 3, day=NEXT), thing(THINGS, 4), thing(THINGS, 5, account="b", day=DAY)]
    native.load(THINGS, [*rows, *others], covers=day_of(DAY, at=NOON))
    again = [(*row[:-1], LATER) for row in [rows[0], thing(THINGS, 1, name="new", day=DAY), rows[2], *others]]
    result = native.load(THINGS, again, covers=day_of(DAY, at=LATER))
    assert result == LoadResult(6, inserted=0, changed=1, unchanged=5, outdated=0, deleted=0)
    assert {row[1]: row[-1] for row in native.rows(THINGS)} == {0: NOON, 1: LATER, 2: NOON} | dict.fromkeys(
        (3, 4, 5), LATER
    )
    assert noted(native) == [("2026-03-01", LATER)]


@pytest.mark.parametrize("table", [THINGS, PLAIN], ids=["covered", "without a time of observation"])
def test_unchanged_rows_are_not_written(postgres: Warehouse, table: Any) -> None:
    sql = "SELECT number, ctid::text, xmin::text, xmax::text FROM things ORDER BY number"
    written = []
    for at, name in ((NOON, "old"), (LATER, "new")):
        covers = {"covers": day_of(DAY, at=at)} if table is THINGS else {}
        rows = [thing(table, n, name=name if n == 1 else "old", day=DAY, at=at) for n in range(3)]
        postgres.load(table, rows, **covers)
        written.append(postgres.query(sql))
    assert [old == new for old, new in zip(*written, strict=True)] == [True, False, True]


def test_another_table_called_mail_loads(warehouse: Warehouse) -> None:
    warehouse.execute("CREATE TABLE mail_loads (id INTEGER)")
    words = r"table \S*mail_loads on connection 'warehouse': it has no column table_name"
    with pytest.raises(WarehouseError, match=words):
        warehouse.load(THINGS, [], covers=day_of(DAY, at=NOON))


def test_coverage_that_cannot_be(sqlite: Warehouse) -> None:
    with pytest.raises(ValueError, match="time of observation"):
        sqlite.load(PLAIN, [], covers=day_of(DAY, at=NOON))
    wrong = Coverage.one("all", {"mail_conn_id": "a"}, mail_conn_id="a", observed_at=NOON)
    with pytest.raises(ValueError, match="no column mail_conn_id"):
        sqlite.load(THINGS, [], covers=wrong)
