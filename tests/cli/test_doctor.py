"""What is wrong with a setup, and what to type: one line for each check, and an exit status."""

from __future__ import annotations

import datetime
import json
import shlex
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from airflow.cli.cli_parser import get_parser as airflow_parser
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.jobs.job import Job
from airflow.models import Connection
from airflow.models.serialized_dag import SerializedDagModel
from airflow.sdk import DAG
from airflow.utils.session import create_session

from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.transfers.mail_to_sql import MailCampaignStatsToSqlOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from airflow_provider_mail.warehouse.tables.registry import TABLES
from airflow_provider_mail.webhook.tokens import TokenOwner, Tokens
from mail_emulator import Emulator
from tests.cli.conftest import Command, Said
from tests.support.dags import AIRFLOW_VERSION, register
from tests.support.mariadb import MariaServer
from tests.support.postgres import Database
from tests.webhook.pushes import NOON, event, push, receive, sqlite_inbox

NO_TRIGGERER = ("triggerer", "warning")


@pytest.fixture
def doctor(command: Command) -> Command:
    """Runs the command for programs."""
    return lambda *arguments: command("doctor", *arguments, "-o", "json")


def only(said: Said, check: str) -> dict[str, Any]:
    (row,) = (row for row in said.data if row["check"] == check)
    return row


def levels(said: Said) -> list[tuple[str, str]]:
    return [(row["check"], row["level"]) for row in said.data]


@contextmanager
def stored(row: Any) -> Iterator[None]:
    """A row of Airflow's database, as long as the body runs."""
    with create_session() as session:
        session.add(row)
        session.flush()
        session.expunge(row)
    try:
        yield
    finally:
        with create_session() as session:
            session.delete(row)


