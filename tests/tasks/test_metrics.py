"""The metrics: what a StatsD server receives of tasks, through Airflow's own client."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import ObjectStoragePath, chain

from airflow_provider_mail.api.campaigns import GetCampaigns
from airflow_provider_mail.arguments import Rejects
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.lineage import Folder, MailLineage
from airflow_provider_mail.version_compat import Stats
from mail_emulator import Emulator
from tests.support.operator_parts import forget_metrics
from tests.support.statsd import DECLARED, StatsdServer, statsd_server
from tests.tasks.conftest import Connect, Run, SqlDatabase
from tests.tasks.everything import OPERATORS

REQUEST = ("mail_conn_id", "operation")


def use(monkeypatch: pytest.MonkeyPatch, backend: Any) -> None:
    """Let Airflow send its metrics in this process to `backend`."""
    forget_metrics()
    holder = importlib.import_module(Stats.incr.__module__) if "incr" in vars(Stats) else Stats
    name = "instance" if holder is Stats else "_backend"
    monkeypatch.setattr(holder, name, backend)


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch) -> Iterator[StatsdServer]:
    """A StatsD server that Airflow is configured to send to, with tags."""
    with statsd_server() as server:
        for name, value in server.settings.items():
            monkeypatch.setenv(name, value)
        try:
            logger = importlib.import_module("airflow.sdk.observability.metrics.statsd_logger")
        except ImportError:
            logger = importlib.import_module("airflow.metrics.statsd_logger")
        make = logger.get_statsd_logger
        use(monkeypatch, make(*([None] if "cls" in make.__code__.co_varnames[:1] else [])))
        yield server
        forget_metrics()


def test_what_tasks_do_is_counted(run: Run, emulator: Emulator, warehouse: SqlDatabase, statsd: StatsdServer) -> None:
    emulator.change_settings(sending_seconds=600.0)
    rows = [{"email": "ada@example.com"}, {"email": "bob@example.com"}, {"email": "no address"}]
    campaign = {"mail_name": "spring", "sender_mail": "news@example.com", "subject": "Hi", "content": "<p>Hi</p>"}
    waits = {"wait_for_completion": True, "deferrable": True, "poke_interval": 60}

    def tasks() -> None:
        chain(
            OPERATORS["MailImportContactsOperator"](
                task_id="import", contacts=rows, list_name="news", chunk_size=1, rejects=Rejects(max_fraction=0.5)
            ),
            OPERATORS["MailCreateCampaignOperator"](task_id="send", send_list_names=["news"], **campaign, **waits),
            OPERATORS["MailContactsToSqlOperator"](task_id="load", sql_conn_id=warehouse.conn_id, list_name="news"),
            OPERATORS["MailCampaignSensor"](task_id="too_late", mail_name="autumn", poke_interval=60, timeout=3600),
        )

    dag_id = run(tasks).result.dag_id

    found = statsd.received()
    requests = {key: count for key, count in found.items() if DECLARED[key[0]].tags == REQUEST}
    assert {key: count for key, count in found.items() if key not in requests} == {
        ("mail.import.rows_read", dag_id, "import"): 3,
        ("mail.import.rows_accepted", dag_id, "import"): 2,
        ("mail.import.rows_rejected", dag_id, "import"): 1,
        ("mail.load.records", dag_id, "load"): 2,
        ("mail.waits", dag_id, "send", "complete"): 1,
        ("mail.waits", dag_id, "too_late", "timeout"): 1,
        ("mail.waits_failed", dag_id, "too_late", "timeout"): 1,
    }
    # Of tasks and of the triggerer.
    entries = [entry["operation"].strip("/").replace("/", ".") for entry in emulator.journal.entries()]
    assert requests == {("mail.requests", "mail_default", path): count for path, count in Counter(entries).items()}


def test_repeated_and_throttled_requests_are_counted(
    connect: Connect, emulator: Emulator, statsd: StatsdServer
) -> None:
    connect("slow: a,b", requests_per_second=20)
    emulator.faults.add("too_many_requests", "campaign/mail/get", count=1, retry_after=30)

    hook = MailHook("slow: a,b")
    for _ in range(3):
        hook.send(GetCampaigns())

    found = statsd.received()
    tags = ("slow__a_b", "v5.campaign.mail.get")
    throttled = found.pop(("mail.throttled_ms", *tags))
    assert found == {("mail.requests", *tags): 4, ("mail.retries", *tags): 1}
    assert throttled >= 30_000


def test_without_a_switch_nothing_is_emitted(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first metric of a process reads a large file of Airflow's."""
    emitted: list[str] = []
    loads = MailLineage()
    loads.mail_conn_id = "mail_default"
    use(monkeypatch, SimpleNamespace(incr=lambda name, *_, **__: emitted.append(name)))
    for is_on in (False, True):
        monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", str(is_on))
        forget_metrics()
        MailHook().send(GetCampaigns())
        loads.moved("campaigns", Folder(ObjectStoragePath(f"file:///lake/{is_on}")), rows=1)
        assert emitted == ["mail.requests", "mail.load.records"] * is_on
    forget_metrics()


def test_metrics_that_cannot_be_sent_fail_nothing(
    emulator: Emulator, statsd: StatsdServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ValueError("no such server")

    use(monkeypatch, SimpleNamespace(incr=fails))
    for _ in range(2):
        MailHook().send(GetCampaigns())
    assert caplog.text.count("Metrics could not be sent: ValueError: no such server") == 1
