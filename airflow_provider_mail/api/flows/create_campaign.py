"""Create a campaign exactly once (specification, "Campaign send tasks": ``mailName`` is unique within the team).

The name is chosen before the first request, so the campaign can be looked up in any case: after a lost response, or
after a worker died between request and response. A campaign is never created without a lookup first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, TypeAlias

from airflow_provider_mail.api._core.pacing import NEW_SECONDS, ServiceClock
from airflow_provider_mail.api._core.requests import Client
from airflow_provider_mail.api.campaigns import (
    Campaign,
    CreateCampaign,
    CreateCampaignResponse,
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
from airflow_provider_mail.api.flows.audience import whose_people
from airflow_provider_mail.api.flows.campaign_checks import (
    COMPARED,
    CampaignCaps,
    MailDifferentCampaignError,
    check_equal,
    check_send_date,
    confirm_sending,
    excess,
    field_digests,
    is_older,
    is_unsent,
)
from airflow_provider_mail.api.flows.cancel_campaign import cancel_campaign
from airflow_provider_mail.api.flows.create_once import (
    BRIEF_PAUSES,
    PAUSES,
    Creation,
    CreationState,
    create_once,
    delete,
    find_repeatedly,
)

__all__ = ["create_campaign"]

OnIncomplete: TypeAlias = Literal["cancel", "keep", "fail"]

log = logging.getLogger(__name__)


def create_campaign(
    client: Client,
    request: CreateCampaign,
    *,
    ignore: Collection[str] = (),
    on_incomplete: OnIncomplete = "fail",
    state: CreationState | None = None,
    replace_scheduled: bool = False,
    allow_past_send_date: bool = False,
    not_older_than: datetime | None = None,
    caps: CampaignCaps | None = None,
    check_lists: Callable[[Client], None] | None = None,
) -> Creation:
    """Adopt the campaign of exactly this name if it is equal and is or will be sent; create it if there is none.

    :param ignore: request fields that may differ when a campaign is adopted.
    :param on_incomplete: what to do with a campaign that the service kept although creating it failed (code 500).
    :param state: the known state of the attempts of earlier tries; updated. Default: there were none.
    :param replace_scheduled: cancel and delete an own campaign that differs and is still to be sent; create it anew.
    :param allow_past_send_date: create the campaign although its send time has passed: the service sends it at once.
    :param not_older_than: do not adopt a campaign of another task or run, scheduled or sent. If ``state`` does not
        show whose it is, a campaign that was sent before this moment (by the clock of Airflow's scheduler) counts as
        another's. Default: adopt any campaign.
    :param caps: the limits of its day, checked before it is created. Default: no limits.
    :param check_lists: called before it is created, and raises an error when its lists are not the right ones. Default:
        they are not checked.
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
    state = state or CreationState()
    clock = client.service_clock
    task = _Task(client, request, state, ignore, not_older_than)
    task.check_name()
    if state.creation.requested not in ("", request.mail_name):
        state.creation = Creation()
    state.creation = state.creation.model_copy(update={"requested": request.mail_name})

    def check() -> None:
        # A draft is not sent, and an earlier attempt passed the same check.
        if not (allow_past_send_date or request.only_save):
            check_send_date(request.send_date, clock.now(), operation=request.path)

    if not state.creation.has_attempted:
        client.open_ahead()
    campaign = task.find_known(request.mail_name)
    if campaign is not None and replace_scheduled and state.is_own and task.removes_different(campaign):
        campaign = None
    if campaign is None:
        task.check_gone()
        if state.creation.guid:
            # What has this name now is another campaign.
            state.put(Creation(requested=request.mail_name))
            campaign = find_campaign(client, request.mail_name)
    if campaign is None:
        if caps and (problems := excess(client, request, caps)):
            raise MailValidationError(f"{'; '.join(problems)}: nothing was created", operation=request.path)
        if check_lists:
            check_lists(client)
        if state.is_lost:
            log.warning(
                "Creating campaign %r. This Airflow has no task state store (3.3 has), so it is not known whether an "
                "earlier try created one under another name, or one that was deleted, cancelled or removed since.",
                request.mail_name,
            )
        made = create_once(
            client,
            request,
            task.search,
            state=state,
            digests=field_digests(request),
            check=check,
            unconfirmed=task.pending,
        )
        if isinstance(made, CreateCampaignResponse):
            return task.created(made)
        campaign = made
    new = state.creation.attempted_lately(clock.time()) or is_new(campaign, clock)
    if state.creation.incomplete:
        return task.handle_incomplete(campaign, on_incomplete, new=new)
    return task.adopt_if_sent(campaign, new=new)


@dataclass(slots=True)
class _Task:
    """A try to create a campaign: what it asks for, and what is known. The arguments of :func:`create_campaign`."""

    client: Client
    request: CreateCampaign
    state: CreationState
    ignore: Collection[str]
    not_older_than: datetime | None

    @property
    def clock(self) -> ServiceClock:
        return self.client.service_clock

    def find_known(self, mail_name: str) -> Campaign | None:
        """Look up a campaign; repeatedly if it is expected to exist."""
        known = self.state.creation
        campaign = find_campaign(self.client, mail_name, known.guid)
        # The service's clock is known only after a response.
        expected = known.incomplete or known.seen or known.guid or known.attempted_lately(self.clock.time())
        if campaign is None and expected:
            first, *further = PAUSES
            self.client.pause(first)
            return self.search(further, mail_name=mail_name)
        if campaign is None and self.state.may_have_attempted:
            return self.search((), mail_name=mail_name)
        return campaign

    def search(
        self, waits: Sequence[float], rewritten: bool = True, *, mail_name: str | None = None
    ) -> Campaign | None:
        """Look up a campaign until it is found.

        :param waits: seconds to pause before each further lookup.
        :param rewritten: whether, at last, one counts whose name may be what the service made of this one.
        :param mail_name: its name. Default: that of the request.
        """
        name, guid = mail_name or self.request.mail_name, self.state.creation.guid
        campaign = find_repeatedly(partial(find_campaign, self.client, name, guid), self.client.pause, waits)
        if campaign is None and rewritten and not guid:
            campaign = find_rewritten(self.client, name)
            if campaign is not None:
                log.warning("campaign %r: the service has it as %r.", name, campaign.mail_name)
        return campaign

    def created(self, response: CreateCampaignResponse) -> Creation:
        """Record a campaign that was created, and its name if the service shows it yet: by that it is cancelled."""
        request, state, guid = self.request, self.state, response.guid
        sends_at = None
        if not request.only_save:
            sends_at = request.send_date.timestamp() if request.send_date else self.clock.time()
        # Without a guid, nothing but its name shows later that it is this one.
        state.note(
            mail_name=request.mail_name, guid=guid, adopted=False, incomplete=False, mail_status=None,
            sends_at=sends_at, seen=guid is None,
        )  # fmt: skip
        shown = None
        if guid:
            with suppress(MailError):
                shown = find_campaign(self.client, request.mail_name, guid)
        if shown is not None:
            state.note(seen=True, mail_name=shown.mail_name)
            if shown.mail_name != request.mail_name:
                log.warning("campaign %r was created; the service has it as %r.", request.mail_name, shown.mail_name)
        return state.creation

    def adopted(self, campaign: Campaign) -> Creation:
        self.state.note(
            mail_name=campaign.mail_name, guid=campaign.guid or self.state.creation.guid, adopted=True,
            mail_status=campaign.mail_status, sends_at=self.sends_at(campaign), seen=True,
        )  # fmt: skip
        return self.state.creation

    def check_equal(self, campaign: Campaign, *also_ignored: str, **options: Any) -> None:
        """Reject a campaign that differs.

        :param also_ignored: further fields that may differ.
        """
        check_equal(self.request, campaign, {*self.ignore, *also_ignored}, self.clock.latest(), **options)

    def removes_different(self, campaign: Campaign) -> bool:
        """Cancel and delete an own campaign that differs and is still to be sent; return whether that was done.

        :raises MailConflictError: it could not be cancelled, so it may be sent.
        """
        try:
            self.check_equal(campaign, "only_save", own=True, digests=self.state.creation.digests)
        except MailDifferentCampaignError as error:
            if not campaign.send_time_is_ahead(self.clock.latest()):
                return False
            cancellation = cancel_campaign(self.client, campaign.mail_name)
            if not cancellation.done:
                raise MailConflictError(f"{error}. It {cancellation.text}", operation=self.request.path) from None
            delete(self.client, DeleteCampaign(mail_name=campaign.mail_name))
            self.state.put(Creation(requested=self.request.mail_name))
            log.warning("campaign %r was scheduled, and differed: it was cancelled and deleted.", campaign.mail_name)
            return True
        return False

    def check_name(self) -> None:
        """Prevent a second campaign if an earlier try created, or may have created, one of another name.

        After a user cleared the task, the name may change if the campaign of the other name is gone.
        """
        state, known, name = self.state, self.state.creation, self.request.mail_name
        earlier = known.requested
        if earlier in ("", name) or not known.has_attempted:
            return
        campaign = self.find_known(earlier)
        gone = campaign is None and (known.seen or not known.attempted_lately(self.clock.time()))
        if state.cleared and (state.send_again or gone):
            return
        earlier_lists = None if campaign is None else campaign.rcpt_list_names
        # Of a mapped list that has moved, this is another item.
        if (
            state.cleared
            and state.may_have_moved
            and earlier_lists is not None
            and whose_people(self.request.send_list_names or ()).isdisjoint(whose_people(earlier_lists))
        ):
            return
        created = "created" if known.seen or known.guid else "may have created"
        status = "cannot be found now" if campaign is None else f"exists (mailStatus {campaign.mail_status})"
        raise MailConflictError(
            'mail_name: give every try the same name, such as "news {{ dag_run.run_after | ds }}", not one with the '
            f"present time. An earlier try of this task {created} campaign {earlier!r}, which {status}; this try "
            f"asks for {name!r}, and created nothing. If {earlier!r} is the campaign that you want, mark the task as "
            f"success. To send {name!r} too, clear the task with send_again=True: that mails everybody again if the "
            "other one is or was sent",
            operation=self.request.path,
        )

    def check_gone(self) -> None:
        """Prevent creating a campaign again that an earlier try created or adopted.

        An incomplete campaign may be gone: its error asks the user to delete it.
        :raises MailPendingCampaignError: it is so new that it may not be visible yet.
        """
        request, state, known, now = self.request, self.state, self.state.creation, self.clock.time()
        if known.guid and not known.seen and known.attempted_lately(now):
            raise MailPendingCampaignError(
                f"mail_name: campaign {request.mail_name!r} was created (guid {known.guid}), and the service does not "
                "show it yet. The next try looks again",
                operation=GetCampaigns.path,
            )
        sent = known.was_sent(now)
        removed = sent or ((known.seen or known.guid is not None) and not known.incomplete)
        if not removed or (state.cleared and (state.send_again or not sent)):
            return
        advice = (
            "It was sent, or its send time has passed: another one mails everybody again. If you want that, clear the "
            "task with send_again=True, or with another mail_name"
            if sent
            else "If you want it after all, clear the task"
        )
        raise MailConflictError(
            f"mail_name: campaign {request.mail_name!r} was created by this task and is gone: deleted or cancelled. It "
            f"was not created again. {advice}",
            operation=request.path,
        )

    def pending(self, rejection: MailError) -> MailPendingCampaignError:
        """Return the error for a rejection that may mean that an earlier attempt created the campaign."""
        return MailPendingCampaignError(
            f"{rejection}. The response to an earlier attempt to create campaign {self.request.mail_name!r} was lost: "
            "it may have been created and appear late. The next try looks it up again",
            # The operation that has not succeeded yet is the lookup.
            operation=GetCampaigns.path,
            **rejection.details,
        )

    def check_owner(self, campaign: Campaign) -> None:
        """Reject an equal campaign of that name if another task or run created it."""
        request, state, not_older_than = self.request, self.state, self.not_older_than
        if not_older_than is None or state.is_own:
            return
        ahead = campaign.send_time_is_ahead(self.clock.latest())
        # Adopting it cannot leave anybody without mail: it failed, it is a draft, or only a draft was requested.
        draft = is_unsent(campaign, self.clock) and (not ahead or request.only_save)
        if campaign.mail_status == MailStatus.FAILED or draft:
            return
        older = not ahead and is_older(campaign, not_older_than, self.clock)
        if state.is_own is None and not older:
            if ahead:
                log.warning(
                    "campaign %r is scheduled. Before Airflow 3.3, and in a mapped task of a run that was cleared, it "
                    "is not known whether this run created it. It is adopted: if another run did, this run mails "
                    "nobody.",
                    campaign.mail_name,
                )
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
            ""
            if state.first_try
            else ", also if an earlier try of this task created it: else everybody is mailed again"
        )
        raise MailConflictError(
            f"mail_name: a campaign named {campaign.mail_name!r} exists and is equal, but {ownership}: it {send_time} "
            f"(mailStatus {campaign.mail_status}). It was not adopted, and nothing was sent. Give each run its own "
            'name, such as mail_name="news {{ dag_run.run_after | ds }}", or leave mail_name out; to adopt that '
            f"campaign, set adopt_older=True{exception}",
            operation=request.path,
        )

    def adopt_if_sent(self, campaign: Campaign, *, new: bool) -> Creation:
        """Adopt a campaign that is equal, is or will be sent, and is of this task.

        :param new: whether the state that it shows may not be final.
        """
        own, digests = self.state.is_own, self.state.creation.digests
        draft = self.request.only_save or "only_save" in self.ignore
        # The status may take time to become final.
        self.check_equal(campaign, *(() if draft else ("only_save",)), own=own, digests=digests)
        self.check_owner(campaign)
        if draft:
            self.check_draft(campaign)
            return self.adopted(campaign)
        campaign, confirmed = confirm_sending(self.client, campaign, PAUSES if new else BRIEF_PAUSES)
        if not confirmed:
            raise self.not_sent(campaign, new=new or is_new(campaign, self.clock))
        self.check_equal(campaign, "only_save", own=own, digests=digests)
        self.check_owner(campaign)
        return self.adopted(campaign)

    def check_draft(self, campaign: Campaign) -> None:
        """Reject a draft that may have been deleted: the service may still list it."""
        if campaign.mail_status == MailStatus.DRAFT and not exists(self.client, self.request, campaign.mail_name):
            raise MailPendingCampaignError(
                f"mail_name: the service lists the draft {campaign.mail_name!r}, and would not delete it, or would "
                "create another one of that name: it was deleted. It was not adopted, and nothing was created. The "
                "next try looks again; if the draft stays, choose another mail_name",
                operation=GetCampaigns.path,
            )

    def not_sent(self, campaign: Campaign, *, new: bool) -> MailError:
        """Return the error for a campaign that, according to its state, will not be sent."""
        status = (
            f"mail_name: a campaign named {campaign.mail_name!r} exists (mailStatus {campaign.mail_status}) and is not "
            "scheduled"
        )
        if new:
            return MailPendingCampaignError(
                f"{status}. It is new, so that may change: the next try checks again. If it is still not scheduled or "
                f"sent {NEW_SECONDS / 60:g} minutes after its creation, it was cancelled, or only saved",
                operation=GetCampaigns.path,
            )
        if self.state.is_own:
            # It will not be sent, so it may be created again once it is deleted.
            sends_at = None if is_unsent(campaign, self.clock) else self.clock.time()
            self.state.note(seen=True, sends_at=sends_at, guid=campaign.guid or self.state.creation.guid)
            advice = "To send it after all, delete that campaign and clear this task"
        else:
            advice = "Choose another mail_name, or delete that campaign"
        message = f"{status}: it was cancelled, or only saved. {advice}"
        return MailConflictError(message, operation=self.request.path)

    def sends_at(self, campaign: Campaign) -> float | None:
        """Return the time from which an existing campaign counts as sent; ``None`` for a draft."""
        sent, ahead = campaign.send_by_date_time, campaign.send_time_is_ahead(self.clock.latest())
        if campaign.mail_status == MailStatus.DRAFT and not ahead:
            return None
        return sent.timestamp() if sent is not None and ahead else self.clock.time()

    def handle_incomplete(self, campaign: Campaign, choice: OnIncomplete, *, new: bool) -> Creation:
        """Handle a campaign that the service kept although creating it failed, according to the user's choice."""
        request, error = self.request, self.state.server_error
        action = ""
        cancelled = False
        new = new and not request.only_save
        if choice == "cancel":
            cancellation = cancel_campaign(self.client, campaign.mail_name)
            action, cancelled = f"It {cancellation.text}. ", cancellation.done
            campaign = cancellation.campaign or campaign
        elif not request.only_save and (choice == "keep" or campaign.mail_status == MailStatus.DRAFT):
            # The advice depends on whether it will be sent.
            campaign, confirmed = confirm_sending(self.client, campaign, PAUSES if new else BRIEF_PAUSES)
            if choice == "keep" and confirmed:
                self.check_equal(campaign, "only_save", own=True)
                return self.adopted(campaign)
            if choice == "keep":
                status = "a draft" if campaign.mail_status == MailStatus.DRAFT else "not scheduled"
                action = f"It is {status}, so it is not adopted. "
        elif choice == "keep":
            self.check_draft(campaign)
            self.check_equal(campaign, own=True)
            return self.adopted(campaign)
        # A user who deletes it may clear the task to create it again, unless it has been sent by then.
        self.state.note(sends_at=None if cancelled else self.sends_at(campaign))
        advice = (
            "Delete it (its name may still be taken), fix the cause, and run again"
            if cancelled
            else _advice(campaign, self.clock, new=new)
        )
        check = "the task check failed"
        cause = check if request.attachment is None else f"adding the attachment or {check}"
        reason = "an earlier try was answered with code 500" if error is None else str(error)
        raise MailIncompleteCampaignError(
            f"the service kept the campaign {campaign.mail_name!r} (mailStatus {campaign.mail_status}) although its "
            f"creation failed: {reason} (that is: {cause}). {action}{advice}",
            operation=request.path,
            **({"code": 500} if error is None else error.details),
        )


