"""`MailSendOperator` and `MailSendBatchOperator`: what the service is sent, what is an error before, and further tries.

What holds however the tries end is in `tests/machines/test_sending.py`.
"""

from __future__ import annotations

import datetime
import json
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG, task
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.api.errors import MailError, MailResponseLostError, MailValidationError
from airflow_provider_mail.api.transactional import SendMail
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.operators.campaigns import MailCancelCampaignOperator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.operators.transactional import TASK_STATE_KEY, MailSendOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailBatchOperator
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException
from mail_emulator import Emulator
from tests.support.changes import at_request, time_out_task
from tests.support.clock import Clock
from tests.support.dags import AIRFLOW_VERSION
from tests.support.task_parts import MailingState, Recipients, address_key
from tests.support.tries import Tries
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase
from tests.tasks.sending import (
    AT_ONCE,
    DAY,
    HELLO,
    SENDS,
    SINGLE_RESULT,
    address,
    batch,
    batch_result,
    bodies,
    campaign,
    everybody,
    letters,
    mailed,
    proxy,
    records,
    remembers,
)

ADA = {"to": "ada@example.com"}


def single(**arguments: Any) -> MailSendOperator:
    return MailSendOperator(**{"task_id": TASK} | ADA | HELLO | {"content": "<p>Hello</p>"} | arguments)


def test_one_message_for_one_or_several(emulator: Emulator) -> None:
    at_eleven = datetime.datetime(2030, 1, 31, 11, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    assert Tries().run(single(send_date=at_eleven)) == SINGLE_RESULT
    several = single(to="Eve <eve@example.com>, bob@example.com", unique_msg_id="order-4711")
    assert Tries().run(several) == SINGLE_RESULT | {"recipients": 2}
    first, second = bodies(emulator)
    assert (first["to"], first["sendDate"]) == ({"email": "ada@example.com"}, "2030-01-31T10:00:00Z")
    assert 0 < len(first["uniqueMsgID"].encode()) <= 50
    to = [{"email": "eve@example.com", "name": "Eve"}, {"email": "bob@example.com"}]
    assert (second["messageVersions"][0]["to"], second["uniqueMsgID"]) == (to, "order-4711")
    assert mailed(emulator) == Counter(f"{name}@example.com" for name in ("ada", "eve", "bob"))


def test_a_mailing_is_cut_into_requests_of_a_hundred(emulator: Emulator) -> None:
    emulator.add_template("stored", subject="Hi", content="<p>Hello {{name}}</p>")
    done = Tries().run(batch(messages=letters(250), versions_per_request=100, template_name="stored"))
    assert done == batch_result(3, 250)
    assert [len(body["messageVersions"]) for body in bodies(emulator)] == [100, 100, 50]
    assert len({body["uniqueMsgID"] for body in bodies(emulator)}) == 3
    assert mailed(emulator) == everybody(range(250))
    assert emulator.messages(recipient=address(249))[0]["content"] == "<p>Hello N249</p>"
    assert emulator.journal.count("campaign/mail/template/get") == 1


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


# --- what is an error, before anything is sent ---

LINK = "{% raw %}<p>{{name}}, {{link}}</p>{% endraw %}"


def messages(**last: Any) -> dict[str, Any]:
    """Three of them, from a function, whose texts Airflow does not render."""
    return {"messages": lambda: [*letters(2), ADA | last]}


WRONG: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (batch, {"attachment": "{{ {'file_name': 'a.txt'} }}"}, "attachment: a dictionary needs file_name and file_data"),
    (batch, {"content": None}, "content or template_name: messages[0] has neither"),
    (batch, {"subject": None}, "subject: messages[0] has none"),
    (batch, {"mail_params": "{{ 'Ada' }}"}, "params: "),
    (batch, {"versions_per_request": True}, "versions_per_request: must be a whole number from 1 to 100, not True"),
    (batch, {"mail_params": {"name": "Dr. {{ none }}"}}, "mail_params: an expression of"),
    (batch, {"mail_params": {"name": "{{ none }}"}}, "mail_params.name: is the text 'None'"),
    (batch, {"messages": [ADA | {"params": {"name": "{{ none }}"}}]}, "messages[0].params.name: is the text 'None'"),
    (batch, messages(content=""), "messages[2].content: is blank"),
    (batch, {"content": LINK}, "content: {{link}} has no value in 3 of 3 messages"),
    (batch, messages(params={"name": None}), "content: {{name}} has no value in 1 of 3 messages, the first is m"),
    (batch, messages(params={"name": "Ada"}, subject="{{nmae}}"),
     "subject: {{nmae}} has no value in 1 of 3 messages, the first is messages[2]"),
    (batch, {"template_name": "stored", "subject": None}, "content of template 'stored': {{link}} has no value in 3"),
    (batch, {"template_name": "stored", "subject": None}, "subject of template 'stored': {{day}} has no value in 3"),
    (batch, {"template_name": "empty"}, "the content of template 'empty' shows nothing"),
    (single, {"to": {"name": "Ada"}}, "to.email: "),
    (single, {"to": [7]}, "to[0]: an address must be text, not int"),
    (single, {"to": ", ".join(map(address, range(21)))}, "to: 21 recipients, one message can have 20"),
    (single, {"unique_msg_id": "é" * 26}, "unique_msg_id: 52 bytes in UTF-8, at most 50"),
    (single, {"content": "<p></p>"}, "content: shows nothing"),
    (single, {"to": {"email": "ada@example.com", "name": "{{ none }}"}}, "to.name: is the text 'None'"),
    (single, {"to": {"email": "a@b.cc", "name": "Dr. {{ none }}"}}, "to: an expression of its template"),
    (single, {"content": LINK}, "content: {{name}} has no value: a single message has none for tags"),
]  # fmt: skip


