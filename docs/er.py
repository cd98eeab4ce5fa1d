"""Write the entity-relationship diagram of the tables into ``questions.md``: ``python docs/er.py``.

The Mermaid block below ``<!-- er -->`` is the output of :func:`diagram`. A test compares them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_mail.warehouse.table import Table
from docs.tables import TABLES

PAGE = Path(__file__).resolve().parent / "questions.md"


@dataclass(frozen=True)
class Relation:
    """A join of two tables.

    :param one: name of the first table.
    :param how_many: cardinality in Mermaid's notation.
    :param other: name of the second table.
    :param columns: columns of both tables that are equal in matching rows.
    """

    one: str
    how_many: str
    other: str
    columns: tuple[str, ...]


RELATIONS = (
    Relation("mail_campaigns", "}o--o|", "mail_campaign_stats", ("mail_conn_id", "mail_name")),
    Relation("mail_campaigns", "|o--o{", "mail_events", ("mail_conn_id", "guid")),
    Relation("mail_transactional_stats", "|o--o{", "mail_event_differences", ("mail_conn_id", "stats_date")),
    Relation("mail_campaign_stats", "||--o{", "mail_campaign_stats_snapshots", ("mail_conn_id", "mail_name")),
    Relation("mail_contacts", "|o--o{", "mail_contacts_history", ("mail_conn_id", "team_name", "id")),
    Relation(
        "mail_contacts_history_readings", "}|--o{", "mail_contacts_history", ("mail_conn_id", "team_name", "list_id")
    ),
    Relation("mail_lists", "||--o{", "mail_contacts", ("mail_conn_id", "list_name")),
)

_PLACE = re.compile(r"<!-- er -->\n(?:```mermaid\n.*?```\n)?", re.DOTALL)


def diagram() -> str:
    """Return all tables with their column types, and the relations, as a Mermaid diagram."""
    entities = (f"    {name} {{\n{_attributes(table)}    }}\n" for name, table in TABLES.items())
    relations = (
        f'    {relation.one} {relation.how_many} {relation.other} : "{", ".join(relation.columns)}"\n'
        for relation in RELATIONS
    )
    return "".join(("erDiagram\n", *entities, *relations))


def _attributes(table: Table) -> str:
    return "".join(
        f"        {column.type.name} {column.name}{' PK' if column.name in table.key else ''}\n"
        for column in table.stored_columns
    )


def filled(page: str) -> str:
    """Return the page with the current diagram."""
    return _PLACE.sub(f"<!-- er -->\n```mermaid\n{diagram()}```\n", page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
