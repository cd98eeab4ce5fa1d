"""The progress of a task: in its log, and in the task state store, which Airflow 3.3 shows in its UI."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.sdk import get_current_context

from airflow_provider_mail._task import progress
from airflow_provider_mail._task.progress import STATE_KEY, ProgressLog, TaskProgress
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.transfers.mail_to_sql import MailContactsToSqlOperator
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.conftest import TASK, Run, SqlDatabase


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (TaskProgress(0, 0.0, 100, rejected=0), "0 rows done, 0 of them rejected, 0 rows/s"),
        (TaskProgress(1500, 10.0), "1,500 rows done, 150 rows/s"),
        (TaskProgress(1500, 10.0, 0), "1,500 rows done, 150 rows/s"),
        (TaskProgress(25, 10.0, 100), "25 rows done, 2 rows/s, 25% of 100, about 30 s left"),
        (
            TaskProgress(60, 10.0, 100, earlier=50, rejected=4),
            "60 rows done, 50 of them in earlier tries, 4 of them rejected, 1 rows/s, 60% of 100, about 40 s left",
        ),
        (TaskProgress(120, 10.0, 100), "120 rows done, 12 rows/s, 100% of 100, about 0 s left"),
        (TaskProgress(50, 10.0, 100, earlier=50), "50 rows done, 50 of them in earlier tries, 0 rows/s"),
        (TaskProgress(5, 10.0, beside="2 pushes"), "2 pushes, 5 rows done, 0 rows/s"),
    ],
    ids=str,
)
def test_lines(progress: TaskProgress, line: str) -> None:
    assert progress.line("rows") == line


def test_records_leave_out_what_is_not_known() -> None:
    known = TaskProgress(25, 10.0, 100, rejected=1).record()
    at = datetime.fromisoformat(known.pop("at"))
    assert abs((datetime.now(UTC) - at).total_seconds()) < 60
    assert known == {
        "done": 25,
        "rejected": 1,
        "per_second": 2.5,
        "total": 100,
        "share": 0.25,
        "seconds_left": 30,
    }
    assert TaskProgress(25, 10.0).record().keys() == {"done", "per_second", "at"}


class FailingStore:
    """A task state store that is not reached."""

    def set(self, *_: Any, **__: Any) -> None:
        raise ConnectionError("no API server")

    delete = set


def test_a_store_that_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(progress, "LOG_INTERVAL", 0.0)
    monkeypatch.setattr(progress, "STORE_INTERVAL", 0.0)
    caplog.set_level(logging.DEBUG)
    shown = ProgressLog(logging.getLogger(), {"task_state_store": FailingStore()})  # type: ignore[typeddict-item]
    assert shown.update(5)
    shown.close()
    assert caplog.text.count("The progress could not be stored: no API server") == 2


def test_nothing_is_shown_before_its_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shown = ProgressLog(logging.getLogger(), {"task_state_store": FailingStore()})  # type: ignore[typeddict-item]
    assert not shown.update(5)
    shown.close()
    assert caplog.text == ""


@pytest.mark.skipif(AIRFLOW_VERSION < (3, 3), reason="a task state store came with Airflow 3.3")
def test_a_running_import_has_its_progress_in_the_store(
    run: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LOG_INTERVAL", 0.0)
    monkeypatch.setattr(progress, "STORE_INTERVAL", 0.0)
    monkeypatch.setattr(progress, "STORE_SHARE", 0)  # on a busy machine the store is slow

    def rows() -> Iterator[dict[str, str]]:
        for number in range(40):
            yield {"email": f"{number}@example.com"}
        print("stored:", json.dumps(get_current_context()["task_state_store"].get(STATE_KEY)))

    done = run(lambda: MailImportContactsOperator(task_id=TASK, contacts=rows, chunk_size=1, max_in_flight=1))

    assert done.state == "success"
    (stored,) = (line.partition("stored:")[2] for line in done.log.splitlines() if "stored:" in line)
    record = json.JSONDecoder().raw_decode(stored.strip())[0]
    assert record["rejected"] == 0
    assert 30 <= record["done"] <= 40
    assert STATE_KEY not in done.result.state_store(TASK)


def test_a_load_has_the_total_of_the_service(
    run: Run, emulator: Emulator, warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LOG_INTERVAL", 0.0)
    emulator.add_list("news", count=4)

    done = run(
        lambda: MailContactsToSqlOperator(
            task_id=TASK, sql_conn_id=warehouse.conn_id, list_name="news", page_size=1, max_in_flight=1
        )
    )

    assert done.state == "success"
    assert "1 records done" in done.log
    assert "25% of 4" in done.log
    assert "100% of 4, about 0 s left" in done.log
