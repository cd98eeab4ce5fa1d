"""What holds for every task that this package offers: arguments, template fields, a way through the database."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator, XComArg, task
from airflow.serialization import serialized_objects

import airflow_provider_mail
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
from airflow_provider_mail.transfers.object_storage_to_sql import (
    MailCreateStageTableOperator,
    MailMergeStageTableOperator,
)
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailBatchOperator, SqlToMailContactsOperator
from airflow_provider_mail.version_compat import BaseHook
from tests.support.env import ROOT

MERGED = {"sql_conn_id": "warehouse", "table": "mail_contacts", "manifest": "file:///tmp/contacts/1/manifest.json"}
CAMPAIGN = {
    "sender_mail": "news@example.com",
    "send_list_names": ["friends"],
    "subject": "a",
    "content": "<p>a</p>",
}
NEEDED: dict[type[BaseOperator], dict[str, Any]] = {
    MailAddSenderOperator: {"sender_email": "new.example.com", "sender_type": 1},
    MailCampaignSensor: {"mail_name": "a"},
    MailCampaignStatsToSqlOperator: {"sql_conn_id": "warehouse"},
    MailCampaignsToSqlOperator: {"sql_conn_id": "warehouse"},
    MailContactsToSqlOperator: {"sql_conn_id": "warehouse", "list_name": "friends"},
    MailCancelCampaignOperator: {"mail_name": "a"},
    MailDeleteCampaignOperator: {"mail_name": "a"},
    MailCreateCampaignOperator: CAMPAIGN,
    MailCreateListOperator: {"list_name": "friends"},
    MailCreateTemplateOperator: {"template_name": "a", "template_content": "<p></p>", "template_subject": "b"},
    MailDeleteContactOperator: {"contact_email": "ada@example.com"},
    MailDeleteListOperator: {"list_name": "friends"},
    MailDeleteSenderOperator: {"sender_email": "new.example.com"},
    MailDeleteTemplateOperator: {"template_name": "a"},
    MailEventsReconcileOperator: {"sql_conn_id": "warehouse"},
    MailEventsToSqlOperator: {"sql_conn_id": "warehouse"},
    MailInboxSensor: {},
    MailImportContactsOperator: {"contacts": [{"email": "ada@example.com"}]},
    MailPreflightOperator: CAMPAIGN,
    MailSaveWebhookOperator: {"trans_enable": False},
    MailSendBatchOperator: {"sender_mail": "news@example.com", "messages": [{"to": "ada@example.com"}]},
    MailSenderSensor: {"sender_email": "new.example.com"},
    MailSendOperator: {
        "sender_mail": "news@example.com",
        "to": "ada@example.com",
        "subject": "a",
        "content": "<p></p>",
    },
    MailStatsSettledSensor: {"mail_name": "a"},
    ObjectStorageToMailContactsOperator: {"path": "file:///people.csv"},
    SqlToMailBatchOperator: {"sql_conn_id": "crm", "sql": "SELECT 1", "sender_mail": "news@example.com"},
    MailCampaignsToObjectStorageOperator: {"path": "file:///tmp/campaigns"},
    MailContactsToObjectStorageOperator: {"path": "file:///tmp/contacts", "list_name": "friends"},
    MailCreateStageTableOperator: MERGED,
    MailMergeStageTableOperator: MERGED,
    MailStatsToObjectStorageOperator: {"path": "file:///tmp/statistics"},
    MailTransactionalStatsToSqlOperator: {"sql_conn_id": "warehouse"},
    MailUpsertContactOperator: {"contact_email": "ada@example.com"},
    MailVerifySenderOperator: {"from_domain": "new.example.com", "selector": "mail"},
    SqlToMailContactsOperator: {"sql_conn_id": "crm", "sql": "SELECT 1"},
}
LOCAL = {
    MailEventsToSqlOperator: "inbox_conn_id",
    MailInboxSensor: "inbox_conn_id",
    MailCreateStageTableOperator: "sql_conn_id",
    MailMergeStageTableOperator: "sql_conn_id",
}
"""They send nothing to the service."""
# What is no value of the service or of a database: how a task works is not decided by a template.
UNTEMPLATED = {
    *("allow_blank", "edge_hours", "lock_timeout", "on_unfilled_tag", "send_again"),
    *("adopt_older", "age", "all_team", "allow_empty", "allow_past_send_date", "apart", "cancel_on_kill"),
    *("chunk_size", "count_first", "deferrable", "history", "max_removed_fraction", "poll_error_timeout"),
    *(
        "fail_if_invalid",
        "fail_on",
        "file_format",
        "ignore_differences",
        "ignore_draft",
        "ignore_if_missing",
        "keep_days",
        "kind",
    ),
    *(
        "lookback_days",
        "max_age",
        "max_attachment_bytes",
        "min_interval",
        "stable_checks",
        "max_content_bytes",
        "max_in_flight",
        "max_reject_fraction",
        "mode",
    ),
    *("observations", "on_change", "on_duplicate_recipient", "on_empty", "on_incomplete", "on_unstorable"),
    *(
        "only_save",
        "page_size",
        "poke_interval",
        "replace",
        "resume",
        "sandbox_mode",
        "send_again",
        "snapshots",
        "timeout",
    ),
    *("tolerance", "tolerance_fraction"),
    *("track_click", "track_open", "trans_callback_url_extra_update_mode", "versions_per_request"),
    "wait_for_completion",
    *("batch_size", "max_pushes", "retention_days"),
    *("layout", "rows_per_file"),
}
# Under one name from Airflow 3.2 on, under another before.
SERIALIZATION: Any = getattr(serialized_objects, "DagSerialization", None) or serialized_objects.SerializedDAG

every_kind = pytest.mark.parametrize("kind", NEEDED, ids=lambda kind: kind.__name__)


def offered() -> Iterator[type[BaseOperator]]:
    for package in ("operators", "sensors", "transfers"):
        path = importlib.import_module(f"airflow_provider_mail.{package}").__path__
        for info in pkgutil.iter_modules(path, f"airflow_provider_mail.{package}."):
            for name, kind in inspect.getmembers(importlib.import_module(info.name), inspect.isclass):
                ours = issubclass(kind, BaseOperator) and kind.__module__ == info.name
                if ours and not name.startswith("Base"):
                    yield kind


def arguments(kind: type[BaseOperator]) -> dict[str, inspect.Parameter]:
    """Every argument of ours that the operator takes."""
    return {
        name: parameter
        for base in kind.__mro__
        if base.__module__.startswith(airflow_provider_mail.__name__) and "__init__" in vars(base)
        for name, parameter in inspect.signature(base.__init__).parameters.items()
        if name != "self" and parameter.kind is not parameter.VAR_KEYWORD
    }


def made(kind: type[BaseOperator], **given: Any) -> BaseOperator:
    return kind(**{"task_id": kind.__name__} | NEEDED[kind] | given)


def test_all_of_them_are_tested_here() -> None:
    # By name: a test that imports a module anew makes another class of the same name.
    assert {kind.__name__ for kind in offered()} == {kind.__name__ for kind in NEEDED}


@every_kind
def test_arguments_are_keywords_and_the_connection_has_a_default(kind: type[BaseOperator]) -> None:
    parameters = arguments(kind)
    assert {parameter.kind for parameter in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert "mail_conn_id" in parameters or kind in LOCAL
    assert "mail_conn_id" not in parameters or parameters["mail_conn_id"].default == "mail_default"


@every_kind
def test_each_argument_is_documented(kind: type[BaseOperator]) -> None:
    documented = "".join(
        base.__doc__ or "" for base in kind.__mro__ if base.__module__.startswith("airflow_provider_mail")
    )
    assert [name for name in sorted(arguments(kind)) if f":param {name}:" not in documented] == []


@every_kind
def test_each_template_field_is_an_argument_and_the_other_way_round(kind: type[BaseOperator]) -> None:
    assert len(set(kind.template_fields)) == len(kind.template_fields)
    assert set(arguments(kind)) - set(kind.template_fields) <= UNTEMPLATED
    assert set(kind.template_fields) <= set(arguments(kind))


@every_kind
def test_template_fields_are_assigned_under_their_names_and_left_alone(kind: type[BaseOperator]) -> None:
    for name in kind.template_fields:
        value = f"{{{{ params.{name} }}}}"
        assert getattr(made(kind, **{name: value}), name) == value, name


@every_kind
def test_the_output_of_another_task_may_stand_for_each_template_field(kind: type[BaseOperator]) -> None:
    with DAG("outputs", schedule=None):

        @task
        def something() -> str:
            return "something"

        for name in kind.template_fields:
            output = something()
            operator = made(kind, **{name: output, "task_id": name})
            assert isinstance(getattr(operator, name), XComArg)
            assert operator.upstream_task_ids == {output.operator.task_id}, name


@every_kind
def test_making_one_asks_nobody(kind: type[BaseOperator], monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was looked up while a DAG was parsed")

    monkeypatch.setattr(BaseHook, "get_connection", ask)
    made(kind)


def test_a_dag_of_all_of_them_is_serialised_without_a_warning(new_dag: Callable[..., DAG]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        with new_dag() as dag:
            for kind, needed in NEEDED.items():
                made(kind)
                conn_id = LOCAL.get(kind, "mail_conn_id")
                fixed = {name: value for name, value in needed.items() if name != conn_id}
                kind.partial(task_id=f"{kind.__name__}_mapped", **fixed).expand(**{conn_id: ["one", "two"]})
        stored = json.loads(json.dumps(SERIALIZATION.to_dict(dag)))
        again = SERIALIZATION.from_dict(stored)

    for kind in NEEDED:
        for task_id in (kind.__name__, f"{kind.__name__}_mapped"):
            operator = again.get_task(task_id)
            assert operator.task_type == kind.__name__
            assert tuple(operator.template_fields) == tuple(kind.template_fields)


FUNCTIONS = """
import json
from airflow.models.serialized_dag import SerializedDagModel
from airflow.sdk import DAG
from airflow.serialization import serialized_objects
from airflow_provider_mail.operators.contacts import MailImportContactsOperator

SERIALIZATION = getattr(serialized_objects, "DagSerialization", None) or serialized_objects.SerializedDAG

def people():
    yield {"email": "planted@example.com"}

with DAG("functions", schedule=None) as dag:
    MailImportContactsOperator(task_id="function", contacts=people)
    MailImportContactsOperator(task_id="lambda", contacts=lambda: [])
    MailImportContactsOperator(task_id="generator", contacts=people())
stored = SERIALIZATION.to_dict(dag)
assert "planted" not in json.dumps(stored)
print("hash", SerializedDagModel.hash(stored))
"""


def test_a_dag_with_functions_in_it_is_the_same_every_time_it_is_parsed(
    airflow_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(FUNCTIONS, {"__name__": "__main__"})
    here = capsys.readouterr().out
    # What lies in memory lies elsewhere in another process.
    there = subprocess.run(
        [sys.executable, "-c", FUNCTIONS],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert _hash(here) == _hash(there)


def _hash(printed: str) -> str:
    return next(line for line in printed.splitlines() if line.startswith("hash "))
