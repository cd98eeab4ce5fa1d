"""Transfers from a database to the service."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Unpack

from airflow_provider_mail._task.checks import RedactedField, unwrap
from airflow_provider_mail._task.mixin import OnEmpty, Templated
from airflow_provider_mail._task.storage import SqlTask, check_tables
from airflow_provider_mail.lineage import SqlQuery
from airflow_provider_mail.operators._contact_import import (
    BaseContactImportOperator,
    UpdateMode,
)
from airflow_provider_mail.operators.transactional import (
    BaseSendBatchOperator,
    OnAmbiguous,
    OnDuplicateRecipient,
    OnUnfilledTag,
)

if TYPE_CHECKING:
    from airflow.sdk import ObjectStoragePath

    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail._task.import_rows import Source
    from airflow_provider_mail.arguments import Brakes, ChangesOnly, Rejects, Suppress
    from airflow_provider_mail.send_window import SendWindow

__all__ = ["SqlToMailBatchOperator", "SqlToMailContactsOperator"]


class SqlSource(SqlTask):
    """Mixin for a query on a connection, with parameters that Airflow neither stores nor shows."""

    template_ext: Sequence[str] = (".sql",)
    parameters = RedactedField()


class SqlToMailContactsOperator(SqlSource, BaseContactImportOperator):
    """Import the rows of a query as contacts, from any database with a ``DbApiHook``.

    Rows stream through checks into several concurrent requests, in constant memory. Invalid rows are rejected with row
    number, field and reason; all others are imported, and then the task fails if too many were rejected. A retried task
    does not send rows again that were accepted in earlier tries (Airflow 3.3).

    Returns ``list_name``, ``read``, ``accepted`` (over all tries), ``accepted_earlier`` (those among them that this
    try did not send), ``rejected``, ``opted_out``, ``without_address``, ``requests`` (of this try),
    ``requests_with_message`` (those that the service accepted with a message, which is logged as a warning),
    ``sandbox``, ``send_list_names`` and ``repel_list_names`` (for a campaign), ``suppressed``, with
    ``changes_only`` also ``joined``, ``changed``, ``left`` and ``size``, and with rejected rows ``rejects_path``
    and ``rejects_table``, where they are kept; never rows or addresses.

    .. seealso:: the guide :ref:`howto/operator:SqlToMailContactsOperator`
        (in the package: ``airflow_provider_mail/docs/contacts.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param sql_conn_id: the connection to the database. (templated)
    :param sql: the query; a name that ends in ``.sql`` is read from the DAG's folder. Its
        columns are mapped to properties by ``columns``. (templated)
    :param parameters: the parameters of the query, in the driver's style. They may be addresses: Airflow neither stores
        nor shows them. Default: none. (templated)
    :param list_name: the list that the contacts are added to; created when missing. Default: none. (templated)
    :param list_description: the description with which the list is created. Default: none. (templated)
    :param columns: the property that each column is sent as, such as ``{"mail_address": "email"}``. Columns left out
        are not sent. Default: columns named like ``email``, ``name`` and ``phone_number``; any other column fails the
        task. (templated)
    :param update_mode: ``create_and_update``, ``create_only`` or ``update_only``. Default: ``create_and_update``.
        (templated)
    :param chunk_size: rows in one request. Default: 5,000.
    :param max_in_flight: the maximum number of concurrent requests; the connection's own limit also applies. Default:
        16.
    :param null_value: the text that is sent for a missing value. Default: ``null``, whose effect on a contact the
        specification does not describe. (templated)
    :param rejects: how many rows may be rejected, and where they are kept, see
        :class:`~airflow_provider_mail.arguments.Rejects`. Default: none may, and none is kept. (templated)
    :param on_empty: what to do when there is no row: ``error`` fails the task, ``skip`` skips it, ``continue`` returns
        zeros. Default: ``error``.
    :param sandbox_mode: let the service check the requests and change nothing. Default: false.
    :param exact_audience: let campaigns reach exactly the people whom the source returned and the service accepted.
        For that, every try fills a list of its own, whose name begins with ``list_name``: give the result to
        ``MailCreateCampaignOperator`` as ``audience``. Default: the contacts are added to ``list_name``, and campaigns
        reach everybody on it.
    :param keep_lists: the number of runs whose lists ``exact_audience`` keeps, this one included. Older ones are
        deleted an hour or more after they were made, unless a campaign that is not finished names them. Default: 2.
    :param limit: the number of rows to read from the source, to try something out. Default: all.
    :param suppress: whom to leave out, see :class:`~airflow_provider_mail.arguments.Suppress`. Default: nobody.
        (templated)
    :param dry_run: read and check the rows, log counts and masked examples, and send nothing. Default: false.
    :param changes_only: send only rows that are new or whose mapped values changed since the service accepted them, see
        :class:`~airflow_provider_mail.arguments.ChangesOnly`. Default: all rows. (templated)
    :param brakes: what stops the import before its first request, see
        :class:`~airflow_provider_mail.arguments.Brakes`. Default: nothing.
    :param count_first: run the query twice, first to count its rows, so that the log can show the remaining time.
        Default: false.
    """

    template_fields_renderers = {"sql": "sql"}  # noqa: RUF012 - Airflow's own attribute
    sql: str
    count_first: bool
    keeps_all_rows = True

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        sql_conn_id: Templated[str],
        sql: Templated[str],
        parameters: Templated[Sequence[Any] | Mapping[str, Any]] | None = None,
        list_name: Templated[str] | None = None,
        list_description: Templated[str] | None = None,
        columns: Templated[Mapping[str, str]] | None = None,
        update_mode: Templated[UpdateMode] = "create_and_update",
        chunk_size: int = 5000,
        max_in_flight: int = 16,
        null_value: Templated[str] | None = None,
        rejects: Templated[Rejects] | None = None,
        on_empty: OnEmpty = "error",
        sandbox_mode: bool = False,
        exact_audience: bool = False,
        keep_lists: int = 2,
        limit: int | None = None,
        suppress: Templated[Suppress] | None = None,
        dry_run: bool = False,
        changes_only: Templated[ChangesOnly] | None = None,
        brakes: Brakes | None = None,
        count_first: bool = False,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    @contextmanager
    def source(self) -> Iterator[Source]:
        from airflow_provider_mail._task.import_rows import Source
        from airflow_provider_mail.warehouse.database import stream_rows

        if self.rejects.table:
            check_tables(self.audience_hook(self.rejects.sql_conn_id), {"rejects.table": self.rejects.table})
        parameters = unwrap(self.parameters)
        with stream_rows(self.sql_hook, self.sql, parameters, self.chunk_size) as (columns, batches):
            yield Source(columns, batches, self._total(parameters))

    def lineage_source(self) -> SqlQuery:
        return SqlQuery(self.sql_hook, self.sql)

    def _total(self, parameters: Any) -> int | None:
        from airflow_provider_mail.warehouse.database import stream_rows
        from airflow_provider_mail.warehouse.errors import WarehouseError

        if not self.count_first:
            return None
        # On separate lines, since the query may end with a comment.
        counting = f"SELECT COUNT(*) FROM (\n{self.sql.strip().rstrip(';')}\n) AS contacts"
        try:
            with stream_rows(self.sql_hook, counting, parameters) as (_, batches):
                return int(next(batches)[0][0])
        except WarehouseError as error:
            self.log.info("The rows could not be counted, so the log does not show the remaining time: %s", error)
            return None


class SqlToMailBatchOperator(SqlSource, BaseSendBatchOperator):
    """Send one personalized message for each row of a query, at most once, in constant memory.

    All rows are read and checked before the first message is sent, and then sent in requests of up to 100 messages.
    Another try runs the query again and continues after the rows that were sent; if these are no longer the first rows,
    in the same order, nothing more is sent and the task fails. So the query needs an ``ORDER BY``.

    Returns ``requests`` and ``recipients`` that were accepted over all tries, ``unknown_requests`` and
    ``unknown_recipients`` that were skipped, ``duplicate_recipients`` and ``sandbox``; never addresses.

    .. seealso:: the guide :ref:`howto/operator:SqlToMailBatchOperator`
        (in the package: ``airflow_provider_mail/docs/transactional.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param sql_conn_id: the connection to the database. (templated)
    :param sql: the query; a name that ends in ``.sql`` is read from the DAG's folder. (templated)
    :param parameters: the parameters of the query, in the driver's style. They may be addresses: Airflow neither stores
        nor shows them. Default: none. (templated)
    :param sender_mail: a verified sender of the account. (templated)
    :param sender_name: the display name of the sender. Default: none. (templated)
    :param to_column: the column with the recipient's address. Default: ``email``. (templated)
    :param name_column: the column with the recipient's name. Default: none. (templated)
    :param cc_column: the column with addresses that get a copy, separated by commas. Default: none. (templated)
    :param bcc_column: the column with addresses that get a blind copy, separated by commas. Default: none. (templated)
    :param columns: the tag for which each column has the value: ``{"first_name": "name"}`` for ``{{name}}``. Columns
        left out are not sent. Default: every column except those of ``to``, ``cc`` and ``bcc``, for the tag of its own
        name. The values of ``mail_params`` replace missing and blank values. (templated)
    :param subject: the subject of messages without one of their own. It may contain tags; since Airflow renders the
        field, write them as ``{% raw %}{{tag}}{% endraw %}``. Default: none. (templated)
    :param content: HTML, with tags in the same form; or the name of a file (``.html``, ``.htm``, ``.txt``) in the DAG's
        folder or in ``template_searchpath``, which is rendered as well. Default: none. (templated)
    :param template_name: a stored template for messages without one of their own; it takes precedence over ``content``.
        Default: none. (templated)
    :param mail_params: values for tags in all messages (the specification's ``params``; Airflow has its own
        ``params``); those of a row take precedence, unless they are missing or blank. Default: none. (templated)
    :param reply_to: the address for replies. Default: none. (templated)
    :param send_date: the send time: a datetime with a zone or ISO 8601 text with one. Default: now. (templated)
    :param send_window: the hours and days at which it may go out, see
        :class:`~airflow_provider_mail.send_window.SendWindow`: a send time outside of it is moved to its next opening,
        and no try sends after that opening has closed. Default: at any time.
    :param max_run_age: nothing is sent when the run was due longer ago, as in catch-up or a backfill; seconds or a
        timedelta. Default: a run of any age sends.
    :param on_old_run: what the task does then: ``fail``, or ``skip``. Default: ``fail``.
    :param category: a label for reports: letters and digits, 100 bytes at most. Default: none. (templated)
    :param campaign: the task name label: letters and digits, 100 bytes at most. Default: none. (templated)
    :param track_open: count opens. Default: false.
    :param track_click: count clicks. Default: false.
    :param attachment: one file: a path or URL as Airflow's ``ObjectStoragePath`` takes it, which is read when the task
        runs; or ``{"file_name": ..., "file_data": <Base64>}``. Default: none. (templated)
    :param versions_per_request: messages in one request, 100 at most. Default: 100.
    :param max_in_flight: the maximum number of concurrent requests; the connection's own limit also applies. After a
        crash, as many are in doubt, each of up to 100 people. Default: 1.
    :param on_empty: what to do when there is no message: ``error`` fails the task, ``skip`` skips it, ``continue``
        returns zeros. Default: ``error``.
    :param on_duplicate_recipient: what to do when a recipient is in ``to`` of two messages, or twice in one: ``fail``
        before anything is sent, ``skip`` all but the first, or ``allow`` it. The result counts them as
        ``duplicate_recipients``. Default: ``fail``.
    :param allow_blank: send it although subject or content is blank, or a template rendered an argument that recipients
        see to nothing or to the text ``None``. Default: false, the task fails before anything is sent.
    :param on_unfilled_tag: what to do when a tag in subject, content or stored template has no value in a message, or a
        blank one: ``fail`` before anything is sent, or ``warn`` in the log. Default: ``fail``.
    :param service_tags: the names of tags that the service fills, in addition to those of the connection; they need no
        value. Default: none. (templated)
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
    values_from = "correct the tag or the query's columns, give a default for missing values in mail_params"

    sql: str
    to_column: str
    name_column: str | None
    cc_column: str | None
    bcc_column: str | None
    columns: Mapping[str, str] | None

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        sql_conn_id: Templated[str],
        sql: Templated[str],
        parameters: Templated[Sequence[Any] | Mapping[str, Any]] | None = None,
        sender_mail: Templated[str],
        sender_name: Templated[str] | None = None,
        to_column: Templated[str] = "email",
        name_column: Templated[str] | None = None,
        cc_column: Templated[str] | None = None,
        bcc_column: Templated[str] | None = None,
        columns: Templated[Mapping[str, str]] | None = None,
        subject: Templated[str] | None = None,
        content: Templated[str] | None = None,
        template_name: Templated[str] | None = None,
        mail_params: Templated[Mapping[str, Any]] | None = None,
        reply_to: Templated[str] | None = None,
        send_date: Templated[datetime] | None = None,
        send_window: SendWindow | None = None,
        max_run_age: float | timedelta | None = None,
        on_old_run: Literal["fail", "skip"] = "fail",
        category: Templated[str] | None = None,
        campaign: Templated[str] | None = None,
        track_open: bool = False,
        track_click: bool = False,
        attachment: Templated[Mapping[str, Templated[str]] | ObjectStoragePath] | None = None,
        versions_per_request: int = 100,
        max_in_flight: int = 1,
        on_empty: OnEmpty = "error",
        on_duplicate_recipient: OnDuplicateRecipient = "fail",
        allow_blank: bool = False,
        on_unfilled_tag: OnUnfilledTag = "fail",
        service_tags: Templated[Collection[Templated[str]]] | None = None,
        once_per: Templated[str] | None = None,
        at_most: tuple[int, timedelta] | None = None,
        sandbox_mode: bool = False,
        on_ambiguous: Templated[OnAmbiguous] = "fail",
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    @contextmanager
    def all_messages(self) -> Iterator[Iterable[Mapping[str, Any]]]:
        from airflow_provider_mail._task.messages import RowMessages
        from airflow_provider_mail.api.errors import MailValidationError
        from airflow_provider_mail.warehouse.database import stream_rows

        parameters = unwrap(self.parameters)
        with stream_rows(self.sql_hook, self.sql, parameters) as (names, batches):
            messages = RowMessages(
                names,
                to=self.to_column,
                name=self.name_column,
                cc=self.cc_column,
                bcc=self.bcc_column,
                tags=self.columns,
            )
            try:
                yield messages.build(batches)
            except MailValidationError as error:
                raise MailValidationError(messages.by_row(str(error)), operation=error.operation) from None
