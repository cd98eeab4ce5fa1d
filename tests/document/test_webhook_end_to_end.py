"""Pushes of the service, taken in over the wire: how they come, how many events they hold, which events they are."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from airflow_provider_mail.api.campaigns import CreateCampaign
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.events import USER_AGENT, MailEvent, parse_push
from airflow_provider_mail.api.transactional import Recipient, SendMail
from airflow_provider_mail.api.webhooks import EventToggles, SaveWebhook, SenderCallback
from mail_emulator import Emulator
from tests.document.fact_rows import EVENTS, LIMITS
from tests.emulator.listener import Listener

(MOST,) = next(row.value for row in LIMITS if row.item == "Webhook events per push")


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener() as listener:
        yield listener


def read(listener: Listener, path: str) -> list[MailEvent]:
    pushes = [json.dumps(events).encode() for where, _, events in listener.pushes if where == path]
    return [event for push in pushes for event in parse_push(push)]


def test_pushes_hold_at_most_1000_events(emulator: Emulator, client: MailClient, listener: Listener):
    toggles = EventToggles.model_validate({row.toggle: True for row in EVENTS if row.toggle})
    client.send(SaveWebhook(trans_callback_url=f"{listener.url}/default", trans_event=toggles, trans_enable=True))
    emulator.add_list("customers", count=MOST + 500)
    client.send(CreateCampaign(mail_name="spring", sender_mail="news@example.com", send_list_names=["customers"]))
    emulator.clock.advance(days=30)
    emulator.flush_events()

    assert max(len(events) for _, _, events in listener.pushes) == MOST
    kinds = {(headers["content-type"], headers["user-agent"]) for _, headers, _ in listener.pushes}
    assert kinds == {("application/json;charset=UTF-8", USER_AGENT)}
    by_code = {event.event_code: event for event in read(listener, "/default")}
    codes = listener.codes()
    assert sum(map(codes.count, ("Delivered", "Bounced", "Dropped"))) == MOST + 500
    assert {"Delivered", "Opened", "Clicked", "TaskStatus"} <= set(codes) <= {row.event_code for row in EVENTS}
    delivered, opened = by_code["Delivered"], by_code["Opened"]
    assert delivered.sender_email == "news@example.com"
    assert all((delivered.submit_time, delivered.receive_server, opened.ip, opened.platform, opened.browser_type))


def test_a_sender_may_have_its_own_callback_and_a_pause_stops_all(
    emulator: Emulator, client: MailClient, listener: Listener
):
    emulator.add_sender("shop@other.example")
    client.send(
        SaveWebhook(
            trans_callback_url=f"{listener.url}/default",
            trans_callback_url_extra=[SenderCallback(sender="shop@other.example", url=f"{listener.url}/shop")],
            trans_event=EventToggles(delivered=True),
            trans_enable=True,
        )
    )
    emulator.settings.hard_bounce_rate = emulator.settings.soft_bounce_rate = 0.0

    def send(id: str, sender: str = "news@example.com") -> None:
        content = {"subject": "Hi", "content": "<p>Hi</p>", "to": Recipient(email="ada@example.com")}
        client.send(SendMail(sender_mail=sender, unique_msg_id=id, **content))
        emulator.flush_events()

    send("a")
    send("b", "shop@other.example")
    for enabled, id in ((False, "c"), (True, "d")):
        client.send(SaveWebhook(trans_enable=enabled))
        send(id)
    received = {path: [event.unique_msg_id for event in read(listener, path)] for path in ("/default", "/shop")}
    assert received == {"/default": ["a", "d"], "/shop": ["b"]}
    assert set(listener.codes()) == {"Delivered"}
