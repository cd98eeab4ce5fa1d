"""The limits and forms of the specification as types, checked before a request is sent; addresses and texts of mails.

Sections "Conventions", "Limits" and the tables of the endpoints.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from email.errors import MessageError
from email.header import decode_header, make_header
from email.utils import unquote
from html.parser import HTMLParser
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, AwareDatetime, BeforeValidator, JsonValue, PlainSerializer, StringConstraints

CONTROL = r"\x00-\x1f\x7f-\x9f"
"""Control characters, for a character class. In a header a line break would start another header."""

# Zero-width characters, soft hyphens, byte order marks and the like: addresses that look the same would differ. And
# what stands for bytes that could not be decoded.
_INVISIBLE = r"\p{Cf}\p{Co}\p{Default_Ignorable_Code_Point}\u2800\ufffd"
# Words of the characters that RFC 5322 and 6531 allow, with dots between them; or text in quotation marks.
_WORD = rf"[^.@\s()\[\]<>,;:\\\"{_INVISIBLE}{CONTROL}]+"
_LOCAL = rf"(?:{_WORD}(?:\.{_WORD})*|\"[^@\s<>,;\\\"{_INVISIBLE}{CONTROL}]+\")"
# Letters and digits of any script, with hyphens inside. (`--` subtracts.)
_LETTER = r"[\p{L}--\p{Default_Ignorable_Code_Point}]"
_FIRST = r"[\p{L}\p{N}--\p{Default_Ignorable_Code_Point}]"
_END = r"[\p{L}\p{M}\p{N}--\p{Default_Ignorable_Code_Point}]"
_INSIDE = r"[\p{L}\p{M}\p{N}\u30fb\u00b7\---\p{Default_Ignorable_Code_Point}]*"
_LABEL = rf"{_FIRST}(?:{_INSIDE}{_END})?"
# The last label has a letter: 192.0.2.1 is not the name of a domain.
_LAST_LABEL = rf"(?:\p{{N}}{_INSIDE})?{_LETTER}(?:{_INSIDE}{_END})?"

ADDRESS_PATTERN = rf"^{_LOCAL}@(?:{_LABEL}\.)+{_LAST_LABEL}$"
"""The characters of an address, and their order; `check_lengths` checks the rest.

