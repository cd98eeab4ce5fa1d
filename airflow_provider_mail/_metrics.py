"""The provider's metrics: their declaration, and the one place that emits them.

They go where Airflow's own metrics go: to StatsD, Datadog or OpenTelemetry, if one of these is configured.
``docs/monitoring.md`` shows the table.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

log = logging.getLogger(__name__)


class Metric(NamedTuple):
    """A counter, or a gauge.

    :param name: the name, which Airflow prefixes (``[metrics] statsd_prefix``).
    """

    name: str
    unit: str
    meaning: str
    tags: tuple[str, ...]
    is_gauge: bool = False


_REQUEST = ("mail_conn_id", "operation")
_TASK = ("dag_id", "task_id")

REQUESTS = Metric("mail.requests", "requests", "HTTP requests sent to the service, repeated ones included", _REQUEST)
RETRIES = Metric("mail.retries", "requests", "those of them that repeat a request that failed", _REQUEST)
THROTTLED = Metric(
    "mail.throttled_ms",
    "milliseconds",
    "the time that requests were held back: by `requests_per_second` of the connection, after a response 429, and as "
    "long as `Retry-After` says; the sum over concurrent requests",
    _REQUEST,
)
ROWS_READ = Metric("mail.import.rows_read", "rows", "rows that an import of contacts read, in each try", _TASK)
ROWS_ACCEPTED = Metric(
    "mail.import.rows_accepted", "rows", "those of them that the service accepted in this try", _TASK
)
ROWS_REJECTED = Metric(
    "mail.import.rows_rejected", "rows", "those of them that were rejected, by a check or by the service", _TASK
)
RECORDS_LOADED = Metric(
    "mail.load.records",
    "records",
    "records that a transfer stored in a table or in files, when it has succeeded",
    _TASK,
)
RECORDS_REJECTED = Metric("mail.load.records_rejected", "records", "records that a load rejected (`rejects`)", _TASK)
WAITS = Metric("mail.waits", "waits", "waits of sensors and operators that ended", (*_TASK, "status"))
WAITS_FAILED = Metric(
    "mail.waits_failed",
    "waits",
    "those of them that did not reach what they waited for: `status` is `failed`, `refused` (the service rejects the "
    "polls), `error` (polls failed for too long) or `timeout`",
    (*_TASK, "status"),
)

RECEIVED_PUSHES = Metric("mail.receive.pushes", "pushes", "requests to the receiver of events", ("status",))
RECEIVED_EVENTS = Metric("mail.receive.events", "events", "events in those that were stored", ("status",))
INBOX_PUSHES = Metric("mail.inbox.pushes", "pushes", "gauge: pushes in the inbox that are not drained", (), True)
INBOX_BYTES = Metric("mail.inbox.bytes", "bytes", "gauge: their bytes, before compression", (), True)
INBOX_OLDEST = Metric(
    "mail.inbox.oldest_seconds", "seconds", "gauge: the age of the oldest of them; 0 without any", (), True
)
DEAD_LETTERS = Metric("mail.dead_letters", "events", "events that a drain set aside, once each", ("reason",))

METRICS = tuple(declared for declared in vars().copy().values() if isinstance(declared, Metric))

SWITCHES = ("statsd_on", "statsd_datadog_enabled", "otel_on")
"""Airflow's settings in ``[metrics]``: any one of them enables metrics."""

# With tags in the name (`statsd_influxdb_enabled`), Airflow drops a metric that has one of these characters.
_INVALID = re.compile(r"[^A-Za-z0-9_.-]")


def emit(counts: Mapping[Metric, int], tags: Mapping[str, str]) -> None:
    """Increment counters and set gauges; a counter with a count of 0 is not sent.

    A failure to send metrics is logged once and never raised.
    """
    if not _is_on():
        return
    valid = {name: _INVALID.sub("_", value) for name, value in tags.items()}
    try:
        from airflow_provider_mail.version_compat import Stats

        for metric, count in counts.items():
            if metric.is_gauge:
                Stats.gauge(metric.name, count, tags=valid)
            elif count:
                Stats.incr(metric.name, count, tags=valid)
    except Exception as error:
        _warn(f"{type(error).__name__}: {error}")


def prepare() -> bool:
    """Import what `emit` needs, which would block an event loop; return whether Airflow sends metrics."""
    if _is_on():
        from airflow_provider_mail.version_compat import Stats

        _ = Stats
    return _is_on()


def task_tags(task: Any) -> dict[str, str]:
    """Return the tags of a metric about a task."""
    return {name: getattr(task, name) for name in _TASK if hasattr(task, name)}


@cache
def _is_on() -> bool:
    """Whether Airflow sends metrics. Without this check, the first metric of a process would read a large file."""
    from airflow_provider_mail.version_compat import conf

    return any(conf.getboolean("metrics", option, fallback=False) for option in SWITCHES)


@cache
def _warn(reason: str) -> None:
    log.warning("Metrics could not be sent: %s", reason)
