"""Checks arguments as soon as they are known: literal values when the DAG file is parsed, rendered ones at task start.

``rules.ARGUMENTS`` has the rule of each argument; its default in the signature of ``__init__`` shows whether it may be
``None``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from datetime import timedelta
from functools import cache, wraps
from typing import Any, ClassVar, Self, TypeVar, cast

from airflow.sdk import XComArg

from airflow_provider_mail._task.rules import ARGUMENTS, SEEN_ARGUMENTS, Rule

F = TypeVar("F", bound=Callable[..., Any])

PACKAGE = "airflow_provider_mail."

NOTHING = (
    "was given and resolves to nothing: its template, or the task whose result it is, has no value. Correct that, or "
    "write None in the DAG file if the argument is not needed"
)


@cache
def declared(owner: Any) -> dict[str, Rule]:
    """Return the rules of the arguments that a class of this package declares, by name.

    :param owner: the class, or a user's subclass, whose own arguments are not checked.
    :raises TypeError: naming those without a rule.
    """
    own_classes = (base for base in owner.__mro__ if base.__module__.startswith(PACKAGE))
    own_class = next(base for base in own_classes if "__init__" in vars(base))
    return _rules_of(vars(own_class)["__init__"], getattr(own_class, "own_rules", {}))


def _rules_of(function: Callable[..., Any], own_rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """Return the rules of the keyword arguments of a function, by name."""
    rules = {**ARGUMENTS, **own_rules}
    signature = inspect.signature(inspect.unwrap(function)).parameters
    defaults = {name: one.default for name, one in signature.items() if one.kind is one.KEYWORD_ONLY}
    if missing := ", ".join(sorted(defaults.keys() - rules.keys())):
        raise TypeError(
            f"{missing}: no rule says which values {function.__qualname__} takes; add it to ARGUMENTS in "
            "airflow_provider_mail/_task/rules.py"
        )
    return {
        name: replace(rules[name], name=name, optional=default is None or rules[name].none_is_valid)
        for name, default in defaults.items()
    }


def checked(error: type[Exception] = ValueError, /, **own_rules: Rule) -> Callable[[F], F]:
    """Make a decorator that checks the arguments of a function like those of a task.

    :param error: raised with what is wrong.
    :param own_rules: for arguments for which ``rules.ARGUMENTS`` does not apply.
    """

    def decorate(function: F) -> F:
        rules = _rules_of(function, own_rules)
        texts = [name for name, rule in rules.items() if rule.text]

        @wraps(function)
        def call(*positional: Any, **arguments: Any) -> Any:
            if messages := list(_problems(rules, arguments, texts)):
                raise error("; ".join(messages))
            return function(*positional, **arguments)

        return cast("F", call)

    return decorate


def must_be_complete(owner: type, name: str) -> bool:
    """Whether every expression in the template of an argument must have a value."""
    rule = declared(owner).get(name)
    if name in SEEN_ARGUMENTS or rule is None:
        return rule is not None
    return (rule.text or rule.text_inside) and not rule.is_rows and not rule.choices


def may_be_blank(owner: type, name: str) -> bool:
    """Whether a missing value is checked when the request is built, since the task may allow it."""
    return "allow_blank" in declared(owner) and name in SEEN_ARGUMENTS


def is_empty_option(owner: type, name: str, value: Any) -> bool:
    """Whether a value is empty text for an optional argument, so that the request is built without it.

    Not for texts that recipients see: empty text is intended there, as with ``allow_blank``.
    """
    rule = declared(owner).get(name)
    is_text = SEEN_ARGUMENTS.get(name) in ("html", "text")
    return rule is not None and not is_text and rule.is_left_out(value)


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
    """Yield what is wrong with each argument, beginning with its name."""
    return _problems(declared(owner), values, owner.template_fields)  # type: ignore[attr-defined]


def _problems(rules: Mapping[str, Rule], values: Mapping[str, Any], templated: Collection[str]) -> Iterator[str]:
    for name, rule in rules.items():
        if name not in values:
            continue
        value = values[name]
        # There may be many rows: their values are not searched for templates.
        known = (rule.is_rows and isinstance(value, list | tuple)) or name not in templated or is_known(value)
        if known and (problem := rule.problem(value)):
            yield f"{name}: {problem}"


def stays_text(owner: type, name: str, template: Any) -> bool:
    """Whether the texts that templates render in an argument must stay text, not become numbers or dates."""
    rule = declared(owner).get(name)
    if rule is None:
        return False
    return rule.text if isinstance(template, str) else rule.text_inside


def read_rendered(owner: type, name: str, template: Any, value: Any) -> tuple[Any, str | None]:
    """Return the value of a rendered argument, and what is wrong with it (``None``: nothing).

    An argument that was given and has no value is an error, even if it may be left out: without it, the task would do
    something else. A list or dictionary that a template has rendered as text is parsed.
    """
    rule = declared(owner).get(name)
    if rule is None or is_known(template):
        return value, None
    if may_be_blank(owner, name):
        if value in (None, "", "None"):
            return value, None
    elif (path := _missing(rule, template, value)) is not None:
        return value, f"{path}{': ' if path else ''}{NOTHING}"
    if isinstance(value, str) and isinstance(template, str):
        value = _read(rule, value)
    return value, rule.problem(value)


def _missing(rule: Rule, template: Any, value: Any) -> str | None:
    """Return the path in the argument of a value that rendered to nothing; ``None`` if there is none."""
    from airflow_provider_mail.api._core.fields import is_nothing

    if is_known(template):
        return None
    # Blank text may be meant, such as a tab between values.
    if value in (None, "", "None") if rule.is_any_text else is_nothing(value):
        return ""
    inside: Iterable[tuple[Any, Any, Any]] = ()
    if isinstance(template, Mapping) and isinstance(value, Mapping):
        inside = ((key, item, value.get(key)) for key, item in template.items())
    elif isinstance(template, list | tuple) and isinstance(value, list | tuple):
        inside = ((index, *items) for index, items in enumerate(zip(template, value, strict=False)))
    for key, item, rendered in inside:
        # Empty text in a list or dictionary may be a value, and so may None in a row and for a database.
        if rendered == "" or (rendered is None and (rule.is_rows or not rule.text_inside)):
            continue
        if (path := _missing(rule, item, rendered)) is not None:
            return f"[{key!r}]{path}"
    return None


def missing_parts(template: Any, context: Mapping[str, Any]) -> str | None:
    """Return which part of a mapped task has no result, if a value is made of its results; else ``None``.

    Airflow leaves out the parts that failed or were skipped: a campaign would go to the others alone.
    """
    ti: Any = context.get("ti")
    if is_known(template) or not hasattr(ti, "get_task_states"):
        return None
    for operator, _ in XComArg.iter_xcom_references(template):
        in_group = operator.get_closest_mapped_task_group()
        if not operator.is_mapped and (in_group is None or ti.task.get_closest_mapped_task_group() is not None):
            continue
        states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[operator.task_id], run_ids=[ti.run_id])
        parts = {part: state for run in states.values() for part, state in run.items() if state != "removed"}
        if lacking := {part: state for part, state in parts.items() if state != "success"}:
            part, state = next(iter(lacking.items()))
            return f"{len(lacking)} of {len(parts)} parts of task {operator.task_id!r} have no result ({part}: {state})"
    return None


def _read(rule: Rule, text: str) -> Any:
    """Parse what a template has rendered as text for an argument; return the text itself if it cannot be parsed."""
    try:
        value = rule.read(text) if rule.read else None
    except ValueError:
        value = None
    return text if value is None else value


def argument_error(problem: str, *, mapped: bool) -> Exception:
    """Return the error about arguments.

    :param mapped: whether they are those of a mapped task, which is created when it runs: a retry would not help.
    """
    if mapped:
        from airflow_provider_mail.version_compat import AirflowFailException

        return AirflowFailException(problem)
    return ValueError(problem)


@dataclass(frozen=True, kw_only=True)
class ArgumentGroup:
    """Arguments that belong together, checked when the DAG file is parsed; durations become seconds.

    Airflow renders the fields in ``template_fields``, and shows those that differ from their defaults.
    """

    template_fields: ClassVar[tuple[str, ...]] = ()
    own_rules: ClassVar[Mapping[str, Any]] = {}

    def __post_init__(self) -> None:
        if messages := list(problems(type(self), vars(self))):
            raise ValueError(f"{type(self).__name__}: {'; '.join(messages)}")
        for name, value in vars(self).items():
            if isinstance(value, timedelta):
                object.__setattr__(self, name, value.total_seconds())

    def rendered(self, values: Mapping[str, Any]) -> Self:
        """Return the group with the values of its templates."""
        return replace(self, **values)

    def serialize(self) -> dict[str, Any]:
        """Return what Airflow stores and shows of the group; called by Airflow."""
        shown = ((field.name, getattr(self, field.name)) for field in fields(self) if field.default is not MISSING)
        defaults = {field.name: field.default for field in fields(self)}
        return {
            name: value if isinstance(value, str | int | float | bool) else str(value)
            for name, value in shown
            if value != defaults[name]
        }


def set_upstream_of_groups(task: Any, values: Mapping[str, Any]) -> None:
    """Make a task follow the tasks whose results its groups contain: Airflow does not look into them."""
    for group in values.values():
        if isinstance(group, ArgumentGroup):
            XComArg.apply_upstream_relationship(task, [getattr(group, name) for name in group.template_fields])
