"""Transactional email: sends_customised in both forms, the reactions of recipients, and statistics by day."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from mail_emulator import check, senders, templates
from mail_emulator.campaign_life import REOPENED_AFTER, apply_reactions, random_values, time_of_share
from mail_emulator.campaigns import period
from mail_emulator.check import Body, Field
from mail_emulator.clock import DAY_MS, from_ms, parse_iso
from mail_emulator.markup import fill, tracks_clicks
from mail_emulator.operations import ATTACHMENT, SANDBOX, WINDOW, Context, Operation, attachment_bytes, texts
from mail_emulator.responses import ServiceError, decode_json
from mail_emulator.settings import EmulatorSettings
from mail_emulator.store import Row

#: The column of ``deliveries`` with the time of a reaction.
REACTION_TIMES = {
    "Opened": "opened_at",
    "Clicked": "clicked_at",
    "Unsubscribed": "unsubscribed_at",
    "SpamReport": "spam_at",
}


@dataclass(frozen=True)
class Message:
    """The message of one set of recipients, with tags filled in."""

    subject: str
    content: str
    #: Name of the template that the content came from.
    template: str | None
    #: Columns of ``deliveries``: role ("to", "cc" or "bcc"), email and name.
    recipients: list[Row]


def send(context: Context, body: Body, messages: list[Message], send_at: int, size: int | None) -> None:
    """Store the messages of one request and the outcome for each recipient."""
    store = context.store
    batch = (store.value("SELECT max(batch) FROM messages") or 0) + 1
    recipients = sum(len(message.recipients) for message in messages)
    place = 0
    for number, message in enumerate(messages):
        message_id = store.insert(
            "messages",
            batch=batch,
            version=number,
            unique_msg_id=body["uniqueMsgID"],
            form="batch" if "messageVersions" in body else "single",
            sender=body["senderMail"],
            sender_name=body["senderName"],
            reply_to=body["replyTo"],
            subject=message.subject,
            content=message.content,
            template=message.template,
            category=body["category"],
            campaign=body["campaign"],
            attachment_name=body["attachment"]["fileName"] if body["attachment"] else None,
            attachment_bytes=size,
            created=context.now,
            send_at=send_at,
        )
        tracks = (_is_one(body["trackOpen"]), _is_one(body["trackClick"]) and tracks_clicks(message.content))
        for recipient in message.recipients:
            place += 1
            suppressed = store.value("SELECT reason FROM suppressions WHERE key = ?", [recipient["email"].lower()])
            random = random_values(context.settings, "delivery", message_id, place, recipient["email"])
            outcome, events = _outcome(random, suppressed, send_at, tracks, context.settings)
            msg_id = _msg_id(context.settings, body["uniqueMsgID"], message_id, place, recipients)
            delivery_id = store.insert(
                "deliveries", message_id=message_id, msg_id=msg_id, send_at=send_at, **recipient, **outcome
            )
            store.run_many(
                "INSERT INTO events (code, at, delivery_id) VALUES (?, ?, ?)",
                [(code, at, delivery_id) for code, at in events],
            )


def _is_one(value: object) -> bool:
    """Whether tracking is on: only for the integer 1."""
    return type(value) is int and value == 1


def _msg_id(settings: EmulatorSettings, unique_msg_id: str | None, message_id: int, place: int, recipients: int) -> str:
    """Return the UniqueMsgID of a recipient's events."""
    if unique_msg_id and (recipients == 1 or settings.event_msg_id == "given"):
        return unique_msg_id
    return f"{unique_msg_id or f'message-{message_id}'}-{place:04d}"


def _outcome(
    random: list[float], suppressed: str | None, send_at: int, tracks: tuple[bool, bool], settings: EmulatorSettings
) -> tuple[dict[str, Any], list[tuple[str, int]]]:
    """Return the outcome for one recipient: columns of ``deliveries``, and (EventCode, time) of every visible event."""
    if suppressed is not None:
        return {"dropped": suppressed}, [("Dropped", send_at)]
    if random[0] < settings.hard_bounce_rate + settings.soft_bounce_rate:
        bounce = "hard" if random[0] < settings.hard_bounce_rate else "soft"
        return {"bounce": bounce}, [("Bounced", send_at)]
    delivered = ("Delivered", send_at)
    if random[1] >= settings.open_rate:
        return {}, [delivered]
    # Clicks, unsubscriptions and complaints follow an open; untracked reactions have no event.
    reads_at = send_at + time_of_share(random[2], settings)
    tracks_opens, tracks_links = tracks
    reactions: dict[str, int] = {}
    if tracks_opens:
        reactions["Opened"] = reads_at
    if tracks_links and random[4] * settings.open_rate < settings.click_rate:
        reactions["Clicked"] = reads_at + 30_000
    if random[5] * settings.open_rate < settings.unsubscribe_rate:
        reactions["Unsubscribed"] = reads_at + 60_000
    if random[6] * settings.open_rate < settings.spam_rate:
        reactions["SpamReport"] = reads_at + 90_000
    events = [delivered, *reactions.items()]
    if tracks_opens and settings.repeated_open_every and random[3] * settings.repeated_open_every < 1:
        events.append(("Opened", reads_at + REOPENED_AFTER))
    return {REACTION_TIMES[code]: at for code, at in reactions.items()}, events


