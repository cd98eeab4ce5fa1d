"""Every error that the service or the way to it can cause, under one root.

No message, attribute or chained exception of these holds a credential, a request body or an answer's body: only
the operation, numbers, field names and the service's own ``message``.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from pydantic import ValidationError


class PicklableError(Exception):
    """An exception that survives pickling also when its class requires keyword arguments."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own way calls the class with ``args`` alone.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[Exception], args: tuple[Any, ...], state: dict[str, Any]) -> Exception:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class MailError(PicklableError):
    """Root of all errors of this package.

    :param text: what happened and what to mend, for a person.
    :param operation: the path of the operation, for instance ``/v5/campaign/mail/sends``.
    :param status: the HTTP status, when there was an answer.
    :param code: the ``code`` of the answer's body, when it could be read.
    :param service_message: the ``message`` of the answer's body.
    """

    temporary: ClassVar[bool] = False
    """Whether the same call may well succeed later without anybody mending anything."""

    may_have_taken_effect: bool = False
    """Whether the service may have carried the request out although it reported no success."""

    def __init__(
        self,
        text: str,
        *,
        operation: str | None = None,
        status: int | None = None,
        code: int | None = None,
        service_message: str | None = None,
    ) -> None:
        super().__init__(text)
        self.operation = operation
        self.status = status
        self.code = code
        self.service_message = service_message


class MailConfigError(MailError):
    """A setting of the connection or of the client is missing or wrong; the text names it."""


class MailValidationError(MailError):
    """A request was refused before it was sent; the text names each field."""


class MailSandboxError(MailError):
    """The connection is in sandbox mode and the operation has no ``sandboxMode``: it was not sent."""


class MailConnectError(MailError):
    """The request provably never reached the service: refused, no such host, no route, TLS, proxy, full pool.

    :param reason: what the network said, for instance ``ConnectError: [Errno 111] Connection refused``.
    """

    temporary = True

    def __init__(self, text: str, *, operation: str | None = None, reason: str = "") -> None:
        super().__init__(text, operation=operation)
        self.reason = reason


class MailAnswerLostError(MailError):
    """The request was on its way and no whole answer came back: time-out, reset, cut or too slow an answer."""

    temporary = True
    may_have_taken_effect = True


class MailInterruptedError(MailError):
    """The work that the request belongs to was ended meanwhile, so it was given up."""

    temporary = True
    may_have_taken_effect = True


class MailAnswerError(MailError):
    """An answer that is not the service's: no JSON object, no ``code``, wrong types, too large, or without end."""

    temporary = True
    may_have_taken_effect = True


class MailServiceError(MailError):
    """The service answered, and not with success.

    :param retry_after: seconds the service asked to wait (``Retry-After``), if it did.
    """

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
        super().__init__(text, operation=operation, status=status, code=code, service_message=service_message)
        self.retry_after = retry_after


class MailRejectedError(MailServiceError):
    """The service refused the request (4xx): repeating it unchanged is pointless."""


class MailAuthError(MailServiceError):
    """The service refused the credentials (401). No :class:`MailRejectedError`: it says nothing about the request."""


class MailRateLimitError(MailServiceError):
    """Too many requests (429): not carried out."""

    temporary = True


class MailServerError(MailServiceError):
    """The service failed (5xx, or a ``code`` that the document does not know)."""

    temporary = True
    may_have_taken_effect = True


class MailIncompleteError(MailError):
    """A list was read to its end and is shorter than the service says.

    :param got: different records received.
    :param expected: the highest ``totalRecords`` that was said.
    """

    temporary = True

    def __init__(self, text: str, *, got: int, expected: int, operation: str | None = None) -> None:
        super().__init__(text, operation=operation)
        self.got = got
        self.expected = expected


class MailConflictError(MailError):
    """Something of that name exists and is not what was asked for; the text names the differences."""


class MailMissingError(MailError):
    """There is nothing of that name."""


class MailAmbiguousSendError(MailError):
    """A request that must not happen twice may or may not have been carried out, so it is not repeated.

    For a transactional send: the mail may be on its way, and sending it again could mail people twice.
    """

    may_have_taken_effect = True


class MailIncompleteCampaignError(MailError):
    """The service kept a campaign whose creation failed half-way (code 500: attachment or task check)."""

    may_have_taken_effect = True


class MailPendingCampaignError(MailError):
    """An attempt to create a campaign may have succeeded, and the service does not show its outcome yet."""

    temporary = True
    may_have_taken_effect = True


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """An error and all that led to it, shown or not."""
    known: dict[int, BaseException] = {}
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is not None and id(link) not in known:
            known[id(link)] = link
            yield link
            waiting += [link.__cause__, link.__context__]


def clear_frames(error: BaseException) -> None:
    """Empty the frames of an error's traceback that have ended, and of those that led to it.

    They hold credentials, requests and rows, and there is who shows them: Airflow 3.0 on its console, later ones in
    development mode, services that collect errors.
    """
    for link in chain_of(error):
        traceback.clear_frames(link.__traceback__)


@contextmanager
def clear_traceback_frames() -> Iterator[None]:
    """Let no :class:`MailError` leave with variables in the frames that it has passed."""
    try:
        yield
    except MailError as error:
        clear_frames(error)
        raise


def describe_validation_error(
    error: ValidationError, pattern_messages: Mapping[str, str] | None = None, max_problems: int = 5
) -> str:
    """Describe what is wrong with which field, without the values.

    :param error: the error that pydantic has raised.
    :param pattern_messages: what it means that a value does not match a pattern, by pattern.
    :param max_problems: how many problems are described; further ones are only counted.
    """
    problems = error.errors(include_url=False, include_input=False)
    described = [
        ": ".join(filter(None, (_path(problem["loc"]), _problem_message(problem, pattern_messages or {}))))
        for problem in problems[:max_problems]
    ]
    if len(problems) > max_problems:
        described.append(f"and {len(problems) - max_problems} more")
    return "; ".join(described)


def _path(loc: tuple[int | str, ...]) -> str:
    path = ""
    for step in loc:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def _problem_message(problem: Mapping[str, Any], pattern_messages: Mapping[str, str]) -> str:
    pattern = problem.get("ctx", {}).get("pattern")
    return pattern_messages.get(pattern) or str(problem["msg"]).removeprefix("Value error, ")
