"""Puts the picture of the declared tables into the page that asks them: ``python docs/er.py``.

Below ``<!-- er -->`` stands what :func:`diagram` makes of the declarations, for Mermaid, which GitHub draws. A test
compares.
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
    """How rows of two tables find each other.

    :param how_many: in Mermaid's signs, of `one` for a row of `other` and the other way round.
    :param columns: that both have and must be equal.
    """

    one: str
    how_many: str
    other: str
    columns: tuple[str, ...]


RELATIONS = (
    Relation("mail_campaigns", "}o--o|", "mail_campaign_stats", ("mail_conn_id", "mail_name")),
    Relation("mail_campaign_stats", "||--o{", "mail_campaign_stats_snapshots", ("mail_conn_id", "mail_name")),
)

_PLACE = re.compile(r"<!-- er -->\n(?:```mermaid\n.*?```\n)?", re.DOTALL)


def diagram() -> str:
    """All tables with the types of their columns, and what joins them."""
    entities = (f"    {name} {{\n{_attributes(table)}    }}\n" for name, table in TABLES.items())
    relations = (
        f'    {relation.one} {relation.how_many} {relation.other} : "{", ".join(relation.columns)}"\n'
        for relation in RELATIONS
    )
    return "".join(("erDiagram\n", *entities, *relations))


def _attributes(table: Table) -> str:
    return "".join(
        f"        {column.type.name} {column.name}{' PK' if column.name in table.key else ''}\n"
        for column in table.columns
    )


def filled(page: str) -> str:
    """The page with the picture as it is declared now."""
    return _PLACE.sub(f"<!-- er -->\n```mermaid\n{diagram()}```\n", page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
