"""Authenticate, route and run requests."""

from __future__ import annotations

import hmac
import json
import logging
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from mail_emulator import campaign_life, campaigns, contacts, lists, oauth, senders, templates, transactional, webhooks
from mail_emulator.check import Body, read
from mail_emulator.clock import VirtualClock
from mail_emulator.faults import Faults, Plan, too_many_requests
from mail_emulator.journal import Entry, Journal
from mail_emulator.operations import SANDBOX, Context, Operation
from mail_emulator.responses import Response, ServiceError, decode_json
from mail_emulator.settings import EmulatorSettings
from mail_emulator.store import Store

log = logging.getLogger(__name__)

_RESOURCES = (contacts, lists, templates, campaigns, transactional, senders, webhooks)
#: Every ``POST`` operation of the specification by its path.
OPERATIONS: dict[str, Operation] = {
    operation.path: operation for resource in _RESOURCES for operation in resource.OPERATIONS
}


@dataclass
class Request:
    """An HTTP request. Header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    content: bytes = b""
    #: The body as JSON or form fields; for a GET the query; None when it cannot be decoded.
    body: Any = None


class Service:
    """State and rules of the service, without sockets. Hold ``lock`` for everything outside ``perform``."""

    def __init__(self, settings: EmulatorSettings, file: Path | None = None) -> None:
        self.lock = threading.RLock()
        self.settings = settings
        self.store = Store(file)
        self.faults = Faults({*OPERATIONS, oauth.AUTHORIZE, oauth.TOKEN})
        self.journal = Journal(settings.journal_limit, settings.journal_body_bytes)
        self.clock = VirtualClock(*json.loads(self.store.get_meta("clock") or "[]"))
        #: Tracebacks of errors of the emulator itself.
        self.crashes: list[str] = []
        self._tokens_left = 1.0
        self._refilled = time.monotonic()

    def context(self, plan: Plan | None = None, *, sandbox: bool = False) -> Context:
        """Return the context of a handler at the current time."""
        return Context(self.store, self.settings, self.clock.now_ms(), plan or Plan(), sandbox)

    def apply_due_changes(self) -> None:
        """Apply state changes that are due."""
        with self.store.transaction():
            campaign_life.apply_due_changes(self.context())

    def clock_moved(self) -> None:
        """Store the clock. When it was moved back, keep pushing events."""
        self.store.set_meta("clock", json.dumps(self.clock.state()))
        webhooks.cap_enabled_at(self.context())

    def parse(self, request: Request) -> Any:
        """Decode a request by its content type; None when that fails."""
        if request.method == "GET":
            return dict(request.query)
        if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            return dict(parse_qsl(request.content.decode(errors="replace"), keep_blank_values=True))
        try:
            return decode_json(request.content)
        except ValueError:
            return None

    def rate_limit_response(self) -> Response | None:
        """Return the 429 for a request over the rate limit, a token bucket of one second; None below it."""
        rate = self.settings.requests_per_second
        if rate is None:
            return None
        now = time.monotonic()
        self._tokens_left = min(max(rate, 1.0), self._tokens_left + (now - self._refilled) * rate)
        self._refilled = now
        if self._tokens_left < 1:
            return too_many_requests(self.settings.retry_after_seconds)
        self._tokens_left -= 1
        return None

    def perform(self, request: Request, plan: Plan, entry: Entry) -> Response:
        """Run a request, and record in the journal entry whether it took effect."""
        with self.lock:
            try:
                self.apply_due_changes()
                return self._dispatch(request, plan, entry)
            except ServiceError as error:
                return self._error_response(error)
            except Exception:
                self.record_crash(request.path)
                return Response({"code": 500, "message": "the emulator itself failed; see its log"}, 500)

    def record_crash(self, activity: str) -> None:
        """Record the current exception as an error of the emulator itself."""
        self.crashes.append(traceback.format_exc())
        log.exception("the emulator failed at %s", activity)

    def _error_response(self, error: ServiceError) -> Response:
        status = error.http_status
        if status is None:
            status = error.code if self.settings.errors_as_http_status and 400 <= error.code < 600 else 200
        return Response({"code": error.code, "message": error.message}, status)

    def _dispatch(self, request: Request, plan: Plan, entry: Entry) -> Response:
        if request.path == oauth.AUTHORIZE:
            with self.store.transaction():
                if request.method == "GET":
                    return oauth.authorize(self.context(), request.query)
                if request.method != "POST":
                    raise ServiceError(405, "method not allowed: GET", http_status=405)
                entry.processed = True
                return oauth.decide(self.context(), request.body if isinstance(request.body, dict) else {})
        if request.path == oauth.TOKEN:
            if request.method != "GET":
                raise ServiceError(405, "method not allowed: GET", http_status=405)
            with self.store.transaction():
                result: dict[str, Any] = oauth.token(self.context(), request.query)
            entry.processed = True
            return self._success(result)
        operation = OPERATIONS.get(request.path)
        if operation is None:
            raise ServiceError(404, f"there is no operation {request.path}", http_status=404)
        self._authenticate(request, entry)
        if request.method != "POST":
            raise ServiceError(405, "method not allowed: POST", http_status=405)
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if self.settings.require_json_content_type and content_type != "application/json":
            raise ServiceError(400, "Content-Type must be application/json")
        if not isinstance(request.body, dict):
            raise ServiceError(400, "the body is not a JSON object")
        return self._success(self._run_operation(operation, request.body, plan, entry))

    def _success(self, result: Mapping[str, Any]) -> Response:
        return Response({"code": 200, "message": self.settings.success_message, **result})

    def _run_operation(self, operation: Operation, request_body: Body, plan: Plan, entry: Entry) -> dict[str, Any]:
        body = read(operation.fields_for(request_body, self.settings), request_body, self.settings)
        sandbox = body.pop(SANDBOX.name, False)
        error_after_commit: ServiceError | None = None
        result = None
        with self.store.transaction() as transaction:
            try:
                result = operation.handle(self.context(plan, sandbox=sandbox), body)
            except ServiceError as error:
                if not error.keep:
                    raise
                # The error is returned, but the changes are committed.
                error_after_commit = error
            transaction.keep = entry.processed = not sandbox
        if error_after_commit:
            raise error_after_commit
        return result or {}

    def _authenticate(self, request: Request, entry: Entry) -> None:
        api_key, token = request.headers.get("apikey"), request.headers.get("oauth")
        entry.auth = "invalid" if api_key or token else "none"
        if api_key is not None and hmac.compare_digest(api_key.encode(), self.settings.api_key.encode()):
            entry.auth = "api_key"
        elif token is not None:
            if not oauth.is_valid(self.context(), token):
                raise ServiceError(401, "Unauthorized: invalid access token", http_status=401)
            entry.auth = "oauth"
        else:
            settings = self.settings
            raise ServiceError(
                settings.bad_api_key_code, "missing or invalid ApiKey", http_status=settings.bad_api_key_http_status
            )
