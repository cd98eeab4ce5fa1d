"""Cancelling a campaign, and asking whether there is anything to cancel (document, "Campaign send tasks")."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_mail.api.base import Flow
from airflow_provider_mail.api.campaigns import CancelCampaign, find_campaign
from airflow_provider_mail.api.errors import MailAuthError, MailError, MailRejectedError


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What came of cancelling a campaign.

    :param done: whether the service has cancelled it; if not, it may go out.
    :param text: the same for a person, to be read behind the campaign's name.
    """

    done: bool
    text: str


def cancel_campaign(mail_name: str) -> Flow[Cancellation]:
    """Cancel a campaign if it still waits for its send time; what goes wrong is a result too."""
    try:
        yield CancelCampaign(mail_name=mail_name)
    except MailError as error:
        shown = yield from _shown(mail_name, error)
        return Cancellation(False, f"could not be cancelled: {error}{shown}")
    return Cancellation(True, "was cancelled: it does not go out")


def is_scheduled(mail_name: str) -> Flow[bool]:
    """Whether the service would cancel it, that is, whether it waits for its send time.

    What status a scheduled campaign has is not shown in the document, nor what cancelling makes of it: either may look
    like a draft. Sandbox mode tells them apart and changes nothing.
    """
    try:
        yield CancelCampaign(mail_name=mail_name, sandbox_mode=True)
    except MailAuthError:
        raise
    except MailRejectedError:
        return False
    return True


def _shown(mail_name: str, error: MailError) -> Flow[str]:
    if not isinstance(error, MailRejectedError) or isinstance(error, MailAuthError):
        return ""
    try:
        found = yield from find_campaign(mail_name)
    except MailError:
        return ""
    return "; there is none of that name" if found is None else f"; it shows mailStatus {found.mail_status}"
