"""Contacts of a list in a table: all of them or none, whatever the list and the service do meanwhile."""

from __future__ import annotations

import datetime
import json
import re
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from airflow_provider_mail.api._core import exchange
from airflow_provider_mail.api._core.responses import HttpResponse
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.contacts import GetListContacts
from airflow_provider_mail.api.errors import MailAnswerError, MailIncompleteError, MailInterruptedError
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.transfers.mail_to_sql import MailContactsToSqlOperator
from airflow_provider_mail.version_compat import AirflowFailException
from airflow_provider_mail.warehouse.errors import UnconfirmedError, WarehouseError
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase
from tests.tasks.test_privacy import assert_nothing_planted

LIST = "contacts/list/get"


def load(list_name: str = "newsletter", **arguments: Any) -> Any:
    pages = {"page_size": 10, "max_in_flight": 4}
    return lambda: MailContactsToSqlOperator(
        task_id=TASK, sql_conn_id="warehouse", list_name=list_name, **pages | arguments
    )


def loaded(*arguments: Any, **options: Any) -> dict[str, Any]:
    """What the task returns, without an Airflow around it: most of what is promised needs none."""
    result: dict[str, Any] = load(*arguments, **options)().execute({})
    return result


def ids(warehouse: SqlDatabase, list_name: str = "newsletter", table: str = "mail_contacts") -> list[str]:
    return [
        id
        for (id,) in warehouse.query(f"SELECT id FROM {table} WHERE list_name = '{list_name}' ORDER BY CAST(id AS int)")
    ]


def in_service(emulator: Emulator, list_name: str = "newsletter") -> list[str]:
    return sorted((contact["id"] for contact in emulator.contacts(list_name)), key=int)


def post(emulator: Emulator, path: str, **body: Any) -> dict[str, Any]:
    """A request of somebody else."""
    # Without certificates, since reading them takes longer than the request.
    answer: dict[str, Any] = httpx.post(
        f"{emulator.base_url}/v5/{path}", headers={"ApiKey": emulator.api_key}, json=body, timeout=60, verify=False
    ).json()
    assert answer["code"] == 200, answer
    return answer


def delete(emulator: Emulator, *contacts: dict[str, Any]) -> None:
    for contact in contacts:
        post(emulator, "contacts/delete", email=contact["email"])


@pytest.fixture
def people(emulator: Emulator) -> Emulator:
    """A list of 95."""
    emulator.add_list("newsletter", count=95)
    return emulator


Meanwhile = Callable[[int, Callable[[], Any]], None]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """A function that has something happen in the service before the n-th request for a page (counting from 1)."""
    plans: dict[int, Callable[[], Any]] = {}
    count, lock = [0], threading.Lock()
    original = MailClient.send

    def send(self: MailClient, request: Any) -> Any:
        if isinstance(request, GetListContacts):
            with lock:
                count[0] += 1
                plans.pop(count[0], lambda: None)()
        return original(self, request)

    monkeypatch.setattr(MailClient, "send", send)
    return plans.__setitem__


# --- what is in the table ---


def test_memory_does_not_grow_with_the_list(
    emulator: Emulator, make_database: Callable[[str, str], SqlDatabase]
) -> None:
    """All of them at once would be some 25 MB more; what is remembered of each to tell repeats is some 100 bytes."""
    make_database("postgres", "warehouse")
    emulator.add_list("few", count=2_500)
    emulator.add_list("many", count=25_000)
    loaded("few", page_size=500)  # imports everything
    peaks = []
    for name in ("few", "many"):
        tracemalloc.start()
        loaded(name, page_size=500)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 8_000_000


