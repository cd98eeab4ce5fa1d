"""The life of a campaign: its states, from scheduled to done or failed, and the reactions of its recipients.

Reactions are determined by the seed and spread over virtual days. The share of openers that has opened grows as
``1 - 2 ** (-t / half)``, scaled to 1 at the end of ``engagement_days``. Counts and the times of single events come from
this curve, so they agree. Times are milliseconds of the virtual clock, or since the mail was sent.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass

from mail_emulator import lists
from mail_emulator.markup import tracks_clicks
from mail_emulator.operations import Context
from mail_emulator.responses import decode_json, encode_json
from mail_emulator.settings import EmulatorSettings
from mail_emulator.store import Row

DRAFT, SCHEDULED, SENDING, DONE, FAILED = "draft", "scheduled", "sending", "done", "failed"
CANCELLED = "cancelled"
_HOUR = 3_600_000
#: Milliseconds between a repeated open and the first.
REOPENED_AFTER = _HOUR


def mail_status(state: str, settings: EmulatorSettings) -> int:
    """Return the specification's mailStatus of a state."""
    scheduled = settings.scheduled_status
    return {DRAFT: -1, SCHEDULED: scheduled, CANCELLED: scheduled, SENDING: 1, DONE: 2, FAILED: 4}[state]


def apply_due_changes(context: Context) -> None:
    """Move every task to its state at the current time."""
    store = context.store
    for row in store.rows(
        "SELECT * FROM campaigns WHERE state = ? AND send_at <= ? AND deleted_at IS NULL", [SCHEDULED, context.now]
    ):
        _start(context, row)
    for row in store.rows("SELECT * FROM campaigns WHERE state = ?", [SENDING]):
        if row["plan_looks"] is not None:
            if row["looks"] >= row["plan_looks"]:
                _finish(context, row, context.now)
        elif (ended := row["started_at"] + int(row["plan_seconds"] * 1000)) <= context.now:
            _finish(context, row, ended)


def _start(context: Context, row: Row) -> None:
    settings = context.settings
    plan = context.store.row("SELECT * FROM campaign_plans WHERE name = ?", [row["name"]]) or {}
    seconds, looks = plan.get("seconds"), plan.get("looks")
    context.store.update(
        "campaigns",
        row["id"],
        state=SENDING,
        started_at=row["send_at"],
        plan_seconds=settings.sending_seconds if seconds is None else seconds,
        plan_looks=settings.sending_looks if looks is None and seconds is None else looks,
        plan_outcome=plan.get("outcome") or settings.campaign_outcome,
    )
    apply_reactions(context)
    _choose_recipients(context, row)


def _choose_recipients(context: Context, row: Row) -> None:
    """Store the recipients in random order, with ranks from 0, and suppressed ones, with ranks below 0.

    Contacts that are excluded or have no address are left out, and each contact is stored once.
    """
    store, request = context.store, decode_json(row["request"])
    targets = _list_ids(context, row["team"], request["sendListNames"])
    excluded = _list_ids(context, row["team"], request["repelListNames"])
    store.run(
        """
        INSERT INTO recipients (campaign_id, rank, contact_id, email, list_name)
        SELECT ?, row_number() OVER (
                   PARTITION BY suppressed ORDER BY (contact_id * 2654435761 + ?) % 4294967291, contact_id
               ) * iif(suppressed, -1, 1) - iif(suppressed, 0, 1),
               contact_id, email, (SELECT name FROM lists WHERE id = list_id)
        FROM (
            SELECT contact_id, min(list_id) AS list_id, email,
                   EXISTS (SELECT 1 FROM suppressions WHERE key = contacts.key) AS suppressed
            FROM members JOIN contacts ON contacts.id = contact_id
            WHERE list_id IN (SELECT value FROM json_each(?)) AND email IS NOT NULL
              AND NOT EXISTS (SELECT 1 FROM members AS repelled WHERE repelled.contact_id = contacts.id
                              AND repelled.list_id IN (SELECT value FROM json_each(?)))
            GROUP BY contact_id)
        """,
        [
            row["id"],
            context.settings.seed * 7919 + row["id"],
            encode_json(targets).decode(),
            encode_json(excluded).decode(),
        ],
    )
    sent = store.value("SELECT count(*) FROM recipients WHERE campaign_id = ? AND rank >= 0", [row["id"]])
    dropped = store.value("SELECT count(*) FROM recipients WHERE campaign_id = ? AND rank < 0", [row["id"]])
    members = sum(store.members.total(list_id) for list_id in targets)
    clickable = tracks_clicks(request["content"] or "")
    expected = expected_reactions(sent, context.settings, row["name"], clickable=clickable)
    store.update("campaigns", row["id"], **asdict(expected), unsent=members - sent, dropped=dropped)


