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
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.contacts import GetContactResponse
from airflow_provider_mail.api.errors import chain_of
from mail_emulator import Emulator
from mail_emulator.faults import FAULT_KINDS
from tests.api.parts import HttpResponse, MailRequest, parse_response
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
    api.SendMail(
        subject="s", content="<td>planted-cell</td>", sender_mail="news@example.com", to=api.Recipient(email=ADDRESS)
    ),
    api.SendBatch(
        subject="s",
        sender_mail="news@example.com",
        message_versions=[
            api.MessageVersion(to=[api.Recipient(email=ADDRESS)], content="<td>planted-cell</td><p>planted-line")
        ],
    ),
    api.GetToken(client_id="emulator-client", client_secret=CLIENT_SECRET, code=CODE),
]
FAULTS = [kind for kind in FAULT_KINDS.values() if kind.operations is None and kind.outcome not in ("odd", "slow")]


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


def all_fail(client: MailClient) -> list[str]:
    return [fails(lambda request=request: client.send(request)) for request in REQUESTS]  # type: ignore[misc]


@pairwise(credentials=CREDENTIALS, kind=FAULTS)
def test_no_fault_shows_a_secret_or_an_address(
    credentials: dict[str, Any],
    kind: Any,
    emulator: Emulator,
    connect: Callable[..., MailClient],
    logged: Callable[[], str],
) -> None:
    emulator.settings.api_key = KEY
    emulator.faults.add(kind.name, count=None, **({"retry_after": 999} if kind.name == "too_many_requests" else {}))
    all_fail(connect(emulator.base_url, **credentials))
    assert "/v5/auth/oauth/token" in logged() or kind.name.startswith(("close", "reset", "refuse")), "it was logged"
    assert_clean(logged())


@pairwise(
    code=[400, 401, 500], status=["200 OK", "401 Unauthorized", "400 Bad Request", "500 Oh"],
)  # fmt: skip
def test_a_service_that_repeats_a_request_is_not_quoted(
    code: int, status: str, wire: Wire, connect: Callable[..., MailClient], logged: Callable[[], str]
) -> None:
    def repeat(connection: socket.socket) -> None:
        words = "rejected: " + ", ".join(re.findall(r"planted[-.\w@]*|Ada", wire.requests[-1].decode()))
        connection.sendall(http(json.dumps({"code": code, "message": words}).encode(), status))

    wire.answer = repeat
    for credentials in CREDENTIALS:
        assert all("***" in text for text in all_fail(connect(wire.base_url, **credentials)))
    assert_clean(logged())


@pytest.mark.parametrize(
    ("length", "secret"), [(9_990, KEY), (9_995, KEY), (10_000, KEY), (30_000, KEY), (9_850, "planted-" * 25)]
)
def test_no_part_of_a_secret_is_quoted_where_a_long_message_is_cut(length: int, secret: str) -> None:
    message = "rejected:".ljust(length) + f"{secret} {ADDRESS} Ada"
    response = HttpResponse(200, {}, json.dumps({"code": 400, "message": message}).encode())
    for request in REQUESTS:
        text = fails(lambda request=request: parse_response(request, response, [secret]))  # type: ignore[misc]
        assert "rejected:" in text
        assert "plant" not in text


def test_an_unreachable_service_shows_no_secret(connect: Any, logged: Callable[[], str], no_such_host: str) -> None:
    with closed_port() as port:
        for address in (f"http://127.0.0.1:{port}", f"https://127.0.0.1:{port}", f"http://{no_such_host}"):
            all_fail(connect(address, api_key=KEY))
    assert_clean(logged())


def test_representations_show_no_secret_and_no_person() -> None:
    config = api.ClientConfig(base_url="http://x.example", api_key=KEY, access_token=TOKEN)
    client = api.MailClient(config)
    contact = api.Contact(id=1, email=ADDRESS, name="planted", phone_number="planted", properties={"city": "planted"})
    person = {"email": ADDRESS, "name": "planted"}
    content = {"sender_mail": "news@example.com", "subject": "s", "content": "c", "params": {"name": "planted"}}
    batch = api.SendBatch(**content, message_versions=[{"to": [person], "params": {"name": "planted"}}])
    campaign = api.Campaign(mail_name="c", mail_status=1, rcpt_emails=[ADDRESS])
    token = REQUESTS[-1].read({"code": 200, "accessToken": TOKEN, "expiresIn": -1})
    assert token.access_token.get_secret_value() == TOKEN
    calls = [client._call(request) for request in REQUESTS]
    response = HttpResponse(200, {"x": KEY}, KEY.encode())
    shown = [config, client, response, contact, GetContactResponse(contact=contact), batch, campaign, token]
    for each in (*shown, *calls, *REQUESTS):
        assert_clean(repr(each), str(each), f"{each}")
    assert "mail_name='c'" in repr(campaign)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (api.ClientConfig, {"base_url": f"http://user:{KEY}@x.example", "api_key": "k", "proxy": f"http://u:{KEY}@x"}),
        (api.ClientConfig, {"base_url": "http://x.example", "api_key": [KEY], "auth_type": TOKEN}),
        (api.SendMail, {"subject": "s", "content": "c", "sender_mail": "x", "to": {"email": ADDRESS}}),
        (api.SendMail, {"subject": "s", "sender_mail": f"{ADDRESS} ", "to": {"email": ADDRESS, "nmae": ADDRESS}}),
        (api.UpsertContact, {"email": f"<{ADDRESS}>"}),
        (api.GetToken, {"client_id": "", "client_secret": CLIENT_SECRET, "code": CODE}),
    ],
)
def test_what_is_rejected_is_not_quoted(model: Any, fields: dict[str, Any]) -> None:
    fails(lambda: model(**fields))
