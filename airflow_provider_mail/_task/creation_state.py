"""What a task remembers of its attempts to create a campaign."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_provider_mail._task.state import TaskState, task_state
from airflow_provider_mail.api.flows.create_campaign import CreationState

if TYPE_CHECKING:
    from airflow.sdk import Context

TASK_STATE_KEY = "airflow_provider_mail.campaign"

VERSION = 2

NO_MEMORY = (
    "This Airflow has no task state store (3.3 has), so another try cannot know that what it finds may be incomplete"
)

log = logging.getLogger(__name__)


class StoredCreationState(CreationState):
    """In the task's ledger, so that a try that follows a crash knows what the earlier ones have done.

    It must not take an incomplete campaign for a whole one, and may take for its own what an earlier try has created.
    Written before each attempt. A failure to write does not keep this try from going on; only a later one may be
    misled, and the log says so.

    :param mail_name: the campaign's; what is remembered of another name does not count.
    """

    def __init__(self, ledger: TaskState, mail_name: str) -> None:
        self._ledger = ledger
        self._mail_name = mail_name
        self.incomplete, self.attempted_at = _read(ledger.read(), mail_name)

    @property
    def durable(self) -> bool:
        """Whether a later try will know."""
        return self._ledger.durable

    def attempt(self) -> None:
        """Write down that the campaign may exist from now on."""
        super().attempt()
        self._write("not know that this one may have created campaign %r")

    def withdraw(self) -> None:
        """Write down that it does not, by this task."""
        super().withdraw()
        self._write("take campaign %r for its own, if there is one")

    def remember(self) -> None:
        """Write down that it may be incomplete."""
        if self.incomplete:
            return
        super().remember()
        if not self.durable:
            log.warning("Creating campaign %r was answered with code 500. %s.", self._mail_name, NO_MEMORY)
        self._write("take campaign %r for whole")

    def forget(self) -> None:
        """Write down that it is whole, if something else is written there."""
        if self.incomplete:
            super().forget()
            self._write("take campaign %r for incomplete")

    def _write(self, otherwise: str) -> None:
        """Replace the record.

        :param otherwise: what a later try will do if that does not work.
        """
        if not self.durable:
            return
        from airflow.sdk.exceptions import AirflowRuntimeError

        record = {
            "version": VERSION,
            "mail_name": self._mail_name,
            "incomplete": self.incomplete,
            "attempted_at": self.attempted_at,
        }
        try:
            self._ledger.write(record)
        except AirflowRuntimeError as error:
            log.error(
                f"The task state could not be written (%s): a later try will {otherwise}.", error, self._mail_name
            )


def task_memory(context: Context, mail_name: str) -> StoredCreationState:
    """The memory of a task instance."""
    return StoredCreationState(task_state(context, TASK_STATE_KEY), mail_name)


def _read(record: object, mail_name: str) -> tuple[bool, float | None]:
    """Whether the campaign of that name may be incomplete, and when its creation was last attempted.

    A record that is not understood may mean that any is incomplete.
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
