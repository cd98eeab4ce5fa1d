"""Write the rows of a load as files in a folder of their own, then the manifest: without it, the load is invalid."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._task.object_storage import put, remove
from airflow_provider_mail.warehouse.coverage import Coverage, MarkGone
from airflow_provider_mail.warehouse.files import encode_files
from airflow_provider_mail.warehouse.manifest import MANIFEST, DataFile, Manifest, table_key
from airflow_provider_mail.warehouse.rows import OnUnstorable, Source
from airflow_provider_mail.warehouse.table import Table
from airflow_provider_mail.warehouse.task_run import TaskRun

if TYPE_CHECKING:
    from airflow.sdk import ObjectStoragePath

ROWS_PER_FILE = 20_000
"""Rows per file, which are in memory at the same time."""


def write_load(
    parent: ObjectStoragePath,
    table: Table,
    rows: Iterable[tuple[Any, ...]],
    *,
    file_format: str,
    rows_per_file: int,
    describe: Callable[[], dict[str, Any]],
    on_unstorable: OnUnstorable | None = None,
) -> tuple[ObjectStoragePath, Manifest]:
    """Write the files of a load, then its manifest; return the folder and the manifest.

    When anything fails, the files are removed. The files of a killed process stay, without a manifest.

    :param parent: the folder in which the load's folder is created.
    :param rows: the rows of the table, each key once.
    :param file_format: ``parquet`` or ``jsonl``.
    :param describe: returns the further fields of the manifest; called when all rows have been read.
    :param on_unstorable: receives rows that cannot be stored. The others are written, and merging them deletes nothing
        and marks nothing as gone. Default: the first such row is an error.
    """
    # Each try has a name of its own: a worker that is believed dead may still write.
    load_id = f"{datetime.now(UTC):%Y%m%dt%H%M%S}_{uuid.uuid4().hex[:8]}"
    folder = parent / load_id
    stamp = TaskRun.current().values(table, datetime.now(UTC))
    files: list[DataFile] = []
    written: list[ObjectStoragePath] = []
    try:
        source = Source(rows, on_unstorable)
        for count, content in encode_files(table, source, file_format, rows_per_file=rows_per_file, written=stamp):
            file = folder / f"part-{len(files):05}.{file_format}"
            written.append(file)
            put(file, content)
            files.append(DataFile(file_url(file), count, len(content), hashlib.sha256(content).hexdigest()))
        described = describe()
        if source.rejected:  # A rejected row may be in the table.
            described |= {"replace_where": None, "mark_gone": ()}
        manifest = Manifest(
            load_id=load_id,
            table_name=table_key(table),
            file_format=file_format,
            files=tuple(files),
            rejected=source.rejected,
            **described,
        )
        put(folder / MANIFEST, manifest.to_json())
    except BaseException:
        for file in written:
            with suppress(Exception):
                remove(file)
        raise
    return folder, manifest


def conditions(covers: Coverage | None, mark_gone: MarkGone | None, replace_where: Any | None = None) -> dict[str, Any]:
    """Return the fields of a manifest that say for which parts of the table the load is complete.

    :param covers: the parts of the table for which the load is complete.
    :param mark_gone: the windows whose other rows are gone; all rows must have been read.
    :param replace_where: the rows that are deleted unless the load has them. Default: none.
    """
    return {
        "replace_where": replace_where,
        "mark_gone": tuple(mark_gone.windows()) if mark_gone else (),
        "covers": covers.parts if covers and covers.parts else None,
        "covers_whole": covers.whole if covers and covers.parts else None,
    }


def file_url(path: ObjectStoragePath) -> str:
    """Return the URL of a file, without a connection."""
    if path.protocol in ("", "file", "local"):
        return f"file://{path.path}"
    bucket = path.bucket.rpartition("@")[2]  # On Airflow 3.0, the bucket contains the connection id.
    return f"{path.protocol}://{bucket}/{path.key.lstrip('/')}"
