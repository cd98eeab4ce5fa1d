"""Waiting until a sender may be used."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSensorTimeout, BaseSensorOperator, PokeReturnValue, conf

from airflow_provider_mail.hooks.task import MailTask, check_flags
from airflow_provider_mail.triggers.campaigns import event_of, mail_stats_of
from airflow_provider_mail.triggers.senders import MailSenderTrigger

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_mail.api.errors import MailError
    from airflow_provider_mail.api.senders import Checks, SenderWait


class MailSenderSensor(MailTask, BaseSensorOperator):
    """Waits until all four DNS checks of a sender are good, and returns them.

    A sender that is not registered yet is waited for. On a connection in sandbox mode, where none was registered, it
    succeeds at once and says so. A refused key fails the task at once; when looking has worked before, it counts as
    one of the ten failed looks in a row that are borne.

    Returns ``mx``, ``spf``, ``dkim``, ``dmarc`` and ``valid``, all true.

    .. seealso::
        For more information on how to use this sensor, see ``docs/waiting.md``.

    :param mail_conn_id: the connection.
    :param sender_email: the sender entry, an address or a domain.
    :param selector: of its DKIM entry in DNS: have the service check at each look. Without it the outcome of the
        service's last check is read; when that is, is not shown in its document.
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    :param poke_interval: seconds from one look to the next.
    """

    template_fields: Sequence[str] = ("mail_conn_id", "sender_email", "selector")

    def __init__(
        self,
        *,
        mail_conn_id: str = "mail_default",
        sender_email: str,
        selector: str | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poke_interval: float | timedelta = 300.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        check_flags(deferrable=deferrable)
        self.mail_conn_id = mail_conn_id
        self.sender_email = sender_email
        self.selector = selector
        self.deferrable = deferrable
        self._wait: SenderWait | None = None

    def poke(self, context: Context) -> PokeReturnValue | bool:
        """Look once; when it is deferrable and there is something to wait for, go on in the triggerer."""
        from airflow_provider_mail.api.senders import SenderWait
        from airflow_provider_mail.api.waiting import Outcome

        self._wait = self._wait or SenderWait(self.sender_email)
        look = self._look()
        if look is None and self.hook.config.sandbox:
            self.log.info("Sandbox: there is no sender %r to wait for.", self.sender_email)
            return PokeReturnValue(is_done=True, xcom_value={})
        verdict = self._wait.judge(look)
        self.log.info("%s", verdict.message)
        if verdict.outcome is not Outcome.WAITING:
            event = event_of(self.mail_conn_id, self.sender_email, verdict)
            return PokeReturnValue(is_done=True, xcom_value=mail_stats_of(event, time_up=AirflowSensorTimeout))
        if self.deferrable:
            # Not before this look: a trigger that fires at once could overtake the scheduler.
            self.defer(
                trigger=MailSenderTrigger(
                    mail_conn_id=self.mail_conn_id,
                    sender_email=self.sender_email,
                    selector=self.selector,
                    poke_interval=self.poke_interval,
                    end_time=time.time() + self.timeout,
                ),
                method_name="execute_complete",
                # The trigger keeps the time itself; this one is for a triggerer that is not there.
                timeout=timedelta(seconds=self.timeout + self.poke_interval + 60),
            )
        return False

    def _look(self) -> Checks | MailError | None:
        from airflow_provider_mail.api.errors import MailError
        from airflow_provider_mail.api.senders import checks_of, find_sender, verify_sender

        try:
            if self.selector:
                return self.hook.run(verify_sender(self.sender_email, self.selector))
            return checks_of(self.hook.run(find_sender(self.sender_email)))
        except MailError as error:
            return error

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read the trigger's event."""
        return mail_stats_of(event, time_up=AirflowSensorTimeout)