def test_invalid_arguments_and_blank_content_send_nothing(run: Run, emulator: Emulator) -> None:
    emulator.add_template("stored", subject="On {{day}}", content="<p>{{name}}: {{link}}</p>")
    emulator.add_template("empty", subject="Empty", content="<p></p>")
    missing = []
    for make, arguments, words in WRONG:
        given = {"messages": letters(3)} if make is batch else {}
        try:
            done = run(lambda make=make, given=given | arguments: make(retries=2, **given))
        except ValueError as error:
            said = str(error)
        else:
            said = done.log if (done.state, done.tries) == ("failed", 1) else "was sent or repeated"
        if words not in said:
            missing.append((words, said))
    assert missing == []
    assert emulator.journal.count(SENDS) == 0


def test_the_whole_result_of_another_task_may_have_empty_values(run: Run, emulator: Emulator) -> None:
    """Where the DAG file itself has the dictionary, they are an error."""
    done = run(lambda: batch(messages=letters(1), mail_params="{{ {'greeting': '', 'link': none} }}"))
    assert done.state == "success"
    assert mailed(emulator) == everybody(range(1))


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


# --- the same person twice ---

TWICE = [
    *letters(12),
    *letters(3),
    {"to": ["USER1@example.com", "new@example.com"], "cc": ["new@example.com"], "params": {"name": "Two"}},
]
"""In requests of ten: three people once more, one of them in capitals once more, and one in `to` and `cc`."""


def test_duplicates_send_nothing_unless_they_are_allowed(emulator: Emulator) -> None:
    tries = Tries()
    assert tries.run_all(lambda: batch(messages=TWICE)) == "failed"
    assert (tries.number, emulator.journal.count()) == (1, 0)
    assert (
        "messages[12].to: the same recipient as messages[0]; messages[13].to: the same recipient as messages[1]; "
        "messages[14].to: the same recipient as messages[2]; messages[15].to: the same recipient as messages[1]; "
        "messages[15].cc: twice in this message. 5 duplicate recipients: nothing was sent. "
        "on_duplicate_recipient='skip'"
    ) in str(tries.error)
    allowed = Tries().run(batch(messages=TWICE, on_duplicate_recipient="allow"))
    assert allowed == batch_result(2, 18, duplicate_recipients=5)


@remembers
def test_duplicates_are_left_out_by_every_try(run: Run, emulator: Emulator) -> None:
    emulator.faults.add("close_before", SENDS, skip=1)
    done = run(lambda: batch(messages=TWICE, on_duplicate_recipient="skip", on_ambiguous="resend", **AT_ONCE))
    assert (done.state, done.tries) == ("success", 2)
    assert done.returned == batch_result(2, 13, duplicate_recipients=5)
    assert mailed(emulator) == everybody(range(12)) + Counter(["new@example.com"])
    assert [len(body["messageVersions"]) for body in bodies(emulator)] == [10, 3, 3]
    assert "5 recipients come more than once and are mailed only the first time" in done.log


