"""`ObjectStorageToMailContactsOperator`: what the rows of a file become in the service."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any

import pyarrow
import pyarrow.parquet
import pytest
from airflow.sdk import DAG, ObjectStoragePath
from airflow.sdk.io import attach, store
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.transfers.object_storage_to_mail import ObjectStorageToMailContactsOperator
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.read_files import FileForm, file_rows, form_of
from tests.tasks.conftest import TASK, Run
from tests.tasks.sending import AT_ONCE, remembers

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


def zstd(content: bytes) -> bytes:
    return pyarrow.compress(content, codec="zstd", asbytes=True)


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}


def imported(path: Any, **arguments: Any) -> ObjectStorageToMailContactsOperator:
    return ObjectStorageToMailContactsOperator(**{"task_id": TASK, "path": path, "list_name": "all"} | arguments)


def contacts(emulator: Emulator) -> dict[str | None, tuple[str, str | None]]:
    found = emulator.contacts("all")
    return {contact["email"]: (contact["name"], contact["phoneNumber"]) for contact in found}


EVERYBODY = {email: (name or email, phone) for email, name, phone in PEOPLE}


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """fsspec's file system in memory, behind `memory://`, empty."""
    monkeypatch.setattr(store, "_STORE_CACHE", {})
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    fs = MemoryFileSystem()
    attach("memory", fs=fs)
    return fs


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize(("ending", "make"), [("csv", csv_file), ("jsonl", jsonl_file)])
def test_text_files(
    run: Run, emulator: Emulator, tmp_path: Path, ending: str, make: Callable[..., bytes], compression: str
) -> None:
    file = tmp_path / f"contacts.{ending}{compression}"
    # Two pieces one behind the other, as parallel compressors and appenders write them.
    content = make(PEOPLE)
    middle = len(content) // 2
    file.write_bytes(COMPRESS[compression](content[:middle]) + COMPRESS[compression](content[middle:]))

    done = run(lambda: imported(f"file://{file}"))

    assert done.state == "success", done.log
    assert contacts(emulator) == EVERYBODY
    assert done.returned == {
        "list_name": "all",
        "read": 4,
        "accepted": 4,
        "accepted_earlier": 0,
        "rejected": 0,
        "requests": 1,
        "remarks": 0,
        "sandbox": False,
    }


def test_parquet(run: Run, emulator: Emulator, memory: Memory) -> None:
    memory.pipe_file("/in/contacts.parquet", parquet_file(PEOPLE, compression="zstd", row_group_size=2))

    assert run(lambda: imported("memory://in/contacts.parquet")).state == "success"

    assert contacts(emulator) == EVERYBODY


@pytest.mark.parametrize(
    ("name", "make", "arguments"),
    [
        ("people.tsv", lambda rows: csv_file(rows, delimiter="\t"), {}),
        ("people.csv", lambda rows: csv_file(rows, delimiter=";"), {"delimiter": ";"}),
        ("people.csv", lambda rows: csv_file(rows, None), {"column_names": NAMES}),
        ("people.CSV.GZ", lambda rows: gzip.compress(csv_file(rows)), {}),
        ("people.csv", lambda rows: b"\xef\xbb\xbf" + csv_file(rows), {}),
        ("people.csv", lambda rows: csv_file(rows).decode().encode("utf-16"), {"encoding": "utf-16"}),
        ("people.csv", lambda rows: b"\n" + csv_file(rows).replace(b"\r\nbob", b"\r\n\r\nbob") + b"\n\n", {}),
        ("people.ndjson", lambda rows: b"\xef\xbb\xbf" + jsonl_file(rows).replace(b"\n", b"\r\n\n"), {}),
        ("people.jsonl", lambda rows: jsonl_file(rows).decode().encode("gb18030"), {"encoding": "gb18030"}),
        ("people", csv_file, {"file_format": "csv"}),
        ("people.txt", lambda rows: bz2.compress(jsonl_file(rows)), {"file_format": "jsonl", "compression": "bz2"}),
        ("people.2026.gz", jsonl_file, {"file_format": "jsonl", "compression": "none"}),
        ("people.dat", parquet_file, {"file_format": "parquet"}),
    ],
)
def test_forms(
    run: Run,
    emulator: Emulator,
    memory: Memory,
    name: str,
    make: Callable[..., bytes],
    arguments: dict[str, Any],
) -> None:
    memory.pipe_file(f"/{name}", make(PEOPLE))

    done = run(lambda: imported(f"memory://{name}", **arguments))

    assert done.state == "success", done.log
    assert contacts(emulator) == EVERYBODY


