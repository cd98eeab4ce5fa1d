"""A notifier that sends mail through the service, for callbacks, deadlines and human-in-the-loop operators."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context

    from airflow_provider_mail.notifications._context import NotificationContext
    from airflow_provider_mail.notifications._message import OutgoingMessage


__all__ = ["MailNotifier", "send_digests", "send_mail_notification"]

log = logging.getLogger(__name__)


class MailNotifier(BaseNotifier):
    """Send a message about a task or a DAG run.

    For ``on_failure_callback`` and the other callbacks of tasks and DAGs, for ``DeadlineAlert`` (as a class, in an
    ``AsyncCallback`` or a ``SyncCallback``), and for the ``notifiers`` of human-in-the-loop operators.

    An error is one line in the log: it neither fails the task nor delays it beyond ``timeout``. A part that cannot be
    used, such as an invalid address, is left out; the message and the log report it. A message is sent at most once.
    Its ``uniqueMsgID`` is derived from the event (the task instance and its try, or the run and the number of times it
    was cleared) and from the whole message, so that a callback that Airflow runs twice can be recognized.

    .. seealso:: the guide :ref:`howto/notifier:MailNotifier`
        (in the package: ``airflow_provider_mail/docs/notifications.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param to: the recipients: addresses, plain or ``Name <address>``, in a list or separated by commas. All of them see
        each other. (templated)
    :param subject: the subject. Default, also if it renders to nothing or ``None``: the event and its subject, such as
        the failed task. (templated)
    :param content: HTML. Default, also if it renders to nothing or ``None``: the event, the error without secrets and
        addresses, and links to Airflow, laid out for phones. (templated)
    :param sender_mail: a sender of the account, plain or ``Name <address>``. Default: ``[email] from_email``.
        (templated)
    :param sender_name: the display name of the sender. Default: that in ``sender_mail``. (templated)
    :param cc: the recipients of a copy, 20 at most. Default: none. (templated)
    :param bcc: the recipients of a blind copy, 20 at most. Default: none. (templated)
    :param reply_to: the address for replies, plain or ``Name <address>``. Default: none. (templated)
    :param category: a label for reports: letters and digits, 100 bytes at most. Default: none. (templated)
    :param files: the paths of files to attach; several are sent as one archive. Default: none. (templated)
    :param digest: ``timedelta(minutes=10)``: after a mail, alerts of these 10 minutes to the same recipients are stored
        and sent in one summary, by the next alert or by :func:`send_digests`. It needs ``[mail] memory_conn_id``, see
        docs/how-to/one-mail-for-many-alerts.md. Default: each alert is sent at once.
    :param timeout: seconds for the whole delivery. Default: 20.
    :raises ValueError: ``digest`` is no timedelta of at least a second.
    :param kwargs: Airflow's own arguments: the context of a notifier that is awaited (3.1 and later).
    """

    template_fields: Sequence[str] = (
        "mail_conn_id", "to", "subject", "content", "sender_mail", "sender_name", "cc", "bcc", "reply_to", "category",
        "files",
    )  # fmt: skip

    def __init__(
        self,
        *,
        mail_conn_id: str = "mail_default",
        to: str | Iterable[str],
        subject: str | None = None,
        content: str | None = None,
        sender_mail: str | None = None,
        sender_name: str | None = None,
        cc: str | Iterable[str] | None = None,
        bcc: str | Iterable[str] | None = None,
        reply_to: str | None = None,
        category: str | None = None,
        files: str | Sequence[str] | None = None,
        digest: timedelta | None = None,
        timeout: float = 20.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        given: Any = digest
        if given is not None and not (isinstance(given, timedelta) and given >= timedelta(seconds=1)):
            raise ValueError("digest: a timedelta of at least a second is needed, such as timedelta(minutes=10)")
        self.mail_conn_id = mail_conn_id
        self.to = to
        self.subject = subject
        self.content = content
        self.sender_mail = sender_mail
        self.sender_name = sender_name
        self.cc = cc
        self.bcc = bcc
        self.reply_to = reply_to
        self.category = category
        self.files = files
        self.digest = digest
        self.timeout = timeout
        self._skipped: list[str] = []

    def __call__(self, *args: Any) -> None:
        from airflow_provider_mail.notifications._message import log_errors

        # Rendering changes the fields: render a copy, since tasks may share this notifier.
        with log_errors(self.mail_conn_id):
            super(MailNotifier, copy.copy(self)).__call__(*args)

    def notify(self, context: Context) -> None:
        """Send the message; return when it is accepted or rejected, or after ``timeout``."""
        from airflow_provider_mail.notifications._message import DeadlineMailHook, log_errors, send

        with log_errors(self.mail_conn_id):
            hook = DeadlineMailHook(self.mail_conn_id, self.timeout)
            event, message = self._message(context)
            if self.digest is None:
                log.debug(send(hook, message))
                return
            from airflow_provider_mail.notifications._digest import notify

            log.debug(notify(hook, message, event, self.digest.total_seconds()))

    async def async_notify(self, context: Context) -> None:
        """Send the message from an event loop; see :meth:`notify`."""
        from asgiref.sync import sync_to_async

        # In a thread of asgiref, and not cancelled, for the reasons in `MailHook.get_async_conn`.
        await asyncio.shield(sync_to_async(self.notify, thread_sensitive=False)(context))

    def render_template_fields(self, context: Context, jinja_env: jinja2.Environment | None = None) -> None:
        """Render the template fields. An undefined name renders as empty with a warning.

        A field that cannot be rendered, or renders to nothing or ``None``, gets its default, and the message reports
        it: a plain message is better than none. The message also reports a text in which an expression is ``None``.

        :param jinja_env: the environment to render with. Default: the DAG's.
        """
        import jinja2

        from airflow_provider_mail._task.checks import noting_environment
        from airflow_provider_mail.api._core.fields import is_nothing

        known: Any = {"dag": None, **context}
        # `dag.test()` passes a serialized DAG, without an environment, to a DAG's callbacks.
        dag = known["dag"] if hasattr(known["dag"], "get_template_env") else None
        environment = (jinja_env or self.get_template_env(dag=dag)).overlay(
            undefined=jinja2.make_logging_undefined(log, jinja2.ChainableUndefined)
        )
        self._skipped = []
        for name in self.template_fields:
            template = getattr(self, name)
            missing: set[str] = set()
            try:
                noting = noting_environment(environment, partial(missing.add, name))
                value = self.render_template(template, known, noting, set())
            except Exception as error:
                from airflow_provider_mail.notifications._message import summarize

                log.error("Mail: %s cannot be rendered: %s", name, summarize(error))
                self._skipped.append(f"{name}: cannot be rendered")
                value = None
            else:
                if is_nothing(value) and not is_nothing(template):
                    self._skipped.append(f"{name}: renders to nothing")
                    value = None
                elif missing:
                    self._skipped.append(f"{name}: an expression of its template has no value")
            setattr(self, name, value)
        self.mail_conn_id = self.mail_conn_id or "mail_default"

    def _message(self, context: Mapping[str, Any]) -> tuple[NotificationContext, OutgoingMessage]:
        from airflow_provider_mail.notifications._context import NotificationContext, render_html, render_subject
        from airflow_provider_mail.notifications._message import build_message, log_skipped
        from airflow_provider_mail.version_compat import conf

        event = NotificationContext.from_context(context)
        message = build_message(
            **{name: getattr(self, name) for name in MailNotifier.template_fields if name != "mail_conn_id"},
            event_key=event.key,
            default_subject=render_subject(event),
            default_content=render_html(event, instance=conf.get("api", "instance_name", fallback=None)),
            skipped=self._skipped,
        )
        log_skipped(message)
        return event, message


send_mail_notification = MailNotifier


def send_digests(*, timeout: float = 20.0) -> int:
    """Send the summaries of ``MailNotifier(digest=...)`` whose time has come and that no further alert has sent.

    Call it in a task every few minutes. Several may run at once.

    :param timeout: seconds for each mail. Default: 20.
    :return: the number of summaries that were sent.
    :raises MailConfigError: there is no memory.
    :raises MailError: a summary was not sent, or may have been. Its alerts are in the next one.
    """
    from airflow_provider_mail.notifications._digest import send_due

    return send_due(timeout)