def test_duplicates_of_a_query_are_named_by_their_rows(emulator: Emulator, crm: SqlDatabase) -> None:
    crm.execute("CREATE TABLE people (email TEXT, boss TEXT)")
    people = [address(0), address(1), address(0).upper()]
    crm.execute("INSERT INTO people", [(email, "boss@example.com") for email in people])
    given = {"sql_conn_id": "crm", "sql": "SELECT * FROM people", "cc_column": "boss", "content": "<p>Hello</p>"}
    mailing = HELLO | {"task_id": TASK} | given
    with pytest.raises(AirflowFailException, match=r"sql: row 3, column 'email': the same recipient as row 1\. 1 dup"):
        Tries().run(SqlToMailBatchOperator(**mailing))
    assert emulator.journal.count() == 0
    skipping = SqlToMailBatchOperator(**mailing, on_duplicate_recipient="skip")
    assert Tries().run(skipping) == batch_result(1, 4, duplicate_recipients=1)
    assert mailed(emulator) == everybody(range(2)) + Counter({"boss@example.com": 2})


PEOPLE = st.sampled_from(["a@b.cc", "A@b.cc", "é@b.cc", "E\u0301@B.cc", "é@ß.cc", "é@xn--zca.cc", "é@ss.cc"])
OTHERS = {part: st.lists(PEOPLE, max_size=2) for part in ("cc", "bcc")}
MESSAGES = st.lists(
    st.fixed_dictionaries({"to": st.lists(PEOPLE, min_size=1, max_size=3)}, optional=OTHERS), max_size=8
)


@given(MESSAGES)
def test_no_recipient_is_left_in_two_messages(messages: list[dict[str, list[str]]]) -> None:
    versions = [{part: [{"email": email} for email in who] for part, who in message.items()} for message in messages]
    skip, fail = Recipients("skip"), Recipients("fail")
    kept = [
        each
        for number, version in enumerate(versions)
        if (each := skip.without_duplicates(number, version)) is not None
    ]
    assert [fail.without_duplicates(number, version) for number, version in enumerate(versions)] == versions
    at_once = Recipients("skip")
    if at_once.are_new(list(enumerate(versions))):
        assert not skip.count
    else:
        each = [at_once.without_duplicates(number, version) for number, version in enumerate(versions)]
        assert [one for one in each if one is not None] == kept

    to = [address_key(person["email"]) for version in kept for person in version["to"]]
    assert sorted(to) == sorted({address_key(email) for message in messages for email in message["to"]})
    for version in kept:
        within = [address_key(person["email"]) for people in version.values() for person in people]
        assert len(set(within)) == len(within)
    assert skip.count == fail.count
    assert (fail.count == 0) == (kept == versions)
    if fail.count:
        with pytest.raises(MailValidationError, match=f"{fail.count} duplicate recipients") as raised:
            fail.check()
        assert "@" not in str(raised.value)
    skip.check()
    for recipients in (skip, fail, at_once):
        recipients.close()


def test_invalid_recipients_are_left_to_the_check_in_flat_memory() -> None:
    recipients = Recipients("skip")
    for wrong in (None, 7, {"name": "x"}, {"email": 7}, "text"):
        version: Any = {"to": [wrong, wrong]}
        assert recipients.without_duplicates(0, version) == version
    tracemalloc.start()
    for number in range(5_000):
        recipients.without_duplicates(number, {"to": [{"email": address(number)}]})
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    recipients.close()
    assert most < 100_000


# --- further tries ---


@remembers
def test_a_cleared_task_continues_after_a_rejection(run: Run, emulator: Emulator, new_dag: Callable[..., DAG]) -> None:
    emulator.settings.email_credits = 25
    with new_dag() as dag:
        batch(messages=letters(55), **AT_ONCE)
        single(task_id="single")
    done = run(dag)
    assert (done.state, done.tries) == ("failed", 1)
    assert "insufficient email credits" in done.log
    assert "20 recipients in 2 requests were accepted" in done.log
    ((record, expires),) = records(done.result)
    assert (json.loads(record)["recipients"], expires, "@" in record) == (20, None, False)

    emulator.settings.email_credits = None
    for _ in range(2):  # a task that has succeeded sends nothing more
        for task_id in (TASK, "single"):
            assert done.result.clear_and_run(task_id).state == "success"
    assert mailed(emulator) == everybody(range(55)) + Counter(["ada@example.com"])
    ids = [body["uniqueMsgID"] for body in bodies(emulator) if "messageVersions" in body]
    assert (len(ids), len(set(ids)), ids[2] == ids[3]) == (7, 6, True)
    assert done.result.xcom(TASK) == batch_result(6, 55)
    assert done.result.xcom("single") == SINGLE_RESULT


