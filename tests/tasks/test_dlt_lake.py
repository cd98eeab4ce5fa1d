"""The source for dlt into files: Delta and Iceberg tables, Parquet and JSON Lines, read by DuckDB.

Needs the dependency group `lake`, which the environment of the newest Airflow has.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import dlt
import duckdb
import pytest
from dlt.common.schema.typing import TTableFormat
from dlt.pipeline.exceptions import PipelineStepFailed
from duckdb_provider.hooks.duckdb_hook import DuckDBHook

from airflow_provider_mail.api import AddTemplate, DeleteList, DeleteTemplate, MailClient, MailError
from airflow_provider_mail.dlt_source import mail_source
from airflow_provider_mail.warehouse.table import Table
from airflow_provider_mail.warehouse.tables.resources import TEMPLATES
from mail_emulator import Emulator
from tests.tasks.conftest import SqlDatabase
from tests.tasks.dlt_loads import (  # noqa: F401 - some are fixtures
    IGNORED,
    LISTS,
    START,
    TABLES,
    TODAY,
    by_operators,
    dlt_client,
    dlt_settings,
    fill,
    noon,
    rows_of,
)
from tests.tasks.loading import delete

pytestmark = [pytest.mark.not_unit, pytest.mark.filterwarnings(*IGNORED)]
LOOKBACK = 7
PARTS = {"mail_contacts": "mail_conn_id, team_name, list_name", "mail_templates": "mail_conn_id"}
DUCKDB_TYPES = {"text": "VARCHAR", "integer": "BIGINT", "timestamp": "TIMESTAMPTZ"}


@pytest.fixture(autouse=True)
def _catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An Iceberg catalog that lasts."""
    for package in ("deltalake", "pyiceberg"):
        pytest.importorskip(package, reason="needs the dependency group lake")
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/iceberg"}
    monkeypatch.setenv("ICEBERG_CATALOG__ICEBERG_CATALOG_CONFIG", json.dumps(catalog))


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlDatabase:
    """A DuckDB for the tables of the operators."""
    path = str(tmp_path / "warehouse.duckdb")
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps({"conn_type": "duckdb", "host": path}))
    return SqlDatabase("warehouse", DuckDBHook("warehouse"))


