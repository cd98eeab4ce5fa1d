"""Files in whatever `ObjectStoragePath` reaches, such that nobody ever reads half of one."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import ObjectStoragePath

OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "wasb", "wasbs", "oci", "oss"})
"""Protocols of stores in which an object appears when it is whole and not before, and which cannot rename.

A temporary object would gain nothing there and could do harm: stores tell loaders of each new object.
"""


def storage_path(path: str | ObjectStoragePath, conn_id: str | None, argument: str) -> ObjectStoragePath:
    """The path, with a file system behind it.

    :param conn_id: the connection to reach it with, of a path given as text; may stand in the path too, as in
        ``s3://aws@bucket/folder``.
    :param argument: of the operator, to be named when something is wrong with the path.
    :raises AirflowFailException: when nothing that is installed knows the path's scheme.
    """
    from airflow.sdk import ObjectStoragePath

    from airflow_provider_mail.version_compat import AirflowFailException

    try:
        # On Airflow 3.0 a `conn_id` of None would win over the one in the path.
        found = ObjectStoragePath(path, **({"conn_id": conn_id} if conn_id else {})) if isinstance(path, str) else path
        _ = found.fs
    except (ValueError, ImportError) as error:
        raise AirflowFailException(
            f"{argument}: {str(path)!r}: {error}; install the provider of that storage with its file system, for "
            "instance apache-airflow-providers-amazon[s3fs]"
        ) from error
    return found


def put(path: ObjectStoragePath, content: bytes) -> None:
    """Write a whole file, replacing the one of that name; who reads meanwhile finds the old or the new one.

    In a file system it is written beside its place, under a name that begins with a dot, and moved there.
    """
    fs = path.fs
    if path.protocol in OBJECT_STORES:
        fs.pipe_file(path.path, content)
        return
    folder = path.parent
    fs.makedirs(folder.path, exist_ok=True)
    temporary = (folder / f".{path.name}.{uuid.uuid4().hex}.tmp").path
    try:
        fs.pipe_file(temporary, content)
        fs.mv(temporary, path.path)
    except BaseException:
        with suppress(Exception):
            fs.rm_file(temporary)
        raise


def remove(path: ObjectStoragePath) -> bool:
    """Remove a file; tells whether it was there."""
    fs = path.fs
    with suppress(FileNotFoundError):
        if fs.exists(path.path):
            fs.rm_file(path.path)
            return True
    return False
