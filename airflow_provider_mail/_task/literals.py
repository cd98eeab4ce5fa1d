"""Checks arguments: literal values when the DAG file is parsed, rendered text when the task starts.

The signature of ``__init__`` is the declaration: the type of an argument says what it takes, and ``LIMITS`` which type
of a request has its limits. A template and the output of another task are not known yet, so they are not checked.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, get_args

from airflow_provider_mail._task.arguments import SEEN_ARGUMENTS

LIMITS = {
    "campaign": "Label",
    "category": "Label",
    "end_day": "Day",
    "from_domain": "SenderEntry",
    "language_code": "LanguageCode",
    "mail_name": "MailName",
    "reply_to": "Address",
    "send_date": "UtcTime",
    "sender_email": "SenderEntry",
    "sender_mail": "Address",
    "sender_name": "Line",
    "start_day": "Day",
    "subject": "Line",
    "template_name": "TemplateName",
    "template_subject": "Line",
    "trans_callback_url": "WebUrl",
    "unique_msg_id": "UniqueMsgId",
}
"""Arguments whose limits are those of a field of the requests, by the name of its type in ``api._core.fields``."""

ONE_OR_MORE = ("send_list_names", "repel_list_names")
"""Arguments that take one name as text, too."""

BLANK_IS_DEFAULT = ("end_day", "send_date", "sender_name", "start_day", "subject", "template_subject")
"""Arguments for which empty text has a meaning, or is checked when the request is built."""

NEVER_LEFT_OUT = ("list_name", "mail_name", "send_date", "template_name")
"""Optional arguments that mean something else when they are left out: empty text does not leave them out."""

_NAMES = (*ONE_OR_MORE, "list_name", "mail_name")


def must_be_complete(name: str) -> bool:
    """Whether no part of the text of an argument may be missing: people see it, or it names what is meant.

    :param name: of the argument.
    """
    return name in SEEN_ARGUMENTS or name in _NAMES


_NOT_TEXT = ("Any", "Callable", "bool", "datetime", "float", "int")
_LITERAL = re.compile(r"\s*[\[{(].*[\])}]\s*", re.DOTALL)
MAX_CHARACTERS = 100_000


def is_known(value: Any) -> bool:
    """Whether the value is known when the DAG file is parsed: no template and no output of another task in it."""
    if isinstance(value, str):
        return not any(mark in value for mark in ("{{", "{%", "{#"))
    if isinstance(value, Mapping):
        return all(map(is_known, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(is_known, value))
    return not hasattr(value, "resolve")


def problems(owner: type, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with each argument, beginning with its name.

    :param owner: the class whose ``__init__`` declares them.
    :param values: the arguments.
    """
    for name, annotation in argument_types(owner).items():
        if name not in values:
            continue
        value, templated = values[name], name in owner.template_fields  # type: ignore[attr-defined]
        if (is_known(value) or not templated) and (problem := _problem(owner, name, annotation, value, templated)):
            yield f"{name}: {problem}"


@cache
def argument_types(owner: type) -> dict[str, str]:
    """Return the types of the arguments of a class, as they are written, without ``Templated``.

    :param owner: the class.
    """
    init = next(vars(base)["__init__"] for base in owner.__mro__ if "set_arguments" in _names_used(base))
    return {name: _bare(str(kind)) for name, kind in init.__annotations__.items() if name not in ("return", "kwargs")}


def _names_used(base: type) -> tuple[str, ...]:
    init = vars(base).get("__init__")
    init = getattr(init, "__wrapped__", init)
    names: tuple[str, ...] = getattr(getattr(init, "__code__", None), "co_names", ())
    return names


def _bare(annotation: str) -> str:
    """Remove ``Templated[...]``, the innermost first."""
    bare = re.sub(r"Templated\[((?:[^\[\]]|\[(?:[^\[\]]|\[[^\[\]]*\])*\])*)\]", r"\1", annotation)
    return annotation if bare == annotation else _bare(bare)


def _problem(owner: type, name: str, annotation: str, value: Any, templated: bool) -> str | None:
    kind = annotation.removesuffix(" | None")
    if annotation != kind and (value is None or (value == "" and name not in NEVER_LEFT_OUT)):
        return None
    if choices := _choices(owner, kind):
        return None if value in choices else f"{value!r} is none of {', '.join(map(str, choices))}"
    if not templated:
        # The bounds of numbers, which pydantic does not know, are checked where they are known.
        wrong = kind == "bool" and not isinstance(value, bool)
        return f"True or False is needed, not {value!r}" if wrong else None
    if value is None:
        return "is missing: None was given"
    if problem := _wrong_type(name, kind, value):
        return problem
    if name in LIMITS and kind in ("str", "datetime") and not (value == "" and name in BLANK_IS_DEFAULT):
        return _beyond_limit(name, value)
    return None


def _wrong_type(name: str, kind: str, value: Any) -> str | None:
    if kind in ("int", "float"):
        number = isinstance(value, int if kind == "int" else (int, float)) and not isinstance(value, bool)
        needed = "a whole number" if kind == "int" else "a number"
        return None if number or isinstance(value, str) else f"{needed} is needed, not {value!r}"
    if kind == "str":
        return None if isinstance(value, str) else not_text(name, value)
    if "|" in kind:
        return None
    if kind.startswith("Mapping["):
        return _wrong_mapping(name, kind, value)
    if kind.startswith(("Sequence[", "Collection[")):
        return _wrong_sequence(name, kind, value)
    return None


