"""The polls for all triggers on a connection that wait for campaigns, senders or statistics.

A request per trigger and interval would not scale. Campaigns that are being sent are listed once. If many are missing
in that list, those that were sent or have failed are listed, too. Only the rest is requested by name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any, ClassVar, TypeAlias

from airflow_provider_mail._config import configured_inbox
from airflow_provider_mail._polling.shared_poller import S, SharedPoller, WaitSubscription, result_or_error, subscribe
from airflow_provider_mail.api._core.pagination import Pager, next_pages
from airflow_provider_mail.api._core.responses import compact_records
from airflow_provider_mail.api.campaigns import FINAL, GetCampaigns, GetCampaignStats, MailStatus, find_campaign
from airflow_provider_mail.api.client import AsyncMailClient
from airflow_provider_mail.api.errors import MailConnectError, MailError, MailIncompleteError
from airflow_provider_mail.api.flows.statistics import campaign_stats
from airflow_provider_mail.api.flows.waits import (
    RECONNECT_SECONDS,
    CampaignWait,
    Days,
    PollResult,
    SenderWait,
    StatsStabilityTracker,
)
from airflow_provider_mail.api.senders import GetSenders, checks_of, sender_in, verify_sender
from airflow_provider_mail.hooks.mail import MailHook

log = logging.getLogger(__name__)

LIST_FROM = 4
"""From this many waits on, listing the campaigns that are being sent is cheaper than requesting each by name."""

LIST_FINAL_FROM = 20
"""From this many waits on for campaigns that are no longer being sent, the campaigns that were sent or have failed are
listed. That list grows without limit: often its first page only shows that it is too long."""

PAGES_AT_ONCE = 4
"""Pages of a list that are requested concurrently. More would cost CPU time: that of a request grows with the number of
open connections."""


STATE_FIELDS = ("mail_name", "mail_status", "send_by_date_time", "guid", "team_name", "mail_stats")
"""The fields of a campaign that polls need: without the contents, which make up most of a response."""

CampaignKey: TypeAlias = tuple[str | None, str | None]
"""The name of a campaign, or its ``guid``."""

CampaignSubscription: TypeAlias = WaitSubscription[CampaignWait]
SenderSubscription: TypeAlias = WaitSubscription[SenderWait]
StatsSubscription: TypeAlias = WaitSubscription[StatsStabilityTracker]

Report: TypeAlias = Callable[[S, object], None]
"""Reports the result of a poll to one subscription."""


class MailPoller(SharedPoller[S]):
    """Polls the service through one client; after errors it reads the connection again."""

    woken_by_task_status: ClassVar[bool] = False
    """Whether a pushed event ``TaskStatus`` makes it poll soon, if pushes are received."""

    def __init__(self, mail_conn_id: str, interval: float) -> None:
        super().__init__(mail_conn_id, interval)
        self._client: AsyncMailClient | None = None
        self._connected_at = 0.0
        self._offset = 0.0

    @abstractmethod
    async def poll(self, client: AsyncMailClient, due: Collection[S], report: Report[S]) -> None:
        """Poll once and report to each subscription; an error that is raised is the result for all others.

        :param report: called once for each subscription, as soon as its result is known.
        """

    async def _run(self) -> None:
        inbox = configured_inbox() if self.woken_by_task_status else None
        if inbox is None:
            return await super()._run()
        # Not at the top of the module: this imports the dialects of the warehouse, which few triggerers need.
        from airflow_provider_mail._polling.inbox import STATUS_INTERVAL, TaskStatusPoller, TaskStatusSubscription

        status = TaskStatusSubscription(mail_conn_id=self._target, wake=self.poll_soon)
        async with subscribe(TaskStatusPoller, inbox, STATUS_INTERVAL, status):
            await super()._run()

    async def poll_for(self, due: Collection[S]) -> None:
        at, remaining, errors = time.time(), set(due), list[MailError]()

        def report(subscription: S, result: object) -> None:
            remaining.discard(subscription)
            if isinstance(result, MailError):
                errors.append(result)
            if self._client is not None:
                self._offset = self._client.service_clock.offset
            subscription.deliver(result, at, self._offset)

        failure: MailError | None = None
        try:
            if self._client is None:
                self._connected_at = time.monotonic()
                self._client = await MailHook(self._target).get_async_conn()
            await self.poll(self._client, due, report)
        except MailError as error:
            failure = error
        except Exception as error:
            # Polling must continue in any case: otherwise the waits would never end.
            log.exception("polling for connection %r failed", self._target)
            failure = MailConnectError(f"connection {self._target!r}: {type(error).__name__}: {error}")
        if failure is not None:
            for subscription in tuple(remaining):
                report(subscription, failure)
        rejected = any(not error.temporary for error in errors)
        all_failed = bool(errors) and len(errors) == len(due)
        if rejected or (all_failed and time.monotonic() - self._connected_at >= RECONNECT_SECONDS):
            await self.close()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def _key(wait: CampaignWait) -> CampaignKey:
    return (None, wait.guid.casefold()) if wait.guid else (wait.mail_name, None)


class CampaignPoller(MailPoller[CampaignSubscription]):
    """Lists the campaigns that are being sent; requests those that are in no list by name."""

    woken_by_task_status = True

    def __init__(self, mail_conn_id: str, interval: float) -> None:
        super().__init__(mail_conn_id, interval)
        self._drafts: set[CampaignKey] = set()
        """Campaigns that showed as a draft, as scheduled ones may: drafts are listed for them as well."""

    async def poll(
        self, client: AsyncMailClient, due: Collection[CampaignSubscription], report: Report[CampaignSubscription]
    ) -> None:
        waiting: dict[CampaignKey, list[CampaignSubscription]] = {}
        for subscription in due:
            waiting.setdefault(_key(subscription.wait), []).append(subscription)
        list_drafts = len(self._drafts & waiting.keys()) >= LIST_FROM
        self._drafts &= {_key(subscription.wait) for subscription in self._subscriptions}

        def handle(key: CampaignKey, result: PollResult) -> None:
            if result is None or isinstance(result, MailError) or result.mail_status != MailStatus.DRAFT:
                self._drafts.discard(key)
            else:
                self._drafts.add(key)
            for subscription in waiting.pop(key):
                report(subscription, result)

        if len(waiting) >= LIST_FROM:
            statuses = [MailStatus.DRAFT, MailStatus.SENDING] if list_drafts else [MailStatus.SENDING]
            await self._list(client, statuses, waiting, handle)
        if len(waiting) >= LIST_FINAL_FROM:
            await self._list(client, [*FINAL], waiting, handle)
        wanted = iter([subscriptions[0] for subscriptions in waiting.values()])
        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(waiting), client.config.max_in_flight)):
                group.create_task(self._find(client, wanted, handle))

    async def _list(
        self,
        client: AsyncMailClient,
        statuses: list[MailStatus],
        waiting: Collection[CampaignKey],
        handle: Callable[[CampaignKey, PollResult], None],
    ) -> None:
        """List campaigns by status, unless reading the list takes more requests than asking for each by name."""
        pages, max_pages = 0, len(waiting) / 2
        pager: Pager[Any] = Pager(campaign_states(statuses))
        # The list may change while it is read; campaigns that are not in it are requested by name.
        with suppress(MailIncompleteError):
            while waiting and pager.next_request is not None and max(pages, pager.page_count or 0) <= max_pages:
                for campaign in await client.run(next_pages, pager, PAGES_AT_ONCE):
                    for key in ((campaign.mail_name, None), (None, campaign.guid and campaign.guid.casefold())):
                        if key in waiting:
                            handle(key, campaign)
                pages += 1

    async def _find(
        self,
        client: AsyncMailClient,
        wanted: Iterator[CampaignSubscription],
        handle: Callable[[CampaignKey, PollResult], None],
    ) -> None:
        for subscription in wanted:
            search = client.run(find_campaign, subscription.wait.mail_name, subscription.wait.guid)
            handle(_key(subscription.wait), await result_or_error(search))


def campaign_states(statuses: list[MailStatus]) -> GetCampaigns:
    """Return the request for campaigns in some states, a hundred per page, with only the fields that polls need."""
    return compact_records(GetCampaigns(mail_status=statuses, page_size=100), STATE_FIELDS)


class SenderPoller(MailPoller[SenderSubscription]):
    """Reads all senders with one request; requests a check of each sender that has a selector."""

    async def poll(
        self, client: AsyncMailClient, due: Collection[SenderSubscription], report: Report[SenderSubscription]
    ) -> None:
        for subscription in due:
            if subscription.wait.selector is not None:
                checks = client.run(verify_sender, subscription.wait.sender_email, subscription.wait.selector)
                report(subscription, await result_or_error(checks))
        if unchecked := [subscription for subscription in due if subscription.wait.selector is None]:
            senders = await client.send(GetSenders())
            for subscription in unchecked:
                report(subscription, checks_of(sender_in(senders, subscription.wait.sender_email)))


class StatsPoller(MailPoller[StatsSubscription]):
    """Requests the statistics once for each range of days on which the awaited campaigns were sent."""

    async def poll(
        self, client: AsyncMailClient, due: Collection[StatsSubscription], report: Report[StatsSubscription]
    ) -> None:
        at = time.time() + self._offset
        days = {each: each.wait.days(*each.wait.window, at) for each in due}
        for start_day, end_day in merge_windows(days.values()):
            within = [each for each in due if start_day <= days[each][0] <= end_day]
            names = {each.wait.mail_name for each in within}
            only = next(iter(names)) if len(names) == 1 else None
            request = GetCampaignStats(start_date=start_day, end_date=end_day, mail_name=only)
            # A day that cannot be read must not block the waits for other days.
            result = await result_or_error(client.run(campaign_stats, request))
            records = {} if isinstance(result, MailError) else {record.mail_name: record for record in result}
            for each in within:
                report(each, result if isinstance(result, MailError) else records.get(each.wait.mail_name))


def merge_windows(windows: Iterable[Days]) -> list[Days]:
    merged: list[Days] = []
    for start_day, end_day in sorted(windows):
        if merged and start_day <= merged[-1][1] + timedelta(days=1):
            merged[-1] = merged[-1][0], max(merged[-1][1], end_day)
        else:
            merged.append((start_day, end_day))
    return merged
