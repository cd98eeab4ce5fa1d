"""What holds before a campaign is created: no other one of its name, a send time ahead, and the limits of its day.

An existing campaign is adopted instead of creating the requested one, if it is equal and is or will be sent. A campaign
that must be created may have a send time in the past: the service would send immediately, which is rarely intended. The
limits of a day count the service's own list of campaigns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from hashlib import sha256
from typing import Any

from airflow_provider_mail.api._core.fields import address_key
from airflow_provider_mail.api._core.pacing import RESOLUTION, ServiceClock
from airflow_provider_mail.api._core.pagination import all_records
from airflow_provider_mail.api._core.requests import Client
from airflow_provider_mail.api.campaigns import (
    FINAL,
    Campaign,
    CreateCampaign,
    GetCampaigns,
    MailStatus,
    find_campaign,
    is_scheduled,
)
from airflow_provider_mail.api.errors import MailConflictError, MailValidationError
from airflow_provider_mail.api.flows.audience import AudienceList, list_totals, without_time

MINUTE = 60.0
"""The resolution in seconds with which send times are compared."""

TOLERANCE = timedelta(minutes=5)
"""How far in the past a send time may be: clocks differ slightly, and a task may start slightly late."""


def is_unsent(campaign: Campaign, clock: ServiceClock) -> bool:
    """Return whether a campaign has mailed nobody: a draft, a failed one, or one whose send time is ahead."""
    return campaign.mail_status in (MailStatus.DRAFT, MailStatus.FAILED) or campaign.send_time_is_ahead(clock.latest())


def is_older(campaign: Campaign, moment: datetime, clock: ServiceClock) -> bool:
    """Return whether a campaign was sent before a moment, or may have been.

    The specification has no creation time, so the send time is used. The clock of the scheduler, which set the moment,
    cannot be compared with the service's; only the worker's clock can. So either the service's or the worker's clock is
    assumed to agree with the scheduler's. If the moment is in the future by one of them, that one disagrees. Otherwise,
    the campaign is older if it is older by at least one of the two clocks.

    :param moment: by the scheduler's clock.
    """
    if is_unsent(campaign, clock):
        return False
    sent = campaign.send_by_date_time
    if sent is None:
        return True
    readings = (moment, moment + timedelta(seconds=clock.offset))
    began = max((reading for reading in readings if reading <= clock.latest()), default=moment)
    # A time in whole minutes may have been truncated to minutes.
    resolution = RESOLUTION if sent.second or sent.microsecond else MINUTE
    return sent < began - timedelta(seconds=resolution)


def confirm_sending(client: Client, campaign: Campaign, waits: Sequence[float]) -> tuple[Campaign, bool]:
    """Determine whether a campaign is scheduled, is being sent, or has ended.

    The specification does not show the status of a campaign that is new, scheduled or cancelled. So a send time in the
    future is not sufficient: the service must confirm that the campaign is scheduled; and the status of a draft may
    change.

    :param waits: seconds to pause between the lookups, until it is confirmed.
    :return: the campaign as last seen, and whether it is confirmed.
    """
    clock = client.service_clock
    for seconds in (*waits, None):
        ahead = campaign.send_time_is_ahead(clock.latest())
        if campaign.mail_status in FINAL:
            return campaign, True
        if campaign.mail_status == MailStatus.SENDING and not ahead:
            return campaign, True
        if ahead and is_scheduled(client, campaign.mail_name):
            return campaign, True
        if seconds is not None:
            client.pause(seconds)
            campaign = find_campaign(client, campaign.mail_name, campaign.guid) or campaign
    return campaign, False


def check_equal(
    request: CreateCampaign,
    campaign: Campaign,
    ignore: Collection[str] = (),
    now: datetime | None = None,
    *,
    own: bool | None = None,
    digests: Mapping[str, str] | None = None,
) -> None:
    """Reject an existing campaign that differs from the requested one, which it would replace.

    :param ignore: request fields that may differ.
    :param now: the service's time. Default: the local time.
    :param own: whether an earlier try probably created it. Default: that is unknown.
    :param digests: of the request with which an earlier try created it; see :func:`field_digests`. Default: not known.
    :raises MailDifferentCampaignError: naming the fields that differ.
    """
    different = [name for name in differences(request, campaign, now) if name not in ignore]
    if own and digests:
        # Fields that the service does not return, such as the attachment.
        changed = {name for name, digest in field_digests(request).items() if digests.get(name) != digest}
        different += sorted(changed - {*different, *ignore})
    if different:
        choose = "choose another mail_name, or delete that campaign"
        allow = f"if the service rewrites what it is sent, set ignore_differences={different}"
        warning = "another mail_name, or deleting it, mails everybody again"
        advice = {
            True: f"this task probably created it; {allow}; {warning}",
            None: f"{choose}. But if an earlier try of this task created it, {warning}; {allow}",
            False: choose,
        }[own]
        lists_differ = not {*_LISTS}.isdisjoint(different)
        if (lists_differ or not own) and _is_same_audience(request, campaign):
            advice = (
                "it is to the same audience as it was in an earlier import. Another mail_name, or deleting it, mails "
                "people again. If it was sent for this run, mark this task as success"
            )
        if own and campaign.send_time_is_ahead(now):
            advice = (
                "nobody was mailed yet: cancel and delete that campaign and clear this task, or clear it with "
                f"replace_scheduled=True; {allow}"
            )
        elif own and _is_wanted_draft(request, campaign):
            advice = f"it is a draft: delete it and clear this task; {allow}"
        raise MailDifferentCampaignError(
            f"mail_name: a campaign named {request.mail_name!r} exists (mailStatus {campaign.mail_status}) and differs "
            f"in {', '.join(different)}: {advice}",
            operation=request.path,
        )


def _is_same_audience(request: CreateCampaign, campaign: Campaign) -> bool:
    """Return whether both are to lists of the same exact audience."""
    owners = [
        {audience.owner for name in names or () if (audience := AudienceList.parse(name)) is not None}
        for names in (request.send_list_names, campaign.rcpt_list_names)
    ]
    return bool(owners[0] & owners[1])


class MailDifferentCampaignError(MailConflictError):
    """A campaign of that name exists and differs."""


_COMPARED_OTHERWISE = frozenset({"mail_name", "send_date", "only_save", "sandbox_mode"})


def field_digests(request: CreateCampaign) -> dict[str, str]:
    """Return a digest of each field of a request, also of those that are left out."""
    values = request.model_dump(mode="json")
    for name, comparable in _FORMS.items():
        form = comparable(getattr(request, name) or ())
        values[name] = sorted(form) if isinstance(form, frozenset) else form
    return {
        name: sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
        for name, value in values.items()
        if name not in _COMPARED_OTHERWISE
    }


def differences(request: CreateCampaign, campaign: Campaign, now: datetime | None = None) -> list[str]:
    """Return the fields of the request in which an existing campaign differs.

    Fields that the request leaves out, fields that the service did not return, and the attachment, which it never
    returns, are not compared.

    :param now: the service's time. Default: the local time.
    """
    different = []
    ahead = campaign.send_time_is_ahead(now)
    # Nobody was mailed: the people of a later try of the run are those who should be.
    forms = _FORMS | (dict.fromkeys(_LISTS, frozenset) if ahead or _is_wanted_draft(request, campaign) else {})
    for name, returned_name in _COMPARED.items():
        comparable = forms.get(name, _identity)
        value = getattr(request, name)
        if value is None or returned_name not in campaign.model_fields_set:
            continue
        # null, an empty text and an empty list are equal.
        if comparable(value or ()) != comparable(getattr(campaign, returned_name) or ()):
            different.append(name)
    if _sends_at_another_time(request, campaign, ahead):
        different.append("send_date")
    if campaign.mail_status == MailStatus.DRAFT and not ahead and not request.only_save:
        different.append("only_save")
    return different


def _is_wanted_draft(request: CreateCampaign, campaign: Campaign) -> bool:
    return bool(request.only_save) and campaign.mail_status == MailStatus.DRAFT


def _identity(value: object) -> object:
    return value


def _address(value: Any) -> object:
    return value and address_key(value)


def _lists(names: Any) -> object:
    # The lists of another try of the same run are the same audience.
    return frozenset(map(without_time, names))


_LISTS = ("send_list_names", "repel_list_names")

_FORMS: dict[str, Callable[[Any], object]] = {
    "sender_mail": _address,
    "reply_to": _address,
    **dict.fromkeys(_LISTS, _lists),
}
"""The forms in which fields of the request are compared; all other fields are compared unchanged."""

_RETURNED_AS = {"content": "mail_content", "send_list_names": "rcpt_list_names"}

_COMPARED = {
    name: returned
    for name in CreateCampaign.model_fields
    if name != "mail_name" and (returned := _RETURNED_AS.get(name, name)) in Campaign.model_fields
}
"""The fields of the request that are compared, each with the corresponding field of the campaign."""

COMPARED = frozenset(CreateCampaign.model_fields) - {"mail_name", "sandbox_mode"}
"""The fields that are compared, and that ``ignore`` may name: those that the service returns, and with the request of
an earlier try all."""


def _sends_at_another_time(request: CreateCampaign, campaign: Campaign, ahead: bool) -> bool:
    if request.send_date is None or campaign.send_by_date_time is None:
        return False
    # Compared in minutes: the service may not store seconds. A sent campaign shows its actual send time, which is
    # slightly later than the requested one.
    delay = campaign.send_by_date_time - request.send_date
    return delay <= -timedelta(seconds=MINUTE) or (ahead and delay >= timedelta(seconds=MINUTE))


def lateness(send_date: datetime | None, now: datetime) -> timedelta | None:
    """Return how far a send time is in the past, in whole seconds; ``None`` if that is within :data:`TOLERANCE`.

    :param send_date: with a time zone; ``None`` (send now) is never late.
    :param now: the service's time, see :class:`~airflow_provider_mail.api._core.pacing.ServiceClock`.
    """
    late = timedelta() if send_date is None else now - send_date
    return timedelta(seconds=int(late.total_seconds())) if late > TOLERANCE else None


def check_send_date(send_date: datetime | None, now: datetime, *, operation: str | None = None) -> None:
    """Reject a send time in the past.

    Call it right before the request, after the lookup: a late try must still find what an earlier one created.

    :param send_date: with a time zone; ``None`` (send now) is accepted.
    :raises MailValidationError: naming ``send_date`` and the argument that allows it.
    """
    if (late := lateness(send_date, now)) is not None:
        raise MailValidationError(
            f"send_date: {send_date:%Y-%m-%dT%H:%M:%SZ} lies {late} in the past: the service would send at once. "
            "Nothing was sent. Correct it, or set allow_past_send_date=True to send at once",
            operation=operation,
        )


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


def excess(client: Client, request: CreateCampaign, caps: CampaignCaps) -> list[str]:
    """Return the limits that a campaign would exceed, beginning with the field of the connection.

    A scheduled or running campaign counts with the contacts of its lists, including excluded ones; a sent one with its
    mails. Two that are created at once may exceed a limit together.
    """
    clock = client.service_clock
    if request.only_save or not caps:
        return []
    day = (request.send_date or clock.now()).date()
    others = _campaigns_of(client, day, request.mail_name)
    problems = []
    if caps.campaigns is not None and len(others) >= caps.campaigns:
        problems.append(f"max_campaigns_per_day: {len(others)} campaigns of {day} exist, {caps.campaigns} may be sent")
    if caps.recipients is not None:
        total = _recipients(client, request, others)
        if total is None:
            problems.append(f"max_recipients_per_day: the service does not show how many recipients {day} has")
        elif total > caps.recipients:
            problems.append(
                f"max_recipients_per_day: {day} would have {total:,} recipients, {caps.recipients:,} may be"
            )
    return problems


def list_sizes(client: Client, names: Sequence[str]) -> int | None:
    """Return the contacts in some lists; ``None`` if the service does not show the size of one."""
    sizes = list_totals(client, names).values()
    return None if None in sizes else sum(size or 0 for size in sizes)


def _campaigns_of(client: Client, day: date, excluded_name: str) -> list[Campaign]:
    """Return the campaigns that are or will be sent on a day in UTC, except for one.

    A cancelled campaign may look like a scheduled one; it counts until its send time has passed.
    """
    clock = client.service_clock
    campaigns: Iterator[Campaign] = all_records(client, GetCampaigns(page_size=100))
    return [
        campaign
        for campaign in campaigns
        if campaign.mail_name != excluded_name
        and campaign.send_by_date_time is not None
        and campaign.send_by_date_time.date() == day
        and (campaign.mail_status != MailStatus.DRAFT or campaign.send_time_is_ahead(clock.latest()))
    ]


def _recipients(client: Client, request: CreateCampaign, others: Sequence[Campaign]) -> int | None:
    total = list_sizes(client, request.send_list_names or [])
    for campaign in others:
        if campaign.mail_stats is not None and campaign.mail_stats.sent_count is not None:
            size: int | None = campaign.mail_stats.sent_count
        else:
            size = list_sizes(client, campaign.rcpt_list_names or [])
        total = None if total is None or size is None else total + size
    return total