def _wrong_mapping(name: str, kind: str, value: Any) -> str | None:
    if not isinstance(value, Mapping):
        example = 'columns={"<column>": "<property>"}' if name == "columns" else f'{name}={{"<key>": ...}}'
        return f"a dictionary is needed, such as {example}, not {type(value).__name__}"
    if kind != "Mapping[str, str]":
        return None
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str) or not item:
            shown = "nothing" if item in (None, "") else type(item).__name__
            rest = ". Leave out the columns that are not to be sent" if name == "columns" and shown == "nothing" else ""
            return f"{key!r}: text is needed, not {shown}{rest}"
    return None


def _wrong_sequence(name: str, kind: str, value: Any) -> str | None:
    if isinstance(value, str) and name in ONE_OR_MORE:
        return None
    if (
        isinstance(value, str | bytes)
        or (isinstance(value, Mapping) and kind.startswith("Sequence"))
        or not isinstance(value, Iterable)
    ):
        given = "text" if isinstance(value, str) else type(value).__name__
        return f"a list is needed, such as {name}=[...], not {given}"
    if kind.endswith("[str]") and isinstance(value, Sequence):
        for number, item in enumerate(value):
            if not isinstance(item, str):
                return f"item {number} must be text, not {type(item).__name__}"
    return None


def _choices(owner: type, kind: str) -> tuple[Any, ...]:
    if not re.fullmatch(r"Literal\[.*\]|[A-Z]\w+", kind):
        return ()
    for base in owner.__mro__:
        if alias := vars(sys.modules[base.__module__]).get(kind):
            return get_args(alias) if "Literal" in str(alias) else ()
    return tuple(ast.literal_eval(f"({kind[len('Literal[') : -1]},)")) if kind.startswith("Literal[") else ()


def _beyond_limit(name: str, value: Any) -> str | None:
    # Here, not above: most arguments have no limit, and a DAG file without one need not wait for pydantic's types.
    from pydantic import ValidationError

    from airflow_provider_mail.api._core.fields import PATTERN_MESSAGES
    from airflow_provider_mail.api.errors import describe_validation_error

    try:
        _validator(LIMITS[name]).validate_python(value)
    except ValidationError as error:
        return describe_validation_error(error, PATTERN_MESSAGES)
    return None


@cache
def _validator(kind: str) -> Any:
    from pydantic import ConfigDict, TypeAdapter

    from airflow_provider_mail.api._core import fields

    return TypeAdapter(getattr(fields, kind), config=ConfigDict(hide_input_in_errors=True))


def takes_text(owner: type, name: str) -> bool:
    """Whether every text in the value of an argument is text, and must not become a number or a date.

    :param owner: the class.
    :param name: of the argument.
    """
    annotation = argument_types(owner).get(name, "Any")
    return not any(re.search(rf"\b{other}\b", annotation) for other in _NOT_TEXT)


def may_be_blank(owner: type, name: str) -> bool:
    """Whether a missing value is checked when the request is built, since the task may allow it.

    :param owner: the class.
    :param name: of the argument.
    """
    return "allow_blank" in argument_types(owner) and name in SEEN_ARGUMENTS


def rendered_problem(owner: type, name: str, template: Any, value: Any) -> str | None:
    """Return what is wrong with a rendered argument that takes text; else ``None``.

    :param owner: the class.
    :param name: of the argument.
    :param template: its value before rendering.
    :param value: its value.
    """
    from airflow_provider_mail.api._core.blank import is_nothing

    annotation = argument_types(owner).get(name, "Any")
    kind = annotation.removesuffix(" | None")
    blank_is_checked = may_be_blank(owner, name)
    if name in ONE_OR_MORE and not is_known(template) and is_nothing(value):
        return "its template rendered to nothing: the value that it names is missing. No list is []"
    if isinstance(value, str):
        if not isinstance(template, str) or is_known(template):
            return None
        if value == "None" and kind == "str" and not blank_is_checked:
            return "its template rendered to None: the value that it names is missing"
        read = _container(value) if kind in ("str", "Sequence[str]") or "ObjectStoragePath" in kind else None
        if isinstance(read, Mapping) and "Mapping" in kind:
            return f"write {name}=task.output; a template renders the dictionary of a task as text"
        if read is not None and (kind != "Sequence[str]" or isinstance(read, Mapping)):
            return not_text(name, read)
        return None
    if value is None:
        required = kind == annotation or name in NEVER_LEFT_OUT
        missing = template is not None and kind in ("str", "datetime") and required and not blank_is_checked
        return "its template rendered to nothing: the value that it names is missing" if missing else None
    return not_text(name, value) if kind == "str" else None


def _container(text: str) -> Any:
    """The dictionary or list that a text shows, as a template writes the whole output of a task."""
    if len(text) > MAX_CHARACTERS or not _LITERAL.fullmatch(text):
        return None
    for read in (ast.literal_eval, json.loads):
        try:
            value = read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return value if isinstance(value, Mapping | list | tuple) else None
    return None


def not_text(name: str, value: Any) -> str:
    """Say how an argument that takes text is written, without showing the value.

    :param name: of the argument.
    :param value: what was given.
    """
    if isinstance(value, Mapping):
        key = name if name in value else "<key>"
        return (
            f"one text is needed, not the whole result of a task (a dictionary). Write {name}=task.output[{key!r}]"
            f" or \"{{{{ ti.xcom_pull('<task>')[{key!r}] }}}}\""
        )
    if name == "sql" and isinstance(value, list | tuple):
        return "one query as text is needed, not a list: only one query can return the rows"
    if isinstance(value, list | tuple | set):
        return f"one text is needed, not a {type(value).__name__}"
    if isinstance(value, datetime):
        return f'text is needed, not a datetime: write {name}="{{{{ ds }}}}" or call isoformat()'
    return f"text is needed, not {type(value).__name__}: put it in quotation marks, or convert it with str()"
