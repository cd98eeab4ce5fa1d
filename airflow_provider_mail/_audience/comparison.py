"""The comparison of a source with the state: by bucket, so that the order of the rows does not matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

from airflow_provider_mail._audience.rows import BUCKETS, People, digests
from airflow_provider_mail._audience.state import (
    NEW,
    OLD,
    AudienceState,
    Bucket,
    DamagedStateError,
    exclusion_of,
    is_digest,
    is_doubtful,
    is_member,
)
from airflow_provider_mail._task.storage import Spool

JOINED, RETURNED, CHANGED, LEFT = "joined", "returned", "changed", "left"
"""What became of a person."""


class Change(NamedTuple):
    """A person of the source whose row the service does not have.

    :param place: of the row in the source.
    :param before: the value in the state; ``None`` if there was none.
    :param digest: of the row.
    """

    key: bytes
    line: bytes
    place: int
    before: int | None
    digest: int

    @property
    def operation(self) -> str:
        if self.before is None:
            return JOINED
        return CHANGED if is_member(self.before) else RETURNED

    @property
    def doubt(self) -> int:
        """The value in the state while the row is being sent."""
        if self.before is None or self.before == NEW:
            return NEW
        return OLD if is_member(self.before) else self.before


class Absent(NamedTuple):
    """A person of the state whom the source did not return, and who is not certain to be excluded."""

    key: bytes
    before: int


class Comparison:
    """What differs between source and state. What it finds is in temporary files, so that memory use stays constant.

    :param state: Default: there is none to compare with.
    :param others: other audiences that may have sent values of the same properties since the last run of this one.
    """

    def __init__(self, people: People, state: AudienceState | None, others: Sequence[AudienceState] = ()) -> None:
        self._people = people
        self._is_new = state is None
        self._changes: Spool[tuple[int, tuple[Sequence[Any], ...]]] = Spool()
        self._absent: Spool[tuple[int, list[Absent]]] = Spool()
        self._away: Spool[list[tuple[bytes, int]]] = Spool()
        self.counts: Counter[str] = Counter()
        self.size_before = 0
        """Number of people who were in the audience."""
        buckets = iter(()) if state is None else state.buckets()
        last_began = 0 if state is None else state.ledger.last_began
        stored = next(buckets, None)
        for number in range(BUCKETS):
            bucket = Bucket(())
            if stored is not None and stored[0] == number:
                bucket = stored[1]
                stored = next(buckets, None)
            for other in others:
                _forget_overwritten(bucket.values, other, number, last_began)
            self._compare(number, bucket.values)

    def close(self) -> None:
        """Remove the files."""
        for spool in (self._changes, self._absent, self._away):
            spool.close()

    def _compare(self, number: int, values: dict[bytes, int]) -> None:
        rows = self._people.bucket(number)
        if self._is_new:
            self.counts[JOINED] += len(rows)
            return
        current = dict(zip(rows, digests([line for line, _ in rows.values()]), strict=True))
        if differing := {key for key, _ in current.items() - values.items()}:
            changed = [key for key in current if key in differing]
            befores = [values.get(key) for key in changed]
            returned = sum(before is not None and not is_member(before) for before in befores)
            joined = befores.count(None)
            self.counts.update({JOINED: joined, RETURNED: returned, CHANGED: len(changed) - joined - returned})
            lines, places = zip(*map(rows.__getitem__, changed), strict=True)
            # Columns: pickling an object for each change takes longer than the rest of the comparison.
            self._changes.add((number, (changed, lines, places, befores, [current[key] for key in changed])))
        absent: list[Absent] = []
        for key in values.keys() - rows.keys():
            value = values[key]
            if is_member(value):
                self.counts[LEFT] += 1
            if is_member(value) or is_doubtful(value):
                absent.append(Absent(key, value))
        if absent:
            self._absent.add((number, sorted(absent)))
        away = [(key, value) for key, value in values.items() if not is_digest(value)]
        away = [(key, value) for key, value in away if exclusion_of(value) is not None]
        if away:
            self._away.add(away)
        self.size_before += len(values) - len(away)

    def changes(self) -> Iterator[tuple[int, list[Change]]]:
        """Yield the changes by bucket."""
        for number, columns in self._changes:
            yield number, list(map(Change, *columns))
        for number in range(BUCKETS) if self._is_new else ():
            yield number, [Change(key, *row, None, 0) for key, row in self._people.bucket(number).items()]

    def absent(self) -> Iterator[tuple[int, list[Absent]]]:
        """Yield by bucket the people who are to be removed."""
        yield from self._absent

    def away(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """Yield the people who were, or may be, on some exclusion lists."""
        wanted = set(numbers)
        for key, value in chain.from_iterable(self._away):
            if exclusion_of(value) in wanted:
                yield key


def _forget_overwritten(values: dict[bytes, int], other: AudienceState, number: int, last_began: int) -> None:
    """Mark members whose values at the service may be another audience's: of a contact, the last ones count."""
    bucket = Bucket(())
    # It may be written meanwhile, and is none of this run's.
    with suppress(DamagedStateError):
        bucket = other.bucket(number)
    since: dict[bytes, int] | None = None
    for key, value in bucket.values.items() - values.items():
        if is_digest(values.get(key, 0)):
            if exclusion_of(value) is not None:
                since = bucket.since() if since is None else since
                if since.get(key, 0) < last_began:
                    continue
            values[key] = OLD
