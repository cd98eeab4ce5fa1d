"""Cancel a campaign, or find out whether it could be cancelled (document, "Campaign send tasks")."""

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

__all__ = ["cancel_campaign"]


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The result of cancelling a campaign.

    :param done: whether the service has cancelled it; if not, it may be sent.
    :param text: a predicate for the campaign in a log line or message, such as "was cancelled".
    :param found: the campaign as the service shows it after it rejected the cancellation.
    """

    done: bool
    text: str
    found: Campaign | None = None


def cancel_campaign(mail_name: str) -> Flow[Cancellation]:
    """Cancel a campaign whose send time is ahead.

    Service errors are returned as ``Cancellation(done=False)``, never raised.

    :param mail_name: the campaign's name.
    """
    try:
        yield CancelCampaign(mail_name=mail_name)
    except MailError as error:
        found, status = yield from _status_after(error, mail_name)
        return Cancellation(False, f"could not be cancelled: {error}{status}", found)
    return Cancellation(True, "was cancelled: it is not sent")


def end_campaign(request: CancelCampaign, *, missing_ok: bool = True) -> Flow[bool]:
    """Cancel a campaign whose send time is ahead; return whether there was anything to cancel.

    :param request: the cancellation.
    :param missing_ok: succeed when there is no campaign of that name.
    :raises MailMissingError: there is no campaign of that name, and ``missing_ok`` is false.
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
    except MailRejectedError as rejection:
        found = yield from find_campaign(request.mail_name)
        if found is None or found.mail_status == MailStatus.DRAFT:
            return False  # cancelled already: the document does not show what that looks like, but a draft is not sent
        raise MailConflictError(
            f"mail_name: campaign {request.mail_name!r} cannot be cancelled, it shows mailStatus {found.mail_status}: "
            f"{rejection}",
            operation=request.path,
        ) from None
    return True


def is_scheduled(mail_name: str) -> Flow[bool]:
    """Return whether the service would cancel a campaign, that is, whether its send time is ahead.

    The document shows neither the status of a scheduled campaign nor that of a cancelled one: both may look like a
    draft. A cancellation in sandbox mode distinguishes them and changes nothing.

    :param mail_name: the campaign's name.
    """
    try:
        yield CancelCampaign(mail_name=mail_name, sandbox_mode=True)
    except MailRejectedError:
        return False
    return True


def _status_after(error: MailError, mail_name: str) -> Flow[tuple[Campaign | None, str]]:
    if not isinstance(error, MailRejectedError):
        return None, ""
    try:
        found: Campaign | None = yield from find_campaign(mail_name)
    except MailError:
        return None, ""
    if found is None:
        return None, "; there is no campaign of that name"
    return found, f"; it shows mailStatus {found.mail_status}"
