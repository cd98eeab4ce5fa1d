"""When the wait for a campaign ends, and how: the rules, read off all polls instead of counted along them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

CONFIRM_SECONDS, POLL_ERROR_TIMEOUT = 300.0, 600.0


@dataclass(frozen=True)
class Poll:
    """What one poll showed; times are the service's."""

    at: float
    status: int | None = None
    """The `mailStatus`; `None` if there is no such campaign."""
    send_at: float | None = None
    error: str = ""
    """"temporary" or "rejected"; empty if the poll succeeded."""

    def is_ahead(self, tolerance: float = 0.0) -> bool:
        """Whether the send time has not come yet."""
        return self.send_at is not None and self.send_at - tolerance > self.at


def expected(
    polls: Sequence[Poll],
    *,
    seen: bool | None = False,
    polled_before: bool = True,
    timeout: float = POLL_ERROR_TIMEOUT,
    tolerance: float = 0.0,
) -> str:
    """Return the status of a wait after its last poll.

    :param tolerance: by how many seconds the send time may be taken for earlier.
    """
    last, good = polls[-1], [poll for poll in polls if not poll.error]
    if last.error:
        if last.error == "rejected" and not polled_before and not good:
            return "refused"
        is_over = _lasts(polls, lambda poll: bool(poll.error), more_than=2, seconds=timeout)
        return {"temporary": "error", "rejected": "refused"}[last.error] if is_over else "waiting"
    if last.status is None:
        existed = seen or any(poll.status is not None for poll in good)
        return "failed" if existed and _lasts(good, lambda poll: poll.status is None) else "waiting"
    if last.status == -1:
        is_idle = _lasts(good, lambda poll: poll.status == -1 and not poll.is_ahead(tolerance))
        return "failed" if is_idle else "waiting"
    return {2: "complete", 4: "failed"}.get(last.status, "waiting")


def _lasts(
    polls: Sequence[Poll], same: Callable[[Poll], bool], more_than: int = 1, seconds: float = CONFIRM_SECONDS
) -> bool:
    """Whether the last polls showed the same, in so many polls and for so long."""
    row = list(takewhile(same, reversed(polls)))
    return len(row) > more_than and row[0].at - row[-1].at >= seconds
