"""People's addresses are in the service, in the tables that hold contacts, and nowhere in Airflow.

A task that fails ends in one error, and its sentence is the last line of what is logged of it.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import structlog
from airflow.sdk import DAG, task

from airflow_provider_mail.api.contacts import GetContact, UpsertContact
from airflow_provider_mail.api.errors import MailConnectError, MailRejectedError, chain_of
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.contacts import MailDeleteContactOperator, MailImportContactsOperator
from airflow_provider_mail.operators.transactional import MailSendBatchOperator, MailSendOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.transfers.mail_to_sql import MailTransactionalStatsToSqlOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from airflow_provider_mail.version_compat import AirflowFailException
from mail_emulator import Emulator
from tests.support.operator_parts import AirflowErrors, errors_log
from tests.tasks.conftest import TASK, Connect, Done, Run, SqlDatabase
from tests.tasks.sending import HELLO, change_retries

GOOD, BAD = "planted-good@example.com", "planted-bad(at)example.com"
KEY = "planted-key-4711"
PLANTED = ("planted", "Plantagenet", "+49 171 7777777")
PEOPLE = [(GOOD, "Plantagenet", "+49 171 7777777"), (BAD, "Plantagenet", None)]


def assert_nothing_planted(done: Done, errors: Sequence[BaseException] = (), logged: str = "") -> None:
    """Nothing of a person is in logs, XComs, rendered fields or errors."""
    pushed = json.dumps(list(done.result.xcoms().values()))
    shown = [done.log, logged, done.rendered(), pushed, *map(everything_of, errors)]
    assert [word for word in PLANTED for place in shown if word in place] == []


def everything_of(error: BaseException) -> str:
    """Everything that anybody could print of an error and of all that led to it, variables of the frames included."""
    texts = []
    for link in chain_of(error):
        frames = traceback.TracebackException.from_exception(link, capture_locals=True)
        texts += [str(link), repr(link), repr(link.args), repr(vars(link)), *frames.format(chain=False)]
    return "\n".join(texts)


@pytest.fixture(autouse=True)
def _plain_tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow 3.0 prints variables as well, which takes a second each time; `everything_of` looks at them anyhow."""
    plain = staticmethod(structlog.dev.plain_traceback)
    monkeypatch.setattr(structlog.dev.RichTracebackFormatter, "__call__", lambda _, out, error: plain(out, error))


def all_kinds() -> None:
    """A task of each kind that has secrets or people's data to lose."""
    MailSendOperator(task_id="send", to={"email": GOOD, "name": "Plantagenet"}, service_tags=["name"], **HELLO)
    for choice in ("fail", "resend", "skip"):
        message = {"to": "a@example.com", "cc": [GOOD], "params": {"name": "Plantagenet"}}
        MailSendBatchOperator(task_id=choice, messages=[message], on_ambiguous=choice, **HELLO)
    MailImportContactsOperator(task_id="rows", contacts=lambda: [{"email": GOOD, "phone_number": PEOPLE[0][2]}])
    SqlToMailContactsOperator(task_id="sql", sql_conn_id="crm", sql="SELECT * FROM people WHERE phone_number > ''")
    MailCreateCampaignOperator(task_id="create", send_list_names=["newsletter"], **HELLO)
    MailCampaignSensor(task_id="wait", mail_name="spring", poke_interval=60, poll_error_timeout=0)
    MailTransactionalStatsToSqlOperator(task_id="statistics", sql_conn_id="crm")

    @task
    def hook() -> None:
        MailHook().send(UpsertContact(email=GOOD, name=PEOPLE[0][1], phone_number=PEOPLE[0][2]))

    @task
    def find() -> None:
        MailHook().send(GetContact(email=GOOD))

    hook()
    find()


@pytest.mark.parametrize(
    ("fault", "params"),
    [
        *(("code_before", {"code": code, "message": f"I do not like {KEY}, {GOOD}"}) for code in (400, 500)),
        ("close_after", {}),
    ],
)  # fmt: skip
def test_every_failure(
    run: Run, emulator: Emulator, crm: SqlDatabase, errors: list[BaseException], connect: Connect,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str, params: dict[str, Any],
) -> None:  # fmt: skip
    """Also of a service that quotes what it was sent.

    Its other responses are in `api/test_secrets.py`, connections that cannot work in `hooks/test_connection.py`.
    """
    for name in ("httpx", "httpcore"):
        caplog.set_level(logging.DEBUG, name)
    change_retries(monkeypatch, attempts=1)
    crm.execute("CREATE TABLE people (email TEXT, name TEXT, phone_number TEXT)")
    crm.execute("INSERT INTO people", PEOPLE)
    emulator.change_settings(api_key=KEY)
    connect()
    emulator.faults.add(fault, count=None, **params)

    done = run(all_kinds)

    ends = {task_id: task.state for (task_id, _), task in done.result.tasks.items()}
    assert ends.pop("skip") == ("failed" if params.get("code") == 400 else "success")
    assert set(ends.values()) == {"failed"}
    assert GOOD in str([entry["body"] for entry in emulator.journal.entries()])
    assert "send_request_headers.started" in caplog.text, "httpcore logs what it does"
    assert_nothing_planted(done, errors, caplog.text)


