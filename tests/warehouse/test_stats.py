"""The declared tables, and the rows made for them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_mail.api.campaigns import CampaignStats
from airflow_provider_mail.api.flows.validate_rows import Reject
from airflow_provider_mail.api.transactional import TransactionalStats
from airflow_provider_mail.warehouse.table import Table
from airflow_provider_mail.warehouse.tables.rejects import REJECTS, reject_row
from airflow_provider_mail.warehouse.tables.stats import (
    CAMPAIGN_STATS,
    TRANSACTIONAL_STATS,
    campaign_stats_row,
    percent,
    transactional_stats_row,
)
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import LATER, NOON

SENT_AT = datetime.datetime(2026, 2, 28, 23, 59, 59, 999000, tzinfo=datetime.UTC)
WHO = {"mail_conn_id": "mail_default", "team": "Marketing", "observed_at": NOON}


def as_dict(table: Table, row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(table.names, row, strict=True))


def campaign(**values: Any) -> CampaignStats:
    """The record as the service writes it."""
    wire = {
        "mailName": "Frühling 🌷",
        "mailSendDate": 1772323199999,
        "sentCount": 8,
        "openCount": 3,
        "clickCount": 2,
        "hardBounce": 1,
        "softBounce": 2,
        "unsentCount": 5,
        "unsubscribeCount": 1,
    }
    return CampaignStats.model_validate({**wire, **values})


def day(**values: Any) -> TransactionalStats:
    """The record as the service writes it."""
    wire = {
        "statsDate": "2026-02-28",
        "sentCount": 8,
        "openCount": 12,
        "clickCount": 2,
        "bounceCount": 4,
        "unsentCount": 5,
        "unsubscribeCount": 1,
    }
    return TransactionalStats.model_validate({**wire, **values})


def test_a_campaign_becomes_a_row() -> None:
    assert as_dict(CAMPAIGN_STATS, campaign_stats_row(campaign(), **WHO)) == {
        "mail_conn_id": "mail_default",
        "team": "Marketing",
        "mail_name": "Frühling 🌷",
        "mail_send_date": SENT_AT,
        "sent_count": 8,
        "open_count": 3,
        "click_count": 2,
        "hard_bounce": 1,
        "soft_bounce": 2,
        "unsent_count": 5,
        "unsubscribe_count": 1,
        "open_rate": 37.5,
        "click_rate": 25.0,
        "bounce_rate": 37.5,
        "unsubscribe_rate": 12.5,
        "other_fields": None,
        "observed_at": NOON,
        "gone_at": None,
    }


def test_a_day_becomes_a_row() -> None:
    assert as_dict(TRANSACTIONAL_STATS, transactional_stats_row(day(), **WHO)) == {
        "mail_conn_id": "mail_default",
        "team": "Marketing",
        "stats_date": datetime.date(2026, 2, 28),
        "sent_count": 8,
        "open_count": 12,
        "click_count": 2,
        "bounce_count": 4,
        "unsent_count": 5,
        "unsubscribe_count": 1,
        "open_rate": 150.0,
        "click_rate": 25.0,
        "unsubscribe_rate": 12.5,
        "other_fields": None,
        "observed_at": NOON,
    }
    assert "oft bounces only" in TRANSACTIONAL_STATS["bounce_count"].comment


@pytest.mark.parametrize(("count", "sent", "rate"), [(0, 0, 0.0), (3, 0, 0.0), (0, 5, 0.0), (1, 3, 1 / 3 * 100)])
def test_rates_are_safe(count: int, sent: int, rate: float) -> None:
    assert percent(count, sent) == rate
    assert isinstance(percent(count, sent), float)


def test_statistics_of_campaigns_in_a_table(warehouse: Warehouse) -> None:
    nothing = campaign(mailName="draft", mailSendDate=None, sentCount=0, openCount=0)
    warehouse.load(CAMPAIGN_STATS, [campaign_stats_row(record, **WHO) for record in (campaign(), nothing)])
    other = {**WHO, "mail_conn_id": "other", "team": None}
    later = campaign_stats_row(campaign(openCount=8), **{**WHO, "observed_at": LATER})
    warehouse.load(CAMPAIGN_STATS, [later, campaign_stats_row(campaign(), **other)])
    assert sorted(warehouse.rows(CAMPAIGN_STATS)) == sorted(
        [campaign_stats_row(nothing, **WHO), later, campaign_stats_row(campaign(), **other)]
    )


def test_statistics_of_days_in_a_table(warehouse: Warehouse) -> None:
    rows = [transactional_stats_row(day(statsDate=f"2026-02-{number}"), **WHO) for number in (26, 27, 28)]
    warehouse.load(TRANSACTIONAL_STATS, rows)
    late = transactional_stats_row(day(statsDate="2026-02-27", openCount=13), **{**WHO, "observed_at": LATER})
    warehouse.load(TRANSACTIONAL_STATS, [late])
    assert warehouse.rows(TRANSACTIONAL_STATS) == [rows[0], late, rows[2]]


def test_rows_that_were_set_aside_in_a_table(warehouse: Warehouse) -> None:
    values = ["a@", None, 5, True, 1.5, float("inf"), Decimal("1.10"), NOON.date(), "nul\x00", "half\ud800", "漢"]
    kept = ["a@", None, 5, True, 1.5, "inf", "1.10", "2026-03-01", "nul\\x00", "half\\ud800", "漢"]
    reject = Reject(row_number=7, field="email", reason="not an address", row=values)
    for _ in range(2):  # a second try of the task
        warehouse.load(REJECTS, [reject_row(reject, import_id="dag/run/task", rejected_at=NOON)])
    assert warehouse.rows(REJECTS) == [("dag/run/task", 7, "email", "not an address", kept, NOON)]
