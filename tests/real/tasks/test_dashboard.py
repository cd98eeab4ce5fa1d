"""The queries of the dashboard for Grafana, in a real Prometheus, of what real tasks count.

Needs the command `prometheus` (on Debian the package of that name). What `statsd_exporter` does, the test does in its
place: dots in names become underscores, and tags become labels.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.transfers.mail_to_sql import MailContactsToSqlOperator
from tests.support.env import ROOT
from tests.support.processes import Component, free_port, wait_until
from tests.support.statsd import DECLARED, StatsdServer
from tests.tasks.conftest import Run, SqlDatabase

PROMETHEUS = shutil.which("prometheus")
pytestmark = pytest.mark.skipif(PROMETHEUS is None, reason="needs prometheus")
DASHBOARD = ROOT / "docs" / "grafana" / "mail.json"


def queries() -> dict[str, str]:
    """The queries by the titles of their panels and their legends, with everything that can be chosen set to all."""
    found = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__range", "1h").replace("$__rate_interval", "1h")
            legend = target.get("legendFormat", "")
            found[" ".join([panel["title"], legend]).strip()] = query.replace("$dag_id", ".*").replace(
                "$mail_conn_id", ".*"
            )
    return found


@pytest.fixture
def prometheus(statsd: StatsdServer, tmp_path: Path) -> Iterator[httpx.Client]:
    """Prometheus, which reads the counters each second."""
    sums: Counter[tuple[str, ...]] = Counter()

    class Exporter(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sums.update(statsd.received())
            lines = []
            for (name, *values), count in sums.items():
                labels = ",".join(f'{tag}="{value}"' for tag, value in zip(DECLARED[name].tags, values, strict=True))
                lines.append(f"airflow_{name.replace('.', '_')}{{{labels}}} {count}\n")
            self.send_response(200)
            self.end_headers()
            self.wfile.write("".join(lines).encode())

        def log_message(self, *arguments: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Exporter) as exporter:
        threading.Thread(target=exporter.serve_forever, daemon=True).start()
        config = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [
                {"job_name": "airflow", "static_configs": [{"targets": [f"127.0.0.1:{exporter.server_port}"]}]}
            ],
        }
        (tmp_path / "prometheus.yml").write_text(json.dumps(config))
        address = f"127.0.0.1:{free_port()}"
        command = [
            str(PROMETHEUS), f"--config.file={tmp_path / 'prometheus.yml'}", f"--web.listen-address={address}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
        ]  # fmt: skip
        process = Component("prometheus", command, env={}, log=tmp_path / "prometheus.out")
        process.start()
        try:
            with httpx.Client(base_url=f"http://{address}", trust_env=False, timeout=60) as client:
                wait_until(lambda: is_ready(client), what="Prometheus")
                yield client
        finally:
            process.stop()
            exporter.shutdown()


def is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/-/ready").status_code == 200
    except httpx.TransportError:
        return False


def ask(prometheus: httpx.Client, query: str) -> dict[tuple[str, ...], float]:
    """The values of a query by their labels."""
    response = prometheus.get("/api/v1/query", params={"query": query})
    assert response.status_code == 200, response.text
    return {tuple(each["metric"].values()): float(each["value"][1]) for each in response.json()["data"]["result"]}


def test_the_queries_of_the_dashboard(
    run: Run, emulator: Emulator, warehouse: SqlDatabase, prometheus: httpx.Client
) -> None:
    rows = [{"email": "ada@example.com"}, {"email": "bob@example.com"}, {"email": "no address"}]

    def tasks() -> None:
        (
            MailImportContactsOperator(task_id="import", contacts=rows, list_name="news", max_reject_fraction=0.5)
            >> MailContactsToSqlOperator(task_id="load", sql_conn_id=warehouse.conn_id, list_name="news")
            >> MailCampaignSensor(task_id="too_late", mail_name="autumn", poke_interval=1, timeout=2)
        )

    run(tasks)
    # A rate needs two readings.
    wait_until(lambda: ask(prometheus, "count_over_time(airflow_mail_waits_failed[1h]) > 1"), what="the counters")
    found = {name: ask(prometheus, query) for name, query in queries().items()}

    # `increase` alone is 0 for a counter that was not there before.
    assert {name: values for name, values in found.items() if not re.search("second|Retries|Throttled", name)} == {
        "Rows accepted accepted": {(): 2},
        "Rows rejected rejected": {(): pytest.approx(1 / 3)},
        "Records loaded loaded": {(): 2},
        "Waits that failed failed": {(): 1},
        "Load: records {{task_id}}": {("load",): 2},
        "Load: records {{task_id}}: set aside": {},
        "Waits {{status}}": {("timeout",): 1},
        # Nothing is received here.
        "Receiver: pushes and events {{status}}": {},
        "Receiver: pushes and events {{status}}: events": {},
        "Dead letters {{reason}}": {},
        "Inbox: oldest push oldest": {},
        "Inbox: waiting pushes": {},
        "Inbox: waiting bytes": {},
    }
    operations = {("v5.campaign.mail.get",), ("v5.contacts.imports",), ("v5.contacts.list.get",)}
    assert set(found["Requests per second {{operation}}"]) == operations
