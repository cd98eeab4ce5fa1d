"""Demo data: senders, lists, templates and past campaigns of a small company."""

from __future__ import annotations

from datetime import timedelta

from mail_emulator.control_api import ControlApi

SENDER = "news@example.com"


def add_demo_data(emulator: ControlApi) -> None:
    """Add the demo data; objects of an earlier run are kept."""
    if SENDER not in {sender["entry"] for sender in emulator.senders()}:
        emulator.add_sender(SENDER)
    if "Newsletter" in {contact_list["name"] for contact_list in emulator.lists()}:
        return
    emulator.add_list("Newsletter", count=1000, description="Everybody who asked for it")
    emulator.add_list("Employees", count=25, description="Left out of campaigns")
    emulator.add_subscription("Newsletter")
    emulator.add_template(
        "welcome",
        subject="Welcome, {{name}}",
        content='<p>Hello {{name}},</p><p><a href="https://example.com/start">start here</a></p>',
    )
    today = emulator.clock.now().date()
    emulator.add_campaigns(14, prefix="newsletter", first_day=today - timedelta(days=14))
