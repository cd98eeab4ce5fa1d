"""What the page shows of imports and audiences: numbers and reasons; no row, no person, not even as a digest."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from airflow_provider_mail.plugin.access import task_named
from airflow_provider_mail.plugin.reader import Reader, Row
from airflow_provider_mail.plugin.render import Cell, Column, Grid, rate
from airflow_provider_mail.warehouse.rows import decoded, moment

SHOWN = 50

WHOLE_ROW = "whole row"
"""The field of a reason that concerns no single field: the row is too short, or the service rejected it."""


COUNTS = {"rows_read": "Read", "rows_accepted": "Accepted", "rows_rejected": "Rejected"}
"""The counts that are shown: columns of the table of imports with their headings."""


@dataclass(frozen=True)
class Import:
    """One import.

    :param import_id: the task instance, as ``dag/task/run`` with the map index of a mapped task.
    :param counts: numbers of rows, by the columns of `COUNTS`; without its counts only those of rejected rows.
    :param at: when its last try ended or, without its counts, when the last row was rejected.
    :param reasons: field (empty if it is the whole row), reason and number of rows, the most frequent first.
    :param state: how its last try ended; empty without its counts, as the next ones.
    :param list_name: the list that the contacts were added to; empty without one.
    """

    import_id: str
    counts: Mapping[str, int]
    at: datetime.datetime | None
    reasons: Sequence[tuple[str, str, int]]
    state: str = ""
    list_name: str = ""
    account: str = ""
    sandbox: bool = False


def get(reader: Reader, rejects: Reader) -> Sequence[Import]:
    """Return the 50 latest imports, the latest first; those that stored no counts by their rejected rows."""
    counted = _counted(reader)
    counted_ids = {item.import_id for item in counted}
    shown = [*counted, *(item for item in _rejected(rejects) if item.import_id not in counted_ids)]
    shown.sort(key=lambda item: item.at or datetime.datetime.min.replace(tzinfo=datetime.UTC), reverse=True)
    return shown[:SHOWN]


def _counted(reader: Reader) -> Sequence[Import]:
    if not reader.has("imports"):
        return []
    rows = reader.rows(
        f"SELECT import_id, mail_conn_id, list_name, state, {', '.join(COUNTS)}, reasons, sandbox, finished_at "
        f"FROM {reader['imports'].spelled} ORDER BY finished_at DESC, import_id",
        limit=SHOWN,
    )
    return [
        Import(
            import_id=str(row["import_id"]),
            counts={name: int(row[name]) for name in COUNTS},
            at=moment(row["finished_at"]),
            reasons=[
                (str(reason["field"]), str(reason["reason"]), int(reason["rows"]))
                for reason in decoded(row["reasons"]) or ()
            ],
            state=str(row["state"]),
            list_name=str(row["list_name"] or ""),
            account=str(row["mail_conn_id"]),
            sandbox=bool(row["sandbox"]),
        )
        for row in rows
    ]


def _rejected(reader: Reader) -> Sequence[Import]:
    if not reader.has("rejects"):
        return []
    table, number = reader["rejects"].spelled, reader["rejects"].column("row_number")
    latest = reader.rows(
        f"SELECT import_id, COUNT(DISTINCT {number}) AS rejected, MAX(rejected_at) AS latest FROM {table} "
        "GROUP BY import_id ORDER BY latest DESC, import_id",
        limit=SHOWN,
    )
    if not latest:
        return []
    marks = ", ".join("?" for _ in latest)
    rows = reader.rows(
        f"SELECT import_id, field, reason, COUNT(*) AS rejected FROM {table} WHERE import_id IN ({marks}) "
        "GROUP BY import_id, field, reason ORDER BY import_id, rejected DESC, field, reason",
        [row["import_id"] for row in latest],
    )
    reasons = {
        str(import_id): [(str(row["field"]), str(row["reason"]), int(row["rejected"])) for row in group]
        for import_id, group in groupby(rows, lambda row: row["import_id"])
    }
    return [
        Import(
            str(row["import_id"]),
            {"rows_rejected": int(row["rejected"])},
            moment(row["latest"]),
            reasons.get(str(row["import_id"]), []),
        )
        for row in latest
    ]


def imports_table(imports: Sequence[Import]) -> Grid:
    columns = [
        Column("Import"), Column("State"), *(Column(heading, "number") for heading in COUNTS.values()),
        Column("Missing", "percent"), Column("Ended", "time"), Column("List"), Column("Account"),
    ]  # fmt: skip
    rows = [
        (
            _name(item.import_id),
            Cell(item.state, state=item.state, note="sandbox" if item.sandbox else ""),
            *_count_cells(item, number), item.at, item.list_name, item.account,
        )
        for number, item in enumerate(imports, 1)
    ]  # fmt: skip
    return Grid("imports", "Imports", columns, rows)


def _count_cells(item: Import, number: int) -> tuple[Any, ...]:
    """Return the counts and the share of missing rows; the number of rejected rows leads to their reasons."""
    cells: dict[str, Any] = {name: item.counts.get(name) for name in COUNTS}
    missing = None
    if cells["rows_accepted"] is not None:
        missing = rate(cells["rows_read"] - cells["rows_accepted"], cells["rows_read"])
    cells["rows_rejected"] = Cell(cells["rows_rejected"], href=f"#reasons-{number}" if item.reasons else "")
    return *cells.values(), missing


def reasons_table(imports: Sequence[Import]) -> Grid:
    columns = [Column("Import"), Column("Field"), Column("Reason"), Column("Rows", "number")]
    rows = [
        (item.import_id, field or WHOLE_ROW, reason, count) for item in imports for field, reason, count in item.reasons
    ]
    return Grid("reasons", "Why rows were rejected", columns, rows)


def _name(import_id: str) -> Cell:
    return Cell(import_id, task=task_named(import_id))


def audiences(reader: Reader) -> Grid:
    """Return the audiences with the size of their last successful run: a run that failed has no size."""
    columns = [
        Column("Audience"), Column("Size", "number"), Column("Last success", "time"), Column("List"),
        Column("Exclusion list"), Column("Account"),
    ]  # fmt: skip
    audiences: Sequence[Row] = []
    if reader.has("audience"):
        audiences = reader.rows(
            "SELECT audience, size, finished_at, send_list_name, repel_list_name, mail_conn_id FROM ("
            f"SELECT audience, {reader['audience'].column('size')} AS size, finished_at, send_list_name, "
            "repel_list_name, mail_conn_id, "
            "ROW_NUMBER() OVER (PARTITION BY audience ORDER BY finished_at DESC, import_id DESC) AS place "
            f"FROM {reader['audience'].spelled} WHERE state = 'success') AS a WHERE place = 1 "
            "ORDER BY finished_at DESC, audience",
            limit=SHOWN,
        )
    rows = [
        (
            row["audience"], row["size"], moment(row["finished_at"]), row["send_list_name"],
            row["repel_list_name"] or "", row["mail_conn_id"],
        )
        for row in audiences
    ]  # fmt: skip
    return Grid("audiences", "Audiences", columns, rows)


def audience_runs(reader: Reader) -> Grid:
    columns = [
        Column("Run"), Column("Reason", is_below=True), Column("State"), Column("Size", "number"),
        Column("Joined", "number"), Column("Changed", "number"), Column("Left", "number"),
        Column("Suppressed", "number"), Column("Rejected", "number"), Column("Ended", "time"),
    ]  # fmt: skip
    runs: Sequence[Row] = []
    if reader.has("audience"):
        runs = reader.rows(
            f"SELECT import_id, state, everybody, reason, {reader['audience'].column('size')} AS size, joined, "
            f"changed, left_count, suppressed, rejected, finished_at FROM {reader['audience'].spelled} "
            "ORDER BY finished_at DESC, import_id",
            limit=SHOWN,
        )
    rows = [
        (
            _name(str(row["import_id"])), row["reason"] or "",
            Cell(row["state"], state=row["state"], note="everybody" if row["everybody"] else ""),
            row["size"] if row["state"] == "success" else None,
            row["joined"], row["changed"], row["left_count"], row["suppressed"], row["rejected"],
            moment(row["finished_at"]),
        )
        for row in runs
    ]  # fmt: skip
    return Grid("audience-runs", "Runs of audiences", columns, rows)
