"""Detects arguments that people would see and that render to nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_mail.api._core.blank import is_blank, is_blank_html

HTML_ARGUMENTS = ("content", "template_content")

TEXT_ARGUMENTS = (*HTML_ARGUMENTS, "subject", "template_subject", "sender_name")
"""Arguments that must not be blank, even where the DAG file says so."""

NOTHING = frozenset({"None", "null", "nan", "NaN", "NaT", "<NA>", "undefined"})
"""What templates make of a missing value. Exactly these: ``Null`` is a person's name."""


def blank_values(argument: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and the description of each value that is nothing.

    :param argument: the name of the argument, at the beginning of each path.
    :param value: its value; a list or dictionary is searched.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from blank_values(f"{argument}.{key}", item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from blank_values(f"{argument}[{index}]", item)
    elif value is None:
        yield argument, "is None"
    elif isinstance(value, str):
        if value.strip() in NOTHING:
            yield argument, f"is the text {value.strip()!r}"
        elif is_blank(value):
            yield argument, "is empty" if not value else "is blank"
        elif argument in HTML_ARGUMENTS and is_blank_html(value):
            yield argument, "shows nothing"


def newly_blank(argument: str, written: Any, rendered: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and the description of each value that templates have made nothing of.

    ``"None"`` as the value of an argument, and an empty value in a dictionary, are intended where the DAG file itself
    has them. Lists and dictionaries are searched only if they are written there: the output of another task may have
    any values in it.

    :param argument: the name of the argument.
    :param written: its value before rendering.
    :param rendered: its value after rendering.
    """
    searched = isinstance(written, Mapping | list | tuple)
    intended = {path for path, _ in blank_values(argument, written)}
    if argument in TEXT_ARGUMENTS and str(written).strip() not in NOTHING:
        intended.clear()
    for path, problem in blank_values(argument, rendered):
        if path not in intended and (searched or path == argument):
            yield path, problem
