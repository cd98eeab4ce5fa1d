"""`MailSendOperator` and `MailSendBatchOperator`: what the service is sent, and what is refused before."""

from __future__ import annotations

import datetime
import json
import re
from collections import Counter
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
from tests.tasks.sending import HELLO, SENDS, address, batch, bodies, everybody, letters, mailed, records

FILE = {"file_name": "a.txt", "file_data": "aGVsbG8="}


def single(**arguments: Any) -> MailSendOperator:
    return MailSendOperator(
        **{"task_id": TASK, "to": "ada@example.com"} | HELLO | {"content": "<p>Hello</p>"} | arguments
    )


def test_the_single_form_with_all_fields(run: Run, emulator: Emulator) -> None:
    done = run(
        lambda: single(
            to={"email": "ada@example.com", "name": "Ada Lovelace"},
            sender_name="News",
            reply_to="help@example.com",
            send_date=datetime.datetime(2030, 1, 31, 10, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
            category="receipts",
            campaign="spring2030",
            track_open=True,
            track_click=True,
            unique_msg_id="order-4711",
            attachment=FILE,
        )
    )

    assert done.state == "success"
    assert bodies(emulator) == [
        {
            "subject": "Hello",
            "content": "<p>Hello</p>",
            "senderMail": "news@example.com",
            "senderName": "News",
            "replyTo": "help@example.com",
            "sendDate": "2030-01-31T09:00:00Z",
            "to": {"email": "ada@example.com", "name": "Ada Lovelace"},
            "category": "receipts",
            "campaign": "spring2030",
            "trackOpen": 1,
            "trackClick": 1,
            "uniqueMsgID": "order-4711",
            "attachment": {"fileName": "a.txt", "fileData": "aGVsbG8="},
        }
    ]
    assert mailed(emulator) == {"ada@example.com": 1}
    assert done.returned == {
        "requests": 1,
        "recipients": 1,
        "unknown_requests": 0,
        "unknown_recipients": 0,
        "sandbox": False,
    }


def test_the_single_form_with_what_it_needs(run: Run, emulator: Emulator) -> None:
    done = run(lambda: single())

    assert done.state == "success"
    (body,) = bodies(emulator)
    assert 0 < len(body.pop("uniqueMsgID").encode()) <= 50
    assert body == {
        "subject": "Hello",
        "content": "<p>Hello</p>",
        "senderMail": "news@example.com",
        "to": {"email": "ada@example.com"},
    }


def test_the_batch_form_with_all_fields(run: Run, emulator: Emulator) -> None:
    emulator.add_template("reminder", subject="Reminder", content="Dear {{name}}, {{item}}")
    emulator.add_template("late", subject="Late", content="{{item}}!")

    done = run(
        lambda: MailSendBatchOperator(
            task_id=TASK,
            sender_mail="news@example.com",
            sender_name="News",
            subject="Your cart",
            content="unused",
            template_name="reminder",
            mail_params={"item": "Key"},
            reply_to="help@example.com",
            send_date="2030-01-31T09:00:00Z",
            category="carts",
            campaign="spring2030",
            track_open=True,
            track_click=True,
            attachment=FILE,
            messages=[
                {"to": "ada@example.com", "params": {"name": "Ada"}},
                {
                    "to": [{"email": "bob@example.com", "name": "Bob"}, "eve@example.com"],
                    "cc": "boss@example.com",
                    "bcc": [{"email": "file@example.com"}],
                    "subject": "Now",
                    "content": "also unused",
                    "template_name": "late",
                    "params": {"item": "Engine"},
                },
            ],
        )
    )

    assert done.state == "success"
    (body,) = bodies(emulator)
    assert 0 < len(body.pop("uniqueMsgID").encode()) <= 50
    assert body == {
        "subject": "Your cart",
        "content": "unused",
        "templateName": "reminder",
        "params": {"item": "Key"},
        "senderMail": "news@example.com",
        "senderName": "News",
        "replyTo": "help@example.com",
        "sendDate": "2030-01-31T09:00:00Z",
        "category": "carts",
        "campaign": "spring2030",
        "trackOpen": 1,
        "trackClick": 1,
        "attachment": {"fileName": "a.txt", "fileData": "aGVsbG8="},
        "messageVersions": [
            {"to": [{"email": "ada@example.com"}], "cc": [], "bcc": [], "params": {"name": "Ada"}},
            {
                "to": [{"email": "bob@example.com", "name": "Bob"}, {"email": "eve@example.com"}],
                "cc": [{"email": "boss@example.com"}],
                "bcc": [{"email": "file@example.com"}],
                "subject": "Now",
                "content": "also unused",
                "templateName": "late",
                "params": {"item": "Engine"},
            },
        ],
    }
    assert [(message["subject"], message["content"]) for message in emulator.messages()] == [
        ("Your cart", "Dear Ada, Key"),
        ("Now", "Engine!"),
    ]
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
    assert done.returned == {
        "requests": 3,
        "recipients": 250,
        "unknown_requests": 0,
        "unknown_recipients": 0,
        "sandbox": False,
        "duplicate_recipients": 0,
    }


def test_twenty_people_of_each_kind_in_a_message(run: Run, emulator: Emulator) -> None:
    people = [[address(number) for number in range(start, start + 20)] for start in (0, 20, 40)]

    done = run(
        lambda: batch(mail_params={"name": "all"}, messages=[dict(zip(("to", "cc", "bcc"), people, strict=True))])
    )

    assert done.state == "success"
    assert mailed(emulator) == everybody(range(60))
    roles = Counter(person["role"] for person in emulator.messages()[0]["recipients"])
    assert roles == {"to": 20, "cc": 20, "bcc": 20}
    assert done.returned["recipients"] == 60


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"to": "nobody"}, "messages[123].to[0].email: is not an email address"),
        (
            {"to": ["ada@example.com", {"email": "a b@example.com"}]},
            "messages[123].to[1].email: is not an email address",
        ),
        ({"to": []}, "messages[123].to: "),
        ({"to": 7}, "messages[123].to: an address or a list of them is needed, not int"),
        ({"to": [7]}, "messages[123].to[0]"),
        ({"to": None}, "messages[123].to: "),
        ({}, "messages[123].to: "),
        ({"to": [address(number) for number in range(21)]}, "messages[123].to: List should have at most 20 items"),
        ({"to": "ada@example.com", "cc": [address(number) for number in range(21)]}, "messages[123].cc: List should"),
        ({"to": "ada@example.com", "bcc": [address(number) for number in range(21)]}, "messages[123].bcc: List should"),
        ({"to": {"email": "ada@example.com", "name": "é" * 51}}, "messages[123].to[0].name: 102 bytes in UTF-8"),
        ({"to": {"email": "ada@example.com", "nmae": "Ada"}}, "messages[123].to[0].nmae: "),
        ({"to": "ada@example.com", "parms": {}}, "messages[123].parms: "),
        ({"to": "ada@example.com", "params": ["Ada"]}, "messages[123].params: "),
        ("ada@example.com", "messages[123]: a dictionary is needed, not str"),
        (None, "messages[123]: a dictionary is needed, not NoneType"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_message_is_named_by_its_number_and_field(bad: Any, words: str) -> None:
    messages = [*letters(123), bad, *letters(30, start=200)]

    with pytest.raises(MailValidationError, match=re.escape(words)):
        list(cut({"sender_mail": "news@example.com", "subject": "s", "content": "c"}, messages, key="k"))


def test_all_messages_are_checked_before_the_first_is_sent(run: Run, emulator: Emulator) -> None:
    messages = [*letters(123), {"to": "nobody"}, *letters(30, start=200)]

    done = run(lambda: batch(messages=messages, retries=1, retry_delay=datetime.timedelta(0)))

    assert (done.state, done.tries) == ("failed", 1)
    assert "messages[123].to[0].email: is not an email address" in done.log
    assert emulator.journal.count() == 0


WRONG_BATCHES = [
    ({"messages": []}, "messages: there are no messages to send"),
    ({"messages": lambda: iter(())}, "messages: there are no messages to send"),
    ({"messages": {"to": "ada@example.com"}}, "messages: a list of dictionaries is needed, not dict"),
    ({"messages": "ada@example.com"}, "messages: a list of dictionaries is needed, not str"),
    ({"messages": 7}, "messages: a list of dictionaries is needed, not int"),
    ({"sender_mail": "news"}, "sender_mail: is not an email address"),
    ({"sender_name": "é" * 101}, "sender_name: 202 bytes in UTF-8"),
    ({"reply_to": "help"}, "reply_to: is not an email address"),
    ({"send_date": "tomorrow"}, "send_date: not an ISO 8601 date"),
    ({"send_date": "2030-01-31T09:00:00"}, "send_date: "),
    ({"category": "a-b"}, "category: only letters and digits"),
    ({"campaign": "x" * 101}, "campaign: 101 bytes"),
    ({"attachment": {"file_name": "a.txt"}}, "attachment: a dictionary needs file_name and file_data"),
    ({"content": None}, "content or template_name: messages[0] has neither"),
    ({"subject": None}, "subject: messages[0] has none"),
    ({"mail_params": ["Ada"]}, "params: "),
    ({"mail_params": "{{ 'Ada' }}"}, "params: "),
    ({"template_name": 7}, "template_name: "),
    ({"content": 7}, "content: "),
    ({"sender_mail": None}, "sender_mail: "),
    ({"attachment": "{{ {'file_name': 'a.txt'} }}"}, "attachment: a dictionary needs file_name and file_data"),
    ({"category": "{{ 'a b' }}"}, "category: only letters and digits"),
    ({"on_ambiguous": "{{ none }}"}, "on_ambiguous: "),
    ({"on_ambiguous": "retry"}, "on_ambiguous: 'retry' is none of fail, resend, skip"),
    ({"mail_conn_id": "nowhere"}, "The conn_id `nowhere` isn't defined"),
]
WRONG_SINGLES = [
    ({"to": "nobody"}, "to: is not an email address"),
    ({"to": {"name": "Ada"}}, "to.email: "),
    ({"to": []}, "to: is empty"),
    ({"to": [7]}, "to[0]: an address must be text, not int"),
    ({"to": ", ".join(f"a{number}@example.com" for number in range(21))}, "to: 21 recipients, one message can have 20"),
    ({"subject": None}, "subject: is missing"),
    ({"content": ""}, "content: "),
    ({"unique_msg_id": "é" * 26}, "unique_msg_id: 52 bytes in UTF-8, at most 50"),
]


@pytest.mark.parametrize(
    ("make", "wrong"),
    [(lambda **arguments: batch(**{"messages": letters(3)} | arguments), WRONG_BATCHES), (single, WRONG_SINGLES)],
    ids=["batch", "single"],
)
def test_what_cannot_work_is_said_before_anything_is_sent(
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


@pytest.mark.parametrize("versions", [-1, 0, 101, 2.5, True, None, "10", "{{ params.size }}"])
def test_a_request_of_an_impossible_size_is_refused_with_the_dag(versions: Any) -> None:
    with pytest.raises(
        ValueError, match=re.escape(f"versions_per_request: must be a whole number from 1 to 100, not {versions!r}")
    ):
        batch(messages=letters(1), versions_per_request=versions)


@pytest.mark.parametrize("make", [single, lambda **arguments: batch(messages=letters(1), **arguments)])
@pytest.mark.parametrize("name", ["sandbox_mode", "track_open", "track_click"])
@pytest.mark.parametrize("value", ["false", "{{ params.really }}", 0, None])
def test_a_truth_value_is_no_text(make: Callable[..., Any], name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{name}: True or False is needed, not {value!r}")):
        make(**{name: value})


def test_messages_come_from_another_task(run: Run, emulator: Emulator, new_dag: Callable[..., DAG]) -> None:
    with new_dag() as dag:

        @task
        def find() -> list[dict[str, Any]]:
            return letters(25)

        sending = batch(messages=find())
    assert sending.upstream_task_ids == {"find"}

    done = run(dag)

    assert done.state == "success"
    assert mailed(emulator) == everybody(range(25))


def test_no_messages_from_another_task(run: Run, emulator: Emulator, new_dag: Callable[..., DAG]) -> None:
    with new_dag() as dag:

        @task
        def find() -> list[dict[str, Any]]:
            return []

        batch(messages=find())

    done = run(dag)

    assert done.state == "failed"
    assert "messages: there are no messages to send" in done.log


def test_messages_come_from_a_function_that_runs_in_the_task(run: Run, emulator: Emulator) -> None:
    called = []

    def messages() -> Any:
        called.append(1)
        yield from letters(25)

    with DAG("parsed_only", schedule=None):
        batch(messages=messages)
    assert not called

    done = run(lambda: batch(messages=messages))

    assert done.state == "success"
    assert called == [1]
    assert mailed(emulator) == everybody(range(25))


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


def test_fields_are_templates(run: Run, emulator: Emulator) -> None:
    done = run(
        lambda: single(
            to="{{ params.to }}",
            subject="{{ dag_run.conf['subject'] }}",
            content="{% raw %}{{link}}{% endraw %}, {{ 1 + 1 }}",
            service_tags=["{{ 'link' }}"],
            sender_mail="{{ 'news' }}@example.com",
            params={"to": "ada@example.com"},
        ),
        conf={"subject": "Templated"},
    )

    assert done.state == "success"
    (body,) = bodies(emulator)
    assert body["to"] == {"email": "ada@example.com"}
    assert (body["subject"], body["content"]) == ("Templated", "{{link}}, 2")
    assert body["senderMail"] == "news@example.com"


@pytest.mark.parametrize("where", ["task", "connection"])
@pytest.mark.parametrize("make", [single, lambda **options: batch(messages=letters(25), **options)])
def test_a_sandbox_sends_nothing_and_writes_nothing_down(
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


@pytest.mark.parametrize(
    "make",
    [
        lambda: single(to={"email": "planted@example.com", "name": "Plantagenet"}),
        lambda: single(to="{{ 'planted@example.com' }}"),
        lambda: batch(
            messages=[{"to": "planted@example.com", "cc": [{"email": "p@x.example", "name": "Plantagenet"}]}]
        ),
        lambda: batch(messages=lambda: [{"to": "planted@example.com"}]),
        lambda: batch(messages=[{"to": "planted@bad"}]),
        lambda: single(to="{{ 'planted@' ~ 'bad' }}"),
        lambda: single(to="planted@example.com", sender_mail="unknown@example.com"),
    ],
    ids=["single", "templated", "batch", "function", "bad in a batch", "bad", "refused"],
)
def test_addresses_stay_in_the_service(run: Run, emulator: Emulator, make: Callable[[], Any]) -> None:
    done = run(make)

    assert ("planted@example.com" in mailed(emulator)) == (done.state == "success")
    left = done.rendered() + done.log + json.dumps(list(done.result.xcoms().values()))
    if AIRFLOW_VERSION >= (3, 3):
        left += str(records(done.result))
    for word in ("planted", "Plantagenet"):
        assert word not in left


# --- what renders to nothing, and tags without a value ---

LINK = "{% raw %}<p>{{name}}, {{link}}</p>{% endraw %}"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: single(subject="{{ none }}"), "subject: is the text 'None'"),
        (lambda: single(content="<p></p>"), "content: shows nothing"),
        (lambda: single(to={"email": "ada@example.com", "name": "{{ none }}"}), "to.name: is the text 'None'"),
        (
            lambda: single(to={"email": "ada@example.com", "name": "Dr. {{ none }}"}),
            "to: an expression of its template",
        ),
        (lambda: batch(messages=letters(3), mail_params={"name": "Dr. {{ none }}"}), "mail_params: an expression of"),
        (lambda: single(content=LINK), "content: {{name}} has no value: a single message has none for tags"),
        (lambda: batch(messages=letters(3), sender_name="{{ '' }}"), "sender_name: is empty"),
        (
            lambda: batch(messages=letters(3), mail_params={"name": "{{ none }}"}),
            "mail_params.name: is the text 'None'",
        ),
        (
            lambda: batch(messages=[{"to": "ada@example.com", "params": {"name": "{{ none }}"}}]),
            "messages[0].params.name: is the text 'None'",
        ),
        (
            lambda: batch(messages=lambda: [*letters(2), letters(1)[0] | {"content": ""}]),
            "messages[2].content: is blank",
        ),
        (lambda: batch(messages=letters(3), content=LINK), "content: {{link}} has no value in 3 of 3 messages"),
        (
            lambda: batch(messages=lambda: [*letters(2), {"to": "ada@example.com", "params": {"name": None}}]),
            "content: {{name}} has no value in 1 of 3 messages, the first is messages[2]",
        ),
        (
            lambda: batch(messages=lambda: [*letters(2), letters(1, 2)[0] | {"subject": "{{nmae}}"}]),
            "subject: {{nmae}} has no value in 1 of 3 messages, the first is messages[2]",
        ),
        (
            lambda: batch(messages=letters(3), template_name="stored", subject=None),
            "content of template 'stored': {{link}} has no value in 3 of 3 messages",
        ),
        (
            lambda: batch(messages=letters(3), template_name="stored", subject=None),
            "subject of template 'stored': {{day}} has no value in 3 of 3 messages",
        ),
        (lambda: batch(messages=letters(3), template_name="empty"), "the content of template 'empty' shows nothing"),
        (lambda: batch(messages=letters(3), template_name="none"), "template_name: there is no template 'none'"),
    ],
)
def test_what_shows_nothing_or_a_raw_tag_is_not_sent(
    run: Run, emulator: Emulator, make: Callable[..., Any], words: str
) -> None:
    emulator.add_template("stored", subject="On {{day}}", content="<p>{{name}}: {{link}}</p>")
    emulator.add_template("empty", subject="Empty", content="<p></p>")

    done = run(make)

    assert (done.state, done.tries) == ("failed", 1)
    assert words in done.log
    assert emulator.journal.count(SENDS) == 0


@pytest.mark.parametrize("how", ["argument", "connection", "default", "warn"])
def test_tags_that_something_fills(run: Run, emulator: Emulator, connect: Connect, how: str) -> None:
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
