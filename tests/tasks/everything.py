"""A DAG with one task for every operator and sensor that uses the service, with every argument that reaches it."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseOperator, chain

from mail_emulator import Emulator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ATTACHMENT = {"file_name": "terms.pdf", "file_data": "VGVybXM="}
IN_THE_FUTURE = "2999-01-01T09:00:00Z"
MARCH = {"start_day": "2026-03-01", "end_day": "2026-03-02"}


def offered() -> Iterator[type[BaseOperator]]:
    """Every operator and sensor of the package."""
    for package in ("operators", "sensors", "transfers"):
        path = importlib.import_module(f"airflow_provider_mail.{package}").__path__
        for info in pkgutil.iter_modules(path, f"airflow_provider_mail.{package}."):
            for name, kind in inspect.getmembers(importlib.import_module(info.name), inspect.isclass):
                ours = issubclass(kind, BaseOperator) and kind.__module__ == info.name
                if ours and not name.startswith("Base"):
                    yield kind


OPERATORS: dict[str, Any] = {kind.__name__: kind for kind in offered()}


def arrange(service: Emulator) -> None:
    """What the tasks find: one of each thing that they delete, read or wait for."""
    service.change_settings(cross_team_permission=True)
    for sender in ("news@example.com", "old.example.com"):
        service.add_sender(sender)
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
        connection.executescript("""
            CREATE TABLE people (mail_address TEXT, full_name TEXT);
            INSERT INTO people VALUES ('ida@example.com', 'Ida');
            CREATE TABLE waiting_pushes (id INTEGER PRIMARY KEY, drained_at TEXT);
            INSERT INTO waiting_pushes (drained_at) VALUES (NULL);
        """)
    (folder / "people.csv").write_text("mail_address,full_name\nkim@example.com,Kim\n")
    mail = {"conn_type": "mail", "host": service.base_url, "password": service.api_key, "extra": extra}
    sql = {"conn_type": "sqlite", "host": str(database)}
    return {"AIRFLOW_CONN_MAIL_DEFAULT": json.dumps(mail), "AIRFLOW_CONN_SQLITE_EVERYTHING": json.dumps(sql)}


def everything(dag_id: str, folder: Path, before: Callable[[str], None]) -> DAG:
    """The DAG; its tasks run one after the other, whatever becomes of them.

    :param folder: for files and databases.
    :param before: called with the id of each task just before it runs.
    """
    options = {"trigger_rule": "all_done", "pre_execute": lambda context: before(context["ti"].task_id)}
    with DAG(dag_id, schedule=None, default_args=options) as dag:
        chain(*(OPERATORS[kind](task_id=task_id, **given) for task_id, kind, given in tasks(folder)))
    return dag


# fmt: off
def tasks(folder: Path) -> list[tuple[str, str, dict[str, Any]]]:
    """Id, operator and arguments of each task."""
    into = {"sql_conn_id": "sqlite_everything"}
    rows = {"list_name": "shop", "list_description": "From the shop", "update_mode": "create_only", "null_value": "",
            "columns": {"mail_address": "email", "full_name": "name"}}
    sent = {"sender_mail": "news@example.com", "sender_name": "The shop", "reply_to": "answers@example.com",
            "send_date": IN_THE_FUTURE, "content": "<p>{% raw %}{{name}}{% endraw %}</p>", "attachment": ATTACHMENT}
    campaign = sent | {"mail_name": "spring", "subject": "Spring, {% raw %}{{name}}{% endraw %}",
                       "send_list_names": ["newsletter"], "repel_list_names": ["staff"], "language_code": "en",
                       "market_name": "Spring sale", "subscript_name": "news", "project_code": "P1",
                       "editor_type": "CLASSIC"}
    letter = sent | {"subject": "Your order", "category": "orders", "campaign": "spring", "track_open": True,
                     "track_click": True}
    news = {"mail_name": "don", "subject": "New", "sender_mail": "news@example.com", "type": "MailList",
            "all_team": True, "mail_status": ["complete"]}
    sales = {"list_name": "customers", "team_name": "Sales"}
    wait = {"poke_interval": 1, "timeout": 5}
    messages = [
        {"to": {"email": "ada@example.com", "name": "Ada"}, "cc": "cc@example.com",
         "bcc": [{"email": "bcc@example.com", "name": "B"}], "subject": "Yours", "content": "<p>Yours</p>",
         "template_name": "welcome", "params": {"name": "Ada"}},
        {"to": ["bob@example.com", "bill@example.com"]},
    ]
    return [
        ("create_list", "MailCreateListOperator", {"list_name": "friends", "list_description": "They asked for it"}),
        ("delete_list", "MailDeleteListOperator", {"list_name": "old"}),
        ("upsert_contact", "MailUpsertContactOperator", {
            "contact_email": "eva@example.com", "phone_number": "+4930123456", "name": "Eva",
            "list_name": "newsletter"}),
        ("delete_contact", "MailDeleteContactOperator", {
            "contact_email": "gone@example.com", "sql_conn_id": "sqlite_everything", "audiences_table": "audiences"}),
        ("import_contacts", "MailImportContactsOperator", rows | {"contacts": [
            {"mail_address": "eva@example.com", "full_name": "Eva"},
            {"mail_address": "max@example.com", "full_name": None}]}),
        ("import_contacts_from_sql", "SqlToMailContactsOperator", rows | into | {
            "sql": "SELECT mail_address, full_name FROM people"}),
        ("import_contacts_from_file", "ObjectStorageToMailContactsOperator", rows | {
            "path": f"file://{folder}/people.csv"}),
        ("create_template", "MailCreateTemplateOperator", {
            "template_name": "thanks", "template_content": "<p>Thank you</p>", "template_subject": "Thanks",
            "editor_type": "CLASSIC"}),
        ("delete_template", "MailDeleteTemplateOperator", {"template_name": "old"}),
        ("add_sender", "MailAddSenderOperator", {"sender_email": "shop.example.com", "sender_type": 2}),
        ("verify_sender", "MailVerifySenderOperator", {
            "from_domain": "old.example.com", "selector": "mail", "fail_if_invalid": False}),
        ("wait_for_sender", "MailSenderSensor", wait | {"sender_email": "news@example.com"}),
        ("delete_sender", "MailDeleteSenderOperator", {"sender_email": "old.example.com"}),
        ("save_webhook", "MailSaveWebhookOperator", {
            "trans_event": {"bounced": True, "opened": False}, "trans_callback_url": "https://events.example.com/in",
            "trans_callback_url_extra": {"news@example.com": "https://events.example.com/news"},
            "trans_callback_url_extra_update_mode": "replace", "trans_enable": True}),
        ("preflight", "MailPreflightOperator", campaign | {
            "max_growth": 2, "compare_with": "done", "unsubscribe_pattern": None}),
        ("create_campaign", "MailCreateCampaignOperator", campaign),
        ("send_test", "MailSendTestOperator", {
            **{name: value for name, value in campaign.items() if name not in (
                "send_date", "send_list_names", "repel_list_names")},
            "seed_list_names": ["newsletter"], "wait_for_completion": False}),
        ("cancel_campaign", "MailCancelCampaignOperator", {"mail_name": "scheduled"}),
        ("delete_campaign", "MailDeleteCampaignOperator", {"mail_name": "old"}),
        ("wait_for_campaign", "MailCampaignSensor", wait | {"mail_name": "done"}),
        ("wait_for_final_stats", "MailStatsSettledSensor", wait | MARCH | {"mail_name": "done", "max_age": 60}),
        ("gate", "MailStatsGateSensor", wait | MARCH | {"mail_name": "done", "max_hard_bounce": 1}),
        ("wait_for_pushes", "MailInboxSensor", {
            "inbox_conn_id": "sqlite_everything", "inbox_table": "waiting_pushes", "timeout": 5}),
        ("send", "MailSendOperator", letter | {
            "to": {"email": "ada@example.com", "name": "Ada"}, "unique_msg_id": "order-1", "service_tags": ["name"]}),
        ("send_batch", "MailSendBatchOperator", letter | {
            "messages": messages, "template_name": "welcome", "mail_params": {"name": "you"}}),
        ("send_batch_from_sql", "SqlToMailBatchOperator", letter | into | {
            "sql": "SELECT mail_address, full_name FROM people ORDER BY mail_address", "to_column": "mail_address",
            "name_column": "full_name", "columns": {"full_name": "name"}}),
        ("send_report", "SqlToMailReportOperator", {name: value for name, value in letter.items() if name not in (
            "attachment", "content")} | into | {
            "sql": "SELECT mail_address, full_name, 5 AS orders FROM people", "group_by": "mail_address",
            "columns": {"full_name": "Name", "orders": "Orders"}, "content": "<p>Open:</p>",
            "file_name": "orders.csv"}),
        ("load_campaign_stats", "MailCampaignStatsToSqlOperator", into | MARCH | {"type": "MailList"}),
        ("load_transactional_stats", "MailTransactionalStatsToSqlOperator", into | MARCH),
        ("load_contacts", "MailContactsToSqlOperator", sales | into),
        ("load_campaigns", "MailCampaignsToSqlOperator", news | into),
        ("write_contacts", "MailContactsToObjectStorageOperator", sales | {"path": f"file://{folder}/contacts"}),
        ("write_campaigns", "MailCampaignsToObjectStorageOperator", news | {
            "path": f"file://{folder}/campaigns", "file_format": "jsonl"}),
        ("write_stats", "MailStatsToObjectStorageOperator", MARCH | {
            "path": f"file://{folder}/stats", "file_format": "jsonl"}),
        ("drain_events", "MailEventsToSqlOperator", into | {"inbox_conn_id": "sqlite_everything"}),
        ("reconcile_events", "MailReconcileEventsOperator", into | MARCH | {"tolerance": 3}),
    ]
# fmt: on
