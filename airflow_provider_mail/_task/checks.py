"""Checks arguments as soon as they are known: literal values when the DAG file is parsed, rendered ones at task start.

The signature of ``__init__`` and ``rules`` say which values an argument takes. How template fields are rendered, which
values are missing in them, and which ones Airflow must not show.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from datetime import timedelta
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from airflow.sdk import XComArg

from airflow_provider_mail._task.rules import ARGUMENTS, SEEN_ARGUMENTS, Rule, rule_of_type
from airflow_provider_mail.version_compat import AirflowFailException, RendersFields

if TYPE_CHECKING:
    import jinja2


F = TypeVar("F", bound=Callable[..., Any])

PACKAGE = "airflow_provider_mail."

NOTHING = (
    "was given and resolves to nothing: its template, or the task whose result it is, has no value. Correct that, or "
    "write None in the DAG file if the argument is not needed"
)

NOT_RENDERED = "a template, or the result of another task, is not resolved here: give the value itself"


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
    function, known, rules = inspect.unwrap(function), {**ARGUMENTS, **own_rules}, {}
    for name, argument in inspect.signature(function).parameters.items():
        if argument.kind is not argument.KEYWORD_ONLY:
            continue
        rule = known.get(name) or rule_of_type(argument.annotation, function.__globals__)
        if rule is None:
            raise TypeError(
                f"{name}: no rule says which values {function.__qualname__} takes; add it to ARGUMENTS in "
                "airflow_provider_mail/_task/rules.py"
            )
        rules[name] = replace(rule, name=name, optional=argument.default is None or rule.none_is_valid)
    return rules


def checked(error: type[Exception] = ValueError, /, *, templated: bool = True, **own_rules: Rule) -> Callable[[F], F]:
    """Make a decorator that checks the arguments of a function like those of a task.

    :param templated: whether texts may be templates.
    :param own_rules: for arguments for which ``rules.ARGUMENTS`` does not apply.
    """

    def decorate(function: F) -> F:
        rules = _rules_of(function, own_rules)
        texts = [name for name, rule in rules.items() if rule.text and templated]

        @wraps(function)
        def call(*positional: Any, **arguments: Any) -> Any:
            if messages := list(_problems(rules, arguments, texts)):
                raise error("; ".join(messages))
            return function(*positional, **arguments)

        return cast("F", call)

    return decorate


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
        is_literal = (rule.is_rows and isinstance(value, list | tuple)) or is_known(value)
        if name in templated and not is_literal:
            continue
        if problem := rule.problem(value) or (NOT_RENDERED if rule.is_text and not is_literal else None):
            yield f"{name}: {problem}"


def read_rendered(rule: Rule, owner: type, template: Any, value: Any) -> tuple[Any, str | None]:
    """Return the value of a rendered argument, and what is wrong with it (``None``: nothing).

    An argument that was given and has no value is an error, even if it may be left out: without it, the task would do
    something else. A list or dictionary that a template has rendered as text is parsed.
    """
    if is_known(template):
        return value, None
    if may_be_blank(owner, rule.name):
        if value in (None, "", "None"):
            return value, None
    elif (path := _missing(rule, template, value)) is not None:
        return value, f"{path}{': ' if path else ''}{NOTHING}"
    if isinstance(value, str) and isinstance(template, str):
        value = _read(rule, value)
    return value, rule.problem(value)


def _missing(rule: Rule, template: Any, value: Any) -> str | None:
    """Return the path in the argument of a value that rendered to nothing; ``None`` if there is none."""
    if is_known(template):
        return None
    from airflow_provider_mail.api._core.fields import is_nothing

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


INCOMPLETE = "an expression of its template has no value. Write {{ ... or '' }} where that is meant"

TEXT_FILTERS = frozenset(
    "capitalize center e escape forceescape indent lower replace safe string striptags title trim truncate upper "  # noqa: SIM905
    "urlencode urlize wordwrap".split()
)
"""Jinja's filters that turn a missing value into the text ``None``."""


