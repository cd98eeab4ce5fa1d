"""One poll for all waits on a connection inside a triggerer.

Each trigger asking for itself would cost a request per wait and interval. Instead what is being sent is listed once,
and only campaigns that are no longer (or not yet) in that list are asked for by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass

from airflow_provider_mail._polling.shared_poller import SharedPoller, WaitPart
from airflow_provider_mail.api.campaigns import Campaign, GetCampaigns, MailStatus, find_campaign
from airflow_provider_mail.api.client import AsyncMailClient
from airflow_provider_mail.api.errors import MailError, MailIncompleteError
from airflow_provider_mail.api.flows.wait_campaign import PollResult

LIST_FROM = 4
"""From so many waits on, listing what is being sent is cheaper than asking for each by name."""


@dataclass(eq=False, kw_only=True)
class CampaignPart(WaitPart):
    """One trigger's part: the campaign's exact name."""

    mail_name: str


class CampaignWatch(SharedPoller[CampaignPart]):
    """Lists what is being sent, and asks by name for campaigns that are not (or no longer) in that list."""

    def __init__(self, mail_conn_id: str, interval: float) -> None:
        super().__init__(mail_conn_id, interval)
        self._drafts: set[str] = set()
        """Names of those that showed as a draft, as scheduled campaigns may: they are listed as well."""

    async def look(self, client: AsyncMailClient, due: Collection[CampaignPart]) -> Mapping[CampaignPart, PollResult]:
        """What each campaign shows."""
        names = {part.mail_name for part in due}
        listed = await self._listed(client, names)
        rest = [name for name in names if name not in listed]
        looks = await asyncio.gather(*(self._look(client, name) for name in rest))
        found: dict[str, PollResult] = {**listed, **dict(zip(rest, looks, strict=True))}
        self._drafts &= {part.mail_name for part in self._parts} - names
        self._drafts |= {name for name, look in found.items() if _is_draft(look)}
        return {part: found[part.mail_name] for part in due}

    async def _listed(self, client: AsyncMailClient, names: Collection[str]) -> dict[str, PollResult]:
        """Those that a list by status holds, as far as reading it is cheaper than asking for each."""
        found: dict[str, PollResult] = {}
        if len(names) < LIST_FROM:
            return found
        drafts = len(self._drafts.intersection(names)) >= LIST_FROM
        statuses = [MailStatus.DRAFT, MailStatus.SENDING] if drafts else [MailStatus.SENDING]
        pages = 0
        listing: AsyncIterator[list[Campaign]] = client.pages(GetCampaigns(mail_status=statuses, page_size=100))
        # A list that changes while it is read proves nothing, and need not: who is not in it is asked for by name.
        with suppress(MailIncompleteError):
            async with aclosing(listing):  # type: ignore[type-var]
                async for page in listing:
                    pages += 1
                    found |= {campaign.mail_name: campaign for campaign in page if campaign.mail_name in names}
                    if len(found) == len(names) or pages >= len(names) / 2:
                        break
        return found

    async def _look(self, client: AsyncMailClient, name: str) -> PollResult:
        try:
            return await client.run(find_campaign(name))
        except MailError as error:
            return error


def _is_draft(look: PollResult) -> bool:
    return isinstance(look, Campaign) and look.mail_status == MailStatus.DRAFT
