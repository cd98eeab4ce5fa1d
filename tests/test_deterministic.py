"""No test of `make test` depends on how fast the machine is; what does, is in `tests/real` or in `benchmarks`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
FILES = [
    path
    for path in sorted(TESTS.rglob("*.py"))
    if path.relative_to(TESTS).parts[0] not in ("real", "support") and path != Path(__file__)
]
MODULES = {"multiprocessing", "psutil", "resource", "subprocess"}
"""They start processes, or measure them."""
NAMES = {"clock_gettime", "fork", "free_port", "perf_counter", "process_time", "sleep", "thread_time", "wait_until"}
"""They wait, or measure how long something takes."""
TO_THE_END = {f"tasks/test_{name}.py" for name in ("dbt", "example_dags", "operators")}
"""Files that run another program to its end, whatever time it takes."""


def found(path: Path) -> Iterator[str]:
    """What a file uses of these, with its line."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom):
            module = str(node.module).partition(".")[0]
            names = [alias.name for alias in node.names if alias.name in NAMES or module in MODULES]
        elif isinstance(node, ast.Attribute) and node.attr in NAMES and ast.unparse(node.value) in ("time", "os"):
            names = [ast.unparse(node)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/proc"):
            names = [node.value]
        yield from (f"{path.relative_to(TESTS)}:{node.lineno}: {name}" for name in names)


def days_of_import(path: Path) -> Iterator[str]:
    """Which dates of today are taken when a file is imported: midnight may be between that and the test."""
    nodes: list[ast.AST] = [ast.parse(path.read_text())]
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            nodes += node.decorator_list
        elif not isinstance(node, ast.Lambda):
            nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Call) and ast.unparse(node).endswith((").date()", ".today()")):
            yield f"{path.relative_to(TESTS)}:{node.lineno}: {ast.unparse(node)}"


def test_none_sleeps_starts_processes_or_measures_time() -> None:
    uses = [use for path in FILES if path.relative_to(TESTS).as_posix() not in TO_THE_END for use in found(path)]
    uses += [day for path in FILES for day in days_of_import(path)]
    assert uses == [], "\n" + "\n".join(uses)