class RenderingMixin(RendersFields):
    """Renders the template fields of a task one by one, and checks the values as if the DAG file had given them."""

    _renders_text = False
    _rendered_problems: tuple[str, ...] = ()
    _incomplete: Collection[str] = ()
    """The arguments in whose templates an expression had no value."""

    def render_fields(self, names: Iterable[str], context: Any, jinja_env: Any, seen_oids: set[int]) -> None:
        """Render argument by argument, so that an error names the argument and what to write instead.

        Unlike Airflow 3.0, keep a value that is empty once it is rendered.
        """
        self._rendered_problems = ()

        def rendered(owner: type, name: str, path: str, template: Any) -> Any:
            return self._rendered(owner, name, path, template, context, jinja_env, seen_oids)

        for name in names:
            value = getattr(self, name, None)
            if isinstance(value, ArgumentGroup):
                group = {field: getattr(value, field) for field in value.template_fields}
                group = {field: rendered(type(value), field, f"{name}.{field}", item) for field, item in group.items()}
                if not self._rendered_problems:  # The group would reject them, too.
                    setattr(self, name, replace(value, **group))
            elif not is_empty(value):
                setattr(self, name, rendered(type(self), name, name, value))

    def pre_execute(self, context: Any) -> None:
        """Fail the task when rendered arguments are wrong: not while they are rendered, so that Airflow shows them.

        :raises AirflowFailException: naming each argument that is wrong.
        """
        if self._rendered_problems:
            raise AirflowFailException("; ".join(self._rendered_problems))
        super().pre_execute(context)  # type: ignore[misc]

    def _rendered(
        self, owner: type, name: str, path: str, template: Any, context: Any, jinja_env: Any, seen_oids: set[int]
    ) -> Any:
        """Render an argument, and check it as if the DAG file had given the value.

        :param owner: the class that declares it: that of the task, or of a group.
        :param path: of the argument, for messages.
        """
        rule = declared(owner).get(name)  # None: of a user's subclass
        self._renders_text = rule is not None and (rule.text if isinstance(template, str) else rule.text_inside)
        noted = set(self._incomplete) - {path}
        environment = jinja_env
        if rule is not None and rule.must_be_complete:
            environment = noting_environment(jinja_env, partial(noted.add, path))
        try:
            rendered = self.render_template(template, context, environment, seen_oids)  # type: ignore[attr-defined]
        except Exception as error:
            if advice := template_advice(path, error):
                raise AirflowFailException(advice) from None
            raise
        finally:
            self._renders_text = False
        self._incomplete = frozenset(noted)
        if problem := missing_parts(template, context):
            self._rendered_problems = (*self._rendered_problems, f"{path}: {problem}")
            return rendered
        written, plain = (item.value if isinstance(item, RedactedValue) else item for item in (template, rendered))
        value, problem = (plain, None) if rule is None else read_rendered(rule, owner, written, plain)
        is_left_out = value is None and name not in SEEN_ARGUMENTS
        if path in self._incomplete and not is_left_out and not may_be_blank(owner, name):
            problem = (problem if isinstance(written, str) else None) or INCOMPLETE
        if problem:
            self._rendered_problems = (*self._rendered_problems, f"{path}: {problem}")
        return rendered if problem or value is plain else value

    def render_one(self, template: Any, context: Any, dag: Any) -> Any:
        """Render a template; text stays text also with ``render_template_as_native_obj``.

        With it, Airflow evaluates the rendered text as Python: ``20260131`` would become a number, ``1e5`` 100000.0.
        """
        from jinja2.nativetypes import NativeEnvironment

        if not self._renders_text or not isinstance(template.environment, NativeEnvironment):
            return super().render_one(template, context, dag)
        parts = list(template.generate(context))
        if len(parts) == 1 and (parts[0] is None or isinstance(parts[0], Mapping | list | tuple)):
            return parts[0]
        return "".join(map(str, parts))


