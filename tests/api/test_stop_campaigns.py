"""All scheduled campaigns are cancelled, each is verified, and what may be sent nevertheless is named."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailServerError
from airflow_provider_mail.api.flows.cancel_campaign import StopResult, stop_campaigns
from mail_emulator import Emulator
from tests.api.driving import QUICK
from tests.support.changes import at_request
from tests.support.clock import Clock

CANCEL, GET = "campaign/mail/cancel", "campaign/mail/get"
SOON = "2999-01-01T00:00:00Z"


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    emulator.add_campaign("news sent", send_date="2026-03-01T08:00:00Z")
    emulator.add_campaign("news sending", state="sending")
    emulator.add_campaign("news draft", state="draft")
    for name in ("news a", "news b", "other news"):
        emulator.add_campaign(name, state="scheduled", send_date=SOON)
    return emulator


def stop(emulator: Emulator, prefix: str = "", **options: Any) -> StopResult:
    config = ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key, retry=QUICK)
    with MailClient(config) as client:
        return client.run(stop_campaigns(prefix, clock=client.service_clock, **options))


def states(emulator: Emulator) -> dict[str, Any]:
    return {campaign["mailName"]: campaign["state"] for campaign in emulator.campaigns()}


@pytest.mark.parametrize("scheduled_status", [1, -1])
@pytest.mark.parametrize("after", ["draft", "removed", "failed", "cancelled"])
def test_only_the_scheduled_ones_with_that_prefix(service: Emulator, scheduled_status: int, after: str) -> None:
    service.change_settings(scheduled_status=scheduled_status, state_after_cancel=after)
    result = stop(service, "news")
    assert sorted(result.stopped) == ["news a", "news b"]
    assert (dict(result.not_stopped), list(result.sending), result.sent) == ({}, ["news sending"], 1)
    assert states(service)["other news"] == "scheduled"
    assert "scheduled" not in {states(service).get(name) for name in ("news a", "news b")}
    bodies = [entry["body"] for entry in service.journal.entries(CANCEL)]
    in_earnest = [body["mailName"] for body in bodies if not body.get("sandboxMode")]
    assert sorted(in_earnest) == ["news a", "news b"]
    assert stop(service, "news").stopped == []


def test_also_those_that_are_created_meanwhile(service: Emulator, clock: Clock) -> None:
    """While others are cancelled, of which a response is lost; and before all tasks know."""

    def create(name: str) -> None:
        service.add_campaign(f"news {name}", state="scheduled", send_date=SOON)

    for number in range(250):
        create(str(number))
    service.faults.add("close_after", CANCEL)
    with at_request(service, CANCEL, 2, lambda: create("late")):
        assert len(stop(service).stopped) == 254
    create("again")
    clock.after(7, lambda: create("later"))
    assert sorted(stop(service, settle_seconds=8).stopped) == ["news again", "news later"]
    assert "scheduled" not in states(service).values()


def test_what_cannot_be_cancelled_is_named(service: Emulator) -> None:
    service.faults.add("code_before", CANCEL, code=403)
    result = stop(service, "news a")
    assert list(result.stopped) == []
    assert "it is still scheduled" in result.not_stopped["news a"]
    service.faults.add("http_error_before", GET, status=500, count=None)
    with pytest.raises(MailServerError):
        stop(service)


def test_one_that_goes_out_meanwhile_is_named(service: Emulator) -> None:
    with at_request(service, GET, 1, lambda: service.clock.advance(999 * 366 * 86_400)):
        result = stop(service, "news a")
    assert list(result.stopped) == []
    assert "its send time has passed" in result.not_stopped["news a"]
