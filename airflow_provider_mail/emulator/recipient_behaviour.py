"""What recipients do with mail, and when: deterministic by the seed, growing over virtual days.

Of all who will ever open, the share that has done so grows as ``1 - 2 ** (-t / half)``, brought to exactly 1 at the end
of ``engagement_days``. Counts and the moments of single events come from this one curve, so they always agree.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from airflow_provider_mail.emulator.settings import EmulatorSettings

_HOUR = 3_600_000
#: Who opens once more does so this many milliseconds later.
REOPENED_AFTER = _HOUR


def chances(settings: EmulatorSettings, *about: object) -> list[float]:
    """Eight numbers in [0, 1), the same for the same seed and the same things."""
    text = repr((settings.seed, *about)).encode()
    digest = hashlib.blake2b(text, digest_size=64).digest()
    return [int.from_bytes(digest[at : at + 8], "big") / 2**64 for at in range(0, 64, 8)]


def horizon_ms(settings: EmulatorSettings) -> int:
    """After so many milliseconds nobody does anything any more."""
    return int(settings.engagement_days * 24 * _HOUR)


def share_at(elapsed_ms: int, settings: EmulatorSettings) -> float:
    """The share of all who will ever react that has reacted after so many milliseconds."""
    horizon, half = horizon_ms(settings), settings.engagement_half_hours * _HOUR
    if elapsed_ms <= 0:
        return 0.0
    if elapsed_ms >= horizon:
        return 1.0
    return (1 - 2 ** (-elapsed_ms / half)) / (1 - 2 ** (-horizon / half))


def moment_of(share: float, settings: EmulatorSettings) -> int:
    """Milliseconds until this share has reacted: the inverse of ``share_at``."""
    horizon, half = horizon_ms(settings), settings.engagement_half_hours * _HOUR
    return min(horizon, math.ceil(-half * math.log2(1 - share * (1 - 2 ** (-horizon / half)))))


@dataclass(frozen=True)
class Prospect:
    """How many of a campaign's recipients will bounce, open, click, unsubscribe or complain in the end.

    Recipients are ranked. First come hard bounces, then soft bounces, then the openers, of whom the first click, the
    first unsubscribe, and the last complain.
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


def prospect(sent: int, settings: EmulatorSettings, *about: object, clickable: bool = True) -> Prospect:
    """The prospect of a campaign: the rates of the settings, 15 % up or down from campaign to campaign."""
    swing = [0.85 + 0.3 * chance for chance in chances(settings, "prospect", *about)]
    hard = _part(sent, settings.hard_bounce_rate * swing[0])
    soft = min(_part(sent, settings.soft_bounce_rate * swing[1]), sent - hard)
    delivered = sent - hard - soft
    opens = _part(delivered, settings.open_rate * swing[2])
    clicks = min(_part(delivered, settings.click_rate * swing[3]), opens) if clickable else 0
    unsubscribes = min(_part(delivered, settings.unsubscribe_rate * swing[4]), opens)
    spam = min(_part(delivered, settings.spam_rate * swing[5]), opens)
    return Prospect(sent, hard, soft, opens, clicks, unsubscribes, spam)


def _part(whole: int, rate: float) -> int:
    return min(whole, round(whole * rate))


def count_at(final: int, elapsed_ms: int, settings: EmulatorSettings) -> int:
    """How many of ``final`` have reacted after so many milliseconds."""
    return math.floor(final * share_at(elapsed_ms, settings) + 0.5)


def moment_at(place: int, final: int, settings: EmulatorSettings) -> int:
    """After how many milliseconds the one at this place (0 is the first) of ``final`` reacts."""
    return moment_of((place + 0.5) / final, settings)
