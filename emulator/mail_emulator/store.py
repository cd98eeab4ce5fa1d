"""The state of the emulated service: an SQLite database, in memory or in a file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS contacts (
    id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, email TEXT, phone TEXT, name TEXT,
    properties TEXT NOT NULL DEFAULT '{}', created INTEGER, modified INTEGER, creator INTEGER);
CREATE TABLE IF NOT EXISTS lists (
    id INTEGER PRIMARY KEY AUTOINCREMENT, team TEXT, team_id INTEGER, name TEXT, description TEXT,
    status INTEGER DEFAULT 1, type INTEGER DEFAULT 1, filters TEXT DEFAULT '', creator INTEGER, created INTEGER,
    modified INTEGER, UNIQUE (team, name));
CREATE TABLE IF NOT EXISTS members (
    list_id INTEGER, contact_id INTEGER, PRIMARY KEY (list_id, contact_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS suppressions (key TEXT PRIMARY KEY, reason TEXT, at INTEGER);
CREATE TABLE IF NOT EXISTS templates (
    id INTEGER PRIMARY KEY, name TEXT UNIQUE, content TEXT, subject TEXT, editor TEXT, created INTEGER);
CREATE TABLE IF NOT EXISTS labels (kind TEXT, name TEXT, PRIMARY KEY (kind, name));
CREATE TABLE IF NOT EXISTS campaigns (
    id INTEGER PRIMARY KEY AUTOINCREMENT, guid TEXT, team TEXT, name TEXT, type TEXT, state TEXT,
    deleted_at INTEGER, cancelled_at INTEGER, created INTEGER, send_at INTEGER, started_at INTEGER, ended_at INTEGER,
    visible_at INTEGER DEFAULT 0, hidden_looks INTEGER DEFAULT 0, looks INTEGER DEFAULT 0,
    plan_seconds REAL, plan_looks INTEGER, plan_outcome TEXT,
    sender TEXT, subject TEXT, request TEXT, kept_because TEXT, attachment_bytes INTEGER,
    sent INTEGER DEFAULT 0, unsent INTEGER DEFAULT 0, dropped INTEGER DEFAULT 0, hard INTEGER DEFAULT 0,
    soft INTEGER DEFAULT 0, opens INTEGER DEFAULT 0, clicks INTEGER DEFAULT 0, unsubscribes INTEGER DEFAULT 0,
    spam INTEGER DEFAULT 0, fixed_stats TEXT, events_to INTEGER DEFAULT 0, by_hand TEXT);
CREATE INDEX IF NOT EXISTS campaigns_by_name ON campaigns (name);
CREATE INDEX IF NOT EXISTS campaigns_by_state ON campaigns (state);
CREATE TABLE IF NOT EXISTS reactions (campaign_id INTEGER, rank INTEGER, code TEXT, at INTEGER);
CREATE INDEX IF NOT EXISTS reactions_by_recipient ON reactions (campaign_id, rank);
CREATE TABLE IF NOT EXISTS campaign_plans (
    name TEXT PRIMARY KEY, seconds REAL, looks INTEGER, outcome TEXT);
CREATE TABLE IF NOT EXISTS recipients (
    campaign_id INTEGER, rank INTEGER, contact_id INTEGER, email TEXT, list_name TEXT,
    PRIMARY KEY (campaign_id, rank)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY, batch INTEGER, version INTEGER, unique_msg_id TEXT, form TEXT, sender TEXT,
    sender_name TEXT, reply_to TEXT, subject TEXT, content TEXT, template TEXT, category TEXT, campaign TEXT,
    attachment_name TEXT, attachment_bytes INTEGER, created INTEGER, send_at INTEGER);
CREATE INDEX IF NOT EXISTS messages_by_msg_id ON messages (unique_msg_id);
CREATE TABLE IF NOT EXISTS deliveries (
    id INTEGER PRIMARY KEY, message_id INTEGER, role TEXT, email TEXT, name TEXT, msg_id TEXT, send_at INTEGER,
    dropped TEXT, bounce TEXT, opened_at INTEGER, clicked_at INTEGER,
    unsubscribed_at INTEGER, spam_at INTEGER);
CREATE INDEX IF NOT EXISTS deliveries_by_message ON deliveries (message_id);
CREATE INDEX IF NOT EXISTS deliveries_by_time ON deliveries (send_at);
CREATE INDEX IF NOT EXISTS deliveries_by_email ON deliveries (email);
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, at INTEGER, code TEXT, delivery_id INTEGER, campaign_id INTEGER, detail TEXT);
CREATE INDEX IF NOT EXISTS events_by_time ON events (at);
CREATE TABLE IF NOT EXISTS fixed_days (day TEXT PRIMARY KEY, stats TEXT);
CREATE TABLE IF NOT EXISTS senders (
    id INTEGER PRIMARY KEY, entry TEXT, type INTEGER, service INTEGER DEFAULT 0,
    mx INTEGER, spf INTEGER, dkim INTEGER, dmarc INTEGER, UNIQUE (entry, type));
CREATE TABLE IF NOT EXISTS dns (
    entry TEXT PRIMARY KEY, mx INTEGER, spf INTEGER, dkim INTEGER, dmarc INTEGER, selector TEXT);
CREATE TABLE IF NOT EXISTS codes (code TEXT PRIMARY KEY, issued INTEGER, used INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS tokens (token TEXT PRIMARY KEY, issued INTEGER, expires INTEGER, revoked INTEGER DEFAULT 0);
"""

