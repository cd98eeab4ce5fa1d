"""Transfer from files to the service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Literal, Unpack

from airflow_provider_mail._task.mixin import OnEmpty, Templated
from airflow_provider_mail._task.rules import choice
from airflow_provider_mail.operators._contact_import import (
    AUDIENCE_FIELDS,
    PROPERTIES,
    AudienceMode,
    BaseContactImportOperator,
    OnRemoved,
    Source,
    Suppress,
    UpdateMode,
)
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context, ObjectStoragePath

    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail.warehouse.read_files import FileForm

__all__ = ["ObjectStorageToMailContactsOperator"]


class ObjectStorageToMailContactsOperator(BaseContactImportOperator):
    """Import the rows of a CSV, JSON Lines or Parquet file as contacts.

    Rows stream through checks into several concurrent requests, in constant memory. Invalid rows are rejected with row
    number, field and reason; all others are imported, and then the task fails if too many were rejected. A retried task
    does not send rows again that were accepted in earlier tries (Airflow 3.3).

    Returns ``list_name``, ``read``, ``accepted`` (over all tries), ``accepted_earlier`` (those among them that this try
    did not send), ``rejected``, ``requests`` (of this try), ``remarks`` (requests that the service accepted with a
    message, which is logged as a warning), ``sandbox``, ``send_list_names`` and ``repel_list_names`` (for a campaign),
    ``suppressed``, with ``changes_only`` also ``joined``, ``changed``, ``left`` and ``size``, and the places of the
    rejected rows; never rows or addresses.

    .. seealso::
        For more information on how to use this operator, see the guide
        :ref:`howto/operator:ObjectStorageToMailContactsOperator`
        (in the package: ``airflow_provider_mail/docs/contacts.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param path: the file, as a path or URL of ``ObjectStoragePath``: ``s3://bucket/contacts.csv.gz``,
        ``file:///data/x.parquet``. (templated)
    :param object_storage_conn_id: the connection to the storage; can also be part of the path:
        ``s3://aws@bucket/x.csv``. Default: that of the path. (templated)
    :param file_format: ``csv``, ``jsonl`` or ``parquet`` (needs the extra ``parquet``). Default: by the extension of
        the name: ``.csv``, ``.tsv`` (tabs), ``.jsonl``, ``.ndjson``, ``.parquet``. (templated)
    :param compression: ``gzip``, ``bz2``, ``xz``, ``zstd`` or ``none``. Default: by a further extension of the name:
        ``.gz``, ``.bz2``, ``.xz``, ``.zst``. (templated)
    :param encoding: the encoding of CSV and JSON Lines. Default: ``utf-8``. (templated)
    :param delimiter: the character between the values of CSV. Default: a comma, or a tab if the extension is ``.tsv``.
        (templated)
    :param column_names: the names of the values of a CSV file that has no header. Default: those of the header.
        (templated)
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
    :param max_reject_fraction: the largest share of rejected rows, from 0 to 1, with which the task succeeds. Default:
        0.
    :param rejects_path: a file for the rejected rows with reasons, as JSON Lines: a path or URL as Airflow's
        ``ObjectStoragePath`` takes it. Another try replaces it. It contains personal data. Default: none. (templated)
    :param on_empty: what to do when there is no row: ``error`` fails the task, ``skip`` skips it, ``continue`` returns
        zeros. Default: ``error``.
    :param sandbox_mode: let the service check the requests and change nothing. Default: false.
    :param resume: let a retried task skip chunks of unchanged rows that were accepted less than a day ago. If false,
        every try sends everything. Default: true.
    :param audience: ``add``: the contacts are added to ``list_name``, and campaigns reach everybody on it; ``exact``:
        campaigns reach exactly the people whom the source returned and the service accepted. For that, every try fills
        a list of its own, whose name begins with ``list_name``: give the result to ``MailCreateCampaignOperator`` as
        ``audience``. Default: ``add``. (templated)
    :param keep_lists: the number of runs whose lists ``audience="exact"`` keeps, this one included. Older ones are
        deleted an hour or more after they were made, unless a campaign that is not finished names them. Default: 2.
    :param limit: the number of rows to read from the source, to try something out. Default: all.
    :param max_rows: the number of rows above which the task fails before the first request, unless the DAG run has the
        parameter ``pass_brakes``. Default: none.
    :param suppress: ``events`` leaves out people who unsubscribed, complained, were dropped, or bounced three times
        since the last delivery, according to the table of events. Default: nobody. (templated)
    :param suppress_sql: a query whose first column has the addresses of people to leave out. Default: none. (templated)
    :param suppress_table: the table of events, with ``suppress``: default ``mail_events``; without it, a table whose
        column ``email`` has the addresses of people to leave out. Default: none. (templated)
    :param suppress_conn_id: the connection to the database of ``suppress``, ``suppress_sql`` and ``suppress_table``.
        Default: none. (templated)
    :param dry_run: read and check the rows, log counts and masked examples, and send nothing. Default: false.
    :param changes_only: send only rows that are new or whose mapped values changed since the service accepted them. It
        needs a state, in which the rows are encrypted; the secret is ``[mail] audience_key``, or
        Airflow's Fernet key. A state that is missing, or another one's, or does not fit the list, is not used:
        everybody is sent, with a warning. Default: false.
    :param state_conn_id: the connection of the database for the state. Default: none. (templated)
    :param state_table: the table of audiences; its members are in a table whose name ends with ``_members``. Both are
        created when missing. Default: ``mail_audiences``. (templated)
    :param state_path: a folder for the state instead of a database: a path or URL as Airflow's ``ObjectStoragePath``
        takes it. Default: none. (templated)
    :param full_every: the time after which everybody is sent again, to a new list: seconds or a timedelta. That repairs
        what others changed at the service. Default: never.
    :param on_removed: what to do about people whom the source no longer returns: ``exclude`` puts them on an exclusion
        list, which campaigns to ``audience`` use; ``ignore`` forgets them; ``delete_contact`` deletes their contacts
        permanently, and needs ``max_removed_fraction``. Default: ``exclude`` for an exact audience, else ``ignore``.
    :param max_change_fraction: the largest share of the audience, before this run, that may join, change or leave; not
        applied below ten people. Default: any.
    :param max_removed_fraction: the largest share of the audience that may leave, from 0 to 1. When this, or one of the
        two limits above, is exceeded, the task fails before the first request, unless the DAG run has the parameter
        ``pass_brakes``. An empty source removes nobody. Default: any.
    :param log_table: a table in the database of the state for a row per run; the changes of each person are in a table
        whose name ends with ``_changes``. Both are created when missing. Default: none. (templated)
    """

    template_fields = (
        "mail_conn_id", "path", "object_storage_conn_id", "file_format", "compression", "encoding", "delimiter",
        "column_names", "list_name", "list_description", "columns", "update_mode", "null_value", "rejects_path",
        *AUDIENCE_FIELDS,
    )  # fmt: skip
    own_rules: ClassVar = {"file_format": choice("csv", "jsonl", "parquet")}
    path: str | ObjectStoragePath
    object_storage_conn_id: str | None
    file_format: str | None
    compression: str | None
    encoding: str
    delimiter: str | None
    column_names: Sequence[str] | None

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        path: Templated[ObjectStoragePath],
        object_storage_conn_id: Templated[str] | None = None,
        file_format: Templated[Literal["csv", "jsonl", "parquet"]] | None = None,
        compression: Templated[Literal["gzip", "bz2", "xz", "zstd", "none"]] | None = None,
        encoding: Templated[str] = "utf-8",
        delimiter: Templated[str] | None = None,
        column_names: Templated[Sequence[Templated[str]]] | None = None,
        list_name: Templated[str] | None = None,
        list_description: Templated[str] | None = None,
        columns: Templated[Mapping[str, str]] | None = None,
        update_mode: Templated[UpdateMode] = "create_and_update",
        chunk_size: int = 5000,
        max_in_flight: int = 16,
        null_value: Templated[str] | None = None,
        max_reject_fraction: float = 0.0,
        rejects_path: Templated[str] | None = None,
        on_empty: OnEmpty = "error",
        sandbox_mode: bool = False,
        resume: bool = True,
        audience: Templated[AudienceMode] = "add",
        keep_lists: int = 2,
        limit: int | None = None,
        max_rows: int | None = None,
        suppress: Templated[Suppress] | None = None,
        suppress_sql: Templated[str] | None = None,
        suppress_table: Templated[str] | None = None,
        suppress_conn_id: Templated[str] | None = None,
        dry_run: bool = False,
        changes_only: bool = False,
        state_conn_id: Templated[str] | None = None,
        state_table: Templated[str] = "mail_audiences",
        state_path: Templated[str] | None = None,
        full_every: float | timedelta | None = None,
        on_removed: OnRemoved | None = None,
        max_change_fraction: float | None = None,
        max_removed_fraction: float | None = None,
        log_table: Templated[str] | None = None,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(
            mail_conn_id=mail_conn_id, path=path, object_storage_conn_id=object_storage_conn_id,
            file_format=file_format, compression=compression, encoding=encoding, delimiter=delimiter,
            column_names=column_names, list_name=list_name, list_description=list_description, columns=columns,
            update_mode=update_mode, chunk_size=chunk_size, max_in_flight=max_in_flight, null_value=null_value,
            max_reject_fraction=max_reject_fraction, rejects_path=rejects_path, on_empty=on_empty,
            sandbox_mode=sandbox_mode, resume=resume,
            audience=audience, keep_lists=keep_lists, limit=limit, max_rows=max_rows,
            suppress=suppress, suppress_sql=suppress_sql, suppress_table=suppress_table,
            suppress_conn_id=suppress_conn_id, dry_run=dry_run, changes_only=changes_only, state_conn_id=state_conn_id,
            state_table=state_table, state_path=state_path, full_every=full_every, on_removed=on_removed,
            max_change_fraction=max_change_fraction, max_removed_fraction=max_removed_fraction, log_table=log_table,
        )  # fmt: skip

    @contextmanager
    def source(self, context: Context) -> Iterator[Source]:
        from airflow_provider_mail._task.storage import storage_path
        from airflow_provider_mail.warehouse.read_files import file_rows

        path = storage_path(self.path, self.object_storage_conn_id, "path")
        form = self._form(path.name)
        try:
            file = path.fs.open(path.path, "rb")
        except FileNotFoundError:
            # Without the traceback through the file system. The file may arrive later, so the task is retried.
            raise FileNotFoundError(f"path: there is no such file: {str(path)!r}") from None
        with file, file_rows(file, str(path), form) as rows:
            # A JSON Lines file without lines has no column names, and no rows.
            columns = rows.columns or list(self.columns or PROPERTIES.values())
            self._check_delimiter(columns)
            yield Source(columns, rows.batches, rows.total)

    def _check_delimiter(self, columns: Sequence[str]) -> None:
        """Name the delimiter of a file whose rows are read as one column."""
        delimiter = next((mark for mark in ";\t|," if mark in columns[0]), None)
        if len(columns) == 1 and delimiter and self.delimiter != delimiter:
            # Without the line: in a file without a header, it is personal data.
            raise AirflowFailException(
                f"delimiter: set delimiter={delimiter!r}, which separates values in the first line"
            )

    def _form(self, name: str) -> FileForm:
        """Return how to read the file: by the arguments, and otherwise by its name."""
        from airflow_provider_mail.warehouse.read_files import FORMATS, FileForm, form_of

        named_format, named_compression, named_delimiter = form_of(name)
        file_format = self.file_format or named_format
        compression = self.compression or named_compression or "none"
        if file_format is None:
            raise AirflowFailException(f"file_format: unknown extension of {name!r}; set one of {', '.join(FORMATS)}")
        try:
            "".encode(self.encoding)
        except LookupError as error:
            raise AirflowFailException(f"encoding: {error}") from None
        delimiter = self.delimiter or named_delimiter
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise AirflowFailException(f"delimiter: {delimiter!r} is not one character that can stand between values")
        return FileForm(
            file_format=file_format,
            compression=None if compression == "none" else compression,
            encoding=self.encoding,
            delimiter=delimiter,
            column_names=self.column_names,
            wanted=None if self.columns is None else list(self.columns),
            size=self.chunk_size,
        )
