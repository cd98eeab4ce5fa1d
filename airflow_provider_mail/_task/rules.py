"""Which values the arguments of tasks accept: by their type, or by name: an argument has one meaning in all classes.

Tests compare the rules with the types in the signatures.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from functools import cache
from math import inf
from typing import Any, get_args

from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.send_window import SendWindow, is_zone
from airflow_provider_mail.version_compat import AirflowFailException

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

STATUSES = ("draft", "sending", "complete", "failed")
"""The names of the states of a campaign (``mailStatus``)."""

MAX_CHARACTERS = 100_000

MAX_SECONDS = 10 * 366 * 86_400
"""A longer duration is a mistake, and too much for Python's timedelta in the end."""

_LITERAL = re.compile(r"\s*[\[{(].*[\])}]\s*", re.DOTALL)
_WORD = re.compile(r"[\w.-]{0,40}|\{\{[^{}]{0,40}\}\}")


@dataclass(frozen=True, slots=True)
class Rule:
    """The values that an argument accepts.

    :param check: returns what is wrong with a value of the argument of that name; ``None`` if nothing is.
    :param limit: the type in ``api._core.fields`` that limits the value.
    :param choices: the only valid values, if there are few.
    :param read: parses what a template has rendered as text; returns ``None``, or raises `ValueError`, if it cannot.
    :param text: whether a text that a template renders stays text with ``render_template_as_native_obj``. Airflow
        evaluates it as Python: ``20260131`` would be a number, ``1e5`` 100000.0, and ``None`` no value.
    :param text_inside: the same for templates in a list or dictionary.
    :param none_is_valid: whether ``None`` is valid where it is not the default.
    :param empty_is_none: whether empty text means that an optional argument is not given.
    :param empty_is_valid: whether empty text has a meaning, or is checked when the request is built.
    :param name: of the argument, once a class declares it.
    :param optional: whether ``None`` leaves it out there.
    """

    check: Callable[[str, Any], str | None]
    limit: str | None = None
    choices: tuple[Any, ...] = ()
    read: Callable[[str], Any] | None = None
    text: bool = False
    text_inside: bool = False
    none_is_valid: bool = False
    empty_is_none: bool = True
    empty_is_valid: bool = False
    name: str = ""
    optional: bool = False

    @property
    def is_rows(self) -> bool:
        """Whether the value is rows, of which there may be many."""
        return self.check is _rows

    @property
    def must_be_complete(self) -> bool:
        """Whether every expression in a template must have a value."""
        return (self.is_text and not self.choices) or self.name in SEEN_ARGUMENTS

    @property
    def is_text(self) -> bool:
        """Whether the value is text, or has text inside; not of rows, of which there may be many."""
        return (self.text or self.text_inside) and not self.is_rows

    @property
    def is_any_text(self) -> bool:
        """Whether any text is valid, also blank text."""
        return self.check is any_text

    def is_left_out(self, value: Any) -> bool:
        """Return whether a value means that the argument is not given."""
        return self.optional and (
            value is None or (self.text and isinstance(value, str) and not value and self.empty_is_none)
        )

    def problem(self, value: Any) -> str | None:
        """Return what is wrong with a value that contains no templates."""
        if self.is_left_out(value):
            return None
        if value is None and self.text and not self.choices:
            return "is missing: None was given"
        if self.choices:
            return None if value in self.choices else f"{_shown(value)} is none of {', '.join(self.choices)}"
        if problem := self.check(self.name, value):
            return problem
        if self.limit is None or (value == "" and self.empty_is_valid):
            return None
        return _beyond_limit(self.limit, value)


