"""Adopt an existing campaign for the requested one: whether it is equal, and whether it is or will be sent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_mail.api._core.addresses import address_key
from airflow_provider_mail.api._core.clock import RESOLUTION, ServiceClock
from airflow_provider_mail.api._core.requests import Flow, Pause
from airflow_provider_mail.api.campaigns import (
    Campaign,
    CreateCampaign,
    MailStatus,
    find_campaign,
    is_scheduled,
    latest,
)
from airflow_provider_mail.api.errors import MailConflictError

MINUTE = 60.0
"""Seconds: the resolution to which send times are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """A campaign that was created or adopted.

    :param id: its number at the service; known only to the try that received the response.
    :param guid: its unique identifier at the service.
    :param adopted: whether it existed already, equal to the request.
    :param incomplete: whether the service kept it although creating it failed, so that its attachment may be missing.
    :param found: the campaign as it was found, when it was adopted.
    """

    mail_name: str
    id: int | None
    guid: str | None
    adopted: bool
    incomplete: bool = False
    found: Campaign | None = None


def is_unsent(found: Campaign, clock: ServiceClock) -> bool:
    """Return whether a campaign has mailed nobody: a draft, a failed one, or one whose send time is ahead."""
    return found.mail_status in (MailStatus.DRAFT, MailStatus.FAILED) or found.send_time_is_ahead(latest(clock))


def is_older(found: Campaign, moment: datetime, clock: ServiceClock) -> bool:
    """Return whether a campaign was sent before a moment, or may have been.

    The document shows no time of creation, so the send time counts. The clocks of the scheduler, which wrote the
    moment, and of the service cannot be compared; that of the worker can be with the service's. So the service's clock
    agrees with the scheduler's, or the worker's does; a moment in the future shows which of them does not. When neither
    is shown to be wrong, the campaign is older if it is by one of them.

    :param moment: by the scheduler's clock.
    """
    if is_unsent(found, clock):
        return False
    sent = found.send_by_date_time
    if sent is None:
        return True
    readings = (moment, moment + timedelta(seconds=clock.offset))
    began = max((reading for reading in readings if reading <= latest(clock)), default=moment)
    # A time in whole minutes may have been cut to them.
    resolution = RESOLUTION if sent.second or sent.microsecond else MINUTE
    return sent < began - timedelta(seconds=resolution)


def confirm_sending(found: Campaign, clock: ServiceClock, waits: Sequence[float]) -> Flow[tuple[Campaign, bool]]:
    """Find out whether a campaign is scheduled, is being sent, or is over.

    The document does not show the status of a campaign that is new, scheduled or cancelled. So a send time ahead counts
    only if the service confirms that the campaign is scheduled, whatever its status; and a draft may change.

    :param waits: seconds to pause between the lookups, until it is confirmed.
    :return: the campaign as last seen, and whether it is confirmed.
    """
    for seconds in (*waits, None):
        ahead = found.send_time_is_ahead(latest(clock))
        if found.mail_status in (MailStatus.COMPLETE, MailStatus.FAILED):
            return found, True
        if found.mail_status == MailStatus.SENDING and not ahead:
            return found, True
        if ahead and (yield from is_scheduled(found.mail_name)):
            return found, True
        if seconds is not None:
            yield Pause(seconds)
            found = (yield from find_campaign(found.mail_name)) or found
    return found, False


def adopt(
    request: CreateCampaign,
    found: Campaign,
    ignore: Collection[str] = (),
    now: datetime | None = None,
    *,
    own: bool | None = None,
) -> Creation:
    """Adopt an existing campaign for the requested one.

    :param ignore: request fields that may differ.
    :param now: the service's time. Default: the local time.
    :param own: whether an earlier try probably created it. Default: that is unknown.
    :raises MailConflictError: naming the fields that differ.
    """
    different = [name for name in differences(request, found, now) if name not in ignore]
    if different:
        choose = "choose another mail_name, or delete that campaign"
        rewritten = f"if the service rewrites what it is sent, set ignore_differences={different}"
        again = "another mail_name, or deleting it, mails everybody again"
        advice = {
            True: f"this task probably created it; {rewritten}; {again}",
            None: f"{choose}. But if an earlier try of this task created it, {again}; {rewritten}",
            False: choose,
        }[own]
        raise MailConflictError(
            f"mail_name: a campaign named {request.mail_name!r} exists (mailStatus {found.mail_status}) and differs in "
            f"{', '.join(different)}: {advice}",
            operation=request.path,
        )
    return Creation(mail_name=request.mail_name, id=None, guid=found.guid, adopted=True, found=found)


def differences(request: CreateCampaign, found: Campaign, now: datetime | None = None) -> list[str]:
    """Return the fields of the request in which an existing campaign differs.

    Fields that the request leaves out, fields that the service did not return, and the attachment, which it never
    returns, are not compared.

    :param now: the service's time. Default: the local time.
    """
    different = []
    for ours, theirs in _COMPARED.items():
        form = _FORMS.get(ours, _identity)
        value = getattr(request, ours)
        if value is None or theirs not in found.model_fields_set:
            continue
        # null, an empty text and an empty list are equal.
        if form(value or ()) != form(getattr(found, theirs) or ()):
            different.append(ours)
    ahead = found.send_time_is_ahead(now)
    if _sends_at_another_time(request, found, ahead):
        different.append("send_date")
    if found.mail_status == MailStatus.DRAFT and not ahead and not request.only_save:
        different.append("only_save")
    return different


def _identity(value: object) -> object:
    return value


def _address(value: Any) -> object:
    return value and address_key(value)


_FORMS: dict[str, Callable[[Any], object]] = {
    "sender_mail": _address,
    "reply_to": _address,
    "send_list_names": frozenset,
    "repel_list_names": frozenset,
}
"""The forms in which fields of the request are compared; all others as they are."""

_RETURNED_AS = {"content": "mail_content", "send_list_names": "rcpt_list_names"}

_COMPARED = {
    name: returned
    for name in CreateCampaign.model_fields
    if name != "mail_name" and (returned := _RETURNED_AS.get(name, name)) in Campaign.model_fields
}
"""The fields of the request that are compared, each with that of the campaign."""

COMPARED = frozenset({*_COMPARED, "send_date", "only_save"})
"""The fields that are compared, and that ``ignore`` may name."""


def _sends_at_another_time(request: CreateCampaign, found: Campaign, ahead: bool) -> bool:
    if request.send_date is None or found.send_by_date_time is None:
        return False
    # Compared to the minute, which may be all that the service keeps. A sent campaign shows its actual send time, a
    # little after the requested one.
    delay = found.send_by_date_time - request.send_date
    return delay <= -timedelta(seconds=MINUTE) or (ahead and delay >= timedelta(seconds=MINUTE))
