"""The responses of a service about two accounts, day after day, for the questions of `docs/questions.md`.

Records are kept as the service writes them, so that answers are worked out from them and not from our rows.
"""

from __future__ import annotations

import datetime
import json
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from airflow_provider_mail.api.campaigns import Campaign, CampaignStats
from airflow_provider_mail.api.contacts import Contact
from airflow_provider_mail.api.transactional import TransactionalStats
from airflow_provider_mail.warehouse.request import Coverage, MarkGone
from airflow_provider_mail.warehouse.tables.contacts import CONTACTS, contact_row, contacts_history, list_part
from airflow_provider_mail.warehouse.tables.events import EVENTS
from airflow_provider_mail.warehouse.tables.resources import CAMPAIGNS, campaign_row
from airflow_provider_mail.warehouse.tables.stats import (
    CAMPAIGN_SNAPSHOTS,
    CAMPAIGN_STATS,
    TRANSACTIONAL_STATS,
    campaign_stats_row,
    snapshot_rows,
    transactional_stats_row,
)
from airflow_provider_mail.webhook.events import Origin, read_push
from tests.warehouse.conftest import Warehouse

Wire = dict[str, Any]
UTC = datetime.UTC
TEAMS = {"mail_default": None, "mail_shop": "Shop"}
DAY = datetime.timedelta(days=1)
FIRST_DAY, LAST_DAY = datetime.date(2025, 12, 1), datetime.date(2026, 3, 15)


def moment(text: str) -> datetime.datetime:
    """A time in UTC."""
    return datetime.datetime.fromisoformat(text).replace(tzinfo=UTC)


def from_millis(millis: int | None) -> datetime.datetime | None:
    """What the service means by a number of milliseconds."""
    return None if millis is None else datetime.datetime(1970, 1, 1, tzinfo=UTC) + datetime.timedelta(0, 0, 0, millis)


def millis(when: datetime.datetime) -> int:
    """The other way round."""
    return (when - datetime.datetime(1970, 1, 1, tzinfo=UTC)) // datetime.timedelta(milliseconds=1)


@dataclass
class Look:
    """One response with statistics."""

    account: str
    asked_at: datetime.datetime
    records: list[Wire]
    whole: bool = True
    """Whether all campaigns of the window were asked for, and not those of one name."""


@dataclass
class Responses:
    """All responses of the service."""

    looks: list[Look] = field(default_factory=list)
    tasks: dict[str, list[Wire]] = field(default_factory=dict)
    days: dict[str, list[Wire]] = field(default_factory=dict)
    lists: dict[tuple[str, str, str], list[Wire]] = field(default_factory=dict)
    left: list[Wire] = field(default_factory=list)
    """Contacts that a list had once."""
    deleted: dict[str, list[Wire]] = field(default_factory=dict)
    """Tasks that there were once, by account."""
    events: dict[str, list[Wire]] = field(default_factory=dict)
    """Events that were pushed, each once, by account."""

    def readings(self, of_list: tuple[str, str, str]) -> tuple[list[Wire], list[Wire]]:
        """The contacts of a list, at both times of `LISTS_READ_AT`."""
        contacts = self.lists[of_list]
        return contacts[JOINED:] + self.left, contacts

    def latest(self) -> dict[tuple[str, str], Wire]:
        """The last record of each campaign that is not gone, by account and name."""
        return {
            (look.account, record["mailName"]): record
            for look in self.looks
            for record in look.records
            if (look.account, record["mailName"]) != GONE
        }