def not_text(name: str, value: Any) -> str:
    """Describe how to write an argument that takes text, without showing the value."""
    if isinstance(value, Mapping):
        key = name if name in value else "<key>"
        return (
            "one text is needed, not the whole result of a task (a dictionary). Write "
            f"{name}=\"{{{{ ti.xcom_pull('<task>')[{key!r}] }}}}\""
        )
    if name == "sql" and isinstance(value, list | tuple):
        return "one query as text is needed, not a list: only one query can return the rows"
    if isinstance(value, Sequence | Set) and not isinstance(value, bytes):
        return f"one text is needed, not a list. For a task for each, write partial(...).expand({name}=...)"
    if isinstance(value, datetime):
        return f'text is needed, not a datetime: write {name}="{{{{ dag_run.run_after | ds }}}}" or call isoformat()'
    return f"text is needed, not {type(value).__name__}: put it in quotation marks, or convert it with str()"


def given_rows(argument: str, value: Any) -> Any:
    """Return the rows that an argument has, or that its function returns.

    :raises AirflowFailException: they are no rows.
    """
    rows = value() if callable(value) else value
    if problem := _rows(argument, rows):
        raise AirflowFailException(f"{argument}: {problem}")
    return rows


def list_names(argument: str, value: Any) -> list[str] | None:
    """Return the names in the rendered value of an argument that names contact lists.

    ``["a", "b"]`` is two names, ``"a"`` is one. A template such as ``"{{ params.lists }}"`` renders a list as text
    unless the DAG sets ``render_template_as_native_obj``, so text that is a list in the syntax of Python or JSON is
    parsed. Other text is not split, since commas and spaces may be part of a name.

    :return: the names; ``None`` for ``None`` and empty text.
    :raises MailValidationError: when the value is neither text nor a list of texts.
    """
    if isinstance(value, str):
        text, value = value.strip(), read_container(value)
        if not isinstance(value, list | tuple):
            value = [text] if text else None
    if value is None:
        return None
    if isinstance(value, Mapping | bytes) or not isinstance(value, Iterable):
        raise MailValidationError(f"{argument}: must be a list of names or one name, not {type(value).__name__}")
    names = list(value)
    if not all(isinstance(name, str) for name in names):
        other_type = next(type(name).__name__ for name in names if not isinstance(name, str))
        raise MailValidationError(f"{argument}: every name must be text, but one is {other_type}")
    return names


def read_container(text: str) -> Any:
    """Parse a dictionary or list, as which a template renders the whole output of a task; ``None`` for other text."""
    if len(text) > MAX_CHARACTERS or not _LITERAL.fullmatch(text):
        return None
    # JSON first: Python reads the two escapes of a character like an emoji as two halves.
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return value if isinstance(value, Mapping | list | tuple) else None
    return None


def _read_result(text: str) -> Any:
    """Parse a dictionary, or a list of texts or dictionaries; ``[20260131]`` may be meant as text."""
    value = read_container(text)
    # The items of a dictionary are its keys.
    is_result = bool(value) and all(isinstance(item, str | Mapping) for item in value)
    return value if is_result else None


def _shown(value: Any) -> str:
    """Return a value that cannot be personal data; else its type."""
    harmless = value is None or isinstance(value, int | float) or (isinstance(value, str) and _WORD.fullmatch(value))
    return repr(value) if harmless else type(value).__name__


def _beyond_limit(type_name: str, value: Any) -> str | None:
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


def _any(name: str, value: Any) -> str | None:
    return None


def _flag(name: str, value: Any) -> str | None:
    return None if isinstance(value, bool) else f"True or False is needed, not {_shown(value)}"


def any_text(name: str, value: Any) -> str | None:
    return None if isinstance(value, str) else not_text(name, value)


def _filled_text(name: str, value: Any) -> str | None:
    if not isinstance(value, str):
        return not_text(name, value)
    if value.strip():
        return None
    return "is blank" if value else "is empty"


def _path(name: str, value: Any) -> str | None:
    if isinstance(value, str):
        return None if value else "is empty"
    is_path = hasattr(value, "__fspath__") or hasattr(value, "fs")
    return None if is_path else not_text(name, value)


