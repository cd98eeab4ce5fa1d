"""A send time in the past: an error before anything is sent, unless it is allowed or the campaign exists."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.api.campaigns import CreateCampaign
from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.api.flows.adopt_campaign import TOLERANCE, check_send_date, lateness
from airflow_provider_mail.api.flows.create_campaign import create_campaign
from airflow_provider_mail.api.flows.preflight import preflight
from mail_emulator import Emulator
from tests.api.driving import Driver

pytestmark = pytest.mark.usefixtures("clock")

SENDS = "/v5/campaign/mail/sends"
NOW = datetime.now(UTC).replace(microsecond=0)
A_YEAR_AGO, A_DAY = NOW - timedelta(days=365), timedelta(days=1)


def campaign(send_date: datetime | None, **fields: Any) -> CreateCampaign:
    content = {"subject": "News", "content": "<p>News</p> unsubscribe", "send_list_names": ["customers"]}
    return CreateCampaign(mail_name="news", sender_mail="news@example.com", send_date=send_date, **content | fields)


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    emulator.add_list("customers", ["a@example.com"])
    emulator.settings.sending_seconds = 0.0
    return emulator


def create(client: Driver, request: CreateCampaign, **options: Any) -> Any:
    return client.run(create_campaign(request, clock=client.client.service_clock, **options))


@given(st.timedeltas(timedelta(days=-400), timedelta(days=400)))
def test_what_is_late(late: timedelta) -> None:
    shown = lateness(NOW, NOW + late)
    assert (shown is not None) == (late > TOLERANCE)
    assert shown is None or timedelta() <= late - shown < timedelta(seconds=1)
    assert lateness(None, NOW + late) is None


def test_the_error_says_what_to_do() -> None:
    moment = datetime(2025, 1, 31, 9, tzinfo=UTC)
    with pytest.raises(MailValidationError) as raised:
        check_send_date(moment, moment + timedelta(days=296, hours=3, seconds=7), operation=SENDS)
    assert str(raised.value) == (
        "send_date: 2025-01-31T09:00:00Z lies 296 days, 3:00:07 in the past: the service would send at once. Nothing "
        "was sent. Correct it, or set allow_past_send_date=True to send at once"
    )


@pytest.mark.parametrize("late", [timedelta(days=365), TOLERANCE + timedelta(seconds=30)])
def test_nothing_is_sent_too_late(late: timedelta, service: Emulator, client: Driver) -> None:
    request = campaign(datetime.now(UTC) - late)
    with pytest.raises(MailValidationError, match=r"send_date: .* in the past"):
        create(client, request)
    assert service.journal.count(SENDS) == 0
    assert not create(client, request, allow_past_send_date=True).adopted
    assert service.campaign_recipients("news") == ["a@example.com"]


def test_a_task_that_starts_a_little_late_sends(service: Emulator, client: Driver) -> None:
    """Also if its first attempt is lost, after which it is too late."""
    service.faults.add("close_before", SENDS)
    create(client, campaign(datetime.now(UTC) - TOLERANCE + timedelta(seconds=10)))
    assert service.campaign_recipients("news") == ["a@example.com"]


@pytest.mark.parametrize("days", [-2, 2])
def test_the_service_s_time_counts(days: int, service: Emulator, client: Driver) -> None:
    service.clock.advance(days * 86_400)
    request = campaign(NOW + timedelta(days=days / 2))
    if days > 0:
        with pytest.raises(MailValidationError, match=r"1 day, [0-9]+:"):
            create(client, request)
    else:
        create(client, request)
    assert [held["state"] for held in service.campaigns()] == ["scheduled"] * (days < 0)


def test_a_late_try_adopts_what_an_earlier_one_scheduled(service: Emulator, client: Driver) -> None:
    request = campaign(NOW + timedelta(hours=1))
    service.faults.add("close_after", SENDS)
    create(client, request)
    service.clock.advance(86_400)
    assert create(client, request).adopted
    assert service.journal.count(SENDS) == 1
    assert service.campaign_recipients("news") == ["a@example.com"]
    # A preflight of it says that it exists, and nothing of the time.
    findings = client.run(preflight(request, clock=client.client.service_clock)).findings
    levels = [(finding.check, finding.level) for finding in findings if finding.check in ("name", "send_date")]
    assert levels == [("name", "warning")]


@pytest.mark.parametrize(
    ("send_date", "fields", "allowed", "level", "text"),
    [
        (None, {}, False, None, ""),  # it is sent now
        (NOW + A_DAY, {}, False, "ok", "does not lie in the past"),
        (A_YEAR_AGO, {}, False, "error", "lies 365 days, [0-9:]+ in the past: it would not be created"),
        (A_YEAR_AGO, {}, True, "warning", "in the past: it would be sent at once"),
        (A_YEAR_AGO, {"only_save": True}, False, "warning", "in the past; a draft is not sent"),
    ],
)
def test_preflight_sees_it(
    service: Emulator, client: Driver, send_date: datetime | None, fields: Any, allowed: bool, level: Any, text: str
) -> None:
    findings = client.run(preflight(campaign(send_date, **fields), allow_past_send_date=allowed)).findings
    found = [finding for finding in findings if finding.check == "send_date"]
    assert [finding.level for finding in found] == ([level] if level else [])
    assert all(re.search(text, finding.text) for finding in found)
    if fields:
        create(client, campaign(send_date, **fields))
        assert service.campaigns()[0]["state"] == "draft"
