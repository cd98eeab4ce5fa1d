"""Triggers for campaigns: a deferred wait for one, and asset events when campaigns are sent or failed.

:class:`BaseWaitTrigger` is the base of the triggers of all waits.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Hashable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent

from airflow_provider_mail._task.checks import checked
from airflow_provider_mail._task.rules import MAX_SECONDS, number, text
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.flows.waits import (
    MAX_SCHEDULED_PAUSE,
    CampaignWait,
    PollDecision,
    WaitStatus,
    status_line,
)

if TYPE_CHECKING:
    from airflow_provider_mail._polling.campaign_changes import FinalCampaign
    from airflow_provider_mail._polling.shared_poller import SharedPoller, WaitSubscription

__all__ = ["MailCampaignEventTrigger", "MailCampaignTrigger"]


LAST_LOOK_SECONDS = 60.0
"""Time limit in seconds of the poll after the deadline."""


class BaseMailTrigger(BaseTrigger):
    """Keeps each argument in an attribute of the same name."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments, by which Airflow identifies the trigger; they contain no secret."""
        arguments = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments


class BaseWaitTrigger(BaseMailTrigger):
    """Fires once: when the awaited state is reached, when it can no longer be reached, or at the deadline.

    The arguments are stored unencrypted in Airflow's database: they contain a connection id and no secret. They do not
    change between versions, so that waits survive an upgrade.

    The event is plain JSON, which ``_task.waiting`` parses: ``status``, ``name`` of the awaited object,
    ``message`` and ``result``.

    :param poke_interval: seconds between polls; all waits with the same connection and interval share them.
    :param end_time: Unix time of the deadline, by the service's clock if its responses show one: the clocks of the
        worker and the triggerer may differ. It survives restarts of the triggerer. ``None`` for no deadline.
    """

    poller_module: ClassVar[str] = "airflow_provider_mail._polling.pollers"
    """The module of the poller, which imports everything that :meth:`subscription` needs."""

    identity: ClassVar[str] = "mail_name"
    """The argument that names the awaited object."""

    mail_conn_id: str
    poke_interval: float
    end_time: float | None
    poll_error_timeout: float

    def __post_init__(self) -> None:
        super().__init__()

    @property
    def conn_id(self) -> str:
        """The connection that is polled."""
        return self.mail_conn_id

    @property
    def target(self) -> Hashable:
        """What is polled: waits for the same target share their polls."""
        return self.conn_id

    @abstractmethod
    def subscription(self, **options: Any) -> tuple[type[SharedPoller[Any]], WaitSubscription[Any]]:
        """Return the poller to subscribe to, and the subscription.

        :param options: arguments of every wait; see `Wait`.
        """

    async def run(self) -> AsyncIterator[TriggerEvent]:
        # In a thread: importing the client takes long enough to block every other trigger.
        await asyncio.to_thread(import_module, self.poller_module)
        decision = (await self._wait()).for_connection(self.conn_id)
        name = getattr(self, self.identity)
        yield TriggerEvent(
            {"status": decision.status.value, "name": name, "message": decision.message, "result": decision.result}
        )
        await self._log_line(decision.message)

    async def _wait(self) -> PollDecision:
        from airflow_provider_mail._polling.shared_poller import EXTRA_POLL_SECONDS, SETTLE_SECONDS, subscribe

        # The task polled successfully before it deferred, so a rejection may be temporary.
        limits = {"polled_before": True, "poll_error_timeout": self.poll_error_timeout}
        poller_type, subscription = self.subscription(**limits)
        asked_at = 0.0
        async with subscribe(poller_type, self.target, self.poke_interval, subscription) as poller:
            while True:
                now = time.time() + (subscription.offset or 0.0)
                left = None if self.end_time is None else max(self.end_time - now, 0.0)
                if left:
                    # Only the last poll may show that, by the service's clock, the deadline has not passed yet.
                    subscription.last_look = False
                if left == 0.0 and not subscription.last_look:
                    # The awaited state may have been reached since the last poll, or while no triggerer ran.
                    if time.monotonic() - subscription.polled_at > EXTRA_POLL_SECONDS:
                        subscription.due = min(subscription.due, time.monotonic() + SETTLE_SECONDS)
                        poller.poll_soon()
                        left, asked_at = LAST_LOOK_SECONDS, time.monotonic()
                    subscription.last_look = True
                try:
                    async with asyncio.timeout(left):
                        await subscription.changed.wait()
                except TimeoutError:
                    if not subscription.last_look:
                        continue
                    latest = subscription.decision
                    if latest is None or subscription.polled_at < asked_at:
                        # An earlier poll does not show what has happened since.
                        not_polled = f"the last poll for {getattr(self, self.identity)!r} did not end"
                        latest = PollDecision(WaitStatus.WAITING, not_polled, is_seen=False)
                    return latest.at_deadline()
                subscription.changed.clear()
                if subscription.error is not None:
                    raise subscription.error
                decision = subscription.decision
                assert decision is not None
                if decision.status is not WaitStatus.WAITING:
                    return decision
                await self._log_line(status_line(decision, self.poke_interval, self.end_time))

    async def _log_line(self, text: str) -> None:
        # In a thread: when a thousand waits end together, the triggerer reads their log lines too slowly for the event
        # loop.
        await asyncio.to_thread(self.log.info, "%s", text)


