"""Audiences over many runs: whatever ends them, the next campaign reaches exactly the people of its run.

The service is the emulator, with faults at any request. A process may end before or after any access to the state, and
at any request that the service has performed. People join, leave, change, change back and come back; the service
rejects some; the state is lost, or replaced by an older one.
"""

from __future__ import annotations

import itertools
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.version_compat import AirflowException
from mail_emulator import Emulator
from tests.machines.audience_parts import SqlStateStore, StateChangedError
from tests.support.changes import around_requests
from tests.support.clock import Clock
from tests.support.sampling import examples
from tests.support.tries import Killed, Tries

IMPORTS = "contacts/imports"
PEOPLE = [f"p{number}@example.com" for number in range(9)]
WEEK = 7 * 24 * 3600

FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("refuse", {}),
    ("close_before", {}),
    ("reset_after", {}),
    ("http_error_before", {"status": 503}),
    ("http_error_after", {}),
    ("code_after", {"code": 500}),
    ("cut_json", {}),
    ("code_before", {"code": 401, "http_status": 401}),
]
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


class Audiences(RuleBasedStateMachine):
    """The model: the people of the source with their values, and those whom the service rejects."""

    def __init__(self, emulator: Emulator, clock: Clock, folder: Path, death: Death) -> None:
        super().__init__()
        self.emulator, self.clock, self.death = emulator, clock, death
        self.state, self.copy = folder / "state.db", folder / "copy.db"
        for file in (self.state, self.copy):
            file.unlink(missing_ok=True)
        emulator.reset()
        emulator.add_sender("news@example.com")
        self.runs = itertools.count(1)
        self.versions = itertools.count(1)
        self.source: dict[str, str] = {}
        self.earlier: dict[str, str] = {}
        self.poison: set[str] = set()
        self.chunk_size = 3
        self.columns: dict[str, str] = {"email": "email", "name": "name"}

    @initialize(people=some)
    def begin(self, people: set[str]) -> None:
        self._reject(set())
        self.join(people)

    @rule(
        joins=some,
        leaves=some,
        changes=some,
        back=st.booleans(),
        event=st.none() | st.sampled_from(["reject", "chunks", "columns", "copy", "restore", "lose", "wait"]),
        fault=faults,
        dies_at=st.none() | st.integers(0, 40),
        again=st.booleans(),
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
    ) -> None:
        """People come and go, something may happen, and a run is tried once or twice.

        :param back: whether people come back, and values become, as they were before.
        """
        self.join(joins, back=back)
        for email in sorted(leaves & self.source.keys()):
            self.earlier[email] = self.source.pop(email)
        for email in sorted(changes & self.source.keys()):
            before = self.source[email]
            self.source[email] = self.earlier.get(email, before) if back else self._version()
            self.earlier[email] = before
        if event:
            getattr(self, f"_{event}")(leaves)
        run_id = str(next(self.runs))
        self._inject(fault)
        if not self._run_once(run_id, dies_at) and again:
            self._inject(None)
            self._run_once(run_id, None)

    def join(self, people: set[str], *, back: bool = False) -> None:
        for email in sorted(people - self.source.keys()):
            self.source[email] = (back and self.earlier.get(email)) or self._version()

    # --- what happens rarely ---

    def _reject(self, people: set[str]) -> None:
        self.poison = set(sorted(people)[:2])
        self.emulator.change_settings(refused_addresses=tuple(sorted(self.poison)))

    def _chunks(self, people: set[str]) -> None:
        self.chunk_size = 1 + len(people)

    def _columns(self, people: set[str]) -> None:
        self.columns = dict(reversed(self.columns.items()))

    def _copy(self, people: set[str]) -> None:
        if self.state.exists():
            shutil.copy(self.state, self.copy)

    def _restore(self, people: set[str]) -> None:
        """Restore an older state.

        It is known to be older if the list has people whom it does not know. Values may be older ones, too: nothing
        shows that until everybody is due.
        """
        if self.copy.exists():
            shutil.copy(self.copy, self.state)
            self.source = {email: self._version() for email in self.source}

    def _lose(self, people: set[str]) -> None:
        self.state.unlink(missing_ok=True)

    def _wait(self, people: set[str]) -> None:
        self.clock.sleep(WEEK)

    # --- runs ---

    def _version(self) -> str:
        return f"version {next(self.versions)}"

    def _inject(self, fault: Any) -> None:
        self.emulator.faults.clear()
        self.faulty = fault is not None
        if fault is not None:
            (kind, params), skip, count = fault
            self.emulator.faults.add(kind, skip=skip, count=count, **params)

    def _run_once(self, run_id: str, dies_at: int | None) -> bool:
        self.death.begin(dies_at)
        rows = list(self.source.items())
        operator = MailImportContactsOperator(
            task_id="load",
            contacts=lambda: iter(rows),
            column_names=["email", "name"],
            columns=self.columns,
            list_name="friends",
            chunk_size=self.chunk_size,
            max_reject_fraction=1,
            audience="exact",
            changes_only=True,
            state_conn_id="state",
            full_every=2 * WEEK,
            on_empty="continue",
        )
        try:
            with around_requests(self.emulator, IMPORTS, self._perform):
                result = self._tries(run_id).run(operator)
        except (MailError, AirflowException, ConnectionError, Killed, StateChangedError) as error:
            self._join_threads()
            # Whoever left and is rejected cannot be excluded: only a new list can do without them.
            expected = dies_at is not None or self.faulty or "cannot be excluded" in str(error)
            assert expected, "a run without faults fails"
            return False
        self.emulator.faults.clear()
        self._check(result, run_id)
        return True

    def _check(self, result: dict[str, Any], run_id: str) -> None:
        expected = {email: name for email, name in self.source.items() if email not in self.poison}
        name = f"campaign {run_id}"
        campaign = MailCreateCampaignOperator(
            task_id="send", mail_name=name, sender_mail="news@example.com", subject="a", content="a", audience=result
        )
        self._tries(run_id).run(campaign)
        assert self.emulator.campaign_recipients(name) == sorted(expected)
        held = {contact["email"]: contact["name"] for contact in self.emulator.contacts()}
        assert expected.items() <= held.items()

    def _perform(self, perform: Callable[[], Any]) -> Any:
        response = perform()
        self.death.step()
        return response

    def _tries(self, run_id: str) -> Tries:
        tries = Tries()
        tries.run_id = run_id
        return tries

    @staticmethod
    def _join_threads() -> None:
        for thread in threading.enumerate():
            if thread.name.startswith("mail-import"):
                thread.join()

    def teardown(self) -> None:
        self._inject(None)
        for _ in range(2):
            if self._run_once(str(next(self.runs)), None):
                return
        raise AssertionError("the second run sends everybody")


