"""Contacts of a list in a table: all of them or none, whatever the list and the service do meanwhile."""

from __future__ import annotations

import datetime
import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from airflow_provider_mail.api.errors import MailIncompleteError, MailInterruptedError
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.transfers.mail_to_sql import MailContactsToSqlOperator
from airflow_provider_mail.version_compat import AirflowFailException
from airflow_provider_mail.warehouse.errors import UnconfirmedError
from tests.support.changes import at_request
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase
from tests.tasks.loading import LIST, UTC, delete, error_of, executed, ids_in_service, post
from tests.tasks.test_privacy import assert_nothing_planted

REQUESTS = 11
"""Of one reading of the list of 95, by pages of 10."""


def task(list_name: str = "newsletter", **arguments: Any) -> MailContactsToSqlOperator:
    given = {"task_id": TASK, "sql_conn_id": "warehouse", "page_size": 10, "max_in_flight": 4}
    return MailContactsToSqlOperator(list_name=list_name, **given | arguments)


def load(list_name: str = "newsletter", **arguments: Any) -> dict[str, Any]:
    return executed(task(list_name, **arguments))


def ids(warehouse: SqlDatabase, list_name: str = "newsletter") -> list[str]:
    rows = warehouse.query(f"SELECT id FROM mail_contacts WHERE list_name = '{list_name}' ORDER BY CAST(id AS int)")
    return [id for (id,) in rows]


@pytest.fixture
def people(emulator: Emulator) -> Emulator:
    """A list of 95."""
    emulator.add_list("newsletter", count=95)
    return emulator


@pytest.fixture
def meanwhile(people: Emulator) -> Iterator[Callable[[int, Callable[[], Any]], None]]:
    """A function that changes something before the service performs the n-th request for a page, counted from one."""
    with ExitStack() as stack:
        yield lambda number, change: stack.enter_context(at_request(people, LIST, number, change, before=True))


Meanwhile = Callable[[int, Callable[[], Any]], None]


def joins(people: Emulator, email: str = "new@example.com") -> None:
    people.add_contact(email, lists=["newsletter"])


# --- what is in the table ---


def test_the_row_of_a_contact(run: Run, emulator: Emulator, any_warehouse: SqlDatabase, connect: Connect) -> None:
    connect(team_name="Marketing")
    moment = datetime.datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    emulator.clock.set(moment)
    emulator.clock.freeze()
    emulator.add_list("newsletter")
    system = {"email_bounced_flag": "1", "email_bounced_time": "2026-02-03 04:05:06", "email_open_count": "12"}
    ada = {"name": "Ada 春", "phone_number": "+44 1", "properties": {**system, "city": "Zürich"}}
    emulator.add_contact("ada@example.com", lists=["newsletter"], **ada)  # type: ignore[arg-type]
    emulator.add_contact(phone_number="+44 2", properties={"email_open_count": "many"}, lists=["newsletter"])

    done = run(lambda: task("{{ 'news' ~ 'letter' }}", table="{{ 'mail' ~ '_contacts' }}"))

    assert done.state == "success", done.log
    columns = (
        "mail_conn_id, team, list_name, email, name, phone_number, email_bounced_flag, email_bounced_time, "
        "email_open_count, create_user_id"
    )
    where_from = ("mail_default", "Marketing", "newsletter")
    assert any_warehouse.query(f"SELECT {columns} FROM mail_contacts ORDER BY id") == [
        (*where_from, "ada@example.com", "Ada 春", "+44 1", "1", "2026-02-03 04:05:06", 12, 1001),
        (*where_from, None, "+44 2", "+44 2", None, None, None, 1001),
    ]
    columns = "properties, create_date, modify_time, observed_at"
    properties, *times = any_warehouse.query(f"SELECT {columns} FROM mail_contacts ORDER BY id")[0]
    if any_warehouse.is_sqlite:
        properties = json.loads(properties)
        times = [datetime.datetime.fromisoformat(f"{text}+00:00") for text in times]
    assert properties == ada["properties"]
    assert times[:2] == [moment, moment]
    assert datetime.timedelta(0) <= moment - times[2] < datetime.timedelta(minutes=1)  # by the service's clock
    assert done.returned == {
        "list_name": "newsletter", "table": "mail_contacts", "records": 2, "readings": 1,
        "inserted": 2, "changed": 0, "unchanged": 0, "outdated": 0, "deleted": 0,
    }  # fmt: skip


