"""Secrets and addresses are planted in every kind of failure and searched for in all that leaves the client."""

from __future__ import annotations

import json
import logging
import re
import socket
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail import api
from airflow_provider_mail.api._core.exchange import Exchange
from airflow_provider_mail.api._core.requests import MailRequest
from airflow_provider_mail.api._core.responses import HttpResponse
from airflow_provider_mail.api.contacts import GetContactResponse
from airflow_provider_mail.api.errors import chain_of
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.emulator.faults import FAULT_KINDS
from tests.api.driving import KINDS, Driver
from tests.api.wire import Wire, closed_port, http
from tests.support.sampling import pairwise

KEY, TOKEN, CLIENT_SECRET, CODE = "planted-key", "planted-token", "planted-client-secret", "planted-code"
ADDRESS = "planted.person@example.com"
CREDENTIALS: list[dict[str, Any]] = [{"api_key": KEY}, {"api_key": None, "auth_type": "oauth", "access_token": TOKEN}]

REQUESTS: list[MailRequest[Any]] = [
    api.GetContact(email=ADDRESS),
    api.UpsertContact(email=ADDRESS, name="Ada"),
    api.AddList(list_name="customers"),
    api.DeleteContact(email=ADDRESS),
    api.SendMail(subject="s", content="c", sender_mail="news@example.com", to=api.Recipient(email=ADDRESS)),
    api.GetToken(client_id="emulator-client", client_secret=CLIENT_SECRET, code=CODE),
]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """All log records at DEBUG, of every library."""
    for name in ("", "httpx", "httpcore", "asyncio", "airflow_provider_mail"):
        caplog.set_level(logging.DEBUG, name)
    return lambda: "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)


def assert_clean(*texts: str) -> None:
    assert not [text for text in texts if "planted" in text]


def fails(action: Callable[[], object], kind: type[api.MailError] = api.MailError) -> str:
    """What can be printed of the error, and of all that it leads to; it shows nothing planted."""
    with pytest.raises(kind) as raised:
        action()
    text = "\n".join(
        f"{error} {error!r} {error.args!r} {vars(error)!r} {getattr(error, '__notes__', '')}"
        for error in chain_of(raised.value)
    )
    assert_clean(text + "".join(traceback.format_exception(raised.value)))
    return text


@pairwise(
    credentials=CREDENTIALS,
    kind=[
        kind.name for kind in FAULT_KINDS.values() if kind.operations is None and kind.outcome not in ("odd", "slow")
    ],
    connect=KINDS,
    indirect=["connect"],
)
def test_no_fault_shows_a_secret_or_an_address(
    credentials: dict[str, Any],
    kind: str,
    emulator: Emulator,
    connect: Callable[..., Driver],
    logged: Callable[[], str],
) -> None:
    emulator.settings.api_key = KEY
    emulator.faults.add(kind, count=None, **({"retry_after": 999} if kind == "too_many_requests" else {}))
    client = connect(emulator.base_url, **credentials)
    for request in REQUESTS:
        fails(lambda request=request: client.send(request))  # type: ignore[misc]
    assert "/v5/auth/oauth/token" in logged() or kind.startswith(("close", "reset", "refuse")), "it was logged"
    assert_clean(logged())


@pairwise(
    code=[400, 401, 500],
    status=["200 OK", "401 Unauthorized", "400 Bad Request", "500 Oh"],
    connect=KINDS,
    indirect=["connect"],
)
def test_a_service_that_repeats_a_request_is_not_quoted(
    code: int, status: str, connect: Callable[..., Driver], logged: Callable[[], str]
) -> None:
    def repeat(connection: socket.socket) -> None:
        words = "rejected: " + ", ".join(re.findall(r"planted[-.\w@]*|Ada", wire.requests[-1].decode()))
        connection.sendall(http(json.dumps({"code": code, "message": words}).encode(), status))

    with Wire(repeat) as wire:
        for credentials in CREDENTIALS:
            client = connect(wire.base_url, **credentials)
            for request in REQUESTS:
                assert "***" in fails(lambda request=request, client=client: client.send(request))  # type: ignore[misc]
    assert_clean(logged())


@pytest.mark.both_clients
def test_an_unreachable_service_shows_no_secret(
    connect: Callable[..., Driver], logged: Callable[[], str], no_such_host: str
) -> None:
    with closed_port() as port:
        for address in (f"http://127.0.0.1:{port}", f"https://127.0.0.1:{port}", f"http://{no_such_host}"):
            client = connect(address, api_key=KEY)
            for request in REQUESTS:
                fails(lambda request=request, client=client: client.send(request))  # type: ignore[misc]
    assert_clean(logged())


def test_representations_show_no_secret_and_no_person() -> None:
    config = api.ClientConfig(base_url="http://x.example", api_key=KEY, access_token=TOKEN)
    core = Exchange(config, api.GetLists(page_size=1))
    contact = api.Contact(id=1, email=ADDRESS, name="planted", phone_number="planted", properties={"city": "planted"})
    person = {"email": ADDRESS, "name": "planted"}
    content = {"sender_mail": "news@example.com", "subject": "s", "content": "c", "params": {"name": "planted"}}
    batch = api.SendBatch(**content, message_versions=[{"to": [person], "params": {"name": "planted"}}])
    campaign = api.Campaign(mail_name="c", mail_status=1, rcpt_emails=[ADDRESS])
    calls = [next(core.send(request)) for request in REQUESTS]
    response = HttpResponse(200, {"x": KEY}, KEY.encode())
    for shown in (
        config,
        core,
        response,
        contact,
        GetContactResponse(contact=contact),
        batch,
        campaign,
        *calls,
        *REQUESTS,
    ):
        assert_clean(repr(shown), str(shown), f"{shown}")
    assert "mail_name='c'" in repr(campaign)


def test_a_token_is_read_and_not_shown(wire: Wire, connect: Callable[..., Driver]) -> None:
    wire.answer = http(f'{{"code": 200, "accessToken": "{TOKEN}", "expiresIn": -1}}'.encode())
    token = connect(wire.base_url).send(REQUESTS[-1])
    assert token.access_token.get_secret_value() == TOKEN
    assert_clean(repr(token), str(token))


@pytest.mark.parametrize(
    "settings",
    [
        {"base_url": "x", "api_key": f"{KEY}\n{KEY}", "access_token": TOKEN},
        {"api_key": f"{KEY}ä"},
        {"auth_type": "oauth", "api_key": KEY, "access_token": f"{TOKEN}\x00"},
        {"base_url": f"http://user:{KEY}@x.example", "api_key": "k"},
        {"proxy": f"http://user:{KEY}@x.example", "api_key": "k"},
        {"api_key": [KEY], "auth_type": TOKEN},
    ],
)
def test_rejected_settings_are_not_quoted(settings: dict[str, Any]) -> None:
    fails(lambda: api.ClientConfig(**{"base_url": "http://x.example", **settings}))


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (api.SendMail, {"subject": "s", "content": "c", "sender_mail": "x", "to": {"email": ADDRESS}}),
        (api.SendMail, {"subject": "s", "sender_mail": f"{ADDRESS} ", "to": {"email": ADDRESS, "nmae": ADDRESS}}),
        (api.UpsertContact, {"email": f"<{ADDRESS}>"}),
        (api.GetToken, {"client_id": "", "client_secret": CLIENT_SECRET, "code": CODE}),
    ],
)
def test_rejected_requests_are_not_quoted(model: type[MailRequest[Any]], fields: dict[str, Any]) -> None:
    fails(lambda: model(**fields), api.MailValidationError)
