"""The receiver of pushes (specification, "Events") for any ASGI server: ``airflow_provider_mail.webhook.app:app``."""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from airflow_provider_mail._config import ReceiverSettings
from airflow_provider_mail._metrics import (
    INBOX_BYTES,
    INBOX_OLDEST,
    INBOX_PUSHES,
    RECEIVED_EVENTS,
    RECEIVED_PUSHES,
    emit,
    prepare,
)
from airflow_provider_mail.api.events import MAX_EVENTS_PER_PUSH, EventCode
from airflow_provider_mail.webhook.commits import GroupCommit, NotStored, Overloaded
from airflow_provider_mail.webhook.events import begins_as_push, count_quickly, split_push
from airflow_provider_mail.webhook.health import Cached
from airflow_provider_mail.webhook.inbox import Inbox, InboxState, Push, open_inbox
from airflow_provider_mail.webhook.tokens import HIDDEN, TOKENS_SECONDS, Tokens, check_tokens, token_digest, token_of

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

T = TypeVar("T")

RETRY_AFTER_SECONDS = 5

HEALTH, ALIVE = "health", "alive"
"""The last segments of the paths that need no token. They reveal no more than the response to a wrong token."""

BODY_SECONDS = 60
"""How long a body may take to arrive."""

HEALTH_SECONDS = 5.0
"""How long the result of a check is reused: load balancers may ask at any rate."""

STATE_SECONDS = 10.0
"""How often the state of the inbox is read while requests arrive."""

LOOKS = ("GET", "HEAD")

_JSON = re.compile(r"application/json\s*(;.*)?", re.IGNORECASE)
_TASK_STATUS = EventCode.TASK_STATUS.encode()


class Receiver:
    """Takes pushes at ``.../<token>``, with 200 once the inbox holds them; ``.../health`` shows whether it can.

    :param max_pending: bytes that may arrive and wait to be written.
    :param max_inbox: bytes of pushes that may wait in the inbox.
    :param max_body: the longest body in bytes; a longer one is answered with 413.
    :param user_agent: the ``User-Agent`` of the service; empty accepts any.
    """

    def __init__(self, inbox: Inbox, *, max_pending: int, max_inbox: int, max_body: int, user_agent: str) -> None:
        self.commits = GroupCommit(inbox, max_pending=max_pending)
        self.tokens = Cached(Tokens(inbox).valid, TOKENS_SECONDS, "The tokens of the receiver could not be read")
        self._probe = Cached(inbox.probe, HEALTH_SECONDS, "The receiver cannot store pushes")
        self._state = Cached(self._read_state, STATE_SECONDS, "The state of the inbox could not be read")
        self._inbox, self._max_inbox = inbox, max_inbox
        self._max_body, self._user_agent = max_body, user_agent

    async def receive(self, request: Request, token: str) -> None:
        try:
            _count(200, await self._receive(request, token))
        except HTTPException as error:
            _count(error.status_code)
            raise

    async def _receive(self, request: Request, token: str) -> int:
        """Store a push; return the number of its events."""
        mail_conn_id = await self._owner(token)
        if request.method in LOOKS:
            return 0  # services check an address so before they use it
        self._check_head(request)
        if await self._is_full():
            raise unavailable()
        try:
            with self.commits.room() as add:
                body = await self._body(request, add)
                events = await count_events(body)
                await self.commits.store(Push(body, datetime.now(UTC), mail_conn_id, _TASK_STATUS in body))
        except (Overloaded, NotStored):
            raise unavailable() from None
        return events

    async def _owner(self, token: str) -> str:
        presented, mail_conn_id = token_digest(token), None
        for digest, owner in (await available(self.tokens)).items():
            mail_conn_id = owner if hmac.compare_digest(presented, digest) else mail_conn_id
        if mail_conn_id is None:
            raise HTTPException(404)
        return mail_conn_id

    def _check_head(self, request: Request) -> None:
        if request.method != "POST":
            raise HTTPException(405, headers={"Allow": "GET, HEAD, POST"})
        if self._user_agent and request.headers.get("user-agent") != self._user_agent:
            raise HTTPException(403)
        if not _JSON.fullmatch(request.headers.get("content-type", "")):
            raise HTTPException(415)
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise HTTPException(415, headers={"Accept-Encoding": "identity"})
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self._max_body:
            raise HTTPException(413)

    async def _body(self, request: Request, add: Callable[[int], None]) -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for chunk in request.stream():
                    if len(body) + len(chunk) > self._max_body:
                        raise HTTPException(413)
                    add(len(chunk))
                    body += chunk
        except (ClientDisconnect, TimeoutError):
            raise HTTPException(400, headers={"Connection": "close"}) from None
        return bytes(body)

    async def can_store(self) -> bool:
        # A state that cannot be read is no reason to reject a push.
        reads = (self.tokens.get(), self._probe.get(), self._state.get())
        tokens, probe, _ = await asyncio.gather(*reads, return_exceptions=True)
        if not tokens or isinstance(tokens, BaseException) or isinstance(probe, BaseException):
            return False
        return not await self._is_full() and not self.commits.failed_lately()

    async def _is_full(self) -> bool:
        """Return whether too much waits in the inbox: as of the latest write, or of some seconds ago."""
        attempt = self._state.start()
        if self._inbox.waiting_bytes is None:
            await asyncio.wait([attempt])
        return (self._inbox.waiting_bytes or 0) >= self._max_inbox

    def _read_state(self) -> InboxState:
        state = self._inbox.state()
        pushes, size = state.waiting_pushes, state.waiting_bytes
        emit({INBOX_PUSHES: pushes, INBOX_BYTES: size, INBOX_OLDEST: state.oldest_seconds}, {})
        return state


