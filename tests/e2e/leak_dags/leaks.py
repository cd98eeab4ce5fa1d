"""A task for every way to fail with something that must not be told; what that is comes from the environment alone."""

import json
import logging
import os
from collections.abc import Iterator
from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.operators.transactional import MailSendBatchOperator, MailSendOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator

# As somebody does who looks for an error; Airflow 3.0 keeps these two quiet whatever its own level.
for name in ("httpx", "httpcore"):
    logging.getLogger(name).setLevel(logging.DEBUG)

SHAPES = json.loads(os.environ.get("LEAK_SHAPES", "[]"))
HELLO = {"sender_mail": "news@example.com", "subject": "Hello", "content": "<p>Hello</p>"}


def hidden(name: str) -> str:
    return os.environ[f"LEAK_{name.upper()}"]


def rows() -> Iterator[dict[str, str]]:
    yield {"email": hidden("address"), "name": hidden("name"), "phone_number": hidden("phone")}


def letters() -> Iterator[dict[str, Any]]:
    yield {"to": {"email": hidden("address"), "name": hidden("name")}, "params": {"name": hidden("name")}}


def bad_letters() -> Iterator[dict[str, Any]]:
    yield from letters()
    yield {"to": f"{hidden('address')}, {hidden('address')}"}


def crashing_rows() -> Iterator[dict[str, str]]:
    yield from rows()
    raise RuntimeError("in the middle")


with DAG("leaks", schedule=None, catchup=False, max_active_tasks=32):
    for shape in SHAPES:
        MailSendOperator(
            task_id=f"send_{shape}", mail_conn_id=f"mail_{shape}", to="{{ var.value.leak_address }}", **HELLO
        )
        MailImportContactsOperator(task_id=f"rows_{shape}", mail_conn_id=f"mail_{shape}", contacts=rows, chunk_size=1)
    for choice in ("fail", "resend", "skip"):
        MailSendBatchOperator(
            task_id=f"unclear_{choice}", mail_conn_id="mail_hang_up", messages=letters, on_ambiguous=choice, **HELLO
        )
    MailSendBatchOperator(task_id="sent", mail_conn_id="mail_good", messages=letters, **HELLO)
    MailSendBatchOperator(task_id="bad_address", mail_conn_id="mail_good", messages=bad_letters, **HELLO)
    MailImportContactsOperator(task_id="crash", mail_conn_id="mail_good", contacts=crashing_rows, chunk_size=1)
    MailCreateCampaignOperator(task_id="campaign", mail_conn_id="mail_code_400", send_list_names=["a"], **HELLO)
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
        task_id="sql_cast", sql="SELECT email, name::int AS phone_number FROM people", count_first=False, **people
    )
    SqlToMailContactsOperator(
        task_id="sql_rejects", sql="SELECT * FROM people", rejects_table="unsuited", max_reject_fraction=1, **people
    )
    SqlToMailContactsOperator(task_id="sql_password", sql="SELECT 1", **people | {"sql_conn_id": "crm_elsewhere"})

    @task
    def token() -> None:
        from airflow_provider_mail.api.oauth import GetToken

        secret = hidden("client_secret")
        MailHook("mail_code_400").send(GetToken(client_id="client", client_secret=secret, code=hidden("code")))

    @task
    def hook() -> None:
        from airflow_provider_mail.api.contacts import DeleteContact

        MailHook("mail_page_500").send(DeleteContact(email=hidden("address")))

    @task(templates_dict={"canary": "{{ 'canary-' ~ 'rendered' }}"})
    def canary(templates_dict: dict[str, str]) -> str:
        print("canary-printed")
        return "canary-pushed"

    token()
    hook()
    canary()
