"""The pages: examples are what the example DAGs say, links lead somewhere, Python and commands parse, names exist."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import textwrap
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from airflow.cli.cli_parser import get_parser as airflow_parser

from airflow_provider_mail.__main__ import parser as provider_parser
from airflow_provider_mail.cli.definition import get_cli_commands
from docs import embed
from mail_emulator.__main__ import _options
from tests.support.dags import AIRFLOW_VERSION
from tests.support.env import ROOT

PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CODE_OF_CONDUCT", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "contributing").glob("*.md")),
    *sorted((ROOT / "docs").glob("**/*.md")),
]
BLOCKS = [block for page in PAGES for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)]


def test_examples_are_what_the_example_dags_say() -> None:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text()
        assert text == embed.embedded(text), f"{page}: run: python docs/embed.py"
        assert re.findall(r"^<!-- (?:example|file|sql): .* -->\n(?!```)", text, re.MULTILINE) == [], page


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_files_and_headings_that_exist() -> None:
    wrong = []
    for page in PAGES:
        for file, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text()):
            target = page.parent / file if file else page
            if "://" in file or file.startswith("mailto:"):
                continue
            if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
                wrong.append((page.name, file, anchor))
    assert wrong == []


def test_every_page_is_in_the_index() -> None:
    for index, pages in (("docs", "*.md"), ("docs", "how-to/*.md")):
        folder = ROOT / index
        names = [page.relative_to(folder).as_posix() for page in folder.glob(pages) if page.name != "index.md"]
        text = (folder / "index.md").read_text()
        assert [name for name in names if f"({name})" not in text] == []


def test_python_parses_and_imports_what_exists() -> None:
    for node in (node for block in BLOCKS for node in ast.walk(ast.parse(textwrap.dedent(block)))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
        if isinstance(node, ast.ImportFrom) and node.module is not None and not node.module.startswith("dags."):
            if node.module == "airflow_provider_mail.retry_policy" and AIRFLOW_VERSION < (3, 3):
                with pytest.raises(ImportError, match=r"needs Airflow 3\.3"):
                    importlib.import_module(node.module)
                continue
            module = importlib.import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == [], node.module


def commands() -> list[str]:
    """Every command of Airflow or of ours that a page shows, in a block or in the text."""
    found = []
    for page in PAGES:
        text = page.read_text()
        blocks = re.findall(r"```console[^\n]*\n(.*?)```", text, re.DOTALL)
        lines = [line for block in blocks for line in re.sub(r"\\\n\s*", "", block).splitlines()]
        lines += re.findall(r"`((?:airflow mail|python -m airflow_provider_mail)\b[^`\n]*)`", text)
        shown = [line.removeprefix("$ ").strip().removesuffix(" &") for line in lines]
        found += [line for line in shown if re.match(r"(airflow|python -m airflow_provider_mail)\b", line)]
    # Not commands: their common beginning, and the names of modules.
    return sorted({line for line in found if not line.endswith("...") and line != "python -m airflow_provider_mail"})


def names(declared: Iterable[Any] | None = None, before: str = "airflow") -> set[str]:
    """The full name of every command that we declare."""
    found = set()
    for each in get_cli_commands() if declared is None else declared:
        name = f"{before} {each.name}"
        found |= {name, *names(getattr(each, "subcommands", ()), name)}
    return found


def test_commands_parse() -> None:
    parse = {"airflow_provider_mail": provider_parser().parse_args, "mail_emulator": _options}
    for line in commands():
        if line in names():  # mentioned without its arguments
            continue
        program, *words = shlex.split(line, comments=True)
        try:
            if program == "python":
                parse[words[1]](words[2:])
            elif words[0] == "mail":
                provider_parser().parse_args(words[1:])
            else:
                airflow_parser().parse_args(words)
        except SystemExit as error:
            raise AssertionError(line) from error


def test_targets_of_make_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    shown = {
        target
        for page in PAGES
        for code in re.findall(r"```console[^\n]*\n(.*?)```|`(make [^`]*)`", page.read_text(), re.DOTALL)
        for target in re.findall(r"^ *make ([\w-]+)", "\n".join(code), re.MULTILINE)
    }
    assert {"demo", "test-unit", "build"} <= shown
    assert [target for target in sorted(shown) if f"\n{target}:" not in makefile] == []


def test_files_and_names_that_contributors_are_led_to_exist() -> None:
    """Also those in the text: paths from the root of the repository, and what a page says is in one of them."""
    folders = r"\.ci|\.github|airflow_provider_mail|benchmarks|docs|example_dags|tests"
    for page in ("CONTRIBUTING.md", "SECURITY.md", "contributing/architecture.md", "contributing/releasing.md"):
        text = (ROOT / page).read_text()
        paths = re.findall(rf"`((?:{folders})/[\w./-]+)`", text)
        assert paths
        assert [path for path in paths if not (ROOT / path).exists()] == []
        for name, path in re.findall(r"`(\w+)` (?:of|in)\s+`([\w./-]+\.py)`", text):
            assert re.search(rf"\b{name}\b", (ROOT / path).read_text()), (name, path)


def test_extras_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    shown = {
        extra
        for page in PAGES
        for extras in re.findall(r"airflow-provider-mail\[([\w,-]+)\]", page.read_text())
        for extra in extras.split(",")
    }
    assert "sqlite" in shown
    assert shown - set(project["optional-dependencies"]) == set()


def test_the_dag_of_the_readme_is_a_dag(airflow_home: Path) -> None:
    from airflow.sdk import DAG

    (block,) = (block for block in BLOCKS if "DAG(" in block and block in PAGES[0].read_text())
    names: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), names)
    (dag,) = [value for value in names.values() if isinstance(value, DAG)]
    assert [task.task_id for task in dag.topological_sort()] == ["contacts", "campaign", "statistics", "campaigns"]
