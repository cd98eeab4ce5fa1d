"""`MailSenderTrigger`. How its sensor waits is in `test_sensors.py`."""

from __future__ import annotations

from airflow_provider_mail.triggers.senders import MailSenderTrigger
from mail_emulator import Emulator
from tests.support.clock import Clock
from tests.tasks.triggering import events, steady_clock  # noqa: F401


def test_many_waits_share_one_request(emulator: Emulator, clock: Clock) -> None:
    senders = [f"mail{number}.example.com" for number in range(50)]
    clock.after(700, lambda: [emulator.add_sender(sender) for sender in senders])
    emulator.add_sender("checked.example.com")
    *found, checked = events(
        *(MailSenderTrigger(mail_conn_id="mail_default", sender_email=sender) for sender in senders),
        MailSenderTrigger(mail_conn_id="mail_default", sender_email="checked.example.com", selector="mail"),
    )
    good = dict.fromkeys(("mx", "spf", "dkim", "dmarc", "valid"), True)
    assert [(each["name"], each["status"], each["result"]) for each in found] == [
        (sender, "complete", good) for sender in senders
    ]
    assert checked["status"] == "complete"
    assert [emulator.journal.count(f"verified_senders/{name}") for name in ("get", "verify")] == [4, 1]
