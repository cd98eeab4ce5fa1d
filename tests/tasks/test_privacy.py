"""People's addresses are in the service, in the tables that hold contacts, and nowhere in Airflow."""

from __future__ import annotations

import json
import logging
import socket
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import structlog
from airflow.sdk import DAG, task

from airflow_provider_mail.api.contacts import GetContact, UpsertContact
from airflow_provider_mail.api.errors import chain_of
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.operators.transactional import MailSendBatchOperator, MailSendOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.transfers.mail_to_sql import MailTransactionalStatsToSqlOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from mail_emulator import Emulator
from tests.api.wire import Wire, http
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


def with_people(database: SqlDatabase) -> SqlDatabase:
    database.execute("CREATE TABLE people (email TEXT, name TEXT, phone_number TEXT)")
    database.execute("INSERT INTO people", PEOPLE)
    return database


Script = Callable[[socket.socket], None]


class Parrot:
    """A service that fails, and repeats to everybody what it was sent: addresses, and the key that came with them."""

    def __init__(self) -> None:
        self.wire = Wire()

    def quote(self) -> str:
        """What may not come back out, as it was in the last request."""
        sent = b"\n".join(self.wire.requests[-1:]).decode()
        return f"I do not like {', '.join(word for word in (KEY, GOOD, *PEOPLE[0][1:]) if word in sent)}"

    def says(self, status: str, body: Callable[[str], bytes], *headers: str) -> Script:
        def respond(connection: socket.socket) -> None:
            connection.sendall(http(body(self.quote()), status, *(header + self.quote() for header in headers)))

        return respond


def coded(code: Any) -> Callable[[str], bytes]:
    return lambda quote: json.dumps({"code": code, "message": quote, "data": [quote]}).encode()


def page(quote: str) -> bytes:
    return f"<html><body>{quote}</body></html>".encode()


# Other shapes are those of `tests/api/test_secrets.py`.
SHAPES: dict[str, Callable[[Parrot], Script]] = {
    "400": lambda parrot: parrot.says("200 OK", coded(400)),
    "a status line that quotes": lambda parrot: parrot.says(f"400 {GOOD}", page),
    "code 500": lambda parrot: parrot.says("200 OK", coded(500)),
    "half a JSON": lambda parrot: parrot.says("200 OK", lambda quote: coded(200)(quote)[:-9]),
    "429": lambda parrot: parrot.says("429 Too Many Requests", coded(429), "Retry-After: "),
    "silence": lambda parrot: lambda connection: connection.recv(1) and None,  # until the client hangs up
}


@pytest.fixture
def parrot() -> Iterator[Parrot]:
    parrot = Parrot()
    with parrot.wire:
        yield parrot


@pytest.fixture
def _talkative(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Httpx and httpcore log as they do when their logs are switched to DEBUG."""
    # Airflow 3.0 prints variables as well, which takes a second each time; `everything_of` looks at them anyhow.
    plain = staticmethod(structlog.dev.plain_traceback)
    monkeypatch.setattr(structlog.dev.RichTracebackFormatter, "__call__", lambda _, out, error: plain(out, error))
    for name in ("httpx", "httpcore"):
        caplog.set_level(logging.DEBUG, name)


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


@pytest.mark.usefixtures("_talkative")
@pytest.mark.parametrize("shape", SHAPES)
def test_every_failure(
    run: Run, crm: SqlDatabase, parrot: Parrot, errors: list[BaseException], shape: str, connect: Connect,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Of a service that quotes what it was sent; for connections that cannot work see `hooks/test_connection.py`."""
    change_retries(monkeypatch, attempts=1)
    with_people(crm)
    connect(host=parrot.wire.base_url, password=KEY, timeout=0.2 if shape == "silence" else 60)
    parrot.wire.answer = SHAPES[shape](parrot)

    done = run(all_kinds)

    ends = {task_id: task.state for (task_id, _), task in done.result.tasks.items()}
    unclear = ends.pop("skip")
    assert unclear == "success" or not any(getattr(error, "may_have_taken_effect", False) for error in errors)
    assert set(ends.values()) == {"failed"}
    requests = b"".join(parrot.wire.requests)
    assert KEY.encode() in requests
    assert GOOD.encode() in requests
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
