"""Campaign send tasks and their statistics (specification, "Campaign send tasks")."""

from __future__ import annotations

import base64
import unicodedata
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from airflow_provider_mail.api._core.fields import (
    OMIT_BLANK,
    Address,
    EpochMillis,
    FileName,
    Html,
    LanguageCode,
    Line,
    MailName,
    NewMailName,
    Text,
    UtcTime,
    WholeNumber,
)
from airflow_provider_mail.api._core.pacing import NEW_SECONDS, ServiceClock
from airflow_provider_mail.api._core.pagination import all_records, find
from airflow_provider_mail.api._core.requests import (
    Client,
    DateWindow,
    Effect,
    MailRequest,
    MailResponse,
    OpenResource,
    PagedRequest,
    PageResponse,
    Records,
    RequestModel,
    Sandboxed,
)
from airflow_provider_mail.api.errors import MailPendingCampaignError, MailRejectedError

__all__ = [
    "Attachment",
    "Campaign",
    "CampaignStats",
    "CancelCampaign",
    "CreateCampaign",
    "DeleteCampaign",
    "GetCampaignStats",
    "GetCampaigns",
    "MailStats",
    "MailStatus",
    "find_campaign",
]

TaskType = Literal["MailList", "ABTest"]

_MAX_LOOKUPS = 20
_CONFIRM_PAUSES = (0.5, 1.0, 2.0)
"""Seconds between the checks whether a campaign that shows as a draft is scheduled: a rejection may be temporary."""


class MailStatus(IntEnum):
    """The states of a campaign. The specification does not show those of a scheduled or cancelled campaign."""

    DRAFT = -1
    SENDING = 1
    COMPLETE = 2
    FAILED = 4


FINAL = (MailStatus.COMPLETE, MailStatus.FAILED)


def _status_of(value: Any) -> Any:
    return MailStatus.__members__.get(value.upper(), value) if isinstance(value, str) else value


class Attachment(RequestModel):
    """One file.

    :param file_name: its name, one line.
    :param file_data: its content in Base64.
    """

    file_name: FileName
    file_data: Text

    @model_validator(mode="after")
    def _is_base64(self) -> Attachment:
        try:
            base64.b64decode(self.file_data, validate=True)
        except ValueError:
            raise ValueError("file_data: not Base64") from None
        return self


class CreateCampaignResponse(MailResponse):
    """``id`` and ``guid`` of the new campaign; both are ``None`` in sandbox mode."""

    id: int | None = None
    guid: str | None = None


class CreateCampaign(MailRequest[CreateCampaignResponse], Sandboxed):
    """Create a campaign that is sent to contact lists (specification, "Campaign send tasks").

    :param mail_name: its name: one line, at most 200 bytes, unique within the team.
    :param sender_mail: address of a verified sender.
    :param sender_name: display name of the sender. Default: ``sender_mail``.
    :param subject: subject, one line; may contain tags such as ``{{name}}``.
    :param content: HTML; may contain tags.
    :param send_date: when it is sent, with a time zone. Default: now.
    :param only_save: save it as a draft instead of sending it. Default: false.
    :param send_list_names: lists that it is sent to; required unless ``only_save`` is true.
    :param repel_list_names: lists whose contacts are excluded.
    :param reply_to: address for replies. Default: ``sender_mail``.
    :param attachment: one file.
    :param language_code: language of system modules, such as the unsubscribe link.
    :param market_name: activity that it belongs to; created if absent.
    :param subscript_name: subscription type; must exist.
    :param project_code: project code; created if absent.
    :param editor_type: ``DRAG`` (the service's default) or ``CLASSIC``.
    """

    path = "/v5/campaign/mail/sends"
    effect = Effect.CREATE

    mail_name: NewMailName
    sender_mail: Address
    sender_name: Annotated[Line | None, OMIT_BLANK] = None
    subject: Line | None = None
    content: Html | None = None
    send_date: UtcTime | None = None
    only_save: bool | None = None
    send_list_names: list[Text] | None = None
    repel_list_names: list[Text] | None = None
    reply_to: Address | None = None
    attachment: Attachment | None = None
    language_code: LanguageCode | None = None
    market_name: str | None = None
    subscript_name: str | None = None
    project_code: str | None = None
    editor_type: Literal["CLASSIC", "DRAG"] | None = None

    @model_validator(mode="after")
    def _has_recipients(self) -> CreateCampaign:
        if not self.only_save and not self.send_list_names:
            raise ValueError("send_list_names: required unless only_save is true")
        return self


