"""Every question of `docs/questions.md`, asked as its file has it, of every database, about a few rows.

The sessions speak another timezone than UTC, and MySQL's is as strict as MySQL is by default.
"""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_mail.api.campaigns import Campaign, CampaignStats
from airflow_provider_mail.api.contacts import Contact
from airflow_provider_mail.api.transactional import TransactionalStats
from airflow_provider_mail.warehouse.request import Coverage
from airflow_provider_mail.warehouse.tables.events import EVENTS
from airflow_provider_mail.warehouse.tables.resources import (
    CAMPAIGNS,
    CONTACTS,
    campaign_row,
    contact_row,
    contacts_history,
)
from airflow_provider_mail.warehouse.tables.stats import (
    CAMPAIGN_SNAPSHOTS,
    CAMPAIGN_STATS,
    TRANSACTIONAL_STATS,
    campaign_stats_row,
    snapshot_rows,
    transactional_stats_row,
)
from tests.support.env import ROOT
from tests.warehouse.conftest import Warehouse

FOLDER, PAGE = ROOT / "docs" / "sql", ROOT / "docs" / "questions.md"
DATABASES = {"sqlite": "sqlite", "psycopg3": "postgres", "duckdb": "duckdb", "mysql": "mysql"}
"""By the kind of warehouse, what files call the database."""
SESSION = {
    "psycopg3": ["SET TIME ZONE 'Pacific/Auckland'"],
    "duckdb": ["SET TimeZone = 'Pacific/Auckland'"],
    "mysql": [
        "SET time_zone = '+13:00'",
        "SET sql_mode = 'ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,"
        "ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'",
    ],
}
UTC, DAY = datetime.UTC, datetime.timedelta(days=1)
TEAMS = {"mail_default": "", "mail_shop": "Shop"}


def moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=UTC)


# --- what the tables hold ---

STATS = """
    mail_default new-year    2025-12-28T23:59:59.999  1000   300    60     6     4     1
    mail_default week-one    2025-12-29T00:00:00.000  1000   100    20     0     0     2
    mail_default january     2026-01-01T09:30:00.000  2000   500   100    10    10     3
    mail_default sunday      2026-01-04T23:59:59.999  1000   250    30     5     5     4
    mail_default monday      2026-01-05T00:00:00.000  1000   400    90     1     2     5
    mail_default nine        2026-01-13T09:00:00.000   600   200    70     3     3     6
    mail_default nine-too    2026-01-20T09:59:59.999   600   100    20     9     9     7
    mail_default five        2026-01-30T17:00:00.000   999   999   999     0     0     0
    mail_default nobody      2026-02-23T10:00:00.000     0     0     0     0     0     0
    mail_default tiny        2026-02-24T11:00:00.000    10    10     9    10     5     0
    mail_default timeless    -                        5000   100    10     0     0     0
    mail_default spring-sale 2026-03-08T08:00:00.000  9000  3000   600    90    45     9
    mail_default opened      2026-03-11T12:00:00.000  1200   401    80    12     6     3
    mail_default clicked     2026-03-11T12:00:00.000  1200   400    81    12     6     3
    mail_default hard        2026-03-11T12:00:00.000  1200   400    80    13     6     3
    mail_default soft        2026-03-11T12:00:00.000  1200   400    80    12     7     3
    mail_default left        2026-03-11T12:00:00.000  1200   400    80    12     6     4
    mail_default recalled    2026-03-11T10:00:00.000 90000 90000   900    12     6     3
    mail_shop    spring-sale 2026-03-08T08:00:00.000  7000  1400   350    70    35    14
    mail_shop    shoes       2026-03-08T22:00:00.000  3000   900    80    12     6     3
"""
"""Account, name, send time; sent, opens, clicks, hard and soft bounces, unsubscriptions as they are at last."""
BEFORE = {
    # The name was used before, for a campaign that was deleted.
    ("mail_default", "spring-sale", "2025-03-01T08:00"): {"06T06:00": 4000, "07T06:00": 4200},
    ("mail_default", "spring-sale"): {"08T23:00": 500, "09T06:00": 800, "09T18:00": 900, "12T06:00": 2400},
    **{("mail_default", name): {"12T06:00": 400} for name in ("opened", "clicked", "hard", "soft", "left")},
    ("mail_default", "recalled"): {"12T06:00": 5},
    ("mail_shop", "shoes"): {"09T06:00": 900},
}
"""When the counts were read earlier, in March, and the opens of then.

All other counts were then those of `opened`. The third part is the send time, if it was another campaign's.
"""
LAST_READ = {"mail_default": moment("2026-03-14T06:00:00"), "mail_shop": moment("2026-03-13T06:00:00")}
READ_EMPTY = moment("2026-03-14T20:00:00")

