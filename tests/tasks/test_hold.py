"""What is not sent now: while mass mail is held, outside of a send window, and again by `MailRetryPolicy`."""

from __future__ import annotations

import datetime
import importlib
import json
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import task

from airflow_provider_mail.api.errors import (
    MailAmbiguousSendError,
    MailAuthError,
    MailConflictError,
    MailConnectError,
    MailHeldError,
    MailRateLimitError,
    MailServerError,
    MailValidationError,
)
from airflow_provider_mail.api.transactional import SendMail
from airflow_provider_mail.arguments import Brakes, ChangesOnly
from airflow_provider_mail.hold import (
    FRESH_SECONDS,
    SETTLE_SECONDS,
    Hold,
    current_hold,
    release_hold,
    set_hold,
    stored_holds,
)
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.operators.preflight import MailPreflightOperator
from airflow_provider_mail.operators.transactional import MailSendOperator
from airflow_provider_mail.send_window import SendWindow
from airflow_provider_mail.version_compat import AirflowFailException
from mail_emulator import Emulator
from tests.support.changes import at_request
from tests.support.clock import Clock
from tests.support.dags import AIRFLOW_VERSION
from tests.support.execution_api import ExecutionApi
from tests.support.tries import Tries
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase
from tests.tasks.sending import (
    CAMPAIGN,
    HELLO,
    SENDS,
    batch,
    bodies,
    campaign,
    change_retries,
    letters,
    mailed,
    remembers,
)

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
    given = {"contacts": [{"email": "kim@example.com"}], "list_name": "newsletter"}
    return MailImportContactsOperator(task_id=TASK, **given | arguments)


HELD_BY = "all mass mail is held, set by ada on laptop at 2026-11-26T12:00:00+00:00: wrong price"


@pytest.mark.parametrize(
    ("found", "words"),
    [({"mail_hold": HELD}, HELD_BY), ({"away": True}, "the Variable 'mail_hold' could not be read")],
    ids=["held", "unread"],
)
@pytest.mark.parametrize(
    ("make", "operation"),
    [(campaign, CREATES), (lambda: batch(messages=letters(3)), SENDS), (imports, IMPORTS)],
    ids=["campaign", "batch", "import"],
)
def test_what_mails_many_people_is_held(
    make: Callable[[], Any], operation: str, run: Run, emulator: Emulator, variables: Callable[..., None],
    found: dict[str, Any], words: str,
) -> None:  # fmt: skip
    """Also if a hold may be set."""
    variables(**found)
    done = run(make)
    assert (done.state, emulator.journal.count(operation)) == ("failed", 0)
    assert words in done.log
    assert "mail release" in done.log or "away" in found  # before Airflow 3.2, it is no command of Airflow


def test_what_is_not_mass_mail_goes_out(run: Run, emulator: Emulator, variables: Callable[..., None]) -> None:
    variables(mail_hold=HELD)

    def make() -> None:
        MailSendOperator(task_id=TASK, to="ida@example.com", **HELLO | {"content": "<p>Hello</p>"})
        MailPreflightOperator(task_id="preflight", unsubscribe_pattern=None, **CAMPAIGN)
        campaign(task_id="dry", sandbox_mode=True)

    assert run(make).result.state == "success"
    assert len(bodies(emulator)) == 1


