"""Statistics in the warehouse: what the service says, whole, restated, and the same however often it is loaded.

How a response that is short is completed is shown by `tests/api/test_stats.py`.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail.warehouse.errors import UnconfirmedError
from mail_emulator import Emulator
from tests.support.env import ROOT
from tests.tasks.conftest import Connect, Run, SqlDatabase
from tests.tasks.loading import (
    CAMPAIGN_STATS,
    GET_CAMPAIGNS,
    TRANSACTIONAL_STATS,
    UTC,
    changed_records,
    error_of,
    executed,
    load_task,
    remove_campaigns,
)

DAY = datetime.date(2024, 3, 2)
STATS, DAYS, SNAPSHOTS = "mail_campaign_stats", "mail_transactional_stats", "mail_campaign_stats_snapshots"
ALL = {"first": 0, "last": 9}


def day(number: int) -> str:
    return (DAY + datetime.timedelta(days=number)).isoformat()


def task(first: int = 0, last: int | None = None, *, path: str = CAMPAIGN_STATS, **arguments: Any) -> Any:
    days = {"start_day": day(first), "end_day": day(first if last is None else last)}
    return load_task({CAMPAIGN_STATS: STATS, TRANSACTIONAL_STATS: DAYS}[path], **days, **arguments)


def load(first: int = 0, last: int | None = None, **arguments: Any) -> dict[str, Any]:
    return executed(task(first, last, **arguments))


def counts(result: dict[str, Any]) -> tuple[int, int, int]:
    return result["inserted"], result["changed"], result["unchanged"]


def names(warehouse: SqlDatabase) -> list[str]:
    return [name for (name,) in warehouse.query(f"SELECT mail_name FROM {STATS} ORDER BY mail_name")]


def last_read(warehouse: SqlDatabase, table: str = STATS) -> dict[str, Any]:
    """When each day was last read whole."""
    if "mail_loads" not in warehouse.tables():
        return {}
    return dict(warehouse.query(f"SELECT part, observed_at FROM mail_loads WHERE table_name = '{table}' ORDER BY part"))


def marked(warehouse: SqlDatabase) -> list[str]:
    return [name for (name,) in warehouse.query("SELECT mail_name FROM mail_campaign_stats WHERE gone_at IS NOT NULL")]


def history(warehouse: SqlDatabase, table: str = SNAPSHOTS) -> list[tuple[Any, ...]]:
    columns = "mail_name, observed_day, sent_count, open_count, open_rate"
    rows = warehouse.query(f"SELECT {columns} FROM {table} ORDER BY 1, 2")
    return [(name, str(observed), *rest) for name, observed, *rest in rows]


@pytest.fixture
def march(emulator: Emulator) -> Emulator:
    """Three campaigns on each of ten days, and the time a day after the last."""
    emulator.clock.set(datetime.datetime(2024, 3, 12, tzinfo=UTC))
    emulator.clock.freeze()
    emulator.add_campaigns(30, first_day=DAY, per_day=3)
    return emulator


# --- what is in the tables; each column is in `tests/warehouse/test_stats.py` ---


def test_the_rows_of_campaigns(run: Run, emulator: Emulator, any_warehouse: SqlDatabase, connect: Connect) -> None:
    connect(team_name="Marketing", sandbox=True)  # reading sends nothing
    sent_at = datetime.datetime(2024, 3, 2, 23, 59, 59, tzinfo=UTC)
    for name, sent, opened in (("Frühling 春", 200, 50), ("empty", 0, 0)):
        emulator.add_campaign(name, send_date=sent_at, sent=sent)
        emulator.set_campaign_stats(name, sentCount=sent, openCount=opened)

    done = run(task)

    columns = "mail_conn_id, mail_name, team, sent_count, open_count, open_rate"
    assert any_warehouse.query(f"SELECT {columns} FROM {STATS} ORDER BY sent_count") == [
        ("mail_default", "empty", "Marketing", 0, 0, 0.0),
        ("mail_default", "Frühling 春", "Marketing", 200, 50, 25.0),
    ]
    assert done.returned == {
        "table": "mail_campaign_stats", "start_day": "2024-03-02", "end_day": "2024-03-02",
        "records": 2, "inserted": 2, "changed": 0, "unchanged": 0, "outdated": 0,
    }  # fmt: skip
    assert any_warehouse.tables() == {STATS}  # a single day may not be whole, so it is not recorded
    (entry,) = emulator.journal.entries(CAMPAIGN_STATS)
    assert "sandboxMode" not in entry["body"]


def test_days_of_transactional_mail_are_restated(emulator: Emulator, any_warehouse: SqlDatabase) -> None:
    for opened, expected in ((1, (2, 0, 0)), (10, (0, 1, 1)), (10, (0, 0, 2))):
        emulator.set_transactional_day(DAY, sentCount=40, openCount=opened)
        result = load(0, 1, path=TRANSACTIONAL_STATS, table="days")
        assert (counts(result), result["missing_days"]) == (expected, 0)
    rows = any_warehouse.query("SELECT stats_date, sent_count, open_count FROM days ORDER BY stats_date")
    assert [(str(date), *numbers) for date, *numbers in rows] == [(day(0), 40, 10), (day(1), 0, 0)]


def test_a_missing_day_is_not_zero(run: Run, march: Emulator, warehouse: SqlDatabase) -> None:
    march.set_transactional_day(DAY, sentCount=40)
    assert load(0, 3, path=TRANSACTIONAL_STATS)["missing_days"] == 0
    before = last_read(warehouse, DAYS)
    march.clock.advance(seconds=1)
    march.settings.stats_empty_days = False
    march.set_transactional_day(DAY + datetime.timedelta(days=1), sentCount=50)
    march.faults.add("short_stats", TRANSACTIONAL_STATS, count=1, missing=1)  # read again, and complete

    done = run(lambda: task(0, 4, path=TRANSACTIONAL_STATS))

    assert (done.returned["records"], done.returned["missing_days"]) == (2, 3)
    assert "leaves out 3 days, whose rows are kept: 2024-03-04, 2024-03-05, 2024-03-06" in done.log
    march.faults.add("short_stats", TRANSACTIONAL_STATS, count=None, missing=99)
    later = last_read(warehouse, DAYS)
    assert [date for date in later if later[date] > before[date]] == [day(0), day(1)]
    assert load(0, 1, path=TRANSACTIONAL_STATS)["missing_days"] == 2
    rows = warehouse.query(f"SELECT stats_date, sent_count FROM {DAYS} ORDER BY 1")
    assert rows == [(day(0), 40), (day(1), 50), (day(2), 0), (day(3), 0)]


def test_filtered_statistics_are_no_whole_day(march: Emulator, warehouse: SqlDatabase) -> None:
    march.add_campaign("spring", send_date=datetime.datetime(2024, 3, 2, tzinfo=UTC))
    march.add_campaign("spring test", send_date=datetime.datetime(2024, 3, 2, tzinfo=UTC), type="ABTest")
    assert load(**ALL, mail_name="spring", type="ABTest")["records"] == 1
    assert names(warehouse) == ["spring test"]
    for filters in ({"mail_name": "campaign"}, {"type": "MailList"}):
        load(**ALL, **filters)
    assert warehouse.tables() == {STATS}


# --- snapshots ---


def test_snapshots_keep_the_last_counts_of_a_day(march: Emulator, any_warehouse: SqlDatabase) -> None:
    """Days are those in UTC: the last observation is at one o'clock on the seventh in Tokyo."""
    name = "campaign-000000"
    for moment, opens in (("03T01Z", 5), ("03T23Z", 8), ("04T01Z", 8), ("07T01+09:00", 20)):
        march.clock.set(datetime.datetime.fromisoformat(f"2024-03-{moment}"))
        march.set_campaign_stats(name, sentCount=40, openCount=opens)
        assert load(mail_name=name, snapshots=True)["snapshots_table"] == SNAPSHOTS
    days = (("03", 8, 20.0), ("04", 8, 20.0), ("06", 20, 50.0))
    assert history(any_warehouse) == [(name, f"2024-03-{day}", 40, opens, rate) for day, opens, rate in days]


