"""Statistics in the warehouse: what the service says, whole, restated, and the same however often it is loaded."""

from __future__ import annotations

import datetime
import json
import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)
from airflow_provider_mail.warehouse.errors import UnconfirmedError
from tests.api.wire import Wire, http
from tests.support.env import ROOT
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase
from tests.tasks.loading import (
    CAMPAIGN_STATS,
    GET_CAMPAIGNS,
    TRANSACTIONAL_STATS,
    UTC,
    changed_records,
    error_of,
    executed,
    remove_campaigns,
)

DAY = datetime.date(2024, 3, 2)
LOADS: dict[str, Any] = {
    CAMPAIGN_STATS: MailCampaignStatsToSqlOperator,
    TRANSACTIONAL_STATS: MailTransactionalStatsToSqlOperator,
}
COUNTS = ("sent_count", "open_count", "click_count", "hard_bounce", "soft_bounce", "unsent_count", "unsubscribe_count")
SNAPSHOTS = "mail_campaign_stats_snapshots"
ALL = {"first": 0, "last": 9}


def day(number: int) -> str:
    return (DAY + datetime.timedelta(days=number)).isoformat()


def task(first: int = 0, last: int | None = None, *, path: str = CAMPAIGN_STATS, **arguments: Any) -> Any:
    days = {"start_day": day(first), "end_day": day(first if last is None else last)}
    return LOADS[path](**{"task_id": TASK, "sql_conn_id": "warehouse"} | days | arguments)


def load(first: int = 0, last: int | None = None, **arguments: Any) -> dict[str, Any]:
    return executed(task(first, last, **arguments))


def counts(result: dict[str, Any]) -> tuple[int, int, int]:
    return result["inserted"], result["changed"], result["unchanged"]


def stored(warehouse: SqlDatabase, *names: str) -> list[tuple[Any, ...]]:
    columns = ", ".join(("mail_conn_id", "mail_name", *(names or COUNTS)))
    return warehouse.query(f"SELECT {columns} FROM mail_campaign_stats ORDER BY mail_conn_id, mail_name")


def in_service(emulator: Emulator, conn_id: str = "mail_default") -> list[tuple[Any, ...]]:
    """What the emulator counts, as the rows of the table should say it."""
    fields = ("sentCount", "openCount", "clickCount", "hardBounce", "softBounce", "unsentCount", "unsubscribeCount")
    return [
        (conn_id, campaign["mailName"], *(campaign["mailStats"][name] for name in fields))
        for campaign in sorted(emulator.campaigns(), key=lambda campaign: str(campaign["mailName"]))
    ]


def last_read(warehouse: SqlDatabase, table: str = "mail_campaign_stats") -> dict[str, Any]:
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


# --- what is in the tables ---


def test_the_row_of_a_campaign(run: Run, emulator: Emulator, any_warehouse: SqlDatabase, connect: Connect) -> None:
    connect(team_name="Marketing", sandbox=True)  # reading sends nothing
    sent_at = datetime.datetime(2024, 3, 2, 23, 59, 59, tzinfo=UTC)
    emulator.add_campaign("Frühling 春", send_date=sent_at)
    numbers = (200, 50, 5, 3, 7, 11, 1)
    wire = ("sentCount", "openCount", "clickCount", "hardBounce", "softBounce", "unsentCount", "unsubscribeCount")
    emulator.set_campaign_stats("Frühling 春", **dict(zip(wire, numbers, strict=True)))
    emulator.add_campaign("empty", send_date=sent_at, sent=0)
    before = datetime.datetime.now(UTC)

    done = run(task)

    assert done.state == "success", done.log
    rates = ("open_rate", "click_rate", "bounce_rate", "unsubscribe_rate")
    assert stored(any_warehouse, "team", *COUNTS, *rates) == [
        ("mail_default", "Frühling 春", "Marketing", *numbers, 25.0, 2.5, 5.0, 0.5),
        ("mail_default", "empty", "Marketing", *[0] * 7, *[0.0] * 4),
    ]
    times = any_warehouse.query("SELECT mail_send_date, observed_at FROM mail_campaign_stats LIMIT 1")[0]
    if any_warehouse.is_sqlite:
        times = tuple(datetime.datetime.fromisoformat(f"{text}+00:00") for text in times)
    assert times[0] == sent_at
    assert before <= times[1] <= datetime.datetime.now(UTC)
    days = {"start_day": "2024-03-02", "end_day": "2024-03-02"}
    result = {"records": 2, "inserted": 2, "changed": 0, "unchanged": 0, "outdated": 0}
    assert done.returned == {"table": "mail_campaign_stats", **days, **result}
    assert any_warehouse.tables() == {"mail_campaign_stats"}  # a single day may not be whole, so it is not recorded
    (entry,) = emulator.journal.entries(CAMPAIGN_STATS)
    assert "sandboxMode" not in entry["body"]


