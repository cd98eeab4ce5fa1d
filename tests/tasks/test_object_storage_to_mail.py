"""`ObjectStorageToMailContactsOperator`: what the rows of a file become in the service."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from airflow.sdk.io import attach, store
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_mail.arguments import FileFormat
from airflow_provider_mail.transfers.object_storage_to_mail import ObjectStorageToMailContactsOperator
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.read_files import FileForm, file_rows, form_of
from mail_emulator import Emulator
from tests.support.groups import grouped
from tests.support.sampling import examples
from tests.tasks.conftest import TASK, Run
from tests.tasks.loading import error_of, executed

IMPORTS = "contacts/imports"
Memory = MemoryFileSystem
PEOPLE = [
    ("ada@example.com", "Ada Lovelace", "+44 1"),
    ("bob@example.com", None, None),
    ("čeněk@example.com", 'Čeněk "陈", Jr.\nline two', None),
    (None, "Dora", "+49 30 4"),
]
NAMES = ("email", "name", "phone_number")


def csv_file(rows: Sequence[Sequence[Any]], names: Sequence[str] | None = NAMES, **form: Any) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, **form)
    writer.writerows([names, *rows] if names else rows)
    return text.getvalue().encode()


def jsonl_file(rows: Sequence[Sequence[Any]], names: Sequence[str] = NAMES) -> bytes:
    found = [{name: value for name, value in zip(names, row, strict=True) if value is not None} for row in rows]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found).encode()


def parquet_file(rows: Sequence[Sequence[Any]], names: Sequence[str] = NAMES, **options: Any) -> bytes:
    file = io.BytesIO()
    table = pyarrow.table({name: [row[place] for row in rows] for place, name in enumerate(names)})
    pyarrow.parquet.write_table(table, file, **options)
    return file.getvalue()


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda content: pyarrow.compress(content, codec="zstd", asbytes=True),
}


def imported(path: Any, **arguments: Any) -> ObjectStorageToMailContactsOperator:
    return ObjectStorageToMailContactsOperator(
        **{"task_id": TASK, "path": path, "list_name": "all"} | grouped(arguments)
    )


def contacts(emulator: Emulator) -> dict[str | None, tuple[str, str | None]]:
    found = emulator.contacts("all")
    return {contact["email"]: (contact["name"], contact["phoneNumber"]) for contact in found}


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """fsspec's file system in memory, behind `memory://`, empty."""
    monkeypatch.setattr(store, "_STORE_CACHE", {})
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    fs = MemoryFileSystem()
    attach("memory", fs=fs)
    return fs


@pytest.mark.parametrize(("name", "make", "arguments"), [
    ("contacts.parquet", lambda rows: parquet_file(rows, compression="zstd", row_group_size=2), {}),
    ("people.tsv", lambda rows: csv_file(rows, delimiter="\t"), {}),
    ("people.csv", lambda rows: csv_file(rows, None), {"file_format": FileFormat(column_names=NAMES)}),
    ("people.CSV.GZ", lambda rows: gzip.compress(csv_file(rows)), {}),
    ("people.csv", lambda rows: b"\xef\xbb\xbf" + csv_file(rows), {}),
    ("people.csv", lambda rows: b"\n" + csv_file(rows).replace(b"\r\nbob", b"\r\n\r\nbob") + b"\n\n", {}),
    ("people.ndjson", lambda rows: b"\xef\xbb\xbf" + jsonl_file(rows).replace(b"\n", b"\r\n\n"), {}),
    ("people.jsonl", lambda rows: jsonl_file(rows).decode().encode("gb18030"), {"encoding": "gb18030"}),
    ("people.2026.gz", jsonl_file, {"format": "jsonl", "compression": "none"}),
    ("people.tsv.gz", lambda rows: bz2.compress(csv_file(rows, delimiter=";").decode().encode("utf-16")),
     {"format": "{{ 'csv' }}", "compression": "{{ 'bz2' }}", "encoding": "{{ 'utf-16' }}",
      "delimiter": "{{ ';' }}"}),
])  # fmt: skip
def test_files_of_every_form(
    run: Run, emulator: Emulator, memory: Memory, name: str, make: Callable[..., bytes], arguments: dict[str, Any]
) -> None:
    memory.pipe_file(f"/{name}", make(PEOPLE))
    if "{{" in str(arguments):
        run(lambda: imported(f"{{{{ 'memory' }}}}://{name}", **arguments))
    else:
        executed(imported(f"memory://{name}", **arguments))
    assert contacts(emulator) == {email: (full_name or email, phone) for email, full_name, phone in PEOPLE}


