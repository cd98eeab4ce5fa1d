"""Tasks that load what the service has into SQLite and files: what was there before, or exactly the service's."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from copy import copy
from pathlib import Path
from typing import Any, Self

from airflow.sdk import BaseOperator

from airflow_provider_mail.operators.events import MailEventsReconcileOperator
from airflow_provider_mail.transfers.mail_to_object_storage import (
    MailCampaignsToObjectStorageOperator,
    MailContactsToObjectStorageOperator,
    MailStatsToObjectStorageOperator,
)
from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailCampaignsToSqlOperator,
    MailContactsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)
from airflow_provider_mail.warehouse.tables.events import EVENTS
from mail_emulator import Emulator
from tests.faults.reads import FIRST, LAST, TRUE_DAYS, fill, true_stats
from tests.faults.trying import Said, TaskWorkload
from tests.support.tries import Tries

DAYS: dict[str, Any] = {"start_day": str(FIRST), "end_day": str(LAST)}
STATS = "mail_name, sent_count, open_count, click_count, hard_bounce, soft_bounce, unsent_count, unsubscribe_count"
CONTACTS: dict[str, Any] = {"list_name": "customers", "page_size": 3, "max_in_flight": 2}
CAMPAIGNS: dict[str, Any] = {"page_size": 3, "max_in_flight": 2}
Rows = list[tuple[Any, ...]]
Make = Callable[..., BaseOperator]
Truth = Callable[[Emulator], Rows]


FOLDER = tempfile.TemporaryDirectory(prefix="any-faults-")


class Database:
    """An SQLite file behind a connection; every run begins with a copy of the same one."""

    def __init__(self, conn_id: str) -> None:
        self.conn_id = conn_id
        self.arguments = {"sql_conn_id": conn_id}
        self._path = Path(FOLDER.name) / f"{conn_id}.db"
        self._first = self._path.with_suffix(".first")

    def hold(self, table: str, columns: Sequence[str]) -> None:
        """Begin with an empty table."""
        if not self._first.exists():
            with closing(sqlite3.connect(self._path)) as connection:
                connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            self.keep()

    def connection(self) -> dict[str, Any]:
        return {self.conn_id: {"conn_type": "sqlite", "host": str(self._path)}}

    def restore(self) -> None:
        """Be what was kept, or empty."""
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        if self._first.exists():
            shutil.copy(self._first, self._path)

    def keep(self) -> None:
        """Begin like this from now on."""
        shutil.copy(self._path, self._first)

    def query(self, sql: str) -> Rows:
        with closing(sqlite3.connect(self._path)) as connection:
            return connection.execute(sql).fetchall()


class Folder:
    """A folder of JSON Lines; every run begins with a copy of the same one."""

    def __init__(self, name: str) -> None:
        self.path = Path(FOLDER.name) / name
        self.arguments = {"path": f"file://{self.path}", "file_format": "jsonl"}
        self._first = self.path.with_suffix(".first")

    def connection(self) -> dict[str, Any]:
        return {}

    def restore(self) -> None:
        """Be what was kept, or empty."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._first.exists():
            shutil.copytree(self._first, self.path)

    def keep(self) -> None:
        """Begin like this from now on."""
        shutil.copytree(self.path, self._first)

    def query(self, columns: str) -> Rows:
        """Columns of the rows of every file."""
        lines = [line for file in self.path.rglob("*.jsonl") for line in file.read_text().splitlines()]
        return [tuple(json.loads(line)[column] for column in columns.split(", ")) for line in lines]


def arrange_earlier(service: Emulator) -> None:
    """What an earlier load has found: other counts, and what is gone now."""
    fill(service)
    service.set_campaign_stats("news-000000", sentCount=1)
    service.add_contact("gone@example.com", lists=["customers"])


def arrange_now(service: Emulator) -> None:
    """What is to be loaded."""
    service.reset()
    service.add_sender("news@example.com")
    fill(service)
    service.set_campaign_stats("news-000001", sentCount=100, openCount=50)
    service.set_transactional_day(FIRST, sentCount=77)
    service.add_contact("late@example.com", lists=["customers"])


def true_contacts(service: Emulator) -> Rows:
    return sorted((contact["email"],) for contact in service.contacts("customers"))


def true_campaigns(service: Emulator) -> Rows:
    return sorted((campaign["mailName"],) for campaign in service.campaigns())


def true_days(service: Emulator) -> Rows:
    return [(str(day), 77 if day == FIRST else sent) for day, sent, _ in TRUE_DAYS]


