"""While mass mail is held, no task mails many people, whatever it tries; nothing else is held."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import task

from airflow_provider_mail.api.errors import MailHeldError
from airflow_provider_mail.hold import FRESH_SECONDS, SETTLE_SECONDS, Hold, current_hold, release_hold, set_hold, stop
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.operators.preflight import MailPreflightOperator
from airflow_provider_mail.operators.transactional import MailSendOperator
from airflow_provider_mail.version_compat import AirflowFailException
from mail_emulator import Emulator
from tests.support.changes import at_request
from tests.support.clock import Clock
from tests.support.execution_api import ExecutionApi
from tests.support.tries import Tries
from tests.tasks.conftest import TASK, Run
from tests.tasks.sending import CAMPAIGN, HELLO, SENDS, batch, bodies, campaign, letters, remembers

CREATES, IMPORTS = "campaign/mail/sends", "contacts/imports"
HELD = json.dumps({"set_by": "ada on laptop", "set_at": "2026-11-26T12:00:00+00:00", "reason": "wrong price"})


@pytest.fixture(autouse=True)
def _list(emulator: Emulator) -> None:
    emulator.add_list("newsletter", ["ida@example.com"])


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that says what Airflow has in its Variables, and whether they can be read."""

    def variables(away: bool = False, **values: str) -> None:
        start = ExecutionApi.__init__

        def init(api: ExecutionApi, *arguments: Any) -> None:
            start(api, *arguments)
            api.variables, api.variables_away = values, away

        monkeypatch.setattr(ExecutionApi, "__init__", init)

    return variables


def imports(**arguments: Any) -> MailImportContactsOperator:
    return MailImportContactsOperator(
        task_id=TASK, contacts=[{"email": "kim@example.com"}], list_name="newsletter", **arguments
    )


MASS = {
    "campaign": (campaign, CREATES),
    "batch": (lambda: batch(messages=letters(3)), SENDS),
    "import": (imports, IMPORTS),
}
mass = pytest.mark.parametrize(("make", "operation"), MASS.values(), ids=MASS)


@mass
def test_what_mails_many_people_is_held(
    make: Callable[[], Any], operation: str, run: Run, emulator: Emulator, variables: Callable[..., None]
) -> None:
    variables(mail_hold=HELD)
    done = run(make)
    assert (done.state, emulator.journal.count(operation)) == ("failed", 0)
    assert "all mass mail is held, set by ada on laptop at 2026-11-26T12:00:00+00:00: wrong price" in done.log
    assert "airflow mail release" in done.log


@mass
def test_a_hold_that_cannot_be_read_holds(
    make: Callable[[], Any], operation: str, run: Run, emulator: Emulator, variables: Callable[..., None]
) -> None:
    variables(away=True)
    done = run(make)
    assert (done.state, emulator.journal.count(operation)) == ("failed", 0)
    assert "the Variable 'mail_hold' could not be read" in done.log


@mass
def test_what_is_not_held_goes_out(make: Callable[[], Any], operation: str, run: Run, emulator: Emulator) -> None:
    assert (run(make).state, emulator.journal.count(operation)) == ("success", 1)


def test_what_is_not_mass_mail_goes_out(run: Run, emulator: Emulator, variables: Callable[..., None]) -> None:
    variables(mail_hold=HELD)

    def make() -> None:
        MailSendOperator(task_id=TASK, to="ida@example.com", **HELLO | {"content": "<p>Hello</p>"})
        MailPreflightOperator(task_id="preflight", unsubscribe_pattern=None, **CAMPAIGN)
        campaign(task_id="dry", sandbox_mode=True)

    assert run(make).result.state == "success"
    assert len(bodies(emulator)) == 1


def test_a_campaign_that_exists_is_adopted_and_waited_for(emulator: Emulator) -> None:
    def make() -> Any:
        return campaign(mail_name=None, wait_for_completion=True, poke_interval=5)

    tries = Tries()
    tries.run(make())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_VAR_MAIL_HOLD", HELD)
        assert tries.run(make())["adopted"]
        with pytest.raises(MailHeldError, match="ada on laptop"):
            Tries().run(campaign(mail_name="another"))
    assert emulator.journal.count(CREATES) == 1


@remembers
def test_a_batch_stops_where_it_is(emulator: Emulator, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def hold() -> None:
        monkeypatch.setenv("AIRFLOW_VAR_MAIL_HOLD", HELD)
        clock.sleep(SETTLE_SECONDS)

    tries = Tries()
    with at_request(emulator, SENDS, 2, hold), pytest.raises(MailHeldError):
        tries.run(batch(messages=letters(40)))
    assert len(bodies(emulator)) == 2
    monkeypatch.delenv("AIRFLOW_VAR_MAIL_HOLD")
    assert tries.run(batch(messages=letters(40)))["recipients"] == 40
    assert len(bodies(emulator)) == 4


def test_a_hold_that_is_set_while_a_request_connects(
    emulator: Emulator, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = socket.create_connection

    def slow(*arguments: Any, **options: Any) -> Any:
        if emulator.journal.count(SENDS) == 1:
            monkeypatch.setenv("AIRFLOW_VAR_MAIL_HOLD", HELD)
            clock.sleep(FRESH_SECONDS)
        return connect(*arguments, **options)

    monkeypatch.setattr(socket, "create_connection", slow)
    # Without a task state store, the task must not be retried: what was sent is not known.
    with pytest.raises((MailHeldError, AirflowFailException), match="all mass mail is held"):
        Tries().run(batch(messages=letters(40)))
    assert len(bodies(emulator)) == 1


def test_a_task_can_hold_and_release(run: Run, emulator: Emulator) -> None:
    def make() -> None:
        @task(task_id="hold")
        def hold() -> str:
            return set_hold(set_by="dag", reason="bounces").reason

        @task(task_id="release", trigger_rule="all_done")
        def release() -> str:
            held = release_hold()
            return f"{held and held.set_by} {release_hold()} {current_hold()}"

        hold() >> campaign() >> release()

    done = run(make)
    assert (done.result.task(TASK).state, emulator.journal.count(CREATES)) == ("failed", 0)
    assert done.result.xcom("release") == "dag None None"


@pytest.mark.parametrize("text", ["true", "", "[]", '{"set_by": 1}', '{"by": "ada"}'])
def test_any_value_of_the_variable_holds(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_MAIL_HOLD", text)
    assert isinstance(current_hold(), Hold)


def test_nothing_is_created_after_the_command_returned(
    emulator: Emulator, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight workers create campaigns for later; while they do, everything is stopped and held."""
    created_some = threading.Event()
    errors: list[BaseException] = []

    def work(worker: int) -> None:
        for number in range(1000):
            try:
                Tries().run(campaign(mail_name=f"{worker}/{number}", send_date="2999-01-01T00:00:00Z"))
            except MailHeldError as error:
                errors.append(error)
                return
            if number == 1:
                created_some.set()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    assert created_some.wait(300)
    monkeypatch.setenv("AIRFLOW_VAR_MAIL_HOLD", HELD)
    hook = MailHook()
    result = stop(hook, hold=current_hold())
    created = emulator.journal.count(CREATES)
    for worker in workers:
        worker.join(300)
    hook.close()
    assert (len(errors), emulator.journal.count(CREATES)) == (8, created)
    assert result.not_stopped == {}
    assert sorted(result.stopped) == sorted(found["mailName"] for found in emulator.campaigns())
    assert {found["state"] for found in emulator.campaigns()} <= {"draft", "cancelled", "failed"}