#: The specification calls a task's id a long, so none fits 32 bits.
FIRST_CAMPAIGN_ID = 7_000_000_001
_NUMBER_CAMPAIGNS = f"""
INSERT INTO sqlite_sequence SELECT 'campaigns', {FIRST_CAMPAIGN_ID - 1}
WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'campaigns');
"""
# State must survive a crash of the process, not of the host; a million contacts should fit in the cache.
_PRAGMAS = "PRAGMA cache_size=-262144; PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;"

Row = dict[str, Any]
Values = Sequence[Any] | Mapping[str, Any]


def _connect(file: Path | str) -> sqlite3.Connection:
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False, cached_statements=512)
    connection.row_factory = _as_dict
    connection.executescript(_PRAGMAS)
    return connection


@cache
def _empty_database() -> sqlite3.Connection:
    """Return a database in memory to copy, which takes a thirtieth of the time of creating it."""
    connection = _connect(":memory:")
    connection.executescript(_SCHEMA + _NUMBER_CAMPAIGNS)
    return connection


class Store:
    """A database connection whose rows are dictionaries by column name; OSError when the file cannot be used."""

    def __init__(self, file: Path | None = None) -> None:
        try:
            self.connection = _connect(file or ":memory:")
            if file is None:
                _empty_database().backup(self.connection)
            else:
                self.connection.executescript(_SCHEMA + _NUMBER_CAMPAIGNS)
        except sqlite3.Error as error:
            raise OSError(f"the state file {file} cannot be used: {error}") from error
        self.members = Members(self)
        #: How often the state was deleted.
        self.generation = 0

    def clear(self) -> None:
        with self.transaction():
            for table in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'"):
                self.run(f"DELETE FROM {table['name']}")
            self.run(_NUMBER_CAMPAIGNS)
        self.members.clear_cache()
        self.generation += 1

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Roll back on an exception, or when ``keep`` is set to False. Nested use joins the outer transaction."""
        outcome = Transaction()
        if self.connection.in_transaction:
            yield outcome
            return
        self.connection.execute("BEGIN")
        try:
            yield outcome
        except BaseException:
            outcome.keep = False
            raise
        finally:
            self.connection.execute("COMMIT" if outcome.keep else "ROLLBACK")
            if not outcome.keep:
                self.members.clear_cache()

    def run(self, sql: str, values: Values = ()) -> int:
        """Execute a statement; return the number of changed rows."""
        return self.connection.execute(sql, values).rowcount

    def run_many(self, sql: str, rows: Iterable[Values]) -> None:
        self.connection.executemany(sql, rows)

    def rows(self, sql: str, values: Values = ()) -> list[Row]:
        return self.connection.execute(sql, values).fetchall()

    def row(self, sql: str, values: Values = ()) -> Row | None:
        """Return the first row of a query; None without one."""
        row: Row | None = self.connection.execute(sql, values).fetchone()
        return row

    def value(self, sql: str, values: Values = ()) -> Any:
        """Return the first column of the first row; None without a row."""
        row = self.row(sql, values)
        return None if row is None else next(iter(row.values()))

    def insert(self, table: str, **values: Any) -> int:
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        cursor = self.connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))
        return cursor.lastrowid or 0

    def update(self, table: str, row_id: int, **values: Any) -> None:
        changes = ", ".join(f"{name} = ?" for name in values)
        self.run(f"UPDATE {table} SET {changes} WHERE id = ?", [*values.values(), row_id])

    def get_meta(self, name: str) -> str | None:
        """Return a value that belongs to the service as a whole, such as the webhook configuration."""
        value: str | None = self.value("SELECT value FROM meta WHERE name = ?", [name])
        return value

    def set_meta(self, name: str, value: str) -> None:
        """Store a value that belongs to the service as a whole."""
        self.run("INSERT OR REPLACE INTO meta VALUES (?, ?)", [name, value])


class Transaction:
    """The current transaction; set ``keep`` to False to roll it back."""

    keep = True


def _as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> Row:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


class Members:
    """Membership of contacts in lists. Pages are ordered by contact id, the order of creation."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._totals: dict[int, int] = {}
        #: Contact id before each page start, so that the next page does not scan the previous ones.
        self._before: dict[tuple[int, int], int] = {}

    def clear_cache(self) -> None:
        self._totals.clear()
        self._before.clear()

    def add_newer(self, list_id: int, contact_id: int) -> int:
        """Add all contacts with a higher id; return their number."""
        self.clear_cache()
        return self._store.run(
            "INSERT OR IGNORE INTO members SELECT ?, id FROM contacts WHERE id > ?", [list_id, contact_id]
        )

    def add_keys(self, list_id: int, keys: Sequence[str]) -> None:
        """Add the contacts with these keys; unknown keys are skipped."""
        self.clear_cache()
        self._store.run_many(
            "INSERT OR IGNORE INTO members SELECT ?, id FROM contacts WHERE key = ?", [(list_id, key) for key in keys]
        )

    def remove_contact(self, contact_id: int) -> None:
        self.clear_cache()
        self._store.run("DELETE FROM members WHERE list_id IN (SELECT id FROM lists) AND contact_id = ?", [contact_id])

    def remove_list(self, list_id: int) -> None:
        self.clear_cache()
        self._store.run("DELETE FROM members WHERE list_id = ?", [list_id])

    def total(self, list_id: int) -> int:
        if list_id not in self._totals:
            self._totals[list_id] = self._store.value("SELECT count(*) FROM members WHERE list_id = ?", [list_id])
        return self._totals[list_id]

    def page(self, list_id: int, limit: int, offset: int) -> tuple[list[Row], int]:
        """Return the contacts of a list from an offset on, and the total of the list."""
        before = self._before.get((list_id, offset), 0)
        rows = self._store.rows(
            "SELECT contacts.* FROM members JOIN contacts ON contacts.id = contact_id "
            "WHERE list_id = ? AND contact_id > ? ORDER BY contact_id LIMIT ? OFFSET ?",
            [list_id, before, limit, 0 if before else offset],
        )
        if rows:
            self._before[list_id, offset + len(rows)] = rows[-1]["id"]
        return rows, self.total(list_id)
