"""The time of an observation is the service's or the database's, whatever a worker's clock says."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_mail._task import observation
from airflow_provider_mail.api._core import clock, exchange
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailCampaignsToSqlOperator,
    MailContactsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)
from airflow_provider_mail.warehouse import load as warehouse_load
from airflow_provider_mail.warehouse.errors import WarehouseError
from tests.tasks.conftest import TASK, Run, SqlDatabase

DAY = datetime.date(2024, 3, 2)
DAYS = {"start_day": "2024-03-01", "end_day": "2024-03-04"}
A_DAY = 86_400.0
A_SECOND = datetime.timedelta(seconds=1)
LOADS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "mail_campaign_stats": (MailCampaignStatsToSqlOperator, DAYS),
    "mail_campaign_stats_snapshots": (MailCampaignStatsToSqlOperator, {**DAYS, "snapshots": True}),
    "mail_transactional_stats": (MailTransactionalStatsToSqlOperator, DAYS),
    "mail_contacts": (MailContactsToSqlOperator, {"list_name": "news"}),
    "mail_campaigns": (MailCampaignsToSqlOperator, {}),
}


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    emulator.add_list("news", count=3)
    emulator.add_campaign("first", send_date=datetime.datetime(2024, 3, 2, 12, tzinfo=datetime.UTC))
    return emulator


@pytest.fixture
def set_worker_clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that puts this worker's clock so many seconds ahead; the emulator keeps its own."""

    def ahead(seconds: float) -> None:
        wrong = SimpleNamespace(time=lambda: time.time() + seconds, monotonic=time.monotonic, sleep=time.sleep)
        for module in (exchange, clock, observation):
            monkeypatch.setattr(module, "time", wrong)

    return ahead


def load(table: str, **more: Any) -> dict[str, Any]:
    kind, arguments = LOADS[table]
    run = type("Run", (), {"run_after": datetime.datetime.now(datetime.UTC)})
    result: dict[str, Any] = kind(task_id=TASK, sql_conn_id="warehouse", **arguments, **more).execute({"dag_run": run})
    return result


def observed(warehouse: SqlDatabase, table: str) -> set[datetime.datetime]:
    found = {at for (at,) in warehouse.query(f"SELECT DISTINCT observed_at FROM {table}")}
    return {datetime.datetime.fromisoformat(f"{at}+00:00") if isinstance(at, str) else at for at in found}


@pytest.mark.parametrize("seconds", [A_DAY, -A_DAY])
@pytest.mark.parametrize("table", LOADS)
def test_a_worker_s_wrong_clock_changes_nothing(
    service: Emulator, warehouse: SqlDatabase, set_worker_clock: Any, table: str, seconds: float
) -> None:
    before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=3)
    set_worker_clock(seconds)
    load(table)
    set_worker_clock(0)
    after = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=3)
    assert all(before <= at <= after for at in observed(warehouse, table))

    service.set_campaign_stats("first", openCount=77)
    service.set_transactional_day(DAY, sentCount=99)
    result = load(table)
    assert result["outdated"] == 0
    assert result["changed"] == (1 if "stats" in table or table == "mail_campaigns" else 0)


