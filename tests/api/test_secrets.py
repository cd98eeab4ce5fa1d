"""Secrets and addresses are planted in every shape of failure and searched for in all that leaves the client."""

from __future__ import annotations

import json
import logging
import re
import socket
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_mail.api._core.exchange import Exchange
from airflow_provider_mail.api._core.requests import MailRequest
from airflow_provider_mail.api._core.responses import HttpResponse
from airflow_provider_mail.api.campaigns import Campaign
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.contacts import Contact, DeleteContact, GetContact, GetContactResponse, UpsertContact
from airflow_provider_mail.api.errors import MailError, MailValidationError
from airflow_provider_mail.api.lists import AddList, GetLists
from airflow_provider_mail.api.oauth import GetToken
from airflow_provider_mail.api.transactional import Recipient, SendBatch, SendMail
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.emulator.faults import FAULT_KINDS
from tests.api.driving import KINDS, QUICK, Driver
from tests.api.wire import Wire, http
from tests.support.sampling import pairwise

KEY = "planted-key"
TOKEN = "planted-token"
CLIENT_SECRET = "planted-client-secret"
CODE = "planted-code"
ADDRESS = "planted.person@example.com"

REQUESTS: list[MailRequest[Any]] = [
    GetContact(email=ADDRESS),
    UpsertContact(email=ADDRESS, name="Ada"),
    AddList(list_name="customers"),
    DeleteContact(email=ADDRESS),
    SendMail(subject="s", content="c", sender_mail="news@example.com", to=Recipient(email=ADDRESS)),
    GetToken(client_id="emulator-client", client_secret=CLIENT_SECRET, code=CODE),
]


