"""Validate the rows of a source for an import, and reject invalid rows with a reason.

This is the hot path of a million rows: one compiled validator checks a chunk, and Python handles only the rows that it
does not accept unchanged. The result for a row never depends on other rows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, time
from decimal import Decimal
from functools import cached_property
from itertools import compress, count
from operator import is_
from typing import Annotated, Any, TypeAlias
from uuid import UUID

import msgspec
from pydantic import AfterValidator, ConfigDict, FailFast, Field, StringConstraints, TypeAdapter, ValidationError

from airflow_provider_mail.api._core.fields import (
    ADDRESS_PATTERN,
    OPTIONAL_PHONE_PATTERN,
    PATTERN_MESSAGES,
    PHONE_PATTERN,
    check_lengths,
)
from airflow_provider_mail.api.errors import problem_message

__all__ = ["Reject"]

Row: TypeAlias = Sequence[Any]

_CONFIG = ConfigDict(hide_input_in_errors=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """A rejected row.

    :param row_number: its number in the source, from 1.
    :param field: the invalid property; empty for the row as a whole.
    :param reason: why it is invalid, without the row's values.
    :param file: the file, if there are several; its number is that in the file then.
    :param line: the line of the file in which it begins, from 1; ``None`` if it is not from a file with lines.
    """

    row_number: int
    field: str
    reason: str
    row: Row = dataclasses.field(repr=False)
    line: int | None = None
    file: str | None = None

    @property
    def place(self) -> int:
        """What a user looks for in the source: the line of a file, otherwise the number of the row."""
        return self.row_number if self.line is None else self.line


@dataclasses.dataclass(frozen=True, slots=True)
class CheckedRows:
    """The result of validating rows.

    :param encoded: the valid rows as JSON, an array of arrays of text and ``null``.
    :param numbers: their numbers in the source, from 1.
    """

    encoded: bytes = dataclasses.field(repr=False)
    numbers: Sequence[int]
    rejects: list[Reject]


class RowChecker:
    """Validates rows.

    Text is sent unchanged. Numbers, dates, times, UUIDs and booleans are converted to text; an email must be text, and
    a phone number text or a whole number. A contact needs an email or a phone number; if both are mapped, an empty
    email counts as missing.

    :param properties: the property of each value of a row, by position: ``email``, ``name``, ``phoneNumber`` or
        another that the platform knows.
    :param null_value: sent for a missing value. Default: ``null``.
    """

    def __init__(self, properties: Sequence[str], null_value: str | None = None) -> None:
        self._properties = tuple(properties)
        self._null_value = null_value
        self._email = self._properties.index("email") if "email" in self._properties else None
        self._phone = self._properties.index("phoneNumber") if "phoneNumber" in self._properties else None
        self._converters = [self._converter(name) for name in self._properties]
        # With any limit on the length, pydantic searches for lone surrogates, which UTF-8 cannot encode. That takes
        # time; on the hot path, the encoder finds them anyway.
        self._quick = self._chunk_validator()
        # Most chunks are valid as they are, which is found in half of the time that finding invalid rows takes.
        valid: Any = self._row_type(required="email" if self._email is not None else "")
        self._valid = TypeAdapter[list[Row]](Annotated[list[valid], FailFast()], config=_CONFIG)
        self._encoder, self._buffer = msgspec.json.Encoder(), bytearray()
        self._convert_first, self._was_valid = False, True

    @cached_property
    def _careful(self) -> TypeAdapter[list[Row]]:
        return self._chunk_validator(min_length=0)

    @cached_property
    def _single(self) -> TypeAdapter[Row]:
        return TypeAdapter(self._row_type(min_length=0), config=_CONFIG)

    def check(self, rows: Sequence[Row], first_number: int, encoded: bytes | None = None) -> CheckedRows:
        """Return the valid rows.

        :param encoded: the rows as JSON, if they are known in that form.
        """
        if self._was_valid:
            with suppress(ValidationError, UnicodeEncodeError):
                checked = self._valid.validate_python(rows)
                if encoded is None or self._null_value is not None:
                    encoded = self._encode(checked)
                return CheckedRows(encoded, range(first_number, first_number + len(checked)), [])
        try:
            return self._check(self._quick, rows, first_number)
        except UnicodeEncodeError:
            return self._check(self._careful, rows, first_number)

    def _check(self, validator: TypeAdapter[list[Row]], rows: Sequence[Row], first_number: int) -> CheckedRows:
        candidates = [self._text(_values(row)) for row in rows] if self._convert_first else rows
        checked = validator.validate_python(candidates)
        numbers: Sequence[int] = range(first_number, first_number + len(checked))
        # The validator returns a valid row as a new tuple, and any other row unchanged.
        suspects = list(compress(count(), map(is_, checked, candidates)))
        rejects: list[Reject] = []
        rejected: list[int] = []
        for index in suspects:
            row = _values(rows[index])
            checked[index], problem = self._validate(row)
            if problem is not None:
                rejected.append(index)
                rejects.append(Reject(row_number=numbers[index], field=problem[0], reason=problem[1], row=row))
        self._was_valid = not suspects
        # A column of numbers or dates has them in every chunk.
        self._convert_first = self._convert_first or len(suspects) > len(rows) // 2
        if rejects:
            numbers = list(numbers)
            for index in reversed(rejected):
                del checked[index], numbers[index]
        return CheckedRows(self._encode(checked), numbers, rejects)

    def _validate(self, row: Row) -> tuple[Row, tuple[str, str] | None]:
        """Return the row as text and ``None``, or the row, the first invalid property and the reason."""
        if len(row) != len(self._properties):
            # The row's source may know how many values it had before columns were selected.
            return row, ("", getattr(row, "problem", f"has {len(row)} values instead of {len(self._properties)}"))
        try:
            text = self._single.validate_python(self._text(row))
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            return row, (self._properties[int(problem["loc"][0])], _reason(problem))
        return text, ("email", "neither email nor phoneNumber is given") if self._unreachable(text) else None

    def _text(self, row: Row) -> Row:
        """Convert every value to text that has one obvious text form."""
        if len(row) != len(self._converters):
            return row
        return [convert(value) for convert, value in zip(self._converters, row, strict=True)]

    def _unreachable(self, row: Row) -> bool:
        email, phone = self._email, self._phone
        return email is not None and phone is not None and row[email] is None and not row[phone]

    def _encode(self, rows: list[Row]) -> bytes:
        if self._null_value is not None:
            rows = [[self._null_value if value is None else value for value in row] for row in rows]
        self._encoder.encode_into(rows, self._buffer)  # which is as long as the chunks before needed
        return bytes(self._buffer)

    def _chunk_validator(self, min_length: int | None = None) -> TypeAdapter[list[Row]]:
        """Return a validator that leaves invalid rows unchanged."""
        valid = self._row_type(min_length)
        if self._email is not None and self._phone is not None:
            valid = self._row_type(min_length, required="email") | self._row_type(min_length, required="phoneNumber")
        row: Any = Annotated[valid | Any, Field(union_mode="left_to_right")]
        return TypeAdapter(list[row], config=_CONFIG)

    def _row_type(self, min_length: int | None = None, required: str = "") -> Any:
        """Return the type of a row.

        :param required: email or phone number; without the other one it is always required.
        """
        text = Annotated[str, StringConstraints(strict=True, min_length=min_length)]
        pattern = StringConstraints(strict=True, pattern=ADDRESS_PATTERN)
        address = Annotated[str, pattern, AfterValidator(check_lengths)]
        number = Annotated[str, StringConstraints(strict=True, min_length=1, pattern=PHONE_PATTERN)]
        number_or_nothing = Annotated[str, StringConstraints(strict=True, pattern=OPTIONAL_PHONE_PATTERN)] | None
        # A contact is identified by either of them: a row may lack the one that is not required.
        needs_email = required == "email" or self._phone is None
        needs_number = required == "phoneNumber" or self._email is None
        types: dict[str, Any] = {
            "email": address if needs_email else address | None,
            "phoneNumber": number if needs_number else number_or_nothing,
        }
        return tuple[tuple(types.get(name, text | None) for name in self._properties)]  # type: ignore[misc]

    def _converter(self, name: str) -> Callable[[Any], Any]:
        if name == "email":
            return _unchanged if self._phone is None else _none_for_empty
        return _number_as_text if name == "phoneNumber" else as_text


def _values(row: Any) -> Row:
    if isinstance(row, list | tuple):
        return row
    if isinstance(row, str | bytes | Mapping) or not isinstance(row, Iterable):
        return (row,)
    return tuple(row)


def _unchanged(value: Any) -> Any:
    return value


def _none_for_empty(value: Any) -> Any:
    return None if value == "" else value


def _number_as_text(value: Any) -> Any:
    return as_text(value) if isinstance(value, int) and not isinstance(value, bool) else value


def as_text(value: Any) -> Any:
    """Convert a value to text if it has one obvious text form; the validator rejects all others."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, _DATES):
        return value.isoformat() if value == value else value  # pandas' NaT is not equal to itself.
    if isinstance(value, _NUMBERS) and _is_finite(value):
        try:
            return str(value)
        except ValueError:  # Python does not format numbers with thousands of digits.
            return value
    return value


# Tuples: a union of types would be created again for every value.
_DATES = (date, time)
_NUMBERS = (int, float, Decimal, UUID)


def _is_finite(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, Decimal) or value.is_finite()


def _reason(problem: Any) -> str:
    value = problem["input"]
    if value is None or problem["type"] == "string_too_short":
        return "is empty"
    if not _is_finite(value):
        return "is NaN or infinite: give None where there is no value"
    if isinstance(value, int) and as_text(value) is value:
        return "is a whole number with thousands of digits"
    if type(value).__name__ == "UnreadableValue":
        return (
            "is a value that Python cannot represent, such as infinity or a time before the year 1: cast it to text, "
            "as in CAST(column AS TEXT), or write it as text"
        )
    if problem["type"] == "string_type":
        return f"is of type {type(value).__name__}: cast it to text"
    if problem["type"] == "string_unicode":
        return "holds half a surrogate pair, which is not text"
    return problem_message(problem, PATTERN_MESSAGES)
