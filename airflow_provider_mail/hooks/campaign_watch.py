"""One poll for all waits on a connection inside a triggerer.

Each trigger asking for itself would cost a request per wait and interval. Instead what is being sent is listed once,
and only campaigns that are no longer (or not yet) in that list are asked for by name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Hashable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from airflow_provider_mail.api.campaigns import Campaign, GetCampaigns, MailStatus, find_campaign
from airflow_provider_mail.api.client import AsyncMailClient
from airflow_provider_mail.api.errors import MailError, MailIncompleteError
from airflow_provider_mail.api.waiting import Look
from airflow_provider_mail.hooks.watch import Part, Watch, joined

LIST_FROM = 4
"""From so many waits on, listing what is being sent is cheaper than asking for each by name."""

SETTLE_SECONDS = 5.0
"""A trigger that fires before the scheduler has noted the deferral can fail the task: nothing is looked at earlier."""

SHORTEST_INTERVAL = 0.1
"""Nobody may poll without a pause, whatever a sensor's `poke_interval` says."""


@dataclass(eq=False, kw_only=True)
class Wait(Part):
    """One trigger's part in a poll."""

    mail_name: str


@asynccontextmanager
async def campaign_looks(
    mail_conn_id: str, interval: float, mail_name: str, not_before: float = 0.0
) -> AsyncIterator[asyncio.Queue[tuple[Look, float]]]:
    """Take part in the running loop's polls of a connection; those that concern the campaign put a look in the queue.

    :param interval: seconds from one poll to the next; waits with different intervals have different polls.
    :param not_before: Unix time before which there is nothing to see, such as the send time.
    """
    interval = max(interval, SHORTEST_INTERVAL)
    wait = Wait(mail_name=mail_name, not_before=max(not_before, time.time() + min(interval, SETTLE_SECONDS)))
    watches = _watches.setdefault(asyncio.get_running_loop(), {})
    async with joined(watches, (mail_conn_id, interval), lambda: CampaignWatch(mail_conn_id, interval), wait):
        yield wait.looks


class CampaignWatch(Watch[Wait]):
    """Lists what is being sent, and asks by name for campaigns that are not (or no longer) in that list."""

    async def look(self, client: AsyncMailClient, due: Collection[Wait]) -> Mapping[Wait, Look]:
        """What each campaign shows."""
        names = {wait.mail_name for wait in due}
        listed = await self._sending(client, names)
        rest = [name for name in names if name not in listed]
        looks = await asyncio.gather(*(self._look(client, name) for name in rest))
        found: dict[str, Look] = {**listed, **dict(zip(rest, looks, strict=True))}
        return {wait: found[wait.mail_name] for wait in due}

    async def _sending(self, client: AsyncMailClient, names: Collection[str]) -> dict[str, Look]:
        """Those that the list of what is being sent holds, as far as reading it is cheaper than asking for each."""
        found: dict[str, Look] = {}
        if len(names) < LIST_FROM:
            return found
        pages = 0
        listing: AsyncIterator[list[Campaign]] = client.pages(
            GetCampaigns(mail_status=[MailStatus.SENDING], page_size=100)
        )
        # A list that changes while it is read proves nothing, and need not: who is not in it is asked for by name.
        with suppress(MailIncompleteError):
            async with aclosing(listing):  # type: ignore[type-var]
                async for page in listing:
                    pages += 1
                    found |= {campaign.mail_name: campaign for campaign in page if campaign.mail_name in names}
                    if len(found) == len(names) or pages >= len(names) / 2:
                        break
        return found

    async def _look(self, client: AsyncMailClient, name: str) -> Look:
        try:
            return await client.run(find_campaign(name))
        except MailError as error:
            return error


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, CampaignWatch]] = WeakKeyDictionary()
