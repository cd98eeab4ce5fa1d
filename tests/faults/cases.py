"""Cases: which fault strikes which request, how often in a row. Made from a run without faults, never by hand.

A workload is run once as it should be, and the service's journal says which requests there are. Each of them is a
position. Behind a request that changes something and whose answer is lost there are more, such as the look-ups after a
creation: they are found by running the workload with that fault.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from airflow_provider_mail.api._core.requests import Effect
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.emulator.faults import FAULT_KINDS
from tests.faults.operations import effect_of
from tests.faults.variants import VARIANTS, Variant

EVERYTHING = bool(os.environ.get("MAIL_ALL_FAULTS"))
SEED = int(os.environ.get("MAIL_FAULT_SEED", "1"))

ATTEMPTS = 5
"""So often a client asks by itself; more faults in a row are for the task."""

FOREVER = None
IN_A_ROW: tuple[int | None, ...] = (1, 2, ATTEMPTS + 1, FOREVER)


@dataclass(frozen=True)
class Strike:
    """A fault that strikes so many requests in a row, after so many that it lets pass."""

    variant: Variant
    skip: int
    count: int | None = 1
    #: The only operation that it strikes.
    path: str = "*"

    def __str__(self) -> str:
        times = "for ever" if self.count is FOREVER else f"{self.count} in a row"
        where = "" if self.path == "*" else f" of {self.path}"
        return f"{self.variant} at request {self.skip}{where}, {times}"

    def arrange(self, service: Emulator, where: Mapping[str, Any] | None = None) -> int:
        """Let it wait for its requests, of all or of those with these fields."""
        return service.faults.add(
            self.variant.kind.name, self.path, count=self.count, skip=self.skip, where=where, **self.variant.params
        )


@dataclass(frozen=True)
class Case:
    """The faults of one run of a workload.

    :param position: the request that the last of them strikes first, and its effect.
    :param follows_loss: whether a request before it was carried out and its answer lost.
    :param kill: at which request the worker dies, and whether ``before`` it is sent or ``after`` its answer.
    :param wild: whether the faults were drawn at random, so that nothing is known of how they meet.
    """

    strikes: tuple[Strike, ...]
    position: int
    effect: Effect
    follows_loss: bool = False
    kill: tuple[int, str] | None = None
    wild: bool = False

    def __str__(self) -> str:
        died = [f"the worker dies {self.kill[1]} request {self.kill[0]}"] if self.kill else []
        return "; then ".join([*map(str, self.strikes), *died]) or "no fault"

    @classmethod
    def none(cls) -> Case:
        """No fault at all."""
        return cls((), 0, Effect.READ)

    @property
    def variant(self) -> Variant:
        return self.strikes[-1].variant

    @property
    def is_hasty(self) -> bool:
        return any(strike.variant.takes_time for strike in self.strikes)

    def passes(self, adopts: bool) -> bool:
        """Whether the faults are over before anybody's patience is, so that all must end well.

        :param adopts: whether a creation that may have succeeded is looked up.
        """
        if self.wild or not self.strikes:
            return False
        variant, count = self.variant, self.strikes[-1].count
        if variant.harmless and len(self.strikes) == 1:
            return True
        if count is FOREVER or count > ATTEMPTS - 2 or not variant.passes:
            return False
        if self.effect in (Effect.CREATE, Effect.SEND) and not variant.waits:
            return adopts and self.effect is Effect.CREATE and not variant.looks_kept
        return adopts or not self.follows_loss or self.effect is Effect.READ


LOST = Variant(FAULT_KINDS["reset_after"])


def all_cases(paths: Sequence[str], behind: Mapping[int, Sequence[str]]) -> Iterator[Case]:
    """All cases of a workload.

    :param paths: the requests of a run without faults.
    :param behind: by the position of a request whose answer is lost, all requests of such a run.
    """
    yield from _at(paths, range(len(paths)), ())
    for lost, detour in behind.items():
        first = Strike(LOST, skip=lost)
        yield from _at(detour, range(lost + 1, len(detour)), (first,))


def _at(paths: Sequence[str], positions: range, before: tuple[Strike, ...]) -> Iterator[Case]:
    for position, variant, count in product(positions, VARIANTS, IN_A_ROW):
        path = paths[position]
        if not variant.fits(path) or (variant.takes_time and count not in (1, 2)):
            continue
        if variant.kind.operations is None:
            # A fault that was passed by another one which struck has counted that request too.
            strike = Strike(variant, skip=position, count=count)
        else:
            strike = Strike(variant, skip=list(paths[:position]).count(path), count=count, path=path)
        yield Case((*before, strike), position, effect_of(path), follows_loss=bool(before))


def deaths(paths: Sequence[str]) -> Iterator[Case]:
    """A worker that dies before and after each request."""
    for position, path in enumerate(paths):
        for when in ("before", "after"):
            yield Case((), position, effect_of(path), kill=(position, when))


SLOW_SHARE, BEHIND_SHARE = 0.3, 0.4
"""What is kept of the faults that take real time, and of second faults."""


def some(cases: Sequence[Case], seed: str, share: float = 1.0) -> list[Case]:
    """All cases, if that is wanted; else each fault once, at the position and as often as the others were least.

    :param share: of what would be chosen.
    """
    if EVERYTHING:
        return list(cases)
    dice = random.Random(f"{SEED} {seed}")
    groups: dict[tuple[bool, str], list[Case]] = {}
    for case in dice.sample(cases, len(cases)):
        groups.setdefault((case.follows_loss, case.variant.kind.name), []).append(case)
    met: Counter[tuple[str, int | None]] = Counter()

    def known(case: Case) -> int:
        return met["position", case.position] + met["count", case.strikes[-1].count]

    chosen = []
    for (follows_loss, _), group in groups.items():
        kept = share * (BEHIND_SHARE if follows_loss else 1.0)
        if dice.random() < kept * (SLOW_SHARE if group[0].variant.takes_time else 1.0):
            case = min(group, key=known)
            met.update([("position", case.position), ("count", case.strikes[-1].count)])
            chosen.append(case)
    return chosen
