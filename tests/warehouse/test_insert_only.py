"""Tables whose rows are never updated: the first one with a key stays, whatever comes later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_mail.warehouse.load import LoadResult
from airflow_provider_mail.warehouse.table import JSON, TEXT, TIMESTAMP, Column, Table, text
from tests.warehouse.conftest import ALL, COPY, Warehouse
from tests.warehouse.standins import STANDINS
from tests.warehouse.tables import NOON

HAPPENED = Table(
    comment="What has happened",
    key=("account", "name"),
    columns=(
        Column("account", text(50), "Whose"),
        Column("name", text(20), "Its name"),
        Column("kind", TEXT, "Its kind"),
        Column("note", TEXT, "A note", nullable=True),
        Column("raw", JSON, "The whole", nullable=True),
        Column("happened_at", TIMESTAMP, "When", nullable=True),
    ),
    insert_only=True,
    counted_by="kind",
)


def row(name: str, note: str | None = None, kind: str = "k") -> tuple[Any, ...]:
    return "me", name, kind, note, {"note": note}, NOON


def result(rows: int, unchanged: int = 0, **inserted_by: int) -> LoadResult:
    return LoadResult(rows, sum(inserted_by.values()), 0, unchanged, 0, inserted_by=inserted_by)


@pytest.mark.parametrize("kind", [*ALL, *STANDINS])
def test_the_first_row_with_a_key_stays(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    warehouse = make_warehouse(kind)
    loaded = warehouse.load(HAPPENED, [row("b", "first", "x"), row("a"), row("b", "second", "y")])
    assert loaded == result(3, unchanged=1, k=1, x=1)
    loaded = warehouse.load(HAPPENED, [row("c", kind="y"), row("a", "later"), row("B"), row("b", "third", "x")])
    assert loaded == result(4, unchanged=2, k=1, y=1)
    assert warehouse.rows(HAPPENED) == sorted([row("a"), row("b", "first", "x"), row("c", kind="y"), row("B")])
    assert warehouse.load(HAPPENED, [row("a", "later")]) == result(1, unchanged=1)
    assert warehouse.load(HAPPENED, []) == result(0)


def test_the_keys_that_were_there_before_are_known(native: Warehouse) -> None:
    native.load(HAPPENED, [row("a"), row("b")])
    assert native.load(HAPPENED, [row("c"), row("a")]).existing == {("me", "a")}


def test_a_load_in_the_middle_of_another_comes_first(warehouse: Warehouse) -> None:
    """Each key is stored and counted once."""
    counts: list[LoadResult] = []

    def rows() -> Iterator[tuple[Any, ...]]:
        yield from map(row, "ab")
        counts.append(warehouse.another().load(HAPPENED, [row("b", "first"), row("c", "first")]))
        yield from map(row, "cd")

    warehouse.load(HAPPENED, [])
    counts.append(warehouse.load(HAPPENED, rows()))
    assert counts == [result(2, k=2), result(4, unchanged=2, k=2)]
    assert warehouse.rows(HAPPENED) == [row("a"), row("b", "first"), row("c", "first"), row("d")]


def test_a_row_that_another_program_inserts_meanwhile_stays(
    postgres: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.load(HAPPENED, [])
    copy, others = getattr(*COPY), iter(["INSERT INTO things VALUES ('me', 'a', 'k', 'other')"])

    def copy_later(cursor: Any, statement: str, blocks: Any) -> None:
        if statement.startswith('COPY "public"."things"'):
            postgres.execute(*others)
        copy(cursor, statement, blocks)

    monkeypatch.setattr(*COPY, copy_later)
    assert postgres.load(HAPPENED, [row("a"), row("b")]) == result(2, unchanged=1, k=1)
    assert [(name, note) for _, name, _, note, *_ in postgres.rows(HAPPENED)] == [("a", "other"), ("b", None)]


def test_what_cannot_be_combined_is_rejected(sqlite: Warehouse) -> None:
    with pytest.raises(ValueError, match="replace_where"):
        sqlite.load(HAPPENED, [], replace_where={"account": "me"})
    columns = (Column("a", text(5), "A"), Column("b", TEXT, "B", nullable=True))
    with pytest.raises(ValueError, match="not nullable"):
        Table(columns, ("a",), "T", insert_only=True, counted_by="b")
    with pytest.raises(ValueError, match="without updates"):
        Table(columns, ("a",), "T", counted_by="a")
    observed = Column("o", TIMESTAMP, "O", observed=True)
    with pytest.raises(ValueError, match="time of observation"):
        Table((*columns, observed), ("a",), "T", insert_only=True)
