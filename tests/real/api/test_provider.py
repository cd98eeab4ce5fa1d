"""What an installed Airflow knows of this provider: its commands show it, its form has our fields, nothing warns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from airflow_provider_mail.get_provider_info import get_provider_info
from airflow_provider_mail.hooks.connection import FIELDS
from tests.support.dags import AIRFLOW_VERSION

pytestmark = pytest.mark.ci

PACKAGE = "airflow-provider-mail"
FORM_FROM_METADATA = AIRFLOW_VERSION >= (3, 2)
HOOK = {
    "hook_class_name": "airflow_provider_mail.hooks.mail.MailHook",
    "connection_id_attribute_name": "mail_conn_id",
    "package_name": PACKAGE,
    "hook_name": "Mail",
    "connection_type": "mail",
}


def run(arguments: Sequence[str]) -> str:
    """What a process of its own prints."""
    done = subprocess.run([sys.executable, *arguments], env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    assert "mail" not in done.stderr.lower()
    return done.stdout


def test_what_airflow_knows_of_the_hook_and_its_form() -> None:
    """The form as the API server hands it to the browser."""
    (point,) = (point for point in entry_points(group="apache_airflow_provider") if point.dist.name == PACKAGE)
    assert point.load() is get_provider_info
    known = json.loads(run([str(Path(__file__).with_name("what_airflow_knows.py"))]).splitlines()[-1])
    assert known["said"] == []
    assert known["hook"] == {**HOOK, "connection_testable": True}
    fields, standard = known["form"]["extra_fields"], known["form"]["standard_fields"]
    if AIRFLOW_VERSION == (3, 0):
        assert (fields, standard) == (None, None), "our names and fields come only with the FAB provider"
        return
    assert (standard["host"]["title"], standard["host"]["placeholder"]) == ("Base URL", "https://api.example.com")
    assert standard["password"]["title"] == "API key"
    assert [standard[name]["hidden"] for name in ("port", "url_schema", "login")] == [False, True, True]
    assert list(fields) == list(FIELDS)
    for name, field in FIELDS.items():
        shown, schema = fields[name], fields[name]["schema"]
        assert (schema["title"], shown["description"]) == (field.label, field.description)
        # The older form knows no numbers with a fraction.
        kind = "string" if field.json_type == "number" and not FORM_FROM_METADATA else field.json_type
        assert schema["type"] == [kind, "null"], name
        assert (schema.get("format") == "password") == field.secret, name
        assert shown["value"] is None, "a default would be stored with every connection"
        for rule in ("enum", "minimum", "maximum") if FORM_FROM_METADATA else ("enum",):
            assert schema.get(rule) == field.schema.get(rule), name


# One process for all: starting Airflow takes seconds, a command nearly nothing.
