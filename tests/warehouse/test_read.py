"""Reading of databases and files: every row once, in constant memory, nothing left open; and the memory of loads."""

from __future__ import annotations

import gzip
import io
import struct
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from itertools import accumulate, product
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.sqlite.hooks.sqlite import SqliteHook
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.api.flows.validate_rows import RowChecker
from airflow_provider_mail.warehouse.database import configured_hook, stream_rows
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.files import check_format
from airflow_provider_mail.warehouse.read_files import MAX_ROW, FileForm, file_rows
from airflow_provider_mail.warehouse.rows import UnreadableValue, read_float32
from tests.warehouse.conftest import ALL, CAN_STREAM, Warehouse
from tests.warehouse.tables import THINGS, numbers, thing


def test_rows_come_once_in_order_as_tuples(warehouse: Warehouse) -> None:
    sql = numbers(warehouse.kind, 10, "i AS id", "'x' AS word") + ";"
    for size, sizes in ((4, [4, 4, 2]), (5, [5, 5]), (10, [10]), (11, [10]), (1, [1] * 10)):
        with stream_rows(warehouse.hook, sql, size=size) as (names, batches):
            assert names == ("id", "word")
            found = list(batches)
        assert [len(batch) for batch in found] == sizes
        assert [row for batch in found for row in batch] == [(number, "x") for number in range(1, 11)]
        assert all(type(batch) is list and type(row) is tuple for batch in found for row in batch)
    with stream_rows(warehouse.hook, "SELECT 1 AS one, 2 AS two WHERE 1 = 0") as (names, batches):
        assert (names, list(batches)) == (("one", "two"), [])


def test_parameters(warehouse: Warehouse) -> None:
    for mark, parameters in (
        (warehouse.hook.placeholder, ["a%s?'"]),
        (
            {"?": "$word" if warehouse.is_duckdb else ":word"}.get(warehouse.hook.placeholder, "%(word)s"),
            {"word": "a%s?'"},
        ),
    ):
        sql = f"SELECT CAST({mark} AS {'CHAR(10)' if warehouse.is_mysql else 'VARCHAR(10)'})"
        with stream_rows(warehouse.hook, sql, parameters) as (_, batches):
            assert list(batches) == [[("a%s?'",)]]

    # Percent signs mean nothing without parameters.
    sql = "SELECT 1 FROM (SELECT 1 AS i) AS n WHERE 'abc' LIKE 'a%' AND '%s' <> '?'"
    with stream_rows(warehouse.hook, sql) as (_, batches):
        assert list(batches) == [[(1,)]]


def test_what_is_not_there_is_named_by_the_database(warehouse: Warehouse) -> None:
    warehouse.execute("CREATE TABLE people (email VARCHAR(50))")
    marks = f"SELECT {warehouse.hook.placeholder}, {warehouse.hook.placeholder}"
    for sql, word in (("SELECT * FROM contcats", "contcats"), ("SELECT emial FROM people", "emial"), (marks, "")):
        words = f"`sql` on connection 'warehouse': .*{word}"
        parameters = [1] if sql == marks else None
        with pytest.raises(WarehouseError, match=words), stream_rows(warehouse.hook, sql, parameters):
            raise AssertionError


@pytest.mark.parametrize("native", ALL, indirect=True)
def test_reading_cannot_write(native: Warehouse) -> None:
    native.execute("CREATE TABLE people (email VARCHAR(50))", "INSERT INTO people VALUES ('a')")
    for sql in ("DELETE FROM people", "UPDATE people SET email = 'x'", "CREATE TABLE others (id INTEGER)"):
        with pytest.raises(WarehouseError, match="`sql` on connection 'warehouse'"), stream_rows(native.hook, sql):
            raise AssertionError
    assert native.query("SELECT email FROM people") == [("a",)]


