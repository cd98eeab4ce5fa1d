"""What recipients do: the counts and the single events come from one curve."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.emulator import EmulatorSettings
from airflow_provider_mail.emulator.recipient_behaviour import (
    count_at,
    end_ms,
    expected_reactions,
    random_values,
    share_at,
    time_of_reaction,
)

settings = st.builds(
    EmulatorSettings,
    seed=st.integers(0, 10),
    engagement_days=st.floats(0.01, 60),
    engagement_half_hours=st.floats(0.1, 200),
    hard_bounce_rate=st.floats(0, 1),
    soft_bounce_rate=st.floats(0, 1),
    open_rate=st.floats(0, 1),
    click_rate=st.floats(0, 1),
    unsubscribe_rate=st.floats(0, 1),
    spam_rate=st.floats(0, 1),
)


@given(settings, st.lists(st.integers(0, 10**10), min_size=2).map(sorted), st.integers(0, 100_000))
def test_counts_never_shrink_and_end_complete(settings: EmulatorSettings, moments: list[int], final: int) -> None:
    counts = [count_at(final, moment, settings) for moment in moments]
    assert counts == sorted(counts)
    assert count_at(final, 0, settings) == 0
    assert count_at(final, end_ms(settings), settings) == final
    assert 0 <= share_at(moments[0], settings) <= 1


@given(settings, st.integers(1, 10_000), st.data())
def test_an_event_happens_when_its_count_comes(settings: EmulatorSettings, final: int, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, final - 1))
    moment = time_of_reaction(place, final, settings)
    assert 0 < moment <= end_ms(settings)
    # A millisecond of leave for rounding.
    assert count_at(final, moment + 1, settings) >= place + 1
    assert count_at(final, moment - 2, settings) <= place


@given(settings, st.integers(0, 100_000), st.booleans())
def test_prospects_add_up(settings: EmulatorSettings, sent: int, clickable: bool) -> None:
    expected = expected_reactions(sent, settings, "name", clickable=clickable)
    assert expected == expected_reactions(sent, settings, "name", clickable=clickable)
    assert 0 <= expected.bounced <= sent
    assert 0 <= expected.opens <= sent - expected.bounced
    for part in (expected.clicks, expected.unsubscribes, expected.spam):
        assert 0 <= part <= expected.opens
    assert clickable or expected.clicks == 0


@given(st.integers(), st.text())
def test_chances_are_numbers_from_0_to_1(seed: int, about: str) -> None:
    drawn = random_values(EmulatorSettings(seed=seed), about)
    assert len(drawn) == 8
    assert all(0 <= chance < 1 for chance in drawn)