def test_a_contact_s_row(run: Run, emulator: Emulator, any_warehouse: SqlDatabase, connect: Connect) -> None:
    connect(team_name="Marketing")
    emulator.clock.set(datetime.datetime(2026, 3, 1, 12, 30, tzinfo=datetime.UTC))
    emulator.clock.freeze()
    emulator.add_list("newsletter")
    system = {"email_bounced_flag": "1", "email_bounced_time": "2026-02-03 04:05:06", "email_open_count": "12"}
    emulator.add_contact(
        "ada@example.com",
        name="Ada 春",
        phone_number="+44 1",
        properties={**system, "city": "Zürich"},
        lists=["newsletter"],
    )
    emulator.add_contact(phone_number="+44 2", properties={"email_open_count": "many"}, lists=["newsletter"])

    done = run(load())

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
    rows = any_warehouse.query(
        "SELECT properties, create_date, modify_time, observed_at FROM mail_contacts ORDER BY id"
    )
    properties, created, modified, observed = rows[0]
    if any_warehouse.is_sqlite:
        properties = json.loads(properties)
        created, modified, observed = (
            datetime.datetime.fromisoformat(f"{text}+00:00") for text in (created, modified, observed)
        )
    assert properties == {**system, "city": "Zürich"}
    assert created == modified == datetime.datetime(2026, 3, 1, 12, 30, tzinfo=datetime.UTC)
    assert datetime.timedelta(0) <= created - observed < datetime.timedelta(minutes=1)  # by the service's clock
    assert done.returned == {
        "list_name": "newsletter", "table": "mail_contacts", "records": 2, "readings": 1,
        "inserted": 2, "changed": 0, "unchanged": 0, "outdated": 0,
        "deleted": 0,
    }  # fmt: skip


def test_a_list_of_many_pages(people: Emulator, any_warehouse: SqlDatabase) -> None:
    assert loaded()["records"] == 95
    assert ids(any_warehouse) == in_service(people)
    assert people.journal.count(LIST) == 11


def test_the_largest_page_and_eight_under_way_by_default() -> None:
    operator = MailContactsToSqlOperator(task_id=TASK, sql_conn_id="warehouse", list_name="newsletter")
    assert (operator.page_size, operator.max_in_flight, operator.mode, operator.on_change) == (
        1000, 8, "replace", "retry",
    )  # fmt: skip


def test_a_service_without_pages_of_that_size(people: Emulator, warehouse: SqlDatabase) -> None:
    people.faults.add("capped_pages", LIST, count=None, size=7)
    loaded(page_size=1000)
    assert ids(warehouse) == in_service(people)


# --- again ---


def test_replace_takes_out_who_left_and_touches_nobody_else(
    people: Emulator, any_warehouse: SqlDatabase, connect: Connect
) -> None:
    people.settings.cross_team_permission = True
    connect("other")
    people.add_list("vip", ["ada@example.com"])
    people.add_list("theirs", ["bob@example.com"], team="Sales")
    loaded("vip")
    loaded("theirs", team_name="Sales")
    loaded(mail_conn_id="other")
    loaded()
    gone = people.contacts("newsletter")[40]
    others = any_warehouse.query("SELECT * FROM mail_contacts WHERE list_name <> 'newsletter' ORDER BY id")
    delete(people, gone)

    result = loaded()

    assert (result["records"], result["deleted"], result["unchanged"]) == (94, 1, 94)
    count = "SELECT mail_conn_id, team, list_name, count(*) FROM mail_contacts GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    assert any_warehouse.query(count) == [
        ("mail_default", "", "newsletter", 94),
        ("mail_default", "", "vip", 1),
        ("mail_default", "Sales", "theirs", 1),
        ("other", "", "newsletter", 95),
    ]
    assert any_warehouse.query("SELECT * FROM mail_contacts WHERE list_name <> 'newsletter' ORDER BY id") == others
    sent = [entry["body"].get("teamName") for entry in people.journal.entries(LIST)]
    assert set(sent) == {None, "Sales"}


def test_upsert_keeps_who_left(people: Emulator, any_warehouse: SqlDatabase) -> None:
    loaded()
    gone = people.contacts("newsletter")[40]
    delete(people, gone)
    people.add_contact("new@example.com", lists=["newsletter"])

    result = loaded(mode="upsert")

    assert "deleted" not in result
    assert (result["inserted"], result["unchanged"]) == (1, 94)
    assert set(ids(any_warehouse)) == {*in_service(people), gone["id"]}
    ((last_seen, now),) = any_warehouse.query(
        f"SELECT max(CASE WHEN id = '{gone['id']}' THEN observed_at END), max(observed_at) FROM mail_contacts"
    )
    assert last_seen < now


