"""Tasks that move data: contacts to the service, statistics and lists into SQLite and files, and things with a name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import copy
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Self

from airflow.sdk import BaseOperator

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.campaigns import MailCancelCampaignOperator, MailDeleteCampaignOperator
from airflow_provider_mail.operators.contacts import (
    MailDeleteContactOperator,
    MailImportContactsOperator,
    MailUpsertContactOperator,
)
from airflow_provider_mail.operators.events import MailEventsReconcileOperator
from airflow_provider_mail.operators.lists import MailCreateListOperator, MailDeleteListOperator
from airflow_provider_mail.operators.senders import (
    MailAddSenderOperator,
    MailDeleteSenderOperator,
    MailVerifySenderOperator,
)
from airflow_provider_mail.operators.templates import MailCreateTemplateOperator, MailDeleteTemplateOperator
from airflow_provider_mail.operators.webhooks import MailSaveWebhookOperator
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
from airflow_provider_mail.transfers.object_storage_to_mail import ObjectStorageToMailContactsOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from airflow_provider_mail.warehouse.tables.events import EVENTS
from tests.faults.cases import Case
from tests.faults.flow_changes import CALLBACK, LATER, names, refuses_in_its_words
from tests.faults.flow_import import IN_CHUNK, addresses
from tests.faults.flow_reads import FIRST, LAST, TRUE_DAYS, fill, true_stats
from tests.faults.stores import FOLDER, Database, Folder, Rows
from tests.faults.tasks import TaskWorkload
from tests.faults.workload import Finding, Said, Wrong

CUSTOMERS: dict[str, Any] = {
    "task_id": "task",
    "list_name": "customers",
    "chunk_size": IN_CHUNK,
    "max_in_flight": 2,
    "max_reject_fraction": 0.1,
}
DAYS: dict[str, Any] = {"start_day": str(FIRST), "end_day": str(LAST)}
COUNTS = ("sent_count", "open_count", "click_count", "hard_bounce", "soft_bounce", "unsent_count", "unsubscribe_count")


class Import(TaskWorkload):
    """Contacts in several chunks, out of the DAG, a table or a file."""

    remembers = True
    settings = {"refused_addresses": ("p5@example.com",)}  # noqa: RUF012

    def __init__(self, source: str) -> None:
        super().__init__()
        self.name = f"task: import contacts from {source}"  # type: ignore[misc]
        self._rows = [(address, f"Name {number}") for number, address in enumerate(addresses(IN_CHUNK * 4))]

    def operator(self) -> BaseOperator:
        rows = [{"email": email, "name": name} for email, name in self._rows]
        return MailImportContactsOperator(contacts=rows, **CUSTOMERS)

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        held = {contact["email"] for contact in service.contacts("customers")}
        wanted = {email for email, _ in self._rows if email not in self.settings["refused_addresses"]}
        if said.green:
            if len(wanted - held) > max(0, said.result["rejected"] - 1):
                yield Wrong.LOST, f"{sorted(wanted - held)}, and it tells of {said.result}"
            if said.result["accepted"] + said.result["rejected"] != len(self._rows):
                yield Wrong.UNTRUE, f"{len(self._rows)} rows, and it tells of {said.result}"


class ImportFromSql(Import):
    """Those of a table."""

    def __init__(self) -> None:
        super().__init__("SQL")
        self._crm = Database("crm")

    def arrange(self, service: Emulator) -> None:
        self._crm.hold("people", ["email", "name"], self._rows)

    def operator(self) -> BaseOperator:
        sql = "SELECT email, name FROM people ORDER BY rowid"
        return SqlToMailContactsOperator(sql_conn_id=self._crm.conn_id, sql=sql, **CUSTOMERS)

    def connections(self, service: Emulator, timeout: float) -> dict[str, Any]:
        return super().connections(service, timeout) | self._crm.connection()


class ImportFromFile(Import):
    """Those of a CSV file."""

    # The requests are those of the other imports.
    share = 0.4

    def __init__(self) -> None:
        super().__init__("a CSV file")
        self._file = Path(FOLDER.name) / "people.csv"

    def arrange(self, service: Emulator) -> None:
        self._file.write_text("".join(f"{','.join(row)}\n" for row in [("email", "name"), *self._rows]))

    def operator(self) -> BaseOperator:
        return ObjectStorageToMailContactsOperator(path=f"file://{self._file}", **CUSTOMERS)


class Load(TaskWorkload):
    """A table, in SQLite unless told otherwise: the rows from before, or exactly the service's."""

    def __init__(
        self,
        what: str,
        make: Callable[..., BaseOperator],
        query: str,
        truth: Callable[[Emulator], Rows],
    ) -> None:
        super().__init__()
        self.name = f"task: load {what}"  # type: ignore[misc]
        self._make = make
        self._query = query
        self._truth = truth
        self._warehouse = Database(f"warehouse_{what.replace(' ', '_')}")
        self._before: Rows = []

    def into(self, warehouse: Database, make: Callable[..., BaseOperator] | None = None) -> Self:
        """The same workload on another database.

        :param warehouse: the database.
        :param make: makes what loads it. Default: the same operator.
        """
        other = copy(self)
        other._warehouse, other._make, other._before = warehouse, make or self._make, []
        return other

    def arrange(self, service: Emulator) -> None:
        if not self._before:
            self._warehouse.restore()
            arrange_earlier(service)
            super().run(service, Case.none(), 0)
            assert self.task.state == "success", self.task
            self._warehouse.keep()
            self._before = sorted(self._warehouse.query(self._query))
        arrange_now(service)
        self._warehouse.restore()

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


