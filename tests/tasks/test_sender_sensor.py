"""`MailSenderTrigger`, and what a task reads of its event. How its sensor waits is in `test_sensors.py`."""

from __future__ import annotations

import pytest

from airflow_provider_mail.sensors.senders import MailSenderSensor
from airflow_provider_mail.triggers.senders import MailSenderTrigger
from mail_emulator import Emulator
from tests.support.clock import Clock
from tests.tasks.triggering import events, steady_clock  # noqa: F401

GOOD = dict.fromkeys(("mx", "spf", "dkim", "dmarc", "valid"), True)


def test_many_waits_share_one_request(emulator: Emulator, clock: Clock) -> None:
    senders = [f"mail{number}.example.com" for number in range(50)]
    clock.after(700, lambda: [emulator.add_sender(sender) for sender in senders])
    emulator.add_sender("checked.example.com")

    *found, checked = events(
        *(MailSenderTrigger(mail_conn_id="mail_default", sender_email=sender) for sender in senders),
        MailSenderTrigger(mail_conn_id="mail_default", sender_email="checked.example.com", selector="mail"),
    )

    assert [(each["name"], each["status"], each["result"]) for each in found] == [
        (sender, "complete", GOOD) for sender in senders
    ]
    assert checked["status"] == "complete"
    counts = [emulator.journal.count(f"verified_senders/{name}") for name in ("get", "verify")]
    assert counts == [4, 1]


@pytest.mark.parametrize(("name", "result"), [("name", "result"), ("mail_name", "mail_stats")])
def test_a_task_reads_the_event_of_this_version_and_the_last(name: str, result: str) -> None:
    """A wait that the triggerer ended before an upgrade is read by a worker after it."""
    event = {"status": "complete", name: "mail.example.com", "message": "all checks are good", result: GOOD}
    sensor = MailSenderSensor(task_id="wait", sender_email="mail.example.com")
    assert sensor.execute_complete({}, event) == GOOD  # type: ignore[typeddict-item]
