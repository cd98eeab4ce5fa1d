"""Hold all mass mail: no task creates a campaign, sends a batch or imports contacts until the hold is released.

The hold is the Airflow Variable ``mail_hold``. Tasks read it right before the request that would mail people. A hold
that cannot be read counts as set.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.api.errors import MailError, MailHeldError

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_mail.api.flows.cancel_campaign import StopResult
    from airflow_provider_mail.hooks.mail import MailHook

__all__ = ["Hold", "current_hold", "release_hold", "set_hold", "stop"]

VARIABLE = "mail_hold"

FRESH_SECONDS = 2.0
"""A task that sends many requests reads the hold again after this time."""

UPLOAD_SECONDS = 6.0
"""Time in which a request that a task has begun to send has reached the service."""

SETTLE_SECONDS = FRESH_SECONDS + UPLOAD_SECONDS
"""Time after which nothing arrives that was sent in reliance on a reading from before the hold was set."""

RELEASE = "release it with `airflow mail release` (before Airflow 3.2: python -m airflow_provider_mail release)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A hold.

    :param set_by: the person or task that set it.
    :param set_at: when it was set, ISO 8601 in UTC.
    :param reason: why it was set.
    """

    set_by: str
    set_at: str
    reason: str = ""

    @classmethod
    def parse(cls, text: str) -> Hold:
        """Read the value of the Variable. Any value holds: a person may have written it by hand."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError):
            return cls(set_by="unknown", set_at="unknown", reason=text)

    def __str__(self) -> str:
        return f"set by {self.set_by} at {self.set_at}{f': {self.reason}' if self.reason else ''}"


class HoldCheck:
    """Reads the hold at first use, and again when the reading is older than :data:`FRESH_SECONDS`."""

    def __init__(self) -> None:
        self._released_until = float("-inf")

    def __call__(self, operation: str) -> None:
        """Check that nothing is held.

        :param operation: the path of the operation that would be sent.
        :raises MailHeldError: a hold is set, or could not be read.
        """
        began = time.monotonic()
        if began < self._released_until:
            return
        try:
            hold = current_hold()
        except Exception as error:
            raise MailHeldError(
                f"the Variable {VARIABLE!r} could not be read ({type(error).__name__}), so a hold may be set: this "
                "request was not sent. Check that the worker reaches Airflow's API server, then clear the task",
                operation=operation,
            ) from error
        if hold is not None:
            raise MailHeldError(
                f"all mass mail is held, {hold}. This request was not sent. To go on, {RELEASE}, then clear the task",
                operation=operation,
            )
        self._released_until = began + FRESH_SECONDS


def current_hold() -> Hold | None:
    """Return the hold that is set, or ``None``.

    A Variable in the environment (``AIRFLOW_VAR_MAIL_HOLD``) holds as well. In a process that is neither a task nor a
    server of Airflow, such as a unit test, only the environment is read.

    :raises Exception: Airflow's error when the Variable cannot be read.
    """
    text = os.environ.get(f"AIRFLOW_VAR_{VARIABLE.upper()}")
    if text is None:
        if (send := _ask_supervisor()) is not None:
            text = _read_as_task(send)
        elif os.environ.get("_AIRFLOW_PROCESS_CONTEXT") == "server":
            return stored_hold()
    return None if text is None else Hold.parse(text)


def stored_hold() -> Hold | None:
    """Return the hold in Airflow's database, for its servers and commands, or ``None``.

    :raises SQLAlchemyError: the database cannot be read.
    """
    from airflow.models.variable import Variable
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        stored = session.scalar(select(Variable).where(Variable.key == VARIABLE))
        return None if stored is None else Hold.parse(str(stored.get_val()))


def set_hold(*, set_by: str, reason: str = "") -> Hold:
    """Hold all mass mail, in all DAGs and on all connections.

    :param set_by: the person or task that sets it; shown in every message of a held task.
    :param reason: why.
    :return: the hold.
    :raises MailError: Airflow did not store it.
    """
    hold = Hold(set_by=set_by, set_at=datetime.now(UTC).isoformat(timespec="seconds"), reason=reason)
    _variable().set(VARIABLE, json.dumps(asdict(hold)), description="Mass mail is held while this Variable exists")
    if current_hold() is None:
        raise MailError(f"the Variable {VARIABLE!r} was not stored: nothing is held. Set it in Airflow's interface")
    return hold


def release_hold() -> Hold | None:
    """Release the hold; return the one that was set, or ``None``.

    :raises MailError: it is still set.
    """
    hold = current_hold()
    if hold is not None:
        _variable().delete(VARIABLE)
        if current_hold() is not None:
            raise MailError(
                f"the Variable {VARIABLE!r} is still set: delete it in Airflow's interface, and in the environment of "
                f"workers and API servers (AIRFLOW_VAR_{VARIABLE.upper()})"
            )
    return hold


def stop(hook: MailHook, *, prefix: str = "", hold: Hold | None = None) -> StopResult:
    """Cancel every scheduled campaign of a connection whose name begins with ``prefix``.

    :param hook: the hook of the connection.
    :param prefix: the beginning of the names. Default: all campaigns.
    :param hold: the hold that was set just before. The campaigns that tasks were about to create are then cancelled as
        well, a few seconds later. Default: none was set.
    :raises MailError: the campaigns could not be listed.
    """
    from airflow_provider_mail.api.flows.cancel_campaign import stop_campaigns

    client = hook.get_conn()
    settle_seconds = 0.0 if hold is None else SETTLE_SECONDS
    return stop_campaigns(client, prefix, settle_seconds=settle_seconds)


def _read_as_task(send: Callable[[Any], Any]) -> str | None:
    """Read the Variable; unlike ``Variable.get``, which since Airflow 3.1 takes a failure to read for "not set".

    :param send: asks Airflow's API server.
    """
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
    from airflow.sdk.execution_time.comms import ErrorResponse, GetVariable

    try:
        response = send(GetVariable(key=VARIABLE))
    except AirflowRuntimeError as error:
        response = error.error
    if not isinstance(response, ErrorResponse):
        return str(response.value)
    if response.error is ErrorType.VARIABLE_NOT_FOUND:
        return None
    raise AirflowRuntimeError(response)


def _ask_supervisor() -> Callable[[Any], Any] | None:
    """Return the function with which a task asks Airflow's API server; ``None`` outside of a task."""
    task_runner = sys.modules.get("airflow.sdk.execution_time.task_runner")
    comms = getattr(task_runner, "SUPERVISOR_COMMS", None)
    return None if comms is None else comms.send


def _variable() -> Any:
    """Return the class that writes Variables in this process."""
    if _ask_supervisor() is not None:
        from airflow.sdk import Variable

        return Variable
    from airflow.models.variable import Variable as StoredVariable

    return StoredVariable
