"""Limit the campaigns and recipients of a day, counted by the service's own list of campaigns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from airflow_provider_mail.api._core.clock import ServiceClock
from airflow_provider_mail.api._core.pagination import Pager, next_page
from airflow_provider_mail.api._core.requests import Flow
from airflow_provider_mail.api.campaigns import Campaign, CreateCampaign, GetCampaigns, MailStatus
from airflow_provider_mail.api.contacts import ContactsPage, GetListContacts
from airflow_provider_mail.api.errors import MailRejectedError, MailValidationError


@dataclass(frozen=True, slots=True)
class CampaignCaps:
    """The limits of one day in UTC.

    :param campaigns: maximum number of campaigns. Default: no limit.
    :param recipients: maximum number of recipients of all campaigns together. Default: no limit.
    """

    campaigns: int | None = None
    recipients: int | None = None

    def __bool__(self) -> bool:
        return self.campaigns is not None or self.recipients is not None


def check_caps(request: CreateCampaign, caps: CampaignCaps, clock: ServiceClock) -> Flow[None]:
    """Reject a campaign that would exceed a limit of its day. Two that are created at once may exceed it together.

    :raises MailValidationError: naming the limits.
    """
    problems = yield from excess(request, caps, clock)
    if problems:
        raise MailValidationError(f"{'; '.join(problems)}: nothing was created", operation=request.path)


def excess(request: CreateCampaign, caps: CampaignCaps, clock: ServiceClock) -> Flow[list[str]]:
    """Return the limits that a campaign would exceed, beginning with the field of the connection.

    A scheduled or running campaign counts with the contacts of its lists, including excluded ones; a sent one with its
    mails.

    :param clock: the service's clock, such as ``client.service_clock``.
    """
    if request.only_save or not caps:
        return []
    day = (request.send_date or clock.now()).date()
    others = yield from _campaigns_of(day, request.mail_name, clock)
    problems = []
    if caps.campaigns is not None and len(others) >= caps.campaigns:
        problems.append(f"max_campaigns_per_day: {len(others)} campaigns of {day} exist, {caps.campaigns} may be sent")
    if caps.recipients is not None:
        total = yield from _recipients(request, others)
        if total is None:
            problems.append(f"max_recipients_per_day: the service does not show how many recipients {day} has")
        elif total > caps.recipients:
            problems.append(
                f"max_recipients_per_day: {day} would have {total:,} recipients, {caps.recipients:,} may be"
            )
    return problems


def list_sizes(names: Sequence[str]) -> Flow[int | None]:
    """Return the contacts in some lists; ``None`` if the service does not show the size of one."""
    total = 0
    for name in names:
        try:
            page: ContactsPage = yield GetListContacts(list_name=name, page_size=1)
        except MailRejectedError:
            return None
        if page.total_records is None:
            return None
        total += page.total_records
    return total


def _campaigns_of(day: date, excluded_name: str, clock: ServiceClock) -> Flow[list[Campaign]]:
    """Return the campaigns that are or will be sent on a day in UTC, except for one.

    A cancelled campaign may look like a scheduled one; it counts until its send time has passed.
    """
    pager: Pager[Campaign] = Pager(GetCampaigns(page_size=100))
    campaigns = []
    while pager.next_request is not None:
        page: Sequence[Campaign] = yield from next_page(pager)
        now = clock.latest()
        campaigns += [
            campaign
            for campaign in page
            if campaign.mail_name != excluded_name
            and campaign.send_by_date_time is not None
            and campaign.send_by_date_time.date() == day
            and (campaign.mail_status != MailStatus.DRAFT or campaign.send_time_is_ahead(now))
        ]
    return campaigns


def _recipients(request: CreateCampaign, others: Sequence[Campaign]) -> Flow[int | None]:
    total = yield from list_sizes(request.send_list_names or [])
    for campaign in others:
        if campaign.mail_stats is not None and campaign.mail_stats.sent_count is not None:
            size: int | None = campaign.mail_stats.sent_count
        else:
            size = yield from list_sizes(campaign.rcpt_list_names or [])
        total = None if total is None or size is None else total + size
    return total
