"""A mail: its content with tags filled in, and what has happened to it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from mail_emulator.campaign_life import REACTIONS, SENDING, first_rank
from mail_emulator.clock import iso
from mail_emulator.inbox.mails import CAMPAIGN, REACTION_TIMES, STATUSES, TRANSACTIONAL, Place
from mail_emulator.markup import fill
from mail_emulator.operations import Context
from mail_emulator.recipient_behavior import time_of_reaction
from mail_emulator.responses import decode_json
from mail_emulator.store import Row

_ID = re.compile(r"t(\d{1,18})|c(\d{1,18})\.(-?\d{1,18})", re.ASCII)


class NoSuchMail(ValueError):
    """There is no mail with this id."""


def read(context: Context, mail_id: str) -> dict[str, Any]:
    """Return a mail; see ``InboxControl.mail``."""
    delivery_id, campaign_id, rank = parse(mail_id)
    return _campaign_mail(context, campaign_id, rank) if campaign_id else _transactional_mail(context, delivery_id)


def parse(mail_id: str) -> tuple[int, int, int]:
    """Return the delivery's id, or the campaign's id and the recipient's rank; 0 for what does not apply."""
    match = _ID.fullmatch(mail_id)
    if match is None:
        raise NoSuchMail(f"there is no mail {mail_id!r}")
    return int(match[1] or 0), int(match[2] or 0), int(match[3] or 0)


def summaries(context: Context, places: Iterable[Place]) -> list[dict[str, Any]]:
    """Return the fields of mails that a list of them shows."""
    names = ("id", "kind", "at", "email", "name", "subject", "from_email", "from_name", "mail_name", "status")
    mails = (read(context, place.mail_id) for place in places)
    return [{name: mail[name] for name in names} for mail in mails]


def _transactional_mail(context: Context, delivery_id: int) -> dict[str, Any]:
    row = context.store.row(
        "SELECT deliveries.*, sender, sender_name, reply_to, subject, content, template, category, campaign, "
        "unique_msg_id, attachment_name, attachment_bytes FROM deliveries "
        "JOIN messages ON messages.id = message_id WHERE deliveries.id = ?",
        [delivery_id],
    )
    if row is None:
        raise NoSuchMail(f"there is no mail 't{delivery_id}'")
    recipients = context.store.rows(
        "SELECT role, email, name FROM deliveries WHERE message_id = ? ORDER BY id", [row["message_id"]]
    )
    return _mail(
        context,
        row,
        id=f"t{delivery_id}",
        kind=TRANSACTIONAL,
        params={},
        events=_transactional_events(row, context.now),
        # A recipient does not see others in bcc.
        recipients=[
            recipient for recipient in recipients if recipient["role"] != "bcc" or recipient["email"] == row["email"]
        ],
        mail_name=None,
        list_name=None,
    )


def _campaign_mail(context: Context, campaign_id: int, rank: int) -> dict[str, Any]:
    row = context.store.row(
        "SELECT campaigns.*, rank, email, list_name, contact_id FROM recipients JOIN campaigns ON id = campaign_id "
        "WHERE campaign_id = ? AND rank = ?",
        [campaign_id, rank],
    )
    if row is None:
        raise NoSuchMail(f"there is no mail 'c{campaign_id}.{rank}'")
    request = decode_json(row["request"])
    contact = context.store.row("SELECT name, phone, properties FROM contacts WHERE id = ?", [row["contact_id"]])
    name = contact and contact["name"]
    params = decode_json(contact["properties"]) if contact else {}
    params |= {"email": row["email"], "name": name or "", "phoneNumber": (contact and contact["phone"]) or ""}
    return _mail(
        context,
        {**dict.fromkeys(("template", "category", "campaign", "unique_msg_id", "attachment_name")), **row},
        id=f"c{campaign_id}.{rank}",
        kind=CAMPAIGN,
        params=params,
        events=_campaign_events(context, row),
        recipients=[{"role": "to", "email": row["email"], "name": name}],
        mail_name=row["name"],
        list_name=row["list_name"],
        name=name,
        content=request["content"],
        sender_name=request["senderName"],
        reply_to=request["replyTo"],
    )


def _mail(
    context: Context, row: Row, *, params: dict[str, Any], events: list[tuple[str, int]], **fields: Any
) -> dict[str, Any]:
    row = {**row, **fields}
    status_before_events = "Scheduled" if row["send_at"] > context.now else "Sending"
    return {
        **{name: row[name] for name in (
            "id", "kind", "email", "name", "recipients", "reply_to", "mail_name", "list_name", "template", "category",
            "campaign", "unique_msg_id", "attachment_name", "attachment_bytes",
        )},
        "at": iso(row["send_at"]),
        "from_email": row["sender"],
        "from_name": row["sender_name"],
        "subject": fill(row["subject"] or "", params),
        "content": fill(row["content"] or "", params),
        "status": max((code for code, _ in events), key=STATUSES.index, default=status_before_events),
        "events": [{"code": code, "at": iso(at)} for code, at in sorted(events, key=lambda event: event[1])],
    }  # fmt: skip


def _transactional_events(row: Row, now: int) -> list[tuple[str, int]]:
    if row["send_at"] > now:
        return []
    if row["dropped"] is not None:
        return [("Dropped", row["send_at"])]
    if row["bounce"] is not None:
        return [("Bounced", row["send_at"])]
    reactions = [(code, row[column]) for code, column in REACTION_TIMES.items() if row[column] is not None]
    return [("Delivered", row["send_at"]), *((code, at) for code, at in reactions if at <= now)]


def _campaign_events(context: Context, row: Row) -> list[tuple[str, int]]:
    rank, ended, bounced = row["rank"], row["ended_at"], row["hard"] + row["soft"]
    if row["state"] == SENDING or ended > context.now:
        return []
    if rank < bounced:
        return [("Dropped" if rank < 0 else "Bounced", ended)]
    events = [("Delivered", ended)]
    for code, column in REACTIONS:
        place = rank - first_rank(row, column)
        if 0 <= place < row[column]:
            events.append((code, ended + time_of_reaction(place, row[column], context.settings)))
    by_hand = context.store.rows("SELECT code, at FROM reactions WHERE campaign_id = ? AND rank = ?", [row["id"], rank])
    events += [(reaction["code"], reaction["at"]) for reaction in by_hand]
    return [(code, at) for code, at in events if at <= context.now]
