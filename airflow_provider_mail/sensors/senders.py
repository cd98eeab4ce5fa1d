"""Wait for a sender."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail._task.waiting import DEFERRABLE, TIMEOUT, BaseWaitSensor
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.flows.waits import SenderWait

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.airflow_arguments import SensorArguments
    from airflow_provider_mail.api.senders import Checks
    from airflow_provider_mail.triggers.senders import MailSenderTrigger

__all__ = ["MailSenderSensor"]


class MailSenderSensor(BaseWaitSensor):
    """Wait until all four DNS checks of a sender are good, and return them.

    It waits for a sender that is not registered yet. On a connection in sandbox mode, where no sender was registered,
    the sensor succeeds at once and logs it. A rejected key fails the task at once; after a successful poll, a rejection
    counts as a failed poll, and the connection is read again.

    Returns ``valid``, ``good_mx``, ``good_spf``, ``good_dkim`` and ``good_dmarc``, all true.

    .. seealso:: the guide :ref:`howto/sensor:MailSenderSensor`
        (in the package: ``airflow_provider_mail/docs/waiting.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param sender_email: the sender, an address or a domain, as it is registered. (templated)
    :param selector: the selector of its DKIM entry in DNS: with it the service checks at every poll. Default: none; the
        result of the service's last check is read, whose time is unknown. (templated)
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    :param poke_interval: the time between polls; seconds or a timedelta. Default: 300 seconds.
    :param timeout: the time after which the wait fails; seconds or a timedelta. Default: ``[sensors] default_timeout``,
        seven days.
    :param poll_error_timeout: the time for which consecutive polls may fail before the wait fails; seconds or a
        timedelta. In ``mode="reschedule"`` before Airflow 3.3 only ``timeout`` ends the wait. Default: an hour.
    """

    identity = "sender_email"
    absent = "sender {!r} to wait for"
    sender_email: str
    selector: str | None

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        sender_email: Templated[str],
        selector: Templated[str] | None = None,
        deferrable: bool = DEFERRABLE,
        poke_interval: float | timedelta = 300.0,
        timeout: float | timedelta = TIMEOUT,
        poll_error_timeout: float | timedelta = 3600.0,
        **kwargs: Unpack[SensorArguments],
    ) -> None:
        super().__init__(poke_interval=poke_interval, timeout=timeout, **kwargs)
        self.set_arguments(**locals())

    def new_wait(self, **options: Any) -> SenderWait:
        return SenderWait(self.sender_email, **options)

    def poll(self, context: Context) -> Checks | MailError | None:
        from airflow_provider_mail.api.senders import checks_of, find_sender, verify_sender

        if self.selector:
            return self.ask(verify_sender, self.sender_email, self.selector)
        sender = self.ask(find_sender, self.sender_email)
        return sender if isinstance(sender, MailError) else checks_of(sender)

    def trigger(self, **options: Any) -> MailSenderTrigger:
        from airflow_provider_mail.triggers.senders import MailSenderTrigger

        return MailSenderTrigger(
            mail_conn_id=self.mail_conn_id, sender_email=self.sender_email, selector=self.selector, **options
        )
