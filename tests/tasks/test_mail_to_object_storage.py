"""`MailStatsToObjectStorageOperator`: a folder per day, files that are whole, and nothing of others touched."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from airflow.sdk import ObjectStoragePath
from airflow.sdk.io import attach, store
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from airflow_provider_mail.api.errors import MailIncompleteError
from airflow_provider_mail.arguments import Rejects
from airflow_provider_mail.transfers.mail_to_object_storage import (
    MailCampaignsToObjectStorageOperator,
    MailContactsToObjectStorageOperator,
    MailStatsToObjectStorageOperator,
)
from airflow_provider_mail.warehouse.errors import UnconfirmedError, WarehouseError
from airflow_provider_mail.warehouse.files import decode
from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_STATS
from mail_emulator import Emulator
from tests.support.changes import around_requests
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase
from tests.tasks.loading import CAMPAIGN_STATS as CAMPAIGNS
from tests.tasks.loading import LIST, RUN_DAY, WEEK, delete, executed, load_task, remove_campaigns
from tests.tasks.test_example_dags import example


class Bucket(MemoryFileSystem):
    """What Airflow may take for an object store; it notes what is done to its objects."""

    protocol, cachable = "s3", False

    def __init__(self) -> None:
        super().__init__()
        self.store, self.pseudo_dirs = {}, [""]
        self.changes: list[str] = []

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("s3://").strip("/")

    def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
        self.changes.append(f"put {self._strip_protocol(path)}")
        super().pipe_file(path, value, **options)

    def rm_file(self, path: str) -> None:
        self.changes.append(f"delete {self._strip_protocol(path)}")
        super().rm_file(path)


def written(folder: Any, **arguments: Any) -> dict[str, Any]:
    """What the task returns."""
    given = {"task_id": TASK, "path": str(folder), "file_format": "jsonl"}
    return executed(MailStatsToObjectStorageOperator(**given | WEEK | arguments), at=RUN_DAY)


def contents(folder: Path) -> dict[str, bytes]:
    """Everything in it, hidden files included."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def lines(folder: Path, pattern: str = "*/*.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob(pattern)) for line in path.read_text().splitlines()]


def sent_on(emulator: Emulator, *days: str, per_day: int = 2) -> None:
    for day in days:
        emulator.add_campaigns(per_day, prefix=f"of-{day}-", first_day=day, per_day=per_day)


@pytest.mark.parametrize(("kind", "file_format"), [("campaigns", "parquet"), ("transactional", "jsonl")])
def test_the_files_have_the_rows_of_the_table(
    emulator: Emulator, warehouse: SqlDatabase, tmp_path: Path, kind: str, file_format: str
) -> None:
    emulator.clock.set(RUN_DAY)
    sent_on(emulator, "2026-03-02", "2026-03-04", "2026-03-05")
    emulator.set_transactional_day("2026-03-03", sentCount=40, openCount=10, bounceCount=2)
    table, partition, columns, day, count = {
        "campaigns": ("mail_campaign_stats", "mail_send_day", "mail_name, sent_count, open_rate", "mail_send_date", 6),
        "transactional": (
            "mail_transactional_stats", "stats_day", "stats_date::VARCHAR, sent_count, open_rate", "stats_date", 7
        ),
    }[kind]  # fmt: skip
    executed(load_task(table, **WEEK))
    written(tmp_path, kind=kind, file_format=file_format)

    loaded = warehouse.query(f"SELECT {columns.replace('::VARCHAR', '')} FROM {table} ORDER BY 1")
    read = {"jsonl": "read_json_auto", "parquet": "read_parquet"}[file_format]
    source = f"{read}('{tmp_path}/*/*.{file_format}', hive_partitioning = true)"
    found = duckdb.sql(f"SELECT {columns} FROM {source} ORDER BY 1").fetchall()
    assert (found, len(loaded)) == (loaded, count)
    torn = duckdb.sql(f"SELECT count(*) FROM {source} WHERE {partition}::DATE <> {day}::TIMESTAMP::DATE")
    assert torn.fetchall() == [(0,)]
    # The time of observation is by the clock of the service.
    observed = duckdb.sql(f"SELECT DISTINCT observed_at::TIMESTAMPTZ FROM {source}").fetchall()
    assert all(abs(at - RUN_DAY) < timedelta(minutes=5) for (at,) in observed)


