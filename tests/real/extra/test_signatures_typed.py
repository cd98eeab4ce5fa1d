"""What a DAG's author sees of our types, in mypy and in pyright: right arguments pass, wrong ones are errors."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseOperator, BaseSensorOperator

from airflow_provider_mail._task.airflow_arguments import SensorArguments, TaskArguments
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.notifications.mail import MailNotifier
from airflow_provider_mail.triggers.campaigns import MailCampaignEventTrigger, MailCampaignTrigger
from airflow_provider_mail.triggers.events import MailInboxTrigger
from airflow_provider_mail.triggers.senders import MailSenderTrigger
from airflow_provider_mail.triggers.stats import MailStatsSettledTrigger
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.test_operators import NEEDED

# The arguments that a class cannot do without.
CLASSES: dict[type[Any], dict[str, Any]] = {
    **{kind: {"task_id": "a", **needed} for kind, needed in NEEDED.items()},
    MailHook: {},
    MailNotifier: {"to": "ada@example.com"},
    MailCampaignTrigger: {"mail_conn_id": "mail_default", "mail_name": "a"},
    MailCampaignEventTrigger: {},
    MailInboxTrigger: {"inbox_conn_id": "warehouse"},
    MailSenderTrigger: {"mail_conn_id": "mail_default", "sender_email": "a.example.com"},
    MailStatsSettledTrigger: {"mail_conn_id": "mail_default", "mail_name": "a", "start_day": "2026-03-01"},
}
# Airflow hands on what these are given, on some versions to nobody.
ANY_NAME: set[type[Any]] = {MailHook, MailNotifier}

CALLS = tuple(f"{kind.__name__}(" for kind in CLASSES)

PREAMBLE = """
from airflow.sdk import XComArg, task

@task
def value() -> str:
    return "ada@example.com"

XCOM: XComArg = value()
"""

DAG = """
from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, task

from airflow_provider_mail.assets import campaign_stats_asset, list_asset
from airflow_provider_mail.notifications.mail import MailNotifier, send_mail_notification
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.operators.transactional import MailSendBatchOperator, MailSendOperator
from airflow_provider_mail.sensors.stats import MailStatsSettledSensor
from airflow_provider_mail.transfers.key_ranges import key_ranges
from airflow_provider_mail.transfers.mail_to_sql import MailCampaignStatsToSqlOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from airflow_provider_mail.triggers.campaigns import MailCampaignEventTrigger
from airflow_provider_mail.utils.emailer import send_email


@task
def rows() -> list[dict[str, Any]]:
    return [{"to": "ada@example.com"}]


@task
def text() -> str:
    return "ada@example.com"


def streamed() -> Iterator[dict[str, Any]]:
    yield {"to": "ada@example.com"}


class OwnOperator(MailSendOperator):
    def __init__(self, *, region: str, **kwargs: Any) -> None:
        super().__init__(to=f"{region}@example.com", sender_mail="shop@example.com", **kwargs)


sent = Asset("sent", watchers=[AssetWatcher(name="sent", trigger=MailCampaignEventTrigger(lookback=timedelta(days=1)))])

with DAG(
    "typed",
    schedule=[sent],
    on_failure_callback=MailNotifier(to=["ada@example.com"], subject="{{ dag.dag_id }} failed"),
    on_success_callback=[send_mail_notification(to="ada@example.com")],
):
    for contacts in (rows(), rows().map(dict), [{"email": "ada@example.com"}], streamed):
        MailImportContactsOperator(task_id="import", contacts=contacts)
    for messages in (rows(), [{"to": "ada@example.com"}], streamed):
        MailSendBatchOperator(task_id="batch", sender_mail="shop@example.com", messages=messages, mail_params=rows())
    OwnOperator(task_id="own", region="north", retries=2, subject="{{ ds }}")
    SqlToMailContactsOperator.partial(task_id="mapped", sql_conn_id="x").expand_kwargs(
        task(key_ranges)(sql_conn_id="x", sql="x", key="id", ranges=8)
    )
    campaign = MailCreateCampaignOperator(
        task_id="campaign",
        sender_mail="news@example.com",
        subject="{{ ds }}",
        send_list_names=["friends", text()],
        send_date=datetime(2026, 3, 1, tzinfo=UTC),
        execution_timeout=timedelta(hours=1),
        trigger_rule="all_success",
        on_failure_callback=MailNotifier(to="ada@example.com"),
        outlets=[list_asset("friends")],
    )
    final = MailStatsSettledSensor(
        task_id="final", mail_name=text(), max_age=timedelta(days=7), poke_interval=60, mode="reschedule"
    )
    campaign >> final >> MailCampaignStatsToSqlOperator(
        task_id="load", sql_conn_id="x", mail_name="{{ params.name }}", inlets=[campaign_stats_asset()]
    )
