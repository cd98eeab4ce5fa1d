"""The stages of a mass mail: a stable division of the people who get it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Stage", "divide"]


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the people who get a mass mail; the same person is always in the same stage.

    A keyed hash of the address decides, so the order of the rows, other people and earlier runs do not matter.

    :param name: of the stage, such as ``canary``.
    :param begin: the share of people in the stages before it, from 0.
    :param end: the share of people in this stage and those before it, to 1.
    :param seed: another seed divides the people in another way.
    :param shares: of all stages, as for :func:`divide`.
    """

    name: str
    begin: float
    end: float
    seed: str
    shares: tuple[tuple[str, float], ...] = ()

    @property
    def plan(self) -> str:
        """A digest of the whole division; the lists of a stage show it, and so do the campaigns sent to them."""
        return hashlib.sha256(json.dumps([self.seed, self.shares]).encode()).hexdigest()[:8]

    def __contains__(self, key: str | None) -> bool:
        """Return whether a person is in this stage.

        :param key: identifies the person: the address in a form in which people are compared. A row without one,
            which the service would reject, is in the last stage.
        """
        if key is None:
            return self.end == 1
        digest = hashlib.blake2b(key.encode(), digest_size=8, key=hashlib.sha256(self.seed.encode()).digest()).digest()
        # With 53 bits, the quotient is exact and below 1.
        return self.begin <= (int.from_bytes(digest, "big") >> 11) / 2**53 < self.end

    def seeded(self, seed: str) -> Stage:
        """Return the stage with another seed, such as the one that a template renders."""
        return replace(self, seed=seed)


def divide(shares: Mapping[str, float], seed: str) -> list[Stage]:
    """Return the stages.

    :param shares: for each stage, in their order, the share of all people who have got the mail after it; the last one
        is 1. ``{"canary": 0.01, "early": 0.1, "rest": 1}`` mails one percent, nine more, and then all others.
    :param seed: divides the people in another way.
    :raises ValueError: naming the stage that is wrong.
    """
    if problem := shares_problem(shares):
        raise ValueError(f"shares: {problem}")
    stages: list[Stage] = []
    begin = 0.0
    for name, end in shares.items():
        stages.append(Stage(name, begin, float(end), seed))
        begin = float(end)
    ends = tuple((stage.name, stage.end) for stage in stages)
    return [replace(stage, shares=ends) for stage in stages]


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
