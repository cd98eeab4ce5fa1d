"""The drain of pushed events, a DAG that runs when some were stored, and the comparison."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset, task

from airflow_provider_mail.operators.events import MailReconcileEventsOperator
from airflow_provider_mail.sensors.events import MailInboxSensor
from airflow_provider_mail.transfers.events_to_sql import MailEventsToSqlOperator

stored_events = Asset("pushed_stored_events")

with DAG("pushed_drain", schedule=None):
    came = MailInboxSensor(task_id="came", deferrable=True, poke_interval=1)
    came >> MailEventsToSqlOperator(task_id="drain", sql_conn_id="warehouse", outlets=[stored_events])

with DAG("pushed_follow", schedule=[stored_events]):

    @task
    def counts(triggering_asset_events: Any = None) -> list[dict[str, Any]]:
        return [event.extra for events in triggering_asset_events.values() for event in events]

    counts()

with DAG("pushed_compare", schedule=None, params={"day": ""}):
    MailReconcileEventsOperator(
        task_id="compare", sql_conn_id="warehouse", start_day="{{ params.day }}", end_day="{{ params.day }}"
    )
