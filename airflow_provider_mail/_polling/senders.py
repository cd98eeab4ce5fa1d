"""One look at the senders of a connection for all who wait for one of them in this triggerer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from airflow_provider_mail._polling.shared_poller import SharedPoller, WaitPart
from airflow_provider_mail.api.client import AsyncMailClient
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.senders import Checks, GetSenders, checks_of, sender_in, verify_sender


@dataclass(eq=False, kw_only=True)
class SenderPart(WaitPart):
    """One trigger's part: the sender, and how its DKIM entry is found when the service is to check at each look."""

    sender_email: str
    selector: str | None


class SenderWatch(SharedPoller[SenderPart]):
    """Reads all senders at once; has those checked that want it."""

    async def look(
        self, client: AsyncMailClient, due: Collection[SenderPart]
    ) -> Mapping[SenderPart, Checks | MailError | None]:
        """What the checks of each sender say."""
        found: dict[SenderPart, Checks | MailError | None] = {}
        for part in due:
            if part.selector is not None:
                try:
                    found[part] = await client.run(verify_sender(part.sender_email, part.selector))
                except MailError as error:
                    found[part] = error
        if len(found) < len(due):
            senders = await client.send(GetSenders())
            found |= {part: checks_of(sender_in(senders, part.sender_email)) for part in due if part not in found}
        return found
