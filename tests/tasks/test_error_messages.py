"""Each message in docs/errors.md is provoked for real and compared with what stands there."""

from __future__ import annotations

import datetime
import json
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import structlog
from airflow.sdk import DAG, task

from airflow_provider_mail.api._core import exchange
from airflow_provider_mail.api.templates import AddTemplate
from airflow_provider_mail.emulator import Emulator, EmulatorSettings
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.operators.preflight import MailPreflightOperator
from airflow_provider_mail.operators.templates import MailCreateTemplateOperator
from airflow_provider_mail.operators.transactional import TASK_STATE_KEY, MailSendBatchOperator, MailSendOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailCampaignsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from tests.hooks.wire import Authority
from tests.support.dags import AIRFLOW_VERSION
from tests.support.env import ROOT
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase
from tests.tasks.sending import HELLO, SENDS, change_retries, letters

SECOND_HALF = "## Messages"
ROW = re.compile(r"^\| (`+) ?(.+?) ?\1 \|", re.MULTILINE)
DOCUMENTED = [
    message for _, message in ROW.findall((ROOT / "docs" / "errors.md").read_text().partition(SECOND_HALF)[2])
]


@dataclass
class Stage:
    """Where things go wrong."""

    request: pytest.FixtureRequest
    run: Run
    emulator: Emulator
    connect: Connect
    monkeypatch: pytest.MonkeyPatch

    def connection(self, conn_id: str = "mail_default", **fields: Any) -> None:
        """A connection to the service, but for these fields."""
        usual = {"conn_type": "mail", "host": self.emulator.base_url, "password": self.emulator.api_key}
        self.monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(usual | fields))

    @property
    def crm(self) -> SqlDatabase:
        crm: SqlDatabase = self.request.getfixturevalue("crm")
        if "people" not in crm.tables():
            crm.execute("CREATE TABLE people (id INTEGER, email TEXT, city TEXT)")
            crm.execute("INSERT INTO people", [(1, "ada@example.com", "London"), (2, "bob(at)example.com", "Paris")])
        return crm

    def wrong_connection(self, **fields: Any) -> None:
        self.connection(**fields)
        statistics(self)

    def certificate(self, **settings: Any) -> Emulator:
        """The service over TLS, with a certificate that nobody trusts."""
        file = Authority(self.request.getfixturevalue("tmp_path")).issue()
        secure = Emulator(EmulatorSettings(tls_certificate=str(file), **settings))
        secure.start()
        self.request.addfinalizer(secure.stop)
        return secure


Case = Callable[[Stage], Any]


def campaign(**arguments: Any) -> MailCreateCampaignOperator:
    good = {"mail_name": "spring", "sender_mail": "news@example.com", "send_list_names": ["newsletter"]}
    return MailCreateCampaignOperator(**{"task_id": TASK, "subject": "Hi", "content": "<p>Hi</p>"} | good | arguments)


def one(**arguments: Any) -> MailSendOperator:
    return MailSendOperator(
        **{"task_id": TASK, "to": "ada@example.com"} | HELLO | {"content": "<p>Hello</p>"} | arguments
    )


def batch(**arguments: Any) -> MailSendBatchOperator:
    return MailSendBatchOperator(
        **{"task_id": TASK, "messages": letters(3), "versions_per_request": 1} | HELLO | arguments
    )


def contacts(**arguments: Any) -> MailImportContactsOperator:
    return MailImportContactsOperator(**{"task_id": TASK, "contacts": [{"email": "ada@example.com"}]} | arguments)


def sql(stage: Stage, **arguments: Any) -> SqlToMailContactsOperator:
    good = {"sql_conn_id": stage.crm.conn_id, "sql": "SELECT email FROM people WHERE id = 1"}
    return SqlToMailContactsOperator(**{"task_id": TASK} | good | arguments)


def statistics(stage: Stage, **arguments: Any) -> MailTransactionalStatsToSqlOperator:
    return MailTransactionalStatsToSqlOperator(**{"task_id": TASK, "sql_conn_id": stage.crm.conn_id} | arguments)


