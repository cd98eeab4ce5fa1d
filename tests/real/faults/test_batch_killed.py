"""A batch with eight requests in flight whose process is killed with SIGKILL at any request, and is tried again.

The record, or the memory, tells apart what was accepted, what is in doubt, and what was never begun. With
MAIL_ALL_FAULTS=1 it is killed at each request, and a hundred times with a memory.
"""

from __future__ import annotations

import asyncio
import datetime
import itertools
import json
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from airflow_provider_mail.operators.transactional import TASK_STATE_KEY
from airflow_provider_mail.version_compat import AirflowFailException
from mail_emulator import Emulator
from tests.machines.conftest import _mail_default, _quiet  # noqa: F401 - fixtures
from tests.real.faults.test_staged_killed import FileValues
from tests.support.changes import around_requests
from tests.support.killer import started
from tests.support.memory_parts import new_memory
from tests.support.sampling import ALL_FAULTS
from tests.support.tries import Tries
from tests.tasks.sending import SENDS, address, batch, everybody, letters, mailed, remembers

PEOPLE, IN_FLIGHT = 40, 8
HISTORIES = 20 if ALL_FAULTS else 2
KILLED_AT = range(1, PEOPLE + 1) if ALL_FAULTS else (1, 5, 13, 29, 40)


def one_each(choice: str) -> Any:
    return batch(messages=letters(PEOPLE), versions_per_request=1, max_in_flight=IN_FLIGHT, on_ambiguous=choice)


def run_and_kill(tries: Tries, emulator: Emulator, number: int, task: Any = None) -> None:
    """Run a try in a process of its own, which is killed when the service has performed so many requests."""
    task = task or one_each("fail")
    numbers = itertools.count(1)
    read, write = os.pipe()

    def work() -> None:
        os.close(write)
        os.read(read, 1)  # until the service is ready to kill it
        tries.run(task)

    child = started(work)

    def around(perform: Any) -> Any:
        response = perform()
        if next(numbers) == number:
            os.kill(child, signal.SIGKILL)
        return response

    with around_requests(emulator, SENDS, around):
        os.close(write)
        _, status = os.waitpid(child, 0)
        os.close(read)
        wait_until_closed(emulator)
    assert os.WIFSIGNALED(status)


def wait_until_closed(emulator: Emulator) -> None:
    """Wait until the service has read all that the process had written, and has closed its connections."""

    async def wait() -> None:
        await asyncio.gather(*(task for task in emulator._server._tasks if "_Connection" in repr(task.get_coro())))

    httpx.get(f"{emulator.base_url}/_emulator/")  # it is accepted after all connections of the process
    assert emulator._loop is not None
    asyncio.run_coroutine_threadsafe(wait(), emulator._loop).result()


@remembers
@pytest.mark.parametrize("number", KILLED_AT)
@pytest.mark.parametrize("choice", ["skip", "resend"])
def test_requests_in_flight_are_told_apart(choice: str, number: int, emulator: Emulator, tmp_path: Path) -> None:
    emulator.reset()
    emulator.add_sender("news@example.com")
    emulator.change_settings(duplicate_unique_msg_id_code=400 if choice == "resend" else None)
    tries = Tries()
    tries.store.values = FileValues(tmp_path / "state.json")
    run_and_kill(tries, emulator, number)

    record = tries.store.record(TASK_STATE_KEY)
    doubts = {int(index) for index in record["under_way"]}
    first = record["requests"] - len(record["ahead"])
    done = {*range(first), *map(int, record["ahead"])}
    assert 1 <= len(doubts) <= IN_FLIGHT
    assert everybody(done) <= mailed(emulator) <= everybody(done | doubts), "what is accepted or in doubt is recorded"

    sent = emulator.journal.count(SENDS)
    with pytest.raises(AirflowFailException, match="may have been sent") as raised:
        tries.run(one_each("fail"))
    assert all(f"-{index})" in str(raised.value) for index in doubts)
    assert emulator.journal.count(SENDS) == sent

    result = tries.run(one_each(choice))
    unknown = len(doubts) if choice == "skip" else 0
    assert (result["recipients"], result["unknown_recipients"]) == (PEOPLE - unknown, unknown)
    left_out = Counter(address(index) for index in range(PEOPLE)) - mailed(emulator)
    assert mailed(emulator) + left_out == everybody(range(PEOPLE)), "nobody is mailed twice"
    assert left_out.keys() <= ({address(index) for index in doubts} if choice == "skip" else set())


@pytest.mark.parametrize("history", range(HISTORIES))
def test_a_memory_tells_apart_who_was_mailed(
    history: int, emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five tasks of several DAGs with one key, each killed at a request: nobody is mailed twice, on any Airflow."""
    monkeypatch.setenv("AIRFLOW_CONN_MEMORY", json.dumps({"conn_type": "sqlite", "host": str(tmp_path / "memory.db")}))
    memory = new_memory("memory", monkeypatch)
    emulator.reset()
    emulator.add_sender("news@example.com")
    choose = random.Random(history)
    for number in range(5):
        people = choose.sample(letters(PEOPLE), PEOPLE)
        tries = Tries(has_store=False)
        tries.run_id = f"run {number}"
        free = PEOPLE - sum(bool(memory.of(address(place))) for place in range(PEOPLE))
        task = batch(
            messages=people, versions_per_request=1, max_in_flight=choose.choice([1, 3]), once_per="a",
            at_most=(1, datetime.timedelta(days=7)),
        )  # fmt: skip
        run_and_kill(tries, emulator, choose.randint(1, max(1, free // 2)), task)
        assert set(mailed(emulator)) <= {address(place) for place in range(PEOPLE) if memory.of(address(place))}
    last = Tries(has_store=False)
    result = last.run(batch(messages=letters(PEOPLE), once_per="a"))
    assert result["recipients"] + result["already"] == PEOPLE
    assert max(mailed(emulator).values()) == 1
    left_out = PEOPLE - len(mailed(emulator))
    doubtful = sum(row["state"] != "sent" for place in range(PEOPLE) for row in memory.of(address(place)))
    assert left_out <= doubtful <= 5 * 3, "only who was under way when a process was killed may be left out"
