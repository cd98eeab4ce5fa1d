"""`MailStatsToObjectStorageOperator`: a folder per day, files that are whole, and nothing of others touched."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
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

from airflow_provider_mail._task.object_storage import put, remove, storage_path
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.transfers.mail_to_object_storage import MailStatsToObjectStorageOperator
from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)
from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_STATS, TRANSACTIONAL_STATS
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase
from tests.tasks.test_example_dags import example

CAMPAIGNS, TRANSACTIONAL = "campaign/mail/stats/get", "transactional/mail/stats/get"
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


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryFileSystem]:
    """fsspec's file system in memory, behind `memory://`."""
    monkeypatch.setattr(store, "_STORE_CACHE", {})
    fs = MemoryFileSystem()
    attach("memory", fs=fs)
    yield fs
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]


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


def names_by_day(folder: Path) -> dict[str, list[str]]:
    return {
        path.parent.name: [json.loads(line)["mail_name"] for line in path.read_text().splitlines()]
        for path in sorted(folder.glob("*/*.jsonl"))
    }


def sent_on(emulator: Emulator, *days: str, per_day: int = 2) -> None:
    for day in days:
        emulator.add_campaigns(per_day, prefix=f"of-{day}-", first_day=day, per_day=per_day)


# --- what the files hold ---


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_a_folder_per_day_with_a_row_per_campaign(
    run: Run, connect: Connect, emulator: Emulator, tmp_path: Path, file_format: str
) -> None:
    connect(team_name="Sales")
    sent_on(emulator, "2026-03-02", "2026-03-04")
    emulator.set_campaign_stats("of-2026-03-02--000000", sentCount=200, openCount=50, hardBounce=3, softBounce=1)

    done = run(lambda: export(tmp_path / "mail", file_format=file_format, **WEEK), logical_date=RUN_DAY)

    assert done.state == "success"
    assert files(tmp_path / "mail") == [
        f"mail_send_day=2026-03-02/mail_default.{file_format}",
        f"mail_send_day=2026-03-04/mail_default.{file_format}",
    ]
    assert done.returned == {
        "path": str(tmp_path / "mail"),
        "start_day": "2026-03-01",
        "end_day": "2026-03-07",
        "records": 4,
        "files": 2,
        "removed": 0,
        "missing_days": 0,
    }
    rows = lines(tmp_path / "mail") if file_format == "jsonl" else parquet_rows(tmp_path / "mail")
    assert [tuple(row) for row in rows] == [CAMPAIGN_STATS.stored_names] * 4
    (first,) = [row for row in rows if row["mail_name"] == "of-2026-03-02--000000"]
    sent, observed, loaded = (first.pop(name) for name in ("mail_send_date", "observed_at", "loaded_at"))
    assert first == {
        "mail_conn_id": "mail_default",
        "team": "Sales",
        "mail_name": "of-2026-03-02--000000",
        "sent_count": 200,
        "open_count": 50,
        "click_count": 0,
        "hard_bounce": 3,
        "soft_bounce": 1,
        "unsent_count": 0,
        "unsubscribe_count": 0,
        "open_rate": 25.0,
        "click_rate": 0.0,
        "bounce_rate": 2.0,
        "unsubscribe_rate": 0.0,
        "other_fields": None,
        "gone_at": None,
        "run_id": done.result.run_id,
    }
    if file_format == "jsonl":
        assert sent == "2026-03-02T08:00:00.000000Z"
        observed, loaded = map(datetime.fromisoformat, (observed, loaded))
    else:
        assert sent == datetime(2026, 3, 2, 8, tzinfo=UTC)
    assert abs(datetime.now(UTC) - observed) < timedelta(minutes=5)
    assert abs(datetime.now(UTC) - loaded) < timedelta(minutes=5)


