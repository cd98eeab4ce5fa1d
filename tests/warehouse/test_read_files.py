"""How long a row may be: a file that is no file of rows ends in a sentence, and in little memory."""

from __future__ import annotations

import gzip
import io
import tracemalloc

import pytest

from airflow_provider_mail.warehouse.errors import WarehouseError
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
            pytest.raises(
                WarehouseError, match=r"^contacts.csv.gz, line \d+: .*(row 4 is longer than 1,000,000|limit)"
            ),
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
