"""How long a row may be: a file that is no file of rows ends in a sentence, and in little memory."""

from __future__ import annotations

import gzip
import io
import sys
import tracemalloc
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_mail.api.flows.validate_rows import RowChecker
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.files import check_format
from airflow_provider_mail.warehouse.read_files import MAX_ROW, FileForm, file_rows

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
    tracemalloc.start()
    try:
        with (
            pytest.raises(WarehouseError, match=r"^path, line \d+: .*(row 4 is longer than 1,000,000|limit)"),
            file_rows(file, "contacts.csv.gz", FileForm(file_format="csv", compression="gzip")) as found,
        ):
            for _ in found.batches:
                pass
        assert tracemalloc.get_traced_memory()[1] < 60_000_000
    finally:
        tracemalloc.stop()


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


def write(_: bytes, __: object) -> None:
    check_format("parquet")


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
    [(read, FileForm(file_format="parquet")), (read, FileForm(file_format="csv", compression="zstd")), (write, None)],
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
