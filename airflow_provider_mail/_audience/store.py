"""Where the states of audiences are: in two tables of the user's database. Each change is one transaction."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_provider_mail._task.storage import check_tables
from airflow_provider_mail.warehouse.database import LoadRequest, Source, StoredTable, TableName, load, stream_rows
from airflow_provider_mail.warehouse.table import derived_name
from airflow_provider_mail.warehouse.tables.imports import AUDIENCES, MEMBERS

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

StoredPart: TypeAlias = tuple[int, int, str]
"""Bucket, number and sealed content of a part."""

_MEMBER_COLUMNS = ("generation", "bucket", "part", "sealed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The row of an audience; the fields are the columns of `AUDIENCES`. Only ``ledger`` is trusted."""

    audience_id: str
    audience: str
    version: int = 0
    generation: str = ""
    ledger: str = ""
    send_list_name: str = ""
    size: int = 0
    excluded: int = 0
    updated_at: int = 0
    claimed_by: str = ""

    @classmethod
    def new(cls, audience: str) -> Header:
        """Return the row of an audience that nobody has sent yet."""
        return cls(audience_id=hashlib.sha256(audience.encode()).hexdigest()[:32], audience=audience)


class StateChangedError(Exception):
    """Another run has changed the state of the audience since it was read."""


class StateStore:
    """The states of audiences in two tables of a database.

    :param table: the table of audiences; that of the members has the suffix ``_members``.
    """

    def __init__(self, hook: DbApiHook, table: str) -> None:
        self._hook = hook
        self._table = table
        self._members_table = derived_name(table, "_members")
        check_tables(hook, {"table": table, "table with _members": self._members_table})
        self._audiences = StoredTable(hook, AUDIENCES, table)
        self._members = StoredTable(hook, MEMBERS, self._members_table)
        self.name = f"table {table} of connection {hook.get_conn_id()!r}"
        """The place, for messages."""

    def all(self) -> list[Header]:
        """Return the rows of all audiences."""
        if not self._audiences.existing_columns():
            return []
        names = [field.name for field in fields(Header)]
        rows = self._audiences.select(", ".join(map(self._audiences.column, names)), "1 = 1")
        return [Header(**dict(zip(names, row, strict=True))) for row in rows]

    def read(self, audience_id: str) -> Header | None:
        """Return the row of an audience; ``None`` if there is none."""
        return next((header for header in self.all() if header.audience_id == audience_id), None)

    def create(self, header: Header) -> None:
        """Store the row of an audience, unless there is one; create the tables."""
        row = tuple(getattr(header, name) for name in AUDIENCES.names)
        load(self._hook, LoadRequest(AUDIENCES, TableName.parse(self._table), Source([row])))
        load(self._hook, LoadRequest(MEMBERS, TableName.parse(self._members_table), Source([])))

    def change(
        self,
        header: Header,
        *,
        parts: Iterable[StoredPart] = (),
        replaced: Collection[int] = (),
        **values: Any,
    ) -> Header:
        """Change the row of an audience and its parts, in one transaction.

        :param parts: new parts, of the new generation if that changes; then those of the old one are deleted. They may
            be read several times.
        :param replaced: the buckets whose earlier parts are deleted.
        :raises StateChangedError: when another run has changed it.
        """
        values |= {"version": header.version + 1, "updated_at": int(time.time())}
        changed = replace(header, **values)

        def work(execute: Callable[[str, Sequence[Any]], int]) -> bool:
            mark, column = self._hook.placeholder, self._audiences.column
            assigned = ", ".join(f"{column(name)} = {mark}" for name in values)
            found = execute(
                f"UPDATE {self._audiences.spelled} SET {assigned} WHERE {column('audience_id')} = {mark} "
                f"AND {column('version')} = {mark}",
                [*values.values(), header.audience_id, header.version],
            )
            if found != 1:
                return False
            column = self._members.column
            delete = f"DELETE FROM {self._members.spelled} WHERE {column('generation')} = {mark}"
            if changed.generation != header.generation:
                execute(delete, [header.generation])
            for bucket in replaced:
                execute(f"{delete} AND {column('bucket')} = {mark}", [header.generation, bucket])
            insert = (
                f"INSERT INTO {self._members.spelled} ({', '.join(map(column, _MEMBER_COLUMNS))}) "
                f"VALUES ({', '.join([mark] * 4)})"
            )
            for part in parts:
                execute(insert, [changed.generation, *part])
            return True

        if not self._audiences.transaction(work):
            raise StateChangedError
        return changed

    def buckets(self, generation: str, after: int = -1) -> Generator[tuple[int, list[StoredPart]]]:
        """Yield the number and the parts of each bucket that has some, in order.

        :param after: of parts with larger numbers.
        """
        column, mark = self._members.column, self._hook.placeholder
        names, order = (", ".join(map(column, some)) for some in (_MEMBER_COLUMNS[1:], _MEMBER_COLUMNS[1:3]))
        where = f"{column('generation')} = {mark} AND {column('part')} > {mark}"
        sql = f"SELECT {names} FROM {self._members.spelled} WHERE {where} ORDER BY {order}"
        with stream_rows(self._hook, sql, [generation, after], size=4) as (_, batches):
            rows = ((int(number), int(part), sealed) for batch in batches for number, part, sealed in batch)
            for number, group in groupby(rows, key=itemgetter(0)):
                yield number, list(group)

    def delete(self, header: Header) -> None:
        """Delete an audience: its next run sends everybody."""
        self._audiences.delete([{"audience_id": header.audience_id}])
        if header.generation:
            self._members.delete([{"generation": header.generation}])
