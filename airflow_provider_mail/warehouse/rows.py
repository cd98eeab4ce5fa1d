"""Rows on their way into a database: checked against the columns, turned into what a driver takes."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from airflow_provider_mail.warehouse.errors import UnstorableError, WarehouseError
from airflow_provider_mail.warehouse.table import Column, Table

Convert = Callable[[Sequence[Any]], Iterable[Any]]

OnUnstorable = Callable[[Sequence[Any], UnstorableError], None]
"""Takes a row that cannot be stored, and why."""

MAX_REJECTED = 1000
"""A load that cannot store more rows than this fails."""

_AT_ONCE = 250

# What Python calls the types, and which subclasses of theirs are something else.
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

_encode = msgspec.json.Encoder(order="deterministic").encode


def utc(value: datetime.datetime) -> datetime.datetime:
    """The same point in time, in UTC and without saying so.

    :raises ValueError: for a datetime without a zone.
    """
    return aware(value).astimezone(datetime.UTC).replace(tzinfo=None)


def utc_text(value: datetime.datetime) -> str:
    """The same point in time as ``2026-03-01 12:30:00``, in UTC and without saying so.

    :raises ValueError: for a datetime without a zone.
    """
    if value.tzinfo is datetime.UTC:  # as all of ours
        return value.isoformat(" ")[:-6]
    return utc(value).isoformat(" ")


def aware(value: datetime.datetime) -> datetime.datetime:
    """The datetime itself.

    :raises ValueError: when it has no zone.
    """
    if value.tzinfo is None:
        raise ValueError("a time without a zone")
    return value


_TEXTS = {str, type(None)}


def json_text(value: object) -> str:
    """JSON in one spelling, so that equal values are equal texts."""
    if type(value) is dict and _TEXTS.issuperset(map(type, value.values())) and {str}.issuperset(map(type, value)):
        # Properties of a contact, in a third of the time. msgspec spells a number in another way, and NaN as null.
        return _encode(value).decode()
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def fits(column: Column, kind: type) -> bool:
    """Whether values of this Python type may go into the column."""
    if kind is type(None):
        return column.nullable
    accepted, other = _ACCEPTED[column.type.name]
    return issubclass(kind, accepted) and not issubclass(kind, other)


def each(converts: Mapping[str, Callable[[Any], Any]]) -> dict[str, Convert]:
    """For values together what is given for one."""
    return {name: partial(map, convert) for name, convert in converts.items()}


class Encoder:
    """Checks and converts rows, column by column: a few steps of Python for hundreds of values.

    :param converts: by the name of a type, what makes of values what the driver takes; absent: taken as they are.
    :param null: what the driver takes for NULL.
    :param nul: whether texts may hold the character NUL.
    """

    def __init__(self, table: Table, converts: Mapping[str, Convert], null: object = None, *, nul: bool = True) -> None:
        self._table = table
        self._converts = converts
        self._null = null
        self._nul = nul

    def columns(self, number: int, rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        """Encode rows from row `number` (it counts from 1) on; one sequence of values per column.

        :raises UnstorableError: naming row and column, never the value.
        """
        columns = self._table.columns
        for row, width in enumerate(map(len, rows), number):
            if width != len(columns):
                raise WarehouseError(f"row {row} has {width} values for {len(columns)} columns")
        given: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(columns)
        return [self._column(number, *one) for one in zip(columns, given, strict=True)]

    def _column(self, number: int, column: Column, values: Sequence[Any]) -> Sequence[Any]:
        kinds = set(map(type, values))
        if not all(fits(column, kind) for kind in kinds):
            row, kind = next((row, type(value)) for row, value in enumerate(values) if not fits(column, type(value)))
            got = "nothing" if kind is type(None) else kind.__name__
            raise UnstorableError.of(number + row, column.name, f"needs {column.type.name}, got {got}")
        given = [value for value in values if value is not None] if type(None) in kinds else values
        convert = self._converts.get(column.type.name)
        made = _converted(convert, given) if convert else given
        if made is None:
            assert convert
            row = next(
                row for row, value in enumerate(values) if value is not None and not _converted(convert, [value])
            )
            need = "a datetime with a zone" if column.type.name == "timestamp" else f"a {column.type.name} value"
            reason = _text_problem(values[row], nul=True) if column.type.name in ("text", "json") else None
            raise UnstorableError.of(number + row, column.name, reason or f"needs {need}")
        if made and not self._storable(column, given, made):
            for row, value in enumerate(values):
                if value is not None and (reason := self._problem(column, value)):
                    raise UnstorableError.of(number + row, column.name, reason)
        if given is values:
            return made
        rest = iter(made)
        return [self._null if value is None else next(rest) for value in values]

    def _storable(self, column: Column, given: Sequence[Any], made: Sequence[Any]) -> bool:
        """Whether all of them are surely right; quick, since there is hardly ever anything to find."""
        kind = column.type.name
        if kind in _RANGES:
            least, most = _RANGES[kind]
            lowest = least if column.least is None else max(least, column.least)
            return bool(lowest <= min(given) and max(given) <= most)
        if kind in ("text", "json"):
            together = "".join(made)
            return (together.isascii() or _encodes(together)) and (
                self._nul or ("\x00" not in together and (kind == "text" or "\\u0000" not in together))
            )
        return True

    def _problem(self, column: Column, value: Any) -> str | None:
        """Why a value cannot be stored."""
        kind = column.type.name
        if kind in _RANGES:
            if column.least is not None and value < column.least:
                return f"is less than {column.least}, which cannot be true: the service's error"
            least, most = _RANGES[kind]
            return None if least <= value <= most else f"is too large for {kind}"
        return _text_problem(value, nul=self._nul)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text_problem(value: Any, *, nul: bool) -> str | None:
    """What is wrong with a text, or with one somewhere in a JSON value; names the field there."""
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
        if (reason := _text_problem(name, nul=nul)) is not None:
            return f"the name of a field {reason}"
        if (reason := _text_problem(item, nul=nul)) is not None:
            return f"field {name!r} {reason}" if isinstance(name, str) else f"item {name} {reason}"
    return None


def _converted(convert: Convert, values: Sequence[Any]) -> Sequence[Any] | None:
    """`None` where a value cannot be converted; its error would show the value."""
    one = bool(values) and values[0] is values[-1] and len(set(map(id, values))) == 1
    with suppress(TypeError, ValueError, OverflowError):
        # All rows of a load have a connection, and a time of observation, in common.
        return [*convert(values[:1])] * len(values) if one else [*convert(values)]
    return None


class RowsFailed(Exception):
    """The caller's rows ended in an error, kept in `Source.error`. Drivers tell the server what they hear of it."""


