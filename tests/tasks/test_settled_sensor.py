"""`MailStatsSettledSensor`: until the counts of a campaign are final. What all sensors do is in `test_sensors.py`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_mail.sensors.stats import MailStatsSettledSensor
from mail_emulator import Emulator
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.conftest import TASK, Run, SqlDatabase
from tests.tasks.lineage_run import activate_assets
from tests.tasks.sensing import WAYS
from tests.tasks.test_example_dags import example
from tests.tasks.triggering import steady_clock  # noqa: F401

STATS = "campaign/mail/stats/get"
STORES = AIRFLOW_VERSION >= (3, 3)


def wait(way: str, **arguments: Any) -> MailStatsSettledSensor:
    given = {"task_id": TASK, "mail_name": "spring", "poke_interval": 50, "min_interval": 40, "timeout": 86_400}
    # An age that is far away, so that only what a test is about ends the wait.
    return MailStatsSettledSensor(**{"max_age": timedelta(days=3650), "retries": 2} | given | WAYS[way] | arguments)


def test_the_days_begin_before_the_run(run: Run, emulator: Emulator) -> None:
    run(lambda: wait("poke", mail_name="missing", timeout=50), logical_date=datetime(2026, 3, 10, 9, tzinfo=UTC))
    first = emulator.journal.entries(STATS)[0]["body"]
    days = ("2026-03-02", f"{datetime.now(UTC).date()}")
    assert (first["mailName"], first["startDate"], first["endDate"]) == ("missing", *days)


def test_something_has_to_end_the_wait() -> None:
    with pytest.raises(ValueError, match="stable_checks, max_age: one of them"):
        wait("deferrable", stable_checks=None, max_age=None)


@pytest.mark.skipif(STORES, reason="3.3 has a task state store")
def test_without_stored_state_rescheduling_needs_an_age(run: Run, emulator: Emulator) -> None:
    with pytest.raises(ValueError, match=r"stable_checks: Airflow before 3\.3 keeps nothing between the polls"):
        wait("reschedule", max_age=None)
    emulator.add_campaign("spring")
    if AIRFLOW_VERSION >= (3, 1):
        done = run(lambda: wait("reschedule", max_age=100))
        assert done.state == "success"
        assert "only max_age ends the wait" in done.log


@pytest.mark.skipif(not STORES, reason="needs the task state store of 3.3")
def test_a_new_try_keeps_the_observations(run: Run, emulator: Emulator) -> None:
    emulator.add_campaign("spring", send_date=datetime.now(UTC))
    emulator.set_campaign_stats("spring", sentCount=100)
    emulator.faults.add("too_many_requests", STATS, count=4, skip=2, retry_after=999)

    done = run(lambda: wait("poke", poll_error_timeout=0, retry_delay=0))

    # Two observations, three failed polls that end the try, one more in the second, and one observation.
    assert (done.state, done.tries) == ("success", 2)
    assert emulator.journal.count(STATS) == 2 + 4 + 1


def test_the_example(run_in_airflow: Run, emulator: Emulator, warehouse: SqlDatabase) -> None:
    emulator.add_campaign("spring sale", send_date=datetime.now(UTC) - timedelta(days=3))
    emulator.set_campaign_stats("spring sale", sentCount=100, openCount=7)
    dag = example("mail_final_statistics")
    activate_assets(dag)

    done = run_in_airflow(dag)

    assert done.state == "success"
    assert done.result.xcom("final")["open_count"] == 7
    assert warehouse.query("SELECT mail_name, open_count FROM mail_campaign_stats") == [("spring sale", 7)]
