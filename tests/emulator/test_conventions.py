"""The conventions that hold for every operation, and authentication."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from airflow_provider_mail.emulator.service import OPERATIONS
from tests.document.fact_types import UNLISTED
from tests.document.facts import OPERATIONS as FACTS
from tests.emulator.conftest import Api

DOCUMENTED = {each.path.removeprefix("/v5/"): each for each in FACTS if each.effect != UNLISTED}
WITH_SANDBOX = {path for path, operation in DOCUMENTED.items() if operation.takes_sandbox_mode}


def test_the_operations_are_those_of_the_document() -> None:
    assert {path.removeprefix("/v5/") for path in OPERATIONS} == DOCUMENTED.keys()


def test_sandbox_mode_is_taken_where_the_document_lists_it() -> None:
    assert {path.removeprefix("/v5/") for path, operation in OPERATIONS.items() if operation.sandbox} == WITH_SANDBOX


@pytest.mark.parametrize("operation", sorted(DOCUMENTED.keys() - WITH_SANDBOX))
def test_elsewhere_sandbox_mode_is_an_unknown_parameter(api: Api, operation: str) -> None:
    valid = DOCUMENTED[operation].minimal
    assert "sandboxMode" in api.refused(400, operation, sandboxMode=True, **valid)


@pytest.mark.parametrize("operation", sorted(DOCUMENTED))
class TestEveryOperation:
    def test_needs_a_key(self, api: Api, operation: str) -> None:
        for headers in ({}, {"ApiKey": "wrong"}):
            response = api.stranger.post(f"/v5/{operation}", json={}, headers=headers)
            assert response.status_code == 401
            assert response.json()["code"] == 401
        assert [entry["auth"] for entry in api.emulator.journal.entries()] == ["none", "invalid"]

    def test_a_wrong_token_is_401_unauthorized(self, api: Api, operation: str) -> None:
        response = api.stranger.post(f"/v5/{operation}", json={}, headers={"OAuth": "wrong"})
        assert response.status_code == 401
        assert "Unauthorized" in response.json()["message"]

    def test_takes_json_objects_by_post(self, api: Api, operation: str) -> None:
        path = f"/v5/{operation}"
        for content in (b"[]", b"{", b"", b'"text"', b"\xff"):
            answer = api.http.post(path, content=content, headers={"Content-Type": "application/json"})
            assert answer.json()["code"] == 400
        assert api.http.post(path, content=b"{}", headers={"Content-Type": "text/plain"}).json()["code"] == 400
        assert api.http.get(path).status_code == 405


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("contacts/upsert", {"email": "a@example.com"}),
        ("lists/add", {"listName": "L"}),
        ("lists/get", {}),
        ("campaign/mail/get", {}),
        ("verified_senders/get", {}),
        ("webhook/get", {}),
        ("webhook/save", {}),
    ],
)
def test_unknown_parameters_are_refused_or_ignored(api: Api, operation: str, body: dict[str, str]) -> None:
    assert "surprise" in api.refused(400, operation, **body, surprise=1)
    api.emulator.change_settings(unknown_fields="ignore")
    api.ok(operation, **body, surprise=1)


def test_the_key_may_be_refused_in_the_body_with_http_200(api: Api) -> None:
    api.emulator.change_settings(bad_api_key_http_status=200, bad_api_key_code=1001)
    response = api.stranger.post("/v5/webhook/get", json={})
    assert (response.status_code, response.json()["code"]) == (200, 1001)


def test_error_codes_may_be_the_http_status_as_well(api: Api) -> None:
    api.emulator.change_settings(errors_as_http_status=True)
    response = api.post("lists/delete", listName="nowhere")
    assert (response.status_code, response.json()["code"]) == (404, 404)


def test_the_message_of_success_is_empty_or_null(api: Api) -> None:
    assert api.ok("webhook/get")["message"] == ""
    api.emulator.change_settings(success_message=None)
    assert api.ok("webhook/get")["message"] is None


def test_null_counts_as_absent_or_as_a_wrong_value(api: Api) -> None:
    api.ok("lists/get", search=None)
    api.emulator.change_settings(null_is_absent=False)
    assert "search" in api.refused(400, "lists/get", search=None)


def test_an_unknown_path_is_404(api: Api) -> None:
    assert api.post("contacts/explode").status_code == 404


def test_a_token_opens_every_door_the_key_opens(api: Api) -> None:
    token = api.emulator.issue_token()
    response = api.stranger.post("/v5/webhook/get", json={}, headers={"OAuth": token})
    assert response.json()["code"] == 200
    assert api.emulator.journal.entries()[-1]["auth"] == "oauth"


def test_the_rate_limit_answers_429_and_lets_through_what_it_allows(api: Api) -> None:
    api.emulator.change_settings(requests_per_second=0.001, retry_after_seconds=3.0)
    first, *others = [api.post("webhook/get") for _ in range(4)]
    assert first.json()["code"] == 200
    assert [(response.status_code, response.headers["Retry-After"]) for response in others] == [(429, "3")] * 3
    assert [entry["processed"] for entry in api.emulator.journal.entries()] == [True, False, False, False]
    api.emulator.change_settings(requests_per_second=10_000.0)
    assert api.post("webhook/get").status_code == 200


@pytest.mark.parametrize("by", ["mailName", "guid", "id"])
def test_a_campaign_has_a_page(api: Api, by: str) -> None:
    api.emulator.add_list("L & M", count=3)
    body = {"senderMail": "news@example.com", "sendListNames": ["L & M"], "content": "<script>alert(1)</script>"}
    api.ok("campaign/mail/sends", mailName="d/<t>/2026-01-01T00:00:00+00:00", subject="News & more", **body)
    api.emulator.clock.advance(days=1)
    (campaign,) = api.emulator.campaigns()

    page = api.stranger.get(f"/campaigns/{quote(str(campaign[by]), safe='')}")

    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for text in (
        "d/&lt;t&gt;/2026",
        "News &amp; more",
        "L &amp; M",
        "done (mailStatus 2)",
        "sentCount",
        campaign["guid"],
    ):
        assert text in page.text
    assert "<script>" not in page.text
    assert api.stranger.get("/campaigns/other").status_code == 404


def test_the_date_header_is_the_time_of_the_service(api: Api) -> None:
    api.emulator.clock.freeze("2031-05-06T07:08:09Z")
    assert api.http.post("/v5/webhook/get", json={}).headers["date"] == "Tue, 06 May 2031 07:08:09 GMT"
    api.emulator.clock.advance(days=-3)
    assert api.stranger.post("/v5/webhook/get", json={}).headers["date"] == "Sat, 03 May 2031 07:08:09 GMT"
    api.emulator.change_settings(date_header=False)
    assert "date" not in api.http.post("/v5/webhook/get", json={}).headers


def test_a_body_over_the_limit_is_413(api: Api) -> None:
    api.emulator.change_settings(max_body_bytes=1000)
    assert api.post("lists/add", listName="x" * 2000).status_code == 413
    assert api.emulator.lists() == []


def test_a_page_for_people_says_what_this_is(api: Api) -> None:
    assert "Nothing here sends mail" in api.http.get("/").text


@pytest.mark.parametrize("index", [2**31, 2**63, 10**30])
def test_pages_far_beyond_the_end_are_empty(api: Api, index: int) -> None:
    api.emulator.add_list("L", count=3)
    assert api.ok("lists/get", pageIndex=index)["lists"] == []
    assert api.ok("contacts/list/get", listName="L", pageIndex=index, pageSize=index)["contactList"] == []


@pytest.mark.parametrize(
    "text", ["", " ", "\u0000", "a\u0000b", "é\u202e📬", "'; DROP TABLE lists; --", "%_*", "x" * 100_000]
)
def test_any_text_is_kept_as_it_is(api: Api, text: str) -> None:
    name = f"L{text}"
    api.ok("lists/add", listName=name, listDescription=text)
    api.ok("contacts/upsert", email="a@example.com", name=f"N{text}", listName=name)
    assert api.ok("lists/get", search=name)["lists"][0]["ListName"] == name
    assert api.ok("contacts/list/get", listName=name)["contactList"][0]["name"] == f"N{text}"
    answer = api.ok(
        "campaign/mail/sends", mailName="m", senderMail="news@example.com", sendListNames=[name], content=text,
        subject=text,
    )  # fmt: skip
    (task,) = api.ok("campaign/mail/get", mailName="m")["mailList"]
    assert (task["mailContent"], task["subject"], task["guid"]) == (text, text, answer["guid"])
    assert task["rcptListNames"] == [name]
    assert api.emulator.campaign_recipients("m") == ["a@example.com"]


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("contacts/delete", {"email": "nobody@example.com"}),
        ("contacts/upsert", {"email": "a@example.com", "listName": "nowhere"}),
        ("lists/delete", {"listName": "nowhere"}),
        ("campaign/mail/template/delete", {"templateName": "nothing"}),
        ("campaign/mail/cancel", {"mailName": "nothing"}),
        ("campaign/mail/delete", {"mailName": "nothing"}),
        ("verified_senders/delete", {"senderEmail": "nobody@example.com"}),
        ("verified_senders/verify", {"fromDomain": "nowhere.example", "selector": "s"}),
    ],
)
def test_what_does_not_exist_is_an_error_or_shrugged_at(api: Api, operation: str, body: dict[str, str]) -> None:
    assert "does not exist" in api.refused(404, operation, **body)
    api.emulator.change_settings(not_found_code=200)
    api.ok(operation, **body)
