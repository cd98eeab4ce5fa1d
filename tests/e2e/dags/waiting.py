"""A DAG that waits without a worker slot, for trying the harness."""

from __future__ import annotations

import datetime

from airflow.providers.standard.sensors.time_delta import TimeDeltaSensor
from airflow.sdk import DAG, task

with DAG("waiting", schedule=None, params={"text": ""}):

    @task
    def answer(params: dict[str, str]) -> dict[str, str]:
        print("the answer is", params["text"])
        return {"text": params["text"]}

    TimeDeltaSensor(task_id="wait", delta=datetime.timedelta(seconds=15), deferrable=True) >> answer()
