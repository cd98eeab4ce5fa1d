"""`MailImportContactsOperator`: contacts that a DAG has at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from tests.support.processes import wait_for_threads
from tests.tasks.conftest import TASK, Run
from tests.tasks.waiting import timed_out_when

Make = Callable[..., MailImportContactsOperator]

ADA, BOB = {"email": "ada@example.com", "name": "Ada"}, {"email": "bob@example.com", "name": "Bob"}


def imported(contacts: Any, **arguments: Any) -> MailImportContactsOperator:
    return MailImportContactsOperator(**{"task_id": TASK, "contacts": contacts} | arguments)


def names(emulator: Emulator) -> dict[str, str]:
    return {contact["email"]: contact["name"] for contact in emulator.contacts()}


def yielded() -> Iterator[dict[str, str]]:
    yield ADA
    yield BOB


@pytest.mark.parametrize(
    ("contacts", "arguments"),
    [
        ([ADA, BOB], {}),
        ((ADA, BOB), {}),
        ([list(ADA.values()), tuple(BOB.values())], {"column_names": ["email", "name"]}),
        (lambda: [ADA, BOB], {}),
        (yielded, {}),
        (lambda: (list(row.values()) for row in (ADA, BOB)), {"column_names": ["email", "name"]}),
        ([{"mail": row["email"], "called": row["name"], "x": 1} for row in (ADA, BOB)],
         {"columns": {"called": "name", "mail": "email"}}),
        ([[1, "ada@example.com", "Ada"], [2, "bob@example.com", "Bob"]],
         {"column_names": ["id", "mail", "name"], "columns": {"mail": "email", "name": "name"}}),
    ],
    ids=["dicts", "tuple", "lists", "function", "generator", "generator of lists", "mapped dicts", "mapped lists"],
)  # fmt: skip
def test_rows_of_every_kind(run: Run, emulator: Emulator, contacts: Any, arguments: dict[str, Any]) -> None:
    done = run(lambda: imported(contacts, **arguments))

    assert done.state == "success", done.log
    assert names(emulator) == {"ada@example.com": "Ada", "bob@example.com": "Bob"}
    assert (done.returned["read"], done.returned["accepted"]) == (2, 2)


def test_rows_from_another_task(run: Run, new_dag: Callable[..., DAG], emulator: Emulator) -> None:
    with new_dag() as dag:

        @task
        def dicts() -> list[dict[str, str]]:
            return [ADA]

        @task
        def lists() -> list[list[str]]:
            return [["bob@example.com", "{{ not.jinja }}"]]

        @task
        def columns() -> list[str]:
            return ["email", "name"]

        imported(dicts(), task_id="one")
        imported(lists(), task_id="two", column_names=columns())

    done = run(dag)

    assert done.state == "success", done.log
    assert names(emulator) == {"ada@example.com": "Ada", "bob@example.com": "{{ not.jinja }}"}
    assert {task.task_id: task.upstream_task_ids for task in dag.tasks if task.task_id in ("one", "two")} == {
        "one": {"dicts"},
        "two": {"lists", "columns"},
    }


def test_mapped_over_the_output_of_another_task(
    run_in_airflow: Run, new_dag: Callable[..., DAG], emulator: Emulator
) -> None:
    with new_dag() as dag:

        @task
        def parts() -> list[list[dict[str, str]]]:
            return [[ADA], [BOB | {"name": "{{ not.jinja }}"}]]

        MailImportContactsOperator.partial(task_id=TASK, list_name="all").expand(contacts=parts())

    done = run_in_airflow(dag)

    assert done.state == "success", done.log
    assert names(emulator) == {"ada@example.com": "Ada", "bob@example.com": "{{ not.jinja }}"}
    assert [done.result.xcom(TASK, map_index=index)["accepted"] for index in (0, 1)] == [1, 1]


def test_rows_in_the_dag_file_are_templates(run: Run, new_dag: Callable[..., DAG], emulator: Emulator) -> None:
    with new_dag(params={"name": "Ada"}) as dag:

        @task
        def address() -> str:
            return "bob@example.com"

        imported([ADA | {"name": "{{ params.name }} L."}, {"email": address()}])

    done = run(dag)

    assert done.state == "success", done.log
    assert names(emulator) == {"ada@example.com": "Ada L.", "bob@example.com": "bob@example.com"}


def test_a_function_is_asked_again_by_every_try(run: Run, emulator: Emulator) -> None:
    calls: list[int] = []

    def contacts() -> list[dict[str, str]]:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("not yet")
        return [ADA]

    done = run(lambda: imported(contacts, retries=1, retry_delay=0))

    assert (done.state, done.tries, len(calls)) == ("success", 2, 2)
    assert list(names(emulator)) == ["ada@example.com"]


@pytest.mark.parametrize(
    ("contacts", "arguments", "words"),
    [
        (lambda: None, {}, "contacts: a list of rows is needed, not NoneType"),
        ("{{ 'ada@example.com' }}", {}, "contacts: a list of rows is needed, not str"),
        (lambda: ADA, {}, "contacts: a list of rows is needed, not dict"),
        (lambda: 7, {}, "contacts: a list of rows is needed, not int"),
        ([["ada@example.com"]], {}, "column_names: needed when contacts are lists and not dictionaries"),
        (lambda: ["ada@example.com"], {"column_names": ["email"]}, "row 1 is of type str"),
        (lambda: [["ada@example.com"], ADA], {"column_names": ["email"]}, "row 2 is of type dict"),
        (lambda: [ADA, ["bob@example.com", "Bob"]], {}, "row 2 is of type list"),
        (lambda: [ADA, None], {}, "row 2 is of type NoneType"),
        (lambda: [ADA, BOB | {"phone_number": "+1"}], {}, "row 2 has 'phone_number', the first row has not"),
        (lambda: [{"nick": "Ada"}], {}, "columns: which property do 'nick' belong to"),
        (lambda: [{"name": "Ada"}], {}, "neither email nor phoneNumber is among the properties"),
    ],
)
def test_what_are_no_rows(run: Run, emulator: Emulator, contacts: Any, arguments: dict[str, Any], words: str) -> None:
    done = run(lambda: imported(contacts, retries=2, **arguments))

    assert (done.state, done.tries) == ("failed", 1)
    assert words in done.log
    assert emulator.journal.count("contacts/imports") == 0


def test_keys_may_be_left_out_and_are_named_where_they_come_later(run: Run, emulator: Emulator) -> None:
    rows = [{"email": "ada@example.com"}, BOB, {"phone_number": "+1"}]
    columns = {"email": "email", "name": "name", "phone_number": "phoneNumber"}

    assert run(lambda: imported(rows, columns=columns)).state == "success"

    found = [(contact["email"], contact["name"], contact["phoneNumber"]) for contact in emulator.contacts()]
    assert found == [
        ("ada@example.com", "ada@example.com", None),
        ("bob@example.com", "Bob", None),
        (None, "+1", "+1"),
    ]


@pytest.mark.parametrize(("on_empty", "state"), [("error", "failed"), ("skip", "skipped"), ("continue", "success")])
def test_no_row_at_all(run: Run, new_dag: Callable[..., DAG], emulator: Emulator, on_empty: str, state: str) -> None:
    with new_dag() as dag:

        @task
        def nobody() -> list[dict[str, str]]:
            return []

        imported(nobody(), task_id="from_task", on_empty=on_empty)
        imported([], task_id="literal", on_empty=on_empty)
        imported(lambda: iter(()), task_id="function", on_empty=on_empty)

    done = run(dag)

    assert {name: done.result.task(name).state for name in ("from_task", "literal", "function")} == {
        "from_task": state,
        "literal": state,
        "function": state,
    }
    assert emulator.journal.count() == 0


def test_many_rows_of_a_generator_in_many_chunks(run: Run, emulator: Emulator) -> None:
    def contacts() -> Iterator[dict[str, str]]:
        for number in range(3000):
            yield {"email": f"{number}@example.com"}

    done = run(lambda: imported(contacts, chunk_size=100, list_name="all"))

    assert done.state == "success"
    assert emulator.contact_count("all") == 3000
    assert done.returned["requests"] == emulator.journal.count("contacts/imports") == 30


@pytest.mark.parametrize(("kind", "params"), [("too_many_requests", {"retry_after": 100}), ("delay", {"seconds": 20})])
def test_execution_timeout_ends_an_import(run: Run, emulator: Emulator, kind: str, params: dict[str, Any]) -> None:
    """Whether the service asks for patience or stalls: nothing is sent afterwards, and no thread is left."""
    emulator.faults.add(kind, "contacts/imports", count=None, **params)
    rows = [{"email": f"p{number}@example.com"} for number in range(40)]

    with timed_out_when(lambda: emulator.journal.count("contacts/imports")):
        done = run(lambda: imported(rows, chunk_size=2, execution_timeout=timedelta(minutes=1)))

    assert done.state == "failed"
    assert "AirflowTaskTimeout" in done.log
    # What ended it came before the service's 20 or 100 seconds were over, and its threads are gone. One that was about
    # to start ends a moment later.
    wait_for_threads("mail-import", timeout=15)
    assert emulator.journal.count("contacts/imports") <= 16
