"""The state of an audience in files of a folder, for those who have no database beside the source.

``audience.json`` is the row of the audience. Members are in files that are never changed: of several with the same
person, that in the latest file counts. A file that is being written has no name that is read.
"""

from __future__ import annotations

import gzip
import json
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

from airflow_provider_mail._task.audience_index import GONE, LEAVING, LEFT, MEMBER, AudienceIndex
from airflow_provider_mail._task.audience_state import DamagedStateError, Header, StateChangedError
from airflow_provider_mail._task.files import OBJECT_STORES, put, remove, storage_path

if TYPE_CHECKING:
    from airflow_provider_mail._task.audience_state import Member

_HEADER = "audience.json"
_BATCH_ROWS = 5000


class FileStateStore:
    """The state in a folder.

    Two runs that begin at the same moment are kept apart only by what the storage shows them: let the task have
    ``max_active_tis_per_dag=1``.

    :param path: the folder of all audiences, as a path or URL of ``ObjectStoragePath``.
    """

    distinct = False

    def __init__(self, path: str, audience_id: str) -> None:
        self._folder = storage_path(path, None, "state_path") / audience_id
        self._audience_id = audience_id
        self.name = f"folder {self._folder}"
        self._version = self._files_written = 0

    def read(self) -> Header | None:
        path = self._folder / _HEADER
        try:
            content = path.fs.cat_file(path.path)
        except FileNotFoundError:
            return None
        try:
            header = Header(**json.loads(content))
        except (ValueError, TypeError):
            # Everybody is sent: it has no generation.
            header = Header(audience_id=self._audience_id, audience="")
        self._version = header.version
        return header

    def create(self, header: Header) -> None:
        if self.read() is None:
            self._put(header)

    def update(self, header: Header, **values: Any) -> Header:
        stored = self.read()
        if stored is None or stored.version != header.version:
            raise StateChangedError
        values |= {"version": header.version + 1, "updated_at": int(time.time())}
        self._put(replace(stored, **values))
        self._version = header.version + 1
        return replace(header, **values)

    def members(self, generation: str) -> Iterator[Sequence[Member]]:
        for path in self._files(generation):
            try:
                with path.open("rb") as file, gzip.open(file, "rt", encoding="ascii") as lines:
                    while batch := [_member(*json.loads(line)) for line in islice(lines, _BATCH_ROWS)]:
                        yield batch
            except (gzip.BadGzipFile, zlib.error, EOFError, ValueError, TypeError) as error:
                raise DamagedStateError(f"file {path.name}: {type(error).__name__}") from None

    def counts(self, generation: str) -> dict[str, int]:
        index = AudienceIndex()
        try:
            index.load(self.members(generation), distinct=False)
            counts = {kind: index.count(kind) for kind in (MEMBER, LEAVING, LEFT)}
            return {**counts, GONE: index.stored - sum(counts.values())}
        finally:
            index.close()

    def write(self, generation: str, members: Iterable[Member]) -> None:
        # The names sort by the order of writing, whatever the clocks of workers say: a later run has a higher version.
        self._files_written += 1
        order = f"{self._version:010}-{self._files_written:06}"
        name = f"{generation}-{order}-{uuid.uuid4().hex[:8]}.jsonl.gz"
        target, folder = self._folder / name, self._folder
        folder.fs.makedirs(folder.path, exist_ok=True)
        atomic = folder.protocol in OBJECT_STORES
        path = target if atomic else folder / f".{name}"
        with path.open("wb") as file:
            _write(file, members)
        if not atomic:
            folder.fs.mv(path.path, target.path)

    def drop(self, generation: str) -> None:
        for path in self._files(generation):
            remove(path)

    def delete(self, header: Header) -> None:
        """Delete an audience: its next run sends everybody."""
        remove(self._folder / _HEADER)
        self.drop(header.generation)

    def _files(self, generation: str) -> list[Any]:
        folder = self._folder
        if not folder.fs.exists(folder.path):
            return []
        names = (str(name).rpartition("/")[2] for name in folder.fs.ls(folder.path, detail=False))
        return [folder / name for name in sorted(names) if name.startswith(f"{generation}-")]

    def _put(self, header: Header) -> None:
        put(self._folder / _HEADER, json.dumps(asdict(header), indent=1).encode())


def audiences_in(path: str) -> list[Header]:
    """Return the rows of all audiences in a folder."""
    folder = storage_path(path, None, "state_path")
    if not folder.fs.exists(folder.path):
        return []
    names = [str(name).rstrip("/").rpartition("/")[2] for name in folder.fs.ls(folder.path, detail=False)]
    headers = (FileStateStore(path, name).read() for name in sorted(names))
    return [header for header in headers if header is not None]


def _member(person: str, content: str, sealed: str, membership: str) -> Member:
    return person, content, sealed, membership


def _write(file: IO[bytes], members: Iterable[Member]) -> None:
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1, mtime=0) as packed:
        for member in members:
            packed.write(json.dumps(member).encode() + b"\n")
