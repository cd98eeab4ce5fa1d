"""Tables for the page: campaigns that grow, days of transactional mail, contacts, loads, imports."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from airflow_provider_mail.api.campaigns import Campaign, CampaignStats
from airflow_provider_mail.api.transactional import TransactionalStats
from airflow_provider_mail.warehouse.request import Coverage
from airflow_provider_mail.warehouse.table import Table
from airflow_provider_mail.warehouse.tables.events import (
    DEAD_LETTERS,
    EVENT_DIFFERENCES,
    EVENTS,
    Difference,
)
from airflow_provider_mail.warehouse.tables.imports import AUDIENCE_CHANGES, AUDIENCE_RUNS, IMPORTS
from airflow_provider_mail.warehouse.tables.resources import CAMPAIGNS, CONTACTS, campaign_row
from airflow_provider_mail.warehouse.tables.stats import (
    CAMPAIGN_SNAPSHOTS,
    CAMPAIGN_STATS,
    TRANSACTIONAL_STATS,
    campaign_stats_row,
    snapshot_rows,
    transactional_stats_row,
)
from tests.warehouse.conftest import Warehouse

UTC, DAY = datetime.UTC, datetime.timedelta(days=1)
FIRST = datetime.datetime(2026, 3, 1, 8, tzinfo=UTC)
ACCOUNT = "mail_default"
HOSTILE = (
    "<script>alert(1)</script>",
    '"><svg onload=alert(1)>',
    "javascript:alert(1)//%0a'",
    "{{ 7 * 13579 }}&amp;<b>",
    "../../auth/logout?x=1#y",
)
TASK_NAME = "mail_campaign/send_newsletter/scheduled__2026-03-05T00:00:00+00:00"


def stats(name: str, sent_at: datetime.datetime, opens: int, sent: int = 1000) -> CampaignStats:
    """A record of the service."""
    return CampaignStats.model_validate(
        {
            "mailName": name, "mailSendDate": int(sent_at.timestamp() * 1000), "sentCount": sent, "openCount": opens,
            "clickCount": opens // 5, "hardBounce": 7 * sent // 1000, "softBounce": 3 * sent // 1000, "unsentCount": 0,
            "unsubscribeCount": 2 * sent // 1000,
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
    day, who = asked_at.date(), {"mail_conn_id": account, "team_name": "", "observed_at": asked_at}
    rows = [campaign_stats_row(each, **who) for each in records]
    covers = Coverage.days(CAMPAIGN_STATS["mail_send_date"], day - 7 * DAY, day, **who)
    warehouse.load(CAMPAIGN_STATS, rows, "mail_campaign_stats", covers=covers)
    warehouse.load(CAMPAIGN_SNAPSHOTS, list(snapshot_rows(rows)), "mail_campaign_stats_snapshots")


def load_tasks(
    warehouse: Warehouse, tasks: Sequence[Campaign], asked_at: datetime.datetime = FIRST, account: str = ACCOUNT
) -> None:
    """One load of send tasks, as the operator does it."""
    rows = [campaign_row(each, mail_conn_id=account, observed_at=asked_at) for each in tasks]
    warehouse.load(CAMPAIGNS, rows, "mail_campaigns")


def fill_campaigns(warehouse: Warehouse) -> None:
    """Eight campaigns with snapshots of their first days, hostile names, and tasks without statistics."""
    names = [f"week-{number}" for number in range(7)] + [TASK_NAME]
    for today in range(len(names) + 5):
        # A campaign is observed on the day of its sending and on the five days after it.
        ages = {number: today - number for number in range(len(names)) if 0 <= today - number <= 5}
        records = [stats(names[n], FIRST + n * DAY, 100 + 10 * n + 40 * age) for n, age in ages.items()]
        load_stats(warehouse, records, FIRST + today * DAY + DAY / 4, ACCOUNT)
    load_stats(warehouse, [stats(name, FIRST, 10) for name in HOSTILE], FIRST + DAY, "mail_shop")
    counts = {
        "sentCount": 1000, "deliveredCount": 990, "openCount": 360, "clickCount": 72, "hardBounce": 7,
        "softBounce": 3, "unsentCount": 0, "unsubscribeCount": 2,
    }  # fmt: skip
    tasks = [
        task("week-6", 2, FIRST, mailStats=counts),
        task("planned", 1, datetime.datetime.now(UTC) + 3 * DAY),
        task("broken", 4, FIRST),
        task("draft", -1, FIRST),
    ]
    load_tasks(warehouse, tasks, FIRST + 30 * DAY)


def row(table: Table, **values: Any) -> tuple[Any, ...]:
    """A row of the account's table."""
    return tuple({"mail_conn_id": ACCOUNT, **values}.get(name) for name in table.names)


