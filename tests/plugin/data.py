"""Tables for the page: campaigns that grow, days of transactional mail, contacts, loads, rejected rows."""

from __future__ import annotations

import datetime
from typing import Any

from airflow_provider_mail.api.campaigns import Campaign, CampaignStats
from airflow_provider_mail.warehouse.coverage import Coverage
from airflow_provider_mail.warehouse.tables.campaigns import CAMPAIGNS, campaign_row
from airflow_provider_mail.warehouse.tables.stats import (
    CAMPAIGN_SNAPSHOTS,
    CAMPAIGN_STATS,
    campaign_stats_row,
    snapshot_rows,
)
from tests.warehouse.conftest import Warehouse

UTC = datetime.UTC
FIRST = datetime.datetime(2026, 3, 1, 8, tzinfo=UTC)
ACCOUNT = "mail_default"
HOSTILE = (
    "<script>alert(1)</script>",
    '"><svg onload=alert(1)>',
    "javascript:alert(1)//%0a'",
    "{{ 7 * 7 }}&amp;<b>",
    "../../auth/logout?x=1#y",
)
TASK_NAME = "mail_campaign/send_newsletter/scheduled__2026-03-05T00:00:00+00:00"


def stats(name: str, sent_at: datetime.datetime, opens: int, sent: int = 1000) -> CampaignStats:
    """A record of the service."""
    return CampaignStats.model_validate(
        {
            "mailName": name, "mailSendDate": int(sent_at.timestamp() * 1000), "sentCount": sent, "openCount": opens,
            "clickCount": opens // 5, "hardBounce": 7, "softBounce": 3, "unsentCount": 0, "unsubscribeCount": 2,
        }
    )  # fmt: skip


def task(name: str, status: int, sent_at: datetime.datetime, **more: Any) -> Campaign:
    """A send task of the service."""
    return Campaign.model_validate(
        {
            "guid": f"guid-{name}", "mailName": name, "mailStatus": status, "subject": f"About {name}",
            "sendByDateTime": int(sent_at.timestamp() * 1000), "rcptListNames": ["Newsletter", "Shop"],
            "senderMail": "secret.sender@planted.example", "replyTo": "reply@planted.example", **more,
        }
    )  # fmt: skip


def load_stats(warehouse: Warehouse, records: list[CampaignStats], asked_at: datetime.datetime, account: str) -> None:
    """One load with snapshots, as the operator does it."""
    rows = [campaign_stats_row(each, mail_conn_id=account, team=None, observed_at=asked_at) for each in records]
    day = asked_at.date()
    covers = Coverage.days(
        CAMPAIGN_STATS["mail_send_date"], day - datetime.timedelta(days=7), day, mail_conn_id=account,
        observed_at=asked_at,
    )  # fmt: skip
    warehouse.load(CAMPAIGN_STATS, rows, "mail_campaign_stats", covers=covers)
    warehouse.load(CAMPAIGN_SNAPSHOTS, list(snapshot_rows(rows)), "mail_campaign_stats_snapshots")


def fill_campaigns(warehouse: Warehouse) -> None:
    """Eight campaigns with snapshots of their first days, hostile names, and tasks without statistics."""
    names = [f"week-{number}" for number in range(7)] + [TASK_NAME]
    for day in range(6):
        records = []
        for number, name in enumerate(names):
            opens = 100 + 10 * number + 40 * day
            records.append(stats(name, FIRST + datetime.timedelta(days=number), opens))
        for number in range(len(names)):
            asked_at = FIRST + datetime.timedelta(days=number + day, hours=6)
            load_stats(warehouse, [records[number]], asked_at, ACCOUNT)
    for name in HOSTILE:
        load_stats(warehouse, [stats(name, FIRST, 10)], FIRST + datetime.timedelta(days=1), "mail_shop")
    future = datetime.datetime.now(UTC) + datetime.timedelta(days=3)
    counts = {
        "sentCount": 1000, "deliveredCount": 990, "openCount": 360, "clickCount": 72, "hardBounce": 7,
        "softBounce": 3, "unsentCount": 0, "unsubscribeCount": 2,
    }  # fmt: skip
    tasks = [
        task("week-6", 2, FIRST, mailStats=counts),
        task("planned", 1, future),
        task("broken", 4, FIRST),
        task("draft", -1, FIRST),
    ]
    asked_at = FIRST + datetime.timedelta(days=30)
    rows = [campaign_row(each, mail_conn_id=ACCOUNT, observed_at=asked_at) for each in tasks]
    warehouse.load(CAMPAIGNS, rows, "mail_campaigns")


def fill(warehouse: Warehouse) -> None:
    """All tables."""
    fill_campaigns(warehouse)
