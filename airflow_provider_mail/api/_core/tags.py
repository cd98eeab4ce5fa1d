"""Personalization tags, written ``{{tag}}`` (document, "Email template", "Transactional email")."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TAG = re.compile(r"\{\{([^{}]++)\}\}")


def tags_of(*texts: str | None) -> list[str]:
    """The names of the tags in these texts, each once, in the order in which they come."""
    names = (name.strip() for text in texts for name in _TAG.findall(text or ""))
    return list(dict.fromkeys(filter(None, names)))


def fill(text: str, values: Mapping[str, Any]) -> str:
    """The text with its tags filled in, for a preview; tags without a value stay as they are."""
    return _TAG.sub(lambda tag: str(values.get(tag[1].strip(), tag[0])), text)
