"""From when to when each contact was in a list: the same history in whatever order the readings are loaded.

Any sequence of loads, each with its history, is in `tests/machines/test_loading.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail.warehouse.errors import UnconfirmedError, WarehouseError
from airflow_provider_mail.warehouse.load import RemovalRule, check_history
from airflow_provider_mail.warehouse.tables.contacts import LIST_READINGS
from tests.warehouse.conftest import Warehouse
from tests.warehouse.lists import at, read, recorded, stays


def test_the_model_of_the_machine_says_what_is_meant() -> None:
    expected = [("c01", 1, 2), ("c01", 3, None), ("c02", 1, None)]
    assert stays({1: [1, 2], 2: [2], 3: [1, 2]}) == expected


def test_the_order_of_the_loads_does_not_matter(native: Warehouse) -> None:
    """Readings after which intervals are split, moved to an earlier start, ended earlier and not changed."""
    loads = [(1, {0, 1, 2, 3}), (5, {0, 1, 4}), (3, {0, 2, 4}), (0, {1}), (4, {1, 3}), (2, set()), (6, {0, 3})]
    read(native, 3, [0, 1], "other")
    results = [read(native, hour, contacts) for hour, contacts in [*loads, loads[0], loads[2]]]
    assert recorded(native) == stays({at(hour): contacts for hour, contacts in loads})
    assert recorded(native, "other") == stays({at(3): [0, 1]})
    sizes = {row[3]: row[4] for row in native.rows(LIST_READINGS, "contacts_history_readings") if row[2] == "news"}
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
    assert recorded(sqlite) == stays({at(0): range(12)})
    read(sqlite, 2, range(6), removal=limit, **options)
    assert recorded(sqlite) == stays({at(0): range(12), at(2): range(6)})


@pytest.mark.parametrize("kind", ["portable_sqlite", "snowflake"])
def test_other_databases_have_no_history(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    warehouse = make_warehouse(kind)
    for load in (lambda: read(warehouse, 0, [1]), lambda: check_history(warehouse.hook)):
        with pytest.raises(WarehouseError, match="a history needs SQLite, Postgres, DuckDB, MySQL or MariaDB, not"):
            load()
