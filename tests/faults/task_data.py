"""Tasks that move data: contacts to the service, statistics and lists into SQLite, and things with a name."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.contacts import (
    MailDeleteContactOperator,
    MailImportContactsOperator,
    MailUpsertContactOperator,
)
from airflow_provider_mail.operators.lists import MailCreateListOperator, MailDeleteListOperator
from airflow_provider_mail.operators.senders import (
    MailAddSenderOperator,
    MailDeleteSenderOperator,
    MailVerifySenderOperator,
)
from airflow_provider_mail.operators.templates import MailCreateTemplateOperator, MailDeleteTemplateOperator
from airflow_provider_mail.operators.webhooks import MailSaveWebhookOperator
from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailCampaignsToSqlOperator,
    MailContactsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from tests.faults.cases import Case
from tests.faults.flow_changes import CALLBACK, names, refuses_in_its_words
from tests.faults.flow_import import IN_CHUNK, addresses
from tests.faults.flow_reads import FIRST, LAST, TRUE_DAYS, fill, true_stats
from tests.faults.tasks import TaskWorkload
from tests.faults.workload import Finding, Said, Wrong

FOLDER = tempfile.TemporaryDirectory(prefix="fault-matrix-")


class Database:
    """An SQLite file behind a connection; every run begins with a copy of the same one."""

    def __init__(self, conn_id: str) -> None:
        self.conn_id = conn_id
        self._path = Path(FOLDER.name) / f"{conn_id}.db"
        self._first = self._path.with_suffix(".first")

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

    def execute(self, sql: str, rows: list[tuple[Any, ...]]) -> None:
        with closing(sqlite3.connect(self._path)) as connection:
            connection.executemany(sql, rows)
            connection.commit()

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._path)) as connection:
            return connection.execute(sql).fetchall()


class Import(TaskWorkload):
    """Contacts in several chunks, out of the DAG or out of a table."""

    remembers = True
    settings = {"refused_addresses": ("p5@example.com",)}  # noqa: RUF012

    def __init__(self, *, from_sql: bool) -> None:
        super().__init__()
        self.name = f"task: import contacts from {'SQL' if from_sql else 'the DAG'}"  # type: ignore[misc]
        self._crm = Database("crm") if from_sql else None
        self._rows = [(address, f"Name {number}") for number, address in enumerate(addresses(IN_CHUNK * 4))]

    def arrange(self, service: Emulator) -> None:
        if self._crm:
            self._crm.restore()
            self._crm.execute("CREATE TABLE people (email TEXT, name TEXT)", [()])
            self._crm.execute("INSERT INTO people VALUES (?, ?)", self._rows)

    def operator(self) -> BaseOperator:
        common: dict[str, Any] = {
            "task_id": "task",
            "list_name": "customers",
            "chunk_size": IN_CHUNK,
            "max_in_flight": 2,
            "max_reject_fraction": 0.1,
        }
        if self._crm:
            return SqlToMailContactsOperator(
                sql_conn_id="crm", sql="SELECT email, name FROM people ORDER BY rowid", **common
            )
        rows = [{"email": email, "name": name} for email, name in self._rows]
        return MailImportContactsOperator(contacts=rows, **common)

    def connections(self, service: Emulator, timeout: float) -> dict[str, Any]:
        return super().connections(service, timeout) | (self._crm.connection() if self._crm else {})

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        held = {contact["email"] for contact in service.contacts("customers")}
        wanted = {email for email, _ in self._rows if email not in self.settings["refused_addresses"]}
        if said.green:
            if len(wanted - held) > max(0, said.result["rejected"] - 1):
                yield Wrong.LOST, f"{sorted(wanted - held)}, and it tells of {said.result}"
            if said.result["accepted"] + said.result["rejected"] != len(self._rows):
                yield Wrong.UNTRUE, f"{len(self._rows)} rows, and it tells of {said.result}"


class Load(TaskWorkload):
    """A table in SQLite: the rows from before, or exactly the service's."""

    def __init__(
        self,
        what: str,
        make: Callable[..., BaseOperator],
        query: str,
        truth: Callable[[Emulator], list[tuple[Any, ...]]],
    ) -> None:
        super().__init__()
        self.name = f"task: load {what}"  # type: ignore[misc]
        self._make = make
        self._query = query
        self._truth = truth
        self._warehouse = Database(f"warehouse_{what.replace(' ', '_')}")
        self._before: list[tuple[Any, ...]] = []
        self._prepared = False

    def arrange(self, service: Emulator) -> None:
        fill(service)
        if not self._prepared:
            # An earlier load, of other counts.
            self._warehouse.restore()
            service.set_campaign_stats("news-000000", sentCount=1)
            service.add_list("former", ["gone@example.com"])
            super().run(service, Case.none(), 0)
            assert self.task.state == "success", self.task
            self._warehouse.keep()
            self._before = sorted(self._warehouse.query(self._query))
            self._prepared = True
            service.reset()
            service.add_sender("news@example.com")
            fill(service)
        self._warehouse.restore()
        service.set_campaign_stats("news-000001", sentCount=100, openCount=50)
        service.set_transactional_day(FIRST, sentCount=77)
        service.add_contact("late@example.com", lists=["customers"])

    def operator(self) -> BaseOperator:
        return self._make(task_id="task", sql_conn_id=self._warehouse.conn_id)

    def connections(self, service: Emulator, timeout: float) -> dict[str, Any]:
        return super().connections(service, timeout) | self._warehouse.connection()

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        rows = sorted(self._warehouse.query(self._query))
        truth = self._truth(service)
        if said.green and rows != truth:
            yield Wrong.INCOMPLETE, f"the table holds {rows}, the service {truth}"
        if not said.green and rows not in (self._before, truth):
            yield Wrong.INCOMPLETE, f"the table holds neither the old rows nor the service's: {rows}"
        if said.green and said.result["records"] != len(truth):
            yield Wrong.UNTRUE, f"{len(truth)} records, and it tells of {said.result}"


