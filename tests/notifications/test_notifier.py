"""The notifier where Airflow calls it: in tasks that fail, are tried again or succeed, and for runs."""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from airflow.sdk import DAG, BaseNotifier, get_current_context, task

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.notifications.mail import MailNotifier, send_mail_notification
from airflow_provider_mail.version_compat import mask_secret
from tests.notifications.conftest import AIRFLOW, PEOPLE, addressees, bodies
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.conftest import Connect, Run

RETRIES = {"retries": 1, "retry_delay": datetime.timedelta(0)}
DEADLINE = {
    "dag_run": {
        "dag_id": "orders",
        "dag_run_id": "scheduled__2026-01-31T06:00:00+00:00",
        "logical_date": "2026-01-31T06:00:00Z",
        "run_after": "2026-01-31T07:00:00Z",
        "state": "running",
    },
    "deadline": {"id": "0199", "deadline_time": datetime.datetime(2026, 1, 31, 8, tzinfo=datetime.UTC)},
}

awaitable = pytest.mark.skipif(AIRFLOW_VERSION < (3, 1), reason="notifiers can be awaited from Airflow 3.1 on")


def failing(**options: Any) -> Callable[[], None]:
    """A task that fails."""

    def build() -> None:
        @task(**options)
        def load() -> None:
            raise ValueError("no")

        load()

    return build


def tell(context: dict[str, Any], **arguments: Any) -> None:
    """Call a notifier as Airflow does."""
    MailNotifier(**{"to": "ada@example.com"} | arguments)(context)


def test_the_alias() -> None:
    assert send_mail_notification is MailNotifier
    assert issubclass(MailNotifier, BaseNotifier)


def test_each_template_field_is_an_argument_and_is_kept() -> None:
    arguments = dict.fromkeys(MailNotifier.template_fields, "x")
    notifier = MailNotifier(**arguments)
    assert {name: getattr(notifier, name) for name in MailNotifier.template_fields} == arguments


def test_a_wrong_argument_is_an_error() -> None:
    with pytest.raises(TypeError, match="recipient"):
        MailNotifier(to="ada@example.com", recipient="bob@example.com")


