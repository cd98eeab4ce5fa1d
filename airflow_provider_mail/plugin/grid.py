"""Tables of a page: declared once, shown as HTML and downloaded as CSV."""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal["text", "number", "percent", "time", "day", "drawing"]

CSV_ROWS = 10_000
"""Maximum number of rows in a CSV."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a text begins that spreadsheets would compute."""


@dataclass(frozen=True)
class Column:
    """A column.

    :param kind: how its values are shown; a drawing repeats another column and is not in the CSV.
    :param is_below: whether the page shows it below the name of the row; the CSV has it as a column.
    :param sort: the address of the page sorted by this column; empty if it is not sorted by it.
    :param sorted: the direction in which the rows are sorted by it; empty if they are not.
    """

    label: str
    kind: Kind = "text"
    is_below: bool = False
    sort: str = ""
    sorted: Literal["", "ascending", "descending"] = ""


@dataclass(frozen=True)
class Cell:
    """A value with more than its text.

    :param value: what the CSV has.
    :param href: where it leads.
    :param is_outside: whether that is outside of the page.
    :param state: the class of a colored label; empty for plain text.
    :param note: small text behind it, not in the CSV.
    :param choice: the value of the check box before it; empty for none.
    """

    value: Any
    href: str = ""
    is_outside: bool = False
    state: str = ""
    note: str = ""
    choice: str = ""


@dataclass(frozen=True)
class Grid:
    """A table.

    :param name: its name in the address of its CSV.
    :param caption: what it is called; screen readers say it.
    :param rows: the values of each row, plain or as `Cell`; the first one is the row's name.
    :param total: a last row, shown only.
    :param all_rows: reads the rows of the CSV, where the page shows a part of them.
    """

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    total: Sequence[Any] = ()
    all_rows: Callable[[], Sequence[Sequence[Any]]] | None = None

    def cells(self, row: Sequence[Any]) -> list[tuple[Column, Cell]]:
        return [
            (column, value if isinstance(value, Cell) else Cell(value))
            for column, value in zip(self.columns, row, strict=True)
        ]

    def csv(self, zone: datetime.tzinfo) -> str:
        """Return its rows as CSV: times in ISO 8601, rates in percent, unknown values empty.

        :param zone: the zone of its times.
        """
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow([_safe(column.label) for column in self.columns if column.kind != "drawing"])
        for row in (self.all_rows() if self.all_rows else self.rows)[:CSV_ROWS]:
            cells = [(column, cell) for column, cell in self.cells(row) if column.kind != "drawing"]
            writer.writerow([_plain(column, cell.value, zone) for column, cell in cells])
        return text.getvalue()


def _plain(column: Column, value: Any, zone: datetime.tzinfo) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime.datetime):
        return value.astimezone(zone).isoformat(timespec="seconds")
    if column.kind == "percent":
        return f"{float(value):.2f}"
    if column.kind == "number":
        return str(int(value))
    return str(value) if column.kind == "day" else _safe(str(value))


def _safe(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def rate(count: Any, whole: Any) -> float | None:
    """Return a count in percent of another one; ``None`` where one of them is unknown or there is nothing to divide."""
    return 100.0 * float(count) / float(whole) if count is not None and whole else None
