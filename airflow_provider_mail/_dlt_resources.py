"""How the tables become resources of dlt: their columns, and which rows a load merges, replaces and deletes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias

import dlt
from dlt.common.destination.exceptions import DestinationCapabilitiesException
from dlt.common.destination.utils import resolve_merge_strategy
from dlt.common.schema.typing import TColumnSchema, TTableSchema
from dlt.common.schema.utils import has_table_seen_data
from dlt.extract import DltResource

from airflow_provider_mail._dlt_watermarks import KnownParts, OnTotal, Pages, Part, Row, confirmed
from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.warehouse.table import BOOLEAN, Column, Table, literal

Form: TypeAlias = Callable[[Table, Iterable[Row]], Any]
"""How dlt gets the rows of a table: `objects` or, in columns, `arrow_table`."""

# dlt's name for each portable type, of whose names only one differs.
_TYPES = {"integer": "bigint", "boolean": "bool"}
_BATCH = 20_000
_EMPTY = {"text": "", "integer": 0, "bigint": 0, "json": {}}
_REMOVED = Column(
    "is_removed", BOOLEAN, "Null in all rows of records; true in a row that says that its list was empty", nullable=True
)


@dataclasses.dataclass(frozen=True)
class Parts:
    """Parts of a table that are read completely, such as the contacts of each list.

    :param columns: the columns whose values tell the parts apart.
    :param find: returns the values of these columns for each part that is read.
    :param read: yields the rows of a part; calls its second argument with the number of its records first.
    :param whole: parts with these values that were loaded and are not found any more are gone. Default: none.
    """

    columns: tuple[str, ...]
    find: Callable[[], list[Part]]
    read: Callable[[Part, OnTotal], Pages]
    now: Callable[[], datetime]
    whole: Mapping[str, Any] | None = None


def in_batches(pages: Iterable[list[Row]]) -> Pages:
    """Yield longer pages: dlt compares each Arrow table with the declared columns, and logs that types differ."""
    batch: list[Row] = []
    for page in pages:
        batch += page
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def objects(table: Table, rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return rows as objects."""
    return [dict(zip(table.names, row, strict=True)) for row in rows]


def merged(name: str, table: Table, form: Form, read: Callable[[], Pages]) -> DltResource:
    """Declare a resource whose rows replace those of the same key."""

    def pages() -> Iterator[Any]:
        for page in distinct(table, read()):
            yield form(table, page)

    return _resource(pages, name, declared(table.columns, table.key))


def replaced(name: str, table: Table, form: Form, parts: Parts, *, keep_gone: bool) -> DltResource:
    """Declare a resource whose rows replace the parts of the table that are read.

    A part that has become shorter, or is not found any more, is read twice first.

    :param keep_gone: rows replace those of the same key instead; the others stay.
    """
    table = dataclasses.replace(table, columns=(*table.columns, _REMOVED))
    # With a key of its own, a row is deleted "where the key or the part is equal", for which DuckDB compares every row
    # with every other. The key is not needed: a part has each row once.
    columns = declared(table.columns, table.key if keep_gone else ())
    if not keep_gone:
        columns[_REMOVED.name]["hard_delete"] = True
        for column_name in parts.columns:
            columns[column_name]["merge_key"] = True

    def pages() -> Iterator[Any]:
        resource = dlt.current.resource()
        schema = resource.compute_table_schema()
        marks, scoped = _emptied_by(schema, keep_gone=keep_gone)
        known_parts = KnownParts(dlt.current.resource_state(), parts.columns)
        current, gone = _parts(parts, known_parts)
        if scoped and (current or gone):
            resource.apply_hints(
                write_disposition={
                    "disposition": "merge",
                    "strategy": "cdc",
                    "destination_scope": _scope([*current, *gone]),
                },
                columns={
                    name: {**columns[name], "merge_key": False, "primary_key": name in table.key}
                    for name in {*table.key, *parts.columns}
                },
            )
        for part in (*current, *gone):
            rows = 0
            if part in gone:
                known_parts.forget(part)
            else:
                title = "/".join([name, *(str(part[column_name]) for column_name in parts.columns)])
                for page in confirmed(title, partial(parts.read, part), known_parts.rows(part)):
                    rows += len(page)
                    yield form(table, [(*row, None) for row in page])
                known_parts.loaded(part, rows)
            if not rows and marks:
                yield form(table, [_mark(table, part, parts.now())])
            elif not rows and _exists(schema):
                # A load of no rows deletes those of the part.
                yield dlt.mark.materialize_table_schema()

    return _resource(pages, name, columns)


