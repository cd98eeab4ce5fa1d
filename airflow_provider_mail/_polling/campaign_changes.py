"""Which campaigns have reached a final ``mailStatus``, for all in a triggerer who want to be told; and what is news.

The service can neither be asked what has changed nor in which order it lists. So all campaigns that are final are
read, and again when their number or the first page has changed: while nothing happens a look is one request.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from airflow_provider_mail._polling.shared_poller import PollSubscription, SharedPoller
from airflow_provider_mail.api.campaigns import Campaign, GetCampaigns, MailStatus
from airflow_provider_mail.api.client import AsyncMailClient
from airflow_provider_mail.api.errors import MailError, MailIncompleteError

log = logging.getLogger(__name__)

FINAL = (MailStatus.COMPLETE, MailStatus.FAILED)

REREAD_SECONDS = 900.0
"""All are read at least so often: one that was deleted and one that went out at once do not change the number."""

STORED_SECONDS = 10.0
"""Airflow stores an event about a second after it was fired. What was reported is remembered later than that, so that a
triggerer that dies in between reports it again."""

LONGEST_PAUSE = 900.0
"""Seconds from one look to the next, at most, while looking fails."""


@dataclass(frozen=True, slots=True)
class FinalCampaign:
    """What is told of a campaign."""

    mail_name: str
    guid: str | None
    mail_status: int
    sent_at: float | None
    """Unix time of its send time."""
    mail_stats: dict[str, Any] = field(compare=False)

    @classmethod
    def of(cls, campaign: Campaign) -> FinalCampaign:
        """Without what may be large, such as the HTML."""
        sent, stats = campaign.send_by_date_time, campaign.mail_stats
        return cls(
            mail_name=campaign.mail_name,
            guid=campaign.guid,
            mail_status=campaign.mail_status,
            sent_at=None if sent is None else sent.timestamp(),
            mail_stats={} if stats is None else stats.model_dump(mode="json", exclude_none=True),
        )

    @property
    def key(self) -> str:
        """The same for the same campaign in the same state, and short."""
        return digest([self.guid or self.mail_name, self.mail_status])

    @property
    def payload(self) -> dict[str, Any]:
        """What an asset event carries, as plain JSON."""
        return {
            "mail_name": self.mail_name,
            "guid": self.guid,
            "mail_status": self.mail_status,
            "send_time": None if self.sent_at is None else datetime.fromtimestamp(self.sent_at, UTC).isoformat(),
            "mail_stats": self.mail_stats,
        }


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The final campaigns of one look by their keys.

    :param complete: whether none is missing.
    :param read_at: monotonic time at which the service was asked.
    """

    campaigns: Mapping[str, FinalCampaign]
    complete: bool
    read_at: float


@dataclass(eq=False, kw_only=True)
class EventPart(PollSubscription):
    """One trigger's part: text that the names contain, by which the service filters; ``None`` for all."""

    text: str | None
    looks: asyncio.Queue[tuple[Snapshot | MailError, float]] = field(default_factory=asyncio.Queue)
    """The result of each poll, and its Unix time."""

    def deliver(self, result: Snapshot | MailError, at: float, offset: float) -> None:
        """Leave it to the trigger, which has to store what it reported after every poll."""
        self.looks.put_nowait((result, at + offset))


class CompletedCampaignPoller(SharedPoller[EventPart]):
    """Reads final campaigns once for all who want the same text in their names."""

    def __init__(self, mail_conn_id: str, interval: float) -> None:
        super().__init__(mail_conn_id, interval)
        self._listings: dict[str | None, Snapshot] = {}

    async def look(
        self, client: AsyncMailClient, due: Collection[EventPart]
    ) -> Mapping[EventPart, Snapshot | MailError]:
        """All that are final now, for each part."""
        found: dict[EventPart, Snapshot | MailError] = {}
        for text in {part.text for part in due}:
            try:
                look: Snapshot | MailError = await self._listing(client, text)
            except MailError as error:
                look = error
            found |= {part: look for part in due if part.text == text}
        return found

    async def _listing(self, client: AsyncMailClient, text: str | None) -> Snapshot:
        request = GetCampaigns(mail_name=text, mail_status=list(FINAL), page_size=100)
        known, now = self._listings.get(text), time.monotonic()
        if known is not None and known.complete and now - known.read_at < REREAD_SECONDS:
            page = await client.send(request)
            if page.total_records == len(known.campaigns) and _final(page.records).keys() <= known.campaigns.keys():
                return known
        campaigns: dict[str, FinalCampaign] = {}
        complete = True
        try:
            async for records in client.pages(request):
                campaigns |= _final(records)
        except MailIncompleteError as error:
            # What was read is true all the same; the rest is read next time.
            log.info("%s", error)
            complete = False
        self._listings[text] = Snapshot(campaigns, complete, now)
        return self._listings[text]


