"""What goes wrong with a row is told without the row."""

from __future__ import annotations

import datetime
import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_mail.warehouse.dialects import base
from airflow_provider_mail.warehouse.errors import WarehouseError, safe_message
from airflow_provider_mail.warehouse.read import stream_rows
from airflow_provider_mail.warehouse.table import Table, text
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import THINGS, thing

SECRET = "ada.lovelace@example.com"


def everything_said(error: BaseException) -> str:
    """All texts on the whole chain of exceptions, whether Python would show them or not."""
    said = ["".join(traceback.format_exception(error))]
    seen: list[BaseException] = []
    todo: list[BaseException | None] = [error]
    while todo:
        link = todo.pop()
        if link is not None and link not in seen:
            seen.append(link)
            said += [str(link), repr(link), repr(link.args), repr(vars(link))]
            todo += [link.__cause__, link.__context__]
    return "\n".join(said)


@pytest.fixture
def no_secret(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[[Any], str]]:
    """A function that looks for the secret in an exception; afterwards logs and output are searched too."""
    caplog.set_level(logging.DEBUG)

    def check(caught: Any) -> str:
        assert SECRET not in everything_said(caught.value)
        return str(caught.value)

    yield check
    output = capfd.readouterr()
    assert SECRET not in caplog.text + output.out + output.err


def poisoned(values: dict[str, Any]) -> tuple[Any, ...]:
    """A row with the secret in its name, and these values."""
    row = thing(THINGS, 3, name=SECRET)
    return tuple(values.get(name, value) for name, value in zip(THINGS.names, row, strict=True))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": SECRET}, "row 3, column size: needs integer, got str"),
        ({"number": SECRET}, "row 3, column number: needs bigint, got str"),
        ({"account": None}, "row 3, column account: needs text, got nothing"),
        ({"good": 1}, "row 3, column good: needs boolean, got int"),
        ({"size": True}, "row 3, column size: needs integer, got bool"),
        ({"day": datetime.datetime(2026, 3, 1)}, "row 3, column day: needs date, got datetime"),
        ({"sold_at": datetime.datetime(2026, 3, 1)}, "row 3, column sold_at: needs a datetime with a zone"),
        ({"extra": {"a": {1, 2}}}, "row 3, column extra: needs a json value"),
        ({"extra": [float("nan")]}, "row 3, column extra: item 0 holds NaN or infinity"),
    ],
)
def test_a_value_of_the_wrong_type(
    warehouse: Warehouse, no_secret: Callable[[Any], str], values: dict[str, Any], message: str
) -> None:
    with pytest.raises(WarehouseError) as caught:
        warehouse.load(THINGS, [thing(THINGS, 1, name=SECRET), thing(THINGS, 2, name=SECRET), poisoned(values)])
    assert message in no_secret(caught)


POISON = {
    "a number too large": {"number": 2**70},
    "half a character": {"name": f"{SECRET}\ud800"},
    "a NUL": {"name": f"{SECRET}\x00"},
}


@pytest.mark.parametrize("values", POISON.values(), ids=POISON)
def test_a_value_that_the_database_refuses(
    warehouse: Warehouse, no_secret: Callable[[Any], str], values: dict[str, Any]
) -> None:
    if not warehouse.is_postgres and "\x00" in values.get("name", ""):
        # Postgres is the one that does not take it.
        warehouse.load(THINGS, [poisoned(values)])
        assert warehouse.rows(THINGS) == [poisoned(values)]
        return
    warehouse.load(THINGS, [thing(THINGS, 1, name="old")])
    with pytest.raises(WarehouseError) as caught:
        warehouse.load(THINGS, [thing(THINGS, 1, name=SECRET), poisoned(values)])
    assert "table things on connection 'warehouse': " in no_secret(caught)
    assert [row[2] for row in warehouse.rows(THINGS)] == ["old"]


@pytest.mark.not_unit
def test_postgres_says_where_a_value_is_too_large(
    make_warehouse: Callable[..., Warehouse], no_secret: Callable[[Any], str]
) -> None:
    for kind in ("psycopg3", "psycopg2"):
        with pytest.raises(WarehouseError) as caught:
            make_warehouse(kind).load(THINGS, [thing(THINGS, 1), thing(THINGS, 2, size=2**40, name=SECRET)])
        assert "row 2, column size: is too large for integer" in no_secret(caught)


CONSTRAINTS = {
    "CHECK": (
        "name {text} CHECK (length(name) < 4)",
        ("length(name)", "things_name_check", "`things`", "CHECK constraint"),
    ),
    "UNIQUE": ("name {text} UNIQUE", ("things.name", "things_name_key", "duplicate key", "index name is unique, too")),
    "NOT NULL": ("note VARCHAR(60) NOT NULL", ("things.note", "column note", "'note'")),
}


