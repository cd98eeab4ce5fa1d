"""Loads as files: a folder per load, whole or without a manifest. See also `test_stage_and_merge.py`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from airflow_provider_mail.transfers.mail_to_object_storage import (
    MailCampaignsToObjectStorageOperator,
    MailContactsToObjectStorageOperator,
)
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.manifest import Manifest
from mail_emulator import Emulator
from tests.tasks.conftest import TASK
from tests.tasks.loading import (
    GET_CAMPAIGNS,
    changed_records,
    executed,
    local,
    spoil_campaigns,
)


@pytest.fixture
def people(emulator: Emulator) -> Emulator:
    emulator.add_list("newsletter", count=95)
    return emulator


def manifest_of(result: dict[str, Any]) -> Manifest:
    return Manifest.from_json(local(result["manifest"]).read_bytes())


def contacts(path: Path, **arguments: Any) -> MailContactsToObjectStorageOperator:
    given = {"task_id": TASK, "list_name": "newsletter", "path": f"file://{path}", "file_format": "jsonl"}
    return MailContactsToObjectStorageOperator(**given | {"page_size": 10, "max_in_flight": 4} | arguments)


def campaigns(path: Path, **arguments: Any) -> MailCampaignsToObjectStorageOperator:
    return MailCampaignsToObjectStorageOperator(task_id=TASK, path=f"file://{path}", **arguments)


def written(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


def test_the_manifest_as_others_read_it(people: Emulator, tmp_path: Path) -> None:
    """Its form is that of the manifests of Redshift. Each load has a folder and a manifest of its own."""
    first, result = (executed(contacts(tmp_path, rows_per_file=50)) for _ in range(2))
    assert result.items() >= {"list_name": "newsletter", "records": 95, "files": 2, "readings": 2}.items()
    content = json.loads(local(result["manifest"]).read_text())
    folder = f"file://{tmp_path}/{result['load_id']}"
    assert result["path"] == folder != first["path"]
    entries = [(entry["url"], entry["mandatory"], entry["meta"]["record_count"]) for entry in content["entries"]]
    assert entries == [(f"{folder}/part-00000.jsonl", True, 50), (f"{folder}/part-00001.jsonl", True, 45)]
    for file in manifest_of(result).files:
        stored = local(file.url).read_bytes()
        assert (len(stored), hashlib.sha256(stored).hexdigest()) == (file.size, file.sha256)
        assert stored.count(b"\n") == file.rows
    size = sum(entry["meta"]["content_length"] for entry in content["entries"])
    assert (content["meta"], content["complete"]) == ({"content_length": size, "record_count": 95}, True)
    column = {"name": "mail_conn_id", "type": {"base": "text"}, "nullable": False}
    assert content["schema"]["elements"].pop(0) == column
    for wrong, words in (
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


def test_what_a_load_may_remove(people: Emulator, tmp_path: Path) -> None:
    """An empty list replaces its rows where it may; a load that may lack rows removes none."""
    people.add_list("empty")
    manifest = manifest_of(executed(contacts(tmp_path, list_name="empty", allow_empty=True)))
    assert (manifest.rows, (manifest.replace_where or {})["list_name"]) == (0, "empty")
    manifest = manifest_of(executed(contacts(tmp_path, on_change="accept")))
    assert (manifest.replace_where, manifest.covers, manifest.mark_gone) == (None, None, ())
    assert json.loads(manifest.to_json())["complete"] is False
    people.add_campaign("spring")
    of_account = {"mail_conn_id": "mail_default", "team_name": "Marketing"}
    for name, marks in ((None, (of_account,)), ("spring", ())):
        assert manifest_of(executed(campaigns(tmp_path, mail_name=name))).mark_gone == marks


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_wrong_records_are_rejected_or_fail(emulator: Emulator, tmp_path: Path, file_format: str) -> None:
    for name in ("right", "negative", "nameless"):
        emulator.add_campaign(name)
    lake, rejects = tmp_path / "lake", tmp_path / "rejects.jsonl"
    given = {"file_format": file_format, "page_size": 2}

    with changed_records(emulator, GET_CAMPAIGNS, spoil_campaigns):
        result = executed(campaigns(lake, **given, on_unstorable="reject", rejects_path=f"file://{rejects}"))
        with pytest.raises(WarehouseError, match=r"row \d, column (guid|open_count): "):
            executed(campaigns(lake, **given))
    assert (result["records"], result["rejected"]) == (1, 2)
    manifest = manifest_of(result)
    assert (manifest.rows, manifest.rejected, manifest.replace_where, manifest.mark_gone) == (1, 2, None, ())
    assert not json.loads(manifest.to_json())["complete"]
    assert {json.loads(line)["field"] for line in rejects.read_text().splitlines()} == {"guid", "open_count"}
    assert written(lake).count("manifest.json") == 1
