"""An A/B test: the figures of the test, the winner, and that everybody gets one mail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail._task.statistics import two_proportion_test
from airflow_provider_mail.operators.compare import MailCompareCampaignsOperator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.stages import Stage
from airflow_provider_mail.utils.staged_send import ab_send
from mail_emulator import Emulator
from tests.support.changes import at_every_request
from tests.tasks.conftest import TASK, Connect, Done, Run

PUBLISHED = [
    # statsmodels, the example of proportions_ztest
    ((5, 83, 12, 99), -1.4078, 0.159),
    # OpenStax, Introductory Statistics, 10.3: two medications for hives
    ((20, 200, 12, 200), 1.4744, 0.1404),
    # a poll about a tax on cigarettes, among nonsmokers and smokers
    ((300, 502, 50, 248), 10.23, 0.0),
]


@pytest.mark.parametrize(("counts", "z", "p_value"), PUBLISHED)
def test_published_figures(counts: tuple[int, int, int, int], z: float, p_value: float) -> None:
    found = two_proportion_test(*counts)
    assert found == (pytest.approx(z, abs=0.005), pytest.approx(p_value, abs=0.0005))


@given(st.tuples(*[st.integers(0, 10**6)] * 4))
def test_z_squared_is_pearsons_chi_squared(cells: tuple[int, int, int, int]) -> None:
    """Of the table of two rows and two columns, by its own formula, with integers."""
    a, b, c, d = cells
    z, p_value = two_proportion_test(a, a + b, c, c + d)
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    assert z * z == pytest.approx(sum(cells) * (a * d - b * c) ** 2 / margins if margins else 0, rel=1e-9)
    assert two_proportion_test(c, c + d, a, a + b) == (-z, p_value)
    assert (p_value <= 0.05) == (abs(z) >= 1.959963984540054)


def record(name: str, sent: int, opened: int, clicked: int = 0, **more: Any) -> dict[str, Any]:
    return {"mail_name": name, "sent_count": sent, "open_count": opened, "click_count": clicked, **more}


OUTCOMES: list[tuple[dict[str, Any], tuple[int, ...], tuple[int, ...], str | None, str]] = [
    # arguments; sent, opened, clicked of a and b; the winner; what the log says
    ({}, (1000, 200), (1000, 250), "b", "z = -2.677, p-value = 0.0074"),
    ({}, (1000, 250), (1000, 200), "a", "| a | 250 of 1,000 | 25.00% | 22.8"),
    ({}, (1000, 200), (1000, 220), "a", "No difference by open_rate (z = -1.098, p-value = 0.2722)"),
    ({"on_no_difference": "b"}, (1000, 220), (1000, 200), "b", "No difference"),
    ({"on_no_difference": "leader"}, (1000, 200), (1000, 220), "b", "No difference"),
    ({"on_no_difference": "leader"}, (1000, 200), (1000, 200), "a", "No difference"),
    ({"on_no_difference": "fail"}, (1000, 200), (1000, 220), None, "p-value 0.2722: at most 0.05 shows a difference"),
    ({"confidence": 0.7}, (1000, 200), (1000, 220), "b", "Difference by open_rate"),
    ({"confidence": 0.999, "on_no_difference": "fail"}, (1000, 200), (1000, 250), None, "at most 0.001 shows"),
    ({"metric": "click_rate"}, (1000, 250, 10), (1000, 200, 40), "b", "Difference by click_rate"),
    ({"on_no_difference": "fail"}, (99, 10), (1000, 900), None, "min_sent: 99 mails of 'a' were sent, 100 are needed"),
    ({"min_sent": 99}, (99, 10), (1000, 900), "b", "Difference"),
    ({"min_sent": 0}, (0, 0), (0, 0), "a", "No difference by open_rate (z = 0.000, p-value = 1.0000)"),
    # A service may count more opens than mails.
    ({}, (1000, 1200), (1000, 900), "a", "| a | 1,000 of 1,000 | 100.00%"),
]


@pytest.mark.parametrize(("arguments", "a", "b", "winner", "said"), OUTCOMES)
def test_who_wins(
    run: Run, arguments: dict[str, Any], a: tuple[int, ...], b: tuple[int, ...], winner: str | None, said: str
) -> None:
    records = {"a": record("a", *a), "b": record("b", *b)}
    done = run(lambda: MailCompareCampaignsOperator(task_id=TASK, **records, **arguments))
    report = done.result.xcom(TASK, "comparison")
    assert done.state == ("success" if winner else "failed")
    assert said in done.log
    assert report["decision"] == ("no difference" if report["problems"] else "difference")
    assert (report["campaigns"]["a"]["sent"], report["campaigns"]["b"]["sent"]) == (a[0], b[0])
    assert winner is None or done.returned == {"winner": winner, **report}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"metric": "bounce_rate"}, "metric: 'bounce_rate' is none of open_rate, click_rate"),
        ({"on_no_difference": "c"}, "on_no_difference: 'c' is none of a, b, leader, fail"),
        ({"confidence": 95}, "confidence: must be a number"),
        ({"min_sent": -1}, "min_sent: must be a whole number, at least 0"),
        ({"b": "spring b"}, "b: a dictionary is needed"),
    ],
)
def test_invalid_arguments(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem.replace("'", ".")):
        MailCompareCampaignsOperator(**{"task_id": TASK, "a": record("a", 1, 1), "b": record("b", 1, 1), **arguments})


def test_other_results_are_no_statistics(run: Run) -> None:
    done = run(lambda: MailCompareCampaignsOperator(task_id=TASK, a=record("a", 1, 1), b={"mail_name": "b"}))
    assert done.state == "failed"
    assert "b: the statistics of a campaign are needed" in done.log
    assert "There is no sent_count, open_count" in done.log


PEOPLE = [f"user{number}@example.com" for number in range(1000)]
CAMPAIGN = {"sender_mail": "news@example.com", "content": "<p>Hi</p>", "poke_interval": 1}
VERSIONS = {"a": {"subject": "News"}, "b": {"subject": "{{ 'Good' }} news"}}


def audience(stage: Stage) -> MailImportContactsOperator:
    return MailImportContactsOperator(
        task_id=f"people_{stage.name}",
        contacts=lambda: [{"email": person} for person in PEOPLE],
        list_name=f"all {stage.name}",
        audience="exact",
    )


def make(**arguments: Any) -> Callable[[], object]:
    """A function that makes the tasks."""
    wait = {"max_age": 3600, "poke_interval": 60}
    given = {"mail_name": "spring", "campaign": CAMPAIGN, "wait": wait, "compare": {"min_sent": 50}, **VERSIONS}
    return lambda: ab_send(audience=audience, **given | arguments)


def states(done: Done) -> dict[str, str]:
    return {task_id.removeprefix("ab_send."): task.state for (task_id, _), task in done.result.tasks.items()}


def recipients(emulator: Emulator) -> dict[str, list[str]]:
    names = [campaign["mailName"] for campaign in emulator.campaigns()]
    return {name: emulator.campaign_recipients(name) for name in names}


@pytest.mark.parametrize(("opened", "winner"), [((10, 40), "b"), ((40, 10), "a"), ((10, 12), "a")])
def test_the_better_version_goes_to_all_others(
    run: Run, emulator: Emulator, opened: tuple[int, int], winner: str
) -> None:
    counts = {"spring a": opened[0], "spring b": opened[1], "spring rest": 0}

    def count_opens(number: int) -> None:
        name = emulator.campaigns()[number]["mailName"]
        emulator.set_campaign_stats(name, sentCount=100, openCount=counts[name])

    with at_every_request(emulator, "campaign/mail/sends", count_opens):
        done = run(make())
    skipped = {f"send_rest_{name}" for name in "ab" if name != winner}
    assert {name for name, state in states(done).items() if state != "success"} == skipped, done.log
    mailed = recipients(emulator)
    assert list(mailed) == ["spring a", "spring b", "spring rest"]
    assert Counter(person for people in mailed.values() for person in people) == Counter(PEOPLE)
    assert 70 < len(mailed["spring a"]) < 130
    assert 70 < len(mailed["spring b"]) < 130
    bodies = [entry["body"] for entry in emulator.journal.entries("campaign/mail/sends")]
    subjects = {"a": "News", "b": "Good news"}
    assert [body["subject"] for body in bodies] == [subjects["a"], subjects["b"], subjects[winner]]
    lists = [name for body in bodies for name in body["sendListNames"]]
    assert [body.get("repelListNames", []) for body in bodies] == [[], lists[:1], lists[:2]]


@pytest.mark.parametrize(
    ("arguments", "compared"),
    [
        ({"compare": {"on_no_difference": "fail"}}, "failed"),
        ({"b": {"subject": "News", "sender_mail": "nobody@example.com"}}, "upstream_failed"),
    ],
)
def test_without_a_winner_nobody_else_is_mailed(
    run: Run, emulator: Emulator, arguments: dict[str, Any], compared: str
) -> None:
    done = run(make(**arguments))
    ends = states(done)
    assert (ends["compare"], ends["send_rest_a"], ends["send_rest_b"]) == (compared, *["upstream_failed"] * 2)
    assert "spring rest" not in recipients(emulator)


def test_the_sandbox_tries_all_of_it(run: Run, emulator: Emulator, connect: Connect) -> None:
    connect(sandbox=True)
    done = run(make())
    assert states(done)["sent"] == "success", done.log
    assert done.result.xcom("ab_send.compare")["decision"] == "sandbox"
    assert recipients(emulator) == {}


@pytest.mark.parametrize("fraction", [0, 1, -0.1, True])
def test_the_part_in_the_test(fraction: float) -> None:
    with pytest.raises(ValueError, match="test_fraction: must be a number above 0 and below 1"):
        make(test_fraction=fraction)()


def test_the_rest_has_one_name(new_dag: Any) -> None:
    """So a comparison that is repeated with later counts mails nobody twice: the name is taken."""
    with new_dag():
        rest = ab_send(audience=audience, mail_name="spring", campaign=CAMPAIGN, wait={"max_age": 60}, **VERSIONS).rest
    assert {task.mail_name for task in rest.values()} == {"spring rest"}
