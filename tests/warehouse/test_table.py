"""What a table may be, and what a user may call it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.table import (
    BIGINT,
    JSON,
    TEXT,
    TIMESTAMP,
    Column,
    NamePart,
    Table,
    TableName,
    text,
)

ID = Column("id", BIGINT, "")
SEEN = Column("seen_at", TIMESTAMP, "", observed=True)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("orders", [NamePart("orders", False)]),
        ("crm.Orders", [NamePart("crm", False), NamePart("Orders", False)]),
        ('crm."Orders 2026"', [NamePart("crm", False), NamePart("Orders 2026", True)]),
        ('"a.b"."say ""hi"""', [NamePart("a.b", True), NamePart('say "hi"', True)]),
        ("c.crm.übersicht$1", [NamePart("c", False), NamePart("crm", False), NamePart("übersicht$1", False)]),
    ],
)
def test_names_that_users_give(name: str, parts: list[NamePart]) -> None:
    parsed = TableName.parse(name)
    assert list(parsed.parts) == parts
    assert TableName.parse(str(parsed)) == parsed


NO_NAMES = [
    *("", ".", "orders.", ".orders", "crm..orders", "a.b.c.d", "my orders", "orders; DROP TABLE x", "orders--"),
    *('"orders', '"or"ders"', '""', "1st", "a-b", '"100%"', "x" * 64, "ü" * 32, "orders\n", '"nul\x00"'),
]


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_name_says_which_argument(name: str) -> None:
    with pytest.raises(WarehouseError, match="`table` must be a name"):
        TableName.parse(name)


@given(st.text())
def test_no_text_breaks_out_of_its_quotes(name: str) -> None:
    try:
        parsed = TableName.parse(name)
    except WarehouseError:
        return
    assert TableName.parse(str(parsed)) == parsed
    assert all(part.text for part in parsed.parts)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *((lambda name=name: Column(name, TEXT, ""), "plain lower-case name")
          for name in ("Upper", "with space", "1st", "", 'quo"te', "x" * 64)),
        (lambda: Column("x", TEXT, "a */ b"), "comment of column x"),
        (lambda: Column("x", TEXT, "", observed=True), "column x is a time of observation"),
        (lambda: Column("x", TIMESTAMP, "", observed=True, nullable=True), "column x is a time of observation"),
        (lambda: Table((ID, ID), ("id",), ""), "same name"),
        (lambda: Table((ID,), (), ""), "needs a key"),
        (lambda: Table((ID,), ("id", "id"), ""), "needs a key"),
        (lambda: Table((ID,), ("other",), ""), "no column other"),
        (lambda: Table((Column("k", TEXT, ""),), ("k",), ""), "key column k"),
        (lambda: Table((Column("k", JSON, ""),), ("k",), ""), "key column k"),
        (lambda: Table((Column("k", text(9), "", nullable=True),), ("k",), ""), "key column k"),
        (lambda: Table((SEEN,), ("seen_at",), ""), "key column seen_at"),
        (lambda: Table((ID, SEEN, Column("again", TIMESTAMP, "", observed=True)), ("id",), ""), "only one column"),
    ],
)  # fmt: skip
def test_columns_and_tables_that_cannot_be(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
