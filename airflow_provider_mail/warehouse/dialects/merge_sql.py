"""The SQL of loads into warehouses that do not enforce keys: rows are staged in a table, then merged by one statement.

One MERGE holds all rules, so readers see all of a load or nothing of it, even in a warehouse without transactions of
several statements: a row never replaces one that was observed later; rows of a window that the load has read whole
are removed or marked as gone if the load lacks them; a part that a later load has read whole stays as it is.

Values are literals, since the statements also run where there are no parameters, such as in scripts of BigQuery.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_mail.warehouse.dialects.base import Condition
from airflow_provider_mail.warehouse.dialects.spool import Spooled
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.request import LOADS, LOADS_NAME, LoadRequest, OneOf, Where, table_name
from airflow_provider_mail.warehouse.table import Column, Table, TableName

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

LOCK_NAME = "mail_load_lock"
"""A table of one row, which every load of the schema updates, so that the second load waits for the first."""

BEGUN_NAME = "mail_loads_begun"
"""A table like ``mail_loads``, of warehouses without transactions: the times of loads that have begun to merge."""

_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r"})
_PUT, _REMOVE = "'put'", "'remove'"


class MergeSql(Spooled):
    """The statements of one load.

    :param stage: the table with the staged rows, each key once.
    :param has_json_text: whether JSON is staged as text. Default: true.
    """

    parse_json: ClassVar[str] = "PARSE_JSON({})"
    """Converts text to the type of JSON."""
    primary_key: ClassVar[str | None] = "PRIMARY KEY ({})"
    """Declares the key, which is not enforced."""
    quote: ClassVar[str] = '"'
    """Quotes a name."""
    timestamp_literal: ClassVar[str] = "TIMESTAMP '{}+00:00'"
    """A point in time, of which the text in UTC is filled in."""
    transaction: ClassVar[tuple[str, str, str] | None] = None
    """Statements that begin, commit and roll back a transaction."""
    has_lock: ClassVar[bool] = False
    """Whether loads wait for each other at a table of locks. Otherwise the warehouse rejects one of two merges."""
    is_script: ClassVar[bool] = False
    """Whether a transaction is sent as one script."""

    def __init__(self, hook: DbApiHook, request: LoadRequest, stage: TableName, *, has_json_text: bool = True) -> None:
        super().__init__(hook, request)
        self.loads = self._beside(LOADS_NAME)
        self.begun = self.loads if self.transaction else self._beside(BEGUN_NAME)
        self.stage = self._qualified(stage)
        self.lock_table = self._beside(LOCK_NAME)
        self.observed_at: datetime.datetime | None = None
        """When the service was asked; without it, rows of a window are removed whenever they were observed."""
        self._has_json_text = has_json_text

    def _beside(self, name: str) -> str:
        return self._qualified(self.request.name.beside(TableName.parse(name)))

    # Spelling

    def _qualified(self, name: TableName) -> str:
        """Spell the name of a table.

        :raises WarehouseError: when it cannot be quoted.
        """
        if any(self.quote in part.text and part.quoted for part in name.parts):
            raise WarehouseError(f"`table` must not contain {self.quote}: {str(name)!r}")
        return ".".join(f"{self.quote}{part.text}{self.quote}" if part.quoted else part.text for part in name.parts)

    def _spelled(self, column: Column, value: Any) -> Condition:
        return self.value(column, value), []

    def value(self, column: Column, value: Any) -> str:
        """Return a value of a column as a literal.

        :param value: the value, JSON as text.
        """
        if value is None:
            return "NULL"
        type_name = column.type.name
        if type_name == "timestamp":
            return self.timestamp(value)
        if type_name == "date":
            return f"DATE '{value.isoformat()}'"
        if type_name == "boolean":
            return "TRUE" if value else "FALSE"
        return self.text(value) if type_name in ("text", "json") else repr(value)

    def text(self, text: str) -> str:
        """Return a text as a literal: the backslash escapes in these warehouses."""
        return f"'{text.translate(_ESCAPES)}'"

    def timestamp(self, value: datetime.datetime) -> str:
        """Return a point in time as a literal.

        :param value: a datetime with a zone.
        """
        return self.timestamp_literal.format(f"{value.astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S.%f}")

    # Tables

    def create_statements(self) -> Iterator[str]:
        """Create the table, ``mail_loads`` and the tables of locks and of begun loads, where they are missing."""
        yield self._create(self.target, self.table)
        for loads in self.tables_of_loads():
            yield self._create(loads, LOADS)
        if self.has_lock:
            yield f"CREATE TABLE IF NOT EXISTS {self.lock_table} AS SELECT 0 AS loads"

    def _create(self, name: str, table: Table) -> str:
        lines = [*map(self._definition, table.stored_columns)]
        if self.primary_key:
            lines.append(self.primary_key.format(self._columns_list(table.key)))
        body = ",\n  ".join(lines)
        return f"CREATE TABLE IF NOT EXISTS {name} (\n  {body}\n){self.clustering(table)}"

    def clustering(self, table: Table) -> str:
        return ""

    def addition(self, name: str, column: Column) -> str:
        return f"ALTER TABLE {name} ADD COLUMN {self._column(column.name)} {self._column_type(column)}"

    def tables_of_loads(self) -> Iterable[str]:
        return dict.fromkeys((self.begun, self.loads)) if self.request.covers else ()

    def empty_stage(self) -> list[str]:
        json = self.types["text" if self._has_json_text else "json"]
        columns = ", ".join(
            f"{self._column(column.name)} {json if column.type.name == 'json' else self._column_type(column)}"
            for column in self.table.stored_columns
        )
        return [self.drop_stage(), f"CREATE TABLE {self.stage} ({columns})"]

    def drop_stage(self) -> str:
        return f"DROP TABLE IF EXISTS {self.stage}"

    def insert_stage(self, rows: Sequence[Sequence[Any]]) -> str:
        """Stage rows.

        :param rows: the rows, JSON as text.
        """
        values = ", ".join(
            f"({', '.join(self.value(column, value) for column, value in zip(self.table.columns, row, strict=True))})"
            for row in rows
        )
        return f"INSERT INTO {self.stage} ({self._columns_list(self.table.names)}) VALUES {values}"

    def count_stage(self) -> str:
        keys = f"SELECT 1 AS one FROM {self.stage} GROUP BY {self._columns_list(self.table.key)}"
        return f"SELECT (SELECT COUNT(*) FROM {self.stage}), (SELECT COUNT(*) FROM ({keys}) AS k)"

    # Conditions

    def _where(self, where: Where, alias: str = "") -> str:
        return self._condition("conditions", where, alias)[0]

    def _windows(self, alias: str = "") -> str | None:
        """The condition for rows that are removed unless they are staged; ``None``: no row is."""
        request = self.request
        if request.source.rejected:
            return None
        windows: list[Where] = []
        if request.replace_where:
            windows = [request.replace_where]
        elif request.mark_gone:
            windows = [*request.mark_gone.windows()]
        if windows and self.is_asked:
            missing = sorted(self._missing_names)
            windows = [{**window, self.table.key[-1]: OneOf(missing)} for window in windows] if missing else []
        if not windows:
            return None
        condition = " OR ".join(f"({self._where(window, alias)})" for window in windows)
        if self.observed_at is not None and self.table.observed:
            condition = f"({condition}) AND {self._last_observed(alias)} <= {self.timestamp(self.observed_at)}"
        if not request.replace_where:
            condition = f"{condition} AND {alias}{self._column(str(self.table.gone))} IS NULL"
        return condition

    def _same_key(self, one: str, other: str, table: Table | None = None) -> str:
        key = (table or self.table).key
        return " AND ".join(f"{one}{name} = {other}{name}" for name in map(self._column, key))

    def _part(self, alias: str) -> str:
        covers = self.request.covers
        assert covers
        cases = " ".join(
            f"WHEN {self._where(where, alias)} THEN {self.text(part)}" for part, where in covers.parts.items()
        )
        return f"CASE {cases} END"

    def _not_late(self, alias: str) -> str:
        """The condition that no later load has read the row's part whole."""
        covers = self.request.covers
        if not covers:
            return "1 = 1"
        return (
            f"NOT EXISTS (SELECT 1 FROM {self.begun} AS l WHERE l.table_name = "
            f"{self.text(table_name(self.request.name))} AND l.mail_conn_id = {self.text(covers.mail_conn_id)} "
            f"AND l.observed_at > {self.timestamp(covers.observed_at)} AND l.part = {alias}merge_part)"
        )

    def _with_part(self, columns: str, source: str, alias: str) -> str:
        part = f", {self._part(alias)} AS merge_part" if self.request.covers else ""
        return f"(SELECT {columns}{part} FROM {source} AS {alias.rstrip('.')}"

    def _native(self, name: str, alias: str) -> str:
        """A staged column with the type of the table."""
        spelled = f"{alias}{self._column(name)}"
        if self._has_json_text and self.table[name].type.name == "json":
            return f"{self.parse_json.format(spelled)} AS {self._column(name)}"
        return spelled

    # The load

    def _load_literals(self, request: LoadRequest) -> list[str]:
        """The values of ``load_columns``; those of staged rows are not used."""
        values = request.load_values(self.loaded_at)
        return [self.value(column, value) for column, value in zip(request.table.load_columns, values, strict=True)]

    def _assigned_literals(self, request: LoadRequest) -> str:
        """Assignments of these values, each after a comma."""
        literals = zip(request.table.load_names, self._load_literals(request), strict=True)
        return "".join(f", {self._column(name)} = {literal}" for name, literal in literals)

    def select_removed(self, selected: str) -> str | None:
        """Select from the rows that the merge removes; ``None``: it removes none.

        :param selected: what to select, of ``g``.
        """
        if not (window := self._windows("r.")):
            return None
        inner = self._with_part(self._columns_list(self.table.names, "r."), self.target, "r.")
        return (
            f"SELECT {selected} FROM {inner} WHERE {window}) AS g WHERE {self._not_late('g.')} AND NOT EXISTS "
            f"(SELECT 1 FROM {self.stage} AS k WHERE {self._same_key('k.', 'g.')})"
        )

    def count_new(self, by: str) -> str:
        return (
            f"SELECT s.{self._column(by)}, COUNT(*) FROM {self.stage} AS s WHERE NOT EXISTS "
            f"(SELECT 1 FROM {self.target} AS t WHERE {self._same_key('s.', 't.')}) GROUP BY s.{self._column(by)}"
        )

    def count_merged(self, observed_at: datetime.datetime, account: Where) -> str:
        """Count the parts that ``mail_loads`` has at a time or later; without parts, such rows of the account."""
        source, condition = self.target, self._where(account)
        if covers := self.request.covers:
            parts = ", ".join(map(self.text, covers.parts))
            name, conn_id = self.text(table_name(self.request.name)), self.text(covers.mail_conn_id)
            source, condition = self.loads, f"table_name = {name} AND mail_conn_id = {conn_id} AND part IN ({parts})"
        return f"SELECT COUNT(*) FROM {source} WHERE {condition} AND observed_at >= {self.timestamp(observed_at)}"

    def load_statements(self) -> list[str]:
        """Merge the staged rows: all statements of the transaction, without its beginning and end."""
        expired = self._expired()
        expire = [f"DELETE FROM {self.target} WHERE {expired[0]}"] if expired else []
        if self.transaction:
            return [*self._lock(), *expire, *self._record(self.loads), *self._merge()]
        # Each statement is a transaction of its own. An older load that runs between two of them must already see
        # this one, and `mail_loads` must not have the time of a load whose rows are missing.
        return [*expire, *self._record(self.begun), *self._merge(), *self._record(self.loads)]

    def _lock(self) -> list[str]:
        return [f"UPDATE {self.lock_table} SET loads = loads + 1 WHERE 1 = 1"] if self.has_lock else []

    def _loads_rows(self) -> str:
        covers = self.request.covers
        assert covers
        return " UNION ALL ".join(
            f"SELECT {self.text(table)} AS table_name, {self.text(conn_id)} AS mail_conn_id, "
            f"{self.text(part)} AS part, {self.timestamp(at)} AS observed_at"
            for table, conn_id, part, at in covers.rows(self.request.name)
        )

    def _to_record(self) -> LoadRequest | None:
        """The load of ``mail_loads``; ``None`` if the rows are not complete."""
        return self.request.coverage_request() if self.request.is_complete else None

    def _record(self, loads: str) -> list[str]:
        """Record the times of the parts, unless a later load has begun to merge them."""
        record = self._to_record()
        if not record:
            return []
        rows = self._loads_rows()
        if loads != self.begun:
            rows = (
                f"SELECT * FROM ({rows}) AS r WHERE NOT EXISTS (SELECT 1 FROM {self.begun} AS l "
                f"WHERE {self._same_key('l.', 'r.', LOADS)} AND l.observed_at > r.observed_at)"
            )
        return [
            f"MERGE INTO {loads} AS t USING ({rows}) AS s ON {self._same_key('t.', 's.', LOADS)} "
            "WHEN MATCHED AND s.observed_at > t.observed_at THEN UPDATE SET observed_at = s.observed_at"
            f"{self._assigned_literals(record)} "
            f"WHEN NOT MATCHED THEN INSERT ({self._columns_list(LOADS.stored_names)}) "
            f"VALUES ({', '.join([self._columns_list(LOADS.names, 's.'), *self._load_literals(record)])})"
        ]

    def _merge(self) -> list[str]:
        names = self.table.names
        native = ", ".join(self._native(name, "g.") for name in names)
        inner = self._with_part(self._columns_list(names, "r."), self.stage, "r.")
        source = f"SELECT {native}, {_PUT} AS merge_action FROM {inner}) AS g WHERE {self._not_late('g.')}"
        matched = ""
        if removed := self.select_removed(f"{self._columns_list(names, 'g.')}, {_REMOVE} AS merge_action"):
            source += f" UNION ALL {removed}"
            matched += f"WHEN MATCHED AND s.merge_action = {_REMOVE} THEN {self._removal()} "
        if self.table.updated:
            newer = f" AND s.{self._column(str(self.table.observed))} >= {self._last_observed('t.')}"
            updates = ", ".join(f"{name} = s.{name}" for name in map(self._column, self.table.updated))
            condition = newer if self.table.observed else ""
            matched += (
                f"WHEN MATCHED AND s.merge_action = {_PUT}{condition} THEN "
                f"UPDATE SET {updates}{self._assigned_literals(self.request)} "
            )
        return [
            f"MERGE INTO {self.target} AS t USING ({source}) AS s ON {self._same_key('t.', 's.')} {matched}"
            f"WHEN NOT MATCHED AND s.merge_action = {_PUT} THEN "
            f"INSERT ({self._columns_list(self.table.stored_names)}) "
            f"VALUES ({', '.join([self._columns_list(names, 's.'), *self._load_literals(self.request)])})"
        ]

    def _removal(self) -> str:
        if self.request.replace_where:
            return "DELETE"
        assert self.request.mark_gone
        gone = self._column(str(self.table.gone))
        at = self.timestamp(self.request.mark_gone.observed_at)
        return f"UPDATE SET {gone} = {at}{self._assigned_literals(self.request)}"