def test_snapshots_are_loaded_first(march: Emulator, warehouse: SqlDatabase) -> None:
    """Tomorrow the service returns the latest counts again, but not those of today."""
    warehouse.execute("CREATE TABLE mail_campaign_stats (mail_conn_id TEXT, mail_name TEXT)")
    assert "table mail_campaign_stats on connection 'warehouse'" in error_of(lambda: task(snapshots=True))
    assert len(history(warehouse)) == 3


# --- campaigns that are gone ---


def test_a_deleted_campaign_is_marked(march: Emulator, any_warehouse: SqlDatabase) -> None:
    """But not on the first and the last day, which may not be whole, and not by a load with a filter."""
    assert load(**ALL)["gone"] == 0
    remove_campaigns(march, "campaign-000000", "campaign-000013", "campaign-000029")
    assert load(**ALL, mail_name="campaign")["records"] == 27
    assert load(0)["records"] == 2
    assert marked(any_warehouse) == []
    assert [load(**ALL)["gone"] for _ in range(2)] == [1, 0]
    assert marked(any_warehouse) == ["campaign-000013"]
    assert len(names(any_warehouse)) == 30
    page = (ROOT / "docs" / "warehouse.md").read_text()
    (query,) = re.findall(r"^SELECT mail_conn_id, SUM\(sent_count\).*$", page, re.MULTILINE)
    assert any_warehouse.query(query) == any_warehouse.query(
        f"SELECT mail_conn_id, SUM(sent_count) FROM {STATS} WHERE mail_name <> 'campaign-000013' GROUP BY mail_conn_id"
    )


