"""The memory of who was mailed what: `once_per` and `at_most`."""

from __future__ import annotations

import datetime
import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.operators.transactional import MailSendOperator
from mail_emulator import Emulator
from tests.support.memory_parts import Cap, Memory, new_memory
from tests.support.tries import Tries
from tests.tasks.conftest import Done, Run, SqlDatabase
from tests.tasks.sending import HELLO, SENDS, address, batch, bodies, everybody, letters, mailed, proxy
from tests.tasks.test_example_dags import example

WEEK = datetime.timedelta(days=7)


@pytest.fixture
def memory(make_database: Callable[[str, str], SqlDatabase], monkeypatch: pytest.MonkeyPatch) -> Memory:
    """The configured memory, empty."""
    make_database("sqlite", "memory")
    return new_memory("memory", monkeypatch)


def sent(run_id: str = "one", **arguments: Any) -> Any:
    """What a run of a task returns that sends to the first five people by default."""
    tries = Tries(has_store=False)
    tries.run_id = run_id
    return tries.run(batch(**{"messages": letters(5)} | arguments))


def counts(result: dict[str, Any], *names: str) -> list[int]:
    return [result[name] for name in names or ("recipients", "already", "capped")]


def test_nobody_gets_a_key_twice_whatever_task_or_run_sends_it(emulator: Emulator, memory: Memory) -> None:
    assert counts(sent(once_per="welcome-1")) == [5, 0, 0]
    assert counts(sent("two", once_per="welcome-1", messages=letters(4, start=3))) == [2, 2, 0]
    upper = [{"to": "USER1@Example.com", "params": {"name": "A"}}, *letters(1, start=9)]
    assert counts(sent("three", once_per="welcome-1", messages=upper)) == [1, 1, 0]
    assert mailed(emulator) == everybody(range(7), range(9, 10))
    assert counts(sent("three", once_per="welcome-2")) == [5, 0, 0]
    ((key, state),) = {(row["mail_key"], row["state"]) for row in memory.of("user6@example.com")}
    assert (key, state) == ("welcome-1", "sent")


def test_an_empty_key_is_none_that_was_forgotten() -> None:
    with pytest.raises(ValueError, match="once_per: is empty"):
        batch(messages=letters(1), once_per="")


def test_without_a_key_a_run_mails_once_also_when_its_messages_change(emulator: Emulator, memory: Memory) -> None:
    emulator.faults.add("code_before", SENDS, skip=1, code=403)
    tries = Tries(has_store=False)
    with pytest.raises(Exception, match="403"):
        tries.run(batch(messages=letters(25)))
    # Other people, in another order, of the same run.
    result = tries.run(batch(messages=letters(30)[::-1]))
    assert mailed(emulator) == everybody(range(30))
    assert counts(result) == [30, 0, 0]
    assert counts(tries.run(batch(messages=letters(30)))) == [30, 0, 0]
    assert mailed(emulator) == everybody(range(30))
    assert counts(sent("two", messages=letters(30))) == [30, 0, 0]


@pytest.mark.parametrize("choice", ["fail", "skip"])
def test_of_a_halved_request_each_part_is_recorded(emulator: Emulator, memory: Memory, choice: str) -> None:
    """The response to the second of three parts is lost."""
    emulator.faults.add("close_after", SENDS, skip=3, count=1)
    tries = Tries(has_store=False)
    arguments: dict[str, Any] = {"messages": letters(5), "on_ambiguous": choice}
    with proxy(emulator, 413, most=2):
        if choice == "fail":
            with pytest.raises(Exception, match="may have been sent"):
                tries.run(batch(**arguments))
            arguments["on_ambiguous"] = "skip"
        assert tries.run(batch(**arguments))["unknown_recipients"] == 2
    assert mailed(emulator) == everybody(range(5))
    assert [memory.of(address(number))[0]["state"] for number in (0, 2, 4)] == ["sent", "in doubt", "sent"]


