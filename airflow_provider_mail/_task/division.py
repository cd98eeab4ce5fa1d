"""How the people of an exact audience are divided into parts with lists of their own: stages, or time zones."""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b, sha256
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_mail.send_window import is_zone
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow_provider_mail.api.flows.import_contacts import SelectedRows

BINS = 1 << 16
"""Ranges of the hash of people, of which few are sorted: memory use stays at eight bytes for each person."""


def _digest(*values: Any) -> str:
    return sha256(json.dumps(values).encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class Stages:
    """Divides people by chance: a keyed hash of the address decides who is first, whatever the order of the rows.

    :param shares: the share of all people who are in each stage or in those before it; the last one is 1.
    :param seed: another seed divides the people in another way.
    :param sizes: the largest numbers of people in each stage, in place of ``shares``.
    """

    shares: Mapping[str, float]
    seed: str
    sizes: Mapping[str, int] | None = None
    column: ClassVar[None] = None

    @property
    def names(self) -> list[str]:
        return list(self.sizes or self.shares)

    @property
    def plan(self) -> str:
        """A digest of the whole division; the lists of a stage show it, and so do the campaigns sent to them."""
        shares = [(name, float(end)) for name, end in self.shares.items()]
        return _digest(self.seed, *([shares] if self.sizes is None else [*self.sizes.items()]))

    def rendered(self, render: Callable[[str], Any]) -> Stages:
        """Return the division of a run, whose seed may be a template."""
        return replace(self, seed=str(render(self.seed)))

    def divide(self, people: Iterable[tuple[bytes, int]]) -> dict[str, array[int]]:
        """Return the numbers of the rows of each stage.

        Only the last stages have nobody, if there are fewer people than stages.

        :raises AirflowFailException: there are more people than ``sizes``.
        """
        places, numbers, bins = array("Q"), array("I"), Counter[int]()
        key_of_hash = sha256(self.seed.encode()).digest()
        for key, number in people:
            place = int.from_bytes(blake2b(key, digest_size=8, key=key_of_hash).digest())
            places.append(place)
            numbers.append(number)
            bins[place // BINS**3] += 1
        borders = _borders(places, bins, self._ends(len(places)))
        stages = {name: array("I") for name in self.names}
        in_order = list(stages.values())
        for place, number in zip(places, numbers, strict=True):
            in_order[bisect_right(borders, place)].append(number)
        return stages

    def _ends(self, count: int) -> list[int]:
        """Return how many people are in all stages up to each one but the last."""
        ends: list[int] = []
        if self.sizes is None:
            for share in [*self.shares.values()][:-1]:
                # One person at least, so that the gate has something to judge. Floats may be slightly too large.
                least = ends[-1] + 1 if ends else 1
                ends.append(min(count, max(least, ceil(share * count - 1e-9))))
            return ends
        sizes = list(self.sizes.values())
        for size in sizes:
            ends.append(min(count, size + (ends[-1] if ends else 0)))
        if ends.pop() < count:
            more = -((sum(sizes) - count) // sizes[-1])
            raise AirflowFailException(
                f"ramp: its {len(sizes)} days have room for {sum(sizes):,} people, and the source has {count:,}. "
                f"Nothing was sent. Continue with the last size on {more} more days: ramp=[..., *[{sizes[-1]:_}] * "
                f"{more}]. Days for which nobody is left are skipped, so more of them do no harm"
            )
        return ends


def _borders(places: Sequence[int], bins: Mapping[int, int], ends: Sequence[int]) -> list[int]:
    """Return, for each end, the place of the first person behind it; without sorting all places."""
    wanted: dict[int, list[tuple[int, int]]] = {}
    before, following, left = 0, 0, list(ends)
    for bin_ in sorted(bins):
        following += bins[bin_]
        while left and left[0] < following:
            wanted.setdefault(bin_, []).append((len(ends) - len(left), left.pop(0) - before))
        before = following
    in_bins: dict[int, list[int]] = {bin_: [] for bin_ in wanted}
    for place in places:
        if (bin_ := place // BINS**3) in in_bins:
            in_bins[bin_].append(place)
    borders = [1 << 64] * len(ends)
    for bin_, ranks in wanted.items():
        in_order = sorted(in_bins[bin_])
        for end, rank in ranks:
            borders[end] = in_order[rank]
    return borders


@dataclass(frozen=True, slots=True)
class TimeZones:
    """Divides people by the name of a time zone in a column.

    :param default: the zone of people without a valid one.
    """

    column: str
    default: str
    _zones: dict[str, int] = field(default_factory=dict)
    _zone_of: array[int] = field(default_factory=lambda: array("H"))
    """The index in `_zones` of each row, by its number."""

    @property
    def plan(self) -> str:
        return _digest(self.column, self.default)

    def rendered(self, render: Callable[[str], Any]) -> TimeZones:
        """Return the division of one try."""
        return TimeZones(self.column, self.default)

    def noted(self, batches: Iterable[SelectedRows], columns: Sequence[str]) -> Iterator[SelectedRows]:
        """Note the zone of each row that passes.

        :raises AirflowFailException: the source has no such column.
        """
        if self.column not in columns:
            raise AirflowFailException(
                f"time_zone_column: the source has no {self.column!r}; it has {', '.join(columns)}"
            )
        position, width = columns.index(self.column), len(columns)
        for rows in batches:
            for row, number in zip(rows, rows.numbers, strict=True):
                text = row[position] if len(row) == width else None
                text = text.strip() if isinstance(text, str) else ""
                zone = self._zones.setdefault(text if is_zone(text) else "", len(self._zones))
                self._zone_of.extend([0] * (number + 1 - len(self._zone_of)))
                self._zone_of[number] = zone
            yield rows

    def divide(self, people: Iterable[tuple[bytes, int]]) -> dict[str, array[int]]:
        """Return the numbers of the rows of each zone that has people."""
        zones: list[array[int]] = [array("I") for _ in self._zones]
        for _, number in people:
            zones[self._zone_of[number]].append(number)
        named: dict[str, array[int]] = {}
        for name, numbers in sorted(zip(self._zones, zones, strict=True)):
            if numbers:
                named.setdefault(name or self.default, array("I")).extend(numbers)
        return named


def shares_problem(shares: Any) -> str | None:
    """Return what is wrong with the shares of stages, and how to write them; ``None`` if nothing is."""
    example = 'Write {"canary": 0.01, "rest": 1}: the share of all people who have got the mail after each stage'
    if not isinstance(shares, Mapping) or not shares:
        return f"a dictionary with a stage is needed, not {type(shares).__name__}. {example}"
    begin = 0.0
    for name, end in shares.items():
        if not isinstance(name, str) or not name:
            return f"the name of a stage must be text, not {type(name).__name__}. {example}"
        if begin == 1:
            return f"{name}: the stage before it has the share 1 already, and nobody is left. {example}"
        if isinstance(end, bool) or not isinstance(end, int | float) or not begin < end <= 1:
            shown = f"{end:g}" if isinstance(end, int | float) else type(end).__name__
            return (
                f"{name}: must be a number above {begin:g}, the share before it, and at most 1, not {shown}. {example}"
            )
        begin = float(end)
    return None if begin == 1 else f"{name}: the last one must be 1, or people are left out. {example}"


def ramp_problem(ramp: Any) -> str | None:
    """Return what is wrong with the sizes of a ramp, and how to write them; ``None`` if nothing is."""
    example = "Write ramp=[2_000, 5_000, *[10_000] * 20]: the most people who are mailed on each day"
    if not isinstance(ramp, list | tuple) or not ramp:
        return (
            f"a list of sizes is needed, not {'an empty one' if ramp in ([], ()) else type(ramp).__name__}. {example}"
        )
    before = 1
    for day, size in enumerate(ramp, 1):
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            shown = size if isinstance(size, int | float) else type(size).__name__
            return f"day {day} must be a whole number of people, at least 1, not {shown}. {example}"
        if size < before:
            return f"day {day} has {size:,} people, fewer than the day before: a ramp goes up. {example}"
        before = size
    return None
