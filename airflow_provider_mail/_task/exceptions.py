"""What an error of the service means to Airflow: the one place where it is decided."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from contextlib import AbstractContextManager
from types import TracebackType

from airflow_provider_mail.api.errors import MailError, MailValidationError, chain_of, clear_frames
from airflow_provider_mail.version_compat import AirflowFailException

log = logging.getLogger(__name__)

# Each word is gone through once, whatever it holds: people write error messages of a hundred kilobytes without a space.
_ADDRESS = re.compile(r"(?<![^\s@<>,;:\"'()\[\]])([^\s@<>,;:\"'()\[\]]++)@(?=([\w-][\w.-]*+))")


class AirflowErrors(AbstractContextManager[None]):
    """Leave temporary errors to Airflow's retries, and end the task at once for those that no retry can fix.

    Airflow logs an error with all frames and all errors that led to it. The sentence that says what to do must not be
    lost in them, so one error leaves, with the frames from here on; the others are logged at level debug. No error of
    any kind takes the addresses in the service's words or the variables of its frames along.

    :param mail_conn_id: the connection, named in front of the error.
    :param senders: addresses that may be shown.
    :raises AirflowFailException: instead of an error that is not temporary.
    """

    def __init__(self, mail_conn_id: str, *, senders: Collection[str] = ()) -> None:
        self._where = f"connection {mail_conn_id!r}"
        self._senders = senders

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return
        self._hide_addresses(error)
        clear_frames(error)
        if isinstance(error.__cause__, MailError):
            error.__cause__ = None  # its words are in the error's own
        if not isinstance(error, MailError):
            return
        log.debug("%s: %s", self._where, error, exc_info=error)
        # What is wrong with a request is not the connection's fault; what is wrong with a connection may name it.
        named = isinstance(error, MailValidationError) or str(error).startswith("connection ")
        said = str(error) if named else f"{self._where}: {error}"
        if error.temporary:
            error.args = (said,)
            raise error.with_traceback(None) from None
        raise AirflowFailException(said) from None

    def _hide_addresses(self, error: BaseException) -> None:
        """Remove them from an error and from those that led to it: the service may echo what it was sent."""
        for link in chain_of(error):
            if isinstance(link, MailError):
                link.args = tuple(without_addresses(str(argument), self._senders) for argument in link.args)


def without_addresses(text: str, but: Collection[str] = ()) -> str:
    """The text with its addresses cut down to their domains: people's addresses do not belong in logs.

    :param but: addresses that stay, such as the sender's.
    """
    kept = {address.casefold() for address in but}

    def cut(found: re.Match[str]) -> str:
        address = f"{found[1]}@{found[2]}".rstrip(".").casefold()
        return found[0] if address in kept else "***@"

    return _ADDRESS.sub(cut, text)
