"""One request with its repetitions, without I/O: what is sent, and what is done about a failure.

The clients only carry out the steps, so nothing here is written twice for sync and async.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias, TypeVar

import httpx
import msgspec
from pydantic import SecretStr

from airflow_provider_mail.api._core.advice import connect_error_message, network_reason
from airflow_provider_mail.api._core.clock import ServiceClock
from airflow_provider_mail.api._core.network import Transmission
from airflow_provider_mail.api._core.requests import Effect, Flow, MailRequest, MailResponse, Pause
from airflow_provider_mail.api._core.responses import MEMORY_RATIO, judge
from airflow_provider_mail.api._core.retry import Throttle
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import (
    MailAmbiguousSendError,
    MailAnswerLostError,
    MailAuthError,
    MailConfigError,
    MailConnectError,
    MailError,
    MailInterruptedError,
    MailRateLimitError,
    MailRejectedError,
    MailSandboxError,
    MailServiceError,
)

log = logging.getLogger(__name__)

R = TypeVar("R", bound=MailResponse)

TIMEOUTS = 4
"""So many times the connection's timeout may a request and its response take together, whatever bytes come."""


@dataclass(frozen=True, slots=True)
class Call:
    """A step of an exchange: one HTTP request; its :class:`Answer` is sent back in, or a :class:`MailError` thrown.

    :param reads: it changes nothing, so a response that belongs to another request could do no harm for good.
    """

    operation: str
    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    content: bytes | None = field(repr=False)
    params: Mapping[str, str] | None = field(repr=False)
    reads: bool = True


Steps: TypeAlias = Generator[Call | Pause | MailRequest[Any], Any, R]


