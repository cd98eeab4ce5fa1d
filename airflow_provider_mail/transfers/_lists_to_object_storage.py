"""Transfers of lists to files, published in :mod:`airflow_provider_mail.transfers.mail_to_object_storage`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.mixin import MailTaskMixin, Templated
from airflow_provider_mail.lineage import Folder, MailLineage
from airflow_provider_mail.transfers._loading import OnUnstorable
from airflow_provider_mail.transfers._reading import (
    READINGS,
    BaseCampaignReader,
    BaseContactReader,
    BaseListReader,
    OnChange,
)
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from typing import Unpack

    from airflow.sdk import Context, ObjectStoragePath

    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail._task.rejects import UnstorableRecords
    from airflow_provider_mail.warehouse.manifest import Manifest
    from airflow_provider_mail.warehouse.table import Table

PUBLISHED_IN = "airflow_provider_mail.transfers.mail_to_object_storage"
"""The public module, whose name Airflow stores with the task."""

FileFormat: TypeAlias = Literal["parquet", "jsonl"]
"""The formats of files."""


class BaseFilesOperator(MailLineage, MailTaskMixin, BaseOperator):
    """Base class of the transfers to files: the target folder and the format."""

    ui_color = "#e6f1f2"

    path: str | ObjectStoragePath
    object_storage_conn_id: str | None
    file_format: FileFormat
    on_unstorable: OnUnstorable
    rejects_path: str | None

    @cached_property
    def unstorable(self) -> UnstorableRecords:
        """Handles records that cannot be stored."""
        from airflow_provider_mail._task.rejects import UnstorableRecords

        return UnstorableRecords(None, self.on_unstorable == "reject", None, self.rejects_path, None)

    def keep_rejects(self, context: Context) -> dict[str, int]:
        """Store the rejects, and report them to metrics; return the number of rejects for XCom."""
        from airflow_provider_mail._metrics import RECORDS_REJECTED, emit, task_tags

        rejected = self.unstorable.keep(context, self.log)
        emit({RECORDS_REJECTED: rejected.get("rejected", 0)}, task_tags(self))
        return rejected

    def folder(self) -> ObjectStoragePath:
        """Check the path and the format, and return the folder.

        :raises AirflowFailException: naming the argument that is wrong.
        """
        from airflow_provider_mail._task.files import storage_path
        from airflow_provider_mail.warehouse.errors import WarehouseError
        from airflow_provider_mail.warehouse.files import check_format

        if self.on_unstorable == "fail" and self.rejects_path:
            raise AirflowFailException("rejects_path: needs on_unstorable='reject'")
        try:
            check_format(self.file_format)
        except WarehouseError as error:
            raise AirflowFailException(str(error)) from error
        return storage_path(self.path, self.object_storage_conn_id, "path")

    def load_result(self, folder: ObjectStoragePath, manifest: Manifest, resource: str) -> dict[str, Any]:
        """Log a written load, record it for lineage, and return it for XCom.

        :param resource: the resource that was read, for lineage.
        """
        from airflow_provider_mail.warehouse.manifest import MANIFEST

        self.log.info("%s records in %s files in %s", manifest.rows, len(manifest.files), folder)
        size = sum(file.size for file in manifest.files)
        self.moved(
            resource,
            Folder(folder),
            table=manifest.table,
            rows=manifest.rows,
            size=size,
            files=len(manifest.files),
        )
        return {
            "path": str(folder),
            "manifest": str(folder / MANIFEST),
            "load_id": manifest.load_id,
            "records": manifest.rows,
            "files": len(manifest.files),
        }


class BaseListToObjectStorageOperator(BaseListReader, BaseFilesOperator):
    """Write a whole list as files, in constant memory."""

    rows_per_file: int

    @property
    @abstractmethod
    def resource(self) -> str:
        """The resource that is read, for lineage."""

    @abstractmethod
    def declared_table(self) -> Table:
        """Return the table whose columns the files have."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Read the list and write it."""
        from airflow_provider_mail.api.errors import MailIncompleteError

        folder = self.folder()
        self.readings = 0
        with self.mail_errors():
            for attempt in range(1, READINGS + 1):
                try:
                    written, manifest = self._write(context, folder)
                    break
                except MailIncompleteError as error:
                    self.read_again(error, attempt)
        result = self.load_result(written, manifest, self.resource)
        return {**result, "readings": self.readings, **self.keep_rejects(context)}

    def _write(self, context: Context, folder: ObjectStoragePath) -> tuple[ObjectStoragePath, Manifest]:
        from airflow_provider_mail._task.files import conditions, write_load

        with self.reading(context) as reading:
            observation = reading.observation
            mark_gone, replaced = self.mark_gone(observation.at), self.replace_where()
            # Merging the load may delete or mark rows, and cannot read the list a second time: read it twice now.
            read_again = reading.again if mark_gone or replaced else tuple

            def rows() -> Iterator[tuple[Any, ...]]:
                yield from reading.rows
                yield from read_again()

            return write_load(
                folder,
                self.declared_table(),
                rows(),
                file_format=self.file_format,
                rows_per_file=self.rows_per_file,
                on_unstorable=self.unstorable.begin(),
                describe=lambda: {
                    "mail_conn_id": self.mail_conn_id,
                    "observed_at": observation.at,
                    **conditions(self.covers(observation.at), mark_gone, replaced),
                },
            )


