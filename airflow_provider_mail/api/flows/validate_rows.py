"""Validate the rows of a source for an import, and reject invalid rows with a reason.

This is the hot path of a million rows: each column of a chunk is matched as one text, and only where that fails, rows
are looked at. The result for a row never depends on other rows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, TypeAlias
from uuid import UUID

import msgspec
from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from airflow_provider_mail.api._core.fields import (
    ADDRESS_PATTERN,
    MAX_LABEL_BYTES,
    OPTIONAL_PHONE_PATTERN,
    PATTERN_MESSAGES,
    PHONE_PATTERN,
    check_lengths,
)
from airflow_provider_mail.api.errors import problem_message

__all__ = ["Reject"]

Row: TypeAlias = Sequence[Any]
Spell: TypeAlias = Callable[[Sequence[Row]], Sequence[Row]]
"""Returns rows with each address in the spelling to send: the same rows if all have it."""


def unchanged(value: Any) -> Any:
    return value


_CONFIG = ConfigDict(hide_input_in_errors=True)

_PART = 50
"""Rows that are looked at one by one if one of them is not as nearly all are."""


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
    :param spell: gives addresses the spelling to send; those in small letters of ASCII have it. Default: none.
    """

    def __init__(
        self,
        properties: Sequence[str],
        null_value: str | None = None,
        spell: Spell = unchanged,
    ) -> None:
        self._properties = tuple(properties)
        self._null_value = null_value
        self._email = self._properties.index("email") if "email" in self._properties else None
        self._phone = self._properties.index("phoneNumber") if "phoneNumber" in self._properties else None
        self._converters = [self._converter(name) for name in self._properties]
        self._spell = spell
        # Nearly all chunks have these types.
        needed = self._phone if self._email is None else self._email
        types = tuple(str if place == needed else str | None for place in range(len(self._properties)))
        self._usual_rows: Any = list[tuple[types]]  # type: ignore[valid-type]
        self._addresses, self._numbers = _lines(ADDRESS_PATTERN), _lines(PHONE_PATTERN)
        self._encoder, self._buffer = msgspec.json.Encoder(), bytearray()
        self._convert_first = self._spell_first = False
        self._was_usual = True

    @cached_property
    def _quick(self) -> TypeAdapter[list[Row]]:
        # With any limit on the length, pydantic searches for lone surrogates, which UTF-8 cannot encode. That takes
        # time; on the hot path, the encoder finds them anyway.
        return self._chunk_validator()

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
        texts = [self._text(_values(row)) for row in rows] if self._convert_first else rows
        if self._spell_first:
            texts = self._spell(texts)
        try:
            if self._was_usual and self._are_usual(texts):
                if encoded is None or self._null_value is not None:
                    encoded = self._encode(texts)
                return CheckedRows(encoded, range(first_number, first_number + len(rows)), [])
            candidates = list(texts)
            return self._check(self._quick, candidates, self._doubtful(candidates), rows, first_number)
        except UnicodeEncodeError:
            return self._check(self._careful, [*self._spell(texts)], range(len(rows)), rows, first_number)

    def _doubtful(self, rows: list[Row]) -> Sequence[int]:
        """Give addresses the spelling to send, and return the indexes of rows beside an unusual one."""
        doubtful: list[int] = []
        parts = range(0, len(rows), _PART)
        respelled = 0
        for begin in parts:
            part = rows[begin : begin + _PART]
            if self._are_usual(part):
                continue
            spelled = self._spell(part)
            if spelled is not part:
                respelled += 1
                rows[begin : begin + _PART] = spelled
                if self._are_usual(spelled):
                    continue
            doubtful += range(begin, begin + len(part))
        self._was_usual = not doubtful
        # What most parts of a source need is done for a chunk at once.
        self._spell_first = self._spell_first or respelled > len(parts) // 2
        return doubtful

    def _check(
        self,
        validator: TypeAdapter[list[Row]],
        candidates: list[Row],
        doubtful: Sequence[int],
        rows: Sequence[Row],
        first_number: int,
    ) -> CheckedRows:
        """Return the valid rows; those in doubt are validated, and reported as they were given."""
        alone: list[int] = []
        validated = validator.validate_python([candidates[index] for index in doubtful])
        for index, row in zip(doubtful, validated, strict=True):
            # The validator returns a valid row as a new tuple, and any other row unchanged.
            if row is candidates[index]:
                alone.append(index)
            candidates[index] = row
        numbers: Sequence[int] = range(first_number, first_number + len(rows))
        rejects: list[Reject] = []
        rejected: list[int] = []
        for index in alone:
            (row,) = self._spell([_values(rows[index])])
            candidates[index], problem = self._validate(row)
            if problem is not None:
                rejected.append(index)
                rejects.append(Reject(row_number=numbers[index], field=problem[0], reason=problem[1], row=row))
        # A column of numbers or dates has them in every chunk.
        self._convert_first = self._convert_first or len(alone) > len(rows) // 2
        if rejects:
            numbers = list(numbers)
            for index in reversed(rejected):
                del candidates[index], numbers[index]
        return CheckedRows(self._encode(candidates), numbers, rejects)

    def _are_usual(self, rows: Sequence[Row]) -> bool:
        """Return whether all rows are valid as they are and have the spelling to send, as far as that is fast."""
        try:
            msgspec.convert(rows, self._usual_rows)
        except msgspec.ValidationError:
            return False
        if self._email is not None and rows:
            addresses = [row[self._email] for row in rows]
            text = "\n".join(addresses)
            small = text.lower()
            is_spelled = self._spell is unchanged or small == text
            # No part of an address can be too long, and no domain is encoded.
            is_short = text.isascii() and max(map(len, addresses)) <= MAX_LABEL_BYTES and "xn--" not in small
            if not (is_spelled and is_short and self._match(self._addresses, text, len(rows))):
                return False
        if self._phone is None:
            return True
        numbers = [row[self._phone] for row in rows]
        if self._email is not None:
            numbers = [*filter(None, numbers)]
        return not numbers or self._match(self._numbers, "\n".join(numbers), len(numbers))

    @staticmethod
    def _match(pattern: Any, text: str, lines: int) -> bool:
        return text.count("\n") == lines - 1 and bool(pattern.isinstance_python(f"{text}\n"))

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

    def _encode(self, rows: Sequence[Row]) -> bytes:
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
            return unchanged if self._phone is None else _none_for_empty
        return _number_as_text if name == "phoneNumber" else as_text


def _lines(pattern: str) -> Any:
    """Return a validator of texts of which each line matches a pattern, and ends with a line break."""
    line = pattern.removeprefix("^").removesuffix("$")
    return TypeAdapter(Annotated[str, StringConstraints(strict=True, pattern=rf"^(?:{line}\n)+$")]).validator


def _values(row: Any) -> Row:
    if isinstance(row, list | tuple):
        return row
    if isinstance(row, str | bytes | Mapping) or not isinstance(row, Iterable):
        return (row,)
    return tuple(row)


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