def _list_ids(context: Context, team: str, names: list[str] | None) -> list[int]:
    rows = (lists.find(context, name, team) for name in dict.fromkeys(names or ()))
    return [row["id"] for row in rows if row is not None]


def _finish(context: Context, row: Row, ended: int) -> None:
    """End the sending of a task with its planned outcome; a failed task has reached no recipient."""
    outcome = FAILED if row["plan_outcome"] == "failed" else DONE
    context.store.update("campaigns", row["id"], state=outcome, ended_at=ended)
    if outcome == FAILED:
        context.store.run("DELETE FROM recipients WHERE campaign_id = ?", [row["id"]])
    else:
        queue_task_status(context, row["id"], ended, "Completed")


def queue_task_status(context: Context, campaign_id: int, at: int, status: str) -> None:
    context.store.insert("events", code="TaskStatus", at=at, campaign_id=campaign_id, detail=status)


COUNTERS = (
    "sentCount", "deliveredCount", "openCount", "clickCount", "hardBounce", "softBounce", "unsentCount",
    "unsubscribeCount",
)  # fmt: skip


def counts(row: Row, now: int, settings: EmulatorSettings) -> dict[str, int]:
    """Return the counters of a finished task at a time, under the specification's names."""
    if row["fixed_stats"]:
        fixed: dict[str, int] = decode_json(row["fixed_stats"])
        return fixed
    elapsed = now - (row["ended_at"] or now)
    delivered: int = row["sent"] - row["hard"] - row["soft"]
    by_hand: dict[str, int] = decode_json(row["by_hand"]) if row["by_hand"] else {}

    def reacted(column: str) -> int:
        return min(delivered, count_at(row[column], elapsed, settings) + by_hand.get(column, 0))

    opens, clicks, unsubscribes = reacted("opens"), reacted("clicks"), reacted("unsubscribes")
    values = (row["sent"], delivered, opens, clicks, row["hard"], row["soft"], row["unsent"], unsubscribes)
    return dict(zip(COUNTERS, values, strict=True))


#: Reactions over days: the event and the column with its final count.
REACTIONS = (("Opened", "opens"), ("Clicked", "clicks"), ("Unsubscribed", "unsubscribes"), ("SpamReport", "spam"))


def outcome_ranks(row: Row) -> dict[str, tuple[int, int]]:
    """Return the ranks (from, to) of the recipients with each outcome of sending, by EventCode."""
    bounced: int = row["hard"] + row["soft"]
    return {"Dropped": (-row["dropped"], 0), "Bounced": (0, bounced), "Delivered": (bounced, row["sent"])}


def first_rank(row: Row, column: str) -> int:
    """Return the rank of the first recipient with this reaction."""
    bounced: int = row["hard"] + row["soft"]
    return bounced + (row["opens"] - row["spam"] if column == "spam" else 0)


def reacting(row: Row, column: str, start: int, end: int, settings: EmulatorSettings) -> tuple[int, int]:
    """Return the positions (from, to) of the recipients with this reaction after ``start`` and until ``end``."""
    return (
        count_at(row[column], start - row["ended_at"], settings),
        count_at(row[column], end - row["ended_at"], settings),
    )


def apply_reactions(context: Context) -> None:
    """Update suppressions and contact properties from reactions, at most once a virtual minute."""
    store, now = context.store, context.now
    last = int(store.get_meta("reactions") or 0)
    if last <= now < last + 60_000:
        return
    store.set_meta("reactions", str(now))
    if now < last:
        return
    begin = last - end_ms(context.settings)
    for row in store.rows("SELECT * FROM campaigns WHERE state = ? AND ended_at > ?", [DONE, begin]):
        _apply_campaign_reactions(context, row, last)
    for event, moment in (("Unsubscribed", "unsubscribed_at"), ("SpamReport", "spam_at")):
        store.run(f"{_SUPPRESS} FROM deliveries WHERE {moment} > ? AND {moment} <= ?", [event, now, last, now])
    bounced = "FROM deliveries WHERE bounce = 'hard' AND send_at > ? AND send_at <= ?"
    store.run(f"{_SUPPRESS} {bounced}", ["hard bounce", now, last, now])


_SUPPRESS = "INSERT OR IGNORE INTO suppressions SELECT lower(email), ?, ?"
_RANKS = "FROM recipients WHERE campaign_id = ? AND rank >= ? AND rank < ?"


