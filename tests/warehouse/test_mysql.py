"""What MySQL and MariaDB do their own way."""

from __future__ import annotations

import importlib
import json
import os
import re
import threading
from collections.abc import Callable

import pytest
from airflow.providers.mysql.hooks.mysql import MySqlHook

from airflow_provider_mail.warehouse.errors import WarehouseError, safe_message
from airflow_provider_mail.warehouse.load import load
from airflow_provider_mail.warehouse.read import stream_rows
from airflow_provider_mail.warehouse.table import BIGINT, Column, Table, text
from tests.support.mariadb import CLIENT, CLIENTS
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import LATER, NOON, PLAIN, THINGS, thing

pytestmark = pytest.mark.not_unit

NAMES = Table((Column("name", text(50), ""), Column("size", BIGINT, "")), ("name",), "")


@pytest.fixture
def mysql(make_warehouse: Callable[..., Warehouse]) -> Warehouse:
    return make_warehouse("mysql")


def test_names_that_look_alike_are_different(mysql: Warehouse) -> None:
    names = ["Spring", "spring", "spring ", "Frühling", "Fruhling", "ß", "ss", "🌷", "🌻", ""]
    mysql.load(NAMES, [(name, 1) for name in names])
    result = mysql.load(NAMES, [(name, 2) for name in names])
    assert result.changed == len(names)
    assert sorted(mysql.rows(NAMES)) == sorted((name, 2) for name in names)


def test_another_unique_index_is_rejected(mysql: Warehouse) -> None:
    """`ON DUPLICATE KEY UPDATE` would write the values of one campaign into the row of another."""
    mysql.load(PLAIN, [thing(PLAIN, 1, size=1)])
    mysql.execute("CREATE UNIQUE INDEX sizes ON things (size)")
    with pytest.raises(
        WarehouseError, match=r"table things .* index sizes is unique, too; .*make it an ordinary index"
    ):
        mysql.load(PLAIN, [thing(PLAIN, 2, size=1)])
    assert mysql.rows(PLAIN) == [thing(PLAIN, 1, size=1)]


def test_characters_and_cursors_of_the_user_s_connection(make_warehouse: Callable[..., Warehouse]) -> None:
    make_warehouse("mysql", charset="latin1", cursor="dictcursor")
    hook = MySqlHook("warehouse", init_command="SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'")
    row = thing(THINGS, 1, name="back\\slash 'n' 漢字 🎉")
    for _ in range(2):
        load(hook, THINGS, "things", [row])
    with stream_rows(hook, "SELECT name FROM things") as (_, batches):
        assert list(batches) == [[("back\\slash 'n' 漢字 🎉",)]]


def test_the_other_driver_of_the_hook(make_warehouse: Callable[..., Warehouse]) -> None:
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


def test_reading_breaks_off_without_reading_the_rest(mysql: Warehouse) -> None:
    before = {*threading.enumerate()}
    with stream_rows(mysql.hook, "SELECT seq, repeat('x', 1000) FROM seq_1_to_2000000", size=10) as (_, batches):
        next(batches)
    assert {*threading.enumerate()} <= before


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
