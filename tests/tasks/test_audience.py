"""`audience="exact"`: campaigns reach exactly the people whom the source returned and the service accepted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, Param, task

from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.flows.audience import without_time
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.version_compat import AirflowFailException
from mail_emulator import Emulator
from tests.support.clock import Clock
from tests.support.tries import Tries
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase
from tests.tasks.loading import error_of

SENDER = "news@example.com"
HOURS = 3600.0
EVENTS = [
    ("ADA@example.com", "Unsubscribed", "1", "2024-01-01"),
    *(("bob@example.com", "Bounced", str(number), f"2024-01-0{number}") for number in (1, 2, 3)),
    *(("cem@example.com", "Bounced", str(number), f"2024-01-0{number}") for number in (1, 2, 3)),
    ("cem@example.com", "Delivered", "4", "2024-01-02"),
    ("dora@example.com", "Opened", "5", "2024-01-01"),
]


def imported(*names: str, **arguments: Any) -> MailImportContactsOperator:
    contacts = [{"email": f"{name}@example.com"} for name in names]
    given = {
        "task_id": "load",
        "contacts": contacts,
        "list_name": "friends",
        "audience": "exact",
        "on_empty": "continue",
    }
    return MailImportContactsOperator(**given | arguments)


def created(audience: Any, mail_name: str | None = "spring", **arguments: Any) -> MailCreateCampaignOperator:
    given = {"task_id": "send", "mail_name": mail_name, "sender_mail": SENDER, "subject": "a", "content": "<p>a</p>"}
    return MailCreateCampaignOperator(audience=audience, **given | arguments)


def done(operator: Any, run_id: str = "first", *, map_index: int = -1, **params: Any) -> dict[str, Any]:
    tries = Tries(params=params, map_index=map_index)
    tries.run_id = run_id
    result: dict[str, Any] = tries.run(operator)
    return result


def mailed(service: Emulator, mail_name: str = "spring") -> list[str]:
    return [address.partition("@")[0] for address in service.campaign_recipients(mail_name)]


def names(service: Emulator) -> list[str]:
    return sorted(entry["name"] for entry in service.lists())


def test_who_left_the_source_is_not_mailed(emulator: Emulator) -> None:
    for run_id, people in (("1", ["ada", "bob"]), ("2", ["bob", "eva"])):
        result = done(imported(*people), run_id)
        done(created(result, f"mail {run_id}"), run_id)
    assert mailed(emulator, "mail 1") == ["ada", "bob"]
    assert mailed(emulator, "mail 2") == ["bob", "eva"]
    assert result["repel_list_names"] == []
    assert all(name.startswith("friends ") for name in names(emulator))


def test_a_try_that_failed_leaves_nobody_on_the_list(emulator: Emulator) -> None:
    tries = Tries()
    emulator.faults.add("code_before", "contacts/imports", skip=1, code=401, http_status=401)
    with pytest.raises((MailError, AirflowFailException)):
        tries.run(imported("ada", "bob", "eva", chunk_size=1, max_in_flight=1))
    result = tries.run(imported("bob"))
    done(created(result))
    assert mailed(emulator) == ["bob"]


def test_a_cleared_run_adopts_its_campaign(emulator: Emulator) -> None:
    """The lists of two tries differ in their time, and are the audience of one run."""
    for _ in range(2):
        campaign = done(created(done(imported("ada")), mail_name=None, send_date="2999-01-01T00:00:00Z"))
    assert campaign["adopted"]
    one, two = (done(imported("ada"), run_id)["list_name"] for run_id in ("first", "second"))
    assert without_time(one) != without_time(two)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [([], []), ([{"email": "nobody"}], []), ([{"email": "nobody"}, {"email": "ada@example.com"}], ["ada"])],
)
def test_rows_that_are_rejected(emulator: Emulator, rows: list[dict[str, str]], expected: list[str]) -> None:
    """A campaign can be made to an audience of nobody: its list exists."""
    done(created(done(imported(contacts=rows, max_reject_fraction=1))))
    assert mailed(emulator) == expected


def test_lists_of_earlier_runs_are_deleted(emulator: Emulator, clock: Clock) -> None:
    made = []
    for number in range(5):
        result = done(imported("ada"), str(number))
        made += result["send_list_names"]
        if number == 1:
            done(created(result, "scheduled", send_date="2999-01-01T00:00:00Z"), str(number))
        clock.sleep(2 * HOURS)
    done(imported("ada", task_id="other"), "other")
    assert [name in names(emulator) for name in made] == [False, True, False, True, True]


def test_lists_that_are_young_or_of_others_stay(emulator: Emulator, clock: Clock) -> None:
    emulator.add_list("friends")
    for number in range(4):
        done(imported("ada", keep_lists=1), str(number))
    assert len(names(emulator)) == 5
    clock.sleep(2 * HOURS)
    emulator.faults.add("http_error_before", "lists/delete", count=None, status=500)
    done(imported("ada", keep_lists=1), "4")
    assert len(names(emulator)) == 6, "an error does not fail the task: its audience is complete"
    emulator.faults.clear()
    done(imported("ada", keep_lists=1), "5")
    assert len(names(emulator)) == 3


def test_a_long_name_is_cut(emulator: Emulator) -> None:
    result = done(imported("ada", list_name="ü" * 300))
    assert len(result["list_name"].encode()) <= 200
    done(created(result))
    assert mailed(emulator) == ["ada"]


def test_a_prefix_separates_deployments(emulator: Emulator, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    done(imported("ada", keep_lists=1))
    monkeypatch.setenv("AIRFLOW__MAIL__NAME_PREFIX", "test")
    clock.sleep(2 * HOURS)
    result = done(imported("ada", keep_lists=1), "second")
    assert result["list_name"].startswith("test:friends ")
    assert len(names(emulator)) == 2


def test_mapped_imports_are_one_audience(emulator: Emulator, new_dag: Callable[..., DAG], run_in_airflow: Run) -> None:
    with new_dag() as dag:

        @task
        def parts() -> list[list[dict[str, str]]]:
            return [[{"email": f"{name}@example.com"}] for name in ("ada", "bob")]

        load = MailImportContactsOperator.partial(task_id="load", list_name="friends", audience="exact").expand(
            contacts=parts()
        )
        created(load.output, task_id=TASK)
    assert run_in_airflow(dag).result.state == "success"
    assert mailed(emulator) == ["ada", "bob"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"list_name": None}, "list_name: needed"),
        ({"update_mode": "update_only"}, "update_mode: audience='exact' needs"),
        ({"suppress": "events"}, "suppress_conn_id: needed by suppress"),
        ({"keep_lists": 0}, "keep_lists: must be"),
        ({"audience": "some"}, "audience: 'some' is none of add, exact"),
    ],
)
def test_arguments_that_do_not_go_together(arguments: dict[str, Any], problem: str) -> None:
    assert problem in error_of(lambda: imported("ada", **arguments))


@pytest.mark.parametrize(
    ("audience", "problem"),
    [
        ({"send_list_names": []}, "audience: the import has no list"),
        ({"send_list_names": [], "dry_run": True}, "audience: the import was a dry run"),
        ("friends", "audience: the result of a task"),
        (["friends"], "audience: the whole result of a task"),
    ],
)
def test_what_is_no_audience(audience: Any, problem: str) -> None:
    assert problem in error_of(lambda: done(created(audience)))


def test_further_lists_are_added(emulator: Emulator) -> None:
    emulator.add_list("more", ["max@example.com", "eva@example.com"])
    emulator.add_list("staff", ["eva@example.com"])
    done(created(done(imported("ada")), send_list_names=["more"], repel_list_names="staff"))
    assert mailed(emulator) == ["ada", "max"]


def test_people_to_leave_out(emulator: Emulator, crm: SqlDatabase) -> None:
    crm.execute("CREATE TABLE mail_events (email TEXT, event_code TEXT, unique_msg_id TEXT, triggered_time TEXT)")
    crm.execute("INSERT INTO mail_events", EVENTS)
    crm.execute("CREATE TABLE staff (email TEXT)")
    crm.execute("INSERT INTO staff", [["eva@example.com"]])
    people, where = ("ada", "bob", "cem", "dora", "eva"), {"suppress_conn_id": crm.conn_id}
    for number, (arguments, expected) in enumerate(
        [
            ({"suppress": "events"}, ["cem", "dora", "eva"]),
            ({"suppress_table": "staff"}, ["ada", "bob", "cem", "dora"]),
            ({"suppress_sql": "SELECT email FROM staff"}, ["ada", "bob", "cem", "dora"]),
            ({"suppress": "events", "suppress_sql": "SELECT email FROM staff"}, ["cem", "dora"]),
        ]
    ):
        result = done(imported(*people, **where | arguments), str(number))
        assert [result["read"], result["suppressed"]] == [5, 5 - len(expected)]
        done(created(result, str(number)), str(number))
        assert mailed(emulator, str(number)) == expected


def test_rejected_rows_keep_their_numbers(emulator: Emulator, crm: SqlDatabase, tmp_path: Path) -> None:
    """Also when rows before them are left out."""
    crm.execute("CREATE TABLE staff (email TEXT)")
    crm.execute("INSERT INTO staff", [["ada@example.com"]])
    emulator.change_settings(refused_addresses=("eva@example.com",))
    rejects = tmp_path / "rejects.jsonl"
    done(imported("ada", "bob", "eva", suppress_table="staff", suppress_conn_id=crm.conn_id,
                 rejects_path=str(rejects), max_reject_fraction=1))  # fmt: skip
    assert '"row_number": 3' in rejects.read_text()


def test_too_many_rows(emulator: Emulator, new_dag: Callable[..., DAG], run: Run) -> None:
    dags = []
    for passes in (False, True):
        with new_dag(params={"pass_brakes": Param(passes, type="boolean")}) as dag:
            imported("ada", "bob", "eva", task_id=TASK, max_rows=2)
        dags.append(dag)
    failed = run(dags[0])
    assert failed.state == "failed"
    assert "max_rows: there are more than 2 rows. Nothing was sent" in failed.log
    assert emulator.journal.count("contacts/imports") == 0
    assert run(dags[1]).state == "success"


def test_a_limit_and_a_dry_run(emulator: Emulator) -> None:
    assert done(imported("ada", "bob", "eva", limit=2))["accepted"] == 2
    emulator.journal.clear()
    result = done(imported("ada", "bob", "!", dry_run=True, max_reject_fraction=1), "second")
    assert [result[name] for name in ("read", "rejected", "accepted", "send_list_names")] == [3, 0, 0, []]
    assert emulator.journal.counts() == {}


def test_the_main_job_in_the_sandbox(emulator: Emulator, connect: Connect) -> None:
    """The lists are not made, and the service checks the rest of the campaign."""
    connect(sandbox=True)
    result = done(imported("ada"))
    assert done(created(result))["sandbox"]
    assert [emulator.contacts(), emulator.lists(), emulator.campaigns()] == [[], [], []]
    with pytest.raises((MailError, AirflowFailException), match="not verified"):
        done(created(result, sender_mail="other@example.com"))
