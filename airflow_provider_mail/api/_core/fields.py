"""The limits and forms of the document as types: checked before anything is sent, in messages that name the field.

Sections "Conventions", "Limits" and the tables of the endpoints.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    JsonValue,
    PlainSerializer,
    StringConstraints,
)

_CONTROL = r"\x00-\x1f\x7f-\x9f"
"""Control characters, for a set in a regular expression. In a header a line break would begin another one."""

ADDRESS_PATTERN = rf"^[^@\s<>,;{_CONTROL}]+@[^@\s<>,;.{_CONTROL}]+(?:\.[^@\s<>,;.{_CONTROL}]+)+$"
"""One ``@``, a domain with a dot, nothing that separates or brackets addresses, no control characters.

The document says "format-validated" and not how. This refuses what cannot be an address and leaves finer judgement
to the service.
"""

PHONE_PATTERN = (
    r"^ *(?:\+ ?)?(?:\([+0-9 ]+\)|[0-9])[0-9 ()./\u00a0\u2010-\u2015\u202f-]*(?:(?i:ext|x|#)[. ]*[0-9]+)? *$"
)
"""Digits as people write them: a plus sign in front, brackets, spaces, dots, slashes, hyphens, an extension.

The document shows no form. This refuses what nobody could dial, such as a word or two numbers in one, and leaves finer
judgement to the service.
"""

PHONE_OR_NOTHING_PATTERN = rf"^$|{PHONE_PATTERN}"

LINE_PATTERN = rf"^[^{_CONTROL}\u2028\u2029]*$"

_WEB_URL_PATTERN = r"^https?://\S+$"
_WEB_URL_OR_NOTHING_PATTERN = r"^(https?://\S+)?$"
_NO_SPACE_PATTERN = r"^\S+$"

FORMS = {
    ADDRESS_PATTERN: "is not an email address",
    PHONE_PATTERN: "is not a phone number",
    PHONE_OR_NOTHING_PATTERN: "is not a phone number",
    LINE_PATTERN: "must be one line without control characters",
    _WEB_URL_PATTERN: "must begin with http:// or https://",
    _WEB_URL_OR_NOTHING_PATTERN: "must be empty or begin with http:// or https://",
    _NO_SPACE_PATTERN: "must not contain white space",
}
"""What a form means, in words."""


def _max_bytes(limit: int) -> AfterValidator:
    def check(value: str) -> str:
        size = len(value.encode())
        if size > limit:
            raise ValueError(f"{size} bytes in UTF-8, at most {limit} are allowed")
        return value

    return AfterValidator(check)


def _alphanumeric(value: str) -> str:
    # Not isalnum(), which takes ½ and ² as well.
    if not value or not all(character.isalpha() or character.isdecimal() for character in value):
        raise ValueError("only letters and digits are allowed")
    return value


_FILE_NAME = re.compile(r"[^<>{}\r\n]{1,250}\.(?:html?|txt|md|j2|jinja2?|mjml)", re.IGNORECASE)


def _no_file_name(value: str) -> str:
    if _FILE_NAME.fullmatch(value.strip()):
        raise ValueError(
            "is only the name of a file, and would be mailed as it is. An operator's own content argument loads a file "
            "whose name ends in .html, .htm or .txt; elsewhere give what is in the file"
        )
    return value


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    for key, value in values.items():
        if not _is_finite(value):
            raise ValueError(f"{key!r} is NaN or infinite, which JSON has no form for: give text, or leave it out")
    return values


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict | list):
        return all(map(_is_finite, value.values() if isinstance(value, dict) else value))
    return True


def _iso_text(value: Any) -> Any:
    # Without this pydantic would read numbers and numeric text as epochs: never meant by the author of a DAG.
    if not isinstance(value, str | datetime):
        raise ValueError("a datetime or ISO 8601 text with a time zone is needed, such as 2026-01-31T09:00:00Z")
    if isinstance(value, str) and not re.match(r"\d{4}-\d\d-\d\d[T ]", value.strip()):
        raise ValueError("not an ISO 8601 date and time such as 2026-01-31T09:00:00Z")
    return value.strip() if isinstance(value, str) else value


def _to_utc_seconds(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC).replace(microsecond=0)
    except OverflowError:
        raise ValueError("lies outside the calendar in UTC") from None


def _as_wire(value: datetime) -> str:
    # Not %Y, which writes the year 999 with three digits.
    return f"{value.year:04}-{value:%m-%dT%H:%M:%SZ}"


def _only_day(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        return value
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    raise ValueError("a date or text of the form YYYY-MM-DD is needed")


def _sender_entry(value: str) -> str:
    if "." not in value.rpartition("@")[2].strip("."):
        raise ValueError("a top-level domain cannot be a sender")
    return value


Text = Annotated[str, StringConstraints(min_length=1)]
"""Required text: not empty."""

Address = Annotated[str, StringConstraints(pattern=ADDRESS_PATTERN)]
"""An email address."""

PhoneNumber = Annotated[str, StringConstraints(pattern=PHONE_PATTERN)]
"""A phone number."""

Line = Annotated[str, StringConstraints(pattern=LINE_PATTERN)]
"""What becomes part of a header, such as a subject: one line."""

FileName = Annotated[str, StringConstraints(min_length=1, pattern=LINE_PATTERN)]
"""The name of an attachment."""

Html = Annotated[str, AfterValidator(_no_file_name)]
"""The content of a mail or a template."""

Params = Annotated[dict[str, JsonValue], AfterValidator(_finite)]
"""Values for tags. JSON has no NaN and no infinity: they would arrive as nothing."""

MAX_MAIL_NAME_BYTES = 200

MailName = Annotated[str, StringConstraints(min_length=1), _max_bytes(MAX_MAIL_NAME_BYTES)]
"""A campaign's name: 200 bytes, unique within the team."""

