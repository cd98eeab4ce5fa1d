"""Creating a campaign exactly once (document, "Campaign send tasks": ``mailName`` is unique within the team).

The name is chosen before the first request, so it can be looked up after whatever happened: an answer that was lost, a
worker that died between the request and its answer. Nothing is ever created without having looked.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from airflow_provider_mail.api._core.clock import ServiceClock
from airflow_provider_mail.api._core.requests import Flow, Pause
from airflow_provider_mail.api.campaigns import (
    Campaign,
    CreateCampaign,
    CreateCampaignResponse,
    GetCampaigns,
    MailStatus,
    find_campaign,
)
from airflow_provider_mail.api.errors import (
    MailConflictError,
    MailError,
    MailIncompleteCampaignError,
    MailPendingCampaignError,
    MailRejectedError,
    MailValidationError,
)
from airflow_provider_mail.api.flows.adopt_campaign import (
    COMPARED,
    NEW_SECONDS,
    PATIENCE,
    Creation,
    adopt,
    goes_out,
    is_new,
    is_older,
    latest,
    pauses,
)
from airflow_provider_mail.api.flows.cancel_campaign import cancel_campaign
from airflow_provider_mail.api.flows.send_date import check_send_date

OnIncomplete: TypeAlias = Literal["cancel", "keep", "fail"]
"""What to do with a campaign that the service kept although creating it failed: cancel it and fail; go on with it as
it is, if it goes out; or leave it and fail."""


class CreationState:
    """What is known of earlier attempts to create the campaign; what is found at the service does not tell.

    This one forgets when the process ends. Override the methods that change it to store it.
    """

    incomplete = False
    """Whether an attempt got code 500, so that what is found may be incomplete."""

    attempted_at: float | None = None
    """Unix time of the last attempt that may have been carried out, successful or not."""

    @property
    def attempted_lately(self) -> bool:
        """Whether what an attempt created may not show in its final state yet."""
        return self.attempted_at is not None and time.time() - self.attempted_at < NEW_SECONDS

    def attempt(self) -> None:
        """Note an attempt; called before the request is sent."""
        self.attempted_at = time.time()

    def withdraw(self) -> None:
        """Clear the note: no attempt has been carried out."""
        self.attempted_at = None

    def remember(self) -> None:
        """Note code 500; called before anything else is done."""
        self.incomplete = True

    def forget(self) -> None:
        """Clear the note of code 500: the campaign was created completely."""
        self.incomplete = False


def create_campaign(
    request: CreateCampaign,
    *,
    ignore: Collection[str] = (),
    on_incomplete: OnIncomplete = "fail",
    memory: CreationState | None = None,
    clock: ServiceClock | None = None,
    allow_past_send_date: bool = False,
    not_older_than: datetime | None = None,
    tries: int = 3,
    patience: float = PATIENCE,
) -> Flow[Creation]:
    """Find the campaign of exactly this name and adopt it if it is equal and goes out; create it if there is none.

    :param request: the campaign.
    :param ignore: request fields that need not agree when a campaign is adopted.
    :param on_incomplete: what to do with a campaign that the service kept although creating it failed (code 500).
    :param memory: what is known of earlier tries.
    :param clock: the service's clock, such as ``client.service_clock``. Default: the local one.
    :param allow_past_send_date: create it although its send time lies in the past: the service sends it at once.
    :param not_older_than: do not adopt a campaign that has gone out before this moment (local time), unless by an
        attempt that ``memory`` knows of. Default: adopt it however old it is.
    :param tries: how often to create at most, each time after having looked.
    :param patience: seconds to look for what an attempt may have created, and to wait for a new one to become more than
        a draft. After a rejection that nothing leads up to, about a quarter of that.
    :raises MailConflictError: a campaign of that name exists and differs (the fields are named), does not go out, or is
        older than ``not_older_than``.
    :raises MailPendingCampaignError: what an earlier attempt may have created does not show (in its final state) yet.
    :raises MailIncompleteCampaignError: code 500, the service kept the campaign, and ``on_incomplete`` says so.
    :raises MailValidationError: ``ignore`` names a field that is never compared, or it would have to be created and its
        send time lies in the past.
    """
    if unknown := sorted(set(ignore) - COMPARED):
        raise MailValidationError(f"ignore: {', '.join(unknown)}: not among {', '.join(sorted(COMPARED))}")
    memory = CreationState() if memory is None else memory
    clock = ServiceClock() if clock is None else clock
    answered: MailError | None = None
    found = yield from _look(request, pauses(patience) if memory.incomplete or memory.attempted_lately else ())
    for attempt in range(1, tries + 1):
        if found is not None:
            break
        in_doubt = memory.attempted_lately
        if not in_doubt:
            # A draft is not sent; and whatever an earlier attempt may have created had its send time ahead.
            if not (allow_past_send_date or request.only_save):
                check_send_date(request.send_date, clock.now(), operation=request.path)
            memory.attempt()
        try:
            answer: CreateCampaignResponse = yield request
        except MailError as error:
            if not error.may_have_taken_effect:
                if not in_doubt:
                    memory.withdraw()
                # A rejection may mean that the name has been taken meanwhile.
                if not isinstance(error, MailRejectedError):
                    raise
            # The document's code, in the body. A bare HTTP 500 (a proxy's) is a lost response like 502, 503 and 504.
            if error.code == 500:
                # Remembered: the kept campaign may show only after another try was refused because of its name.
                memory.remember()
                answered = error
            found = yield from _look(request, pauses(patience, brief=memory.attempted_at is None))
            if found is None and not error.may_have_taken_effect:
                raise (_not_shown_yet(request, error) if in_doubt else error) from None
            if found is None and attempt == tries:
                raise
        else:
            memory.forget()
            return Creation(mail_name=request.mail_name, id=answer.id, guid=answer.guid, adopted=False)
    assert found is not None
    new = memory.attempted_lately or is_new(found, clock)
    if memory.incomplete:
        waits = pauses(patience, brief=not new)
        return (yield from _kept(request, found, ignore, on_incomplete, answered, clock, waits))
    if memory.attempted_at is None and not_older_than is not None and is_older(found, not_older_than, clock):
        raise _too_old(request, found, ignore, clock, not_older_than)
    return (yield from _adopted(request, found, ignore, clock, patience, new=new))


def _look(request: CreateCampaign, waits: Sequence[float]) -> Flow[Campaign | None]:
    """Look for the campaign, again after each pause until it is there: it may appear late."""
    found: Campaign | None = yield from find_campaign(request.mail_name)
    for seconds in waits:
        if found is not None:
            break
        yield Pause(seconds)
        found = yield from find_campaign(request.mail_name)
    return found


def _not_shown_yet(request: CreateCampaign, rejection: MailError) -> MailPendingCampaignError:
    """The error for a rejection that may mean that an own attempt has taken the name."""
    return MailPendingCampaignError(
        f"{rejection}. The response to an earlier attempt to create campaign {request.mail_name!r} was lost: it may "
        "have been created and appear late. The next try looks for it again",
        # It is looking for the campaign that has not succeeded yet.
        operation=GetCampaigns.path,
        status=rejection.status,
        code=rejection.code,
        service_message=rejection.service_message,
    )


def _too_old(
    request: CreateCampaign, found: Campaign, ignore: Collection[str], clock: ServiceClock, moment: datetime
) -> MailConflictError:
    """The error for an earlier campaign of that name, which is not what this run is to send."""
    adopt(request, found, {*ignore, "only_save"}, latest(clock))  # what differs is said first
    sent = found.send_by_date_time
    when = f"went out at {sent:%Y-%m-%dT%H:%M:%SZ}" if sent else "has no send time"
    return MailConflictError(
        f"mail_name: a campaign named {found.mail_name!r} exists and is equal, but is not of this run, which began at "
        f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}: it {when} (mailStatus {found.mail_status}). It was not adopted, "
        'and nobody was mailed. Give each run a name of its own, such as mail_name="news {{ ds }}", or leave mail_name '
        "out; to take the earlier campaign for this run's, set adopt_older=True",
        operation=request.path,
    )


def _adopted(
    request: CreateCampaign,
    found: Campaign,
    ignore: Collection[str],
    clock: ServiceClock,
    patience: float,
    *,
    new: bool,
) -> Flow[Creation]:
    """Adopt it, if it is equal and goes out.

    :param new: whether what it shows may not be final.
    """
    if request.only_save or "only_save" in ignore:
        return adopt(request, found, ignore, latest(clock))
    # Whether it goes out, it may take time to find out.
    ignore = {*ignore, "only_save"}
    adopt(request, found, ignore, latest(clock))
    found, sure = yield from goes_out(found, clock, pauses(patience, brief=not new))
    if sure:
        return adopt(request, found, ignore, latest(clock))
    shows = (
        f"mail_name: a campaign named {found.mail_name!r} exists (mailStatus {found.mail_status}) and is not scheduled"
    )
    if new or is_new(found, clock):
        raise MailPendingCampaignError(
            f"{shows}. It is new, so that may change: the next try looks again. If it still does not go out "
            f"{NEW_SECONDS / 60:g} minutes after its creation, it was cancelled, or only saved",
            operation=GetCampaigns.path,
        )
    raise MailConflictError(
        f"{shows}: it was cancelled, or only saved. Choose another mail_name, or delete that campaign",
        operation=request.path,
    )


def _kept(
    request: CreateCampaign,
    found: Campaign,
    ignore: Collection[str],
    choice: OnIncomplete,
    error: MailError | None,
    clock: ServiceClock,
    waits: Sequence[float],
) -> Flow[Creation]:
    """Deal with a campaign that was kept although creating it failed, in the way that was chosen."""
    before = ""
    cancelled = False
    if choice == "cancel":
        cancellation = yield from cancel_campaign(found.mail_name)
        before, cancelled = f"It {cancellation.text}. ", cancellation.done
        found = cancellation.found or found
    elif not request.only_save and (choice == "keep" or found.mail_status == MailStatus.DRAFT):
        # What is advised depends on what becomes of it.
        found, sure = yield from goes_out(found, clock, waits)
        if choice == "keep" and sure:
            creation = adopt(request, found, {*ignore, "only_save"}, latest(clock))
            return replace(creation, incomplete=True)
        if choice == "keep":
            kind = "a draft" if found.mail_status == MailStatus.DRAFT else "not scheduled"
            before = f"It is {kind} and does not go out, so it is not adopted. "
    elif choice == "keep":
        return replace(adopt(request, found, ignore, latest(clock)), incomplete=True)
    advice = (
        "Delete it (its name may still be taken) or choose another mail_name, fix the cause, and run again"
        if cancelled
        else _advice(found, clock)
    )
    why = "the task check failed" if request.attachment is None else "adding the attachment or the task check failed"
    said = "an earlier try was answered with code 500" if error is None else str(error)
    raise MailIncompleteCampaignError(
        f"the service kept the campaign {found.mail_name!r} (mailStatus {found.mail_status}) although its creation "
        f"failed: {said} (that is: {why}). {before}{advice}",
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
    if kept.mail_status == MailStatus.SENDING and kept.send_time_is_ahead(latest(clock)):
        return (
            f"It goes out at {kept.send_by_date_time:%Y-%m-%dT%H:%M:%SZ}: cancel or delete it at the service before "
            f"that time, fix the cause, and run again. Once it goes out, {twice}"
        )
    doing = "has gone out" if kept.mail_status == MailStatus.COMPLETE else "is being sent"
    return f"It {doing}: {twice}. Leave it as it is and mark this task as success, unless a second mail is meant"