def campaign_statistics(stage: Stage, **arguments: Any) -> MailCampaignStatsToSqlOperator:
    return MailCampaignStatsToSqlOperator(**{"task_id": TASK, "sql_conn_id": stage.crm.conn_id} | arguments)


def fault(stage: Stage, kind: str, operation: str = "*", **params: Any) -> None:
    stage.emulator.faults.add(kind, operation, count=None, **params)


class Before(MailSendBatchOperator):
    """A batch before which something happens to what its task remembers."""

    def __init__(self, *, before: Callable[[Any], Any], **arguments: Any) -> None:
        super().__init__(**arguments)
        self.before = before

    def execute(self, context: Any) -> dict[str, Any]:
        self.before(context)
        return super().execute(context)


def before(happens: Callable[[Any], Any], **arguments: Any) -> Before:
    usual = {"task_id": TASK, "messages": letters(3), "before": happens, "retries": 1}
    return Before(**usual | {"retry_delay": datetime.timedelta(0)} | HELLO | arguments)


def forgetful(context: Any) -> None:
    """As on an Airflow without a task state store; only the first try is ended by its time-out."""
    context.pop("task_state_store", None)
    if context["ti"].try_number > 1:
        signal.setitimer(signal.ITIMER_REAL, 0)


def remembered(record: Any) -> Callable[[Any], None]:
    return lambda context: context["task_state_store"].set(TASK_STATE_KEY, record)


def unwritable(stage: Stage) -> None:
    @task(task_id=TASK)
    def write() -> None:
        template = AddTemplate(template_name="a", template_content="<p></p>", template_subject="b")
        MailHook().send(template)

    stage.connect(sandbox=True)
    write()


def create(**fields: Any) -> None:
    """A campaign that is there before the task."""
    from airflow_provider_mail.api.campaigns import CreateCampaign

    good = {"mail_name": "spring", "sender_mail": "news@example.com", "subject": "Another", "content": "<p>Hi</p>"}
    MailHook().send(CreateCampaign(**good | fields))


def existing(stage: Stage) -> None:
    stage.emulator.add_list("newsletter", ["ada@example.com"])
    create(send_list_names=["newsletter"])
    campaign()


def tried_before(stage: Stage, **arguments: Any) -> None:
    """A task whose first try ends after it has created its campaign."""

    def end(context: Any, result: Any) -> None:
        if context["ti"].try_number == 1:
            raise RuntimeError("the try ends")

    stage.emulator.add_list("newsletter", ["ada@example.com"])
    campaign(**{"retries": 1, "retry_delay": datetime.timedelta(0), "post_execute": end} | arguments)


def removed(stage: Stage, context: Any) -> None:
    if context["ti"].try_number == 2:
        stage.emulator.set_campaign_state("spring", "removed")


def older(stage: Stage) -> None:
    stage.emulator.add_list("newsletter", ["ada@example.com"])
    create(subject="Hi", send_list_names=["newsletter"])
    stage.emulator.clock.advance(7 * 86_400)
    campaign()


def drafted(stage: Stage) -> None:
    create(only_save=True)
    MailCampaignSensor(task_id=TASK, mail_name="spring", poke_interval=0.01)


def short(stage: Stage) -> None:
    stage.emulator.add_campaigns(3, first_day="2024-03-01", per_day=3)
    fault(stage, "short_stats", "campaign/mail/stats/get")
    campaign_statistics(stage, start_day="2024-03-01", end_day="2024-03-01")


def emptied(stage: Stage) -> None:
    stage.emulator.add_campaigns(40, first_day="2024-03-01")
    to_table = {"task_id": TASK, "sql_conn_id": stage.crm.conn_id}
    with DAG("before"):
        MailCampaignsToSqlOperator(**to_table).execute({})
    for campaign in stage.emulator.campaigns():
        stage.emulator.set_campaign_state(campaign["mailName"], "removed")
    MailCampaignsToSqlOperator(**to_table)


def uncounted(stage: Stage) -> None:
    fault(stage, "wrong_total", "campaign/mail/get", by=None)
    MailCampaignsToSqlOperator(task_id=TASK, sql_conn_id=stage.crm.conn_id)


