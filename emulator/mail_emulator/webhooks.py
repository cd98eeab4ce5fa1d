"""Webhook configuration (get and save), and the events that are due, in the form in which the service pushes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mail_emulator import check
from mail_emulator.campaign_life import (
    DONE,
    REACTIONS,
    REOPENED_AFTER,
    end_ms,
    first_rank,
    outcome_ranks,
    random_values,
    reacting,
    time_of_reaction,
)
from mail_emulator.check import Body, Field
from mail_emulator.clock import iso
from mail_emulator.operations import Context, Operation
from mail_emulator.responses import decode_json, encode_json
from mail_emulator.settings import EmulatorSettings
from mail_emulator.store import Row, Store

TOGGLES = ("dropped", "bounced", "delivered", "spamReport", "opened", "clicked", "unsubscribed")
_ENABLED_AT = "webhook_enabled_at"
_FIELDS = ("transEvent", "transCallbackUrl", "transCallbackUrlExtra", "transEnable")


def configuration(store: Store) -> dict[str, Any]:
    """Return the saved configuration; fields never saved are None."""
    saved: dict[str, Any] = decode_json(store.get_meta("webhook") or "{}")
    return {**dict.fromkeys(_FIELDS), **saved}


def enabled_at(context: Context) -> int:
    """Return when pushing was last enabled, in milliseconds; earlier events are never pushed."""
    return int(context.store.get_meta(_ENABLED_AT) or 0)


def cap_enabled_at(context: Context) -> None:
    """Move the time of enabling back to the present, after the clock was moved back."""
    if enabled_at(context) > context.now:
        context.store.set_meta(_ENABLED_AT, str(context.now))


def _get(context: Context, body: Body) -> dict[str, Any]:
    return configuration(context.store)


def _save(context: Context, body: Body) -> None:
    current = configuration(context.store)
    if body["transEvent"] is not None:
        toggles = {name: value for name, value in body["transEvent"].items() if value is not None}
        current["transEvent"] = {**dict.fromkeys(TOGGLES, False), **(current["transEvent"] or {}), **toggles}
    if body["transEnable"] and not current["transEnable"]:
        context.store.set_meta(_ENABLED_AT, str(context.now))
    for name in ("transCallbackUrl", "transEnable"):
        if body[name] is not None:
            current[name] = body[name]
    if body["transCallbackUrlExtra"] is not None:
        replace = body["transCallbackUrlExtraUpdateMode"] == "replace"
        current_urls = [] if replace else current["transCallbackUrlExtra"] or []
        by_sender = {item["sender"]: item.get("url") for item in (*current_urls, *body["transCallbackUrlExtra"])}
        current["transCallbackUrlExtra"] = [{"sender": sender, "url": url} for sender, url in by_sender.items() if url]
    context.store.set_meta("webhook", encode_json(current).decode())


def _is_override(value: Any, settings: EmulatorSettings) -> str | None:
    """An empty address removes the sender's override."""
    return None if value == "" else check.web_address(value, settings)


OPERATIONS = (
    Operation("/v5/webhook/get", (), _get),
    Operation(
        "/v5/webhook/save",
        (
            Field("transEvent", check.record(*(Field(name, check.boolean) for name in TOGGLES))),
            Field("transCallbackUrl", check.web_address),
            Field(
                "transCallbackUrlExtra",
                check.list_of(check.record(Field("sender", check.text, required=True), Field("url", _is_override))),
            ),
            Field("transCallbackUrlExtraUpdateMode", check.one_of("save", "replace"), default="save"),
            Field("transEnable", check.boolean),
        ),
        _save,
    ),
)


#: EventCode to its key in transEvent; TaskStatus has none.
TOGGLE_KEYS = {toggle[0].upper() + toggle[1:]: toggle for toggle in TOGGLES}
_READERS = (("iOS", "Mobile Safari"), ("Windows", "Chrome"), ("Android", "Chrome Mobile"), ("macOS", "Safari"))

Event = dict[str, str]


