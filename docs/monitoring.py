"""Write the table of the metrics into ``monitoring.md``: ``python docs/monitoring.py``.

Below ``<!-- metrics -->`` stands the output of :func:`metrics`. A test compares them.
"""

from __future__ import annotations

import re
from pathlib import Path

from airflow_provider_mail._metrics import METRICS

PAGE = Path(__file__).resolve().parent / "monitoring.md"

_PLACE = re.compile(r"<!-- metrics -->\n(?:\|.*\n)*")


def metrics() -> str:
    """Return the metrics, their units, tags and meanings as a Markdown table."""
    lines = ["| metric | unit | tags | counts |", "|---|---|---|---|"]
    for each in METRICS:
        tags = ", ".join(f"`{tag}`" for tag in each.tags)
        lines.append(f"| `{each.name}` | {each.unit} | {tags} | {each.meaning} |")
    return "\n".join(lines) + "\n"


def filled(page: str) -> str:
    """Return the page with the current metrics."""
    return _PLACE.sub(lambda _: f"<!-- metrics -->\n{metrics()}", page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