def fill_transactional(warehouse: Warehouse) -> None:
    """Ten days without the fourth."""
    asked_at = FIRST + 10 * DAY
    days = [FIRST.date() + number * DAY for number in range(10) if number != 3]
    counts = {"openCount": 40, "clickCount": 4, "bounceCount": 2, "unsentCount": 1, "unsubscribeCount": 0}
    who: dict[str, Any] = {"mail_conn_id": ACCOUNT, "team_name": "", "observed_at": asked_at}
    records = [{"statsDate": day.isoformat(), "sentCount": 100 + n, **counts} for n, day in enumerate(days)]
    rows = [transactional_stats_row(TransactionalStats.model_validate(record), **who) for record in records]
    covers = Coverage.days(TRANSACTIONAL_STATS["stats_date"], days[0], days[-1], only=days, **who)
    warehouse.load(TRANSACTIONAL_STATS, rows, "mail_transactional_stats", covers=covers)


def fill_contacts(warehouse: Warehouse) -> None:
    """Lists of twelve and six contacts, of which four are in both; contacts are created month by month."""
    asked_at = FIRST + 10 * DAY
    personal = {"email": "contact@planted.example", "name": "Planted Name", "properties": {"email": "planted"}}
    for list_name, numbers in (("Newsletter", range(12)), ("Shop <b>", range(8, 14))):
        where = {"mail_conn_id": ACCOUNT, "list_name": list_name}
        covers = Coverage.one(list_name, where, mail_conn_id=ACCOUNT, observed_at=asked_at)
        created = {n: datetime.datetime(2026, 1 + n % 3, 5, tzinfo=UTC) if n else None for n in numbers}
        of_list = {"team_name": "", "list_name": list_name, "observed_at": asked_at, **personal}
        rows = [row(CONTACTS, id=str(n), create_date=created[n], **of_list) for n in numbers]
        warehouse.load(CONTACTS, rows, "mail_contacts", covers=covers)


def fill_events(warehouse: Warehouse) -> None:
    """Events of today and of last year, one that could not be read, and two differences."""
    now = datetime.datetime.now(UTC)
    codes = ["Delivered" if number % 3 else "e@planted.example" for number in range(9)]
    personal = {"email": "e@planted.example", "ip": "203.0.113.77", "raw": {"Email": "e@planted.example"}}
    happened = [*((code, now) for code in codes), ("Bounced", now - 300 * DAY)]
    rows = [
        row(EVENTS, event_id=f"{n:032}", event_code=code, received_at=at, push_id=1, push_index=n, **personal)
        for n, (code, at) in enumerate(happened)
    ]
    warehouse.load(EVENTS, rows, "mail_events")
    letter = (ACCOUNT, "x" * 32, "no EventCode", "e@planted.example", now, 1, 0)
    warehouse.load(DEAD_LETTERS, [letter], "mail_dead_letters")
    differences = [
        Difference(FIRST.date(), "sent_count", 105, ((100, 100),)),
        Difference(FIRST.date(), "open_count", 9, ((8, 10),)),
    ]
    found = [each.row(ACCOUNT, each.is_tolerated(0, 0), "send", "UTC", now) for each in differences]
    warehouse.load(EVENT_DIFFERENCES, found, "mail_event_differences")


