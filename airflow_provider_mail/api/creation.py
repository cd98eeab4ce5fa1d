"""Creating a campaign exactly once (document, "Campaign send tasks": ``mailName`` is unique within the team).

The name is chosen before the first request, so it can be looked up after whatever happened: an answer that was lost, a
worker that died between the request and its answer. Nothing is ever created without having looked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

from airflow_provider_mail.api.base import Flow, Pause
from airflow_provider_mail.api.campaigns import (
    Campaign,
    CreateCampaign,
    CreateCampaignResponse,
    MailStatus,
    find_campaign,
)
from airflow_provider_mail.api.cancelling import cancel_campaign, is_scheduled
from airflow_provider_mail.api.clock import ServiceClock
from airflow_provider_mail.api.errors import (
    MailConflictError,
    MailError,
    MailIncompleteCampaignError,
    MailRejectedError,
    MailValidationError,
)

OnIncomplete: TypeAlias = Literal["cancel", "keep", "fail"]
"""What to do with a campaign that the service kept although creating it failed: cancel it and fail; go on with it as
it is, if it goes out; or leave it and fail."""


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


class Memory:
    """Whether creating the campaign has been answered with code 500, so that what is found may be incomplete.

    What is found does not tell. This one forgets when the process ends; who outlives it overrides both methods.
    """

    incomplete = False

    def remember(self) -> None:
        """Code 500 has come; called before anything else is done."""
        self.incomplete = True

    def forget(self) -> None:
        """There is a whole one now."""
        self.incomplete = False


def create_campaign(
    request: CreateCampaign,
    *,
    ignore: Collection[str] = (),
    on_incomplete: OnIncomplete = "fail",
    memory: Memory | None = None,
    clock: ServiceClock | None = None,
    tries: int = 3,
    looks: int = 3,
    pause: float = 2.0,
) -> Flow[Creation]:
    """Find the campaign of exactly this name and adopt it if it is equal; create it if there is none.

    :param request: what is wanted.
    :param ignore: request fields that need not agree when a campaign is adopted.
    :param on_incomplete: what to do with a campaign that the service kept although creating it failed (code 500).
    :param memory: what is known of earlier tries.
    :param clock: the service's clock, such as ``client.service_clock``. Default: the local one.
    :param tries: how often to create, each time after having looked.
    :param looks: how often to look after a creation that did not succeed, since the campaign may appear late.
    :param pause: seconds between these looks.
    :raises MailConflictError: a campaign of that name exists and differs; the fields are named.
    :raises MailIncompleteCampaignError: code 500, the service kept the campaign, and it is not gone on with.
    :raises MailValidationError: ``ignore`` names a field that is never compared.
    """
    if unknown := sorted(set(ignore) - COMPARED):
        raise MailValidationError(f"ignore: {', '.join(unknown)}: not among {', '.join(sorted(COMPARED))}")
    memory = Memory() if memory is None else memory
    clock = ServiceClock() if clock is None else clock
    answered: MailError | None = None
    found = yield from _look(request, looks if memory.incomplete else 1, looks, pause)
    for attempt in range(1, tries + 1):
        if found is not None:
            break
        try:
            answer: CreateCampaignResponse = yield request
        except MailError as error:
            # A refusal may mean that the name has been taken meanwhile; a lost answer may hide a success.
            if not error.may_have_taken_effect and not isinstance(error, MailRejectedError):
                raise
            # The document's code, in the body. A bare HTTP 500 (a proxy's) is a lost response like 502, 503 and 504.
            if error.code == 500:
                # Remembered: the kept campaign may show only after another try was refused because of its name.
                memory.remember()
                answered = error
            found = yield from _look(request, looks, looks, pause)
            if found is None and (attempt == tries or not error.may_have_taken_effect):
                raise
        else:
            memory.forget()
            return Creation(mail_name=request.mail_name, id=answer.id, guid=answer.guid, adopted=False)
    assert found is not None
    if memory.incomplete:
        return (yield from _kept(request, found, ignore, on_incomplete, answered, clock, pause))
    return (yield from _adopted(request, found, ignore, pause))


def _adopted(request: CreateCampaign, found: Campaign, ignore: Collection[str], pause: float) -> Flow[Creation]:
    """Adopt it; a draft with its send time ahead only when the service says that it is scheduled."""
    creation = adopt(request, found, ignore)
    if found.mail_status != MailStatus.DRAFT or request.only_save or "only_save" in ignore:
        return creation
    if (yield from is_scheduled(found.mail_name)):
        return creation
    # Its send time may just have come.
    yield Pause(pause)
    found_again: Campaign | None = yield from find_campaign(found.mail_name)
    if found_again is None or found_again.mail_status == MailStatus.DRAFT:
        raise MailConflictError(
            f"mail_name: a campaign named {found.mail_name!r} exists (mailStatus {found.mail_status}) and is not "
            "scheduled: it was cancelled, or only saved. Choose another mail_name, or delete that campaign",
            operation=request.path,
        )
    return adopt(request, found_again, ignore)


def _kept(
    request: CreateCampaign,
    found: Campaign,
    ignore: Collection[str],
    choice: OnIncomplete,
    error: MailError | None,
    clock: ServiceClock,
    pause: float,
) -> Flow[Creation]:
    """Deal with a campaign that was kept although creating it failed, in the way that was chosen."""
    advice = _advice(found, clock)
    if choice == "keep":
        if not found.is_idle_draft or request.only_save:
            creation = yield from _adopted(request, found, ignore, pause)
            return replace(creation, incomplete=True)
        advice = f"It is a draft and does not go out, so it is not gone on with. {advice}"
    elif choice == "cancel":
        cancellation = yield from cancel_campaign(found.mail_name)
        if cancellation.done:
            advice = "Delete it (its name may still be taken) or choose another mail_name, fix the cause, and run again"
        elif cancellation.found is not None:
            advice = _advice(cancellation.found, clock)
        advice = f"It {cancellation.text}. {advice}"
    why = "the task check failed" if request.attachment is None else "adding the attachment or the task check failed"
    said = "an earlier try was answered with code 500" if error is None else str(error)
    raise MailIncompleteCampaignError(
        f"the service kept the campaign {found.mail_name!r} (mailStatus {found.mail_status}) although its creation "
        f"failed: {said} (that is: {why}). {advice}",
        operation=request.path,
        status=None if error is None else error.status,
        code=500,
        service_message=None if error is None else error.service_message,
    )


def _advice(kept: Campaign, clock: ServiceClock) -> str:
    """What to do about a kept campaign; whoever has been mailed must not be advised into a second mail."""
    if kept.mail_status not in (MailStatus.SENDING, MailStatus.COMPLETE):
        return "Cancel or delete it at the service, fix the cause, and run again"
    twice = "running again, under another mail_name or after deleting it, mails everybody a second time"
    if kept.mail_status == MailStatus.SENDING and kept.send_time_is_ahead(clock.now()):
        return (
            f"It goes out at {kept.send_by_date_time:%Y-%m-%dT%H:%M:%SZ}: cancel or delete it at the service before "
            f"that time, fix the cause, and run again. Once it goes out, {twice}"
        )
    doing = "has gone out" if kept.mail_status == MailStatus.COMPLETE else "is being sent"
    return f"It {doing}: {twice}. Leave it as it is and mark this task as success, unless a second mail is meant"


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
    different = []
    for ours, (theirs, form) in _COMPARED.items():
        value = getattr(request, ours)
        if value is None or theirs not in found.model_fields_set:
            continue
        # Nothing, whether it is written as null, as an empty text or as an empty list, is the same nothing.
        if form(value or ()) != form(getattr(found, theirs) or ()):
            different.append(ours)
    if _sends_at_another_time(request, found):
        different.append("send_date")
    if found.is_idle_draft and not request.only_save:
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
