"""Detects campaigns that have reached a final ``mailStatus``, for all asset triggers in a triggerer.

The service can neither report what has changed nor sort its list. So all final campaigns are read, and read again when
their number or the first page changes: while nothing changes, a poll is one request.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from airflow_provider_mail._polling.pollers import MailPoller, Report
from airflow_provider_mail._polling.shared_poller import PollSubscription, result_or_error
from airflow_provider_mail.api.campaigns import FINAL, Campaign, GetCampaigns
from airflow_provider_mail.api.client import AsyncMailClient
from airflow_provider_mail.api.errors import MailError, MailIncompleteError

log = logging.getLogger(__name__)

REREAD_SECONDS = 900.0
"""Seconds after which all are read again: a deletion and a completion at the same time leave the number unchanged."""

KEPT_SECONDS = 31 * 86_400.0
"""Seconds after its send time for which a campaign that reaches a final status is reported, also after a restart with
stored state: sending may take days."""

STORED_SECONDS = 10.0
"""Airflow stores an event about a second after it was fired. The reported campaigns are stored later than that, so that
they are reported again if the triggerer dies in between."""

LONGEST_PAUSE = 900.0
"""Maximum seconds between polls while polls fail."""


@dataclass(frozen=True, slots=True)
class FinalCampaign:
    mail_name: str
    guid: str | None
    mail_status: int
    sent_at: float | None
    """Unix time of its send time."""
    mail_stats: dict[str, Any] = field(compare=False)

    @classmethod
    def of(cls, campaign: Campaign) -> FinalCampaign:
        """Copy what is reported of a campaign, without large fields such as the HTML."""
        sent, stats = campaign.send_by_date_time, campaign.mail_stats
        return cls(
            mail_name=campaign.mail_name,
            guid=campaign.guid,
            mail_status=campaign.mail_status,
            sent_at=None if sent is None else sent.timestamp(),
            mail_stats={} if stats is None else stats.dump_declared(),
        )

    @property
    def key(self) -> str:
        return digest([self.guid or self.mail_name, self.mail_status])

    @property
    def payload(self) -> dict[str, Any]:
        return {
            "mail_name": self.mail_name,
            "guid": self.guid,
            "mail_status": self.mail_status,
            "send_time": None if self.sent_at is None else datetime.fromtimestamp(self.sent_at, UTC).isoformat(),
            "mail_stats": self.mail_stats,
        }


@dataclass(frozen=True, slots=True)
class Snapshot:
    campaigns: Mapping[str, FinalCampaign]
    complete: bool
    read_at: float


@dataclass(eq=False, kw_only=True)
class CompletedSubscription(PollSubscription):
    """The subscription of a trigger that reports final campaigns.

    :param text: what the names contain, by which the service filters; ``None`` for all campaigns.
    """

    text: str | None
    results: asyncio.Queue[tuple[Snapshot | MailError, float]] = field(default_factory=asyncio.Queue)
    """The result of each poll, and its Unix time by the service's clock."""

    def deliver(self, result: Snapshot | MailError, at: float, offset: float) -> None:
        # Pass the result to the trigger, which has to store what it reported after every poll.
        self.results.put_nowait((result, at + offset))


class CompletedCampaignPoller(MailPoller[CompletedSubscription]):
    """Reads final campaigns once for all subscriptions to the same text."""

    woken_by_task_status = True

    def __init__(self, mail_conn_id: str, interval: float) -> None:
        super().__init__(mail_conn_id, interval)
        self._snapshots: dict[str | None, Snapshot] = {}

    async def poll(
        self, client: AsyncMailClient, due: Collection[CompletedSubscription], report: Report[CompletedSubscription]
    ) -> None:
        for text in {subscription.text for subscription in due}:
            result = await result_or_error(self._snapshot(client, text))
            for subscription in due:
                if subscription.text == text:
                    report(subscription, result)

    async def _snapshot(self, client: AsyncMailClient, text: str | None) -> Snapshot:
        request = GetCampaigns(mail_name=text, mail_status=list(FINAL), page_size=100)
        known, now = self._snapshots.get(text), time.monotonic()
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
            # The campaigns that were read are valid nevertheless; the rest is read next time.
            log.info("%s", error)
            complete = False
        self._snapshots[text] = Snapshot(campaigns, complete, now)
        return self._snapshots[text]


