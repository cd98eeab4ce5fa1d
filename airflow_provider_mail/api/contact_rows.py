"""Rows of a source made into values that an import takes, or set aside with a reason.

Checking is on the hot path of a million rows: a chunk goes through one compiled validator, and Python looks at single
values only in chunks where something is wrong or not text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import date, time
from decimal import Decimal
from typing import Annotated, Any, TypeAlias
from uuid import UUID

from pydantic import ConfigDict, StringConstraints, TypeAdapter, ValidationError

from airflow_provider_mail.api.types import ADDRESS_PATTERN, FORMS

Row: TypeAlias = Sequence[Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """A row that was set aside.

    :param row_number: its place in the source, from 1.
    :param field: the property that is wrong; empty when the service refused the row as a whole.
    :param reason: why, without the row's values.
    :param row: the values.
    """

    row_number: int
    field: str
    reason: str
    row: Row = dataclasses.field(repr=False)


class RowChecker:
    """Checks rows whose values belong to these properties, by position.

    :param properties: ``email``, ``name``, ``phoneNumber`` or others that the platform knows.
    :param null_value: what is sent for a missing value.
    """

    def __init__(self, properties: Sequence[str], null_value: str | None = None) -> None:
        self._properties = tuple(properties)
        self._null_value = null_value
        self._email = self._properties.index("email") if "email" in self._properties else None
        self._phone = self._properties.index("phoneNumber") if "phoneNumber" in self._properties else None
        row_type: Any = tuple[tuple(self._type_of(name) for name in self._properties)]  # type: ignore[misc]
        self._rows: TypeAdapter[list[tuple[str | None, ...]]] = TypeAdapter(
            list[row_type], config=ConfigDict(hide_input_in_errors=True)
        )
        self._convert_first = False

    def check(self, rows: Sequence[Row], first_number: int) -> tuple[list[Row], Sequence[int], list[Reject]]:
        """Sort good rows from bad.

        :param rows: as they came from the source.
        :param first_number: the number of the first.
        :returns: the good rows as text, their numbers, and what was set aside.
        """
        if not self._convert_first:
            try:
                good = self._rows.validate_python(rows)
            except ValidationError as error:
                # Columns of numbers or dates fail in every chunk: from now on they are converted before the check.
                self._convert_first = any(problem["type"] == "string_type" for problem in error.errors())
            else:
                if not self._some_unreachable(good):
                    return self._with_nulls(good), range(first_number, first_number + len(good)), []
        return self._check_each(rows, first_number)

    def _check_each(self, rows: Sequence[Row], first_number: int) -> tuple[list[Row], Sequence[int], list[Reject]]:
        texts = [self._as_text(row) for row in rows]
        try:
            self._rows.validate_python(texts)
            reasons: dict[int, tuple[str, str]] = {}
        except ValidationError as error:
            reasons = self._reasons(error)
        good: list[Row] = []
        numbers: list[int] = []
        rejects: list[Reject] = []
        for place, text in enumerate(texts):
            number = first_number + place
            field, reason = reasons.get(place) or self._unreachable(text) or ("", "")
            if reason:
                rejects.append(Reject(row_number=number, field=field, reason=reason, row=rows[place]))
            else:
                good.append(text)
                numbers.append(number)
        return self._with_nulls(good), numbers, rejects

    def _type_of(self, name: str) -> Any:
        """Email or phone number must be there when it is the only one of the two that is mapped."""
        if name == "email":
            address = Annotated[str, StringConstraints(strict=True, pattern=ADDRESS_PATTERN)]
            return address if self._phone is None else address | None
        if name == "phoneNumber" and self._email is None:
            return Annotated[str, StringConstraints(strict=True, min_length=1)]
        return Annotated[str, StringConstraints(strict=True)] | None

    def _some_unreachable(self, rows: Sequence[Row]) -> bool:
        email, phone = self._email, self._phone
        if email is None or phone is None:
            return False
        return any(row[email] is None and not row[phone] for row in rows)

    def _unreachable(self, row: Row) -> tuple[str, str] | None:
        return ("email", "neither email nor phoneNumber is given") if self._some_unreachable([row]) else None

    def _with_nulls(self, rows: list[Any]) -> list[Row]:
        if self._null_value is None:
            return rows
        return [tuple(self._null_value if value is None else value for value in row) for row in rows]

    def _as_text(self, row: Row) -> Row:
        values = [_as_text(value) for value in row]
        for place in (self._email, self._phone):
            # Empty text in a source means that there is none.
            if place is not None and place < len(values) and values[place] == "":
                values[place] = None
        return tuple(values)

    def _reasons(self, error: ValidationError) -> dict[int, tuple[str, str]]:
        """What is wrong with which row: its place, the property, the reason. The first problem of a row counts."""
        reasons: dict[int, tuple[str, str]] = {}
        for problem in error.errors(include_url=False):
            place, *rest = problem["loc"]
            column = rest[0] if rest else None
            if problem["type"] in ("missing", "too_long", "tuple_type"):
                reason = ("", f"does not have {len(self._properties)} values")
            else:
                name = self._properties[column] if isinstance(column, int) else ""
                reason = (name, _words(problem))
            reasons.setdefault(int(place), reason)
        return reasons


def _as_text(value: Any) -> Any:
    """Text for what has one obvious form as text; everything else is left for the check to refuse."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal | float | UUID):
        return str(value)
    if isinstance(value, date | time):
        return value.isoformat()
    return value


def _words(problem: Any) -> str:
    if problem["type"] == "string_type":
        value = problem["input"]
        return "is empty" if value is None else f"is of type {type(value).__name__}: cast it to text"
    if problem["type"] == "string_too_short":
        return "is empty"
    return FORMS.get(problem.get("ctx", {}).get("pattern")) or str(problem["msg"])
