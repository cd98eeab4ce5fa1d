"""Accounts that are loaded by dlt, in time of their own, and by the operators: the same rows are expected."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dlt
import duckdb
import pytest
import time_machine

from airflow_provider_mail._dlt_resources import DaysToRead, span  # noqa: F401 - private: imported here alone
from airflow_provider_mail.api import ClientConfig, MailClient
from airflow_provider_mail.warehouse.table import Table
from airflow_provider_mail.warehouse.tables.resources import CAMPAIGNS, CONTACTS
from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_SNAPSHOTS, CAMPAIGN_STATS, TRANSACTIONAL_STATS
from mail_emulator import Emulator
from tests.tasks.loading import executed, load_task

NOON = datetime.datetime(2026, 3, 10, 12, tzinfo=datetime.UTC)
TODAY = NOON.date()
START = TODAY - datetime.timedelta(days=40)
TABLES = {
    "mail_campaign_stats": CAMPAIGN_STATS,
    "mail_campaign_stats_snapshots": CAMPAIGN_SNAPSHOTS,
    "mail_campaigns": CAMPAIGNS,
    "mail_contacts": CONTACTS,
    "mail_transactional_stats": TRANSACTIONAL_STATS,
}
LISTS = ("newsletter", "customers")
IGNORED = ("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")


@pytest.fixture(name="_passing", autouse=True)
def noon() -> Iterator[None]:
    """It is noon, and time does not jump: dlt waits for its own threads by sleeping."""
    with time_machine.travel(NOON):
        yield


@pytest.fixture(autouse=True)
def dlt_settings(airflow_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither dlt's settings of this machine, nor what it reports home; and Airflow's database, in which it looks."""
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt"))
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")


@pytest.fixture(name="client")
def dlt_client(emulator: Emulator) -> Iterator[MailClient]:
    with MailClient(ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key)) as client:
        yield client


class Duck:
    """A pipeline into a DuckDB."""

    def __init__(self, folder: Path) -> None:
        self.file = str(folder / "warehouse.duckdb")
        to = dlt.destinations.duckdb(self.file)
        self.pipeline = dlt.pipeline("mail", pipelines_dir=str(folder), destination=to, dataset_name="mail_service")

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(duckdb.connect(self.file)) as connection:
            connection.execute("SET search_path = 'mail_service'")
            return connection.execute(sql).fetchall()


@pytest.fixture(name="duck")
def dlt_duck(tmp_path: Path) -> Duck:
    return Duck(tmp_path)


def fill(emulator: Emulator, *, contacts: int = 1200) -> None:
    emulator.add_list("newsletter", count=contacts)
    emulator.add_contact("ann@example.com", lists=["newsletter"], properties={"city": 'Århus "x"', "note": "a\nb"})
    emulator.add_list("customers", count=3)
    emulator.add_campaigns(60, first_day=START, per_day=2)
    for number in range(5):
        day = TODAY - datetime.timedelta(days=number)
        emulator.set_transactional_day(day, sentCount=100 + number, openCount=number)


def by_operators(*, start: datetime.date = START) -> None:
    """Load the account into the tables of the connection ``warehouse``."""
    days = {"start_day": f"{start}", "end_day": f"{TODAY}"}
    tasks = [load_task("mail_contacts", list_name=name, allow_empty=True) for name in LISTS]
    tasks += [load_task("mail_campaigns"), load_task("mail_transactional_stats", **days)]
    for task in (*tasks, load_task("mail_campaign_stats_snapshots", **days)):
        executed(task)


def rows_of(query: Callable[[str], list[tuple[Any, ...]]], name: str, table: Table) -> list[tuple[Any, ...]]:
    """The rows of a table without the time of observation, in the order of its key, with values of one form.

    :param query: returns the rows of a statement.
    """
    columns = [column for column in table.columns if column.name != table.observed]

    def plain(value: Any, kind: str) -> Any:
        if kind == "json" and isinstance(value, str):
            return json.loads(value)
        return value.astimezone(datetime.UTC) if isinstance(value, datetime.datetime) else value

    rows = query(f"SELECT {', '.join(column.name for column in columns)} FROM {name} ORDER BY {', '.join(table.key)}")
    return [tuple(plain(value, column.type.name) for value, column in zip(row, columns, strict=True)) for row in rows]