def _apply_campaign_reactions(context: Context, row: Row, last: int) -> None:
    store, now, ended = context.store, context.now, row["ended_at"]
    if last < ended <= now:
        bounced = [row["id"], 0, row["hard"]]
        store.run(f"{_SUPPRESS} {_RANKS}", ["hard bounce", ended, *bounced])
        store.run(
            "UPDATE contacts SET properties = json_set(properties, '$.email_bounced_flag', '1', "
            f"'$.email_bounced_time', ?) WHERE id IN (SELECT contact_id {_RANKS})",
            [str(ended), *bounced],
        )
    for event, column in REACTIONS:
        begin, end = (first_rank(row, column) + at for at in reacting(row, column, last, now, context.settings))
        if begin < end:
            apply_reaction(context, event, row["id"], begin, end)


def apply_reaction(context: Context, event: str, campaign_id: int, begin: int, end: int) -> None:
    """Update the suppressions and contacts of recipients with a reaction."""
    recipients = [campaign_id, begin, end]
    if event in ("Unsubscribed", "SpamReport"):
        context.store.run(f"{_SUPPRESS} {_RANKS}", [event, context.now, *recipients])
    elif event == "Opened":
        context.store.run(
            "UPDATE contacts SET properties = json_set(properties, '$.email_open_count', CAST(1 + CAST("
            "coalesce(json_extract(properties, '$.email_open_count'), 0) AS INTEGER) AS TEXT)) "
            f"WHERE id IN (SELECT contact_id {_RANKS})",
            recipients,
        )


def random_values(settings: EmulatorSettings, *about: object) -> list[float]:
    """Return eight numbers in [0, 1), determined by the seed and the arguments."""
    text = repr((settings.seed, *about)).encode()
    digest = hashlib.blake2b(text, digest_size=64).digest()
    return [int.from_bytes(digest[at : at + 8], "big") / 2**64 for at in range(0, 64, 8)]


def end_ms(settings: EmulatorSettings) -> int:
    """Milliseconds after which no recipient reacts."""
    return int(settings.engagement_days * 24 * _HOUR)


def share_at(elapsed_ms: int, settings: EmulatorSettings) -> float:
    """Return the share of all reactions that has happened after these milliseconds."""
    horizon, half = end_ms(settings), settings.engagement_half_hours * _HOUR
    if elapsed_ms <= 0:
        return 0.0
    if elapsed_ms >= horizon:
        return 1.0
    return (1 - 2 ** (-elapsed_ms / half)) / (1 - 2 ** (-horizon / half))


def time_of_share(share: float, settings: EmulatorSettings) -> int:
    """Milliseconds until this share of reactions has happened: the inverse of ``share_at``."""
    horizon, half = end_ms(settings), settings.engagement_half_hours * _HOUR
    return min(horizon, math.ceil(-half * math.log2(1 - share * (1 - 2 ** (-horizon / half)))))


@dataclass(frozen=True)
class ExpectedReactions:
    """Final numbers of a campaign: bounces, opens, clicks, unsubscriptions and complaints.

    Recipients are ranked: hard bounces, then soft bounces, then openers. The first openers click and unsubscribe, the
    last ones complain.
    """

    sent: int
    hard: int
    soft: int
    opens: int
    clicks: int
    unsubscribes: int
    spam: int


def expected_reactions(
    sent: int, settings: EmulatorSettings, *about: object, clickable: bool = True
) -> ExpectedReactions:
    """Return the final numbers of a campaign: the rates of the settings, varied by up to 15 %."""
    swing = [0.85 + 0.3 * chance for chance in random_values(settings, "prospect", *about)]
    hard = _count(sent, settings.hard_bounce_rate * swing[0])
    soft = min(_count(sent, settings.soft_bounce_rate * swing[1]), sent - hard)
    delivered = sent - hard - soft
    opens = _count(delivered, settings.open_rate * swing[2])
    clicks = min(_count(delivered, settings.click_rate * swing[3]), opens) if clickable else 0
    unsubscribes = min(_count(delivered, settings.unsubscribe_rate * swing[4]), opens)
    spam = min(_count(delivered, settings.spam_rate * swing[5]), opens)
    return ExpectedReactions(sent, hard, soft, opens, clicks, unsubscribes, spam)


def _count(whole: int, rate: float) -> int:
    return min(whole, round(whole * rate))


def count_at(final: int, elapsed_ms: int, settings: EmulatorSettings) -> int:
    """Return how many of ``final`` reactions have happened after these milliseconds."""
    return math.floor(final * share_at(elapsed_ms, settings) + 0.5)


def time_of_reaction(place: int, final: int, settings: EmulatorSettings) -> int:
    """Milliseconds until the reaction at this position (0 is the first) of ``final``."""
    return time_of_share((place + 0.5) / final, settings)
