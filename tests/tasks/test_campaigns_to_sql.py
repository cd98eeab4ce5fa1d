"""Campaigns as a table: every task in whatever state, told apart by its guid, without its content."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.api.campaigns import GetCampaigns
from airflow_provider_mail.api.errors import MailAnswerError, MailIncompleteError
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.transfers.mail_to_sql import MailCampaignsToSqlOperator
from airflow_provider_mail.version_compat import AirflowFailException
from airflow_provider_mail.warehouse.errors import UnconfirmedError, WarehouseError
from tests.tasks.conftest import TASK, Run, SqlDatabase
from tests.tasks.test_contacts_to_sql import post

GET = "campaign/mail/get"
ROOT = Path(__file__).parents[2]
SENT_AT = datetime.datetime(2024, 3, 2, 8, tzinfo=datetime.UTC)


def load(**arguments: Any) -> Any:
    return lambda: MailCampaignsToSqlOperator(task_id=TASK, sql_conn_id="warehouse", **arguments)


def loaded(**arguments: Any) -> dict[str, Any]:
    """What the task returns, without an Airflow around it."""
    result: dict[str, Any] = load(**arguments)().execute({})
    return result


def names(warehouse: SqlDatabase) -> list[str]:
    return [name for (name,) in warehouse.query("SELECT mail_name FROM mail_campaigns ORDER BY mail_name")]


def test_a_campaign_s_row(run: Run, emulator: Emulator, any_warehouse: SqlDatabase) -> None:
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
    emulator.add_campaign("Entwurf", state="draft", send_date=SENT_AT, type="ABTest")

    done = run(load())

    assert done.state == "success", done.log
    columns = (
        "guid, team_name, sender_name, sender_mail, reply_to, subject, task_type, mail_status, language_code, "
        "market_name, project_code, sent_count, delivered_count, open_count, click_count, hard_bounce"
    )
    draft, spring = any_warehouse.query(f"SELECT {columns} FROM mail_campaigns ORDER BY mail_name")
    assert spring == (
        guid, "Marketing", "News", "news@example.com", "help@example.com", "Hello", "MailList", 2, "de", "Spring", "P1",
        5, 4, 3, 0, 1,
    )  # fmt: skip
    assert draft[6:8] == ("ABTest", -1)
    assert draft[11:] == (None,) * 5
    lists = any_warehouse.query("SELECT rcpt_list_names, repel_list_names FROM mail_campaigns ORDER BY mail_name")
    if any_warehouse.is_sqlite:
        lists = [tuple(map(json.loads, row)) for row in lists]
    assert lists == [([], []), (["everybody"], ["staff"])]
    everything = str(any_warehouse.query("SELECT * FROM mail_campaigns"))
    assert "planted" not in everything
    assert done.returned == {
        "table": "mail_campaigns", "records": 2, "readings": 1, "inserted": 2, "changed": 0, "unchanged": 0,
        "outdated": 0, "gone": 0,
    }  # fmt: skip


def test_all_pages(emulator: Emulator, any_warehouse: SqlDatabase) -> None:
    emulator.add_campaigns(57, first_day=SENT_AT.date())
    assert loaded(page_size=10)["records"] == 57
    assert names(any_warehouse) == [f"campaign-{number:06}" for number in range(57)]
    ((first,),) = any_warehouse.query(
        "SELECT send_by_date_time FROM mail_campaigns WHERE mail_name = 'campaign-000000'"
    )
    if any_warehouse.is_sqlite:
        first = datetime.datetime.fromisoformat(f"{first}+00:00")
    assert first == SENT_AT


@pytest.mark.parametrize("oversized", ["cap", "reject"])
def test_a_largest_page_that_nobody_knows(emulator: Emulator, warehouse: SqlDatabase, oversized: Any) -> None:
    emulator.settings.max_page_size, emulator.settings.oversized_page = 20, oversized
    emulator.add_campaigns(57, first_day=SENT_AT.date())
    assert loaded()["records"] == 57


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"mail_name": "ring"}, ["spring", "spring test"]),
        ({"subject": "ale"}, ["autumn"]),
        ({"sender_mail": "shop@example.com"}, ["autumn"]),
        ({"type": "ABTest"}, ["spring test"]),
        ({"mail_status": [-1, 4]}, ["summer", "winter"]),
        ({"all_team": True}, ["autumn", "spring", "spring test", "summer", "theirs", "winter"]),
        ({"subject": "", "type": ""}, ["autumn", "spring", "spring test", "summer", "winter"]),
    ],
)
def test_filters_are_the_service_s(
    emulator: Emulator, warehouse: SqlDatabase, filters: dict[str, Any], found: list[str]
) -> None:
    emulator.settings.cross_team_permission = True
    for name, given in {
        "spring": {},
        "spring test": {"type": "ABTest"},
        "summer": {"state": "draft"},
        "autumn": {"sender_mail": "shop@example.com", "subject": "Sale"},
        "winter": {"state": "failed"},
        "theirs": {"team": "Sales"},
    }.items():
        emulator.add_campaign(name, send_date=SENT_AT, **given)  # type: ignore[arg-type]
    loaded(**filters)
    assert names(warehouse) == found


def test_two_teams_may_have_one_name(emulator: Emulator, any_warehouse: SqlDatabase) -> None:
    emulator.settings.cross_team_permission = True
    emulator.add_campaign("news")
    emulator.add_campaign("news", team="Sales")
    loaded(all_team=True)
    assert any_warehouse.query("SELECT team_name, mail_name FROM mail_campaigns ORDER BY 1") == [
        ("Marketing", "news"),
        ("Sales", "news"),
    ]


def marked(warehouse: SqlDatabase, table: str = "mail_campaigns") -> set[tuple[str, str]]:
    """Account and name of the campaigns that are gone."""
    return set(warehouse.query(f"SELECT mail_conn_id, mail_name FROM {table} WHERE gone_at IS NOT NULL"))


def test_states_are_restated_and_deleted_tasks_are_marked(emulator: Emulator, any_warehouse: SqlDatabase) -> None:
    emulator.add_campaign("going", state="sending")
    emulator.add_campaign("gone")
    assert loaded()["inserted"] == 2
    emulator.set_campaign_state("going", "done")
    emulator.set_campaign_state("gone", "removed")

    result = loaded()

    assert (result["records"], result["changed"], result["inserted"], result["gone"]) == (1, 1, 0, 1)
    assert any_warehouse.query("SELECT mail_name, mail_status FROM mail_campaigns ORDER BY 1") == [
        ("going", 2),
        ("gone", 2),
    ]
    seen = dict(any_warehouse.query("SELECT mail_name, observed_at FROM mail_campaigns"))
    assert seen["gone"] < seen["going"]
    assert any_warehouse.query("SELECT mail_name, gone_at FROM mail_campaigns WHERE gone_at IS NOT NULL") == [
        ("gone", seen["going"])
    ]
    assert loaded()["gone"] == 0


def test_each_account_knows_what_of_its_own_is_gone(
    emulator: Emulator, any_warehouse: SqlDatabase, connect: Callable[..., None]
) -> None:
    connect("mail_other")
    emulator.add_campaign("here")
    emulator.add_campaign("gone")
    loaded()
    loaded(mail_conn_id="mail_other")
    emulator.set_campaign_state("gone", "removed")
    loaded()
    assert marked(any_warehouse) == {("mail_default", "gone")}
    page = (ROOT / "docs" / "warehouse.md").read_text()
    (query,) = re.findall(r"^SELECT \* FROM mail_campaigns WHERE.*$", page, re.MULTILINE)
    found = any_warehouse.query(query.replace("*", "mail_conn_id, mail_name"))
    assert set(found) == {("mail_default", "here"), ("mail_other", "here"), ("mail_other", "gone")}


def test_tasks_of_other_teams_are_gone_when_all_teams_are_read(emulator: Emulator, warehouse: SqlDatabase) -> None:
    emulator.settings.cross_team_permission = True
    for team in ("Marketing", "Sales"):
        emulator.add_campaign("stays", team=team)
        emulator.add_campaign(f"of {team}", team=team)
    loaded(all_team=True)
    emulator.set_campaign_state("of Marketing", "removed")
    emulator.set_campaign_state("of Sales", "removed")

    loaded()
    assert marked(warehouse) == {("mail_default", "of Marketing")}
    loaded(all_team=True)
    assert marked(warehouse) == {("mail_default", "of Marketing"), ("mail_default", "of Sales")}


@pytest.mark.parametrize(
    "arguments",
    [{"mail_name": "here"}, {"type": "MailList"}, {"mail_status": [2]}, {"subject": "x"}, {"on_change": "accept"}],
)
def test_a_load_that_does_not_read_everything_marks_nothing(
    emulator: Emulator, warehouse: SqlDatabase, arguments: dict[str, Any]
) -> None:
    emulator.add_campaign("here", subject="x")
    emulator.add_campaign("gone", subject="x")
    loaded()
    emulator.set_campaign_state("gone", "removed")
    result = loaded(**arguments)
    assert (result["records"], "gone" in result) == (1, False)
    assert marked(warehouse) == set()


@pytest.mark.parametrize("all_team", [False, True])
def test_no_task_at_all_needs_a_permission(emulator: Emulator, any_warehouse: SqlDatabase, all_team: bool) -> None:
    emulator.settings.cross_team_permission = True
    emulator.add_campaigns(12, first_day=SENT_AT.date())
    loaded()
    for campaign in emulator.campaigns():
        emulator.set_campaign_state(campaign["mailName"], "removed")
    before = emulator.journal.count(GET)
    with pytest.raises(
        UnconfirmedError, match=r"12 rows would become 0\. Nothing was removed; allow_empty=True allows"
    ):
        loaded(all_team=all_team)
    assert emulator.journal.count(GET) > before + 1
    assert marked(any_warehouse) == set()
    assert loaded(all_team=all_team, allow_empty=True)["gone"] == 12


@pytest.mark.parametrize(("keep", "total"), [(0, 0), (1, 1), (3, 3)])
def test_one_short_answer_marks_nothing(
    emulator: Emulator, any_warehouse: SqlDatabase, keep: int, total: int, connect: Callable[..., None]
) -> None:
    """Code 200, one of 40 campaigns, and totalRecords says that this is all."""
    connect("mail_other")
    emulator.add_campaigns(40, first_day=SENT_AT.date())
    loaded()
    loaded(mail_conn_id="mail_other")
    for kept in (keep, 0) if keep else (0,):  # two pages
        emulator.faults.add("empty_page", GET, count=1, keep=kept, total=total)

    result = loaded()

    assert (result["records"], result["gone"], result["readings"]) == (40, 0, 2)
    assert marked(any_warehouse) == set()


def test_most_campaigns_gone_needs_a_permission(emulator: Emulator, warehouse: SqlDatabase) -> None:
    emulator.add_campaigns(40, first_day=SENT_AT.date())
    loaded()
    for campaign in emulator.campaigns()[:30]:
        emulator.set_campaign_state(campaign["mailName"], "removed")
    with pytest.raises(UnconfirmedError, match=r"40 rows would become 10\. Nothing was removed; max_removed_fraction"):
        loaded()
    assert marked(warehouse) == set()
    result = loaded(max_removed_fraction=0.8)
    assert (result["gone"], result["readings"]) == (30, 2)


def test_an_unknown_total_is_no_proof(emulator: Emulator, warehouse: SqlDatabase) -> None:
    emulator.add_campaigns(40, first_day=SENT_AT.date())
    loaded()
    emulator.faults.add("wrong_total", GET, count=None, by=None)
    with pytest.raises(MailIncompleteError, match="no response has a valid totalRecords"):
        loaded()
    assert marked(warehouse) == set()


@pytest.mark.parametrize(
    ("fault", "params"),
    [("empty_page", {}), ("shifted_pages", {"by": 1}), ("wrong_total", {"by": 1})],
)
def test_pages_that_go_wrong_are_never_loaded_short(
    emulator: Emulator, warehouse: SqlDatabase, fault: str, params: dict[str, Any]
) -> None:
    emulator.add_campaigns(25, first_day=SENT_AT.date())
    emulator.faults.add(fault, GET, count=None, **params)
    with pytest.raises(MailIncompleteError):
        loaded(page_size=10)
    assert warehouse.tables() == set()

    emulator.faults.clear()
    emulator.faults.add(fault, GET, skip=1, **params)
    assert (loaded(page_size=10)["records"], len(names(warehouse))) == (25, 25)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("guid", None, "column guid: needs text, got nothing"),
        ("mailStatus", "sent", "mailStatus"),
        ("sendByDateTime", "tomorrow", "sendByDateTime"),
        ("rcptListNames", "everybody", "rcptListNames"),
    ],
)
def test_a_task_that_is_none(
    emulator: Emulator, warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch, field: str, value: Any, words: str
) -> None:
    emulator.add_campaign("news")
    original = GetCampaigns.read

    def read(self: Any, answer: Any) -> Any:
        return original(self, {**answer, "mailList": [{**record, field: value} for record in answer["mailList"]]})

    monkeypatch.setattr(GetCampaigns, "read", read)
    monkeypatch.setattr("airflow_provider_mail.api.config.RetryRule.base_seconds", 0.0, raising=False)
    with pytest.raises((MailAnswerError, WarehouseError), match=words):
        loaded()
    assert warehouse.tables() == set()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"type": "{{ 'Letter' }}"}, "type: 'Letter' is none of MailList, ABTest"),
        ({"mail_status": [3]}, "mail_status"),
        ({"table": "a..b"}, "`table` must be a name"),
    ],
)
def test_what_is_wrong_fails_before_anything_is_asked(
    run: Run, emulator: Emulator, warehouse: SqlDatabase, arguments: dict[str, Any], words: str
) -> None:
    done = run(load(retries=2, **arguments))
    assert (done.state, done.tries) == ("failed", 1)
    assert words in done.log
    assert emulator.journal.count() == 0


def test_other_teams_need_a_permission(run: Run, emulator: Emulator, warehouse: SqlDatabase) -> None:
    done = run(load(all_team=True, retries=2))
    assert (done.state, done.tries) == ("failed", 1)
    assert "no permission" in done.log


def test_a_task_that_cannot_be_stored_is_set_aside(
    run: Run, emulator: Emulator, any_warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("right", "negative", "nameless"):
        emulator.add_campaign(name)
    original = GetCampaigns.read

    def read(self: Any, answer: Any) -> Any:
        for record in answer["mailList"]:
            if record["mailName"] == "negative":
                record["mailStats"]["openCount"] = -5
            if record["mailName"] == "nameless":
                record["guid"] = None
        return original(self, answer)

    monkeypatch.setattr(GetCampaigns, "read", read)
    path = f"file://{tmp_path}/rejects.jsonl"

    done = run(load(on_unstorable="reject", rejects_table="rejected", rejects_path=path))

    assert done.state == "success", done.log
    assert (done.returned["records"], done.returned["rejected"]) == (3, 2)
    assert names(any_warehouse) == ["right"]
    reasons = {
        ("guid", "needs text, got nothing"),
        ("open_count", "is less than 0, which cannot be true: the service's error"),
    }
    assert set(any_warehouse.query("SELECT field, reason FROM rejected")) == reasons
    kept = [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_text().splitlines()]
    assert {(reject["field"], reject["reason"]) for reject in kept} == reasons
    assert "2 records cannot be stored and were rejected" in done.log

    older = "UPDATE rejected SET import_id = 'of an older load', rejected_at = '2026-01-01 00:00:00'"
    any_warehouse.execute(older)
    assert run(load(on_unstorable="reject", rejects_table="rejected", keep_days=30)).state == "success"
    ((kept_loads, rows),) = any_warehouse.query("SELECT count(DISTINCT import_id), count(*) FROM rejected")
    assert (kept_loads, rows) == (1, 2)

    refused = run(load())
    assert refused.state == "failed"
    assert "column open_count: is less than 0" in refused.log or "column guid: needs text" in refused.log


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"on_unstorable": "ignore"}, "on_unstorable: 'ignore' is none of"),
        ({"rejects_table": "x"}, "they need on_unst"),
    ],
)
def test_arguments_that_cannot_be(warehouse: SqlDatabase, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, AirflowFailException), match=words):
        loaded(**arguments)
