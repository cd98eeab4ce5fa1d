"""`MailSendOperator` and `MailSendBatchOperator`: what the service is sent, and what is an error before."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_provider_mail.operators.transactional import MailSendOperator
from mail_emulator import Emulator
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.conftest import TASK, Connect, Run
from tests.tasks.sending import (
    HELLO,
    SENDS,
    SINGLE_RESULT,
    address,
    batch,
    batch_result,
    bodies,
    everybody,
    letters,
    mailed,
    records,
)

ADA = {"to": "ada@example.com"}


def single(**arguments: Any) -> MailSendOperator:
    return MailSendOperator(**{"task_id": TASK} | ADA | HELLO | {"content": "<p>Hello</p>"} | arguments)


def test_one_message_for_one_or_several(run: Run, emulator: Emulator) -> None:
    at_eleven = datetime.datetime(2030, 1, 31, 11, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))

    one = run(lambda: single(send_date=at_eleven))
    several = run(lambda: single(to="Eve <eve@example.com>, bob@example.com", unique_msg_id="order-4711"))

    assert (one.returned, several.returned) == (SINGLE_RESULT, SINGLE_RESULT | {"recipients": 2})
    first, second = bodies(emulator)
    assert (first["to"], first["sendDate"]) == ({"email": "ada@example.com"}, "2030-01-31T10:00:00Z")
    assert 0 < len(first["uniqueMsgID"].encode()) <= 50
    to = [{"email": "eve@example.com", "name": "Eve"}, {"email": "bob@example.com"}]
    assert (second["messageVersions"][0]["to"], second["uniqueMsgID"]) == (to, "order-4711")
    assert mailed(emulator) == Counter(f"{name}@example.com" for name in ("ada", "eve", "bob"))


def test_what_a_message_has_goes_before_what_all_have(run: Run, emulator: Emulator) -> None:
    emulator.add_template("reminder", subject="Reminder", content="Dear {{name}}, {{item}}")
    emulator.add_template("late", subject="Late", content="{{item}}!")
    own = {"subject": "Now", "content": "unused", "template_name": "late", "params": {"item": "Engine"}}
    common = {"subject": "Your cart", "content": "unused", "template_name": "reminder", "mail_params": {"item": "Key"}}

    run(lambda: batch(messages=[ADA | {"params": {"name": "Ada"}}, ADA | {"to": "eve@example.com"} | own], **common))

    found = [(message["subject"], message["content"]) for message in emulator.messages()]
    assert found == [("Your cart", "Dear Ada, Key"), ("Now", "Engine!")]


def test_a_mailing_is_cut_into_requests_of_a_hundred(run: Run, emulator: Emulator) -> None:
    emulator.add_template("stored", subject="Hi", content="<p>Hello {{name}}</p>")

    done = run(lambda: batch(messages=letters(250), versions_per_request=100, template_name="stored"))

    sent = bodies(emulator)
    assert [len(body["messageVersions"]) for body in sent] == [100, 100, 50]
    assert len({body["uniqueMsgID"] for body in sent}) == 3
    assert mailed(emulator) == everybody(range(250))
    assert emulator.messages(recipient=address(249))[0]["content"] == "<p>Hello N249</p>"
    assert done.returned == batch_result(3, 250)
    assert emulator.journal.count("campaign/mail/template/get") == 1


LINK = "{% raw %}<p>{{name}}, {{link}}</p>{% endraw %}"
ONE = letters(1)[0]


def messages(*last: dict[str, Any]) -> dict[str, Any]:
    """From a function, whose texts Airflow does not render."""
    return {"messages": lambda: [*letters(2), *last]}


WRONG_BATCHES = [
    ({"messages": lambda: iter(())}, "messages: there are no messages to send"),
    ({"messages": 7}, "messages: a list of dictionaries is needed, not int"),
    ({"send_date": "tomorrow"}, "send_date: not an ISO 8601 date"),
    ({"attachment": "{{ {'file_name': 'a.txt'} }}"}, "attachment: a dictionary needs file_name and file_data"),
    ({"content": None}, "content or template_name: messages[0] has neither"),
    ({"subject": None}, "subject: messages[0] has none"),
    ({"mail_params": "{{ 'Ada' }}"}, "params: "),
    ({"versions_per_request": True}, "versions_per_request: must be a whole number from 1 to 100, not True"),
    ({"sandbox_mode": "false"}, "sandbox_mode: True or False is needed, not 'false'"),
    ({"mail_params": {"name": "Dr. {{ none }}"}}, "mail_params: an expression of"),
    ({"mail_params": {"name": "{{ none }}"}}, "mail_params.name: is the text 'None'"),
    ({"sender_name": "{{ '' }}"}, "sender_name: is empty"),
    ({"messages": [ADA | {"params": {"name": "{{ none }}"}}]}, "messages[0].params.name: is the text 'None'"),
    (messages(ONE | {"content": ""}), "messages[2].content: is blank"),
    ({"content": LINK}, "content: {{link}} has no value in 3 of 3 messages"),
    (
        messages(ADA | {"params": {"name": None}}),
        "content: {{name}} has no value in 1 of 3 messages, the first is messages[2]",
    ),
    (
        messages(ADA | {"params": {"name": "Ada"}, "subject": "{{nmae}}"}),
        "subject: {{nmae}} has no value in 1 of 3 messages, the first is messages[2]",
    ),
    ({"template_name": "stored", "subject": None}, "content of template 'stored': {{link}} has no value in 3 of 3"),
    ({"template_name": "stored", "subject": None}, "subject of template 'stored': {{day}} has no value in 3 of 3"),
    ({"template_name": "empty"}, "the content of template 'empty' shows nothing"),
]
WRONG_SINGLES = [
    ({"to": {"name": "Ada"}}, "to.email: "),
    ({"to": [7]}, "to[0]: an address must be text, not int"),
    ({"to": ", ".join(map(address, range(21)))}, "to: 21 recipients, one message can have 20"),
    ({"unique_msg_id": "é" * 26}, "unique_msg_id: 52 bytes in UTF-8, at most 50"),
    ({"subject": "{{ none }}"}, "subject: is the text 'None'"),
    ({"content": "<p></p>"}, "content: shows nothing"),
    ({"to": {"email": "ada@example.com", "name": "{{ none }}"}}, "to.name: is the text 'None'"),
    ({"to": {"email": "a@b.cc", "name": "Dr. {{ none }}"}}, "to: an expression of its template"),
    ({"content": LINK}, "content: {{name}} has no value: a single message has none for tags"),
]


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (lambda **arguments: batch(**{"messages": letters(3)} | arguments), WRONG_BATCHES),
        (single, WRONG_SINGLES),
    ],
    ids=["batch", "single"],
)
def test_invalid_arguments_and_blank_content_send_nothing(
    run: Run, emulator: Emulator, make: Callable[..., Any], wrong: list[tuple[dict[str, Any], str]]
) -> None:
    emulator.add_template("stored", subject="On {{day}}", content="<p>{{name}}: {{link}}</p>")
    emulator.add_template("empty", subject="Empty", content="<p></p>")
    missing = []

    for arguments, words in wrong:
        try:
            done = run(lambda arguments=arguments: make(retries=2, **arguments))
        except ValueError as error:
            said = str(error)
        else:
            said = done.log if (done.state, done.tries) == ("failed", 1) else "was sent or repeated"
        if words not in said:
            missing.append((words, said))

    assert missing == []
    assert emulator.journal.count(SENDS) == 0


def test_messages_come_from_a_task_or_a_function(run: Run, emulator: Emulator, new_dag: Callable[..., DAG]) -> None:
    called = []

    def some() -> Any:
        called.append(1)
        yield from letters(25, start=25)

    with new_dag() as dag:
        batch(messages=task(lambda: letters(25), task_id="find")())
        batch(task_id="function", messages=some)
        batch(task_id="empty", messages=task(lambda: [], task_id="nothing")())
    assert not called
    done = run(dag)
    assert [done.result.task(name).state for name in (TASK, "function", "empty")] == ["success", "success", "failed"]
    assert called == [1]
    assert mailed(emulator) == everybody(range(50))


@pytest.mark.parametrize(
    ("where", "make"),
    [("task", single), ("connection", lambda **options: batch(messages=letters(25), **options))],
)
def test_a_sandbox_sends_and_stores_nothing(
    run: Run, emulator: Emulator, connect: Connect, where: str, make: Callable[..., Any]
) -> None:
    connect(sandbox=where == "connection")

    done = run(lambda: make(sandbox_mode=where == "task"))

    assert {body["sandboxMode"] for body in bodies(emulator)} == {True}
    assert emulator.journal.processed(SENDS) == emulator.messages() == []
    assert done.returned["sandbox"] is True
    assert "sandbox: nothing was sent" in done.log
    assert AIRFLOW_VERSION < (3, 3) or records(done.result) == []


@pytest.mark.parametrize("how", ["argument", "connection", "default", "warn"])
def test_tags_with_a_value_or_filled_by_the_service(run: Run, emulator: Emulator, connect: Connect, how: str) -> None:
    connect(**{"service_tags": "link, other"} if how == "connection" else {})
    arguments: dict[str, Any] = {
        "argument": {"service_tags": ["{{ 'link' }}"]},
        "default": {"mail_params": {"link": "", "name": "customer"}},
        "warn": {"on_unfilled_tag": "warn"},
    }.get(how, {})
    last = {"to": address(3), "params": {"name": " " if how == "default" else "Eve"}}

    done = run(lambda: batch(messages=lambda: [*letters(3), last], content=LINK, **arguments))

    name, link = ("customer", "") if how == "default" else ("Eve", "{{link}}")
    contents = [message["content"] for message in emulator.messages()]
    assert contents[2:] == [f"<p>N2, {link}</p>", f"<p>{name}, {link}</p>"]
    assert ("{{link}} has no value in 4 of 4 messages" in done.log) == (how == "warn")
