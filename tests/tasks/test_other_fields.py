"""Fields that the service adds to its records are kept, and shown nowhere but in the tables."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_mail.api.campaigns import CampaignStats
from airflow_provider_mail.api.contacts import Contact
from airflow_provider_mail.emulator import Emulator, codec
from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailCampaignsToSqlOperator,
    MailContactsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)
from tests.tasks.conftest import TASK, Run, SqlDatabase

DAY = "2024-03-02"
SURPRISE = {"futureFlag": True, "surprise": {"depth": [1, {"two": None}]}}
"""What the emulator's fault adds to records."""

LOADS: dict[str, tuple[Any, dict[str, Any]]] = {
    "mail_contacts": (MailContactsToSqlOperator, {"list_name": "newsletter"}),
    "mail_campaign_stats": (MailCampaignStatsToSqlOperator, {"start_day": DAY, "end_day": DAY, "snapshots": True}),
    "mail_campaigns": (MailCampaignsToSqlOperator, {}),
    "mail_transactional_stats": (MailTransactionalStatsToSqlOperator, {"start_day": DAY, "end_day": DAY}),
}


@pytest.mark.parametrize("table", LOADS)
def test_new_fields_are_kept(emulator: Emulator, any_warehouse: SqlDatabase, run: Run, table: str) -> None:
    emulator.add_list("newsletter", count=30)
    emulator.add_campaigns(4, first_day=DAY)
    emulator.set_transactional_day(DAY, sentCount=7)
    operator, arguments = LOADS[table]

    def load() -> Any:
        done = run(lambda: operator(task_id=TASK, sql_conn_id="warehouse", **arguments))
        assert done.state == "success", done.log
        assert "surprise" not in done.log + json.dumps(done.returned)
        return done.returned

    def kept(name: str = table) -> list[Any]:
        rows = any_warehouse.query(f"SELECT other_fields FROM {name}")
        return [json.loads(value) if isinstance(value, str) else value for (value,) in rows]

    records = load()["records"]
    assert kept() == [None] * records
    # A table of an earlier version: the column is added, and rows without such fields are not written.
    any_warehouse.execute(f"ALTER TABLE {table} DROP COLUMN other_fields")
    assert load()["changed"] == 0
    emulator.faults.add("extra_fields", count=None)
    assert load()["changed"] == records
    assert kept() == [SURPRISE] * records
    assert load()["unchanged"] == records
    if table == "mail_campaign_stats":
        assert kept(f"{table}_snapshots") == [SURPRISE] * records


@pytest.mark.parametrize("record", [Contact.model_validate({"id": "1", "secretName": "planted"})])
def test_their_values_are_not_shown(record: Contact) -> None:
    assert record.other_fields == {"secretName": "planted"}
    assert "planted" not in repr(record)
    assert "secretName='***'" in repr(record)


def test_a_record_without_new_fields_has_none() -> None:
    counts = {name: 1 for name in CampaignStats.model_fields if name not in ("mail_name", "mail_send_date")}
    assert CampaignStats(mail_name="x", **counts).other_fields is None


@pytest.mark.parametrize("table", LOADS)
def test_long_numbers_keep_their_digits(
    emulator: Emulator, warehouse: SqlDatabase, run: Run, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    numbers = "[0.1234567890123456789012345,-12345678901234567.25,123456789012345678901234567890,0.1,1.5]"
    encode = codec.encode
    monkeypatch.setattr(codec, "encode", lambda value: encode(value).replace(b"[1,{", f"[{numbers},{{".encode()))
    emulator.add_list("newsletter", count=3)
    emulator.add_campaigns(2, first_day=DAY)
    emulator.set_transactional_day(DAY, sentCount=7)
    emulator.faults.add("extra_fields", count=None)
    operator, arguments = LOADS[table]
    for _ in range(2):
        done = run(lambda: operator(task_id=TASK, sql_conn_id="warehouse", **arguments))
        assert done.state == "success", done.log
    assert done.returned["changed"] == 0
    for (value,) in warehouse.query(f"SELECT other_fields FROM {table}"):
        assert numbers in value
