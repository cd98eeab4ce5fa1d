"""Postgres, through psycopg 3 or psycopg2, whichever the hook opens."""

from __future__ import annotations

import datetime
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from airflow_provider_mail.version_compat import use_connection
from airflow_provider_mail.warehouse.dialects.inbox import InboxSql, qualified
from airflow_provider_mail.warehouse.dialects.postgres_driver import (
    READER,
    StreamCursor,
    can_stream,
    copy_blocks,
    read_all_times,
    rows_as_tuples,
)
from airflow_provider_mail.warehouse.dialects.staged import Counts, Staged
from airflow_provider_mail.warehouse.errors import sqlstate
from airflow_provider_mail.warehouse.rows import Convert, Encoder, aware, each, json_texts
from airflow_provider_mail.warehouse.table import Column, TableName
from airflow_provider_mail.warehouse.time_limit import current_reading

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_NULL = "\\N"
_SAVEPOINT = "airflow_provider_mail_staged"
_FILLING = "airflow_provider_mail_filling"
_UNIQUE_VIOLATION = "23505"
_COLUMNS = (
    "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
    "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
)


def _texts(values: Sequence[str]) -> Sequence[str]:
    # Searching is many times faster than translating, and hardly any text needs it.
    joined = "".join(values)
    if "\\" in joined or "\n" in joined or "\t" in joined or "\r" in joined:
        return [value.translate(_ESCAPES) for value in values]
    return values


def _json_texts(values: Sequence[Any]) -> Sequence[str]:
    return _texts(json_texts(values))


_encode = msgspec.json.Encoder().encode
_decode_texts = msgspec.json.Decoder(list[str]).decode
_UTC = {datetime.UTC}


def _timestamps(values: Sequence[datetime.datetime]) -> Sequence[str]:
    if {value.tzinfo for value in values} == _UTC:  # as are all times that this package makes
        return _decode_texts(_encode(values))
    return [*map(str, map(aware, values))]


_CONVERTERS: Mapping[str, Convert] = {
    **each(dict.fromkeys(("bigint", "integer", "double", "boolean", "date"), str)),
    "text": _texts,
    "timestamp": _timestamps,
    "json": _json_texts,
}

_BOUNDED_TEXT = re.compile(r"character varying\((\d+)\)")


class PostgresInbox(InboxSql):
    id_type, body_type = "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "bytea"
    time_type = "timestamp with time zone"
    # A server or a role may have switched off that a commit waits for the disk.
    begin_insert = (
        "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
    )
    for_update, skip_locked = " FOR UPDATE", " FOR UPDATE SKIP LOCKED"
    is_one_of = "id = ANY(%s)"
    now = "(clock_timestamp() + make_interval(secs => {mark}))"

    def configure(self, hook: DbApiHook, connection: Any) -> None:
        hook.set_autocommit(connection, False)
        rows_as_tuples(connection)
        if hasattr(connection, "prepare_threshold"):  # psycopg 3
            # A pooler such as PgBouncer may give each transaction another session, without prepared statements.
            connection.prepare_threshold = None

    def limit(self, seconds: float) -> str:
        return f"SELECT set_config('statement_timeout', '{int(1000 * seconds)}', true)"

    def lock_definition(self, cursor: Any, table: str) -> None:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"mail {table}"])

    @contextmanager
    def only_one(self, cursor: Any, name: str) -> Iterator[bool]:
        # The lock is that of the cursor's transaction. If the database loses it, it loses the cursor, too.
        cursor.execute("SELECT set_config('idle_in_transaction_session_timeout', '0', true)")
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [name])
        yield cursor.fetchone()[0]

    def exists(self, cursor: Any, name: TableName) -> bool:
        cursor.execute("SELECT to_regclass(%s)", [qualified(name)])
        return cursor.fetchone()[0] is not None

    def index(self, name: str, table: TableName) -> str:
        return f"{name} ON {qualified(table)}"  # in the schema of the table


