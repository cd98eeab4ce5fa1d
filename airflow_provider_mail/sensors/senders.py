"""Waiting until a sender may be used."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.sensors._base import BaseWaitSensor

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api.errors import MailError
    from airflow_provider_mail.api.flows.wait_sender import SenderWait
    from airflow_provider_mail.api.senders import Checks
    from airflow_provider_mail.triggers.senders import MailSenderTrigger


class MailSenderSensor(BaseWaitSensor):
    """Waits until all four DNS checks of a sender are good, and returns them.

    A sender that is not registered yet is waited for. On a connection in sandbox mode, where none was registered, it
    succeeds at once and says so. A refused key fails the task at once; when a poll has worked before, it counts as a
    failed poll, and the connection is read again.

    Returns ``mx``, ``spf``, ``dkim``, ``dmarc`` and ``valid``, all true.

    .. seealso::
        For more information on how to use this sensor, see ``airflow_provider_mail/docs/waiting.md``.

    :param mail_conn_id: the connection.
    :param sender_email: the sender entry, an address or a domain.
    :param selector: of its DKIM entry in DNS: have the service check at each look. Without it the outcome of the
        service's last check is read; when that is, is not shown in its document.
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    :param poke_interval: seconds from one poll to the next; or a timedelta. Default: 300.
    :param poll_error_timeout: polls may fail in a row for so long before the wait is given up; seconds or a timedelta.
        Default: an hour. In ``mode="reschedule"`` before Airflow 3.3, ``timeout`` alone ends the wait.
    """

    template_fields: Sequence[str] = (*BaseWaitSensor.template_fields, "sender_email", "selector")
    identity = "sender_email"
    absent = "sender {!r} to wait for"

    def __init__(
        self,
        *,
        sender_email: str,
        selector: str | None = None,
        poke_interval: float | timedelta = 300.0,
        poll_error_timeout: float | timedelta = 3600.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, poll_error_timeout=poll_error_timeout, **kwargs)
        self.sender_email = sender_email
        self.selector = selector

    def new_wait(self, state: dict[str, Any] | None, *, polled_before: bool) -> SenderWait:
        from airflow_provider_mail.api.flows.wait_sender import SenderWait

        return SenderWait(
            self.sender_email,
            polled_before=polled_before,
            poll_error_timeout=self.poll_error_timeout,
            state=state,
        )

    def poll(self, context: Context) -> Checks | MailError | None:
        from airflow_provider_mail.api.errors import MailError
        from airflow_provider_mail.api.senders import checks_of, find_sender, verify_sender

        if self.selector:
            return self.ask(verify_sender(self.sender_email, self.selector))
        found = self.ask(find_sender(self.sender_email))
        return found if isinstance(found, MailError) else checks_of(found)

    def trigger(self, end_time: float) -> MailSenderTrigger:
        from airflow_provider_mail.triggers.senders import MailSenderTrigger

        return MailSenderTrigger(
            mail_conn_id=self.mail_conn_id,
            sender_email=self.sender_email,
            selector=self.selector,
            poke_interval=self.poke_interval,
            end_time=end_time,
            poll_error_timeout=self.poll_error_timeout,
        )
