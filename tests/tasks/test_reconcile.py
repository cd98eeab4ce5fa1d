"""`MailReconcileEventsOperator`: the events agree with the service's statistics, or it says where they do not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_mail.api.webhooks import EventToggles, SaveWebhook
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.operators.events import MailReconcileEventsOperator
from airflow_provider_mail.version_compat import AirflowException
from airflow_provider_mail.webhook.drain import Drained, EventTables
from airflow_provider_mail.webhook.events import Origin, read_push
from mail_emulator import Emulator
from tests.support.clock import Clock
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase
from tests.tasks.loading import error_of, executed

DAY = date(2026, 3, 2)
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
COUNTERS = {"sentCount", "openCount", "clickCount", "bounceCount", "unsentCount", "unsubscribeCount"}
TABLE = "mail_event_differences"


def event(code: str, mail: int, moment: datetime = NOON, sent: datetime | None = NOON) -> dict[str, str]:
    times = {"TriggeredDateTimeV2": moment, "SubmitDateTimeV2": sent}
    shown = {name: f"{time:%Y-%m-%dT%H:%M:%SZ}" for name, time in times.items() if time}
    return {"EventCode": code, "Email": f"p{mail}@example.com", "UniqueMsgID": f"m{mail}", **shown}


def drain(warehouse: SqlDatabase, events: Sequence[dict[str, str]]) -> None:
    """What the drain stores of them."""
    origin = Origin("mail_default", NOON + timedelta(days=1), 1)
    rows = list(read_push(json.dumps(events).encode(), origin, pytest.fail))
    EventTables(warehouse.hook, "mail_events", "mail_dead_letters").store(rows, [], Drained())


def counted(emulator: Emulator, day: date = DAY, **counts: int) -> None:
    emulator.set_transactional_day(day.isoformat(), **dict.fromkeys(COUNTERS, 0) | counts)


def a_day(warehouse: SqlDatabase, emulator: Emulator, **counts: int) -> None:
    """Ten mails: eight delivered, two bounced; one more dropped; three opened, one of them twice; a click.

    :param counts: of the service that are others.
    """
    sent = [event("Delivered", mail) for mail in range(8)] + [event("Bounced", mail) for mail in (8, 9)]
    later = [event("Opened", mail, NOON + timedelta(minutes=mail)) for mail in range(3)]
    later += [event("Opened", 0, NOON + timedelta(hours=1)), event("Clicked", 0), event("Unsubscribed", 2)]
    drain(warehouse, [*sent, event("Dropped", 10), *later, event("SpamReport", 1)])
    right = {"sentCount": 10, "openCount": 3, "clickCount": 1, "bounceCount": 1, "unsentCount": 1}
    counted(emulator, **right | {"unsubscribeCount": 1} | counts)


def task(**arguments: Any) -> MailReconcileEventsOperator:
    given = {"task_id": TASK, "sql_conn_id": "warehouse", "start_day": str(DAY), "end_day": str(DAY)}
    return MailReconcileEventsOperator(**given | arguments)


def differing(**arguments: Any) -> int:
    """How many counts differ, all of them tolerated."""
    return int(executed(task(**arguments))["differing"])


def difference_error(**arguments: Any) -> str:
    """The error of a task that finds differences."""
    with pytest.raises(AirflowException) as raised:
        executed(task(**arguments))
    return str(raised.value)


def stored(warehouse: SqlDatabase) -> dict[str, list[Any]]:
    """Service count, least, most, difference and tolerated, by counter."""
    columns = "counter, service_count, events_least, events_most, difference, tolerated"
    return {counter: rest for counter, *rest in map(list, warehouse.query(f"SELECT {columns} FROM {TABLE}"))}


def test_counts_that_agree(emulator: Emulator, any_warehouse: SqlDatabase, connect: Connect) -> None:
    connect(sandbox=True)  # reading sends nothing
    a_day(any_warehouse, emulator)
    for _ in range(2):
        days = {"start_day": "2026-03-02", "end_day": "2026-03-02"}
        assert executed(task()) == {"table": TABLE, **days, "compared": 6, "differing": 0, "differences": []}
    assert stored(any_warehouse) == {
        "sent_count": [10, 10, 10, 0, True],
        "open_count": [3, 3, 4, 0, True],
        "click_count": [1, 1, 1, 0, True],
        "bounce_count": [1, 0, 2, 0, True],
        "unsent_count": [1, 1, 1, 0, True],
        "unsubscribe_count": [1, 1, 1, 0, True],
    }


def test_differences_are_stored_and_fail_the_task(run: Run, emulator: Emulator, warehouse: SqlDatabase) -> None:
    a_day(warehouse, emulator, sentCount=12, openCount=2, bounceCount=3)
    MailHook().send(SaveWebhook(trans_enable=True, trans_event=EventToggles(delivered=True, opened=True)))
    done = run(task)
    assert done.state == "failed"
    for words in (
        "3 counts of events and statistics differ",
        "2026-03-02 sent_count: service 12, events 10 (+2)",
        "2026-03-02 open_count: service 2, events 3 or 4 (-1)",
        "2026-03-02 bounce_count: service 3, events 0 to 2 (+1)",
        "the service does not push these events (transEvent): bounced",
    ):
        assert words in done.log
    differences = {name: row[3] for name, row in stored(warehouse).items() if row[3]}
    assert differences == {"sent_count": 2, "open_count": -1, "bounce_count": 1}
    assert "p1@example.com" not in done.log


def test_tolerance(emulator: Emulator, warehouse: SqlDatabase) -> None:
    a_day(warehouse, emulator, sentCount=12)
    tolerated = {"stats_date": "2026-03-02", "counter": "sent_count", "service_count": 12, "difference": 2}
    for arguments in ({"tolerance": 2}, {"tolerance_fraction": 0.17}):  # 2 of 12
        assert executed(task(**arguments))["differences"] == [tolerated]
    for too_few in ({"tolerance": 1}, {"tolerance": 1, "tolerance_fraction": 0.16}):
        error = difference_error(**too_few)
        assert "1 counts of events" in error
        assert "transEnable is off: the service pushes no events" in error
    assert "sent_count: service 12, events 0 (+12)" in difference_error(event_types=["Other"])
    assert len(stored(warehouse)) == len(COUNTERS)
    assert differing(table="chosen", counters=["open_count", "click_count"]) == 0
    assert warehouse.query("SELECT count(*) FROM chosen") == [(2,)]


def test_what_cannot_be_compared(emulator: Emulator, warehouse: SqlDatabase) -> None:
    """Is said before the first request."""
    today = {"start_day": datetime.now(UTC).date().isoformat(), "end_day": None}
    wrong: dict[str, dict[str, Any]] = {
        "counters: is empty": {"counters": []},
        "event_types: is empty": {"event_types": []},
        "counters: opens: none of sent_count, open_count": {"counters": ["opens", "open_count"]},
        "time_zone: there is no time zone 'Asia/Mars'": {"time_zone": "Asia/Mars"},
        "is not over; only whole days can be compared": today,
        "events_table": {"table": "mail_events"},
    }
    for words, arguments in wrong.items():
        assert words in error_of(lambda arguments=arguments: task(**arguments))
    assert emulator.journal.count() == 0


@pytest.mark.parametrize(("opened", "difference"), [(85, 0), (127, 0), (126, -1), (86, 1), (84, -1), (128, 1)])
def test_a_count_between_two_ways_to_count_is_wrong(
    emulator: Emulator, warehouse: SqlDatabase, opened: int, difference: int
) -> None:
    """100 people opened; the events of 15 of them were lost. Those that came opened 127 times."""
    opens = [event("Opened", mail, NOON + timedelta(minutes=mail)) for mail in range(85)]
    again = [event("Opened", mail, NOON + timedelta(hours=2, minutes=mail)) for mail in range(42)]
    drain(warehouse, [*(event("Delivered", mail) for mail in range(100)), *opens, *again])
    counted(emulator, sentCount=100, openCount=opened)
    if difference:
        assert f"service {opened}, events 85 or 127 ({difference:+})" in difference_error()
    else:
        assert differing() == 0
    assert stored(warehouse)["open_count"] == [opened, 85, 127, difference, not difference]


@pytest.mark.parametrize("counted_on", ["send", "event"])
def test_bounces_after_midnight_belong_to_the_day_that_agrees(
    emulator: Emulator, warehouse: SqlDatabase, counted_on: str
) -> None:
    """Nothing was lost: three mails of the second bounced on the third, and no event has the time of their sending."""
    midnight = datetime(2026, 3, 3, tzinfo=UTC)
    mails = [event("Delivered", mail) for mail in range(5)]
    bounces = [event("Bounced", mail, midnight + timedelta(minutes=mail), None) for mail in range(5, 8)]
    drain(warehouse, [*mails, *bounces, event("Delivered", 9, midnight, midnight)])
    bounced = 3 if counted_on == "send" else 0
    counted(emulator, sentCount=8, bounceCount=bounced)
    counted(emulator, date(2026, 3, 3), sentCount=1, bounceCount=3 - bounced)
    days = {"end_day": "2026-03-03", "counted_on": counted_on}
    assert differing(**days) == 0
    assert warehouse.query(f"SELECT at_edges FROM {TABLE} WHERE counter = 'sent_count'") == [(3,), (3,)]
    assert "2026-03-02 sent_count: service 8, events 5 (+3)" in difference_error(**days, edge_hours=0)
    # A lost mail is no edge.
    counted(emulator, sentCount=9, bounceCount=bounced)
    words = "2026-03-02 sent_count: service 9, events 5 to 8 (3 at the edges of the day) (+1)"
    assert words in difference_error(**days)


def test_the_time_zone_of_the_service(emulator: Emulator, warehouse: SqlDatabase) -> None:
    """The second of March in Tokyo ends at 15:00 in UTC."""
    times = [datetime(2026, 3, day, hour, tzinfo=UTC) for day in (1, 2) for hour in (14, 15)]
    drain(warehouse, [event("Delivered", number, time, time) for number, time in enumerate(times)])
    counted(emulator, sentCount=2)
    assert differing(time_zone="Asia/Tokyo") == 0


def test_a_day_that_the_service_leaves_out(emulator: Emulator, warehouse: SqlDatabase) -> None:
    emulator.settings.stats_empty_days = False
    drain(warehouse, [event("Delivered", 1)])
    error = difference_error(start_day="2026-03-01")
    assert "2026-03-02 sent_count: service no record, events 1" in error
    assert "1 counts of events" in error
    assert warehouse.query(f"SELECT service_count, difference FROM {TABLE}") == [(None, None)] * 12


@pytest.mark.parametrize(
    ("ago", "time_zone", "compared"), [(0, "UTC", [2, 1]), (0, "Pacific/Pago_Pago", [2]), (90, "UTC", [2, 1, 0])]
)
def test_the_days_of_the_run_that_are_over(
    emulator: Emulator, warehouse: SqlDatabase, clock: Clock, ago: int, time_zone: str, compared: list[int]
) -> None:
    drain(warehouse, [])
    clock.set_wall_clock(3600 * (29 - datetime.now(UTC).hour))  # five: the day before in Pago Pago
    moment = datetime.now(UTC) - timedelta(days=ago)
    executed(task(start_day=None, end_day=None, lookback_days=1, time_zone=time_zone), at=moment)
    days = [str(day) for (day,) in warehouse.query(f"SELECT DISTINCT stats_date FROM {TABLE}")]
    assert sorted(days) == [str((moment - timedelta(days=before)).date()) for before in compared]