def unsuited(stage: Stage) -> None:
    stage.crm.execute("CREATE TABLE unsuited (mail_conn_id TEXT)")
    statistics(stage, table="unsuited")


REMEMBERED = {"version": 1, "requests": 1, "recipients": 1, "unknown_requests": 0, "unknown_recipients": 0}

CASES: dict[str, Case | tuple[Case, ...]] = {
    # all arguments
    "mail_name: one text is needed, not the whole result of a task (a dictionary). Write "
    "mail_name=task.output['mail_name'] or ...": lambda stage: MailCampaignSensor(
        task_id=TASK, mail_name="{{ {'mail_name': 'spring'} }}"
    ),
    "mail_name: its template rendered to None: the value that it names is missing": lambda stage: campaign(
        mail_name="{{ ti.xcom_pull('nothing') }}"
    ),
    "mail_name: an expression of its template has no value. Write {{ ... or '' }} where that is meant": (
        lambda stage: campaign(mail_name="news {{ ti.xcom_pull('nothing') }}")
    ),
    "contacts: a list of rows is needed, not str. For the output of another task write contacts=task.output; a "
    "template renders it as text": lambda stage: contacts(contacts="{{ [{'email': 'ada@example.com'}] }}"),
    "columns: 'city': text is needed, not nothing. Leave out the columns that are not to be sent": (
        lambda stage: contacts(columns={"email": "email", "city": None})
    ),
    "sql: one query as text is needed, not a list: only one query can return the rows": lambda stage: sql(
        stage, sql=["SELECT 1", "SELECT 2"]
    ),
    # connection
    "The conn_id ... isn't defined": lambda stage: one(mail_conn_id="nowhere"),
    "connection 'mail_default': conn_type is 'http', must be 'mail'": lambda stage: stage.wrong_connection(
        conn_type="http"
    ),
    "connection 'mail_default': host (base URL): must be a URL such as https://api.example.com": lambda stage: (
        stage.wrong_connection(host="ftp://api.example.com")
    ),
    "connection 'mail_default': host (base URL): must be a plain URL, without user, query or fragment": lambda stage: (
        stage.wrong_connection(host="https://me:password@api.example.com")
    ),
    "connection 'mail_default': password (API key): is empty, and auth_type is api_key": lambda stage: (
        stage.wrong_connection(password="")
    ),
    "connection 'mail_default': access_token: is empty, and auth_type is oauth": lambda stage: stage.wrong_connection(
        extra={"auth_type": "oauth"}
    ),
    "connection 'mail_default': access_token: 600 bytes, at most 512 are allowed: is it an access token?": (
        lambda stage: stage.wrong_connection(extra={"access_token": "t" * 600})
    ),
    "connection 'mail_default': extra: unknown field sandBox; known are ...": lambda stage: stage.wrong_connection(
        extra={"sandBox": True}
    ),
    "connection 'mail_default': http... cannot be reached: no such host; "
    "check host (base URL). (ConnectError: [Errno -...": lambda stage: stage.wrong_connection(
        host="https://no-such-host.invalid"
    ),
    "connection 'mail_default': http... cannot be reached: nothing listens there; "
    "check host (base URL) and port. (ConnectError: [Errno ...] Connection refused)": lambda stage: (
        stage.wrong_connection(host="http://127.0.0.1:9")
    ),
    # Without a scheme, too: it is https then.
    "connection 'mail_default': https... cannot be reached: the server does not use TLS; is it http:// instead of "
    "https:// (http://...), or another port? (ConnectError: [SSL: ...": (
        lambda stage: stage.wrong_connection(host=stage.emulator.base_url.replace("http:", "https:")),
        lambda stage: stage.wrong_connection(host=stage.emulator.base_url.removeprefix("http://")),
    ),
    "connection 'mail_default': http... cannot be reached through the proxy http://...: nothing listens at the "
    "proxy's address; check proxy. (ConnectError: [Errno ...] Connection refused)": lambda stage: (
        stage.wrong_connection(extra={"proxy": "http://127.0.0.1:9"})
    ),
    "... the service's certificate is not trusted: ... Set ca_bundle on the connection...": (
        lambda stage: stage.wrong_connection(host=stage.certificate().base_url)
    ),
    "connection 'mail_default': campaign_url: must be a URL such as ...": lambda stage: stage.wrong_connection(
        extra={"campaign_url": "app.example.com"}
    ),
    "connection 'mail_default': ca_bundle: no such file: ...": lambda stage: stage.wrong_connection(
        extra={"ca_bundle": "/no/such.pem"}
    ),
    "connection 'mail_default': ... the service rejected the credentials: .... Check the connection's password "
    "(API key) or access_token, and auth_type": lambda stage: stage.wrong_connection(password="another"),
    "... the response is a redirect (HTTP 307), which is not followed: "
    "set the connection's host to the final address": lambda stage: [fault(stage, "redirect"), statistics(stage)],
    "... HTTP 200 with no JSON object instead of the service's response: check that the connection's host is the "
    "service's address and that no proxy's page replaces the response": lambda stage: [
        fault(stage, "html_before"),
        statistics(stage),
    ],
    "... HTTP 404 with no JSON object instead of the service's response: "
    "check that the connection's host is the service's address ...": lambda stage: [
        fault(stage, "http_error_before", status=404),
        statistics(stage),
    ],
    "... code 429: too many requests: ...": lambda stage: [fault(stage, "too_many_requests"), statistics(stage)],
    "... the response was lost (ReadTimeout), the request may have been carried out": lambda stage: [
        stage.connection(extra={"timeout": 0.2}),
        # On a slow machine the time limit of the whole request could end it first.
        stage.monkeypatch.setattr(exchange, "TOTAL_TIMEOUT_FACTOR", 1000),
        fault(stage, "delay", seconds=60),
        statistics(stage),
    ],
    "... the service failed: ...": lambda stage: [fault(stage, "code_before"), statistics(stage)],
    "... has no sandboxMode and the connection is in sandbox mode: nothing was sent. Switch sandbox off on the "
    "connection, or leave this operation out.": unwritable,
    # campaigns
    "campaign '...' should not go out: ...": lambda stage: MailPreflightOperator(
        task_id=TASK,
        sender_mail="nobody@example.com",
        send_list_names=["newsletter"],
        subject="News",
        content="<p>Hi</p>",
    ),
    "content: is the text 'None'; nothing was sent. Did a template find no value? ...": lambda stage: campaign(
        content="{{ none }}"
    ),
    "content: {{name}} has no value in ...: ...": lambda stage: batch(messages=[{"to": "ada@example.com"}]),
    "template_name: there is no template '...': nothing was sent": lambda stage: batch(
        template_name="none", content=None
    ),
    "mail_name: 213 bytes in UTF-8, at most 200 are allowed": lambda stage: campaign(mail_name="x" * 213),
    "send_date: Input should have timezone info": lambda stage: campaign(send_date="2030-01-31T09:00:00"),
    "send_date: ... lies ... in the past: the service would send at once. Nothing was sent...": lambda stage: campaign(
        send_date="2024-01-31T09:00:00Z"
    ),
    "send_list_names: required unless only_save is true": lambda stage: campaign(send_list_names=[]),
    "subject: {{name}} is undefined: Airflow has no value of that name. If it is a tag that the service is to fill in, "
    "write {% raw %}{{name}}{% endraw %}": lambda stage: campaign(subject="Hello {{name}}"),
    "content: line 1 is no template: ... What the service is to fill in, such as {{first name}}, is written "
    "{% raw %}{{first name}}{% endraw %}": lambda stage: campaign(content="<p>{{my name}}</p>"),
    "... code 403: rejected: ...": (
        lambda stage: campaign(send_list_names=["nobodies"]),
        lambda stage: one(sender_mail="unknown@example.com"),
        lambda stage: [setattr(stage.emulator.settings, "email_credits", 0), batch()],
    ),
    "mail_name: a campaign named '...' exists (mailStatus ...) and differs in subject: choose another mail_name...": (
        existing
    ),
    "mail_name: a campaign named '...' exists (mailStatus ...) and differs in subject: this task probably created "
    "it...": lambda stage: tried_before(stage, subject="Hi {{ ti.try_number }}"),
    "mail_name: a campaign named '...' exists and is equal, but was not created by this task...": lambda stage: [
        stage.emulator.add_list("newsletter", ["ada@example.com"]),
        campaign(pre_execute=lambda context: create(subject="Hi", send_list_names=["newsletter"])),
    ],
    "mail_name: give every try the same name...": lambda stage: tried_before(
        stage, mail_name="News {{ ti.try_number }}"
    ),
    "mail_name: campaign '...' was created by this task and is gone: deleted or cancelled...": lambda stage: (
        tried_before(stage, pre_execute=lambda context: removed(stage, context))
    ),
    "mail_name: a campaign named '...' exists and is equal, but is older than this run, which began at ...": older,
    "campaign '...' is a draft (mailStatus -1)...": drafted,
    "poke_interval: must be a number, more than 0, not ...": lambda stage: campaign(poke_interval=0),
    "ignore_differences: there is no field contents": lambda stage: campaign(ignore_differences=["contents"]),
    "deferrable: needs wait_for_completion=True: else the task waits for nothing": lambda stage: campaign(
        deferrable=True
    ),
    "template_name: write content='newsletter.html', a file in the DAG's folder: ...": lambda stage: campaign(
        template_name="welcome"
    ),
    "... a resource of that name exists and differs in template_content: set replace=True to store this one in its "
    "place, or choose another template_name": lambda stage: [
        MailHook().send(AddTemplate(template_name="a", template_content="<p>1</p>", template_subject="b")),
        MailCreateTemplateOperator(task_id=TASK, template_name="a", template_content="<p>2</p>", template_subject="b"),
    ],
    # transactional mail
    "messages: there are no messages to send": lambda stage: batch(messages=[]),
    "messages[1].to[0].email: is not an email address": lambda stage: batch(messages=[*letters(1), {"to": "nobody"}]),
    "messages[1].to[0].email: is not an email address: it contains ZERO WIDTH SPACE (U+200B)": lambda stage: batch(
        messages=[*letters(1), {"to": "ann\u200b@example.com"}]
    ),
    "to: is not an email address": (lambda stage: one(to="nobody"), lambda stage: one(to="{{ 'nobody' }}")),
    "versions_per_request: must be a whole number from 1 to 100, not 101": lambda stage: batch(
        versions_per_request=101
    ),
    "on_ambiguous: 'retry' is none of fail, resend, skip": lambda stage: batch(on_ambiguous="retry"),
    "request 1 (1 recipients, uniqueMsgID ...) got no clear response (...) and may have been sent; apart from it "
    "1 recipients in 1 requests were accepted. ...": lambda stage: [
        stage.emulator.faults.add("close_after", SENDS, skip=1),
        batch(),
    ],
    "this is try 2, and nothing was sent in it: this Airflow has no task state store (3.3 has)...": lambda stage: [
        fault(stage, "delay", SENDS, seconds=60),
        before(forgetful, execution_timeout=datetime.timedelta(seconds=1)),
    ],
    "messages: these differ from what an earlier try began to send (1 recipients in 1 requests were accepted)...": (
        lambda stage: before(remembered(REMEMBERED | {"digest": "another", "under_way": None}))
    ),
    "task state: the record of what an earlier try has sent was not written by this version of "
    "airflow-provider-mail: nothing was sent. ...": lambda stage: before(remembered({"version": 0})),
    # contacts
    "columns: the source has no 'mail'; it has id, email": lambda stage: sql(
        stage, sql="SELECT id, email FROM people", columns={"mail": "email"}
    ),
    "columns: which property do 'city' belong to?...": lambda stage: sql(stage, sql="SELECT email, city FROM people"),
    "columns: neither email nor phoneNumber is among the properties": lambda stage: sql(
        stage, sql="SELECT city FROM people", columns={"city": "name"}
    ),
    "there was no row to import...": lambda stage: contacts(contacts=[]),
    "1 of 2 rows were rejected: email is not an email address (1)...": lambda stage: sql(
        stage, sql="SELECT email FROM people"
    ),
    "update_mode: 'upsert' is none of create_and_update, create_only, update_only": lambda stage: contacts(
        update_mode="upsert"
    ),
    "chunk_size: must be ... at least 1": lambda stage: contacts(chunk_size=0),
    "max_reject_fraction: must be ... from 0 to 1": lambda stage: contacts(max_reject_fraction=-0.1),
    "on_empty: 'ignore' is none of error, skip, continue": lambda stage: contacts(on_empty="ignore"),
    # databases
    "`sql` on connection 'crm': OperationalError: no such table: persons": lambda stage: sql(
        stage, sql="SELECT email FROM persons"
    ),
    "`sql` on connection 'crm': OperationalError: no such column: mail": lambda stage: sql(
        stage, sql="SELECT mail FROM people"
    ),
    "sql_conn_id: connection 'shop' of type 'oracle' has no hook: .... On every worker: pip install "
    "apache-airflow-providers-oracle": lambda stage: [
        stage.monkeypatch.setenv("AIRFLOW_CONN_SHOP", '{"conn_type": "oracle"}'),
        sql(stage, sql_conn_id="shop"),
    ],
    "sql_conn_id: connection 'mail_default' is not a database with a DbApiHook (MailHook)": lambda stage: sql(
        stage, sql_conn_id="mail_default"
    ),
    "rejects_table: ...": lambda stage: sql(stage, sql="SELECT email FROM people", rejects_table="a.b.c.d"),
    "table unsuited on connection 'crm': ...": unsuited,
    "... 40 rows would become 0. Nothing was removed; allow_empty=True allows it...": emptied,
    "... no response has a valid totalRecords...": uncounted,
    "lookback_days: must be a whole number, at least 0, not ...": lambda stage: campaign_statistics(
        stage, lookback_days=-1
    ),
    "start_day: is not a date of the form YYYY-MM-DD": (
        lambda stage: campaign_statistics(stage, start_day="yesterday"),
        lambda stage: campaign_statistics(stage, start_day="{{ 'yesterday' }}"),
    ),
    "end_day: 2026-01-01 is before start_day 2026-01-02": lambda stage: campaign_statistics(
        stage, start_day="2026-01-02", end_day="2026-01-01"
    ),
    "... records came for ..., the service says there are ...": short,
}
NEEDS_STORE = (
    "messages: these differ",
    "task state: ",
    "mail_name: give every try",
    "mail_name: campaign '...' was created",
    "mail_name: a campaign named '...' exists (mailStatus ...) and differs in subject: this",
)


