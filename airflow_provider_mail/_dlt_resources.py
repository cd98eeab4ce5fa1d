"""How the tables become resources of dlt: their columns, and which rows a load merges, replaces and deletes.

dlt's state knows the days of statistics that were read from an account, and how many rows each part of a table has. dlt
stores it with the rows of the same run, in the destination too. A failed run changes neither.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from operator import itemgetter
from typing import Any, TypeAlias

import dlt
from dlt.common.destination.exceptions import DestinationCapabilitiesException
from dlt.common.destination.utils import resolve_merge_strategy
from dlt.common.schema.typing import TColumnSchema, TTableSchema
from dlt.common.schema.utils import has_table_seen_data
from dlt.destinations.job_client_impl import SqlJobClientBase
from dlt.extract import DltResource

from airflow_provider_mail.api._core.pagination import require_complete
from airflow_provider_mail.api.errors import MailIncompleteError, MailValidationError
from airflow_provider_mail.warehouse.request import RemovalRule
from airflow_provider_mail.warehouse.rows import decoded, moment
from airflow_provider_mail.warehouse.table import BOOLEAN, GONE, Column, Table, literal

Row: TypeAlias = tuple[Any, ...]
Pages: TypeAlias = Generator[list[Row], None, None]
Part: TypeAlias = dict[str, Any]
OnTotal: TypeAlias = Callable[[int | None], None]
Form: TypeAlias = Callable[[Table, Iterable[Row]], Any]
"""How dlt gets the rows of a table: `objects` or, in columns, `arrow_table`."""

# dlt's name for each portable type, of whose names only one differs.
_TYPES = {"integer": "bigint", "boolean": "bool"}
_BATCH = 20_000
_EMPTY = {"text": "", "integer": 0, "bigint": 0, "json": {}}
_REMOVED = Column(
    "is_removed", BOOLEAN, "Null in all rows of records; true in a row that says that its list was empty", nullable=True
)

WINDOW_DAYS = 31
"""Days that one request for statistics spans."""

MAX_READINGS = 3
"""How often one run reads a list that gets shorter."""

DAY = timedelta(days=1)

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Parts:
    """Parts of a table that are read completely, such as the contacts of each list.

    :param columns: the columns whose values tell the parts apart.
    :param find: returns the values of these columns for each part that is read.
    :param read: yields the rows of a part; calls its second argument with the number of its records first.
    :param look_up: for a part that became shorter, gets the values of the key's last column in both readings; raises an
        error if the service still has rows that they lack. Default: nothing is asked.
    :param whole: parts with these values that were loaded and are not found any more are gone. Default: none.
    """

    columns: tuple[str, ...]
    find: Callable[[], list[Part]]
    read: Callable[[Part, OnTotal], Pages]
    rule: RemovalRule
    look_up: Callable[[Part, set[Any]], None] | None = None
    whole: Mapping[str, Any] | None = None


def now() -> datetime:
    """Return the time of a run, by the clock that dlt uses for its loads: that of the worker, not the service's."""
    return datetime.now(UTC)


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
    return [dict(zip(table.names, row, strict=True)) for row in rows]


