"""The tables of contact imports with their counts, of the rows that they rejected, and of audiences."""

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
    indexes=(("finished_at",),),
    columns=(
        Column("import_id", text(250), "The import, the same in every try of a task"),
        Column("mail_conn_id", text(250), "Airflow connection of the account that was imported to"),
        Column("list_name", TEXT, "List that the contacts were added to; null without one", nullable=True),
        Column("state", TEXT, "How the last try of the task ended: success, failed or skipped"),
        Column("rows_read", BIGINT, "Rows that were read"),
        Column("rows_accepted", BIGINT, "Rows that the service accepted, over all tries"),
        Column("rows_accepted_earlier", BIGINT, "Those of them that an earlier try sent"),
        Column("rows_rejected", BIGINT, "Rows that were rejected"),
        Column("rows_opted_out", BIGINT, "Rows that were left out because of consent"),
        Column("rows_without_address", BIGINT, "Rows that were left out because they have no address"),
        Column("reasons", JSON, "Why: an array of objects with field, reason and rows, the most frequent first"),
        Column("requests", BIGINT, "Requests of the last try"),
        Column("requests_with_message", BIGINT, "Those of them that the service accepted with a message"),
        Column("sandbox", BOOLEAN, "Whether the service only checked the rows"),
        Column("try_number", INTEGER, "Number of the last try, from 1"),
        Column("seconds", DOUBLE, "Duration of the last try's import"),
        Column("finished_at", TIMESTAMP, "When the last try ended", observed=True),
    ),
)

REJECTS = Table(
    comment="Rows that a contact import rejected; personal data",
    key=("import_id", "file_name", "row_number", "field"),
    columns=(
        Column("import_id", text(250), "The import, the same in every try of a task"),
        Column("file_name", text(250), "The file, if there were several; otherwise empty"),
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
    return import_id, (reject.file or "")[-250:], reject.place, reject.field, reject.reason, values, rejected_at


def _plain(value: object) -> object:
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    # A value that no database accepts as text may be the reason for the rejection, which must be stored all the same.
    return str(value).encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


AUDIENCES = Table(
    comment="Audiences of imports that send only changes, one row for each; no personal data",
    key=("audience_id",),
    columns=(
        Column("audience_id", text(32), "Digest of the task that imports the audience"),
        Column("audience", TEXT, "The task, for people to read"),
        Column("version", BIGINT, "Number of changes of this row; an update must name the number that it has read"),
        Column("generation", text(32), "The members that are the current ones"),
        Column("ledger", TEXT, "Numbers by which the lists of the service are compared with the state, encrypted"),
        Column("send_list_name", TEXT, "List that campaigns are sent to"),
        Column("size", BIGINT, "Number of people in the audience"),
        Column("excluded", BIGINT, "Number of people who left"),
        Column("updated_at", BIGINT, "When this row was last changed, in seconds since 1970"),
        Column("claimed_by", TEXT, "Task instance that imports the audience now; empty if none does"),
    ),
    insert_only=True,
    load_columns=(),
)

MEMBERS = Table(
    comment="Addresses of the people of audiences, encrypted, in parts; personal data",
    key=("generation", "bucket", "part"),
    columns=(
        Column("generation", text(32), "Members of one audience since everybody was last sent"),
        Column("bucket", INTEGER, "Number of a part of the people, by a hash of the address"),
        Column("part", INTEGER, "Number of the part: in a later one is what changed"),
        Column("sealed", TEXT, "The people, encrypted"),
    ),
    load_columns=(),
)

MEMORY = Table(
    comment="Who was mailed what; people as keyed digests",
    key=("person", "mail_key"),
    indexes=(("request",),),
    columns=(
        Column(
            "person", text(32), "Keyed digest of the address; empty in a row that shows whether the table is newest"
        ),
        Column("mail_key", text(250), "once_per of the task, or else the task and its run"),
        Column("request", BIGINT, "With which request: a row of the table of requests"),
    ),
    insert_only=True,
    load_columns=(),
)

MEMORY_REQUESTS = Table(
    comment="Requests by which the people of the memory are mailed",
    key=("request",),
    indexes=(("task",),),
    columns=(
        Column("request", BIGINT, "Its number; 0 in the one row that transactions lock"),
        Column("task", text(250), "Task and run that sends it"),
        Column("mailed_at", BIGINT, "When it is or was sent, in seconds since 1970 by this database's clock"),
        Column("state", text(10), "reserved, intended right before it is sent, sent, in doubt, or not sent"),
    ),
    insert_only=True,
    load_columns=(),
)

ALERTS = Table(
    comment="Alerts of notifiers with a digest that wait for a summary; encrypted, deleted when it is sent",
    key=("digest", "alert"),
    columns=(
        Column("digest", text(32), "Keyed digest of recipients, sender and window; empty in the row that is locked"),
        Column("alert", text(32), "The alert; empty in the row of the window"),
        Column("happened_at", BIGINT, "When it happened, or the window began, by this database's clock"),
        Column("due_at", BIGINT, "When the window ends; of an alert, until when a process may be sending it"),
        Column("state", text(10), "waiting, intended while it is being sent, or in doubt; empty for a window"),
        Column("claim", text(32), "The process that sends it; empty if none does"),
        Column("sealed", TEXT, "Recipients, what happened and where, encrypted"),
    ),
    insert_only=True,
    load_columns=(),
)

AUDIENCE_RUNS = Table(
    comment="Runs of audiences with their counts; no personal data",
    key=("import_id",),
    indexes=(("finished_at",),),
    columns=(
        Column("import_id", text(250), "The import, the same in every try of a task"),
        Column("audience", TEXT, "The task, for people to read"),
        Column("mail_conn_id", text(250), "Airflow connection of the account"),
        Column("send_list_name", TEXT, "List that campaigns are sent to"),
        Column("repel_list_name", TEXT, "Lists of those who left; null if there is none", nullable=True),
        Column("state", TEXT, "How the run ended: success, failed, or stopped by a brake"),
        Column("everybody", BOOLEAN, "Whether everybody was sent, not only changes"),
        Column(
            "reason",
            TEXT,
            "Why everybody was sent, or which brake stopped the run or was let pass; null if neither",
            nullable=True,
        ),
        Column("size", BIGINT, "People in the audience"),
        Column("rows_read", BIGINT, "Rows that were read"),
        Column("joined_count", BIGINT, "People who are new or came back"),
        Column("changed_count", BIGINT, "People whose values changed"),
        Column("left_count", BIGINT, "People who left"),
        Column("rows_suppressed", BIGINT, "Rows of people who were left out"),
        Column("rows_rejected", BIGINT, "Rows that were rejected"),
        Column("requests", BIGINT, "Import requests"),
        Column("seconds", DOUBLE, "Duration"),
        Column("finished_at", TIMESTAMP, "When the run ended", observed=True),
    ),
)

AUDIENCE_CHANGES = Table(
    comment="Changes of audiences, one row for each person and run; keyed digests",
    key=("import_id", "person"),
    columns=(
        Column("import_id", text(250), "The import, the same in every try of a task"),
        Column("person", text(32), "Keyed digest of the person's address or phone number"),
        Column("operation", TEXT, "joined, returned, changed, left, suppressed or rejected"),
        Column("changed_at", TIMESTAMP, "When the run ended", observed=True),
    ),
)
