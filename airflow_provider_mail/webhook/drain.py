"""The drain: moves pushes from the inbox into the table of events, in batches of bounded memory.

A batch is loaded before its pushes are marked as drained, and the rows of the tables are never updated. So after a
crash one batch is loaded again, which changes nothing, and several drains may run at once.

After a fix, `replay` reads the dead letters again.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.api._core.pacing import infrequent_gc
from airflow_provider_mail.api.events import EventCode
from airflow_provider_mail.warehouse.database import (
    LoadRequest,
    LoadResult,
    Source,
    StoredTable,
    TableName,
    load,
    stream_rows,
)
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.request import OneOf
from airflow_provider_mail.warehouse.rows import batched, decoded, json_text
from airflow_provider_mail.warehouse.table import Table, TaskRun
from airflow_provider_mail.warehouse.tables.events import DEAD_LETTERS, EVENTS
from airflow_provider_mail.webhook.events import (
    DeadLetter,
    Origin,
    Reason,
    Row,
    UnreadableError,
    read_event,
    read_push,
)

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.webhook.inbox import Inbox, StoredPush

BATCH_BYTES = 4 * 2**20
"""Bytes of pushes in a batch, which bound its memory; two batches are in memory at once."""

OTHER = "other"
"""What events with codes that the specification does not have are counted as: a pushed code may be any text."""

_CODES = frozenset(EventCode)


class UnreadableEventError(WarehouseError):
    """An event cannot be read, and dead letters are not wanted."""


@dataclass
class Drained:
    """What a drain did.

    :param events: those that could be read and stored, or are duplicates.
    :param stored: those that were new, by code; ``other`` for codes that the specification does not have.
    """

    pushes: int = 0
    events: int = 0
    stored: Counter[str] = field(default_factory=Counter)
    reasons: Counter[Reason] = field(default_factory=Counter)

    @property
    def duplicates(self) -> int:
        return self.events - self.stored.total()

    @property
    def conflicts(self) -> int:
        """New dead letters of events that have the identity of a stored one, and other fields."""
        return self.reasons[Reason.CONFLICT]

    @property
    def dead_letters(self) -> int:
        """New dead letters, without conflicts."""
        return self.reasons.total() - self.conflicts


@dataclass(frozen=True)
class EventTables:
    hook: DbApiHook
    events: str
    dead_letters: str
    task_run: TaskRun = field(default_factory=TaskRun)

    def create(self) -> None:
        """Create the tables, or add columns of a later version."""
        self._load(EVENTS, self.events, Source(()))
        self.store_letters(())

    def _load(self, table: Table, name: str, source: Source) -> LoadResult:
        return load(self.hook, LoadRequest(table, TableName.parse(name), source, task_run=self.task_run))

    def store(self, rows: Sequence[Row], letters: list[DeadLetter], drained: Drained) -> None:
        """Store events, then dead letters. What is stored already stays as it is.

        :param letters: receives the events that have the identity of a stored one, and other fields.
        """
        loaded = self._load(EVENTS, self.events, Source(iter(rows)))
        drained.events += loaded.inserted + loaded.unchanged
        for code, count in loaded.inserted_by.items():
            drained.stored[code if code in _CODES else OTHER] += count
        if loaded.unchanged:
            letters += _conflicts(StoredTable(self.hook, EVENTS, self.events), rows, loaded.existing)
        if letters:
            drained.reasons += self.store_letters(letters)

    def store_letters(self, letters: Iterable[DeadLetter]) -> Counter[Reason]:
        """Store dead letters; return the number of new ones by reason."""
        loaded = self._load(DEAD_LETTERS, self.dead_letters, Source(letter.row() for letter in letters))
        return Counter({Reason(str(reason)): count for reason, count in loaded.inserted_by.items()})


def drain(
    inbox: Inbox,
    tables: EventTables,
    *,
    batch_size: int,
    max_pushes: int | None = None,
    dead_letters: bool = True,
    on_batch: Callable[[Drained], object] | None = None,
) -> Drained:
    """Move pushes from the inbox into the tables until none is left.

    :param batch_size: the largest number of pushes in one transaction; at most 4 MiB of them, too.
    :param dead_letters: whether what cannot be read becomes a dead letter; otherwise it is an error.
    :raises UnreadableEventError: an event cannot be read; its batch stays in the inbox.
    :raises WarehouseError: the tables cannot be loaded; the batch stays in the inbox.
    """
    total, taken, last = Drained(), 0, -1
    with infrequent_gc(), ExitStack() as stack:
        # Where taken pushes are locked, the next ones are taken and read while the database stores these.
        unused = deque(stack.enter_context(inbox.connection()) for _ in range(2 if inbox.sql.skip_locked else 1))
        reader = stack.enter_context(ThreadPoolExecutor(1, "mail-drain"))
        batches = deque[_Batch]()
        while True:
            while unused and (max_pushes is None or taken < max_pushes):
                size = batch_size if max_pushes is None else min(batch_size, max_pushes - taken)
                pushes = inbox.take(unused[0], max_pushes=size, max_bytes=BATCH_BYTES, after=last)
                if not pushes and last >= 0:  # an older push may have been stored later, or left by another drain
                    pushes = inbox.take(unused[0], max_pushes=size, max_bytes=BATCH_BYTES)
                if not pushes:
                    break
                taken, last = taken + len(pushes), pushes[-1].id
                batches.append(_Batch(unused.popleft(), pushes, reader.submit(_read, pushes, dead_letters)))
            if not batches:
                if max_pushes is None or taken < max_pushes:
                    inbox.check_counter(unused[0])
                return total
            batch = batches.popleft()
            rows, letters = batch.events.result()
            tables.store(rows, letters, total)
            inbox.finish(batch.connection, [push.id for push in batch.pushes], datetime.now(UTC))
            total.pushes += len(batch.pushes)
            unused.append(batch.connection)
            if on_batch:
                on_batch(total)


@dataclass(frozen=True)
class _Batch:
    """Pushes that were taken by a connection, and their events, which a thread reads."""

    connection: Any
    pushes: Sequence[StoredPush]
    events: Future[tuple[list[Row], list[DeadLetter]]]


def _read(pushes: Sequence[StoredPush], dead_letters: bool) -> tuple[list[Row], list[DeadLetter]]:
    letters: list[DeadLetter] = []
    reject = letters.append if dead_letters else _fail
    rows = [
        row
        for push in pushes
        for row in read_push(push.body, Origin(push.mail_conn_id, push.received_at, push.id), reject)
    ]
    return rows, letters


def _fail(letter: DeadLetter) -> None:
    position = f"push {letter.origin.push_id}, event {letter.index}"
    raise UnreadableEventError(f"{position}: {letter.reason.value}; it stays in the inbox")


_COLUMNS = ("letter_id", "mail_conn_id", "received_at", "push_id", "push_index", "raw")
_PAGE = 500
"""Letters in memory at once."""

_MAX_COUNTED = 1_000_000


def replay(hook: DbApiHook, table: str, dead_letters_table: str) -> dict[str, int]:
    """Do what `replay_dead_letters` says; return the counts."""
    tables, letters = EventTables(hook, table, dead_letters_table), StoredTable(hook, DEAD_LETTERS, dead_letters_table)
    drained, deleted, last = Drained(), 0, ""
    while page := letters.page(_COLUMNS, "letter_id", last, _PAGE):
        rows: list[Row] = []
        read: set[str] = set()
        conflicts: list[DeadLetter] = []
        for letter_id, conn_id, received_at, push_id, index, raw in page:
            with suppress(UnreadableError):
                rows.append(read_event(raw, Origin(conn_id, received_at, push_id), index))
                read.add(letter_id)
        tables.store(rows, conflicts, drained)
        read -= {letter.letter_id for letter in conflicts}
        deleted += letters.delete([{"letter_id": id} for id in read])
        last = page[-1][0]
    return {
        "read": deleted,
        "stored": drained.stored.total(),
        "left": count_by_reason(hook, dead_letters_table).total(),
    }


def count_by_reason(hook: DbApiHook, table: str) -> Counter[Reason]:
    """Return the number of dead letters by reason, of the first million; none where there is no table."""
    stored, counts = StoredTable(hook, DEAD_LETTERS, table), Counter[Reason]()
    if stored.existing_columns():
        reason = stored.column("reason")
        letters = f"SELECT {reason} FROM {stored.spelled} LIMIT {_MAX_COUNTED}"
        with stream_rows(hook, f"SELECT {reason}, COUNT(*) FROM ({letters}) AS letters GROUP BY {reason}", []) as (
            _,
            batches,
        ):
            for batch in batches:
                for text, count in batch:
                    counts[Reason(str(text))] += int(count)
    return counts


_MAX_IDS = 800


_RAW = EVENTS.names.index("raw")


def _conflicts(stored: StoredTable, rows: Sequence[Row], existing: Collection[Row]) -> Iterator[DeadLetter]:
    """Yield a dead letter for each event that was not stored because one with its identity has other fields.

    :param existing: the keys of rows that the table had before. The identity of an event is its account and digest.
    """
    first: dict[Row, Row] = {}
    candidates = [row for row in rows if row[:2] in existing or first.setdefault(row[:2], row)[_RAW] != row[_RAW]]
    for part in batched(candidates, _MAX_IDS):
        conn_ids, event_ids = ([*{row[index] for row in part}] for index in (0, 1))
        where = {"mail_conn_id": OneOf(conn_ids), "event_id": OneOf(event_ids)}
        found = stored.rows(("mail_conn_id", "event_id", "raw"), where)
        stored_raw = {(conn_id, event_id): decoded(raw) for conn_id, event_id, raw in found}
        for row in part:
            if row[:2] in stored_raw and _differs(stored_raw[row[:2]], row[_RAW]):
                received_at, push_id, index = row[_RAW + 1 :]
                yield DeadLetter(Origin(row[0], received_at, push_id), index, Reason.CONFLICT, json_text(row[_RAW]))


def _differs(stored: Any, event: Any) -> bool:
    """Return whether a stored event has other fields. Databases may write a number in another way, such as 1e22."""
    return bool(stored != event) and _exact(stored) != _exact(event)


def _exact(value: Any) -> Any:
    return json.loads(json_text(value), parse_int=Decimal, parse_float=Decimal)
