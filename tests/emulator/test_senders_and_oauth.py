"""Verified senders with their DNS, and the OAuth 2.0 authorization-code flow."""

from __future__ import annotations

import html
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.emulator.conftest import Api

GOOD = {"mxStatus": 1, "spfStatus": 1, "dkimStatus": 1, "dmarcStatus": 1, "isValidate": 1}
ADDRESS = {"senderEmail": "hi@new.example", "senderType": "1"}


def sender(api: Api, entry: str = "hi@new.example") -> dict[str, Any]:
    (found,) = api.ok("verified_senders/get", senderEmail=entry)["mailFromDomains"]
    return found


def test_senders_are_added_and_deleted(api: Api) -> None:
    api.ok("verified_senders/add", **ADDRESS | {"senderType": "2"})
    assert sender(api, "HI@new.example") == {
        "fromDomain": "hi@new.example", "isServiceDomain": 0, "senderType": 2, **dict.fromkeys(GOOD, 0)
    }  # fmt: skip
    everything = api.ok("verified_senders/get")["mailFromDomains"]
    assert [(each["fromDomain"], each["senderType"]) for each in everything] == [
        ("news@example.com", 1), ("news@example.com", 2), ("hi@new.example", 2),
    ]  # fmt: skip
    for sandbox in (True, False):
        api.ok("verified_senders/delete", senderEmail="news@example.com", sandboxMode=sandbox)
        assert len(api.emulator.senders()) == (3 if sandbox else 1)
    api.rejected(404, "verified_senders/delete", senderEmail="news@example.com")


def test_wrong_senders(api: Api) -> None:
    for name, value in (
        ("senderEmail", None), ("senderEmail", "com"), ("senderEmail", "a@com"), ("senderType", None),
        ("senderType", 1), ("senderType", "3"),
    ):  # fmt: skip
        api.rejected(400, "verified_senders/add", name, **ADDRESS | {name: value})
    api.ok("verified_senders/add", **ADDRESS, sandboxMode=True)
    api.ok("verified_senders/add", **ADDRESS)
    api.rejected(400, "verified_senders/add", **ADDRESS)
    assert len(api.emulator.senders()) == 3


def test_a_sender_is_valid_when_all_four_checks_pass(api: Api) -> None:
    api.ok("verified_senders/add", **ADDRESS)
    for bad in ("mx", "spf", "dkim", "dmarc"):
        api.emulator.set_dns("new.example", **{bad: False})
        expected = GOOD | {f"{bad}Status": 0, "isValidate": 0}
        assert {name: sender(api)[name] for name in GOOD} == expected
    api.emulator.set_dns("new.example")
    assert sender(api)["isValidate"] == 1


def test_a_sender_is_verified_by_address_or_domain(api: Api) -> None:
    api.ok("verified_senders/add", **ADDRESS)
    api.emulator.set_dns("new.example", mx=False, selector="s1")
    for entry in ("hi@new.example", "new.example"):
        assert api.ok("verified_senders/verify", fromDomain=entry, selector="s1") == {
            "code": 200, "message": "", "valid": False, "goodMX": False, "goodSPF": True, "goodDKIM": True,
            "goodDMARC": True,
        }  # fmt: skip
    assert not api.ok("verified_senders/verify", fromDomain="new.example", selector="s2")["goodDKIM"]
    api.rejected(404, "verified_senders/verify", fromDomain="other.example", selector="s1")
    for missing in ("fromDomain", "selector"):
        body = {"fromDomain": "new.example", "selector": "s1", missing: None}
        api.rejected(400, "verified_senders/verify", missing, **body)


def test_statuses_of_the_last_verify_and_of_a_service_domain(api: Api) -> None:
    api.emulator.change_settings(dns_live=False)
    api.ok("verified_senders/add", **ADDRESS)
    api.emulator.set_dns("new.example")
    assert sender(api)["isValidate"] == 0
    assert api.ok("verified_senders/verify", fromDomain="hi@new.example", selector="s")["valid"]
    assert sender(api)["isValidate"] == 1
    api.emulator.add_sender("service.example", service=True, verified=False)
    senders = api.ok("verified_senders/get", senderEmail="service.example")["mailFromDomains"]
    assert [each["isServiceDomain"] for each in senders] == [1, 1]
    assert api.campaign("m", senderMail="any@service.example")["guid"]


AUTHORIZE = "/v5/auth/oauth/authorize"
TOKEN = "/v5/auth/oauth/token"
CALLBACK = "http://127.0.0.1:8099/callback"
QUERY = {"client_id": "emulator-client", "response_type": "code", "redirect_uri": CALLBACK, "scope": "All"}


