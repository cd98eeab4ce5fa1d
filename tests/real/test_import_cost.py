"""Parsing a DAG file stays cheap, and the service side of the house works without Airflow (DESIGN, 2)."""

from __future__ import annotations

import importlib
import inspect
import os

import pytest
from pydantic import BaseModel

from benchmarks.parse_time import PARSED, Import, measure, modules_below
from tests.support.dags import AIRFLOW_VERSION

MAX_MODULES = 37
"""Of ours; one fewer on Airflow 3.3, which has imported the package already."""

MAX_OF_OTHERS = 9 if AIRFLOW_VERSION == (3, 1) else 7

# Each of these costs more than all of ours together, or is for another place than a DAG file.
HEAVY = ("aiohttp", "airflow.providers.common.sql", "fastapi", "msgspec", "pandas", "requests", "sqlalchemy", "uvicorn")

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def parsed() -> Import:
    """Everything that DAG files import from us, imported over `airflow.sdk` in a fresh interpreter."""
    return measure(modules_below(*PARSED), after="airflow.sdk", env=os.environ)


def within(modules: tuple[str, ...], *packages: str) -> list[str]:
    return [name for name in modules if any(name == package or name.startswith(f"{package}.") for package in packages)]


def test_nothing_that_dag_files_import_is_left_out(parsed: Import) -> None:
    main_job = {
        "airflow_provider_mail.operators.campaigns",
        "airflow_provider_mail.operators.contacts",
        "airflow_provider_mail.sensors.campaigns",
        "airflow_provider_mail.transfers.mail_to_sql",
        "airflow_provider_mail.transfers.sql_to_mail",
    }
    assert main_job <= set(parsed.modules)


def test_parsing_adds_few_modules(parsed: Import) -> None:
    ours = within(parsed.modules, "airflow_provider_mail")
    others = sorted(set(parsed.modules) - set(ours))
    assert len(ours) <= MAX_MODULES, "\n".join(ours)
    assert len(others) <= MAX_OF_OTHERS, "\n".join(others)


def test_parsing_loads_nothing_heavy(parsed: Import) -> None:
    assert within(parsed.modules, *HEAVY) == []
    assert within(parsed.modules, "airflow_provider_mail.emulator", "airflow_provider_mail.webhook") == []


def test_parsing_builds_no_request_model(parsed: Import) -> None:
    ours = [importlib.import_module(name) for name in modules_below("api")]
    with_models = {
        module.__name__
        for module in ours
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, BaseModel) and kind.__module__ == module.__name__
    }
    assert "airflow_provider_mail.api.campaigns" in with_models
    assert sorted(with_models & set(parsed.modules)) == []


def test_the_service_side_works_without_airflow() -> None:
    loaded = measure(modules_below("api"), after="json", env=os.environ)
    assert "airflow_provider_mail.api.campaigns" in loaded.modules
    assert within(loaded.modules, "airflow") == []


def test_waiting_for_a_campaign_imports_no_database() -> None:
    """The triggerer reads an inbox of received events only where there is one."""
    loaded = measure(("airflow_provider_mail._polling.campaigns",), after="airflow.sdk", env=os.environ)
    assert "airflow_provider_mail._polling.task_status" in loaded.modules
    assert within(loaded.modules, "airflow_provider_mail.warehouse", "airflow_provider_mail.webhook.inbox") == []
