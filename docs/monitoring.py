"""Write the table of the metrics into ``monitoring.md``: ``python docs/monitoring.py``.

Below ``<!-- metrics -->`` stands the output of :func:`metrics`. A test compares them.
"""

from __future__ import annotations

from pathlib import Path

from airflow_provider_mail._metrics import METRICS
from docs import marked

PAGE = Path(__file__).resolve().parent / "monitoring.md"


def metrics() -> str:
    """Return the metrics, their units, tags and meanings as a Markdown table."""
    rows = ((f"`{each.name}`", each.unit, ", ".join(f"`{tag}`" for tag in each.tags), each.meaning) for each in METRICS)
    return marked.table(("metric", "unit", "tags", "counts"), rows)


def filled(page: str) -> str:
    """Return the page with the current metrics."""
    return marked.filled(page, "metrics", lambda _: metrics())


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