def traces(error: BaseException) -> str:
    """Everything that can be printed of an error, and of all that it leads to."""
    told, todo, done = [], [error], set()
    while todo:
        each = todo.pop()
        if id(each) in done:
            continue
        done.add(id(each))
        told += [str(each), repr(each), repr(each.args), repr(vars(each)), *map(str, getattr(each, "__notes__", []))]
        told += traceback.format_exception(each)
        todo += [linked for linked in (each.__cause__, each.__context__) if linked is not None]
    return "\n".join(told)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], str]]:
    """All log records at DEBUG, of every library."""
    loggers = [logging.getLogger(name) for name in ("", "httpx", "httpcore", "asyncio", "airflow_provider_mail")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
    yield lambda: "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def assert_clean(text: str) -> None:
    assert "planted" not in text


@pairwise(
    auth=["api_key", "oauth"],
    kind=[
        kind.name for kind in FAULT_KINDS.values() if kind.operations is None and kind.outcome not in ("odd", "slow")
    ],
    connect=KINDS,
    indirect=["connect"],
)
def test_no_fault_brings_a_secret_or_an_address_to_light(
    auth: str, kind: str, emulator: Emulator, connect: Callable[..., Driver], logged: Callable[[], str]
) -> None:
    secrets = {"api_key": KEY} if auth == "api_key" else {"api_key": None, "auth_type": "oauth", "access_token": TOKEN}
    emulator.settings.api_key = KEY
    params = {"retry_after": 999} if kind == "too_many_requests" else {}
    emulator.faults.add(kind, count=None, **params)
    client = connect(emulator.base_url, retry=QUICK, **secrets)
    for request in REQUESTS:
        with pytest.raises(MailError) as raised:
            client.send(request)
        assert_clean(traces(raised.value))
    assert "HTTP Request" in logged() or kind in (
        "refuse",
        "close_before",
        "close_after",
        "reset_before",
        "reset_after",
    )
    assert_clean(logged())


@pairwise(
    code=[400, 401, 500],
    status=["200 OK", "401 Unauthorized", "400 Bad Request", "500 Oh"],
    connect=KINDS,
    indirect=["connect"],
)
def test_a_service_that_repeats_what_it_was_sent_is_not_quoted(
    code: int, status: str, connect: Callable[..., Driver], logged: Callable[[], str]
) -> None:
    def repeat(connection: socket.socket) -> None:
        words = "refused: " + ", ".join(re.findall(r"planted[-.\w@]*|Ada", wire.requests[-1].decode()))
        connection.sendall(http(json.dumps({"code": code, "message": words}).encode(), status))

    with Wire(repeat) as wire:
        for secrets in ({"api_key": KEY}, {"api_key": None, "auth_type": "oauth", "access_token": TOKEN}):
            client = connect(wire.base_url, **secrets)
            for request in REQUESTS:
                with pytest.raises(MailError) as raised:
                    client.send(request)
                assert "***" in str(raised.value)
                assert_clean(traces(raised.value))
    assert_clean(logged())


@pytest.mark.both_clients
def test_the_query_of_the_token_exchange_is_in_no_log(
    emulator: Emulator, connect: Callable[..., Driver], logged: Callable[[], str]
) -> None:
    with pytest.raises(MailError):
        connect(emulator.base_url).send(REQUESTS[-1])
    assert emulator.journal.count() == 1
    assert "/v5/auth/oauth/token" in logged(), "the request was logged"
    assert_clean(logged())


@pytest.mark.both_clients
def test_nobody_listening_and_no_such_host(
    connect: Callable[..., Driver], logged: Callable[[], str], no_such_host: str
) -> None:
    for address in ("http://127.0.0.1:9", "https://127.0.0.1:9", f"http://{no_such_host}"):
        for request in REQUESTS:
            with pytest.raises(MailError) as raised:
                connect(address, api_key=KEY).send(request)
            assert_clean(traces(raised.value))
    assert_clean(logged())


def test_representations_hide_secrets() -> None:
    config = ClientConfig(base_url="http://x.example", api_key=KEY, access_token=TOKEN)
    core = Exchange(config, GetLists(page_size=1))
    for request in REQUESTS[:1] + REQUESTS[-1:]:
        steps = core.send(request)
        call = next(steps)
        assert_clean(repr(call))
        assert_clean(str(call))
    for each in (config, core, REQUESTS[-1], HttpResponse(200, {"x": KEY}, KEY.encode())):
        assert_clean(repr(each))
        assert_clean(str(each))
        assert_clean(f"{each}")


def test_representations_hide_people() -> None:
    contact = Contact(id=1, email=ADDRESS, name="planted", phone_number="planted", properties={"city": "planted"})
    response = GetContactResponse(contact=contact)
    batch = SendBatch(
        sender_mail="news@example.com",
        subject="s",
        content="c",
        params={"name": "planted"},
        message_versions=[{"to": [{"email": ADDRESS, "name": "planted"}], "params": {"name": "planted"}}],
    )
    for each in (*REQUESTS, contact, response, batch, Campaign(mail_name="c", mail_status=1, rcpt_emails=[ADDRESS])):
        assert_clean(repr(each))
        assert_clean(str(each))
    assert "mail_name='c'" in repr(Campaign(mail_name="c", mail_status=1))


def test_a_token_is_read_and_not_shown(emulator: Emulator, connect: Callable[..., Driver]) -> None:
    with Wire(http(f'{{"code": 200, "accessToken": "{TOKEN}", "expiresIn": -1}}'.encode())) as wire:
        token = connect(wire.base_url).send(REQUESTS[-1])
    assert token.access_token.get_secret_value() == TOKEN
    assert_clean(repr(token))
    assert_clean(str(token))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ClientConfig(base_url="x", api_key=KEY + "\n" + KEY, access_token=TOKEN),
        lambda: ClientConfig(base_url="http://x.example", api_key=KEY + "ä"),
        lambda: ClientConfig(base_url="http://x.example", auth_type="oauth", api_key=KEY, access_token=TOKEN + "\x00"),
        lambda: ClientConfig(base_url=f"http://user:{KEY}@x.example", api_key="k"),
        lambda: ClientConfig(base_url="http://x.example", proxy=f"http://user:{KEY}@x.example", api_key="k"),
        lambda: ClientConfig(base_url="http://x.example", api_key=[KEY], auth_type=TOKEN),
    ],
)
def test_settings_that_are_refused_are_not_quoted(make: Callable[[], ClientConfig]) -> None:
    with pytest.raises(MailError) as raised:
        make()
    assert_clean(traces(raised.value))


@pytest.mark.parametrize(
    "make",
    [
        lambda: SendMail(subject="s", content="c", sender_mail="x", to=Recipient(email=ADDRESS)),
        lambda: SendMail(subject="s", content="c", sender_mail=f"{ADDRESS} ", to={"email": ADDRESS, "nmae": ADDRESS}),
        lambda: UpsertContact(email=f"<{ADDRESS}>"),
        lambda: GetToken(client_id="", client_secret=CLIENT_SECRET, code=CODE),
    ],
)
def test_requests_that_are_refused_are_not_quoted(make: Callable[[], MailRequest[Any]]) -> None:
    with pytest.raises(MailValidationError) as raised:
        make()
    assert_clean(traces(raised.value))
