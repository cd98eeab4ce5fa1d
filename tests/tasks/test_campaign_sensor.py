"""`MailCampaignSensor`: three ways to wait, one meaning."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from tests.support.changes import at_request
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.conftest import TASK, Run
from tests.tasks.sensing import WAYS, every_way, repeating, retrying

GETS = "campaign/mail/get"


def wait(way: str, **arguments: Any) -> MailCampaignSensor:
    given = {"task_id": TASK, "mail_name": "spring", "poke_interval": 60, "timeout": 86_400, "retries": 2}
    return MailCampaignSensor(**given | WAYS[way] | arguments)


@repeating
def test_gone_out_at_last(run: Run, emulator: Emulator, way: str) -> None:
    emulator.add_campaign("spring", state="sending", sent=500)
    emulator.plan_campaign("spring", looks=3)

    done = run(lambda: wait(way))

    assert (done.state, done.tries) == ("success", 1)
    assert done.returned["sent_count"] == 500
    assert set(done.returned) == {
        "sent_count",
        "delivered_count",
        "open_count",
        "click_count",
        "hard_bounce",
        "soft_bounce",
        "unsent_count",
        "unsubscribe_count",
    }
    assert emulator.journal.count(GETS) == 4
    assert "campaign 'spring': sending (mailStatus 1)" in done.log


@every_way
def test_gone_out_already(run: Run, emulator: Emulator, way: str) -> None:
    emulator.add_campaign("spring")

    done = run(lambda: wait(way))

    assert (done.state, emulator.journal.count(GETS)) == ("success", 1)


@every_way
@pytest.mark.parametrize(
    ("state", "words"), [("failed", "mailStatus 4"), ("draft", "is a draft (mailStatus -1): saved only, or cancelled")]
)
def test_will_not_go_out(run: Run, emulator: Emulator, way: str, state: str, words: str) -> None:
    emulator.add_campaign("spring", state=state)

    done = run(lambda: wait(way))

    assert (done.state, done.tries) == ("failed", 1)
    assert words in done.log


@pytest.mark.parametrize("way", ["poke", "deferrable"])
def test_disappears(run: Run, emulator: Emulator, way: str) -> None:
    emulator.settings.sending_seconds = 1_000_000
    emulator.add_campaign("spring", state="sending")

    with at_request(emulator, GETS, 2, lambda: emulator.set_campaign_state("spring", "removed")):
        done = run(lambda: wait(way))

    assert (done.state, done.tries) == ("failed", 1)
    assert "campaign 'spring' has disappeared: deleted or cancelled at the service" in done.log


@repeating
def test_cancelled_while_it_waits(run: Run, emulator: Emulator, way: str) -> None:
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    emulator.add_campaign("spring", state="scheduled", send_date=later)

    def cancel() -> None:
        emulator.set_campaign_state("spring", "draft")
        emulator.clock.advance(hours=2)

    with at_request(emulator, GETS, 1, cancel):
        done = run(lambda: wait(way, timeout=86_400))

    assert (done.state, done.tries) == ("failed", 1)
    assert "is a draft" in done.log


@repeating
def test_appears_late(run: Run, emulator: Emulator, way: str) -> None:
    with at_request(emulator, GETS, 5, lambda: emulator.add_campaign("spring")):
        done = run(lambda: wait(way))

    assert done.state == "success"
    assert "campaign 'spring' was never seen" in done.log


@repeating
def test_a_longer_name_is_another_campaign(run: Run, emulator: Emulator, way: str) -> None:
    emulator.add_campaign("spring sale")

    done = run(lambda: wait(way, timeout=3600))

    assert done.state == "failed"


def test_a_deferred_wait_for_a_scheduled_campaign_asks_nothing_until_then(run: Run, emulator: Emulator) -> None:
    emulator.settings.scheduled_status = -1
    emulator.settings.sending_seconds = 0.0

    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=5)
    emulator.add_campaign("spring", state="scheduled", send_date=soon)

    assert run(lambda: wait("deferrable")).state == "success"

    first, *others = (entry["real_ms"] / 1000 for entry in emulator.journal.entries(GETS))
    assert first < soon.timestamp() <= min(others)


@repeating
@pytest.mark.parametrize("soft_fail", [False, True])
def test_the_time_is_up(run: Run, emulator: Emulator, way: str, soft_fail: bool) -> None:
    emulator.settings.sending_seconds = 1_000_000
    emulator.add_campaign("spring", state="sending")

    done = run(lambda: wait(way, timeout=3600, soft_fail=soft_fail))

    # Retrying a wait whose time is up would only double the time.
    assert (done.state, done.tries) == ("skipped" if soft_fail else "failed", 1)
    assert emulator.journal.count(GETS) >= 2


@every_way
@pytest.mark.parametrize("state", ["failed", "draft"])
def test_soft_fail_skips(run: Run, emulator: Emulator, way: str, state: str) -> None:
    emulator.add_campaign("spring", state=state)

    done = run(lambda: wait(way, soft_fail=True))

    assert (done.state, done.tries) == ("skipped", 1)


@every_way
def test_a_connection_without_a_host_fails_at_once(run: Run, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", '{"conn_type": "mail", "password": "x"}')

    done = run(lambda: wait(way))

    assert (done.state, done.tries) == ("failed", 1)
    assert "connection 'mail_default': host (base URL): " in done.log


@every_way
def test_polls_that_fail_end_no_wait(run: Run, emulator: Emulator, way: str) -> None:
    emulator.add_campaign("spring")
    # One poll is up to five requests.
    emulator.faults.add("code_before", GETS, count=6)

    done = run(lambda: wait(way))

    assert (done.state, done.tries) == ("success", 1)
    assert "poll failed (1 in a row; the wait ends after 600 s of failed polls)" in done.log


@retrying
def test_after_polls_have_failed_for_too_long_the_task_is_tried_again(run: Run, emulator: Emulator, way: str) -> None:
    emulator.add_campaign("spring")
    # So long a pause is not waited for: each poll is one request.
    emulator.faults.add("too_many_requests", GETS, count=3 if way == "poke" else 4, retry_after=999)

    done = run(lambda: wait(way, poll_error_timeout=0, retry_delay=0))

    assert (done.state, done.tries) == ("success", 2)
    assert "connection 'mail_default': 3 polls in a row failed" in done.log


@pytest.mark.parametrize("fault", ["polls", "connection"])
def test_a_sensor_that_fails_silently_polls_again(
    run: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    emulator.add_campaign("spring")
    if fault == "polls":
        # So long a pause is not waited for: each poll is one request.
        emulator.faults.add("too_many_requests", GETS, count=3, retry_after=999)
    else:
        broken = iter([ConnectionAbortedError("no secrets backend")])
        original = MailCampaignSensor.poll

        def poll(sensor: MailCampaignSensor, context: Any) -> Any:
            if error := next(broken, None):
                raise error
            return original(sensor, context)

        monkeypatch.setattr(MailCampaignSensor, "poll", poll)

    done = run(lambda: wait("poke", poll_error_timeout=0, silent_fail=True))

    assert (done.state, done.tries) == ("success", 1)
    assert "Sensor poke failed" in done.log


@repeating
def test_a_name_that_never_existed_is_named_as_such(run: Run, emulator: Emulator, way: str) -> None:
    done = run(lambda: wait(way, mail_name="sprang", timeout=3600))

    assert done.state == "failed"
    seen = "was never seen: the service has none of"
    if way == "reschedule" and AIRFLOW_VERSION < (3, 3):  # each poll but the first knows nothing of the one before
        seen = rf"was not found \(yet\)|{seen}"
    assert re.search(rf"the wait timed out.*: campaign 'sprang' ({seen})", done.log)


@every_way
@pytest.mark.parametrize("state", ["sending", "scheduled"])
def test_the_service_s_clock_is_ahead(run: Run, emulator: Emulator, way: str, state: str) -> None:
    """`make demo-ui` moves it. By our clock the send time is in two days."""
    if way not in repeating.args[1]:
        pytest.skip("the supervisor in one process of Airflow 3.0 cannot go on after a reschedule")
    emulator.settings.scheduled_status = -1
    emulator.settings.sending_seconds = 60.0
    emulator.clock.advance(days=2)
    there = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=2, hours=1 if state == "scheduled" else 0)
    emulator.add_campaign("spring", state=state, send_date=there)  # type: ignore[arg-type]

    done = run(lambda: wait(way))

    assert done.state == "success"


def test_the_name_is_a_template(run: Run, new_dag: Callable[..., Any], emulator: Emulator) -> None:
    emulator.add_campaign("spring")
    with new_dag(params={"season": "spring"}) as dag:
        wait("poke", mail_name="{{ params.season }}")

    assert run(dag).result.task(TASK).state == "success"
