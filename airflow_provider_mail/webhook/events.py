"""Turns pushes into rows of `mail_events`, and what cannot be read into rows of `mail_dead_letters`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from airflow_provider_mail.api._core.addresses import address_key
from airflow_provider_mail.api._core.fields import time_from_text
from airflow_provider_mail.api.events import EventCode, MailEvent
from airflow_provider_mail.warehouse.rows import json_text, text_problem
from airflow_provider_mail.warehouse.tables.events import EVENTS

Row = tuple[Any, ...]

WIRE_NAMES = {name: str(field.alias) for name, field in MailEvent.model_fields.items()}
"""The names of the specification, by those of `MailEvent` and of the columns."""

_TEXTS = tuple(WIRE_NAMES[name] for name in EVENTS.names[EVENTS.names.index("email") : EVENTS.names.index("raw")])
_CODE, _EMAIL, _MESSAGE = WIRE_NAMES["event_code"], WIRE_NAMES["email"], WIRE_NAMES["unique_msg_id"]
_TRIGGERED, _SUBMITTED = WIRE_NAMES["triggered_time"], WIRE_NAMES["submit_time"]

HAPPENS_ONCE = frozenset(
    (EventCode.DROPPED, EventCode.BOUNCED, EventCode.DELIVERED, EventCode.UNSUBSCRIBED, EventCode.SPAM_REPORT)
)
"""Codes of which each recipient of a mail has one event, whatever its time. Unknown codes may happen again."""

MAX_DEPTH = 16
"""Levels of arrays and objects in an event. The specification has one; MariaDB stores at most 32."""

_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"

_MAX_DIGITS = 300

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"

# An object without another one in it, a string, a bracket, a comma; last, the quote of a string that does not end.
_TOKEN = re.compile(rb'\{(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+")*+\}|"(?:[^"\\]++|\\.)*+"|[\[\]{},"]', re.DOTALL)

_MAX_COMMAS = 100_000
"""Commas in a push that msgspec may split: it makes an object for each part, and 8 MiB may have millions."""

_decode_parts = msgspec.json.Decoder(list[msgspec.Raw]).decode

_decode_flat = msgspec.json.Decoder(list[dict[str, str | None]]).decode
"""Decodes what the specification describes, events whose fields are text, in a third of the time."""


class Origin(NamedTuple):
    """Where an event came from.

    :param push_id: number of the push in the inbox.
    """

    mail_conn_id: str
    received_at: datetime
    push_id: int


@dataclass(frozen=True)
class DeadLetter:
    """An event, or a whole push, that cannot be read.

    :param index: position of the event in the push; ``None`` for a whole push.
    :param reason: why it cannot be read, without its values.
    """

    origin: Origin
    index: int | None
    reason: str
    raw: str

    @property
    def letter_id(self) -> str:
        """The identifier: the same whenever the account pushes the same text."""
        return _digest(f"{self.origin.mail_conn_id}\x00{self.raw}")

    def row(self) -> Row:
        conn_id, received_at, push_id = self.origin
        return conn_id, self.letter_id, self.reason, self.raw, received_at, push_id, self.index


def general_reason(reason: str) -> str:
    """Return a reason without the name of the field: senders choose those, and without them there are few reasons."""
    return re.sub(r" '.*'", "", reason, count=1, flags=re.DOTALL)


class UnreadableError(ValueError):
    """An event cannot be read; the message says why, without its values."""


def read_push(body: bytes, origin: Origin, reject: Callable[[DeadLetter], None]) -> Iterator[Row]:
    body = body.removeprefix(_BYTE_ORDER_MARK)
    try:
        events: Any = None if b"\\u0000" in body else _decode_flat(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        events = None
    read: Callable[[Any, Origin, int], Row] = _row
    if events is None:
        read = read_event
        try:
            events = _parse(body)
        except UnreadableError as error:
            return reject(DeadLetter(origin, None, str(error), _escaped(body)))
    for index, event in enumerate(events):
        try:
            row = read(event, origin, index)
        except UnreadableError as error:
            reject(DeadLetter(origin, index, str(error), _raw(event)))
        else:
            yield row


def begins_as_push(body: bytes) -> bool:
    return body.removeprefix(_BYTE_ORDER_MARK).lstrip(_SPACE)[:1] == b"["


def count_quickly(body: bytes) -> int | None:
    """Return the number of events of a push; ``None`` if `split_push` has to determine it."""
    if body.count(b",") <= _MAX_COMMAS:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return len(_decode_parts(body.removeprefix(_BYTE_ORDER_MARK)))
    return None


def split_push(body: bytes, most: int | None = None) -> list[bytes] | None:
    """Return the texts of the events of a push, also of those that no parser accepts; ``None`` if it is not an array.

    :param most: stop after this number of events. Default: all.
    """
    if not begins_as_push(body):
        return None
    parts, _, is_array = split_array(body, body.index(b"[") + 1, most)
    texts = [part.strip(_SPACE) for part in parts]
    if not is_array:
        return None
    return [] if texts == [b""] else texts


def split_array(body: bytes, start: int, most: int | None = None) -> tuple[list[bytes], int, bool]:
    """Return the texts of the elements of an array, where they end, and whether the array is complete until there.

    :param body: the text, which may be damaged.
    :param start: where the first element begins.
    :param most: stop after this number of elements. Default: all.
    """
    parts: list[bytes] = []
    depth, is_array, last = 0, True, len(body.rstrip(_SPACE)) - 1
    for token in _TOKEN.finditer(body, start):
        at, char = token.start(), token[0] if token.end() - token.start() == 1 else b""
        if char == b'"':
            break
        if char in (b"[", b"{"):
            depth += 1
        elif char in (b"]", b"}"):
            if not depth and char == b"]" and at == last:
                return [*parts, body[start:at]], at, is_array
            is_array, depth = is_array and depth > 0, max(depth - 1, 0)
        elif char == b"," and not depth:
            parts.append(body[start:at])
            start = token.end()
            if len(parts) == most:
                return parts, at, is_array
    return [*parts, body[start:]], len(body), False


def read_letter(raw: str, index: int | None, origin: Origin, reject: Callable[[DeadLetter], None]) -> Iterator[Row]:
    if index is None:
        yield from read_push(raw.encode(), origin, reject)
        return
    try:
        row = read_event(_parse_part(raw.encode()), origin, index)
    except UnreadableError as error:
        return reject(DeadLetter(origin, index, str(error), raw))
    yield row


def read_event(event: Any, origin: Origin, index: int) -> Row:
    """Return the row of `EVENTS` for an event.

    :raises UnreadableError: it is no event, or cannot be stored.
    """
    if isinstance(event, _Unparsed):
        raise UnreadableError(event.reason)
    if type(event) is not dict:
        raise UnreadableError("it is not an object")
    _check(event)
    return _row(event, origin, index, map(_text, map(event.get, _TEXTS)))


def _row(event: Mapping[str, Any], origin: Origin, index: int, texts: Iterable[str | None] | None = None) -> Row:
    """The row for an event that can be stored.

    :param texts: the values of `_TEXTS`. Default: those of the event, all of whose fields are text.
    """
    code = event.get(_CODE)
    if type(code) is not str or not code:
        raise UnreadableError(f"{_CODE} is not a text, or is missing")
    triggered, submitted = _time(event, _TRIGGERED), _time(event, _SUBMITTED)
    return (
        origin.mail_conn_id,
        event_id(event, code),
        code,
        triggered,
        submitted,
        *(map(event.get, _TEXTS) if texts is None else texts),
        event,
        origin.received_at,
        origin.push_id,
        index,
    )


def _text(value: Any) -> str | None:
    return value if value is None or type(value) is str else json_text(value)


def event_id(event: Mapping[str, Any], code: str) -> str:
    """Return the identifier of an event, the same for each of its duplicates.

    The specification does not show whether the recipients of one request share a ``UniqueMsgID``, so the address is a
    part of the identifier, and not what identifies a ``TaskStatus``, so all of its fields are.
    """
    message = event.get(_MESSAGE)
    if not message or code == EventCode.TASK_STATUS:
        return _digest(json_text(event))
    time = "" if code in HAPPENS_ONCE else event.get(_TRIGGERED)
    email = event.get(_EMAIL)
    person = address_key(email) if isinstance(email, str) else email
    return _digest(f"{message}\x00{code}\x00{person}\x00{time}")


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _time(event: Mapping[str, Any], name: str) -> datetime | None:
    if not (value := event.get(name)):
        return None
    try:
        time = time_from_text(value)
        return time if time.tzinfo is UTC else time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise UnreadableError(f"{name} is not a date and time") from None


@dataclass(frozen=True)
class _Unparsed:
    raw: str
    reason: str


def _parse(body: bytes) -> list[Any]:
    """Parse a push of which an event may be unusual: other types than text, bytes that are not UTF-8, or no JSON."""
    with suppress(ValueError, RecursionError):
        events = _loads(body)
        # What is nested deeper may be too deep to be written again.
        if isinstance(events, list) and all(_depth(event) <= MAX_DEPTH for event in events):
            return events
    if (parts := split_push(body)) is None:
        raise UnreadableError("the push is not a JSON array")
    return [_parse_part(part) for part in parts]


def _parse_part(part: bytes) -> Any:
    try:
        event = _loads(part)
    except RecursionError:
        return _Unparsed(_escaped(part), _TOO_DEEP)
    except ValueError:
        return _Unparsed(_escaped(part), "it is not JSON")
    return event if _depth(event) <= MAX_DEPTH else _Unparsed(_escaped(part), _TOO_DEEP)


def _loads(text: bytes) -> Any:
    return json.loads(text.decode(errors="surrogateescape"), parse_int=_integer)


def _raw(event: Any) -> str:
    return event.raw if isinstance(event, _Unparsed) else json.dumps(event)


def _escaped(text: bytes) -> str:
    """The text with escapes of JSON for bytes that are not UTF-8, and for NUL."""
    decoded = text.decode(errors="surrogateescape").encode(errors="backslashreplace").decode()
    return decoded.replace("\x00", "\\u0000")


def _integer(digits: str) -> float:
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)  # infinite, which no event may be


def _check(value: Any) -> None:
    if _depth(value) > MAX_DEPTH:
        raise UnreadableError(_TOO_DEEP)
    if problem := text_problem(value, nul=False):
        raise UnreadableError(problem)


def _depth(value: Any, levels: int = MAX_DEPTH) -> int:
    """How deep a value is nested; what lies more than ``levels`` below it is not counted."""
    if not isinstance(value, dict | list):
        return 0
    if levels < 0:
        return 1
    items = value.values() if isinstance(value, dict) else value
    return 1 + max((_depth(item, levels - 1) for item in items), default=0)
