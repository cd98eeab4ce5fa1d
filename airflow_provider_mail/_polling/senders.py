"""One poll for all triggers on a connection that wait for senders."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from airflow_provider_mail._polling.shared_poller import MailPoller, Report, WaitSubscription
from airflow_provider_mail.api.client import AsyncMailClient
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.senders import GetSenders, checks_of, sender_in, verify_sender


@dataclass(eq=False, kw_only=True, slots=True)
class SenderSubscription(WaitSubscription):
    """The subscription of a trigger that waits for a sender.

    :param selector: the DKIM selector, to have the service check the sender at each poll; ``None`` to read the result
        of its last check.
    """

    sender_email: str
    selector: str | None


class SenderPoller(MailPoller[SenderSubscription]):
    """Reads all senders with one request; requests a check of each sender that has a selector."""

    async def poll(
        self, client: AsyncMailClient, due: Collection[SenderSubscription], report: Report[SenderSubscription]
    ) -> None:
        for subscription in due:
            if subscription.selector is not None:
                try:
                    checks = await client.run(verify_sender(subscription.sender_email, subscription.selector))
                except MailError as error:
                    report(subscription, error)
                else:
                    report(subscription, checks)
        if unchecked := [subscription for subscription in due if subscription.selector is None]:
            senders = await client.send(GetSenders())
            for subscription in unchecked:
                report(subscription, checks_of(sender_in(senders, subscription.sender_email)))
