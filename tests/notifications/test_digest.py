"""A digest: the first alert at once, and one summary of those of the window after it."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.sqlite.hooks.sqlite import SqliteHook

from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.notifications.mail import MailNotifier, send_digests
from mail_emulator import Emulator
from tests.notifications.conftest import DEADLINE, PEOPLE, addressees, notify
from tests.support.memory_parts import new_memory
from tests.tasks.conftest import Run
from tests.tasks.sending import SENDS
from tests.tasks.test_example_dags import example

DIGEST = datetime.timedelta(minutes=10)


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqliteHook:
    """The database of the configured memory."""
    connection = {"conn_type": "sqlite", "host": str(tmp_path / "memory.db")}
    monkeypatch.setenv("AIRFLOW_CONN_MEMORY", json.dumps(connection))
    new_memory("memory", monkeypatch)
    return SqliteHook("memory")


def fail(task_id: str = "load", **arguments: Any) -> None:
    """Report a task that has failed."""
    ti = {"dag_id": "orders", "task_id": task_id, "run_id": "r", "map_index": -1, "try_number": 1, "state": "failed"}
    error = ValueError(f"<b>{task_id}</b> {{{{no}}}}\nmore")
    notify({"ti": ti | arguments, "exception": error}, digest=DIGEST, to=PEOPLE)


def pass_window(memory: SqliteHook) -> None:
    """Let the windows, and the claims of processes that died, be over."""
    memory.run("UPDATE mail_memory_alerts SET happened_at = happened_at - 3600, due_at = due_at - 3600")


def stored(memory: SqliteHook) -> list[str]:
    rows = memory.get_records("SELECT state FROM mail_memory_alerts WHERE alert <> '' ORDER BY state")
    return [state for (state,) in rows]


def test_the_first_at_once_and_one_summary(emulator: Emulator, memory: SqliteHook) -> None:
    for index in range(5):
        fail(map_index=index)
    fail("report")
    assert [message["subject"] for message in emulator.messages()] == ["Failed: orders.load[0]"]
    assert send_digests() == 0
    pass_window(memory)
    assert send_digests() == 1
    _, summary = emulator.messages()
    assert addressees(summary) == PEOPLE
    assert summary["subject"] == "5 alerts: Failed: orders.load and 1 more"
    for text in ("4 &times; Failed: orders.load<", "Failed: orders.report<", "/mapped/4?try_number=1", "&lt;b&gt;load"):
        assert text in summary["content"].replace("</div>\n", "<")
    assert "{{" not in summary["content"]
    assert "may have been" not in summary["content"]
    assert stored(memory) == []
    assert send_digests() == 0
    # The summary has opened the next window. After it, the next alert sends what waits.
    fail("third")
    assert len(emulator.messages()) == 2
    pass_window(memory)
    fail("fourth")
    assert emulator.messages()[-1]["subject"] == "2 alerts: Failed: orders.fourth and 1 more"
    pass_window(memory)
    fail("fifth")
    assert emulator.messages()[-1]["subject"] == "Failed: orders.fifth"


def test_other_recipients_have_a_digest_of_their_own(emulator: Emulator, memory: SqliteHook) -> None:
    for to in ("ada@example.com", "bob@example.com", "ada@example.com"):
        notify(DEADLINE, to=to, digest=DIGEST)
    notify(DEADLINE, to="ada@example.com", digest=DIGEST, subject="Late")
    assert [addressees(message) for message in emulator.messages()] == [["ada@example.com"], ["bob@example.com"]]
    pass_window(memory)
    assert send_digests() == 1
    assert emulator.messages()[-1]["subject"] == "2 alerts: Deadline missed: orders and 1 more"


def test_alerts_of_a_mail_that_was_not_sent_wait_for_the_summary(
    emulator: Emulator, memory: SqliteHook, caplog: pytest.LogCaptureFixture
) -> None:
    emulator.faults.add("code_before", SENDS, code=403, count=2)
    fail()
    assert "Mail: not sent" in caplog.text
    fail("report")
    assert stored(memory) == ["waiting", "waiting"]
    pass_window(memory)
    with pytest.raises(MailError, match="403"):
        send_digests()
    assert stored(memory) == ["waiting", "waiting"]
    pass_window(memory)
    assert send_digests() == 1
    (summary,) = emulator.messages()
    assert "may have been" not in summary["content"]


def test_an_alert_in_doubt_is_in_the_next_summary_which_says_so(emulator: Emulator, memory: SqliteHook) -> None:
    emulator.faults.add("close_after", SENDS, count=2)
    fail()
    fail("report")
    assert stored(memory) == ["in doubt", "waiting"]
    for sent in (2, 3):
        pass_window(memory)
        if sent == 2:
            with pytest.raises(MailError, match="may have been"):
                send_digests()
            assert stored(memory) == ["in doubt", "in doubt"]
        else:
            fail("third")
        summary = emulator.messages()[-1]
        assert summary["subject"] == f"{sent} alerts: Failed: orders.load and {sent - 1} more"
        assert summary["content"].count("1 of them may have been in an earlier mail") == sent - 1
    assert stored(memory) == []


def test_an_alert_that_cannot_be_stored_is_sent_alone(
    emulator: Emulator, memory: SqliteHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.run("DROP TABLE mail_memory_alerts")
    fail()
    fail()
    for message in emulator.messages():
        assert message["subject"] == "Failed: orders.load"
        assert "digest: sent alone, because the alert could not be stored: " in message["content"]
    assert len(emulator.messages()) == 2
    monkeypatch.delenv("AIRFLOW__MAIL__MEMORY_CONN_ID")
    with pytest.raises(MailError, match="memory_conn_id is not set"):
        send_digests()
    fail()
    assert (
        "digest: sent alone, because the alert could not be stored: digest: [mail] memory_conn_id is not set"
        in (emulator.messages()[-1]["content"])
    )
    wrong: Any
    for wrong in (datetime.timedelta(), 600):
        with pytest.raises(ValueError, match="digest: a timedelta"):
            MailNotifier(to=PEOPLE, digest=wrong)


def test_another_secret_is_told(emulator: Emulator, memory: SqliteHook, monkeypatch: pytest.MonkeyPatch) -> None:
    fail()
    fail()
    pass_window(memory)
    monkeypatch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", "another")
    with pytest.raises(MailError, match=r"hidden by another secret: give \[mail\] audience_key"):
        send_digests()


def test_the_example(run: Run, emulator: Emulator, memory: SqliteHook) -> None:
    for rows in (0, 0, 5):
        done = run(example("mail_digest"), conf={"rows": rows})
        assert done.result.xcom("send_summaries") == (1 if rows else 0), done.log
        pass_window(memory)
    subjects = [message["subject"].partition(": Failed: mail_digest.load_")[0] for message in emulator.messages()]
    assert [subject.partition(":")[0] for subject in subjects] == ["Failed", "3 alerts", "2 alerts"]
