"""Transactional mail, the requests of a mailing, and the daily statistics (specification, "Transactional email")."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from html import unescape
from itertools import count, islice
from typing import Annotated, Any, TypeAlias

import msgspec
from pydantic import Field, model_validator

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
    address_key,
    mailbox,
    split_mailboxes,
    tags_of,
)
from airflow_provider_mail.api._core.requests import (
    DateWindow,
    Effect,
    MailRequest,
    MailResponse,
    OpenResource,
    Records,
    RedactedRepr,
    RequestModel,
    Sandboxed,
    personal_values,
)
from airflow_provider_mail.api.campaigns import Attachment
from airflow_provider_mail.api.errors import MailValidationError

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


class OwnContent(RedactedRepr):
    """A message whose ``content`` is of one recipient, and may have the recipient's data."""

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, "***" if name == "content" and value else value


def _content_texts(content: str | None) -> Iterator[str]:
    """Yield the texts between tags, but for headings of tables: error messages of the service have such words."""
    for text in re.findall(r"[^<>]+(?=<(?!/th\b)|$)", content or ""):
        yield unescape(text).strip()


class SendMail(OwnContent, Delivery):
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

    def pii_values(self) -> Iterator[str]:
        yield from super().pii_values()
        yield from _content_texts(self.content)


class MessageVersion(OwnContent, RequestModel):
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


class BatchFields(Delivery):
    """The fields that all messages of a batch share.

    :param subject: subject, one line; takes precedence over the template's.
    :param content: HTML; may contain ``{{tags}}``.
    :param template_name: stored template; takes precedence over ``content``.
    :param params: values for tags.
    :param sender_name: display name of the sender, one line, at most 200 bytes.
    """

    subject: Line | None = None
    content: Html | None = None
    template_name: Text | None = None
    params: Params | None = None
    sender_name: Annotated[SenderName | None, OMIT_BLANK] = None


class SendBatch(BatchFields):
    """Send up to 100 personalized versions of one content or template (the batch form).

    :param message_versions: 1 to 100 versions.
    """

    message_versions: list[MessageVersion] = Field(min_length=1, max_length=MAX_VERSIONS)

    def pii_values(self) -> Iterator[str]:
        yield from super().pii_values()
        for version in self.message_versions:
            yield from _content_texts(version.content)

    @model_validator(mode="after")
    def _has_content_and_subject(self) -> SendBatch:
        shared_tags, shared = tags_of(self.subject), self.params or {}
        for number, version in enumerate(self.message_versions):
            template = version.template_name or self.template_name
            if not (template or version.content or self.content):
                raise ValueError(f"content or template_name: message_versions[{number}] has neither, nor has the batch")
            if not (template or version.subject or self.subject):
                raise ValueError(f"subject: message_versions[{number}] has none, nor has the batch, nor a template")
            params = version.params or {}
            for tag in tags_of(version.subject) if version.subject else shared_tags:
                value = params.get(tag, shared.get(tag))
                if isinstance(value, str) and not re.fullmatch(LINE_PATTERN, value):
                    raise ValueError(
                        f"message_versions[{number}].params: {tag!r} is in the subject and {_NOT_ONE_LINE}"
                    )
        return self


class EncodedBatch(BatchFields):
    """A :class:`SendBatch` whose messages are encoded, which takes a fraction of the time and memory.

    :param encoded: ``messageVersions`` as JSON.
    """

    encoded: bytes = Field(exclude=True, repr=False)

    @classmethod
    def of(cls, batch: SendBatch) -> EncodedBatch:
        fields = {name: getattr(batch, name) for name in BatchFields.model_fields}
        versions = batch.model_dump_json(by_alias=True, exclude_none=True, include={"message_versions"})
        return cls.model_construct(**fields, encoded=versions[len('{"messageVersions":') : -1].encode())

    def payload(self) -> bytes:
        return b'%s,"messageVersions":%s}' % (super().payload()[:-1], self.encoded)

    def pii_values(self) -> Iterator[str]:
        yield from super().pii_values()
        for message in json.loads(self.encoded):
            yield from personal_values(message)
            yield from _content_texts(message.get("content"))


@dataclass(frozen=True, slots=True)
class Chunk:
    """One request of a mailing. Its id depends on the mailing, the index and the content, so that a later try, and a
    service that knows the id, take no other request for it.

    :param recipients: the number of addresses in ``to``, ``cc`` and ``bcc``.
    :param digest: a hash of the content, to verify that a later try sends the same content.
    :param versions: the number of its messages.
    """

    index: int
    request: SendMail | EncodedBatch
    recipients: int
    digest: str
    versions: int = 1

    @classmethod
    def of(cls, index: int, form: SendMail | SendBatch, recipients: int, key: str = "") -> Chunk:
        """Return the chunk of a request.

        :param key: identifies the mailing; the same in every try. Default: the request has an id.
        """
        request = form if isinstance(form, SendMail) else EncodedBatch.of(form)
        digest = hashlib.sha256(request.payload()).hexdigest()[:32]
        if key:
            request = request.model_copy(update={"unique_msg_id": unique_msg_id(f"{key}/{digest}", index)})
        return cls(index, request, recipients, digest, 1 if isinstance(form, SendMail) else len(form.message_versions))

    def messages(self) -> list[dict[str, msgspec.Raw]]:
        """Return its messages with their fields as JSON; of a single message, the recipient alone."""
        if isinstance(self.request, EncodedBatch):
            return msgspec.json.decode(self.request.encoded, type=list[dict[str, msgspec.Raw]])
        return [{"to": msgspec.Raw(msgspec.json.encode([{"email": self.request.to.email}]))}]

    def addresses(self) -> list[list[str]]:
        """Return the addresses in ``to`` of its messages."""
        return [[person["email"] for person in msgspec.json.decode(message["to"])] for message in self.messages()]

    def part(self, first: int, size: int) -> Chunk:
        """Return the request with some of its messages, and an id of its own."""
        own_id = f"{self.request.unique_msg_id}.{first}.{size}"
        return self.with_messages(self.messages()[first : first + size], unique_msg_id=own_id)

    def with_messages(self, messages: Sequence[Mapping[str, Any]], **update: Any) -> Chunk:
        """Return a batch with other messages.

        :param update: other fields of the request.
        """
        encoded = msgspec.json.encode(messages)
        recipients = sum(len(one[part]) for one in msgspec.json.decode(encoded) for part in ("to", "cc", "bcc"))
        request = self.request.model_copy(update={"encoded": encoded, **update})
        return replace(self, request=request, recipients=recipients, versions=len(messages))


