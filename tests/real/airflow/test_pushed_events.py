"""From the push to the DAG that runs because of it, and to the comparison of the counts.

The emulator pushes over HTTP to a receiver in a process of its own; the inbox and the events are in a Postgres.
"""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

import pytest

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.transactional import MessageVersion, Recipient, SendBatch
from airflow_provider_mail.api.webhooks import EventToggles, SaveWebhook
from mail_emulator import Emulator
from tests.support.airflow import RunningAirflow
from tests.support.one_airflow import YESTERDAY
from tests.support.postgres import Database
from tests.support.processes import wait_until
from tests.support.receiver import RunningReceiver


@pytest.mark.ci
def test_events_start_a_dag_and_agree_with_the_statistics(
    airflow: RunningAirflow, emulator: Emulator, warehouse: Database, tmp_path: Path
) -> None:
    emulator.change_settings(hard_bounce_rate=0.1, soft_bounce_rate=0.1, unsubscribe_rate=0.1)
    # Noon: at midnight, mails sent on one day are delivered on the next. Of yesterday: today's may be to come.
    emulator.clock.freeze(YESTERDAY.replace(hour=12))
    day = emulator.clock.now().astimezone(UTC).date().isoformat()
    airflow.set_connection("pushes", warehouse.airflow_connection)
    people = [MessageVersion(to=[Recipient(email=f"reader{number}@example.com")]) for number in range(100)]
    letter = {"sender_mail": "news@example.com", "subject": "Order", "content": '<a href="https://example.com">a</a>'}
    with (
        RunningReceiver(tmp_path, warehouse.airflow_connection) as receiver,
        MailClient(ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key)) as client,
    ):
        toggles = EventToggles(**dict.fromkeys(EventToggles.model_fields, True))
        url = f"{receiver.url}/{receiver.token}"
        client.send(SaveWebhook(trans_callback_url=url, trans_event=toggles, trans_enable=True))
        client.send(SendBatch(message_versions=people, unique_msg_id="order", track_open=1, track_click=1, **letter))
        emulator.clock.advance(days=30)
        emulator.flush_events(timeout=600)
    airflow.unpause("pushed_follow")

    run_id = airflow.start_run("pushed_drain")
    assert airflow.wait_for_run("pushed_drain", run_id) == "success"
    drained = airflow.xcom("pushed_drain", run_id, "drain")
    assert drained["dead_letters"] == drained["duplicates"] == 0
    assert drained["by_code"]["Delivered"] + drained["by_code"]["Bounced"] == len(people)
    (follower,) = wait_until(lambda: airflow.api.runs("pushed_follow"), what="a run because of the events")
    assert airflow.wait_for_run("pushed_follow", follower["dag_run_id"]) == "success"
    (counts,) = airflow.xcom("pushed_follow", follower["dag_run_id"], "counts")
    assert ("Delivered" in str(counts), "@" in str(counts)) == (True, False)

    run_id = airflow.start_run("pushed_compare", conf={"day": day})
    assert airflow.wait_for_run("pushed_compare", run_id) == "success"
    with warehouse.connect() as connection:
        rows = connection.execute("SELECT counter, difference FROM mail_event_differences").fetchall()
    assert [difference for _, difference in rows] == [0] * 6
