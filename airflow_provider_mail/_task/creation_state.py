"""The stored state of a task's attempts to create a campaign."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowRuntimeError

from airflow_provider_mail._task.state import task_state
from airflow_provider_mail.api.flows.create_once import CreationState

if TYPE_CHECKING:
    from airflow.sdk import Context

TASK_STATE_KEY = "airflow_provider_mail.campaign"

VERSION = 2

NOT_STORED = (
    "This Airflow has no task state store (3.3 has), so the next try cannot know that the campaign may be incomplete"
)

log = logging.getLogger(__name__)


class StoredCreationState(CreationState):
    """The state in the task state store, so that a try after a crash knows the attempts of the earlier ones.

    The next try must not treat an incomplete campaign as complete, and may adopt what an earlier try has created. The
    state is written before each attempt. A failure to write does not stop this try; the log says what the next one
    cannot know.

    :param context: the task's context.
    :param mail_name: the campaign's name; the state of another campaign is ignored.
    """

    def __init__(self, context: Context, mail_name: str) -> None:
        self._task_state = task_state(context, TASK_STATE_KEY)
        self.durable = self._task_state.durable
        """Whether the next try finds the state."""
        self._mail_name = mail_name
        self.incomplete, self.attempted_at = _read(self._task_state.read(), mail_name)

    def mark_attempted(self) -> None:
        """Store that the campaign may exist from now on."""
        super().mark_attempted()
        self._write("not know that this one may have created campaign %r")

    def clear_attempt(self) -> None:
        """Store that this task has not created it."""
        super().clear_attempt()
        self._write("take campaign %r for its own, if there is one")

    def mark_incomplete(self) -> None:
        """Store that it may be incomplete."""
        if self.incomplete:
            return
        super().mark_incomplete()
        if not self.durable:
            log.warning("Creating campaign %r was answered with code 500. %s.", self._mail_name, NOT_STORED)
        self._write("take campaign %r for complete")

    def mark_complete(self) -> None:
        """Store that it is complete, unless that is stored already."""
        if self.incomplete:
            super().mark_complete()
            self._write("take campaign %r for incomplete")

    def _write(self, otherwise: str) -> None:
        """Write the record.

        :param otherwise: what the next try will do if this fails.
        """
        if not self.durable:
            return
        record = {
            "version": VERSION,
            "mail_name": self._mail_name,
            "incomplete": self.incomplete,
            "attempted_at": self.attempted_at,
        }
        try:
            self._task_state.write(record)
        except AirflowRuntimeError as error:
            log.error(
                f"The task state could not be written (%s): the next try will {otherwise}.", error, self._mail_name
            )


def _read(record: object, mail_name: str) -> tuple[bool, float | None]:
    """Parse the stored record: whether the campaign may be incomplete, and when its creation was last attempted.

    An unknown record may mean that the campaign is incomplete.
    """
    if record is None:
        return False, None
    match record:
        case {"version": 1, "incomplete": str() | None as name, **rest} if not rest:
            return name == mail_name, None
        case {"version": 2, "mail_name": str() as name, "incomplete": bool() as incomplete,
              "attempted_at": float() | int() | None as attempted_at, **rest} if not rest:  # fmt: skip
            return (incomplete, attempted_at) if name == mail_name else (False, None)
    return True, None
