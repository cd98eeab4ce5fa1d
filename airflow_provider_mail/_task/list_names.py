"""Names of contact lists as a task gets them: one, several, or as the text that a template makes of either."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping
from typing import Any

MOST_CHARACTERS = 100_000


def list_names(argument: str, given: Any) -> list[str] | None:
    """The names that an argument gives.

    ``["a", "b"]`` is taken as it is, ``"a"`` is one name. A template such as ``"{{ params.lists }}"`` turns a list into
    text, unless the DAG says ``render_template_as_native_obj``: text that is a list of texts in Python's form or in
    JSON is that list. Nothing else is read into a text, since commas and spaces may be part of a name.

    :param argument: its name, for messages.
    :param given: the rendered value. ``None`` and empty text: no list is named.
    :raises MailValidationError: when it is none of these.
    """
    from airflow_provider_mail.api.errors import MailValidationError

    if isinstance(given, str):
        given = _read(given.strip())
    if given is None:
        return None
    if isinstance(given, Mapping | bytes) or not isinstance(given, Iterable):
        raise MailValidationError(f"{argument}: a list of names is needed, or one name, not {type(given).__name__}")
    names = list(given)
    if not all(isinstance(name, str) for name in names):
        odd = next(type(name).__name__ for name in names if not isinstance(name, str))
        raise MailValidationError(f"{argument}: every name must be text, and one is of type {odd}")
    return names


def _read(text: str) -> Any:
    if not text:
        return None
    if (text[0], text[-1]) in (("[", "]"), ("(", ")")) and len(text) <= MOST_CHARACTERS:
        for read in (json.loads, ast.literal_eval):
            try:
                value = read(text)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
            if isinstance(value, list | tuple):
                return value
    return [text]
