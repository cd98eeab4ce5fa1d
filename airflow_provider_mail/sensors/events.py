"""Wait for received events."""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail._task.waiting import DEFERRABLE, TIMEOUT, BaseWaitSensor
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._polling.inbox import InboxReader, InboxWait
    from airflow_provider_mail._task.airflow_arguments import SensorArguments
    from airflow_provider_mail.triggers.events import MailInboxTrigger

__all__ = ["MailInboxSensor"]


class MailInboxSensor(BaseWaitSensor):
    """Wait until a push of events waits in the inbox to be drained.

    Only the database of the inbox is queried, never the service. The sensor waits for a table that does not exist yet.

    Returns ``inbox_conn_id`` and ``inbox_table``.

    .. seealso:: the guide :ref:`howto/sensor:MailInboxSensor`
        (in the package: ``airflow_provider_mail/docs/events.md``).

    :param inbox_conn_id: the connection to the database of the inbox. Default: ``[mail] inbox_conn_id``. (templated)
    :param inbox_table: the table of the inbox. Default: ``[mail] inbox_table``. (templated)
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    :param poke_interval: the time between queries; seconds or a timedelta. Default: 10 seconds.
    :param timeout: the time after which the wait fails; seconds or a timedelta. Default: ``[sensors] default_timeout``,
        seven days.
    :param poll_error_timeout: the time for which consecutive queries may fail before the wait fails; seconds or a
        timedelta. In ``mode="reschedule"`` before Airflow 3.3 only ``timeout`` ends the wait. Default: 600 seconds.
    """

    identity = "inbox_conn_id"
    state_key = "mail_inbox_wait"
    inbox_conn_id: str | None
    inbox_table: str | None

    def __init__(
        self,
        *,
        inbox_conn_id: Templated[str] | None = None,
        inbox_table: Templated[str] | None = None,
        deferrable: bool = DEFERRABLE,
        poke_interval: float | timedelta = 10.0,
        timeout: float | timedelta = TIMEOUT,
        poll_error_timeout: float | timedelta = 600.0,
        **kwargs: Unpack[SensorArguments],
    ) -> None:
        super().__init__(poke_interval=poke_interval, timeout=timeout, **kwargs)
        self.set_arguments(**locals())

    @property
    def conn_id(self) -> str:
        return str(self.inbox_conn_id)

    @cached_property
    def reader(self) -> InboxReader:
        from airflow_provider_mail._config import InboxName
        from airflow_provider_mail._polling.inbox import InboxReader

        return InboxReader(InboxName(str(self.inbox_conn_id), str(self.inbox_table)))

    def execute(self, context: Context) -> Any:
        from airflow_provider_mail._config import configured_inbox

        inbox = configured_inbox(self.inbox_conn_id, self.inbox_table)
        if inbox is None:
            raise AirflowFailException("inbox_conn_id: is missing; give it, or set [mail] inbox_conn_id")
        self.inbox_conn_id, self.inbox_table = inbox
        return super().execute(context)

    def new_wait(self, **options: Any) -> InboxWait:
        from airflow_provider_mail._polling.inbox import InboxWait

        return InboxWait(self.reader.name, **options)

    def poll(self, context: Context) -> bool | MailError:
        from airflow_provider_mail.webhook.inbox import Inbox

        try:
            return self.reader.query(Inbox.waiting)
        except MailError as error:
            return error

    def trigger(self, **options: Any) -> MailInboxTrigger:
        from airflow_provider_mail.triggers.events import MailInboxTrigger

        return MailInboxTrigger(inbox_conn_id=str(self.inbox_conn_id), inbox_table=str(self.inbox_table), **options)
