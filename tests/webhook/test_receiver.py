"""How the receiver responds to a push, that what was accepted is in the inbox (document, "Events"), and its health."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, example, given, settings
from starlette.testclient import TestClient, WebSocketDisconnect

from airflow_provider_mail.webhook import app, commits
from airflow_provider_mail.webhook.app import BODY_SECONDS, ReceiverApp
from airflow_provider_mail.webhook.inbox import Inbox
from airflow_provider_mail.webhook.tokens import TokenOwner, Tokens, new_token, token_digest
from tests.support.clock import StillClock
from tests.support.receiver import HEADERS
from tests.support.statsd import StatsdServer
from tests.tasks.test_metrics import statsd  # noqa: F401 - a fixture
from tests.webhook.hostile import BODIES, is_push
from tests.webhook.pushes import body, event
from tests.webhook.receiving import PATIENCE, TOKEN, Sender, drain_all, execute, receiver, stored

pytestmark = [pytest.mark.not_unit, pytest.mark.usefixtures("still_clock")]  # whatever time the database takes
whatever_the_database = pytest.mark.parametrize("inbox", ["sqlite"], indirect=True)


def test_a_push_is_in_the_inbox_when_it_is_accepted(ready: Inbox) -> None:
    bodies = [
        body(event(1), event(2, "Opened")),
        body(event(3, "TaskStatus")),
        b" [ ] ",
        json.dumps([{"EventCode": "Ünknown", "Anything": [1, None, {}]}], ensure_ascii=False).encode(),
        body(*(event(number) for number in range(1000))),
    ]
    with receiver(ready) as sender:
        for number, push in enumerate(bodies, 1):
            response = sender.request("POST", f"/{TOKEN}", push)
            assert (response.status_code, response.text) == (200, "OK")
            assert len(stored(ready)) == number
    expected = [(push, "mail_default", b"TaskStatus" in push) for push in bodies]
    assert [(push.body, push.mail_conn_id, push.task_status) for push in stored(ready)] == expected


@whatever_the_database
def test_who_does_not_know_the_token_learns_nothing(ready: Inbox) -> None:
    """Wrong, missing and unknown tokens get the same response, whatever else is right or wrong with the request."""

    wrong = ("/", f"/{new_token()}", "/docs", "/openapi.json", f"/{TOKEN}/x", f"/{TOKEN[:-1]}", f"/x?{TOKEN}",
             f"/{TOKEN}%00", "/%ff", "/" + "a" * 20_000)  # fmt: skip
    with receiver(ready) as sender:
        responses = [sender.request("POST", path, b"[]") for path in wrong]
        responses += [sender.request(method, "/x") for method in ("GET", "PUT", "DELETE", "OPTIONS", "PATCH")]
        responses += [sender.request("POST", "/x", b"{", **{name: "x"}) for name in HEADERS]
        found = {(each.status_code, each.content, tuple(each.headers.items())) for each in responses}
        assert [each[:2] for each in found] == [(404, b"Not Found")]
        assert stored(ready) == []
        for path in (f"/mail-events/{TOKEN}", f"/a/b/{TOKEN}/", f"/{TOKEN}?x=1"):
            assert sender.request("POST", path, b"[]").status_code == 200


@whatever_the_database
def test_a_push_belongs_to_the_owner_of_its_token(ready: Inbox) -> None:
    """Of several valid tokens, whatever their order."""
    others = [new_token(), new_token()]
    for number, token in enumerate(others):
        Tokens(ready, TokenOwner(f"other_{number}", "", "")).add(token)
    with receiver(ready) as sender:
        for token in (TOKEN, *others):
            assert sender.request("POST", f"/{token}", b"[]").status_code == 200
        assert [push.mail_conn_id for push in stored(ready)] == ["mail_default", "other_0", "other_1"]


@whatever_the_database
def test_every_digit_of_a_digest_is_compared(ready: Inbox) -> None:
    digest = token_digest(stranger := new_token())
    others = [f"{digest[:at]}{'1' if digest[at] == '0' else '0'}{digest[at + 1 :]}" for at in range(len(digest))]
    similar = ", ".join(f"('{other}', 'x', '', '', '')" for other in others)
    execute(
        ready,
        f"INSERT INTO mail_inbox_tokens (digest, mail_conn_id, service_host, account, created_at) VALUES {similar}",
    )
    with receiver(ready) as sender:
        assert sender.request("POST", f"/{stranger}", b"[]").status_code == 404


@whatever_the_database
def test_other_requests_than_pushes_are_rejected(ready: Inbox) -> None:
    """Each with its status."""

    table: list[tuple[str, bytes, dict[str, str], int]] = [
        ("PUT", b"[]", {}, 405),
        ("POST", b"[]", {"User-Agent": "curl/8"}, 403),
        ("POST", b"[]", {"User-Agent": HEADERS["User-Agent"].lower()}, 403),
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
        ("POST", b"[]", {"Content-Length": "9" * 5000}, 413),
    ]
    with receiver(ready) as sender:
        for method, push, headers, status in table:
            before = len(stored(ready))
            response = sender.request(method, f"/{TOKEN}", push, **headers)
            assert response.status_code == status, (method, push[:40], headers)
            assert len(stored(ready)) == before + (status == 200)
            assert response.headers.get("Allow") == ("GET, HEAD, POST" if status == 405 else None)
    with receiver(ready, user_agent="") as sender:
        assert sender.request("POST", f"/{TOKEN}", b"[]", **{"User-Agent": "any"}).status_code == 200


@whatever_the_database
def test_services_may_check_an_address(ready: Inbox) -> None:
    with receiver(ready) as sender:
        for method in ("GET", "HEAD"):
            responses = [sender.request(method, path, **{"User-Agent": "x"}) for path in (f"/{TOKEN}", "/x")]
            assert [response.status_code for response in responses] == [200, 404]
    assert stored(ready) == []


@whatever_the_database
@pytest.mark.parametrize("while_it", ["arrives", "is written"])
def test_after_an_overload_there_is_room_again(ready: Inbox, monkeypatch: pytest.MonkeyPatch, while_it: str) -> None:
    """Pushes that come at once or one by one, and are turned away; what was counted is given back."""
    begun, go, insert = threading.Semaphore(0), threading.Semaphore(0), Inbox.insert

    def wait(here: str) -> None:
        if here == while_it:
            begun.release()
            assert go.acquire(timeout=PATIENCE)

    def held(*arguments: Any) -> None:
        wait("is written")
        insert(*arguments)

    monkeypatch.setattr(Inbox, "insert", held)

    async def together(sender: Sender) -> list[int]:
        async def body() -> AsyncIterator[bytes]:
            yield b"[" + b" " * 90
            await asyncio.to_thread(wait, "arrives")
            yield b"]"

        async def too_long() -> AsyncIterator[bytes]:
            yield b"[" + b" " * 50
            yield b" " * 150

        async def push(content: Any) -> int:
            return (await sender.http.post(f"/{TOKEN}", content=content, headers=HEADERS)).status_code

        first = asyncio.create_task(push(body()))
        assert await asyncio.to_thread(begun.acquire, True, PATIENCE)
        others = [await push(b"[" + b" " * 50 + b"]"), await push(b"{}")]
        go.release()
        return [await first, *others, await push(b"{" + b" " * 50), await push(too_long())]

    with receiver(ready, max_pending=100, max_body=150) as sender:
        for _ in range(3):
            assert sender.runner.run(together(sender)) == [200, 503, 400, 400, 413]


@whatever_the_database
def test_a_body_that_does_not_end_is_not_stored(ready: Inbox, still_clock: StillClock) -> None:
    async def chunks(size: int) -> AsyncIterator[bytes]:
        rest = b"[" + b" " * (size - 2) + b"]"
        while rest:
            yield rest[: 2**20]
            rest = rest[2**20 :]

    async def cut_off() -> Any:
        return {"type": "http.disconnect"}

    async def hang() -> Any:
        asyncio.get_running_loop().call_soon(still_clock.move, BODY_SECONDS)
        await asyncio.Event().wait()

    async def status_of(app: Any, then: Any) -> int:
        """The status of a push after whose first byte the receiver receives something else."""
        scope = {
            "type": "http", "method": "POST", "path": f"/{TOKEN}", "raw_path": b"", "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()],
        }  # fmt: skip
        sent: list[Any] = []
        begin = [{"type": "http.request", "body": b"[", "more_body": True}]

        async def receive() -> Any:
            return begin.pop() if begin else await then()

        async def send(message: Any) -> None:
            sent.append(message)

        await app(scope, receive, send)
        return int(sent[0]["status"])

    with receiver(ready) as sender:
        assert [sender.push(chunks(2**23 + more)) for more in (2**20, 1, 0)] == [413, 413, 200]
        assert [sender.runner.run(status_of(sender.app, then)) for then in (cut_off, hang)] == [400, 400]
    assert len(stored(ready)) == 1


@whatever_the_database
def test_hostile_bodies_are_stored_or_rejected(ready: Inbox, caplog: pytest.LogCaptureFixture) -> None:
    counts = {200: 0, 400: 0}
    with receiver(ready) as sender:

        @settings(suppress_health_check=list(HealthCheck), deadline=None)
        @example(body=b"[]")
        @example(body=b"{")
        @given(body=BODIES)
        def each(body: bytes) -> None:
            status = sender.push(body)
            assert status == (200 if is_push(body) else 400)
            counts[status] += 1

        each()
    assert min(counts.values()) > 0
    assert len(stored(ready)) == counts[200]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@whatever_the_database
def test_the_receiver_works_below_a_base_path(ready: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mounted in another application; a proxy may take the base path away. What a server logs has no token."""
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
            with pytest.raises(WebSocketDisconnect), client.websocket_connect(url):
                pass
    assert len(stored(ready)) == 2
    assert TOKEN not in str(scopes)


