"""How the receiver responds to a push, and that what was accepted is in the inbox (document, "Events")."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from starlette.testclient import TestClient

from airflow_provider_mail.webhook.app import BODY_SECONDS, ReceiverApp
from airflow_provider_mail.webhook.inbox import Inbox
from airflow_provider_mail.webhook.tokens import new_token
from tests.support.clock import StillClock
from tests.support.receiver import HEADERS
from tests.webhook.hostile import BODIES, ODD_EVENTS, is_push
from tests.webhook.pushes import body, event
from tests.webhook.receiving import TOKEN, Sender, receiver, stored
from tests.webhook.test_events import read

pytestmark = [pytest.mark.not_unit, pytest.mark.usefixtures("still_clock")]  # whatever time the database takes
whatever_the_database = pytest.mark.parametrize("inbox", ["sqlite"], indirect=True)


def test_a_push_is_in_the_inbox_when_it_is_accepted(ready: Inbox) -> None:
    async def run() -> None:
        async with receiver(ready) as sender:
            for number, push in enumerate(bodies, 1):
                response = await sender.request("POST", f"/{TOKEN}", push)
                assert (response.status_code, response.text) == (200, "OK")
                assert len(stored(ready)) == number

    bodies = [
        body(event(1), event(2, "Opened")),
        body(event(3, "TaskStatus")),
        b" [ ] ",
        json.dumps([{"EventCode": "Ünknown", "Anything": [1, None, {}]}], ensure_ascii=False).encode(),
        body(*(event(number) for number in range(1000))),
    ]
    asyncio.run(run())
    expected = [(push, "mail_default", b"TaskStatus" in push) for push in bodies]
    assert [(push.body, push.mail_conn_id, push.task_status) for push in stored(ready)] == expected


@whatever_the_database
def test_who_does_not_know_the_token_learns_nothing(ready: Inbox) -> None:
    """Wrong, missing and unknown tokens get the same response, whatever else is right or wrong with the request."""

    async def run() -> None:
        async with receiver(ready) as sender:
            responses = [await sender.request("POST", path, b"[]") for path in wrong]
            responses += [await sender.request(method, "/x") for method in ("GET", "PUT", "DELETE", "OPTIONS", "PATCH")]
            responses += [await sender.request("POST", "/x", b"{", **{name: "x"}) for name in HEADERS]
            found = {(each.status_code, each.content, tuple(each.headers.items())) for each in responses}
            assert [each[:2] for each in found] == [(404, b"Not Found")]
            assert stored(ready) == []
            for path in (f"/mail-events/{TOKEN}", f"/a/b/{TOKEN}/", f"/{TOKEN}?x=1"):
                assert (await sender.request("POST", path, b"[]")).status_code == 200

    wrong = ("/", f"/{new_token()}", "/docs", "/openapi.json", f"/{TOKEN}/x", f"/{TOKEN[:-1]}", f"/x?{TOKEN}",
             f"/{TOKEN}%00", "/%ff", "/" + "a" * 20_000)  # fmt: skip
    asyncio.run(run())


@whatever_the_database
def test_other_requests_than_pushes_are_rejected(ready: Inbox) -> None:
    """Each with its status."""

    async def run() -> None:
        async with receiver(ready) as sender:
            for method, push, headers, status in table:
                before = len(stored(ready))
                response = await sender.request(method, f"/{TOKEN}", push, **headers)
                assert response.status_code == status, (method, push[:40], headers)
                assert len(stored(ready)) == before + (status == 200)
                assert response.headers.get("Allow") == ("POST" if status == 405 else None)

    table: list[tuple[str, bytes, dict[str, str], int]] = [
        ("GET", b"", {}, 405),
        ("PUT", b"[]", {}, 405),
        ("POST", b"[]", {"User-Agent": "curl/8"}, 403),
        ("POST", b"[]", {"Content-Type": "text/plain"}, 415),
        ("POST", b"[]", {"Content-Type": "application/jsonp"}, 415),
        ("POST", b"[]", {"Content-Type": "APPLICATION/JSON"}, 200),
        ("POST", b"[]", {"Content-Encoding": "gzip"}, 415),
        ("POST", b"[]", {"Content-Encoding": "identity"}, 200),
        ("POST", b"", {}, 400),
        ("POST", b"{}", {}, 400),
        ("POST", b"nonsense", {}, 400),
        ("POST", b"\xef\xbb\xbf {}", {}, 400),
        ("POST", body(*[{}] * 1000), {}, 200),
        ("POST", body(*[{}] * 1001), {}, 400),
        ("POST", body(*[event(Email="\ud83d")] * 1001), {}, 400),
        ("POST", b"[" + b"1," * 200_000 + b"1]", {}, 400),
        ("POST", b"[" + b" " * (8 * 2**20 - 2) + b"]", {}, 200),
        ("POST", b"[" + b" " * (8 * 2**20 - 1) + b"]", {}, 413),
    ]
    asyncio.run(run())


@whatever_the_database
def test_one_event_never_rejects_the_others(ready: Inbox) -> None:
    """The drain judges what is in an array."""

    async def run() -> None:
        async with receiver(ready) as sender:
            assert {await sender.push(push) for push in pushes} == {200}

    others = b",".join(body(event(number))[1:-1] for number in range(999))
    pushes = [
        push for odd in ODD_EVENTS for push in (b"[%b,%b]" % (odd, others), b"\xef\xbb\xbf[%b]" % odd, b" [" + odd)
    ]
    asyncio.run(run())
    assert [push.body for push in stored(ready)] == pushes
    for push in pushes:
        rows, letters = read(push)
        assert (len(rows), len(letters)) == (999 if others in push else 0, 1)


async def status_of(sender: Sender, *chunks: bytes, then: Any) -> int:
    """Push a body in chunks, after which the server receives something else."""
    scope = {
        "type": "http", "method": "POST", "path": f"/{TOKEN}", "raw_path": b"", "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()],
    }  # fmt: skip
    sent, left = [], iter(chunks)

    async def receive() -> Any:
        chunk = next(left, None)
        return await then() if chunk is None else {"type": "http.request", "body": chunk, "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    await sender.app(scope, receive, send)
    return int(sent[0]["status"])


@whatever_the_database
def test_a_body_that_does_not_end_is_not_stored(ready: Inbox, still_clock: StillClock) -> None:
    async def run() -> None:
        async def chunks(count: int) -> AsyncIterator[bytes]:
            yield b"["
            for _ in range(count):
                yield b" " * 2**20
            yield b"]"

        async def cut_off() -> Any:
            return {"type": "http.disconnect"}

        async def hang() -> Any:
            hangs.set()
            await asyncio.Event().wait()

        hangs = asyncio.Event()
        async with receiver(ready) as sender:
            assert [await sender.push(chunks(count)) for count in (9, 1)] == [413, 200]
            assert await status_of(sender, b"[", then=cut_off) == 400
            waits = asyncio.create_task(status_of(sender, b"[", then=hang))
            await hangs.wait()
            still_clock.move(BODY_SECONDS)
            assert await waits == 400

    asyncio.run(run())
    assert len(stored(ready)) == 1


@whatever_the_database
def test_hostile_bodies_are_stored_or_rejected(ready: Inbox, caplog: pytest.LogCaptureFixture) -> None:
    counts = {200: 0, 400: 0}
    with asyncio.Runner() as runner:
        context = receiver(ready)
        sender = runner.run(context.__aenter__())

        @settings(suppress_health_check=list(HealthCheck), deadline=None)
        @given(body=BODIES)
        def each(body: bytes) -> None:
            status = runner.run(sender.push(body))
            assert status == (200 if is_push(body) else 400)
            counts[status] += 1

        each()
        runner.run(context.__aexit__(None, None, None))
    assert min(counts.values()) > 0
    assert len(stored(ready)) == counts[200]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@whatever_the_database
def test_the_receiver_works_below_a_base_path(ready: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Airflow's API server mounts it; a proxy may take the base path away. What a server logs has no token."""
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "warehouse")
    outer, scopes = FastAPI(root_path="/team/airflow"), []
    outer.mount("/mail-events", ReceiverApp())

    async def server(scope: Any, receive: Any, send: Any) -> None:
        await outer(scope, receive, send)
        scopes.append({name: value for name, value in scope.items() if "path" in name or "query" in name})

    with TestClient(server, root_path="") as client:
        for base in ("/team/airflow", ""):
            url = f"{base}/mail-events/{TOKEN}"
            assert client.post(url, content=body(event(1)), headers=HEADERS).status_code == 200
            assert client.post(url, content=b"{}", headers=HEADERS).status_code == 400
            assert client.post(f"{url}x?{TOKEN}", content=b"[]", headers=HEADERS).status_code == 404
            assert client.get(f"{base}/mail-events/health").status_code == 200
    assert len(stored(ready)) == 2
    assert TOKEN not in str(scopes)