def test_a_second_export_replaces_its_days_alone(emulator: Emulator, tmp_path: Path) -> None:
    sent_on(emulator, "2026-03-02", "2026-03-04", "2026-03-05")
    written(tmp_path)
    first, second, third = before = contents(tmp_path)
    stranger = str(Path(third).parent / "somebody.jsonl")
    (tmp_path / stranger).write_text("{}\n")
    emulator.set_campaign_stats("of-2026-03-04--000001", sentCount=9, openCount=8)
    remove_campaigns(emulator, *(f"of-2026-03-0{end}" for end in ("4--000000", "5--000000", "5--000001")))

    result = written(tmp_path, start_day="2026-03-04", end_day="2026-03-05")

    assert (result["files"], result["removed"]) == (1, 1)
    after = contents(tmp_path)
    assert ([*after], after[first]) == ([first, second, stranger], before[first])
    changed = [(row["mail_name"], row["open_count"]) for row in lines(tmp_path, "*=2026-03-04/*")]
    assert changed == [("of-2026-03-04--000001", 8)]


def test_a_missing_day_keeps_its_file(emulator: Emulator, tmp_path: Path) -> None:
    emulator.clock.set(RUN_DAY)
    emulator.set_transactional_day("2026-03-02", sentCount=40)
    days = {"kind": "transactional", "start_day": "2026-03-02", "end_day": "2026-03-03"}
    written(tmp_path, **days)
    sent = [(row["stats_date"], row["sent_count"]) for row in lines(tmp_path)]
    assert sent == [("2026-03-02", 40), ("2026-03-03", 0)]
    emulator.settings.stats_empty_days = False
    result = written(tmp_path, **days)
    assert (result["files"], result["missing_days"], result["removed"], len(contents(tmp_path))) == (1, 1, 0, 2)


def test_a_day_with_a_wrong_record_has_no_file(emulator: Emulator, tmp_path: Path) -> None:
    for day, count in (("2026-03-02", -1), ("2026-03-03", 5)):
        emulator.set_transactional_day(day, sentCount=40, openCount=count)
    result = written(tmp_path, kind="transactional", rejects=Rejects(max_fraction=1))
    assert (result["records"], result["files"], result["rejected"]) == (6, 6, 1)
    assert [*contents(tmp_path)] == [f"stats_day=2026-03-0{day}/mail_default.jsonl" for day in (1, 3, 4, 5, 6, 7)]


def test_two_accounts_share_a_folder(connect: Connect, emulator: Emulator, tmp_path: Path) -> None:
    sent_on(emulator, "2026-03-02", per_day=1)
    for conn_id, team in (("mail_default", None), ("other", "Sales"), ("other", "Marketing")):
        connect(conn_id, team_name=team)
        written(tmp_path, mail_conn_id=conn_id)
    # With another team it is still the same account's file.
    assert [*contents(tmp_path)] == [f"mail_send_day=2026-03-02/{name}.jsonl" for name in ("mail_default", "other")]
    accounts = [(row["mail_conn_id"], row["team_name"]) for row in lines(tmp_path)]
    assert accounts == [("mail_default", ""), ("other", "Marketing")]


