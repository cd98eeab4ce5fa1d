"""Responses that no service should give: one clear error each, in bounded time and memory, over a real socket."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_mail import api
from tests.api.driving import KINDS, ONCE, Driver
from tests.api.parts import MailRequest, exceeds_memory
from tests.api.wire import Wire, http
from tests.support.clock import Clock
from tests.support.sampling import pairwise

READ = api.GetLists()
SEND = api.SendMail(subject="s", content="c", sender_mail="news@example.com", to=api.Recipient(email="ada@example.com"))
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = "Content-Encoding: gzip"


@pytest.fixture
def client(connect: Callable[..., Driver], wire: Wire) -> Driver:
    return connect(wire.base_url, retry=ONCE)


BROKEN = {
    "nothing": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "less than promised": OK + b'Content-Length: 100\r\n\r\n{"code": 200}',
    "a chunk without its end": CHUNKED + b'50\r\n{"code": 200}',
    "endless headers": OK + b"X-Filler: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 20_000,
}


@pytest.mark.both_clients
@pytest.mark.parametrize("response", BROKEN.values(), ids=BROKEN)
def test_broken_http_is_a_lost_response(response: bytes, wire: Wire, client: Driver) -> None:
    wire.answer = response
    with pytest.raises(api.MailAnswerLostError, match="/v5/lists/get: the response was lost"):
        client.send(READ)
    with pytest.raises(api.MailAmbiguousSendError):
        client.send(SEND)
    assert len(wire.requests) == 2


UNREADABLE = [
    OK + b"\r\n<html>",  # without a length
    http(gzip.compress(b'{"code": 200}')[:-12], "200 OK", GZIP),
    http(b'{"code": 200}x', "200 OK", GZIP),
    http(b"\x1b\x0c\x00", "200 OK", "Content-Encoding: br"),  # was not accepted
    http(b"<html>", "200 OK", "X-Cafe: \xfc"),
    http(b'{"code": 200, "lists": ' + b"[" * 1_000_000 + b"}"),
]


def test_an_unreadable_body_is_an_error(wire: Wire, client: Driver) -> None:
    for response in UNREADABLE:
        wire.answer = response
        with pytest.raises(api.MailAnswerError, match="no JSON object") as raised:
            client.send(READ)
        assert raised.value.status == 200


@pytest.mark.both_clients
def test_gzip_is_requested_and_read(wire: Wire, client: Driver) -> None:
    wire.answer = http(gzip.compress(b'{"code": 200, "totalRecords": 7}'), "200 OK", GZIP)
    assert client.send(READ).total_records == 7
    assert b"accept-encoding: gzip\r\n" in wire.requests[0].lower()
    for status, error in (("401 Unauthorized", api.MailAuthError), ("429 Too Many Requests", api.MailRateLimitError)):
        wire.answer = http(b"\x1f\x8b\x08broken", status, GZIP)
        with pytest.raises(error):  # the status counts where the compression is broken
            client.send(READ)


@pytest.mark.both_clients
@pytest.mark.parametrize("location", ["http://127.0.0.1:{port}/elsewhere", "//[", "http://\x7f", "/v5/x", "ftp://x/"])
def test_no_redirect_is_followed_and_no_cookie_kept(location: str, wire: Wire, client: Driver) -> None:
    with Wire(http()) as elsewhere:
        location = location.format(port=elsewhere.base_url.rpartition(":")[2])
        wire.answer = http(b"", "307 Temporary Redirect", f"Location: {location}")
        with pytest.raises(api.MailError) as raised:
            client.send(SEND)
        assert elsewhere.requests == []
    assert len(wire.requests) == 1
    wire.answer = http(b'{"code": 200}', "200 OK", "Set-Cookie: session=\xff\xfe; Path=/")
    for _ in range(2):
        client.send(READ)  # nor is a cookie kept: an invalid one would break every later request
    assert b"cookie" not in b"".join(wire.requests).lower()
    if location.startswith("http://127"):
        assert isinstance(raised.value, api.MailConfigError)
        assert "set the connection's host to the final address" in str(raised.value)


# Size.


@contextlib.contextmanager
def memory_below(megabytes: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < megabytes * 1_000_000
    finally:
        tracemalloc.stop()


def endless(head: bytes, piece: bytes) -> Callable[[socket.socket], None]:
    def play(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(piece)

    return play


HUGE: dict[str, Any] = {
    "100 MB": endless(OK + b"Content-Length: 104857600\r\n\r\n", b" " * 65_536),
    "endless": endless(CHUNKED, b"10000\r\n" + b" " * 65_536 + b"\r\n"),
    "endless behind a gzip": endless(OK + b"Content-Encoding: gzip\r\n\r\n", gzip.compress(b"{}") + b"x" * 65_536),
    "compressed a thousand times": http(gzip.compress(b" " * 60_000_000), "200 OK", GZIP),
}


@pytest.mark.both_clients
@pytest.mark.parametrize("response", HUGE.values(), ids=HUGE)
def test_a_huge_body_takes_little_memory(response: Any, wire: Wire, connect: Callable[..., Driver]) -> None:
    wire.answer = response
    client = connect(wire.base_url, retry=ONCE, max_answer_bytes=2_000_000)
    too_large = f"{READ.path}: the response is larger than 2000000"
    with memory_below(20), pytest.raises(api.MailAnswerError, match=too_large):
        client.send(READ)


def test_very_many_values_are_not_decoded(wire: Wire, connect: Callable[..., Driver]) -> None:
    """Within the limits of size, and a hundred times as large when decoded."""
    client = connect(wire.base_url, retry=ONCE, max_answer_bytes=4_000_000)
    for begin, piece, end in [
        (b'"lists": [', b"{},", b"{}]}"),
        (b'"x": [', b"[" * 50 + b"]" * 50 + b",", b"0]}"),
        (b'"x": [', b"1.5,", b"0]}"),
        (b'"message": "\\"{", "lists": [', b'{"ListName":""},', b"{}]}"),  # objects behind a text
    ]:
        body = b'{"code": 200, ' + begin + piece * (3_500_000 // len(piece)) + end
        wire.answer = http(gzip.compress(body), "200 OK", GZIP)
        with memory_below(60), pytest.raises(api.MailAnswerError, match="so many values"):
            client.send(READ)


def test_large_texts_are_not_very_many_values(wire: Wire, connect: Callable[..., Driver]) -> None:
    text = json.dumps('<style>a{b:c},[d]{e:f}</style>\n"' * 100_000)
    wire.answer = http(f'{{"code": 200, "lists": [{{"ListName": {text}}}]}}'.encode())
    client = connect(wire.base_url, retry=ONCE, max_answer_bytes=4_000_000)
    assert len(client.send(READ).records[0].list_name) == 3_200_000
    for one in (b'"' * 1_000_001, b'"' + rb"\"" * 1_000_000, b'"' + b"\\" * 1_000_001, b"{" * 2_000_000):
        exceeds_memory(one, 0)  # takes no longer than the text is long


# Time: the clock moves with each piece, and the next piece arrives always.

DRIPS = {
    "status line": (b"HTTP/1.1 200 ", b"O"),
    "header": (OK + b"X: ", b"x"),
    "chunks": (CHUNKED, b"1\r\n \r\n"),
    "body": (OK + b"Content-Length: 100000\r\n\r\n", b" "),
    "body without a length": (OK + b"\r\n", b" "),
    "behind a complete response": (http(close=False), b""),
}


@pairwise(part=DRIPS, request_=[READ, SEND], connect=KINDS, indirect=["connect"])
def test_a_response_that_drips_ends_wherever_it_drips(
    part: str, request_: MailRequest[Any], clock: Clock, wire: Wire, connect: Callable[..., Driver]
) -> None:
    """Each piece arrives within the time-out, all of them never."""
    begin, piece = DRIPS[part]
    kept = not piece

    def drip(connection: socket.socket) -> None:
        connection.sendall(begin)
        if kept:  # the connection has served one request
            connection.recv(65_536)
            connection.sendall(OK + b"X: ")
        for _ in range(100):
            connection.sendall(piece or b"x")
            clock.sleep(5)
        connection.recv(1)  # until the client hangs up

    wire.answer = drip
    client = connect(wire.base_url, retry=ONCE)
    if kept:
        client.send(READ)
        request_ = READ  # only those use a connection again
    # In an event loop the time-out of one read, 60 s, may come first: the clock moves faster than the client reads.
    either = "|ReadTimeout" if isinstance(client.client, api.AsyncMailClient) else ""
    with pytest.raises(api.MailError, match=rf"not complete after 240 s \(4 times{either}") as raised:
        client.send(request_)
    assert raised.value.may_have_taken_effect
    assert len(wire.requests) == 1
