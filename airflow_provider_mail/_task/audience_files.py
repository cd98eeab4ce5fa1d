"""The state of an audience in files of a folder, for those who have no database beside the source.

``audience.json`` is the row of the audience. Its members are in files that are never changed, each with the parts of
one step of a run. A file that is being written has no name that is read.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._task.audience_state import Header, StateChangedError
from airflow_provider_mail._task.files import OBJECT_STORES, put, remove, storage_path

if TYPE_CHECKING:
    from airflow_provider_mail._task.audience_state import StoredPart

_HEADER = "audience.json"


class FileStateStore:
    """The state in a folder.

    Two runs that begin at the same moment are kept apart only by what the storage shows them: let the task have
    ``max_active_tis_per_dag=1``.

    :param path: the folder of all audiences, as a path or URL of ``ObjectStoragePath``.
    """

    def __init__(self, path: str, audience_id: str) -> None:
        self._folder = storage_path(path, None, "state_path") / audience_id
        self._audience_id = audience_id
        self.name = f"folder {self._folder}"

    def read(self) -> Header | None:
        path = self._folder / _HEADER
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
        values |= {"version": header.version + 1, "updated_at": int(time.time())}
        self._put(replace(stored, **values))
        return replace(header, **values)

    def parts(self, generation: str) -> Iterator[StoredPart]:
        for path in self._files(generation):
            with path.open("rb") as file:
                # Not an iteration over the file, which Airflow 3.0 wraps in an object without one.
                while line := file.readline():
                    yield tuple(json.loads(line))

    def write(self, generation: str, parts: Iterable[StoredPart]) -> None:
        head = list(islice(parts := iter(parts), 1))
        if not head:
            return
        # The names sort by the number of their first part.
        name = f"{generation}-{head[0][0]:010}-{uuid.uuid4().hex[:8]}.jsonl"
        target, folder = self._folder / name, self._folder
        folder.fs.makedirs(folder.path, exist_ok=True)
        atomic = folder.protocol in OBJECT_STORES
        path = target if atomic else folder / f".{name}"
        with path.open("wb") as file:
            for part in chain(head, parts):
                file.write(json.dumps(part).encode() + b"\n")
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
