"""Deferred waits in a real triggerer: what they cost while nothing happens, and how soon 1,000 of them fire.

    python benchmarks/waits.py [--waits 1000] [--interval 5] [--seconds 40] [--variants ours sleeping]

A real Postgres, a real `airflow triggerer`, and a service in a process of its own, behind a line of 50 ms with TLS
(`benchmarks/line.py`). CPU is that of the process that runs the triggers, as a share of one core; Airflow's supervisor
costs as much with every variant and is not counted. `sleeping`, a trigger that looks for a file, is the lower bound;
`http_hook` is what users write.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.line import Address, reached  # noqa: E402
from benchmarks.support import postgres, print_conditions, served, service_environment  # noqa: E402
from benchmarks.waiting.service import FINISHED  # noqa: E402
from tests.support import env  # noqa: E402
from tests.support.postgres import Database, PostgresServer  # noqa: E402

LATENCY = 50
VARIANTS = {"ours": "Ours", "http_hook": "HttpHook", "sleeping": "Sleeping"}


@dataclass(frozen=True)
class Cost:
    """What the waits of one variant cost.

    :param cpu: share of a core while nothing happens.
    :param memory: MiB of the process.
    :param log_bytes: written per second by all waits.
    :param fired: seconds from the moment at which 1,000 campaigns are sent until half of their waits, and all, fired.
    :param stored: seconds until Airflow has stored all events.
    :param requests: what the service received.
    """

    cpu: float
    memory: float
    log_bytes: float
    fired: tuple[float, float]
    stored: float
    requests: dict[str, int]


def environment(home: Path, database: Database, address: Address, waits: int, fired: Path) -> dict[str, str]:
    """Return the environment of the triggerer.

    :param home: Airflow's folder.
    :param database: Airflow's own.
    :param address: of the service.
    :param waits: number of triggers.
    :param fired: file for the times of the events.
    """
    return (
        env.clean_environment()
        | env.settings(home, database.sqlalchemy_url, home)
        | service_environment(address)
        | {
            "SSL_CERT_FILE": str(address.ca_bundle),  # for aiohttp
            "AIRFLOW__TRIGGERER__CAPACITY": str(2 * waits),
            "AIRFLOW__TRIGGERER__MAX_TRIGGER_TO_SELECT_PER_LOOP": str(waits),
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
            "BENCHMARK_FIRED": str(fired),
            "BENCHMARK_SENT": str(fired.with_name("sent")),
            "PYTHONPATH": str(ROOT),
        }
    )


@contextmanager
def triggerer(environ: dict[str, str], log: Path) -> Iterator[Callable[[], int]]:
    """Run a triggerer; yields what returns the id of the process that runs the triggers.

    :param log: file for its output.
    """
    command = [sys.executable, "-m", "airflow", "triggerer", "--skip-serve-logs"]
    with log.open("w") as output, subprocess.Popen(command, env=environ, stdout=output, stderr=output) as process:
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            yield lambda: int(children.read_text().split()[-1])
        finally:
            process.terminate()


def until(condition: Callable[[], object], seconds: float = 300) -> None:
    """Wait until something is true.

    :raises TimeoutError: it took longer.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.1)


def cpu_seconds(process: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(process: int) -> float:
    """Return the resident memory of a process in MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def measure(variant: str, waits: int, interval: float, seconds: float, server: PostgresServer, home: Path) -> Cost:
    """Measure a variant.

    :param waits: number of deferred tasks.
    :param interval: seconds between polls.
    :param seconds: how long to measure while nothing happens.
    :param home: a folder for Airflow's files.
    """
    home.mkdir()
    sent, fired, log = home / "sent", home / "fired", home / "triggerer.log"
    fired.touch()
    with (
        server.database() as database,
        served("benchmarks.waiting.service", waits, sent) as service,
        reached(service.port, LATENCY, home, tls=True) as address,
    ):
        environ = environment(home, database, address, waits, fired)
        trigger = f"benchmarks.waiting.triggers.{VARIANTS[variant]}"
        for command in (
            ["airflow", "db", "migrate"],
            ["benchmarks.waiting.deferred", trigger, str(waits), str(interval)],
        ):
            completed = subprocess.run(
                [sys.executable, "-m", *command], env=environ, cwd=ROOT, capture_output=True, text=True, check=False
            )
            if completed.returncode:
                raise RuntimeError(f"{command}: {completed.stdout}\n{completed.stderr}")

        def log_bytes() -> int:
            return sum(path.stat().st_size for path in (home / "logs").rglob("*.log*") if path.is_file())

        with triggerer(environ, log) as runner:
            until(lambda: sum(1 for _ in (home / "logs").rglob("*.trigger.*")) >= waits)
            process = runner()
            time.sleep(3 * interval)
            cpu, logged, start = cpu_seconds(process), log_bytes(), time.monotonic()
            time.sleep(seconds)
            took = time.monotonic() - start
            cpu, logged = cpu_seconds(process) - cpu, log_bytes() - logged
            memory = memory_mib(process)
            all_sent = time.time()
            sent.touch()
            finished = min(waits, FINISHED)
            until(lambda: len(fired.read_text().splitlines()) >= finished)
            times = sorted(float(line) - all_sent for line in fired.read_text().splitlines())
            with database.connect() as connection:
                deferred = "SELECT count(*) FROM task_instance WHERE state = 'deferred'"
                until(lambda: connection.execute(deferred).fetchone() == (waits - finished,))
            stored = time.time() - all_sent
    middle, last = times[len(times) // 2], times[-1]
    return Cost(cpu / took, memory, logged / took, (middle, last), stored, service.counts or {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waits", type=int, nargs="+", default=[1000])
    parser.add_argument("--interval", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=40.0, help="how long to measure while nothing happens")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=["ours", "sleeping"])
    options = parser.parse_args()
    titles = f"{'half told':>11}{'all told':>10}{'stored':>9}  requests"
    print(f"{'':14}{'waits':>7}{'% of a core':>13}{'MiB':>7}{'log B/s':>9}{titles}")
    with tempfile.TemporaryDirectory() as folder, postgres(Path(folder)) as server:
        for waits in options.waits:
            for variant in options.variants:
                home = Path(folder) / f"{variant}-{waits}"
                cost = measure(variant, waits, options.interval, options.seconds, server, home)
                half, last = cost.fired
                print(
                    f"{variant:14}{waits:7}{100 * cost.cpu:13.2f}{cost.memory:7.0f}{cost.log_bytes:9.0f}"
                    f"{half:9.1f} s{last:8.1f} s{cost.stored:7.1f} s  {cost.requests}",
                    flush=True,
                )
    print_conditions(f"\nA poll every {options.interval:g} s; a round trip takes {LATENCY} ms", 1)


if __name__ == "__main__":
    main()
