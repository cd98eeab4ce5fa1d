"""Statistics in the warehouse: what the service says, whole, restated, and the same however often it is loaded."""

from __future__ import annotations

import datetime
import json
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_mail.api.campaigns import GetCampaignStats
from airflow_provider_mail.api.flows import statistics
from airflow_provider_mail.api.transactional import GetTransactionalStats
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)
from tests.api.wire import Wire, http
from tests.tasks.conftest import TASK, Done, Run, SqlDatabase

CAMPAIGNS, TRANSACTIONAL = "campaign/mail/stats/get", "transactional/mail/stats/get"
DAY = datetime.date(2024, 3, 2)
ROOT = Path(__file__).parents[2]
COUNTS = ("sent_count", "open_count", "click_count", "hard_bounce", "soft_bounce", "unsent_count", "unsubscribe_count")
DAY_COUNTS = ("sent_count", "open_count", "click_count", "bounce_count", "unsent_count", "unsubscribe_count")


def campaigns(first: datetime.date = DAY, last: datetime.date | None = None, **arguments: Any) -> Any:
    days = {"start_day": first.isoformat(), "end_day": (last or first).isoformat()}
    return lambda: MailCampaignStatsToSqlOperator(task_id=TASK, sql_conn_id="warehouse", **days | arguments)


def transactional(first: datetime.date = DAY, last: datetime.date | None = None, **arguments: Any) -> Any:
    days = {"start_day": first.isoformat(), "end_day": (last or first).isoformat()}
    return lambda: MailTransactionalStatsToSqlOperator(task_id=TASK, sql_conn_id="warehouse", **days | arguments)


def after(days: int) -> datetime.date:
    return DAY + datetime.timedelta(days=days)


def stored(warehouse: SqlDatabase, *names: str, table: str = "mail_campaign_stats") -> list[tuple[Any, ...]]:
    key = "stats_date" if "transactional" in table else "mail_name"
    columns = ("mail_conn_id", key, *(names or COUNTS))
    rows = warehouse.query(f"SELECT {', '.join(columns)} FROM {table} ORDER BY mail_conn_id, {key}")
    return [(conn_id, str(identity), *rest) for conn_id, identity, *rest in rows]


def in_service(emulator: Emulator, conn_id: str = "mail_default") -> list[tuple[Any, ...]]:
    """What the emulator counts, as the rows of the table should say it."""
    wire = ("sentCount", "openCount", "clickCount", "hardBounce", "softBounce", "unsentCount", "unsubscribeCount")
    return [
        (conn_id, campaign["mailName"], *(campaign["mailStats"][name] for name in wire))
        for campaign in sorted(emulator.campaigns(), key=lambda campaign: str(campaign["mailName"]))
        if campaign["mailStats"]
    ]


def observed(warehouse: SqlDatabase) -> list[Any]:
    """The time of observation of each campaign, by name."""
    return [at for (at,) in warehouse.query("SELECT observed_at FROM mail_campaign_stats ORDER BY mail_name")]


def asked(warehouse: SqlDatabase, table: str = "mail_campaign_stats") -> dict[str, Any]:
    """When each day was last asked for."""
    where = f"table_name = '{table}' AND mail_conn_id = 'mail_default'"
    return dict(warehouse.query(f"SELECT part, observed_at FROM mail_loads WHERE {where} ORDER BY part"))


def requests(emulator: Emulator, path: str = CAMPAIGNS) -> int:
    return emulator.journal.count(path)


def counts(done: Done) -> tuple[int, int, int]:
    return done.returned["inserted"], done.returned["changed"], done.returned["unchanged"]


@pytest.fixture
def march(emulator: Emulator) -> Emulator:
    """Three campaigns on each of ten days, and the time a day after the last."""
    emulator.clock.set(datetime.datetime(2024, 3, 12, tzinfo=datetime.UTC))
    emulator.clock.freeze()
    emulator.add_campaigns(30, first_day=DAY, per_day=3)
    return emulator


# --- what is in the tables ---


