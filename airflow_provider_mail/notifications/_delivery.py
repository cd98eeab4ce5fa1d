"""Sending a letter within a bounded time, and without ever disturbing whoever it reports on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cached_property

from airflow_provider_mail._task.exceptions import without_addresses
from airflow_provider_mail.api._core.retry import RetryRule
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailAmbiguousSendError, MailError, MailServiceError
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.notifications._message import OutgoingMessage

log = logging.getLogger(__name__)

SECONDS = 20.0
"""How long a letter may take altogether. A dag-processor gives a file 50 seconds, callbacks included."""

MOST_CHARACTERS = 500
"""Of an error in the log."""

MOST_READ = 10_000
"""Characters of an error that are looked through for addresses; what is shown lies well within."""


class DeadlineMailHook(MailHook):
    """A hook whose client gives up early.

    :param seconds: from when on nobody waits any more.
    """

    def __init__(self, mail_conn_id: str, seconds: float) -> None:
        super().__init__(mail_conn_id)
        self.seconds = seconds

    @cached_property
    def config(self) -> ClientConfig:
        """The connection's settings, with less patience. What never reached the service is tried three times."""
        config = super().config
        half = self.seconds / 2
        rule = RetryRule(attempts=3, total_seconds=half, cap_seconds=half / 4, retry_after_cap_seconds=half / 2)
        return config.model_copy(update={"timeout": min(config.timeout, half), "retry": rule})


def send(hook: DeadlineMailHook, letter: OutgoingMessage) -> str:
    """Send it and say so in words that may be logged.

    :raises MailAmbiguousSendError: when the time is over, or the answer was lost: the letter may be on its way.
    :raises MailError: when it was not sent.
    """
    # Connections and their secrets are asked for here: only this thread may do so everywhere.
    client = hook.get_conn()
    done: Future[None] = Future()

    def work() -> None:
        try:
            client.send(letter.request)
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)
        finally:
            hook.close()

    # A thread of its own, left alone when the time is over: neither looking a host name up nor an answer that comes
    # in drips can be bounded otherwise. It does not keep the process from ending.
    threading.Thread(target=work, name="mail notification", daemon=True).start()
    try:
        done.result(hook.seconds)
    except TimeoutError:
        raise _too_late(hook, letter) from None
    return _told(hook, letter)


async def send_async(hook: DeadlineMailHook, letter: OutgoingMessage) -> str:
    """The same inside an event loop."""
    try:
        async with asyncio.timeout(hook.seconds), await hook.get_async_conn() as client:
            await client.send(letter.request)
    except TimeoutError:
        raise _too_late(hook, letter) from None
    return _told(hook, letter)


@contextmanager
def never_raising(mail_conn_id: str | None) -> Iterator[None]:
    """Make one line in the log of any failure."""
    try:
        yield
    except MailAmbiguousSendError as error:
        log.error("Mail: it is unknown whether it was sent (connection %r): %s", mail_conn_id, in_short(error))
    except Exception as error:
        log.error("Mail: not sent (connection %r): %s", mail_conn_id, in_short(error))


def warn_of_left_out(letter: OutgoingMessage) -> None:
    """Say whom nobody can write to."""
    if letter.left_out:
        log.warning("Mail: left out: %s", "; ".join(letter.left_out))


def in_short(error: Exception) -> str:
    """One line about an error, without people's addresses."""
    if isinstance(error, MailServiceError | MailAmbiguousSendError):
        # There is nothing of a request in them any more but the sender.
        return " ".join(str(error).split())[:MOST_CHARACTERS]
    text = str(error) if isinstance(error, MailError) else f"{type(error).__name__}: {error}"
    return without_addresses(" ".join(text[:MOST_READ].split()))[:MOST_CHARACTERS]


def _told(hook: MailHook, letter: OutgoingMessage) -> str:
    people = "1 recipient" if letter.people == 1 else f"{letter.people} recipients"
    if hook.config.sandbox:
        return f"Mail: sandbox: the service checked what would go to {people}; nothing was sent."
    return f"Mail: accepted for {people}, uniqueMsgID {letter.request.unique_msg_id}."


def _too_late(hook: DeadlineMailHook, letter: OutgoingMessage) -> MailAmbiguousSendError:
    return MailAmbiguousSendError(
        f"{letter.request.path}: no answer within {hook.seconds:g} s: given up, uniqueMsgID "
        f"{letter.request.unique_msg_id}",
        operation=letter.request.path,
    )
