"""Loads as files: a folder per load, whole or without a manifest, with what a warehouse needs to be sure."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from fsspec.implementations.local import LocalFileSystem

from airflow_provider_mail.api.errors import MailIncompleteError
from airflow_provider_mail.transfers.mail_to_object_storage import (
    MailCampaignsToObjectStorageOperator,
    MailContactsToObjectStorageOperator,
    MailStatsToObjectStorageOperator,
)
from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailContactsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.manifest import Manifest
from airflow_provider_mail.warehouse.request import Between
from mail_emulator import Emulator
from tests.tasks.conftest import TASK, Connect, SqlDatabase
from tests.tasks.loading import GET_CAMPAIGNS, LIST, changed_records, error_of, executed, spoil_campaigns

RUN_DAY = datetime(2026, 3, 10, tzinfo=UTC)
WEEK = {"start_day": "2026-03-01", "end_day": "2026-03-07"}


@pytest.fixture
def people(emulator: Emulator) -> Emulator:
    """A list of 95, and some campaigns and mails."""
    emulator.clock.set(RUN_DAY)
    emulator.add_list("newsletter", count=95)
    for day in ("2026-03-02", "2026-03-04"):
        emulator.add_campaigns(3, prefix=f"of-{day}-", first_day=day, per_day=3)
    emulator.set_transactional_day("2026-03-03", sentCount=40, openCount=10, bounceCount=2)
    return emulator


def local(url: str) -> Path:
    return Path(url.removeprefix("file://"))


def manifest_of(result: dict[str, Any]) -> Manifest:
    return Manifest.from_json(local(result["manifest"]).read_bytes())


def rows_of(manifest: Manifest) -> list[dict[str, Any]]:
    """The rows of a load, read as a warehouse reads them: by the manifest, of which every figure is checked."""
    rows: list[dict[str, Any]] = []
    for file in manifest.files:
        content = local(file.url).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size, file.sha256)
        if manifest.file_format == "jsonl":
            found = [json.loads(line) for line in content.splitlines()]
        else:
            found = pyarrow.parquet.read_table(local(file.url)).to_pylist()
        assert len(found) == file.rows
        rows += found
    return rows


def contacts(path: Path, **arguments: Any) -> MailContactsToObjectStorageOperator:
    given = {"task_id": TASK, "list_name": "newsletter", "path": f"file://{path}", "file_format": "jsonl"}
    return MailContactsToObjectStorageOperator(**given | {"page_size": 10, "max_in_flight": 4} | arguments)


def campaigns(path: Path, **arguments: Any) -> MailCampaignsToObjectStorageOperator:
    given = {"task_id": TASK, "path": f"file://{path}", "file_format": "jsonl", "page_size": 2}
    return MailCampaignsToObjectStorageOperator(**given | arguments)


def written(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_the_contacts_of_a_list(
    people: Emulator, connect: Connect, warehouse: SqlDatabase, tmp_path: Path, file_format: str
) -> None:
    connect(team_name="Sales")
    people.add_contact("x@example.com", lists=["newsletter"], name="Å \\ ' \"\n", properties={"city": "Malmö"})

    result = executed(contacts(tmp_path, file_format=file_format, rows_per_file=40))
    executed(MailContactsToSqlOperator(task_id="sql", sql_conn_id="warehouse", list_name="newsletter"))

    manifest = manifest_of(result)
    rows = rows_of(manifest)
    assert [file.rows for file in manifest.files] == [40, 40, 16]
    assert result.items() >= {"list_name": "newsletter", "records": 96, "files": 3, "readings": 2}.items()
    columns = ["id", "team", "email", "name", "phone_number", "properties"]
    expected = warehouse.query(f"SELECT {', '.join(columns)} FROM mail_contacts ORDER BY id")
    plain = (lambda value: value) if file_format == "jsonl" else json.loads
    found = [[row[name] for name in columns] for row in sorted(rows, key=lambda row: row["id"])]
    assert [(*row[:-1], plain(row[-1])) for row in found] == [(*row[:-1], json.loads(row[-1])) for row in expected]
    # The load replaces the rows of the list, and nothing else.
    of_list = {"mail_conn_id": "mail_default", "team": "Sales", "list_name": "newsletter"}
    assert (manifest.replace_where, manifest.covers) == (of_list, {"Sales/newsletter": of_list})
    assert manifest.observed_at == datetime.fromisoformat(str(rows[0]["observed_at"]))


def test_the_manifest_as_others_read_it(people: Emulator, tmp_path: Path) -> None:
    """Its form is that of the manifests of Redshift. Each load has a folder and a manifest of its own."""
    first, result = (executed(contacts(tmp_path, rows_per_file=50)) for _ in range(2))
    assert len(rows_of(manifest_of(first))) == len(rows_of(manifest_of(result))) == 95
    content = json.loads(local(result["manifest"]).read_text())
    folder = f"file://{tmp_path}/{result['load_id']}"
    assert result["path"] == folder != first["path"]
    entries = [(entry["url"], entry["mandatory"], entry["meta"]["record_count"]) for entry in content["entries"]]
    assert entries == [(f"{folder}/part-00000.jsonl", True, 50), (f"{folder}/part-00001.jsonl", True, 45)]
    size = sum(entry["meta"]["content_length"] for entry in content["entries"])
    assert (content["meta"], content["complete"]) == ({"content_length": size, "record_count": 95}, True)
    column = {"name": "mail_conn_id", "type": {"base": "text"}, "nullable": False}
    assert content["schema"]["elements"][0] == column
    assert json.loads(Manifest.from_json(json.dumps(content).encode()).to_json()) == content
    content["schema"]["elements"].pop()
    for wrong, words in (
        (b"", "it is no manifest"),
        (b"{}", "it is no manifest"),
        (b'{"version": 2}', "has version 2, expected 1"),
        (json.dumps(content).encode(), "with other columns: write them again"),
    ):
        with pytest.raises(WarehouseError, match=words):
            Manifest.from_json(wrong)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_load_that_fails_leaves_no_file(
    people: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Two files and the manifest are written; the disk is full at each of them."""
    pipe, calls = LocalFileSystem.pipe_file, []

    def fails(fs: LocalFileSystem, path: str, value: bytes, **options: Any) -> None:
        calls.append(path)
        full = len(calls) == number
        pipe(fs, path, value[: len(value) // 2] if full else value, **options)
        if full:
            raise OSError("no space left")

    monkeypatch.setattr(LocalFileSystem, "pipe_file", fails)
    with pytest.raises(OSError, match="no space left"):
        executed(contacts(tmp_path, rows_per_file=50))
    assert (written(tmp_path), len(calls)) == ([], number)


def test_an_incomplete_list_is_not_written(people: Emulator, tmp_path: Path) -> None:
    people.add_list("empty")
    people.settings.not_found_code = 200
    for name, words in (("unknown", "unknown"), ("empty", "is empty")):
        assert words in error_of(lambda name=name: contacts(tmp_path, list_name=name))  # type: ignore[misc]
    people.faults.add("empty_page", LIST, count=None)
    with pytest.raises(MailIncompleteError):
        executed(contacts(tmp_path))
    assert written(tmp_path) == []


def test_what_a_load_may_remove(people: Emulator, tmp_path: Path) -> None:
    """An empty list replaces its rows where it may; a load that may lack rows removes none."""
    people.add_list("empty")
    manifest = manifest_of(executed(contacts(tmp_path, list_name="empty", allow_empty=True)))
    assert (manifest.files, manifest.rows) == ((), 0)
    assert manifest.replace_where
    assert manifest.replace_where["list_name"] == "empty"
    manifest = manifest_of(executed(contacts(tmp_path, on_change="accept")))
    assert (manifest.replace_where, manifest.covers, manifest.mark_gone) == (None, None, ())
    assert json.loads(manifest.to_json())["complete"] is False


def test_campaigns(people: Emulator, tmp_path: Path) -> None:
    manifest = manifest_of(executed(campaigns(tmp_path)))
    rows = [(row["guid"], row["mail_name"], row["mail_status"], row["sent_count"]) for row in rows_of(manifest)]
    known = people.campaigns()
    assert sorted(rows) == sorted((one["guid"], one["mailName"], 2, one["mailStats"]["sentCount"]) for one in known)
    assert manifest.mark_gone == ({"mail_conn_id": "mail_default", "team_name": "Marketing"},)
    filtered = executed(campaigns(tmp_path, mail_name="of-2026-03-02"))
    assert (filtered["records"], manifest_of(filtered).mark_gone) == (3, ())


@pytest.mark.parametrize("kind", ["campaigns", "transactional"])
def test_statistics_as_a_load(people: Emulator, warehouse: SqlDatabase, tmp_path: Path, kind: str) -> None:
    load: Any = {"campaigns": MailCampaignStatsToSqlOperator, "transactional": MailTransactionalStatsToSqlOperator}
    executed(load[kind](task_id=TASK, sql_conn_id="warehouse", **WEEK))
    given: dict[str, Any] = {"path": f"file://{tmp_path}", "file_format": "jsonl", "kind": kind, "layout": "load"}
    result = executed(MailStatsToObjectStorageOperator(task_id=TASK, **given, **WEEK))
    manifest = manifest_of(result)
    name, count = {"campaigns": ("mail_name", 6), "transactional": ("stats_date", 7)}[kind]
    expected = warehouse.query(f"SELECT {name}, sent_count, open_rate FROM mail_{kind.removesuffix('s')}_stats")
    found = [(row[name], row["sent_count"], row["open_rate"]) for row in rows_of(manifest)]
    assert sorted(found) == sorted((str(row[0]), *row[1:]) for row in expected)
    assert (result["records"], result["start_day"], result["end_day"]) == (count, *WEEK.values())
    assert (manifest.start_day, manifest.end_day) == (date(2026, 3, 1), date(2026, 3, 7))
    # The first and the last day of campaigns may be incomplete.
    first, last = datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 7, tzinfo=UTC) - timedelta(microseconds=1)
    gone = {"mail_conn_id": "mail_default", "mail_send_date": Between(first, last)}
    whole, mark_gone = (range(2, 7), (gone,)) if kind == "campaigns" else (range(1, 8), ())
    assert [*(manifest.covers or {})] == [f"2026-03-0{day}" for day in whole]
    assert (manifest.mark_gone, manifest.replace_where) == (mark_gone, None)


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_wrong_records_are_rejected_or_fail(emulator: Emulator, tmp_path: Path, file_format: str) -> None:
    for name in ("right", "negative", "nameless"):
        emulator.add_campaign(name)
    lake, rejects = tmp_path / "lake", tmp_path / "rejects.jsonl"
    with changed_records(emulator, GET_CAMPAIGNS, spoil_campaigns):
        given = {"file_format": file_format, "rejects_path": f"file://{rejects}"}
        result = executed(campaigns(lake, on_unstorable="reject", **given))
        with pytest.raises(WarehouseError, match=r"row \d, column (guid|open_count): "):
            executed(campaigns(lake, file_format=file_format))
    assert (result["records"], result["rejected"]) == (1, 2)
    manifest = manifest_of(result)
    assert [row["mail_name"] for row in rows_of(manifest)] == ["right"]
    assert (manifest.rejected, manifest.replace_where, manifest.mark_gone) == (2, None, ())
    assert not json.loads(manifest.to_json())["complete"]
    assert {json.loads(line)["field"] for line in rejects.read_text().splitlines()} == {"guid", "open_count"}
    assert written(lake).count("manifest.json") == 1
