"""Find and read mail: each copy of a message or a campaign that goes to one recipient is a mail."""

from __future__ import annotations

import heapq
import html
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mail_emulator.campaign_life import DONE, REACTIONS, SENDING, count_at, first_rank, outcome_ranks, time_of_reaction
from mail_emulator.clock import iso
from mail_emulator.markup import fill
from mail_emulator.operations import Context
from mail_emulator.responses import decode_json
from mail_emulator.store import FIRST_CAMPAIGN_ID, Row, Store
from mail_emulator.transactional import REACTION_TIMES

_TAG = re.compile(r"<[^<>]*+>")
_WORD = re.compile(r"[^\W_]+")
_CHUNK = 200
#: SQLite limits the size of queries.
_MOST = 20


def words(text: str) -> list[str]:
    """Return the first words of a search. What has neither a letter nor a digit is left out."""
    return [word for word in text.split() if _WORD.search(word)][:_MOST]


def match(word: str) -> str:
    """Return the full-text query for a word: each of its parts must be the beginning of a word of the text."""
    return " ".join(f'"{part}"*' for part in _WORD.findall(word)[:_MOST])


class SearchIndex:
    """A full-text index of messages and campaigns by their id; ids of campaigns are higher than those of messages.

    It is in SQLite's temporary database, which is created by the first update and moves to disk when it grows.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._generation: int | None = None
        self._message_id = 0
        self._campaign_id = 0

    def update(self, seconds: float | None = None) -> None:
        """Add new messages and campaigns, until all are in the index or this time has passed."""
        began = time.monotonic()
        if self._generation != self._store.generation:
            self._create()
        while rows := self._next_rows():
            with self._store.transaction():
                self._store.run_many(
                    "INSERT INTO temp.mail_index (rowid, text) VALUES (?, ?)", map(_indexed_text, rows)
                )
            if seconds is not None and time.monotonic() - began > seconds:
                break

    def missing(self) -> int:
        """Return the number of messages that are not in the index yet."""
        return int(self._store.value("SELECT coalesce(max(id), 0) FROM messages")) - self._message_id

    def _create(self) -> None:
        self._store.run("DROP TABLE IF EXISTS temp.mail_index")
        self._store.run("CREATE VIRTUAL TABLE temp.mail_index USING fts5 (text, content='', columnsize=0, detail=none)")
        self._generation = self._store.generation
        self._message_id = self._campaign_id = 0

    def _next_rows(self) -> list[Row]:
        messages = self._store.rows(
            "SELECT id, unique_msg_id, sender, sender_name, subject, template, category, campaign, attachment_name, "
            f"content FROM messages WHERE id > ? ORDER BY id LIMIT {_CHUNK}",
            [self._message_id],
        )
        campaigns = self._store.rows(
            f"SELECT id, name, guid, sender, subject, request FROM campaigns WHERE id > ? ORDER BY id LIMIT {_CHUNK}",
            [self._campaign_id],
        )
        self._message_id = messages[-1]["id"] if messages else self._message_id
        self._campaign_id = campaigns[-1]["id"] if campaigns else self._campaign_id
        for row in campaigns:
            row["content"] = decode_json(row.pop("request"))["content"]
        return [*messages, *campaigns]


def _indexed_text(row: Row) -> tuple[int, str]:
    row_id, *others, content = row.values()
    return row_id, " ".join((*filter(None, others), html.unescape(_TAG.sub(" ", content or ""))))


CAMPAIGN, TRANSACTIONAL = "campaign", "transactional"
#: The condition on a transactional mail that has had an event (an EventCode), or waits for the first one.
_CONDITIONS = {
    "Scheduled": "send_at > :now",
    "Sending": "false",
    "Dropped": "dropped IS NOT NULL AND send_at <= :now",
    "Bounced": "bounce IS NOT NULL AND send_at <= :now",
    "Delivered": "dropped IS NULL AND bounce IS NULL AND send_at <= :now",
    **{code: f"{column} <= :now" for code, column in REACTION_TIMES.items()},
}
#: What a mail's status can be, in the order in which it changes.
STATUSES = tuple(_CONDITIONS)

Condition = tuple[str, dict[str, Any]]


@dataclass(frozen=True, order=True)
class Place:
    """The position of a mail in the order of send times."""

    #: Send time in milliseconds.
    at: int
    #: Id of the campaign; 0 for transactional mail.
    campaign_id: int
    #: Id of the delivery, or the rank of the campaign's recipient with the sign changed: the first rank is the newest.
    number: int

    @property
    def mail_id(self) -> str:
        return f"c{self.campaign_id}.{-self.number}" if self.campaign_id else f"t{self.number}"


@dataclass(frozen=True)
class Mails:
    """Finds mail on these conditions."""

    context: Context
    #: Each must be in the text, at the beginning of a word, or in the recipient's address or name.
    words: Sequence[str]
    #: ``campaign`` or ``transactional``; None is both.
    kind: str | None
    #: A member of `STATUSES`: what has happened to the mail; None is anything.
    status: str | None
    #: Name of the campaign; None is any.
    mail_name: str | None

    def count(self) -> int:
        """Return the number of mails."""
        conditions = [("recipients", condition) for _, condition in self._campaigns()]
        if condition := self._transactional():
            conditions.append(("deliveries", condition))
        return sum(
            self.context.store.value(f"SELECT count(*) FROM {table} WHERE {where_sql}", values)
            for table, (where_sql, values) in conditions
        )

    def newest(self, limit: int, after: Place | None = None) -> list[Place]:
        """Return the places of mails, newest first, behind a place."""
        streams = (self._transactional_places(limit, after), self._campaign_places(limit, after))
        return list(islice(heapq.merge(*streams, reverse=True), limit))

    def _transactional_places(self, limit: int, after: Place | None) -> Iterator[Place]:
        if not (condition := self._transactional()):
            return
        where_sql, values = condition
        values["limit"] = limit
        if after:
            where_sql += " AND send_at <= :at AND (send_at < :at OR :campaign > 0 OR id < :number)"
            values |= {"at": after.at, "campaign": after.campaign_id, "number": after.number}
        for row in self.context.store.rows(
            f"SELECT send_at, id FROM deliveries WHERE {where_sql} ORDER BY send_at DESC, id DESC LIMIT :limit", values
        ):
            yield Place(row["send_at"], 0, row["id"])

    def _campaign_places(self, limit: int, after: Place | None) -> Iterator[Place]:
        for campaign, (where_sql, values) in self._campaigns():
            begin = (campaign["send_at"], campaign["id"])
            if after and begin > (after.at, after.campaign_id):
                continue
            if after and begin == (after.at, after.campaign_id):
                where_sql += " AND rank > :rank"
                values["rank"] = -after.number
            values["limit"] = limit
            for row in self.context.store.rows(
                f"SELECT rank FROM recipients WHERE {where_sql} ORDER BY rank LIMIT :limit", values
            ):
                yield Place(*begin, -row["rank"])

    def _transactional(self) -> Condition | None:
        """Return the condition on ``deliveries``; None when transactional mail is not wanted."""
        if self.kind == CAMPAIGN or self.mail_name is not None:
            return None
        values: dict[str, Any] = {"now": self.context.now}
        conditions = [_CONDITIONS[self.status] if self.status else "true"]
        for number, word in enumerate(self.words):
            values |= {f"word{number}": _containing(word), f"match{number}": match(word)}
            conditions.append(
                f"(email LIKE :word{number} ESCAPE '\\' OR name LIKE :word{number} ESCAPE '\\' OR message_id IN "
                f"(SELECT rowid FROM temp.mail_index WHERE mail_index MATCH :match{number}))"
            )
        return " AND ".join(conditions), values

    def _campaigns(self) -> Iterator[tuple[Row, Condition]]:
        """Yield campaigns with recipients, newest first, and the condition on ``recipients`` of each."""
        if self.kind == TRANSACTIONAL:
            return
        matches = [self._campaigns_with(word) for word in self.words]
        for row in self.context.store.rows(
            "SELECT * FROM campaigns WHERE state IN (?, ?) AND (? IS NULL OR name = ?) "
            "AND EXISTS (SELECT 1 FROM recipients WHERE campaign_id = id) ORDER BY send_at DESC, id DESC",
            [SENDING, DONE, self.mail_name, self.mail_name],
        ):
            in_address = [word for word, ids in zip(self.words, matches, strict=True) if row["id"] not in ids]
            values: dict[str, Any] = {f"word{number}": _containing(word) for number, word in enumerate(in_address)}
            conditions = [f"email LIKE :{name} ESCAPE '\\'" for name in values]
            begin, end = self._ranks(row)
            in_ranks = "rank >= :begin AND rank < :end"
            if self.status in dict(REACTIONS):
                by_hand = "SELECT rank FROM reactions WHERE campaign_id = :campaign AND code = :code"
                in_ranks = f"({in_ranks} OR rank IN ({by_hand}))"
            values |= {"campaign": row["id"], "begin": begin, "end": end, "code": self.status}
            yield row, (" AND ".join(("campaign_id = :campaign", in_ranks, *conditions)), values)

    def _campaigns_with(self, word: str) -> set[int]:
        """Return the ids of the campaigns with this word in their text."""
        rows = self.context.store.rows(
            "SELECT rowid FROM temp.mail_index WHERE mail_index MATCH ? AND rowid >= ?",
            [match(word), FIRST_CAMPAIGN_ID],
        )
        return {row["rowid"] for row in rows}

    def _ranks(self, row: Row) -> tuple[int, int]:
        """Return the ranks (from, to) of a campaign's recipients with the wanted status."""
        status = self.status
        all_ranks, no_ranks = (-row["dropped"], row["sent"]), (0, 0)
        if status is None:
            return all_ranks
        if row["state"] == SENDING:
            return all_ranks if status == "Sending" else no_ranks
        if status in dict(REACTIONS):
            column = dict(REACTIONS)[status]
            first = first_rank(row, column)
            elapsed = self.context.now - row["ended_at"]
            return first, first + count_at(row[column], elapsed, self.context.settings)
        return outcome_ranks(row).get(status, no_ranks)


