"""No regular expression of the package takes quadratically longer: each ends before the time-out.

What they read is written by others: error messages, the service's answers, templates. A pattern that is quadratic holds
an event loop up for half a minute with one word of a hundred kilobytes.
"""

from __future__ import annotations

import ast
import collections
import itertools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from airflow_provider_mail.api._core import fields
from airflow_provider_mail.api._core.fields import without_addresses
from airflow_provider_mail.notifications import _message
from airflow_provider_mail.notifications._context import NotificationContext
from airflow_provider_mail.notifications._message import summarize
from tests.support.env import ROOT

PACKAGE = ROOT / "airflow_provider_mail"
METHODS = ("search", "match", "fullmatch", "sub", "split", "findall", "finditer")
SIZE = 200_000
"""So many pieces take a linear pattern milliseconds, and a quadratic one longer than a test may take."""


class Use(NamedTuple):
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
            if (pattern := _text(call.args[0])) is None:
                continue
            where = f"{file.relative_to(PACKAGE)}:{call.lineno}"
            named = {node.attr for node in ast.walk(call) if isinstance(node, ast.Attribute)}
            flags = sum(flag for name, flag in re.RegexFlag.__members__.items() if name in named)
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


def _methods_of(tree: ast.AST, compiled: ast.Call) -> tuple[str, ...]:
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and node.value is compiled]
    names = {_name(target) for node in assigned for target in node.targets}
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in METHODS]
    return tuple(sorted({node.attr for node in attributes if _name(node.value) in names}))


def _name(node: ast.AST) -> str | None:
    return getattr(node, "id", getattr(node, "attr", None))


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
    for piece, method in itertools.product(hostile(text), use.methods):
        for whole in (piece * SIZE, f"{{{{<a {piece * SIZE}", f"{piece * SIZE}\x01"):
            written: Any = whole if isinstance(use.pattern, str) else whole.encode("latin-1", "replace")
            result = getattr(compiled, method)(*([written[:0]] if method == "sub" else []), written)
            collections.deque(result, 0) if method == "finditer" else None


def test_all_patterns_were_found() -> None:
    assert len(USES) > 20
    assert any(use.where.startswith("api/_core/fields.py") for use in USES)


@pytest.mark.parametrize("piece", ["a", " ", ",", '"', "<", "a@", '",', " <"])
def test_what_the_notifier_reads_is_read_once(piece: str) -> None:
    text = piece * SIZE
    without_addresses(text)
    fields.mailbox("to", text, [])
    list(fields.split_mailboxes(text))
    _message.one_line_subject(f"Airflow alert: dag_id=a task_id=b {text}")
    summarize(ValueError(text))


def test_an_error_of_one_word_makes_a_notification() -> None:
    failed = {"exception": ValueError("w" * SIZE), "dag_run": {"dag_id": "d", "run_id": "r"}}
    occasion = NotificationContext.from_context(failed)
    assert occasion.error.startswith("ValueError: ww")
    assert len(occasion.error) < 1000
