"""One poll for all triggers on a connection that wait for the statistics of campaigns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from airflow_provider_mail._polling.shared_poller import MailPoller, Report, WaitSubscription
from airflow_provider_mail.api.campaigns import GetCampaignStats
from airflow_provider_mail.api.client import AsyncMailClient
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.flows.statistics import campaign_stats
from airflow_provider_mail.api.flows.waits import Days, StatsPollResult, by_name


@dataclass(eq=False, kw_only=True, slots=True)
class StatsSubscription(WaitSubscription):
    """The subscription of a trigger that waits for the statistics of a campaign.

    :param mail_name: the campaign's exact name.
    :param days: the days on which it was or may be sent; may change between polls.
    """

    mail_name: str
    days: Days


class StatsPoller(MailPoller[StatsSubscription]):
    """Requests the statistics once for each range of days on which the awaited campaigns were sent.

    :param interval: seconds between polls.
    """

    async def poll(
        self, client: AsyncMailClient, due: Collection[StatsSubscription], report: Report[StatsSubscription]
    ) -> None:
        windows = merge_windows(subscription.days for subscription in due)
        # Group before the first report, which may change the days.
        groups = [
            (first, last, [subscription for subscription in due if first <= subscription.days[0] <= last])
            for first, last in windows
        ]
        for start_day, end_day, within in groups:
            names = {subscription.mail_name for subscription in within}
            only = next(iter(names)) if len(names) == 1 else None
            request = GetCampaignStats(start_date=start_day, end_date=end_day, mail_name=only)
            records: Mapping[str, StatsPollResult]
            try:
                records = by_name(await client.run(campaign_stats(request)))
            except MailError as error:
                # A day that cannot be read must not block the waits for other days.
                records = dict.fromkeys(names, error)
            for subscription in within:
                report(subscription, records.get(subscription.mail_name))


def merge_windows(windows: Iterable[Days]) -> list[Days]:
    """Merge windows of days that overlap or are adjacent.

    :param windows: in any order.
    :return: the merged windows in order.
    """
    merged: list[Days] = []
    for start_day, end_day in sorted(windows):
        if merged and start_day <= merged[-1][1] + timedelta(days=1):
            merged[-1] = merged[-1][0], max(merged[-1][1], end_day)
        else:
            merged.append((start_day, end_day))
    return merged