The specification says "format-validated" but not how. The two reject what no server can have; the service checks the
rest. The pattern is for pydantic's regular expressions, which support Unicode properties.
"""

MAX_LOCAL_BYTES, MAX_ADDRESS_BYTES, MAX_LABEL_BYTES = 64, 254, 63
"""The limits of RFC 5321 and of the domain name system, the domain in its ASCII form."""

# Python's `re` does not support these properties. Other characters of categories C and Z are found by category.
_IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufffd\U000e0000-\U000e0fff]"
)
_INVALID_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Zl", "Zp", "Zs"})
_COMMON_NAMES = {" ": "a space", "\t": "a tab", "\n": "a line break", "\r": "a line break"}

_MAX_DOMAIN_CHARACTERS = 253
_MAX_CHARACTERS = 1000


def address_key(address: str) -> str:
    """Return the key by which addresses are compared: addresses with the same key are the same person's.

    Surrounding white space, case, a dot at the end and the form of Unicode (NFC, NFD) do not matter, nor whether the
    domain is written in Unicode or in its ASCII form (IDNA 2008): ``Ann@München.de`` and ``ann@xn--mnchen-3ya.de`` have
    the same key.
    Different letters are different people: ``strasse`` is not ``straße``. The key is not the spelling to send; see
    docs/contacts.md. Of a text that is too long for an address, only white space and case do not matter.

    :param address: an address, or a domain for which a sender is verified; it need not be valid.
    """
    key = address.strip().lower()
    # The hot path: an ASCII address needs no conversion. In a long text, that of combining marks could take hours.
    is_plain = key.isascii() or len(key) > _MAX_CHARACTERS
    return (key if is_plain else _unicode_key(address.strip())).rstrip(".")


def _unicode_key(address: str) -> str:
    # Not casefold(), which converts ``ß`` to ``ss``.
    local, at, domain = unicodedata.normalize("NFC", address).lower().rpartition("@")
    return unicodedata.normalize("NFC", local) + at + _ascii_domain(domain)


def _ascii_domain(domain: str) -> str:
    if domain.isascii() or len(domain) > _MAX_DOMAIN_CHARACTERS:
        return domain
    # Imported here: most addresses are ASCII, and DAG files are parsed often.
    import idna

    try:
        return idna.encode(domain, uts46=True).decode()
    except UnicodeError:
        return unicodedata.normalize("NFC", domain)


def spellings(address: str) -> list[str]:
    """Return the spellings in which the service may have an address: as given, in NFC, as it is imported."""
    composed = unicodedata.normalize("NFC", address.strip())
    local, at, domain = composed.rpartition("@")
    domains = (domain, _ascii_domain(domain), _unicode_domain(domain))
    others = (local + at + domain for domain in domains)
    return list(dict.fromkeys((address, address.strip(), *others, address_key(address))))


def _unicode_domain(domain: str) -> str:
    if "xn--" not in domain.lower():
        return domain
    import idna

    try:
        return idna.decode(domain)
    except UnicodeError:
        return domain


# Linear in any text: error messages may have a hundred kilobytes without a space.
_ADDRESS = re.compile(r"(?<![^\s@<>,;:\"'()\[\]])([^\s@<>,;:\"'()\[\]]++)@(?=([\w-][\w.-]*+))")


def without_addresses(text: str, allowed: Collection[str] = ()) -> str:
    """Replace the local part of addresses, so that personal data does not reach logs."""
    allowed_keys = {address_key(address) for address in allowed}

    def cut(match: re.Match[str]) -> str:
        return (
            match[0] if allowed_keys and address_key(f"{match[1]}@{match[2]}".rstrip(".")) in allowed_keys else "***@"
        )

    return _ADDRESS.sub(cut, text)


def check_lengths(address: str) -> str:
    """Return an address that matches `ADDRESS_PATTERN`, unless a part is too long or its domain cannot exist.

    :raises ValueError: saying what is wrong, without the address.
    """
    is_encoded = "xn--" in address.lower()
    if len(address) <= MAX_LABEL_BYTES and address.isascii() and not is_encoded:
        return address  # The hot path: no part can be too long.
    local, _, domain = address.rpartition("@")
    if is_encoded or not domain.isascii():
        import idna

        try:
            # Decoded first, since encoding leaves what is encoded as it is.
            domain = idna.encode(idna.decode(domain, uts46=True), uts46=True).decode()
        except UnicodeError:
            raise ValueError("is not an email address: no domain can have such a name") from None
    limits = [
        ("the part before the @", len(local.encode()), MAX_LOCAL_BYTES),
        ("a part of the domain", max(map(len, domain.split("."))), MAX_LABEL_BYTES),
        ("it", len(local.encode()) + 1 + len(domain), MAX_ADDRESS_BYTES),
    ]
    for part, size, limit in limits:
        if size > limit:
            raise ValueError(f"is not an email address: {part} has {size} bytes, at most {limit} are allowed")
    return address


def address_problem(address: str) -> str:
    """Return why a text does not match `ADDRESS_PATTERN`, without the text: for instance, an invisible character."""
    problem = "is not an email address"
    if not (stripped := address.strip()):
        return problem
    if address[0] in "'\"" and address[-1] == address[0]:
        return f"{problem}: it is in quotation marks"
    if address.lower().startswith("mailto:"):
        return f"{problem}: leave out mailto:"
    if stripped != address:
        end, character = ("begins", address[0]) if address[0].isspace() else ("ends", address[-1])
        return f"{problem}: it {end} with {_name(character)}"
    invalid = next((character for character in address if _is_invalid(character)), None)
    if invalid is not None:
        return f"{problem}: it contains {_name(invalid)}"
    local, at, domain = address.rpartition("@")
    if at and (".." in local or local.startswith(".") or local.endswith(".")):
        return f"{problem}: a dot stands alone before the @"
    if at and "/" in domain:
        return f"{problem}: its domain contains a slash"
    if at and any(label.startswith("-") or label.endswith("-") for label in domain.split(".")):
        return f"{problem}: a part of the domain begins or ends with a hyphen"
    return problem


def _is_invalid(character: str) -> bool:
    return unicodedata.category(character) in _INVALID_CATEGORIES or _IGNORABLE.match(character) is not None


def _name(character: str) -> str:
    if common := _COMMON_NAMES.get(character):
        return common
    return f"{unicodedata.name(character, 'a control character')} (U+{ord(character):04X})"


MAX_NAME_CHARACTERS_READ = 1000

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SEPARATORS = re.compile(r'\\.|[",;]', re.DOTALL)
_GROUP = re.compile(r'(?:"(?:[^"\\]|\\.)*+"|[^"<>@:])*+:', re.DOTALL)
_BREAKS = re.compile(rf"[{CONTROL}\u2028\u2029]")


def split_mailboxes(text: str) -> Iterator[str]:
    """Split at commas and semicolons outside quotation marks, without the names of groups."""
    separators = [(match.start(), match[0]) for match in _SEPARATORS.finditer(text)]
    marks_left = sum(separator == '"' for _, separator in separators)
    start = 0
    for place, separator in [*separators, (len(text), ",")]:
        if separator == '"':
            marks_left -= 1
        elif separator in (",", ";") and marks_left % 2 == 0:
            part = text[start:place].strip()
            start = place + 1
            # Without the semicolon that ends a group, the colon may belong to a name.
            if (group := _GROUP.match(part)) and ("<" not in part or ";" in text):
                part = part[group.end() :].strip()
            if part:
                yield part


def mailbox(field: str, text: str, skipped: list[str]) -> tuple[str, str]:
    """Return address and display name.

    Not with `email.utils.parseaddr`: its result for malformed text depends on the Python release, and may be another
    address than the intended one.
    """
    comment = ""
    if text.endswith(")"):
        before, _, comment = text[:-1].rpartition("(")
        text = before if before.endswith((" ", ">")) else ""
    text = text.strip()
    if not text.endswith(">"):
        return text, _decoded(field, comment, skipped)
    name, _, address = text[:-1].rpartition("<")
    if {"<", ">"} & {*_QUOTED.sub("", name), *address}:
        return text, ""
    return address.strip(), _decoded(field, unquote(name.strip()) or comment, skipped)


def _decoded(field: str, name: str, skipped: list[str]) -> str:
    """Return a display name on one line, with words that are encoded for a header (RFC 2047) decoded."""
    try:
        return one_line(str(make_header(decode_header(name[:MAX_NAME_CHARACTERS_READ]))))
    except (MessageError, LookupError, ValueError):
        skipped.append(f"{field}: the name cannot be decoded")
        return ""


def one_line(text: str) -> str:
    text = _BREAKS.sub(" ", text).encode(errors="replace").decode()
    return " ".join(text.split())


_SHOWN = frozenset(
    {"audio", "button", "canvas", "embed", "iframe", "img", "input", "meter", "object", "progress", "svg", "video"}
)
"""Elements that show something without any text."""

_HIDDEN = frozenset({"head", "script", "style", "template", "title"})
"""Elements whose text is not shown."""

NOTHING = frozenset({"None", "null", "nan", "NaN", "NaT", "<NA>", "undefined"})
"""The texts to which templates render a missing value. Exactly these: ``Null`` is a person's name."""