FINAL = ("complete", "failed")
"""The final states of a campaign (``mailStatus`` 2 and 4)."""


@dataclass(kw_only=True, eq=False, repr=False)
class MailCampaignTrigger(BaseWaitTrigger):
    """Fire when a campaign is sent, when it fails, or when the wait times out.

    The event contains ``status`` (``complete``, ``failed``, ``refused``, ``error`` or ``timeout``), ``name`` (the
    campaign), ``message`` and ``result`` (the counts of a sent campaign).

    .. seealso:: the guide :ref:`howto/trigger:MailCampaignTrigger`
        (in the package: ``airflow_provider_mail/docs/waiting.md``).

    :param mail_conn_id: the connection to the service.
    :param mail_name: the exact name of the campaign.
    :param guid: its unique identifier, if it is known: then it may have another name at the service. Default: the name
        identifies it.
    :param poke_interval: seconds between polls; all waits with the same connection and interval share their polls.
        Default: 60.
    :param end_time: Unix time, by the service's clock, at which the wait times out, even after restarts of the
        triggerer. Default: never.
    :param not_before: Unix time, by the local clock, at which a scheduled campaign is sent: until then, it is polled
        only every five minutes. Default: not scheduled.
    :param seen: whether the campaign existed at an earlier poll, so that a missing one ends the wait. Default: false.
    :param cancel_on_kill: cancel the campaign when the waiting task is marked failed or success. Needs Airflow 3.3;
        earlier versions do not notify a trigger. Default: false.
    :param poll_error_timeout: the wait fails only after consecutive polls have failed for this many seconds. Default:
        600.
    """

    mail_conn_id: str
    mail_name: str
    guid: str | None = None
    poke_interval: float = 60.0
    end_time: float | None = None
    not_before: float = 0.0
    seen: bool = False
    cancel_on_kill: bool = False
    poll_error_timeout: float = 600.0

    def subscription(self, **options: Any) -> tuple[type[SharedPoller[Any]], WaitSubscription[Any]]:
        from airflow_provider_mail._polling.pollers import CampaignPoller, CampaignSubscription

        wait = CampaignWait(self.mail_name, self.guid, seen=self.seen, scheduled=self.not_before > 0, **options)
        pause = min(max(self.not_before - time.time(), 0.0), MAX_SCHEDULED_PAUSE)
        return CampaignPoller, CampaignSubscription(wait=wait, due=time.monotonic() + pause)

    async def on_kill(self) -> None:
        """Cancel the campaign if the task was ended; Airflow also calls this method when it was not."""
        if not self.cancel_on_kill:
            return
        # The wait has already imported everything that this module needs.
        from airflow_provider_mail._task.waiting import cancel_if_ended

        outcome = await cancel_if_ended(self.task_instance, self.mail_conn_id, self.mail_name)
        self.log.info("campaign %r %s", self.mail_name, outcome)