TASKS = """
    mail_default new-year     2 MailList Marketing Winter
    mail_default week-one     2 MailList Marketing Winter
    mail_default january      2 MailList Marketing Hello
    mail_default january      4 MailList Marketing Earlier
    mail_default sunday       2 ABTest   Marketing Hello
    mail_default monday       2 MailList Support   Hello
    mail_default nine         2 MailList Marketing Nines
    mail_default nine-too     2 MailList Marketing Nines
    mail_default five         2 MailList Marketing Few
    mail_default spring-sale  2 MailList Marketing Spring
    mail_default spring-sale  2 MailList Marketing Deleted
    mail_default recalled     2 MailList Marketing Recalled
    mail_default draft       -1 MailList Marketing Draft
    mail_default opened       2 MailList Marketing -
    mail_shop    spring-sale  2 MailList Shop      Spring
    mail_shop    spring-sale  2 MailList Support   Other
    mail_shop    shoes        2 MailList Support   Shoes
"""
"""Account, name, status, type, team and subject of send tasks, some of which bear one name."""
DAYS = {
    "mail_default": {"2025-12-01": 50, "2026-02-28": 300, "2026-03-14": 200, "2026-03-15": 0},
    "mail_shop": {"2026-03-13": 70, "2026-03-15": 90},
}
"""Transactional mails of the days that were read."""
LISTS = {
    ("mail_default", "", "news"): ("abcdef", "cdefgh"),
    ("mail_default", "", "vip"): ("fgx", "fgx"),
    ("mail_default", "", "west"): ("a", "hx"),
    ("mail_default", "Support", "all"): ("f", "f"),
    ("mail_default", "Support", "vip"): ("abc", "bcf", "cf"),
    ("mail_shop", "", "news"): ("", "gh"),
}
"""Contacts of lists, each a letter, at two times or three."""
LISTS_READ = [moment(f"2026-03-14T0{hour}:00:00") for hour in (6, 7, 8)]
CREATED = {"c": "2025-12-31T23:59:59Z", "d": "2026-01-01T00:00:00Z", "e": "2026-01-31T23:30:00Z", "f": None}
EVENTS_OF = """
    spring-sale Delivered 1 ann bob cid dan eve 195*
    spring-sale SpamReport 2 bob dan
    spring-sale Unsubscribed 2 bob cid
    tiny Delivered 1 fay gus
    tiny Unsubscribed 2 fay
    empty Bounced 1 ann
    - Bounced 3 ann ANN hal ivo kim lee
    - Delivered 4 ivo jim
    - Bounced 5 ann HAL ivo jim kim lee
    - Delivered 6 kim
    - Bounced 7 hal ivo jim kim lee
    - Bounced 8 jim kim
    - Dropped 9 cid eve
"""
"""Events of people: campaign, code, hour, and who (`195*`: as many others).

Each hour has its mail, but what bounced for `lee` is one mail.
"""


