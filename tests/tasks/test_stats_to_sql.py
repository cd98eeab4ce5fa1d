"""Statistics in the warehouse: what the service says, whole, restated, and the same however often it is loaded."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)
from tests.tasks.conftest import TASK, Done, Run, SqlDatabase

CAMPAIGNS, TRANSACTIONAL = "campaign/mail/stats/get", "transactional/mail/stats/get"
DAY = datetime.date(2024, 3, 2)
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

    wrong = run(campaigns(type="Other"))
    assert wrong.state == "failed"
    assert "type: " in wrong.log


# --- again and again ---


def test_twice_is_once(run: Run, march: Emulator, any_warehouse: SqlDatabase) -> None:
    first = run(campaigns(DAY, after(9)))
    rows = stored(any_warehouse)
    (before,) = any_warehouse.query("SELECT min(observed_at) FROM mail_campaign_stats")
    second = run(campaigns(DAY, after(9)))

    assert counts(first) == (30, 0, 0)
    assert counts(second) == (0, 0, 30)
    assert stored(any_warehouse) == rows == in_service(march)
    (later,) = any_warehouse.query("SELECT min(observed_at) FROM mail_campaign_stats")
    assert later > before


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


def test_a_campaign_that_the_service_forgot_stays(run: Run, march: Emulator, any_warehouse: SqlDatabase) -> None:
    run(campaigns())
    rows = stored(any_warehouse)
    march.set_campaign_state("campaign-000001", "removed")

    done = run(campaigns())

    assert done.returned["records"] == 2
    assert stored(any_warehouse) == rows
    assert len(rows) == 3


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


@pytest.mark.parametrize("load", [campaigns, transactional])
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"kind": "code_before", "code": 400, "message": "no such thing"}, "no such thing"),
        ({"kind": "html_before"}, "is the connection's host the service's address"),
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


def test_sandbox_reads_as_ever(run: Run, march: Emulator, warehouse: SqlDatabase, connect: Any) -> None:
    connect(sandbox=True)

    assert run(campaigns()).returned["records"] == 3
    (entry,) = march.journal.entries(CAMPAIGNS)
    assert "sandboxMode" not in entry["body"]
