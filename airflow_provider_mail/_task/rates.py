"""Rates of counts with confidence bounds, and their comparison with limits and with each other."""

from __future__ import annotations

from dataclasses import dataclass
from math import erfc, sqrt
from statistics import NormalDist


@dataclass(frozen=True, slots=True)
class Rate:
    """A count as a share of the mails that were sent, compared with a limit.

    :param name: of the counter.
    :param count: the number of mails that it counts.
    :param sent: the number of mails that were sent.
    :param limit: the largest acceptable share.
    :param confidence: the probability with which the true share is below ``upper``, and with which it is above
        ``lower``.
    """

    name: str
    count: int
    sent: int
    limit: float
    confidence: float

    @property
    def share(self) -> float:
        """The observed share; 0 if nothing was sent."""
        return self.count / self.sent if self.sent else 0.0

    @property
    def lower(self) -> float:
        """The lower bound of the true share."""
        return wilson_bounds(self.count, self.sent, self.confidence)[0]

    @property
    def upper(self) -> float:
        """The upper bound of the true share."""
        return wilson_bounds(self.count, self.sent, self.confidence)[1]

    @property
    def verdict(self) -> str:
        """``ok`` if the true share is below the limit, ``exceeded`` if it is above, else ``not shown``."""
        if self.upper <= self.limit:
            return "ok"
        return "exceeded" if self.lower > self.limit else "not shown"

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.count:,} of {self.sent:,} ({self.share:.2%}), the true share lies between "
            f"{self.lower:.2%} and {self.upper:.2%}; the limit is {self.limit:.2%}"
        )


def wilson_bounds(count: int, total: int, confidence: float) -> tuple[float, float]:
    """Return the bounds of Wilson's score interval of a share, each with the given confidence.

    Unlike the quotient plus or minus its error, they are right for few mails and for counts near zero.

    :param count: at most ``total``.
    :param total: 0 gives the bounds 0 and 1.
    :param confidence: of each bound, such as 0.95.
    """
    if not total:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(confidence)
    share, weight = count / total, z * z / total
    center = share + weight / 2
    margin = z * sqrt(share * (1 - share) / total + weight / (4 * total))
    return max(0.0, (center - margin) / (1 + weight)), min(1.0, (center + margin) / (1 + weight))


def two_proportion_test(count_a: int, sent_a: int, count_b: int, sent_b: int) -> tuple[float, float]:
    """Return z and the p-value of the two-proportion z-test with a pooled standard error, two-sided.

    The p-value is the probability that equal true shares lead to a difference at least as large as the observed one. z
    is positive if the share of ``a`` is the larger one. It is 0, and the p-value 1, if nothing was sent, or if both
    shares are 0 or 1.

    :param count_a: at most ``sent_a``.
    :param count_b: at most ``sent_b``.
    """
    pooled = (count_a + count_b) / (sent_a + sent_b or 1)
    if not (sent_a and sent_b and 0 < pooled < 1):
        return 0.0, 1.0
    error = sqrt(pooled * (1 - pooled) * (1 / sent_a + 1 / sent_b))
    z = (count_a / sent_a - count_b / sent_b) / error
    # 1 - cdf(z) has no correct digit for a large z.
    return z, erfc(abs(z) / sqrt(2))
