"""One poll for all waits on a connection inside a triggerer.

Each trigger asking for itself would cost a request per wait and interval. Instead what is being sent is listed once,
and only campaigns that are no longer (or not yet) in that list are asked for by name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from airflow_provider_mail.api.campaigns import Campaign, GetCampaigns, MailStatus, find_campaign
from airflow_provider_mail.api.client import AsyncMailClient
from airflow_provider_mail.api.errors import MailAuthError, MailConfigError, MailError
from airflow_provider_mail.api.waiting import Look

LIST_FROM = 4
"""From so many waits on, listing what is being sent is cheaper than asking for each by name."""

SETTLE_SECONDS = 5.0
"""A trigger that fires before the scheduler has noted the deferral can fail the task: nothing is looked at earlier."""


@dataclass(eq=False)
class _Wait:
    mail_name: str
    not_before: float
    looks: asyncio.Queue[Look] = field(default_factory=asyncio.Queue)


class CampaignWatch:
    """Polls for all waits that share a connection and an interval, as long as there are any.

    :param mail_conn_id: the connection; it is read again after the service has refused its credentials.
    :param interval: seconds from one poll to the next.
    """

    def __init__(self, mail_conn_id: str, interval: float) -> None:
        self._mail_conn_id = mail_conn_id
        self._interval = interval
        self._waits: set[_Wait] = set()
        self._client: AsyncMailClient | None = None
        self._polling: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def looks(self, mail_name: str, not_before: float = 0.0) -> AsyncIterator[asyncio.Queue[Look]]:
        """Take part: each poll that concerns the campaign puts one look into the queue.

        :param not_before: Unix time before which there is nothing to see, such as the send time.
        """
        wait = _Wait(mail_name, max(not_before, time.time() + min(self._interval, SETTLE_SECONDS)))
        self._waits.add(wait)
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll_on(), name=f"mail-watch-{self._mail_conn_id}")
        try:
            yield wait.looks
        finally:
            self._waits.discard(wait)
            if not self._waits and self._polling is not None:
                polling, self._polling = self._polling, None
                polling.cancel()

    async def _poll_on(self) -> None:
        try:
            while True:
                now = time.time()
                first = min(wait.not_before for wait in self._waits)
                await asyncio.sleep(max(first - now, 0.0))
                started = time.monotonic()
                await self._poll([wait for wait in self._waits if wait.not_before <= time.time()])
                await asyncio.sleep(max(self._interval - (time.monotonic() - started), 0.0))
        finally:
            await self._drop_client()

    async def _poll(self, due: list[_Wait]) -> None:
        by_name: dict[str, list[_Wait]] = {}
        for wait in due:
            by_name.setdefault(wait.mail_name, []).append(wait)
        sending: dict[str, Campaign] = {}
        try:
            client = await self._connected()
            if len(by_name) >= LIST_FROM:
                async for page in client.pages(GetCampaigns(mail_status=[MailStatus.SENDING], page_size=100)):
                    sending |= {campaign.mail_name: campaign for campaign in page}
        except MailError as error:
            await self._failed(error)
            for wait in due:
                wait.looks.put_nowait(error)
            return
        await asyncio.gather(*(self._look(client, name, waits, sending.get(name)) for name, waits in by_name.items()))

    async def _look(self, client: AsyncMailClient, name: str, waits: list[_Wait], listed: Campaign | None) -> None:
        look: Look = listed
        if listed is None:
            try:
                look = await client.run(find_campaign(name))
            except MailError as error:
                await self._failed(error)
                look = error
        for wait in waits:
            wait.looks.put_nowait(look)

    async def _connected(self) -> AsyncMailClient:
        if self._client is None:
            from airflow_provider_mail.hooks.mail import MailHook

            self._client = await MailHook(self._mail_conn_id).get_async_conn()
        return self._client

    async def _failed(self, error: MailError) -> None:
        if isinstance(error, MailAuthError | MailConfigError):
            await self._drop_client()

    async def _drop_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, float], CampaignWatch]] = WeakKeyDictionary()


def campaign_watch(mail_conn_id: str, interval: float) -> CampaignWatch:
    """The watch of the running loop for this connection and interval."""
    watches = _watches.setdefault(asyncio.get_running_loop(), {})
    return watches.setdefault((mail_conn_id, interval), CampaignWatch(mail_conn_id, interval))
