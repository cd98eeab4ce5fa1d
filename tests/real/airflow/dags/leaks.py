"""A task for every way to fail with something that must not be shown; what that is stands elsewhere."""

import json
import logging
from collections.abc import Iterator
from typing import Any

from airflow.sdk import DAG, AssetWatcher, task

from airflow_provider_mail.arguments import Rejects
from airflow_provider_mail.assets import campaigns_asset
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.notifications.mail import MailNotifier
from airflow_provider_mail.triggers.campaigns import MailCampaignEventTrigger
from airflow_provider_mail.utils.emailer import send_email
from tests.real.airflow.leak_cases import ELSEWHERE, PLANTED, SHAPES
from tests.tasks.everything import OPERATORS

# As somebody does who looks for an error; Airflow 3.0 keeps these two quiet whatever its own level.
for name in ("httpx", "httpcore"):
    logging.getLogger(name).setLevel(logging.DEBUG)

FOLDER, ADDRESS, NAME, PHONE, GONE, CALLBACK = (
    f"{{{{ var.value.leak_{name} }}}}" for name in ("folder", "address", "name", "phone", "gone", "callback")
)
HELLO = {"sender_mail": "news@example.com", "subject": "Hello", "content": "<p>Hello</p> unsubscribe"}
PEOPLE: dict[str, Any] = {"sql_conn_id": "crm", "sql": "SELECT * FROM people", "rejects": Rejects(max_fraction=1)}
ONE: dict[str, Any] = {"sql": "SELECT * FROM people WHERE email = %s", "parameters": [ADDRESS]}
SAVED = {"contact_email": ADDRESS, "phone_number": PHONE, "name": NAME}
CRM, NOBODY = {"sql_conn_id": "crm"}, {"sql_conn_id": "crm_elsewhere"}


def rows() -> Iterator[dict[str, str]]:
    yield {"email": PLANTED["address"], "name": PLANTED["name"], "phone_number": PLANTED["phone"]}


def letters() -> Iterator[dict[str, Any]]:
    yield {"to": {"email": PLANTED["address"], "name": PLANTED["name"]}, "params": {"name": PLANTED["name"]}}


def bad_letters() -> Iterator[dict[str, Any]]:
    yield from letters()
    yield {"to": f"{PLANTED['address']}, {PLANTED['address']}"}


def crashing_rows() -> Iterator[dict[str, str]]:
    yield from rows()
    raise RuntimeError("in the middle")


def notifiers(*names: str) -> list[MailNotifier]:
    given = {"to": f"{NAME} <{ADDRESS}>", "sender_mail": "news@example.com"}
    return [MailNotifier(mail_conn_id=f"mail_{name}", **given) for name in names]


def add(task_id: str, kind: str, shape: str = "", **arguments: Any) -> Any:
    """Add a task, with the connection to a service of this shape."""
    connection = {"mail_conn_id": f"mail_{shape}"} if shape else {}
    return OPERATORS[kind](task_id=task_id, **connection, **arguments)


