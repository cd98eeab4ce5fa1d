"""What a push is answered with, and that what was accepted is in the inbox (document, "Events").

The hostile bodies are a sample unless MAIL_ALL_FAULTS is set.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket

import httpx
import psutil
import pytest
from hypothesis import HealthCheck, given, settings

from airflow_provider_mail.webhook.tokens import new_token
from tests.webhook.hostile import BODIES, ODD_EVENTS, is_push
from tests.webhook.running import HEADERS, RunningReceiver, event, push
from tests.webhook.test_events import read

ALL = os.environ.get("MAIL_ALL_FAULTS") == "1"
HOSTILE_BODIES = 10_000 if ALL else 60
MOST_GROWTH = 15 * 2**20
"""Bytes of memory, after the first tenth of them."""

pytestmark = [pytest.mark.not_unit, pytest.mark.timeout(3600 if ALL else 300)]


def exchange(receiver: RunningReceiver, request: bytes, *, ends: bool = False) -> bytes:
    """Send bytes, and return all bytes of the answer, without its date.

    :param ends: tell the receiver that no more bytes follow before it answers; it may then close without an answer.
    """
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=60) as connection:
        answer = b""
        with contextlib.suppress(ConnectionError):  # it may answer before it has read everything
            connection.sendall(request)
            if not ends:
                answer = connection.recv(65536)
            connection.shutdown(socket.SHUT_WR)
        answer += b"".join(iter(lambda: connection.recv(65536), b""))
    return re.sub(rb"date: [^\r]*\r\n", b"", answer)


def raw(target: str, method: str = "POST", body: bytes = b"[]", **headers: str) -> bytes:
    lines = {"Host": "x", "Content-Length": str(len(body)), "Connection": "close", **HEADERS, **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + body


def test_a_push_is_in_the_inbox_when_it_is_accepted(receiver: RunningReceiver) -> None:
    bodies = [
        push(event(1), event(2, "Opened")),
        push(event(3, "TaskStatus")),
        b" [ ] ",
        json.dumps([{"EventCode": "Ünknown", "Anything": [1, None, {}]}], ensure_ascii=False).encode(),
        push(*(event(number) for number in range(1000))),
    ]
    for body in bodies:
        answer = receiver.post(body)
        assert (answer.status_code, answer.text) == (200, "OK")
        assert receiver.bodies()[-1] == body
    expected = [(body, "mail_default", b"TaskStatus" in body) for body in bodies]
    assert [(body, conn_id, bool(status)) for body, conn_id, status in receiver.rows()][-5:] == expected


def test_behind_a_path_that_a_proxy_leaves_or_adds(receiver: RunningReceiver) -> None:
    for path in (f"/mail-events/{receiver.token}", f"/a/b/{receiver.token}/", f"/{receiver.token}?x=1"):
        assert httpx.post(f"{receiver.url}{path}", content=b"[]", headers=HEADERS, timeout=60).status_code == 200


def test_who_does_not_know_the_token_learns_nothing(receiver: RunningReceiver) -> None:
    """Wrong, missing and unknown answer alike, whatever else is right or wrong with the request."""
    wrong = ("/", f"/{new_token()}", "/docs", "/openapi.json", f"/{receiver.token}/x", f"/{receiver.token[:-1]}",
             f"/x?{receiver.token}", f"/{receiver.token}%00", "/%ff", "/" + "a" * 20_000)  # fmt: skip
    answers = {exchange(receiver, raw(target)) for target in wrong}
    answers |= {exchange(receiver, raw("/x", method, b"")) for method in ("GET", "PUT", "DELETE", "OPTIONS", "PATCH")}
    answers |= {
        exchange(receiver, raw("/x", body=b"{")),
        exchange(receiver, raw("/x", **{"Content-Length": "9000000"})),
        exchange(receiver, raw("/x", **{"Content-Type": "text/plain"})),
        exchange(receiver, raw("/x", **{"User-Agent": "curl"})),
    }
    assert len(answers) == 1
    assert answers.pop().startswith(b"HTTP/1.1 404 ")
    upgrade = raw(f"/{new_token()}", "GET", b"", Upgrade="websocket", Connection="Upgrade, close")
    assert exchange(receiver, upgrade).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize(
    ("method", "body", "headers", "status"),
    [
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
        ("POST", push(*[{}] * 1001), {}, 400),
        ("POST", push(*[event(Email="\ud83d")] * 1001), {}, 400),
        ("POST", b"[" + b"1," * 200_000 + b"1]", {}, 400),
        ("POST", b"[" + b" " * (8 * 2**20) + b"]", {}, 413),
    ],
    # The name of a test is in the environment of the processes that it starts, which has a limit.
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_what_is_taken(
    receiver: RunningReceiver, method: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    before = len(receiver.bodies())
    answer = httpx.request(
        method, f"{receiver.url}/{receiver.token}", content=body, headers={**HEADERS, **headers}, timeout=60
    )
    assert answer.status_code == status
    assert len(receiver.bodies()) == before + (status == 200)
    if status == 405:
        assert answer.headers["Allow"] == "POST"


@pytest.mark.parametrize("odd", ODD_EVENTS, ids=lambda odd: str(odd)[:20])
def test_one_event_never_refuses_the_others(receiver: RunningReceiver, odd: bytes) -> None:
    """The drain judges what is in an array."""
    others = b",".join(push(event(number))[1:-1] for number in range(999))
    for body in (b"[%b,%b]" % (odd, others), b"\xef\xbb\xbf[%b]" % odd, b" [" + odd):
        assert receiver.post(body).status_code == 200
        assert receiver.bodies()[-1] == body
        rows, letters = read(body)
        assert (len(rows), len(letters)) == (999 if others in body else 0, 1)


def test_a_body_in_chunks_is_bounded_too(receiver: RunningReceiver) -> None:
    def chunks() -> list[bytes]:
        return [b"[" + b" " * 2**20, *[b" " * 2**20] * 8, b"]"]

    assert (
        httpx.post(f"{receiver.url}/{receiver.token}", content=iter(chunks()), headers=HEADERS, timeout=60).status_code
        == 413
    )
    few = iter([b"[", b"{}", b"]"])
    assert httpx.post(f"{receiver.url}/{receiver.token}", content=few, headers=HEADERS, timeout=60).status_code == 200


def test_a_body_that_is_cut_off_is_not_stored(receiver: RunningReceiver) -> None:
    before = len(receiver.bodies())
    exchange(receiver, raw(f"/{receiver.token}", body=b"[]", **{"Content-Length": "100"}), ends=True)
    assert receiver.post(b"[]").status_code == 200
    assert len(receiver.bodies()) == before + 1


def test_while_nothing_can_be_stored_the_service_is_told_to_try_again(receiver: RunningReceiver) -> None:
    receiver.query("ALTER TABLE mail_inbox RENAME TO hidden")
    answer = receiver.post(push(event(9)))
    receiver.query("ALTER TABLE hidden RENAME TO mail_inbox")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert receiver.post(push(event(9))).status_code == 200


def test_the_log_has_each_request_but_no_secret_and_no_address(receiver: RunningReceiver) -> None:
    receiver.post(push(event(7)))
    receiver.post(b'[{"Email": "reader7@planted.example"')
    httpx.get(f"{receiver.url}/{receiver.token}/x?{receiver.token}", timeout=60)
    log = receiver.log.read_text()
    assert '"POST /... HTTP/1.1" 200' in log
    assert '"GET /... HTTP/1.1" 404' in log
    assert receiver.token not in log
    assert "planted.example" not in log


def test_hostile_bodies(receiver: RunningReceiver) -> None:
    process = psutil.Process(receiver.process.pid)
    counts = {200: 0, 400: 0}
    memory: list[int] = []
    before = len(receiver.bodies())

    with httpx.Client(headers=HEADERS, timeout=60) as client:

        @settings(max_examples=HOSTILE_BODIES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(body=BODIES)
        def each(body: bytes) -> None:
            status = client.post(f"{receiver.url}/{receiver.token}", content=body).status_code
            assert status == (200 if is_push(body) else 400)
            counts[status] += 1
            memory.append(process.memory_info().rss)

        each()

    assert min(counts.values()) > 0
    assert len(receiver.bodies()) == before + counts[200]
    assert max(memory) - max(memory[: len(memory) // 10 + 1]) < MOST_GROWTH
    log = receiver.log.read_text()
    assert receiver.token not in log
    assert "Traceback" not in log
