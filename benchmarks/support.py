"""What the benchmarks share: measured processes, services in processes of their own, and the figures."""

from __future__ import annotations

import gc
import json
import os
import resource
import sqlite3
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.line import Address
    from tests.support.postgres import PostgresServer

ROOT = Path(__file__).resolve().parents[1]
MEASURED_ROOT = "BENCHMARK_ROOT"
"""The variable with another checkout of the project, whose package is measured instead of this one's."""

Run = Callable[[], int]
"""A measured run; returns how many records it moved."""

RATIO_HEADER = f"{'':64}{'median':>8}{'from':>8}{'to':>8}   aim"


@dataclass(frozen=True)
class Result:
    """One run: seconds, CPU seconds, peak memory in MiB beyond that of the imports."""

    seconds: float
    cpu: float
    memory: float


class TaskStateStore:
    """Stands for Airflow's task state store, which users of Airflow 3.3 have: each write is committed to a file.

    Airflow's own takes longer, a request to the API server for each write, but no more of the task's CPU.
    """

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value TEXT)")

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value."""
        row = self._database.execute("SELECT value FROM state WHERE key = ?", [key]).fetchone()
        return default if row is None else json.loads(row[0])

    def set(self, key: str, value: Any, *, retention: object = None) -> None:
        """Store a value.

        :param retention: not used here: nothing expires.
        """
        self._database.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", [key, json.dumps(value)])

    def delete(self, key: str) -> None:
        """Delete a value."""
        self._database.execute("DELETE FROM state WHERE key = ?", [key])


def imported(sql_conn_id: str, *modules: str) -> Any:
    """Import what a task imports when it runs, and return the hook of the database."""
    from airflow.providers.common.compat.sdk import BaseHook

    hook = BaseHook.get_hook(sql_conn_id)  # imports the hook and the driver
    hook.get_conn().close()
    for module in (*modules, "encodings.idna"):
        import_module(module)
    return hook


def measure(run: Run) -> None:
    """Run once and print the result as JSON."""
    gc.collect()
    idle = _memory_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far was that of the imports
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    records = run()
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    result = {"seconds": seconds, "cpu": cpu, "memory": _memory_mib("VmHWM") - idle, "records": records}
    print(json.dumps(result))


def _memory_mib(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def measured(
    variant: object, command: Sequence[str], *, home: Path, address: Address, **more: str
) -> tuple[Result, int]:
    """Run a variant in a new process with an Airflow of its own; return the result and the number of records.

    :param variant: the variant, for errors.
    :param command: the command, which prints what :func:`measure` prints.
    :param home: Airflow's folder.
    :param address: of the service.
    :param more: further environment.
    :raises RuntimeError: the process failed.
    """
    env = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")}
    env = {name: value for name, value in env.items() if not name.startswith("AIRFLOW")}
    root = os.environ.get(MEASURED_ROOT) or str(ROOT)
    env |= {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "PYTHONPATH": root,
        **service_environment(address),
        **more,
    }
    process = subprocess.run(command, env=env, cwd=root, capture_output=True, text=True, check=False)
    if process.returncode:
        raise RuntimeError(f"{variant} failed:\n{process.stdout}\n{process.stderr}")
    result = json.loads(process.stdout.splitlines()[-1])
    return Result(result["seconds"], result["cpu"], result["memory"]), result["records"]


def service_environment(address: Address) -> dict[str, str]:
    """Return Airflow's connections to the service, and the certificates that `requests` trusts."""
    fields = {"host": address.host, "port": address.port, "schema": address.scheme}
    extra = {"ca_bundle": str(address.ca_bundle)} if address.ca_bundle else {}
    bundle = str(address.ca_bundle or "")
    return {
        "AIRFLOW_CONN_MAIL_DEFAULT": json.dumps(
            {"conn_type": "mail", "password": "benchmark", "extra": extra, **fields}
        ),
        "AIRFLOW_CONN_HTTP_DEFAULT": json.dumps({"conn_type": "http", **fields}),
        "BENCHMARK_SERVICE": address.url,
        "BENCHMARK_CA_BUNDLE": bundle,
        "REQUESTS_CA_BUNDLE": bundle,
    }


def tls_context() -> ssl.SSLContext | None:
    """Return what a lower bound needs for TLS, in the environment of :func:`service_environment`, if any."""
    bundle = os.environ["BENCHMARK_CA_BUNDLE"]
    return ssl.create_default_context(cafile=bundle) if bundle else None


@dataclass
class Served:
    """A service in a process of its own.

    :param counts: what it printed at its end, after the ``with`` block.
    """

    port: int
    counts: dict[str, int] | None = None


@contextmanager
def served(module: str, *arguments: object) -> Iterator[Served]:
    """Start a service, which prints its port, serves until its standard input ends, and may print counts as JSON.

    :param arguments: its command line.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        service = Served(int(process.stdout.readline()))
        try:
            yield service
        finally:
            process.stdin.close()
            output = process.stdout.read()
    service.counts = json.loads(output) if output else None


def content_length(head: bytes) -> int:
    """Return the length of the body that follows the head of a request.

    :param head: request line and headers.
    """
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise ValueError("the request has no Content-Length")


@contextmanager
def postgres(folder: Path) -> Iterator[PostgresServer]:
    """Start a Postgres."""
    from tests.support.postgres import PostgresServer

    server_folder = folder / "postgres"
    server_folder.mkdir(mode=0o700, parents=True)
    with PostgresServer(server_folder / "data") as server:
        yield server


def medians(results: Sequence[Result]) -> tuple[float, float, float]:
    """Return the medians of seconds, CPU seconds and memory."""
    seconds, cpu, memory = (
        statistics.median(getattr(result, field) for result in results) for field in ("seconds", "cpu", "memory")
    )
    return seconds, cpu, memory


def print_ratio(title: str, above: Sequence[float], below: Sequence[float], aim: str) -> None:
    """Print the median, the minimum and the maximum of ratios.

    :param title: what they say.
    :param above: the numerators, by round.
    :param below: the denominators, by round.
    """
    ratios = [numerator / denominator for numerator, denominator in zip(above, below, strict=True)]
    print(f"{title:64}{statistics.median(ratios):8.2f}{min(ratios):8.2f}{max(ratios):8.2f}   {aim}")


def print_conditions(workload: str, rounds: int) -> None:
    """Print under which conditions was measured."""
    python = ".".join(map(str, sys.version_info[:3]))
    print(
        f"{workload}; Airflow {version('apache-airflow-core')}, Python {python}, {os.cpu_count()} cores; medians of "
        f"{rounds} fresh processes"
    )
