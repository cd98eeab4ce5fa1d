"""What a load removes, a second reading confirms, and too much of it needs a permission.

Any sequence of such loads is in `tests/machines/test_loading.py`.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from airflow_provider_mail.api.errors import MailIncompleteError
from airflow_provider_mail.warehouse.errors import UnconfirmedError
from airflow_provider_mail.warehouse.load import Coverage, LoadResult, MarkGone, RemovalRule
from airflow_provider_mail.warehouse.request import LOADS
from airflow_provider_mail.warehouse.table import Table
from airflow_provider_mail.warehouse.tables.contacts import CONTACTS
from tests.warehouse.conftest import ALL, Warehouse
from tests.warehouse.tables import LATER, MARKED, NOON, thing

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
        (40, 0, "40 rows would become 0. Nothing was removed; allow_empty=True allows it", {"allow_empty": True}),
        (40, 3, "40 rows would become 3. Nothing was removed; max_removed_fraction allows it", {"max_fraction": 0.95}),
        (10, 4, "10 rows would become 4", {"max_fraction": 0.6}),
        (10, 5, None, {}),
        (9, 1, None, {}),
        (1, 0, "1 rows would become 0", {"allow_empty": True}),
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


def test_an_error_of_the_second_reading_is_raised_unchanged(warehouse: Warehouse) -> None:
    def fails() -> Any:
        yield thing(MARKED, 5, at=LATER)
        raise MailIncompleteError("short", got=1, expected=2)

    load(warehouse, "deleted", NOON, range(3))
    with pytest.raises(MailIncompleteError, match="short"):
        warehouse.load(MARKED, [thing(MARKED, 0, at=LATER)], replace_where=OF_A, removal=rule(fails))
    assert living(warehouse) == {0, 1, 2}


def test_no_lock_is_held_while_the_list_is_read_again(native: Warehouse) -> None:
    def another_load() -> Any:
        native.another().load(MARKED, [thing(MARKED, 9, account="b")])
        return [thing(MARKED, 1, at=LATER)]

    load(native, "deleted", NOON, range(3))
    native.load(MARKED, [thing(MARKED, 0, at=LATER)], replace_where=OF_A, removal=rule(another_load))
    assert {row[:2] for row in native.rows(MARKED)} == {("a", 0), ("a", 1), ("b", 9)}


# Names that the service is asked for

NAMED = Table(
    tuple(column for column in CONTACTS.columns if column.name in ("mail_conn_id", "team", "id"))
    + tuple(column for column in MARKED.columns if column.name in ("observed_at", "gone_at")),
    ("mail_conn_id", "id"),
    "Things with names",
)


def load_named(warehouse: Warehouse, at: datetime.datetime, names: list[str], exists: Any, again: Any = ()) -> None:
    rows, more = ([("m", "", name, at, None) for name in some] for some in (names, again))
    gone = MarkGone(at, lambda: [{"mail_conn_id": "m"}], exists)
    warehouse.load(NAMED, rows, "named", mark_gone=gone, removal=rule(lambda: more, **ALLOWED))


@pytest.mark.parametrize("kind", [*ALL, "snowflake"])
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


def test_a_response_that_shows_nothing_marks_nothing(way: Warehouse) -> None:
    def exists(names: Any) -> Any:
        raise MailIncompleteError("no total", got=0, expected=None)

    load_named(way, NOON, ["a", "b"], exists)
    with pytest.raises(MailIncompleteError, match="no total"):
        load_named(way, LATER, ["a"], exists)
    assert [row[-1] for row in way.rows(NAMED, "named")] == [None, None]


# What is recorded as read


@pytest.mark.parametrize("short", ["empty", "rejected"])
def test_a_reading_that_may_not_be_whole_is_not_recorded(way: Warehouse, short: str) -> None:
    """So a whole load that asked earlier, and ends later, is stored, and freshness does not lie."""
    reject = {"on_unstorable": lambda *_: None} if short == "rejected" else {}

    def load(at: datetime.datetime, rows: Any) -> LoadResult:
        return way.load(MARKED, rows, covers=Coverage("m", at, {"all": OF_A}, OF_A), removal=rule(), **reject)

    poisoned = [thing(MARKED, 1, at=LATER), thing(MARKED, 2, at=LATER, name="\ud800")]
    assert not load(LATER, poisoned if reject else []).outdated
    late = load(NOON, [thing(MARKED, number) for number in (1, 2)])
    assert {row[1]: row[-2] for row in way.rows(MARKED)} == {1: LATER if reject else NOON, 2: NOON}
    assert [row[3] for row in way.rows(LOADS, "mail_loads")] == [NOON]
    assert way.is_portable or late.outdated == bool(reject)