def _final(records: Iterable[Campaign]) -> dict[str, FinalCampaign]:
    final = (FinalCampaign.of(record) for record in records if record.mail_status in FINAL)
    return {campaign.key: campaign for campaign in final}


class CampaignChangeDetector:
    """Finds the campaigns of a poll that were not reported before.

    At a first start these are the campaigns sent since ``lookback``; all other campaigns of the first polls form the
    baseline. The baseline is complete when a poll shows no old campaign that the previous poll did not show, since one
    response may be empty or incomplete. From then on, and after a restart with stored state, these are the campaigns
    that were not final before, sent since the state's ``since``. A campaign without a send time counts as recent.

    :param state: the :attr:`state` of another object, to continue from it. Default: a first start.
    """

    def __init__(
        self, wanted: Callable[[FinalCampaign], bool], lookback: float, state: Mapping[str, Any] | None = None
    ) -> None:
        self._wanted = wanted
        self._lookback = lookback
        self.state: dict[str, Any] | None = dict(state) if state else None
        """What not to report again, as plain JSON: the ``keys`` of campaigns, and ``since``: ``keys`` has all campaigns
        sent since this Unix time."""
        self._known = set(state["keys"]) if state else set[str]()
        self._since = float(state["since"]) if state else None
        self._read_before = False

    def changes(self, snapshot: Snapshot, at: float) -> list[FinalCampaign]:
        campaigns = {key: campaign for key, campaign in snapshot.campaigns.items() if self._wanted(campaign)}
        horizon = at - max(self._lookback, KEPT_SECONDS)
        since = at - self._lookback if self._since is None else self._since
        new = {key: campaign for key, campaign in campaigns.items() if key not in self._known}
        changed = [campaign for campaign in new.values() if campaign.sent_at is None or campaign.sent_at >= since]
        self._known |= campaigns.keys()
        if self._since is None and snapshot.complete:
            if self._read_before and len(changed) == len(new):
                self._since = horizon
            self._read_before = True
        kept = {key for key, campaign in campaigns.items() if campaign.sent_at is None or campaign.sent_at >= horizon}
        if not snapshot.complete and self.state:
            # Campaigns that an incomplete snapshot lacks may still exist.
            kept |= set(self.state["keys"])
        keys = sorted(kept)
        if self._since is not None and (self.state is None or keys != self.state["keys"]):
            if snapshot.complete:
                self._since = max(self._since, horizon)
            self.state = {"since": self._since, "keys": keys}
        return sorted(changed, key=lambda campaign: (campaign.sent_at or 0.0, campaign.mail_name))


class ReportedCampaigns:
    """Stores which campaigns were reported, so that a restarted triggerer does not report them again.

    :param store: Airflow's asset state store; ``None`` where there is none (before Airflow 3.3): nothing is stored.
    """

    def __init__(self, store: Any, key: str) -> None:
        self._store = store
        self._key = key
        self._stored: Mapping[str, Any] | None = None
        self._next: tuple[Mapping[str, Any], float] | None = None

    async def read(self) -> Mapping[str, Any] | None:
        """Read the stored state; ``None`` if that fails: reporting twice is better than not at all."""
        if self._store is None:
            return None
        try:
            self._stored = await self._store.aget(self._key, None)
        except Exception as error:
            log.warning("The asset state could not be read, so campaigns may be reported again: %s", error)
            if isinstance(error, ValueError):
                self._store = None  # The trigger serves several assets: reading again does not help.
        return self._stored

    async def save(self, state: Mapping[str, Any] | None) -> None:
        """Store the state once Airflow has stored the events; to be called after every poll."""
        if self._store is None or state is None:
            return
        now = time.monotonic()
        if self._next is None:
            if state != self._stored:
                self._next = dict(state), now
            return
        earlier, since = self._next
        if now - since < STORED_SECONDS:
            return
        try:
            await self._store.aset(self._key, earlier)
        except Exception as error:
            log.warning("The asset state could not be written, so a restart may report campaigns again: %s", error)
        else:
            self._stored, self._next = earlier, None


def digest(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


def backoff(failed: int, interval: float) -> float:
    """Return the seconds to pause after failed polls, growing exponentially."""
    return min(interval * 2.0 ** min(failed - 1, 20), max(interval, LONGEST_PAUSE))