SENT_AT = [
    # A week that belongs to two years, and both ends of a week to the millisecond.
    "2025-12-28T23:59:59.999", "2025-12-29T00:00:00", "2026-01-01T09:30:00", "2026-01-04T23:59:59.999",
    "2026-01-05T00:00:00",
    # The same hour of the same weekday again and again, and other ones.
    "2026-01-13T09:00:00", "2026-01-20T09:59:59.999", "2026-01-27T09:15:00", "2026-01-30T17:00:00",
    "2026-02-03T09:05:00", "2026-02-06T17:20:00", "2026-02-08T20:00:00", "2026-02-13T16:59:59.999",
    "2026-02-15T20:30:00", "2026-02-20T17:00:00",
]  # fmt: skip
LATE = {
    "spring-sale": "2026-03-08T08:00:00",
    "sunday-letter": "2026-03-08T22:00:00",
    "new-shoes": "2026-03-10T09:00:00",
}
# Of each of these campaigns a single count grows.
ONLY = ("openCount", "clickCount", "hardBounce", "softBounce", "unsubscribeCount")
GONE, GONE_FROM = ("mail_default", "recalled"), "03-13T18:00"
"""A campaign that was deleted at the service after it had been counted for two days."""
LOOKED_AT = ["03-08T23:00", "03-09T06:00", "03-10T06:00", "03-12T06:00", "03-13T06:00", "03-13T18:00", "03-14T06:00"]
TASKS_READ_AT = moment("2026-03-14T05:00:00")
DAYS_READ_AT = moment("2026-03-16T00:10:00"), moment("2026-03-16T01:10:00")
JOINED = 3
"""How many contacts of each list were not yet in it when it was first read."""
LISTS_READ_AT = moment("2026-03-14T06:00:00"), moment("2026-03-14T07:00:00")


