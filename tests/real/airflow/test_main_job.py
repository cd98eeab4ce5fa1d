"""The main job in a real Airflow: contacts in, a campaign out, a wait that costs nothing, statistics back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from psycopg.rows import dict_row

from mail_emulator import Emulator
from tests.support.airflow import RunningAirflow
from tests.support.postgres import Database, PostgresServer
from tests.support.processes import wait_until
from tests.support.statsd import StatsdServer

CUSTOMERS, UNSENDABLE = 20_000, 40
HOUR = 3600
COUNTS = {
    "sent_count": "sentCount", "open_count": "openCount", "click_count": "clickCount", "hard_bounce": "hardBounce",
    "soft_bounce": "softBounce", "unsent_count": "unsentCount", "unsubscribe_count": "unsubscribeCount",
}  # fmt: skip
"""What the warehouse and the service call the counts."""


@pytest.fixture(scope="module")
def crm(airflow: RunningAirflow, postgres_server: PostgresServer) -> Iterator[Database]:
    with postgres_server.database() as database:
        with database.connect() as connection:
            connection.execute("CREATE TABLE customers (email text, full_name text, phone text, subscribed int)")
            connection.execute(
                "INSERT INTO customers SELECT 'planted-' || n || CASE WHEN n <= %s THEN '(at)' ELSE '@' END || "
                "'example.com', 'Customer ' || n, CASE WHEN n %% 3 = 0 THEN '+49 30 ' || n END, 1 "
                "FROM generate_series(1, %s) AS n",
                (UNSENDABLE, CUSTOMERS),
            )
            connection.execute("INSERT INTO customers VALUES ('planted-unsubscribed@example.com', NULL, NULL, 0)")
        airflow.set_connection("crm", database.airflow_connection)
        yield database


@pytest.mark.ci
def test_the_main_job(
    airflow: RunningAirflow, emulator: Emulator, crm: Database, warehouse: Database, statsd: StatsdServer
) -> None:
    statsd.received()  # of earlier tests
    # Sending takes an hour by the service's clock, so it is over when this test moves that clock.
    emulator.change_settings(sending_seconds=HOUR)
    counted = Counter[tuple[str, ...]]()

    def metrics() -> Counter[tuple[str, ...]]:
        counted.update(statsd.received())
        return counted

    run_id = airflow.start_run("mail_campaign")

    # The wait: in the triggerer, with no worker slot.
    airflow.wait_for_task("mail_campaign", run_id, "wait_until_sent", "deferred")
    slots = airflow.slots()
    assert (slots["running"], slots["queued"], slots["occupied"], slots["deferred"]) == (0, 0, 0, 1)
    ((classpath, _),) = airflow.triggers()
    assert classpath == "airflow_provider_mail.triggers.campaigns.MailCampaignTrigger"
    looks = emulator.journal.count("campaign/mail/get")
    polls = ("mail.requests", "mail_default", "v5.campaign.mail.get")
    polled = metrics()[polls]
    wait_until(lambda: emulator.journal.count("campaign/mail/get") > looks, what="a poll")
    wait_until(lambda: metrics()[polls] > polled, what="the poll in the metrics")
    assert airflow.task("mail_campaign", run_id, "wait_until_sent")["state"] == "deferred"

    emulator.clock.freeze()
    emulator.clock.advance(2 * HOUR)  # an hour of sending, and one in which people open
    assert airflow.wait_for_run("mail_campaign", run_id) == "success"

    # In the service.
    (list_name,) = airflow.xcom("mail_campaign", run_id, "sync_contacts")["send_list_names"]
    assert emulator.contact_count(list_name) == CUSTOMERS - UNSENDABLE
    (campaign,) = emulator.campaigns()
    assert campaign["mailName"] == f"mail_campaign/send_newsletter/{run_id}"
    assert emulator.journal.count("campaign/mail/sends") == 1
    mailed = emulator.campaign_recipients(campaign["mailName"])
    assert len(mailed) == len(set(mailed)) == CUSTOMERS - UNSENDABLE

    # In the databases.
    with crm.connect() as connection:
        (rejected,) = connection.execute("SELECT count(*) FROM newsletter_rejects WHERE field = 'email'").fetchall()
    assert rejected == (UNSENDABLE,)
    with warehouse.connect() as connection:
        cursor = connection.cursor(row_factory=dict_row)
        (row,) = cursor.execute("SELECT * FROM mail_campaign_stats WHERE mail_name = %s", (campaign["mailName"],))
    stats = campaign["mailStats"]
    assert {ours: row[ours] for ours in COUNTS} == {ours: stats[theirs] for ours, theirs in COUNTS.items()}
    sent = CUSTOMERS - UNSENDABLE
    assert row["sent_count"] == sent
    assert 0 < row["open_count"] < sent

    # In Airflow.
    imported = airflow.xcom("mail_campaign", run_id, "sync_contacts")
    assert (imported["read"], imported["accepted"], imported["rejected"]) == (CUSTOMERS, sent, UNSENDABLE)
    assert airflow.xcom("mail_campaign", run_id, "wait_until_sent")["sent_count"] == sent
    wait_until(lambda: not airflow.triggers(), what="the end of the trigger")
    assert {key: count for key, count in metrics().items() if key[1] == "mail_campaign"} == {
        ("mail.import.rows_read", "mail_campaign", "sync_contacts"): CUSTOMERS,
        ("mail.import.rows_accepted", "mail_campaign", "sync_contacts"): sent,
        ("mail.import.rows_rejected", "mail_campaign", "sync_contacts"): UNSENDABLE,
        ("mail.waits", "mail_campaign", "wait_until_sent", "complete"): 1,
        ("mail.load.records", "mail_campaign", "load_statistics"): 1,
        ("mail.load.records", "mail_campaign", "load_campaigns"): 1,
    }

    # Everything is cleared, and nobody is mailed twice.
    airflow.clear("mail_campaign", run_id)
    assert airflow.wait_for_run("mail_campaign", run_id) == "success"
    assert airflow.task("mail_campaign", run_id, "send_newsletter")["try_number"] == 2
    assert airflow.xcom("mail_campaign", run_id, "send_newsletter")["adopted"] is True
    assert len(emulator.campaigns()) == emulator.journal.count("campaign/mail/sends") == 1
    (list_name,) = airflow.xcom("mail_campaign", run_id, "sync_contacts")["send_list_names"]
    assert emulator.contact_count(list_name) == sent