def test_a_campaign_s_row(run: Run, emulator: Emulator, any_warehouse: SqlDatabase, connect: Any) -> None:
    connect(team_name="Marketing")
    sent_at = datetime.datetime(2024, 3, 2, 23, 59, 59, tzinfo=datetime.UTC)
    emulator.add_campaign("Frühling 春", send_date=sent_at)
    emulator.set_campaign_stats(
        "Frühling 春", sentCount=200, openCount=50, clickCount=5, hardBounce=3, softBounce=7, unsentCount=11,
        unsubscribeCount=1,
    )  # fmt: skip
    before = datetime.datetime.now(datetime.UTC)

    done = run(campaigns())

    assert done.state == "success", done.log
    rates = ("open_rate", "click_rate", "bounce_rate", "unsubscribe_rate")
    assert stored(any_warehouse, "team", *COUNTS, *rates) == [
        ("mail_default", "Frühling 春", "Marketing", 200, 50, 5, 3, 7, 11, 1, 25.0, 2.5, 5.0, 0.5)
    ]
    ((sent, observed),) = any_warehouse.query("SELECT mail_send_date, observed_at FROM mail_campaign_stats")
    if any_warehouse.is_sqlite:
        sent, observed = (datetime.datetime.fromisoformat(f"{text}+00:00") for text in (sent, observed))
    assert sent == sent_at
    assert before <= observed <= datetime.datetime.now(datetime.UTC)
    assert done.returned == {
        "table": "mail_campaign_stats",
        "start_day": "2024-03-02",
        "end_day": "2024-03-02",
        "records": 1,
        "inserted": 1,
        "changed": 0,
        "unchanged": 0,
        "outdated": 0,
    }


def test_nothing_sent_has_no_rates(run: Run, emulator: Emulator, any_warehouse: SqlDatabase) -> None:
    emulator.add_campaign("empty", send_date=datetime.datetime(2024, 3, 2, tzinfo=datetime.UTC), sent=0)

    assert run(campaigns()).state == "success"

    assert stored(any_warehouse, "open_rate", "bounce_rate") == [("mail_default", "empty", 0.0, 0.0)]


def test_a_day_of_transactional_mail(run: Run, emulator: Emulator, any_warehouse: SqlDatabase) -> None:
    emulator.set_transactional_day(
        DAY, sentCount=40, openCount=10, clickCount=2, bounceCount=1, unsentCount=3, unsubscribeCount=4
    )

    done = run(transactional(after(-1), after(1), table="days"))

    assert done.state == "success", done.log
    rates = ("open_rate", "click_rate", "unsubscribe_rate")
    rows = any_warehouse.query(f"SELECT stats_date, {', '.join((*DAY_COUNTS, *rates))} FROM days ORDER BY stats_date")
    assert [(str(day), *rest) for day, *rest in rows] == [
        ("2024-03-01", 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0),
        ("2024-03-02", 40, 10, 2, 1, 3, 4, 25.0, 5.0, 10.0),
        ("2024-03-03", 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0),
    ]
    assert (done.returned["table"], done.returned["records"]) == ("days", 3)


def test_a_window_holds_both_of_its_ends_and_no_more(run: Run, march: Emulator, any_warehouse: SqlDatabase) -> None:
    done = run(campaigns(after(2), after(4)))

    assert done.returned["records"] == 9
    names = [name for _, name, *_ in stored(any_warehouse)]
    assert names == [f"campaign-{number:06}" for number in range(6, 15)]
    assert requests(march) == 1


def test_filters_are_the_service_s(run: Run, emulator: Emulator, warehouse: SqlDatabase) -> None:
    moment = datetime.datetime(2024, 3, 2, tzinfo=datetime.UTC)
    emulator.add_campaign("spring", send_date=moment)
    emulator.add_campaign("spring test", send_date=moment, type="ABTest")
    emulator.add_campaign("summer test", send_date=moment, type="ABTest")

    assert run(campaigns(mail_name="spring", type="ABTest")).returned["records"] == 1
    assert [name for _, name, *_ in stored(warehouse)] == ["spring test"]

    asked = requests(emulator)
    wrong = run(campaigns(type="{{ 'Other' }}", retries=2))
    assert (wrong.state, wrong.tries) == ("failed", 1)
    assert "type: " in wrong.log
    assert requests(emulator) == asked


# --- days of which nothing is told ---


def days_of(warehouse: SqlDatabase) -> dict[str, int]:
    return {
        str(day): sent for day, sent in warehouse.query("SELECT stats_date, sent_count FROM mail_transactional_stats")
    }


def test_a_day_without_mail_is_zero_and_a_day_without_record_is_missing(
    run: Run, march: Emulator, any_warehouse: SqlDatabase
) -> None:
    march.settings.stats_empty_days = False
    for day in (DAY, after(2), after(3)):
        march.set_transactional_day(day, sentCount=40)
    march.set_transactional_day(after(4), sentCount=0)

    done = run(transactional(DAY, after(5)))

    assert days_of(any_warehouse) == {"2024-03-02": 40, "2024-03-04": 40, "2024-03-05": 40, "2024-03-06": 0}
    assert (done.returned["records"], done.returned["missing_days"]) == (4, 2)
    assert "leaves out 2 days, whose rows are kept: 2024-03-03, 2024-03-07" in done.log


