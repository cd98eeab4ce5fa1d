"""Checks arguments as soon as they are known: literal values when the DAG file is parsed, rendered ones at task start.

The signature of ``__init__`` is the declaration. The annotation of an argument is one of :data:`KINDS` or lists its
choices (``Literal``); :data:`LIMITS` and :data:`BOUNDS` limit texts and numbers by the name of the argument. An
annotation that is not in the table is a programming error.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime, timedelta
from functools import cache
from math import inf
from typing import Any, Literal, NamedTuple, get_args, get_origin

from airflow_provider_mail.send_window import SendWindow

PACKAGE = "airflow_provider_mail."

LIMITS = {
    "campaign": "Label",
    "category": "Label",
    "end_day": "Day",
    "from_domain": "SenderEntry",
    "language_code": "LanguageCode",
    "mail_name": "MailName",
    "phone_number": "PhoneNumber",
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
"""Arguments with the limits of a request field: the name of the field's type in ``api._core.fields``."""


class Bounds(NamedTuple):
    """The bounds of a number.

    :param least: the smallest valid number; with ``above`` the largest number that is too small.
    :param most: the largest valid number.
    :param above: whether ``least`` itself is too small.
    """

    least: float = 0
    most: float = inf
    above: bool = False


BOUNDS = {
    "batch_size": Bounds(1),
    "chunk_size": Bounds(1),
    "confidence": Bounds(0.5, 0.999_999),
    "edge_hours": Bounds(most=24),
    "keep_days": Bounds(above=True),
    "lock_timeout": Bounds(1),
    "max_attachment_bytes": Bounds(1),
    "max_content_bytes": Bounds(1),
    "max_growth": Bounds(above=True),
    "max_hard_bounce": Bounds(most=1),
    "max_in_flight": Bounds(1),
    "max_pushes": Bounds(1),
    "max_recipients": Bounds(1),
    "max_reject_fraction": Bounds(most=1),
    "max_removed_fraction": Bounds(most=1),
    "max_seeds": Bounds(1),
    "max_soft_bounce": Bounds(most=1),
    "max_spam": Bounds(most=1),
    "max_unsubscribe": Bounds(most=1),
    "page_size": Bounds(1, 1000),
    "poke_interval": Bounds(above=True),
    "rows_per_file": Bounds(1),
    "sender_type": Bounds(1, 2),
    "stable_checks": Bounds(2),
    "tolerance_fraction": Bounds(most=1),
    "versions_per_request": Bounds(1, 100),
}
"""Numbers and durations with other bounds than "at least 0"."""

SEEN_ARGUMENTS = {
    **dict.fromkeys(("content", "template_content"), "html"),
    **dict.fromkeys(("subject", "template_subject", "sender_name"), "text"),
    **dict.fromkeys(
        ("template_name", "sender_mail", "reply_to", "to", "messages", "mail_params", "attachment"), "other"
    ),
    # The name of a contact, which tags show.
    "name": "other",
}
"""The arguments whose values recipients see. HTML and text must not be blank, even if the DAG file has blank text."""

ONE_OR_MORE = ("send_list_names", "repel_list_names", "seed_list_names", "service_tags")
"""Lists for which a single text may be given."""

BLANK_IS_DEFAULT = ("end_day", "send_date", "sender_name", "start_day", "subject", "template_subject")
"""Arguments for which empty text has a meaning, or is checked when the request is built."""

BLANK_MATTERS = ("delimiter", "null_value")
"""Texts that may consist of white space."""

NEVER_LEFT_OUT = ("list_name", "mail_name", "send_date", "template_name")
"""Optional arguments whose absence has a meaning of its own: empty text does not count as absent."""

_LISTS_TO_MAIL = ("send_list_names", "repel_list_names")


def must_be_complete(owner: type, name: str) -> bool:
    """Whether every expression in the template of an argument must have a value."""
    argument = declared(owner).get(name)
    if name in SEEN_ARGUMENTS or argument is None:
        return argument is not None
    return (argument.kind.text or argument.kind.text_inside) and not argument.is_rows and not argument.choices


def may_be_blank(owner: type, name: str) -> bool:
    """Whether a missing value is checked when the request is built, since the task may allow it."""
    return "allow_blank" in declared(owner) and name in SEEN_ARGUMENTS


