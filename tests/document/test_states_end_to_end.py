"""The states of a campaign (the rows of "States and transitions"), reached by our client."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_mail import api
from airflow_provider_mail.api import MailStatus
from mail_emulator import Emulator

NAME, BOTH = "spring", ["ada@example.com", "bob@example.com"]
HOUR = timedelta(hours=1)


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    emulator.clock.freeze("2026-01-31T09:00:00Z")
    emulator.add_list("customers", BOTH)
    return emulator


def status(client: api.MailClient) -> MailStatus | None:
    campaign = client.run(api.find_campaign(NAME))
    return campaign and campaign.mail_status


def create(client: api.MailClient, **changes: object) -> None:
    fields = {"mail_name": NAME, "sender_mail": "news@example.com", "send_list_names": ["customers"], **changes}
    client.send(api.CreateCampaign.model_validate(fields))


@pytest.mark.parametrize(
    ("changes", "outcome", "statuses", "mailed"),
    [
        ({"only_save": True, "send_list_names": None}, "done", (MailStatus.DRAFT, MailStatus.DRAFT), []),
        ({"only_save": False}, "done", (MailStatus.SENDING, MailStatus.COMPLETE), BOTH),
        ({}, "failed", (MailStatus.SENDING, MailStatus.FAILED), []),
    ],
)
def test_it_is_saved_or_sent_at_once(
    changes: dict[str, object], outcome: str, statuses: object, mailed: list[str], service: Emulator,
    client: api.MailClient,
):  # fmt: skip
    service.plan_campaign(NAME, seconds=60, outcome=outcome)
    create(client, **changes)
    first = status(client)
    service.clock.advance(days=30)
    assert (first, status(client)) == statuses
    assert service.campaign_recipients(NAME) == mailed


@pytest.mark.parametrize("at", [-1, 0])
def test_a_scheduled_campaign_can_be_cancelled_until_its_time(at: int, service: Emulator, client: api.MailClient):
    send_date = service.clock.now() + HOUR
    create(client, send_date=send_date)
    service.clock.set(send_date + timedelta(seconds=at))
    if at < 0:
        assert service.campaign_recipients(NAME) == []
        client.send(api.CancelCampaign(mail_name=NAME))
    else:
        with pytest.raises(api.MailRejectedError):
            client.send(api.CancelCampaign(mail_name=NAME))
    service.clock.advance(days=30)
    assert service.campaign_recipients(NAME) == ([] if at < 0 else BOTH)


@pytest.mark.parametrize("state", ["draft", "scheduled", "sending", "done", "failed"])
def test_a_campaign_of_any_state_can_be_deleted(state: str, service: Emulator, client: api.MailClient):
    service.add_campaign(NAME, state=state, send_date="2999-01-01T09:00:00+00:00" if state == "scheduled" else None)
    client.send(api.DeleteCampaign(mail_name=NAME))
    assert status(client) is None
    assert [task["removed"] for task in service.campaigns(NAME)] == [True]
