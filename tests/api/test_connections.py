"""Which connection a request may use, how long it may take in all, and that a response belongs to its request."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpcore
import httpx
import pytest

from airflow_provider_mail import api
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import proxy_url
from mail_emulator import Emulator, EmulatorSettings
from tests.api.driving import ONCE, QUICK
from tests.api.parts import Effect, MailRequest, transport, transport_error
from tests.api.wire import Wire, closed_port, http, read_request
from tests.document.examples import EXAMPLES
from tests.hooks.wire import Authority
from tests.support.changes import at_request
from tests.support.clock import Clock
from tests.support.sampling import pairwise

READ = api.GetLists()
SEND = api.SendMail(subject="s", content="c", sender_mail="news@example.com", to=api.Recipient(email="ada@example.com"))
CHANGES = [one.request for one in EXAMPLES.values() if one.request.effect is not Effect.READ]
"""Every operation that changes something."""
UPSERTS = [api.UpsertContact(email=f"contact-{number}@example.com", name=str(number)) for number in range(60)]
GOOD = http(close=False)


def long(size: int) -> api.SendMail:
    return SEND.model_copy(update={"content": "x" * size})


def test_only_what_happens_before_a_byte_was_sent_is_harmless() -> None:
    """It provably never reached the service."""
    config = api.ClientConfig(base_url="http://service.example", api_key="k")
    kinds = [kind for kind in vars(httpcore).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    kinds.append(httpx.InvalidURL)
    errors = {kind.__name__: transport_error("/v5/x", kind("boom"), config) for kind in kinds}
    harmless = {name: error for name, error in errors.items() if not error.may_have_taken_effect}
    assert harmless.keys() == {
        "ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol", "LocalProtocolError",
        "InvalidURL",
    }  # fmt: skip
    assert all(isinstance(error, api.MailConnectError | api.MailConfigError) for error in harmless.values())
    reasons = {error.reason for error in harmless.values() if isinstance(error, api.MailConnectError)}
    assert reasons == {f"{kind}: boom" for kind in ("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError")}
    assert len(errors) > len(harmless) + 5


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def respond_early(connection: socket.socket) -> None:
    connection.sendall(GOOD)
    connection.shutdown(socket.SHUT_RD)


@pytest.mark.parametrize("answer", [reset, respond_early])
def test_a_request_cut_while_it_is_written_may_have_arrived(answer: Any, wire: Wire, connect: Any) -> None:
    """The service reads the beginning of a long body: httpx's WriteError or ReadError, or even a success."""
    wire.answer, wire.reads = answer, 1000
    with pytest.raises(api.MailError, match="not sent again") as raised:
        connect(wire.base_url).send(long(50_000_000))
    assert raised.value.may_have_taken_effect
    assert len(wire.requests) == 1


def test_what_never_arrived_is_repeated(clock: Clock, connect: Callable[..., MailClient]) -> None:
    """Nothing listens at first; the service starts while the client is still trying. It is a send."""
    with closed_port() as port:
        late = Emulator(port=port)
        late.add_sender("news@example.com")
    clock.after(20, late.start)
    try:
        connect(f"http://127.0.0.1:{port}", retry=api.RetrySettings(attempts=1000)).send(SEND)
        assert (len(late.messages()), late.journal.count(SEND.path)) == (1, 1)
    finally:
        late.stop()


def test_the_last_check_is_made_when_there_is_a_connection(emulator: Emulator) -> None:
    """Connecting takes time, in which the decision may change; a request that is refused is not repeated."""
    checked = []

    def refuse(operation: str) -> None:
        checked.append(operation)
        raise api.MailHeldError("held")

    for base_url, error in (("http://127.0.0.1:1", api.MailConnectError), (emulator.base_url, api.MailHeldError)):
        config = api.ClientConfig(base_url=base_url, api_key="k", retry=QUICK)
        with MailClient(config, before_request=refuse) as client, pytest.raises(error):
            client.send(SEND)
    assert (checked, emulator.journal.entries()) == ([SEND.path], [])


# A response that arrives twice.


def twice(connection: socket.socket) -> None:
    """Respond to one request twice at once; read what comes next and send nothing more."""
    connection.sendall(GOOD + GOOD)
    connection.recv(65_536)


def one_too_late(connection: socket.socket) -> None:
    """Respond twice, but the second time only when the next request has arrived."""
    connection.sendall(GOOD)
    if connection.recv(65_536):
        connection.sendall(GOOD)