@remembers
def test_an_id_that_the_user_gave_proves_nothing(emulator: Emulator) -> None:
    emulator.change_settings(duplicate_unique_msg_id_code=400)
    emulator.faults.add("close_before", SENDS, skip=1)
    taken = {"subject": "x", "content": "x", "to": {"email": "x@example.com"}, "unique_msg_id": "mine"}
    MailHook().send(SendMail(sender_mail="news@example.com", **taken))
    tries = Tries()
    assert tries.run_all(lambda: single(unique_msg_id="mine", on_ambiguous="resend")) == "failed"
    assert "was used before" in str(tries.error)
    assert mailed(emulator) == Counter(["x@example.com"])


def without_store(**arguments: Any) -> Any:
    """A task for 25 people, in requests of ten, without a task state store, as below Airflow 3.3."""
    remove = {"pre_execute": lambda context: context.pop("task_state_store", None)}
    return batch(**{"messages": letters(25)} | remove | AT_ONCE | arguments)


@pytest.mark.parametrize("choice", ["fail", "skip"])
def test_without_a_store_a_second_try_sends_nothing(run: Run, emulator: Emulator, choice: str) -> None:
    with at_request(emulator, SENDS, 2, time_out_task):
        done = run(lambda: without_store(on_ambiguous=choice, execution_timeout=DAY))
    assert (done.state, done.tries) == ("failed", 2)
    assert "this Airflow has no task state store" in done.log
    assert "this is try 2, and nothing was sent in it" in done.log
    assert emulator.journal.count(SENDS) == 2


def test_without_a_store_a_temporary_failure_is_final(run: Run, emulator: Emulator) -> None:
    emulator.faults.add("too_many_requests", SENDS, skip=1, count=None, retry_after=100)
    done = run(without_store)
    assert (done.state, done.tries) == ("failed", 1)
    assert "too many requests" in done.log
    assert "10 recipients in 1 requests were accepted" in done.log
    assert mailed(emulator) == everybody(range(10))


@pytest.mark.parametrize(("code", "twice"), [(None, [range(20)]), (400, [])], ids=["any id", "known ids rejected"])
def test_without_a_store_resend_sends_everything(
    run: Run, emulator: Emulator, code: int | None, twice: list[range]
) -> None:
    emulator.change_settings(duplicate_unique_msg_id_code=code)
    emulator.faults.add("close_after", SENDS, skip=1)
    done = run(lambda: without_store(on_ambiguous="resend"))
    assert (done.state, done.tries) == ("success", 2)
    assert mailed(emulator) == everybody(range(25), *twice)
    assert done.returned == batch_result(3, 25)
    assert "The next try sends everything again" in done.log


# --- the record of what was sent ---


@remembers
@pytest.mark.parametrize(("message", "is_known"), [
    ("uniqueMsgID {} was used before", True),
    ("unique_msg_id already exists", True),
    ("{}: duplicate", True),
    ("Unique Msg ID in use", True),
    ("uniqueMsgID {} is malformed", False),
    ("the list was used before", False),
    ("id-used is wrong", False),
])  # fmt: skip
def test_a_known_id_proves_that_a_request_in_doubt_was_sent(emulator: Emulator, message: str, is_known: bool) -> None:
    def make() -> Any:
        return batch(messages=letters(25), on_ambiguous="resend")

    tries = Tries()
    emulator.faults.add("close_before", SENDS, skip=1)
    with pytest.raises(
        MailResponseLostError, match=r"request 1 .* may have been sent; .* The next try sends it again$"
    ):
        tries.run(make())
    said = message.format(bodies(emulator)[1]["uniqueMsgID"])
    emulator.faults.add("code_before", SENDS, code=400, message=said)
    if is_known:
        assert tries.run(make()) == tries.run(make()) == batch_result(3, 25)
        assert mailed(emulator) == everybody(range(10), range(20, 25))  # as the service says
    else:
        with pytest.raises(AirflowFailException, match="400"):
            tries.run(make())
        assert mailed(emulator) == everybody(range(10))