def test_short_responses_shorten_no_file(emulator: Emulator, tmp_path: Path) -> None:
    sent_on(emulator, "2026-03-02", "2026-03-04", per_day=5)
    written(tmp_path)
    for day, keep in (("2026-03-02", 1), ("2026-03-04", 0)):
        emulator.faults.add("empty_page", CAMPAIGNS, count=1, keep=keep, total=keep, where={"startDate": day})
    result = written(tmp_path)
    assert (result["records"], result["removed"], len(lines(tmp_path))) == (10, 0, 10)

    before = contents(tmp_path)
    remove_campaigns(emulator)
    with pytest.raises(WarehouseError, match=r"2 files would become 0\. Nothing was removed; allow_empty"):
        written(tmp_path)
    assert contents(tmp_path) == before
    assert (written(tmp_path, allow_empty=True)["removed"], contents(tmp_path)) == (2, {})


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_a_day_that_lacks_what_the_service_has_keeps_its_file(
    emulator: Emulator, tmp_path: Path, file_format: str
) -> None:
    """Both readings agree, and so do their totals; and rejected records take no row away."""
    sent_on(emulator, "2026-03-02", per_day=40)
    emulator.set_campaign_stats("of-2026-03-02--000003", sentCount=77, openCount=1)
    assert written(tmp_path, file_format=file_format)["records"] == 40
    before = contents(tmp_path)
    for keep in (3, 39, 0):
        emulator.faults.add("empty_page", CAMPAIGNS, count=2, keep=keep, total=keep, where={"startDate": "2026-03-02"})
        with pytest.raises(MailIncompleteError, match="that the service returns elsewhere"):
            written(tmp_path, file_format=file_format)
        emulator.faults.clear()
        assert contents(tmp_path) == before
    emulator.set_campaign_stats("of-2026-03-02--000003", sentCount=77, openCount=-1)
    emulator.set_campaign_stats("of-2026-03-02--000004", sentCount=78, openCount=2)
    result = written(tmp_path, file_format=file_format, rejects=Rejects(max_fraction=0.5))
    assert (result["records"], result["rejected"]) == (40, 1)
    file = next(tmp_path.glob("*/*"))
    sent = sorted(
        row[CAMPAIGN_STATS.names.index("sent_count")] for row in decode(CAMPAIGN_STATS, file.read_bytes(), file_format)
    )
    assert {77, 78} <= {*sent}
    emulator.set_campaign_stats("of-2026-03-02--000003", sentCount=0)
    with pytest.raises(UnconfirmedError, match="sent mails of 1 records would fall to zero"):
        written(tmp_path, file_format=file_format)


@pytest.mark.parametrize("window", [WEEK, {"start_day": "2026-03-02", "end_day": "2026-03-02"}])
def test_a_name_may_be_used_again_the_next_day(emulator: Emulator, tmp_path: Path, window: dict[str, str]) -> None:
    """It is another campaign, so the first one's day loses it; also where the next day is not written."""

    def send(day: int, count: int) -> None:
        emulator.add_campaign("offer", send_date=datetime(2026, 3, day, 22, tzinfo=UTC), sent=1)
        emulator.set_campaign_stats("offer", sentCount=count)

    sent_on(emulator, "2026-03-02")
    send(2, 500)
    assert written(tmp_path, **window)["records"] == 3
    before = contents(tmp_path)
    emulator.faults.add("empty_page", CAMPAIGNS, keep=0, total=0, where={"mailName": "offer"})
    emulator.faults.add("empty_page", CAMPAIGNS, count=2, keep=2, total=2, where={"startDate": "2026-03-02"})
    with pytest.raises(MailIncompleteError, match="that the service returns elsewhere"):
        written(tmp_path, **window)
    assert contents(tmp_path) == before
    emulator.faults.clear()
    remove_campaigns(emulator, "offer")
    send(3, 0)
    written(tmp_path, **window)
    assert len(lines(tmp_path, "*=2026-03-02/*")) == 2
    assert len(lines(tmp_path, "*=2026-03-03/*")) == (1 if window is WEEK else 0)


