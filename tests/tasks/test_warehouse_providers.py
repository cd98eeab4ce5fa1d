"""Warehouses through Airflow's own hooks and operators and the clients of the vendors, on stand-ins for their services.

They are in tests/support/warehouses. Needs the dependency group `warehouses`, which is not in the environment of
the other tests: `make test-warehouses`.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.load import load
from airflow_provider_mail.warehouse.request import Coverage, MarkGone
from mail_emulator import Emulator
from tests.support.clock import Clock
from tests.support.processes import PATIENCE
from tests.support.warehouses.fixtures import Standin
from tests.tasks.conftest import Done, Run
from tests.tasks.loading import delete
from tests.tasks.test_example_dags import example as example_dag
from tests.warehouse.tables import LATER, MARKED, NOON, THINGS, thing

pytestmark = pytest.mark.not_unit
PROVIDERS = {"bigquery": "google", "databricks": "databricks", "redshift": "amazon", "snowflake": "snowflake"}


@pytest.fixture(params=PROVIDERS)
def warehouse(request: pytest.FixtureRequest) -> Standin:
    """Each of the four."""
    standin: Standin = request.getfixturevalue(request.param)
    return standin


# --- the examples ---


def example(kind: str) -> Any:
    """The DAG of an example; its tasks are not tried again, and write several files."""
    dag: Any = example_dag(f"warehouses/mail_to_{kind}")
    for task in dag.tasks:
        task.retries = 0
    dag.get_task("contacts").rows_per_file = 20
    return dag


@pytest.mark.parametrize("kind", PROVIDERS)
def test_results_of_other_tasks_are_templates(kind: str) -> None:
    pytest.importorskip(f"airflow.providers.{PROVIDERS[kind]}", reason="needs the dependency group warehouses")
    dag = example(kind)
    assert [task.task_id for task in dag.topological_sort()] == ["contacts", "stage", "copy", "merge"]
    for field, value in vars(dag.get_task("copy")).items():
        if isinstance(value, str | list) and "{{" in str(value):
            assert field in dag.get_task("copy").template_fields, field


def people(warehouse: Standin) -> list[tuple[Any, ...]]:
    rows = warehouse.query(f"SELECT id, email, name, properties FROM {warehouse.schema}mail_contacts")
    return sorted((int(id), email, name, json.loads(properties)) for id, email, name, properties in rows)


def in_service(emulator: Emulator) -> list[tuple[Any, ...]]:
    found = emulator.contacts("newsletter")
    return sorted((int(one["id"]), one["email"], one.get("name"), one.get("properties") or {}) for one in found)


def succeeds(done: Done) -> None:
    assert {result.state for result in done.result.tasks.values()} == {"success"}, done.log


def test_the_example_loads_the_list(warehouse: Standin, run: Run, emulator: Emulator, clock: Clock) -> None:
    """From the service into the table, through the operator of Airflow's provider that loads files."""
    emulator.add_list("newsletter", count=50)
    odd = "Å \\ ' \" \n {} %s $1 ;"
    emulator.add_contact("odd@example.com", lists=["newsletter"], name=odd, properties={"city": odd})
    done = run(example(warehouse.kind))
    succeeds(done)
    assert done.result.xcom("contacts")["files"] == 3
    assert people(warehouse) == in_service(emulator)

    clock.sleep(3600)
    delete(emulator, emulator.contacts("newsletter")[3])
    emulator.add_contact("new@example.com", lists=["newsletter"])
    succeeds(run(example(warehouse.kind)))
    assert people(warehouse) == in_service(emulator)
    assert warehouse.query(f"SELECT part FROM {warehouse.schema}mail_loads") == [("newsletter",)]


# --- rows ---


def test_rows_through_the_hook(warehouse: Standin) -> None:
    things, hook = f"{warehouse.schema}things", warehouse.hook
    full = {"name": "a\\' \" \n %s %d 100% {} ? :x $1 å", "size": -5, "ratio": 1.5, "good": True, "day": NOON.date()}
    covers = Coverage.one("a'\\%s", {"account": "a"}, mail_conn_id="m", observed_at=NOON)
    extra = {"a": ["x\\ ' 5% %d"]}
    first = [thing(MARKED, 1, **full, sold_at=LATER, extra=extra), thing(MARKED, 2), thing(MARKED, 3)]
    load(hook, MARKED, things, first, covers=covers)
    columns = "number, name, size, ratio, good, day, sold_at, extra"
    ((number, *values, stored),) = warehouse.query(f"SELECT {columns} FROM {things} WHERE number = 1")
    assert (number, *values) == (1, *full.values(), LATER)
    assert json.loads(stored) == extra

    gone = MarkGone(LATER, lambda: [{"account": "a"}])
    load(hook, MARKED, things, [thing(MARKED, 1, at=LATER, name="new")], mark_gone=gone)
    load(hook, MARKED, things, [thing(MARKED, 1, name="old")])
    rows = warehouse.query(f"SELECT number, name, gone_at IS NOT NULL FROM {things} ORDER BY number")
    assert rows == [(1, "new", False), (2, None, True), (3, None, True)]
    loads = warehouse.query(f"SELECT table_name, part FROM {warehouse.schema}mail_loads")
    assert loads == [("things", "a'\\%s")]
    load(hook, MARKED, things, [thing(MARKED, 3, at=LATER)], replace_where={"account": "a"})
    assert warehouse.query(f"SELECT number FROM {things}") == [(3,)]


def test_loads_at_once(warehouse: Standin) -> None:
    """Each is tried again after a conflict, as the task is.

    BigQuery and Databricks reject one of two, which is repeated; Redshift lets it wait.
    """
    if warehouse.kind == "snowflake":
        pytest.skip("fakesnow's server does not report a conflict to its client")
    things = f"{warehouse.schema}things"
    of_a = {"covers": Coverage.one("a", {"account": "a"}, mail_conn_id="m", observed_at=NOON)}
    load(warehouse.hook, THINGS, things, [], **of_a)
    merges, all_begin = [], threading.Barrier(4)

    def before(sql: str) -> None:
        if sql.startswith(("BEGIN", "MERGE INTO crm.mail_loads")):
            merges.append(sql)
            if len(merges) <= 4:
                all_begin.wait(PATIENCE)

    if warehouse.server:
        warehouse.server.before = before
    rows = [thing(THINGS, number) for number in range(20)]

    def work(_: int) -> None:
        for _try in range(10):
            try:
                load(warehouse.hook, THINGS, things, rows, replace_where={"account": "a"}, **of_a)
                return
            except WarehouseError as error:
                assert "concurrent" in str(error)  # noqa: PT017
        raise AssertionError("never loaded")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert warehouse.query(f"SELECT COUNT(*), COUNT(DISTINCT number) FROM {things}") == [(20, 20)]
    assert warehouse.query(f"SELECT COUNT(*) FROM {warehouse.schema}mail_loads") == [(1,)]
    assert not merges or len(merges) > 4
