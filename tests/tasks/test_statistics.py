"""The loads of statistics: which days they ask for, and what the warehouse holds afterwards."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
from airflow.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
    interval_days,
)
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase

CAMPAIGNS, TRANSACTIONAL = "campaign/mail/stats/get", "transactional/mail/stats/get"
DAY = datetime(2026, 3, 10, tzinfo=UTC)


def campaigns(**arguments: Any) -> MailCampaignStatsToSqlOperator:
    return MailCampaignStatsToSqlOperator(**{"task_id": TASK, "sql_conn_id": "warehouse"} | arguments)


def transactional(**arguments: Any) -> MailTransactionalStatsToSqlOperator:
    return MailTransactionalStatsToSqlOperator(**{"task_id": TASK, "sql_conn_id": "warehouse"} | arguments)


def asked(emulator: Emulator, operation: str = CAMPAIGNS) -> list[tuple[str, str]]:
    return [(entry["body"]["startDate"], entry["body"]["endDate"]) for entry in emulator.journal.entries(operation)]


def counts(warehouse: SqlDatabase) -> list[tuple[Any, ...]]:
    """What the warehouse holds, without when it was observed."""
    columns = "mail_conn_id, mail_name, sent_count, open_count, click_count, hard_bounce, soft_bounce, unsent_count"
    return warehouse.query(f"SELECT {columns} FROM mail_campaign_stats ORDER BY 1, 2")


def sent_on(emulator: Emulator, *days: date) -> None:
    """One finished campaign a day, of a list of a hundred."""
    emulator.add_list("hundred", count=100)
    for day in days:
        emulator.add_campaigns(1, prefix=f"of-{day}-", first_day=day)


@pytest.mark.parametrize(
    ("start", "end", "first", "last"),
    [
        ("2026-03-10T00:00Z", "2026-03-11T00:00Z", "2026-03-10", "2026-03-10"),
        ("2026-03-10T00:00Z", "2026-03-17T00:00Z", "2026-03-10", "2026-03-16"),
        ("2026-03-10T06:00Z", "2026-03-11T06:00Z", "2026-03-10", "2026-03-11"),
        # A day of New York is parts of two days in UTC, on the day when the clocks change too.
        ("2026-03-08T00:00-05:00", "2026-03-09T00:00-04:00", "2026-03-08", "2026-03-09"),
        ("2026-11-01T00:00-04:00", "2026-11-02T00:00-05:00", "2026-11-01", "2026-11-02"),
        ("2026-03-29T00:00+01:00", "2026-03-30T00:00+02:00", "2026-03-28", "2026-03-29"),
        # No interval: the running day and the one before.
        ("2026-03-11T00:00Z", "2026-03-11T00:00Z", "2026-03-10", "2026-03-11"),
        (None, None, "2026-03-10", "2026-03-11"),
    ],
)
def test_the_days_of_an_interval(start: str | None, end: str | None, first: str, last: str) -> None:
    context: Any = {
        "data_interval_start": pendulum.parse(start) if start else None,
        "data_interval_end": pendulum.parse(end) if end else None,
        "dag_run": SimpleNamespace(run_after=pendulum.parse("2026-03-11T09:00Z")),
    }
    assert [day.isoformat() for day in interval_days(context)] == [first, last]


def test_the_window_of_a_run_comes_from_its_data_interval(
    run: Run, new_dag: Callable[..., DAG], emulator: Emulator, warehouse: SqlDatabase
) -> None:
    with new_dag(schedule=CronDataIntervalTimetable("@daily", timezone="UTC"), start_date=DAY, catchup=True) as dag:
        campaigns(lookback_days=0)
    # A run that is asked for at midnight has the interval that ends then.
    assert run(dag, logical_date=DAY).state == "success"
    assert asked(emulator) == [("2026-03-09", "2026-03-09")]


def test_a_run_by_hand_takes_its_day_and_the_day_before(run: Run, emulator: Emulator, warehouse: SqlDatabase) -> None:
    done = run(lambda: campaigns(lookback_days=0), logical_date=DAY + timedelta(hours=9))
    assert done.state == "success"
    assert asked(emulator) == [("2026-03-09", "2026-03-10")]
    assert done.returned["start_day"] == "2026-03-09"
    assert done.returned["end_day"] == "2026-03-10"


def test_lookback_days_come_before_the_window_but_not_before_a_given_start(
    run: Run, emulator: Emulator, warehouse: SqlDatabase
) -> None:
    run(lambda: campaigns(lookback_days=3), logical_date=DAY)
    run(lambda: campaigns(lookback_days=3, start_day="2026-03-01", end_day="{{ '2026-03-02' }}"), logical_date=DAY)
    run(lambda: transactional(), logical_date=DAY)
    assert asked(emulator) == [("2026-03-06", "2026-03-10"), ("2026-03-01", "2026-03-02")]
    assert asked(emulator, TRANSACTIONAL) == [("2026-03-02", "2026-03-10")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"start_day": "2026-03-05", "end_day": "2026-03-04"}, "end_day: 2026-03-04 lies before start_day 2026-03-05"),
        ({"start_day": "2999-01-01", "end_day": "2999-01-02"}, "start_day: 2999-01-01 is in the future"),
        ({"start_day": "yesterday"}, "start_day: 'yesterday' is no day of the form YYYY-MM-DD"),
        ({"type": "Letter"}, "type: "),
    ],
)
def test_a_window_that_cannot_be_fails_at_once_and_asks_nothing(
    run: Run, emulator: Emulator, warehouse: SqlDatabase, arguments: dict[str, str], words: str
) -> None:
    done = run(lambda: campaigns(retries=2, **arguments), logical_date=DAY)
    assert (done.state, done.tries) == ("failed", 1)
    assert words in done.log
    assert asked(emulator) == []
    assert warehouse.tables() == set()


def test_a_negative_lookback_is_refused_when_the_dag_is_parsed() -> None:
    with pytest.raises(ValueError, match="lookback_days: must not be negative"):
        campaigns(lookback_days=-1)


def test_the_warehouse_holds_what_the_service_says(run: Run, emulator: Emulator, any_warehouse: SqlDatabase) -> None:
    sent_on(emulator, date(2026, 3, 9), date(2026, 3, 10))
    name = emulator.campaigns()[0]["mailName"]
    emulator.set_campaign_stats(name, sentCount=200, openCount=50, clickCount=10, hardBounce=3, softBounce=1,
                                unsentCount=7, unsubscribeCount=2)  # fmt: skip

    done = run(lambda: campaigns(start_day="2026-03-09", end_day="2026-03-10"), logical_date=DAY)

    assert done.state == "success"
    assert done.returned["records"] == 2
    assert done.returned["inserted"] == 2
    (row,) = [row for row in counts(any_warehouse) if row[1] == name]
    assert row == ("mail_default", name, 200, 50, 10, 3, 1, 7)
    rates = "open_rate, click_rate, bounce_rate, unsubscribe_rate"
    assert any_warehouse.query(f"SELECT {rates} FROM mail_campaign_stats WHERE mail_name = '{name}'") == [
        (25.0, 5.0, 2.0, 1.0)
    ]


def test_loads_can_be_repeated_and_come_out_of_order(run: Run, emulator: Emulator, any_warehouse: SqlDatabase) -> None:
    days = [date(2026, 3, number) for number in range(1, 7)]
    sent_on(emulator, *days)
    run(lambda: campaigns(start_day="2026-03-01", end_day="2026-03-06"), logical_date=DAY)
    whole = counts(any_warehouse)
    assert len(whole) == len(days)
    any_warehouse.execute("DELETE FROM mail_campaign_stats")

    for day in (4, 2, 6, 2, 1, 3, 5, 4):
        window = {"start_day": f"2026-03-{day:02}", "end_day": f"2026-03-{day:02}"}
        assert run(lambda window=window: campaigns(**window), logical_date=DAY).state == "success"

    assert counts(any_warehouse) == whole


def test_late_opens_are_restated(run: Run, emulator: Emulator, warehouse: SqlDatabase) -> None:
    sent_on(emulator, date(2026, 3, 9))
    name = emulator.campaigns()[0]["mailName"]
    for opens in (5, 41):
        emulator.set_campaign_stats(name, openCount=opens)
        done = run(lambda: campaigns(start_day="2026-03-09", end_day="2026-03-09"), logical_date=DAY)
        assert done.state == "success"
        assert [row[3] for row in counts(warehouse)] == [opens]
    assert done.returned["changed"] == 1


def test_a_short_answer_is_asked_for_by_days_and_never_loaded_short(
    run: Run, emulator: Emulator, warehouse: SqlDatabase
) -> None:
    sent_on(emulator, *[date(2026, 3, number) for number in range(1, 5)])
    window = {"start_day": "2026-03-01", "end_day": "2026-03-04"}

    emulator.faults.add("short_stats", operation="/v5/campaign/mail/stats/get", count=1)
    assert run(lambda: campaigns(**window), logical_date=DAY).state == "success"
    assert len(counts(warehouse)) == 4
    assert asked(emulator)[1:] == [("2026-03-01", "2026-03-02"), ("2026-03-03", "2026-03-04")]

    warehouse.execute("DELETE FROM mail_campaign_stats")
    emulator.faults.add("short_stats", operation="/v5/campaign/mail/stats/get", count=100)
    done = run(lambda: campaigns(**window), logical_date=DAY)
    assert done.state == "failed"
    assert "0 records came for 2026-03-01, the service says there are 1" in done.log
    assert counts(warehouse) == []


def test_two_accounts_share_a_table(run: Run, connect: Connect, emulator: Emulator, warehouse: SqlDatabase) -> None:
    connect("other", team_name="Sales")
    sent_on(emulator, date(2026, 3, 9))
    window = {"start_day": "2026-03-09", "end_day": "2026-03-09"}
    run(lambda: campaigns(**window), logical_date=DAY)
    run(lambda: campaigns(mail_conn_id="other", **window), logical_date=DAY)
    assert warehouse.query("SELECT mail_conn_id, team FROM mail_campaign_stats ORDER BY 1") == [
        ("mail_default", None),
        ("other", "Sales"),
    ]


def test_a_day_of_transactional_mail(run: Run, emulator: Emulator, any_warehouse: SqlDatabase) -> None:
    emulator.set_transactional_day("2026-03-09", sentCount=40, openCount=10, clickCount=4, bounceCount=2,
                                   unsentCount=1, unsubscribeCount=0)  # fmt: skip
    for _ in range(2):
        done = run(lambda: transactional(start_day="2026-03-09", end_day="2026-03-09"), logical_date=DAY)
        assert done.state == "success"
    columns = "sent_count, open_count, click_count, bounce_count, unsent_count, unsubscribe_count, open_rate"
    assert any_warehouse.query(f"SELECT {columns} FROM mail_transactional_stats") == [(40, 10, 4, 2, 1, 0, 25.0)]
    assert done.returned["unchanged"] == 1


def test_a_refused_key_fails_at_once_and_names_the_connection(
    run: Run, connect: Connect, warehouse: SqlDatabase
) -> None:
    connect(password="wrong-key-of-somebody")
    done = run(lambda: campaigns(retries=3), logical_date=DAY)
    assert (done.state, done.tries) == ("failed", 1)
    assert "connection 'mail_default'" in done.log
    assert "refused the credentials" in done.log
    assert "wrong-key-of-somebody" not in done.log
    assert warehouse.tables() == set()


def test_a_connection_that_is_no_database(run: Run, emulator: Emulator) -> None:
    done = run(lambda: campaigns(sql_conn_id="mail_default"), logical_date=DAY)
    assert done.state == "failed"
    assert "sql_conn_id: connection 'mail_default'" in done.log