def _sends_customised(context: Context, body: Body) -> None:
    """Check conditions across fields, then send."""
    apply_reactions(context)
    obstacle = senders.state(context, body["senderMail"], senders.TRANSACTIONAL)
    if obstacle == "unknown" or (obstacle and context.settings.transactional_needs_verified):
        raise ServiceError(403, f"senderMail {body['senderMail']} is not a sender of the account")
    try:
        size = attachment_bytes(body["attachment"])
    except ValueError:
        raise ServiceError(400, "invalid parameter: attachment.fileData is not Base64") from None
    messages = _batch(context, body) if "messageVersions" in body else [_single(context, body)]
    _check_msg_id(context, body["uniqueMsgID"])
    _check_credits(context, sum(len(message.recipients) for message in messages))
    send_at = max(parse_iso(body["sendDate"] or "") or 0, context.now)
    send(context, body, messages, send_at, size)


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
        {"role": role, "email": person["email"], "name": person.get("name")}
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
        return (*SINGLE, Field("templateName", check.text)) if settings.single_form_template else SINGLE
    email = check.email if settings.batch_email_check else check.text
    people = check.list_of(
        check.record(Field("email", email, required=True), Field("name", check.up_to_bytes(100))), limit=20
    )
    version = check.record(
        Field("to", people, required=True),
        *(Field(copy, people, required=settings.cc_bcc_required) for copy in ("cc", "bcc")),
        *_OVERRIDES,
    )
    return (*BATCH, Field("messageVersions", check.list_of(version, limit=100), required=True))


_OVERRIDES = (*texts("subject", "content", "templateName"), Field("params", check.json_object))
_SHARED = (
    Field("senderMail", check.text, required=True),
    Field("replyTo", check.email),
    Field("sendDate", check.moment),
    Field("category", check.up_to_bytes(100, labels=True)),
    Field("campaign", check.up_to_bytes(100, labels=True)),
    Field("trackOpen", check.anything),
    Field("trackClick", check.anything),
    Field("uniqueMsgID", check.up_to_bytes(50)),
    ATTACHMENT,
    SANDBOX,
)
SINGLE = (
    *texts("subject", required=True),
    *texts("content", "senderName"),
    Field(
        "to",
        check.record(Field("email", check.email, required=True), Field("name", check.up_to_bytes(100))),
        required=True,
    ),
    *_SHARED,
)
BATCH = (*_OVERRIDES, Field("senderName", check.up_to_bytes(200)), *_SHARED)


#: Per counter: the condition on deliveries, and the column with the time.
COUNTERS = (
    ("sentCount", "dropped IS NULL", "send_at"),
    ("openCount", "true", "opened_at"),
    ("clickCount", "true", "clicked_at"),
    ("bounceCount", "bounce = 'soft'", "send_at"),
    ("unsentCount", "dropped IS NOT NULL", "send_at"),
    ("unsubscribeCount", "true", "unsubscribed_at"),
)


def _stats_get(context: Context, body: Body) -> dict[str, Any]:
    begin, end = period(context, body)
    offset = int(context.settings.stats_utc_offset_hours * 3_600_000)
    days: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys((name for name, *_ in COUNTERS), 0))
    for name, condition, happened in COUNTERS:
        counted_on = happened if context.settings.stats_day == "event" else "send_at"
        for row in context.store.rows(
            f"SELECT ({counted_on} + ?) / {DAY_MS} AS day, count(*) AS number FROM deliveries "
            f"WHERE {condition} AND {happened} <= ? AND {counted_on} >= ? AND {counted_on} < ? GROUP BY 1",
            [offset, context.now, begin, end],
        ):
            days[row["day"]][name] = row["number"]
    for row in context.store.rows("SELECT * FROM fixed_days"):
        day = int(row["day"])
        if begin <= day * DAY_MS - offset < end:
            days[day].update(decode_json(row["stats"]))
    if context.settings.stats_empty_days:
        for day in range((max(begin, 0) + offset) // DAY_MS, (min(end - 1, context.now) + offset) // DAY_MS + 1):
            days[day]
    return {"mailStatsList": [{"statsDate": f"{from_ms(day * DAY_MS):%Y-%m-%d}", **days[day]} for day in sorted(days)]}


OPERATIONS = (
    Operation("/v5/transactional/mail/sends_customised", _form, _sends_customised),
    Operation("/v5/transactional/mail/stats/get", WINDOW, _stats_get),
)