def test_writing_hidden_in_a_select(postgres: Warehouse) -> None:
    postgres.execute(
        "CREATE TABLE people (email VARCHAR(50))",
        "CREATE FUNCTION add() RETURNS integer LANGUAGE sql AS $$ INSERT INTO people VALUES ('a') RETURNING 1 $$",
    )
    with pytest.raises(WarehouseError, match="read-only transaction"), stream_rows(postgres.hook, "SELECT add()"):
        raise AssertionError


def test_a_statement_without_a_result(make_warehouse: Callable[..., Warehouse]) -> None:
    warehouse = make_warehouse("unknown")
    with pytest.raises(WarehouseError, match="it has no result; is it a SELECT"), stream_rows(warehouse.hook, "BEGIN"):
        raise AssertionError


@pytest.mark.parametrize("native", ALL, indirect=True)
def test_all_is_closed_however_reading_ends(native: Warehouse) -> None:
    native.execute("CREATE TABLE people (id INTEGER)")
    native.execute("INSERT INTO people " + numbers(native.kind, 20_000, "i"))
    with stream_rows(native.hook, "SELECT id FROM people", size=10) as (_, batches):
        next(batches)
    with pytest.raises(KeyError), stream_rows(native.hook, "SELECT id FROM people", size=10) as (_, batches):
        raise KeyError
    with pytest.raises(WarehouseError), stream_rows(native.hook, "SELECT nothing FROM people"):
        pass
    native.execute("DROP TABLE people")  # would be locked


def test_sizes_that_cannot_be(sqlite: Warehouse) -> None:
    with pytest.raises(ValueError, match="`size`"), stream_rows(sqlite.hook, "SELECT 1", size=0):
        pass


UNREADABLE = [
    *("DATE 'infinity'", "DATE '-infinity'", "DATE '0044-03-15 BC'", "DATE '12000-01-01'"),
    *("TIMESTAMP 'infinity'", "TIMESTAMP '0044-03-15 BC'", "TIMESTAMPTZ '-infinity'", "TIMESTAMPTZ '12000-01-01'"),
    *("TIME '24:00'", "TIMETZ '24:00+00'", "INTERVAL '1000000000 days'", "INTERVAL 'infinity'"),
]
READABLE = {"TIME": "TIME '23:59'", "TIMETZ": "TIMETZ '23:59+00'", "INTERVAL": "INTERVAL '1 day'"}


@pytest.mark.parametrize("kind", ["psycopg3", "psycopg2"])
@pytest.mark.parametrize("streams", [False, True])
def test_a_time_that_python_cannot_represent(
    make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch, kind: str, streams: bool
) -> None:
    """Only its value is lost, with a stream and with a server-side cursor; other times are as ever."""
    hook = make_warehouse(kind).hook
    if not streams:
        monkeypatch.setattr(*CAN_STREAM, lambda connection: False)
    for value, in_array in product(UNREADABLE, [False, True]):
        sql_type = value.partition(" ")[0]
        good = READABLE.get(sql_type, f"{sql_type} '2026-01-02'")
        terms = [f"ARRAY[{good}, {term}]" if in_array else term for term in (good, value, "NULL", good)]
        sql = " UNION ALL ".join(f"SELECT {row} AS n, {term} AS t" for row, term in enumerate(terms))
        with stream_rows(hook, sql + " ORDER BY n", size=2) as (_, batches):
            read = [cell for batch in batches for _, cell in batch]
        ends = [cell[-1] if in_array else cell for cell in read]
        assert isinstance(ends[1], UnreadableValue), value
        assert ends[2] is None
        assert ends[0] == ends[3]
        assert not isinstance(ends[0], UnreadableValue | str)


def test_configured_databases_may_be_databricks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook of the connection type starts jobs; that of the database is in a module of its own."""
    module = SimpleNamespace(DatabricksSqlHook=lambda databricks_conn_id: SqliteHook(databricks_conn_id))
    package = "airflow.providers.databricks"
    for name in (package, f"{package}.hooks", f"{package}.hooks.databricks_sql"):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", "databricks://host.example")
    assert configured_hook("page_conn_id", "lake").get_conn_id() == "lake"


# Memory, as Python counts it

ROWS, WORDS = 60_000, "x" * 1000


@contextmanager
def little_memory(most: int = 20_000_000) -> Iterator[None]:
    """So many bytes at most: texts of 60 MB alone are read and loaded."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@pytest.mark.not_unit
