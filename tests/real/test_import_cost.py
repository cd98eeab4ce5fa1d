"""Parsing a DAG file stays cheap, and the service side of the package works without Airflow."""

from __future__ import annotations

import importlib
import inspect
import os

import pytest
from pydantic import BaseModel

from benchmarks.parse_time import PARSED, Import, measure, modules_below
from tests.support.dags import AIRFLOW_VERSION

MAX_MODULES = 45
"""Of ours; one fewer on Airflow 3.3, which has imported the package already."""

MAX_OF_OTHERS = 9 if AIRFLOW_VERSION == (3, 1) else 7

# Each of these costs more than all of ours together, or is for another place than a DAG file.
HEAVY = ("aiohttp", "airflow.providers.common.sql", "fastapi", "msgspec", "pandas", "requests", "sqlalchemy", "uvicorn")

pytestmark = pytest.mark.ci


def within(loaded: Import, *packages: str) -> set[str]:
    return {name for name in loaded.modules if f"{name}.".startswith(tuple(f"{package}." for package in packages))}


def test_parsing_adds_few_modules_and_no_heavy_one() -> None:
    """Everything that DAG files import from us, imported over `airflow.sdk` in a fresh interpreter."""
    parsed = measure(modules_below(*PARSED), after="airflow.sdk", env=os.environ)
    ours = within(parsed, "airflow_provider_mail")
    assert {f"airflow_provider_mail.{name}" for name in ("operators.campaigns", "transfers.sql_to_mail")} <= ours
    assert len(ours) <= MAX_MODULES, "\n".join(sorted(ours))
    others = set(parsed.modules) - ours
    assert len(others) <= MAX_OF_OTHERS, "\n".join(sorted(others))
    assert within(parsed, *HEAVY, "mail_emulator", "airflow_provider_mail.webhook") == set()
    modules = [importlib.import_module(name) for name in modules_below("api")]
    classes = [kind for module in modules for kind in vars(module).values() if inspect.isclass(kind)]
    with_models = {kind.__module__ for kind in classes if issubclass(kind, BaseModel)} & {*modules_below("api")}
    assert "airflow_provider_mail.api.campaigns" in with_models
    assert with_models & ours == set()


@pytest.mark.parametrize(("modules", "after", "needed", "others"), [
    # The service side works without Airflow.
    (modules_below("api"), "json", "api.campaigns", ["airflow"]),
    # The triggerer reads an inbox of received events only where there is one.
    (["airflow_provider_mail._polling.pollers"], "airflow.sdk", "_polling.shared_poller",
     ["airflow_provider_mail.warehouse", "airflow_provider_mail.webhook.inbox"]),
    # Building the models of campaigns takes as long as importing 15,000 rows.
    ([f"airflow_provider_mail.{name}" for name in
      ("_audience.audience", "api.flows.import_contacts", "hold", "hooks.mail", "transfers.sql_to_mail")],
     "airflow.sdk", "api.contacts", ["airflow_provider_mail.api.campaigns"]),
])  # fmt: skip
def test_what_is_not_needed_is_not_imported(modules: list[str], after: str, needed: str, others: list[str]) -> None:
    loaded = measure(modules, after=after, env=os.environ)
    assert f"airflow_provider_mail.{needed}" in loaded.modules
    assert within(loaded, *others) == set()
