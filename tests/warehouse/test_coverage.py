"""Rows that did not change are not written again, and `mail_loads` tells when they were last seen."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from airflow_provider_mail.warehouse.coverage import LOADS, loads_beside
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.load import Between, Coverage, LoadResult
from airflow_provider_mail.warehouse.table import TableName
from airflow_provider_mail.warehouse.tables.contacts import list_part
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import LATER, NOON, PLAIN, THINGS, thing

DAY = NOON.date()
NEXT = DAY + datetime.timedelta(days=1)
LATEST = LATER + datetime.timedelta(hours=1)
# The table of things has no mail_conn_id, so its conditions are spelled out.


def day_of(*days: datetime.date, at: datetime.datetime) -> Coverage:
    """Everything of account "a" that was made on these days, which follow each other."""
    parts = {day.isoformat(): {"account": "a", "day": day} for day in days}
    return Coverage("mail_default", at, parts, {"account": "a", "day": Between(days[0], days[-1])})


def noted(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    return [(row[2], row[3]) for row in warehouse.rows(LOADS, "mail_loads")]


def test_days_of_an_account() -> None:
    days = Coverage.days(THINGS["sold_at"], DAY, NEXT, mail_conn_id="m", observed_at=NOON)
    end = datetime.datetime(2026, 3, 1, 23, 59, 59, 999999, tzinfo=datetime.UTC)
    assert days.parts["2026-03-01"] == {
        "mail_conn_id": "m",
        "sold_at": Between(end.replace(hour=0, minute=0, second=0, microsecond=0), end),
    }
    assert list(days.parts) == ["2026-03-01", "2026-03-02"]
    assert days.whole["sold_at"].high == end + datetime.timedelta(days=1)
    assert Coverage.days(THINGS["day"], DAY, NEXT, mail_conn_id="m", observed_at=NOON).parts["2026-03-02"] == {
        "mail_conn_id": "m",
        "day": Between(NEXT, NEXT),
    }
    assert not Coverage.days(THINGS["day"], NEXT, DAY, mail_conn_id="m", observed_at=NOON).parts


def test_names_of_parts_are_bounded_and_different() -> None:
    long = [f"list {'x' * 300} {number}" for number in range(2)]
    names = [
        next(iter(Coverage.one(name, {"account": "a"}, mail_conn_id="m", observed_at=NOON).parts)) for name in long
    ]
    assert [len(name) for name in names] == [250, 250]
    assert names[0] != names[1]


def test_only_what_changed_gets_the_time_of_the_observation(native: Warehouse) -> None:
    native.load(THINGS, [thing(THINGS, n, name="old", day=DAY) for n in range(3)], covers=day_of(DAY, at=NOON))
    again = [thing(THINGS, n, name="new" if n == 1 else "old", day=DAY, at=LATER) for n in range(3)]
    result = native.load(THINGS, again, covers=day_of(DAY, at=LATER))
    assert result == LoadResult(3, inserted=0, changed=1, unchanged=2, outdated=0, deleted=0)
    assert [(row[2], row[-1]) for row in native.rows(THINGS)] == [("old", NOON), ("new", LATER), ("old", NOON)]
    assert noted(native) == [("2026-03-01", LATER)]


@pytest.mark.not_unit
def test_unchanged_rows_are_not_written(make_warehouse: Any) -> None:
    postgres = make_warehouse("psycopg3")
    postgres.load(THINGS, [thing(THINGS, n, name="old", day=DAY) for n in range(3)], covers=day_of(DAY, at=NOON))
    before = postgres.query("SELECT number, ctid::text, xmin::text, xmax::text FROM things ORDER BY number")
    again = [thing(THINGS, n, name="new" if n == 1 else "old", day=DAY, at=LATER) for n in range(3)]
    postgres.load(THINGS, again, covers=day_of(DAY, at=LATER))
    after = postgres.query("SELECT number, ctid::text, xmin::text, xmax::text FROM things ORDER BY number")
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, True]


def test_rows_outside_of_the_parts_are_observed_by_themselves(native: Warehouse) -> None:
    rows = [
        thing(THINGS, 1, day=DAY),
        thing(THINGS, 2, day=NEXT),
        thing(THINGS, 3),
        thing(THINGS, 4, account="b", day=DAY),
    ]
    native.load(THINGS, rows, covers=day_of(DAY, at=NOON))
    native.load(THINGS, [(*row[:-1], LATER) for row in rows], covers=day_of(DAY, at=LATER))
    assert {row[1]: row[-1] for row in native.rows(THINGS)} == {1: NOON, 2: LATER, 3: LATER, 4: LATER}


def test_an_observation_that_arrives_late_is_left_out(warehouse: Warehouse) -> None:
    """It was true for a while between two that say the same, of which only the first wrote the row."""
    warehouse.load(THINGS, [thing(THINGS, 1, name="same", day=DAY)], covers=day_of(DAY, at=NOON))
    warehouse.load(THINGS, [thing(THINGS, 1, name="same", day=DAY, at=LATEST)], covers=day_of(DAY, at=LATEST))
    late = [
        thing(THINGS, 1, name="other", day=DAY, at=LATER),
        thing(THINGS, 3, name="of a day that was not read later", day=NEXT, at=LATER),
    ]
    result = warehouse.load(THINGS, late, covers=day_of(DAY, NEXT, at=LATER))
    assert [row[2] for row in warehouse.rows(THINGS)] == ["same", "of a day that was not read later"]
    assert noted(warehouse) == [("2026-03-01", LATEST), ("2026-03-02", LATER)]
    if not warehouse.is_portable:
        assert result == LoadResult(2, inserted=1, changed=0, unchanged=0, outdated=1, deleted=0)


def test_what_was_gone_by_then_does_not_come_back(native: Warehouse) -> None:
    native.load(THINGS, [thing(THINGS, 1, day=DAY)], covers=day_of(DAY, at=NOON))
    native.load(THINGS, [], covers=day_of(DAY, at=LATEST), replace_where={"account": "a", "day": DAY})
    native.load(THINGS, [thing(THINGS, 1, day=DAY, at=LATER)], covers=day_of(DAY, at=LATER))
    assert native.rows(THINGS) == []


def test_replacing_spares_parts_that_were_read_later(native: Warehouse) -> None:
    rows = [thing(THINGS, 1, day=DAY), thing(THINGS, 2, day=NEXT)]
    native.load(THINGS, rows, covers=day_of(DAY, NEXT, at=NOON))
    native.load(THINGS, [thing(THINGS, 1, day=DAY, at=LATEST)], covers=day_of(DAY, at=LATEST))
    native.load(THINGS, [], covers=day_of(DAY, NEXT, at=LATER), replace_where={"account": "a"})
    assert [row[1] for row in native.rows(THINGS)] == [1]


def test_tables_share_the_note_in_their_schema(native: Warehouse) -> None:
    for name in ("things", "Others"):
        native.load(THINGS, [thing(THINGS, 1, day=DAY)], name, covers=day_of(DAY, at=NOON))
    assert {row[0] for row in native.rows(LOADS, "mail_loads")} == {
        "others" if native.is_postgres else "Others",
        "things",
    }


def test_a_failed_load_is_not_noted(warehouse: Warehouse) -> None:
    def rows() -> Any:
        yield thing(THINGS, 1, day=DAY, at=LATER)
        raise RuntimeError

    warehouse.load(THINGS, [], covers=day_of(DAY, at=NOON))
    with pytest.raises(RuntimeError):
        warehouse.load(THINGS, rows(), covers=day_of(DAY, at=LATER))
    assert noted(warehouse) == [("2026-03-01", NOON)]


def test_another_table_called_mail_loads(warehouse: Warehouse) -> None:
    warehouse.execute("CREATE TABLE mail_loads (id INTEGER)")
    with pytest.raises(
        WarehouseError, match=r"table \S*mail_loads on connection 'warehouse': it has no column table_name"
    ):
        warehouse.load(THINGS, [], covers=day_of(DAY, at=NOON))


@pytest.mark.not_unit
def test_a_role_that_may_not_make_it(make_warehouse: Any) -> None:
    postgres = make_warehouse("psycopg3")
    postgres.load(THINGS, [])
    postgres.execute("CREATE ROLE writer", "GRANT ALL ON things TO writer")
    try:
        postgres.hook.options = "-c role=writer"
        with pytest.raises(WarehouseError, match=r"table \S*mail_loads on connection 'warehouse': .*permission denied"):
            postgres.load(THINGS, [thing(THINGS, 1, day=DAY)], covers=day_of(DAY, at=NOON))
    finally:
        postgres.hook.options = None
        postgres.execute("DROP OWNED BY writer", "DROP ROLE writer")
    assert postgres.rows(THINGS) == []


def test_days_without_some() -> None:
    days = Coverage.days(THINGS["day"], DAY, NEXT, mail_conn_id="m", observed_at=NOON, only=[NEXT])
    assert list(days.parts) == ["2026-03-02"]


@pytest.mark.parametrize(
    ("team", "name", "part"),
    [("", "news", "news"), ("Sales", "news", "Sales/news"), ("", "a/b", r"a\/b"), ("a/", r"b\c", r"a\//b\\c")],
)
def test_what_a_list_is_called(team: str, name: str, part: str) -> None:
    assert list_part(team, name) == part


def test_coverage_that_cannot_be(native: Warehouse) -> None:
    with pytest.raises(ValueError, match="time of observation"):
        native.load(PLAIN, [], covers=day_of(DAY, at=NOON))
    wrong = Coverage.one("all", {"mail_conn_id": "a"}, mail_conn_id="a", observed_at=NOON)
    with pytest.raises(ValueError, match="no column mail_conn_id"):
        native.load(THINGS, [], covers=wrong)


def test_a_load_is_recorded_under_its_table_and_account() -> None:
    days = Coverage.days(THINGS["day"], DAY, NEXT, mail_conn_id="m", observed_at=NOON)
    for name, table in (("crm.THINGS", "things"), ('crm."Things"', "Things")):
        assert list(days.rows(TableName.parse(name))) == [
            (table, "m", "2026-03-01", NOON),
            (table, "m", "2026-03-02", NOON),
        ]
    assert days.whole == {"mail_conn_id": "m", "day": Between(DAY, NEXT)}
    assert loads_beside(TableName.parse('crm."Things"')) == TableName.parse("crm.mail_loads")
    name = "l" * 250
    part = Coverage.one(name, {"account": "a"}, mail_conn_id="m", observed_at=NOON)
    assert list(part.rows(TableName.parse("things"))) == [("things", "m", name, NOON)]