@contextmanager
def shortened(emulator: Emulator, operation: str, times: int) -> Iterator[None]:
    """So many lists lack a record, and their totals match; the look-up of one name is right."""
    answered = 0

    def around(perform: Callable[[], Any]) -> Any:
        nonlocal answered
        response = perform()
        (records,) = [value for value in response.payload.values() if isinstance(value, list)]
        if response.payload["totalRecords"] > 5 and answered < times:
            answered += not records
            response.payload["totalRecords"] -= 1
            records[3:4] = []
        return response

    with around_requests(emulator, operation, around):
        yield


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
@pytest.mark.parametrize("kind", [MailContactsToObjectStorageOperator, MailCampaignsToObjectStorageOperator])
def test_a_list_is_judged_beside_its_last_load(
    emulator: Emulator, tmp_path: Path, kind: Callable[..., Any], file_format: str
) -> None:
    emulator.add_list("newsletter", count=30)
    emulator.add_list("other", count=3)
    emulator.add_campaigns(30, first_day="2026-03-02")
    of_contacts = kind is MailContactsToObjectStorageOperator
    operation = LIST if of_contacts else "campaign/mail/get"

    def load(list_name: str = "newsletter", **arguments: Any) -> tuple[int, int]:
        given = {"task_id": TASK, "path": str(tmp_path), "file_format": file_format, "rows_per_file": 8}
        returned = executed(kind(**given | ({"list_name": list_name} if of_contacts else {}) | arguments))
        return returned["records"], returned["readings"]

    def loads() -> int:
        return len([*tmp_path.glob("*/_SUCCESS")])

    assert load() == (30, 1)
    if of_contacts:
        assert load("other") == (3, 1)
    with shortened(emulator, operation, 1):
        assert load() == (30, 2)
    before = loads()
    with shortened(emulator, operation, 9), pytest.raises(MailIncompleteError, match="missing that the service"):
        load()
    if of_contacts:
        delete(emulator, emulator.contacts("newsletter")[3])
    else:
        remove_campaigns(emulator, "campaign-000003")
    assert loads() == before
    assert load() == (29, 2)
    assert load() == (29, 1)
    if of_contacts:
        delete(emulator, *emulator.contacts("newsletter")[:9])
    else:
        remove_campaigns(emulator, *(f"campaign-{number:06}" for number in range(10, 19)))
    with pytest.raises(UnconfirmedError, match=r"path: .*: 29 rows would become 20\..*max_removed_fraction"):
        load()
    assert load(max_removed_fraction=0.5) == (20, 2)


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
    emulator.set_campaign_stats("of-2026-03-02--000000", sentCount=9, openCount=7)
    written(tmp_path)
    new = contents(tmp_path)
    error[0] = OSError("no space left")  # type: ignore[call-overload]
    with pytest.raises(OSError, match="no space left"):
        written(tmp_path)
    assert seen == [{"mail_default.jsonl": old}, {"mail_default.jsonl": new[name]}]
    assert contents(tmp_path) == new != {name: old}


@pytest.mark.parametrize(
    "where",
    [
        {"path": "s3://aws@lake/mail"},
        {"path": "s3://lake/mail", "object_storage_conn_id": "aws"},
        {"path": ObjectStoragePath("s3://lake/mail", conn_id="aws")},
    ],
    ids=["path", "argument", "object"],
)
def test_an_object_store_gets_each_object_once(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, where: dict[str, Any]
) -> None:
    """And no temporary ones. It is reached with the connection `aws`, and only with that."""
    monkeypatch.setattr(store, "_STORE_CACHE", {})
    bucket = Bucket()
    attach("s3", fs=Bucket())
    attach("s3", conn_id="aws", fs=bucket)
    sent_on(emulator, "2026-03-02", "2026-03-04", per_day=1)
    written("", **where)
    remove_campaigns(emulator, "of-2026-03-04--000000")
    written("", **where)
    first, second = (f"/lake/mail/mail_send_day=2026-03-0{day}/mail_default.jsonl" for day in (2, 4))
    assert bucket.changes == [f"put {first}", f"put {second}", f"put {first}", f"delete {second}"]


def test_the_example(run: Run, emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_MAIL_LAKE", f"file://{tmp_path}")
    emulator.clock.freeze(datetime(2026, 1, 10, tzinfo=UTC))
    emulator.add_campaigns(18, first_day="2026-01-01", per_day=2)
    emulator.set_transactional_day("2026-01-09", sentCount=40)
    assert run(example("mail_statistics_files"), logical_date=emulator.clock.now()).result.state == "success"
    days = [path.parent.name for path in sorted((tmp_path / "campaigns").glob("*/*.parquet"))]
    assert days == [f"mail_send_day=2026-01-0{day}" for day in range(2, 10)]
    rows = duckdb.sql(f"SELECT sent_count FROM '{tmp_path}/transactional/*/*.parquet' WHERE stats_date = '2026-01-09'")
    assert rows.fetchall() == [(40,)]
