"""The stored checkpoint of an import, without a task: what was accepted and is unchanged is not sent again."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_mail._task import import_checkpoint
from airflow_provider_mail._task.import_checkpoint import KEY, StoredImportCheckpoint
from airflow_provider_mail._task.import_checkpoint import import_checkpoint as of_task
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.flows.import_plan import ImportPlan
from airflow_provider_mail.api.flows.validate_rows import CheckedRows, Reject

PLAN = ImportPlan(properties=("email", "name"), list_name="vip", chunk_size=10)
CONFIG = ClientConfig(base_url="https://api.example.com", api_key="key")
LOG = logging.getLogger("test.checkpoint")


class Store:
    """Keeps the record as JSON, or fails."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.retention: Any = None
        self.broken = False
        self.writes = 0

    def _work(self) -> None:
        if self.broken:
            raise RuntimeError("no store today")

    def get(self, key: str, default: Any) -> Any:
        self._work()
        return json.loads(self.kept[key]) if key in self.kept else default

    def set(self, key: str, record: Any, *, retention: Any) -> None:
        self.writes += 1
        self._work()
        self.kept[key], self.retention = json.dumps(record), retention

    def delete(self, key: str) -> None:
        self._work()
        self.kept.pop(key, None)


def rows(chunk: int, text: str = "", rejects: Sequence[int] = ()) -> CheckedRows:
    """Ten rows, of which the rejected ones are not valid."""
    numbers = [number for number in range(10 * chunk + 1, 10 * chunk + 11) if number not in rejects]
    encoded = json.dumps([[f"{text}{number}@example.com", None] for number in numbers]).encode()
    return CheckedRows(
        encoded, numbers, [Reject(row_number=number, field="email", reason="wrong", row=()) for number in rejects]
    )


def begin(store: Store, plan: ImportPlan = PLAN, config: ClientConfig = CONFIG) -> StoredImportCheckpoint:
    checkpoint = StoredImportCheckpoint(store, LOG)
    checkpoint.load(plan, config)
    return checkpoint


def ask(checkpoint: StoredImportCheckpoint, chunks: int = 3, **texts: str) -> list[Sequence[int] | None]:
    """What to send again of each chunk; `c1="x"` gives the second one other rows."""
    return [
        checkpoint.lookup(number, 10 * number + 1, rows(number, texts.get(f"c{number}", "")))
        for number in range(chunks)
    ]


def first_try(*refused: int, chunks: int = 3) -> Store:
    """A store after a try whose chunks were accepted, but for some rows."""
    store = Store()
    checkpoint = begin(store)
    assert ask(checkpoint, chunks) == [None] * chunks
    for number in range(chunks):
        checkpoint.accepted(number, [row for row in refused if row in rows(number).numbers])
    checkpoint.save()
    return store


def test_what_was_accepted_is_not_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    store = first_try()
    assert store.retention == timedelta(days=1)
    assert ask(begin(store), chunks=5) == [[], [], [], None, None]
    assert "3 chunks were accepted in earlier tries" in caplog.text
    assert "Resumed: 30 rows were accepted in earlier tries and are not sent; continuing with row 31." in caplog.text
    assert caplog.text.count("Resumed") == 1


def test_only_what_was_accepted_is_skipped() -> None:
    store = Store()
    checkpoint = begin(store)
    ask(checkpoint)
    checkpoint.accepted(2, [])
    checkpoint.accepted(0, [])
    checkpoint.accepted(9, [])
    checkpoint.save()
    assert ask(begin(store)) == [[], None, []]


def test_rejected_rows_are_sent_again_and_forgotten_when_accepted() -> None:
    store = first_try(4, 12, 13)
    checkpoint = begin(store)
    assert ask(checkpoint) == [[4], [12, 13], []]
    checkpoint.accepted(1, [13])
    checkpoint.save()
    assert ask(begin(store)) == [[4], [13], []]


def test_other_rows_discard_what_comes_after(caplog: pytest.LogCaptureFixture) -> None:
    store = first_try(4, 11, 25)
    checkpoint = begin(store)
    assert ask(checkpoint, c1="new") == [[4], None, None]
    assert "Everything from row 11 on is imported again" in caplog.text
    # At once: the rows of the first try must not count as accepted if they return.
    assert ask(begin(store)) == [[4], None, None]
    checkpoint.accepted(1, [])
    checkpoint.save()
    assert ask(begin(store), c1="new") == [[4], [], None]


