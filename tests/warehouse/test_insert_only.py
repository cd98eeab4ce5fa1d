"""Tables whose rows are never updated: the first one with a key stays, whatever comes later."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from airflow_provider_mail.warehouse.dialects import postgres
from airflow_provider_mail.warehouse.errors import UnstorableError
from airflow_provider_mail.warehouse.load import LoadResult
from airflow_provider_mail.warehouse.table import JSON, TEXT, TIMESTAMP, Column, Table, text
from tests.warehouse.conftest import Warehouse
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


def test_the_first_row_with_a_key_stays(warehouse: Warehouse) -> None:
    loaded = warehouse.load(HAPPENED, [row("b", "first", "x"), row("a"), row("b", "second", "y")])
    assert loaded == result(3, unchanged=1, k=1, x=1)
    loaded = warehouse.load(HAPPENED, [row("c", kind="y"), row("a", "later"), row("B"), row("b", "third", "x")])
    assert loaded == result(4, unchanged=2, k=1, y=1)
    assert warehouse.rows(HAPPENED) == sorted([row("a"), row("b", "first", "x"), row("c", kind="y"), row("B")])
    assert warehouse.load(HAPPENED, [row("a", "later")]) == result(1, unchanged=1)
    assert warehouse.load(HAPPENED, []) == result(0)


def test_rows_that_cannot_be_stored_do_not_count(warehouse: Warehouse) -> None:
    rejected: list[UnstorableError] = []
    rows = [row("a"), row("b", "half \ud800"), row("a", "again")]
    loaded = warehouse.load(HAPPENED, rows, on_unstorable=lambda row, error: rejected.append(error))
    assert loaded == result(3, unchanged=1, k=1)
    assert [error.column for error in rejected] == ["note"]


def test_loads_at_once_store_each_key_once(warehouse: Warehouse) -> None:
    warehouse.load(HAPPENED, [])
    names = [f"n{number:03}" for number in range(200)]
    results: list[LoadResult] = []

    def load(rows: list[tuple[Any, ...]]) -> None:
        results.append(warehouse.load(HAPPENED, rows))

    orders = [names, names[::-1], names[100:] + names[:100], names[50:] + names[:50]]
    threads = [threading.Thread(target=load, args=([*map(row, order)],)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(results), sum(one.inserted or 0 for one in results)] == [4, 200]
    assert warehouse.rows(HAPPENED) == [*map(row, names)]


@pytest.mark.not_unit
def test_a_row_that_another_program_inserts_meanwhile_is_not_inserted_again(
    make_warehouse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = make_warehouse("psycopg3")
    warehouse.load(HAPPENED, [])
    copy, others = postgres._copy, iter(["INSERT INTO things VALUES ('me', 'a', 'k', 'other')"])

    def copy_later(cursor: Any, statement: str, blocks: Any) -> None:
        if statement.startswith('COPY "public"."things"'):
            warehouse.execute(*others)
        copy(cursor, statement, blocks)

    monkeypatch.setattr(postgres, "_copy", copy_later)
    assert warehouse.load(HAPPENED, [row("a"), row("b")]) == result(2, unchanged=1, k=1)
    assert [(name, note) for _, name, _, note, *_ in warehouse.rows(HAPPENED)] == [("a", "other"), ("b", None)]


def test_what_cannot_be_combined_is_rejected(make_warehouse: Any) -> None:
    with pytest.raises(ValueError, match="replace_where"):
        make_warehouse("sqlite").load(HAPPENED, [], replace_where={"account": "me"})
    columns = (Column("a", text(5), "A"), Column("b", TEXT, "B", nullable=True))
    with pytest.raises(ValueError, match="not nullable"):
        Table(columns, ("a",), "T", insert_only=True, counted_by="b")
    with pytest.raises(ValueError, match="without updates"):
        Table(columns, ("a",), "T", counted_by="a")
    observed = Column("o", TIMESTAMP, "O", observed=True)
    with pytest.raises(ValueError, match="time of observation"):
        Table((*columns, observed), ("a",), "T", insert_only=True)
