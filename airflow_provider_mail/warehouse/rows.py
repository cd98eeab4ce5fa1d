"""Checks rows against the declared columns and converts them to what a driver takes."""

from __future__ import annotations

import datetime
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

import msgspec

from airflow_provider_mail.warehouse.errors import UnstorableError, WarehouseError
from airflow_provider_mail.warehouse.table import Column, Table

T = TypeVar("T")
Convert = Callable[[Sequence[Any]], Iterable[Any]]
ReadValue = Callable[[Any], Any]

OnUnstorable = Callable[[Sequence[Any], UnstorableError], None]
"""Receives a row that cannot be stored, and the reason."""


class UnreadableValue:
    """Stands for a value that Python cannot represent, such as ``infinity`` or a time before the year 1."""

    def __repr__(self) -> str:
        return "not readable"


# By the format of `struct`: the digits that a decimal number needs to restore any value; those that every value
# restores; the smallest value that has all digits.
_FLOATS = {"f": (9, 6, 2.0**-126), "e": (5, 3, 2.0**-14)}


def _shortest(width: str, value: float | None) -> float | None:
    if not value or value - value != 0:
        return value
    most, fewest, normal = _FLOATS[width]
    # Its fewest digits first, since most values have few. Below the normal ones, even one digit may be enough.
    for digits in range(fewest if abs(value) >= normal else 1, most):
        shorter = float(f"{value:.{digits}g}")
        with suppress(OverflowError):  # rounded up beyond the largest value
            if struct.unpack(width, struct.pack(width, shorter))[0] == value:
                return shorter
    return float(f"{value:.{most}g}")


read_float32: ReadValue = partial(_shortest, "f")
"""Converts a binary number of 32 bits, which Python has as 19.989999771118164, to the shortest decimal number that
restores it, 19.99: what its source shows.
"""
read_float16: ReadValue = partial(_shortest, "e")
"""The same for 16 bits."""


def read_items(read: ReadValue | None) -> ReadValue | None:
    """Apply a conversion to each item of an array."""
    return read and (lambda items: items if items is None else [*map(read, items)])


def read_fields(reads: Mapping[str, ReadValue | None]) -> ReadValue | None:
    """Apply a conversion to each field of an object; ``None``: none."""
    needed = {name: read for name, read in reads.items() if read}

    def convert(fields: Mapping[str, Any] | None) -> Any:
        return fields and {name: needed[name](item) if name in needed else item for name, item in fields.items()}

    return convert if needed else None


MAX_REJECTED = 1000
"""A load fails when more rows than this cannot be stored."""

_BATCH_ROWS = 250

# By the name of a portable type, the types of Python, and their subclasses that are not accepted.
_ACCEPTED: dict[str, tuple[tuple[type, ...], tuple[type, ...]]] = {
    "text": ((str,), ()),
    "bigint": ((int,), (bool,)),
    "integer": ((int,), (bool,)),
    "double": ((float, int), (bool,)),
    "boolean": ((bool,), ()),
    "date": ((datetime.date,), (datetime.datetime,)),
    "timestamp": ((datetime.datetime,), ()),
    "json": ((object,), ()),
}


_RANGES = {"integer": (-(2**31), 2**31 - 1), "bigint": (-(2**63), 2**63 - 1)}

_decode_texts = msgspec.json.Decoder(list[str]).decode
_encoder = msgspec.json.Encoder(order="deterministic", decimal_format="number")
_encode, _encode_lines = _encoder.encode, _encoder.encode_lines


def utc(value: datetime.datetime) -> datetime.datetime:
    """Convert a time to UTC, without a zone."""
    return aware(value).astimezone(datetime.UTC).replace(tzinfo=None)


def utc_text(value: datetime.datetime) -> str:
    """Format a time as ``2026-03-01 12:30:00``, in UTC."""
    if value.tzinfo is datetime.UTC:  # as are all times that this package makes
        return value.isoformat(" ")[:-6]
    return utc(value).isoformat(" ")