def test_a_campaign_that_exists_is_adopted_and_waited_for(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = {"mail_name": None, "wait_for_completion": True}
    tries = Tries()
    tries.run(campaign(**waits))
    monkeypatch.setenv("AIRFLOW_VAR_MAIL_HOLD", HELD)
    assert tries.run(campaign(**waits))["adopted"]
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
            held = release_hold(released_by="ada")
            return f"{held and held.set_by} {release_hold()} {current_hold()} {stored_holds().last_release[:44]}"

        hold() >> campaign() >> release()

    done = run(make)
    assert (done.result.task(TASK).state, emulator.journal.count(CREATES)) == ("failed", 0)
    assert done.result.xcom("release") == "dag None None The hold set by dag was released by ada at 2"


def test_one_connection_is_held(run: Run, emulator: Emulator, connect: Connect, variables: Callable[..., None]) -> None:
    connect("mail_other")
    variables(mail_hold=json.dumps({"holds": {"mail_other": json.loads(HELD) | {"mail_conn_id": "mail_other"}}}))
    held = run(lambda: imports(mail_conn_id="mail_other"))
    assert "mass mail of connection 'mail_other' is held, set by ada on laptop" in held.log
    assert (held.state, run(imports).state, emulator.journal.count(IMPORTS)) == ("failed", "success", 1)


def test_an_import_stops_where_it_is(emulator: Emulator, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def hold() -> None:
        monkeypatch.setenv("AIRFLOW_VAR_MAIL_HOLD", HELD)
        clock.sleep(FRESH_SECONDS)

    people = [{"email": f"user{number}@example.com"} for number in range(500)]
    with at_request(emulator, IMPORTS, 2, hold), pytest.raises(MailHeldError):
        Tries().run(imports(contacts=people, chunk_size=10, max_in_flight=1))
    assert emulator.journal.count(IMPORTS) == 2


def test_an_import_deletes_nobody_while_it_is_held(
    emulator: Emulator, warehouse: SqlDatabase, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hold() -> None:
        monkeypatch.setenv("AIRFLOW_VAR_MAIL_HOLD", HELD)
        clock.sleep(FRESH_SECONDS)

    def run(people: int) -> None:
        rows = [{"email": f"user{number}@example.com"} for number in range(people)]
        changes = ChangesOnly(sql_conn_id="warehouse", on_removed="delete_contact")
        Tries().run(imports(contacts=rows, changes_only=changes, brakes=Brakes(max_removed_fraction=1)))

    monkeypatch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", "a secret")
    run(10)
    with at_request(emulator, "contacts/delete", 2, hold), pytest.raises(MailHeldError):
        run(3)
    assert emulator.journal.count("contacts/delete") == 2
    monkeypatch.delenv("AIRFLOW_VAR_MAIL_HOLD")
    run(3)
    assert sorted(contact["email"] for contact in emulator.contacts() if "user" in contact["email"]) == [
        f"user{number}@example.com" for number in range(3)
    ]


def test_a_process_that_is_neither_task_nor_server_sets_and_releases(
    monkeypatch: pytest.MonkeyPatch, airflow_home: Path
) -> None:
    monkeypatch.delenv("_AIRFLOW_PROCESS_CONTEXT", raising=False)
    hold = set_hold(set_by="ada", mail_conn_id="mail_other")
    set_hold(set_by="kim", reason="wrong price")
    assert stored_holds().holds.keys() == {"", "mail_other"}
    assert release_hold(mail_conn_id="mail_other") == hold
    assert stored_holds().applying_to("mail_other").set_by == "kim"
    assert release_hold().set_by == "kim"
    assert stored_holds().applying_to(None) is release_hold() is None


@pytest.mark.parametrize("text", ["true", "", "[]", '{"set_by": 1}', '{"by": "ada"}'])
def test_any_value_of_the_variable_holds(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_MAIL_HOLD", text)
    assert isinstance(current_hold(), Hold)
    assert isinstance(current_hold("mail_default"), Hold)


def test_a_variable_without_holds_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it can exist: Airflow 3.0 and 3.1 log a missing one in red."""
    monkeypatch.setenv("AIRFLOW_VAR_MAIL_HOLD", '{"holds": {}}')
    assert current_hold() is None


WORKDAY = SendWindow(start="09:00", end="18:00")
At = Callable[[str], None]


@pytest.fixture
def at(clock: Clock) -> At:
    """A function that sets all clocks to a time of Thursday, 26 November 2026, or a later day."""

    def at(moment: str) -> None:
        then = datetime.datetime.fromisoformat(f"2026-11-{moment if 'T' in moment else f'26T{moment}'}:00+00:00")
        clock.set_wall_clock((then - datetime.datetime.now(datetime.UTC)).total_seconds())

    return at


def create(**arguments: Any) -> Any:
    return campaign(send_window=WORKDAY, **arguments)


def created(emulator: Emulator) -> list[str | None]:
    return [entry["body"].get("sendDate") for entry in emulator.journal.entries(CREATES)]


def fail_once(emulator: Emulator, tries: Tries, make: Callable[[], Any], skip: int = 0) -> None:
    """A try of which the service rejects the requests that mail people, for a while."""
    for operation in (CREATES, SENDS):
        emulator.faults.add("too_many_requests", operation, skip=skip, count=None, retry_after=0)
    with pytest.raises(MailRateLimitError):
        tries.run(make())
    emulator.faults.clear()


@pytest.mark.parametrize(("now", "send_date", "sent"), [
    ("10:00", None, None),
    ("08:00", None, "2026-11-26T09:00:00Z"),
    ("18:00", None, "2026-11-27T09:00:00Z"),
    ("10:00", "2026-11-26T12:00:00Z", "2026-11-26T12:00:00Z"),
    ("10:00", "2026-11-28T12:00:00+01:00", "2026-11-30T09:00:00Z"),
])  # fmt: skip
def test_the_send_time_lies_in_the_window(
    now: str, send_date: str | None, sent: str | None, at: At, emulator: Emulator
) -> None:
    at(now)
    Tries().run(create(send_date=send_date))
    Tries().run(batch(messages=letters(1), send_window=WORKDAY, send_date=send_date))
    assert created(emulator) == [body.get("sendDate") for body in bodies(emulator)] == [sent]


@pytest.mark.parametrize(("ahead", "now", "closed"), [
    (2, "08:30", True), (2, "17:30", False), (-2, "18:30", True), (-2, "09:30", False),
])  # fmt: skip
def test_the_clock_of_the_service_decides(ahead: int, now: str, closed: bool, at: At, emulator: Emulator) -> None:
    """The worker's clock is hours ahead or behind."""
    at(f"{int(now[:2]) + ahead:02}{now[2:]}")
    emulator.clock.advance(hours=-ahead)
    Tries().run(create())
    Tries().run(batch(messages=letters(1), send_window=WORKDAY))
    (first,), (second,) = created(emulator), [body.get("sendDate") for body in bodies(emulator)]
    assert first == second
    assert (first is not None) is closed


def test_a_run_that_is_long_past_sends_nothing(emulator: Emulator) -> None:
    """As in catch-up: the runs of these tests were due long ago."""
    old: dict[str, Any] = {"max_run_age": datetime.timedelta(days=1)}
    for make in (lambda: campaign(**old), lambda: batch(messages=letters(1), **old)):
        with pytest.raises(AirflowFailException, match="max_run_age: this run was due at 2024-03-07T00:00:00Z"):
            Tries().run(make())
    old["on_old_run"] = "skip"
    for make in (lambda: campaign(**old), lambda: batch(messages=letters(1), **old)):
        assert Tries().run_all(make) == "skipped"
    Tries().run(campaign(max_run_age=datetime.timedelta(days=3_000)))
    assert (len(created(emulator)), bodies(emulator)) == (1, [])


@remembers
@pytest.mark.parametrize("now", ["17:30", "08:59"])
def test_a_retry_after_it_has_closed_sends_nothing(now: str, at: At, emulator: Emulator) -> None:
    for make in (create, lambda: batch(messages=letters(1), send_window=WORKDAY)):
        at(now)
        tries = Tries(emulator)
        fail_once(emulator, tries, make)
        at("18:01")
        with pytest.raises(AirflowFailException, match="send_window: closed at 2026-11-26T18:00:00Z"):
            tries.run(make())
    assert emulator.campaigns() == [] == emulator.messages()


@remembers
def test_a_retry_within_it_sends_what_the_first_try_would(at: At, emulator: Emulator) -> None:
    at("08:59")
    tries = Tries(emulator)
    fail_once(emulator, tries, lambda: batch(messages=letters(20), send_window=WORKDAY), skip=1)
    at("12:00")
    assert tries.run(batch(messages=letters(20), send_window=WORKDAY))["recipients"] == 20
    assert set(mailed(emulator).values()) == {1}


def test_a_campaign_of_an_earlier_try_is_adopted_after_it_has_closed(at: At, emulator: Emulator) -> None:
    tries = Tries()
    for now, adopted in (("17:00", False), ("19:00", True)):
        at(now)
        assert tries.run(create(mail_name=None))["adopted"] is adopted
    assert created(emulator) == [None]


@remembers
def test_a_cleared_task_takes_the_next_opening(at: At, emulator: Emulator) -> None:
    at("17:30")
    tries = Tries()
    fail_once(emulator, tries, create)
    at("20:00")
    tries.clear()
    tries.run(create())
    assert created(emulator)[-1] == "2026-11-27T09:00:00Z"


# --- the retry policy, in tasks of any kind ---

has_policies = pytest.mark.skipif(AIRFLOW_VERSION < (3, 3), reason="Airflow 3.3 brought retry policies")


@has_policies
@pytest.mark.parametrize(("fault", "state", "tries"), [
    ({"kind": "http_error_after"}, "failed", 1),  # its outcome is unknown
    ({"kind": "too_many_requests", "retry_after": 45}, "success", 2),
])  # fmt: skip
def test_the_next_try_of_a_task_is_as_the_service_asks(
    run: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any], state: str, tries: int
) -> None:
    from airflow_provider_mail.retry_policy import MailRetryPolicy

    def send() -> None:
        letter = {"sender_mail": "news@example.com", "to": {"email": "ada@example.com"}}
        MailHook().send(SendMail(subject="Hi", content="Hi", **letter))

    change_retries(monkeypatch, retry_after_cap_seconds=1)
    emulator.faults.add(operation=SENDS, **fault)
    policy = {"retries": 2, "retry_delay": datetime.timedelta(days=1), "retry_policy": MailRetryPolicy()}
    done = run(lambda: task(task_id=TASK, **policy)(send)())
    first, *others = [entry["real_ms"] / 1000 for entry in emulator.journal.entries(SENDS)]
    assert (done.state, done.tries, 1 + len(others)) == (state, tries, tries)
    assert [45 <= other - first < 3600 for other in others] == [True] * (tries - 1)
    assert set(mailed(emulator).values()) == {1}


def raised_with(error: Exception, link: str) -> Exception:
    """An error of a job, which another one caused, or during whose handling it was raised."""
    other = RuntimeError("the job failed")
    with suppress(RuntimeError):
        try:
            raise error
        except Exception as inner:
            if link == "context":
                raise other  # noqa: B904
            raise other from (inner if link == "cause" else None)
    return other


@has_policies
@pytest.mark.parametrize(("error", "action", "seconds"), [
    (MailAuthError("401"), "fail", None),
    (MailValidationError("to"), "fail", None),
    (MailConflictError("name"), "fail", None),
    (MailAmbiguousSendError("lost"), "fail", None),
    (MailConnectError("refused"), "default", None),
    (MailServerError("503"), "default", None),
    (MailServerError("503", retry_after=7), "retry", 7),
    (MailRateLimitError("429"), "default", None),
    (MailRateLimitError("429", retry_after=0), "retry", 0),
    (MailRateLimitError("429", retry_after=30.5), "retry", 30.5),
    (MailRateLimitError("429", retry_after=9e8), "retry", 86_400),
    (raised_with(MailAuthError("401"), "cause"), "fail", None),
    (raised_with(MailAuthError("401"), "context"), "fail", None),
    (raised_with(MailAuthError("401"), "suppressed"), "default", None),
    (ValueError("other"), "default", None),
], ids=repr)  # fmt: skip
def test_the_decision_about_each_error(error: Exception, action: str, seconds: float | None) -> None:
    from airflow_provider_mail.retry_policy import MailRetryPolicy

    policy = MailRetryPolicy.deserialize(MailRetryPolicy().serialize())  # as it travels with the DAG
    decision = policy.evaluate(error, try_number=1, max_tries=3)
    assert decision.action.value == action
    assert decision.retry_delay == (None if seconds is None else datetime.timedelta(seconds=seconds))


@pytest.mark.skipif(AIRFLOW_VERSION >= (3, 3), reason="has retry policies")
def test_older_versions_say_what_is_missing() -> None:
    with pytest.raises(ImportError, match=r"MailRetryPolicy needs Airflow 3\.3 or later"):
        importlib.import_module("airflow_provider_mail.retry_policy")
