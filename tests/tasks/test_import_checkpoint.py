"""What an import has in the task state store: progress, and a checkpoint: when it is not believed, how large it gets.

That no row is lost, whatever happens to it, is shown by `tests/machines/test_importing.py`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.flows.import_contacts import ImportPlan
from airflow_provider_mail.api.flows.validate_rows import CheckedRows
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.operators.lists import MailDeleteListOperator
from airflow_provider_mail.version_compat import AirflowFailException
from mail_emulator import Emulator
from tests.support.changes import at_every_request
from tests.support.clock import Clock
from tests.support.task_parts import CHECKPOINT_KEY, PROGRESS_KEY, ProgressLog, StoredImportCheckpoint
from tests.support.tries import StateStore, Tries
from tests.tasks.loading import executed

PLAN = ImportPlan(properties=("email", "name"), list_name="vip", list_description="V", chunk_size=10)
SETTINGS: dict[str, Any] = {"base_url": "https://api.example.com", "api_key": "key"}
CONFIG = ClientConfig(**SETTINGS)


class Store(StateStore):
    """Each access takes some seconds."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock, self.seconds, self.writes = clock, 0.0, 0

    def get(self, key: str, default: Any = None) -> Any:
        self.clock.sleep(self.seconds)
        return super().get(key, default)

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        self.writes += 1
        self.clock.sleep(self.seconds)
        super().set(key, value)


@pytest.fixture
def store(clock: Clock) -> Store:
    return Store(clock)


def rows(chunk: int) -> CheckedRows:
    """Ten valid rows."""
    numbers = range(10 * chunk + 1, 10 * chunk + 11)
    return CheckedRows(json.dumps([[f"{number}@example.com", None] for number in numbers]).encode(), numbers, [])


def begin(store: Store, plan: ImportPlan = PLAN, config: ClientConfig = CONFIG) -> StoredImportCheckpoint:
    checkpoint = StoredImportCheckpoint(store, logging.getLogger("test.checkpoint"))
    checkpoint.load(plan, config, lambda: False)
    return checkpoint


def look_up(checkpoint: StoredImportCheckpoint, chunks: int = 3) -> list[Sequence[int] | None]:
    """What to send again of each chunk."""
    return [checkpoint.lookup(number, 10 * number + 1, rows(number)) for number in range(chunks)]


def first_try(store: Store, *rejected: int) -> None:
    """Three chunks are accepted, but for some rows."""
    checkpoint = begin(store)
    assert look_up(checkpoint) == [None] * 3
    for number in range(3):
        checkpoint.accepted(number, [row for row in rejected if row in rows(number).numbers])
    checkpoint.save()


