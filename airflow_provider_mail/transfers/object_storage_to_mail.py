"""Transfer from files to the service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Unpack

from airflow_provider_mail._task.mixin import OnEmpty, Templated
from airflow_provider_mail.lineage import Folder
from airflow_provider_mail.operators._contact_import import (
    PROPERTIES,
    BaseContactImportOperator,
    UpdateMode,
)
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import ObjectStoragePath

    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail._task.import_rows import Source
    from airflow_provider_mail.arguments import Brakes, ChangesOnly, Consent, FileFormat, Rejects, Suppress
    from airflow_provider_mail.warehouse.read_files import FileForm

__all__ = ["ObjectStorageToMailContactsOperator"]


class ObjectStorageToMailContactsOperator(BaseContactImportOperator):
    """Import the rows of CSV, JSON Lines or Parquet files as contacts.

    Rows stream through checks into several concurrent requests, in constant memory. Invalid rows are rejected with row
    number, field and reason; all others are imported, and then the task fails if too many were rejected. A retried task
    does not send rows again that were accepted in earlier tries (Airflow 3.3).

    Returns ``list_name``, ``read``, ``accepted`` (over all tries), ``accepted_earlier`` (those among them that this
    try did not send), ``rejected``, ``opted_out``, ``without_address``, ``requests`` (of this try),
    ``requests_with_message`` (those that the service accepted with a message, which is logged as a warning),
    ``sandbox``, ``send_list_names`` and ``repel_list_names`` (for a campaign), ``suppressed``, with
    ``changes_only`` also ``joined``, ``changed``, ``left`` and ``size``, and with rejected rows ``rejects_path``
    and ``rejects_table``, where they are kept; never rows or addresses.

    .. seealso:: the guide :ref:`howto/operator:ObjectStorageToMailContactsOperator`
        (in the package: ``airflow_provider_mail/docs/contacts.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param path: the file, as a path or URL of ``ObjectStoragePath``: ``s3://bucket/contacts.csv.gz``; or a folder with
        all files below it, ``s3://bucket/unload/``; or a pattern, ``s3://bucket/day=*/part-*``. Several files are one
        source, in the order of their names; names that begin with a dot or an underscore do not count. (templated)
    :param object_storage_conn_id: the connection to the storage; can also be part of the path:
        ``s3://aws@bucket/x.csv``. Default: that of the path. (templated)
    :param file_format: how the file is read, where its name does not show it, see
        :class:`~airflow_provider_mail.arguments.FileFormat`. Default: by its name. (templated)
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
    :param consent: which people want mail, by columns of the source, see
        :class:`~airflow_provider_mail.arguments.Consent`; a list of several, or an empty one for everybody. Default: a
        column that looks like a consent fails the task with ``exact_audience``, and is a warning otherwise.
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
    """

    path: str | ObjectStoragePath
    object_storage_conn_id: str | None
    file_format: FileFormat | None

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        path: Templated[ObjectStoragePath],
        object_storage_conn_id: Templated[str] | None = None,
        file_format: Templated[FileFormat] | None = None,
        list_name: Templated[str] | None = None,
        list_description: Templated[str] | None = None,
        columns: Templated[Mapping[str, str]] | None = None,
        update_mode: Templated[UpdateMode] = "create_and_update",
        chunk_size: int = 5000,
        max_in_flight: int = 16,
        null_value: Templated[str] | None = None,
        consent: Consent | Sequence[Consent] | None = None,
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
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    @contextmanager
    def source(self) -> Iterator[Source]:
        from airflow_provider_mail._task.import_rows import Source
        from airflow_provider_mail._task.source_files import SourceFiles
        from airflow_provider_mail._task.storage import storage_path

        self._files = SourceFiles(storage_path(self.path, self.object_storage_conn_id, "path"), self._form)
        with self._files.rows() as rows:
            # Without a row, JSON Lines have no column names.
            columns = rows.columns or list(self.columns or PROPERTIES.values())
            self._check_delimiter(columns)
            yield Source(columns, rows.batches, rows.total, rows.all_columns)

    def lineage_source(self) -> Folder:
        from airflow_provider_mail._task.storage import storage_path

        return Folder(storage_path(self.path, self.object_storage_conn_id, "path"))

    def reject_place(self, row_number: int) -> tuple[str | None, int]:
        return self._files.place_of(row_number)

    def _check_delimiter(self, columns: Sequence[str]) -> None:
        """Name the delimiter of a file whose rows are read as one column."""
        delimiter = next((mark for mark in ";\t|," if mark in columns[0]), None)
        if len(columns) == 1 and delimiter and (self.file_format is None or self.file_format.delimiter != delimiter):
            # Without the line: in a file without a header, it is personal data.
            raise AirflowFailException(
                f"file_format: set FileFormat(delimiter={delimiter!r}), which separates values in the first line"
            )

    def _form(self, path: str) -> FileForm:
        """Return how to read a file: by the arguments, and otherwise by its name."""
        from airflow_provider_mail._task.source_files import check_form
        from airflow_provider_mail.arguments import FileFormat
        from airflow_provider_mail.warehouse.read_files import FORMATS, FileForm, form_of

        given: Any = self.file_format or FileFormat()
        name = path.rpartition("/")[2]
        named_format, named_compression, named_delimiter = form_of(name)
        file_format = given.name or named_format
        compression = given.compression or named_compression or "none"
        if file_format is None:
            raise AirflowFailException(
                f"file_format: unknown extension of {name!r}; set FileFormat(name=...) to one of {', '.join(FORMATS)}"
            )
        try:
            "".encode(given.encoding)
        except LookupError as error:
            raise AirflowFailException(f"file_format.encoding: {error}") from None
        form = FileForm(
            file_format=file_format,
            compression=None if compression == "none" else compression,
            encoding=given.encoding,
            delimiter=given.delimiter or named_delimiter,
            escape=given.escape,
            column_names=given.column_names,
            wanted=None if self.columns is None else [*dict.fromkeys([*self.columns, *self._unsent_columns()])],
            size=self.chunk_size,
        )
        check_form(form)
        return form