def _record(name: str, sent_at: datetime.datetime | None, sent: int, numbers: random.Random) -> Wire:
    opens = numbers.randint(sent // 5, sent // 2)
    return {
        "mailName": name, "mailSendDate": None if sent_at is None else millis(sent_at), "sentCount": sent,
        "openCount": opens, "clickCount": opens // numbers.randint(4, 9), "hardBounce": numbers.randint(0, sent // 40),
        "softBounce": numbers.randint(0, sent // 30), "unsentCount": numbers.randint(0, 50),
        "unsubscribeCount": numbers.randint(0, sent // 100),
    }  # fmt: skip


def _grown(record: Wire, age: datetime.timedelta) -> Wire:
    """The record when so much time had passed: opens and clicks come quickly at first and end after three days."""
    if record["mailName"] in ONLY:
        return {**record, record["mailName"]: record[record["mailName"]] + age // (DAY / 2)}
    share = min(age.total_seconds() / (3 * 86400), 1) ** 0.5
    return {**record, **{name: int(record[name] * share) for name in ("openCount", "clickCount", "unsubscribeCount")}}


def all_responses() -> Responses:
    """The same at every call."""
    numbers = random.Random(4)
    data = Responses()
    final: dict[str, list[Wire]] = {}
    for account in TEAMS:
        final[account] = [
            _record(f"{account[5:]}-{number}", moment(sent_at), numbers.randint(600, 9000), numbers)
            for number, sent_at in enumerate(SENT_AT)
        ]
    final["mail_default"] += [
        _record("nobody", moment("2026-02-23T10:00:00"), 0, numbers),
        _record("without-a-time", None, 5000, numbers),
        # Ten mails that everybody opened must not win anything, nor do more bounces than mails leave less than none.
        _record("tiny", moment("2026-02-24T11:00:00"), 10, numbers)
        | {"openCount": 10, "clickCount": 9, "hardBounce": 15},
        *(_record(name, moment(sent_at), numbers.randint(20_000, 30_000), numbers) for name, sent_at in LATE.items()),
        *(_record(name, moment("2026-03-11T12:00:00"), 1200, numbers) for name in ONLY),
    ]
    final["mail_default"].append(_record(GONE[1], moment("2026-03-11T10:00:00"), 90_000, numbers))
    final["mail_shop"] += [_record("spring-sale", moment("2026-03-08T08:00:00"), 7000, numbers)]

    # At first all the past, then what a look-back of four days brings; on the 11th nobody looked, on the 13th twice.
    for number, asked in enumerate(LOOKED_AT):
        asked_at = moment(f"2026-{asked}:00")
        for account, records in final.items():
            seen = []
            for record in records:
                sent_at = from_millis(record["mailSendDate"]) or moment("2026-01-01T00:00:00")
                is_gone = (account, record["mailName"]) == GONE and asked >= GONE_FROM
                if sent_at <= asked_at and not is_gone and (not number or sent_at >= asked_at - 4 * DAY):
                    seen.append(_grown(record, asked_at - sent_at))
            data.looks.append(Look(account, asked_at, seen))
    by_name = [data.latest()["mail_default", "spring-sale"]]
    data.looks.append(Look("mail_default", moment("2026-03-14T20:00:00"), by_name, whole=False))

    subjects = ["Winter is over", "Your order of the week", "Hello {{name}}", "Only today"]
    for account, records in final.items():
        data.tasks[account] = [
            {
                "guid": f"{account}-{number}", "mailName": record["mailName"], "mailStatus": 2,
                "subject": None if record["mailName"] == "default-3" else subjects[number % len(subjects)],
                "taskType": "ABTest" if record["mailName"] == "default-7" else "MailList",
                "teamName": TEAMS[account] or "Marketing", "sendByDateTime": record["mailSendDate"],
            }
            for number, record in enumerate(records)
        ]  # fmt: skip
    default, shop = data.tasks["mail_default"], data.tasks["mail_shop"]
    named = {task["mailName"]: task for task in default}
    named["tiny"]["subject"] = "For the ten of us"
    # Two tasks that bore one name, one after the other: nobody can say whose counts these are.
    default.append({**named["default-2"], "guid": "earlier", "subject": "What it was called at first", "mailStatus": 4})
    default.append(
        {"guid": "draft", "mailName": "draft", "mailStatus": -1, "subject": "Draft", "teamName": "Marketing"}
    )
    # One of two tasks of one name was deleted: the other is the campaign.
    deleted = {**named["default-4"], "guid": "deleted", "subject": "Of a deleted task"}
    data.deleted["mail_default"] = [named[GONE[1]], deleted]
    default.remove(named[GONE[1]])
    # Another team's task of the same name is another campaign.
    shop.append({**shop[4], "guid": "other team", "teamName": "Support", "subject": "Not the shop's"})

    _transactional(data, numbers)
    _contacts(data, numbers)
    _events(data, random.Random(5))
    return data


def _transactional(data: Responses, numbers: random.Random) -> None:
    missing = {"2026-03-14", "2026-02-28", "2026-03-01", "2026-01-01"}
    for account, first in (("mail_default", FIRST_DAY), ("mail_shop", LAST_DAY - 3 * DAY)):
        days = [first + number * DAY for number in range((LAST_DAY - first).days + 1)]
        data.days[account] = [
            {
                "statsDate": day.isoformat(), "sentCount": sent, "openCount": sent // 3, "clickCount": sent // 11,
                "bounceCount": numbers.randint(0, sent // 20), "unsentCount": numbers.randint(0, 9),
                "unsubscribeCount": 0,
            }
            for day in days
            if day.isoformat() not in missing
            # Nothing is sent on Sundays, which is not the same as a day that is missing.
            for sent in [0 if day.weekday() == 6 else numbers.randint(100, 4000)]
        ]  # fmt: skip


def _contacts(data: Responses, numbers: random.Random) -> None:
    def contact(number: int, created: str | None) -> Wire:
        return {"id": f"c{number}", "email": f"c{number}@example.com", "properties": {}, "createDate": created}

    edges = ["2025-12-31T23:59:59Z", "2026-01-01T00:00:00Z", "2026-01-31T23:30:00Z", None]
    months = [f"2025-{month:02}-15T08:00:00Z" for month in range(6, 13)]
    everybody = [contact(number, [*edges, *months][number % 11]) for number in range(120)]
    data.lists = {
        ("mail_default", "", "newsletter"): everybody[:90],
        ("mail_default", "", "partners"): everybody[85:110],
        ("mail_default", "", "vip"): numbers.sample(everybody[:90], 7),
        # Contacts that are called the same in another team or account are other people.
        ("mail_default", "Support", "vip"): everybody[:20],
        ("mail_shop", "", "newsletter"): everybody[:30],
        ("mail_shop", "", "vip"): everybody[20:28],
    }
    data.left = everybody[110:]


def _events(data: Responses, numbers: random.Random) -> None:
    """Three campaigns to a hundred people of each account, and transactional mail to some of them."""
    for account in TEAMS:
        events: list[Wire] = []

        def add(code: str, person: int, mail: str, day: int, events: list[Wire] = events, **more: str) -> None:
            address = f"P{person}@example.com" if day % 2 else f"p{person}@example.com"
            when = f"2026-03-{day:02}T10:{person % 60:02}:{len(events) % 60:02}Z"
            given = {"EventCode": code, "Email": address, "UniqueMsgID": f"{mail}-{person}"}
            events.append({**given, "TriggeredDateTimeV2": when, **more})

        for number, name in enumerate(("spring-sale", "tiny", "empty")):
            campaign = {"Guid": f"{account}-{name}", "MailName": name}
            for person in range((100, 20, 7)[number]):
                # Of ten people each mail bounces, of five more the last ones do, one after a delivery.
                bounces = name == "empty" or person < 10 or (person < 15 and number == 1)
                add("Bounced" if bounces else "Delivered", person, name, 2 + 3 * number, **campaign)
            for person in numbers.sample(range(20, 100), 8):
                add("Opened", person, name, 3, **campaign)
            if number == 0:
                for person in (20, 21, 22):
                    add("SpamReport", person, name, 4, **campaign)
                for person in (22, 23, 24, 25, *([26] if account == "mail_shop" else [])):
                    add("Unsubscribed", person, name, 4, **campaign)
        for number in range(3):
            for person in (0, 1, 2, 30, 31, 40):
                # Of two people all bounces, of one the second is delivered, of two the last.
                delivered = (person == 2 and number == 1) or (person in (30, 31) and number == 2)
                add("Delivered" if delivered else "Bounced", person, f"order-{number}", 10 + number)
        for person in (24, 50, 51):
            add("Dropped", person, "order-9", 13)
        events.append({"EventCode": "TaskStatus", "Guid": f"{account}-unsent", "MailName": "unsent"})
        data.events[account] = events


def load_all(warehouse: Warehouse, data: Responses) -> None:
    """Load all responses, in their order."""
    for look in data.looks:
        who: dict[str, Any] = {"mail_conn_id": look.account, "observed_at": look.asked_at}
        rows = [
            campaign_stats_row(CampaignStats.model_validate(record), team=TEAMS[look.account], **who)
            for record in look.records
        ]
        yesterday = look.asked_at.date() - DAY
        days = Coverage.days(CAMPAIGN_STATS["mail_send_date"], yesterday - 2 * DAY, yesterday, **who)
        gone = MarkGone(look.asked_at, lambda whole=days.whole: [whole])  # type: ignore[misc]
        warehouse.load(CAMPAIGN_SNAPSHOTS, snapshot_rows(rows), "mail_campaign_stats_snapshots")
        options: dict[str, Any] = {"covers": days, "mark_gone": gone} if look.whole else {}
        warehouse.load(CAMPAIGN_STATS, rows, "mail_campaign_stats", **options)

    for account, tasks in data.tasks.items():
        for read_at, there in ((TASKS_READ_AT - DAY, tasks + data.deleted.get(account, [])), (TASKS_READ_AT, tasks)):
            who = {"mail_conn_id": account, "observed_at": read_at}
            rows = [campaign_row(Campaign.model_validate(task), **who) for task in there]
            gone = MarkGone(read_at, lambda account=account: [{"mail_conn_id": account}])  # type: ignore[misc]
            warehouse.load(CAMPAIGNS, rows, "mail_campaigns", mark_gone=gone)

    for account, records in data.days.items():
        for read_at in DAYS_READ_AT:  # of which the second brings no news
            who = {"mail_conn_id": account, "observed_at": read_at}
            rows = [
                transactional_stats_row(TransactionalStats.model_validate(record), team=TEAMS[account], **who)
                for record in records
            ]
            came = {row[TRANSACTIONAL_STATS.names.index("stats_date")] for row in rows}
            days = Coverage.days(TRANSACTIONAL_STATS["stats_date"], FIRST_DAY, LAST_DAY, only=came, **who)
            warehouse.load(TRANSACTIONAL_STATS, rows, "mail_transactional_stats", covers=days)

    for key in data.lists:
        account, team, name = key
        of_list = {"mail_conn_id": account, "team": team, "list_name": name}
        for read_at, there in zip(LISTS_READ_AT, data.readings(key), strict=True):
            rows = [contact_row(Contact.model_validate(one), **of_list, observed_at=read_at) for one in there]
            part = list_part(team, name)
            history = contacts_history("mail_contacts_history", of_list, read_at)
            whole = Coverage.one(part, of_list, mail_conn_id=account, observed_at=read_at)
            warehouse.load(CONTACTS, rows, "mail_contacts", replace_where=of_list, covers=whole, history=history)

    for account, events in data.events.items():
        for push in (events[::2], events[1::2], events[:50]):  # in another order, and some again
            body, origin = json.dumps(push).encode(), Origin(account, moment("2026-03-15T00:00:00"), 1)
            warehouse.load(EVENTS, list(read_push(body, origin, pytest.fail)), "mail_events")
