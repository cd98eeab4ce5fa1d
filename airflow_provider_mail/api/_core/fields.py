"""The limits and formats of the specification as types, checked before a request is sent.

Sections "Conventions", "Limits" and the tables of the endpoints.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, JsonValue, PlainSerializer, StringConstraints

from airflow_provider_mail.api._core.addresses import ADDRESS_PATTERN, CONTROL, address_problem, check_lengths
from airflow_provider_mail.api._core.content import is_blank

PHONE_PATTERN = (
    r"^ *(?:\+ ?)?(?:\([+0-9 ]+\)|[0-9])[0-9 ()./\u00a0\u2010-\u2015\u202f-]*(?:(?i:ext|x|#)[. ]*[0-9]+)? *$"
)
"""Digits with an optional plus sign, brackets, spaces, dots, slashes, hyphens and an extension.

The specification shows no format. This rejects what cannot be dialed, such as a word, or two numbers in one; the
service checks the rest.
"""

OPTIONAL_PHONE_PATTERN = rf"^$|{PHONE_PATTERN}"

LINE_PATTERN = rf"^[^{CONTROL}\u2028\u2029]*$"

_WEB_URL_PATTERN = r"^https?://\S+$"
_OPTIONAL_WEB_URL_PATTERN = r"^(https?://\S+)?$"
_NO_SPACE_PATTERN = r"^\S+$"

PATTERN_MESSAGES: dict[str, str | Callable[[str], str]] = {
    ADDRESS_PATTERN: address_problem,
    PHONE_PATTERN: "is not a phone number",
    OPTIONAL_PHONE_PATTERN: "is not a phone number",
    LINE_PATTERN: "must be one line without control characters",
    _WEB_URL_PATTERN: "must begin with http:// or https://",
    _OPTIONAL_WEB_URL_PATTERN: "must be empty or begin with http:// or https://",
    _NO_SPACE_PATTERN: "must not contain white space",
}
"""The message for a value that does not match a pattern, or a function that creates the message from the value."""


def _max_bytes(limit: int) -> AfterValidator:
    def check(value: str) -> str:
        size = len(value.encode())
        if size > limit:
            raise ValueError(f"{size} bytes in UTF-8, at most {limit} are allowed")
        return value

    return AfterValidator(check)


def stable_name(value: str) -> str:
    """Return a name in NFC, with single spaces between its words and none at its ends."""
    return " ".join(unicodedata.normalize("NFC", value).split())


def _stable_name(value: str) -> str:
    if value != stable_name(value):
        raise ValueError(
            "has spaces at an end, several in a row, other white space or characters that are not in NFC, which the "
            f"service may rewrite: write {stable_name(value)!r}"
        )
    return value


def _alphanumeric(value: str) -> str:
    # Not isalnum(), which accepts ½ and ², too.
    if not value or not all(character.isalpha() or character.isdecimal() for character in value):
        raise ValueError("only letters and digits are allowed")
    return value


_FILE_NAME = re.compile(r"[^<>{}\r\n]{1,250}\.(?:html?|txt|md|j2|jinja2?|mjml)", re.IGNORECASE)


def _no_file_name(value: str) -> str:
    if _FILE_NAME.fullmatch(value.strip()):
        raise ValueError(
            "is only the name of a file, which would be sent as it is. An operator's own content argument loads a file "
            "whose name ends in .html, .htm or .txt; elsewhere pass the content of the file"
        )
    return value


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    for key, value in values.items():
        if not _is_finite(value):
            raise ValueError(f"{key!r} is NaN or infinite, which JSON cannot represent: pass text, or omit it")
    return values


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict | list):
        return all(map(_is_finite, value.values() if isinstance(value, dict) else value))
    return True


def _iso_text(value: Any) -> Any:
    # Without this, pydantic would accept numbers and numeric text as epochs, which DAG authors do not intend.
    if not isinstance(value, str | datetime):
        raise ValueError("must be a datetime or ISO 8601 text with a time zone, such as 2026-01-31T09:00:00Z")
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
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    # Python parses other forms, too; only this one is in the specification.
    with suppress(ValueError):
        if isinstance(value, str) and re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
            return date.fromisoformat(value)
    raise ValueError("is not a date of the form YYYY-MM-DD")


def _sender_entry(value: str) -> str:
    if "." not in value.rpartition("@")[2].strip("."):
        raise ValueError("a top-level domain cannot be a sender")
    return value


def _none_if_blank(value: Any) -> Any:
    return None if isinstance(value, str) and is_blank(value) else value


OMIT_BLANK = BeforeValidator(_none_if_blank)
"""For display names: a blank one is left out, so that the service shows the address or its default."""

Text = Annotated[str, StringConstraints(min_length=1)]
"""Text that must not be empty."""

Address = Annotated[str, StringConstraints(pattern=ADDRESS_PATTERN), AfterValidator(check_lengths)]
"""An email address. It is sent as it is spelled."""

PhoneNumber = Annotated[str, StringConstraints(pattern=PHONE_PATTERN)]
"""A phone number."""

Line = Annotated[str, StringConstraints(pattern=LINE_PATTERN)]
"""Text that becomes part of a header, such as a subject: one line without control characters."""

FileName = Annotated[str, StringConstraints(min_length=1, pattern=LINE_PATTERN)]
"""The name of an attachment."""

Html = Annotated[str, AfterValidator(_no_file_name)]
"""The content of a mail or a template."""

Params = Annotated[dict[str, JsonValue], AfterValidator(_finite)]
"""Values for tags; NaN and infinity are rejected, because JSON cannot represent them."""

LanguageCode = Literal[
    "zh-cn", "en", "ja", "ko", "de", "tt", "es", "zh-tw", "ar", "pt-br", "id", "vi", "th", "fr"
]  # fmt: skip
"""The languages of system modules, such as the unsubscribe link."""

MAX_MAIL_NAME_BYTES = 200

MailName = Annotated[str, StringConstraints(min_length=1), _max_bytes(MAX_MAIL_NAME_BYTES)]
"""A campaign's name: at most 200 bytes, unique within the team."""