class Postgres(Staged):
    """Stages rows by COPY, then merges them by one INSERT ... ON CONFLICT."""

    reusable = True
    distinct = "IS DISTINCT FROM"
    has_comment_on = True
    counts_upserts = True
    inbox = PostgresInbox
    words = "SELECT unnest(string_to_array(%s, ' ')) AS word"
    # For a subquery, a table without statistics is scanned.
    among = "{column} = ANY (string_to_array(%s, ' '))"
    unix_time = "extract(epoch FROM clock_timestamp())"
    types: ClassVar[Mapping[str, str]] = {
        "text": "text",
        "bigint": "bigint",
        "integer": "integer",
        "double": "double precision",
        "boolean": "boolean",
        "date": "date",
        "timestamp": "timestamp with time zone",
        "json": "jsonb",
    }
    parameters: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"timestamp": aware}
    compatible_types: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "text": ("text", "character varying", "citext"),
        "bigint": ("bigint", "numeric"),
        "integer": ("integer", "bigint", "numeric"),
        "double": ("double precision", "numeric"),
        "boolean": ("boolean",),
        "date": ("date",),
        "timestamp": ("timestamp with time zone",),
        "json": ("jsonb",),
    }

    @classmethod
    def limit_connecting(cls, hook: DbApiHook, seconds: int, response_seconds: float | None) -> None:
        connection = deepcopy(hook.get_connection(hook.get_conn_id()))
        limits = {"connect_timeout": seconds, "tcp_user_timeout": 1000 * seconds, "keepalives_idle": seconds}
        connection.extra = json.dumps(limits | connection.extra_dejson)
        use_connection(hook, connection)

    @classmethod
    def month(cls, column: str) -> str:
        return f"DATE_TRUNC('month', {column} AT TIME ZONE 'UTC')"

    @classmethod
    def may_create(cls, cursor: Any) -> bool:
        cursor.execute("SELECT has_schema_privilege(current_schema(), 'CREATE')")
        return bool(cursor.fetchone()[0])

    @classmethod
    def open_reader(cls, hook: DbApiHook, connection: Any) -> Any:
        """Open a cursor that leaves the rows on the server until they are fetched, in a read-only transaction."""
        hook.set_autocommit(connection, False)  # a server-side cursor lives in a transaction
        rows_as_tuples(connection)
        read_all_times(connection)
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
            # All rows will be read: plan for the last row, not for the first one.
            cursor.execute("SET LOCAL cursor_tuple_fraction = 1")
            if reading := current_reading():
                cursor.execute(f"SET LOCAL statement_timeout = {int(1000 * reading.seconds)}")
            cursor.execute("SELECT current_setting('statement_timeout')")
            # A stream is one statement as long as its reader takes, a fetch from a server-side cursor is short.
            is_limited = cursor.fetchone() != ("0",)
        return connection.cursor(name=READER) if is_limited or not can_stream(connection) else StreamCursor(connection)

    def _time_literal(self, value: datetime.datetime) -> str:
        return f"{super()._time_literal(value)[:-1]}+00'"  # whatever the zone of the session

    def _qualified(self, name: TableName) -> str:
        return qualified(name)

    def _begin(self, connection: Any) -> None:
        self.hook.set_autocommit(connection, False)
        rows_as_tuples(connection)

    def _resolved_name(self, cursor: Any) -> TableName:
        cursor.execute(
            "SELECT nspname, relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
            "WHERE c.oid = to_regclass(%s)",
            [self.target],
        )
        if name_parts := cursor.fetchone():
            return TableName.exact(*name_parts)
        *schema, name = (part.text if part.quoted else part.text.lower() for part in self.request.name.parts)
        cursor.execute("SELECT coalesce(%s, current_schema())", [schema[-1] if schema else None])
        return TableName.exact(*cursor.fetchone(), name)

    def _columns(self, cursor: Any) -> dict[str, str]:
        cursor.execute(_COLUMNS, [self.target])
        return dict(cursor.fetchall())

    def _inexact(self, cursor: Any) -> Sequence[tuple[str, str]]:
        cursor.execute(
            "SELECT a.attname, coalesce(c.collname, 'citext') FROM pg_attribute AS a "
            "LEFT JOIN pg_collation AS c ON NOT c.collisdeterministic AND c.oid = a.attcollation "
            "WHERE a.attrelid = to_regclass(%s) AND a.attname = ANY (%s) "
            "AND (c.oid IS NOT NULL OR a.atttypid::regtype::text ~ '(^|[.])citext$')",
            [self.target, list(self.table.key)],
        )
        return list(cursor.fetchall())

    def _collation_advice(self, column: str) -> str:
        return f'ALTER TABLE {self.target} ALTER COLUMN {column} TYPE text COLLATE "C"'

    def _check_collations(self, cursor: Any) -> None:
        super()._check_collations(cursor)
        # A unique index may have another collation than its column: that of the same place in both vectors.
        cursor.execute(
            "SELECT i.indexrelid::regclass::text, a.attname, c.collname FROM pg_index AS i "
            "CROSS JOIN generate_subscripts(i.indkey, 1) AS place "
            "JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[place] "
            "JOIN pg_collation AS c ON c.oid = i.indcollation[place] AND NOT c.collisdeterministic "
            "WHERE i.indisunique AND i.indrelid = to_regclass(%s) AND a.attname = ANY (%s) LIMIT 1",
            [self.target, list(self.table.key)],
        )
        for index, column, collation in cursor.fetchall():
            raise self.error(
                f"DROP INDEX {index}, and create it anew without the collation {collation}, which takes different "
                f"texts of column {column} for one, so rows would be lost"
            )

    def _can_hold(self, column: Column, actual: str) -> bool:
        if bounded := _BOUNDED_TEXT.fullmatch(actual):
            return column.type.name == "text" and int(bounded[1]) >= (column.type.length or float("inf"))
        return super()._can_hold(column, actual)

    def _limit_waits(self, cursor: Any) -> None:
        # For this transaction; a shorter limit of the server or the role stays.
        cursor.execute(
            "SELECT set_config('lock_timeout', least(nullif(setting::bigint, 0), %s)::text, true) "
            "FROM pg_settings WHERE name = 'lock_timeout'",
            [max(1, round(self.request.lock_timeout * 1000))],
        )
        cursor.fetchone()

    def safe_message(self, error: BaseException) -> str:
        return self._lock_message() if sqlstate(error) == "55P03" else super().safe_message(error)

    def _index(self, columns: Sequence[str]) -> str:
        return f"ON {self.target}"  # named by Postgres

    def _open_staging(self, cursor: Any) -> None:
        # Under a stricter level, the default of some databases, concurrent loads would fail instead of queueing.
        cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def _create_stage(self, cursor: Any) -> None:
        columns = self._staged_columns()
        cursor.execute(f"CREATE TEMP TABLE {self.stage_name} (stage_row bigint, {columns}) ON COMMIT DROP")
        self._stage_numbers = count(1)

    def _stage(self, cursor: Any) -> None:
        copy_blocks(cursor, f"COPY {self.stage_name} FROM STDIN", self._blocks())

    def _open_merge(self, cursor: Any) -> None:
        # One transaction from the first row on: behind a pooler (PgBouncer) the next transaction may run in another
        # session, which does not have the temporary table.
        cursor.execute(f"SAVEPOINT {_SAVEPOINT}")

    def _undo_merge(self, connection: Any, cursor: Any) -> None:
        cursor.execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")  # releases its locks, too

    def _lock(self, cursor: Any) -> None:
        # By name, since the table may not exist yet; loads of namesakes in other schemas queue too.
        name = f"airflow_provider_mail.{self.request.name.parts[-1].text.lower()}"
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])

    @contextmanager
    def _searching(self, cursor: Any) -> Iterator[None]:
        """Search for rows that were not staged in linear time.

        Staged rows have no statistics, nor has a table that was filled a moment ago. So Postgres expects one row where
        there are a million, and would compare every row with every other.
        """
        cursor.execute("SET LOCAL enable_nestloop = off")
        yield
        cursor.execute("SET LOCAL enable_nestloop TO DEFAULT")

    @property
    def _staged(self) -> str:
        names, key = self._columns_list(self.table.names), self._sortable("")
        order = "ASC" if self.table.insert_only else "DESC"  # the first row of a key stays, or the last one counts
        return f"(SELECT DISTINCT ON ({key}) {names} FROM {self.stage_name} ORDER BY {key}, stage_row {order})"

    def _ordered(self, alias: str = "s.") -> str:
        return f"ORDER BY {self._sortable(alias)}"

    def _sortable(self, alias: str) -> str:
        # Comparing bytes is many times faster than comparing by the rules of a language.
        collated = {name: ' COLLATE "C"' for name in self.table.key if self.table[name].type.name == "text"}
        return ", ".join(f"{alias}{name}{collated.get(name, '')}" for name in self.table.key)

    def _insert_new(self, cursor: Any) -> tuple[dict[Any, int], set[tuple[Any, ...]]]:
        # By the index, row by row: rows that were just staged have no statistics, by which a join would be planned.
        key, counted = self._columns_list(self.table.key), self._counted_by()
        cursor.execute(f"{self._upsert(f'{self._staged} AS s')} RETURNING {counted}, {key}", self._load_values())
        inserted_by, inserted = Counter[Any](), set[tuple[Any, ...]]()
        for value, *own in cursor.fetchall():
            inserted_by[value] += 1
            inserted.add(tuple(own))
        cursor.execute(f"SELECT {key} FROM {self._staged} AS s")
        return inserted_by, set(cursor.fetchall()) - inserted

    def _write(self, cursor: Any) -> Counts:
        cursor.execute(f"SELECT EXISTS (SELECT FROM {self.target})")
        if cursor.fetchone() == (False,) and (count := self._fill(cursor)) is not None:
            return Counts(count, count, 0, 0, 0)
        return super()._write(cursor)

    def _fill(self, cursor: Any) -> int | None:
        """Insert the staged rows into the empty table; return their number, or ``None`` if two have one key.

        Hardly any load has such rows. Without sorting and comparing, Postgres needs a third of the time.
        """
        self._check_key(cursor, complete=True)  # a table without the key would take the rows twice
        cursor.execute(f"SAVEPOINT {_FILLING}")
        try:
            cursor.execute(self._insert(f"{self.stage_name} AS s"), self._load_values())
        except Exception as error:
            if sqlstate(error) != _UNIQUE_VIOLATION:
                raise
        else:
            source = self.request.source
            self._check_written(int(cursor.rowcount), source.read - source.rejected)
            return int(cursor.rowcount)
        cursor.execute(f"ROLLBACK TO SAVEPOINT {_FILLING}")
        return None

    def _blocks(self) -> Iterator[str]:
        """The rows in the text format of COPY, some tens of kilobytes at a time."""
        for columns in self.request.source.columns(self._encoder):
            lines = map("\t".join, zip(map(str, self._stage_numbers), *columns))  # noqa: B905 - there are always numbers
            yield "\n".join([*lines, ""])

    @property
    def _encoder(self) -> Encoder:
        return Encoder(self.table, _CONVERTERS, null=_NULL, nul=False)