def is_empty_option(owner: type, name: str, value: Any) -> bool:
    """Whether a value is empty text for an optional argument, so that the request is built without it.

    Not for texts that recipients see: empty text is intended there, as with ``allow_blank``.

    :param value: a value without templates.
    """
    argument = declared(owner).get(name)
    is_text = SEEN_ARGUMENTS.get(name) in ("html", "text")
    return argument is not None and not is_text and argument.is_left_out(value)


_WORD = re.compile(r"[\w.-]{0,40}|\{\{[^{}]{0,40}\}\}")
_PLAIN = {
    **dict.fromkeys(("Line", "MailName", "TemplateName"), re.compile(r"[A-Za-z0-9][A-Za-z0-9 .:-]{0,48}")),
    "Address": re.compile(r"[A-Za-z0-9]{1,20}([._-][A-Za-z0-9]{1,20})?@([A-Za-z0-9]{1,20}\.){1,3}[A-Za-z]{2,10}"),
}
"""Patterns of texts that are certainly valid. Most DAG files have only such texts, and need not import pydantic."""

_LITERAL = re.compile(r"\s*[\[{(].*[\])}]\s*", re.DOTALL)
MAX_CHARACTERS = 100_000


def not_text(name: str, value: Any) -> str:
    """Describe how to write an argument that takes text, without showing the value."""
    if isinstance(value, Mapping):
        key = name if name in value else "<key>"
        return (
            f"one text is needed, not the whole result of a task (a dictionary). Write {name}=task.output[{key!r}]"
            f" or \"{{{{ ti.xcom_pull('<task>')[{key!r}] }}}}\""
        )
    if name == "sql" and isinstance(value, list | tuple):
        return "one query as text is needed, not a list: only one query can return the rows"
    if isinstance(value, Sequence | Set) and not isinstance(value, bytes):
        return f"one text is needed, not a list. For a task for each, write partial(...).expand({name}=...)"
    if isinstance(value, datetime):
        return f'text is needed, not a datetime: write {name}="{{{{ ds }}}}" or call isoformat()'
    return f"text is needed, not {type(value).__name__}: put it in quotation marks, or convert it with str()"


def _shown(value: Any) -> str:
    """Return a value that cannot be personal data; else its type."""
    harmless = value is None or isinstance(value, int | float) or (isinstance(value, str) and _WORD.fullmatch(value))
    return repr(value) if harmless else type(value).__name__


def rows_problem(argument: str, value: object) -> str:
    """Describe how to write an argument that takes rows."""
    return (
        f"{argument}: a list of {'rows' if argument == 'contacts' else 'dictionaries'} is needed, not "
        f"{type(value).__name__}. For the output of another task write {argument}=task.output; a template renders it "
        "as text"
    )


def _text(name: str, value: Any) -> str | None:
    if not isinstance(value, str):
        return not_text(name, value)
    checked_elsewhere = name in BLANK_IS_DEFAULT or name in SEEN_ARGUMENTS
    if checked_elsewhere or name in BLANK_MATTERS:
        return None
    if not value:
        return "is empty"
    return None if value.strip() else "is blank"


def _path(name: str, value: Any) -> str | None:
    if isinstance(value, str):
        return None if value else "is empty"
    is_path = hasattr(value, "__fspath__") or hasattr(value, "fs")
    return None if is_path else not_text(name, value)


def _flag(name: str, value: Any) -> str | None:
    return None if isinstance(value, bool) else f"True or False is needed, not {_shown(value)}"


def number_problem(name: str, value: Any, *, whole: bool = False) -> str | None:
    """Return what is wrong with a number.

    :param whole: whether it must be a whole number.
    """
    least, most, above = BOUNDS.get(name, Bounds())
    fits = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if fits and (value > least if above else value >= least) and value <= most:
        return None
    number = "whole number" if whole else "number"
    lower_bound = f", {'more than' if above else 'at least'} {least:g}"
    bounds = f" from {least:g} to {most:g}" if most < inf else lower_bound
    return f"must be a {number}{bounds}, not {_shown(value)}"


def _whole_number(name: str, value: Any) -> str | None:
    return number_problem(name, value, whole=True)


def _duration(name: str, value: Any) -> str | None:
    return number_problem(name, value.total_seconds() if isinstance(value, timedelta) else value)


def _mapping(name: str, value: Any) -> str | None:
    if isinstance(value, Mapping):
        return None
    example = 'columns={"<column>": "<property>"}' if name == "columns" else f'{name}={{"<key>": ...}}'
    return f"a dictionary is needed, such as {example}, not {type(value).__name__}"


