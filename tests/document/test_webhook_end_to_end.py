"""Pushes of the service, taken in over the wire: how they come, how many events they hold, which events they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from airflow_provider_mail.api.campaigns import CreateCampaign
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.events import USER_AGENT, MailEvent, parse_push
from airflow_provider_mail.api.transactional import Recipient, SendMail
from airflow_provider_mail.api.webhooks import EventToggles, SaveWebhook, SenderCallback
from airflow_provider_mail.emulator import Emulator
from tests.document.fact_rows import EVENTS, LIMITS

(MOST,) = next(row.value for row in LIMITS if row.item == "Webhook events per push")
EVERY_TOGGLE = {row.toggle: True for row in EVENTS if row.toggle}


class Receiver:
    """A callback URL that keeps what it receives."""

    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []
        self.pushes: list[tuple[str, list[MailEvent]]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                receiver.pushes.append((self.path, parse_push(body)))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def events(self, path: str) -> list[MailEvent]:
        return [event for pushed_to, events in self.pushes for event in events if pushed_to == path]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever, args=(0.01,))
    thread.start()
    yield receiver
    receiver.server.shutdown()
    thread.join()
    receiver.server.server_close()


def test_pushes_hold_at_most_1000_events(emulator: Emulator, client: MailClient, receiver: Receiver):
    toggles = EventToggles.model_validate(EVERY_TOGGLE)
    client.send(SaveWebhook(trans_callback_url=f"{receiver.url}/default", trans_event=toggles, trans_enable=True))
    emulator.add_list("customers", count=MOST + 500)
    client.send(CreateCampaign(mail_name="spring", sender_mail="news@example.com", send_list_names=["customers"]))
    emulator.clock.advance(days=30)
    emulator.flush_events()

    assert max(len(events) for _, events in receiver.pushes) == MOST
    for headers in receiver.headers:
        assert headers["content-type"] == "application/json;charset=UTF-8"
        assert headers["user-agent"] == USER_AGENT
    events = receiver.events("/default")
    codes = [event.event_code for event in events]
    assert codes.count("Delivered") + codes.count("Bounced") + codes.count("Dropped") == MOST + 500
    assert set(codes) <= {row.event_code for row in EVENTS}
    assert {"Delivered", "Opened", "Clicked", "TaskStatus"} <= set(codes)
    delivered, opened = (
        next(event for event in events if event.event_code == code) for code in ("Delivered", "Opened")
    )
    assert delivered.sender_email == "news@example.com"
    assert delivered.submit_time
    assert delivered.receive_server
    assert all((opened.ip, opened.platform, opened.browser_type))


def test_a_sender_may_have_its_own_callback_and_a_pause_stops_all(
    emulator: Emulator, client: MailClient, receiver: Receiver
):
    emulator.add_sender("shop@other.example")
    client.send(
        SaveWebhook(
            trans_callback_url=f"{receiver.url}/default",
            trans_callback_url_extra=[SenderCallback(sender="shop@other.example", url=f"{receiver.url}/shop")],
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
    assert [(event.unique_msg_id, event.event_code) for event in receiver.events("/default")] == [("a", "Delivered")]
    assert [(event.unique_msg_id, event.event_code) for event in receiver.events("/shop")] == [("b", "Delivered")]
    client.send(SaveWebhook(trans_enable=False))
    send("c")
    assert len(receiver.pushes) == 2
    client.send(SaveWebhook(trans_enable=True))
    send("d")
    assert [event.unique_msg_id for event in receiver.events("/default")] == ["a", "d"]
