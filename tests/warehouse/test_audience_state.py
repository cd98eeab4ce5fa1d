"""The state of an audience beside its source, in every database that has a dialect."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_mail._audience.store import Header, SqlStateStore, StateChangedError, StoredPart
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from mail_emulator import Emulator
from tests.warehouse.conftest import NATIVE, Warehouse

PEOPLE = 60
RUNS = 4


@pytest.fixture(autouse=True)
def _connected(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key}
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps(settings))
    monkeypatch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", "a secret")


def imported(**arguments: Any) -> dict[str, Any]:
    operator = SqlToMailContactsOperator(
        task_id="load", sql_conn_id="warehouse", sql="SELECT email, name FROM people", list_name="friends",
        audience="exact", changes_only=True, chunk_size=10, max_in_flight=1, log_table="runs", **arguments,
    )  # fmt: skip
    ti = SimpleNamespace(dag_id="dag", task_id="load", run_id="run", map_index=-1, try_number=1)
    result: dict[str, Any] = operator.execute({"ti": ti, "params": {}})
    return result


@pytest.mark.parametrize("kind", NATIVE)
def test_of_several_runs_at_once_one_has_the_audience(kind: str, make_warehouse: Callable[..., Warehouse]) -> None:
    warehouse, header = make_warehouse(kind), Header.new("dag/load")
    stores = [SqlStateStore(warehouse.another().hook, "audiences", header.audience_id) for _ in range(RUNS)]
    for store in stores:
        store.create(header)
    start = threading.Barrier(RUNS)

    def claim(number: int) -> bool:
        read = stores[number].read()
        assert read == header
        start.wait(60)
        try:
            return bool(stores[number].update(header, claimed_by=f"run {number}"))
        except StateChangedError:
            return False

    with ThreadPoolExecutor(RUNS) as pool:
        claimed = list(pool.map(claim, range(RUNS)))
    assert sorted(claimed) == [False] * (RUNS - 1) + [True]
    stored = stores[0].read()
    assert stored is not None
    assert [stored.version, stored.claimed_by] == [1, f"run {claimed.index(True)}"]


@pytest.mark.parametrize("kind", NATIVE)
def test_members_are_written_whole_and_deleted(kind: str, make_warehouse: Callable[..., Warehouse]) -> None:
    warehouse, header = make_warehouse(kind), replace(Header.new("dag/load"), generation="a")
    store = SqlStateStore(warehouse.hook, "audiences", header.audience_id)
    store.create(header)

    def fails() -> Iterator[StoredPart]:
        yield 2, "left", 1, "{}", "s"
        raise RuntimeError("the process ends")

    parts: list[StoredPart] = [(0, "member", 2, "{}", "s"), (1, "left", 1, '{"0": [1]}', "t")]
    store.write("b", parts[:1])
    for part in parts:
        store.write("a", [part])
    with pytest.raises(RuntimeError):
        store.write("a", fails())
    assert list(map(tuple, store.parts("a"))) == parts
    store.delete(header)
    assert [store.read(), list(store.parts("a")), len(list(store.parts("b")))] == [None, [], 1]


@pytest.mark.parametrize("kind", NATIVE)
def test_the_state_is_written_while_the_source_is_there(
    kind: str, make_warehouse: Callable[..., Warehouse], emulator: Emulator
) -> None:
    warehouse = make_warehouse(kind)
    people = ", ".join(f"('p{number:02}@example.com', 'N', {number})" for number in range(PEOPLE))
    warehouse.execute(
        "CREATE TABLE people (email VARCHAR(100), name VARCHAR(100), number INTEGER)",
        f"INSERT INTO people VALUES {people}",
    )
    counts = ("joined", "changed", "left", "size")
    steps = {
        "": (60, 0, 0, 60),
        "UPDATE people SET name = 'M' WHERE number < 5": (0, 5, 0, 60),
        "DELETE FROM people WHERE number >= 50": (0, 0, 10, 50),
        "INSERT INTO people VALUES ('p55@example.com', 'N', 55), ('new@example.com', 'N', 61)": (2, 0, 0, 52),
    }
    for statement, expected in steps.items():
        warehouse.execute(*filter(None, [statement]))
        result = imported()
        assert tuple(result[name] for name in counts) == expected, statement
    lists = {entry["name"]: entry["contacts"] for entry in emulator.lists()}
    assert [lists[name] for name in (*result["send_list_names"], *result["repel_list_names"])] == [61, 9]
    ((runs,),) = warehouse.query("SELECT COUNT(*) FROM runs")
    assert runs == 1, "a try replaces the log of the one before"
