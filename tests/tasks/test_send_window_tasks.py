"""What a task sends with a send window, in each of its tries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_mail.api.errors import MailRateLimitError
from airflow_provider_mail.send_window import SendWindow
from airflow_provider_mail.version_compat import AirflowFailException
from mail_emulator import Emulator
from tests.support.clock import Clock
from tests.support.tries import Tries
from tests.tasks.sending import SENDS, batch, bodies, campaign, letters, mailed, remembers

CREATES = "campaign/mail/sends"
WORKDAY = SendWindow(start="09:00", end="18:00")
HOUR = 3600


@pytest.fixture
def at(clock: Clock, emulator: Emulator) -> Callable[[str], None]:
    """A function that sets all clocks."""
    emulator.add_list("newsletter", ["ida@example.com"])

    def at(moment: str) -> None:
        clock.set_wall_clock((datetime.fromisoformat(moment) - datetime.now(UTC)).total_seconds())

    return at


def create(**arguments: Any) -> Any:
    return campaign(send_window=WORKDAY, **arguments)


def created(emulator: Emulator) -> list[str | None]:
    return [entry["body"].get("sendDate") for entry in emulator.journal.entries(CREATES)]


@pytest.mark.parametrize(
    ("now", "send_date", "sent"),
    [
        ("2026-11-26T10:00Z", None, None),
        ("2026-11-26T08:00Z", None, "2026-11-26T09:00:00Z"),
        ("2026-11-26T18:00Z", None, "2026-11-27T09:00:00Z"),
        ("2026-11-26T10:00Z", "2026-11-26T12:00:00Z", "2026-11-26T12:00:00Z"),
        ("2026-11-26T10:00Z", "2026-11-28T12:00:00+01:00", "2026-11-30T09:00:00Z"),
    ],
)
def test_the_send_time_lies_in_the_window(
    now: str, send_date: str | None, sent: str | None, at: Callable[[str], None], emulator: Emulator
) -> None:
    at(now)
    Tries().run(create(send_date=send_date))
    Tries().run(batch(messages=letters(1), send_window=WORKDAY, send_date=send_date))
    assert created(emulator) == [sent]
    assert [body.get("sendDate") for body in bodies(emulator)] == [sent]


@remembers
@pytest.mark.parametrize("now", ["2026-11-26T17:30Z", "2026-11-26T08:59Z"])
def test_a_retry_after_it_has_closed_sends_nothing(now: str, at: Callable[[str], None], emulator: Emulator) -> None:
    for make in (create, lambda: batch(messages=letters(1), send_window=WORKDAY)):
        emulator.faults.add("too_many_requests", CREATES, count=None, retry_after=0)
        emulator.faults.add("too_many_requests", SENDS, count=None, retry_after=0)
        tries = Tries(emulator)
        at(now)
        with pytest.raises(MailRateLimitError):
            tries.run(make())
        emulator.faults.clear()
        at("2026-11-26T18:01Z")
        with pytest.raises(AirflowFailException, match="send_window: closed at 2026-11-26T18:00:00Z"):
            tries.run(make())
    assert emulator.campaigns() == [] == emulator.messages()


@remembers
def test_a_retry_within_it_sends_what_the_first_try_would(at: Callable[[str], None], emulator: Emulator) -> None:
    at("2026-11-26T08:59Z")
    make = lambda: batch(messages=letters(20), send_window=WORKDAY)  # noqa: E731
    tries = Tries(emulator)
    emulator.faults.add("too_many_requests", SENDS, skip=1, count=None, retry_after=0)
    with pytest.raises(MailRateLimitError):
        tries.run(make())
    emulator.faults.clear()
    at("2026-11-26T12:00Z")
    assert tries.run(make())["recipients"] == 20
    assert set(mailed(emulator).values()) == {1}


def test_a_campaign_of_an_earlier_try_is_adopted_after_it_has_closed(
    at: Callable[[str], None], emulator: Emulator
) -> None:
    at("2026-11-26T17:00Z")
    tries = Tries()
    tries.run(create(mail_name=None))
    at("2026-11-26T19:00Z")
    assert tries.run(create(mail_name=None))["adopted"]
    assert created(emulator) == [None]


@remembers
def test_a_cleared_task_takes_the_next_opening(at: Callable[[str], None], emulator: Emulator) -> None:
    at("2026-11-26T17:30Z")
    emulator.faults.add("too_many_requests", CREATES, count=None, retry_after=0)
    tries = Tries()
    with pytest.raises(MailRateLimitError):
        tries.run(create())
    emulator.faults.clear()
    at("2026-11-26T20:00Z")
    tries.clear()
    tries.run(create())
    assert created(emulator)[-1] == "2026-11-27T09:00:00Z"
