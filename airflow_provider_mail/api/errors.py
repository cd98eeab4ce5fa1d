"""The errors of the clients and flows, with one root: `MailError`.

No message, attribute or chained exception contains a credential, a request body or a response body: only the operation,
numbers, field names and the service's own ``message``.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = [
    "MailAmbiguousSendError",
    "MailAuthError",
    "MailConfigError",
    "MailConflictError",
    "MailConnectError",
    "MailError",
    "MailHeldError",
    "MailIncompleteCampaignError",
    "MailIncompleteError",
    "MailInterruptedError",
    "MailNotFoundError",
    "MailPendingCampaignError",
    "MailRateLimitError",
    "MailRejectedError",
    "MailResponseError",
    "MailResponseLostError",
    "MailSandboxError",
    "MailServerError",
    "MailServiceError",
    "MailTooLargeError",
    "MailValidationError",
]


class PicklableError(Exception):
    """An exception that can be pickled even if its class requires keyword arguments."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default implementation calls the class with ``args`` only.
        return _restore, (type(self), self.args, self.__dict__)

    def with_text(self, text: str, **attributes: Any) -> Self:
        """Return this error with another text.

        :param attributes: that differ as well, by name.
        """
        changed = _restore(type(self), (text,), {**self.__dict__, **attributes})
        assert isinstance(changed, type(self))
        return changed


def _restore(error_type: type[Exception], args: tuple[Any, ...], state: dict[str, Any]) -> Exception:
    error = error_type.__new__(error_type, *args)
    error.__dict__.update(state)
    return error