def test_a_cap_counts_every_mail_in_any_window(emulator: Emulator, memory: Memory) -> None:
    sent("one", messages=letters(2))
    assert counts(sent("two", at_most=(2, WEEK))) == [5, 0, 0]
    single = MailSendOperator(task_id="single", **HELLO | {"content": "x"}, to=address(0), at_most=(2, WEEK))
    assert counts(Tries(has_store=False).run(single)) == [0, 0, 1]
    assert counts(sent("three", at_most=(2, WEEK))) == [3, 0, 2]
    assert counts(sent("three", at_most=(9, WEEK))) == [5, 0, 0]
    # Scheduled mails count at the time at which they go out.
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=30)
    assert counts(sent("four", at_most=(1, WEEK), send_date=later)) == [5, 0, 0]
    assert counts(sent("five", at_most=(1, WEEK), send_date=later - datetime.timedelta(days=6))) == [0, 0, 5]
    assert counts(sent("six", at_most=(1, WEEK), send_date=later - datetime.timedelta(days=8))) == [5, 0, 0]


def test_any_window() -> None:
    cap = Cap(2, 10)
    assert cap.allows([0, 9, 20], 5) is False
    assert cap.allows([0, 10], 20) is True
    assert cap.allows([0, 9], 10) is True
    assert cap.allows([1, 9], 10) is False
    assert cap.allows([5, 14], 10) is False
    assert cap.allows([5, 15], 10) is True
    assert cap.allows([], 0) is True


@pytest.mark.parametrize("choice", ["fail", "resend", "skip"])
def test_what_is_in_doubt_counts_as_sent(emulator: Emulator, memory: Memory, choice: str) -> None:
    emulator.faults.add("close_after", SENDS, skip=1)
    tries = Tries(has_store=False)
    arguments = {"messages": letters(25), "once_per": "welcome"}
    with pytest.raises(Exception, match="may have been sent"):
        tries.run(batch(**arguments))
    assert counts(sent("two", **arguments)) == [5, 20, 0]
    assert memory.of(address(10))[0]["state"] == "in doubt"
    if choice == "fail":
        with pytest.raises(Exception, match="10 recipients may have been sent this mail by an earlier try"):
            tries.run(batch(**arguments))
        assert mailed(emulator) == everybody(range(25))
        return
    result = tries.run(batch(**arguments, on_ambiguous=choice))
    assert counts(result, "recipients", "unknown_recipients", "already") == (
        [10, 10, 5] if choice == "skip" else [20, 0, 5]
    )
    assert mailed(emulator)[address(10)] == (1 if choice == "skip" else 2)


def test_a_mapped_list_that_moves(emulator: Emulator, memory: Memory) -> None:
    """The same person and content is the same mail, at whichever place of the list."""

    def send(lists: list[list[dict[str, Any]]]) -> None:
        for index, messages in enumerate(lists):
            Tries(has_store=False, map_index=index).run(batch(messages=messages, on_empty="continue"))

    send([letters(3), letters(3, start=3)])
    send([letters(1, start=8), letters(3), letters(3, start=3)])
    assert mailed(emulator) == everybody(range(6), range(8, 9))
    other = [{**message, "content": "<p>Other</p>"} for message in letters(3)]
    send([letters(3), other])
    assert mailed(emulator)[address(0)] == 2


def test_copies_and_people_of_one_message(emulator: Emulator, memory: Memory) -> None:
    both = {"to": [address(0), address(1)], "cc": address(7), "params": {"name": "a"}}
    sent("one", once_per="a", messages=letters(1))
    assert counts(sent("two", once_per="a", messages=[both])) == [2, 1, 0]
    (version,) = bodies(emulator)[-1]["messageVersions"]
    assert version["to"] == [{"email": address(1)}]
    assert mailed(emulator) == Counter({address(0): 1, address(1): 1, address(7): 1})


def test_a_duplicate_is_mailed_twice_if_it_is_allowed_unless_there_is_a_key(emulator: Emulator, memory: Memory) -> None:
    twice = [*letters(1), {"to": address(0), "params": {"name": "another order"}}]
    assert counts(sent("one", messages=twice, on_duplicate_recipient="allow")) == [2, 0, 0]
    assert counts(sent("one", messages=twice, on_duplicate_recipient="allow")) == [2, 0, 0]
    assert mailed(emulator) == {address(0): 2}
    assert counts(sent("two", messages=twice, on_duplicate_recipient="allow", once_per="a")) == [1, 1, 0]


