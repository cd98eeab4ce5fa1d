"""Waiting for a campaign to go out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.links import MailCampaignLink, push_campaign_link
from airflow_provider_mail.sensors._base import BaseWaitSensor

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api.flows.polling import PollDecision
    from airflow_provider_mail.api.flows.wait_campaign import CampaignWait, PollResult
    from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger


DRAFT_POLL_SECONDS = 15.0
"""Seconds between polls of a draft in reschedule mode before Airflow 3.3, where one process has to confirm it."""


class MailCampaignSensor(BaseWaitSensor):
    """Waits until a campaign has gone out (``mailStatus`` 2) and returns its ``mailStats``.

    Fails when the service reports failure (4); when the campaign stays a draft for five minutes with no send time ahead
    (saved only, or cancelled); and when it has disappeared for five minutes after it was there. A campaign that does
    not exist yet is waited for. On a connection in sandbox mode, where nothing was created, it succeeds at once and
    says so.

    A refused key fails the task at once. When a poll has worked before, it counts as a failed poll, and the connection
    is read again: keys may be exchanged while tasks wait.

    In ``mode="reschedule"`` every poll is another process. Airflow 3.3 keeps what they have seen (the task state
    store). Before 3.3 nothing tells a campaign that has disappeared from one that was never there, a draft holds the
    worker slot until it is judged, and failed polls after the first never end the wait before ``timeout``.

    .. seealso::
        For more information on how to use this sensor, see ``airflow_provider_mail/docs/waiting.md``.

    :param mail_conn_id: the connection.
    :param mail_name: the campaign's exact name.
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    :param poke_interval: seconds from one poll to the next. Default: 60.
    :param poll_error_timeout: polls may fail in a row for so long before the wait is given up; seconds or a timedelta.
        Default: 600.
    """

    template_fields: Sequence[str] = (*BaseWaitSensor.template_fields, "mail_name")
    operator_extra_links = (MailCampaignLink(),)
    identity = "mail_name"
    absent = "campaign {!r} to wait for"

    _wait: CampaignWait

    def __init__(self, *, mail_name: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mail_name = mail_name

    def new_wait(self, state: dict[str, Any] | None, *, polled_before: bool) -> CampaignWait:
        from airflow_provider_mail.api.flows.wait_campaign import CampaignWait

        return CampaignWait(
            self.mail_name,
            seen=None if polled_before else False,
            polled_before=polled_before,
            poll_error_timeout=self.poll_error_timeout,
            state=state,
        )

    def poll(self, context: Context) -> PollResult:
        from airflow_provider_mail.api.campaigns import Campaign, find_campaign

        result = self.ask(find_campaign(self.mail_name))
        if isinstance(result, Campaign):
            push_campaign_link(self, context, self.mail_name, guid=result.guid)
        return result

    def decide(self, result: PollResult, context: Context) -> PollDecision:
        from airflow_provider_mail.api.campaigns import find_campaign
        from airflow_provider_mail.api.flows.polling import WaitStatus

        decision = super().decide(result, context)
        stateless = self.continues_elsewhere and not self.task_state(context).durable
        while stateless and self._wait.has_unconfirmed_draft and decision.status is WaitStatus.WAITING:
            # The next poke is another process, which does not know of this draft.
            time.sleep(DRAFT_POLL_SECONDS)
            decision = super().decide(self.ask(find_campaign(self.mail_name)), context)
        return decision

    def trigger(self, end_time: float) -> MailCampaignTrigger:
        from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger

        assert self._decision is not None
        return MailCampaignTrigger(
            mail_conn_id=self.mail_conn_id,
            mail_name=self.mail_name,
            poke_interval=self.poke_interval,
            end_time=end_time,
            not_before=time.time() + self._decision.pause if self._wait.scheduled else 0.0,
            seen=bool(self._wait.seen),
            poll_error_timeout=self.poll_error_timeout,
        )
