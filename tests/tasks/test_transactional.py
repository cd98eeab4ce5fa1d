"""`MailSendOperator` and `MailSendBatchOperator`: what the service is sent, and what is an error before."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.api.flows.batches import cut
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.transactional import MailSendBatchOperator, MailSendOperator
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.conftest import TASK, Connect, Run
from tests.tasks.sending import (
    HELLO,
    SENDS,
    address,
    batch,
    bodies,
    everybody,
    letters,
    mailed,
    records,
    told,
    told_of_one,
)


def single(**arguments: Any) -> MailSendOperator:
    return MailSendOperator(
        **{"task_id": TASK, "to": "ada@example.com"} | HELLO | {"content": "<p>Hello</p>"} | arguments
    )


def test_the_single_form(run: Run, emulator: Emulator) -> None:
    fields = {
        "sender_name": "News",
        "reply_to": "help@example.com",
        "category": "receipts",
        "campaign": "spring2030",
        "unique_msg_id": "order-4711",
        "attachment": {"file_name": "a.txt", "file_data": "aGVsbG8="},
    }
    person = {"email": "ada@example.com", "name": "Ada Lovelace"}
    send_date = datetime.datetime(2030, 1, 31, 10, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))

    whole = run(lambda: single(to=person, send_date=send_date, track_open=True, track_click=True, **fields))
    least = run(single)

    common = {"subject": "Hello", "content": "<p>Hello</p>", "senderMail": "news@example.com"}
    first, second = bodies(emulator)
    assert first == common | {
        "senderName": "News",
        "replyTo": "help@example.com",
        "sendDate": "2030-01-31T09:00:00Z",
        "to": person,
        "category": "receipts",
        "campaign": "spring2030",
        "trackOpen": 1,
        "trackClick": 1,
        "uniqueMsgID": "order-4711",
        "attachment": {"fileName": "a.txt", "fileData": "aGVsbG8="},
    }
    assert 0 < len(second.pop("uniqueMsgID").encode()) <= 50
    assert second == common | {"to": {"email": "ada@example.com"}}
    assert mailed(emulator) == {"ada@example.com": 2}
    assert whole.returned == least.returned == told_of_one()


def test_the_batch_form(run: Run, emulator: Emulator) -> None:
    emulator.add_template("reminder", subject="Reminder", content="Dear {{name}}, {{item}}")
    emulator.add_template("late", subject="Late", content="{{item}}!")
    texts = {"subject": "Now", "content": "also unused"}
    fields = {"subject": "Your cart", "content": "unused", "category": "carts", "campaign": "spring2030"}
    messages = [
        {"to": "ada@example.com", "params": {"name": "Ada"}},
        {
            "to": [{"email": "bob@example.com", "name": "Bob"}, "eve@example.com"],
            "cc": "boss@example.com",
            "bcc": [{"email": "file@example.com"}],
            "template_name": "late",
            "params": {"item": "Engine"},
            **texts,
        },
    ]

    done = run(
        lambda: MailSendBatchOperator(
            task_id=TASK,
            sender_mail="news@example.com",
            sender_name="News",
            template_name="reminder",
            mail_params={"item": "Key"},
            reply_to="help@example.com",
            send_date="2030-01-31T09:00:00Z",
            track_open=True,
            messages=messages,
            **fields,
        )
    )

    assert done.state == "success"
    (body,) = bodies(emulator)
    assert 0 < len(body.pop("uniqueMsgID").encode()) <= 50
    assert body == fields | {
        "templateName": "reminder",
        "params": {"item": "Key"},
        "senderMail": "news@example.com",
        "senderName": "News",
        "replyTo": "help@example.com",
        "sendDate": "2030-01-31T09:00:00Z",
        "trackOpen": 1,
        "messageVersions": [
            {"to": [{"email": "ada@example.com"}], "cc": [], "bcc": [], "params": {"name": "Ada"}},
            texts
            | {
                "to": [{"email": "bob@example.com", "name": "Bob"}, {"email": "eve@example.com"}],
                "cc": [{"email": "boss@example.com"}],
                "bcc": [{"email": "file@example.com"}],
                "templateName": "late",
                "params": {"item": "Engine"},
            },
        ],
    }
    found = [(message["subject"], message["content"]) for message in emulator.messages()]
    assert found == [("Your cart", "Dear Ada, Key"), ("Now", "Engine!")]
    assert done.returned["recipients"] == 5


def test_a_mailing_is_cut_into_requests_of_a_hundred(run: Run, emulator: Emulator) -> None:
    done = run(lambda: batch(messages=letters(250), versions_per_request=100))

    assert done.state == "success"
    sent = bodies(emulator)
    assert [len(body["messageVersions"]) for body in sent] == [100, 100, 50]
    ids = [body["uniqueMsgID"] for body in sent]
    assert len(set(ids)) == 3
    assert all(len(one.encode()) <= 50 for one in ids)
    assert mailed(emulator) == everybody(range(250))
    assert emulator.messages(recipient=address(249))[0]["content"] == "<p>Hello N249</p>"
    assert done.returned == told(3, 250)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"to": "nobody"}, "messages[123].to[0].email: is not an email address"),
        ({"to": ["ada@example.com", {"email": "a b@c.de"}]}, "messages[123].to[1].email: is not an email address"),
        ({"to": 7}, "messages[123].to: an address or a list of them is needed, not int"),
        ({"to": [7]}, "messages[123].to[0]"),
        ({}, "messages[123].to: "),
        ({"to": [address(number) for number in range(21)]}, "messages[123].to: List should have at most 20 items"),
        ({"to": "ada@example.com", "cc": [address(number) for number in range(21)]}, "messages[123].cc: List should"),
        ({"to": {"email": "ada@example.com", "name": "é" * 51}}, "messages[123].to[0].name: 102 bytes in UTF-8"),
        ({"to": {"email": "ada@example.com", "nmae": "Ada"}}, "messages[123].to[0].nmae: "),
        ({"to": "ada@example.com", "parms": {}}, "messages[123].parms: "),
        ({"to": "ada@example.com", "params": ["Ada"]}, "messages[123].params: "),
        ("ada@example.com", "messages[123]: a dictionary is needed, not str"),
        (None, "messages[123]: a dictionary is needed, not NoneType"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_error_names_the_message_and_its_field(bad: Any, words: str) -> None:
    messages = [*letters(123), bad, *letters(30, start=200)]

    with pytest.raises(MailValidationError, match=re.escape(words)):
        list(cut({"sender_mail": "news@example.com", "subject": "s", "content": "c"}, messages, key="k"))


WRONG_BATCHES = [
    ({"messages": [*letters(123), {"to": "nobody"}]}, "messages[123].to[0].email: is not an email address"),
    ({"messages": lambda: iter(())}, "messages: there are no messages to send"),
    ({"messages": {"to": "ada@example.com"}}, "messages: a list of dictionaries is needed, not dict"),
    ({"messages": 7}, "messages: a list of dictionaries is needed, not int"),
    ({"sender_mail": "news"}, "sender_mail: is not an email address"),
    ({"send_date": "tomorrow"}, "send_date: not an ISO 8601 date"),
    ({"category": "{{ 'a b' }}"}, "category: only letters and digits"),
    ({"attachment": "{{ {'file_name': 'a.txt'} }}"}, "attachment: a dictionary needs file_name and file_data"),
    ({"content": None}, "content or template_name: messages[0] has neither"),
    ({"subject": None}, "subject: messages[0] has none"),
    ({"mail_params": "{{ 'Ada' }}"}, "params: "),
    ({"template_name": 7}, "template_name: "),
    ({"on_ambiguous": "{{ none }}"}, "on_ambiguous: "),
    *(
        ({"versions_per_request": size}, f"versions_per_request: must be a whole number from 1 to 100, not {size!r}")
        for size in (0, 2.5, True, None, "{{ params.size }}")
    ),
    *(({name: "false"}, f"{name}: True or False is needed, not 'false'") for name in ("sandbox_mode", "track_open")),
    ({"on_duplicate_recipient": "drop"}, "on_duplicate_recipient: 'drop' is none of fail, skip, allow"),
]
WRONG_SINGLES = [
    ({"to": {"name": "Ada"}}, "to.email: "),
    ({"to": []}, "to: is empty"),
    ({"to": [7]}, "to[0]: an address must be text, not int"),
    ({"to": ", ".join(map(address, range(21)))}, "to: 21 recipients, one message can have 20"),
    ({"track_click": 0}, "track_click: True or False is needed, not 0"),
    ({"subject": None}, "subject: is missing"),
    ({"unique_msg_id": "é" * 26}, "unique_msg_id: 52 bytes in UTF-8, at most 50"),
]


@pytest.mark.parametrize(
    ("make", "wrong"),
    [(lambda **arguments: batch(**{"messages": letters(3)} | arguments), WRONG_BATCHES), (single, WRONG_SINGLES)],
    ids=["batch", "single"],
)
def test_invalid_arguments_send_nothing(
    run: Run, emulator: Emulator, make: Callable[..., Any], wrong: list[tuple[dict[str, Any], str]]
) -> None:
    with_the_dag = []

    def tasks() -> None:
        for number, (arguments, _) in enumerate(wrong):
            with DAG("none", schedule=None):
                try:
                    make(**arguments)
                except ValueError as error:
                    with_the_dag.append(str(error))
                    continue
            make(task_id=f"wrong{number}", **arguments)

    done = run(tasks)

    assert {task.state for task in done.result.tasks.values()} == {"failed"}
    said = "\n".join([done.log, *with_the_dag])
    assert [words for _, words in wrong if words not in said] == []
    assert emulator.journal.count() == 0


def test_messages_come_from_a_task_or_a_function(run: Run, emulator: Emulator, new_dag: Callable[..., DAG]) -> None:
    called = []

    def messages() -> Any:
        called.append(1)
        yield from letters(25, start=25)

    with new_dag() as dag:

        @task
        def find() -> list[dict[str, Any]]:
            return letters(25)

        @task
        def nothing() -> list[dict[str, Any]]:
            return []

        sending = batch(messages=find())
        batch(task_id="function", messages=messages)
        batch(task_id="empty", messages=nothing())
    assert sending.upstream_task_ids == {"find"}
    assert not called

    done = run(dag)

    assert [done.result.task(name).state for name in (TASK, "function", "empty")] == ["success", "success", "failed"]
    assert "messages: there are no messages to send" in done.log
    assert called == [1]
    assert mailed(emulator) == everybody(range(50))


def test_mapped_tasks_send_each_their_own(run_in_airflow: Run, emulator: Emulator, new_dag: Callable[..., DAG]) -> None:
    with new_dag() as dag:

        @task
        def find() -> list[list[dict[str, Any]]]:
            return [letters(15), letters(15, start=15)]

        MailSendBatchOperator.partial(task_id=TASK, versions_per_request=10, **HELLO).expand(messages=find())

    done = run_in_airflow(dag)

    assert done.state == "success"
    assert mailed(emulator) == everybody(range(30))
    assert len({body["uniqueMsgID"] for body in bodies(emulator)}) == 4
    assert done.result.xcom(TASK, map_index=1)["recipients"] == 15


@pytest.mark.parametrize("where", ["task", "connection"])
@pytest.mark.parametrize("make", [single, lambda **options: batch(messages=letters(25), **options)])
def test_a_sandbox_sends_and_stores_nothing(
    run: Run, emulator: Emulator, connect: Connect, where: str, make: Callable[..., Any]
) -> None:
    connect(sandbox=where == "connection")

    done = run(lambda: make(sandbox_mode=where == "task"))

    assert done.state == "success"
    assert [body["sandboxMode"] for body in bodies(emulator)] == [True] * emulator.journal.count(SENDS)
    assert emulator.journal.processed(SENDS) == []
    assert emulator.messages() == []
    assert done.returned["sandbox"] is True
    assert "sandbox: nothing was sent" in done.log
    if AIRFLOW_VERSION >= (3, 3):
        assert records(done.result) == []


PLANTED = {"email": "planted@example.com", "name": "Plantagenet"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: single(to=PLANTED),
        lambda: single(to="{{ 'planted@example.com' }}"),
        lambda: batch(messages=[{"to": "planted@example.com", "cc": [PLANTED | {"email": "p@x.example"}]}]),
        lambda: batch(messages=lambda: [{"to": "planted@example.com"}]),
        lambda: batch(messages=[{"to": "planted@bad"}]),
        lambda: single(to="{{ 'planted@' ~ 'bad' }}"),
        lambda: single(to="planted@example.com", sender_mail="unknown@example.com"),
    ],
    ids=["single", "templated", "batch", "function", "invalid in a batch", "invalid", "rejected"],
)
def test_addresses_stay_in_the_service(run: Run, emulator: Emulator, make: Callable[[], Any]) -> None:
    done = run(make)

    assert ("planted@example.com" in mailed(emulator)) == (done.state == "success")
    shown = done.rendered() + done.log + json.dumps(list(done.result.xcoms().values()))
    if AIRFLOW_VERSION >= (3, 3):
        shown += str(records(done.result))
    assert "planted" not in shown
    assert "Plantagenet" not in shown


# --- blank content, and tags without a value ---

LINK = "{% raw %}<p>{{name}}, {{link}}</p>{% endraw %}"


def blank(words: str, *messages: Any, **arguments: Any) -> tuple[Callable[[], Any], str]:
    """A batch, of three good messages unless given, and the error that it must give."""
    return (lambda: batch(**{"messages": lambda: messages or letters(3)} | arguments)), words


ADA = {"to": "ada@example.com"}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: single(subject="{{ none }}"), "subject: is the text 'None'"),
        (lambda: single(content="<p></p>"), "content: shows nothing"),
        (lambda: single(to={"email": "ada@example.com", "name": "{{ none }}"}), "to.name: is the text 'None'"),
        (lambda: single(to={"email": "a@b.cc", "name": "Dr. {{ none }}"}), "to: an expression of its template"),
        (lambda: single(content=LINK), "content: {{name}} has no value: a single message has none for tags"),
        blank("mail_params: an expression of", mail_params={"name": "Dr. {{ none }}"}),
        blank("mail_params.name: is the text 'None'", mail_params={"name": "{{ none }}"}),
        blank("sender_name: is empty", sender_name="{{ '' }}"),
        (
            lambda: batch(messages=[ADA | {"params": {"name": "{{ none }}"}}]),
            "messages[0].params.name: is the text 'None'",
        ),
        blank("messages[2].content: is blank", *letters(2), letters(1)[0] | {"content": ""}),
        blank("content: {{link}} has no value in 3 of 3 messages", content=LINK),
        blank(
            "content: {{name}} has no value in 1 of 3 messages, the first is messages[2]",
            *(*letters(2), ADA | {"params": {"name": None}}),
        ),
        blank(
            "subject: {{nmae}} has no value in 1 of 3 messages, the first is messages[2]",
            *(*letters(2), letters(1, 2)[0] | {"subject": "{{nmae}}"}),
        ),
        blank("content of template 'stored': {{link}} has no value in 3 of 3", template_name="stored", subject=None),
        blank("subject of template 'stored': {{day}} has no value in 3 of 3", template_name="stored", subject=None),
        blank("the content of template 'empty' shows nothing", template_name="empty"),
        blank("template_name: there is no template 'none'", template_name="none"),
    ],
)
def test_blank_content_and_unfilled_tags_are_not_sent(
    run: Run, emulator: Emulator, make: Callable[..., Any], words: str
) -> None:
    emulator.add_template("stored", subject="On {{day}}", content="<p>{{name}}: {{link}}</p>")
    emulator.add_template("empty", subject="Empty", content="<p></p>")

    done = run(make)

    assert (done.state, done.tries) == ("failed", 1)
    assert words in done.log
    assert emulator.journal.count(SENDS) == 0


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

    assert done.state == "success", done.log
    link = "" if how == "default" else "{{link}}"
    name = "customer" if how == "default" else "Eve"
    assert [message["content"] for message in emulator.messages()][2:] == [
        f"<p>N2, {link}</p>",
        f"<p>{name}, {link}</p>",
    ]
    assert ("{{link}} has no value in 4 of 4 messages" in done.log) == (how == "warn")


def test_a_stored_template_is_read_once(run: Run, emulator: Emulator) -> None:
    emulator.add_template("stored", subject="Hi", content="<p>{{name}}</p>")

    assert run(lambda: batch(messages=letters(35), template_name="stored")).state == "success"

    assert emulator.journal.count("campaign/mail/template/get") == 1
    assert mailed(emulator) == everybody(range(35))
