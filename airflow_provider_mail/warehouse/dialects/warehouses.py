"""Warehouses that do not enforce keys: how they are loaded, and what each of them spells differently."""

from __future__ import annotations

import datetime
import random
import re
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_mail.warehouse.dialects.base import STANDARD_TYPES
from airflow_provider_mail.warehouse.dialects.merge_sql import MergeSql
from airflow_provider_mail.warehouse.dialects.spool import RowSpool
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.request import LOADS, LoadRequest, LoadResult, Where
from airflow_provider_mail.warehouse.rows import Encoder, aware, chunks, each, json_text
from airflow_provider_mail.warehouse.table import Column, NamePart, Table, TableName, literal

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

_MAX_ROWS, _MAX_CHARACTERS = 500, 100_000
"""Limits of one INSERT; the shortest limit of a statement is that of BigQuery, a million characters."""

_CONFLICT = re.compile(r"conflict|concurrent|serializ|deadlock|lock timeout|40001", re.IGNORECASE)


class Merging(MergeSql):
    """A warehouse with MERGE, or with transactions that lock a table.

    :param has_json_text: whether JSON is staged as text. Default: true.
    """

    def __init__(
        self, hook: DbApiHook, request: LoadRequest, load_id: str | None = None, *, has_json_text: bool = True
    ) -> None:
        last = request.name.parts[-1]
        load_id = load_id or f"{datetime.datetime.now(datetime.UTC):%Y%m%dt%H%M%S}{secrets.token_hex(3)}"
        own = NamePart(f"{last.text[:30]}_stage_{load_id}", last.quoted)
        stage = TableName((*request.name.parts[:-1], own))
        super().__init__(hook, request, stage, has_json_text=has_json_text)
        if hasattr(hook, "use_legacy_sql"):
            hook.use_legacy_sql = False  # BigQuery's own, older language

    def load(self, connection: Any) -> LoadResult:
        encoder = Encoder(self.table, each({"json": json_text, "timestamp": aware}), nul=False)
        with closing(self.open(connection)) as cursor, closing(self._spool()) as spool:
            self.prepare(cursor)
            spool.fill(self.request.source.encoded(encoder))
            try:
                count = self._fill(cursor, spool)
                asked = self.request.covers or self.request.mark_gone
                self.observed_at = asked.observed_at if asked else self._earliest(spool)
                if not self.is_confirmed and self._find_removed(cursor):
                    self._confirm(lambda: spool.fill(self.request.source.encoded(encoder)))
                    count = self._fill(cursor, spool)
                return self._merge_stage(cursor, count)
            finally:
                with suppress(Exception):
                    cursor.execute(self.drop_stage())

    def open(self, connection: Any) -> Any:
        if self.hook.supports_autocommit:
            self.hook.set_autocommit(connection, True)
        return connection.cursor()

    def prepare(self, cursor: Any) -> None:
        for statement in self.create_statements():
            try:
                cursor.execute(statement)
            except Exception:
                time.sleep(random.random())  # another load may be creating the same table
                cursor.execute(statement)
        self._add_columns(cursor, self.target, self._missing(self._column_names(cursor, self.target)))
        for loads in self.tables_of_loads():
            existing = self._column_names(cursor, loads)
            self._add_columns(cursor, loads, [column for column in LOADS.load_columns if column.name not in existing])

    def _add_columns(self, cursor: Any, name: str, columns: Iterable[Column]) -> None:
        for column in columns:
            try:
                cursor.execute(self.addition(name, column))
            except Exception:
                if column.name not in self._column_names(cursor, name):  # unless another load has added it
                    raise

    def existing_columns(self, connection: Any) -> Collection[str]:
        with closing(self.open(connection)) as cursor:
            return self._existing_columns(cursor, self.target)

    def _existing_columns(self, cursor: Any, name: str) -> Collection[str]:
        try:
            return self._column_names(cursor, name)
        except Exception:  # drivers have no common error for a missing table
            return ()

    def create_stage(self, cursor: Any) -> None:
        self._run(cursor, *self.empty_stage())

    def merge_files(self, cursor: Any, count: int, observed_at: datetime.datetime, account: Where) -> LoadResult:
        """Merge rows that another program has staged, then remove the table of staged rows."""
        try:
            self._check_stage(cursor, count)
        except WarehouseError:
            raise
        except Exception:
            # A task that was killed after its last statement is repeated: the table of staged rows is gone.
            staged = self._existing_columns(cursor, self.stage)
            # Whether the table already has this load, or later ones of the same parts.
            expected = len(self.request.covers.parts) if self.request.covers else count
            if staged or self._count(cursor, self.count_merged(observed_at, account)) < expected:
                raise
            return LoadResult(count)
        self.observed_at = observed_at
        self._ask(lambda: self._find_removed(cursor))
        result = self._merge_stage(cursor, count)
        cursor.execute(self.drop_stage())
        return result

    def _merge_stage(self, cursor: Any, count: int) -> LoadResult:
        self.loaded_at = datetime.datetime.now(datetime.UTC)
        statements = self.load_statements()
        self._check_before(cursor)
        inserted_by: dict[Any, int] = {}

        def attempt() -> None:
            by = self.table.counted_by or self.table.key[0]
            if self.table.insert_only:
                cursor.execute(self.count_new(by))
                inserted_by.update({value: int(number) for value, number in cursor.fetchall()})
            if self.transaction is None:
                self._run(cursor, *statements)
                return
            begin, commit, rollback = self.transaction
            if self.is_script:
                cursor.execute(";\n".join([begin, *statements, commit]) + ";")
                return
            cursor.execute(begin)
            try:
                self._run(cursor, *statements, commit)
            except BaseException:
                with suppress(Exception):
                    cursor.execute(rollback)
                raise

        self._retry_conflicts(attempt, inserted_by.clear)
        if self.table.insert_only:
            if not self.table.counted_by:
                inserted_by = {None: sum(inserted_by.values())}
            return self._insert_result(inserted_by)
        return LoadResult(self.request.source.read or count)

    def _check_before(self, cursor: Any) -> None:
        rule = self.request.removal
        if rule and (removed := self._find_removed(cursor)):
            before = self._count_removable(cursor)
            cursor.execute(self.count_new(self.table.key[0]))
            new = sum(int(number) for _, number in cursor.fetchall())
            rule.check(before, before - removed + new, self.prefix)
        existing = f"{self.target} AS t JOIN {self.stage} AS s ON {self._same_key('s.', 't.')}"
        self._reject_future(cursor, existing, ("1 = 1", []), self._last_observed("t."))

    def _corrections(self, to: str, latest: str) -> Iterator[tuple[str, str, str]]:
        yield from super()._corrections(to, latest)
        for loads in self.tables_of_loads():
            yield loads, f"UPDATE {loads} SET {LOADS.observed} = {to}", f"{LOADS.observed} > {latest}"

    def _check_stage(self, cursor: Any, count: int) -> None:
        cursor.execute(self.count_stage())
        ((rows, keys),) = cursor.fetchall()
        if (int(rows), int(keys)) != (count, count):
            raise self.error(
                f"{self.stage} has {rows} rows with {keys} keys, and the load has {count}: load the files again "
                "into an empty table"
            )

    def _find_removed(self, cursor: Any) -> int:
        """Count the rows that the merge would remove; remember their names if the service is asked for them."""
        mark_gone = self.request.mark_gone
        if mark_gone and mark_gone.exists:
            if statement := self.select_removed(f"g.{self._column(self.table.key[-1])}"):
                cursor.execute(statement)
                self._missing_names = {str(name) for (name,) in cursor.fetchall()}
            return len(self._missing_names)
        statement = self.select_removed("COUNT(*)")
        return self._count(cursor, statement) if statement else 0

    def _fill(self, cursor: Any, spool: RowSpool) -> int:
        self._run(cursor, *self.empty_stage())
        count = 0
        for batch in chunks(spool.rows(), _MAX_ROWS, _MAX_CHARACTERS):
            self._current_batch = batch
            cursor.execute(self.insert_stage(batch))
            count += len(batch)
        self._current_batch = ()
        self._check_stage(cursor, count)
        return count

    def _run(self, cursor: Any, *statements: str) -> None:
        for statement in statements:
            cursor.execute(statement)

    def _conflicts(self, error: BaseException) -> bool:
        return bool(_CONFLICT.search(str(error))) or super()._conflicts(error)


