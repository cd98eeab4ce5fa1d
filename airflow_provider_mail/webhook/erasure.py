"""Erases what was pushed about a person."""

from __future__ import annotations

import json
import re
import unicodedata
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from airflow_provider_mail.api._core.addresses import address_key, spellings
from airflow_provider_mail.warehouse.stored import StoredTable
from airflow_provider_mail.warehouse.tables.events import DEAD_LETTERS, EVENTS
from airflow_provider_mail.webhook.events import WIRE_NAMES

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.webhook.inbox import Inbox

_PAGE = 20
"""Pushes or dead letters in memory at once."""


@dataclass(frozen=True)
class Erased:
    """What was erased.

    :param pushes: pushes in the inbox that held events of the person.
    :param dead_letters: dead letters that named the person.
    :param events: rows of the table of events.
    """

    pushes: int
    dead_letters: int
    events: int


def erase(email: str, inbox: Inbox | None, hook: DbApiHook, table: str, dead_letters_table: str) -> Erased:
    """Delete the events of a recipient: from the inbox, the dead letters and the table of events.

    The address is compared by :func:`~airflow_provider_mail.api._core.addresses.address_key`: case, the form of Unicode
    and that of the domain do not matter. Can be repeated, and should be, if the service may still push.

    :param email: the address.
    :param inbox: the inbox; ``None`` without one. On SQLite no drain may run meanwhile.
    :param hook: the hook of the database of both tables.
    :param table: name of the table of events.
    :param dead_letters_table: name of the table of dead letters.
    :raises ValueError: there is no address.
    :raises WarehouseError: a table cannot be read, or its rows cannot be deleted.
    """
    if "@" not in (email := email.strip()):
        raise ValueError("email: must be an address")
    # In this order: in Postgres the first step waits for drains that have taken a push, and what they store is found.
    pushes = _erase_from_inbox(inbox, email) if inbox else 0
    letters = _erase_letters(StoredTable(hook, DEAD_LETTERS, dead_letters_table), email)
    events = StoredTable(hook, EVENTS, table)
    found = {text for form in _forms(email) for text in events.spellings("email", form)}
    # For some databases other letters are equal, too: nobody else's events are deleted.
    own = sorted(text for text in found if address_key(text) == address_key(email))
    return Erased(pushes, letters, events.delete({"email": text} for text in own))


def _forms(email: str) -> set[str]:
    """The forms of an address that differ in more than case."""
    parts = [spelling.rpartition("@") for spelling in spellings(email)]
    return {
        f"{unicodedata.normalize(form, local)}@{unicodedata.normalize(form_of_domain, domain)}"
        for local, _, domain in parts
        for form in ("NFC", "NFD")
        for form_of_domain in ("NFC", "NFD")
    }


def _erase_from_inbox(inbox: Inbox, email: str) -> int:
    count, last = 0, -1
    with closing(inbox.open()) as connection:
        while pushes := inbox.scan(connection, after=last, max_pushes=_PAGE):
            for push in pushes:
                if (body := without_person(push.body, email)) is not None:
                    inbox.replace_body(connection, push.id, body)
                    count += 1
            last = pushes[-1].id
    return count


def _erase_letters(letters: StoredTable, email: str) -> int:
    count, last = 0, ""
    while page := letters.page(("mail_conn_id", "letter_id", "raw"), "letter_id", last, _PAGE):
        count += letters.delete(
            {"mail_conn_id": conn_id, "letter_id": letter_id} for conn_id, letter_id, raw in page if _is_of(raw, email)
        )
        last = page[-1][1]
    return count


def without_person(body: bytes, email: str) -> bytes | None:
    """Return the body of a push without the events of a person; ``None`` when it has none.

    A body that is not a JSON array is emptied when the address occurs in it.

    :param body: the body.
    :param email: the address.
    """
    try:
        events = msgspec.json.decode(body, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return b"[]" if _names(body.decode(errors="replace"), email) else None
    kept = [event for event in events if not _is_of(bytes(event).decode(errors="replace"), email)]
    return None if len(kept) == len(events) else b"[" + b",".join(map(bytes, kept)) + b"]"


def _is_of(text: str, email: str) -> bool:
    """Whether an event is about the person; one without a recipient is if it names the person anywhere."""
    event: Any = None
    with suppress(ValueError, RecursionError):
        event = json.loads(text)
    recipient = event.get(WIRE_NAMES["email"]) if isinstance(event, dict) else None
    return address_key(recipient) == address_key(email) if isinstance(recipient, str) else _names(text, email)


def _names(text: str, email: str) -> bool:
    """Whether a text, or the JSON that it may be, contains the address."""
    texts = [text]
    with suppress(ValueError, RecursionError):
        texts.append(json.dumps(json.loads(text), ensure_ascii=False))
    forms = "|".join(re.escape(form.lower()) for form in _forms(email))
    address = re.compile(rf"(?<![\w.%+-])(?:{forms})(?![\w-]|\.\w)")
    return any(address.search(text.lower()) for text in texts)
