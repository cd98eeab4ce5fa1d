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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from airflow_provider_mail.webhook.drain import EventTables, drain  # noqa: E402
from benchmarks.support import RATIO_HEADER, postgres, print_conditions, print_ratio  # noqa: E402
from benchmarks.webhook_receive.copy_rows import copy  # noqa: E402
from benchmarks.webhook_receive.pushes import EVENTS  # noqa: E402
from benchmarks.webhook_receive.row_wise import create  # noqa: E402
from tests.support.postgres import Database, PostgresServer  # noqa: E402
from tests.support.processes import Component, free_port, wait_until  # noqa: E402
from tests.webhook.running import RunningReceiver  # noqa: E402

CONNECTIONS = (8, 32)
DURABLE_AIM, DRAINED_AIM, P99_AIM = ">= 20", ">= 7", "< 50 ms"
LABELS = {"row_wise": "FastAPI, a row at a time", "ours": "airflow mail receive", "half": "  at half of that load"}


@dataclass(frozen=True)
class Answers:
    """What the sender measured.

    :param rate: accepted events a second.
    :param median: seconds until the answer, the median.
    :param p99: of 99 of 100 answers.
    """

    rate: float
    median: float
    p99: float


class Sender:
    """Starts the senders; no two pushes are the same."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._first = 0

    def run(self, url: str, connections: int, rate: float = 0) -> Answers:
        """Push for some time.

        :param url: the callback URL.
        :param connections: number of connections.
        :param rate: pushes a second. Default: as many as possible.
        """
        self._first += 1_000_000
        arguments = [url, connections, self._seconds, rate, self._first]
        command = [sys.executable, "-m", "benchmarks.webhook_receive.sender", *map(str, arguments)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        result = json.loads(done.stdout)
        answers = result["answers"]
        p99 = answers[int(0.99 * (len(answers) - 1))]
        return Answers(result["pushes"] * EVENTS / result["seconds"], statistics.median(answers), p99)


@contextmanager
def row_wise(folder: Path, database: Database) -> Iterator[str]:
    """Run the usual handler; yields its URL.

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
        yield f"{url}/hook"
    finally:
        process.stop()


def memory_mib(receiver: RunningReceiver) -> float:
    """Return the memory of all processes of the receiver.

    :param receiver: the receiver.
    """
    return sum(process.memory_info().rss for process in receiver.process.session()) / 2**20


def wait_for_disk(server: PostgresServer) -> None:
    """Have the server wait for the disk, which a server for tests does not.

    :param server: the server.
    """
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
    sender = Sender(arguments.seconds)
    found: dict[tuple[str, int], list[Answers]] = defaultdict(list)
    rates: dict[str, list[float]] = defaultdict(list)
    memory: list[float] = []
    with tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        with postgres(folder) as server, server.database() as database:
            wait_for_disk(server)
            with (
                database.connect() as connection,
                row_wise(folder, database) as usual,
                RunningReceiver(folder, database.airflow_connection, workers=arguments.workers) as receiver,
            ):
                for table in ("row_wise", "copied"):
                    create(connection, table)
                ours = f"{receiver.url}/{receiver.token}"
                for _ in range(arguments.rounds):
                    for connections in CONNECTIONS:
                        found["row_wise", connections].append(sender.run(usual, connections))
                        found["ours", connections].append(best := sender.run(ours, connections))
                        memory.append(memory_mib(receiver))
                        half = best.rate / EVENTS / 2
                        found["half", connections].append(sender.run(ours, connections, rate=half))
                    rates["copy"].append(copied(database, arguments.seconds))
                    rates["drain"].append(drained(receiver))
                    connection.execute("TRUNCATE row_wise, copied, mail_inbox, mail_events")
    report(found, rates, memory, arguments)


def copied(database: Database, seconds: float) -> float:
    """Copy into the table ``copied``; return the events a second.

    :param database: has the table.
    :param seconds: for how long.
    """
    with database.connect() as connection:
        connection.autocommit = False
        pushes, elapsed = copy(connection, "copied", seconds)
    return pushes * EVENTS / elapsed


def report(
    found: dict[tuple[str, int], list[Answers]], rates: dict[str, list[float]], memory: list[float], arguments: Any
) -> None:
    """Print the figures.

    :param found: by variant and connections, of each round.
    :param rates: events a second without HTTP, of each round.
    :param memory: of the receiver after each measurement, in MiB.
    :param arguments: of the command line.
    """
    print_conditions(f"Pushes of {EVENTS:,} events, receiver with {arguments.workers} processes", arguments.rounds)
    print(f"\n{'':40}{'connections':>12}{'events/s':>12}{'median ms':>12}{'p99 ms':>10}")
    for (variant, connections), answers in found.items():
        rate, median, p99 = (
            statistics.median(getattr(one, field) for one in answers) for field in ("rate", "median", "p99")
        )
        print(f"{LABELS[variant]:40}{connections:>12}{rate:>12,.0f}{median * 1000:>12.1f}{p99 * 1000:>10.1f}")
    print(f"{'  COPY of rows, without HTTP':40}{1:>12}{statistics.median(rates['copy']):>12,.0f}")
    print(f"{'  drain of the inbox':40}{1:>12}{statistics.median(rates['drain']):>12,.0f}")
    print(f"memory of the receiver: {memory[0]:.0f} MiB after the first measurement, {memory[-1]:.0f} after the last")
    print(f"\n{RATIO_HEADER}")
    for connections in CONNECTIONS:
        ours = [one.rate for one in found["ours", connections]]
        usual = [one.rate for one in found["row_wise", connections]]
        # One after the other, although a drain usually runs while the receiver does.
        both = [1 / (1 / one + 1 / other) for one, other in zip(ours, rates["drain"], strict=True)]
        print_ratio(f"{connections} connections: durable, to a row at a time", ours, usual, DURABLE_AIM)
        print_ratio(f"{connections} connections: received and drained, to a row at a time", both, usual, DRAINED_AIM)
        print_ratio(f"{connections} connections: durable, to COPY of rows without HTTP", ours, rates["copy"], "")
        p99 = [one.p99 * 1000 for one in found["half", connections]]
        print_ratio(f"{connections} connections: p99 at half load, in ms", p99, [1.0] * len(p99), P99_AIM)


if __name__ == "__main__":
    main()
