"""A StatsD server: a UDP port, and the provider's metrics in what arrives there."""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider_mail._metrics import METRICS

DECLARED = {metric.name: metric for metric in METRICS}


class StatsdServer:
    """A StatsD server: a UDP port.

    :param port: on which it listens.
    """

    def __init__(self, port: socket.socket) -> None:
        self._port = port

    def received(self) -> Counter[tuple[str, ...]]:
        """The sums by name and values of tags, of our own metrics."""
        sums: Counter[tuple[str, ...]] = Counter()
        while True:
            try:
                line = self._port.recv(65536).decode()
            except BlockingIOError:
                return sums
            if (ours := re.fullmatch(r"airflow\.(mail\.[^:,]+)(?:,([^:]+))?:(\d+)\|([cg])", line)) is not None:
                tags = dict(tag.split("=") for tag in ours[2].split(",")) if ours[2] else {}
                assert (*tags,) == DECLARED[ours[1]].tags
                assert DECLARED[ours[1]].is_gauge == (ours[4] == "g")
                sums[ours[1], *tags.values()] += int(ours[3])

    @property
    def settings(self) -> dict[str, str]:
        """The environment in which Airflow sends its metrics here, with tags."""
        port = str(self._port.getsockname()[1])
        values = {"HOST": "127.0.0.1", "ON": "True", "PORT": port, "INFLUXDB_ENABLED": "True"}
        return {f"AIRFLOW__METRICS__STATSD_{name}": value for name, value in values.items()}


@contextmanager
def statsd_server() -> Iterator[StatsdServer]:
    """Listen on a free port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
        port.bind(("127.0.0.1", 0))
        port.setblocking(False)
        yield StatsdServer(port)
