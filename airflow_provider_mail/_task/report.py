"""The rows of a query as reports: an HTML table and a CSV file for each recipient."""

from __future__ import annotations

import csv
import io
import json
import pickle
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from html import escape
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec

from airflow_provider_mail._task.messages import check_columns, private_database
from airflow_provider_mail.api._core.fields import address_key
from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.api.flows.validate_rows import RowChecker

_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d\s().,/-]*\Z)")
"""The beginning of text that a spreadsheet would run as a formula; a phone number such as +49 30 1234 is none."""

_CELL = "padding:6px 10px;border-bottom:1px solid #d9dee3;text-align:{};vertical-align:top"
_HEAD = _CELL.format("{}") + ";background:#f3f5f7;font-weight:600"


@dataclass(frozen=True, slots=True)
class Report:
    """The mail of one recipient.

    :param key: identifies the recipient, whatever the order of the rows.
    :param to: the recipient as the first row spells it; empty if all rows are one report.
    :param file: CSV, in UTF-8 with a byte order mark, by which spreadsheets recognize it.
    """

    key: str
    to: str
    rows: int
    table: str
    file: bytes


class ReportRows:
    """Groups the rows of a query by recipient, in a private database on disk when there are many.

    :param group_by: the column with the recipient; ``None``: all rows are one report.
    :param headings: the columns to show, with their headings. Default: all except ``group_by``.
    :raises MailValidationError: naming the operator's argument and the query's columns.
    """

    def __init__(self, names: Sequence[str], *, group_by: str | None, headings: Mapping[str, str] | None) -> None:
        headings = {name: name for name in names if name != group_by} if headings is None else headings
        check_columns(names, {"group_by": [group_by] if group_by else [], "columns": headings})
        self._headings = list(headings.values())
        self._shown = [names.index(column) for column in headings]
        self._checker = RowChecker([f"column {column!r}" for column in headings])
        self._group_by = group_by
        self._group_at = names.index(group_by) if group_by else None
        self._numeric = [True] * len(headings)
        self._database = private_database(
            "grouped (recipient TEXT, number INTEGER, spelled TEXT, texts BLOB, PRIMARY KEY (recipient, number))"
        )
        self.count = 0

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows.

        :raises MailValidationError: for an invalid row, naming its number, from 1, and its column.
        """
        values = [[_plain(row[place]) for place in self._shown] for row in rows]
        checked = self._checker.check(values, self.count + 1)
        for reject in checked.rejects:
            raise MailValidationError(f"sql: row {reject.row_number}, {reject.field}: {reject.reason}")
        for row, own, texts in zip(rows, values, msgspec.json.decode(checked.encoded), strict=True):
            self.count += 1
            to = "" if self._group_at is None else row[self._group_at]
            if self._group_by and not (isinstance(to, str) and to.strip()):
                problem = "is empty" if to is None or isinstance(to, str) else f"is of type {type(to).__name__}"
                raise MailValidationError(
                    f"sql: row {self.count}, column {self._group_by!r}: {problem}: an address is needed"
                )
            self._numeric = [
                numeric
                and (value is None or (isinstance(value, int | float | Decimal) and not isinstance(value, bool)))
                for numeric, value in zip(self._numeric, own, strict=True)
            ]
            self._database.execute(
                "INSERT INTO grouped VALUES (?, ?, ?, ?)", (address_key(to), self.count, to, pickle.dumps(texts))
            )

    def reports(self, most: int, *, attached: bool) -> Iterator[Report]:
        """Yield the reports in the order of their recipients.

        :param most: rows in the table; the file has all.
        :param attached: whether there is a file.
        """
        rows = self._database.execute("SELECT recipient, spelled, texts FROM grouped ORDER BY recipient, number")
        for key, group in groupby(rows, key=itemgetter(0)):
            to, shown, count, text = "", [], 0, io.StringIO(newline="")
            writer = csv.writer(text)
            writer.writerow(self._headings)
            for _, spelled, packed in group:
                values = pickle.loads(packed)
                to, count = to or spelled, count + 1
                if count <= most:
                    shown.append(values)
                if attached:
                    writer.writerow(self._safe(values))
            table = self._table(shown, count - len(shown), attached=attached)
            yield Report(key, to, count, table, text.getvalue().encode("utf-8-sig") if attached else b"")

    def close(self) -> None:
        self._database.close()

    def _safe(self, values: Iterable[str | None]) -> list[str | None]:
        # A quotation mark in front makes it text.
        return [
            f"'{value}" if value and not numeric and _FORMULA.match(value) else value
            for value, numeric in zip(values, self._numeric, strict=True)
        ]

    def _table(self, rows: Iterable[Sequence[str | None]], more: int, *, attached: bool) -> str:
        sides = ["right" if numeric else "left" for numeric in self._numeric]
        head = "".join(
            f'<th scope="col" style="{_HEAD.format(side)}">{_shown(text)}</th>'
            for text, side in zip(self._headings, sides, strict=True)
        )
        body = "".join(
            "<tr>"
            + "".join(
                f'<td dir="auto" style="{_CELL.format(side)}">{_shown(text)}</td>'
                for text, side in zip(row, sides, strict=True)
            )
            + "</tr>"
            for row in rows
        )
        if more:
            where = ", in the attached file" if attached else ""
            style = f"{_CELL.format('left')};color:#4a5560"
            body += f'<tr><td colspan="{len(sides)}" style="{style}">and {more:,} more{where}</td></tr>'
        return (
            '<table style="border-collapse:collapse;font:14px/1.4 system-ui,sans-serif">'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


def _plain(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list) else value


def _shown(text: str | None) -> str:
    """Return a value as HTML, in which the service finds no tag."""
    return escape(text or "").replace("{", "&#123;").replace("\r\n", "\n").replace("\n", "<br>")
