"""What an error of the service means to Airflow: the one place where it is decided."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_mail.api.errors import MailConfigError, MailError


@contextmanager
def airflow_errors(mail_conn_id: str) -> Iterator[None]:
    """Let temporary errors go on to Airflow's retries, and end the task at once for those that no retry can mend.

    :param mail_conn_id: the connection, to be named beside the error.
    :raises AirflowFailException: instead of an error that is not temporary.
    """
    try:
        yield
    except MailError as error:
        if error.temporary:
            raise
        words = str(error) if isinstance(error, MailConfigError) else f"connection {mail_conn_id!r}: {error}"
        raise AirflowFailException(words) from error
