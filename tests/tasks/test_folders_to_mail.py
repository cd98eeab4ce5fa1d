"""A folder or a pattern of files is one source of one exact audience, as `UNLOAD`, `COPY` and Spark write them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.arguments import FileFormat, Rejects
from airflow_provider_mail.transfers.object_storage_to_mail import ObjectStorageToMailContactsOperator
from airflow_provider_mail.version_compat import AirflowException
from mail_emulator import Emulator
from tests.support.changes import at_request
from tests.tasks.conftest import SqlDatabase
from tests.tasks.loading import error_of, executed
from tests.tasks.test_audience import created, done
from tests.tasks.test_object_storage_to_mail import csv_file, jsonl_file, parquet_file

IMPORTS = "contacts/imports"
NAMES = ("email", "name")


def rows(*people: str) -> list[tuple[str, str]]:
    return [(f"{person}@example.com", person.title()) for person in people]


def load(path: str, **arguments: Any) -> ObjectStorageToMailContactsOperator:
    given: dict[str, Any] = {"task_id": "load", "path": f"file://{path}", "list_name": "all", "exact_audience": True}
    return ObjectStorageToMailContactsOperator(**given | {"columns": {"email": "email", "name": "name"}} | arguments)


def imported(emulator: Emulator) -> list[str]:
    return sorted(contact["email"].partition("@")[0] for contact in emulator.contacts())


def written(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def csv_of(*people: str) -> bytes:
    return csv_file(rows(*people), NAMES)


SPARK = {
    "_SUCCESS": b"", "._SUCCESS.crc": b"x", ".part-00000-a.csv.gz.crc": b"x", "part-00003-a.csv.gz": gzip.compress(b""),
    "part-00000-a.csv.gz": gzip.compress(csv_of("ada")), "part-00001-a.csv.gz": gzip.compress(b"email,name\n"),
    "part-00002-a.csv.gz": gzip.compress(b'name,email\n"B \\"b\\" B",bob@example.com\n'),
}  # fmt: skip
FOLDERS: dict[str, tuple[dict[str, bytes], str, dict[str, Any]]] = {
    "spark_csv": (SPARK, "", {"file_format": FileFormat(escape="\\")}),
    "spark_json": (
        {"_SUCCESS": b"", "part-0.json": jsonl_file(rows("ada"), NAMES),
         "part-1.json": b'{"email":"bob@example.com"}\n'}, "", {"file_format": FileFormat(name="jsonl")}),
    "parquet": (
        {"day=1/part-0.parquet": parquet_file(rows("ada"), NAMES),
         "day=2/part-0.parquet": parquet_file(rows("bob"), NAMES),
         "day=2/part-1.parquet": parquet_file([], NAMES), "_committed_1": b"{}"}, "", {}),
    "unload": (
        {"out/0000_part_00.gz": gzip.compress(csv_of("ada")), "out/0001_part_00.gz": gzip.compress(csv_of("bob")),
         "out/manifest": b"{}"}, "out/*_part_*", {"file_format": FileFormat(name="csv", compression="gzip")}),
    "without_header": (
        {"a/1.csv": b"ada@example.com,Ada\n", "b/1.csv": b"bob@example.com,Bob\n"}, "?/1.csv",
        {"file_format": FileFormat(column_names=NAMES)}),
    "mixed": (
        {"a.csv": csv_of("ada"), "b.jsonl": jsonl_file(rows("bob"), NAMES), "c.csv": b""}, "", {}),
}  # fmt: skip
"""Files, the path below the folder, and arguments."""


@pytest.mark.parametrize("kind", FOLDERS)
def test_files_are_one_audience(emulator: Emulator, tmp_path: Path, kind: str) -> None:
    files, path, arguments = FOLDERS[kind]
    folder = written(tmp_path / "export", files)
    result = done(load(f"{folder}/{path}", **arguments))
    assert [result[name] for name in ("read", "accepted", "rejected")] == [2, 2, 0]
    assert imported(emulator) == ["ada", "bob"]
    done(created(result))
    assert emulator.campaign_recipients("spring") == ["ada@example.com", "bob@example.com"]
    if kind == "spark_csv":
        assert emulator.contact("bob@example.com")["name"] == 'B "b" B'


def test_the_order_is_that_of_the_names(emulator: Emulator, tmp_path: Path) -> None:
    written(tmp_path, {f"part-{number}.csv": csv_of(f"p{number}") for number in (2, 0, 1)})
    executed(load(str(tmp_path), exact_audience=False, chunk_size=1, max_in_flight=1))
    sent = [entry["body"]["contactData"][0][0] for entry in emulator.journal.entries(IMPORTS)]
    assert sent == [f"p{number}@example.com" for number in range(3)]


def test_every_reject_has_its_file_and_line(emulator: Emulator, tmp_path: Path, crm: SqlDatabase) -> None:
    emulator.settings.refused_addresses = ["refused@example.com", "rejected@example.com"]
    bad = b"email,name\nada@example.com,A\nnobody,N\nrefused@example.com,R\nx@example.com\n"
    written(
        tmp_path / "in",
        {
            "a.csv": bad,
            "b/c.csv": bad.replace(b"ada", b"bob").replace(b"refused", b"rejected").replace(b"x@", b"y@"),
            "d.parquet": parquet_file([("!", "")], NAMES),
        },
    )
    rejects = Rejects(max_fraction=1, path=f"file://{tmp_path}/rejects.jsonl", table="rejects", sql_conn_id="crm")
    result = executed(load(f"{tmp_path}/in", rejects=rejects, chunk_size=2))
    assert [result["read"], result["accepted"], result["rejected"]] == [9, 2, 7]
    kept = [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_text().splitlines()]
    places = sorted((row["file"], row["row_number"]) for row in kept)
    expected = [(name, line) for name in ("a.csv", "b/c.csv") for line in (3, 4, 5)] + [("d.parquet", 1)]
    assert places == expected
    assert crm.query("SELECT file_name, row_number FROM rejects ORDER BY 1, 2") == expected


Change = Callable[[Path], object]
CHANGES: dict[str, tuple[Change, str]] = {
    "another file": (lambda folder: (folder / "z.csv").write_bytes(csv_of("eva")), "the files of"),
    "a part is written anew": (lambda folder: (folder / "b.csv").write_bytes(csv_of("eva", "max")), "'b.csv' changed"),
    "a part that is read": (lambda folder: (folder / "a.csv").unlink(), "'a.csv' changed"),
    "a part that is gone": (lambda folder: (folder / "b.csv").unlink(), "there is no such file"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_meanwhile_is_an_error_and_another_try_reads_all(
    emulator: Emulator, tmp_path: Path, name: str
) -> None:
    change, words = CHANGES[name]
    written(tmp_path, {"a.csv": csv_of(*(f"p{number}" for number in range(30))), "b.csv": csv_of("bob")})
    operator = load(str(tmp_path), exact_audience=False, chunk_size=5, max_in_flight=1)
    with (
        at_request(emulator, IMPORTS, 1, lambda: change(tmp_path)),
        pytest.raises((AirflowException, OSError), match=words),
    ):
        done(operator)
    assert done(load(str(tmp_path)), "again")["rejected"] == 0


@pytest.mark.parametrize(("files", "path", "words"), [
    ({"_SUCCESS": b"", "a.csv": b""}, "", "there is no file with content"),
    ({"a.csv": csv_of("ada")}, "*.jsonl", "there is no file with content"),
    ({"a.csv": csv_of("ada"), "b.csv": b"mail,name\na@b.cc,A\n"}, "", "lacks the columns email of the first file"),
    ({"a.csv": csv_of("ada"), "b": b"x"}, "", "unknown extension of 'b'"),
    ({"a.csv": csv_of("ada"), "b.csv": b'email,name\n"a@b.cc\n'}, "", "b.csv"),
])  # fmt: skip
def test_what_is_no_source(tmp_path: Path, files: dict[str, bytes], path: str, words: str) -> None:
    folder = written(tmp_path / "in", files)
    error = error_of(lambda: load(f"{folder}/{path}"))
    assert words in error
    assert "a@b.cc" not in error


def test_a_job_that_still_writes(tmp_path: Path) -> None:
    written(tmp_path, {"a.csv": csv_of("ada"), "_temporary/0/part-0.csv": b"email"})
    with pytest.raises(AirflowException, match="a job is still writing"):
        done(load(str(tmp_path)))


def test_links(emulator: Emulator, tmp_path: Path) -> None:
    """One to a file that is gone fails the task: people may be missing."""
    other = written(tmp_path, {"other/b": csv_of("bob"), "in/a.csv": csv_of("ada")}) / "other" / "b"
    (tmp_path / "in" / "b.csv").symlink_to(other)
    executed(load(f"{tmp_path}/in"))
    assert imported(emulator) == ["ada", "bob"]
    other.unlink()
    assert "there is no such file" in error_of(lambda: load(f"{tmp_path}/in"))
    (tmp_path / "in" / "b.csv").unlink()
    (tmp_path / "in" / "day=1").symlink_to(other.parent)
    assert "has a link to a folder" in error_of(lambda: load(f"{tmp_path}/in"))


def test_columns_that_only_a_later_file_has_need_a_mapping(emulator: Emulator, tmp_path: Path) -> None:
    written(tmp_path, {"a.csv": csv_of("ada"), "b.csv": b"city,email,name\nX,bob@example.com,Bob\n"})
    assert "has the columns city, and the first file has not" in error_of(lambda: load(str(tmp_path), columns=None))
    assert done(load(str(tmp_path)))["accepted"] == 2


def test_a_file_whose_name_has_the_marks_of_a_pattern(emulator: Emulator, tmp_path: Path) -> None:
    written(tmp_path, {"a[1].csv": csv_of("ada"), "a1.csv": csv_of("bob")})
    done(load(f"{tmp_path}/a[1].csv"))
    assert imported(emulator) == ["ada"]


@pytest.mark.parametrize(("escape", "words"), [
    ("\\\\", "escape: '\\\\\\\\' is not one character"), (",", "escape: ',' is not one character"),
    ("", "escape: '' is not one character"),
])  # fmt: skip
def test_an_escape_that_is_none(tmp_path: Path, escape: str, words: str) -> None:
    written(tmp_path, {"a.csv": csv_of("ada")})
    assert words in error_of(lambda: load(f"{tmp_path}/a.csv", file_format=FileFormat(escape=escape)))
