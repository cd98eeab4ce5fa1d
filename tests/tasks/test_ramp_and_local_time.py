"""A campaign over days, each with more people, and one at the local time of each: who gets which mail, and when."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pendulum
import pytest
from airflow.sdk import DAG
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_mail.arguments import Consent
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.send_window import SendWindow
from airflow_provider_mail.utils.staged_send import local_time_send, staged_send
from mail_emulator import Emulator
from tests.support.changes import post
from tests.support.clock import Clock
from tests.support.flow_tries import FlowRun, FlowTries
from tests.support.sampling import examples
from tests.tasks.conftest import Connect, Run

CREATES, IMPORTS = "campaign/mail/sends", "contacts/imports"
CAMPAIGN = {"sender_mail": "news@example.com", "subject": "Hi", "content": "<p>Hi</p>", "poke_interval": 3600}
GATE = {"max_hard_bounce": 0.9, "max_age": timedelta(hours=2), "poke_interval": 3600}
BERLIN = ZoneInfo("Europe/Berlin")
ZONES = ("Europe/Berlin", "Europe/Paris", "America/New_York", "Asia/Tokyo", "Pacific/Auckland", "Mars/Crater", "", None)


@pytest.fixture(autouse=True)
def _days_pass_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait looks twice a second whether its task was killed."""
    monkeypatch.setattr("airflow_provider_mail.operators.campaigns.KILL_POLL_SECONDS", 3600.0)


def addresses(count: int, begin: int = 0) -> list[str]:
    """Half of them in large letters, which a service may take for other people."""
    return [f"{'User' if number % 2 else 'user'}{number}@Example.com" for number in range(begin, begin + count)]


def people(rows: list[dict[str, Any]], **arguments: Any) -> MailImportContactsOperator:
    return MailImportContactsOperator(
        task_id="people", contacts=lambda: rows, list_name="all", exact_audience=True, **arguments
    )


def ramp_dag(count: int | list[str] = 40, **arguments: Any) -> DAG:
    emails = addresses(count) if isinstance(count, int) else count
    arguments = {"ramp": [5, 10, 20, 20], "campaign": {}, "gate": GATE, **arguments}
    with DAG("ramp", schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="Europe/Berlin")) as dag:
        staged_send(
            import_task=people([{"email": email} for email in emails]), mail_name="spring",
            **arguments | {"campaign": CAMPAIGN | arguments["campaign"]},
        )  # fmt: skip
    return dag


def local_dag(rows: list[tuple[str, Any]], columns: dict[str, str] | None = None, **arguments: Any) -> DAG:
    source = [{"email": email, "tz": zone} for email, zone in rows]
    campaign = CAMPAIGN | arguments.pop("campaign", {})
    arguments = {"send_time": time(9), "time_zone_column": "tz", **arguments}
    with DAG("local", schedule=None) as dag:
        local_time_send(import_task=people(source, columns=columns), mail_name="spring", campaign=campaign, **arguments)
    return dag


def sent(emulator: Emulator) -> dict[str, list[str]]:
    """Whom each campaign has reached, by its name."""
    names = [campaign["mailName"] for campaign in emulator.campaigns() if campaign["state"] in ("sending", "done")]
    return {name: [email.lower() for email in emulator.campaign_recipients(name)] for name in names}


def mailed(emulator: Emulator) -> Counter[str]:
    return Counter(email for emails in sent(emulator).values() for email in emails)


def everybody(emails: list[str]) -> Counter[str]:
    return Counter({email.lower() for email in emails})


def times(emulator: Emulator) -> dict[str, datetime]:
    """When each campaign was sent, as the service shows it."""
    found = post(emulator, "campaign/mail/get", pageSize=100)["mailList"]
    by_time = sorted((one["sendByDateTime"] / 1000, one["mailName"]) for one in found)
    return {name: datetime.fromtimestamp(moment, UTC) for moment, name in by_time}


def travel(clock: Clock, moment: datetime) -> None:
    """Let it be a moment, at the service and here."""
    clock.set_wall_clock((moment - datetime.now(UTC)).total_seconds())


def ending(*task_ids: str) -> Callable[[FlowTries, Callable[[], Any], int], None]:
    """Run all tasks but some, which are ended from outside."""

    def run_task(tries: FlowTries, make: Callable[[], Any], most: int) -> None:
        if make().task_id in task_ids:
            tries.state = "failed"
        else:
            tries.run_all(make, most)

    return run_task


# --- a ramp ---