class MailCampaignEventTrigger(BaseMailTrigger, BaseEventTrigger):
    """Fire when campaigns reach a final ``mailStatus``: complete (2) or failed (4).

    For ``AssetWatcher``: each event becomes an event of the asset. Its ``extra["payload"]`` is plain JSON with
    ``mail_conn_id`` and ``campaigns``, the campaigns found by one poll: ``mail_name``, ``guid``, ``mail_status``,
    ``send_time`` (ISO 8601, UTC) and ``mail_stats`` of each.

    Each campaign that reaches a final status within 31 days of its send time is reported at least once. Without stored
    state, the trigger starts with the campaigns sent since ``lookback``, including those sent while no triggerer ran
    and those without a send time. Airflow 3.3 stores the reported campaigns in the asset's state store, so that a
    restart repeats at most those of the last seconds. Before 3.3, a restart repeats everything since ``lookback``, and
    misses a campaign sent earlier that completes while no triggerer runs: set ``lookback`` to a time longer than
    sending takes.

    The trigger never ends. A failed poll is logged and repeated, after pauses that grow to a quarter of an hour.

    .. seealso:: the guide :ref:`howto/trigger:MailCampaignEventTrigger`
        (in the package: ``airflow_provider_mail/docs/waiting.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``.
    :param mail_name: report only the campaign of exactly this name. Default: all campaigns.
    :param name_prefix: report only campaigns whose name starts with this. Default: all campaigns.
    :param name_contains: report only campaigns whose name contains this. Default: all campaigns.
    :param mail_status: the states to report, of ``complete`` and ``failed``. Default: both.
    :param lookback: the time before a start without stored state from which campaigns are reported; seconds or a
        timedelta. Default: three days.
    :param poke_interval: seconds between polls; all triggers with the same connection, interval and name filter share
        their polls. Default: 60.
    :param label: distinguishes this trigger from one with the same arguments. Give the watchers of two assets different
        labels: each then stores its reported campaigns separately, and they still share their polls. Default: none.
    """

    @checked(
        templated=False,
        **dict.fromkeys(("mail_name", "name_prefix", "name_contains", "label"), text(empty_is_none=False)),
        poke_interval=number(most=MAX_SECONDS, above=True),
    )  # fmt: skip
    def __init__(
        self,
        *,
        mail_conn_id: str = "mail_default",
        mail_name: str | None = None,
        name_prefix: str | None = None,
        name_contains: str | None = None,
        mail_status: Sequence[Literal["complete", "failed"]] = ("complete", "failed"),
        lookback: float | timedelta = 3 * 86_400.0,
        poke_interval: float = 60.0,
        label: str | None = None,
    ) -> None:
        super().__init__()
        filters = {"mail_name": mail_name, "name_prefix": name_prefix, "name_contains": name_contains}
        if len(given := [name for name, value in filters.items() if value is not None]) > 1:
            raise ValueError(f"{', '.join(given)}: only one of them can be given")
        if not mail_status or not set(mail_status) <= set(FINAL):
            raise ValueError(f"mail_status: must be a list of 'complete', 'failed' or both, not {mail_status!r}")
        seconds = lookback.total_seconds() if isinstance(lookback, timedelta) else lookback
        self.mail_conn_id = mail_conn_id
        self.mail_name = mail_name
        self.name_prefix = name_prefix
        self.name_contains = name_contains
        self.mail_status = sorted(set(mail_status))
        self.lookback = float(seconds)
        self.poke_interval = float(poke_interval)
        self.label = label

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll endlessly; yield an event for each poll that finds newly completed campaigns."""
        # In a thread: importing the client takes long enough to block every other trigger.
        await asyncio.to_thread(import_module, "airflow_provider_mail._polling.campaign_changes")
        from airflow_provider_mail._polling.campaign_changes import (
            CampaignChangeDetector,
            CompletedCampaignPoller,
            CompletedSubscription,
            ReportedCampaigns,
            backoff,
            digest,
        )
        from airflow_provider_mail._polling.shared_poller import subscribe

        names = [self.mail_name, self.name_prefix, self.name_contains]
        # Each watcher of the asset has a key of its own; a changed poke_interval does not change the key.
        identity = [self.mail_conn_id, *names, self.mail_status, self.label]
        key = f"mail_events_{digest(identity)}"
        reported = ReportedCampaigns(getattr(self, "asset_state_store", None), key)
        detector = CampaignChangeDetector(self._wants, self.lookback, await reported.read())
        # The service searches for one text; the exact name says most, then a prefix.
        text = next((name for name in names if name is not None), None)
        subscription = CompletedSubscription(text=text)
        failed = 0
        async with subscribe(CompletedCampaignPoller, self.mail_conn_id, self.poke_interval, subscription):
            while True:
                result, at = await subscription.results.get()
                if isinstance(result, MailError):
                    failed += 1
                    pause = backoff(failed, self.poke_interval)
                    subscription.due = time.monotonic() + pause
                    self.log.warning(
                        "connection %r: poll failed (%d in a row), next poll in %.0f s: %s",
                        self.mail_conn_id, failed, pause, result,
                    )  # fmt: skip
                    continue
                failed, subscription.due = 0, 0.0
                if changed := detector.changes(result, at):
                    for campaign in changed:
                        self.log.info("campaign %r: mailStatus is now %d", campaign.mail_name, campaign.mail_status)
                    # A single event: of two simultaneous events, Airflow would pass the second one only to a later run.
                    payloads = [campaign.payload for campaign in changed]
                    yield TriggerEvent({"mail_conn_id": self.mail_conn_id, "campaigns": payloads})
                await reported.save(detector.state)

    def _wants(self, campaign: FinalCampaign) -> bool:
        from airflow_provider_mail.api.campaigns import MailStatus

        name = campaign.mail_name
        return (
            MailStatus(campaign.mail_status).name.lower() in self.mail_status
            and self.mail_name in (None, name)
            and name.startswith(self.name_prefix or "")
            and (self.name_contains or "") in name
        )