def is_nothing(value: Any) -> bool:
    """Return whether a value is missing: ``None``, blank, or a text to which templates render a missing value."""
    return value is None or (isinstance(value, str) and (is_blank(value) or value.strip() in NOTHING))


def is_blank(text: str) -> bool:
    """Return whether a text is empty or has only white space, control and zero-width characters."""
    return not text[:1].isalnum() and all(
        character.isspace() or unicodedata.category(character) in ("Cc", "Cf") for character in text
    )


def is_blank_html(html: str) -> bool:
    """Return whether HTML shows nothing: no text, no picture, no background picture. CSS is not evaluated.

    :param html: a document, a part of one, or plain text.
    """
    parser = _Parser()
    try:
        parser.feed(html)
        parser.close()
    except _SomethingShown:
        return False
    return True


class _SomethingShown(Exception):
    """Ends parsing early: most documents show something near their beginning."""


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._within: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        has_image = any(name == "background" or "url(" in (value or "") for name, value in attrs)
        if tag in _SHOWN or has_image:
            raise _SomethingShown
        if tag == "body":
            self._within.clear()  # whether or not the head was closed
        elif tag in _HIDDEN:
            self._within.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._within:
            del self._within[self._within.index(tag) :]

    def handle_data(self, data: str) -> None:
        if not self._within and not is_blank(data):
            raise _SomethingShown


_TAG = re.compile(r"\{\{([^{}]++)\}\}")
"""A personalization tag, written ``{{tag}}`` (specification, "Email template", "Transactional email")."""


def tags_of(*texts: str | None) -> list[str]:
    """Return the names of the tags in the texts, each once, in order of appearance.

    :param texts: subjects and contents; ``None`` is skipped.
    """
    names = (name.strip() for text in texts for name in _TAG.findall(text or ""))
    return list(dict.fromkeys(filter(None, names)))


def tag_names(value: Any) -> frozenset[str]:
    """Return the names of tags in an argument or a connection's field: a list of names, or comma-separated text.

    :param value: the value; ``None`` for no tags.
    """
    names: Iterable[Any] = value.split(",") if isinstance(value, str) else value or ()
    return frozenset(name for item in names if (name := str(item).strip().strip("{}").strip()))


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
        if type(value) is not str and not _is_finite(value):
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


def exact_times(values: Sequence[Any]) -> list[datetime | None] | None:
    """Parse many times in a tenth of the time; ``None`` unless each is null or ISO 8601 with date, time and zone."""
    with suppress(msgspec.MsgspecError, TypeError, ValueError):
        # Further digits would be rounded; Python cuts them off.
        if max(map(len, filter(None, values)), default=0) <= len("2026-03-01T12:30:00.123456Z"):
            return _decode_times(msgspec.json.encode(values))
    return None


_decode_times = msgspec.json.Decoder(list[Annotated[datetime, msgspec.Meta(tz=True)] | None]).decode

EpochMillis = Annotated[datetime | None, BeforeValidator(epoch_millis)]
"""Milliseconds since 1970 on the wire, an aware datetime here; absent, empty or 0 is ``None``."""

ServiceTime = Annotated[datetime | None, BeforeValidator(service_time)]
"""A time as text on the wire, an aware datetime here (in UTC if it has no zone); absent or empty is ``None``."""