@pytest.mark.parametrize("identity", ["folding", "exact"])
def test_a_ramp_mails_so_many_people_each_day(run_in_airflow: Run, emulator: Emulator, identity: str) -> None:
    emulator.change_settings(contact_identity=identity)
    emails = addresses(40)
    done = run_in_airflow(ramp_dag([*emails, "user1@example.com"], ramp=[5, 10, 20, 20, 20]))
    ends = {task_id.partition(".")[2]: task.state for (task_id, _), task in done.result.tasks.items()}
    assert {name for name, state in ends.items() if state != "success"} == {"send_day_5"}, done.log
    assert ends["send_day_5"] == "skipped"
    assert [len(found) for found in sent(emulator).values()] == [5, 10, 20, 5]
    assert mailed(emulator) == everybody(emails)
    days = list(times(emulator).values())
    assert all(
        timedelta(days=1) <= late - early < timedelta(days=1, hours=2) for early, late in itertools.pairwise(days)
    )
    assert done.result.xcom("staged_send.sent")["mailed"] == 40


def test_a_day_has_23_hours_when_the_clocks_are_set(emulator: Emulator, clock: Clock) -> None:
    travel(clock, datetime(2027, 3, 26, 7, tzinfo=UTC))
    begin = datetime(2027, 3, 26, 9, tzinfo=BERLIN)
    run = FlowRun(ramp_dag(campaign={"send_date": begin}), emulator, most=1)
    run.run()
    assert run.succeeded
    asked = [entry["body"]["sendDate"] for entry in emulator.journal.entries(CREATES)]
    assert asked == [f"2027-03-{day}T{hour}:00:00Z" for day, hour in ((26, "08"), (27, "08"), (28, "07"), (29, "07"))]
    assert [moment.astimezone(BERLIN).hour for moment in times(emulator).values()] == [9] * 4


def test_a_day_that_is_outside_of_the_window_is_moved(emulator: Emulator, clock: Clock) -> None:
    """And the day after it is counted from then."""
    travel(clock, datetime(2027, 1, 14, 9, tzinfo=UTC))  # a Thursday
    run = FlowRun(ramp_dag(campaign={"send_window": SendWindow()}), emulator, most=1)
    run.run()
    assert [moment.strftime("%a") for moment in times(emulator).values()] == ["Thu", "Fri", "Mon", "Tue"]


def test_a_gate_that_passes_late_makes_the_day_later(emulator: Emulator, clock: Clock) -> None:
    run = FlowRun(ramp_dag(), emulator, most=1)
    run.run(ending("staged_send.gate_day_1"))
    assert list(sent(emulator)) == ["spring day_1"]
    clock.sleep(3 * 86_400)
    run.run()
    first, second, third, _ = times(emulator).values()
    assert timedelta(days=3) < second - first < timedelta(days=3, hours=3)
    assert timedelta(days=1) <= third - second < timedelta(days=1, hours=2)
    assert mailed(emulator) == everybody(addresses(40))


def test_a_gate_that_fails_ends_the_ramp(run: Run, emulator: Emulator) -> None:
    emulator.change_settings(hard_bounce_rate=1.0)
    done = run(lambda: staged_send(
        import_task=people([{"email": email} for email in addresses(40)]), ramp=[5, 10, 25], mail_name="spring",
        campaign=CAMPAIGN, gate=GATE,
    ))  # fmt: skip
    assert done.state == "failed"
    assert [len(found) for found in sent(emulator).values()] == [5]


def test_a_ramp_with_too_few_days_mails_nobody(emulator: Emulator) -> None:
    run = FlowRun(ramp_dag(80), emulator, most=1)
    run.run()
    assert "its 4 days have room for 55 people, and the source has 80" in str(run.tries["people"].error)
    assert "ramp=[..., *[20] * 2]" in str(run.tries["people"].error)
    assert emulator.journal.entries(IMPORTS) == []
    run.clear(ramp_dag(80, ramp=[5, 10, *[20] * 4]))
    run.run()
    assert (run.succeeded, mailed(emulator)) == (True, everybody(addresses(80)))
    assert [len(found) for found in sent(emulator).values()] == [5, 10, 20, 20, 20, 5]


def test_people_who_said_no_are_no_change_of_the_source(emulator: Emulator) -> None:
    rows = [{"email": email, "news": "no" if number < 10 else "yes"} for number, email in enumerate(addresses(40))]
    with DAG("ramp", schedule=None) as dag:
        staged_send(
            import_task=people(rows, consent=Consent(column="news", yes=["yes"])), ramp=[5, 30], mail_name="spring",
            campaign=CAMPAIGN, gate=GATE,
        )  # fmt: skip
    run = FlowRun(dag, emulator, most=1)
    run.run()
    assert (run.succeeded, mailed(emulator)) == (True, everybody(addresses(30, 10)))
    assert run.tries["staged_send.sent"].returned["opted_out"] == 10


