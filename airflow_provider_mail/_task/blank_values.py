"""Detects arguments that recipients would see and that render to nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._task.rules import SEEN_ARGUMENTS
from airflow_provider_mail.api._core.blank import NOTHING, is_blank, is_blank_html

if TYPE_CHECKING:
    import jinja2


TEXT_FILTERS = frozenset(
    "capitalize center e escape forceescape indent lower replace safe string striptags title trim truncate upper "  # noqa: SIM905
    "urlencode urlize wordwrap".split()
)
"""Jinja's filters that turn a missing value into the text ``None``."""


def blank_values(argument: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and the description of each missing or blank value.

    :param argument: the name of the argument, at the beginning of each path.
    """
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