def when_read(warehouse: SqlDatabase) -> dict[str, Any]:
    """When each list was last read whole."""
    return dict(warehouse.query("SELECT part, observed_at FROM mail_loads WHERE table_name = 'mail_contacts'"))


def test_who_did_not_change_is_not_written_again(people: Emulator, any_warehouse: SqlDatabase) -> None:
    query = "SELECT id, observed_at FROM mail_contacts WHERE team = '' ORDER BY id"
    people.settings.cross_team_permission = True
    people.add_list("theirs", ["bob@example.com"], team="Sales")
    loaded()
    loaded("theirs", team_name="Sales")
    before, noted = dict(any_warehouse.query(query)), when_read(any_warehouse)
    changed = people.contacts("newsletter")[40]
    post(people, "contacts/upsert", email=changed["email"], name="Somebody else")

    result = loaded()

    assert (result["inserted"], result["changed"], result["unchanged"], result["deleted"]) == (0, 1, 94, 0)
    later = dict(any_warehouse.query(query))
    assert [id for id in later if later[id] != before[id]] == [changed["id"]]
    assert when_read(any_warehouse) == noted | {"newsletter": later[changed["id"]]}
    assert sorted(noted) == ["Sales/theirs", "newsletter"]


@pytest.mark.parametrize("arguments", [{"mode": "upsert"}, {"on_change": "accept"}])
def test_each_row_says_when_it_was_seen_where_not_all_may_have_been(
    people: Emulator, warehouse: SqlDatabase, arguments: dict[str, Any]
) -> None:
    seen = "SELECT DISTINCT observed_at FROM mail_contacts"
    loaded(**arguments)
    (first,) = warehouse.query(seen)
    loaded(**arguments)
    (second,) = warehouse.query(seen)
    assert second > first
    assert warehouse.tables() == {"mail_contacts"}


def test_a_list_that_has_become_empty_needs_a_permission(emulator: Emulator, any_warehouse: SqlDatabase) -> None:
    emulator.add_list("newsletter", count=3)
    loaded()
    delete(emulator, *emulator.contacts("newsletter"))

    with pytest.raises(
        UnconfirmedError, match=r"3 rows would become 0\. Nothing was removed; allow_empty=True allows it"
    ):
        loaded()
    assert len(ids(any_warehouse)) == 3

    result = loaded(allow_empty=True)
    assert (result["records"], result["deleted"], result["readings"]) == (0, 3, 2)
    assert ids(any_warehouse) == []


