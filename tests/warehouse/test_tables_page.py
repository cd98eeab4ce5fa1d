"""The page on tables says what is declared, of every table there is."""

from __future__ import annotations

import importlib
import pkgutil
import re

import airflow_provider_mail.warehouse as warehouse
from airflow_provider_mail.warehouse.table import Table
from docs import tables


def test_columns_are_as_declared() -> None:
    page = tables.PAGE.read_text()
    assert page == tables.filled(page), "run: python docs/tables.py"


def test_every_declared_table_is_explained() -> None:
    infos = pkgutil.walk_packages(warehouse.__path__, f"{warehouse.__name__}.")
    modules = [importlib.import_module(info.name) for info in infos]
    declared = {name: value for module in modules for name, value in vars(module).items() if isinstance(value, Table)}
    assert {"CAMPAIGN_STATS", "CONTACTS"} <= declared.keys()
    assert {name for name, table in declared.items() if table not in tables.TABLES.values()} == set()
    shown = re.findall(r"<!-- table: (\w+) -->", tables.PAGE.read_text())
    assert sorted(shown) == sorted(tables.TABLES)


def test_no_comment_breaks_the_table() -> None:
    for table in tables.TABLES.values():
        for column in table.columns:
            assert "|" not in column.comment
            assert "\n" not in column.comment
