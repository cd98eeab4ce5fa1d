"""Lineage: what the real OpenLineage provider sends for real runs, and the assets beside it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from airflow.sdk import Asset
from duckdb_provider.hooks.duckdb_hook import DuckDBHook

from airflow_provider_mail import assets, lineage
from airflow_provider_mail.assets import (
    campaign_stats_asset,
    campaigns_asset,
    convert_asset_to_openlineage,
    list_asset,
    table_asset,
    transactional_stats_asset,
)
from airflow_provider_mail.lineage import MailLineage, SqlTable
from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_STATS, TRANSACTIONAL_STATS
from mail_emulator import Emulator
from tests.support.env import ROOT
from tests.support.postgres import Database, PostgresServer
from tests.tasks.conftest import SqlDatabase
from tests.tasks.loading import sql_hook

Event = dict[str, Any]
OPENLINEAGE = tuple(int(part) for part in version("apache-airflow-providers-openlineage").split(".")[:2])


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[Database]:
    with postgres_server.database() as database:
        with database.connect() as connection:
            connection.execute("CREATE SCHEMA crm")
        yield database


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lineage")


@pytest.fixture(scope="module")
def events(airflow_home: Path, database: Database, folder: Path) -> dict[str, list[Event]]:
    """What was sent of each task of a run, in the order of sending."""
    transport = {"type": "file", "log_file_path": str(folder / "events.jsonl"), "append": True}
    with Emulator() as emulator:
        emulator.add_campaigns(5, prefix="c", first_day="2026-03-02", per_day=2)
        mail = json.dumps({"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key})
        environment = {
            **os.environ,
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
            "AIRFLOW__OPENLINEAGE__NAMESPACE": "test",
            # What takes longer is left out: patience for a busy machine.
            "AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT": "120",
            "AIRFLOW_CONN_MAIL_DEFAULT": mail,
            "AIRFLOW_CONN_SALES": mail,
            "AIRFLOW_CONN_SQLITE_DWH": json.dumps({"conn_type": "sqlite", "host": str(folder / "dwh.db")}),
            "AIRFLOW_CONN_POSTGRES_DWH": database.airflow_connection,
        }
        command = [sys.executable, "-m", "tests.tasks.lineage_run", str(folder)]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, list[Event]] = {"output": [{"text": done.stdout + done.stderr}]}
    for line in (folder / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        found.setdefault(event["job"]["name"].removeprefix("lineage."), []).append(event)
    return found


def completed(events: dict[str, list[Event]], task_id: str) -> tuple[Event, Event]:
    """The one input and the one output of a task that has ended well."""
    assert task_id in events, events["output"][0]["text"]
    (event,) = [event for event in events[task_id] if event["eventType"] == "COMPLETE"]
    (source,), (target,) = event["inputs"], event["outputs"]
    return source, target


def rows(dataset: Event) -> int:
    (facet,) = (dataset.get("inputFacets") or dataset.get("outputFacets") or {}).values()
    return int(facet["rowCount"])


@pytest.mark.parametrize(
    ("task_id", "namespace", "name"),
    [
        ("sqlite", "sqlite://localhost{folder}/dwh.db", "mail_campaign_stats"),
        ("postgres", "postgres://localhost:5432", "{database}.public.mail_campaign_stats"),
        ("schema", "postgres://localhost:5432", "{database}.crm.stats"),
        ("parquet", "file", "{folder}/parquet"),
    ],
)
def test_a_load_of_campaign_statistics(
    events: dict[str, list[Event]], database: Database, folder: Path, task_id: str, namespace: str, name: str
) -> None:
    source, target = completed(events, task_id)
    known = {"folder": folder, "database": database.name}

    assert (source["namespace"], source["name"]) == ("mail://mail_default", "campaigns/stats")
    assert (target["namespace"], target["name"]) == (namespace.format(**known), name.format(**known))
    assert rows(source) == rows(target) == 5
    fields = {field["name"]: field["type"] for field in target["facets"]["schema"]["fields"]}
    assert list(fields) == list(CAMPAIGN_STATS.stored_names)
    assert fields["mail_send_date"] == "timestamp"
    if namespace == "file":
        sizes = [path.stat().st_size for path in Path(target["name"]).glob("*/*")]
        statistics = target["outputFacets"]["outputStatistics"]
        assert (statistics["fileCount"], statistics["size"]) == (len(sizes), sum(sizes)) == (3, sum(sizes))


def test_days_of_another_account(events: dict[str, list[Event]]) -> None:
    source, target = completed(events, "days")
    assert (source["namespace"], source["name"]) == ("mail://sales", "transactional/stats")
    assert rows(source) == rows(target) == 7
    fields = [field["name"] for field in target["facets"]["schema"]["fields"]]
    assert fields == list(TRANSACTIONAL_STATS.stored_names)


@pytest.mark.skipif(OPENLINEAGE < (2, 19), reason="says nothing of assets when a task starts (seen with 2.7 and 2.15)")
def test_assets_name_the_same_datasets(events: dict[str, list[Event]]) -> None:
    """Before a task has run, its inlets and outlets stand for what it will read and write."""
    (start,) = [event for event in events["assets"] if event["eventType"] == "START"]
    named = [(dataset["namespace"], dataset["name"]) for dataset in (*start["inputs"], *start["outputs"])]
    table = ("postgres://db.example.com:5432", "dwh.public.mail_campaign_stats")
    assert named == [("mail://mail_default", "campaigns/stats"), table]
    source, _ = completed(events, "assets")
    assert (source["namespace"], source["name"]) == named[0]


def test_a_load_that_fails_has_no_datasets(events: dict[str, list[Event]]) -> None:
    (failed,) = [event for event in events["fails"] if event["eventType"] == "FAIL"]
    assert (failed["inputs"], failed["outputs"]) == ([], [])
    output = events["output"][0]["text"]
    assert "OpenLineage method failed" not in output
    assert "unable to" not in output


def test_nothing_of_the_provider_is_imported_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("openlineage", "airflow.providers.openlineage.extractors"):
        monkeypatch.setitem(sys.modules, name, None)
    again = {}
    for module in (lineage, assets):
        spec = importlib.util.spec_from_file_location(f"{module.__name__}_again", str(module.__file__))
        assert spec and spec.loader  # noqa: PT018
        again[module] = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, again[module])
        spec.loader.exec_module(again[module])
    task = again[lineage].MailLineage()
    task.mail_conn_id = "mail_default"
    task.moved("campaigns/stats", "lists/a", rows=3)
    assert again[assets].campaign_stats_asset().uri == "mail://mail_default/campaigns/stats"


def test_rows_may_go_to_the_service(warehouse: SqlDatabase) -> None:
    """As an import of contacts reports it; a task that has moved nothing leaves it to inlets and outlets."""
    task = MailLineage()
    nothing = task.get_openlineage_facets_on_complete(None)
    assert (nothing.inputs, nothing.outputs) == ([], [])
    task.mail_conn_id = "mail_default"
    task.moved(SqlTable(warehouse.hook, "customers"), "lists/News", rows=12)
    found = task.get_openlineage_facets_on_complete(None)
    (source,), (target,) = found.inputs, found.outputs
    assert (source.name, source.inputFacets["inputStatistics"].rowCount) == ("customers", 12)
    assert (target.namespace, target.name) == ("mail://mail_default", "lists/News")
    assert target.outputFacets["outputStatistics"].rowCount == 12


# --- assets ---


@pytest.mark.parametrize(
    ("asset", "uri", "dataset"),
    [
        (campaign_stats_asset(), "mail://mail_default/campaigns/stats", "campaigns/stats"),
        (transactional_stats_asset(), "mail://mail_default/transactional/stats", "transactional/stats"),
        (campaigns_asset(), "mail://mail_default/campaigns", "campaigns"),
        (list_asset("News & more/2"), "mail://mail_default/lists/News%20%26%20more%2F2", "lists/News & more/2"),
        (Asset("MAIL://mail_default//campaigns/stats/"), "mail://mail_default/campaigns/stats", "campaigns/stats"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_assets_of_the_service(asset: Asset, uri: str, dataset: str) -> None:
    assert asset.uri == Asset(asset.uri).uri == uri
    found = convert_asset_to_openlineage(asset, None)
    assert (found.namespace, found.name) == ("mail://mail_default", dataset)


def test_each_account_has_assets_of_its_own() -> None:
    uris = {campaign_stats_asset(name).uri for name in ("team/a", "Team/a", "team:a", "team#a", "a@b", "a")}
    assert len(uris) == 6
    assert convert_asset_to_openlineage(campaign_stats_asset("team/a"), None).namespace == "mail://team/a"
    assert campaign_stats_asset(name="campaign counts", group="mail").name == "campaign counts"


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("mail:///campaigns/stats", "must contain an account"),
        ("mail://acct/", "must contain a resource"),
        ("mail://acct/campaigns?day=1", "must not contain a query"),
    ],
)
def test_uris_without_a_resource(uri: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Asset(uri)


def test_airflow_knows_the_scheme() -> None:
    try:
        from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime as Manager
    except ImportError:  # before 3.2
        from airflow.providers_manager import ProvidersManager as Manager  # type: ignore[assignment]
    manager = Manager()
    assert manager.asset_uri_handlers["mail"].__module__ == "airflow_provider_mail.assets"
    made = manager.asset_factories["mail"](account="acct", resource="campaigns/stats")
    assert made.uri == "mail://acct/campaigns/stats"
    assert manager.asset_to_openlineage_converters["mail"] is convert_asset_to_openlineage


POSTGRES = {"conn_type": "postgres", "host": "db.example.com", "schema": "dwh"}
MYSQL = {"conn_type": "mysql", "host": "db.example.com", "schema": "dwh"}


@pytest.mark.parametrize(
    ("connection", "table", "uri"),
    [
        (POSTGRES, "public.Stats", "postgres://db.example.com:5432/dwh/public/stats"),
        (POSTGRES | {"port": 6432}, 'crm."Stats 2026"', "postgres://db.example.com:6432/dwh/crm/Stats%202026"),
        (MYSQL, "stats", "mysql://db.example.com:3306/dwh/stats"),
        (MYSQL, "crm.stats", "mysql://db.example.com:3306/crm/stats"),
        ({"conn_type": "sqlite", "host": "/data/dwh.db"}, "stats", "sqlite://localhost/data/dwh.db/stats"),
        ({"conn_type": "duckdb", "host": "/data/dwh.db"}, "main.stats", "duckdb://localhost/data/dwh.db/main/stats"),
    ],
)
def test_the_uri_of_a_table(connection: dict[str, Any], table: str, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_DWH", json.dumps({"login": "me"} | connection))
    # The hook of DuckDB's provider does not make itself known to Airflow 3.
    kind = connection["conn_type"]
    place = SqlTable(DuckDBHook("dwh") if kind == "duckdb" else sql_hook("dwh"), table).place()
    assert place.uri == uri
    if kind in ("postgres", "mysql"):
        # The database's own provider comes from the asset to the dataset that operators report.
        asset = table_asset("dwh", table)
        assert asset.uri == uri
        provider = importlib.import_module(f"airflow.providers.{kind}.assets.{kind}")
        if convert := getattr(provider, "convert_asset_to_openlineage", None):  # not in its older releases
            dataset = convert(asset, None)
            assert (dataset.namespace, unquote(dataset.name)) == (place.namespace, place.name)


def test_the_schema_of_a_postgres_table_is_the_current_one(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_DWH", postgres_database.airflow_connection)
    assert table_asset("dwh", "stats").uri == f"postgres://localhost:5432/{postgres_database.name}/public/stats"
