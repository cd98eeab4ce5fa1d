"""One measurement: a way of loading the statistics, in a new process.

    python -m benchmarks.stats_load.variants VARIANT

The environment has the Airflow connections ``warehouse``, ``mail_default`` and ``http_default``. Prints JSON: seconds,
CPU seconds, peak memory over what the imports alone take (MiB), and records.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from benchmarks.stats_load.service import FIRST_DAY, LAST_DAY
from benchmarks.support import Run, imported, measure

PATH = "/v5/campaign/mail/stats/get"
ASKED = {"startDate": FIRST_DAY.isoformat(), "endDate": LAST_DAY.isoformat()}
TABLE = "mail_campaign_stats"
KEY = ("mail_conn_id", "mail_name")
COUNTS = ("sent_count", "open_count", "click_count", "hard_bounce", "soft_bounce", "unsent_count", "unsubscribe_count")
RATES = ("open_rate", "click_rate", "bounce_rate", "unsubscribe_rate")
LAST_COLUMNS = ("other_fields", "observed_at", "gone_at", "loaded_at", "run_id")
COLUMNS = ("mail_conn_id", "team_name", "mail_name", "mail_send_date", *COUNTS, *RATES, *LAST_COLUMNS)
"""Those of the operator's table."""
WIRE_COUNTS = ("sentCount", "openCount", "clickCount", "hardBounce", "softBounce", "unsentCount", "unsubscribeCount")

# Import before the measurement what the operator imports when it runs.
LAZILY_IMPORTED = (
    "airflow_provider_mail.api.client",
    "airflow_provider_mail.api.flows.statistics",
    "airflow_provider_mail._task.mixin",
    "airflow_provider_mail.hooks.mail",
    "airflow_provider_mail.warehouse.database",
    "airflow_provider_mail.warehouse.tables.stats",
)


def _create(cursor: Any, timestamp: str) -> None:
    counts, rates = (
        ", ".join(f"{name} BIGINT" for name in COUNTS),
        ", ".join(f"{name} DOUBLE PRECISION" for name in RATES),
    )
    cursor.execute(
        f"CREATE TABLE IF NOT EXISTS {TABLE} (mail_conn_id VARCHAR(250), team_name VARCHAR(150), "
        f"mail_name VARCHAR(200), mail_send_date {timestamp}, {counts}, {rates}, other_fields TEXT, "
        f"observed_at {timestamp}, "
        f"gone_at {timestamp}, loaded_at {timestamp}, run_id VARCHAR(250), PRIMARY KEY ({', '.join(KEY)}))"
    )


def _row(record: dict[str, Any], now: str) -> tuple[Any, ...]:
    sent, opened, clicked, hard, soft, unsent, unsubscribed = (record[name] for name in WIRE_COUNTS)
    per_cent = 100 / sent if sent else 0.0
    return (
        "mail_default",
        None,
        record["mailName"],
        datetime.fromtimestamp(record["mailSendDate"] / 1000, UTC).isoformat(" "),
        sent,
        opened,
        clicked,
        hard,
        soft,
        unsent,
        unsubscribed,
        opened * per_cent,
        clicked * per_cent,
        (hard + soft) * per_cent,
        unsubscribed * per_cent,
        None,
        now,
        None,
        now,
        "benchmark",
    )


def http_hook() -> Run:
    """The usual DAG code: the official hook, the whole answer in memory, `insert_rows`."""
    from airflow.providers.common.compat.lineage.hook import get_hook_lineage_collector
    from airflow.providers.http.hooks.http import HttpHook

    sql_hook = imported("warehouse")
    get_hook_lineage_collector()  # the hooks load Airflow's plugins when they are first used

    def run() -> int:
        with closing(sql_hook.get_conn()) as connection:
            _create(connection.cursor(), "TIMESTAMP")
            connection.commit()
        http_client = HttpHook(method="POST", http_conn_id="http_default")
        answer = http_client.run(PATH, json=ASKED, headers={"ApiKey": "benchmark"}).json()
        now = datetime.now(UTC).isoformat(" ")
        rows = [_row(record, now) for record in answer["mailStatsList"]]
        sql_hook.insert_rows(TABLE, rows, COLUMNS, replace=True, replace_index=list(KEY))
        return len(rows)

    return run


