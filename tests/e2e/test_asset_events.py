"""A DAG that runs because a campaign has gone out, and what becomes of that when the triggerer dies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_mail.emulator import EmulatorSettings
from airflow_provider_mail.emulator.client import EmulatorProcess
from tests.support.airflow import RunningAirflow
from tests.support.dags import AIRFLOW_VERSION
from tests.support.env import ROOT
from tests.support.postgres import Database, PostgresServer
from tests.support.processes import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

DAG = "mail_on_campaign_sent"


@pytest.fixture
def emulator() -> Iterator[EmulatorProcess]:
    with EmulatorProcess(EmulatorSettings(sending_seconds=10_000)) as emulator:
        emulator.add_sender("news@example.com")
        yield emulator
        assert emulator.crashes() == []


@pytest.fixture
def warehouse(postgres_server: PostgresServer) -> Iterator[Database]:
    with postgres_server.database() as database:
        yield database


@pytest.fixture
def airflow(
    tmp_path: Path, postgres_server: PostgresServer, emulator: EmulatorProcess, warehouse: Database
) -> Iterator[RunningAirflow]:
    mail = {"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key}
    connections = {
        "AIRFLOW_CONN_MAIL_DEFAULT": json.dumps(mail),
        "AIRFLOW_CONN_WAREHOUSE": warehouse.airflow_connection,
    }
    dags_folder = tmp_path / "dags"
    dags_folder.mkdir()
    code, interval = (ROOT / "example_dags" / f"{DAG}.py").read_text(), "poke_interval=30"
    assert interval in code
    (dags_folder / f"{DAG}.py").write_text(code.replace(interval, "poke_interval=2"))
    with (
        postgres_server.database() as database,
        RunningAirflow(
            tmp_path / "airflow", database=database, dags_folder=dags_folder, extra_env=connections
        ) as airflow,
    ):
        yield airflow


def test_a_run_for_what_has_gone_out(airflow: RunningAirflow, emulator: EmulatorProcess, warehouse: Database) -> None:
    def told(count: int) -> list[str]:
        """Of which campaigns the runs were told, in the end of so many; all runs end well."""

        def names() -> list[str] | None:
            ids = [run["dag_run_id"] for run in airflow.api.runs(DAG)]
            found = [name for run_id in ids for name in airflow.xcom(DAG, run_id, "names") or []]
            return found if len(found) >= count else None

        found = wait_until(names, what=f"{count} events", timeout=90)
        states = {airflow.wait_for_run(DAG, run["dag_run_id"]) for run in airflow.api.runs(DAG)}
        assert states == {"success"}
        return found

    def loaded() -> dict[str, int]:
        with warehouse.connect() as connection:
            return dict(connection.execute("SELECT mail_name, sent_count FROM mail_campaign_stats").fetchall())

    for number in (1, 2, 3):
        emulator.add_campaign(f"mail_campaign/{number}", state="sending", sent=100 * number)
    wait_until(lambda: airflow.api.dag_exists(DAG), what="the DAG", timeout=60)
    airflow.api.unpause(DAG)
    wait_until(lambda: emulator.journal.count("campaign/mail/get"), what="a look", timeout=60)

    emulator.add_campaign("sale")
    emulator.set_campaign_state("mail_campaign/1", "done")
    assert told(1) == ["mail_campaign/1"]
    assert loaded() == {"mail_campaign/1": 100}

    # What was reported is remembered some polls later.
    polled = emulator.journal.count("campaign/mail/get")
    wait_until(lambda: emulator.journal.count("campaign/mail/get") >= polled + 8, what="polls", timeout=60)
    airflow.kill("triggerer")
    emulator.set_campaign_state("mail_campaign/2", "done")
    airflow.restart("triggerer")

    # Before 3.3 nothing is remembered, so what is recent is told again.
    repeated = [] if AIRFLOW_VERSION >= (3, 3) else ["mail_campaign/1"]
    assert sorted(told(2 + len(repeated))) == sorted(["mail_campaign/1", *repeated, "mail_campaign/2"])
    assert loaded() == {"mail_campaign/1": 100, "mail_campaign/2": 200}
    assert [path for path, _ in airflow.triggers()] == [
        "airflow_provider_mail.triggers.campaigns.MailCampaignEventTrigger"
    ]
