"""Cancelling a campaign, and asking whether there is anything to cancel (document, "Campaign send tasks")."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_mail.api._core.requests import Flow
from airflow_provider_mail.api.campaigns import Campaign, CancelCampaign, MailStatus, find_campaign
from airflow_provider_mail.api.errors import (
    MailConflictError,
    MailError,
    MailMissingError,
    MailRejectedError,
)


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What came of cancelling a campaign.

    :param done: whether the service has cancelled it; if not, it may go out.
    :param text: the same for a person, to be read behind the campaign's name.
    :param found: the campaign as the service shows it after it rejected the cancellation.
    """

    done: bool
    text: str
    found: Campaign | None = None


def cancel_campaign(mail_name: str) -> Flow[Cancellation]:
    """Cancel a campaign if it still waits for its send time; what goes wrong is a result too."""
    try:
        yield CancelCampaign(mail_name=mail_name)
    except MailError as error:
        found, shown = yield from _shown(mail_name, error)
        return Cancellation(False, f"could not be cancelled: {error}{shown}", found)
    return Cancellation(True, "was cancelled: it does not go out")


def end_campaign(request: CancelCampaign, *, missing_ok: bool = True) -> Flow[bool]:
    """Cancel a campaign that waits for its send time; whether there was anything to cancel.

    :param missing_ok: let what is not there be cancelled already.
    :raises MailMissingError: there is none of that name, and ``missing_ok`` is false.
    :raises MailConflictError: its send time has passed.
    """
    found: Campaign | None = yield from find_campaign(request.mail_name)
    if found is None:
        if missing_ok:
            return False
        raise MailMissingError(f"mail_name: there is no campaign {request.mail_name!r}", operation=request.path)
    if found.is_idle_draft:
        return False
    try:
        yield request
    except MailRejectedError as refusal:
        found = yield from find_campaign(request.mail_name)
        if found is None or found.mail_status == MailStatus.DRAFT:
            return False  # cancelled already: what that looks like is not shown, but a draft goes nowhere
        raise MailConflictError(
            f"mail_name: campaign {request.mail_name!r} cannot be cancelled, it shows mailStatus {found.mail_status}: "
            f"{refusal}",
            operation=request.path,
        ) from None
    return True


def is_scheduled(mail_name: str) -> Flow[bool]:
    """Whether the service would cancel it, that is, whether it waits for its send time.

    What status a scheduled campaign has is not shown in the document, nor what cancelling makes of it: either may look
    like a draft. Sandbox mode tells them apart and changes nothing.
    """
    try:
        yield CancelCampaign(mail_name=mail_name, sandbox_mode=True)
    except MailRejectedError:
        return False
    return True


def _shown(mail_name: str, error: MailError) -> Flow[tuple[Campaign | None, str]]:
    if not isinstance(error, MailRejectedError):
        return None, ""
    try:
        found: Campaign | None = yield from find_campaign(mail_name)
    except MailError:
        return None, ""
    if found is None:
        return None, "; there is none of that name"
    return found, f"; it shows mailStatus {found.mail_status}"
