"""Time-outs of sockets, and connections that are shut down while a request waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing

import pytest

from airflow_provider_mail import api
from airflow_provider_mail.api._core.interrupt import Interrupt
from airflow_provider_mail.api.flows.concurrent_pages import concurrent_pages
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import ONCE, Driver
from tests.api.wire import Wire
from tests.support.processes import wait_for_threads, wait_until

pytestmark = pytest.mark.both_clients

SEND = api.SendMail(subject="s", content="c", sender_mail="news@example.com", to=api.Recipient(email="ada@example.com"))


def test_silence_ends(wire: Wire, connect: Callable[..., Driver]) -> None:
    wire.answer = lambda connection: connection.recv(1)  # until the client hangs up
    with pytest.raises(api.MailAnswerLostError, match="ReadTimeout"):
        connect(wire.base_url, retry=ONCE, timeout=1).send(api.GetLists())


def test_a_handshake_that_drips_ends_and_sent_nothing(wire: Wire, connect: Callable[..., Driver]) -> None:
    def drip(connection: object) -> None:
        connection.sendall(b"\x16\x03\x03\x40\x00")  # type: ignore[attr-defined]
        while True:
            connection.sendall(b"\x02")  # type: ignore[attr-defined]
            time.sleep(0.05)

    wire.answer = drip
    with pytest.raises(api.MailConnectError, match="ConnectTimeout"):
        connect(wire.base_url.replace("http:", "https:"), retry=ONCE, timeout=1).send(SEND)
    wire.join()


@pytest.mark.parametrize("fault", ["delay", "delay_answer"])
@pytest.mark.parametrize(
    ("request_", "error"), [(api.AddList(list_name="a"), api.MailAnswerLostError), (SEND, api.MailAmbiguousSendError)]
)
def test_a_response_after_the_time_out_is_lost(
    request_: api.AddList | api.SendMail,
    error: type[api.MailError],
    fault: str,
    emulator: Emulator,
    connect: Callable[..., Driver],
) -> None:
    emulator.faults.add(fault, request_.path, seconds=2)
    with pytest.raises(error) as raised:
        connect(emulator.base_url, timeout=1).send(request_)
    assert raised.value.may_have_taken_effect
    wait_until(lambda: emulator.lists() or emulator.messages(), what="the late effect")
    assert emulator.journal.count(request_.path) == 1


@pytest.mark.parametrize("how", ["stop", "close"])
def test_a_stalled_reading_is_shut_down(how: str, emulator: Emulator) -> None:
    """The interrupt lets running attempts continue for two seconds, then ends their connections."""
    emulator.add_list("vip", [f"contact-{number}@example.com" for number in range(300)])
    emulator.faults.add("delay", "contacts/list/get", skip=3, count=None, seconds=3600)
    interrupt = Interrupt()
    request = api.GetListContacts(list_name="vip", page_size=10)
    config = api.ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key, timeout=3600)
    with api.MailClient(config) as client, closing(concurrent_pages(client, request, 4, interrupt=interrupt)) as pages:
        next(pages)
        if how == "stop":
            stopping = threading.Thread(target=stop_when_stalled, args=(emulator, interrupt))
            stopping.start()
            with pytest.raises(api.MailInterruptedError):
                list(pages)
            stopping.join()
    wait_for_threads("mail-pages", timeout=60)


def stop_when_stalled(emulator: Emulator, interrupt: Interrupt) -> None:
    wait_until(lambda: emulator.journal.count() > 3, what="a request that stalls", interval=0.01)
    interrupt.stop()