class UserError(Exception):
    """Something of the user's own, in the middle."""


def test_a_crash_in_the_middle(run: Run, emulator: Emulator, errors: list[BaseException]) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield {"email": GOOD, "name": "Plantagenet"}
        raise UserError("of the user's own")

    def tasks() -> None:
        MailImportContactsOperator(task_id="rows", contacts=rows, chunk_size=1)
        MailSendBatchOperator(task_id="send", messages=lambda: ({"to": row} for row in rows()), **HELLO)

    done = run(tasks)
    assert [type(error) for error in errors] == [UserError] * 2
    assert_nothing_planted(done, errors)


def test_rows_from_another_task_are_not_shown(
    run_in_airflow: Run, new_dag: Callable[..., DAG], emulator: Emulator
) -> None:
    """Nor rendered as templates."""
    person = {"email": GOOD, "name": "{{ not.jinja }} Plantagenet"}
    with new_dag() as dag:

        @task
        def people() -> list[dict[str, str]]:
            return [person]

        @task
        def parts() -> list[list[dict[str, str]]]:
            return [[person]]

        MailImportContactsOperator(task_id=TASK, contacts=people())
        MailImportContactsOperator(task_id="literal", contacts=[{"email": GOOD}])
        MailImportContactsOperator.partial(task_id="mapped", list_name="all").expand(contacts=parts())

    done = run_in_airflow(dag)

    assert done.result.state == "success", done.log
    assert [(contact["email"], contact["name"]) for contact in emulator.contacts("all")] == [tuple(person.values())]
    assert '"contacts": "not shown (1)"' in done.rendered()
    assert [word for word in PLANTED if word in done.rendered()] == []


# --- one error, and one sentence ---


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({"password": "another"}, AirflowFailException, "check the connection's password"),
        ({"host": "http://127.0.0.1:9"}, MailConnectError, "http://127.0.0.1:9 cannot be reached"),
    ],
    ids=["for good", "tried again"],
)
def test_a_failure_is_one_error_and_one_sentence(
    run: Run, connect: Connect, monkeypatch: pytest.MonkeyPatch, errors: list[BaseException], fields: dict[str, Any],
    kind: type[Exception], words: str,
) -> None:  # fmt: skip
    change_retries(monkeypatch, attempts=1)
    connect(**fields)
    assert run(lambda: MailDeleteContactOperator(task_id=TASK, contact_email=GOOD)).state == "failed"
    (error,) = errors
    assert (type(error), error.__cause__) == (kind, None)  # retry policies know the one that is temporary
    shown = "".join(traceback.format_exception(error))
    assert shown.splitlines()[-1].endswith(str(error))
    assert words in str(error).replace("Check", "check")
    # Where `execute` was, twice, and where the error was made.
    assert shown.count("/airflow_provider_mail/") <= 3
    assert not [words for words in ("The above exception", "During handling") if words in shown]


def test_the_cause_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, errors_log.name)
    with pytest.raises(AirflowFailException) as raised, AirflowErrors("mail_default"):
        raise MailRejectedError("/v5/lists/add: code 403: ada@example.com was rejected")
    assert (raised.value.__suppress_context__, raised.value.__cause__) == (True, None)
    (record,) = caplog.records
    assert record.levelno == logging.DEBUG
    assert "MailRejectedError: /v5/lists/add: code 403: ***@example.com was rejected" in record.message


@pytest.mark.parametrize("error", [MailRejectedError, MailConnectError, KeyError], ids=lambda error: error.__name__)
def test_no_recipient_is_named_in_an_error_or_its_causes(error: type[Exception]) -> None:
    """Whether the task fails at once, is tried again, or ends in an error of the user's own code."""
    sender = "promo@shop.example.com"
    text = f"a letter from {sender} to ada@shop.example.com, {sender.upper()}."

    def fail() -> None:
        try:
            raise MailRejectedError(text)
        except MailRejectedError:
            raise error("row" if error is KeyError else text)  # noqa: B904 - as users write it

    with pytest.raises((AirflowFailException, error)) as raised, AirflowErrors("mail_default", senders=[sender]):
        fail()
    shown = "".join(traceback.format_exception(raised.value))
    assert "ada@" not in shown
    assert f"from {sender} to ***@shop.example.com, {sender.upper()}." in shown
