"""Receiving pushes: ours, compared with a FastAPI handler that inserts row by row, and with COPY without HTTP.

    python benchmarks/receive_events.py [--seconds 10] [--rounds 3] [--workers 1]

Each push holds 1,000 events (about 0.4 MiB). A real Postgres waits for the disk (fsync on). The sender is a process of
its own with 8 and with 32 connections; the variants take turns, so that a busy moment of the machine hits all of them.
Only the ratios carry over to another machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from airflow_provider_mail.webhook.drain import EventTables, drain  # noqa: E402
from benchmarks.support import RATIO_HEADER, postgres, print_conditions, print_ratio  # noqa: E402
from benchmarks.webhook_receive.copy_rows import copy  # noqa: E402
from benchmarks.webhook_receive.pushes import EVENTS  # noqa: E402
from benchmarks.webhook_receive.row_wise import create  # noqa: E402
from tests.support.postgres import Database, PostgresServer  # noqa: E402
from tests.support.processes import Component, free_port, wait_until  # noqa: E402
from tests.support.receiver import RunningReceiver  # noqa: E402

CONNECTIONS = (8, 32)
DURABLE_AIM, DRAINED_AIM, P99_AIM = ">= 20", ">= 7", "< 50 ms"
LABELS = {
    "each": "FastAPI, a commit for each row",
    "push": "FastAPI, a commit for each push",
    "ours": "airflow mail receive",
    "half": "  at half of that load",
}
USUAL = ("each", "push")


@dataclass(frozen=True)
class Answers:
    """What the sender measured.

    :param rate: accepted events a second.
    :param median: seconds until the answer, the median.
    :param p99: of 99 of 100 answers.
    :param cpu: CPU seconds of the handler for each push.
    :param database_cpu: CPU seconds of Postgres for each push.
    """

    rate: float
    median: float
    p99: float
    cpu: float
    database_cpu: float


class Sender:
    """Starts the senders; no two pushes are the same.

    :param seconds: for how long each pushes.
    :param postmaster: process id of the database.
    """

    def __init__(self, seconds: float, postmaster: int) -> None:
        self._seconds = seconds
        self._postmaster = psutil.Process(postmaster)
        self._first = 0

    def run(self, server: Component, url: str, connections: int, rate: float = 0) -> Answers:
        """Push for some time.

        :param server: the handler, or the receiver.
        :param rate: pushes a second. Default: as many as possible.
        """
        self._first += 1_000_000
        arguments = [url, connections, self._seconds, rate, self._first]
        command = [sys.executable, "-m", "benchmarks.webhook_receive.sender", *map(str, arguments)]
        before = cpu(server.session()), cpu(self._postmaster.children())
        process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        result = json.loads(process.stdout)
        answers, pushes = result["answers"], result["pushes"]
        handler, database = spent(before[0], server.session()), spent(before[1], self._postmaster.children())
        return Answers(
            rate=pushes * EVENTS / result["seconds"],
            median=statistics.median(answers),
            p99=answers[int(0.99 * (len(answers) - 1))],
            cpu=handler / pushes,
            database_cpu=database / pushes,
        )


def cpu(processes: Iterable[psutil.Process]) -> dict[int, float]:
    """Return the CPU seconds of processes so far, by process id."""
    times = {process.pid: process.cpu_times() for process in processes}
    return {pid: cpu_times.user + cpu_times.system for pid, cpu_times in times.items()}


def spent(before: dict[int, float], processes: Iterable[psutil.Process]) -> float:
    """Return the CPU seconds since an earlier moment, without processes that have ended since.

    :param before: what `cpu` returned then.
    """
    return sum(seconds - before.get(pid, 0) for pid, seconds in cpu(processes).items())


@contextmanager
def row_wise(folder: Path, database: Database) -> Iterator[tuple[Component, str]]:
    """Run the usual handlers; yields their process and URL.

    :param folder: for its output.
    :param database: has the table ``row_wise``.
    """
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "benchmarks.webhook_receive.row_wise:make_app", "--factory"]
    command += ["--port", str(port), "--no-access-log"]
    environment = {**os.environ, "BENCHMARK_DSN": database.dsn, "PYTHONPATH": str(ROOT)}
    process = Component("row-wise", command, env=environment, log=folder / "row_wise.log")
    process.start()
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return httpx.get(url).status_code == 404
        except httpx.TransportError:
            return False

    try:
        wait_until(answers, what="the handler answers")
        yield process, url
    finally:
        process.stop()


def memory_mib(receiver: RunningReceiver) -> float:
    """Return the memory of all processes of the receiver."""
    return sum(process.memory_info().rss for process in receiver.process.session()) / 2**20


def wait_for_disk(server: PostgresServer) -> None:
    """Have the server wait for the disk, which a server for tests does not."""
    with server.maintenance.connect() as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            connection.execute(f"ALTER SYSTEM RESET {setting}".encode())
        connection.execute("SELECT pg_reload_conf()")
        wait_until(lambda: connection.execute("SHOW fsync").fetchone() == ("on",), what="fsync", interval=0.05)


def drained(receiver: RunningReceiver) -> float:
    """Drain the inbox; return the events a second.

    :param receiver: the receiver that has filled it.
    """
    tables = EventTables(receiver.inbox.hook, "mail_events", "mail_dead_letters")
    tables.create()
    start = time.perf_counter()
    result = drain(receiver.inbox, tables, batch_size=50)
    rate = result.events / (time.perf_counter() - start)
    assert result.duplicates == result.dead_letters == 0
    return rate


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10, help="length of each measurement (10)")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds (3)")
    parser.add_argument("--workers", type=int, default=1, help="processes of the receiver (1)")
    arguments = parser.parse_args()
    measured: dict[tuple[str, int], list[Answers]] = defaultdict(list)
    rates: dict[str, list[float]] = defaultdict(list)
    memory: list[float] = []
    with tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        with postgres(folder) as server, server.database() as database:
            wait_for_disk(server)
            sender = Sender(arguments.seconds, server._server.get_pid())
            with (
                database.connect() as connection,
                row_wise(folder, database) as (handler, usual),
                RunningReceiver(folder, database.airflow_connection, workers=arguments.workers) as receiver,
            ):
                for table in ("row_wise", "copied"):
                    create(connection, table)
                ours = f"{receiver.url}/{receiver.token}"
                for _ in range(arguments.rounds):
                    for connections in CONNECTIONS:
                        for commit in USUAL:
                            measured[commit, connections].append(sender.run(handler, f"{usual}/{commit}", connections))
                        measured["ours", connections].append(best := sender.run(receiver.process, ours, connections))
                        memory.append(memory_mib(receiver))
                        rate = best.rate / EVENTS / 2
                        measured["half", connections].append(sender.run(receiver.process, ours, connections, rate))
                    rates["copy"].append(copied(database, arguments.seconds))
                    rates["drain"].append(drained(receiver))
                    connection.execute("TRUNCATE row_wise, copied, mail_inbox, mail_events")
    report(measured, rates, memory, arguments)


def copied(database: Database, seconds: float) -> float:
    """Copy into the table ``copied``; return the events a second.

    :param database: has the table.
    """
    with database.connect() as connection:
        connection.autocommit = False
        pushes, elapsed = copy(connection, "copied", seconds)
    return pushes * EVENTS / elapsed


def report(
    measured: dict[tuple[str, int], list[Answers]], rates: dict[str, list[float]], memory: list[float], arguments: Any
) -> None:
    """Print the figures.

    :param measured: by variant and connections, of each round.
    :param rates: events a second without HTTP, of each round.
    :param memory: of the receiver after each measurement, in MiB.
    """
    print_conditions(f"Pushes of {EVENTS:,} events, receiver with {arguments.workers} processes", arguments.rounds)
    heads = "".join(
        f"{head:>13}" for head in ("connections", "events/s", "median ms", "p99 ms", "CPU ms", "Postgres ms")
    )
    print(f"\n{'':33}{heads}")
    for (variant, connections), answers in measured.items():
        fields = ("rate", "median", "p99", "cpu", "database_cpu")
        rate, *seconds = (statistics.median(getattr(answer, field) for answer in answers) for field in fields)
        milliseconds = "".join(f"{1000 * median:>13.1f}" for median in seconds)
        print(f"{LABELS[variant]:33}{connections:>13}{rate:>13,.0f}{milliseconds}")
    print(f"{'  COPY of rows, without HTTP':33}{1:>13}{statistics.median(rates['copy']):>13,.0f}")
    print(f"{'  drain of the inbox':33}{1:>13}{statistics.median(rates['drain']):>13,.0f}")
    print(f"memory of the receiver: {memory[0]:.0f} MiB after the first measurement, {memory[-1]:.0f} after the last")
    print(f"\n{RATIO_HEADER}")
    for connections in CONNECTIONS:
        results = measured["ours", connections]
        ours = [measurement.rate for measurement in results]
        # One after the other, although a drain usually runs while the receiver does.
        both = [1 / (1 / rate + 1 / drain_rate) for rate, drain_rate in zip(ours, rates["drain"], strict=True)]
        for commit in USUAL:
            usual = [measurement.rate for measurement in measured[commit, connections]]
            to = f"{connections} connections, to a commit for each {'row' if commit == 'each' else 'push'}"
            print_ratio(f"{to}: durable", ours, usual, DURABLE_AIM)
            print_ratio(f"{to}: received and drained", both, usual, DRAINED_AIM)
            needed = [measurement.cpu + measurement.database_cpu for measurement in measured[commit, connections]]
            ours_needed = [measurement.cpu + measurement.database_cpu for measurement in results]
            print_ratio(f"{to}: CPU time", needed, ours_needed, "")
        print_ratio(f"{connections} connections, to COPY of rows without HTTP: durable", ours, rates["copy"], "")
        p99 = [measurement.p99 * 1000 for measurement in measured["half", connections]]
        print_ratio(f"{connections} connections: p99 at half load, in ms", p99, [1.0] * len(p99), P99_AIM)


if __name__ == "__main__":
    main()
