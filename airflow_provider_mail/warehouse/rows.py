"""Rows on their way into a database: checked against the columns, turned into what a driver takes."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.table import Column, Table

Convert = Callable[[Any], Any]

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


class Encoder:
    """Checks and converts rows.

    The types of a row are looked at once for every combination that occurs, so that checking costs a lookup per row.

    :param converts: by the name of a type, what makes of a value what the driver takes; absent: taken as it is.
    :param null: what the driver takes for NULL.
    """

    def __init__(self, table: Table, converts: Mapping[str, Convert], null: object = None) -> None:
        self._table = table
        self._converts = converts
        self._null = null
        self._plans: dict[tuple[type, ...], list[tuple[int, Convert]]] = {}

    def __call__(self, number: int, row: Sequence[Any]) -> list[Any]:
        """Encode row `number` (it counts from 1).

        :raises WarehouseError: naming row and column, never the value.
        """
        kinds = tuple(map(type, row))
        plan = self._plans.get(kinds)
        if plan is None:
            plan = self._plans[kinds] = self._plan(number, kinds)
        values = list(row)
        index = 0
        try:
            for index, convert in plan:
                values[index] = convert(values[index])
        except (TypeError, ValueError, OverflowError):
            pass  # raised below, where the value is not in the chain of exceptions
        else:
            return values
        column = self._table.columns[index]
        need = "a datetime with a zone" if column.type.name == "timestamp" else f"a {column.type.name} value"
        raise WarehouseError(f"row {number}, column {column.name}: needs {need}")

    def _plan(self, number: int, kinds: tuple[type, ...]) -> list[tuple[int, Convert]]:
        if len(kinds) != len(self._table.columns):
            raise WarehouseError(f"row {number} has {len(kinds)} values for {len(self._table.columns)} columns")
        plan: list[tuple[int, Convert]] = []
        for index, (column, kind) in enumerate(zip(self._table.columns, kinds, strict=True)):
            if not fits(column, kind):
                got = "nothing" if kind is type(None) else kind.__name__
                raise WarehouseError(f"row {number}, column {column.name}: needs {column.type.name}, got {got}")
            if kind is type(None):
                if self._null is not None:
                    plan.append((index, lambda _: self._null))
            elif convert := self._converts.get(column.type.name):
                plan.append((index, _remembering(convert) if column.observed else convert))
        return plan


def _remembering(convert: Convert) -> Convert:
    """The same, and quicker where the same object comes again: all rows of a load are observed at one time."""
    given = made = None

    def converted(value: Any) -> Any:
        nonlocal given, made
        if value is not given:
            given, made = value, convert(value)
        return made

    return converted


class RowsFailed(Exception):
    """The caller's rows ended in an error, kept in `Source.error`. Drivers tell the server what they hear of it."""


class Source:
    """The caller's rows, once; remembers how many there were and how they ended."""

    def __init__(self, rows: Iterable[Sequence[Any]]) -> None:
        self._rows = rows
        self.read = 0
        self.error: BaseException | None = None

    def encoded(self, encode: Encoder) -> Iterator[list[Any]]:
        """The rows as `encode` makes them.

        :raises RowsFailed: when getting or encoding a row failed.
        """
        try:
            for row in self._rows:
                self.read += 1
                yield encode(self.read, row)
        except GeneratorExit:
            raise
        except BaseException as error:
            self.error = error
            raise RowsFailed from None


def chunks(rows: Iterable[list[Any]], most_rows: int, most_characters: int) -> Iterator[list[list[Any]]]:
    """The rows in lists that are limited both ways; a row that is too long by itself comes alone.

    :param most_characters: of texts in a list.
    """
    chunk: list[list[Any]] = []
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
