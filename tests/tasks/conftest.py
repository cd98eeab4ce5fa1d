"""What the tests of the tasks need: connections to the emulator and to databases, and a run of a small DAG."""

from __future__ import annotations

import functools
import json
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.sql.hooks.sql import DbApiHook
from airflow.providers.postgres.hooks.postgres import PostgresHook
from airflow.providers.sqlite.hooks.sqlite import SqliteHook
from airflow.sdk import DAG
from airflow.sdk.execution_time import supervisor, task_runner

from airflow_provider_mail.webhook.inbox import Inbox
from mail_emulator import Emulator
from tests.support.clock import Clock
from tests.support.dags import AIRFLOW_VERSION, RunResult
from tests.support.postgres import PostgresServer
from tests.support.task_runner import run_tasks

TASK = "task"
Connect = Callable[..., None]


@pytest.fixture
def connect(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """A function that makes a connection to the emulator, with fields of the form as keywords."""

    def connect(conn_id: str = "mail_default", *, host: str = "", password: str = "", **extra: Any) -> None:
        extra = {"test_clock": True, **extra}  # many tests move the clock of the emulator
        fields = {"host": host or emulator.base_url, "password": password or emulator.api_key, "extra": extra}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": "mail", **fields}))

    return connect


@pytest.fixture(autouse=True)
def _mail_default(connect: Connect) -> None:
    connect()


@pytest.fixture(autouse=True)
def _passing(clock: Clock) -> None:
    """Time passes at once."""


@dataclass(frozen=True)
class Done:
    """A run of a DAG that has ended.

    :param log: what the tasks logged, and the errors with which they ended, with all that led to them.
    """

    result: RunResult
    log: str = field(repr=False)

    @property
    def state(self) -> str:
        """Of the task named `TASK`, when there is one that is not mapped; else of the run."""
        task = self.result.tasks.get((TASK, -1))
        return task.state if task else self.result.state

    @property
    def tries(self) -> int:
        return self.result.task(TASK).try_number

    @property
    def returned(self) -> Any:
        return self.result.xcom(TASK)

    def rendered(self) -> str:
        """What Airflow stored of the rendered fields of all tasks."""
        fields = self.result.rendered_fields()
        assert fields
        return json.dumps(fields)


Run = Callable[..., Done]


@pytest.fixture(autouse=True, scope="session")
def _made_once() -> None:
    """Keep what Airflow makes anew for each task, which takes longer than the task.

    On 3.0 it is an API server in this process, later the validator of each rendered field.
    """
    supervisor.in_process_api_server = functools.cache(supervisor.in_process_api_server)
    task_runner.TypeAdapter = functools.cache(task_runner.TypeAdapter)


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """The errors with which tasks ended, of every try, in the order in which they ran."""
    noted = []
    original = task_runner.run

    def run(*arguments: Any, **options: Any) -> Any:
        state, message, error = original(*arguments, **options)
        if error is not None:
            noted.append(error)
        return state, message, error

    monkeypatch.setattr(task_runner, "run", run)
    return noted


@pytest.fixture
def new_dag(request: pytest.FixtureRequest) -> Callable[..., DAG]:
    """A function that makes a DAG whose id nobody else has; runs are by hand unless told otherwise."""
    numbers = iter(range(100))

    def new_dag(**options: Any) -> DAG:
        name = re.sub(r"[^\w.-]+", "_", request.node.nodeid.rpartition("tests/")[2])
        return DAG(f"{name[-200:]}.{next(numbers)}", **{"schedule": None, **options})

    return new_dag


@pytest.fixture
def run_with(
    new_dag: Callable[..., DAG],
    errors: list[BaseException],
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> Callable[..., Done]:
    """A function that runs a DAG with what runs DAGs, and adds the log to what came of it."""

    def run_with(runner: Callable[..., RunResult], what: DAG | Callable[[], Any], **options: Any) -> Done:
        dag = what
        if not isinstance(dag, DAG):
            with new_dag() as dag:
                what()  # type: ignore[operator]
        for forget in (capfd.readouterr, caplog.clear, errors.clear):
            forget()
        result = runner(dag, **options)
        printed = capfd.readouterr().out
        # Airflow 3.0 prints what `dag.test()` talks with itself, and logs as everybody does; later ones print all.
        logged = caplog.text if AIRFLOW_VERSION < (3, 1) else printed
        ends = ["".join(traceback.format_exception(error)) for error in errors]
        print(printed)  # for who reads of a failed test
        return Done(result, "\n".join([logged, *ends]))

    return run_with


@pytest.fixture
def run(run_with: Callable[..., Done]) -> Run:
    """A function that runs a DAG, or what a function makes inside a new one, and gives back what came of it.

    The tasks are run by Airflow's task runner, without Airflow's database. A single task should be called `TASK`.
    """
    return functools.partial(run_with, run_tasks)


@pytest.fixture
def failure(run: Run) -> Callable[[Callable[[], Any]], str]:
    """A function that says why a task cannot work: with the DAG file, or else when it runs."""

    def failure(make: Callable[[], Any]) -> str:
        try:
            done = run(make)
        except ValueError as error:
            return str(error)
        assert done.state == "failed"
        return done.log

    return failure


@pytest.fixture
def run_in_airflow(run_with: Callable[..., Done], run_dag: Callable[..., RunResult]) -> Run:
    """`run` by `dag.test()`, for what the scheduler, the database or the API of Airflow does: a second each."""
    return functools.partial(run_with, run_dag)


@dataclass(frozen=True)
class SqlDatabase:
    """A real database behind an Airflow connection."""

    conn_id: str
    hook: DbApiHook

    @property
    def is_sqlite(self) -> bool:
        return isinstance(self.hook, SqliteHook)

    def execute(self, sql: str, rows: Sequence[Sequence[Any]] = ()) -> None:
        with closing(self.hook.get_conn()) as connection:
            cursor = connection.cursor()
            if rows:
                marks = ", ".join([self.hook.placeholder] * len(rows[0]))
                cursor.executemany(f"{sql} VALUES ({marks})", rows)
            else:
                cursor.execute(sql)
            connection.commit()

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(self.hook.get_conn()) as connection:
            cursor = connection.cursor()
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]

    def tables(self) -> set[str]:
        """The names of its tables, of SQLite."""
        return {name for (name,) in self.query("SELECT name FROM sqlite_master WHERE type = 'table'")}


@pytest.fixture
def make_database(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, str], SqlDatabase]]:
    """A function from the kind of database and a connection id to an empty database."""
    with ExitStack() as exits:

        def make(kind: str, conn_id: str) -> SqlDatabase:
            if kind == "sqlite":
                connection = json.dumps({"conn_type": "sqlite", "host": str(tmp_path / f"{conn_id}.db")})
            else:
                server: PostgresServer = request.getfixturevalue("postgres_server")
                database = server.create()
                exits.callback(server.drop, database)
                connection = database.airflow_connection
            monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", connection)
            return SqlDatabase(conn_id, (SqliteHook if kind == "sqlite" else PostgresHook)(conn_id))

        yield make


