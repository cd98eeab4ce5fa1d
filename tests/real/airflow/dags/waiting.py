"""A DAG that waits for a file without a worker slot, for trying the harness."""

from __future__ import annotations

from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import DAG, task

with DAG("waiting", schedule=None, params={"text": "", "file": ""}):

    @task
    def answer(params: dict[str, str]) -> dict[str, str]:
        print("the answer is", params["text"])
        return {"text": params["text"]}

    FileSensor(task_id="wait", filepath="{{ params.file }}", poke_interval=1, deferrable=True) >> answer()
