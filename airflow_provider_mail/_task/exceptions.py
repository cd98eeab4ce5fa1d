"""Translates errors of the service to Airflow's exceptions: the one place where this is decided."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from contextlib import AbstractContextManager
from traceback import format_exception
from types import TracebackType

from airflow_provider_mail.api.errors import MailError, MailValidationError, chain_of, clear_frames
from airflow_provider_mail.version_compat import AirflowFailException, AirflowSkipException

log = logging.getLogger(__name__)

# Linear in any text: error messages may have a hundred kilobytes without a space.
_ADDRESS = re.compile(r"(?<![^\s@<>,;:\"'()\[\]])([^\s@<>,;:\"'()\[\]]++)@(?=([\w-][\w.-]*+))")


class OldRunError(MailValidationError):
    """The run is older than ``max_run_age``, and the task is skipped for that: the request was not sent."""


class AirflowErrors(AbstractContextManager[None]):
    """Leave temporary errors to Airflow's retries, and fail the task at once for all others.

    Airflow logs an error with all its frames and causes, among which the message that helps the user would be lost. So
    a single error is raised, with the frames from here on; its causes are logged at level debug. The service may quote
    the request: addresses are removed from messages, as the local variables are from frames.

    :raises AirflowFailException: instead of an error that is not temporary.
    """

    def __init__(self, mail_conn_id: str, *, senders: Collection[str] = ()) -> None:
        self._connection = f"connection {mail_conn_id!r}"
        self._senders = senders

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            return
        clear_frames(error)
        if not isinstance(error, MailError):
            for link in [*chain_of(error)]:
                if isinstance(link.__cause__, MailError):
                    link.__cause__ = None  # Its message is already a part of the error's own message.
                if isinstance(context := link.__context__, MailError):
                    text = without_addresses(str(context), self._senders)
                    link.__context__ = context.with_text(text).with_traceback(context.__traceback__)
            return
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s: %s", self._connection, without_addresses("".join(format_exception(error)), self._senders))
        message = without_addresses(self._message(error), self._senders)
        if error.temporary:
            raise error.with_text(message) from None
        raise (AirflowSkipException if isinstance(error, OldRunError) else AirflowFailException)(message) from None

    def _message(self, error: MailError) -> str:
        """Return the message with the operation last: Airflow's log view cuts an exception off at the right."""
        text = str(error).removeprefix(f"{error.operation}: ")
        if isinstance(error, MailValidationError):
            # An invalid request has nothing to do with the connection.
            text = re.sub(r"^[A-Z]\w+: ", "", text)
        elif not text.startswith("connection "):
            text = f"{self._connection}: {text}"
        known = not error.operation or error.operation in text
        return text if known else f"{text} ({error.operation})"


def without_addresses(text: str, allowed: Collection[str] = ()) -> str:
    """Replace the local part of addresses, so that personal data does not reach logs."""
    # Not at the top of the module: DAG files import this module.
    from airflow_provider_mail.api._core.fields import address_key

    allowed_keys = {address_key(address) for address in allowed}

    def cut(match: re.Match[str]) -> str:
        return (
            match[0] if allowed_keys and address_key(f"{match[1]}@{match[2]}".rstrip(".")) in allowed_keys else "***@"
        )

    return _ADDRESS.sub(cut, text)
