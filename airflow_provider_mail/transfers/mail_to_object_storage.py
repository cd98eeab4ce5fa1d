"""Transfers from the service to files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import compress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack
from urllib.parse import quote

from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail.lineage import Folder
from airflow_provider_mail.transfers._base import (
    BaseCampaignReader,
    BaseContactReader,
    BaseListReader,
    BaseTransferOperator,
    CampaignStatus,
    OnChange,
    RemovesRows,
)
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context, ObjectStoragePath

    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail.arguments import Rejects
    from airflow_provider_mail.transfers._base import Reading
    from airflow_provider_mail.warehouse.errors import UnstorableError
    from airflow_provider_mail.warehouse.table import Table

__all__ = [
    "MailCampaignsToObjectStorageOperator",
    "MailContactsToObjectStorageOperator",
    "MailStatsToObjectStorageOperator",
]

Kind: TypeAlias = Literal["campaigns", "transactional"]
Row = tuple[Any, ...]

FileFormat: TypeAlias = Literal["parquet", "jsonl"]
"""The formats of files."""


class BaseFilesOperator(BaseTransferOperator):
    """Base class of the transfers to files: the target folder and the format."""

    path: str | ObjectStoragePath
    object_storage_conn_id: str | None
    file_format: FileFormat

    def folder(self) -> ObjectStoragePath:
        """Check the path and the format, and return the folder.

        :raises AirflowFailException: naming the argument that is wrong.
        """
        from airflow_provider_mail._task.storage import storage_path
        from airflow_provider_mail.warehouse.errors import WarehouseError
        from airflow_provider_mail.warehouse.files import check_format

        if self.rejects is not None and self.rejects.table and self.rejects.sql_conn_id is None:
            raise AirflowFailException("rejects: table needs Rejects(sql_conn_id=...): the connection of the database")
        try:
            check_format(self.file_format)
        except WarehouseError as error:
            raise AirflowFailException(str(error)) from error
        return storage_path(self.path, self.object_storage_conn_id, "path")


class BaseListToObjectStorageOperator(BaseListReader, BaseFilesOperator):
    """Write a whole list as files, in constant memory."""

    rows_per_file: int

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_mail._task.storage import write_load

        parent = self.folder()
        written = self.read_completely(
            context,
            lambda reading: write_load(
                parent,
                self.declared_table(),
                self._judged(parent, reading),
                file_format=self.file_format,
                rows_per_file=self.rows_per_file,
                on_unstorable=self.unstorable.begin(),
            ),
        )
        self.log.info("%s records in %s files in %s", written.rows, written.files, written.folder)
        self.moved(
            self.resource,
            Folder(written.folder),
            table=self.declared_table(),
            rows=written.rows,
            size=written.size,
            files=written.files,
        )
        return {
            "path": str(written.folder),
            "records": written.rows,
            "files": written.files,
            "readings": self.readings,
            **self.keep_rejects(context, written.rows),
        }

    def _judged(self, parent: ObjectStoragePath, reading: Reading) -> Iterator[Row]:
        """Yield the rows of a reading, which is judged like that of a table, beside the last load in the folder.

        :raises MailIncompleteError: the service still has some of the rows that two readings lack.
        :raises UnconfirmedError: they lack too many.
        """
        from airflow_provider_mail._task.storage import last_load
        from airflow_provider_mail.api._core.pagination import SAMPLE

        count = 0
        for row in reading.rows:
            count += 1
            yield row
        # As for a table: a part of the list, or of the campaigns, does not show what is gone.
        if not (conditions := self.conditions(reading.observation.at)):
            return
        table = self.declared_table()
        windows = conditions["mark_gone"].windows() if "mark_gone" in conditions else [conditions["replace_where"]]
        where = conditions.get("replace_where", {})
        key, columns = table.names.index(table.key[-1]), [table.names.index(name) for name in self.looked_up_by]

        def lacking() -> tuple[int, int, list[Row]]:
            stored, lacked = 0, 0
            sample: list[Row] = []
            for load in last_load(parent, table, {"mail_conn_id": self.mail_conn_id, **where}):
                rows = [row for row in load if any(_has(table, row, window) for window in windows)]
                stored += len(rows)
                for row in compress(rows, reading.missing(row[key] for row in rows)):
                    lacked += 1
                    sample += [tuple(row[column] for column in columns)] if len(sample) < SAMPLE else []
            return stored, lacked, sample

        stored, lacked, sample = lacking()
        if lacked:
            for row in reading.again():
                count += 1
                yield row
            stored, lacked, sample = lacking()
        if lacked:
            self.look_up(sample)
            self.removal_rule().check(stored, count, f"path: {parent}: ")


def _has(table: Table, row: Row, where: Mapping[str, Any]) -> bool:
    return all(row[table.names.index(name)] == value for name, value in where.items())


class MailContactsToObjectStorageOperator(BaseContactReader, BaseListToObjectStorageOperator):
    """Write the contacts of a list as files, with all properties. The files contain personal data.

    Each load has a folder of its own below ``path``, ``<load_id>/part-00000.parquet`` and so on, which never changes.
    An empty file ``_SUCCESS`` is written last: a folder without it is incomplete. Older loads stay until you, or a
    lifecycle rule of the storage, deletes them.

    Columns and completeness are those of ``MailContactsToSqlOperator``.

    Returns ``list_name``, ``path`` (the folder of the load), ``records``, ``files`` and ``readings`` (the number of
    times that the list was read); with ``rejects`` also ``rejected``. Never rows or addresses.

    .. seealso:: the guide :ref:`howto/operator:MailContactsToObjectStorageOperator`
        (in the package: ``airflow_provider_mail/docs/object-storage.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param list_name: the name of the list. (templated)
    :param team_name: the team that owns the list; other teams need a permission. Default: the current team. (templated)
    :param path: the folder in which each load gets a folder, as a path or URL of ``ObjectStoragePath``:
        ``s3://bucket/mail/contacts``, ``file:///data/mail``. (templated)
    :param object_storage_conn_id: the connection to the storage; can also be part of the path:
        ``s3://aws@bucket/mail``. Default: that of the path. (templated)
    :param file_format: ``parquet`` (needs the extra ``parquet``) or ``jsonl``. Default: ``parquet``.
    :param allow_empty: write a load without files for an empty list. If false, the task fails. Default: false.
    :param max_removed_fraction: the largest share of the contacts of the last load in ``path``, from 0 to 1, that this
        load may lack, net of added ones; not applied below ten. A load that lacks any reads the list a second time.
        Default: 0.1; and unless the list is dynamic, the task fails if the service still has one of up to twenty of
        these contacts.
    :param rows_per_file: the largest number of contacts in a file, which are in memory at the same time. Default:
        20,000.
    :param page_size: records in a page, at most 1,000; a service that returns fewer is supported. Default: 1,000.
    :param max_in_flight: pages that are requested concurrently; the connection's own limit also applies. Default: 8.
    :param on_change: what to do when the list changes while it is read. ``retry``: accept a list that only grows after
        it is read twice, which proves that nothing was missed; otherwise start again, up to three times in total, then
        fail. ``fail``: fail at once. ``accept``: write the returned records if there are at least as many distinct
        records as the lowest total that the service reported, otherwise read the list again; such a load may not be
        complete. Default: ``retry``.
    :param rejects: what to do with records that a file cannot hold or that are invalid (an unsupported character, a
        whole number in place of a time), see :class:`~airflow_provider_mail.arguments.Rejects`: they are rejected and
        the others written. Default: such a record fails the task. (templated)
    """

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
        max_removed_fraction: float | None = None,
        rows_per_file: int = 20_000,
        page_size: int = 1000,
        max_in_flight: int = 8,
        on_change: OnChange = "retry",
        rejects: Templated[Rejects] | None = None,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    def check_empty(self) -> None:
        super().check_empty()
        if not self.allow_empty:
            raise AirflowFailException(
                f"list_name: list {self.list_name!r} is empty; allow_empty=True writes a load without files"
            )

    def execute(self, context: Context) -> dict[str, Any]:
        return {"list_name": self.list_name, **super().execute(context)}


class MailCampaignsToObjectStorageOperator(BaseCampaignReader, BaseListToObjectStorageOperator):
    """Write the campaigns as files: one row per campaign in any state, without its content.

    Each load has a folder of its own below ``path``, ``<load_id>/part-00000.parquet`` and so on, which never changes.
    An empty file ``_SUCCESS`` is written last: a folder without it is incomplete. Older loads stay until you, or a
    lifecycle rule of the storage, deletes them.

    Columns and completeness are those of ``MailCampaignsToSqlOperator``; ``gone_at`` is always empty, since a load has
    only campaigns that exist.

    Returns ``path`` (the folder of the load), ``records``, ``files`` and ``readings`` (the number of times that the
    list was read); with ``rejects`` also ``rejected``.

    .. seealso:: the guide :ref:`howto/operator:MailCampaignsToObjectStorageOperator`
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
    :param mail_status: write only campaigns in these states: ``draft``, ``sending``, ``complete``, ``failed``.
        Default: all. (templated)
    :param all_team: write the campaigns of all teams; needs a permission. Default: false.
    :param allow_empty: let a load without any campaign follow one that has some. If false, the task fails. Not applied
        with a filter. Default: false.
    :param max_removed_fraction: the largest share of the campaigns of the last load in ``path``, from 0 to 1, that this
        load may lack, net of added ones; not applied below ten. A load that lacks any reads the campaigns a second
        time, and fails if the service finds one of up to twenty of them by its name. Default: 0.1.
    :param rows_per_file: the largest number of campaigns in a file, which are in memory at the same time. Default:
        20,000.
    :param page_size: records in a page, at most 1,000; a service that returns fewer is supported. Default: 100, since
        each campaign is returned with its whole content.
    :param max_in_flight: pages that are requested concurrently; the connection's own limit also applies. Default: 2.
    :param on_change: what to do when the list changes while it is read. ``retry``: accept a list that only grows after
        it is read twice, which proves that nothing was missed; otherwise start again, up to three times in total, then
        fail. ``fail``: fail at once. ``accept``: write the returned records if there are at least as many distinct
        records as the lowest total that the service reported, otherwise read the list again; such a load may not be
        complete. Default: ``retry``.
    :param rejects: what to do with records that a file cannot hold or that are invalid (an unsupported character, a
        whole number in place of a time), see :class:`~airflow_provider_mail.arguments.Rejects`: they are rejected and
        the others written. Default: such a record fails the task. (templated)
    """

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
        mail_status: Templated[Sequence[Templated[CampaignStatus]]] | None = None,
        all_team: bool = False,
        allow_empty: bool = False,
        max_removed_fraction: float | None = None,
        rows_per_file: int = 20_000,
        page_size: int = 100,
        max_in_flight: int = 2,
        on_change: OnChange = "retry",
        rejects: Templated[Rejects] | None = None,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())


class MailStatsToObjectStorageOperator(RemovesRows, BaseFilesOperator):
    """Write statistics as files, one folder per day: ``<path>/mail_send_day=2026-03-10/<mail_conn_id>.parquet``.

    Columns and window are those of ``MailCampaignStatsToSqlOperator`` and ``MailTransactionalStatsToSqlOperator``. A
    file holds one day of one account and is replaced as a whole by the next run; files of other days and of other
    connections in the same folder are kept. A concurrent reader never sees a partial file.

    Each day is read twice, and its file has the campaigns of both responses. If both report that no campaign was sent
    on a day, the file of that day is removed. A day of transactional mail that is missing in the service's response
    keeps its file: missing is not zero.

    Returns ``path``, ``start_day``, ``end_day``, ``records``, ``files`` (written), ``removed`` (files) and
    ``missing_days`` (of transactional mail); with ``rejects`` also ``rejected``.

    .. seealso:: the guide :ref:`howto/operator:MailStatsToObjectStorageOperator`
        (in the package: ``airflow_provider_mail/docs/object-storage.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param kind: ``campaigns`` (one row per campaign, in folders ``mail_send_day=...``) or ``transactional`` (one row
        per day, in folders ``stats_day=...``). Default: ``campaigns``.
    :param path: the folder, as a path or URL of ``ObjectStoragePath``: ``s3://bucket/mail/campaigns``,
        ``file:///data/mail``. (templated)
    :param object_storage_conn_id: the connection to the storage; can also be part of the path:
        ``s3://aws@bucket/mail``. Default: that of the path. (templated)
    :param file_format: ``parquet`` (needs the extra ``parquet``) or ``jsonl``. Default: ``parquet``.
    :param start_day: the first day of the window, ``YYYY-MM-DD`` in UTC. Default: ``lookback_days`` before the first
        day of the run's data interval. (templated)
    :param end_day: the last day of the window, included. Default: the last day of the run's data interval. (templated)
    :param lookback_days: days before the data interval that are written again; not applied to a given ``start_day``.
        Default: 7.
    :param allow_empty: let a window without any campaign remove all files of the window, and let a number of sent mails
        fall to zero. If false, the task fails and the files stay. Default: false.
    :param max_removed_fraction: the largest share of the window's files, and of the campaigns in a file, from 0 to 1,
        that one load may remove; not applied below ten. A campaign that the service still finds by its name is never
        removed: the task fails. Default: 0.1.
    :param rejects: what to do with records that a file cannot hold or that are invalid (an unsupported character, a
        whole number in place of a time), see :class:`~airflow_provider_mail.arguments.Rejects`: they are rejected and
        the others written. Default: such a record fails the task. (templated)
    """

    kind: Kind
    start_day: str | None
    end_day: str | None
    lookback_days: int

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        kind: Kind = "campaigns",
        path: Templated[ObjectStoragePath],
        object_storage_conn_id: Templated[str] | None = None,
        file_format: FileFormat = "parquet",
        start_day: Templated[str] | None = None,
        end_day: Templated[str] | None = None,
        lookback_days: int = 7,
        allow_empty: bool = False,
        max_removed_fraction: float | None = None,
        rejects: Templated[Rejects] | None = None,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_mail._task.statistics import window

        folder = self.folder()
        start_day, end_day = window(context, self.start_day, self.end_day, self.lookback_days)
        written = self._write_days(folder, start_day, end_day)
        return {**written, **self.keep_rejects(context, written["records"])}

    @property
    def resource(self) -> str:
        return f"{self.kind}/stats"

    def declared_table(self) -> Table:
        from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_STATS, TRANSACTIONAL_STATS

        return CAMPAIGN_STATS if self.kind == "campaigns" else TRANSACTIONAL_STATS

    def _write_days(self, folder: ObjectStoragePath, start_day: date, end_day: date) -> dict[str, Any]:
        from airflow_provider_mail._task.storage import current_task_run, put, remove
        from airflow_provider_mail.warehouse.files import encode
        from airflow_provider_mail.warehouse.rows import Source

        table = self.declared_table()
        emptied: list[ObjectStoragePath] = []
        on_unstorable, self.unstorable.consequence = self.unstorable.begin(), ""
        stamp = current_task_run().values(table, datetime.now(UTC))
        counts = {"records": 0, "files": 0, "removed": 0, "missing_days": 0, "bytes": 0}
        with self.mail_errors():
            for day, rows in self._days(start_day, end_day):
                file = self._file(folder, day)
                if rows is None:
                    counts["missing_days"] += 1
                    continue
                before = self._rows_before(file)
                self._check_day(day, before, rows, file)
                if not rows:
                    emptied += [file] if before else []
                    continue
                rejected: set[str] = set()

                def reject(row: Sequence[Any], error: UnstorableError, rejected: set[str] = rejected) -> None:
                    assert on_unstorable
                    rejected.add(str(row[self._key]))
                    on_unstorable(row, error)

                stored = [*Source(rows, reject if on_unstorable else None).stored(table)]
                # A rejected record confirms nothing: what the file has of it stays.
                stored += [row for row in before if str(row[self._key]) in rejected]
                if stored:
                    content = encode(table, stored, self.file_format, written=stamp)
                    put(file, content)
                    counts["records"] += len(stored)
                    counts["files"] += 1
                    counts["bytes"] += len(content)
            self.removal_rule().check(
                counts["files"] + len(emptied), counts["files"], f"path: {folder}: ", "files", is_looked_up=True
            )
            for file in emptied:
                counts["removed"] += remove(file)
        self.log.info("%s to %s in %s: %s", start_day, end_day, folder, counts)
        size, files = counts.pop("bytes"), counts["files"]
        self.moved(self.resource, Folder(folder), table=table, rows=counts["records"], size=size, files=files)
        return {"path": str(folder), "start_day": start_day.isoformat(), "end_day": end_day.isoformat(), **counts}

    @property
    def _key(self) -> int:
        """The place of what tells the rows of a file apart."""
        table = self.declared_table()
        return table.names.index(table.key[-1])

    def _rows_before(self, file: ObjectStoragePath) -> list[Row]:
        """The rows that the file has; none if it does not exist, or is not a file of this table."""
        from airflow_provider_mail.warehouse.files import decode

        if not file.exists():
            return []
        try:
            return decode(self.declared_table(), file.read_bytes(), self.file_format)
        except (ValueError, AttributeError):  # of pyarrow and JSON
            self.log.warning("%s is not a file of this table: it is replaced", file)
            return []

    def _check_day(self, day: date, before: Sequence[Row], rows: Sequence[Row], file: ObjectStoragePath) -> None:
        """Check what a file would lose: campaigns that two readings lack, and numbers of sent mails that fall to zero.

        :raises MailIncompleteError: the service finds one of the campaigns by its name.
        :raises UnconfirmedError: too many would be removed, or become zero.
        """
        from airflow_provider_mail.api.campaigns import GetCampaignStats
        from airflow_provider_mail.api.flows.second_source import existing_of

        columns = self.declared_table().names
        names = {row[self._key] for row in rows}
        lacking = {row[self._key] for row in before} - names
        at = columns.index("mail_send_date") if "mail_send_date" in columns else self._key
        if lacking and self.kind == "campaigns":
            request, margin = GetCampaignStats(start_date=day, end_date=day), timedelta(days=1)
            sent_at = {row[self._key]: row[at] for row in before}
            # The day is one of the service, whose time zone is not known.
            existing_of(self.hook.get_conn(), request, len(rows), lacking, day - margin, day + margin, sent_at)
        if lacking and rows:
            self.removal_rule().check(len(before), len(names), f"{file}: ", is_looked_up=True)
        # A name may be used again: a campaign is that of a name and a send time.
        sent_mails = columns.index("sent_count")
        sent = {(row[self._key], row[at]) for row in before if row[sent_mails]}
        fallen = sum((row[self._key], row[at]) in sent and not row[sent_mails] for row in rows)
        self.removal_rule().check_sent(fallen, f"{file}: ")

    def _file(self, folder: ObjectStoragePath, day: date) -> ObjectStoragePath:
        # Not the name of a column: loaders that derive a column from the folder reject one that is also in the file,
        # and a file must be complete without its folder.
        partition = {"campaigns": "mail_send_day", "transactional": "stats_day"}[self.kind]
        # Without the team, which is in the rows: otherwise the old file would stay when the connection's team changes.
        return folder / f"{partition}={day}" / f"{quote(self.mail_conn_id, safe='')}.{self.file_format}"

    def _days(self, start_day: date, end_day: date) -> Iterator[tuple[date, list[Row] | None]]:
        """Yield each day with its rows; ``None`` if the day is missing in the response."""
        from airflow_provider_mail._task.statistics import Observation, read_campaign_stats, read_transactional_stats
        from airflow_provider_mail.api.flows.statistics import calendar

        if self.kind == "campaigns":
            # Day by day, so that a partition is the service's response for that day: the specification does not show in
            # which time zone its days begin, and sorting by send time could split them.
            for day in calendar(start_day, end_day):
                campaigns = read_campaign_stats(self.hook, Observation(self.hook), day, day)
                assert campaigns.read_again
                # Two readings, because the file is replaced: a campaign is left out only if both responses lack it.
                yield day, [*campaigns.rows(), *campaigns.read_again()]
            return
        statistics = read_transactional_stats(self.hook, Observation(self.hook), start_day, end_day)
        day_column = statistics.table.names.index("stats_date")
        for row in statistics.rows():
            yield row[day_column], [row]
        for day in statistics.missing_days:
            self.log.warning("The response leaves out %s, whose file is kept.", day)
            yield day, None
