"""Rows of a source made into values that an import takes, or set aside with a reason.

Checking is on the hot path of a million rows: a chunk goes through one compiled validator, and Python looks only at the
rows that it does not take as they are. What becomes of a row never depends on its neighbours.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from operator import itemgetter
from typing import Annotated, Any, TypeAlias
from uuid import UUID

import msgspec
from pydantic import ConfigDict, StringConstraints, TypeAdapter, ValidationError

from airflow_provider_mail.api._core.fields import (
    ADDRESS_PATTERN,
    OPTIONAL_PHONE_PATTERN,
    PATTERN_MESSAGES,
    PHONE_PATTERN,
)

Row: TypeAlias = Sequence[Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """A row that was set aside.

    :param row_number: its place in the source, from 1.
    :param field: the property that is wrong; empty when it is the row as a whole.
    :param reason: why, without the row's values.
    :param row: the values.
    """

    row_number: int
    field: str
    reason: str
    row: Row = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class CheckedRows:
    """What became of some rows.

    :param encoded: the good ones: JSON, an array of arrays of text and ``null``.
    :param numbers: their places in the source, from 1.
    :param rejects: the others.
    """

    encoded: bytes = dataclasses.field(repr=False)
    numbers: Sequence[int]
    rejects: list[Reject]


class RowChecker:
    """Checks rows whose values belong to these properties, by position.

    Text is sent as it is. Numbers, dates, times, UUIDs and truth values are sent as text, but as an email nothing of
    that, and as a phone number whole numbers only. A contact needs an email or a phone number; where both are mapped,
    an empty text as email counts as missing.

    :param properties: ``email``, ``name``, ``phoneNumber`` or others that the platform knows.
    :param null_value: what is sent for a missing value.
    """

    def __init__(self, properties: Sequence[str], null_value: str | None = None) -> None:
        self._properties = tuple(properties)
        self._null_value = null_value
        self._email = self._properties.index("email") if "email" in self._properties else None
        self._phone = self._properties.index("phoneNumber") if "phoneNumber" in self._properties else None
        self._converters = [self._converter(name) for name in self._properties]
        # With any rule on its length pydantic looks for half surrogate pairs, which have no form in UTF-8. That takes
        # time, and on the hot path the encoder finds them anyway.
        self._quick = self._adapter()
        self._careful = self._adapter(min_length=0)
        self._convert_first = False

    def check(self, rows: Sequence[Row], first_number: int) -> CheckedRows:
        """Sort good rows from bad.

        :param rows: as they came from the source.
        :param first_number: the number of the first.
        """
        candidates = [self._text(_values(row)) for row in rows] if self._convert_first else rows
        try:
            good = self._quick.validate_python(candidates)
            if not self._some_unreachable(good):
                return CheckedRows(self._encode(good), range(first_number, first_number + len(good)), [])
        except (ValidationError, UnicodeEncodeError):
            pass
        rows = [_values(row) for row in rows]
        return self._sort_out(rows, candidates if self._convert_first else rows, first_number)

    def _sort_out(self, rows: Sequence[Row], candidates: Sequence[Row], first_number: int) -> CheckedRows:
        """Look at every row by itself whose candidate is not good.

        :param candidates: the rows, or what :meth:`_text` makes of them.
        """
        suspects = self._suspects(candidates)
        good: list[Row] = []
        numbers: list[int] = []
        rejects: list[Reject] = []
        for place, candidate in enumerate(candidates):
            number, problem = first_number + place, None
            if place in suspects:
                candidate, problem = self._judge(rows[place])
            if problem is None:
                good.append(candidate)
                numbers.append(number)
            else:
                rejects.append(Reject(row_number=number, field=problem[0], reason=problem[1], row=rows[place]))
        # A column of numbers or dates is one in every chunk.
        self._convert_first = self._convert_first or len(suspects) > len(rows) // 2
        return CheckedRows(self._encode(self._quick.validate_python(good)), numbers, rejects)

    def _suspects(self, rows: Sequence[Row]) -> set[int]:
        """Places of the rows that are not good as they are."""
        places: set[int] = set()
        try:
            self._careful.validate_python(rows)
        except ValidationError as error:
            places.update(int(problem["loc"][0]) for problem in error.errors(include_url=False, include_input=False))
        return places | {place for place, row in enumerate(rows) if place not in places and self._unreachable(row)}

    def _judge(self, row: Row) -> tuple[Row, tuple[str, str] | None]:
        """A row as text, or the property that is wrong and the reason; the first problem counts."""
        if len(row) != len(self._properties):
            return row, ("", f"has {len(row)} values instead of {len(self._properties)}")
        text = self._text(row)
        try:
            self._careful.validate_python([text])
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            return row, (self._properties[int(problem["loc"][1])], _words(problem))
        return text, ("email", "neither email nor phoneNumber is given") if self._unreachable(text) else None

    def _text(self, row: Row) -> Row:
        """The row with text for everything that has an obvious form as text."""
        if len(row) != len(self._converters):
            return row
        return [convert(value) for convert, value in zip(self._converters, row, strict=True)]

    def _unreachable(self, row: Row) -> bool:
        email, phone = self._email, self._phone
        return email is not None and phone is not None and row[email] is None and not row[phone]

    def _some_unreachable(self, rows: Sequence[Row]) -> bool:
        email, phone = self._email, self._phone
        if email is None or phone is None:
            return False
        return None in map(itemgetter(email), rows) and any(map(self._unreachable, rows))

    def _encode(self, rows: list[Row]) -> bytes:
        if self._null_value is not None:
            rows = [[self._null_value if value is None else value for value in row] for row in rows]
        return msgspec.json.encode(rows)

    def _adapter(self, **rules: int) -> TypeAdapter[list[Row]]:
        """Email or phone number must be there when it is the only one of the two that is mapped."""
        text = Annotated[str, StringConstraints(strict=True, **rules)]
        address = Annotated[str, StringConstraints(strict=True, pattern=ADDRESS_PATTERN)]
        number = Annotated[str, StringConstraints(strict=True, min_length=1, pattern=PHONE_PATTERN)]
        number_or_nothing = Annotated[str, StringConstraints(strict=True, pattern=OPTIONAL_PHONE_PATTERN)] | None
        types: dict[str, Any] = {
            "email": address if self._phone is None else address | None,
            "phoneNumber": number if self._email is None else number_or_nothing,
        }
        row: Any = tuple[tuple(types.get(name, text | None) for name in self._properties)]  # type: ignore[misc]
        return TypeAdapter(list[row], config=ConfigDict(hide_input_in_errors=True))

    def _converter(self, name: str) -> Callable[[Any], Any]:
        if name == "email":
            return _as_it_is if self._phone is None else _nothing_for_empty
        return _number_as_text if name == "phoneNumber" else _as_text


def _values(row: Any) -> Row:
    """A row's values; what is no list of values is one value."""
    if isinstance(row, list | tuple):
        return row
    if isinstance(row, str | bytes | Mapping) or not isinstance(row, Iterable):
        return (row,)
    return tuple(row)


