"""Contacts of a list in a table: all of them or none, whatever the list and the service do meanwhile."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from airflow_provider_mail.api.errors import MailIncompleteError, MailInterruptedError
from airflow_provider_mail.transfers.mail_to_sql import MailContactsToSqlOperator
from airflow_provider_mail.version_compat import AirflowFailException
from airflow_provider_mail.warehouse.errors import UnconfirmedError
from mail_emulator import Emulator
from tests.support.changes import at_request
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase
from tests.tasks.loading import LIST, UTC, delete, executed, ids_in_service, post

REQUESTS = 11
"""Of one reading of the list of 95, by pages of 10."""


def task(list_name: str = "newsletter", **arguments: Any) -> MailContactsToSqlOperator:
    given = {"task_id": TASK, "sql_conn_id": "warehouse", "page_size": 10, "max_in_flight": 4}
    return MailContactsToSqlOperator(list_name=list_name, **given | arguments)


def load(list_name: str = "newsletter", **arguments: Any) -> dict[str, Any]:
    return executed(task(list_name, **arguments))


def ids(warehouse: SqlDatabase) -> list[str]:
    return [id for (id,) in warehouse.query("SELECT id FROM mail_contacts ORDER BY CAST(id AS int)")]


def ended(warehouse: SqlDatabase) -> list[str]:
    """The contacts whose stay in the list has ended."""
    return [id for (id,) in warehouse.query("SELECT id FROM mail_contacts_history WHERE valid_to IS NOT NULL")]


@pytest.fixture
def people(emulator: Emulator) -> Emulator:
    """A list of 95."""
    emulator.add_list("newsletter", count=95)
    return emulator


HISTORY = ("mail_contacts_history", "mail_contacts_history_readings")
Meanwhile = Callable[[int, Callable[[], Any]], None]


@pytest.fixture
def meanwhile(people: Emulator) -> Iterator[Meanwhile]:
    """A function that changes something before the service performs the n-th request for a page, counted from one."""
    with ExitStack() as stack:
        yield lambda number, change: stack.enter_context(at_request(people, LIST, number, change, before=True))


def joins(people: Emulator) -> None:
    people.add_contact("new@example.com", lists=["newsletter"])


def first_leaves(people: Emulator) -> None:
    delete(people, people.contacts("newsletter")[0])


# --- what is in the table ---


def test_the_row_of_a_contact(run: Run, emulator: Emulator, any_warehouse: SqlDatabase, connect: Connect) -> None:
    connect(team_name="Marketing")
    moment = datetime.datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    emulator.clock.freeze(moment)
    emulator.add_list("newsletter")
    system = {"email_bounced_flag": "1", "email_bounced_time": "2026-02-03 04:05:06", "email_open_count": "12"}
    properties = {**system, "city": "Zürich"}
    emulator.add_contact(
        "ada@example.com", name="Ada 春", phone_number="+44 1", properties=properties, lists=["newsletter"]
    )
    emulator.add_contact(phone_number="+44 2", properties={"email_open_count": "many"}, lists=["newsletter"])

    done = run(lambda: task("{{ 'news' ~ 'letter' }}", table="{{ 'mail' ~ '_contacts' }}"))

    columns = "email, name, phone_number, email_bounced_flag, email_bounced_time, email_open_count, create_user_id"
    assert any_warehouse.query(f"SELECT mail_conn_id, team, list_name, {columns} FROM mail_contacts ORDER BY id") == [
        ("mail_default", "Marketing", "newsletter", "ada@example.com", "Ada 春", "+44 1", "1", "2026-02-03 04:05:06",
         12, 1001),
        ("mail_default", "Marketing", "newsletter", None, "+44 2", "+44 2", None, None, None, 1001),
    ]  # fmt: skip
    columns = "properties, create_date, modify_time, observed_at"
    stored, *times = any_warehouse.query(f"SELECT {columns} FROM mail_contacts ORDER BY id")[0]
    if any_warehouse.is_sqlite:
        stored = json.loads(stored)
        times = [datetime.datetime.fromisoformat(f"{text}+00:00") for text in times]
    assert (stored, times[:2]) == (properties, [moment, moment])
    assert datetime.timedelta(0) <= moment - times[2] < datetime.timedelta(minutes=1)  # by the service's clock
    assert done.returned == {
        "list_name": "newsletter", "table": "mail_contacts", "records": 2, "readings": 1,
        "inserted": 2, "changed": 0, "unchanged": 0, "outdated": 0, "deleted": 0,
    }  # fmt: skip
    # Rows name the run that loaded them, and `mail_loads` the task.
    assert any_warehouse.query("SELECT DISTINCT run_id FROM mail_contacts") == [(done.result.run_id,)]
    columns = "run_id, dag_id, task_id, map_index, try_number, load_rows"
    assert any_warehouse.query(f"SELECT {columns} FROM mail_loads") == [
        (done.result.run_id, done.result.dag_id, TASK, -1, 1, 2)
    ]


def test_pages_are_requested_as_rows_are_needed(people: Emulator) -> None:
    with task(page_size=5).reading({}) as reading:  # type: ignore[typeddict-item]
        next(reading.rows)
        assert people.journal.count(LIST) < REQUESTS < 95 / 5


# --- again ---


@pytest.mark.parametrize("options", [{}, {"mode": "upsert"}])
def test_a_second_load_changes_its_list_alone(
    people: Emulator, any_warehouse: SqlDatabase, connect: Connect, options: dict[str, str]
) -> None:
    """One contact left, one joined, one has another name. `upsert` keeps who left."""
    people.settings.cross_team_permission = True
    connect("other")
    people.add_list("theirs", ["bob@example.com"], team="Sales")
    load("theirs", team_name="Sales", **options)
    load(mail_conn_id="other", **options)
    load(**options)
    own = "mail_conn_id = 'mail_default' AND list_name = 'newsletter'"
    others = f"SELECT * FROM mail_contacts WHERE NOT ({own}) ORDER BY mail_conn_id, id"
    before = any_warehouse.query(others)
    gone, changed = people.contacts("newsletter")[40:42]
    delete(people, gone)
    joins(people)
    post(people, "contacts/upsert", email=changed["email"], name="Somebody else")

    result = load(**options)

    counts = [result.get(name) for name in ("inserted", "changed", "unchanged", "deleted")]
    assert counts == [1, 1, 93, None if options else 1]
    held = {id for (id,) in any_warehouse.query(f"SELECT id FROM mail_contacts WHERE {own}")}
    assert held == {*ids_in_service(people)} | ({gone["id"]} if options else set())
    assert (any_warehouse.query(others), len(before)) == (before, 96)


@pytest.mark.parametrize("options", [{}, {"history": True, "mode": "upsert"}])
def test_most_contacts_gone_needs_a_permission(
    people: Emulator, warehouse: SqlDatabase, options: dict[str, Any]
) -> None:
    people.clock.advance(days=-30)  # the clock of the database does not jump, and the service's may not be ahead
    load(**options)
    for gone, permission in ((60, {"max_removed_fraction": 0.7}), (35, {"allow_empty": True})):
        people.clock.advance(days=1)
        delete(people, *people.contacts("newsletter")[:gone])
        with pytest.raises(UnconfirmedError, match="".join(permission)):
            load(**options)
        result = load(**options, **permission)
        assert (result["left" if options else "deleted"], result["readings"]) == (gone, 2)
    assert warehouse.tables() == {"mail_contacts", *(HISTORY if options else ["mail_loads"])}


def test_one_empty_response_empties_no_table(people: Emulator, warehouse: SqlDatabase) -> None:
    """Code 200, no contacts, total 0: it is requested a second time, also where the list may be empty."""
    for permission in ({}, {"allow_empty": True}):
        people.faults.add("empty_page", LIST, count=1, total=0)
        result = load(**permission)
        assert (result["records"], result["deleted"], result["readings"]) == (95, 0, 2)
    assert ids(warehouse) == ids_in_service(people)


def test_an_empty_list_of_another_team_needs_a_permission(people: Emulator, warehouse: SqlDatabase) -> None:
    """The specification shows no way to find out whether there is a list of that name."""
    people.settings.cross_team_permission = True
    people.add_list("theirs", team="Sales")
    with pytest.raises(AirflowFailException, match=r"list_name, team_name: .*'theirs' of team 'Sales'.*allow_empty"):
        load("theirs", team_name="Sales")
    assert load("theirs", team_name="Sales", allow_empty=True)["records"] == 0


@pytest.mark.parametrize("code", [404, 200])
def test_a_list_that_does_not_exist_is_not_empty(people: Emulator, warehouse: SqlDatabase, code: int) -> None:
    """Also of a service that returns no contacts for a wrong name."""
    load()
    post(people, "lists/delete", listName="newsletter")
    people.settings.not_found_code = code
    with pytest.raises(AirflowFailException, match="list"):
        load(allow_empty=True)
    assert len(ids(warehouse)) == 95


# --- while it is read ---


@pytest.mark.parametrize(
    ("options", "change", "records", "readings"),
    [
        ({}, joins, 96, 1),
        ({}, first_leaves, 94, 2),  # the others move up by one place, past the reader
        ({"on_change": "accept"}, first_leaves, 94, 1),
    ],
)
def test_a_list_that_changes(
    people: Emulator, warehouse: SqlDatabase, meanwhile: Meanwhile,
    options: dict[str, Any], change: Callable[[Emulator], None], records: int, readings: int,
) -> None:  # fmt: skip
    meanwhile(6, lambda: change(people))
    # One page after the other: of several at once a contact that leaves may hide more than one of the others.
    result = load(max_in_flight=1, **options)
    assert (result["records"], result["readings"], len(ids(warehouse))) == (records, readings, records)
    assert (ids(warehouse) == ids_in_service(people)) is (not options or change is joins)


def test_a_list_that_changes_too_often_is_not_loaded(
    people: Emulator, warehouse: SqlDatabase, meanwhile: Meanwhile
) -> None:
    for number in range(2, 100, 3):
        meanwhile(number, lambda: first_leaves(people))
    for options, readings in (({}, 3), ({"on_change": "fail"}, 1)):
        operator = task(**options)
        with pytest.raises(MailIncompleteError) as raised:
            executed(operator)
        assert "Set on_change to decide" in raised.value.__notes__[0]
        assert (operator.readings, warehouse.tables()) == (readings, set())


def test_a_contact_between_two_pages_never_left(people: Emulator, warehouse: SqlDatabase, meanwhile: Meanwhile) -> None:
    """One leaves and another joins while the list is read: the total stays, and one page is skipped by one contact."""
    people.clock.advance(days=-30)  # the clock of the database does not jump, and the service's may not be ahead
    options = {"mode": "upsert", "history": True, "max_in_flight": 1}
    load(**options)
    first = people.contacts("newsletter")[0]
    meanwhile(6, lambda: (first_leaves(people), joins(people)))
    people.clock.advance(days=1)
    result = load(**options)
    # The contact behind the fifth page was not on the sixth; the second reading has it, and not the one who left.
    assert (result["readings"], result["left"], ended(warehouse)) == (2, 0, [])
    people.clock.advance(days=1)
    assert (load(**options)["left"], ended(warehouse)) == (1, [first["id"]])
    assert warehouse.query("SELECT count(*), count(DISTINCT id) FROM mail_contacts_history") == [(96, 96)]


def test_a_kill_ends_any_reading(people: Emulator, warehouse: SqlDatabase, meanwhile: Meanwhile) -> None:
    """The second one of a load, and one that has not begun."""
    load()
    first_leaves(people)
    before = people.journal.count(LIST)
    for begun in (True, False):
        operator = task()
        if begun:
            meanwhile(REQUESTS + 3, operator.on_kill)
        else:
            operator.on_kill()
        with pytest.raises(MailInterruptedError):
            executed(operator)
        assert people.journal.count(LIST) < before + 2 * REQUESTS
    assert len(ids(warehouse)) == 95
