"""No regular expression of the package takes quadratically longer: each ends before the time-out.

What they read is written by others: error messages, the service's answers, templates. A pattern that is quadratic holds
an event loop up for half a minute with one word of a hundred kilobytes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_provider_mail._task.exceptions import without_addresses
from airflow_provider_mail.api._core import mailboxes
from airflow_provider_mail.notifications import _message
from airflow_provider_mail.notifications._context import NotificationContext
from airflow_provider_mail.notifications._delivery import summarize
from tests.support.env import ROOT

PACKAGE = ROOT / "airflow_provider_mail"
METHODS = ("search", "match", "fullmatch", "sub", "split", "findall", "finditer")
SIZE = 200_000
"""So many pieces take a linear pattern milliseconds, and a quadratic one longer than a test may take."""


@dataclass(frozen=True)
class Use:
    """A pattern, and the methods that it is used with."""

    where: str
    pattern: str | bytes
    flags: int
    methods: tuple[str, ...]


def uses() -> Iterator[Use]:
    """Every pattern in the package that is written down there."""
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text())
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
        for call in calls:
            assert isinstance(call.func, ast.Attribute)
            of_re = isinstance(call.func.value, ast.Name) and call.func.value.id == "re"
            if not of_re or call.func.attr not in ("compile", *METHODS) or not call.args:
                continue
            pattern = _text(call.args[0])
            if pattern is None:
                continue
            where = f"{file.relative_to(PACKAGE)}:{call.lineno}"
            flags = sum(getattr(re, name.attr) for name in ast.walk(call) if _is_flag(name))  # type: ignore[attr-defined]
            methods = (call.func.attr,) if call.func.attr != "compile" else _methods_of(tree, call)
            yield Use(where, pattern, flags, methods or METHODS[:1])


def _text(node: ast.expr) -> str | bytes | None:
    """A pattern; what is only known later is a word."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "encode":
        text = _text(node.func.value)
        return text.encode() if isinstance(text, str) else None
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "word" for part in node.values)
    return None


def _is_flag(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr.isupper() and node.attr in re.RegexFlag.__members__


def _methods_of(tree: ast.AST, compiled: ast.Call) -> tuple[str, ...]:
    names = {
        target.id if isinstance(target, ast.Name) else target.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and node.value is compiled
        for target in node.targets
        if isinstance(target, ast.Name | ast.Attribute)
    }
    found = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in METHODS
        and (getattr(node.value, "id", None) in names or getattr(node.value, "attr", None) in names)
    }
    return tuple(sorted(found))


USES = list(uses())


def hostile(pattern: str) -> list[str]:
    """What is repeated to make a pattern try long, and in vain."""
    literals = [re.sub(r"\\(.)", r"\1", found) for found in re.findall(r"(?:[\w ':;,<`]|\\[\[{(.])+", pattern)]
    texts = [" ", "a", "1", "@", '"', '""', "'", ",", "{", "{{ ", "<a ", "a@", "a,", "a.", "[", "\\", "`a`", "\t\n"]
    return [*texts, *literals[:8], *(f"{literal} " for literal in literals[:4])]


@pytest.mark.parametrize("use", USES, ids=lambda use: use.where)
def test_every_pattern_is_linear(use: Use) -> None:
    compiled = re.compile(use.pattern, use.flags)
    text = use.pattern if isinstance(use.pattern, str) else use.pattern.decode("latin-1")

    def work(piece: str, method: str) -> None:
        for whole in (piece * SIZE, f"{{{{<a {piece * SIZE}", f"{piece * SIZE}\x01"):
            given: Any = whole if isinstance(use.pattern, str) else whole.encode("latin-1", "replace")
            found = (
                compiled.sub("" if isinstance(given, str) else b"", given)
                if method == "sub"
                else getattr(compiled, method)(given)
            )
            if method == "finditer":
                for _ in found:
                    pass

    for piece in hostile(text):
        for method in use.methods:
            work(piece, method)


def test_all_patterns_were_found() -> None:
    assert len(USES) > 20
    assert any(use.where.startswith("_task/exceptions.py") for use in USES)


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda text: without_addresses(text), id="addresses"),
        pytest.param(lambda text: mailboxes.mailbox("to", text, []), id="parts"),
        pytest.param(lambda text: list(mailboxes.split_mailboxes(text)), id="separated"),
        pytest.param(lambda text: _message._one_line(f"Airflow alert: dag_id=a task_id=b {text}"), id="subject"),
        pytest.param(lambda text: summarize(ValueError(text)), id="in_short"),
    ],
)
@pytest.mark.parametrize("piece", ["a", " ", ",", '"', "<", "a@", '",', " <"])
def test_what_the_notifier_reads_is_read_once(work: Any, piece: str) -> None:
    work(piece * SIZE)


def test_an_error_of_one_word_makes_a_notification() -> None:
    occasion = NotificationContext.from_context(
        {"exception": ValueError("w" * SIZE), "dag_run": {"dag_id": "d", "run_id": "r"}}
    )
    assert occasion.error.startswith("ValueError: ww")
    assert len(occasion.error) < 1000
