"""The rights that the documentation grants to roles of databases are enough for every load."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from datetime import date

import pytest

from mail_emulator import Emulator
from tests.support.env import ROOT
from tests.support.mariadb import MariaServer
from tests.support.postgres import PostgresServer
from tests.tasks.loading import LOADS, executed, load_task

PAGE = (ROOT / "docs" / "how-to" / "permissions.md").read_text()
ROLES = ("mail_loader", "mail_writer")
"""Who may create tables, and who may not."""


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


@pytest.mark.usefixtures("_service")
def test_grants_in_postgres(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.ExitStack() as roles:
        maintenance = roles.enter_context(postgres_server.maintenance.connect())
        for role in ROLES:
            roles.callback(maintenance.execute, f"DROP ROLE IF EXISTS {role}")  # type: ignore[arg-type]
        with postgres_server.database() as database, database.connect() as owner:
            owner.execute(f"REVOKE ALL ON DATABASE {database.name} FROM PUBLIC")  # type: ignore[arg-type]
            for role, granted in zip(ROLES, blocks("postgres", database.name), strict=True):
                owner.execute(granted)  # type: ignore[arg-type]
                load_all(replace(database, user=role).airflow_connection, monkeypatch)
            (count,) = owner.execute("SELECT COUNT(*) FROM mail.mail_contacts").fetchone() or ()
            assert count == 1


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
        owner.execute("DROP USER 'mail_loader'@'127.0.0.1'")