def _file(name: str, value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return _path(name, value)
    right = value.keys() == {"file_name", "file_data"}
    return None if right else "a dictionary needs file_name and file_data; or give the path of a file"


def _local_time(name: str, value: Any) -> str | None:
    if isinstance(value, time) and value.tzinfo is None:
        return None
    return f"a time without a zone is needed, such as datetime.time(9), not {_shown(value)}"


def _zone(name: str, value: Any) -> str | None:
    if problem := _filled_text(name, value):
        return problem
    return None if is_zone(value) else f"{value!r} is not the name of a time zone, such as 'Europe/Berlin'"


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
            is_unused = name == "columns" and item_type == "nothing"
            advice = ". Leave out the columns that are not to be sent" if is_unused else ""
            return f"{key!r}: text is needed, not {item_type}{advice}"
    return None


def _list(name: str, value: Any) -> str | None:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        value_type = "text" if isinstance(value, str) else type(value).__name__
        return f"a list is needed, such as {name}=[...], not {value_type}"
    return None


def _list_of_texts(name: str, value: Any) -> str | None:
    return _list(name, value) or _items(value)


def one_or_more(name: str, value: Any) -> str | None:
    if isinstance(value, Mapping):
        return not_text(name, value)
    return None if isinstance(value, str) else _list_of_texts(name, value)


def _or_mapping(check: Callable[[str, Any], str | None]) -> Callable[[str, Any], str | None]:
    return lambda name, value: None if isinstance(value, Mapping) else check(name, value)


def _items(value: Any) -> str | None:
    for number, item in enumerate(value if isinstance(value, Sequence) else ()):
        if not isinstance(item, str):
            return f"item {number} must be text, not {type(item).__name__}"
        if not item:
            return f"item {number} is empty"
    return None


def _list_of_values(name: str, value: Any) -> str | None:
    if problem := _list(name, value):
        return problem
    plain = isinstance(value, list | tuple | set | frozenset) and value
    if plain and all(isinstance(item, str | int) for item in value):
        return None
    return f"a list of texts, numbers or booleans is needed, such as {name}=['yes']"


def _consent(name: str, value: Any) -> str | None:
    given = value if isinstance(value, list | tuple) else [value]
    if all(type(item).__name__ == "Consent" and hasattr(item, "template_fields") for item in given):
        return None
    return f"Consent(...) or a list of them is needed, of airflow_provider_mail.arguments, not {_shown(value)}"


def _list_of_statuses(name: str, value: Any) -> str | None:
    problem = _list(name, value)
    unknown = [] if problem else [item for item in value if item not in STATUSES]
    return f"{_shown(unknown[0])} is none of {', '.join(STATUSES)}" if unknown else problem


def _recipients(name: str, value: Any) -> str | None:
    from airflow_provider_mail.api.transactional import recipients_of

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
    return (
        f"a list of {'rows' if name == 'contacts' else 'dictionaries'} is needed, not {type(value).__name__}. For the "
        f"output of another task write {name}=task.output; a template renders it as text"
    )


def _import(name: str, value: Any) -> str | None:
    if hasattr(value, "division"):
        return None
    return f"the task that imports the people is needed, such as SqlToMailContactsOperator(...), not {_shown(value)}"


def _stages(name: str, value: Any) -> str | None:
    from airflow_provider_mail._task.division import shares_problem

    return shares_problem(value)


def _ramp(name: str, value: Any) -> str | None:
    from airflow_provider_mail._task.division import ramp_problem

    return ramp_problem(value)


def _send_window(name: str, value: Any) -> str | None:
    return None if isinstance(value, SendWindow) else "must be a SendWindow, such as SendWindow(end='17:00')"


def _at_most(name: str, value: Any) -> str | None:
    right = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], timedelta)
    if right and COUNT.check(name, value[0]) is None and value[1] >= timedelta(seconds=1):
        return None
    return f"a number of mails and a timedelta are needed, such as {name}=(3, timedelta(days=7))"


def _audience(name: str, value: Any) -> str | None:
    results = [value] if isinstance(value, Mapping) else value
    if isinstance(results, str | bytes) or not isinstance(results, Iterable):
        return f"the result of a task that imports contacts is needed, such as {name}=task.output, not text"
    if isinstance(results, Sequence) and not all(isinstance(result, Mapping) for result in results):
        return f"the whole result of a task that imports contacts is needed, such as {name}=task.output"
    return None


