"""Where the state of an audience is: in two tables of the user's database, or in files of a folder."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_provider_mail._task.storage import check_tables, put, remove, storage_path, written_whole
from airflow_provider_mail.warehouse.load import load
from airflow_provider_mail.warehouse.read import StoredTable, stream_rows
from airflow_provider_mail.warehouse.table import derived_name
from airflow_provider_mail.warehouse.tables.imports import AUDIENCES, MEMBERS

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

NO_MEMBERS = -1
"""The number of lines of an audience whose last run did not end."""

HEADER_FILE = "audience.json"

StoredPart: TypeAlias = tuple[int, str, int, str, str]
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


class SqlStateStore:
    """The state in two tables of a database.

    :param table: the table of audiences; that of the members has the suffix ``_members``.
    """

    def __init__(self, hook: DbApiHook, table: str, audience_id: str) -> None:
        self._hook = hook
        self._table = table
        self._members_table = derived_name(table, "_members")
        check_tables(hook, {"state_table": table, "state_table with _members": self._members_table})
        self._audience_id = audience_id
        self._audiences = StoredTable(hook, AUDIENCES, table)
        self._members = StoredTable(hook, MEMBERS, self._members_table)
        self.name = f"table {table} of connection {hook.get_conn_id()!r}"
        """The place, for messages."""

    def read(self) -> Header | None:
        """Return the row of the audience; ``None`` if there is none."""
        return next((header for header in self.all() if header.audience_id == self._audience_id), None)

    def all(self) -> list[Header]:
        """Return the rows of all audiences."""
        if not self._audiences.existing_columns():
            return []
        names = [field.name for field in fields(Header)]
        columns = ", ".join(map(self._audiences.column, names))
        rows = self._audiences.select(columns, "1 = 1")
        return [Header(**dict(zip(names, row, strict=True))) for row in rows]

    def create(self, header: Header) -> None:
        """Store the row of an audience, unless there is one."""
        load(self._hook, AUDIENCES, self._table, [tuple(getattr(header, name) for name in AUDIENCES.names)])

    def update(self, header: Header, **values: Any) -> Header:
        """Change the row of an audience.

        :param header: the row as it was read.
        :raises StateChangedError: when another run has changed it.
        """
        values = _changed(header, values)
        condition = {"audience_id": header.audience_id, "version": header.version}
        if not self._audiences.update(condition, values):
            raise StateChangedError
        return replace(header, **values)

    def parts(self, generation: str) -> Iterator[StoredPart]:
        """Yield the parts in their order."""
        columns = ", ".join(map(self._members.column, ("part", "membership", "row_count", "voids", "sealed")))
        condition = f"{self._members.column('generation')} = {self._hook.placeholder}"
        order = self._members.column("part")
        sql = f"SELECT {columns} FROM {self._members.spelled} WHERE {condition} ORDER BY {order}"
        with stream_rows(self._hook, sql, [generation], size=20) as (_, batches):
            yield from chain.from_iterable(batches)

    def write(self, generation: str, parts: Iterable[StoredPart]) -> None:
        """Add parts; all or none."""
        load(self._hook, MEMBERS, self._members_table, ((generation, *part) for part in parts))

    def drop(self, generation: str) -> None:
        """Delete all parts."""
        self._members.delete([{"generation": generation}])

    def delete(self, header: Header) -> None:
        """Delete an audience: its next run sends everybody."""
        self._audiences.delete([{"audience_id": header.audience_id}])
        if header.generation:
            self.drop(header.generation)


class FileStateStore:
    """The state in a folder, with the methods of `SqlStateStore`, for those who have no database beside the source.

    ``audience.json`` is the row of the audience. Its members are in files that are never changed, each with the parts
    of one step of a run. A file that is being written has no name that is read.

    Two runs that begin at the same moment are kept apart only by what the storage shows them: let the task have
    ``max_active_tis_per_dag=1``.

    :param path: the folder of all audiences, as a path or URL of ``ObjectStoragePath``.
    """

    def __init__(self, path: str, audience_id: str) -> None:
        self._folder = storage_path(path, None, "state_path") / audience_id
        self._audience_id = audience_id
        self.name = f"folder {self._folder}"

    def read(self) -> Header | None:
        path = self._folder / HEADER_FILE
        try:
            content = path.fs.cat_file(path.path)
        except FileNotFoundError:
            return None
        try:
            return Header(**json.loads(content))
        except (ValueError, TypeError):
            # Everybody is sent: it has no generation.
            return Header(audience_id=self._audience_id, audience="")

    def create(self, header: Header) -> None:
        if self.read() is None:
            self._put(header)

    def update(self, header: Header, **values: Any) -> Header:
        stored = self.read()
        if stored is None or stored.version != header.version:
            raise StateChangedError
        values = _changed(header, values)
        self._put(replace(stored, **values))
        return replace(header, **values)

    def parts(self, generation: str) -> Iterator[StoredPart]:
        for path in self._files(generation):
            with path.open("rb") as file:
                # Not an iteration over the file, which Airflow 3.0 wraps in an object without one.
                while line := file.readline():
                    yield tuple(json.loads(line))

    def write(self, generation: str, parts: Iterable[StoredPart]) -> None:
        parts = iter(parts)
        if (first := next(parts, None)) is None:
            return
        # The names sort by the number of their first part.
        name = f"{generation}-{first[0]:010}-{uuid.uuid4().hex[:8]}.jsonl"
        # An object store keeps what was written when its file is closed, even after an error.
        with written_whole(self._folder / name) as target, self._folder.fs.open(target, "wb") as file:
            for part in chain([first], parts):
                file.write(json.dumps(part).encode() + b"\n")

    def drop(self, generation: str) -> None:
        for path in self._files(generation):
            remove(path)

    def delete(self, header: Header) -> None:
        remove(self._folder / HEADER_FILE)
        self.drop(header.generation)

    def _files(self, generation: str) -> list[Any]:
        return [self._folder / name for name in _names_in(self._folder) if name.startswith(f"{generation}-")]

    def _put(self, header: Header) -> None:
        put(self._folder / HEADER_FILE, json.dumps(asdict(header), indent=1).encode())


StateStore: TypeAlias = SqlStateStore | FileStateStore


def audiences_in(path: str) -> list[Header]:
    """Return the rows of all audiences in a folder."""
    folder = storage_path(path, None, "state_path")
    headers = (FileStateStore(path, name).read() for name in _names_in(folder))
    return [header for header in headers if header is not None]


def _changed(header: Header, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a changed row, with those that every change has."""
    return {**values, "version": header.version + 1, "updated_at": int(time.time())}


def _names_in(folder: Any) -> list[str]:
    """Return the names in a folder, in order; none if it does not exist."""
    if not folder.fs.exists(folder.path):
        return []
    return sorted(str(path).rstrip("/").rpartition("/")[2] for path in folder.fs.ls(folder.path, detail=False))
