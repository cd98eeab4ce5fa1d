"""Imports over several tries: whatever ends them, a try that succeeds leaves at the service what it has read.

The service is the emulator, with faults at any request; a process may end at any request and at any write of the
checkpoint; rows and settings may change between tries, and change back.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.arguments import Rejects
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.version_compat import AirflowException
from mail_emulator import Emulator
from tests.machines import REJECTED_KEY, UNCLEAR
from tests.support.changes import at_every_request
from tests.support.clock import Clock
from tests.support.sampling import run_machine
from tests.support.tries import Kill, Killed, Tries

IMPORTS = "contacts/imports"
DAY = 24 * 3600

FAULTS = [("refuse", {}), *UNCLEAR, ("too_many_requests", {"retry_after": 60}), REJECTED_KEY]
# A limit of the account lasts: one that ends by itself cannot be told from rejected rows.
LIMIT = ("code_before", {"code": 403, "message": "contact quota exceeded"})
skips = st.integers(0, 8)
faults = (
    st.none()
    | st.tuples(st.sampled_from(FAULTS), skips, st.sampled_from([1, 2, 6, None]))
    | st.tuples(st.just(LIMIT), skips, st.none())
)
kills = st.none() | st.builds(Kill, st.sampled_from(["before", "after", "request"]), st.integers(0, 6))


class Importing(RuleBasedStateMachine):
    """The model: the rows of the source, each with a version, and which of them the service rejects."""

    def __init__(self, emulator: Emulator, clock: Clock, rejects: Path) -> None:
        super().__init__()
        self.emulator, self.clock, self.rejects = emulator, clock, rejects
        emulator.reset()
        self.tries = Tries(emulator, has_store=True)
        self.versions = itertools.count(1)
        self.offered: set[tuple[str, str]] = set()
        self.accepted: set[str] = set()
        self.list_name, self.chunk_size = "one", 4
        self.sound = True

    @initialize(count=st.integers(0, 14), poison=st.sets(st.integers(0, 13), max_size=3))
    def begin(self, count: int, poison: set[int]) -> None:
        self.rows = [(f"p{number}@example.com", self._version()) for number in range(count)]
        self.sources = [self.rows]
        self._reject({f"p{number}@example.com" for number in poison})

    # --- what changes between two tries ---

    @rule(how=st.sampled_from(["edit", "delete", "insert", "swap", "invalid"]), place=st.integers(0, 13))
    def change_a_row(self, how: str, place: int) -> None:
        rows = list(self.rows)
        place = min(place, max(len(rows) - 1, 0))
        if how == "insert" or not rows:
            rows.insert(place, (f"new{next(self.versions)}@example.com", self._version()))
        elif how == "delete":
            del rows[place]
        elif how == "swap":
            rows[0], rows[place] = rows[place], rows[0]
        else:
            email = rows[place][0] if how == "edit" else f"nobody{next(self.versions)}"
            rows[place] = email, self._version()
        self._use(rows)

    @rule(which=st.integers(1, 3))
    def return_to_earlier_rows(self, which: int) -> None:
        self._use(self.sources[-1 - which % len(self.sources)])

    @rule(list_name=st.sampled_from(["one", "two"]), chunk_size=st.sampled_from([4, 2]))
    def change_settings(self, list_name: str, chunk_size: int) -> None:
        self.list_name, self.chunk_size = list_name, chunk_size
        self.accepted.clear()

    @rule()
    def accept_a_rejected_row(self) -> None:
        self._reject(set(sorted(self.poison)[1:]))

    @rule()
    def wait_more_than_a_day(self) -> None:
        self.clock.sleep(DAY + 2)
        self.accepted.clear()

    # --- tries ---

    @rule(
        fault=faults,
        kill=kills,
        threads=st.integers(1, 3),
        seconds=st.sampled_from([0, 3]),
        unreadable=st.sampled_from([False, False, False, True]),
        fails_at=st.none() | st.integers(0, 14),
    )
    def run_a_try(
        self, fault: Any, kill: Kill | None, threads: int, seconds: int, unreadable: bool, fails_at: int | None
    ) -> None:
        self.sound = False
        self.emulator.faults.clear()
        self.emulator.journal.clear()
        self.rejects.unlink(missing_ok=True)
        if fault is not None:
            (kind, params), skip, count = fault
            self.emulator.faults.add(kind, IMPORTS, skip=skip, count=count, **params)
        self.tries.store.unreadable = unreadable
        self.offered |= set(self.rows)
        operator = MailImportContactsOperator(
            task_id="task",
            contacts=lambda: self._source(fails_at),
            column_names=["email", "name"],
            list_name=self.list_name,
            chunk_size=self.chunk_size,
            max_in_flight=threads,
            rejects=Rejects(max_fraction=1, path=str(self.rejects)),
            on_empty="continue",
        )

        def performed(number: int) -> None:
            self.clock.sleep(seconds)
            self.tries.store.requested(number)

        try:
            with at_every_request(self.emulator, IMPORTS, performed):
                result = self.tries.run(operator, kill)
        except (MailError, AirflowException, ConnectionError, Killed) as error:
            self._check_failure(error)
        else:
            self._check_success(result, faultless=fault is None)
        self.sound = True

    def _check_failure(self, error: BaseException) -> None:
        self._check_sent()
        assert self._rejected() <= self._bad().keys()
        if isinstance(error, Killed):
            self.accepted.clear()
            for thread in threading.enumerate():
                if thread.name.startswith("mail-import"):
                    thread.join()

    def _check_success(self, result: dict[str, Any], faultless: bool) -> None:
        bad, sent = self._bad(), self._check_sent()
        good = {email: name for email, name in self.rows if email not in bad.values()}
        held = {contact["email"]: contact["name"] for contact in self.emulator.contacts()}
        assert good.items() <= held.items()
        assert good.keys() <= {contact["email"] for contact in self.emulator.contacts(self.list_name)}
        counts = [result[name] for name in ("read", "accepted", "accepted_earlier", "rejected")]
        assert counts == [len(self.rows), len(good), len(good.keys() - sent), len(bad)]
        assert self._rejected() == bad.keys()
        if faultless:
            assert result["requests"] == self.emulator.journal.count(IMPORTS)
        assert self.tries.store.values == {}, "a successful task that is cleared imports everything again"
        self.accepted.clear()

    def _check_sent(self) -> set[str]:
        """What was accepted and is known to be is not sent again; returns the addresses that were sent."""
        chunks = {json.dumps([list(row) for row in chunk]) for chunk in self._chunks()}
        sent: set[str] = set()
        newly: set[str] = set()
        for entry in self.emulator.journal.entries(f"/v5/{IMPORTS}"):
            body = entry["body"]
            if body and not body.get("sandboxMode"):
                text = json.dumps(body["contactData"])
                assert self.tries.store.unreadable or text not in self.accepted
                sent |= {row[0] for row in body["contactData"]}
                if text in chunks and entry["code"] == 200 and entry["fault"] is None:
                    newly.add(text)
        self.accepted = newly | (set() if self.tries.store.unreadable else self.accepted)
        return sent

    @invariant()
    def the_service_holds_only_what_was_offered(self) -> None:
        assert {(contact["email"], contact["name"]) for contact in self.emulator.contacts()} <= self.offered

    def teardown(self) -> None:
        if self.sound:
            self.run_a_try(None, None, threads=2, seconds=0, unreadable=False, fails_at=None)

    # --- the model ---

    def _source(self, fails_at: int | None) -> Iterator[tuple[str, str]]:
        yield from self.rows[:fails_at]
        if fails_at is not None:
            raise ConnectionError("the database went away")

    def _bad(self) -> dict[int, str]:
        """The rows that must be rejected: those without an address, and those that the service rejects."""
        return {
            number: email for number, (email, _) in enumerate(self.rows, 1) if "@" not in email or email in self.poison
        }

    def _chunks(self) -> list[list[tuple[str, str]]]:
        places = range(0, len(self.rows), self.chunk_size)
        return [[row for row in self.rows[place : place + self.chunk_size] if "@" in row[0]] for place in places]

    def _rejected(self) -> set[int]:
        lines = self.rejects.read_text().splitlines() if self.rejects.exists() else []
        numbers = [json.loads(line)["row_number"] for line in lines]
        assert len(set(numbers)) == len(numbers)
        return set(numbers)

    def _version(self) -> str:
        return f"version {next(self.versions)}"

    def _use(self, rows: list[tuple[str, str]]) -> None:
        if rows != self.rows:
            self.accepted.clear()
        self.rows = rows
        self.sources.append(rows)

    def _reject(self, poison: set[str]) -> None:
        self.poison = poison
        self.emulator.change_settings(refused_addresses=tuple(sorted(poison)))


def test_whatever_ends_the_tries_the_service_has_all_rows(emulator: Emulator, clock: Clock, tmp_path: Path) -> None:
    run_machine(lambda: Importing(emulator, clock, tmp_path / "rejects.jsonl"), 40, 12)
