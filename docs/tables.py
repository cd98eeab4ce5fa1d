"""Write the columns of the tables into ``warehouse.md``: ``python docs/tables.py``.

The table below ``<!-- table: mail_contacts -->`` is the output of :func:`columns`. A test compares them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

from airflow_provider_mail.warehouse.table import Column, Table
from airflow_provider_mail.warehouse.tables import registry
from airflow_provider_mail.warehouse.tables.imports import REJECTS
from airflow_provider_mail.warehouse.tables.resources import LISTS, SENDERS, TEMPLATES
from docs import marked

PAGE = Path(__file__).resolve().parent / "warehouse.md"
TABLES: Mapping[str, Table] = {
    **registry.TABLES,
    "mail_lists": LISTS,
    "mail_templates": TEMPLATES,
    "mail_senders": SENDERS,
    "rejects": REJECTS,
}
"""The tables, by their name in the page."""


COMMON = ("mail_conn_id", "team_name", "observed_at", "loaded_at", "run_id", "other_fields")
"""Columns of many tables, which the page explains once."""

STATE = ("mail_audiences", "mail_audiences_members", "mail_memory", "mail_memory_requests", "mail_memory_alerts")
"""Tables that people only create: the page has all their columns, without the meanings."""

FIELDS = ("mail_lists", "mail_templates", "mail_senders")
"""Tables whose columns are the fields of the service: the page has the meanings of the codes alone."""

ENDINGS = ("; only when mail_status is 2", "; 0 when nothing was sent")
"""What the page says once of all columns of a table that end so."""

SAME = {"mail_campaign_stats_snapshots": "mail_campaign_stats"}
"""Tables of which the page lists only the columns that another one does not have."""


def columns(table: Table, without: Table | None = None) -> str:
    """Return the columns, their types and meanings as a table; key columns are bold.

    Left out are :data:`COMMON` and the columns of another table. Neighbors that mean the same share a row.
    """
    known = {(column.name, column.comment) for column in without.stored_columns} if without is not None else set()
    shown = [
        column
        for column in table.stored_columns
        if column.name not in COMMON and (column.name, column.comment) not in known
    ]
    if table in map(TABLES.get, (*STATE, *FIELDS)):
        listed = table.stored_columns if table in map(TABLES.get, STATE) else shown
        return marked.table(("columns",), [("; ".join(_name(each, table) for each in listed),)])
    rows = []
    for comment, same in groupby(shown, lambda column: column.comment):
        names = (_name(each, table) for each in same)
        rows.append(("; ".join(names), re.sub(f"({'|'.join(ENDINGS)})$", "", comment)))
    return marked.table(("column", "meaning"), rows)


def _name(column: Column, table: Table) -> str:
    name = f"**`{column.name}`**" if column.name in table.key else f"`{column.name}`"
    return f"{name} {column.type.name}{'?' if column.nullable else ''}"


def filled(page: str) -> str:
    """Return the page with the current columns of every table."""
    return marked.filled(page, "table", lambda name: columns(TABLES[name], TABLES.get(SAME.get(name, ""))))


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
