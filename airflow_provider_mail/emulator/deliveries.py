"""Transactional messages on their way: what is noted of each, and what its recipients will do."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_provider_mail.emulator.fields import Body
from airflow_provider_mail.emulator.markup import tracks_clicks
from airflow_provider_mail.emulator.operations import Context
from airflow_provider_mail.emulator.recipient_behaviour import REOPENED_AFTER, chances, moment_of
from airflow_provider_mail.emulator.settings import EmulatorSettings


@dataclass(frozen=True)
class Recipient:
    """One address that a message goes to."""

    #: "to", "cc" or "bcc".
    role: str
    email: str
    name: str | None


@dataclass(frozen=True)
class Message:
    """What one set of recipients gets, tags filled in."""

    subject: str
    content: str
    #: Name of the template that the content came from.
    template: str | None
    recipients: list[Recipient]


@dataclass
class Fate:
    """What becomes of mail to one recipient; times are milliseconds, None for what never happens."""

    dropped: str | None = None
    bounce: str | None = None
    opened: int | None = None
    clicked: int | None = None
    unsubscribed: int | None = None
    spam: int | None = None
    #: (EventCode, time) of everything that is seen of it.
    events: list[tuple[str, int]] = field(default_factory=list)


def send(context: Context, body: Body, messages: list[Message], send_at: int, attachment_bytes: int | None) -> None:
    """Note the messages of one request and the fate of each recipient."""
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
            attachment_bytes=attachment_bytes,
            created=context.now,
            send_at=send_at,
        )
        tracks = (_is_one(body["trackOpen"]), _is_one(body["trackClick"]) and tracks_clicks(message.content))
        for recipient in message.recipients:
            place += 1
            suppressed = store.value("SELECT reason FROM suppressions WHERE key = ?", recipient.email.lower())
            luck = chances(context.settings, "delivery", message_id, place, recipient.email)
            fate = _fate(luck, suppressed, send_at, tracks, context.settings)
            msg_id = _msg_id(context.settings, body["uniqueMsgID"], message_id, place, recipients)
            _note(context, message_id, recipient, msg_id, send_at, fate)


def _is_one(value: object) -> bool:
    """Tracking is on for the integer 1 and for nothing else."""
    return type(value) is int and value == 1


def _msg_id(settings: EmulatorSettings, given: str | None, message_id: int, place: int, recipients: int) -> str:
    """The UniqueMsgID of one recipient's events."""
    if given and (recipients == 1 or settings.event_msg_id == "given"):
        return given
    return f"{given or f'message-{message_id}'}-{place:04d}"


def _fate(
    luck: list[float], suppressed: str | None, send_at: int, tracks: tuple[bool, bool], settings: EmulatorSettings
) -> Fate:
    if suppressed is not None:
        return Fate(dropped=suppressed, events=[("Dropped", send_at)])
    if luck[0] < settings.hard_bounce_rate + settings.soft_bounce_rate:
        kind = "hard" if luck[0] < settings.hard_bounce_rate else "soft"
        return Fate(bounce=kind, events=[("Bounced", send_at)])
    fate = Fate(events=[("Delivered", send_at)])
    if luck[1] >= settings.open_rate:
        return fate
    # Who clicks, unsubscribes or complains has opened before; what is not tracked happens unseen.
    reads_at = send_at + moment_of(luck[2], settings)
    tracks_opens, tracks_links = tracks
    if tracks_opens:
        fate.opened = reads_at
        fate.events.append(("Opened", reads_at))
        if settings.repeated_open_every and luck[3] * settings.repeated_open_every < 1:
            fate.events.append(("Opened", reads_at + REOPENED_AFTER))
    if tracks_links and luck[4] * settings.open_rate < settings.click_rate:
        fate.clicked = reads_at + 30_000
        fate.events.append(("Clicked", fate.clicked))
    if luck[5] * settings.open_rate < settings.unsubscribe_rate:
        fate.unsubscribed = reads_at + 60_000
        fate.events.append(("Unsubscribed", fate.unsubscribed))
    if luck[6] * settings.open_rate < settings.spam_rate:
        fate.spam = reads_at + 90_000
        fate.events.append(("SpamReport", fate.spam))
    return fate


def _note(context: Context, message_id: int, recipient: Recipient, msg_id: str, send_at: int, fate: Fate) -> None:
    delivery_id = context.store.insert(
        "deliveries",
        message_id=message_id,
        role=recipient.role,
        email=recipient.email,
        name=recipient.name,
        msg_id=msg_id,
        send_at=send_at,
        dropped=fate.dropped,
        bounce=fate.bounce,
        opened_at=fate.opened,
        clicked_at=fate.clicked,
        unsubscribed_at=fate.unsubscribed,
        spam_at=fate.spam,
    )
    context.store.run_many(
        "INSERT INTO events (code, at, delivery_id) VALUES (?, ?, ?)",
        [(code, at, delivery_id) for code, at in fate.events],
    )
