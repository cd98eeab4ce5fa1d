"""Secrets of a connection are masked by Airflow once a hook has read it, and shown by nothing of ours."""

from __future__ import annotations

import asyncio
import io
import logging
import secrets
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_provider_mail.api.errors import MailConfigError, chain_of
from airflow_provider_mail.api.lists import GetLists
from airflow_provider_mail.hooks.connection import FIELDS
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.version_compat import redact
from mail_emulator import Emulator

SECRETS = ["password", *(name for name, field in FIELDS.items() if field.secret)]


@contextmanager
def captured_log() -> Iterator[io.StringIO]:
    """Everything that is logged, at any level."""
    text, root = io.StringIO(), logging.getLogger()
    handler, level = logging.StreamHandler(text), root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield text
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


@pytest.fixture
def plant(make_hook: Callable[..., MailHook]) -> Callable[..., dict[str, str]]:
    """Make the connection `mail_test` with secrets that nothing can have masked before, and return them."""

    def make(**others: object) -> dict[str, str]:
        planted = {name: f"planted-{secrets.token_hex(8)}" for name in SECRETS}
        extra = {name: value for name, value in planted.items() if name in FIELDS}
        make_hook(host="https://api.example.com", password=planted["password"], extra={**extra, **others})
        return planted

    return make


async def open_async(hook: MailHook) -> None:
    async with await hook.get_async_conn():
        pass


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_secrets_are_masked_in_log_lines(plant: Callable[..., dict[str, str]], kind: str) -> None:
    assert SECRETS == ["password", "access_token", "client_secret"]
    planted, hook = plant(), MailHook("mail_test")
    if kind == "sync":
        shown = [repr(hook), repr(hook.config), hook.config.model_dump_json(), repr(hook.get_conn())]
        assert not [text for text in shown for secret in planted.values() if secret in text]
    else:
        asyncio.run(open_async(hook))
    assert [redact(f"it is {planted[name]}, you know") for name in SECRETS] == ["it is ***, you know"] * 3


@pytest.mark.parametrize("wrong", [{"timeout": "soon"}, {"auth_type": "basic"}, {"sandbox": []}, {"surprise": 1}])
def test_no_error_about_a_connection_shows_a_secret(plant: Callable[..., dict[str, str]], wrong: Any) -> None:
    planted = plant(**wrong)
    works, message = MailHook("mail_test").test_connection()
    assert not works
    with pytest.raises(MailConfigError) as raised:
        MailHook("mail_test").get_conn()
    # With variables, as Airflow 3.0 prints it on its console, and services that collect errors.
    links = [traceback.TracebackException.from_exception(link, capture_locals=True) for link in chain_of(raised.value)]
    lines = [line for link in links for line in link.format(chain=False) if "tests/" not in line]
    assert not [secret for secret in planted.values() if secret in message + "".join(lines)]


def test_the_logs_of_a_request_need_no_masking(make_hook: Callable[..., MailHook], emulator: Emulator) -> None:
    planted = f"planted-{secrets.token_hex(8)}"
    emulator.change_settings(api_key=planted)
    with captured_log() as log:
        make_hook(host=emulator.base_url, password=planted).send(GetLists(search="looked for"))
    assert "send_request_headers.complete" in log.getvalue(), "httpcore logs the request: there is something to find"
    assert planted not in log.getvalue()
    assert "looked for" not in log.getvalue()
