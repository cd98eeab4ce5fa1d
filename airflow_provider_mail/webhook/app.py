"""The receiver for any ASGI server: ``airflow_provider_mail.webhook.app:app``."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from starlette.responses import Response

from airflow_provider_mail._config import ReceiverSettings
from airflow_provider_mail._metrics import prepare
from airflow_provider_mail.webhook.cached import Cached
from airflow_provider_mail.webhook.commits import GroupCommit
from airflow_provider_mail.webhook.health import Health
from airflow_provider_mail.webhook.inbox import open_inbox
from airflow_provider_mail.webhook.receiver import ALIVE, Receiver, asks_for, hide_token, unavailable
from airflow_provider_mail.webhook.tokens import TOKENS_SECONDS, Tokens

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_log = logging.getLogger(__name__)


class ReceiverApp:
    """The receiver with the settings of Airflow's configuration, read when it starts.

    A server that reports its start gets an error without an inbox or a token, and ends. Inside Airflow's API server
    it starts with the first request; until it can, it responds with 503.
    """

    def __init__(self) -> None:
        self._receiver: Receiver | None = None
        self._commits: GroupCommit | None = None
        self._starting = asyncio.Lock()
        self._last_error = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request, or start and shut down."""
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
            await asyncio.to_thread(self._commits.close)
        await send({"type": "lifespan.shutdown.complete"})

    def _log_once(self, message: str) -> None:
        if message != self._last_error:
            self._last_error = message
            _log.error("%s", message)


app = ReceiverApp()