class Stored:
    """The rows of a table that earlier runs have loaded, where the destination is a database."""

    def __init__(self, name: str, table: Table, account: Mapping[str, Any]) -> None:
        self._name, self._table, self._account = name, table, account

    def rows(self, columns: Sequence[str], where: Mapping[str, Any] | None = None) -> list[Row] | None:
        """Return rows of the account; ``None`` if the destination is not a database, or the run does not merge."""
        schema, resource = dlt.current.source_schema(), dlt.current.source().selected_resources.get(self._name)
        table = schema.tables.get(self._name)
        if resource is None or table is None or not has_table_seen_data(table):
            return None
        if resource.write_disposition == "replace":
            return None
        pipeline: Any = dlt.current.pipeline()
        with pipeline.destination_client(schema.name) as client:
            if not isinstance(client, SqlJobClientBase):
                return None  # files
            sql = client.sql_client

            def column(name: str) -> str:
                return str(sql.escape_column_name(schema.naming.normalize_identifier(name)))

            values = {**self._account, **(where or {})}
            conditions = " AND ".join(
                f"{column(name)} {'IS NULL' if value is None else '= %s'}" for name, value in values.items()
            )
            statement = f"SELECT {', '.join(map(column, columns))} FROM {sql.make_qualified_table_name(self._name)}"
            given = [value for value in values.values() if value is not None]
            with sql:
                found = sql.execute_sql(f"{statement} WHERE {conditions}", *given)
        reads = [_READS.get(self._table[name].type.name) for name in columns]
        return [
            tuple(read(value) if read else value for read, value in zip(reads, row, strict=True)) for row in found or ()
        ]

    def gone(self, keys: Iterable[Any], observed_at: datetime) -> list[Row]:
        """Return rows, with the mark that the service does not have them any more."""
        at, key = self._table.names.index(GONE.name), self._table.key[-1]
        rows = (row for value in sorted(keys) for row in self.rows(self._table.names, {key: value}) or ())
        return [(*row[:at], observed_at, *row[at + 1 :]) for row in rows]


# What databases return differently, by the name of a portable type.
_READS: Mapping[str, Callable[[Any], Any]] = {"timestamp": moment, "json": decoded}


def merged(name: str, table: Table, form: Form, read: Callable[[], Pages]) -> DltResource:
    """Declare a resource whose rows replace those of the same key."""

    def pages() -> Iterator[Any]:
        _must_not_be_dropped()
        for page in distinct(table, read()):
            yield form(table, page)

    return _resource(pages, name, declared(table.columns, table.key))


