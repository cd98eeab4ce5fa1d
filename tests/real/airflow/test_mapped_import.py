"""An import that is mapped over key ranges, on real executors: nobody is lost, nobody is there twice, limits hold.

``make test-celery`` runs them: they take minutes, and Celery needs Airflow's provider for it and `redis-server`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import socket
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.emulator import EmulatorSettings
from airflow_provider_mail.emulator.client import EmulatorProcess
from tests.support.airflow import RunningAirflow
from tests.support.postgres import Database, PostgresServer
from tests.support.processes import Component, free_port, wait_until

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.environ.get("MAIL_CELERY") != "1", reason="make test-celery runs it"),
]

IMPORTS = "contacts/imports"
DAG_ID, TASK = "mapped_import", "task"


@dataclass(frozen=True)
class Job:
    """What is imported, and within which limits.

    :param slots: of the pool: tasks that import at once.
    :param rate: requests per second, of one task.
    """

    contacts: int
    tasks: int
    chunk: int
    slots: int
    rate: int


@contextlib.contextmanager
def airflow_with(
    job: Job, folder: Path, postgres: PostgresServer, service: EmulatorProcess, **settings: str
) -> Iterator[RunningAirflow]:
    """An Airflow with the pool `mail` and the connections `mail_default` and `crm`, which has these many contacts."""
    mail = {"conn_type": "mail", "host": service.base_url, "password": service.api_key}
    with postgres.database() as metadata, postgres.database() as crm:
        _fill(crm, job.contacts)
        environment = {
            "AIRFLOW_CONN_MAIL_DEFAULT": json.dumps({**mail, "extra": {"requests_per_second": job.rate}}),
            "AIRFLOW_CONN_CRM": crm.airflow_connection,
            "MAIL_TEST_RANGES": str(job.tasks),
            "MAIL_TEST_CHUNK": str(job.chunk),
            **settings,
        }
        with RunningAirflow(
            folder,
            database=metadata,
            dags_folder=Path(__file__).parent / "mapped_dags",
            extra_env=environment,
            parallelism=4,
        ) as airflow:
            pool = {"name": "mail", "slots": job.slots, "description": "imports at once", "include_deferred": False}
            airflow.api.request("POST", "/pools", json=pool)
            yield airflow


def _fill(crm: Database, contacts: int) -> None:
    with crm.connect() as connection:
        # Keys with gaps, and a few without: ranges are even in rows, and nobody is left out.
        connection.execute(
            "CREATE TABLE people AS SELECT CASE WHEN n % 1000 > 0 THEN n * n END AS id, 'p' || n || '@example.com' "
            f"AS email, 'Person ' || n AS name FROM generate_series(1::bigint, {contacts}) AS n"
        )


def check(job: Job, airflow: RunningAirflow, service: EmulatorProcess, *, timeout: float) -> dict[int, dict[str, Any]]:
    """Run it, and compare what the service holds and has seen with what was asked for.

    :return: what each of the mapped tasks did.
    """
    run_id = airflow.start_run(DAG_ID)
    assert airflow.wait_for_run(DAG_ID, run_id, timeout=timeout) == "success"

    tasks = {index: ti for (name, index), ti in airflow.tasks(DAG_ID, run_id).items() if name == TASK}
    results = {index: airflow.xcom(DAG_ID, run_id, TASK, map_index=index) for index in tasks}
    assert sorted(tasks) == list(range(job.tasks))
    assert [ti["state"] for ti in tasks.values()] == ["success"] * job.tasks
    assert sum(result["accepted"] for result in results.values()) == job.contacts
    # Those without a key, one in a thousand, are all in the first.
    assert max(result["accepted"] for result in results.values()) <= job.contacts / job.tasks + job.contacts / 1000 + 1

    assert service.contact_count() == service.contact_count("everybody") == job.contacts
    entries = service.journal.entries(IMPORTS)
    assert len(entries) == sum(result["requests"] for result in results.values())
    sent = sum(_rows(entry["body"]["contactData"]) for entry in entries)
    most = service.journal.most_in_flight()
    seconds = Counter(entry["real_ms"] // 1000 for entry in entries)
    span = (entries[-1]["real_ms"] - entries[0]["real_ms"]) / 1000
    print(
        f"\n{job}: {service.contact_count('everybody'):,} contacts held, {sent:,} sent in {len(entries)} requests by "
        f"{len(tasks)} tasks in {span:.1f} s; at most {most} requests at once, {max(seconds.values())} in one second; "
        f"on {Counter(ti['hostname'] for ti in tasks.values())}"
    )
    # Each once: no answer was lost here, so nothing had to be sent again.
    assert sent == job.contacts
    assert most <= job.slots * 2
    # Evenly spaced when they leave; on a busy machine those under way arrive closer to the next.
    assert max(seconds.values()) <= job.slots * (job.rate + 3)
    return tasks


def _rows(contact_data: Any) -> int:
    """The journal keeps the number of rows, but few rows as they are."""
    rows: int = contact_data["rows"] if isinstance(contact_data, dict) else len(contact_data)
    return rows


@pytest.fixture
def service() -> Iterator[EmulatorProcess]:
    with EmulatorProcess(EmulatorSettings(journal_body_bytes=2000, latency_seconds=0.05)) as service:
        yield service
        assert service.crashes() == []


def test_on_the_local_executor(tmp_path: Path, postgres_server: PostgresServer, service: EmulatorProcess) -> None:
    job = Job(contacts=40_000, tasks=8, chunk=250, slots=3, rate=10)

    with airflow_with(job, tmp_path, postgres_server, service) as airflow:
        tasks = check(job, airflow, service, timeout=300)

    assert _most_at_once(tasks) == job.slots


def _most_at_once(tasks: Mapping[int, Mapping[str, Any]]) -> int:
    """How many of the tasks ran at the same time."""
    return max(
        sum(other["start_date"] <= ti["start_date"] < other["end_date"] for other in tasks.values())
        for ti in tasks.values()
    )


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[str]:
    """A Redis on loopback that keeps nothing; its URL."""
    program = shutil.which("redis-server")
    assert program, "redis-server is needed"
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
    server = Component("redis", [program, *options], env=os.environ, log=folder / "redis.out")

    def answers() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False

    server.start()
    try:
        wait_until(answers, what="Redis", interval=0.1)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.stop()


def test_on_celery(tmp_path: Path, postgres_server: PostgresServer, service: EmulatorProcess) -> None:
    assert importlib.util.find_spec("airflow.providers.celery"), "apache-airflow-providers-celery is needed"
    job = Job(contacts=1_000_000, tasks=20, chunk=2_500, slots=3, rate=10)

    with redis(tmp_path) as broker, postgres_server.database() as results:
        settings = {
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__CELERY__BROKER_URL": broker,
            "AIRFLOW__CELERY__RESULT_BACKEND": f"db+{results.sqlalchemy_url}",
            "AIRFLOW__CELERY__WORKER_CONCURRENCY": "2",
        }
        with (
            airflow_with(job, tmp_path / "airflow", postgres_server, service, **settings) as airflow,
            workers(2, airflow, tmp_path) as names,
        ):
            tasks = check(job, airflow, service, timeout=1500)
            assert _most_at_once(tasks) == job.slots
        logs = {name: (tmp_path / f"{name}.out").read_text(errors="replace") for name in names}

    # Both workers had a share, so it did run on Celery.
    for name, log in logs.items():
        print(f"{name}: {log.count('succeeded in')} tasks")
        assert "succeeded in" in log


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
            wait_until(lambda log=worker.log: " ready." in log.read_text(errors="replace"), what="a worker", timeout=90)
        yield names
    except BaseException as error:
        for worker in started:
            error.add_note(worker.tail())
        raise
    finally:
        for worker in started:
            worker.stop(timeout=20)
