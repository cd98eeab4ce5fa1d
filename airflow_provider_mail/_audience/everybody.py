"""The members of a state that is written anew: everybody who is sent, as the service accepts them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import TYPE_CHECKING

from airflow_provider_mail._audience.lines import checksums, decoded, encoded, lines_of
from airflow_provider_mail._audience.members import DOUBTFUL, LEFT, MEMBER, Members, Part, changes, parts_of
from airflow_provider_mail._audience.rows import JOINED, AudienceRows, Identity

if TYPE_CHECKING:
    from airflow_provider_mail._audience.index import AudienceIndex
    from airflow_provider_mail.api.flows.import_contacts import SelectedRows
    from airflow_provider_mail.api.flows.validate_rows import CheckedRows


class _Chunk:
    """A chunk without a known outcome."""

    def __init__(self, rows: SelectedRows, identity: Identity, *, logs: bool) -> None:
        self.lines = encoded(rows)
        self.checksums = checksums(rows, identity)
        self.first_number = 0
        self.rejected: list[int] = []
        self.parts: list[Part] = []
        self.keys = [identity.key(row) or "" for row in rows] if logs else []
        self.operations = list(rows.operations) if isinstance(rows, AudienceRows) else [JOINED] * len(rows)

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
        self._members = Members()
        self._identity = identity
        self._index = index
        self._open: dict[int, _Chunk] = {}
        self._numbers: list[int] = []
        """Of each part, the number of its chunk."""

    def sending(self, batches: Iterable[SelectedRows]) -> Iterator[SelectedRows]:
        """Yield the rows, and note them before they are sent."""
        for number, rows in enumerate(batches):
            self._open[number] = _Chunk(rows, self._identity, logs=self._index is not None)
            yield rows

    def lookup(self, chunk: int, first_number: int, checked: CheckedRows) -> Sequence[int] | None:
        """Note the rows that are not valid; all others are sent."""
        self._open[chunk].first_number = first_number
        self._open[chunk].rejected += [reject.row_number for reject in checked.rejects]
        if not checked.numbers:
            self._complete(chunk)
        return None

    def prepare(self, chunk: int) -> None:
        """Compress the rows; called in the thread that sends them."""
        rows = self._open[chunk]
        if not rows.rejected:
            rows.parts = list(parts_of(MEMBER, rows.lines, rows.checksums))

    def accepted(self, chunk: int, rejected: Sequence[int]) -> None:
        """Note that the service accepted a chunk except for some rows."""
        self._open[chunk].rejected += rejected
        self._complete(chunk)

    def _complete(self, number: int) -> None:
        chunk = self._open.pop(number)
        self._add(chunk.kept(MEMBER), number)
        if self._index is not None:
            for row in chunk.rejected:
                chunk.operations[row - chunk.first_number] = "rejected"
            self._index.log(zip(chunk.keys, chunk.operations, strict=True))

    def _add(self, parts: Iterable[Part], number: int) -> None:
        for part in parts:
            self._members.add(part)
            self._numbers.append(number)

    def complete(self) -> Members:
        """Return the members in the order of the source: rows that were accepted, and those without a known outcome."""
        for number, chunk in self._open.items():
            chunk.parts = []
            self._add(chunk.kept(DOUBTFUL), number)
        self._members.sort(self._numbers)
        return self._members


def compacted(spool: Iterable[AudienceRows], members: Members, index: AudienceIndex, identity: Identity) -> Members:
    """Return members in the order of the source, without what no longer counts.

    :param spool: all rows of the source.
    :param members: those after the run, of which people are kept who are not on the list for certain.
    :param index: has the rows that were sent.
    """
    compact = Members()
    for batch in spool:
        rows = [
            row
            for row, key, text, operation in zip(batch, batch.keys, batch.texts, batch.operations, strict=True)
            if not operation or index.was_accepted(key, text)
        ]
        for part in parts_of(MEMBER, encoded(rows), checksums(rows, identity)):
            compact.add(part)
    for membership in (DOUBTFUL, LEFT):
        people = ((identity.key(decoded(line)), line) for _, _, line in members.active(membership))
        for part in changes({}, lines_of(membership, people)):
            compact.add(part)
    return compact
