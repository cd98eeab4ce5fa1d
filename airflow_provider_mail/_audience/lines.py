"""Rows as lines of JSON, and the comparison of a source with the lines of a state.

Most rows of a source did not change, and come in the order in which they came before. So most lines are compared with
one other line: an unchanged row costs a fraction of the time in which it was read.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from airflow_provider_mail._audience.members import MEMBER, Line, Members, Positions
from airflow_provider_mail._task.imports import usual_text

if TYPE_CHECKING:
    from airflow_provider_mail._audience.rows import Identity

_ENCODER = msgspec.json.Encoder()
_OTHER_SPACES = "\t\r\x0b\x0c\x1c\x1d\x1e\x1f"
"""White space of ASCII but the space and the line break."""

_NEAR = 1000
"""Lines among which a line is looked for that is not at its place."""
_BLOCK = 4000
"""Lines of the state that are loaded at once."""
_FIRST_FAR = 256
"""Lines in a row without a match, after which a line is looked for in all parts."""


def encoded(rows: Sequence[Sequence[Any]]) -> bytes:
    """Return rows as lines, which are the same for the same values."""
    try:
        return _ENCODER.encode_lines(rows)
    except (TypeError, ValueError, OverflowError):
        return b"".join(map(_encoded_row, rows))


def _encoded_row(row: Sequence[Any]) -> bytes:
    try:
        return _ENCODER.encode(row) + b"\n"
    except (TypeError, ValueError, OverflowError):
        # Such values are rejected by the import, or converted to the same text.
        texts = [value if value is None else str(value).encode("utf-8", "replace").decode() for value in row]
        return _ENCODER.encode(texts) + b"\n"


def decoded(line: bytes) -> list[Any]:
    """Return the values of a line, as JSON has them."""
    row: list[Any] = msgspec.json.decode(line)
    return row


def checksum(key: str | None) -> int:
    """Return a number that is the same for the same person; now and then also for others."""
    return zlib.crc32(key.encode("utf-8", "surrogatepass")) if key else 0


def checksums(rows: Sequence[Sequence[Any]], identity: Identity) -> array[int]:
    """Return the checksums of the people of rows."""
    try:
        addresses = [] if identity.email is None else list(map(itemgetter(identity.email), rows))
    except IndexError:
        addresses = []
    # An address in its usual spelling is its key.
    if addresses and all(addresses) and (text := usual_text(addresses)):
        keys = text.encode().split(b"\n")
        if len(keys) == len(rows) and not any(space in text for space in _OTHER_SPACES):
            return array("I", map(zlib.crc32, keys))
    return array("I", [checksum(identity.key(row)) for row in rows])


def lines_of(membership: str, people: Iterable[tuple[str | None, bytes]]) -> Iterator[Line]:
    """Return the lines of people, from key and line of each."""
    return ((membership, line, checksum(key)) for key, line in people)


class Matcher:
    """Finds the lines of a source among the lines of `MEMBER` parts, in the order of both.

    A block of lines may be anywhere: a database may begin to read a table where another reader is. A single line that
    is not where its neighbors are is not found here, even if it is elsewhere: both sides report it, and the caller
    compares them.

    :param on_unmatched: called with part, place and line for each line of the state that was not found in the source.
    """

    def __init__(self, members: Members, on_unmatched: Callable[[int, int, bytes], object]) -> None:
        self._members = members
        self._positions = Positions(members, members.numbers(MEMBER))
        self._on_unmatched = on_unmatched
        self._window: list[bytes] = []
        """Lines of the state that are compared one after the other."""
        self._at = 0
        """The index in the window of the next line."""
        self._loaded = 0
        """Position of the line after the window."""
        self._end = self._positions.end
        """Position of the line at which the lines end that are compared one after the other."""
        self._spans: list[tuple[int, int]] = []
        """First position, and that after the last one, of other lines that were not compared, in order."""
        self._misses = 0

    @property
    def _position(self) -> int:
        """Position of the next line."""
        return self._loaded - len(self._window) + self._at

    def unmatched(self, lines: Sequence[bytes]) -> list[int]:
        """Return the places of the source's next lines that were not found."""
        row, places = 0, list[int]()
        while row < len(lines):
            if not self._filled():
                places.extend(range(row, len(lines)))
                break
            if same := self._equal_lines(lines, row):
                places.extend(row + offset for offset in self._void_among(same))
                row += same
                self._at += same
                self._misses = 0
            elif not self._moved_to(lines[row], lines[row + 1] if row + 1 < len(lines) else None):
                places.append(row)
                row += 1
        return places

    def rest(self) -> None:
        """Report the lines of the state that were not compared with any of the source."""
        while self._filled():
            self._skip(len(self._window) - self._at)

    def _filled(self) -> bool:
        """Have enough lines in the window, if there are; return whether there is one."""
        if len(self._window) - self._at < _NEAR and self._loaded < self._end:
            del self._window[: self._at]
            self._at = 0
            while len(self._window) < _BLOCK and self._loaded < self._end:
                lines = self._lines(self._loaded, self._end)
                self._window += lines
                self._loaded += len(lines)
        if self._at == len(self._window) and self._spans:
            # The next ones, or from the beginning again.
            index = next((index for index, (first, _) in enumerate(self._spans) if first >= self._position), 0)
            self._go_to(*self._spans.pop(index))
            return self._filled()
        return self._at < len(self._window)

    def _go_to(self, first: int, end: int) -> None:
        self._window, self._at, self._loaded, self._end = [], 0, first, end

    def _lines(self, first: int, end: int) -> list[bytes]:
        """Load the lines from a position to the end of their part, or to a position in it."""
        number, place, part_end = self._positions.of(first)
        return self._members.lines(number)[place : place + min(part_end, end) - first]

    def _equal_lines(self, lines: Sequence[bytes], row: int) -> int:
        """Return how many of the next lines are equal."""
        window, at, same = self._window, self._at, 0
        most = min(len(lines) - row, len(window) - at)
        while same < most and lines[row + same] == window[at + same]:
            same += 1
        return same

    def _moved_to(self, line: bytes, following: bytes | None) -> bool:
        """Go to where the source's line is, if it is further on in the state; or skip the line that it replaces.

        :param following: the line after it, if that is known.
        """
        window, at = self._window, self._at
        after = window[at + 1] if at + 1 < len(window) else None
        if line == after:
            self._skip(1)
            return True
        if following is not None and following == after:
            self._skip(1)
            return False
        if following == window[at]:
            return False
        self._misses += 1
        if self._misses <= 8 or self._misses % 64 == 0:
            try:
                place = window.index(line, at, at + _NEAR)
            except ValueError:
                pass
            else:
                self._skip(place - at)
                return True
        is_power = self._misses & (self._misses - 1) == 0
        return following is not None and is_power and self._misses >= _FIRST_FAR and self._jumped(line, following)

    def _jumped(self, line: bytes, following: bytes) -> bool:
        """Go to where two lines are, if they are among those that were not compared; the others come later."""
        spans = sorted([(self._position, self._end), *self._spans])
        for first, end in spans:
            position = first
            while position < end:
                lines = self._lines(position, end)
                pairs = enumerate(pairwise(lines), position)
                target = next((start for start, pair in pairs if pair == (line, following)), None)
                if target is not None:
                    spans.remove((first, end))
                    self._spans = sorted(spans + ([(first, target)] if target > first else []))
                    self._go_to(target, end)
                    self._misses = 0
                    return True
                position += len(lines)
        return False

    def _skip(self, count: int) -> None:
        """Report the next lines of the state."""
        void, position = set(self._void_among(count)), self._position
        for offset, line in enumerate(self._window[self._at : self._at + count]):
            if offset not in void:
                self._on_unmatched(*self._positions.of(position + offset)[:2], line)
        self._at += count

    def _void_among(self, count: int) -> Iterator[int]:
        """Yield which of the next lines no longer count."""
        void, position = self._positions.void, self._position
        for index in range(bisect_left(void, position), bisect_left(void, position + count)):
            yield void[index] - position
