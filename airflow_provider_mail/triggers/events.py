"""Trigger for the inbox of received events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.triggers.campaigns import BaseWaitTrigger

if TYPE_CHECKING:
    from airflow_provider_mail._config import InboxName
    from airflow_provider_mail._polling.shared_poller import SharedPoller, WaitSubscription

__all__ = ["MailInboxTrigger"]


@dataclass(kw_only=True, eq=False, repr=False)
class MailInboxTrigger(BaseWaitTrigger):
    """Fire when a push waits in the inbox to be drained, or when the wait times out.

    The event contains ``status``, ``name`` (the table), ``message`` and ``result`` (the connection and the table).

    :param inbox_conn_id: the connection to the database of the inbox.
    :param inbox_table: the table of the inbox. Default: ``mail_inbox``.
    :param poke_interval: seconds between queries; all waits for the same inbox with the same interval share their
        queries. Default: 10.
    :param end_time: Unix time at which the wait times out, even after restarts of the triggerer. Default: never.
    :param poll_error_timeout: the wait fails only after consecutive queries have failed for this many seconds. Default:
        600.
    """

    poller_module = "airflow_provider_mail._polling.inbox"
    identity = "inbox_table"

    inbox_conn_id: str
    inbox_table: str = "mail_inbox"
    poke_interval: float = 10.0
    end_time: float | None = None
    poll_error_timeout: float = 600.0

    @property
    def conn_id(self) -> str:
        return self.inbox_conn_id

    @property
    def target(self) -> InboxName:
        from airflow_provider_mail._config import InboxName

        return InboxName(self.inbox_conn_id, self.inbox_table)

    def subscription(self, **options: Any) -> tuple[type[SharedPoller[Any]], WaitSubscription[Any]]:
        from airflow_provider_mail._polling.inbox import InboxPoller, InboxWait
        from airflow_provider_mail._polling.shared_poller import WaitSubscription

        return InboxPoller, WaitSubscription(wait=InboxWait(self.target, **options))
