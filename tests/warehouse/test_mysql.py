"""What MySQL and MariaDB do their own way."""

from __future__ import annotations

import importlib
import json
import os
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from airflow.providers.mysql.hooks.mysql import MySqlHook

from airflow_provider_mail.warehouse.errors import WarehouseError, safe_message
from airflow_provider_mail.warehouse.load import load
from airflow_provider_mail.warehouse.read import stream_rows
from airflow_provider_mail.warehouse.table import BIGINT, Column, Table, text
from tests.support.mariadb import CLIENT, CLIENTS
from tests.support.processes import wait_until
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import LATER, NOON, PLAIN, THINGS, thing

pytestmark = pytest.mark.not_unit

NAMES = Table((Column("name", text(50), ""), Column("size", BIGINT, "")), ("name",), "")


@pytest.fixture
def mysql(make_warehouse: Callable[..., Warehouse]) -> Warehouse:
    return make_warehouse("mysql")


def test_created_with_types_key_and_comments(mysql: Warehouse) -> None:
    mysql.load(THINGS, [])
    columns = mysql.query(
        "SELECT column_name, column_type, is_nullable, collation_name, column_comment FROM information_schema.columns "
        "WHERE table_schema = database() AND table_name = 'things' ORDER BY ordinal_position"
    )
    exact = "utf8mb4_nopad_bin"
    assert columns == [
        ("account", "varchar(50)", "NO", exact, "Whose thing it is"),
        ("number", "bigint(20)", "NO", None, "Its number"),
        ("name", "longtext", "YES", exact, "What it's called"),
        ("size", "int(11)", "YES", None, "How large"),
        ("ratio", "double", "YES", None, "In percent"),
        ("good", "tinyint(1)", "YES", None, "Or bad"),
        ("day", "date", "YES", None, "Of its making"),
        ("sold_at", "datetime(6)", "YES", None, "When it was sold"),
        ("extra", "longtext", "YES", "utf8mb4_bin", "All the rest"),
        ("observed_at", "datetime(6)", "NO", None, "When it was looked at"),
        ("loaded_at", "datetime(6)", "YES", None, "When the row was last written"),
        ("run_id", "varchar(250)", "YES", exact, "Airflow run that wrote it; null outside of a task"),
    ]
    ((statement,),) = [row[1:] for row in mysql.query("SHOW CREATE TABLE things")]
    assert "PRIMARY KEY (`account`,`number`)" in statement
    assert "COMMENT='Things, and when they were seen'" in statement


def test_names_that_look_alike_are_different(mysql: Warehouse) -> None:
    names = ["Spring", "spring", "spring ", "Frühling", "Fruhling", "ß", "ss", "🌷", "🌻", ""]
    mysql.load(NAMES, [(name, 1) for name in names])
    result = mysql.load(NAMES, [(name, 2) for name in names])
    assert result.changed == len(names)
    assert sorted(mysql.rows(NAMES)) == sorted((name, 2) for name in names)


def test_a_key_that_takes_different_names_for_one(mysql: Warehouse) -> None:
    mysql.execute(
        "CREATE TABLE things (name VARCHAR(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, size BIGINT, "
        "PRIMARY KEY (name))"
    )
    with pytest.raises(WarehouseError, match=r"MODIFY `name` .*utf8mb4_nopad_bin NOT NULL\. .* utf8mb4_general_ci of"):
        mysql.load(NAMES, [("a", 1)])


def test_another_unique_index_is_refused(mysql: Warehouse) -> None:
    """`ON DUPLICATE KEY UPDATE` would write the values of one campaign into the row of another."""
    mysql.load(PLAIN, [thing(PLAIN, 1, size=1)])
    mysql.execute("CREATE UNIQUE INDEX sizes ON things (size)")
    with pytest.raises(
        WarehouseError, match=r"table things .* index sizes is unique, too; .*make it an ordinary index"
    ):
        mysql.load(PLAIN, [thing(PLAIN, 2, size=1)])
    assert mysql.rows(PLAIN) == [thing(PLAIN, 1, size=1)]


def test_what_the_users_connection_says_about_characters_and_cursors(
    make_warehouse: Callable[..., Warehouse],
) -> None:
    make_warehouse("mysql", charset="latin1", cursor="dictcursor")
    hook = MySqlHook("warehouse", init_command="SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'")
    row = thing(THINGS, 1, name="back\\slash 'n' 漢字 🎉")
    for _ in range(2):
        load(hook, THINGS, "things", [row])
    with stream_rows(hook, "SELECT name FROM things") as (_, batches):
        assert list(batches) == [[("back\\slash 'n' 漢字 🎉",)]]


