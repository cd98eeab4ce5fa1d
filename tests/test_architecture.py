"""The page on the architecture: it has every folder, and every name on it exists."""

from __future__ import annotations

import ast
import pkgutil
import re
import sys
import tomllib
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


OF_OTHERS = {
    # The drivers of MySQL's and Postgres' hooks, of which one is installed.
    "MySQLdb", "mysql", "psycopg", "psycopg2",
    # The connection form of Airflow 3.0 and 3.1, where its web server is installed.
    "flask_appbuilder", "flask_babel", "wtforms",
    # What the extra `openlineage` brings along.
    "openlineage",
    # This repository, and its emulator.
    "airflow_provider_mail", "mail_emulator",
}  # fmt: skip
NAMED_OTHERWISE = {"airflow": "apache-airflow", "yaml": "pyyaml"}


def test_what_is_imported_is_declared() -> None:
    project = tomllib.loads(Path(ROOT, "pyproject.toml").read_text())["project"]
    requirements = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        requirements += extra
    declared = {re.split(r"[^\w-]", requirement)[0] for requirement in requirements}
    imported: set[str] = set()
    for path in Path(ROOT, "airflow_provider_mail").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            imported |= {name.partition(".")[0] for name in names}
    imported -= sys.stdlib_module_names | OF_OTHERS
    assert {NAMED_OTHERWISE.get(name, name).replace("_", "-") for name in imported} - declared == set()
