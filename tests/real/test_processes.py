"""What can only be seen in another process: after a fork, in a fresh interpreter, in Airflow's and our own commands."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.lists import GetLists
from airflow_provider_mail.get_provider_info import get_provider_info
from airflow_provider_mail.hooks.connection import FIELDS
from benchmarks.parse_time import measure
from mail_emulator import Emulator
from mail_emulator.client import EmulatorClient
from tests.support.dags import AIRFLOW_VERSION
from tests.support.env import ROOT, clean_environment
from tests.support.processes import FORK, PATIENCE


def run(*command: str | Path, folder: Path = ROOT, **environment: str) -> str:
    """What a process prints."""
    options: dict[str, Any] = {"capture_output": True, "text": True, "check": False, "cwd": folder}
    done = subprocess.run(command, env={**os.environ, **environment}, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def python(code: str, *arguments: str, **options: Any) -> list[str]:
    """The lines that a script prints."""
    return run(sys.executable, "-c", code, *arguments, **options).splitlines()


def connection_to(emulator: Emulator) -> dict[str, str]:
    fields = {"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key}
    return {"AIRFLOW_CONN_MAIL_DEFAULT": json.dumps(fields)}


# --- after a fork ---


def test_a_fork_shares_no_connection(emulator: Emulator) -> None:
    """Parent and child use the same client at once; each connection is used by one of them alone."""
    client = MailClient(ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key))
    client.send(GetLists())
    process = FORK.Process(target=read_in_child, args=(client,), daemon=True)
    process.start()
    for number in range(50):
        client.send(GetLists(search=f"parent-{number}"))
    process.join(PATIENCE)
    assert process.exitcode == 0
    used: dict[Any, set[str]] = {}
    for entry in emulator.journal.entries():
        used.setdefault(entry["connection"], set()).add(str(entry["body"].get("search", "parent-")).partition("-")[0])
    assert sorted(map(sorted, used.values())) == [["child"], ["parent"]]
    client.close()


def read_in_child(client: MailClient) -> None:
    for number in range(50):
        client.send(GetLists(search=f"child-{number}"))


def test_a_fork_while_another_thread_holds_the_throttle(emulator: Emulator) -> None:
    client = MailClient(ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key))
    with client.throttle._lock:
        process = FORK.Process(target=client.send, args=(GetLists(),), daemon=True)
        process.start()
        process.join(PATIENCE)
    assert process.exitcode == 0
    client.close()


# --- in a fresh interpreter ---

FRESH_TRIGGERER = """
import asyncio, sys, threading
from airflow_provider_mail.triggers import campaigns

class Noting:
    imported = {}

    def find_spec(self, name, path, target=None):
        if name.startswith("airflow_provider_mail."):
            self.imported[name] = threading.current_thread() is threading.main_thread()

async def wait():
    trigger = getattr(campaigns, sys.argv[1])(mail_conn_id="mail_default", mail_name="spring", poke_interval=0.1)
    async for event in trigger.run():
        print("spring" in str(event.payload))
        break

sys.meta_path.insert(0, Noting())
asyncio.run(wait())
print(sorted(name for name, in_loop in Noting.imported.items() if in_loop))
print(Noting.imported["airflow_provider_mail.api.client"])
"""
DEFAULTS = """
from airflow_provider_mail.sensors import campaigns, senders, stats
print(campaigns.MailCampaignSensor(task_id="a", mail_name="b").deferrable)
print(senders.MailSenderSensor(task_id="a", sender_email="example.com").deferrable)
print(stats.MailStatsSettledSensor(task_id="a", mail_name="b").deferrable)
"""


def test_importing_the_package_loads_nothing_else() -> None:
    loaded = measure(["airflow_provider_mail.api"], after="json", env=os.environ).modules
    others = ("airflow_provider_mail.", "httpx", "pydantic")
    assert [name for name in loaded if name.startswith(others)] == ["airflow_provider_mail.api"]


@pytest.mark.parametrize("kind", ["MailCampaignTrigger", "MailCampaignEventTrigger"])
def test_the_first_wait_of_a_triggerer_imports_beside_the_loop(
    emulator: Emulator, airflow_home: Path, kind: str
) -> None:
    emulator.add_campaign("spring")
    assert python(FRESH_TRIGGERER, kind, **connection_to(emulator))[-3:] == ["True", "[]", "False"]


@pytest.mark.parametrize("default", ["True", "False"])
def test_the_default_of_deferrable_is_airflow_s(default: str) -> None:
    """The default of an argument is read when the class is made."""
    assert python(DEFAULTS, AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE=default)[-3:] == [default] * 3


DECLARED = tomllib.loads((ROOT / "emulator" / "pyproject.toml").read_text())["project"]["dependencies"]
# Jinja brings markupsafe along.
ALLOWED = [*(re.split(r"\W", one)[0] for one in DECLARED), "markupsafe", "mail_emulator"]
ALONE = f"""
import importlib.abc, sys, urllib.request

