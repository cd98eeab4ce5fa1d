"""Delivered mail reaches an SMTP server, each once."""

from __future__ import annotations

import email
from collections.abc import Iterator
from email import policy
from email.message import EmailMessage
from typing import Any

import pytest

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.emulator.inbox.forward import parse_address
from tests.emulator.conftest import Api
from tests.support.processes import free_port, wait_until


class Catcher:
    """An SMTP server that keeps what it accepts: (sender, recipients, message)."""

    def __init__(self) -> None:
        self.mails: list[tuple[str, list[str], EmailMessage]] = []
        self.refused = "nobody@example.com"

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address == self.refused:
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


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def emulator(port: int) -> Iterator[Emulator]:
    """The email service, which forwards to a port where nothing listens yet."""
    with Emulator(forward_smtp=f"127.0.0.1:{port}") as running:
        running.add_sender("news@example.com")
        running.change_settings(hard_bounce_rate=0.0, soft_bounce_rate=0.0)
        yield running
        assert running.crashes() == []


@pytest.fixture
def catcher(port: int, emulator: Emulator) -> Iterator[Catcher]:
    from aiosmtpd.controller import Controller

    catcher = Catcher()
    controller = Controller(catcher, hostname="127.0.0.1", port=port)
    controller.start()
    yield catcher
    controller.stop()


def send(api: Api, to: str, **body: Any) -> None:
    body = {"subject": "Grüße", "content": "<p>Hello <b>Ada</b></p>", "senderMail": "news@example.com", **body}
    api.ok("transactional/mail/sends_customised", to={"email": to}, **body)


@pytest.mark.not_unit
def test_mail_is_forwarded_once_it_is_delivered(api: Api, catcher: Catcher) -> None:
    api.emulator.suppress("gone@example.com")
    tomorrow = f"{api.emulator.clock.now().date().replace(year=2100)}T00:00:00Z"
    send(api, "later@example.com", sendDate=tomorrow)
    send(api, "gone@example.com")
    send(api, "nobody@example.com")
    send(api, "ada@example.com", senderName="News", replyTo="answers@example.com")
    wait_until(catcher.recipients, what="mail")
    (sender, recipients, message), *others = catcher.mails
    assert (sender, recipients, others) == ("news@example.com", ["ada@example.com"], [])
    assert (message["Subject"], message["From"], message["Reply-To"]) == (
        "Grüße", "News <news@example.com>", "answers@example.com"
    )  # fmt: skip
    text, html = message.iter_parts()
    assert (text.get_content().strip(), html.get_content().strip()) == ("Hello Ada", "<p>Hello <b>Ada</b></p>")
    api.emulator.clock.set(tomorrow)
    wait_until(lambda: len(catcher.mails) == 2, what="the scheduled mail")
    assert catcher.recipients()[1:] == ["later@example.com"]


@pytest.mark.not_unit
def test_every_recipient_of_a_campaign_gets_one(api: Api, catcher: Catcher) -> None:
    api.emulator.add_list("Reader", count=250)
    api.campaign("spring", sendListNames=["Reader"], subject="For {{email}}", content="<p>x</p>")
    api.emulator.clock.advance(minutes=1)
    wait_until(lambda: len(catcher.mails) >= 250, what="the campaign", timeout=60)
    send(api, "last@example.com")
    wait_until(lambda: "last@example.com" in catcher.recipients(), what="the last mail")
    assert sorted(catcher.recipients()) == sorted(
        ["last@example.com", *(f"reader-{number}@example.com" for number in range(250))]
    )
    assert all(message["Subject"] == f"For {to[0]}" for _, to, message in catcher.mails[:-1])


@pytest.mark.not_unit
def test_mail_waits_for_the_server(api: Api, request: pytest.FixtureRequest) -> None:
    send(api, "ada@example.com")
    catcher = request.getfixturevalue("catcher")
    wait_until(catcher.recipients, what="mail")
    assert catcher.recipients() == ["ada@example.com"]


@pytest.mark.not_unit
def test_a_new_start_forwards_nothing_again(tmp_path: Any, port: int, catcher: Catcher) -> None:
    file = tmp_path / "state.db"
    for number in range(2):
        with Emulator(file=file, forward_smtp=f"127.0.0.1:{port}") as emulator:
            if not number:
                emulator.add_sender("news@example.com")
            emulator.change_settings(hard_bounce_rate=0.0, soft_bounce_rate=0.0)
            api = Api(emulator)
            send(api, f"{number}@example.com")
            wait_until(lambda: len(catcher.mails) > number, what="mail")  # noqa: B023
            api.close()
    assert catcher.recipients() == ["0@example.com", "1@example.com"]


def test_addresses_of_servers() -> None:
    assert parse_address("localhost:1025") == ("localhost", 1025)
    assert parse_address("[::1]:25") == ("::1", 25)
    for wrong in ("localhost", ":25", "localhost:", "localhost:x", "localhost:0", "localhost:99999", ""):
        with pytest.raises(ValueError, match="HOST:PORT"):
            parse_address(wrong)
