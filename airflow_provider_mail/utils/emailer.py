"""Airflow's own mail through the service, with ``[email] email_backend``."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any

from airflow.sdk import get_current_context

from airflow_provider_mail.api._core.fields import is_nothing
from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.notifications._context import NotificationContext, render_html, render_subject
from airflow_provider_mail.notifications._message import (
    DeadlineMailHook,
    build_message,
    log_errors,
    log_skipped,
    send,
)

__all__ = ["send_email"]

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT = 20.0
"""Total seconds for one message. The dag-processor allows 50 seconds for a file, including callbacks."""

NO_CONNECTION = "smtp_default"
"""The connection id that Airflow passes if ``[email] email_conn_id`` is not set."""


def send_email(
    to: str | Iterable[str],
    subject: str | None,
    html_content: str | None,
    files: list[str] | None = None,
    dryrun: bool = False,
    cc: str | Iterable[str] | None = None,
    bcc: str | Iterable[str] | None = None,
    mime_subtype: str = "mixed",
    mime_charset: str = "utf-8",
    conn_id: str | None = None,
    from_email: str | None = None,
    custom_headers: Mapping[str, str] | None = None,
    *,
    raise_errors: bool = False,
    **kwargs: Any,
) -> None:
    """Send a message, with the arguments of ``airflow.utils.email.send_email``.

    An error is one line in the log: it must not affect the task that the message is about, and Airflow 3.0 and 3.1
    would send again what may have been sent. The call takes 20 seconds at most.

    :param to: the recipients: addresses in a list or separated by commas. An invalid address is left out and logged.
    :param subject: the subject; it is cut where it is too long to read. Without one, or where it is ``None`` as text,
        the message has the default subject of ``MailNotifier`` and says so.
    :param html_content: the content, HTML. Without one, likewise.
    :param files: the paths of files to attach; several are sent as one archive. Default: none.
    :param dryrun: check the message and send nothing. Default: false.
    :param cc: the recipients of a copy, 20 at most. Default: none.
    :param bcc: the recipients of a blind copy, 20 at most. Default: none.
    :param mime_subtype: not used: the service composes the message.
    :param mime_charset: not used: the service composes the message.
    :param conn_id: the connection to the service. Default, also if ``[email] email_conn_id`` is not set:
        ``mail_default``.
    :param from_email: a sender of the account, plain or ``Name <address>``. Default: ``[email] from_email``.
    :param custom_headers: headers, of which the service supports ``Reply-To``; others are left out and logged. Default:
        none.
    :param raise_errors: raise errors instead of logging them, and send nothing if a part of the message cannot be used:
        for a task whose purpose is the message. Default: false.
    :param kwargs: arguments of later Airflow versions; not used.
    :raises MailError: with ``raise_errors``; see :mod:`airflow_provider_mail.api.errors`.
    """
    mail_conn_id = conn_id if conn_id and conn_id != NO_CONNECTION else MailHook.default_conn_name
    with nullcontext() if raise_errors else log_errors(mail_conn_id):
        headers = {str(name).lower(): value for name, value in (custom_headers or {}).items()}
        reply_to = headers.pop("reply-to", None)
        if headers:
            log.warning("Mail: custom_headers: not supported, skipped: %s", ", ".join(sorted(headers)))
        message = build_message(
            to=to,
            cc=cc,
            bcc=bcc,
            # Without these there is no message, unlike in a notifier, whose default is what people want.
            subject="" if subject is None else subject,
            content="" if html_content is None else html_content,
            sender_mail=from_email,
            reply_to=None if reply_to is None else str(reply_to),
            files=files,
            **(_defaults() if is_nothing(subject) or is_nothing(html_content) else {}),
        )
        if raise_errors and message.skipped:
            raise MailValidationError("; ".join(message.skipped))
        log_skipped(message)
        if dryrun:
            log.info("Mail: dryrun: everything is in order; nothing was sent.")
        else:
            log.info(send(DeadlineMailHook(mail_conn_id, DEFAULT_TIMEOUT), message))


def _defaults() -> dict[str, str]:
    """The subject and content of `MailNotifier` for the task that is running, if there is one."""
    try:
        event = NotificationContext.from_context(get_current_context())
    except RuntimeError:
        return {}
    return {"default_subject": render_subject(event), "default_content": render_html(event)}