class Source:
    """The caller's rows, once; remembers how many there were and how they ended."""

    def __init__(self, rows: Iterable[Sequence[Any]], on_unstorable: OnUnstorable | None = None) -> None:
        self._rows = rows
        self._on_unstorable = on_unstorable
        self.read = 0
        self.rejected = 0
        self.error: BaseException | None = None

    def columns(self, encoder: Encoder) -> Iterator[list[Sequence[Any]]]:
        """The rows as `encoder` makes them, some hundreds at once and column by column.

        :raises RowsFailed: when getting or encoding a row failed.
        """
        rows = iter(self._rows)
        try:
            while some := list(islice(rows, _AT_ONCE)):
                first = self.read + 1
                self.read += len(some)
                try:
                    columns = encoder.columns(first, some)
                except UnstorableError:
                    if self._on_unstorable is None:
                        raise
                    if not (kept := self._storable(encoder, first, some, self._on_unstorable)):
                        continue  # nothing at all would be the end to some drivers
                    columns = encoder.columns(first, kept)
                yield columns
        except GeneratorExit:
            raise
        except BaseException as error:
            self.error = error
            raise RowsFailed from None

    def _storable(
        self, encoder: Encoder, first: int, rows: Sequence[Sequence[Any]], reject: OnUnstorable
    ) -> list[Sequence[Any]]:
        """The rows that can be stored; the others are rejected."""
        kept = []
        for number, row in enumerate(rows, first):
            try:
                encoder.columns(number, [row])
                kept.append(row)
            except UnstorableError as error:
                self.rejected += 1
                if self.rejected > MAX_REJECTED:
                    raise WarehouseError(f"more than {MAX_REJECTED} rows cannot be stored; {error}") from None
                reject(row, error)
        return kept

    def encoded(self, encoder: Encoder) -> Iterator[tuple[Any, ...]]:
        """The same row by row."""
        for columns in self.columns(encoder):
            yield from zip(*columns, strict=True)


def chunks(rows: Iterable[tuple[Any, ...]], most_rows: int, most_characters: int) -> Iterator[list[tuple[Any, ...]]]:
    """The rows in lists that are limited both ways; a row that is too long by itself comes alone.

    :param most_characters: of texts in a list.
    """
    chunk: list[tuple[Any, ...]] = []
    characters = 0
    for row in rows:
        length = sum(len(value) for value in row if type(value) is str)
        if chunk and (len(chunk) == most_rows or characters + length > most_characters):
            yield chunk
            chunk, characters = [], 0
        chunk.append(row)
        characters += length
    if chunk:
        yield chunk