def _containing(word: str) -> str:
    """Return the pattern of LIKE for texts with this word in them; LIKE is several times as fast as `instr`."""
    return "%" + re.sub(r"[%_\\]", r"\\\g<0>", word) + "%"


_ID = re.compile(r"t(\d{1,18})|c(\d{1,18})\.(-?\d{1,18})", re.ASCII)


class NoSuchMail(ValueError):
    """There is no mail with this id."""


def read_mail(context: Context, mail_id: str) -> dict[str, Any]:
    """Return a mail; see ``InboxControl.mail``."""
    delivery_id, campaign_id, rank = parse_id(mail_id)
    return _campaign_mail(context, campaign_id, rank) if campaign_id else _transactional_mail(context, delivery_id)


def parse_id(mail_id: str) -> tuple[int, int, int]:
    """Return the delivery's id, or the campaign's id and the recipient's rank; 0 for what does not apply."""
    match = _ID.fullmatch(mail_id)
    if match is None:
        raise NoSuchMail(f"there is no mail {mail_id!r}")
    return int(match[1] or 0), int(match[2] or 0), int(match[3] or 0)


def summaries(context: Context, places: Iterable[Place]) -> list[dict[str, Any]]:
    """Return the fields of mails that a list of them shows."""
    names = ("id", "kind", "at", "email", "name", "subject", "from_email", "from_name", "mail_name", "status")
    mails = (read_mail(context, place.mail_id) for place in places)
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
