"""An import that is mapped over key ranges, on real executors: nobody is lost, nobody is there twice, limits hold.

``make test-celery`` runs them: they take minutes, and Celery needs Airflow's provider for it and `redis-server`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mail_emulator import EmulatorSettings
from mail_emulator.client import EmulatorProcess
from tests.support.airflow import RunningAirflow
from tests.support.postgres import PostgresServer
from tests.support.processes import Component, wait_until
from tests.support.redis_server import RedisServer

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.environ.get("MAIL_CELERY") != "1", reason="make test-celery runs it"),
]

DAG_ID, TASK = "mapped_import", "task"


class Job(NamedTuple):
    """What is imported, and within which limits: slots of the pool, and requests per second of one task."""

    contacts: int
    tasks: int
    chunk: int
    slots: int = 3
    rate: int = 10


@contextlib.contextmanager
def airflow_with(
    job: Job, folder: Path, postgres: PostgresServer, service: EmulatorProcess, **settings: str
) -> Iterator[RunningAirflow]:
    """An Airflow with the pool `mail` and the connections `mail_default` and `crm`, which has these many contacts."""
    mail = {"conn_type": "mail", "host": service.base_url, "password": service.api_key}
    dags = Path(__file__).parent / "mapped_dags"
    with postgres.database() as metadata, postgres.database() as crm:
        with crm.connect() as connection:
            # Keys with gaps, and a few without: ranges are even in rows, and nobody is left out.
            connection.execute(
                "CREATE TABLE people AS SELECT CASE WHEN n % 1000 > 0 THEN n * n END AS id, 'p' || n || '@example.com' "
                f"AS email, 'Person ' || n AS name FROM generate_series(1::bigint, {job.contacts}) AS n"
            )
        environment = {
            "AIRFLOW_CONN_MAIL_DEFAULT": json.dumps({**mail, "extra": {"requests_per_second": job.rate}}),
            "AIRFLOW_CONN_CRM": crm.airflow_connection,
            "MAIL_TEST_RANGES": str(job.tasks),
            "MAIL_TEST_CHUNK": str(job.chunk),
            **settings,
        }
        with RunningAirflow(folder, database=metadata, dags_folder=dags, extra_env=environment) as airflow:
            pool = {"name": "mail", "slots": job.slots, "description": "imports at once", "include_deferred": False}
            airflow.api.request("POST", "/pools", json=pool)
            yield airflow


def check(job: Job, airflow: RunningAirflow, service: EmulatorProcess) -> None:
    """Run it, and compare what the service holds and has seen with what was requested."""
    run_id = airflow.start_run(DAG_ID)
    assert airflow.wait_for_run(DAG_ID, run_id, timeout=1500) == "success"

    tasks = {index: ti for (name, index), ti in airflow.tasks(DAG_ID, run_id).items() if name == TASK}
    results = {index: airflow.xcom(DAG_ID, run_id, TASK, map_index=index) for index in tasks}
    assert sorted(tasks) == list(range(job.tasks))
    assert [ti["state"] for ti in tasks.values()] == ["success"] * job.tasks
    assert sum(result["accepted"] for result in results.values()) == job.contacts
    # Those without a key, one in a thousand, are all in the first.
    assert max(result["accepted"] for result in results.values()) <= job.contacts / job.tasks + job.contacts / 1000 + 1

    assert service.contact_count() == service.contact_count("everybody") == job.contacts
    entries = service.journal.entries("contacts/imports")
    assert len(entries) == sum(result["requests"] for result in results.values())
    # Each once: no response was lost here, so nothing had to be sent again. The journal keeps the number of many rows.
    sent = [entry["body"]["contactData"] for entry in entries]
    assert sum(rows["rows"] if isinstance(rows, dict) else len(rows) for rows in sent) == job.contacts
    assert service.journal.most_in_flight() <= job.slots * 2
    starts = [(ti["start_date"], ti["end_date"]) for ti in tasks.values()]
    assert max(sum(begin <= start < end for begin, end in starts) for start, _ in starts) <= job.slots


@pytest.fixture
def service() -> Iterator[EmulatorProcess]:
    with EmulatorProcess(EmulatorSettings(journal_body_bytes=2000, latency_seconds=0.05)) as service:
        yield service
        assert service.crashes() == []


def test_on_the_local_executor(tmp_path: Path, postgres_server: PostgresServer, service: EmulatorProcess) -> None:
    job = Job(contacts=40_000, tasks=8, chunk=250)
    with airflow_with(job, tmp_path, postgres_server, service) as airflow:
        check(job, airflow, service)


def test_on_celery(tmp_path: Path, postgres_server: PostgresServer, service: EmulatorProcess) -> None:
    assert importlib.util.find_spec("airflow.providers.celery"), "apache-airflow-providers-celery is needed"
    job = Job(contacts=1_000_000, tasks=20, chunk=2_500)
    with RedisServer(tmp_path) as redis, postgres_server.database() as results:
        settings = {
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__CELERY__BROKER_URL": redis.url,
            "AIRFLOW__CELERY__RESULT_BACKEND": f"db+{results.sqlalchemy_url}",
            "AIRFLOW__CELERY__WORKER_CONCURRENCY": "2",
        }
        with (
            airflow_with(job, tmp_path / "airflow", postgres_server, service, **settings) as airflow,
            workers(2, airflow, tmp_path) as names,
        ):
            check(job, airflow, service)
        # Both workers had a share, so it did run on Celery.
        assert all("succeeded in" in (tmp_path / f"{name}.out").read_text(errors="replace") for name in names)


@contextlib.contextmanager
def workers(count: int, airflow: RunningAirflow, folder: Path) -> Iterator[list[str]]:
    """Celery workers beside Airflow's other components; their names."""
    names = [f"worker{number}" for number in range(count)]
    command = [sys.executable, "-m", "airflow", "celery", "worker", "--skip-serve-logs", "--without-mingle"]
    started = [
        Component(name, [*command, "-H", f"{name}@localhost"], env=airflow.environment, log=folder / f"{name}.out")
        for name in names
    ]
    try:
        for worker in started:
            worker.start()
        for worker in started:
            wait_until(lambda log=worker.log: " ready." in log.read_text(errors="replace"), what="a worker")
        yield names
    except BaseException as error:
        for worker in started:
            error.add_note(worker.tail())
        raise
    finally:
        for worker in started:
            worker.stop(timeout=20)