def text(limit: str | None = None, check: Callable[[str, Any], str | None] = _filled_text, **options: Any) -> Rule:
    """Return the rule of a text; ``options`` are further fields of `Rule`."""
    return Rule(check, limit, read=_read_result, text=True, text_inside=True, **options)


def choice(*choices: str) -> Rule:
    """Return the rule of an argument with few valid values."""
    return Rule(_any, choices=choices, text=True, text_inside=True)


def number(
    least: float = 0, most: float = inf, *, above: bool = False, whole: bool = False, none_is_valid: bool = False
) -> Rule:
    """Return the rule of a number.

    :param least: the smallest valid number; with ``above`` the largest number that is too small.
    :param above: whether ``least`` itself is too small.
    """

    def check(name: str, value: Any) -> str | None:
        fits = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if fits and (value > least if above else value >= least) and value <= most:
            return None
        lower_bound = f", {'more than' if above else 'at least'} {least:g}"
        bounds = f" from {least:g} to {most:g}" if most < inf else lower_bound
        return f"must be a {'whole number' if whole else 'number'}{bounds}, not {_shown(value)}"

    return Rule(check, read=int if whole else float, none_is_valid=none_is_valid)


def duration(*, above: bool = False) -> Rule:
    """Return the rule of seconds or a timedelta, at least 0 or ``above`` it."""
    seconds = number(most=MAX_SECONDS, above=above)

    def check(name: str, value: Any) -> str | None:
        if seconds.check(name, value.total_seconds() if isinstance(value, timedelta) else value) is None:
            return None
        least = "more than 0" if above else "0 or more"
        return f"seconds or a timedelta are needed, such as timedelta(hours=2): {least}, not {_shown(value)}"

    return Rule(check)


IMPORT = Rule(_import)
STAGES = Rule(_stages)
RAMP = Rule(_ramp)
LOCAL_TIME = Rule(_local_time)
ZONE = Rule(_zone)
MAPPING = Rule(_mapping, read=read_container)
FLAG = Rule(_flag, read=lambda text: {"true": True, "false": False}.get(text.strip().lower()))
TEXT = text()
TEXTS = Rule(_list_of_texts, read=read_container, text=True, text_inside=True)
VALUES = Rule(_list_of_values, text_inside=True)
FRACTION = number(most=1)
COUNT = number(1, whole=True)


def group(name: str) -> Rule:
    """Return the rule of a group of arguments.

    :param name: of its class in ``airflow_provider_mail.arguments``.
    """

    def check(argument: str, value: Any) -> str | None:
        if type(value).__name__ == name and hasattr(value, "template_fields"):
            return None
        return (
            f"{name}(...) is needed, of airflow_provider_mail.arguments, not {_shown(value)}: write {argument}={name}()"
        )

    return Rule(check)


_OF_TYPES = {"bool": FLAG, "float | timedelta": duration(), "str": TEXT, "Mapping[str, Any]": MAPPING} | {
    name: group(name) for name in ("Brakes", "ChangesOnly", "FileFormat", "Rejects", "Suppress")
}


def rule_of_type(written: str, names: Mapping[str, Any]) -> Rule | None:
    """Return the rule of an argument of which the type says all; ``None`` for any other.

    :param written: the type in the signature.
    :param names: those of the module.
    """
    bare = re.sub(r"Templated\[(.*)\]", r"\1", written.removesuffix(" | None"))
    choices = re.findall(r"'(\w+)'", bare) if bare.startswith("Literal[") else get_args(names.get(bare))
    return choice(*choices) if choices else _OF_TYPES.get(bare)


