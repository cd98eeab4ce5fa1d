"""Contacts of a list, and campaigns, in a table: all of them or none, whatever the service does meanwhile."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.api.errors import MailIncompleteError, MailInterruptedError
from airflow_provider_mail.arguments import Rejects
from airflow_provider_mail.transfers.mail_to_sql import MailCampaignsToSqlOperator, MailContactsToSqlOperator
from airflow_provider_mail.version_compat import AirflowFailException
from airflow_provider_mail.warehouse.errors import UnconfirmedError
from mail_emulator import Emulator
from tests.support.changes import at_request
from tests.support.env import ROOT
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase
from tests.tasks.loading import (
    CAMPAIGN_STATS,
    GET_CAMPAIGNS,
    LIST,
    UTC,
    changed_records,
    delete,
    error_of,
    executed,
    ids_in_service,
    load_task,
    post,
    remove_campaigns,
    spoil_campaigns,
)

REQUESTS = 11
"""Of one reading of the list of 95, by pages of 10."""


def task(list_name: str = "newsletter", **arguments: Any) -> MailContactsToSqlOperator:
    given = {"task_id": TASK, "sql_conn_id": "warehouse", "page_size": 10, "max_in_flight": 4}
    return MailContactsToSqlOperator(list_name=list_name, **given | arguments)


def load(list_name: str = "newsletter", **arguments: Any) -> dict[str, Any]:
    return executed(task(list_name, **arguments))


def ids(warehouse: SqlDatabase) -> list[str]:
    return [id for (id,) in warehouse.query("SELECT id FROM mail_contacts ORDER BY CAST(id AS int)")]


@pytest.fixture
def people(emulator: Emulator) -> Emulator:
    """A list of 95."""
    emulator.add_list("newsletter", count=95)
    return emulator


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


def test_the_row_of_a_contact(run: Run, emulator: Emulator, warehouse: SqlDatabase, connect: Connect) -> None:
    connect(team_name="Marketing")
    moment = datetime.datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    emulator.clock.freeze(moment)
    emulator.add_list("newsletter")
    system = {"email_bounced_flag": "1", "email_bounced_time": "2026-02-03 04:05:06", "email_open_count": "12"}
    ada = {"name": "Ada 春", "phone_number": "+44 1", "properties": {**system, "city": "Zürich"}}
    emulator.add_contact("ada@example.com", lists=["newsletter"], **ada)
    emulator.add_contact(phone_number="+44 2", properties={"email_open_count": "many"}, lists=["newsletter"])

    done = run(lambda: task("{{ 'news' ~ 'letter' }}", table="{{ 'mail' ~ '_contacts' }}"))

    columns = "email, name, phone_number, email_bounced_flag, email_bounced_time, email_open_count, create_user_id"
    assert warehouse.query(f"SELECT mail_conn_id, team_name, list_name, {columns} FROM mail_contacts ORDER BY id") == [
        ("mail_default", "Marketing", "newsletter", "ada@example.com", "Ada 春", "+44 1", "1", "2026-02-03 04:05:06",
         12, 1001),
        ("mail_default", "Marketing", "newsletter", None, "+44 2", "+44 2", None, None, None, 1001),
    ]  # fmt: skip
    columns = "properties, create_date, modify_time, observed_at"
    stored, *texts = warehouse.query(f"SELECT {columns} FROM mail_contacts ORDER BY id")[0]
    created, modified, observed = (datetime.datetime.fromisoformat(f"{text}+00:00") for text in texts)
    assert (json.loads(stored), created, modified) == (ada["properties"], moment, moment)
    assert datetime.timedelta(0) <= moment - observed < datetime.timedelta(minutes=1)  # by the service's clock
    assert done.returned == {
        "list_name": "newsletter", "table": "mail_contacts", "records": 2, "readings": 1,
        "inserted": 2, "changed": 0, "unchanged": 0, "outdated": 0, "deleted": 0,
    }  # fmt: skip
    # Rows name the run that loaded them, and `mail_loads` the task.
    assert warehouse.query("SELECT DISTINCT run_id FROM mail_contacts") == [(done.result.run_id,)]
    assert warehouse.query("SELECT run_id, dag_id, task_id, map_index, try_number, load_rows FROM mail_loads") == [
        (done.result.run_id, done.result.dag_id, TASK, -1, 1, 2)
    ]


@pytest.mark.parametrize("options", [{}, {"mode": "upsert"}])
def test_a_second_load_changes_its_list_alone(
    people: Emulator, warehouse: SqlDatabase, connect: Connect, options: dict[str, str]
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
    before = warehouse.query(others)
    gone, changed = people.contacts("newsletter")[40:42]
    delete(people, gone)
    joins(people)
    post(people, "contacts/upsert", email=changed["email"], name="Somebody else")

    result = load(**options)

    counts = [result.get(name) for name in ("inserted", "changed", "unchanged", "deleted")]
    assert counts == [1, 1, 93, None if options else 1]
    held = {id for (id,) in warehouse.query(f"SELECT id FROM mail_contacts WHERE {own}")}
    assert held == {*ids_in_service(people)} | ({gone["id"]} if options else set())
    assert (warehouse.query(others), len(before)) == (before, 96)
    assert ("mail_loads" in warehouse.tables()) is not bool(options)


@pytest.mark.parametrize(("table", "path", "removed", "count"), [
    ("mail_contacts", LIST, "deleted", 12),
    ("mail_campaigns", GET_CAMPAIGNS, "gone", 12),
    # Those of the first and the last day stay: such a day may not be whole.
    ("mail_campaign_stats_snapshots", CAMPAIGN_STATS, "gone", 6),
])  # fmt: skip
def test_emptying_a_table_needs_a_permission(
    emulator: Emulator, warehouse: SqlDatabase, table: str, path: str, removed: str, count: int
) -> None:
    emulator.clock.set("2024-03-12T00:00:00Z")
    emulator.add_list("news", count=12)
    emulator.add_campaigns(12, first_day="2024-03-01", per_day=3)

    def load(**permission: bool) -> tuple[int, int]:
        emulator.clock.advance(days=1)
        result = executed(load_task(table, **permission))
        return result["records"], result[removed]

    # Code 200, no record, total 0: it is requested a second time, also where all may be gone.
    for permission in ({}, {"allow_empty": True}):
        assert load(**permission) == (12, 0)
        emulator.faults.add("empty_page", path, count=1, total=0)
    assert load() == (12, 0)
    if table.endswith("snapshots"):
        assert warehouse.query(f"SELECT count(*), count(DISTINCT observed_day) FROM {table}") == [(3 * 12, 3)]
    delete(emulator, *emulator.contacts("news"))
    remove_campaigns(emulator)
    with pytest.raises(UnconfirmedError, match=rf"{count} rows would become 0\. Nothing was removed; allow_empty=True"):
        load()
    assert load(allow_empty=True) == (0, count)


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
        load()
    assert len(ids(warehouse)) == 95
    result = load(allow_empty=True, history=True)
    assert (result["records"], result["deleted"], ids(warehouse)) == (0, 95, [])


CHURN = (ROOT / "docs" / "sql" / "list_churn.sql").read_text()


def churn(warehouse: SqlDatabase) -> list[tuple[Any, ...]]:
    """Name, contacts, joined, departed, rate and state of each reading of a list after its first one."""
    return sorted((row[3], *row[5:]) for row in warehouse.query(CHURN))


def rename(emulator: Emulator, **names: str) -> None:
    """Give lists other names, all at once."""
    run = emulator.service.store.run
    for old in names:
        run("UPDATE lists SET name = ? WHERE name = ?", [f"{old} before", old])
    for old, new in names.items():
        run("UPDATE lists SET name = ? WHERE name = ?", [new, f"{old} before"])


def test_a_list_that_was_made_again_is_another_one(people: Emulator, warehouse: SqlDatabase) -> None:
    load(history=True)
    addresses = [contact["email"] for contact in people.contacts("newsletter")]
    post(people, "lists/delete", listName="newsletter")
    people.add_list("newsletter")
    for address in addresses:
        people.add_contact(address, lists=["newsletter"])
    assert load(history=True)["left"] == 95
    stays = "SELECT COUNT(*), COUNT(valid_to), COUNT(DISTINCT id) FROM mail_contacts_history"
    assert warehouse.query(stays) == [(190, 95, 95)]
    assert churn(warehouse) == [("newsletter", 0, 0, 95, 100, "ended or empty")]
    assert (load(history=True)["left"], len(churn(warehouse))) == (0, 2)
    post(people, "lists/delete", listName="newsletter")
    load(history=True, allow_empty=True)
    assert churn(warehouse)[:2] == [("newsletter", 0, 0, 95, 100, "ended or empty")] * 2
    assert load(history=True, allow_empty=True)["left"] == 0


@pytest.mark.parametrize("new_name_first", [True, False])
def test_a_list_that_was_renamed_goes_on(people: Emulator, warehouse: SqlDatabase, new_name_first: bool) -> None:
    """Also if its old name belongs to another list by then, whichever of them is loaded first."""
    load(history=True)
    rename(people, newsletter="news")
    with pytest.raises(AirflowFailException, match="allow_empty=True ends it"):
        load(history=True)
    people.add_list("newsletter", count=20)
    loads = {"news": (0, 0), "newsletter": (20, 0)}
    for name in loads if new_name_first else reversed(loads):
        result = load(name, history=True, max_removed_fraction=1)
        assert (result["joined"], result["left"]) == loads[name], name
    assert churn(warehouse) == [("news", 95, 0, 0, 0, "list")]
    rename(people, newsletter="news", news="newsletter")
    for name in loads:
        result = load(name, history=True, max_removed_fraction=1)
        assert (result["joined"], result["left"]) == (0, 0)
    assert warehouse.query("SELECT COUNT(*), COUNT(valid_to) FROM mail_contacts_history") == [(115, 0)]
    assert warehouse.query("SELECT list_name, COUNT(*) FROM mail_contacts GROUP BY 1 ORDER BY 1") == [
        ("news", 20), ("newsletter", 95)
    ]  # fmt: skip


def test_a_renamed_list_is_not_ended_under_its_old_name(people: Emulator, warehouse: SqlDatabase) -> None:
    load(history=True)
    rename(people, newsletter="news")
    result = load(history=True, allow_empty=True)
    assert (result["deleted"], result["joined"], result["left"]) == (95, 0, 0)
    assert (load("news", history=True)["joined"], churn(warehouse)) == (0, [("news", 95, 0, 0, 0, "list")])


@pytest.mark.parametrize(("options", "change", "records", "readings"), [
    ({}, joins, 96, 2),
    ({}, first_leaves, 94, 2),  # the others move up by one place, past the reader
    ({"on_change": "accept"}, first_leaves, 94, 1),
])  # fmt: skip
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


def campaigns_task(**arguments: Any) -> MailCampaignsToSqlOperator:
    return MailCampaignsToSqlOperator(task_id=TASK, sql_conn_id="warehouse", **arguments)


def load_campaigns(**arguments: Any) -> dict[str, Any]:
    return executed(campaigns_task(**arguments))


def marked(warehouse: SqlDatabase) -> set[tuple[str, str]]:
    """Account and name of the campaigns that are gone."""
    return set(warehouse.query("SELECT mail_conn_id, mail_name FROM mail_campaigns WHERE gone_at IS NOT NULL"))


def test_the_row_of_a_campaign(run: Run, emulator: Emulator, warehouse: SqlDatabase) -> None:
    emulator.add_list("everybody", count=5)
    emulator.add_list("staff")
    created = {
        "mailName": "Frühling 春", "senderMail": "news@example.com", "senderName": "News", "subject": "Hello",
        "content": "<p>planted</p>", "sendListNames": ["everybody"], "repelListNames": ["staff"],
        "replyTo": "help@example.com", "languageCode": "de", "marketName": "Spring", "projectCode": "P1",
    }  # fmt: skip
    guid = post(emulator, "campaign/mail/sends", **created)["guid"]
    emulator.set_campaign_state("Frühling 春", "done")
    emulator.set_campaign_stats("Frühling 春", sentCount=5, deliveredCount=4, openCount=3, hardBounce=1)
    emulator.add_campaign("Entwurf", state="draft", send_date="2024-03-02T08:00:00Z", type="ABTest")

    done = run(campaigns_task)

    columns = (
        "guid, team_name, sender_name, sender_mail, reply_to, subject, task_type, mail_status, language_code, "
        "market_name, project_code, sent_count, delivered_count, open_count, click_count, hard_bounce, "
        "rcpt_list_names, repel_list_names"
    )
    draft, spring = warehouse.query(f"SELECT {columns} FROM mail_campaigns ORDER BY mail_name")
    assert spring == (
        guid, "Marketing", "News", "news@example.com", "help@example.com", "Hello", "MailList", 2, "de", "Spring", "P1",
        5, 4, 3, 0, 1, '["everybody"]', '["staff"]',
    )  # fmt: skip
    assert (draft[6:8], draft[11:]) == (("ABTest", -1), (*[None] * 5, "[]", "[]"))
    assert "planted" not in str(warehouse.query("SELECT * FROM mail_campaigns"))
    assert done.returned == {
        "table": "mail_campaigns", "records": 2, "readings": 1, "inserted": 2, "changed": 0, "unchanged": 0,
        "outdated": 0, "gone": 0,
    }  # fmt: skip


def test_campaigns_of_other_teams(emulator: Emulator, warehouse: SqlDatabase, connect: Connect) -> None:
    """They are gone when all teams are read, may have the same name, and need a permission. Other accounts stay."""
    connect("mail_other")
    assert "no permission" in error_of(lambda: campaigns_task(all_team=True))
    emulator.settings.cross_team_permission = True
    for team in ("Marketing", "Sales"):
        emulator.add_campaign("stays", team=team)
        emulator.add_campaign(f"of {team}", team=team)
    load_campaigns(mail_conn_id="mail_other", all_team=True)
    load_campaigns(all_team=True)
    teams = warehouse.query("SELECT DISTINCT team_name FROM mail_campaigns WHERE mail_name = 'stays' ORDER BY 1")
    assert teams == [("Marketing",), ("Sales",)]
    remove_campaigns(emulator, "of Marketing", "of Sales")
    load_campaigns()
    assert marked(warehouse) == {("mail_default", "of Marketing")}
    load_campaigns(all_team=True)
    assert marked(warehouse) == {("mail_default", "of Marketing"), ("mail_default", "of Sales")}
    page = (ROOT / "docs" / "warehouse.md").read_text()
    (query,) = re.findall(r"^SELECT \* FROM mail_campaigns WHERE.*$", page, re.MULTILINE)
    living = warehouse.query(query.replace("*", "DISTINCT mail_conn_id, mail_name"))
    assert {name for account, name in living if account == "mail_default"} == {"stays"}
    assert len(living) == 1 + 3


def test_a_load_of_some_marks_nothing(emulator: Emulator, warehouse: SqlDatabase) -> None:
    for name in ("here", "gone"):
        emulator.add_campaign(name, subject="x")
    load_campaigns()
    remove_campaigns(emulator, "gone")
    some = [{"mail_name": "here"}, {"type": "MailList"}, {"mail_status": ["complete"]}, {"subject": "x"}]
    for arguments in (*some, {"on_change": "accept"}):
        result = load_campaigns(**arguments)
        assert (result["records"], "gone" in result) == (1, False)
    assert marked(warehouse) == set()


def test_wrong_records_may_be_rejected(emulator: Emulator, warehouse: SqlDatabase, tmp_path: Path) -> None:
    for name in ("right", "negative", "nameless"):
        emulator.add_campaign(name)
    rejects = Rejects(max_fraction=0.7, table="rejected", path=f"file://{tmp_path}/rejects.jsonl", keep_days=30)
    with changed_records(emulator, GET_CAMPAIGNS, spoil_campaigns):
        result = load_campaigns(rejects=rejects)

        assert (result["records"], result["rejected"]) == (3, 2)
        assert warehouse.query("SELECT mail_name FROM mail_campaigns") == [("right",)]
        kept = [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_text().splitlines()]
        reasons = {(reject["field"], reject["reason"]) for reject in kept}
        assert reasons == set(warehouse.query("SELECT field, reason FROM rejected")) == {
            ("guid", "needs text, got nothing"),
            ("open_count", "is less than 0, which cannot be true: the service's error"),
        }  # fmt: skip
        warehouse.execute("UPDATE rejected SET import_id = 'older', rejected_at = '2026-01-01 00:00:00'")
        load_campaigns(rejects=rejects)
        assert warehouse.query("SELECT count(DISTINCT import_id), count(*) FROM rejected") == [(1, 2)]
        error = error_of(lambda: load_campaigns(rejects=Rejects(max_fraction=0.5)))
        assert "rejects: 2 of 3 records were rejected, more than Rejects(max_fraction=0.5) allows" in error
        assert re.search("column (open_count: is less than 0|guid: needs text)", error_of(campaigns_task))