def test_the_columns_of_a_parquet_file_have_the_types_of_the_table(
    run: Run, emulator: Emulator, tmp_path: Path
) -> None:
    sent_on(emulator, "2026-03-02")
    run(lambda: export(tmp_path, file_format="parquet", **WEEK), logical_date=RUN_DAY)
    (path,) = tmp_path.glob("*/*.parquet")
    schema = pyarrow.parquet.read_schema(path)
    assert [(field.name, str(field.type), field.nullable) for field in schema][:5] == [
        ("mail_conn_id", "string", False),
        ("team", "string", True),
        ("mail_name", "string", False),
        ("mail_send_date", "timestamp[us, tz=UTC]", True),
        ("sent_count", "int64", False),
    ]
    assert str(schema.field("open_rate").type) == "double"


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
@pytest.mark.parametrize("kind", ["campaigns", "transactional"])
def test_the_files_say_what_the_table_says(
    run: Run, emulator: Emulator, warehouse: SqlDatabase, tmp_path: Path, kind: str, file_format: str
) -> None:
    emulator.clock.set(RUN_DAY)
    sent_on(emulator, "2026-03-02", "2026-03-04", "2026-03-05")
    emulator.set_transactional_day("2026-03-03", sentCount=40, openCount=10, bounceCount=2)
    table, load = {
        "campaigns": (CAMPAIGN_STATS, MailCampaignStatsToSqlOperator),
        "transactional": (TRANSACTIONAL_STATS, MailTransactionalStatsToSqlOperator),
    }[kind]
    columns = ", ".join(name for name in table.names if name not in ("observed_at", "mail_send_date"))

    assert run(lambda: load(task_id=TASK, sql_conn_id="warehouse", **WEEK), logical_date=RUN_DAY).state == "success"
    arguments = {"kind": kind, "file_format": file_format}
    assert run(lambda: export(tmp_path, **arguments, **WEEK), logical_date=RUN_DAY).state == "success"

    loaded = warehouse.query(f"SELECT {columns} FROM mail_{kind.removesuffix('s')}_stats ORDER BY 1, 2, 3")
    read = {"jsonl": "read_json_auto", "parquet": "read_parquet"}[file_format]
    source = f"{read}('{tmp_path}/*/*.{file_format}', hive_partitioning = true)"
    found = duckdb.sql(f"SELECT {columns.replace('stats_date', 'stats_date::VARCHAR')} FROM {source} ORDER BY 1, 2, 3")
    assert found.fetchall() == [tuple(map(_as_duckdb, row)) for row in loaded]
    assert len(loaded) == {"campaigns": 6, "transactional": 7}[kind]
    partition, day = {"campaigns": ("mail_send_day", "mail_send_date"), "transactional": ("stats_day", "stats_date")}[
        kind
    ]
    torn = duckdb.sql(f"SELECT count(*) FROM {source} WHERE {partition}::DATE <> {day}::TIMESTAMP::DATE")
    assert torn.fetchall() == [(0,)]


def _as_duckdb(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


# --- reruns ---


def test_a_rerun_replaces_its_days_and_no_others(run: Run, emulator: Emulator, tmp_path: Path) -> None:
    sent_on(emulator, "2026-03-02", "2026-03-04")
    run(lambda: export(tmp_path, **WEEK), logical_date=RUN_DAY)
    before = {path: (tmp_path / path).read_bytes() for path in files(tmp_path)}
    emulator.set_campaign_stats("of-2026-03-04--000001", sentCount=9, openCount=8)
    emulator.set_campaign_state("of-2026-03-04--000000", "removed")

    run(lambda: export(tmp_path, start_day="2026-03-04", end_day="2026-03-05"), logical_date=RUN_DAY)

    assert files(tmp_path) == list(before)
    other = "mail_send_day=2026-03-02/mail_default.jsonl"
    assert (tmp_path / other).read_bytes() == before[other]
    assert [(row["mail_name"], row["open_count"]) for row in lines(tmp_path, "*=2026-03-04/*")] == [
        ("of-2026-03-04--000001", 8)
    ]


def test_the_same_window_twice_changes_nothing_but_when_it_was_observed(
    run: Run, emulator: Emulator, tmp_path: Path
) -> None:
    emulator.clock.set(RUN_DAY)
    emulator.clock.freeze()
    sent_on(emulator, "2026-03-02", "2026-03-04")
    found = []
    for _ in range(2):
        run(lambda: export(tmp_path, **WEEK), logical_date=RUN_DAY)
        found.append([row | {"observed_at": "", "loaded_at": "", "run_id": ""} for row in lines(tmp_path)])
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["campaigns", "transactional"])
def test_it_was_observed_by_the_clock_of_the_service(run: Run, emulator: Emulator, tmp_path: Path, kind: str) -> None:
    emulator.clock.set(RUN_DAY)
    emulator.clock.freeze()
    sent_on(emulator, "2026-03-02")
    run(lambda: export(tmp_path, kind=kind, **WEEK), logical_date=RUN_DAY)
    observed = [datetime.fromisoformat(row["observed_at"]) for row in lines(tmp_path)]
    assert observed
    assert all(abs(at - RUN_DAY) < timedelta(minutes=5) for at in observed)


