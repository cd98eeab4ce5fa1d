"""What the page shows of audiences: their sizes, and what each run changed; no person, not even as a digest."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from airflow_provider_mail.plugin.access import Task
from airflow_provider_mail.plugin.grid import Cell, Column, Grid
from airflow_provider_mail.plugin.imports import name_of
from airflow_provider_mail.plugin.reader import Reader, Row, moment

SHOWN = 50


def latest(reader: Reader) -> Sequence[Row]:
    if not reader.has("audience"):
        return []
    # A run that failed has no size.
    return reader.rows(
        reader.limited(
            "SELECT audience, size, finished_at, send_list_name, repel_list_name, mail_conn_id FROM ("
            f"SELECT audience, {reader['audience'].column('size')} AS size, finished_at, send_list_name, "
            "repel_list_name, mail_conn_id, "
            "ROW_NUMBER() OVER (PARTITION BY audience ORDER BY finished_at DESC, import_id DESC) AS place "
            f"FROM {reader['audience'].spelled} WHERE state = 'success') AS a WHERE place = 1 "
            "ORDER BY finished_at DESC, audience",
            SHOWN,
        )
    )


def runs(reader: Reader) -> Sequence[Row]:
    if not reader.has("audience"):
        return []
    statement = (
        f"SELECT import_id, state, everybody, reason, {reader['audience'].column('size')} AS size, joined, changed, "
        f"left_count, suppressed, rejected, finished_at FROM {reader['audience'].spelled} "
        "ORDER BY finished_at DESC, import_id"
    )
    return reader.rows(reader.limited(statement, SHOWN))


def stopped(reader: Reader, since: datetime.datetime) -> tuple[int, datetime.datetime | None]:
    """Return how many runs a brake has stopped since a time, and when it stopped the first of them."""
    if not reader.has("audience"):
        return 0, None
    table = reader["audience"]
    (row,) = reader.rows(
        f"SELECT COUNT(*) AS total, MIN(finished_at) AS earliest FROM {table.spelled} "
        "WHERE state = 'stopped' AND finished_at >= ?",
        [table.parameter("finished_at", since)],
    )
    return int(row["total"]), moment(row["earliest"])


def audiences_table(audiences: Sequence[Row]) -> Grid:
    columns = [
        Column("Audience"), Column("Size", "number"), Column("Last success", "time"), Column("List"),
        Column("Exclusion list"), Column("Account"),
    ]  # fmt: skip
    rows = [
        (
            row["audience"], row["size"], moment(row["finished_at"]), row["send_list_name"],
            row["repel_list_name"] or "", row["mail_conn_id"],
        )
        for row in audiences
    ]  # fmt: skip
    return Grid("audiences", "Audiences", columns, rows)


def runs_table(runs: Sequence[Row], links: Mapping[Task, str]) -> Grid:
    columns = [
        Column("Run"), Column("Reason", is_below=True), Column("State"), Column("Size", "number"),
        Column("Joined", "number"), Column("Changed", "number"), Column("Left", "number"),
        Column("Suppressed", "number"), Column("Rejected", "number"), Column("Ended", "time"),
    ]  # fmt: skip
    rows = [
        (
            name_of(str(row["import_id"]), links), row["reason"] or "",
            Cell(row["state"], state=row["state"], note="everybody" if row["everybody"] else ""),
            row["size"] if row["state"] == "success" else None,
            row["joined"], row["changed"], row["left_count"], row["suppressed"], row["rejected"],
            moment(row["finished_at"]),
        )
        for row in runs
    ]  # fmt: skip
    return Grid("audience-runs", "Runs of audiences", columns, rows)
