"""The manifest of a load: a JSON file, written last, that names the files of the load and what they are complete for.

Its form is that of the manifests that Redshift writes and reads (``entries``, ``schema``, ``meta``), with more fields.
A warehouse loads the files into a table of staged rows, which is then merged.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_mail.warehouse.connection import run_with_connection
from airflow_provider_mail.warehouse.dialects import DIALECTS, database, dialect_of
from airflow_provider_mail.warehouse.dialects.warehouses import Merging
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.load import current_task_run
from airflow_provider_mail.warehouse.request import (
    Between,
    Clock,
    Coverage,
    LoadRequest,
    LoadResult,
    MarkGone,
    RemovalRule,
)
from airflow_provider_mail.warehouse.rows import Source
from airflow_provider_mail.warehouse.table import Column, Table, TableName
from airflow_provider_mail.warehouse.tables.resources import CAMPAIGNS, CONTACTS
from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_STATS, TRANSACTIONAL_STATS

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

MANIFEST = "manifest.json"
"""The name of the file, in the folder of the load."""

VERSION = 1

TABLES: Mapping[str, Table] = {
    "mail_campaign_stats": CAMPAIGN_STATS,
    "mail_campaigns": CAMPAIGNS,
    "mail_contacts": CONTACTS,
    "mail_transactional_stats": TRANSACTIONAL_STATS,
}
"""The tables that are written as files, by the name in the manifest."""

Where = Mapping[str, Any]


@dataclass(frozen=True)
class DataFile:
    """A file of a load.

    :param url: its URL, such as ``s3://bucket/folder/part-00000.parquet``.
    :param size: its size in bytes.
    :param sha256: its checksum, in hexadecimal.
    """

    url: str
    rows: int
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a load of files consists of, and what it is complete for.

    :param load_id: the load: lower-case letters, digits and underscores.
    :param table_name: the key of `TABLES`.
    :param file_format: ``parquet`` or ``jsonl``.
    :param files: the files; none for a load without rows.
    :param replace_where: the rows of the table that are deleted unless the load has them.
    :param mark_gone: the windows whose other rows are marked as gone.
    :param covers: the parts of the table, by name, for which the load is complete.
    :param covers_whole: the condition for the rows of all parts.
    :param start_day: first day of the window, of statistics.
    :param end_day: its last day.
    :param rejected: number of records that were left out since they cannot be stored; the load is then not complete.
    """

    load_id: str
    table_name: str
    mail_conn_id: str
    observed_at: datetime.datetime
    file_format: str
    files: tuple[DataFile, ...]
    replace_where: Where | None = None
    mark_gone: tuple[Where, ...] = ()
    covers: Mapping[str, Where] | None = None
    covers_whole: Where | None = None
    start_day: datetime.date | None = None
    end_day: datetime.date | None = None
    rejected: int = 0

    @property
    def table(self) -> Table:
        return TABLES[self.table_name]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def coverage(self) -> Coverage | None:
        if not self.covers:
            return None
        return Coverage(self.mail_conn_id, self.observed_at, self.covers, self.covers_whole or {})

    @property
    def is_complete(self) -> bool:
        """Whether the rows are all that the service has for the window; otherwise no other row may be removed."""
        has_window = bool(self.covers or self.replace_where or self.mark_gone)
        # An empty result proves nothing, except for a list that may be empty.
        proves_it = bool(self.rows or self.replace_where)
        return has_window and proves_it and not self.rejected

    def to_json(self) -> bytes:
        size = sum(file.size for file in self.files)
        content = {
            "version": VERSION,
            "load_id": self.load_id,
            "table": self.table_name,
            "mail_conn_id": self.mail_conn_id,
            "observed_at": _text(self.observed_at),
            "file_format": self.file_format,
            "complete": self.is_complete,
            "rejected": self.rejected,
            "window": {
                "start_day": _text(self.start_day),
                "end_day": _text(self.end_day),
                "replace": _where(self.replace_where) if self.replace_where else None,
                "mark_gone": [_where(where) for where in self.mark_gone],
                "parts": {part: _where(where) for part, where in (self.covers or {}).items()},
                "all_parts": _where(self.covers_whole) if self.covers_whole else None,
            },
            "key": list(self.table.key),
            "entries": [
                {
                    "url": file.url,
                    "mandatory": True,
                    "meta": {"content_length": file.size, "record_count": file.rows, "sha256": file.sha256},
                }
                for file in self.files
            ],
            "schema": {
                "elements": [
                    {"name": column.name, "type": {"base": column.type.name}, "nullable": column.nullable}
                    for column in self.table.stored_columns
                ]
            },
            "meta": {"content_length": size, "record_count": self.rows},
        }
        return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()

    @classmethod
    def from_json(cls, content: bytes) -> Manifest:
        """Decode a manifest.

        :raises WarehouseError: when it is no manifest, or one of another version.
        """
        try:
            fields = json.loads(content)
            if fields["version"] != VERSION:
                raise WarehouseError(f"the manifest has version {fields['version']}, expected {VERSION}")
            table = TABLES[fields["table"]]
            window = fields["window"]
            names = tuple(element["name"] for element in fields["schema"]["elements"])
            manifest = cls(
                load_id=fields["load_id"],
                table_name=fields["table"],
                mail_conn_id=fields["mail_conn_id"],
                observed_at=datetime.datetime.fromisoformat(fields["observed_at"]),
                file_format=fields["file_format"],
                files=tuple(_file(entry) for entry in fields["entries"]),
                replace_where=_conditions(table, window["replace"]) if window["replace"] else None,
                mark_gone=tuple(_conditions(table, where) for where in window["mark_gone"]),
                covers={part: _conditions(table, where) for part, where in window["parts"].items()} or None,
                covers_whole=_conditions(table, window["all_parts"]) if window["all_parts"] else None,
                start_day=_day(window["start_day"]),
                end_day=_day(window["end_day"]),
                rejected=fields.get("rejected", 0),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise WarehouseError(f"it is no manifest of a load ({type(error).__name__})") from None
        if names != table.stored_names:
            raise WarehouseError(
                "the files were written by another version of this package, with other columns: write them again"
            )
        return manifest


def _file(entry: Mapping[str, Any]) -> DataFile:
    meta = entry["meta"]
    return DataFile(entry["url"], meta["record_count"], meta["content_length"], meta["sha256"])


def _where(where: Where) -> dict[str, Any]:
    return {
        name: {"from": _text(value.low), "to": _text(value.high)} if isinstance(value, Between) else _text(value)
        for name, value in where.items()
    }


def _conditions(table: Table, where: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _condition(table[name], value) for name, value in where.items()}


def _condition(column: Column, value: Any) -> Any:
    if isinstance(value, Mapping):
        return Between(_condition(column, value["from"]), _condition(column, value["to"]))
    if column.type.name == "timestamp" and value is not None:
        return datetime.datetime.fromisoformat(value)
    return _day(value) if column.type.name == "date" else value


def _day(value: str | None) -> datetime.date | None:
    return datetime.date.fromisoformat(value) if value is not None else None


def _text(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat()
    return value.isoformat() if isinstance(value, datetime.date) else value


def table_key(table: Table) -> str:
    """Return the name of a table in manifests.

    :param table: one of `TABLES`.
    """
    return next(name for name, declared in TABLES.items() if declared is table)


T = TypeVar("T")


def create_stage(hook: DbApiHook, manifest: Manifest, name: str) -> str:
    """Create the empty table that the warehouse loads the files into; return its name.

    :param name: the table that the rows are merged into.
    :raises WarehouseError: naming table and connection.
    """
    dialect = _dialect(hook, manifest, name)
    _run(dialect, dialect.create_stage)
    return dialect.stage


def merge_stage(
    hook: DbApiHook,
    manifest: Manifest,
    name: str,
    *,
    removal: RemovalRule | None = None,
    exists: Callable[[Sequence[str]], Collection[str]] | None = None,
) -> LoadResult:
    """Merge the staged rows, then remove the table of staged rows; a load that is merged already changes nothing.

    :param name: the table, created if it does not exist.
    :param exists: see :class:`~airflow_provider_mail.warehouse.request.MarkGone`. Default: the windows are all that
        the service has.
    :param removal: which rows may be removed. Default: any that the load lacks.
    :raises UnconfirmedError: when too many would be removed.
    :raises WarehouseError: naming table and connection; nothing was merged. Also when the service was asked more than
        five minutes after now, by the clock of this worker: the rows would hide newer ones.
    """
    dialect = _dialect(hook, manifest, name, removal, exists)
    if manifest.observed_at > Clock(datetime.datetime.now(datetime.UTC)).latest():
        raise dialect.error(
            f"check the clocks of the service and of this worker, then write the files again: load {manifest.load_id} "
            f"was read at {manifest.observed_at:%Y-%m-%d %H:%M:%S} (UTC), which lies in the future, so its rows would "
            "hide newer ones"
        )

    def work(cursor: Any) -> LoadResult:
        dialect.prepare(cursor)
        account = {"mail_conn_id": manifest.mail_conn_id}
        return dialect.merge_files(cursor, manifest.rows, manifest.observed_at, account)

    return _run(dialect, work)


def _dialect(
    hook: DbApiHook,
    manifest: Manifest,
    name: str,
    removal: RemovalRule | None = None,
    exists: Callable[[Sequence[str]], Collection[str]] | None = None,
) -> Merging:
    dialect = dialect_of(hook)
    if not issubclass(dialect, Merging):
        warehouses = ", ".join(name for name, path in DIALECTS.items() if path.startswith("warehouses."))
        raise WarehouseError(
            f"connection {hook.get_conn_id()!r}: {database(hook)} is not loaded from files, which is for "
            f"{warehouses}; load it with the operators of airflow_provider_mail.transfers.mail_to_sql"
        )
    table = TableName.parse(name)
    source = Source(())
    source.read, source.rejected = manifest.rows, manifest.rejected  # by the warehouse
    request = LoadRequest(
        manifest.table,
        table,
        source,
        manifest.replace_where,
        manifest.coverage,
        MarkGone(manifest.observed_at, lambda: manifest.mark_gone, exists) if manifest.mark_gone else None,
        removal=removal,
        clock=Clock(max(manifest.observed_at, datetime.datetime.now(datetime.UTC))),
        task_run=current_task_run(),
    )
    return dialect(hook, request, manifest.load_id, has_json_text=manifest.file_format == "parquet")


def _run(dialect: Merging, work: Callable[[Any], T]) -> T:
    def with_cursor(connection: Any) -> T:
        with closing(dialect.open(connection)) as cursor:
            return work(cursor)

    return run_with_connection(dialect, with_cursor)