def at_once(*runs: Callable[[], Any]) -> list[Any]:
    """What each returns, run in threads of their own."""
    with ThreadPoolExecutor(len(runs)) as threads:
        return [future.result() for future in [threads.submit(one) for one in runs]]


def test_dags_that_send_at_once(emulator: Emulator, memory: Memory) -> None:
    """Of a person whom several mail at once, one does."""
    arguments = {"once_per": "a", "messages": letters(60), "max_in_flight": 2}
    results = at_once(*(partial(sent, str(number), **arguments) for number in range(3)))
    assert sum(result["recipients"] for result in results) == 60
    assert sum(result["already"] for result in results) == 120
    assert mailed(emulator) == everybody(range(60))
    results = at_once(*(partial(sent, str(number), at_most=(3, WEEK)) for number in range(10, 15)))
    assert sum(result["capped"] for result in results) == 3 * 5
    assert mailed(emulator)[address(0)] == 3


def test_an_older_backup_mails_nobody_until_it_is_accepted(
    emulator: Emulator, memory: Memory, tmp_path: Path, run_in_airflow: Run
) -> None:
    def send() -> Done:
        return run_in_airflow(lambda: batch(once_per="welcome", messages=letters(2)))

    database, backup = tmp_path / "memory.db", tmp_path / "backup.db"
    shutil.copy(database, backup)
    assert send().state == "success"
    assert send().state == "success"  # the table as the last task left it
    shutil.copy(backup, database)
    failed = send()
    assert (failed.state, "is older than when a task last wrote it" in failed.log) == ("failed", True)
    assert mailed(emulator) == everybody(range(2))
    memory.accept()
    assert send().state == "success"
    assert mailed(emulator) == everybody(range(2), range(2))


def test_what_is_missing_is_an_error_before_anything_is_sent(
    emulator: Emulator, memory: Memory, make_database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", "another")
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "")
    with pytest.raises(Exception, match="hidden by another secret"):
        sent()
    make_database("sqlite", "memory").execute("DELETE FROM mail_memory")
    with pytest.raises(Exception, match="lacks its first row"):
        sent()
    make_database("sqlite", "memory").execute("DROP TABLE mail_memory")
    with pytest.raises(Exception, match=r"does not exist.*airflow mail memory create.*Nothing was sent"):
        sent(once_per="a")
    monkeypatch.delenv("AIRFLOW__MAIL__MEMORY_CONN_ID")
    with pytest.raises(Exception, match="at_most: there is no memory"):
        sent(at_most=(1, WEEK))
    with pytest.raises(ValueError, match=r"at_most: a number of mails and a timedelta are needed"):
        sent(at_most=(0, WEEK))
    assert bodies(emulator) == []


def test_a_sandbox_is_not_remembered(emulator: Emulator, memory: Memory) -> None:
    sent(once_per="a", sandbox_mode=True)
    assert memory.of(address(0)) == []
    assert counts(sent(once_per="a")) == [5, 0, 0]


def test_a_person_is_forgotten_and_old_mails_are_deleted(emulator: Emulator, memory: Memory) -> None:
    sent(once_per="a")
    assert memory.forget("User1@example.com") == 1
    assert counts(sent("two", once_per="a")) == [1, 4, 0]
    assert memory.delete_before(0) == 0
    assert memory.delete_before(2**40) == 5
    memory.check()


def test_the_example(
    run: Any, emulator: Emulator, make_database: Any, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator.add_sender("shop@example.com")
    shop = make_database("sqlite", "shop")
    shop.execute("CREATE TABLE customers (email TEXT, full_name TEXT, signed_up_on TEXT)")
    today = datetime.datetime.now(datetime.UTC).date()
    days = [0, 5, 20, 1]
    rows = [(address(number), "N", str(today - datetime.timedelta(days=day))) for number, day in enumerate(days)]
    shop.execute("INSERT INTO customers", rows)
    for _ in range(2):
        done = run(example("mail_welcome"), logical_date=datetime.datetime.now(datetime.UTC))
        assert done.result.state == "success", done.log
    assert mailed(emulator) == {address(0): 1, address(1): 2, address(2): 3, address(3): 1}
    assert done.result.xcom("welcome_1")["already"] == 4