class Snowflake(Merging):
    types: ClassVar[Mapping[str, str]] = {
        **STANDARD_TYPES,
        "text": "VARCHAR",
        "double": "DOUBLE",
        "timestamp": "TIMESTAMP_TZ",
        "json": "VARIANT",
    }
    timestamp_literal = "'{}+00:00'::TIMESTAMP_TZ"
    transaction = ("BEGIN TRANSACTION", "COMMIT", "ROLLBACK")
    has_lock = True

    def clustering(self, table: Table) -> str:
        column = table.day
        if column is None:
            return ""
        day = f"TO_DATE({column.name})" if column.type.name == "timestamp" else column.name
        return f" CLUSTER BY ({day}, mail_conn_id)"


class BigQuery(Merging):
    types: ClassVar[Mapping[str, str]] = {
        **STANDARD_TYPES,
        "text": "STRING",
        "bigint": "INT64",
        "integer": "INT64",
        "double": "FLOAT64",
        "boolean": "BOOL",
        "json": "JSON",
    }
    primary_key = "PRIMARY KEY ({}) NOT ENFORCED"
    transaction = ("BEGIN TRANSACTION", "COMMIT TRANSACTION", "ROLLBACK TRANSACTION")
    has_lock = True
    is_script = True
    quote = "`"

    def clustering(self, table: Table) -> str:
        column = table.day
        if column is None:
            return " CLUSTER BY mail_conn_id" if table is not LOADS else ""
        day = f"DATE({column.name})" if column.type.name == "timestamp" else column.name
        return f" PARTITION BY {day} CLUSTER BY mail_conn_id"


