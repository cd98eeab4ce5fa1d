"""Waiting for a campaign to go out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.links import MailCampaignLink, push_campaign_link
from airflow_provider_mail.sensors.base import BaseWaitSensor

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_mail.api.waiting import CampaignWait, Look, Verdict
    from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger


DOUBT_SECONDS = 2.0
"""Pause before looking again in reschedule mode, where a draft has to be judged at once."""


class MailCampaignSensor(BaseWaitSensor):
    """Waits until a campaign has gone out (``mailStatus`` 2) and returns its ``mailStats``.

    Fails when the service reports failure (4); when the campaign stays a draft for three looks with no send time ahead
    (saved only, or cancelled); and when it has disappeared for three looks after it was there. A campaign that does
    not exist yet is waited for; in reschedule mode, where no look knows of the one before, so is one that has
    disappeared. On a connection in sandbox mode, where nothing was created, it succeeds at once and says so.

    A refused key fails the task at once. When looking has worked before, it counts as one of the ten failed looks in a
    row that are borne, and the connection is read again: keys may be exchanged while tasks wait.

    .. seealso::
        For more information on how to use this sensor, see ``airflow_provider_mail/docs/waiting.md``.

    :param mail_conn_id: the connection.
    :param mail_name: the campaign's exact name.
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    """

    template_fields: Sequence[str] = (*BaseWaitSensor.template_fields, "mail_name")
    operator_extra_links = (MailCampaignLink(),)
    identity = "mail_name"
    absent = "campaign {!r} to wait for"

    def __init__(self, *, mail_name: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mail_name = mail_name

    @cached_property
    def _wait(self) -> CampaignWait:
        from airflow_provider_mail.api.waiting import CampaignWait

        return CampaignWait(self.mail_name)

    def look(self, context: Context) -> Look:
        from airflow_provider_mail.api.campaigns import Campaign, find_campaign

        look = self.ask(find_campaign(self.mail_name))
        if isinstance(look, Campaign):
            push_campaign_link(self, context, self.mail_name, guid=look.guid)
        return look

    def judge(self, look: Look) -> Verdict:
        from airflow_provider_mail.api.campaigns import find_campaign
        from airflow_provider_mail.api.waiting import Outcome

        verdict = self._wait.judge(look)
        while self.reschedule and self._wait.in_doubt and verdict.outcome is Outcome.WAITING:
            # The next poke is another process and knows nothing of this one.
            time.sleep(DOUBT_SECONDS)
            verdict = self._wait.judge(self.ask(find_campaign(self.mail_name)))
        return verdict

    def trigger(self, end_time: float) -> MailCampaignTrigger:
        from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger

        return MailCampaignTrigger(
            mail_conn_id=self.mail_conn_id,
            mail_name=self.mail_name,
            poke_interval=self.poke_interval,
            end_time=end_time,
            not_before=self._wait.not_before,
            seen=self._wait.seen,
        )
