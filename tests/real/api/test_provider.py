"""What an installed Airflow knows of this provider: its commands show it, its form has our fields, nothing warns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.get_provider_info import get_provider_info
from airflow_provider_mail.hooks.connection import FIELDS
from tests.support.dags import AIRFLOW_VERSION

pytestmark = pytest.mark.ci

PACKAGE = "airflow-provider-mail"
FORM_FROM_METADATA = AIRFLOW_VERSION >= (3, 2)


def run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *arguments], env=dict(os.environ), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    """Airflow finds providers by their entry points, which only an installation has."""
    try:
        version(PACKAGE)
    except PackageNotFoundError:
        pytest.fail(f"{PACKAGE} is not installed in {sys.prefix}: `make test` does that, or `pip install -e .`")


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    """What Airflow knows, and what it said while finding out, from a process that has seen nothing else."""
    return json.loads(run([str(Path(__file__).with_name("what_airflow_knows.py"))]).stdout.splitlines()[-1])


COMMANDS = ("list", "hooks", "widgets", "behaviours", f"get {PACKAGE} --full")

# One process for all: starting Airflow takes seconds, a command nearly nothing.
RUN_COMMANDS = """
import sys
from airflow.cli.cli_parser import get_parser

for command in sys.argv[1:]:
    print(">>>", command)
    arguments = get_parser().parse_args(["providers", *command.split(), "-o", "json"])
    arguments.func(arguments)
"""


@pytest.fixture(scope="module")
def printed() -> dict[str, list[dict[str, Any]]]:
    """The rows that each of `airflow providers ... -o json` prints, when nothing about us goes to stderr."""
    done = run(["-c", RUN_COMMANDS, *COMMANDS])
    assert "mail" not in done.stderr.lower()
    rows: dict[str, list[dict[str, Any]]] = {}
    for line in done.stdout.splitlines():
        if line.startswith(">>> "):
            rows[command := line.removeprefix(">>> ")] = []
        elif line.startswith("[{"):
            rows[command] = json.loads(line)
    return rows


def test_the_hook_is_known_and_airflow_warns_of_nothing(known: dict[str, Any]) -> None:
    (point,) = (point for point in entry_points(group="apache_airflow_provider") if point.dist.name == PACKAGE)
    assert point.load() is get_provider_info
    assert known["said"] == []
    assert known["hook"] == {
        "hook_class_name": "airflow_provider_mail.hooks.mail.MailHook",
        "connection_id_attribute_name": "mail_conn_id",
        "package_name": PACKAGE,
        "hook_name": "Mail",
        "connection_type": "mail",
        "connection_testable": True,
    }


def test_the_form_has_our_fields(known: dict[str, Any]) -> None:
    """As the API server hands it to the browser."""
    form = known["form"]
    if AIRFLOW_VERSION == (3, 0):
        assert form["extra_fields"] is None, "fields come only with the FAB provider"
        return
    assert {name: (shown["schema"]["title"], shown["description"]) for name, shown in form["extra_fields"].items()} == {
        name: (field.label, field.description) for name, field in FIELDS.items()
    }
    assert list(form["extra_fields"]) == list(FIELDS)
    for name, field in FIELDS.items():
        schema = form["extra_fields"][name]["schema"]
        # The older form knows no numbers with a fraction.
        kind = "string" if field.kind == "number" and not FORM_FROM_METADATA else field.kind
        assert schema["type"] == [kind, "null"], name
        assert (schema.get("format") == "password") == field.secret, name
        assert schema.get("enum") == field.schema.get("enum"), name
        assert form["extra_fields"][name]["value"] is None, "a default would be stored with every connection"
        if FORM_FROM_METADATA:
            assert schema.get("minimum") == field.schema.get("minimum"), name
            assert schema.get("maximum") == field.schema.get("maximum"), name


def test_the_form_calls_the_standard_fields_by_our_names(known: dict[str, Any]) -> None:
    standard = known["form"]["standard_fields"]
    if AIRFLOW_VERSION == (3, 0):
        assert standard is None, "our names come only with the FAB provider"
        return
    assert (standard["host"]["title"], standard["host"]["placeholder"]) == ("Base URL", "https://api.example.com")
    assert standard["password"]["title"] == "API key"
    assert not standard["port"]["hidden"]
    assert standard["url_schema"]["hidden"]
    assert standard["login"]["hidden"]


def test_the_commands_show_the_provider(printed: dict[str, Any]) -> None:
    (row,) = (row for row in printed["list"] if row["package_name"] == PACKAGE)
    assert row["version"] == version(PACKAGE)
    assert row["description"] == get_provider_info()["description"].rstrip(".")
    (row,) = printed[f"get {PACKAGE} --full"]
    assert (row["name"], row["package-name"]) == ("Mail", PACKAGE)
    assert row["connection-types"][0]["connection-type"] == "mail"
    (row,) = (row for row in printed["hooks"] if row["connection_type"] == "mail")
    assert row == {
        "connection_type": "mail",
        "class": "airflow_provider_mail.hooks.mail.MailHook",
        "conn_id_attribute_name": "mail_conn_id",
        "package_name": PACKAGE,
        "hook_name": "Mail",
    }
    # Before 3.2 the commands show what the FAB provider would.
    fields = [row["connection_parameter_name"] for row in printed["widgets"] if row["package_name"] == PACKAGE]
    assert set(fields) == ({f"extra__mail__{name}" for name in FIELDS} if FORM_FROM_METADATA else set())
    assert len([row for row in printed["behaviours"] if row["field_behaviours"] == "mail"]) == FORM_FROM_METADATA


def test_the_whole_command() -> None:
    done = run(["-m", "airflow", "providers", "get", PACKAGE, "-o", "json"])
    assert json.loads(done.stdout.splitlines()[-1]) == [{"Provider": PACKAGE, "Version": version(PACKAGE)}]
    assert "mail" not in done.stderr.lower()