def test_the_file_of_a_day_without_campaigns_goes_away(run: Run, emulator: Emulator, tmp_path: Path) -> None:
    sent_on(emulator, "2026-03-02", "2026-03-04", per_day=1)
    run(lambda: export(tmp_path, **WEEK), logical_date=RUN_DAY)
    assert len(files(tmp_path)) == 2
    stranger = tmp_path / "mail_send_day=2026-03-04" / "somebody.jsonl"
    stranger.write_text("{}\n")
    emulator.set_campaign_state("of-2026-03-04--000000", "removed")

    done = run(lambda: export(tmp_path, **WEEK), logical_date=RUN_DAY)

    assert (done.returned["files"], done.returned["removed"]) == (1, 1)
    assert files(tmp_path) == ["mail_send_day=2026-03-02/mail_default.jsonl", "mail_send_day=2026-03-04/somebody.jsonl"]


def test_a_transactional_day_that_is_left_out_keeps_its_file(run: Run, emulator: Emulator, tmp_path: Path) -> None:
    emulator.clock.set(RUN_DAY)
    emulator.set_transactional_day("2026-03-02", sentCount=40)
    window = {"kind": "transactional", "start_day": "2026-03-02", "end_day": "2026-03-03"}
    run(lambda: export(tmp_path, **window), logical_date=RUN_DAY)
    assert [(row["stats_date"], row["sent_count"]) for row in lines(tmp_path)] == [
        ("2026-03-02", 40),
        ("2026-03-03", 0),
    ]

    emulator.settings.stats_empty_days = False
    done = run(lambda: export(tmp_path, **window), logical_date=RUN_DAY)

    assert (done.returned["files"], done.returned["missing_days"], done.returned["removed"]) == (1, 1, 0)
    assert len(files(tmp_path)) == 2
    assert "The response leaves out 2026-03-03" in done.log


def test_two_accounts_share_a_folder(run: Run, connect: Connect, emulator: Emulator, tmp_path: Path) -> None:
    connect("other", team_name="Sales")
    sent_on(emulator, "2026-03-02")
    for conn_id in ("mail_default", "other", "other"):
        run(lambda conn_id=conn_id: export(tmp_path, mail_conn_id=conn_id, **WEEK), logical_date=RUN_DAY)
    assert files(tmp_path) == [f"mail_send_day=2026-03-02/{name}.jsonl" for name in ("mail_default", "other")]
    assert [(row["mail_conn_id"], row["team"]) for row in lines(tmp_path)] == [
        *[("mail_default", None)] * 2,
        *[("other", "Sales")] * 2,
    ]
    # With another team it is still the same account's file.
    connect("other", team_name="Marketing")
    run(lambda: export(tmp_path, mail_conn_id="other", **WEEK), logical_date=RUN_DAY)
    assert {row["team"] for row in lines(tmp_path)} == {None, "Marketing"}


def test_days_are_the_service_s(run: Run, emulator: Emulator, tmp_path: Path) -> None:
    """Two windows that meet never tear a day apart, whatever the zone of the service."""
    emulator.settings.stats_utc_offset_hours = 8.0
    for hour in (1, 15, 17, 23):
        emulator.add_campaign(f"at-{hour}", send_date=datetime(2026, 3, 4, hour, tzinfo=UTC))
    for day in ("2026-03-05", "2026-03-04", "2026-03-05"):
        run(lambda day=day: export(tmp_path, start_day=day, end_day=day), logical_date=RUN_DAY)
    assert names_by_day(tmp_path) == {
        "mail_send_day=2026-03-04": ["at-1", "at-15"],
        "mail_send_day=2026-03-05": ["at-17", "at-23"],
    }


def test_the_window_of_a_run(run: Run, emulator: Emulator, tmp_path: Path) -> None:
    run(lambda: export(tmp_path, lookback_days=2), logical_date=RUN_DAY + timedelta(hours=9))
    days = [(entry["body"]["startDate"], entry["body"]["endDate"]) for entry in emulator.journal.entries(CAMPAIGNS)]
    assert days == [(f"2026-03-{day:02}",) * 2 for day in (7, 7, 8, 8, 9, 9, 10, 10)]  # each twice