class OnlyAllowed(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in {ALLOWED!r}:
            raise ModuleNotFoundError("not declared: " + name)

# First on the path, before an editable installation of this project.
sys.path.insert(0, sys.argv[1])
sys.meta_path.insert(0, OnlyAllowed())
from mail_emulator import Emulator, __main__, client
assert __main__.__file__.startswith(sys.argv[1]), __main__.__file__
with Emulator(forward_smtp="127.0.0.1:9") as emulator:
    __main__.add_demo_data(emulator)
    for page in ("/", "/campaigns", "/inbox/lists", "/inbox/requests", "/inbox/faults", "/inbox/static/inbox.css"):
        urllib.request.build_opener(urllib.request.ProxyHandler({{}})).open(emulator.base_url + page).read()
    assert not emulator.crashes(), emulator.crashes()
print("served")
"""


def test_the_emulator_runs_with_what_it_declares(tmp_path: Path) -> None:
    """Without Airflow and the provider."""
    shutil.copytree(ROOT / "emulator" / "mail_emulator", tmp_path / "mail_emulator")
    assert python(ALONE, str(tmp_path), folder=tmp_path) == ["served"]


# --- Airflow, and commands ---


@pytest.mark.ci
def test_what_airflow_knows_of_the_hook_and_its_form() -> None:
    """The form as the API server hands it to the browser; nothing warns."""
    points = entry_points(group="apache_airflow_provider")
    (point,) = (point for point in points if point.dist and point.dist.name == "airflow-provider-mail")
    assert point.load() is get_provider_info
    known = json.loads(run(sys.executable, "-m", "tests.real.what_airflow_knows").splitlines()[-1])
    assert known["said"] == []
    assert known["hook"] == {
        "hook_class_name": "airflow_provider_mail.hooks.mail.MailHook", "hook_name": "Mail",
        "connection_id_attribute_name": "mail_conn_id", "package_name": "airflow-provider-mail",
        "connection_type": "mail", "connection_testable": True,
    }  # fmt: skip
    fields, standard = known["form"]["extra_fields"], known["form"]["standard_fields"]
    if AIRFLOW_VERSION == (3, 0):
        assert (fields, standard) == (None, None), "our names and fields come only with the FAB provider"
        return
    assert (standard["host"]["title"], standard["host"]["placeholder"]) == ("Base URL", "https://api.example.com")
    assert standard["password"]["title"] == "API key"
    assert [standard[name]["hidden"] for name in ("port", "url_schema", "login")] == [False, True, True]
    in_form = {name: field for name, field in FIELDS.items() if field.label}
    assert list(fields) == list(in_form)
    from_metadata = AIRFLOW_VERSION >= (3, 2)
    for name, field in in_form.items():
        shown, schema = fields[name], fields[name]["schema"]
        assert (schema["title"], shown["description"]) == (field.label, field.description)
        # The older form knows no numbers with a fraction.
        kind = "string" if field.json_type == "number" and not from_metadata else field.json_type
        assert schema["type"] == [kind, "null"], name
        assert (schema.get("format") == "password") == field.secret, name
        assert shown["value"] is None, "a default would be stored with every connection"
        for rule in ("enum", "minimum", "maximum") if from_metadata else ("enum",):
            assert schema.get(rule) == field.schema.get(rule), name


@pytest.mark.skipif(AIRFLOW_VERSION < (3, 2), reason="Airflow has no commands of providers before 3.2")
def test_airflow_has_the_commands(emulator: Emulator, airflow_home: Path) -> None:
    program = Path(sys.executable).with_name("airflow")
    assert "accepts the password (API key)" in run(program, "mail", "check", **connection_to(emulator))


def test_the_emulator_runs_until_it_is_ended() -> None:
    command = [sys.executable, "-m", "airflow_provider_mail", "emulator", "--port", "0", "--api-key", "key-4711"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        try:
            assert EmulatorClient(address).api_key == "key-4711"
        finally:
            process.terminate()
            process.communicate()
    assert process.returncode == 0


@pytest.mark.parametrize(("display", "opened"), [(":0", ["http://a.example", "http://b.example"]), ("", [])])
@pytest.mark.skipif(sys.platform == "darwin", reason="has a display always")
def test_the_demo_opens_pages_where_there_is_a_display(tmp_path: Path, display: str, opened: list[str]) -> None:
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {seen}\n')
    browser.chmod(0o700)
    seen.touch()
    open_both = "from example_dags.demo.__main__ import open_in_browser as o; o('http://a.example', 'http://b.example')"
    python(open_both, **clean_environment(), DISPLAY=display, WAYLAND_DISPLAY="", BROWSER=f"{browser} %s")
    assert seen.read_text().splitlines() == opened
