"""Run as a script, with OpenLineage set up in the environment: a DAG whose tasks load statistics everywhere.

python -m tests.tasks.lineage_run <folder>
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Asset

from airflow_provider_mail.assets import campaign_stats_asset
from airflow_provider_mail.transfers.mail_to_object_storage import MailStatsToObjectStorageOperator
from airflow_provider_mail.transfers.mail_to_sql import MailCampaignStatsToSqlOperator
from tests.support.dags import AIRFLOW_VERSION, run_dag

WINDOW: dict[str, Any] = {"start_day": "2026-03-01", "end_day": "2026-03-07"}
RUN_DAY = datetime(2026, 3, 10, tzinfo=UTC)


def lineage_dag(folder: str) -> DAG:
    with DAG("lineage", schedule=None) as dag:
        MailCampaignStatsToSqlOperator(task_id="sqlite", sql_conn_id="sqlite_dwh", **WINDOW)
        MailCampaignStatsToSqlOperator(task_id="postgres", sql_conn_id="postgres_dwh", **WINDOW)
        MailCampaignStatsToSqlOperator(task_id="schema", sql_conn_id="postgres_dwh", table="crm.Stats", **WINDOW)
        MailCampaignStatsToSqlOperator(task_id="fails", sql_conn_id="sqlite_dwh", table="no table", **WINDOW)
        MailStatsToObjectStorageOperator(
            task_id="parquet", path=f"file://{folder}/parquet", file_format="parquet", **WINDOW
        )
        days: dict[str, Any] = {"kind": "transactional", "file_format": "jsonl", "mail_conn_id": "sales"}
        MailStatsToObjectStorageOperator(task_id="days", path=f"{folder}/days", **days, **WINDOW)
        MailStatsToObjectStorageOperator(
            task_id="assets",
            path=f"{folder}/assets",
            file_format="jsonl",
            inlets=[campaign_stats_asset()],
            outlets=[Asset("postgres://db.example.com/dwh/public/mail_campaign_stats")],
            **WINDOW,
        )
    return dag


def activate_assets(dag: DAG) -> None:
    """Do what the dag-processor does with inlets and outlets, which `dag.test()` of Airflow 3.0 wants done."""
    from airflow.models.asset import AssetActive, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import delete, or_, select

    assets = {asset.uri: asset for task in dag.tasks for asset in (*task.inlets, *task.outlets)}
    names = [asset.name for asset in assets.values()]
    with create_session() as session:
        # One that another test has under another name, or another address, would keep ours from being active.
        session.execute(delete(AssetActive).where(or_(AssetActive.uri.in_(assets), AssetActive.name.in_(names))))
        if AIRFLOW_VERSION >= (3, 1):
            return
        known = {tuple(row) for row in session.execute(select(AssetModel.name, AssetModel.uri))}
        for uri, asset in assets.items():
            if (asset.name, uri) not in known:
                session.add(AssetModel(name=asset.name, uri=uri, group=asset.group))
        session.flush()
        session.add_all(AssetActive(name=asset.name, uri=uri) for uri, asset in assets.items())


if __name__ == "__main__":
    dag = lineage_dag(sys.argv[1])
    activate_assets(dag)
    done = run_dag(dag, logical_date=RUN_DAY)
    print({task_id: task.state for (task_id, _), task in done.tasks.items()})
