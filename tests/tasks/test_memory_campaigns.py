"""The memory and campaigns: imports that leave out people, and campaigns that count by the people of their audience."""

# ruff: noqa: F811 - a fixture of another module
from __future__ import annotations

import datetime
from typing import Any

import pytest

from airflow_provider_mail.version_compat import AirflowFailException
from mail_emulator import Emulator
from tests.support.clock import Clock
from tests.support.memory_parts import Memory
from tests.tasks.conftest import Run
from tests.tasks.test_audience import created, done, imported, mailed
from tests.tasks.test_example_dags import example
from tests.tasks.test_memory import WEEK, counts, memory, sent  # noqa: F401 - a fixture

DAY = datetime.timedelta(days=1)


def states(memory: Memory, name: str) -> list[tuple[str, str]]:
    return [(row["mail_key"], row["state"]) for row in memory.of(f"{name}@example.com")]


def transactional(run_id: str, *people: str, **arguments: Any) -> Any:
    messages = [{"to": f"{person}@example.com", "params": {"name": "A"}} for person in people]
    return counts(sent(run_id, messages=messages, **arguments))


def test_who_had_the_key_is_in_no_further_audience(emulator: Emulator, memory: Memory) -> None:
    first = done(imported("ada", "bob", once_per="summer"), "one")
    assert (first["already"], first["capped"], first["suppressed"], first["accepted"]) == (0, 0, 0, 2)
    assert states(memory, "ada") == [("summer", "intended")]
    second = done(imported("Bob", "cyd", "bob", "ada", once_per="summer"), "two")
    assert (second["already"], second["suppressed"], second["accepted"]) == (2, 2, 1)
    for number, audience in enumerate((first, second)):
        done(created(audience, f"mail {number}"), str(number))
    assert (mailed(emulator, "mail 0"), mailed(emulator, "mail 1")) == (["ada", "bob"], ["cyd"])
    assert [states(memory, name) for name in ("ada", "cyd")] == [[("summer", "sent")]] * 2
    assert transactional("three", "ada", "dan", once_per="summer") == [1, 1, 0]


def test_an_import_that_is_cleared_has_the_same_people(emulator: Emulator, memory: Memory) -> None:
    for _ in range(2):
        audience = done(imported("ada", "bob", once_per="summer"), "one")
        assert (audience["accepted"], audience["already"]) == (2, 0)
    for index in range(2):
        again = done(imported("ada", once_per="autumn"), "one", map_index=index)
        assert (again["accepted"], again["already"]) == (1, 0)


def test_campaigns_count_for_the_cap(emulator: Emulator, memory: Memory) -> None:
    for number in range(2):
        done(created(done(imported("ada", at_most=(2, WEEK)), f"i{number}"), f"mail {number}"), f"c{number}")
    capped = done(imported("ada", "bob", at_most=(2, WEEK)), "three")
    assert (capped["capped"], capped["already"], capped["accepted"]) == (1, 0, 1)
    assert transactional("four", "ada", "bob", at_most=(2, WEEK)) == [1, 0, 1]
    assert transactional("five", "ada", "bob", at_most=(2, WEEK)) == [0, 0, 2]
    nobody = done(imported("ada", at_most=(2, WEEK)), "six")
    assert (nobody["accepted"], nobody["capped"]) == (0, 1)


def test_a_scheduled_campaign_counts_when_it_is_sent(emulator: Emulator, memory: Memory, clock: Clock) -> None:
    later = datetime.datetime.now(datetime.UTC) + 30 * DAY
    audience = done(imported("ada", at_most=(1, WEEK)))
    done(created(audience, send_date=later))
    assert transactional("now", "ada", at_most=(1, WEEK)) == [1, 0, 0]
    assert transactional("then", "ada", at_most=(1, WEEK), send_date=later + DAY) == [0, 0, 1]
    ((_, state), _) = states(memory, "ada")
    assert state == "sent"


def test_a_send_date_beside_other_mails_is_refused(emulator: Emulator, memory: Memory, clock: Clock) -> None:
    """The import decides by its own time; a cap of people who have no mail around the send date is kept."""
    later = datetime.datetime.now(datetime.UTC) + 30 * DAY
    assert transactional("then", "ada", at_most=(1, WEEK), send_date=later) == [1, 0, 0]
    audience = done(imported("ada", "bob", at_most=(1, WEEK)))
    assert audience["accepted"] == 2
    refused = created(audience, send_date=later + DAY)
    with pytest.raises(AirflowFailException, match="send_date: 1 people of the audience"):
        done(refused)
    assert mailed(emulator, "mail") == []
    done(created(audience, send_date=later + 8 * DAY))
    assert transactional("beside", "ada", "bob", at_most=(1, WEEK), send_date=later + 9 * DAY) == [0, 0, 2]


def test_what_was_reserved_for_a_campaign_that_never_went_out_is_released(
    emulator: Emulator,
    memory: Memory,
) -> None:
    emulator.faults.add("code_before", "campaign/mail/sends", code=403)
    audience = done(imported("ada", once_per="summer"))
    with pytest.raises(AirflowFailException):
        done(created(audience))
    assert states(memory, "ada") == [("summer", "intended")]
    assert done(imported("ada", once_per="summer"), "two")["already"] == 1
    assert memory.release(audience["memory_tasks"][0]) == 1
    assert done(imported("ada", once_per="summer"), "two")["already"] == 0


def test_drafts_and_sandboxes_are_not_counted(emulator: Emulator, memory: Memory) -> None:
    for arguments in ({"sandbox_mode": True}, {"dry_run": True}):
        assert "memory_tasks" not in done(imported("ada", once_per="summer", **arguments), "one")
    assert states(memory, "ada") == []
    audience = done(imported("ada", once_per="summer"), "two")
    done(created(audience, "draft", only_save=True))
    assert states(memory, "ada") == [("summer", "intended")]


def test_arguments_that_do_not_go_together(
    emulator: Emulator,
    memory: Memory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ValueError, match="suppress: once_per needs exact_audience=True"):
        imported("ada", once_per="a", exact_audience=False)
    with pytest.raises(ValueError, match="suppress: at_most: not with changes_only"):
        imported("ada", at_most=(1, WEEK), changes_only={"sql_conn_id": "state"})
    audience = done(imported("ada", once_per="a"))
    monkeypatch.delenv("AIRFLOW__MAIL__MEMORY_CONN_ID")
    with pytest.raises(AirflowFailException, match="the import of the audience had a memory"):
        done(created(audience))
    with pytest.raises(AirflowFailException, match="once_per: there is no memory"):
        done(imported("ada", once_per="a"))
    assert emulator.campaigns() == []


def test_the_example(run: Run, emulator: Emulator, make_database: Any, memory: Memory) -> None:
    emulator.add_sender("shop@example.com")
    shop = make_database("sqlite", "shop")
    shop.execute("CREATE TABLE customers (email TEXT, full_name TEXT)")
    shop.execute("INSERT INTO customers", [("ada@example.com", "Ada")])
    names = []
    for person in ("bob", "cyd"):
        shop.execute("INSERT INTO customers", [(f"{person}@example.com", "N")])
        done = run(example("mail_sale"))
        assert done.result.state == "success", done.log
        names.append(done.result.xcom("send")["mail_name"])
    assert [mailed(emulator, name) for name in names] == [["ada", "bob"], ["cyd"]]
    assert done.result.xcom("people")["already"] == 2