class MailStats(OpenResource):
    """The counts of a completed campaign (``mailStatus`` 2)."""

    sent_count: WholeNumber | None = Field(None, description="Mails sent")
    delivered_count: WholeNumber | None = Field(None, description="Mails delivered")
    open_count: WholeNumber | None = Field(None, description="Opens")
    click_count: WholeNumber | None = Field(None, description="Clicks")
    hard_bounce: WholeNumber | None = Field(None, description="Permanent failures")
    soft_bounce: WholeNumber | None = Field(None, description="Temporary failures")
    unsent_count: WholeNumber | None = Field(None, description="Contacts filtered out")
    unsubscribe_count: WholeNumber | None = Field(None, description="Unsubscribes")


class Campaign(OpenResource):
    """A campaign send task as the service returns it (specification, "Campaign send task")."""

    mail_name: str
    subject: str | None = None
    mail_content: str | None = None
    sender_name: str | None = None
    sender_mail: str | None = None
    reply_to: str | None = None
    rcpt_emails: Records[str] | None = None
    repel_emails: Records[str] | None = None
    rcpt_list_names: Records[str] | None = None
    repel_list_names: Records[str] | None = None
    send_by_date_time: EpochMillis = None
    task_type: str | None = None
    mail_status: WholeNumber
    guid: str | None = None
    team_name: str | None = None
    language_code: str | None = None
    market_name: str | None = None
    subscript_name: str | None = None
    project_code: str | None = None
    reviewer_name: str | None = None
    mail_stats: MailStats | None = None

    def send_time_is_ahead(self, now: datetime | None = None) -> bool:
        """Whether the send time is in the future.

        :param now: the service's time. Default: the local time.
        """
        return self.send_by_date_time is not None and self.send_by_date_time > (now or datetime.now(UTC))


class CancelCampaign(MailRequest[MailResponse], Sandboxed):
    """Cancel a scheduled campaign whose send time has not passed.

    :param mail_name: its name, at most 200 bytes.
    """

    path = "/v5/campaign/mail/cancel"
    effect = Effect.DELETE

    mail_name: MailName

    def took_effect(self, client: Client) -> bool:
        if self.sandbox_mode:
            return False  # Nothing was changed.
        campaign, sent = state_after_rejection(client, self.mail_name)
        if sent is None:
            raise not_known(campaign, self.path)
        return not sent


class CampaignsPage(PageResponse[Campaign]):
    """One page of campaigns."""

    records_field = "mail_list"

    mail_list: Records[Campaign] | None = None

    @staticmethod
    def identity(record: Campaign) -> object:
        return record.guid or (record.team_name, record.mail_name)


class GetCampaigns(PagedRequest[CampaignsPage]):
    """Read campaigns, 10 per page by default.

    :param mail_name: only campaigns whose name contains this text.
    :param subject: only campaigns whose subject contains this text.
    :param sender_mail: only campaigns of this sender.
    :param type: only ``MailList`` (ordinary) or ``ABTest`` tasks.
    :param all_team: read the campaigns of all teams, which needs a permission. Default: false.
    :param mail_status: only campaigns in these states, also by name, such as ``complete``. Default: all.
    """

    path = "/v5/campaign/mail/get"
    effect = Effect.READ

    mail_name: str | None = None
    subject: str | None = None
    sender_mail: str | None = None
    type: TaskType | None = None
    all_team: bool | None = None
    mail_status: list[Annotated[MailStatus, BeforeValidator(_status_of)]] | None = None