def decide(api: Api, button: str = "approve", **query: str) -> httpx.Response:
    """Do what a browser does: get the page, press a button of its form."""
    page = api.stranger.get(
        AUTHORIZE, params=QUERY | {"redirect_uri": api.emulator.settings.oauth_redirect_uri} | query
    )
    assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (200, "text/html")
    (action,) = re.findall(r'<form method="post" action="(.*?)">', page.text)
    fields = re.findall(r'<input type="hidden" name="(.*?)" value="(.*?)">', page.text)
    (name,) = re.findall(rf'<button [^>]*name="(.*?)" value="{button}"', page.text)
    return api.stranger.post(action, data={key: html.unescape(value) for key, value in [*fields, (name, button)]})


def new_code(api: Api) -> str:
    return parse_qs(urlsplit(decide(api).headers["location"]).query)["code"][0]


def exchange(api: Api, issued: str | None = None, **changes: str) -> dict[str, Any]:
    application = {"client_id": "emulator-client", "client_secret": "emulator-client-secret"}
    query = {"grant_type": "authorization_code", "code": issued or new_code(api), **application}
    return api.stranger.get(TOKEN, params=query | changes).json()


def enters(api: Api, token: str) -> bool:
    response = api.stranger.post("/v5/webhook/get", json={}, headers={"OAuth": token})
    assert response.status_code in (200, 401)
    return response.status_code == 200


def test_the_flow(api: Api) -> None:
    response = decide(api)
    assert response.status_code == 302
    assert re.fullmatch(r"http://127\.0\.0\.1:8099/callback\?code=[\w-]+", response.headers["location"])
    token = exchange(api)
    assert (token["code"], token["message"], token["expiresIn"]) == (200, "", -1)
    assert len(token["accessToken"].encode()) <= 512
    assert enters(api, token["accessToken"])


@pytest.mark.parametrize("name", QUERY)
def test_authorize_checks_every_parameter(api: Api, name: str) -> None:
    for value in ("", "wrong"):
        page = api.stranger.get(AUTHORIZE, params=QUERY | {name: value})
        assert (page.status_code, name in page.text, "<form" in page.text) == (400, True, False)


@pytest.mark.parametrize("name", ["grant_type", "client_id", "client_secret", "code"])
def test_token_checks_every_parameter(api: Api, name: str) -> None:
    code = new_code(api)
    for value in ("", "wrong"):
        response = exchange(api, code, **{name: value})
        assert (response["code"], name in response["message"], "accessToken" in response) == (400, True, False)
    assert [exchange(api, code)["code"] for _ in range(2)] == [200, 400]  # a code is used once


def test_denial_and_redirects(api: Api) -> None:
    for denial, end in (("redirect_error", "?error=access_denied"), ("redirect_bare", "")):
        api.emulator.change_settings(oauth_denial=denial)
        assert decide(api, "deny").headers["location"] == CALLBACK + end
    api.emulator.change_settings(oauth_denial="page")
    assert decide(api, "deny").status_code == 200
    assert "state" not in decide(api, state="s&1").headers["location"]
    api.emulator.change_settings(oauth_echo_state=True, oauth_redirect_uri="https://app.example.com/cb?tenant=1")
    query = parse_qs(urlsplit(decide(api, state="s&1").headers["location"]).query)
    assert (query.keys(), query["state"]) == ({"tenant", "code", "state"}, ["s&1"])


@pytest.mark.parametrize(("seconds", "code"), [(299, 200), (301, 400)])
def test_a_code_lives_five_minutes(api: Api, seconds: int, code: int) -> None:
    api.emulator.clock.freeze()
    issued = new_code(api)
    api.emulator.clock.advance(seconds)
    assert exchange(api, issued)["code"] == code


def test_a_token_expires_and_renewal_overlaps(api: Api) -> None:
    api.emulator.change_settings(oauth_token_seconds=3600)
    api.emulator.clock.freeze()
    token = exchange(api)
    first = token["accessToken"]
    assert token["expiresIn"] == 3600
    api.emulator.clock.advance(3300)
    again = exchange(api)
    assert (again["accessToken"], again["expiresIn"]) == (first, 300)  # not fewer than 300: the same
    api.emulator.clock.advance(1)
    second = exchange(api)
    assert (second["accessToken"] != first, second["expiresIn"]) == (True, 3600)
    for seconds, valid in ((0, True), (298, True), (1, False)):
        api.emulator.clock.advance(seconds)
        assert enters(api, first) == valid
        assert enters(api, second["accessToken"])


def test_only_one_token_is_active_and_the_methods(api: Api) -> None:
    first = exchange(api)["accessToken"]
    assert exchange(api)["accessToken"] == first
    api.emulator.change_settings(oauth_repeated_flow="replace")
    second = exchange(api)["accessToken"]
    assert (enters(api, first), enters(api, second)) == (False, True)
    assert api.stranger.put(AUTHORIZE).status_code == 405
    assert api.stranger.post(AUTHORIZE, data={"decision": "approve"}).status_code == 400
    assert api.stranger.post(TOKEN).status_code == 405
