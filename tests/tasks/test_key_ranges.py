"""`key_ranges`: for any keys, the ranges together are all rows, none of them twice, and even."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.transfers.key_ranges import key_ranges
from airflow_provider_mail.version_compat import AirflowFailException
from airflow_provider_mail.warehouse.database import stream_rows
from airflow_provider_mail.warehouse.errors import WarehouseError
from mail_emulator import Emulator
from tests.support.mariadb import MariaServer
from tests.support.sampling import examples
from tests.support.task_parts import sql_hook
from tests.tasks.conftest import Run, SqlDatabase
from tests.tasks.test_example_dags import example as example_dag

QUERY = "SELECT id, k FROM t"


def fill(database: SqlDatabase, kind: str, keys: list[Any]) -> None:
    """A table with these keys, rows numbered."""
    with closing(database.hook.get_conn()) as connection:
        cursor, mark = connection.cursor(), database.hook.placeholder
        cursor.execute("DROP TABLE IF EXISTS t")
        cursor.execute(f"CREATE TABLE t (id INTEGER, k {kind})")
        if keys:
            cursor.executemany(f"INSERT INTO t VALUES ({mark}, {mark})", list(enumerate(keys)))
        connection.commit()


def rows_of(database: SqlDatabase, part: dict[str, Any]) -> list[int]:
    with stream_rows(database.hook, part["sql"], part["parameters"]) as (_, batches):
        return [row[0] for batch in batches for row in batch]


def parts(database: SqlDatabase, ranges: int, sql: str = QUERY, **arguments: Any) -> list[list[int]]:
    cut = key_ranges(sql_conn_id="crm", sql=sql, key="k", ranges=ranges, **arguments)
    assert 1 <= len(cut) <= ranges
    return [rows_of(database, part) for part in cut]


# SQLite orders numbers before text, whatever a column holds.
KINDS: dict[str, tuple[str, str, st.SearchStrategy[Any]]] = {
    "anything": ("sqlite", "", st.integers(-5, 5) | st.floats(-5, 5) | st.text("ab1", max_size=2)),
    "few": ("postgres", "INTEGER", st.integers(0, 3)),
    "double": ("postgres", "DOUBLE PRECISION", st.floats(allow_nan=False, allow_infinity=False)),
    "numeric": ("postgres", "NUMERIC(30, 10)", st.integers(-(10**12), 10**12).map(lambda n: n / 64)),
    "text": ("postgres", "TEXT", st.text(st.characters(codec="utf-8", exclude_characters="\0@"), max_size=5)),
    "timestamp": ("postgres", "TIMESTAMP", st.datetimes(datetime.datetime(1, 1, 1)).map(str)),
    "uuid": ("postgres", "UUID", st.uuids().map(str)),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_row_is_in_one_range(make_database: Callable[[str, str], SqlDatabase], name: str) -> None:
    database, kind, values = KINDS[name]
    crm = make_database(database, "crm")

    @given(st.lists(st.none() | values, max_size=40), st.integers(1, 9))
    @settings(max_examples=examples(12), suppress_health_check=[HealthCheck.too_slow])
    @example([], 3)
    @example([None, None], 3)
    def check(keys: list[Any], ranges: int) -> None:
        fill(crm, kind, keys)
        assert Counter(row for part in parts(crm, ranges) for row in part) == Counter(range(len(keys)))

    check()


def test_ranges_have_even_numbers_of_rows(any_crm: SqlDatabase) -> None:
    """However keys are distributed; but equal keys stay together. Rows that come later are in one of them."""
    fill(any_crm, "BIGINT", [2**number for number in range(60)] + [-1] * 3 + [None] * 2)
    assert [len(part) for part in parts(any_crm, 7)] == [9 + 2, 9, 9, 9, 9, 9, 9]
    fill(any_crm, "BIGINT", [2] * 50 + [1] * 49)
    assert [len(part) for part in parts(any_crm, 8)] == [49, 50]
    cut = key_ranges(sql_conn_id="crm", sql=QUERY, key="k", ranges=4)
    fill(any_crm, "BIGINT", [-1000, None, 7, 50, 99999])
    assert sorted(row for part in cut for row in rows_of(any_crm, part)) == [0, 1, 2, 3, 4]


def test_the_query_may_have_parameters_and_comments(any_crm: SqlDatabase) -> None:
    fill(any_crm, "INTEGER", list(range(30)))
    mark, percent = any_crm.hook.placeholder, "%" if any_crm.is_sqlite else "%%"
    sql = f"SELECT id, k FROM t WHERE k >= {mark} AND CAST(k AS TEXT) LIKE '{percent}5' -- those with a five"
    for ranges in (3, 1):
        found = parts(any_crm, ranges, sql=sql, parameters=[10])
        assert sorted(row for part in found for row in part) == [15, 25]


def test_mariadb(mariadb_server: MariaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text is ordered without regard to case, and `%` marks parameters."""
    with mariadb_server.database() as connection:
        monkeypatch.setenv("AIRFLOW_CONN_CRM", connection.airflow_connection)
        database = SqlDatabase("crm", sql_hook("crm"))
        fill(database, "VARCHAR(20)", [f"{'aA'[n % 2]}{n % 37}" if n % 10 else None for n in range(100)])
        found = parts(database, 4, sql=f"{QUERY} WHERE k IS NULL OR k LIKE 'A%%'")
        assert sorted(row for part in found for row in part) == list(range(100))
        assert max(map(len, found)) <= 35


@pytest.mark.parametrize(("arguments", "words"), [
    *(({"ranges": n}, f"ranges: must be a whole number from 1 to 1000, not {n!r}") for n in (0, 1001, "4")),
    ({"parameters": {"a": 1}}, "parameters: must be a list"),
    ({"sql": "SELECT 'ada@example.com' AS k"}, "key: holds addresses, which must not be stored in XCom"),
    ({"sql": "SELECT x'00' AS k"}, "key: is of type bytes; use one that is a number, a date or text"),
    ({"sql": "SELECT 9e999 AS k"}, "key: is NaN or infinite in some row"),
])  # fmt: skip
def test_invalid_arguments(crm: SqlDatabase, arguments: dict[str, Any], words: str) -> None:
    fill(crm, "INTEGER", [1, 2])
    with pytest.raises((AirflowFailException, WarehouseError), match=words):
        key_ranges(**{"sql_conn_id": "crm", "sql": QUERY, "key": "k", "ranges": 2} | arguments)


def test_the_example(run_in_airflow: Run, emulator: Emulator, crm: SqlDatabase) -> None:
    """With a campaign to the people of all mapped imports."""
    crm.execute("CREATE TABLE customers (id INTEGER, email TEXT, full_name TEXT, subscribed INTEGER)")
    crm.execute("INSERT INTO customers", [(7 * n, f"{n}@example.com", f"N{n}", n % 2) for n in range(200)])
    with example_dag("mail_mapped_import") as dag:
        MailCreateCampaignOperator(
            task_id="send", mail_name="spring", sender_mail="news@example.com", subject="a", content="<p>a</p>",
            audience=dag.get_task("import_contacts").output,
        )  # fmt: skip
    done = run_in_airflow(dag)
    assert done.result.state == "success", done.log
    accepted = [done.result.xcom("import_contacts", map_index=index)["accepted"] for index in range(8)]
    assert (sum(accepted), min(accepted) > 10) == (100, True)
    assert emulator.campaign_recipients("spring") == sorted(f"{n}@example.com" for n in range(1, 200, 2))