RAMPS = st.sampled_from([[5, 10, 20, 20], [5, 10, 20, 20, 20, 20], [40, 60], [100]])
CHANGES = st.tuples(
    st.integers(0, 30), st.integers(1, 55), RAMPS, st.sampled_from(["fail", "mail_others"]), st.sampled_from([0, 1, 30])
)
BEGINS = st.sampled_from([None, datetime(2027, 3, 26, 8, tzinfo=UTC), datetime(2027, 10, 29, 8, tzinfo=UTC)])
"""When a history begins: now, or some days before a change of the clocks."""
LOST = st.none() | st.tuples(st.sampled_from(["close_before", "close_after"]), st.integers(0, 4))
"""A request for a campaign whose response is lost, and how many come before it."""


@settings(max_examples=examples(15), suppress_health_check=[*HealthCheck])
@given(
    identity=st.sampled_from(["folding", "exact"]),
    begin=BEGINS,
    passes=st.lists(st.tuples(st.sampled_from([*range(1, 5), None]), LOST, CHANGES), min_size=1, max_size=3),
)
def test_a_ramp_that_is_cleared_mails_nobody_twice(
    emulator: Emulator, clock: Clock, identity: str, begin: datetime | None, passes: list[tuple[int | None, Any, Any]]
) -> None:
    """Each pass ends at a day; then all is cleared, with another source, and perhaps other days and hours later."""
    emulator.reset()
    emulator.add_sender("news@example.com")
    emulator.change_settings(contact_identity=identity)
    if begin:
        travel(clock, begin)
    run, source = FlowRun(ramp_dag(), emulator, most=2), addresses(40)
    for end, lost, (first, count, ramp, on_changed_plan, hours) in passes:
        if lost:
            emulator.faults.add(lost[0], CREATES, skip=lost[1], count=1)
        run.run(ending(f"staged_send.send_day_{end}"))
        emulator.faults.clear()
        assert set(mailed(emulator).values()) <= {1}
        source = addresses(count, first)
        clock.sleep(hours * 3600)
        run.clear(ramp_dag(source, ramp=ramp, on_changed_plan=on_changed_plan))
    run.run()
    counts = mailed(emulator)
    assert set(counts.values()) <= {1}
    assert not run.succeeded or everybody(source).keys() <= counts.keys()
    days = [moment.astimezone(BERLIN).replace(tzinfo=None) for moment in sorted(times(emulator).values())]
    assert all(late - early >= timedelta(days=1) for early, late in itertools.pairwise(days))


# --- local time ---


def zoned(count: int = 40, begin: int = 0) -> list[tuple[str, Any]]:
    return [(email, ZONES[number % len(ZONES)]) for number, email in enumerate(addresses(count, begin), begin)]


@pytest.mark.parametrize("identity", ["folding", "exact"])
def test_each_person_is_mailed_at_nine(run_in_airflow: Run, emulator: Emulator, clock: Clock, identity: str) -> None:
    """Zones with the same moment share a campaign; a zone that is not known is the default."""
    travel(clock, datetime(2027, 1, 14, 12, tzinfo=UTC))
    emulator.change_settings(contact_identity=identity)
    done = run_in_airflow(local_dag(zoned()))
    assert done.state == "success", done.log
    zone_of = {email.lower(): zone if zone and "Mars" not in zone else "UTC" for email, zone in zoned()}
    moments = times(emulator)
    assert {
        email: moments[name].astimezone(ZoneInfo(zone_of[email])).isoformat()[:16]
        for name, emails in sent(emulator).items() for email in emails
    } == dict.fromkeys(zone_of, "2027-01-15T09:00")  # fmt: skip
    assert mailed(emulator) == everybody([email for email, _ in zoned()])
    assert sorted(moments) == [
        f"spring 2027-01-{moment}:00:00Z" for moment in ("14T20", "15T00", "15T08", "15T09", "15T14")
    ]
    assert done.result.xcom("local_time_send.sent")["mailed"] == 40
    # The column is not a property of contacts, unless it is mapped.
    properties = {one["propertyName"] for entry in emulator.journal.entries(IMPORTS)
                  for one in entry["body"]["contactDataMapping"]}  # fmt: skip
    assert properties == {"email"}