def _as_it_is(value: Any) -> Any:
    return value


def _nothing_for_empty(value: Any) -> Any:
    return None if value == "" else value


def _number_as_text(value: Any) -> Any:
    return _as_text(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _as_text(value: Any) -> Any:
    """Text for what has one obvious form as text; everything else is left for the check to refuse."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, _DATES):
        return value.isoformat() if value == value else value  # pandas has a date that is none
    if isinstance(value, _NUMBERS) and _is_finite(value):
        try:
            return str(value)
        except ValueError:  # Python refuses to write numbers of thousands of digits
            return value
    return value


# A union of types would be made anew for every value.
_DATES = (date, time)
_NUMBERS = (int, float, Decimal, UUID)


def _is_finite(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, Decimal) or value.is_finite()


def _words(problem: Any) -> str:
    value = problem["input"]
    if value is None or problem["type"] == "string_too_short":
        return "is empty"
    if not _is_finite(value):
        return "is NaN or infinite: give None where there is no value"
    if isinstance(value, int) and _as_text(value) is value:
        return "is a whole number with thousands of digits"
    if problem["type"] == "string_type":
        return f"is of type {type(value).__name__}: cast it to text"
    if problem["type"] == "string_unicode":
        return "holds half a surrogate pair, which is no text"
    return PATTERN_MESSAGES.get(problem.get("ctx", {}).get("pattern")) or str(problem["msg"])
