"""Lineage: what the OpenLineage provider extracts of tasks that have run, and the assets beside it."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from airflow.providers.openlineage.extractors.base import DefaultExtractor
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
from airflow_provider_mail.transfers.mail_to_object_storage import MailStatsToObjectStorageOperator
from airflow_provider_mail.transfers.object_storage_to_mail import ObjectStorageToMailContactsOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from airflow_provider_mail.version_compat import AirflowFailException
from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_STATS, TRANSACTIONAL_STATS
from mail_emulator import Emulator
from tests.support.clock import Clock
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase
from tests.tasks.loading import WEEK, executed, load_task, sql_hook
from tests.tasks.sending import campaign


def extracted(operator: Any) -> tuple[Any, Any]:
    """The one input and the one output that the OpenLineage provider extracts of a task that has run."""
    executed(operator)
    found = DefaultExtractor(operator).extract_on_complete(None)
    assert found is not None
    (source,), (target,) = found.inputs, found.outputs
    assert source.inputFacets["inputStatistics"].rowCount == target.outputFacets["outputStatistics"].rowCount
    return source, target


@pytest.mark.parametrize(("kind", "table", "namespace", "name"), [
    ("sqlite", "mail_campaign_stats", "sqlite://localhost{folder}/warehouse.db", "mail_campaign_stats"),
    ("postgres", "mail_campaign_stats", "postgres://localhost:5432", "{database}.public.mail_campaign_stats"),
    ("postgres", "crm.Stats", "postgres://localhost:5432", "{database}.crm.stats"),
])  # fmt: skip
def test_a_load_into_a_table(
    emulator: Emulator, make_database: Any, tmp_path: Path, kind: str, table: str, namespace: str, name: str
) -> None:
    emulator.add_campaigns(5, prefix="c", first_day="2026-03-02", per_day=2)
    database = make_database(kind, "warehouse")
    if kind == "postgres":
        database.execute("CREATE SCHEMA crm")

    source, target = extracted(load_task("mail_campaign_stats", table=table, **WEEK))

    known = {"folder": tmp_path, "database": database.hook.get_connection("warehouse").schema}
    assert (source.namespace, source.name) == ("mail://mail_default", "campaigns/stats")
    assert (target.namespace, target.name) == (namespace.format(**known), name.format(**known))
    assert source.inputFacets["inputStatistics"].rowCount == 5
    fields = {field.name: field.type for field in target.facets["schema"].fields}
    assert (list(fields), fields["mail_send_date"]) == (list(CAMPAIGN_STATS.stored_names), "timestamp")


def test_days_of_another_account_into_files(emulator: Emulator, connect: Connect, tmp_path: Path) -> None:
    connect("sales")
    to: dict[str, Any] = {"path": f"file://{tmp_path}/days", "file_format": "jsonl", "kind": "transactional"}
    source, target = extracted(MailStatsToObjectStorageOperator(task_id=TASK, mail_conn_id="sales", **to, **WEEK))

    assert (source.namespace, source.name) == ("mail://sales", "transactional/stats")
    assert (target.namespace, target.name) == ("file", f"{tmp_path}/days")
    assert [field.name for field in target.facets["schema"].fields] == list(TRANSACTIONAL_STATS.stored_names)
    sizes = [path.stat().st_size for path in Path(target.name).glob("*/*")]
    written = target.outputFacets["outputStatistics"]
    assert (written.rowCount, written.fileCount, written.size) == (7, len(sizes), sum(sizes))


def test_a_load_that_fails_has_no_datasets(warehouse: SqlDatabase) -> None:
    operator = load_task("mail_campaign_stats", table="no table")
    with pytest.raises(AirflowFailException):
        executed(operator)
    found = DefaultExtractor(operator).extract_on_failure(None)
    assert found is None or (found.inputs, found.outputs) == ([], [])


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
    operator = again[lineage].MailLineage()
    operator.mail_conn_id = "mail_default"
    operator.moved("campaigns/stats", "lists/a", rows=3)
    assert again[assets].campaign_stats_asset().uri == "mail://mail_default/campaigns/stats"


def datasets(found: Any) -> tuple[list[str], list[str]]:
    """The names of the inputs and the outputs that OpenLineage extracts of a task."""
    return tuple([f"{one.namespace} {one.name}" for one in places] for places in (found.inputs, found.outputs))  # type: ignore[return-value]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_an_import_of_a_query_reports_its_tables(emulator: Emulator, make_database: Any, kind: str) -> None:
    database = make_database(kind, "warehouse")
    for table in ("people", "orders"):
        database.execute(f"CREATE TABLE {table} (email VARCHAR(50))")
        database.execute(f"INSERT INTO {table} VALUES ('ada@example.com')")
    sql = "SELECT p.email FROM people AS p JOIN orders ON orders.email = p.email"
    operator = SqlToMailContactsOperator(task_id=TASK, sql_conn_id="warehouse", sql=sql, list_name="News")
    executed(operator)
    found = DefaultExtractor(operator).extract_on_complete(None)
    assert found is not None
    expected = sorted(
        f"{place.namespace} {place.name}"
        for place in (SqlTable(database.hook, table).place() for table in ("people", "orders"))
    )
    assert (sorted(datasets(found)[0]), datasets(found)[1]) == (expected, ["mail://mail_default lists/News"])
    assert found.outputs[0].outputFacets["outputStatistics"].rowCount == 1


def test_an_import_of_a_file(emulator: Emulator, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("email\nada@example.com\n")
    path = f"file://{tmp_path}/people.csv"
    operator = ObjectStorageToMailContactsOperator(task_id=TASK, path=path, list_name="News")
    executed(operator)
    found = datasets(DefaultExtractor(operator).extract_on_complete(None))
    assert found == ([f"file {tmp_path}/people.csv"], ["mail://mail_default lists/News"])


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_campaign_reads_its_lists(run: Run, emulator: Emulator, clock: Clock, deferrable: bool) -> None:
    emulator.add_list("News", ["ada@example.com"])
    found = []

    def extract(context: Any, result: Any = None) -> None:
        found.append(datasets(DefaultExtractor(context["ti"].task).extract_on_complete(None)))

    waiting = {"wait_for_completion": True, "deferrable": deferrable}
    done = run(lambda: campaign(send_list_names=["News"], post_execute=extract, **waiting))
    assert done.state == "success"
    assert found == [(["mail://mail_default lists/News"], ["mail://mail_default campaigns"])]


def test_a_task_that_has_moved_nothing_leaves_it_to_inlets_and_outlets() -> None:
    assert datasets(MailLineage().get_openlineage_facets_on_complete(None)) == ([], [])


def test_assets_of_the_service() -> None:
    for asset, uri, dataset in (
        (transactional_stats_asset(), "transactional/stats", "transactional/stats"),
        (campaigns_asset(), "campaigns", "campaigns"),
        (list_asset("News & more/2"), "lists/News%20%26%20more%2F2", "lists/News & more/2"),
        (Asset("MAIL://mail_default//campaigns/stats/"), "campaigns/stats", "campaigns/stats"),
    ):
        assert asset.uri == Asset(asset.uri).uri == f"mail://mail_default/{uri}"
        found = convert_asset_to_openlineage(asset, None)
        assert (found.namespace, found.name) == ("mail://mail_default", dataset)


def test_each_account_has_assets_of_its_own() -> None:
    uris = {campaign_stats_asset(name).uri for name in ("team/a", "Team/a", "team:a", "team#a", "a@b", "a")}
    assert len(uris) == 6
    assert convert_asset_to_openlineage(campaign_stats_asset("team/a"), None).namespace == "mail://team/a"
    assert campaign_stats_asset(name="campaign counts", group="mail").name == "campaign counts"
    ends = {"/campaigns/stats": "an account", "acct/": "a resource", "acct/campaigns?day=1": "a query"}
    for end, words in ends.items():
        with pytest.raises(ValueError, match=f"must (not )?contain {words}"):
            Asset(f"mail://{end}")


POSTGRES = {"conn_type": "postgres", "host": "db.example.com", "schema": "dwh"}


@pytest.mark.parametrize(("connection", "table", "uri"), [
    (POSTGRES, "public.Stats", "postgres://db.example.com:5432/dwh/public/stats"),
    (POSTGRES | {"port": 6432}, 'crm."Stats 2026"', "postgres://db.example.com:6432/dwh/crm/Stats%202026"),
    (POSTGRES | {"conn_type": "mysql"}, "crm.stats", "mysql://db.example.com:3306/crm/stats"),
    ({"conn_type": "sqlite", "host": "/data/dwh.db"}, "stats", "sqlite://localhost/data/dwh.db/stats"),
    ({"conn_type": "duckdb", "host": "/data/dwh.db"}, "main.stats", "duckdb://localhost/data/dwh.db/main/stats"),
])  # fmt: skip
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
