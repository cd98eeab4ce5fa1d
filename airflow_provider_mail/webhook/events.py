"""Turns pushes into rows of `mail_events`, and what cannot be read into rows of `mail_dead_letters`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import blake2b
from itertools import count, repeat
from typing import Any, NamedTuple

import msgspec

from airflow_provider_mail.api._core.fields import address_key, exact_times, time_from_text
from airflow_provider_mail.api.events import EventCode, MailEvent
from airflow_provider_mail.warehouse.rows import json_text, text_problem
from airflow_provider_mail.warehouse.tables.events import EVENTS

Row = tuple[Any, ...]

WIRE_NAMES = {name: str(field.alias) for name, field in MailEvent.model_fields.items()}
"""The names of the specification, by those of `MailEvent` and of the columns."""

_TEXTS = tuple(WIRE_NAMES[name] for name in EVENTS.names[EVENTS.names.index("email") : EVENTS.names.index("raw")])
_TASK_STATUS = EventCode.TASK_STATUS.value
_CODE, _EMAIL, _MESSAGE = WIRE_NAMES["event_code"], WIRE_NAMES["email"], WIRE_NAMES["unique_msg_id"]
_TRIGGERED, _SUBMITTED = WIRE_NAMES["triggered_time"], WIRE_NAMES["submit_time"]

HAPPENS_ONCE = frozenset(
    (EventCode.DROPPED, EventCode.BOUNCED, EventCode.DELIVERED, EventCode.UNSUBSCRIBED, EventCode.SPAM_REPORT)
)
"""Codes of which each recipient of a mail has one event, whatever its time. Unknown codes may happen again."""

MAX_DEPTH = 16
"""Levels of arrays and objects in an event. The specification has one; MariaDB stores at most 32."""


class Reason(StrEnum):
    """Why an event becomes a dead letter. No more is said: a sender chooses values and the names of further fields."""

    NOT_JSON = "it is not JSON"
    TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"
    NOT_AN_OBJECT = "it is not an object"
    NO_CODE = "EventCode is not a text, or is missing"
    TRIGGERED = "TriggeredDateTimeV2 is not a date and time"
    SUBMITTED = "SubmitDateTimeV2 is not a date and time"
    TEXT = "a field holds what not every database can store: NUL, half a surrogate pair, NaN or infinity"
    CONFLICT = "an event with the same identity and other fields was stored before"
    OTHER = "other"

    @classmethod
    def _missing_(cls, value: object) -> Reason:
        return cls.OTHER  # in a table, but written by no drain


_MAX_DIGITS = 300

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SPACE = " \t\r\n"
_BETWEEN = re.compile(r"[ \t\r\n]*(?:,[ \t\r\n]*|\]?\Z)?")
"""What follows an event: a comma, or the end of the push."""

_NEXT_EVENT = re.compile(r"(?<=[}\]])[ \t\r\n]*,[ \t\r\n]*\{")
"""Where the next event may begin behind a damaged one."""

_DEEP = 500
"""Characters that cannot be nested too deep for a parser."""

_MAX_COMMAS = 100_000
"""Commas in a push that msgspec may split: it makes an object for each part, and 8 MiB may have millions."""

_decode_parts = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_flat = msgspec.json.Decoder(list[dict[str, str | None]]).decode
"""Decodes what the specification describes, events whose fields are text, in a third of the time."""


class Origin(NamedTuple):
    """Where an event came from."""

    mail_conn_id: str
    received_at: datetime
    push_id: int


@dataclass(frozen=True)
class DeadLetter:
    """An event that cannot be read or stored.

    :param index: position of the event in the push.
    :param raw: its text; what is not UTF-8, and NUL, as escapes of JSON.
    """

    origin: Origin
    index: int
    reason: Reason
    raw: str

    @property
    def letter_id(self) -> str:
        """The identifier: the same whenever the account pushes the same text."""
        return _digest(f"{self.origin.mail_conn_id}\x00{self.raw}")

    def row(self) -> Row:
        conn_id, received_at, push_id = self.origin
        return conn_id, self.letter_id, self.reason.value, self.raw, received_at, push_id, self.index


class UnreadableError(ValueError):
    """An event cannot be read."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


def read_push(body: bytes, origin: Origin, reject: Callable[[DeadLetter], None]) -> Iterator[Row]:
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError, UnreadableError):
        if b"\\u0000" not in body:
            return _rows(_decode_flat(body.removeprefix(_BYTE_ORDER_MARK)), origin)
    return _read_events(body, origin, reject)


def _read_events(body: bytes, origin: Origin, reject: Callable[[DeadLetter], None]) -> Iterator[Row]:
    for index, event in enumerate(split_push(body)):
        try:
            yield read_event(event, origin, index)
        except UnreadableError as error:
            reject(DeadLetter(origin, index, error.reason, _escaped(event)))


def begins_as_push(body: bytes) -> bool:
    return body.removeprefix(_BYTE_ORDER_MARK).lstrip(_SPACE.encode())[:1] == b"["


