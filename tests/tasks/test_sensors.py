"""What all sensors do alike, whatever they wait for and however."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.sensors import campaigns, senders, stats
from airflow_provider_mail.sensors._base import BaseWaitSensor
from tests.support.dags import AIRFLOW_VERSION
from tests.support.processes import wait_until
from tests.tasks.conftest import TASK, Connect, Run
from tests.tasks.sensing import WAYS, every_way, repeating
from tests.tasks.waiting import answered, as_soon_as

SENSORS: dict[type[BaseWaitSensor], dict[str, Any]] = {
    campaigns.MailCampaignSensor: {"mail_name": "spring"},
    stats.MailStatsSettledSensor: {"mail_name": "spring", "min_interval": 0.05, "stable_checks": 5, "max_age": 10**9},
    senders.MailSenderSensor: {"sender_email": "mail.example.com"},
}
every_sensor = pytest.mark.parametrize("kind", SENSORS)


def wait(kind: type[BaseWaitSensor], way: str, **arguments: Any) -> BaseWaitSensor:
    given = {"task_id": TASK, "poke_interval": 0.3, "timeout": 60, "retries": 2}
    return kind(**given | SENSORS[kind] | WAYS[way] | arguments)


def good(emulator: Emulator) -> None:
    """What all of them wait for."""
    emulator.add_campaign("spring")
    emulator.add_sender("mail.example.com")


@every_sensor
@every_way
def test_a_refused_key_fails_at_once(
    run: Run, emulator: Emulator, connect: Connect, kind: type[BaseWaitSensor], way: str
) -> None:
    connect("mail_team", password="wrong")

    done = run(lambda: wait(kind, way, mail_conn_id="mail_team"))

    assert (done.state, done.tries) == ("failed", 1)
    assert "connection 'mail_team'" in done.log
    assert "rejected the credentials" in done.log
    assert emulator.journal.count() == 1


@every_sensor
@repeating
def test_a_key_may_be_exchanged_meanwhile(
    run: Run, emulator: Emulator, connect: Connect, kind: type[BaseWaitSensor], way: str
) -> None:
    if way == "reschedule" and kind is stats.MailStatsSettledSensor and AIRFLOW_VERSION < (3, 3):
        pytest.skip("stores no observations between polls")

    def exchange() -> None:
        emulator.settings.api_key = "the new key"
        wait_until(lambda: emulator.journal.entries()[-1]["auth"] == "invalid", what="refused")
        connect(password="the new key")
        good(emulator)

    with as_soon_as(lambda: answered(emulator) >= 2, exchange):
        done = run(lambda: wait(kind, way))

    assert (done.state, done.tries) == ("success", 1)
    assert {entry["auth"] for entry in emulator.journal.entries()} == {"api_key", "invalid"}


@every_sensor
@every_way
def test_nothing_to_wait_for_in_sandbox_mode(
    run: Run, emulator: Emulator, connect: Connect, kind: type[BaseWaitSensor], way: str
) -> None:
    connect(sandbox=True)

    done = run(lambda: wait(kind, way))

    assert (done.state, done.returned) == ("success", {})
    absent = "sender 'mail.example.com'" if kind.identity == "sender_email" else "campaign 'spring'"
    assert f"Sandbox: there is no {absent}" in done.log
    assert emulator.journal.count() == 1


@every_sensor
def test_what_has_no_name_is_not_looked_for(run: Run, emulator: Emulator, kind: type[BaseWaitSensor]) -> None:
    done = run(lambda: wait(kind, "deferrable", **{kind.identity: "{{ '' }}"}))

    assert (done.state, done.tries) == ("failed", 1)
    assert f"{kind.identity}: is empty" in done.log
    assert emulator.journal.count() == 0


def test_deferrable_is_airflow_s_default() -> None:
    code = """
from airflow_provider_mail.sensors import campaigns, senders, stats
print(campaigns.MailCampaignSensor(task_id="a", mail_name="b").deferrable)
print(senders.MailSenderSensor(task_id="a", sender_email="example.com").deferrable)
print(stats.MailStatsSettledSensor(task_id="a", mail_name="b").deferrable)
"""
    for default in ("True", "False"):
        # In a new process: an argument's default is read when the class is made.
        environment = {**os.environ, "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE": default}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.split() == [default] * 3