@pytest.mark.parametrize("permission", [{}, {"allow_empty": True}])
def test_one_empty_response_empties_no_table(
    people: Emulator, any_warehouse: SqlDatabase, permission: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code 200, no contacts, total 0: it is asked a second time, also where the list may be empty."""
    loaded()
    people.faults.add("empty_page", LIST, count=1, total=0)

    result = loaded(**permission)

    assert (result["records"], result["deleted"], result["readings"]) == (95, 0, 2)
    assert ids(any_warehouse) == in_service(people)


def test_a_list_that_loses_most_of_its_contacts_needs_a_permission(
    people: Emulator, any_warehouse: SqlDatabase
) -> None:
    loaded()
    delete(people, *people.contacts("newsletter")[:60])

    with pytest.raises(UnconfirmedError, match=r"95 rows would become 35.*max_removed_fraction"):
        loaded()
    assert len(ids(any_warehouse)) == 95

    assert loaded(max_removed_fraction=0.7)["deleted"] == 60
    assert ids(any_warehouse) == in_service(people)


def test_an_empty_list_of_another_team_needs_a_permission(people: Emulator, warehouse: SqlDatabase) -> None:
    """The document shows no way to find out whether there is a list of that name."""
    people.settings.cross_team_permission = True
    people.add_list("theirs", team="Sales")
    with pytest.raises(AirflowFailException, match=r"list_name, team_name: .*'theirs' of team 'Sales'.*allow_empty"):
        loaded("theirs", team_name="Sales")
    assert loaded("theirs", team_name="Sales", allow_empty=True)["records"] == 0


@pytest.mark.parametrize("code", [404, 200])
def test_a_list_that_does_not_exist_is_no_empty_list(
    run: Run, people: Emulator, warehouse: SqlDatabase, code: int
) -> None:
    """Also of a service that shrugs and says that nobody is in it."""
    run(load())
    post(people, "lists/delete", listName="newsletter")
    people.settings.not_found_code = code

    done = run(load(retries=2))

    assert (done.state, done.tries) == ("failed", 1)
    assert "list" in done.log
    assert len(ids(warehouse)) == 95


# --- while it is read ---


def test_a_list_that_grows_is_complete(people: Emulator, any_warehouse: SqlDatabase, meanwhile: Meanwhile) -> None:
    meanwhile(6, lambda: people.add_contact("new@example.com", lists=["newsletter"]))

    result = loaded()

    assert ids(any_warehouse) == in_service(people)
    assert (result["records"], result["readings"]) == (96, 1)


def test_who_is_pushed_past_the_reader_is_not_lost(
    people: Emulator, any_warehouse: SqlDatabase, meanwhile: Meanwhile
) -> None:
    first = people.contacts("newsletter")[0]
    meanwhile(6, lambda: delete(people, first))

    result = loaded()

    assert ids(any_warehouse) == in_service(people)
    assert (result["records"], result["readings"]) == (94, 2)


@pytest.mark.parametrize("mode", ["replace", "upsert"])
def test_who_moves_between_two_pages_never_left(
    people: Emulator, any_warehouse: SqlDatabase, meanwhile: Meanwhile, mode: str
) -> None:
    """One leaves and another joins while the list is read: the total stays, and one page is skipped by one contact."""
    people.clock.advance(days=-30)
    options = {"mode": mode, "history": True, "max_in_flight": 1}
    loaded(**options)
    before = people.contacts("newsletter")
    people.clock.advance(days=1)

    def change() -> None:
        delete(people, before[0])
        people.add_contact("new@example.com", lists=["newsletter"])

    meanwhile(11 + 6, change)
    result = loaded(**options)
    # The contact behind the fifth page was not on the sixth; the second reading has it, and not the one who left.
    assert (result["readings"], result["left"]) == (2, 0)
    assert any_warehouse.query("SELECT id FROM mail_contacts_history WHERE valid_to IS NOT NULL") == []
    assert set(ids(any_warehouse)) == {*in_service(people), before[0]["id"]}

    people.clock.advance(days=1)
    result = loaded(**options)
    assert result["left"] == 1
    ended = any_warehouse.query("SELECT id FROM mail_contacts_history WHERE valid_to IS NOT NULL")
    assert ended == [(before[0]["id"],)]
    stays = any_warehouse.query("SELECT count(*), count(DISTINCT id) FROM mail_contacts_history")
    assert stays == [(96, 96)]


def test_a_kill_ends_the_second_reading(people: Emulator, warehouse: SqlDatabase, meanwhile: Meanwhile) -> None:
    loaded()
    delete(people, people.contacts("newsletter")[0])
    operator = load()()
    meanwhile(11 + 11 + 3, operator.on_kill)
    with pytest.raises(MailInterruptedError):
        operator.execute({})
    assert len(ids(warehouse)) == 95
    assert people.journal.count(LIST) < 11 + 11 + 11


def test_an_unknown_total_is_no_proof(people: Emulator, any_warehouse: SqlDatabase) -> None:
    loaded()
    noted = when_read(any_warehouse)
    people.faults.add("wrong_total", LIST, count=None, by=None)
    with pytest.raises(MailIncompleteError, match="no response has a valid totalRecords"):
        loaded()
    assert ids(any_warehouse) == in_service(people)
    assert when_read(any_warehouse) == noted


def test_a_list_that_never_stops_growing_is_loaded(
    people: Emulator, any_warehouse: SqlDatabase, meanwhile: Meanwhile
) -> None:
    there = in_service(people)
    for number in range(1, 100):
        meanwhile(number, lambda number=number: people.add_contact(f"n{number}@example.com", lists=["newsletter"]))

    result = loaded()

    assert result["readings"] == 1
    assert set(there) <= set(ids(any_warehouse)) <= set(in_service(people))


def test_a_list_that_loses_contacts_all_the_time_fails_and_leaves_the_table(
    run: Run, people: Emulator, any_warehouse: SqlDatabase, meanwhile: Meanwhile
) -> None:
    loaded()
    rows = any_warehouse.query("SELECT * FROM mail_contacts ORDER BY id")
    for number in range(11, 100, 3):
        meanwhile(number, lambda: delete(people, people.contacts("newsletter")[0]))

    done = run(load())

    assert done.state == "failed"
    assert done.log.count("reading the list again") == 2
    assert "Set on_change to decide" in done.log
    assert any_warehouse.query("SELECT * FROM mail_contacts ORDER BY id") == rows


def test_fail_means_at_once(people: Emulator, warehouse: SqlDatabase, meanwhile: Meanwhile) -> None:
    meanwhile(6, lambda: people.add_contact("new@example.com", lists=["newsletter"]))
    with pytest.raises(MailIncompleteError, match="the list changed while it was read"):
        loaded(on_change="fail")
    assert warehouse.tables() == set()
    assert people.journal.count(LIST) <= 11


def test_accept_takes_what_came(people: Emulator, any_warehouse: SqlDatabase, meanwhile: Meanwhile) -> None:
    first = people.contacts("newsletter")[0]
    meanwhile(6, lambda: delete(people, first))

    # One page after the other: of several at once a contact that leaves may hide more than one of the others.
    result = loaded(on_change="accept", max_in_flight=1)

    assert (result["readings"], result["records"]) == (1, 94)
    assert len(ids(any_warehouse)) == 94


@pytest.mark.parametrize("on_change", ["retry", "fail", "accept"])
@pytest.mark.parametrize(
    ("fault", "params"),
    [
        ("repeated_page", {"back": 1}),
        ("shifted_pages", {"by": 3}),
        ("empty_page", {}),
        ("wrong_total", {"by": 1}),
    ],
)
def test_a_service_whose_pages_go_wrong_for_good(
    people: Emulator, warehouse: SqlDatabase, on_change: str, fault: str, params: dict[str, Any]
) -> None:
    """A page is lost, or a total is never reached: never a green task with other rows than the list's."""
    people.faults.add(fault, LIST, count=None, **params)
    try:
        loaded(on_change=on_change)
    except MailIncompleteError:
        assert "mail_contacts" not in warehouse.tables()
    else:  # every page came twice, and nothing is lost
        assert fault == "repeated_page"
        assert on_change != "fail"
        assert ids(warehouse) == in_service(people)
    assert people.journal.count(LIST) < 60


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("id", None, "column id: needs text, got nothing"),
        ("email", {"address": "planted@example.com"}, "contactList[0].email"),
        ("properties", ["planted"], "contactList[0].properties"),
        ("createDate", "planted", "contactList[0].createDate"),
        ("modifyTime", [], "contactList[0].modifyTime"),
        ("createUserId", "planted", "contactList[0].createUserId"),
    ],
    ids=lambda value: "",
)
def test_a_contact_that_is_none(
    people: Emulator, warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch, field: str, value: Any, words: str
) -> None:
    original = exchange.parse_response

    def parse(request: Any, response: HttpResponse, *rest: Any) -> Any:
        answer = json.loads(response.body)
        if request.path == GetListContacts.path:
            answer["contactList"] = [{**record, field: value} for record in answer["contactList"]]
        return original(request, replace(response, body=json.dumps(answer).encode()), *rest)

    monkeypatch.setattr(exchange, "parse_response", parse)
    monkeypatch.setattr("airflow_provider_mail.api.config.RetryRule.base_seconds", 0.0, raising=False)
    with pytest.raises((MailAnswerError, WarehouseError), match=re.escape(words)) as raised:
        loaded(page_size=100)
    assert "planted" not in str(raised.value)
    assert warehouse.tables() == set()