class DueEvents:
    """Iterates over due events and their callback URLs."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._saved = configuration(context.store)
        self._overrides = {item["sender"].lower(): item["url"] for item in self._saved["transCallbackUrlExtra"] or ()}
        self._enabled_at = enabled_at(context)

    def chunks(self) -> Iterator[list[tuple[str, Event]]]:
        """Yield lists of (URL, event), and record each list as pushed before the next."""
        if not self._saved["transEnable"]:
            return
        yield from self._single_events()
        context = self._context
        played_out = end_ms(context.settings) + REOPENED_AFTER
        for row in context.store.rows(
            "SELECT * FROM campaigns WHERE state = ? AND ended_at > ? AND ended_at <= ? "
            "AND events_to < min(?, ended_at + ?)",
            [DONE, self._enabled_at - played_out, context.now, context.now, played_out],
        ):
            yield from self._campaign_events(row)
            context.store.update("campaigns", row["id"], events_to=context.now)

    def _addressed(self, events: Iterable[tuple[int, str, Event]]) -> list[tuple[str, Event]]:
        """Filter (time, sender, event) by the configuration and add the URLs."""
        settings, toggles = self._context.settings, self._saved["transEvent"] or {}
        chosen = []
        for moment, sender, event in events:
            code = event["EventCode"]
            is_enabled = toggles.get(TOGGLE_KEYS[code]) if code in TOGGLE_KEYS else settings.task_status_events
            url = self._overrides.get(sender.lower()) or self._saved["transCallbackUrl"]
            if moment >= self._enabled_at and is_enabled and url:
                chosen.append((url, event))
        return chosen

    def _single_events(self) -> Iterator[list[tuple[str, Event]]]:
        store = self._context.store
        while rows := store.rows(
            "SELECT events.*, email, msg_id, bounce, deliveries.send_at, message_id, "
            "coalesce(messages.sender, campaigns.sender) AS sender, campaigns.name AS mail_name, guid "
            "FROM events LEFT JOIN deliveries ON deliveries.id = delivery_id "
            "LEFT JOIN messages ON messages.id = message_id LEFT JOIN campaigns ON campaigns.id = campaign_id "
            "WHERE at <= ? ORDER BY at, events.id LIMIT 1000",
            [self._context.now],
        ):
            yield self._addressed((row["at"], row["sender"], self._single_event(row)) for row in rows)
            store.run_many("DELETE FROM events WHERE id = ?", [(row["id"],) for row in rows])

    def _single_event(self, row: Row) -> Event:
        settings = self._context.settings
        if row["code"] == "TaskStatus":
            return {
                "EventCode": "TaskStatus",
                "EventType": settings.campaign_event_type,
                "Guid": row["guid"],
                "MailName": row["mail_name"],
                "SenderEmail": row["sender"],
                settings.task_status_key: row["detail"],
                "TriggeredDateTimeV2": iso(row["at"]),
                "UniqueMsgID": f"{row['guid']}-{row['detail']}",
            }
        if row["campaign_id"] is not None:
            campaign = self._context.store.row("SELECT * FROM campaigns WHERE id = ?", [row["campaign_id"]])
            recipient = self._context.store.row(
                "SELECT * FROM recipients WHERE campaign_id = ? AND rank = ?", [row["campaign_id"], int(row["detail"])]
            )
            assert campaign is not None
            assert recipient is not None
            return self._campaign_event(campaign, recipient, row["code"], row["at"])
        return _event(settings, settings.transactional_event_type, row["code"], row["at"], row)

    def _campaign_events(self, row: Row) -> Iterator[list[tuple[str, Event]]]:
        settings = self._context.settings
        since, ended = row["events_to"], row["ended_at"]
        if since < ended:
            for code, (begin, end) in outcome_ranks(row).items():
                yield from self._ranked(row, code, begin, end, lambda rank: ended)
        for code, column in REACTIONS:
            yield from self._reactions(row, code, column, since)
        if settings.repeated_open_every:
            yield from self._reactions(row, "Opened", "opens", since, REOPENED_AFTER, settings.repeated_open_every)

    def _reactions(
        self, row: Row, code: str, column: str, since: int, later: int = 0, every: int = 1
    ) -> Iterator[list[tuple[str, Event]]]:
        """Yield the events of a reaction since the last check, delayed by ``later``, of each ``every``-th recipient."""
        settings, ended = self._context.settings, row["ended_at"]
        first, final = first_rank(row, column), row[column]
        begin, end = reacting(row, column, max(since, ended) - later, self._context.now - later, settings)
        yield from self._ranked(
            row,
            code,
            first + begin,
            first + end,
            lambda rank: ended + later + time_of_reaction(rank - first, final, settings),
            every,
        )

    def _ranked(
        self, row: Row, code: str, begin: int, end: int, moment: Callable[[int], int], every: int = 1
    ) -> Iterator[list[tuple[str, Event]]]:
        """Yield one kind of event for the ranks from ``begin`` to ``end``, 1,000 at a time."""
        for start in range(begin, end, 1000):
            recipients = self._context.store.rows(
                "SELECT * FROM recipients WHERE campaign_id = ? AND rank >= ? AND rank < ?",
                [row["id"], start, min(start + 1000, end)],
            )
            events = []
            for recipient in recipients:
                if recipient["rank"] % every == 0:
                    at = moment(recipient["rank"])
                    events.append((at, row["sender"], self._campaign_event(row, recipient, code, at)))
            yield self._addressed(events)

    def _campaign_event(self, row: Row, recipient: Row, code: str, at: int) -> Event:
        settings = self._context.settings
        copy = {**row, "email": recipient["email"], "msg_id": f"{row['guid']}-{recipient['rank']}"}
        return {
            **_event(settings, settings.campaign_event_type, code, at, copy),
            "Guid": row["guid"],
            "MailName": row["name"],
            "SentMailListName": recipient["list_name"],
        }


def _event(settings: EmulatorSettings, event_type: str, code: str, at: int, mail: Row) -> Event:
    """Return an event of a mail, of which ``email``, ``msg_id``, ``sender`` and ``send_at`` are needed."""
    event = {
        "EventCode": code,
        "Email": mail["email"],
        "EventType": event_type,
        "TriggeredDateTimeV2": iso(at),
        "UniqueMsgID": mail["msg_id"],
    }
    if code == "Delivered" or not settings.sparse_events:
        event |= {"SenderEmail": mail["sender"], "SubmitDateTimeV2": iso(mail["send_at"])}
    if code == "Delivered":
        event["ReceiveServer"] = f"mx.{mail['email'].rpartition('@')[2]}"
    if code in ("Opened", "Clicked"):
        chance = random_values(settings, "reader", mail["email"])
        event["IP"] = f"192.0.2.{int(chance[0] * 254) + 1}"
        event["Platform"], event["BrowserType"] = _READERS[int(chance[1] * len(_READERS))]
    return event
