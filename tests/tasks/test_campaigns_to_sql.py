"""Campaigns as a table: every campaign in whatever state, identified by its guid, without its content."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import Any

from airflow_provider_mail.transfers.mail_to_sql import MailCampaignsToSqlOperator
from mail_emulator import Emulator
from tests.support.env import ROOT
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase
from tests.tasks.loading import (
    GET_CAMPAIGNS,
    UTC,
    changed_records,
    error_of,
    executed,
    post,
    remove_campaigns,
    spoil_campaigns,
)

SENT_AT = datetime.datetime(2024, 3, 2, 8, tzinfo=UTC)


def task(**arguments: Any) -> MailCampaignsToSqlOperator:
    return MailCampaignsToSqlOperator(task_id=TASK, sql_conn_id="warehouse", **arguments)


def load(**arguments: Any) -> dict[str, Any]:
    return executed(task(**arguments))


def names(warehouse: SqlDatabase) -> list[str]:
    return [name for (name,) in warehouse.query("SELECT mail_name FROM mail_campaigns ORDER BY mail_name")]


def marked(warehouse: SqlDatabase) -> set[tuple[str, str]]:
    """Account and name of the campaigns that are gone."""
    return set(warehouse.query("SELECT mail_conn_id, mail_name FROM mail_campaigns WHERE gone_at IS NOT NULL"))


def test_the_row_of_a_campaign(run: Run, emulator: Emulator, any_warehouse: SqlDatabase) -> None:
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

    done = run(task)

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
    assert "planted" not in str(any_warehouse.query("SELECT * FROM mail_campaigns"))
    assert done.returned == {
        "table": "mail_campaigns", "records": 2, "readings": 1, "inserted": 2, "changed": 0, "unchanged": 0,
        "outdated": 0, "gone": 0,
    }  # fmt: skip


# --- campaigns that are gone ---


def test_deleted_campaigns_are_marked(emulator: Emulator, any_warehouse: SqlDatabase, connect: Connect) -> None:
    """By a load of their own account."""
    connect("mail_other")
    emulator.add_campaign("going", state="sending")
    emulator.add_campaign("gone")
    assert load()["inserted"] == load(mail_conn_id="mail_other")["inserted"] == 2
    emulator.set_campaign_state("going", "done")
    remove_campaigns(emulator, "gone")

    result = load()

    assert (result["records"], result["changed"], result["inserted"], result["gone"]) == (1, 1, 0, 1)
    own = "SELECT mail_name, mail_status FROM mail_campaigns WHERE mail_conn_id = 'mail_default' ORDER BY 1"
    assert any_warehouse.query(own) == [("going", 2), ("gone", 2)]
    assert (load()["gone"], marked(any_warehouse)) == (0, {("mail_default", "gone")})
    page = (ROOT / "docs" / "warehouse.md").read_text()
    (query,) = re.findall(r"^SELECT \* FROM mail_campaigns WHERE.*$", page, re.MULTILINE)
    living = any_warehouse.query(query.replace("*", "mail_conn_id, mail_name"))
    assert set(living) == {("mail_default", "going"), ("mail_other", "going"), ("mail_other", "gone")}


def test_campaigns_of_other_teams(emulator: Emulator, warehouse: SqlDatabase) -> None:
    """They are gone when all teams are read, may have the same name, and need a permission."""
    assert "no permission" in error_of(lambda: task(all_team=True))
    emulator.settings.cross_team_permission = True
    for team in ("Marketing", "Sales"):
        emulator.add_campaign("stays", team=team)
        emulator.add_campaign(f"of {team}", team=team)
    load(all_team=True)
    teams = warehouse.query("SELECT team_name FROM mail_campaigns WHERE mail_name = 'stays' ORDER BY 1")
    assert teams == [("Marketing",), ("Sales",)]
    remove_campaigns(emulator, "of Marketing", "of Sales")
    load()
    assert marked(warehouse) == {("mail_default", "of Marketing")}
    load(all_team=True)
    assert marked(warehouse) == {("mail_default", "of Marketing"), ("mail_default", "of Sales")}


def test_a_load_of_some_marks_nothing(emulator: Emulator, warehouse: SqlDatabase) -> None:
    for name in ("here", "gone"):
        emulator.add_campaign(name, subject="x")
    load()
    remove_campaigns(emulator, "gone")
    some = [{"mail_name": "here"}, {"type": "MailList"}, {"mail_status": [2]}, {"subject": "x"}]
    for arguments in (*some, {"on_change": "accept"}):
        result = load(**arguments)
        assert (result["records"], "gone" in result) == (1, False)
    assert marked(warehouse) == set()


def test_one_empty_response_marks_nothing(emulator: Emulator, warehouse: SqlDatabase) -> None:
    emulator.add_campaigns(12, first_day=SENT_AT.date())
    load()
    emulator.faults.add("empty_page", GET_CAMPAIGNS, count=1, total=0)
    result = load()
    assert (result["records"], result["gone"], result["readings"]) == (12, 0, 2)
    remove_campaigns(emulator)
    error_of(task)  # it needs a permission
    assert marked(warehouse) == set()
    assert load(allow_empty=True)["gone"] == 12


def test_wrong_records_may_be_rejected(emulator: Emulator, any_warehouse: SqlDatabase, tmp_path: Path) -> None:
    for name in ("right", "negative", "nameless"):
        emulator.add_campaign(name)
    rejects = {"on_unstorable": "reject", "rejects_table": "rejected"}
    with changed_records(emulator, GET_CAMPAIGNS, spoil_campaigns):
        result = load(rejects_path=f"file://{tmp_path}/rejects.jsonl", **rejects)

        assert (result["records"], result["rejected"], names(any_warehouse)) == (3, 2, ["right"])
        kept = [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_text().splitlines()]
        reasons = {(reject["field"], reject["reason"]) for reject in kept}
        assert reasons == set(any_warehouse.query("SELECT field, reason FROM rejected")) == {
            ("guid", "needs text, got nothing"),
            ("open_count", "is less than 0, which cannot be true: the service's error"),
        }  # fmt: skip
        any_warehouse.execute("UPDATE rejected SET import_id = 'older', rejected_at = '2026-01-01 00:00:00'")
        load(keep_days=30, **rejects)
        assert any_warehouse.query("SELECT count(DISTINCT import_id), count(*) FROM rejected") == [(1, 2)]
        assert re.search("column (open_count: is less than 0|guid: needs text)", error_of(task))
