"""The HTTP/1.1 server: h11 on asyncio streams, since faults need the socket."""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from email.utils import format_datetime
from urllib.parse import parse_qsl, urlsplit

import h11

from mail_emulator.faults import Plan
from mail_emulator.journal import Entry
from mail_emulator.responses import Response
from mail_emulator.service import Request, Service
from mail_emulator.webhook_delivery import WebhookSender

CONTROL = "/_emulator"
#: Where pages are. That of each campaign is a target for ``campaign_url`` of a connection.
PAGES = ("/inbox", "/campaigns")
_CREDENTIALS = ("apikey", "oauth", "authorization", "cookie")


class _ConnectionDropped(Exception):
    """Close the connection without the rest of the response."""

    def __init__(self, *, reset: bool) -> None:
        super().__init__("lost")
        self.reset = reset


class Server:
    """An HTTP server that applies faults. All methods run in one event loop."""

    def __init__(self, service: Service, control: Callable[[Request], Response]) -> None:
        self.service = service
        self.control = control
        self._listener: asyncio.Server | None = None
        self._address: tuple[str, int] = ("127.0.0.1", 0)
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self.webhook_sender = WebhookSender(service)

    @property
    def port(self) -> int:
        return self._address[1]

    async def start(self, host: str, port: int) -> None:
        """Listen for connections; OSError when the address is not available."""
        self._address = (host, port)
        await self._listen()
        assert self._listener is not None
        self._address = (host, self._listener.sockets[0].getsockname()[1])
        self._run(self.webhook_sender.run())

    async def _listen(self) -> None:
        certificate = self.service.settings.tls_certificate
        context = None
        if certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificate)
        self._listener = await asyncio.start_server(
            self._accept, *self._address, backlog=1024, limit=2**20, ssl=context, reuse_address=True
        )

    def _stop_listening(self) -> None:
        """Refuse new connections; open ones continue."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def pause(self, seconds: float) -> None:
        """Refuse new connections for a time."""

        async def pause() -> None:
            self._stop_listening()
            await asyncio.sleep(seconds)
            await self._listen()

        self._run(pause())

    async def stop(self) -> None:
        self._stop_listening()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # lets the transports close

    def _run(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._run(_Connection(self, next(self._numbers), reader, writer).serve())


class _Connection:
    """A client's connection, which handles one request at a time."""

    def __init__(self, server: Server, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._service = server.service
        self._control = server.control
        self._number = number
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER)

    async def serve(self) -> None:
        reset = False
        try:
            while isinstance(head := await self._next(), h11.Request):
                await self._handle(head)
                if h11.MUST_CLOSE in (self._http.our_state, self._http.their_state):
                    break
                self._http.start_next_cycle()
        except _ConnectionDropped as lost:
            reset = lost.reset
        except h11.RemoteProtocolError as error:
            with suppress(h11.LocalProtocolError, OSError):
                await self._send(Response(status=error.error_status_hint, text=str(error), content_type="text/plain"))
        except OSError:
            pass  # the client has disconnected
        except Exception:
            self._service.record_crash(f"connection {self._number}")
        finally:
            self._close(reset)

    def _close(self, reset: bool) -> None:
        if reset:
            # Lingering for zero seconds turns the close into a reset.
            with suppress(OSError):
                self._writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
            self._writer.transport.abort()
        else:
            self._writer.close()

    async def _next(self) -> h11.Request | h11.Data | h11.EndOfMessage | h11.ConnectionClosed:
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    self._writer.write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
                self._http.receive_data(await self._reader.read(262_144))
            elif isinstance(event, h11.Request | h11.Data | h11.EndOfMessage | h11.ConnectionClosed):
                return event
            else:
                raise _ConnectionDropped(reset=False)

    async def _content(self) -> bytes | None:
        """Return the body of the request; None when it exceeds ``max_body_bytes``."""
        parts, size = [], 0
        while isinstance(event := await self._next(), h11.Data):
            parts.append(event.data)
            size += len(event.data)
            if size > self._service.settings.max_body_bytes:
                return None
        if isinstance(event, h11.ConnectionClosed):
            raise _ConnectionDropped(reset=False)
        return b"".join(parts)

    async def _handle(self, head: h11.Request) -> None:
        url = urlsplit(head.target.decode())
        headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        request = Request(head.method.decode(), url.path, query, headers)
        if url.path == "/" or url.path.startswith((CONTROL, *PAGES)):
            request.content = await self._content() or b""
            await self._send(self._control(request))
            return
        service = self._service
        logged_headers = {name: "***" if name in _CREDENTIALS else value for name, value in headers.items()}
        with service.lock:
            entry = service.journal.open(url.path, request.method, logged_headers, service.clock.now_ms(), self._number)
        try:
            await self._exchange(request, entry)
        finally:
            with service.lock:
                service.journal.close(entry)

    async def _exchange(self, request: Request, entry: Entry) -> None:
        service = self._service
        plan = None
        with service.lock:
            if not service.faults.needs_body(request.path):
                plan = service.faults.plan(request.path, None)
                entry.fault = plan.fault
        if plan and plan.unread:
            raise _ConnectionDropped(reset=plan.reset)
        content = await self._content()
        if content is None:
            await self._send(Response({"code": 413, "message": "the body is too large"}, 413), entry=entry)
            raise _ConnectionDropped(reset=False)
        request.content = content
        request.body = service.parse(request)
        with service.lock:
            service.journal.note_body(entry, request.body, len(content))
            if plan is None:
                plan = service.faults.plan(request.path, request.body)
                entry.fault = plan.fault
            limited = service.rate_limit_response()
        if delay := service.settings.latency_seconds + plan.delay_before:
            await asyncio.sleep(delay)
        if plan.unread or plan.lost == "before":
            raise _ConnectionDropped(reset=plan.reset)
        response = plan.instead or limited or service.perform(request, plan, entry)
        if plan.rewrite:
            response = plan.rewrite(response)
        if plan.lost == "after":
            raise _ConnectionDropped(reset=plan.reset)
        if plan.delay_after:
            await asyncio.sleep(plan.delay_after)
        await self._send(response, plan, entry)

    async def _send(self, response: Response, plan: Plan | None = None, entry: Entry | None = None) -> None:
        body, plan = response.body, plan or Plan()
        if entry is not None:
            message = response.payload.get("message")
            entry.http_status, entry.code = response.status, response.code
            entry.message = message if isinstance(message, str) else None
        headers = [("Content-Type", response.content_type), ("Content-Length", str(len(body))), *response.headers]
        if self._service.settings.date_header:
            headers.append(("Date", format_datetime(self._service.clock.now(), usegmt=True)))
        head = self._http.send(h11.Response(status_code=response.status, headers=headers)) or b""
        if plan.cut is not None:
            self._writer.write(head + (self._http.send(h11.Data(body[: int(len(body) * plan.cut)])) or b""))
            await self._writer.drain()
            # A reset discards what the client has not read; let it read the first part.
            await asyncio.sleep(0.01 if plan.reset else 0)
            raise _ConnectionDropped(reset=plan.reset)
        if plan.bytes_per_second:
            self._writer.write(head)
            head = b""
            step = max(1, int(plan.bytes_per_second / 20))
            while len(body) > step:
                self._writer.write(self._http.send(h11.Data(body[:step])) or b"")
                await self._writer.drain()
                body = body[step:]
                await asyncio.sleep(step / plan.bytes_per_second)
        if entry is not None:
            # Before the last bytes, so that a client with the response finds it in the journal.
            with self._service.lock:
                self._service.journal.note_response(entry, body)
                self._service.journal.close(entry, answered=True)
        last_bytes = (self._http.send(h11.Data(body)) or b"") + (self._http.send(h11.EndOfMessage()) or b"")
        self._writer.write(head + last_bytes)
        await self._writer.drain()
