"""`MailCampaignEventTrigger`: each campaign that was sent or failed is reported, at least once, with few requests."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.triggers.base import BaseEventTrigger

from airflow_provider_mail.triggers.campaigns import MailCampaignEventTrigger as Trigger
from mail_emulator import Emulator
from tests.support.clock import Clock, passes
from tests.tasks.conftest import Connect, Run
from tests.tasks.test_example_dags import example
from tests.tasks.triggering import cancelled, restarted, run, steady_clock  # noqa: F401

GETS = "campaign/mail/get"
DAY = 86_400.0
Reported = list[list[dict[str, Any]]]
"""The campaigns of each event."""


@pytest.fixture(autouse=True)
def _slow(emulator: Emulator) -> None:
    emulator.settings.sending_seconds = 10**8


class Store(dict[str, Any]):
    """Airflow's asset state store, as far as a trigger sees it."""

    broken: type[Exception] | None = None
    calls = 0

    async def aget(self, key: str, default: Any = None) -> Any:
        self._called()
        return json.loads(json.dumps(self.get(key, default)))

    async def aset(self, key: str, value: Any) -> None:
        self._called()
        self[key] = value

    def _called(self) -> None:
        self.calls += 1
        if self.broken:
            raise self.broken("the API server is down")


def events(*triggers: Trigger, store: Any = None, seconds: float = 200) -> Reported:
    """What triggers report that run for so long: their first polls are after five seconds, the others each minute."""
    reported: Reported = []

    async def one(trigger: Trigger) -> None:
        trigger.asset_state_store = store
        async for event in trigger.run():
            assert event.payload == {"mail_conn_id": trigger.mail_conn_id, "campaigns": event.payload["campaigns"]}
            reported.append(event.payload["campaigns"])

    async def all_of_them() -> None:
        tasks = [asyncio.create_task(one(trigger)) for trigger in triggers]
        await passes(seconds)
        assert not any(task.done() for task in tasks)
        await cancelled(*tasks)

    run(all_of_them())
    return reported


def names(*triggers: Trigger, store: Any = None, seconds: float = 200) -> list[list[str]]:
    reported = events(*triggers, store=store, seconds=seconds)
    return [[campaign["mail_name"] for campaign in campaigns] for campaigns in reported]


def days_ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


def changes(emulator: Emulator, name: str, state: Any) -> Callable[[], None]:
    return lambda: emulator.set_campaign_state(name, state)


def test_each_campaign_that_is_sent_or_failed(emulator: Emulator, clock: Clock) -> None:
    sent = datetime.now(UTC).replace(microsecond=0)
    for name in ("spring", "summer"):
        emulator.add_campaign(name, state="sending", sent=500, send_date=sent)
    clock.after(200, changes(emulator, "spring", "done"))
    clock.after(260, changes(emulator, "summer", "failed"))

    (spring,), (summer,) = events(Trigger(), seconds=400)

    (campaign,) = [found for found in emulator.campaigns() if found["mailName"] == "spring"]
    stats = spring.pop("mail_stats")
    known = {"mail_name": "spring", "guid": campaign["guid"], "mail_status": 2, "send_time": sent.isoformat()}
    assert (spring, stats["sent_count"], json.loads(json.dumps(stats))) == (known, 500, stats)
    assert (summer["mail_name"], summer["mail_status"], summer["mail_stats"]) == ("summer", 4, {})


@pytest.mark.parametrize(("filters", "expected"), [
    ({}, ["broken news", "news", "news-1", "old news", "sale"]),
    ({"mail_name": "news"}, ["news"]),
    ({"name_prefix": "news"}, ["news", "news-1"]),
    ({"name_contains": "news", "mail_status": ["complete"]}, ["news", "news-1", "old news"]),
    ({"mail_status": ["failed"]}, ["broken news"]),
])  # fmt: skip
def test_one_event_for_all_that_a_poll_finds(emulator: Emulator, filters: dict[str, Any], expected: list[str]) -> None:
    sent, states = days_ago(1), {"broken news": "failed", "news draft": "draft"}
    for name in ("news", "news-1", "old news", "sale", *states):
        emulator.add_campaign(name, state=states.get(name, "done"), send_date=sent)
    assert names(Trigger(**filters)) == [expected]


