"""Whether an existing campaign can be taken for the requested one: equal in content, and really going out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_mail.api._core.clock import RESOLUTION, ServiceClock
from airflow_provider_mail.api._core.requests import Flow, Pause
from airflow_provider_mail.api.campaigns import Campaign, CreateCampaign, MailStatus, find_campaign
from airflow_provider_mail.api.errors import MailConflictError
from airflow_provider_mail.api.flows.cancel_campaign import is_scheduled

PATIENCE = 30.0
"""Seconds: how long a new campaign may take to appear, or to become more than a draft, while a task waits for it."""

NEW_SECONDS = 15 * 60.0
"""Seconds: for so long after its creation, what a campaign shows is not final. The document does not say what a new one
shows."""

_BACK_OFF = (1, 2, 4, 8, 8, 7)
_BRIEFLY = 3


def pauses(patience: float, *, brief: bool = False) -> list[float]:
    """Seconds from one lookup to the next, with back-off.

    :param patience: seconds of all pauses together.
    :param brief: only the first few, about a quarter of the time: for what is not likely to change.
    """
    unit = patience / sum(_BACK_OFF)
    return [unit * share for share in (_BACK_OFF[:_BRIEFLY] if brief else _BACK_OFF)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """How a campaign came to be there.

    :param id: the service's number; known only to the try that got the answer.
    :param guid: the service's unique identifier.
    :param adopted: whether it was there already, equal to what was asked for.
    :param incomplete: whether it was kept by the service although creating it failed, so its attachment may be missing.
    :param found: the campaign as it was found, when it was adopted.
    """

    mail_name: str
    id: int | None
    guid: str | None
    adopted: bool
    incomplete: bool = False
    found: Campaign | None = None


def latest(clock: ServiceClock) -> datetime:
    """The latest time that it can be at the service: its clock is known to the second."""
    return clock.now() + timedelta(seconds=RESOLUTION)


def is_older(found: Campaign, moment: datetime, clock: ServiceClock) -> bool:
    """Whether a campaign has gone out, or begun to, before a moment; also when its send time does not prove otherwise.

    The document shows no time of creation. A draft, one that failed, or one that waits for its send time has mailed
    nobody.

    :param moment: in local time.
    """
    if found.mail_status in (MailStatus.DRAFT, MailStatus.FAILED) or found.send_time_is_ahead(latest(clock)):
        return False
    sent = found.send_by_date_time
    return sent is None or sent < moment + timedelta(seconds=clock.offset) - timedelta(seconds=RESOLUTION)


def is_new(found: Campaign, clock: ServiceClock) -> bool:
    """Whether its send time has come only a moment ago, so that what it shows may not be final."""
    sent = found.send_by_date_time
    return sent is not None and timedelta() <= latest(clock) - sent < timedelta(seconds=NEW_SECONDS)


def goes_out(found: Campaign, clock: ServiceClock, waits: Sequence[float]) -> Flow[tuple[Campaign, bool]]:
    """Find out whether a campaign goes out or is over: the campaign as last seen, and whether that is so.

    Not shown in the document: the status of a campaign that is new, scheduled or cancelled. So one whose send time is
    ahead goes out only if the service says that it is scheduled, whatever status it shows; and one that shows as a
    draft may turn into more.

    :param found: the campaign.
    :param waits: seconds between the lookups, until it is known.
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
    request: CreateCampaign, found: Campaign, ignore: Collection[str] = (), now: datetime | None = None
) -> Creation:
    """Take an existing campaign for the one that was asked for.

    :param ignore: request fields that need not agree.
    :param now: the service's time. Default: the local time.
    :raises MailConflictError: naming the fields that differ.
    """
    different = [name for name in differences(request, found, now) if name not in ignore]
    if different:
        raise MailConflictError(
            f"mail_name: a campaign named {request.mail_name!r} exists (mailStatus {found.mail_status}) and differs in "
            f"{', '.join(different)}: choose another mail_name, or delete that campaign",
            operation=request.path,
        )
    return Creation(mail_name=request.mail_name, id=None, guid=found.guid, adopted=True, found=found)


def differences(request: CreateCampaign, found: Campaign, now: datetime | None = None) -> list[str]:
    """The request's fields in which a campaign is another one than was asked for.

    Fields that were not asked for or that the service did not return, and the attachment, which it never returns, are
    not compared.

    :param now: the service's time. Default: the local time.
    """
    different = []
    for ours, (theirs, form) in _COMPARED.items():
        value = getattr(request, ours)
        if value is None or theirs not in found.model_fields_set:
            continue
        # Nothing, whether it is written as null, as an empty text or as an empty list, is the same nothing.
        if form(value or ()) != form(getattr(found, theirs) or ()):
            different.append(ours)
    ahead = found.send_time_is_ahead(now)
    if _sends_at_another_time(request, found, ahead):
        different.append("send_date")
    if found.mail_status == MailStatus.DRAFT and not ahead and not request.only_save:
        different.append("only_save")
    return different


def _same(value: object) -> object:
    return value


def _address(value: Any) -> object:
    return value and value.casefold()


_COMPARED: dict[str, tuple[str, Callable[[Any], object]]] = {
    "subject": ("subject", _same),
    "content": ("mail_content", _same),
    "sender_mail": ("sender_mail", _address),
    "sender_name": ("sender_name", _same),
    "reply_to": ("reply_to", _address),
    "send_list_names": ("rcpt_list_names", frozenset),
    "repel_list_names": ("repel_list_names", frozenset),
    "language_code": ("language_code", _same),
    "market_name": ("market_name", _same),
    "subscript_name": ("subscript_name", _same),
    "project_code": ("project_code", _same),
}
"""What is compared: the request's field, the campaign's, and the form in which they must agree."""

COMPARED = frozenset({*_COMPARED, "send_date", "only_save"})
"""The fields in which a campaign can differ from what was asked for, and that ``ignore`` may name."""


def _sends_at_another_time(request: CreateCampaign, found: Campaign, ahead: bool) -> bool:
    if request.send_date is None or found.send_by_date_time is None:
        return False
    # What has gone out shows its actual send time, a little after the one that was asked for.
    off = found.send_by_date_time - request.send_date
    return abs(off) >= timedelta(seconds=1) if ahead else off <= -timedelta(seconds=1)