def test_the_default_arguments() -> None:
    operator = MailContactsToSqlOperator(task_id=TASK, sql_conn_id="warehouse", list_name="newsletter")
    values = (operator.page_size, operator.max_in_flight, operator.mode, operator.on_change)
    assert values == (1000, 8, "replace", "retry")


def test_memory_does_not_grow_with_the_list(
    emulator: Emulator, make_database: Callable[[str, str], SqlDatabase]
) -> None:
    """All contacts at once would be some 12 MB more; of each, some 100 bytes are kept to find repeated ones."""
    make_database("postgres", "warehouse")
    emulator.add_list("few", count=2_500)
    emulator.add_list("many", count=15_000)
    load("few", page_size=500)  # imports everything
    peaks = []
    for name in ("few", "many"):
        tracemalloc.start()
        load(name, page_size=500)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 5_000_000


# --- again ---


@pytest.mark.parametrize("mode", ["replace", "upsert"])
def test_a_second_load_changes_its_list_alone(
    people: Emulator, any_warehouse: SqlDatabase, connect: Connect, mode: str
) -> None:
    """One contact left, one joined, one has another name. `upsert` keeps who left, and shows when all were seen."""
    people.settings.cross_team_permission = True
    connect("other")
    people.add_list("theirs", ["bob@example.com"], team="Sales")
    load("theirs", team_name="Sales", mode=mode)
    load(mail_conn_id="other", mode=mode)
    assert load(mode=mode)["records"] == 95
    assert people.journal.count(LIST) == 2 * REQUESTS + 2
    own = "mail_conn_id = 'mail_default' AND list_name = 'newsletter'"
    others = f"SELECT * FROM mail_contacts WHERE NOT ({own}) ORDER BY mail_conn_id, id"
    seen = f"SELECT id, observed_at FROM mail_contacts WHERE {own}"
    before, others_before = dict(any_warehouse.query(seen)), any_warehouse.query(others)
    gone, changed = people.contacts("newsletter")[40:42]
    delete(people, gone)
    joins(people)
    post(people, "contacts/upsert", email=changed["email"], name="Somebody else")

    result = load(mode=mode)

    assert (result["inserted"], result["changed"], result["unchanged"]) == (1, 1, 93)
    assert result.get("deleted") == (1 if mode == "replace" else None)
    later = dict(any_warehouse.query(seen))
    assert set(later) == {*ids_in_service(people)} | ({gone["id"]} if mode == "upsert" else set())
    new = {id for id, at in later.items() if at != before.get(id)}
    if mode == "upsert":
        assert new == {*ids_in_service(people)}
        assert "mail_loads" not in any_warehouse.tables()
    else:
        assert new == {changed["id"], max(later, key=int)}
        read = dict(any_warehouse.query("SELECT part, observed_at FROM mail_loads WHERE mail_conn_id = 'mail_default'"))
        assert sorted(read) == ["Sales/theirs", "newsletter"]
        assert read["newsletter"] == later[changed["id"]]
    assert any_warehouse.query(others) == others_before
    assert len(others_before) == 96
    assert {entry["body"].get("teamName") for entry in people.journal.entries(LIST)} == {None, "Sales"}
    load(on_change="accept")  # may not have seen all, so each row shows when it was seen
    assert len({at for id, at in any_warehouse.query(seen) if id != gone["id"]}) == 1


