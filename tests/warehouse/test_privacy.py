"""Errors of rows show no values of them."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from airflow_provider_mail.warehouse.database import stream_rows
from airflow_provider_mail.warehouse.errors import WarehouseError, safe_message
from airflow_provider_mail.warehouse.table import Table, text
from tests.support.clock import Clock
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import THINGS, thing

SECRET = "ada.lovelace@example.com"


def all_texts(error: BaseException) -> str:
    """All texts on the whole chain of exceptions, whether Python would show them or not."""
    said, todo = ["".join(traceback.format_exception(error))], [error]
    for link in todo:
        said += [str(link), repr(link), repr(link.args), repr(vars(link))]
        todo += [each for each in (link.__cause__, link.__context__) if each is not None and each not in todo]
    return "\n".join(said)


@pytest.fixture
def no_secret(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[[Any], str]]:
    """A function that looks for the secret in an exception; afterwards logs and output are searched too."""
    caplog.set_level(logging.DEBUG)

    def check(caught: Any) -> str:
        assert SECRET not in all_texts(caught.value)
        return str(caught.value)

    yield check
    output = capfd.readouterr()
    assert SECRET not in caplog.text + output.out + output.err


CONSTRAINTS = [
    ("name {text} CHECK (length(name) < 4)", ("length(name)", "things_name_check", "`things`", "CHECK constraint")),
    ("name {text} UNIQUE", ("things.name", "things_name_key", "duplicate key", "index name is unique, too")),
    ("note VARCHAR(60) NOT NULL", ("things.note", "column note", "'note'")),
]
"""With some of the words that databases have for them."""


def test_constraints_of_the_user(warehouse: Warehouse, no_secret: Callable[[Any], str], clock: Clock) -> None:
    columns = (replace(column, type=text(60)) if column.name == "name" else column for column in THINGS.columns)
    narrow = Table(tuple(columns), THINGS.key, "")
    for column, words in CONSTRAINTS:
        column = column.format(text=warehouse.varchar(60))
        account = f"account {warehouse.varchar(50)}"
        warehouse.execute(f"CREATE TABLE things ({account}, number BIGINT, {column}, PRIMARY KEY (account, number))")
        # A constraint is taken for a conflict where errors are not known, so it is tried again.
        with pytest.raises(WarehouseError) as caught:
            warehouse.load(narrow, [thing(THINGS, number, name=SECRET) for number in (1, 2)])
        message = no_secret(caught)
        assert any(name in message for name in words), message
        warehouse.execute("DROP TABLE things")


TRIGGER = (
    "CREATE FUNCTION talk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} RETURN NEW; END $$; "
    "CREATE TRIGGER talk BEFORE INSERT ON things FOR EACH ROW EXECUTE FUNCTION talk()"
)
TALKS = TRIGGER.format("RAISE EXCEPTION 'I do not like %', NEW.name;")
PARTED = "(account text, number bigint, PRIMARY KEY (account, number)) PARTITION BY LIST (account)"
DEFAULT = "(account VARCHAR, number BIGINT, note VARCHAR DEFAULT error('no'), PRIMARY KEY (account, number))"
RAISING = "CREATE TRIGGER raising BEFORE INSERT ON things"
OTHER_ERRORS = [
    *((kind, TALKS, "P0001") for kind in ("psycopg3", "psycopg2")),
    ("psycopg3", f"CREATE TABLE things {PARTED}", r"look at the CHECK constraints, the partitions .* \(23514\)"),
    (
        "psycopg2",
        TRIGGER.format("NEW.number := (SELECT generate_series(1, 2));"),
        r"look at the unique indexes and the triggers .* \(21000\)",
    ),
    ("duckdb", "CREATE INDEX numbers ON things ((CAST(name AS INTEGER)))", "Could not convert string"),
    ("duckdb", f"CREATE TABLE things {DEFAULT}", "InvalidInputException: look at the constraints, triggers"),
    (
        "sqlite",
        f"{RAISING} BEGIN SELECT RAISE(ABORT, 'I do not like it'); END",
        "look at the constraints, triggers, .* SQLITE_CONSTRAINT_TRIGGER",
    ),
    (
        "mysql",
        f"{RAISING} FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'",
        r"look at the constraints, triggers, .* \(1644\)",
    ),
]


@pytest.mark.parametrize(("kind", "statement", "message"), OTHER_ERRORS)
def test_an_error_without_its_words_says_what_to_do(
    make_warehouse: Callable[..., Warehouse], no_secret: Callable[[Any], str], kind: str, statement: str, message: str
) -> None:
    warehouse = make_warehouse(kind)
    if "CREATE TABLE" not in statement:
        warehouse.load(THINGS, [])
    warehouse.execute(statement)
    account = SECRET if "PARTITION" in statement else "a"
    with pytest.raises(WarehouseError, match=message) as caught:
        warehouse.load(THINGS, [thing(THINGS, 1, account=account, name=SECRET)])
    no_secret(caught)


@pytest.mark.not_unit
def test_the_error_of_the_rows_is_not_sent_to_the_server(make_warehouse: Callable[..., Warehouse]) -> None:
    other_secret = "grace.hopper@example.com"  # the server does write down what it rejects itself

    def rows() -> Iterator[tuple[Any, ...]]:
        yield thing(THINGS, 1)
        raise ValueError(other_secret)

    for kind in ("psycopg3", "psycopg2"):
        warehouse = make_warehouse(kind)
        with pytest.raises(ValueError, match=other_secret):
            warehouse.load(THINGS, rows())
        ((log,),) = warehouse.query("SELECT pg_read_file('log')")
        assert "RowsFailed" in log  # it writes down what it is sent, too
        assert other_secret not in log


def test_reading_does_not_show_its_parameters(warehouse: Warehouse, no_secret: Callable[[Any], str]) -> None:
    mark = warehouse.hook.placeholder
    # The latter is quoted by psycopg2 and MySQL.
    statements = [f"SELECT * FROM nowhere WHERE x = {mark}", f"SELECT 1 {'FROM ' if warehouse.is_mysql else ''}{mark}"]
    if not (warehouse.is_sqlite or warehouse.is_mysql):  # those make a number of anything
        statements.append(f"SELECT CAST(CAST({mark} AS text) AS integer)")
    for statement in statements:
        with pytest.raises(WarehouseError) as caught, stream_rows(warehouse.hook, statement, [SECRET]) as (_, some):
            list(some)
        message = no_secret(caught)
        assert message.startswith("`sql` on connection 'warehouse': ")
        assert "nowhere" not in statement or "nowhere" in message


class Error(Exception):
    """What PEP 249 asks of a driver."""


@pytest.mark.parametrize(
    ("kind", "sql", "words"),
    [
        ("sqlite", "SELECT ?, ?", "Incorrect number of bindings supplied"),
        # psycopg 2, which the hook of Airflow 3.0 uses, raises a bare IndexError.
        (
            "psycopg3",
            "SELECT 1 WHERE 'a' LIKE 'b%' AND %s = 'x'",
            "only '%s', '%b', '%t' are allowed as placeholders|warehouse': IndexError",
        ),
        ("duckdb", "SELECT ?, ?", "Values were not provided for the following"),
        # The words of the two drivers.
        ("mysql", "SELECT 1", "Not all parameters were used|not all arguments converted"),
    ],
)
def test_an_error_of_the_driver_keeps_its_reason(
    make_warehouse: Callable[..., Warehouse], kind: str, sql: str, words: str
) -> None:
    warehouse = make_warehouse(kind)
    with pytest.raises(WarehouseError) as caught, stream_rows(warehouse.hook, sql, [SECRET]):
        pass
    assert any(each in str(caught.value) for each in words.split("|"))
    assert SECRET not in str(caught.value)


class ProgrammingError(Error):
    """Of a driver that is not known."""


class DataError(Error):
    """Of a driver that is not known."""


def test_drivers_that_are_not_known() -> None:
    wrong = ProgrammingError("no table customers\n[parameters: ...]")
    assert safe_message(wrong, quotes_rows=False) == "ProgrammingError: no table customers"
    assert safe_message(wrong) == "ProgrammingError"
    quoting = ProgrammingError(f"syntax error near '{SECRET}'")
    assert safe_message(quoting, [SECRET], quotes_rows=False) == "ProgrammingError: syntax error near '***'"
    assert safe_message(quoting, {"who": SECRET}, quotes_rows=False) == "ProgrammingError: syntax error near '***'"
    assert safe_message(DataError(SECRET), quotes_rows=False) == "DataError"


def test_text_that_sqlite_cannot_decode(sqlite: Warehouse, no_secret: Callable[[Any], str]) -> None:
    text = f"SELECT CAST(X'{SECRET.encode().hex()}ff' AS TEXT) AS who"
    for before in (0, 3):
        union = " UNION ALL ".join([*["SELECT 'x' AS who"] * before, text])
        with (
            pytest.raises(WarehouseError, match="CAST") as caught,
            stream_rows(sqlite.hook, union, size=2) as (_, some),
        ):
            list(some)
        assert "Could not decode to UTF-8 column 'who'" in no_secret(caught)


def driver_error(module: str, name: str, base: type[Exception] = Exception) -> Exception:
    return type(name, (base,), {"__module__": module})(f"cannot convert {SECRET}")


DRIVERS = ("psycopg", "psycopg2", "MySQLdb", "mysql.connector", "duckdb", "sqlite3", "other")
FETCH_ERRORS = [
    *(driver_error(module, name) for module in DRIVERS for name in ("DataError", "InterfaceError")),
    *(driver_error("builtins", "Odd", base) for base in (ValueError, OverflowError, TypeError)),
]


@pytest.mark.parametrize("error", FETCH_ERRORS, ids=lambda error: f"{type(error).__module__}.{type(error).__name__}")
def test_a_fetch_that_fails_in_the_driver_is_cleaned(
    sqlite: Warehouse, no_secret: Callable[[Any], str], error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    if type(error).__module__ in ("MySQLdb", "mysql.connector"):
        # Their errors are known by the constants of the driver that raised them.
        pytest.importorskip(type(error).__module__)
    cursor = SimpleNamespace(description=(("who", None),), execute=lambda *_: None, fetchmany=Mock(side_effect=error))
    monkeypatch.setattr("airflow_provider_mail.warehouse.dialects.sqlite.Sqlite.open_reader", lambda *given: cursor)
    with pytest.raises(WarehouseError) as caught, stream_rows(sqlite.hook, "SELECT 1") as (_, batches):
        list(batches)
    no_secret(caught)