def test_a_time_that_has_passed_is_tomorrow(emulator: Emulator, clock: Clock) -> None:
    travel(clock, datetime(2027, 1, 15, 8, 30, tzinfo=UTC))
    columns = {"email": "email", "tz": "timezone"}
    run = FlowRun(local_dag(zoned(), columns, send_day="2027-01-15", default_time_zone="Asia/Tokyo"), emulator, most=1)
    run.run()
    assert sorted(times(emulator)) == [
        "spring 2027-01-15T14:00:00Z", "spring 2027-01-15T20:00:00Z", "spring 2027-01-16T00:00:00Z",
        "spring 2027-01-16T08:00:00Z",
    ]  # fmt: skip
    assert run.succeeded
    sample = post(emulator, "contacts/get", email="user0@example.com")["contact"]
    assert sample["properties"]["timezone"] == "Europe/Berlin"


@pytest.mark.parametrize(("day", "moment"), [("2027-03-28", "T01:30"), ("2027-10-31", "T00:30")])
def test_a_time_that_does_not_exist_or_exists_twice_is_once(
    emulator: Emulator, clock: Clock, day: str, moment: str
) -> None:
    travel(clock, datetime(2027, 3, 1, tzinfo=UTC) if "-03-" in day else datetime(2027, 10, 1, tzinfo=UTC))
    rows: list[tuple[str, Any]] = [("a@example.com", "Europe/Berlin")]
    run = FlowRun(local_dag(rows, send_time=time(2, 30), send_day=day), emulator, most=1)
    run.run()
    assert [entry["body"]["sendDate"] for entry in emulator.journal.entries(CREATES)] == [f"{day}{moment}:00Z"]


def test_caps_and_holds_stop_a_zone(emulator: Emulator, connect: Connect, clock: Clock) -> None:
    travel(clock, datetime(2027, 1, 14, 12, tzinfo=UTC))
    connect(max_campaigns_per_day=2)
    run = FlowRun(local_dag(zoned(), send_day="2027-01-15"), emulator, most=1)
    run.run()
    assert sorted(times(emulator)) == [f"spring 2027-01-{moment}:00:00Z" for moment in ("14T20", "15T00", "15T08")]
    assert "max_campaigns_per_day" in [str(tries.error) for tries in run.mapped if tries.error][-1]
    connect()
    run.run()
    assert (run.succeeded, mailed(emulator)) == (True, everybody(addresses(40)))


def test_the_sandbox_makes_no_campaign(run_in_airflow: Run, emulator: Emulator, connect: Connect) -> None:
    connect(sandbox=True)
    assert run_in_airflow(local_dag(zoned(8))).state == "success"
    assert emulator.campaigns() == []


@settings(max_examples=examples(15), suppress_health_check=[*HealthCheck])
@given(
    identity=st.sampled_from(["folding", "exact"]),
    start=BEGINS,
    passes=st.lists(
        st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 20), st.integers(1, 40), st.integers(0, 30)),
        min_size=1, max_size=3,
    ),
)  # fmt: skip
def test_local_times_that_are_cleared_mail_nobody_twice(
    emulator: Emulator,
    clock: Clock,
    identity: str,
    start: datetime | None,
    passes: list[tuple[int, bool, int, int, int]],
) -> None:
    """After some campaigns, the service has errors, which may be after it did what was asked; then all is cleared."""
    emulator.reset()
    emulator.add_sender("news@example.com")
    emulator.change_settings(contact_identity=identity)
    if start:
        travel(clock, start)
    run, source = FlowRun(local_dag(zoned()), emulator, most=2), zoned()
    for skip, lost, begin, count, hours in passes:
        emulator.faults.add("close_after" if lost else "close_before", CREATES, skip=skip, count=2)
        run.run()
        assert set(mailed(emulator).values()) <= {1}
        emulator.faults.clear()
        source = zoned(count, begin)
        clock.sleep(hours * 3600)
        run.clear(local_dag(source))
    run.run()
    counts = mailed(emulator)
    assert set(counts.values()) <= {1}
    assert not run.succeeded or everybody([email for email, _ in source]).keys() <= counts.keys()


def test_a_send_date_and_a_second_group_are_refused() -> None:
    with DAG("d", schedule=None):
        imports = people([])
        make: Callable[..., object] = lambda **campaign: local_time_send(  # noqa: E731
            import_task=imports, mail_name="a", campaign=CAMPAIGN | campaign, send_time=time(9), time_zone_column="tz"
        )
        with pytest.raises(ValueError, match="campaign: not with send_date, which follows from send_time"):
            make(send_date="2027-01-01T00:00:00Z")
        make()
        with pytest.raises(ValueError, match="import_task: task 'people' is that of another group"):
            make()