def load_all(warehouse: Warehouse) -> None:
    """Load all of it."""
    records: dict[tuple[str, str], dict[str, Any]] = {}
    for line in STATS.split("\n")[1:-1]:
        account, name, sent_at, *counts = line.split()
        columns = ("sentCount", "openCount", "clickCount", "hardBounce", "softBounce", "unsubscribeCount")
        millis = None if sent_at == "-" else round(moment(sent_at).timestamp() * 1000)
        record = {"mailName": name, "mailSendDate": millis, "unsentCount": 0}
        records[account, name] = record | dict(zip(columns, map(int, counts), strict=True))

    def stats(account: str, record: dict[str, Any], at: datetime.datetime) -> tuple[Any, ...]:
        given = {"mail_conn_id": account, "team_name": TEAMS[account], "observed_at": at}
        return campaign_stats_row(CampaignStats.model_validate(record), **given)

    for (account, name, *sent_at), moments in BEFORE.items():
        for at, opens in moments.items():
            now = records[account, name]
            then = records["mail_default", "opened"] | {"openCount": opens, "sentCount": now["sentCount"]}
            millis = round(moment(*sent_at).timestamp() * 1000) if sent_at else now["mailSendDate"]
            then |= {"mailName": name, "mailSendDate": millis}
            row = stats(account, then, moment(f"2026-03-{at}"))
            warehouse.load(CAMPAIGN_SNAPSHOTS, snapshot_rows([row]), "mail_campaign_stats_snapshots")
    rows = [stats(account, record, LAST_READ[account]) for (account, _), record in records.items()]
    warehouse.load(CAMPAIGN_STATS, rows, "mail_campaign_stats")
    warehouse.load(CAMPAIGN_SNAPSHOTS, snapshot_rows(rows), "mail_campaign_stats_snapshots")
    day = READ_EMPTY.date()
    empty = Coverage.days(
        CAMPAIGN_STATS["mail_send_date"], day, day, mail_conn_id="mail_shop", team_name="Shop", observed_at=READ_EMPTY
    )
    warehouse.load(CAMPAIGN_STATS, [], "mail_campaign_stats", covers=empty)

    tasks = []
    for number, line in enumerate(TASKS.split("\n")[1:-1]):
        account, name, status, kind, team, subject = line.split()
        fields = {"guid": str(number), "mailName": name, "mailStatus": int(status), "taskType": kind, "teamName": team}
        task = Campaign.model_validate({**fields, "subject": None if subject == "-" else subject})
        seen = LAST_READ["mail_shop"] - (DAY if subject == "Deleted" else 0 * DAY)
        tasks.append(campaign_row(task, mail_conn_id=account, observed_at=seen))
    warehouse.load(CAMPAIGNS, tasks, "mail_campaigns")
    warehouse.execute(
        "UPDATE mail_campaign_stats SET gone_at = observed_at WHERE mail_name = 'recalled'",
        "UPDATE mail_campaigns SET gone_at = observed_at WHERE subject = 'Deleted'",
    )

    for account, days in DAYS.items():
        who: dict[str, Any] = {"mail_conn_id": account, "team_name": "", "observed_at": READ_EMPTY + DAY}
        counts = {"openCount": 0, "clickCount": 0, "unsubscribeCount": 0, "bounceCount": 3, "unsentCount": 1}
        sent = [{"statsDate": on, "sentCount": number, **counts} for on, number in days.items()]
        rows = [transactional_stats_row(TransactionalStats.model_validate(one), **who) for one in sent]
        dates = [datetime.date.fromisoformat(on) for on in days]
        covers = Coverage.days(TRANSACTIONAL_STATS["stats_date"], dates[0], dates[-1], only=dates, **who)
        warehouse.load(TRANSACTIONAL_STATS, rows, "mail_transactional_stats", covers=covers)

    for (account, team, name), readings in LISTS.items():
        of_list = {"mail_conn_id": account, "team_name": team, "list_name": name}
        for at, contacts in zip(LISTS_READ, readings, strict=False):
            fields = [{"id": one, "createDate": CREATED.get(one, "2025-06-15T08:00:00Z")} for one in contacts]
            entries = [Contact.model_validate({**one, "properties": {}, "email": "a@x.com"}) for one in fields]
            rows = [contact_row(one, **of_list, observed_at=at) for one in entries]
            covers = Coverage.one(name, of_list, mail_conn_id=account, team_name=team, observed_at=at)
            options = {"replace_where": of_list, "covers": covers}
            history = contacts_history("mail_contacts_history", of_list, at, f"7 {name}")
            warehouse.load(CONTACTS, rows, "mail_contacts", history=history, **options)

    events: list[dict[str, Any]] = [{"event_code": "TaskStatus", "guid": "unsent", "mail_name": "unsent"}]
    for line in EVENTS_OF.split("\n")[1:-1]:
        name, code, hour, *people = line.split()
        people = [*people[:-1], *map(str, range(int(people[-1][:-1])))] if people[-1].endswith("*") else people
        for one in people:
            event = {"event_code": code, "email": f"{one}@x.com", "triggered_time": moment(f"2026-03-01T0{hour}:00")}
            event["unique_msg_id"] = one if one == "lee" else f"{one.lower()} {name} {hour}"
            events.append(event if name == "-" else {**event, "guid": f"of {name}", "mail_name": name})
    common: dict[str, Any] = {"raw": {}, "received_at": READ_EMPTY, "push_id": 1, "push_index": 0}
    for account, part in (("mail_default", events), ("mail_shop", events[1:6])):
        filled = [{**common, "mail_conn_id": account, "event_id": str(n), **event} for n, event in enumerate(part)]
        warehouse.load(EVENTS, [tuple(event.get(name) for name in EVENTS.names) for event in filled], "mail_events")


