"""Every kind of fault, as it is seen on the wire, and what the service then has."""

from __future__ import annotations

import asyncio
import email.utils
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import httpx
import pytest

from mail_emulator.faults import FAULT_KINDS
from tests.emulator.conftest import Api

ADD = "lists/add"
RESPONSE = b'{"code":200,"message":""}'
HALF = RESPONSE[: len(RESPONSE) // 2]


def exchange_raw(api: Api, body: bytes = b'{"listName": "L"}') -> tuple[bytes, type[OSError] | None]:
    """Send lists/add over a bare socket; return the bytes that came back, and the error that ended the connection."""
    url = httpx.URL(api.emulator.base_url)
    with socket.create_connection((url.host, url.port or 0), timeout=600) as connection:
        head = (
            f"POST /v5/lists/add HTTP/1.1\r\nHost: {url.host}\r\nApiKey: {api.emulator.api_key}\r\n"
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


RESET = ConnectionResetError
LOST = {"refuse": RESET, "close_before": None, "reset_before": RESET, "close_after": None, "reset_after": RESET}
"""How the connection ends."""

RESPONDS: dict[str, tuple[dict[str, Any], int, str, list[float]]] = {
    "delay": ({"seconds": 60}, 200, RESPONSE.decode(), [60]),
    "delay_answer": ({"seconds": 60}, 200, RESPONSE.decode(), [60]),
    "drip": ({"bytes_per_second": 200.0}, 200, RESPONSE.decode(), [0.05, 0.05]),
    "too_many_requests": ({}, 429, '"code":429', []),
    "http_error_before": ({"status": 504}, 504, "504 upstream trouble", []),
    "http_error_after": ({}, 502, "502 upstream trouble", []),
    "code_before": ({"code": 501}, 200, '"code":501', []),
    "code_after": ({}, 200, '"code":500', []),
    "redirect": ({"status": 308, "location": "http://127.0.0.1:9/x"}, 308, "", []),
    "html_before": ({}, 200, "<html", []),
    "html_after": ({}, 200, "<html", []),
    "cut_json": ({}, 200, HALF.decode(), []),
    "empty_body": ({}, 200, "", []),
    "no_code": ({}, 200, "{}", []),
    "extra_fields": ({}, 200, '"surprise":', []),
    "code_as_text": ({}, 200, '"code":"200"', []),
}
"""Parameters, and of the response: status, text in it, the pauses before and in it."""

SPECIAL = {
    "cut_body", "attachment_failed", "task_check_failed", "capped_pages", "repeated_page", "shifted_pages",
    "empty_page", "wrong_total", "short_stats",
}  # fmt: skip
"""Kinds that only some operations show; each has a test of its own, here or in test_campaigns.py."""


def test_every_kind_has_a_test() -> None:
    assert LOST.keys() | RESPONDS.keys() | SPECIAL == FAULT_KINDS.keys()


def check_effect(api: Api, kind: str, *, answered: bool) -> None:
    processed = FAULT_KINDS[kind].processed
    assert bool(api.emulator.lists()) == processed
    (entry,) = api.emulator.journal.entries()
    assert (entry["fault"], entry["processed"], entry["answered"]) == (kind, processed, answered)
    assert (entry["http_status"] is not None) == answered


@pytest.mark.parametrize("kind", LOST)
def test_lost_responses(api: Api, kind: str) -> None:
    api.emulator.faults.add(kind, ADD)
    assert exchange_raw(api) == (b"", LOST[kind])
    check_effect(api, kind, answered=False)
    assert (api.emulator.journal.entries()[0]["body_bytes"] == 0) == (kind == "refuse")


@pytest.mark.parametrize("kind", RESPONDS)
def test_responses(api: Api, pauses: list[float], kind: str) -> None:
    params, status, text, waited = RESPONDS[kind]
    api.emulator.faults.add(kind, ADD, **params)
    response = api.post(ADD, listName="L")
    assert (response.status_code, bool(response.text)) == (status, bool(text))
    assert text in response.text
    assert response.headers["content-type"].startswith("text/html") == ("html" in kind)
    assert response.headers.get("Location") == (params["location"] if kind == "redirect" else None)
    assert pauses == waited
    check_effect(api, kind, answered=True)


@pytest.mark.parametrize("reset", [False, True])
def test_a_body_cut_in_the_middle(api: Api, reset: bool) -> None:
    api.emulator.faults.add("cut_body", reset=reset, share=0.5)
    received, ended = exchange_raw(api)
    assert ended == (RESET if reset else None)
    if not reset:  # which discards what was not read
        head, _, body = received.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert f"Content-Length: {len(RESPONSE)}".encode() in head
        assert body == HALF
    assert api.emulator.lists()


def test_retry_after_is_seconds_a_date_or_absent(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1772366400.0)
    for params in ({"retry_after": 7}, {"retry_after": 60, "form": "date"}, {"retry_after": None}):
        api.emulator.faults.add("too_many_requests", **params)
    seconds, date, absent = (api.post("webhook/get").headers.get("Retry-After") for _ in range(3))
    assert (seconds, absent) == ("7", None)
    assert email.utils.parsedate_to_datetime(date or "").timestamp() == 1772366460


@pytest.mark.parametrize(
    ("operation", "records", "body"),
    [
        ("lists/get", "lists", {}),
        ("campaign/mail/template/get", "templateList", {}),
        ("campaign/mail/get", "mailList", {}),
        ("contacts/list/get", "contactList", {"listName": "n1"}),
    ],
)
def test_pages_that_are_wrong(api: Api, operation: str, records: str, body: dict[str, Any]) -> None:
    for number in range(6):
        api.emulator.add_list(f"n{number}", count=6)
        api.emulator.add_template(f"n{number}", subject="s", content="c")
        api.emulator.add_campaign(f"n{number}")

    def read(index: int) -> tuple[list[Any], int]:
        response = api.ok(operation, pageSize=3, pageIndex=index, **body)
        return response[records], response["totalRecords"]

    (first, total), (second, _) = read(1), read(2)
    everything = first + second
    assert (len(everything), total) == (6, 6)
    for kind, params, page in (
        ("repeated_page", {}, (first, 6)),
        ("shifted_pages", {"by": -1}, (everything[2:5], 6)),
        ("empty_page", {}, ([], 6)),
        ("empty_page", {"keep": 1, "total": 9}, (second[:1], 9)),
        ("wrong_total", {"by": -2}, (second, 4)),
        ("wrong_total", {"by": None}, (second, None)),
    ):
        api.emulator.faults.add(kind, operation, **params)
        assert read(2) == page, kind
    api.emulator.faults.add("extra_fields", operation)
    assert all("surprise" in record for record in read(1)[0])
    api.emulator.faults.add("capped_pages", count=None, size=2)
    assert [read(index)[0] for index in (1, 2, 3, 4)] == [everything[:2], everything[2:4], everything[4:], []]


def test_short_statistics(api: Api) -> None:
    api.emulator.clock.freeze("2026-03-10T00:00:00Z")
    api.emulator.add_campaigns(5, first_day="2026-03-01")
    assert api.emulator.campaigns()[0]["sendDate"] == "2026-03-01T08:00:00Z"
    for kind, params, expected in (("campaign", {"missing": 2}, (3, 5)), ("transactional", {}, (4, None))):
        operation = f"{kind}/mail/stats/get"
        api.emulator.faults.add("short_stats", operation, **params)
        response = api.ok(operation, startDate="2026-03-01", endDate="2026-03-05")
        assert (len(response["mailStatsList"]), response.get("totalRecords")) == expected


def codes(api: Api, count: int) -> list[int]:
    return [api("webhook/get")["code"] for _ in range(count)]


def test_which_requests_a_fault_applies_to(api: Api) -> None:
    faults = api.emulator.faults
    faults.add("code_before", "webhook/get", skip=2, count=2)
    api("lists/get")
    assert codes(api, 6) == [200, 200, 500, 500, 200, 200]
    faults.add("code_before", code=501)
    faults.add("code_before", "webhook/get", code=502)
    assert codes(api, 3) == [501, 502, 200]  # one after the other
    endless = faults.add("code_before", count=None)
    assert codes(api, 5) == [500] * 5
    assert faults.list()[-1]["struck"] == 5
    faults.remove(endless)
    assert codes(api, 1) == [200]
    faults.add("code_after", "/v5/lists/add", where={"listName": "B"})
    assert [api(ADD, listName=name)["code"] for name in "ABC"] == [200, 500, 200]


def test_listening_pauses(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    sleep, paused, over = asyncio.sleep, threading.Event(), threading.Event()

    async def until_over(seconds: float) -> None:
        assert seconds == 60
        paused.set()
        while not over.is_set():
            await sleep(0)

    def listens() -> bool:
        with api.client({}) as newcomer, suppress(httpx.ConnectError):
            return newcomer.post("/v5/webhook/get", json={}).status_code == 401
        return False

    api.ok("webhook/get")
    monkeypatch.setattr(asyncio, "sleep", until_over)
    api.emulator.pause_listening(60)
    assert paused.wait(240)
    assert not listens()
    api.ok("webhook/get")  # the open connection goes on
    over.set()
    while not listens():  # the time-out of the test ends this
        pass