@pytest.mark.parametrize("options", [{}, {"history": True}, {"history": True, "mode": "upsert"}])
def test_most_contacts_gone_needs_a_permission(
    people: Emulator, warehouse: SqlDatabase, options: dict[str, Any]
) -> None:
    people.clock.advance(days=-30)  # the clock of the database does not jump, and the service's may not be ahead
    load(**options)
    count = f"{'left' if options else 'deleted'}"
    ended = "SELECT count(*) FROM mail_contacts_history WHERE valid_to IS NOT NULL"
    for gone, message, permission in (
        (60, r"95 rows would become 35.*max_removed_fraction", {"max_removed_fraction": 0.7}),
        (35, r"35 rows would become 0\. Nothing was removed; allow_empty=True allows it", {"allow_empty": True}),
    ):
        people.clock.advance(days=1)
        delete(people, *people.contacts("newsletter")[:gone])
        before = warehouse.query(ended) if options else ids(warehouse)
        with pytest.raises(UnconfirmedError, match=message):
            load(**options)
        assert (warehouse.query(ended) if options else ids(warehouse)) == before
        result = load(**options, **permission)
        assert (result[count], result["readings"]) == (gone, 2)
    assert len(ids(warehouse)) == (95 if options.get("mode") == "upsert" else 0)


@pytest.mark.parametrize("permission", [{}, {"allow_empty": True}])
def test_one_empty_response_empties_no_table(
    people: Emulator, any_warehouse: SqlDatabase, permission: dict[str, Any]
) -> None:
    """Code 200, no contacts, total 0: it is requested a second time, also where the list may be empty."""
    load()
    people.faults.add("empty_page", LIST, count=1, total=0)
    result = load(**permission)
    assert (result["records"], result["deleted"], result["readings"]) == (95, 0, 2)
    assert ids(any_warehouse) == ids_in_service(people)


def test_an_empty_list_of_another_team_needs_a_permission(people: Emulator, warehouse: SqlDatabase) -> None:
    """The specification shows no way to find out whether there is a list of that name."""
    people.settings.cross_team_permission = True
    people.add_list("theirs", team="Sales")
    with pytest.raises(AirflowFailException, match=r"list_name, team_name: .*'theirs' of team 'Sales'.*allow_empty"):
        load("theirs", team_name="Sales")
    assert load("theirs", team_name="Sales", allow_empty=True)["records"] == 0


@pytest.mark.parametrize("code", [404, 200])
def test_a_list_that_does_not_exist_is_not_empty(run: Run, people: Emulator, warehouse: SqlDatabase, code: int) -> None:
    """Also of a service that returns no contacts for a wrong name."""
    load()
    post(people, "lists/delete", listName="newsletter")
    people.settings.not_found_code = code
    done = run(lambda: task(retries=2, allow_empty=True))
    assert (done.state, done.tries, len(ids(warehouse))) == ("failed", 1, 95)
    assert "list" in done.log


# --- while it is read ---


@pytest.mark.parametrize(
    ("on_change", "change", "records", "readings"),
    [
        ("retry", "joins", 96, 1),
        ("accept", "joins", 96, 1),
        ("fail", "joins", None, 1),
        ("retry", "leaves", 94, 2),  # the others move up by one place, past the reader
        ("accept", "leaves", 94, 1),
    ],
)
def test_a_list_that_changes(
    people: Emulator, warehouse: SqlDatabase, meanwhile: Meanwhile,
    on_change: str, change: str, records: int | None, readings: int,
) -> None:  # fmt: skip
    first = people.contacts("newsletter")[0]
    meanwhile(6, lambda: joins(people) if change == "joins" else delete(people, first))
    # One page after the other: of several at once a contact that leaves may hide more than one of the others.
    operator = task(on_change=on_change, max_in_flight=1)
    if records is None:
        with pytest.raises(MailIncompleteError, match="the list changed while it was read"):
            executed(operator)
        assert (warehouse.tables(), people.journal.count(LIST) <= REQUESTS) == (set(), True)
    else:
        result = executed(operator)
        assert (result["records"], result["readings"], len(ids(warehouse))) == (records, readings, records)
        assert ids(warehouse) == ids_in_service(people) or (on_change, change) == ("accept", "leaves")


