"""What the page shows of imports: how many rows were rejected and why, no row."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from airflow_provider_mail.plugin.reader import Reader, moment

SHOWN = 20


@dataclass(frozen=True)
class Import:
    """The rejected rows of one import.

    :param import_id: the task instance, as ``dag/task/run`` with the map index of a mapped task.
    :param rows: how many rows were rejected.
    :param at: when the last one was rejected.
    :param reasons: field (empty if the service rejected the row), reason and number of rows, the most frequent first.
    """

    import_id: str
    rows: int
    at: datetime.datetime | None
    reasons: Sequence[tuple[str, str, int]]


def get(reader: Reader) -> Sequence[Import]:
    """Return the 20 latest imports with rejected rows, the latest first.

    :param reader: the table of rejected rows.
    """
    if not reader.has("rejects"):
        return []
    table, number = reader["rejects"].spelled, reader["rejects"].column("row_number")
    latest = reader.rows(
        reader.limited(
            f"SELECT import_id, COUNT(DISTINCT {number}) AS found, MAX(rejected_at) AS latest FROM {table} "
            "GROUP BY import_id ORDER BY latest DESC, import_id",
            SHOWN,
        )
    )
    if not latest:
        return []
    marks = ", ".join("?" for _ in latest)
    rows = reader.rows(
        f"SELECT import_id, field, reason, COUNT(*) AS found FROM {table} WHERE import_id IN ({marks}) "
        "GROUP BY import_id, field, reason ORDER BY import_id, found DESC, field, reason",
        [row["import_id"] for row in latest],
    )
    reasons = {
        str(import_id): [(str(row["field"]), str(row["reason"]), int(row["found"])) for row in each]
        for import_id, each in groupby(rows, lambda row: row["import_id"])
    }
    return [
        Import(str(row["import_id"]), int(row["found"]), moment(row["latest"]), reasons.get(str(row["import_id"]), []))
        for row in latest
    ]
