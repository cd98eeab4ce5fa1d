"""Every kind of fault, as it is seen on the wire, and what the service then has."""

from __future__ import annotations

import email.utils
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from airflow_provider_mail.emulator.faults import FAULT_KINDS
from tests.emulator.conftest import Api


def exchange_raw(api: Api, body: bytes = b'{"listName": "L"}') -> tuple[bytes, type[OSError] | None]:
    """Send lists/add over a bare socket: the bytes that came back, and how the connection ended."""
    host, port = api.emulator.base_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        head = (
            f"POST /v5/lists/add HTTP/1.1\r\nHost: {host}\r\nApiKey: {api.emulator.api_key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode() + body)
        received = b""
        try:
            while chunk := connection.recv(65_536):
                received += chunk
        except ConnectionResetError as error:
            return received, type(error)
        return received, None


def has_list(api: Api) -> bool:
    return bool(api.emulator.lists())


def expects_error(status: int) -> Callable[[Api, httpx.Response], None]:
    def check(api: Api, response: httpx.Response) -> None:
        assert response.status_code == status

    return check


def expects_code(api: Api, response: httpx.Response) -> None:
    assert (response.status_code, response.json()["code"]) == (200, 500)


def expects_page(api: Api, response: httpx.Response) -> None:
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    assert "<html" in response.text


def expects_no_json(api: Api, response: httpx.Response) -> None:
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("application/json")
    with pytest.raises(ValueError, match=r"."):
        response.json()


def expects_success(api: Api, response: httpx.Response) -> None:
    assert response.json()["code"] == 200


def expects_late_success(api: Api, response: httpx.Response) -> None:
    expects_success(api, response)
    assert response.elapsed.total_seconds() >= 0.1


LOST: dict[str, type[OSError] | None] = {
    "refuse": ConnectionResetError,
    "close_before": None,
    "reset_before": ConnectionResetError,
    "close_after": None,
    "reset_after": ConnectionResetError,
}
ANSWERED: dict[str, tuple[dict[str, Any], Callable[[Api, httpx.Response], None]]] = {
    "delay": ({"seconds": 0.1}, expects_late_success),
    "delay_answer": ({"seconds": 0.1}, expects_late_success),
    "drip": ({"bytes_per_second": 250.0}, expects_success),
    "too_many_requests": ({}, expects_error(429)),
    "http_error_before": ({}, expects_error(503)),
    "http_error_after": ({}, expects_error(502)),
    "code_before": ({}, expects_code),
    "code_after": ({}, expects_code),
    "redirect": ({}, expects_error(307)),
    "html_before": ({}, expects_page),
    "html_after": ({}, expects_page),
    "cut_json": ({}, expects_no_json),
    "empty_body": ({}, expects_no_json),
    "no_code": ({}, lambda api, response: None),
    "extra_fields": ({}, expects_success),
    "code_as_text": ({}, lambda api, response: None),
}
#: Kinds that only some operations show; each has a test of its own below.
SPECIAL = {
    "cut_body", "attachment_failed", "task_check_failed", "capped_pages", "repeated_page", "shifted_pages",
    "empty_page", "wrong_total", "short_stats",
}  # fmt: skip


def test_every_kind_is_covered_here() -> None:
    assert LOST.keys() | ANSWERED.keys() | SPECIAL == FAULT_KINDS.keys()


@pytest.mark.parametrize("kind", LOST)
def test_lost_answers(api: Api, kind: str) -> None:
    api.emulator.faults.add(kind, "lists/add")
    assert exchange_raw(api) == (b"", LOST[kind])
    assert has_list(api) == FAULT_KINDS[kind].processed
    (entry,) = api.emulator.journal.entries()
    assert (entry["fault"], entry["processed"], entry["answered"]) == (kind, FAULT_KINDS[kind].processed, False)
    assert entry["http_status"] is None


@pytest.mark.parametrize("kind", ANSWERED)
def test_answers(api: Api, kind: str) -> None:
    params, check = ANSWERED[kind]
    api.emulator.faults.add(kind, "lists/add", **params)
    check(api, api.post("lists/add", listName="L"))
    assert has_list(api) == FAULT_KINDS[kind].processed
    (entry,) = api.emulator.journal.entries()
    assert (entry["fault"], entry["processed"], entry["answered"]) == (kind, FAULT_KINDS[kind].processed, True)


def test_refusing_leaves_a_large_body_unread(api: Api) -> None:
    api.emulator.faults.add("refuse")
    with pytest.raises(httpx.TransportError):
        api.http.post("/v5/lists/add", content=b" " * 30_000_000)
    (entry,) = api.emulator.journal.entries()
    assert entry["body_bytes"] == 0


@pytest.mark.parametrize("reset", [False, True])
def test_a_body_cut_in_the_middle(api: Api, reset: bool) -> None:
    api.emulator.faults.add("cut_body", reset=reset, share=0.5)
    received, ended = exchange_raw(api)
    head, _, body = received.partition(b"\r\n\r\n")
    whole = b'{"code":200,"message":""}'
    assert b"200" in head.splitlines()[0]
    assert f"Content-Length: {len(whole)}".encode() in head
    assert body == whole[: len(whole) // 2]
    assert ended == (ConnectionResetError if reset else None)
    assert has_list(api)


def test_a_drip_is_slow(api: Api) -> None:
    api.emulator.faults.add("drip", bytes_per_second=100.0)
    began = time.monotonic()
    assert api.post("lists/add", listName="L").json()["code"] == 200
    assert time.monotonic() - began >= 0.2  # 25 bytes


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_http_errors_of_all_sorts(api: Api, status: int) -> None:
    api.emulator.faults.add("http_error_before", status=status)
    api.emulator.faults.add("http_error_after", status=status)
    assert api.post("lists/add", listName="L").status_code == status
    assert not has_list(api)
    assert api.post("lists/add", listName="L").status_code == status
    assert has_list(api)


def test_retry_after_in_seconds_as_date_or_absent(api: Api) -> None:
    api.emulator.faults.add("too_many_requests", retry_after=7)
    api.emulator.faults.add("too_many_requests", retry_after=60, form="date")
    api.emulator.faults.add("too_many_requests", retry_after=None)
    asked_at = datetime.now(UTC)
    first, second, third = (api.post("webhook/get").headers.get("Retry-After") for _ in range(3))
    assert first == "7"
    assert second is not None
    wait = email.utils.parsedate_to_datetime(second) - asked_at
    assert 55 < wait.total_seconds() <= 60 + (datetime.now(UTC) - asked_at).total_seconds()
    assert third is None


def test_redirects_lead_away(api: Api) -> None:
    api.emulator.faults.add("redirect", status=308, location="http://127.0.0.1:9/x")
    response = api.post("webhook/get")
    assert (response.status_code, response.headers["Location"]) == (308, "http://127.0.0.1:9/x")


def test_odd_answers(api: Api) -> None:
    api.emulator.add_list("L")
    api.emulator.faults.add("code_as_text")
    api.emulator.faults.add("extra_fields")
    api.emulator.faults.add("no_code")
    assert api("lists/get")["code"] == "200"
    odd = api("lists/get")
    assert "surprise" in odd
    assert "surprise" in odd["lists"][0]
    assert api("lists/get") == {}


class TestPages:
    PAGED = (
        ("lists/get", "lists", {}),
        ("campaign/mail/template/get", "templateList", {}),
        ("campaign/mail/get", "mailList", {}),
        ("contacts/list/get", "contactList", {"listName": "n1"}),
    )

    @pytest.fixture(params=PAGED, ids=lambda case: case[0])
    def read(self, api: Api, request: pytest.FixtureRequest) -> Callable[[int], tuple[list[str], int]]:
        operation, records, body = request.param
        for number in range(6):
            api.emulator.add_list(f"n{number}", count=6)
            api.emulator.add_template(f"n{number}", subject="s", content="c")
            api.emulator.add_campaign(f"n{number}")

        def page(index: int) -> tuple[list[str], int]:
            answer = api.ok(operation, pageSize=3, pageIndex=index, **body)
            return [str(record) for record in answer[records]], answer["totalRecords"]

        return page

    def test_capped(self, api: Api, read: Any) -> None:
        everything = [record for index in (1, 2) for record in read(index)[0]]
        api.emulator.faults.add("capped_pages", count=None, size=2)
        assert [read(index)[0] for index in (1, 2, 3, 4)] == [
            everything[:2], everything[2:4], everything[4:], [],
        ]  # fmt: skip

    def test_repeated(self, api: Api, read: Any) -> None:
        first = read(1)
        api.emulator.faults.add("repeated_page")
        assert read(2) == first
        assert read(2) != first

    def test_shifted(self, api: Api, read: Any) -> None:
        everything = [record for index in (1, 2) for record in read(index)[0]]
        api.emulator.faults.add("shifted_pages", by=1)
        assert read(1)[0] == everything[1:4]

    def test_empty(self, api: Api, read: Any) -> None:
        api.emulator.faults.add("empty_page")
        assert read(1) == ([], 6)

    def test_wrong_total(self, api: Api, read: Any) -> None:
        api.emulator.faults.add("wrong_total", by=-2)
        records, total = read(1)
        assert (len(records), total) == (3, 4)


def test_short_statistics(api: Api) -> None:
    api.emulator.clock.freeze("2026-03-10T00:00:00Z")
    api.emulator.add_campaigns(5, first_day="2026-03-01")
    window = {"startDate": "2026-03-01", "endDate": "2026-03-05"}
    api.emulator.faults.add("short_stats", "campaign/mail/stats/get", missing=2)
    answer = api.ok("campaign/mail/stats/get", **window)
    assert (len(answer["mailStatsList"]), answer["totalRecords"]) == (3, 5)
    api.emulator.faults.add("short_stats", "transactional/mail/stats/get")
    assert len(api.ok("transactional/mail/stats/get", **window)["mailStatsList"]) == 4


class TestMatching:
    def test_skip_and_count(self, api: Api) -> None:
        api.emulator.faults.add("code_before", "webhook/get", skip=2, count=2)
        api("lists/get")
        assert [api("webhook/get")["code"] for _ in range(6)] == [200, 200, 500, 500, 200, 200]

    def test_faults_strike_one_after_the_other(self, api: Api) -> None:
        api.emulator.faults.add("code_before", code=501)
        api.emulator.faults.add("code_before", "webhook/get", code=502)
        assert [api("webhook/get")["code"] for _ in range(3)] == [501, 502, 200]

    def test_for_ever_until_removed(self, api: Api) -> None:
        fault = api.emulator.faults.add("code_before", count=None)
        assert {api("webhook/get")["code"] for _ in range(5)} == {500}
        assert api.emulator.faults.list()[0]["struck"] == 5
        api.emulator.faults.remove(fault)
        assert api("webhook/get")["code"] == 200

    def test_where_looks_into_the_body(self, api: Api) -> None:
        api.emulator.faults.add("close_after", "/v5/lists/add", where={"listName": "B"})
        api.ok("lists/add", listName="A")
        with pytest.raises(httpx.RemoteProtocolError):
            api.post("lists/add", listName="B")
        assert len(api.emulator.lists()) == 2

    def test_wrong_faults_are_refused(self, api: Api) -> None:
        with pytest.raises(ValueError, match="no_such_kind"):
            api.emulator.faults.add("no_such_kind")
        with pytest.raises(ValueError, match="secons"):
            api.emulator.faults.add("delay", secons=1)

    def test_an_unknown_operation_is_refused_with_the_known_ones(self, api: Api) -> None:
        with pytest.raises(ValueError, match=r"unknown operation '/v5/contacts/import'; .*/v5/contacts/imports, "):
            api.emulator.faults.add("refuse", "contacts/import")
        for operation in ("contacts/imports", "/v5/contacts/imports", "/v5/auth/oauth/token", "*"):
            api.emulator.faults.add("refuse", operation)

    def test_the_control_interface_is_spared(self, api: Api) -> None:
        api.emulator.faults.add("refuse", count=None)
        assert api.http.post("/_emulator/clock/read").status_code == 200
        api.emulator.faults.clear()
        api.ok("webhook/get")


@pytest.mark.not_unit
def test_listening_may_pause(api: Api) -> None:
    api.ok("webhook/get")

    def is_refused() -> bool:
        api.emulator.pause_listening(1.0)
        time.sleep(0.05)
        api.ok("webhook/get")  # the open connection goes on
        with httpx.Client(base_url=api.emulator.base_url) as newcomer:
            try:
                newcomer.post("/v5/webhook/get", json={})
            except httpx.ConnectError:
                return True
        return False  # the pause was over before it came

    assert any(is_refused() for _ in range(10))
    for _ in range(1000):
        with suppress(httpx.ConnectError):
            assert api.stranger.post("/v5/webhook/get", json={}).status_code == 401
            break
        time.sleep(0.01)
    else:
        pytest.fail("it does not listen again")
