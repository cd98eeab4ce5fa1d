"""What the page shows of imports and audiences: numbers and reasons; no row, no person, not even as a digest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from airflow_provider_mail.plugin.access import step_name, task_named
from airflow_provider_mail.plugin.reader import Reader
from airflow_provider_mail.plugin.render import Cell, Column, Grid, rate
from airflow_provider_mail.warehouse.rows import decoded, moment

SHOWN = 50

LATEST_RUNS = 10_000
"""Runs among which the last success of each audience is looked for."""

ALL_FIELDS = "all fields"
"""The field of a reason that concerns no single field: the row is too short, or the service rejected it."""

_BRAKE = re.compile(r"^max_\w+: ", re.ASCII)
"""The argument in front of what a brake says."""


def imports(reader: Reader) -> tuple[Grid, Grid]:
    """Return the 50 latest imports, the latest first, and why rows of them were rejected, the most frequent first."""
    stored = reader.rows(
        "SELECT import_id, mail_conn_id, list_name, state, rows_read, rows_accepted, rows_rejected, reasons, sandbox, "
        f"finished_at FROM {reader['imports'].spelled} ORDER BY finished_at DESC, import_id",
        limit=SHOWN,
    )
    rows, reasons = list[Sequence[Any]](), list[Sequence[Any]]()
    for row in stored:
        why = decoded(row["reasons"]) or ()
        name, read, accepted = _name(str(row["import_id"])), row["rows_read"], row["rows_accepted"]
        rejected = Cell(row["rows_rejected"], href="#reasons" if why else "")
        state = Cell(row["state"], state=str(row["state"]), note="only checked" if row["sandbox"] else "")
        ended, list_name = moment(row["finished_at"]), row["list_name"] or ""
        counts = read, accepted, rejected, rate(read - accepted, read)
        rows.append((*name, state, *counts, ended, list_name, row["mail_conn_id"]))
        reasons += [(*name, reason["field"] or ALL_FIELDS, reason["reason"], reason["rows"], ended) for reason in why]
    columns = [
        *_NAME, Column("State"), Column("People", "number"), Column("Accepted", "number"),
        Column("Rejected", "number"), Column("Lost", "percent"), Column("Ended", "time"), Column("List"),
        Column("Account"),
    ]  # fmt: skip
    why_columns = [
        *_NAME, Column("Field"), Column("Reason"), Column("People", "number"), Column("Ended", "time"),
    ]  # fmt: skip
    return Grid("imports", "Imports", columns, rows), Grid("reasons", "Why people were rejected", why_columns, reasons)


_NAME = (Column("Import"), Column("Run", is_below=True))


def _name(import_id: str) -> tuple[Cell, str]:
    """Return the step of an import with its run, as far as its name shows them."""
    task = task_named(import_id)
    return (Cell(step_name(task), task=task), task[2]) if task else (Cell(import_id), "")


def audiences(reader: Reader) -> Grid:
    """Return the audiences with the size of their last successful run: a run that failed has no size."""
    columns = [
        Column("Audience"), Column("Size", "number"), Column("Last success", "time"), Column("List"),
        Column("Exclusion list"), Column("Account"),
    ]  # fmt: skip
    latest = reader.dialect.limited(
        f"SELECT import_id, audience, {reader['audience_runs'].column('size')} AS size, finished_at, send_list_name, "
        f"repel_list_name, mail_conn_id FROM {reader['audience_runs'].spelled} WHERE state = 'success' "
        "ORDER BY finished_at DESC, import_id DESC",
        LATEST_RUNS,
        0,
    )
    audiences = reader.rows(
        "SELECT audience, size, finished_at, send_list_name, repel_list_name, mail_conn_id FROM (SELECT b.*, "
        "ROW_NUMBER() OVER (PARTITION BY audience ORDER BY finished_at DESC, import_id DESC) AS place "
        f"FROM ({latest}) AS b) AS a WHERE place = 1 ORDER BY finished_at DESC, audience",
        limit=SHOWN,
    )
    rows = [
        (
            _audience(str(row["audience"])), row["size"], moment(row["finished_at"]), row["send_list_name"],
            row["repel_list_name"] or "", row["mail_conn_id"],
        )
        for row in audiences
    ]  # fmt: skip
    return Grid("audiences", "Audiences", columns, rows)


def _audience(name: str) -> str:
    """Return the step that imports an audience, which is called DAG/step."""
    dag_id, slash, step = name.partition("/")
    return f"{step} of {dag_id}" if slash else name


def audience_runs(reader: Reader) -> Grid:
    columns = [
        *_NAME, Column("Reason", is_below=True), Column("State"), Column("Size", "number"),
        Column("Joined", "number"), Column("Changed", "number"), Column("Left", "number"),
        Column("Left out", "number"), Column("Rejected", "number"), Column("Ended", "time"),
    ]  # fmt: skip
    runs = reader.rows(
        f"SELECT import_id, state, everybody, reason, {reader['audience_runs'].column('size')} AS size, joined_count, "
        "changed_count, left_count, rows_suppressed, rows_rejected, finished_at "
        f"FROM {reader['audience_runs'].spelled} "
        "ORDER BY finished_at DESC, import_id",
        limit=SHOWN,
    )
    rows = [
        (
            *_name(str(row["import_id"])), _BRAKE.sub("", row["reason"] or ""),
            Cell(row["state"], state=row["state"], note="everybody" if row["everybody"] else ""),
            row["size"] if row["state"] == "success" else None,
            row["joined_count"], row["changed_count"], row["left_count"], row["rows_suppressed"], row["rows_rejected"],
            moment(row["finished_at"]),
        )
        for row in runs
    ]  # fmt: skip
    return Grid("audience-runs", "Imports of audiences", columns, rows)