@pytest.mark.parametrize("listed", [None, 0, 1])
def test_what_was_sent_long_ago_is_not_reported_at_first(emulator: Emulator, clock: Clock, listed: int | None) -> None:
    """Nor when it is listed again: a first list that lacks campaigns is no base. But what ends from then on is news."""
    for name in "abc":
        emulator.add_campaign(name, send_date=days_ago(20))
    emulator.add_campaign("slow", state="sending", send_date=days_ago(20))
    emulator.add_campaign("new", send_date=days_ago(1))
    if listed is not None:
        emulator.faults.add("empty_page", GETS, keep=listed, total=listed)
    clock.after(300, changes(emulator, "slow", "done"))
    assert names(Trigger(), seconds=400) == [["new"], ["slow"]]


def test_a_restart_with_stored_state_repeats_and_loses_nothing(emulator: Emulator, clock: Clock) -> None:
    emulator.add_campaign("before")
    for name, days in (("slow", 4), ("ancient", 90)):
        emulator.add_campaign(name, state="sending", send_date=days_ago(days))
    store, first = Store(), Trigger(name_contains="e")
    emulator.add_campaign("slower", state="sending", send_date=days_ago(4))
    assert names(first, store=store) == [["before"]]

    # While no triggerer runs.
    for name in ("slower", "ancient"):
        emulator.set_campaign_state(name, "done")
    emulator.add_campaign("meanwhile")
    clock.sleep(DAY)

    assert names(restarted(first), store=store) == [["slower", "meanwhile"]]
    assert names(restarted(first), store=store) == []


def test_each_watcher_of_an_asset_stores_its_own_state(emulator: Emulator) -> None:
    for name, state in (("spring", "done"), ("summer", "failed")):
        emulator.add_campaign(name, state=state)
    store = Store()
    watchers = [
        {"mail_status": ["complete"]},
        {"mail_status": ["failed"]},
        {"name_contains": "s"},
        {"mail_name": "x"},
        {"label": "a"},
    ]
    both = ["spring", "summer"]
    assert sorted(names(*(Trigger(**each) for each in watchers), store=store)) == [["spring"], both, both, ["summer"]]
    changed = [
        Trigger(mail_status=["complete"], poke_interval=90, lookback=DAY),
        *(Trigger(**each) for each in watchers[1:]),
    ]
    assert names(*changed, store=store) == []
    assert names(Trigger(label="b"), Trigger(), store=store) == [both] * 2


def test_state_is_stored_after_airflow_has_stored_the_events(emulator: Emulator) -> None:
    """The events of the last moments may not have been stored: they come again."""
    emulator.add_campaign("just now")
    store = Store()
    assert [names(Trigger(), store=store, seconds=10) for _ in range(2)] == [[["just now"]]] * 2
    assert names(Trigger(poke_interval=4), store=store, seconds=14) == [["just now"]]
    assert store == {}


def test_a_restart_without_stored_state_repeats_what_is_recent(emulator: Emulator) -> None:
    for name, days in (("long ago", 30), ("days ago", 2), ("today", 0)):
        emulator.add_campaign(name, send_date=days_ago(days))
    assert [names(Trigger(lookback=timedelta(days=1))) for _ in range(2)] == [[["today"]]] * 2


@pytest.mark.parametrize("broken", [RuntimeError, ValueError])
def test_a_store_that_does_not_work_loses_nothing(emulator: Emulator, broken: type[Exception]) -> None:
    """With `ValueError` it serves several assets, and is not tried again."""
    emulator.add_campaign("spring")
    store = Store()
    store.broken = broken
    assert names(Trigger(), store=store) == [["spring"]]
    assert (store.calls > 1) == (broken is RuntimeError)


def test_the_stored_state_does_not_grow(emulator: Emulator, clock: Clock) -> None:
    store = Store()
    for day in range(40):
        clock.after((day + 0.5) * DAY, lambda day=day: emulator.add_campaign(f"day {day}"))
    reported = names(Trigger(poke_interval=DAY), store=store, seconds=43 * DAY)
    assert reported == [[f"day {day}"] for day in range(40)]
    (state,) = store.values()
    assert 30 <= len(state["keys"]) <= 32
    assert names(Trigger(), store=store) == []


