"""Loads into the stand-ins of warehouses, in both ways, from a service with other settings and with several faults at
once: the table is that of before or that of the service, and success means that it is that of the service.

The settings and faults are drawn as in `test_soak`, with the same seed.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.transfers.mail_to_object_storage import (
    MailCampaignsToObjectStorageOperator,
    MailContactsToObjectStorageOperator,
    MailStatsToObjectStorageOperator,
)
from airflow_provider_mail.transfers.object_storage_to_sql import (
    MailCreateStageTableOperator,
    MailMergeStageTableOperator,
)
from airflow_provider_mail.warehouse.manifest import Manifest
from tests.faults.conftest import _mail_default, _quiet  # noqa: F401 - fixtures
from tests.faults.loads import DAYS, LOADS, Database, Load, Rows
from tests.faults.trying import Trial
from tests.real.faults.test_soak import SEED
from tests.support.clock import Clock
from tests.support.sampling import ALL_FAULTS
from tests.warehouse.conftest import (  # noqa: F401 - fixtures
    Warehouse,
    make_warehouse,
    warehouse_database,
)
from tests.warehouse.standins import WAYS, FilesWarehouse, copy, native

CASES = 50 if ALL_FAULTS else 2
EACH = None if ALL_FAULTS else 2
KINDS = WAYS if ALL_FAULTS else ("databricks", "redshift files")

FILES: dict[str, tuple[str, Callable[..., Any]]] = {
    "campaign statistics": (
        "mail_campaign_stats",
        lambda **options: MailStatsToObjectStorageOperator(layout="load", **DAYS, **options),
    ),
    "transactional statistics": (
        "mail_transactional_stats",
        lambda **options: MailStatsToObjectStorageOperator(kind="transactional", layout="load", **DAYS, **options),
    ),
    "contacts of a list": (
        "mail_contacts",
        lambda **options: MailContactsToObjectStorageOperator(
            list_name="customers", page_size=3, max_in_flight=2, rows_per_file=3, **options
        ),
    ),
    "campaigns": (
        "mail_campaigns",
        lambda **options: MailCampaignsToObjectStorageOperator(
            page_size=3, max_in_flight=2, rows_per_file=3, **options
        ),
    ),
}
"""The table, and the operator that writes its files, by what is loaded."""


class StandIn(Database):
    """A stand-in, which every run finds as it was kept.

    :param warehouse: the stand-in.
    :param kept: the schema in which tables are kept.
    """

    def __init__(self, warehouse: Warehouse, kept: str) -> None:
        super().__init__("warehouse")
        self._hook: Any = type(warehouse.hook)
        self._kept = kept
        self._schema = "public" if warehouse.is_postgres else "main"

    def connection(self) -> dict[str, Any]:
        return {}  # made with the stand-in

    def restore(self) -> None:
        self._copy(self._kept, self._schema)

    def keep(self) -> None:
        self._copy(self._schema, self._kept)

    def _copy(self, source: str, target: str) -> None:
        with native(self._hook(self.conn_id)) as cursor:
            cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {target}")
            for table in self._tables(cursor, target):
                cursor.execute(f"DROP TABLE {target}.{table}")
            for table in self._tables(cursor, source):
                cursor.execute(f"CREATE TABLE {target}.{table} AS SELECT * FROM {source}.{table}")

    def _tables(self, cursor: Any, schema: str) -> list[str]:
        cursor.execute(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}'")
        return [table for (table,) in cursor.fetchall()]

    def query(self, sql: str) -> Rows:
        with native(self._hook(self.conn_id)) as cursor:
            cursor.execute(sql)
            rows = cursor.fetchall()
        return [tuple(str(value) if isinstance(value, datetime.date) else value for value in row) for row in rows]


class FilesLoad:
    """The tasks of one load of files, as one.

    :param write: the operator that writes the files.
    :param table: the table.
    :param hook: the hook of the stand-in.
    """

    def __init__(self, write: Any, table: str, hook: Any) -> None:
        self._write, self.task_id = write, write.task_id
        self._table = table
        self._hook = hook

    def execute(self, context: Any) -> Any:
        written = self._write.execute(context)
        given = {"sql_conn_id": "warehouse", "table": self._table, "manifest": written["manifest"]}
        stage = MailCreateStageTableOperator(task_id="stage", **given).execute(context)["stage_table"]
        manifest = Manifest.from_json(Path(written["manifest"].removeprefix("file://")).read_bytes())
        copy(self._hook("warehouse"), manifest, stage)
        MailMergeStageTableOperator(task_id="merge", **given).execute(context)
        return written


def workloads(warehouse: Warehouse, folder: Path) -> list[Load]:
    """The loads into this stand-in."""
    found = []
    for load in LOADS:
        what = str(load).removeprefix("load ")
        if not isinstance(load, Load) or what not in FILES:
            continue
        table, write = FILES[what]

        def make(*, sql_conn_id: str, table: str = table, write: Any = write, **options: Any) -> Any:
            written = write(path=f"file://{folder / 'lake'}", file_format="jsonl", **options)
            return FilesLoad(written, table, type(warehouse.hook))

        store = StandIn(warehouse, f"kept_{table}")
        found.append(load.into(store, make if isinstance(warehouse, FilesWarehouse) else None))
    return found


@pytest.mark.not_unit
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_the_table_is_the_service_s(
    kind: str,
    make_warehouse: Callable[..., Warehouse],  # noqa: F811
    emulator: Emulator,
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warehouse = make_warehouse(kind)
    monkeypatch.setattr("airflow_provider_mail._task.sql.sql_hook", type(warehouse.hook))
    loads = workloads(warehouse, tmp_path)
    assert len(loads) == len(FILES)
    for number, load in enumerate(loads[:EACH]):
        Trial(emulator, clock).check(load, CASES, f"{SEED} {kind} {number}")
