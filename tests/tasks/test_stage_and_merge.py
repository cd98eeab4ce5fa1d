"""Files, then the warehouse's own load, then one merge: on stand-ins for the warehouses, against the service."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from duckdb_provider.hooks.duckdb_hook import DuckDBHook

from airflow_provider_mail.emulator import Emulator
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
from airflow_provider_mail.version_compat import AirflowFailException
from airflow_provider_mail.warehouse.errors import UnconfirmedError, WarehouseError
from airflow_provider_mail.warehouse.manifest import Manifest
from airflow_provider_mail.warehouse.tables.contacts import CONTACTS, contact_row
from tests.support.sampling import EVERYTHING
from tests.tasks.conftest import TASK, Run
from tests.warehouse.standins import STANDINS, copy, prepare

RUN_DAY = datetime(2026, 3, 10, tzinfo=UTC)
ON_DUCKDB = ["snowflake", "gcpbigquery", "databricks"]


class Lake:
    """A folder of files, and a warehouse on DuckDB that loads them."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.folder = folder
        self.hook: Any = STANDINS[kind]("warehouse")

    def copy(self, manifest: str, stage: str) -> None:
        """What COPY does: append every file of the manifest to the table of staged rows."""
        copy(self.hook, Manifest.from_json(Path(manifest.removeprefix("file://")).read_bytes()), stage)

    def load(self, written: dict[str, Any], table: str, **arguments: Any) -> dict[str, Any]:
        given = {"sql_conn_id": "warehouse", "table": table, "manifest": written["manifest"]}
        stage = MailCreateStageTableOperator(task_id="stage", **given).execute({})
        assert stage["records"] == written["records"]
        self.copy(written["manifest"], stage["stage_table"])
        result: dict[str, Any] = MailMergeStageTableOperator(task_id="merge", **given, **arguments).execute({})
        return result

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        connection = self.hook.get_conn()._connection
        with closing(connection):
            return list(connection.execute(sql).fetchall())


@pytest.fixture
def make_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Lake]:
    """A function from the kind of a warehouse to an empty one."""

    def make(kind: str) -> Lake:
        connection = {"conn_type": "duckdb", "host": str(tmp_path / "warehouse.duckdb")}
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(connection))
        lake = Lake(kind, tmp_path / "lake")
        prepare(lake.hook)
        monkeypatch.setattr(
            object_storage_to_sql.BaseStageTableOperator, "sql_hook", lambda self: STANDINS[kind](self.sql_conn_id)
        )
        return lake

    return make


@pytest.fixture(params=["snowflake", "databricks"] if EVERYTHING else ["snowflake"])
def lake(request: pytest.FixtureRequest, make_lake: Callable[[str], Lake]) -> Lake:
    """A warehouse with transactions, and one without."""
    return make_lake(request.param)


@pytest.fixture
def people(emulator: Emulator) -> Emulator:
    """A list of 95, and three campaigns. The clock can be moved on for a day before it is ahead of the worker's."""
    emulator.clock.advance(days=-1)
    emulator.add_list("newsletter", count=95)
    emulator.add_campaigns(3, prefix="news-", first_day="2026-03-02", per_day=3)
    return emulator


def contacts(lake: Lake, **arguments: Any) -> dict[str, Any]:
    given = {"list_name": "newsletter", "path": f"file://{lake.folder}", "file_format": "parquet", "page_size": 50}
    result: dict[str, Any] = MailContactsToObjectStorageOperator(task_id=TASK, **given | arguments).execute({})
    return result


def campaigns(lake: Lake) -> dict[str, Any]:
    given = {"path": f"file://{lake.folder}", "file_format": "parquet"}
    result: dict[str, Any] = MailCampaignsToObjectStorageOperator(task_id=TASK, **given).execute({})
    return result


def ids(lake: Lake) -> list[str]:
    return sorted((id for (id,) in lake.query("SELECT id FROM mail_contacts")), key=int)


def in_service(emulator: Emulator) -> list[str]:
    return sorted((contact["id"] for contact in emulator.contacts("newsletter")), key=int)


