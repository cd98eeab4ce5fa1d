"""Parses addresses in the forms that people write: ``Name <address>``, or several in one text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from email.errors import MessageError
from email.header import decode_header, make_header
from email.utils import unquote

from airflow_provider_mail.api._core.addresses import CONTROL

MAX_NAME_CHARACTERS_READ = 1000
"""Maximum number of characters of a display name that are decoded."""

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
