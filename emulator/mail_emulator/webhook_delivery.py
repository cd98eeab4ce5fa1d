"""Push events to callback URLs, with retries; each URL has a queue and one push at a time."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import h11

from mail_emulator.responses import encode_json
from mail_emulator.webhooks import DueEvents, Event, configuration

if TYPE_CHECKING:
    from mail_emulator.service import Service


@dataclass(frozen=True)
class Push:
    """An attempt to push events to a callback URL."""

    url: str
    events: int
    #: 1 is the first attempt.
    attempt: int
    #: HTTP status of the response; None without one.
    status: int | None
    error: str | None
    seconds: float


class WebhookSender:
    """Pushes due events until cancelled."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._queues: dict[str, asyncio.Queue[list[Event]]] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self.pushes: deque[Push] = deque(maxlen=10_000)
        #: Completed checks for due events, and unfinished pushes: none is left when both stand still.
        self.looks = 0
        self.unfinished = 0

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        try:
            while True:
                # Not wait_for: on Python 3.11 that can lose a cancellation.
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._service.settings.webhook_interval_seconds):
                        await self._wake.wait()
                self._wake.clear()
                try:
                    await self._queue_due_events()
                except Exception:
                    self._service.record_crash("looking for events")
                self.looks += 1
        finally:
            for worker in self._workers:
                worker.cancel()

    async def _queue_due_events(self) -> None:
        service = self._service
        max_events = min(service.settings.webhook_max_events, 1000)
        ready: dict[str, list[Event]] = {}
        with service.lock:
            if not configuration(service.store)["transEnable"]:
                return
            service.apply_due_changes()
            chunks = DueEvents(service.context()).chunks()
        while True:
            with service.lock, service.store.transaction():
                chunk = next(chunks, None)
            if chunk is None:
                break
            for url, event in chunk:
                events = ready.setdefault(url, [])
                events.append(event)
                if len(events) >= max_events:
                    await self._enqueue(url, ready.pop(url))
        for url, events in ready.items():
            await self._enqueue(url, events)

    async def _enqueue(self, url: str, events: list[Event]) -> None:
        if url not in self._queues:
            self._queues[url] = asyncio.Queue(maxsize=100)
            self._workers.add(asyncio.create_task(self._work(url, self._queues[url])))
        self.unfinished += 1
        await self._queues[url].put(events)

    async def _work(self, url: str, queue: asyncio.Queue[list[Event]]) -> None:
        settings, accepted = self._service.settings, 0
        while True:
            events = await queue.get()
            body = encode_json(events)
            for attempt in range(1, settings.webhook_retries + 2):
                if await self._attempt(url, body, len(events), attempt):
                    accepted += 1
                    if settings.webhook_duplicate_every and accepted % settings.webhook_duplicate_every == 0:
                        await self._attempt(url, body, len(events), attempt + 1)
                    break
                if attempt <= settings.webhook_retries:
                    await asyncio.sleep(settings.webhook_retry_seconds)
            self.unfinished -= 1

    async def _attempt(self, url: str, body: bytes, events: int, attempt: int) -> bool:
        began, status, error = time.monotonic(), None, None
        try:
            async with asyncio.timeout(self._service.settings.webhook_timeout_seconds):
                status = await _post(url, body)
        except (OSError, TimeoutError, ValueError, h11.ProtocolError) as problem:
            error = f"{type(problem).__name__}: {problem}"
        # Control functions, which read them in other threads, hold the lock.
        with self._service.lock:
            self.pushes.append(Push(url, events, attempt, status, error, time.monotonic() - began))
        return status is not None and 200 <= status < 300


async def _post(url: str, body: bytes) -> int:
    """Post a push to a callback URL over a new connection; return the HTTP status."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    reader, writer = await asyncio.open_connection(
        parts.hostname, parts.port or (443 if secure else 80), ssl=ssl.create_default_context() if secure else None
    )
    try:
        connection = h11.Connection(h11.CLIENT)
        head = h11.Request(
            method="POST",
            target=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
            headers=[
                ("Host", parts.netloc.rpartition("@")[2]),
                ("User-Agent", "ServiceWebhooks"),
                ("Content-Type", "application/json;charset=UTF-8"),
                ("Content-Length", str(len(body))),
                ("Connection", "close"),
            ],
        )
        for event in (head, h11.Data(body), h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")
        await writer.drain()
        while not isinstance(response := connection.next_event(), h11.Response):
            if response is h11.NEED_DATA:
                connection.receive_data(await reader.read(65_536))
            elif isinstance(response, h11.ConnectionClosed):
                raise ConnectionResetError("closed without a response")
        return response.status_code
    finally:
        writer.close()
