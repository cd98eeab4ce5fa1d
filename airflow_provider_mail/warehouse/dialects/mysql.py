"""MySQL and MariaDB, through mysqlclient or mysql-connector-python, whichever the hook opens.

DDL commits implicitly there, so the table is created or extended in a step of its own before the rows are merged. A
merge that fails may leave an empty table or an empty column behind, but no row.
"""

from __future__ import annotations

import datetime
import hashlib
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_mail.version_compat import extend_driver_options
from airflow_provider_mail.warehouse.dialects.staged import Staged
from airflow_provider_mail.warehouse.errors import MYSQL_CONFLICTS, mysql_number
from airflow_provider_mail.warehouse.rows import Encoder, ReadValue, chunks, each, json_text, utc
from airflow_provider_mail.warehouse.table import Column, TableName, literal
from airflow_provider_mail.warehouse.time_limit import current_reading

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

_log = logging.getLogger(__name__)

_MAX_CHUNK_ROWS, _MAX_CHUNK_CHARACTERS = 500, 1 << 18
_JSON_DEPTHS = (100, 31)
_LOCK_TIMEOUT = 1205
_FLOAT = 4  # the number of the type in the protocol
_CONNECT_OPTIONS = {
    "_get_conn_config_mysql_client": "connect_timeout",
    "_get_conn_config_mysql_connector_python": "connection_timeout",
}
"""The options of both drivers, by the method of the hook that returns those of a connection."""
_COLLATIONS = ("utf8mb4_nopad_bin", "utf8mb4_0900_bin", "utf8mb4_bin")
"""Of MariaDB, of MySQL, and of older versions. Names that differ in case, accents or spaces are different to them."""
_PADDED = _COLLATIONS[-1]
"""The one of them that treats texts as equal if they differ only in trailing spaces."""


def _timestamp(value: datetime.datetime) -> str:
    return utc(value).isoformat(" ", "microseconds")


_CONVERTERS: Mapping[str, Callable[[Any], Any]] = {"timestamp": _timestamp, "json": json_text}

_BOUNDED_TEXT = re.compile(r"varchar\((\d+)\)")


