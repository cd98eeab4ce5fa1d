"""Reads the file of an attachment, on the worker."""

from __future__ import annotations

import base64
from typing import Any

MAX_ATTACHMENT_BYTES = 100_000_000
"""The largest file that is read. The specification has no limit for the service; this one protects the worker."""


def attachment(value: Any) -> Any:
    """Return an attachment as a request takes it.

    :param value: a path or an ``ObjectStoragePath``; anything else is returned unchanged.
    :raises AirflowFailException: when the path is not a file, or the file is empty or too large.
    :raises FileNotFoundError: when it does not exist; it may exist at the next try.
    """
    if not value or not (isinstance(value, str) or hasattr(value, "fs")):
        return value
    from airflow_provider_mail._task.object_storage import storage_path
    from airflow_provider_mail.version_compat import AirflowFailException

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