def test_a_day_that_was_there_is_not_overwritten_by_nothing(
    run: Run, march: Emulator, any_warehouse: SqlDatabase
) -> None:
    march.set_transactional_day(DAY, sentCount=40)
    assert run(transactional(DAY, after(1))).returned["missing_days"] == 0
    assert days_of(any_warehouse) == {"2024-03-02": 40, "2024-03-03": 0}
    march.faults.add("short_stats", TRANSACTIONAL, count=None, missing=2)

    done = run(transactional(DAY, after(1)))

    assert done.state == "success", done.log
    assert (done.returned["records"], done.returned["missing_days"]) == (0, 2)
    assert days_of(any_warehouse) == {"2024-03-02": 40, "2024-03-03": 0}


def test_days_that_an_answer_has_no_room_for_are_asked_for_again(
    run: Run, march: Emulator, warehouse: SqlDatabase
) -> None:
    march.faults.add("short_stats", TRANSACTIONAL, missing=3)

    done = run(transactional(DAY, after(9)))

    assert (done.returned["records"], done.returned["missing_days"]) == (10, 0)
    asked = [(entry["body"]["startDate"], entry["body"]["endDate"]) for entry in march.journal.entries(TRANSACTIONAL)]
    assert asked == [("2024-03-02", "2024-03-11"), ("2024-03-09", "2024-03-11")]


# --- how the counts grew ---


def history(warehouse: SqlDatabase, table: str = "mail_campaign_stats_snapshots") -> list[tuple[Any, ...]]:
    columns = "mail_name, observed_day, sent_count, open_count, open_rate"
    return [
        (name, str(day), *rest) for name, day, *rest in warehouse.query(f"SELECT {columns} FROM {table} ORDER BY 1, 2")
    ]


def test_snapshots_keep_the_last_word_of_each_day(run: Run, march: Emulator, any_warehouse: SqlDatabase) -> None:
    name = "campaign-000000"
    for moment, opens in ((2024, 3, 3, 1), 5), ((2024, 3, 3, 23), 8), ((2024, 3, 4, 1), 8), ((2024, 3, 6, 1), 20):
        march.clock.set(datetime.datetime(*moment, tzinfo=datetime.UTC))
        march.set_campaign_stats(name, sentCount=40, openCount=opens)
        done = run(campaigns(mail_name=name, snapshots=True))
        assert done.state == "success", done.log

    assert history(any_warehouse) == [
        (name, "2024-03-03", 40, 8, 20.0),
        (name, "2024-03-04", 40, 8, 20.0),
        (name, "2024-03-06", 40, 20, 50.0),
    ]
    assert stored(any_warehouse, "open_count") == [("mail_default", name, 20)]
    assert done.returned["snapshots_table"] == "mail_campaign_stats_snapshots"


def test_the_day_of_an_observation_is_one_in_utc(run: Run, march: Emulator, warehouse: SqlDatabase) -> None:
    east = datetime.timezone(datetime.timedelta(hours=9))
    march.clock.set(datetime.datetime(2024, 3, 5, 1, tzinfo=east))

    run(campaigns(snapshots_table="history"))

    assert {day for _, day, *_ in history(warehouse, "history")} == {"2024-03-04"}


def test_snapshots_live_in_the_schema_of_their_table(
    run: Run, march: Emulator, make_database: Callable[[str, str], SqlDatabase]
) -> None:
    warehouse = make_database("postgres", "warehouse")
    warehouse.execute('CREATE SCHEMA "Post"')

    done = run(campaigns(table='"Post"."All of it"', snapshots=True))

    assert done.state == "success", done.log
    assert len(history(warehouse, '"Post"."All of it_snapshots"')) == 3


@pytest.mark.not_unit
@pytest.mark.parametrize("chosen", [None, "history"])
def test_snapshots_live_in_the_schema_in_which_the_database_finds_their_table(
    run: Run, march: Emulator, make_database: Callable[[str, str], SqlDatabase], chosen: str | None
) -> None:
    warehouse = make_database("postgres", "warehouse")
    for schema in ("one", "two"):
        warehouse.execute(f"CREATE SCHEMA {schema}")
    run(campaigns(table="two.mail_campaign_stats"))
    alter = "EXECUTE format('ALTER DATABASE %I SET search_path = one, two', current_database())"
    warehouse.execute(f"DO $$ BEGIN {alter}; END $$")
    name = chosen or "mail_campaign_stats_snapshots"
    done = run(campaigns(snapshots=True, snapshots_table=chosen))
    assert (done.returned["unchanged"], done.returned["snapshots_table"]) == (3, name)
    assert warehouse.query("SELECT count(*) FROM pg_tables WHERE schemaname = 'one'") == [(0,)]
    assert len(history(warehouse, f"two.{name}")) == 3


