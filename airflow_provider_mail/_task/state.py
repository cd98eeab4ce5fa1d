"""What a task keeps for its next try, in Airflow's task state store (since 3.3): a record, and that of a creation.

A record is stored under one key, and small: it must stay far below the store's size limit in every case.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowRuntimeError
from pydantic import ValidationError

from airflow_provider_mail.api.flows.create_once import Creation, CreationState
from airflow_provider_mail.version_compat import StateStore, state_store

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

    def __init__(self, store: StateStore | None, key: str) -> None:
        self._store = store
        self._key = key
        self.durable = store is not None
        """Whether the next try can read the record."""

    def read(self) -> Any:
        """Read the record; ``None`` if nothing was written."""
        return None if self._store is None else self._store.get(self._key)

    def write(self, record: dict[str, Any]) -> None:
        """Replace the record; Airflow's database holds it when this returns."""
        if self._store is None:
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
    return TaskState(state_store(context), key)


TASK_STATE_KEY = "airflow_provider_mail.campaign"

NOT_STORED = (
    "This Airflow has no task state store (3.3 has), so the next try cannot know that the campaign may be incomplete"
)


_UNREADABLE = Creation(incomplete=True, seen=True, sends_at=0.0)
"""A record of another version may mean anything: that the campaign is incomplete, or was sent."""


def creation_state(context: Context, *, own_name: bool = False, send_again: bool = False) -> CreationState:
    """Return what is known of the campaign of a task instance; changes are stored, so that the next try knows them.

    A failure to store one does not stop this try; the log says what the next try cannot know.

    :param own_name: whether the campaign's name is made of the task instance's ids.
    :param send_again: whether a cleared task may create a second campaign.
    """
    store, ti = task_state(context, TASK_STATE_KEY), context["ti"]
    # Clearing a task changes the number; a retry keeps it.
    max_tries: int | None = getattr(ti, "max_tries", None)
    creation, cleared = _read(store.read(), max_tries)
    is_mapped = getattr(ti, "map_index", None) not in (None, -1)

    def save(before: Creation, creation: Creation) -> None:
        if creation.incomplete and not (before.incomplete or store.durable):
            log.warning("Creating campaign %r was answered with code 500. %s.", creation.requested, NOT_STORED)
        try:
            store.write({"max_tries": max_tries, "creation": creation.model_dump()})
        except AirflowRuntimeError as error:
            log.error(
                "The task state could not be written (%s): the next try will not know what became of campaign %r%s. "
                "Look at the service before you let it run", error, creation.requested,
                ": it may be incomplete (code 500)" if creation.incomplete else "",
            )  # fmt: skip

    return CreationState(
        creation=creation,
        save=save,
        cleared=cleared,
        send_again=send_again,
        first_try=ti.try_number <= 1,
        knows_all=store.durable,
        is_lost=not store.durable and ti.try_number > 1,
        own_name=own_name,
        may_have_moved=is_mapped and (cleared or bool(context["dag_run"].clear_number)),
    )


def _read(record: Any, max_tries: int | None) -> tuple[Creation, bool]:
    """Return the stored creation, and whether a user has cleared the task since."""
    if record is None:
        return Creation(), False
    match record:
        case {"max_tries": stored_max_tries, "creation": {**fields}} if fields.keys() == Creation.model_fields.keys():
            with suppress(ValidationError):
                return Creation.model_validate(fields), stored_max_tries != max_tries
    return _UNREADABLE, True
