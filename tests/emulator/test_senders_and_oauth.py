"""Verified senders with their DNS, and the OAuth 2.0 authorization-code flow."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from airflow_provider_mail.emulator import Emulator
from tests.emulator.conftest import Api

GOOD = {"mxStatus": 1, "spfStatus": 1, "dkimStatus": 1, "dmarcStatus": 1, "isValidate": 1}


class TestSenders:
    def one(self, api: Api, sender: str) -> dict[str, Any]:
        (found,) = api.ok("verified_senders/get", senderEmail=sender)["mailFromDomains"]
        return found

    def test_add_get_delete(self, api: Api) -> None:
        api.ok("verified_senders/add", senderEmail="hi@new.example", senderType="2")
        assert self.one(api, "HI@new.example") == {
            "fromDomain": "hi@new.example", "mxStatus": 0, "spfStatus": 0, "dkimStatus": 0, "dmarcStatus": 0,
            "isValidate": 0, "isServiceDomain": 0, "senderType": 2,
        }  # fmt: skip
        everything = api.ok("verified_senders/get")["mailFromDomains"]
        assert [(one["fromDomain"], one["senderType"]) for one in everything] == [
            ("news@example.com", 1), ("news@example.com", 2), ("hi@new.example", 2),
        ]  # fmt: skip
        api.ok("verified_senders/delete", senderEmail="news@example.com")
        api.refused(404, "verified_senders/delete", senderEmail="news@example.com")
        assert len(api.emulator.senders()) == 1

    @pytest.mark.parametrize(
        ("body", "names"),
        [
            ({"senderType": "1"}, "senderEmail"),
            ({"senderEmail": "com", "senderType": "1"}, "senderEmail"),
            ({"senderEmail": "a@com", "senderType": "1"}, "senderEmail"),
            ({"senderEmail": "a@new.example"}, "senderType"),
            ({"senderEmail": "a@new.example", "senderType": 1}, "senderType"),
            ({"senderEmail": "a@new.example", "senderType": "3"}, "senderType"),
        ],
    )
    def test_wrong_additions(self, api: Api, body: dict[str, Any], names: str) -> None:
        assert names in api.refused(400, "verified_senders/add", **body)

    def test_duplicates_and_sandbox(self, api: Api) -> None:
        api.ok("verified_senders/add", senderEmail="new.example", senderType="1", sandboxMode=True)
        assert len(api.emulator.senders()) == 2
        api.ok("verified_senders/add", senderEmail="new.example", senderType="1")
        api.refused(400, "verified_senders/add", senderEmail="new.example", senderType="1")
        api.ok("verified_senders/add", senderEmail="new.example", senderType="2")
        api.ok("verified_senders/delete", senderEmail="new.example", sandboxMode=True)
        assert len(api.emulator.senders()) == 4

    def test_validates_only_when_all_four_checks_pass(self, api: Api) -> None:
        api.ok("verified_senders/add", senderEmail="hi@new.example", senderType="1")
        for bad in ("mx", "spf", "dkim", "dmarc"):
            api.emulator.set_dns("new.example", **{bad: False})
            assert {name: self.one(api, "hi@new.example")[name] for name in GOOD} == {
                **GOOD, f"{bad}Status": 0, "isValidate": 0
            }  # fmt: skip
        api.emulator.set_dns("new.example")
        assert self.one(api, "hi@new.example")["isValidate"] == 1

    def test_verify(self, api: Api) -> None:
        api.ok("verified_senders/add", senderEmail="hi@new.example", senderType="1")
        api.emulator.set_dns("new.example", mx=False, selector="s1")
        for named in ("hi@new.example", "new.example"):
            answer = api.ok("verified_senders/verify", fromDomain=named, selector="s1")
            assert answer == {
                "code": 200, "message": "", "valid": False, "goodMX": False, "goodSPF": True, "goodDKIM": True,
                "goodDMARC": True,
            }  # fmt: skip
        assert not api.ok("verified_senders/verify", fromDomain="new.example", selector="s2")["goodDKIM"]
        api.refused(404, "verified_senders/verify", fromDomain="other.example", selector="s1")
        for missing in ("fromDomain", "selector"):
            body = {"fromDomain": "new.example", "selector": "s1"}
            del body[missing]
            assert missing in api.refused(400, "verified_senders/verify", **body)

    def test_statuses_may_be_those_of_the_last_verify(self, api: Api) -> None:
        api.emulator.change_settings(dns_live=False)
        api.ok("verified_senders/add", senderEmail="hi@new.example", senderType="1")
        api.emulator.set_dns("new.example")
        assert self.one(api, "hi@new.example")["isValidate"] == 0
        assert api.ok("verified_senders/verify", fromDomain="hi@new.example", selector="s")["valid"]
        assert self.one(api, "hi@new.example")["isValidate"] == 1

    def test_domains_speak_for_their_addresses_and_service_domains_are_always_good(self, api: Api) -> None:
        api.emulator.add_list("L")
        api.emulator.add_sender("service.example", service=True, verified=False)
        assert self.one_of_service(api)["isServiceDomain"] == 1
        assert api.ok("campaign/mail/sends", mailName="m", senderMail="any@service.example", sendListNames=["L"])[
            "guid"
        ]

    def one_of_service(self, api: Api) -> dict[str, Any]:
        return api.ok("verified_senders/get", senderEmail="service.example")["mailFromDomains"][0]


class _Form(HTMLParser):
    """The fields and buttons of the one form on a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.method = self.action = ""
        self.fields: dict[str, str] = {}
        self.buttons: dict[str, tuple[str, str]] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.method, self.action = found["method"], found["action"]
        elif tag == "input":
            self.fields[found["name"]] = found["value"]
        elif tag == "button":
            self.buttons[found["value"]] = (found["name"], found["value"])


