"""One request with its repetitions, without I/O: what is sent, how an answer is judged, what is done about a failure.

The clients only carry out the steps, so nothing here is written twice for sync and async.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import httpx
import pydantic_core

from airflow_provider_mail.api.base import Effect, Flow, MailRequest, MailResponse, Pause
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import (
    MailAnswerError,
    MailAnswerLostError,
    MailAuthError,
    MailConfigError,
    MailConnectError,
    MailError,
    MailRateLimitError,
    MailRejectedError,
    MailSandboxError,
    MailServerError,
)
from airflow_provider_mail.api.retry import Throttle, retry_after_seconds

R = TypeVar("R", bound=MailResponse)


@dataclass(frozen=True, slots=True)
class Call:
    """A step of an exchange: one HTTP request; its :class:`Answer` is sent back in, or a :class:`MailError` thrown."""

    operation: str
    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    content: bytes | None = field(repr=False)
    params: Mapping[str, str] | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


Steps: TypeAlias = Generator[Call | Pause | MailRequest[Any], Any, R]


class Walk:
    """A walk through a generator's steps: ``step`` is to be carried out, ``None`` when ``result`` is there."""

    def __init__(self, steps: Generator[Any, Any, Any]) -> None:
        self._steps = steps
        self.step: Any = None
        self.result: Any = None
        self.go_on(None)

    def go_on(self, value: Any) -> None:
        """Hand the step's result in and come to the next."""
        self._advance(self._steps.send, value)

    def fail(self, error: MailError) -> None:
        """Hand the step's failure in; raises it when the generator does not deal with it."""
        self._advance(self._steps.throw, error)

    def _advance(self, how: Callable[[Any], Any], value: Any) -> None:
        try:
            self.step = how(value)
        except StopIteration as end:
            self.step, self.result = None, end.value


