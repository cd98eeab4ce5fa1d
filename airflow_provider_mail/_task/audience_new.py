"""The members of a state that is written anew: everybody who is sent, as the service accepts them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import TYPE_CHECKING

from airflow_provider_mail._task.audience_index import JOINED, AudienceIndex, AudienceRows
from airflow_provider_mail._task.audience_lines import checksums, encoded
from airflow_provider_mail._task.audience_members import DOUBTFUL, MEMBER, Members, Part, parts_of

if TYPE_CHECKING:
    from airflow_provider_mail._task.audience_rows import Identity
    from airflow_provider_mail.api.flows.import_contacts import SelectedRows
    from airflow_provider_mail.api.flows.validate_rows import CheckedRows


class _Chunk:
    """A chunk without a known outcome."""

    def __init__(self, rows: SelectedRows, identity: Identity) -> None:
        self.lines = encoded(rows)
        self.checksums = checksums(rows, identity)
        self.first_number = 0
        self.rejected: list[int] = []
        self.parts: list[Part] = []

    def kept(self, membership: str) -> Iterator[Part]:
        """Yield the parts of the rows that are not rejected."""
        if not self.rejected:
            yield from self.parts or parts_of(membership, self.lines, self.checksums)
            return
        keeps = [True] * len(self.checksums)
        for number in self.rejected:
            keeps[number - self.first_number] = False
        lines = b"".join(compress(self.lines.splitlines(keepends=True), keeps))
        yield from parts_of(membership, lines, array("I", compress(self.checksums, keeps)))


class Everybody:
    """Everybody's rows on their way; this is the checkpoint of the import.

    :param index: gets what the log shows of each row. Default: there is no log.
    """

    def __init__(self, identity: Identity, index: AudienceIndex | None) -> None:
        self.members = Members()
        self._identity = identity
        self._index = index
        self._open: dict[int, _Chunk] = {}
        self._chunks: list[int] = []
        """Of each part, the chunk."""
        self._logged: dict[int, tuple[list[str], list[str]]] = {}

    def sending(self, batches: Iterable[SelectedRows]) -> Iterator[SelectedRows]:
        """Yield the rows, and note them before they are sent."""
        for number, batch in enumerate(batches):
            self._open[number] = _Chunk(batch, self._identity)
            if self._index is not None:
                operations = batch.operations if isinstance(batch, AudienceRows) else [JOINED] * len(batch)
                self._logged[number] = [self._identity.key(row) or "" for row in batch], list(operations)
            yield batch

    def lookup(self, chunk: int, first_number: int, checked: CheckedRows) -> Sequence[int] | None:
        """Note the rows that are not valid; all others are sent."""
        current = self._open[chunk]
        current.first_number = first_number
        current.rejected += [reject.row_number for reject in checked.rejects]
        if not checked.numbers:
            self._complete(chunk)
        return None

    def prepare(self, chunk: int) -> None:
        """Compress the rows; called in the thread that sends them."""
        current = self._open[chunk]
        if not current.rejected:
            current.parts = list(parts_of(MEMBER, current.lines, current.checksums))

    def accepted(self, chunk: int, rejected: Sequence[int]) -> None:
        """Note that the service accepted a chunk except for some rows."""
        self._open[chunk].rejected += rejected
        self._complete(chunk)

    def _complete(self, number: int) -> None:
        chunk = self._open.pop(number)
        for part in chunk.kept(MEMBER):
            self._add(part, number)
        if self._index is not None:
            keys, operations = self._logged.pop(number)
            for row in chunk.rejected:
                operations[row - chunk.first_number] = "rejected"
            changed = [place for place, operation in enumerate(operations) if operation]
            self._index.log([keys[place] for place in changed], [operations[place] for place in changed])

    def _add(self, part: Part, chunk: int) -> None:
        self.members.add(part)
        self._chunks.append(chunk)

    def complete(self) -> Members:
        """Return the members in the order of the source: rows that were accepted, and those without a known outcome."""
        for number, chunk in self._open.items():
            chunk.parts = []
            for part in chunk.kept(DOUBTFUL):
                self._add(part, number)
        self.members.sort(self._chunks)
        return self.members
