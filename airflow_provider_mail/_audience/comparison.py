"""The comparison of a source with the state: by bucket, so that the order of the rows does not matter."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, repeat
from operator import ne, or_
from typing import NamedTuple

from airflow_provider_mail._audience.rows import BUCKETS, People, split
from airflow_provider_mail._audience.state import (
    EXCLUDED,
    GONE,
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


def operation_of(before: int) -> str:
    """Return what became of a person whose row the service does not have, by the value in the state."""
    if before == GONE:
        return JOINED
    return CHANGED if is_member(before) else RETURNED


class Differences(NamedTuple):
    """What differs in a bucket, in columns: an object for each person would take longer than the comparison.

    :param lines: people of the source whose rows the service does not have, a line each.
    :param numbers: of their rows in the source.
    :param befores: their values in the state; ``GONE`` if they had none.
    :param digests: of their rows.
    :param left: people of the audience whom the source did not return.
    :param left_values: their values in the state.
    :param away: the values of people on exclusion lists.
    """

    bucket: int
    lines: bytes
    numbers: Sequence[int]
    befores: Sequence[int]
    digests: Sequence[int]
    left: Sequence[bytes]
    left_values: Sequence[int]
    away: Mapping[bytes, int]

    @property
    def keys(self) -> list[bytes]:
        return split(self.lines)


class Comparison:
    """What differs between source and state. What it finds is in a temporary file, so that memory use stays constant.

    :param others: other audiences that may have changed the values of this one's people, and the version of each when
        this one was sent last.
    :param is_known: whether the state shows who is in the audience; if not, nobody is.
    :param everybody: whether all rows are to be sent, not only those that differ.
    """

    def __init__(
        self,
        people: People,
        state: AudienceState,
        others: Sequence[tuple[AudienceState, int]],
        *,
        is_known: bool,
        everybody: bool,
    ) -> None:
        self._differences: Spool[Differences] = Spool()
        counts = self.counts = Counter[str]()
        self.size_before = 0
        """Number of people who were in the audience."""
        self.repeated = people.count - len(people.unknown)
        """Rows of people who have a later row."""
        of_others = [other.buckets(seen) for other, seen in others]
        for number, stored in enumerate(state.buckets() if is_known else repeat(NO_BUCKET, BUCKETS)):
            lines, digests, numbers = people.bucket(number, stored.lines)
            away: dict[bytes, int] = {}
            left: list[bytes] = []
            of_left: list[int] = []
            joined = returned = 0
            befores = None if of_others else stored.values_in_order(lines)
            if befores is not None:
                # The same people in the same order: in a third of the time.
                differs = list(map(ne, befores, digests))
                self.size_before += len(befores)
            else:
                keys, values = split(lines), stored.values
                befores = array("q", map(values.get, keys, repeat(GONE)))
                differs = list(map(ne, befores, digests))
                for buckets in of_others:
                    if overwritten := _overwritten(values, next(buckets)):
                        differs = list(map(or_, differs, map(overwritten.__contains__, keys)))
                if state.ledger.excluded:
                    away = dict(compress(values.items(), map(EXCLUDED.__ge__, values.values())))
                joined, returned = befores.count(GONE), len(away.keys() & keys)
                if len(values) > len(keys) - joined:
                    left = sorted(key for key in values.keys() - set(keys) if is_member(values[key]))
                    of_left = list(map(values.__getitem__, left))
                self.size_before += len(values) - len(away)
            self.repeated -= len(befores)
            changed = differs.count(True) - joined - returned
            counts.update({JOINED: joined, RETURNED: returned, CHANGED: changed, LEFT: len(left)})
            if not everybody:
                lines = b"\n".join(compress(split(lines), differs)) if True in differs else b""
                numbers, befores, digests = (
                    array(column.typecode, compress(column, differs) if lines else ())
                    for column in (numbers, befores, digests)
                )
            if lines or left or away:
                self._differences.add(Differences(number, lines, numbers, befores, digests, left, of_left, away))
        if is_known:
            state.check()

    def close(self) -> None:
        """Remove the file."""
        self._differences.close()

    def changes(self) -> Iterator[Differences]:
        """Yield what differs, by bucket."""
        return iter(self._differences)


def _overwritten(values: dict[bytes, int], newer: Bucket) -> set[bytes]:
    """Return members whose values at the service may be another audience's: of a contact, the last ones count.

    :param newer: what the other audience has stored since.
    """
    try:
        sent = newer.history.items()
    except DamagedStateError:
        return set(values)
    # Who has left it may have been sent before.
    return {key for key, value in sent if (own := values.get(key, IN_DOUBT)) >= 0 and value != own}
