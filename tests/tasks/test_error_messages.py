"""Messages of tasks are provoked for real: docs/errors.md explains them, or docs/site/messages.py finds them."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpcore
import pytest
import structlog
from airflow.sdk import DAG, task

from airflow_provider_mail.api.campaigns import CreateCampaign
from airflow_provider_mail.api.templates import AddTemplate
from airflow_provider_mail.arguments import Consent, Rejects
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.operators.transactional import TASK_STATE_KEY
from docs.site import messages
from mail_emulator import Emulator, EmulatorSettings
from tests.hooks.wire import Authority
from tests.support.changes import at_request, time_out_task
from tests.support.dags import AIRFLOW_VERSION
from tests.support.env import ROOT
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase
from tests.tasks.everything import OPERATORS
from tests.tasks.loading import error_of
from tests.tasks.sending import HELLO, SENDS, change_retries, letters
from tests.tasks.test_operators import NEEDED as SMALLEST

ROW = re.compile(r"^\| (`+) ?(.+?) ?\1 \|", re.MULTILINE)
EXPLAINED, LISTED = (
    [message.replace("\\|", "|") for _, message in ROW.findall(text)]
    for text in ((ROOT / "docs" / "errors.md").read_text().partition("## Messages")[2], messages.page(""))
)
"""The messages that docs/errors.md explains, and those of the code, which the site lists."""
OF_OTHERS = ("isn't defined", "timezone info", "no such table", "no such column", "required unless only_save")
"""Messages that Airflow, pydantic and databases make."""


def explained(words: str) -> list[str]:
    """Return the shortest message of docs/errors.md that has these words, if it has one."""
    return sorted((message for message in EXPLAINED if words in message), key=len)[:1]


def pattern(message: str) -> str:
    """Return a pattern in which the text in place of each "..." depends."""
    return ".*".join(map(re.escape, message.split("...")))


CONTENT = {"subject": "Hi", "content": "<p>Hi</p>"}
SENDER = {"sender_mail": "news@example.com"}
CAMPAIGN = CONTENT | SENDER | {"mail_name": "spring"}
TO_LIST = {"send_list_names": ["newsletter"]}
TEMPLATE = {"template_name": "a", "template_content": "<p>1</p>", "template_subject": "b"}
RETRY = {"retries": 1, "retry_delay": datetime.timedelta(0)}
CRM = {"sql_conn_id": "crm"}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "batch": ("MailSendBatchOperator", HELLO | {"messages": letters(3), "versions_per_request": 1}),
    "campaign": ("MailCreateCampaignOperator", CAMPAIGN | TO_LIST),
    "campaign_statistics": ("MailCampaignStatsToSqlOperator", CRM),
    "campaigns": ("MailCampaignsToSqlOperator", CRM),
    "contacts": ("MailImportContactsOperator", {"contacts": [{"email": "ada@example.com"}]}),
    "one": ("MailSendOperator", HELLO | {"to": "ada@example.com", "content": "<p>Hello</p>"}),
    "preflight": ("MailPreflightOperator", CONTENT | SENDER | TO_LIST),
    "sensor": ("MailCampaignSensor", {"mail_name": "spring"}),
    "sql": ("SqlToMailContactsOperator", CRM | {"sql": "SELECT email FROM people WHERE id = 1"}),
    "statistics": ("MailTransactionalStatsToSqlOperator", CRM),
    "template": ("MailCreateTemplateOperator", TEMPLATE),
}
"""Operators and their good arguments."""


@dataclass
class Stage:
    """Where things go wrong: each method makes the task of a test."""

    exits: ExitStack
    emulator: Emulator
    connect: Connect
    patch: pytest.MonkeyPatch
    tmp_path: Path
    crm: SqlDatabase

    def make(self, kind: str, **arguments: Any) -> None:
        operator, usual = TASKS[kind]
        OPERATORS[operator](**{"task_id": TASK} | usual | arguments)

    def unrendered(self) -> None:
        self.make("contacts", consent=Consent(column="mail", no=["{{ value }}"]))

    def connection(self, **fields: Any) -> None:
        """A connection to the service, but for these fields."""
        usual = {"conn_type": "mail", "host": self.emulator.base_url, "password": self.emulator.api_key}
        self.patch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps(usual | fields))
        self.make("statistics")

    def connection_over_tls(self, scheme: str) -> None:
        """To a port without TLS."""
        self.connection(host=self.emulator.base_url.replace("http://", scheme))

    def untrusted_certificate(self) -> None:
        settings = EmulatorSettings(tls_certificate=str(Authority(self.tmp_path).issue()))
        self.connection(host=self.exits.enter_context(Emulator(settings)).base_url)

    def fault(self, kind: str, **params: Any) -> None:
        self.emulator.faults.add(kind, count=None, **params)
        self.make("statistics")

    def late_response(self) -> None:
        def time_out(*_: Any) -> None:
            raise httpcore.ReadTimeout("timed out")

        self.patch.setattr(httpcore.ConnectionPool, "handle_request", time_out)
        self.make("statistics")

    def unwritable(self) -> None:
        @task(task_id=TASK)
        def write() -> None:
            MailHook().send(AddTemplate(**TEMPLATE))

        self.connect(sandbox=True)
        write()

    def held(self) -> None:
        self.patch.setenv("AIRFLOW_VAR_MAIL_HOLD", '{"set_by": "ada", "set_at": "2026-11-26T12:00:00+00:00"}')
        self.newsletter()
        self.make("campaign")

    def limited(self) -> None:
        self.newsletter()
        self.connect(max_campaigns_per_day=0)
        self.make("campaign")

    def newsletter(self) -> None:
        self.emulator.add_list("newsletter", ["ada@example.com"])

    def existing(self, age_days: int = 0, **fields: Any) -> None:
        self.newsletter()
        MailHook().send(CreateCampaign(**CAMPAIGN | TO_LIST | fields))
        self.emulator.clock.advance(days=age_days)
        self.make("campaign")

    def created_meanwhile(self) -> None:
        self.newsletter()
        self.make("campaign", pre_execute=lambda context: MailHook().send(CreateCampaign(**CAMPAIGN | TO_LIST)))

    def tried_before(self, **arguments: Any) -> None:
        """A task whose first try ends after it has created its campaign."""

        def end(context: Any, result: Any) -> None:
            if context["ti"].try_number == 1:
                raise RuntimeError("the try ends")

        self.newsletter()
        self.make("campaign", **RETRY | {"post_execute": end} | arguments)

    def removed(self) -> None:
        def remove(context: Any) -> None:
            if context["ti"].try_number == 2:
                self.emulator.set_campaign_state("spring", "removed")

        self.tried_before(pre_execute=remove)

    def drafted(self) -> None:
        MailHook().send(CreateCampaign(**CAMPAIGN, only_save=True))
        self.make("sensor")

    def existing_template(self) -> None:
        MailHook().send(AddTemplate(**TEMPLATE))
        self.make("template", template_content="<p>2</p>")

    def ambiguous(self) -> None:
        self.emulator.faults.add("close_after", SENDS, skip=1)
        self.make("batch")

    def forgetful(self) -> None:
        """As on an Airflow without a task state store: its first try is ended by its time-out."""
        self.exits.enter_context(at_request(self.emulator, SENDS, 1, time_out_task))
        hour = datetime.timedelta(hours=1)
        self.before(lambda context: context.pop("task_state_store", None), execution_timeout=hour)

    def before(self, happens: Callable[[Any], Any], **arguments: Any) -> None:
        self.make("batch", pre_execute=happens, **RETRY | arguments)

    def remembered(self, **record: Any) -> None:
        self.before(lambda context: context["task_state_store"].set(TASK_STATE_KEY, record))

    def without_hook(self) -> None:
        self.patch.setenv("AIRFLOW_CONN_SHOP", '{"conn_type": "oracle"}')
        self.make("sql", sql_conn_id="shop")

    def unsuited(self) -> None:
        self.crm.execute("CREATE TABLE unsuited (mail_conn_id TEXT)")
        self.make("statistics", table="unsuited")

    def emptied(self) -> None:
        self.emulator.add_campaigns(40, first_day="2024-03-01")
        with DAG("before"):
            OPERATORS["MailCampaignsToSqlOperator"](task_id=TASK, **CRM).execute({})
        for campaign in self.emulator.campaigns():
            self.emulator.set_campaign_state(campaign["mailName"], "removed")
        self.make("campaigns")

    def uncounted(self) -> None:
        self.emulator.faults.add("wrong_total", "campaign/mail/get", count=None, by=None)
        self.make("campaigns")

    def short(self) -> None:
        self.emulator.add_campaigns(3, first_day="2024-03-01", per_day=3)
        self.emulator.faults.add("short_stats", "campaign/mail/stats/get", count=None)
        self.make("campaign_statistics", start_day="2024-03-01", end_day="2024-03-01")


REMEMBERED = {"version": 1, "requests": 1, "recipients": 1, "unknown_requests": 0, "unknown_recipients": 0,
              "digest": "another", "ahead": {}, "under_way": {}, "halved": {}, "content": "", "clears": 0}  # fmt: skip

# fmt: off
CASES: list[tuple[str, str, dict[str, Any]]] = [  # words of a message, and what provokes it
    # all arguments
    ("mail_name: one text is needed, not the whole", "sensor", {"mail_name": "{{ {'mail_name': 'spring'} }}"}),
    ("mail_name: was given and resolves to nothing", "campaign", {"mail_name": "{{ ti.xcom_pull('nothing') }}"}),
    ("mail_name: an expression of its", "campaign", {"mail_name": "news {{ ti.xcom_pull('nothing') }}"}),
    ("no: a template, or the result of another task, is not", "unrendered", {}),
    ("contacts: a list of rows is needed", "contacts", {"contacts": "{{ [{'email': 'ada@example.com'}] }}"}),
    ("columns: 'city': text is needed, not", "contacts", {"columns": {"email": "email", "city": None}}),
    ("sql: one query as text is needed, not", "sql", {"sql": ["SELECT 1", "SELECT 2"]}),
    # connection
    ("The conn_id ... isn't defined", "one", {"mail_conn_id": "nowhere"}),
    ("conn_type is 'http', must be 'mail'", "connection", {"conn_type": "http"}),
    ("host (base URL): must be a URL such as", "connection", {"host": "ftp://api.example.com"}),
    ("host (base URL): must be a plain URL", "connection", {"host": "https://me:password@api.example.com"}),
    ("password (API key): is empty, and auth_type is api_key", "connection", {"password": ""}),
    ("access_token: is empty, and auth_type is oauth", "connection", {"extra": {"auth_type": "oauth"}}),
    ("access_token: 600 bytes, at most 512 are allowed", "connection", {"extra": {"access_token": "t" * 600}}),
    ("extra: unknown field sandBox; known are", "connection", {"extra": {"sandBox": True}}),
    ("http... cannot be reached: no such host; check", "connection", {"host": "https://no-such-host.invalid"}),
    ("http... cannot be reached: nothing listens there; check", "connection", {"host": "http://127.0.0.1:9"}),
    ("https... cannot be reached: the server does not use", "connection_over_tls", {"scheme": "https://"}),
    ("https... cannot be reached: the server does not use", "connection_over_tls", {"scheme": ""}),
    ("http... cannot be reached through the proxy", "connection", {"extra": {"proxy": "http://127.0.0.1:9"}}),
    ("the service's certificate is not trusted: ... Set ca_bundle", "untrusted_certificate", {}),
    ("campaign_url: must be a URL such as", "connection", {"extra": {"campaign_url": "app.example.com"}}),
    ("ca_bundle: no such file", "connection", {"extra": {"ca_bundle": "/no/such.pem"}}),
    ("the service rejected the credentials: .... Check", "connection", {"password": "another"}),
    ("the response is a redirect (HTTP 307), which", "fault", {"kind": "redirect"}),
    ("HTTP 200 with no JSON object instead", "fault", {"kind": "html_before"}),
    ("HTTP 404 with no JSON object instead", "fault", {"kind": "http_error_before", "status": 404}),
    ("code 429: too many requests", "fault", {"kind": "too_many_requests"}),
    ("the response was lost (ReadTimeout), the request may have", "late_response", {}),
    ("the service failed", "fault", {"kind": "code_before"}),
    ("has no sandboxMode and the connection is in sandbox", "unwritable", {}),
    # campaigns
    ("all mass mail is held, set by ... This", "held", {}),
    ("max_campaigns_per_day: ... campaigns of ... exist, ... may be", "limited", {}),
    ("campaign '...' should not go out", "preflight", {"sender_mail": "nobody@example.com"}),
    ("content: is the text 'None'; nothing was sent. Did", "campaign", {"content": "{{ none }}"}),
    ("content: {{name}} has no value in", "batch", {"messages": [{"to": "ada@example.com"}]}),
    ("template_name: there is no template '...': nothing", "batch", {"template_name": "none", "content": None}),
    ("mail_name: 213 bytes in UTF-8, at most 200 are", "campaign", {"mail_name": "x" * 213}),
    ("send_date: Input should have timezone info", "campaign", {"send_date": "2030-01-31T09:00:00"}),
    ("send_date: ... lies ... in the past: the service", "campaign", {"send_date": "2024-01-31T09:00:00Z"}),
    ("send_list_names: required unless only_save is true", "campaign", {"send_list_names": []}),
    ("subject: {{name}} is undefined: Airflow has no value", "campaign", {"subject": "Hello {{name}}"}),
    ("content: line 1 is no template: ... What", "campaign", {"content": "<p>{{my name}}</p>"}),
    ("code 403: rejected", "campaign", {"send_list_names": ["nobodies"]}),
    ("and differs in subject: choose another mail_name", "existing", {"subject": "Another"}),
    ("and differs in subject: this task probably", "tried_before", {"subject": "Hi {{ ti.try_number }}"}),
    ("exists and is equal, but was not created by this task", "created_meanwhile", {}),
    ("mail_name: give every try the same name", "tried_before", {"mail_name": "News {{ ti.try_number }}"}),
    ("mail_name: campaign '...' was created by this task", "removed", {}),
    ("exists and is equal, but is older than this run", "existing", {"age_days": 7}),
    ("campaign '...' is a draft (mailStatus -1)", "drafted", {}),
    ("poke_interval: seconds or a timedelta are needed", "campaign", {"poke_interval": 0}),
    ("ignore_differences: there is no field contents", "campaign", {"ignore_differences": ["contents"]}),
    ("deferrable: needs wait_for_completion=True: else the task waits for", "campaign", {"deferrable": True}),
    ("template_name: write content='newsletter.html', a file in", "campaign", {"template_name": "welcome"}),
    ("a resource of that name exists and differs in", "existing_template", {}),
    # transactional mail
    ("messages: there are no messages to send", "batch", {"messages": []}),
    ("messages[1].to[0].email: is not an email address", "batch", {"messages": [*letters(1), {"to": "nobody"}]}),
    ("it contains ZERO WIDTH SPACE (U+200B)", "batch", {"messages": [*letters(1), {"to": "ann\u200b@example.com"}]}),
    ("to: is not an email address", "one", {"to": "nobody"}),
    ("versions_per_request: must be a whole number from 1", "batch", {"versions_per_request": 101}),
    ("on_ambiguous: 'retry' is none of fail, resend, skip", "batch", {"on_ambiguous": "retry"}),
    ("request 1 (1 recipients, uniqueMsgID ...) got no clear", "ambiguous", {}),
    ("this is try 2, and nothing was sent in", "forgetful", {}),
    ("messages: these differ from what an earlier try began", "remembered", REMEMBERED),
    ("task state: the record of what an earlier try", "remembered", {"version": 0}),
    # contacts
    ("columns: the source has", "sql", {"sql": "SELECT id, email FROM people", "columns": {"mail": "email"}}),
    ("columns: which property do 'city' belong to?", "sql", {"sql": "SELECT email, city FROM people"}),
    ("columns: neither email nor", "sql", {"sql": "SELECT city FROM people", "columns": {"city": "name"}}),
    ("there was no row to import", "contacts", {"contacts": []}),
    ("1 of 2 rows were rejected: email is not", "sql", {"sql": "SELECT email FROM people"}),
    ("update_mode: 'upsert' is none of create_and_update, create_only", "contacts", {"update_mode": "upsert"}),
    ("chunk_size: must be ... at least 1", "contacts", {"chunk_size": 0}),
    ("brakes: Brakes(...) is needed", "contacts", {"brakes": 5}),
    ("on_empty: 'ignore' is none of error, skip, continue", "contacts", {"on_empty": "ignore"}),
    # databases
    ("`sql` on connection 'crm': OperationalError: no such table", "sql", {"sql": "SELECT email FROM persons"}),
    ("`sql` on connection 'crm': OperationalError: no such column", "sql", {"sql": "SELECT mail FROM people"}),
    ("sql_conn_id: connection 'shop' of type 'oracle' has no hook", "without_hook", {}),
    ("sql_conn_id: connection 'mail_default' is not a database with", "sql", {"sql_conn_id": "mail_default"}),
    ("rejects.table", "sql", {"sql": "SELECT email FROM people", "rejects": Rejects(table="a.b.c.d")}),
    ("table unsuited on connection 'crm'", "unsuited", {}),
    ("40 rows would become 0. Nothing was removed; allow_empty=True", "emptied", {}),
    ("no response has a valid totalRecords", "uncounted", {}),
    ("lookback_days: must be a whole number, at least 0", "campaign_statistics", {"lookback_days": -1}),
    ("start_day: is not a date of the form YYYY-MM-DD", "campaign_statistics", {"start_day": "yesterday"}),
    ("end_day: 2026-01-01 is before", "campaign_statistics", {"start_day": "2026-01-02", "end_day": "2026-01-01"}),
    ("records came for ..., the service reports", "short", {}),
]
# fmt: on
NEED_STORE = ("remembered", "tried_before", "removed")


def test_what_is_explained_is_provoked() -> None:
    assert {message for words, _, _ in CASES for message in explained(words)} == set(EXPLAINED)


@pytest.mark.parametrize(("words", "method", "arguments"), CASES)
def test_the_message(
    run: Run, emulator: Emulator, connect: Connect, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path, crm: SqlDatabase, no_such_host: str, errors: list[BaseException], words: str, method: str,
    arguments: dict[str, Any],
) -> None:  # fmt: skip
    if method in NEED_STORE and AIRFLOW_VERSION < (3, 3):
        pytest.skip("needs the task state store of Airflow 3.3")
    change_retries(monkeypatch, attempts=1)
    # Airflow 3.0 prints variables as well, which takes a second each time.
    plain = staticmethod(structlog.dev.plain_traceback)
    monkeypatch.setattr(structlog.dev.RichTracebackFormatter, "__call__", lambda _, out, error: plain(out, error))
    crm.execute("CREATE TABLE people (id INTEGER, email TEXT, city TEXT)")
    crm.execute("INSERT INTO people", [(1, "ada@example.com", "London"), (2, "bob(at)example.com", "Paris")])
    with ExitStack() as exits:
        stage = Stage(exits, emulator, connect, monkeypatch, tmp_path, crm)
        try:
            make = partial(stage.make, method) if method in TASKS else getattr(stage, method)
            done = run(partial(make, **arguments))
        except (ValueError, TypeError) as error:  # when the DAG is parsed
            text = str(error)
        else:
            assert done.state == "failed"
            text = str(errors[-1])
    (message,) = explained(words) or [words]
    assert re.search(pattern(message), text), text
    if message == words and not any(other in text for other in OF_OTHERS):
        assert any(re.search(pattern(listed), text) for listed in LISTED), text


# fmt: off
DAYS = {"start_day": "2026-03-02", "end_day": "2026-03-02"}
NEEDED: dict[str, dict[str, Any]] = {kind.__name__: given for kind, given in SMALLEST.items()} | {
    "MailCampaignsToSqlOperator": CRM,
    "MailContactsToSqlOperator": CRM | {"list_name": "news"},
    "MailCampaignStatsToSqlOperator": CRM,
    "MailTransactionalStatsToSqlOperator": CRM,
    "MailContactsToObjectStorageOperator": {"list_name": "news", "path": "/tmp/lake", "file_format": "jsonl"},
    "MailStatsToObjectStorageOperator": {"path": "/tmp/lake", "file_format": "jsonl"},
    "MailEventsToSqlOperator": CRM | {"inbox_conn_id": "crm"},
    "MailReconcileEventsOperator": CRM | DAYS,
}
"""Good arguments of each operator."""
WRONG_VALUES: dict[str, dict[str, list[Any]]] = {
    "MailCampaignsToSqlOperator": {
        "type": ["Letter"], "mail_status": [[3]], "table": ["a..b"], "rejects": [Rejects(table="a.b.c.d"), "x"]},
    "MailContactsToSqlOperator": {"page_size": [0, 1001], "max_in_flight": [0], "list_name": [""],
                                  "history_table": ["mail_contacts", "x" * 60]},
    "MailCampaignStatsToSqlOperator": {
        "sql_conn_id": ["mail_default"], "snapshots_table": ["mail_campaign_stats", "a.b.c.d"], "type": ["Other"],
        "end_day": ["01.02.2024", "2024-02-30", "2024-02-01T00:00:00", "20240201", "2024-W05-4"],
        "start_day": ["2126-01-01"], "lookback_days": [10**6]},
    "MailTransactionalStatsToSqlOperator": {"lookback_days": [-1], "table": ["no such: name"]},
    "MailContactsToObjectStorageOperator": {"rows_per_file": [0], "rejects": [Rejects(table="x")]},
    "MailStatsToObjectStorageOperator": {
        "path": ["", "nope://lake/mail"], "start_day": ["soon"], "file_format": ["csv"], "lookback_days": [-1]},
    "MailEventsToSqlOperator": {
        "inbox_conn_id": ["nowhere", None], "inbox_table": ["mail_events"], "table": ["a b"],
        "dead_letters_table": ["mail_events"], "batch_size": [0, 1.5], "max_pushes": [0], "keep_days": [-1]},
    "MailReconcileEventsOperator": {
        "counters": [["opens"], "sent_count"], "event_types": [[]], "table": ["a b"],
        "time_zone": ["Mars/Olympus", "Europe"], "start_day": ["yesterday"], "tolerance": [-1],
        "tolerance_fraction": [1.5], "lookback_days": [0.5]},
}
"""Values of one argument."""
WRONG_TOGETHER: list[tuple[str, dict[str, Any], str]] = [
    ("MailContactsToSqlOperator", {"history": True, "on_change": "accept"}, "history: needs a list that is read whole"),
    ("MailCampaignStatsToSqlOperator", {"snapshots": True, "table": "t" * 60}, "snapshots_table: "),
    ("MailCampaignStatsToSqlOperator", {"start_day": "2126-01-01", "end_day": "2126-01-02"}, "is in the future"),
    ("MailEventsToSqlOperator", {"inbox_table": "a b"}, "must be a name"),
    ("MailEventsToSqlOperator", {"inbox_conn_id": "duck"}, "needs a Postgres or SQLite database, not duckdb"),
    ("MailImportContactsOperator", {"contacts": ["a@example.com"]}, "contacts: item 0 must be a dictionary such as {"),
    ("MailImportContactsOperator", {"contacts": {"email": "a@example.com"}}, "contacts: a list of rows is needed"),
    ("SqlToMailContactsOperator", {"sql_conn_id": ""}, "sql_conn_id: is empty"),
    ("MailUpsertContactOperator", {"contact_email": "nobody"}, "contact_email: is not an email address"),
    ("MailUpsertContactOperator", {"phone_number": "call me"}, "phone_number: is not a phone number"),
    ("MailSendOperator", {"to": ["a@example.com", "nobody"]}, "to: recipient 1: is not an email address"),
    ("MailSendOperator", {"cc": "a@example.com"}, "cc: use MailSendBatchOperator"),
    ("MailCreateTemplateOperator", {"template_subject": ""}, "template_subject: is missing"),
    ("MailAddSenderOperator", {"sender_type": 3}, "sender_type: must be a whole number from 1 to 2, not 3"),
    ("MailCampaignSensor", {"mail_name": ["a", "b"]}, "mail_name: one text is needed, not a list. For "),
    ("MailCampaignSensor", {"mail_name": " "}, "mail_name: is blank"),
]
# fmt: on


@pytest.mark.parametrize(("operator", "arguments", "words"), [
    *((operator, {name: value}, name) for operator, names in WRONG_VALUES.items()
      for name, values in names.items() for value in values),
    *WRONG_TOGETHER,
])  # fmt: skip
def test_wrong_arguments_are_named(
    emulator: Emulator, crm: SqlDatabase, monkeypatch: pytest.MonkeyPatch, operator: str, arguments: Any, words: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_DUCK", '{"conn_type": "duckdb", "host": ":memory:"}')
    found = error_of(lambda: OPERATORS[operator](**{"task_id": TASK} | NEEDED[operator] | arguments))
    assert words in found
    assert (emulator.journal.count(), crm.tables()) == (0, set())


def test_a_day_that_is_not_over_is_not_compared(crm: SqlDatabase) -> None:
    today = str(datetime.datetime.now(datetime.UTC).date())
    arguments = CRM | {"task_id": TASK, "start_day": today}
    assert "only whole days can be compared" in error_of(lambda: OPERATORS["MailReconcileEventsOperator"](**arguments))