def test_days_of_transactional_mail_are_restated(emulator: Emulator, any_warehouse: SqlDatabase) -> None:
    sent = {"sentCount": 40, "clickCount": 2, "bounceCount": 1, "unsentCount": 3, "unsubscribeCount": 4}
    for opened, expected in ((1, (3, 0, 0)), (10, (0, 1, 2)), (10, (0, 0, 3))):
        emulator.set_transactional_day(DAY, openCount=opened, **sent)
        result = load(-1, 1, path=TRANSACTIONAL_STATS, table="days")
        assert (counts(result), result["missing_days"]) == (expected, 0)

    columns = "sent_count, open_count, click_count, bounce_count, unsent_count, unsubscribe_count"
    rates = "open_rate, click_rate, unsubscribe_rate"
    rows = any_warehouse.query(f"SELECT stats_date, {columns}, {rates} FROM days ORDER BY stats_date")
    assert [(str(date), *rest) for date, *rest in rows] == [
        ("2024-03-01", *[0] * 6, 0.0, 0.0, 0.0),
        ("2024-03-02", 40, 10, 2, 1, 3, 4, 25.0, 5.0, 10.0),
        ("2024-03-03", *[0] * 6, 0.0, 0.0, 0.0),
    ]


def test_a_missing_day_is_not_zero(run: Run, march: Emulator, any_warehouse: SqlDatabase) -> None:
    table = "mail_transactional_stats"

    def days() -> dict[str, int]:
        return {str(date): sent for date, sent in any_warehouse.query(f"SELECT stats_date, sent_count FROM {table}")}

    march.set_transactional_day(DAY, sentCount=40)
    assert load(0, 3, path=TRANSACTIONAL_STATS)["missing_days"] == 0
    before = last_read(any_warehouse, table)
    march.clock.advance(seconds=1)
    march.settings.stats_empty_days = False
    march.set_transactional_day(DAY + datetime.timedelta(days=1), sentCount=50)
    march.faults.add("short_stats", TRANSACTIONAL_STATS, count=1, missing=1)  # read again, and complete

    done = run(lambda: task(0, 4, path=TRANSACTIONAL_STATS))

    assert (done.returned["records"], done.returned["missing_days"]) == (2, 3)
    assert "leaves out 3 days, whose rows are kept: 2024-03-04, 2024-03-05, 2024-03-06" in done.log
    assert days() == {day(0): 40, day(1): 50, day(2): 0, day(3): 0}
    later = last_read(any_warehouse, table)
    assert [date for date in later if later[date] > before[date]] == [day(0), day(1)]

    march.faults.add("short_stats", TRANSACTIONAL_STATS, count=None, missing=99)
    assert load(0, 1, path=TRANSACTIONAL_STATS)["missing_days"] == 2
    assert days()[day(0)] == 40


def test_filtered_statistics_are_no_whole_day(run: Run, march: Emulator, warehouse: SqlDatabase) -> None:
    march.add_campaign("spring", send_date=datetime.datetime(2024, 3, 2, tzinfo=UTC))
    march.add_campaign("spring test", send_date=datetime.datetime(2024, 3, 2, tzinfo=UTC), type="ABTest")
    assert load(**ALL, mail_name="spring", type="ABTest")["records"] == 1
    assert [name for _, name, *_ in stored(warehouse)] == ["spring test"]
    for filters in ({"mail_name": "campaign"}, {"type": "MailList"}):
        load(**ALL, **filters)
    assert warehouse.tables() == {"mail_campaign_stats"}
    requests = march.journal.count()
    done = run(lambda: task(type="{{ 'Other' }}", retries=2))
    assert (done.state, done.tries, march.journal.count()) == ("failed", 1, requests)
    assert "type: " in done.log