def _advice(kept: Campaign, clock: ServiceClock, *, new: bool) -> str:
    """Advise what to do about a kept campaign, without a second mail to recipients of the first.

    :param new: whether it may be sent although it is shown as a draft.
    """
    ahead = kept.send_time_is_ahead(clock.latest())
    if kept.mail_status == MailStatus.FAILED and not ahead:
        return (
            "It failed: look at the service whether it reached somebody. If not, delete it at the service, fix the "
            "cause, and clear the task with send_again=True"
        )
    again = "ancel or delete it at the service, fix the cause, and run again"
    twice = "running again, under another mail_name or after deleting it, mails every recipient a second time"
    if ahead and kept.mail_status in (MailStatus.DRAFT, MailStatus.SENDING):
        return (
            f"It {'is' if kept.mail_status == MailStatus.SENDING else 'may be'} sent at "
            f"{kept.send_by_date_time:%Y-%m-%dT%H:%M:%SZ}: before that time, c{again}. After it is sent, {twice}"
        )
    if kept.mail_status not in (MailStatus.SENDING, MailStatus.COMPLETE):
        later = (
            f"It is new, so that may change: look at it {NEW_SECONDS / 60:g} minutes after its creation. If it was "
            f"sent, {twice}. If not, c"
        )
        return f"{later if new and kept.mail_status == MailStatus.DRAFT else 'C'}{again}"
    status = "was sent" if kept.mail_status == MailStatus.COMPLETE else "is being sent"
    return f"It {status}: {twice}. Leave it as it is and mark this task as success, unless you want a second mail"