def _mapping_of_texts(name: str, value: Any) -> str | None:
    if problem := _mapping(name, value):
        return problem
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str) or not item:
            item_type = "nothing" if item in (None, "") else type(item).__name__
            advice = (
                ". Leave out the columns that are not to be sent"
                if name == "columns" and item_type == "nothing"
                else ""
            )
            return f"{key!r}: text is needed, not {item_type}{advice}"
    return None


def _list(name: str, value: Any) -> str | None:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        value_type = "text" if isinstance(value, str) else type(value).__name__
        return f"a list is needed, such as {name}=[...], not {value_type}"
    return None


def _list_of_texts(name: str, value: Any) -> str | None:
    if isinstance(value, str) and name in ONE_OR_MORE:
        return None
    if isinstance(value, Mapping) and name in ONE_OR_MORE:
        return not_text(name, value)
    # The keys of a mapping are the names of tags.
    if not (name == "known_tags" and isinstance(value, Mapping)) and (problem := _list(name, value)):
        return problem
    for number, item in enumerate(value if isinstance(value, Sequence) else ()):
        if not isinstance(item, str):
            return f"item {number} must be text, not {type(item).__name__}"
        if not item:
            return f"item {number} is empty"
    return None


def _list_of_numbers(name: str, value: Any) -> str | None:
    if problem := _list(name, value):
        return problem
    numbers = all(isinstance(item, int) or (isinstance(item, str) and item.isdecimal()) for item in value)
    return None if numbers else f"whole numbers are needed, such as {name}=[2]"


def _file(name: str, value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return _path(name, value)
    right = value.keys() == {"file_name", "file_data"}
    return None if right else "a dictionary needs file_name and file_data; or give the path of a file"


def _recipients(name: str, value: Any) -> str | None:
    if isinstance(value, str) and _PLAIN["Address"].fullmatch(value):
        return None
    from airflow_provider_mail.api.errors import MailValidationError
    from airflow_provider_mail.api.flows.recipients import recipients_of

    try:
        recipients = recipients_of(name, value)
    except MailValidationError as error:
        return str(error).removeprefix(f"{name}: ")
    for number, recipient in enumerate(recipients):
        # A recipient without an address is rejected when the request is built.
        if "email" in recipient and (problem := _beyond_limit("Address", recipient["email"])):
            return f"{f'recipient {number}: ' if len(recipients) > 1 else ''}{problem}"
    return None


def _rows(name: str, value: Any) -> str | None:
    if isinstance(value, list | tuple) and value and isinstance(value[0], str | bytes):
        example = '{"email": ...}' if name == "contacts" else '{"to": ...}'
        return f"item 0 must be a dictionary such as {example}, not text"
    if callable(value) or (isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)):
        return None
    return rows_problem(name, value).removeprefix(f"{name}: ")


def _sequence_or_mapping(name: str, value: Any) -> str | None:
    return None if isinstance(value, Mapping) else _list(name, value)


def _send_window(name: str, value: Any) -> str | None:
    return None if isinstance(value, SendWindow) else "must be a SendWindow, such as SendWindow(end='17:00')"


def _any(name: str, value: Any) -> str | None:
    return None


class Kind(NamedTuple):
    """The values that arguments of a type accept.

    :param check: returns what is wrong with a value of the argument of that name.
    :param text: whether a text that a template renders stays text with ``render_template_as_native_obj``. Airflow
        evaluates it as Python: ``20260131`` would be a number, ``1e5`` 100000.0, and ``None`` no value.
    :param text_inside: the same for templates in a list or dictionary.
    :param container: whether the value may be a list or dictionary, which a template renders as text.
    """

    check: Callable[[str, Any], str | None]
    text: bool = False
    text_inside: bool = False
    container: bool = False