@pytest.mark.parametrize(("name", "content", "arguments", "words"), [
    ("a.csv", b"", {}, "is empty: a line with the names of the columns is needed"),
    ("a.csv", b",,\n", {}, "line 2: no column has a name"),
    ("a.csv", b"mail,name\n", {"columns": {"email": "email"}}, "the source has no 'email'; it has mail, name"),
    ("a.jsonl", b"", {}, "there was no row to import"),
    ("a.parquet", parquet_file([(1,)], ["mail"]), {"columns": {"email": "email"}}, "the source has no 'email'"),
    ("a.parquet", b"email\na@b.cc\n", {}, "cannot be read as parquet"),
    ("a.parquet.gz", b"", {}, "a Parquet file is compressed internally: compression must be 'none'"),
    *(
        (f"a.csv.{ending}", b"email\na@b.cc\n", {}, f"is cut short or damaged, or not compressed with {name}")
        for ending, name in [("gz", "gzip"), ("bz2", "bz2"), ("xz", "xz"), ("zst", "zstd")]
    ),
    ("a.jsonl", b'[{"email": "a@b.cc"}]\n', {}, "line 1: is no JSON object"),
    ("a.xlsx", b"PK", {}, "file_format: unknown extension of 'a.xlsx'; set FileFormat(name=...) to one of csv, "),
    ("a.csv", b"", {"format": "xlsx"}, "FileFormat: name: 'xlsx' is none of csv, jsonl, parquet"),
    ("a.csv", b"", {"compression": "lz4"}, "FileFormat: compression: 'lz4' is none of gzip, bz2, xz, zstd, none"),
    ("a.csv", b"", {"encoding": "utf-9"}, "file_format.encoding: unknown encoding: utf-9"),
    ("a.csv", b"", {"delimiter": "||"}, "file_format.delimiter: '||' is not one character"),
    ("a.csv", b"email;name\na@b.cc;A\n", {}, "file_format: set FileFormat(delimiter=';'), which separates values"),
    ("b.csv", None, {}, "path: there is no such file: "),
    ("b.csv", None, {"path": "nowhere://b.csv"}, "path: install the provider of that storage"),
])  # fmt: skip
def test_invalid_files_and_arguments_send_nothing(
    emulator: Emulator, memory: Memory, name: str, content: bytes | None, arguments: dict[str, Any], words: str
) -> None:
    if content is not None:
        memory.pipe_file(f"/{name}", content)
    error = error_of(lambda: imported(**{"path": f"memory://{name}"} | arguments))
    assert words in error
    assert "a@b.cc" not in error
    assert emulator.journal.count(IMPORTS) == 0


HUSH = b"hush@example.com"


@pytest.mark.parametrize(("name", "bad", "words"), [
    ("a.jsonl", b'{"email": "%s"\n' % HUSH, "line 1001: is no JSON object"),
    ("a.jsonl", b'["%s"]\n' % HUSH, "line 1001: is no JSON object: Expected `object`, got `array`"),
    ("a.jsonl", b'{"email": "\xff%s"}\n' % HUSH, "line 1001: is n"),
    ("a.jsonl", b'{"email": "%s", "nick": "x"}\n' % HUSH, "line 1001: has a key that none of the first 100 rows has"),
    ("a.csv", b"\xff%s\n" % HUSH, "line 1002: is not utf-8 (the encoding argument"),
    ("a.csv", b'"%s"x\n' % HUSH, "line 1002: is no CSV with ',' between the values"),
])  # fmt: skip
def test_an_error_names_the_broken_line_and_does_not_show_it(
    run: Run, emulator: Emulator, memory: Memory, name: str, bad: bytes, words: str
) -> None:
    rows = [(f"u{number}@example.com",) for number in range(1000)]
    make = csv_file if name.endswith("csv") else jsonl_file
    memory.pipe_file(f"/{name}", make(rows, ["email"]) + bad + make(rows[:3], ["email"]))
    done = run(lambda: imported(f"memory://{name}", chunk_size=100))
    assert done.state == "failed"
    assert words in done.log
    assert "hush@" not in done.log
    assert 0 < emulator.contact_count("all") <= 1000


