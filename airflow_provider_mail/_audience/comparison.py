"""The comparison of a source with the members that the state has.

Most rows of a source did not change, and come in the order in which they came before. So most lines are compared with
one other line: an unchanged row costs a fraction of the time in which it was read.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from airflow_provider_mail._audience.members import MEMBER, Members
from airflow_provider_mail._audience.rows import (
    JOINED,
    AudienceRows,
    Identity,
    decoded,
    encoded,
    picked_rows,
)

if TYPE_CHECKING:
    from airflow_provider_mail._audience.index import AudienceIndex
    from airflow_provider_mail._task.storage import Spool
    from airflow_provider_mail.api.flows.import_contacts import SelectedRows

UNRESOLVED = "unresolved"
"""The operation of a row that is not yet compared with all members."""

_NEAR = 1000
"""Lines among which a line is looked for that is not at its place."""
_BLOCK = 4000
"""Lines of the state that are loaded at once."""
_FIRST_FAR = 256
"""Lines in a row without a match, after which a line is looked for in all parts."""


@dataclass(slots=True)
class Comparison:
    """Compares a source with the members, and notes in an index what is not in both."""

    members: Members
    index: AudienceIndex
    identity: Identity

    def changed(
        self, batches: Iterable[SelectedRows], uncertain: Sequence[str], *, keeps_all: bool
    ) -> Iterator[AudienceRows]:
        """Yield the rows that are not lines of the state.

        :param uncertain: memberships of people whose rows must be looked at in any case.
        :param keeps_all: also yield the rows that are, as unchanged ones.
        """
        index, members, key_of = self.index, self.members, self.identity.key
        operation = UNRESOLVED if len(members) else JOINED
        unmatched: list[tuple[int, int, bytes]] = list(members.active(*uncertain))

        def note() -> None:
            index.add_known(
                (key_of(decoded(line)), line, members.membership(number), number, place)
                for number, place, line in unmatched
            )
            unmatched.clear()

        matcher = Matcher(members, lambda *line: unmatched.append(line))
        for batch in batches:
            lines = encoded(batch).splitlines(keepends=True)
            places = matcher.unmatched(lines)
            note()
            changed = picked_rows(batch, places)
            keys, texts = [key_of(row) or "" for row in changed], [lines[place] for place in places]
            if len(members):
                index.see(keys)
            if not keeps_all:
                yield AudienceRows(changed, keys, texts, [operation] * len(places))
                continue
            rows = AudienceRows.unchanged(batch)
            for place, key, text in zip(places, keys, texts, strict=True):
                rows.keys[place], rows.texts[place], rows.operations[place] = key, text, operation
            yield rows
        matcher.rest()
        note()

    def resolve(self, unresolved: Iterable[AudienceRows], spool: Spool[AudienceRows]) -> Counter[str]:
        """Find out what each row is; return how many rows there are of each operation."""
        self.index.complete(self.members, self.identity)
        counts: Counter[str] = Counter()
        for rows in unresolved:
            places = [place for place, operation in enumerate(rows.operations) if operation == UNRESOLVED]
            keys, texts = [rows.keys[place] for place in places], [rows.texts[place] for place in places]
            for place, operation in zip(places, self.index.operations(keys, texts), strict=True):
                rows.operations[place] = operation
            counts.update(rows.operations)
            spool.add(rows)
        return counts


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


class Positions:
    """Counts the lines of several parts from 0, whether they count or not.

    :param numbers: the parts.
    """

    def __init__(self, members: Members, numbers: list[int]) -> None:
        self._numbers = numbers
        self._starts = [0, *accumulate(map(members.rows, numbers))]
        self.end = self._starts[-1]
        """The number of lines."""
        self.void = array("Q")
        """The positions of lines that no longer count, in order."""
        for start, number in zip(self._starts, numbers, strict=False):
            self.void.extend(start + place for place in members.void_places(number))

    def of(self, position: int) -> tuple[int, int, int]:
        """Return the part in which a line is, its place there, and the position of the line after that part."""
        index = bisect_right(self._starts, position) - 1
        return self._numbers[index], position - self._starts[index], self._starts[index + 1]
