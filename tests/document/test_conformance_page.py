"""`conformance.md` lists everything that the document has, in its words, and names only tests that exist."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

from tests.document.conftest import COLLECTED
from tests.document.examples import EXAMPLES
from tests.document.fact_rows import ERRORS, EVENTS, LIMITS, STATES
from tests.document.fact_types import Operation
from tests.document.facts import OPERATIONS

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_name("conformance.md")
REACHES_THE_SERVICE = "test_end_to_end.py::test_an_operation_reaches_the_service"
TOKEN = "tests/cli/test_oauth.py::test_the_token_is_stored_and_works"
CONSENT = "test_models_match_document.py::test_the_consent_page_is_addressed_as_documented"
OAUTH = {
    "oauth.authorize": ((CONSENT,), "test_senders_and_oauth.py::test_authorize_checks_every_parameter"),
    "oauth.token": ((TOKEN,), "test_senders_and_oauth.py::test_token_checks_every_parameter"),
}
"""The two operations without an example: the tests of our client, and of the emulator by itself."""

_TEST = re.compile(r"`(tests/[^`]+?\.py::[^`]+)`")


def rows(heading: str) -> list[list[str]]:
    """The lines of the table below a heading that begin with an id, as cells."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    table = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if line[:1] == "|"
    ]
    return [cells for cells in table if re.fullmatch(r"`[a-z_]+(\.[a-z_0-9]+)+`", cells[0])]


def quoted(id: str) -> str:
    return f"`{id}`"


def operation_row(operation: Operation) -> str:
    """The line of an operation, with the tests that its example names."""
    client, emulator = OAUTH.get(operation.key, ((), ""))
    if example := EXAMPLES.get(operation.key):
        client, emulator = (f"{REACHES_THE_SERVICE}[{operation.key}-example]", *example.client), example.emulator
    shown = "<br>".join(f"`{test if '/' in test else f'tests/document/{test}'}`" for test in client)
    key, at = quoted(operation.key), f"{operation.method} `{operation.path}`"
    return f"| {key} | {at} | {shown} | `tests/emulator/{emulator}` |\n"


def test_every_operation_is_listed():
    text = PAGE.read_text()
    table = "".join(map(operation_row, OPERATIONS))
    written = re.sub(r"(?<=<!-- operations -->\n)(.*\n.*\n)(\|.*\n)*", lambda place: place[1] + table, text)
    if os.environ.get("WRITE_PAGES"):
        PAGE.write_text(written)
    assert table in written
    assert PAGE.read_text() == written, "make docs writes it anew"


def test_every_row_of_the_tables_is_listed():
    assert [cells[:3] for cells in rows("Errors")] == [[quoted(row.id), str(row.code), row.condition] for row in ERRORS]
    assert [cells[:3] for cells in rows("Limits")] == [[quoted(row.id), row.item, row.limit] for row in LIMITS]
    assert [cells[:2] for cells in rows("Events")] == [[quoted(row.id), row.event_code] for row in EVENTS]
    assert [cells[0] for cells in rows("States and transitions")] == [quoted(id) for id in STATES]


def test_every_line_has_a_test_of_our_client():
    for heading in ("Operations", "Errors", "Limits", "Events", "States and transitions"):
        for cells in rows(heading):
            assert _TEST.findall(cells[-2]), cells[0]


def test_every_test_named_exists(pytestconfig: pytest.Config):
    collected = pytestconfig.stash[COLLECTED]
    functions = {test.partition("[")[0] for test in collected}

    def exists(test: str) -> bool:
        function = test.partition("[")[0]
        if function in functions:
            return test in collected or test == function
        return defined(*function.split("::"))  # not a part of this run: its parameters are unknown

    assert [test for test in sorted(set(_TEST.findall(PAGE.read_text()))) if not exists(test)] == []


def defined(file: str, *names: str) -> bool:
    """Whether a function, or a class and its method, is in the file."""
    scope: ast.AST | None = ast.parse((ROOT / file).read_text()) if (ROOT / file).exists() else None
    for name in names:
        scope = next((node for node in getattr(scope, "body", ()) if getattr(node, "name", None) == name), None)
    return scope is not None