# What it says of itself when nothing can be stored: 503 for pushes and health, and that it is alive

both_databases = pytest.mark.parametrize("inbox", ["sqlite", "psycopg3"], indirect=True)


READ_ONLY = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I {}', current_database()); END $$"
BROKEN = {
    "no inbox": ("ALTER TABLE mail_inbox RENAME TO hidden", "ALTER TABLE hidden RENAME TO mail_inbox"),
    "no tokens": ("ALTER TABLE mail_inbox_tokens RENAME TO hidden", "ALTER TABLE hidden RENAME TO mail_inbox_tokens"),
    "full in Postgres": (
        "ALTER TABLE mail_inbox ADD CONSTRAINT disk_full CHECK (body_bytes <= 2) NOT VALID",
        "ALTER TABLE mail_inbox DROP CONSTRAINT disk_full",
    ),
    "full in SQLite": (
        "CREATE TRIGGER full BEFORE INSERT ON mail_inbox WHEN NEW.body_bytes > 2 "
        "BEGIN SELECT RAISE(ABORT, 'disk full'); END",
        "DROP TRIGGER full",
    ),
    "read-only in Postgres": (
        READ_ONLY.format("SET default_transaction_read_only = on"),
        f"SET transaction_read_only = off; {READ_ONLY.format('RESET default_transaction_read_only')}",
    ),
}
"""By what is wrong: how it begins and ends. Of a full disk a probe notices nothing."""


