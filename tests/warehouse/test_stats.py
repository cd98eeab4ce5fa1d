"""The declared tables, and the rows made for them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_mail.api.campaigns import Campaign, CampaignStats
from airflow_provider_mail.api.contacts import Contact
from airflow_provider_mail.api.flows.validate_rows import Reject
from airflow_provider_mail.api.senders import Sender
from airflow_provider_mail.api.transactional import TransactionalStats
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.table import Table
from airflow_provider_mail.warehouse.tables.contacts import CONTACTS, contact_row, list_part
from airflow_provider_mail.warehouse.tables.imports import REJECTS, reject_row
from airflow_provider_mail.warehouse.tables.resources import (
    CAMPAIGNS,
    SENDERS,
    UNKNOWN_TYPE,
    campaign_row,
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
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import NOON

SENT_AT = datetime.datetime(2026, 2, 28, 23, 59, 59, 999000, tzinfo=datetime.UTC)
WHO = {"mail_conn_id": "mail_default", "team": "Marketing", "observed_at": NOON}


CAMPAIGN = {
    "mailName": "Frühling 🌷", "mailSendDate": 1772323199999, "sentCount": 8, "openCount": 3, "clickCount": 2,
    "hardBounce": 1, "softBounce": 2, "unsentCount": 5, "unsubscribeCount": 1,
}  # fmt: skip
DAY = {
    "statsDate": "2026-02-28", "sentCount": 8, "openCount": 12, "clickCount": 2, "bounceCount": 4, "unsentCount": 5,
    "unsubscribeCount": 1,
}  # fmt: skip
"""Records as the service writes them."""


def as_dict(table: Table, row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(table.names, row, strict=True))


def campaign(**values: Any) -> CampaignStats:
    return CampaignStats.model_validate({**CAMPAIGN, **values})


def day(**values: Any) -> TransactionalStats:
    return TransactionalStats.model_validate({**DAY, **values})


def test_a_record_becomes_a_row() -> None:
    rates = {"open_rate": 37.5, "click_rate": 25.0, "bounce_rate": 37.5, "unsubscribe_rate": 12.5}
    counts = dict(zip(CAMPAIGN_STATS.names[4:11], (8, 3, 2, 1, 2, 5, 1), strict=True))
    row = {**WHO, "mail_name": "Frühling 🌷", "mail_send_date": SENT_AT, **counts, **rates}
    assert as_dict(CAMPAIGN_STATS, campaign_stats_row(campaign(), **WHO)) == row | dict.fromkeys(
        ("other_fields", "gone_at")
    )
    assert (
        " ".join(counts) == "sent_count open_count click_count hard_bounce soft_bounce unsent_count unsubscribe_count"
    )
    rates = {"open_rate": 150.0, "click_rate": 25.0, "unsubscribe_rate": 12.5}
    counts = dict(zip(TRANSACTIONAL_STATS.names[3:9], (8, 12, 2, 4, 5, 1), strict=True))
    row = {**WHO, "stats_date": datetime.date(2026, 2, 28), **counts, **rates, "other_fields": None}
    assert as_dict(TRANSACTIONAL_STATS, transactional_stats_row(day(), **WHO)) == row
    assert " ".join(counts) == "sent_count open_count click_count bounce_count unsent_count unsubscribe_count"
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
    for text, count in (("12", 12), ("x", None), ("", None), (None, None), ("9" * 19, None)):
        contact = Contact.model_validate({"id": "1", "properties": {"email_open_count": text}})
        row = as_dict(CONTACTS, contact_row(contact, team="", list_name="customers", **seen))
        assert (row["list_name"], row["email_open_count"]) == ("customers", count)


def test_names_made_of_others() -> None:
    assert [list_part(*names) for names in (("", "l"), ("t", "l"), ("a/b", "c\\d"))] == ["l", "t/l", "a\\/b/c\\\\d"]
    assert [snapshots_name("mail.stats", name) for name in (None, "other")] == ["mail.stats_snapshots", "other"]
    with pytest.raises(WarehouseError, match=r"snapshots_table: 'stats' cannot be its name: it is that of `table`"):
        snapshots_name("stats", "stats")


@pytest.mark.parametrize(("count", "sent", "rate"), [(0, 0, 0.0), (3, 0, 0.0), (0, 5, 0.0), (1, 3, 1 / 3 * 100)])
def test_rates_are_safe(count: int, sent: int, rate: float) -> None:
    assert percent(count, sent) == rate
    assert isinstance(percent(count, sent), float)


def test_rows_that_were_set_aside_in_a_table(warehouse: Warehouse) -> None:
    values = ["a@", None, 5, True, 1.5, float("inf"), Decimal("1.10"), NOON.date(), "nul\x00", "half\ud800", "漢"]
    kept = ["a@", None, 5, True, 1.5, "inf", "1.10", "2026-03-01", "nul\\x00", "half\\ud800", "漢"]
    reject = Reject(row_number=7, field="email", reason="not an address", row=values)
    for _ in range(2):  # a second try of the task
        warehouse.load(REJECTS, [reject_row(reject, import_id="dag/run/task", rejected_at=NOON)])
    assert warehouse.rows(REJECTS) == [("dag/run/task", 7, "email", "not an address", kept, NOON)]