class Lake:
    """Files of one kind, which dlt writes and DuckDB reads."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder / kind
        self.kind = kind
        self.workers = 0
        self.format: TTableFormat | None = {"delta": "delta", "iceberg": "iceberg"}.get(kind)  # type: ignore[assignment]

    def load(self, client: MailClient, *resources: str, **options: Any) -> None:
        """Run the pipeline on a new worker, which has no files of the last one.

        :param resources: those that are loaded. Default: all.
        """
        self.workers += 1
        pipeline = dlt.pipeline(
            "mail",
            pipelines_dir=str(self.folder / f"worker-{self.workers}"),
            destination=dlt.destinations.filesystem(f"file://{self.folder}"),
            dataset_name="lake",
        )
        given = {
            "start_day": START,
            "lookback_days": LOOKBACK,
            "contact_lists": "all",
            "snapshots": True,
            "allow_empty": True,
        }
        # Objects or columns: of either, one kind that is merged and one that is not.
        given["arrow"] = self.kind in ("delta", "parquet")
        source = mail_source(client, **given | options)
        source = source.with_resources(*resources) if resources else source
        form: Any = {"table_format": self.format} if self.format else {"loader_file_format": self.kind}
        pipeline.run(source, **form).raise_on_failed_jobs()

    def query(self, sql: str, names: Sequence[str] = (*TABLES, "mail_templates")) -> list[tuple[Any, ...]]:
        """Run a statement on the tables, by default all of them."""
        with closing(duckdb.connect()) as connection:
            for name in names:
                self._attach(connection, name, {**TABLES, "mail_templates": TEMPLATES}[name])
            return connection.execute(sql).fetchall()

    def _attach(self, connection: duckdb.DuckDBPyConnection, name: str, table: Table) -> None:
        """Make a view of the rows as the page about dlt says."""
        found = self._scan(connection, name, table)
        if self.kind == "delta":
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {found}")
        elif name in PARTS:
            newest = f"observed_at = max(observed_at) OVER (PARTITION BY {PARTS[name]})"
            connection.execute(
                f"CREATE VIEW {name} AS SELECT * FROM (SELECT * FROM {found} QUALIFY {newest}) WHERE is_removed IS NULL"
            )
        else:
            newest = f"row_number() OVER (PARTITION BY {', '.join(table.key)} ORDER BY observed_at DESC) = 1"
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {found} QUALIFY {newest}")

    def _scan(self, connection: duckdb.DuckDBPyConnection, name: str, table: Table) -> str:
        folder = self.folder / "lake" / name
        if self.kind == "delta":
            from deltalake import DeltaTable

            connection.register(f"{name}_files", DeltaTable(str(folder)).to_pyarrow_table())
        elif self.kind == "iceberg":
            from pyiceberg.catalog import load_catalog

            catalog = load_catalog("default", type="sql", uri=f"sqlite:///{self.folder.parent}/catalog.db")
            connection.register(f"{name}_files", catalog.load_table(f"lake.{name}").scan().to_arrow())
        elif self.kind == "parquet":
            return f"read_parquet('{folder}/*.parquet', union_by_name = true)"
        else:
            types = {column.name: DUCKDB_TYPES.get(column.type.name, column.type.name) for column in table.columns}
            return f"read_json('{folder}/*.jsonl*', columns = {types | {'is_removed': 'BOOLEAN'}})"
        return f"{name}_files"


def test_changes_of_the_account(emulator: Emulator, client: MailClient, warehouse: SqlDatabase, tmp_path: Path) -> None:
    """Two loads of each kind, each on a new worker: the service's truth, and the rows of the operators."""
    fill(emulator, contacts=40)
    client.send(AddTemplate(template_name="welcome", template_content="<p>x</p>", template_subject="x"))
    lakes = [Lake(tmp_path, kind) for kind in ("delta", "iceberg", "parquet", "jsonl")]

    def load_all(**window: datetime.date) -> None:
        for lake in lakes:
            lake.load(client, keep_gone=lake.kind != "delta")
        by_operators(**window)
        for lake in lakes:
            for name, table in TABLES.items():
                assert rows_of(lake.query, name, table) == rows_of(warehouse.query, name, table) != [], (
                    lake.kind,
                    name,
                )
            emails = "SELECT email FROM mail_contacts WHERE list_name = '{}' ORDER BY 1"
            for name in LISTS:
                truth = sorted((each["email"],) for each in emulator.contacts(name))
                assert lake.query(emails.format(name)) == truth, (lake.kind, name)

    emulator.add_campaign("late", send_date=f"{TODAY - datetime.timedelta(days=2)}T08:00:00Z")
    load_all()
    emulator.set_campaign_stats("late", sentCount=1000, openCount=17)
    delete(emulator, {"email": "newsletter-3@example.com"}, *emulator.contacts("customers"))
    emulator.add_contact("new@example.com", lists=["newsletter"])
    client.send(DeleteTemplate(template_name="welcome"))
    load_all(start=TODAY - datetime.timedelta(days=LOOKBACK))

    for lake in lakes:
        assert lake.query("SELECT open_count FROM mail_campaign_stats WHERE mail_name = 'late'") == [(17,)]
        assert lake.query("SELECT count(*) FROM mail_templates") == [(0,)]
    assert lakes[0].query("SELECT count(*) FROM mail_contacts WHERE is_removed") == [(0,)]


@pytest.mark.parametrize("arrow", [False, True])
def test_delta_keeps_the_lists_that_were_not_read(
    emulator: Emulator, client: MailClient, tmp_path: Path, arrow: bool
) -> None:
    name = "a 'quoted' {list}"
    for list_name, count in ((name, 2), ("news", 3), ("never filled", 0)):
        emulator.add_list(list_name, count=count)
    lake = Lake(tmp_path, "delta")

    def load(lists: Any = "all", **options: Any) -> dict[str, int]:
        """How many contacts there are of each list after a load."""
        lake.load(client, "mail_contacts", arrow=arrow, contact_lists=lists, **options)
        return dict(lake.query("SELECT list_name, count(*) FROM mail_contacts GROUP BY ALL", ["mail_contacts"]))

    lake.load(client, "mail_contacts", arrow=arrow, contact_lists=["never filled"])
    assert not (tmp_path / "delta" / "lake" / "mail_contacts" / "_delta_log").exists()  # dlt cannot make an empty table
    assert load() == {name: 2, "news": 3}
    assert load(["news"], mail_conn_id="other") == {name: 2, "news": 6}
    delete(emulator, emulator.contacts(name)[0], *emulator.contacts("news"))
    assert load([name]) == {name: 1, "news": 6}
    assert load(["news", name]) == {name: 1, "news": 3}  # those of the other account
    client.send(DeleteList(list_name=name))
    assert load(["news"]) == {name: 1, "news": 3}
    assert load() == {"news": 3}


@pytest.mark.parametrize("kind", ["iceberg", "parquet"])
def test_rows_that_are_gone_need_a_permission_to_stay(
    emulator: Emulator, client: MailClient, tmp_path: Path, kind: str
) -> None:
    emulator.add_list("newsletter", count=3)

    with pytest.raises(PipelineStepFailed, match="keep_gone=True") as failure:
        Lake(tmp_path, kind).load(client)

    assert isinstance(failure.value.__cause__.__cause__, MailError)
    assert not (tmp_path / kind / "lake" / "mail_contacts").exists()
