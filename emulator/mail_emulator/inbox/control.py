"""The control functions of the inbox: find and read mail, and let recipients react now."""

from __future__ import annotations

from typing import Any

from mail_emulator.campaign_life import DONE, REACTIONS, apply_reaction
from mail_emulator.inbox.mails import (
    CAMPAIGN,
    STATUSES,
    TRANSACTIONAL,
    Mails,
    NoSuchMail,
    Place,
    SearchIndex,
    parse_id,
    read_mail,
    summaries,
    words,
)
from mail_emulator.markup import to_text
from mail_emulator.operations import Context
from mail_emulator.responses import decode_json, encode_json
from mail_emulator.rpc import Channel, Group, control
from mail_emulator.store import Row
from mail_emulator.transactional import REACTION_TIMES


def _react(context: Context, mail_id: str, code: str) -> None:
    if code not in REACTION_TIMES:
        raise ValueError(f"a recipient cannot react with {code!r}; reactions are: {', '.join(REACTION_TIMES)}")
    fields = read_mail(context, mail_id)
    earlier_codes = {event["code"] for event in fields["events"]}
    if "Delivered" not in earlier_codes:
        raise ValueError(f"mail {mail_id} was not delivered: {fields['status']}")
    # A click implies an open.
    codes = ("Opened", code) if code != "Opened" and "Opened" not in earlier_codes else (code,)
    delivery_id, campaign_id, rank = parse_id(mail_id)
    for event_code in codes:
        if campaign_id:
            _campaign_reaction(context, campaign_id, rank, event_code, again=event_code in earlier_codes)
        else:
            _transactional_reaction(context, delivery_id, event_code, again=event_code in earlier_codes)


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
    counts = decode_json(row["by_hand"] or "{}")
    counts[column] = counts.get(column, 0) + 1
    store.update("campaigns", campaign_id, by_hand=encode_json(counts).decode())
    apply_reaction(context, code, campaign_id, rank, rank + 1)


class InboxControl(Group):
    """The mail that was sent: a mail is the copy of a message or a campaign for one recipient."""

    name = "inbox"

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._search_index: SearchIndex | None = None

    @control
    def search(
        self,
        text: str = "",
        *,
        kind: str | None = None,
        status: str | None = None,
        mail_name: str | None = None,
        limit: int = 50,
        after: str | None = None,
        index_seconds: float | None = None,
    ) -> dict[str, Any]:
        """Find mail: ``mails`` (newest first), ``total``, and ``unindexed``, the messages not searched by their text.

        Each of ``mails`` has id, kind, at (ISO 8601), email, name, subject, from_email, from_name, mail_name (of a
        campaign) and status.

        :param text: words; each is the beginning of a word of the text, or a part of the recipient's address or name.
        :param kind: ``campaign`` or ``transactional``. Default: both.
        :param status: only mail with this event: an EventCode, ``Scheduled`` or ``Sending``. Default: all.
        :param mail_name: only mail of the campaigns of this name. Default: all.
        :param limit: maximum number of mails.
        :param after: id of the mail to continue behind. Default: begin with the newest.
        :param index_seconds: most seconds to spend on indexing new messages. Default: until all are indexed.
        :raises ValueError: kind or status is unknown, or there is no mail with the id ``after``.
        """
        for name, value, allowed in (("kind", kind, (CAMPAIGN, TRANSACTIONAL)), ("status", status, STATUSES)):
            if value is not None and value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
        context, index = self.service.context(), self._index
        index.update(index_seconds)
        mails = Mails(context, words(text), kind, status, mail_name)
        places = mails.newest(limit, self._place(after) if after else None)
        return {"mails": summaries(context, places), "total": mails.count(), "unindexed": index.missing()}

    @control
    def mail(self, mail_id: str) -> dict[str, Any]:
        """Return a mail.

        It has the fields of :meth:`search`, and recipients (role, email, name), reply_to, list_name, template,
        category, campaign, unique_msg_id, attachment_name, attachment_bytes, content (HTML with tags filled in), text,
        headers (pairs), source (the whole message) and events (code, at).

        :param mail_id: its id.
        :raises ValueError: there is none.
        """
        # Not at the top: an emulator whose inbox is not used does without the package `email`.
        from mail_emulator.inbox.forward import compose

        fields = read_mail(self.service.context(), mail_id)
        message = compose(fields)
        headers = [(name, str(value)) for name, value in message.items()]
        return {**fields, "text": to_text(fields["content"]), "headers": headers, "source": str(message)}

    @control
    def react(self, mail_id: str, code: str = "Opened") -> None:
        """Let the recipient of a delivered mail react now, also when the settings or the request track nothing.

        The reaction counts in the statistics and is pushed as an event. A click is an open too. A recipient of a
        campaign who would have reacted later, according to the settings, does so again then, and counts twice.

        :param mail_id: id of the mail.
        :param code: ``Opened``, ``Clicked``, ``Unsubscribed`` or ``SpamReport``.
        :raises ValueError: there is no such mail or reaction, or the mail was not delivered.
        """
        with self.service.store.transaction():
            _react(self.service.context(), mail_id, code)

    @control
    def react_to_campaign(self, mail_name: str, code: str = "Opened", people: int = 1) -> int:
        """Let recipients of a campaign react who otherwise never would; return their number.

        :param mail_name: the campaign's exact name.
        :param code: the reaction, as for :meth:`react`.
        :param people: maximum number of recipients.
        :raises ValueError: there is no such campaign or reaction, or the campaign is not sent.
        """
        context, store = self.service.context(), self.service.store
        campaign = store.row("SELECT * FROM campaigns WHERE name = ? ORDER BY id DESC", [mail_name])
        if campaign is None or campaign["state"] != DONE:
            raise ValueError(f"there is no sent campaign {mail_name!r}")
        first = campaign["hard"] + campaign["soft"] + campaign["opens"]
        recipients = store.rows(
            "SELECT rank FROM recipients WHERE campaign_id = :campaign AND rank >= :first AND NOT EXISTS (SELECT 1 "
            "FROM reactions WHERE campaign_id = :campaign AND reactions.rank = recipients.rank AND code = :code) "
            "ORDER BY rank LIMIT :people",
            {"campaign": campaign["id"], "first": first, "code": code, "people": people},
        )
        with store.transaction():
            for recipient in recipients:
                _react(context, f"c{campaign['id']}.{recipient['rank']}", code)
        return len(recipients)

    @control
    def version(self) -> str:
        """Return a text that differs when anything that the pages show has changed."""
        service = self.service
        return repr((
            service.store.connection.total_changes,
            service.journal.progress(),
            service.clock.state(),
            service.clock.now_ms() // 60_000,
            [fault.struck for fault in service.faults.added],
        ))  # fmt: skip

    @property
    def _index(self) -> SearchIndex:
        if self._search_index is None:
            self._search_index = SearchIndex(self.service.store)
        return self._search_index

    def _place(self, mail_id: str) -> Place:
        delivery_id, campaign_id, rank = parse_id(mail_id)
        table = "campaigns" if campaign_id else "deliveries"
        at = self.service.store.value(f"SELECT send_at FROM {table} WHERE id = ?", [campaign_id or delivery_id])
        if at is None:
            raise NoSuchMail(f"there is no mail {mail_id!r}")
        return Place(at, campaign_id, -rank if campaign_id else delivery_id)
