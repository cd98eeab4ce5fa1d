"""The conventions that hold for every operation, and authentication."""

from __future__ import annotations

import pytest

from mail_emulator.operations import SANDBOX
from mail_emulator.service import OPERATIONS
from mail_emulator.settings import EmulatorSettings
from tests.document import facts
from tests.emulator.conftest import Api

SPECIFIED = [operation for operation in facts.OPERATIONS if "oauth" not in operation.path]
MINIMAL = {operation.path.removeprefix("/v5/"): operation.minimal for operation in SPECIFIED}
"""The operations of the specification, with the parameters that it requires."""
WITH_SANDBOX = {operation.path.removeprefix("/v5/") for operation in SPECIFIED if operation.takes_sandbox_mode}


def test_the_operations_are_those_of_the_specification() -> None:
    assert {path.removeprefix("/v5/") for path in OPERATIONS} == MINIMAL.keys()
    fields = {path: operation.fields_for({}, EmulatorSettings()) for path, operation in OPERATIONS.items()}
    assert {path.removeprefix("/v5/") for path in fields if SANDBOX in fields[path]} == WITH_SANDBOX


@pytest.mark.parametrize("operation", sorted(MINIMAL))
def test_every_operation(api: Api, operation: str) -> None:
    """It needs credentials and a JSON object by POST, and rejects parameters that the specification does not list."""
    path, json = f"/v5/{operation}", {"Content-Type": "application/json"}
    for headers in ({}, {"ApiKey": "wrong"}, {"OAuth": "wrong"}):
        response = api.stranger.post(path, json={}, headers=headers)
        assert (response.status_code, response.json()["code"]) == (401, 401)
    assert "Unauthorized" in response.json()["message"]
    assert [entry["auth"] for entry in api.emulator.journal.entries()] == ["none", "invalid", "invalid"]
    for content in (b"[]", b"{", b"", b'"text"', b"\xff"):
        assert api.http.post(path, content=content, headers=json).json()["code"] == 400
    assert api.http.post(path, content=b"{}", headers={"Content-Type": "text/plain"}).json()["code"] == 400
    assert api.http.get(path).status_code == 405
    api.rejected(400, operation, "surprise", **MINIMAL[operation], surprise=1)
    if operation not in WITH_SANDBOX:
        api.rejected(400, operation, "sandboxMode", **MINIMAL[operation], sandboxMode=True)
    api.emulator.change_settings(unknown_fields="ignore")
    if operation in ("contacts/upsert", "lists/add", "lists/get", "webhook/save"):
        api.ok(operation, **MINIMAL[operation], surprise=1)


def test_settings_of_responses(api: Api) -> None:
    assert api.ok("webhook/get")["message"] == ""
    api.ok("lists/get", search=None)
    api.emulator.change_settings(
        bad_api_key_http_status=200, bad_api_key_code=1001, success_message=None, null_is_absent=False
    )
    response = api.stranger.post("/v5/webhook/get", json={})
    assert (response.status_code, response.json()["code"]) == (200, 1001)
    assert api.ok("webhook/get")["message"] is None
    api.rejected(400, "lists/get", "search", search=None)
    api.emulator.change_settings(errors_as_http_status=True)
    response = api.post("lists/delete", listName="nowhere")
    assert (response.status_code, response.json()["code"]) == (404, 404)
    assert api.post("contacts/explode").status_code == 404


def test_the_rate_limit(api: Api) -> None:
    api.emulator.change_settings(requests_per_second=1e-6, retry_after_seconds=3.0)
    first, *others = [api.post("webhook/get") for _ in range(4)]
    assert first.json()["code"] == 200
    assert [(response.status_code, response.headers["Retry-After"]) for response in others] == [(429, "3")] * 3
    assert [entry["processed"] for entry in api.emulator.journal.entries()] == [True, False, False, False]
    api.emulator.change_settings(requests_per_second=1e9)
    assert api.post("webhook/get").status_code == 200


def test_the_date_a_token_and_a_body_over_the_limit(api: Api) -> None:
    api.emulator.clock.freeze("2031-05-06T07:08:09Z")
    response = api.stranger.post("/v5/webhook/get", json={}, headers={"OAuth": api.emulator.issue_token()})
    assert (response.json()["code"], response.headers["date"]) == (200, "Tue, 06 May 2031 07:08:09 GMT")
    assert api.emulator.journal.entries()[-1]["auth"] == "oauth"
    api.emulator.change_settings(date_header=False, max_body_bytes=1000)
    assert "date" not in api.post("webhook/get").headers
    assert api.post("lists/add", listName="x" * 2000).status_code == 413
    assert api.emulator.lists() == []


def test_what_does_not_exist_is_an_error_unless_set(api: Api) -> None:
    operations = [operation for operation in MINIMAL if operation.endswith(("delete", "cancel", "verify"))]
    missing = [(operation, MINIMAL[operation]) for operation in operations]
    missing.append(("contacts/upsert", {"email": "a@example.com", "listName": "L"}))
    for operation, body in missing:
        api.rejected(404, operation, "does not exist", **body)
    api.emulator.change_settings(not_found_code=200)
    for operation, body in missing:
        api.ok(operation, **body)
