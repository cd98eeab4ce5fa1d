"""`MailStatsSettledTrigger`: many waits in one event loop share their statistics requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_mail.triggers.stats import MailStatsSettledTrigger
from mail_emulator import Emulator
from tests.support.clock import passes
from tests.tasks.triggering import (
    Event,
    event,
    events,
    note_closed,
    restarted,
    run,
    running,
    steady_clock,  # noqa: F401
)

STATS = "campaign/mail/stats/get"
TODAY = datetime.now(UTC).date()


def trigger(mail_name: str, **arguments: Any) -> MailStatsSettledTrigger:
    given = {"mail_conn_id": "mail_default", "mail_name": mail_name, "stable_checks": 2}
    return MailStatsSettledTrigger(**given | {"start_day": day(30)} | arguments)  # type: ignore[arg-type]


def day(days_ago: int) -> str:
    return f"{TODAY - timedelta(days=days_ago)}"


def test_two_hundred_waits_share_one_request(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = note_closed(monkeypatch)
    emulator.add_campaigns(200, prefix="c", first_day=day(29), per_day=20)
    names = [campaign["mailName"] for campaign in emulator.campaigns()]
    found = events(*(trigger(name, stable_checks=3) for name in names))

    assert [each["result"]["mail_name"] for each in found] == names
    assert {each["status"] for each in found} == {"complete"}
    assert [entry["body"].get("mailName") for entry in emulator.journal.entries(STATS)] == [None, None, None]
    assert len(closed) == 1


def test_windows_that_touch_are_requested_together(emulator: Emulator) -> None:
    windows = [(250, 240), (300, 300), (3, 3), (248, 245), (299, 299), (246, 239)]
    for first, last in windows:
        emulator.add_campaigns(1, prefix=f"of-{first}-{last}", first_day=day(last))
    names = [f"of-{first}-{last}-000000" for first, last in windows]

    places = zip(names, windows, strict=True)
    found = events(*(trigger(name, start_day=day(first), end_day=day(last)) for name, (first, last) in places))

    assert {each["status"] for each in found} == {"complete"}
    bodies = [entry["body"] for entry in emulator.journal.entries(STATS)][:3]
    # Only one campaign is waited for in the last window: it is requested by name.
    assert [(body["startDate"], body["endDate"], body.get("mailName")) for body in bodies] == [
        (day(300), day(299), None),
        (day(250), day(239), None),
        (day(3), day(3), names[2]),
    ]


def test_a_restart_begins_from_the_stored_observations(emulator: Emulator) -> None:
    emulator.add_campaign("spring")
    emulator.set_campaign_stats("spring", sentCount=1)
    first = trigger("spring", stable_checks=3)

    async def in_between() -> Event:
        async with running(first):
            await passes(100)
        return await event(restarted(first))

    assert run(in_between())["status"] == "complete"
    assert emulator.journal.count(STATS) == 2 + 3
