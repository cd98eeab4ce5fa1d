"""The state of receiving as the database has it: what waits in the inbox, and which tokens are valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_provider_mail._config import ReceiverSettings
from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.warehouse.errors import WarehouseError, safe_message
from airflow_provider_mail.warehouse.time_limit import read_within
from airflow_provider_mail.webhook.inbox import Inbox, InboxState, open_inbox
from airflow_provider_mail.webhook.tokens import Tokens

ROTATE = "airflow mail receive rotate"

SECONDS = 30.0
"""How long the database may take."""


@dataclass(frozen=True)
class ReceiverStatus:
    """The state of receiving.

    :param max_bytes: bytes that may wait in it.
    """

    inbox: InboxState
    max_bytes: int
    tokens: Mapping[str, int]
    at: datetime

    @property
    def is_old(self) -> bool:
        return self.inbox.is_old(self.at)

    @property
    def problems(self) -> list[tuple[str, str]]:
        """What needs attention, and the command or setting that fixes it."""
        problems = []
        if not self.tokens:
            problems.append(("there is no valid token: every push is answered with 404", ROTATE))
        if self.inbox.waiting_bytes >= self.max_bytes:
            fix = "drain it (MailEventsToSqlOperator), or raise [mail] receive_max_inbox_bytes"
            problems.append(("the inbox is full: every push is answered with 503", fix))
        if self.is_old:
            fix = "check the task of MailEventsToSqlOperator, and that its DAG is not paused"
            problems.append(("a push waits for more than a day: the inbox is not drained", fix))
        return problems


def receiver_status(settings: ReceiverSettings, *, seconds: float = SECONDS) -> ReceiverStatus:
    """Read the state of receiving.

    :param seconds: how long the database may take. Default: 30.
    :raises MailConfigError: there is no inbox.
    :raises WarehouseError: there is no table, or the database does not answer in time.
    """
    inbox = open_inbox()
    try:
        return read_within(lambda: _read(inbox, settings.receive_max_inbox_bytes), seconds)
    except (MailConfigError, WarehouseError):
        raise
    except Exception as error:
        problem = f"no answer within {seconds:g} s" if isinstance(error, TimeoutError) else safe_message(error)
    # Outside of `except`, so that the driver's exception is not chained.
    raise WarehouseError(f"the inbox of connection {inbox.hook.get_conn_id()!r} cannot be read: {problem}")


def _read(inbox: Inbox, max_bytes: int) -> ReceiverStatus:
    with inbox.connected() as cursor:
        exists = inbox.exists(cursor, inbox.name)
    if not exists:
        raise WarehouseError(f"there is no table {inbox.table}: create it with `{ROTATE}`")
    return ReceiverStatus(inbox.state(), max_bytes, Tokens(inbox).count(), datetime.now(UTC))