def count_quickly(body: bytes) -> int | None:
    """Return the number of events of a push; ``None`` if `split_push` has to determine it."""
    if body.count(b",") <= _MAX_COMMAS:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return len(_decode_parts(body.removeprefix(_BYTE_ORDER_MARK)))
    return None


def split_push(body: bytes) -> Iterator[str]:
    """Yield the texts of the events of a push.

    What no parser accepts is one text, up to where the next event may begin. A push that is cut off ends with a part
    of an event. All of a body that is not an array is one event.
    """
    text = body.removeprefix(_BYTE_ORDER_MARK).decode(errors="surrogateescape").strip(_SPACE)
    if not text.startswith("["):
        yield text
        return
    at = _event_after(text, 1)
    while at < len(text):
        try:
            end = _DECODER.raw_decode(text, at)[1]
        except (ValueError, RecursionError) as error:
            following = _NEXT_EVENT.search(text, getattr(error, "pos", at + _DEEP))
            end = following.start() if following else len(text)
        yield text[at:end]
        at = _event_after(text, end)


def _event_after(text: str, at: int) -> int:
    between = _BETWEEN.match(text, at)
    return between.end() if between else at


def read_event(text: str, origin: Origin, index: int) -> Row:
    """Return the row of `EVENTS` for the text of an event.

    :raises UnreadableError: it is no event, or cannot be stored.
    """
    try:
        event = _DECODER.decode(text)
    except RecursionError:
        raise UnreadableError(Reason.TOO_DEEP) from None
    except ValueError:
        raise UnreadableError(Reason.NOT_JSON) from None
    if type(event) is not dict:
        raise UnreadableError(Reason.NOT_AN_OBJECT)
    if _depth(event) > MAX_DEPTH:  # what is nested deeper may be too deep to be written again
        raise UnreadableError(Reason.TOO_DEEP)
    if text_problem(event, nul=False):
        raise UnreadableError(Reason.TEXT)
    texts = {name: _text(event.get(name)) for name in _TEXTS}
    return next(_rows([event], origin, index, [texts]))


def _rows(
    events: Sequence[Mapping[str, Any]],
    origin: Origin,
    first: int = 0,
    texts: Sequence[Mapping[str, str | None]] | None = None,
) -> Iterator[Row]:
    """The rows for events that can be stored, column by column: a few steps of Python for a whole push.

    :param first: the position of the first one in its push.
    :param texts: the values of `_TEXTS`. Default: those of the events, all of whose fields are text.
    """
    codes: list[Any] = [event.get(_CODE) for event in events]
    if not all(type(code) is str and code for code in codes):
        raise UnreadableError(Reason.NO_CODE)
    return zip(
        repeat(origin.mail_conn_id),
        map(event_id, events, codes),
        codes,
        _times([event.get(_TRIGGERED) for event in events], Reason.TRIGGERED),
        _times([event.get(_SUBMITTED) for event in events], Reason.SUBMITTED),
        *([event.get(name) for event in texts or events] for name in _TEXTS),
        events,
        repeat(origin.received_at),
        repeat(origin.push_id),
        count(first),
    )


def _text(value: Any) -> str | None:
    return value if value is None or type(value) is str else json_text(value)


def event_id(event: Mapping[str, Any], code: str) -> str:
    """Return the identifier of an event, the same for each of its duplicates.

    The specification does not show whether the recipients of one request share a ``UniqueMsgID``, so the address is a
    part of the identifier, and not what identifies a ``TaskStatus``, so all of its fields are.
    """
    message = event.get(_MESSAGE)
    if not message or code == _TASK_STATUS:
        return _digest(json_text(event))
    time = "" if code in HAPPENS_ONCE else event.get(_TRIGGERED)
    email = event.get(_EMAIL)
    person = address_key(email) if isinstance(email, str) else email
    return _digest(f"{message}\x00{code}\x00{person}\x00{time}")


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _times(values: Sequence[Any], reason: Reason) -> Sequence[datetime | None]:
    times = exact_times(values)
    if times is not None and _UTC_OR_NONE.issuperset([time and time.tzinfo for time in times]):
        return times
    return [_time(value, reason) for value in values]


_UTC_OR_NONE = {UTC, None}


def _time(value: Any, reason: Reason) -> datetime | None:
    if not value:
        return None
    try:
        time = time_from_text(value)
        return time if time.tzinfo is UTC else time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise UnreadableError(reason) from None


def _escaped(text: str) -> str:
    """The text with escapes of JSON for bytes that are not UTF-8, and for NUL."""
    return text.encode(errors="backslashreplace").decode().replace("\x00", "\\u0000")


def _integer(digits: str) -> float:
    return int(digits) if len(digits) <= _MAX_DIGITS else math.inf  # which no event may have


_DECODER = json.JSONDecoder(parse_int=_integer)


def _depth(value: Any, levels: int = MAX_DEPTH) -> int:
    """How deep a value is nested; what lies more than ``levels`` below it is not counted."""
    if not isinstance(value, dict | list):
        return 0
    if levels < 0:
        return 1
    items = value.values() if isinstance(value, dict) else value
    return 1 + max((_depth(item, levels - 1) for item in items), default=0)