send_email(["ada@example.com"], "subject", "<p></p>", cc="bob@example.com", raise_errors=True)
"""


def call(kind: type[Any], *given: str, without: str = "") -> str:
    """A line that makes an object of the class."""
    needed = [f"{name}={value!r}" for name, value in CLASSES[kind].items() if name != without]
    replaced = {argument.partition("=")[0] for argument in given}
    kept = [argument for argument in needed if argument.partition("=")[0] not in replaced]
    return f"{kind.__name__}({', '.join([*kept, *given])})"


def arguments(kind: type[Any]) -> dict[str, inspect.Parameter]:
    """The arguments that the class itself declares."""
    parameters = inspect.signature(kind).parameters
    return {name: each for name, each in parameters.items() if each.kind is not inspect.Parameter.VAR_KEYWORD}


def right(kind: type[Any]) -> Iterator[str]:
    """Lines without an error."""
    yield call(kind)
    if hasattr(kind, "execute"):
        yield call(kind, "retries=3", 'pool="mail"', 'trigger_rule="all_done"')
        for name in kind.template_fields:
            yield call(kind, f"{name}=XCOM")
            yield call(kind, f'{name}="{{{{ params.{name} }}}}"')


def wrong(kind: type[Any]) -> Iterator[str]:
    """Lines with one error each."""
    if kind not in ANY_NAME:
        yield call(kind, "no_such_argument=1")
    for name in arguments(kind):
        yield call(kind, f"{name}=object()")
    for name in CLASSES[kind]:
        # Of some with a default one is needed, which no type says.
        if name not in arguments(kind) or arguments(kind)[name].default is inspect.Parameter.empty:
            yield call(kind, without=name)


def imports() -> str:
    """The lines that import the classes from where a user does."""
    public = {kind: kind.__module__ for kind in CLASSES}
    for kind, module in public.items():
        if module.rpartition(".")[2].startswith("_"):
            public[kind] = "airflow_provider_mail.transfers.mail_to_sql"
    return "\n".join(f"from {module} import {kind.__name__}" for kind, module in public.items())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the three files to check."""
    folder = tmp_path_factory.mktemp("typed")
    (folder / "typed_dag.py").write_text(DAG)
    for name, lines in (("right.py", right), ("wrong.py", wrong)):
        calls = [line for kind in CLASSES for line in lines(kind)]
        (folder / name).write_text("\n".join([imports(), PREAMBLE, *calls, ""]))
    return folder


def expected(folder: Path) -> dict[int, str]:
    """The lines of ``wrong.py`` that must be errors, by number."""
    lines = (folder / "wrong.py").read_text().splitlines()
    return {number: line for number, line in enumerate(lines, 1) if line.startswith(CALLS)}


def run(command: Sequence[str], folder: Path) -> str:
    # The package is found where it is installed, as by a user: without the tree, whose own errors are not the point.
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def compare(folder: Path, errors: dict[tuple[str, int], str]) -> None:
    """Every error is one that is expected, and every one that is expected is there."""
    lines = expected(folder)
    surprising = {where: message for where, message in errors.items() if where[0] != "wrong.py"}
    assert surprising == {}
    missed = [line for number, line in lines.items() if ("wrong.py", number) not in errors]
    assert missed == []


def test_mypy(files: Path, pytestconfig: pytest.Config) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    # A DAG's author has neither our settings nor our plugins.
    options = ["--strict", "--config-file", os.devnull, "--follow-imports=silent"]
    if (cache := getattr(pytestconfig, "cache", None)) is not None:  # what is imported was checked by an earlier run
        options.append(f"--cache-dir={cache.mkdir('mypy-signatures')}")
    out = run([sys.executable, "-m", "mypy", *options, "typed_dag.py", "right.py", "wrong.py"], files)
    found = re.findall(r"^(.+?):(\d+): error: (.+)$", out, re.MULTILINE)
    compare(files, {(name, int(line)): message for name, line, message in found})


def test_pyright(files: Path) -> None:
    pytest.importorskip("basedpyright", reason="basedpyright is not installed")
    (files / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    out = run([sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable], files)
    found = [each for each in json.loads(out)["generalDiagnostics"] if each["severity"] == "error"]
    # Pyright counts lines from 0.
    places = [(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in found]
    compare(files, dict(zip(places, (each["message"] for each in found), strict=True)))


def test_airflow_s_own_arguments_are_those_of_the_installed_one() -> None:
    """A new one of a later Airflow has to be added, or type checkers reject it."""
    sensor, operator = set(SensorArguments.__annotations__), set(TaskArguments.__annotations__)
    task = set(arguments(BaseOperator))
    poke = set(arguments(BaseSensorOperator)) - {"poke_interval", "timeout"}
    assert task <= operator
    assert poke | task <= sensor
    if AIRFLOW_VERSION >= (3, 3):
        assert operator - task == set()
        assert sensor - operator - poke == set()
