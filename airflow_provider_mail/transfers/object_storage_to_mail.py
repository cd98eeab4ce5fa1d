"""From files to the service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_mail.operators._contact_import import PROPERTIES, BaseContactImportOperator, Source
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context, ObjectStoragePath

    from airflow_provider_mail.warehouse.read_files import FileForm


class ObjectStorageToMailContactsOperator(BaseContactImportOperator):
    """Imports the rows of a file as contacts, CSV, JSON Lines or Parquet, in flat memory.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/contacts.md``.

    :param path: the file, as ``ObjectStoragePath`` takes it: ``s3://bucket/contacts.csv.gz``, ``file:///data/x.parquet``.
    :param object_storage_conn_id: the connection to reach it with; may stand in the path too: ``s3://aws@bucket/x.csv``.
    :param file_format: ``csv``, ``jsonl`` or ``parquet`` (needs the extra ``parquet``). Default: what the name's ending
        says: ``.csv``, ``.tsv`` (tabs), ``.jsonl``, ``.ndjson``, ``.parquet``.
    :param compression: ``gzip``, ``bz2``, ``xz``, ``zstd`` or ``none``. Default: what a further ending says: ``.gz``,
        ``.bz2``, ``.xz``, ``.zst``.
    :param encoding: of CSV and JSON Lines.
    :param delimiter: between the values of CSV. Default: a comma, or a tab where the ending is ``.tsv``.
    :param column_names: names of the values of a CSV file that has no line of names.
    """

    template_fields: Sequence[str] = (
        *BaseContactImportOperator.template_fields,
        "path",
        "object_storage_conn_id",
        "file_format",
        "compression",
        "encoding",
        "delimiter",
        "column_names",
    )

    def __init__(
        self,
        *,
        path: str | ObjectStoragePath,
        object_storage_conn_id: str | None = None,
        file_format: Literal["csv", "jsonl", "parquet"] | None = None,
        compression: Literal["gzip", "bz2", "xz", "zstd", "none"] | None = None,
        encoding: str = "utf-8",
        delimiter: str | None = None,
        column_names: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.path = path
        self.object_storage_conn_id = object_storage_conn_id
        self.file_format = file_format
        self.compression = compression
        self.encoding = encoding
        self.delimiter = delimiter
        self.column_names = column_names

    @contextmanager
    def source(self, context: Context) -> Iterator[Source]:
        """The file's rows."""
        from airflow_provider_mail._task.object_storage import storage_path
        from airflow_provider_mail.warehouse.read_files import file_rows

        if not str(self.path):
            raise AirflowFailException("path: is empty")
        path = storage_path(self.path, self.object_storage_conn_id, "path")
        form = self._form(path.name)
        try:
            file = path.fs.open(path.path, "rb")
        except FileNotFoundError:
            # Without the traceback through the file system; a file may yet come, so the task is retried.
            raise FileNotFoundError(f"path: {str(path)!r} does not exist") from None
        with file, file_rows(file, f"path: {str(path)!r}", form) as rows:
            # A file of no JSON lines has no names, and says so by having no row.
            columns = rows.columns or list(self.columns or PROPERTIES.values())
            yield Source(columns, rows.batches, rows.total)

    def _form(self, name: str) -> FileForm:
        """How the file is read: what the arguments say, and where they don't what its name says."""
        from airflow_provider_mail.warehouse.read_files import COMPRESSIONS, FORMATS, FileForm, form_of

        told_format, told_compression, told_delimiter = form_of(name)
        file_format = self.file_format or told_format
        compression = self.compression or told_compression or "none"
        if file_format is None:
            raise AirflowFailException(f"file_format: the ending of {name!r} does not tell; {', '.join(FORMATS)}?")
        for argument, value, known in (
            ("file_format", file_format, FORMATS),
            ("compression", compression, (*COMPRESSIONS.values(), "none")),
        ):
            if value not in known:
                raise AirflowFailException(f"{argument}: {value!r} is none of {', '.join(known)}")
        try:
            "".encode(self.encoding)
        except LookupError as error:
            raise AirflowFailException(f"encoding: {error}") from None
        delimiter = self.delimiter or told_delimiter
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
