"""One statistics request for all campaigns on a connection whose counts somebody in this triggerer waits for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from airflow_provider_mail._polling.shared_poller import SharedPoller, WaitPart
from airflow_provider_mail.api.campaigns import GetCampaignStats
from airflow_provider_mail.api.client import AsyncMailClient
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.flows.statistics import campaign_stats
from airflow_provider_mail.api.flows.wait_stats import Days, StatsLook, by_name


@dataclass(eq=False, kw_only=True)
class StatsPart(WaitPart):
    """One trigger's part: the campaign, and the days in which it was or may be sent.

    :param days: may be changed between two looks.
    """

    mail_name: str
    days: Days


class StatsWatch(SharedPoller[StatsPart]):
    """Asks once for each stretch of days in which campaigns that are waited for were sent."""

    async def look(self, client: AsyncMailClient, due: Collection[StatsPart]) -> Mapping[StatsPart, StatsLook]:
        """What each stretch holds for the parts that lie in it."""
        found: dict[StatsPart, StatsLook] = {}
        for start_day, end_day in stretches(part.days for part in due):
            within = [part for part in due if start_day <= part.days[0] <= end_day]
            names = {part.mail_name for part in within}
            only = next(iter(names)) if len(names) == 1 else None
            request = GetCampaignStats(start_date=start_day, end_date=end_day, mail_name=only)
            try:
                records = by_name(await client.run(campaign_stats(request)))
            except MailError as error:
                # A day that cannot be read must not hold up those who wait for others.
                found |= dict.fromkeys(within, error)
            else:
                found |= {part: records.get(part.mail_name) for part in within}
        return found


def stretches(windows: Iterable[Days]) -> list[Days]:
    """The windows' days as few windows that neither overlap nor touch."""
    merged: list[Days] = []
    for start_day, end_day in sorted(windows):
        if merged and start_day <= merged[-1][1] + timedelta(days=1):
            merged[-1] = merged[-1][0], max(merged[-1][1], end_day)
        else:
            merged.append((start_day, end_day))
    return merged
