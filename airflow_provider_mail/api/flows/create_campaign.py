"""Create a campaign exactly once (specification, "Campaign send tasks": ``mailName`` is unique within the team).

The name is chosen before the first request, so the campaign can be looked up in any case: after a lost response, or
after a worker died between request and response. A campaign is never created without a lookup first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from airflow_provider_mail import OnIncomplete
from airflow_provider_mail.api._core.clock import NEW_SECONDS, ServiceClock
from airflow_provider_mail.api._core.requests import Client
from airflow_provider_mail.api.campaigns import (
    Campaign,
    CreateCampaign,
    DeleteCampaign,
    GetCampaigns,
    MailStatus,
    exists,
    find_campaign,
    find_rewritten,
    is_new,
)
from airflow_provider_mail.api.errors import (
    MailConflictError,
    MailError,
    MailIncompleteCampaignError,
    MailPendingCampaignError,
    MailValidationError,
)
from airflow_provider_mail.api.flows.audience import without_time
from airflow_provider_mail.api.flows.campaign_checks import (
    COMPARED,
    CampaignCaps,
    Creation,
    MailDifferentCampaignError,
    adopt,
    check_caps,
    check_send_date,
    confirm_sending,
    field_digests,
    is_older,
    is_unsent,
)
from airflow_provider_mail.api.flows.cancel_campaign import cancel_campaign
from airflow_provider_mail.api.flows.create_once import (
    PATIENCE,
    CreationState,
    create_once,
    delete,
    find_repeatedly,
    pauses,
)

__all__ = ["create_campaign"]

log = logging.getLogger(__name__)


def create_campaign(
    client: Client,
    request: CreateCampaign,
    *,
    ignore: Collection[str] = (),
    on_incomplete: OnIncomplete = "fail",
    memory: CreationState | None = None,
    replace_scheduled: bool = False,
    allow_past_send_date: bool = False,
    not_older_than: datetime | None = None,
    caps: CampaignCaps | None = None,
    check_lists: Callable[[Client], None] | None = None,
    tries: int = 3,
    patience: float = PATIENCE,
) -> Creation:
    """Adopt the campaign of exactly this name if it is equal and is or will be sent; create it if there is none.

    :param ignore: request fields that may differ when a campaign is adopted.
    :param on_incomplete: what to do with a campaign that the service kept although creating it failed (code 500).
    :param memory: the known state of the attempts of earlier tries; updated. Default: there were none.
    :param replace_scheduled: cancel and delete an own campaign that differs and is still to be sent; create it anew.
    :param allow_past_send_date: create the campaign although its send time has passed: the service sends it at once.
    :param not_older_than: do not adopt a campaign of another task or run, scheduled or sent. If ``memory`` does not
        show whose it is, a campaign that was sent before this moment (by the clock of Airflow's scheduler) counts as
        another's. Default: adopt any campaign.
    :param caps: the limits of its day, checked before it is created. Default: no limits.
    :param check_lists: called before it is created, and raises an error when its lists are not the right ones. Default:
        they are not checked.
    :param tries: maximum number of attempts to create it, each after a lookup.
    :param patience: seconds to look for the campaign after an attempt, and to wait until a new one no longer shows as a
        draft. After a rejection without an earlier attempt, about a quarter of that.
    :raises MailConflictError: a campaign of that name exists and differs (the fields are named), is not sent, or is of
        another task or run; an earlier try may have created a campaign of another name; or one that it created is gone.
    :raises MailPendingCampaignError: the result of an earlier attempt is not visible yet, or not in its final state.
    :raises MailIncompleteCampaignError: code 500: the service kept the campaign, which ``on_incomplete`` treats as an
        error.
    :raises MailValidationError: ``ignore`` names a field that is never compared, or the campaign does not exist and its
        send time has passed, or a limit of its day would be exceeded.
    """
    if unknown := sorted(set(ignore) - COMPARED):
        raise MailValidationError(f"ignore: {', '.join(unknown)}: not among {', '.join(sorted(COMPARED))}")
    state = CreationState() if memory is None else memory
    clock = client.service_clock
    _check_name(client, request, state, patience)
    state.start(request.mail_name)
    server_error: MailError | None = None

    def search(waits: Sequence[float], in_doubt: bool) -> Campaign | None:
        return _search(client, request.mail_name, state, waits, rewritten=in_doubt)

    def check() -> None:
        # A draft is not sent, and an earlier attempt passed the same check.
        if not (allow_past_send_date or request.only_save):
            check_send_date(request.send_date, clock.now(), operation=request.path)

    campaign = _find_known(client, request.mail_name, state, patience)
    if (
        campaign is not None
        and replace_scheduled
        and state.is_own
        and _is_replaced(client, request, campaign, ignore, state)
    ):
        campaign = None
    if campaign is None:
        _check_gone(request, state, clock)
        if state.guid:
            # What has this name now is another campaign.
            state.forget()
            campaign = find_campaign(client, request.mail_name)
    if campaign is None:
        if caps:
            check_caps(client, request, caps)
        if check_lists:
            check_lists(client)
        result = create_once(
            client,
            request,
            search,
            state=state,
            tries=tries,
            patience=patience,
            digests=field_digests(request),
            check=check,
            unconfirmed=lambda rejection: _pending(request, rejection),
        )
        if (response := result.response) is not None:
            sends_at = None
            if not request.only_save:
                sends_at = request.send_date.timestamp() if request.send_date else clock.time()
            state.mark_created(sends_at, response.guid)
            shown = _look_for_new(client, request.mail_name, response.guid)
            if shown is not None:
                state.mark_seen(sends_at, response.guid)
            name = shown.mail_name if shown else request.mail_name
            return Creation(mail_name=name, id=response.id, guid=response.guid, adopted=False)
        campaign, server_error = result.existing, result.server_error
        assert campaign is not None
    new = state.attempted_lately(clock.time()) or is_new(campaign, clock)
    if state.incomplete:
        waits = pauses(patience, brief=not new)
        return _handle_incomplete(client, request, campaign, ignore, on_incomplete, server_error, state, waits)
    return _adopt_if_sent(client, request, campaign, ignore, state, not_older_than, patience, new=new)


def _is_replaced(
    client: Client, request: CreateCampaign, campaign: Campaign, ignore: Collection[str], state: CreationState
) -> bool:
    """Cancel and delete an own campaign that differs and is still to be sent; return whether that was done.

    :raises MailConflictError: it could not be cancelled, so it may be sent.
    """
    now = client.service_clock.latest()
    try:
        adopt(request, campaign, {*ignore, "only_save"}, now, own=True, digests=state.digests)
    except MailDifferentCampaignError as error:
        if not campaign.send_time_is_ahead(now):
            return False
        cancellation = cancel_campaign(client, campaign.mail_name)
        if not cancellation.done:
            raise MailConflictError(f"{error}. It {cancellation.text}", operation=request.path) from None
        delete(client, DeleteCampaign(mail_name=campaign.mail_name))
        state.forget()
        log.warning("campaign %r was scheduled, and differed: it was cancelled and deleted.", campaign.mail_name)
        return True
    return False


def _find_known(client: Client, mail_name: str, state: CreationState, patience: float) -> Campaign | None:
    """Look up a campaign; repeatedly if it is expected to exist."""
    campaign = find_campaign(client, mail_name, state.guid)
    # The service's clock is known only after a response.
    expected = state.incomplete or state.seen or state.guid or state.attempted_lately(client.service_clock.time())
    if campaign is None and expected:
        first, *further = pauses(patience)
        client.pause(first)
        return _search(client, mail_name, state, further, rewritten=True)
    if campaign is None and state.may_have_attempted:
        return _search(client, mail_name, state, (), rewritten=True)
    return campaign


def _search(
    client: Client, mail_name: str, state: CreationState, waits: Sequence[float], *, rewritten: bool
) -> Campaign | None:
    """Look up a campaign until it is found.

    :param waits: seconds to pause before each further lookup.
    :param rewritten: whether, at last, one counts whose name may be what the service made of this one.
    """
    campaign = find_repeatedly(partial(find_campaign, client, mail_name, state.guid), client.pause, waits)
    if campaign is None and rewritten and not state.guid:
        campaign = find_rewritten(client, mail_name)
        if campaign is not None:
            log.warning("campaign %r: the service has it as %r.", mail_name, campaign.mail_name)
    return campaign


def _look_for_new(client: Client, mail_name: str, guid: str | None) -> Campaign | None:
    """Return a new campaign if the service shows it yet: it is cancelled, and counted, by the name there."""
    campaign = None
    if guid:
        with suppress(MailError):
            campaign = find_campaign(client, mail_name, guid)
    if campaign is not None and campaign.mail_name != mail_name:
        log.warning("campaign %r was created; the service has it as %r.", mail_name, campaign.mail_name)
    return campaign


def _check_name(client: Client, request: CreateCampaign, state: CreationState, patience: float) -> None:
    """Prevent a second campaign if an earlier try created, or may have created, one of another name.

    After a user cleared the task, the name may change if the campaign of the other name is gone.
    """
    clock = client.service_clock
    earlier, name = state.mail_name, request.mail_name
    if earlier in (None, name) or not state.has_attempted:
        return
    assert earlier is not None
    campaign = _find_known(client, earlier, state, patience)
    gone = campaign is None and (state.seen or not state.attempted_lately(clock.time()))
    if state.cleared and (state.send_again or gone):
        return
    earlier_lists = None if campaign is None else campaign.rcpt_list_names
    # The name of a mapped task's campaign is made of its lists: has the mapped list moved?
    if (
        state.cleared
        and state.own_name
        and earlier_lists is not None
        and {*map(without_time, request.send_list_names or ())}.isdisjoint(map(without_time, earlier_lists))
    ):
        return
    created = "created" if state.seen or state.guid else "may have created"
    status = "cannot be found now" if campaign is None else f"exists (mailStatus {campaign.mail_status})"
    raise MailConflictError(
        'mail_name: give every try the same name, such as "news {{ ds }}", not one with the present time. An earlier '
        f"try of this task {created} campaign {earlier!r}, which {status}; this try asks for {name!r}, and created "
        f"nothing. If {earlier!r} is the campaign that you want, mark the task as success. To send {name!r} too, clear "
        "the task with send_again=True: that mails everybody again if the other one is or was sent",
        operation=request.path,
    )


def _check_gone(request: CreateCampaign, state: CreationState, clock: ServiceClock) -> None:
    """Prevent creating a campaign again that an earlier try created or adopted.

    An incomplete campaign (``state.incomplete``) may be gone: its error asks the user to delete it.
    :raises MailPendingCampaignError: it is so new that it may not be visible yet.
    """
    if state.guid and not state.seen and state.attempted_lately(clock.time()):
        raise MailPendingCampaignError(
            f"mail_name: campaign {request.mail_name!r} was created (guid {state.guid}), and the service does not show "
            "it yet. The next try looks again",
            operation=GetCampaigns.path,
        )
    sent = state.was_sent(clock.time())
    removed = sent or ((state.seen or state.guid is not None) and not state.incomplete)
    if not removed or (state.cleared and (state.send_again or not sent)):
        return
    advice = (
        "It was sent, or its send time has passed: another one mails everybody again. If you want that, clear the task "
        "with send_again=True, or with another mail_name"
        if sent
        else "If you want it after all, clear the task"
    )
    raise MailConflictError(
        f"mail_name: campaign {request.mail_name!r} was created by this task and is gone: deleted or cancelled. It was "
        f"not created again. {advice}",
        operation=request.path,
    )


def _pending(request: CreateCampaign, rejection: MailError) -> MailPendingCampaignError:
    """Return the error for a rejection that may mean that an earlier attempt created the campaign."""
    return MailPendingCampaignError(
        f"{rejection}. The response to an earlier attempt to create campaign {request.mail_name!r} was lost: it may "
        "have been created and appear late. The next try looks it up again",
        # The operation that has not succeeded yet is the lookup.
        operation=GetCampaigns.path,
        **rejection.details,
    )


def _check_owner(
    request: CreateCampaign,
    campaign: Campaign,
    state: CreationState,
    clock: ServiceClock,
    not_older_than: datetime | None,
) -> None:
    """Reject an equal campaign of that name if another task or run created it."""
    if not_older_than is None or state.is_own:
        return
    ahead = campaign.send_time_is_ahead(clock.latest())
    # Adopting it cannot leave anybody without mail: it failed, it is a draft, or only a draft was requested.
    if campaign.mail_status == MailStatus.FAILED or (is_unsent(campaign, clock) and (not ahead or request.only_save)):
        return
    older = not ahead and is_older(campaign, not_older_than, clock)
    if state.is_own is None and not older:
        if ahead:
            log.warning(
                "campaign %r is scheduled. Airflow below 3.3 does not show whether an earlier try of this task created "
                "it or another run did. It is adopted: if another run did, this run mails nobody.", campaign.mail_name,
            )  # fmt: skip
        return
    sent = campaign.send_by_date_time
    send_time = "has no send time"
    if sent is not None:
        send_time = f"{'is to be' if ahead else 'was'} sent at {sent:%Y-%m-%dT%H:%M:%SZ}"
    ownership = (
        f"is older than this run, which began at {not_older_than.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        if older
        else "was not created by this task"
    )
    exception = (
        "" if state.first_try else ", also if an earlier try of this task created it: else everybody is mailed again"
    )
    raise MailConflictError(
        f"mail_name: a campaign named {campaign.mail_name!r} exists and is equal, but {ownership}: it {send_time} "
        f"(mailStatus {campaign.mail_status}). It was not adopted, and nothing was sent. Give each run its own name, "
        'such as mail_name="news {{ ds }}", or leave mail_name out; to adopt that campaign, set adopt_older=True'
        + exception,
        operation=request.path,
    )


def _adopt_if_sent(
    client: Client,
    request: CreateCampaign,
    campaign: Campaign,
    ignore: Collection[str],
    state: CreationState,
    not_older_than: datetime | None,
    patience: float,
    *,
    new: bool,
) -> Creation:
    """Adopt a campaign that is equal, is or will be sent, and is of this task.

    :param new: whether the state that it shows may not be final.
    """
    clock = client.service_clock
    draft = request.only_save or "only_save" in ignore
    if not draft:
        # The status may take time to become final.
        adopt(request, campaign, {*ignore, "only_save"}, clock.latest(), own=state.is_own, digests=state.digests)
        _check_owner(request, campaign, state, clock, not_older_than)
        campaign, confirmed = confirm_sending(client, campaign, pauses(patience, brief=not new))
        if not confirmed:
            raise _not_sent(request, campaign, state, clock, new=new or is_new(campaign, clock))
        ignore = {*ignore, "only_save"}
    creation = adopt(request, campaign, ignore, clock.latest(), own=state.is_own, digests=state.digests)
    _check_owner(request, campaign, state, clock, not_older_than)
    if draft:
        _check_draft(client, request, campaign)
    state.mark_seen(_sends_at(campaign, clock), campaign.guid)
    return creation


def _check_draft(client: Client, request: CreateCampaign, campaign: Campaign) -> None:
    """Reject a draft that may have been deleted: the service may still list it."""
    if campaign.mail_status == MailStatus.DRAFT and not exists(client, request, campaign.mail_name):
        raise MailPendingCampaignError(
            f"mail_name: the service lists the draft {campaign.mail_name!r}, and would not delete it, or would create "
            "another one of that name: it was deleted. It was not adopted, and nothing was created. The next try looks "
            "again; if the draft stays, choose another mail_name",
            operation=GetCampaigns.path,
        )


def _not_sent(
    request: CreateCampaign, campaign: Campaign, state: CreationState, clock: ServiceClock, *, new: bool
) -> MailError:
    """Return the error for a campaign that, according to its state, will not be sent."""
    status = (
        f"mail_name: a campaign named {campaign.mail_name!r} exists (mailStatus {campaign.mail_status}) and is not "
        "scheduled"
    )
    if new:
        return MailPendingCampaignError(
            f"{status}. It is new, so that may change: the next try checks again. If it is still not scheduled or sent "
            f"{NEW_SECONDS / 60:g} minutes after its creation, it was cancelled, or only saved",
            operation=GetCampaigns.path,
        )
    if state.is_own:
        # It will not be sent, so it may be created again once it is deleted.
        state.mark_seen(None if is_unsent(campaign, clock) else clock.time(), campaign.guid)
        advice = "To send it after all, delete that campaign and clear this task"
    else:
        advice = "Choose another mail_name, or delete that campaign"
    return MailConflictError(f"{status}: it was cancelled, or only saved. {advice}", operation=request.path)


def _sends_at(campaign: Campaign, clock: ServiceClock) -> float | None:
    """Return the time from which an existing campaign counts as sent; ``None`` for a draft."""
    sent, ahead = campaign.send_by_date_time, campaign.send_time_is_ahead(clock.latest())
    if campaign.mail_status == MailStatus.DRAFT and not ahead:
        return None
    return sent.timestamp() if sent is not None and ahead else clock.time()


def _handle_incomplete(
    client: Client,
    request: CreateCampaign,
    campaign: Campaign,
    ignore: Collection[str],
    choice: OnIncomplete,
    error: MailError | None,
    state: CreationState,
    waits: Sequence[float],
) -> Creation:
    """Handle a campaign that the service kept although creating it failed, according to the user's choice."""
    clock = client.service_clock
    action = ""
    cancelled = False
    if choice == "cancel":
        cancellation = cancel_campaign(client, campaign.mail_name)
        action, cancelled = f"It {cancellation.text}. ", cancellation.done
        campaign = cancellation.campaign or campaign
    elif not request.only_save and (choice == "keep" or campaign.mail_status == MailStatus.DRAFT):
        # The advice depends on whether it will be sent.
        campaign, confirmed = confirm_sending(client, campaign, waits)
        if choice == "keep" and confirmed:
            creation = adopt(request, campaign, {*ignore, "only_save"}, clock.latest(), own=True)
            state.mark_seen(_sends_at(campaign, clock), campaign.guid)
            return replace(creation, incomplete=True)
        if choice == "keep":
            status = "a draft" if campaign.mail_status == MailStatus.DRAFT else "not scheduled"
            action = f"It is {status} and will not be sent, so it is not adopted. "
    elif choice == "keep":
        _check_draft(client, request, campaign)
        return replace(adopt(request, campaign, ignore, clock.latest(), own=True), incomplete=True)
    # A user who deletes it may clear the task to create it again, unless it has been sent by then.
    state.mark_sends_at(None if cancelled else _sends_at(campaign, clock))
    advice = (
        "Delete it (its name may still be taken), fix the cause, and run again"
        if cancelled
        else _advice(campaign, clock)
    )
    cause = "the task check failed" if request.attachment is None else "adding the attachment or the task check failed"
    reason = "an earlier try was answered with code 500" if error is None else str(error)
    raise MailIncompleteCampaignError(
        f"the service kept the campaign {campaign.mail_name!r} (mailStatus {campaign.mail_status}) although its "
        f"creation failed: {reason} (that is: {cause}). {action}{advice}",
        operation=request.path,
        **({"code": 500} if error is None else error.details),
    )


def _advice(kept: Campaign, clock: ServiceClock) -> str:
    """Advise what to do about a kept campaign, without a second mail to recipients of the first."""
    if kept.mail_status == MailStatus.FAILED and not kept.send_time_is_ahead(clock.latest()):
        return (
            "It failed: look at the service whether it reached somebody. If not, delete it at the service, fix the "
            "cause, and clear the task with send_again=True"
        )
    if kept.mail_status not in (MailStatus.SENDING, MailStatus.COMPLETE):
        return "Cancel or delete it at the service, fix the cause, and run again"
    twice = "running again, under another mail_name or after deleting it, mails every recipient a second time"
    if kept.mail_status == MailStatus.SENDING and kept.send_time_is_ahead(clock.latest()):
        return (
            f"It is sent at {kept.send_by_date_time:%Y-%m-%dT%H:%M:%SZ}: cancel or delete it at the service before "
            f"that time, fix the cause, and run again. After it is sent, {twice}"
        )
    status = "was sent" if kept.mail_status == MailStatus.COMPLETE else "is being sent"
    return f"It {status}: {twice}. Leave it as it is and mark this task as success, unless you want a second mail"