def leaves(emulator: Emulator, email: str) -> None:
    url, key = f"{emulator.base_url}/v5/contacts/delete", emulator.api_key
    assert httpx.post(url, headers={"ApiKey": key}, json={"email": email}, timeout=60).json()["code"] == 200


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
@pytest.mark.parametrize("kind", ON_DUCKDB)
def test_the_table_is_the_list(make_lake: Callable[[str], Lake], people: Emulator, kind: str, file_format: str) -> None:
    lake = make_lake(kind)
    odd = "Å \\ ' \" \n {} %s"
    people.add_contact("odd@example.com", lists=["newsletter"], name=odd, properties={"city": odd})
    result = lake.load(contacts(lake, file_format=file_format, rows_per_file=40), "mail_contacts")
    assert result == {"table": "mail_contacts", "records": 96}
    assert ids(lake) == in_service(people)
    ((name, properties),) = lake.query("SELECT name, properties FROM mail_contacts WHERE email = 'odd@example.com'")
    assert (name, json.loads(properties)["city"]) == (odd, odd)
    assert lake.query("SELECT table_name, part FROM mail_loads") == [("mail_contacts", "newsletter")]
    assert lake.query("SELECT 1 FROM information_schema.tables WHERE table_name LIKE '%stage%'") == []


def test_who_left_is_deleted_and_a_late_load_brings_back_nobody(lake: Lake, people: Emulator) -> None:
    first = contacts(lake)
    people.clock.advance(hours=1)
    leaves(people, people.contacts("newsletter")[3]["email"])
    people.add_contact("new@example.com", lists=["newsletter"])
    second = contacts(lake)
    lake.load(second, "mail_contacts")
    assert ids(lake) == in_service(people)
    lake.load(first, "mail_contacts")
    assert ids(lake) == in_service(people)
    lake.load(second, "mail_contacts")
    assert ids(lake) == in_service(people)


def test_a_load_from_the_future_is_not_merged(lake: Lake, people: Emulator) -> None:
    """Its rows would hide newer ones until then."""
    people.clock.advance(days=2)
    ahead = contacts(lake)
    people.clock.advance(days=-1)
    with pytest.raises(WarehouseError, match="check the clocks of the service and of this worker, then write the file"):
        lake.load(ahead, "mail_contacts")
    lake.load(contacts(lake), "mail_contacts")
    assert ids(lake) == in_service(people)