def test_no_snapshots_unless_asked_for(run: Run, march: Emulator, warehouse: SqlDatabase) -> None:
    assert "snapshots_table" not in run(campaigns()).returned
    assert warehouse.tables() == {"mail_campaign_stats"}  # nor notes of a single day, which may not be whole


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"snapshots_table": "mail_campaign_stats"}, "snapshots_table: 'mail_campaign_stats' cannot be its name"),
        ({"table": "t" * 60}, "snapshots_table: "),
        ({"snapshots_table": "a.b.c.d"}, "snapshots_table: 'a.b.c.d' cannot be its name"),
    ],
)
def test_a_name_that_snapshots_cannot_have(
    run: Run, march: Emulator, warehouse: SqlDatabase, arguments: dict[str, str], words: str
) -> None:
    done = run(campaigns(snapshots=True, retries=2, **arguments))
    assert (done.state, done.tries) == ("failed", 1)
    assert words in done.log
    assert requests(march) == 0
    assert warehouse.tables() == set()


def test_a_latest_state_that_cannot_be_loaded_leaves_a_history_that_is_true(
    run: Run, march: Emulator, any_warehouse: SqlDatabase
) -> None:
    any_warehouse.execute("CREATE TABLE mail_campaign_stats (mail_conn_id TEXT, mail_name TEXT)")

    assert run(campaigns(snapshots=True)).state == "failed"
    assert len(history(any_warehouse)) == 3

    any_warehouse.execute("DROP TABLE mail_campaign_stats")
    assert run(campaigns(snapshots=True)).state == "success"
    assert len(history(any_warehouse)) == 3
    assert stored(any_warehouse) == in_service(march)[:3]


# --- again and again ---


def test_twice_is_once(run: Run, march: Emulator, any_warehouse: SqlDatabase) -> None:
    first = run(campaigns(DAY, after(9)))
    rows = stored(any_warehouse)
    before, asked_before = observed(any_warehouse), asked(any_warehouse)
    march.clock.advance(seconds=1)
    second = run(campaigns(DAY, after(9)))

    assert counts(first) == (30, 0, 0)
    assert counts(second) == (0, 0, 30)
    assert stored(any_warehouse) == rows == in_service(march)
    # Only the notes of when the days were asked for are new, and the rows of the days that may not be whole.
    later, asked_later = observed(any_warehouse), asked(any_warehouse)
    edges = {0, 1, 2, 27, 28, 29}
    assert [number for number in range(30) if later[number] != before[number]] == sorted(edges)
    assert list(asked_later) == list(asked_before) == [after(number).isoformat() for number in range(1, 9)]
    assert set(asked_before.values()) == {before[5]}
    assert set(asked_later.values()) == {later[0]}
    assert later[0] > before[0]


def test_the_order_of_the_days_does_not_matter(run: Run, march: Emulator, any_warehouse: SqlDatabase) -> None:
    for offset in (5, 0, 9, 5, 1, 2, 8, 7, 6, 3, 4):
        assert run(campaigns(after(offset))).state == "success"

    assert stored(any_warehouse) == in_service(march)


def test_opens_that_come_late_are_restated(run: Run, march: Emulator, any_warehouse: SqlDatabase) -> None:
    run(campaigns(DAY, after(9)))
    early = stored(any_warehouse)
    march.clock.advance(days=3)

    restated = run(campaigns(after(5), after(9)))

    now = in_service(march)
    assert restated.returned["changed"] > 0
    assert stored(any_warehouse)[15:] == now[15:] != early[15:]
    assert stored(any_warehouse)[:15] == early[:15]

    run(campaigns(DAY, after(9)))
    assert stored(any_warehouse) == now


def test_transactional_days_are_restated(run: Run, emulator: Emulator, any_warehouse: SqlDatabase) -> None:
    emulator.set_transactional_day(DAY, sentCount=40, openCount=1)
    assert counts(run(transactional())) == (1, 0, 0)
    emulator.set_transactional_day(DAY, sentCount=40, openCount=30)
    assert counts(run(transactional())) == (0, 1, 0)
    assert counts(run(transactional())) == (0, 0, 1)

    assert any_warehouse.query("SELECT sent_count, open_count, open_rate FROM mail_transactional_stats") == [
        (40, 30, 75.0)
    ]


