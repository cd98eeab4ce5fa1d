"""Loads as files: a folder per load, whole or without a manifest, with what a warehouse needs to be sure."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from airflow.sdk import ObjectStoragePath

from airflow_provider_mail._task import load_files as _load_files
from airflow_provider_mail.api.campaigns import GetCampaigns
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.transfers.mail_to_object_storage import (
    MailCampaignsToObjectStorageOperator,
    MailContactsToObjectStorageOperator,
    MailStatsToObjectStorageOperator,
)
from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailCampaignsToSqlOperator,
    MailContactsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)
from airflow_provider_mail.version_compat import AirflowFailException
from airflow_provider_mail.warehouse.coverage import Between
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.manifest import Manifest
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase

RUN_DAY = datetime(2026, 3, 10, tzinfo=UTC)
WEEK = {"start_day": "2026-03-01", "end_day": "2026-03-07"}
PAGES = {"page_size": 10, "max_in_flight": 4}


@pytest.fixture
def people(emulator: Emulator) -> Emulator:
    """A list of 95, and some campaigns and mails."""
    emulator.clock.set(RUN_DAY)
    emulator.add_list("newsletter", count=95)
    for day in ("2026-03-02", "2026-03-04"):
        emulator.add_campaigns(3, prefix=f"of-{day}-", first_day=day, per_day=3)
    emulator.set_transactional_day("2026-03-03", sentCount=40, openCount=10, bounceCount=2)
    return emulator


def manifest_of(result: dict[str, Any]) -> Manifest:
    return Manifest.from_json(Path(result["manifest"].removeprefix("file://")).read_bytes())


def rows_of(manifest: Manifest) -> list[dict[str, Any]]:
    """The rows of a load, read as a warehouse reads them: by the manifest, of which every figure is checked."""
    rows: list[dict[str, Any]] = []
    for file in manifest.files:
        content = Path(file.url.removeprefix("file://")).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size, file.sha256)
        if manifest.file_format == "jsonl":
            found = [json.loads(line) for line in content.splitlines()]
        else:
            found = pyarrow.parquet.read_table(file.url.removeprefix("file://")).to_pylist()
        assert len(found) == file.rows
        rows += found
    return rows


def contacts(path: Any, **arguments: Any) -> MailContactsToObjectStorageOperator:
    given = {"task_id": TASK, "list_name": "newsletter", "path": f"file://{path}", "file_format": "jsonl", **PAGES}
    return MailContactsToObjectStorageOperator(**given | arguments)


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_the_contacts_of_a_list(
    people: Emulator, connect: Connect, warehouse: SqlDatabase, tmp_path: Path, file_format: str
) -> None:
    connect(team_name="Sales")
    people.add_contact("x@example.com", lists=["newsletter"], name="Å \\ ' \"\n", properties={"city": "Malmö"})

    result = contacts(tmp_path, file_format=file_format, rows_per_file=40).execute({})
    MailContactsToSqlOperator(task_id="sql", sql_conn_id="warehouse", list_name="newsletter").execute({})

    manifest = manifest_of(result)
    rows = rows_of(manifest)
    assert [file.rows for file in manifest.files] == [40, 40, 16]
    assert {key: result[key] for key in ("list_name", "records", "files", "readings")} == {
        "list_name": "newsletter",
        "records": 96,
        "files": 3,
        "readings": 2,
    }
    columns = "id, team, email, name, phone_number, properties"
    expected = warehouse.query(f"SELECT {columns} FROM mail_contacts ORDER BY id")
    properties = (lambda value: value) if file_format == "jsonl" else json.loads
    found = [
        (*(row[name] for name in columns.split(", ")[:-1]), properties(row["properties"]))
        for row in sorted(rows, key=lambda row: row["id"])
    ]
    assert found == [(*row[:-1], json.loads(row[-1])) for row in expected]
    # The load replaces the rows of the list, and nothing else.
    of_list = {"mail_conn_id": "mail_default", "team": "Sales", "list_name": "newsletter"}
    assert manifest.replace_where == of_list
    assert manifest.covers == {"Sales/newsletter": of_list}
    assert manifest.observed_at == datetime.fromisoformat(str(rows[0]["observed_at"]))


def test_the_manifest_as_others_read_it(people: Emulator, tmp_path: Path) -> None:
    """Its form is that of the manifests of Redshift."""
    result = contacts(tmp_path, rows_per_file=50).execute({})
    written = json.loads(Path(result["manifest"].removeprefix("file://")).read_text())
    folder = f"file://{tmp_path}/{result['load_id']}"
    assert result["path"] == folder
    assert [entry["url"] for entry in written["entries"]] == [f"{folder}/part-0000{number}.jsonl" for number in (0, 1)]
    assert [(entry["mandatory"], entry["meta"]["record_count"]) for entry in written["entries"]] == [
        (True, 50),
        (True, 45),
    ]
    assert written["meta"] == {
        "content_length": sum(entry["meta"]["content_length"] for entry in written["entries"]),
        "record_count": 95,
    }
    assert written["complete"] is True
    assert written["schema"]["elements"][0] == {
        "name": "mail_conn_id",
        "type": {"base": "text"},
        "nullable": False,
    }
    again = Manifest.from_json(json.dumps(written).encode())
    assert json.loads(again.to_json()) == written


def test_two_loads_have_two_folders(people: Emulator, tmp_path: Path) -> None:
    results = [contacts(tmp_path).execute({}) for _ in range(2)]
    assert len({result["load_id"] for result in results}) == 2
    assert all(len(rows_of(manifest_of(result))) == 95 for result in results)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_load_that_fails_leaves_nothing(
    people: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    put, calls = _load_files.put, []

    def fails(path: ObjectStoragePath, content: bytes) -> None:
        calls.append(path)
        put(path, content[: len(content) // 2])
        if len(calls) == at + 1:
            raise OSError("no space left")

    monkeypatch.setattr(_load_files, "put", fails)
    with pytest.raises(OSError, match="no space left"):
        contacts(tmp_path, rows_per_file=50).execute({})
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == (["manifest.json"] if at == 2 else [])


@pytest.mark.parametrize(("list_name", "words"), [("nobody", "nobody"), ("empty", "is empty")])
def test_a_list_without_contacts(emulator: Emulator, tmp_path: Path, list_name: str, words: str) -> None:
    emulator.add_list("empty")
    emulator.settings.not_found_code = 200
    with pytest.raises(AirflowFailException, match=words):
        contacts(tmp_path, list_name=list_name).execute({})
    assert list(tmp_path.rglob("*")) == []


def test_an_empty_list_may_be_written(emulator: Emulator, tmp_path: Path) -> None:
    emulator.add_list("empty")
    result = contacts(tmp_path, list_name="empty", allow_empty=True).execute({})
    manifest = manifest_of(result)
    assert (manifest.files, manifest.rows, result["files"]) == ((), 0, 0)
    assert manifest.replace_where
    assert manifest.replace_where["list_name"] == "empty"


def test_a_load_that_may_lack_rows_removes_none(people: Emulator, tmp_path: Path) -> None:
    manifest = manifest_of(contacts(tmp_path, on_change="accept").execute({}))
    assert (manifest.replace_where, manifest.covers, manifest.mark_gone) == (None, None, ())
    assert json.loads(manifest.to_json())["complete"] is False


def test_a_list_that_is_incomplete_is_not_written(people: Emulator, tmp_path: Path) -> None:
    people.faults.add("empty_page", operation="/v5/contacts/list/get", count=None)
    with pytest.raises((MailError, AirflowFailException)):
        contacts(tmp_path).execute({})
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_campaigns(people: Emulator, warehouse: SqlDatabase, tmp_path: Path) -> None:
    given = {"task_id": TASK, "path": f"file://{tmp_path}", "file_format": "jsonl", "page_size": 2}
    result = MailCampaignsToObjectStorageOperator(**given).execute({})
    MailCampaignsToSqlOperator(task_id="sql", sql_conn_id="warehouse").execute({})
    manifest = manifest_of(result)
    rows = rows_of(manifest)
    columns = "guid, team_name, mail_name, subject, mail_status, sent_count"
    assert sorted(tuple(row[name] for name in columns.split(", ")) for row in rows) == sorted(
        warehouse.query(f"SELECT {columns} FROM mail_campaigns")
    )
    assert len(rows) == 6
    assert manifest.mark_gone == tuple(
        {"mail_conn_id": "mail_default", "team_name": team} for team in {row["team_name"] for row in rows}
    )
    filtered = MailCampaignsToObjectStorageOperator(**given, mail_name="of-2026-03-02").execute({})
    assert (filtered["records"], manifest_of(filtered).mark_gone) == (3, ())


@pytest.mark.parametrize("kind", ["campaigns", "transactional"])
def test_statistics_as_a_load(run: Run, people: Emulator, warehouse: SqlDatabase, tmp_path: Path, kind: str) -> None:
    load = {"campaigns": MailCampaignStatsToSqlOperator, "transactional": MailTransactionalStatsToSqlOperator}[kind]
    assert run(lambda: load(task_id=TASK, sql_conn_id="warehouse", **WEEK), logical_date=RUN_DAY).state == "success"
    done = run(
        lambda: MailStatsToObjectStorageOperator(
            task_id=TASK, kind=kind, layout="load", path=f"file://{tmp_path}", file_format="jsonl", **WEEK
        ),
        logical_date=RUN_DAY,
    )
    assert done.state == "success"
    manifest = manifest_of(done.returned)
    name, count = {"campaigns": ("mail_name", 6), "transactional": ("stats_date", 7)}[kind]
    expected = warehouse.query(f"SELECT {name}, sent_count, open_rate FROM mail_{kind.removesuffix('s')}_stats")
    assert sorted((row[name], row["sent_count"], row["open_rate"]) for row in rows_of(manifest)) == sorted(
        (str(row[0]), *row[1:]) for row in expected
    )
    assert (done.returned["records"], done.returned["start_day"], done.returned["end_day"]) == (count, *WEEK.values())
    assert (manifest.start_day, manifest.end_day) == (date(2026, 3, 1), date(2026, 3, 7))
    days = [*(manifest.covers or {})]
    if kind == "campaigns":
        # The first and the last day may be incomplete.
        assert days == [f"2026-03-0{day}" for day in range(2, 7)]
        (gone,) = manifest.mark_gone
        first, last = datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 7, tzinfo=UTC) - timedelta(microseconds=1)
        assert gone == {"mail_conn_id": "mail_default", "mail_send_date": Between(first, last)}
    else:
        assert days == [f"2026-03-0{day}" for day in range(1, 8)]
        assert (manifest.mark_gone, manifest.replace_where) == ((), None)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is no manifest"),
        (b"{}", "it is no manifest"),
        (b"[]", "it is no manifest"),
        (b'{"version": 2}', "has version 2, expected 1"),
    ],
)
def test_what_is_no_manifest(content: bytes, words: str) -> None:
    with pytest.raises(WarehouseError, match=words):
        Manifest.from_json(content)


def test_files_of_another_version(people: Emulator, tmp_path: Path) -> None:
    written = json.loads(Path(contacts(tmp_path).execute({})["manifest"].removeprefix("file://")).read_text())
    written["schema"]["elements"].pop()
    with pytest.raises(WarehouseError, match="with other columns: write them again"):
        Manifest.from_json(json.dumps(written).encode())


@pytest.mark.parametrize(
    ("arguments", "words"), [({"rows_per_file": 0}, "rows_per_file"), ({"file_format": "csv"}, "file_format: 'csv'")]
)
def test_a_mistake_in_the_dag_file(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        contacts("x", **arguments)


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_records_that_cannot_be_stored_are_set_aside_or_fail(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file_format: str
) -> None:
    for name in ("right", "negative", "nameless"):
        emulator.add_campaign(name)
    original = GetCampaigns.read

    def read(self: Any, response: Any) -> Any:
        for record in response["mailList"]:
            if record["mailName"] == "negative":
                record["mailStats"]["openCount"] = -5
            if record["mailName"] == "nameless":
                record["guid"] = None
        return original(self, response)

    monkeypatch.setattr(GetCampaigns, "read", read)
    rejects = tmp_path / "rejects.jsonl"

    def export(**arguments: Any) -> dict[str, Any]:
        operator = MailCampaignsToObjectStorageOperator(
            task_id=TASK, path=f"file://{tmp_path}/lake", file_format=file_format, **arguments
        )
        result: dict[str, Any] = operator.execute({})
        return result

    result = export(on_unstorable="reject", rejects_path=f"file://{rejects}")

    assert (result["records"], result["rejected"]) == (1, 2)
    manifest = manifest_of(result)
    assert [row["mail_name"] for row in rows_of(manifest)] == ["right"]
    assert (manifest.rejected, manifest.replace_where, manifest.mark_gone) == (2, None, ())
    assert not json.loads(manifest.to_json())["complete"]
    found = {json.loads(line)["field"] for line in rejects.read_text().splitlines()}
    assert found == {"guid", "open_count"}

    with pytest.raises(WarehouseError, match=r"row \d, column (guid|open_count): "):
        export()
    with pytest.raises(AirflowFailException, match="rejects_path: needs on_unstorable='reject'"):
        export(rejects_path=f"file://{rejects}")
    assert len([*tmp_path.glob("lake/*/manifest.json")]) == 1


def test_a_day_without_the_record_that_cannot_be_stored(run: Run, emulator: Emulator, tmp_path: Path) -> None:
    for day, count in (("2026-03-02", -1), ("2026-03-03", 5)):
        emulator.set_transactional_day(day, sentCount=40, openCount=count)
    given = {"path": f"file://{tmp_path}", "file_format": "jsonl", "kind": "transactional", "on_unstorable": "reject"}
    result = run(lambda: MailStatsToObjectStorageOperator(task_id=TASK, **given, **WEEK)).returned
    assert (result["records"], result["files"], result["rejected"]) == (6, 6, 1)
    days = {path.parent.name for path in tmp_path.glob("*/*.jsonl")}
    assert "stats_day=2026-03-03" in days
    assert "stats_day=2026-03-02" not in days
