"""Answers that no service should give: one clear error each, in bounded time and memory, over a real socket."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import subprocess
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_mail.api._core.responses import exceeds_memory
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import (
    MailAmbiguousSendError,
    MailAnswerError,
    MailAnswerLostError,
    MailAuthError,
    MailConfigError,
    MailError,
    MailRateLimitError,
)
from airflow_provider_mail.api.lists import GetLists
from airflow_provider_mail.api.oauth import GetToken
from airflow_provider_mail.api.transactional import Recipient, SendMail
from airflow_provider_mail.emulator import Emulator, EmulatorSettings
from tests.api.driving import KINDS, ONCE, Driver, driver
from tests.api.wire import Wire, http
from tests.support.sampling import examples

READ = GetLists()
SEND = SendMail(subject="s", content="c", sender_mail="news@example.com", to=Recipient(email="ada@example.com"))


@pytest.fixture
def wire() -> Iterator[Wire]:
    with Wire() as running:
        yield running


@pytest.fixture
def client(connect: Callable[..., Driver], wire: Wire) -> Driver:
    return connect(wire.base_url, retry=ONCE, timeout=10)


@pytest.mark.both_clients
def test_a_good_answer(wire: Wire, client: Driver) -> None:
    wire.answer = http()
    assert client.send(READ).code == 200


BROKEN = {
    "nothing": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "half a status line": b"HTTP/1.1 20",
    "no number in the status line": b"HTTP/1.1 abc OK\r\n\r\n",
    "a header name that is no ASCII": b"HTTP/1.1 200 OK\r\nX-Caf\xe9: x\r\n\r\n{}",
    "a header without a colon": b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n{}",
    "control characters in a header": b"HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n{}",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n{}",
    "a length that is no number": b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n{}",
    "a length that is negative": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}",
    "less than promised": b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"code": 200}',
    "a chunk without its end": b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\n{"code": 200}',
    "a chunk size that is none": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "an unknown transfer coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: secret\r\n\r\n{}",
    "endless headers": b"HTTP/1.1 200 OK\r\n" + b"X-Filler: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 20_000,
}


@pytest.mark.both_clients
@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
def test_broken_http_is_a_lost_answer(answer: bytes, wire: Wire, client: Driver) -> None:
    wire.answer = answer
    with pytest.raises(MailAnswerLostError, match="/v5/lists/get: the response was lost"):
        client.send(READ)
    with pytest.raises(MailAmbiguousSendError):
        client.send(SEND)
    assert len(wire.requests) == 2


UNREADABLE = {
    "without a length": b"HTTP/1.1 200 OK\r\n\r\n<html>",
    "bytes that are no text": http(b"\xff\xfe\x00\x01" * 100),
    "half of a gzip": http(gzip.compress(b'{"code": 200}')[:-12], "200 OK", "Content-Encoding: gzip"),
    "no gzip at all": http(b'{"code": 200}x', "200 OK", "Content-Encoding: gzip"),
    "a packing that was not asked for": http(b"\x1b\x0c\x00", "200 OK", "Content-Encoding: br"),
    "another protocol version": b"HTTP/9.9 200 OK\r\n\r\n",
    "headers that are no ASCII": http(b"<html>", "200 OK", "X-Cafe: \xfc"),
    "depth": http(b'{"code": 200, "lists": ' + b"[" * 1_000_000 + b"}"),
}


@pytest.mark.parametrize("answer", UNREADABLE.values(), ids=UNREADABLE)
def test_a_body_that_cannot_be_read_is_no_answer(answer: bytes, wire: Wire, client: Driver) -> None:
    wire.answer = answer
    with pytest.raises(MailAnswerError, match="no JSON object") as raised:
        client.send(READ)
    assert raised.value.status == 200


@pytest.mark.both_clients
def test_gzip_is_asked_for_and_read(wire: Wire, client: Driver) -> None:
    wire.answer = http(gzip.compress(b'{"code": 200, "totalRecords": 7}'), "200 OK", "Content-Encoding: gzip")
    assert client.send(READ).total_records == 7
    assert b"accept-encoding: gzip\r\n" in wire.requests[0].lower()


@pytest.mark.parametrize(
    ("status", "error"), [("401 Unauthorized", MailAuthError), ("429 Too Many Requests", MailRateLimitError)]
)
def test_the_status_counts_where_the_packing_is_broken(
    status: str, error: type[MailError], wire: Wire, client: Driver
) -> None:
    wire.answer = http(b"\x1f\x8b\x08broken", status, "Content-Encoding: gzip")
    with pytest.raises(error):
        client.send(READ)


@pytest.mark.both_clients
@pytest.mark.parametrize("location", ["http://127.0.0.1:{port}/elsewhere", "//[", "http://\x7f", "/v5/x", "ftp://x/"])
def test_a_redirect_is_not_followed_and_gets_no_credentials(
    location: str, wire: Wire, connect: Callable[..., Driver]
) -> None:
    with Wire(http()) as elsewhere:
        location = location.format(port=elsewhere.base_url.rpartition(":")[2])
        wire.answer = http(b"", "307 Temporary Redirect", f"Location: {location}")
        with pytest.raises(MailError) as raised:
            connect(wire.base_url, retry=ONCE).send(SEND)
        assert elsewhere.requests == []
    assert len(wire.requests) == 1
    if location.startswith("http://127"):
        assert isinstance(raised.value, MailConfigError)
        assert "set the connection's host to the final address" in str(raised.value)


@pytest.mark.both_clients
@pytest.mark.parametrize("cookie", ["session=abc", "session=\xff\xfe; Path=/"])
def test_no_cookie_is_kept(cookie: str, wire: Wire, client: Driver) -> None:
    """An odd one would spoil every later request of the client."""
    wire.answer = http(b'{"code": 200}', "200 OK", f"Set-Cookie: {cookie}")
    for _ in range(2):
        client.send(READ)
    assert b"cookie" not in b"".join(wire.requests).lower()


def endless(head: bytes, piece: bytes) -> Callable[[socket.socket], None]:
    def play(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(piece)

    return play


BOMB = gzip.compress(b" " * 60_000_000)


@pytest.mark.both_clients
@pytest.mark.parametrize(
    "answer",
    [
        endless(b"HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n", b" " * 65_536),
        endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b" " * 65_536 + b"\r\n"),
        endless(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", gzip.compress(b'{"code": 200}') + b"x" * 65_536),
        http(BOMB, "200 OK", "Content-Encoding: gzip"),
    ],
    ids=["100 MB", "endless", "endless behind a gzip", "packed a thousand times"],
)
def test_a_huge_body_ends_early_and_takes_little_memory(
    answer: bytes | Callable[[socket.socket], None], wire: Wire, connect: Callable[..., Driver]
) -> None:
    client = connect(wire.base_url, retry=ONCE, max_answer_bytes=2_000_000)
    wire.answer = answer
    tracemalloc.start()
    try:
        with pytest.raises(MailAnswerError, match=f"{READ.path}: the response is larger than 2000000 bytes"):
            client.send(READ)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000


NESTED = b"[" * 50 + b"]" * 50 + b","
BOMBS = {
    "objects": (b'{"code": 200, "lists": [', b"{},", b"{}]}"),
    "objects of another list": (b'{"code": 200, "x": [', b"{},", b"{}]}"),
    "lists": (b'{"code": 200, "x": [', b"[],", b"[]]}"),
    "nested lists": (b'{"code": 200, "x": [', NESTED, b"0]}"),
    "numbers": (b'{"code": 200, "x": [', b"1.5,", b"0]}"),
    "objects behind a text": (b'{"code": 200, "message": "\\"{", "lists": [', b'{"ListName":""},', b"{}]}"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_an_answer_of_very_many_values_takes_little_memory(
    bomb: str, wire: Wire, connect: Callable[..., Driver]
) -> None:
    """Within the limits of size, as received and unpacked, and a hundred times as large when decoded."""
    begin, piece, end = BOMBS[bomb]
    body = begin + piece * (3_500_000 // len(piece)) + end
    wire.answer = http(gzip.compress(body), "200 OK", "Content-Encoding: gzip")
    client = connect(wire.base_url, retry=ONCE, max_answer_bytes=4_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(MailAnswerError, match="so many values"):
            client.send(READ)
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


def test_a_large_answer_of_large_texts_is_none_of_very_many_values(wire: Wire, connect: Callable[..., Driver]) -> None:
    text = json.dumps('<style>a{b:c},[d]{e:f}</style>\n"' * 100_000)
    wire.answer = http(f'{{"code": 200, "lists": [{{"ListName": {text}}}]}}'.encode())
    client = connect(wire.base_url, retry=ONCE, max_answer_bytes=4_000_000)
    assert len(client.send(READ).records[0].list_name) == 3_200_000


@pytest.mark.parametrize(
    "text", [b'"' * 1_000_001, b'"' + rb"\"" * 1_000_000, b'"' + b"\\" * 1_000_001, b"{" * 2_000_000]
)
def test_looking_for_texts_takes_no_longer_than_the_answer_is_long(text: bytes) -> None:
    exceeds_memory(text, 0)


@pytest.mark.not_unit
@pytest.mark.both_clients
@pytest.mark.usefixtures("patient_connecting")
def test_a_slow_drip_ends_in_time(wire: Wire, connect: Callable[..., Driver]) -> None:
    """Each byte comes within the time-out, all of them never."""

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            connection.sendall(b" ")
            time.sleep(0.02)

    wire.answer = drip
    started = time.monotonic()
    # On a busy machine a pause may be longer than the time-out of one read.
    with pytest.raises(MailAnswerLostError, match=r"not complete after 0\.8 s .*timeout|ReadTimeout"):
        connect(wire.base_url, retry=ONCE, timeout=0.2).send(READ)
    assert time.monotonic() - started < 20


@pytest.mark.not_unit
@pytest.mark.both_clients
@pytest.mark.usefixtures("patient_connecting")
def test_a_head_that_drips_ends_in_time(wire: Wire, connect: Callable[..., Driver]) -> None:
    """Also on a connection that has served before."""
    dripped = []

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        for number in range(500):
            connection.sendall(b"x")
            dripped.append(number)
            time.sleep(0.02)

    def good_then_drip(connection: socket.socket) -> None:
        connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{"code": 200}')
        connection.recv(65_536)
        drip(connection)

    for script, requests in ((drip, 0), (good_then_drip, 1)):
        wire.answer = script
        client = connect(wire.base_url, retry=ONCE, timeout=0.2)
        for _ in range(requests):
            client.send(READ)
        dripped.clear()
        with pytest.raises(MailAnswerLostError, match=r"not complete after 0\.8 s|ReadTimeout"):
            client.send(READ)
        # Hung up on long before the ten seconds that it would have taken.
        assert len(dripped) < 250


@pytest.mark.not_unit
@pytest.mark.both_clients
@pytest.mark.usefixtures("patient_connecting")
def test_silence_ends_in_time(wire: Wire, connect: Callable[..., Driver]) -> None:
    wire.answer = lambda connection: time.sleep(0.5)
    with pytest.raises(MailAnswerLostError, match="ReadTimeout"):
        connect(wire.base_url, retry=ONCE, timeout=0.1).send(READ)


@pytest.mark.not_unit
def test_waiting_for_a_free_connection_is_not_the_answers_time(wire: Wire) -> None:
    """Eight requests over one connection: the last waits longer for its turn than for anything that may time out."""

    def slowly(connection: socket.socket) -> None:
        time.sleep(0.5)
        connection.sendall(http())

    wire.answer = slowly
    config = ClientConfig(base_url=wire.base_url, api_key="k", retry=ONCE, timeout=3, max_in_flight=1)
    client = driver("sync", config)
    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(client.send, [READ] * 8))) == 8
    client.close()


LINES = st.sampled_from(
    [b"HTTP/1.1 200 OK", b"HTTP/1.1 302 Found", b"HTTP/1.1 429 x", b"HTTP/1.1 101 Switching Protocols", b"HTTP/1.0 200",
     b"HTTP/1.1 100 Continue", b"HTTP/1.1 204", b"HTTP/1.1 999 \xff"]
)  # fmt: skip
FIELDS = st.sampled_from(
    [
        b"Location: http://[", b"Location: \xff\xfe", b"Location: http://a\xcc\x80.\xc3\xa9:99999/", b"Location: //",
        b"Location: http://a b/", b"Content-Encoding: gzip", b"Content-Encoding: br, zstd, gzip, deflate",
        b"Content-Encoding: \xff", b"Content-Length: 2", b"Content-Length: 99999999999999999999",
        b"Transfer-Encoding: chunked", b"Set-Cookie: a=b; Max-Age=x; Expires=\xff; Domain=..", b"Set-Cookie: \xff",
        b"Set-Cookie: x=1; Max-Age=99999999999999999999999999", b"Set-Cookie: ; Path=/\xf0; Version=9",
        b"Retry-After: Oct +999999999999999999999999 10000 99:99:99", b"Content-Type: x; charset=\x7f",
        b"Connection: upgrade", b"Upgrade: h2c", b"Keep-Alive: timeout=x", b"\xff: x", b"X", b": x",
    ]
)  # fmt: skip
BODIES = st.sampled_from([b"{}", b'{"code": 200}', b"2\r\n{}\r\n0\r\n\r\n", gzip.compress(b"{}"), b""]) | st.binary(
    max_size=60
)


@st.composite
def raw_answers(draw: st.DrawFn) -> bytes:
    lines = [draw(LINES | st.binary(max_size=30)), *draw(st.lists(FIELDS | st.binary(max_size=30), max_size=5))]
    return b"\r\n".join(lines) + b"\r\n\r\n" + draw(BODIES)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(50))
@given(raw_answers() | st.binary(max_size=200))
def test_any_bytes_end_in_a_response_or_a_mail_error(wire: Wire, client: Driver, raw: bytes) -> None:
    wire.answer = raw
    with contextlib.suppress(MailError):
        assert client.send(READ).code == 200


@pytest.mark.parametrize("kind", KINDS)
def test_secrets_that_fit_no_url_are_refused_before_sending(kind: str, wire: Wire) -> None:
    client = driver(kind, ClientConfig(base_url=wire.base_url, api_key="k", retry=ONCE))
    wire.answer = http(b'{"code": 200, "accessToken": "t", "expiresIn": -1}')
    with pytest.raises(MailError):
        client.send(GetToken(client_id="id", client_secret="\ud800", code="c"))
    client.send(GetToken(client_id="i&d=\x00", client_secret="s e\ncret+%", code="ç\u2028"))
    client.close()
    assert len(wire.requests) == 1


def certificate(folder: Path) -> Path:
    """A certificate that nobody has signed but itself."""
    file = folder / "self.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", file, "-out", folder / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    file.write_text(file.read_text() + (folder / "cert.pem").read_text())
    return file


@pytest.mark.both_clients
def test_a_certificate_that_is_not_trusted_names_the_setting(tmp_path: Path, connect: Callable[..., Driver]) -> None:
    file = certificate(tmp_path)
    with Emulator(EmulatorSettings(tls_certificate=str(file))) as emulator:
        with pytest.raises(MailConfigError, match="ca_bundle") as raised:
            connect(emulator.base_url).send(READ)
        assert not raised.value.temporary
        assert not raised.value.may_have_taken_effect
        assert emulator.journal.count() == 0
        assert connect(emulator.base_url, ca_bundle=tmp_path / "cert.pem").send(READ).code == 200


@pytest.mark.both_clients
def test_plain_http_where_tls_is_expected(wire: Wire, connect: Callable[..., Driver]) -> None:
    wire.answer = http()
    with pytest.raises(MailError, match="cannot be reached"):
        connect(wire.base_url.replace("http:", "https:"), retry=ONCE).send(READ)


@pytest.mark.both_clients
def test_a_proxy_of_the_environment_that_makes_no_sense(
    monkeypatch: pytest.MonkeyPatch, connect: Callable[..., Driver]
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "gopher://user:s3cret-pass@proxy:1")
    with pytest.raises(MailConfigError, match="HTTPS_PROXY") as raised:
        connect("https://service.example")
    assert raised.value.__context__ is None
    assert "s3cret-pass" not in str(raised.value)
