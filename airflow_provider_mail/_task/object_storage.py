"""Writes files with `ObjectStoragePath`, so that readers never see an incomplete file."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import ObjectStoragePath

OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "wasb", "wasbs", "oci", "oss"})
"""Protocols of stores in which an object appears only when it is complete, and which cannot rename.

A temporary object has no advantage there, and a store may notify loaders of it.
"""


def storage_path(path: str | ObjectStoragePath, conn_id: str | None, argument: str) -> ObjectStoragePath:
    """Resolve a path and its file system.

    :param conn_id: the connection of a path given as text. The path may contain the connection, too:
        ``s3://aws@bucket/folder``.
    :param argument: the operator's argument, for error messages.
    :raises AirflowFailException: when no installed package knows the path's scheme.
    """
    from airflow.sdk import ObjectStoragePath

    from airflow_provider_mail.version_compat import AirflowFailException

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

    In a file system, it is written to the same folder under a name that begins with a dot, and then renamed.
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
    """Remove a file; return whether it existed."""
    fs = path.fs
    with suppress(FileNotFoundError):
        if fs.exists(path.path):
            fs.rm_file(path.path)
            return True
    return False