@pytest.mark.parametrize("filters", [{"mail_name": "campaign"}, {"type": "MailList"}])
def test_filtered_statistics_are_the_whole_of_no_day(
    run: Run, march: Emulator, warehouse: SqlDatabase, filters: dict[str, str]
) -> None:
    for _ in range(2):
        assert run(campaigns(DAY, after(9), **filters)).returned["records"] == 30
    assert len(set(observed(warehouse))) == 1  # that of the second
    assert warehouse.tables() == {"mail_campaign_stats"}


def test_a_day_that_was_not_told_was_not_seen(run: Run, march: Emulator, any_warehouse: SqlDatabase) -> None:
    assert run(transactional(DAY, after(3))).returned["missing_days"] == 0
    before = asked(any_warehouse, "mail_transactional_stats")
    march.clock.advance(seconds=1)
    march.settings.stats_empty_days = False
    march.set_transactional_day(after(1), sentCount=40)
    march.set_transactional_day(after(3), sentCount=0)

    assert counts(run(transactional(DAY, after(3)))) == (0, 1, 1)

    later = asked(any_warehouse, "mail_transactional_stats")
    assert [day for day in later if later[day] > before[day]] == ["2024-03-03", "2024-03-05"]
    assert len(later) == 4


def test_a_campaign_that_the_service_forgot_stays(run: Run, march: Emulator, any_warehouse: SqlDatabase) -> None:
    run(campaigns())
    rows = stored(any_warehouse)
    march.set_campaign_state("campaign-000001", "removed")

    done = run(campaigns())

    assert done.returned["records"] == 2
    assert stored(any_warehouse) == rows
    assert len(rows) == 3


def marked(warehouse: SqlDatabase) -> list[str]:
    return [name for (name,) in warehouse.query("SELECT mail_name FROM mail_campaign_stats WHERE gone_at IS NOT NULL")]


def living(warehouse: SqlDatabase) -> list[tuple[Any, ...]]:
    """The sums that the documentation's query gives."""
    page = (ROOT / "docs" / "warehouse.md").read_text()
    (query,) = re.findall(r"^SELECT mail_conn_id, SUM\(sent_count\).*$", page, re.MULTILINE)
    return sorted(warehouse.query(query))


def test_a_campaign_that_a_whole_reading_misses_is_marked(
    run: Run, march: Emulator, any_warehouse: SqlDatabase
) -> None:
    first = run(campaigns(DAY, after(9)))
    march.set_campaign_state("campaign-000013", "removed")

    done = run(campaigns(DAY, after(9)))

    assert (first.returned["gone"], done.returned["gone"]) == (0, 1)
    assert marked(any_warehouse) == ["campaign-000013"]
    assert living(any_warehouse) == [
        ("mail_default", sum(row[2] for row in in_service(march) if row[1] != "campaign-000013"))
    ]
    assert run(campaigns(DAY, after(9))).returned["gone"] == 0


def test_a_day_that_may_not_be_whole_marks_nothing(run: Run, march: Emulator, warehouse: SqlDatabase) -> None:
    run(campaigns(DAY, after(9)))
    for number in (0, 29):
        march.set_campaign_state(f"campaign-{number:06}", "removed")
    assert run(campaigns(DAY, after(9))).returned["gone"] == 0
    assert run(campaigns(DAY, after(9), mail_name="campaign")).returned["records"] == 28
    assert marked(warehouse) == []


def test_a_window_that_is_suddenly_empty_needs_a_permission(
    run: Run, march: Emulator, any_warehouse: SqlDatabase
) -> None:
    run(campaigns(DAY, after(9)))
    read = asked(any_warehouse)
    for number in range(30):
        march.set_campaign_state(f"campaign-{number:06}", "removed")
    march.clock.advance(hours=1)
    before = requests(march)

    done = run(campaigns(DAY, after(9)))

    assert done.state == "failed"
    assert "24 rows would become 0. Nothing was removed; allow_empty=True allows it" in done.log
    assert requests(march) == before + 2
    assert marked(any_warehouse) == []
    assert asked(any_warehouse) == read
    assert run(campaigns(DAY, after(9), allow_empty=True)).returned["gone"] == 24
    assert asked(any_warehouse) != read


