"""A campaign in stages: nobody is mailed twice, nobody is left out, and nothing follows a failed gate or a hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.stages import Stage
from airflow_provider_mail.utils.staged_send import check_stages, staged_send
from airflow_provider_mail.version_compat import AirflowFailException
from mail_emulator import Emulator
from tests.support.changes import at_request
from tests.tasks.conftest import Done, Run

CREATES, IMPORTS = "campaign/mail/sends", "contacts/imports"
PEOPLE = [f"user{number}@example.com" for number in range(200)]
CAMPAIGN = {"sender_mail": "news@example.com", "subject": "Hi", "content": "<p>Hi</p>", "poke_interval": 1}
GATE = {"max_hard_bounce": 0.5, "max_age": 60, "poke_interval": 10}


def make(people: list[str] | None = None, **arguments: Any) -> Callable[[], object]:
    """A function that makes the tasks, each with two retries."""

    def audience(stage: Stage) -> MailImportContactsOperator:
        return MailImportContactsOperator(
            task_id=f"people_{stage.name}",
            contacts=lambda: [{"email": person} for person in (PEOPLE if people is None else people)],
            list_name=f"all {stage.name}",
            audience="exact",
            max_reject_fraction=0.5,
            retries=2,
            retry_delay=timedelta(0),
        )

    given: dict[str, Any] = {"stages": {"canary": 0.1, "early": 0.5, "rest": 1}, "mail_name": "spring"}
    retries = {"retries": 2, "retry_delay": timedelta(0)}
    return lambda: staged_send(audience=audience, campaign=CAMPAIGN | retries, gate=GATE | retries, **given | arguments)


def mailed(emulator: Emulator) -> Counter[str]:
    names = [found["mailName"] for found in emulator.campaigns() if found["mailStatus"] == 2]
    return Counter(person for name in names for person in emulator.campaign_recipients(name))


def states(done: Done) -> dict[str, str]:
    return {task_id.removeprefix("staged_send."): task.state for (task_id, _), task in done.result.tasks.items()}


def test_everybody_is_mailed_once_stage_by_stage(run: Run, emulator: Emulator) -> None:
    done = run(make([*PEOPLE, "nobody"]))
    assert set(states(done).values()) == {"success"}, done.log
    assert mailed(emulator) == Counter(PEOPLE)
    sizes = [len(emulator.campaign_recipients(f"spring {stage}")) for stage in ("canary", "early", "rest")]
    assert sizes == sorted(sizes)
    assert done.result.xcom("staged_send.check") == {"read": 201, "accepted": 200, "rejected": 1, "suppressed": 0}
    bodies = [entry["body"] for entry in emulator.journal.entries(CREATES)]
    lists = [name for body in bodies for name in body["sendListNames"]]
    assert [body.get("repelListNames", []) for body in bodies] == [[], lists[:1], lists[:2]]


def test_the_same_people_are_in_a_stage_of_each_run(run: Run, emulator: Emulator) -> None:
    run(make(seed="2026"))
    first = set(emulator.campaign_recipients("spring canary"))
    run(make(list(reversed(PEOPLE)), mail_name="summer", seed="{{ 2000 + 26 }}"))
    assert set(emulator.campaign_recipients("summer canary")) == first


def test_nothing_follows_a_gate_that_fails(run: Run, emulator: Emulator) -> None:
    emulator.change_settings(hard_bounce_rate=0.9)
    done = run(make())
    assert [states(done)[name] for name in ("gate_canary", "send_early", "send_rest")] == [
        "failed", "upstream_failed", "upstream_failed",
    ]  # fmt: skip
    assert mailed(emulator) == Counter(emulator.campaign_recipients("spring canary"))


def test_nothing_follows_a_hold(run: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_request(emulator, CREATES, 1, lambda: monkeypatch.setenv("AIRFLOW_VAR_MAIL_HOLD", "x")):
        done = run(make())
    assert [states(done)[name] for name in ("send_canary", "gate_canary", "send_early", "send_rest")] == [
        "success", "success", "failed", "upstream_failed",
    ]  # fmt: skip
    assert mailed(emulator) == Counter(emulator.campaign_recipients("spring canary"))


@pytest.mark.parametrize(("kind", "operation"), [("close_after", CREATES), ("http_error_after", IMPORTS)])
def test_lost_responses_mail_nobody_twice(run: Run, emulator: Emulator, kind: str, operation: str) -> None:
    emulator.faults.add(kind, operation, count=2)
    done = run(make())
    assert set(states(done).values()) == {"success"}, done.log
    assert mailed(emulator) == Counter(PEOPLE)


COUNTS = {"read": 10, "accepted": 4, "rejected": 1, "suppressed": 0}


@pytest.mark.parametrize("changed", [{"read": 11}, {"accepted": 3}, {"suppressed": 1}])
def test_a_source_that_changed_stops_before_anybody_is_mailed(changed: dict[str, int]) -> None:
    assert check_stages([COUNTS, COUNTS]) == {"read": 10, "accepted": 8, "rejected": 2, "suppressed": 0}
    with pytest.raises(AirflowFailException, match="Nobody was mailed: clear the imports"):
        check_stages([COUNTS, COUNTS | changed])


def test_a_person_who_comes_while_it_is_read_is_reported(run: Run, emulator: Emulator) -> None:
    people = [*PEOPLE]
    with at_request(emulator, IMPORTS, 1, lambda: people.append("late@example.com")):
        done = run(make(people))
    assert (states(done)["check"], emulator.journal.count(CREATES)) == ("failed", 0)
    assert "the imports of the stages read 200, 201, 201 rows" in done.log


def test_the_imports_must_read_all_rows() -> None:
    def audience(stage: Stage) -> MailImportContactsOperator:
        return MailImportContactsOperator(
            task_id="people", contacts=[{"email": "a@example.com"}], list_name="a", changes_only=True,
            state_path="file:///tmp/state",
        )  # fmt: skip

    with pytest.raises(ValueError, match="leave out changes_only"), DAG("d", schedule=None):
        staged_send(stages={"all": 1}, audience=audience, mail_name="a", campaign=CAMPAIGN, gate=GATE)