KINDS = {
    "Collection[str]": Kind(_list_of_texts, text=True, text_inside=True, container=True),
    "Iterable[Mapping[str, Any]] | Callable[[], Iterable[Mapping[str, Any]]]": Kind(_rows, text_inside=True),
    "Mapping[str, Any]": Kind(_mapping, text_inside=True, container=True),
    "Mapping[str, bool]": Kind(_mapping, container=True),
    "Mapping[str, str]": Kind(_mapping_of_texts, text_inside=True, container=True),
    "Mapping[str, str] | ObjectStoragePath": Kind(_file, text=True, text_inside=True, container=True),
    "ObjectStoragePath": Kind(_path, text=True, text_inside=True),
    "Rows | Callable[[], Rows]": Kind(_rows, text_inside=True),
    # The values do not stay text: the database may need numbers.
    "Sequence[Any] | Mapping[str, Any]": Kind(_sequence_or_mapping, container=True),
    "Sequence[int]": Kind(_list_of_numbers, container=True),
    "SendWindow": Kind(_send_window),
    "Sequence[str]": Kind(_list_of_texts, text=True, text_inside=True, container=True),
    "bool": Kind(_flag),
    "datetime": Kind(_any),
    "float": Kind(number_problem),
    "float | timedelta": Kind(_duration),
    "float | timedelta | EllipsisType": Kind(_any),
    "int": Kind(_whole_number),
    "int | EllipsisType": Kind(_any),
    "str": Kind(_text, text=True, text_inside=True),
    "str | Mapping[str, str] | Sequence[str | Mapping[str, str]]": Kind(
        _recipients, text=True, text_inside=True, container=True
    ),
}
"""By annotation, without ``Templated`` and ``None``."""


class Argument(NamedTuple):
    """An argument as its class declares it.

    :param optional: whether ``None`` leaves it out.
    :param choices: the permitted values; empty if the type does not list them.
    :param limit: the name of the type in ``api._core.fields`` that limits it.
    """

    name: str
    kind: Kind
    optional: bool
    choices: tuple[Any, ...]
    limit: str | None

    @property
    def is_rows(self) -> bool:
        return self.kind.check is _rows

    def is_left_out(self, value: Any) -> bool:
        """Return whether a value means that the argument is not given.

        :param value: a value without templates.
        """
        return self.optional and (value is None or (value == "" and self.name not in NEVER_LEFT_OUT))

    def problem(self, value: Any) -> str | None:
        """Return what is wrong with a value.

        :param value: a value without templates.
        """
        if self.is_left_out(value):
            return None
        if value is None and self.kind.text and not self.choices:
            return "is missing: None was given"
        if self.choices:
            return None if value in self.choices else f"{_shown(value)} is none of {', '.join(map(str, self.choices))}"
        if problem := self.kind.check(self.name, value):
            return problem
        if self.limit and not (value == "" and self.name in BLANK_IS_DEFAULT):
            return _beyond_limit(self.limit, value)
        return None


@cache
def declared(owner: type) -> dict[str, Argument]:
    """Return the arguments that a class of this package declares, by name.

    :param owner: the class, or a user's subclass, whose own arguments are not checked.
    :raises KeyError: when one has a type that is not in :data:`KINDS`.
    """
    own_class = next(base for base in owner.__mro__ if base.__module__.startswith(PACKAGE) and "__init__" in vars(base))
    init = inspect.unwrap(vars(own_class)["__init__"])
    limits = LIMITS | getattr(own_class, "limits", {})
    arguments = {}
    for name, annotation in init.__annotations__.items():
        if name in ("return", "kwargs"):
            continue
        with_none = _without_templated(str(annotation))
        type_name = with_none.removesuffix(" | None")
        choices = _choices(type_name, init.__globals__)
        kind = Kind(_any, text=True, text_inside=True) if choices else KINDS[type_name]
        arguments[name] = Argument(name, kind, type_name != with_none, choices, limits.get(name))
    return arguments


def _without_templated(annotation: str) -> str:
    while (start := annotation.find("Templated[")) >= 0:
        end = first = start + len("Templated[")
        depth = 1
        while depth:
            depth += {"[": 1, "]": -1}.get(annotation[end], 0)
            end += 1
        annotation = annotation[:start] + annotation[first : end - 1] + annotation[end:]
    return annotation


