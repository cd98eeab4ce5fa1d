"""Secrets of a connection are masked by Airflow's own masker once a hook has read it, and shown by nothing of ours."""

from __future__ import annotations

import asyncio
import io
import logging
import secrets
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from airflow_provider_mail.api.errors import MailConfigError, chain_of
from airflow_provider_mail.api.lists import GetLists
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.hooks.connection import FIELDS
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.version_compat import redact

SECRETS = ["password", *(name for name, field in FIELDS.items() if field.secret)]


class Masking(logging.Filter):
    """What Airflow does to every line of a task's log."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redact(record.getMessage()), None
        return True


@contextmanager
def captured_log(*filters: logging.Filter) -> Iterator[io.StringIO]:
    """Everything that is logged, at any level."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    for each in filters:
        handler.addFilter(each)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield text
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


@pytest.fixture
def planted(make_hook: Callable[..., MailHook]) -> dict[str, str]:
    """Secrets that nobody can have masked before, in the connection `mail_test`."""
    planted = {name: f"planted-{secrets.token_hex(8)}" for name in SECRETS}
    extra = {name: value for name, value in planted.items() if name in FIELDS}
    make_hook(host="https://api.example.com", password=planted["password"], extra=extra)
    return planted


def sync_read(hook: MailHook) -> None:
    hook.get_conn()


def async_read(hook: MailHook) -> None:
    async def read() -> None:
        async with await hook.get_async_conn():
            pass

    asyncio.run(read())


def test_there_are_secrets_to_look_for() -> None:
    assert SECRETS == ["password", "access_token", "client_secret"]


@pytest.mark.parametrize("read", [sync_read, async_read])
@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_masked_in_log_lines(planted: dict[str, str], name: str, read: Callable[[MailHook], None]) -> None:
    read(MailHook("mail_test"))

    with captured_log(Masking()) as log:
        logging.getLogger("somebody.elses").info("it is %s, you know", planted[name])
    assert log.getvalue() == "it is ***, you know\n"


def test_nothing_of_ours_shows_a_secret(planted: dict[str, str]) -> None:
    hook = MailHook("mail_test")
    shown = [repr(hook), repr(hook.config), str(hook.config), hook.config.model_dump_json(), repr(hook.get_conn())]
    assert not [text for text in shown for secret in planted.values() if secret in text]


@pytest.mark.parametrize("wrong", [{"timeout": "soon"}, {"auth_type": "basic"}, {"sandbox": []}, {"surprise": 1}])
def test_no_error_about_a_connection_shows_a_secret(
    make_hook: Callable[..., MailHook], wrong: dict[str, object]
) -> None:
    planted = {name: f"planted-{secrets.token_hex(8)}" for name in SECRETS}
    extra = {name: value for name, value in planted.items() if name in FIELDS}
    hook = make_hook(host="https://api.example.com", password=planted["password"], extra={**extra, **wrong})

    works, words = hook.test_connection()
    assert not works
    assert not [secret for secret in planted.values() if secret in words]

    with pytest.raises(MailConfigError) as caught:
        MailHook("mail_test").get_conn()
    # As those print it who show variables: Airflow 3.0 on its console, services that collect errors.
    shown = "".join(
        line
        for link in chain_of(caught.value)
        for line in traceback.TracebackException.from_exception(link, capture_locals=True).format(chain=False)
        if "tests/" not in line
    )
    assert not [secret for secret in planted.values() if secret in shown]


def test_nothing_is_logged_about_a_request_that_needs_masking(
    make_hook: Callable[..., MailHook], emulator: Emulator
) -> None:
    planted = f"planted-{secrets.token_hex(8)}"
    emulator.change_settings(api_key=planted)
    with captured_log() as log:
        make_hook(host=emulator.base_url, password=planted).send(GetLists(search="looked for"))
    assert "send_request_headers.complete" in log.getvalue(), "httpcore logs the request: there is something to find"
    assert planted not in log.getvalue()
    assert "looked for" not in log.getvalue()