class FlowRunner:
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
    """What the two clients share: settings, throttle, and the life of one request.

    :param config: the client's settings.
    :param credentials_probe: a request that reads and that every valid credential may send.
    :param clock: returns seconds that only grow.
    :param draw: returns a random number from 0 to 1.
    """

    def __init__(
        self,
        config: ClientConfig,
        credentials_probe: MailRequest[Any],
        *,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.config = config
        self._credentials_probe = credentials_probe
        self.throttle = Throttle(config.requests_per_second, clock)
        self.service_clock = ServiceClock()
        self._clock = clock
        self._draw = draw

    def send(self, request: MailRequest[R]) -> Steps[R]:
        """The steps of sending a request until there is a response or a final error.

        :raises MailError: the final one; see :mod:`~airflow_provider_mail.api.errors`.
        """
        request = self._for_sandbox(request)
        call = self._call(request)
        hidden = (*self.config.credentials().values(), *_secrets(request))
        yield from self._turn()
        started = self._clock()
        lost_answer = False
        for attempt in count(1):
            sent = time.time()
            try:
                answer = yield call
                response = judge(request, answer, hidden, MEMORY_RATIO * self.config.max_answer_bytes)
                # A failure may be a proxy's response, which carries the proxy's time.
                self.service_clock.observe(answer.headers, sent, time.time())
                return response
            except MailInterruptedError:
                raise
            except MailError as failure:
                error = failure
            pause = self.config.retry.pause_before_repeat(
                error, attempt, self._clock() - started, repeatable=request.effect.repeatable, draw=self._draw
            )
            if pause is None:
                break
            lost_answer = lost_answer or error.may_have_taken_effect
            log.warning("%s Trying again in %.1f s (attempt %d failed).", _sentence(error), pause, attempt)
            self._slow_down(error, pause)
            yield Pause(pause)
            yield from self._turn()
        if lost_answer and request.effect is not Effect.READ and not error.may_have_taken_effect:
            if (yield from self._is_gone(request, error)):
                return request.read({"code": 200, "message": None})
            if not _was_looked_for(request, error):
                raise _in_doubt(error)
        if request.effect is Effect.SEND:
            yield from self._believe(request, error)
            if error.may_have_taken_effect:
                raise _ambiguous(error)
        raise error

    def _believe(self, request: MailRequest[Any], error: MailError) -> Flow[None]:
        """Ask whether a 401 without a ``code`` is the service's, whose 401 is not shown in the document, or a proxy's.

        Credentials that the service rejects do not read anything, either.
        """
        if isinstance(error, MailAuthError) and error.code is None and request.authenticated:
            try:
                yield self._credentials_probe
            except MailAuthError:
                return
            except MailError:
                pass
            error.may_have_taken_effect = True

    def transmission(self, call: Call) -> Transmission:
        """The limits of one attempt on the network."""
        return Transmission(call.operation, self.config.timeout * TIMEOUTS, fresh=not call.reads)

    def forked(self) -> None:
        """Take up work in another process than the one that made this."""
        self.throttle = Throttle(self.config.requests_per_second, self._clock)

    def _turn(self) -> Flow[None]:
        """Wait for a place in the row. One that was given out before a hold is given up for one behind it."""
        while (wait := self.throttle.reserve()) > 0:
            yield Pause(wait)
            if not self.throttle.held:
                return

    def _slow_down(self, error: MailError, pause: float) -> None:
        """Let a service that is overrun rest from the whole client, not from one request."""
        asked = error.retry_after if isinstance(error, MailServiceError) else None
        if asked is not None or isinstance(error, MailRateLimitError):
            self.throttle.hold(pause if asked is None else asked)

    def _for_sandbox(self, request: MailRequest[R]) -> MailRequest[R]:
        if not self.config.sandbox or request.effect is Effect.READ or not request.authenticated:
            return request
        if not request.takes_sandbox:
            raise MailSandboxError(
                f"{request.path} has no sandboxMode and the connection is in sandbox mode: nothing was sent. "
                "Switch sandbox off on the connection, or leave this operation out.",
                operation=request.path,
            )
        marked = request.model_copy(update={"sandbox_mode": True})
        if not _is_marked(marked):
            raise MailSandboxError(
                f"{request.path}: the connection is in sandbox mode and the request cannot be marked with sandboxMode: "
                "nothing was sent",
                operation=request.path,
            )
        return marked

    def _call(self, request: MailRequest[Any]) -> Call:
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
        reads = request.effect is Effect.READ
        if request.authenticated:
            headers |= self.config.credentials()
        if request.method == "GET":
            return Call(request.path, "GET", request.path, headers, None, request.query(), reads)
        headers["Content-Type"] = "application/json"
        return Call(request.path, "POST", request.path, headers, request.payload(), None, reads)

    def _is_gone(self, request: MailRequest[Any], error: MailError) -> Flow[bool]:
        """Whether a deletion that was refused after a lost answer had in fact been carried out the first time."""
        if not _was_looked_for(request, error):
            return False
        exists: Flow[bool] = request.exists()  # type: ignore[attr-defined]
        try:
            return not (yield from exists)
        except MailError as failed_look:
            raise _in_doubt(failed_look) from None


class _Mark(msgspec.Struct):
    sandboxMode: bool = False


def _is_marked(request: MailRequest[Any]) -> bool:
    """Whether what is sent says so: a request may make its body in its own way."""
    if request.method == "GET":
        return request.query().get("sandboxMode") in (True, "true")
    try:
        return msgspec.json.decode(request.payload(), type=_Mark).sandboxMode
    except msgspec.DecodeError:
        return False


def _was_looked_for(request: MailRequest[Any], error: MailError) -> bool:
    """Whether a refusal may come of what an earlier attempt has done, so that it is worth a look."""
    return isinstance(error, MailRejectedError) and request.effect is Effect.DELETE


def _in_doubt(error: MailError) -> MailError:
    """The same error, saying that an attempt before it may have succeeded."""
    error.args = (f"{_sentence(error)} The answer to an earlier attempt was lost: it may have been carried out.",)
    error.may_have_taken_effect = True
    return error


def _secrets(request: MailRequest[Any]) -> list[str]:
    return [value.get_secret_value() for value in vars(request).values() if isinstance(value, SecretStr)]


NOT_REPEATED = " It is not sent again, since it may have been carried out all the same."


def _ambiguous(error: MailError) -> MailAmbiguousSendError:
    return MailAmbiguousSendError(
        _sentence(error) + NOT_REPEATED,
        operation=error.operation,
        status=error.status,
        code=error.code,
        service_message=error.service_message,
    )


def _sentence(error: MailError) -> str:
    text = str(error)
    return text if text.endswith((".", "!", "?")) else f"{text}."


def transport_error(operation: str, error: Exception, config: ClientConfig, late: float | None = None) -> MailError:
    """Our error for one on the way: did the request provably not arrive, or is its fate unknown?

    The other error is not chained: httpx's carries the request with its credentials.

    :param late: the seconds that were given, if that is what ended it.
    """
    kind = type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return MailConfigError(
            f"{operation}: the service's certificate is not trusted: {error}. Set ca_bundle on the connection if the "
            "certificate is your own",
            operation=operation,
        )
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError):
        reason = network_reason(error)
        return MailConnectError(
            f"{operation}: {connect_error_message(reason, config)}", operation=operation, reason=reason
        )
    if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError | httpx.InvalidURL):
        return MailConfigError(f"{operation}: the request could not be built ({kind})", operation=operation)
    if late is not None:
        return MailAnswerLostError(
            f"{operation}: the answer was not complete after {late:g} s (four times the connection's timeout), the "
            "request may have been carried out",
            operation=operation,
        )
    return MailAnswerLostError(
        f"{operation}: the answer was lost ({kind}), the request may have been carried out", operation=operation
    )