@pairwise(request_=CHANGES, stale=[twice, one_too_late])
def test_no_change_takes_the_response_of_an_earlier_request(
    request_: MailRequest[Any], stale: Callable[[socket.socket], None], wire: Wire, connect: Callable[..., MailClient]
) -> None:
    """The service has rejected it, or has never seen it: a success would be false."""
    client = connect(wire.base_url, retry=ONCE)
    wire.answer = stale
    client.send(READ)
    wire.answer = http(b'{"code": 400, "message": "no"}')
    with pytest.raises(api.MailRejectedError):
        client.send(request_)
    wire.answer = http(b'{"code": 200, "totalRecords": 7}')
    assert client.send(READ).total_records == 7, "nor does a read"
    assert [request.split(b" ")[1].decode() for request in wire.requests] == [READ.path, request_.path, READ.path]


class Once:
    """Sends a response, and a second one when it is told to, to a client that has read the first."""

    def __init__(self, *, together: bool) -> None:
        self.together = together
        self._may_go_on, self._sent = threading.Event(), threading.Event()

    def __call__(self, connection: socket.socket) -> None:
        connection.sendall(GOOD * (2 if self.together else 1))
        if not self.together:
            assert self._may_go_on.wait(60)
            connection.sendall(GOOD)
        self._sent.set()
        connection.recv(65_536)

    def finish(self) -> None:
        self._may_go_on.set()
        assert self._sent.wait(60)


@pairwise(
    request_=[change for change in CHANGES if change.effect is Effect.REPEATABLE],
    together=[True, False],
    secure=[True, False],
)
def test_no_repetition_takes_the_response_of_the_request_before(
    request_: MailRequest[Any], together: bool, secure: bool, tmp_path: Path, connect: Callable[..., MailClient]
) -> None:
    """Requests that may share a connection: the second response is seen before the next one is sent, or after."""
    authority = Authority(tmp_path) if secure else None
    with Wire(certificate=authority and authority.issue()) as wire:
        client = connect(wire.base_url, ca_bundle=authority and authority.bundle)
        wire.answer = twice = Once(together=together)
        client.send(request_)
        twice.finish()
        wire.answer = http(b'{"code": 400, "message": "no"}')
        with pytest.raises(api.MailRejectedError):
            client.send(request_)
    assert [request.split(b" ")[1].decode() for request in wire.requests] == [request_.path] * 2


IMPORT = next(one.request for one in EXAMPLES.values() if isinstance(one.request, api.ImportContacts))


@pytest.mark.parametrize(
    ("before", "between", "shared"),
    [("upsert", None, True), ("import", None, True), ("read", None, True), ("send", None, False),
     ("upsert", "read", False), ("read", "upsert", False), ("upsert", "import", False), ("upsert", "failure", False)],
)  # fmt: skip
def test_what_may_be_repeated_shares_a_connection_with_its_like(
    before: str, between: str | None, shared: bool, emulator: Emulator, connect: Callable[..., MailClient]
) -> None:
    requests = {"upsert": UPSERTS[0], "import": IMPORT, "send": SEND, "read": READ, "failure": UPSERTS[0]}
    client = connect(emulator.base_url, retry=ONCE)
    client.send(requests[before])
    if between == "failure":
        emulator.faults.add(kind="http_error_before", status=503)
        with pytest.raises(api.MailError):
            client.send(requests[before])
    elif between:
        client.send(requests[between])
    client.send(requests[before])
    first, *_, last = (entry["connection"] for entry in emulator.journal.entries())
    assert (first == last) is shared


# The deadline of a request, which begins with its first step on the network.


def test_a_service_that_reads_slowly_is_given_up(clock: Clock, wire: Wire, connect: Callable[..., MailClient]) -> None:
    """It reads a long body so slowly that each write succeeds."""
    read: list[int] = []

    def sip(connection: socket.socket) -> None:
        while read[-1:] != [0]:
            read.append(len(connection.recv(100_000)))
            clock.sleep(20)

    wire.answer, wire.reads = sip, 1000
    with pytest.raises(api.MailError, match=r"not complete|WriteTimeout") as raised:
        connect(wire.base_url, retry=ONCE).send(long(50_000_000))
    wire.join()
    assert raised.value.may_have_taken_effect
    assert sum(read) < 25_000_000


# Certificates and proxies.


def test_renewed_certificates_are_read_by_a_running_client(tmp_path: Path, connect: Callable[..., MailClient]) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(old.bundle.read_bytes())
    with Emulator(EmulatorSettings(tls_certificate=str(old.issue()))) as service:
        client = connect(service.base_url, ca_bundle=bundle, retry=ONCE)
        client.send(READ)
        port = int(service.base_url.rpartition(":")[2])
    with Emulator(EmulatorSettings(tls_certificate=str(new.issue())), port=port):
        with pytest.raises(api.MailError):
            client.send(READ)  # the connection that it had kept has been closed
        with pytest.raises(api.MailConfigError, match="ca_bundle"):
            client.send(READ)
        bundle.write_text("half of it")
        with pytest.raises(api.MailConfigError, match="not trusted"):
            client.send(READ)
        bundle.write_bytes(new.bundle.read_bytes())
        assert client.send(READ).code == 200


