"""Audiences over many runs: whatever ends them, the next campaign reaches exactly the people of its run, or is red.

The service is the emulator, with faults at any request. A process may end before or after any access to the state, and
at any request that the service has performed. People join, leave, change, change back, come back, move between ranges,
are left out and erased; two audiences share them; the service rejects some; others delete contacts and edit lists; the
state is lost, damaged, or replaced by an older one. Some campaigns are sent only after further runs.

``MAIL_AUDIENCE_CAMPAIGNS=3000`` sends so many campaigns, and prints what was seen.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sqlite3
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException, BaseHook
from mail_emulator import Emulator
from tests.machines import REJECTED_KEY, UNCLEAR
from tests.machines.audience_parts import StateChangedError, StateStore, forget
from tests.support.changes import around_requests, post, snapshot
from tests.support.clock import Clock
from tests.support.groups import grouped
from tests.support.sampling import ALL_FAULTS, EVERYTHING, examples
from tests.support.tries import Killed, TaskInstance, Tries

IMPORTS = "contacts/imports"
PEOPLE = [*(f"p{number}@example.com" for number in range(7)), "j\u00f6rg@example.com", "p8@xn--mnchen-3ya.example"]
OTHERS_SPELLING = {PEOPLE[7]: unicodedata.normalize("NFD", PEOPLE[7]), PEOPLE[8]: "p8@M\u00fcnchen.example"}
STRANGER = "stranger@example.com"
CAMPAIGNS = int(os.environ.get("MAIL_AUDIENCE_CAMPAIGNS") or 0)
SEEN: Counter[str] = Counter()
"""What happened, to be printed."""
DAY = 24 * 3600
SCHEDULED_DAYS = 2.5
STORES = ("table", "table", None)

FAULTS = [("refuse", {}), *UNCLEAR, REJECTED_KEY]
EVENTS = [
    "reject", "leave_out", "move", "chunks", "columns", "rekey", "copy", "restore", "lose", "damage", "schedule",
    "spell", "double", "interfere", "interfere", "meddle", "meddle", "erase", "late", "late", "part", "part",
]  # fmt: skip
faults = st.none() | st.tuples(st.sampled_from(FAULTS), st.integers(0, 4), st.sampled_from([1, 3, None]))
some = st.sets(st.sampled_from(PEOPLE), max_size=4)


class Death:
    """Ends a process at one of its steps; afterwards nothing that it does has an effect."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self.begin(None)

    def begin(self, at: int | None) -> None:
        self.dead, self._left = False, at

    def step(self) -> bool:
        """Whether the process ends now."""
        if self._left is not None and not self.dead:
            self._left -= 1
            self.dead = self._left < 0
            if self.dead:
                self._emulator.faults.clear()
                self._emulator.faults.add("close_before", count=None)
        return self.dead

    def guard(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*arguments: Any, **named: Any) -> Any:
            if self.dead or self.step():
                raise Killed
            result = method(*arguments, **named)
            if self.step():
                raise Killed
            return result

        return guarded


@dataclass
class Scheduled:
    """A campaign that is sent later.

    :param certain: people of its run who have been in the audience ever since.
    :param possible: people of its run, and those whom a later run has read.
    """

    mail_name: str
    due: float
    lists: set[str]
    certain: set[str]
    possible: set[str]


