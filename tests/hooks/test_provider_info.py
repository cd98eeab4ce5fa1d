"""The provider information names every module with something for a DAG author, and nothing that is not there."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from importlib.metadata import metadata
from typing import Any

from airflow.sdk import BaseOperator
from airflow.triggers.base import BaseTrigger

import airflow_provider_mail
from airflow_provider_mail.get_provider_info import get_provider_info
from airflow_provider_mail.hooks.connection import FIELDS, UI_FIELD_BEHAVIOUR
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.version_compat import redact
from tests.support.dags import AIRFLOW_VERSION

INFO = get_provider_info()


def modules_with_something_public(package: str) -> set[str]:
    """Modules of a package that define an operator, sensor or trigger for users."""
    folder = importlib.import_module(f"airflow_provider_mail.{package}")
    names = [info.name for info in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}.")]
    return {
        module
        for module in names
        if not module.rpartition(".")[2].startswith("_")
        for name, kind in inspect.getmembers(importlib.import_module(module), inspect.isclass)
        # A module may offer what a private module beside it defines.
        if kind.__module__.rpartition(".")[0] == folder.__name__ and not name.startswith(("Base", "_"))
        if issubclass(kind, BaseOperator | BaseTrigger)
    }


def test_modules_are_listed() -> None:
    for package in ("operators", "sensors", "triggers"):
        (entry,) = INFO[package]
        assert entry["integration-name"] == "Mail"
        assert set(entry["python-modules"]) == modules_with_something_public(package)
    listed = [entry["python-module"] for entry in INFO["transfers"]]
    assert len(set(listed)) == len(listed)
    assert set(listed) == modules_with_something_public("transfers")


def test_what_is_listed_exists() -> None:
    def paths(value: Any) -> set[str]:
        if isinstance(value, str):
            return {value} if value.startswith(f"{airflow_provider_mail.__name__}.") else set()
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return {path for item in items for path in paths(item)}

    for path in paths(INFO):
        assert pkgutil.resolve_name(path), path


def test_connection_type_and_hook_agree() -> None:
    (entry,) = INFO["connection-types"]
    assert entry["connection-type"] == MailHook.conn_type == "mail"
    assert entry["hook-name"] == MailHook.hook_name
    assert entry["hook-class-name"] == f"{MailHook.__module__}.{MailHook.__name__}"
    assert MailHook.conn_name_attr in inspect.signature(MailHook.__init__).parameters


def test_the_fields_of_the_connection() -> None:
    """Airflow masks the secret ones by their names, and both forms have the same standard fields."""
    secrets = {name: "planted" for name, field in FIELDS.items() if field.secret}
    assert redact(secrets) == dict.fromkeys(secrets, "***")
    assert MailHook.get_ui_field_behaviour() == {
        name.replace("-", "_"): UI_FIELD_BEHAVIOUR[name] for name in ("hidden-fields", "relabeling", "placeholders")
    }


def test_airflow_finds_the_documentation() -> None:
    """Airflow shows the address in its list of providers, from 3.1 on; it takes it from the package's metadata."""
    from airflow.providers_manager import ProvidersManager

    shown = ProvidersManager().providers["airflow-provider-mail"].data.get("documentation-url", "").strip()
    declared = metadata("airflow-provider-mail").get_all("Project-URL", [])
    assert f"Documentation, {shown}" in declared or AIRFLOW_VERSION < (3, 1)