@contextmanager
def broken(inbox: Inbox, problem: str) -> Iterator[None]:
    if problem == "away":
        with mock.patch.object(inbox.hook, "get_conn", side_effect=OSError("away")):
            yield
        return
    begin, end = BROKEN[problem]
    execute(inbox, begin)
    yield
    execute(inbox, end)


@both_databases
@pytest.mark.parametrize("problem", ["away", *BROKEN])
def test_while_nothing_can_be_stored_the_service_tries_again(
    ready: Inbox, still_clock: StillClock, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    if problem.endswith("Postgres" if ready.hook.conn_type == "sqlite" else "SQLite"):
        pytest.skip("of the other database")
    with receiver(ready) as sender:
        with broken(ready, problem):
            assert sender.get("/health") == [200 if problem.startswith("full") else 503], "before a push"
            response = sender.request("POST", f"/{TOKEN}", b"[{}]")
            assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
            assert sender.get("/health", "/alive") == [503, 200]
        assert caplog.records
        still_clock.move(commits.FAILED_SECONDS)
        assert sender.get("/health", "/a/alive") == [200, 200]
        assert sender.push() == 200
    assert len(stored(ready)) == 1


@both_databases
def test_without_a_token_no_push_can_be_stored(inbox: Inbox) -> None:
    with receiver(inbox) as sender:
        assert [*sender.get("/health"), sender.push()] == [503, 404]
        assert sender.request("POST", "/health").status_code == 404


@both_databases
def test_what_waits_in_the_inbox_is_bounded(ready: Inbox, still_clock: StillClock) -> None:
    """For each of several receivers, at once: also for one that has just started, and that cannot read the counter."""
    with receiver(ready, max_inbox=10) as sender, receiver(Inbox(ready.hook), max_inbox=10) as other:
        assert [sender.push(b"[{ }]"), other.push(b"[{ }]")] == [200, 200], "five bytes each"
        assert [*other.get("/health", "/x"), other.push()] == [503, 404, 503]
        with receiver(Inbox(ready.hook), max_inbox=10) as started:
            assert [started.push(), *started.get("/health", "/alive")] == [503, 503, 200]
        still_clock.move(app.STATE_SECONDS)
        assert [*sender.get("/health"), sender.push()] == [503, 503]
        drain_all(ready)
        still_clock.move(app.STATE_SECONDS)
        assert [*sender.get("/health"), sender.push()] == [200, 200]
        with mock.patch.object(Inbox, "state", side_effect=OSError("away")):
            for _ in range(3):
                still_clock.move(app.STATE_SECONDS)
                drain_all(ready)
                assert [*sender.get("/health"), sender.push(b"[{},{}]")] == [200, 200], "an empty inbox is not full"
            assert [sender.push(), sender.push()] == [200, 503]
    assert ready.state().waiting_pushes == 2


@both_databases
def test_health_is_honest_while_only_small_pushes_can_be_stored(ready: Inbox, still_clock: StillClock) -> None:
    """As on a disk that is almost full, where a probe and small pushes still find a place."""
    database = "SQLite" if ready.hook.conn_type == "sqlite" else "Postgres"
    with receiver(ready) as sender:
        with broken(ready, f"full in {database}"):
            for _ in range(2):
                assert [sender.push(b"[{}]"), sender.push(b"[]"), *sender.get("/health")] == [503, 200, 503]
                still_clock.move(app.HEALTH_SECONDS)
        assert [sender.push(b"[]"), *sender.get("/health")] == [200, 503], "not yet known"
        assert [sender.push(b"[{}]"), *sender.get("/health")] == [200, 200]


@both_databases
def test_pushes_and_the_inbox_are_counted(
    ready: Inbox,
    still_clock: StillClock,
    statsd: StatsdServer,  # noqa: F811
) -> None:
    with receiver(ready) as sender:
        assert sender.get("/health") == [200]  # the state is known
        assert [sender.push(body) for body in (b"[{},{}]", b"[{}]", b"{}")] == [200, 200, 400]
        assert sender.request("POST", "/x").status_code == 404
        with broken(ready, "no inbox"):
            assert sender.push() == 503
        found = statsd.received()
        assert {key: found[key] for key in found if "receive" in key[0]} == {
            ("mail.receive.pushes", "200"): 2,
            ("mail.receive.events", "200"): 3,
            **{("mail.receive.pushes", status): 1 for status in ("400", "404", "503")},
        }
        still_clock.move(app.STATE_SECONDS)
        assert [*sender.get("/health"), sender.push(b"[{},{}]")] == [503, 200]
    found = statsd.received()
    assert found.pop(("mail.inbox.oldest_seconds",)) >= 0
    assert found == {
        ("mail.receive.pushes", "200"): 1,
        ("mail.receive.events", "200"): 2,
        ("mail.inbox.pushes",): 2,
        ("mail.inbox.bytes",): 11,
    }
