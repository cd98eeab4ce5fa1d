"""Builds personalized messages from the rows of a query (specification, "Transactional email", batch form)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.api.flows.validate_rows import RowChecker


class RowMessages:
    """Maps the columns of a query to the parts of a message.

    :param to: the column with the address.
    :param name: the column with the name of the recipient, if any.
    :param cc: the column with addresses for copies, separated by commas, if any.
    :param bcc: the same for blind copies.
    :param tags: the tag of each column with a value; ``None``: every column except those of the addresses, by its name.
    :raises MailValidationError: naming the operator's argument and the query's columns.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        to: str,
        name: str | None,
        cc: str | None,
        bcc: str | None,
        tags: Mapping[str, str] | None,
    ) -> None:
        roles = {"to": to, "name": name, "cc": cc, "bcc": bcc}
        self._named = {part: column for part, column in roles.items() if column}
        addresses = {self._named.get(part) for part in ("to", "cc", "bcc")}
        tags = {column: column for column in names if column not in addresses} if tags is None else tags
        for argument, columns in {
            **{f"{part}_column": [column] for part, column in self._named.items()},
            "columns": list(tags),
        }.items():
            for column in columns:
                if (occurrences := names.count(column)) != 1:
                    problem = "more than one" if occurrences else "no"
                    has = "" if occurrences else f"; it has {', '.join(names)}"
                    raise MailValidationError(f"{argument}: the query has {problem} {column!r}{has}")
        twice = sorted({tag for tag in tags.values() if list(tags.values()).count(tag) > 1})
        if twice:
            raise MailValidationError(f"columns: duplicate tags: {', '.join(twice)}")
        self._at = {part: names.index(column) for part, column in self._named.items()}
        self._tags = tuple(tags.values())
        self._tags_at = [names.index(column) for column in tags]

    def of(self, batches: Iterable[Sequence[Sequence[Any]]]) -> Iterator[dict[str, Any]]:
        """Build a message for each row.

        :raises MailValidationError: for an invalid row, naming its number, from 1, and its column.
        """
        # As for contacts, every value that has one obvious form as text is sent as text.
        checker = RowChecker([f"params.{tag}" for tag in self._tags])
        first = 1
        for rows in batches:
            checked = checker.check([[row[place] for place in self._tags_at] for row in rows], first)
            for reject in checked.rejects:
                raise MailValidationError(f"sql: row {reject.row_number}, {reject.field}: {reject.reason}")
            values = msgspec.json.decode(checked.encoded)
            for number, (row, texts) in enumerate(zip(rows, values, strict=True), first):
                params = {tag: text for tag, text in zip(self._tags, texts, strict=True) if text is not None}
                yield {**self._people(number, row), **({"params": params} if params else {})}
            first += len(rows)

    def by_row(self, error_message: str) -> str:
        """Rephrase an error about a message in numbers of rows and names of columns.

        :param error_message: the message of an error, with messages by position, such as ``messages[0].to``.
        """

        def place(match: re.Match[str]) -> str:
            part = "name" if match[3] == "name" else match[2]
            column = self._named.get(part or "")
            row = f"row {int(match[1]) + 1}"
            if column:
                return f"{row}, column {column!r}"
            return f"{row}.{part}" if part else row

        translated = re.sub(r"\bmessages\[(\d+)\](?:\.(\w+))?(?:\[\d+\])?(?:\.(email|name))?", place, error_message)
        return re.sub(r"^SendBatch: (?=row )", "sql: ", translated)

    def _people(self, number: int, row: Sequence[Any]) -> dict[str, Any]:
        if row[self._at["to"]] in (None, ""):
            raise MailValidationError(f"sql: row {number}, column {self._named['to']!r}: is empty")
        to = {"email": row[self._at["to"]]}
        if "name" in self._at and row[self._at["name"]] not in (None, ""):
            to["name"] = row[self._at["name"]]
        copies = {part: self._addresses(number, part, row) for part in ("cc", "bcc") if part in self._at}
        return {"to": to, **{part: addresses for part, addresses in copies.items() if addresses}}

    def _addresses(self, number: int, part: str, row: Sequence[Any]) -> list[str]:
        text = row[self._at[part]]
        if text is not None and not isinstance(text, str):
            raise MailValidationError(
                f"sql: row {number}, column {self._named[part]!r}: is of type {type(text).__name__}: cast it to text"
            )
        return [address.strip() for address in (text or "").split(",") if address.strip()]
