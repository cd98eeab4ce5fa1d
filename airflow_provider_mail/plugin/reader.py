"""Reads the tables of the page, in a few threads of its own and with a time limit; nothing is ever written."""

from __future__ import annotations

import asyncio
import datetime
import re
import threading
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
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
from airflow_provider_mail.warehouse.table import Table
from airflow_provider_mail.warehouse.tables.events import DEAD_LETTERS, EVENT_DIFFERENCES, EVENTS
from airflow_provider_mail.warehouse.tables.imports import AUDIENCE_RUNS, IMPORTS
from airflow_provider_mail.warehouse.tables.resources import CAMPAIGNS, CONTACTS
from airflow_provider_mail.warehouse.tables.stats import (
    CAMPAIGN_SNAPSHOTS,
    CAMPAIGN_STATS,
    TRANSACTIONAL_STATS,
    snapshots_name,
)
from airflow_provider_mail.warehouse.time_limit import Threads

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

Row = Mapping[str, Any]
T = TypeVar("T")
Argument = TypeVar("Argument")

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

BESIDE = ("snapshots", "loads")
"""Tables that are in the schema of the campaign statistics, unless their names have a schema."""


class Reader:
    """The tables of one database. As a context manager, it reads them on one connection, if the database allows it.

    :param names: the names of its tables, by what they hold; empty where there is none.
    """

    def __init__(self, hook: DbApiHook, names: Mapping[str, str]) -> None:
        self.hook = hook
        self.names = names
        self.dialect = dialect_of(hook)
        self._opened = ExitStack()
        self._connection: Any = None
        self._thread = 0

    def __enter__(self) -> Self:
        self._thread = threading.get_ident() if self.dialect.reusable else 0
        return self

    def __exit__(self, *_: object) -> None:
        self._thread, self._connection = 0, None
        self._opened.close()

    @classmethod
    def of_page(cls) -> Reader:
        names = {what: setting(f"page_{what}_table") for what in TABLES if what not in ("imports", "loads")}
        names["snapshots"] = snapshots_name(names["campaign_stats"], names["snapshots"])
        names |= {"imports": setting("imports_table"), "loads": LOADS_NAME}
        return cls(configured_hook("page_conn_id", setting("page_conn_id")), names)

    def has(self, what: str) -> bool:
        """Return whether a table exists with its key, and with the time since which a row is gone if it has one."""
        return what in _tables(self)

    def __getitem__(self, what: str) -> StoredTable:
        return _tables(self)[what]

    def rows(self, sql: str, parameters: Sequence[Any] = (), *, limit: int = 0) -> list[Row]:
        """Run one SELECT with question marks for its parameters; return its rows by the names of the columns."""
        limited = f"{sql} LIMIT {limit}" if limit else sql
        return [row for batch in self.batches(limited, parameters, is_short=True) for row in batch]

    def batches(self, sql: str, parameters: Sequence[Any] = (), *, is_short: bool = False) -> Iterator[list[Row]]:
        """Run one SELECT as `rows` does; yield its rows by the thousand, so that few are in memory.

        :param is_short: whether no other statement runs until all rows are read.
        """
        statement = sql.replace("?", self.hook.placeholder)
        with self.errors():
            connection = self._kept() if is_short else None
            with stream_rows(self.hook, statement, list(parameters), connection=connection) as (names, batches):
                lower = [name.lower() for name in names]
                for batch in batches:
                    yield [dict(zip(lower, row, strict=True)) for row in batch]

    def _kept(self) -> Any:
        """Return the connection of the request; ``None`` if the statement needs one of its own, as in other threads."""
        if threading.get_ident() != self._thread:
            return None
        if self._connection is None:
            self._connection = self._opened.enter_context(connected(self.hook))
        else:
            self._connection.rollback()  # the next statement needs a transaction of its own, with a limit of its own
        return self._connection

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Add the address of the database to its errors, without the user; then look up the tables again."""
        try:
            yield
            return
        except WarehouseError as error:
            message = str(error)
        forget()  # a table may have been dropped
        raise WarehouseError(public_message(message, self.hook))

    def accounts(self, what: str) -> Sequence[str]:
        """Return the accounts of a table whose key begins with them: one step in its index each, not all rows."""
        found: list[str] = []
        statement = f"SELECT MIN(mail_conn_id) AS next_one FROM {self[what].spelled} WHERE mail_conn_id > ?"
        while next_one := self.rows(statement, found[-1:] or [""])[0]["next_one"]:
            found.append(str(next_one))
        return found

    def since(self, what: str, column: str, first: datetime.date, condition: str, sums: str) -> Mapping[str, Any]:
        """Return sums of the rows of a table that have a time since then; without the table, each is ``None``."""
        if not self.has(what):
            return defaultdict(lambda: None)
        table = self[what]
        (row,) = self.rows(
            f"SELECT {sums} FROM {table.spelled} WHERE {column} >= ? AND {condition}",
            [table.parameter(column, first)],
        )
        return row


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

    async def stream(self, pieces: Callable[[], Iterator[T]]) -> AsyncGenerator[T, None]:
        """Run a generator that reads the database in a thread, two pieces ahead of who takes them.

        When the caller goes away, its place becomes free, and the generator ends.

        :raises NoAnswer: the first piece does not come within `SECONDS`, or another one does not after that before it.
        """
        loop, room, is_left = asyncio.get_running_loop(), threading.Semaphore(2), threading.Event()
        ready: asyncio.Queue[T | None] = asyncio.Queue()
        end = loop.time() + SECONDS

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

        try:
            async with asyncio.timeout_at(end):
                await self._free.acquire()
            try:
                reading = self._threads.start(produce, SECONDS)
                try:
                    while (piece := await asyncio.wait_for(ready.get(), end - loop.time())) is not None:
                        yield piece
                        room.release()
                        end = loop.time() + SECONDS
                    await asyncio.wrap_future(reading.result)
                finally:
                    is_left.set()
                    room.release()
                    reading.end()
            finally:
                self._free.release()
        except TimeoutError:
            address = next((f" ({started.address})" for started in self._threads.readings if started.address), "")
            raise NoAnswer(f"the database did not answer within {SECONDS:g} seconds{address}") from None


places = Places()


_kept: dict[Hashable, tuple[float, Any]] = {}
"""Until when the results of functions are kept, in each process of the API server."""


def kept_for(seconds: float) -> Callable[[Callable[[Argument], T]], Callable[[Argument], T]]:
    """Keep the results of a function for some time: of one that reads a whole large table, or asks another service.

    The function has one argument: a `Reader`, since the tables are those of the settings, or a text that no visitor
    chooses. It raises `TimeoutError` when another thread computes a result for too long.
    """

    def keep(function: Callable[[Argument], T]) -> Callable[[Argument], T]:
        # A request that comes while a result is being computed waits for it.
        lock = threading.Lock()

        @wraps(function)
        def kept(argument: Argument) -> T:
            key = function, None if isinstance(argument, Reader) else argument
            # Not longer than reading takes at most: the thread that computes may hang.
            if not lock.acquire(timeout=SECONDS):
                raise TimeoutError
            try:
                until, result = _kept.get(key, (float("-inf"), None))
                if time.monotonic() >= until:
                    result = function(argument)
                    _kept[key] = time.monotonic() + seconds, result
                return cast("T", result)
            finally:
                lock.release()

        return kept

    return keep


def forget() -> None:
    """Forget all that is kept, also which tables there are."""
    _kept.clear()


@kept_for(10)
def _tables(reader: Reader) -> Mapping[str, StoredTable]:
    """Return the tables that exist with their keys, as they were at most ten seconds ago."""
    tables: dict[str, StoredTable] = {}
    with reader.errors(), connected(reader.hook) as connection:
        for what, name in reader.names.items():
            if name:
                table = StoredTable(reader.hook, TABLES[what], name)
                if what in BESIDE:
                    first = StoredTable(reader.hook, CAMPAIGN_STATS, reader.names["campaign_stats"])
                    table = StoredTable(reader.hook, TABLES[what], first.beside(name, connection))
                if table.existing_columns(connection) >= {*TABLES[what].key, *filter(None, [TABLES[what].gone])}:
                    tables[what] = table
    return tables
