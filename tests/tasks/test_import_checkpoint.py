"""The stored checkpoint of an import: when it is not believed, how often it is written, and how large it gets.

That no row is lost, whatever happens to it, is shown by `tests/machines/test_importing.py`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.flows.upload_chunks import ImportPlan
from airflow_provider_mail.api.flows.validate_rows import CheckedRows
from tests.support.clock import Clock
from tests.support.task_parts import CHECKPOINT_KEY, StoredImportCheckpoint

PLAN = ImportPlan(properties=("email", "name"), list_name="vip", list_description="V", chunk_size=10)
SETTINGS: dict[str, Any] = {"base_url": "https://api.example.com", "api_key": "key"}
CONFIG = ClientConfig(**SETTINGS)
DAY = 24 * 3600
AIRFLOWS_LIMIT = 65_535


class Store:
    """Keeps the record as JSON; each access takes some seconds."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.kept: dict[str, str] = {}
        self.retention: Any = None
        self.writes = 0
        self.seconds = 0.0

    def get(self, key: str, default: Any) -> Any:
        self.clock.sleep(self.seconds)
        return json.loads(self.kept[key]) if key in self.kept else default

    def set(self, key: str, record: Any, *, retention: Any) -> None:
        self.writes += 1
        self.clock.sleep(self.seconds)
        self.kept[key], self.retention = json.dumps(record), retention

    def delete(self, key: str) -> None:
        self.clock.sleep(self.seconds)
        self.kept.pop(key, None)


@pytest.fixture
def store(clock: Clock) -> Store:
    return Store(clock)


def rows(chunk: int) -> CheckedRows:
    """Ten valid rows."""
    numbers = range(10 * chunk + 1, 10 * chunk + 11)
    return CheckedRows(json.dumps([[f"{number}@example.com", None] for number in numbers]).encode(), numbers, [])


def begin(store: Store, plan: ImportPlan = PLAN, config: ClientConfig = CONFIG) -> StoredImportCheckpoint:
    checkpoint = StoredImportCheckpoint(store, logging.getLogger("test.checkpoint"))
    checkpoint.load(plan, config)
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


@pytest.mark.parametrize(
    ("plan", "config"),
    [
        *(({"list_name": "other"}, {}), ({"list_description": "other"}, {}), ({"properties": ("email", "city")}, {})),
        *(({"chunk_size": 11}, {}), ({"sandbox_mode": True}, {}), ({}, {"sandbox": True})),
        *(({}, {"api_key": "another"}), ({}, {"base_url": "https://other.example.com"})),
    ],
    ids=str,
)
def test_other_settings_import_everything(
    store: Store, plan: dict[str, Any], config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    first_try(store)
    assert look_up(begin(store, replace(PLAN, max_in_flight=1))) == [[], [], []], "that makes no difference"
    assert look_up(begin(store, replace(PLAN, **plan), ClientConfig(**SETTINGS | config))) == [None] * 3
    assert "with other settings or to another account" in caplog.text
    assert store.kept == {}, "the first settings may return, and this try has sent newer rows"


@pytest.mark.parametrize("record", [
    0, "text", [1, 2], {}, {"version": 2}, {"digests": "AAAA"}, {"digests": "?"}, {"digests": "A" * 100_000},
    {"refused": [0]}, {"refused": ["3"]}, {"refused": list(range(1, 5000))}, {"written": None}, {"more": 1},
], ids=lambda record: str(record)[:30])  # fmt: skip
def test_a_record_of_another_version_is_not_used(store: Store, record: Any, caplog: pytest.LogCaptureFixture) -> None:
    first_try(store)
    whole = {**json.loads(store.kept[CHECKPOINT_KEY]), **record} if isinstance(record, dict) and record else record
    store.kept[CHECKPOINT_KEY] = json.dumps(whole)
    assert look_up(begin(store)) == [None] * 3
    assert "Everything is imported again: the record of an earlier try was not written by this version" in caplog.text
    assert store.kept == {}


def test_a_record_that_cannot_be_read_is_deleted(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_try(store)

    def away(key: str, default: Any) -> Any:
        raise RuntimeError("away")

    monkeypatch.setattr(store, "get", away)
    assert look_up(begin(store)) == [None] * 3
    assert "Everything is imported again: the task state could not be read: away" in caplog.text
    assert store.kept == {}


def test_from_the_first_changed_row_on_everything_is_sent(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    first_try(store, 3, 25)
    again = begin(store)
    changed = CheckedRows(b"[]", range(11, 21), [])
    assert [again.lookup(*each) for each in ((0, 1, rows(0)), (1, 11, changed), (2, 21, rows(2)))] == [[3], None, None]
    assert "Everything from row 11 on is imported again" in caplog.text
    assert caplog.text.count("Resumed: 9 rows were accepted in earlier tries") == 1
    assert look_up(begin(store)) == [[3], None, None], "these rows are not the latest at the service"


@pytest.mark.parametrize(("seconds", "interval"), [(0.0, 2.0), (1.0, 20.0)], ids=["store", "slow store"])
def test_the_record_is_written_from_time_to_time(store: Store, clock: Clock, seconds: float, interval: float) -> None:
    checkpoint = begin(store)
    look_up(checkpoint, 5)
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
    assert 30_000 < len(store.kept[CHECKPOINT_KEY]) < 45_000 < AIRFLOWS_LIMIT
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
        assert "example" not in store.kept[CHECKPOINT_KEY]
        record = json.loads(store.kept[CHECKPOINT_KEY])
        records.append((record["digests"], record["settings"]))
    assert records[0] == records[1]
    assert not set(records[0]) & set(records[2])


@pytest.mark.parametrize(("seconds", "writes"), [(0.5, 0), (3, 2)])
def test_a_short_complete_import_needs_no_record(store: Store, clock: Clock, seconds: float, writes: int) -> None:
    checkpoint = begin(store)
    look_up(checkpoint, 2)
    for number in range(2):
        clock.sleep(seconds)
        checkpoint.accepted(number, [])
    checkpoint.save(complete=True)
    assert store.writes == writes
    checkpoint.clear()
    assert store.kept == {}
