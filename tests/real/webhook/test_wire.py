"""The receiver as uvicorn serves it: the bytes of its responses, what it logs, and a rotation while pushes arrive."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator

import httpx
import pytest

from airflow_provider_mail.webhook.tokens import new_token
from tests.support.receiver import HEADERS, RunningReceiver, sqlite_connection
from tests.webhook.pushes import body, event


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningReceiver]:
    folder = tmp_path_factory.mktemp("receiver")
    with RunningReceiver(folder, sqlite_connection(folder / "inbox.db")) as running:
        yield running


def exchange(
    receiver: RunningReceiver, target: str, method: str = "POST", body: bytes = b"[]", **headers: str
) -> bytes:
    """Send a request, and return all bytes of the response, without its date."""
    lines = {"Host": "x", "Content-Length": str(len(body)), "Connection": "close", **HEADERS, **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=60) as connection:
        connection.sendall(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + body)
        response = b"".join(iter(lambda: connection.recv(65536), b""))
    return re.sub(rb"date: [^\r]*\r\n", b"", response)


def test_who_does_not_know_the_token_gets_the_same_bytes(receiver: RunningReceiver) -> None:
    wrong = ("/", f"/{new_token()}", "/docs", f"/{receiver.token}/x", f"/x?{receiver.token}", f"/{receiver.token}%00",
             "/%ff", "/" + "a" * 20_000)  # fmt: skip
    responses = {exchange(receiver, target) for target in wrong}
    responses |= {exchange(receiver, "/x", method, b"") for method in ("GET", "PUT", "DELETE", "OPTIONS", "PATCH")}
    responses |= {exchange(receiver, "/x", **{"Content-Length": "9000000"}), exchange(receiver, "/x", body=b"{")}
    (response,) = responses
    assert response.startswith(b"HTTP/1.1 404 ")
    upgrade = exchange(receiver, f"/{new_token()}", "GET", b"", Upgrade="websocket", Connection="Upgrade, close")
    assert upgrade.startswith(b"HTTP/1.1 404 ")


def test_headers_are_bounded_and_write_nothing_to_the_log(receiver: RunningReceiver) -> None:
    """Proxies pass on what strangers send."""
    response = b""
    with contextlib.suppress(OSError):  # it may close the connection before it has read everything
        lines = {f"X-{number}": "x" * 1000 for number in range(5000)}
        response = exchange(receiver, f"/{receiver.token}", **lines)
    assert b" 200 " not in response
    for value in ("ada@planted.example", receiver.token):
        assert exchange(receiver, "/x", **{"X-Forwarded-For": value}).startswith(b"HTTP/1.1 404 ")
    log = receiver.log.read_text()
    assert ("planted" in log, receiver.token in log) == (False, False)


@pytest.mark.ci
def test_the_log_has_each_request_but_no_token_and_no_address(receiver: RunningReceiver) -> None:
    assert receiver.post(body(event(7))).status_code == 200
    assert receiver.post(b"{}").status_code == 400
    httpx.get(f"{receiver.url}/{receiver.token}/x?{receiver.token}", timeout=60)
    assert receiver.events() == [event(7)]
    log = receiver.log.read_text()
    assert '"POST /... HTTP/1.1" 200' in log
    assert '"GET /... HTTP/1.1" 404' in log
    assert receiver.token not in log
    assert "user7@example.com" not in log
