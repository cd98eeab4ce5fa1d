"""The receiver of pushes (specification, "Events") for any ASGI server: ``airflow_provider_mail.webhook.app:app``."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from airflow_provider_mail._config import ReceiverSettings
from airflow_provider_mail._metrics import RECEIVED_EVENTS, RECEIVED_PUSHES, emit, prepare
from airflow_provider_mail.api.events import MAX_EVENTS_PER_PUSH, EventCode
from airflow_provider_mail.webhook.commits import GroupCommit, NotStored, Overloaded
from airflow_provider_mail.webhook.events import begins_as_push, count_quickly, split_push
from airflow_provider_mail.webhook.health import Cached, Health
from airflow_provider_mail.webhook.inbox import Push, open_inbox
from airflow_provider_mail.webhook.tokens import HIDDEN, TOKENS_SECONDS, Tokens, token_digest, token_of

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

RETRY_AFTER_SECONDS = 5

HEALTH, ALIVE = "health", "alive"
"""The last segments of the paths that need no token. They reveal no more than the response to a wrong token."""

BODY_SECONDS = 60
"""How long a body may take to arrive."""


_JSON = re.compile(r"application/json\s*(;.*)?", re.IGNORECASE)
_TASK_STATUS = EventCode.TASK_STATUS.encode()


@dataclass(frozen=True)
class Receiver:
    """Takes pushes at ``.../<token>``, with 200 once the inbox holds them; ``.../health`` shows whether it can.

    :param tokens: ids of the `mail` connections by the digests of their valid tokens.
    :param max_body: the longest body in bytes; a longer one is answered with 413.
    :param user_agent: the ``User-Agent`` of the service; empty accepts any.
    """

    commits: GroupCommit
    tokens: Cached[Mapping[str, str]]
    health: Health
    max_body: int
    user_agent: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = hide_token(scope)
        if asks_for(HEALTH, scope, token):
            response = Response("OK") if await self.health.can_store() else unavailable()
        elif asks_for(ALIVE, scope, token):
            response = Response("OK")
        else:
            response = await self._response(Request(scope, receive), token)
        await response(scope, receive, send)

    async def _response(self, request: Request, token: str) -> Response:
        try:
            tokens = await self.tokens.get()
        except Exception:
            return self._counted(unavailable())
        presented, mail_conn_id = token_digest(token), None
        for digest, owner in tokens.items():
            mail_conn_id = owner if hmac.compare_digest(presented, digest) else mail_conn_id
        if mail_conn_id is None:
            return self._counted(Response("Not Found", 404))
        if rejected := await self._rejected(request):
            return self._counted(rejected)
        return self._counted(*await self._stored(request, mail_conn_id))

    @staticmethod
    def _counted(response: Response, events: int = 0) -> Response:
        emit({RECEIVED_PUSHES: 1, RECEIVED_EVENTS: events}, {"status": str(response.status_code)})
        return response

    async def _rejected(self, request: Request) -> Response | None:
        """Check what precedes the body of a request with a valid token."""
        if request.method in ("GET", "HEAD"):
            return Response("OK")  # services check an address so before they use it
        if request.method != "POST":
            return Response("Method Not Allowed", 405, {"Allow": "GET, HEAD, POST"})
        if self.user_agent and request.headers.get("user-agent") != self.user_agent:
            return Response("Forbidden", 403)
        if not _JSON.fullmatch(request.headers.get("content-type", "")):
            return Response("Unsupported Media Type", 415)
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            return Response("Unsupported Media Type", 415, {"Accept-Encoding": "identity"})
        return unavailable() if await self.health.is_full() else None

    async def _stored(self, request: Request, mail_conn_id: str) -> tuple[Response, int]:
        """Store the push; return the response and the number of its events, 0 if they were not counted."""
        count = 0
        try:
            with self.commits.room() as add:
                try:
                    async with asyncio.timeout(BODY_SECONDS):
                        body = await self._body(request, add)
                except (ClientDisconnect, TimeoutError):
                    return Response("Bad Request", 400, {"Connection": "close"}), count
                if body is None:
                    return Response("Content Too Large", 413), count
                if not begins_as_push(body):
                    return Response("The body is not a JSON array of events", 400), count
                if (count := await count_events(body)) > MAX_EVENTS_PER_PUSH:
                    return Response(f"The push has more than {MAX_EVENTS_PER_PUSH} events", 400), count
            await self.commits.store(Push(body, datetime.now(UTC), mail_conn_id, _TASK_STATUS in body))
        except (Overloaded, NotStored):
            return unavailable(), count
        return Response("OK"), count

    async def _body(self, request: Request, add: Callable[[int], None]) -> bytes | None:
        """Read the body; ``None`` when it is too long."""
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > self.max_body:
            return None
        body = bytearray()
        async for chunk in request.stream():
            if len(body) + len(chunk) > self.max_body:
                return None
            add(len(chunk))
            body += chunk
        return bytes(body)


def hide_token(scope: Scope) -> str:
    """Take the token out of a request before anything can be logged or raised; return it.

    Servers log path and query after the response.
    """
    token = token_of(scope["path"])
    scope["path"] = f"{scope.get('root_path', '')}/{HIDDEN}"
    scope["raw_path"], scope["query_string"] = scope["path"].encode(), b""
    return token


def unavailable() -> Response:
    """Return the response after which the service tries again."""
    return Response("Service Unavailable", 503, {"Retry-After": str(RETRY_AFTER_SECONDS)})


async def count_events(body: bytes) -> int:
    """Return the number of events of a push; not all are counted of too many, or of one that is damaged."""
    if (count := count_quickly(body)) is None:
        # In a thread: one event may have some MiB.
        parts = islice(split_push(body), MAX_EVENTS_PER_PUSH + 1)
        count = len(await asyncio.to_thread(list, parts))
    return count


def asks_for(name: str, scope: Scope, token: str) -> bool:
    return token == name and scope["method"] in ("GET", "HEAD")


_log = logging.getLogger(__name__)


class ReceiverApp:
    """The receiver with the settings of Airflow's configuration, read when it starts.

    A server that reports its start gets an error without an inbox or a token, and ends. Mounted in a server of
    your own, it starts with the first request; until it can, it responds with 503.
    """

    def __init__(self) -> None:
        self._receiver: Receiver | None = None
        self._commits: GroupCommit | None = None
        self._starting = asyncio.Lock()
        self._last_error = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            receiver = self._receiver or await self._started()
            if receiver is None:
                token = hide_token(scope)
                response = Response("OK") if asks_for(ALIVE, scope, token) else unavailable()
                await response(scope, receive, send)
            else:
                await receiver(scope, receive, send)
        else:
            hide_token(scope)
            await send({"type": "websocket.close"})

    async def _started(self) -> Receiver | None:
        async with self._starting:
            if self._receiver is None:
                try:
                    await asyncio.to_thread(self.start)
                except Exception as error:
                    self._log_once(f"The receiver of events cannot start: {error}")
        return self._receiver

    def start(self) -> Tokens:
        """Read the settings and make the receiver; return its tokens.

        :raises MailConfigError: a setting is impossible.
        :raises WarehouseError: the database cannot hold an inbox.
        """
        # Airflow 3.1 and later look up connections in the database only in this context.
        os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
        settings = ReceiverSettings.from_airflow()
        inbox = open_inbox()
        tokens = Tokens(inbox)
        prepare()
        self._commits = GroupCommit(inbox, max_pending=settings.receive_max_pending_bytes)
        valid: Cached[Mapping[str, str]] = Cached(
            tokens.valid, TOKENS_SECONDS, "The tokens of the receiver could not be read"
        )
        limit = settings.receive_max_inbox_bytes
        self._receiver = Receiver(
            self._commits,
            valid,
            Health(inbox, valid, self._commits.failed_lately, max_bytes=limit),
            max_body=settings.receive_max_body_bytes,
            user_agent=settings.receive_user_agent,
        )
        return tokens

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            tokens = await asyncio.to_thread(self.start)
            await asyncio.to_thread(tokens.check)
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self._commits is not None:
            await self._commits.close()
        await send({"type": "lifespan.shutdown.complete"})

    def _log_once(self, message: str) -> None:
        if message != self._last_error:
            self._last_error = message
            _log.error("%s", message)


app = ReceiverApp()
