"""Waits for a campaign by coming back: a worker slot is held for each look only."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_mail.sensors.campaigns import MailCampaignSensor

with DAG("mail_reschedule", schedule=None, params={"mail_name": ""}):
    MailCampaignSensor(
        task_id="wait", mail_name="{{ params.mail_name }}", mode="reschedule", poke_interval=2, deferrable=False
    )
