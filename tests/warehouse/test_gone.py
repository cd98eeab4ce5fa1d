"""Rows that the service does not have any more are marked, and cleared when they are there again."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_mail.api.contacts import Contact
from airflow_provider_mail.warehouse.load import Between, Coverage, MarkGone
from airflow_provider_mail.warehouse.table import TIMESTAMP, Column, Table
from airflow_provider_mail.warehouse.tables.contacts import CONTACTS, contact_row
from tests.support.sampling import examples
from tests.warehouse.conftest import ALL, Warehouse
from tests.warehouse.tables import LATER, MARKED, NOON, THINGS, thing

DAY = NOON.date()
DAYS = [DAY + datetime.timedelta(days=number) for number in range(4)]
LATEST = LATER + datetime.timedelta(hours=1)
OF_A: Mapping[str, Any] = {"account": "a"}


def there(warehouse: Warehouse, at: datetime.datetime, *numbers: int, where: Mapping[str, Any] = OF_A) -> Any:
    """Load things as all that a window has."""
    rows = [thing(MARKED, number, day=DAYS[number % 4], at=at) for number in numbers]
    return warehouse.load(MARKED, rows, mark_gone=MarkGone(at, lambda: [where]))


def gone(warehouse: Warehouse) -> dict[int, datetime.datetime | None]:
    return {row[1]: row[-1] for row in warehouse.rows(MARKED)}


def test_what_a_window_has_no_more_is_marked(warehouse: Warehouse) -> None:
    there(warehouse, NOON, 1, 2, 3)
    result = there(warehouse, LATER, 1, 3)
    assert gone(warehouse) == {1: None, 2: LATER, 3: None}
    assert result.gone == (None if warehouse.is_portable else 1)


def test_it_keeps_the_time_at_which_it_was_last_seen_and_first_missed(warehouse: Warehouse) -> None:
    there(warehouse, NOON, 1, 2)
    there(warehouse, LATER, 1)
    result = there(warehouse, LATEST, 1)
    assert gone(warehouse)[2] == LATER
    assert {row[1]: row[-2] for row in warehouse.rows(MARKED)} == {1: LATEST, 2: NOON}
    assert not result.gone


def test_what_is_there_again_is_cleared(warehouse: Warehouse) -> None:
    there(warehouse, NOON, 1)
    there(warehouse, LATER, 2)
    result = there(warehouse, LATEST, 1, 2)
    assert gone(warehouse) == {1: None, 2: None}
    assert warehouse.is_portable or result.changed == 1


@pytest.mark.not_unit
def test_a_table_without_statistics_of_its_own_is_no_trap(native: Warehouse) -> None:
    """In quadratic time this is some minutes, and the test's limit ends it."""
    there(native, NOON, *range(40_000))
    assert there(native, LATER, *range(1, 40_000)).gone == 1


