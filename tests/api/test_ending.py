"""An import and a reading end when they are interrupted: by a time-out of the task, or by a kill."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from airflow_provider_mail import api
from airflow_provider_mail.api._core.pagination import concurrent_pages
from mail_emulator import Emulator
from tests.api.parts import Changes, Interrupt, Pager, Workers
from tests.support.changes import at_request, time_out_task

IMPORT, READ = "contacts/imports", "contacts/list/get"
# Either leads to pauses before repetitions, which would take minutes.
STALL_IMPORT: dict[str, Any] = {"kind": "too_many_requests", "retry_after": 100}
STALL_READ: dict[str, Any] = {"kind": "http_error_before", "status": 503}


class TaskTimeoutError(BaseException):
    """Like Airflow's: no Exception, raised by a signal handler in the main thread."""


@pytest.fixture
def ends() -> Iterator[dict[str, Any]]:
    """The ways in which a task ends: what happens, what is raised, and the interrupt."""

    def raise_timeout(*_: object) -> None:
        raise TaskTimeoutError

    before = signal.signal(signal.SIGALRM, raise_timeout)
    interrupt = Interrupt()
    kill = (interrupt.stop, api.MailInterruptedError, interrupt)
    yield {"time-out": (time_out_task, TaskTimeoutError, interrupt), "kill": kill, "close": kill}
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def client(emulator: Emulator) -> Iterator[api.MailClient]:
    with api.MailClient(api.ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key, timeout=60)) as client:
        yield client


def assert_ended(prefix: str) -> None:
    for thread in threading.enumerate():
        if thread.name.startswith(prefix) and thread.ident is not None:  # the time-out may come before one is started
            thread.join(60)
            assert not thread.is_alive()


def test_what_follows_an_interrupted_work_is_not_interrupted(client: api.MailClient, ends: dict[str, Any]) -> None:
    """In the same thread, such as the clean-up of a task."""
    _, _, interrupt = ends["kill"]
    interrupt.stop()
    with pytest.raises(api.MailInterruptedError):
        interrupt.run(client.send, api.GetLists())
    assert client.send(api.GetLists()).code == 200


@pytest.mark.parametrize("how", ["time-out", "kill"])
def test_an_import_ends(how: str, emulator: Emulator, client: api.MailClient, ends: dict[str, Any]) -> None:
    action, error, interrupt = ends[how]
    progress, plan = api.Progress(), api.ImportPlan(properties=("email",), chunk_size=10)
    source = [[(f"contact-{chunk}-{row}@example.com",) for row in range(10)] for chunk in range(100)]
    emulator.faults.add(**STALL_IMPORT, operation=IMPORT, skip=5, count=None)

    def end(done: api.Progress) -> None:
        if done.accepted == 50:
            threading.Thread(target=action).start()

    reports = {"on_reject": print, "progress": progress, "on_progress": end}
    with pytest.raises(error):
        api.import_contacts(client, source, plan, **reports, interrupt=interrupt)
    assert_ended("mail-import")
    assert progress.accepted == emulator.contact_count() == 50, "what was accepted is known"
    # The same client serves what still has to be done, such as in on_kill.
    client.after_fork()
    assert client.send(api.GetLists()).code == 200


@pytest.mark.parametrize("how", ["time-out", "kill", "close"])
def test_a_reading_ends(how: str, emulator: Emulator, client: api.MailClient, ends: dict[str, Any]) -> None:
    emulator.add_list("vip", [f"contact-{number}@example.com" for number in range(300)])
    emulator.faults.add(**STALL_READ, operation=READ, skip=3, count=None)
    action, error, interrupt = ends[how]
    request = api.GetListContacts(list_name="vip", page_size=10)
    with closing(concurrent_pages(client, Pager(request, Changes.REFUSE), 4, interrupt)) as pages:
        if how == "close":
            next(pages)
        else:
            with at_request(emulator, READ, 3, action), pytest.raises(error):
                list(pages)
    assert_ended("mail-pages")


@pytest.mark.parametrize("work", ["send", "run"])
def test_aborting_ends_a_request_without_a_response(work: str, emulator: Emulator, client: api.MailClient) -> None:
    """The service has the request and does not respond before the client has given it up."""
    interrupt, released = Interrupt(), threading.Event()

    def abort_and_stall() -> None:
        interrupt.abort()
        released.wait(60)

    action: Any = (client.send, api.GetLists()) if work == "send" else (api.find_list, client, "vip")
    try:
        with at_request(emulator, "lists/get", 1, abort_and_stall), pytest.raises(api.MailInterruptedError):
            interrupt.run(*action)
        assert not released.is_set()
    finally:
        released.set()


@pytest.mark.parametrize("whose", ["of the threads", "of the waiting thread"])
def test_waiting_for_a_thread_ends_with_the_interrupt(whose: str) -> None:
    released, outer = threading.Event(), Interrupt()
    with Workers[bool](1, "mail-waiting") as workers:
        future = workers.submit(released.wait, 60)
        (workers.interrupt if whose == "of the threads" else outer).stop()
        try:
            with pytest.raises(api.MailInterruptedError):
                outer.run(workers.first_done, [future])
            assert not future.done()
        finally:
            released.set()