class MailContactsToObjectStorageOperator(BaseContactReader, BaseListToObjectStorageOperator):
    """Write the contacts of a list as files, with all properties, and a manifest. The files contain personal data.

    Each load has a folder of its own below ``path``, ``<load_id>/part-00000.parquet`` and so on, which never changes.
    Its ``manifest.json`` is written last: a load without it is incomplete. Older loads stay until you, or a lifecycle
    rule of the storage, deletes them.

    Columns and completeness are those of ``MailContactsToSqlOperator``. The list is read twice, unless it may not be
    complete (``on_change="accept"``): merging the load deletes only what both readings lack.

    Returns ``path`` (the folder of the load), ``manifest`` (its path), ``load_id``, ``records``, ``files`` and
    ``readings`` (the number of times that the list was read); with ``on_unstorable="reject"`` also ``rejected``. Never
    rows or addresses.

    .. seealso::
        For more information on how to use this operator, see the guide
        :ref:`howto/operator:MailContactsToObjectStorageOperator`
        (in the package: ``airflow_provider_mail/docs/object-storage.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param list_name: the name of the list. (templated)
    :param team_name: the team that owns the list; other teams need a permission. Default: the current team. (templated)
    :param path: the folder in which each load gets a folder, as a path or URL of ``ObjectStoragePath``:
        ``s3://bucket/mail/contacts``, ``file:///data/mail``. (templated)
    :param object_storage_conn_id: the connection to the storage; can also be part of the path:
        ``s3://aws@bucket/mail``. Default: that of the path. (templated)
    :param file_format: ``parquet`` (needs the extra ``parquet``) or ``jsonl``. Default: ``parquet``.
    :param allow_empty: write a load of an empty list, which deletes the list's rows when it is merged. If false, the
        task fails. Default: false.
    :param rows_per_file: the largest number of contacts in a file, which are in memory at the same time. Default:
        20,000.
    :param page_size: records in a page, at most 1,000; a service that returns fewer is supported. Default: 1,000.
    :param max_in_flight: pages that are requested concurrently; the connection's own limit also applies. Default: 8.
    :param on_change: what to do when the list changes while it is read. ``retry``: accept a list that only grows after
        it is read twice, which proves that nothing was missed; otherwise start again, up to three times in total, then
        fail. ``fail``: fail at once. ``accept``: write the returned records if there are at least as many distinct
        records as the lowest total that the service reported, otherwise read the list again; such a load is not
        complete, and deletes nothing when it is merged. Default: ``retry``.
    :param on_unstorable: what to do with a record that a file cannot hold or that is invalid (an unsupported character,
        a number out of range, a negative count, a missing identifier): ``fail``, naming record, column and cause; or
        ``reject`` the record, count it as ``rejected``, up to 1,000, and write the others. Merging a load that
        rejected records deletes nothing and marks nothing as gone. Default:
        ``fail``.
    :param rejects_path: the file in which rejected records are stored as JSON Lines, as a path or URL of
        ``ObjectStoragePath``. It may contain personal data. Default: none. (templated)
    """

    template_fields = ("mail_conn_id", "list_name", "team_name", "path", "object_storage_conn_id", "rejects_path")
    __module__ = PUBLISHED_IN

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        list_name: Templated[str],
        team_name: Templated[str] | None = None,
        path: Templated[ObjectStoragePath],
        object_storage_conn_id: Templated[str] | None = None,
        file_format: FileFormat = "parquet",
        allow_empty: bool = False,
        rows_per_file: int = 20_000,
        page_size: int = 1000,
        max_in_flight: int = 8,
        on_change: OnChange = "retry",
        on_unstorable: OnUnstorable = "fail",
        rejects_path: Templated[str] | None = None,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(
            mail_conn_id=mail_conn_id, list_name=list_name, team_name=team_name, path=path,
            object_storage_conn_id=object_storage_conn_id, file_format=file_format, allow_empty=allow_empty,
            rows_per_file=rows_per_file, page_size=page_size, max_in_flight=max_in_flight, on_change=on_change,
            on_unstorable=on_unstorable, rejects_path=rejects_path,
        )  # fmt: skip

    def replace_where(self) -> Mapping[str, Any] | None:
        # The rows of this list, unless some may be missing.
        return None if self.on_change == "accept" else self.list_key

    def check_empty(self) -> None:
        super().check_empty()
        if not self.allow_empty:
            raise AirflowFailException(
                f"list_name: list {self.list_name!r} is empty; allow_empty=True writes a load without rows, which "
                "deletes the list's rows when it is merged"
            )

    def execute(self, context: Context) -> dict[str, Any]:
        """Read the list and write it."""
        return {"list_name": self.list_name, **super().execute(context)}


