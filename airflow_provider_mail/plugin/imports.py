"""What the page shows of imports and audiences: numbers and reasons; no row, no person, not even as a digest."""

from __future__ import annotations

import re
from collections.abc import Sequence

from airflow_provider_mail.plugin.access import step_name, task_named
from airflow_provider_mail.plugin.reader import Reader, Row
from airflow_provider_mail.plugin.render import Cell, Column, Grid, label, rate
from airflow_provider_mail.warehouse.rows import decoded

SHOWN = 50

LATEST_RUNS = 10_000
"""Runs among which the last success of each audience is looked for."""

ALL_FIELDS = "all fields"
"""The field of a reason that concerns no single field: the row is too short, or the service rejected it."""

_BRAKE = re.compile(r"^max_\w+: ", re.ASCII)
"""The argument in front of what a brake says."""


def _step(row: Row) -> Cell:
    """Return the step of an import, as far as its name shows one."""
    task = task_named(str(row["import_id"]))
    return Cell(step_name(task), task=task) if task else Cell(row["import_id"])


def _run(row: Row) -> str:
    task = task_named(str(row["import_id"]))
    return task[2] if task else ""


_NAME = (Column("Import", value=_step), Column("Run", value=_run, is_below=True))

_IMPORTS = (
    *_NAME,
    Column("State", value=label("state", "sandbox", "only checked")),
    Column("People", "number", "rows_read"),
    Column("Accepted", "number", "rows_accepted"),
    Column("Rejected", "number", lambda row: Cell(row["rows_rejected"], href="#reasons" if row["reasons"] else "")),
    Column("Lost", "percent", lambda row: rate(row["rows_read"] - row["rows_accepted"], row["rows_read"])),
    Column("Ended", "time", "finished_at"),
    Column("List", value="list_name"),
    Column("Account", value="mail_conn_id"),
)
_REASONS = (
    *_NAME,
    Column("Field", value=lambda row: row["field"] or ALL_FIELDS),
    Column("Reason", value="reason"),
    Column("People", "number", "rows"),
    Column("Ended", "time", "finished_at"),
)


_LOST = "One that was tried again counts once. Lost: the share of people whom the email service did not accept."
_FIELDS = "A person with several invalid fields counts for each of them."
_STOPPED = (
    "one that was tried again counts once. Everybody: all people were imported, not only those who joined, changed or "
    "left. Stopped: more people would have changed than is allowed, so nobody was imported or removed; the numbers are "
    "what would have changed."
)


def imports(reader: Reader) -> tuple[Grid, Grid]:
    """Return the 50 latest imports, the latest first, and why rows of them were rejected, the most frequent first."""
    stored = reader.rows(
        f"SELECT * FROM {reader['imports'].spelled} ORDER BY finished_at DESC, import_id",
        limit=SHOWN,
    )
    rows = [{**row, "reasons": decoded(row["reasons"])} for row in stored]
    reasons = [{**row, **reason} for row in rows for reason in row["reasons"]]
    return (
        Grid.of("imports", "Imports", _IMPORTS, rows, f"The latest {len(rows)} imports. {_LOST}"),
        Grid.of("reasons", "Why people were rejected", _REASONS, reasons, _FIELDS),
    )


_AUDIENCES = (
    Column("Audience", value=lambda row: _audience(str(row["audience"]))),
    Column("Size", "number", "size"),
    Column("Last success", "time", "finished_at"),
    Column("List", value="send_list_name"),
    Column("Exclusion list", value="repel_list_name"),
    Column("Account", value="mail_conn_id"),
)
_RUNS = (
    *_NAME,
    Column("Reason", value=lambda row: _BRAKE.sub("", row["reason"] or ""), is_below=True),
    Column("State", value=label("state", "everybody", "everybody")),
    Column("Size", "number", lambda row: row["size"] if row["state"] == "success" else None),
    Column("Joined", "number", "joined_count"),
    Column("Changed", "number", "changed_count"),
    Column("Left", "number", "left_count"),
    Column("Left out", "number", "rows_suppressed"),
    Column("Rejected", "number", "rows_rejected"),
    Column("Ended", "time", "finished_at"),
)


def _audience(name: str) -> str:
    """Return the step that imports an audience, which is called DAG/step."""
    dag_id, slash, step = name.partition("/")
    return f"{step} of {dag_id}" if slash else name


def sizes(reader: Reader) -> Sequence[Row]:
    """Return the last successful run of each audience: a run that failed has no size."""
    order = "ORDER BY finished_at DESC, import_id DESC"
    successes = f"SELECT * FROM {reader['audience_runs'].spelled} WHERE state = 'success' {order}"
    return reader.rows(
        f"SELECT * FROM (SELECT b.*, ROW_NUMBER() OVER (PARTITION BY audience {order}) AS place "
        f"FROM ({successes} LIMIT {LATEST_RUNS}) AS b) AS a WHERE place = 1 "
        "ORDER BY finished_at DESC, audience",
        limit=SHOWN,
    )


def audiences(reader: Reader) -> tuple[Grid, Grid]:
    """Return the audiences, and the latest 50 runs of them."""
    runs = reader.rows(
        f"SELECT * FROM {reader['audience_runs'].spelled} ORDER BY finished_at DESC, import_id", limit=SHOWN
    )
    return (
        Grid.of("audiences", "Audiences", _AUDIENCES, sizes(reader)),
        Grid.of(
            "audience-runs",
            "Imports of audiences",
            _RUNS,
            runs,
            f"The latest {len(runs)} imports of audiences; {_STOPPED}",
        ),
    )
