"""Create a campaign exactly once (document, "Campaign send tasks": ``mailName`` is unique within the team).

The name is chosen before the first request, so the campaign can be looked up whatever happened: a lost response, or a
worker that died between request and response. Nothing is created without a lookup first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from airflow_provider_mail import OnIncomplete
from airflow_provider_mail.api._core.clock import NEW_SECONDS, ServiceClock
from airflow_provider_mail.api._core.requests import Flow
from airflow_provider_mail.api.campaigns import (
    Campaign,
    CreateCampaign,
    GetCampaigns,
    MailStatus,
    find_campaign,
    is_new,
    latest,
)
from airflow_provider_mail.api.errors import (
    MailConflictError,
    MailError,
    MailIncompleteCampaignError,
    MailPendingCampaignError,
    MailValidationError,
)
from airflow_provider_mail.api.flows.adopt_campaign import (
    COMPARED,
    Creation,
    adopt,
    confirm_sending,
    is_older,
)
from airflow_provider_mail.api.flows.cancel_campaign import cancel_campaign
from airflow_provider_mail.api.flows.create_once import (
    PATIENCE,
    CreationState,
    create_once,
    find_repeatedly,
    pauses,
)
from airflow_provider_mail.api.flows.send_date import check_send_date

__all__ = ["create_campaign"]


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
    """Adopt the campaign of exactly this name if it is equal and is or will be sent; create it if there is none.

    :param request: the campaign.
    :param ignore: request fields that may differ when a campaign is adopted.
    :param on_incomplete: what to do with a campaign that the service kept although creating it failed (code 500).
    :param memory: what is known of the attempts of earlier tries; updated. Default: there were none.
    :param clock: the service's clock, such as ``client.service_clock``. Default: the local one.
    :param allow_past_send_date: create the campaign although its send time has passed: the service sends it at once.
    :param not_older_than: do not adopt a campaign that was sent before this moment (local time), unless ``memory`` has
        an attempt. Default: adopt it however old it is.
    :param tries: maximum number of attempts to create it, each after a lookup.
    :param patience: seconds to look for the campaign after an attempt, and to wait for a new one to show more than a
        draft. After a rejection without an earlier attempt, about a quarter of that.
    :raises MailConflictError: a campaign of that name exists and differs (the fields are named), is not sent, or is
        older than ``not_older_than``.
    :raises MailPendingCampaignError: the result of an earlier attempt is not visible yet, or not in its final state.
    :raises MailIncompleteCampaignError: code 500, the service kept the campaign, and ``on_incomplete`` says so.
    :raises MailValidationError: ``ignore`` names a field that is never compared, or the campaign does not exist and its
        send time has passed.
    """
    if unknown := sorted(set(ignore) - COMPARED):
        raise MailValidationError(f"ignore: {', '.join(unknown)}: not among {', '.join(sorted(COMPARED))}")
    state = CreationState() if memory is None else memory
    clock = ServiceClock() if clock is None else clock
    server_error: MailError | None = None

    find = partial(find_campaign, request.mail_name)

    def check() -> None:
        # A draft is not sent; and an earlier attempt made the same check.
        if not (allow_past_send_date or request.only_save):
            check_send_date(request.send_date, clock.now(), operation=request.path)

    in_doubt = state.incomplete or state.attempted_lately
    found = yield from find_repeatedly(find, pauses(patience) if in_doubt else ())
    if found is None:
        result = yield from create_once(
            request,
            find,
            state=state,
            tries=tries,
            patience=patience,
            check=check,
            unconfirmed=lambda rejection: _pending(request, rejection),
        )
        if (response := result.response) is not None:
            return Creation(mail_name=request.mail_name, id=response.id, guid=response.guid, adopted=False)
        found, server_error = result.found, result.server_error
        assert found is not None
    new = state.attempted_lately or is_new(found, clock)
    if state.incomplete:
        waits = pauses(patience, brief=not new)
        return (yield from _handle_incomplete(request, found, ignore, on_incomplete, server_error, clock, waits))
    if state.attempted_at is None and not_older_than is not None and is_older(found, not_older_than, clock):
        raise _too_old(request, found, ignore, clock, not_older_than)
    return (yield from _adopt_if_sent(request, found, ignore, clock, patience, new=new))


def _pending(request: CreateCampaign, rejection: MailError) -> MailPendingCampaignError:
    """Return the error for a rejection that may mean that an earlier attempt created the campaign."""
    return MailPendingCampaignError(
        f"{rejection}. The response to an earlier attempt to create campaign {request.mail_name!r} was lost: it may "
        "have been created and appear late. The next try looks it up again",
        # The operation that has not succeeded yet is the lookup.
        operation=GetCampaigns.path,
        **rejection.details,
    )


def _too_old(
    request: CreateCampaign, found: Campaign, ignore: Collection[str], clock: ServiceClock, moment: datetime
) -> MailConflictError:
    """Return the error for a campaign of that name that an earlier run sent."""
    adopt(request, found, {*ignore, "only_save"}, latest(clock))  # differences are reported first
    sent = found.send_by_date_time
    when = f"was sent at {sent:%Y-%m-%dT%H:%M:%SZ}" if sent else "has no send time"
    return MailConflictError(
        f"mail_name: a campaign named {found.mail_name!r} exists and is equal, but is older than this run, which began "
        f"at {moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}: it {when} (mailStatus {found.mail_status}). It was not "
        'adopted, and nothing was sent. Give each run its own name, such as mail_name="news {{ ds }}", or leave '
        "mail_name out; to adopt the earlier campaign, set adopt_older=True",
        operation=request.path,
    )


def _adopt_if_sent(
    request: CreateCampaign,
    found: Campaign,
    ignore: Collection[str],
    clock: ServiceClock,
    patience: float,
    *,
    new: bool,
) -> Flow[Creation]:
    """Adopt a campaign that is equal and is or will be sent.

    :param new: whether what it shows may not be final.
    """
    if request.only_save or "only_save" in ignore:
        return adopt(request, found, ignore, latest(clock))
    # The status may take time to become final.
    ignore = {*ignore, "only_save"}
    adopt(request, found, ignore, latest(clock))
    found, confirmed = yield from confirm_sending(found, clock, pauses(patience, brief=not new))
    if confirmed:
        return adopt(request, found, ignore, latest(clock))
    status = (
        f"mail_name: a campaign named {found.mail_name!r} exists (mailStatus {found.mail_status}) and is not scheduled"
    )
    if new or is_new(found, clock):
        raise MailPendingCampaignError(
            f"{status}. It is new, so that may change: the next try checks again. If it is still not scheduled or sent "
            f"{NEW_SECONDS / 60:g} minutes after its creation, it was cancelled, or only saved",
            operation=GetCampaigns.path,
        )
    raise MailConflictError(
        f"{status}: it was cancelled, or only saved. Choose another mail_name, or delete that campaign",
        operation=request.path,
    )


def _handle_incomplete(
    request: CreateCampaign,
    found: Campaign,
    ignore: Collection[str],
    choice: OnIncomplete,
    error: MailError | None,
    clock: ServiceClock,
    waits: Sequence[float],
) -> Flow[Creation]:
    """Handle a campaign that was kept although creating it failed, as the user chose."""
    taken = ""
    cancelled = False
    if choice == "cancel":
        cancellation = yield from cancel_campaign(found.mail_name, clock)
        taken, cancelled = f"It {cancellation.text}. ", cancellation.done
        found = cancellation.found or found
    elif not request.only_save and (choice == "keep" or found.mail_status == MailStatus.DRAFT):
        # The advice depends on whether it will be sent.
        found, confirmed = yield from confirm_sending(found, clock, waits)
        if choice == "keep" and confirmed:
            creation = adopt(request, found, {*ignore, "only_save"}, latest(clock))
            return replace(creation, incomplete=True)
        if choice == "keep":
            status = "a draft" if found.mail_status == MailStatus.DRAFT else "not scheduled"
            taken = f"It is {status} and will not be sent, so it is not adopted. "
    elif choice == "keep":
        return replace(adopt(request, found, ignore, latest(clock)), incomplete=True)
    advice = (
        "Delete it (its name may still be taken) or choose another mail_name, fix the cause, and run again"
        if cancelled
        else _advice(found, clock)
    )
    cause = "the task check failed" if request.attachment is None else "adding the attachment or the task check failed"
    reason = "an earlier try was answered with code 500" if error is None else str(error)
    raise MailIncompleteCampaignError(
        f"the service kept the campaign {found.mail_name!r} (mailStatus {found.mail_status}) although its creation "
        f"failed: {reason} (that is: {cause}). {taken}{advice}",
        operation=request.path,
        **({"code": 500} if error is None else error.details),
    )


def _advice(kept: Campaign, clock: ServiceClock) -> str:
    """Advise what to do about a kept campaign, never causing a second mail to recipients who got the first."""
    if kept.mail_status not in (MailStatus.SENDING, MailStatus.COMPLETE):
        return "Cancel or delete it at the service, fix the cause, and run again"
    twice = "running again, under another mail_name or after deleting it, mails every recipient a second time"
    if kept.mail_status == MailStatus.SENDING and kept.send_time_is_ahead(latest(clock)):
        return (
            f"It is sent at {kept.send_by_date_time:%Y-%m-%dT%H:%M:%SZ}: cancel or delete it at the service before "
            f"that time, fix the cause, and run again. After it is sent, {twice}"
        )
    status = "was sent" if kept.mail_status == MailStatus.COMPLETE else "is being sent"
    return f"It {status}: {twice}. Leave it as it is and mark this task as success, unless you want a second mail"
