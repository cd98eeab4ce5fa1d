"""Airflow's own mail through the service: what ``[email] email_backend`` may point to."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any

from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.notifications._delivery import (
    DEFAULT_TIMEOUT,
    DeadlineMailHook,
    log_errors,
    log_skipped,
    send,
)
from airflow_provider_mail.notifications._message import build_message

log = logging.getLogger(__name__)

NO_CONNECTION = "smtp_default"
"""What Airflow hands over when ``[email] email_conn_id`` is not set."""


def send_email(
    to: str | Iterable[str],
    subject: str,
    html_content: str,
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
    """Send a mail as ``airflow.utils.email.send_email`` would have it.

    What goes wrong is one line in the log: the task that the mail is about must not suffer from it, and Airflow 3.0 and
    3.1 would send again what may be on its way. It takes 20 seconds at most.

    :param to: addresses, in a list or a text with commas. One that is no address is left out, and the log says so.
    :param subject: what is too long for anybody to read is cut.
    :param html_content: the content.
    :param files: paths; several are sent as one archive.
    :param dryrun: check everything and send nothing.
    :param cc: who gets a copy; 20 at most.
    :param bcc: who gets a copy that the others do not see; 20 at most.
    :param mime_subtype: not used: the service makes the message.
    :param mime_charset: not used likewise.
    :param conn_id: the connection. Default, also when ``[email] email_conn_id`` is not set: ``mail_default``.
    :param from_email: a sender of the account, plain or ``Name <address>``. Default: ``[email] from_email``.
    :param custom_headers: of these the service knows ``Reply-To``; others are left out, and the log says so.
    :param raise_errors: for a task whose work is the mail: raise instead.
    :raises MailError: with ``raise_errors``; see :mod:`airflow_provider_mail.api.errors`.
    """
    mail_conn_id = conn_id if conn_id and conn_id != NO_CONNECTION else MailHook.default_conn_name
    with nullcontext() if raise_errors else log_errors(mail_conn_id):
        headers = {name.lower(): value for name, value in (custom_headers or {}).items()}
        reply_to = headers.pop("reply-to", None)
        if headers:
            log.warning("Mail: custom_headers: not supported, skipped: %s", ", ".join(sorted(headers)))
        message = build_message(
            to=to,
            cc=cc,
            bcc=bcc,
            subject=subject,
            content=html_content,
            sender=from_email,
            reply_to=reply_to,
            files=files,
        )
        if raise_errors and message.skipped:
            raise MailValidationError("; ".join(message.skipped))
        log_skipped(message)
        if dryrun:
            log.info("Mail: dryrun: everything is in order; nothing was sent.")
        else:
            log.info(send(DeadlineMailHook(mail_conn_id, DEFAULT_TIMEOUT), message))
