"""Airflow's components for the demo, controlled over the REST API, with a reliable cleanup."""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from example_dags.demo import cleanup

T = TypeVar("T")
POLL_SECONDS = 0.5
DAGS_FOLDER = Path(__file__).resolve().parents[1]

COMPONENTS = {
    "api-server": ["api-server"],
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
}
HEALTHY = ("metadatabase", "scheduler", "dag_processor", "triggerer")


class Home:
    """A temporary folder, and a process that removes it and ends all started processes, even if the demo is killed."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="mail-demo-"))
        try:
            self._cleanup = subprocess.Popen(
                [sys.executable, cleanup.__file__, self.path], stdin=subprocess.PIPE, start_new_session=True
            )
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, command: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
        """Start a process in a new session.

        :param log: file for the output.
        """
        report = self._report
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # The new process reports itself, so that it is known even if the demo is killed right now.
                preexec_fn=lambda: report(os.getpid()),
            )
        self._started.append(process)
        return process

    def run(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        """Run a process and wait for it; raise an error with its output when it fails."""
        process = self.start(command, environment, log)
        if process.wait():
            raise SystemExit(tail(log))
        self._report(-process.pid)

    def _report(self, number: int) -> None:
        assert self._cleanup.stdin is not None
        os.write(self._cleanup.stdin.fileno(), f"{number}\n".encode())

    def close(self) -> None:
        """End all processes and remove the folder."""
        assert self._cleanup.stdin is not None
        self._cleanup.stdin.close()
        self._cleanup.wait()
        for process in self._started:
            process.wait()

    def __enter__(self) -> Home:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Airflow:
    """API server, scheduler, dag-processor and triggerer on SQLite, with a client of the REST API.

    :param home: folder for the files of Airflow.
    :param url: address of its API server.
    :param environment: that of its components.
    """

    def __init__(self, home: Home, url: str, environment: dict[str, str]) -> None:
        self.url = url
        self._home = home
        self._environment = environment
        self._http = httpx.Client(base_url=url, timeout=120, trust_env=False)

    @classmethod
    @contextmanager
    def running(cls, home: Home, **more: str) -> Iterator[Airflow]:
        """Start the components; all of their processes end afterwards.

        :param more: further environment of the components.
        """
        port = free_port()
        environment = settings(home.path, port) | more
        airflow = [sys.executable, "-m", "airflow"]
        home.run([*airflow, "db", "migrate"], environment, home.path / "db-migrate.out")
        processes = {
            name: home.start([*airflow, *arguments], environment, home.path / f"{name}.out")
            for name, arguments in COMPONENTS.items()
        }
        self = cls(home, f"http://127.0.0.1:{port}", environment)
        try:
            self._wait_until_up(home.path, processes)
            yield self
        finally:
            self._http.close()
            home.close()

    def add(self, collection: str, **item: Any) -> None:
        """Create a connection, a variable or a pool in Airflow's database.

        :param collection: ``connections``, ``variables`` or ``pools``.
        :param item: its fields.
        """
        self._call("POST", f"/api/v2/{collection}", item)

    def receive_events(self) -> None:
        """Have the email service push its events, and start what receives them."""
        # As `airflow mail receive`, which Airflow 3.0 and 3.1 do not have.
        command = [sys.executable, "-m", "airflow_provider_mail", "receive"]
        port = free_port()
        rotate = [*command, "rotate", "--enable", "--url", f"http://127.0.0.1:{port}"]
        self._home.run(rotate, self._environment, self._home.path / "receive-rotate.out")
        self._home.start([*command, "--port", str(port)], self._environment, self._home.path / "receive.out")

    def create_memory(self) -> None:
        """Create the table of who was mailed what."""
        command = [sys.executable, "-m", "airflow_provider_mail", "memory", "create"]
        self._home.run(command, self._environment, self._home.path / "memory-create.out")

    def erase(self, email: str) -> None:
        """Delete a contact at the service, as a task would with ``MailDeleteContactOperator``."""
        code = (
            "from airflow_provider_mail.api.contacts import DeleteContact; "
            "from airflow_provider_mail.hooks.mail import MailHook; "
            f"MailHook().send(DeleteContact(email={email!r}))"
        )
        # So that it reads connections from Airflow's database, as Airflow's own commands do.
        environment = self._environment | {"_AIRFLOW_PROCESS_CONTEXT": "server"}
        self._home.run([sys.executable, "-c", code], environment, self._home.path / "erase.out")

    def unpause_all(self) -> None:
        """Unpause every DAG."""
        self._call("PATCH", "/api/v2/dags?dag_id_pattern=~", {"is_paused": False})

    def approve(self, run: str, task_id: str) -> None:
        """Answer the question of a task, as Airflow's user interface does.

        :param run: path of the DAG run in the REST API.
        """
        answer = {"chosen_options": ["Approve"], "params_input": {}}
        self._call("PATCH", f"{run}/taskInstances/{task_id}/-1/hitlDetails", answer)

    def run(
        self,
        dag_id: str,
        *,
        show_results: bool = True,
        meanwhile: Callable[[str, Mapping[str, str | None]], None] = lambda run, states: None,
    ) -> None:
        """Trigger a DAG and print the states of its tasks until it has succeeded.

        :param show_results: whether to print what tasks return.
        :param meanwhile: called at each poll with the path of the DAG run in the REST API and the states of its tasks.
        """
        until(lambda: self._http.get(f"/api/v2/dags/{dag_id}").status_code == 200, f"the DAG {dag_id}")
        self._call("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": False})
        run_id = self._call("POST", f"/api/v2/dags/{dag_id}/dagRuns", {"logical_date": None})["dag_run_id"]
        say(f"DAG {dag_id}:")
        states: dict[str, str | None] = {}
        run = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}"
        while (state := self._call("GET", run)["state"]) in ("queued", "running"):
            self._print_changes(run, states, show_results)
            meanwhile(run, states)
            time.sleep(POLL_SECONDS)
        self._print_changes(run, states, show_results)
        if state != "success":
            raise SystemExit(f"The run of {dag_id} ended as {state}.")

    def _print_changes(self, run: str, states: dict[str, str | None], show_results: bool) -> None:
        for task in self._call("GET", f"{run}/taskInstances")["task_instances"]:
            name, state = task["task_id"], task["state"]
            if state in (None, "scheduled", "queued") or states.get(name) == state:
                continue
            states[name] = state
            note = ""
            if state == "deferred":
                pool = self._call("GET", "/api/v2/pools/default_pool")
                note = f"waits in the triggerer; worker slots in use: {pool['running_slots']}"
            elif state == "success" and show_results:
                note = self._result(run, name)
            say(f"    {name:<26} {state:<9} {note}")

    def _result(self, run: str, task_id: str) -> str:
        response = self._http.get(f"{run}/taskInstances/{task_id}/xcomEntries/return_value")
        if response.status_code != 200:
            return ""
        value = response.json()["value"]
        value = json.loads(value) if isinstance(value, str) else value
        return ", ".join(f"{key} {item}" for key, item in value.items() if item is not None)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        response = self._http.request(method, path, json=body)
        response.raise_for_status()
        result: dict[str, Any] = response.json()
        return result

    def _wait_until_up(self, home: Path, processes: dict[str, subprocess.Popen[bytes]]) -> None:
        def healthy() -> bool:
            for name, process in processes.items():
                if process.poll() is not None:
                    raise SystemExit(f"Airflow's {name} has ended:\n{tail(home / f'{name}.out')}")
            try:
                health = self._http.get("/api/v2/monitor/health").json()
            except (httpx.HTTPError, ValueError):
                return False
            return all((health.get(name) or {}).get("status") == "healthy" for name in HEALTHY)

        until(healthy, "Airflow")
        token = self._http.get("/auth/token").json()["access_token"]
        self._http.headers["Authorization"] = f"Bearer {token}"


def settings(home: Path, port: int) -> dict[str, str]:
    """Return the environment of the components, independent of the user's Airflow.

    :param home: folder for the files of Airflow.
    :param port: port of the API server.
    """
    url = f"http://127.0.0.1:{port}"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "_AIRFLOW_"))}
    return inherited | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS_FOLDER),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
        "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        # On a busy machine the first response takes longer than the default of five seconds.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__BASE_URL": f"{url}/",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(48),
        # SQLite has one writer at a time; others wait for these seconds.
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db?timeout=60",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }


def until(poll: Callable[[], T], what: str, seconds: float = 180) -> T:
    """Poll twice a second until the result is true, and return it.

    :param what: what is waited for, for the message.
    :raises SystemExit: it took longer.
    """
    end_time = time.monotonic() + seconds
    while not (result := poll()):
        if time.monotonic() > end_time:
            raise SystemExit(f"{what} did not come up in {seconds:.0f} s.")
        time.sleep(POLL_SECONDS)
    return result


def tail(log: Path) -> str:
    """Return the last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-40:])


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def say(text: str) -> None:
    """Print text at once."""
    print(text, flush=True)
