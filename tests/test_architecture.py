"""The page on the architecture: its pictures show the imports, and every name on it exists."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import airflow_provider_mail
from tests.support.env import ROOT

PAGE = Path(ROOT, "docs", "architecture.md")
ROOMS = {module.name for module in pkgutil.iter_modules(airflow_provider_mail.__path__)}
NAMES = sorted(
    {name for name in re.findall(r"`(\w+(?:\.\w+)+)(?:\(.*?\))?`", PAGE.read_text()) if name.partition(".")[0] in ROOMS}
)


def test_pictures_show_the_imports() -> None:
    from docs import architecture

    page = PAGE.read_text()
    assert page.count("<!-- imports: ") == page.count("```mermaid") == 2
    assert page == architecture.filled(page), "run: python docs/architecture.py"


def test_every_room_is_explained() -> None:
    table = PAGE.read_text().partition("## Folders")[2].partition("## Imports")[0]
    assert sorted(room for room in ROOMS if f"`{room}`" not in table) == []


@pytest.mark.parametrize("name", NAMES)
def test_name_exists(name: str) -> None:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(("airflow_provider_mail", *parts[:length])))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return
    pytest.fail(f"no module of {name}")
