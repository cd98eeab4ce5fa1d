"""Parses arguments that name contact lists: one name, several, or the text to which a template renders them."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping
from typing import Any

MAX_CHARACTERS = 100_000


def list_names(argument: str, value: Any) -> list[str] | None:
    """Return the names in the value of an argument.

    ``["a", "b"]`` is two names, ``"a"`` is one. A template such as ``"{{ params.lists }}"`` renders a list as text
    unless the DAG sets ``render_template_as_native_obj``, so text that is a list in the syntax of Python or JSON is
    parsed. Other text is not split, since commas and spaces may be part of a name.

    :param argument: the name of the argument, for error messages.
    :param value: its rendered value.
    :return: the names; ``None`` for ``None`` and empty text.
    :raises MailValidationError: when the value is neither text nor a list of texts.
    """
    from airflow_provider_mail.api.errors import MailValidationError

    if isinstance(value, str):
        value = _read(value.strip())
    if value is None:
        return None
    if isinstance(value, Mapping | bytes) or not isinstance(value, Iterable):
        raise MailValidationError(f"{argument}: must be a list of names or one name, not {type(value).__name__}")
    names = list(value)
    if not all(isinstance(name, str) for name in names):
        other_type = next(type(name).__name__ for name in names if not isinstance(name, str))
        raise MailValidationError(f"{argument}: every name must be text, but one is {other_type}")
    return names


def audience_lists(value: Any) -> dict[str, list[str]]:
    """Return the lists of an audience, for the fields of a campaign.

    :param value: the result of an import, or the results of a mapped one.
    :raises MailValidationError: when it is not, or the import was a dry run.
    """
    from airflow_provider_mail.api.errors import MailValidationError

    results = [value] if isinstance(value, Mapping) else list(value)
    lists: dict[str, list[str]] = {"send_list_names": [], "repel_list_names": []}
    for result in results:
        if result.get("dry_run"):
            raise MailValidationError("audience: the import was a dry run, which makes no list")
        for argument, names in lists.items():
            names += [name for name in list_names(argument, result.get(argument)) or [] if name not in names]
    if not lists["send_list_names"]:
        raise MailValidationError(
            "audience: the import has no list; give it a list_name. It is the result of a task that imports contacts, "
            "such as audience=task.output"
        )
    return lists


def _read(text: str) -> Any:
    if not text:
        return None
    if (text[0], text[-1]) in (("[", "]"), ("(", ")")) and len(text) <= MAX_CHARACTERS:
        for read in (json.loads, ast.literal_eval):
            try:
                value = read(text)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
            if isinstance(value, list | tuple):
                return value
    return [text]