class Databricks(Merging):
    """Tables of Delta Lake."""

    types: ClassVar[Mapping[str, str]] = {
        **STANDARD_TYPES,
        "text": "STRING",
        "integer": "INT",
        "double": "DOUBLE",
        "json": "VARIANT",
    }
    primary_key = None  # only in Unity Catalog
    quote = "`"

    def clustering(self, table: Table) -> str:
        column = table.day
        return f" CLUSTER BY ({column.name}, mail_conn_id)" if column else ""


class Trino(Merging):
    """With a connector that has MERGE and detects conflicts, such as Iceberg or Delta Lake."""

    types: ClassVar[Mapping[str, str]] = {
        **STANDARD_TYPES,
        "text": "VARCHAR",
        "double": "DOUBLE",
        "timestamp": "TIMESTAMP(6) WITH TIME ZONE",
        "json": "VARCHAR",
    }
    timestamp_literal = "TIMESTAMP '{} UTC'"
    parse_json = "{}"
    primary_key = None

    @classmethod
    def limited(cls, sql: str, count: int, offset: int) -> str:
        return f"{sql} OFFSET {offset} ROWS FETCH NEXT {count} ROWS ONLY"

    def text(self, text: str) -> str:
        return literal(text)

    def value(self, column: Column, value: Any) -> str:
        if column.type.name == "double" and value is not None:
            return f"DOUBLE '{float(value)!r}'"  # a number with a point is a decimal of its own precision
        return super().value(column, value)


class Redshift(Merging):
    """Its MERGE has no conditions: rows are deleted and inserted, in a transaction that locks the table."""

    types: ClassVar[Mapping[str, str]] = {
        **STANDARD_TYPES,
        "text": "VARCHAR(65535)",
        "timestamp": "TIMESTAMPTZ",
        "json": "SUPER",
    }
    timestamp_literal = "CAST('{}+00' AS TIMESTAMPTZ)"
    parse_json = "JSON_PARSE({})"
    transaction = ("BEGIN", "COMMIT", "ROLLBACK")

    def _column(self, name: str) -> str:
        return f'"{name}"'  # RAW and others are reserved

    def _column_type(self, column: Column) -> str:
        # The length is one of bytes.
        return f"VARCHAR({4 * column.type.length})" if column.type.length else super()._column_type(column)

    def clustering(self, table: Table) -> str:
        column = table.day
        return f' SORTKEY ("{column.name}")' if column else ""

    def _lock(self) -> list[str]:
        return [f"LOCK TABLE {name}" for name in (self.target, *([self.loads] if self.request.covers else ()))]

    def _record(self, loads: str) -> list[str]:
        if not (record := self._to_record()):
            return []
        rows = self._loads_rows()
        return [
            f"DELETE FROM {loads} USING ({rows}) AS s WHERE {self._same_key(f'{loads}.', 's.', LOADS)} "
            f"AND {loads}.observed_at <= s.observed_at",
            f"INSERT INTO {loads} ({self._columns_list(LOADS.stored_names)}) "
            f"SELECT {', '.join([self._columns_list(LOADS.names, 's.'), *self._load_literals(record)])} "
            f"FROM ({rows}) AS s "
            f"WHERE NOT EXISTS (SELECT 1 FROM {loads} AS t WHERE {self._same_key('t.', 's.', LOADS)})",
        ]

    def _merge(self) -> list[str]:
        names, target = self.table.names, self.target
        statements = []
        if removed := self.select_removed(self._columns_list(self.table.key, "g.")):
            same = self._same_key(f"{target}.", "x.")
            if self.request.replace_where:
                statements.append(f"DELETE FROM {target} USING ({removed}) AS x WHERE {same}")
            else:
                removal = self._removal().removeprefix("UPDATE ")
                statements.append(f"UPDATE {target} {removal} FROM ({removed}) AS x WHERE {same}")
        inner = self._with_part(self._columns_list(names, "r."), self.stage, "r.")
        source = f"(SELECT * FROM {inner}) AS g WHERE {self._not_late('g.')}) AS s"
        if self.table.updated:
            newer = f" AND s.{self._column(str(self.table.observed))} >= {self._last_observed(f'{target}.')}"
            statements.append(
                f"DELETE FROM {target} USING {source} WHERE {self._same_key(f'{target}.', 's.')}"
                f"{newer if self.table.observed else ''}"
            )
        native = ", ".join([*(self._native(name, "s.") for name in names), *self._load_literals(self.request)])
        statements.append(
            f"INSERT INTO {target} ({self._columns_list(self.table.stored_names)}) SELECT {native} "
            f"FROM {source} WHERE NOT EXISTS "
            f"(SELECT 1 FROM {target} AS t WHERE {self._same_key('t.', 's.')})"
        )
        return statements
