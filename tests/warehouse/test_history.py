"""From when to when each contact was in a list: the same history in whatever order the readings are loaded."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_mail.warehouse.errors import UnconfirmedError, WarehouseError
from airflow_provider_mail.warehouse.load import Coverage, LoadResult, RemovalRule
from airflow_provider_mail.warehouse.tables.contacts import (
    CONTACTS,
    CONTACTS_HISTORY,
    LIST_READINGS,
    contact_row,
    contacts_history,
)
from tests.support.sampling import examples
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import NOON

Readings = Mapping[int, Collection[int]]
"""The contacts of a list, by the hour at which it was read."""
TABLES = {"contacts": CONTACTS, "contacts_history": CONTACTS_HISTORY, "contacts_history_readings": LIST_READINGS}


def at(hour: int) -> datetime.datetime:
    return NOON + datetime.timedelta(hours=hour)


def read(
    warehouse: Warehouse,
    hour: int,
    contacts: Iterable[int],
    list_name: str = "news",
    name: Any = "x",
    account: str = "a",
    table: str = "contacts",
    covered: bool = False,
    removal: Any = None,
    **options: Any,
) -> LoadResult:
    """Load a complete reading of a list; ``removal`` makes the rule, from a function that makes rows."""
    where = {"mail_conn_id": account, "team": "", "list_name": list_name}

    def rows(numbers: Iterable[int]) -> list[Any]:
        made = []
        for number in numbers:
            contact: Any = SimpleNamespace(id=f"c{number}", email=None, name=name, phone_number=None, properties={})
            contact.create_date = contact.modify_time = contact.create_user_id = contact.other_fields = None
            made.append(contact_row(contact, **where, observed_at=at(hour)))
        return made

    options = {"replace_where": where, "removal": removal(rows) if callable(removal) else removal, **options}
    if covered:
        options["covers"] = Coverage.one(list_name, where, mail_conn_id=account, observed_at=at(hour))
    history = contacts_history(f"{table}_history", where, at(hour))
    return warehouse.load(CONTACTS, rows(contacts), table, history=history, **options)


def stays(readings: Readings) -> list[tuple[str, datetime.datetime, datetime.datetime | None]]:
    """The history, worked out reading by reading."""
    found: dict[tuple[str, int], int | None] = {}
    before: Collection[int] = ()
    for hour, contacts in sorted(readings.items()):
        for (name, start), end in list(found.items()):
            if end is None and int(name[1:]) not in contacts:
                found[name, start] = hour
        found |= {(f"c{number}", hour): None for number in contacts if number not in before}
        before = contacts
    return sorted((name, at(start), None if end is None else at(end)) for (name, start), end in found.items())


def recorded(warehouse: Warehouse, list_name: str = "news", account: str = "a") -> list[tuple[Any, ...]]:
    rows = warehouse.rows(CONTACTS_HISTORY, "contacts_history")
    return sorted(row[3:] for row in rows if (row[0], row[2]) == (account, list_name))


def empty(warehouse: Warehouse) -> None:
    warehouse.execute(*(f"DROP TABLE IF EXISTS {name}" for name in TABLES))


READINGS = st.dictionaries(st.integers(0, 7), st.frozensets(st.integers(0, 4)), min_size=1, max_size=6)


LOADS = READINGS.flatmap(lambda readings: st.permutations(sorted(readings.items())))
AGAIN = st.lists(st.integers(0, 5), max_size=2)


def check_any_order(warehouse: Warehouse, loads: list[Any], again: list[int]) -> None:
    """Load the readings in this order, and some again; compare the history with that of their true order."""
    empty(warehouse)
    read(warehouse, 3, [0, 1], "other")
    for hour, contacts in [*loads, *(loads[number] for number in again if number < len(loads))]:
        read(warehouse, hour, contacts)
    assert recorded(warehouse) == stays(dict(loads))
    assert recorded(warehouse, "other") == stays({3: [0, 1]})
    sizes = {row[3]: row[4] for row in warehouse.rows(LIST_READINGS, "contacts_history_readings") if row[2] == "news"}
    assert sizes == {at(hour): len(contacts) for hour, contacts in loads}


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(loads=LOADS, again=AGAIN)
def test_the_order_of_the_loads_does_not_matter(
    make_warehouse: Callable[..., Warehouse], loads: list[Any], again: list[int]
) -> None:
    check_any_order(make_warehouse("sqlite"), loads, again)


@pytest.mark.parametrize("kind", ["psycopg3", "duckdb", "mysql"])
def test_nor_does_it_on_other_databases(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    """Readings after which intervals are split, moved to an earlier start, ended earlier and not changed."""
    loads = [(1, {0, 1, 2, 3}), (5, {0, 1, 4}), (3, {0, 2, 4}), (0, {1}), (4, {1, 3}), (2, set()), (6, {0, 3})]
    check_any_order(make_warehouse(kind), loads, [0, 2])


def test_the_model_above_says_what_is_meant() -> None:
    assert stays({1: [1, 2], 2: [2], 3: [1, 2]}) == [
        ("c1", at(1), at(2)),
        ("c1", at(3), None),
        ("c2", at(1), None),
    ]


def test_joined_and_left_are_counted(native: Warehouse) -> None:
    results = [read(native, hour, contacts) for hour, contacts in ((0, [1, 2, 3]), (2, [3, 4]), (2, [3, 4]), (1, [4]))]
    assert [(result.joined, result.left) for result in results] == [(3, 0), (1, 2), (None, None), (1, 3)]


@pytest.mark.not_unit
def test_loads_at_once_lose_nothing(make_warehouse: Callable[..., Warehouse]) -> None:
    warehouse = make_warehouse("psycopg3")
    readings = {hour: [number for number in range(40) if (number * 7 + hour) % 3] for hour in range(8)}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda reading: read(warehouse, *reading), readings.items()))
    assert recorded(warehouse) == stays(readings)


def test_a_reading_with_rejected_rows_is_not_whole(native: Warehouse) -> None:
    read(native, 0, [1, 2])
    result = read(native, 1, [1], name="\ud800", on_unstorable=lambda *_: None)
    assert (result.joined, result.left) == (None, None)
    assert recorded(native) == stays({0: [1, 2]})


@pytest.mark.parametrize("options", [{}, {"replace_where": None}], ids=["replace", "upsert"])
def test_a_fall_is_refused_and_nothing_is_recorded(native: Warehouse, options: dict[str, Any]) -> None:
    limit = RemovalRule(allow_empty=False, max_fraction=0.5)
    read(native, 0, range(12), removal=limit, **options)
    with pytest.raises(UnconfirmedError, match="12 rows would become 5"):
        read(native, 1, range(5), removal=limit, **options)
    assert recorded(native) == stays({0: range(12)})
    read(native, 2, range(6), removal=limit, **options)
    assert recorded(native) == stays({0: range(12), 2: range(6)})


def test_another_database_is_refused(make_warehouse: Callable[..., Warehouse]) -> None:
    with pytest.raises(WarehouseError, match="a history needs SQLite, Postgres, DuckDB, MySQL or MariaDB, not"):
        read(make_warehouse("portable_sqlite"), 0, [1])