@pytest.mark.parametrize(("plan", "config"), [
    *(({"list_name": "other"}, {}), ({"list_description": "other"}, {}), ({"properties": ("email", "city")}, {})),
    *(({"chunk_size": 11}, {}), ({"sandbox_mode": True}, {}), ({}, {"sandbox": True})),
    *(({}, {"api_key": "another"}), ({}, {"base_url": "https://other.example.com"})),
], ids=str)  # fmt: skip
def test_other_settings_import_everything(
    store: Store, plan: dict[str, Any], config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    first_try(store)
    assert look_up(begin(store, replace(PLAN, max_in_flight=1))) == [[], [], []], "that makes no difference"
    assert look_up(begin(store, replace(PLAN, **plan), ClientConfig(**SETTINGS | config))) == [None] * 3
    assert "with other settings or to another account" in caplog.text
    assert store.values == {}, "the first settings may return, and this try has sent newer rows"


@pytest.mark.parametrize("record", [
    0, "text", [1, 2], {}, {"version": 2}, {"digests": "AAAA"}, {"digests": "?"}, {"digests": "A" * 100_000},
    {"refused": [0]}, {"refused": ["3"]}, {"refused": list(range(1, 5000))}, {"written": None}, {"more": 1},
], ids=lambda record: str(record)[:30])  # fmt: skip
def test_a_record_of_another_version_is_not_used(store: Store, record: Any, caplog: pytest.LogCaptureFixture) -> None:
    first_try(store)
    whole = {**json.loads(store.values[CHECKPOINT_KEY]), **record} if isinstance(record, dict) and record else record
    store.values[CHECKPOINT_KEY] = json.dumps(whole)
    assert look_up(begin(store)) == [None] * 3
    assert "Everything is imported again: the record of an earlier try was not written by this version" in caplog.text
    assert store.values == {}


def test_a_record_that_cannot_be_read_is_deleted(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_try(store)
    monkeypatch.setattr(store, "get", lambda key: 1 / 0)
    assert look_up(begin(store)) == [None] * 3
    assert "Everything is imported again: the task state could not be read: division by zero" in caplog.text
    assert store.values == {}


def test_from_the_first_changed_row_on_everything_is_sent(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    first_try(store, 3, 25)
    again = begin(store)
    changed = CheckedRows(b"[]", range(11, 21), [])
    assert [again.lookup(*each) for each in ((0, 1, rows(0)), (1, 11, changed), (2, 21, rows(2)))] == [[3], None, None]
    assert "Everything from row 11 on is imported again" in caplog.text
    assert caplog.text.count(" chunks were accepted in earlier tries; those with unchanged rows") == 1
    assert look_up(begin(store)) == [[3], None, None], "these rows are not the latest at the service"


@pytest.mark.parametrize(("seconds", "interval"), [(0.0, 2.0), (1.0, 20.0)], ids=["store", "slow store"])
def test_the_record_is_written_from_time_to_time(store: Store, clock: Clock, seconds: float, interval: float) -> None:
    checkpoint = begin(store)
    look_up(checkpoint, 5)
    checkpoint.accepted(0, [])
    checkpoint.save(complete=True)
    assert store.writes == 0, "a short import needs none"
    store.seconds = seconds
    for number, (pause, writes) in enumerate([(1, 0), (1.5, 1), (interval / 2, 1), (interval, 2)]):
        clock.sleep(pause)
        checkpoint.accepted(number, [])
        assert store.writes == writes
    checkpoint.save()
    assert store.writes == 2, "nothing has changed"


def test_the_record_has_a_largest_size(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    def checked(chunk: int) -> CheckedRows:
        first = 90_000_001 + 2 * chunk
        return CheckedRows(b"[]", range(first, first + 2), [])

    checkpoint = begin(store)
    for chunk in range(5000):
        first = checked(chunk).numbers[0]
        assert checkpoint.lookup(chunk, first, checked(chunk)) is None
        checkpoint.accepted(chunk, [first] if chunk % 2 else [])
    checkpoint.save()
    assert 30_000 < len(store.values[CHECKPOINT_KEY]) < 45_000
    assert "The checkpoint holds at most 4000 chunks" in caplog.text

    again = begin(store)
    found = [again.lookup(chunk, checked(chunk).numbers[0], checked(chunk)) for chunk in range(5000)]
    # Chunks whose rejected rows were too many to be stored are sent as a whole.
    assert found[:4] == [[], [90_000_003], [], [90_000_007]]
    assert found[1998:2004] == [[], [90_003_999], [], None, [], None]
    assert found[3999:] == [None] * 1001


def test_the_record_shows_no_row_and_its_digests_need_the_key(clock: Clock) -> None:
    records = []
    for key in ("key", "key", "another"):
        store = Store(clock)
        checkpoint = begin(store, config=ClientConfig(**SETTINGS | {"api_key": key}))
        look_up(checkpoint)
        checkpoint.accepted(0, [3])
        checkpoint.save()
        assert "example" not in store.values[CHECKPOINT_KEY]
        record = json.loads(store.values[CHECKPOINT_KEY])
        records.append((record["digests"], record["settings"]))
    assert records[0] == records[1]
    assert not set(records[0]) & set(records[2])


@pytest.mark.parametrize(("total", "done", "others", "line"), [
    (100, 0, {"rejected": 0}, "0 rows done, 0 of them rejected, 0 rows/s"),
    (None, 1500, {}, "1,500 rows done, 150 rows/s"),
    (100, 60, {"earlier": 50, "rejected": 4},
     "60 rows done, 50 of them in earlier tries, 4 of them rejected, 1 rows/s, 60% of 100, about 40 s left"),
    (100, 120, {}, "120 rows done, 12 rows/s, 100% of 100, about 0 s left"),
    (None, 5, {"beside": "2 pushes"}, "2 pushes, 5 rows done, 0 rows/s"),
])  # fmt: skip
def test_a_line_shows_what_is_known(
    caplog: pytest.LogCaptureFixture, clock: Clock, total: int | None, done: int, others: dict[str, Any], line: str
) -> None:
    caplog.set_level(logging.INFO)
    shown = ProgressLog(logging.getLogger(), {})
    shown.expect(total)
    clock.sleep(10)
    assert shown.update(done, **others)
    assert caplog.messages == [line]


def test_progress_is_shown_when_it_is_due(caplog: pytest.LogCaptureFixture, clock: Clock) -> None:
    """A line every ten seconds, a record every thirty; a store that fails ends nothing."""

    def fail(*_: Any, **__: Any) -> None:
        raise ConnectionError("no API server")

    caplog.set_level(logging.DEBUG)
    context: Any = {"task_state_store": SimpleNamespace(set=fail, delete=fail), "ti": SimpleNamespace(try_number=1)}
    shown = ProgressLog(logging.getLogger(), context)
    due = []
    for _ in range(9):
        clock.sleep(6)
        due.append(shown.update(5))
    assert due == [False, True, False, True, False, True, False, True, False]
    assert caplog.text.count("The progress could not be stored: no API server") == 1
    shown.close()
    assert caplog.text.count("The progress could not be stored: no API server") == 2


def test_a_running_import_has_its_progress_in_the_store(emulator: Emulator, clock: Clock) -> None:
    tries, stored = Tries(emulator, has_store=True), dict[str, Any]()

    def rows() -> Iterator[dict[str, str]]:
        yield from ({"email": f"{number}@example.com"} for number in range(40))
        stored.update(tries.store.get(PROGRESS_KEY))

    with at_every_request(emulator, "contacts/imports", lambda _: clock.sleep(40)):
        tries.run(MailImportContactsOperator(task_id="task", contacts=rows, chunk_size=1, max_in_flight=1))
    assert stored["rejected"] == 0
    assert 0 < stored["done"] < 40
    assert PROGRESS_KEY not in tries.store.values
    tries.store.set(PROGRESS_KEY, {"done": 5})  # by a try that was killed
    tries.run(MailImportContactsOperator(task_id="task", contacts=[{"email": "ada@example.com"}]))
    assert PROGRESS_KEY not in tries.store.values


def test_a_list_that_was_deleted_since_the_try_before_gets_everybody(emulator: Emulator) -> None:
    tries = Tries(emulator, has_store=True)
    people = [*({"email": f"{number}@example.com"} for number in range(4)), {"email": "!"}]
    for sent in (4, 0, 4):
        emulator.journal.clear()
        with pytest.raises(AirflowFailException, match="the other 4 rows were accepted"):
            tries.run(
                MailImportContactsOperator(
                    task_id="task", contacts=people, list_name="all", chunk_size=1, max_in_flight=1
                )
            )
        assert emulator.journal.count("contacts/imports") == sent
        assert emulator.contact_count("all") == 4
        if not sent:
            executed(MailDeleteListOperator(task_id="delete", list_name="all"))
