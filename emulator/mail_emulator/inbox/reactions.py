"""Let recipients react now, whatever the settings say."""

from __future__ import annotations

from mail_emulator import codec
from mail_emulator.campaign_life import DONE, REACTIONS, apply_reaction
from mail_emulator.inbox import mail
from mail_emulator.inbox.mails import REACTION_TIMES
from mail_emulator.operations import Context
from mail_emulator.store import Row


def react(context: Context, mail_id: str, code: str) -> None:
    """Let the recipient of a mail react; see ``InboxControl.react``.

    :param code: EventCode of the reaction.
    :raises ValueError: there is no such mail or reaction, or the mail was not delivered.
    """
    if code not in REACTION_TIMES:
        raise ValueError(f"a recipient cannot react with {code!r}; reactions are: {', '.join(REACTION_TIMES)}")
    fields = mail.read(context, mail_id)
    earlier_codes = {event["code"] for event in fields["events"]}
    if "Delivered" not in earlier_codes:
        raise ValueError(f"mail {mail_id} was not delivered: {fields['status']}")
    # A click implies an open.
    codes = ("Opened", code) if code != "Opened" and "Opened" not in earlier_codes else (code,)
    delivery_id, campaign_id, rank = mail.parse(mail_id)
    for event_code in codes:
        if campaign_id:
            _campaign_reaction(context, campaign_id, rank, event_code, again=event_code in earlier_codes)
        else:
            _transactional_reaction(context, delivery_id, event_code, again=event_code in earlier_codes)


def react_to_campaign(context: Context, mail_name: str, code: str, people: int) -> int:
    """Let recipients of a campaign react; see ``InboxControl.react_to_campaign``.

    :param code: EventCode of the reaction.
    :raises ValueError: there is no such campaign or reaction, or the campaign is not sent.
    """
    row = context.store.row("SELECT * FROM campaigns WHERE name = ? ORDER BY id DESC", [mail_name])
    if row is None or row["state"] != DONE:
        raise ValueError(f"there is no sent campaign {mail_name!r}")
    # Recipients who otherwise never react.
    ranks = context.store.rows(
        "SELECT rank FROM recipients WHERE campaign_id = :campaign AND rank >= :first AND NOT EXISTS "
        "(SELECT 1 FROM reactions WHERE campaign_id = :campaign AND reactions.rank = recipients.rank AND code = :code) "
        "ORDER BY rank LIMIT :people",
        {"campaign": row["id"], "first": row["hard"] + row["soft"] + row["opens"], "code": code, "people": people},
    )
    for row_of_recipient in ranks:
        react(context, f"c{row['id']}.{row_of_recipient['rank']}", code)
    return len(ranks)


def _transactional_reaction(context: Context, delivery_id: int, code: str, *, again: bool) -> None:
    store, now = context.store, context.now
    if again:
        store.insert("events", code=code, at=now, delivery_id=delivery_id)
        return
    # The recipient reacts now instead of later.
    store.run("DELETE FROM events WHERE delivery_id = ? AND code = ? AND at > ?", [delivery_id, code, now])
    store.insert("events", code=code, at=now, delivery_id=delivery_id)
    store.update("deliveries", delivery_id, **{REACTION_TIMES[code]: now})
    if code in ("Unsubscribed", "SpamReport"):
        store.run(
            "INSERT OR IGNORE INTO suppressions SELECT lower(email), ?, ? FROM deliveries WHERE id = ?",
            [code, now, delivery_id],
        )


def _campaign_reaction(context: Context, campaign_id: int, rank: int, code: str, *, again: bool) -> None:
    store, now = context.store, context.now
    store.insert("events", code=code, at=now, campaign_id=campaign_id, detail=str(rank))
    store.insert("reactions", campaign_id=campaign_id, rank=rank, code=code, at=now)
    if again:
        return
    column = dict(REACTIONS)[code]
    row: Row | None = store.row("SELECT by_hand FROM campaigns WHERE id = ?", [campaign_id])
    assert row is not None
    counts = codec.decode(row["by_hand"] or "{}")
    counts[column] = counts.get(column, 0) + 1
    store.update("campaigns", campaign_id, by_hand=codec.encode(counts).decode())
    apply_reaction(context, code, campaign_id, rank, rank + 1)