class DeleteCampaign(MailRequest[MailResponse], Sandboxed):
    """Delete a campaign permanently.

    :param mail_name: its name, at most 200 bytes.
    """

    path = "/v5/campaign/mail/delete"
    effect = Effect.DELETE
    lookup_is_authoritative = True

    mail_name: MailName

    def find(self, client: Client) -> Campaign | None:
        return find_campaign(client, self.mail_name)


class CampaignStats(OpenResource):
    """The counts of one campaign; ``open_count`` and ``click_count`` count recipients, not events.

    Counters that the service adds are to be declared here; the compact form is derived from these fields.
    """

    mail_name: str
    mail_send_date: EpochMillis = None
    sent_count: WholeNumber = Field(description="Mails sent")
    open_count: WholeNumber = Field(description="Unique opens")
    click_count: WholeNumber = Field(description="Unique clicks")
    hard_bounce: WholeNumber = Field(description="Permanent failures")
    soft_bounce: WholeNumber = Field(description="Temporary failures")
    unsent_count: WholeNumber = Field(description="Contacts filtered out: duplicates, suppressed, excluded")
    unsubscribe_count: WholeNumber = Field(description="Unsubscribes")


def no_counts(record: type[MailStats | CampaignStats] = MailStats) -> dict[str, int]:
    """Return the counts of a campaign that was not sent."""
    return {name: 0 for name in record.model_fields if name not in ("mail_name", "mail_send_date")}


class CampaignStatsResponse(MailResponse):
    """The records of the window and the number of campaigns that match."""

    mail_stats_list: Records[CampaignStats] | None = None
    total_records: WholeNumber | None = None


class GetCampaignStats(MailRequest[CampaignStatsResponse], DateWindow):
    """Read the statistics of campaigns that were sent in a window.

    :param start_date: first day in UTC, ``YYYY-MM-DD``.
    :param end_date: last day, included.
    :param mail_name: only campaigns that the service finds by this name.
    :param type: only ``MailList`` (ordinary) or ``ABTest`` campaigns.
    """

    path = "/v5/campaign/mail/stats/get"
    effect = Effect.READ

    mail_name: Text | None = None
    type: TaskType | None = None


def find_campaign(client: Client, mail_name: str, guid: str | None = None) -> Campaign | None:
    """Return a campaign of the own team, or ``None``.

    :param mail_name: its exact name.
    :param guid: its unique identifier, if it is known: then the campaign may have another name, since a service may
        rewrite names, and one of that name is another campaign. Default: the name identifies it.
    """

    def matches(record: Campaign) -> bool:
        return is_campaign(record, mail_name, guid)

    found = find(client, GetCampaigns(mail_name=mail_name, page_size=100), matches)
    return found or (find(client, GetCampaigns(page_size=100), matches) if guid else None)


def find_rewritten(client: Client, mail_name: str) -> Campaign | None:
    """Return the campaign whose name may be what the service makes of this one, or ``None``.

    The specification does not show that names are stored as they are sent. This reads all campaigns.
    """
    key = name_key(mail_name)
    return find(client, GetCampaigns(page_size=100), lambda record: name_key(record.mail_name) == key)


def is_campaign(record: Campaign, mail_name: str, guid: str | None) -> bool:
    """Return whether a record is the campaign of this ``guid``; of exactly this name, as far as it is not known."""
    if guid and record.guid:
        return record.guid.casefold() == guid.casefold()
    return record.mail_name == mail_name


def name_key(mail_name: str) -> str:
    """Return what is left of a name when case, compatible characters and spaces are not told apart."""
    return " ".join(unicodedata.normalize("NFKC", mail_name).casefold().split())