@pytest.fixture
def stage(
    request: pytest.FixtureRequest, run: Run, emulator: Emulator, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> Stage:
    change_retries(monkeypatch, attempts=1)
    # Airflow 3.0 prints variables as well, which takes a second each time.
    monkeypatch.setattr(
        structlog.dev.RichTracebackFormatter,
        "__call__",
        lambda _, out, error: structlog.dev.plain_traceback(out, error),
    )
    return Stage(request, run, emulator, connect, monkeypatch)


def in_words(documented: str) -> re.Pattern[str]:
    """What is said in place of `...` depends."""
    return re.compile(".*".join(re.escape(part) for part in documented.split("...")))


def test_what_is_documented_is_provoked_and_the_other_way_round() -> None:
    assert sorted(DOCUMENTED) == sorted(CASES)
    assert len(set(DOCUMENTED)) == len(DOCUMENTED)


@pytest.mark.parametrize(
    ("message", "case"),
    [
        pytest.param(message, case, id=message)
        for message, cases in CASES.items()
        for case in (cases if isinstance(cases, tuple) else (cases,))
    ],
)
def test_the_message(stage: Stage, errors: list[BaseException], message: str, case: Case) -> None:
    if message.startswith(NEEDS_STORE) and AIRFLOW_VERSION < (3, 3):
        pytest.skip("needs the task state store of Airflow 3.3")
    stage.connection()
    try:
        done = stage.run(lambda: case(stage))
    except (ValueError, TypeError) as error:  # when the DAG is parsed
        said = str(error)
    else:
        assert done.state == "failed"
        said = str(errors[-1])
    assert in_words(message).search(said), said
