"""Cancel a campaign, or determine whether it can be cancelled (specification, "Campaign send tasks")."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from airflow_provider_mail.api._core.clock import ServiceClock
from airflow_provider_mail.api._core.requests import Flow
from airflow_provider_mail.api.campaigns import (
    Campaign,
    CancelCampaign,
    MailStatus,
    find_campaign,
    not_known,
    state_after_rejection,
)
from airflow_provider_mail.api.errors import MailConflictError, MailError, MailMissingError, MailRejectedError

__all__ = ["cancel_campaign"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The result of cancelling a campaign.

    :param done: whether the service has cancelled it; if not, it may be sent.
    :param text: a predicate for the campaign in a log line or message, such as "was cancelled".
    :param campaign: the campaign as the service shows it after it rejected the cancellation.
    """

    done: bool
    text: str
    campaign: Campaign | None = None


def cancel_campaign(mail_name: str, clock: ServiceClock | None = None) -> Flow[Cancellation]:
    """Cancel a campaign whose send time is ahead.

    Service errors are returned as ``Cancellation(done=False)``, never raised.

    :param mail_name: the campaign's name.
    :param clock: the service's clock, such as ``client.service_clock``. Default: the local one.
    """
    try:
        yield CancelCampaign(mail_name=mail_name)
    except MailError as error:
        campaign, state = None, ""
        if isinstance(error, MailRejectedError):
            campaign, state = yield from _describe(mail_name, clock or ServiceClock())
        return Cancellation(False, f"could not be cancelled: {error}{state}", campaign)
    return Cancellation(True, "was cancelled: it is not sent")


def end_campaign(
    request: CancelCampaign, *, missing_ok: bool = True, ignore_draft: bool = False, clock: ServiceClock | None = None
) -> Flow[bool]:
    """Cancel a campaign whose send time is ahead; return whether there was a campaign to cancel.

    :param missing_ok: succeed when there is no campaign of that name.
    :param ignore_draft: succeed when it shows as a draft and the service rejects its cancellation: it was only saved,
        was cancelled before, or cannot be cancelled and is sent. The specification does not show which.
    :param clock: the service's clock, such as ``client.service_clock``. Default: the local one.
    :raises MailMissingError: there is no campaign of that name, and ``missing_ok`` is false.
    :raises MailConflictError: it is or will be sent, and cannot be cancelled.
    :raises MailPendingCampaignError: it cannot be cancelled, and the service does not show whether it is sent.
    """
    clock = clock or ServiceClock()
    campaign: Campaign | None = yield from find_campaign(request.mail_name)
    cancelled = False
    if campaign is not None and campaign.mail_status == MailStatus.DRAFT:
        # Checked before the request: after a lost response and a rejection, only a change shows that it was cancelled.
        campaign, scheduled = yield from state_after_rejection(request.mail_name, clock)
        if campaign is not None and campaign.mail_status == MailStatus.DRAFT and not scheduled:
            _check_draft(campaign, scheduled, request, ignore_draft=ignore_draft)
            return False
    # Sent in any case: a scheduled campaign may not be listed yet.
    try:
        yield request
    except MailRejectedError as rejection:
        campaign, sent = yield from state_after_rejection(request.mail_name, clock)
        if campaign is not None and campaign.mail_status == MailStatus.DRAFT and not sent:
            _check_draft(campaign, sent, request, ignore_draft=ignore_draft)
        elif campaign is not None and sent is None:
            raise not_known(campaign, request.path) from None
        if sent:
            status = "is not listed" if campaign is None else f"shows mailStatus {campaign.mail_status}"
            raise MailConflictError(
                f"mail_name: campaign {request.mail_name!r} cannot be cancelled, it {status}: {rejection}",
                operation=request.path,
            ) from None
    else:
        # The specification does not show the response for a name that does not exist.
        campaign = campaign or (yield from find_campaign(request.mail_name))
        cancelled = campaign is not None
    if campaign is None and not missing_ok:
        raise MailMissingError(f"mail_name: there is no campaign {request.mail_name!r}", operation=request.path)
    return cancelled


def _check_draft(campaign: Campaign, sent: bool | None, request: CancelCampaign, *, ignore_draft: bool) -> None:
    """Reject a campaign that shows as a draft and that the service would not cancel, unless ``ignore_draft``."""
    if not ignore_draft:
        advice = "If it was only saved, or cancelled before, set ignore_draft=True"
        raise not_known(campaign, request.path, advice) from None
    if sent is None:
        log.warning("campaign %r shows as a draft, and its send time has just passed.", request.mail_name)


def _describe(mail_name: str, clock: ServiceClock) -> Flow[tuple[Campaign | None, str]]:
    try:
        campaign, sent = yield from state_after_rejection(mail_name, clock)
    except MailError as error:
        return None, f"; it is not known whether it is sent: {error}"
    if campaign is None:
        return None, "; it is scheduled" if sent else "; there is no campaign of that name"
    scheduled = " and is still scheduled" if sent and campaign.send_time_is_ahead(clock.latest()) else ""
    return campaign, f"; it shows mailStatus {campaign.mail_status}{scheduled}"
