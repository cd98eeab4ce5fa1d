"""Trigger for final statistics."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.api.flows.waits import MAX_STATS_PAUSE, StatsStabilityTracker
from airflow_provider_mail.triggers.campaigns import BaseWaitTrigger

if TYPE_CHECKING:
    from airflow_provider_mail._polling.shared_poller import SharedPoller, WaitSubscription

__all__ = ["MailStatsSettledTrigger"]


@dataclass(kw_only=True, eq=False, repr=False)
class MailStatsSettledTrigger(BaseWaitTrigger):
    """Fire when the statistics of a campaign are final, when they disappear, or when the wait times out.

    The event contains ``status``, ``name`` (the campaign), ``message`` and ``result`` (the final record). Observations
    do not survive a restart of the triggerer: the trigger then continues from ``state``.

    :param mail_conn_id: the connection to the service.
    :param mail_name: the exact name of the campaign.
    :param start_day: the first day, ``YYYY-MM-DD``, on which the campaign may have been sent.
    :param end_day: the last such day. Default: the day of the poll.
    :param stable_checks: the number of consecutive observations that must find the same counts. Default: none; only
        ``max_age`` ends the wait.
    :param min_interval: the minimum seconds between observations. Default: 0.
    :param max_age: seconds after the send time at which counts are final even if they still change. Default: never.
    :param state: the state of the previous polls, as `StatsStabilityTracker.state`. Default: none.
    :param poke_interval: seconds between polls; all waits with the same connection and interval share their polls.
        Default: 60.
    :param end_time: Unix time at which the wait times out, even after restarts of the triggerer. Default: never.
    :param poll_error_timeout: the wait fails only after consecutive polls have failed for this many seconds. Default:
        600.
    """

    mail_conn_id: str
    mail_name: str
    start_day: str
    end_day: str | None = None
    stable_checks: int | None = None
    min_interval: float = 0.0
    max_age: float | None = None
    state: dict[str, Any] | None = None
    poke_interval: float = 60.0
    end_time: float | None = None
    poll_error_timeout: float = 600.0

    def subscription(self, **options: Any) -> tuple[type[SharedPoller[Any]], WaitSubscription[Any]]:
        from airflow_provider_mail._polling.pollers import StatsPoller, StatsSubscription

        tracker = StatsStabilityTracker(
            self.mail_name,
            stable_checks=self.stable_checks,
            min_interval=self.min_interval,
            max_age=self.max_age,
            state=self.state,
            **options,
        )
        end_day = date.fromisoformat(self.end_day) if self.end_day else None
        tracker.window = date.fromisoformat(self.start_day), end_day
        pause = min(max(tracker.not_before - time.time(), 0.0), MAX_STATS_PAUSE)
        return StatsPoller, StatsSubscription(wait=tracker, due=time.monotonic() + pause)
