"""What an error of the service means to Airflow: the one place where it is decided."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_mail.api.errors import MailError, MailValidationError, chain_of, forget_variables

_ADDRESS = re.compile(r"[^\s@<>,;:\"'()\[\]]+@(?=[\w-])")


@contextmanager
def airflow_errors(mail_conn_id: str) -> Iterator[None]:
    """Let temporary errors go on to Airflow's retries, and end the task at once for those that no retry can mend.

    No error of any kind that leaves takes addresses in the service's words or the variables of its frames along.

    :param mail_conn_id: the connection, to be named beside the error.
    :raises AirflowFailException: instead of an error that is not temporary.
    """
    try:
        yield
    except BaseException as error:
        _hide_addresses(error)
        forget_variables(error)
        if not isinstance(error, MailError):
            raise
        where = f"connection {mail_conn_id!r}"
        if error.temporary:
            error.add_note(f"{where} was used")
            raise
        # What is wrong with a request is not the connection's fault; what is wrong with a connection may name it.
        named = isinstance(error, MailValidationError) or str(error).startswith("connection ")
        said = str(error) if named else f"{where}: {error}"
        raise AirflowFailException(said) from error


def without_addresses(text: str) -> str:
    """The text with its addresses cut down to their domains: people's addresses do not belong in logs."""
    return _ADDRESS.sub("***@", text)


def _hide_addresses(error: BaseException) -> None:
    """Cut them from an error and from those that led to it: the service may echo what it was sent."""
    for link in chain_of(error):
        if isinstance(link, MailError):
            link.args = tuple(without_addresses(str(argument)) for argument in link.args)
