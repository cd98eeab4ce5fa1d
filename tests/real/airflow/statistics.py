"""What the warehouse holds, and what the service calls it."""

from __future__ import annotations

from typing import Any

from psycopg import sql

from tests.support.postgres import Database

Row = dict[str, Any]

COUNTS = {
    "sent_count": "sentCount",
    "open_count": "openCount",
    "click_count": "clickCount",
    "hard_bounce": "hardBounce",
    "soft_bounce": "softBounce",
    "unsent_count": "unsentCount",
    "unsubscribe_count": "unsubscribeCount",
}


def stored(warehouse: Database, table: str) -> dict[str, Row]:
    """Whole rows by campaign or day."""
    with warehouse.connect() as connection:
        cursor = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table)))
        names = [column.name for column in cursor.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
    return {str(row["mail_name"] if "mail_name" in row else row["stats_date"]): row for row in rows}
