"""The table of contact imports, with the counts of each."""

from __future__ import annotations

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
