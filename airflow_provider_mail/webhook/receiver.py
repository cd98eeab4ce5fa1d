"""The ASGI application that takes pushes (document, "Events")."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from airflow_provider_mail.api.events import MAX_EVENTS_PER_PUSH, USER_AGENT
from airflow_provider_mail.webhook.commits import GroupCommit, NotStored, Overloaded
from airflow_provider_mail.webhook.inbox import Push

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

HIDDEN_PATH = "/..."
"""What servers log in the place of the path, which holds the token."""

RETRY_AFTER_SECONDS = 5

_JSON = re.compile(r"application/json\s*(;.*)?", re.IGNORECASE)

_TASK_STATUS = b"TaskStatus"


class _Event(msgspec.Struct):
    """Any object. Which fields an event has is mostly not shown, so the drain judges each event by itself."""


_decode = msgspec.json.Decoder(list[_Event]).decode


def token_digest(token: str) -> str:
    """Return what is stored of a token.

    :param token: the token.
    """
    return hashlib.sha256(token.encode()).hexdigest()


class Receiver:
    """Takes pushes at ``/<token>`` and answers 200 once the inbox holds them.

    :param commits: writes to the inbox.
    :param tokens: returns the ids of the `mail` connections by the digests of their valid tokens, see `token_digest`.
    :param max_body: the longest body in bytes; a longer one is answered with 413.
    :param user_agent: the ``User-Agent`` of the service; ``None`` accepts any.
    """

    def __init__(
        self,
        commits: GroupCommit,
        tokens: Callable[[], Mapping[str, str]],
        *,
        max_body: int,
        user_agent: str | None = USER_AGENT,
    ) -> None:
        self._commits = commits
        self._tokens = tokens
        self._max_body = max_body
        self._user_agent = user_agent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        # Before anything can be logged or raised: servers log the path after the answer.
        scope["path"], scope["raw_path"], scope["query_string"] = HIDDEN_PATH, HIDDEN_PATH.encode(), b""
        response = await self._response(request, path.strip("/"))
        await response(scope, receive, send)

    async def _response(self, request: Request, token: str) -> Response:
        given, mail_conn_id = token_digest(token), None
        for digest, owner in self._tokens().items():
            mail_conn_id = owner if hmac.compare_digest(given, digest) else mail_conn_id
        if mail_conn_id is None:
            return Response("Not Found", 404)
        if request.method != "POST":
            return Response("Method Not Allowed", 405, {"Allow": "POST"})
        if self._user_agent is not None and request.headers.get("user-agent") != self._user_agent:
            return Response("Forbidden", 403)
        if not _JSON.fullmatch(request.headers.get("content-type", "")):
            return Response("Unsupported Media Type", 415)
        try:
            body = await self._body(request)
        except ClientDisconnect:
            return Response("Bad Request", 400)
        if body is None:
            return Response("Content Too Large", 413)
        if (problem := check_push(body)) is not None:
            return Response(problem, 400)
        try:
            await self._commits.store(Push(body, datetime.now(UTC), mail_conn_id, _TASK_STATUS in body))
        except (Overloaded, NotStored):
            return Response("Service Unavailable", 503, {"Retry-After": str(RETRY_AFTER_SECONDS)})
        return Response("OK")

    async def _body(self, request: Request) -> bytes | None:
        """Read the body; ``None`` when it is too long."""
        chunks, size = [], 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > self._max_body:
                return None
            chunks.append(chunk)
        return b"".join(chunks)


def check_push(body: bytes) -> str | None:
    """Return what is wrong with a body, without quoting it, or ``None``.

    :param body: the body, which should be a JSON array of up to 1,000 objects.
    """
    try:
        events = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "The body is not a JSON array of events"
    return None if len(events) <= MAX_EVENTS_PER_PUSH else f"The push has more than {MAX_EVENTS_PER_PUSH} events"
