"""Creating a campaign exactly once (document, "Campaign send tasks": ``mailName`` is unique within the team).

The name is chosen before the first request, so it can be looked up after whatever happened: an answer that was lost, a
worker that died between the request and its answer. Nothing is ever created without having looked.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from airflow_provider_mail.api.base import Flow, Pause
from airflow_provider_mail.api.campaigns import (
    Campaign,
    CreateCampaign,
    CreateCampaignResponse,
    find_campaign,
)
from airflow_provider_mail.api.errors import (
    MailAuthError,
    MailConflictError,
    MailError,
    MailIncompleteCampaignError,
    MailRejectedError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """How a campaign came to be there.

    :param id: the service's number; known only to the try that got the answer.
    :param guid: the service's unique identifier.
    :param adopted: whether it was there already, equal to what was asked for.
    :param found: the campaign as it was found, when it was adopted.
    """

    mail_name: str
    id: int | None
    guid: str | None
    adopted: bool
    found: Campaign | None = None


def create_campaign(
    request: CreateCampaign, *, ignore: Collection[str] = (), tries: int = 3, looks: int = 3, pause: float = 2.0
) -> Flow[Creation]:
    """Find the campaign of exactly this name and adopt it if it is equal; create it if there is none.

    :param request: what is wanted.
    :param ignore: request fields that need not agree when a campaign is adopted.
    :param tries: how often to create, each time after having looked.
    :param looks: how often to look after a creation that did not succeed, since the campaign may appear late.
    :param pause: seconds between these looks.
    :raises MailConflictError: a campaign of that name exists and differs; the fields are named.
    :raises MailIncompleteCampaignError: code 500, and the service kept the campaign.
    """
    found = yield from _look(request, 1, looks, pause)
    if found is not None:
        return adopt(request, found, ignore)
    for attempt in range(1, tries + 1):
        try:
            answer: CreateCampaignResponse = yield request
        except MailAuthError:
            raise
        except MailError as error:
            # A refusal may mean that the name has been taken meanwhile; a lost answer may hide a success.
            if not error.may_have_taken_effect and not isinstance(error, MailRejectedError):
                raise
            found = yield from _look(request, looks, looks, pause)
            if found is not None:
                if error.code == 500:
                    raise _incomplete(found, error) from None
                return adopt(request, found, ignore)
            if attempt == tries or not error.may_have_taken_effect:
                raise
        else:
            return Creation(mail_name=request.mail_name, id=answer.id, guid=answer.guid, adopted=False)
    raise AssertionError("unreachable")


def adopt(request: CreateCampaign, found: Campaign, ignore: Collection[str] = ()) -> Creation:
    """Take an existing campaign for the one that was asked for.

    :raises MailConflictError: naming the fields that differ.
    """
    different = [name for name in differences(request, found) if name not in ignore]
    if different:
        raise MailConflictError(
            f"mail_name: a campaign named {request.mail_name!r} exists (mailStatus {found.mail_status}) and differs in "
            f"{', '.join(different)}: choose another mail_name, or delete that campaign",
            operation=request.path,
        )
    return Creation(mail_name=request.mail_name, id=None, guid=found.guid, adopted=True, found=found)


def differences(request: CreateCampaign, found: Campaign) -> list[str]:
    """The request's fields in which a campaign is another one than was asked for.

    Fields that were not asked for or that the service did not return, and the attachment, which it never returns, are
    not compared.
    """
    wanted: dict[str, object] = {
        "subject": request.subject,
        "mail_content": request.content,
        "sender_mail": request.sender_mail,
        "sender_name": request.sender_name,
        "reply_to": request.reply_to,
        "rcpt_list_names": _unordered(request.send_list_names),
        "repel_list_names": _unordered(request.repel_list_names),
        "language_code": request.language_code,
        "market_name": request.market_name,
        "subscript_name": request.subscript_name,
        "project_code": request.project_code,
    }
    different = []
    for theirs, value in wanted.items():
        if value is None or theirs not in found.model_fields_set:
            continue
        there = getattr(found, theirs)
        if value != (_unordered(there) if theirs.endswith("list_names") else there):
            different.append(_OURS.get(theirs, theirs))
    if _sends_at_another_time(request, found):
        different.append("send_date")
    if found.is_idle_draft and not request.only_save:
        different.append("only_save")
    return different


_OURS = {"mail_content": "content", "rcpt_list_names": "send_list_names"}


def _unordered(names: list[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)


def _sends_at_another_time(request: CreateCampaign, found: Campaign) -> bool:
    if request.send_date is None or found.send_by_date_time is None:
        return False
    # What has gone out shows its actual send time, a little after the one that was asked for.
    still_waits = found.send_by_date_time > datetime.now(UTC)
    off = found.send_by_date_time - request.send_date
    return abs(off) >= timedelta(seconds=1) if still_waits else off <= -timedelta(seconds=1)


def _look(request: CreateCampaign, for_it: int, for_its_start: int, pause: float) -> Flow[Campaign | None]:
    """Look for the campaign, so many times until it is there and so many until it is more than a draft.

    It may appear late, and what status a new one has before it is sent is not shown in the document.
    """
    look = 1
    while True:
        found: Campaign | None = yield from find_campaign(request.mail_name)
        unclear = found is None or (found.is_idle_draft and not request.only_save)
        if not unclear or look >= (for_it if found is None else for_its_start):
            return found
        look += 1
        yield Pause(pause)


def _incomplete(found: Campaign, error: MailError) -> MailIncompleteCampaignError:
    return MailIncompleteCampaignError(
        f"the service kept the campaign {found.mail_name!r} (mailStatus {found.mail_status}) although its creation "
        f"failed: {error}. Cancel or delete it at the service, mend the cause, and run again",
        operation=error.operation,
        status=error.status,
        code=error.code,
        service_message=error.service_message,
    )