# fmt: off
ARGUMENTS: dict[str, Rule] = {
    # Texts with the limits of a field of a request.
    **dict.fromkeys(("campaign", "category"), text("Label")),
    **dict.fromkeys(("from_domain", "sender_email"), text("SenderEntry")),
    **dict.fromkeys(("start_day", "end_day"), text("Day", check=any_text, empty_is_valid=True)),
    **dict.fromkeys(("reply_to", "sender_mail"), text("Address", check=any_text)),
    **dict.fromkeys(("sender_name", "subject", "template_subject"), text("Line", check=any_text, empty_is_valid=True)),
    "language_code": text("LanguageCode"),
    "file_name": text("FileName", none_is_valid=True),
    "once_per": text("MailName", empty_is_none=False),
    "at_most": Rule(_at_most),
    "mail_name": text("MailName", empty_is_none=False),
    "phone_number": text("PhoneNumber"),
    "send_date": Rule(_any, "UtcTime", empty_is_none=False, empty_is_valid=True),
    "template_name": text("TemplateName", check=any_text, empty_is_none=False),
    "trans_callback_url": text("WebUrl"),
    "unique_msg_id": text("UniqueMsgId"),
    # Other texts whose absence has a meaning of its own, or that may be blank.
    "list_name": text(empty_is_none=False),
    "unsubscribe_pattern": text(none_is_valid=True),
    **dict.fromkeys(("content", "delimiter", "escape", "name", "null_value", "template_content"), text(check=any_text)),
    # Lists, dictionaries, rows and files.
    **dict.fromkeys(("audiences", "column_names", "counters", "event_types", "ignore_differences"),
                    TEXTS),
    **dict.fromkeys(("repel_list_names", "seed_list_names", "send_list_names", "service_tags"),
                    Rule(one_or_more, read=read_container, text=True, text_inside=True)),
    "known_tags": Rule(_or_mapping(_list_of_texts), read=read_container, text=True, text_inside=True),
    "mail_status": Rule(_list_of_statuses, read=read_container),
    **dict.fromkeys(("columns", "trans_callback_url_extra"),
                    Rule(_mapping_of_texts, read=read_container, text_inside=True)),
    "mail_params": Rule(_mapping, read=read_container, text_inside=True),
    "trans_event": MAPPING,
    # Its values do not stay text: the database may need numbers.
    "parameters": Rule(_or_mapping(_list), read=read_container),
    "to": Rule(_recipients, read=read_container, text=True, text_inside=True),
    **dict.fromkeys(("contacts", "messages"), Rule(_rows, text_inside=True)),
    "path": Rule(_path, read=_read_result, text=True, text_inside=True),
    "attachment": Rule(_file, read=read_container, text=True, text_inside=True),
    "audience": Rule(_audience, read=read_container, text_inside=True),
    "send_window": Rule(_send_window),
    "consent": Rule(_consent),
    # Numbers and durations.
    **dict.fromkeys((
        "batch_size", "chunk_size", "max_attachment_bytes", "max_content_bytes", "max_in_flight", "max_pushes",
        "keep_lists", "limit", "max_recipients", "max_rows", "max_seeds", "rows_per_file",
    ), COUNT),
    **dict.fromkeys((
        "max_bounce", "max_fraction", "max_hard_bounce", "max_removed_fraction", "max_soft_bounce", "max_spam",
        "max_unsubscribe", "tolerance_fraction",
    ), FRACTION),
    "confidence": number(0.5, 0.999_999),
    "min_sent": number(whole=True),
    **dict.fromkeys(("keep_days", "max_growth"), number(above=True)),
    **dict.fromkeys(("lookback_days", "tolerance"), number(whole=True)),
    "max_change_fraction": number(),
    "full_every": duration(above=True),
    "edge_hours": number(most=24),
    "lock_timeout": number(1),
    "page_size": number(1, 1000, whole=True),
    "sender_type": number(1, 2, whole=True),
    "stable_checks": number(2, whole=True, none_is_valid=True),
    "versions_per_request": number(1, 100, whole=True),
    "poke_interval": duration(above=True),
}
# fmt: on
"""The arguments of which the type does not say all; ``own_rules`` of a class has those that differ there."""
