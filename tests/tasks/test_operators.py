"""What holds for every task that this package offers."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator

import airflow_provider_mail
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.operators.transactional import MailSendBatchOperator, MailSendOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator

NEEDED: dict[type[BaseOperator], dict[str, Any]] = {
    MailCampaignSensor: {"mail_name": "a"},
    MailCampaignStatsToSqlOperator: {"sql_conn_id": "warehouse"},
    MailCreateCampaignOperator: {"sender_mail": "news@example.com"},
    MailImportContactsOperator: {"contacts": [{"email": "ada@example.com"}]},
    MailSendBatchOperator: {"sender_mail": "news@example.com", "messages": [{"to": "ada@example.com"}]},
    MailSendOperator: {"sender_mail": "news@example.com", "to": "ada@example.com"},
    MailTransactionalStatsToSqlOperator: {"sql_conn_id": "warehouse"},
    SqlToMailContactsOperator: {"sql_conn_id": "crm", "sql": "SELECT 1"},
}
# What is no value of the service or of a database: how a task works is not decided by a template.
UNTEMPLATED = {
    *("chunk_size", "count_first", "deferrable", "editor_type", "ignore_differences", "lookback_days", "max_in_flight"),
    *("max_reject_fraction", "null_value", "on_empty", "only_save", "poke_interval", "sandbox_mode", "timeout"),
    *("track_click", "track_open", "update_mode", "versions_per_request", "wait_for_completion"),
}


def offered() -> Iterator[type[BaseOperator]]:
    for package in ("operators", "sensors", "transfers"):
        path = importlib.import_module(f"airflow_provider_mail.{package}").__path__
        for info in pkgutil.iter_modules(path, f"airflow_provider_mail.{package}."):
            for name, kind in inspect.getmembers(importlib.import_module(info.name), inspect.isclass):
                ours = issubclass(kind, BaseOperator) and kind.__module__ == info.name
                if ours and not name.startswith("Base"):
                    yield kind


def arguments(kind: type[BaseOperator]) -> set[str]:
    """Every argument of ours that the operator takes."""
    return {
        name
        for base in kind.__mro__
        if base.__module__.startswith(airflow_provider_mail.__name__) and "__init__" in vars(base)
        for name, parameter in inspect.signature(base.__init__).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def test_all_of_them_are_tested_here() -> None:
    assert set(offered()) == set(NEEDED)


@pytest.mark.parametrize("kind", NEEDED, ids=lambda kind: kind.__name__)
def test_each_template_field_is_an_argument_and_the_other_way_round(kind: type[BaseOperator]) -> None:
    operator = kind(task_id="a", **NEEDED[kind])
    assert len(set(kind.template_fields)) == len(kind.template_fields)
    for name in kind.template_fields:
        assert hasattr(operator, name), name
    assert arguments(kind) - set(kind.template_fields) <= UNTEMPLATED
    assert set(kind.template_fields) <= arguments(kind)


@pytest.mark.parametrize("kind", NEEDED, ids=lambda kind: kind.__name__)
def test_arguments_are_keywords_and_the_connection_has_a_default(kind: type[BaseOperator]) -> None:
    with pytest.raises(TypeError):
        kind("a", "b")  # type: ignore[call-arg, arg-type]
    assert kind(task_id="a", **NEEDED[kind]).mail_conn_id == "mail_default"


@pytest.mark.parametrize("kind", NEEDED, ids=lambda kind: kind.__name__)
def test_each_argument_is_documented(kind: type[BaseOperator]) -> None:
    documented = "".join(
        base.__doc__ or "" for base in kind.__mro__ if base.__module__.startswith("airflow_provider_mail")
    )
    assert [name for name in sorted(arguments(kind)) if f":param {name}:" not in documented] == []


def test_a_dag_of_all_of_them_is_serialised_without_a_warning(new_dag: Callable[..., DAG]) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        with new_dag(start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
            for kind, needed in NEEDED.items():
                kind(task_id=kind.__name__, **needed)
    data = DagSerialization.to_dict(dag)
    assert {task["__var"]["task_type"] for task in data["dag"]["tasks"]} == {kind.__name__ for kind in NEEDED}
    DagSerialization.from_dict(data)
