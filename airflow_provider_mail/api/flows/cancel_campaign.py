"""Cancel a campaign, or all scheduled ones whose names begin with a text (specification, "Campaign send tasks")."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from airflow_provider_mail.api._core.pacing import ServiceClock
from airflow_provider_mail.api._core.pagination import all_records
from airflow_provider_mail.api._core.requests import Client, MailResponse
from airflow_provider_mail.api.campaigns import (
    FINAL,
    Campaign,
    CancelCampaign,
    GetCampaigns,
    MailStatus,
    find_campaign,
    not_known,
    state_after_rejection,
)
from airflow_provider_mail.api.errors import MailConflictError, MailError, MailNotFoundError, MailRejectedError

__all__ = ["Cancellation", "StopResult", "cancel_campaign", "scheduled_campaigns", "stop_campaigns"]

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


def cancel_campaign(client: Client, mail_name: str) -> Cancellation:
    """Cancel a campaign whose send time is ahead.

    Service errors are returned as ``Cancellation(done=False)``, never raised.
    """
    try:
        client.send(CancelCampaign(mail_name=mail_name))
    except MailError as error:
        campaign, state = None, ""
        if isinstance(error, MailRejectedError):
            campaign, state = _describe(client, mail_name)
        return Cancellation(False, f"could not be cancelled: {error}{state}", campaign)
    return Cancellation(True, "was cancelled: it is not sent")


def end_campaign(
    client: Client, request: CancelCampaign, *, missing_ok: bool = True, ignore_draft: bool = False
) -> bool:
    """Cancel a campaign whose send time is ahead; return whether there was a campaign to cancel.

    :param missing_ok: succeed when there is no campaign of that name.
    :param ignore_draft: succeed when it shows as a draft and the service rejects its cancellation: it was only saved,
        was cancelled before, or cannot be cancelled and is sent. The specification does not show which.
    :raises MailNotFoundError: there is no campaign of that name, and ``missing_ok`` is false.
    :raises MailConflictError: it is or will be sent, and cannot be cancelled.
    :raises MailPendingCampaignError: it cannot be cancelled, and the service does not show whether it is sent.
    """
    client.open_ahead()
    campaign: Campaign | None = find_campaign(client, request.mail_name)
    cancelled = False
    if campaign is not None and campaign.mail_status == MailStatus.DRAFT:
        # Checked before the request: after a lost response and a rejection, only a change shows that it was cancelled.
        campaign, scheduled = state_after_rejection(client, request.mail_name)
        if campaign is not None and campaign.mail_status == MailStatus.DRAFT and not scheduled:
            _check_draft(campaign, scheduled, request, ignore_draft=ignore_draft)
            return False
    # Sent in any case: a scheduled campaign may not be listed yet.
    try:
        client.send(request)
    except MailRejectedError as rejection:
        campaign, sent = state_after_rejection(client, request.mail_name)
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
        campaign = campaign or find_campaign(client, request.mail_name)
        cancelled = campaign is not None
    if campaign is None and not missing_ok:
        raise MailNotFoundError(f"mail_name: there is no campaign {request.mail_name!r}", operation=request.path)
    return cancelled


def _check_draft(campaign: Campaign, sent: bool | None, request: CancelCampaign, *, ignore_draft: bool) -> None:
    """Reject a campaign that shows as a draft and that the service would not cancel, unless ``ignore_draft``."""
    if not ignore_draft:
        advice = "If it was only saved, or cancelled before, set ignore_draft=True"
        raise not_known(campaign, request.path, advice) from None
    if sent is None:
        log.warning("campaign %r shows as a draft, and its send time has just passed.", request.mail_name)


def _describe(client: Client, mail_name: str) -> tuple[Campaign | None, str]:
    clock = client.service_clock
    try:
        campaign, sent = state_after_rejection(client, mail_name)
    except MailError as error:
        return None, f"; it is not known whether it is sent: {error}"
    if campaign is None:
        return None, "; it is scheduled" if sent else "; there is no campaign of that name"
    scheduled = " and is still scheduled" if sent and campaign.send_time_is_ahead(clock.latest()) else ""
    return campaign, f"; it shows mailStatus {campaign.mail_status}{scheduled}"


MAX_ROUNDS = 5
"""Maximum number of rounds: in each, campaigns may be created that the listing before does not have."""

MAX_AT_ONCE = 100
"""Maximum number of concurrent cancellations; the client sends at most ``max_in_flight`` of them at a time."""

Response: TypeAlias = MailResponse | MailError


@dataclass(frozen=True, slots=True)
class StopResult:
    """The result of stopping campaigns.

    :param stopped: the names of the campaigns that were scheduled and are not sent.
    :param not_stopped: the names of those that were scheduled and may be sent, each with the reason.
    :param sending: the names of those that are being sent, which the service does not cancel.
    """

    stopped: Sequence[str]
    not_stopped: Mapping[str, str]
    sending: Sequence[str]
    sent: int


def stop_campaigns(client: Client, prefix: str = "", *, settle_seconds: float = 0.0) -> StopResult:
    """Cancel every scheduled campaign whose name begins with ``prefix``, concurrently, and verify each.

    Errors of single cancellations are a part of the result.

    :param prefix: the beginning of the names. Default: all campaigns.
    :param settle_seconds: the time in which campaigns may still be created; those are cancelled after it. Default:
        none are.
    :raises MailError: the campaigns could not be listed.
    """
    responses: dict[str, Response] = {}
    before: dict[str, int] = {}
    campaigns = _cancel_scheduled(client, prefix, responses, before)
    if settle_seconds:
        client.pause(settle_seconds)
        campaigns = _cancel_scheduled(client, prefix, responses, before)
    return _verify(client, responses, before, campaigns)


def _cancel_scheduled(
    client: Client, prefix: str, responses: dict[str, Response], before: dict[str, int]
) -> dict[str, Campaign]:
    """Cancel the scheduled campaigns, also those that appear meanwhile; return all as they are listed afterwards.

    :param responses: gets the response to each cancellation, by name.
    :param before: gets the ``mailStatus`` of each campaign before it was cancelled.
    """
    clock = client.service_clock
    campaigns = _campaigns(client, prefix)
    for _ in range(MAX_ROUNDS):
        scheduled = [name for name in _scheduled(campaigns, clock) if name not in responses]
        if not scheduled:
            break
        before |= {name: campaigns[name].mail_status for name in scheduled}
        responses |= _cancel(client, scheduled)
        campaigns = _campaigns(client, prefix)
    return campaigns


def _campaigns(client: Client, prefix: str) -> dict[str, Campaign]:
    """Read the campaigns whose names begin with a text; the service's own filter finds it anywhere in the name."""
    campaigns: Iterator[Campaign] = all_records(client, GetCampaigns(mail_name=prefix or None, page_size=100))
    return {campaign.mail_name: campaign for campaign in campaigns if campaign.mail_name.startswith(prefix)}