# --- what the questions give ---


def missing(last: str, days: int) -> str:
    """Days without a record, the last one first."""
    end = datetime.date.fromisoformat(last)
    return " ".join(f"mail_default '' {end - number * DAY} missing - - - -;" for number in range(days))


EXPECTED = {
    "freshness": """table_name mail_conn_id team_name contact_list last_asked:
        mail_campaign_stats_snapshots mail_shop Shop '' 2026-03-13 06:00:00;
        mail_campaigns mail_default '' '' 2026-03-13 06:00:00; mail_campaigns mail_shop '' '' 2026-03-13 06:00:00;
        mail_campaign_stats mail_default '' '' 2026-03-14 06:00:00;
        mail_campaign_stats_snapshots mail_default '' '' 2026-03-14 06:00:00;
        mail_contacts mail_default '' news 2026-03-14 07:00:00; mail_contacts mail_default '' vip 2026-03-14 07:00:00;
        mail_contacts mail_default '' west 2026-03-14 07:00:00;
        mail_contacts mail_default Support all 2026-03-14 07:00:00; mail_contacts mail_shop '' news 2026-03-14 07:00:00;
        mail_contacts mail_default Support vip 2026-03-14 08:00:00;
        mail_campaign_stats mail_shop Shop '' 2026-03-14 20:00:00;
        mail_transactional_stats mail_default '' '' 2026-03-15 20:00:00;
        mail_transactional_stats mail_shop '' '' 2026-03-15 20:00:00""",
    "list_churn": """mail_conn_id team_name list_id list_name read_at contacts joined departed churn_rate state:
        mail_default '' 7 news news 2026-03-14 07:00:00 6 2 2 33.33 list;
        mail_default '' 7 vip vip 2026-03-14 07:00:00 3 0 0 0 list;
        mail_default '' 7 west west 2026-03-14 07:00:00 2 2 1 100 list;
        mail_default Support 7 all all 2026-03-14 07:00:00 1 0 0 0 list;
        mail_default Support 7 vip vip 2026-03-14 07:00:00 3 1 1 33.33 list;
        mail_default Support 7 vip vip 2026-03-14 08:00:00 2 0 1 33.33 list;
        mail_shop '' 7 news news 2026-03-14 07:00:00 2 2 0 - list""",
    "list_growth": """mail_conn_id team_name list_name created_month contacts contacts_so_far:
        mail_default '' news 2025-06 2 2; mail_default '' news 2025-12 1 3; mail_default '' news 2026-01 2 5;
        mail_default '' news unknown 1 6; mail_default '' vip 2025-06 2 2; mail_default '' vip unknown 1 3;
        mail_default '' west 2025-06 2 2; mail_default Support all unknown 1 1;
        mail_default Support vip 2025-12 1 1; mail_default Support vip unknown 1 2; mail_shop '' news 2025-06 2 2""",
    "list_overlap": """mail_conn_id team_name one_list other_list in_both_lists percent_of_one percent_of_other:
        mail_default '' news vip 2 33.33 66.67; mail_default Support all vip 1 100 50;
        mail_default '' news west 1 16.67 50;
        mail_default '' vip west 1 33.33 50""",
    "open_curve": """team_name mail_send_date observed_day sent_count open_count new_opens open_rate percent_of_opens:
        '' 2025-03-01 08:00:00 2026-03-06 9000 4000 - 44.44 95.24;
        '' 2025-03-01 08:00:00 2026-03-07 9000 4200 200 46.67 100;
        '' 2026-03-08 08:00:00 2026-03-08 9000 500 - 5.56 16.67;
        '' 2026-03-08 08:00:00 2026-03-09 9000 900 400 10 30;
        '' 2026-03-08 08:00:00 2026-03-12 9000 2400 1500 26.67 80;
        '' 2026-03-08 08:00:00 2026-03-14 9000 3000 600 33.33 100""",
    "open_rate_by_week": """mail_conn_id week_begins campaigns sent open_rate open_rate_delivered:
        mail_default 2025-12-22 1 1000 30 30.3; mail_default 2025-12-29 3 4000 21.25 21.41;
        mail_default 2026-01-05 1 1000 40 40.12; mail_default 2026-01-12 1 600 33.33 33.67;
        mail_default 2026-01-19 1 600 16.67 17.18; mail_default 2026-01-26 1 999 100 100;
        mail_default 2026-02-23 2 10 100 -; mail_default 2026-03-02 1 9000 33.33 33.84;
        mail_default 2026-03-09 5 6000 33.35 33.87; mail_shop 2026-03-02 2 10000 23 23.29""",
    "send_time": """mail_conn_id send_weekday send_hour campaigns sent open_rate click_rate:
        mail_default 2 9 2 1200 25 7.5; mail_default 3 12 5 6000 33.35 6.68; mail_default 7 8 1 9000 33.33 6.67;
        mail_default 1 0 2 2000 25 5.5; mail_shop 7 8 1 7000 20 5; mail_default 4 9 1 2000 25 5;
        mail_default 7 23 2 2000 27.5 4.5; mail_shop 7 22 1 3000 30 2.67""",
    "spam_reports": """mail_conn_id mail_name delivered spam_reports
        unsubscribed spam_reports_per_1000 unsubscribed_per_1000:
        mail_default spring-sale 200 2 2 10 10""",
    "still_moving": """mail_conn_id team_name mail_name mail_send_date day_before last_day
        new_opens new_clicks new_bounces new_unsubscribes:
        mail_default '' spring-sale 2026-03-08 08:00:00 2026-03-12 2026-03-14 600 520 117 6;
        mail_default '' opened 2026-03-11 12:00:00 2026-03-12 2026-03-14 1 0 0 0;
        mail_default '' clicked 2026-03-11 12:00:00 2026-03-12 2026-03-14 0 1 0 0;
        mail_default '' hard 2026-03-11 12:00:00 2026-03-12 2026-03-14 0 0 1 0;
        mail_default '' left 2026-03-11 12:00:00 2026-03-12 2026-03-14 0 0 0 1;
        mail_default '' soft 2026-03-11 12:00:00 2026-03-12 2026-03-14 0 0 1 0""",
    "subject_lines": """mail_conn_id subject campaigns sent open_rate click_rate:
        mail_default Hello 1 1000 40 9; mail_default Spring 1 9000 33.33 6.67; mail_default Nines 2 1200 25 7.5;
        mail_shop Spring 1 7000 20 5;
        mail_default Winter 2 2000 20 4""",
    "suppressed": """mail_conn_id reason addresses:
        mail_default bounced 2; mail_default dropped 1; mail_default spam report 2; mail_default unsubscribed 2""",
    "transactional_days": f"""mail_conn_id team_name stats_date state sent_count unsent_count
        soft_bounces soft_bounce_rate:
        mail_default '' 2026-03-15 none sent 0 1 3 -; mail_default '' 2026-03-14 sent 200 1 3 1.5;
        {missing("2026-03-13", 13)} mail_default '' 2026-02-28 sent 300 1 3 1; {missing("2026-02-27", 74)}
        mail_shop '' 2026-03-15 sent 90 1 3 3.33; mail_shop '' 2026-03-14 missing - - - -;
        mail_shop '' 2026-03-13 sent 70 1 3 4.29""",
    "worse_than_usual": """mail_conn_id team_name mail_send_date mail_name sent_count bounce_rate
        usual_bounce_rate unsubscribe_rate usual_unsubscribe_rate:
        mail_default '' 2026-03-11 12:00:00 soft 1200 1.58 1.47 0.25 0.24;
        mail_default '' 2026-03-11 12:00:00 opened 1200 1.5 1.44 0.25 0.24;
        mail_default '' 2026-03-11 12:00:00 left 1200 1.5 1.39 0.33 0.23;
        mail_default '' 2026-03-11 12:00:00 hard 1200 1.58 1.29 0.25 0.22;
        mail_default '' 2026-03-11 12:00:00 clicked 1200 1.5 1.26 0.25 0.22;
        mail_default '' 2026-03-08 08:00:00 spring-sale 9000 1.5 1 0.1 0.34;
        mail_default '' 2026-02-24 11:00:00 tiny 10 150 0.82 0 0.34;
        mail_default '' 2026-01-30 17:00:00 five 999 0 0.93 0 0.39;
        mail_default '' 2026-01-20 09:59:59.999000 nine-too 600 3 0.74 1.17 0.32;
        mail_default '' 2026-01-13 09:00:00 nine 600 1 0.72 1 0.25;
        mail_default '' 2026-01-05 00:00:00 monday 1000 0.3 0.8 0.5 0.2;
        mail_default '' 2026-01-04 23:59:59.999000 sunday 1000 1 0.75 0.4 0.15;
        mail_default '' 2026-01-01 09:30:00 january 2000 1 0.5 0.15 0.15;
        mail_default '' 2025-12-29 00:00:00 week-one 1000 0 1 0.2 0.1;
        mail_default '' 2025-12-28 23:59:59.999000 new-year 1000 1 - 0.1 -;
        mail_shop Shop 2026-03-08 22:00:00 shoes 3000 0.6 1.5 0.1 0.2;
        mail_shop Shop 2026-03-08 08:00:00 spring-sale 7000 1.5 - 0.2 -""",
}
"""By the name of the file of a question: the columns, and the rows, with times in UTC, and - for NULL."""


