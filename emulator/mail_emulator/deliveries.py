"""Store transactional messages and the reactions of their recipients."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from mail_emulator.fields import Body
from mail_emulator.markup import tracks_clicks
from mail_emulator.operations import Context
from mail_emulator.recipient_behavior import REOPENED_AFTER, random_values, time_of_share
from mail_emulator.settings import EmulatorSettings


@dataclass(frozen=True)
class Recipient:
    """An address that receives a message."""

    #: "to", "cc" or "bcc".
    role: str
    email: str
    name: str | None


@dataclass(frozen=True)
class Message:
    """The message of one set of recipients, with tags filled in."""

    subject: str
    content: str
    #: Name of the template that the content came from.
    template: str | None
    recipients: list[Recipient]


@dataclass
class Outcome:
    """The outcome for one recipient; times in milliseconds, None for what never happens."""

    dropped: str | None = None
    bounce: str | None = None
    opened_at: int | None = None
    clicked_at: int | None = None
    unsubscribed_at: int | None = None
    spam_at: int | None = None
    #: (EventCode, time) of every visible event.
    events: list[tuple[str, int]] = field(default_factory=list)


def send(context: Context, body: Body, messages: list[Message], send_at: int, attachment_bytes: int | None) -> None:
    """Store the messages of one request and the outcome for each recipient.

    :param send_at: send time in milliseconds.
    :param attachment_bytes: size of the attachment; None without one.
    """
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
            suppressed = store.value("SELECT reason FROM suppressions WHERE key = ?", [recipient.email.lower()])
            random = random_values(context.settings, "delivery", message_id, place, recipient.email)
            outcome = _outcome(random, suppressed, send_at, tracks, context.settings)
            msg_id = _msg_id(context.settings, body["uniqueMsgID"], message_id, place, recipients)
            _insert_delivery(context, message_id, recipient, msg_id, send_at, outcome)


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
) -> Outcome:
    if suppressed is not None:
        return Outcome(dropped=suppressed, events=[("Dropped", send_at)])
    if random[0] < settings.hard_bounce_rate + settings.soft_bounce_rate:
        bounce = "hard" if random[0] < settings.hard_bounce_rate else "soft"
        return Outcome(bounce=bounce, events=[("Bounced", send_at)])
    outcome = Outcome(events=[("Delivered", send_at)])
    if random[1] >= settings.open_rate:
        return outcome
    # Clicks, unsubscriptions and complaints follow an open; untracked reactions have no event.
    reads_at = send_at + time_of_share(random[2], settings)
    tracks_opens, tracks_links = tracks
    if tracks_opens:
        outcome.opened_at = reads_at
        outcome.events.append(("Opened", reads_at))
        if settings.repeated_open_every and random[3] * settings.repeated_open_every < 1:
            outcome.events.append(("Opened", reads_at + REOPENED_AFTER))
    if tracks_links and random[4] * settings.open_rate < settings.click_rate:
        outcome.clicked_at = reads_at + 30_000
        outcome.events.append(("Clicked", outcome.clicked_at))
    if random[5] * settings.open_rate < settings.unsubscribe_rate:
        outcome.unsubscribed_at = reads_at + 60_000
        outcome.events.append(("Unsubscribed", outcome.unsubscribed_at))
    if random[6] * settings.open_rate < settings.spam_rate:
        outcome.spam_at = reads_at + 90_000
        outcome.events.append(("SpamReport", outcome.spam_at))
    return outcome


def _insert_delivery(
    context: Context, message_id: int, recipient: Recipient, msg_id: str, send_at: int, outcome: Outcome
) -> None:
    columns = asdict(outcome)
    events = columns.pop("events")
    delivery_id = context.store.insert(
        "deliveries", message_id=message_id, msg_id=msg_id, send_at=send_at, **asdict(recipient), **columns
    )
    context.store.run_many(
        "INSERT INTO events (code, at, delivery_id) VALUES (?, ?, ?)", [(code, at, delivery_id) for code, at in events]
    )
