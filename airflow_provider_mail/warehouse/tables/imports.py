"""The tables of contact imports with their counts, and of the rows that they rejected."""

from __future__ import annotations

import datetime
import math
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.warehouse.table import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    JSON,
    TEXT,
    TIMESTAMP,
    Column,
    Table,
    text,
)

if TYPE_CHECKING:
    from airflow_provider_mail.api.flows.validate_rows import Reject

IMPORTS = Table(
    comment="Imports of contacts with their counts, one row for all tries of a task; no personal data",
    key=("import_id",),
    columns=(
        Column("import_id", text(250), "The import, the same in every try of a task"),
        Column("mail_conn_id", text(250), "Airflow connection of the account that was imported to"),
        Column("list_name", TEXT, "List that the contacts were added to; null without one", nullable=True),
        Column("state", TEXT, "How the last try of the task ended: success, failed or skipped"),
        Column("rows_read", BIGINT, "Rows that were read"),
        Column("rows_accepted", BIGINT, "Rows that the service accepted, over all tries"),
        Column("rows_accepted_earlier", BIGINT, "Those of them that an earlier try sent"),
        Column("rows_rejected", BIGINT, "Rows that were rejected"),
        Column("reasons", JSON, "Why: an array of objects with field, reason and rows, the most frequent first"),
        Column("requests", BIGINT, "Requests of the last try"),
        Column("remarks", BIGINT, "Those of them that the service accepted with a message"),
        Column("sandbox", BOOLEAN, "Whether the service only checked the rows"),
        Column("try_number", INTEGER, "Number of the last try, from 1"),
        Column("seconds", DOUBLE, "Duration of the last try's import"),
        Column("finished_at", TIMESTAMP, "When the last try ended", observed=True),
    ),
)

REJECTS = Table(
    comment="Rows that a contact import rejected; personal data",
    key=("import_id", "row_number", "field"),
    columns=(
        Column("import_id", text(250), "The import, the same in every try of a task"),
        Column("row_number", BIGINT, "Line of the file in which the row begins, or number of the row; from 1"),
        Column("field", text(250), "Invalid property; empty when the service rejected the row"),
        Column("reason", TEXT, "Why the row was rejected, without its values"),
        Column("row_json", JSON, "The values of the row, as they were read"),
        Column("rejected_at", TIMESTAMP, "When the row was last rejected", observed=True),
    ),
)


def reject_row(reject: Reject, *, import_id: str, rejected_at: datetime.datetime) -> tuple[Any, ...]:
    """Build a row of `REJECTS`; values that JSON does not have (dates, decimals) are kept as text."""
    values = [_plain(value) for value in reject.row]
    return import_id, reject.place, reject.field, reject.reason, values, rejected_at


def _plain(value: object) -> object:
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    # A value that no database accepts as text may be the reason for the rejection, which must be stored all the same.
    return str(value).encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
