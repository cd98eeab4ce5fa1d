"""What a response means: HTTP status and body to response or error, for any bytes."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from pydantic import ValidationError

from airflow_provider_mail import api
from airflow_provider_mail.api.campaigns import CampaignStats, GetCampaigns, GetCampaignStats
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.errors import (
    MailAuthError,
    MailConfigError,
    MailError,
    MailRateLimitError,
    MailRejectedError,
    MailResponseError,
    MailResponseLostError,
    MailServerError,
)
from airflow_provider_mail.api.lists import AddList, GetLists
from airflow_provider_mail.api.transactional import TransactionalStats
from tests.api.driving import ONCE
from tests.api.parts import HttpResponse, MailRequest, Resource, exceeds_memory, parse_response
from tests.api.wire import Wire, http
from tests.support.clock import Clock
from tests.support.sampling import pairwise

HTML = b"<!doctype html><html><body>Bad gateway</body></html>"
REQUEST = AddList(list_name="customers")
STATS = GetCampaignStats(start_date="2026-01-01", end_date="2026-01-02")


def coded(code: Any, message: Any = "words") -> bytes:
    return json.dumps({"code": code, "message": message}).encode()


Judgement = tuple[type[MailError], bool, bool, int | None, str]
REJECTED: Judgement = (MailRejectedError, False, False, 400, "code 400: rejected: words")
FAILED: Judgement = (MailServerError, True, True, 500, "code 500: the service failed: words")
NO_CODE: Judgement = (MailResponseError, True, True, None, "without a whole-number code")
NO_JSON: Judgement = (MailResponseError, True, True, None, "no JSON object")


def contradicts(status: int) -> Judgement:
    return MailResponseError, True, True, 200, f"HTTP {status} contradicts code 200"


# HTTP status and body, then error, temporary, may have taken effect, code, what the text says
TABLE: list[tuple[int, bytes, *Judgement]] = [
    # The body's code, under HTTP 200 or under its own status.
    (200, coded(400), *REJECTED),
    (400, coded(400), *REJECTED),
    (200, coded(403), MailRejectedError, False, False, 403, "code 403: rejected: words"),
    (200, coded(401), MailAuthError, False, False, 401, "code 401: the service rejected the credentials: words"),
    (200, coded(429), MailRateLimitError, True, False, 429, "code 429: too many requests: words"),
    (200, coded(408), MailResponseLostError, True, True, 408, "code 408: the service timed out"),
    (200, coded(500), *FAILED),
    (500, coded(500), *FAILED),
    # Codes that the document does not know are the service's failures.
    *((200, coded(code), MailServerError, True, True, code, f"code {code}") for code in (0, -1, 201, 302, 40001)),
    # The code as text, as a whole number with a fraction; and what is none.
    *((200, coded(code), *REJECTED) for code in ("400", " 400 ", 400.0)),
    *((200, coded(code), *NO_CODE) for code in ("--400", "²", "9" * 5000, 10**4000, 400.5, True, None, [200])),
    *((200, body, *NO_CODE) for body in (b"{}", b'{"code": NaN}', b'{"code": 1e999}')),
    # Status and code that contradict each other.
    (500, coded(200), MailServerError, True, True, 200, "HTTP 500"),
    (502, coded(400), *REJECTED),
    (400, coded(500), *FAILED),
    (429, coded(500), MailRateLimitError, True, False, 500, "HTTP 429"),
    (401, coded(500), MailAuthError, False, False, 500, "HTTP 401"),
    *((status, coded(200), *contradicts(status)) for status in (199, 400, 401, 429)),
    # No JSON object: the status decides.
    (200, HTML, MailResponseError, True, True, None, "HTTP 200 with no JSON object"),
    (204, b"", MailResponseError, True, True, None, "HTTP 204 with no JSON object"),
    *((200, body, *NO_JSON) for body in (b"", b'{"code": 200, "mess', b"[200]", b"200", b"null")),
    (200, b'{"code": 200, "message": "\xff"}', *NO_JSON),
    (200, b'{"code": 200, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", *NO_JSON[:-1], "JSON"),
    # A proxy's page, whatever its status, says nothing of what became of the request ...
    *(
        (status, body, MailResponseError, True, True, None, f"HTTP {status} with ")
        for status in (400, 402, 403, 404, 405, 406, 407, 409, 410, 414, 418, 421, 422, 425, 431, 451, 499)
        for body in (HTML, b"", b'{"message": "words"}', b'{"code": "x"}')
    ),
    (413, HTML, MailRejectedError, False, False, None, "HTTP 413: rejected, the request is too large for a proxy"),
    (413, coded(413), MailRejectedError, False, False, 413, "code 413: rejected"),
    # ... but for 401 (what the service's own holds is not shown) and 429, which are given before anything is done.
    (401, HTML, MailAuthError, False, False, None, "HTTP 401: the service rejected the credentials"),
    (408, b"", MailResponseLostError, True, True, None, "HTTP 408: the service timed out"),
    (429, b"slow down", MailRateLimitError, True, False, None, "HTTP 429: too many requests"),
    *(
        (status, body, MailServerError, True, True, None, f"HTTP {status}: the service failed")
        for status, body in ((500, HTML), (502, HTML), (503, b""), (504, b""), (999, b""))
    ),
    *(
        (status, body, MailConfigError, False, False, None, "redirect (HTTP 30")
        for status in (300, 301, 302, 303, 307, 308)
        for body in (b"", coded(200))
    ),
]


@pytest.mark.parametrize(("status", "body", "error", "temporary", "effect", "code", "says"), TABLE)
def test_what_a_response_means(
    status: int, body: bytes, error: type[MailError], temporary: bool, effect: bool, code: int | None, says: str
) -> None:
    with pytest.raises(MailError) as raised:
        parse_response(REQUEST, HttpResponse(status, {}, body))
    result = raised.value
    assert (type(result), result.temporary, result.may_have_taken_effect) == (error, temporary, effect)
    assert (result.status, result.code, result.operation) == (status, code, "/v5/lists/add")
    assert str(result).startswith("/v5/lists/add: ")
    assert says in str(result)
    assert result.service_message in (None, "words")


def test_success() -> None:
    for status, code, message in product([200, 201, 299], [200, "200", " 200", 200.0], ["", None]):
        body = json.dumps({"code": code, "message": message}).encode()
        response = parse_response(GetLists(), HttpResponse(status, {}, body))
        assert (response.code, bool(response.message), response.records) == (200, False, [])
    # What is no JSON spoils nothing but itself.
    assert parse_response(REQUEST, HttpResponse(200, {}, b'{"code": 200, "x": Infinity}')).code == 200
    assert parse_response(REQUEST, HttpResponse(200, {}, b'{"code": 200, "message": "\\ud800"}')).code == 200


# What a float holds exactly enough, or not at all; and what would become another number.
FLOATS = ["0.1", "-1.5", "1e300", "0.123456789012345", "12345678901234.75", "100.000000000000000", "1e999", "-1.50e999"]
DECIMALS = ["9007199254740.993", "0.1234567890123456789", "-12345678901234567.25", "1.0000000000000000001e-7"]


def test_a_number_keeps_its_digits() -> None:
    for text, kind in [*((text, float) for text in FLOATS), *((text, Decimal) for text in DECIMALS)]:
        body = b'{"code": 200, "lists": [{"ListName": "vip", "score": [%s, 0.5]}]}' % text.encode()
        (record,) = parse_response(GetLists(), HttpResponse(200, {}, body)).records
        assert repr(record.other_fields) == repr({"score": [kind(text), 0.5]})


# The last two are 1 and 0 to Python.
NO_COUNTS = [b"1e999", b"-1e999", b"1.5", b'"many"', b"[1]", b"{}", b"true", b"false"]


@pytest.mark.parametrize("number", NO_COUNTS)
@pytest.mark.parametrize("record", [CampaignStats, TransactionalStats])
def test_a_count_or_a_total_that_is_none(record: type[Resource], number: bytes) -> None:
    for request, records in ((GetLists(), b"lists"), (STATS, b"mailStatsList")):
        body = b'{"code": 200, "%s": [], "totalRecords": %s}' % (records, number)
        with pytest.raises(MailResponseError, match="totalRecords"):
            parse_response(request, HttpResponse(200, {}, body))
    counts = [name for name, field in record.model_fields.items() if field.annotation is int]
    assert len(counts) >= 6
    good = dict.fromkeys(counts, 1) | {"mail_name": "a", "mail_send_date": 1, "stats_date": "2026-01-01"}
    assert record.model_validate(good)
    for name in counts:
        with pytest.raises(ValidationError, match=name):
            record.model_validate({**good, name: json.loads(number)})


def test_a_list_full_of_wrong_records_ends_at_the_first() -> None:
    """Two megabytes of wrong records must not become a gigabyte of complaints."""
    body = b'{"code": 200, "mailList": [' + b"1," * 500_000 + b"1]}"
    with pytest.raises(MailResponseError, match=r"mailList\[0\]") as raised:
        parse_response(GetCampaigns(), HttpResponse(200, {}, body))
    assert not re.search(r"mailList\[1\]|more", str(raised.value))


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("  two\n lines\tand\x1b[31m color \u202e ", "two lines and [31m color"),
        ("key sk-hidden-1 is unknown (sk-hidden-1)", "key *** is unknown (***)"),
        ("Ada <ada@example.com>, to=bob@x.example; is no recipient", "Ada <***>, to=***; is no recipient"),
        ("x" * 1000, "x" * 300),
        ("x" * 12_000, "x" * 300),
        ("x" * 290 + " sk-hidden-1", "x" * 290 + " ***"),
        (["no", "text"], None),
        ("", None),
    ],
)
def test_what_is_passed_on_of_the_services_words(said: Any, shown: str | None) -> None:
    with pytest.raises(MailRejectedError) as raised:
        parse_response(REQUEST, HttpResponse(200, {}, coded(400, said)), secrets=["sk-hidden-1"])
    assert raised.value.service_message == shown
    assert str(raised.value) == "/v5/lists/add: code 400: rejected" + (f": {shown}" if shown else "")


def test_a_wrong_value_is_named_and_not_shown() -> None:
    counts = ("sentCount", "openCount", "clickCount", "hardBounce", "softBounce", "unsentCount", "unsubscribeCount")
    right = {"mailName": "a", "mailSendDate": 1, **dict.fromkeys(counts, 1)}
    for field, value in [("sentCount", "secret"), ("openCount", float("nan")), ("mailSendDate", float("inf"))]:
        body = json.dumps({"code": 200, "mailStatsList": [right, {**right, "mailName": "b", field: value}]}).encode()
        with pytest.raises(MailResponseError, match=rf"mailStatsList\[1\]\.{field}: ") as raised:
            parse_response(STATS, HttpResponse(200, {}, body))
        assert "secret" not in str(raised.value)


# Over a real socket: one clear error each, in bounded time and memory.

READ = api.GetLists()
SEND = api.SendMail(subject="s", content="c", sender_mail="news@example.com", to=api.Recipient(email="ada@example.com"))
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = "Content-Encoding: gzip"


@pytest.fixture
def client(connect: Callable[..., MailClient], wire: Wire) -> MailClient:
    return connect(wire.base_url, retry=ONCE)


BROKEN = {
    "nothing": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "less than promised": OK + b'Content-Length: 100\r\n\r\n{"code": 200}',
    "a chunk without its end": CHUNKED + b'50\r\n{"code": 200}',
    "endless headers": OK + b"X-Filler: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 20_000,
}


@pytest.mark.parametrize("response", BROKEN.values(), ids=BROKEN)
def test_broken_http_is_a_lost_response(response: bytes, wire: Wire, client: MailClient) -> None:
    wire.answer = response
    with pytest.raises(api.MailResponseLostError, match="/v5/lists/get: the response was lost"):
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


def test_an_unreadable_body_is_an_error(wire: Wire, client: MailClient) -> None:
    for response in UNREADABLE:
        wire.answer = response
        with pytest.raises(api.MailResponseError, match="no JSON object") as raised:
            client.send(READ)
        assert raised.value.status == 200


def test_gzip_is_requested_and_read(wire: Wire, client: MailClient) -> None:
    wire.answer = http(gzip.compress(b'{"code": 200, "totalRecords": 7}'), "200 OK", GZIP)
    assert client.send(READ).total_records == 7
    assert b"accept-encoding: gzip\r\n" in wire.requests[0].lower()
    for status, error in (("401 Unauthorized", api.MailAuthError), ("429 Too Many Requests", api.MailRateLimitError)):
        wire.answer = http(b"\x1f\x8b\x08broken", status, GZIP)
        with pytest.raises(error):  # the status counts where the compression is broken
            client.send(READ)


@pytest.mark.parametrize("location", ["http://127.0.0.1:{port}/elsewhere", "//[", "http://\x7f", "/v5/x", "ftp://x/"])
def test_no_redirect_is_followed_and_no_cookie_kept(location: str, wire: Wire, client: MailClient) -> None:
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


@pytest.mark.parametrize("response", HUGE.values(), ids=HUGE)
def test_a_huge_body_takes_little_memory(response: Any, wire: Wire, connect: Callable[..., MailClient]) -> None:
    wire.answer = response
    client = connect(wire.base_url, max_response_bytes=2_000_000)
    too_large = f"{READ.path}: the response is larger than 2000000 bytes: request less at once: fewer days"
    with memory_below(20), pytest.raises(api.MailTooLargeError, match=too_large):
        client.send(READ)
    assert len(wire.requests) == 1  # the next response would be as large


def test_very_many_values_are_not_decoded(wire: Wire, connect: Callable[..., MailClient]) -> None:
    """Within the limits of size, and a hundred times as large when decoded."""
    client = connect(wire.base_url, retry=ONCE, max_response_bytes=4_000_000)
    for begin, piece, end in [
        (b'"lists": [', b"{},", b"{}]}"),
        (b'"x": [', b"[" * 50 + b"]" * 50 + b",", b"0]}"),
        (b'"x": [', b"1.5,", b"0]}"),
        (b'"message": "\\"{", "lists": [', b'{"ListName":""},', b"{}]}"),  # objects behind a text
    ]:
        body = b'{"code": 200, ' + begin + piece * (3_500_000 // len(piece)) + end
        wire.answer = http(gzip.compress(body), "200 OK", GZIP)
        with memory_below(60), pytest.raises(api.MailTooLargeError, match="so many values"):
            client.send(READ)


def test_large_texts_are_not_very_many_values(wire: Wire, connect: Callable[..., MailClient]) -> None:
    text = json.dumps('<style>a{b:c},[d]{e:f}</style>\n"' * 100_000)
    wire.answer = http(f'{{"code": 200, "lists": [{{"ListName": {text}}}]}}'.encode())
    client = connect(wire.base_url, retry=ONCE, max_response_bytes=4_000_000)
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


@pairwise(part=DRIPS, request_=[READ, SEND])
def test_a_response_that_drips_ends_wherever_it_drips(
    part: str, request_: MailRequest[Any], clock: Clock, wire: Wire, connect: Callable[..., MailClient]
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
    with pytest.raises(api.MailError, match=r"not complete after 240 s \(4 times") as raised:
        client.send(request_)
    assert raised.value.may_have_taken_effect
    assert len(wire.requests) == 1
