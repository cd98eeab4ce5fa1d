"""Waiting for a campaign to go out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)

from airflow_provider_mail.hooks.task import MailTask, check_flags
from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger, event_of, mail_stats_of

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_mail.api.waiting import CampaignWait


DOUBT_SECONDS = 2.0
"""Pause before looking again in reschedule mode, where a draft has to be judged at once."""


class MailCampaignSensor(MailTask, BaseSensorOperator):
    """Waits until a campaign has gone out (``mailStatus`` 2) and returns its ``mailStats``.

    Fails when the service reports failure (4); when the campaign stays a draft for three looks with no send time ahead
    (saved only, or cancelled); and when it has disappeared for three looks after it was there. A campaign that does
    not exist yet is waited for; in reschedule mode, where no look knows of the one before, so is one that has
    disappeared. On a connection in sandbox mode, where nothing was created, it succeeds at once and says so.

    A refused key fails the task at once. When looking has worked before, it counts as one of the ten failed looks in a
    row that are borne, and the connection is read again: keys may be exchanged while tasks wait.

    .. seealso::
        For more information on how to use this sensor, see ``docs/waiting.md``.

    :param mail_conn_id: the connection.
    :param mail_name: the campaign's exact name.
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    """

    template_fields: Sequence[str] = ("mail_conn_id", "mail_name")

    def __init__(
        self,
        *,
        mail_conn_id: str = "mail_default",
        mail_name: str,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_flags(deferrable=deferrable)
        self.mail_conn_id = mail_conn_id
        self.mail_name = mail_name
        self.deferrable = deferrable
        self._wait: CampaignWait | None = None

    def poke(self, context: Context) -> PokeReturnValue | bool:
        """Look once; when it is deferrable and there is something to wait for, go on in the triggerer."""
        from airflow_provider_mail.api.waiting import CampaignWait, Outcome

        if not self.mail_name:
            raise AirflowFailException("mail_name: is empty")
        if self._wait is None:
            self._wait = CampaignWait(self.mail_name)
        look = self.look_at(self.mail_name)
        if look is None and self.hook.config.sandbox:
            self.log.info("Sandbox: there is no campaign %r to wait for.", self.mail_name)
            return PokeReturnValue(is_done=True, xcom_value={})
        verdict = self._wait.judge(look)
        while self.reschedule and self._wait.in_doubt and verdict.outcome is Outcome.WAITING:
            # The next poke is another process and knows nothing of this one.
            time.sleep(DOUBT_SECONDS)
            verdict = self._wait.judge(self.look_at(self.mail_name))
        self.log.info("%s", verdict.message)
        if verdict.outcome is not Outcome.WAITING:
            event = event_of(self.mail_conn_id, self.mail_name, verdict)
            return PokeReturnValue(is_done=True, xcom_value=mail_stats_of(event, time_up=AirflowSensorTimeout))
        if self.deferrable:
            # Not before this look: a trigger that fires at once could overtake the scheduler.
            self._defer(self._wait)
        return False

    def _defer(self, wait: CampaignWait) -> None:
        end_time = time.time() + self.timeout
        self.defer(
            trigger=MailCampaignTrigger(
                mail_conn_id=self.mail_conn_id,
                mail_name=self.mail_name,
                poke_interval=self.poke_interval,
                end_time=end_time,
                not_before=wait.not_before,
                seen=wait.seen,
            ),
            method_name="execute_complete",
            # The trigger keeps the time itself; this one is for a triggerer that is not there.
            timeout=timedelta(seconds=self.timeout + self.poke_interval + 60),
        )

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read the trigger's event."""
        return mail_stats_of(event, time_up=AirflowSensorTimeout)
