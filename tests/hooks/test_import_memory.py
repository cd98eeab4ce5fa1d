"""Imports over several tries, whatever ends them: who is in the service, what is sent again, what is written down."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_mail._task import import_checkpoint
from airflow_provider_mail._task.import_checkpoint import KEY, StoredImportCheckpoint
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig, RetryRule
from airflow_provider_mail.api.contacts import UpdateMode
from airflow_provider_mail.api.errors import MailAnswerLostError, MailAuthError
from airflow_provider_mail.api.flows.import_contacts import batches, import_contacts
from airflow_provider_mail.api.flows.import_plan import ImportPlan, Progress
from airflow_provider_mail.api.flows.validate_rows import CheckedRows, Reject, Row
from airflow_provider_mail.emulator import Emulator
from tests.support.sampling import examples

IMPORTS = "contacts/imports"
AIRFLOWS_LIMIT = 65_535
"""Bytes of a value, `[state_store] max_value_storage_bytes`."""

log = logging.getLogger("import_memory")


class KilledError(BaseException):
    """The end of a process, as far as that can be had inside of one."""


class Store:
    """A task state store: JSON by key.

    `kill_at` is the write that ends the process, `broken` names what fails.
    """

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.writes: list[str] = []
        self.kill_at: int | None = None
        self.broken: set[str] = set()

    def _break(self, what: str) -> None:
        if what in self.broken:
            raise RuntimeError(f"no {what} today")

    def get(self, key: str, default: Any = None) -> Any:
        self._break("get")
        return json.loads(self.values[key]) if key in self.values else default

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        self._break("set")
        if self.kill_at == len(self.writes):
            raise KilledError
        self.values[key] = json.dumps(value)
        self.writes.append(self.values[key])

    def delete(self, key: str) -> None:
        self._break("delete")
        self.values.pop(key, None)


class Task:
    """A task that imports, over several tries."""

    def __init__(self, emulator: Emulator, store: Store | None = None) -> None:
        self.store = store or Store()
        self._emulator = emulator
        self.progress = Progress()
        self.rejects: list[Reject] = []

    def run(
        self,
        rows: Sequence[Row],
        *,
        cut: int | None = None,
        memory: bool = True,
        connection: dict[str, Any] | None = None,
        **plan: Any,
    ) -> Progress:
        """One try.

        :param cut: the source fails behind so many rows.
        """
        self.progress, self.rejects = Progress(), []
        made = ImportPlan(**{"properties": ("email", "name"), "chunk_size": 10, "max_in_flight": 4, **plan})
        config = ClientConfig(
            **{"base_url": self._emulator.base_url, "api_key": self._emulator.api_key, **(connection or {})},
            retry=RetryRule(attempts=1),
        )
        remembered = StoredImportCheckpoint(self.store, log) if memory else None
        if remembered is not None:
            remembered.load(made, config)

        def source() -> Iterator[Row]:
            yield from rows[:cut]
            if cut is not None:
                raise ConnectionError("the source went away")

        try:
            with MailClient(config) as client:
                import_contacts(
                    client,
                    batches(source(), made.chunk_size),
                    made,
                    on_reject=self.rejects.append,
                    progress=self.progress,
                    memory=remembered,
                )
        except Exception:
            if remembered is not None:
                remembered.save()
            raise
        return self.progress

    def requests(self) -> int:
        """How many there were since the last look."""
        count = self._emulator.journal.count(IMPORTS)
        self._emulator.journal.clear()
        return count


@pytest.fixture
def task(emulator: Emulator) -> Task:
    return Task(emulator)


@pytest.fixture(autouse=True)
def _every_chunk_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_checkpoint, "WRITE_INTERVAL", 0)
    monkeypatch.setattr(import_checkpoint, "SHARE", 0)


def address(number: int) -> str:
    return f"p{number}@example.com"


def people(count: int, called: str = "Person") -> list[Row]:
    return [(address(number), f"{called} {number}") for number in range(1, count + 1)]


def names(emulator: Emulator) -> dict[str, str]:
    return {contact["email"]: contact["name"] for contact in emulator.contacts()}


def half_done(task: Task, rows: Sequence[Row] | None = None, upto: int = 60, **arguments: Any) -> None:
    """A first try of a hundred rows, ended by force as soon as the first sixty were dealt with."""
    task.run((rows or people(100))[:upto], **arguments)
    task.requests()


# --- who is there at the end ---


@dataclass
class Try:
    """What one try finds, and how it ends.

    :param rows: of the source: address and version, by place.
    :param plan: settings that may differ from try to try.
    :param end: what ends it, and where.
    :param delays: of the first requests, so that they are answered in another order.
    :param seldom: whether the record is only written when it must be.
    """

    rows: list[tuple[str, int]]
    plan: dict[str, Any]
    end: tuple[str, int]
    delays: list[float]
    seldom: bool


ENDS = st.tuples(st.sampled_from(["source", "killed", "service"]), st.integers(0, 12))


@st.composite
def lives(draw: st.DrawFn) -> list[Try]:
    """Tries of one task; the source, and now and then the settings, may change between them, and change back."""
    versions = iter(range(1, 10_000))
    first = [(address(number), next(versions)) for number in range(draw(st.integers(1, 30)))]
    latest = first
    tries: list[Try] = []
    for last in [*[False] * draw(st.integers(1, 4)), True]:
        rows = list(draw(st.sampled_from([first, latest])))
        change = draw(st.sampled_from(["none", "none", "edit", "delete", "insert", "swap", "bad"]))
        place, other = (draw(st.integers(0, max(len(rows) - 1, 0))) for _ in range(2))
        if change == "insert" or not rows:
            rows.insert(place, (address(1000 + next(versions)), next(versions)))
        elif change == "edit":
            rows[place] = rows[place][0], next(versions)
        elif change == "delete":
            del rows[place]
        elif change == "swap":
            rows[place], rows[other] = rows[other], rows[place]
        elif change == "bad":
            rows[place] = f"nobody{next(versions)}", next(versions)
        latest = rows
        plan = {
            "list_name": draw(st.sampled_from(["one"] * 5 + ["two"])),
            "chunk_size": draw(st.sampled_from([4] * 5 + [3])),
        }
        end = ("never", 0) if last else draw(ENDS)
        delays = draw(st.lists(st.sampled_from([0.0, 0.0, 0.004, 0.012]), max_size=6))
        tries.append(Try(rows, plan, end, delays, draw(st.booleans())))
    return tries


@pytest.mark.not_unit
@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
@given(lives(), st.sets(st.integers(0, 29), max_size=4))
def test_whatever_ends_the_tries_the_service_has_what_the_last_one_read(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, tries: list[Try], refused: set[int]
) -> None:
    emulator.reset()
    emulator.change_settings(refused_addresses=tuple(map(address, refused)))
    task = Task(emulator)
    for each in tries:
        kind, where = each.end
        emulator.faults.clear()
        for number, delay in enumerate(each.delays):
            if delay:
                emulator.faults.add("delay", IMPORTS, skip=number, seconds=delay)
        if kind == "service":
            emulator.faults.add("code_before", IMPORTS, skip=where, count=None, code=401)
        task.store.kill_at = len(task.store.writes) + where if kind == "killed" else None
        monkeypatch.setattr(import_checkpoint, "WRITE_INTERVAL", 3600 if each.seldom else 0)
        cut = min(3 * where, len(each.rows)) if kind == "source" else None
        rows = [(email, f"version {version}") for email, version in each.rows]
        # Killed without a word, should there be nothing to write, is to end without clear_traceback_frames.
        with suppress(ConnectionError, MailAuthError, KilledError):
            task.run(rows, cut=cut, **each.plan)

    good = {email: f"version {version}" for email, version in each.rows if "@" in email}
    expected = {email: name for email, name in good.items() if email not in set(map(address, refused))}
    assert expected.items() <= names(emulator).items()
    members = {contact["email"] for contact in emulator.contacts(each.plan["list_name"])} if expected else set()
    assert members >= expected.keys()
    set_aside = [number for number, (email, _) in enumerate(each.rows, 1) if email not in expected]
    assert sorted(reject.row_number for reject in task.rejects) == set_aside
    assert [reject.row[0] for reject in sorted(task.rejects, key=lambda reject: reject.row_number)] == [
        each.rows[number - 1][0] for number in set_aside
    ]
    counts = task.progress.read, task.progress.accepted, task.progress.rejected
    assert counts == (len(each.rows), len(expected), len(set_aside))


# --- what is sent again ---


def test_a_further_try_sends_only_what_was_not_accepted(
    task: Task, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    half_done(task)
    done = task.run(people(100))

    assert task.requests() == done.requests == 4
    assert (done.read, done.accepted, done.accepted_earlier, done.rejected) == (100, 100, 60, 0)
    assert names(emulator) == dict(people(100))
    assert "6 chunks were accepted in earlier tries" in caplog.text
    assert "Resumed: 60 rows were accepted in earlier tries and are not sent; continuing with row 61." in caplog.text


def test_a_chunk_that_was_overtaken_is_sent_and_those_that_overtook_it_are_not(task: Task, emulator: Emulator) -> None:
    emulator.faults.add("delay", IMPORTS, seconds=2)
    with pytest.raises(MailAnswerLostError):
        task.run(people(40), connection={"timeout": 0.5})
    assert task.requests() == 4

    assert task.run(people(40)).accepted_earlier == 30
    assert task.requests() == 1
    assert names(emulator) == dict(people(40))


@pytest.mark.parametrize(
    ("changed", "sent"),
    [
        (lambda rows: [*rows[:25], (address(26), "Another"), *rows[26:]], 8),
        (lambda rows: rows[1:], 10),
        (lambda rows: rows[::-1], 10),
        (lambda rows: [*rows[:59], *rows[60:]], 5),
        (lambda rows: [*rows[:9], rows[10], rows[9], *rows[11:]], 10),
        (lambda rows: [*rows[:70], ("nobody", "?"), *rows[70:]], 5),
        (lambda rows: [*rows[:30], *(("nobody", "?") for _ in range(10)), *rows[40:]], 6),
    ],
    ids=["a name", "first row gone", "reversed", "sixtieth gone", "two swapped", "beyond", "a whole chunk bad"],
)
def test_from_the_first_difference_on_everything_is_sent(
    task: Task, emulator: Emulator, caplog: pytest.LogCaptureFixture, changed: Any, sent: int
) -> None:
    half_done(task)
    rows = changed(people(100))
    done = task.run(rows)

    assert task.requests() == sent
    assert done.accepted_earlier == 10 * (-(-len(rows) // 10) - sent - (1 if ("nobody", "?") in rows[30:40] else 0))
    assert {email: name for email, name in rows if "@" in email}.items() <= names(emulator).items()
    assert ("is imported again" in caplog.text) == (rows[:60] != people(60))


@pytest.mark.parametrize(
    ("other", "connection"),
    [
        ({"list_name": "other"}, {}),
        ({"list_name": "all", "list_description": "other"}, {}),
        ({"list_name": None}, {}),
        ({"update_mode": UpdateMode.CREATE_ONLY}, {}),
        ({"properties": ("email", "customer")}, {}),
        ({"chunk_size": 20}, {}),
        ({"sandbox_mode": True}, {}),
        ({}, {"sandbox": True}),
        ({}, {"auth_type": "oauth", "access_token": "token"}),
    ],
)
def test_other_settings_start_over(
    task: Task,
    emulator: Emulator,
    caplog: pytest.LogCaptureFixture,
    other: dict[str, Any],
    connection: dict[str, Any],
) -> None:
    half_done(task, list_name="all")
    if "access_token" in connection:
        connection["access_token"] = emulator.issue_token()
    done = task.run(people(100), connection=connection, **{"list_name": "all"} | other)

    assert done.accepted_earlier == 0
    assert task.requests() == (5 if "chunk_size" in other else 10)
    assert "Everything is imported again: an earlier try imported with other settings" in caplog.text


@pytest.mark.parametrize("between", ["other rows", "other settings", "other version", "unreadable"])
def test_what_was_accepted_before_something_newer_is_sent_again(
    task: Task, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    half_done(task)
    # The second try finds other rows, and is killed before it has written anything down about their being accepted.
    monkeypatch.setattr(import_checkpoint, "WRITE_INTERVAL", 3600)
    if between == "other version":
        task.store.values[KEY] = json.dumps({"version": 7})
    if between == "unreadable":
        task.store.broken = {"get"}
    half_done(task, people(100, "Somebody"), list_name="other" if between == "other settings" else None)
    assert names(emulator)[address(7)] == "Somebody 7"
    task.store.broken = set()

    # The third finds those of the first.
    task.run(people(100))
    assert names(emulator) == dict(people(100))


def test_how_many_are_under_way_makes_no_difference(task: Task) -> None:
    half_done(task)
    assert task.run(people(100), max_in_flight=1).accepted_earlier == 60


def test_what_was_accepted_long_ago_is_sent_again(
    task: Task, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    half_done(task)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 23 * 3600)
    half_done(task, upto=70)
    # A day counts from the last chunk.
    monkeypatch.setattr(time, "time", lambda: now + 46 * 3600)
    half_done(task, upto=70)
    assert task.progress.accepted_earlier == 70
    monkeypatch.setattr(time, "time", lambda: now + 48 * 3600)

    assert task.run(people(100)).accepted_earlier == 0
    assert "the record of an earlier try is older than a day" in caplog.text


# --- rows that the service does not want ---


def test_refused_rows_are_asked_about_again_and_nothing_beside_them(task: Task, emulator: Emulator) -> None:
    poison = (3, 4, 17, 70)
    emulator.change_settings(refused_addresses=tuple(map(address, poison)))
    half_done(task)
    assert json.loads(task.store.writes[-1])["refused"] == [3, 4, 17]

    done = task.run(people(100))

    bodies = [entry["body"] for entry in emulator.journal.entries(IMPORTS)]
    sent = [row[0] for body in bodies if "sandboxMode" not in body for row in body["contactData"]]
    assert set(sent) == {address(number) for number in (*poison, *range(61, 101))}
    # Two together and then each alone, one alone; one that is sought among ten as ever; three chunks. For each that has
    # refused rows it is asked whether the account is the reason.
    assert task.requests() == (1 + 2) + 1 + (1 + 2 * 4) + 3 + 3 == done.requests
    assert sorted(reject.row_number for reject in task.rejects) == list(poison)
    assert (done.accepted, done.accepted_earlier, done.rejected) == (96, 57, 4)


def test_a_row_that_is_wanted_after_all(task: Task, emulator: Emulator) -> None:
    emulator.change_settings(refused_addresses=(address(3), address(4)))
    half_done(task)
    emulator.change_settings(refused_addresses=(address(4),))
    half_done(task)
    assert json.loads(task.store.writes[-1])["refused"] == [4]
    assert [reject.row_number for reject in task.rejects] == [4]

    done = task.run(people(100))
    assert (done.accepted, done.accepted_earlier, done.rejected) == (99, 59, 1)
    assert [reject.row_number for reject in task.rejects] == [4]


@pytest.mark.not_unit
def test_many_refused_rows_of_a_chunk_are_no_reason_to_stop(task: Task, emulator: Emulator) -> None:
    poison = range(1, 101)
    emulator.change_settings(refused_addresses=tuple(map(address, poison)))
    half_done(task, people(400), upto=200, chunk_size=200)
    done = task.run(people(400), chunk_size=200)

    assert (done.accepted, done.accepted_earlier, done.rejected) == (300, 100, 100)
    assert [reject.row_number for reject in task.rejects] == list(poison)


def test_bad_rows_are_set_aside_by_every_try(task: Task, emulator: Emulator) -> None:
    rows = people(100)
    bad = {1: "x", 33: None, 60: "a@b", 61: "y", 100: ""}
    for number, email in bad.items():
        rows[number - 1] = (email, "?")
    half_done(task, rows)
    done = task.run(rows)

    assert [reject.row_number for reject in task.rejects] == list(bad)
    assert (done.read, done.accepted, done.accepted_earlier, done.rejected) == (100, 95, 57, 5)
    assert task.requests() == 4


def test_a_bad_row_that_moves_takes_no_other_row_s_refusal(task: Task, emulator: Emulator) -> None:
    emulator.change_settings(refused_addresses=(address(9),))
    rows = people(9)
    half_done(task, [("nobody", "?"), *rows])
    task.run([*rows, ("nobody", "?")])

    assert sorted(reject.row_number for reject in task.rejects) == [9, 10]
    assert names(emulator) == dict(rows[:8])


# --- the record ---


@pytest.mark.parametrize(
    "left",
    [
        0,
        "text",
        [],
        [1, 2],
        {},
        {"version": 0, "rows": 60},
        lambda record: record | {"version": 2},
        lambda record: record | {"more": 1},
        lambda record: record | {"digests": record["digests"][:-1]},
        lambda record: record | {"digests": "ä"},
        lambda record: record | {"digests": "AAAA"},
        lambda record: record | {"digests": "A" * 100_000},
        lambda record: record | {"refused": ["3"]},
        lambda record: record | {"refused": [-3]},
        lambda record: record | {"refused": list(range(1, 5000))},
        lambda record: record | {"written": None},
        lambda record: {name: value for name, value in record.items() if name != "settings"},
    ],
)
def test_a_record_of_another_version_is_no_record(
    task: Task, emulator: Emulator, caplog: pytest.LogCaptureFixture, left: Any
) -> None:
    half_done(task)
    record = json.loads(task.store.values[KEY])
    task.store.values[KEY] = json.dumps(left(record) if callable(left) else left)
    done = task.run(people(100))

    assert (done.accepted, done.accepted_earlier, task.requests()) == (100, 0, 10)
    assert "Everything is imported again: the record of an earlier try was not written by this version" in caplog.text


@pytest.mark.parametrize("broken", ["get", "set", "delete"])
def test_a_store_that_fails_ends_no_import(
    task: Task, emulator: Emulator, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    half_done(task)
    task.store.broken = {broken}
    half_done(task, upto=80)
    assert ("The task state could not be" in caplog.text or "the task state could not be" in caplog.text) == (
        broken != "delete"
    )
    task.store.broken = set()
    task.requests()

    done = task.run(people(100))
    expected = {"get": 80, "set": 60, "delete": 80}[broken]
    assert (done.accepted, done.accepted_earlier) == (100, expected)
    assert names(emulator) == dict(people(100))


def test_what_cannot_be_removed_ends_no_import(task: Task, caplog: pytest.LogCaptureFixture) -> None:
    task.store.broken = {"delete"}
    StoredImportCheckpoint(task.store, log).clear()
    assert "The task state could not be deleted" in caplog.text


def test_it_is_written_seldom(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_checkpoint, "WRITE_INTERVAL", 3600)
    task.run(people(300))
    assert task.store.writes == []
    # Only at its end, when that comes early.
    with pytest.raises(ConnectionError):
        task.run(people(300), cut=250)
    assert len(task.store.writes) == 1
    accepted = task.progress.accepted
    assert task.run(people(300)).accepted_earlier == accepted > 0


def test_a_slow_store_is_written_to_all_the_more_seldom(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_checkpoint, "SHARE", 100)
    write = task.store.set

    def slow(*arguments: Any, **options: Any) -> None:
        time.sleep(0.1)
        write(*arguments, **options)

    monkeypatch.setattr(task.store, "set", slow)
    task.run(people(300))
    assert len(task.store.writes) == 1


def checked(first: int, count: int = 2) -> CheckedRows:
    return CheckedRows(b"[]", range(first, first + count), [])


def begun(store: Store) -> StoredImportCheckpoint:
    memory = StoredImportCheckpoint(store, log)
    memory.load(ImportPlan(properties=("email",)), ClientConfig(base_url="http://service.example", api_key="key"))
    return memory


def test_the_record_stays_small_whatever_is_imported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(import_checkpoint, "WRITE_INTERVAL", 3600)
    store, first = Store(), 90_000_001
    memory = begun(store)
    for chunk in range(5000):
        assert memory.lookup(chunk, first + 2 * chunk, checked(first + 2 * chunk)) is None
        memory.accepted(chunk, [first + 2 * chunk] if chunk % 2 else [])
    memory.save()
    assert 30_000 < len(store.writes[0]) < 45_000 < AIRFLOWS_LIMIT
    assert "The checkpoint holds at most 4000 chunks" in caplog.text

    again = begun(store)
    recalled = [again.lookup(chunk, first + 2 * chunk, checked(first + 2 * chunk)) for chunk in range(5000)]
    # Chunks whose refused rows were too many to be remembered are sent as a whole.
    assert recalled[:4] == [[], [first + 2], [], [first + 6]]
    assert recalled[1998:2004] == [[], [first + 2 * 1999], [], None, [], None]
    assert recalled[3999:] == [None] * 1001


def test_neither_addresses_nor_the_key_are_in_the_record(task: Task, emulator: Emulator) -> None:
    emulator.change_settings(refused_addresses=(address(3),))
    half_done(task)
    record = "".join(task.store.writes)
    assert "example" not in record
    assert "Person" not in record
    assert emulator.api_key not in record


def test_digests_cannot_be_tried_without_the_key() -> None:
    def record(key: str) -> dict[str, Any]:
        store = Store()
        memory = StoredImportCheckpoint(store, log)
        memory.load(ImportPlan(properties=("email",)), ClientConfig(base_url="http://service.example", api_key=key))
        memory.lookup(0, 1, checked(1))
        memory.accepted(0, [])
        return dict(json.loads(store.writes[0]))

    one, same, other = record("key"), record("key"), record("another")
    assert (one["digests"], one["settings"]) == (same["digests"], same["settings"])
    assert one["digests"] != other["digests"]
    assert one["settings"] != other["settings"]
