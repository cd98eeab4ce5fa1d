"""Transactional mail and its daily statistics (specification, "Transactional email")."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated

from pydantic import Field, model_validator

from airflow_provider_mail.api._core.content import tags_of
from airflow_provider_mail.api._core.fields import (
    LINE_PATTERN,
    OMIT_BLANK,
    PATTERN_MESSAGES,
    Address,
    DisplayName,
    Html,
    Label,
    Line,
    Params,
    SenderName,
    Text,
    UniqueMsgId,
    UtcTime,
    WholeNumber,
)
from airflow_provider_mail.api._core.requests import (
    DateWindow,
    Effect,
    MailRequest,
    MailResponse,
    OpenResource,
    Records,
    RequestModel,
    Sandboxed,
)
from airflow_provider_mail.api.campaigns import Attachment

__all__ = ["GetTransactionalStats", "MessageVersion", "Recipient", "SendBatch", "SendMail", "TransactionalStats"]

_NOT_ONE_LINE = PATTERN_MESSAGES[LINE_PATTERN]

SENDS_PATH = "/v5/transactional/mail/sends_customised"


class Recipient(RequestModel):
    """A recipient.

    :param email: the address.
    :param name: the display name, one line, at most 100 bytes; a blank one is left out.
    """

    email: Address
    name: Annotated[DisplayName | None, OMIT_BLANK] = None


MAX_RECIPIENTS = 20
"""Maximum number of recipients of one kind in one version."""

MAX_VERSIONS = 100
"""Maximum number of versions in one request."""

People = Annotated[list[Recipient], Field(max_length=MAX_RECIPIENTS)]


class Delivery(MailRequest[MailResponse], Sandboxed):
    """The fields that both forms of a transactional send share.

    :param sender_mail: address of a sender of the account.
    :param reply_to: address for replies.
    :param send_date: when it is sent, with a time zone. Default: now.
    :param category: report label; letters and digits, at most 100 bytes.
    :param campaign: task name label; letters and digits, at most 100 bytes.
    :param track_open: 1 tracks opens; other values do not.
    :param track_click: 1 tracks clicks; other values do not.
    :param unique_msg_id: the caller's message id, at most 50 bytes.
    :param attachment: one file.
    """

    path = SENDS_PATH
    effect = Effect.SEND

    sender_mail: Address
    reply_to: Address | None = None
    send_date: UtcTime | None = None
    category: Label | None = None
    campaign: Label | None = None
    track_open: int | None = None
    track_click: int | None = None
    unique_msg_id: UniqueMsgId | None = Field(default=None, alias="uniqueMsgID")
    attachment: Attachment | None = None


class SendMail(Delivery):
    """Send one message to one recipient (the single-message form).

    :param subject: subject, one line.
    :param content: HTML.
    :param sender_name: display name of the sender.
    :param to: the recipient.
    """

    subject: Annotated[Line, Field(min_length=1)]
    content: Annotated[Html, Field(min_length=1)]
    sender_name: Annotated[Line | None, OMIT_BLANK] = None
    to: Recipient


class MessageVersion(RequestModel):
    """One personalized message; its values take precedence over those of the batch.

    :param to: 1 to 20 recipients.
    :param cc: up to 20 recipients. Always sent, since the specification lists it as required.
    :param bcc: up to 20 recipients. Always sent, like ``cc``.
    :param subject: subject, one line.
    :param content: HTML; may contain ``{{tags}}``.
    :param template_name: stored template; takes precedence over ``content``.
    :param params: values for tags.
    """

    to: Annotated[People, Field(min_length=1)]
    cc: People = Field(default_factory=list)
    bcc: People = Field(default_factory=list)
    subject: Line | None = None
    content: Html | None = None
    template_name: Text | None = None
    params: Params | None = None


class SendBatch(Delivery):
    """Send up to 100 personalized versions of one content or template (the batch form).

    :param subject: subject, one line; takes precedence over the template's.
    :param content: HTML; may contain ``{{tags}}``.
    :param template_name: stored template; takes precedence over ``content``.
    :param params: values for tags.
    :param sender_name: display name of the sender, one line, at most 200 bytes.
    :param message_versions: 1 to 100 versions.
    """

    subject: Line | None = None
    content: Html | None = None
    template_name: Text | None = None
    params: Params | None = None
    sender_name: Annotated[SenderName | None, OMIT_BLANK] = None
    message_versions: list[MessageVersion] = Field(min_length=1, max_length=MAX_VERSIONS)

    @model_validator(mode="after")
    def _has_content_and_subject(self) -> SendBatch:
        for number, version in enumerate(self.message_versions):
            template = version.template_name or self.template_name
            if not (template or version.content or self.content):
                raise ValueError(f"content or template_name: message_versions[{number}] has neither, nor has the batch")
            if not (template or version.subject or self.subject):
                raise ValueError(f"subject: message_versions[{number}] has none, nor has the batch, nor a template")
            params = {**(self.params or {}), **(version.params or {})}
            for tag in tags_of(version.subject or self.subject):
                if isinstance(value := params.get(tag), str) and not re.fullmatch(LINE_PATTERN, value):
                    raise ValueError(
                        f"message_versions[{number}].params: {tag!r} is in the subject and {_NOT_ONE_LINE}"
                    )
        return self


class TransactionalStats(OpenResource):
    """The counts of one day; ``bounce_count`` has only soft bounces."""

    stats_date: date
    sent_count: WholeNumber = Field(description="Mails sent")
    open_count: WholeNumber = Field(description="Opens of mails sent with open tracking")
    click_count: WholeNumber = Field(description="Clicks in mails sent with click tracking")
    bounce_count: WholeNumber = Field(description="Soft bounces only; hard bounces are not reported")
    unsent_count: WholeNumber = Field(description="Mails filtered or suppressed")
    unsubscribe_count: WholeNumber = Field(description="Unsubscribes")


class TransactionalStatsResponse(MailResponse):
    """The records of the window, one per day."""

    mail_stats_list: Records[TransactionalStats] | None = None


class GetTransactionalStats(MailRequest[TransactionalStatsResponse], DateWindow):
    """Read the daily statistics of transactional mail.

    :param start_date: first day in UTC, ``YYYY-MM-DD``.
    :param end_date: last day, included.
    """

    path = "/v5/transactional/mail/stats/get"
    effect = Effect.READ