NewMailName = Annotated[MailName, StringConstraints(pattern=LINE_PATTERN)]
"""The name of a campaign that is created: one line. What exists can be asked for and deleted, whatever its name."""

TemplateName = Annotated[str, StringConstraints(min_length=1, max_length=250)]
"""A template's name: 250. The document wavers between bytes and characters; what exceeds both is refused here."""

DisplayName = Annotated[Line, _max_bytes(100)]
"""The name of a recipient: 100 bytes."""

SenderName = Annotated[Line, _max_bytes(200)]
"""The display name of a sender in the batch form: 200 bytes."""

Label = Annotated[str, AfterValidator(_alphanumeric), _max_bytes(100)]
"""A report label: 100 bytes, letters and digits."""

UniqueMsgId = Annotated[str, StringConstraints(min_length=1), _max_bytes(50)]
"""The caller's own message id: 50 bytes."""

SenderEntry = Annotated[str, StringConstraints(min_length=1, pattern=_NO_SPACE_PATTERN), AfterValidator(_sender_entry)]
"""A sender as it is registered: an address or a domain, not a top-level domain."""

WebUrl = Annotated[str, StringConstraints(pattern=_WEB_URL_PATTERN)]
"""A callback URL."""

WebUrlOrNothing = Annotated[str, StringConstraints(pattern=_WEB_URL_OR_NOTHING_PATTERN)]
"""A callback URL, or empty text where that removes it."""

UtcTime = Annotated[
    AwareDatetime,
    BeforeValidator(_iso_text),
    AfterValidator(_to_utc_seconds),
    PlainSerializer(_as_wire, return_type=str),
]
"""An instant with a zone, sent as ``YYYY-MM-DDThh:mm:ssZ``; fractions of a second are cut off."""

Day = Annotated[date, BeforeValidator(_only_day)]
"""A calendar day in UTC, sent as ``YYYY-MM-DD``."""


def _no_boolean(value: Any) -> Any:
    # To Python, and so to pydantic, true is a number: 1.
    if isinstance(value, bool):
        raise ValueError("a whole number is needed")
    return value


WholeNumber = Annotated[int, BeforeValidator(_no_boolean)]
"""A count or a state in an answer; also as text, but not true or false."""


def _nullable(read: Callable[[Any], datetime]) -> BeforeValidator:
    return BeforeValidator(lambda value: None if value in (None, "", 0, "0") else read(value))


def _from_epoch_millis(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromtimestamp(int(value) / 1000, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise ValueError("milliseconds since 1970 are needed") from None


def _from_text(value: Any) -> datetime:
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise ValueError("not a date and time") from None
    # The document shows times without a zone (a template's createDate) beside times in UTC: all are read as UTC.
    return time if time.tzinfo else time.replace(tzinfo=UTC)


EpochMillis = Annotated[datetime | None, _nullable(_from_epoch_millis)]
"""Milliseconds since 1970 on the wire, an aware datetime here; absent, empty or 0 is ``None``."""

ServiceTime = Annotated[datetime | None, _nullable(_from_text)]
"""A time as text on the wire, an aware datetime here (UTC where no zone is given); absent or empty is ``None``."""
