"""The texts of a mail: whether they show anything, and their tags."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from html.parser import HTMLParser
from typing import Any

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
    return all(character.isspace() or unicodedata.category(character) in ("Cc", "Cf") for character in text)


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
