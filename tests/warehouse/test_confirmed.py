"""What a load removes, a second reading confirms, and too much of it needs a permission: one rule for all loads."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_mail.api.errors import MailIncompleteError
from airflow_provider_mail.warehouse.coverage import LOADS
from airflow_provider_mail.warehouse.errors import UnconfirmedError
from airflow_provider_mail.warehouse.load import Coverage, LoadResult, MarkGone, RemovalRule
from airflow_provider_mail.warehouse.tables.contacts import CONTACTS, LIST_READINGS
from tests.support.sampling import examples
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import LATER, MARKED, NOON, thing
from tests.warehouse.test_history import empty, read, recorded, stays

OF_A: Mapping[str, Any] = {"account": "a"}


class Second:
    """The second reading of a list, and whether it took place."""

    def __init__(self, rows: Callable[[], Any]) -> None:
        self.rows = rows
        self.times = 0

    def __call__(self) -> Iterator[Any]:
        self.times += 1
        yield from self.rows()


def rule(second: Callable[[], Any] | None = None, *, allow_empty: bool = False, most: float = 0.5) -> RemovalRule:
    return RemovalRule(allow_empty=allow_empty, max_fraction=most, read_again=second)


def load(
    warehouse: Warehouse, removes: str, at: datetime.datetime, first: Any, second: Any = (), **permission: Any
) -> tuple[LoadResult, int]:
    """Load things of which the first reading has some, and the second one more; return how often it was read again."""
    again = Second(lambda: [thing(MARKED, number, at=at) for number in second])
    window = {"deleted": {"replace_where": OF_A}, "marked": {"mark_gone": MarkGone(at, lambda: [OF_A])}}[removes]
    rows = [thing(MARKED, number, at=at) for number in first]
    return warehouse.load(MARKED, rows, removal=rule(again, **permission), **window), again.times


def living(warehouse: Warehouse) -> set[int]:
    return {row[1] for row in warehouse.rows(MARKED) if row[-1] is None}


@pytest.mark.parametrize("removes", ["deleted", "marked"])
def test_only_what_both_readings_lack_is_removed(warehouse: Warehouse, removes: str) -> None:
    assert load(warehouse, removes, NOON, range(8))[1] == 0
    result, times = load(warehouse, removes, LATER, {0, 1, 2}, {3, 4, 8})
    assert times == 1
    assert result.rows == 6
    assert living(warehouse) == {0, 1, 2, 3, 4, 8}
    assert getattr(result, {"deleted": "deleted", "marked": "gone"}[removes]) == (None if warehouse.is_portable else 3)


@pytest.mark.parametrize("removes", ["deleted", "marked"])
@pytest.mark.parametrize("first", [(), (7,)], ids=["none", "one"])
def test_one_short_reading_removes_nothing(warehouse: Warehouse, removes: str, first: tuple[int, ...]) -> None:
    load(warehouse, removes, NOON, range(40))
    _, times = load(warehouse, removes, LATER, first, set(range(40)).difference(first))
    assert (times, living(warehouse)) == (1, set(range(40)))


@pytest.mark.parametrize("removes", ["deleted", "marked"])
@pytest.mark.parametrize(
    ("left", "permission", "words"),
    [
        (0, {"allow_empty": True}, "40 rows would become 0. Nothing was removed; allow_empty=True allows it"),
        (3, {"most": 0.95}, "40 rows would become 3. Nothing was removed; max_removed_fraction allows it"),
    ],
)
def test_all_or_too_many_need_a_permission(
    warehouse: Warehouse, removes: str, left: int, permission: dict[str, Any], words: str
) -> None:
    load(warehouse, removes, NOON, range(40))
    with pytest.raises(UnconfirmedError, match=words):
        load(warehouse, removes, LATER, range(left))
    assert living(warehouse) == set(range(40))
    load(warehouse, removes, LATER, range(left), **permission)
    assert living(warehouse) == set(range(left))


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
    native.load(MARKED, [thing(MARKED, 0, at=LATER)], replace_where=OF_A, removal=rule(Second(another_load)))
    assert {row[:2] for row in native.rows(MARKED)} == {("a", 0), ("a", 1), ("b", 9)}


# --- names that the service is asked for ---

NAMED = MARKED.__class__(
    tuple(column for column in CONTACTS.columns if column.name in ("mail_conn_id", "team", "id"))
    + tuple(column for column in MARKED.columns if column.name in ("observed_at", "gone_at")),
    ("mail_conn_id", "id"),
    "Things with names",
)
HERE: Mapping[str, Any] = {"mail_conn_id": "m"}


def named(at: datetime.datetime, *names: str) -> list[tuple[Any, ...]]:
    given = {"mail_conn_id": "m", "team": "", "observed_at": at}
    return [tuple({**given, "id": name}.get(column) for column in NAMED.names) for name in names]


def test_what_the_service_has_by_name_is_not_marked(warehouse: Warehouse) -> None:
    """More names than parameters of one statement, some of which are outside of the window."""
    names = [f"n{number:04}" for number in range(1200)]
    warehouse.load(NAMED, named(NOON, *names), "named")
    asked: list[str] = []

    def exists(some: Any) -> set[str]:
        asked.extend(some)
        return {name for name in some if name.endswith("7")}

    given = names[:600]
    gone = MarkGone(LATER, lambda: [HERE], exists)
    again = Second(lambda: named(LATER, names[600]))
    warehouse.load(NAMED, named(LATER, *given), "named", mark_gone=gone, removal=rule(again, most=1.0))
    assert set(asked) >= set(names[601:])
    assert not set(asked) & set(given)
    marked = {row[NAMED.names.index("id")] for row in warehouse.rows(NAMED, "named") if row[-1] is not None}
    assert marked == {name for name in names[601:] if not name.endswith("7")}


def test_an_answer_that_shows_nothing_marks_nothing(warehouse: Warehouse) -> None:
    def exists(names: Any) -> Any:
        raise MailIncompleteError("no total", got=0, expected=None)

    warehouse.load(NAMED, named(NOON, "a", "b"), "named")
    gone = MarkGone(LATER, lambda: [HERE], exists)
    with pytest.raises(MailIncompleteError, match="no total"):
        warehouse.load(NAMED, named(LATER, "a"), "named", mark_gone=gone, removal=rule(Second(list)))
    assert [row[-1] for row in warehouse.rows(NAMED, "named")] == [None, None]


# --- what is recorded as read ---


@pytest.mark.parametrize("short", ["empty", "rejected"])
def test_a_reading_that_may_not_be_whole_is_not_recorded(warehouse: Warehouse, short: str) -> None:
    """So a whole load that asked earlier, and ends later, is stored, and freshness does not lie."""

    def covering(at: datetime.datetime) -> Coverage:
        return Coverage("m", at, {"all": OF_A}, OF_A)

    reject = {"on_unstorable": lambda *_: None} if short == "rejected" else {}
    rows = [thing(MARKED, 1, at=LATER), thing(MARKED, 2, at=LATER, name="\ud800")] if short == "rejected" else []
    result = warehouse.load(MARKED, rows, covers=covering(LATER), removal=rule(), **reject)
    assert not result.outdated
    late = warehouse.load(MARKED, [thing(MARKED, n) for n in range(1, 5)], covers=covering(NOON), removal=rule())
    assert {row[1]: row[-2] for row in warehouse.rows(MARKED)} == {
        1: LATER if short == "rejected" else NOON, 2: NOON, 3: NOON, 4: NOON,
    }  # fmt: skip
    assert [row[3] for row in warehouse.rows(LOADS, "mail_loads")] == [NOON]
    assert warehouse.is_portable or late.outdated == (short == "rejected")


# --- two accounts, people between pages, empty and short answers, in any order ---

PEOPLE = st.frozensets(st.integers(0, 4))
READING = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 7), PEOPLE, PEOPLE)


def check_loads(warehouse: Warehouse, loads: list[Any], *, allow_empty: bool, upsert: bool = False) -> None:
    """Load readings, each with a second one that is there if it is needed, and compare with what they had in all."""
    mode: dict[str, Any] = {"replace_where": None} if upsert else {"covered": True}
    empty(warehouse)
    warehouse.execute("DROP TABLE IF EXISTS mail_loads")
    present: dict[str, dict[int, set[int]]] = {"a": {}, "b": {}}
    for account, hour, first, second in loads:
        if hour in present[account]:
            continue
        again: list[bool] = []

        def more(first: Any = first, second: Any = second, again: Any = again) -> Any:
            again.append(True)
            return second - first

        try:
            result = read(
                warehouse, hour, first, account=account, **mode,
                removal=lambda rows, more=more: rule(lambda: rows(more()), allow_empty=allow_empty),
            )  # fmt: skip
        except UnconfirmedError:
            assert again
            assert not allow_empty
            assert not first | second
            continue
        if first or again or allow_empty:  # nobody in a table of nobody is not recorded
            present[account][hour] = {*first, *(second if again else ())}
        if not again:  # one reading has ended no stay and deleted nobody
            assert not result.deleted
            assert not result.left
    for account, readings in present.items():
        assert recorded(warehouse, account=account) == stays(readings)
        sizes = {
            row[3]: row[4] for row in warehouse.rows(LIST_READINGS, "contacts_history_readings") if row[0] == account
        }
        assert list(sizes.values()) == [len(readings[hour]) for hour in sorted(readings)]
        # The table is the last reading.
        last = [readings[hour] for hour in sorted(readings)]
        ids = {row[3] for row in warehouse.rows(CONTACTS, "contacts") if row[0] == account}
        if last and not upsert:
            assert ids == {f"c{number}" for number in last[-1]}


@pytest.mark.parametrize(("allow_empty", "upsert"), [(True, False), (False, False), (False, True)])
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(loads=st.lists(READING, min_size=1, max_size=8))
def test_a_history_is_what_its_readings_had(
    make_warehouse: Callable[..., Warehouse], loads: list[Any], allow_empty: bool, upsert: bool
) -> None:
    check_loads(make_warehouse("sqlite"), loads, allow_empty=allow_empty, upsert=upsert)


@pytest.mark.parametrize("kind", ["psycopg3", "duckdb", "mysql"])
def test_so_it_is_on_other_databases(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    """One joins while another leaves, a short and an empty answer, a late reading; the other account stays as it is."""
    all_five = frozenset(range(5))
    loads = [
        ("b", 1, all_five, all_five),
        ("a", 1, {0, 1, 2, 3}, set()),
        ("a", 4, {0, 1, 2, 4}, {0, 1, 3, 4}),  # 2 has left, and 3 was between two pages
        ("a", 6, {1}, {0, 1, 3, 4}),
        ("a", 7, set(), {0, 3}),
        ("a", 3, {2}, {1, 2, 3}),
        ("b", 2, set(), set()),
        ("a", 2, {0, 1, 2}, set()),
    ]
    check_loads(make_warehouse(kind), [(a, h, frozenset(f), frozenset(s)) for a, h, f, s in loads], allow_empty=False)


def check_marks(warehouse: Warehouse, loads: list[Any], *, allow_empty: bool) -> None:
    """Load readings of a part that is read whole: the living rows are those of the last one, in whatever order."""
    warehouse.execute("DROP TABLE IF EXISTS things", "DROP TABLE IF EXISTS mail_loads")
    present: dict[str, dict[int, set[int]]] = {"a": {}, "b": {}}
    for account, hour, first, second in loads:
        if hour in present[account]:
            continue
        at, where = NOON + datetime.timedelta(hours=hour), {"account": account}
        again = Second(lambda at=at, account=account, more=second - first: [  # type: ignore[misc]
            thing(MARKED, number, account=account, at=at) for number in more
        ])  # fmt: skip
        try:
            warehouse.load(
                MARKED,
                [thing(MARKED, number, account=account, at=at) for number in first],
                covers=Coverage(account, at, {"all": where}, where),
                mark_gone=MarkGone(at, lambda where=where: [where]),  # type: ignore[misc]
                removal=rule(again, allow_empty=allow_empty),
            )
        except UnconfirmedError:
            assert again.times
            assert not first | second
            continue
        if first or again.times or allow_empty:
            present[account][hour] = {*first, *(second if again.times else ())}
        if not again.times:
            assert not [row for row in warehouse.rows(MARKED) if row[0] == account and row[-1] == at]
    for account, readings in present.items():
        rows = {row[1]: row[-1] for row in warehouse.rows(MARKED) if row[0] == account}
        if readings:
            assert {number for number, gone in rows.items() if gone is None} == readings[max(readings)]
        # A mark has the time of a reading that lacked the row.
        for number, gone in rows.items():
            hours = {hour for hour, numbers in readings.items() if number not in numbers}
            assert gone is None or gone in {NOON + datetime.timedelta(hours=hour) for hour in hours}


@pytest.mark.parametrize("allow_empty", [True, False])
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(loads=st.lists(READING, min_size=1, max_size=8))
def test_what_lives_is_what_the_last_reading_had_in_any_order(
    make_warehouse: Callable[..., Warehouse], loads: list[Any], allow_empty: bool
) -> None:
    check_marks(make_warehouse("sqlite"), loads, allow_empty=allow_empty)


@pytest.mark.parametrize("kind", ["psycopg3", "duckdb", "mysql"])
def test_so_it_is_of_marks_on_other_databases(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    loads: list[Any] = [("a", 1, {0, 1, 2}, ()), ("b", 1, {0, 1}, ()), ("a", 5, {0}, {0, 1}), ("a", 3, {0, 2, 3}, {4}),
                        ("a", 7, (), {1}), ("a", 6, {2}, ()), ("b", 2, (), ()), ("b", 0, {4}, ())]  # fmt: skip
    check_marks(make_warehouse(kind), [(a, h, frozenset(f), frozenset(s)) for a, h, f, s in loads], allow_empty=False)


def test_what_depends_on_the_order(native: Warehouse) -> None:
    """As docs/warehouse.md says: whether a row that no load saw alive last is there, and the time of its mark."""
    hours = {hour: NOON + datetime.timedelta(hours=hour) for hour in range(6)}
    marks = {}
    for order in ((0, 1, 5), (0, 5, 1), (5, 0, 1)):
        native.execute("DROP TABLE IF EXISTS things", "DROP TABLE IF EXISTS mail_loads")
        for hour in order:
            at = hours[hour]
            rows = [thing(MARKED, number, at=at) for number in ((1, 2) if hour == 0 else (1,))]
            gone = MarkGone(at, lambda: [OF_A])
            native.load(MARKED, rows, covers=Coverage("m", at, {"all": OF_A}, OF_A), mark_gone=gone)
        marks[order] = {row[1]: row[-1] for row in native.rows(MARKED)}
    assert marks == {
        (0, 1, 5): {1: None, 2: hours[1]},
        (0, 5, 1): {1: None, 2: hours[5]},
        (5, 0, 1): {1: None},
    }
