"""Waits for a campaign by coming back: a worker slot is held for each look only."""

from __future__ import annotations

import datetime

from airflow.sdk import DAG

from airflow_provider_mail.sensors.campaigns import MailCampaignSensor

with DAG("mail_reschedule", schedule=None, params={"mail_name": ""}):
    MailCampaignSensor(
        task_id="wait",
        mail_name="{{ params.mail_name }}",
        mode="reschedule",
        deferrable=False,
        # A task that comes back before the scheduler has noted that it left is taken for failed.
        poke_interval=8,
        retries=2,
        retry_delay=datetime.timedelta(0),
    )
