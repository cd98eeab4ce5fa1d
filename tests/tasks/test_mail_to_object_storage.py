"""`MailStatsToObjectStorageOperator`: a folder per day, files that are whole, and nothing of others touched."""

from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet
import pytest
from airflow.sdk import ObjectStoragePath
from airflow.sdk.io import attach, store
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from airflow_provider_mail.transfers.mail_to_object_storage import MailStatsToObjectStorageOperator
from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)
from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_STATS, TRANSACTIONAL_STATS
from mail_emulator import Emulator
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase
from tests.tasks.loading import CAMPAIGN_STATS as CAMPAIGNS
from tests.tasks.loading import error_of, executed, remove_campaigns, windows
from tests.tasks.test_example_dags import example

RUN_DAY = datetime(2026, 3, 10, tzinfo=UTC)
WEEK = {"start_day": "2026-03-01", "end_day": "2026-03-07"}


class Bucket(MemoryFileSystem):
    """What the tests may take for an object store: notes what is asked of it."""

    protocol = "s3"
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.store: dict[str, Any] = {}
        self.pseudo_dirs = [""]
        self.asked: list[str] = []

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("s3://").strip("/")

    def pipe_file(self, path: str, value: bytes, **kwargs: Any) -> None:
        self.asked.append(f"put {path}")
        super().pipe_file(path, value, **kwargs)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        self.asked.append(f"copy {path1}")
        super().cp_file(path1, path2, **kwargs)

    def rm_file(self, path: str) -> None:
        self.asked.append(f"delete {path}")
        del self.store[self._strip_protocol(path)]

    rm = _rm = rm_file


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An object store that is reached with the connection `aws`, and only with that."""
    monkeypatch.setattr(store, "_STORE_CACHE", {})
    bucket = Bucket()
    attach("s3", conn_id="aws", fs=bucket)
    attach("s3", fs=Bucket())
    return bucket


def export(path: Any, **arguments: Any) -> MailStatsToObjectStorageOperator:
    given = {"task_id": TASK, "path": str(path) if isinstance(path, Path) else path, "file_format": "jsonl"}
    return MailStatsToObjectStorageOperator(**given | arguments)


def files(folder: Path) -> list[str]:
    """Everything in it, hidden files included."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def lines(folder: Path, pattern: str = "*/*.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob(pattern)) for line in path.read_text().splitlines()]


def parquet_rows(folder: Path) -> list[dict[str, Any]]:
    found = (pyarrow.parquet.read_table(path, partitioning=None) for path in sorted(folder.glob("*/*.parquet")))
    return [row for table in found for row in table.to_pylist()]


def written(folder: Any, **arguments: Any) -> dict[str, Any]:
    """What the task returns."""
    return executed(export(folder, **WEEK | arguments), at=RUN_DAY)


def contents(folder: Path) -> dict[str, bytes]:
    return {path: (folder / path).read_bytes() for path in files(folder)}


def sent_on(emulator: Emulator, *days: str, per_day: int = 2) -> None:
    for day in days:
        emulator.add_campaigns(per_day, prefix=f"of-{day}-", first_day=day, per_day=per_day)


# --- what the files hold ---


@pytest.mark.parametrize(("kind", "file_format"), [("campaigns", "parquet"), ("transactional", "jsonl")])
def test_the_files_have_the_rows_of_the_table(
    emulator: Emulator, warehouse: SqlDatabase, tmp_path: Path, kind: str, file_format: str
) -> None:
    emulator.clock.set(RUN_DAY)
    sent_on(emulator, "2026-03-02", "2026-03-04", "2026-03-05")
    emulator.set_transactional_day("2026-03-03", sentCount=40, openCount=10, bounceCount=2)
    table, load, partition, day, count = {
        "campaigns": (CAMPAIGN_STATS, MailCampaignStatsToSqlOperator, "mail_send_day", "mail_send_date", 6),
        "transactional": (TRANSACTIONAL_STATS, MailTransactionalStatsToSqlOperator, "stats_day", "stats_date", 7),
    }[kind]
    columns = ", ".join(name for name in table.names if name not in ("observed_at", "mail_send_date"))
    operator: Any = load
    executed(operator(task_id=TASK, sql_conn_id="warehouse", **WEEK))
    written(tmp_path, kind=kind, file_format=file_format)

    loaded = warehouse.query(f"SELECT {columns} FROM mail_{kind.removesuffix('s')}_stats ORDER BY 1, 2, 3")
    read = {"jsonl": "read_json_auto", "parquet": "read_parquet"}[file_format]
    source = f"{read}('{tmp_path}/*/*.{file_format}', hive_partitioning = true)"
    text = columns.replace("stats_date", "stats_date::VARCHAR")
    found = duckdb.sql(f"SELECT {text} FROM {source} ORDER BY 1, 2, 3").fetchall()
    assert (found, len(loaded)) == (loaded, count)
    torn = duckdb.sql(f"SELECT count(*) FROM {source} WHERE {partition}::DATE <> {day}::TIMESTAMP::DATE")
    assert torn.fetchall() == [(0,)]
    # The time of observation is by the clock of the service.
    observed = duckdb.sql(f"SELECT DISTINCT observed_at::TIMESTAMPTZ FROM {source}").fetchall()
    assert all(abs(at - RUN_DAY) < timedelta(minutes=5) for (at,) in observed)
    if file_format == "parquet":
        row = parquet_rows(tmp_path)[0]
        assert (tuple(row), row["mail_send_date"]) == (table.stored_names, datetime(2026, 3, 2, 8, tzinfo=UTC))
        schema = pyarrow.parquet.read_schema(tmp_path / files(tmp_path)[0])
        assert [(field.name, str(field.type), field.nullable) for field in schema][2:5] == [
            ("mail_name", "string", False),
            ("mail_send_date", "timestamp[us, tz=UTC]", True),
            ("sent_count", "int64", False),
        ]


