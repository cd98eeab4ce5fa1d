"""A DAG that runs because a campaign was sent, also if the triggerer dies meanwhile."""

from __future__ import annotations

import pytest

from mail_emulator import Emulator
from tests.support.airflow import RunningAirflow
from tests.support.dags import AIRFLOW_VERSION
from tests.support.postgres import Database
from tests.support.processes import wait_until

DAG = "mail_on_campaign_sent"
REMEMBERS = AIRFLOW_VERSION >= (3, 3)


def remembered(airflow: RunningAirflow) -> int:
    """How many values triggers have stored."""
    [(count,)] = airflow.query("SELECT count(*) FROM asset_state_store")
    return int(count)


@pytest.mark.ci
def test_a_run_for_each_campaign_that_was_sent(
    airflow: RunningAirflow, emulator: Emulator, warehouse: Database
) -> None:
    def reported(count: int) -> list[str]:
        """The campaigns that the runs are about, once there are so many; all runs end well."""

        def names() -> list[str] | None:
            ids = [run["dag_run_id"] for run in airflow.api.runs(DAG)]
            campaigns = [name for run_id in ids for name in airflow.xcom(DAG, run_id, "names") or []]
            return campaigns if len(campaigns) >= count else None

        campaigns = wait_until(names, what=f"{count} events")
        assert {airflow.wait_for_run(DAG, run["dag_run_id"]) for run in airflow.api.runs(DAG)} == {"success"}
        return sorted(campaigns)

    def loaded() -> dict[str, int]:
        with warehouse.connect() as connection:
            return dict(connection.execute("SELECT mail_name, sent_count FROM mail_campaign_stats").fetchall())

    emulator.change_settings(sending_seconds=10_000)
    before = remembered(airflow) if REMEMBERS else 0
    for number in (1, 2, 3):
        emulator.add_campaign(f"mail_campaign/{number}", state="sending", sent=100 * number)
    airflow.unpause(DAG, watches_assets=True)
    wait_until(lambda: emulator.journal.count("campaign/mail/get"), what="a look")

    emulator.add_campaign("sale")
    emulator.set_campaign_state("mail_campaign/1", "done")
    assert reported(1) == ["mail_campaign/1"]
    assert loaded() == {"mail_campaign/1": 100}

    if REMEMBERS:  # ten seconds after it was reported
        wait_until(lambda: remembered(airflow) > before, what="the report is remembered")
    airflow.kill("triggerer")
    emulator.set_campaign_state("mail_campaign/2", "done")
    airflow.restart("triggerer")

    # Before 3.3 nothing is stored, so what is recent is reported again.
    repeated = [] if REMEMBERS else ["mail_campaign/1"]
    assert reported(2 + len(repeated)) == [*repeated, "mail_campaign/1", "mail_campaign/2"]
    assert loaded() == {"mail_campaign/1": 100, "mail_campaign/2": 200}
    assert [path for path, _ in airflow.triggers()] == [
        "airflow_provider_mail.triggers.campaigns.MailCampaignEventTrigger"
    ]
