"""The page "Conformance" lists everything that the document has, in its words, and names only tests that exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.document.fact_rows import ERRORS, EVENTS, LIMITS, STATES
from tests.document.facts import OPERATIONS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "conformance.md"
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


def test_every_operation_is_listed():
    assert [cells[:2] for cells in rows("Operations")] == [
        [quoted(operation.key), f"{operation.method} `{operation.path}`"] for operation in OPERATIONS
    ]


def test_every_error_is_listed():
    assert [cells[:3] for cells in rows("Errors")] == [[quoted(row.id), str(row.code), row.condition] for row in ERRORS]


def test_every_limit_is_listed():
    assert [cells[:3] for cells in rows("Limits")] == [[quoted(row.id), row.item, row.limit] for row in LIMITS]


def test_every_event_is_listed():
    assert [cells[:2] for cells in rows("Events")] == [[quoted(row.id), row.event_code] for row in EVENTS]


def test_every_transition_is_listed():
    assert [cells[0] for cells in rows("States and transitions")] == [quoted(row.id) for row in STATES]


@pytest.mark.parametrize("heading", ["Operations", "Errors", "Limits", "Events", "States and transitions"])
def test_every_line_has_a_test_of_our_client(heading: str):
    for cells in rows(heading):
        assert _TEST.findall(cells[-2]), cells[0]


def test_every_test_named_exists():
    named = set(_TEST.findall(PAGE.read_text()))
    files = sorted({name.partition("::")[0] for name in named})
    assert [file for file in files if not (ROOT / file).exists()] == []
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    # A test may be named with one of its parameters or without.
    existing = {line for line in collected if "::" in line}
    existing |= {line.partition("[")[0] for line in existing}
    assert sorted(named - existing) == []
