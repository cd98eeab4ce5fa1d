"""Wait for a campaign."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail._task.waiting import DEFERRABLE, TIMEOUT, BaseWaitSensor
from airflow_provider_mail.api.flows.waits import CampaignWait, PollResult
from airflow_provider_mail.links import MailCampaignLink, push_campaign_link

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.airflow_arguments import SensorArguments
    from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger

__all__ = ["MailCampaignSensor"]

DRAFT_POLL_SECONDS = 15.0
"""Seconds between polls of a draft in reschedule mode before Airflow 3.3, where a single process must confirm it."""


class MailCampaignSensor(BaseWaitSensor):
    """Wait until a campaign is sent (``mailStatus`` 2).

    Returns its counts: ``sent_count``, ``delivered_count``, ``open_count``, ``click_count``, ``hard_bounce``,
    ``soft_bounce``, ``unsent_count``, ``unsubscribe_count``; in sandbox mode also ``sandbox``.

    The task fails when the service reports failure (4); when the campaign stays a draft for five minutes without a send
    time in the future (saved only, or cancelled); and when it is missing for five minutes after it existed. The sensor
    waits for a campaign that does not exist yet. On a connection in sandbox mode, where no campaign was created, the
    sensor succeeds at once and logs it.

    A rejected key fails the task at once. After a successful poll, a rejection counts as a failed poll, and the
    connection is read again: keys may be rotated while tasks wait.

    In ``mode="reschedule"`` every poll runs in another process. Airflow 3.3 keeps their state (the task state store).
    Before 3.3, the sensor waits for a missing campaign even if it existed, a draft occupies the worker slot until it is
    confirmed, and failed polls after the first never end the wait before ``timeout``.

    .. seealso:: the guide :ref:`howto/sensor:MailCampaignSensor`
        (in the package: ``airflow_provider_mail/docs/waiting.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param mail_name: the exact name of the campaign. (templated)
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    :param poke_interval: the time between polls; seconds or a timedelta. Default: 60 seconds.
    :param timeout: the time after which the wait fails; seconds or a timedelta. Default: ``[sensors] default_timeout``,
        seven days.
    :param poll_error_timeout: the time for which consecutive polls may fail before the wait fails; seconds or a
        timedelta. Default: 600 seconds.
    """

    operator_extra_links = (MailCampaignLink(),)
    identity = "mail_name"
    absent = "campaign {!r} to wait for"
    mail_name: str

    _wait: CampaignWait

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        mail_name: Templated[str],
        deferrable: bool = DEFERRABLE,
        poke_interval: float | timedelta = 60.0,
        timeout: float | timedelta = TIMEOUT,
        poll_error_timeout: float | timedelta = 600.0,
        **kwargs: Unpack[SensorArguments],
    ) -> None:
        super().__init__(poke_interval=poke_interval, timeout=timeout, **kwargs)
        self.set_arguments(**locals())

    def new_wait(self, *, polled_before: bool = False, **options: Any) -> CampaignWait:
        seen = None if polled_before else False
        return CampaignWait(self.mail_name, polled_before=polled_before, seen=seen, **options)

    def poll(self, context: Context) -> PollResult:
        from airflow_provider_mail.api.campaigns import Campaign, find_campaign

        result = self.ask(find_campaign, self.mail_name)
        if isinstance(result, Campaign):
            push_campaign_link(self, context, self.mail_name, guid=result.guid)
        return result

    def sandbox_result(self) -> dict[str, Any]:
        from airflow_provider_mail.api.campaigns import no_counts

        return {**no_counts(), **super().sandbox_result()}

    def hold_seconds(self, context: Context) -> float:
        # The next poke is in another process, to which the draft is unknown without stored state.
        forgotten = self._wait.has_unconfirmed_draft and not self.task_state(context).durable
        return DRAFT_POLL_SECONDS if forgotten else 0.0

    def trigger(self, **options: Any) -> MailCampaignTrigger:
        from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger

        assert self._decision is not None
        return MailCampaignTrigger(
            mail_conn_id=self.mail_conn_id,
            mail_name=self.mail_name,
            not_before=time.time() + self._decision.pause if self._wait.scheduled else 0.0,
            seen=bool(self._wait.seen),
            **options,
        )
