"""The comparison of a source with the state: by bucket, so that the order of the rows does not matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import compress, repeat
from operator import ne, or_
from typing import Any, NamedTuple

from airflow_provider_mail._audience.rows import BUCKETS, People
from airflow_provider_mail._audience.state import (
    EXCLUDED,
    IN_DOUBT,
    NO_BUCKET,
    AudienceState,
    Bucket,
    DamagedStateError,
    is_member,
)
from airflow_provider_mail._task.storage import Spool

JOINED, RETURNED, CHANGED, LEFT = "joined", "returned", "changed", "left"
"""What became of a person."""


def operation_of(before: int | None) -> str:
    """Return what became of a person whose row the service does not have, by the value in the state."""
    if before is None:
        return JOINED
    return CHANGED if is_member(before) else RETURNED


class Differences(NamedTuple):
    """What differs in a bucket, in columns: an object for each person would take longer than the comparison.

    :param keys: people of the source whose rows the service does not have.
    :param numbers: of their rows in the source.
    :param befores: their values in the state; ``None`` if they had none.
    :param digests: of their rows.
    :param left: people of the audience whom the source did not return.
    :param left_values: their values in the state.
    :param away: the values of people on exclusion lists.
    """

    bucket: int
    keys: Sequence[bytes]
    numbers: Sequence[int]
    befores: Sequence[int | None]
    digests: Sequence[int]
    left: Sequence[bytes] = ()
    left_values: Sequence[int] = ()
    away: Mapping[bytes, int] = {}


class Other(NamedTuple):
    """Another audience that may have changed the values of this one's people.

    :param seen: its version when this one was sent last.
    :param is_comparable: whether equal digests mean that contacts have the same values.
    """

    state: AudienceState
    seen: int
    is_comparable: bool


class Comparison:
    """What differs between source and state. What it finds is in a temporary file, so that memory use stays constant.

    :param state: Default: there is none to compare with.
    """

    def __init__(self, people: People, state: AudienceState | None, others: Sequence[Other] = ()) -> None:
        self._people, self._state = people, state
        self._differences: Spool[Differences] = Spool()
        self.counts: Counter[str] = Counter()
        self.size_before = 0
        """Number of people who were in the audience."""
        self.repeated = people.count - len(people.unknown)
        """Rows of people who have a later row."""
        of_others = [(other, other.state.buckets()) for other in others]
        for number, stored in enumerate(self._stored()):
            overwritten = set[bytes]()
            for other, buckets in of_others:
                overwritten |= _overwritten(stored.values, next(buckets), other)
            keys, digests, numbers = people.bucket(number)
            self.repeated -= len(keys)
            if state is None:
                self.counts[JOINED] += len(keys)
                continue
            found = self._compare(number, stored, overwritten, (keys, digests, numbers))
            returned = len(found.away.keys() & found.keys)
            self.counts[JOINED] += (joined := found.befores.count(None))
            self.counts[RETURNED] += returned
            self.counts[CHANGED] += len(found.keys) - joined - returned
            self.counts[LEFT] += len(found.left)
            self.size_before += len(stored.values) - len(found.away)
            if found.keys or found.left or found.away:
                self._differences.add(found)
        if state is not None:
            state.check()

    def close(self) -> None:
        """Remove the file."""
        self._differences.close()

    def _stored(self) -> Iterator[Bucket]:
        return repeat(NO_BUCKET, BUCKETS) if self._state is None else self._state.buckets()

    def _compare(self, number: int, stored: Bucket, overwritten: set[bytes] | None, columns: Any) -> Differences:
        """Compare a bucket.

        :param overwritten: people who differ anyhow. Default: everybody does.
        """
        values, (keys, digests, numbers) = stored.values, columns
        has_excluded = self._state is not None and self._state.ledger.excluded
        away = {key: value for key, value in values.items() if value <= EXCLUDED} if has_excluded else {}
        befores: list[int | None] = list(map(values.get, keys))
        left: list[bytes] = []
        if len(values) > len(keys) - befores.count(None):
            left = sorted(key for key in values.keys() - set(keys) if is_member(values[key]))
        if overwritten is not None:
            differs: Iterable[bool] = map(ne, befores, digests)
            if overwritten:
                differs = map(or_, differs, map(overwritten.__contains__, keys))
            places = list(compress(range(len(keys)), differs))
            keys, numbers, befores, digests = (
                list(map(column.__getitem__, places)) for column in (keys, numbers, befores, digests)
            )
        return Differences(number, keys, numbers, befores, digests, left, list(map(values.__getitem__, left)), away)

    def changes(self) -> Iterator[Differences]:
        """Yield what differs, by bucket."""
        return iter(self._differences) if self._state is not None else self.everybody()

    def everybody(self) -> Iterator[Differences]:
        """Yield all people as if they differed."""
        for number, stored in enumerate(self._stored()):
            yield self._compare(number, stored, None, self._people.bucket(number))


def _overwritten(values: dict[bytes, int], bucket: Bucket, other: Other) -> set[bytes]:
    """Return members whose values at the service may be another audience's: of a contact, the last ones count."""
    # It may be written meanwhile, and is none of this run's.
    with suppress(DamagedStateError):
        return {
            key
            for key, value in bucket.newer(other.seen).items()
            if (own := values.get(key, IN_DOUBT)) >= 0 and not (other.is_comparable and value == own)
        }
    return set()
