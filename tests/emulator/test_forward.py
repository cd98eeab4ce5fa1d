"""Delivered mail is forwarded once, as a message with the headers and both forms of its content."""

from __future__ import annotations

import queue
import smtplib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from mail_emulator import Emulator, EmulatorSettings
from mail_emulator.inbox import forward
from tests.emulator.conftest import LETTER, SEND, Api


class Server:
    """What the SMTP server does: it rejects one address, its connections can be down, and it can take its time."""

    def __init__(self) -> None:
        self.mails: queue.Queue[tuple[str, str, str]] = queue.Queue()
        self.connections = self.connections_down = 0
        self.accepts = threading.Event()
        self.accepts.set()

    def connect(self, *address: Any, **options: Any) -> Server:
        if self.connections_down:
            self.connections_down -= 1
            raise ConnectionRefusedError
        self.connections += 1
        return self

    def send_message(self, message: EmailMessage, sender: str, recipients: list[str]) -> None:
        (recipient,) = recipients
        if recipient == "unknown@example.com":
            raise smtplib.SMTPRecipientsRefused({recipient: (550, b"no such user")})
        self.message = message
        self.mails.put((sender, recipient, message["Subject"]))
        self.accepts.wait()

    def close(self) -> None: ...

    def next(self, count: int = 1) -> list[str]:
        """The recipients of the next mails; no others have come."""
        recipients = [self.mails.get(timeout=240)[1] for _ in range(count)]
        assert self.mails.empty()
        return recipients


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(smtplib, "SMTP", server.connect)
    monkeypatch.setattr(forward, "_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(forward, "_RETRY_SECONDS", 0.001)
    return server


@contextmanager
def forwards(file: Path | None = None) -> Iterator[Api]:
    settings = EmulatorSettings(hard_bounce_rate=0.0, soft_bounce_rate=0.0)
    with Emulator(settings, file=file, forward_smtp="127.0.0.1:25") as emulator:
        api = Api(emulator)
        if not emulator.senders():
            emulator.add_sender("news@example.com")
        yield api
        api.close()
        assert emulator.crashes() == []


def send(api: Api, to: str, **body: Any) -> None:
    api.ok(SEND, **LETTER | {"to": {"email": to}} | body)


def test_mail_is_forwarded_when_it_is_delivered(server: Server) -> None:
    """It waits for the server; rejected mail is skipped."""
    server.connections_down = 2
    with forwards() as api:
        api.emulator.suppress("gone@example.com")
        send(api, "later@example.com", sendDate="2999-01-01T00:00:00Z")
        letter = {"subject": "Grüße", "content": "<p>Hello <b>Ada</b></p>", "senderName": "News"}
        for to in ("gone@example.com", "unknown@example.com", "ada@example.com"):
            send(api, to, **letter, replyTo="help@example.com")
        assert server.mails.get(timeout=240) == ("news@example.com", "ada@example.com", "Grüße")
        assert (server.message["From"], server.message["Reply-To"]) == ("News <news@example.com>", "help@example.com")
        assert [str(part.get_content()).strip() for part in server.message.iter_parts()] == [
            "Hello Ada", "<p>Hello <b>Ada</b></p>",
        ]  # fmt: skip
        api.emulator.clock.set("2999-01-01T00:00:00Z")
        assert server.next() == ["later@example.com"]


def test_each_recipient_of_a_campaign_gets_one(server: Server) -> None:
    with forwards() as api:
        api.emulator.add_list("Reader", count=250)
        api.campaign("spring", sendListNames=["Reader"], subject="For {{email}}", content="<p>x</p>")
        api.emulator.clock.advance(minutes=1)
        assert set(server.next(250)) == {f"reader-{number}@example.com" for number in range(250)}
        for to in ("next@example.com", "last@example.com"):  # each in a round of its own
            send(api, to)
            assert server.next() == [to]
    assert server.connections == 1


def test_neither_a_restart_nor_a_reset_forwards_again(server: Server, tmp_path: Path) -> None:
    for to in ("first@example.com", "second@example.com"):
        with forwards(tmp_path / "state.db") as api:
            send(api, to)
            assert server.next() == [to]
    with forwards(tmp_path / "state.db") as api:
        server.accepts.clear()  # what comes while one mail is being sent waits for the next round
        send(api, "third@example.com")
        assert server.next() == ["third@example.com"]
        api.emulator.reset()
        api.emulator.add_sender("news@example.com")
        send(api, "fourth@example.com")
        server.accepts.set()
        assert server.next() == ["fourth@example.com"]


def test_addresses_of_smtp_servers() -> None:
    assert forward.parse_address("[::1]:25") == ("::1", 25)
    for wrong in ("localhost", ":25", "localhost:x", "localhost:0", "localhost:99999", ""):
        with pytest.raises(ValueError, match="HOST:PORT"):
            forward.parse_address(wrong)