class MailError(PicklableError):
    """Root of all errors of this package.

    :param text: what happened and what to fix.
    :param operation: the path of the operation, such as ``/v5/campaign/mail/sends``.
    :param status: the HTTP status, if there was a response.
    :param code: the ``code`` of the response body, if it could be read.
    :param service_message: the ``message`` of the response body, with secrets and personal data masked.
    :param retry_after: the seconds in the response's ``Retry-After`` header, if it has one.
    """

    temporary: ClassVar[bool] = False
    """Whether the same call may succeed later without changes."""

    may_have_taken_effect: bool = False
    """Whether the service may have carried out the request although it reported no success."""

    def __init__(
        self,
        text: str,
        *,
        operation: str | None = None,
        status: int | None = None,
        code: int | None = None,
        service_message: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(text)
        self.operation = operation
        self.status = status
        self.code = code
        self.service_message = service_message
        self.retry_after = retry_after

    @property
    def details(self) -> dict[str, Any]:
        """The details of the service's response, as arguments of another error about it."""
        return {"status": self.status, "code": self.code, "service_message": self.service_message}


class MailConfigError(MailError):
    """A setting of the connection or of the client is missing or wrong; the message names it."""


class MailValidationError(MailError):
    """A request is invalid and was not sent; the message names each field."""


class MailSandboxError(MailError):
    """The connection is in sandbox mode and the operation has no ``sandboxMode``: the request was not sent."""


class MailConnectError(MailError):
    """The request provably never reached the service: connection refused, unknown host, TLS, proxy, full pool.

    :param text: what happened and what to fix.
    :param operation: the path of the operation.
    :param reason: the network's error, such as ``ConnectError: [Errno 111] Connection refused``.
    """

    temporary = True

    def __init__(self, text: str, *, operation: str | None = None, reason: str = "") -> None:
        super().__init__(text, operation=operation)
        self.reason = reason


class MailResponseLostError(MailError):
    """The request was sent and no complete response was received: a timeout, a reset, or an incomplete or slow
    response."""

    temporary = True
    may_have_taken_effect = True


class MailHeldError(MailError):
    """A hold is set, or could not be read: the request was not sent."""

    temporary = True


class MailInterruptedError(MailError):
    """The task was ended while the request was running, so the request was abandoned."""

    temporary = True
    may_have_taken_effect = True


class MailResponseError(MailError):
    """The response is not the service's: no JSON object, no ``code``, wrong types, or an endless list."""

    temporary = True
    may_have_taken_effect = True


class MailTooLargeError(MailResponseError):
    """The response is larger than this client reads, or needs more memory: the same request gets the same response."""

    temporary = False


class MailServiceError(MailError):
    """The service reported an error."""


class MailRejectedError(MailServiceError):
    """The service rejected the request (4xx); the same request fails again."""


class MailAuthError(MailServiceError):
    """The service rejected the credentials (401). Not a :class:`MailRejectedError`: the request may be valid."""


class MailRateLimitError(MailServiceError):
    """Too many requests (429); the request was not carried out."""

    temporary = True


class MailServerError(MailServiceError):
    """The service failed (5xx, or a ``code`` that the specification does not list)."""

    temporary = True
    may_have_taken_effect = True


class MailIncompleteError(MailError):
    """A list was read to its end and has fewer records than ``totalRecords`` or no valid total; or it has changed.

    :param text: what happened.
    :param got: number of distinct records received.
    :param expected: number of records expected; ``None`` if the service does not report it.
    :param operation: the path of the operation.
    """

    temporary = True

    def __init__(self, text: str, *, got: int, expected: int | None, operation: str | None = None) -> None:
        super().__init__(text, operation=operation)
        self.got = got
        self.expected = expected


class MailConflictError(MailError):
    """An object of that name exists and differs from the request; the message names the differences."""


class MailNotFoundError(MailError):
    """No object has that name."""


class MailAmbiguousSendError(MailError):
    """A request that must not happen twice may have been carried out, so it is not repeated.

    For a transactional send: sending it again could mail recipients twice.
    """

    may_have_taken_effect = True


class MailIncompleteCampaignError(MailError):
    """The service kept a campaign whose creation failed (code 500: attachment or task check)."""

    may_have_taken_effect = True


class MailPendingCampaignError(MailError):
    """An attempt to create a campaign may have succeeded, but the service does not show the campaign yet."""

    temporary = True
    may_have_taken_effect = True


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all errors in its chain, including suppressed ones."""
    known: dict[int, BaseException] = {}
    pending: list[BaseException | None] = [error]
    while pending:
        link = pending.pop()
        if link is not None and id(link) not in known:
            known[id(link)] = link
            yield link
            pending += [link.__cause__, link.__context__]


def clear_frames(error: BaseException) -> None:
    """Clear the local variables in the tracebacks of an error and of its chain.

    They hold credentials, requests and rows, and some tools show them: Airflow 3.0 on its console, later versions in
    development mode, error collectors.
    """
    for link in chain_of(error):
        traceback.clear_frames(link.__traceback__)


@contextmanager
def clear_traceback_frames() -> Iterator[None]:
    """Clear the frames of every :class:`MailError` that leaves the ``with`` block."""
    try:
        yield
    except MailError as error:
        clear_frames(error)
        raise


def describe_validation_error(
    error: ValidationError,
    pattern_messages: Mapping[str, str | Callable[[str], str]] | None = None,
    max_problems: int = 5,
) -> str:
    """Describe what is wrong with which field, without the values.

    :param pattern_messages: the message for a value that does not match a pattern, by pattern: a text, or a function
        that creates it from the value.
    :param max_problems: maximum number of problems that are described; further ones are only counted.
    """
    problems = error.errors(include_url=False)
    described = [
        ": ".join(filter(None, (_path(problem["loc"]), problem_message(problem, pattern_messages or {}))))
        for problem in problems[:max_problems]
    ]
    if len(problems) > max_problems:
        described.append(f"and {len(problems) - max_problems} more")
    return "; ".join(described)


def _path(loc: tuple[int | str, ...]) -> str:
    path = ""
    for step in loc:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if path else step
    return path


def problem_message(problem: Mapping[str, Any], pattern_messages: Mapping[str, str | Callable[[str], str]]) -> str:
    """Describe one problem that pydantic found, without the value.

    :param problem: one of the error's ``errors()``.
    :param pattern_messages: see :func:`describe_validation_error`.
    """
    message = pattern_messages.get(problem.get("ctx", {}).get("pattern"))
    if callable(message):
        return message(problem["input"])
    return message or str(problem["msg"]).removeprefix("Value error, ")