class Audiences(RuleBasedStateMachine):
    """The model: the people of the source with their values, and those who are rejected or left out."""

    def __init__(self, emulator: Emulator, clock: Clock, folder: Path, death: Death) -> None:
        super().__init__()
        self.emulator, self.clock, self.death, self.folder = emulator, clock, death, folder
        emulator.reset()
        TaskInstance.earlier.clear()
        emulator.add_sender("news@example.com")
        self.runs = itertools.count(1)
        self.versions = itertools.count(1)
        self.source: dict[str, str] = {}
        self.earlier: dict[str, str] = {}
        self.ranges: dict[str, int] = {}
        self.poison: set[str] = set()
        self.left_out: set[str] = set()
        self.spelled: set[str] = set()
        self.doubled: set[str] = set()
        self.erased: set[str] = set()
        self.scheduled: list[Scheduled] = []
        self.late: list[tuple[str, list[dict[str, Any]], set[str]]] = []
        """Run, result and people of imports whose campaigns are not created yet."""
        self.only_first: set[str] = set()
        """People who are not in the second audience."""
        self.in_second: set[str] = set()
        """People who are in the second audience since its last run."""
        self.chunk_size = 3
        self.columns: dict[str, str] = {"email": "email", "name": "name"}
        self.meddling: set[str] | None = None
        """Whom others will take off a list, when a run has sent something to it."""
        self.undisturbed = True
        """Whether no run has failed, and no state was lost."""

    @initialize(people=some, store=st.sampled_from(STORES), parts=st.sampled_from([1, 1, 2]), deletes=st.booleans(),
        folds=st.booleans(), rejects=st.booleans(), dates=st.booleans(), only_first=some, other_mapping=st.booleans(),
    )  # fmt: skip
    def begin(
        self, people: set[str], store: str | None = "table", parts: int = 1, deletes: bool = False, folds: bool = True,
        rejects: bool = False, dates: bool = True, only_first: set[str] | None = None,
        other_mapping: bool = False,
    ) -> None:  # fmt: skip
        """Begin with some people.

        :param store: where the state is.
        :param parts: the number of mapped tasks.
        :param deletes: whether contacts are deleted who left.
        :param folds: whether the service folds the case of addresses.
        :param rejects: whether the service rejects to update a person who is no contact.
        :param dates: whether the service shows when a list was changed.
        :param other_mapping: whether the second audience sends further values.
        """
        self.emulator.change_settings(
            contact_identity="folding" if folds else "exact", import_unknown_update="reject" if rejects else "skip",
            list_modify_date=dates,
        )  # fmt: skip
        self.dates, self.only_first = dates, only_first or set()
        self.more_columns = {"city": "city"} if other_mapping else {}
        self.store, self.parts, self.deletes = store, parts, deletes and parts == 1 and store is not None
        self.state = self.folder / (store or "none")
        self.copy = self.folder / "copy"
        for path in (self.state, self.copy):
            _remove(path)
        self.key = 0
        self._reject(set())
        self.join(people)

    def audience(self, second: bool = False) -> dict[str, str]:
        """Whom a campaign must reach, with which values."""
        left_out = self.poison | self.left_out | (self.only_first if second else set())
        addition = " of the second" if second else ""
        return {email: f"{name}{addition}" for email, name in self.source.items() if email not in left_out}

    @rule(
        joins=some,
        leaves=some,
        changes=some,
        back=st.booleans(),
        event=st.none() | st.sampled_from(EVENTS),
        fault=faults,
        dies_at=st.none() | st.integers(0, 40),
        again=st.booleans(),
        second=st.sampled_from([False, False, True]),
    )
    def day(
        self,
        joins: set[str],
        leaves: set[str],
        changes: set[str],
        back: bool,
        event: str | None,
        fault: Any,
        dies_at: int | None,
        again: bool,
        second: bool = False,
    ) -> None:
        """People come and go, something may happen, and a run is tried once or twice.

        :param back: whether people come back, and values become, as they were before.
        :param second: whether the run is that of the second audience.
        """
        self.pass_a_day()
        self.join(joins, back=back)
        for email in sorted(leaves & self.source.keys()):
            self.earlier[email] = self.source.pop(email)
        for email in sorted(changes & self.source.keys()):
            before = self.source[email]
            self.source[email] = self.earlier.get(email, before) if back else self._version()
            self.earlier[email] = before
        if event and event not in ("schedule", "late"):
            getattr(self, f"_{event}")(leaves)
        then = event if event in ("schedule", "late") else ""
        self.run_once(fault, dies_at, again=again, then=then, second=second and self.parts == 1)

    def join(self, people: set[str], *, back: bool = False) -> None:
        for email in sorted(people - self.source.keys()):
            self.source[email] = (back and self.earlier.get(email)) or self._version()
            self.erased.discard(email)

    # --- what happens rarely ---

    def _reject(self, people: set[str]) -> None:
        self.poison = set(sorted(people)[:2])
        self.emulator.change_settings(refused_addresses=tuple(sorted(self.poison)))

    def _leave_out(self, people: set[str]) -> None:
        self.left_out = people

    def _move(self, people: set[str]) -> None:
        for email in people:
            self.ranges[email] = 1 - self.ranges.get(email, 0)

    def _spell(self, people: set[str]) -> None:
        self.spelled = people

    def _part(self, people: set[str]) -> None:
        """Other people are in the second audience."""
        self.only_first = people

    def _double(self, people: set[str]) -> None:
        """Some people have two rows, of which the last one counts."""
        self.doubled = people

    def _interfere(self, people: set[str]) -> None:
        """Others delete contacts, take people off lists, and add a stranger; as many people as before may be there."""
        if self.scheduled:
            return
        self.undisturbed = False
        names = [entry["name"] for entry in self.emulator.lists()][-3:]
        for deed in (self._others_delete, self._others_take_off, self._others_add):
            deed(people, names)

    def _meddle(self, people: set[str]) -> None:
        """Others add a stranger during a run, for whom they may take off a person."""
        if not self.scheduled:
            self.meddling, self.undisturbed = people, False

    def _others_delete(self, people: set[str], names: list[str]) -> None:
        for email in sorted(people)[:2]:
            post(self.emulator, "contacts/delete", email=email)

    def _others_take_off(self, people: set[str], names: list[str]) -> None:
        store, now = self.emulator.service.store, self.emulator.service.clock.now_ms()
        for name in names:
            for email in sorted(people)[:1]:
                key = [name, email]
                store.run(
                    "DELETE FROM members WHERE list_id = (SELECT id FROM lists WHERE name = ?) "
                    "AND contact_id = (SELECT id FROM contacts WHERE key = ?)", key,
                )  # fmt: skip
            if self.dates:
                store.run("UPDATE lists SET modified = ? WHERE name = ?", [now, name])
        store.members.clear_cache()

    def _others_add(self, people: set[str], names: list[str]) -> None:
        for name in names:
            post(self.emulator, "contacts/upsert", email=STRANGER, listName=name)

    def _erase(self, people: set[str]) -> None:
        """Erase people: they leave the source, the service and the states, and no run brings them back."""
        self.undisturbed = False
        erased = set(sorted(people)[:2])
        self.death.begin(None)
        if self.scheduled or self.store is None:
            return
        with self._key_of_deployment():
            for email in sorted(erased):
                self.source.pop(email, None)
                post(self.emulator, "contacts/delete", email=email)
                results = forget("state", email)
                assert all(result.startswith("forgotten") for result in results.values()), results
        self.erased |= erased

    def _chunks(self, people: set[str]) -> None:
        self.chunk_size = 1 + len(people)

    def _columns(self, people: set[str]) -> None:
        self.columns = dict(reversed(self.columns.items()))
        self.undisturbed = False

    def _rekey(self, people: set[str]) -> None:
        self.key += 1
        self.undisturbed = False

    def _copy(self, people: set[str]) -> None:
        if self.state.exists():
            _replace(self.copy, self.state)
            self.erased.clear()

    def _restore(self, people: set[str]) -> None:
        """Restore an older state. Without a date of the lists, only their people show that it is older."""
        self.erased.clear()
        if self.copy.exists():
            _replace(self.state, self.copy)
            if not self.dates:
                self.source = {email: self._version() for email in self.source}
            self.undisturbed = False

    def _lose(self, people: set[str]) -> None:
        _remove(self.state)
        self.undisturbed = False

    def _damage(self, people: set[str]) -> None:
        self.undisturbed = False
        if self.state.exists():
            with closing(sqlite3.connect(self.state)) as database, database:
                database.execute("DELETE FROM mail_audiences_members WHERE rowid % 3 = ?", [len(people) % 3])

    def snapshot(self) -> Callable[[], None]:
        """Return a function that restores what the service and the state hold now."""
        restore_service, kept = snapshot(self.emulator), self.folder / "kept"
        _replace(kept, self.state)

        def restore() -> None:
            self._inject(None)
            restore_service()
            _replace(self.state, kept)

        return restore

    # --- runs ---

    def _version(self) -> str:
        return f"version {next(self.versions)}"

    def pass_a_day(self) -> None:
        """Let campaigns be sent whose time has come."""
        self._inject(None)
        self.clock.sleep(DAY)
        due = [campaign for campaign in self.scheduled if campaign.due < self.clock.skipped]
        self.scheduled = [campaign for campaign in self.scheduled if campaign not in due]
        for campaign in due:
            reached = self.emulator.campaign_recipients(campaign.mail_name)
            assert campaign.certain <= set(reached) <= campaign.possible

    def _inject(self, fault: Any) -> None:
        self.emulator.faults.clear()
        self.faulty = fault is not None
        if fault is not None:
            (kind, params), skip, count = fault
            self.emulator.faults.add(kind, skip=skip, count=count, **params)

    def run_once(
        self, fault: Any = None, dies_at: int | None = None, *, again: bool = False, then: str = "",
        second: bool = False,
    ) -> bool:  # fmt: skip
        """Run the import, and send a campaign; return whether the import succeeded.

        :param again: whether a try that failed is followed by one without faults.
        :param then: ``schedule``: another campaign is to be sent later; ``late``: this one is created later.
        """
        run_id, results = str(next(self.runs)), dict[int, dict[str, Any]]()
        self._inject(fault)
        if not self._try_once(run_id, results, dies_at, second):
            self._inject(None)
            if not again or not self._try_once(run_id, results, None, second):
                return False
        self._check(list(results.values()), run_id, then, second)
        return True

    def _try_once(self, run_id: str, results: dict[int, dict[str, Any]], dies_at: int | None, second: bool) -> bool:
        """Try the parts of a run that have not succeeded."""
        self.death.begin(dies_at)
        if self.deletes:
            for campaign in self.scheduled:
                campaign.certain &= self.audience(second).keys()
                campaign.possible |= self.source.keys()
        try:
            with around_requests(self.emulator, IMPORTS, self._perform), self._key_of_deployment():
                for part in range(self.parts):
                    if part not in results:
                        tries = Tries(map_index=part if self.parts > 1 else -1)
                        tries.run_id = run_id
                        results[part] = tries.run(self._operator(part, second))
        except (MailError, AirflowException, ConnectionError, Killed, StateChangedError) as error:
            failure = str(error)
        else:
            self._inject(None)
            return True
        self._join_threads()
        self.undisturbed = False
        SEEN["imports that failed"] += 1
        # People who left and are rejected cannot be excluded: only a new list can do without them.
        reasons = ("cannot be excluded", "Others have changed it")
        self.meddling = None
        expected = dies_at is not None or self.faulty or any(reason in failure for reason in reasons)
        assert expected, f"a run without faults fails: {failure}"
        return False

    @contextmanager
    def _key_of_deployment(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", f"secret {self.key}")
            yield

    def _operator(self, part: int, second: bool) -> MailImportContactsOperator:
        mine = [row for row in self.source.items() if self.parts == 1 or self.ranges.get(row[0], 0) == part]
        if second:
            mine = [(email, f"{name} of the second") for email, name in mine if email not in self.only_first]
        rows = [(email.title(), "outdated") for email, _ in mine if email in self.doubled]
        spelling = {email: OTHERS_SPELLING.get(email, email).upper() for email in self.spelled}
        rows += [(spelling.get(email, email), name) for email, name in mine]
        contacts = [(*row, "Oslo") for row in rows]
        arguments: dict[str, Any] = {}
        if self.store is not None:
            arguments = {"changes_only": True, "full_every": 5 * DAY, "max_removed_fraction": 1}
            arguments["on_removed"] = "delete_contact" if self.deletes else "exclude"
            arguments |= {"state_conn_id": "state"}
        if self.left_out:
            queries = (f"SELECT '{email.upper()}'" for email in sorted(self.left_out))
            arguments |= {"suppress_conn_id": "others", "suppress_sql": " UNION ".join(queries)}
            arguments["max_removed_fraction"] = 1
        return MailImportContactsOperator(
            task_id="second" if second else "load",
            contacts=lambda: iter(contacts),
            column_names=["email", "name", "city"],
            columns=self.columns if not second else {**self.columns, **self.more_columns},
            list_name="friends",
            chunk_size=self.chunk_size,
            exact_audience=True,
            on_empty="continue",
            **grouped(arguments | {"max_reject_fraction": 1}),
        )

    def _check(self, results: list[dict[str, Any]], run_id: str, then: str, second: bool) -> None:
        people = self.audience(second)
        for campaign in self.late:
            self._send_late(*campaign)
        self.late = []
        held = {contact["email"]: contact["name"] for contact in self.emulator.contacts()}
        assert people.items() <= held.items()
        assert not self.erased & held.keys(), "a run has brought back a person who was erased"
        if second:
            # An empty source removes nobody.
            self.in_second = set(people) if results[0]["read"] else self.in_second
        elif self.deletes and self.undisturbed and self.source:
            assert held.keys() - self.in_second <= self.source.keys()
        if then == "late":
            self.late.append((run_id, results, set(people)))
            return
        name = f"campaign {run_id}"
        self._create(name, results)
        SEEN["campaigns"] += 1
        assert self.emulator.campaign_recipients(name) == sorted(people)
        if then == "schedule":
            later = f"later {name}"
            self._create(later, results, send_date=datetime.now(UTC) + timedelta(days=SCHEDULED_DAYS))
            names = {name for result in results for key in RESULT_LISTS for name in result[key]}
            due = self.clock.skipped + SCHEDULED_DAYS * DAY
            self.scheduled.append(Scheduled(later, due, names, set(people), set(people)))
        existing = {entry["name"] for entry in self.emulator.lists()}
        assert all(campaign.lists <= existing for campaign in self.scheduled)

    def _send_late(self, run_id: str, results: list[dict[str, Any]], people: set[str]) -> None:
        """Create a campaign after a later import: it reaches the people of its own run, or is red."""
        name = f"late {run_id}"
        try:
            self._create(name, results)
        except (AirflowFailException, MailError) as error:
            failure = str(error)
            assert "It was changed after the import" in failure
            assert self.emulator.find_campaign(name) is None
            SEEN["late campaigns that are red"] += 1
        else:
            SEEN["campaigns"] += 1
            SEEN["late campaigns"] += 1
            assert self.emulator.campaign_recipients(name) == sorted(people)

    def _create(self, name: str, results: list[dict[str, Any]], **arguments: Any) -> None:
        arguments |= {"mail_name": name, "sender_mail": "news@example.com", "subject": "a", "content": "<p>a</p>"}
        Tries().run(MailCreateCampaignOperator(task_id="send", audience=results, **arguments))

    def _perform(self, perform: Callable[[], Any]) -> Any:
        response = perform()
        if self.meddling is not None and response.status == 200 and (lists := self.emulator.lists()):
            people, self.meddling = self.meddling, None
            self._others_take_off(people, [lists[-1]["name"]])
            self._others_add(people, [lists[-1]["name"]])
        self.death.step()
        return response

    @staticmethod
    def _join_threads() -> None:
        for thread in threading.enumerate():
            if thread.name.startswith("mail-import"):
                thread.join()

    def teardown(self) -> None:
        assert self.run_once() or self.run_once(), "the second run sends everybody"
        SEEN["machines"] += 1
        while self.scheduled:
            self.pass_a_day()


RESULT_LISTS = ("send_list_names", "repel_list_names")


def _replace(path: Path, other: Path) -> None:
    """Make a file or folder like another one."""
    _remove(path)
    (shutil.copytree if other.is_dir() else shutil.copy)(other, path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@pytest.fixture
def make(emulator: Emulator, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Audiences]:
    """A function that makes the machine, whose processes end at steps that it chooses."""
    for name, file in (("STATE", "table"), ("OTHERS", "others.db")):
        connection = {"conn_type": "sqlite", "host": str(tmp_path / file)}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(connection))
    monkeypatch.setattr("airflow_provider_mail._audience.state.has_ended", lambda header: True)
    monkeypatch.setattr(BaseHook, "get_connection", staticmethod(cache(BaseHook.get_connection)))
    death = Death(emulator)
    for name in ("read", "create", "change", "buckets"):
        monkeypatch.setattr(StateStore, name, death.guard(getattr(StateStore, name)))
    return lambda: Audiences(emulator, clock, tmp_path, death)


@pytest.mark.timeout(7200 if CAMPAIGNS else 300)
def test_every_campaign_reaches_the_people_of_its_run(make: Callable[[], Audiences]) -> None:
    """With `make test-faults`, a thousand sequences."""
    SEEN.clear()
    number = CAMPAIGNS // 4 or examples(10) * (20 if ALL_FAULTS else 1)
    try:
        run_state_machine_as_test(
            make,
            settings=settings(
                max_examples=number,
                stateful_step_count=6,
                suppress_health_check=list(HealthCheck),
                deadline=None,
                database=None,
            ),
        )
    finally:
        print("\n" + ", ".join(f"{count:,} {what}" for what, count in SEEN.items()))
    assert SEEN["campaigns"] >= CAMPAIGNS


def test_a_run_that_ends_at_any_step_loses_no_change(make: Callable[[], Audiences]) -> None:
    """People change, leave, join and come back in the run that ends; the next run finds that, or that it is undone."""
    stay, changing, leaving, joining, returning = PEOPLE[:5]
    machine = make()
    machine.begin({stay, changing, leaving, returning})
    assert machine.run_once()
    machine.earlier[returning] = machine.source.pop(returning)
    assert machine.run_once()
    restore, before = machine.snapshot(), dict(machine.source)
    machine.source[changing] = machine._version()
    del machine.source[leaving]
    machine.join({joining, returning}, back=True)
    after = dict(machine.source)

    for step in itertools.count(step=1 if EVERYTHING else 3):
        restore()
        machine.source = after
        ended = not machine.run_once(None, step)
        if step % 2:
            machine.source = before
            assert machine.run_once()
        machine.source = after
        assert machine.run_once()
        if not ended:
            break
    assert step > 12, "there are fewer steps than before: is the state written before and after?"
