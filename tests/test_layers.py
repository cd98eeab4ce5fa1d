"""Imports point downwards: the contracts in `pyproject.toml`, checked by import-linter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.env import ROOT


def test_the_contracts_are_kept() -> None:
    # In a process of its own: the command configures logging for all of it.
    command = [Path(sys.executable).with_name("lint-imports"), "--config", Path(ROOT, "pyproject.toml"), "--no-cache"]
    linted = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert linted.returncode == 0, linted.stdout + linted.stderr