def test_an_invalid_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, connect: Callable[..., MailClient]
) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)
    for scheme, problem in (("gopher", "HTTPS_PROXY.* is invalid"), ("socks5", r"pip install 'httpx\[socks\]'")):
        monkeypatch.setenv("HTTPS_PROXY", f"{scheme}://user:s3cret-pass@proxy:1")
        with pytest.raises(api.MailConfigError, match=problem) as raised:
            connect("https://service.example")
        assert raised.value.__context__ is None
        assert "s3cret-pass" not in str(raised.value)


@pytest.mark.parametrize(("host", "exception"), [
    ("mail.example", "mail.example"), ("mail.example:8443", ".example"), ("mail.example:8443", "mail.example:8443"),
    ("[::1]:8443", "::1"), ("[::1]:8443", "[::1]:8443"), ("bücher.example", "xn--bcher-kva.example"),
])  # fmt: skip
def test_the_environment_excepts_a_host_from_its_proxy(
    monkeypatch: pytest.MonkeyPatch, host: str, exception: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    config = api.ClientConfig(base_url=f"https://{host}", api_key="k")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "other.example:8443")
    assert proxy_url(config) == "http://proxy:1"
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, exception)
    assert proxy_url(config) is None


def test_a_cancelled_task_returns_its_connection(emulator: Emulator) -> None:
    config = api.ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key, max_in_flight=1)

    async def cancel_and_continue() -> None:
        async with api.AsyncMailClient(config) as client:
            task, loop = asyncio.create_task(client.send(api.GetLists())), asyncio.get_running_loop()
            cancel = at_request(emulator, "lists/get", 1, lambda: loop.call_soon_threadsafe(task.cancel))
            with cancel, pytest.raises(asyncio.CancelledError):
                await task
            await client.send(api.GetLists())

    asyncio.run(cancel_and_continue())


def test_nothing_of_a_request_stays_in_memory(connect: Callable[..., MailClient], emulator: Emulator) -> None:
    """Not even until the garbage collector runs: the body of an import has 350 kB."""
    client = connect(emulator.base_url)
    client.send(READ)

    def kept() -> int:
        return sum(type(known) in (httpx.Request, httpx.Response) for known in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = kept()  # of other tests
        for request in (READ, UPSERTS[0]):
            client.send(request)
        assert kept() <= before
    finally:
        gc.enable()


# Connections that are opened in advance.


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("fate", ["used", "closed", "answered", "late"])
def test_the_next_connection_of_a_series_is_opened_meanwhile(
    fate: str, secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is used only if it is still open and nothing has arrived on it: no request is put in doubt for it."""
    monkeypatch.setattr(transport, "_AHEAD_SECONDS", 0 if fate == "late" else 3600)
    authority = Authority(tmp_path) if secure else None
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as opened:
        listener.settimeout(60)

        def accept() -> socket.socket:
            connection, _ = listener.accept()
            connection.settimeout(60)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if authority is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(authority.issue())
                connection = context.wrap_socket(connection, server_side=True)
            return opened.enter_context(connection)

        def respond(connection: socket.socket) -> None:
            assert read_request(connection).startswith(b"POST")
            connection.sendall(http(b'{"code": 200, "id": 1}'))

        scheme = "https" if secure else "http"
        config = api.ClientConfig(
            base_url=f"{scheme}://127.0.0.1:{listener.getsockname()[1]}",
            **{"api_key": "k", "retry": ONCE, "timeout": 60, "ca_bundle": authority and authority.bundle},
        )
        with MailClient(config) as client, ThreadPoolExecutor(1) as thread:
            sent = thread.submit(lambda: [client.send(SEND) for _ in range(3)])
            respond(accept())
            second = accept()
            third = accept()  # while the second request has no response
            if fate == "closed":
                third.close()
            elif fate == "answered":
                third.sendall(GOOD)
            respond(second)
            respond(third if fate == "used" else accept())
            assert [response.code for response in sent.result(60)] == [200] * 3


def test_a_single_request_opens_no_second_connection(emulator: Emulator) -> None:
    config = api.ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key)
    with MailClient(config) as client:
        client.send(api.GetLists())
        client.send(SEND)
        client.send(api.AddList(list_name="vip"))
        assert not [thread for thread in threading.enumerate() if thread.name == "mail-connect"]
