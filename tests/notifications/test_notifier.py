"""The notifier where Airflow calls it: in tasks that fail, are tried again or succeed, and for runs."""

from __future__ import annotations

import asyncio
import datetime
import logging
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from airflow.sdk import DAG, BaseNotifier, get_current_context, task

from airflow_provider_mail.notifications.mail import MailNotifier, send_mail_notification
from airflow_provider_mail.version_compat import mask_secret
from mail_emulator import Emulator
from tests.notifications.conftest import AIRFLOW, DEADLINE, PEOPLE, addressees, bodies, notify
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.conftest import Connect, Run
from tests.tasks.test_example_dags import example

RETRIES = {"retries": 1, "retry_delay": datetime.timedelta(0)}
FAILED_RUN = {"dag_id": "orders", "run_id": "r", "clear_number": 0, "start_date": "2026-01-31T06:00:00Z"}
FAILED_TASK = {"dag_id": "orders", "task_id": "load", "run_id": "r", "map_index": 1, "try_number": 1, "state": "failed"}
DIED = {"dag_id": "orders", "task_id": "load", "run_id": "r"}


def test_the_notifier_is_one_of_airflows() -> None:
    assert send_mail_notification is MailNotifier
    assert issubclass(MailNotifier, BaseNotifier)
    arguments = dict.fromkeys(MailNotifier.template_fields, "x")
    assert vars(MailNotifier(**arguments)).items() >= arguments.items()
    with pytest.raises(TypeError, match="recipient"):
        MailNotifier(to="ada@example.com", recipient="bob@example.com")


