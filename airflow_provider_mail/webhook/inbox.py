"""The inbox: a table with one row per push, written before the service gets its answer."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.warehouse.connection import connected, database
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.table import TableName, quoted

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

DEFAULT_TABLE = "mail_inbox"


@dataclass(frozen=True)
class Push:
    """A push as it was received.

    :param body: the body of the request, unchanged.
    :param received_at: when it was received, by the clock of the receiver.
    :param mail_conn_id: id of the `mail` connection that the token of the URL belongs to.
    :param task_status: whether the body may hold an event ``TaskStatus``.
    """

    body: bytes
    received_at: datetime.datetime
    mail_conn_id: str
    task_status: bool


@dataclass(frozen=True)
class StoredPush(Push):
    """A push in the inbox.

    :param id: its number, ascending in the order of arrival.
    """

    id: int


class Inbox:
    """The table of pushes in the user's database.

    :param hook: the hook of the database: SQLite or Postgres.
    :param table: name of the table, optionally with its schema.
    :raises WarehouseError: for another database, or a table name that is none.
    """

    def __init__(self, hook: DbApiHook, table: str = DEFAULT_TABLE) -> None:
        self.hook = hook
        kind = database(hook)
        if kind not in ("sqlite", "postgresql", "postgres"):
            raise WarehouseError(
                f"connection {hook.get_conn_id()!r}: the inbox needs a Postgres or SQLite database, not {kind}"
            )
        self.is_sqlite = kind == "sqlite"
        self.name = TableName.parse(table)
        self.table = qualified(self.name)
        self.mark = "?" if self.is_sqlite else "%s"
        """How a statement names a parameter."""
        self.time_type = "TEXT" if self.is_sqlite else "timestamp with time zone"

    def open(self) -> Any:
        """Return a new DB-API connection, with transactions by hand."""
        connection = self.hook.get_conn()
        if self.is_sqlite:
            connection.isolation_level = None
            # WAL: a drain reads while pushes arrive. FULL: what is committed survives the machine's fall.
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "busy_timeout = 60000"):
                connection.execute(f"PRAGMA {pragma}").fetchall()
        else:
            self.hook.set_autocommit(connection, False)
        return connection

    def create(self) -> None:
        """Create the table unless it exists."""
        number, blob = (
            ("INTEGER PRIMARY KEY AUTOINCREMENT", "BLOB")
            if self.is_sqlite
            else ("bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "bytea")
        )
        self.create_table(
            self.table,
            f"id {number}, received_at {self.time_type} NOT NULL, mail_conn_id text NOT NULL, "
            f"task_status boolean NOT NULL, body {blob} NOT NULL, drained_at {self.time_type}",
        )

    def create_table(self, table: str, definition: str) -> None:
        """Create a table in the database of the inbox unless it exists.

        :param table: its name, quoted.
        :param definition: its columns.
        """
        with connected(self.hook) as connection, closing(connection.cursor()) as cursor:
            if not self.is_sqlite:
                # Two that create the same table at once fail in Postgres, IF NOT EXISTS or not.
                cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"mail {table}"])
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {table} ({definition})")
            connection.commit()

    def insert(self, connection: Any, pushes: Sequence[Push]) -> None:
        """Store pushes in one transaction; when this returns they are durable.

        :param connection: a connection from `open`.
        :param pushes: the pushes, at least one.
        """
        columns = "received_at, mail_conn_id, task_status, body"
        row = f"({', '.join([self.mark] * 4)})"
        values = [
            value
            for push in pushes
            for value in (self.time(push.received_at), push.mail_conn_id, push.task_status, push.body)
        ]
        with closing(connection.cursor()) as cursor:
            if self.is_sqlite:
                cursor.execute("BEGIN IMMEDIATE")
            cursor.execute(f"INSERT INTO {self.table} ({columns}) VALUES {', '.join([row] * len(pushes))}", values)
        connection.commit()

    def time(self, when: datetime.datetime) -> Any:
        """Return a time as a parameter of a statement.

        :param when: the time, with a zone. In SQLite, times are text in UTC and sort as such.
        """
        return when.astimezone(datetime.UTC).isoformat(" ", "microseconds") if self.is_sqlite else when


def qualified(name: TableName) -> str:
    """Return the name of a table as both databases read it.

    :param name: the name as the user wrote it.
    """
    return ".".join(quoted(part.text if part.quoted else part.text.lower()) for part in name.parts)