class MySql(Staged):
    """Stages many rows per statement, then merges them by one INSERT ... ON DUPLICATE KEY UPDATE."""

    text_cast = "CHAR"
    unix_time = "unix_timestamp(now(6))"
    types: ClassVar[Mapping[str, str]] = {
        "text": "longtext",
        "bigint": "bigint",
        "integer": "int",
        "double": "double",
        "boolean": "boolean",
        "date": "date",
        "timestamp": "datetime(6)",
        "json": "json",
    }
    parameters = _CONVERTERS
    compatible_types: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "bigint": ("bigint", "decimal"),
        "integer": ("int", "bigint", "decimal"),
        "double": ("double",),
        "boolean": ("tinyint", "smallint", "int", "bigint"),
        "date": ("date",),
        "timestamp": ("datetime(6)",),
        "json": ("json", "longtext"),
    }
    _collation = _COLLATIONS[-1]

    def _qualified(self, name: TableName) -> str:
        return ".".join(_quoted(part.text) for part in name.parts)

    def _column(self, name: str) -> str:
        return _quoted(name)  # MySQL has many keywords (`row_number` is one)

    def _column_type(self, column: Column) -> str:
        if column.type.name != "text":
            return super()._column_type(column)
        type_name = f"varchar({column.type.length})" if column.type.length else "longtext"
        return f"{type_name} CHARACTER SET utf8mb4 COLLATE {self._collation}"

    def _definition(self, column: Column) -> str:
        return f"{super()._definition(column)} COMMENT {literal(column.comment)}"

    def _create_statement(self) -> str:
        return f"{super()._create_statement()} COMMENT {literal(self.table.comment)}"

    def _keys(self) -> Sequence[str]:
        # In the definition, since CREATE INDEX needs a right of its own.
        return [f"INDEX ({self._columns_list(columns)})" for columns in self.table.indexes]

    def _addition(self, column: Column) -> str:
        return f"{super()._addition(column)} COMMENT {literal(column.comment)}"

    @classmethod
    def limit_connecting(cls, hook: DbApiHook, seconds: int, response_seconds: float | None) -> None:
        # The hook passes the options that a connection has for this to neither driver.
        for method, option in _CONNECT_OPTIONS.items():
            limits = {option: seconds}
            # mysql-connector-python does not expose its socket, so no other thread can end its wait.
            if option == "connection_timeout" and response_seconds is not None and _has_read_timeout():
                limits["read_timeout"] = max(1, int(response_seconds))
            extend_driver_options(hook, method, limits)

    @classmethod
    def open_reader(cls, hook: DbApiHook, connection: Any) -> Any:
        """Open a cursor that leaves the rows on the server, in a read-only session."""
        _plain_cursors(connection)
        _with_utf8(connection)
        with closing(connection.cursor()) as cursor:
            cursor.execute("SET SESSION TRANSACTION READ ONLY")
            if reading := current_reading():
                # MySQL in milliseconds, MariaDB in seconds; each reads the other's part as a comment.
                mysql, mariadb = f"max_execution_time = {int(1000 * reading.seconds)}", reading.seconds
                cursor.execute(f"SET /*!50708 {mysql} */ /*M!100101 max_statement_time = {mariadb} */")
        if hasattr(connection, "cursorclass"):
            from MySQLdb.cursors import SSCursor

            connection.cursorclass = SSCursor
        return connection.cursor()

    @classmethod
    def column_readers(cls, description: Sequence[Sequence[Any]]) -> Mapping[int, ReadValue]:
        if narrow := [str(column[0]) for column in description if column[1] == _FLOAT]:
            _log.warning(
                "`sql`: the server returns six digits of a FLOAT, as every client shows it: %s. If a value may have "
                "more, select CAST(column AS DECIMAL(20, 4))",
                ", ".join(narrow),
            )
        return {}

    @classmethod
    def close_reader(cls, connection: Any, cursor: Any) -> None:
        """Close the connection first: closing the cursor would read all remaining rows."""
        connection.close()
        cursor.close()

    def _conflicts(self, error: BaseException) -> bool:
        number = mysql_number(error)
        if number == _LOCK_TIMEOUT and time.monotonic() - self._main._began >= self.request.lock_timeout:
            return False
        return number in MYSQL_CONFLICTS

    def safe_message(self, error: BaseException) -> str:
        return self._lock_message() if mysql_number(error) == _LOCK_TIMEOUT else super().safe_message(error)

    def _limit_waits(self, cursor: Any) -> None:
        seconds = max(1, round(self.request.lock_timeout))
        names = ("lock_wait_timeout", "innodb_lock_wait_timeout")  # of tables and of rows
        cursor.execute("SET " + ", ".join(f"SESSION {name} = least(@@{name}, {seconds})" for name in names))

    def _begin(self, connection: Any) -> None:
        self.hook.set_autocommit(connection, False)
        _plain_cursors(connection)
        _with_utf8(connection)

    def _resolved_name(self, cursor: Any) -> TableName:
        cursor.execute("SELECT database(), @@lower_case_table_names")
        schema, folds = cursor.fetchone()
        parts = [part.text for part in self.request.name.parts]
        names = [schema, *parts] if len(parts) == 1 else parts
        # On some systems, and where the server is configured so, Stats and stats are one table.
        return TableName.exact(*(name.lower() if folds and name else name for name in names))

    def _columns(self, cursor: Any) -> dict[str, str]:
        # With the collation of text, which decides which names are equal.
        *schema, name = (part.text for part in self._resolved_name(cursor).parts)
        cursor.execute(
            "SELECT lower(column_name), column_type, collation_name FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = %s AND (@@lower_case_table_names OR BINARY table_name = %s)",
            [schema[-1] if schema else None, name, name],
        )
        return {
            str(column): f"{_decoded(column_type)} COLLATE {collation}" if collation else _decoded(column_type)
            for column, column_type, collation in cursor.fetchall()
        }

    def _can_hold(self, column: Column, actual: str) -> bool:
        actual_type, _, collation = actual.partition(" COLLATE ")
        if column.type.name == "text":
            bounded = _BOUNDED_TEXT.fullmatch(actual_type)
            wide = actual_type == "longtext" or (bounded and int(bounded[1]) >= (column.type.length or float("inf")))
            return bool(wide) and collation.startswith("utf8mb4_")
        return super()._can_hold(column, actual_type.split("(")[0]) or super()._can_hold(column, actual_type)

    def _check(self, cursor: Any) -> None:
        # Lossy conversions are errors, and quotes and backslashes have their default meaning.
        cursor.execute("SET SESSION sql_mode = 'STRICT_ALL_TABLES', SESSION time_zone = '+00:00'")
        cursor.execute(
            "SELECT collation_name FROM information_schema.collations WHERE collation_name IN (%s, %s, %s)",
            list(_COLLATIONS),
        )
        supported = {name for (name,) in cursor.fetchall()}
        self._collation = next(name for name in _COLLATIONS if name in supported)
        super()._check(cursor)

    def _inexact(self, cursor: Any) -> Sequence[tuple[str, str]]:
        existing = self._columns(cursor)
        collations = ((name, existing.get(name, "").partition(" COLLATE ")[2]) for name in self.table.key)
        # Only a binary collation tells all texts apart; numbers and dates have none.
        return [(name, collation) for name, collation in collations if collation and not collation.endswith("_bin")]

    def _collation_advice(self, column: str) -> str:
        definition = f"{self._column(column)} {self._column_type(self.table[column])} NOT NULL"
        return f"ALTER TABLE {self.target} MODIFY {definition}"

    def _check_key(self, cursor: Any, *, complete: bool) -> None:
        cursor.execute(f"SHOW INDEX FROM {self.target} WHERE Non_unique = 0")
        names = [column[0].lower() for column in cursor.description]
        at = names.index("key_name"), names.index("column_name")
        indexes: dict[str, set[str]] = {}
        for row in cursor.fetchall():
            index, column = (str(row[place]) for place in at)
            indexes.setdefault(index, set()).add(column.lower())
        if set(self.table.key) not in indexes.values():
            raise self._no_key()
        for index, columns in indexes.items():
            if columns != set(self.table.key):
                # ON DUPLICATE KEY UPDATE would update the row with the same value there.
                raise self.error(
                    f"index {index} is unique, too; only the key ({', '.join(self.table.key)}) may be unique: make it "
                    "an ordinary index"
                )

    def _create_stage(self, cursor: Any) -> None:
        existing = self._columns(cursor)
        types = {column.name: self._staged_type(column, existing) for column in self.table.columns}
        columns = ", ".join(f"{self._column(name)} {column_type}" for name, column_type in types.items())
        padded = (name for name in self.table.key if types[name].endswith(f"COLLATE {_PADDED}"))
        self._padded = dict.fromkeys(padded, _PADDED)
        key = self._columns_list(self.table.key)  # keeps one row of each
        cursor.execute(f"CREATE TEMPORARY TABLE {self.stage_name} ({columns}, PRIMARY KEY ({key}))")

    def _stage(self, cursor: Any) -> None:
        insert = f"REPLACE INTO {self.stage_name} VALUES ({', '.join('%s' for _ in self.table.columns)})"
        if self.table.insert_only:  # not by INSERT IGNORE, which would ignore every error
            key_column = self._column(self.table.key[0])
            insert = f"{insert.replace('REPLACE', 'INSERT', 1)} ON DUPLICATE KEY UPDATE {key_column} = {key_column}"
        encoder = Encoder(self.table, each(_CONVERTERS), padded=self._padded, json_depth=self._json_depth(cursor))
        rows = self.request.source.encoded(encoder)
        for chunk in chunks(rows, _MAX_CHUNK_ROWS, _MAX_CHUNK_CHARACTERS):
            cursor.executemany(insert, chunk)  # one statement with both drivers
        cursor.execute("COMMIT")

    def _json_depth(self, cursor: Any) -> int:
        """How deep the server lets JSON be nested: MySQL 100, MariaDB 31."""
        for depth in _JSON_DEPTHS:
            with suppress(Exception):  # MySQL's function fails where it is too deep
                cursor.execute("SELECT json_valid(concat(repeat('[', %s), repeat(']', %s)))", [depth, depth])
                if cursor.fetchone()[0]:
                    return depth
        return _JSON_DEPTHS[-1]

    def _open_merge(self, cursor: Any) -> None:
        """Do nothing: a transaction begins implicitly with the first statement after `prepare`."""

    def _undo_merge(self, connection: Any, cursor: Any) -> None:
        super()._undo_merge(connection, cursor)
        for table in (self, *self._beside):  # their locks end with the connection, not with a transaction
            assert isinstance(table, MySql)
            cursor.execute("DO release_lock(%s)", [table._lock_name])

    def _lock(self, cursor: Any) -> None:
        # By name, since the table may not exist yet. The lock ends with the connection, not with a transaction.
        cursor.execute("SELECT get_lock(%s, %s)", [self._lock_name, max(1, round(self.request.lock_timeout))])
        if cursor.fetchone()[0] != 1:
            raise self.error(self._lock_message())

    @property
    def _lock_name(self) -> str:
        digest = hashlib.sha256(self.request.name.parts[-1].text.lower().encode()).hexdigest()
        return f"airflow_provider_mail.{digest[:32]}"

    def _prepare(self, cursor: Any) -> None:
        super()._prepare(cursor)
        cursor.execute("COMMIT")  # from here on, the table is read as the last load left it

    def _is_changed(self) -> str:
        if not (content := self.table.content):
            return "false"
        equal = [f"(s.{self._column(name)} <=> {self._compared(name)})" for name in content]
        return f"NOT ({' AND '.join(equal)})"

    def _upsert(self, source: str, condition: str = "true") -> str:
        names = self._columns_list(self.table.stored_names)
        constants = "".join(f", %s AS {self._column(name)}" for name in self.table.load_names)
        selected = f"{self._columns_list(self.table.names, 's.')}{constants}"
        updated = self.table.updated
        assigned = (*updated, *self.table.load_names) if updated else (self.table.key[0],)
        # Rows that are not newer have been left out: our loads run one at a time.
        assignments = ", ".join(f"{name} = VALUES({name})" for name in map(self._column, assigned))
        # A derived table, or the names in the last clause would be ambiguous.
        return (
            f"INSERT INTO {self.target} ({names}) SELECT * FROM (SELECT {selected} FROM {source} WHERE {condition}) "
            f"AS news {self._ordered('news.')} ON DUPLICATE KEY UPDATE {assignments}"
        )

    def _delete_stale_sql(self, condition: str) -> str:
        return f"DELETE t FROM {self._beside_stage()} WHERE s.{self._column(self.table.key[0])} IS NULL AND {condition}"

    def _mark_stale_sql(self, condition: str) -> str:
        return (
            f"UPDATE {self._beside_stage()} SET t.{self._column(str(self.table.gone))} = {self.hook.placeholder}"
            f"{self._load_assignments('t.')} "
            f"WHERE s.{self._column(self.table.key[0])} IS NULL AND {condition}"
        )

    def _select_stale_sql(self, selected: str, condition: str) -> str:
        staged = f"s.{self._column(self.table.key[0])}"
        return f"SELECT {selected} FROM {self._beside_stage()} WHERE {staged} IS NULL AND {condition}"

    def _beside_stage(self) -> str:
        return f"{self.target} AS t LEFT JOIN {self.stage_name} AS s ON {self._same_key()}"

    def _staged_type(self, column: Column, existing: Mapping[str, str]) -> str:
        """The type with the collation of an existing table: texts of two collations cannot be compared."""
        actual = existing.get(column.name, "")
        if column.type.name != "text" or " COLLATE " not in actual:
            return self._column_type(column)
        return re.sub("COLLATE .*", f"COLLATE {actual.rpartition(' ')[2]}", self._column_type(column))

    def _compared(self, name: str) -> str:
        # Texts that are equal by the table's collation may still differ.
        spelled = f"t.{self._column(name)}"
        return f"{spelled} COLLATE {self._collation}" if self.table[name].type.name == "text" else spelled


def _plain_cursors(connection: Any) -> None:
    """Undo the cursor class of the Airflow connection (``dictcursor`` and others)."""
    if hasattr(connection, "cursorclass"):
        from MySQLdb.cursors import Cursor

        connection.cursorclass = Cursor


def _with_utf8(connection: Any) -> None:
    """Use the whole of UTF-8, whatever character set the Airflow connection has."""
    if hasattr(connection, "set_charset_collation"):
        connection.set_charset_collation("utf8mb4")
    else:
        connection.set_character_set("utf8mb4")


def _decoded(text: str | bytes) -> str:
    return text.decode() if isinstance(text, bytes) else text


def _quoted(identifier: str) -> str:
    return "`" + identifier.replace("`", "``") + "`"


def _has_read_timeout() -> bool:
    """Whether mysql-connector-python is installed, in 9.2 or a later version."""
    try:
        from mysql.connector.constants import DEFAULT_CONFIGURATION
    except ImportError:
        return False
    return "read_timeout" in DEFAULT_CONFIGURATION
