"""The messages of the code, which the site shows below ``<!-- messages -->`` of docs/messages.md.

Listed is every message that the code raises, or logs as a warning or an error. A
message is the text of an exception's first argument, of a logging call, or what a function of :data:`DESCRIBE` returns,
with ``...`` for each part that is not known before.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "airflow_provider_mail"

AREAS = {
    "Arguments and templates": (
        "_task/rules",
        "_task/checks",
        "_task/mixin",
        "_task/airflow",
        "arguments",
        "_config",
    ),
    "Audiences": ("_audience", "api/flows/audience", "cli/audience"),
    "Imports of contacts": (
        "operators/_contact_import",
        "operators/contacts",
        "transfers/sql_to_mail",
        "transfers/object_storage_to_mail",
        "transfers/key_ranges",
        "transfers/_base",
        "_task/imports",
        "_task/import_rows",
        "_task/progress",
        "_task/storage",
        "warehouse/read_files",
        "api/flows/import",
        "api/flows/validate",
    ),
    "Campaigns, stages and gates": (
        "operators/campaigns",
        "operators/preflight",
        "operators/seed_test",
        "operators/compare",
        "api/flows/create",
        "api/flows/campaign",
        "api/flows/cancel",
        "api/flows/preflight",
        "api/campaigns",
        "_task/division",
        "_task/staged_plan",
        "utils/staged_send",
        "sensors/gate",
    ),
    "The hold and the send window": ("hold", "send_window"),
    "Transactional mail and notifications": (
        "operators/transactional",
        "_task/at_most_once",
        "_task/messages",
        "notifications",
        "utils/emailer",
        "api/transactional",
        "memory",
    ),
    "Waits": ("sensors", "triggers", "_polling", "_task/waiting", "api/flows/waits"),
    "Tables and files": (
        "warehouse",
        "transfers/mail_to",
        "_task/statistics",
        "api/flows/statistics",
        "dlt_source",
        "_dlt",
        "operators/dlt",
    ),
    "Events, the receiver and the inbox": (
        "webhook",
        "operators/events",
        "transfers/events",
        "utils/events",
        "cli/receive",
    ),
    "The page": ("plugin",),
    "Commands": ("cli", "__main__"),
    "The connection, the client and other operations": ("",),
}
"""Titles, and the beginnings of the paths of their modules; the first that fits is taken."""

DESCRIBE = ("_task/rules", "_task/checks", "api/config", "api/_core/fields", "operators/_base")
"""Modules with functions that return what is wrong, and with texts in dictionaries: others raise it, behind a name."""

AT_ONCE = {"AirflowFailException", "SystemExit", "ValueError", "TypeError"}
"""``ValueError`` and ``TypeError`` are raised for arguments, which the next try would give again."""

SKIPPED = {"AirflowSkipException"}
LOGGED = {"warning": "logged as a warning", "error": "logged as an error", "exception": "logged as an error"}
_PART = re.compile(r"(\.\.\.)([\s.]*\.\.\.)+")
_FIELD = re.compile(r"(?<!\{)\{\w+\}(?!\})")
_SETTING = re.compile(r"'\w+ \([\w ]+\)'")  # such as: password (API key)
_TEXTS = (ast.Constant, ast.JoinedStr, ast.IfExp, ast.BinOp)
_PERCENT = re.compile(r"%(?:\(\w+\))?[-+ #0]?[\d.]*[sdrifgx]")


@dataclass(frozen=True, order=True)
class Message:
    area: str
    text: str
    outcome: str


def messages() -> list[Message]:
    """Return the messages of the package, by area and text."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    temporary = _temporary(trees.values())
    found: dict[str, Message] = {}
    for path, tree in trees.items():
        module = str(path.relative_to(PACKAGE).with_suffix(""))
        area = next(title for title, starts in AREAS.items() if module.startswith(starts))
        described = _descriptions(tree, "RuntimeError" if module == "api/config" else "ValueError")
        for name, argument in (*_calls(tree, temporary), *(described if module in DESCRIBE else ())):
            for text in _texts(argument, logged=name in LOGGED):
                if len(re.findall(r"[A-Za-z]{2,}", text.replace("...", ""))) >= 3:
                    found.setdefault(text, Message(area, text, _outcome(name, temporary)))
    return sorted(found.values())


