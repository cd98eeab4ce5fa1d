"""`SqlToMailContactsOperator`: what the rows of a query become in the service."""

from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from mail_emulator import Emulator
from tests.support.changes import at_every_request
from tests.support.clock import Clock
from tests.tasks.conftest import TASK, Run, SqlDatabase

IMPORTS = "contacts/imports"
PEOPLE = [
    ("ada@example.com", "Ada Lovelace", "+44 1"),
    ("bob@example.com", None, None),
    ("čeněk@example.com", "Čeněk 陈", ""),
    (None, "Dora", "+49 30 4"),
]


def people(database: SqlDatabase, rows: Any = PEOPLE) -> None:
    database.execute("CREATE TABLE people (email TEXT, name TEXT, phone_number TEXT)")
    database.execute("INSERT INTO people", rows)


def imported(**arguments: Any) -> SqlToMailContactsOperator:
    return SqlToMailContactsOperator(**{"task_id": TASK, "sql_conn_id": "crm", "list_name": "all"} | arguments)


def contacts(emulator: Emulator, list_name: str = "all") -> dict[str | None, tuple[str, str | None]]:
    """What the service holds: name and phone number by address."""
    found = emulator.contacts(list_name)
    return {contact["email"]: (contact["name"], contact["phoneNumber"]) for contact in found}


def test_columns_called_like_properties_need_no_mapping(run: Run, emulator: Emulator, any_crm: SqlDatabase) -> None:
    people(any_crm)

    run(lambda: imported(sql="SELECT * FROM people", list_description="Everybody"))

    assert contacts(emulator) == {
        "ada@example.com": ("Ada Lovelace", "+44 1"),
        "bob@example.com": ("bob@example.com", None),
        "čeněk@example.com": ("Čeněk 陈", None),
        None: ("Dora", "+49 30 4"),
    }
    assert [found["description"] for found in emulator.lists()] == ["Everybody"]


def test_columns_are_mapped_and_others_left_out(run: Run, emulator: Emulator, any_crm: SqlDatabase) -> None:
    any_crm.execute("CREATE TABLE customers (id INTEGER, full_name TEXT, secret TEXT, mail TEXT, since DATE)")
    any_crm.execute("INSERT INTO customers", [(7, "Ada", "hush", "ada@example.com", "2026-01-31")])

    columns = {"mail": "email", "full_name": "name", "since": "customer_since", "id": "customer_id"}
    run(lambda: imported(sql="SELECT * FROM customers", columns=columns))

    (contact,) = emulator.contacts("all")
    assert (contact["email"], contact["name"]) == ("ada@example.com", "Ada")
    assert contact["properties"] == {"customer_since": "2026-01-31", "customer_id": "7"}
    assert "hush" not in str(emulator.journal.entries(IMPORTS))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"columns": {"email": "email", "name": "email"}}, "columns: duplicate properties: email"),
        ({"sql": "SELECT email, name AS email FROM people"}, "columns: the source has more than one 'email'"),
        ({"rejects_table": "no table!"}, "rejects_table: `table` must be a name such as"),
        ({"list_name": None, "list_description": "Lost"}, "list_description is used only when list_name is given"),
        ({"max_reject_fraction": float("nan")}, "max_reject_fraction: must be a number from 0 to 1"),
    ],
)
def test_invalid_arguments_send_nothing(
    failure: Any, emulator: Emulator, crm: SqlDatabase, arguments: Any, words: str
) -> None:
    people(crm)
    assert words in failure(lambda: imported(**{"sql": "SELECT * FROM people"} | arguments))
    assert emulator.journal.count(IMPORTS) == 0


def test_parameters_reach_the_driver_and_not_the_log(run: Run, emulator: Emulator, any_crm: SqlDatabase) -> None:
    people(any_crm)
    sql = f"SELECT email, NULL AS name FROM people WHERE name = {any_crm.hook.placeholder}"

    done = run(lambda: imported(sql=sql, parameters=["Ada Lovelace"], null_value="unknown"))

    assert contacts(emulator) == {"ada@example.com": ("unknown", None)}
    assert "Lovelace" not in done.log


def test_the_log_shows_progress(run: Run, emulator: Emulator, crm: SqlDatabase, clock: Clock) -> None:
    people(crm, [(f"{number}@example.com", None, None) for number in range(1000)])
    uncounted = {"sql": "SELECT email FROM people", "chunk_size": 250, "max_in_flight": 1}
    with at_every_request(emulator, IMPORTS, lambda _: clock.sleep(20)):
        logs = [run(lambda given=given: imported(**uncounted, **given)).log for given in ({"count_first": True}, {})]
    lines = [next(line for line in log.splitlines() if "rows done" in line) for log in logs]
    assert re.search(r"\d+ rows done, 0 of them rejected, [\d,]+ rows/s, \d+% of 1,000, about \d+ s left", lines[0])
    assert "left" not in lines[1]


@pytest.mark.parametrize(
    ("addresses", "rows"),
    [
        (["Ann@x.com", "b@x.com", "c@x.com", "ann@x.com"], "1"),
        (["ann@xn--mnchen-3ya.de", None, "c@x.com", "ann@münchen.de"], "4"),
        (["rene\u0301@x.com", "b@x.com", "ren\u00e9@x.com", "B@x.com"], "1, 4"),
        (["Ann@x.com", "ann@x.com.de", "Ann@x.com", "strasse@x.de", "straße@x.de", None, None], ""),
    ],
)
def test_an_address_that_is_spelled_in_two_ways_is_reported(
    run: Run, emulator: Emulator, crm: SqlDatabase, addresses: list[str | None], rows: str
) -> None:
    people(crm, [(address, None, "+44 1") for address in addresses])

    done = run(lambda: imported(sql="SELECT * FROM people", chunk_size=2))

    assert done.state == "success"
    assert ("Keep one spelling of each address" in done.log) == bool(rows)
    assert not rows or f"such as those of rows {rows}. Each" in done.log
    assert "ann@" not in done.log.lower()
