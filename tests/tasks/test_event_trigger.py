"""`MailCampaignEventTrigger`: an event for each campaign that is over, at least once, and few requests."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.triggers.base import BaseEventTrigger

from airflow_provider_mail._polling import campaign_changes
from airflow_provider_mail._polling.campaign_changes import CampaignChangeDetector, FinalCampaign, Snapshot, backoff
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.triggers.campaigns import MailCampaignEventTrigger
from tests.support.dags import RunResult
from tests.tasks.conftest import Connect
from tests.tasks.test_example_dags import example
from tests.tasks.triggering import cancelled, restarted, run, until

GETS = "campaign/mail/get"
NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(days=30)


def trigger(**arguments: Any) -> MailCampaignEventTrigger:
    return MailCampaignEventTrigger(**{"poke_interval": 0.2} | arguments)


@dataclass
class Store:
    """Airflow's asset state store, as far as a trigger sees it."""

    kept: dict[str, Any] = field(default_factory=dict)
    broken: type[Exception] | None = None
    calls: int = 0

    async def aget(self, key: str, default: Any = None) -> Any:
        self.calls += 1
        if self.broken:
            raise self.broken("the API server is away")
        return json.loads(json.dumps(self.kept.get(key, default)))

    async def aset(self, key: str, value: Any) -> None:
        self.calls += 1
        if self.broken:
            raise self.broken("the API server is away")
        self.kept[key] = value


@asynccontextmanager
async def running(
    *triggers: MailCampaignEventTrigger, store: Store | None = None
) -> AsyncIterator[list[dict[str, Any]]]:
    """Let them run as in a triggerer; the campaigns that they tell of come into the list."""
    fired: list[dict[str, Any]] = []

    async def one(event_trigger: MailCampaignEventTrigger) -> None:
        event_trigger.asset_state_store = store  # type: ignore[assignment]
        async for event in event_trigger.run():
            assert event.payload.keys() == {"mail_conn_id", "campaigns"}
            assert event.payload["mail_conn_id"] == event_trigger.mail_conn_id
            fired.extend(event.payload["campaigns"])

    tasks = [asyncio.create_task(one(event_trigger)) for event_trigger in triggers]
    try:
        yield fired
        assert not any(task.done() for task in tasks)
    finally:
        await cancelled(*tasks)


def names(fired: list[dict[str, Any]]) -> list[str]:
    return [payload["mail_name"] for payload in fired]


async def some_polls(emulator: Emulator, polls: int = 3) -> None:
    seen = emulator.journal.count(GETS)
    await until(lambda: emulator.journal.count(GETS) >= seen + polls)


async def polled_by_one(emulator: Emulator, interval: float = 0.2) -> None:
    """However many wait, there is one request for each interval that has passed."""
    before, began = emulator.journal.count(GETS), time.monotonic()
    await some_polls(emulator, 5)
    assert emulator.journal.count(GETS) - before <= (time.monotonic() - began) / interval + 2


# --- what it tells ---


def test_each_campaign_that_is_over(emulator: Emulator) -> None:
    emulator.settings.sending_seconds = 1000
    for name in ("spring", "summer", "autumn"):
        emulator.add_campaign(name, state="sending", sent=500)

    async def seasons() -> list[dict[str, Any]]:
        async with running(trigger()) as fired:
            await some_polls(emulator)
            assert fired == []
            emulator.set_campaign_state("spring", "done")
            await until(lambda: len(fired) == 1)
            emulator.set_campaign_state("summer", "failed")
            await until(lambda: len(fired) == 2)
            await some_polls(emulator)
        return fired

    spring, summer = run(seasons())
    (campaign,) = [found for found in emulator.campaigns() if found["mailName"] == "spring"]
    assert spring == {
        "mail_name": "spring",
        "guid": campaign["guid"],
        "mail_status": 2,
        "send_time": spring["send_time"],
        "mail_stats": spring["mail_stats"],
    }
    assert abs(datetime.fromisoformat(spring["send_time"]) - datetime.now(UTC)) < timedelta(minutes=10)
    assert spring["mail_stats"]["sent_count"] == 500
    assert (summer["mail_name"], summer["mail_status"], summer["mail_stats"]) == ("summer", 4, {})
    assert json.loads(json.dumps(spring)) == spring


