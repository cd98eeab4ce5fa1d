"""The code blocks of the pages, and DAG files made of them as a reader would make them."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tests.support.env import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(
    r"(?:^<!-- (?P<marker>\w+)[^\n]*-->\n)?"  # such as <!-- example: mail_campaign.py howto_create_campaign -->
    r"^(?P<indent> *)```(?P<language>\w+)(?P<info>[^\n]*)\n(?P<code>.*?)^(?P=indent)```",
    re.DOTALL | re.MULTILINE,
)
EMBEDDED = ("example", "file", "run", "sql")
"""Markers of blocks that other tests run: parts of example DAGs, files with a test of their own, and marked blocks."""


@dataclass(frozen=True)
class Block:
    """A code block.

    :param not_run: why it cannot be run, from the block's own fence: ```` ```python (not run: needs S3) ````.
    """

    page: Path
    line: int
    language: str
    code: str
    not_run: str | None
    embedded: bool

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def name(self) -> str:
        return re.sub(r"\W", "_", str(self))


def blocks(*languages: str) -> list[Block]:
    """Return the blocks of the pages in these languages."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for fence in _FENCE.finditer(text):
            reason = re.search(r"\(not run: (.+)\)", fence["info"])
            if fence["language"] in languages:
                found.append(
                    Block(
                        page=page,
                        line=text[: fence.start("language")].count("\n") + 1,
                        language=fence["language"],
                        code=textwrap.dedent(fence["code"]),
                        not_run=reason[1] if reason else None,
                        embedded=fence["marker"] in EMBEDDED,
                    )
                )
    return found


def dag_file(block: Block) -> str:
    """Return a DAG file with the block, below the imports and the names that the page has shown before it."""
    before = [
        other.code
        for other in blocks("python")
        if other.page == block.page and other.line < block.line and not other.not_run
    ]
    shown = "\n".join([*_imports("\n".join([*before, block.code])), *_assignments(before)])
    if "DAG(" in block.code:
        return f"{shown}\n\n{block.code}"
    header = f"import pendulum\nfrom airflow.sdk import DAG\n{shown}\n\n"
    start = "start_date=pendulum.datetime(2026, 1, 1), schedule=None"
    body = textwrap.indent(block.code, "    ")
    return f'{header}with DAG("{block.name}", {start}) as dag:\n{body}'


def _imports(code: str) -> list[str]:
    nodes = ast.parse(code).body
    return sorted({ast.unparse(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)})


def _assignments(codes: list[str]) -> list[str]:
    """Return the plain values that a page names once and uses later, such as a query or a window."""
    found = {}
    for node in (node for code in codes for node in ast.parse(code).body):
        if isinstance(node, ast.Assign) and _is_value(node.value):
            found[ast.unparse(node.targets[0])] = ast.unparse(node)
    return list(found.values())


def _is_value(node: ast.expr) -> bool:
    """Whether an expression has no names, so that it means the same wherever it is written."""
    return not any(isinstance(part, ast.Name) for part in ast.walk(node))
