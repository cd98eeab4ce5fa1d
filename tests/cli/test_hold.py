"""`stop` and `release`: what is printed, and what Airflow's database holds."""

from __future__ import annotations

import pytest

from airflow_provider_mail.hold import SETTLE_SECONDS
from mail_emulator import Emulator
from tests.cli.conftest import Command
from tests.support.clock import Clock

SOON = "2999-01-01T00:00:00Z"
pytestmark = pytest.mark.not_unit


@pytest.fixture(autouse=True)
def _campaigns(emulator: Emulator) -> None:
    for name in ("news a", "news b", "other"):
        emulator.add_campaign(name, state="scheduled", send_date=SOON)


def test_stop_cancels_what_begins_so(command: Command, emulator: Emulator) -> None:
    said = command("stop", "--prefix", "news", "-o", "json")
    assert said.status == 0
    assert {**said.data, "stopped": sorted(said.data["stopped"])} == {
        "stopped": ["news a", "news b"], "not_stopped": {}, "sending": [], "sent": 0,
    }  # fmt: skip
    assert [found["mailName"] for found in emulator.campaigns() if found["state"] == "scheduled"] == ["other"]
    said = command("stop", "--all-scheduled")
    assert (said.status, "other" in said.out) == (0, True)


def test_stop_fails_when_one_may_be_sent(command: Command, emulator: Emulator) -> None:
    emulator.faults.add("code_before", "campaign/mail/cancel", code=403, count=1)
    said = command("stop", "--prefix", "other")
    assert said.status == 1
    assert "NOT STOPPED: it is still scheduled" in " ".join(said.out.split())


def test_hold_and_release(command: Command, clock: Clock) -> None:
    said = command("stop", "--hold", "--reason", "wrong price")
    assert (said.status, said.out) == (0, "")
    assert clock.skipped > SETTLE_SECONDS - 1
    assert "All mass mail is held, set by " in said.err
    assert "wrong price" in said.err
    assert "wrong price" in command("release").out
    assert command("release").out == "Nothing is held.\n"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), "Nothing to stop: give --prefix, --all-scheduled or --hold"),
        (("--prefix", "a", "--all-scheduled"), "--prefix and --all-scheduled: give one of them"),
        (("--prefix", "a", "-c", "nowhere"), "nowhere"),
    ],
)
def test_an_error_is_one_message(command: Command, arguments: tuple[str, ...], error: str) -> None:
    said = command("stop", *arguments)
    assert (said.status, said.out) == (1, "")
    assert error in said.err
