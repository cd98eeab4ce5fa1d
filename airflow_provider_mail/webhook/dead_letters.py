"""Reads dead letters again, after a fix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_mail.warehouse.read import stream_rows
from airflow_provider_mail.warehouse.stored import StoredTable
from airflow_provider_mail.warehouse.tables.events import DEAD_LETTERS
from airflow_provider_mail.webhook.conflicts import CONFLICT
from airflow_provider_mail.webhook.drain import Drained, EventTables
from airflow_provider_mail.webhook.events import DeadLetter, Origin, Row, general_reason, read_letter

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

_COLUMNS = ("letter_id", "mail_conn_id", "received_at", "push_id", "push_index", "raw", "reason")
_PAGE = 50
"""Letters in memory at once: each may be a whole push."""


@dataclass
class Replayed:
    """What a replay did.

    :param letters: dead letters that could be read; they have been deleted.
    :param left: those that still cannot be read.
    :param drained: what became of the events in the former.
    """

    letters: int = 0
    left: int = 0
    drained: Drained = field(default_factory=Drained)


def replay(hook: DbApiHook, table: str, dead_letters_table: str) -> Replayed:
    """Read all dead letters again: store the events that can be read now, then delete their letters.

    Can be repeated at any time. A whole push of which only some events can be read is replaced by letters for the
    others.

    :param table: name of the table of events.
    :raises WarehouseError: a table cannot be read or loaded.
    """
    tables, stored = EventTables(hook, table, dead_letters_table), StoredTable(hook, DEAD_LETTERS, dead_letters_table)
    result, last = Replayed(), ""
    while page := stored.page(_COLUMNS, "letter_id", last, _PAGE):
        reread = _Page(page)
        result.drained += tables.store(reread.rows(), reread.parts)
        stored.delete(reread.read)
        result.letters += len(reread.read)
        last = page[-1][0]
        # Parts with larger keys are counted on a later page.
        result.left += len(page) - len(reread.read) + sum(part.letter_id <= last for part in reread.parts)
    return result


def count_by_reason(hook: DbApiHook, table: str) -> Counter[str]:
    """Return the number of dead letters by reason, without the names of fields; none where there is no table.

    :param table: name of the table of dead letters.
    :raises WarehouseError: the table cannot be read.
    """
    stored, counts = StoredTable(hook, DEAD_LETTERS, table), Counter[str]()
    if stored.existing_columns():
        query = f"SELECT {stored.column('reason')}, COUNT(*) FROM {stored.spelled} GROUP BY {stored.column('reason')}"
        with stream_rows(hook, query, []) as (_, batches):
            for batch in batches:
                for reason, count in batch:
                    counts[general_reason(str(reason))] += int(count)
    return counts


class _Page:
    """Some dead letters, which are read while their rows are stored."""

    def __init__(self, letters: Sequence[Row]) -> None:
        self._letters = letters
        self.read: list[dict[str, str]] = []
        """The keys of those that could be read."""
        self.parts: list[DeadLetter] = []
        """The events of those that could not."""

    def rows(self) -> Iterator[Row]:
        for letter_id, conn_id, received_at, push_id, index, raw, reason in self._letters:
            if reason == CONFLICT:  # it could be read, and would be left out again
                continue
            unread: list[DeadLetter] = []
            yield from read_letter(raw, index, Origin(conn_id, received_at, push_id), unread.append)
            if not unread or unread[0].index != index:
                self.read.append({"mail_conn_id": conn_id, "letter_id": letter_id})
                self.parts += unread