class RedactedValue:
    """Wrapper that Airflow stores and shows as the number of values, not as the values."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __str__(self) -> str:
        if isinstance(self.value, list | tuple):
            return f"not shown ({len(self.value)})"
        if callable(self.value):
            return f"from {getattr(self.value, '__qualname__', type(self.value).__name__)}"
        return "not shown"


class RedactedField:
    """Template field whose value becomes a :class:`RedactedValue` when Airflow has rendered it.

    Airflow stores rendered fields and shows them in its UI, which must not show addresses. A function is wrapped
    immediately: Airflow would call it while rendering (3.3), or store its memory address, which differs in every
    process (3.0).
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, operator: Any, owner: type) -> Any:
        return self if operator is None else operator.__dict__[self._name]

    def __set__(self, operator: Any, value: Any) -> None:
        # The first value is set by `__init__`, the next one by the rendering.
        rendered = self._name in operator.__dict__
        hide = rendered or callable(value) or isinstance(value, Iterator)
        operator.__dict__[self._name] = RedactedValue(value) if hide and not isinstance(value, RedactedValue) else value


def is_empty(value: Any) -> bool:
    """Whether there is nothing to render; not a value that cannot say so, such as an array."""
    return value is None or (isinstance(value, str | list | tuple | Mapping) and not value)


def unwrap(value: Any) -> Any:
    """Return the value of a template field, redacted or not."""
    return value.value if isinstance(value, RedactedValue) else value


