"""Everything that a page shows is run as a reader would run it; what cannot be run says so in its fence."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from tests.real.shown.blocks import Block, blocks, dag_file
from tests.real.shown.conftest import Reader
from tests.support.env import ROOT, clean_environment

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


@pytest.mark.ci
@pytest.mark.timeout(900)
def test_the_test_of_a_dag(tmp_path: Path) -> None:
    """As a user has it: a folder and an Airflow home of its own, without our conftest."""
    folder = shutil.copytree(ROOT / "docs" / "how-to" / "test-a-dag", tmp_path / "project")
    (block,) = (block for block in blocks("console") if block.page.name == "test-a-dag.md")
    _install, _, typed = block.code.partition("\n")
    environment = clean_environment()
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    command = ["bash", "-e", "-c", typed]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "2 passed" in done.stdout