@pytest.mark.not_unit
def test_no_row_is_compared_with_each(
    make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above: Postgres expects a single row in the window of a list, and may have the contacts of a million."""
    execute, plans = psycopg.Cursor.execute, []

    def explained(cursor: Any, statement: str, *parameters: Any, **options: Any) -> Any:
        if "NOT EXISTS" in str(statement):
            plans.append(str(execute(cursor, f"EXPLAIN {statement}", *parameters).fetchall()))
        return execute(cursor, statement, *parameters, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", explained)
    warehouse = make_warehouse("psycopg3")
    with closing(warehouse.hook.get_conn()) as connection:
        if not isinstance(connection, psycopg.Connection):
            pytest.skip("the hook of this Airflow has psycopg2 alone")
    where = {"mail_conn_id": "mail", "team": "", "list_name": "all"}
    for at, numbers in ((NOON, range(200)), (LATER, range(1, 200))):
        contacts = [contact_row(Contact(id=str(number)), **where, observed_at=at) for number in numbers]
        result = warehouse.load(CONTACTS, contacts, "contacts", replace_where=where)
        there(warehouse, at, *numbers)
    assert result.deleted == 1
    assert len(plans) == 4
    assert not [plan for plan in plans if "Nested Loop" in plan]


def test_only_rows_of_the_window_are_marked(warehouse: Warehouse) -> None:
    there(warehouse, NOON, 0, 1, 2, 3)
    warehouse.load(MARKED, [thing(MARKED, 1, account="b", day=DAYS[1]), thing(MARKED, 9)])
    there(warehouse, LATER, 0, where={"account": "a", "day": Between(DAYS[0], DAYS[2])})
    assert {row[:2]: row[-1] for row in warehouse.rows(MARKED)} == {
        ("a", 0): None,
        ("a", 1): LATER,
        ("a", 2): LATER,
        ("a", 3): None,
        ("a", 9): None,
        ("b", 1): None,
    }


def test_a_window_of_rows_without_a_value(warehouse: Warehouse) -> None:
    warehouse.load(MARKED, [thing(MARKED, 1), thing(MARKED, 2, name="x"), thing(MARKED, 3)])
    rows = [thing(MARKED, 3, at=LATER)]
    warehouse.load(MARKED, rows, mark_gone=MarkGone(LATER, lambda: [{"account": "a", "name": None}]))
    assert gone(warehouse) == {1: LATER, 2: None, 3: None}


def test_absence_is_not_believed_of_what_was_seen_later(warehouse: Warehouse) -> None:
    there(warehouse, LATER, 1, 2)
    there(warehouse, NOON, 1)
    assert gone(warehouse) == {1: None, 2: None}


def test_an_older_observation_does_not_bring_it_back(warehouse: Warehouse) -> None:
    there(warehouse, NOON, 1, 2)
    there(warehouse, LATEST, 1)
    there(warehouse, LATER, 1, 2)
    assert gone(warehouse) == {1: None, 2: LATEST}


def test_nor_is_it_believed_of_a_part_that_was_read_later(native: Warehouse) -> None:
    """Unchanged rows keep their old time there: only the note says that they were seen."""

    def load(at: datetime.datetime, *numbers: int) -> None:
        parts = {DAY.isoformat(): {"account": "a", "day": DAY}}
        covers = Coverage("m", at, parts, {"account": "a", "day": DAY})
        rows = [thing(MARKED, number, day=DAY, at=at) for number in numbers]
        native.load(MARKED, rows, covers=covers, mark_gone=MarkGone(at, lambda: [covers.whole]))

    load(NOON, 1, 2)
    load(LATEST, 1, 2)
    load(LATER, 1)
    assert gone(native) == {1: None, 2: None}


def test_windows_are_asked_for_when_all_rows_are_there(warehouse: Warehouse) -> None:
    there(warehouse, NOON, 1, 2)
    seen: list[int] = []

    def rows() -> Any:
        for number in (1, 3):
            seen.append(number)
            yield thing(MARKED, number, at=LATER)

    warehouse.load(MARKED, rows(), mark_gone=MarkGone(LATER, lambda: [OF_A] if seen == [1, 3] else []))
    assert gone(warehouse) == {1: None, 2: LATER, 3: None}
    warehouse.load(MARKED, [], mark_gone=MarkGone(LATEST, lambda: []))
    assert gone(warehouse) == {1: None, 2: LATER, 3: None}


def test_a_table_of_an_older_version_gets_the_column(warehouse: Warehouse) -> None:
    warehouse.load(THINGS, [thing(THINGS, 1), thing(THINGS, 2)])
    there(warehouse, LATER, 1)
    assert gone(warehouse) == {1: None, 2: LATER}


def test_a_table_that_cannot_say_it(warehouse: Warehouse) -> None:
    with pytest.raises(ValueError, match="`mark_gone` needs a table"):
        warehouse.load(THINGS, [], mark_gone=MarkGone(NOON, lambda: [OF_A]))
    with pytest.raises(ValueError, match="a timestamp that may be null"):
        Column("gone_at", TIMESTAMP, "", gone=True)
    with pytest.raises(ValueError, match="and needs one of observation"):
        Table((MARKED["account"], MARKED["gone_at"]), ("account",), "")


LOOK = st.tuples(st.integers(0, 20), st.frozensets(st.integers(0, 5)))


@pytest.mark.parametrize(
    "kind", [kind for kind in ALL if kind in ("sqlite", "psycopg3", "duckdb", "portable_postgres")]
)
@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    looks=st.lists(LOOK, min_size=1, max_size=5, unique_by=lambda look: look[0]).flatmap(
        lambda looks: st.tuples(st.just(looks), st.permutations(looks))
    )
)
def test_the_order_of_the_loads_does_not_matter_for_the_last_look(
    make_warehouse: Callable[..., Warehouse], kind: str, looks: Any
) -> None:
    """What the latest observation says is what the table says, in whatever order they are loaded."""
    in_time, loaded = sorted(looks[0]), looks[1]
    warehouse = make_warehouse(kind)
    warehouse.execute("DROP TABLE IF EXISTS things")
    for hour, numbers in loaded:
        there(warehouse, NOON + datetime.timedelta(hours=hour), *sorted(numbers))
    living = {number for number, at in gone(warehouse).items() if at is None}
    if loaded[-1] == in_time[-1]:
        assert living == set(in_time[-1][1])
    # Whatever came last in time is never marked, and nothing is lost.
    assert set(in_time[-1][1]) <= living
    assert set(gone(warehouse)) == {number for _, numbers in looks[0] for number in numbers}
