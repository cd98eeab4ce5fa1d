"""Transactional email: sends_customised in both forms."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from mail_emulator import senders, templates
from mail_emulator.campaign_life import apply_reactions
from mail_emulator.clock import parse_iso
from mail_emulator.deliveries import Message, Recipient, send
from mail_emulator.fields import (
    ATTACHMENT,
    SANDBOX,
    Body,
    Field,
    is_anything,
    is_email,
    is_moment,
    is_object,
    is_text,
    list_of,
    record,
    texts,
    up_to_bytes,
)
from mail_emulator.markup import fill
from mail_emulator.operations import Context, Operation
from mail_emulator.responses import ServiceError
from mail_emulator.settings import EmulatorSettings


def _sends_customised(context: Context, body: Body) -> None:
    """Check conditions across fields, then send."""
    apply_reactions(context)
    obstacle = senders.state(context, body["senderMail"], senders.TRANSACTIONAL)
    if obstacle == "unknown" or (obstacle and context.settings.transactional_needs_verified):
        raise ServiceError(403, f"senderMail {body['senderMail']} is not a sender of the account")
    attachment_bytes = _attachment_size(body["attachment"])
    messages = _batch(context, body) if "messageVersions" in body else [_single(context, body)]
    _check_msg_id(context, body["uniqueMsgID"])
    _check_credits(context, sum(len(message.recipients) for message in messages))
    send_at = max(parse_iso(body["sendDate"] or "") or 0, context.now)
    send(context, body, messages, send_at, attachment_bytes)


def _attachment_size(attachment: Mapping[str, str] | None) -> int | None:
    if attachment is None:
        return None
    try:
        return len(base64.b64decode(attachment["fileData"], validate=True))
    except binascii.Error:
        raise ServiceError(400, "invalid parameter: attachment.fileData is not Base64") from None


def _single(context: Context, body: Body) -> Message:
    return _message(context, {}, body, {"to": [body["to"]]}, missing_template=403)


def _batch(context: Context, body: Body) -> list[Message]:
    if not body["messageVersions"]:
        raise ServiceError(400, "no recipient: messageVersions is empty")
    if body["templateName"] and templates.find(context, body["templateName"]) is None:
        raise ServiceError(403, f"templateName {body['templateName']} does not exist")
    for number, version in enumerate(body["messageVersions"]):
        if not version["to"]:
            raise ServiceError(400, f"no recipient: messageVersions[{number}].to is empty")
    return [_message(context, version, body, version, missing_template=400) for version in body["messageVersions"]]


def _message(context: Context, own: Body, shared: Body, people: Body, *, missing_template: int) -> Message:
    """Merge a version: its own values override the shared ones, and a template overrides content."""
    source = own if own.get("templateName") or own.get("content") else shared
    content, template_subject = source.get("content"), None
    if name := source.get("templateName"):
        template = templates.find(context, name)
        if template is None:
            raise ServiceError(missing_template, f"templateName {name} does not exist")
        content, template_subject = template["content"], template["subject"]
    if not content:
        raise ServiceError(400, "missing parameter: content or templateName")
    subject = own.get("subject") or shared.get("subject") or template_subject
    if not subject:
        raise ServiceError(400, "missing parameter: subject")
    params = {**(shared.get("params") or {}), **(own.get("params") or {})}
    recipients = [
        Recipient(role, person["email"], person.get("name"))
        for role in ("to", "cc", "bcc")
        for person in people.get(role) or ()
    ]
    return Message(fill(subject, params), fill(content, params), name or None, recipients)


def _check_msg_id(context: Context, unique_msg_id: str | None) -> None:
    code = context.settings.duplicate_unique_msg_id_code
    query = "SELECT 1 FROM messages WHERE unique_msg_id = ?"
    if code is not None and unique_msg_id and context.store.row(query, [unique_msg_id]):
        raise ServiceError(code, f"uniqueMsgID {unique_msg_id} was used before")


def _check_credits(context: Context, needed: int) -> None:
    if context.settings.email_credits is None:
        return
    remaining = max(0, context.settings.email_credits - context.store.value("SELECT count(*) FROM deliveries"))
    if needed > remaining:
        raise ServiceError(403, f"insufficient email credits: {needed} needed, {remaining} left")


def _form(body: Body, settings: EmulatorSettings) -> tuple[Field, ...]:
    """Return the fields of the form of a body; the batch form has ``messageVersions``."""
    if "messageVersions" not in body:
        return (*SINGLE, Field("templateName", is_text)) if settings.single_form_template else SINGLE
    email = is_email if settings.batch_email_check else is_text
    people = list_of(record(Field("email", email, required=True), Field("name", up_to_bytes(100))), limit=20)
    version = record(
        Field("to", people, required=True),
        *(Field(copy, people, required=settings.cc_bcc_required) for copy in ("cc", "bcc")),
        *_OVERRIDES,
    )
    return (*BATCH, Field("messageVersions", list_of(version, limit=100), required=True))


_OVERRIDES = (
    *texts("subject", "content", "templateName"),
    Field("params", is_object),
)
_SHARED = (
    Field("senderMail", is_text, required=True),
    Field("replyTo", is_email),
    Field("sendDate", is_moment),
    Field("category", up_to_bytes(100, labels=True)),
    Field("campaign", up_to_bytes(100, labels=True)),
    Field("trackOpen", is_anything),
    Field("trackClick", is_anything),
    Field("uniqueMsgID", up_to_bytes(50)),
    ATTACHMENT,
    SANDBOX,
)
SINGLE = (
    *texts("subject", required=True),
    *texts("content", "senderName"),
    Field("to", record(Field("email", is_email, required=True), Field("name", up_to_bytes(100))), required=True),
    *_SHARED,
)
BATCH = (*_OVERRIDES, Field("senderName", up_to_bytes(200)), *_SHARED)

OPERATIONS = (Operation("/v5/transactional/mail/sends_customised", _form, _sends_customised, sandbox=True),)
