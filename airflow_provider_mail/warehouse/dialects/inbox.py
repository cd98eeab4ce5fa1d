"""What SQLite and Postgres spell differently in the tables of received pushes and of their tokens."""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_mail.warehouse.table import TableName, quoted

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook


class InboxSql(ABC):
    id_type: ClassVar[str]
    body_type: ClassVar[str]
    time_type: ClassVar[str]
    begin: ClassVar[str] = ""
    """Begins a transaction that writes, where a statement has to."""
    begin_insert: ClassVar[str]
    """Begins a transaction that is on disk when it is committed."""
    for_update: ClassVar[str] = ""
    """The end of a SELECT that locks its rows against other writers."""
    skip_locked: ClassVar[str] = ""
    """The end of a SELECT that locks its rows, and leaves out those that are locked."""
    is_one_of: ClassVar[str]
    """The condition that the id is one of `ids`: one parameter, however many there are."""
    now: ClassVar[str]
    """The time by the clock of the database, so many seconds (a parameter, ``{mark}``) from now."""

    @abstractmethod
    def configure(self, hook: DbApiHook, connection: Any) -> None:
        """Prepare a new connection for explicit transactions."""

    def limit(self, seconds: float) -> str:
        """Return the statement that limits those of this transaction; poolers share sessions."""
        return ""

    @abstractmethod
    def lock_definition(self, cursor: Any, table: str) -> None:
        """Keep other sessions from changing a table at once, which fails even with IF NOT EXISTS."""

    @contextmanager
    @abstractmethod
    def only_one(self, cursor: Any, name: str) -> Iterator[bool]:
        """Try to keep out everyone else who gives the same name; yield whether that worked."""
        yield False

    @abstractmethod
    def exists(self, cursor: Any, name: TableName) -> bool:
        """Return whether there is a table."""

    @abstractmethod
    def index(self, name: str, table: TableName) -> str:
        """Return the quoted name of an index with the table that it is on, as CREATE INDEX wants both."""

    def time(self, when: datetime.datetime) -> Any:
        """Return a time with a zone as a parameter."""
        return when

    def read_time(self, value: Any) -> datetime.datetime:
        """Return a time that was read."""
        read: datetime.datetime = value
        return read

    def ids(self, ids: Sequence[int]) -> Any:
        """Return numbers as the parameter of `is_one_of`."""
        return list(ids)


def qualified(name: TableName) -> str:
    """Return the name of a table as both databases read it."""
    return ".".join(quoted(part.text if part.quoted else part.text.lower()) for part in name.parts)
