"""Rows that an import set aside, kept on disk until they can be stored where the user wants them."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from airflow_provider_mail.api.contact_rows import Reject

MEMORY_BYTES = 1_000_000


class RejectSpool:
    """Takes rejected rows in, however many they are; beyond a megabyte they wait in a temporary file.

    They cannot be stored at once: the source is still being read, and SQLite has one writer or readers.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES, mode="w+", encoding="utf-8")  # noqa: SIM115
        self._reasons: Counter[tuple[str, str]] = Counter()
        self.count = 0

    def add(self, reject: Reject) -> None:
        """Keep one."""
        record = [reject.row_number, reject.field, reject.reason, [_plain(value) for value in reject.row]]
        self._file.write(json.dumps(record) + "\n")
        # The service's own words may echo a row, so only our reasons are told in logs.
        self._reasons[(reject.field, reject.reason) if reject.field else ("", reject.reason.partition(":")[0])] += 1
        self.count += 1

    def __iter__(self) -> Iterator[Reject]:
        self._file.seek(0)
        for line in self._file:
            row_number, field, reason, row = json.loads(line)
            yield Reject(row_number=row_number, field=field, reason=reason, row=row)

    def summary(self, most: int = 5) -> str:
        """The most frequent reasons with their numbers, without values."""
        told = [f"{' '.join(filter(None, reason))} ({count})" for reason, count in self._reasons.most_common(most)]
        return ", ".join(told) + (", ..." if len(self._reasons) > most else "")

    def write(self, path: str) -> None:
        """Store all as JSON Lines at a path or URL; whatever is there is replaced."""
        from airflow.sdk import ObjectStoragePath

        target = ObjectStoragePath(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            for reject in self:
                record = {
                    "row_number": reject.row_number,
                    "field": reject.field,
                    "reason": reject.reason,
                    "row": list(reject.row),
                }
                # Half a surrogate pair may be what the row was set aside for.
                file.write((json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    try:
        text = str(value)
    except ValueError:  # Python refuses to write whole numbers of thousands of digits, also those in a list
        return f"a value of type {type(value).__name__} with a number of thousands of digits"
    return value if isinstance(value, int) else text