class TestOAuth:
    AUTHORIZE = "/v5/auth/oauth/authorize"
    TOKEN = "/v5/auth/oauth/token"

    def query(self, emulator: Emulator, **changes: str) -> dict[str, str]:
        return {
            "client_id": "emulator-client",
            "response_type": "code",
            "redirect_uri": emulator.settings.oauth_redirect_uri,
            "scope": "All",
            **changes,
        }

    def decide(self, api: Api, button: str, **query: str) -> httpx.Response:
        """What a browser does: get the page, press a button of the form."""
        page = api.stranger.get(self.AUTHORIZE, params=self.query(api.emulator, **query))
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        form = _Form(page.text)
        assert form.method == "post"
        name, value = form.buttons[button]
        return api.stranger.post(form.action, data={**form.fields, name: value})

    def code(self, api: Api, **query: str) -> str:
        location = urlsplit(self.decide(api, "approve", **query).headers["location"])
        return parse_qs(location.query)["code"][0]

    def exchange(self, api: Api, code: str, changes: dict[str, str] | None = None) -> dict[str, Any]:
        query = {
            "grant_type": "authorization_code",
            "client_id": "emulator-client",
            "client_secret": "emulator-client-secret",
            "code": code,
        } | (changes or {})
        return api.stranger.get(self.TOKEN, params=query).json()

    def enters(self, api: Api, token: str) -> bool:
        response = api.stranger.post("/v5/webhook/get", json={}, headers={"OAuth": token})
        assert response.status_code in (200, 401)
        return response.status_code == 200

    def test_the_flow(self, api: Api) -> None:
        answer = self.decide(api, "approve")
        assert answer.status_code == 302
        assert re.fullmatch(r"http://127\.0\.0\.1:8099/callback\?code=[\w-]+", answer.headers["location"])
        token = self.exchange(api, self.code(api))
        assert (token["code"], token["message"], token["expiresIn"]) == (200, "", -1)
        assert len(token["accessToken"].encode()) <= 512
        assert self.enters(api, token["accessToken"])

    @pytest.mark.parametrize("name", ["client_id", "response_type", "redirect_uri", "scope"])
    def test_authorize_checks_every_parameter(self, api: Api, name: str) -> None:
        for value in ("", "wrong"):
            page = api.stranger.get(self.AUTHORIZE, params=self.query(api.emulator, **{name: value}))
            assert page.status_code == 400
            assert name in page.text
            assert "<form" not in page.text

    def test_denial(self, api: Api) -> None:
        assert self.decide(api, "deny").headers["location"].endswith("/callback?error=access_denied")
        api.emulator.settings.oauth_denial = "redirect_bare"
        assert self.decide(api, "deny").headers["location"].endswith("/callback")
        api.emulator.settings.oauth_denial = "page"
        assert self.decide(api, "deny").status_code == 200

    def test_state_is_echoed_only_when_set(self, api: Api) -> None:
        assert "state" not in self.decide(api, "approve", state="s&1").headers["location"]
        api.emulator.settings.oauth_echo_state = True
        location = urlsplit(self.decide(api, "approve", state="s&1").headers["location"])
        assert parse_qs(location.query)["state"] == ["s&1"]

    def test_a_redirect_uri_with_a_query_keeps_it(self, api: Api) -> None:
        api.emulator.settings.oauth_redirect_uri = "https://app.example.com/cb?tenant=1"
        assert "/cb?tenant=1&code=" in self.decide(api, "approve").headers["location"]

    def test_a_code_is_single_use(self, api: Api) -> None:
        code = self.code(api)
        assert self.exchange(api, code)["code"] == 200
        assert self.exchange(api, code)["code"] == 400

    @pytest.mark.parametrize(("seconds", "expected"), [(299, 200), (301, 400)])
    def test_a_code_lives_five_minutes(self, api: Api, seconds: int, expected: int) -> None:
        api.emulator.clock.freeze()
        code = self.code(api)
        api.emulator.clock.advance(seconds)
        assert self.exchange(api, code)["code"] == expected

    @pytest.mark.parametrize("name", ["grant_type", "client_id", "client_secret", "code"])
    def test_token_checks_every_parameter(self, api: Api, name: str) -> None:
        code = self.code(api)
        for value in ("", "wrong"):
            answer = self.exchange(api, code, {name: value})
            assert answer["code"] == 400
            assert name in answer["message"]
            assert "accessToken" not in answer
        assert self.exchange(api, code)["code"] == 200

    def test_finite_tokens_expire(self, api: Api) -> None:
        api.emulator.settings.oauth_token_seconds = 3600
        api.emulator.clock.freeze()
        token = self.exchange(api, self.code(api))
        assert token["expiresIn"] == 3600
        api.emulator.clock.advance(3599)
        assert self.enters(api, token["accessToken"])
        api.emulator.clock.advance(1)
        assert not self.enters(api, token["accessToken"])

    def test_renewal_overlaps(self, api: Api) -> None:
        api.emulator.settings.oauth_token_seconds = 3600
        api.emulator.clock.freeze()
        first = self.exchange(api, self.code(api))["accessToken"]
        api.emulator.clock.advance(3300)
        again = self.exchange(api, self.code(api))
        assert (again["accessToken"], again["expiresIn"]) == (first, 300)  # not fewer than 300: the same
        api.emulator.clock.advance(1)
        second = self.exchange(api, self.code(api))
        assert second["accessToken"] != first
        assert second["expiresIn"] == 3600
        assert self.enters(api, first)
        assert self.enters(api, second["accessToken"])
        api.emulator.clock.advance(299)
        assert not self.enters(api, first)
        assert self.enters(api, second["accessToken"])

    def test_only_one_active_token(self, api: Api) -> None:
        first = self.exchange(api, self.code(api))["accessToken"]
        assert self.exchange(api, self.code(api))["accessToken"] == first
        api.emulator.settings.oauth_repeated_flow = "replace"
        second = self.exchange(api, self.code(api))["accessToken"]
        assert second != first
        assert (self.enters(api, first), self.enters(api, second)) == (False, True)

    def test_authorize_takes_get_and_the_form(self, api: Api) -> None:
        assert api.stranger.put(self.AUTHORIZE).status_code == 405
        assert api.stranger.post(self.AUTHORIZE, data={"decision": "approve"}).status_code == 400
        assert api.stranger.post(self.TOKEN).status_code == 405