Numbered: TypeAlias = list[tuple[int, dict[str, Any]]]
"""Messages, each with its number in the mailing, from 0."""


def cut(
    common: Mapping[str, Any],
    messages: Iterable[Mapping[str, Any]],
    *,
    key: str,
    versions: int = MAX_VERSIONS,
    prepare: Callable[[Numbered], Numbered] = lambda messages: messages,
) -> Iterator[Chunk]:
    """Yield the requests of a mailing, in order.

    :param common: the fields of :class:`SendBatch` that all requests share.
    :param messages: one dictionary per version: ``to`` (an address, ``{"email": ..., "name": ...}``, or a list of
        these), and optionally ``cc``, ``bcc``, ``subject``, ``content``, ``template_name``, ``params``.
    :param key: identifies the mailing; the same in every try.
    :param versions: versions per request, from 1 to 100.
    :param prepare: maps messages to those to send, which may be fewer. Default: all of them, unchanged.
    :raises MailValidationError: naming the message, by its number from 0, and the field.
    """
    numbered = ((number, _version(number, message)) for number, message in enumerate(messages))
    left: Numbered = []
    for index in count():
        while len(left) < versions and (block := list(islice(numbered, versions))):
            left += prepare(block)
        if not left:
            break
        group, left = left[:versions], left[versions:]
        try:
            request = SendBatch(**{**common, "message_versions": [version for _, version in group]})
        except MailValidationError as error:
            raise MailValidationError(
                _by_message(str(error), [number for number, _ in group]), operation=error.operation
            ) from None
        recipients = sum(len(one.to) + len(one.cc) + len(one.bcc) for one in request.message_versions)
        yield Chunk.of(index, request, recipients, key)


def unique_msg_id(key: str, index: int) -> str:
    """Return the id of a request, at most 50 bytes."""
    return f"{hashlib.sha256(key.encode()).hexdigest()[:32]}-{index}"


def _version(number: int, message: Any) -> dict[str, Any]:
    if not isinstance(message, (dict, Mapping)):  # a dictionary is recognized at once
        raise MailValidationError(f"messages[{number}]: a dictionary is needed, not {type(message).__name__}")
    fields = {name: value for name, value in message.items() if value is not None}
    for part in ("to", "cc", "bcc"):
        if (people := fields.get(part)) is None:
            continue
        if isinstance(people, str):
            fields[part] = [{"email": people}]
        elif isinstance(people, Mapping):
            fields[part] = [people]
        elif isinstance(people, Sequence):
            fields[part] = [{"email": person} if isinstance(person, str) else person for person in people]
        else:
            needed = f"an address or a list of them is needed, not {type(people).__name__}"
            raise MailValidationError(f"messages[{number}].{part}: {needed}")
    return fields


def _by_message(message: str, numbers: Sequence[int]) -> str:
    """Return a validation message with the numbers of the whole mailing."""
    return re.sub(r"\bmessage_versions\[(\d+)\]", lambda match: f"messages[{numbers[int(match[1])]}]", message)


def recipients_of(argument: str, value: Any) -> list[dict[str, Any]]:
    """Return the recipients of one message, each once.

    :param argument: the name of the argument, for errors.
    :param value: an address, ``Name <address>``, several separated by commas, a dictionary, or a list of these.
    :raises MailValidationError: there is none, there are more than 20, or the value has another type.
    """
    if not isinstance(value, str | Mapping | list | tuple):
        raise MailValidationError(
            f"{argument}: an address or a list of addresses is needed, not {type(value).__name__}"
        )
    items = list(value) if isinstance(value, list | tuple) else [value]
    people: list[dict[str, Any]] = []
    for number, item in enumerate(items):
        people += _people(f"{argument}[{number}]", item)
    # The first recipient with an address wins: the last one in reverse order.
    by_address = {address_key(str(person.get("email"))): person for person in reversed(people)}
    recipients = list(by_address.values())[::-1]
    if not recipients:
        raise MailValidationError(f"{argument}: is empty; give at least one address")
    if len(recipients) > MAX_RECIPIENTS:
        raise MailValidationError(
            f"{argument}: {len(recipients)} recipients, one message can have {MAX_RECIPIENTS}. MailSendBatchOperator "
            "sends a message to each"
        )
    return recipients


def _people(path: str, value: Any) -> list[dict[str, Any]]:
    if isinstance(value, Mapping):
        return [dict(value)]
    if not isinstance(value, str):
        raise MailValidationError(f"{path}: an address must be text, not {type(value).__name__}")
    undecoded: list[str] = []
    parts = [mailbox(path, part, undecoded) for part in split_mailboxes(value)]
    if undecoded:
        raise MailValidationError(undecoded[0])
    return [{"email": address, "name": name or None} for address, name in parts]


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