@pytest.mark.parametrize("mode", ["replace", "upsert"])
def test_a_contact_between_two_pages_never_left(
    people: Emulator, any_warehouse: SqlDatabase, meanwhile: Meanwhile, mode: str
) -> None:
    """One leaves and another joins while the list is read: the total stays, and one page is skipped by one contact."""
    ended = "SELECT id FROM mail_contacts_history WHERE valid_to IS NOT NULL"
    people.clock.advance(days=-30)  # the clock of the database does not jump, and the service's may not be ahead
    options = {"mode": mode, "history": True, "max_in_flight": 1}
    load(**options)
    first = people.contacts("newsletter")[0]

    def change() -> None:
        delete(people, first)
        joins(people)

    meanwhile(6, change)
    people.clock.advance(days=1)
    result = load(**options)
    # The contact behind the fifth page was not on the sixth; the second reading has it, and not the one who left.
    assert (result["readings"], result["left"]) == (2, 0)
    assert any_warehouse.query(ended) == []
    assert set(ids(any_warehouse)) == {*ids_in_service(people), first["id"]}
    people.clock.advance(days=1)
    assert load(**options)["left"] == 1
    assert any_warehouse.query(ended) == [(first["id"],)]
    stays = any_warehouse.query("SELECT count(*), count(DISTINCT id) FROM mail_contacts_history")
    assert stays == [(96, 96)]


def test_a_list_that_shrinks_all_the_time_fails(
    run: Run, people: Emulator, any_warehouse: SqlDatabase, meanwhile: Meanwhile
) -> None:
    load()
    rows = any_warehouse.query("SELECT * FROM mail_contacts ORDER BY id")
    for number in range(2, 100, 3):
        meanwhile(number, lambda: delete(people, people.contacts("newsletter")[0]))
    done = run(task)
    assert done.state == "failed"
    assert done.log.count("reading the list again") == 2
    assert "Set on_change to decide" in done.log
    assert any_warehouse.query("SELECT * FROM mail_contacts ORDER BY id") == rows


def test_a_kill_ends_any_reading(people: Emulator, warehouse: SqlDatabase, meanwhile: Meanwhile) -> None:
    load()
    delete(people, people.contacts("newsletter")[0])
    operator = task()
    before = people.journal.count(LIST)
    meanwhile(REQUESTS + 3, operator.on_kill)
    with pytest.raises(MailInterruptedError):
        executed(operator)
    assert people.journal.count(LIST) < before + 2 * REQUESTS
    operator = task()
    operator.on_kill()  # before it reads
    with pytest.raises(MailInterruptedError):
        executed(operator)
    assert len(ids(warehouse)) == 95


# --- the history of a list ---


def stays(warehouse: SqlDatabase) -> list[tuple[str, bool]]:
    """Each stay of a contact in the list, and whether it has ended."""
    columns = "id, valid_to IS NOT NULL"
    rows = warehouse.query(f"SELECT {columns} FROM mail_contacts_history ORDER BY CAST(id AS int), valid_from")
    return [(id, bool(ended)) for id, ended in rows]


def test_a_history_has_from_when_to_when(people: Emulator, any_warehouse: SqlDatabase) -> None:
    people.clock.advance(days=-30)
    before = people.contacts("newsletter")
    first = load(history=True)
    assert (first["history_table"], first["joined"], first["left"]) == ("mail_contacts_history", 95, 0)
    people.clock.advance(days=1)
    delete(people, before[0])
    second = load(history=True)
    assert (second["joined"], second["left"]) == (0, 1)
    assert stays(any_warehouse)[:2] == [(before[0]["id"], True), (before[1]["id"], False)]
    readings = any_warehouse.query("SELECT contacts FROM mail_contacts_history_readings ORDER BY read_at")
    assert readings == [(95,), (94,)]
    (ended,) = any_warehouse.query("SELECT valid_from, valid_to FROM mail_contacts_history WHERE valid_to IS NOT NULL")
    start, end = (at if isinstance(at, datetime.datetime) else datetime.datetime.fromisoformat(at) for at in ended)
    assert datetime.timedelta(hours=23) < end - start < datetime.timedelta(hours=25)
    columns = "mail_conn_id, team, list_name, id"
    history = f"SELECT {columns} FROM mail_contacts_history WHERE valid_to IS NULL ORDER BY id"
    assert any_warehouse.query(f"SELECT {columns} FROM mail_contacts ORDER BY id") == any_warehouse.query(history)


