"""The states of a campaign send task, walked through by our client (the rows of "States and transitions")."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_mail.api.campaigns import (
    Campaign,
    CancelCampaign,
    CreateCampaign,
    DeleteCampaign,
    MailStatus,
    find_campaign,
)
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.errors import MailRejectedError
from airflow_provider_mail.emulator import Emulator

NAME = "spring"


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    emulator.clock.freeze()
    emulator.add_list("customers", ["ada@example.com", "bob@example.com"])
    return emulator


def found(client: MailClient) -> Campaign:
    campaign = client.run(find_campaign(NAME))
    assert campaign is not None
    return campaign


def create(client: MailClient, **changes: object) -> None:
    fields = {"mail_name": NAME, "sender_mail": "news@example.com", "send_list_names": ["customers"], **changes}
    client.send(CreateCampaign.model_validate(fields))


@pytest.mark.parametrize("lists", [None, ["customers"]], ids=["without_lists", "with_lists"])
def test_only_save_makes_a_draft_that_nobody_gets(lists: list[str] | None, service: Emulator, client: MailClient):
    create(client, only_save=True, send_list_names=lists)
    service.clock.advance(days=30)
    assert found(client).mail_status == MailStatus.DRAFT
    assert service.campaign_recipients(NAME) == []


@pytest.mark.parametrize("only_save", [None, False], ids=["absent", "false"])
def test_without_a_send_date_it_is_sent_at_once(only_save: bool | None, service: Emulator, client: MailClient):
    create(client, only_save=only_save)
    assert found(client).mail_status == MailStatus.SENDING
    service.clock.advance(minutes=1)
    assert found(client).mail_status == MailStatus.COMPLETE
    assert service.campaign_recipients(NAME) == ["ada@example.com", "bob@example.com"]


@pytest.mark.parametrize("shown_as", [-1, 1])
def test_with_a_send_date_it_waits(shown_as: int, service: Emulator, client: MailClient):
    service.change_settings(scheduled_status=shown_as)
    send_date = (service.clock.now() + timedelta(hours=1)).replace(microsecond=0)
    create(client, send_date=send_date)
    service.clock.set(send_date - timedelta(seconds=1))
    waiting = found(client)
    assert (waiting.mail_status, waiting.send_by_date_time) == (shown_as, send_date)
    assert service.campaign_recipients(NAME) == []
    service.clock.advance(minutes=1)
    assert found(client).mail_status == MailStatus.COMPLETE
    assert service.campaign_recipients(NAME) == ["ada@example.com", "bob@example.com"]


def test_a_scheduled_campaign_can_be_cancelled(service: Emulator, client: MailClient):
    create(client, send_date=service.clock.now() + timedelta(hours=1))
    client.send(CancelCampaign(mail_name=NAME))
    service.clock.advance(days=30)
    assert service.campaign_recipients(NAME) == []


@pytest.mark.parametrize("late", [timedelta(0), timedelta(days=1)])
def test_a_campaign_whose_send_time_has_passed_cannot(late: timedelta, service: Emulator, client: MailClient):
    send_date = (service.clock.now() + timedelta(hours=1)).replace(microsecond=0)
    create(client, send_date=send_date)
    service.clock.set(send_date + late)
    with pytest.raises(MailRejectedError):
        client.send(CancelCampaign(mail_name=NAME))
    service.clock.advance(days=1)
    assert service.campaign_recipients(NAME) == ["ada@example.com", "bob@example.com"]


@pytest.mark.parametrize(("outcome", "status"), [("done", MailStatus.COMPLETE), ("failed", MailStatus.FAILED)])
def test_sending_ends_in_complete_or_failed_and_has_stats_only_when_complete(
    outcome: str, status: MailStatus, service: Emulator, client: MailClient
):
    service.plan_campaign(NAME, seconds=60, outcome=outcome)
    create(client)
    sending = found(client)
    assert (sending.mail_status, sending.mail_stats) == (MailStatus.SENDING, None)
    service.clock.advance(61)
    ended = found(client)
    assert ended.mail_status == status
    assert (ended.mail_stats is not None) is (status is MailStatus.COMPLETE)
    if ended.mail_stats is not None:
        assert ended.mail_stats.sent_count == 2


@pytest.mark.parametrize("state", ["draft", "scheduled", "sending", "done", "failed"])
def test_a_campaign_of_any_state_can_be_deleted(state: str, service: Emulator, client: MailClient):
    service.add_campaign(NAME, state=state, send_date="2999-01-01T09:00:00+00:00" if state == "scheduled" else None)
    client.send(DeleteCampaign(mail_name=NAME))
    assert client.run(find_campaign(NAME)) is None
    assert [task["removed"] for task in service.campaigns(NAME)] == [True]
