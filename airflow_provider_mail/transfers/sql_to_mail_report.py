"""Transfer of the rows of a query into a mail: a report."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Unpack

from airflow_provider_mail._task.checks import RedactedField, unwrap
from airflow_provider_mail._task.mixin import OnEmpty, SendGuardMixin, Templated, task_instance_name
from airflow_provider_mail.operators.transactional import BaseSendOperator, OnAmbiguous, OnUnfilledTag
from airflow_provider_mail.transfers.sql_to_mail import SqlSource

if TYPE_CHECKING:
    from airflow.sdk import Context, ObjectStoragePath

    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail.api.transactional import Chunk
    from airflow_provider_mail.send_window import SendWindow

__all__ = ["SqlToMailReportOperator"]


class SqlToMailReportOperator(SqlSource, SendGuardMixin, BaseSendOperator):
    """Mail the rows of a query as a table, with all rows as an attached CSV file; or to each recipient their own rows.

    Each recipient gets one mail, at most once. All rows are read and checked before the first mail is sent. The
    specification has no field for a plain-text part, so the mail has none.

    Returns ``rows``, ``requests`` and ``recipients`` that were accepted over all tries, ``unknown_requests`` and
    ``unknown_recipients`` that were skipped, ``dry_run`` and ``sandbox``; never rows or addresses.

    .. seealso:: the guide :ref:`howto/operator:SqlToMailReportOperator`
        (in the package: ``airflow_provider_mail/docs/how-to/report.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param sql_conn_id: the connection to the database. (templated)
    :param sql: the query; a name that ends in ``.sql`` is read from the DAG's folder. (templated)
    :param parameters: the parameters of the query, in the driver's style. They may be addresses: Airflow neither stores
        nor shows them. Default: none. (templated)
    :param sender_mail: a verified sender of the account. (templated)
    :param sender_name: the display name of the sender. Default: none. (templated)
    :param to: who gets all rows: an address, ``Name <address>``, ``{"email": ..., "name": ...}``, or up to 20 of them,
        who share one mail. Airflow neither stores nor shows them. Default: none; ``group_by`` is needed. (templated)
    :param group_by: the column with the address of the person who gets the row. It is not shown, unless ``columns``
        names it. Default: none; ``to`` is needed. (templated)
    :param columns: the columns to show and their headings, in this order. Default: every column except ``group_by``,
        with its name as heading. (templated)
    :param subject: the subject. (templated)
    :param content: HTML above the table, or the name of a file (``.html``, ``.htm``, ``.txt``) in the DAG's folder or
        in ``template_searchpath``, which is rendered as well. Default: none. (templated)
    :param max_rows: rows in the table; below them it says how many more there are. Default: 100.
    :param file_name: the name of the attached CSV file, which has all rows; ``None`` attaches none. Default:
        ``report.csv``. (templated)
    :param reply_to: the address for replies. Default: none. (templated)
    :param send_date: the send time: a datetime with a zone or ISO 8601 text with one. Default: now. (templated)
    :param send_window: the hours and days at which it may go out, see
        :class:`~airflow_provider_mail.send_window.SendWindow`. Default: at any time.
    :param max_run_age: nothing is sent when the run was due longer ago, as in catch-up or a backfill; seconds or a
        timedelta. Default: a run of any age sends.
    :param on_old_run: what the task does then: ``fail``, or ``skip``. Default: ``fail``.
    :param category: a label for reports: letters and digits, 100 bytes at most. Default: none. (templated)
    :param campaign: the task name label: letters and digits, 100 bytes at most. Default: none. (templated)
    :param track_open: count opens. Default: false.
    :param track_click: count clicks. Default: false.
    :param max_in_flight: the maximum number of concurrent requests, one for each mail; the connection's own limit also
        applies. After a crash, as many mails are in doubt. Default: 1.
    :param on_empty: what to do when there is no row: ``error`` fails the task, ``skip`` skips it, ``continue`` returns
        zeros; no mail is sent. Default: ``skip``.
    :param allow_blank: send it although the subject is blank, or a template rendered an argument that recipients see to
        nothing or to the text ``None``. Default: false, the task fails before anything is sent.
    :param on_unfilled_tag: what to do when subject or content has a tag, since a single message has no values for tags:
        ``fail`` before it is sent, or ``warn`` in the log. The rows have none. Default: ``fail``.
    :param service_tags: the names of tags that the service fills, in addition to those of the connection; they need no
        value. Default: none. (templated)
    :param dry_run: read and check everything, write the first mail to ``path``, and send nothing. Default: false.
    :param path: the file, or URL as Airflow's ``ObjectStoragePath`` takes it, to which ``dry_run`` writes the first
        mail as HTML. It has rows of the query. Default: none is written. (templated)
    :param once_per: a key such as ``welcome-1``: a person gets one mail under it, whatever DAG or run sends it; who
        had one is counted as ``already``. At most 200 bytes. It needs ``[mail] memory_conn_id``, see
        docs/how-to/who-was-mailed.md. Default: the task and its run. (templated)
    :param at_most: ``(3, timedelta(days=7))``: a person gets at most 3 mails in any 7 days, of all that the memory has;
        who would get more is not mailed, and counted as ``capped``. Default: no limit.
    :param sandbox_mode: let the service check the requests and send nothing. Default: false.
    :param on_ambiguous: what to do with a request whose outcome is unknown: ``fail`` the task, ``resend`` the request,
        which may mail people twice, or ``skip`` it, which may leave people out. Default: ``fail``. (templated)
    """

    template_fields_renderers = {"sql": "sql", "content": "html"}  # noqa: RUF012 - Airflow's own attribute
    argument = "sql"
    things = "rows"
    required_texts = ("subject",)

    to = RedactedField()
    sql: str
    group_by: str | None
    columns: Mapping[str, str] | None
    subject: str
    content: str | None
    max_rows: int
    file_name: str | None
    dry_run: bool  # type: ignore[assignment]
    path: Any
    _rows = 0

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        sql_conn_id: Templated[str],
        sql: Templated[str],
        parameters: Templated[Sequence[Any] | Mapping[str, Any]] | None = None,
        sender_mail: Templated[str],
        sender_name: Templated[str] | None = None,
        to: Templated[str | Mapping[str, Templated[str]] | Sequence[Templated[str] | Mapping[str, Templated[str]]]]
        | None = None,
        group_by: Templated[str] | None = None,
        columns: Templated[Mapping[str, str]] | None = None,
        subject: Templated[str],
        content: Templated[str] | None = None,
        max_rows: int = 100,
        file_name: Templated[str] | None = "report.csv",
        reply_to: Templated[str] | None = None,
        send_date: Templated[datetime] | None = None,
        send_window: SendWindow | None = None,
        max_run_age: float | timedelta | None = None,
        on_old_run: Literal["fail", "skip"] = "fail",
        category: Templated[str] | None = None,
        campaign: Templated[str] | None = None,
        track_open: bool = False,
        track_click: bool = False,
        max_in_flight: int = 1,
        on_empty: OnEmpty = "skip",
        allow_blank: bool = False,
        on_unfilled_tag: OnUnfilledTag = "fail",
        service_tags: Templated[Collection[Templated[str]]] | None = None,
        dry_run: bool = False,
        path: Templated[ObjectStoragePath] | None = None,
        once_per: Templated[str] | None = None,
        at_most: tuple[int, timedelta] | None = None,
        sandbox_mode: bool = False,
        on_ambiguous: Templated[OnAmbiguous] = "fail",
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    @contextmanager
    def chunks(self, context: Context, key: str) -> Iterator[Iterable[Chunk]]:
        from airflow_provider_mail._task.report import ReportRows
        from airflow_provider_mail._task.storage import Spool
        from airflow_provider_mail.api.errors import MailValidationError
        from airflow_provider_mail.api.transactional import Chunk, recipients_of, unique_msg_id
        from airflow_provider_mail.warehouse.database import stream_rows

        to = unwrap(self.to)
        if bool(to) == bool(self.group_by):
            raise MailValidationError("to, group_by: give one of them: who gets all rows, or the column that says who")
        self.check_tags(subject=self.subject, content=self.content)
        send_date = self.fitted_send_date(context)
        with closing(Spool[Chunk]()) as spool:
            with stream_rows(self.sql_hook, self.sql, unwrap(self.parameters)) as (names, batches):
                grouped = ReportRows(names, group_by=self.group_by, headings=self.columns)
                for rows in batches:
                    grouped.add(rows)
            with closing(grouped):
                for report in grouped.reports(self.max_rows, attached=self.file_name is not None):
                    recipients = recipients_of(
                        f"group_by {self.group_by!r}" if self.group_by else "to", report.to or to
                    )
                    request = self.one_message(
                        recipients,
                        content=f"{self.content or ''}{report.table}",
                        attachment=self.file_name
                        and {"file_name": self.file_name, "file_data": base64.b64encode(report.file).decode()},
                        send_date=send_date,
                        # By the recipient: the rows of another may have come or gone when the task is tried again.
                        unique_msg_id=unique_msg_id(f"{key}/{report.key}", 0),
                    )
                    spool.add(Chunk.of(spool.count, request, len(recipients)))
                self._rows = grouped.count
            yield spool

    def execute(self, context: Context) -> dict[str, Any]:
        result = self._preview(context) if self.dry_run else super().execute(context)
        return {"rows": self._rows, **result, "dry_run": self.dry_run}

    def _preview(self, context: Context) -> dict[str, Any]:
        from html import escape

        from airflow_provider_mail._task.storage import put, storage_path

        with self.mail_errors(), self.chunks(context, task_instance_name(context, 250)) as chunks:
            mails = recipients = 0
            for chunk in chunks:
                if not mails and self.path:
                    page = f'<!doctype html><meta charset="utf-8"><title>{escape(self.subject)}</title>'
                    html = f"{page}{chunk.request.content}"
                    put(storage_path(self.path, None, "path"), html.encode())
                mails, recipients = mails + 1, recipients + chunk.recipients
        if not mails:
            self.on_nothing(f"{self.argument}: there are no {self.things} to send")
        self.log.info("Dry run: %s rows would be %s mails to %s recipients.", self._rows, mails, recipients)
        return {"requests": mails, "recipients": recipients, "unknown_requests": 0, "unknown_recipients": 0}