@remembers
def test_other_requests_than_an_earlier_try_began_with_are_not_sent(emulator: Emulator) -> None:
    """Neither fewer nor others, whatever is done with the request in doubt."""
    tries = Tries()
    emulator.faults.add("close_after", SENDS, skip=2)
    with pytest.raises(MailResponseLostError):
        tries.run(batch(messages=letters(40), on_ambiguous="resend"))
    others, last = letters(10, start=50), letters(10, start=30)
    for choice in ("skip", "resend"):
        for these in (letters(10), letters(20), [*others, *letters(30, start=10)], [*letters(20), *others, *last]):
            assert tries.run_all(lambda: batch(messages=these, on_ambiguous=choice), most=1) == "failed"  # noqa: B023
            assert "these differ from what an earlier try began to send" in str(tries.error)
    assert mailed(emulator) == everybody(range(30))


@remembers
def test_a_record_that_is_not_understood_sends_nothing(emulator: Emulator) -> None:
    for change in ({"version": 2}, {"requests": -1}, {"requests": "1"}, {"more": 1}, {"digest": None}):
        tries = Tries()
        tries.store.set(TASK_STATE_KEY, {**MailingState.parse(None).model_dump(), **change})
        assert tries.run_all(lambda: batch(messages=letters(1))) == "failed"
        assert "nothing was sent" in str(tries.error)
    assert bodies(emulator) == []


@remembers
def test_a_mapped_list_that_moves_mails_nobody_twice(emulator: Emulator) -> None:
    """What was sent is stored by position, so one that is new in a cleared run may be another's."""
    instances = [Tries(map_index=index) for index in range(3)]

    def run(people: str, cleared: int) -> list[str]:
        first: dict[str, Any] = {}
        ends = []
        for tries, person in zip(instances, people, strict=False):
            tries.clear()
            tries.clear_number, tries.others = cleared, first
            ends.append(tries.run_all(lambda person=person: single(to=f"{person}@example.com")))
            first = first or dict(tries.pushed)
        return ends

    assert run("ab", 0) == ["success", "success"]
    assert run("ab", 1) == ["success", "success"]
    assert run("zab", 2) == ["failed", "failed", "failed"]
    assert all("the mapped list may have moved" in str(tries.error) for tries in instances)
    assert set(mailed(emulator).values()) == {1}


@remembers
def test_the_place_of_a_message_that_was_not_sent_is_not_another_s(emulator: Emulator) -> None:
    """The first one of a mapped list fails, the second is mailed; then the list loses the first, or it moves."""
    for wrong in ("nobody", "a@example.com"):
        first, second = Tries(map_index=0), Tries(map_index=1)
        if wrong != "nobody":
            emulator.faults.add("code_before", SENDS, count=1, code=403)
        assert first.run_all(lambda wrong=wrong: single(to=wrong), 1) == "failed"
        second.run(single(to="b@example.com"))
        first.clear()
        first.clear_number = 1
        assert first.run_all(lambda: single(to="b@example.com")) == "failed"
        assert "the mapped list may have moved" in str(first.error)
        first.run(single(to="c@example.com", on_ambiguous="resend"))
    assert mailed(emulator) == {"b@example.com": 2, "c@example.com": 2}


@pytest.mark.parametrize("has_store", {AIRFLOW_VERSION >= (3, 3), False})
def test_the_first_of_a_mapped_list_tells_the_others_of_this_clear(
    has_store: bool, emulator: Emulator, clock: Clock
) -> None:
    """What it has said before the clear does not count."""
    first, other = (Tries(map_index=index, has_store=has_store) for index in (0, 2))
    first.run(single(to="a@example.com"))
    other.others, other.clear_number = first.pushed, 1
    with pytest.raises(AirflowException, match="map_index 0 has not begun yet"):
        other.run(single(to="a@example.com"))
    assert mailed(emulator) == {"a@example.com": 1}


@remembers
def test_a_mapped_task_that_never_ran_sends_when_the_run_is_cleared(emulator: Emulator) -> None:
    first = Tries(map_index=0)
    first.clear_number = 1
    first.run(single(to="a@example.com"))
    second = Tries(map_index=1)
    second.clear_number, second.others = 1, dict(first.pushed)
    second.run(single(to="b@example.com"))
    assert set(mailed(emulator).values()) == {1}


