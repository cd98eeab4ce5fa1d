"""Deferred tasks in Airflow's database, as the scheduler sees them when all have deferred.

python -m benchmarks.waiting.deferred TRIGGER TASKS INTERVAL
"""

from __future__ import annotations

import sys
from uuid import uuid4

from airflow.models.dag import DagModel
from airflow.models.dag_version import DagVersion
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.trigger import Trigger
from airflow.utils.session import create_session
from sqlalchemy import insert

from benchmarks.waiting.service import campaign_name

DAG, TASK, RUN = "benchmark", "wait", "run"


def main(classpath: str, tasks: int, interval: float) -> None:
    with create_session() as session:
        session.add(DagBundleModel(name=DAG))
        session.flush()
        session.add(DagModel(dag_id=DAG, bundle_name=DAG, fileloc="benchmark.py", is_paused=False))
        session.flush()
        version = DagVersion.write_dag(dag_id=DAG, bundle_name=DAG, session=session)
        session.add(DagRun(dag_id=DAG, run_id=RUN, run_type="manual", state="running"))
        session.flush()
        for number in range(tasks):
            arguments = {"mail_conn_id": "mail_default", "mail_name": campaign_name(number), "poke_interval": interval}
            trigger = Trigger(classpath, arguments)
            session.add(trigger)
            session.flush()
            row = {
                "id": uuid4(),
                "dag_id": DAG,
                "task_id": TASK,
                "run_id": RUN,
                "map_index": number,
                "state": "deferred",
                "try_number": 1,
                "max_tries": 1,
                "pool": "default_pool",
                "queue": "default",
                "priority_weight": 1,
                "trigger_id": trigger.id,
                "next_method": "execute_complete",
                "dag_version_id": version.id,
            }
            session.execute(insert(TaskInstance).values(**row))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
