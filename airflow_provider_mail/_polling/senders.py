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
    """Reads all senders at once; has those checked that have a selector.

    :param interval: seconds between polls.
    """

    async def poll(
        self, client: AsyncMailClient, due: Collection[SenderSubscription], report: Report[SenderSubscription]
    ) -> None:
        for each in due:
            if each.selector is not None:
                try:
                    checks = await client.run(verify_sender(each.sender_email, each.selector))
                except MailError as error:
                    report(each, error)
                else:
                    report(each, checks)
        if unchecked := [each for each in due if each.selector is None]:
            senders = await client.send(GetSenders())
            for each in unchecked:
                report(each, checks_of(sender_in(senders, each.sender_email)))