def import_row(number: int, state: str, finished_at: datetime.datetime, *, sandbox: bool = False) -> tuple[Any, ...]:
    """An import of 100 people, seven of whom were rejected."""
    counts = {
        "rows_read": 100, "rows_accepted": 93, "rows_rejected": 7, "rows_accepted_earlier": 0, "requests": 1,
        "rows_opted_out": 0, "rows_without_address": 0, "requests_with_message": 0, "try_number": 1, "seconds": 1.5,
    }  # fmt: skip
    one = {"import_id": f"d/t/{number}", "state": state, "reasons": [], "sandbox": sandbox, "finished_at": finished_at}
    return row(IMPORTS, **one, **counts)


def fill_imports(warehouse: Warehouse) -> None:
    """An import with rejected rows, and one in sandbox mode without any."""
    values = {
        "rows_read": 1234, "rows_accepted_earlier": 0, "requests": 1, "rows_opted_out": 0, "rows_without_address": 0,
        "requests_with_message": 0, "try_number": 1, "seconds": 1.5,
        "finished_at": FIRST,
    }  # fmt: skip
    failed = {
        "import_id": "crm/contacts/<u>2</u>", "state": "failed", "rows_accepted": 1232, "rows_rejected": 2,
        "reasons": [{"field": "email", "reason": "is <i>no</i> address", "rows": 2}], "list_name": "Shop <b>",
        "sandbox": False,
    }  # fmt: skip
    whole = {
        "import_id": "crm/files/manual__3", "state": "success", "rows_accepted": 1234, "rows_rejected": 0,
        "reasons": [], "sandbox": True,
    }  # fmt: skip
    warehouse.load(IMPORTS, [row(IMPORTS, **values, **of_one) for of_one in (failed, whole)], "mail_imports")


def fill_audiences(warehouse: Warehouse) -> None:
    """Two runs of one audience, a third one that a brake stopped, and the only run of another audience."""
    counts = {
        "rows_read": 0,
        "requests": 1,
        "rows_rejected": 4,
        "seconds": 1.5,
        "changed_count": 3,
        "rows_suppressed": 5,
    }
    few = {"everybody": False, "state": "success", "reason": None, "repel_list_name": "newsletter left <b>"}
    of_runs = [
        {
            "size": 1200,
            "joined_count": 1200,
            "left_count": 0,
            "everybody": True,
            "reason": "there is <i>no</i> state yet",
        },
        {"size": 1190, "joined_count": 10, "left_count": 20},
        {
            "size": 0,
            "joined_count": 0,
            "left_count": 900,
            "state": "stopped",
            "reason": "max_removed_fraction: 900 leave",
        },
    ]
    rows = [
        row(
            AUDIENCE_RUNS, import_id=f"crm/people/manual__{n}", audience="crm/people", finished_at=FIRST + n * DAY,
            send_list_name="newsletter 1", **counts | few | of_run,
        )
        for n, of_run in enumerate(of_runs)
    ]  # fmt: skip
    single = counts | few | of_runs[1] | {"size": 7, "send_list_name": "shop", "repel_list_name": None}
    single |= {"import_id": "shop/load/<u>1</u>", "audience": "shop/load", "finished_at": FIRST - DAY}
    warehouse.load(AUDIENCE_RUNS, [*rows, row(AUDIENCE_RUNS, **single)], "mail_audience_runs")
    changes = [("crm/people/manual__1", "planted digest", "left", FIRST)]
    warehouse.load(AUDIENCE_CHANGES, changes, "mail_audience_runs_changes")


def fill(warehouse: Warehouse) -> None:
    """All tables."""
    fill_campaigns(warehouse)
    fill_transactional(warehouse)
    fill_contacts(warehouse)
    fill_events(warehouse)
    fill_imports(warehouse)
    fill_audiences(warehouse)
