"""What a task keeps for its next try, in Airflow's task state store (since 3.3): a record, and that of a creation.

A record is stored under one key, and small: it must stay far below the store's size limit in every case.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk.exceptions import AirflowRuntimeError
from pydantic import BaseModel, ConfigDict, ValidationError

from airflow_provider_mail.api.flows.create_once import CreationState

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

PAUSES = (5.0, 10.0, 15.0)
"""Seconds between attempts to write, in addition to Airflow's own: a restarting API server is soon available again."""


class TaskState:
    """A record in Airflow's task state store: survives retries, a killed worker, and a cleared task.

    A write fails in a process whose try Airflow has replaced by another one. So a process that writes before each step
    takes no step that is unknown to the other try.

    :param store: ``None`` where there is none (before Airflow 3.3): then nothing is stored.
    :param key: the key in the store; running tasks lose the record if it is renamed.
    """

    def __init__(self, store: Any, key: str) -> None:
        self._store = store
        self._key = key
        self.durable = store is not None
        """Whether the next try can read the record."""

    def read(self) -> Any:
        """Read the record; ``None`` if nothing was written."""
        return self._store.get(self._key, None) if self.durable else None

    def write(self, record: dict[str, Any]) -> None:
        """Replace the record; Airflow's database holds it when this returns."""
        if not self.durable:
            return
        from airflow.sdk import NEVER_EXPIRE  # type: ignore[attr-defined]  # exported lazily

        for pause in (*PAUSES, None):
            try:
                # A task that is cleared months later must still find the record.
                self._store.set(self._key, record, retention=NEVER_EXPIRE)
            except AirflowRuntimeError:
                if pause is None:
                    raise
                log.warning("The task state could not be written. Trying again in %.0f s.", pause)
                time.sleep(pause)
            else:
                return


def task_state(context: Context, key: str) -> TaskState:
    """Return a record of the task instance."""
    return TaskState(context.get("task_state_store"), key)


TASK_STATE_KEY = "airflow_provider_mail.campaign"

NOT_STORED = (
    "This Airflow has no task state store (3.3 has), so the next try cannot know that the campaign may be incomplete"
)


class _Record(BaseModel):
    """The stored record: the attributes of :class:`CreationState`, and the ``max_tries`` of the task instance."""

    model_config = ConfigDict(strict=True, extra="forbid")

    version: Literal[5] = 5
    mail_name: str | None
    guid: str | None
    incomplete: bool
    attempted_at: float | None
    seen: bool
    sends_at: float | None
    digests: dict[str, str]
    max_tries: int | None


_ATTRIBUTES = _Record.model_fields.keys() - {"version", "max_tries"}

_UNREADABLE = _Record(
    mail_name=None, guid=None, incomplete=True, attempted_at=None, seen=True, sends_at=0.0, digests={}, max_tries=None
)
"""A record of another version may mean anything: that the campaign is incomplete, or was sent."""


class StoredCreationState(CreationState):
    """The state in the task state store, so that a try after a crash knows the attempts of the earlier ones.

    The next try must not treat an incomplete campaign as complete, may adopt what an earlier try has created, and must
    not create it again when it is gone. The state is written before each attempt. A failure to write does not stop this
    try; the log says what the next try cannot know.

    :param own_name: whether the campaign's name is made of the task instance's ids.
    :param send_again: whether a cleared task may create a second campaign.
    """

    def __init__(self, context: Context, *, own_name: bool = False, send_again: bool = False) -> None:
        self._task_state = task_state(context, TASK_STATE_KEY)
        self.durable = self.knows_all = self._task_state.durable
        """Whether the next try finds the state."""
        ti = context["ti"]
        self.first_try = ti.try_number <= 1
        self.is_lost = not (self.durable or self.first_try)
        self.own_name = own_name
        self.send_again = send_again
        # Clearing a task changes the number; a retry keeps it.
        self._max_tries: int | None = getattr(ti, "max_tries", None)
        record = _read(self._task_state.read())
        if record is not None:
            for name in _ATTRIBUTES:
                setattr(self, name, getattr(record, name))
            self.cleared = self._max_tries != record.max_tries

    def mark_attempted(self, at: float | None = None) -> None:
        super().mark_attempted(at)
        if self.is_lost:
            log.warning(
                "Creating campaign %r. This Airflow has no task state store (3.3 has), so it is not known whether an "
                "earlier try created one under another name, or one that was deleted, cancelled or removed since.",
                self.mail_name,
            )
        self._write("not know that this one may have created campaign %r")

    def clear_attempt(self, earlier: float | None = None) -> None:
        super().clear_attempt(earlier)
        self._write("take campaign %r for its own, if there is one")

    def mark_incomplete(self) -> None:
        if self.incomplete:
            return
        super().mark_incomplete()
        if not self.durable:
            log.warning("Creating campaign %r was answered with code 500. %s.", self.mail_name, NOT_STORED)
        self._write("take campaign %r for complete")

    def mark_complete(self) -> None:
        if self.incomplete:
            super().mark_complete()
            self._write("take campaign %r for incomplete")

    def mark_seen(self, sends_at: float | None, guid: str | None) -> None:
        before = self.seen, self.sends_at, self.guid
        super().mark_seen(sends_at, guid)
        if before != (self.seen, self.sends_at, self.guid):
            self._write("create campaign %r again if it is gone")

    def mark_created(self, sends_at: float | None, guid: str | None) -> None:
        super().mark_created(sends_at, guid)
        self._write("create campaign %r again if it is gone")

    def forget(self) -> None:
        super().forget()
        self._write("not create campaign %r again")

    def mark_sends_at(self, sends_at: float | None) -> None:
        super().mark_sends_at(sends_at)
        self._write("create campaign %r again if it is gone")

    def mark_sent(self) -> None:
        """Store that the campaign was sent."""
        self.mark_seen(0.0, None)

    def _write(self, otherwise: str) -> None:
        """Write the record.

        :param otherwise: what the next try will do if this fails.
        """
        record = _Record(
            max_tries=self._max_tries,
            **{name: getattr(self, name) for name in _ATTRIBUTES - {"digests"}},
            digests=dict(self.digests),
        )
        try:
            self._task_state.write(record.model_dump())
        except AirflowRuntimeError as error:
            log.error(
                f"The task state could not be written (%s): the next try will {otherwise}.", error, self.mail_name
            )


def _read(record: object) -> _Record | None:
    """Parse the stored record; ``None`` if nothing was stored."""
    if record is None:
        return None
    try:
        return _Record.model_validate(record)
    except ValidationError:
        return _UNREADABLE
