"""Erases what was pushed about a person."""

from __future__ import annotations

import json
import re
import unicodedata
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.api._core.fields import address_key
from airflow_provider_mail.warehouse.database import StoredTable
from airflow_provider_mail.warehouse.rows import json_text
from airflow_provider_mail.warehouse.tables.events import DEAD_LETTERS, EVENTS
from airflow_provider_mail.webhook.events import WIRE_NAMES, split_push

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.webhook.inbox import Inbox

_PAGE = 20
"""Pushes or dead letters in memory at once."""

_ESCAPE = re.compile(r"((?:\\u[0-9a-fA-F]{4})+)|\\(.)", re.DOTALL)
_MARKS = re.compile(r"[^\w\s\x00-\x7f]{31,}")
"""More combining marks than addresses have; to bring them into order could take hours."""
_DOMAIN = r"[^\s!-,/:-@[-^`{-~]+"  # of punctuation, only what domains have
_ONE = re.compile(rf"\s*[\w!#$%&'*+/=?^`.-]+@{_DOMAIN}\s*")


def erase(email: str, inbox: Inbox, hook: DbApiHook, table: str, dead_letters_table: str) -> dict[str, int]:
    """Do what `erase_events` says about the inbox and both tables; return the counts."""
    if "@" not in email:
        raise ValueError("email: must be an address")
    person = Person(email)
    # In this order: in Postgres the first step waits for drains that have taken a push, and what they store is found.
    return {
        "pushes": _erase_from_inbox(inbox, person),
        "dead_letters": _erase_letters(StoredTable(hook, DEAD_LETTERS, dead_letters_table), person),
        "events": _erase_events(StoredTable(hook, EVENTS, table), person),
    }


class Person:
    """Recognizes what is about a person, by one rule for the inbox, the dead letters and the table of events.

    An event is about the person if its ``Email``, of whatever type, contains the address. If ``Email`` is missing or
    contains no address at all, the event is about the person if the address is anywhere in it. Addresses are compared
    by `address_key`.
    """

    def __init__(self, email: str) -> None:
        self._key = address_key(email)
        self._candidate = re.compile(rf"(?<![\w.%+-]){re.escape(self._key.rpartition('@')[0])}@{_DOMAIN}")

    def is_named_in(self, text: str) -> bool:
        """Return whether a text contains the address, also if the text is JSON, damaged or not."""
        text = _comparable(text)
        # An address alone is compared as a whole: that of O'Brien does not contain Brien's.
        matches = [self._candidate.match(text.strip())] if _ONE.fullmatch(text) else self._candidate.finditer(text)
        return any(
            self._key in (address_key(match[0]), address_key(re.sub(r"(?<=\w)\W+\Z", "", match[0])))
            for match in matches
            if match
        )

    def is_in(self, event: str) -> bool:
        """Return whether an event is about the person.

        :param event: its JSON; what cannot be parsed has no ``Email``.
        """
        if not self.is_named_in(event):
            return False
        parsed: Any = None
        with suppress(ValueError, RecursionError):
            parsed = json.loads(event)
        recipient = parsed.get(WIRE_NAMES["email"]) if isinstance(parsed, dict) else None
        text = recipient if isinstance(recipient, str) else json.dumps(recipient, ensure_ascii=False)
        return self.is_named_in(text) if "@" in text else True

    def without(self, body: bytes) -> bytes | None:
        """Return the body of a push without the events about the person; ``None`` when it has none."""
        if not self.is_named_in(body.decode(errors="replace")):
            return None
        events = list(split_push(body))
        kept = [event for event in events if not self.is_in(event)]
        return None if len(kept) == len(events) else f"[{','.join(kept)}]".encode(errors="surrogateescape")


def _comparable(text: str) -> str:
    """A text in the form of the local part of `address_key`, with the escapes of JSON replaced."""
    text = _MARKS.sub(" ", _ESCAPE.sub(_unescape, text))
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())


def _unescape(escape: re.Match[str]) -> str:
    if escape[1]:
        return bytes.fromhex(escape[1].replace("\\u", "")).decode("utf-16-be", "replace")
    return " " if escape[2] in "bfnrt" else escape[2]


def _erase_from_inbox(inbox: Inbox, person: Person) -> int:
    count, last = 0, -1
    with inbox.connection() as connection:
        while pushes := inbox.scan(connection, after=last, max_pushes=_PAGE):
            for push in pushes:
                # Checked without a lock first: most pushes are not about the person.
                if person.without(push.body) is not None:
                    count += inbox.change_body(connection, push.id, person.without)
            last = pushes[-1].id
    return count


def _erase_letters(letters: StoredTable, person: Person) -> int:
    count, last = 0, ""
    while page := letters.page(("letter_id", "raw"), "letter_id", last, _PAGE):
        keys = [{"letter_id": id} for id, raw in page if person.is_in(raw)]
        count, last = count + letters.delete(keys), page[-1][0]
    return count


def _erase_events(events: StoredTable, person: Person) -> int:
    conn_id, event_id, email, raw = map(events.column, ("mail_conn_id", "event_id", "email", "raw"))
    conditions = [
        {"email": spelling}
        for (spelling,) in events.select(f"DISTINCT {email}", f"{email} LIKE '%@%'")
        if person.is_named_in(spelling)
    ]
    conditions += [
        {"mail_conn_id": account, "event_id": id}
        for account, id, event in events.select(
            f"{conn_id}, {event_id}, {raw}", f"{email} IS NULL OR {email} NOT LIKE '%@%'"
        )
        if person.is_in(event if isinstance(event, str) else json_text(event))
    ]
    return events.delete(conditions)
