"""Write marked parts of the example DAGs, and SQL files, into the pages: ``python docs/embed.py``.

The code block below ``<!-- example: mail_campaign.py howto_create_campaign -->`` is the part of that example DAG
between ``# [START ...]`` and ``# [END ...]`` of that name. The block below ``<!-- sql: freshness.sql -->`` is that
file of ``docs/sql``, and the block below ``<!-- file: how-to/test-a-dag/test_newsletter.py -->`` is that file of
``docs``. A test compares them.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_PLACE = re.compile(r"<!-- example: (\S+) (\S+) -->\n```python\n.*?```\n", re.DOTALL)
_FILE_PLACE = re.compile(r"<!-- file: (\S+) -->\n```python\n.*?```\n", re.DOTALL)
_SQL_PLACE = re.compile(r"<!-- sql: (\S+) -->\n```sql\n.*?```\n", re.DOTALL)


def marked(file: str, name: str) -> str:
    """Return the part of an example DAG between the markers of this name."""
    source = (ROOT / "example_dags" / file).read_text()
    found = re.search(rf"^ *# \[START {name}\]\n(.*?)^ *# \[END {name}\]$", source, re.DOTALL | re.MULTILINE)
    if found is None:
        raise LookupError(f"example_dags/{file} has no part marked {name}")
    return textwrap.dedent(found[1])


def embedded(page: str) -> str:
    """Return the page with the current examples and SQL files."""
    page = _PLACE.sub(
        lambda place: f"<!-- example: {place[1]} {place[2]} -->\n```python\n{marked(place[1], place[2])}```\n", page
    )
    page = _FILE_PLACE.sub(
        lambda place: f"<!-- file: {place[1]} -->\n```python\n{(ROOT / 'docs' / place[1]).read_text()}```\n", page
    )
    return _SQL_PLACE.sub(lambda place: f"<!-- sql: {place[1]} -->\n```sql\n{_sql(place[1])}```\n", page)


def _sql(file: str) -> str:
    return (ROOT / "docs" / "sql" / file).read_text()


if __name__ == "__main__":
    for path in sorted((ROOT / "docs").rglob("*.md")):
        path.write_text(embedded(path.read_text()))