@pytest.mark.parametrize("make", [csv_file, jsonl_file, parquet_file])
def test_columns_are_mapped_and_others_left_out(
    run: Run, emulator: Emulator, memory: Memory, make: Callable[..., bytes]
) -> None:
    names = ("id", "secret", "mail", "who", "since")
    memory.pipe_file("/x", make([(7, "hush", "ada@example.com", "Ada", "2026-01-31")], names))

    done = run(
        lambda: imported(
            ObjectStoragePath("memory://x"),
            file_format={csv_file: "csv", jsonl_file: "jsonl", parquet_file: "parquet"}[make],
            columns={"who": "name", "mail": "email", "since": "customer_since", "id": "customer_id"},
        )
    )

    assert done.state == "success", done.log
    (contact,) = emulator.contacts("all")
    assert (contact["email"], contact["name"]) == ("ada@example.com", "Ada")
    assert contact["properties"] == {"customer_since": "2026-01-31", "customer_id": "7"}
    assert "hush" not in str(emulator.journal.entries(IMPORTS))


@pytest.mark.parametrize(
    ("name", "content", "arguments", "words"),
    [
        ("a.csv", b"", {}, "is empty: a line with the names of the columns is needed"),
        ("a.csv", b",,\n", {}, "line 2: no column has a name"),
        ("a.csv", b",name\na@b.cc,Ada\n", {}, "columns: "),
        ("a.csv", b"email,nick\n", {}, "columns: which property do 'nick' belong to"),
        ("a.csv", b"email,email\na@b.cc,c@d.ee\n", {}, "columns: the source has more than one 'email'"),
        (
            "a.csv",
            b"mail,name\n",
            {"columns": {"email": "email"}},
            "columns: the source has no 'email'; it has mail, name",
        ),
        ("a.csv", b"email\n", {}, "there was no row to import"),
        ("a.jsonl", b"", {}, "there was no row to import"),
        (
            "a.jsonl",
            b'{"mail": 1}\n',
            {"columns": {"email": "email"}},
            "columns: the source has no 'email'; it has mail",
        ),
        ("a.parquet", parquet_file([(1,)], ["mail"]), {"columns": {"email": "email"}}, "the source has no 'email'"),
        ("a.parquet", b"email\na@b.cc\n", {}, "cannot be read as parquet"),
        ("a.parquet", b"", {}, "cannot be read as parquet"),
        ("a.parquet.gz", b"", {}, "a Parquet file is compressed internally: compression must be 'none'"),
        ("a.csv.gz", b"email\na@b.cc\n", {}, "is cut short or damaged, or not compressed with gzip"),
        ("a.csv.bz2", b"email\na@b.cc\n", {}, "is cut short or damaged, or not compressed with bz2"),
        ("a.csv.xz", b"email\na@b.cc\n", {}, "is cut short or damaged, or not compressed with xz"),
        ("a.csv.zst", b"email\na@b.cc\n", {}, "is cut short or damaged, or not compressed with zstd"),
        ("a.jsonl", b'[{"email": "a@b.cc"}]\n', {}, "line 1: is no JSON object"),
        ("a.xlsx", b"PK", {}, "file_format: unknown extension of 'a.xlsx'; set one of csv, jsonl, parquet"),
        ("a.csv", b"", {"file_format": "xlsx"}, "file_format: 'xlsx' is none of csv, jsonl, parquet"),
        ("a.csv", b"", {"compression": "lz4"}, "compression: 'lz4' is none of gzip, bz2, xz, zstd, none"),
        ("a.csv", b"", {"encoding": "utf-9"}, "encoding: unknown encoding: utf-9"),
        ("a.csv", b"", {"delimiter": "||"}, "delimiter: '||' is not one character"),
        ("b.csv", None, {}, "path: there is no such file: "),
        ("b.csv", None, {"path": "nowhere://b.csv"}, "path: install the provider of that storage"),
        ("b.csv", None, {"path": ""}, "path: is empty"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_sent(
    failure: Callable[[Callable[[], Any]], str],
    emulator: Emulator,
    memory: Memory,
    name: str,
    content: bytes | None,
    arguments: dict[str, Any],
    words: str,
) -> None:
    if content is not None:
        memory.pipe_file(f"/{name}", content)

    said = failure(lambda: imported(**{"path": f"memory://{name}"} | arguments))

    assert words in said
    assert "a@b.cc" not in said
    assert emulator.journal.count(IMPORTS) == 0


SECRET = b"hush@example.com"


@pytest.mark.parametrize(
    ("name", "bad", "words"),
    [
        ("a.jsonl", b'{"email": "%s"\n' % SECRET, "line 1001: is no JSON object"),
        ("a.jsonl", b'["%s"]\n' % SECRET, "line 1001: is no JSON object: Expected `object`, got `array`"),
        ("a.jsonl", b'{"email": "\xff%s"}\n' % SECRET, "line 1001: is n"),
        (
            "a.jsonl",
            b'{"email": "%s", "nick": "x"}\n' % SECRET,
            "line 1001: has a key that none of the first 100 rows has",
        ),
        ("a.jsonl", b'{"email": "' + b"x" * 2_000 + b'"}\n', "line 1001: is longer than 1,000 bytes"),
        ("a.csv", b"\xff%s\n" % SECRET, "line 1002: is not utf-8 (the encoding argument"),
        ("a.csv", b'"%s"x\n' % SECRET, "line 1002: is no CSV with ',' between the values"),
        ("a.csv", b'"%s\n' % SECRET + b"y" * 140_000, "line 1002: row 1002 is longer than 1,000 characters"),
    ],
)
def test_a_broken_line_is_named_and_not_shown(
    run: Run,
    emulator: Emulator,
    memory: Memory,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    bad: bytes,
    words: str,
) -> None:
    monkeypatch.setattr("airflow_provider_mail.warehouse.read_files.MAX_ROW", 1_000)
    rows = [(f"u{number}@example.com",) for number in range(1000)]
    make = csv_file if name.endswith("csv") else jsonl_file
    memory.pipe_file(f"/{name}", make(rows, ["email"]) + bad + make(rows[:3], ["email"]))

    done = run(lambda: imported(f"memory://{name}", chunk_size=100))

    assert done.state == "failed"
    assert words in done.log
    assert "hush@" not in done.log
    assert 0 < emulator.contact_count("all") <= 1000


@pytest.mark.parametrize("compression", [ending for ending in COMPRESS if ending])
@pytest.mark.parametrize("make", [csv_file, jsonl_file])
def test_a_file_that_is_cut_short_is_not_taken_for_a_whole_one(make: Callable[..., bytes], compression: str) -> None:
    rows = [(f"user{number}@example.com", f"N{number}", None) for number in range(20_000)]
    content = COMPRESS[compression](make(rows))
    kind, compressed_with, _ = form_of(f"x.{'csv' if make is csv_file else 'jsonl'}{compression}")
    form = FileForm(file_format=str(kind), compression=compressed_with, wanted=NAMES)

    def read(content: bytes) -> int:
        with file_rows(io.BytesIO(content), "x", form) as found:
            return sum(map(len, found.batches))

    assert read(content) == len(rows)
    for left in (1, 100, len(content) // 2):
        with pytest.raises(WarehouseError, match="cut short or damaged"):
            read(content[:-left])


def test_bad_rows_are_set_aside(run: Run, emulator: Emulator, memory: Memory) -> None:
    content = b"email,name\nada@example.com,Ada\nnobody,Nobody\nbob@example.com\neve@example.com,Eve,more\n,Dora\n"
    memory.pipe_file("/a.csv", content)

    done = run(lambda: imported("memory://a.csv", max_reject_fraction=0.9, rejects_path="memory://rejects.jsonl"))

    assert done.state == "success", done.log
    assert list(contacts(emulator)) == ["ada@example.com"]
    kept = [json.loads(line) for line in memory.cat_file("/rejects.jsonl").splitlines()]
    assert [(row["row_number"], row["field"], row["reason"]) for row in kept] == [
        (2, "email", "is not an email address"),
        (3, "", "has 1 values instead of 2"),
        (4, "", "has 3 values instead of 2"),
        (5, "email", "is empty"),
    ]
    assert "nobody" not in done.log


LINES = {
    "a.csv": b'email,name\n"ada@example.com","Ada\nL"\n\nnobody,No\nbob@example.com\n'
    b"refused@example.com,R\nnobody,No\n",
    "a.jsonl": b'{"email":"ada@example.com","name":"A"}\n\n\n{"email":"nobody"}\n{"email":7}\n'
    b'{"email":"refused@example.com"}\n{"email":"nobody"}\n',
}


@pytest.mark.parametrize("columns", [None, {"email": "email"}])
@pytest.mark.parametrize("name", LINES)
def test_each_rejected_row_has_its_line(
    run: Run, emulator: Emulator, memory: Memory, name: str, columns: dict[str, str] | None
) -> None:
    """Also one that the service rejects, in whatever chunk."""
    emulator.settings.refused_addresses = ["refused@example.com"]
    memory.pipe_file(f"/{name}", LINES[name])
    options = {"max_reject_fraction": 0.9, "rejects_path": "memory://rejects.jsonl", "chunk_size": 2}

    done = run(lambda: imported(f"memory://{name}", columns=columns, **options))

    assert done.state == "success", done.log
    kept = [json.loads(line) for line in memory.cat_file("/rejects.jsonl").splitlines()]
    first = 5 if name == "a.csv" else 4
    assert sorted((row["row_number"], row["line"]) for row in kept) == [(2 + n, first + n) for n in range(4)]
    assert "; lines " + ", ".join(str(first + n) for n in range(4)) + "." in done.log


def test_values_of_parquet(run: Run, emulator: Emulator, memory: Memory) -> None:
    file = io.BytesIO()
    table = pyarrow.table(
        {
            "email": pyarrow.array(["a@b.cc", "c@d.ee"]).dictionary_encode(),
            "n": pyarrow.array([1, None], pyarrow.int32()),
            "price": pyarrow.array([1, 2], pyarrow.int64()).cast(pyarrow.decimal128(30, 2)),
            "day": pyarrow.array([0, 1], pyarrow.date32()),
            "tags": [["x"], []],
        }
    )
    pyarrow.parquet.write_table(table, file)
    memory.pipe_file("/a.parquet", file.getvalue())
    columns = {"email": "email", "n": "n", "price": "price", "day": "day"}

    assert run(lambda: imported("memory://a.parquet", columns=columns, null_value="-")).state == "success"
    assert [contact["properties"] for contact in emulator.contacts("all")] == [
        {"n": "1", "price": "1.00", "day": "1970-01-01"},
        {"n": "-", "price": "2.00", "day": "1970-01-02"},
    ]

    done = run(lambda: imported("memory://a.parquet", columns={"email": "email", "tags": "tags"}))
    assert "tags is of type list: cast it to text (2)" in done.log


def test_parquet_says_what_to_install(
    run: Run, emulator: Emulator, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("a.parquet", "a.csv.zst"):
        memory.pipe_file(f"/{name}", b"")

        done = run(lambda name=name: imported(f"memory://{name}"))

        assert done.state == "failed"
        assert "needs pyarrow" in done.log
        assert "pip install 'airflow-provider-mail[parquet]'" in done.log


@remembers
def test_a_retried_import_goes_on_behind_what_was_accepted(
    run: Run, emulator: Emulator, memory: Memory, new_dag: Callable[..., DAG]
) -> None:
    rows = [(f"user{number}@example.com",) for number in range(100)]
    memory.pipe_file("/a.csv.gz", gzip.compress(csv_file(rows, ["email"])))
    emulator.faults.add("code_before", IMPORTS, skip=5, code=401)
    with new_dag() as dag:
        imported("memory://a.csv.gz", chunk_size=10, max_in_flight=1, **AT_ONCE)
    done = run(dag)
    assert done.state == "failed"
    sent = emulator.journal.count(IMPORTS)

    assert done.result.clear_and_run(TASK).state == "success"

    assert emulator.contact_count("all") == 100
    assert emulator.journal.count(IMPORTS) == 10 + 1
    assert done.result.xcom(TASK)["accepted_earlier"] == 10 * (sent - 1)


def test_mapped_over_files(
    run_in_airflow: Run, new_dag: Callable[..., DAG], emulator: Emulator, memory: Memory
) -> None:
    for part in range(3):
        rows = [(f"user{part}.{number}@example.com",) for number in range(10)]
        memory.pipe_file(f"/in/part-{part}.jsonl", jsonl_file(rows, ["email"]))
    with new_dag() as dag:
        ObjectStorageToMailContactsOperator.partial(task_id=TASK, list_name="all").expand(
            path=[f"memory://in/part-{part}.jsonl" for part in range(3)]
        )

    assert run_in_airflow(dag).state == "success"
    assert emulator.contact_count("all") == 30


def test_templates(run: Run, new_dag: Callable[..., DAG], emulator: Emulator, tmp_path: Path) -> None:
    (tmp_path / "contacts").write_bytes(bz2.compress(csv_file(PEOPLE, delimiter=";")))
    with new_dag(params={"folder": f"file://{tmp_path}"}) as dag:
        imported(
            "{{ params.folder }}/contacts",
            file_format="{{ 'csv' }}",
            compression="{{ 'bz2' }}",
            encoding="{{ 'utf-8' }}",
            delimiter="{{ ';' }}",
        )

    assert run(dag).state == "success"
    assert contacts(emulator) == EVERYBODY


class Generated(io.RawIOBase):
    """A file that is made while it is read: only that can be larger than memory."""

    def __init__(self, head: bytes, row: Callable[[int], bytes], rows: int) -> None:
        some = (b"".join(map(row, range(at, min(at + 500, rows)))) for at in range(0, rows, 500))
        self._pieces = chain([head], some) if head else some
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._left = self._left or next(self._pieces, b"")
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


def most_memory(file: IO[bytes] | Any, form: FileForm, rows: int) -> int:
    tracemalloc.start()
    with file_rows(file, "x", form) as found:
        assert sum(map(len, found.batches)) == rows
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("wanted", [None, ["email"]])
def test_memory_is_flat(kind: str, wanted: list[str] | None) -> None:
    def row(number: int) -> bytes:
        email, name = f"user{number}@example.com", f"Name {number}" * 5
        line = f"{email},{name}" if kind == "csv" else json.dumps({"email": email, "name": name})
        return f"{line}\n".encode()

    def peak(rows: int) -> int:
        head = b"email,name\n" if kind == "csv" else b""
        return most_memory(Generated(head, row, rows), FileForm(file_format=kind, wanted=wanted, size=1000), rows)

    small = peak(10_000)
    assert peak(40_000) < small * 1.2 + 500_000


def test_memory_is_flat_for_parquet(tmp_path: Path) -> None:
    schema = pyarrow.schema([("email", pyarrow.string()), ("name", pyarrow.string())])

    def peak(groups: int) -> int:
        path = tmp_path / f"{groups}.parquet"
        with pyarrow.parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
            for group in range(groups):
                emails = [f"user{group}.{number}@example.com" for number in range(5_000)]
                writer.write_table(pyarrow.table({"email": emails, "name": emails}, schema=schema))
        before = pyarrow.total_allocated_bytes()
        most = 0
        with path.open("rb") as file, file_rows(file, "x", FileForm(file_format="parquet", size=1000)) as found:
            for _ in found.batches:
                most = max(most, pyarrow.total_allocated_bytes() - before)
        return most

    small = peak(4)
    assert peak(24) < small * 1.5 + 100_000


plain = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=8)


@given(st.lists(st.tuples(plain, plain), max_size=30), st.integers(1, 7), st.sampled_from(sorted(COMPRESS)))
@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
def test_what_was_written_is_read(rows: list[tuple[str, str]], size: int, compression: str) -> None:
    """In every format the same rows; an empty value of CSV is a missing one."""
    for kind, make in (("csv", csv_file), ("jsonl", jsonl_file), ("parquet", parquet_file)):
        compressed_with = form_of(f"x.{kind}{compression}")[1] if kind != "parquet" else None
        form = FileForm(file_format=kind, compression=compressed_with, wanted=["b", "a"], size=size)
        content = make(rows, ["a", "b"])
        file = io.BytesIO(COMPRESS[compression](content) if compressed_with else content)
        with file_rows(file, "x", form) as found:
            got = [row for batch in found.batches for row in batch]
        if kind == "csv":
            assert got == [(a or None, b or None) for a, b in rows]
        elif kind == "parquet" or rows:
            assert (list(found.columns), got) == (["b", "a"], [(b, a) for a, b in rows])