def _final(records: Iterable[Campaign]) -> dict[str, FinalCampaign]:
    final = (FinalCampaign.of(record) for record in records if record.mail_status in FINAL)
    return {campaign.key: campaign for campaign in final}


class CampaignChangeDetector:
    """Tells what is news in look after look.

    At first that is what was sent since ``lookback`` and is not remembered. Once all have been read, it is whatever
    was not there before, whenever it was sent.

    :param wanted: which campaigns are meant.
    :param lookback: seconds.
    :param remembered: of another object's :attr:`memory`, to go on where that one was.
    """

    def __init__(
        self, wanted: Callable[[FinalCampaign], bool], lookback: float, remembered: Collection[str] = ()
    ) -> None:
        self._wanted = wanted
        self._lookback = lookback
        self._known = set(remembered)
        self._begun = False
        self.memory: Sequence[str] = sorted(remembered)
        """The keys of what need not be reported again, as plain JSON: only those that a first look would report."""

    def judge(self, listing: Snapshot, at: float) -> list[FinalCampaign]:
        """What is news in this look, after those before it, in the order of their send times.

        :param at: Unix time of the look.
        """
        campaigns = {key: found for key, found in listing.campaigns.items() if self._wanted(found)}
        recent = {key for key, found in campaigns.items() if (found.sent_at or 0.0) >= at - self._lookback}
        fresh = [found for key, found in campaigns.items() if key not in self._known and (self._begun or key in recent)]
        self._known |= campaigns.keys()
        self._begun = self._begun or listing.complete
        # One that is missing in an incomplete look may be there in the next.
        self.memory = sorted(recent if listing.complete else recent | set(self.memory))
        return sorted(fresh, key=lambda found: (found.sent_at or 0.0, found.mail_name))


class Store(Protocol):
    """Airflow's asset state store, as a trigger sees it (3.3)."""

    async def aget(self, key: str, default: Any = None) -> Any: ...

    async def aset(self, key: str, value: Any) -> None: ...


class ReportedCampaigns:
    """What was reported, where Airflow lets it outlive the triggerer.

    :param store: ``None`` where there is none: nothing is kept.
    :param key: where in it.
    """

    def __init__(self, store: Store | None, key: str) -> None:
        self._store = store
        self._key = key
        self._stored: list[str] = []
        self._next: tuple[list[str], float] | None = None

    async def read(self) -> list[str]:
        """What was kept last; nothing when it cannot be read: better told twice than not at all."""
        if self._store is None:
            return []
        try:
            self._stored = list(await self._store.aget(self._key, []))
        except Exception as error:
            log.warning("what was reported could not be read, so it may be reported again: %s", error)
            if isinstance(error, ValueError):
                self._store = None  # it serves several assets, and belongs to one: no repetition would mend it
        return list(self._stored)

    async def keep(self, keys: Sequence[str]) -> None:
        """Keep it, once the events that were fired are stored; to be called after every look."""
        if self._store is None:
            return
        now = time.monotonic()
        if self._next is None:
            if list(keys) != self._stored:
                self._next = list(keys), now
            return
        earlier, since = self._next
        if now - since < STORED_SECONDS:
            return
        try:
            await self._store.aset(self._key, earlier)
        except Exception as error:
            log.warning("what was reported could not be kept, so a restart would report it again: %s", error)
        else:
            self._stored, self._next = earlier, None


def digest(value: Any) -> str:
    """A short name for plain JSON."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


def pause_after(failed: int, interval: float) -> float:
    """Seconds to the next look after so many in a row have failed: longer each time."""
    return min(interval * 2.0 ** min(failed - 1, 20), max(interval, LONGEST_PAUSE))
