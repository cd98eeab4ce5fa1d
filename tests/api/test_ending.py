"""An import and a reading end within seconds when they are ended: by a time-out of Airflow's kind, or by a kill."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from airflow_provider_mail.api._core.interrupt import Interrupt, Workers
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.contacts import GetListContacts
from airflow_provider_mail.api.errors import MailInterruptedError
from airflow_provider_mail.api.flows.concurrent_pages import concurrent_pages
from airflow_provider_mail.api.flows.import_contacts import import_contacts
from airflow_provider_mail.api.flows.import_plan import ImportPlan, Progress
from airflow_provider_mail.api.lists import GetLists
from airflow_provider_mail.emulator import Emulator, EmulatorClient
from tests.support.processes import wait_for_threads

pytestmark = pytest.mark.not_unit

STALLS: dict[str, dict[str, Any]] = {
    "429": {"kind": "too_many_requests", "retry_after": 60},
    "503": {"kind": "http_error_before", "status": 503},
    "stall": {"kind": "delay", "seconds": 30},
}
LONG = 20
"""Seconds, far less than what each of these would take if it were not ended, and far more than it takes to end it."""


class TaskTimeoutError(BaseException):
    """Like Airflow's: no Exception, raised by a signal handler in the main thread."""


@contextmanager
def a_signal(after: Callable[[], bool], action: Callable[[], None]) -> Iterator[None]:
    """Send a signal when a condition holds; its handler runs in the main thread, whatever that waits for."""

    def wait_and_send() -> None:
        while not after():
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: action())
    thread = threading.Thread(target=wait_and_send)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def time_out() -> None:
    raise TaskTimeoutError


@pytest.fixture
def client(emulator: Emulator) -> Iterator[MailClient]:
    with MailClient(ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key, timeout=60)) as client:
        yield client


def run_import(client: MailClient, progress: Progress, interrupt: Interrupt | None = None) -> None:
    source = [[(f"contact-{chunk}-{row}@example.com",) for row in range(10)] for chunk in range(100)]
    plan = ImportPlan(properties=("email",), chunk_size=10)
    import_contacts(client, source, plan, on_reject=print, progress=progress, interrupt=interrupt)


def settled(emulator: Emulator) -> int:
    """The number of requests, once the service has read what was sent before.

    What it is asked through a new connection it answers after that.
    """
    control = EmulatorClient(emulator.base_url)
    counts = [-1]
    while len(set(counts[-5:])) > 1 or len(counts) < 5:
        counts.append(control.journal.count())
    return counts[-1]


@pytest.mark.parametrize("how", ["time-out", "kill"])
@pytest.mark.parametrize("stall", STALLS)
def test_an_import_ends_within_seconds(stall: str, how: str, emulator: Emulator, client: MailClient) -> None:
    progress = Progress()
    emulator.faults.add(**STALLS[stall], operation="contacts/imports", skip=5, count=None)
    interrupt = Interrupt()
    action, error = (time_out, TaskTimeoutError) if how == "time-out" else (interrupt.stop, MailInterruptedError)
    started = time.monotonic()
    with a_signal(lambda: emulator.journal.count() > 5 and progress.accepted == 50, action), pytest.raises(error):
        run_import(client, progress, interrupt)
    assert time.monotonic() - started < LONG
    wait_for_threads("mail-import", timeout=60)
    assert progress.accepted == 50, "what was accepted is known"
    asked = settled(emulator)
    emulator.faults.clear()
    assert settled(emulator) == asked, "and nothing is sent any more"
    # The same client serves what still has to be done, such as in on_kill.
    client._exchange.after_fork()
    assert client.send(GetLists()).code == 200


@pytest.mark.parametrize("how", ["time-out", "kill", "close"])
@pytest.mark.parametrize("stall", STALLS)
def test_a_reading_ends_within_seconds(stall: str, how: str, emulator: Emulator, client: MailClient) -> None:
    emulator.add_list("vip", [f"contact-{number}@example.com" for number in range(300)])
    emulator.faults.add(**STALLS[stall], operation="contacts/list/get", skip=3, count=None)
    interrupt = Interrupt()
    pages = concurrent_pages(client, GetListContacts(list_name="vip", page_size=10), 4, interrupt=interrupt)
    started = time.monotonic()
    if how == "close":
        with closing(pages):
            next(pages)
    else:
        action, error = (time_out, TaskTimeoutError) if how == "time-out" else (interrupt.stop, MailInterruptedError)
        with a_signal(lambda: emulator.journal.count() > 3, action), pytest.raises(error):
            list(pages)
    assert time.monotonic() - started < LONG
    wait_for_threads("mail-pages", timeout=60)


def test_an_interrupt_ends_only_its_own(emulator: Emulator, client: MailClient) -> None:
    interrupt = Interrupt()
    interrupt.abort()
    with pytest.raises(MailInterruptedError):
        interrupt.run(client.send, GetLists())
    assert emulator.journal.count() == 0
    assert client.send(GetLists()).code == 200


def test_a_thread_that_ends_at_that_moment_is_waited_for() -> None:
    """Its future is done before the callbacks of that future have been called."""

    class Slow(set[Any]):
        def discard(self, element: Any) -> None:
            time.sleep(0.3)
            super().discard(element)

    workers = Workers[bool](1, "mail-ending")
    workers._running = Slow()
    with workers:
        workers.submit(workers.interrupt._stopped.wait)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("mail-ending")] == []
