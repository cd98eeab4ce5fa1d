"""The pages: examples are what the example DAGs say, links lead somewhere, Python parses, names exist."""

from __future__ import annotations

import ast
import importlib
import re
import textwrap
from pathlib import Path

import pytest

from docs import embed
from tests.support.dags import AIRFLOW_VERSION
from tests.support.env import ROOT

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_examples_are_what_the_example_dags_say(page: Path) -> None:
    text = page.read_text()
    assert text == embed.embedded(text), "run: python docs/embed.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    assert [page.name for page in (ROOT / "docs").glob("*.md") if page.name not in index] == ["index.md"]


@pytest.mark.parametrize("block", BLOCKS)
def test_python_parses_and_imports_what_exists(block: str) -> None:
    for node in ast.walk(ast.parse(textwrap.dedent(block))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module == "airflow_provider_mail.retry_policy" and AIRFLOW_VERSION < (3, 3):
                with pytest.raises(ImportError, match=r"needs Airflow 3\.3"):
                    importlib.import_module(node.module)
                continue
            module = importlib.import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def test_the_dag_of_the_readme_is_a_dag(airflow_home: Path) -> None:
    (block,) = [
        block for block in re.findall(r"```python\n(.*?)```", PAGES[0].read_text(), re.DOTALL) if "DAG(" in block
    ]
    names: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), names)
    from airflow.sdk import DAG

    (dag,) = [value for value in names.values() if isinstance(value, DAG)]
    assert [task.task_id for task in dag.topological_sort()] == ["contacts", "campaign", "statistics"]