@pytest.mark.parametrize(("status", "in_flight"), [(200, 1), (401, 1), (401, 3)])
def test_credentials_that_are_exchanged_while_a_batch_runs(
    emulator: Emulator, connect: Connect, status: int, in_flight: int
) -> None:
    emulator.change_settings(bad_api_key_http_status=status)

    def exchange() -> None:
        emulator.settings.api_key = "another"
        connect(password="another")

    with at_request(emulator, SENDS, 2, exchange):
        assert Tries().run(batch(messages=letters(80), max_in_flight=in_flight))["recipients"] == 80
    assert set(mailed(emulator).values()) == {1}


def test_credentials_are_read_once_more_before_a_task_fails(emulator: Emulator, connect: Connect) -> None:
    """Of every kind of task that writes."""
    emulator.add_list("newsletter", ["ada@example.com"])
    rows = [{"email": address(number)} for number in range(3)]
    imports = MailImportContactsOperator(task_id=TASK, contacts=rows, list_name="new", max_in_flight=1)
    for kind in (single(), campaign(), MailCancelCampaignOperator(task_id=TASK, mail_name="none"), imports):
        assert kind.hook.config  # read before the exchange
        emulator.settings.api_key += "+"
        connect(password=emulator.settings.api_key)
        emulator.journal.clear()
        Tries().run(kind)
        assert [entry["auth"] for entry in emulator.journal.entries()].count("invalid") == 1
    assert mailed(emulator)["ada@example.com"] == 1
    assert (len(emulator.campaigns("spring")), len(emulator.contacts())) == (1, 4)
    emulator.settings.api_key = "revoked"
    emulator.journal.clear()
    with pytest.raises(AirflowFailException, match="airflow mail oauth login"):
        Tries().run(single())
    assert emulator.journal.count(SENDS) == 1


def test_a_batch_is_halved_until_a_proxy_passes_it_on(emulator: Emulator) -> None:
    with proxy(emulator, 413, most=3):
        assert Tries().run(batch(messages=letters(40))) == batch_result(4, 40)
    assert mailed(emulator) == everybody(range(40))
    assert len({body["uniqueMsgID"] for body in bodies(emulator)}) == len(bodies(emulator)) == 18
    with proxy(emulator, 413), pytest.raises(AirflowFailException, match="too large for a proxy"):
        Tries().run(batch(messages=letters(2)))
    with proxy(emulator, 413), pytest.raises(AirflowFailException, match="too large for a proxy"):
        Tries().run(single())


@remembers
@pytest.mark.parametrize("choice", ["fail", "resend", "skip"])
@pytest.mark.parametrize("status", [400, 403, 404])
def test_what_a_proxy_stops_is_sent_later(emulator: Emulator, status: int, choice: str) -> None:
    tries = Tries()
    for kind in (batch, single):
        arguments = {"messages": letters(40)} if kind is batch else {}
        with proxy(emulator, status), pytest.raises(MailError, match=f"HTTP {status} with a proxy's page"):
            tries.run(kind(on_ambiguous=choice, **arguments))
        assert tries.run(kind(on_ambiguous=choice, **arguments))["unknown_recipients"] == 0
        tries = Tries()
    assert mailed(emulator) == everybody(range(40)) + Counter({"ada@example.com": 1})


@remembers
@pytest.mark.parametrize(("choice", "unknown", "twice"), [("resend", 0, range(5, 10)), ("skip", 5, range(0))])
def test_a_part_in_doubt_concerns_only_its_people(emulator: Emulator, choice: str, unknown: int, twice: range) -> None:
    """The second part of the first request is accepted, and the response lost."""
    tries = Tries()
    emulator.faults.add("close_after", SENDS, skip=2, count=1)
    for _ in range(2):
        with proxy(emulator, 413, most=5):
            if choice == "resend" and tries.number == 0:
                with pytest.raises(MailResponseLostError, match=r"request 0 \(5 recipients, uniqueMsgID .*\.5\.5\)"):
                    tries.run(batch(messages=letters(20), on_ambiguous=choice))
            else:
                result = tries.run(batch(messages=letters(20), on_ambiguous=choice))
    assert (result["unknown_recipients"], result["recipients"]) == (unknown, 20 - unknown)
    assert mailed(emulator) == everybody(range(20), twice)