def test_the_tables_of_a_history(people: Emulator, warehouse: SqlDatabase) -> None:
    assert load().keys().isdisjoint({"history_table", "joined", "left"})
    assert warehouse.tables() == {"mail_contacts", "mail_loads"}
    assert load(history_table="stays")["history_table"] == "stays"
    assert {"stays", "stays_readings"} <= warehouse.tables()
    for arguments, words in (
        ({"history_table": "mail_contacts"}, "it is that of `table`"),
        ({"history_table": "x" * 60}, "cannot be its name"),
        ({"history": True, "on_change": "accept"}, "history: needs a list that is read whole"),
    ):
        assert words in error_of(lambda arguments=arguments: task(**arguments))  # type: ignore[misc]


# --- errors, and whom they show ---


def test_airflow_shows_nothing_of_a_contact(
    run: Run, emulator: Emulator, make_database: Callable[[str, str], SqlDatabase]
) -> None:
    """Not of one that cannot be stored, nor when the service quotes it."""
    warehouse = make_database("postgres", "warehouse")
    emulator.add_list("newsletter")
    load(allow_empty=True)
    emulator.add_contact(
        "planted@example.com", name="Plantagenet", phone_number="+49 171 7777777", lists=["newsletter"]
    )
    warehouse.execute("ALTER TABLE mail_contacts ADD CONSTRAINT short CHECK (length(name) < 5)")
    failed = run(task)
    assert "table mail_contacts on connection 'warehouse'" in failed.log
    warehouse.execute("ALTER TABLE mail_contacts DROP CONSTRAINT short")
    loaded = run(task)
    emulator.faults.add("code_before", LIST, count=None, code=400, message="who is planted-good@example.com?")
    rejected = run(task)
    assert (failed.state, loaded.state, rejected.state) == ("failed", "success", "failed")
    for done in (failed, loaded, rejected):
        assert_nothing_planted(done)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mode": "append"}, "mode: 'append' is none of replace, upsert"),
        ({"on_change": "ignore"}, "on_change: 'ignore' is none of retry, fail, accept"),
        ({"page_size": 0}, "page_size: must be a whole number from 1 to 1000"),
        ({"page_size": 1001}, "page_size: must be a whole number from 1 to 1000"),
        ({"max_in_flight": 0}, "max_in_flight: must be a whole number, at least 1"),
        ({"list_name": ""}, "list_name: is empty"),
        ({"table": "1st"}, "`table` must be a name"),
    ],
)
def test_wrong_arguments(people: Emulator, warehouse: SqlDatabase, arguments: dict[str, Any], words: str) -> None:
    assert words in error_of(lambda: task(**{"list_name": "newsletter"} | arguments))
    assert people.journal.count() == 0


def test_rows_name_the_run_that_loaded_them(emulator: Emulator, warehouse: SqlDatabase, run_in_airflow: Run) -> None:
    """And `mail_loads` the task."""
    emulator.add_list("one", count=2)
    emulator.add_list("two", count=3)

    def tasks() -> None:
        MailContactsToSqlOperator.partial(task_id=TASK, sql_conn_id="warehouse").expand(list_name=["one", "two"])

    first, second = (run_in_airflow(tasks).result for _ in range(2))
    # The second run finds nothing that has changed.
    assert warehouse.query("SELECT DISTINCT run_id FROM mail_contacts") == [(first.run_id,)]
    columns = "part, run_id, dag_id, task_id, map_index, try_number, load_rows"
    assert warehouse.query(f"SELECT {columns} FROM mail_loads ORDER BY part") == [
        ("one", second.run_id, second.dag_id, TASK, 0, 1, 2),
        ("two", second.run_id, second.dag_id, TASK, 1, 1, 3),
    ]
