"""A task for every way to fail with something that must not be shown; what that is stands elsewhere."""

import json
import logging
from collections.abc import Iterator
from typing import Any

from airflow.sdk import DAG, AssetWatcher, task

from airflow_provider_mail.assets import campaigns_asset
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.notifications.mail import MailNotifier
from airflow_provider_mail.operators.campaigns import (
    MailCancelCampaignOperator,
    MailCreateCampaignOperator,
    MailDeleteCampaignOperator,
)
from airflow_provider_mail.operators.compare import MailCompareCampaignsOperator
from airflow_provider_mail.operators.contacts import (
    MailDeleteContactOperator,
    MailImportContactsOperator,
    MailUpsertContactOperator,
)
from airflow_provider_mail.operators.events import MailEventsReconcileOperator
from airflow_provider_mail.operators.lists import MailCreateListOperator, MailDeleteListOperator
from airflow_provider_mail.operators.preflight import MailPreflightOperator
from airflow_provider_mail.operators.seed_test import MailSendTestOperator
from airflow_provider_mail.operators.senders import (
    MailAddSenderOperator,
    MailDeleteSenderOperator,
    MailVerifySenderOperator,
)
from airflow_provider_mail.operators.templates import MailCreateTemplateOperator, MailDeleteTemplateOperator
from airflow_provider_mail.operators.transactional import MailSendBatchOperator, MailSendOperator
from airflow_provider_mail.operators.webhooks import MailSaveWebhookOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.sensors.events import MailInboxSensor
from airflow_provider_mail.sensors.gate import MailStatsGateOperator
from airflow_provider_mail.sensors.senders import MailSenderSensor
from airflow_provider_mail.sensors.stats import MailStatsSettledSensor
from airflow_provider_mail.transfers.events_to_sql import MailEventsToSqlOperator
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
from airflow_provider_mail.transfers.object_storage_to_sql import (
    MailCreateStageTableOperator,
    MailMergeStageTableOperator,
)
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailBatchOperator, SqlToMailContactsOperator
from airflow_provider_mail.triggers.campaigns import MailCampaignEventTrigger
from airflow_provider_mail.utils.emailer import send_email
from tests.real.airflow.leak_cases import ELSEWHERE, PLANTED, SHAPES

# As somebody does who looks for an error; Airflow 3.0 keeps these two quiet whatever its own level.
for name in ("httpx", "httpcore"):
    logging.getLogger(name).setLevel(logging.DEBUG)

FOLDER = "{{ var.value.leak_folder }}"
ADDRESS, NAME, PHONE, GONE, CALLBACK = (
    f"{{{{ var.value.leak_{name} }}}}" for name in ("address", "name", "phone", "gone", "callback")
)
HELLO = {"sender_mail": "news@example.com", "subject": "Hello", "content": "<p>Hello</p>"}


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
    return [
        MailNotifier(mail_conn_id=f"mail_{name}", to=f"{NAME} <{ADDRESS}>", sender_mail="news@example.com")
        for name in names
    ]