# --- nobody sees who they are ---


@pytest.mark.parametrize(
    "fault",
    [
        None,
        {"kind": "code_before", "code": 400, "message": "who is planted-good@example.com?"},
        {"kind": "code_before", "code": 500, "message": "planted-good@example.com, really?"},
        {"kind": "html_before"},
        {"kind": "cut_json"},
        {"kind": "wrong_total"},
    ],
    ids=lambda fault: fault["kind"] if fault else "none",
)
def test_nothing_of_a_contact_is_in_airflow(
    run: Run, emulator: Emulator, any_warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    monkeypatch.setattr("airflow_provider_mail.api.config.RetryRule.base_seconds", 0.0, raising=False)
    emulator.add_list("newsletter")
    emulator.add_contact(
        "planted@example.com", name="Plantagenet", phone_number="+49 171 7777777", lists=["newsletter"]
    )
    if fault:
        emulator.faults.add(operation=LIST, count=None, **fault)

    done = run(load())

    assert done.state == ("failed" if fault else "success")
    assert_nothing_planted(done)


def test_a_table_that_cannot_take_a_contact(
    run: Run, emulator: Emulator, make_database: Callable[[str, str], SqlDatabase]
) -> None:
    warehouse = make_database("postgres", "warehouse")
    emulator.add_list("newsletter")
    run(load())
    warehouse.execute("ALTER TABLE mail_contacts ADD CONSTRAINT short CHECK (length(name) < 5)")
    emulator.add_contact(
        "planted@example.com", name="Plantagenet", phone_number="+49 171 7777777", lists=["newsletter"]
    )

    done = run(load())

    assert done.state == "failed"
    assert "table mail_contacts on connection 'warehouse'" in done.log
    assert_nothing_planted(done)


# --- what cannot be ---


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mode": "append"}, "mode: 'append' is none of replace, upsert"),
        ({"on_change": "ignore"}, "on_change: 'ignore' is none of retry, fail, accept"),
        ({"page_size": 0}, "page_size: must be a whole number from 1 to 1000"),
        ({"page_size": 1001}, "page_size: must be a whole number from 1 to 1000"),
        ({"max_in_flight": 0}, "max_in_flight: must be a whole number, at least 1"),
    ],
)
def test_a_mistake_in_the_dag_file(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load(**arguments)()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"list_name": "{{ '' }}"}, "list_name: is empty"), ({"table": "1st"}, "`table` must be a name")],
)
def test_what_is_wrong_fails_before_anything_is_asked(
    run: Run, people: Emulator, warehouse: SqlDatabase, arguments: dict[str, Any], words: str
) -> None:
    done = run(load(retries=2, **arguments))
    assert (done.state, done.tries) == ("failed", 1)
    assert words in done.log
    assert people.journal.count() == 0


