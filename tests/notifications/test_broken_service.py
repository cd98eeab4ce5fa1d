"""Whatever is wrong with the service or the settings: one line in the log, and no task waits or fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.utils import emailer
from mail_emulator import Emulator
from tests.notifications.conftest import PEOPLE, notify
from tests.support.processes import PATIENCE
from tests.tasks.conftest import Connect
from tests.tasks.sending import SENDS

FAILED = {"ti": None, "exception": "no"}
Send = Callable[..., None]


def call(**arguments: Any) -> None:
    notify(FAILED, **{"to": PEOPLE} | arguments)


def back_end(**arguments: Any) -> None:
    emailer.send_email(arguments.get("to", PEOPLE), "Hello", "<p>Hello</p>")


@pytest.fixture(params=[call, back_end], ids=["called", "email_backend"])
def send(request: pytest.FixtureRequest) -> Send:
    """A way to write to people."""
    return request.param


@pytest.fixture
def line(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """A function that gives the one line that was logged as an error, with nothing in it that should not be there."""

    def line() -> str:
        ours = [record for record in caplog.records if record.name.startswith("airflow_provider_mail")]
        (error,) = [record for record in ours if record.levelno >= logging.ERROR]
        assert error.exc_info is None
        assert "\n" not in error.getMessage()
        assert not [address for address in PEOPLE if address in caplog.text]
        return error.getMessage()

    return line


@pytest.mark.parametrize(
    ("fault", "parameters", "words"),
    [
        ("code_before", {"code": 403, "message": "no credits left for ada@example.com"}, "not sent"),
        ("http_error_after", {"status": 502}, "possibly sent"),
        ("html_after", {}, "possibly sent"),
        ("cut_json", {}, "possibly sent"),
        ("redirect", {}, "not sent"),
    ],
)
def test_what_the_service_does_not_accept_is_sent_once(
    emulator: Emulator, send: Send, line: Callable[[], str], fault: str, parameters: dict[str, Any], words: str
) -> None:
    emulator.faults.add(fault, SENDS, count=None, **parameters)
    send()
    assert line().startswith(f"Mail: {words} (connection 'mail_default'): /v5/transactional/mail/sends_customised: ")
    assert emulator.journal.count(SENDS) == 1


def test_what_was_not_carried_out_is_tried_again(
    emulator: Emulator, send: Send, caplog: pytest.LogCaptureFixture
) -> None:
    emulator.faults.add("too_many_requests", SENDS, retry_after=1)
    send(to=[*PEOPLE, "planted(at)example.com"])
    assert len(emulator.messages()) == 1
    assert "Mail: accepted for 2 recipients" in caplog.text
    assert "Mail: skipped: to[2].email: is not an email address" in caplog.text
    assert "planted" not in caplog.text


class HangingClient:
    """Never gets a response, until the test ends."""

    def __init__(self) -> None:
        self.asked, self.end = threading.Event(), threading.Event()

    def send(self, request: Any) -> None:
        assert not self.asked.is_set()
        self.asked.set()
        self.end.wait(PATIENCE)


def test_a_service_that_hangs_delays_nothing_for_long(
    send: Send, line: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = HangingClient()
    monkeypatch.setattr(MailHook, "get_conn", lambda hook: client)
    monkeypatch.setattr(emailer, "DEFAULT_TIMEOUT", 0.05)
    send(timeout=0.05)
    assert client.asked.wait(PATIENCE), "the thread that sends may have begun late"
    client.end.set()
    assert "possibly sent" in line()
    assert "no response within" in line()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"AIRFLOW_CONN_MAIL_DEFAULT": None}, "mail_default"),
        ({"AIRFLOW_CONN_MAIL_DEFAULT": '{"conn_type": "mail", "password": "key"}'}, "host (base URL): is empty"),
        ({"AIRFLOW_CONN_MAIL_DEFAULT": "mail://:key@127.0.0.1:1/http"}, "cannot be reached: nothing listens there"),
        ({"AIRFLOW__EMAIL__FROM_EMAIL": ""}, "[email] from_email (AIRFLOW__EMAIL__FROM_EMAIL)"),
        ({"AIRFLOW__EMAIL__FROM_EMAIL": "airflow@airflow"}, "[email] from_email"),
        ({"AIRFLOW__EMAIL__FROM_EMAIL": "no address"}, "sender_mail: is not an email address"),
        ({"AIRFLOW__EMAIL__FROM_EMAIL": "else@example.org"}, "else@example.org is not a sender of the account"),
        ({"password": "wrong"}, "the service rejected the credentials"),
    ],
)
def test_a_wrong_setting_is_named(
    monkeypatch: pytest.MonkeyPatch, connect: Connect, emulator: Emulator, send: Send, line: Callable[[], str],
    settings: dict[str, Any], words: str,
) -> None:  # fmt: skip
    for name, value in settings.items():
        if name == "password":
            connect(password=value)
        elif value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)
    send()
    assert words in line()
    assert emulator.messages() == []


@pytest.mark.parametrize("to", ["", "no address", None, 7])
def test_without_a_recipient_nothing_is_sent(emulator: Emulator, send: Send, line: Callable[[], str], to: Any) -> None:
    send(to=to)
    assert "Mail: not sent" in line()
    assert emulator.journal.count() == 0