def shown(value: Any) -> str:
    """A value as in `EXPECTED`; SQLite writes days and times as text."""
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d[ T]\d\d:", value):
        value = datetime.datetime.fromisoformat(value)
    if isinstance(value, datetime.datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, int | float | Decimal):
        return f"{value:.4f}".rstrip("0").rstrip(".")
    return "-" if value is None else str(value) or "''"


@pytest.mark.parametrize("kind", DATABASES)
def test_every_database_gives_the_same_rows(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    warehouse = make_warehouse(kind)
    load_all(warehouse)
    for question, expected in EXPECTED.items():
        own = FOLDER / f"{question}.{DATABASES[kind]}.sql"
        file = own if own.exists() else FOLDER / f"{question}.sql"
        with closing(warehouse.hook.get_conn()) as connection, closing(connection.cursor()) as cursor:
            for statement in SESSION.get(kind, []):
                cursor.execute(statement)
            cursor.execute(file.read_text())
            rows = "; ".join(" ".join(map(shown, row)) for row in cursor.fetchall())
            names = " ".join(column[0] for column in cursor.description)
            assert f"{names}: {rows}".split("; ") == " ".join(expected.split()).split("; "), file.name


def test_every_file_is_a_question() -> None:
    """What `WITH` begins with is where a database may have its own way; the rest is the question."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for path in FOLDER.iterdir():
        question, _, database = path.name.removesuffix(".sql").partition(".")
        found[question][database] = path.read_text()
    assert found.keys() == EXPECTED.keys()
    for question, texts in found.items():
        assert texts.keys() <= {"", *DATABASES.values()}, question
        assert "" in texts or texts.keys() == set(DATABASES.values()), f"{question}: not for every database"
        assert len({re.split(r"^\)\n", text, maxsplit=1, flags=re.MULTILINE)[-1] for text in texts.values()}) == 1


def test_the_page_shows_every_file_once() -> None:
    shown = re.findall(r"(?<=<!-- sql: )\S+|(?<=\]\(sql/)[^)]+", PAGE.read_text())
    assert sorted(shown) == sorted(path.name for path in FOLDER.iterdir())
    # That the text below the file's is what tests/test_docs.py checks of all that is embedded.
