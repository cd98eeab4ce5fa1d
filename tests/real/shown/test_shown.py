"""Everything that a page shows is run as a reader would run it; what cannot be run says so in its fence."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
import yaml

from tests.real.shown.blocks import blocks, dag_file
from tests.real.shown.conftest import Reader


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