def utc_texts(values: Sequence[datetime.datetime]) -> Sequence[str]:
    """Format many times as :func:`utc_text` formats one."""
    if {value.tzinfo for value in values} == {datetime.UTC}:
        # The encoder needs a fifth of the time. It writes 2026-03-01T12:30:00Z.
        return _decode_texts(_encode(values).replace(b"T", b" ").replace(b"Z", b""))
    return [*map(utc_text, values)]


def aware(value: datetime.datetime) -> datetime.datetime:
    """Return the time unchanged.

    :raises ValueError: for a datetime without a zone.
    """
    if value.tzinfo is None:
        raise ValueError("a time without a zone")
    return value


_TextsByName = list[dict[str, str | None]]


def json_text(value: object) -> str:
    """Encode JSON canonically, so that equal values are equal texts.

    :raises ValueError: for NaN and infinity.
    """
    return json_texts([value])[0]


def json_texts(values: Sequence[Any]) -> list[str]:
    """Encode many values as :func:`json_text` encodes one."""
    with suppress(msgspec.ValidationError):
        # Properties and events: msgspec needs a quarter of the time. It writes numbers differently, NaN as null.
        return _encode_lines(msgspec.convert(values, _TextsByName)).decode().split("\n")[:-1]
    return [*map(_json_text, values)]


def _json_text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    except TypeError:
        # Decimals, which only msgspec writes with all their digits.
        if not _is_json(value) or text_problem(value, nul=True):
            raise
        return _encode(value).decode()


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_json(item) for name, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    return value is None or isinstance(value, str | int | float | Decimal)


def fits(column: Column, value_type: type) -> bool:
    if value_type is type(None):
        return column.nullable
    accepted, excluded = _ACCEPTED[column.type.name]
    return issubclass(value_type, accepted) and not issubclass(value_type, excluded)


def each(converts: Mapping[str, Callable[[Any], Any]]) -> dict[str, Convert]:
    return {name: partial(map, convert) for name, convert in converts.items()}