def test_two_connections_share_a_table(march: Emulator, any_warehouse: SqlDatabase, connect: Connect) -> None:
    connect("mail_team", team_name="Team 2")
    for conn_id in ("mail_default", "mail_team", "mail_default"):
        load(**ALL, mail_conn_id=conn_id)
    assert stored(any_warehouse) == in_service(march) + in_service(march, "mail_team")
    teams = any_warehouse.query("SELECT DISTINCT mail_conn_id, team FROM mail_campaign_stats ORDER BY 1")
    assert teams == [("mail_default", None), ("mail_team", "Team 2")]


# --- snapshots ---


def test_snapshots_keep_the_last_counts_of_a_day(march: Emulator, any_warehouse: SqlDatabase) -> None:
    """Days are those in UTC: the last observation is at one o'clock on the seventh in Tokyo."""
    name = "campaign-000000"
    east = datetime.timezone(datetime.timedelta(hours=9))
    for moment, zone, opens in (
        ((2024, 3, 3, 1), UTC, 5), ((2024, 3, 3, 23), UTC, 8), ((2024, 3, 4, 1), UTC, 8), ((2024, 3, 7, 1), east, 20),
    ):  # fmt: skip
        march.clock.set(datetime.datetime(*moment, tzinfo=zone))
        march.set_campaign_stats(name, sentCount=40, openCount=opens)
        result = load(mail_name=name, snapshots=True)

    assert history(any_warehouse) == [
        (name, "2024-03-03", 40, 8, 20.0),
        (name, "2024-03-04", 40, 8, 20.0),
        (name, "2024-03-06", 40, 20, 50.0),
    ]
    assert stored(any_warehouse, "open_count") == [("mail_default", name, 20)]
    assert result["snapshots_table"] == SNAPSHOTS


@pytest.mark.not_unit
@pytest.mark.parametrize("chosen", [None, "history"])
def test_snapshots_are_beside_their_table(
    march: Emulator, make_database: Callable[[str, str], SqlDatabase], chosen: str | None
) -> None:
    """In the schema of its name, or in the one in which the database finds it."""
    warehouse = make_database("postgres", "warehouse")
    for schema in ("one", "two", '"Post"'):
        warehouse.execute(f"CREATE SCHEMA {schema}")
    load(table='"Post"."All of it"', snapshots=True)
    assert len(history(warehouse, '"Post"."All of it_snapshots"')) == 3

    load(table="two.mail_campaign_stats")
    alter = "EXECUTE format('ALTER DATABASE %I SET search_path = one, two', current_database())"
    warehouse.execute(f"DO $$ BEGIN {alter}; END $$")
    result = load(snapshots=True, snapshots_table=chosen)
    assert (result["unchanged"], result["snapshots_table"]) == (3, chosen or SNAPSHOTS)
    assert warehouse.query("SELECT count(*) FROM pg_tables WHERE schemaname = 'one'") == [(0,)]
    assert len(history(warehouse, f"two.{chosen or SNAPSHOTS}")) == 3


def test_snapshots_are_loaded_first(march: Emulator, any_warehouse: SqlDatabase) -> None:
    """Tomorrow the service returns the latest counts again, but not those of today."""
    any_warehouse.execute("CREATE TABLE mail_campaign_stats (mail_conn_id TEXT, mail_name TEXT)")
    assert "table mail_campaign_stats on connection 'warehouse'" in error_of(lambda: task(snapshots=True))
    assert len(history(any_warehouse)) == 3
    any_warehouse.execute("DROP TABLE mail_campaign_stats")
    load(snapshots=True)
    assert (len(history(any_warehouse)), stored(any_warehouse)) == (3, in_service(march)[:3])


# --- again and again ---


def test_twice_is_once(march: Emulator, any_warehouse: SqlDatabase) -> None:
    def observed() -> list[Any]:
        return [at for (at,) in any_warehouse.query("SELECT observed_at FROM mail_campaign_stats ORDER BY mail_name")]

    assert counts(load(**ALL)) == (30, 0, 0)
    rows, before, read_before = stored(any_warehouse), observed(), last_read(any_warehouse)
    march.clock.advance(seconds=1)
    assert counts(load(**ALL)) == (0, 0, 30)
    assert stored(any_warehouse) == rows == in_service(march)
    # Only the records of when the days were read are new, and the rows of the days that may not be whole.
    later, read_later = observed(), last_read(any_warehouse)
    assert [number for number in range(30) if later[number] != before[number]] == [0, 1, 2, 27, 28, 29]
    assert list(read_later) == list(read_before) == [day(number) for number in range(1, 9)]
    assert set(read_before.values()) == {before[5]}
    assert set(read_later.values()) == {later[0]}
    assert later[0] > before[0]


