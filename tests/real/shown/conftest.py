"""A reader's folder: an Airflow of its own, the emulator with its demo data, and two SQLite databases."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mail_emulator import Emulator, EmulatorSettings
from mail_emulator.__main__ import add_demo_data
from tests.support.env import clean_environment

LOADS = """
import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.transfers.events_to_sql import MailEventsToSqlOperator
from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignsToSqlOperator, MailCampaignStatsToSqlOperator, MailContactsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)

with DAG("loads", schedule=None, start_date=pendulum.datetime(2026, 1, 1)) as dag:
    MailContactsToSqlOperator(task_id="contacts", sql_conn_id="warehouse", list_name="newsletter", history=True)
    MailCampaignsToSqlOperator(task_id="campaigns", sql_conn_id="warehouse")
    MailCampaignStatsToSqlOperator(task_id="statistics", sql_conn_id="warehouse", snapshots=True)
    MailTransactionalStatsToSqlOperator(task_id="transactional", sql_conn_id="warehouse")
    MailEventsToSqlOperator(task_id="events", sql_conn_id="warehouse")
"""


@dataclass(frozen=True)
class Reader:
    folder: Path
    environment: dict[str, str]
    emulator: Emulator

    def run(self, *command: str) -> str:
        """Run a command in the reader's folder; return what it printed, which is in the file `log` too."""
        log = self.folder / "log"
        with log.open("a") as file:
            start = file.tell()
            done = subprocess.run(command, cwd=self.folder, env=self.environment, stdout=file, stderr=file, check=False)
        printed = log.read_text()[start:]
        assert done.returncode == 0, printed[-3000:]
        return printed

    def run_shown(self) -> dict[str, str]:
        """Run the files of the folder `shown`; return the error of each, which is empty where all went well."""
        script = Path(__file__).parent / "run_dags.py"
        printed = self.run(sys.executable, str(script), str(self.folder / "shown"))
        lines = [json.loads(line) for line in printed.splitlines() if line.startswith('{"file"')]
        return {line["file"]: line["error"] for line in lines}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("reader")
    with Emulator(EmulatorSettings(sending_seconds=0)) as emulator:
        add_demo_data(emulator)
        for sender in ("shop@example.com", "mail.example.com"):
            emulator.add_sender(sender)
        for name in ("newsletter", "customers", "vip"):
            emulator.add_list(name, ["ada@example.com", "grace@example.com"])
        emulator.add_template("reminder", subject="Your cart", content="<p>Still there: {{item}}</p>")
        environment = clean_environment()
        environment |= {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]]),
            "AIRFLOW_HOME": str(folder / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW_CONN_MAIL_DEFAULT": json.dumps(
                {"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key}
            ),
        }
        for name in ("crm", "warehouse", "shop"):
            environment[f"AIRFLOW_CONN_{name.upper()}"] = json.dumps(
                {"conn_type": "sqlite", "host": str(folder / f"{name}.db")}
            )
        environment["AIRFLOW__MAIL__INBOX_CONN_ID"] = environment["AIRFLOW__MAIL__IMPORTS_CONN_ID"] = "warehouse"
        environment["AIRFLOW__MAIL__RECEIVE_URL"] = "https://events.example.com"
        environment["AIRFLOW__EMAIL__FROM_EMAIL"] = "shop@example.com"
        environment["AIRFLOW__EMAIL__EMAIL_BACKEND"] = "airflow_provider_mail.utils.emailer.send_email"
        (folder / "report.csv").write_text("day,orders\n2026-03-02,12\n")
        with sqlite3.connect(folder / "crm.db") as crm:
            crm.execute("CREATE TABLE customers (email TEXT, name TEXT, subscribed INTEGER)")
            rows = [(f"customer{number}@example.com", f"Customer {number}", 1) for number in range(2000)]
            crm.executemany("INSERT INTO customers VALUES (?, ?, ?)", rows)
        with sqlite3.connect(folder / "shop.db") as shop:
            shop.execute("CREATE TABLE carts (id INTEGER, email TEXT, item TEXT)")
            shop.execute("INSERT INTO carts VALUES (1, 'ada@example.com', 'Engine')")
        for name in ("dags", "shown"):
            (folder / name).mkdir()
        (folder / "shown" / "loads.py").write_text(LOADS)
        reader = Reader(folder, environment, emulator)
        reader.run("airflow", "db", "migrate")
        # Makes the tables of the inbox.
        reader.run(sys.executable, "-m", "airflow_provider_mail", "receive", "rotate", "--no-save")
        assert reader.run_shown() == {"loads": ""}
        yield reader