def test_a_failed_task(run: Run, emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    done = run(failing(on_failure_callback=MailNotifier(to=PEOPLE, category="Alerts")))

    assert done.result.state == "failed"
    (message,) = emulator.messages()
    assert addressees(message) == PEOPLE
    assert message["sender"] == "news@example.com"
    assert message["category"] == "Alerts"
    assert message["subject"] == f"Failed: {done.result.dag_id}.load"
    assert "1 of 1" in message["content"]
    page = f"{AIRFLOW}/dags/{done.result.dag_id}/runs/{quote(done.result.run_id, safe='')}"
    assert f'href="{page}/tasks/load?try_number=1"' in message["content"]
    assert f'href="{page}"' in message["content"]
    assert f"Mail: accepted for 2 recipients, uniqueMsgID {message['unique_msg_id']}." in caplog.text
    assert not [address for address in PEOPLE for log in (done.log, caplog.text) if address in log]


def test_the_error_is_told_without_secrets_and_addresses(emulator: Emulator) -> None:
    # No other test masks its beginning: which of two would be replaced is left to chance.
    mask_secret("unheard-of-4711")
    error = ValueError("<b>no</b> password for jane@example.com: unheard-of-4711 in {{rows}}\n" + "more\n" * 50)

    tell({"exception": error, "ti": SimpleNamespace(dag_id="orders", task_id="load", run_id="r")})

    content = emulator.messages()[0]["content"]
    assert "ValueError: &lt;b&gt;no&lt;/b&gt; password for ***@example.com: *** in &#123;&#123;rows}}\nmore" in content
    assert content.count("more\n") < 20


def test_each_try_has_a_mail_of_its_own(run: Run, emulator: Emulator) -> None:
    notifier = MailNotifier(to="ada@example.com")

    done = run(failing(on_retry_callback=notifier, on_failure_callback=notifier, **RETRIES))

    name = f"{done.result.dag_id}.load"
    first, second = emulator.messages()
    assert first["subject"] == f"Failed, will retry: {name} (try 1 of 2)"
    assert second["subject"] == f"Failed: {name}"
    assert first["unique_msg_id"] != second["unique_msg_id"]


def test_a_callback_that_runs_twice_can_be_told_by_the_id(emulator: Emulator) -> None:
    for _ in range(2):
        tell(dict(DEADLINE))
    first, second = emulator.messages()
    assert first["unique_msg_id"] == second["unique_msg_id"]


FAILED_RUN = {"dag_id": "orders", "run_id": "r", "clear_number": 0, "start_date": "2026-01-31T06:00:00Z"}
FAILED_TASK = {"dag_id": "orders", "task_id": "load", "run_id": "r", "map_index": 1, "try_number": 1, "state": "failed"}


@pytest.mark.parametrize(
    ("context", "other"),
    [
        ({"dag_run": FAILED_RUN, "reason": "task_failure"}, {"dag_run": FAILED_RUN | {"clear_number": 1}}),
        ({"dag_run": FAILED_RUN, "reason": "task_failure"}, {"dag_run": FAILED_RUN | {"run_id": "other"}}),
        ({"dag_run": FAILED_RUN, "reason": "task_failure"}, {"reason": "success"}),
        ({"ti": FAILED_TASK}, {"ti": FAILED_TASK | {"try_number": 2}}),
        ({"ti": FAILED_TASK}, {"ti": FAILED_TASK | {"map_index": 2}}),
        ({"ti": FAILED_TASK}, {"ti": FAILED_TASK | {"state": "up_for_retry"}}),
        ({"ti": FAILED_TASK}, {"ti": FAILED_TASK | {"task_id": "loads"}}),
        (DEADLINE, {"deadline": {**DEADLINE["deadline"], "id": "0200"}}),
    ],
)
def test_each_event_has_an_id_of_its_own(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, context: dict[str, Any], other: dict[str, Any]
) -> None:
    for each in (context, context, context | other):
        tell(dict(each), subject="Orders", content="<p>No</p>")
    tell(dict(context), subject="Orders", content="<p>Of another notifier</p>")
    monkeypatch.setenv("AIRFLOW__MAIL__NAME_PREFIX", "staging")
    tell(dict(context), subject="Orders", content="<p>No</p>")
    first, again, *others = [message["unique_msg_id"] for message in emulator.messages()]
    assert first == again
    assert len({first, *others}) == 4, "another event, notifier or deployment"


@pytest.mark.parametrize(
    "context",
    [
        {"run_id": "r", "dag": DAG("orders", schedule=None), "reason": "task_failure"},
        {"ti": {"dag_id": "orders", "task_id": "load", "run_id": "r"}},
    ],
)
def test_events_that_cannot_be_told_apart_share_no_id(emulator: Emulator, context: dict[str, Any]) -> None:
    """As Airflow 3.0 reports a run: its failure, and its failure after it was cleared."""
    for _ in range(2):
        tell(dict(context))
    first, second = emulator.messages()
    assert first["unique_msg_id"] != second["unique_msg_id"]


@pytest.mark.parametrize("nothing", ["{{ none }}", " {{ ti.nothing }} ", "{{ '' }}", "{{ none if ti else '' }}"])
def test_what_is_rendered_to_nothing_has_its_default(
    emulator: Emulator, caplog: pytest.LogCaptureFixture, nothing: str
) -> None:
    texts = {name: nothing for name in MailNotifier.template_fields if name != "to"}

    tell({"ti": FAILED_TASK}, **texts)

    (message,) = emulator.messages()
    assert message["subject"] == "Failed: orders.load[1]"
    assert "orders" in message["content"]
    assert (message["sender"], message["sender_name"]) == ("news@example.com", "Airflow")
    assert not {"category", "replyTo", "attachment"} & set(bodies(emulator)[0])
    for name in texts:
        assert f"{name}: renders to nothing" in message["content"]
    assert "Mail: skipped: " in caplog.text


def test_an_alert_in_whose_text_something_is_missing_is_sent_and_says_so(emulator: Emulator) -> None:
    tell({"ti": FAILED_TASK}, subject="Orders {{ none }}", content="<p>{{ ti.nothing }} rows</p>")

    (message,) = emulator.messages()
    assert message["subject"] == "Orders None"
    for name in ("subject", "content"):
        assert f"{name}: an expression of its template has no value" in message["content"]


def test_success_and_start(run: Run, emulator: Emulator) -> None:
    def build() -> None:
        @task(on_execute_callback=MailNotifier(to="ada@example.com"), on_success_callback=[MailNotifier(to=PEOPLE)])
        def load() -> None: ...

        load()

    done = run(build)

    assert [message["subject"].partition(":")[0] for message in emulator.messages()] == ["Running", "Succeeded"]
    assert done.state == "success"


def test_fields_are_rendered(run: Run, emulator: Emulator) -> None:
    notifier = MailNotifier(
        to=["{{ ti.task_id }}@example.com"],
        subject="{{ ti.task_id }}: {{ run_id | length > 0 }}",
        content="<p>{{ dag.dag_id }}</p>",
        sender_name="{{ ti.task_id }}",
    )

    done = run(failing(on_failure_callback=notifier))

    (message,) = emulator.messages()
    assert addressees(message) == ["load@example.com"]
    assert message["subject"] == "load: True"
    assert message["content"] == f"<p>{done.result.dag_id}</p>"
    assert message["sender_name"] == "load"


def test_tasks_that_share_a_notifier_each_get_their_own(run_in_airflow: Run, emulator: Emulator) -> None:
    shared = MailNotifier(to="ada@example.com", subject="{{ ti.task_id }}[{{ ti.map_index }}]")

    def build() -> None:
        @task(on_failure_callback=shared)
        def load(part: int) -> None:
            raise ValueError(part)

        load.expand(part=[1, 2])
        load.override(task_id="other")(3)

    run_in_airflow(build)

    assert sorted(message["subject"] for message in emulator.messages()) == ["load[0]", "load[1]", "other[-1]"]


def test_a_mapped_task_is_named_with_its_index(run_in_airflow: Run, emulator: Emulator) -> None:
    def build() -> None:
        @task(on_failure_callback=MailNotifier(to="ada@example.com"))
        def load(part: int) -> None:
            raise ValueError(part)

        load.expand(part=[1])

    done = run_in_airflow(build)

    (message,) = emulator.messages()
    assert message["subject"] == f"Failed: {done.result.dag_id}.load[0]"
    assert "/tasks/load/mapped/0?try_number=1" in message["content"]


def test_runs(run_in_airflow: Run, new_dag: Callable[..., DAG], emulator: Emulator) -> None:
    notifier = MailNotifier(to="ada@example.com")
    for fails in (True, False):
        with new_dag(on_failure_callback=notifier, on_success_callback=notifier) as dag:

            @task
            def load(fails: bool) -> None:
                if fails:
                    raise ValueError("no")

            load(fails)
        run_in_airflow(dag)

    failed, succeeded = emulator.messages()
    assert failed["subject"].startswith("Run failed: ")
    assert "task failure" in failed["content"]
    assert succeeded["subject"].startswith("Run succeeded: ")


def test_a_question_to_a_person(run: Run, emulator: Emulator) -> None:
    def build() -> None:
        @task
        def ask() -> None:
            asking = SimpleNamespace(subject="Send to 10,000?", body="*Checked*.\nSend <now>?", options=["Approve"])
            MailNotifier(to="ada@example.com")({**get_current_context(), "task": asking})

        ask()

    assert run(build).result.state == "success"

    (message,) = emulator.messages()
    assert message["subject"] == "Decision needed: Send to 10,000?"
    assert "*Checked*.\nSend &lt;now&gt;?" in message["content"]
    assert "/tasks/ask/required_actions?map_index=-1" in message["content"]


# --- contexts in which names are missing ---


def test_a_missed_deadline(emulator: Emulator) -> None:
    tell(dict(DEADLINE))

    (message,) = emulator.messages()
    assert message["subject"] == "Deadline missed: orders"
    assert "2026-01-31 08:00 UTC" in message["content"]
    assert f"{AIRFLOW}/dags/orders/runs/scheduled__2026-01-31T06%3A00%3A00%2B00%3A00" in message["content"]


@awaitable
def test_a_missed_deadline_in_the_triggerer(emulator: Emulator) -> None:
    async def callback() -> None:
        await MailNotifier(to=PEOPLE, subject="Late: {{ dag_run.dag_run_id }}", context=dict(DEADLINE))

    asyncio.run(callback())

    (message,) = emulator.messages()
    assert message["subject"] == "Late: scheduled__2026-01-31T06:00:00+00:00"
    assert addressees(message) == PEOPLE


@awaitable
def test_both_ways_send_the_same(emulator: Emulator) -> None:
    async def callback() -> None:
        await MailNotifier(to=PEOPLE, context=dict(DEADLINE))

    asyncio.run(callback())
    tell(dict(DEADLINE), to=PEOPLE)

    awaited, called = bodies(emulator)
    assert awaited == called


def test_missing_names_are_empty_and_a_warning(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    tell(dict(DEADLINE), subject="{{ ti.task_id }} of {{ dag_run.dag_id }} {{ exception }}")

    (message,) = emulator.messages()
    assert message["subject"] == "of orders"
    assert "'ti' is undefined" in caplog.text


def test_what_cannot_be_rendered_is_left_to_its_default(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    tell(dict(DEADLINE), subject="{{ ", content="{{ ti.start_date | ts }}", cc="{{ 1 / 0 }}")

    (message,) = emulator.messages()
    assert message["subject"] == "Deadline missed: orders"
    assert "2026-01-31 08:00 UTC" in message["content"]
    assert [name for name in ("subject", "content", "cc") if f"Mail: {name} cannot be rendered: " in caplog.text] == [
        "subject",
        "content",
        "cc",
    ]
    assert "subject: cannot be rendered; content: cannot be rendered; cc: cannot be rendered" in message["content"]


@pytest.mark.parametrize(
    ("context", "subject"),
    [
        ({}, "Failed: Airflow"),
        ({"run_id": "r", "reason": "timed_out"}, "Run failed: Airflow"),
        ({"run_id": "r", "reason": "success", "exception": None}, "Run succeeded: Airflow"),
        ({"exception": "killed"}, "Failed: Airflow"),
        ({"dag_run": {}, "deadline": {}}, "Deadline missed: Airflow"),
    ],
)
def test_whatever_is_missing(emulator: Emulator, context: dict[str, Any], subject: str) -> None:
    tell(context)
    assert [message["subject"] for message in emulator.messages()] == [subject]


@pytest.mark.parametrize(
    ("try_number", "max_tries", "subject"),
    [
        (1, 1, "Failed, will retry: orders.load (try 1 of 2)"),
        (2, 1, "Failed: orders.load"),
        (1, 0, "Failed: orders.load"),
    ],
)
def test_a_task_that_died(emulator: Emulator, try_number: int, max_tries: int, subject: str) -> None:
    """The dag-processor tells of it without an exception and without a state."""
    ti = SimpleNamespace(dag_id="orders", task_id="load", run_id="r", try_number=try_number, max_tries=max_tries)
    tell({"ti": ti, "task_instance": ti, "run_id": "r"})
    assert [message["subject"] for message in emulator.messages()] == [subject]


def test_a_task_instance_whose_properties_fail(emulator: Emulator) -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("no connection to Airflow")

    tell({"ti": Broken(), "run_id": "r"})
    assert [message["subject"] for message in emulator.messages()] == ["Failed: Airflow"]


def test_without_an_address_of_airflow_there_are_no_links(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW__API__BASE_URL")
    tell(dict(DEADLINE))
    assert "href" not in emulator.messages()[0]["content"]


def test_sandbox(emulator: Emulator, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    connect(sandbox=True)

    tell(dict(DEADLINE), to=PEOPLE)

    assert bodies(emulator)[0]["sandboxMode"] is True
    assert emulator.messages() == []
    said = "Mail: sandbox: the service validated a message to 2 recipients; nothing was sent."
    assert (logging.INFO, said) in [(record.levelno, record.getMessage()) for record in caplog.records]


def test_another_connection(emulator: Emulator, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_MAIL_DEFAULT")
    connect("mail_alerts")
    tell(dict(DEADLINE), mail_conn_id="mail_{{ 'alerts' }}")
    assert len(emulator.messages()) == 1