# The dag-processor calls these.
with DAG(
    "leaks", schedule=None, catchup=False, max_active_tasks=32, on_failure_callback=notifiers("code_400", "emulator")
):
    for shape in [*SHAPES, *ELSEWHERE]:
        MailSendOperator(task_id=f"send_{shape}", mail_conn_id=f"mail_{shape}", to=ADDRESS, **HELLO)
    for shape in ("code_400", "cut", "hang_up", "page_500"):
        MailImportContactsOperator(task_id=f"rows_{shape}", mail_conn_id=f"mail_{shape}", contacts=rows, chunk_size=1)
    for choice in ("fail", "resend", "skip"):
        MailSendBatchOperator(
            task_id=f"unclear_{choice}", mail_conn_id="mail_hang_up", messages=letters, on_ambiguous=choice, **HELLO
        )
    MailSendBatchOperator(task_id="sent", mail_conn_id="mail_good", messages=letters, **HELLO)
    MailSendBatchOperator(task_id="bad_address", mail_conn_id="mail_good", messages=bad_letters, **HELLO)
    MailImportContactsOperator(task_id="crash", mail_conn_id="mail_good", contacts=crashing_rows, chunk_size=1)
    MailCreateCampaignOperator(task_id="campaign", mail_conn_id="mail_code_400", send_list_names=["a"], **HELLO)
    MailSendTestOperator(task_id="seed_test", mail_conn_id="mail_code_400", seed_list_names=["a"], **HELLO)
    MailStatsGateOperator(task_id="gate", mail_conn_id="mail_code_400", mail_name="spring", max_hard_bounce=0.1)
    MailCompareCampaignsOperator(task_id="compare", a={"mail_name": "spring"}, b={"mail_name": "fall"})
    for shape in ("refused_later", "broken_later"):
        MailCampaignSensor(
            task_id=f"wait_{shape}", mail_conn_id=f"mail_{shape}", mail_name=f"spring {shape}", deferrable=True,
            poke_interval=1, timeout=12,
        )  # fmt: skip

    people: dict[str, Any] = {"mail_conn_id": "mail_good", "sql_conn_id": "crm"}
    SqlToMailContactsOperator(
        task_id="sql_imported", sql="SELECT * FROM people", rejects_table="aside", max_reject_fraction=1, **people
    )
    SqlToMailContactsOperator(
        task_id="sql_rejects", sql="SELECT * FROM people", rejects_table="unsuited", max_reject_fraction=1, **people
    )
    SqlToMailContactsOperator(task_id="sql_password", sql="SELECT 1", **people | {"sql_conn_id": "crm_elsewhere"})

    # --- one or more people ---

    MailSendOperator(task_id="missing", to={"name": NAME, "email": "{{ var.value.not_there }}"}, **HELLO)
    saved = {"contact_email": ADDRESS, "phone_number": PHONE, "name": NAME}
    MailUpsertContactOperator(task_id="upserted", mail_conn_id="mail_emulator", list_name="friends", **saved)
    MailUpsertContactOperator(task_id="upsert_code_400", mail_conn_id="mail_code_400", **saved)
    MailUpsertContactOperator(
        task_id="upsert_bad", mail_conn_id="mail_good", **saved | {"contact_email": f"{ADDRESS}, {ADDRESS}"}
    )
    MailDeleteContactOperator(task_id="deleted", mail_conn_id="mail_emulator", contact_email=GONE, reference="case-1")
    MailDeleteContactOperator(task_id="delete_code_500", mail_conn_id="mail_code_500", contact_email=ADDRESS)

    # --- out of a database ---

    rows_of: dict[str, Any] = {"sql_conn_id": "crm", **HELLO}
    one: dict[str, Any] = {"sql": "SELECT * FROM people WHERE email = %s", "parameters": [ADDRESS]}
    SqlToMailBatchOperator(task_id="batch_sent", mail_conn_id="mail_emulator", name_column="name", **one, **rows_of)
    SqlToMailBatchOperator(task_id="batch_refused", mail_conn_id="mail_code_400", name_column="name", **one, **rows_of)
    SqlToMailBatchOperator(task_id="batch_unclear", mail_conn_id="mail_page_500", cc_column="email", **one, **rows_of)
    for name, sql in {
        "bad_row": "SELECT * FROM people ORDER BY length(email)",
        "bad_tag": "SELECT email, ARRAY[name] AS tag FROM people",
        "cast": "SELECT email, name::int AS number FROM people",
    }.items():
        SqlToMailBatchOperator(task_id=f"batch_{name}", mail_conn_id="mail_good", sql=sql, **rows_of)
    parameter: dict[str, Any] = {"sql": "SELECT %s::int AS email", "parameters": [ADDRESS]}
    SqlToMailBatchOperator(task_id="batch_parameter", mail_conn_id="mail_good", **parameter, **rows_of)

    # --- out of files ---

    ObjectStorageToMailContactsOperator(
        task_id="file_imported", mail_conn_id="mail_emulator", path=f"file://{FOLDER}/people.csv", list_name="friends",
        rejects_path=f"file://{FOLDER}/aside.jsonl", max_reject_fraction=1,
    )  # fmt: skip
    for file in ("people.csv", "torn.jsonl"):
        ObjectStorageToMailContactsOperator(
            task_id=f"file_{file}", mail_conn_id="mail_code_400", path=f"file://{FOLDER}/{file}", chunk_size=1
        )

    # --- into a database ---

    into: dict[str, Any] = {"sql_conn_id": "crm"}
    MailContactsToSqlOperator(task_id="contacts_loaded", mail_conn_id="mail_emulator", list_name="known", **into)
    MailContactsToSqlOperator(
        task_id="contacts_guarded", mail_conn_id="mail_emulator", list_name="known", table="guarded", **into
    )
    MailContactsToSqlOperator(task_id="contacts_odd", mail_conn_id="mail_odd_contacts", list_name="known", **into)
    MailCampaignsToSqlOperator(task_id="campaigns", mail_conn_id="mail_code_401", **into)
    MailCampaignStatsToSqlOperator(task_id="statistics", mail_conn_id="mail_code_400", **into)
    MailTransactionalStatsToSqlOperator(
        task_id="statistics_password", mail_conn_id="mail_emulator", sql_conn_id="crm_elsewhere"
    )
    MailEventsToSqlOperator(task_id="drain_password", inbox_conn_id="crm_elsewhere", sql_conn_id="crm_elsewhere")
    MailEventsReconcileOperator(
        task_id="comparison_password", mail_conn_id="mail_emulator", sql_conn_id="crm_elsewhere"
    )
    for way in (True, False):
        MailInboxSensor(
            task_id=f"inbox_password_{way}", inbox_conn_id="crm_elsewhere", deferrable=way, poke_interval=1,
            poll_error_timeout=0, timeout=30,
        )  # fmt: skip
    MailStatsToObjectStorageOperator(task_id="statistics_files", mail_conn_id="mail_page_403", path=f"file://{FOLDER}")
    MailCampaignsToObjectStorageOperator(
        task_id="campaigns_files", mail_conn_id="mail_code_401", path=f"file://{FOLDER}/campaigns"
    )
    written = MailContactsToObjectStorageOperator(
        task_id="contacts_files", mail_conn_id="mail_emulator", list_name="known", path=f"file://{FOLDER}/contacts"
    )
    files: dict[str, Any] = {
        "sql_conn_id": "crm_elsewhere",
        "table": "contacts",
        "manifest": "{{ ti.xcom_pull(task_ids='contacts_files')['manifest'] }}",
    }
    written >> [
        MailCreateStageTableOperator(task_id="stage_password", **files),
        MailMergeStageTableOperator(task_id="merge_password", **files),
    ]

    # --- what only has the key and the service's words to show ---

    news: dict[str, Any] = {"sender_mail": "news@example.com", "subject": "News", "content": "unsubscribe"}
    MailPreflightOperator(task_id="preflight", mail_conn_id="mail_emulator", send_list_names=["known"], **news)
    MailPreflightOperator(task_id="preflight_code_400", mail_conn_id="mail_code_400", **news, send_list_names=["a"])
    MailSaveWebhookOperator(task_id="webhook", mail_conn_id="mail_emulator", trans_callback_url=CALLBACK)
    MailSaveWebhookOperator(task_id="webhook_forgotten", mail_conn_id="mail_good", trans_callback_url=CALLBACK)
    MailSaveWebhookOperator(task_id="webhook_bad", mail_conn_id="mail_good", trans_callback_url=f"ftp://{CALLBACK}")
    shapes = ["code_400", "page_403", "code_401", "redirect", *ELSEWHERE]
    for number, (kind, arguments) in enumerate(
        (
            (MailCreateListOperator, {"list_name": "a"}),
            (MailDeleteListOperator, {"list_name": "a"}),
            (MailCreateTemplateOperator, {"template_name": "a", "template_content": "a", "template_subject": "a"}),
            (MailDeleteTemplateOperator, {"template_name": "a"}),
            (MailAddSenderOperator, {"sender_email": "news@example.com", "sender_type": 1}),
            (MailVerifySenderOperator, {"from_domain": "example.com", "selector": "a"}),
            (MailDeleteSenderOperator, {"sender_email": "news@example.com"}),
            (MailCancelCampaignOperator, {"mail_name": "a"}),
            (MailDeleteCampaignOperator, {"mail_name": "a"}),
            (MailSenderSensor, {"sender_email": "news@example.com", "timeout": 1}),
            (MailStatsSettledSensor, {"mail_name": "a", "timeout": 1}),
        )
    ):
        kind(task_id=kind.__name__, mail_conn_id=f"mail_{shapes[number % len(shapes)]}", **arguments)

    # --- Airflow's own mail ---

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

    notified()
    mailed()
    mailed_in_earnest()

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

    token()
    hook()
    canary()

# A campaign goes out; the next look fails.
watcher = AssetWatcher(name="heard", trigger=MailCampaignEventTrigger(mail_conn_id="mail_heard", poke_interval=1))
with DAG("heard", schedule=campaigns_asset("mail_heard", watchers=[watcher])):

    @task
    def hear(triggering_asset_events: Any = None) -> str:
        return json.dumps([event.extra for events in triggering_asset_events.values() for event in events])

    hear()
