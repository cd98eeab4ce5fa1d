"""Transfers from the service to files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import quote

from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail.lineage import Folder
from airflow_provider_mail.transfers._lists_to_object_storage import (
    BaseFilesOperator,
    FileFormat,
    MailCampaignsToObjectStorageOperator,
    MailContactsToObjectStorageOperator,
)
from airflow_provider_mail.transfers._loading import MAX_REMOVED_FRACTION, OnUnstorable, RemovesRows

if TYPE_CHECKING:
    from typing import Unpack

    from airflow.sdk import Context, ObjectStoragePath

    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail._task.statistics import Observation
    from airflow_provider_mail.warehouse.table import Table

__all__ = [
    "MailCampaignsToObjectStorageOperator",
    "MailContactsToObjectStorageOperator",
    "MailStatsToObjectStorageOperator",
]

Kind: TypeAlias = Literal["campaigns", "transactional"]
Layout: TypeAlias = Literal["days", "load"]
Row = tuple[Any, ...]
Days = Iterator[tuple[date, list[Row] | None]]
"""Each day with its rows; ``None`` if the day is missing in the response."""


class MailStatsToObjectStorageOperator(RemovesRows, BaseFilesOperator):
    """Write statistics as files, one folder per day: ``<path>/mail_send_day=2026-03-10/<mail_conn_id>.parquet``.

    Columns and window are those of ``MailCampaignStatsToSqlOperator`` and ``MailTransactionalStatsToSqlOperator``. A
    file holds one day of one account and is replaced as a whole by the next run; files of other days and of other
    connections in the same folder are kept. A concurrent reader never sees a partial file.

    Each day is read twice, and its file has the campaigns of both responses. If both report that no campaign was sent
    on a day, the file of that day is removed. A day of transactional mail that is missing in the service's response
    keeps its file: missing is not zero.

    Returns ``path``, ``start_day``, ``end_day``, ``records``, ``files`` (written), ``removed`` (files) and
    ``missing_days`` (of transactional mail); with ``on_unstorable="reject"`` also ``rejected``.

    With ``layout="load"``, each load has a folder of its own instead, ``<path>/<load_id>/part-00000.parquet`` and so
    on, which never changes. Its ``manifest.json`` is written last: a load without it is incomplete. The returned
    ``path`` is then the folder of the load; the result also has ``manifest`` (its path) and ``load_id``, and not
    ``removed``.

    .. seealso::
        For more information on how to use this operator, see the guide
        :ref:`howto/operator:MailStatsToObjectStorageOperator`
        (in the package: ``airflow_provider_mail/docs/object-storage.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param kind: ``campaigns`` (one row per campaign, in folders ``mail_send_day=...``) or ``transactional`` (one row
        per day, in folders ``stats_day=...``). Default: ``campaigns``.
    :param path: the folder, as a path or URL of ``ObjectStoragePath``: ``s3://bucket/mail/campaigns``,
        ``file:///data/mail``. (templated)
    :param object_storage_conn_id: the connection to the storage; can also be part of the path:
        ``s3://aws@bucket/mail``. Default: that of the path. (templated)
    :param file_format: ``parquet`` (needs the extra ``parquet``) or ``jsonl``. Default: ``parquet``.
    :param layout: ``days``: a file per day and connection, which the next run replaces; ``load``: a folder per load,
        with a manifest, for a warehouse that loads files. Default: ``days``.
    :param start_day: the first day of the window, ``YYYY-MM-DD`` in UTC. Default: ``lookback_days`` before the first
        day of the run's data interval. (templated)
    :param end_day: the last day of the window, included. Default: the last day of the run's data interval. (templated)
    :param lookback_days: days before the data interval that are written again; not applied to a given ``start_day``.
        Default: 7.
    :param allow_empty: with ``layout="days"``, let a window without any campaign remove all files of the window. If
        false, the task fails and the files stay. Default: false.
    :param max_removed_fraction: with ``layout="days"``, the largest share of the window's files, from 0 to 1, that one
        load may remove; not applied below ten files. Default: 0.5.
    :param on_unstorable: what to do with a record that a file cannot hold or that is invalid (an unsupported character,
        a number out of range, a negative count, a missing identifier): ``fail``, naming record, column and cause; or
        ``reject`` the record, count it as ``rejected``, up to 1,000, and write the others. With ``layout="days"``, the
        record is missing in the file of its day; merging a load that rejected records deletes nothing and marks nothing
        as gone. Default: ``fail``.
    :param rejects_path: the file in which rejected records are stored as JSON Lines, as a path or URL of
        ``ObjectStoragePath``. It may contain personal data. Default: none. (templated)
    """

    template_fields = ("mail_conn_id", "path", "object_storage_conn_id", "start_day", "end_day", "rejects_path")
    kind: Kind
    layout: Layout
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
        layout: Layout = "days",
        start_day: Templated[str] | None = None,
        end_day: Templated[str] | None = None,
        lookback_days: int = 7,
        allow_empty: bool = False,
        max_removed_fraction: float = MAX_REMOVED_FRACTION,
        on_unstorable: OnUnstorable = "fail",
        rejects_path: Templated[str] | None = None,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(
            mail_conn_id=mail_conn_id, kind=kind, path=path, object_storage_conn_id=object_storage_conn_id,
            file_format=file_format, layout=layout, start_day=start_day, end_day=end_day, lookback_days=lookback_days,
            allow_empty=allow_empty, max_removed_fraction=max_removed_fraction, on_unstorable=on_unstorable,
            rejects_path=rejects_path,
        )  # fmt: skip

    def execute(self, context: Context) -> dict[str, Any]:
        """Write the window."""
        from airflow_provider_mail._task.statistics import window

        folder = self.folder()
        start_day, end_day = window(context, self.start_day, self.end_day, self.lookback_days)
        write = self._write_load if self.layout == "load" else self._write_days
        return {**write(folder, start_day, end_day), **self.keep_rejects(context)}

    @property
    def _resource(self) -> str:
        return "campaigns/stats" if self.kind == "campaigns" else "transactional/stats"

    def _write_load(self, parent: ObjectStoragePath, start_day: date, end_day: date) -> dict[str, Any]:
        from airflow_provider_mail._task.files import ROWS_PER_FILE, conditions, write_load
        from airflow_provider_mail._task.statistics import Observation, read_campaign_stats, read_transactional_stats

        read = read_campaign_stats if self.kind == "campaigns" else read_transactional_stats
        with self.mail_errors():
            observation = Observation(self.hook.get_conn())
            statistics = read(self.hook, observation, start_day, end_day)
            key = [statistics.table.names.index(name) for name in statistics.table.key]
            if statistics.mark_gone and statistics.read_again:
                # Merging the load may mark rows as gone, and cannot read a second time: read twice now.
                for _ in statistics.read_again():
                    pass
            # The last of several rows with the same key, as in a table.
            rows = {tuple(row[index] for index in key): row for row in statistics.rows()}
            folder, manifest = write_load(
                parent,
                statistics.table,
                rows.values(),
                file_format=self.file_format,
                rows_per_file=ROWS_PER_FILE,
                on_unstorable=self.unstorable.begin(),
                describe=lambda: {
                    "mail_conn_id": self.mail_conn_id,
                    "observed_at": observation.at,
                    "start_day": start_day,
                    "end_day": end_day,
                    **conditions(statistics.covers, statistics.mark_gone),
                },
            )
        result = self.load_result(folder, manifest, self._resource)
        days = {"start_day": start_day.isoformat(), "end_day": end_day.isoformat()}
        return {**result, **days, "missing_days": len(statistics.missing_days)}

    def _write_days(self, folder: ObjectStoragePath, start_day: date, end_day: date) -> dict[str, Any]:
        from airflow_provider_mail._task.files import put, remove
        from airflow_provider_mail.warehouse.files import encode_files
        from airflow_provider_mail.warehouse.rows import Source
        from airflow_provider_mail.warehouse.task_run import TaskRun

        read = self._campaigns if self.kind == "campaigns" else self._transactional
        table, days = read(start_day, end_day)
        emptied: list[ObjectStoragePath] = []
        on_unstorable, self.unstorable.consequence = self.unstorable.begin(), ""
        stamp = TaskRun.current().values(table, datetime.now(UTC))
        counts = {"records": 0, "files": 0, "removed": 0, "missing_days": 0, "bytes": 0}
        with self.mail_errors():
            for day, rows in days:
                file = self._file(folder, day)
                if rows:
                    source, size = Source(rows, on_unstorable), len(rows)
                    for stored, content in encode_files(
                        table, source, self.file_format, rows_per_file=size, written=stamp
                    ):
                        put(file, content)
                        counts["records"] += stored
                        counts["files"] += 1
                        counts["bytes"] += len(content)
                elif rows is None:
                    counts["missing_days"] += 1
                elif file.exists():
                    emptied.append(file)
            self.removal_rule().check(counts["files"] + len(emptied), counts["files"], f"path: {folder}: ", "files")
            for file in emptied:
                counts["removed"] += remove(file)
        self.log.info("%s to %s in %s: %s", start_day, end_day, folder, counts)
        size, files = counts.pop("bytes"), counts["files"]
        self.moved(self._resource, Folder(folder), table=table, rows=counts["records"], size=size, files=files)
        return {"path": str(folder), "start_day": start_day.isoformat(), "end_day": end_day.isoformat(), **counts}

    def _file(self, folder: ObjectStoragePath, day: date) -> ObjectStoragePath:
        # Not the name of a column: loaders that derive a column from the folder reject one that is also in the file,
        # and a file must be complete without its folder.
        partition = {"campaigns": "mail_send_day", "transactional": "stats_day"}[self.kind]
        # Without the team, which is in the rows: otherwise the old file would stay when the connection's team changes.
        return folder / f"{partition}={day}" / f"{quote(self.mail_conn_id, safe='')}.{self.file_format}"

    def _campaigns(self, start_day: date, end_day: date) -> tuple[Table, Days]:
        from airflow_provider_mail._task.statistics import Observation
        from airflow_provider_mail.api.campaigns import GetCampaignStats
        from airflow_provider_mail.api.flows.statistics import campaign_stats
        from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_STATS, campaign_stats_row

        def days() -> Days:
            # Day by day, so that a partition is the service's response for that day: the specification does not show in
            # which time zone its days begin, and sorting by send time could split them.
            for day in _calendar(start_day, end_day):
                observation = Observation(self.hook.get_conn())
                request, records = GetCampaignStats(start_date=day, end_date=day), dict[str, Any]()
                # Two readings, because the file is replaced: a campaign is left out only if both responses lack it.
                for _ in range(2):
                    reading = self.hook.run(campaign_stats(request))
                    records = {record.mail_name: record for record in reading} | records
                origin = self._origin(observation)
                yield day, [campaign_stats_row(record, **origin) for record in records.values()]

        return CAMPAIGN_STATS, days()

    def _transactional(self, start_day: date, end_day: date) -> tuple[Table, Days]:
        from airflow_provider_mail._task.statistics import Observation, today
        from airflow_provider_mail.api.flows.statistics import missing_days, transactional_stats
        from airflow_provider_mail.api.transactional import GetTransactionalStats
        from airflow_provider_mail.warehouse.tables.stats import TRANSACTIONAL_STATS, transactional_stats_row

        def days() -> Days:
            request = GetTransactionalStats(start_date=start_day, end_date=end_day)
            observation = Observation(self.hook.get_conn())
            records = self.hook.run(transactional_stats(request))
            origin = self._origin(observation)
            for record in records:
                yield record.stats_date, [transactional_stats_row(record, **origin)]
            for day in missing_days(request, records, today()):
                self.log.warning("The response leaves out %s, whose file is kept.", day)
                yield day, None

        return TRANSACTIONAL_STATS, days()

    def _origin(self, observation: Observation) -> dict[str, Any]:
        return {"mail_conn_id": self.mail_conn_id, "team": self.hook.team_name, "observed_at": observation.at}


def _calendar(start_day: date, end_day: date) -> Iterator[date]:
    return (start_day + timedelta(days=number) for number in range((end_day - start_day).days + 1))