def test_rows_that_became_invalid_or_moved_are_other_rows() -> None:
    store = first_try()
    assert begin(store).lookup(0, 1, rows(0, rejects=[3])) is None
    store = first_try()
    assert begin(store).lookup(0, 2, rows(0)) is None


@pytest.mark.parametrize(
    ("plan", "config"),
    [
        (replace(PLAN, list_name="other"), CONFIG),
        (replace(PLAN, properties=("email", "city")), CONFIG),
        (replace(PLAN, chunk_size=11), CONFIG),
        (PLAN, CONFIG.model_copy(update={"sandbox": True})),
        (PLAN, ClientConfig(base_url="https://api.example.com", api_key="another")),
        (PLAN, ClientConfig(base_url="https://other.example.com", api_key="key")),
    ],
    ids=["list", "properties", "size", "sandbox", "key", "host"],
)
def test_other_settings_import_everything(
    plan: ImportPlan, config: ClientConfig, caplog: pytest.LogCaptureFixture
) -> None:
    store = first_try()
    assert ask(begin(store, plan, config)) == [None] * 3
    assert "with other settings or to another account" in caplog.text
    assert KEY not in store.kept, "the first settings may return, and this try has sent newer rows"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"written": 0}, "older than a day"),
        ({"version": 2}, "not written by this version"),
        ({"digests": "AAAA"}, "not written by this version"),
        ({"digests": "?"}, "not written by this version"),
        ({"refused": [0]}, "not written by this version"),
        ({"more": 1}, "not written by this version"),
    ],
    ids=str,
)
def test_a_record_that_is_old_or_not_understood_imports_everything(
    change: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = first_try()
    store.kept[KEY] = json.dumps({**json.loads(store.kept[KEY]), **change})
    assert ask(begin(store)) == [None] * 3
    assert reason in caplog.text
    assert KEY not in store.kept


def test_a_record_is_good_for_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    store = first_try()
    written = json.loads(store.kept[KEY])["written"]
    monkeypatch.setattr(import_checkpoint.time, "time", lambda: written + 24 * 3600.0)
    assert ask(begin(store)) == [[], [], []]


def test_a_store_that_does_not_work_ends_no_import(caplog: pytest.LogCaptureFixture) -> None:
    store = first_try()
    store.broken = True
    checkpoint = begin(store)
    assert ask(checkpoint) == [None] * 3
    assert "Everything is imported again: the task state could not be read: no store today" in caplog.text
    assert "could not be deleted, so the next try may skip accepted rows: no store today" in caplog.text
    checkpoint.accepted(0, [])
    checkpoint.save()
    assert "could not be written, so the next try may send more again: no store today" in caplog.text
    store.broken = False
    checkpoint.save()
    assert ask(begin(store)) == [[], None, None]


def test_the_record_is_written_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(import_checkpoint.time, "monotonic", lambda: now)
    store = Store()
    checkpoint = begin(store)
    ask(checkpoint, 4)
    for number, (seconds, writes) in enumerate([(1.9, 0), (0.1, 1), (1.9, 1), (0.1, 2)]):
        now += seconds
        checkpoint.accepted(number, [])
        assert store.writes == writes
    checkpoint.save()
    assert store.writes == 2, "nothing has changed"


def test_the_record_has_a_largest_size(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(import_checkpoint, "MAX_CHUNKS", 2)
    store = first_try()
    assert "The checkpoint holds at most 2 chunks: the next try sends all others again." in caplog.text
    assert ask(begin(store), 4) == [[], [], None, None]


def test_a_chunk_with_too_many_rejected_rows_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_checkpoint, "MAX_REJECTED", 3)
    store = first_try(1, 2, 3, 14)
    assert ask(begin(store)) == [[1, 2, 3], None, []]


def test_a_task_has_a_checkpoint_where_airflow_has_a_store() -> None:
    context: Any = {"task_state_store": first_try()}
    checkpoint = of_task(context, LOG)
    assert checkpoint is not None
    checkpoint.load(PLAN, CONFIG)
    assert ask(checkpoint) == [[], [], []]
    context.clear()
    assert of_task(context, LOG) is None