@pytest.fixture
def crm(make_database: Callable[[str, str], SqlDatabase]) -> SqlDatabase:
    """An SQLite database of contacts, empty."""
    return make_database("sqlite", "crm")


@pytest.fixture(params=["sqlite", "postgres"])
def any_crm(request: pytest.FixtureRequest, make_database: Callable[[str, str], SqlDatabase]) -> SqlDatabase:
    """A database of contacts of each kind, empty."""
    return make_database(request.param, "crm")


@pytest.fixture
def warehouse(make_database: Callable[[str, str], SqlDatabase]) -> SqlDatabase:
    """An SQLite warehouse, empty."""
    return make_database("sqlite", "warehouse")


@pytest.fixture(params=["sqlite", "postgres"])
def any_warehouse(request: pytest.FixtureRequest, make_database: Callable[[str, str], SqlDatabase]) -> SqlDatabase:
    """A warehouse of each kind, empty."""
    return make_database(request.param, "warehouse")


@pytest.fixture
def inbox(make_database: Callable[[str, str], SqlDatabase], monkeypatch: pytest.MonkeyPatch) -> Inbox:
    """The configured inbox, empty."""
    inbox = Inbox(make_database("sqlite", "inbox").hook)
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "inbox")
    inbox.create()
    return inbox
