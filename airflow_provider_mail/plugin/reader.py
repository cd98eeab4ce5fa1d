"""Reads the tables of the page, in a few threads of its own and with a time limit; nothing is ever written."""

from __future__ import annotations

import asyncio
import datetime
import re
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar
from urllib.parse import quote

from airflow_provider_mail._config import setting
from airflow_provider_mail.warehouse.database import (
    StoredTable,
    address,
    configured_hook,
    connected,
    dialect_of,
    stream_rows,
)
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.request import LOADS, LOADS_NAME
from airflow_provider_mail.warehouse.table import Table, TableName
from airflow_provider_mail.warehouse.tables.events import DEAD_LETTERS, EVENT_DIFFERENCES, EVENTS
from airflow_provider_mail.warehouse.tables.imports import AUDIENCE_RUNS, IMPORTS
from airflow_provider_mail.warehouse.tables.resources import CAMPAIGNS, CONTACTS
from airflow_provider_mail.warehouse.tables.stats import (
    CAMPAIGN_SNAPSHOTS,
    CAMPAIGN_STATS,
    TRANSACTIONAL_STATS,
    snapshots_name,
)
from airflow_provider_mail.warehouse.time_limit import Threads, aread, current_reading

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

Row = Mapping[str, Any]
T = TypeVar("T")

TABLES: Mapping[str, Table] = {
    "campaign_stats": CAMPAIGN_STATS,
    "snapshots": CAMPAIGN_SNAPSHOTS,
    "campaigns": CAMPAIGNS,
    "contacts": CONTACTS,
    "transactional_stats": TRANSACTIONAL_STATS,
    "events": EVENTS,
    "dead_letters": DEAD_LETTERS,
    "event_differences": EVENT_DIFFERENCES,
    "imports": IMPORTS,
    "audience_runs": AUDIENCE_RUNS,
    "loads": LOADS,
}

KNOWN_SECONDS = 60.0
"""For how long a table that was found counts as existing."""

MISSING_SECONDS = 2.0
"""For how long a table that was not found counts as missing: for the parts of one page, which ask in turn."""

BESIDE = ("snapshots", "loads")
"""Tables that are in the schema of the campaign statistics, unless their names have a schema."""

_found: dict[str, tuple[float, TableName | None]] = {}
"""Until when a table counts as existing with its schema, or as missing."""


