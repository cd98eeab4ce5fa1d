"""What can only be seen in a process that has imported nothing yet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mail_emulator import Emulator

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


def output(code: str, *arguments: str, **environment: str) -> list[str]:
    command = [sys.executable, "-c", code, *arguments]
    environment = {**os.environ, **environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("kind", ["MailCampaignTrigger", "MailCampaignEventTrigger"])
def test_the_first_wait_of_a_triggerer_imports_beside_the_loop(
    emulator: Emulator, airflow_home: Path, kind: str
) -> None:
    emulator.add_campaign("spring")
    connection = json.dumps({"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key})
    assert output(FRESH_TRIGGERER, kind, AIRFLOW_CONN_MAIL_DEFAULT=connection)[-3:] == ["True", "[]", "False"]


@pytest.mark.parametrize("default", ["True", "False"])
def test_the_default_of_deferrable_is_airflow_s(default: str) -> None:
    """The default of an argument is read when the class is made."""
    assert output(DEFAULTS, AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE=default)[-3:] == [default] * 3