def test_one_event_for_all_that_a_look_finds(emulator: Emulator) -> None:
    for name in ("spring", "summer", "autumn"):
        emulator.add_campaign(name)

    async def first() -> list[dict[str, Any]]:
        async with aclosing(trigger().run()) as events:  # type: ignore[type-var]
            event = await anext(events)
        found: list[dict[str, Any]] = event.payload["campaigns"]
        return found

    assert sorted(names(run(first()))) == ["autumn", "spring", "summer"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, {"news", "news-1", "old news", "sale", "broken news"}),
        ({"mail_name": "news"}, {"news"}),
        ({"name_prefix": "news"}, {"news", "news-1"}),
        ({"name_contains": "news"}, {"news", "news-1", "old news", "broken news"}),
        ({"name_contains": "news", "mail_status": [2]}, {"news", "news-1", "old news"}),
        ({"mail_status": [4]}, {"broken news"}),
    ],
)
def test_some_of_them(emulator: Emulator, filters: dict[str, Any], expected: set[str]) -> None:
    for name in ("news", "news-1", "old news", "sale"):
        emulator.add_campaign(name)
    emulator.add_campaign("broken news", state="failed")
    emulator.add_campaign("news draft", state="draft")

    async def told() -> list[dict[str, Any]]:
        async with running(trigger(**filters)) as fired:
            await some_polls(emulator)
        return fired

    assert sorted(names(run(told()))) == sorted(expected)


def test_what_was_sent_long_ago_is_not_told_at_first(emulator: Emulator) -> None:
    emulator.add_campaign("old", send_date=LONG_AGO)
    emulator.add_campaign("new", send_date=NOW - timedelta(days=1))
    emulator.settings.sending_seconds = 1000
    emulator.add_campaign("slow", state="sending", send_date=LONG_AGO)

    async def told() -> list[dict[str, Any]]:
        async with running(trigger()) as fired:
            await some_polls(emulator)
            assert names(fired) == ["new"]
            # It took its time, but it is over now: that is news whenever it was sent.
            emulator.set_campaign_state("slow", "done")
            await until(lambda: len(fired) == 2)
        return fired

    assert names(run(told())) == ["new", "slow"]


# --- restarts ---


def test_a_restart_with_a_memory_repeats_and_loses_nothing(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_changes, "STORED_SECONDS", 0.0)
    emulator.add_campaign("before")
    store, first = Store(), trigger(name_contains="e")

    async def in_between() -> list[dict[str, Any]]:
        async with running(first, store=store) as fired:
            await until(lambda: store.kept and next(iter(store.kept.values())))
            assert names(fired) == ["before"]
        emulator.add_campaign("meanwhile")
        async with running(restarted(first), store=store) as fired:
            await until(lambda: fired)
            await some_polls(emulator)
        return fired

    assert names(run(in_between())) == ["meanwhile"]
    (key,) = store.kept
    assert len(store.kept[key]["keys"]) == 2


def test_each_watcher_of_an_asset_has_its_own_memory(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_changes, "STORED_SECONDS", 0.0)
    for name, state in (("spring", "done"), ("summer", "failed")):
        emulator.add_campaign(name, state=state)
    triggers = [trigger(mail_status=[2]), trigger(mail_status=[4]), trigger(name_contains="s"), trigger(mail_name="x")]
    store = Store()

    async def all_of_them() -> list[dict[str, Any]]:
        async with running(*triggers, store=store) as fired:
            await until(lambda: len(store.kept) == 4)
            assert sorted(names(fired)) == ["spring", "spring", "summer", "summer"]
        changed = [trigger(mail_status=[2], poke_interval=0.15, lookback=86_400), *triggers[1:]]
        async with running(*changed, store=store) as fired:
            await some_polls(emulator, 6)
        return fired

    assert run(all_of_them()) == []


