"""Rows as lines of JSON, and the comparison of a source with the lines of a state.

Most rows of a source did not change, and come in the order in which they came before. So they are compared as long
texts, not one by one: an unchanged row costs a fraction of the time in which it was read.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from airflow_provider_mail._task.audience_members import MEMBER, Members, Positions
from airflow_provider_mail._task.recipients import usual_text

if TYPE_CHECKING:
    from airflow_provider_mail._task.audience_rows import Identity

_ENCODER = msgspec.json.Encoder()
_OTHER_SPACES = "\t\r\x0b\x0c\x1c\x1d\x1e\x1f"
"""White space of ASCII but the space and the line break."""

_NEAR = 1 << 16
"""Bytes in which a line is looked for whenever it is not at its place."""
_BLOCK = 1 << 18
_FIRST_FAR = 256
"""Lines in a row without a match, after which a line is looked for in all parts."""


def encoded(rows: Iterable[Sequence[Any]]) -> bytes:
    """Return rows as lines, which are the same for the same values."""
    try:
        return _ENCODER.encode_lines(rows)
    except (TypeError, ValueError, OverflowError):
        return b"".join(encoded_row(row) for row in rows)


def encoded_row(row: Sequence[Any]) -> bytes:
    """Return one row as a line."""
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
        self._window, self._at = b"", 0
        """Lines of the state, and how many bytes of them were compared."""
        self._line = 0
        """Position of the next line in the window."""
        self._loaded = 0
        """Position of the line after the window."""
        self._end = self._positions.end
        """Position of the line at which the lines end that are compared one after the other."""
        self._spans: list[tuple[int, int]] = []
        """First position, and that after the last one, of other lines that were not compared, in order."""
        self._misses = 0

    def unmatched(self, lines: bytes, rows: int) -> list[int]:
        """Return the places of the source's next lines that were not found.

        :param rows: the number of lines.
        """
        at = row = 0
        places: list[int] = []
        while at < len(lines):
            if not self._filled():
                places.extend(range(row, rows))
                break
            if same := self._equal_lines(lines, at):
                count = lines.count(b"\n", at, at + same)
                places.extend(row + offset for offset in self._void_among(count))
                at, row = at + same, row + count
                self._advance(same, count)
                self._misses = 0
                continue
            end = lines.find(b"\n", at) + 1
            if not self._moved_to(lines, at, end):
                places.append(row)
                at, row = end, row + 1
        return places

    def rest(self) -> None:
        """Report the lines of the state that were not compared with any of the source."""
        while self._filled():
            self._skip(len(self._window) - self._at)

    def _filled(self) -> bool:
        """Have enough lines in the window, if there are; return whether there is one."""
        if len(self._window) - self._at < _NEAR and self._loaded < self._end:
            blocks = [self._window[self._at :]]
            size = 0
            while size < _BLOCK and self._loaded < self._end:
                blocks.append(self._lines(self._loaded, self._end))
                size += len(blocks[-1])
            self._window, self._at = b"".join(blocks), 0
        if self._at == len(self._window) and self._spans:
            # The next ones, or from the beginning again.
            index = next((index for index, (first, _) in enumerate(self._spans) if first >= self._line), 0)
            self._go_to(*self._spans.pop(index))
            return self._filled()
        return self._at < len(self._window)

    def _go_to(self, first: int, end: int) -> None:
        self._window, self._at, self._line, self._loaded, self._end = b"", 0, first, first, end

    def _lines(self, first: int, end: int) -> bytes:
        """Load the rest of the part in which a position is."""
        number, place, part_end = self._positions.of(first)
        self._loaded = min(part_end, end)
        lines = self._members.lines(number)
        if place or end < part_end:
            lines = b"".join(lines.splitlines(keepends=True)[place : place + self._loaded - first])
        return lines

    def _equal_lines(self, lines: bytes, at: int) -> int:
        """Return how many bytes of whole lines are equal."""
        window, start = self._window, self._at
        if not window.startswith(lines[at : lines.find(b"\n", at) + 1], start):
            return 0
        most = min(len(lines) - at, len(window) - start)
        same, step = 0, 4096
        while same < most:
            step = min(step, most - same)
            if not window.startswith(lines[at + same : at + same + step], start + same):
                break
            same += step
            step *= 2
        else:
            return same
        # The first difference is in the next `step` bytes.
        while step > 1:
            half = step // 2
            if window.startswith(lines[at + same : at + same + half], start + same):
                same, step = same + half, step - half
            else:
                step = half
        return lines.rfind(b"\n", at, at + same) + 1 - at

    def _moved_to(self, lines: bytes, at: int, end: int) -> bool:
        """Go to where the source's line is, if it is further on in the state; or skip the line that it replaces."""
        line, window = lines[at:end], self._window
        following = lines[end : lines.find(b"\n", end) + 1] if end < len(lines) else b""
        after = window.find(b"\n", self._at) + 1
        if window.startswith(line, after):
            self._skip(after - self._at)
            return True
        if following and window.startswith(following, after):
            self._skip(after - self._at)
            return False
        if following and window.startswith(following, self._at):
            return False
        self._misses += 1
        if self._misses <= 8 or self._misses % 64 == 0:
            place = window.find(b"\n" + line, self._at, self._at + _NEAR) + 1
            if place:
                self._skip(place - self._at)
                return True
        is_power = self._misses & (self._misses - 1) == 0
        return bool(following) and is_power and self._misses >= _FIRST_FAR and self._jumped(line + following)

    def _jumped(self, text: bytes) -> bool:
        """Go to where lines are, if they are anywhere among those that were not compared; the others come later."""
        spans = sorted([(self._line, self._end), *self._spans])
        for first, end in spans:
            position = first
            while position < end:
                lines = b"\n" + self._lines(position, end)
                if (place := lines.find(b"\n" + text)) >= 0:
                    found = position + lines.count(b"\n", 0, place + 1) - 1
                    spans.remove((first, end))
                    self._spans = sorted(spans + ([(first, found)] if found > first else []))
                    self._go_to(found, end)
                    self._misses = 0
                    return True
                position = self._loaded
        self._loaded = self._line + self._window.count(b"\n", self._at)
        return False

    def _skip(self, size: int) -> None:
        """Report the next lines of the state."""
        skipped = self._window[self._at : self._at + size].splitlines(keepends=True)
        void = set(self._void_among(len(skipped)))
        for offset, line in enumerate(skipped):
            if offset not in void:
                self._on_unmatched(*self._positions.of(self._line + offset)[:2], line)
        self._advance(size, len(skipped))

    def _advance(self, size: int, count: int) -> None:
        self._at += size
        self._line += count

    def _void_among(self, count: int) -> Iterator[int]:
        """Yield which of the next lines no longer count."""
        void = self._positions.void
        index = bisect_left(void, self._line)
        while index < len(void) and void[index] < self._line + count:
            yield void[index] - self._line
            index += 1
