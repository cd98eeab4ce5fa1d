"""The memory of who was mailed what, in every database that has a dialect."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.warehouse.dialects.base import Dialect
from tests.support.memory_parts import AudienceKey, Cap, Memory
from tests.warehouse.conftest import Warehouse

KEY = AudienceKey(["a secret"])
PEOPLE = [f"p{number}@example.com" for number in range(30)]
TASKS = 4


def memory_in(warehouse: Warehouse) -> Memory:
    return Memory(warehouse.another().hook, "memory", KEY)


def reserve(memory: Memory, wanted: list[tuple[str, str]], **options: Any) -> tuple[int, list[Any]]:
    ((number, mails),) = memory.reserve([wanted], **options)
    return number, mails


def verdicts(memory: Memory, *people: str, key: str = "k", task: str = "t", **options: Any) -> list[str]:
    return [verdict for verdict, _ in reserve(memory, [(person, key) for person in people], task=task, **options)[1]]


def test_what_becomes_of_a_mail(native: Warehouse) -> None:
    memory = memory_in(native)
    with pytest.raises(MailConfigError, match=r"does not exist.*Nothing was sent"):
        memory.check()
    memory.create()
    memory.create()
    memory.check()
    with memory.kept_open():
        number, reserved = reserve(memory, [("a", "k"), ("b", "k"), ("c", "k"), ("d", "k")], task="t")
        assert [verdict for verdict, _ in reserved] == ["new"] * 4
        changes = [
            (number, state, [mail])
            for state, (_, mail) in zip(["sent", "in doubt", "not sent"], reserved, strict=False)
        ]
        assert verdicts(memory, "e", key="other", changes=changes) == ["new"]
    assert verdicts(memory, "a", "b", "c", "d") == ["sent", "doubt", "new", "doubt"]
    assert verdicts(memory, "a", "b", "c", "d", "f", "f", task="u") == ["already"] * 4 + ["new", "already"]
    assert [row["state"] for row in memory.of("b")] == ["in doubt"]
    assert (memory.forget("B"), memory.forget("b")) == (1, 0)
    assert verdicts(memory, "b", key="x", cap=Cap(1, 100)) == ["new"]
    assert verdicts(memory, "b", "z", key="y", cap=Cap(1, 100)) == ["capped", "new"]
    with pytest.raises(MailConfigError, match="another secret"):
        Memory(native.hook, "memory", AudienceKey(["another"])).check()
    both = Memory(native.hook, "memory", AudienceKey(["another", "a secret"]))
    both.check()
    assert verdicts(both, "a", "new", task="u") == ["already", "new"]
    assert verdicts(both, "new", task="v") == ["already"]
    assert memory.delete_before(2**40) >= 6
    memory.check()


def test_of_several_tasks_at_once_one_mails_a_person(native: Warehouse) -> None:
    memories = [memory_in(native) for _ in range(TASKS)]
    memories[0].create()
    start = threading.Barrier(TASKS)

    def mail(number: int) -> list[tuple[str, str]]:
        start.wait(60)
        mailed = []
        for place in range(0, len(PEOPLE), 5):
            some = PEOPLE[place : place + 5]
            for key, cap in (("once", None), (f"by {number}", Cap(2, 1000))):
                found = verdicts(memories[number], *some, key=key, task=f"t{number}", cap=cap)
                mailed += [(key[:2], who) for who, verdict in zip(some, found, strict=True) if verdict == "new"]
        return mailed

    with ThreadPoolExecutor(TASKS) as pool:
        mailed = Counter(mail for mails in pool.map(mail, range(TASKS)) for mail in mails)
    assert mailed == {(key, who): 1 for key in ("on", "by") for who in PEOPLE}


def test_people_with_a_key_each_take_few_statements(native: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a task mapped by content."""
    memory = memory_in(native)
    memory.create()
    wanted = [(person, f"t/{number}") for number, person in enumerate(PEOPLE)]
    statements: list[str] = []
    perform = Dialect._execute

    def execute(self: Dialect, cursor: Any, statement: str, values: Any = ()) -> None:
        statements.append(statement.partition(" ")[0])
        perform(self, cursor, statement, values)

    monkeypatch.setattr(Dialect, "_execute", execute)
    number, reserved = reserve(memory, wanted, task="t")
    mails = [mail for _, mail in reserved]
    memory.write([(number, "sent", mails[:20]), (number, "not sent", None)])
    assert (Counter(statements)["INSERT"], Counter(statements)["UPDATE"]) == (3, 6)
    assert [verdict for verdict, _ in reserve(memory, wanted, task="t")[1]] == ["sent"] * 20 + ["new"] * 10
    assert [verdict for verdict, _ in reserve(memory, [(PEOPLE[0], "t/1")], task="t")[1]] == ["new"], (
        "not each with each"
    )


@pytest.mark.parametrize("name", ["memory", "memory_requests"])
def test_of_two_tables_one_is_lost_or_older(native: Warehouse, name: str) -> None:
    memory = memory_in(native)
    memory.create()
    numbers = {reserve(memory, [("a", "k")], task="t")[0]}
    backup = native.query(f"SELECT * FROM {name}")
    numbers.add(reserve(memory, [("b", "k")], task="t")[0])
    newest = native.query(f"SELECT * FROM {name}")

    def restore(rows: list[tuple[Any, ...]]) -> None:
        native.execute(f"DELETE FROM {name}")
        for row in rows:
            native.execute(f"INSERT INTO {name} VALUES {tuple(row)}")

    for rows, words in (([], "lacks its first row"), (backup, "is older than when a task last wrote it")):
        restore(rows)
        with pytest.raises(MailConfigError, match=words):
            memory.check()
    restore(newest)
    memory.check()
    restore(backup)
    memory.create()
    memory.check()
    assert verdicts(memory, "a", task="u") == ["already"]
    assert reserve(memory, [("c", "k")], task="t")[0] not in numbers, "a number is used once"
    native.execute(f"DROP TABLE {name}")
    with pytest.raises(MailConfigError, match="does not exist"):
        memory.check()


def test_people_of_a_request_that_was_not_begun_are_free(native: Warehouse) -> None:
    """A mailing to one of them takes the request away."""
    memory = memory_in(native)
    memory.create()
    groups = [[(f"p{number}", "k") for number in range(place, place + 2)] for place in (0, 2, 4)]
    begun, second, third = (number for number, _ in memory.reserve(groups, task="t"))
    assert [len(memory.of(f"p{number}")) for number in (0, 2, 4)] == [1, 0, 0]
    assert verdicts(memory, "p0", "p2", "p5", key="x", cap=Cap(1, 100), task="u") == ["capped", "new", "new"]
    assert verdicts(memory, "p3", "p1", task="u") == ["new", "already"]
    assert not memory.begin([second, third], [(begun, "sent", None)])
    assert [verdicts(memory, f"p{number}", cap=Cap(1, 100))[0] for number in (1, 2, 3, 4, 5)] == [
        "sent", "capped", "already", "new", "capped",
    ]  # fmt: skip
