"""Personalization tags, written ``{{tag}}`` (specification, "Email template", "Transactional email")."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_TAG = re.compile(r"\{\{([^{}]++)\}\}")


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
