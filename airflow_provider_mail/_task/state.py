"""A record that outlives a try, in Airflow's task state store (since 3.3).

Stored under one key, as one small record, which must stay far below the store's size limit in every case.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Protocol

from airflow.sdk.exceptions import AirflowRuntimeError

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

PAUSES = (5.0, 10.0, 15.0)
"""Seconds between attempts to write, in addition to Airflow's own: a restarting API server is soon available again."""


class TaskState(Protocol):
    """The interface of a record that outlives a try."""

    durable: bool
    """Whether the next try can read the record."""

    def read(self) -> Any:
        """Read the record; ``None`` if nothing was written."""

    def write(self, record: dict[str, Any]) -> None:
        """Replace the record; it is stored when this returns.

        :param record: plain JSON.
        """


class StoredTaskState:
    """A record in Airflow's task state store: survives retries, a killed worker, and a cleared task.

    A write fails in a process whose try Airflow has replaced by another one. So a process that writes before each step
    takes no step that is unknown to the other try.

    :param store: ``context["task_state_store"]``.
    """

    durable = True

    def __init__(self, store: Any, key: str) -> None:
        self._store = store
        self._key = key

    def read(self) -> Any:
        """Read the record; ``None`` if nothing was written."""
        return self._store.get(self._key, None)

    def write(self, record: dict[str, Any]) -> None:
        """Replace the record; Airflow's database holds it when this returns."""
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


class NullTaskState:
    """The record where Airflow has no task state store (before 3.3): stores nothing."""

    durable = False

    def read(self) -> Any:
        """Return ``None``."""
        return None

    def write(self, record: dict[str, Any]) -> None:
        """Do nothing."""


def task_state(context: Context, key: str) -> TaskState:
    """Return a record of the task instance.

    :param key: the key in the store; running tasks lose the record if it is renamed.
    """
    store = context.get("task_state_store")
    return NullTaskState() if store is None else StoredTaskState(store, key)