def _choices(type_name: str, names: Mapping[str, Any]) -> tuple[Any, ...]:
    if type_name.startswith("Literal["):
        return tuple(ast.literal_eval(f"({type_name[len('Literal[') : -1]},)"))
    alias = names.get(type_name)
    return get_args(alias) if get_origin(alias) is Literal else ()


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
    """
    templated: Collection[str] = owner.template_fields  # type: ignore[attr-defined]
    for name, argument in declared(owner).items():
        if name not in values:
            continue
        value = values[name]
        # There may be many rows: their values are not searched for templates.
        known = (argument.is_rows and isinstance(value, list | tuple)) or name not in templated or is_known(value)
        if known and (problem := argument.problem(value)):
            yield f"{name}: {problem}"


def stays_text(owner: type, name: str, template: Any) -> bool:
    """Whether the texts that templates render in an argument must stay text, not become numbers or dates.

    :param template: its value before rendering.
    """
    argument = declared(owner).get(name)
    if argument is None:
        return False
    return argument.kind.text if isinstance(template, str) else argument.kind.text_inside


def read_rendered(owner: type, name: str, template: Any, value: Any) -> tuple[Any, str | None]:
    """Return the value of a rendered argument, and what is wrong with it (``None``: nothing).

    A list or dictionary that a template has rendered as text is parsed.

    :param template: its value before rendering.
    :param value: its value after rendering.
    """
    argument = declared(owner).get(name)
    if argument is None or template is None or is_known(template):
        return value, None
    from airflow_provider_mail.api._core.blank import is_nothing

    blank_is_checked = may_be_blank(owner, name)
    if not blank_is_checked and (path := _missing(argument, template, value)) is not None:
        return value, f"{path}{': ' if path else ''}its template rendered to None: the value that it names is missing"
    if name in _LISTS_TO_MAIL and is_nothing(value):
        return value, "its template rendered to nothing: the value that it names is missing. No list is []"
    if blank_is_checked and value in (None, "", "None"):
        return value, None
    if isinstance(value, str) and isinstance(template, str):
        value = _read(argument, value)
    return value, argument.problem(value)


def _missing(argument: Argument, template: Any, value: Any) -> str | None:
    """Return the path in the argument of a value that rendered to nothing; ``None`` if there is none."""
    if value is None:
        return "" if not argument.optional or argument.name in NEVER_LEFT_OUT else None
    if isinstance(template, str):
        return "" if value == "None" and not is_known(template) else None
    inside: Iterable[tuple[Any, Any, Any]] = ()
    if isinstance(template, Mapping) and isinstance(value, Mapping):
        inside = ((key, item, value.get(key)) for key, item in template.items())
    elif isinstance(template, list | tuple) and isinstance(value, list | tuple):
        inside = ((index, *items) for index, items in enumerate(zip(template, value, strict=False)))
    for key, item, rendered in inside:
        if rendered is not None and (path := _missing(argument, item, rendered)) is not None:
            return f"[{key!r}]{path}"
    return None


def _beyond_limit(type_name: str, value: Any) -> str | None:
    if type_name in _PLAIN and isinstance(value, str) and _PLAIN[type_name].fullmatch(value):
        return None
    from pydantic import ValidationError

    from airflow_provider_mail.api._core.fields import PATTERN_MESSAGES
    from airflow_provider_mail.api.errors import describe_validation_error

    try:
        _validator(type_name).validate_python(value)
    except ValidationError as error:
        return describe_validation_error(error, PATTERN_MESSAGES)
    return None


@cache
def _validator(type_name: str) -> Any:
    from pydantic import ConfigDict, TypeAdapter

    from airflow_provider_mail.api._core import fields

    return TypeAdapter(getattr(fields, type_name), config=ConfigDict(hide_input_in_errors=True))


def _read(argument: Argument, text: str) -> Any:
    """Parse what a template has rendered as text for an argument; return the text itself if it cannot be parsed."""
    if argument.kind.check in (number_problem, _whole_number):
        try:
            return float(text) if argument.kind.check is number_problem else int(text)
        except ValueError:
            return text
    if argument.kind.check is _flag:
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    if argument.kind.container:
        read = _container(text)
    elif argument.kind.text and not argument.choices:
        read = _result_of_a_task(text)
    else:
        read = None
    return text if read is None else read


def _result_of_a_task(text: str) -> Any:
    """Parse a dictionary, or a list of texts or dictionaries; ``[20260131]`` may be meant as text."""
    value = _container(text)
    return value if value and all(isinstance(item, str | Mapping) for item in value) else None


def _container(text: str) -> Any:
    """Parse a dictionary or list, as which a template renders the whole output of a task."""
    if len(text) > MAX_CHARACTERS or not _LITERAL.fullmatch(text):
        return None
    for read in (ast.literal_eval, json.loads):
        try:
            value = read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return value if isinstance(value, Mapping | list | tuple) else None
    return None