def test_a_task_with_a_question_that_is_tried_again_and_fails(
    run: Run, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    """Each event has a mail of its own."""
    notifier = MailNotifier(to=PEOPLE, category="Alerts")
    started = MailNotifier(
        to=["{{ ti.task_id }}@example.com"], subject="{{ ti.task_id }}: {{ ti.try_number }}",
        content="<p>{{ dag.dag_id }}</p>", sender_name="{{ ti.task_id }}",
    )  # fmt: skip

    def build() -> None:
        @task(on_execute_callback=started, on_retry_callback=notifier, on_failure_callback=notifier, **RETRIES)
        def load() -> None:
            context = get_current_context()
            asking = SimpleNamespace(subject="Send to 10,000?", body="*Checked*.\nSend <now>?", options=["Approve"])
            if context["ti"].try_number == 1:
                MailNotifier(to="ada@example.com")({**context, "task": asking})
            raise ValueError("no")

        load()

    done = run(build)
    assert done.result.state == "failed"
    name = f"{done.result.dag_id}.load"
    page = f"{AIRFLOW}/dags/{done.result.dag_id}/runs/{quote(done.result.run_id, safe='')}"
    first, question, retried, again, failed = emulator.messages()
    for number, message in enumerate((first, again), 1):
        assert (addressees(message), message["sender_name"]) == (["load@example.com"], "load")
        assert (message["subject"], message["content"]) == (f"load: {number}", f"<p>{done.result.dag_id}</p>")
    assert question["subject"] == "Decision needed: Send to 10,000?"
    assert "*Checked*.\nSend &lt;now&gt;?" in question["content"]
    assert "/tasks/load/required_actions?map_index=-1" in question["content"]
    assert [retried["subject"], failed["subject"]] == [f"Failed, will retry: {name} (try 1 of 2)", f"Failed: {name}"]
    assert retried["unique_msg_id"] != failed["unique_msg_id"]
    assert (addressees(failed), failed["sender"], failed["category"]) == (PEOPLE, "news@example.com", "Alerts")
    for text in ("2 of 2", f'href="{page}/tasks/load?try_number=2"', f'href="{page}"'):
        assert text in failed["content"]
    assert f"Mail: accepted for 2 recipients, uniqueMsgID {failed['unique_msg_id']}." in caplog.text
    assert not [address for address in PEOPLE for log in (done.log, caplog.text) if address in log]


def test_the_error_is_shown_without_secrets_addresses_and_tags(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No other test masks its beginning: which of two would be replaced is left to chance.
    mask_secret("unheard-of-4711")
    monkeypatch.setenv("AIRFLOW__API__INSTANCE_NAME", "<b>")
    error = ValueError("<b>no</b> password for jane@example.com: unheard-of-4711 in {{rows}}\n" + "more\n" * 50)
    ids = {"dag_id": '<script>"', "task_id": "</div><img src=x onerror=alert(1)>", "run_id": "r"}
    notify({"exception": error, "ti": SimpleNamespace(**ids)})
    content = emulator.messages()[0]["content"]
    assert "ValueError: &lt;b&gt;no&lt;/b&gt; password for ***@example.com: *** in &#123;&#123;rows}}\nmore" in content
    assert content.count("more\n") < 20
    assert not [tag for tag in ("<script>", "<img", "<b>") if tag in content]


@pytest.mark.parametrize(
    ("context", "other"),
    [
        *(({"dag_run": FAILED_RUN, "reason": "task_failure"}, other) for other in (
            {"dag_run": FAILED_RUN | {"clear_number": 1}}, {"dag_run": FAILED_RUN | {"run_id": "other"}},
            {"reason": "success"},
        )),
        *(({"ti": FAILED_TASK}, {"ti": FAILED_TASK | other})
          for other in ({"try_number": 2}, {"map_index": 2}, {"state": "up_for_retry"}, {"task_id": "loads"})),
        (DEADLINE, {"deadline": {**DEADLINE["deadline"], "id": "0200"}}),
    ],
)  # fmt: skip
def test_each_event_has_an_id_of_its_own(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, context: dict[str, Any], other: dict[str, Any]
) -> None:
    """A callback that Airflow runs twice can be recognized by it."""
    for each in (context, context, context | other):
        notify(each, subject="Orders", content="<p>No</p>")
    notify(context, subject="Orders", content="<p>Of another notifier</p>")
    monkeypatch.setenv("AIRFLOW__MAIL__NAME_PREFIX", "staging")
    notify(context, subject="Orders", content="<p>No</p>")
    first, again, *others = [message["unique_msg_id"] for message in emulator.messages()]
    assert first == again
    assert len({first, *others}) == 4, "another event, notifier or deployment"


@pytest.mark.parametrize(
    "context", [{"run_id": "r", "dag": DAG("orders", schedule=None), "reason": "task_failure"}, {"ti": DIED}]
)
def test_events_that_look_the_same_share_no_id(emulator: Emulator, context: dict[str, Any]) -> None:
    """As Airflow 3.0 reports a run: its failure, and its failure after it was cleared."""
    for _ in range(2):
        notify(context)
    first, second = emulator.messages()
    assert first["unique_msg_id"] != second["unique_msg_id"]


def test_what_is_rendered_to_nothing_has_its_default(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    names = [name for name in MailNotifier.template_fields if name != "to"]
    for nothing in ("{{ none }}", " {{ ti.nothing }} ", "{{ '' }}", "{{ none if ti else '' }}"):
        notify({"ti": FAILED_TASK}, **dict.fromkeys(names, nothing))
        message = emulator.messages()[-1]
        assert (message["subject"], message["sender"]) == ("Failed: orders.load[1]", "news@example.com")
        assert (message["sender_name"], "orders" in message["content"]) == ("Airflow", True)
        assert not {"category", "replyTo", "attachment"} & set(bodies(emulator)[-1])
        assert all(f"{name}: renders to nothing" in message["content"] for name in names)
    assert "Mail: skipped: " in caplog.text
    notify({"ti": FAILED_TASK}, subject="Orders {{ none }}", content="<p>{{ ti.nothing }} rows</p>")
    partly = emulator.messages()[-1]
    assert partly["subject"] == "Orders None"
    for name in ("subject", "content"):
        assert f"{name}: an expression of its template has no value" in partly["content"]


def test_what_cannot_be_rendered_is_left_to_its_default(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    notify(DEADLINE, subject="{{ ", content="{{ ti.start_date | ts }}", cc="{{ 1 / 0 }}")
    notify(DEADLINE, subject="{{ ti.task_id }} of {{ dag_run.dag_id }} {{ exception }}")
    message, partly = emulator.messages()
    assert message["subject"] == "Deadline missed: orders"
    assert "2026-01-31 08:00 UTC" in message["content"]
    assert f"{AIRFLOW}/dags/orders/runs/scheduled__2026-01-31T06%3A00%3A00%2B00%3A00" in message["content"]
    assert "subject: cannot be rendered; content: cannot be rendered; cc: cannot be rendered" in message["content"]
    for name in ("subject", "content", "cc"):
        assert f"Mail: {name} cannot be rendered: " in caplog.text
    assert partly["subject"] == "of orders"
    assert "'ti' is undefined" in caplog.text


@pytest.mark.skipif(AIRFLOW_VERSION < (3, 1), reason="notifiers can be awaited from Airflow 3.1 on")
def test_both_ways_send_the_same(emulator: Emulator) -> None:
    async def callback() -> None:
        await MailNotifier(to=PEOPLE, subject="Late: {{ dag_run.dag_run_id }}", context=dict(DEADLINE))

    asyncio.run(callback())
    notify(DEADLINE, to=PEOPLE, subject="Late: {{ dag_run.dag_run_id }}")
    awaited, called = bodies(emulator)
    assert awaited == called
    assert awaited["subject"] == "Late: scheduled__2026-01-31T06:00:00+00:00"
    assert [addressees(message) for message in emulator.messages()] == [PEOPLE, PEOPLE]


class Broken:
    """As a task instance whose properties fail."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no connection to Airflow")


def died(try_number: int, max_tries: int) -> dict[str, Any]:
    """A task that died: the dag-processor reports it without an exception and without a state."""
    return {"ti": DIED | {"try_number": try_number, "max_tries": max_tries}}


def test_whatever_is_missing_there_is_a_mail(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW__API__BASE_URL")
    contexts: list[tuple[dict[str, Any], str]] = [
        ({}, "Failed: Airflow"),
        ({"run_id": "r", "reason": "timed_out"}, "Run failed: Airflow"),
        ({"run_id": "r", "reason": "success", "exception": None}, "Run succeeded: Airflow"),
        ({"exception": "killed"}, "Failed: Airflow"),
        ({"dag_run": {}, "deadline": {}}, "Deadline missed: Airflow"),
        ({"ti": Broken(), "run_id": "r"}, "Failed: Airflow"),
        (died(1, 1), "Failed, will retry: orders.load (try 1 of 2)"),
        (died(2, 1), "Failed: orders.load"),
        (died(1, 0), "Failed: orders.load"),
    ]
    for context, _ in contexts:
        notify(context)
    messages = emulator.messages()
    assert [message["subject"] for message in messages] == [subject for _, subject in contexts]
    assert not [message for message in messages if "href" in message["content"]]


def test_durations_are_short(emulator: Emulator) -> None:
    start = datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC)
    shown_as = {0.4: "0 s", 59.6: "1 min 0 s", 61: "1 min 1 s", 3720: "1 h 2 min", 90000: "25 h 0 min"}
    for seconds, shown in shown_as.items():
        end = start + datetime.timedelta(seconds=seconds)
        notify({"ti": FAILED_TASK | {"state": "success", "start_date": start, "end_date": end}})
        assert f">{shown}<" in emulator.messages()[-1]["content"]


def test_connections_and_the_sandbox(
    emulator: Emulator, connect: Connect, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_MAIL_DEFAULT")
    connect("mail_alerts")
    notify(DEADLINE, mail_conn_id="mail_{{ 'alerts' }}")
    assert len(emulator.messages()) == 1
    connect(sandbox=True)
    notify(DEADLINE, to=PEOPLE)
    assert (bodies(emulator)[-1]["sandboxMode"], len(emulator.messages())) == (True, 1)
    line = "Mail: sandbox: the service validated a message to 2 recipients; nothing was sent."
    assert (logging.DEBUG, line) in [(record.levelno, record.getMessage()) for record in caplog.records]


def test_the_example_writes_what_its_page_says(run: Run, emulator: Emulator) -> None:
    dag = example("mail_notifications")
    if AIRFLOW_VERSION >= (3, 2):
        assert dag.deadline
        # `dag.test()` cannot run a DAG with a deadline; that one is missed in tests/real/airflow/test_notifications.py.
        dag.deadline = None
    assert run(dag).result.state == "success"
    assert run(dag, conf={"rows": 0}).result.state == "failed"
    of_sales, of_the_team = emulator.messages()
    assert addressees(of_sales) == ["sales@example.com"]
    assert of_sales["subject"].endswith(" are in")
    assert of_sales["content"] == "<p>5 orders were loaded by load.</p>"
    assert addressees(of_the_team) == ["ada@example.com", "bob@example.com"]
    assert of_the_team["subject"] == "Failed: mail_notifications.load"
