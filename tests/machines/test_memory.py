"""Histories of mailings with a memory: nobody has a key twice, nobody more mails in a window than allowed, and nobody
is left out who was free.

Runs of several DAGs, cleared, backfilled, mapped over lists that move, one within another, with responses that are lost
and processes that end at any step; campaigns to audiences between them; caps and keys that are changed; a table that is
lost, or restored from a backup. With MAIL_ALL_CASES=1 there are more of them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.arguments import Suppress
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.version_compat import AirflowException
from mail_emulator import Emulator
from tests.machines import REJECTED_KEY, UNCLEAR
from tests.support.memory_parts import Cap, Memory, new_memory
from tests.support.sampling import examples
from tests.support.tries import Killed, Tries
from tests.tasks.sending import SENDS, batch
from tests.warehouse.conftest import (  # noqa: F401 - fixtures
    DIALECTS,
    Warehouse,
    make_warehouse,
    warehouse_database,
    warehouse_maria,
)

IN_ONE, DAY = 2, 86_400
CAP, OTHER_CAP = (2, timedelta(days=7)), (1, timedelta(days=3))
PEOPLE = [f"p{number}@example.com" for number in range(4)]
FIRST = int(time.time()) // DAY * DAY + 100 * DAY
"""A day in the future, so that mails go out when they are scheduled."""

Row = tuple[int, str, str]

runs = st.fixed_dictionaries(
    {
        "run_id": st.sampled_from(["r1", "r2"]),
        # A task is mapped, or it is not.
        "place": st.sampled_from([("a", -1), ("b", -1), ("c", 0), ("c", 1)]),
        "once_per": st.sampled_from([None, None, None, "k1"]),
        "people": st.permutations(PEOPLE).flatmap(lambda people: st.sampled_from([people, people[:1], people[:3]])),
        "day": st.sampled_from([0, 1, 6, 7, 8, 14, None, None]),
        "choice": st.sampled_from(["fail", "fail", "resend", "skip"]),
        "in_flight": st.sampled_from([1, 1, 3]),
        "cap": st.integers(0, 2),
    }
)
caps = st.sampled_from([[None], [CAP], [CAP], [CAP, OTHER_CAP, None], [CAP, None]])
"""Those of a history: that of each run is one of them, so that it may be changed or removed."""
losses = st.sampled_from(["dropped", "emptied", "restored", "restored"])
ends = st.none() | st.tuples(st.sampled_from(["before", "after"]), st.integers(0, 9))
faults = st.none() | st.tuples(st.sampled_from([*UNCLEAR, REJECTED_KEY]), st.integers(0, 2), st.sampled_from([1, 2]))
campaigns = st.fixed_dictionaries(
    {
        "task": st.sampled_from(["i", "j"]),
        "run_id": st.sampled_from(["r1", "r2"]),
        "once_per": st.sampled_from([None, None, "k1"]),
        "people": st.permutations(PEOPLE).flatmap(lambda people: st.sampled_from([people, people[:1], people[:3]])),
        "end": st.none() | st.sampled_from(["before", "after"]),
        "cap": st.integers(0, 2),
    }
)
events = st.tuples(runs, ends, faults, st.none() | st.tuples(st.integers(0, 2), runs))
lost = st.tuples(losses, st.integers(0, 7), st.booleans(), runs, st.just("lost"))
EVENT = 4
TABLES = {
    "mail_memory": ("person", "mail_key", "request"),
    "mail_memory_requests": ("request", "task", "mailed_at", "state"),
}
Backup = dict[str, list[tuple[Any, ...]]]


class Process:
    """One try: it may end before or after any step, and another may run while its request is under way."""

    def __init__(self, end: tuple[str, int] | None, within: tuple[int, Callable[[], object]] | None = None) -> None:
        self.end, self.within, self.dead = end, within, False
        self.steps, self.requests = count(), count()

    def step(self, action: Callable[[], Any]) -> Any:
        number = next(self.steps)
        for at in ("before", "after"):
            self.dead = self.dead or self.end == (at, number)
            if self.dead:
                raise Killed
            if at == "before":
                result = action()
        return result


class History:
    """What happened, beside the rows of the memory."""

    def __init__(self, emulator: Emulator, memory: Memory, warehouse: Warehouse, caps: list[Any]) -> None:
        self.emulator, self.memory, self.warehouse, self.caps = emulator, memory, warehouse, caps
        self.tries: dict[Any, Tries] = {}
        self.allowed: Counter[tuple[str, str]] = Counter()
        self.processes: list[Process] = []
        self.campaigns: dict[str, str] = {}
        """The keys of campaigns, by name."""
        self.forgotten: Counter[tuple[str, str]] = Counter()
        """The mails that are no longer in the table, since a user has accepted one that lacks them."""
        self.backups: list[Backup] = [self._backup()]

    def happen(self, run: dict[str, Any], end: Any, fault: Any, within: Any) -> None:
        self.emulator.faults.clear()
        if fault:
            (kind, params), skip, times = fault
            self.emulator.faults.add(kind, SENDS, skip=skip, count=times, **params)
        if end or fault or within:
            before, seen = self.rows(), len(self.mails())
            other = within and (within[0], lambda: self.attempt(within[1], Process(None)))
            if within:
                run = run | {"in_flight": 1}
            self.attempt(run, Process(end, other))
            new = self.rows().keys() - before.keys()
            # Another process of the same task, which an edited DAG gave another cap, may have reserved them.
            capped = not within or self._owner(within[1]) != self._owner(run) or self._cap(within[1]) == self._cap(run)
            for person, key in new:
                moment, _, task = self.rows()[person, key]
                if capped and task == self._owner(run):
                    assert fits(times_of(before, person), moment, self._cap(run)), "nobody more than allowed"
            reserved = new - set(self.mails()[seen:])
            processes = 2 if within else 1
            if fault and fault[0] == REJECTED_KEY and not (end or within):
                assert not reserved, "who was certainly not mailed is free"
            assert len(reserved) <= IN_ONE * 3 * processes, "of people who were not mailed only those under way count"
        else:
            self._expect(run)
        self.check()

    def attempt(self, run: dict[str, Any], process: Process) -> dict[str, Any] | None:
        """Run a try; return its result, ``None`` if it failed."""
        identity = run["place"], run["run_id"]
        if identity not in self.tries:
            self.tries[identity] = Tries(has_store=False, map_index=run["place"][1])
        tries = self.tries[identity]
        tries.run_id = run["run_id"]
        if run["choice"] == "resend":
            owner = self._owner(run)
            mine = {key for key, (_, state, task) in self.rows().items() if task == owner and state != "sent"}
            self.allowed.update(mine)
        task = batch(
            task_id=run["place"][0],
            subject=self._key(run),
            content="<p>{{name}}</p>",
            messages=[{"to": person, "params": {"name": person}} for person in run["people"]],
            versions_per_request=IN_ONE,
            send_date=None if run["day"] is None else datetime.fromtimestamp(moment_of(run), UTC),
            once_per=run["once_per"],
            at_most=self._cap(run),
            max_in_flight=run["in_flight"],
            on_ambiguous=run["choice"],
        )
        self.processes.append(process)
        try:
            return tries.run(task)  # type: ignore[no-any-return]
        except (MailError, AirflowException, Killed):
            return None
        finally:
            self.processes.pop()

    def _expect(self, run: dict[str, Any]) -> None:
        """Run a try to which nothing happens; compare it with what the rows before it allow."""
        rows, seen, owner, key = self.rows(), len(self.mails()), self._owner(run), self._key(run)
        moment = moment_of(run)
        expected: Counter[str] = Counter()
        mailed = []
        for person in run["people"]:
            known = rows.get((person, key))
            if known is None:
                free = fits(times_of(rows, person), moment, self._cap(run))
                outcome = "recipients" if free else "capped"
            elif known[2] != owner:
                outcome = "already"
            elif known[1] == "sent":
                outcome = "earlier"
            else:
                outcome = {"fail": "fails", "resend": "recipients", "skip": "unknown_recipients"}[run["choice"]]
            expected[outcome] += 1
            if outcome == "recipients":
                mailed.append((person, key))
        result = self.attempt(run, Process(None))
        if expected["fails"]:
            assert result is None
            return
        assert result is not None
        names = ("recipients", "already", "capped", "unknown_recipients")
        expected["recipients"] += expected["earlier"]
        assert {name: result[name] for name in names} == {name: expected[name] for name in names}
        assert Counter(self.mails()[seen:]) == Counter(mailed)
        assert {self.rows()[mail][1] for mail in mailed} <= {"sent"}

    def campaign(self, run: dict[str, Any]) -> None:
        """Import an audience, in a process that may end when the memory has decided, and send it a campaign."""
        rows, owner = self.rows(), f"dag/{run['task']}/{run['run_id']}"
        key = run["once_per"] or owner
        outcomes: dict[str, str] = {}
        for person in run["people"]:
            known = rows.get((person, key))
            if known is not None:
                outcomes[person] = "kept" if known[2] == owner else "already"
            else:
                outcomes[person] = (
                    "kept" if fits(times_of(rows, person), int(time.time()), self._cap(run)) else "capped"
                )
        task = MailImportContactsOperator(
            task_id=run["task"],
            contacts=[{"email": person, "name": "N"} for person in run["people"]],
            list_name=f"people of {run['task']}",
            exact_audience=True,
            suppress=Suppress(once_per=run["once_per"], at_most=self._cap(run) or (99, timedelta(days=7))),
        )
        result = self._run(task, run["run_id"], Process(run["end"] and (run["end"], 0)))
        if run["end"]:
            assert result is None
        else:
            assert result is not None
            counts = Counter(outcomes.values())
            assert [result[name] for name in ("accepted", "already", "capped")] == [
                counts[name] for name in ("kept", "already", "capped")
            ]
            name = f"{run['task']} {run['run_id']}"
            send = MailCreateCampaignOperator(
                task_id="send", mail_name=name, audience=result, sender_mail="news@example.com",
                subject="a", content="<p>a</p>",
            )  # fmt: skip
            if self._run(send, run["run_id"], Process(None)) and name not in self.campaigns:
                self.campaigns[name] = key
                kept = {person for person, outcome in outcomes.items() if outcome == "kept"}
                assert set(self.emulator.campaign_recipients(name)) == kept
                assert {self.rows()[person, key][1] for person in kept} <= {"sent"}
        self.check()

    def _run(self, task: Any, run_id: str, process: Process) -> dict[str, Any] | None:
        tries = self.tries.setdefault((task.task_id, run_id), Tries(has_store=False))
        tries.run_id = run_id
        self.processes.append(process)
        try:
            return tries.run(task)  # type: ignore[no-any-return]
        except (MailError, AirflowException, Killed):
            return None
        finally:
            self.processes.pop()

    def lose(self, how: str, number: int, accepted: bool, run: dict[str, Any]) -> None:
        """Lose the table, or restore a backup; a run that begins then mails nobody, until a user has decided."""
        self.emulator.faults.clear()
        newest, older = self._backup(), self.backups[number % len(self.backups)]
        if how == "dropped":
            self.warehouse.execute("DROP TABLE mail_memory")
        else:
            self._restore({} if how == "emptied" else older)
        seen = len(self.emulator.messages())
        table, turns = _version(older)
        if how != "restored" or turns < max(known for other, known in map(_version, self.backups) if other == table):
            assert self.attempt(run | {"choice": "fail"}, Process(None)) is None
            assert len(self.emulator.messages()) == seen, "an older table mails nobody"
        self.memory.create()
        self.memory.accept()
        if accepted:
            self.forgotten = self._mailed()
            for mail in self.rows():
                del self.forgotten[mail]
            self.backups = [self._backup()]
        else:
            self._restore(newest)
            self.memory.accept()
        self.check()

    def keep(self) -> None:
        """Make a backup."""
        self.backups.append(self._backup())

    def _backup(self) -> Backup:
        return {
            name: self.warehouse.query(f"SELECT {', '.join(columns)} FROM {name}") for name, columns in TABLES.items()
        }

    def _restore(self, backup: Backup) -> None:
        for name, columns in TABLES.items():
            self.warehouse.execute(f"DELETE FROM {name}")
            for row in backup.get(name, ()):
                values = ", ".join(str(value) if isinstance(value, int) else f"'{value}'" for value in row)
                self.warehouse.execute(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({values})")

    def _mailed(self) -> Counter[tuple[str, str]]:
        of_campaigns = [
            (person, key) for name, key in self.campaigns.items() for person in self.emulator.campaign_recipients(name)
        ]
        return Counter(self.mails() + of_campaigns)

    def _cap(self, run: dict[str, Any]) -> Any:
        return self.caps[run["cap"] % len(self.caps)]

    def check(self) -> None:
        rows, mails = self.rows(), self._mailed() - self.forgotten
        assert mails.keys() <= rows.keys(), "who was mailed is in the memory"
        assert all(times <= 1 + self.allowed[mail] for mail, times in mails.items()), "nobody has a key twice"
        if self.caps == [CAP]:
            for person in PEOPLE:
                times = sorted(times_of(rows, person))
                assert all(fits(times[:place], moment, CAP) for place, moment in enumerate(times)), (
                    "nobody more than allowed"
                )

    def rows(self) -> dict[tuple[str, str], Row]:
        """Time, state and task of each mail in the memory, by person and key."""
        return {
            (person, row["mail_key"].rpartition("/*/")[0] or row["mail_key"]): (
                int(row["mailed_at"]), row["state"], row["task"],
            )
            for person in PEOPLE
            for row in self.memory.of(person)
        }  # fmt: skip

    def mails(self) -> list[tuple[str, str]]:
        return [
            (person["email"], message["subject"])
            for message in self.emulator.messages()
            for person in message["recipients"]
            if message["form"] in ("single", "batch")
        ]

    def _owner(self, run: dict[str, Any]) -> str:
        return f"dag/{run['place'][0]}/{run['run_id']}" + ("" if run["place"][1] < 0 else "/*")

    def _key(self, run: dict[str, Any]) -> str:
        return str(run["once_per"] or self._owner(run).removesuffix("/*"))


def moment_of(run: dict[str, Any]) -> int:
    return int(time.time()) if run["day"] is None else FIRST + run["day"] * DAY


def times_of(rows: dict[tuple[str, str], Row], person: str) -> list[int]:
    return [own[0] for (who, _), own in rows.items() if who == person]


def fits(times: list[int], moment: int, cap: Any) -> bool:
    """Whether no window of the cap that has this mail has too many, tried at each time at which one can begin."""
    if cap is None:
        return True
    size, seconds = cap[0], cap[1].total_seconds()
    starts = [start for start in [*times, moment] if start <= moment < start + seconds]
    return all(sum(start <= one < start + seconds for one in [*times, moment]) <= size for start in starts)


def _version(backup: Backup) -> tuple[str, int]:
    """Return the id of a table, and how often it was written."""
    return next((state, int(turns)) for request, _, turns, state in backup["mail_memory_requests"] if request == 0)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[History], Any]:
    """A function that lets the processes of a history end at any step."""

    @contextmanager
    def watched(history: History) -> Iterator[None]:
        def stepping(kind: type, name: str) -> None:
            perform = getattr(kind, name)

            def step(self: Any, *arguments: Any, **options: Any) -> Any:
                process = history.processes[-1]

                def action() -> Any:
                    if name == "send" and process.within and next(process.requests) == process.within[0]:
                        process.within[1]()
                    return perform(self, *arguments, **options)

                return process.step(action)

            patch.setattr(kind, name, step)

        with monkeypatch.context() as patch:
            for kind, name in ((Memory, "reserve"), (Memory, "begin"), (Memory, "write"), (MailHook, "send")):
                stepping(kind, name)
            yield

    return watched


@pytest.fixture
def warehouse(request: pytest.FixtureRequest, make_warehouse: Callable[..., Warehouse]) -> Warehouse:  # noqa: F811
    return make_warehouse(request.param)


@pytest.fixture
def memory(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> Memory:
    return new_memory("warehouse", monkeypatch)


@pytest.fixture
def tell(
    emulator: Emulator,
    warehouse: Warehouse,
    memory: Memory,
    steps: Callable[[History], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[list[Any], list[Any]], None]:
    """A function that lets a history happen, from an empty memory."""
    variables: dict[str, str] = {}
    for name, function in (
        ("knows_variables", lambda: True),
        ("stored_variable", variables.get),
        ("store_variable", lambda name, text, _: variables.update({name: text})),
    ):
        monkeypatch.setattr(f"{Memory.__module__}.{name}", function)

    def tell(events: list[Any], caps: list[Any]) -> None:
        emulator.reset()
        emulator.add_sender("news@example.com")
        memory.delete_before(2**40)
        variables.clear()
        told = History(emulator, memory, warehouse, caps)
        for event in events:
            if isinstance(event, dict):
                with steps(told):
                    told.campaign(event)
            elif len(event) == EVENT:
                with steps(told):
                    told.happen(*event)
                told.keep()
            else:
                with steps(told):
                    told.lose(*event[:-1])

    return tell


@pytest.mark.parametrize("warehouse", DIALECTS, indirect=True)
def test_histories(tell: Callable[..., None], warehouse: Warehouse) -> None:
    @settings(max_examples=examples(30 if warehouse.kind == "sqlite" else 5))
    @given(history=st.lists(events | campaigns | lost, min_size=2, max_size=8), caps=caps)
    def happen(history: list[Any], caps: list[Any]) -> None:
        tell(history, caps)

    happen()


@pytest.mark.parametrize("warehouse", ["sqlite"], indirect=True)
def test_a_cap_that_is_not_kept_is_noticed(tell: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cap, "allows", lambda *_: True)
    run = {"place": ("a", -1), "once_per": None, "people": PEOPLE, "day": None, "choice": "fail", "in_flight": 1}
    history = [({**run, "run_id": f"r{number}", "cap": 0}, None, None, None) for number in range(3)]
    with pytest.raises(AssertionError):
        tell(history, [CAP])
    tell(history, [None])
