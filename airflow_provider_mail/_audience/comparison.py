"""The comparison of a source with the state: by bucket, so that the order of the rows does not matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import chain, compress
from operator import ne
from typing import NamedTuple

from airflow_provider_mail._audience.rows import BUCKETS, People
from airflow_provider_mail._audience.state import (
    IN_DOUBT,
    AudienceState,
    Bucket,
    DamagedStateError,
    exclusion_of,
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
    """

    bucket: int
    keys: Sequence[bytes]
    numbers: Sequence[int]
    befores: Sequence[int | None]
    digests: Sequence[int]
    left: Sequence[bytes] = ()
    left_values: Sequence[int] = ()


class Comparison:
    """What differs between source and state. What it finds is in temporary files, so that memory use stays constant.

    :param state: Default: there is none to compare with.
    :param others: other audiences that may have sent values of the same properties since the last run of this one.
    """

    def __init__(self, people: People, state: AudienceState | None, others: Sequence[AudienceState] = ()) -> None:
        self._people = people
        self.knows_people = state is not None
        self._has_excluded = state is not None and state.ledger.excluded > 0
        self._differences: Spool[Differences] = Spool()
        self._away: Spool[list[tuple[bytes, int]]] = Spool()
        self.counts: Counter[str] = Counter()
        self.size_before = 0
        """Number of people who were in the audience."""
        self.repeated = people.count - len(people.unknown)
        """Rows of people who have a later row."""
        buckets = iter(()) if state is None else state.buckets()
        last_began = 0 if state is None else state.ledger.last_began
        stored = next(buckets, None)
        for number in range(BUCKETS):
            values: dict[bytes, int] = {}
            if stored is not None and stored[0] == number:
                values = stored[1].values
                stored = next(buckets, None)
            overwritten = set[bytes]().union(*(_overwritten(values, other, number, last_began) for other in others))
            self._compare(number, values, overwritten)

    def close(self) -> None:
        """Remove the files."""
        self._differences.close()
        self._away.close()

    def _compare(self, bucket: int, values: dict[bytes, int], overwritten: set[bytes]) -> None:
        digests, numbers = self._people.bucket(bucket)
        self.repeated -= len(digests)
        if not self.knows_people:
            self.counts[JOINED] += len(digests)
            return
        seen = values | dict.fromkeys(overwritten, IN_DOUBT) if overwritten else values
        keys = list(compress(digests, map(ne, map(seen.get, digests), digests.values())))
        befores = list(map(values.get, keys))
        joined, returned = befores.count(None), 0
        if self._has_excluded:
            returned = sum(exclusion_of(before) is not None for before in befores)
        self.counts.update({JOINED: joined, RETURNED: returned, CHANGED: len(keys) - joined - returned})
        left = sorted(key for key in values.keys() - digests.keys() if is_member(values[key]))
        self.counts[LEFT] += len(left)
        if keys or left:
            columns = (list(map(column.__getitem__, keys)) for column in (numbers, digests))
            left_values = list(map(values.__getitem__, left))
            self._differences.add(Differences(bucket, keys, next(columns), befores, next(columns), left, left_values))
        away = [item for item in values.items() if item[1] < IN_DOUBT] if self._has_excluded else []
        if away:
            self._away.add(away)
        self.size_before += len(values) - len(away)

    def differences(self) -> Iterator[Differences]:
        """Yield what differs, by bucket."""
        yield from self._differences
        for bucket in () if self.knows_people else range(BUCKETS):
            digests, numbers = self._people.bucket(bucket)
            yield Differences(
                bucket, list(digests), list(numbers.values()), [None] * len(digests), list(digests.values())
            )

    def away(self, number: int, but: Collection[bytes]) -> Iterator[bytes]:
        """Yield the people who were on an exclusion list, but for some."""
        for key, value in chain.from_iterable(self._away):
            if exclusion_of(value) == number and key not in but:
                yield key


def _overwritten(values: dict[bytes, int], other: AudienceState, number: int, last_began: int) -> set[bytes]:
    """Return members whose values at the service may be another audience's: of a contact, the last ones count."""
    bucket = Bucket(())
    # It may be written meanwhile, and is none of this run's.
    with suppress(DamagedStateError):
        bucket = other.bucket(number)
    found, since = set[bytes](), bucket.since()
    for key, value in bucket.values.items() - values.items():
        if values.get(key, IN_DOUBT) >= 0 and (is_member(value) or since.get(key, 0) >= last_began):
            found.add(key)
    return found