def test_the_other_driver(make_warehouse: Callable[..., Warehouse]) -> None:
    others = [client for client in CLIENTS if client != CLIENT]
    if not others:
        pytest.skip("only one of MySqlHook's drivers is installed here")
    mysql = make_warehouse("mysql", client=others[0])
    rows = [thing(THINGS, n, name=f"🎉 {n}", good=True, sold_at=NOON, extra={"n": n}) for n in range(1200)]
    assert mysql.load(THINGS, rows).inserted == 1200
    assert mysql.load(THINGS, reversed(rows)).unchanged == 1200
    assert mysql.load(THINGS, [thing(THINGS, 1, at=LATER)], replace_where={"account": "a"}).deleted == 1199
    with pytest.raises(WarehouseError, match=r"DataError: column account \(1406\)"):
        mysql.load(THINGS, [thing(THINGS, 2, account="a" * 60)])
    with stream_rows(mysql.hook, "SELECT number FROM things", size=1) as (_, batches):
        assert list(batches) == [[(1,)]]


def test_no_permission(mysql: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    mysql.load(THINGS, [])
    ((database,),) = mysql.query("SELECT database()")
    mysql.execute(
        "CREATE OR REPLACE USER reader@'127.0.0.1'",
        f"GRANT SELECT, CREATE TEMPORARY TABLES ON {database}.* TO reader@'127.0.0.1'",
    )
    ours = json.loads(os.environ["AIRFLOW_CONN_WAREHOUSE"])
    monkeypatch.setenv("AIRFLOW_CONN_READER", json.dumps({**ours, "login": "reader", "password": None}))
    reader = MySqlHook("reader")
    try:
        with pytest.raises(WarehouseError, match=r"INSERT.* command denied to user 'reader'@'localhost'"):
            load(reader, THINGS, "things", [thing(THINGS, 1)])
        with pytest.raises(WarehouseError, match=r"CREATE command denied to user 'reader'@'localhost'"):
            load(reader, THINGS, "others", [thing(THINGS, 1)])
    finally:
        mysql.execute("DROP USER reader@'127.0.0.1'")


def test_a_deadlock_is_tried_again(mysql: Warehouse, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    mysql.load(PLAIN, [thing(PLAIN, number, name="old") for number in range(100)])
    with ThreadPoolExecutor(1) as pool, closing(mysql.hook.get_conn()) as other, closing(other.cursor()) as cursor:
        # The other transaction has done more, so ours is the one that the server gives up.
        cursor.execute("UPDATE things SET size = 1 WHERE account = 'a' AND number BETWEEN 50 AND 99")
        ours = pool.submit(
            Warehouse("mysql", MySqlHook("warehouse")).load, PLAIN, [thing(PLAIN, n, name="new") for n in (1, 60)]
        )
        wait_until_locked(mysql)
        cursor.execute("UPDATE things SET size = 1 WHERE account = 'a' AND number = 1")
        other.commit()
        assert ours.result(60).changed == 2
    assert "conflict with another transaction (attempt 1 of 8)" in caplog.text
    assert [row[2] for row in mysql.rows(PLAIN) if row[1] in (1, 60)] == ["new", "new"]


def wait_until_locked(mysql: Warehouse) -> None:
    for _ in range(60):
        if mysql.query("SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"):
            return
        time.sleep(0.3)  # who looks again within 0.1 s is shown the same again
    raise AssertionError("nobody waits")


def test_reading_breaks_off_without_reading_the_rest(mysql: Warehouse) -> None:
    before = threading.active_count()
    with stream_rows(mysql.hook, "SELECT seq, repeat('x', 1000) FROM seq_1_to_2000000", size=10) as (_, batches):
        next(batches)
    # The server ends the query when it next writes to the closed connection.
    wait_until(
        lambda: (
            not mysql.query(
                "SELECT 1 FROM information_schema.processlist WHERE db = database() AND info LIKE 'SELECT seq, repeat%'"
            )
        ),
        what="the end of the query",
        timeout=10,
    )
    assert threading.active_count() == before


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("number", "message", "shown"),
    [
        (1146, "Table 'crm.things' doesn't exist", "Table 'crm.things' doesn't exist (1146)"),
        (1213, "Deadlock found", "Deadlock found (1213)"),
        (4025, "CONSTRAINT `small` failed", "CONSTRAINT `small` failed (4025)"),
        (2013, "Lost connection to server", "Lost connection to server (2013)"),
        (1062, "Duplicate entry 'ada@example.com' for key 'PRIMARY'", "key PRIMARY (1062)"),
        (1406, "Data too long for column 'name' at row 3", "column name (1406)"),
        (1366, "Incorrect string value: 'ada@example.com'", "look at the constraints, .* rows (1366)"),
        (1064, "You have an error near 'ada@example.com'", "look at the constraints, .* rows (1064)"),
    ],
)
def test_messages_are_shown_where_they_hold_no_values(client: str, number: int, message: str, shown: str) -> None:
    if client == "mysqlclient":
        error = importlib.import_module("MySQLdb").Error(number, message)
    else:
        error = importlib.import_module("mysql.connector").Error(message, number)
    pattern = ".*".join(map(re.escape, f"{type(error).__name__}: {shown}".split(".*")))
    assert re.fullmatch(pattern, safe_message(error))