# --- again ---


def test_a_second_export_replaces_its_days_alone(emulator: Emulator, tmp_path: Path) -> None:
    sent_on(emulator, "2026-03-02", "2026-03-04", "2026-03-05", per_day=2)
    written(tmp_path)
    before = contents(tmp_path)
    stranger = tmp_path / "mail_send_day=2026-03-05" / "somebody.jsonl"
    stranger.write_text("{}\n")
    emulator.set_campaign_stats("of-2026-03-04--000001", sentCount=9, openCount=8)
    remove_campaigns(emulator, *(f"of-2026-03-0{end}" for end in ("4--000000", "5--000000", "5--000001")))

    result = written(tmp_path, start_day="2026-03-04", end_day="2026-03-05")

    assert (result["files"], result["removed"]) == (1, 1)
    first, second, _ = before
    assert files(tmp_path) == [first, second, str(stranger.relative_to(tmp_path))]
    assert contents(tmp_path)[first] == before[first]
    changed = [(row["mail_name"], row["open_count"]) for row in lines(tmp_path, "*=2026-03-04/*")]
    assert changed == [("of-2026-03-04--000001", 8)]


def test_a_missing_day_keeps_its_file(emulator: Emulator, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    emulator.clock.set(RUN_DAY)
    emulator.set_transactional_day("2026-03-02", sentCount=40)
    days = {"kind": "transactional", "start_day": "2026-03-02", "end_day": "2026-03-03"}
    written(tmp_path, **days)
    sent = [(row["stats_date"], row["sent_count"]) for row in lines(tmp_path)]
    assert sent == [("2026-03-02", 40), ("2026-03-03", 0)]
    emulator.settings.stats_empty_days = False
    result = written(tmp_path, **days)
    assert (result["files"], result["missing_days"], result["removed"], len(files(tmp_path))) == (1, 1, 0, 2)


def test_a_day_with_a_wrong_record_has_no_file(emulator: Emulator, tmp_path: Path) -> None:
    for day, count in (("2026-03-02", -1), ("2026-03-03", 5)):
        emulator.set_transactional_day(day, sentCount=40, openCount=count)
    result = written(tmp_path, kind="transactional", on_unstorable="reject")
    assert (result["records"], result["files"], result["rejected"]) == (6, 6, 1)
    days = {path.parent.name for path in tmp_path.glob("*/*.jsonl")}
    assert days == {f"stats_day=2026-03-0{day}" for day in (1, 3, 4, 5, 6, 7)}


def test_two_accounts_share_a_folder(connect: Connect, emulator: Emulator, tmp_path: Path) -> None:
    sent_on(emulator, "2026-03-02", per_day=1)
    for conn_id, team in (("mail_default", None), ("other", "Sales"), ("other", "Marketing")):
        connect(conn_id, team_name=team)
        written(tmp_path, mail_conn_id=conn_id)
    # With another team it is still the same account's file.
    assert files(tmp_path) == [f"mail_send_day=2026-03-02/{name}.jsonl" for name in ("mail_default", "other")]
    accounts = [(row["mail_conn_id"], row["team"]) for row in lines(tmp_path)]
    assert accounts == [("mail_default", None), ("other", "Marketing")]


def test_days_are_those_of_the_service(emulator: Emulator, tmp_path: Path) -> None:
    """Two windows that meet never tear a day apart, whatever the zone of the service."""
    emulator.settings.stats_utc_offset_hours = 8.0
    for hour in (1, 15, 17, 23):
        emulator.add_campaign(f"at-{hour}", send_date=datetime(2026, 3, 4, hour, tzinfo=UTC))
    for day in ("2026-03-05", "2026-03-04", "2026-03-05"):
        written(tmp_path, start_day=day, end_day=day)
    names = {day: [row["mail_name"] for row in lines(tmp_path, f"*={day}/*")] for day in ("2026-03-04", "2026-03-05")}
    assert names == {"2026-03-04": ["at-1", "at-15"], "2026-03-05": ["at-17", "at-23"]}


def test_the_window_of_a_run(emulator: Emulator, tmp_path: Path) -> None:
    executed(export(tmp_path, lookback_days=2), at=RUN_DAY + timedelta(hours=9))
    assert windows(emulator) == [(f"2026-03-{day:02}",) * 2 for day in (7, 7, 8, 8, 9, 9, 10, 10)]  # each twice


def test_short_responses_shorten_no_file(emulator: Emulator, tmp_path: Path) -> None:
    sent_on(emulator, "2026-03-02", "2026-03-04", per_day=5)
    written(tmp_path)
    emulator.faults.add("empty_page", CAMPAIGNS, count=1, keep=1, total=1, where={"startDate": "2026-03-02"})
    emulator.faults.add("empty_page", CAMPAIGNS, count=1, total=0, where={"startDate": "2026-03-04"})
    result = written(tmp_path)
    assert (result["records"], result["removed"], len(lines(tmp_path))) == (10, 0, 10)

    before = contents(tmp_path)
    emulator.faults.add("short_stats", CAMPAIGNS, count=None)
    assert "records came for 2026-03-02" in error_of(lambda: export(tmp_path, **WEEK))
    emulator.faults.clear()
    remove_campaigns(emulator)
    words = "2 files would become 0. Nothing was removed; allow_empty=True allows it"
    assert words in error_of(lambda: export(tmp_path, **WEEK))
    assert contents(tmp_path) == before
    assert (written(tmp_path, allow_empty=True)["removed"], files(tmp_path)) == (2, [])


# --- whole files ---


def test_a_reader_never_sees_half_a_file(emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while it is written, and not after a write that fails."""
    sent_on(emulator, "2026-03-02")
    written(tmp_path)
    (name, old), seen, error = *contents(tmp_path).items(), [], [None]
    pipe = LocalFileSystem.pipe_file

    def in_two_steps(fs: LocalFileSystem, path: str, value: bytes, **options: Any) -> None:
        pipe(fs, path, value[: len(value) // 2], **options)
        seen.append({found.name: found.read_bytes() for found in tmp_path.glob("*/*.jsonl")})
        if error[0]:
            raise error[0]
        pipe(fs, path, value, **options)

    monkeypatch.setattr(LocalFileSystem, "pipe_file", in_two_steps)
    emulator.set_campaign_stats("of-2026-03-02--000000", openCount=7)
    written(tmp_path)
    new = contents(tmp_path)
    error[0] = OSError("no space left")  # type: ignore[call-overload]
    with pytest.raises(OSError, match="no space left"):
        written(tmp_path)
    assert seen == [{"mail_default.jsonl": old}, {"mail_default.jsonl": new[name]}]
    assert contents(tmp_path) == new != {name: old}


@pytest.mark.parametrize(
    "where", [{"path": "s3://aws@lake/mail"}, {"path": "s3://lake/mail", "object_storage_conn_id": "aws"}]
)
def test_an_object_store_gets_each_object_once(emulator: Emulator, bucket: Bucket, where: dict[str, str]) -> None:
    """And no temporary ones."""
    sent_on(emulator, "2026-03-02", "2026-03-04", per_day=1)
    executed(export(**where, **WEEK))
    objects = [f"/lake/mail/mail_send_day=2026-03-0{day}/mail_default.jsonl" for day in (2, 4)]
    assert (list(bucket.store), bucket.asked) == (objects, [f"put {name[1:]}" for name in objects])
    remove_campaigns(emulator, "of-2026-03-04--000000")
    bucket.asked.clear()
    executed(export(**where, **WEEK))
    assert list(bucket.store) == objects[:1]
    assert bucket.asked == [f"put {objects[0][1:]}", f"delete {objects[1][1:]}"]


def test_a_path_may_be_an_object(emulator: Emulator, bucket: Bucket) -> None:
    sent_on(emulator, "2026-03-02")
    written(ObjectStoragePath("s3://lake/mail", conn_id="aws"))
    assert list(bucket.store) == ["/lake/mail/mail_send_day=2026-03-02/mail_default.jsonl"]


# --- errors ---


def test_a_missing_extra_is_named(emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    error = error_of(lambda: export(tmp_path, file_format="parquet", **WEEK))
    assert "pip install 'airflow-provider-mail[parquet]'" in error
    assert emulator.journal.count() == 0
    written(tmp_path)


def test_the_example(run: Run, emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_MAIL_LAKE", f"file://{tmp_path}")
    emulator.clock.freeze(datetime(2026, 1, 10, tzinfo=UTC))
    emulator.add_campaigns(18, first_day="2026-01-01", per_day=2)
    emulator.set_transactional_day("2026-01-09", sentCount=40)

    assert run(example("mail_statistics_files"), logical_date=emulator.clock.now()).result.state == "success"

    days = [path.parent.name for path in sorted((tmp_path / "campaigns").glob("*/*.parquet"))]
    assert days == [f"mail_send_day=2026-01-0{day}" for day in range(2, 10)]
    assert len(parquet_rows(tmp_path / "campaigns")) == 16
    (row,) = [row for row in parquet_rows(tmp_path / "transactional") if row["stats_date"] == date(2026, 1, 9)]
    assert row["sent_count"] == 40
