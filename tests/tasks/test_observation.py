"""The time of an observation is the database's, whatever the clocks of the service and of a worker say."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_provider_mail.warehouse import database as warehouse_database
from airflow_provider_mail.warehouse.errors import WarehouseError
from mail_emulator import Emulator
from tests.support.changes import at_request
from tests.support.clock import Clock
from tests.tasks.conftest import Connect, SqlDatabase
from tests.tasks.loading import CAMPAIGN_STATS, LOADS, UTC, executed, load_task

DAY = datetime.date(2024, 3, 2)
HOUR = datetime.timedelta(hours=1)


@pytest.fixture
def service(emulator: Emulator, connect: Connect) -> Emulator:
    connect(test_clock=None)
    emulator.add_list("news", count=3)
    emulator.add_campaign("first", send_date=datetime.datetime(2024, 3, 2, 12, tzinfo=UTC))
    return emulator


@dataclass
class Clocks:
    """The clocks of this worker, the service and the database, each as many hours ahead as the test says."""

    clock: Clock
    service: Emulator
    worker: float = 0.0
    database: float = 0.0

    def set_worker(self, hours: float) -> None:
        """The emulator keeps its time."""
        seconds = (hours - self.worker) * 3600
        self.clock.set_wall_clock(seconds)
        self.service.clock.advance(seconds=-seconds)
        self.worker = hours

    def database_time(self, hook: Any) -> datetime.datetime:
        """Databases live in the time of the test, too."""
        return datetime.datetime.now(UTC) + (self.database - self.worker) * HOUR


@pytest.fixture(autouse=True)
def clocks(clock: Clock, service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks(clock, service)
    monkeypatch.setattr(warehouse_database, "database_time", clocks.database_time)
    return clocks


def load(table: str, **more: Any) -> dict[str, Any]:
    return executed(load_task(table, **more))


def observed(warehouse: SqlDatabase, table: str) -> set[datetime.datetime]:
    rows = warehouse.query(f"SELECT DISTINCT observed_at FROM {table}")
    return {datetime.datetime.fromisoformat(str(at)).replace(tzinfo=UTC) for (at,) in rows}


def change(service: Emulator, number: int) -> None:
    service.set_campaign_stats("first", openCount=number)
    service.set_transactional_day(DAY, sentCount=number)


@pytest.mark.parametrize("table", LOADS)
def test_a_wrong_clock_of_the_service_is_not_believed(
    service: Emulator, warehouse: SqlDatabase, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where it is ahead, later loads would fail; where it is behind, its values would count as old ones."""
    before = datetime.datetime.now(UTC) - HOUR / 10
    # Minutes ahead, loads of the next minutes would be outdated; days behind, one would rewrite the past.
    for number, hours in enumerate((24, 0.06, -1, -15, -48, -400 * 24)):
        caplog.clear()
        service.clock.advance(hours=hours)
        change(service, 77 + number)
        assert load(table)["outdated"] == 0
        assert all(before <= at <= datetime.datetime.now(UTC) + HOUR / 10 for at in observed(warehouse, table))
        assert ("Check the clocks" in caplog.text) is (abs(hours) > 0.1)
        service.clock.advance(hours=-hours)
        # The next load stores what has changed.
        change(service, 88 + number)
        result = load(table)
        assert (result["outdated"], result["changed"]) == (0, 0 if table == "mail_contacts" else 1)


def test_each_load_stores_what_it_read_whatever_clocks_say(
    service: Emulator, warehouse: SqlDatabase, clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    """The service's, a worker's and the database's, in hours by which they are ahead."""
    for number, (of_service, of_worker, of_database) in enumerate(
        [(0, 0, -24), (0, 0, 0), (24, 0, 0), (-1, 24, 0), (24, -24, 0), (24, 24, 0), (0, 0, 0), (-1, 0, 0)]
    ):
        service.clock.advance(hours=of_service)
        clocks.set_worker(of_worker)
        clocks.database = of_database
        service.set_campaign_stats("first", openCount=number)
        result = load("mail_campaigns")
        service.clock.advance(hours=-of_service)
        assert (result["outdated"], result["inserted"] + result["changed"]) == (0, 1), (of_service, of_worker)
    assert "The clocks of service and worker differ by 86" in caplog.text


def test_a_service_that_is_declared_for_tests_keeps_its_time(
    service: Emulator, warehouse: SqlDatabase, connect: Connect
) -> None:
    connect(test_clock=True)
    service.clock.advance(days=-30)
    load("mail_campaigns")
    service.clock.advance(days=1)
    change(service, 77)
    assert load("mail_campaigns")["changed"] == 1
    assert max(observed(warehouse, "mail_campaigns")) < datetime.datetime.now(UTC) - 28 * 24 * HOUR


def test_a_clock_that_is_set_during_a_load_moves_no_observation(
    service: Emulator, warehouse: SqlDatabase, clocks: Clocks
) -> None:
    for number, hours in enumerate((48, -48)):
        change(service, number)
        with at_request(service, CAMPAIGN_STATS, 1, lambda hours=hours: clocks.set_worker(hours)):
            load("mail_campaign_stats")
        clocks.set_worker(0)
        (at,) = observed(warehouse, "mail_campaign_stats")
        assert abs(at - datetime.datetime.now(UTC)) < HOUR


@pytest.mark.parametrize("has_clock", [True, False])
def test_the_clock_of_the_database_is_the_second_choice(
    service: Emulator, warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch, has_clock: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """That of the worker is the last one, and named."""
    service.settings.date_header = False
    shown = datetime.datetime(2031, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(warehouse_database, "database_time", lambda hook: shown if has_clock else None)
    load("mail_campaigns")
    (at,) = observed(warehouse, "mail_campaigns")
    expected = shown if has_clock else datetime.datetime.now(UTC)
    assert expected - HOUR < at <= expected
    assert ("observed_at is the time of this worker" in caplog.text) is not has_clock


@pytest.mark.parametrize("hours", [0, 24])
def test_a_repeated_request_counts_from_its_last_attempt(service: Emulator, warehouse: SqlDatabase, hours: int) -> None:
    """Its response is fresh, so one of a request that was sent in between must not win."""
    began = datetime.datetime.now(UTC)
    service.clock.advance(hours=hours)  # then the clock of the database counts
    service.faults.add("too_many_requests", CAMPAIGN_STATS, retry_after=50)
    load("mail_campaign_stats")
    assert service.journal.count(CAMPAIGN_STATS) == 2
    (at,) = observed(warehouse, "mail_campaign_stats")
    assert datetime.timedelta(seconds=50) < at - began < HOUR


@pytest.mark.not_unit
def test_the_wait_for_a_lock_is_bounded(service: Emulator, make_database: Callable[[str, str], SqlDatabase]) -> None:
    """The database raises the error of a lock that was not granted at once, if it would have waited so long."""
    warehouse = make_database("postgres", "warehouse")
    load("mail_contacts")
    before = observed(warehouse, "mail_contacts")
    warehouse.execute("""
        CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF current_setting('lock_timeout') = '7s' THEN RAISE EXCEPTION SQLSTATE '55P03'; END IF; RETURN NULL; END $$
    """)
    warehouse.execute("CREATE TRIGGER wait BEFORE INSERT OR UPDATE ON mail_contacts EXECUTE FUNCTION wait()")
    service.add_contact("new@example.com", lists=["news"])
    with pytest.raises(
        WarehouseError,
        match="raise the lock timeout of the database's server, role or session: the load has waited for 0 s",
    ):
        load("mail_contacts", lock_timeout=7)
    assert observed(warehouse, "mail_contacts") == before
