"""Delivered mail reaches an SMTP server."""

from __future__ import annotations

import email
from email import policy
from email.message import EmailMessage
from typing import Any

from mail_emulator import Emulator, EmulatorSettings
from tests.emulator.conftest import LETTER, SEND, Api
from tests.support.processes import free_port, wait_until


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


def test_mail_reaches_a_server_that_starts_later() -> None:
    from aiosmtpd.controller import Controller

    catcher, port = Catcher(), free_port()
    settings = EmulatorSettings(hard_bounce_rate=0.0, soft_bounce_rate=0.0)
    with Emulator(settings, forward_smtp=f"127.0.0.1:{port}") as emulator:
        emulator.add_sender("news@example.com")
        api = Api(emulator)
        letter = {"subject": "Grüße", "content": "<p>Hello <b>Ada</b></p>", "senderName": "News"}
        for to in ("unknown@example.com", "ada@example.com"):
            api.ok(SEND, **LETTER | letter, replyTo="answers@example.com", to={"email": to})
        api.close()
        controller = Controller(catcher, hostname="127.0.0.1", port=port)
        controller.start()
        wait_until(lambda: catcher.mails, what="mail")
        controller.stop()
        assert emulator.crashes() == []
    ((sender, recipients, message),) = catcher.mails
    assert (sender, recipients) == ("news@example.com", ["ada@example.com"])
    headers = ("Grüße", "News <news@example.com>", "answers@example.com")
    assert (message["Subject"], message["From"], message["Reply-To"]) == headers
    text, html = message.iter_parts()
    assert (text.get_content().strip(), html.get_content().strip()) == ("Hello Ada", "<p>Hello <b>Ada</b></p>")
