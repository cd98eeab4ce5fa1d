"""Which connection a request may use, how long it may take in all, and that a response is the one to this request."""

from __future__ import annotations

import gzip
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from airflow_provider_mail.api._core import exchange
from airflow_provider_mail.api._core.exchange import transport_error
from airflow_provider_mail.api._core.requests import Effect, MailRequest
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.contacts import UpsertContact
from airflow_provider_mail.api.errors import (
    MailAnswerLostError,
    MailConfigError,
    MailConnectError,
    MailError,
    MailRejectedError,
)
from airflow_provider_mail.api.lists import GetLists
from airflow_provider_mail.api.transactional import Recipient, SendMail
from airflow_provider_mail.emulator import Emulator, EmulatorSettings
from tests.api.driving import KINDS, ONCE, QUICK, Driver, driver
from tests.api.test_hostile_answers import certificate
from tests.api.wire import Wire, read_request
from tests.document.examples import EXAMPLES
from tests.support.processes import PATIENCE
from tests.support.sampling import EVERYTHING, pairwise

pytestmark = pytest.mark.both_clients

READ = GetLists()
SEND = SendMail(subject="s", content="c", sender_mail="news@example.com", to=Recipient(email="ada@example.com"))
REQUESTS = [example.request for example in EXAMPLES.values()]
CHANGES = [request for request in REQUESTS if request.effect is not Effect.READ]
"""Every operation that changes something."""


def kept(body: bytes = b'{"code": 200}', status: str = "200 OK") -> bytes:
    """A response after which the connection is kept."""
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


GOOD = kept()
REFUSAL = kept(b'{"code": 400, "message": "no"}')


@pytest.fixture
def wire() -> Iterator[Wire]:
    with Wire() as running:
        yield running


def never_reached(error: Exception) -> bool:
    return isinstance(error, MailConnectError | MailConfigError) and not error.may_have_taken_effect


# What provably never reached the service.

BEFORE_A_BYTE = {
    "ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol", "LocalProtocolError",
    "InvalidURL",
}  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in vars(httpx).values()
        if isinstance(kind, type) and issubclass(kind, httpx.TransportError | httpx.InvalidURL | httpx.DecodingError)
    ],
    ids=lambda kind: kind.__name__,
)
def test_only_what_happens_before_a_byte_was_sent_counts_as_never_sent(kind: type[Exception]) -> None:
    error = transport_error("/v5/x", kind("boom"), ClientConfig(base_url="http://service.example", api_key="k"))
    assert never_reached(error) == (kind.__name__ in BEFORE_A_BYTE)
    assert error.may_have_taken_effect == (kind.__name__ not in BEFORE_A_BYTE)