def blank_values(argument: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and the description of each missing or blank value."""
    from airflow_provider_mail.api._core.fields import NOTHING, is_blank, is_blank_html

    if isinstance(value, Mapping):
        for key, item in value.items():
            if key == "name" and item == "" and "email" in value:
                continue  # Without a name, recipients see the address.
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
        elif SEEN_ARGUMENTS.get(argument) == "html" and is_blank_html(value):
            yield argument, "shows nothing"


def newly_blank(argument: str, written: Any, rendered: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and the description of each value that rendering has made missing or blank.

    ``"None"`` as the value of an argument and an empty value in a dictionary are intended if the DAG file itself has
    them. Lists and dictionaries are searched only if the DAG file has them: the output of another task may contain any
    values.
    """
    from airflow_provider_mail.api._core.fields import NOTHING

    searched = isinstance(written, Mapping | list | tuple)
    intended = {path for path, _ in blank_values(argument, written)}
    if SEEN_ARGUMENTS.get(argument) in ("html", "text") and str(written).strip() not in NOTHING:
        intended.clear()
    for path, problem in blank_values(argument, rendered):
        if path not in intended and (searched or path == argument):
            yield path, problem


def noting_environment(environment: jinja2.Environment, note: Callable[[], None]) -> jinja2.Environment:
    """Return a Jinja environment that notes each expression without a value, also in the middle of a text.

    An expression that is not evaluated, such as one in the other branch of an ``if``, is not noted. If the DAG sets
    ``finalize``, the DAG itself decides what ``None`` renders to: its environment is returned unchanged.
    """
    import jinja2
    from jinja2 import nodes

    from airflow_provider_mail.api._core.fields import NOTHING

    if environment.finalize is not None:
        return environment

    # Takes the context so that Jinja does not evaluate constants when it compiles a template.
    @jinja2.pass_context
    def finalize(context: Any, value: Any, has_default: bool = False) -> Any:
        # Not for jinja2.DebugUndefined, which leaves tags to the service.
        undefined = isinstance(value, jinja2.Undefined) and not str(value) and not has_default
        if (
            value is None
            or undefined
            or (not isinstance(value, str | Mapping | list | tuple | set) and str(value) in NOTHING)
        ):
            note()
        return value

    def note_inside(expression: nodes.Expr, *, has_default: bool = False) -> None:
        """Note missing values that an operator or a filter turns into text, if that text is rendered.

        Conditions, comparisons and arguments are not rendered.
        """

        def noted(part: nodes.Expr) -> nodes.Expr:
            note_inside(part, has_default=has_default)
            arguments = [part, nodes.Const(has_default)]
            return nodes.Call(nodes.EnvironmentAttribute("finalize"), arguments, [], None, None)

        match expression:
            case nodes.Concat():
                expression.nodes = [*map(noted, expression.nodes)]
            case nodes.CondExpr(expr1=first, expr2=second):
                note_inside(first, has_default=has_default)
                if second is not None:
                    note_inside(second, has_default=has_default)
            case nodes.Or(left=first, right=second):
                note_inside(first, has_default=True)
                note_inside(second, has_default=has_default)
            case nodes.Filter(name="replace", args=[nodes.Const(value=old), *_]) if old in NOTHING:
                pass
            case nodes.Filter(name=name, node=nodes.Expr() as first) if name in TEXT_FILTERS:
                expression.node = noted(first)
            case nodes.Filter(name="default" | "d", node=nodes.Expr() as first):
                note_inside(first, has_default=True)

    class Generator(environment.code_generator_class):  # type: ignore[misc, name-defined]
        def visit_Output(self, node: nodes.Output, frame: Any) -> None:
            for expression in node.nodes:
                note_inside(expression)
            super().visit_Output(node, frame)

        def visit_Assign(self, node: nodes.Assign, frame: Any) -> None:
            # The result of a filter may be meant for a comparison.
            if isinstance(node.node, nodes.Concat):
                note_inside(node.node)
            super().visit_Assign(node, frame)

    # Code that was compiled for one environment must not run in the other.
    noting = environment.overlay(finalize=finalize, bytecode_cache=None)
    noting.code_generator_class = Generator
    return noting


OF_LOGICAL_DATE = frozenset((
    "ds", "ds_nodash", "ts", "ts_nodash", "ts_nodash_with_tz", "logical_date", "data_interval_start",
    "data_interval_end", "prev_data_interval_start_success", "prev_data_interval_end_success",
))  # fmt: skip
"""What Airflow does not give to a template in a run without a logical date."""


def template_advice(field: str, error: Exception) -> str:
    """Return how to write a tag of the service that Airflow tried to render; empty for any other error."""
    import jinja2

    if isinstance(error, jinja2.TemplateSyntaxError):
        return (
            f"{field}: line {error.lineno} is no template: {error.message}. What the service is to fill in, such as "
            "{{first name}}, is written {% raw %}{{first name}}{% endraw %}"
        )
    if isinstance(error, jinja2.TemplateNotFound):
        return (
            f"{field}: there is no file {error.name!r} in the folder of the DAG or its template_searchpath. For a text "
            "that ends like the name of a file, add a space"
        )
    if isinstance(error, jinja2.UndefinedError):
        quoted, undefined, _ = str(error.message).partition(" is undefined")
        name = quoted.strip("'")
        if quoted.startswith("'list object' has no attribute"):
            return (
                f"{field}: {error.message}: in a mapped task group, ti.xcom_pull() returns a list of all results. For "
                "that of this one, write ti.xcom_pull('<task>', map_indexes=ti.map_index)"
            )
        if undefined and name in OF_LOGICAL_DATE:
            return (
                f"{field}: {name} is undefined: this run has no logical date, as one that an asset or the API starts. "
                "Every run has dag_run.run_after: write {{ dag_run.run_after | ds }}, or | ts"
            )
        if undefined and name.isidentifier():
            return (
                f"{field}: {{{{{name}}}}} is undefined: Airflow has no value of that name. If it is a tag that the "
                f"service is to fill in, write {{% raw %}}{{{{{name}}}}}{{% endraw %}}"
            )
    return ""