def test_late_opens_are_restated_in_any_order(march: Emulator, any_warehouse: SqlDatabase) -> None:
    for offset in (5, 0, 9, 5, 1, 2, 8, 7, 6, 3, 4):
        load(offset)
    early = stored(any_warehouse)
    assert early == in_service(march)
    march.clock.advance(days=3)
    assert load(5, 9)["changed"] > 0
    assert stored(any_warehouse) == early[:15] + in_service(march)[15:] != early
    load(**ALL)
    assert stored(any_warehouse) == in_service(march)


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
    assert len(stored(any_warehouse)) == 30
    # The sums that the documentation's query gives.
    page = (ROOT / "docs" / "warehouse.md").read_text()
    (query,) = re.findall(r"^SELECT mail_conn_id, SUM\(sent_count\).*$", page, re.MULTILINE)
    living = sum(sent for _, name, sent in stored(any_warehouse, "sent_count") if name != "campaign-000013")
    assert any_warehouse.query(query) == [("mail_default", living)]

    any_warehouse.execute("UPDATE mail_campaign_stats SET gone_at = observed_at WHERE mail_name = 'campaign-000014'")
    assert load(**ALL)["changed"] == 1
    assert marked(any_warehouse) == ["campaign-000013"]


def test_a_campaign_that_left_the_window_is_not_gone(march: Emulator, any_warehouse: SqlDatabase) -> None:
    """Its send day moved, or its name was given to a campaign of another day: the service still has the name."""
    load(**ALL)
    names = ["campaign-000010", "campaign-000013", "campaign-000016"]
    remove_campaigns(march, *names)
    for name in names[:2]:
        march.add_campaign(name, send_date=datetime.datetime(2024, 4, 2, tzinfo=UTC))
    assert load(**ALL)["gone"] == 1
    assert marked(any_warehouse) == names[2:]
    assert {entry["body"].get("mailName") for entry in march.journal.entries(GET_CAMPAIGNS)} == set(names)


def test_an_empty_window_needs_a_permission(march: Emulator, any_warehouse: SqlDatabase) -> None:
    load(**ALL)
    read = last_read(any_warehouse)
    remove_campaigns(march)
    march.clock.advance(hours=1)
    requests = march.journal.count(CAMPAIGN_STATS)
    with pytest.raises(UnconfirmedError, match=r"24 rows would become 0\. Nothing was removed; allow_empty=True"):
        load(**ALL)
    assert march.journal.count(CAMPAIGN_STATS) == requests + 2
    assert (marked(any_warehouse), last_read(any_warehouse)) == ([], read)
    assert load(**ALL, allow_empty=True)["gone"] == 24
    assert last_read(any_warehouse) != read


@pytest.mark.parametrize("kept", [0, 1])
def test_one_short_response_marks_nothing(march: Emulator, any_warehouse: SqlDatabase, kept: int) -> None:
    """One of 30, and a totalRecords that agrees: the second response is loaded, too, also as a snapshot."""
    load(**ALL)
    march.clock.advance(days=1)
    march.faults.add("empty_page", CAMPAIGN_STATS, count=1, keep=kept, total=kept)
    result = load(**ALL, snapshots=True)
    assert (result["records"], result["gone"]) == (30, 0)
    assert stored(any_warehouse) == in_service(march)
    assert len(history(any_warehouse)) == 30


def test_an_empty_response_is_not_recorded_as_read(march: Emulator, any_warehouse: SqlDatabase) -> None:
    """Otherwise a load that asked earlier, and ends later, would store nothing, and a day would look fresh."""
    march.faults.add("empty_page", CAMPAIGN_STATS, count=1, total=0)
    assert load(**ALL)["records"] == 0
    assert last_read(any_warehouse) == {}
    march.clock.set(datetime.datetime(2024, 3, 11, 23, tzinfo=UTC))
    result = load(**ALL)
    assert (counts(result), result["outdated"]) == ((30, 0, 0), 0)


