"""The main job, in a real Airflow on embedded SQLite, with the email service emulated on this machine: ``make demo``.

Makes a database of 100,000 customers, starts the emulator and all of Airflow's components, runs the DAG of
``mail_campaign.py``, and shows what is in the statistics table: when the campaign has just gone out, and after
``mail_daily_statistics.py`` ran three (emulated) days later.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from airflow_provider_mail.emulator import EmulatorProcess, EmulatorSettings

T = TypeVar("T")
HERE = Path(__file__).resolve().parent
UNSENDABLE = 25


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contacts", type=int, default=100_000, help="customers in the database (default: 100,000)")
    parser.add_argument("--keep", action="store_true", help="leave Airflow running, to look around in its UI")
    options = parser.parse_args()
    with ExitStack() as stack:
        home = Path(stack.enter_context(temporary_folder()))
        make_customers(home / "crm.db", options.contacts)
        say(f"A database of {options.contacts:,} customers, {UNSENDABLE} of them with an address that cannot be one.")
        emulator = stack.enter_context(EmulatorProcess(EmulatorSettings(sending_seconds=15.0)))
        emulator.add_sender("news@example.com")
        say(f"The email service, emulated: {emulator.base_url}")
        airflow = stack.enter_context(Airflow.running(home, emulator))
        say(f"Airflow, all of it: {airflow.url}")

        began = time.monotonic()
        airflow.run("mail_campaign")
        say(f"The whole job took {time.monotonic() - began:.0f} s. In the warehouse now:")
        show(home / "warehouse.db", "SELECT * FROM mail_campaign_stats")
        say("What the import set aside:")
        show(home / "crm.db", "SELECT field, reason, COUNT(*) AS row_count FROM newsletter_rejects GROUP BY 1, 2")

        emulator.clock.advance(3 * 24 * 60 * 60)
        say("Three days later people have opened their mail. The daily job restates the statistics:")
        airflow.run("mail_daily_statistics")
        show(home / "warehouse.db", "SELECT * FROM mail_campaign_stats")
        created = emulator.journal.counts().get("/v5/campaign/mail/sends", 0)
        say(f"Requests to create a campaign that the service received: {created}.")
        if options.keep:
            say(f"Airflow stays up at {airflow.url} (databases in {home}). Press Ctrl-C to end it.")
            wait_for_interrupt()
    return 0


def make_customers(path: Path, count: int) -> None:
    """A customer database such as somebody might have, with a few addresses that are none."""
    every = max(count // UNSENDABLE, 1)

    def rows() -> Iterator[tuple[str, str, str | None]]:
        for number in range(count):
            address = f"customer{number}@example.com" if number % every else f"customer{number}(at)example.com"
            yield address, f"Customer {number}", f"+49 30 {number:07}" if number % 3 else None

    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE customers (email TEXT, full_name TEXT, phone TEXT, subscribed INT DEFAULT 1)")
        database.executemany("INSERT INTO customers (email, full_name, phone) VALUES (?, ?, ?)", rows())


class Airflow:
    """``airflow standalone``: API server, scheduler, dag-processor and triggerer on SQLite."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, timeout=30)

    @classmethod
    @contextmanager
    def running(cls, home: Path, emulator: EmulatorProcess) -> Iterator[Airflow]:
        """Start it, and end all of its processes."""
        port = free_port()
        environment = os.environ | settings(home, port) | connections(home, emulator)
        with (home / "airflow.log").open("wb") as log:
            for command in (["db", "migrate"], ["standalone"]):
                process = subprocess.Popen(
                    [sys.executable, "-m", "airflow", *command],
                    env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
                if command == ["db", "migrate"] and process.wait():
                    raise SystemExit(tail(home / "airflow.log"))
        airflow = cls(f"http://127.0.0.1:{port}")
        try:
            airflow._wait_until_up(process, home / "airflow.log")
            yield airflow
        finally:
            end(process)

    def run(self, dag_id: str) -> None:
        """Trigger a DAG and tell what its tasks do, until it has succeeded."""
        until(lambda: self._http.get(f"/api/v2/dags/{dag_id}").status_code == 200, f"the DAG {dag_id}")
        self._call("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": False})
        run_id = self._call("POST", f"/api/v2/dags/{dag_id}/dagRuns", {"logical_date": None})["dag_run_id"]
        say(f"DAG {dag_id}:")
        states: dict[str, str | None] = {}
        run = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}"
        while (state := self._call("GET", run)["state"]) in ("queued", "running"):
            self._tell_changes(run, states)
            time.sleep(0.5)
        self._tell_changes(run, states)
        if state != "success":
            raise SystemExit(f"The run of {dag_id} ended as {state}.")

    def _tell_changes(self, run: str, states: dict[str, str | None]) -> None:
        for task in self._call("GET", f"{run}/taskInstances")["task_instances"]:
            name, state = task["task_id"], task["state"]
            if state in (None, "scheduled", "queued") or states.get(name) == state:
                continue
            states[name] = state
            note = ""
            if state == "deferred":
                pool = self._call("GET", "/api/v2/pools/default_pool")
                note = f"waits in the triggerer; worker slots in use: {pool['running_slots']}"
            elif state == "success":
                note = self._result(run, name)
            print(f"    {name:<18} {state:<9} {note}", flush=True)

    def _result(self, run: str, task_id: str) -> str:
        answer = self._http.get(f"{run}/taskInstances/{task_id}/xcomEntries/return_value")
        if answer.status_code != 200:
            return ""
        value = answer.json()["value"]
        value = json.loads(value) if isinstance(value, str) else value
        return ", ".join(f"{key} {item}" for key, item in value.items() if item is not None)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = self._http.request(method, path, json=body)
        answer.raise_for_status()
        result: dict[str, Any] = answer.json()
        return result

    def _wait_until_up(self, process: subprocess.Popen[bytes], log: Path) -> None:
        def healthy() -> bool:
            if process.poll() is not None:
                raise SystemExit(tail(log))
            try:
                health = self._http.get("/api/v2/monitor/health").json()
            except (httpx.HTTPError, ValueError):
                return False
            return all(
                (health.get(name) or {}).get("status") == "healthy"
                for name in ("metadatabase", "scheduler", "dag_processor", "triggerer")
            )

        until(healthy, "Airflow", log)
        token = self._http.get("/auth/token").json()["access_token"]
        self._http.headers["Authorization"] = f"Bearer {token}"