@pytest.mark.parametrize("ending", ["csv.gz", "csv.bz2", "csv.xz", "csv.zst", "jsonl.gz"])
def test_a_file_that_is_cut_short_is_an_error(ending: str) -> None:
    rows = [(f"user{number}@example.com", f"N{number}", None) for number in range(5_000)]
    kind, compressed_with, _ = form_of(f"x.{ending}")
    content = COMPRESS[ending[ending.index(".") :]](csv_file(rows) if kind == "csv" else jsonl_file(rows))
    form = FileForm(file_format=str(kind), compression=compressed_with, wanted=NAMES)

    def read(content: bytes) -> int:
        with file_rows(io.BytesIO(content), "x", form) as found:
            return sum(map(len, found.batches))

    assert read(content) == len(rows)
    for left in (1, len(content) // 2):
        with pytest.raises(WarehouseError, match="cut short or damaged"):
            read(content[:-left])


LINES = {
    "a.csv": b'email,name\n"ada@example.com","Ada\nL"\n\nnobody,No\nbob@example.com\n'
    b"refused@example.com,R\nnobody,No\n",
    "a.jsonl": b'{"email":"ada@example.com","name":"A"}\n\n\n{"email":"nobody"}\n{"email":7}\n'
    b'{"email":"refused@example.com"}\n{"email":"nobody"}\n',
}


@pytest.mark.parametrize(("name", "first", "columns"), [("a.csv", 5, None), ("a.jsonl", 4, {"email": "email"})])
def test_every_rejected_row_has_its_line(
    run: Run, emulator: Emulator, memory: Memory, name: str, first: int, columns: dict[str, str] | None
) -> None:
    """Also one that the service rejects, in whatever chunk."""
    emulator.settings.refused_addresses = ["refused@example.com"]
    memory.pipe_file(f"/{name}", LINES[name])
    options = {"max_reject_fraction": 0.9, "rejects_path": "memory://rejects.jsonl", "chunk_size": 2}

    done = run(lambda: imported(f"memory://{name}", columns=columns, **options))

    assert list(contacts(emulator)) == ["ada@example.com"]
    kept = [json.loads(line) for line in memory.cat_file("/rejects.jsonl").splitlines()]
    assert sorted(row["row_number"] for row in kept) == [first + n for n in range(4)], "lines of the file"
    assert ("", "has 1 values instead of 2") in [(row["field"], row["reason"]) for row in kept] or name == "a.jsonl"
    assert "nobody" not in done.log
    assert "an email that is refused" not in done.log, "the service's message may quote a row"
    assert f"; lines {first}, {first + 1}, {first + 2}, {first + 3}." in done.log


def test_a_file_is_read_as_its_rows_are_needed() -> None:
    """Text by its buffers; of Parquet, whose columns are not copied, one group of rows is in memory."""
    rows = [(f"user{number}@example.com", f"Name {number}" * 25) for number in range(20_000)]
    for kind, make, wanted in (("csv", csv_file, None), ("jsonl", jsonl_file, ["email"])):
        content = make(rows, ["email", "name"])
        file = io.BytesIO(content)
        with file_rows(file, "x", FileForm(file_format=kind, wanted=wanted, size=1000)) as found:
            for number, _ in enumerate(found.batches, 1):
                assert file.tell() < (number + 2) * len(content) / 20 + 1_100_000
    file = io.BytesIO(parquet_file(rows, ["email", "name"], compression="none", row_group_size=1000))
    before, whole = pyarrow.total_allocated_bytes(), len(file.getvalue())
    with file_rows(file, "x", FileForm(file_format="parquet", size=1000)) as found:
        assert max(pyarrow.total_allocated_bytes() - before for _ in found.batches) < whole / 4


plain = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=8)


@given(st.lists(st.tuples(plain, plain), max_size=30), st.integers(1, 7), st.sampled_from(sorted(COMPRESS)))
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
def test_every_format_gives_the_rows_that_were_written(
    rows: list[tuple[str, str]], size: int, compression: str
) -> None:
    """In every format the same rows; an empty value of CSV is a missing one."""
    for kind, make in (("csv", csv_file), ("jsonl", jsonl_file), ("parquet", parquet_file)):
        compressed_with = form_of(f"x.{kind}{compression}")[1] if kind != "parquet" else None
        form = FileForm(file_format=kind, compression=compressed_with, wanted=["b", "a"], size=size)
        content = make(rows, ["a", "b"])
        if compressed_with:  # two pieces one behind the other, as parallel compressors and appenders write them
            middle = len(content) // 2
            content = COMPRESS[compression](content[:middle]) + COMPRESS[compression](content[middle:])
        with file_rows(io.BytesIO(content), "x", form) as found:
            got = [row for batch in found.batches for row in batch]
        if kind == "csv":
            assert got == [(a or None, b or None) for a, b in rows]
        elif kind == "parquet" or rows:
            assert (list(found.columns), got) == (["b", "a"], [(b, a) for a, b in rows])
