"""Each person is in exactly one part, always the same, and the stages have the sizes that were asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail._task.division import Stages, TimeZones, ramp_problem, shares_problem
from airflow_provider_mail.api.flows.import_contacts import SelectedRows
from airflow_provider_mail.version_compat import AirflowFailException

SHARES = {"canary": 0.01, "early": 0.1, "rest": 1}


def people(count: int) -> list[tuple[bytes, int]]:
    return [(f"user{number}@example.com".encode(), number) for number in range(1, count + 1)]


def sizes(stages: Stages, count: int) -> list[int]:
    return [len(numbers) for numbers in stages.divide(people(count)).values()]


def ramp(*days: int, seed: str = "spring") -> Stages:
    return Stages({}, seed, {f"day_{day}": size for day, size in enumerate(days, 1)})


@st.composite
def shares(draw: st.DrawFn) -> dict[str, float]:
    ends = draw(st.lists(st.floats(1e-9, 1, exclude_max=True), unique=True, max_size=5))
    return {f"stage {number}": end for number, end in enumerate([*sorted(ends), 1])}


@given(shares(), st.text(), st.integers(0, 300), st.randoms(use_true_random=False))
def test_everybody_is_in_exactly_one_stage(shares: dict[str, float], seed: str, count: int, random: Any) -> None:
    stages = Stages(shares, seed)
    parts = stages.divide(people(count))
    assert sorted(number for numbers in parts.values() for number in numbers) == list(range(1, count + 1))
    # Only the last ones have nobody: a gate that has nothing to judge would hold up the others.
    filled = [bool(numbers) for numbers in parts.values()]
    assert filled == sorted(filled, reverse=True)
    in_another_order = people(count)
    random.shuffle(in_another_order)
    again = stages.divide(in_another_order)
    assert [*map(sorted, again.values())] == [*map(sorted, parts.values())]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8).map(sorted), st.integers(0, 400))
def test_no_day_has_more_than_its_size(days: list[int], count: int) -> None:
    if count > sum(days):
        with pytest.raises(AirflowFailException, match="Continue with the last size on"):
            ramp(*days).divide(people(count))
        return
    found = sizes(ramp(*days), count)
    full = [size for size, most in zip(found, days, strict=True) if size == most]
    assert found == (full + [count - sum(full)] + [0] * len(days))[: len(days)]


def test_the_sizes_are_those_that_were_asked_for() -> None:
    assert sizes(Stages(SHARES, "spring"), 20_000) == [200, 1_800, 18_000]
    assert sizes(Stages(SHARES, "spring"), 2) == [1, 1, 0]
    assert sizes(ramp(2_000, 5_000, 10_000), 9_000) == [2_000, 5_000, 2_000]
    with pytest.raises(AirflowFailException) as raised:
        ramp(2_000, 5_000, 10_000).divide(people(40_000))
    assert "room for 17,000 people, and the source has 40,000" in str(raised.value)
    assert "ramp=[..., *[10_000] * 3]" in str(raised.value)
    assert sizes(ramp(2_000, 5_000, 10_000, *[10_000] * 3), 40_000)[-1] == 3_000


def test_another_seed_chooses_other_people() -> None:
    first, second = (set(Stages(SHARES, seed).divide(people(5_000))["canary"]) for seed in ("spring", "summer"))
    assert len(first & second) < len(first) / 10


def test_the_division_never_changes() -> None:
    """A later version must divide as this one does: a run may be resumed after an upgrade."""
    half = Stages({"half": 0.5, "rest": 1}, "spring").divide(people(12))["half"]
    assert sorted(half) == [3, 6, 7, 8, 11, 12]
    assert (Stages({"half": 0.5, "rest": 1}, "spring").plan, ramp(1, 2).plan) == ("aaccbbeb", "894e8397")


def test_a_column_names_the_zones() -> None:
    rows: list[Sequence[Any]] = [
        ["Europe/Berlin"], ["Asia/Tokyo"], [" Europe/Berlin "], [None], [""], [5], ["Mars/Crater"], [], ["UTC"],
    ]  # fmt: skip
    zones = TimeZones("tz", "Asia/Tokyo").rendered(str)
    (passed,) = zones.noted([SelectedRows(rows, [*range(1, 10)])], ["tz"])
    assert passed == rows
    parts = zones.divide(people(9))
    assert {name: sorted(numbers) for name, numbers in parts.items()} == {
        "Europe/Berlin": [1, 3], "Asia/Tokyo": [2, 4, 5, 6, 7, 8], "UTC": [9],
    }  # fmt: skip
    with pytest.raises(AirflowFailException, match="time_zone_column: the source has no 'tz'; it has email"):
        next(zones.noted([], ["email"]))


@pytest.mark.parametrize(
    ("shares", "problem"),
    [
        ({}, "a dictionary with a stage is needed"),
        ({"a": 0.5}, "a: the last one must be 1"),
        ({"a": 0.5, "b": 0.5, "c": 1}, "b: must be a number above 0.5, the share before it, and at most 1, not 0.5"),
        ({"a": 2}, "a: must be a number above 0"),
        ({"a": "1"}, "a: must be a number above 0"),
        ({"a": True}, "a: must be a number above 0"),
    ],
)
def test_what_are_no_stages(shares: Mapping[str, Any], problem: str) -> None:
    assert problem in str(shares_problem(shares))


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        ([], "a list of sizes is needed, not an empty one. Write ramp=[2_000, "),
        (2_000, "a list of sizes is needed, not int"),
        ("2000", "a list of sizes is needed, not str"),
        ([2_000, 0], "day 2 must be a whole number of people, at least 1, not 0"),
        (["2_000"], "day 1 must be a whole number of people, at least 1, not str"),
        ([0.1, 1], "day 1 must be a whole number of people, at least 1, not 0.1"),
        ([True], "day 1 must be a whole number of people, at least 1, not True"),
        ([5_000, 2_000], "day 2 has 2,000 people, fewer than the day before: a ramp goes up"),
    ],
)
def test_what_is_no_ramp(sizes: Any, problem: str) -> None:
    assert problem in str(ramp_problem(sizes))
