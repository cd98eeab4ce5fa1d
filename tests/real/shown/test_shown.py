"""Everything that a page shows is run as a reader would run it; what cannot be run says so in its fence."""

from __future__ import annotations

import itertools
import json
import re
import sqlite3
from contextlib import closing

import pytest
import yaml

from tests.real.shown.blocks import Block, blocks, dag_file
from tests.real.shown.conftest import Reader

TYPED_ELSEWHERE = ("README.md", "quickstart.md", "test-a-dag.md")
"""Pages whose commands have a test of their own, or are those of the quickstart."""


@pytest.mark.ci
@pytest.mark.timeout(900)
def test_python(reader: Reader) -> None:
    shown = {block.name: block for block in blocks("python") if not block.not_run and not block.embedded}
    for name, block in shown.items():
        (reader.folder / "shown" / f"{name}.py").write_text(dag_file(block))
    errors = reader.run_shown()
    assert errors.keys() == shown.keys()
    assert [f"{shown[name]}: {error}" for name, error in errors.items() if error] == []


def test_json_and_yaml_are_read() -> None:
    for block in blocks("json"):
        json.loads(block.code)
    for block in blocks("yaml"):
        yaml.safe_load(block.code)


@pytest.mark.ci
def test_sql(reader: Reader) -> None:
    """Every query runs on the tables of the loads, beside those of the shop and the CRM."""
    with closing(sqlite3.connect(reader.folder / "warehouse.db")) as warehouse:
        for name in ("crm", "shop"):
            warehouse.execute(f"ATTACH '{reader.folder}/{name}.db' AS {name}")
        for block in (block for block in blocks("sql") if not block.not_run and not block.embedded):
            try:
                warehouse.executescript(block.code)
            except sqlite3.Error as error:
                raise AssertionError(f"{block}: {error}") from error


@pytest.mark.ci
@pytest.mark.timeout(900)
def test_console(reader: Reader) -> None:
    """The commands of a page run in one shell, in their order."""
    typed = [block for block in blocks("console") if not (block.not_run or block.embedded)]
    typed = [block for block in typed if block.page.name not in TYPED_ELSEWHERE]
    errors = []
    for page, shown in itertools.groupby(typed, lambda block: block.page):
        try:
            reader.run("bash", "-e", "-c", "\n".join(map(commands, shown)))
        except AssertionError as error:
            errors.append(f"{page.name}: {error}")
    assert errors == []


def commands(block: Block) -> str:
    """Return the commands of a block, without what they print, in the form that every Airflow has."""
    lines = block.code.splitlines()
    prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return re.sub(r"\bairflow mail\b", "python -m airflow_provider_mail", "\n".join(prompted or lines))
