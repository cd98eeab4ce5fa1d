"""What a task remembers of its earlier tries, where Airflow lets it (the task state store, since 3.3).

Kept under one key, as one small record: it must stay far below the store's limit however much is done.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

PAUSES = (5.0, 10.0, 15.0)
"""Seconds between the attempts to write, on top of Airflow's own: an API server that is restarted is soon back."""


class TaskState(Protocol):
    """A record that outlives a try."""

    durable: bool
    """Whether a later try will find what is written."""

    def read(self) -> Any:
        """What was written last; ``None`` at first."""

    def write(self, record: dict[str, Any]) -> None:
        """Replace it; when this returns, it is kept."""


class StoredTaskState:
    """In Airflow's task state store: survives retries, a killed worker, and a cleared task.

    A write fails in a process whose try has been given up by Airflow and followed by another: whoever writes before
    each step takes none that the other try does not know of.

    :param store: ``context["task_state_store"]``.
    :param key: where in it.
    """

    durable = True

    def __init__(self, store: Any, key: str) -> None:
        self._store = store
        self._key = key

    def read(self) -> Any:
        """What was written last; ``None`` at first."""
        return self._store.get(self._key, None)

    def write(self, record: dict[str, Any]) -> None:
        """Replace it; when this returns, Airflow's database holds it."""
        from airflow.sdk import NEVER_EXPIRE  # type: ignore[attr-defined]  # exported lazily
        from airflow.sdk.exceptions import AirflowRuntimeError

        for pause in (*PAUSES, None):
            try:
                # A task that is cleared months later must still know what it has done.
                self._store.set(self._key, record, retention=NEVER_EXPIRE)
            except AirflowRuntimeError:
                if pause is None:
                    raise
                log.warning("The task state could not be written. Trying again in %.0f s.", pause)
                time.sleep(pause)
            else:
                return


class NullTaskState:
    """Where Airflow has no task state store (below 3.3): keeps nothing."""

    durable = False

    def read(self) -> Any:
        """Nothing."""
        return None

    def write(self, record: dict[str, Any]) -> None:
        """Forget it."""


def task_state(context: Context, key: str) -> TaskState:
    """The task instance's record of that name.

    :param key: a name of our own; renaming it makes running tasks forget.
    """
    store = context.get("task_state_store")
    return NullTaskState() if store is None else StoredTaskState(store, key)
