"""Email addresses: which texts are valid, what is wrong with others, and which addresses are the same person's."""

from __future__ import annotations

import re
import unicodedata

CONTROL = r"\x00-\x1f\x7f-\x9f"
"""Control characters, for a character class. In a header a line break would start another header."""

# Zero-width characters, soft hyphens, byte order marks and the like: addresses that look the same would differ.
_INVISIBLE = r"\p{Cf}\p{Default_Ignorable_Code_Point}\u2800"
_NOWHERE = rf"@\s<>,;{_INVISIBLE}{CONTROL}"

ADDRESS_PATTERN = rf"^[^{_NOWHERE}]+@[^.{_NOWHERE}]+(?:\.[^.{_NOWHERE}]+)+$"
"""One ``@``, a domain with a dot, no separators, brackets, blanks, invisible or control characters.

The specification says "format-validated" but not how. This rejects what cannot be an address; the service checks the
rest. The pattern is for pydantic's regular expressions, which support Unicode properties.
"""

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
    """Return the spellings in which the service may have an address: as given, then in NFC and with either domain."""
    composed = unicodedata.normalize("NFC", address.strip())
    local, at, domain = composed.rpartition("@")
    domains = (domain, _ascii_domain(domain), _unicode_domain(domain))
    return list(dict.fromkeys((address, address.strip(), *(local + at + domain for domain in domains))))


def _unicode_domain(domain: str) -> str:
    if "xn--" not in domain.lower():
        return domain
    import idna

    try:
        return idna.decode(domain)
    except UnicodeError:
        return domain


def address_problem(address: str) -> str:
    """Return why a text does not match `ADDRESS_PATTERN`, without the text: for instance, an invisible character."""
    problem = "is not an email address"
    if not (stripped := address.strip()):
        return problem
    if stripped != address:
        end, character = ("begins", address[0]) if address[0].isspace() else ("ends", address[-1])
        return f"{problem}: it {end} with {_name(character)}"
    invalid = next((character for character in address if _is_invalid(character)), None)
    return problem if invalid is None else f"{problem}: it contains {_name(invalid)}"


def _is_invalid(character: str) -> bool:
    return unicodedata.category(character) in _INVALID_CATEGORIES or _IGNORABLE.match(character) is not None


def _name(character: str) -> str:
    if common := _COMMON_NAMES.get(character):
        return common
    return f"{unicodedata.name(character, 'a control character')} (U+{ord(character):04X})"