class Load(TaskWorkload):
    """A table, or a file for each day: the rows from before, or exactly the service's."""

    examples = 12

    def __init__(self, what: str, make: Make, query: str, truth: Truth, **arguments: Any) -> None:
        self.name = f"load {what}"
        self._make, self._query, self._true_rows, self._arguments = make, query, truth, arguments
        self._store: Database | Folder = Database(f"warehouse_{what.replace(' ', '_')}")
        self._before: Rows = []

    def into(self, store: Database | Folder, make: Make | None = None) -> Self:
        """The same workload on another database, or with what it writes into a folder.

        :param make: makes what loads it, with arguments of its own. Default: the same operator.
        """
        other = copy(self)
        other._store, other._before = store, []
        if make is not None:
            other._make, other._arguments = make, {}
        return other

    def arrange(self, service: Emulator) -> None:
        if not self._before:
            self._store.restore()
            arrange_earlier(service)
            assert super().run(service, "").green, self.task
            self._store.keep()
            self._before = sorted(self._store.query(self._query))
            self.task = Tries(service)
        arrange_now(service)
        self._store.restore()

    def operator(self) -> BaseOperator:
        return self._make(task_id="task", **self._store.arguments, **self._arguments)

    def connections(self) -> dict[str, Any]:
        return self._store.connection()

    def check(self, service: Emulator, said: Said) -> None:
        rows, truth = sorted(self._store.query(self._query)), self._true_rows(service)
        in_days = isinstance(self._store, Folder) and set(rows) <= {*self._before, *truth}
        assert rows == truth or (not said.green and (rows == self._before or in_days))
        assert not said.green or said.result["records"] == len(truth)


class LoadDays(Load):
    """Days that the service leaves out are reported, and stay as they were."""

    def check(self, service: Emulator, said: Said) -> None:
        if not said.green or not said.result["missing_days"]:
            super().check(service, said)
            return
        rows = self._store.query(self._query)
        assert {day for day, _ in rows} == {day for day, _ in self._true_rows(service)}
        assert set(rows) <= {*self._before, *self._true_rows(service)}


class Reconcile(Load):
    """Days with the service's counts, beside events of which there are none; days that it leaves out have no count."""

    def arrange(self, service: Emulator) -> None:
        assert isinstance(self._store, Database)
        self._store.hold("mail_events", EVENTS.names)
        super().arrange(service)

    def check(self, service: Emulator, said: Said) -> None:
        rows, truth = self._store.query(self._query), self._true_rows(service)
        assert len(rows) == len(truth)
        before = set() if said.green else set(self._before)
        assert set(rows) <= {*truth, *((day, None) for day, _ in truth)} | before


class WriteLoad(TaskWorkload):
    """A folder with a manifest for each try that ended, with exactly what the service has."""

    examples = 12

    def __init__(self, what: str, make: Make, column: str, truth: Truth, **arguments: Any) -> None:
        self.name = f"write {what} as a load"
        self._make, self._column, self._true_rows, self._arguments = make, column, truth, arguments
        self._folder = Folder(what.replace(" ", "_"))

    def arrange(self, service: Emulator) -> None:
        arrange_now(service)
        self._folder.restore()

    def operator(self) -> BaseOperator:
        return self._make(task_id="task", rows_per_file=3, **self._folder.arguments, **self._arguments)

    def check(self, service: Emulator, said: Said) -> None:
        manifests = list(self._folder.path.glob("*/manifest.json"))
        for file in manifests:
            urls = [entry["url"] for entry in json.loads(file.read_bytes())["entries"]]
            lines = [line for url in urls for line in Path(url.removeprefix("file://")).read_text().splitlines()]
            assert sorted((json.loads(line)[self._column],) for line in lines) == self._true_rows(service)
        assert len(manifests) == 1 or not said.green


LOADS: tuple[TaskWorkload, ...] = (
    Load(
        "campaign statistics",
        MailCampaignStatsToSqlOperator,
        f"SELECT {STATS} FROM mail_campaign_stats",
        true_stats,
        **DAYS,
    ),
    LoadDays(
        "transactional statistics",
        MailTransactionalStatsToSqlOperator,
        "SELECT stats_date, sent_count FROM mail_transactional_stats",
        true_days,
        **DAYS,
    ),
    Reconcile(
        "compared events",
        MailEventsReconcileOperator,
        "SELECT stats_date, service_count FROM mail_event_differences WHERE counter = 'sent_count'",
        true_days,
        tolerance_fraction=1.0,
        **DAYS,
    ),
    Load("contacts of a list", MailContactsToSqlOperator, "SELECT email FROM mail_contacts", true_contacts, **CONTACTS),
    Load(
        "campaigns",
        MailCampaignsToSqlOperator,
        # Those of earlier loads stay: the service has deleted them since, to go by their guids.
        "SELECT mail_name FROM mail_campaigns WHERE gone_at IS NULL ORDER BY mail_name",
        true_campaigns,
        **CAMPAIGNS,
    ),
    Load("campaign statistics into files", MailStatsToObjectStorageOperator, STATS, true_stats, **DAYS).into(
        Folder("statistics")
    ),
    WriteLoad("contacts", MailContactsToObjectStorageOperator, "email", true_contacts, **CONTACTS),
    WriteLoad("campaigns", MailCampaignsToObjectStorageOperator, "mail_name", true_campaigns, **CAMPAIGNS),
)
