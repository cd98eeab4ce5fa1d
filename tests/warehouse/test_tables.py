"""The declared tables: what a table may be and be called, the rows made for them, and the pages on them."""

from __future__ import annotations

import datetime
import importlib
import pkgutil
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import airflow_provider_mail.warehouse as warehouse
from airflow_provider_mail.api.campaigns import Campaign, CampaignStats
from airflow_provider_mail.api.contacts import Contact
from airflow_provider_mail.api.flows.validate_rows import Reject
from airflow_provider_mail.api.senders import Sender
from airflow_provider_mail.api.transactional import TransactionalStats
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.event_counts import CountedOn, event_counts
from airflow_provider_mail.warehouse.table import JSON, TEXT, NamePart, Table, TableName
from airflow_provider_mail.warehouse.tables.events import EVENTS, EventCounts
from airflow_provider_mail.warehouse.tables.imports import REJECTS, reject_row
from airflow_provider_mail.warehouse.tables.resources import (
    CAMPAIGNS,
    CONTACTS,
    SENDERS,
    UNKNOWN_TYPE,
    campaign_row,
    contact_row,
    sender_row,
)
from airflow_provider_mail.warehouse.tables.stats import (
    CAMPAIGN_STATS,
    TRANSACTIONAL_STATS,
    campaign_stats_row,
    percent,
    snapshots_name,
    transactional_stats_row,
)
from docs import tables
from tests.warehouse.conftest import Warehouse, in_each_dialect
from tests.warehouse.tables import NOON


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("orders", [NamePart("orders", False)]),
        ("crm.Orders", [NamePart("crm", False), NamePart("Orders", False)]),
        ('crm."Orders 2026"', [NamePart("crm", False), NamePart("Orders 2026", True)]),
        ('"a.b"."say ""hi"""', [NamePart("a.b", True), NamePart('say "hi"', True)]),
        ("c.crm.übersicht$1", [NamePart("c", False), NamePart("crm", False), NamePart("übersicht$1", False)]),
    ],
)
def test_names_that_users_give(name: str, parts: list[NamePart]) -> None:
    parsed = TableName.parse(name)
    assert list(parsed.parts) == parts
    assert TableName.parse(str(parsed)) == parsed


NO_NAMES = [
    *("", ".", "orders.", ".orders", "crm..orders", "a.b.c.d", "my orders", "orders; DROP TABLE x", "orders--"),
    *('"orders', '"or"ders"', '""', "1st", "a-b", '"100%"', "x" * 64, "ü" * 32, "orders\n", '"nul\x00"'),
]


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_name_says_which_argument(name: str) -> None:
    with pytest.raises(WarehouseError, match="`table` must be a name"):
        TableName.parse(name)


@given(st.text())
def test_no_text_breaks_out_of_its_quotes(name: str) -> None:
    try:
        parsed = TableName.parse(name)
    except WarehouseError:
        return
    assert TableName.parse(str(parsed)) == parsed
    assert all(part.text for part in parsed.parts)


@pytest.mark.parametrize("name", tables.TABLES)
def test_every_database_can_have_the_declared_tables(name: str) -> None:
    table = tables.TABLES[name]
    assert len(set(table.stored_names)) == len(table.stored_names)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]{0,62}", column) for column in table.stored_names)
    assert not any("*/" in column.comment for column in table.stored_columns)  # where it is a comment in SQL
    for column in map(table.__getitem__, table.key):
        assert not column.nullable
        assert column.type not in (TEXT, JSON)
    times = [column for column in table.columns if column.observed or column.gone]
    assert all(column.type.name == "timestamp" and column.nullable == column.gone for column in times)
    assert [column.observed for column in times] in ([], [True], [True, False])


# Rows of the declared tables

SENT_AT = datetime.datetime(2026, 2, 28, 23, 59, 59, 999000, tzinfo=datetime.UTC)
WHO = {"mail_conn_id": "mail_default", "team_name": "Marketing", "observed_at": NOON}


def as_dict(table: Table, row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(table.names, row, strict=True))