def test_a_load_that_rejected_a_record_deletes_nobody(
    lake: Lake, people: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def row(contact: Any, **values: Any) -> tuple[Any, ...]:
        made = list(contact_row(contact, **values))
        made[CONTACTS.names.index("name")] = "half a pair: \ud83d" if contact.email == "new@example.com" else None
        return tuple(made)

    lake.load(contacts(lake), "mail_contacts")
    before = ids(lake)
    people.clock.advance(hours=1)
    leaves(people, people.contacts("newsletter")[3]["email"])
    people.add_contact("new@example.com", lists=["newsletter"])
    people.add_contact("newer@example.com", lists=["newsletter"])
    monkeypatch.setattr("airflow_provider_mail.warehouse.tables.contacts.contact_row", row)
    result = contacts(lake, on_unstorable="reject")
    assert (result["records"], result["rejected"]) == (95, 1)
    lake.load(result, "mail_contacts")
    (newer,) = (each["id"] for each in people.contacts("newsletter") if each["email"] == "newer@example.com")
    assert ids(lake) == sorted([*before, newer], key=int)


def test_a_stage_that_is_not_the_load_is_not_merged(lake: Lake, people: Emulator) -> None:
    lake.load(contacts(lake), "mail_contacts")
    before = lake.query("SELECT * FROM mail_contacts ORDER BY id")
    people.clock.advance(hours=1)
    given = {"sql_conn_id": "warehouse", "table": "mail_contacts", "manifest": contacts(lake)["manifest"]}
    stage = MailCreateStageTableOperator(task_id="stage", **given).execute({})["stage_table"]
    merge = MailMergeStageTableOperator(task_id="merge", **given)
    with pytest.raises(WarehouseError, match="has 0 rows with 0 keys, and the load has 95"):
        merge.execute({})
    for _ in range(2):
        lake.copy(given["manifest"], stage)
    with pytest.raises(WarehouseError, match="has 190 rows with 95 keys, and the load has 95"):
        merge.execute({})
    assert lake.query("SELECT * FROM mail_contacts ORDER BY id") == before


def test_a_merge_that_is_repeated_when_its_stage_is_gone(lake: Lake, people: Emulator) -> None:
    """As after a kill between the last statement and the report to Airflow."""
    for write in (contacts, campaigns):
        written = write(lake)
        given = {"sql_conn_id": "warehouse", "table": "mail_things", "manifest": written["manifest"]}
        merge = MailMergeStageTableOperator(task_id="merge", **given)
        with pytest.raises(WarehouseError, match="stage"):
            merge.execute({})  # it was never there
        done = lake.load(written, "mail_things")
        assert merge.execute({}) == done
        lake.query("DROP TABLE mail_things")


def test_an_empty_load_needs_a_permission(lake: Lake, people: Emulator) -> None:
    people.add_list("few", count=3)
    lake.load(contacts(lake, list_name="few"), "mail_contacts")
    people.clock.advance(hours=1)
    for contact in people.contacts("few"):
        leaves(people, contact["email"])
    empty = contacts(lake, list_name="few", allow_empty=True)
    with pytest.raises(
        UnconfirmedError, match=r"3 rows would become 0\. Nothing was removed; allow_empty=True allows it"
    ):
        lake.load(empty, "mail_contacts")
    assert len(ids(lake)) == 3
    lake.load(empty, "mail_contacts", allow_empty=True)
    assert ids(lake) == []


def test_campaigns_and_statistics(run: Run, lake: Lake, emulator: Emulator) -> None:
    emulator.clock.set(RUN_DAY)
    for day in ("2026-03-02", "2026-03-04"):
        emulator.add_campaigns(3, prefix=f"of-{day}-", first_day=day, per_day=3)
    week = {"start_day": "2026-03-01", "end_day": "2026-03-07", "layout": "load"}

    def load() -> None:
        given = {"task_id": TASK, "path": f"file://{lake.folder}", "file_format": "parquet"}
        lake.load(MailCampaignsToObjectStorageOperator(**given).execute({}), "mail_campaigns")
        for kind in ("campaigns", "transactional"):
            done = run(
                lambda kind=kind: MailStatsToObjectStorageOperator(**given, kind=kind, **week), logical_date=RUN_DAY
            )
            lake.load(done.returned, f"mail_{kind.removesuffix('s')}_stats")

    load()
    emulator.clock.advance(hours=1)
    emulator.set_campaign_state("of-2026-03-02--000001", "removed")
    emulator.set_campaign_stats("of-2026-03-04--000001", sentCount=9, openCount=8)
    load()
    for table in ("mail_campaigns", "mail_campaign_stats"):
        rows = dict(lake.query(f"SELECT mail_name, gone_at IS NOT NULL FROM {table}"))
        assert len(rows) == 6
        assert [name for name, gone in rows.items() if gone] == ["of-2026-03-02--000001"], table
    counts = lake.query(
        "SELECT sent_count, open_count FROM mail_campaign_stats WHERE mail_name = 'of-2026-03-04--000001'"
    )
    assert counts == [(9, 8)]
    assert lake.query("SELECT count(*) FROM mail_transactional_stats") == [(7,)]


def test_a_short_answer_a_moved_campaign_and_an_empty_window_remove_nothing(
    run: Run, lake: Lake, emulator: Emulator
) -> None:
    emulator.clock.set(RUN_DAY)
    emulator.add_campaigns(12, prefix="news-", first_day="2026-03-03", per_day=12)

    def load(**permission: Any) -> Any:
        given = {"task_id": TASK, "path": f"file://{lake.folder}", "file_format": "parquet"}
        week = {"start_day": "2026-03-01", "end_day": "2026-03-07", "layout": "load"}
        done = run(lambda: MailStatsToObjectStorageOperator(**given, **week), logical_date=RUN_DAY)
        emulator.clock.advance(hours=1)
        return lake.load(done.returned, "mail_campaign_stats", **permission)

    def marked() -> list[Any]:
        return lake.query("SELECT mail_name FROM mail_campaign_stats WHERE gone_at IS NOT NULL ORDER BY 1")

    load()
    emulator.faults.add("empty_page", "campaign/mail/stats/get", count=1, keep=1, total=1)
    assert load()["records"] == 12
    for name in ("news--000001", "news--000002"):
        emulator.set_campaign_state(name, "removed")
    emulator.add_campaign("news--000001", send_date=RUN_DAY.replace(month=4))
    load()
    assert marked() == [("news--000002",)]
    for campaign in emulator.campaigns():
        emulator.set_campaign_state(campaign["mailName"], "removed")
    with pytest.raises(UnconfirmedError, match=r"11 rows would become 0\. Nothing was removed; allow_empty=True"):
        load()
    assert marked() == [("news--000002",)]
    load(allow_empty=True)
    assert len(marked()) == 12


def test_without_a_manifest_there_is_no_load(lake: Lake, people: Emulator) -> None:
    written = contacts(lake)
    Path(written["manifest"].removeprefix("file://")).unlink()
    with pytest.raises(AirflowFailException, match="no such file, so there is no complete load"):
        lake.load(written, "mail_contacts")


def test_another_database_has_its_own_operators(
    make_lake: Callable[[str], Lake], people: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake("snowflake")
    written = contacts(lake)
    monkeypatch.setattr(object_storage_to_sql.BaseStageTableOperator, "sql_hook", lambda self: DuckDBHook("warehouse"))
    with pytest.raises(WarehouseError, match="duckdb is not loaded from files"):
        lake.load(written, "mail_contacts")
