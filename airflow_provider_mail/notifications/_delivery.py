"""Send a message within a deadline, and log errors instead of raising them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cached_property

from airflow_provider_mail._task.exceptions import without_addresses
from airflow_provider_mail.api.config import ClientConfig, RetryRule
from airflow_provider_mail.api.errors import MailAmbiguousSendError, MailError, MailServiceError
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.notifications._message import OutgoingMessage

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT = 20.0
"""Total seconds for one message. The dag-processor allows 50 seconds for a file, including callbacks."""

MAX_ERROR_CHARACTERS = 500
"""Maximum length of an error in the log."""

MAX_CHARACTERS_READ = 10_000
"""Number of characters of an error that are searched for addresses; only the first 500 are shown."""


class DeadlineMailHook(MailHook):
    """A hook whose client gives up after a deadline.

    :param seconds: total time for one message.
    """

    def __init__(self, mail_conn_id: str, seconds: float) -> None:
        super().__init__(mail_conn_id)
        self.seconds = seconds

    @cached_property
    def config(self) -> ClientConfig:
        """A request that did not reach the service has 3 attempts."""
        config = super().config
        half = self.seconds / 2
        rule = RetryRule(attempts=3, total_seconds=half, cap_seconds=half / 4, retry_after_cap_seconds=half / 2)
        return config.model_copy(update={"timeout": min(config.timeout, half), "retry": rule})


def send(hook: DeadlineMailHook, message: OutgoingMessage) -> str:
    """Send a message and return a line for the log.

    :raises MailAmbiguousSendError: on a timeout or a lost response: the message may have been sent.
    :raises MailError: when it was not sent.
    """
    # Look up the connection here: not every process of Airflow permits that in other threads.
    client = hook.get_conn()
    done: Future[None] = Future()

    def work() -> None:
        try:
            client.send(message.request)
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)
        finally:
            hook.close()

    # A daemon thread, abandoned on a timeout: nothing else limits a host name lookup, or a response that arrives byte
    # by byte.
    threading.Thread(target=work, name="mail notification", daemon=True).start()
    try:
        done.result(hook.seconds)
    except TimeoutError:
        raise _timeout_error(hook, message) from None
    return _accepted(hook, message)


async def send_async(hook: DeadlineMailHook, message: OutgoingMessage) -> str:
    try:
        async with asyncio.timeout(hook.seconds), await hook.get_async_conn() as client:
            await client.send(message.request)
    except TimeoutError:
        raise _timeout_error(hook, message) from None
    return _accepted(hook, message)


@contextmanager
def log_errors(mail_conn_id: str | None) -> Iterator[None]:
    """Log any error of the block as one line instead of raising it.

    :param mail_conn_id: the connection, named in the log.
    """
    try:
        yield
    except MailAmbiguousSendError as error:
        log.error("Mail: possibly sent (connection %r): %s", mail_conn_id, summarize(error))
    except Exception as error:
        log.error("Mail: not sent (connection %r): %s", mail_conn_id, summarize(error))


def log_skipped(message: OutgoingMessage) -> None:
    """Log the recipients and files that were skipped."""
    if message.skipped:
        log.warning("Mail: skipped: %s", "; ".join(message.skipped))


def summarize(error: Exception) -> str:
    if isinstance(error, MailServiceError | MailAmbiguousSendError):
        # Of the request, their messages contain only the sender.
        return " ".join(str(error).split())[:MAX_ERROR_CHARACTERS]
    text = str(error) if isinstance(error, MailError) else f"{type(error).__name__}: {error}"
    return without_addresses(" ".join(text[:MAX_CHARACTERS_READ].split()))[:MAX_ERROR_CHARACTERS]


def _accepted(hook: MailHook, message: OutgoingMessage) -> str:
    recipients = "1 recipient" if message.recipient_count == 1 else f"{message.recipient_count} recipients"
    if hook.config.sandbox:
        return f"Mail: sandbox: the service validated a message to {recipients}; nothing was sent."
    return f"Mail: accepted for {recipients}, uniqueMsgID {message.request.unique_msg_id}."


def _timeout_error(hook: DeadlineMailHook, message: OutgoingMessage) -> MailAmbiguousSendError:
    return MailAmbiguousSendError(
        f"{message.request.path}: no response within {hook.seconds:g} s, uniqueMsgID {message.request.unique_msg_id}",
        operation=message.request.path,
    )