def _scheduled(campaigns: Mapping[str, Campaign], clock: ServiceClock) -> list[str]:
    """Return the names of the campaigns that may be scheduled: the specification does not show their status."""
    now = clock.latest()
    return [name for name, item in campaigns.items() if item.mail_status not in FINAL and item.send_time_is_ahead(now)]


def scheduled_campaigns(client: Client) -> list[str]:
    """Return the names of all campaigns that may be scheduled."""
    return _scheduled(_campaigns(client, ""), client.service_clock)


def _cancel(client: Client, names: Sequence[str], *, sandbox_mode: bool | None = None) -> dict[str, Response]:
    """Cancel campaigns concurrently; return the response to each, or its error."""
    responses: dict[str, Response] = {}
    for first in range(0, len(names), MAX_AT_ONCE):
        part = names[first : first + MAX_AT_ONCE]
        results = client.send_all([CancelCampaign(mail_name=name, sandbox_mode=sandbox_mode) for name in part])
        responses.update(zip(part, results, strict=True))
    return responses


def _verify(
    client: Client,
    responses: Mapping[str, Response],
    before: Mapping[str, int],
    campaigns: Mapping[str, Campaign],
) -> StopResult:
    """Determine what became of the campaigns, from a listing after the cancellations.

    :param responses: to the cancellations, by name.
    :param before: the ``mailStatus`` of each campaign before it was cancelled.
    """
    clock = client.service_clock
    accepted = [name for name, response in responses.items() if not isinstance(response, MailError)]
    # Confirmed is what now has another status, unless that is the one of a campaign that is being sent.
    confirmed = {
        name
        for name in accepted
        if name in campaigns and campaigns[name].mail_status not in (before[name], MailStatus.SENDING)
    }
    # A cancelled campaign may look like a scheduled one; then only the service knows whether it would cancel it.
    listed = [name for name in _scheduled(campaigns, clock) if name not in confirmed]
    answers = _cancel(client, listed, sandbox_mode=True)
    stopped = []
    not_stopped = {}
    for name, response in responses.items():
        is_ahead = name in confirmed and campaigns[name].send_time_is_ahead(clock.latest())
        reason = "" if is_ahead else _reason(response, campaigns.get(name), answers.get(name))
        if reason:
            not_stopped[name] = reason
        elif not isinstance(response, MailError):
            stopped.append(name)
    new = {name: "it was created meanwhile" for name in listed if name not in responses}
    sending = [
        name
        for name, item in campaigns.items()
        if item.mail_status == MailStatus.SENDING and name not in {*listed, *responses}
    ]
    sent = sum(item.mail_status == MailStatus.COMPLETE for item in campaigns.values())
    return StopResult(stopped, not_stopped | new, sending, sent)


def _reason(response: Response, campaign: Campaign | None, answer: Response | None) -> str:
    """Return why a campaign may be sent; empty if it is not.

    :param campaign: as it is listed afterwards; ``None`` if it is not.
    :param answer: to a cancellation in sandbox mode, if it is listed with a send time that is ahead.
    """
    rejection = f": {response}" if isinstance(response, MailError) else ""
    if campaign is None or campaign.mail_status == MailStatus.FAILED:
        return f"it is not listed{rejection}" if rejection and not isinstance(response, MailRejectedError) else ""
    if answer is None:
        return f"its send time has passed, it shows mailStatus {campaign.mail_status}{rejection}"
    if not isinstance(answer, MailError):
        return f"it is still scheduled{rejection}"
    if not isinstance(answer, MailRejectedError):
        return f"it is not known whether it is scheduled: {answer}"
    # Rejected twice: a draft was only saved, or cancelled before.
    known = not rejection or campaign.mail_status == MailStatus.DRAFT
    return "" if known else f"it shows mailStatus {campaign.mail_status}{rejection}"
