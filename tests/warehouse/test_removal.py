"""What a load removes or marks as gone, when it may, and what no load may say of the future.

Any sequence of loads, also with a history, is in `tests/machines/test_loading.py`."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import psycopg
import pytest

from airflow_provider_mail.api.contacts import Contact
from airflow_provider_mail.api.errors import MailIncompleteError
from airflow_provider_mail.warehouse.database import database_time
from airflow_provider_mail.warehouse.errors import UnconfirmedError, WarehouseError
from airflow_provider_mail.warehouse.request import (
    LOADS,
    Between,
    Coverage,
    LoadResult,
    MarkGone,
    RemovalRule,
)
from airflow_provider_mail.warehouse.table import Table
from airflow_provider_mail.warehouse.tables.resources import CONTACTS, LIST_READINGS, contact_row
from tests.warehouse.conftest import ALL, Warehouse, in_each_dialect
from tests.warehouse.lists import at, read, recorded, stays
from tests.warehouse.tables import LATER, MARKED, NOON, THINGS, thing

OF_A: Mapping[str, Any] = {"account": "a"}
ALLOWED = {"allow_empty": True, "max_fraction": 1.0}


def rule(second: Callable[[], Any] = list, **permission: Any) -> RemovalRule:
    return RemovalRule(**{"allow_empty": False, "max_fraction": 0.5, "read_again": second} | permission)


def load(
    warehouse: Warehouse, removes: str, at: datetime.datetime, first: Any, second: Any = (), **permission: Any
) -> LoadResult:
    """Load things of which the first reading has some, and the second one more."""
    window = {"deleted": {"replace_where": OF_A}, "gone": {"mark_gone": MarkGone(at, lambda: [OF_A])}}[removes]
    again = rule(lambda: [thing(MARKED, number, at=at) for number in second], **permission)
    return warehouse.load(MARKED, [thing(MARKED, number, at=at) for number in first], removal=again, **window)


def living(warehouse: Warehouse) -> set[int]:
    return {row[1] for row in warehouse.rows(MARKED) if row[-1] is None}


@pytest.mark.parametrize("removes", ["deleted", "gone"])
def test_what_both_readings_lack_is_counted(native: Warehouse, removes: str) -> None:
    load(native, removes, NOON, range(8))
    result = load(native, removes, LATER, {0, 1, 2}, {3, 4, 8})
    assert (result.rows, getattr(result, removes)) == (6, 3)
    assert living(native) == {0, 1, 2, 3, 4, 8}


@pytest.mark.parametrize("removes", ["deleted", "gone"])
@pytest.mark.parametrize(
    ("before", "left", "words", "permission"),
    [
        (10, 4, "10 rows would become 4. Nothing was removed; max_removed_fraction allows it", {"max_fraction": 0.6}),
        (10, 5, None, {}),
        (9, 1, None, {}),
        (1, 0, "1 rows would become 0. Nothing was removed; allow_empty=True allows it", {"allow_empty": True}),
    ],
)
def test_all_or_too_many_need_a_permission(
    sqlite: Warehouse, removes: str, before: int, left: int, words: str | None, permission: dict[str, Any]
) -> None:
    load(sqlite, removes, NOON, range(before))
    if words:
        with pytest.raises(UnconfirmedError, match=words):
            load(sqlite, removes, LATER, range(left))
        assert living(sqlite) == set(range(before))
    load(sqlite, removes, LATER, range(left), **permission)
    assert living(sqlite) == set(range(left))


def test_an_error_of_the_second_reading_is_raised_unchanged(sqlite: Warehouse) -> None:
    def fails() -> Any:
        yield thing(MARKED, 5, at=LATER)
        raise MailIncompleteError("short", got=1, expected=2)

    load(sqlite, "deleted", NOON, range(3))
    with pytest.raises(MailIncompleteError, match="short"):
        sqlite.load(MARKED, [thing(MARKED, 0, at=LATER)], replace_where=OF_A, removal=rule(fails))
    assert living(sqlite) == {0, 1, 2}


def test_no_lock_is_held_while_the_list_is_read_again(native: Warehouse) -> None:
    def another_load() -> Any:
        native.another().load(MARKED, [thing(MARKED, 9, account="b")])
        return [thing(MARKED, 1, at=LATER)]

    load(native, "deleted", NOON, range(3))
    native.load(MARKED, [thing(MARKED, 0, at=LATER)], replace_where=OF_A, removal=rule(another_load))
    assert {row[:2] for row in native.rows(MARKED)} == {("a", 0), ("a", 1), ("b", 9)}


# Names that the service is asked for

NAMED = Table(
    tuple(column for column in CONTACTS.columns if column.name in ("mail_conn_id", "team_name", "id"))
    + tuple(column for column in MARKED.columns if column.name in ("observed_at", "gone_at")),
    ("mail_conn_id", "id"),
    "Things with names",
)


def load_named(warehouse: Warehouse, at: datetime.datetime, names: list[str], exists: Any, again: Any = ()) -> None:
    rows, more = ([("m", "", name, at, None) for name in some] for some in (names, again))
    gone = MarkGone(at, lambda: [{"mail_conn_id": "m"}], exists)
    warehouse.load(NAMED, rows, "named", mark_gone=gone, removal=rule(lambda: more, **ALLOWED))


@pytest.mark.parametrize("kind", ALL)
def test_what_the_service_has_by_name_is_not_marked(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    """More names than parameters of one statement, some of which are outside of the window."""
    warehouse, asked = make_warehouse(kind), list[str]()
    names = [f"n{number:04}" for number in range(530)]

    def exists(some: Any) -> set[str]:
        asked.extend(some)
        return {name for name in some if name.endswith("7")}

    load_named(warehouse, NOON, names, exists)
    load_named(warehouse, LATER, names[:10], exists, names[10:11])
    assert set(names[11:]) <= set(asked) <= set(names[10:])
    marked = {row[2] for row in warehouse.rows(NAMED, "named") if row[-1] is not None}
    assert marked == {name for name in names[11:] if not name.endswith("7")}


def test_a_response_that_shows_nothing_marks_nothing(sqlite: Warehouse) -> None:
    def exists(names: Any) -> Any:
        raise MailIncompleteError("no total", got=0, expected=None)

    load_named(sqlite, NOON, ["a", "b"], exists)
    with pytest.raises(MailIncompleteError, match="no total"):
        load_named(sqlite, LATER, ["a"], exists)
    assert [row[-1] for row in sqlite.rows(NAMED, "named")] == [None, None]


# What is recorded as read


@pytest.mark.parametrize("short", ["empty", "rejected"])
def test_a_reading_that_may_not_be_whole_is_not_recorded(sqlite: Warehouse, short: str) -> None:
    """So a whole load that asked earlier, and ends later, is stored, and freshness does not lie."""
    reject = {"on_unstorable": lambda *_: None} if short == "rejected" else {}

    def load(at: datetime.datetime, rows: Any) -> LoadResult:
        return sqlite.load(MARKED, rows, covers=Coverage("m", at, {"all": OF_A}, OF_A), removal=rule(), **reject)

    poisoned = [thing(MARKED, 1, at=LATER), thing(MARKED, 2, at=LATER, name="\ud800")]
    assert not load(LATER, poisoned if reject else []).outdated
    late = load(NOON, [thing(MARKED, number) for number in (1, 2)])
    assert {row[1]: row[-2] for row in sqlite.rows(MARKED)} == {1: LATER if reject else NOON, 2: NOON}
    assert [row[4] for row in sqlite.rows(LOADS, "mail_loads")] == [NOON]
    assert late.outdated == bool(reject)


# Rows that the service does not have any more are marked, and cleared when they are there again

DAYS = [NOON.date() + datetime.timedelta(days=number) for number in range(4)]
LATEST = LATER + datetime.timedelta(hours=1)


def there(warehouse: Warehouse, at: datetime.datetime, *numbers: int, where: Mapping[str, Any] = OF_A) -> Any:
    """Load things as all that a window has."""
    rows = [thing(MARKED, number, day=DAYS[number % 4], at=at) for number in numbers]
    return warehouse.load(MARKED, rows, mark_gone=MarkGone(at, lambda: [where]))


def test_no_row_is_compared_with_each(postgres: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Postgres expects a single row in the window of a list, and may have the contacts of a million."""
    execute, plans = psycopg.Cursor.execute, []

    def explained(cursor: Any, statement: str, *parameters: Any, **options: Any) -> Any:
        if "NOT EXISTS" in str(statement):
            plans.append(str(execute(cursor, f"EXPLAIN {statement}", *parameters).fetchall()))
        return execute(cursor, statement, *parameters, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", explained)
    with closing(postgres.hook.get_conn()) as connection:
        if not isinstance(connection, psycopg.Connection):
            pytest.skip("the hook of this Airflow has psycopg2 alone")
    where = {"mail_conn_id": "mail", "team_name": "", "list_name": "all"}
    for moment, numbers in ((NOON, range(200)), (LATER, range(1, 200))):
        contacts = [contact_row(Contact(id=str(number)), **where, observed_at=moment) for number in numbers]
        postgres.load(CONTACTS, contacts, "contacts", replace_where=where)
        there(postgres, moment, *numbers)
    assert len(plans) == 8
    assert not [plan for plan in plans if "Nested Loop" in plan]


def test_only_rows_of_the_window_are_marked(sqlite: Warehouse) -> None:
    there(sqlite, NOON, 0, 1, 2, 3)
    sqlite.load(MARKED, [thing(MARKED, 1, account="b", day=DAYS[1]), thing(MARKED, 9), thing(MARKED, 5, name="x")])
    there(sqlite, LATER, 0, where={"account": "a", "day": Between(DAYS[0], DAYS[2])})
    assert {row[1] for row in sqlite.rows(MARKED) if row[-1]} == {1, 2}
    there(sqlite, LATEST, 1, where={"account": "a", "day": None, "name": None})
    assert {row[1] for row in sqlite.rows(MARKED) if row[-1]} == {2, 9}
    assert {row[1] for row in sqlite.rows(MARKED) if row[0] == "b"} == {1}


# Rows that say that they were observed in the future: a load fails instead of leaving them there for ever

SOON = NOON + datetime.timedelta(seconds=1)
AHEAD = NOON + datetime.timedelta(days=1)


def fix(warehouse: Warehouse, error: BaseException) -> None:
    """Do what the message says."""
    statements = str(error).rpartition("a wrong clock has written them: ")[2].split("; ")
    warehouse.execute(*statements)


@in_each_dialect
def test_a_row_from_the_future_fails_the_load(warehouse: Warehouse) -> None:
    """The row that is loaded, or another one of the window."""

    def load(how: str, moment: datetime.datetime) -> None:
        gone = {"mark_gone": MarkGone(moment, lambda: [OF_A])}
        options: dict[str, Any] = {"upsert": {}, "replace": {"replace_where": OF_A}, "mark": gone}[how]
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
    # Nor may a mark lie there.
    warehouse.load(MARKED, [thing(MARKED, 3)], mark_gone=MarkGone(AHEAD, lambda: [OF_A]))
    with pytest.raises(WarehouseError, match="lies in the future") as caught:
        warehouse.load(MARKED, [thing(MARKED, 1)], now=SOON)
    fix(warehouse, caught.value)
    warehouse.load(MARKED, [thing(MARKED, 1, at=SOON)], now=SOON)
    assert {row[1]: row[-1] for row in warehouse.rows(MARKED)}[1] is None


def test_a_part_that_was_read_in_the_future_fails_it(native: Warehouse) -> None:
    def load(moment: datetime.datetime, name: str, **options: Any) -> Any:
        covers = Coverage.one("all", OF_A, mail_conn_id="m", observed_at=moment)
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
    assert [row[4] for row in native.rows(LOADS, "mail_loads")] == [at(2)]


@in_each_dialect
def test_outdated_rows_are_counted(warehouse: Warehouse) -> None:
    """Also with clocks that differ a little."""
    soon = NOON + datetime.timedelta(minutes=4)
    warehouse.load(THINGS, [thing(THINGS, number, name="soon", at=soon) for number in range(400)])
    result = warehouse.load(THINGS, [thing(THINGS, number) for number in range(0, 800, 2)], now=NOON)
    assert (result.rows, result.outdated) == (400, 200)
    assert [row[2] for row in warehouse.rows(THINGS)] == ["soon"] * 400 + [None] * 200


def test_a_database_has_its_own_time(warehouse: Warehouse) -> None:
    # By the same clock as this process, so the zone is right.
    difference = database_time(warehouse.hook) - datetime.datetime.now(datetime.UTC)
    assert abs(difference) < datetime.timedelta(minutes=20)


# From when to when each contact was in a list


def test_the_order_of_the_loads_does_not_matter(native: Warehouse) -> None:
    """Readings after which intervals are split, moved to an earlier start, ended earlier and not changed."""
    loads = [(1, {0, 1, 2, 3}), (5, {0, 1, 4}), (3, {0, 2, 4}), (0, {1}), (4, {1, 3}), (2, set()), (6, {0, 3})]
    read(native, 3, [0, 1], "other")
    results = [read(native, hour, contacts) for hour, contacts in [*loads, loads[0], loads[2]]]
    assert recorded(native) == stays({at(hour): contacts for hour, contacts in loads})
    assert recorded(native, "other") == stays({at(3): [0, 1]})
    sizes = {row[3]: row[5] for row in native.rows(LIST_READINGS, "contacts_history_readings") if row[2] == "news"}
    assert sizes == {at(hour): len(contacts) for hour, contacts in loads}
    changes = [(4, 0), (1, 2), (1, 2), (1, 0), (2, 3), (0, 4), (1, 2), (None, None), (None, None)]
    assert [(result.joined, result.left) for result in results] == changes


def test_a_reading_with_rejected_rows_is_not_whole(native: Warehouse) -> None:
    read(native, 0, [1, 2])
    result = read(native, 1, [1], name="\ud800", on_unstorable=lambda *_: None)
    assert (result.joined, result.left) == (None, None)
    assert recorded(native) == stays({at(0): [1, 2]})


@pytest.mark.parametrize("options", [{}, {"replace_where": None}], ids=["replace", "upsert"])
def test_a_fall_needs_a_permission_and_is_not_recorded(sqlite: Warehouse, options: dict[str, Any]) -> None:
    limit = RemovalRule(allow_empty=False, max_fraction=0.5)
    read(sqlite, 0, range(12), removal=limit, **options)
    with pytest.raises(UnconfirmedError, match="12 rows would become 5"):
        read(sqlite, 1, range(5), removal=limit, **options)
    twice = RemovalRule(allow_empty=False, max_fraction=0.5, read_again=list)
    with pytest.raises(UnconfirmedError, match="12 rows would become 0"):
        read(sqlite, 1, [], removal=twice, **options)
    assert recorded(sqlite) == stays({at(0): range(12)})
    read(sqlite, 2, range(6), removal=limit, **options)
    assert recorded(sqlite) == stays({at(0): range(12), at(2): range(6)})
