"""Loads as files, then the warehouse's own load of them, then one merge, on stand-ins for the warehouses."""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from airflow_provider_mail.transfers import object_storage_to_sql
from airflow_provider_mail.transfers.mail_to_object_storage import (
    MailCampaignsToObjectStorageOperator,
    MailContactsToObjectStorageOperator,
    MailStatsToObjectStorageOperator,
)
from airflow_provider_mail.transfers.object_storage_to_sql import (
    MailCreateStageTableOperator,
    MailMergeStageTableOperator,
)
from airflow_provider_mail.warehouse.errors import UnconfirmedError, WarehouseError
from airflow_provider_mail.warehouse.manifest import Manifest
from mail_emulator import Emulator
from tests.support.clock import Clock
from tests.tasks.conftest import TASK
from tests.tasks.loading import (
    CAMPAIGN_STATS,
    GET_CAMPAIGNS,
    RUN_DAY,
    WEEK,
    changed_records,
    delete,
    executed,
    ids_in_service,
    local,
    remove_campaigns,
    spoil_campaigns,
)
from tests.warehouse.standins import STANDINS, copy, prepare

HOUR = 3600


@pytest.fixture
def people(emulator: Emulator) -> Emulator:
    """A list of 95, and three campaigns."""
    emulator.add_list("newsletter", count=95)
    emulator.add_campaigns(3, prefix="news-", first_day="2026-03-02", per_day=3)
    return emulator


def manifest_of(result: dict[str, Any]) -> Manifest:
    return Manifest.from_json(local(result["manifest"]).read_bytes())


def files(operator: Any, folder: Path, **arguments: Any) -> dict[str, Any]:
    """Write the files of a load."""
    return executed(operator(**{"task_id": TASK, "path": f"file://{folder}"} | arguments))


def contacts(folder: Path, **arguments: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"list_name": "newsletter", "page_size": 10, "max_in_flight": 4}
    return files(MailContactsToObjectStorageOperator, folder, **given | arguments)


def campaigns(folder: Path, **arguments: Any) -> dict[str, Any]:
    return files(MailCampaignsToObjectStorageOperator, folder, **arguments)


def statistics(folder: Path, kind: str = "campaigns") -> dict[str, Any]:
    return files(MailStatsToObjectStorageOperator, folder, kind=kind, layout="load", **WEEK)


def written(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


def test_the_manifest_as_others_read_it(people: Emulator, tmp_path: Path) -> None:
    """Its form is that of the manifests of Redshift. Each load has a folder and a manifest of its own."""
    first, result = (contacts(tmp_path, rows_per_file=50, file_format="jsonl") for _ in range(2))
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
        contacts(tmp_path, rows_per_file=50, file_format="jsonl")
    assert (written(tmp_path), len(calls)) == ([], number)


def test_what_a_load_may_remove(people: Emulator, tmp_path: Path) -> None:
    """An empty list replaces its rows where it may; a load that may lack rows removes none."""
    people.add_list("empty")
    manifest = manifest_of(contacts(tmp_path, list_name="empty", allow_empty=True))
    assert (manifest.rows, (manifest.replace_where or {})["list_name"]) == (0, "empty")
    manifest = manifest_of(contacts(tmp_path, on_change="accept"))
    assert (manifest.replace_where, manifest.covers, manifest.mark_gone) == (None, None, ())
    assert json.loads(manifest.to_json())["complete"] is False
    people.add_campaign("spring")
    of_account = {"mail_conn_id": "mail_default", "team_name": "Marketing"}
    for name, marks in ((None, (of_account,)), ("spring", ())):
        assert manifest_of(campaigns(tmp_path, mail_name=name)).mark_gone == marks


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_wrong_records_are_rejected_or_fail(emulator: Emulator, tmp_path: Path, file_format: str) -> None:
    for name in ("right", "negative", "nameless"):
        emulator.add_campaign(name)
    folder, rejects = tmp_path / "lake", tmp_path / "rejects.jsonl"
    given = {"file_format": file_format, "page_size": 2}

    with changed_records(emulator, GET_CAMPAIGNS, spoil_campaigns):
        result = campaigns(folder, **given, on_unstorable="reject", rejects_path=f"file://{rejects}")
        with pytest.raises(WarehouseError, match=r"row \d, column (guid|open_count): "):
            campaigns(folder, **given)
    assert (result["records"], result["rejected"]) == (1, 2)
    manifest = manifest_of(result)
    assert (manifest.rows, manifest.rejected, manifest.replace_where, manifest.mark_gone) == (1, 2, None, ())
    assert not json.loads(manifest.to_json())["complete"]
    assert {json.loads(line)["field"] for line in rejects.read_text().splitlines()} == {"guid", "open_count"}
    assert written(folder).count("manifest.json") == 1


# --- in a warehouse ---


class Lake:
    """A folder of files, and a warehouse on DuckDB that loads them."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.folder = folder
        self.hook: Any = STANDINS[kind]("warehouse")

    def copy(self, manifest: str, stage: str) -> None:
        """What COPY does: append every file of the manifest to the table of staged rows."""
        copy(self.hook, Manifest.from_json(local(manifest).read_bytes()), stage)

    def load(self, written: dict[str, Any], table: str, **arguments: Any) -> dict[str, Any]:
        given = {"sql_conn_id": "warehouse", "table": table, "manifest": written["manifest"]}
        stage = executed(MailCreateStageTableOperator(task_id="stage", **given))
        assert stage["records"] == written["records"]
        self.copy(written["manifest"], stage["stage_table"])
        return executed(MailMergeStageTableOperator(task_id="merge", **given, **arguments))

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        connection = self.hook.get_conn().inner
        with closing(connection):
            return list(connection.execute(sql).fetchall())


@pytest.fixture
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """An empty warehouse, of Snowflake's kind unless the test names another."""
    kind = getattr(request, "param", "snowflake")
    connection = {"conn_type": "duckdb", "host": str(tmp_path / "warehouse.duckdb")}
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(connection))
    lake = Lake(kind, tmp_path / "lake")
    prepare(lake.hook)
    monkeypatch.setattr(
        object_storage_to_sql.BaseStageTableOperator,
        "sql_hook",
        property(lambda self: STANDINS[kind](self.sql_conn_id)),
    )
    return lake


