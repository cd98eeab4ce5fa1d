"""The receiver as uvicorn serves it: the bytes of its responses, what it logs, and a rotation while pushes arrive."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from airflow_provider_mail.__main__ import main
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.transactional import Recipient, SendMail
from airflow_provider_mail.api.webhooks import EventToggles, GetWebhook, SaveWebhook, SenderCallback
from airflow_provider_mail.webhook.tokens import new_token, token_digest, token_of, with_token
from mail_emulator import Emulator
from tests.support.postgres import PostgresServer
from tests.support.processes import wait_until
from tests.support.receiver import HEADERS, RunningReceiver, sqlite_connection
from tests.webhook.pushes import body, event

SENDERS = ("news@example.com", "shop@other.example", "foreign@other.example")
FOREIGN = "https://elsewhere.example/hook/abc"


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningReceiver]:
    folder = tmp_path_factory.mktemp("receiver")
    with RunningReceiver(folder, sqlite_connection(folder / "inbox.db")) as running:
        yield running


def exchange(
    receiver: RunningReceiver, target: str, method: str = "POST", body: bytes = b"[]", **headers: str
) -> bytes:
    """Send a request, and return all bytes of the response, without its date."""
    lines = {"Host": "x", "Content-Length": str(len(body)), "Connection": "close", **HEADERS, **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=60) as connection:
        connection.sendall(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + body)
        response = b"".join(iter(lambda: connection.recv(65536), b""))
    return re.sub(rb"date: [^\r]*\r\n", b"", response)


def test_who_does_not_know_the_token_gets_the_same_bytes(receiver: RunningReceiver) -> None:
    wrong = ("/", f"/{new_token()}", "/docs", f"/{receiver.token}/x", f"/x?{receiver.token}", f"/{receiver.token}%00",
             "/%ff", "/" + "a" * 20_000)  # fmt: skip
    responses = {exchange(receiver, target) for target in wrong}
    responses |= {exchange(receiver, "/x", method, b"") for method in ("GET", "PUT", "DELETE", "OPTIONS", "PATCH")}
    responses |= {exchange(receiver, "/x", **{"Content-Length": "9000000"}), exchange(receiver, "/x", body=b"{")}
    (response,) = responses
    assert response.startswith(b"HTTP/1.1 404 ")
    upgrade = exchange(receiver, f"/{new_token()}", "GET", b"", Upgrade="websocket", Connection="Upgrade, close")
    assert upgrade.startswith(b"HTTP/1.1 404 ")


@pytest.mark.ci
def test_the_log_has_each_request_but_no_token_and_no_address(receiver: RunningReceiver) -> None:
    assert receiver.post(body(event(7))).status_code == 200
    assert receiver.post(b"{}").status_code == 400
    httpx.get(f"{receiver.url}/{receiver.token}/x?{receiver.token}", timeout=60)
    assert receiver.events() == [event(7)]
    log = receiver.log.read_text()
    assert '"POST /... HTTP/1.1" 200' in log
    assert '"GET /... HTTP/1.1" 404' in log
    assert receiver.token not in log
    assert "user7@example.com" not in log


@contextmanager
def sending(client: MailClient) -> Iterator[list[str]]:
    """Send mails meanwhile; yields the ids of all."""
    sent: list[str] = []
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(0.02):
            sent.append(f"message-{len(sent)}")
            recipient = Recipient(email=f"reader{len(sent)}@planted.example")
            mail = {"unique_msg_id": sent[-1], "subject": "Hi", "content": "<p>Hi</p>", "to": recipient}
            client.send(SendMail(sender_mail=SENDERS[len(sent) % 2], **mail))

    with ThreadPoolExecutor(1) as pool:
        pool.submit(send)
        try:
            yield sent
        finally:
            ended.set()


def test_no_push_is_lost_while_the_token_is_rotated(
    emulator: Emulator,
    postgres_server: PostgresServer,
    tmp_path: Path,
    airflow_home: object,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    emulator.add_sender(SENDERS[1])
    emulator.settings.webhook_retries = 0
    # Of as many mails as a fast machine sends, some would bounce.
    emulator.settings.hard_bounce_rate = emulator.settings.soft_bounce_rate = 0.0
    connection = {"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key}
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps(connection))
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "client")
    with (
        MailClient(ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key)) as client,
        postgres_server.database() as database,
        RunningReceiver(tmp_path, database.airflow_connection) as receiver,
    ):
        monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", receiver.conn_id)
        url = f"{receiver.url}/{receiver.token}"
        overrides = {SENDERS[1]: with_token(url, f"shop/{receiver.token}"), SENDERS[2]: FOREIGN}
        extra = [SenderCallback(sender=sender, url=to) for sender, to in overrides.items()]
        events = EventToggles(delivered=True, opened=False)
        client.send(
            SaveWebhook(trans_callback_url=url, trans_callback_url_extra=extra, trans_event=events, trans_enable=True)
        )
        before = client.send(GetWebhook())
        with sending(client) as sent:
            main(["receive", "rotate", "--grace-hours", "0"])
            # Two senders have pushed before and after.
            wait_until(lambda: len({push["url"] for push in emulator.pushes()}) == 4, what="pushes to the new URLs")
        emulator.flush_events()

        assert {push["status"] for push in emulator.pushes()} == {200}
        assert sorted(event["UniqueMsgID"] for event in receiver.events()) == sorted(sent)
        after = client.send(GetWebhook())
        assert (after.trans_event, after.trans_enable) == (before.trans_event, before.trans_enable)
        new = token_of(after.trans_callback_url or "")
        callbacks = {each.sender: each.url for each in after.callbacks}
        assert callbacks == {SENDERS[1]: f"{receiver.url}/shop/{new}", SENDERS[2]: FOREIGN}
        assert receiver.tokens.valid() == {token_digest(new): "mail_default"}
        printed = capfd.readouterr().out + receiver.log.read_text()
    assert "Saved: trans_callback_url, trans_callback_url_extra." in printed
    assert receiver.token not in printed
    assert new not in printed
