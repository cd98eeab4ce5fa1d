"""The page on the architecture: it has every folder, and every name on it exists."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import airflow_provider_mail
from tests.support.env import ROOT

PAGE = Path(ROOT, "contributing", "architecture.md")
ROOMS = {module.name for module in pkgutil.iter_modules(airflow_provider_mail.__path__)}
NAMES = {name for name in re.findall(r"`(\w+(?:\.\w+)+)(?:\(.*?\))?`", PAGE.read_text()) if name.split(".")[0] in ROOMS}


def test_every_room_is_explained() -> None:
    table = PAGE.read_text().partition("## Folders")[2].partition("## Imports")[0]
    assert sorted(room for room in ROOMS if f"`{room}`" not in table) == []


def test_names_exist() -> None:
    assert len(NAMES) > 20
    for name in sorted(NAMES):
        pkgutil.resolve_name(f"airflow_provider_mail.{name}")