NewMailName = Annotated[MailName, StringConstraints(pattern=LINE_PATTERN), AfterValidator(_stable_name)]
"""The name of a new campaign: one line that a service has no reason to rewrite. Existing campaigns may have others."""

TemplateName = Annotated[str, StringConstraints(min_length=1, max_length=250)]
"""A template's name: at most 250 characters (the specification says "bytes/characters")."""

MAX_DISPLAY_NAME_BYTES = 100

DisplayName = Annotated[Line, _max_bytes(MAX_DISPLAY_NAME_BYTES)]
"""The name of a recipient."""

MAX_SENDER_NAME_BYTES = 200

SenderName = Annotated[Line, _max_bytes(MAX_SENDER_NAME_BYTES)]
"""The display name of a sender in the batch form."""

Label = Annotated[str, AfterValidator(_alphanumeric), _max_bytes(100)]
"""A report label: at most 100 bytes, letters and digits only."""

UniqueMsgId = Annotated[str, StringConstraints(min_length=1), _max_bytes(50)]
"""The caller's message id: at most 50 bytes."""

SenderEntry = Annotated[str, StringConstraints(min_length=1, pattern=_NO_SPACE_PATTERN), AfterValidator(_sender_entry)]
"""A sender entry: an address or a domain, not a top-level domain."""

WebUrl = Annotated[str, StringConstraints(pattern=_WEB_URL_PATTERN)]
"""A callback URL."""

OptionalWebUrl = Annotated[str, StringConstraints(pattern=_OPTIONAL_WEB_URL_PATTERN)]
"""A callback URL, or empty text, which removes it."""

UtcTime = Annotated[
    AwareDatetime,
    BeforeValidator(_iso_text),
    AfterValidator(_to_utc_seconds),
    PlainSerializer(_as_wire, return_type=str),
]
"""A time with a zone, sent as ``YYYY-MM-DDThh:mm:ssZ``; fractions of a second are truncated."""

Day = Annotated[date, BeforeValidator(_only_day)]
"""A calendar day in UTC, sent as ``YYYY-MM-DD``."""


def _no_boolean(value: Any) -> Any:
    # In Python, and therefore in pydantic, True equals 1.
    if isinstance(value, bool):
        raise ValueError("must be a whole number")
    return value


WholeNumber = Annotated[int, BeforeValidator(_no_boolean)]
"""A count or a state in a response, as a number or text; true and false are rejected."""


_MISSING = (None, "", 0, "0")


def epoch_millis(value: Any) -> datetime | None:
    """Parse milliseconds since 1970, which may be missing: absent, empty or 0 is ``None``.

    :raises ValueError: they are not a time.
    """
    if value in _MISSING:
        return None
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromtimestamp(int(value) / 1000, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise ValueError("must be milliseconds since 1970") from None


def time_from_text(value: Any) -> datetime:
    """Parse a time of the service: ISO 8601, in UTC if it has no zone.

    :raises ValueError: it is not a time.
    """
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise ValueError("not a date and time") from None
    # The specification shows times without a zone (a template's createDate) and times in UTC: all are read as UTC.
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def service_time(value: Any) -> datetime | None:
    """Parse a time of the service, which may be missing: absent, empty or 0 is ``None``.

    :raises ValueError: it is not a time.
    """
    return None if value in _MISSING else time_from_text(value)


EpochMillis = Annotated[datetime | None, BeforeValidator(epoch_millis)]
"""Milliseconds since 1970 on the wire, an aware datetime here; absent, empty or 0 is ``None``."""

ServiceTime = Annotated[datetime | None, BeforeValidator(service_time)]
"""A time as text on the wire, an aware datetime here (in UTC if it has no zone); absent or empty is ``None``."""
