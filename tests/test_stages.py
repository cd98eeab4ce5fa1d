"""Each person is in exactly one stage, always the same, and the stages have the sizes that were asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.stages import Stage, divide

SHARES = {"canary": 0.01, "early": 0.1, "rest": 1}


@st.composite
def shares(draw: st.DrawFn) -> dict[str, float]:
    ends = draw(st.lists(st.floats(1e-9, 1, exclude_max=True), unique=True, max_size=5))
    return {f"stage {number}": end for number, end in enumerate([*sorted(ends), 1])}


@given(shares(), st.text(), st.none() | st.text())
def test_everybody_is_in_exactly_one_stage(shares: dict[str, float], seed: str, key: str | None) -> None:
    stages = divide(shares, seed)
    (only,) = [stage for stage in stages if key in stage]
    assert key in Stage(only.name, only.begin, only.end, seed)
    assert key is not None or only is stages[-1]


def test_the_sizes_are_those_that_were_asked_for() -> None:
    people = [f"user{number}@example.com" for number in range(20_000)]
    sizes = {stage.name: sum(key in stage for key in people) / len(people) for stage in divide(SHARES, "spring")}
    assert sizes == pytest.approx({"canary": 0.01, "early": 0.09, "rest": 0.9}, abs=0.004)


def test_another_seed_chooses_other_people() -> None:
    people = [f"user{number}@example.com" for number in range(5_000)]
    first, second = ({key for key in people if key in divide(SHARES, seed)[0]} for seed in ("spring", "summer"))
    assert len(first & second) < len(first) / 10


def test_the_division_never_changes() -> None:
    """A later version must divide as this one does: a run may be resumed after an upgrade."""
    names = [
        next(stage.name for stage in divide({"half": 0.5, "rest": 1}, "spring") if f"user{number}@example.com" in stage)
        for number in range(12)
    ]
    assert "".join(name[0] for name in names) == "hrrhrrhhrrrh"


@pytest.mark.parametrize(
    ("shares", "problem"),
    [
        ({}, "shares: a dictionary with a stage is needed"),
        ({"a": 0.5}, "shares: a: the last one must be 1"),
        (
            {"a": 0.5, "b": 0.5, "c": 1},
            "shares: b: must be a number above 0.5, the share before it, and at most 1, not 0.5",
        ),
        ({"a": 2}, "shares: a: must be a number above 0"),
        ({"a": "1"}, "shares: a: must be a number above 0"),
        ({"a": True}, "shares: a: must be a number above 0"),
    ],
)
def test_what_are_no_stages(shares: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        divide(shares, "seed")
