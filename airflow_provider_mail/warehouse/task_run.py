"""The run of Airflow that loads rows."""

from __future__ import annotations

import datetime
from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider_mail.warehouse.table import Table


@dataclass(frozen=True)
class TaskRun:
    """The try of a task that loads rows; outside of a task, all are ``None``.

    :param map_index: the index of a mapped task, otherwise -1.
    """

    run_id: str | None = None
    dag_id: str | None = None
    task_id: str | None = None
    map_index: int | None = None
    try_number: int | None = None

    @classmethod
    def current(cls) -> TaskRun:
        """Return the try of the task that this process executes."""
        from airflow.sdk import get_current_context

        try:
            ti = get_current_context()["ti"]
        except RuntimeError:
            return cls()
        map_index = -1 if ti.map_index is None else ti.map_index
        return cls(ti.run_id, ti.dag_id, ti.task_id, map_index, ti.try_number)

    def values(self, table: Table, loaded_at: datetime.datetime, rows: int | None = None) -> tuple[Any, ...]:
        """Return the values of a table's ``load_columns``.

        :param loaded_at: when the rows are written, with a zone.
        :param rows: number of rows of the load. Default: none, for a table that does not hold it.
        """
        values_by_name = {**asdict(self), "loaded_at": loaded_at, "load_rows": rows}
        return tuple(values_by_name[name] for name in table.load_names)