def test_one_short_answer_shortens_no_file(run: Run, emulator: Emulator, tmp_path: Path) -> None:
    for day in (2, 4):
        emulator.add_campaigns(5, prefix=f"of-{day}-", first_day=f"2026-03-{day:02}", per_day=5)
    run(lambda: export(tmp_path, **WEEK), logical_date=RUN_DAY)
    emulator.faults.add("empty_page", CAMPAIGNS, count=1, keep=1, total=1, where={"startDate": "2026-03-02"})
    emulator.faults.add("empty_page", CAMPAIGNS, count=1, total=0, where={"startDate": "2026-03-04"})
    done = run(lambda: export(tmp_path, **WEEK), logical_date=RUN_DAY)
    assert (done.returned["records"], done.returned["removed"]) == (10, 0)
    assert len(lines(tmp_path)) == 10


def test_a_window_that_is_suddenly_empty_needs_a_permission(run: Run, emulator: Emulator, tmp_path: Path) -> None:
    sent_on(emulator, "2026-03-02", "2026-03-04")
    run(lambda: export(tmp_path, **WEEK), logical_date=RUN_DAY)
    before = files(tmp_path)
    for campaign in emulator.campaigns():
        emulator.set_campaign_state(campaign["mailName"], "removed")
    done = run(lambda: export(tmp_path, **WEEK), logical_date=RUN_DAY)
    assert done.state == "failed"
    assert "2 files would become 0. Nothing was removed; allow_empty=True allows it" in done.log
    assert files(tmp_path) == before
    done = run(lambda: export(tmp_path, allow_empty=True, **WEEK), logical_date=RUN_DAY)
    assert done.returned["removed"] == 2
    assert files(tmp_path) == []


# --- whole files ---


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    folder = storage_path(f"file://{tmp_path}", None, "path")
    file = folder / "day=1" / "a.jsonl"
    contents = {letter * 2_000_000 for letter in "abc"}
    put(file, b"a" * 2_000_000)
    seen: set[str] = set()
    over = threading.Event()

    def read() -> None:
        while True:
            (path,) = (tmp_path / "day=1").glob("*.jsonl")
            seen.add(path.read_text())
            if over.is_set():
                return

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(60):
        put(file, "abc"[number % 3].encode() * 2_000_000)
    over.set()
    reader.join()
    assert seen <= contents
    assert seen
    assert files(tmp_path) == ["day=1/a.jsonl"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = storage_path(f"file://{tmp_path}", None, "path") / "day=1" / "a.jsonl"
    put(file, b"old")

    def half(fs: LocalFileSystem, path: str, value: bytes, **kwargs: Any) -> None:
        Path(path).write_bytes(value[:1])
        raise OSError("no space left")

    with monkeypatch.context() as broken:
        broken.setattr(LocalFileSystem, "pipe_file", half)
        with pytest.raises(OSError, match="no space left"):
            put(file, b"new")
    assert files(tmp_path) == ["day=1/a.jsonl"]
    assert (tmp_path / "day=1" / "a.jsonl").read_bytes() == b"old"


def test_in_a_file_system_in_memory(run: Run, emulator: Emulator, memory: MemoryFileSystem) -> None:
    sent_on(emulator, "2026-03-02")
    for _ in range(2):
        assert run(lambda: export("memory://lake/mail", **WEEK), logical_date=RUN_DAY).state == "success"
    assert memory.find("/lake") == ["/lake/mail/mail_send_day=2026-03-02/mail_default.jsonl"]
    written = memory.cat_file("/lake/mail/mail_send_day=2026-03-02/mail_default.jsonl").decode()
    assert [json.loads(line)["mail_name"][:13] for line in written.splitlines()] == ["of-2026-03-02"] * 2


@pytest.mark.parametrize(
    "where",
    [{"path": "s3://aws@lake/mail"}, {"path": "s3://lake/mail", "object_storage_conn_id": "aws"}],
    ids=["in the path", "by itself"],
)
def test_an_object_store_gets_each_object_once_and_no_temporary_ones(
    run: Run, emulator: Emulator, bucket: Bucket, where: dict[str, str]
) -> None:
    sent_on(emulator, "2026-03-02", "2026-03-04", per_day=1)
    assert run(lambda: export(**where, **WEEK), logical_date=RUN_DAY).state == "success"
    objects = [f"/lake/mail/mail_send_day=2026-03-0{day}/mail_default.jsonl" for day in (2, 4)]
    assert list(bucket.store) == objects
    assert bucket.asked == [f"put {name[1:]}" for name in objects]

    emulator.set_campaign_state("of-2026-03-04--000000", "removed")
    bucket.asked.clear()
    assert run(lambda: export(**where, **WEEK), logical_date=RUN_DAY).state == "success"
    assert list(bucket.store) == objects[:1]
    assert bucket.asked == [f"put {objects[0][1:]}", f"delete {objects[1][1:]}"]


def test_removing_what_is_not_there(tmp_path: Path) -> None:
    folder = storage_path(f"file://{tmp_path}", None, "path")
    assert remove(folder / "nothing" / "here.jsonl") is False


# --- what goes wrong ---


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"path": "{{ '' }}"}, "path: is empty"),
        ({"path": "nope://lake/mail"}, "path: install the provider of that storage"),
        ({"start_day": "{{ 'soon' }}"}, "start_day: is not a date of the form YYYY-MM-DD"),
    ],
)
def test_what_cannot_be_fails_at_once_and_asks_nothing(
    run: Run, emulator: Emulator, tmp_path: Path, arguments: dict[str, str], words: str
) -> None:
    done = run(lambda: export(**{"path": tmp_path, "retries": 2} | arguments), logical_date=RUN_DAY)
    assert (done.state, done.tries) == ("failed", 1)
    assert words in done.log
    assert emulator.journal.count() == 0