def existing_campaigns(client: Client, mail_names: Collection[str]) -> dict[str, Campaign]:
    """Return the campaigns of the own team that have one of the names, by name.

    :raises MailIncompleteError: the response does not show whether there are such campaigns.
    """
    if len(mail_names) <= _MAX_LOOKUPS:
        found = (find_campaign(client, mail_name) for mail_name in mail_names)
        return {campaign.mail_name: campaign for campaign in found if campaign is not None}
    campaigns = all_records(client, GetCampaigns(page_size=100))
    return {campaign.mail_name: campaign for campaign in campaigns if campaign.mail_name in mail_names}


def exists(client: Client, request: CreateCampaign, mail_name: str) -> bool:
    """Return whether a campaign that is listed exists: a service may still list one that was deleted.

    The specification shows neither the response to the deletion of one that is gone, nor that such a name is free. So
    both are asked, in sandbox mode.

    :param request: that created it.
    :param mail_name: its name at the service.
    """
    return _is_accepted(client, DeleteCampaign(mail_name=mail_name, sandbox_mode=True)) and not _is_accepted(
        client, request.model_copy(update={"mail_name": mail_name, "sandbox_mode": True})
    )


def _is_accepted(client: Client, request: MailRequest[Any]) -> bool:
    try:
        client.send(request)
    except MailRejectedError:
        return False
    return True


def is_scheduled(client: Client, mail_name: str) -> bool:
    """Return whether the service would cancel a campaign, that is, whether its send time is ahead.

    The specification shows neither the status of a scheduled campaign nor that of a cancelled one: both may look like a
    draft. A cancellation in sandbox mode distinguishes them and changes nothing.
    """
    return _is_accepted(client, CancelCampaign(mail_name=mail_name, sandbox_mode=True))


def state_after_rejection(client: Client, mail_name: str) -> tuple[Campaign | None, bool | None]:
    """Determine whether a campaign is or will be sent although the service rejects its cancellation.

    A rejection may be temporary, caused by an earlier cancellation, or because the cancellation is too late.

    :return: the campaign as the service shows it, and whether it is sent: ``None`` if the service does not show it.
    """
    clock = client.service_clock
    for seconds in (*_CONFIRM_PAUSES, None):
        scheduled = is_scheduled(client, mail_name)
        campaign: Campaign | None = find_campaign(client, mail_name)
        if scheduled:
            return campaign, True
        if campaign is None:
            return campaign, False
        ahead = campaign.send_time_is_ahead(clock.latest())
        if campaign.mail_status == MailStatus.FAILED:
            # It may have reached some recipients, unless it was cancelled before.
            return campaign, not ahead
        if campaign.mail_status != MailStatus.DRAFT:
            return campaign, None if ahead else True
        new = is_new(campaign, clock)
        if seconds is None or not (ahead or new):
            break
        client.pause(seconds)
    # A campaign whose send time has just passed may still show as a draft.
    return campaign, None if new else False


def not_known(campaign: Campaign | None, operation: str, advice: str = "") -> MailPendingCampaignError:
    """Return the error for a campaign if the service does not show whether it is sent.

    :param operation: the path of the operation that failed.
    :param advice: a sentence to add.
    """
    assert campaign is not None
    sent = campaign.send_by_date_time
    when = f", send time {sent:%Y-%m-%dT%H:%M:%SZ}" if sent else ""
    return MailPendingCampaignError(
        f"mail_name: it is not known whether campaign {campaign.mail_name!r} is sent: look at the service, or try "
        f"again. The service rejects its cancellation, and shows mailStatus {campaign.mail_status}{when}"
        f"{advice and f'. {advice}'}",
        operation=operation,
    )


def is_new(campaign: Campaign, clock: ServiceClock) -> bool:
    """Return whether the send time passed so recently that the state of the campaign may not be final."""
    sent = campaign.send_by_date_time
    return sent is not None and timedelta() <= clock.latest() - sent < timedelta(seconds=NEW_SECONDS)
