"""What recipients do adds up; that events and counts agree at any time is in `test_inbox` and `test_webhooks`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mail_emulator import EmulatorSettings
from mail_emulator.recipient_behavior import expected_reactions, random_values

RATES = ("hard_bounce_rate", "soft_bounce_rate", "open_rate", "click_rate", "unsubscribe_rate", "spam_rate")
settings = st.builds(
    EmulatorSettings,
    seed=st.integers(0, 10),
    engagement_days=st.floats(0.01, 60),
    engagement_half_hours=st.floats(0.1, 200),
    **{name: st.floats(0, 1) for name in RATES},
)


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
