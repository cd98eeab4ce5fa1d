"""The main job in a real Airflow: contacts in, a campaign out, wait without a worker slot, statistics in the warehouse.

Postgres is Airflow's own database, the customers' and the warehouse.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.emulator import EmulatorProcess, EmulatorSettings
from tests.support.airflow import RunningAirflow
from tests.support.env import ROOT
from tests.support.postgres import Database, PostgresServer

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CUSTOMERS = 100_000
UNSENDABLE = 20
START_DATE = 'pendulum.datetime(2026, 1, 1, tz="UTC")'


@dataclass
class House:
    """All that a company has."""

    airflow: RunningAirflow
    service: EmulatorProcess
    database: Database

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.database.connect() as connection:
            return connection.execute(query.encode()).fetchall()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[House]:
    dags_folder = tmp_path_factory.mktemp("dags")
    with (
        postgres_server.database() as metadata,
        postgres_server.database() as database,
        EmulatorProcess(EmulatorSettings(sending_seconds=12.0)) as service,
    ):
        service.add_sender("news@example.com")
        make_customers(database)
        copy_examples(dags_folder)
        mail = {"conn_type": "mail", "host": service.base_url, "password": service.api_key}
        connections = {
            "AIRFLOW_CONN_MAIL_DEFAULT": json.dumps(mail),
            "AIRFLOW_CONN_CRM": database.airflow_connection,
            "AIRFLOW_CONN_WAREHOUSE": database.airflow_connection,
        }
        home = tmp_path_factory.mktemp("airflow")
        with RunningAirflow(home, database=metadata, dags_folder=dags_folder, extra_env=connections) as airflow:
            yield House(airflow, service, database)


def make_customers(database: Database) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE customers (email text, full_name text, phone text, subscribed int)")
        connection.execute(
            "INSERT INTO customers SELECT CASE WHEN n > %s THEN 'customer' || n || '@example.com' ELSE 'nobody' END,"
            " 'Customer ' || n, CASE WHEN mod(n, 3) > 0 THEN '+49' || n END, 1 FROM generate_series(1, %s) AS n",
            [UNSENDABLE, CUSTOMERS],
        )


def copy_examples(dags_folder: Path) -> None:
    """The example DAGs; the daily one begins yesterday, since a year of days to catch up with is another test."""
    for name in ("mail_campaign.py", "mail_daily_statistics.py"):
        source = (ROOT / "example_dags" / name).read_text()
        assert START_DATE in source
        (dags_folder / name).write_text(source.replace(START_DATE, 'pendulum.yesterday("UTC")'))


def test_the_main_job(house: House) -> None:
    airflow, service = house.airflow, house.service
    run_id = airflow.start_run("mail_campaign")

    airflow.wait_for_task("mail_campaign", run_id, "wait_until_sent", "deferred", timeout=180)
    slots = airflow.slots()
    assert slots["occupied"] == 0, "a wait must not hold a worker slot"
    assert slots["deferred"] == 1
    ((classpath, _),) = airflow.triggers()
    assert classpath == "airflow_provider_mail.triggers.campaigns.MailCampaignTrigger"

    assert airflow.wait_for_run("mail_campaign", run_id, timeout=180) == "success"

    imported = airflow.xcom("mail_campaign", run_id, "sync_contacts")
    assert imported["read"] == CUSTOMERS
    assert imported["accepted"] == CUSTOMERS - UNSENDABLE
    assert imported["rejected"] == UNSENDABLE
    assert service.contact_count("newsletter") == CUSTOMERS - UNSENDABLE
    assert house.rows("SELECT field, reason, count(*) FROM newsletter_rejects GROUP BY 1, 2") == [
        ("email", "is not an email address", UNSENDABLE)
    ]

    name = airflow.xcom("mail_campaign", run_id, "send_newsletter")["mail_name"]
    assert len(service.campaigns(name)) == 1
    assert service.journal.count("/v5/campaign/mail/sends") == 1
    assert len(service.campaign_recipients(name)) == CUSTOMERS - UNSENDABLE

    stats = airflow.xcom("mail_campaign", run_id, "wait_until_sent")
    columns = "mail_conn_id, mail_name, sent_count, hard_bounce, soft_bounce, unsent_count"
    assert house.rows(f"SELECT {columns} FROM mail_campaign_stats") == [
        (
            "mail_default",
            name,
            CUSTOMERS - UNSENDABLE,
            stats["hard_bounce"],
            stats["soft_bounce"],
            stats["unsent_count"],
        )
    ]

    for task_id in ("sync_contacts", "send_newsletter", "wait_until_sent", "load_statistics"):
        assert "@example.com" not in airflow.log("mail_campaign", run_id, task_id).replace("news@example.com", "")


def test_the_daily_job_restates_and_repeats(house: House) -> None:
    airflow, service = house.airflow, house.service
    if not service.campaigns():
        airflow.wait_for_run("mail_campaign", airflow.start_run("mail_campaign"), timeout=240)
    service.clock.advance(days=2)
    service.clock.freeze()

    def load() -> dict[str, list[tuple[Any, ...]]]:
        run_id = airflow.start_run("mail_daily_statistics")
        assert airflow.wait_for_run("mail_daily_statistics", run_id, timeout=180) == "success"
        return {
            table: house.rows(f"SELECT * FROM {table} ORDER BY 1, 2, 3")
            for table in ("mail_campaign_stats", "mail_transactional_stats")
        }

    first = load()
    second = load()
    (campaign,) = first["mail_campaign_stats"]
    assert campaign[5] > 1000, "two days later many have opened it"
    for table, rows in first.items():
        assert rows, table
        assert [row[:-1] for row in second[table]] == [row[:-1] for row in rows], "only observed_at may change"
        # The run that the schedule made for yesterday also loaded a day before the window of the other two.
        observed = [(early[-1], late[-1]) for early, late in zip(rows, second[table], strict=True)]
        assert all(late >= early for early, late in observed), table
        assert sum(late > early for early, late in observed) >= len(observed) - 1, table
