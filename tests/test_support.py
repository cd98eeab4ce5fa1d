"""The tests' own tools do what they say."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import env
from tests.support.dags import RunResult, TaskResult
from tests.support.postgres import Database


def test_airflow_knows_nothing_of_the_machine(monkeypatch: pytest.MonkeyPatch, airflow_home: Path) -> None:
    from airflow.configuration import conf

    assert Path(os.environ["AIRFLOW_HOME"]) == airflow_home
    assert conf.get("core", "dags_folder") == str(airflow_home / "dags")

    monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", "mail://somebody-elses")
    assert "AIRFLOW_CONN_MAIL_DEFAULT" not in env.clean_environment()
    with pytest.raises(RuntimeError, match="before airflow"):
        env.install()


def test_run_dag_runs_tasks_triggers_and_retries(run_dag: Callable[..., RunResult]) -> None:
    from airflow.providers.standard.sensors.date_time import DateTimeSensorAsync
    from airflow.sdk import DAG, task

    day = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)

    with DAG("support_run_dag", schedule="@daily", start_date=day) as dag:

        @task(retries=1, retry_delay=datetime.timedelta(0))
        def second_try(ti=None) -> dict[str, int]:
            if ti.try_number == 1:
                raise ValueError("not yet")
            return {"try": ti.try_number}

        @task
        def double(number: int) -> int:
            return 2 * number

        @task
        def broken() -> None:
            raise ValueError("always")

        soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=1)
        waiting = DateTimeSensorAsync(task_id="waiting", target_time=soon.isoformat())
        waiting >> double.expand(number=[1, 2])
        second_try()
        broken()

    run = run_dag(dag, logical_date=day)

    assert run.state == "failed"
    assert run.task("waiting").state == "success"
    assert run.task("second_try") == TaskResult("success", 2)
    assert run.task("broken") == TaskResult("failed", 1)
    assert run.xcom("second_try") == {"try": 2}
    assert [run.xcom("double", map_index=index) for index in (0, 1)] == [2, 4]
    assert run.xcom("broken") is None


def test_postgres_database_is_empty_and_real(postgres_database: Database) -> None:
    with postgres_database.connect() as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        version = connection.execute("SHOW server_version").fetchone()
    assert tables == (0,)
    assert version
    assert int(version[0].split(".")[0]) >= 16