def _days(service: Emulator) -> list[tuple[Any, ...]]:
    return [(str(day), 77 if day == FIRST else sent) for day, sent, _ in TRUE_DAYS]


class LoadDays(Load):
    """Days that the service leaves out are told of, and stay as they were."""

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        if not said.green or not said.result["missing_days"]:
            yield from super().held(service, said)
            return
        rows = self._warehouse.query(self._query)
        allowed = {*self._before, *self._truth(service)}
        if len(rows) != len(self._truth(service)) or not set(rows) <= allowed:
            yield Wrong.INCOMPLETE, f"the table holds {rows}"


class Named(TaskWorkload):
    """An operator that makes, changes or removes one thing."""

    adopts = True

    def __init__(self, what: str, make: Callable[[], BaseOperator], done: Callable[[Emulator], bool]) -> None:
        super().__init__()
        self.name = f"task: {what}"  # type: ignore[misc]
        self._what = what
        self._make = make
        self._done = done

    def arrange(self, service: Emulator) -> None:
        fill(service)
        service.add_contact("doomed@example.com")
        service.add_list("doomed")
        service.add_template("doomed", subject="Hi", content="<p>Hi</p>")
        service.add_sender("doomed.example.com", types=[2])

    def operator(self) -> BaseOperator:
        return self._make()

    def undecidable(self, case: Case) -> bool:
        return self._what == "delete a contact" and refuses_in_its_words(case)

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        if said.green and not self._done(service):
            yield Wrong.UNTRUE, f"success, and it was not done: {said.result}"
        if len(set(names(service))) < len(names(service)):
            yield Wrong.UNTRUE, "something is there twice"


DAYS: dict[str, Any] = {"start_day": str(FIRST), "end_day": str(LAST)}
COUNTS = "sent_count, open_count, click_count, hard_bounce, soft_bounce, unsent_count, unsubscribe_count"

DATA = (
    Import(from_sql=False),
    Import(from_sql=True),
    Load(
        "campaign statistics",
        lambda **options: MailCampaignStatsToSqlOperator(**DAYS, **options),
        f"SELECT mail_name, {COUNTS} FROM mail_campaign_stats",
        true_stats,
    ),
    LoadDays(
        "transactional statistics",
        lambda **options: MailTransactionalStatsToSqlOperator(**DAYS, **options),
        "SELECT stats_date, sent_count FROM mail_transactional_stats",
        _days,
    ),
    Load(
        "contacts of a list",
        lambda **options: MailContactsToSqlOperator(list_name="customers", page_size=3, max_in_flight=2, **options),
        "SELECT email FROM mail_contacts",
        lambda service: sorted((contact["email"],) for contact in service.contacts("customers")),
    ),
    Load(
        "campaigns",
        lambda **options: MailCampaignsToSqlOperator(page_size=3, max_in_flight=2, **options),
        # Those of earlier loads stay: the service has deleted them since, to go by their guids.
        "SELECT mail_name FROM mail_campaigns WHERE observed_at = (SELECT max(observed_at) FROM mail_campaigns)",
        lambda service: sorted((campaign["mailName"],) for campaign in service.campaigns()),
    ),
    Named(
        "add a list",
        lambda: MailCreateListOperator(task_id="task", list_name="new"),
        lambda service: ("list", "new") in names(service),
    ),
    Named(
        "add a template",
        lambda: MailCreateTemplateOperator(
            task_id="task", template_name="new", template_content="<p>Hi</p>", template_subject="Hi"
        ),
        lambda service: ("template", "new") in names(service),
    ),
    Named(
        "replace a template",
        lambda: MailCreateTemplateOperator(
            task_id="task", template_name="doomed", template_content="<p>New</p>", template_subject="Hi", replace=True
        ),
        lambda service: [each["content"] for each in service.templates() if each["name"] == "doomed"] == ["<p>New</p>"],
    ),
    Named(
        "add a sender",
        lambda: MailAddSenderOperator(task_id="task", sender_email="new.example.com", sender_type=1),
        lambda service: ("sender", "new.example.com 1") in names(service),
    ),
    Named(
        "verify a sender",
        lambda: MailVerifySenderOperator(task_id="task", from_domain="example.com", selector="s1"),
        lambda service: True,
    ),
    Named(
        "save a contact",
        lambda: MailUpsertContactOperator(task_id="task", contact_email="new@example.com", list_name="list 1"),
        lambda service: [contact["email"] for contact in service.contacts("list 1")] == ["new@example.com"],
    ),
    Named(
        "save the webhook",
        lambda: MailSaveWebhookOperator(task_id="task", trans_callback_url=CALLBACK, trans_enable=True),
        lambda service: service.webhook()["transCallbackUrl"] == CALLBACK and service.webhook()["transEnable"],
    ),
    Named(
        "delete a contact",
        lambda: MailDeleteContactOperator(task_id="task", contact_email="doomed@example.com"),
        lambda service: service.contact("doomed@example.com") is None,
    ),
    Named(
        "delete a list",
        lambda: MailDeleteListOperator(task_id="task", list_name="doomed"),
        lambda service: ("list", "doomed") not in names(service),
    ),
    Named(
        "delete a template",
        lambda: MailDeleteTemplateOperator(task_id="task", template_name="doomed"),
        lambda service: ("template", "doomed") not in names(service),
    ),
    Named(
        "delete a sender",
        lambda: MailDeleteSenderOperator(task_id="task", sender_email="doomed.example.com"),
        lambda service: ("sender", "doomed.example.com 2") not in names(service),
    ),
)
