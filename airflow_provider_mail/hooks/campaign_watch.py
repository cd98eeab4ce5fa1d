"""One poll for all waits on a connection inside a triggerer.

Each trigger asking for itself would cost a request per wait and interval. Instead what is being sent is listed once,
and only campaigns that are no longer (or not yet) in that list are asked for by name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Collection
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from airflow_provider_mail.api.campaigns import Campaign, GetCampaigns, MailStatus, find_campaign
from airflow_provider_mail.api.client import AsyncMailClient
from airflow_provider_mail.api.errors import MailConnectError, MailError, MailIncompleteError
from airflow_provider_mail.api.waiting import Look
from airflow_provider_mail.hooks.mail import MailHook

log = logging.getLogger(__name__)

LIST_FROM = 4
"""From so many waits on, listing what is being sent is cheaper than asking for each by name."""

SETTLE_SECONDS = 5.0
"""A trigger that fires before the scheduler has noted the deferral can fail the task: nothing is looked at earlier."""

SHORTEST_INTERVAL = 0.1
"""Nobody may poll without a pause, whatever a sensor's `poke_interval` says."""


@asynccontextmanager
async def campaign_looks(
    mail_conn_id: str, interval: float, mail_name: str, not_before: float = 0.0
) -> AsyncIterator[asyncio.Queue[Look]]:
    """Take part in the running loop's polls of a connection; those that concern the campaign put a look in the queue.

    :param interval: seconds from one poll to the next; waits with different intervals have different polls.
    :param not_before: Unix time before which there is nothing to see, such as the send time.
    """
    interval = max(interval, SHORTEST_INTERVAL)
    watches = _watches.setdefault(asyncio.get_running_loop(), {})
    watch = watches.setdefault((mail_conn_id, interval), CampaignWatch(mail_conn_id, interval))
    wait = Wait(mail_name, max(not_before, time.time() + min(interval, SETTLE_SECONDS)))
    watch.join(wait)
    try:
        yield wait.looks
    finally:
        if watch.leave(wait):
            del watches[mail_conn_id, interval]
            await watch.end()


@dataclass(eq=False)
class Wait:
    """One trigger's part in a poll."""

    mail_name: str
    not_before: float
    looks: asyncio.Queue[Look] = field(default_factory=asyncio.Queue)


class CampaignWatch:
    """Polls for all waits that share a connection and an interval, from the first one to come to the last to go."""

    def __init__(self, mail_conn_id: str, interval: float) -> None:
        self._mail_conn_id = mail_conn_id
        self._interval = interval
        self._waits: set[Wait] = set()
        self._joined = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None

    def join(self, wait: Wait) -> None:
        """Let the polls concern one wait more."""
        self._waits.add(wait)
        self._joined.set()
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll_on(), name=f"mail-watch-{self._mail_conn_id}")

    def leave(self, wait: Wait) -> bool:
        """Let them concern one less; tells whether that was the last."""
        self._waits.discard(wait)
        return not self._waits

    async def end(self) -> None:
        """Stop polling; returns when nothing is left of it."""
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait([self._polling])

    async def _poll_on(self) -> None:
        looker = _Looker(self._mail_conn_id)
        try:
            next_poll = time.monotonic()
            while True:
                await self._until_due(next_poll)
                next_poll = time.monotonic() + self._interval
                due = [wait for wait in self._waits if wait.not_before <= time.time()]
                looks = await looker.look({wait.mail_name for wait in due})
                for wait in due:
                    wait.looks.put_nowait(looks[wait.mail_name])
        finally:
            await looker.close()

    async def _until_due(self, next_poll: float) -> None:
        """Sleep until a poll is due and concerns somebody, who may come while we sleep."""
        while True:
            self._joined.clear()
            first = min(wait.not_before for wait in self._waits)
            left = max(first - time.time(), next_poll - time.monotonic())
            if left <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._joined.wait()


class _Looker:
    """Looks at campaigns through one client; after a refusal it reads the connection anew, which may be mended."""

    def __init__(self, mail_conn_id: str) -> None:
        self._mail_conn_id = mail_conn_id
        self._client: AsyncMailClient | None = None

    async def look(self, names: Collection[str]) -> dict[str, Look]:
        """One look at each; what goes wrong is a look too."""
        try:
            if self._client is None:
                self._client = await self._connected()
            listed = await self._sending(self._client, names)
            rest = [name for name in names if name not in listed]
            looks = await asyncio.gather(*(self._look(self._client, name) for name in rest))
            found: dict[str, Look] = {**listed, **dict(zip(rest, looks, strict=True))}
        except MailError as error:
            found = dict.fromkeys(names, error)
        except Exception as error:
            # Whatever it is, polling must go on: a wait that nobody tells anything would never end.
            log.exception("polling for connection %r failed", self._mail_conn_id)
            words = f"{type(error).__name__}: {error}"
            found = dict.fromkeys(names, MailConnectError(f"connection {self._mail_conn_id!r}: {words}"))
        if any(isinstance(look, MailError) and not look.temporary for look in found.values()):
            await self.close()
        return found

    async def close(self) -> None:
        """Close the client."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _connected(self) -> AsyncMailClient:
        return await MailHook(self._mail_conn_id).get_async_conn()

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


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, float], CampaignWatch]] = WeakKeyDictionary()
