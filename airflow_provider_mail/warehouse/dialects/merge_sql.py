"""The SQL of loads into warehouses that do not enforce keys: rows are staged in a table, then merged by one statement.

One MERGE holds all rules, so readers see all of a load or nothing of it, even in a warehouse without transactions of
several statements: a row never replaces one that was observed later; rows of a window that the load has read whole
are removed or marked as gone if the load lacks them; a part that a later load has read whole stays as it is.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from airflow_provider_mail.warehouse.coverage import LOADS, Between, OneOf, loads_beside, table_name
from airflow_provider_mail.warehouse.dialects.warehouse_sql import WarehouseSql
from airflow_provider_mail.warehouse.request import LoadRequest, Where
from airflow_provider_mail.warehouse.rows import fits
from airflow_provider_mail.warehouse.table import Column, NamePart, TableName

LOCK_NAME = "mail_load_lock"
"""A table of one row, which every load of the schema updates, so that the second load waits for the first."""

BEGUN_NAME = "mail_loads_begun"
"""A table like ``mail_loads``, of warehouses without transactions: the times of loads that have begun to merge."""

_PUT, _REMOVE = "'put'", "'remove'"


class MergeSql(WarehouseSql):
    """The statements of one load.

    :param request: the load; its source is not read.
    :param stage: the table with the staged rows, each key once.
    :param observed_at: when the service was asked. Default: rows of a window are removed whenever they were observed.
    :param has_json_text: whether JSON is staged as text. Default: true.
    :param missing: names that the service does not have, if it was asked (`MarkGone.exists`). Default: it was not.
    """

    transaction: ClassVar[tuple[str, str, str] | None] = None
    """Statements that begin, commit and roll back a transaction."""
    has_lock: ClassVar[bool] = False
    """Whether loads wait for each other at a table of locks. Otherwise the warehouse rejects one of two merges."""
    is_script: ClassVar[bool] = False
    """Whether a transaction is sent as one script."""

    def __init__(
        self,
        request: LoadRequest,
        stage: TableName,
        *,
        observed_at: datetime.datetime | None = None,
        has_json_text: bool = True,
        missing: Collection[str] | None = None,
    ) -> None:
        self._missing = missing
        self.request = request
        self.table = request.table
        self.target = self.name(request.name)
        self.loads = self.name(loads_beside(request.name))
        self.begun = self.loads if self.transaction else self._beside(BEGUN_NAME)
        self.stage = self.name(stage)
        self.lock_table = self._beside(LOCK_NAME)
        self._observed_at = observed_at
        self._loaded_at = datetime.datetime.now(datetime.UTC)
        self._has_json_text = has_json_text

    def _beside(self, name: str) -> str:
        return self.name(TableName((*self.request.name.parts[:-1], NamePart(name, False))))

    # Tables

    def create_statements(self) -> Iterator[str]:
        """Create the table, ``mail_loads`` and the tables of locks and of begun loads, where they are missing."""
        yield self.create(self.target, self.table)
        for loads in self.tables_of_loads():
            yield self.create(loads, LOADS)
        if self.has_lock:
            yield f"CREATE TABLE IF NOT EXISTS {self.lock_table} AS SELECT 0 AS loads"

    def tables_of_loads(self) -> Iterable[str]:
        """Return the names of the tables that record the parts of the load; none without parts."""
        return dict.fromkeys((self.begun, self.loads)) if self.request.covers else ()

    def create_stage(self) -> list[str]:
        """Create the table of staged rows, empty, with the columns of the files."""
        json = self.types["text" if self._has_json_text else "json"]
        columns = ", ".join(
            f"{self.column(column.name)} {json if column.type.name == 'json' else self.column_type(column)}"
            for column in self.table.stored_columns
        )
        return [self.drop_stage(), f"CREATE TABLE {self.stage} ({columns})"]

    def drop_stage(self) -> str:
        """Remove the table of staged rows."""
        return f"DROP TABLE IF EXISTS {self.stage}"

    def insert_stage(self, rows: Sequence[Sequence[Any]]) -> str:
        """Stage rows.

        :param rows: the rows, JSON as text.
        """
        values = ", ".join(
            f"({', '.join(self.value(column, value) for column, value in zip(self.table.columns, row, strict=True))})"
            for row in rows
        )
        return f"INSERT INTO {self.stage} ({self.columns(self.table.names)}) VALUES {values}"

    def count_stage(self) -> str:
        """Count the staged rows, and their keys."""
        keys = f"SELECT 1 AS one FROM {self.stage} GROUP BY {self.columns(self.table.key)}"
        return f"SELECT (SELECT COUNT(*) FROM {self.stage}), (SELECT COUNT(*) FROM ({keys}) AS k)"

    # Conditions

    def where(self, where: Where, alias: str = "") -> str:
        """Return the condition that columns have the given values.

        :param where: by column, a value, ``None``, `Between` or `OneOf`.
        :param alias: prefix of the columns.
        :raises ValueError: when a value does not have the type of its column.
        """
        return " AND ".join(self._one(self.table[name], expected, alias) for name, expected in where.items())

    def _one(self, column: Column, expected: Any, alias: str) -> str:
        spelled = f"{alias}{self.column(column.name)}"
        if expected is None:
            return f"{spelled} IS NULL"
        ends = [expected]
        if isinstance(expected, Between):
            ends = [expected.low, expected.high]
        elif isinstance(expected, OneOf):
            ends = [*expected.values]
        if any(end is None or not fits(column, type(end)) for end in ends):
            raise ValueError(f"column {column.name} is compared with a value that is not {column.type.name}")
        values = [self.value(column, end) for end in ends]
        if isinstance(expected, OneOf):
            return f"{spelled} IN ({', '.join(values)})"
        return f"{spelled} BETWEEN {' AND '.join(values)}" if len(values) > 1 else f"{spelled} = {values[0]}"

    def windows(self, alias: str = "") -> str | None:
        """Return the condition for rows that are removed unless they are staged; ``None``: no row is."""
        request = self.request
        if request.source.rejected:
            return None
        windows = self._removable()
        if windows and request.mark_gone and request.mark_gone.exists and self._missing is not None:
            windows = [{**window, self.table.key[-1]: OneOf(sorted(self._missing))} for window in windows]
            windows = windows if self._missing else []
        if not windows:
            return None
        condition = " OR ".join(f"({self.where(window, alias)})" for window in windows)
        if self._observed_at is not None and self.table.observed:
            condition = f"({condition}) AND {self.last_observed(alias)} <= {self.timestamp(self._observed_at)}"
        if not request.replace_where:
            condition = f"{condition} AND {alias}{self.column(str(self.table.gone))} IS NULL"
        return condition

    def _removable(self) -> list[Where]:
        if self.request.replace_where:
            return [self.request.replace_where]
        return [*self.request.mark_gone.windows()] if self.request.mark_gone else []

    def last_observed(self, alias: str) -> str:
        """Return the time at which a row was last observed to be as it is, or to be gone."""
        observed = f"{alias}{self.column(str(self.table.observed))}"
        return f"COALESCE({alias}{self.column(self.table.gone)}, {observed})" if self.table.gone else observed

    def same_key(self, one: str, other: str) -> str:
        """Return the condition that two rows have the same key.

        :param one: prefix of the one's columns.
        :param other: prefix of the other's.
        """
        return " AND ".join(f"{one}{self.column(name)} = {other}{self.column(name)}" for name in self.table.key)

    def _part(self, alias: str) -> str:
        """The part of ``covers`` that a row belongs to."""
        covers = self.request.covers
        assert covers
        cases = " ".join(
            f"WHEN {self.where(where, alias)} THEN {self.text(part)}" for part, where in covers.parts.items()
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
        spelled = f"{alias}{self.column(name)}"
        if self._has_json_text and self.table[name].type.name == "json":
            return f"{self.parse_json.format(spelled)} AS {self.column(name)}"
        return spelled

    # The load

    def _load_literals(self, request: LoadRequest) -> list[str]:
        """The values of ``load_columns``; those of staged rows are not used."""
        values = request.load_values(self._loaded_at)
        return [self.value(column, value) for column, value in zip(request.table.load_columns, values, strict=True)]

    def _load_assignments(self, request: LoadRequest) -> str:
        """Assignments of these values, each after a comma."""
        literals = zip(request.table.load_names, self._load_literals(request), strict=True)
        return "".join(f", {self.column(name)} = {literal}" for name, literal in literals)

    def count_removable(self) -> str | None:
        """Count the rows of ``replace_where``, or those of ``mark_gone`` that are not marked."""
        windows = self._removable()
        if not windows:
            return None
        condition = " OR ".join(f"({self.where(window)})" for window in windows)
        if not self.request.replace_where:
            condition = f"({condition}) AND {self.column(str(self.table.gone))} IS NULL"
        return f"SELECT COUNT(*) FROM {self.target} WHERE {condition}"

    def select_removed(self, selected: str) -> str | None:
        """Select from the rows that the merge removes; ``None``: it removes none.

        :param selected: what to select, of ``g``.
        """
        window = self.windows("r.")
        return f"SELECT {selected} {self._removed(window)}" if window else None

    def _removed(self, window: str) -> str:
        inner = self._with_part(self.columns(self.table.names, "r."), self.target, "r.")
        return (
            f"FROM {inner} WHERE {window}) AS g WHERE {self._not_late('g.')} AND NOT EXISTS "
            f"(SELECT 1 FROM {self.stage} AS k WHERE {self.same_key('k.', 'g.')})"
        )

    def count_future(self, latest: datetime.datetime) -> str | None:
        """Count the rows with staged keys that were observed after a time."""
        if not self.table.observed:
            return None
        return (
            f"SELECT COUNT(*) FROM {self.target} AS t JOIN {self.stage} AS s ON {self.same_key('s.', 't.')} "
            f"WHERE {self.last_observed('t.')} > {self.timestamp(latest)}"
        )

    def count_new(self, by: str) -> str:
        """Count the staged rows whose keys are new, by the values of a column."""
        return (
            f"SELECT s.{self.column(by)}, COUNT(*) FROM {self.stage} AS s WHERE NOT EXISTS "
            f"(SELECT 1 FROM {self.target} AS t WHERE {self.same_key('s.', 't.')}) GROUP BY s.{self.column(by)}"
        )

    def count_merged(self, observed_at: datetime.datetime, account: Where) -> str:
        """Count the parts that ``mail_loads`` has at a time or later; without parts, such rows of the account.

        :param account: the condition for the rows of the account.
        """
        source, condition = self.target, self.where(account)
        if covers := self.request.covers:
            parts = ", ".join(map(self.text, covers.parts))
            name, conn_id = self.text(table_name(self.request.name)), self.text(covers.mail_conn_id)
            source, condition = self.loads, f"table_name = {name} AND mail_conn_id = {conn_id} AND part IN ({parts})"
        return f"SELECT COUNT(*) FROM {source} WHERE {condition} AND observed_at >= {self.timestamp(observed_at)}"

    def load_statements(self) -> list[str]:
        """Merge the staged rows: all statements of the transaction, without its beginning and end."""
        if self.transaction:
            return [*self._lock(), *self._expire(), *self._record(self.loads), *self.merge()]
        # Each statement is a transaction of its own. An older load that runs between two of them must already see
        # this one, and `mail_loads` must not have the time of a load whose rows are missing.
        return [*self._expire(), *self._record(self.begun), *self.merge(), *self._record(self.loads)]

    def _lock(self) -> list[str]:
        return [f"UPDATE {self.lock_table} SET loads = loads + 1 WHERE 1 = 1"] if self.has_lock else []

    def _expire(self) -> list[str]:
        if self.request.expire_before is None:
            return []
        condition = f"{self.column(str(self.table.observed))} < {self.timestamp(self.request.expire_before)}"
        if where := self.request.replace_where:
            condition += f" AND NOT ({self.where(where)})"
        return [f"DELETE FROM {self.target} WHERE {condition}"]

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
                f"WHERE {self._same_part('l', 'r')} AND l.observed_at > r.observed_at)"
            )
        return [
            f"MERGE INTO {loads} AS t USING ({rows}) AS s ON {self._same_part('t', 's')} "
            "WHEN MATCHED AND s.observed_at > t.observed_at THEN UPDATE SET observed_at = s.observed_at"
            f"{self._load_assignments(record)} WHEN NOT MATCHED THEN INSERT ({self.columns(LOADS.stored_names)}) "
            f"VALUES ({', '.join([self.columns(LOADS.names, 's.'), *self._load_literals(record)])})"
        ]

    def _same_part(self, one: str, other: str) -> str:
        return " AND ".join(f"{one}.{self.column(name)} = {other}.{self.column(name)}" for name in LOADS.key)

    def merge(self) -> list[str]:
        """Merge the staged rows."""
        names = self.table.names
        native = ", ".join(self._native(name, "g.") for name in names)
        inner = self._with_part(self.columns(names, "r."), self.stage, "r.")
        source = f"SELECT {native}, {_PUT} AS merge_action FROM {inner}) AS g WHERE {self._not_late('g.')}"
        matched = ""
        if removed := self.select_removed(f"{self.columns(names, 'g.')}, {_REMOVE} AS merge_action"):
            source += f" UNION ALL {removed}"
            matched += f"WHEN MATCHED AND s.merge_action = {_REMOVE} THEN {self._removal()} "
        if self.table.updated:
            newer = f" AND s.{self.column(str(self.table.observed))} >= {self.last_observed('t.')}"
            updates = ", ".join(f"{self.column(name)} = s.{self.column(name)}" for name in self.table.updated)
            condition = newer if self.table.observed else ""
            load_assignments = self._load_assignments(self.request)
            matched += (
                f"WHEN MATCHED AND s.merge_action = {_PUT}{condition} THEN UPDATE SET {updates}{load_assignments} "
            )
        return [
            f"MERGE INTO {self.target} AS t USING ({source}) AS s ON {self.same_key('t.', 's.')} {matched}"
            f"WHEN NOT MATCHED AND s.merge_action = {_PUT} THEN "
            f"INSERT ({self.columns(self.table.stored_names)}) "
            f"VALUES ({', '.join([self.columns(names, 's.'), *self._load_literals(self.request)])})"
        ]

    def _removal(self) -> str:
        if self.request.replace_where:
            return "DELETE"
        assert self.request.mark_gone
        gone = self.column(str(self.table.gone))
        at = self.timestamp(self.request.mark_gone.observed_at)
        return f"UPDATE SET {gone} = {at}{self._load_assignments(self.request)}"
