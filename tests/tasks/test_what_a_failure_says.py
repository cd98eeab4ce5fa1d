"""A task that fails ends in one error, and its sentence is the last line of what is logged of it."""

from __future__ import annotations

import logging
import traceback

import pytest
import structlog

from airflow_provider_mail.api.errors import MailConnectError, MailRejectedError
from airflow_provider_mail.version_compat import AirflowFailException
from tests.support.operator_parts import AirflowErrors, errors_log, without_addresses
from tests.tasks.conftest import TASK, Connect, Run
from tests.tasks.everything import OPERATORS
from tests.tasks.sending import change_retries

WRONG_KEY = (
    "connection 'mail_default': code 401: the service rejected the credentials: missing or invalid ApiKey. "
    "Check the connection's password (API key) or access_token, and auth_type (/v5/contacts/get)"
)
SENDER = "promo@shop.example.com"


@pytest.fixture(autouse=True)
def _plain_tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = structlog.dev.plain_traceback
    monkeypatch.setattr(structlog.dev.RichTracebackFormatter, "__call__", lambda _, out, error: plain(out, error))


def delete() -> object:
    return OPERATORS["MailDeleteContactOperator"](task_id=TASK, contact_email="ada@example.com")


def the_only(errors: list[BaseException]) -> tuple[BaseException, str]:
    """The one error, and what Airflow shows of it: where `execute` was, twice, and where the error was made."""
    (error,) = errors
    shown = "".join(traceback.format_exception(error))
    assert shown.count("/airflow_provider_mail/") <= 3
    assert not [words for words in ("The above exception", "During handling") if words in shown]
    return error, shown


def test_a_wrong_key_is_one_error_and_one_sentence(run: Run, connect: Connect, errors: list[BaseException]) -> None:
    connect(password="another")
    assert run(delete).state == "failed"
    error, shown = the_only(errors)
    assert str(error) == WRONG_KEY
    assert shown.splitlines()[-1].endswith(WRONG_KEY)


def test_a_temporary_error_names_the_connection_and_the_address(
    run: Run, monkeypatch: pytest.MonkeyPatch, errors: list[BaseException]
) -> None:
    change_retries(monkeypatch, attempts=1)
    address = "http://127.0.0.1:9"
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", f'{{"conn_type": "mail", "host": "{address}", "password": "key"}}')
    assert run(delete).state == "failed"
    error, _ = the_only(errors)
    assert isinstance(error, MailConnectError), "as it is, so that retry policies know it"
    assert str(error).startswith(f"connection 'mail_default': {address} cannot be reached: nothing listens there; ")
    assert error.__cause__ is None


def test_the_cause_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, errors_log.name)
    with pytest.raises(AirflowFailException) as raised, AirflowErrors("mail_default"):
        raise MailRejectedError("/v5/lists/add: code 403: rejected")
    assert (raised.value.__suppress_context__, raised.value.__cause__) == (True, None)
    (record,) = caplog.records
    assert record.levelno == logging.DEBUG
    assert record.exc_info
    assert isinstance(record.exc_info[1], MailRejectedError)


@pytest.mark.parametrize("error", [MailRejectedError, MailConnectError, KeyError], ids=lambda error: error.__name__)
def test_no_recipient_is_named_in_an_error_or_its_causes(error: type[Exception]) -> None:
    """Whether the task fails at once, is tried again, or ends in an error of the user's own code."""
    text = f"a letter from {SENDER} to ada@shop.example.com"

    def fail() -> None:
        try:
            raise MailRejectedError(text)
        except MailRejectedError:
            raise error("row" if error is KeyError else text)  # noqa: B904 - as users write it

    with pytest.raises((AirflowFailException, error)) as raised, AirflowErrors("mail_default", senders=[SENDER]):
        fail()
    shown = "".join(traceback.format_exception(raised.value))
    assert "ada@" not in shown
    assert f"from {SENDER} to ***@shop.example.com" in shown


def test_other_addresses_are_cut_down() -> None:
    text = f"from {SENDER} to ada@shop.example.com, {SENDER.upper()}."
    assert without_addresses(text, [SENDER]) == f"from {SENDER} to ***@shop.example.com, {SENDER.upper()}."