def test_a_missing_extra_says_what_to_install(
    run: Run, emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = run(lambda: export(tmp_path, file_format="parquet", retries=2, **WEEK), logical_date=RUN_DAY)
    assert (done.state, done.tries) == ("failed", 1)
    assert "pip install 'airflow-provider-mail[parquet]'" in done.log
    assert emulator.journal.count() == 0
    assert run(lambda: export(tmp_path, **WEEK), logical_date=RUN_DAY).state == "success"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kind": "sms"}, "kind: 'sms'"),
        ({"file_format": "csv"}, "file_format: 'csv'"),
        ({"lookback_days": -1}, "lookback"),
    ],
)
def test_what_cannot_be_is_refused_when_the_dag_is_parsed(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        export("x", **arguments)


def test_a_short_answer_is_never_written(run: Run, emulator: Emulator, tmp_path: Path) -> None:
    sent_on(emulator, "2026-03-02")
    run(lambda: export(tmp_path, **WEEK), logical_date=RUN_DAY)
    before = {path: (tmp_path / path).read_bytes() for path in files(tmp_path)}
    emulator.faults.add("short_stats", operation=f"/v5/{CAMPAIGNS}", count=1000)

    done = run(lambda: export(tmp_path, **WEEK), logical_date=RUN_DAY)

    assert done.state == "failed"
    assert {path: (tmp_path / path).read_bytes() for path in files(tmp_path)} == before


def test_a_path_may_be_an_object_or_a_template(
    run: Run, new_dag: Callable[..., Any], emulator: Emulator, tmp_path: Path
) -> None:
    sent_on(emulator, "2026-03-02", per_day=1)
    assert (
        run(lambda: export(ObjectStoragePath(f"file://{tmp_path}/a"), **WEEK), logical_date=RUN_DAY).state == "success"
    )
    with new_dag(params={"where": f"{tmp_path}/b"}) as dag:
        export("file://{{ params.where }}", **WEEK)
    assert run(dag, logical_date=RUN_DAY).state == "success"
    assert files(tmp_path) == [f"{folder}/mail_send_day=2026-03-02/mail_default.jsonl" for folder in "ab"]


def test_the_example(run_in_airflow: Run, emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_MAIL_LAKE", f"file://{tmp_path}")
    emulator.clock.set(datetime(2026, 1, 10, tzinfo=UTC))
    emulator.clock.freeze()
    emulator.add_campaigns(18, first_day="2026-01-01", per_day=2)
    emulator.set_transactional_day("2026-01-09", sentCount=40)

    done = run_in_airflow(example("mail_statistics_files"), logical_date=emulator.clock.now())

    assert done.state == "success"
    assert [path.parent.name for path in sorted((tmp_path / "campaigns").glob("*/*.parquet"))] == [
        f"mail_send_day=2026-01-0{day}" for day in range(2, 10)
    ]
    assert len(parquet_rows(tmp_path / "campaigns")) == 16
    (row,) = [row for row in parquet_rows(tmp_path / "transactional") if row["stats_date"] == date(2026, 1, 9)]
    assert row["sent_count"] == 40