def test_a_record_becomes_a_row() -> None:
    record = {
        "mailName": "Frühling 🌷", "mailSendDate": 1772323199999, "sentCount": 8, "openCount": 3, "clickCount": 2,
        "hardBounce": 1, "softBounce": 2, "unsentCount": 5, "unsubscribeCount": 1,
    }  # fmt: skip
    row = as_dict(CAMPAIGN_STATS, campaign_stats_row(CampaignStats.model_validate(record), **WHO))
    assert row == WHO | {
        "mail_name": "Frühling 🌷", "mail_send_date": SENT_AT, "other_fields": None, "gone_at": None,
        "sent_count": 8, "open_count": 3, "click_count": 2, "hard_bounce": 1, "soft_bounce": 2, "unsent_count": 5,
        "unsubscribe_count": 1, "open_rate": 37.5, "click_rate": 25.0, "bounce_rate": 37.5, "unsubscribe_rate": 12.5,
    }  # fmt: skip
    record = {
        "statsDate": "2026-02-28", "sentCount": 8, "openCount": 12, "clickCount": 2, "bounceCount": 4,
        "unsentCount": 5, "unsubscribeCount": 1,
    }  # fmt: skip
    row = as_dict(TRANSACTIONAL_STATS, transactional_stats_row(TransactionalStats.model_validate(record), **WHO))
    assert row == WHO | {
        "stats_date": datetime.date(2026, 2, 28), "other_fields": None, "sent_count": 8, "open_count": 12,
        "click_count": 2, "bounce_count": 4, "unsent_count": 5, "unsubscribe_count": 1, "open_rate": 150.0,
        "click_rate": 25.0, "unsubscribe_rate": 12.5,
    }  # fmt: skip
    assert "oft bounces only" in TRANSACTIONAL_STATS["bounce_count"].comment


def test_what_a_record_lacks_and_what_it_has_beside() -> None:
    seen: dict[str, Any] = {"mail_conn_id": "mail_default", "observed_at": NOON}
    sender = Sender.model_validate({"fromDomain": "example.com"})
    assert as_dict(SENDERS, sender_row(sender, **seen))["sender_type"] == UNKNOWN_TYPE
    for stats, number, other in [(None, None, {"new": 1}), ({"sentCount": 3}, 3, {"new": 1}),
                                 ({"sentCount": 3, "new": 2}, 3, {"new": 1, "mailStats": {"new": 2}})]:  # fmt: skip
        mail = Campaign.model_validate({"mailName": "n", "mailStatus": 2, "mailStats": stats, "new": 1})
        row = as_dict(CAMPAIGNS, campaign_row(mail, **seen))
        assert (row["mail_name"], row["sent_count"], row["other_fields"]) == ("n", number, other)
    for value, count in (("12", 12), ("x", None), ("", None), (None, None), ("9" * 19, None)):
        contact = Contact.model_validate({"id": "1", "properties": {"email_open_count": value}})
        row = as_dict(CONTACTS, contact_row(contact, team_name="", list_name="customers", **seen))
        assert (row["list_name"], row["email_open_count"]) == ("customers", count)


def test_names_made_of_others() -> None:
    assert [snapshots_name("mail.stats", name) for name in (None, "other")] == ["mail.stats_snapshots", "other"]
    with pytest.raises(WarehouseError, match=r"snapshots_table: 'stats' cannot be its name: it is that of `table`"):
        snapshots_name("stats", "stats")
    assert [percent(0, 0), percent(3, 0), percent(1, 3)] == [0.0, 0.0, 1 / 3 * 100]


@in_each_dialect
def test_rows_that_were_set_aside_in_a_table(warehouse: Warehouse) -> None:
    values = ["a@", None, 5, True, 1.5, float("inf"), Decimal("1.10"), NOON.date(), "nul\x00", "half\ud800", "漢"]
    kept = ["a@", None, 5, True, 1.5, "inf", "1.10", "2026-03-01", "nul\\x00", "half\\ud800", "漢"]
    reject = Reject(row_number=7, field="email", reason="not an address", row=values)
    for _ in range(2):  # a second try of the task
        warehouse.load(REJECTS, [reject_row(reject, import_id="dag/run/task", rejected_at=NOON)])
    assert warehouse.rows(REJECTS) == [("dag/run/task", "", 7, "email", "not an address", kept, NOON)]


# Events are counted alike by every database

BEGIN = NOON.replace(hour=0)
END = BEGIN + datetime.timedelta(days=1)


