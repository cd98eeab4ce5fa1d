"""One poll for all triggers on a connection that wait for campaigns.

A request per trigger and interval would not scale. Campaigns that are being sent are listed once, and only those that
are not in that list are requested by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass

from airflow_provider_mail._polling.shared_poller import SharedPoller, WaitSubscription
from airflow_provider_mail.api.campaigns import Campaign, GetCampaigns, MailStatus, find_campaign
from airflow_provider_mail.api.client import AsyncMailClient
from airflow_provider_mail.api.errors import MailError, MailIncompleteError
from airflow_provider_mail.api.flows.wait_campaign import PollResult

LIST_FROM = 4
"""From this many waits on, listing the campaigns that are being sent is cheaper than requesting each by name."""


@dataclass(eq=False, kw_only=True)
class CampaignSubscription(WaitSubscription):
    """The subscription of a trigger that waits for a campaign.

    :param mail_name: the campaign's exact name.
    """

    mail_name: str


class CampaignPoller(SharedPoller[CampaignSubscription]):
    """Lists the campaigns that are being sent; requests those that are not in the list by name.

    :param mail_conn_id: the connection.
    :param interval: seconds between polls.
    """

    def __init__(self, mail_conn_id: str, interval: float) -> None:
        super().__init__(mail_conn_id, interval)
        self._drafts: set[str] = set()
        """Names of campaigns that showed as a draft, as scheduled ones may: drafts are listed for them as well."""

    async def poll(
        self, client: AsyncMailClient, due: Collection[CampaignSubscription]
    ) -> Mapping[CampaignSubscription, PollResult]:
        names = {each.mail_name for each in due}
        found = await self._listed(client, names)
        missing = [name for name in names if name not in found]
        results = await asyncio.gather(*(self._find(client, name) for name in missing))
        found |= dict(zip(missing, results, strict=True))
        self._drafts &= {each.mail_name for each in self._subscriptions} - names
        shown = {name for name, it in found.items() if isinstance(it, Campaign) and it.mail_status == MailStatus.DRAFT}
        self._drafts |= shown
        return {each: found[each.mail_name] for each in due}

    async def _listed(self, client: AsyncMailClient, names: Collection[str]) -> dict[str, PollResult]:
        """List campaigns by status, as far as reading the list is cheaper than requesting each by name."""
        found: dict[str, PollResult] = {}
        if len(names) < LIST_FROM:
            return found
        drafts = len(self._drafts.intersection(names)) >= LIST_FROM
        statuses = [MailStatus.DRAFT, MailStatus.SENDING] if drafts else [MailStatus.SENDING]
        pages = 0
        listing: AsyncIterator[list[Campaign]] = client.pages(GetCampaigns(mail_status=statuses, page_size=100))
        # The list may change while it is read; campaigns that are not in it are requested by name.
        with suppress(MailIncompleteError):
            async with aclosing(listing):  # type: ignore[type-var]
                async for page in listing:
                    pages += 1
                    found |= {campaign.mail_name: campaign for campaign in page if campaign.mail_name in names}
                    if len(found) == len(names) or pages >= len(names) / 2:
                        break
        return found

    async def _find(self, client: AsyncMailClient, name: str) -> PollResult:
        try:
            return await client.run(find_campaign(name))
        except MailError as error:
            return error
