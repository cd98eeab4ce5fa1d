"""Where the data of tasks is: databases, files in any storage, which readers never see incomplete, temporary files."""

from __future__ import annotations

import base64
import pickle
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.sdk import ObjectStoragePath

    from airflow_provider_mail.warehouse.rows import OnUnstorable
    from airflow_provider_mail.warehouse.table import Table, TableName, TaskRun

T = TypeVar("T")

OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "wasb", "wasbs", "oci", "oss"})
"""Protocols of stores in which an object appears only when it is complete, and which cannot rename.

A temporary object has no advantage there, and a store may notify loaders of it.
"""

MAX_ATTACHMENT_BYTES = 100_000_000
"""The largest file that is read. The specification has no limit for the service; this one protects the worker."""

COMPLETE = "_SUCCESS"
"""The name of the empty file that is written last into the folder of a load, as Hadoop and Spark do."""


_TIME, _MICROSECOND = "%Y%m%dt%H%M%S%f", timedelta(microseconds=1)
"""The time in the name of a load's folder."""

MAX_LOADS = 20
"""How many of the newest loads in a folder are looked at for the last one of a list."""

MEMORY_BYTES = 1_000_000
"""Bytes of a `Spool` that stay in memory."""


class Spool(Generic[T]):
    """Keeps objects in an unnamed temporary file until all have been read, so that memory use stays constant.

    The objects are pickled, which keeps types such as decimals: the file is this process' own.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115
        self.count = 0

    def add(self, item: T) -> None:
        pickle.dump(item, self._file, pickle.HIGHEST_PROTOCOL)
        self.count += 1

    def __iter__(self) -> Iterator[T]:
        self._file.seek(0)
        for _ in range(self.count):
            yield pickle.load(self._file)

    def close(self) -> None:
        self._file.close()


class SqlTask:
    """Mixin for a task that uses a database."""

    sql_conn_id: str

    @cached_property
    def sql_hook(self) -> DbApiHook:
        return sql_hook(self.sql_conn_id)


def sql_hook(sql_conn_id: str) -> DbApiHook:
    """Return the ``DbApiHook`` of a connection to any database.

    :raises AirflowFailException: when its type has no such hook, or the provider of the hook is not installed.
    """
    from airflow_provider_mail.warehouse.database import hook_of
    from airflow_provider_mail.warehouse.errors import WarehouseError

    try:
        return hook_of(sql_conn_id)
    except WarehouseError as error:
        raise AirflowFailException(f"sql_conn_id: {error}") from None


def current_task_run() -> TaskRun:
    """Return the try of the task that runs; outside of a task, an empty one."""
    from airflow.sdk import get_current_context

    from airflow_provider_mail.warehouse.table import TaskRun

    try:
        ti = get_current_context()["ti"]
    except RuntimeError:
        return TaskRun()
    map_index = -1 if ti.map_index is None else ti.map_index
    return TaskRun(ti.run_id, ti.dag_id, ti.task_id, map_index, ti.try_number)


def check_tables(hook: DbApiHook, names: Mapping[str, str | None]) -> dict[str, TableName]:
    """Check a database and the tables of a task, which must all be different, before anything is sent.

    :raises AirflowFailException: naming the argument that is wrong, or the connection.
    """
    from airflow_provider_mail.warehouse.database import dialect_of
    from airflow_provider_mail.warehouse.errors import WarehouseError
    from airflow_provider_mail.warehouse.table import TableName

    parsed: dict[str, TableName] = {}
    try:
        dialect_of(hook)
    except WarehouseError as error:
        raise AirflowFailException(str(error)) from None
    for argument, name in names.items():
        if name is None:
            continue
        try:
            table = TableName.parse(name)
        except WarehouseError as error:
            raise AirflowFailException(f"{argument}: {error}") from None
        if same := next((other for other in parsed if parsed[other] == table), None):
            raise AirflowFailException(f"{argument}: must be another table than `{same}`")
        parsed[argument] = table
    return parsed


def storage_path(path: str | ObjectStoragePath, conn_id: str | None, argument: str) -> ObjectStoragePath:
    """Resolve a path and its file system.

    :param conn_id: the connection of a path given as text. The path may contain the connection, too:
        ``s3://aws@bucket/folder``.
    :raises AirflowFailException: when no installed package knows the path's scheme.
    """
    from airflow.sdk import ObjectStoragePath

    try:
        # On Airflow 3.0 a `conn_id` of None overrides the one in the path.
        options = {"conn_id": conn_id} if conn_id else {}
        resolved = ObjectStoragePath(path, **options) if isinstance(path, str) else path
        _ = resolved.fs
    except (ValueError, ImportError) as error:
        raise AirflowFailException(
            f"{argument}: install the provider of that storage with its file system, for instance "
            f"apache-airflow-providers-amazon[s3fs]: {error}: {str(path)!r}"
        ) from error
    return resolved


def put(path: ObjectStoragePath, content: bytes) -> None:
    """Write a file, or replace it atomically: a concurrent reader sees the old or the new one.

    In a file system, it first has a name in the same folder that begins with a dot; after an error it is removed.
    """
    fs = path.fs
    if path.protocol in OBJECT_STORES:
        fs.pipe_file(path.path, content)
        return
    fs.makedirs(path.parent.path, exist_ok=True)
    target = (path.parent / f".{path.name}.{uuid.uuid4().hex}.tmp").path
    try:
        fs.pipe_file(target, content)
        fs.mv(target, path.path)
    except BaseException:
        with suppress(Exception):
            fs.rm_file(target)
        raise


def remove(path: ObjectStoragePath) -> bool:
    """Remove a file; return whether it existed."""
    fs = path.fs
    with suppress(FileNotFoundError):
        if fs.exists(path.path):
            fs.rm_file(path.path)
            return True
    return False


def attachment(value: Any) -> Any:
    """Return an attachment as a request takes it.

    :raises AirflowFailException: when the path is not a file, or the file is empty or too large.
    :raises FileNotFoundError: when it does not exist; it may exist at the next try.
    """
    if not value or not (isinstance(value, str) or hasattr(value, "fs")):
        return value
    path = storage_path(value, None, "attachment")
    quoted_path = f"{str(path)!r}"
    try:
        size = path.fs.info(path.path)["size"]
    except FileNotFoundError:
        raise FileNotFoundError(f"attachment: the file does not exist on this worker: {quoted_path}") from None
    if path.fs.isdir(path.path):
        raise AirflowFailException(f"attachment: name one file, this is a folder: {quoted_path}")
    if not size:
        raise AirflowFailException(f"attachment: the file is empty: {quoted_path}")
    if size > MAX_ATTACHMENT_BYTES:
        raise AirflowFailException(
            f"attachment: the file has {size} bytes, at most {MAX_ATTACHMENT_BYTES} are read. Link to it in content "
            f"instead: {quoted_path}"
        )
    with path.fs.open(path.path, "rb") as file:
        return {"file_name": path.name, "file_data": base64.b64encode(file.read()).decode()}


@dataclass(frozen=True)
class WrittenLoad:
    folder: ObjectStoragePath
    rows: int
    files: int
    size: int


def write_load(
    parent: ObjectStoragePath,
    table: Table,
    rows: Iterable[tuple[Any, ...]],
    *,
    file_format: str,
    rows_per_file: int,
    on_unstorable: OnUnstorable | None = None,
) -> WrittenLoad:
    """Write the files of a load into a new folder, then an empty file `COMPLETE` beside them.

    When anything fails, the files are removed. The files of a killed process stay, without that file.

    :param on_unstorable: receives rows that cannot be stored; the others are written. Default: the first such row is an
        error.
    """
    from airflow_provider_mail.warehouse.files import encode_files
    from airflow_provider_mail.warehouse.rows import Source

    # Each try has a name of its own: a worker that is believed dead may still write.
    folder = parent / f"{_next_time(parent):{_TIME}}_{uuid.uuid4().hex[:8]}"
    stamp = current_task_run().values(table, datetime.now(UTC))
    sizes: list[int] = []
    written: list[ObjectStoragePath] = []
    stored = 0
    try:
        source = Source(rows, on_unstorable)
        for count, content in encode_files(table, source, file_format, rows_per_file=rows_per_file, written=stamp):
            file = folder / f"part-{len(written):05}.{file_format}"
            written.append(file)
            put(file, content)
            sizes.append(len(content))
            stored += count
        put(folder / COMPLETE, b"")
    except BaseException:
        for file in written:
            with suppress(Exception):
                remove(file)
        raise
    return WrittenLoad(folder, stored, len(sizes), sum(sizes))


def _next_time(parent: ObjectStoragePath) -> datetime:
    """The present time, or one after that of the newest load in a folder: clocks of workers differ."""
    now = datetime.now(UTC)
    for path in parent.iterdir() if parent.is_dir() else ():
        with suppress(ValueError):
            now = max(now, datetime.strptime(path.name.partition("_")[0], _TIME).replace(tzinfo=UTC) + _MICROSECOND)
    return now


def last_load(parent: ObjectStoragePath, table: Table, where: Mapping[str, str]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of the newest complete load in a folder that has rows with these values, file by file.

    :param where: values by column; all rows of a load have them, or none.
    """
    from airflow_provider_mail.warehouse.files import FORMATS, decode

    if not parent.is_dir():
        return
    folders = sorted((path for path in parent.iterdir() if (path / COMPLETE).exists()), key=lambda path: path.name)
    for folder in reversed(folders[-MAX_LOADS:]):
        found = False
        for file in sorted(folder.iterdir(), key=lambda path: path.name):
            if (file_format := file.suffix[1:]) not in FORMATS:
                continue
            rows = decode(table, file.read_bytes(), file_format)
            if not found and rows and any(rows[0][table.names.index(name)] != value for name, value in where.items()):
                break  # of another list or account
            found = True
            yield rows
        if found:
            return
