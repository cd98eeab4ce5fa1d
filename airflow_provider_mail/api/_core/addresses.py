"""Email addresses: which texts are valid, what is wrong with others, and which addresses are the same person's."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from email.errors import MessageError
from email.header import decode_header, make_header
from email.utils import unquote

CONTROL = r"\x00-\x1f\x7f-\x9f"
"""Control characters, for a character class. In a header a line break would start another header."""

# Zero-width characters, soft hyphens, byte order marks and the like: addresses that look the same would differ.
_INVISIBLE = r"\p{Cf}\p{Default_Ignorable_Code_Point}\u2800"
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
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)
_INVALID_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
_COMMON_NAMES = {" ": "a space", "\t": "a tab", "\n": "a line break", "\r": "a line break"}

_MAX_DOMAIN_CHARACTERS = 253


def address_key(address: str) -> str:
    """Return the key by which addresses are compared: addresses with the same key are the same person's.

    Surrounding white space, case and the form of Unicode (NFC, NFD) do not matter, nor whether the domain is written in
    Unicode or in its ASCII form (IDNA 2008): ``Ann@München.de`` and ``ann@xn--mnchen-3ya.de`` have the same key.
    Different letters are different people: ``strasse`` is not ``straße``. The key is not the spelling to send; see
    docs/contacts.md.

    :param address: an address, or a domain for which a sender is verified; it need not be valid.
    """
    key = address.strip().lower()
    # The hot path: an ASCII address needs no conversion.
    return key if key.isascii() else _unicode_key(address.strip())


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


def check_lengths(address: str) -> str:
    """Return an address that matches `ADDRESS_PATTERN`, unless a part is too long or its domain cannot exist.

    :raises ValueError: saying what is wrong, without the address.
    """
    if len(address) <= MAX_LABEL_BYTES and address.isascii():
        return address  # The hot path: no part can be too long.
    local, _, domain = address.rpartition("@")
    if not domain.isascii():
        import idna

        try:
            domain = idna.encode(domain, uts46=True).decode()
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