def test_all_is_well(doctor: Command, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator.add_list("newsletter")
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", '{"conn_type": "sqlite", "host": "/tmp/warehouse.db"}')
    said = doctor("--sql-conn-id", "warehouse", "--sender", "news@example.com", "--list", "newsletter")
    assert said.status == 0
    well = [(check, "ok") for check in ("connection", "port", "service", "sender", "list", "database")]
    assert levels(said) == [*well, NO_TRIGGERER]
    assert [row["fix"] for row in said.data if row["level"] == "ok"] == [""] * 6
    reads = ("lists/get", "verified_senders/get")
    assert emulator.journal.count() == sum(emulator.journal.count(f"/v5/{read}") for read in reads)


def test_the_inbox_is_checked(doctor: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox = sqlite_inbox(tmp_path / "inbox.db")
    monkeypatch.setenv("AIRFLOW_CONN_INBOX", json.dumps({"conn_type": "sqlite", "host": str(tmp_path / "inbox.db")}))
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "inbox")
    assert "there is no valid token" in only(doctor(), "inbox")["message"]
    Tokens(inbox, TokenOwner("mail_default", "", "")).add("x")
    receive(inbox, [push(event(1))])
    old = only(doctor(), "inbox")
    assert (old["level"], "the inbox is not drained" in old["message"]) == ("error", True)
    assert "MailEventsToSqlOperator" in old["fix"]
    with inbox.connection() as connection:
        inbox.finish(connection, [1], NOON)
    assert (only(doctor(), "inbox")["level"], only(doctor(), "inbox")["fix"]) == ("ok", "")
    (tmp_path / "inbox.db").write_bytes(b"no database" * 100)
    assert only(doctor(), "inbox")["level"] == "error"


def test_each_thing_is_used_as_tasks_use_it(
    doctor: Command, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    emulator.add_list("newsletter")
    down = {"conn_type": "postgres", "host": "127.0.0.1", "port": 1, "login": "u", "password": "hidden", "schema": "d"}
    monkeypatch.setenv("AIRFLOW_CONN_DOWN", json.dumps(down))
    no_file = {"conn_type": "sqlite", "host": str(tmp_path / "absent" / "warehouse.db")}
    monkeypatch.setenv("AIRFLOW_CONN_NO_FILE", json.dumps(no_file))
    rate = {"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key}
    rate["extra"] = {"rate_limit_conn_id": "absent", "requests_per_second": 5}
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_RATE", json.dumps(rate))
    for arguments, check, message in (
        ("--sql-conn-id down", "database", "connection 'down': the database cannot be used"),
        ("--sql-conn-id no_file", "database", "connection 'no_file': the database cannot be used"),
        ("-c mail_rate", "connection", "'mail_rate': rate_limit_conn_id: there is no connection 'absent'"),
        ("--list Newsletter", "list", "there is no list 'Newsletter', but 'newsletter'"),
    ):
        said = doctor(*arguments.split())
        assert (said.status, only(said, check)["level"]) == (1, "error")
        assert message in only(said, check)["message"]
        assert "hidden" not in said.out
    monkeypatch.setenv("AIRFLOW_CONN_ABSENT", '{"conn_type": "redis", "host": "127.0.0.1", "port": 1}')
    said = doctor("-c", "mail_rate")
    assert (said.status, "Redis cannot be used" in only(said, "redis")["message"]) == (1, True)


Asked = Callable[[str], dict[str, Any]]


@pytest.fixture
def asked(doctor: Command, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What it says of the database of a connection."""

    def asked(connection: str) -> dict[str, Any]:
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", connection)
        return only(doctor("--sql-conn-id", "warehouse"), "database")

    return asked


def tables() -> list[str]:
    """The statements that create two of the tables."""
    columns = {
        name: ", ".join(f"{column.name} VARCHAR(50) NOT NULL" for column in TABLES[name].stored_columns)
        for name in ("mail_contacts", "mail_events")
    }
    return [f"CREATE TABLE {name} ({declared})" for name, declared in columns.items()]


def test_rights_in_sqlite(asked: Asked, tmp_path: Path) -> None:
    connection = {"conn_type": "sqlite", "host": str(tmp_path / "warehouse.db")}
    with closing(sqlite3.connect(connection["host"])) as database:
        for statement in tables():
            database.execute(statement)
    assert asked(json.dumps(connection))["level"] == "ok"
    row = asked(json.dumps(connection | {"extra": {"mode": "ro"}}))
    assert row["level"] == "warning"
    assert "INSERT, UPDATE, DELETE on mail_contacts (OperationalError: attempt to write a readonly" in row["message"]
    assert "read-only mode" in row["fix"]


def test_rights_in_duckdb(asked: Asked, tmp_path: Path) -> None:
    connection = {"conn_type": "duckdb", "host": str(tmp_path / "warehouse.duckdb")}
    with duckdb.connect(connection["host"]) as database:
        for statement in tables():
            database.execute(statement)
    assert asked(json.dumps(connection))["level"] == "ok"
    with duckdb.connect(connection["host"]) as database:
        database.execute("ALTER TABLE mail_contacts RENAME TO people")
        database.execute("CREATE VIEW mail_contacts AS SELECT * FROM people")
    assert ": INSERT, UPDATE, DELETE on mail_contacts (" in asked(json.dumps(connection))["message"]


def test_rights_in_postgres(asked: Asked, postgres_database: Database) -> None:
    with postgres_database.connect() as owner:
        for statement in tables():
            owner.execute(statement)  # type: ignore[arg-type]
        owner.execute(
            "GRANT CREATE ON SCHEMA public TO PUBLIC; DROP ROLE IF EXISTS mail_doctor; CREATE ROLE mail_doctor LOGIN"
        )
        owner.execute(
            "GRANT INSERT, DELETE ON mail_contacts TO mail_doctor; GRANT SELECT, INSERT ON mail_events TO mail_doctor"
        )
        connection = replace(postgres_database, user="mail_doctor").airflow_connection
        try:
            row = asked(connection)
            assert "tables that exist: SELECT, UPDATE on mail_contacts (InsufficientPrivilege" in row["message"]
            assert row["fix"] == "GRANT SELECT, UPDATE ON mail_contacts TO mail_doctor"
            owner.execute(row["fix"])
            assert asked(connection)["level"] == "ok"
        finally:
            owner.execute("DROP OWNED BY mail_doctor; DROP ROLE mail_doctor")


def test_rights_in_mariadb(asked: Asked, mariadb_server: MariaServer) -> None:
    with mariadb_server.database() as database, closing(database.connect()) as connection:
        owner = connection.cursor()
        user = "'mail_doctor'@'127.0.0.1'"
        grants = [f"GRANT SELECT, DELETE ON mail_contacts TO {user}", f"GRANT SELECT, INSERT ON mail_events TO {user}"]
        for statement in (*tables(), f"CREATE USER {user}", *grants):
            owner.execute(statement)
        try:
            limited = replace(database, user="mail_doctor", password="").airflow_connection
            row = asked(limited)
            assert ": INSERT, UPDATE on mail_contacts (" in row["message"]
            owner.execute(row["fix"].replace("'...'", "'127.0.0.1'"))
            assert asked(limited)["level"] == "ok"
        finally:
            owner.execute(f"DROP USER {user}")


def test_what_the_tasks_of_a_dag_need(doctor: Command, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CRM", '{"conn_type": "sqlite", "host": ":memory:"}')
    with DAG("doctored", schedule=None) as dag:
        SqlToMailContactsOperator(task_id="contacts", sql_conn_id="crm", sql="SELECT 1", list_name="new")
        MailCreateCampaignOperator(
            task_id="campaign",
            subject="News",
            content="<p>Hello</p>",
            sender_mail="news@example.com",
            send_list_names=["Customers", "{{ params.more }}"],
        )
        MailCampaignStatsToSqlOperator(task_id="statistics", mail_conn_id="mail_bad", sql_conn_id="absent")
    emulator.add_list("customers")
    if AIRFLOW_VERSION < (3, 1):
        from airflow.models.dag import DAG as StoredDAG
        from airflow.serialization.serialized_objects import LazyDeserializedDAG, SerializedDAG

        data = SerializedDAG.to_dict(dag)
        DagBundlesManager().sync_bundles_to_db()
        StoredDAG.bulk_write_to_db("dags-folder", None, [SerializedDAG.from_dict(data)])
        SerializedDagModel.write_dag(LazyDeserializedDAG(data=data), bundle_name="dags-folder")
    else:
        register(dag)
    said = doctor("--dag-id", "doctored")
    assert sorted(
        {(row["check"], row["subject"], row["level"]) for row in said.data} - {("triggerer", "", "warning")}
    ) == [
        ("connection", "mail_bad", "ok"),
        ("connection", "mail_default", "ok"),
        ("database", "absent", "error"),
        ("database", "crm", "ok"),
        ("list", "Customers", "error"),
        ("list", "new", "ok"),
        ("port", "mail_bad", "ok"),
        ("port", "mail_default", "ok"),
        ("sender", "news@example.com", "ok"),
        ("service", "mail_bad", "error"),
        ("service", "mail_default", "ok"),
    ]
    said = doctor("--dag-id", "unknown")
    assert (said.status, only(said, "dag")["level"]) == (1, "error")


@pytest.mark.parametrize(("seconds", "level"), [(3600, "ok"), (200, "warning"), (-60, "warning")])
def test_when_an_access_token_ends(
    doctor: Command, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, seconds: int, level: str
) -> None:
    ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    extra = {"auth_type": "oauth", "access_token": emulator.issue_token(), "oauth_expires_at": ends.isoformat()}
    connection = {"conn_type": "mail", "host": emulator.base_url, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps(connection))
    said = doctor()
    shown = only(said._replace(out=said.out[said.out.index("[\n") :]), "connection")  # behind the log
    assert shown["level"] == level
    assert f"its OAuth access token ends at {ends:%Y-%m-%d %H:%M:%S} UTC" in shown["message"]
    assert ("airflow mail oauth login --conn-id mail_default" in shown["fix"]) is (level == "warning")


def test_a_missing_connection_can_be_added_with_the_fix(doctor: Command) -> None:
    said = doctor("-c", "nowhere", "--list", "newsletter")
    assert (said.status, levels(said)) == (1, [("connection", "error"), ("list", "not checked"), NO_TRIGGERER])
    program, *words = shlex.split(only(said, "connection")["fix"])
    typed = airflow_parser().parse_args(words)
    assert (program, typed.conn_id, typed.conn_type) == ("airflow", "nowhere", "mail")


def test_each_error_has_a_fix(
    doctor: Command, command: Command, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator.add_sender("receipts@example.com", types=[2])
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_ODD", '{"conn_type": "mail", "password": "k", "extra": {"sandbx": true}}')
    monkeypatch.setenv("AIRFLOW_CONN_CRM", '{"conn_type": "snowflake", "host": "x"}')
    for arguments, check, message, fix in (
        ("-c mail_odd", "connection", "unknown field sandbx", "airflow connections delete mail_odd"),
        ("-c mail_bad", "service", "rejects the password (API key)", "airflow_provider_mail check -c mail_bad"),
        ("--sql-conn-id crm", "database", "tables with dlt", "pip install apache-airflow-providers-snowflake"),
        ("--sql-conn-id absent", "database", "", "airflow connections add absent "),
        ("--sql-conn-id mail_default", "database", "is not a database", ""),
        ("--sender receipts@example.com", "sender", "transactional mail only", "MailSenderSensor"),
        ("--sender foreign@example.com", "sender", "is not a sender of the account", "MailSenderSensor"),
        ("--list newsletter", "list", "there is no list 'newsletter'", "MailCreateListOperator(task_id='create_list'"),
    ):
        said = doctor(*arguments.split())
        row = only(said, check)
        assert (said.status, row["level"]) == (1, "error")
        assert message in row["message"]
        assert fix in row["fix"]
        assert "not-the-key" not in said.out
    printed = command("doctor", "--list", "newsletter").out
    assert f"error        list        {row['message']}\n" in printed
    assert f"fix:        {row['fix']}" in printed
    said = doctor("-c", "mail_bad", "--sender", "news@example.com")
    assert (only(said, "connection")["level"], only(said, "sender")["level"]) == ("ok", "not checked")
    emulator.faults.add("code_before", "/v5/verified_senders/get", code=403, message="not for you")
    said = doctor("--sender", "news@example.com")
    assert (said.status, only(said, "service")["level"], only(said, "sender")["level"]) == (1, "ok", "error")


@pytest.mark.parametrize("port", [None, 8025])
def test_a_stored_connection_needs_a_port(doctor: Command, emulator: Emulator, port: int | None) -> None:
    """The button in Airflow's list of connections rejects one without a port (Airflow 3.3)."""
    fields: Any = {"host": emulator.base_url, "port": port, "password": emulator.api_key}
    with stored(Connection(conn_id="stored", conn_type="mail", **fields)):
        said, strict = doctor("-c", "stored"), doctor("-c", "stored", "--strict")
    row = only(said, "port")
    if port is None and AIRFLOW_VERSION >= (3, 3):
        fix = f"Admin > Connections > stored > Port: {emulator.base_url.rpartition(':')[2]}"
        assert (row["level"], row["fix"]) == ("warning", fix)
    else:
        assert row["level"] == "ok"
    assert (said.status, strict.status) == (0, 1), "there is no triggerer"


@pytest.mark.parametrize(("age", "expected"), [(0, "ok"), (3600, "warning")])
def test_the_triggerer_is_checked(doctor: Command, age: int, expected: str) -> None:
    job = Job(job_type="TriggererJob", state="running")
    job.latest_heartbeat = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age)
    with stored(job):
        row = only(doctor(), "triggerer")
    assert (row["level"], row["fix"]) == (expected, "" if expected == "ok" else "airflow triggerer")
    assert ("last heartbeat" in row["message"]) == (expected == "warning")


def test_airflows_database_may_be_out_of_reach(doctor: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("postgres://airflow:secret@host")

    monkeypatch.setattr("airflow.jobs.job.most_recent_job", fail)
    said = doctor()
    assert (said.status, only(said, "triggerer")["level"]) == (0, "not checked")
    assert "secret" not in said.out