def ours() -> Run:
    """Run the operator as a task does."""
    from airflow_provider_mail.transfers.mail_to_sql import MailCampaignStatsToSqlOperator

    imported("warehouse", *LAZILY_IMPORTED)

    def run() -> int:
        operator = MailCampaignStatsToSqlOperator(
            task_id="stats",
            sql_conn_id="warehouse",
            start_day=ASKED["startDate"],
            end_day=ASKED["endDate"],
        )
        dag_run = SimpleNamespace(run_after=datetime.now(UTC))
        return int(operator.execute({"dag_run": dag_run})["records"])  # type: ignore[typeddict-item]

    return run


def limit() -> Run:
    """Decode records as they arrive and load them the fastest way: the limit of any operator."""
    import msgspec

    hook = imported("warehouse")
    decode = msgspec.json.Decoder().decode

    def decoded() -> Iterator[dict[str, Any]]:
        """Only for the answers of the benchmark: no name has ``},{`` in it."""
        address = urlsplit(os.environ["BENCHMARK_SERVICE"])
        with closing(http.client.HTTPConnection(str(address.hostname), address.port)) as connection:
            connection.request("POST", PATH, json.dumps(ASKED))
            answer = connection.getresponse()
            unparsed = answer.read(1 << 16)
            unparsed = unparsed[unparsed.index(b"[") :]
            while True:
                chunk = answer.read(1 << 16)
                end = unparsed.rfind(b"},") + 1 if chunk else unparsed.rindex(b"]")
                yield from decode(b"[" + unparsed[1:end] + b"]")
                if not chunk:
                    return
                unparsed = unparsed[end:] + chunk

    def rows() -> Iterator[tuple[Any, ...]]:
        now = datetime.now(UTC).isoformat(" ")
        return (_row(record, now) for record in decoded())

    return (
        (lambda: _limit_postgres(hook, rows()))
        if hook.conn_type == "postgres"
        else (lambda: _limit_sqlite(hook, rows()))
    )


def _upsert(source: str) -> str:
    assignments = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name not in KEY)
    conflict = f"ON CONFLICT ({', '.join(KEY)}) DO UPDATE SET {assignments}"
    return f"INSERT INTO {TABLE} ({', '.join(COLUMNS)}) {source} {conflict}"


def _limit_postgres(hook: Any, rows: Iterator[tuple[Any, ...]]) -> int:
    import psycopg

    connection = hook.get_connection("warehouse")
    with psycopg.connect(host=connection.host, user=connection.login, dbname=connection.schema) as postgres:
        cursor, count = postgres.cursor(), 0
        _create(cursor, "TIMESTAMPTZ")
        cursor.execute(f"CREATE TEMP TABLE stage (LIKE {TABLE}) ON COMMIT DROP")
        with cursor.copy("COPY stage FROM STDIN") as copy:
            lines: list[str] = []
            for row in rows:
                count += 1
                lines.append("\t".join("\\N" if value is None else str(value) for value in row) + "\n")
                if len(lines) == 500:
                    copy.write("".join(lines))
                    lines.clear()
            copy.write("".join(lines))
        cursor.execute(_upsert("SELECT * FROM stage"))
    return count


def _limit_sqlite(hook: Any, rows: Iterator[tuple[Any, ...]]) -> int:
    with closing(hook.get_conn()) as connection:
        _create(connection, "TIMESTAMP")
        count = int(connection.executemany(_upsert(f"VALUES ({', '.join('?' for _ in COLUMNS)})"), rows).rowcount)
        connection.commit()
    return count


VARIANTS: dict[str, Callable[[], Run]] = {variant.__name__: variant for variant in (http_hook, ours, limit)}

if __name__ == "__main__":
    measure(VARIANTS[sys.argv[1]]())
