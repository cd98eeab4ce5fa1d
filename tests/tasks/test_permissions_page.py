"""The rights that the documentation grants to roles of databases are enough for what each does."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date

import pytest

from airflow_provider_mail.plugin import campaigns, views
from airflow_provider_mail.plugin.reader import Reader, forget
from airflow_provider_mail.transfers.events_to_sql import MailEventsToSqlOperator
from airflow_provider_mail.webhook.inbox import Inbox
from airflow_provider_mail.webhook.tokens import TokenOwner, Tokens, new_token
from mail_emulator import Emulator
from tests.support.env import ROOT
from tests.support.mariadb import MariaServer
from tests.support.memory_parts import new_memory
from tests.support.postgres import PostgresServer
from tests.tasks.loading import LOADS, executed, load_task, sql_hook
from tests.tasks.test_audience import done, imported
from tests.tasks.test_memory import sent
from tests.webhook.pushes import event, push, receive

PAGE = (ROOT / "docs" / "how-to" / "permissions.md").read_text()
ROLES = ("mail_loader", "mail_writer")
"""Who may create tables, and who may not."""
PARTS = ("mail_importer", "mail_sender", "mail_page", "mail_receiver", "mail_drain")
"""Who may do one thing; the last two in Postgres only."""


def blocks(database: str, name: str) -> list[str]:
    """The statements of the page, for a database of another name."""
    shown = re.findall(rf"<!-- run: {database} -->\n```sql\n(.*?)```", PAGE, re.DOTALL)
    return [statements.replace("warehouse", name) for statements in shown]


@pytest.fixture
def _service(emulator: Emulator) -> None:
    emulator.add_campaigns(1, first_day=date(2024, 3, 2))
    emulator.add_list("news", ["ada@example.com"])


def load_all(connection: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", connection)
    for table in LOADS:
        executed(load_task(table))


class Parts:
    """What the roles of parts do, each time with other people and events."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for option in ("MEMORY", "PAGE", "INBOX"):
            monkeypatch.setenv(f"AIRFLOW__MAIL__{option}_CONN_ID", "warehouse")
        new_memory("warehouse", monkeypatch)
        self._monkeypatch, self._number = monkeypatch, 0

    def run(self, parts: Sequence[str], connections: Mapping[str, str]) -> dict[str, str]:
        """Let each part do its work; return what went wrong.

        :param connections: of each part; without one, that of the owner of the tables is kept.
        """
        wrong = {}
        for part in parts:
            self._number += 1
            if part in connections:
                self._monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", connections[part])
            try:
                getattr(self, part)()
            except Exception as error:
                wrong[part] = repr(error)
        return wrong

    def mail_importer(self) -> None:
        people = ["ada", "bob", "cem", f"eva{self._number}"]  # one joins and one leaves each time
        state = {"changes_only": True, "state_conn_id": "warehouse", "log_table": "mail_audience_runs"}
        assert done(imported(*people, **state), f"run {self._number}")["size"] == len(people)

    def mail_sender(self) -> None:
        assert sent(f"run {self._number}", once_per=f"key {self._number}")["recipients"] == 5

    def mail_page(self) -> None:
        forget()
        reader = Reader.of_page()
        campaigns.lists(reader)
        views.audiences(reader)

    def mail_receiver(self) -> None:
        inbox = Inbox(sql_hook("warehouse"))
        assert list(Tokens(inbox).valid().values()) == ["mail_default"]
        inbox.probe()
        receive(inbox, [push(event(self._number), {})])

    def mail_drain(self) -> None:
        drain = MailEventsToSqlOperator(task_id="drain", sql_conn_id="warehouse", keep_days=0)
        assert executed(drain)["stored"] == 1


@pytest.mark.usefixtures("_service")
def test_grants_in_postgres(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.ExitStack() as roles:
        maintenance = roles.enter_context(postgres_server.maintenance.connect())
        for role in (*ROLES, *PARTS):
            roles.callback(maintenance.execute, f"DROP ROLE IF EXISTS {role}")  # type: ignore[arg-type]
        with postgres_server.database() as database, database.connect() as owner:
            owner.execute(f"REVOKE ALL ON DATABASE {database.name} FROM PUBLIC")  # type: ignore[arg-type]
            for role, granted in zip(ROLES, blocks("postgres", database.name), strict=True):
                owner.execute(granted)  # type: ignore[arg-type]
                load_all(replace(database, user=role).airflow_connection, monkeypatch)
            (count,) = owner.execute("SELECT COUNT(*) FROM mail.mail_contacts").fetchone() or ()
            assert count == 1
            monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", replace(database, user="mail_loader").airflow_connection)
            tokens = Tokens(inbox := Inbox(sql_hook("warehouse")), TokenOwner("mail_default", "", ""))
            inbox.create()
            tokens.add(new_token())
            parts = Parts(monkeypatch)
            assert parts.run(PARTS, {}) == {}  # makes the tables
            names = ", ".join(PARTS)
            for role in PARTS:
                owner.execute(f"CREATE ROLE {role} LOGIN; ALTER ROLE {role} SET search_path = mail")
            owner.execute(f"GRANT CONNECT ON DATABASE {database.name} TO {names}")
            owner.execute(f"SET search_path = mail; GRANT USAGE ON SCHEMA mail TO {names}")
            connections = {role: replace(database, user=role).airflow_connection for role in PARTS}
            assert [*parts.run(PARTS, connections)] == [*PARTS]
            owner.execute(blocks("postgres parts", database.name)[0])
            assert parts.run(PARTS, connections) == {}


@pytest.mark.usefixtures("_service")
def test_grants_in_mysql(mariadb_server: MariaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with mariadb_server.database() as database, contextlib.closing(database.connect()) as connection:
        owner = connection.cursor()
        (granted,) = blocks("mysql", database.name)
        for statement in granted.replace("'localhost'", "'127.0.0.1'").split(";\n")[:-1]:
            owner.execute(statement)
        load_all(replace(database, user="mail_loader", password="").airflow_connection, monkeypatch)
        owner.execute("SELECT COUNT(*) FROM mail_contacts")
        assert owner.fetchone() == (1,)
        parts = Parts(monkeypatch)
        assert parts.run(PARTS[:3], {}) == {}  # makes the tables
        for role in PARTS[:3]:
            owner.execute(f"CREATE USER '{role}'@'127.0.0.1'")
        (granted,) = blocks("mysql parts", database.name)
        for statement in granted.replace("'localhost'", "'127.0.0.1'").split(";\n")[:-1]:
            owner.execute(statement)
        connections = {role: replace(database, user=role, password="").airflow_connection for role in PARTS[:3]}
        wrong = parts.run(PARTS[:3], connections)
        for user in ("mail_loader", *PARTS[:3]):
            owner.execute(f"DROP USER '{user}'@'127.0.0.1'")
        assert wrong == {}