def ids(lake: Lake) -> list[str]:
    return sorted((id for (id,) in lake.query("SELECT id FROM mail_contacts")), key=int)


@pytest.mark.parametrize(
    ("lake", "file_format"),
    [("snowflake", "parquet"), ("gcpbigquery", "jsonl"), ("databricks", "parquet")],
    indirect=["lake"],
)
def test_the_table_is_the_list(lake: Lake, people: Emulator, file_format: str) -> None:
    odd = "Å \\ ' \" \n {} %s"
    people.add_contact("odd@example.com", lists=["newsletter"], name=odd, properties={"city": odd})
    result = lake.load(contacts(lake.folder, file_format=file_format, rows_per_file=40), "mail_contacts")
    assert result == {"table": "mail_contacts", "records": 96}
    ((name, properties),) = lake.query("SELECT name, properties FROM mail_contacts WHERE email = 'odd@example.com'")
    assert (name, json.loads(properties)["city"]) == (odd, odd)
    delete(people, people.contacts("newsletter")[3])
    lake.load(contacts(lake.folder, file_format=file_format), "mail_contacts")
    assert ids(lake) == ids_in_service(people)
    assert lake.query("SELECT table_name, part FROM mail_loads") == [("mail_contacts", "newsletter")]
    assert lake.query("SELECT 1 FROM information_schema.tables WHERE table_name LIKE '%stage%'") == []


def test_a_stage_that_is_not_the_load_is_not_merged(lake: Lake, people: Emulator, clock: Clock) -> None:
    lake.load(contacts(lake.folder), "mail_contacts")
    before = lake.query("SELECT * FROM mail_contacts ORDER BY id")
    clock.sleep(HOUR)
    given = {"sql_conn_id": "warehouse", "table": "mail_contacts", "manifest": contacts(lake.folder)["manifest"]}
    stage = executed(MailCreateStageTableOperator(task_id="stage", **given))["stage_table"]
    merge = MailMergeStageTableOperator(task_id="merge", **given)
    with pytest.raises(WarehouseError, match="has 0 rows with 0 keys, and the load has 95"):
        executed(merge)
    for _ in range(2):
        lake.copy(given["manifest"], stage)
    with pytest.raises(WarehouseError, match="has 190 rows with 95 keys, and the load has 95"):
        executed(merge)
    assert lake.query("SELECT * FROM mail_contacts ORDER BY id") == before


def test_a_merge_may_be_repeated_without_its_stage(lake: Lake, people: Emulator) -> None:
    """As after a kill between the last statement and the report to Airflow."""
    for write in (contacts, campaigns):
        written = write(lake.folder)
        given = {"sql_conn_id": "warehouse", "table": "mail_things", "manifest": written["manifest"]}
        merge = MailMergeStageTableOperator(task_id="merge", **given)
        with pytest.raises(WarehouseError, match="stage"):
            executed(merge)  # it was never there
        done = lake.load(written, "mail_things")
        assert executed(merge) == done
        lake.query("DROP TABLE mail_things")


def test_campaigns_and_statistics(lake: Lake, emulator: Emulator, clock: Clock) -> None:
    """Deleted campaigns are marked, but not those that moved, nor by a short response."""
    emulator.clock.set(RUN_DAY)
    emulator.add_campaigns(12, prefix="news", first_day="2026-03-03", per_day=6)

    counts: list[int] = []

    def load(**permission: Any) -> None:
        lake.load(campaigns(lake.folder), "mail_campaigns", **permission)
        counts.append(lake.load(statistics(lake.folder), "mail_campaign_stats", **permission)["records"])
        lake.load(statistics(lake.folder, "transactional"), "mail_transactional_stats")
        clock.sleep(HOUR)

    def marked(table: str) -> list[str]:
        return [name for (name,) in lake.query(f"SELECT mail_name FROM {table} WHERE gone_at IS NOT NULL ORDER BY 1")]

    load()
    emulator.faults.add("empty_page", CAMPAIGN_STATS, count=1, keep=1, total=1)
    load()
    assert counts == [12, 12]
    assert lake.query("SELECT count(*), count(gone_at) FROM mail_campaign_stats") == [(12, 0)]
    remove_campaigns(emulator, "news-000001", "news-000002")
    emulator.add_campaign("news-000001", send_date=RUN_DAY.replace(month=4))
    emulator.set_campaign_stats("news-000003", sentCount=9, openCount=8)
    load()
    assert marked("mail_campaign_stats") == ["news-000002"]
    assert "news-000002" in marked("mail_campaigns")
    numbers = lake.query("SELECT sent_count, open_count FROM mail_campaign_stats WHERE mail_name = 'news-000003'")
    assert numbers == [(9, 8)]
    assert lake.query("SELECT count(*) FROM mail_transactional_stats") == [(7,)]
    remove_campaigns(emulator)
    with pytest.raises(UnconfirmedError, match=r"11 rows would become 0\. Nothing was removed; allow_empty=True"):
        lake.load(statistics(lake.folder), "mail_campaign_stats")
    assert marked("mail_campaign_stats") == ["news-000002"]
    load(allow_empty=True)
    assert len(marked("mail_campaign_stats")) == 12
