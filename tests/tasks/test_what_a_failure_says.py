"""A task that fails ends in one error, and its sentence is the last line of what is logged of it."""

from __future__ import annotations

import logging
import traceback

import pytest
import structlog

from airflow_provider_mail._task.exceptions import AirflowErrors, without_addresses
from airflow_provider_mail.api.errors import MailConnectError, MailError, MailRejectedError
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.contacts import MailDeleteContactOperator
from airflow_provider_mail.operators.preflight import MailPreflightOperator
from airflow_provider_mail.version_compat import AirflowFailException
from tests.support.processes import free_port
from tests.tasks.conftest import TASK, Connect, Run

WRONG_KEY = (
    "connection 'mail_default': code 401: the service rejected the credentials: missing or invalid ApiKey. "
    "Check the connection's password (API key) or access_token, and auth_type (/v5/contacts/get)"
)


@pytest.fixture(autouse=True)
def _plain_tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        structlog.dev.RichTracebackFormatter,
        "__call__",
        lambda _, out, error: structlog.dev.plain_traceback(out, error),
    )


def frames(error: BaseException) -> int:
    """Of our own package, in all that Airflow shows of an error."""
    return "".join(traceback.format_exception(error)).count("/airflow_provider_mail/")


def test_a_wrong_key_is_one_error_and_one_sentence(run: Run, connect: Connect, errors: list[BaseException]) -> None:
    connect(password="another")
    done = run(lambda: MailDeleteContactOperator(task_id=TASK, contact_email="ada@example.com"))

    assert done.state == "failed"
    (error,) = errors
    assert str(error) == WRONG_KEY
    shown = "".join(traceback.format_exception(error))
    assert "The above exception" not in shown
    assert "During handling" not in shown
    assert shown.splitlines()[-1].endswith(WRONG_KEY)
    assert frames(error) <= 3, "where execute() was, twice, and where the error was made"


def test_a_temporary_error_names_the_connection_and_the_address(
    run: Run, monkeypatch: pytest.MonkeyPatch, errors: list[BaseException]
) -> None:
    from tests.tasks.sending import change_retries

    change_retries(monkeypatch, attempts=1)
    address = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", f'{{"conn_type": "mail", "host": "{address}", "password": "key"}}')
    done = run(lambda: MailDeleteContactOperator(task_id=TASK, contact_email="ada@example.com"))

    assert done.state == "failed"
    (error,) = errors
    assert isinstance(error, MailConnectError), "as it is, so that retry policies know it"
    assert str(error).startswith(
        f"connection 'mail_default': {address} cannot be reached: nothing listens there; "
        "check host (base URL) and port."
    )
    assert frames(error) <= 3
    assert error.__cause__ is None


def test_the_cause_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG, "airflow_provider_mail._task.exceptions"),
        pytest.raises(AirflowFailException) as raised,
        AirflowErrors("mail_default"),
    ):
        raise MailRejectedError("/v5/lists/add: code 403: rejected")
    assert raised.value.__suppress_context__
    assert raised.value.__cause__ is None
    (record,) = caplog.records
    assert record.levelno == logging.DEBUG
    assert record.exc_info
    assert isinstance(record.exc_info[1], MailRejectedError)


def test_an_error_that_was_made_of_one_hides_it_too() -> None:
    def made_of_another() -> None:
        try:
            raise MailError("the service said so")
        except MailError as error:
            raise AirflowFailException(f"it failed: {error}") from error

    with pytest.raises(AirflowFailException) as raised, AirflowErrors("mail_default"):
        made_of_another()
    assert "During handling" not in "".join(traceback.format_exception(raised.value))
    assert len("".join(traceback.format_exception(raised.value)).split("Traceback")) == 2


def test_errors_of_others_are_left_as_they_are() -> None:
    with pytest.raises(KeyError, match="x"), AirflowErrors("mail_default"):
        raise KeyError("x")


SENDER = "promo@shop.example.com"


def test_the_sender_is_named_in_a_refusal(run: Run, emulator: Emulator, errors: list[BaseException]) -> None:
    emulator.add_list("customers")
    run(
        lambda: MailCreateCampaignOperator(
            task_id=TASK,
            mail_name="spring",
            sender_mail=SENDER,
            subject="Hi",
            content="<p>Hi</p>",
            send_list_names=["customers"],
        )
    )
    assert SENDER in str(errors[-1])


def test_the_sender_is_named_in_a_finding(run: Run, emulator: Emulator, errors: list[BaseException]) -> None:
    emulator.add_list("customers")
    done = run(
        lambda: MailPreflightOperator(
            task_id=TASK,
            mail_name="spring",
            sender_mail=SENDER,
            subject="Hi",
            content="<p>Hi</p>",
            send_list_names=["customers"],
        )
    )
    assert f"{SENDER} is not a sender of the account" in str(errors[-1])
    assert f"{SENDER} is not a sender of the account" in done.log


def test_other_addresses_are_cut_down_all_the_same() -> None:
    text = f"from {SENDER} to ada@shop.example.com, {SENDER.upper()}."
    assert without_addresses(text, [SENDER]) == f"from {SENDER} to ***@shop.example.com, {SENDER.upper()}."
