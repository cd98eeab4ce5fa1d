"""A DAG with one task for every operator and sensor that uses the service, with every argument that reaches it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, chain

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.campaigns import (
    MailCancelCampaignOperator,
    MailCreateCampaignOperator,
    MailDeleteCampaignOperator,
)
from airflow_provider_mail.operators.contacts import (
    MailDeleteContactOperator,
    MailImportContactsOperator,
    MailUpsertContactOperator,
)
from airflow_provider_mail.operators.events import MailEventsReconcileOperator
from airflow_provider_mail.operators.lists import MailCreateListOperator, MailDeleteListOperator
from airflow_provider_mail.operators.preflight import MailPreflightOperator
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
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailBatchOperator, SqlToMailContactsOperator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow.sdk import BaseOperator

ATTACHMENT = {"file_name": "terms.pdf", "file_data": "VGVybXM="}
IN_THE_FUTURE = "2999-01-01T09:00:00Z"
MARCH = {"start_day": "2026-03-01", "end_day": "2026-03-02"}


def arrange(service: Emulator) -> None:
    """What the tasks find: one of each thing that they delete, read or wait for."""
    service.change_settings(cross_team_permission=True)
    service.add_sender("news@example.com")
    service.add_sender("old.example.com")
    service.add_list("newsletter", ["ada@example.com", "bob@example.com"])
    service.add_list("staff")
    service.add_list("customers", ["ada@example.com"], team="Sales")
    service.add_list("old")
    service.add_contact("gone@example.com")
    service.add_template("welcome", subject="Welcome", content="<p>Hello {{name}}</p>")
    service.add_template("old", subject="Old", content="<p>Old</p>")
    service.add_subscription("news")
    service.add_campaign("done", send_date="2026-03-01T09:00:00+00:00", sent=2)
    service.add_campaign("old", send_date="2026-03-02T09:00:00+00:00", sent=2)
    service.add_campaign("scheduled", send_date="2999-01-01T09:00:00+00:00", state="scheduled")
    service.set_transactional_day("2026-03-01", sentCount=3)


def connections(service: Emulator, folder: Path, **extra: Any) -> dict[str, str]:
    """Variables of the environment for the connections of the tasks; makes what they read."""
    database = folder / "everything.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE people (mail_address TEXT, full_name TEXT)")
        connection.execute("INSERT INTO people VALUES ('ida@example.com', 'Ida')")
        connection.execute("CREATE TABLE waiting_pushes (id INTEGER PRIMARY KEY, drained_at TEXT)")
        connection.execute("INSERT INTO waiting_pushes (drained_at) VALUES (NULL)")
        connection.commit()
    (folder / "people.csv").write_text("mail_address,full_name\nkim@example.com,Kim\n")
    mail = {"conn_type": "mail", "host": service.base_url, "password": service.api_key, "extra": extra}
    sql = {"conn_type": "sqlite", "host": str(database)}
    return {"AIRFLOW_CONN_MAIL_DEFAULT": json.dumps(mail), "AIRFLOW_CONN_SQLITE_EVERYTHING": json.dumps(sql)}


def everything(dag_id: str, folder: Path, before: Callable[[str], None]) -> DAG:
    """The DAG; its tasks run one after the other, whatever becomes of them.

    :param folder: for files and databases.
    :param before: told the id of each task just before it runs.
    """
    with DAG(
        dag_id,
        schedule=None,
        default_args={
            "trigger_rule": "all_done",
            "pre_execute": lambda context: before(context["ti"].task_id),
        },
    ) as dag:
        chain(*tasks(folder))
    return dag


def tasks(folder: Path) -> Iterable[BaseOperator]:
    yield MailCreateListOperator(task_id="create_list", list_name="friends", list_description="They asked for it")
    yield MailDeleteListOperator(task_id="delete_list", list_name="old")
    yield MailUpsertContactOperator(
        task_id="upsert_contact",
        contact_email="eva@example.com",
        phone_number="+4930123456",
        name="Eva",
        list_name="newsletter",
    )
    yield MailDeleteContactOperator(task_id="delete_contact", contact_email="gone@example.com")
    rows: dict[str, Any] = {
        "list_description": "From the shop",
        "columns": {"mail_address": "email", "full_name": "name"},
        "update_mode": "create_only",
        "null_value": "",
    }
    yield MailImportContactsOperator(
        task_id="import_contacts",
        contacts=[
            {"mail_address": "eva@example.com", "full_name": "Eva"},
            {"mail_address": "max@example.com", "full_name": None},
        ],
        list_name="shop",
        **rows,
    )
    yield SqlToMailContactsOperator(
        task_id="import_contacts_from_sql",
        sql_conn_id="sqlite_everything",
        sql="SELECT mail_address, full_name FROM people",
        list_name="shop",
        **rows,
    )
    yield ObjectStorageToMailContactsOperator(
        task_id="import_contacts_from_file", path=f"file://{folder}/people.csv", list_name="shop", **rows
    )
    yield MailCreateTemplateOperator(
        task_id="create_template",
        template_name="thanks",
        template_content="<p>Thank you</p>",
        template_subject="Thanks",
        editor_type="CLASSIC",
    )
    yield MailDeleteTemplateOperator(task_id="delete_template", template_name="old")
    yield MailAddSenderOperator(task_id="add_sender", sender_email="shop.example.com", sender_type=2)
    yield MailVerifySenderOperator(
        task_id="verify_sender", from_domain="old.example.com", selector="mail", fail_if_invalid=False
    )
    yield MailSenderSensor(task_id="wait_for_sender", sender_email="news@example.com", poke_interval=1, timeout=5)
    yield MailDeleteSenderOperator(task_id="delete_sender", sender_email="old.example.com")
    yield MailSaveWebhookOperator(
        task_id="save_webhook",
        trans_event={"bounced": True, "opened": False},
        trans_callback_url="https://events.example.com/in",
        trans_callback_url_extra={"news@example.com": "https://events.example.com/news"},
        trans_callback_url_extra_update_mode="replace",
        trans_enable=True,
    )
    campaign: dict[str, Any] = {
        "mail_name": "spring",
        "sender_mail": "news@example.com",
        "sender_name": "The shop",
        "subject": "Spring, {% raw %}{{name}}{% endraw %}",
        "content": "<p>{% raw %}{{name}}{% endraw %}</p>",
        "send_date": IN_THE_FUTURE,
        "send_list_names": ["newsletter"],
        "repel_list_names": ["staff"],
        "reply_to": "answers@example.com",
        "attachment": ATTACHMENT,
        "language_code": "en",
        "market_name": "Spring sale",
        "subscript_name": "news",
        "project_code": "P1",
        "editor_type": "CLASSIC",
    }
    yield MailPreflightOperator(
        task_id="preflight", max_growth=2, compare_with="done", unsubscribe_pattern=None, **campaign
    )
    yield MailCreateCampaignOperator(task_id="create_campaign", **campaign)
    yield MailCancelCampaignOperator(task_id="cancel_campaign", mail_name="scheduled")
    yield MailDeleteCampaignOperator(task_id="delete_campaign", mail_name="old")
    yield MailCampaignSensor(task_id="wait_for_campaign", mail_name="done", poke_interval=1, timeout=5)
    yield MailStatsSettledSensor(
        task_id="wait_for_final_stats", mail_name="done", age=60, poke_interval=1, timeout=5, **MARCH
    )
    yield MailInboxSensor(
        task_id="wait_for_pushes", inbox_conn_id="sqlite_everything", inbox_table="waiting_pushes", timeout=5
    )
    letter: dict[str, Any] = {
        "sender_mail": "news@example.com",
        "sender_name": "The shop",
        "subject": "Your order",
        "content": "<p>{% raw %}{{name}}{% endraw %}</p>",
        "reply_to": "answers@example.com",
        "send_date": IN_THE_FUTURE,
        "category": "orders",
        "campaign": "spring",
        "track_open": True,
        "track_click": True,
        "attachment": ATTACHMENT,
    }
    yield MailSendOperator(
        task_id="send",
        to={"email": "ada@example.com", "name": "Ada"},
        unique_msg_id="order-1",
        service_tags=["name"],
        **letter,
    )
    yield MailSendBatchOperator(
        task_id="send_batch",
        messages=[
            {
                "to": {"email": "ada@example.com", "name": "Ada"},
                "cc": "cc@example.com",
                "bcc": [{"email": "bcc@example.com", "name": "B"}],
                "subject": "Yours",
                "content": "<p>Yours</p>",
                "template_name": "welcome",
                "params": {"name": "Ada"},
            },
            {"to": ["bob@example.com", "bill@example.com"]},
        ],
        template_name="welcome",
        mail_params={"name": "you"},
        **letter,
    )
    yield SqlToMailBatchOperator(
        task_id="send_batch_from_sql",
        sql_conn_id="sqlite_everything",
        sql="SELECT mail_address, full_name FROM people ORDER BY mail_address",
        to_column="mail_address",
        name_column="full_name",
        columns={"full_name": "name"},
        **letter,
    )
    into: dict[str, Any] = {"sql_conn_id": "sqlite_everything"}
    yield MailCampaignStatsToSqlOperator(task_id="load_campaign_stats", type="MailList", **into, **MARCH)
    yield MailTransactionalStatsToSqlOperator(task_id="load_transactional_stats", **into, **MARCH)
    yield MailContactsToSqlOperator(task_id="load_contacts", list_name="customers", team_name="Sales", **into)
    found: dict[str, Any] = {
        "mail_name": "don",
        "subject": "New",
        "sender_mail": "news@example.com",
        "type": "MailList",
        "all_team": True,
        "mail_status": [2],
    }
    yield MailCampaignsToSqlOperator(task_id="load_campaigns", **found, **into)
    yield MailContactsToObjectStorageOperator(
        task_id="write_contacts", list_name="customers", team_name="Sales", path=f"file://{folder}/contacts"
    )
    yield MailCampaignsToObjectStorageOperator(
        task_id="write_campaigns", path=f"file://{folder}/campaigns", file_format="jsonl", **found
    )
    yield MailStatsToObjectStorageOperator(
        task_id="write_stats", path=f"file://{folder}/stats", file_format="jsonl", **MARCH
    )
    yield MailEventsToSqlOperator(task_id="drain_events", inbox_conn_id="sqlite_everything", **into)
    yield MailEventsReconcileOperator(task_id="reconcile_events", tolerance=3, **into, **MARCH)