class MailCampaignsToObjectStorageOperator(BaseCampaignReader, BaseListToObjectStorageOperator):
    """Write the campaigns as files: one row per campaign in any state, without its content, and a manifest.

    Each load has a folder of its own below ``path``, ``<load_id>/part-00000.parquet`` and so on, which never changes.
    Its ``manifest.json`` is written last: a load without it is incomplete. Older loads stay until you, or a lifecycle
    rule of the storage, deletes them.

    Columns and completeness are those of ``MailCampaignsToSqlOperator``, as are the rows that are marked with
    ``gone_at`` when the load is merged. A load that may mark rows reads the campaigns twice.

    Returns ``path`` (the folder of the load), ``manifest`` (its path), ``load_id``, ``records``, ``files`` and
    ``readings`` (the number of times that the list was read); with ``on_unstorable="reject"`` also ``rejected``.

    .. seealso::
        For more information on how to use this operator, see the guide
        :ref:`howto/operator:MailCampaignsToObjectStorageOperator`
        (in the package: ``airflow_provider_mail/docs/object-storage.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param path: the folder in which each load gets a folder, as a path or URL of ``ObjectStoragePath``:
        ``s3://bucket/mail/tasks``, ``file:///data/mail``. (templated)
    :param object_storage_conn_id: the connection to the storage; can also be part of the path:
        ``s3://aws@bucket/mail``. Default: that of the path. (templated)
    :param file_format: ``parquet`` (needs the extra ``parquet``) or ``jsonl``. Default: ``parquet``.
    :param mail_name: write only campaigns whose name contains this. Default: all. (templated)
    :param subject: write only campaigns whose subject contains this. Default: all. (templated)
    :param sender_mail: write only campaigns of this sender. Default: all. (templated)
    :param type: write only campaigns of this type, ``MailList`` (ordinary) or ``ABTest``. Default: both. (templated)
    :param mail_status: write only campaigns in these states: -1 draft, 1 sending, 2 sent, 4 failed. Default: all.
        (templated)
    :param all_team: write the campaigns of all teams; needs a permission. Default: false.
    :param rows_per_file: the largest number of campaigns in a file, which are in memory at the same time. Default:
        20,000.
    :param page_size: records in a page, at most 1,000; a service that returns fewer is supported. Default: 100, since
        each campaign is returned with its whole content.
    :param max_in_flight: pages that are requested concurrently; the connection's own limit also applies. Default: 2.
    :param on_change: what to do when the list changes while it is read. ``retry``: accept a list that only grows after
        it is read twice, which proves that nothing was missed; otherwise start again, up to three times in total, then
        fail. ``fail``: fail at once. ``accept``: write the returned records if there are at least as many distinct
        records as the lowest total that the service reported, otherwise read the list again; such a load is not
        complete, and marks nothing as gone when it is merged. Default: ``retry``.
    :param on_unstorable: what to do with a record that a file cannot hold or that is invalid (an unsupported character,
        a number out of range, a negative count, a missing identifier): ``fail``, naming record, column and cause; or
        ``reject`` the record, count it as ``rejected``, up to 1,000, and write the others. Merging a load that
        rejected records deletes nothing and marks nothing as gone. Default:
        ``fail``.
    :param rejects_path: the file in which rejected records are stored as JSON Lines, as a path or URL of
        ``ObjectStoragePath``. It may contain personal data. Default: none. (templated)
    """

    template_fields = (
        "mail_conn_id", "path", "object_storage_conn_id", "mail_name", "subject", "sender_mail", "type", "mail_status",
        "rejects_path",
    )  # fmt: skip
    __module__ = PUBLISHED_IN
    resource = "campaigns"

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        path: Templated[ObjectStoragePath],
        object_storage_conn_id: Templated[str] | None = None,
        file_format: FileFormat = "parquet",
        mail_name: Templated[str] | None = None,
        subject: Templated[str] | None = None,
        sender_mail: Templated[str] | None = None,
        type: Templated[Literal["MailList", "ABTest"]] | None = None,
        mail_status: Templated[Sequence[Templated[int]]] | None = None,
        all_team: bool = False,
        rows_per_file: int = 20_000,
        page_size: int = 100,
        max_in_flight: int = 2,
        on_change: OnChange = "retry",
        on_unstorable: OnUnstorable = "fail",
        rejects_path: Templated[str] | None = None,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(
            mail_conn_id=mail_conn_id, path=path, object_storage_conn_id=object_storage_conn_id,
            file_format=file_format, mail_name=mail_name, subject=subject, sender_mail=sender_mail, type=type,
            mail_status=mail_status, all_team=all_team, rows_per_file=rows_per_file, page_size=page_size,
            max_in_flight=max_in_flight, on_change=on_change, on_unstorable=on_unstorable, rejects_path=rejects_path,
        )  # fmt: skip