@pytest.mark.parametrize("native", ALL, indirect=True)
def test_reading_takes_little_memory(native: Warehouse) -> None:
    """What the driver holds beside Python's objects is not counted."""
    joined = f"concat('{WORDS}', i)" if native.is_mysql else f"'{WORDS}' || i"
    sql = numbers(native.kind, ROWS, "i", joined)
    with stream_rows(native.hook, "SELECT 1") as (_, batches):  # what is imported for the first reading is not counted
        assert [*batches] == [[(1,)]]
    with little_memory(), stream_rows(native.hook, sql) as (_, batches):
        assert sum(map(len, batches)) == ROWS


@pytest.mark.not_unit
@pytest.mark.parametrize("kind", ["sqlite", "psycopg3", "psycopg2", "mysql"])
def test_loading_takes_little_memory(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    warehouse, rows = make_warehouse(kind), ROWS // 6

    def many() -> Iterator[tuple[Any, ...]]:
        for number in range(rows):
            yield thing(THINGS, number, name=f"{WORDS * 6}{number}")

    warehouse.load(THINGS, [])
    with little_memory():
        warehouse.load(THINGS, many())
    assert warehouse.query("SELECT count(*) FROM things") == [(rows,)]


# Files: one that is no file of rows ends in a sentence, and in little memory

GOOD = b"email,name\nada@example.com,Ada\nbob@example.com,Bob\n"
LONG = {
    "one line": (b"", b"x"),
    "one line of many values": (b"", b"x,"),
    "a row over many lines": (b"", b'"a\nb",'),
    "a quotation mark that is not closed": (b'"', b"x\n"),
}


@pytest.mark.not_unit
@pytest.mark.parametrize("rest", LONG.values(), ids=LONG)
def test_a_csv_row_without_end(rest: tuple[bytes, bytes]) -> None:
    begin, piece = rest
    file = io.BytesIO(gzip.compress(GOOD + begin + piece * (100_000_000 // len(piece)), 1))
    with (
        little_memory(60_000_000),
        pytest.raises(WarehouseError, match=r"^path, line \d+: .*(row 4 is longer than 1,000,000|limit)"),
        file_rows(file, "contacts.csv.gz", FileForm(file_format="csv", compression="gzip")) as found,
    ):
        for _ in found.batches:
            pass


def test_rows_within_the_limit() -> None:
    """Also when all of them together are longer, and when a value goes over lines."""
    value = "x\n" * 50_000
    rows = "".join(f'ada{number}@example.com,"{value}"\n' for number in range(30))
    file = io.BytesIO(f"email,name\r\n\r\n{rows}".encode())
    with file_rows(file, "contacts.csv", FileForm(file_format="csv")) as found:
        read = [row for batch in found.batches for row in batch]
    assert len(rows) > MAX_ROW
    assert read == [(f"ada{number}@example.com", value) for number in range(30)]


def read(content: bytes, form: FileForm) -> tuple[list[str], list[Any]]:
    with file_rows(io.BytesIO(content), "contacts", form) as found:
        return list(found.columns), [row for batch in found.batches for row in batch]


@pytest.mark.parametrize("mark", ["", "sep=;\r\n"])
def test_each_row_of_csv_has_its_line(mark: str) -> None:
    comma = ";" if mark else ","
    text = f'{mark}email,name,n\n"a@x.com","A\nB",1\n\nb@x.com,2\nc@x.com,C,3,4\n'.replace(",", comma)
    with file_rows(io.BytesIO(text.encode()), "contacts", FileForm(file_format="csv", size=2)) as found:
        assert found.columns == ["email", "name", "n"]
        batches = list(found.batches)
    first = 2 if not mark else 3
    assert [list(batch.lines) for batch in batches] == [[first, first + 3], [first + 4]]
    assert [row.problem for batch in batches for row in batch if len(row) != 3] == [
        "has 2 values instead of 3",
        "has 4 values instead of 3",
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("odd", ["", '"A{end}B",1', "x" * 20_000 + ",1", "a,b,c", ",1"])
def test_what_is_odd_in_a_long_file_of_csv(odd: str, end: str) -> None:
    """At either side of what is parsed at once, rows keep their order, their lines and their values."""
    texts = [odd.format(end=end) if number % 499 in (0, 1) else f"a{number},1" for number in range(1500)]
    file = io.BytesIO(end.join(["email,n", *texts]).encode())
    expected = [
        (line, tuple(value.strip('"') or None for value in text.split(",")))
        for line, text in zip(accumulate((text.count(end) + 1 for text in texts), initial=2), texts, strict=False)
        if text
    ]
    with file_rows(file, "contacts", FileForm(file_format="csv", size=400)) as found:
        batches = list(found.batches)
    assert [pair for batch in batches for pair in zip(batch.lines, map(tuple, batch), strict=True)] == expected
    assert {len(batch) for batch in batches[:-1]} == {400}


def test_a_column_without_a_name_is_no_error() -> None:
    assert read(b",email\n0,a@x.com\n", FileForm(file_format="csv")) == (["", "email"], [("0", "a@x.com")])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
@pytest.mark.parametrize("encoding_argument", ["utf-8", None])
def test_a_byte_order_mark_decides_the_encoding(encoding_argument: str | None, encoding: str) -> None:
    form = FileForm(file_format="csv", encoding=encoding_argument or encoding)
    assert read("email\n\u010a@x.com\n".encode(encoding), form) == (["email"], [("\u010a@x.com",)])
    form = FileForm(file_format="jsonl", encoding=encoding_argument or encoding)
    assert read('{"email": "\u010a@x.com"}\n{"email": "b"}\n'.encode(encoding), form)[1] == [("\u010a@x.com",), ("b",)]


def test_half_a_surrogate_rejects_only_its_row() -> None:
    _, rows = read(b'{"email": "a@x.com", "name": "\\ud800"}\n{"email": "b@x.com"}\n', FileForm(file_format="jsonl"))
    checked = RowChecker(["email", "name"]).check(rows, 1)
    assert [(each.row_number, each.field, each.reason) for each in checked.rejects] == [
        (1, "name", "holds half a surrogate pair, which is not text")
    ]


@pytest.mark.parametrize(
    ("use", "argument"),
    [
        (read, FileForm(file_format="parquet")),
        (read, FileForm(file_format="csv", compression="zstd")),
        (lambda *_: check_format("parquet"), None),
    ],
    ids=["read Parquet", "read zstd", "write Parquet"],
)
def test_without_pyarrow_the_error_says_what_to_install(
    use: Any, argument: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(WarehouseError, match=r"needs pyarrow .*pip install 'airflow-provider-mail\[parquet\]'"):
        use(b"", argument)


def test_parquet_times_that_python_has_not() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    far = 400_000_000_000_000_000  # microseconds: the year 14645
    table = pyarrow.table({
        "email": ["a@x.com", "b@x.com"],
        "at": pyarrow.array([1, None], pyarrow.timestamp("ns", tz="UTC")),
        "seen": pyarrow.array([far, 0], pyarrow.timestamp("us")),
    })  # fmt: skip
    file = io.BytesIO()
    parquet.write_table(table, file)
    _, rows = read(file.getvalue(), FileForm(file_format="parquet"))
    assert rows[0][1] == datetime(1970, 1, 1, tzinfo=UTC)
    (reject,) = RowChecker(["email", "at", "seen"]).check(rows, 1).rejects
    assert (reject.row_number, reject.field) == (1, "seen")
    assert "write it as text" in reject.reason


FLOATS = (19.99, 0.1, 16777215.0, 3e38, 1.5e-38, -2.5, None)
"""As a source shows its binary numbers of 32 bits; as Python has them, the first is 19.989999771118164."""


@pytest.mark.parametrize("native", ALL, indirect=True)
def test_a_binary_number_of_a_database_is_what_the_database_shows(
    native: Warehouse, caplog: pytest.LogCaptureFixture
) -> None:
    values = ", ".join(f"({'NULL' if value is None else value})" for value in FLOATS)
    native.execute(
        f"CREATE TABLE f (a {'REAL' if native.kind != 'mysql' else 'FLOAT'})", f"INSERT INTO f VALUES {values}"
    )
    with stream_rows(native.hook, "SELECT a, 'x' AS b FROM f") as (_, batches):
        found = [row for batch in batches for row in batch]
    # MySQL's server shows six digits, and a log message says so.
    expected = [16777200.0 if native.is_mysql and value == FLOATS[2] else value for value in FLOATS]
    assert found == [(value, "x") for value in expected]
    assert ("CAST(column AS DECIMAL(20, 4))" in caplog.text) == native.is_mysql


def test_binary_numbers_in_values_of_duckdb(make_warehouse: Callable[..., Warehouse]) -> None:
    sql = (
        "SELECT [1.1::FLOAT, NULL] AS a, {'x': 1.1::FLOAT, 'y': 0.1::DOUBLE, 'z': [2.2::FLOAT]} AS b, "
        "map {'k': 1.1::FLOAT} AS c, [1.1::FLOAT]::FLOAT[1] AS d, 1.1::FLOAT::DOUBLE AS e, NULL::FLOAT[] AS f"
    )
    with stream_rows(make_warehouse("duckdb").hook, sql) as (_, batches):
        ((row,),) = batches
    fields = {"x": 1.1, "y": 0.1, "z": [2.2]}
    assert row == ([1.1, None], fields, {"k": 1.1}, [1.1], 1.100000023841858, None)


def test_binary_numbers_of_parquet() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    # Older releases of pyarrow need NumPy, and take only its type.
    half = getattr(sys.modules.get("numpy"), "float16", float)(0.1)

    single, fields = pyarrow.float32(), [("x", pyarrow.float32()), ("y", pyarrow.float64())]
    columns = {
        "single": pyarrow.array([19.99, None], single),
        "half": pyarrow.array([half, None], pyarrow.float16()),
        "double": pyarrow.array([0.1, 19.989999771118164], pyarrow.float64()),
        "list": pyarrow.array([[1.1], None], pyarrow.list_(single)),
        "struct": pyarrow.array([{"x": 1.1, "y": 0.1}, None], pyarrow.struct(fields)),
        "map": pyarrow.array([[("k", 1.1)], None], pyarrow.map_(pyarrow.string(), single)),
        "word": pyarrow.array([1.1, 1.1], single).dictionary_encode(),
    }
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), file)
    _, rows = read(file.getvalue(), FileForm(file_format="parquet"))
    assert [*map(tuple, rows)] == [
        (19.99, 0.1, 0.1, [1.1], {"x": 1.1, "y": 0.1}, [("k", 1.1)], 1.1),
        (None, None, 19.989999771118164, None, None, None, 1.1),
    ]


@given(bits=st.integers(0, 2**32 - 1))
def test_the_shortest_number_restores_the_binary_one(bits: int) -> None:
    """Arrow's own text is the judge."""
    pyarrow = pytest.importorskip("pyarrow")
    (value,) = struct.unpack("f", struct.pack("I", bits))
    text = pyarrow.array([value], pyarrow.float32()).cast(pyarrow.string())[0].as_py()
    shortest = read_float32(value)
    if value - value == 0:
        assert struct.pack("f", shortest) == struct.pack("f", value)
        assert len(repr(shortest)) <= len(repr(float(text))) + (
            bits & 0x7FFFFF == 0
        )  # a power of two may have one more
    else:
        assert repr(shortest) == repr(value)


def test_a_json_number_keeps_its_digits() -> None:
    _, rows = read(b'{"a": 19.99, "b": 12345678901234567.891}', FileForm(file_format="jsonl"))
    assert rows == [(19.99, Decimal("12345678901234567.891"))]
