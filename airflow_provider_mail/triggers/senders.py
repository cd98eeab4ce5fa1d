"""Trigger for the checks of a sender."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.api.flows.waits import SenderWait
from airflow_provider_mail.triggers.campaigns import BaseWaitTrigger

if TYPE_CHECKING:
    from airflow_provider_mail._polling.shared_poller import SharedPoller, WaitSubscription

__all__ = ["MailSenderTrigger"]


@dataclass(kw_only=True, eq=False, repr=False)
class MailSenderTrigger(BaseWaitTrigger):
    """Fire when all four checks of a sender are good, or when the wait times out.

    The event contains ``status``, ``name`` (the sender), ``message`` and ``result`` (the checks).

    :param mail_conn_id: the connection to the service.
    :param sender_email: the sender, as it is registered.
    :param selector: the selector of its DKIM entry: with it the service checks at every poll. Default: none.
    :param poke_interval: seconds between polls; all waits with the same connection and interval share their polls.
        Default: 300.
    :param end_time: Unix time at which the wait times out, even after restarts of the triggerer. Default: never.
    :param poll_error_timeout: the wait fails only after consecutive polls have failed for this many seconds. Default:
        600.
    """

    identity = "sender_email"

    mail_conn_id: str
    sender_email: str
    selector: str | None = None
    poke_interval: float = 300.0
    end_time: float | None = None
    poll_error_timeout: float = 600.0

    def subscription(self, **options: Any) -> tuple[type[SharedPoller[Any]], WaitSubscription[Any]]:
        from airflow_provider_mail._polling.pollers import SenderPoller, SenderSubscription

        return SenderPoller, SenderSubscription(wait=SenderWait(self.sender_email, self.selector, **options))
