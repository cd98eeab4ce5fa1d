"""The state of an audience: who was accepted with which values, on which lists; in the user's database."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

NO_MEMBERS = -1
"""The number of lines of an audience whose last run did not end."""

StoredPart = tuple[int, str, int, str, str]
"""Number, membership, rows, voids and sealed content of a part, as the state stores them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The row of an audience; the fields are the columns of `AUDIENCES`."""

    audience_id: str
    audience: str
    version: int = 0
    settings: str = ""
    generation: str = ""
    send_list_name: str = ""
    repel_list_name: str = ""
    members: int = NO_MEMBERS
    parts: int = 0
    size: int = 0
    excluded: int = 0
    full_at: int = 0
    updated_at: int = 0
    claimed_by: str = ""

    @classmethod
    def new(cls, audience: str) -> Header:
        """Return the row of an audience that nobody has sent yet."""
        return cls(audience_id=hashlib.sha256(audience.encode()).hexdigest()[:32], audience=audience)


class StateChangedError(Exception):
    """Another run has changed the state of the audience since it was read."""


class StateStore(Protocol):
    """Where the state of an audience is."""

    name: str
    """The place, for messages."""

    def read(self) -> Header | None:
        """Return the row of the audience; ``None`` if there is none."""

    def create(self, header: Header) -> None:
        """Store the row of an audience, unless there is one."""

    def update(self, header: Header, **values: Any) -> Header:
        """Change the row of an audience.

        :param header: the row as it was read.
        :raises StateChangedError: when another run has changed it.
        """

    def parts(self, generation: str) -> Iterator[StoredPart]:
        """Yield the parts in their order."""

    def write(self, generation: str, parts: Iterable[StoredPart]) -> None:
        """Add parts; all or none."""

    def drop(self, generation: str) -> None:
        """Delete all parts."""


class SqlStateStore:
    """The state in two tables of a database.

    :param table: the table of audiences; that of the members has the suffix ``_members``.
    """

    def __init__(self, hook: DbApiHook, table: str, audience_id: str) -> None:
        from airflow_provider_mail._task.sql import check_tables
        from airflow_provider_mail.warehouse.read import StoredTable
        from airflow_provider_mail.warehouse.tables.columns import derived_name
        from airflow_provider_mail.warehouse.tables.imports import AUDIENCES, MEMBERS

        self._hook = hook
        self._table = table
        self._members_table = derived_name(table, "_members")
        check_tables(hook, {"state_table": table, "state_table with _members": self._members_table})
        self._audience_id = audience_id
        self._audiences = StoredTable(hook, AUDIENCES, table)
        self._members = StoredTable(hook, MEMBERS, self._members_table)
        self.name = f"table {table} of connection {hook.get_conn_id()!r}"

    def read(self) -> Header | None:
        headers = [header for header in self.all() if header.audience_id == self._audience_id]
        return headers[0] if headers else None

    def all(self) -> list[Header]:
        """Return the rows of all audiences."""
        if not self._audiences.existing_columns():
            return []
        names = [field.name for field in fields(Header)]
        columns = ", ".join(map(self._audiences.column, names))
        rows = list(self._audiences.select(columns, "1 = 1"))
        return [Header(**dict(zip(names, row, strict=True))) for row in rows]

    def create(self, header: Header) -> None:
        from airflow_provider_mail.warehouse.load import load
        from airflow_provider_mail.warehouse.tables.imports import AUDIENCES

        load(self._hook, AUDIENCES, self._table, [tuple(getattr(header, name) for name in AUDIENCES.names)])

    def update(self, header: Header, **values: Any) -> Header:
        changed = replace(header, version=header.version + 1, updated_at=int(time.time()), **values)
        names = {"version", "updated_at", *values}
        where = {"audience_id": header.audience_id, "version": header.version}
        if not self._audiences.update(where, {name: getattr(changed, name) for name in names}):
            raise StateChangedError
        return changed

    def parts(self, generation: str) -> Iterator[StoredPart]:
        from airflow_provider_mail.warehouse.read import stream_rows

        columns = ", ".join(map(self._members.column, ("part", "membership", "row_count", "voids", "sealed")))
        condition = f"{self._members.column('generation')} = {self._hook.placeholder}"
        order = self._members.column("part")
        sql = f"SELECT {columns} FROM {self._members.spelled} WHERE {condition} ORDER BY {order}"
        with stream_rows(self._hook, sql, [generation], size=20) as (_, batches):
            for batch in batches:
                yield from batch

    def write(self, generation: str, parts: Iterable[StoredPart]) -> None:
        from airflow_provider_mail.warehouse.load import load
        from airflow_provider_mail.warehouse.tables.imports import MEMBERS

        load(self._hook, MEMBERS, self._members_table, ((generation, *part) for part in parts))

    def delete(self, header: Header) -> None:
        """Delete an audience: its next run sends everybody."""
        self._audiences.delete([{"audience_id": header.audience_id}])
        if header.generation:
            self.drop(header.generation)

    def drop(self, generation: str) -> None:
        self._members.delete([{"generation": generation}])