def _temporary(trees: Iterable[ast.Module]) -> dict[str, bool | None]:
    """Return the exception classes, with their attribute ``temporary`` if they or a base have one."""
    classes: dict[str, ast.ClassDef] = {}
    for tree in trees:
        classes |= {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}

    def bases(name: str) -> Iterator[str]:
        yield name
        for base in classes[name].bases if name in classes else ():
            yield from bases(ast.unparse(base).split("[")[0].rpartition(".")[2])

    result: dict[str, bool | None] = dict.fromkeys(("RuntimeError", "AirflowException", *AT_ONCE, *SKIPPED))
    for name in classes:
        lineage = [*bases(name)]
        if any(base == "Exception" or base.endswith(("Error", "Exception")) for base in lineage):
            result[name] = next(
                (value for base in lineage if (value := _own_temporary(classes.get(base))) is not None), None
            )
    return result


def _own_temporary(node: ast.ClassDef | None) -> bool | None:
    for statement in node.body if node is not None else ():
        target = statement.target if isinstance(statement, ast.AnnAssign) else None
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
        if isinstance(target, ast.Name) and target.id == "temporary":
            value = getattr(statement, "value", None)
            return value.value if isinstance(value, ast.Constant) else None
    return None


def _calls(tree: ast.Module, errors: dict[str, bool | None]) -> Iterator[tuple[str, ast.expr]]:
    """Yield the exceptions that a module constructs and what it logs, with the argument that has the text."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in LOGGED:
            if ast.unparse(node.func.value).endswith("log"):
                yield node.func.attr, node.args[0]
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        if name in errors or name.endswith("_error"):
            # Helpers that name the argument first, such as `argument_error(name, text)`.
            yield from ((name, argument) for argument in node.args[:2])


def _descriptions(tree: ast.Module, name: str) -> Iterator[tuple[str, ast.expr]]:
    """Yield what functions return or yield as text, and the values of dictionaries, with the given exception's name."""
    constants = {
        node.targets[0].id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, _TEXTS)
    }

    class Named(ast.NodeTransformer):
        """Puts a text in place of the name that it was given."""

        def visit_Name(self, node: ast.Name) -> ast.expr:
            return constants.get(node.id, node)

        def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.expr:
            value = constants.get(node.value.id) if isinstance(node.value, ast.Name) else None
            return value if isinstance(value, ast.Constant) else node

    for node in ast.walk(tree):
        values: list[ast.expr | None] = []
        if isinstance(node, ast.Return | ast.Yield):
            values = [*node.value.elts] if isinstance(node.value, ast.Tuple) else [node.value]
        elif isinstance(node, ast.Dict):
            values = [*node.values]
        for value in values:
            text = Named().visit(value) if value is not None else None
            if isinstance(text, _TEXTS) and not _SETTING.search(ast.unparse(text)):
                yield name, text


def _texts(node: ast.expr, *, logged: bool) -> Iterator[str]:
    for text in _expand(node):
        if logged:
            text = _PERCENT.sub("...", text).replace("%%", "%")
        text = _PART.sub(r"\1", " ".join(text.split()))
        if text.strip(". "):
            yield text


def _expand(node: ast.expr) -> list[str]:
    """Return each text that an expression may have, with ``...`` for its variable parts."""
    if isinstance(node, ast.Constant):
        return [_FIELD.sub("...", node.value)] if isinstance(node.value, str) else ["..."]
    if isinstance(node, ast.JoinedStr):
        texts = [""]
        for value in node.values:
            parts = [str(value.value)] if isinstance(value, ast.Constant) else ["..."]
            if isinstance(value, ast.FormattedValue) and isinstance(value.value, ast.IfExp):
                parts = _expand(value.value)
            texts = [text + part for text in texts for part in parts]
        return texts
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [left + right for left in _expand(node.left) for right in _expand(node.right)]
    if isinstance(node, ast.IfExp):
        return _expand(node.body) + _expand(node.orelse)
    return ["..."]


def _outcome(name: str, temporary: dict[str, bool | None]) -> str:
    if name in LOGGED:
        return LOGGED[name]
    if name in SKIPPED:
        return "the task is skipped"
    retried = temporary.get(name, False)
    # A class without the attribute is not one of ours for the service: Airflow retries what it does not know.
    return "is retried" if retried or (retried is None and name not in AT_ONCE) else "fails at once"


def page(text: str) -> str:
    """Return the page with the present messages."""
    lines = []
    known = messages()
    for area in AREAS:
        if own := [message for message in known if message.area == area]:
            lines += [f"\n## {area}\n", "| message | the task |", "|---|---|"]
            lines += [f"| {_code(message.text)} | {message.outcome} |" for message in own]
    return text + "\n".join(lines) + "\n"


def _code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    padding = " " if "`" in text else ""
    return f"{fence}{padding}{text.replace('|', chr(92) + '|')}{padding}{fence}"
