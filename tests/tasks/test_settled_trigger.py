"""`MailStatsSettledTrigger`: many waits in one event loop share their statistics requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_mail._polling import shared_poller
from airflow_provider_mail._polling.stats import merge_windows
from airflow_provider_mail.api.client import AsyncMailClient
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.triggers.stats import MailStatsSettledTrigger
from tests.tasks.triggering import Event, cancelled, event, note_closed, restarted, run, timed_out, until
from tests.tasks.waiting import answered

STATS = "campaign/mail/stats/get"
TODAY = datetime.now(UTC).date()


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No scheduler has to note a deferral here."""
    monkeypatch.setattr(shared_poller, "SETTLE_SECONDS", 0.05)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[AsyncMailClient]:
    """The clients that were closed."""
    return note_closed(monkeypatch)


def trigger(mail_name: str, **arguments: Any) -> MailStatsSettledTrigger:
    given = {"mail_conn_id": "mail_default", "mail_name": mail_name, "poke_interval": 0.3, "observations": 2}
    return MailStatsSettledTrigger(**given | {"start_day": f"{TODAY - timedelta(days=30)}"} | arguments)  # type: ignore[arg-type]


def test_final(emulator: Emulator, closed: list[AsyncMailClient]) -> None:
    emulator.add_campaign("spring", sent=100)
    emulator.set_campaign_stats("spring", sentCount=100, openCount=4)

    found = run(event(trigger("spring")))

    assert {name: found[name] for name in ("status", "mail_name", "message")} == {
        "status": "complete",
        "mail_name": "spring",
        "message": "statistics of campaign 'spring' are final: the same in 2 of 2 observations",
    }
    assert (found["mail_stats"]["sent_count"], found["mail_stats"]["open_count"]) == (100, 4)
    assert json.loads(json.dumps(found)) == found
    assert emulator.journal.count(STATS) == 2
    assert len(closed) == 1


def test_two_hundred_waits_share_one_request(emulator: Emulator, closed: list[AsyncMailClient]) -> None:
    emulator.add_campaigns(200, prefix="c", first_day=TODAY - timedelta(days=10), per_day=20)
    names = [campaign["mailName"] for campaign in emulator.campaigns()]

    async def all_of_them() -> list[Event]:
        waits = (event(trigger(name, poke_interval=1.0, observations=3)) for name in names)
        return list(await asyncio.gather(*waits))

    found = run(all_of_them())

    assert [each["mail_stats"]["mail_name"] for each in found] == names
    assert {each["status"] for each in found} == {"complete"}
    # Three observations each; who comes while the first poll is on is in the second one. On a slow machine the first
    # comes alone, and is requested by name.
    assert 3 <= emulator.journal.count(STATS) <= 12
    requested = [entry["body"].get("mailName") for entry in emulator.journal.entries(STATS)]
    assert requested.count(None) >= 3
    assert len(closed) == 1


def test_waits_that_are_far_apart_are_asked_for_apart(emulator: Emulator) -> None:
    days = [TODAY - timedelta(days=300), TODAY - timedelta(days=299), TODAY - timedelta(days=3)]
    for day in days:
        emulator.add_campaigns(1, prefix=f"of-{day}", first_day=day)
    names = [campaign["mailName"] for campaign in emulator.campaigns()]

    async def all_of_them() -> list[Event]:
        windows = [{"start_day": f"{day}", "end_day": f"{day}"} for day in days]
        waits = (event(trigger(name, **window)) for name, window in zip(names, windows, strict=True))
        return list(await asyncio.gather(*waits))

    assert {found["status"] for found in run(all_of_them())} == {"complete"}
    polled = [entry["body"] for entry in emulator.journal.entries(STATS)]
    windows = [(body["startDate"], body["endDate"]) for body in polled]
    between = f"{TODAY - timedelta(days=100)}"
    assert not [window for window in windows if window[0] < between < window[1]]
    # On a slow machine one wait comes after the first poll: in the second one those that are near are together.
    assert [window for window in windows if window[0] <= f"{days[0]}" and f"{days[1]}" <= window[1] < between]
    # Only one campaign is waited for in the later window: it is requested by name.
    assert {body["mailName"] for body in polled if body["startDate"] > between} == {names[2]}


def test_connections_and_intervals_have_their_own(emulator: Emulator, connect: Callable[..., None]) -> None:
    connect("other")
    for name in ("a", "b", "c"):
        emulator.add_campaign(name)

    async def all_of_them() -> list[Event]:
        waits = [trigger("a"), trigger("b", mail_conn_id="other"), trigger("c", poke_interval=0.2)]
        return list(await asyncio.gather(*map(event, waits)))

    assert {found["status"] for found in run(all_of_them())} == {"complete"}
    assert {entry["body"]["mailName"] for entry in emulator.journal.entries(STATS)} == {"a", "b", "c"}


def test_it_goes_on_from_its_memory_and_can_be_restarted(emulator: Emulator) -> None:
    emulator.add_campaign("spring")
    emulator.set_campaign_stats("spring", sentCount=1)

    async def in_between() -> Event:
        first = trigger("spring", observations=3, poke_interval=0.2)
        running = asyncio.create_task(event(first))
        await until(lambda: answered(emulator, STATS) >= 2)
        await cancelled(running)
        emulator.journal.clear()
        return await event(restarted(first))

    assert run(in_between())["status"] == "complete"
    assert emulator.journal.count(STATS) == 3


def test_the_time_is_up(emulator: Emulator) -> None:
    emulator.add_campaign("slow")
    found = timed_out(lambda end: trigger("slow", observations=99, end_time=end))
    assert found["status"] == "timeout"
    assert found["message"].startswith("the wait timed out: statistics of campaign 'slow': the same in ")


def test_nothing_is_asked_before_there_is_something_to_see(emulator: Emulator) -> None:
    sent = datetime.now(UTC) - timedelta(seconds=10)
    emulator.add_campaign("spring", send_date=sent)

    async def aged() -> Event:
        # What the sensor saw when it looked.
        memory = {"mail_name": "spring", "apart": 0.0, "record": {"mail_send_date": sent.isoformat()}}
        return await event(trigger("spring", observations=None, age=12.0, memory=memory))

    assert run(aged())["status"] == "complete"
    (entry,) = emulator.journal.entries(STATS)
    assert entry["real_ms"] / 1000 >= sent.timestamp() + 12


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ([], []),
        ([(1, 1)], [(1, 1)]),
        ([(5, 6), (1, 1)], [(1, 1), (5, 6)]),
        ([(1, 2), (3, 4)], [(1, 4)]),
        ([(1, 9), (2, 3), (9, 10), (12, 12)], [(1, 10), (12, 12)]),
        ([(4, 4)] * 3, [(4, 4)]),
    ],
)
def test_merge_windows(windows: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    def days(spans: list[tuple[int, int]]) -> list[tuple[date, date]]:
        return [(date(2026, 3, first), date(2026, 3, last)) for first, last in spans]

    assert merge_windows(days(windows)) == days(expected)