class Reader:
    """The tables of one database. As a context manager, it reads them on one connection, if the database allows it.

    :param names: the names of its tables, by what they hold; empty where there is none.
    """

    def __init__(self, hook: DbApiHook, names: Mapping[str, str]) -> None:
        self._hook = hook
        self._names = names
        self._tables = {what: StoredTable(hook, TABLES[what], name) for what, name in names.items() if name}
        self.dialect = dialect_of(hook)
        self._opened = ExitStack()
        self._connection: Any = None
        self._reading = current_reading()
        self._keeps_open = False

    def __enter__(self) -> Self:
        self._keeps_open = self.dialect.reusable
        return self

    def __exit__(self, *_: object) -> None:
        self._keeps_open = False
        self._close()

    def _close(self) -> None:
        self._connection = None
        self._opened.close()

    @classmethod
    def of_page(cls) -> Reader:
        """Return the reader of the page's database.

        :raises MailConfigError: there is no such database.
        :raises WarehouseError: the name of a table is not valid.
        """
        names = {what: setting(f"page_{what}_table") for what in TABLES if what not in ("imports", "loads")}
        names["snapshots"] = snapshots_name(names["campaign_stats"], names["snapshots"])
        names |= {"imports": setting("imports_table"), "loads": LOADS_NAME}
        return cls(configured_hook("page_conn_id", setting("page_conn_id")), names)

    def name(self, what: str) -> str:
        """Return the name of a table as the settings have it."""
        return self._names[what]

    def has(self, what: str) -> bool:
        """Return whether a table exists with its key, and with the time since which a row is gone if it has one.

        :raises WarehouseError: the database cannot be read.
        """
        if what not in self._tables:
            return False
        name, declared = self._names[what], TABLES[what]
        until, located = _found.get(name, (float("-inf"), None))
        if time.monotonic() >= until:
            with self._errors():
                located = self["campaign_stats"].beside(name) if what in BESIDE else TableName.parse(name)
                columns = StoredTable(self._hook, declared, located).existing_columns()
            if not columns >= {*declared.key, *filter(None, [declared.gone])}:
                located = None
            _found[name] = time.monotonic() + (KNOWN_SECONDS if located else MISSING_SECONDS), located
        if located:
            self._tables[what] = StoredTable(self._hook, declared, located)
        return bool(located)

    def __getitem__(self, what: str) -> StoredTable:
        return self._tables[what]

    def rows(self, sql: str, parameters: Sequence[Any] = (), *, limit: int = 0, offset: int = 0) -> list[Row]:
        """Run one SELECT with question marks for its parameters; return its rows by the names of the columns.

        :param limit: of the rows of a statement that has ORDER BY.
        """
        limited = self.dialect.limited(sql, limit, offset) if limit else sql
        return [row for batch in self.batches(limited, parameters, is_short=True) for row in batch]

    def batches(self, sql: str, parameters: Sequence[Any] = (), *, is_short: bool = False) -> Iterator[list[Row]]:
        """Run one SELECT as `rows` does; yield its rows by the thousand, so that few are in memory.

        :param is_short: whether no other statement runs until all rows are read.
        """
        statement = sql.replace("?", self._hook.placeholder)
        with self._errors():
            connection = self._kept() if is_short else None
            with stream_rows(self._hook, statement, list(parameters), connection=connection) as (names, batches):
                lower = [name.lower() for name in names]
                for batch in batches:
                    yield [dict(zip(lower, row, strict=True)) for row in batch]

    def _kept(self) -> Any:
        """Return the connection of the request; ``None`` if the statement needs one of its own, as in other threads."""
        if not self._keeps_open or current_reading() is not self._reading:
            return None
        if self._connection is None:
            self._connection = self._opened.enter_context(connected(self._hook))
        else:
            self._connection.rollback()  # the next statement needs a transaction of its own, with a limit of its own
        return self._connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Add the address of the database to its errors, without the user; then look up the tables again."""
        try:
            yield
            return
        except WarehouseError as error:
            message = str(error)
        if current_reading() is self._reading:  # after an error, Postgres runs no statement in the transaction
            self._close()
        _found.clear()  # a table may have been dropped
        raise WarehouseError(public_message(message, self._hook))

    def accounts(self, what: str) -> Sequence[str]:
        """Return the accounts of a table whose key begins with them: one step in its index each, not all rows."""
        found: list[str] = []
        statement = f"SELECT MIN(mail_conn_id) AS next_one FROM {self[what].spelled} WHERE mail_conn_id > ?"
        while next_one := self.rows(statement, found[-1:] or [""])[0]["next_one"]:
            found.append(str(next_one))
        return found

    def since(self, what: str, column: str, time: datetime.date, condition: str = "") -> tuple[int, Any]:
        """Return how many rows of a table have a time since then, and the earliest; none without the table."""
        if not self.has(what):
            return 0, None
        table = self[what]
        (row,) = self.rows(
            f"SELECT COUNT(*) AS total, MIN({column}) AS earliest FROM {table.spelled} WHERE {column} >= ?{condition}",
            [table.parameter(column, time)],
        )
        return int(row["total"]), row["earliest"]


def public_message(message: str, hook: DbApiHook) -> str:
    """Return the error of a database for all who see the page: with its address, without the user."""
    connection = hook.get_connection(hook.get_conn_id())
    if connection.login:
        # As drivers quote it. A bare word may be a part of anything, such as the name of the database.
        message = re.sub(rf"""(['"]){re.escape(connection.login)}\1""", "***", message)
    if connection.password:
        # Wherever it is a word of its own, also as a URI has it.
        words = "|".join(map(re.escape, {connection.password, quote(connection.password, safe="")}))
        message = re.sub(rf"(?<!\w)(?:{words})(?!\w)", "***", message)
    at = address(hook)
    return f"{message} ({at})" if at else message


def day(value: Any) -> datetime.date:
    return value if type(value) is datetime.date else datetime.date.fromisoformat(str(value)[:10])


PLACES = 4
"""How many requests read at once, in each process of the API server."""

SECONDS = 20.0
"""How long a request waits for a place and for its data."""

MAX_THREADS = 4 * PLACES
"""Maximum number of threads, including abandoned ones whose driver has not returned."""


class NoAnswer(Exception):
    """The database does not answer in time."""


class Places:
    """Runs what reads the database in a few threads: Airflow's own pool of threads is not filled by one that hangs."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(PLACES)
        self._threads = Threads(MAX_THREADS)

    async def read(self, function: Callable[[], T]) -> T:
        """Run a function that reads the database in a thread; return its result or raise its error.

        When the caller is cancelled, its place becomes free.

        :raises NoAnswer: there is no result within `SECONDS`.
        """
        try:
            async with asyncio.timeout(SECONDS), self._free:
                return await aread(self._threads.start(function, SECONDS))
        except TimeoutError:
            raise self._no_answer() from None

    async def stream(self, pieces: Callable[[], Iterator[str]]) -> AsyncGenerator[str, None]:
        """Run a generator that reads the database in a thread, two pieces ahead of who takes them.

        When the caller goes away, its place becomes free, and the generator ends.

        :raises NoAnswer: the next piece does not come within `SECONDS`.
        """
        loop, room, is_left = asyncio.get_running_loop(), threading.Semaphore(2), threading.Event()
        ready: asyncio.Queue[str | None] = asyncio.Queue()

        def produce() -> None:
            try:
                for piece in pieces():
                    room.acquire()
                    if is_left.is_set():
                        return
                    loop.call_soon_threadsafe(ready.put_nowait, piece)
            finally:
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(ready.put_nowait, None)

        async def within_limit(wanted: Awaitable[T]) -> T:
            try:
                return await asyncio.wait_for(wanted, SECONDS)
            except TimeoutError:
                raise self._no_answer() from None

        await within_limit(self._free.acquire())
        try:
            reading = self._threads.start(produce, SECONDS)
            try:
                while (piece := await within_limit(ready.get())) is not None:
                    yield piece
                    room.release()
                await asyncio.wrap_future(reading.result)
            finally:
                is_left.set()
                room.release()
                reading.end()
        finally:
            self._free.release()

    def _no_answer(self) -> NoAnswer:
        address = next((f" ({started.address})" for started in self._threads.readings if started.address), "")
        return NoAnswer(f"the database did not answer within {SECONDS:g} seconds{address}")


places = Places()


KEEP_SECONDS = 600.0
"""For how long the result of a statement that reads a whole large table is kept."""


class TtlCache(Generic[T]):
    """The results of a function for some time, in each process of the API server.

    :param seconds: for how long; by default ten minutes.
    """

    def __init__(self, seconds: float = KEEP_SECONDS) -> None:
        self._seconds = seconds
        self._results: dict[Hashable, tuple[float, T]] = {}
        # A request that comes while a result is being computed waits for it.
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return a result; compute it if it is not known or too old.

        :param key: what the result depends on. No visitor chooses it, so there are few.
        :raises TimeoutError: another thread computes for too long.
        """
        # Not longer than reading takes at most: the thread that computes may hang.
        if not self._lock.acquire(timeout=SECONDS):
            raise TimeoutError
        try:
            cached = self._results.get(key)
            if cached is not None and time.monotonic() - cached[0] < self._seconds:
                return cached[1]
            result = compute()
            self._results[key] = time.monotonic(), result
            return result
        finally:
            self._lock.release()

    def clear(self) -> None:
        with self._lock:
            self._results.clear()