def rows(*events: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Rows of `EVENTS`: a mail that was sent and opened at noon, where they say nothing else."""
    usual = {
        "mail_conn_id": "mail_default",
        "event_code": "Opened",
        "email": "ada@example.com",
        "unique_msg_id": "m1",
        "submit_time": NOON,
        "triggered_time": NOON,
        "received_at": END,
        "raw": {},
        "push_id": 1,
        "push_index": 0,
    }
    filled: list[dict[str, Any]] = [usual | {"event_id": str(number)} | each for number, each in enumerate(events)]
    return [tuple(each.get(name) for name in EVENTS.names) for each in filled]


def counts(warehouse: Warehouse, counted_on: CountedOn = "send", **options: Any) -> dict[str, EventCounts]:
    given: dict[str, Any] = {"mail_conn_id": "mail_default", "begin": BEGIN, "end": END, "counted_on": counted_on}
    found = event_counts(warehouse.hook, "mail_events", **given | options)
    return {name: each for name, each in found.items() if each.events}


@in_each_dialect
def test_mails_and_events(warehouse: Warehouse) -> None:
    warehouse.load(EVENTS, [], "mail_events")
    assert counts(warehouse) == {}
    last = END - datetime.timedelta(microseconds=1)
    warehouse.load(
        EVENTS,
        rows(
            {"event_code": "Delivered"},
            {"event_code": "Bounced"},  # first the one, then the other: one mail
            {"event_code": "Bounced", "email": "bob@example.com"},  # of the same request
            {},
            {"triggered_time": last},
            {"unique_msg_id": None},
            {"unique_msg_id": None, "submit_time": last},
            {"unique_msg_id": None, "submit_time": END},
            {"unique_msg_id": "m2", "submit_time": BEGIN},
            {"unique_msg_id": "m2", "submit_time": BEGIN - datetime.timedelta(microseconds=1)},
            {"event_code": "Delivered", "unique_msg_id": "m3", "guid": "campaign"},
            {"event_code": "Delivered", "unique_msg_id": "m4", "mail_conn_id": "mail_shop"},
            {"event_code": "Dropped", "unique_msg_id": "m5", "guid": "", "event_type": "O'Type"},
            {"event_code": "SpamReport"},
        ),
        "mail_events",
    )
    assert counts(warehouse) == {
        "sent_count": EventCounts(2, 3),
        "bounce_count": EventCounts(2, 2),
        "open_count": EventCounts(4, 5),
        "unsent_count": EventCounts(1, 1),
    }
    assert counts(warehouse, event_types=["O'Type", "other"]) == {"unsent_count": EventCounts(1, 1)}


@in_each_dialect
def test_the_time_that_decides(warehouse: Warehouse) -> None:
    warehouse.load(
        EVENTS,
        rows(
            {"event_code": "Delivered"},
            {"event_code": "Opened", "triggered_time": END, "submit_time": None},  # that of Delivered
            {"event_code": "Clicked", "triggered_time": END, "submit_time": None, "unique_msg_id": "m2"},
            {"event_code": "Delivered", "unique_msg_id": "m2", "mail_conn_id": "mail_shop"},
            {"event_code": "Unsubscribed", "triggered_time": None, "submit_time": None, "received_at": NOON,
             "unique_msg_id": "m3"},
        ),
        "mail_events",
    )  # fmt: skip
    assert counts(warehouse, "send").keys() == {"sent_count", "open_count", "unsubscribe_count"}
    assert counts(warehouse, "event").keys() == {"sent_count", "unsubscribe_count"}


# The page on tables says what is declared, of every table there is


def test_columns_are_as_declared() -> None:
    page = tables.PAGE.read_text()
    assert page == tables.filled(page), "run: python docs/tables.py"


def test_every_declared_table_is_explained() -> None:
    infos = pkgutil.walk_packages(warehouse.__path__, f"{warehouse.__name__}.")
    modules = [importlib.import_module(info.name) for info in infos]
    declared = {name: value for module in modules for name, value in vars(module).items() if isinstance(value, Table)}
    assert {"CAMPAIGN_STATS", "CONTACTS"} <= declared.keys()
    assert {name for name, table in declared.items() if table not in tables.TABLES.values()} == set()
    shown = re.findall(r"<!-- table: (\w+) -->", tables.PAGE.read_text())
    assert sorted(shown) == sorted(tables.TABLES)
