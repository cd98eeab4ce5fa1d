"""`MailStatsSettledSensor`: three ways to wait until the counts of a campaign are final, one meaning."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.exceptions import AirflowProviderDeprecationWarning
from airflow.sdk import DAG

from airflow_provider_mail._polling import shared_poller
from airflow_provider_mail.api.flows import polling
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.sensors.stats import MailStatsSettledSensor
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.conftest import TASK, Run, SqlDatabase
from tests.tasks.lineage_run import activate_assets
from tests.tasks.sensing import WAYS, every_way, repeating
from tests.tasks.test_example_dags import example
from tests.tasks.waiting import answered, as_soon_as

STATS = "campaign/mail/stats/get"
SENT = datetime.now(UTC).replace(microsecond=0)
REMEMBERS = AIRFLOW_VERSION >= (3, 3)
# Below 3.3 a rescheduled sensor remembers nothing.
remembering = pytest.mark.parametrize("way", WAYS if REMEMBERS else ["poke", "deferrable"])


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_poller, "SETTLE_SECONDS", 0.1)
    monkeypatch.setattr(polling, "CONFIRM_SECONDS", 0.5)
    monkeypatch.setattr(polling, "MAX_BACKOFF", 0.2)


def wait(way: str, **arguments: Any) -> MailStatsSettledSensor:
    given = {
        "task_id": TASK,
        "mail_name": "spring",
        "poke_interval": 0.3,
        "min_interval": 0.05,
        "timeout": 60,
        "retries": 2,
    }
    # Far away, so that only what a test is about ends the wait.
    return MailStatsSettledSensor(**{"max_age": timedelta(days=3650)} | given | WAYS[way] | arguments)


def counting(emulator: Emulator, **counts: int) -> None:
    emulator.add_campaign("spring", send_date=SENT)
    emulator.set_campaign_stats("spring", sentCount=100, **counts)


def asked(emulator: Emulator) -> list[tuple[str, str]]:
    return [(entry["body"]["startDate"], entry["body"]["endDate"]) for entry in emulator.journal.entries(STATS)]


@remembering
def test_the_same_three_times(run: Run, emulator: Emulator, way: str) -> None:
    counting(emulator, openCount=7, hardBounce=2)

    done = run(lambda: wait(way))

    assert (done.state, done.tries) == ("success", 1)
    assert done.returned == {
        "mail_send_date": SENT.isoformat().replace("+00:00", "Z"),
        "mail_name": "spring",
        "sent_count": 100,
        "open_count": 7,
        "click_count": 0,
        "hard_bounce": 2,
        "soft_bounce": 0,
        "unsent_count": 0,
        "unsubscribe_count": 0,
    }
    assert emulator.journal.count(STATS) == 3
    assert "the same in 2 of 3 observations" in done.log


@remembering
def test_counts_that_still_grow_are_not_final(run: Run, emulator: Emulator, way: str) -> None:
    counting(emulator, openCount=7)

    with as_soon_as(lambda: answered(emulator, STATS) >= 2, lambda: emulator.set_campaign_stats("spring", openCount=8)):
        done = run(lambda: wait(way))

    assert (done.state, done.returned["open_count"]) == ("success", 8)
    # The third look may find the new count already.
    assert emulator.journal.count(STATS) >= 4


@remembering
def test_looks_too_close_to_each_other_are_no_observations(run: Run, emulator: Emulator, way: str) -> None:
    counting(emulator)
    began = time.time()

    done = run(lambda: wait(way, poke_interval=0.2, min_interval=timedelta(seconds=1.5), stable_checks=2))

    assert done.state == "success"
    # Not since the first request arrived: that is a moment later than the time from which the interval counts.
    *_, last = (entry["real_ms"] for entry in emulator.journal.entries(STATS))
    assert last / 1000 - began >= 1.5 * 0.99
    assert emulator.journal.count(STATS) > 2


@every_way
def test_old_enough(run: Run, emulator: Emulator, way: str) -> None:
    emulator.add_campaign("spring", send_date=datetime.now(UTC) - timedelta(days=3))

    done = run(lambda: wait(way, max_age=timedelta(days=2)))

    assert (done.state, done.tries) == ("success", 1)
    assert emulator.journal.count(STATS) == 1
    assert "it was sent 3 days, 0:00:0" in done.log


@repeating
def test_age_alone_is_waited_for(run: Run, emulator: Emulator, way: str) -> None:
    sent = datetime.now(UTC)
    emulator.add_campaign("spring", send_date=sent)

    done = run(lambda: wait(way, stable_checks=None, max_age=2.0))

    assert done.state == "success"
    (*_, last) = (entry["real_ms"] for entry in emulator.journal.entries(STATS))
    assert last >= sent.timestamp() * 1000 + 1990
    if way == "deferrable":
        # There was nothing to see before then.
        assert emulator.journal.count(STATS) == 2


@repeating
def test_it_asks_for_the_window_until_the_day_is_known(run: Run, emulator: Emulator, way: str) -> None:
    today = datetime.now(UTC).date()

    with as_soon_as(lambda: answered(emulator, STATS) >= 2, lambda: emulator.add_campaign("spring")):
        done = run(lambda: wait(way, start_day=f"{today - timedelta(days=5)}", max_age=5.0, stable_checks=None))

    assert done.state == "success"
    assert asked(emulator)[0] == (f"{today - timedelta(days=5)}", f"{today}")
    if way != "reschedule" or REMEMBERS:
        assert asked(emulator)[-1] == (f"{today - timedelta(days=1)}", f"{today}")
    assert "there are no statistics of a campaign 'spring' (yet)" in done.log
    assert {entry["body"].get("mailName") for entry in emulator.journal.entries(STATS)} == {"spring"}


def test_the_window_begins_before_the_run(run: Run, emulator: Emulator) -> None:
    today = datetime.now(UTC).date()

    run(lambda: wait("poke", mail_name="nobody", timeout=0.2), logical_date=datetime(2026, 3, 10, 9, tzinfo=UTC))

    assert asked(emulator)[0] == ("2026-03-02", f"{today}")


@pytest.mark.parametrize("way", ["poke", "deferrable", *(["reschedule"] if REMEMBERS else [])])
def test_disappeared(run: Run, emulator: Emulator, way: str) -> None:
    counting(emulator)

    with as_soon_as(lambda: answered(emulator, STATS) >= 2, lambda: emulator.set_campaign_state("spring", "removed")):
        done = run(lambda: wait(way, stable_checks=99))

    assert (done.state, done.tries) == ("failed", 1)
    assert "the statistics of campaign 'spring' have disappeared" in done.log


@repeating
def test_the_time_is_up(run: Run, emulator: Emulator, way: str) -> None:
    counting(emulator)

    for timeout in (1, 10):  # on a busy machine, a second is over before the second poll
        emulator.journal.clear()
        done = run(lambda timeout=timeout: wait(way, stable_checks=99, poke_interval=0.1, timeout=timeout))
        if emulator.journal.count(STATS) >= 2:
            break

    assert (done.state, done.tries) == ("failed", 1)
    assert emulator.journal.count(STATS) >= 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"start_day": "{{ 'soon' }}"}, "start_day: is not a date of the form YYYY-MM-DD"),
        ({"start_day": "2026-03-05", "end_day": "2026-03-04"}, "end_day: 2026-03-04 is before start_day 2026-03-05"),
    ],
)
def test_what_cannot_be_fails_at_once(run: Run, emulator: Emulator, arguments: dict[str, str], words: str) -> None:
    done = run(lambda: wait("deferrable", **arguments))

    assert (done.state, done.tries) == ("failed", 1)
    assert words in done.log
    assert emulator.journal.count() == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"stable_checks": None, "max_age": None}, "stable_checks, max_age: one of them"),
        ({"stable_checks": 1}, "stable_checks: must be a whole number, at least 2"),
        ({"min_interval": -1}, "min_interval: must be a number, at least 0"),
        ({"max_age": timedelta(days=-1)}, "max_age: must be a number, at least 0"),
        ({"lookback_days": -1}, "lookback_days: must be a whole number, at least 0"),
    ],
)
def test_what_cannot_be_is_refused_when_the_dag_is_parsed(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        wait("poke", **arguments)


@pytest.mark.skipif(REMEMBERS, reason="3.3 has a task state store")
def test_without_a_memory_rescheduling_needs_an_age(run: Run, emulator: Emulator) -> None:
    with pytest.raises(ValueError, match=r"stable_checks: Airflow before 3\.3 keeps nothing between the polls"):
        wait("reschedule", max_age=None)
    emulator.add_campaign("spring")
    if AIRFLOW_VERSION >= (3, 1):
        done = run(lambda: wait("reschedule", max_age=2.0))
        assert done.state == "success"
        assert "only max_age ends the wait" in done.log


@pytest.mark.skipif(not REMEMBERS, reason="needs the task state store of 3.3")
def test_a_new_try_goes_on_where_the_last_one_was(run: Run, emulator: Emulator) -> None:
    counting(emulator)
    emulator.faults.add("too_many_requests", STATS, count=4, skip=2, retry_after=999)
    arguments = {"poke_interval": 0.05, "min_interval": 0.05, "stable_checks": 3, "retry_delay": 0}

    done = run(lambda: wait("poke", poll_error_timeout=0, **arguments))

    # Two observations, three failed polls that end the try, one more in the second, and one observation.
    assert (done.state, done.tries) == ("success", 2)
    assert emulator.journal.count(STATS) == 2 + 4 + 1


def test_the_example(run_in_airflow: Run, emulator: Emulator, warehouse: SqlDatabase) -> None:
    emulator.add_campaign("spring sale", send_date=datetime.now(UTC) - timedelta(days=3))
    emulator.set_campaign_stats("spring sale", sentCount=100, openCount=7)
    dag = example("mail_final_statistics")
    final = dag.get_task("final")
    final.poke_interval, final.min_interval = 0.2, 0.05  # type: ignore[attr-defined]
    activate_assets(dag)

    done = run_in_airflow(dag)

    assert done.state == "success"
    assert done.result.xcom("final")["open_count"] == 7
    assert warehouse.query("SELECT mail_name, open_count FROM mail_campaign_stats") == [("spring sale", 7)]
    assert emulator.journal.count(STATS) == 3 + 1


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("observations", "stable_checks", 5),
        ("observations", "stable_checks", None),
        ("apart", "min_interval", 60.0),
        ("age", "max_age", None),
        ("age", "max_age", 86_400.0),
    ],
)
def test_the_old_name_of_an_argument_is_accepted_with_a_warning(old: str, new: str, value: float | None) -> None:
    given: dict[str, Any] = {"task_id": TASK, "mail_name": "spring", "max_age": 7.0, old: value}
    with pytest.warns(AirflowProviderDeprecationWarning, match=f"^{old} is deprecated, use {new}$") as caught:
        sensor = MailStatsSettledSensor(**given)
    assert getattr(sensor, new) == value
    # Python may report something else at the same time, such as what its garbage collector finds unclosed.
    ours = [warning.filename for warning in caught if warning.category is AirflowProviderDeprecationWarning]
    assert ours == [__file__]


def test_mapped_sensors_take_the_old_names() -> None:
    with DAG("mapped", schedule=None) as dag:
        MailStatsSettledSensor.partial(task_id=TASK, age=7.0, apart=60.0).expand(mail_name=["a", "b"])
    assert dag.task_ids == [TASK]