def test_the_database_tells_the_time_where_the_service_does_not(
    service: Emulator, any_warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.settings.date_header = False
    told = datetime.datetime(2031, 1, 1, tzinfo=datetime.UTC)
    monkeypatch.setattr("airflow_provider_mail.warehouse.load.database_time", lambda hook: told)
    load("mail_campaigns")
    (at,) = observed(any_warehouse, "mail_campaigns")
    assert told - datetime.timedelta(minutes=1) < at <= told


@pytest.mark.parametrize("table", LOADS)
@pytest.mark.parametrize("hours", [24, -1])
def test_a_wrong_clock_of_the_service_is_not_believed(
    service: Emulator, any_warehouse: SqlDatabase, table: str, hours: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Where it is ahead, later loads would fail; where it is behind, its values would count as old ones."""
    before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=3)
    if hours < 0:
        load(table)
    service.clock.advance(hours=hours)
    service.set_campaign_stats("first", openCount=77)
    service.set_transactional_day(DAY, sentCount=99)
    assert load(table)["outdated"] == 0
    assert all(at <= datetime.datetime.now(datetime.UTC) + A_SECOND for at in observed(any_warehouse, table))
    assert all(before <= at for at in observed(any_warehouse, table))
    assert "Check the clocks" in caplog.text

    service.clock.advance(hours=-hours)
    service.set_campaign_stats("first", openCount=88)
    service.set_transactional_day(DAY, sentCount=100)
    again = load(table)
    assert (again["outdated"], again["changed"]) == (0, 1 if "stats" in table or table == "mail_campaigns" else 0)


@pytest.mark.parametrize("table", ["mail_campaigns", "mail_campaign_stats"])
def test_whatever_three_clocks_say_each_load_stores_what_it_read(
    service: Emulator, any_warehouse: SqlDatabase, set_worker_clock: Any, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """The service's, a worker's and the database's, in hours by which they are ahead."""
    database_time = warehouse_load.database_time
    for number, (of_service, of_worker, of_database) in enumerate(
        [(0, 0, -24), (0, 0, 0), (24, 0, 0), (-1, 24, 0), (24, -24, 0), (24, 24, 0), (0, 0, 0), (-1, 0, 0)]
    ):
        service.clock.advance(hours=of_service)
        set_worker_clock(of_worker * 3600)
        ahead = datetime.timedelta(hours=of_database)
        monkeypatch.setattr(warehouse_load, "database_time", lambda hook, ahead=ahead: database_time(hook) + ahead)
        service.set_campaign_stats("first", openCount=number)
        result = load(table)
        service.clock.advance(hours=-of_service)
        assert (result["outdated"], result["inserted"] + result["changed"]) == (0, 1), (of_service, of_worker)


def test_a_service_whose_clock_was_set_back_keeps_its_time(service: Emulator, warehouse: SqlDatabase) -> None:
    service.clock.advance(days=-30)
    load("mail_campaigns")
    service.clock.advance(days=1)
    service.set_campaign_stats("first", openCount=77)
    assert load("mail_campaigns")["changed"] == 1
    assert max(observed(warehouse, "mail_campaigns")) < datetime.datetime.now(datetime.UTC) - datetime.timedelta(
        days=28
    )


def test_a_worker_s_own_clock_is_the_last_resort_and_named(
    service: Emulator, warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    service.settings.date_header = False
    monkeypatch.setattr("airflow_provider_mail.warehouse.load.database_time", lambda hook: None)
    load("mail_campaigns")
    assert "observed_at is the time of this worker" in caplog.text


def test_a_table_that_a_wrong_clock_has_written_fails_the_load(service: Emulator, warehouse: SqlDatabase) -> None:
    load("mail_campaign_stats")
    warehouse.execute("UPDATE mail_campaign_stats SET observed_at = datetime(observed_at, '+1 day')")
    with pytest.raises(WarehouseError, match="lies in the future"):
        load("mail_campaign_stats")


def test_what_is_outdated_is_told(run: Run, service: Emulator, warehouse: SqlDatabase) -> None:
    """Of two requests under way at once the one that was sent later counts, whichever is loaded first."""
    load("mail_campaigns")
    warehouse.execute("UPDATE mail_campaigns SET observed_at = datetime(observed_at, '+1 minute')")
    done = run(lambda: MailCampaignsToSqlOperator(task_id=TASK, sql_conn_id="warehouse"))
    assert done.returned["outdated"] == 1
    assert "1 of 1 records were not stored: mail_campaigns has newer ones" in done.log


def test_a_request_that_is_repeated_counts_from_its_last_attempt(
    service: Emulator, warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is fresh, so one of a request that was sent in between must not win."""
    service.faults.add("http_error_before", "campaign/mail/stats/get")
    sent: list[float] = []
    observe = clock.ServiceClock.observe

    def note(self: clock.ServiceClock, headers: Any, when: float, received: float) -> None:
        sent.append(when)
        observe(self, headers, when, received)

    monkeypatch.setattr(clock.ServiceClock, "observe", note)
    load("mail_campaign_stats")
    assert service.journal.count("campaign/mail/stats/get") == 2
    (at,) = observed(warehouse, "mail_campaign_stats")
    assert at.timestamp() == pytest.approx(sent[0], abs=1e-3)


def test_the_clocks_difference_is_in_the_log(
    service: Emulator, warehouse: SqlDatabase, set_worker_clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    set_worker_clock(A_DAY)
    load("mail_campaigns")
    assert observation.CLOCK_TOLERANCE < A_DAY
    assert "The clocks of service and worker differ by 86" in caplog.text


@pytest.mark.not_unit
@pytest.mark.parametrize("table", LOADS)
def test_the_wait_for_a_lock_is_bounded(
    service: Emulator, make_database: Callable[[str, str], SqlDatabase], table: str
) -> None:
    warehouse = make_database("postgres", "warehouse")
    load(table)
    before = observed(warehouse, table)
    with closing(warehouse.hook.get_conn()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(f"LOCK TABLE {table}")
        with pytest.raises(WarehouseError, match="raise `lock_timeout`: the load has waited for 1 s"):
            load(table, lock_timeout=1)
        connection.rollback()
    assert observed(warehouse, table) == before