def _days(service: Emulator) -> Rows:
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


class Reconcile(Load):
    """Days with the service's counts, beside events of which there are none; days that it leaves out have no count."""

    def arrange(self, service: Emulator) -> None:
        self._warehouse.hold("mail_events", EVENTS.names, [])
        super().arrange(service)

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        rows, truth = self._warehouse.query(self._query), self._truth(service)
        allowed = {*truth, *((day, None) for day, _ in truth)} | ({*self._before} if not said.green else set())
        if len(rows) != len(truth) or not set(rows) <= allowed:
            yield Wrong.INCOMPLETE, f"the table holds {rows}, the service {truth}"


class WriteFiles(TaskWorkload):
    """A file for each day: the one from before, or exactly the service's."""

    name = "task: write campaign statistics into files"
    columns = ("mail_name", *COUNTS)

    def __init__(self) -> None:
        super().__init__()
        self._folder = Folder("statistics")
        self._before: dict[str, Rows] = {}
        self._truth: dict[str, Rows] = {}

    def arrange(self, service: Emulator) -> None:
        if not self._before:
            arrange_earlier(service)
            service.add_campaign("gone", send_date=f"{LAST}T09:00:00+00:00", sent=1)
            self._before = self._written(service)
            self._folder.keep()
            arrange_now(service)
            self._truth = self._written(service)
            assert sorted(chain.from_iterable(self._truth.values())) == true_stats(service)
            assert len(self._truth) == len(self._before) - 1
        arrange_now(service)
        self._folder.restore()

    def _written(self, service: Emulator) -> dict[str, Rows]:
        super().run(service, Case.none(), 0)
        assert self.task.state == "success", self.task
        return self._folder.rows(self.columns)

    def operator(self) -> BaseOperator:
        path = f"file://{self._folder.path}"
        return MailStatsToObjectStorageOperator(task_id="task", path=path, file_format="jsonl", **DAYS)

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        files = self._folder.rows(self.columns)
        if said.green and files != self._truth:
            yield Wrong.INCOMPLETE, f"there are {files}, and should be {self._truth}"
        for file in {*files, *self._before, *self._truth}:
            if files.get(file) not in (self._before.get(file), self._truth.get(file)):
                yield Wrong.INCOMPLETE, f"{file} is neither the old nor the new one: {files.get(file)}"
        if said.green and (said.result["records"], said.result["files"]) != (8, len(self._truth)):
            yield Wrong.UNTRUE, f"it tells of {said.result}"


