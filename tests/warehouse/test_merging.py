"""Warehouses that do not enforce keys: the rules of all loads hold on their stand-ins, and no row is doubled.

Rules that no spelling of SQL changes are in the tests with the fixture `way`.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from airflow_provider_mail.warehouse.dialects import DIALECTS, dialect_of
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.manifest import TABLES
from airflow_provider_mail.warehouse.request import Coverage, LoadRequest, MarkGone
from airflow_provider_mail.warehouse.rows import Source
from airflow_provider_mail.warehouse.table import Table, TableName
from tests.support.sampling import EVERYTHING, examples
from tests.warehouse.conftest import Warehouse
from tests.warehouse.standins import STANDINS, Conflict, Proxy, VersionedCursor, native
from tests.warehouse.tables import LATER, MARKED, NOON, THINGS, thing

LATEST = LATER + datetime.timedelta(hours=1)
OF_A = {"account": "a"}


@pytest.mark.parametrize("kind", STANDINS)
def test_every_type_and_every_rule_once(make_warehouse: Callable[[str], Warehouse], kind: str) -> None:
    warehouse = make_warehouse(kind)
    full = {"name": "a\\' \" \n\r\t%s {} $1 å", "size": -5, "ratio": 1.5, "good": True, "day": NOON.date()}
    more = {"sold_at": LATER, "extra": {"a": ["x\\ ' \n"], "b": None}}
    first = [thing(MARKED, 1, **full, **more), thing(MARKED, 2), thing(MARKED, 3), thing(MARKED, 3, name="last")]
    warehouse.load(MARKED, first)
    assert warehouse.rows(MARKED) == [first[0], first[1], first[3]]

    old = NOON - datetime.timedelta(hours=1)
    second = [thing(MARKED, 1, at=old, name="old"), thing(MARKED, 2, at=LATER, name="new"), thing(MARKED, 4, at=LATER)]
    warehouse.load(MARKED, second, mark_gone=MarkGone(LATER, lambda: [OF_A]))
    # Neither is the first older, nor is it missing.
    assert warehouse.rows(MARKED) == [first[0], second[1], (*first[3][:-1], LATER), second[2]]
    warehouse.load(MARKED, [thing(MARKED, 3, at=LATEST)], replace_where=OF_A)
    assert [(row[1], row[-1]) for row in warehouse.rows(MARKED)] == [(3, None)]
    with native(warehouse.hook) as cursor:
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_name LIKE '%stage%'")
        assert cursor.fetchall() == []


def test_a_conflict_with_another_load_is_tried_again(
    make_warehouse: Callable[[str], Warehouse], monkeypatch: pytest.MonkeyPatch, clock: object
) -> None:
    """Each of two statements that write one table is a commit of it, of which the second one fails."""
    warehouse, conflicts = make_warehouse("databricks"), [Conflict(), Conflict()]
    warehouse.load(THINGS, [thing(THINGS, 1, name="old")])
    commit = VersionedCursor.commit_table

    def conflict(cursor: VersionedCursor) -> None:
        if conflicts:
            raise conflicts.pop()
        commit(cursor)

    monkeypatch.setattr(VersionedCursor, "commit_table", conflict)
    warehouse.load(THINGS, [thing(THINGS, 1, name="new", at=LATER)])
    assert (warehouse.rows(THINGS)[0][2], conflicts) == ("new", [])


class Killed(BaseException):
    """The process is gone: nothing that it would have done happens any more."""


@pytest.mark.parametrize("kind", ["snowflake", "redshift", "databricks"])
def test_killed_at_every_statement(make_warehouse: Callable[[str], Warehouse], kind: str) -> None:
    """The table is that of before or that of after, and the load can be repeated."""
    warehouse = make_warehouse(kind)
    before = [thing(MARKED, 1, name="old"), thing(MARKED, 2), thing(MARKED, 3)]
    after = [thing(MARKED, 1, name="new", at=LATER), thing(MARKED, 4, at=LATER)]
    covers = Coverage.one("a", {"account": "a"}, mail_conn_id="m", observed_at=LATER)
    again = {"replace_where": OF_A, "covers": covers}
    for point in range(0, 40, 1 if EVERYTHING else 4):
        for table in ("things", "mail_loads"):
            warehouse.execute(f"DROP TABLE IF EXISTS {table}")
        warehouse.load(MARKED, before)
        dying = Warehouse(warehouse.kind, dies_at(STANDINS[kind], point)("warehouse"))
        try:
            dying.load(MARKED, after, **again)
        except Killed:
            assert warehouse.rows(MARKED) in (before, after)
            warehouse.load(MARKED, after, **again)
            assert warehouse.rows(MARKED) == after
        else:
            assert warehouse.rows(MARKED) == after
            assert point > 8
            return
    raise AssertionError("there are more statements than that")


def dies_at(hook: Any, point: int) -> Any:
    """A hook whose process dies before the statement with this number."""
    left = [point]

    class Dying(hook):
        def get_conn(self) -> Any:
            connection = super().get_conn()
            return Proxy(connection, cursor=lambda: self._dying(connection.cursor()))

        def _dying(self, cursor: Any) -> Any:
            def execute(*arguments: Any) -> None:
                if not left[0]:
                    raise Killed
                left[0] -= 1
                cursor.execute(*arguments)

            return Proxy(cursor, execute=execute)

    return Dying


# --- what the statements are ---


MERGING = [kind for kind, path in DIALECTS.items() if path.startswith("warehouses.")]


def sql_of(kind: str, table: Table = MARKED, name: str = "crm.things") -> Any:
    request = LoadRequest(table, TableName.parse(name), Source(()))
    hook: Any = SimpleNamespace(conn_type=kind, dialect_name=kind)
    return dialect_of(hook)(hook, request)


@pytest.mark.parametrize("kind", MERGING)
@given(text=st.text())
@settings(max_examples=examples(50))
def test_a_text_is_a_literal_whatever_it_holds(kind: str, text: str) -> None:
    """As the parser of each dialect reads it; characters that no column keeps are left out."""
    text = text.replace("\x00", "").encode(errors="ignore").decode()
    if kind != "trino":
        text = text.replace("\f", "").replace("\v", "")
    tree = sqlglot.parse_one(f"SELECT {sql_of(kind).text(text)} AS a", read=kind)
    (found,) = tree.find_all(exp.Literal)
    assert found.this == text


SPELLINGS = {
    "snowflake": ("CLUSTER BY", "VARIANT", "TIMESTAMP_TZ"),
    "bigquery": ("PARTITION BY", "JSON", "TIMESTAMP"),
    "redshift": ("SORTKEY", "SUPER", "TIMESTAMPTZ"),
    "databricks": ("CLUSTER BY", "VARIANT", "TIMESTAMP"),
    "trino": (None, "VARCHAR", "TIMESTAMP(6) WITH TIME ZONE"),
}
"""What keeps the rows of a day together, and the types of JSON and of times."""


@pytest.mark.parametrize("kind", MERGING)
def test_the_tables_in_the_types_of_the_warehouse(kind: str) -> None:
    by_day, json, timestamp = SPELLINGS[kind]
    for table in TABLES.values():
        (create, *_) = sql_of(kind, table).create_statements()
        tree = sqlglot.parse_one(create, read=kind, error_level=sqlglot.ErrorLevel.RAISE)
        assert isinstance(tree, exp.Create)
        assert [column.name for column in tree.find_all(exp.ColumnDef)] == [*table.stored_names]
        if table.by_day and by_day:
            assert f"{by_day} " in create
            assert table.by_day in create.rpartition(")\n")[2] or table.by_day in create[create.rindex("\n)") :]
    create = next(sql_of(kind).create_statements()).replace('"', "")
    assert f"extra {json},\n" in create
    assert f"sold_at {timestamp},\n" in create


def test_a_name_that_cannot_be_quoted() -> None:
    with pytest.raises(WarehouseError, match="must not contain `"):
        sql_of("bigquery", name='crm."th`ings"')
