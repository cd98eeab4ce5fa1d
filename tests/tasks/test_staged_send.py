"""A campaign in stages: what a gate lets through, which of two versions is better, and that everybody gets one mail.

Runs under faults and holds are in `tests/machines/test_staged.py` and `test_ab_send.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk import DAG, task_group
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail._task.statistics import two_proportion_test, wilson_bounds
from airflow_provider_mail.arguments import ChangesOnly, Rejects
from airflow_provider_mail.operators.compare import MailCompareCampaignsOperator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.sensors.gate import MailStatsGateSensor
from airflow_provider_mail.utils.staged_send import ab_send, staged_send
from airflow_provider_mail.warehouse.database import LoadRequest, Source, TableName, load
from airflow_provider_mail.warehouse.tables.events import EVENTS
from mail_emulator import Emulator
from tests.support.changes import at_every_request, at_request, post
from tests.support.clock import Clock
from tests.support.dags import AIRFLOW_VERSION
from tests.support.flow_tries import FlowRun, FlowTries
from tests.tasks.conftest import TASK, Connect, Done, Run, SqlDatabase
from tests.tasks.sensing import WAYS
from tests.tasks.test_example_dags import Person, asks

CREATES = "campaign/mail/sends"

# --- rates ---


@given(total=st.integers(1, 10**6), share=st.floats(0, 1))
def test_a_bound_is_as_far_from_the_share_as_chance_allows(total: int, share: float) -> None:
    """The definition of the score interval: the observed share lies 1.645 standard errors of the bound from it."""
    count = round(total * share)
    for bound in wilson_bounds(count, total, 0.95):
        distance = abs(count / total - bound)
        assert distance == pytest.approx(1.6448536 * (bound * (1 - bound) / total) ** 0.5, abs=1e-6)


@given(st.tuples(*[st.integers(0, 10**6)] * 4))
def test_z_squared_is_pearsons_chi_squared(cells: tuple[int, int, int, int]) -> None:
    """Of the table of two rows and two columns, by its own formula, with integers."""
    a, b, c, d = cells
    z, p_value = two_proportion_test(a, a + b, c, c + d)
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    assert z * z == pytest.approx(sum(cells) * (a * d - b * c) ** 2 / margins if margins else 0, rel=1e-9)
    assert two_proportion_test(c, c + d, a, a + b) == (-z, p_value)
    assert (p_value <= 0.05) == (abs(z) >= 1.959963984540054)


# --- the gate ---

LIMIT = {"max_hard_bounce": 0.02}


def gate(way: str = "poke", **arguments: Any) -> MailStatsGateSensor:
    given = {"task_id": TASK, "mail_name": "spring", "max_age": 600, "poke_interval": 60}
    return MailStatsGateSensor(**given | WAYS[way] | arguments)


def counting(emulator: Emulator, sent: int = 1000, **counts: int) -> None:
    emulator.add_campaign("spring", send_date=datetime.now(UTC).replace(microsecond=0))
    zeros = dict.fromkeys(("hardBounce", "softBounce", "unsubscribeCount"), 0)
    emulator.set_campaign_stats("spring", **{"sentCount": sent, **zeros, **counts})


SOFT = {"max_soft_bounce": 0.1, "max_unsubscribe": 0.01}
OUTCOMES: list[tuple[dict[str, Any], dict[str, int], str | None]] = [
    # the limits, the counts, and what does not pass
    (LIMIT, {"hardBounce": 12}, None),
    (LIMIT, {"hardBounce": 30}, "hard_bounce: 30 of 1,000 (3.00%), the true share lies between 2.2"),
    (LIMIT, {"hardBounce": 15}, "the limit is 2.00%"),
    (LIMIT, {"sent": 50}, "hard_bounce: 0 of 50 (0.00%), the true share lies between 0.00% and 5.13%"),
    (LIMIT, {"sent": 3}, "So few mails cannot show it: 133 are needed. Enlarge the first stage"),
    (LIMIT, {"hardBounce": -3}, None),
    ({"max_hard_bounce": 0.1, "min_sent": 100}, {"sent": 50}, "min_sent: 50 mails were sent, 100 are needed"),
    (LIMIT, {"sent": 0}, "hard_bounce: 0 of 0 (0.00%), the true share lies between 0.00% and 100.00%"),
    (SOFT, {"softBounce": 50, "unsubscribeCount": 1}, None),
    (SOFT, {"unsubscribeCount": 20}, "unsubscribe: 20 of 1,000"),
    ({"max_bounce": 0.05}, {"hardBounce": 20, "softBounce": 15}, None),
    ({"max_bounce": 0.05}, {"hardBounce": 30, "softBounce": 30}, "bounce: 60 of 1,000 (6.00%)"),
    ({"max_hard_bounce": 0.5, "confidence": 0.999}, {"sent": 4}, "hard_bounce: 0 of 4"),
]


@pytest.mark.parametrize(("limits", "counts", "problem"), OUTCOMES)
def test_what_passes(
    run: Run, emulator: Emulator, limits: dict[str, Any], counts: dict[str, int], problem: str | None
) -> None:
    counting(emulator, **counts)
    done = run(lambda: gate(**limits))
    report = done.result.xcom(TASK, "gate")
    assert done.state == ("failed" if problem else "success")
    assert (problem or "") in "; ".join(report["problems"])
    assert (problem or "pass") in done.log
    if problem is None:
        assert (done.returned["decision"], done.returned["problems"]) == ("pass", [])
        assert {rate["verdict"] for rate in done.returned["rates"]} == {"ok"}


@pytest.mark.parametrize("way", WAYS if AIRFLOW_VERSION >= (3, 3) else ["poke", "deferrable"])
def test_a_gate_waits_for_the_bounces(run: Run, emulator: Emulator, clock: Clock, way: str) -> None:
    counting(emulator)
    clock.after(500, lambda: emulator.set_campaign_stats("spring", sentCount=1000, hardBounce=300))
    done = run(lambda: gate(way, **LIMIT))
    assert (done.state, done.result.xcom(TASK, "gate")["rates"][0]["verdict"]) == ("failed", "exceeded")


def test_a_breach_may_skip_the_rest_and_a_sandbox_passes(run: Run, emulator: Emulator, connect: Connect) -> None:
    counting(emulator, hardBounce=300)
    assert run(lambda: gate(on_breach="skip", **LIMIT)).state == "skipped"
    connect(sandbox=True)
    done = run(lambda: gate(mail_name="summer", **LIMIT))
    assert (done.state, done.returned["decision"]) == ("success", "sandbox")


def event(number: int, code: str, name: str = "spring", push: int = 1, days: float = 0) -> tuple[Any, ...]:
    values = dict.fromkeys(column.name for column in EVENTS.columns)
    values |= {"mail_conn_id": "mail_default", "event_id": f"{name}{number}{code}{push}", "event_code": code}
    values |= {"email": f"user{number}@example.com", "mail_name": name, "raw": "{}", "push_id": push}
    return tuple((values | {"received_at": datetime.now(UTC) + timedelta(days=days), "push_index": number}).values())


def events(**numbers: int) -> list[tuple[Any, ...]]:
    """Events of the campaign, each code for the first recipients; and others that are not to be counted."""
    others = [event(1, "SpamReport", "another"), *(event(number, "Bounced", days=-2) for number in range(900, 950))]
    return others + [event(number, code) for code, count in numbers.items() for number in range(count)]


def store(database: SqlDatabase, rows: list[tuple[Any, ...]]) -> None:
    load(database.hook, LoadRequest(EVENTS, TableName.parse("mail_events"), Source(rows)))


SPAM, EVENTS_ONLY = {"max_spam": 0.01}, {"source": "events", "max_bounce": 0.05, "max_unsubscribe": 0.02}
IN_EVENTS: list[tuple[dict[str, Any], dict[str, int], str]] = [
    # the limits, the events, what the log says
    (SPAM, {"Delivered": 1000, "SpamReport": 1}, "spam | 1 of 1,000"),
    (SPAM, {"Delivered": 1000, "SpamReport": 20}, "not pass: spam: 20 of 1,000"),
    (SPAM, {}, "not pass: max_spam: mail_events has no event of the campaign"),
    # The statistics count 1,000 mails and 300 bounces.
    (EVENTS_ONLY, {"Delivered": 800, "Bounced": 20, "Unsubscribed": 3, "Opened": 400}, "| bounce | 20 of 800 |"),
    (EVENTS_ONLY, {"Delivered": 800, "Bounced": 60}, "not pass: bounce: 60 of 800 (7.50%)"),
    (EVENTS_ONLY, {"Delivered": 800, "Unsubscribed": 30}, "not pass: unsubscribe: 30 of 800"),
    (EVENTS_ONLY | {"min_sent": 900}, {"Delivered": 800}, "not pass: min_sent: 800 mails were sent, 900 are needed"),
    (EVENTS_ONLY, {}, "max_bounce, max_unsubscribe: mail_events has no event of the campaign"),
    (EVENTS_ONLY | SPAM, {"Delivered": 800, "SpamReport": 30}, "not pass: spam: 30 of 800"),
]


@pytest.mark.parametrize(("limits", "numbers", "said"), IN_EVENTS)
def test_counts_in_the_events(
    run: Run, emulator: Emulator, warehouse: SqlDatabase, limits: dict[str, Any], numbers: dict[str, int], said: str
) -> None:
    counting(emulator, hardBounce=300)
    again = [event(number, "Bounced", push=2) for number in range(numbers.get("Bounced", 0))]
    store(warehouse, events(**numbers) + again)
    done = run(lambda: gate(sql_conn_id="warehouse", **limits))
    assert said in done.log
    assert done.state == ("failed" if "not pass" in done.log else "success")


def test_events_that_are_not_pushed_are_no_zero(run: Run, emulator: Emulator, any_warehouse: SqlDatabase) -> None:
    counting(emulator)
    post(emulator, "webhook/save", transEvent={"delivered": True, "bounced": False, "spamReport": True})
    store(any_warehouse, events(Delivered=1000))
    done = run(lambda: gate(sql_conn_id="warehouse", source="events", max_bounce=0.05, max_spam=0.01))
    problem = "max_bounce: the service does not push events Bounced, so the count may be too small"
    report = done.result.xcom(TASK, "gate")
    (found,) = report["problems"]
    assert (done.state, report["sent"], problem in found) == ("failed", 1000, True)


@asks
@pytest.mark.parametrize("choice", ["Approve", "Reject"])
def test_a_person_decides(run_in_airflow: Run, new_dag: Any, emulator: Emulator, clock: Clock, choice: str) -> None:
    counting(emulator, hardBounce=300)
    with new_dag() as dag:
        gate(on_breach="ask", max_age=timedelta(0), **LIMIT)
    person = Person(clock, choice, dag.dag_id, TASK)
    done = run_in_airflow(dag)
    (question,) = person.asked
    assert question["subject"] == "Go on after campaign spring?"
    assert "hard_bounce: 300 of 1,000 (30.00%)" in question["body"]
    assert done.state == ("success" if choice == "Approve" else "failed")
    assert choice == "Reject" or done.returned["decision"] == "approved"


# --- the comparison ---


def record(name: str, sent: int = 1, opened: int = 1, clicked: int = 0) -> dict[str, Any]:
    return {"mail_name": name, "sent_count": sent, "open_count": opened, "click_count": clicked}


def comparing(**arguments: Any) -> MailCompareCampaignsOperator:
    return MailCompareCampaignsOperator(**{"task_id": TASK, "stats_a": record("a"), "stats_b": record("b")} | arguments)


FAIL, LEADER = {"on_no_difference": "fail"}, {"on_no_difference": "leader"}
WINNERS: list[tuple[dict[str, Any], tuple[int, ...], tuple[int, ...], str | None, str]] = [
    # arguments; sent, opened, clicked of a and b; the winner; what the log says
    ({}, (1000, 200), (1000, 250), "b", "z = -2.677, p-value = 0.0074"),
    ({}, (1000, 250), (1000, 200), "a", "| a | 250 of 1,000 | 25.00% | 22.8"),
    ({}, (1000, 200), (1000, 220), "a", "No difference by open_rate (z = -1.098, p-value = 0.2722)"),
    ({"on_no_difference": "b"}, (1000, 220), (1000, 200), "b", "No difference"),
    (LEADER, (1000, 200), (1000, 220), "b", "No difference"),
    (LEADER, (1000, 200), (1000, 200), "a", "No difference"),
    (FAIL, (1000, 200), (1000, 220), None, "p-value 0.2722: at most 0.05 shows a difference"),
    ({"confidence": 0.7}, (1000, 200), (1000, 220), "b", "Difference by open_rate"),
    ({"confidence": 0.999} | FAIL, (1000, 200), (1000, 250), None, "at most 0.001 shows"),
    ({"metric": "click_rate"}, (1000, 250, 10), (1000, 200, 40), "b", "Difference by click_rate"),
    (FAIL, (99, 10), (1000, 900), None, "min_sent: 99 mails of 'a' were sent, 100 are needed"),
    ({"min_sent": 99}, (99, 10), (1000, 900), "b", "Difference"),
    ({"min_sent": 0}, (0, 0), (0, 0), "a", "No difference by open_rate (z = 0.000, p-value = 1.0000)"),
    ({}, (1000, -20), (1000, 30), "b", "| a | 0 of 1,000 | 0.00% |"),
    (FAIL, (-1000, 20), (1000, 30), None, "min_sent: 0 mails of 'a' were sent, 100 are needed"),
    # A service may count more opens than mails.
    ({}, (1000, 1200), (1000, 900), "a", "| a | 1,000 of 1,000 | 100.00%"),
]


@pytest.mark.parametrize(("arguments", "a", "b", "winner", "said"), WINNERS)
def test_who_wins(
    run: Run, arguments: dict[str, Any], a: tuple[int, ...], b: tuple[int, ...], winner: str | None, said: str
) -> None:
    done = run(lambda: comparing(stats_a=record("a", *a), stats_b=record("b", *b), **arguments))
    report = done.result.xcom(TASK, "comparison")
    assert done.state == ("success" if winner else "failed")
    assert said in done.log
    assert report["decision"] == ("no difference" if report["problems"] else "difference")
    assert (report["campaigns"]["a"]["sent"], report["campaigns"]["b"]["sent"]) == (max(a[0], 0), b[0])
    assert winner is None or done.returned == {"winner": winner, **report}


def test_other_results_are_no_statistics(failure: Callable[..., str]) -> None:
    assert "There is no sent_count, open_count" in failure(lambda: comparing(stats_b={"mail_name": "b"}))


# --- stages and versions ---

STAGES = {"canary": 0.1, "early": 0.5, "rest": 1}
AT_ONCE = {"retries": 2, "retry_delay": timedelta(0)}
CAMPAIGN = {"sender_mail": "news@example.com", "subject": "Hi", "content": "<p>Hi</p>", "poke_interval": 1}
GATE = {"max_hard_bounce": 0.5, "max_age": 60, "poke_interval": 10}
VERSIONS = {"version_a": {"subject": "News"}, "version_b": {"subject": "{{ 'Good' }} news"}}
PEOPLE = [f"user{number}@example.com" for number in range(200)]
MANY = [f"user{number}@example.com" for number in range(1000)]


def importing(people: list[str], name: str = "people") -> Callable[[], MailImportContactsOperator]:
    return lambda: MailImportContactsOperator(
        task_id=name, contacts=lambda: [{"email": person} for person in people],
        list_name="all", exact_audience=True, rejects=Rejects(max_fraction=0.5), **AT_ONCE,
    )  # fmt: skip


def staged(people: list[str] = PEOPLE, imports: Callable[[], Any] | None = None, **arguments: Any) -> Callable[[], Any]:
    """A function that makes the tasks, each with two retries."""
    given: dict[str, Any] = {"stages": STAGES, "mail_name": "spring", "campaign": CAMPAIGN | AT_ONCE}
    given |= {"gate": GATE | AT_ONCE} | arguments
    return lambda: staged_send(import_task=(imports or importing(people))(), **given)


def seed_tested(**arguments: Any) -> Callable[[], Any]:
    """A function that makes the tasks of an A/B test."""
    wait = {"max_age": 3600, "poke_interval": 60}
    given: dict[str, Any] = {"mail_name": "spring", "wait": wait, **VERSIONS, "campaign": CAMPAIGN}
    given |= {"compare": {"min_sent": 50}} | arguments
    return lambda: ab_send(import_task=importing(MANY)(), **given)


def states(done: Done) -> dict[str, str]:
    return {task_id.partition(".")[2]: task.state for (task_id, _), task in done.result.tasks.items()}


def recipients(emulator: Emulator) -> dict[str, list[str]]:
    names = [found["mailName"] for found in emulator.campaigns() if found["mailStatus"] == 2]
    return {name: emulator.campaign_recipients(name) for name in names}


def mailed(emulator: Emulator) -> Counter[str]:
    return Counter(person for people in recipients(emulator).values() for person in people)


def test_everybody_is_mailed_once_stage_by_stage(run: Run, emulator: Emulator) -> None:
    done = run(staged([*PEOPLE, "nobody"]))
    assert set(states(done).values()) == {"success"}, done.log
    assert mailed(emulator) == Counter(PEOPLE)
    assert [len(emulator.campaign_recipients(f"spring {stage}")) for stage in STAGES] == [20, 80, 100]
    counts = {"read": 201, "accepted": 200, "rejected": 1, "suppressed": 0, "opted_out": 0, "without_address": 0}
    assert counts.items() <= done.result.xcom("staged_send.check").items()
    assert done.result.xcom("staged_send.sent") == {**counts, "mailed": 200}


def test_each_of_a_mapped_group_sends_its_own_campaign(run_in_airflow: Run, new_dag: Any, emulator: Emulator) -> None:
    with new_dag() as dag:

        @task_group
        def country(code: str) -> None:
            staged(PEOPLE[:20], mail_name="news {{ ti.map_index }}", stages={"canary": 0.3, "rest": 1})()

        country.expand(code=["de", "fr"])
    assert run_in_airflow(dag).state == "success"
    for index in (0, 1):
        people = [person for stage in ("canary", "rest") for person in recipients(emulator)[f"news {index} {stage}"]]
        assert sorted(people) == sorted(PEOPLE[:20])


def test_the_same_people_are_in_a_stage_of_each_run(run: Run, emulator: Emulator) -> None:
    run(staged(seed="2026"))
    run(staged(PEOPLE[::-1], mail_name="summer", seed="{{ 2000 + 26 }}"))
    first, second = (set(emulator.campaign_recipients(f"{name} canary")) for name in ("spring", "summer"))
    assert first == second


def clearing(emulator: Emulator, ended: str) -> Callable[..., FlowRun]:
    """Return a function that clears a run, whose task of that name was ended from outside, with another DAG file."""

    def dag(people: int = 300, canary: float = 0.3, **arguments: Any) -> DAG:
        everybody = [f"user{number}@example.com" for number in range(people)]
        with DAG("staged", schedule=None) as dag:
            staged(everybody, **{"stages": {"canary": canary, "rest": 1}, **arguments})()
        return dag

    def run_task(tries: FlowTries, make: Callable[[], Any], most: int) -> None:
        if make().task_id == f"staged_send.{ended}":
            tries.state = "failed"
        else:
            tries.run_all(make, most)

    def clear(before: dict[str, Any], **after: Any) -> FlowRun:
        run = FlowRun(dag(**before), emulator, most=1)
        run.run(run_task)
        run.clear(dag(**after))
        run.run()
        return run

    return clear


@pytest.mark.parametrize(("before", "after"), [
    ({}, {"canary": 0.01}),
    ({"canary": 0.01}, {}),
    ({}, {"seed": "other"}),
    ({}, {"stages": {"first": 0.3, "rest": 1}}),
    ({}, {"stages": {"first": 0.3, "second": 0.5, "rest": 1}}),
    ({}, {"mail_name": "summer", "group_id": "other"}),
])  # fmt: skip
def test_another_plan_is_refused_or_mails_the_others(
    emulator: Emulator, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """What a campaign of the run has reached does not depend on the names of campaigns, stages and tasks."""
    clear = clearing(emulator, "send_rest")
    run = clear(before, **after)
    assert "'spring canary': sent by another plan" in next(str(t.error) for i, t in run.tries.items() if "check" in i)
    assert list(recipients(emulator)) == ["spring canary"]
    emulator.reset()
    emulator.add_sender("news@example.com")
    run = clear(before, **after, on_changed_plan="mail_others", gate=GATE | {"min_sent": 0, "max_hard_bounce": 1})
    assert mailed(emulator) == Counter(f"user{number}@example.com" for number in range(300))
    assert run.succeeded


@pytest.mark.parametrize("choice", ["fail", "mail_others"])
def test_campaigns_that_are_renamed_mail_nobody_again(emulator: Emulator, choice: str) -> None:
    run = clearing(emulator, "send_rest")({}, mail_name="summer", seed="spring", on_changed_plan=choice)
    assert mailed(emulator) == Counter(emulator.campaign_recipients("spring canary"))
    assert not run.succeeded


@pytest.mark.parametrize("after", [{"group_id": "other"}, {"imports": importing(MANY[:300], "load")}])
def test_a_run_whose_tasks_have_other_names_goes_on(emulator: Emulator, after: dict[str, Any]) -> None:
    run = clearing(emulator, "send_rest")({}, **after)
    assert mailed(emulator) == Counter(MANY[:300])
    assert run.succeeded


def test_two_groups_of_one_dag(emulator: Emulator) -> None:
    """One is cleared, and mails its own people as planned."""

    def dag() -> DAG:
        with DAG("staged", schedule=None) as dag:
            for name in ("spring", "summer"):
                staged(MANY[:100], mail_name=name, group_id=name, imports=importing(MANY[:100], f"all_{name}"))()
        return dag

    run = FlowRun(dag(), emulator, most=1)
    run.run(lambda tries, make, most: tries.run_all(make, most) if make().task_id != "summer.send_rest" else None)
    run.clear(dag())
    run.run()
    assert mailed(emulator) == Counter(MANY[:100] * 2)
    assert run.succeeded


def test_a_service_that_rewrites_names(emulator: Emulator) -> None:
    emulator.change_settings(stored_mail_name="all")
    run = clearing(emulator, "send_rest")({"mail_name": "Spring 2030"}, mail_name="Spring 2030")
    assert list(recipients(emulator)) == ["spring 2030 canary", "spring 2030 rest"]
    assert mailed(emulator) == Counter(MANY[:300])
    assert run.succeeded


def test_a_campaign_that_was_not_sent_leaves_its_people_out(emulator: Emulator) -> None:
    """The service has not sent it, and a person marked its task as success."""
    run = FlowRun(_dag_of(staged()), emulator, most=1)

    def run_task(tries: FlowTries, make: Callable[[], Any], most: int) -> None:
        if "send_rest" in make().task_id:
            emulator.change_settings(campaign_outcome="failed")
        tries.run_all(make, most)
        if "send_rest" in make().task_id:
            tries.state = "success"

    run.run(run_task)
    assert "campaign 'spring rest' was not sent" in str(run.tries["staged_send.sent"].error)


@pytest.mark.parametrize("dates", [True, False])
def test_lists_that_others_change_between_stages(emulator: Emulator, clock: Clock, dates: bool) -> None:
    """There are as many people as before."""
    emulator.change_settings(list_modify_date=dates)
    run = FlowRun(_dag_of(staged()), emulator, most=1)

    def change() -> None:
        name = next(entry["name"] for entry in emulator.lists() if "rest" in entry["name"])
        clock.sleep(60)
        members = post(emulator, "contacts/list/get", listName=name)["contactList"]
        post(emulator, "contacts/delete", email=members[0]["email"])
        post(emulator, "contacts/upsert", email="stranger@example.com", listName=name)

    with at_request(emulator, "campaign/mail/sends", 1, change):
        run.run()
    assert "has other people. It was changed after the import" in str(run.tries["staged_send.send_rest"].error)
    assert list(recipients(emulator)) == ["spring canary", "spring early"]


def test_an_import_without_a_result_is_named(emulator: Emulator) -> None:
    run = FlowRun(_dag_of(staged()), emulator, most=1)

    def run_task(tries: FlowTries, make: Callable[[], Any], most: int) -> None:
        tries.run_all(make, most)
        if make().task_id == "people":
            tries.xcoms.clear()

    run.run(run_task)
    assert "its result was removed" in str(run.tries["staged_send.check"].error)
    assert list(recipients(emulator)) == []


def test_those_who_came_after_a_stage_was_sent_get_the_last(emulator: Emulator) -> None:
    run = clearing(emulator, "send_rest")({}, people=360)
    assert (run.succeeded, len(mailed(emulator)), set(mailed(emulator).values())) == (True, 360, {1})


def test_those_who_came_after_the_last_stage_are_reported(emulator: Emulator) -> None:
    run = clearing(emulator, "sent")({}, people=360)
    assert (len(mailed(emulator)), set(mailed(emulator).values())) == (300, {1})
    assert "60 of 360 people of the source were not mailed" in str(run.tries["staged_send.sent"].error)


def test_lists_that_are_gone_leave_nobody_mailed_twice(emulator: Emulator) -> None:
    run = FlowRun(_dag_of(staged()), emulator, most=1)
    run.run(lambda tries, make, most: tries.run_all(make, most) if "send_rest" not in make().task_id else None)
    (name,) = emulator.journal.entries(CREATES)[0]["body"]["sendListNames"]
    post(emulator, "lists/delete", listName=name)
    run.clear(_dag_of(staged()))
    run.run()
    assert "the service no longer has" in str(run.tries["staged_send.check"].error)
    assert list(recipients(emulator)) == ["spring canary", "spring early"]


def _dag_of(make: Callable[[], object]) -> DAG:
    with DAG("staged", schedule=None) as dag:
        make()
    return dag


@pytest.mark.parametrize(("opened", "winner"), [((10, 40), "b"), ((10, 12), "a")])
def test_the_better_version_goes_to_all_others(
    run: Run, emulator: Emulator, opened: tuple[int, int], winner: str
) -> None:
    counts = dict(zip(("spring a", "spring b", "spring rest"), (*opened, 0), strict=True))

    def count_opens(number: int) -> None:
        name = emulator.campaigns()[number]["mailName"]
        emulator.set_campaign_stats(name, sentCount=100, openCount=counts[name])

    with at_every_request(emulator, CREATES, count_opens):
        done = run(seed_tested())
    skipped = {f"send_rest_{name}" for name in "ab" if name != winner}
    assert {name for name, state in states(done).items() if state != "success"} == skipped, done.log
    assert mailed(emulator) == Counter(MANY)
    a, b, _ = map(len, recipients(emulator).values())
    assert list(recipients(emulator)) == list(counts)
    assert (a, b) == (100, 100)
    subjects = {"a": "News", "b": "Good news"}
    sent = [entry["body"]["subject"] for entry in emulator.journal.entries(CREATES)]
    assert sent == [subjects["a"], subjects["b"], subjects[winner]]


@pytest.mark.parametrize(("arguments", "compared"), [
    ({"compare": {"on_no_difference": "fail"}}, "failed"),
    ({"version_b": {"subject": "News", "sender_mail": "nobody@example.com"}}, "upstream_failed"),
])  # fmt: skip
def test_without_a_winner_nobody_else_is_mailed(
    run: Run, emulator: Emulator, arguments: dict[str, Any], compared: str
) -> None:
    ends = states(run(seed_tested(**arguments)))
    assert (ends["compare"], ends["send_rest_a"], ends["send_rest_b"]) == (compared, *["upstream_failed"] * 2)
    assert "spring rest" not in recipients(emulator)


def test_the_sandbox_tries_all_of_it(run: Run, emulator: Emulator, connect: Connect) -> None:
    connect(sandbox=True)
    done = run(seed_tested())
    assert states(done)["sent"] == "success", done.log
    assert done.result.xcom("ab_send.compare")["decision"] == "sandbox"
    assert emulator.campaigns() == []


def test_the_rest_has_one_name(new_dag: Any) -> None:
    """So a comparison that is repeated with later counts mails nobody twice: the name is taken."""
    with new_dag():
        assert {task.mail_name for task in seed_tested()().rest.values()} == {"spring rest"}


# --- what is an error in the DAG file ---


def changes_only() -> MailImportContactsOperator:
    given = {"contacts": [{"email": "a@example.com"}], "changes_only": ChangesOnly(sql_conn_id="warehouse")}
    return MailImportContactsOperator(task_id="people", list_name="a", **given)


@pytest.mark.parametrize(("make", "problem"), [
    (gate, "max_hard_bounce, max_soft_bounce, max_bounce, max_unsubscribe, max_spam: give at least one"),
    (lambda: gate(max_spam=0.1), "sql_conn_id: needed with max_spam and source='events'"),
    (lambda: gate(max_bounce=0.1, source="events"), "sql_conn_id: needed with max_spam and source='events'"),
    (lambda: gate(**LIMIT, max_soft_bounce=0.1, source="events", sql_conn_id="warehouse"),
     "max_hard_bounce, max_soft_bounce: events do not show which bounces are hard; use max_bounce"),
    (lambda: gate(**LIMIT, confidence=95), "confidence: must be a number"),
    (lambda: gate(max_hard_bounce=0.05, min_sent=20),
     r"min_sent: 20 mails can never show that max_hard_bounce=0\.05 is kept: .* 52 are needed"),
    (lambda: gate(max_unsubscribe=0), "max_unsubscribe: 0 can never be shown to be kept"),
    (lambda: MailStatsGateSensor.partial(task_id=TASK, max_bounce=0.05, min_sent=20),
     r"min_sent: 20 mails can never show that max_bounce=0\.05 is kept"),
    pytest.param(lambda: gate(**LIMIT, on_breach="ask"), r"on_breach: 'ask' needs Airflow 3\.1 or later",
                 marks=pytest.mark.skipif(AIRFLOW_VERSION >= (3, 1), reason="a person can be asked")),
    (lambda: comparing(min_sent=-1), "min_sent: must be a whole number, at least 0"),
    (lambda: comparing(stats_b="spring b"), "stats_b: a dictionary is needed"),
    *((seed_tested(test_fraction=fraction), "test_fraction: must be a number from ")
      for fraction in (0, 1, True)),
    (staged(stages={"all": 1}, imports=changes_only), "leave out changes_only"),
    (staged(on_changed_plan="never"), "on_changed_plan: 'never' is none of fail, mail_others"),
])  # fmt: skip
def test_what_is_wrong_in_the_dag_file_breaks_it(make: Callable[[], object], problem: str) -> None:
    with DAG("d", schedule=None), pytest.raises(ValueError, match=problem):
        make()