@pytest.mark.parametrize(("keep", "total"), [(0, 0), (1, 1)])
def test_one_short_answer_marks_nothing_and_hides_nothing(
    run: Run, march: Emulator, any_warehouse: SqlDatabase, keep: int, total: int
) -> None:
    """One of 30, and a totalRecords that agrees: the second answer is loaded, too, also as a snapshot."""
    run(campaigns(DAY, after(9)))
    march.clock.advance(days=1)
    march.faults.add("empty_page", CAMPAIGNS, count=1, keep=keep, total=total)

    done = run(campaigns(DAY, after(9), snapshots=True))

    assert (done.returned["records"], done.returned["gone"]) == (30, 0)
    assert stored(any_warehouse) == in_service(march)
    assert len(history(any_warehouse)) == 30


def test_an_answer_without_records_is_not_recorded_as_read(
    run: Run, march: Emulator, any_warehouse: SqlDatabase
) -> None:
    """Otherwise a load that asked earlier, and ends later, would store nothing, and a day would look fresh."""
    march.faults.add("empty_page", CAMPAIGNS, count=1, total=0)
    assert run(campaigns(DAY, after(9))).returned["records"] == 0
    assert "mail_loads" not in any_warehouse.tables() or asked(any_warehouse) == {}
    march.clock.set(datetime.datetime(2024, 3, 11, 23, tzinfo=datetime.UTC))
    done = run(campaigns(DAY, after(9)))
    assert counts(done) == (30, 0, 0)
    assert done.returned["outdated"] == 0


@pytest.mark.parametrize("by", [None, -1000])
def test_an_unknown_total_is_no_proof(run: Run, march: Emulator, any_warehouse: SqlDatabase, by: int | None) -> None:
    run(campaigns(DAY, after(9)))
    read = asked(any_warehouse)
    march.clock.advance(hours=1)
    march.faults.add("wrong_total", CAMPAIGNS, count=None, by=by)
    done = run(campaigns(DAY, after(9)))
    assert done.state == "failed"
    assert "no valid totalRecords" in done.log
    assert (marked(any_warehouse), asked(any_warehouse)) == ([], read)


def test_a_campaign_that_left_the_window_alive_is_not_gone(
    run: Run, march: Emulator, any_warehouse: SqlDatabase
) -> None:
    """Its send day moved, or its name was given to a campaign of another day: the service still has the name."""
    run(campaigns(DAY, after(9)))
    for name in ("campaign-000010", "campaign-000013", "campaign-000016"):
        march.set_campaign_state(name, "removed")
    for name in ("campaign-000010", "campaign-000013"):
        march.add_campaign(name, send_date=datetime.datetime(2024, 4, 2, tzinfo=datetime.UTC))

    done = run(campaigns(DAY, after(9)))

    assert done.returned["gone"] == 1
    assert marked(any_warehouse) == ["campaign-000016"]
    names = [entry["body"].get("mailName") for entry in march.journal.entries("campaign/mail/get")]
    assert set(names) == {"campaign-000010", "campaign-000013", "campaign-000016"}


def test_a_campaign_that_is_there_again_is_cleared(run: Run, march: Emulator, any_warehouse: SqlDatabase) -> None:
    run(campaigns(DAY, after(9)))
    any_warehouse.execute("UPDATE mail_campaign_stats SET gone_at = observed_at WHERE mail_name = 'campaign-000013'")
    assert run(campaigns(DAY, after(9))).returned["changed"] == 1
    assert marked(any_warehouse) == []


def test_two_connections_share_a_table(
    run: Run, march: Emulator, any_warehouse: SqlDatabase, connect: Callable[..., None]
) -> None:
    connect("mail_team", team_name="Team 2")

    for conn_id in ("mail_default", "mail_team", "mail_default"):
        assert run(campaigns(DAY, after(9), mail_conn_id=conn_id)).state == "success"

    assert stored(any_warehouse) == in_service(march) + in_service(march, "mail_team")
    assert any_warehouse.query("SELECT DISTINCT mail_conn_id, team FROM mail_campaign_stats ORDER BY 1") == [
        ("mail_default", None),
        ("mail_team", "Team 2"),
    ]


# --- answers that are short ---


def test_one_answer_fills_both_tables(run: Run, march: Emulator, any_warehouse: SqlDatabase) -> None:
    done = run(campaigns(DAY, after(9), snapshots=True))

    assert counts(done) == (30, 0, 0)
    assert stored(any_warehouse) == in_service(march)
    assert len(history(any_warehouse)) == 30
    assert requests(march) == 1


