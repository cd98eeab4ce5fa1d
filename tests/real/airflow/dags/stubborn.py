"""A DAG whose only task needs a second try to end, for trying the harness."""

from __future__ import annotations

import datetime
import time

from airflow.sdk import DAG, task

with DAG("stubborn", schedule=None):

    @task(retries=1, retry_delay=datetime.timedelta(0))
    def sleep_once(ti=None) -> int:
        if ti.try_number == 1:
            time.sleep(600)
        return ti.try_number

    sleep_once()
