"""Each row has when, and by which run of Airflow, it was last written."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.execution_time.context import set_current_context

from airflow_provider_mail.warehouse.load import LoadResult
from airflow_provider_mail.warehouse.request import LOADS, Coverage, MarkGone
from airflow_provider_mail.warehouse.table import LOAD_COLUMNS, Table
from tests.warehouse.conftest import ALL, Warehouse
from tests.warehouse.tables import LATER, MARKED, NOON, PLAIN, THINGS, thing

OF_A = {"account": "a"}
ODD = 'manual__it\'s \\ "50%"\t{x}'
"""A name of a run that users may choose."""


def written(warehouse: Warehouse, table: Table = MARKED, name: str = "things") -> dict[int, tuple[Any, ...]]:
    """The times and runs, by number of the thing."""
    shown = Table((*table.columns, *LOAD_COLUMNS), table.key, "", load_columns=())
    return {row[1]: row[-2:] for row in warehouse.rows(shown, name)}


def load_as(run_id: str | None, warehouse: Warehouse, table: Table, rows: Any, **options: Any) -> LoadResult:
    """Load rows as the second try of a mapped task."""
    if run_id is None:
        return warehouse.load(table, rows, **options)
    ti: Any = SimpleNamespace(run_id=run_id, dag_id="crm", task_id="load", map_index=3, try_number=2)
    with set_current_context({"ti": ti}):  # type: ignore[typeddict-item]
        return warehouse.load(table, rows, **options)


@pytest.mark.parametrize("kind", [*ALL, "snowflake", "redshift"])
def test_what_a_load_writes_has_its_time_and_its_run(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    warehouse = make_warehouse(kind)

    def reads(run_id: str | None, at: datetime.datetime, **names: str) -> None:
        rows = [thing(MARKED, int(number[1:]), name=name, at=at) for number, name in names.items()]
        covers = Coverage.one("a", OF_A, mail_conn_id="m", observed_at=at)
        load_as(run_id, warehouse, MARKED, rows, covers=covers, mark_gone=MarkGone(at, lambda: [OF_A]))

    reads(None, NOON, _1="same", _2="old", _3="leaves")
    first = written(warehouse)
    ((at, run_id),) = set(first.values())
    assert run_id is None
    assert abs(at - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(minutes=20)

    reads(ODD, LATER, _1="same", _2="new", _4="joins")
    second = written(warehouse)
    assert second[2] == second[3] == second[4]
    assert second[2][0] > at
    assert second[2][1] == ODD
    # An unchanged row is as the first load left it, where a load does not write all rows anew.
    assert second[1] == (second[2] if warehouse.is_portable else first[1])


def test_an_earlier_observation_changes_nothing(way: Warehouse) -> None:
    load_as("newer", way, THINGS, [thing(THINGS, 1, at=LATER)])
    before = written(way, THINGS)
    load_as("older", way, THINGS, [thing(THINGS, 1, at=NOON)])
    assert written(way, THINGS) == before


def test_a_row_that_is_never_updated_keeps_them(way: Warehouse) -> None:
    events = Table(PLAIN.columns, PLAIN.key, "", insert_only=True)
    load_as("first", way, events, [thing(events, 1)])
    before = written(way, events)
    load_as(ODD, way, events, [thing(events, 1, name="again"), thing(events, 2)])
    after = written(way, events)
    assert after[1] == before[1]
    assert after[2][1] == ODD


@pytest.mark.parametrize("kind", [*ALL, "snowflake", "redshift"])
def test_a_table_of_an_earlier_version_gets_the_columns(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    warehouse = make_warehouse(kind)

    def reads(at: datetime.datetime, *rows: tuple[Any, ...]) -> None:
        covers = Coverage.one("a", OF_A, mail_conn_id="m", observed_at=at)
        load_as("now", warehouse, THINGS, rows, covers=covers)

    reads(NOON, thing(THINGS, 1, name="same"), thing(THINGS, 2, name="old"))
    for name, table in (("things", THINGS), ("mail_loads", LOADS)):
        warehouse.execute(*(f"ALTER TABLE {name} DROP COLUMN {column}" for column in table.load_names))
    reads(LATER, thing(THINGS, 1, name="same", at=LATER), thing(THINGS, 2, name="new", at=LATER))
    found = written(warehouse, THINGS)
    assert found[2][1] == "now"
    assert found[1] == (found[2] if warehouse.is_portable else (None, None))


def test_mail_loads_has_the_task_and_the_rows(way: Warehouse) -> None:
    for number, run_id in enumerate([None, ODD], 1):
        at = NOON + datetime.timedelta(hours=number)
        covers = Coverage("m", at, {"one": {**OF_A, "number": 1}, "other": {**OF_A, "number": 2}}, OF_A)
        load_as(run_id, way, THINGS, [thing(THINGS, n, at=at) for n in range(number)], covers=covers)
        columns = ("part", *LOADS.load_names[1:])
        found = way.query(f"SELECT {', '.join(columns)} FROM mail_loads ORDER BY part")
        of_task = (ODD, "crm", "load", 3, 2) if run_id else (None,) * 5
        assert found == [(part, *of_task, number) for part in ("one", "other")]