class Exchange:
    """What the two clients share: settings, throttle, and the life of one request."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.throttle = Throttle(config.requests_per_second)

    def send(self, request: MailRequest[R]) -> Steps[R]:
        """The steps of sending a request until there is a response or a final error.

        :raises MailError: the final one; see :mod:`.errors`.
        """
        request = self._for_sandbox(request)
        call = self._call(request)
        started = time.monotonic()
        attempt = 0
        lost_answer = False
        while True:
            attempt += 1
            wait = self.throttle.reserve()
            if wait > 0:
                yield Pause(wait)
            try:
                return judge(request, (yield call))
            except MailRejectedError:
                if lost_answer and request.effect is Effect.DELETE and (yield from self._is_gone(request)):
                    return request.read({"code": 200, "message": None})
                raise
            except MailError as error:
                lost_answer = lost_answer or error.may_have_taken_effect
                pause = self.config.retry.pause_before_repeat(
                    request.effect, error, attempt, time.monotonic() - started
                )
                if pause is None:
                    raise
                if isinstance(error, MailRateLimitError):
                    self.throttle.hold(pause)
                else:
                    yield Pause(pause)

    def _for_sandbox(self, request: MailRequest[R]) -> MailRequest[R]:
        if not self.config.sandbox or request.effect is Effect.READ or not request.authenticated:
            return request
        if not request.takes_sandbox:
            raise MailSandboxError(
                f"{request.path} has no sandboxMode and the connection is in sandbox mode: nothing was sent. "
                "Switch sandbox off on the connection, or leave this operation out.",
                operation=request.path,
            )
        return request.model_copy(update={"sandbox_mode": True})

    def _call(self, request: MailRequest[Any]) -> Call:
        headers = {"Accept": "application/json"}
        if request.authenticated:
            headers |= self.config.credentials()
        if request.method == "GET":
            return Call(request.path, "GET", request.path, headers, None, request.query())
        headers["Content-Type"] = "application/json"
        return Call(request.path, "POST", request.path, headers, request.payload(), None)

    def _is_gone(self, request: MailRequest[Any]) -> Flow[bool]:
        """Whether a deletion that was refused after a lost answer had in fact been carried out the first time."""
        exists: Flow[bool] = request.exists()  # type: ignore[attr-defined]
        return not (yield from exists)


def judge(request: MailRequest[R], answer: Answer) -> R:
    """The response in an answer.

    The body's ``code`` counts where there is one, the HTTP status otherwise (document, "Conventions", 3).

    :raises MailError: whatever the answer says that is not success.
    """
    operation, status = request.path, answer.status
    body = _json_object(answer.body)
    code = _code(body)
    message = _message(body)
    if code == 200 and 200 <= status < 300:
        assert body is not None
        return request.read({**body, "code": code, "message": message})
    if 300 <= status < 400:
        raise MailConfigError(
            f"{operation}: the address answers with a redirect (HTTP {status}), which is not followed: "
            "set the connection's host to the final address",
            operation=operation,
            status=status,
        )
    verdict = code if code is not None and code != 200 else status
    where = f"{operation}: " + (f"code {code}" if code is not None else f"HTTP {status}")
    details: dict[str, Any] = {
        "operation": operation,
        "status": status,
        "code": code,
        "service_message": message or None,
    }
    if verdict == 429:
        raise MailRateLimitError(
            f"{where}: too many requests", retry_after=retry_after_seconds(answer.headers), **details
        )
    said = f": {message}" if message else ""
    if verdict == 401:
        raise MailAuthError(f"{where}: the service refused the credentials{said}", **details)
    if verdict == 408:
        raise MailAnswerLostError(f"{where}: the service gave up waiting{said}", **details)
    if 400 <= verdict < 500:
        hint = "" if body is not None else " (no JSON: is the connection's host the service's address?)"
        raise MailRejectedError(f"{where}: refused{said}{hint}", **details)
    if 200 <= verdict < 300:
        kind = "no JSON object" if body is None else "an object without a whole-number code"
        raise MailAnswerError(
            f"{operation}: HTTP {status} with {kind} instead of the service's answer: is the connection's host the "
            "service's address, without a proxy's page in between?",
            **details,
        )
    raise MailServerError(f"{where}: the service failed{said}", **details)


def _json_object(body: bytes) -> dict[str, Any] | None:
    try:
        value = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _code(body: Mapping[str, Any] | None) -> int | None:
    code = None if body is None else body.get("code")
    if isinstance(code, str) and code.strip().lstrip("-").isdecimal():
        return int(code)
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def _message(body: Mapping[str, Any] | None) -> str:
    message = None if body is None else body.get("message")
    # A service may echo what it was sent, so only the beginning of its words is passed on.
    return message.strip()[:300] if isinstance(message, str) else ""


def transport_error(operation: str, error: httpx.HTTPError | httpx.InvalidURL) -> MailError:
    """Our error for one of httpx's: did the request provably not arrive, or is its fate unknown?

    httpx's own error is not chained: it carries the request with its credentials.
    """
    kind = type(error).__name__
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError):
        return MailConnectError(f"{operation}: the service was not reached ({kind}: {error})", operation=operation)
    if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError | httpx.InvalidURL):
        return MailConfigError(f"{operation}: the request could not be built ({kind})", operation=operation)
    return MailAnswerLostError(
        f"{operation}: the answer was lost ({kind}); the request may have been carried out", operation=operation
    )


class Collector:
    """Takes an answer's body in piece by piece, within bounds of size and time.

    A time-out per read is not enough against a peer that sends a byte now and then.
    """

    def __init__(self, operation: str, config: ClientConfig) -> None:
        self._operation = operation
        self._most = config.max_answer_bytes
        self._seconds = max(config.timeout * 4, 60.0)
        self._deadline = time.monotonic() + self._seconds
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> None:
        """Keep a piece.

        :raises MailAnswerError: when the body is too large.
        :raises MailAnswerLostError: when it takes too long.
        """
        self._size += len(piece)
        if self._size > self._most:
            raise MailAnswerError(
                f"{self._operation}: the answer is larger than {self._most} bytes", operation=self._operation
            )
        if time.monotonic() > self._deadline:
            raise MailAnswerLostError(
                f"{self._operation}: the answer was not complete after {self._seconds:.0f} s",
                operation=self._operation,
            )
        self._pieces.append(piece)

    def answer(self, response: httpx.Response) -> Answer:
        """The whole answer."""
        return Answer(response.status_code, response.headers, b"".join(self._pieces))


class _HideQuery(logging.Filter):
    """Keeps the query out of httpx's log line: the token exchange carries the client secret there."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                arg.copy_with(query=None) if isinstance(arg, httpx.URL) and arg.query else arg for arg in record.args
            )
        return True


logging.getLogger("httpx").addFilter(_HideQuery())
