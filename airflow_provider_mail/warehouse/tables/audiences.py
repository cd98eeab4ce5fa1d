"""The tables of audiences: their state, and the log of their changes; no address can be read in them."""

from __future__ import annotations

from airflow_provider_mail.warehouse.table import BIGINT, BOOLEAN, DOUBLE, TEXT, TIMESTAMP, Column, Table, text

AUDIENCES = Table(
    comment="Audiences of imports that send only changes, one row for each; no personal data",
    key=("audience_id",),
    columns=(
        Column("audience_id", text(32), "Digest of the task that imports the audience"),
        Column("audience", TEXT, "The task, for people to read"),
        Column("version", BIGINT, "Number of changes of this row; an update must name the number that it has read"),
        Column("settings", TEXT, "Keyed digest of account, mapping and mode; with others, everybody is sent"),
        Column("generation", text(32), "The members that are the current ones"),
        Column("send_list_name", TEXT, "List that campaigns are sent to"),
        Column("repel_list_name", TEXT, "List of those who left; empty while there is none"),
        Column("members", BIGINT, "Number of rows that count when the last run ended; -1 if it did not end"),
        Column("parts", BIGINT, "Number of parts when the last run ended"),
        Column("size", BIGINT, "Number of rows of people in the audience"),
        Column("excluded", BIGINT, "Number of rows of people who left"),
        Column("full_at", BIGINT, "When everybody was last sent, in seconds since 1970"),
        Column("updated_at", BIGINT, "When this row was last changed, in seconds since 1970"),
        Column("claimed_by", TEXT, "Task instance that imports the audience now; empty if none does"),
    ),
    insert_only=True,
    load_columns=(),
)

MEMBERS = Table(
    comment="People of audiences, in parts of rows, encrypted",
    key=("generation", "part"),
    columns=(
        Column("generation", text(32), "Members of one audience since all parts were last written"),
        Column("part", BIGINT, "Number of the part, from 0; a part is never changed"),
        Column(
            "membership",
            text(8),
            "member (accepted with these values), doubtful (perhaps accepted), leaving (perhaps excluded) or left "
            "(excluded)",
        ),
        Column("row_count", BIGINT, "Number of rows in the part"),
        Column("voids", TEXT, "Rows of earlier parts that no longer count, as JSON: places by part, null for all"),
        Column("sealed", TEXT, "The rows, compressed and encrypted"),
    ),
    load_columns=(),
)

AUDIENCE_RUNS = Table(
    comment="Runs of audiences with their counts; no personal data",
    key=("import_id",),
    columns=(
        Column("import_id", text(250), "The import, the same in every try of a task"),
        Column("audience", TEXT, "The task, for people to read"),
        Column("mail_conn_id", text(250), "Airflow connection of the account"),
        Column("send_list_name", TEXT, "List that campaigns are sent to"),
        Column("repel_list_name", TEXT, "List of those who left; null if there is none", nullable=True),
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
        Column("joined", BIGINT, "People who are new or came back"),
        Column("changed", BIGINT, "People whose values changed"),
        Column("left_count", BIGINT, "People who left"),
        Column("suppressed", BIGINT, "Rows of people who were left out"),
        Column("rejected", BIGINT, "Rows that were rejected"),
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
