"""Waiting for a sender's checks without a worker slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_mail.triggers._base import BaseWaitTrigger

if TYPE_CHECKING:
    from airflow_provider_mail._polling.shared_poller import SharedPoller, WaitSubscription


class MailSenderTrigger(BaseWaitTrigger):
    """Fires when all four checks of a sender are good, or when the time is up.

    Its event holds ``status``, ``name`` (the sender), ``message`` and ``result`` (the checks).

    :param mail_conn_id: the connection.
    :param sender_email: the sender entry.
    :param selector: of its DKIM entry: have the service check at each look.
    :param poke_interval: seconds from one poll to the next; all waits with the same connection and interval share it.
    :param end_time: Unix time at which the wait is given up, whatever was restarted in between; ``None`` for never.
    :param max_poll_errors: more failed polls in a row than this are needed to give the wait up.
    :param poll_error_timeout: seconds for which polls must have failed in a row, besides, to give the wait up.
    """

    poller_module = "airflow_provider_mail._polling.senders"
    event_keys = ("name", "result")

    def __init__(
        self,
        *,
        mail_conn_id: str,
        sender_email: str,
        selector: str | None = None,
        poke_interval: float = 300.0,
        end_time: float | None = None,
        max_poll_errors: int = 2,
        poll_error_timeout: float = 600.0,
    ) -> None:
        super().__init__(
            mail_conn_id=mail_conn_id,
            poke_interval=poke_interval,
            end_time=end_time,
            max_poll_errors=max_poll_errors,
            poll_error_timeout=poll_error_timeout,
        )
        self.sender_email = sender_email
        self.selector = selector

    @property
    def awaited(self) -> str:
        return self.sender_email

    def subscription(self) -> tuple[type[SharedPoller[Any]], WaitSubscription]:
        from airflow_provider_mail._polling.senders import SenderPoller, SenderSubscription
        from airflow_provider_mail.api.flows.wait_sender import SenderWait

        wait = SenderWait(
            self.sender_email,
            polled_before=True,
            poll_error_timeout=self.poll_error_timeout,
            max_poll_errors=self.max_poll_errors,
        )
        return SenderPoller, SenderSubscription(
            sender_email=self.sender_email, selector=self.selector, decide=wait.decide
        )
