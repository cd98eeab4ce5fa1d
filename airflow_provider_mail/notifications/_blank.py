"""Detects arguments that a template has rendered to nothing."""

from __future__ import annotations

from typing import Any

_NOTHING = frozenset({"", "None", "null", "nan", "NaN", "NaT", "<NA>", "undefined"})


def is_blank(value: Any) -> bool:
    """Return whether an argument is missing: templates render a missing value to nothing, or to a text like ``None``.

    :param value: the argument.
    """
    return value is None or (isinstance(value, str) and value.strip() in _NOTHING)