def test_a_short_answer_is_made_whole_for_both_tables(run: Run, march: Emulator, any_warehouse: SqlDatabase) -> None:
    march.faults.add("short_stats", CAMPAIGNS, count=3, missing=2)

    done = run(campaigns(DAY, after(9), snapshots=True))

    assert counts(done) == (30, 0, 0)
    assert stored(any_warehouse) == in_service(march)
    assert len(history(any_warehouse)) == 30
    assert requests(march) == 7


def test_a_short_answer_fills_neither_table(run: Run, march: Emulator, any_warehouse: SqlDatabase) -> None:
    run(campaigns(after(5)))
    rows = stored(any_warehouse)
    march.faults.add("short_stats", CAMPAIGNS, count=None, missing=1)

    done = run(campaigns(DAY, after(9), snapshots=True))

    assert done.state == "failed"
    assert "2 records came for 2024-03-02, the service says there are 3" in done.log
    assert stored(any_warehouse) == rows
    assert "mail_campaign_stats_snapshots" not in any_warehouse.tables()


def test_memory_grows_by_a_compact_record_each(
    make_database: Callable[[str, str], SqlDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body and its records in compact form; the models would be 40 MB more."""
    make_database("postgres", "warehouse")
    counted = dict.fromkeys(("sentCount", "openCount", "clickCount", "hardBounce", "softBounce"), 1)
    counted |= {"mailSendDate": 1_709_380_800_000, "unsentCount": 0, "unsubscribeCount": 0}
    context: Any = {"dag_run": SimpleNamespace(run_after=datetime.datetime.now(datetime.UTC))}
    peaks = []
    with Wire() as wire:
        connection = {"conn_type": "mail", "host": wire.base_url, "password": "a key of some length"}
        monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps(connection))
        for count in (2_000, 2_000, 40_000):
            records = [{"mailName": f"campaign {number}", **counted} for number in range(count)]
            wire.answer = http(json.dumps({"code": 200, "mailStatsList": records, "totalRecords": count}).encode())
            del records
            operator = campaigns()()
            tracemalloc.start()
            assert operator.execute(context)["records"] == count
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[2] - peaks[1] < 600 * 38_000, peaks  # before the first everything is imported


# --- never half ---


def test_a_short_answer_is_asked_for_again_in_halves(run: Run, march: Emulator, any_warehouse: SqlDatabase) -> None:
    march.faults.add("short_stats", CAMPAIGNS, count=3, missing=2)

    done = run(campaigns(DAY, after(9)))

    assert done.returned["records"] == 30
    assert stored(any_warehouse) == in_service(march)
    assert requests(march) == 7


def test_a_day_that_stays_short_is_not_loaded(run: Run, march: Emulator, any_warehouse: SqlDatabase) -> None:
    run(campaigns(after(5)))
    rows = stored(any_warehouse)
    march.faults.add("short_stats", CAMPAIGNS, count=None, missing=1)

    done = run(campaigns(DAY, after(9)))

    assert done.state == "failed"
    assert "2 records came for 2024-03-02, the service says there are 3" in done.log
    assert stored(any_warehouse) == rows


def test_a_day_that_is_longer_than_an_answer_is_asked_for_by_name(
    run: Run, march: Emulator, any_warehouse: SqlDatabase
) -> None:
    # An answer for many campaigns lacks two; one for a single name lacks nothing.
    march.faults.add("short_stats", CAMPAIGNS, count=None, missing=2, where={"mailName": None})

    done = run(campaigns(DAY, after(1)))

    assert done.state == "success", done.log
    assert stored(any_warehouse) == in_service(march)[:6]
    names = [entry["body"].get("mailName") for entry in march.journal.entries(CAMPAIGNS)]
    assert sorted(filter(None, names)) == [f"campaign-{number:06}" for number in (1, 2, 4, 5)]


def strange(emulator: Emulator, monkeypatch: pytest.MonkeyPatch, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Let a service that is wrong change the records of all its answers on statistics."""
    for kind in (GetCampaignStats, GetTransactionalStats):
        original = kind.read

        def read(self: Any, answer: Any, original: Any = original) -> Any:
            records = [dict(record) for record in answer["mailStatsList"]]
            change(records)
            return original(self, {**answer, "mailStatsList": records})

        monkeypatch.setattr(kind, "read", read)

    decode_compact = statistics._GetCompactStats.decode

    def decode(self: Any, body: bytes) -> Any:
        answer = json.loads(body)
        change(answer["mailStatsList"])
        return decode_compact(self, json.dumps(answer).encode())

    monkeypatch.setattr(statistics._GetCompactStats, "decode", decode)


def set_all(**values: Any) -> Callable[[list[dict[str, Any]]], None]:
    def change(records: list[dict[str, Any]]) -> None:
        for record in records:
            record.update(values)

    return change


@pytest.mark.parametrize(
    ("load", "change", "words"),
    [
        (campaigns, set_all(sentCount="many"), "mailStatsList[0].sentCount"),
        (campaigns, set_all(openCount=1.5), "mailStatsList[0].openCount"),
        (campaigns, set_all(clickCount=None), "mailStatsList[0].clickCount"),
        (campaigns, set_all(mailName=None), "mailStatsList[0].mailName"),
        (campaigns, set_all(mailSendDate="the day before"), "mailStatsList[0].mailSendDate"),
        (campaigns, set_all(mailSendDate=1_700_000_000_000), "mailSendDate 2023-11-14T22:13:20Z"),
        (campaigns, set_all(mailSendDate=1_709_370_000), "mailSendDate 1970-01-20T18:49:30Z"),
        (campaigns, lambda records: records[1].update(mailName=records[0]["mailName"]), "two records of one mailName"),
        (campaigns, lambda records: records.__setitem__(1, records[0]), "2 records came for 2024-03-02"),
        (transactional, set_all(bounceCount="few"), "mailStatsList[0].bounceCount"),
        (transactional, set_all(statsDate="02.03.2024"), "mailStatsList[0].statsDate"),
        (transactional, set_all(statsDate="2024-03-03"), "a record has the statsDate 2024-03-03"),
        (transactional, lambda records: records.append({**records[0], "sentCount": 7}), "two different records"),
    ],
)
def test_what_cannot_be_true_is_not_loaded(
    run: Run,
    march: Emulator,
    warehouse: SqlDatabase,
    monkeypatch: pytest.MonkeyPatch,
    load: Any,
    change: Any,
    words: str,
) -> None:
    strange(march, monkeypatch, change)

    done = run(load())

    assert done.state == "failed"
    assert words in done.log
    assert warehouse.tables() == set()


@pytest.mark.parametrize("load", [campaigns, transactional])
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"kind": "code_before", "code": 400, "message": "no such thing"}, "no such thing"),
        ({"kind": "html_before"}, "check that the connection's host is the service's address"),
        ({"kind": "code_before", "code": 401}, "connection 'mail_default'"),
    ],
    ids=["refused", "html", "key"],
)
def test_an_answer_that_is_none_loads_nothing(
    run: Run, march: Emulator, any_warehouse: SqlDatabase, load: Any, fault: dict[str, Any], words: str
) -> None:
    march.faults.add(operation="*", count=None, **fault)

    done = run(load())

    assert done.state == "failed"
    assert words in done.log
    assert any_warehouse.tables() == set()