# The dag-processor calls these.
with DAG("leaks", schedule=None, max_active_tasks=32, on_failure_callback=notifiers("code_400", "emulator")):
    for shape in [*SHAPES, *ELSEWHERE]:
        add(f"send_{shape}", "MailSendOperator", shape, to=ADDRESS, **HELLO)
    for shape in ("code_400", "cut", "hang_up", "page_500"):
        add(f"rows_{shape}", "MailImportContactsOperator", shape, contacts=rows, chunk_size=1)
    for choice in ("fail", "resend", "skip"):
        add(f"unclear_{choice}", "MailSendBatchOperator", "hang_up", messages=letters, on_ambiguous=choice, **HELLO)
    add("sent", "MailSendBatchOperator", "good", messages=letters, **HELLO)
    add("bad_address", "MailSendBatchOperator", "good", messages=bad_letters, **HELLO)
    add("crash", "MailImportContactsOperator", "good", contacts=crashing_rows, chunk_size=1)
    add("missing", "MailSendOperator", to={"name": NAME, "email": "{{ var.value.not_there }}"}, **HELLO)
    for shape in ("refused_later", "broken_later"):
        wait = {"deferrable": True, "poke_interval": 1, "timeout": 12}
        add(f"wait_{shape}", "MailCampaignSensor", shape, mail_name=f"spring {shape}", **wait)

    # One or more people.
    add("upserted", "MailUpsertContactOperator", "emulator", list_name="friends", **SAVED)
    add("upsert_code_400", "MailUpsertContactOperator", "code_400", **SAVED)
    add("upsert_bad", "MailUpsertContactOperator", "good", **SAVED | {"contact_email": f"{ADDRESS}, {ADDRESS}"})
    add("deleted", "MailDeleteContactOperator", "emulator", contact_email=GONE, reference="case-1")
    add("delete_code_500", "MailDeleteContactOperator", "code_500", contact_email=ADDRESS)

    # Out of a database, and out of files.
    add(
        "sql_imported",
        "SqlToMailContactsOperator",
        "good",
        **PEOPLE | {"rejects": Rejects(max_fraction=1, table="aside")},
    )
    add(
        "sql_rejects",
        "SqlToMailContactsOperator",
        "good",
        **PEOPLE | {"rejects": Rejects(max_fraction=1, table="unsuited")},
    )
    add("sql_password", "SqlToMailContactsOperator", "good", sql="SELECT 1", **NOBODY)
    add("batch_sent", "SqlToMailBatchOperator", "emulator", name_column="name", **ONE, **CRM, **HELLO)
    add("batch_refused", "SqlToMailBatchOperator", "code_400", name_column="name", **ONE, **CRM, **HELLO)
    add("report_refused", "SqlToMailReportOperator", "code_400", group_by="email", **ONE, **CRM, **HELLO)
    add("batch_unclear", "SqlToMailBatchOperator", "page_500", cc_column="email", **ONE, **CRM, **HELLO)
    for name, query in {
        "bad_row": {"sql": "SELECT * FROM people ORDER BY length(email)"},
        "bad_tag": {"sql": "SELECT email, ARRAY[name] AS tag FROM people"},
        "cast": {"sql": "SELECT email, name::int AS number FROM people"},
        "parameter": {"sql": "SELECT %s::int AS email", "parameters": [ADDRESS]},
    }.items():
        add(f"batch_{name}", "SqlToMailBatchOperator", "good", **query, **CRM, **HELLO)
    file = {"path": f"file://{FOLDER}/people.csv"}
    given = {"list_name": "friends", "rejects": Rejects(max_fraction=1, path=f"file://{FOLDER}/aside.jsonl")}
    add("file_imported", "ObjectStorageToMailContactsOperator", "emulator", **file, **given)
    for name in ("people.csv", "torn.jsonl"):
        path = f"file://{FOLDER}/{name}"
        add(f"file_{name}", "ObjectStorageToMailContactsOperator", "code_400", path=path, chunk_size=1)

    # Into a database, and into files.
    add("contacts_loaded", "MailContactsToSqlOperator", "emulator", list_name="known", **CRM)
    add("contacts_guarded", "MailContactsToSqlOperator", "emulator", list_name="known", table="guarded", **CRM)
    add("contacts_odd", "MailContactsToSqlOperator", "odd_contacts", list_name="known", **CRM)
    add("campaigns", "MailCampaignsToSqlOperator", "code_401", **CRM)
    add("statistics", "MailCampaignStatsToSqlOperator", "code_400", **CRM)
    add("statistics_password", "MailTransactionalStatsToSqlOperator", "emulator", **NOBODY)
    add("drain_password", "MailEventsToSqlOperator", inbox_conn_id="crm_elsewhere", **NOBODY)
    add("comparison_password", "MailReconcileEventsOperator", "emulator", **NOBODY)
    for way in (True, False):
        wait = {"deferrable": way, "poke_interval": 1, "poll_error_timeout": 0, "timeout": 30}
        add(f"inbox_password_{way}", "MailInboxSensor", inbox_conn_id="crm_elsewhere", **wait)
    add("statistics_files", "MailStatsToObjectStorageOperator", "page_403", path=f"file://{FOLDER}")
    add("campaigns_files", "MailCampaignsToObjectStorageOperator", "code_401", path=f"file://{FOLDER}/campaigns")
    known = {"list_name": "known", "path": f"file://{FOLDER}/contacts"}
    add("contacts_files", "MailContactsToObjectStorageOperator", "emulator", **known)

    # What only has the key and the service's words to show.
    add("preflight", "MailPreflightOperator", "emulator", send_list_names=["known"], **HELLO)
    add("webhook", "MailSaveWebhookOperator", "emulator", trans_callback_url=CALLBACK)
    add("webhook_forgotten", "MailSaveWebhookOperator", "good", trans_callback_url=CALLBACK)
    add("webhook_bad", "MailSaveWebhookOperator", "good", trans_callback_url=f"ftp://{CALLBACK}")
    add("compare", "MailCompareCampaignsOperator", stats_a={"mail_name": "spring"}, stats_b={"mail_name": "fall"})
    shapes = ["code_400", "page_403", "code_401", "redirect", *ELSEWHERE]
    rest: dict[str, dict[str, Any]] = {
        "MailCreateCampaignOperator": {"send_list_names": ["a"], **HELLO},
        "MailSendTestOperator": {"seed_list_names": ["a"], **HELLO},
        "MailPreflightOperator": {"send_list_names": ["a"], **HELLO},
        "MailStatsGateSensor": {"mail_name": "spring", "max_hard_bounce": 0.1},
        "MailCreateListOperator": {"list_name": "a"},
        "MailDeleteListOperator": {"list_name": "a"},
        "MailCreateTemplateOperator": {"template_name": "a", "template_content": "a", "template_subject": "a"},
        "MailDeleteTemplateOperator": {"template_name": "a"},
        "MailAddSenderOperator": {"sender_email": "news@example.com", "sender_type": 1},
        "MailVerifySenderOperator": {"from_domain": "example.com", "selector": "a"},
        "MailDeleteSenderOperator": {"sender_email": "news@example.com"},
        "MailCancelCampaignOperator": {"mail_name": "a"},
        "MailDeleteCampaignOperator": {"mail_name": "a"},
        "MailSenderSensor": {"sender_email": "news@example.com", "timeout": 1},
        "MailStatsSettledSensor": {"mail_name": "a", "timeout": 1},
    }
    for number, (kind, arguments) in enumerate(rest.items()):
        add(kind, kind, shapes[number % len(shapes)], **arguments)

    # Airflow's own mail, the hook, and what is to be found.
    @task(on_failure_callback=notifiers("emulator", "code_400", "page_500"))
    def notified() -> None:
        raise RuntimeError("for a callback")

    @task
    def mailed() -> None:
        for name in ("emulator", "code_400", "code_500", "page"):
            for to in (f"{PLANTED['name']} <{PLANTED['address']}>", [f"{PLANTED['address']} {PLANTED['address']}"]):
                send_email(to, "Hello", "<p>Hello</p>", conn_id=f"mail_{name}", from_email="news@example.com")

    @task
    def mailed_in_earnest() -> None:
        send_email(PLANTED["address"], "a", "b", conn_id="mail_code_400", from_email="a@example.com", raise_errors=True)

    @task
    def token() -> None:
        from airflow_provider_mail.api.oauth import GetToken

        secret = PLANTED["client_secret"]
        MailHook("mail_code_400").send(GetToken(client_id="client", client_secret=secret, code=PLANTED["code"]))

    @task
    def hook() -> None:
        from airflow_provider_mail.api.contacts import DeleteContact

        MailHook("mail_page_500").send(DeleteContact(email=PLANTED["address"]))

    @task(templates_dict={"canary": "{{ 'canary-' ~ 'rendered' }}"})
    def canary(templates_dict: dict[str, str]) -> str:
        print("canary-printed")
        return "canary-pushed"

    for function in (notified, mailed, mailed_in_earnest, token, hook, canary):
        function()

# A campaign goes out; the next look fails.
watcher = AssetWatcher(name="heard", trigger=MailCampaignEventTrigger(mail_conn_id="mail_heard", poke_interval=1))
with DAG("heard", schedule=campaigns_asset("mail_heard", watchers=[watcher])):

    @task
    def hear(triggering_asset_events: Any = None) -> str:
        return json.dumps([event.extra for events in triggering_asset_events.values() for event in events])

    hear()
