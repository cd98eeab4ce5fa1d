"""Every operation of the document goes through the hook, with both clients, and arrives as it was meant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from airflow_provider_mail.api import GetToken, MailRequest, MailResponse, authorize_url
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.hooks.mail import MailHook
from tests.document.examples import EXAMPLES, Example
from tests.document.facts import OPERATIONS
from tests.document.models import request_models


def send(hook: MailHook, request: MailRequest[Any]) -> MailResponse:
    response: MailResponse = hook.send(request)
    return response


def send_async(hook: MailHook, request: MailRequest[Any]) -> MailResponse:
    async def carry_out() -> MailResponse:
        async with await hook.get_async_conn() as client:
            response: MailResponse = await client.send(request)
            return response

    return asyncio.run(carry_out())


both_clients = pytest.mark.parametrize("way", [send, send_async])


@both_clients
@pytest.mark.parametrize("example", EXAMPLES.values(), ids=list(EXAMPLES))
def test_operation(
    hook: MailHook, emulator: Emulator, example: Example, way: Callable[[MailHook, MailRequest[Any]], MailResponse]
) -> None:
    emulator.clock.freeze()
    example.arrange(emulator)

    response = way(hook, example.request)

    assert (response.code, response.message or "") == (200, "")
    assert example.answer is None or example.answer(response) == example.answered
    assert example.hold is None or example.hold(emulator) == example.held
    (entry,) = emulator.journal.entries()
    assert (entry["operation"], entry["method"], entry["code"]) == (example.request.path, "POST", 200)
    assert entry["auth"] == "api_key"
    assert entry["body"] == example.received


@both_clients
def test_oauth(hook: MailHook, emulator: Emulator, way: Callable[[MailHook, MailRequest[Any]], MailResponse]) -> None:
    """The other two operations: the page that a person approves on, and the exchange of the code for a token."""
    application = {
        "client_id": emulator.settings.oauth_client_id,
        "redirect_uri": emulator.settings.oauth_redirect_uri,
    }
    page = authorize_url(hook.config.base_url, **application)
    assert httpx.get(page, trust_env=False, timeout=60).status_code == 200
    form = {**application, "response_type": "code", "scope": "All", "decision": "approve"}
    approved = httpx.post(page.partition("?")[0], data=form, trust_env=False, timeout=60)
    (code,) = parse_qs(urlsplit(approved.headers["location"]).query)["code"]

    secret = emulator.settings.oauth_client_secret
    token = way(hook, GetToken(client_id=application["client_id"], client_secret=secret, code=code))

    assert token.expires_in == -1
    (entry,) = emulator.journal.entries("/v5/auth/oauth/token")
    assert (entry["method"], entry["auth"]) == ("GET", "none")
    headers = {"OAuth": token.access_token.get_secret_value()}
    answer = httpx.post(f"{emulator.base_url}/v5/lists/get", json={}, headers=headers, trust_env=False, timeout=60)
    assert answer.json()["code"] == 200


def test_no_operation_is_left_out() -> None:
    assert set(request_models()) == {type(example.request) for example in EXAMPLES.values()} | {GetToken}
    assert {kind.path for kind in request_models()} | {"/v5/auth/oauth/authorize"} == {each.path for each in OPERATIONS}
