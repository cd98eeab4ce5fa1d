"""Reactions of recipients: deterministic by the seed, spread over virtual days.

The share of openers that has opened grows as ``1 - 2 ** (-t / half)``, scaled to 1 at the end of ``engagement_days``.
Counts and the times of single events come from this curve, so they agree. Times are milliseconds since the mail was
sent.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from mail_emulator.settings import EmulatorSettings

_HOUR = 3_600_000
#: Milliseconds between a repeated open and the first.
REOPENED_AFTER = _HOUR


def random_values(settings: EmulatorSettings, *about: object) -> list[float]:
    """Return eight numbers in [0, 1), determined by the seed and the arguments."""
    text = repr((settings.seed, *about)).encode()
    digest = hashlib.blake2b(text, digest_size=64).digest()
    return [int.from_bytes(digest[at : at + 8], "big") / 2**64 for at in range(0, 64, 8)]


def end_ms(settings: EmulatorSettings) -> int:
    """Milliseconds after which no recipient reacts."""
    return int(settings.engagement_days * 24 * _HOUR)


def share_at(elapsed_ms: int, settings: EmulatorSettings) -> float:
    """Return the share of all reactions that has happened after these milliseconds."""
    horizon, half = end_ms(settings), settings.engagement_half_hours * _HOUR
    if elapsed_ms <= 0:
        return 0.0
    if elapsed_ms >= horizon:
        return 1.0
    return (1 - 2 ** (-elapsed_ms / half)) / (1 - 2 ** (-horizon / half))


def time_of_share(share: float, settings: EmulatorSettings) -> int:
    """Milliseconds until this share of reactions has happened: the inverse of ``share_at``."""
    horizon, half = end_ms(settings), settings.engagement_half_hours * _HOUR
    return min(horizon, math.ceil(-half * math.log2(1 - share * (1 - 2 ** (-horizon / half)))))


@dataclass(frozen=True)
class ExpectedReactions:
    """Final numbers of a campaign: bounces, opens, clicks, unsubscriptions and complaints.

    Recipients are ranked: hard bounces, then soft bounces, then openers. The first openers click and unsubscribe, the
    last ones complain.
    """

    sent: int
    hard: int
    soft: int
    opens: int
    clicks: int
    unsubscribes: int
    spam: int

    @property
    def bounced(self) -> int:
        return self.hard + self.soft


def expected_reactions(
    sent: int, settings: EmulatorSettings, *about: object, clickable: bool = True
) -> ExpectedReactions:
    """Return the final numbers of a campaign: the rates of the settings, varied by up to 15 %."""
    swing = [0.85 + 0.3 * chance for chance in random_values(settings, "prospect", *about)]
    hard = _count(sent, settings.hard_bounce_rate * swing[0])
    soft = min(_count(sent, settings.soft_bounce_rate * swing[1]), sent - hard)
    delivered = sent - hard - soft
    opens = _count(delivered, settings.open_rate * swing[2])
    clicks = min(_count(delivered, settings.click_rate * swing[3]), opens) if clickable else 0
    unsubscribes = min(_count(delivered, settings.unsubscribe_rate * swing[4]), opens)
    spam = min(_count(delivered, settings.spam_rate * swing[5]), opens)
    return ExpectedReactions(sent, hard, soft, opens, clicks, unsubscribes, spam)


def _count(whole: int, rate: float) -> int:
    return min(whole, round(whole * rate))


def count_at(final: int, elapsed_ms: int, settings: EmulatorSettings) -> int:
    """Return how many of ``final`` reactions have happened after these milliseconds."""
    return math.floor(final * share_at(elapsed_ms, settings) + 0.5)


def time_of_reaction(place: int, final: int, settings: EmulatorSettings) -> int:
    """Milliseconds until the reaction at this position (0 is the first) of ``final``."""
    return time_of_share((place + 0.5) / final, settings)
