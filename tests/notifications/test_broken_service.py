"""Whatever is wrong with the service or the settings, nobody but the log hears of it: one line, and no waiting."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.notifications.mail import MailNotifier
from airflow_provider_mail.utils.emailer import send_email
from tests.api.wire import Wire
from tests.notifications.conftest import PEOPLE
from tests.support.processes import free_port
from tests.tasks.conftest import Connect
from tests.tasks.sending import SENDS

FAILED = {"ti": None, "exception": "no"}
Tell = Callable[..., None]


def call(**arguments: Any) -> None:
    MailNotifier(**{"to": PEOPLE} | arguments)(dict(FAILED))


def wait_for(**arguments: Any) -> None:
    asyncio.run(MailNotifier(**{"to": PEOPLE} | arguments).async_notify(dict(FAILED)))


def back_end(**arguments: Any) -> None:
    given = {"to": PEOPLE, "sender_mail": None} | arguments
    send_email(given["to"], "Hello", "<p>Hello</p>", from_email=given["sender_mail"])


@pytest.fixture
def seconds() -> float:
    """The time within which a message is sent or given up: enough on a busy machine."""
    return 60.0


@pytest.fixture(params=[call, wait_for, back_end], ids=["called", "awaited", "email_backend"])
def tell(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, seconds: float) -> Tell:
    """A way to write to people."""
    monkeypatch.setattr("airflow_provider_mail.utils.emailer.DEFAULT_TIMEOUT", seconds)
    return functools.partial(request.param, timeout=seconds)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """A function that gives the one line that was logged as an error, with nothing in it that should not be there."""

    def said() -> str:
        ours = [record for record in caplog.records if record.name.startswith("airflow_provider_mail")]
        (line,) = [record for record in ours if record.levelno >= logging.ERROR]
        assert line.exc_info is None
        assert "\n" not in line.getMessage()
        assert not [address for address in PEOPLE if address in caplog.text]
        return line.getMessage()

    return said


@pytest.mark.parametrize(
    ("kind", "parameters", "words"),
    [
        ("code_before", {"code": 403, "message": "no credits left for ada@example.com"}, "not sent"),
        ("http_error_after", {"status": 502}, "possibly sent"),
        ("html_after", {}, "possibly sent"),
        ("cut_json", {}, "possibly sent"),
        ("redirect", {}, "not sent"),
    ],
)
def test_a_service_that_fails(
    emulator: Emulator, tell: Tell, said: Callable[[], str], kind: str, parameters: dict[str, Any], words: str
) -> None:
    emulator.faults.add(kind, SENDS, count=None, **parameters)

    tell()

    assert said().startswith(f"Mail: {words} (connection 'mail_default'): /v5/transactional/mail/sends_customised: ")
    assert emulator.journal.count(SENDS) == 1


def test_what_was_not_carried_out_is_tried_again(
    emulator: Emulator, tell: Tell, caplog: pytest.LogCaptureFixture
) -> None:
    emulator.faults.add("too_many_requests", SENDS, retry_after=0)

    tell()

    assert len(emulator.messages()) == 1
    assert "Mail: accepted for 2 recipients" in caplog.text


def test_a_refused_key(emulator: Emulator, connect: Connect, tell: Tell, said: Callable[[], str]) -> None:
    connect(password="wrong")
    tell()
    assert "the service rejected the credentials" in said()
    assert emulator.messages() == []


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch, tell: Tell, said: Callable[[], str]) -> None:
    connection = {"conn_type": "mail", "host": f"http://127.0.0.1:{free_port()}", "password": "key"}
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps(connection))
    tell()
    assert "cannot be reached: nothing listens there" in said()


@contextlib.contextmanager
def slow(pieces: Callable[[socket.socket], None]) -> Iterator[tuple[Wire, threading.Event]]:
    """A service that has not answered before the end of the `with`, and the event of that end."""
    end = threading.Event()

    def answer(connection: socket.socket) -> None:
        while not end.wait(0.05):
            pieces(connection)

    with Wire(answer) as wire:
        try:
            yield wire, end
        finally:
            end.set()


@pytest.mark.parametrize("seconds", [1.0])
@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        pytest.param(lambda connection: None, "the response was lost", id="silent"),
        # No pause is longer than any time-out for a part of the answer.
        pytest.param(lambda connection: connection.sendall(b"X"), "no response within 1 s", id="dripping"),
    ],
)
def test_a_service_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
    tell: Tell,
    said: Callable[[], str],
    pieces: Callable[[socket.socket], None],
    words: str,
) -> None:
    with slow(pieces) as (wire, end):
        connection = {"conn_type": "mail", "host": wire.base_url, "password": "key"}
        monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps(connection))

        tell()

        assert not end.is_set()
        assert len(wire.requests) == 1
    assert "possibly sent" in said()
    assert words in said()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"AIRFLOW_CONN_MAIL_DEFAULT": None}, "mail_default"),
        ({"AIRFLOW_CONN_MAIL_DEFAULT": '{"conn_type": "mail"}'}, "host (base URL): is empty"),
        ({"AIRFLOW__EMAIL__FROM_EMAIL": ""}, "[email] from_email"),
        ({"AIRFLOW__EMAIL__FROM_EMAIL": "nobody"}, "sender_mail: is not an email address"),
        (
            {"AIRFLOW__EMAIL__FROM_EMAIL": "else@example.org"},
            "senderMail else@example.org is not a sender of the account",
        ),
    ],
)
def test_wrong_settings(
    monkeypatch: pytest.MonkeyPatch,
    tell: Tell,
    said: Callable[[], str],
    settings: dict[str, str | None],
    words: str,
) -> None:
    for name, value in settings.items():
        if value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)
    tell()
    assert words in said()


@pytest.mark.parametrize("to", ["", "nobody", None, 7])
def test_nobody_to_write_to(emulator: Emulator, tell: Tell, said: Callable[[], str], to: Any) -> None:
    tell(to=to)
    assert "Mail: not sent" in said()
    assert emulator.journal.count() == 0


def test_one_wrong_address(emulator: Emulator, tell: Tell, caplog: pytest.LogCaptureFixture) -> None:
    tell(to=[*PEOPLE, "planted(at)example.com"])

    assert len(emulator.messages()) == 1
    assert "Mail: skipped: to[2].email: is not an email address" in caplog.text
    assert "planted" not in caplog.text