@dataclass(frozen=True)
class Encoder:
    """Checks and converts rows column by column: a few steps of Python for hundreds of values.

    :param converts: by the name of a portable type, converts values to what the driver takes; absent: unchanged.
    :param nul: whether texts may hold the character NUL.
    :param padded: key columns whose collation ignores spaces at the end, with the collation.
    :param json_depth: how deep a JSON value may be nested; ``None``: as deep as Python can recurse.
    """

    table: Table
    converts: Mapping[str, Convert]
    null: object = None
    nul: bool = True
    padded: Mapping[str, str] = field(default_factory=dict)
    json_depth: int | None = None

    def columns(self, number: int, rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        """Encode rows to one sequence of values per column."""
        columns = self.table.columns
        for row, width in enumerate(map(len, rows), number):
            if width != len(columns):
                raise WarehouseError(f"row {row} has {width} values for {len(columns)} columns")
        values_by_column: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(columns)
        return [self._column(number, column, values) for column, values in zip(columns, values_by_column, strict=True)]

    def _column(self, number: int, column: Column, values: Sequence[Any]) -> Sequence[Any]:
        """Encode the values of a column, of which the first one is that of the row ``number``.

        All values are checked at once. Only if that fails, they are searched for the first invalid one.
        """
        if len(values) > 1 and values[0] is values[-1] and len(set(map(id, values))) == 1:
            # One object is encoded once: all rows of a load share the connection and the time of observation.
            return [*self._column(number, column, values[:1])] * len(values)
        types = set(map(type, values))
        # Converters and the database's limits are for values that are not null.
        present = [value for value in values if value is not None] if type(None) in types else values
        converted: Sequence[Any] | None = None
        if all(fits(column, value_type) for value_type in types):
            convert = self.converts.get(column.type.name)
            converted = _converted(convert, present) if convert else present
        if converted is None or (converted and not self._storable(column, present, converted)):
            for row, value in enumerate(values, number):
                if problem := self._problem(column, value):
                    raise UnstorableError.of(row, column.name, problem)
        assert converted is not None
        if present is values:
            return converted
        # Put the nulls back between the converted values.
        remaining = iter(converted)
        return [self.null if value is None else next(remaining) for value in values]

    def _storable(self, column: Column, values: Sequence[Any], converted: Sequence[Any]) -> bool:
        """Whether all values can surely be stored: a fast check, since almost all can."""
        type_name = column.type.name
        if type_name in _RANGES:
            smallest, largest = _RANGES[type_name]
            lowest = smallest if column.least is None else max(smallest, column.least)
            return bool(lowest <= min(values) and max(values) <= largest)
        if type_name in ("text", "json"):
            if column.name in self.padded and any(value.endswith(" ") for value in converted):
                return False
            # No value is nested deeper than it has brackets.
            depth = self.json_depth if type_name == "json" else None
            if depth and any(text.count("[") + text.count("{") > depth for text in converted):
                return False
            # One long text is checked faster than many short ones.
            joined = "".join(converted)
            if not joined.isascii() and not _encodes(joined):
                return False
            # In JSON, a NUL is escaped.
            has_nul = "\x00" in joined or (type_name == "json" and "\\u0000" in joined)
            return self.nul or not has_nul
        return True

    def _problem(self, column: Column, value: Any) -> str | None:
        type_name = column.type.name
        if not fits(column, type(value)):
            return f"needs {type_name}, got {'nothing' if value is None else type(value).__name__}"
        if value is None:
            return None
        convert = self.converts.get(type_name)
        if convert and not _converted(convert, [value]):
            needed = "a datetime with a zone" if type_name == "timestamp" else f"a {type_name} value"
            problem = text_problem(value, nul=True) if type_name in ("text", "json") else None
            return problem or f"needs {needed}"
        if type_name in _RANGES:
            if column.least is not None and value < column.least:
                return f"is less than {column.least}, which cannot be true: the service's error"
            smallest, largest = _RANGES[type_name]
            return None if smallest <= value <= largest else f"is too large for {type_name}"
        if column.name in self.padded and value.endswith(" "):
            return (
                f"ends with a space, which the collation {self.padded[column.name]} of this key column ignores: "
                "declare the column with a collation that has NO PAD, such as utf8mb4_nopad_bin or utf8mb4_0900_bin"
            )
        if type_name == "json" and self.json_depth and _depth(value) > self.json_depth:
            return f"is nested more than {self.json_depth} deep, which the database does not accept as JSON"
        return text_problem(value, nul=self.nul)


def _depth(value: Any) -> int:
    """How deep a JSON value is nested: 0 for a number or a text."""
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return 0
    return 1 + max(map(_depth, value), default=0)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def text_problem(value: Any, *, nul: bool) -> str | None:
    """Return the reason why a text, or a text in a JSON value, cannot be stored; names the field of the JSON value.

    :param value: the value, nested no deeper than Python can recurse.
    """
    if isinstance(value, str):
        if not _encodes(value):
            return "holds half a surrogate pair, which is no character"
        return "holds the character NUL, which the database cannot keep" if not nul and "\x00" in value else None
    if isinstance(value, float) and value - value != 0:
        return "holds NaN or infinity, which JSON cannot say"
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for name, item in items:
        if (reason := text_problem(name, nul=nul)) is not None:
            return f"the name of a field {reason}"
        if (reason := text_problem(item, nul=nul)) is not None:
            return f"field {name!r} {reason}" if isinstance(name, str) else f"item {name} {reason}"
    return None


def _converted(convert: Convert, values: Sequence[Any]) -> Sequence[Any] | None:
    """The converted values; ``None`` when one cannot be converted, since its error would show the value."""
    with suppress(TypeError, ValueError, OverflowError):
        return [*convert(values)]
    return None


class RowsFailed(Exception):
    """Reading or encoding the rows failed. The error is in `Source.error`: drivers would send it to the server."""


class Source:
    """The caller's rows, to be read once.

    :param on_unstorable: receives rows that cannot be stored. Default: the first one is an error.
    """

    def __init__(self, rows: Iterable[Sequence[Any]], on_unstorable: OnUnstorable | None = None) -> None:
        self._rows = rows
        self._on_unstorable = on_unstorable
        self.read = 0
        self.rejected = 0
        self.error: BaseException | None = None

    def extend(self, rows: Iterable[Sequence[Any]]) -> None:
        self._rows = rows

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function whose errors are those of reading the rows."""
        try:
            return function(*arguments)
        except BaseException as error:
            self.error = error
            raise RowsFailed from None

    def columns(self, encoder: Encoder) -> Iterator[list[Sequence[Any]]]:
        """Yield the encoded columns of some hundreds of rows at a time."""
        try:
            for _, columns in self.batches(_BATCH_ROWS, encoder, encoder.columns):
                yield columns
        except GeneratorExit:
            raise
        except BaseException as error:
            self.error = error
            raise RowsFailed from None

    def batches(
        self, size: int, encoder: Encoder, encode: Callable[[int, Sequence[Sequence[Any]]], T]
    ) -> Iterator[tuple[int, T]]:
        """Encode the rows, some at a time; yield how many are stored, and what they are encoded to.

        :param encoder: decides which rows can be stored.
        :param encode: encodes rows, of which it gets the number of the first one.
        :raises UnstorableError: when a row cannot be stored and nothing receives it.
        """
        for rows in batched(self._rows, size):
            first = self.read + 1
            self.read += len(rows)
            stored: Sequence[Sequence[Any]] = rows
            try:
                encoded = encode(first, stored)
            except UnstorableError:
                if self._on_unstorable is None:
                    raise
                if not (stored := self._storable(encoder, first, rows, self._on_unstorable)):
                    continue  # some drivers treat an empty batch as the end
                encoded = encode(first, stored)
            yield len(stored), encoded

    def _storable(
        self, encoder: Encoder, first: int, rows: Sequence[Sequence[Any]], reject: OnUnstorable
    ) -> list[Sequence[Any]]:
        stored = []
        for number, row in enumerate(rows, first):
            try:
                encoder.columns(number, [row])
                stored.append(row)
            except UnstorableError as error:
                self.rejected += 1
                if self.rejected > MAX_REJECTED:
                    raise WarehouseError(f"more than {MAX_REJECTED} rows cannot be stored; {error}") from None
                reject(row, error)
        return stored

    def stored(self, table: Table) -> Iterator[Sequence[Any]]:
        encoder = Encoder(table, each({"timestamp": aware, "json": json_text}))

        def checked(first: int, rows: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
            encoder.columns(first, rows)
            return rows

        for _, rows in self.batches(_BATCH_ROWS, encoder, checked):
            yield from rows

    def encoded(self, encoder: Encoder) -> Iterator[tuple[Any, ...]]:
        return chain.from_iterable(zip(*columns, strict=True) for columns in self.columns(encoder))


def batched(rows: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(rows)
    while batch := list(islice(iterator, size)):
        yield batch


def chunks(rows: Iterable[tuple[Any, ...]], max_rows: int, max_characters: int) -> Iterator[list[tuple[Any, ...]]]:
    """Split rows into lists; a row that is longer than the limit forms a list of its own.

    :param max_characters: the largest number of characters of the texts in a list.
    """
    chunk: list[tuple[Any, ...]] = []
    characters = 0
    for row in rows:
        length = sum(len(value) for value in row if type(value) is str)
        if chunk and (len(chunk) == max_rows or characters + length > max_characters):
            yield chunk
            chunk, characters = [], 0
        chunk.append(row)
        characters += length
    if chunk:
        yield chunk


def moment(value: Any) -> datetime.datetime | None:
    """Return a time of a table with its zone; some databases have no type for times, or none with a zone."""
    if value is None:
        return None
    time = value if isinstance(value, datetime.datetime) else datetime.datetime.fromisoformat(str(value))
    return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).astimezone(datetime.UTC)


def decoded(value: Any) -> Any:
    """Return a JSON value of a table; some drivers decode it."""
    return json.loads(value) if isinstance(value, str | bytes) else value