def test_a_campaign_that_left_the_window_is_not_gone(march: Emulator, warehouse: SqlDatabase) -> None:
    """Its send day moved, or its name was given to a campaign of another day: the service still has the name."""
    load(**ALL)
    left = ["campaign-000010", "campaign-000013", "campaign-000016"]
    remove_campaigns(march, *left)
    for name in left[:2]:
        march.add_campaign(name, send_date=datetime.datetime(2024, 4, 2, tzinfo=UTC))
    assert load(**ALL)["gone"] == 1
    assert marked(warehouse) == left[2:]
    assert {entry["body"].get("mailName") for entry in march.journal.entries(GET_CAMPAIGNS)} == set(left)


def test_an_empty_window_needs_a_permission(march: Emulator, warehouse: SqlDatabase) -> None:
    load(**ALL)
    read = last_read(warehouse)
    remove_campaigns(march)
    march.clock.advance(hours=1)
    with pytest.raises(UnconfirmedError, match=r"24 rows would become 0\. Nothing was removed; allow_empty=True"):
        load(**ALL)
    assert (march.journal.count(CAMPAIGN_STATS), marked(warehouse), last_read(warehouse)) == (3, [], read)
    assert load(**ALL, allow_empty=True)["gone"] == 24
    assert last_read(warehouse) != read


def test_one_short_response_marks_nothing(march: Emulator, warehouse: SqlDatabase) -> None:
    """One of 30, and a totalRecords that agrees: the second response is loaded, too, also as a snapshot."""
    load(**ALL)
    march.clock.advance(days=1)
    march.faults.add("empty_page", CAMPAIGN_STATS, count=1, keep=1, total=1)
    result = load(**ALL, snapshots=True)
    assert (result["records"], result["gone"], len(history(warehouse)), len(names(warehouse))) == (30, 0, 30, 30)


def test_an_empty_response_is_not_recorded_as_read(march: Emulator, warehouse: SqlDatabase) -> None:
    """Otherwise a load that asked earlier, and ends later, would store nothing, and a day would look fresh."""
    march.faults.add("empty_page", CAMPAIGN_STATS, count=1, total=0)
    assert load(**ALL)["records"] == 0
    assert last_read(warehouse) == {}
    march.clock.set(datetime.datetime(2024, 3, 11, 23, tzinfo=UTC))
    result = load(**ALL)
    assert (counts(result), result["outdated"]) == ((30, 0, 0), 0)


# --- responses that are short or wrong ---


def every(**values: Any) -> Callable[[list[dict[str, Any]]], object]:
    return lambda records: [record.update(values) for record in records]


WRONG_RECORDS: list[tuple[str, Callable[[list[dict[str, Any]]], object], str]] = [
    (CAMPAIGN_STATS, every(mailSendDate=1_700_000_000_000), "mailSendDate 2023-11-14T22:13:20Z"),
    (CAMPAIGN_STATS, lambda found: found[1].update(mailName=found[0]["mailName"]), "two records of one mailName"),
    (TRANSACTIONAL_STATS, every(statsDate="2024-03-03"), "a record has the statsDate 2024-03-03"),
    (TRANSACTIONAL_STATS, lambda found: found.append({**found[0], "sentCount": 7}), "two different records"),
]


@pytest.mark.parametrize(("path", "change", "words"), WRONG_RECORDS)
def test_wrong_records_are_not_loaded(
    march: Emulator, warehouse: SqlDatabase, path: str, change: Callable[[list[Any]], object], words: str
) -> None:
    with changed_records(march, path, change):
        assert words in error_of(lambda: task(path=path))
    assert warehouse.tables() == set()
