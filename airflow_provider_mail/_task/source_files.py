"""The files of an import: one, those of a folder, or those that match a pattern, read as one source."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.version_compat import AirflowException, AirflowFailException
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.read_files import FileBatch, FileForm, FileRows, WrongWidth, file_rows

if TYPE_CHECKING:
    from airflow.sdk import ObjectStoragePath

WILDCARDS = "*?["

SIGNS = (
    "size",
    "mtime",
    "created",
    "LastModified",
    "last_modified",
    "updated",
    "etag",
    "ETag",
    "generation",
    "md5Hash",
)
"""What file systems say about a file that changes with its content."""


@dataclass
class SourceFiles:
    """Files that are read one after the other, in the order of their names.

    :param path: a file, a folder with all files below it, or a pattern with ``*``, ``?`` or ``[...]``. Files and
        folders whose name begins with a dot or an underscore do not count: ``_SUCCESS``, checksums, temporary files.
    """

    path: ObjectStoragePath
    form_of: Callable[[str], FileForm]
    _first_rows: list[int] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)
    _read: int = 0
    _columns: list[str] = field(default_factory=list)
    """Those of all files so far."""

    def place_of(self, row_number: int) -> tuple[str | None, int]:
        """Return the file of a row, ``None`` if there is only one file, and its number there."""
        index = bisect_right(self._first_rows, row_number) - 1
        if self.is_one_file or index < 0:
            return None, row_number
        return self._names[index], row_number - self._first_rows[index] + 1

    @contextmanager
    def rows(self) -> Iterator[FileRows]:
        """Open the rows of all files.

        :raises FileNotFoundError: when there is no file; it may come until the next try.
        :raises AirflowException: when a file changes while they are read.
        """
        files = self._list()
        if self.is_one_file:
            ((name, info),) = files.items()
            with self._opened(name, info, may_be_empty=False) as rows:
                yield rows._replace(batches=self._batches_of(name, info, rows, rows.columns))
            return
        with closing(self._readings(files)) as readings:
            first = next(readings, FileRows([], iter(()), None))
            yield FileRows(first.columns, first.batches, None, self._columns)
        if self._list().keys() != files.keys():
            raise self._changed(f"the files of {str(self.path)!r} changed while they were read")

    @cached_property
    def is_one_file(self) -> bool:
        return not (self._has_wildcard or self.path.fs.isdir(self.path.path))

    @cached_property
    def _has_wildcard(self) -> bool:
        return any(mark in self.path.path for mark in WILDCARDS) and not self.path.fs.exists(self.path.path)

    def _readings(self, files: dict[str, dict[str, Any]]) -> Generator[FileRows, None, None]:
        """Yield the rows of all files as those of the first one that has columns."""
        remaining = iter(files.items())

        def batches(columns: Sequence[str], current: Iterator[FileBatch]) -> Iterator[FileBatch]:
            yield from current
            for name, info in remaining:
                with self._opened(name, info, may_be_empty=True) as rows:
                    if rows.columns:
                        yield from self._batches_of(name, info, rows, columns)

        for name, info in remaining:
            with self._opened(name, info, may_be_empty=True) as rows:
                if rows.columns:
                    self._columns += rows.all_columns or rows.columns
                    first = self._batches_of(name, info, rows, rows.columns)
                    yield rows._replace(batches=batches(rows.columns, first))
                    return

    def _batches_of(
        self, name: str, info: dict[str, Any], rows: FileRows, columns: Sequence[str]
    ) -> Iterator[FileBatch]:
        """Yield the rows of a file with the columns of the first one, and verify that it has not changed."""
        self._first_rows.append(self._read + 1)
        self._names.append(self._relative(name))
        positions = self._positions(name, rows.columns, columns)
        for batch in rows.batches:
            self._columns += [name for name in rows.all_columns or rows.columns if name not in self._columns]
            self._read += len(batch)
            lines = getattr(batch, "lines", ())
            yield FileBatch(batch if positions is None else [_placed(row, positions) for row in batch], lines)
        if self._info(name) != _signs(info):
            raise self._changed(f"{self._relative(name)!r} changed while it was read")

    def _positions(self, name: str, own: Sequence[str], columns: Sequence[str]) -> list[int | None] | None:
        """Return where a file has the columns of the first one; ``None`` if at the same places."""
        if list(own) == list(columns):
            return None
        if new := set(own) - set(columns) if self.form_of(name).wanted is None else None:
            raise WarehouseError(f"path: has the columns {', '.join(sorted(new))}, and the first file has not ({name})")
        missing = [column for column in columns if column not in own]
        # Spark leaves out keys without a value.
        if missing and self.form_of(name).file_format != "jsonl":
            raise WarehouseError(f"path: lacks the columns {', '.join(missing)} of the first file ({name})")
        return [own.index(column) if column in own else None for column in columns]

    @contextmanager
    def _opened(self, name: str, info: dict[str, Any], *, may_be_empty: bool) -> Iterator[FileRows]:
        fs = self.path.fs
        form = replace(self.form_of(name), may_be_empty=may_be_empty)
        try:
            file = fs.open(name, "rb")
        except FileNotFoundError:
            # Without the traceback through the file system. The file may arrive later, so the task is retried.
            raise FileNotFoundError(f"path: there is no such file: {name!r}") from None
        with file:
            if self._info(name) != _signs(info):
                raise self._changed(f"{self._relative(name)!r} changed before it was read")
            with file_rows(file, name, form) as rows:
                yield rows

    def _list(self) -> dict[str, dict[str, Any]]:
        """Return what the file system says of each file, by its path, in their order."""
        fs, path = self.path.fs, self.path.path
        fs.invalidate_cache()
        if self.is_one_file:
            if not fs.exists(path):
                raise FileNotFoundError(f"path: there is no such file: {str(self.path)!r}")
            return {path: fs.info(path)}
        found = fs.glob(path, detail=True) if self._has_wildcard else fs.find(path, detail=True)
        files: dict[str, dict[str, Any]] = {}
        for name, info in sorted(found.items()):
            parts = self._relative(name).split("/")
            if "_temporary" in parts:
                raise AirflowException(f"path: a job is still writing below {str(self.path)!r}: there is _temporary")
            if any(part.startswith((".", "_")) for part in parts):
                continue
            if info.get("islink"):
                info = self._linked(name)
            if info["type"] == "file" and info["size"]:
                files[name] = info
        if not files:
            raise FileNotFoundError(f"path: there is no file with content at {str(self.path)!r}")
        return files

    def _linked(self, name: str) -> dict[str, Any]:
        """Return what the file system says of the file of a link: the listing describes the link."""
        try:
            info: dict[str, Any] = self.path.fs.info(name)
        except FileNotFoundError:
            raise FileNotFoundError(f"path: there is no such file: {name!r} is a link") from None
        if info["type"] == "directory" and not self._has_wildcard:
            raise WarehouseError(f"path: has a link to a folder, whose files are not listed ({name})")
        return info

    def _relative(self, name: str) -> str:
        """Return the path of a file below the folder, or below the last folder before a wildcard."""
        root = self.path.path.rstrip("/")
        if self._has_wildcard:
            root = root[: min(root.index(mark) for mark in WILDCARDS if mark in root)].rpartition("/")[0]
        return name.removeprefix(root).lstrip("/")

    def _info(self, name: str) -> list[str]:
        self.path.fs.invalidate_cache(name)
        try:
            return _signs(self.path.fs.info(name))
        except FileNotFoundError:
            return []

    def _changed(self, problem: str) -> AirflowException:
        return AirflowException(
            f"path: {problem}, so people may be missing: another try reads all again. Let the import begin when all is "
            "written"
        )


def _signs(info: dict[str, Any]) -> list[str]:
    return [str(info.get(sign)) for sign in SIGNS]


def _placed(row: Any, positions: Sequence[int | None]) -> Any:
    if isinstance(row, WrongWidth):
        return row
    return tuple(None if place is None else row[place] for place in positions)


def check_form(form: FileForm) -> None:
    """Verify that the marks of a CSV file are single characters.

    :raises AirflowFailException: naming the one that is not.
    """
    if len(form.delimiter) != 1 or form.delimiter in '"\r\n':
        raise AirflowFailException(
            f"file_format.delimiter: {form.delimiter!r} is not one character that can stand between values"
        )
    if form.escape is not None and (len(form.escape) != 1 or form.escape in f'{form.delimiter}"\r\n'):
        raise AirflowFailException(f"file_format.escape: {form.escape!r} is not one character, such as a backslash")
