"""Imports point downwards: the contracts in `pyproject.toml`, checked by import-linter."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.support.env import ROOT

CONFIGURATION = Path(ROOT, "pyproject.toml")
CONTRACTS = tomllib.loads(CONFIGURATION.read_text())["tool"]["importlinter"]["contracts"]


@pytest.mark.parametrize("contract", [contract["id"] for contract in CONTRACTS])
def test_contract(contract: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from importlinter.cli import lint_imports

    broken = lint_imports(str(CONFIGURATION), limit_to_contracts=(contract,), cache_dir=str(tmp_path))

    assert not broken, capsys.readouterr().out