def test_a_request_that_is_cut_while_it_is_written_may_have_arrived(wire: Wire, connect: Callable[..., Driver]) -> None:
    """The service reads the beginning of a long body and resets the connection: httpx's WriteError or ReadError."""

    def reset(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    wire.answer, wire.reads = reset, 1000
    request = SEND.model_copy(update={"content": "x" * 5_000_000})
    with pytest.raises(MailError, match="not sent again") as raised:
        connect(wire.base_url, retry=QUICK).send(request)
    assert raised.value.may_have_taken_effect
    assert len(wire.requests) == 1


def test_a_success_before_the_request_was_sent_is_none(wire: Wire, connect: Callable[..., Driver]) -> None:
    """httpx reads a response also when the request could not be written as a whole."""

    def early(connection: socket.socket) -> None:
        connection.sendall(GOOD)
        connection.shutdown(socket.SHUT_RD)
        time.sleep(0.05)

    wire.answer, wire.reads = early, 1000
    with pytest.raises(MailError, match="not sent again"):
        connect(wire.base_url, retry=QUICK).send(SEND.model_copy(update={"content": "x" * 50_000_000}))


# A response that comes twice.


def twice(connection: socket.socket) -> None:
    """HttpResponse one request with two responses at once; read what comes next and say nothing more."""
    connection.sendall(GOOD + GOOD)
    connection.recv(65_536)


def one_too_late(connection: socket.socket) -> None:
    """HttpResponse twice, but the second time only when the next request is there."""
    connection.sendall(GOOD)
    if connection.recv(65_536):
        connection.sendall(GOOD)


@pairwise(request_=CHANGES, stale=[twice, one_too_late], connect=KINDS, indirect=["connect"])
def test_no_change_takes_the_response_of_an_earlier_request(
    request_: MailRequest[Any], stale: Callable[[socket.socket], None], wire: Wire, connect: Callable[..., Driver]
) -> None:
    """The service has refused it, or has never seen it: a success would be a lie."""
    assert request_.effect is not Effect.READ
    client = connect(wire.base_url, retry=ONCE)
    wire.answer = stale
    client.send(READ)
    wire.answer = REFUSAL
    with pytest.raises(MailRejectedError):
        client.send(request_)
    assert [request.split(b" ")[1].decode() for request in wire.requests] == [READ.path, request_.path]


def test_two_changes_never_share_a_connection(wire: Wire, connect: Callable[..., Driver]) -> None:
    client = connect(wire.base_url, retry=ONCE)
    wire.answer = one_too_late
    for _ in range(5):
        client.send(UpsertContact(email="ada@example.com"))
    assert len(wire.requests) == 5


def test_a_read_does_not_take_what_had_come_before_it(wire: Wire, connect: Callable[..., Driver]) -> None:
    client = connect(wire.base_url, retry=QUICK)
    wire.answer = twice
    assert client.send(READ).total_records is None
    wire.answer = kept(b'{"code": 200, "totalRecords": 7}')
    assert client.send(READ).total_records == 7


def test_reads_share_a_connection_with_the_change_before_them(emulator: Emulator, client: Driver) -> None:
    client.send(READ)
    client.send(UpsertContact(email="ada@example.com"))
    for _ in range(3):
        client.send(READ)
    connections = [entry["connection"] for entry in emulator.journal.entries()]
    assert len(set(connections)) == 2
    assert connections[1:] == [connections[1]] * 4


# The deadline.

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
DRIPS = {
    "status line": (b"HTTP/1.1 200 ", b"O"),
    "header": (HEAD + b"X: ", b"x"),
    "headers": (HEAD, b"X: x\r\n"),
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "103 Early Hints": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"),
    "chunk size": (CHUNKED, b"0"),
    "chunk extension": (CHUNKED + b"1;", b"x"),
    "chunks": (CHUNKED, b"1\r\n \r\n"),
    "chunk": (CHUNKED + b"fffff\r\n", b" "),
    "trailer": (CHUNKED + b'd\r\n{"code": 200}\r\n0\r\nX: ', b"x"),
    "trailers": (CHUNKED + b'd\r\n{"code": 200}\r\n0\r\n', b"X: x\r\n"),
    "body": (HEAD + b"Content-Length: 100000\r\n\r\n", b" "),
    "body without a length": (HEAD + b"\r\n", b" "),
}


class Dripping:
    """Plays a beginning and then a piece again and again, for ten seconds or until the other end hangs up."""

    def __init__(self, begin: bytes, piece: bytes, *, pause: float = 0.02) -> None:
        self._begin, self._piece, self._pause = begin, piece, pause
        self.pieces = 0

    def __call__(self, connection: socket.socket) -> None:
        connection.sendall(self._begin)
        for _ in range(round(10 / self._pause)):
            connection.sendall(self._piece)
            self.pieces += 1
            time.sleep(self._pause)

    @property
    def seconds(self) -> float:
        return self.pieces * self._pause


@pytest.mark.not_unit
@pairwise(part=DRIPS, connect=KINDS, indirect=["connect"])
@pytest.mark.usefixtures("patient_connecting")
def test_a_response_that_drips_ends_in_time_wherever_it_drips(
    part: str, wire: Wire, connect: Callable[..., Driver]
) -> None:
    wire.answer = dripping = Dripping(*DRIPS[part])
    # On a busy machine a pause may be longer than the time-out of one read.
    with pytest.raises(MailAnswerLostError, match=r"not complete after 0\.4 s \(4 times|ReadTimeout"):
        connect(wire.base_url, retry=ONCE, timeout=0.1).send(READ)
    wire.join()
    assert dripping.seconds < 5


@pairwise(request_=REQUESTS, connect=KINDS, indirect=["connect"])
def test_no_operation_swells(request_: MailRequest[Any], wire: Wire, connect: Callable[..., Driver]) -> None:
    """Each of them against a bomb: an error that says what may have happened, and small."""
    bomb = gzip.compress(b'{"code": 200, "x": [' + b"{}," * 30_000 + b"0]}")
    wire.answer = HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb
    with pytest.raises(MailError) as raised:
        connect(wire.base_url, retry=ONCE, max_answer_bytes=100_000).send(request_)
    assert raised.value.may_have_taken_effect
    assert len(wire.requests) == 1


SORTS = {(request.effect, request.method): request for request in REQUESTS}
"""One operation of each way to be sent."""


@pytest.mark.not_unit
@pairwise(
    request_=REQUESTS if EVERYTHING else SORTS.values(),
    drip=[(b"", b"HTTP/1.1 100 \r\n\r\n" * 50), DRIPS["body"]],
    connect=KINDS,
    indirect=["connect"],
)
@pytest.mark.usefixtures("patient_connecting")
def test_no_operation_is_held_up(
    request_: MailRequest[Any], drip: tuple[bytes, bytes], wire: Wire, connect: Callable[..., Driver]
) -> None:
    """Each of them against a drip and a flood: an error that says what may have happened, soon."""
    wire.answer = dripping = Dripping(*drip)
    with pytest.raises(MailError) as raised:
        connect(wire.base_url, retry=ONCE, timeout=0.1).send(request_)
    assert raised.value.may_have_taken_effect
    wire.join()
    assert dripping.seconds < 5
    assert len(wire.requests) == 1


@pytest.mark.not_unit
@pytest.mark.usefixtures("patient_connecting")
def test_a_flood_without_a_pause_ends_in_time(wire: Wire, connect: Callable[..., Driver]) -> None:
    """Each read finds something, so none of them ever waits."""
    ended = threading.Event()

    def flood(connection: socket.socket) -> None:
        try:
            while True:
                connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
        finally:
            ended.set()

    wire.answer = flood
    with pytest.raises(MailAnswerLostError, match=r"not complete after"):
        connect(wire.base_url, retry=ONCE, timeout=0.2).send(READ)
    assert ended.wait(60)


@pytest.mark.not_unit
@pytest.mark.usefixtures("patient_connecting")
def test_a_service_that_reads_slowly_ends_in_time(wire: Wire, connect: Callable[..., Driver]) -> None:
    """It takes a long body in so slowly that each write succeeds."""
    read = []

    def sip(connection: socket.socket) -> None:
        while read[-1:] != [0]:
            read.append(len(connection.recv(100_000)))
            time.sleep(0.02)

    wire.answer, wire.reads = sip, 1000
    with pytest.raises(MailError, match=r"not complete|response was lost") as raised:
        connect(wire.base_url, retry=ONCE, timeout=0.1).send(SEND.model_copy(update={"content": "x" * 50_000_000}))
    wire.join()
    assert raised.value.may_have_taken_effect
    assert sum(read) < 25_000_000


@pytest.mark.not_unit
def test_a_handshake_that_drips_ends_in_time_and_sent_nothing(wire: Wire, connect: Callable[..., Driver]) -> None:
    wire.answer = dripping = Dripping(b"\x16\x03\x03\x40\x00", b"\x02")
    with pytest.raises(MailConnectError, match="ConnectTimeout"):
        connect(wire.base_url.replace("http:", "https:"), retry=ONCE, timeout=0.2).send(SEND)
    wire.join()
    assert dripping.seconds < 5


@pytest.mark.not_unit
def test_the_time_of_one_request_does_not_count_for_the_next(
    wire: Wire, connect: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one connection, six responses together take longer than one may."""
    monkeypatch.setattr(exchange, "TOTAL_TIMEOUT_FACTOR", 1)

    def slowly(connection: socket.socket) -> None:
        for _ in range(6):
            time.sleep(0.5)
            connection.sendall(GOOD)
            read_request(connection)

    wire.answer = slowly
    client = connect(wire.base_url, retry=ONCE, timeout=2.5)
    for _ in range(6):
        client.send(READ)
    assert len(wire.requests) == 1, "it is the same connection"


# Another process.


@pytest.mark.not_unit
@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_shares_no_connection(kind: str, emulator: Emulator) -> None:
    """Parent and child use the same client at once; each connection is used by one of them alone."""
    emulator.settings.latency_seconds = 0.002
    config = ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key)
    client = driver(kind, config)
    client.send(READ)
    process = multiprocessing.get_context("fork").Process(
        target=_read_in_child, args=(client.client, kind), daemon=True
    )
    process.start()
    for number in range(50):
        client.send(GetLists(search=f"parent-{number}"))
    process.join(PATIENCE)
    assert process.exitcode == 0
    used: dict[Any, set[str]] = {}
    for entry in emulator.journal.entries():
        used.setdefault(entry["connection"], set()).add(str(entry["body"].get("search", "parent-")).partition("-")[0])
    assert sorted(map(sorted, used.values())) == [["child"], ["parent"]]
    client.close()


def _read_in_child(client: Any, kind: str) -> None:
    import asyncio

    requests = [GetLists(search=f"child-{number}") for number in range(50)]
    if kind == "sync":
        for request in requests:
            client.send(request)
        return

    async def send_all() -> None:
        for request in requests:
            await client.send(request)

    asyncio.run(send_all())


def test_a_fork_while_another_thread_waits_for_its_turn(emulator: Emulator) -> None:
    """The throttle's lock may be held at that moment."""
    client = driver("sync", ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key))
    with client.client._exchange.throttle._lock:  # type: ignore[attr-defined]
        process = multiprocessing.get_context("fork").Process(target=client.send, args=(READ,), daemon=True)
        process.start()
        process.join(PATIENCE)
    assert process.exitcode == 0
    client.close()


# Certificates that are renewed.


@pytest.mark.not_unit
def test_renewed_certificates_are_read_by_a_client_that_runs(tmp_path: Path, connect: Callable[..., Driver]) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old, new = certificate(tmp_path / "old"), certificate(tmp_path / "new")
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes((tmp_path / "old/cert.pem").read_bytes())
    with Emulator(EmulatorSettings(tls_certificate=str(old))) as service:
        client = connect(service.base_url, ca_bundle=bundle, retry=ONCE)
        client.send(READ)
        port = int(service.base_url.rpartition(":")[2])
    with Emulator(EmulatorSettings(tls_certificate=str(new)), port=port):
        with pytest.raises(MailError):
            client.send(READ)  # the connection that it had kept has been closed
        with pytest.raises(MailConfigError, match="ca_bundle"):
            client.send(READ)
        bundle.write_text("half of it")
        with pytest.raises(MailConfigError, match="not trusted"):
            client.send(READ)
        bundle.write_bytes((tmp_path / "new/cert.pem").read_bytes())
        assert client.send(READ).code == 200
