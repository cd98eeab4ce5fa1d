"""The states of a campaign (the rows of "States and transitions"), reached by our client."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_mail import api
from mail_emulator import Emulator

NAME, BOTH = "spring", ["ada@example.com", "bob@example.com"]
HOUR = timedelta(hours=1)


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    emulator.clock.freeze("2026-01-31T09:00:00Z")
    emulator.add_list("customers", BOTH)
    return emulator


def found(client: api.MailClient) -> api.Campaign:
    campaign = client.run(api.find_campaign(NAME))
    assert campaign is not None
    return campaign


def create(client: api.MailClient, **changes: object) -> None:
    fields = {"mail_name": NAME, "sender_mail": "news@example.com", "send_list_names": ["customers"], **changes}
    client.send(api.CreateCampaign.model_validate(fields))


DRAFT = (api.MailStatus.DRAFT, [])


@pytest.mark.parametrize(
    ("changes", "at_once", "later"),
    [
        ({"only_save": True, "send_list_names": None}, DRAFT, DRAFT),
        ({"only_save": True}, DRAFT, DRAFT),
        ({}, (api.MailStatus.SENDING, BOTH), (api.MailStatus.COMPLETE, BOTH)),
        ({"only_save": False}, (api.MailStatus.SENDING, BOTH), (api.MailStatus.COMPLETE, BOTH)),
    ],
)
def test_it_is_saved_or_sent_at_once(
    changes: dict[str, Any], at_once: object, later: object, service: Emulator, client: api.MailClient
):
    create(client, **changes)
    for expected in (at_once, later):
        assert (found(client).mail_status, service.campaign_recipients(NAME)) == expected
        service.clock.advance(days=30)


@pytest.mark.parametrize("shown_as", [-1, 1])
def test_with_a_send_date_it_waits(shown_as: int, service: Emulator, client: api.MailClient):
    service.change_settings(scheduled_status=shown_as)
    send_date = service.clock.now() + HOUR
    create(client, send_date=send_date)
    service.clock.set(send_date - timedelta(seconds=1))
    assert (found(client).mail_status, found(client).send_by_date_time) == (shown_as, send_date)
    assert service.campaign_recipients(NAME) == []
    service.clock.advance(minutes=1)
    assert (found(client).mail_status, service.campaign_recipients(NAME)) == (api.MailStatus.COMPLETE, BOTH)


@pytest.mark.parametrize("late", [None, timedelta(0), timedelta(days=1)])
def test_a_scheduled_campaign_can_be_cancelled(late: timedelta | None, service: Emulator, client: api.MailClient):
    """Until its send time."""
    create(client, send_date=service.clock.now() + HOUR)
    if late is None:
        client.send(api.CancelCampaign(mail_name=NAME))
    else:
        service.clock.advance((HOUR + late).total_seconds())
        with pytest.raises(api.MailRejectedError):
            client.send(api.CancelCampaign(mail_name=NAME))
    service.clock.advance(days=30)
    assert service.campaign_recipients(NAME) == ([] if late is None else BOTH)


@pytest.mark.parametrize(("outcome", "status"), [("done", api.MailStatus.COMPLETE), ("failed", api.MailStatus.FAILED)])
def test_sending_ends_complete_or_failed(
    outcome: str, status: api.MailStatus, service: Emulator, client: api.MailClient
):
    """It has statistics only when it is complete."""
    service.plan_campaign(NAME, seconds=60, outcome=outcome)
    create(client)
    assert (found(client).mail_status, found(client).mail_stats) == (api.MailStatus.SENDING, None)
    service.clock.advance(61)
    ended = found(client)
    assert ended.mail_status == status
    assert (ended.mail_stats and ended.mail_stats.sent_count) == (2 if status is api.MailStatus.COMPLETE else None)


@pytest.mark.parametrize("state", ["draft", "scheduled", "sending", "done", "failed"])
def test_a_campaign_of_any_state_can_be_deleted(state: str, service: Emulator, client: api.MailClient):
    service.add_campaign(NAME, state=state, send_date="2999-01-01T09:00:00+00:00" if state == "scheduled" else None)
    client.send(api.DeleteCampaign(mail_name=NAME))
    assert client.run(api.find_campaign(NAME)) is None
    assert [task["removed"] for task in service.campaigns(NAME)] == [True]