def _parts(parts: Parts, known_parts: KnownParts) -> tuple[list[Part], list[Part]]:
    """Return the parts that are read, and those that are gone: two readings that follow each other lack them."""
    current = parts.find()
    before = [] if parts.whole is None else known_parts.within(parts.whole)
    gone = [part for part in before if part not in current]
    if gone:
        current = parts.find()
    return current, [part for part in gone if part not in current]


def distinct(table: Table, pages: Pages) -> Pages:
    """Yield the first row of each key: dlt does not look for repeated keys in all destinations."""
    key = itemgetter(*(table.names.index(name) for name in table.key))
    earlier_keys: set[Any] = set()
    for page in pages:
        rows = {key(row): row for row in reversed(page)}
        yield [row for row_key, row in reversed(rows.items()) if row_key not in earlier_keys]
        earlier_keys |= rows.keys()


def declared(columns: Iterable[Column], key: Sequence[str]) -> dict[str, TColumnSchema]:
    """Return columns as dlt declares them."""
    schemas: dict[str, TColumnSchema] = {column.name: _column(column) for column in columns}
    for name in key:
        schemas[name]["primary_key"] = True
    return schemas


def _resource(pages: Callable[[], Iterator[Any]], name: str, columns: dict[str, TColumnSchema]) -> DltResource:
    resource: DltResource = dlt.resource(pages, name=name, write_disposition="merge", columns=columns)
    return resource


def _emptied_by(table: TTableSchema, *, keep_gone: bool) -> tuple[bool, bool]:
    """Return whether a row marks an empty part, and whether the merge deletes what the load does not have.

    dlt's default for databases replaces the parts that it sees rows of: a row that is marked as removed shows it an
    empty one. For Delta tables it has a merge that deletes all other rows within a scope.

    :raises MailValidationError: rows would stay that should not.
    """
    if table["write_disposition"] == "replace":
        return False, False
    if keep_gone:
        return True, False
    strategy = _strategy(table)
    if strategy == "delete-insert":
        return True, False
    if table.get("table_format") == "delta" and _supports_cdc(table):
        return False, True
    tables = f"{table['table_format']} tables" if "table_format" in table else "tables"
    raise MailValidationError(
        f"{table['name']}: dlt deletes no rows in {tables} of this destination, so rows would stay that the service "
        'does not have any more. Use a database or, with a recent dlt, table_format="delta", or allow it with '
        "mail_source(keep_gone=True)"
    )


def _strategy(table: TTableSchema) -> str | None:
    """Return how dlt merges into the table; ``None`` if it appends."""
    return resolve_merge_strategy({str(table["name"]): table}, table)


def _supports_cdc(table: TTableSchema) -> bool:
    chosen: Any = {**table, "x-merge-strategy": "cdc"}
    try:
        return _strategy(chosen) == "cdc"
    except DestinationCapabilitiesException:
        return False


def _scope(parts: Sequence[Part]) -> str:
    """Return the condition of the rows of the parts, which differ in one column at most."""
    conditions = []
    for name in parts[0]:
        values = ", ".join(literal(value) for value in dict.fromkeys(part[name] for part in parts))
        conditions.append("{table}." + f"{name} IN ({values.replace('{', '{{').replace('}', '}}')})")
    return " AND ".join(conditions)


def _exists(table: TTableSchema) -> bool:
    """Return whether the table was loaded before: dlt cannot create one from no rows."""
    return has_table_seen_data(dlt.current.source_schema().tables.get(str(table["name"])) or table)


def _mark(table: Table, part: Part, now: datetime) -> Row:
    # Columns that must have a value get the emptiest one of their type.
    empty = {
        column.name: now if column.type.name == "timestamp" else _EMPTY[column.type.name]
        for column in table.columns
        if not column.nullable
    }
    values = {**empty, **part, _REMOVED.name: True}
    return tuple(values.get(name) for name in table.names)


def _column(column: Column) -> TColumnSchema:
    schema: TColumnSchema = {
        "name": column.name,
        "data_type": _TYPES.get(column.type.name, column.type.name),  # type: ignore[typeddict-item]
        "nullable": column.nullable,
        "description": column.comment,
    }
    if column.type.length:
        schema["precision"] = column.type.length
    return schema
