"""Time-outs of sockets, and connections that are shut down while a request waits."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from airflow_provider_mail import api
from airflow_provider_mail.api._core.pacing import Interrupt
from airflow_provider_mail.api._core.pagination import Changes, Pager, concurrent_pages
from airflow_provider_mail.api.client import MailClient
from mail_emulator import Emulator
from tests.api.driving import ONCE
from tests.api.wire import Wire
from tests.support.processes import wait_for_threads, wait_until

SEND = api.SendMail(subject="s", content="c", sender_mail="news@example.com", to=api.Recipient(email="ada@example.com"))


@pytest.mark.parametrize("request_", [api.AddList(list_name="a"), SEND])
def test_silence_ends_and_the_request_may_have_taken_effect(
    request_: api.AddList | api.SendMail, wire: Wire, connect: Callable[..., MailClient]
) -> None:
    wire.answer = lambda connection: connection.recv(1)  # until the client hangs up
    client, error = connect(wire.base_url, retry=ONCE, timeout=1), None
    while error is None or isinstance(error, api.MailConnectError):  # on a machine that cannot connect within a second
        with pytest.raises(api.MailError) as raised:
            client.send(request_)
        error = raised.value
    assert isinstance(error, api.MailAmbiguousSendError if request_ is SEND else api.MailResponseLostError)
    assert "ReadTimeout" in str(error)
    assert error.may_have_taken_effect


def test_a_handshake_that_drips_ends_and_sent_nothing(wire: Wire, connect: Callable[..., MailClient]) -> None:
    over = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"\x16\x03\x03\x40\x00")
        while not over.wait(0.05):
            connection.sendall(b"\x02")

    wire.answer = drip
    with pytest.raises(api.MailConnectError, match="ConnectTimeout"):
        connect(wire.base_url.replace("http:", "https:"), retry=ONCE, timeout=1).send(SEND)
    over.set()


@pytest.fixture
def stalled(emulator: Emulator) -> Iterator[Emulator]:
    """A service whose fourth page and all behind it do not come."""
    emulator.add_list("vip", [f"contact-{number}@example.com" for number in range(300)])
    emulator.faults.add("delay", "contacts/list/get", skip=3, count=None, seconds=3600)
    return emulator


@pytest.mark.parametrize("how", ["stop", "close"])
def test_a_stalled_reading_is_shut_down(how: str, stalled: Emulator) -> None:
    """The interrupt lets running attempts continue for two seconds, then ends their connections."""
    interrupt = Interrupt()
    pager = Pager(api.GetListContacts(list_name="vip", page_size=10), Changes.REFUSE)
    config = api.ClientConfig(base_url=stalled.base_url, api_key=stalled.api_key, timeout=3600)

    def stop() -> None:
        wait_until(lambda: stalled.journal.count() > 3, what="a request that stalls", interval=0.01)
        interrupt.stop()

    with api.MailClient(config) as client, closing(concurrent_pages(client, pager, 4, interrupt)) as pages:
        next(pages)
        if how == "stop":
            stopping = threading.Thread(target=stop)
            stopping.start()
            with pytest.raises(api.MailInterruptedError):
                list(pages)
            stopping.join()
    wait_for_threads("mail-pages", timeout=60)