def test_names_are_templates(run: Run, people: Emulator, warehouse: SqlDatabase) -> None:
    done = run(load("{{ 'news' ~ 'letter' }}", table="{{ 'a' * 3 }}"))
    assert done.state == "success", done.log
    assert ids(warehouse, table="aaa") == in_service(people)


def test_rows_name_the_run_and_mail_loads_the_task(
    emulator: Emulator, warehouse: SqlDatabase, run_in_airflow: Run
) -> None:
    emulator.add_list("one", count=2)
    emulator.add_list("two", count=3)
    arguments = {"task_id": TASK, "sql_conn_id": "warehouse"}
    mapped = {"list_name": ["one", "two"]}
    runs = [
        run_in_airflow(lambda: MailContactsToSqlOperator.partial(**arguments).expand(**mapped)).result for _ in range(2)
    ]
    # The second run finds nothing that has changed.
    assert warehouse.query("SELECT DISTINCT run_id FROM mail_contacts") == [(runs[0].run_id,)]
    assert warehouse.query(
        "SELECT part, run_id, dag_id, task_id, map_index, try_number, load_rows FROM mail_loads ORDER BY part"
    ) == [
        ("one", runs[1].run_id, runs[1].dag_id, TASK, 0, 1, 2),
        ("two", runs[1].run_id, runs[1].dag_id, TASK, 1, 1, 3),
    ]
