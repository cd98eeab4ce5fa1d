"""Generated tables in the pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table.

    :param head: the heads of the columns.
    :param rows: the cells of each row.
    """
    lines = (f"| {' | '.join(cells)} |\n" for cells in rows)
    return "".join((f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n", *lines))


def filled(page: str, marker: str, make: Callable[[str], str]) -> str:
    """Return a page with each table below ``<!-- marker: name -->``, or ``<!-- marker -->``, as it is now.

    :param page: text of the page.
    :param marker: the marker.
    :param make: returns the table of a name, which is empty where there is none.
    """
    place = re.compile(rf"(<!-- {marker}(?:: (\w+))? -->\n)(?:\|.*\n)*")
    return place.sub(lambda found: found[1] + make(found[2] or ""), page)