def test_labels_keep_memories_apart_and_share_a_poll(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_changes, "STORED_SECONDS", 0.0)
    emulator.add_campaign("spring")
    store = Store()

    async def labelled() -> list[dict[str, Any]]:
        async with running(trigger(label="billing"), store=store) as fired:
            await until(lambda: len(store.kept) == 1)
            assert names(fired) == ["spring"]
        async with running(trigger(label="billing"), trigger(label="crm"), trigger(), store=store) as fired:
            await until(lambda: len(store.kept) == 3)
            await polled_by_one(emulator)
        return fired

    assert names(run(labelled())) == ["spring", "spring"]


def test_a_trigger_without_a_label_keeps_the_memory_of_versions_that_had_none(emulator: Emulator) -> None:
    emulator.add_campaign("spring")
    emulator.add_campaign("summer")
    (spring,) = [found for found in emulator.campaigns() if found["mailName"] == "spring"]
    key = f"mail_events_{campaign_changes.digest(['mail_default', None, None, None, [2, 4]])}"
    store = Store({key: {"since": 0.0, "keys": [campaign_changes.digest([spring["guid"], 2])]}})

    async def upgraded() -> list[dict[str, Any]]:
        async with running(trigger(), store=store) as fired:
            await some_polls(emulator)
        return fired

    assert names(run(upgraded())) == ["summer"]


def test_what_is_remembered_was_stored_by_airflow_before(emulator: Emulator) -> None:
    emulator.add_campaign("just now")
    store = Store()

    async def killed() -> list[str]:
        told = []
        for _ in range(2):
            async with running(trigger(), store=store) as fired:
                await some_polls(emulator)
                told += names(fired)
        return told

    # The events of the last moments may not have been stored: they come again.
    assert run(killed()) == ["just now", "just now"]
    assert store.kept == {}


def test_a_restart_without_a_memory_repeats_what_is_recent(emulator: Emulator) -> None:
    emulator.add_campaign("long ago", send_date=LONG_AGO)
    emulator.add_campaign("days ago", send_date=NOW - timedelta(days=2))
    emulator.add_campaign("today")

    async def twice() -> list[list[str]]:
        told = []
        for _ in range(2):
            async with running(trigger(lookback=timedelta(days=1))) as fired:
                await some_polls(emulator)
                told.append(names(fired))
        return told

    assert run(twice()) == [["today"], ["today"]]


