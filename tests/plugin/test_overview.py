"""The page that opens first."""

from __future__ import annotations

import datetime
import re
import threading
from collections.abc import Iterator
from zoneinfo import ZoneInfo

import pytest
import time_machine
from airflow.models import Connection

from airflow_provider_mail.plugin import access, overview, views
from airflow_provider_mail.plugin.access import Wait, Waits
from airflow_provider_mail.plugin.reader import forget
from airflow_provider_mail.warehouse.request import Coverage
from airflow_provider_mail.warehouse.tables.imports import IMPORTS
from airflow_provider_mail.warehouse.tables.resources import CONTACTS
from tests.plugin.conftest import PATIENCE, Page, Visitor
from tests.plugin.data import ACCOUNT, DAY, import_row, load_stats, load_tasks, row, stats, task
from tests.warehouse.conftest import Warehouse

pytestmark = pytest.mark.not_unit

NOW = datetime.datetime(2026, 3, 12, 12, tzinfo=datetime.UTC)  # a Thursday
YEAR = datetime.timedelta(weeks=52)


@pytest.fixture(autouse=True)
def now() -> Iterator[None]:
    """The day after the last load of the tables."""
    with time_machine.travel(NOW, tick=False):
        yield


def test_what_needs_attention(visitor: Visitor, filled: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stale, failed, late or incomplete, with links; nothing of it once it is long ago."""
    filled.execute("UPDATE mail_event_differences SET stats_date = '2026-03-11'")
    filled.execute("UPDATE mail_dead_letters SET received_at = '2026-03-10 09:00:00'")
    filled.execute("UPDATE mail_campaigns SET observed_at = '2026-03-12 08:00:00'")
    imports = [import_row(n, state, NOW - DAY) for n, state in enumerate(("failed", "success"))]
    imports.append(import_row(2, "failed", NOW - DAY, sandbox=True))
    filled.load(IMPORTS, imports, "mail_imports")
    filled.execute("UPDATE mail_audience_runs SET finished_at = '2026-03-11 07:00:00' WHERE state = 'stopped'")
    late = Wait(("d", "waits", "r", -1), "campaign is sent", ACCOUNT, "spring", NOW - DAY, NOW - DAY / 24)
    monkeypatch.setattr(access, "waits", lambda user: Waits([late, late], 2))
    text = Page(visitor.get("")).text
    expected = [
        "failed 1 campaign failed since 2026-03-01 08:00",
        "late 2 steps wait longer than allowed since 2026-03-12 11:00",
        "failed 1 import failed in the last seven days",
        "rejected 14 people were rejected in the last seven days, in 2 imports",
        "stopped 1 import of an audience stopped: more people would have changed than is allowed since 2026-03-11",
        "unreadable 1 report about single mails could not be read in the last seven days since 2026-03-10 09:00",
        "differs 1 number of the last seven days differs from what the email service counts",
        "old Results of campaigns were last updated 10 days ago (account mail_shop)",
        "missing Results of transactional mail: 1 day missing (account mail_default)",
    ]
    assert [line for line in expected if line not in text] == []
    assert "2 automatic steps wait for the email service, for example until a campaign has been sent." in text
    links = Page(visitor.get("")).links()
    failed = "campaigns?state=failed&from=2026-02-10"
    for link in (failed, "waits", "imports", "audiences#audience-runs", "events#letters", "events#differences"):
        assert link in links
        assert visitor.get(link.partition("#")[0])
    assert "1 campaign" in Page(visitor.get("campaigns?state=failed&from=2026-02-10")).text
    days = {line.split(",")[0]: line.split(",")[6:8] for line in visitor.get("loads?csv=loads").splitlines()}
    assert days["Results of transactional mail"] == ["1", "0"]
    with time_machine.travel(NOW + 3 * DAY, tick=False):
        csv = Visitor(visitor.client).get("loads?csv=loads")
    days = {line.split(",")[0]: line.split(",")[6:8] for line in csv.splitlines()}
    assert days["Results of transactional mail"] == ["1", "4"], "from the 11th to the 14th"

    with monkeypatch.context() as patch:
        patch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "nowhere")
        unreadable = "not up to date. For your engineers: [mail] inbox_conn_id: connection 'nowhere'"
        assert unreadable in Page(Visitor(visitor.client).get("")).text

    monkeypatch.setattr(access, "waits", lambda user: Waits([], 0))
    with time_machine.travel(NOW + 60 * DAY, tick=False):
        text = Page(Visitor(visitor.client).get("")).text
    assert [
        word for word in ("failed", "late", "rejected", "stopped", "unreadable", "differs") if f" {word} " in text
    ] == []


def test_nothing_needs_attention(visitor: Visitor, empty: Warehouse) -> None:
    assert "There are no numbers yet" in Page(visitor.get("")).text
    load_stats(empty, [stats("one", NOW - DAY, 10)], NOW, ACCOUNT)
    forget()
    assert "nothing Nothing failed, and the numbers are up to date." in Page(visitor.get("")).text


@pytest.mark.parametrize(("left", "shown"), [(-1, "has expired"), (299, "expires in 299 s"), (301, "")])
def test_a_token_that_ends_needs_attention(
    left: int, shown: str, visitor: Visitor, empty: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"auth_type": "oauth", "oauth_expires_at": (NOW + datetime.timedelta(seconds=left)).isoformat()}
    connection = Connection(conn_id=ACCOUNT, conn_type="mail", host="mail.example.com", extra=extra)
    monkeypatch.setenv(f"AIRFLOW_CONN_{ACCOUNT.upper()}", connection.as_json())
    load_stats(empty, [stats("one", NOW - DAY, 10)], NOW, ACCOUNT)
    text = Page(visitor.get("")).text
    if shown:
        login = "login Airflow has to log in to the email service again. For your engineers:"
        assert f"{login} the OAuth access token {shown}; renew it with: airflow mail oauth login" in text
    else:
        assert "OAuth" not in text


def test_a_failed_campaign_that_is_gone_needs_no_attention(visitor: Visitor, empty: Warehouse) -> None:
    tasks = [task(name, 4, NOW - days * DAY) for name, days in (("lost", 2), ("deleted", 3), ("long ago", 31))]
    load_tasks(empty, tasks, NOW)
    empty.execute("UPDATE mail_campaigns SET gone_at = observed_at WHERE mail_name = 'deleted'")
    assert "failed 1 campaign failed since 2026-03-10" in Page(visitor.get("")).text
    empty.execute("UPDATE mail_campaigns SET gone_at = observed_at WHERE mail_name = 'lost'")
    assert "nothing Nothing failed, and the numbers are up to date." in Page(visitor.get("")).text


def test_what_is_sending_or_scheduled(visitor: Visitor, empty: Warehouse) -> None:
    tasks = [task(f"planned {n:02}", 1, NOW + n * DAY) for n in range(1, 11)]
    tasks += [task("under way", 1, NOW - DAY / 24), task("sent", 2, NOW), task("gone", 1, NOW)]
    load_tasks(empty, tasks, NOW)
    empty.execute("UPDATE mail_campaigns SET gone_at = observed_at WHERE mail_name = 'gone'")
    text = Page(visitor.get("")).text.partition("What goes out next")[2].partition("Needs attention")[0]
    assert "About under way Name: under way Lists: Newsletter, Shop sending 2026-03-12 11:00" in text
    assert "About planned 01 Name: planned 01 Lists: Newsletter, Shop scheduled 2026-03-13 12:00" in text
    assert "The first 10 of 11" in text
    assert "planned 10" not in text
    assert "planned 10" in visitor.get("?csv=current")
    assert "gone" not in visitor.get("?csv=current")
    empty.execute("UPDATE mail_campaigns SET send_by_date_time = NULL WHERE mail_name = 'under way'")
    for path in ("", "campaigns?q=under"):
        assert re.search(r"About under way .* Newsletter, Shop (\N{EN DASH} )?sending", Page(visitor.get(path)).text)


def test_people_are_counted_in_the_lists_of_the_account(visitor: Visitor, empty: Warehouse) -> None:
    """Another account may have a list of the same name. Without the size of one of its lists, no number is shown."""
    for account, count in ((ACCOUNT, 3), ("a_mail", 5), ("z_mail", 7)):
        covers = Coverage.one(
            "News", {"mail_conn_id": account, "list_name": "News"}, mail_conn_id=account, observed_at=NOW
        )
        of_list = {"mail_conn_id": account, "team_name": "", "list_name": "News", "observed_at": NOW, "properties": {}}
        empty.load(
            CONTACTS, [row(CONTACTS, id=str(n), **of_list) for n in range(count)], "mail_contacts", covers=covers
        )
    tasks = [
        task("one", 1, NOW + DAY, rcptListNames=["News"]),
        task("two", 1, NOW + DAY, rcptListNames=["News", "VIP"]),
    ]
    load_tasks(empty, tasks, NOW)
    lines = visitor.get("?csv=current").splitlines()
    assert [line.rpartition(",")[2] for line in lines[1:]] == ["3", ""]


def test_the_last_thirty_days_beside_the_year_before(visitor: Visitor, empty: Warehouse) -> None:
    """Weeks begin on Monday, but the first one with the first day; the days of the week of both years are the same."""
    sent = {
        NOW: (1000, 400), NOW - 3 * DAY: (1000, 200), NOW - 29 * DAY: (500, 100), NOW - 30 * DAY: (9000, 9000),
        NOW - YEAR: (400, 40), NOW - YEAR - 29 * DAY: (600, 60), NOW - YEAR - 30 * DAY: (9000, 9000),
    }  # fmt: skip
    records = [stats(f"of {at}", at, opens, count) for at, (count, opens) in sent.items()]
    load_stats(empty, records, NOW, ACCOUNT)
    text = Page(visitor.get("")).text
    assert "Sent 2,500 +150 % " in text
    assert "Opened 28.0 % +18.0 points " in text
    assert "Click to open 20.0 % +0.0 points " in text
    weeks = visitor.get("?csv=weeks").splitlines()
    assert weeks[0].startswith('Week from,Sent,"Sent, year before",Opened,"Opened, year before",Click to open')
    assert [line.split(",")[:5] for line in weeks[1:]] == [
        ["2026-02-11", "500", "600", "20.00", "10.00"],
        ["2026-02-16", "0", "0", "", ""],
        ["2026-02-23", "0", "0", "", ""],
        ["2026-03-02", "0", "0", "", ""],
        ["2026-03-09", "2000", "400", "30.00", "10.00"],
    ]


def test_campaigns_without_statistics_count_in_the_thirty_days(visitor: Visitor, empty: Warehouse) -> None:
    counts = dict.fromkeys(("deliveredCount", "openCount", "clickCount", "hardBounce", "softBounce"), 100)
    counts |= {"sentCount": 500, "unsentCount": 0, "unsubscribeCount": 0}
    load_stats(empty, [stats("one", NOW - DAY, 100)], NOW, ACCOUNT)
    tasks = [task(f"{n} days ago", 2, NOW - n * DAY, mailStats=counts) for n in (2, 29, 31, 200)]
    load_tasks(empty, [*tasks, task("one", 2, NOW - DAY, mailStats=counts)], NOW)
    assert "Sent 2,000 " in Page(visitor.get("")).text


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/Los_Angeles"])
def test_thirty_days_begin_where_the_visitor_is(visitor: Visitor, empty: Warehouse, zone: str) -> None:
    visitor.cookies = {**visitor.cookies, "mail_zone": zone}
    first = datetime.datetime.now(ZoneInfo(zone)).replace(hour=0, minute=0) - 29 * DAY
    before = first - datetime.timedelta(minutes=1)
    load_stats(empty, [stats("first", first, 1, 100), stats("before", before, 1, 7)], NOW, ACCOUNT)
    assert "Sent 100 " in Page(visitor.get("")).text


def test_lists_that_take_long_to_count(visitor: Visitor, filled: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Newsletter 12 4 2026-03 mail_default" in Page(visitor.get("")).text
    go = threading.Event()
    monkeypatch.setattr(overview, "GROWTH_SECONDS", 0.0)
    monkeypatch.setattr(views, "contact_lists", lambda reader: go.wait(PATIENCE))
    assert "Counting the contacts takes too long for this page" in Page(visitor.get("")).text
    go.set()
