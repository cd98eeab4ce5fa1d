"""What people want at two in the morning, in words and with an exit status."""

from __future__ import annotations

import pytest
import yaml

from mail_emulator import Emulator
from tests.cli.conftest import Command
from tests.support.changes import at_request


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    emulator.add_campaign("spring", state="done", sent=500, send_date="2026-03-01T08:00:00Z")
    emulator.add_campaign("summer", state="done", sent=700, send_date="2026-06-01T08:00:00Z")
    emulator.add_campaign("spring draft", state="draft")
    emulator.add_campaign("other", state="sending", send_date="2026-06-02T08:00:00Z")
    return emulator


def test_check_says_whether_the_connection_works(command: Command) -> None:
    said = command("check")
    assert (said.status, said.err) == (0, "")
    assert "accepts the password (API key)" in said.out
    said = command("check", "--conn-id", "mail_bad")
    assert (said.status, said.out) == (1, "")
    assert "rejects the password (API key)" in said.err


@pytest.mark.parametrize(
    ("arguments", "error", "status"),
    [
        (("check", "-c", "nowhere"), "nowhere", 1),
        (("campaigns", "-c", "nowhere"), "nowhere", 1),
        (("campaign", "spring", "-c", "nowhere"), "nowhere", 1),
        (("campaigns", "--limit", "0"), "--limit: must be at least 1", 1),
        (("campaign", "spring", "--watch", "--interval", "0"), "--interval: must be more than 0", 1),
        (("campaign", "sprin"), "There is no campaign 'sprin'.", 1),
        (("emulator", "--port", "99999"), "'99999' is not a port", 2),
    ],
)
def test_an_error_is_one_message(command: Command, arguments: tuple[str, ...], error: str, status: int) -> None:
    said = command(*arguments)
    assert (said.status, said.out) == (status, "")
    assert error in said.err
    assert "Traceback" not in said.err


def test_campaigns_are_listed_newest_first(command: Command, service: Emulator) -> None:
    rows = command("campaigns", "-o", "json").data
    # The draft is from today.
    assert [row["mail_name"] for row in rows] == ["spring draft", "other", "summer", "spring"]
    known = {
        "mail_name": "summer", "mail_status": 2, "status": "complete", "send_time": "2026-06-01T08:00:00+00:00",
        "sent_count": 700, "send_list_names": [],
    }  # fmt: skip
    assert {key: rows[2][key] for key in known} == known
    assert all(isinstance(count, int) for key, count in rows[2].items() if key.endswith("_count"))
    assert rows[0]["sent_count"] is None
    assert yaml.safe_load(command("campaigns", "-o", "yaml").out) == rows
    table = command("campaigns").out
    assert all(text in table for text in ("summer", "complete (2)", "2026-06-01 08:00:00 UTC"))
    assert command("campaign", "spring", "-o", "json").data == rows[3], "the same object in both"
    assert "500" in command("campaign", "spring").out


def test_some_campaigns_are_listed(command: Command, service: Emulator) -> None:
    for arguments, names in (
        (("--name", "spring"), {"spring", "spring draft"}),
        (("--status", "sending"), {"other"}),
        (("--limit", "1"), {"spring draft"}),
    ):
        said = command("campaigns", *arguments, "-o", "json")
        assert {row["mail_name"] for row in said.data} == names
    assert "The newest 1 of 4" in said.err


def test_a_campaign_is_watched_until_it_is_sent(command: Command, service: Emulator) -> None:
    service.plan_campaign("other", looks=3)
    said = command("campaign", "other", "--watch", "-o", "json")
    assert (said.status, said.data["status"]) == (0, "complete")
    assert "sending (mailStatus 1)" in said.err
    assert "was sent" in said.err


def test_a_campaign_is_watched_until_it_fails(command: Command, service: Emulator) -> None:
    service.plan_campaign("other", looks=9)
    with at_request(service, "campaign/mail/get", 3, lambda: service.set_campaign_state("other", "failed")):
        said = command("campaign", "other", "--watch")
    assert (said.status, said.out) == (1, "")
    assert "sending failed (mailStatus 4)" in said.err
