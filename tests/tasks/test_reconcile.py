"""`MailEventsReconcileOperator`: the events agree with the service's statistics, or it says where they do not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_mail.api.webhooks import EventToggles, SaveWebhook
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.operators.events import MailEventsReconcileOperator
from airflow_provider_mail.webhook.drain import EventTables
from airflow_provider_mail.webhook.events import Origin, read_push
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase

DAY = date(2026, 3, 2)
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
COUNTERS = {"sentCount", "openCount", "clickCount", "bounceCount", "unsentCount", "unsubscribeCount"}


def at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def event(code: str, mail: int, moment: datetime = NOON, sent: datetime | None = NOON, **fields: str) -> dict[str, str]:
    submitted = {"SubmitDateTimeV2": at(sent)} if sent else {}
    return {
        "EventCode": code,
        "Email": f"p{mail}@example.com",
        "UniqueMsgID": f"m{mail}",
        "TriggeredDateTimeV2": at(moment),
        **submitted,
        **fields,
    }


def drain(warehouse: SqlDatabase, events: Sequence[dict[str, str]], mail_conn_id: str = "mail_default") -> None:
    """What the drain stores of them."""
    rows = list(read_push(json.dumps(events).encode(), Origin(mail_conn_id, NOON + timedelta(days=1), 1), pytest.fail))
    EventTables(warehouse.hook, "mail_events", "mail_dead_letters").store(rows, [])


def counted(emulator: Emulator, day: date = DAY, **counts: int) -> None:
    emulator.set_transactional_day(day.isoformat(), **dict.fromkeys(COUNTERS, 0) | counts)


def a_day(warehouse: SqlDatabase, emulator: Emulator) -> None:
    """Ten mails: eight delivered, two bounced; one more dropped; three opened, one of them twice; a click."""
    sent = [event("Delivered", mail) for mail in range(8)] + [event("Bounced", mail) for mail in (8, 9)]
    later = [event("Opened", mail, NOON + timedelta(minutes=mail)) for mail in range(3)]
    later += [event("Opened", 0, NOON + timedelta(hours=1)), event("Clicked", 0), event("Unsubscribed", 2)]
    drain(warehouse, [*sent, event("Dropped", 10), *later, event("SpamReport", 1)])
    counted(emulator, sentCount=10, openCount=3, clickCount=1, bounceCount=1, unsentCount=1, unsubscribeCount=1)


def reconcile(**arguments: Any) -> MailEventsReconcileOperator:
    given = {"task_id": TASK, "sql_conn_id": "warehouse", "start_day": str(DAY), "end_day": str(DAY)}
    return MailEventsReconcileOperator(**given | arguments)


def stored(warehouse: SqlDatabase) -> dict[str, tuple[Any, ...]]:
    """Service count, least, most, difference and tolerated, by counter."""
    rows = warehouse.query(
        "SELECT counter, service_count, events_least, events_most, difference, tolerated FROM mail_event_differences"
    )
    return {counter: tuple(rest) for counter, *rest in rows}


def test_nothing_differs(run: Run, emulator: Emulator, any_warehouse: SqlDatabase) -> None:
    a_day(any_warehouse, emulator)

    for _ in range(2):
        done = run(reconcile)
        assert done.returned == {
            "table": "mail_event_differences",
            "start_day": "2026-03-02",
            "end_day": "2026-03-02",
            "compared": 6,
            "differing": 0,
            "differences": [],
        }

    assert stored(any_warehouse) == {
        "sent_count": (10, 10, 10, 0, True),
        "open_count": (3, 3, 4, 0, True),
        "click_count": (1, 1, 1, 0, True),
        "bounce_count": (1, 0, 2, 0, True),
        "unsent_count": (1, 1, 1, 0, True),
        "unsubscribe_count": (1, 1, 1, 0, True),
    }


def test_what_differs_is_stored_and_fails_the_task(run: Run, emulator: Emulator, warehouse: SqlDatabase) -> None:
    a_day(warehouse, emulator)
    counted(emulator, sentCount=12, openCount=2, clickCount=1, bounceCount=3, unsentCount=1, unsubscribeCount=1)
    MailHook().send(SaveWebhook(trans_enable=True, trans_event=EventToggles(delivered=True, opened=True)))

    done = run(reconcile)

    assert done.state == "failed"
    assert "3 counts of events and statistics differ" in done.log
    assert "2026-03-02 sent_count: service 12, events 10 (+2)" in done.log
    assert "2026-03-02 open_count: service 2, events 3 or 4 (-1)" in done.log
    assert "2026-03-02 bounce_count: service 3, events 0 to 2 (+1)" in done.log
    assert "the service does not push these events (transEvent): bounced" in done.log
    assert {name: row[3] for name, row in stored(warehouse).items() if row[3]} == {
        "sent_count": 2,
        "open_count": -1,
        "bounce_count": 1,
    }
    assert "p1@example.com" not in done.log


@pytest.mark.parametrize(
    ("arguments", "state"),
    [
        ({"tolerance": 2}, "success"),
        ({"tolerance": 1}, "failed"),
        ({"tolerance_fraction": 0.17}, "success"),  # 2 of 12
        ({"tolerance_fraction": 0.16}, "failed"),
        ({"tolerance": 1, "tolerance_fraction": 0.17}, "success"),
        ({"counters": ["open_count", "click_count"]}, "success"),
        ({"counters": ["sent_count"]}, "failed"),
    ],
)
def test_tolerance(run: Run, emulator: Emulator, warehouse: SqlDatabase, arguments: dict[str, Any], state: str) -> None:
    a_day(warehouse, emulator)
    counted(emulator, sentCount=12, openCount=3, clickCount=1, bounceCount=1, unsentCount=1, unsubscribeCount=1)

    done = run(lambda: reconcile(**arguments))

    assert done.state == state
    assert len(stored(warehouse)) == len(arguments.get("counters", COUNTERS))
    if state == "success" and "counters" not in arguments:
        assert done.returned["differences"] == [
            {"stats_date": "2026-03-02", "counter": "sent_count", "service_count": 12, "difference": 2}
        ]
        assert "sent_count: service 12, events 10 (+2) is tolerated" in done.log


@pytest.mark.parametrize(
    ("opened", "difference"),
    [(100, 15), (85, 0), (127, 0), (126, -1), (86, 1), (84, -1), (128, 1)],
)
def test_a_count_between_two_ways_to_count_agrees_with_neither(
    run: Run, emulator: Emulator, warehouse: SqlDatabase, opened: int, difference: int
) -> None:
    """100 people opened; the events of 15 of them were lost. Those that came opened 127 times."""
    mails = [event("Delivered", mail) for mail in range(100)]
    opens = [event("Opened", mail, NOON + timedelta(minutes=mail)) for mail in range(85)]
    again = [event("Opened", mail, NOON + timedelta(hours=2, minutes=mail)) for mail in range(42)]
    drain(warehouse, [*mails, *opens, *again])
    counted(emulator, sentCount=100, openCount=opened)
    done = run(reconcile)
    assert done.state == ("failed" if difference else "success")
    assert stored(warehouse)["open_count"] == (opened, 85, 127, difference, not difference)
    assert f"service {opened}, events 85 or 127 ({difference:+})" in done.log or not difference


@pytest.mark.parametrize("counted_on", ["send", "event"])
def test_bounces_after_midnight_belong_to_the_day_that_agrees(
    run: Run, emulator: Emulator, any_warehouse: SqlDatabase, counted_on: str
) -> None:
    """Nothing was lost: three mails of the second bounced on the third, and no event tells when they were sent."""
    midnight = datetime(2026, 3, 3, tzinfo=UTC)
    mails = [event("Delivered", mail) for mail in range(5)]
    bounces = [event("Bounced", mail, midnight + timedelta(minutes=mail), None) for mail in range(5, 8)]
    drain(any_warehouse, [*mails, *bounces, event("Delivered", 9, midnight, midnight)])
    counted(emulator, sentCount=8, bounceCount=3 if counted_on == "send" else 0)
    counted(emulator, date(2026, 3, 3), sentCount=1, bounceCount=0 if counted_on == "send" else 3)
    days = {"end_day": "2026-03-03", "counted_on": counted_on}
    assert run(lambda: reconcile(**days)).returned["differing"] == 0
    edges = any_warehouse.query("SELECT at_edges FROM mail_event_differences WHERE counter = 'sent_count'")
    assert edges == [(3,), (3,)]

    done = run(lambda: reconcile(**days, edge_hours=0))
    assert done.state == "failed"
    assert "2026-03-02 sent_count: service 8, events 5 (+3)" in done.log
    # A lost mail is no edge.
    counted(emulator, sentCount=9, bounceCount=3 if counted_on == "send" else 0)
    done = run(lambda: reconcile(**days))
    assert "2026-03-02 sent_count: service 9, events 5 to 8 (3 at the edges of the day) (+1)" in done.log


@pytest.mark.parametrize(("counted_on", "openings"), [("send", {2: 1, 3: 1}), ("event", {2: 0, 3: 2})])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_day_to_which_an_event_belongs(
    run: Run, emulator: Emulator, any_warehouse: SqlDatabase, counted_on: str, openings: dict[int, int], sparse: bool
) -> None:
    """A mail was sent on the second and opened on the third; without `SubmitDateTimeV2` it has that of Delivered."""
    next_day = NOON + timedelta(days=1)
    drain(
        any_warehouse,
        [
            event("Delivered", 1),
            event("Opened", 1, next_day, None if sparse else NOON),
            event("Delivered", 2, next_day, next_day),
            event("Opened", 2, next_day, None if sparse else next_day),
        ],
    )
    for day, opened in openings.items():
        counted(emulator, DAY.replace(day=day), sentCount=1, openCount=opened)

    assert run(lambda: reconcile(end_day="2026-03-03", counted_on=counted_on)).returned["differing"] == 0
    other = "event" if counted_on == "send" else "send"
    assert run(lambda: reconcile(end_day="2026-03-03", counted_on=other)).state == "failed"


def test_the_time_zone_of_the_service(run: Run, emulator: Emulator, any_warehouse: SqlDatabase) -> None:
    """The second of March in Tokyo ends at 15:00 in UTC."""
    moments = ["2026-03-01T14:59:59", "2026-03-01T15:00:00", "2026-03-02T14:59:59", "2026-03-02T15:00:00"]
    times = [datetime.fromisoformat(moment).replace(tzinfo=UTC) for moment in moments]
    drain(any_warehouse, [event("Delivered", number, time, time) for number, time in enumerate(times)])
    counted(emulator, sentCount=2)
    assert run(lambda: reconcile(time_zone="Asia/Tokyo")).returned["differing"] == 0

    done = run(lambda: reconcile(time_zone="Mars/Olympus"))
    assert (done.state, done.tries) == ("failed", 1)
    assert "time_zone: there is no time zone 'Mars/Olympus'" in done.log


def test_what_is_not_counted(run: Run, emulator: Emulator, any_warehouse: SqlDatabase) -> None:
    """Events of campaigns and of other accounts; recipients who share an id are counted each, repeated pushes once."""
    drain(any_warehouse, [event("Delivered", 1), event("Delivered", 1)])
    drain(any_warehouse, [event("Delivered", 1, Email="other@example.com"), event("Delivered", 1)])
    drain(any_warehouse, [event("Delivered", 2, Guid="g", MailName="spring"), {"EventCode": "TaskStatus", "Guid": "g"}])
    drain(any_warehouse, [event("Delivered", 3)], mail_conn_id="mail_shop")
    counted(emulator, sentCount=2)
    assert run(reconcile).returned["differing"] == 0

    drain(any_warehouse, [event("Delivered", mail, EventType="Trans") for mail in (5, 6, 7)])
    counted(emulator, sentCount=3)
    assert run(lambda: reconcile(event_types=["Trans", "trans"])).returned["differing"] == 0


def test_a_day_that_the_service_leaves_out(run: Run, emulator: Emulator, warehouse: SqlDatabase) -> None:
    emulator.settings.stats_empty_days = False
    drain(warehouse, [event("Delivered", 1)])
    done = run(lambda: reconcile(start_day="2026-03-01"))
    assert done.state == "failed"
    assert "2026-03-02 sent_count: service no record, events 1" in done.log
    assert "1 counts of events" in done.log
    rows = warehouse.query("SELECT service_count, difference FROM mail_event_differences")
    assert rows == [(None, None)] * 12


@pytest.mark.parametrize("ago", [0, 90])
def test_the_days_of_the_run_that_are_over(
    run: Run, emulator: Emulator, warehouse: SqlDatabase, new_dag: Callable[..., DAG], ago: int
) -> None:
    drain(warehouse, [])
    with new_dag() as dag:
        MailEventsReconcileOperator(task_id=TASK, sql_conn_id="warehouse", lookback_days=1)
    day = datetime.now(UTC) - timedelta(days=ago)

    run(dag, logical_date=day)

    days = [str(day) for (day,) in warehouse.query("SELECT DISTINCT stats_date FROM mail_event_differences")]
    last = 0 if ago else 1
    assert sorted(days) == [str((day - timedelta(days=before)).date()) for before in range(2, last - 1, -1)]


def test_a_sandbox_reads_all_the_same(run: Run, emulator: Emulator, connect: Connect, warehouse: SqlDatabase) -> None:
    connect(sandbox=True)
    a_day(warehouse, emulator)
    assert run(reconcile).returned["differing"] == 0


def test_lineage(emulator: Emulator, warehouse: SqlDatabase) -> None:
    a_day(warehouse, emulator)
    operator = reconcile()
    operator.execute({"data_interval_start": NOON, "data_interval_end": NOON + timedelta(days=1)})  # type: ignore[typeddict-item]
    lineage = operator.get_openlineage_facets_on_complete(None)
    names = [dataset.name.rpartition("/")[2] for dataset in lineage.inputs]
    assert names == ["stats", "mail_events"]
    (target,) = lineage.outputs
    assert target.name == "mail_event_differences"
    assert target.outputFacets["outputStatistics"].rowCount == 6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"counters": ["opens"]}, "counters: opens: none of sent_count, open_count"),
        ({"counters": "{{ 'sent_count' }}"}, "counters: a list that is not empty is needed"),
        ({"event_types": []}, "event_types: a list that is not empty is needed"),
        ({"counted_on": "noon"}, "counted_on: 'noon' is neither send nor event"),
        ({"table": "a b"}, "must be a name such as orders"),
        ({"start_day": "{{ 'yesterday' }}"}, "start_day: 'yesterday' is not a date"),
        ({"start_day": "{{ dag_run.run_after | ds }}", "end_day": None}, "only whole days can be compared"),
    ],
)
def test_wrong_arguments_fail_before_anything_is_sent(
    run: Run, emulator: Emulator, warehouse: SqlDatabase, arguments: dict[str, Any], words: str
) -> None:
    done = run(lambda: reconcile(**arguments, retries=2))
    assert (done.state, done.tries) == ("failed", 1)
    assert words in done.log
    assert emulator.journal.count() == 0


@pytest.mark.parametrize("arguments", [{"tolerance": -1}, {"tolerance_fraction": 1.5}, {"lookback_days": 0.5}])
def test_wrong_numbers_are_refused_when_the_dag_is_parsed(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        reconcile(**arguments)


def test_without_a_table_of_events(run: Run, emulator: Emulator, warehouse: SqlDatabase) -> None:
    done = run(reconcile)
    assert done.state == "failed"
    assert "mail_events" in done.log