def test_a_table_that_will_not_do(run: Run, march: Emulator, any_warehouse: SqlDatabase) -> None:
    any_warehouse.execute("CREATE TABLE mail_campaign_stats (mail_conn_id TEXT, mail_name TEXT)")

    done = run(campaigns())

    assert done.state == "failed"
    assert "table mail_campaign_stats on connection 'warehouse'" in done.log


def test_lost_answers_are_asked_for_again(run: Run, march: Emulator, any_warehouse: SqlDatabase) -> None:
    for kind in ("close_after", "http_error_before", "cut_json", "too_many_requests"):
        march.faults.add(kind, CAMPAIGNS)

    assert run(campaigns(DAY, after(9))).state == "success"
    assert stored(any_warehouse) == in_service(march)


def test_a_refused_key_fails_at_once_and_names_the_connection(
    run: Run, emulator: Emulator, warehouse: SqlDatabase, connect: Any
) -> None:
    connect(password="wrong-key-of-somebody")

    done = run(campaigns(retries=3))

    assert (done.state, done.tries) == ("failed", 1)
    assert "connection 'mail_default'" in done.log
    assert "rejected the credentials" in done.log
    assert "days may be too many" not in done.log
    assert "wrong-key-of-somebody" not in done.log
    assert warehouse.tables() == set()


def test_a_connection_that_is_no_database(run: Run, emulator: Emulator) -> None:
    done = run(lambda: MailCampaignStatsToSqlOperator(task_id=TASK, sql_conn_id="mail_default"))
    assert done.state == "failed"
    assert "sql_conn_id: connection 'mail_default'" in done.log


def test_sandbox_reads_as_ever(run: Run, march: Emulator, warehouse: SqlDatabase, connect: Any) -> None:
    connect(sandbox=True)

    assert run(campaigns()).returned["records"] == 3
    (entry,) = march.journal.entries(CAMPAIGNS)
    assert "sandboxMode" not in entry["body"]
