"""The progress of a task: in its log, and in the task state store, which Airflow 3.3 shows in its UI."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import get_current_context

from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from mail_emulator import Emulator
from tests.support.changes import at_every_request
from tests.support.clock import Clock
from tests.support.dags import AIRFLOW_VERSION
from tests.support.task_parts import PROGRESS_KEY, ProgressLog, TaskProgress
from tests.support.tries import StateStore
from tests.tasks.conftest import TASK, Run


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (TaskProgress(0, 0.0, 100, rejected=0), "0 rows done, 0 of them rejected, 0 rows/s"),
        (TaskProgress(1500, 10.0), "1,500 rows done, 150 rows/s"),
        (
            TaskProgress(60, 10.0, 100, earlier=50, rejected=4),
            "60 rows done, 50 of them in earlier tries, 4 of them rejected, 1 rows/s, 60% of 100, about 40 s left",
        ),
        (TaskProgress(120, 10.0, 100), "120 rows done, 12 rows/s, 100% of 100, about 0 s left"),
        (TaskProgress(5, 10.0, beside="2 pushes"), "2 pushes, 5 rows done, 0 rows/s"),
    ],
    ids=str,
)
def test_a_line_shows_what_is_known(progress: TaskProgress, line: str) -> None:
    assert progress.line("rows") == line


class FailingStore:
    """A task state store that is not reached."""

    def set(self, *_: Any, **__: Any) -> None:
        raise ConnectionError("no API server")

    delete = set


def task_context(store: Any, try_number: int = 1) -> Any:
    return {"task_state_store": store, "ti": SimpleNamespace(try_number=try_number)}


def test_the_next_try_deletes_what_a_killed_one_has_stored() -> None:
    store = StateStore()
    store.set(PROGRESS_KEY, {"done": 5})
    ProgressLog(logging.getLogger(), task_context(store, try_number=1)).close()
    assert PROGRESS_KEY in store.values
    ProgressLog(logging.getLogger(), task_context(store, try_number=2)).close()
    assert store.values == {}


def test_progress_is_shown_when_it_is_due(caplog: pytest.LogCaptureFixture, clock: Clock) -> None:
    """A line every ten seconds, a record every thirty; a store that fails ends nothing."""
    caplog.set_level(logging.DEBUG)
    shown = ProgressLog(logging.getLogger(), task_context(FailingStore()))
    due = []
    for _ in range(9):
        clock.sleep(6)
        due.append(shown.update(5))
    assert due == [False, True, False, True, False, True, False, True, False]
    assert caplog.text.count("The progress could not be stored: no API server") == 1
    shown.close()
    assert caplog.text.count("The progress could not be stored: no API server") == 2


@pytest.mark.skipif(AIRFLOW_VERSION < (3, 3), reason="a task state store came with Airflow 3.3")
def test_a_running_import_has_its_progress_in_the_store(run: Run, emulator: Emulator, clock: Clock) -> None:
    def rows() -> Iterator[dict[str, str]]:
        for number in range(40):
            yield {"email": f"{number}@example.com"}
        print("stored:", json.dumps(get_current_context()["task_state_store"].get(PROGRESS_KEY)))

    with at_every_request(emulator, "contacts/imports", lambda _: clock.sleep(40)):
        done = run(lambda: MailImportContactsOperator(task_id=TASK, contacts=rows, chunk_size=1, max_in_flight=1))

    assert done.state == "success"
    (stored,) = (line.partition("stored:")[2] for line in done.log.splitlines() if "stored:" in line)
    record = json.JSONDecoder().raw_decode(stored.strip())[0]
    assert record["rejected"] == 0
    assert 0 < record["done"] < 40
    assert PROGRESS_KEY not in done.result.state_store(TASK)