# --- what it costs, and what goes wrong ---


def test_while_nothing_changes_a_poll_is_one_request_for_all(emulator: Emulator, clock: Clock) -> None:
    emulator.add_campaigns(350, prefix="c", first_day=days_ago(30).date(), per_day=100)
    clock.after(250, lambda: emulator.add_campaign("new"))
    assert names(Trigger(), Trigger(mail_status=["complete"]), Trigger(lookback=0.0), seconds=330) == [["new"]] * 3
    pages = [entry["body"].get("pageIndex", 1) for entry in emulator.journal.entries(GETS)]
    assert pages == [1, 2, 3, 4, 5, *[1] * 4, *[1, 1, 2, 3, 4, 5]], "all at first, and after a change"


def test_one_that_goes_as_another_comes_is_noticed(emulator: Emulator, clock: Clock) -> None:
    emulator.settings.newest_first = False  # not on the first page, then
    emulator.add_campaigns(150, prefix="c", first_day=days_ago(30).date(), per_day=100)
    clock.after(200, changes(emulator, emulator.campaigns()[-1]["mailName"], "removed"))
    clock.after(200, lambda: emulator.add_campaign("new"))
    assert names(Trigger(), seconds=1200) == [["new"]]


@pytest.mark.parametrize("kind", ["close_after", "html_before", "wrong_total"])
def test_a_poll_that_fails_loses_nothing(emulator: Emulator, clock: Clock, kind: str) -> None:
    emulator.add_campaign("old", send_date=days_ago(30))
    emulator.add_campaign("spring")
    emulator.faults.add(kind, GETS, count=7)
    clock.after(1000, lambda: emulator.add_campaign("summer"))
    assert names(Trigger(), seconds=2000) == [["spring"], ["summer"]]
    assert emulator.faults.list()[0]["count"] == 0


def test_failed_polls_are_repeated_after_pauses_that_grow(
    emulator: Emulator, connect: Connect, clock: Clock, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    emulator.add_campaign("spring")
    connect(password="wrong")
    clock.after(2500, connect)

    assert names(Trigger(), seconds=4000) == [["spring"]]

    moments = [entry["real_ms"] / 1000 for entry in emulator.journal.entries(GETS)]
    pauses = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert pauses[:5] == pytest.approx([60, 120, 240, 480, 900], abs=1)
    failed = "connection 'mail_default': poll failed (2 in a row), next poll in 120 s: "
    assert failed in capfd.readouterr().out + caplog.text


def test_arguments_are_stored_in_one_form() -> None:
    given = Trigger(
        name_prefix="news", mail_status=("failed", "complete"), lookback=timedelta(days=1), poke_interval=30
    )
    path, arguments = given.serialize()
    assert (arguments["mail_status"], arguments["lookback"], arguments["poke_interval"]) == (
        ["complete", "failed"],
        DAY,
        30.0,
    )
    assert BaseEventTrigger.hash(*restarted(given).serialize()) == BaseEventTrigger.hash(path, arguments)


@pytest.mark.parametrize(("arguments", "words"), [
    ({"mail_name": "a", "name_prefix": "b"}, "mail_name, name_prefix: only one of them"),
    ({"name_contains": ""}, "name_contains: is empty"),
    ({"mail_status": ["sending"]}, r"mail_status: must be a list of 'complete', 'failed' or both, not \['sending'\]"),
    ({"mail_status": "complete"}, "mail_status: a list is needed"),
    ({"lookback": -1}, "lookback: seconds or a timedelta are needed"),
    ({"label": ""}, "label: is empty"),
])  # fmt: skip
def test_invalid_arguments_fail_with_the_dag_file(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Trigger(**arguments)


def test_the_example(run_in_airflow: Run, emulator: Emulator) -> None:
    dag = example("mail_on_campaign_sent")
    (watcher,) = dag.schedule.watchers  # type: ignore[union-attr]
    assert watcher.trigger.serialize()[1]["name_prefix"] == "mail_campaign/"
    done = run_in_airflow(dag)  # started by hand it stands for no event
    assert (done.result.xcom("names"), done.result.task("load").state) == ([], "skipped")
