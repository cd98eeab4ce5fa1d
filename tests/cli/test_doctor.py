"""What is wrong with a setup, and what to type: one line for each check, and an exit status."""

from __future__ import annotations

import datetime
import json
import shlex
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from airflow.cli.cli_parser import get_parser as airflow_parser

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.webhook.tokens import Tokens
from tests.cli.conftest import Command, Said
from tests.support.dags import AIRFLOW_VERSION
from tests.webhook.pushes import NOON, event, push, receive, sqlite_inbox


@pytest.fixture
def doctor(command: Command) -> Command:
    """Runs the command for programs."""
    return lambda *arguments: command("doctor", *arguments, "-o", "json")


def only(said: Said, check: str) -> dict[str, Any]:
    (row,) = (row for row in said.rows if row["check"] == check)
    return row


def level(said: Said, check: str) -> str:
    return only(said, check)["level"]


def test_all_is_well(doctor: Command, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator.add_list("newsletter")
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", '{"conn_type": "sqlite", "host": "/tmp/warehouse.db"}')
    said = doctor("--sql-conn-id", "warehouse", "--sender", "news@example.com", "--list", "newsletter")
    assert said.status == 0
    assert [(row["check"], row["level"]) for row in said.rows] == [
        ("connection", "ok"),
        ("port", "ok"),
        ("service", "ok"),
        ("database", "ok"),
        ("triggerer", "warning"),
        ("sender", "ok"),
        ("list", "ok"),
    ]
    assert [row["fix"] for row in said.rows if row["level"] == "ok"] == [""] * 6
    reads = ("lists/get", "verified_senders/get")
    assert emulator.journal.count() == sum(emulator.journal.count(f"/v5/{read}") for read in reads)


def test_the_inbox(doctor: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox = sqlite_inbox(tmp_path / "inbox.db")
    monkeypatch.setenv("AIRFLOW_CONN_INBOX", json.dumps({"conn_type": "sqlite", "host": str(tmp_path / "inbox.db")}))
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "inbox")
    assert "there is no valid token" in only(doctor(), "inbox")["message"]
    Tokens(inbox).create()
    Tokens(inbox).add("x", "mail_default")
    receive(inbox, [push(event(1))])
    old = only(doctor(), "inbox")
    assert (old["level"], "the inbox is not drained" in old["message"]) == ("error", True)
    assert "MailEventsToSqlOperator" in old["fix"]
    with closing(inbox.open()) as connection:
        inbox.finish(connection, [1], NOON)
    assert (only(doctor(), "inbox")["level"], only(doctor(), "inbox")["fix"]) == ("ok", "")
    (tmp_path / "inbox.db").write_bytes(b"no database" * 100)
    assert only(doctor(), "inbox")["level"] == "error"


def test_for_a_person(command: Command) -> None:
    said = command("doctor", "--list", "newsletter")
    assert (said.status, said.err) == (1, "")
    assert "error        list        there is no list 'newsletter'\n" in said.out
    assert "fix:        MailCreateListOperator(task_id='create_list', list_name='newsletter')" in said.out


def test_no_connection(doctor: Command) -> None:
    said = doctor("-c", "nowhere", "--list", "newsletter")
    assert said.status == 1
    program, *words = shlex.split(only(said, "connection")["fix"])
    typed = airflow_parser().parse_args(words)
    assert (program, typed.conn_id, typed.conn_type) == ("airflow", "nowhere", "mail")
    assert level(said, "list") == "not checked"
    assert {row["check"] for row in said.rows} == {"connection", "triggerer", "list"}


def test_a_connection_with_a_wrong_field(doctor: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", '{"conn_type": "mail", "password": "k", "extra": {"sandbx": true}}')
    said = doctor()
    assert said.status == 1
    assert "unknown field sandbx" in only(said, "connection")["message"]
    assert "airflow connections delete mail_default" in only(said, "connection")["fix"]


def test_a_refused_key(doctor: Command) -> None:
    said = doctor("-c", "mail_bad", "--sender", "news@example.com")
    assert (said.status, level(said, "connection"), level(said, "sender")) == (1, "ok", "not checked")
    assert "rejects the password (API key)" in only(said, "service")["message"]
    assert "python -m airflow_provider_mail check -c mail_bad" in only(said, "service")["fix"]
    assert "not-the-key" not in said.out


@pytest.mark.parametrize("port", [None, 8025])
def test_the_port_of_a_stored_connection(doctor: Command, emulator: Emulator, port: int | None) -> None:
    """The button in Airflow's list of connections refuses one without a port (Airflow 3.3)."""
    from airflow.models import Connection
    from airflow.utils.session import create_session

    with create_session() as session:
        session.add(
            Connection(conn_id="stored", conn_type="mail", host=emulator.base_url, port=port, password=emulator.api_key)
        )
    try:
        said = doctor("-c", "stored")
        strict = doctor("-c", "stored", "--strict")
    finally:
        with create_session() as session:
            session.query(Connection).filter_by(conn_id="stored").delete()
    row = only(said, "port")
    if port is None and AIRFLOW_VERSION >= (3, 3):
        assert (row["level"], row["fix"]) == (
            "warning",
            f"Admin > Connections > stored > Port: {emulator.base_url.rpartition(':')[2]}",
        )
    else:
        assert row["level"] == "ok"
    assert (said.status, strict.status) == (0, 1)


def test_databases(doctor: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CRM", '{"conn_type": "snowflake", "host": "x"}')
    said = doctor("--sql-conn-id", "crm", "--sql-conn-id", "absent", "--sql-conn-id", "mail_default")
    assert said.status == 1
    crm, absent, mail = (row for row in said.rows if row["check"] == "database")
    assert (crm["level"], crm["fix"]) == ("error", "pip install apache-airflow-providers-snowflake")
    assert absent["fix"].startswith("airflow connections add absent ")
    assert "is not a database" in mail["message"]


@pytest.mark.parametrize(("age", "expected"), [(0, "ok"), (3600, "warning")])
def test_the_triggerer(doctor: Command, age: int, expected: str) -> None:
    from airflow.jobs.job import Job
    from airflow.utils.session import create_session

    now = datetime.datetime.now(datetime.UTC)
    with create_session() as session:
        job = Job(job_type="TriggererJob", state="running")
        job.latest_heartbeat = now - datetime.timedelta(seconds=age)
        session.add(job)
    try:
        row = only(doctor(), "triggerer")
    finally:
        with create_session() as session:
            session.query(Job).filter_by(job_type="TriggererJob").delete()
    assert (row["level"], row["fix"]) == (expected, "" if expected == "ok" else "airflow triggerer")
    assert ("last heartbeat" in row["message"]) == (expected == "warning")


def test_a_database_of_airflow_that_cannot_be_read(doctor: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise OSError("postgres://airflow:secret@host")

    monkeypatch.setattr("airflow.jobs.job.most_recent_job", refused)
    said = doctor()
    assert (said.status, level(said, "triggerer")) == (0, "not checked")
    assert "secret" not in said.out


def test_a_sender_that_may_not_send(doctor: Command, emulator: Emulator) -> None:
    emulator.add_sender("receipts@example.com", types=[2])
    said = doctor("--sender", "receipts@example.com", "--sender", "nobody@example.com")
    assert said.status == 1
    receipts, nobody = (row for row in said.rows if row["check"] == "sender")
    assert "transactional mail only" in receipts["message"]
    assert "is not a sender of the account" in nobody["message"]
    assert "MailSenderSensor" in nobody["fix"]


def test_a_service_that_fails_in_between(doctor: Command, emulator: Emulator) -> None:
    emulator.faults.add("code_before", "/v5/verified_senders/get", code=403, message="not for you")
    said = doctor("--sender", "news@example.com")
    assert (said.status, level(said, "service"), level(said, "sender")) == (1, "ok", "error")