def settings(home: Path, port: int) -> dict[str, str]:
    """Airflow's settings for a demonstration: nothing of the user's own Airflow is touched."""
    url = f"http://127.0.0.1:{port}"
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(HERE),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"{url}/",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
        "NO_PROXY": "127.0.0.1,localhost",
        # `airflow standalone` starts the components by the command's name.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }


def connections(home: Path, emulator: EmulatorProcess) -> dict[str, str]:
    """The three connections of the example DAGs."""
    mail = {"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key}
    return {
        "AIRFLOW_CONN_MAIL_DEFAULT": json.dumps(mail),
        "AIRFLOW_CONN_CRM": json.dumps({"conn_type": "sqlite", "host": str(home / "crm.db")}),
        "AIRFLOW_CONN_WAREHOUSE": json.dumps({"conn_type": "sqlite", "host": str(home / "warehouse.db")}),
    }


@contextmanager
def temporary_folder() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="mail-demo-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def until(look: Callable[[], T], what: str, log: Path | None = None, seconds: float = 180) -> T:
    """Look twice a second until there is something."""
    end_time = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > end_time:
            raise SystemExit(f"{what} did not come up in {seconds:.0f} s.\n{tail(log) if log else ''}")
        time.sleep(0.5)
    return found


def tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-40:])


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(15)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def show(path: Path, query: str) -> None:
    """Print rows, each column on a line when there is one row of many columns."""
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        for row in database.execute(query):
            print("    " + "\n    ".join(f"{name:<18} {_shown(row[name])}" for name in row.keys()))  # noqa: SIM118
            print()


def _shown(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def say(words: str) -> None:
    print(words, flush=True)


def wait_for_interrupt() -> None:
    try:
        signal.pause()
    except KeyboardInterrupt:
        say("Ending.")


if __name__ == "__main__":
    raise SystemExit(main())