# --- responses that are short, lost or wrong ---


def test_a_short_response_is_read_again_in_halves(march: Emulator, any_warehouse: SqlDatabase) -> None:
    march.faults.add("short_stats", CAMPAIGN_STATS, count=3, missing=2)
    assert counts(load(**ALL, snapshots=True)) == (30, 0, 0)
    assert stored(any_warehouse) == in_service(march)
    assert (len(history(any_warehouse)), march.journal.count(CAMPAIGN_STATS)) == (30, 7)


def test_a_day_that_stays_short_is_not_loaded(march: Emulator, any_warehouse: SqlDatabase) -> None:
    load(5)
    rows = stored(any_warehouse)
    march.faults.add("short_stats", CAMPAIGN_STATS, count=None, missing=1)
    assert "2 records came for 2024-03-02, the service says there are 3" in error_of(lambda: task(0, 9, snapshots=True))
    assert stored(any_warehouse) == rows
    assert SNAPSHOTS not in any_warehouse.tables()


def every(**values: Any) -> Callable[[list[dict[str, Any]]], object]:
    return lambda records: [record.update(values) for record in records]


WRONG_RECORDS: list[tuple[str, Callable[[list[dict[str, Any]]], object], str]] = [
    (CAMPAIGN_STATS, every(sentCount="many"), "mailStatsList[0].sentCount"),
    (CAMPAIGN_STATS, every(mailName=None), "mailStatsList[0].mailName"),
    (CAMPAIGN_STATS, every(mailSendDate=1_700_000_000_000), "mailSendDate 2023-11-14T22:13:20Z"),
    (CAMPAIGN_STATS, lambda found: found[1].update(mailName=found[0]["mailName"]), "two records of one mailName"),
    (TRANSACTIONAL_STATS, every(bounceCount="few"), "mailStatsList[0].bounceCount"),
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


ERRORS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"kind": "code_before", "code": 400, "message": "no such thing"}, {}, "no such thing"),
    ({"kind": "html_before"}, {}, "check that the connection's host is the service's address"),
    ({"kind": "code_before", "code": 401}, {}, "connection 'mail_default'"),
    ({"kind": "wrong_total", "by": None}, {}, "no valid totalRecords"),
    ({"kind": "wrong_total", "by": -1000}, {}, "no valid totalRecords"),
    ({}, {"sql_conn_id": "mail_default"}, "sql_conn_id: connection 'mail_default'"),
    ({}, {"snapshots_table": "mail_campaign_stats"}, "snapshots_table: 'mail_campaign_stats' cannot be its name"),
    ({}, {"snapshots": True, "table": "t" * 60}, "snapshots_table: "),
    ({}, {"snapshots_table": "a.b.c.d"}, "snapshots_table: 'a.b.c.d' cannot be its name"),
]


@pytest.mark.parametrize(("fault", "arguments", "words"), ERRORS)
def test_errors_load_nothing(
    march: Emulator, warehouse: SqlDatabase, fault: dict[str, Any], arguments: dict[str, Any], words: str
) -> None:
    if fault:
        march.faults.add(operation=CAMPAIGN_STATS, count=None, **fault)
    assert words in error_of(lambda: task(**arguments))
    assert warehouse.tables() == set()
    assert bool(march.journal.count()) == bool(fault)


def test_memory_grows_by_a_compact_record_each(
    make_database: Callable[[str, str], SqlDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body and its records in compact form; the models would be some 20 MB more."""
    make_database("postgres", "warehouse")
    counted = dict.fromkeys(("sentCount", "openCount", "clickCount", "hardBounce", "softBounce"), 1)
    counted |= {"mailSendDate": 1_709_380_800_000, "unsentCount": 0, "unsubscribeCount": 0}
    peaks = []
    with Wire() as wire:
        connection = {"conn_type": "mail", "host": wire.base_url, "password": "a key of some length"}
        monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps(connection))
        for count in (2_000, 2_000, 20_000):
            records = [{"mailName": f"campaign {number}", **counted} for number in range(count)]
            wire.answer = http(json.dumps({"code": 200, "mailStatsList": records, "totalRecords": count}).encode())
            del records
            tracemalloc.start()
            assert load()["records"] == count
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[2] - peaks[1] < 700 * 18_000, peaks  # before the first everything is imported
