"""The members of an audience as its state has them: parts of rows, each row as one line of JSON.

A part is never changed. A later part says which lines of earlier parts no longer count, so a run adds what it knows in
one step. Each line has the checksum of its person beside it, by which the lines of a person are found. A run that sends
everybody writes the members anew, as the service accepts them.
"""

from __future__ import annotations

import json
import tempfile
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from airflow_provider_mail._audience.rows import (
    JOINED,
    AudienceRows,
    Identity,
    Line,
    checksums,
    decoded,
    encoded,
    lines_of,
)

if TYPE_CHECKING:
    from airflow_provider_mail._audience.index import AudienceIndex
    from airflow_provider_mail.api.flows.import_contacts import SelectedRows
    from airflow_provider_mail.api.flows.validate_rows import CheckedRows

MEMBER, DOUBTFUL, LEAVING, LEFT = "member", "doubtful", "leaving", "left"
"""Where the people of a part are: on the list with these values, perhaps on the list, perhaps on the exclusion list as
well, or on both."""

MAX_PART_BYTES = 40_000
"""Maximum bytes of the lines of a part: no database limits a text of that size, encrypted."""

MEMORY_BYTES = 1_000_000

Voids = Mapping[int, Iterable[int] | None]
"""For each number of a part, the places of lines that no longer count; ``None`` for all."""


class Part(NamedTuple):
    """Lines that are written together.

    :param membership: where their people are.
    :param rows: their number.
    :param voids: JSON of `Voids`.
    :param content: the checksums of the people, and the compressed lines.
    """

    membership: str
    rows: int
    voids: str
    content: bytes


def parts_of(membership: str, lines: bytes, checksums: array[int], voids: str = "{}") -> Iterator[Part]:
    """Divide lines into parts; without lines, there is one part with what no longer counts."""
    start = first = 0
    while start < len(lines) or voids != "{}":
        end = lines.rfind(b"\n", start, start + MAX_PART_BYTES) + 1
        if end <= start:  # A long line is a part of its own.
            end = lines.find(b"\n", start) + 1
        part = lines[start:end]
        rows = part.count(b"\n")
        content = checksums[first : first + rows].tobytes() + zlib.compress(part, 1)
        yield Part(membership, rows, voids, content)
        start, first, voids = end, first + rows, "{}"


def changes(voids: Voids, lines: Iterable[Line]) -> Iterator[Part]:
    """Make the parts of a change.

    :param lines: new lines, sorted by membership.
    """
    spelled = json.dumps({str(number): None if places is None else sorted(places) for number, places in voids.items()})
    current, size = "", 0
    texts: list[bytes] = []
    checksums = array("I")
    for membership, line, checksum in lines:
        if texts and (membership != current or size + len(line) > MAX_PART_BYTES):
            yield from parts_of(current, b"".join(texts), checksums, spelled)
            texts, checksums, size, spelled = [], array("I"), 0, "{}"
        current, size = membership, size + len(line)
        texts.append(line)
        checksums.append(checksum)
    if texts or spelled != "{}":
        yield from parts_of(current or MEMBER, b"".join(texts), checksums, spelled)


@dataclass(slots=True)
class _Loaded:
    """A part, whose content is in the file.

    :param offset: where its content begins.
    :param active: the number of lines that count.
    :param void: for each line, whether it no longer counts. Default: all count.
    """

    membership: str
    rows: int
    voids: str
    offset: int
    size: int
    active: int
    void: bytearray | None = None


class Members:
    """The members that the state has, in a temporary file, so that memory use stays constant."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115
        self._size = 0
        self._parts: list[_Loaded] = []

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def __len__(self) -> int:
        return len(self._parts)

    def add(self, part: Part) -> None:
        """Add the next part.

        :raises ValueError: when it does not follow the parts before it.
        """
        self._file.seek(self._size)
        self._file.write(part.content)
        for number, places in json.loads(part.voids).items():
            if int(number) >= len(self._parts):
                raise ValueError("a part is missing")
            self._end(self._parts[int(number)], places)
        size = len(part.content)
        self._parts.append(_Loaded(part.membership, part.rows, part.voids, self._size, size, part.rows))
        self._size += size

    @staticmethod
    def _end(part: _Loaded, places: Iterable[int] | None) -> None:
        if part.void is None:
            part.void = bytearray(part.rows)
        for place in range(part.rows) if places is None else places:
            part.void[place] = 1
        part.active = part.void.count(0)

    def sort(self, keys: Sequence[int]) -> None:
        """Sort the parts, none of which says that others no longer count.

        :param keys: one for each part.
        """
        self._parts = [part for _, part in sorted(zip(keys, self._parts, strict=True), key=itemgetter(0))]

    def count(self, *memberships: str) -> int:
        """Return the number of lines that count. Default: of all memberships."""
        return sum(part.active for part in self._parts if not memberships or part.membership in memberships)

    @property
    def share_void(self) -> float:
        """The share of all lines that no longer count."""
        rows = sum(part.rows for part in self._parts)
        return 1 - self.count() / rows if rows else 0.0

    def numbers(self, *memberships: str) -> list[int]:
        """Return the numbers of the parts of some memberships, or of all, that have lines that count."""
        return [
            number
            for number, part in enumerate(self._parts)
            if part.active and (not memberships or part.membership in memberships)
        ]

    def part(self, number: int) -> Part:
        """Return a part as it was added."""
        part = self._parts[number]
        return Part(part.membership, part.rows, part.voids, self._content(number))

    def membership(self, number: int) -> str:
        return self._parts[number].membership

    def rows(self, number: int) -> int:
        """Return the number of lines of a part, whether they count or not."""
        return self._parts[number].rows

    def counts_line(self, number: int, place: int) -> bool:
        """Return whether a line counts."""
        void = self._parts[number].void
        return void is None or not void[place]

    def void_places(self, number: int) -> Iterator[int]:
        """Yield the places of a part's lines that no longer count."""
        void = self._parts[number].void or b""
        place = void.find(1)
        while place >= 0:
            yield place
            place = void.find(1, place + 1)

    def lines(self, number: int) -> list[bytes]:
        """Return all lines of a part."""
        return zlib.decompress(self._content(number)[4 * self._parts[number].rows :]).splitlines(keepends=True)

    def checksums(self, number: int) -> array[int]:
        """Return the checksums of the people of all lines of a part."""
        return array("I", self._content(number)[: 4 * self._parts[number].rows])

    def active(self, *memberships: str) -> Iterator[tuple[int, int, bytes]]:
        """Yield the lines that count, each with the number of its part and its place there."""
        for number in self.numbers(*memberships):
            for place, line in enumerate(self.lines(number)):
                if self.counts_line(number, place):
                    yield number, place, line

    def _content(self, number: int) -> bytes:
        part = self._parts[number]
        self._file.seek(part.offset)
        return self._file.read(part.size)


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