@pytest.fixture
def make(emulator: Emulator, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Audiences]:
    """A function that makes the machine, whose processes end at steps that it chooses."""
    connection = {"conn_type": "sqlite", "host": str(tmp_path / "state.db")}
    monkeypatch.setenv("AIRFLOW_CONN_STATE", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", "a secret")
    monkeypatch.setattr("airflow_provider_mail._task.audience_changes._has_ended", lambda header: True)
    death = Death(emulator)
    for name in ("read", "create", "update", "write", "drop", "parts"):
        monkeypatch.setattr(SqlStateStore, name, death.guard(getattr(SqlStateStore, name)))
    return lambda: Audiences(emulator, clock, tmp_path, death)


def test_every_campaign_reaches_the_people_of_its_run(make: Callable[[], Audiences]) -> None:
    run_state_machine_as_test(
        make,
        settings=settings(
            max_examples=examples(12), stateful_step_count=8, suppress_health_check=list(HealthCheck), deadline=None
        ),
    )


@pytest.mark.parametrize(
    ("changes", "undone"),
    [("change", True), ("return", False), ("change leave join return", True), ("leave join", False)],
)
def test_a_run_that_ends_at_any_step_loses_no_change(make: Callable[[], Audiences], changes: str, undone: bool) -> None:
    """People change, leave, join or come back in the run that ends; the next run finds that, or that it is undone."""
    stay, changing, leaving, joining, returning = PEOPLE[:5]
    for step in itertools.count():
        machine = make()
        machine.begin({stay, changing, leaving, returning})
        assert machine._run_once("1", None)
        machine.earlier[returning] = machine.source.pop(returning)
        assert machine._run_once("2", None)

        before = dict(machine.source)
        if "change" in changes:
            machine.source[changing] = machine._version()
        if "leave" in changes:
            del machine.source[leaving]
        machine.join(
            {*([joining] if "join" in changes else []), *([returning] if "return" in changes else [])}, back=True
        )
        after, ended = dict(machine.source), not machine._run_once("3", step)

        machine._inject(None)
        if undone:
            machine.source = before
            assert machine._run_once("4", None)
        machine.source = after
        assert machine._run_once("5", None)
        if not ended:
            break
    assert step > 12, "there are fewer steps than before: is the state written before and after?"