@pytest.mark.parametrize(("column", "said"), CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_constraints_of_the_user(
    warehouse: Warehouse,
    no_secret: Callable[[Any], str],
    column: str,
    said: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base, "_MAX_PAUSE_S", 0.001)  # a constraint is taken for a conflict where errors are not known
    column = column.format(text=warehouse.varchar(60))
    warehouse.execute(
        f"CREATE TABLE things (account {warehouse.varchar(50)}, number BIGINT, {column}, PRIMARY KEY (account, number))"
    )
    columns = (replace(column, type=text(60)) if column.name == "name" else column for column in THINGS.columns)
    narrow = Table(tuple(columns), THINGS.key, "")
    with pytest.raises(WarehouseError) as caught:
        warehouse.load(narrow, [thing(THINGS, number, name=SECRET) for number in (1, 2)])
    message = no_secret(caught)
    assert any(name in message for name in said), message


@pytest.mark.not_unit
def test_a_trigger_that_talks(make_warehouse: Callable[..., Warehouse], no_secret: Callable[[Any], str]) -> None:
    for kind in ("psycopg3", "psycopg2", "portable_postgres"):
        warehouse = make_warehouse(kind)
        warehouse.load(THINGS, [])
        warehouse.execute(
            "CREATE FUNCTION talk() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'I do not like %', NEW.name; END $$",
            "CREATE TRIGGER talk BEFORE INSERT ON things FOR EACH ROW EXECUTE FUNCTION talk()",
        )
        with pytest.raises(WarehouseError) as caught:
            warehouse.load(THINGS, [thing(THINGS, 1, name=SECRET)])
        assert "P0001" in no_secret(caught)


WITHOUT_WORDS = {
    "psycopg3": (
        "CREATE TABLE things (account text, number bigint, PRIMARY KEY (account, number)) PARTITION BY LIST (account)",
        r"look at the CHECK constraints, the partitions .* \(23514\)",
    ),
    "psycopg2": (
        "CREATE FUNCTION two() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN NEW.number := (SELECT generate_series(1, 2)); RETURN NEW; END $$; "
        "CREATE TRIGGER two BEFORE INSERT ON things FOR EACH ROW EXECUTE FUNCTION two()",
        r"look at the unique indexes and the triggers .* \(21000\)",
    ),
    "duckdb": (
        "CREATE TABLE things (account VARCHAR, number BIGINT, note VARCHAR DEFAULT error('no'), "
        "PRIMARY KEY (account, number))",
        "InvalidInputException: look at the constraints, triggers",
    ),
    "sqlite": (
        "CREATE TRIGGER raising BEFORE INSERT ON things BEGIN SELECT RAISE(ABORT, 'I do not like it'); END",
        "look at the constraints, triggers, .* SQLITE_CONSTRAINT_TRIGGER",
    ),
    "mysql": (
        "CREATE TRIGGER raising BEFORE INSERT ON things FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'",
        r"look at the constraints, triggers, .* \(1644\)",
    ),
}


def test_a_value_that_duckdb_quotes_at_the_end(
    make_warehouse: Callable[..., Warehouse], no_secret: Callable[[Any], str]
) -> None:
    warehouse = make_warehouse("duckdb")
    warehouse.load(THINGS, [])
    warehouse.execute("CREATE INDEX numbers ON things ((CAST(name AS INTEGER)))")
    with pytest.raises(WarehouseError, match="Could not convert string") as caught:
        warehouse.load(THINGS, [thing(THINGS, 1, name=SECRET)])
    no_secret(caught)


@pytest.mark.parametrize("kind", WITHOUT_WORDS)
def test_an_error_whose_words_are_left_out_says_what_to_do(
    make_warehouse: Callable[..., Warehouse], no_secret: Callable[[Any], str], kind: str
) -> None:
    warehouse = make_warehouse(kind)
    statement, message = WITHOUT_WORDS[kind]
    if "CREATE TABLE" not in statement:
        warehouse.load(THINGS, [])
    warehouse.execute(statement)
    with pytest.raises(WarehouseError, match=message) as caught:
        warehouse.load(THINGS, [thing(THINGS, 1, account=SECRET, name=SECRET)])
    no_secret(caught)


@pytest.mark.not_unit
def test_the_error_of_the_rows_is_not_told_to_the_server(
    make_warehouse: Callable[..., Warehouse],
) -> None:
    other_secret = "grace.hopper@example.com"  # the server does write down what it refuses itself

    def rows() -> Iterator[tuple[Any, ...]]:
        yield thing(THINGS, 1)
        raise ValueError(other_secret)

    for kind in ("psycopg3", "psycopg2"):
        warehouse = make_warehouse(kind)
        with pytest.raises(ValueError, match=other_secret):
            warehouse.load(THINGS, rows())
        ((log,),) = warehouse.query("SELECT pg_read_file('log')")
        assert "RowsFailed" in log  # it writes down what it is told, too
        assert other_secret not in log


def test_reading_does_not_tell_its_parameters(warehouse: Warehouse, no_secret: Callable[[Any], str]) -> None:
    mark = warehouse.hook.placeholder
    # The latter is quoted by psycopg2 and MySQL.
    statements = [f"SELECT * FROM nowhere WHERE x = {mark}", f"SELECT 1 {'FROM ' if warehouse.is_mysql else ''}{mark}"]
    if not (warehouse.is_sqlite or warehouse.is_mysql):  # those make a number of anything
        statements.append(f"SELECT CAST(CAST({mark} AS text) AS integer)")
    for statement in statements:
        with (
            pytest.raises(WarehouseError) as caught,
            stream_rows(warehouse.hook, statement, [SECRET]) as (_, batches),
        ):
            list(batches)
        message = no_secret(caught)
        assert message.startswith("`sql` on connection 'warehouse': ")
        assert "nowhere" not in statement or "nowhere" in message


class Error(Exception):
    """What PEP 249 asks of a driver."""


class ProgrammingError(Error):
    """Of a driver that nobody has heard of."""


class DataError(Error):
    """Of a driver that nobody has heard of."""


def test_drivers_that_nobody_has_heard_of() -> None:
    wrong = ProgrammingError("no table customers\n[parameters: ...]")
    assert safe_message(wrong, quotes_rows=False) == "ProgrammingError: no table customers"
    assert safe_message(wrong) == "ProgrammingError"
    quoting = ProgrammingError(f"syntax error near '{SECRET}'")
    assert safe_message(quoting, [SECRET], quotes_rows=False) == "ProgrammingError"
    assert safe_message(quoting, {"who": SECRET}, quotes_rows=False) == "ProgrammingError"
    assert safe_message(DataError(SECRET), quotes_rows=False) == "DataError"


@pytest.mark.parametrize("before", [0, 3])
def test_text_that_sqlite_cannot_decode(
    make_warehouse: Callable[..., Warehouse], no_secret: Callable[[Any], str], before: int
) -> None:
    hook = make_warehouse("sqlite").hook
    text = f"SELECT CAST(X'{SECRET.encode().hex()}ff' AS TEXT) AS who"
    union = " UNION ALL ".join([*["SELECT 'x' AS who"] * before, text])
    with pytest.raises(WarehouseError, match="CAST") as caught, stream_rows(hook, union, size=2) as (_, batches):
        list(batches)
    assert "Could not decode to UTF-8 column 'who'" in no_secret(caught)


def driver_error(module: str, name: str, base: type[Exception] = Exception) -> Exception:
    return type(name, (base,), {"__module__": module})(f"cannot convert {SECRET}")


@pytest.mark.parametrize(
    "error",
    [
        *(driver_error(module, name) for module in ("psycopg", "psycopg2", "MySQLdb", "mysql.connector", "duckdb",
          "sqlite3", "other") for name in ("DataError", "OperationalError", "ProgrammingError", "InterfaceError")),
        *(driver_error("builtins", "Odd", base) for base in (ValueError, OverflowError, TypeError)),
    ],
    ids=lambda error: f"{type(error).__module__}.{type(error).__name__}",
)  # fmt: skip
def test_a_fetch_that_fails_in_the_driver_is_cleaned(
    make_warehouse: Callable[..., Warehouse],
    no_secret: Callable[[Any], str],
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if type(error).__module__ in ("MySQLdb", "mysql.connector"):
        # Their errors are known by the constants of the driver that raised them.
        pytest.importorskip(type(error).__module__)
    warehouse = make_warehouse("sqlite")

    class Cursor:
        description = (("who", None),)

        def execute(self, *given: object) -> None: ...

        def fetchmany(self, size: int) -> list[Any]:
            raise error

    monkeypatch.setattr("airflow_provider_mail.warehouse.dialects.sqlite.Sqlite.open_reader", lambda *given: Cursor())
    with pytest.raises(WarehouseError) as caught, stream_rows(warehouse.hook, "SELECT 1") as (_, batches):
        list(batches)
    no_secret(caught)
