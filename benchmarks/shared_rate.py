"""One rate for eight worker processes, a triggerer and Airflow's own mails, on a real Redis; and what it costs.

    python benchmarks/shared_rate.py [--rate 50] [--seconds 20] [--workers 8] [--rounds 3]

All send as fast as they may to one emulator, whose journal shows what arrived when. A worker is a process with the
client for threads, the triggerer one with ten tasks in an event loop, and Airflow's mails are sent by the email
backend, which opens a connection for each. Then one client sends the same requests with and without the shared rate, in
turns. Needs `redis-server`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import statistics
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "emulator")]

from airflow_provider_mail.api import AsyncMailClient, ClientConfig, GetLists, MailClient  # noqa: E402
from benchmarks.support import RATIO_HEADER, print_conditions, print_ratio  # noqa: E402
from mail_emulator import EmulatorProcess  # noqa: E402
from tests.support.processes import FORK  # noqa: E402
from tests.support.redis_server import SERVER, RedisServer  # noqa: E402

WARM_UP_SECONDS = 3.0
"""Time until all processes send."""
TASKS = 10
"""Tasks in the triggerer's event loop."""
ASK = GetLists(page_size=1)
NO_LIMIT = 100_000.0
"""A rate that nothing reaches."""
BATCH, BATCHES = 100, 10


def work(config: ClientConfig, end: float) -> None:
    """Send as a task does.

    :param end: the Unix time at which to end.
    """
    with MailClient(config) as client:
        while time.time() < end:
            client.send(ASK)


def trigger(config: ClientConfig, end: float) -> None:
    """Send as a triggerer does, by several tasks in one event loop."""

    async def poll(client: AsyncMailClient) -> None:
        while time.time() < end:
            await client.send(ASK)

    async def run() -> None:
        async with AsyncMailClient(config) as client:
            await asyncio.gather(*(poll(client) for _ in range(TASKS)))

    asyncio.run(run())


def mail(config: ClientConfig, end: float) -> None:
    """Send Airflow's own mails.

    :param config: is not used: the connection has the same settings.
    """
    from airflow_provider_mail.utils.emailer import send_email

    while time.time() < end:
        send_email("ida@example.com", "Task failed", "<p>Failed</p>", from_email="news@example.com", raise_errors=True)


def connect(service: EmulatorProcess, server: RedisServer, rate: float) -> None:
    """Let Airflow have the connections that the email backend uses.

    :param rate: requests per second.
    """
    redis = urlsplit(server.url)
    extra = {"requests_per_second": rate, "rate_limit_conn_id": "redis_limits"}
    connections = {
        "mail_default": {"conn_type": "mail", "host": service.base_url, "password": service.api_key, "extra": extra},
        "redis_limits": {"conn_type": "redis", "host": redis.hostname, "port": redis.port},
    }
    for conn_id, connection in connections.items():
        os.environ[f"AIRFLOW_CONN_{conn_id.upper()}"] = json.dumps(connection)


def most_in_a_second(times: list[int]) -> int:
    """Return the largest number of arrivals in any window of one second.

    :param times: milliseconds, sorted.
    """
    return max(bisect_left(times, begin + 1000) - place for place, begin in enumerate(times))


def together(config: ClientConfig, service: EmulatorProcess, workers: int, seconds: float) -> tuple[float, int]:
    """Let all send; return the requests per second, and the most in one second."""
    service.journal.clear()
    begin = time.time() + WARM_UP_SECONDS
    end = begin + seconds
    senders: list[Callable[[ClientConfig, float], None]] = [*[work] * workers, trigger, mail]
    processes = [FORK.Process(target=sender, args=(config, end)) for sender in senders]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise RuntimeError(f"a sender ended with {process.exitcode}")
    times = sorted(entry["real_ms"] for entry in service.journal.entries())
    inside = sum(begin * 1000 <= moment < end * 1000 for moment in times)
    return inside / seconds, most_in_a_second(times)


@dataclass
class Cost:
    """The median of a request in each batch, in milliseconds."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def cost(*configs: ClientConfig) -> list[Cost]:
    """Return what the requests of each client take, in batches that take turns."""
    clients = [MailClient(config) for config in configs]
    costs = [Cost() for _ in clients]
    for client in clients:
        client.send(ASK)
    for _ in range(BATCHES):
        for client, measured in zip(clients, costs, strict=True):
            wall, cpu = [], []
            for _ in range(BATCH):
                began, began_cpu = time.perf_counter(), time.thread_time()
                client.send(ASK)
                wall.append(1000 * (time.perf_counter() - began))
                cpu.append(1000 * (time.thread_time() - began_cpu))
            measured.wall.append(statistics.median(wall))
            measured.cpu.append(statistics.median(cpu))
    for client in clients:
        client.close()
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=50.0, help="requests_per_second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if not SERVER:
        print("There is no redis-server: nothing is measured.")
        return
    logging.disable()
    with (
        tempfile.TemporaryDirectory() as folder,
        RedisServer(Path(folder)) as server,
        EmulatorProcess() as service,
    ):
        service.add_sender("news@example.com")
        account = {"base_url": service.base_url, "api_key": service.api_key}
        config = ClientConfig(**account, requests_per_second=options.rate, rate_limit_url=server.url)
        connect(service, server, options.rate)
        runs = [together(config, service, options.workers, options.seconds) for _ in range(options.rounds)]
        free = ClientConfig(**account, requests_per_second=NO_LIMIT)
        shared = ClientConfig(**account, requests_per_second=NO_LIMIT, rate_limit_url=server.url)
        without, with_rate = cost(free, shared)
    rates, most = zip(*runs, strict=True)
    limit = [options.rate] * options.rounds
    print(RATIO_HEADER)
    print_ratio("requests per second, of the limit", rates, limit, ">= 0.95")
    print_ratio("most requests in any second, of the limit", most, limit, "<= 1.00")
    print_ratio("time of a request, with the shared rate to without", with_rate.wall, without.wall, "")
    print_ratio("CPU time of a request, with the shared rate to without", with_rate.cpu, without.cpu, "")
    wall = statistics.median(with_rate.wall) - statistics.median(without.wall)
    cpu = statistics.median(with_rate.cpu) - statistics.median(without.cpu)
    print(f"The shared rate takes {wall:.2f} ms of each request, {cpu:.2f} ms of CPU time (aim: at most 1 ms).")
    workload = f"{options.workers} workers, a triggerer and the email backend, {options.rate:g} requests per second"
    print_conditions(f"\n{workload}", options.rounds)


if __name__ == "__main__":
    main()