def hide_token(scope: Scope) -> str:
    """Take the token out of a request before anything can be logged or raised; return it.

    Servers log path and query after the response.
    """
    token = token_of(scope["path"])
    scope["path"] = f"{scope.get('root_path', '')}/{HIDDEN}"
    scope["raw_path"], scope["query_string"] = scope["path"].encode(), b""
    return token


def unavailable() -> HTTPException:
    return HTTPException(503, headers={"Retry-After": str(RETRY_AFTER_SECONDS)})


async def available(cached: Cached[T]) -> T:
    try:
        return await cached.get()
    except Exception:
        raise unavailable() from None


def _count(status: int, events: int = 0) -> None:
    """Count a push that has a response; one that is cut off has none."""
    emit({RECEIVED_PUSHES: 1, RECEIVED_EVENTS: events}, {"status": str(status)})


async def count_events(body: bytes) -> int:
    if not begins_as_push(body):
        raise HTTPException(400, "The body is not a JSON array of events")
    if (count := count_quickly(body)) is None:
        # In a thread: one event may have some MiB.
        parts = islice(split_push(body), MAX_EVENTS_PER_PUSH + 1)
        count = len(await asyncio.to_thread(list, parts))
    if count > MAX_EVENTS_PER_PUSH:
        raise HTTPException(400, f"The push has more than {MAX_EVENTS_PER_PUSH} events")
    return count


def make_receiver() -> Receiver:
    """Make the receiver with the settings of Airflow's configuration."""
    from airflow_provider_mail.version_compat import act_as_server

    act_as_server()
    settings = ReceiverSettings.from_airflow()
    inbox = open_inbox()
    prepare()
    return Receiver(
        inbox,
        max_pending=settings.receive_max_pending_bytes,
        max_inbox=settings.receive_max_inbox_bytes,
        max_body=settings.receive_max_body_bytes,
        user_agent=settings.receive_user_agent,
    )


class ReceiverApp:
    """The receiver, which is made when it starts.

    A server that reports its start gets an error without an inbox or a token, and ends. Mounted in a server of
    your own, it starts with the first request; until it can, it responds with 503.
    """

    def __init__(self, make: Callable[[], Receiver] = make_receiver) -> None:
        self._receiver = Cached(make, float("inf"), "The receiver of events cannot start")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        token = hide_token(scope)
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
            return
        try:
            await self._answer(Request(scope, receive), token)
            response = Response("OK")
        except HTTPException as error:
            response = Response(error.detail, error.status_code, error.headers)
        await response(scope, receive, send)

    async def _answer(self, request: Request, token: str) -> None:
        looked_at = token if request.method in LOOKS else ""
        if looked_at == ALIVE:
            return
        receiver = await available(self._receiver)
        if looked_at != HEALTH:
            await receiver.receive(request, token)
        elif not await receiver.can_store():
            raise unavailable()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            receiver = await self._receiver.get()
            check_tokens(await receiver.tokens.get())
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error) or repr(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await receiver.commits.close()
        await send({"type": "lifespan.shutdown.complete"})


app = ReceiverApp()
