"""Fields that the service adds to its records are kept, and shown nowhere but in the tables."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from airflow_provider_mail.api.campaigns import Campaign
from airflow_provider_mail.api.contacts import Contact
from airflow_provider_mail.api.lists import ContactList
from airflow_provider_mail.api.senders import Sender
from airflow_provider_mail.api.templates import Template
from airflow_provider_mail.warehouse.tables.resources import (
    LISTS,
    TEMPLATES,
    campaign_row,
    contact_row,
    resource_row,
    sender_row,
)
from mail_emulator import Emulator, responses
from tests.tasks.conftest import Run, SqlDatabase
from tests.tasks.loading import LOADS, executed, load_task
from tests.warehouse.tables import NOON

DAY = "2024-03-02"
NUMBERS = "[0.1234567890123456789012345,-12345678901234567.25,123456789012345678901234567890,0.1,1.5]"


@pytest.mark.parametrize(("table", "kind"), [*((table, "sqlite") for table in LOADS), ("mail_contacts", "postgres")])
def test_new_fields_are_kept(
    run: Run, emulator: Emulator, make_database: Any, monkeypatch: pytest.MonkeyPatch, table: str, kind: str
) -> None:
    warehouse: SqlDatabase = make_database(kind, "warehouse")
    emulator.add_list("news", count=30)
    emulator.add_campaigns(4, first_day=DAY, per_day=4)
    emulator.set_transactional_day(DAY, sentCount=7)

    task = partial(load_task, table)

    def kept(name: str = table) -> list[Any]:
        rows = warehouse.query(f"SELECT other_fields FROM {name}")
        return [json.loads(value) if isinstance(value, str) else value for (value,) in rows]

    records = executed(task())["records"]
    assert kept() == [None] * records
    # A table of an earlier version: the column is added, and rows without such fields are not written.
    warehouse.execute(f"ALTER TABLE {table} DROP COLUMN other_fields")
    assert executed(task())["changed"] == 0
    emulator.faults.add("extra_fields", count=None)
    done = run(task)
    assert (done.state, done.returned["changed"]) == ("success", records)
    assert "surprise" not in done.log + json.dumps(done.returned)
    added = {"futureFlag": True, "surprise": {"depth": [1, {"two": None}]}}
    assert kept() == [added] * records
    assert executed(task())["unchanged"] == records
    if warehouse.is_sqlite:  # long numbers keep their digits
        encode = responses.encode_json
        monkeypatch.setattr(
            responses, "encode_json", lambda value: encode(value).replace(b"[1,{", f"[{NUMBERS},{{".encode())
        )
        assert [executed(task())["changed"] for _ in range(2)] == [records, 0]
        assert all(NUMBERS in value for (value,) in warehouse.query(f"SELECT other_fields FROM {table}"))


@pytest.mark.parametrize(("model", "row", "values"), [
    (Campaign, campaign_row, {"mailName": "x", "mailStatus": 2, "rcptEmails": ["a@b.example"]}),
    (ContactList, partial(resource_row, LISTS), {"listName": "x"}),
    (Template, partial(resource_row, TEMPLATES), {"templateName": "x"}),
    (Sender, sender_row, {"fromDomain": "x.example"}),
    (Contact, partial(contact_row, team_name="", list_name="x"), {"id": "1"}),
])  # fmt: skip
def test_a_declared_field_without_a_column_is_kept(model: Any, row: Any, values: dict[str, Any]) -> None:
    class Declared(model):  # type: ignore[misc]
        sent_from: str | None = None

    def kept(**fields: Any) -> Any:
        found = row(Declared.model_validate({**values, **fields}), mail_conn_id="m", observed_at=NOON)
        (others,) = [value for value in found if isinstance(value, dict) and value] or [None]
        return others

    assert kept() is None
    fields = {str(Declared.model_fields["sent_from"].alias): "A", "futureFlag": True}
    assert kept(**fields) == fields


def test_values_of_new_fields_are_not_shown() -> None:
    record = Contact.model_validate({"id": "1", "secretName": "planted"})
    assert record.other_fields == {"secretName": "planted"}
    assert "secretName='***'" in repr(record)