def test_a_memory_that_does_not_work_loses_nothing(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(campaign_changes, "STORED_SECONDS", 0.0)
    emulator.add_campaign("spring")

    async def broken() -> list[dict[str, Any]]:
        async with running(trigger(), store=Store(broken=RuntimeError)) as fired:
            await until(lambda: "The asset state could not be written" in caplog.text)
            await some_polls(emulator)
        return fired

    with caplog.at_level(logging.WARNING, campaign_changes.__name__):
        assert names(run(broken())) == ["spring"]
    assert "The asset state could not be read, so campaigns may be reported again" in caplog.text


def test_a_store_that_serves_several_assets_is_left_alone(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_changes, "STORED_SECONDS", 0.0)
    emulator.add_campaign("spring")
    store = Store(broken=ValueError)

    async def several() -> list[dict[str, Any]]:
        async with running(trigger(), store=store) as fired:
            await some_polls(emulator, 4)
        return fired

    assert names(run(several())) == ["spring"]
    assert store.calls == 1


# --- what it costs, and what goes wrong ---


def test_while_nothing_happens_a_look_is_one_request_for_all(emulator: Emulator) -> None:
    emulator.add_campaigns(350, prefix="c", first_day=LONG_AGO.date(), per_day=100)

    async def quiet() -> None:
        async with running(trigger(), trigger(mail_status=[2]), trigger(lookback=0.0)) as fired:
            # Four pages at first.
            await until(lambda: emulator.journal.count(GETS) >= 5)
            await polled_by_one(emulator)
            emulator.add_campaign("one more")
            await until(lambda: len(fired) == 3)

    run(quiet())


def test_one_that_goes_as_another_comes_is_noticed(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_changes, "REREAD_SECONDS", 0.5)
    emulator.settings.newest_first = False  # not on the first page, then
    emulator.add_campaigns(150, prefix="c", first_day=LONG_AGO.date(), per_day=100)

    async def exchanged() -> list[dict[str, Any]]:
        async with running(trigger()) as fired:
            await until(lambda: emulator.journal.count(GETS) >= 3)
            emulator.set_campaign_state(emulator.campaigns()[-1]["mailName"], "removed")
            emulator.add_campaign("new")
            await until(lambda: fired)
        return fired

    assert names(run(exchanged())) == ["new"]


@pytest.mark.parametrize("kind", ["close_after", "http_error_before", "html_before", "cut_json", "wrong_total"])
def test_a_look_that_fails_loses_nothing(emulator: Emulator, kind: str) -> None:
    emulator.add_campaign("old", send_date=LONG_AGO)
    emulator.add_campaign("spring")
    emulator.faults.add(kind, GETS, count=7)

    async def mended() -> list[dict[str, Any]]:
        async with running(trigger()) as fired:
            await until(lambda: emulator.faults.list()[0]["count"] == 0, 40)
            await until(lambda: fired)
            emulator.add_campaign("summer")
            await until(lambda: len(fired) == 2)
        return fired

    assert names(run(mended())) == ["spring", "summer"]


def test_a_refused_key_is_logged_ever_less_often_and_may_be_exchanged(
    emulator: Emulator, connect: Connect, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    emulator.add_campaign("spring")
    connect(password="wrong")

    async def exchanged() -> None:
        async with running(trigger()) as fired:
            await until(lambda: emulator.journal.count(GETS) >= 4)
            connect()
            await until(lambda: fired)

    run(exchanged())
    first, _, _, last, *_ = (entry["real_ms"] for entry in emulator.journal.entries(GETS))
    # Pauses of 0.2, 0.4 and 0.8 seconds; three of 0.2 s would be over sooner.
    assert last - first > 1000
    assert (
        "connection 'mail_default': poll failed (2 in a row), next poll in 0 s: "
        in capfd.readouterr().out + caplog.text
    )


def test_a_connection_may_be_created_later(
    emulator: Emulator,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    emulator.add_campaign("spring")
    monkeypatch.delenv("AIRFLOW_CONN_MAIL_DEFAULT")

    async def created() -> list[dict[str, Any]]:
        async with running(trigger()) as fired:
            await until(lambda: "'mail_default': poll failed" in capfd.readouterr().out + caplog.text, 40)
            assert emulator.journal.count() == 0
            connect()
            await until(lambda: fired, 40)
        return fired

    assert names(run(created())) == ["spring"]


def test_pauses_grow_to_a_quarter_of_an_hour() -> None:
    assert [backoff(failed, 60.0) for failed in (1, 2, 3, 4, 5, 500)] == [60, 120, 240, 480, 900, 900]
    assert backoff(9, 3600.0) == 3600


def test_there_is_always_a_pause(emulator: Emulator) -> None:
    async def hasty() -> None:
        async with running(trigger(poke_interval=0.0001)):
            await polled_by_one(emulator, 0.1)

    run(hasty())


# --- what is news ---


def final(name: str, sent_at: float | None = 0.0) -> FinalCampaign:
    return FinalCampaign(mail_name=name, guid=None, mail_status=2, sent_at=sent_at, mail_stats={})


def listing(*campaigns: FinalCampaign, complete: bool = True) -> Snapshot:
    return Snapshot({campaign.key: campaign for campaign in campaigns}, complete, 0.0)


def told(news: CampaignChangeDetector, look: Snapshot, at: float = 1000.0) -> list[str]:
    return [campaign.mail_name for campaign in news.changes(look, at)]


def everything(_: FinalCampaign) -> bool:
    return True


def test_until_all_were_read_only_what_is_recent_is_news() -> None:
    news = CampaignChangeDetector(everything, lookback=100)
    assert told(news, listing(final("old"), final("recent", 950), complete=False)) == ["recent"]
    for _ in range(2):
        assert told(news, listing(final("older"), final("old"), final("recent", 950))) == []
    assert told(news, listing(final("new"), final("timeless", None), final("recent", 950))) == ["new", "timeless"]


@pytest.mark.parametrize("first", [[], ["a"]])
def test_a_first_answer_that_lacks_campaigns_is_no_base(first: list[str]) -> None:
    old = [final(name) for name in "abc"]
    news = CampaignChangeDetector(everything, lookback=100)
    assert told(news, listing(*(final(name) for name in first), final("timeless", None))) == ["timeless"]
    assert told(news, listing(*old)) == []
    assert told(news, listing(*old)) == []
    assert told(news, listing(*old, final("slow"))) == ["slow"]


def test_one_that_ends_while_no_triggerer_runs_is_told() -> None:
    day = 86_400.0
    news = CampaignChangeDetector(everything, lookback=3 * day)
    for _ in range(2):
        told(news, listing(final("a", 95 * day)), 100 * day)
    state = json.loads(json.dumps(news.state))
    later = CampaignChangeDetector(everything, 3 * day, state)
    found = listing(final("a", 95 * day), final("slow", 96 * day), final("ancient", 9 * day), final("timeless", None))
    assert told(later, found, 101 * day) == ["timeless", "slow"]
    assert told(CampaignChangeDetector(everything, 3 * day, later.state), found, 101 * day) == []


def test_what_is_missing_for_a_while_is_not_told_again() -> None:
    news = CampaignChangeDetector(everything, lookback=100)
    assert told(news, listing(final("a", 950), final("b", 960))) == ["a", "b"]
    assert told(news, listing(final("a", 950), final("b", 960))) == []
    assert told(news, listing(final("b", 960), complete=False)) == []
    assert len(news.state["keys"]) == 2
    assert told(news, listing(final("a", 950), final("b", 960))) == []


def test_the_memory_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_changes, "KEPT_SECONDS", 100)
    news = CampaignChangeDetector(everything, lookback=100)
    for now in range(1000, 3000, 10):
        campaigns = [final(f"c{at}", at) for at in range(1000, now + 1, 10)]
        assert told(news, listing(*campaigns), now) == [f"c{now}"]
        assert len(news.state["keys"] if news.state else ()) <= 11
    assert told(CampaignChangeDetector(everything, 100, news.state), listing(*campaigns), now) == []


# --- what Airflow stores of it ---


def test_the_arguments_that_are_stored_stay_the_same() -> None:
    path, arguments = trigger(name_prefix="news", mail_status=(4, 2), lookback=timedelta(days=1)).serialize()

    assert path == "airflow_provider_mail.triggers.campaigns.MailCampaignEventTrigger"
    assert arguments == {
        "mail_conn_id": "mail_default",
        "mail_name": None,
        "name_prefix": "news",
        "name_contains": None,
        "mail_status": [2, 4],
        "lookback": 86400.0,
        "poke_interval": 0.2,
    }
    again = restarted(trigger(name_prefix="news", mail_status=(4, 2), lookback=timedelta(days=1)))
    assert BaseEventTrigger.hash(*again.serialize()) == BaseEventTrigger.hash(path, arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mail_name": "a", "name_prefix": "b"}, "mail_name, name_prefix: only one of them"),
        ({"mail_name": {"mail_name": "a"}}, "mail_name: one text is needed, not the whole result of a task"),
        ({"name_contains": ""}, "name_contains: is empty"),
        ({"mail_status": [1]}, r"mail_status: must be a list of 2 \(sent\), 4 \(failed\) or both, not \[1\]"),
        ({"mail_status": []}, "mail_status: must be a list of"),
        ({"mail_status": 2}, "mail_status: must be a list of"),
        ({"lookback": -1}, "lookback: must be a number, at least 0"),
        ({"poke_interval": 0}, "poke_interval: must be a number, more than 0"),
        ({"label": ""}, "label: is empty"),
    ],
)
def test_what_cannot_be_is_refused_when_the_dag_is_parsed(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        trigger(**arguments)


def test_the_example(run_dag: Callable[..., RunResult], emulator: Emulator) -> None:
    dag = example("mail_on_campaign_sent")
    (watcher,) = dag.schedule.watchers  # type: ignore[union-attr]
    assert watcher.trigger.serialize()[1]["name_prefix"] == "mail_campaign/"

    # Started by hand it stands for no event.
    done = run_dag(dag)

    assert done.xcom("names") == []
    assert done.task("load").state == "skipped"
    assert emulator.journal.count() == 0