def replaced(name: str, table: Table, form: Form, parts: Parts, *, keep_gone: bool) -> DltResource:
    """Declare a resource whose rows replace the parts of the table that are read.

    A part that has become shorter, or is not found any more, is read twice first.
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
        _must_not_be_dropped()
        resource = dlt.current.resource()
        schema = resource.compute_table_schema()
        marks, scoped = _emptied_by(schema, keep_gone=keep_gone)
        known_rows: dict[str, int] = dlt.current.resource_state().setdefault("parts", {})
        current, gone = _parts(parts, known_rows)
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
            rows, key = 0, json.dumps(part)
            if part in gone:
                known_rows.pop(key, None)
            else:
                title = "/".join([name, *map(str, part.values())])
                for page in _confirmed(title, table, part, parts, known_rows.get(key)):
                    rows += len(page)
                    yield form(table, [(*row, None) for row in page])
                known_rows[key] = rows
            if not rows and marks:
                yield form(table, [_removal_row(table, part, now())])
            elif not rows and _exists(schema):
                # A load of no rows deletes those of the part.
                yield dlt.mark.materialize_table_schema()

    return _resource(pages, name, columns)


def _parts(parts: Parts, known_rows: Mapping[str, int]) -> tuple[list[Part], list[Part]]:
    """Return the parts that are read, and those that are gone: two readings that follow each other lack them.

    :param known_rows: the number of rows of each part that earlier runs have loaded, by its values as JSON.
    """
    current, gone = parts.find(), []
    if parts.whole is not None:
        before = [part for part in map(json.loads, known_rows) if parts.whole.items() <= part.items()]
        gone = [part for part in before if part not in current]
    if gone:
        current = parts.find()
    return current, [part for part in gone if part not in current]


def _confirmed(name: str, table: Table, part: Part, parts: Parts, known: int | None) -> Pages:
    """Yield the rows of a list that is at least as long as before, or as short in two consecutive readings.

    :param known: number of its records when it was last loaded; ``None``: never. An unknown part is read twice if it
        is empty.
    :raises MailIncompleteError: the number of records is not known, or falls each time, or the service still has some.
    :raises UnconfirmedError: the rule does not allow it to become that much shorter.
    """
    expected_rows = 1 if known is None else known
    for attempt in range(1, MAX_READINGS + 1):
        totals: list[int | None] = []
        with closing(parts.read(part, totals.append)) as pages:
            first_page = next(pages, None)
            total = totals[0]
            if total is None or total < 0:
                require_complete(name, got=0, total=total, hint="Nothing is loaded")
                raise AssertionError("unreachable")
            if total >= expected_rows:
                parts.rule.check(known or 0, total, f"{name}: ")
                found: set[Any] = set()
                for page in chain([first_page] if first_page is not None else [], pages):
                    if total < (known or 0) and parts.look_up:
                        found.update(row[table.names.index(table.key[-1])] for row in page)
                    yield page
                if total < (known or 0) and parts.look_up:
                    parts.look_up(part, found)
                return
        _log.info("%s: only %s records: reading it again to confirm it (%s of %s)", name, total, attempt, MAX_READINGS)
        expected_rows = total
    raise MailIncompleteError(
        f"{name}: the list got shorter each of {MAX_READINGS} times that it was read: {expected_rows} records at last",
        got=expected_rows,
        expected=None,
    )


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


def _must_not_be_dropped() -> None:
    """Compare what dlt says was loaded with the destination's tables and columns.

    dlt creates no table and no column that it has created before. It would fail in the destination's words, or, where a
    run has no rows for the table, succeed without it.
    """
    schema = dlt.current.source_schema()
    names = [name for name in dlt.current.source().selected_resources if name in schema.tables]
    if not (names := [name for name in names if has_table_seen_data(schema.tables[name])]):
        return
    pipeline: Any = dlt.current.pipeline()
    with pipeline.destination_client(schema.name) as client:
        if not isinstance(client, SqlJobClientBase):
            return  # files
        by_case = client.capabilities.generates_case_sensitive_identifiers()
        dropped = []
        for name, columns in client.get_storage_tables(names):
            missing = client.schema.get_new_table_columns(name, columns, by_case)
            dropped += [f"{name}.{column['name']}" for column in missing] if columns else [name]
    if dropped:
        raise MailValidationError(
            f"{', '.join(dropped)}: an earlier run has loaded this, but the destination does not have it any more. Add "
            "a column that was dropped again, or load the table again from start_day: run the pipeline once with "
            'refresh="drop_resources" and only the resources of these tables (with_resources)'
        )


def _removal_row(table: Table, part: Part, now: datetime) -> Row:
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


class DaysToRead:
    """The days of statistics that a run reads.

    The first run reads from ``start_day`` on. A later one reads from ``lookback_days`` before the last day that was
    read, days before the first one that was read, and the open days: those for which the service returned nothing. A
    single empty response proves nothing, so a day stays open until a run at least ``lookback_days`` later gets an empty
    response, too.

    :param states: dlt's state of the account, for each table that the run loads; none: a backfill.
    :param stored: the number of rows of each day that the destination has, for the first state. Fewer than the state
        says: the day is read again. Default: not known.
    """

    def __init__(
        self,
        states: Iterable[dict[str, Any]],
        start_day: date,
        last_day: date,
        lookback_days: int,
        stored: Mapping[date, int] | None = None,
    ) -> None:
        self._states = list(states)
        self._stored = stored
        self._counts: Counter[date] = Counter()
        self._start_day = start_day
        self._last_day = last_day
        self._lookback = lookback_days * DAY
        self._answered: set[date] = set()
        self._days = {day for state in self._states or [{}] for day in self._unread(state)}
        self._days |= self._lost()

    def windows(self) -> list[tuple[date, date]]:
        """Return the days as windows of at most `WINDOW_DAYS`, the earliest first."""
        return _ranges(self._days, WINDOW_DAYS)

    def answered(self, days: Iterable[date]) -> None:
        """Note days of which the service returned something."""
        self._answered.update(days)

    def loaded(self, days: Iterable[date]) -> None:
        """Note the day of each row that the run loads."""
        self._counts.update(days)

    def _lost(self) -> set[date]:
        """The days of which rows were deleted from the destination, and those beside them: days differ by time zone."""
        rows = self._states[0].get("rows", {}) if self._states and self._stored is not None else {}
        lost = [day for day in map(date.fromisoformat, rows) if (self._stored or {}).get(day, 0) < rows[f"{day}"]]
        if lost:
            _log.warning("Rows of %s days were deleted from the destination: reading these days again", len(lost))
        return {
            near for day in lost for near in span(day - DAY, day + DAY) if self._start_day <= near <= self._last_day
        }

    def save(self) -> None:
        """Change the states, when all windows have been read completely."""
        for state in self._states[:1]:
            rows = {
                day: count for day, count in state.get("rows", {}).items() if date.fromisoformat(day) not in self._days
            }
            state["rows"] = {**rows, **{f"{day}": self._counts[day] for day in sorted(self._days) if self._counts[day]}}
        for state in self._states if self._days else ():
            open_days = _open_days(state)
            empty_days = {day: open_days.get(day, self._last_day) for day in self._days - self._answered}
            still_open = {
                day: since
                for day, since in empty_days.items()
                # The service may have nothing of the last day yet, which is read again anyway.
                if day < self._last_day and (since >= self._last_day or self._last_day - since < self._lookback)
            }
            if still_open:
                ranges = ", ".join(f"{low} to {high}" for low, high in _ranges(still_open))
                _log.info(
                    "The service returned nothing of %s days, which later runs read again: %s", len(still_open), ranges
                )
            first = min(self._start_day, _day(state, "first_day") or self._start_day)
            # Ranges of open days that were first found empty on the same day.
            open_ranges = []
            for since in sorted(set(still_open.values())):
                days = [day for day in still_open if still_open[day] == since]
                open_ranges += [[f"{low}", f"{high}", f"{since}"] for low, high in _ranges(days)]
            state.update(first_day=first.isoformat(), last_day=self._last_day.isoformat(), open=open_ranges)

    def _unread(self, state: Mapping[str, Any]) -> set[date]:
        first, last = _day(state, "first_day"), _day(state, "last_day")
        if first is None or last is None:
            return set(span(self._start_day, self._last_day))
        # The stored days come from a clock, which may have been ahead.
        reread_from = max(first, min(last, self._last_day) - self._lookback)
        earlier = span(self._start_day, min(first - DAY, self._last_day))
        open_days = (day for day in _open_days(state) if day <= self._last_day)
        return {*earlier, *open_days, *span(reread_from, self._last_day)}


def days_to_read(
    mail_conn_id: str,
    tables: Iterable[str],
    start_day: date,
    last_day: date,
    lookback_days: int,
    stored: Iterable[date] | None,
) -> DaysToRead:
    """Return the days that a run reads, for those of the tables that it loads.

    :param stored: the day of each row that the first of the tables has; ``None``: not known.
    """
    selected = dlt.current.source().selected_resources
    states = []
    for table in tables:
        if table in selected:
            accounts = dlt.current.resource_state(table).setdefault("accounts", {})
            if selected[table].write_disposition == "replace":
                # dlt empties the table first.
                accounts.pop(mail_conn_id, None)
            states.append(accounts.setdefault(mail_conn_id, {}))
    return DaysToRead(states, start_day, last_day, lookback_days, None if stored is None else Counter(stored))


def span(first: date, last: date) -> Iterator[date]:
    return (first + number * DAY for number in range((last - first).days + 1))


def _ranges(days: Iterable[date], max_days: int | None = None) -> list[tuple[date, date]]:
    """Return days as ranges without gaps, each of at most ``max_days`` days."""
    ranges: list[tuple[date, date]] = []
    for day in sorted(days):
        first, last = ranges[-1] if ranges else (day, date.min)
        if last + DAY == day and (max_days is None or (day - first).days < max_days):
            ranges[-1] = first, day
        else:
            ranges.append((day, day))
    return ranges


def _open_days(state: Mapping[str, Any]) -> dict[date, date]:
    """Return the open days, with the day on which each was first found empty."""
    ranges = [[date.fromisoformat(text) for text in interval] for interval in state.get("open", ())]
    return {day: since for low, high, since in ranges for day in span(low, high)}


def _day(state: Mapping[str, Any], name: str) -> date | None:
    return date.fromisoformat(state[name]) if name in state else None