class WriteLoad(TaskWorkload):
    """A folder with a manifest for each try that ended, with exactly what the service has."""

    def __init__(
        self, what: str, make: Callable[..., BaseOperator], column: str, truth: Callable[[Emulator], Rows]
    ) -> None:
        super().__init__()
        self.name = f"task: write {what} as a load"  # type: ignore[misc]
        self._make = make
        self._column = column
        self._true_rows = truth
        self._folder = Folder(what.replace(" ", "_"))

    def arrange(self, service: Emulator) -> None:
        arrange_now(service)
        self._folder.restore()

    def operator(self) -> BaseOperator:
        return self._make(task_id="task", path=f"file://{self._folder.path}", file_format="jsonl", rows_per_file=3)

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        truth = self._true_rows(service)
        loads = list(self._folder.path.glob("*/manifest.json"))
        for file in loads:
            urls = [entry["url"] for entry in json.loads(file.read_bytes())["entries"]]
            texts = [Path(url.removeprefix("file://")).read_text() for url in urls]
            rows = sorted((json.loads(line)[self._column],) for text in texts for line in text.splitlines())
            if rows != truth:
                yield Wrong.INCOMPLETE, f"the load has {rows}, the service {truth}"
        if said.green and len(loads) != 1:
            yield Wrong.UNTRUE, f"there are {len(loads)} loads"


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
        service.add_campaign("doomed")
        service.add_campaign("waiting", state="scheduled", send_date=LATER)
        # The worker's clock is past its send time: the service's stands at an earlier one.
        service.add_campaign("soon", state="scheduled", send_date=service.clock.now() + timedelta(hours=1))

    def operator(self) -> BaseOperator:
        return self._make()

    def undecidable(self, case: Case) -> bool:
        return self._what == "delete a contact" and refuses_in_its_words(case)

    def gives_up(self, service: Emulator, error: BaseException | None) -> bool:
        # What is cancelled then looks like one that failed, perhaps when some had been mailed.
        return self._what.startswith("cancel a campaign") and service.settings.state_after_cancel == "failed"

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        if said.green and not self._done(service):
            yield Wrong.UNTRUE, f"success, and it was not done: {said.result}"
        if len(set(names(service))) < len(names(service)):
            yield Wrong.UNTRUE, "something is there twice"


DATA = (
    Import("the DAG"),
    ImportFromSql(),
    ImportFromFile(),
    Load(
        "campaign statistics",
        lambda **options: MailCampaignStatsToSqlOperator(**DAYS, **options),
        f"SELECT mail_name, {', '.join(COUNTS)} FROM mail_campaign_stats",
        true_stats,
    ),
    Load(
        "the history of campaign statistics",
        lambda **options: MailCampaignStatsToSqlOperator(snapshots=True, **DAYS, **options),
        f"SELECT mail_name, {', '.join(COUNTS)} FROM mail_campaign_stats_snapshots",
        true_stats,
    ),
    WriteFiles(),
    LoadDays(
        "transactional statistics",
        lambda **options: MailTransactionalStatsToSqlOperator(**DAYS, **options),
        "SELECT stats_date, sent_count FROM mail_transactional_stats",
        _days,
    ),
    Reconcile(
        "compared events",
        lambda **options: MailEventsReconcileOperator(tolerance_fraction=1.0, **DAYS, **options),
        "SELECT stats_date, service_count FROM mail_event_differences WHERE counter = 'sent_count'",
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
        "SELECT mail_name FROM mail_campaigns WHERE gone_at IS NULL ORDER BY mail_name",
        lambda service: sorted((campaign["mailName"],) for campaign in service.campaigns()),
    ),
    WriteLoad(
        "contacts of a list",
        lambda **options: MailContactsToObjectStorageOperator(
            list_name="customers", page_size=3, max_in_flight=2, **options
        ),
        "email",
        lambda service: sorted((contact["email"],) for contact in service.contacts("customers")),
    ),
    WriteLoad(
        "campaigns",
        lambda **options: MailCampaignsToObjectStorageOperator(page_size=3, max_in_flight=2, **options),
        "mail_name",
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
    Named(
        "cancel a campaign",
        lambda: MailCancelCampaignOperator(task_id="task", mail_name="waiting", ignore_draft=True),
        lambda service: bool(service.campaigns("waiting")[0]["cancelled"]),
    ),
    Named(
        "cancel a campaign, the worker's clock ahead",
        lambda: MailCancelCampaignOperator(task_id="task", mail_name="soon", ignore_draft=True),
        lambda service: bool(service.campaigns("soon")[0]["cancelled"]),
    ),
    Named(
        "delete a campaign",
        lambda: MailDeleteCampaignOperator(task_id="task", mail_name="doomed"),
        lambda service: ("campaign", "doomed") not in names(service),
    ),
)
