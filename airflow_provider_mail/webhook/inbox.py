"""The inbox: a table with one row per push, written before the service gets its response."""

from __future__ import annotations

import datetime
import logging
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._config import OPTIONS, InboxName, configured_inbox
from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.warehouse.database import configured_hook, connected, dialect_of, kind_of
from airflow_provider_mail.warehouse.dialects.inbox import qualified
from airflow_provider_mail.warehouse.errors import WarehouseError, safe_message
from airflow_provider_mail.warehouse.table import MAX_PART_BYTES, NamePart, TableName, quoted
from airflow_provider_mail.warehouse.time_limit import current_reading

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Push:
    """A push as it was received.

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
    id: int


OLD_SECONDS = 86_400
"""A push that waits longer to be drained counts as old: most drains are hourly or daily."""


@dataclass(frozen=True)
class InboxState:
    """What waits in the inbox to be drained.

    :param waiting_bytes: their bytes, before compression.
    :param oldest_seconds: how long it waits; 0 without any.
    """

    waiting_pushes: int
    waiting_bytes: int
    oldest: datetime.datetime | None
    oldest_seconds: int

    @property
    def is_old(self) -> bool:
        return self.oldest_seconds > OLD_SECONDS


_SHARDS = 16
"""Rows of the counter. A transaction locks one of them, so processes with different rows do not wait for each other."""

_LATEST = 10_000
"""More pushes than arrive between two looks. The order of their numbers is not that of commits."""

_DELETED_AT_ONCE = 10_000

_RECOUNT_SECONDS = 5
"""While the counter is made exact, no push can be stored."""


class Inbox:
    """The table of pushes in the user's database, and the counter of those that wait to be drained.

    Counting the rows would take longer the more there are. So whatever stores, drains or changes pushes changes the
    counter in the same transaction.
    """

    def __init__(self, hook: DbApiHook, table: str = OPTIONS["inbox_table"]["default"]) -> None:
        self.hook = hook
        if (spelling := dialect_of(hook).inbox) is None:
            raise WarehouseError(
                f"connection {hook.get_conn_id()!r}: the inbox needs a Postgres or SQLite database, not {kind_of(hook)}"
            )
        self.sql = spelling()
        self.name = TableName.parse(table)
        self.table = qualified(self.name)
        self.tokens_name, self._counts_name = self._beside("tokens"), self._beside("counts")
        self._counts = qualified(self._counts_name)
        self.mark = hook.placeholder
        """How a statement names a parameter."""
        self.waiting_bytes: int | None = None
        """Bytes that wait to be drained, as of the latest `insert` or `state` of this object; ``None`` before."""

    def _beside(self, suffix: str) -> TableName:
        *schema, own = self.name.parts
        name = NamePart(f"{own.text}_{suffix}", own.quoted)
        if len(name.text.encode()) > MAX_PART_BYTES:
            raise WarehouseError(f"[mail] inbox_table: {name.text!r} is longer than {MAX_PART_BYTES} bytes")
        return TableName((*schema, name))

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """Yield a new connection with explicit transactions; what is not committed is rolled back."""
        with connected(self.hook) as connection:
            self.sql.configure(self.hook, connection)
            yield connection

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """Yield a cursor on a connection of its own, whose statements have the time limit of the `Reading`."""
        with self.connection() as connection, closing(connection.cursor()) as cursor:
            self._limit(cursor)
            yield cursor

    def _limit(self, cursor: Any, besides: str = "") -> None:
        """Limit the statements of this transaction to the time of the `Reading`."""
        reading = current_reading()
        limit = self.sql.limit(reading.seconds) if reading else ""
        if query := "; ".join(filter(None, (limit, besides))):
            cursor.execute(query)

    def create(self) -> None:
        """Create the tables that do not exist: of the pushes, of the counter, and of the tokens."""
        names = (self.name, self._counts_name, self.tokens_name)
        with self.connected() as cursor:
            if all(self.sql.exists(cursor, name) for name in names):
                return  # without the right to create tables, IF NOT EXISTS would fail, too
            self.sql.lock_definition(cursor, self.table)
            for statement in self._definitions():
                cursor.execute(statement)
            self._recount(cursor)
            cursor.connection.commit()

    def _definitions(self) -> Iterator[str]:
        time = self.sql.time_type
        yield (
            f"CREATE TABLE IF NOT EXISTS {self.table} (id {self.sql.id_type}, received_at {time} NOT NULL, "
            f"mail_conn_id text NOT NULL, task_status boolean NOT NULL, body {self.sql.body_type} NOT NULL, "
            f"body_bytes integer NOT NULL, drained_at {time})"
        )
        # Small, whatever the retention: the pushes to be drained, and those that may report on a campaign.
        for purpose, condition in (("waiting", "drained_at IS NULL"), ("task_status", "task_status")):
            name = quoted(f"{self.name.parts[-1].text}_{purpose}")
            yield f"CREATE INDEX IF NOT EXISTS {self.sql.index(name, self.name)} (id) WHERE {condition}"
        yield (
            f"CREATE TABLE IF NOT EXISTS {self._counts} (shard integer PRIMARY KEY, pushes bigint NOT NULL, "
            "bytes bigint NOT NULL)"
        )
        shards = ", ".join(f"({shard}, 0, 0)" for shard in range(_SHARDS))
        yield f"INSERT INTO {self._counts} (shard, pushes, bytes) VALUES {shards} ON CONFLICT DO NOTHING"
        yield (
            f"CREATE TABLE IF NOT EXISTS {qualified(self.tokens_name)} (digest text PRIMARY KEY, "
            "mail_conn_id text NOT NULL, service_host text NOT NULL, account text NOT NULL, "
            f"created_at {time} NOT NULL, retires_at {time})"
        )

    def insert(self, connection: Any, pushes: Sequence[Push]) -> None:
        """Store pushes in one transaction, durably."""
        with closing(connection.cursor()) as cursor:
            self._limit(cursor, self.sql.begin_insert)
            self._store(cursor, pushes)
            self._count(cursor, len(pushes), sum(len(push.body) for push in pushes))
            _, waiting_bytes = self._counted(cursor)
        connection.commit()
        self.waiting_bytes = waiting_bytes

    def _store(self, cursor: Any, pushes: Sequence[Push]) -> None:
        columns = "received_at, mail_conn_id, task_status, body, body_bytes"
        rows = ", ".join([f"({', '.join([self.mark] * 5)})"] * len(pushes))
        values = (
            (self.sql.time(push.received_at), push.mail_conn_id, push.task_status, *_packed(push.body))
            for push in pushes
        )
        cursor.execute(f"INSERT INTO {self.table} ({columns}) VALUES {rows}", [*chain.from_iterable(values)])

    def take(self, connection: Any, *, max_pushes: int, max_bytes: int, after: int = -1) -> list[StoredPush]:
        """Return pushes that are not drained, oldest first; at least one if there is any.

        In Postgres they are locked until the end of the transaction, and other calls skip them. In SQLite they are not:
        two drains at once do the same work, which the keys of the warehouse make harmless.

        :param max_bytes: the largest sum of the lengths of their bodies, unless the first one is longer.
        :param after: only pushes with larger numbers, which saves Postgres from reading past all that was drained
            since the last VACUUM.
        """
        with closing(connection.cursor()) as cursor:
            cursor.execute(
                f"SELECT id, body_bytes FROM {self.table} WHERE drained_at IS NULL AND id > {self.mark} ORDER BY id "
                f"LIMIT {self.mark}{self.sql.skip_locked}",
                [after, max_pushes],
            )
            ids: list[int] = []
            size = 0
            for id, length in cursor.fetchall():
                size += length
                if ids and size > max_bytes:
                    break
                ids.append(id)
            return self._pushes(cursor, f"{self.sql.is_one_of} ORDER BY id", [self.sql.ids(ids)])

    def finish(self, connection: Any, ids: Sequence[int], drained_at: datetime.datetime) -> None:
        """Mark pushes as drained, and commit, which ends their locks."""
        with self._write(connection) as cursor:
            cursor.execute(
                f"UPDATE {self.table} SET drained_at = {self.mark} WHERE drained_at IS NULL AND {self.sql.is_one_of} "
                "RETURNING body_bytes",
                [self.sql.time(drained_at), self.sql.ids(ids)],
            )
            sizes = [size for (size,) in cursor.fetchall()]
            self._count(cursor, -len(sizes), -sum(sizes))

    def task_status_pushes(self) -> dict[int, str]:
        """Return which of the latest pushes may hold an event ``TaskStatus``, drained or not: their connection ids."""
        newest = f"(SELECT max(id) FROM {self.table})"
        query = f"SELECT id, mail_conn_id FROM {self.table} WHERE task_status AND id > {newest} - {_LATEST}"
        return dict(self._read(query))

    def waiting(self) -> bool:
        return bool(self._read(f"SELECT 1 FROM {self.table} WHERE drained_at IS NULL LIMIT 1"))

    def _read(self, query: str) -> Sequence[tuple[Any, ...]]:
        """Return rows; none where there is no table."""
        with self.connected() as cursor:
            if not self.sql.exists(cursor, self.name):
                return ()
            cursor.execute(query)
            rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
            return rows

    def state(self) -> InboxState:
        """Return what waits to be drained; counts nothing, so it takes the same time however much that is."""
        with self.connected() as cursor:
            pushes, self.waiting_bytes = self._counted(cursor)
            oldest = None
            if pushes:  # otherwise Postgres would read past all that was drained since the last VACUUM
                cursor.execute(f"SELECT received_at FROM {self.table} WHERE drained_at IS NULL ORDER BY id LIMIT 1")
                oldest = cursor.fetchone()
        at = self.sql.read_time(oldest[0]) if oldest else None
        seconds = int((_now() - at).total_seconds()) if at else 0
        return InboxState(pushes, self.waiting_bytes, at, max(0, seconds))

    def check_counter(self, connection: Any) -> None:
        """Make the counter exact after a drain has left nothing, since the rows may have been changed by hand."""
        try:
            with self._write(connection) as cursor:
                if limit := self.sql.limit(_RECOUNT_SECONDS):
                    cursor.execute(limit)
                self._recount(cursor)
        except Exception as error:
            connection.rollback()
            _log.warning("The pushes that wait could not be counted again: %s", problem_of(error, _RECOUNT_SECONDS))

    def _recount(self, cursor: Any) -> None:
        # Waits for the transactions that have changed the counter, whose pushes are then seen; new ones wait for this.
        cursor.execute(f"SELECT shard FROM {self._counts} ORDER BY shard{self.sql.for_update}")
        cursor.fetchall()
        cursor.execute(f"SELECT count(*), coalesce(sum(body_bytes), 0) FROM {self.table} WHERE drained_at IS NULL")
        pushes, size = cursor.fetchone()
        cursor.execute(f"UPDATE {self._counts} SET pushes = 0, bytes = 0")
        self._count(cursor, pushes, size)

    def _count(self, cursor: Any, pushes: int, size: int) -> None:
        cursor.execute(
            f"UPDATE {self._counts} SET pushes = pushes + {self.mark}, bytes = bytes + {self.mark} "
            f"WHERE shard = {self.mark}",
            [pushes, size, os.getpid() % _SHARDS],
        )

    def _counted(self, cursor: Any) -> tuple[int, int]:
        cursor.execute(f"SELECT coalesce(sum(pushes), 0), coalesce(sum(bytes), 0) FROM {self._counts}")
        pushes, size = cursor.fetchone()
        return max(0, int(pushes)), max(0, int(size))

    def probe(self) -> None:
        """Write a push and roll it back."""
        with self.connected() as cursor:
            if self.sql.begin:
                cursor.execute(self.sql.begin)
            self._store(cursor, [Push(b"[]", _now(), "", False)])
            cursor.connection.rollback()

    def delete_drained(self, before: datetime.datetime) -> int:
        """Delete what was drained before a time, oldest first, in transactions of bounded size."""
        query = (
            f"DELETE FROM {self.table} WHERE drained_at < {self.mark} "
            f"AND id IN (SELECT id FROM {self.table} ORDER BY id LIMIT {_DELETED_AT_ONCE})"
        )
        deleted, count = 0, 1
        with self.connection() as connection:
            while count:
                with self._write(connection) as cursor:
                    cursor.execute(query, [self.sql.time(before)])
                    count = int(cursor.rowcount)
                deleted += count
        return deleted

    def scan(self, connection: Any, *, after: int, max_pushes: int) -> list[StoredPush]:
        """Return pushes with larger numbers than `after`, drained or not, in their order."""
        with closing(connection.cursor()) as cursor:
            return self._pushes(cursor, f"id > {self.mark} ORDER BY id LIMIT {self.mark}", [after, max_pushes])

    def change_body(self, connection: Any, id: int, change: Callable[[bytes], bytes | None]) -> bool:
        """Change the body of a push, and commit; return whether it was changed.

        Waits for a drain that has taken the push, and for other changes of it; they wait until the commit.

        :param change: returns the new body; ``None`` to leave it as it is.
        """
        with self._write(connection) as cursor:
            columns = "body, body_bytes, drained_at"
            cursor.execute(f"SELECT {columns} FROM {self.table} WHERE id = {self.mark}{self.sql.for_update}", [id])
            former, size, drained_at = cursor.fetchone() or (None, 0, None)
            body = change(zlib.decompress(former)) if former is not None else None
            if body is not None:
                if drained_at is None:
                    self._count(cursor, 0, len(body) - size)
                cursor.execute(
                    f"UPDATE {self.table} SET body = {self.mark}, body_bytes = {self.mark} WHERE id = {self.mark}",
                    [*_packed(body), id],
                )
        return body is not None

    @contextmanager
    def _write(self, connection: Any) -> Iterator[Any]:
        with closing(connection.cursor()) as cursor:
            if self.sql.begin:
                cursor.execute(self.sql.begin)
            yield cursor
        connection.commit()

    def _pushes(self, cursor: Any, condition: str, parameters: Sequence[Any]) -> list[StoredPush]:
        columns = "body, received_at, mail_conn_id, task_status, id"
        cursor.execute(f"SELECT {columns} FROM {self.table} WHERE {condition}", parameters)
        return [
            StoredPush(zlib.decompress(body), self.sql.read_time(at), mail_conn_id, bool(task_status), id)
            for body, at, mail_conn_id, task_status, id in cursor.fetchall()
        ]


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _packed(body: bytes) -> tuple[bytes, int]:
    """The columns of a body. Postgres could compress it, but takes twice the time, and is the scarcer resource."""
    return zlib.compress(body, 1), len(body)


def problem_of(error: BaseException, seconds: float) -> str:
    """Return what may be logged of a failure: the message of a driver may quote a body."""
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:g} s"
    return str(error) if isinstance(error, MailConfigError | WarehouseError) else safe_message(error)


def inbox_of(name: InboxName) -> Inbox:
    return Inbox(configured_hook("inbox_conn_id", name.conn_id), name.table)


def open_inbox(conn_id: str | None = None, table: str | None = None) -> Inbox:
    """Return the inbox of Airflow's configuration.

    :raises MailConfigError: there is no ``inbox_conn_id``, or no such database.
    :raises WarehouseError: it is neither Postgres nor SQLite.
    """
    if (name := configured_inbox(conn_id, table)) is None:
        raise MailConfigError(
            "[mail] inbox_conn_id: there is no inbox; set it to the connection of a Postgres or SQLite database "
            "(AIRFLOW__MAIL__INBOX_CONN_ID)"
        )
    return inbox_of(name)
