"""The ASGI application that takes pushes (document, "Events")."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.api.events import MAX_EVENTS_PER_PUSH, EventCode
from airflow_provider_mail.warehouse.errors import WarehouseError, safe_message
from airflow_provider_mail.warehouse.time_limit import aread
from airflow_provider_mail.webhook.commits import GroupCommit, NotStored, Overloaded, Room
from airflow_provider_mail.webhook.events import begins_as_push, count_quickly, split_push
from airflow_provider_mail.webhook.inbox import Push
from airflow_provider_mail.webhook.threads import Threads
from airflow_provider_mail.webhook.tokens import HIDDEN, TOKENS_SECONDS, token_digest, token_of

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_log = logging.getLogger(__name__)

RETRY_AFTER_SECONDS = 5

BODY_SECONDS = 60
"""How long a body may take to arrive."""

READ_SECONDS = 5
"""How long a request waits for the tokens: with `commits.STORE_SECONDS`, the longest wait for the database."""

_FAILED_SECONDS = 1

_JSON = re.compile(r"application/json\s*(;.*)?", re.IGNORECASE)
_TASK_STATUS = EventCode.TASK_STATUS.encode()


class TokenCache:
    """The valid tokens, read again when they are `TOKENS_SECONDS` old.

    :param read: returns the ids of the `mail` connections by the digests of their valid tokens.
    """

    def __init__(self, read: Callable[[], Mapping[str, str]]) -> None:
        self._read = read
        self._threads = Threads()
        self._attempt: asyncio.Future[Mapping[str, str]] | None = None
        self._until = 0.0
        self._is_failing = False

    async def valid(self) -> Mapping[str, str]:
        """Return the tokens.

        :raises Exception: the database did not answer.
        """
        now = time.monotonic()
        if self._attempt is None or (self._attempt.done() and now >= self._until):
            # One attempt: while the database hangs, all requests wait for it.
            self._attempt = asyncio.ensure_future(self._fresh())
            self._until = now + TOKENS_SECONDS
            self._attempt.add_done_callback(self._note_failure)
        # One request that ends must not end the attempt of all.
        return await asyncio.shield(self._attempt)

    async def _fresh(self) -> Mapping[str, str]:
        return await aread(self._threads.start(self._read, READ_SECONDS))

    def _note_failure(self, attempt: asyncio.Future[Mapping[str, str]]) -> None:
        error = None if attempt.cancelled() else attempt.exception()
        if error is None:
            self._is_failing = False
            return
        self._until = time.monotonic() + _FAILED_SECONDS
        if not self._is_failing:
            self._is_failing = True
            known = isinstance(error, WarehouseError | MailConfigError)
            why = f"no answer within {READ_SECONDS} s" if isinstance(error, TimeoutError) else safe_message(error)
            _log.error("The tokens of the receiver could not be read: %s", error if known else why)


class Receiver:
    """Takes pushes at ``.../<token>`` and answers 200 once the inbox holds them.

    :param commits: writes to the inbox.
    :param tokens: the valid tokens.
    :param max_body: the longest body in bytes; a longer one is answered with 413.
    :param user_agent: the ``User-Agent`` of the service; empty accepts any.
    """

    def __init__(self, commits: GroupCommit, tokens: TokenCache, *, max_body: int, user_agent: str) -> None:
        self._commits = commits
        self._tokens = tokens
        self._max_body = max_body
        self._user_agent = user_agent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        :param scope: of the request.
        :param receive: of the request.
        :param send: of the request.
        """
        token = hide_token(scope)
        response = await self._response(Request(scope, receive), token)
        await response(scope, receive, send)

    async def _response(self, request: Request, token: str) -> Response:
        try:
            tokens = await self._tokens.valid()
        except Exception:
            return unavailable()
        given, mail_conn_id = token_digest(token), None
        for digest, owner in tokens.items():
            mail_conn_id = owner if hmac.compare_digest(given, digest) else mail_conn_id
        if mail_conn_id is None:
            return Response("Not Found", 404)
        if request.method != "POST":
            return Response("Method Not Allowed", 405, {"Allow": "POST"})
        if self._user_agent and request.headers.get("user-agent") != self._user_agent:
            return Response("Forbidden", 403)
        if not _JSON.fullmatch(request.headers.get("content-type", "")):
            return Response("Unsupported Media Type", 415)
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            return Response("Unsupported Media Type", 415, {"Accept-Encoding": "identity"})
        try:
            with self._commits.room() as room:
                try:
                    async with asyncio.timeout(BODY_SECONDS):
                        body = await self._body(request, room)
                except (ClientDisconnect, TimeoutError):
                    return Response("Bad Request", 400, {"Connection": "close"})
                if body is None:
                    return Response("Content Too Large", 413)
                if (problem := await check_push(body)) is not None:
                    return Response(problem, 400)
            await self._commits.store(Push(body, datetime.now(UTC), mail_conn_id, _TASK_STATUS in body))
        except (Overloaded, NotStored):
            return unavailable()
        return Response("OK")

    async def _body(self, request: Request, room: Room) -> bytes | None:
        """Read the body; ``None`` when it is too long."""
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self._max_body:
            return None
        body = bytearray()
        async for chunk in request.stream():
            if len(body) + len(chunk) > self._max_body:
                return None
            room.add(len(chunk))
            body += chunk
        return bytes(body)


def hide_token(scope: Scope) -> str:
    """Take the token out of a request before anything can be logged or raised; return it.

    Servers log path and query after the answer.

    :param scope: of the request.
    """
    token = token_of(scope["path"])
    scope["path"] = f"{scope.get('root_path', '')}/{HIDDEN}"
    scope["raw_path"], scope["query_string"] = scope["path"].encode(), b""
    return token


def unavailable() -> Response:
    """Return the answer after which the service tries again."""
    return Response("Service Unavailable", 503, {"Retry-After": str(RETRY_AFTER_SECONDS)})


async def check_push(body: bytes) -> str | None:
    """Return why a body cannot be kept, without quoting it, or ``None``. The events in it are judged by the drain.

    :param body: the body, which should be a JSON array of up to 1,000 events.
    """
    if not begins_as_push(body):
        return "The body is not a JSON array of events"
    if (count := count_quickly(body)) is None:
        # In a thread: brackets alone take a second for some MiB.
        parts = await asyncio.to_thread(split_push, body, MAX_EVENTS_PER_PUSH + 1)
        count = len(parts or [])
    return None if count <= MAX_EVENTS_PER_PUSH else f"The push has more than {MAX_EVENTS_PER_PUSH} events"
