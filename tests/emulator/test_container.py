"""The Containerfile installs what `pyproject.toml` declares; tests/real/emulator runs what it copies."""

from __future__ import annotations

import re
import tomllib

from tests.support.env import ROOT

INSTALLED = re.findall(r'"(\w+)(>=[^"]*)"', (ROOT / "Containerfile").read_text())


def test_versions_are_those_of_the_project() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {name for name, _ in INSTALLED} == {"h11", "jinja2", "msgspec"}
    assert [f"{name}{versions}" for name, versions in INSTALLED if f"{name}{versions}" not in declared] == []
