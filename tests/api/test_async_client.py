"""The client for an event loop: what it runs in threads ends with the task that waits for it."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from airflow_provider_mail import api
from airflow_provider_mail.api.client import AsyncMailClient
from mail_emulator import Emulator
from tests.api.driving import ONCE, QUICK
from tests.api.parts import pacing
from tests.api.wire import Gate, Wire
from tests.support.changes import at_request

Work = Callable[[AsyncMailClient], Awaitable[Any]]

WORKS: dict[str, Work] = {
    "send": lambda client: client.send(api.GetLists()),
    "run": lambda client: client.run(api.find_list, "vip"),
    "concurrently": lambda client: client.run(lambda one: one.send_all([api.GetLists()] * 3)),
}


def settings(base_url: str, **more: Any) -> api.ClientConfig:
    return api.ClientConfig(base_url=base_url, api_key="emulator-api-key", **{"retry": QUICK, **more})


@pytest.fixture(autouse=True)
def nothing_is_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No thread of the test, and no error that nobody asked for."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("mail-"):
            thread.join(60)
            assert not thread.is_alive()
    gc.collect()
    assert not [record for record in caplog.records if record.name in ("asyncio", "concurrent.futures")]


def test_results_errors_and_pages(emulator: Emulator) -> None:
    emulator.add_list("vip", [f"contact-{number}@example.com" for number in range(25)])

    async def all_of_it() -> None:
        async with AsyncMailClient(settings(emulator.base_url)) as client:
            found = await client.run(api.find_list, list_name="vip")
            assert found is not None
            pages = client.pages(api.GetListContacts(list_name="vip", page_size=10))
            assert [len(page) async for page in pages] == [10, 10, 5]
            assert abs(client.service_clock.offset) < 5
            emulator.faults.add("code_before", "lists/get", code=401)
            with pytest.raises(api.MailAuthError) as raised:
                await client.send(api.GetLists())
            assert raised.value.__context__ is None
            with pytest.raises(ZeroDivisionError):
                await client.run(lambda one: 1 // 0)

    asyncio.run(all_of_it())


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
def test_a_cancelled_request_ends_although_the_service_is_silent(work: Work, emulator: Emulator) -> None:
    """The service has the request, and responds only when the task has ended."""
    released = threading.Event()

    async def cancelled() -> None:
        loop = asyncio.get_running_loop()
        async with AsyncMailClient(settings(emulator.base_url, timeout=3600)) as client:
            task = asyncio.ensure_future(work(client))

            def cancel() -> None:
                loop.call_soon_threadsafe(task.cancel)
                assert released.wait(60)

            with at_request(emulator, "lists/get", 1, cancel):
                with pytest.raises(asyncio.CancelledError):
                    await task
                released.set()

    asyncio.run(cancelled())


def test_a_cancelled_pause_ends(emulator: Emulator) -> None:
    emulator.faults.add("too_many_requests", "lists/get", count=None, retry_after=100)

    async def cancelled() -> None:
        async with AsyncMailClient(settings(emulator.base_url, retry=api.RetrySettings())) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await client.send(api.GetLists())

    asyncio.run(cancelled())
    assert emulator.journal.count("lists/get") <= 1


def test_what_cannot_be_interrupted_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a host name lookup: neither the task nor the process waits for it."""
    monkeypatch.setattr(pacing, "GRACE_SECONDS", 0.01)
    begun, released, threads = threading.Event(), threading.Event(), list[threading.Thread]()

    def look_up(_: Any) -> None:
        threads.append(threading.current_thread())
        begun.set()
        released.wait(60)
        raise api.MailConnectError("late")

    async def cancelled() -> None:
        async with AsyncMailClient(settings("http://127.0.0.1:1")) as client:
            task = asyncio.create_task(client.run(look_up))
            await asyncio.to_thread(begun.wait, 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancelled())
    assert [thread.daemon for thread in threads] == [True]
    assert not released.is_set()
    released.set()


def test_a_send_that_is_cancelled_is_not_repeated(wire: Wire) -> None:
    """Its connection is shut down, before the client is closed: that is no reason to try again."""
    send = api.SendMail(subject="s", content="c", sender_mail="news@example.com", to=api.Recipient(email="a@b.example"))
    arrived, ended = threading.Event(), threading.Event()

    def swallow(connection: Any) -> None:
        arrived.set()
        connection.recv(1)  # until the client hangs up
        ended.set()

    wire.answer = swallow

    async def cancelled() -> None:
        async with AsyncMailClient(settings(wire.base_url, timeout=3600)) as client:
            task = asyncio.create_task(client.send(send))
            await asyncio.to_thread(arrived.wait, 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(ended.wait, 30)

    asyncio.run(cancelled())
    assert len(wire.requests) == 1


def test_no_more_threads_than_the_connection_allows() -> None:
    async def ask() -> None:
        async with AsyncMailClient(settings(gate.base_url, max_in_flight=3, retry=ONCE)) as client:
            await asyncio.gather(*(client.send(api.GetLists()) for _ in range(20)))
            assert len(most) == 20
            assert max(most) <= 6, "one that has responded may not have ended yet"

    most: list[int] = []

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        most.append(sum(thread.name == "mail-async" for thread in threading.enumerate()))
        return {}

    with Gate(3, respond) as gate:
        asyncio.run(ask())
    assert gate.most == 3


def test_the_context_of_the_caller_is_that_of_the_request(emulator: Emulator) -> None:
    """Such as what the lines of a log are marked with."""
    mark: ContextVar[str] = ContextVar("mark", default="")
    seen: list[str] = []

    async def ask() -> None:
        mark.set("of the trigger")
        async with AsyncMailClient(
            settings(emulator.base_url),
            on_request=lambda _: seen.append(mark.get()),
            before_request=lambda _: seen.append(mark.get()),
        ) as client:
            await client.send(api.GetLists())

    asyncio.run(ask())
    assert seen == ["of the trigger"] * 2
