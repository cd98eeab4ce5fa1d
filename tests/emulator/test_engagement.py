"""What recipients do: the counts and the single events come from one curve."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mail_emulator import EmulatorSettings
from mail_emulator.recipient_behavior import count_at, end_ms, expected_reactions, random_values, time_of_reaction

RATES = ("hard_bounce_rate", "soft_bounce_rate", "open_rate", "click_rate", "unsubscribe_rate", "spam_rate")
settings = st.builds(
    EmulatorSettings,
    seed=st.integers(0, 10),
    engagement_days=st.floats(0.01, 60),
    engagement_half_hours=st.floats(0.1, 200),
    **{name: st.floats(0, 1) for name in RATES},
)


@given(settings, st.lists(st.integers(0, 10**10), min_size=2).map(sorted), st.integers(0, 100_000))
def test_counts_never_shrink_and_end_complete(settings: EmulatorSettings, moments: list[int], final: int) -> None:
    counts = [count_at(final, moment, settings) for moment in moments]
    assert counts == sorted(counts)
    assert (count_at(final, 0, settings), count_at(final, end_ms(settings), settings)) == (0, final)


@given(settings, st.integers(1, 10_000), st.data())
def test_an_event_happens_when_its_count_comes(settings: EmulatorSettings, final: int, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, final - 1))
    moment = time_of_reaction(place, final, settings)
    assert 0 < moment <= end_ms(settings)
    # A millisecond of leave for rounding.
    assert count_at(final, moment + 1, settings) >= place + 1
    assert count_at(final, moment - 2, settings) <= place


@given(settings, st.integers(0, 100_000), st.booleans(), st.text())
def test_expected_reactions_add_up(settings: EmulatorSettings, sent: int, clickable: bool, name: str) -> None:
    expected = expected_reactions(sent, settings, name, clickable=clickable)
    assert expected == expected_reactions(sent, settings, name, clickable=clickable)
    assert 0 <= expected.opens <= sent - expected.bounced <= sent
    assert all(0 <= count <= expected.opens for count in (expected.clicks, expected.unsubscribes, expected.spam))
    assert clickable or expected.clicks == 0
    assert all(0 <= value < 1 for value in random_values(settings, name))


def test_the_seed_decides() -> None:
    assert random_values(EmulatorSettings(seed=1), "m") != random_values(EmulatorSettings(seed=2), "m")
