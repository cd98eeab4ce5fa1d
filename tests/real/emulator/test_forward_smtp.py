"""Delivered mail reaches an SMTP server, each once."""

from __future__ import annotations

import email
from collections.abc import Iterator
from contextlib import contextmanager
from email import policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from airflow_provider_mail.emulator import Emulator, EmulatorSettings
from tests.emulator.conftest import LETTER, SEND, Api
from tests.support.processes import free_port, wait_until

NO_BOUNCES = EmulatorSettings(hard_bounce_rate=0.0, soft_bounce_rate=0.0)


class Catcher:
    """An SMTP server that keeps what it accepts: (sender, recipients, message)."""

    def __init__(self) -> None:
        self.mails: list[tuple[str, list[str], EmailMessage]] = []

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address == "unknown@example.com":
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        message = email.message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(message, EmailMessage)
        self.mails.append((envelope.mail_from, envelope.rcpt_tos, message))
        return "250 OK"

    def recipients(self) -> list[str]:
        return [address for _, recipients, _ in self.mails for address in recipients]

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.mails) >= count, what=f"mail number {count}")

    @contextmanager
    def listens(self, port: int) -> Iterator[None]:
        from aiosmtpd.controller import Controller

        controller = Controller(self, hostname="127.0.0.1", port=port)
        controller.start()
        yield
        controller.stop()


@contextmanager
def forwards(port: int, file: Path | None = None) -> Iterator[Api]:
    with Emulator(NO_BOUNCES, file=file, forward_smtp=f"127.0.0.1:{port}") as emulator:
        api = Api(emulator)
        if not emulator.senders():
            emulator.add_sender("news@example.com")
        yield api
        api.close()
        assert emulator.crashes() == []


def send(api: Api, to: str, **body: Any) -> None:
    content = {"subject": "Grüße", "content": "<p>Hello <b>Ada</b></p>"}
    api.ok(SEND, **LETTER | content | body, to={"email": to})


def test_mail_is_forwarded_once_it_is_delivered() -> None:
    """It waits for the server; rejected mail is skipped."""
    catcher, port = Catcher(), free_port()
    with forwards(port) as api:
        api.emulator.suppress("gone@example.com")
        send(api, "later@example.com", sendDate="2999-01-01T00:00:00Z")
        send(api, "gone@example.com")
        send(api, "unknown@example.com")
        send(api, "ada@example.com", senderName="News", replyTo="answers@example.com")
        with catcher.listens(port):
            catcher.wait_for(1)
            ((sender, recipients, message),) = catcher.mails
            assert (sender, recipients) == ("news@example.com", ["ada@example.com"])
            assert (message["Subject"], message["From"], message["Reply-To"]) == (
                "Grüße", "News <news@example.com>", "answers@example.com",
            )  # fmt: skip
            text, html = message.iter_parts()
            assert (text.get_content().strip(), html.get_content().strip()) == ("Hello Ada", "<p>Hello <b>Ada</b></p>")
            api.emulator.clock.set("2999-01-01T00:00:00Z")
            catcher.wait_for(2)
            assert catcher.recipients()[1:] == ["later@example.com"]


def test_each_recipient_of_a_campaign_gets_one() -> None:
    catcher, port = Catcher(), free_port()
    with catcher.listens(port), forwards(port) as api:
        api.emulator.add_list("Reader", count=250)
        api.campaign("spring", sendListNames=["Reader"], subject="For {{email}}", content="<p>x</p>")
        api.emulator.clock.advance(minutes=1)
        catcher.wait_for(250)
        send(api, "last@example.com")
        catcher.wait_for(251)
    assert set(catcher.recipients()) == {"last@example.com", *(f"reader-{number}@example.com" for number in range(250))}
    assert len(catcher.mails) == 251
    assert all(message["Subject"] == f"For {to[0]}" for _, to, message in catcher.mails[:-1])


def test_a_new_start_forwards_nothing_again(tmp_path: Path) -> None:
    catcher, port = Catcher(), free_port()
    with catcher.listens(port):
        for number in range(2):
            with forwards(port, tmp_path / "state.db") as api:
                send(api, f"{number}@example.com")
                catcher.wait_for(number + 1)
    assert catcher.recipients() == ["0@example.com", "1@example.com"]
