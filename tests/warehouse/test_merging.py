"""Warehouses that do not enforce keys: the rules of all loads hold on their stand-ins, and no row is doubled.

The tests that this module imports run here on the stand-ins: they are those of the databases.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from airflow_provider_mail.warehouse.coverage import LOADS, Coverage, MarkGone
from airflow_provider_mail.warehouse.dialects.merge_sql import MergeSql
from airflow_provider_mail.warehouse.dialects.merging import Merging, stage_name
from airflow_provider_mail.warehouse.dialects.warehouses import MERGING
from airflow_provider_mail.warehouse.errors import UnconfirmedError, WarehouseError
from airflow_provider_mail.warehouse.load import RemovalRule, check_history
from airflow_provider_mail.warehouse.manifest import TABLES
from airflow_provider_mail.warehouse.request import LoadRequest
from airflow_provider_mail.warehouse.rows import Source
from airflow_provider_mail.warehouse.table import Table, TableName
from tests.support.sampling import EVERYTHING, examples
from tests.warehouse.conftest import Warehouse
from tests.warehouse.standins import SAMPLE, STANDINS, native
from tests.warehouse.tables import LATER, MARKED, NOON, PLAIN, THINGS, thing
from tests.warehouse.test_confirmed import test_a_reading_that_may_not_be_whole_is_not_recorded  # noqa: F401
from tests.warehouse.test_gone import (  # noqa: F401
    test_a_window_of_rows_without_a_value,
    test_absence_is_not_believed_of_what_was_seen_later,
    test_an_older_observation_does_not_bring_it_back,
    test_it_keeps_the_time_at_which_it_was_last_seen_and_first_missed,
    test_only_rows_of_the_window_are_marked,
    test_what_a_window_has_no_more_is_marked,
    test_what_is_there_again_is_cleared,
    test_windows_are_asked_for_when_all_rows_are_there,
)
from tests.warehouse.test_insert_only import test_the_first_row_with_a_key_stays  # noqa: F401
from tests.warehouse.test_load import (  # noqa: F401
    test_a_row_of_the_wrong_length,
    test_a_table_of_keys_only,
    test_no_rows,
    test_replacing_by_nothing_and_by_time,
    test_rows_of_the_window_that_are_not_given_again_are_deleted,
    test_the_last_of_several_rows_with_one_key_wins,
    test_values_come_back_as_they_went_in,
    test_what_is_older_than_wanted_is_deleted_in_the_same_transaction,
    test_when_the_rows_fail_the_old_ones_stay,
)
from tests.warehouse.test_load_columns import (  # noqa: F401
    test_a_row_that_is_never_updated_keeps_them,
    test_a_table_of_an_earlier_version_gets_the_columns,
    test_an_earlier_observation_that_is_not_stored_changes_nothing,
    test_mail_loads_has_the_task_and_the_rows,
    test_what_a_load_writes_has_its_time_and_its_run,
)
from tests.warehouse.test_properties import leaves_what_a_dictionary_would
from tests.warehouse.test_unstorable import (  # noqa: F401
    test_rows_that_cannot_be_stored_are_set_aside,
    test_then_nothing_is_deleted_or_marked,
)

# One with MERGE, and the one without, which has a real lock.
KINDS = [*STANDINS] if EVERYTHING else ["snowflake", "redshift"]
LATEST = LATER + datetime.timedelta(hours=1)
OF_A = {"account": "a"}


@pytest.fixture(params=KINDS)
def warehouse(request: pytest.FixtureRequest, make_warehouse: Callable[[str], Warehouse]) -> Warehouse:
    """A stand-in."""
    return make_warehouse(request.param)


@pytest.fixture(params=[THINGS, PLAIN], ids=["observed", "plain"])
def table(request: pytest.FixtureRequest) -> Table:
    """A table of every type, with and without a time of observation."""
    return request.param


def numbers(warehouse: Warehouse, table: Table = THINGS) -> list[int]:
    return [row[1] for row in warehouse.rows(table)]


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
    rows = {row[1]: row for row in warehouse.rows(MARKED)}
    assert (
        rows
        == {
            1: first[0],  # neither older, nor missing
            2: second[1],
            3: (*first[3][:-1], LATER),
            4: second[2],
        }
    )
    warehouse.load(MARKED, [thing(MARKED, 3, at=LATEST)], replace_where=OF_A)
    assert [(row[1], row[-1]) for row in warehouse.rows(MARKED)] == [(3, None)]
    assert [name for (name,) in tables(warehouse, kind) if "stage" in name] == []


def tables(warehouse: Warehouse, kind: str) -> list[tuple[str]]:
    schema = "public" if kind == "redshift" else "main"
    with native(warehouse.hook) as cursor:
        cursor.execute(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}'")
        return list(cursor.fetchall())


def test_a_load_that_comes_late_brings_back_nobody(warehouse: Warehouse) -> None:
    """Of two loads of the same list, the one that asked later decides, whichever ends first."""

    def load(at: datetime.datetime, *given: int) -> None:
        covers = Coverage.one("a", {"account": "a"}, mail_conn_id="m", observed_at=at)
        rows = [thing(THINGS, number, at=at) for number in given]
        warehouse.load(THINGS, rows, replace_where=OF_A, covers=covers)

    load(LATER, 1, 2)
    load(NOON, 2, 3)
    assert numbers(warehouse) == [1, 2]
    load(LATEST)
    assert numbers(warehouse) == []
    load(LATER, 1, 2)
    assert numbers(warehouse) == []
    assert [row[:3] for row in warehouse.rows(LOADS, "mail_loads")] == [("things", "m", "a")]
    assert warehouse.rows(LOADS, "mail_loads")[0][3] == LATEST


def test_a_fall_needs_a_permission(warehouse: Warehouse) -> None:
    warehouse.load(THINGS, [thing(THINGS, number) for number in range(20)])
    limit = RemovalRule(allow_empty=False, max_fraction=0.5)
    with pytest.raises(UnconfirmedError, match="20 rows would become 5"):
        warehouse.load(THINGS, [thing(THINGS, number) for number in range(5)], replace_where=OF_A, removal=limit)
    assert len(numbers(warehouse)) == 20


def test_rows_from_the_future(warehouse: Warehouse) -> None:
    warehouse.load(THINGS, [thing(THINGS, 1, at=LATEST)])
    with pytest.raises(WarehouseError, match="1 rows have a time of observation after"):
        warehouse.load(THINGS, [thing(THINGS, 1, at=NOON)], now=NOON)


def test_there_is_no_history(warehouse: Warehouse) -> None:
    with pytest.raises(WarehouseError, match="a history needs SQLite, Postgres, DuckDB, MySQL or MariaDB, not"):
        check_history(warehouse.hook)


def test_a_column_of_a_later_version(warehouse: Warehouse) -> None:
    warehouse.load(THINGS, [thing(THINGS, 1)])
    warehouse.load(MARKED, [thing(MARKED, 1, at=LATER), thing(MARKED, 2)])
    assert [row[1] for row in warehouse.rows(MARKED)] == [1, 2]


@pytest.mark.parametrize("way", SAMPLE)
def test_any_sequence_of_loads(make_warehouse: Callable[[str], Warehouse], way: str) -> None:
    from tests.warehouse.test_properties import LOADS as SEQUENCES

    warehouse = make_warehouse(way)

    @given(loads=SEQUENCES)
    @settings(max_examples=examples(4))
    def check(loads: list[Any]) -> None:
        leaves_what_a_dictionary_would(warehouse, THINGS, loads)

    check()


def test_a_load_that_fails_leaves_the_table_and_no_stage(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse.load(THINGS, [thing(THINGS, 1)])
    kind = type(Merging(warehouse.hook, LoadRequest(THINGS, TableName.parse("things"), Source(()))).sql)
    statements = kind.load_statements

    def failing(self: MergeSql) -> list[str]:
        fine = statements(self)
        at = len(fine) if self.transaction else 1  # else what was before it is there
        return [*fine[:at], "SELECT nothing FROM nowhere", *fine[at:]]

    monkeypatch.setattr(kind, "load_statements", failing)
    covers = Coverage.one("a", {"account": "a"}, mail_conn_id="m", observed_at=LATER)
    with pytest.raises(WarehouseError):
        warehouse.load(THINGS, [thing(THINGS, 2, at=LATER)], replace_where=OF_A, covers=covers)
    assert numbers(warehouse) == [1]
    assert warehouse.rows(LOADS, "mail_loads") == []


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

    class Cursor:
        def __init__(self, cursor: Any) -> None:
            self._cursor = cursor

        def __getattr__(self, name: str) -> Any:
            return getattr(self._cursor, name)

        def execute(self, *arguments: Any) -> None:
            if not left[0]:
                raise Killed
            left[0] -= 1
            self._cursor.execute(*arguments)

    class Dying(hook):
        def get_conn(self) -> Any:
            connection = super().get_conn()
            cursor = connection.cursor
            connection.cursor = lambda: Cursor(cursor())
            return connection

    return Dying


# --- what the statements are ---


def sql_of(kind: str, table: Table = MARKED, name: str = "crm.things") -> Any:
    request = LoadRequest(table, TableName.parse(name), Source(()))
    return MERGING[kind](request, stage_name(request.name, "1"), observed_at=NOON)


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


@pytest.mark.parametrize("kind", MERGING)
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_tables_in_the_types_of_the_warehouse(kind: str, table: Table) -> None:
    (create, *_) = sql_of(kind, table).create_statements()
    tree = sqlglot.parse_one(create, read=kind, error_level=sqlglot.ErrorLevel.RAISE)
    assert isinstance(tree, exp.Create)
    assert [column.name for column in tree.find_all(exp.ColumnDef)] == [*table.stored_names]
    if table.by_day and kind != "trino":
        word = {
            "snowflake": "CLUSTER BY",
            "bigquery": "PARTITION BY",
            "databricks": "CLUSTER BY",
            "redshift": "SORTKEY",
        }
        assert f"{word[kind]} " in create
        assert table.by_day in create.rpartition(")\n")[2] or table.by_day in create[create.rindex("\n)") :]


@pytest.mark.parametrize(
    ("kind", "json", "timestamp"),
    [
        ("snowflake", "VARIANT", "TIMESTAMP_TZ"),
        ("bigquery", "JSON", "TIMESTAMP"),
        ("redshift", "SUPER", "TIMESTAMPTZ"),
        ("databricks", "VARIANT", "TIMESTAMP"),
        ("trino", "VARCHAR", "TIMESTAMP(6) WITH TIME ZONE"),
    ],
)
def test_native_types(kind: str, json: str, timestamp: str) -> None:
    create = next(sql_of(kind).create_statements()).replace('"', "")
    assert f"extra {json},\n" in create
    assert f"sold_at {timestamp},\n" in create


def test_a_name_that_cannot_be_quoted() -> None:
    with pytest.raises(WarehouseError, match="must not contain `"):
        sql_of("bigquery", name='crm."th`ings"')
