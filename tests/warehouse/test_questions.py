"""Every question of the page, asked as it stands there, of every database: the answers are those worked out in Python.

The sessions speak another timezone than UTC, and MySQL's is as strict as MySQL is by default.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from docs import er
from tests.support.env import ROOT
from tests.warehouse.conftest import Warehouse
from tests.warehouse.questions_data import (
    DAYS_READ_AT,
    FIRST_DAY,
    GONE,
    JOINED,
    LAST_DAY,
    LISTS_READ_AT,
    TASKS_READ_AT,
    TEAMS,
    Told,
    Wire,
    from_millis,
    load_all,
    told,
)

FOLDER = ROOT / "docs" / "sql"
PAGE = ROOT / "docs" / "questions.md"
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
Answer = tuple[Sequence[str], list[tuple[Any, ...]]]


def percent(part: int, whole: int) -> Fraction | None:
    """Not rounded: the databases round."""
    return Fraction(100 * part, whole) if whole else None


def rounded(value: Fraction | None) -> float:
    return round(float(value or 0), 2)


def grouped(items: Iterable[tuple[Any, Wire]]) -> dict[Any, list[Wire]]:
    groups: dict[Any, list[Wire]] = defaultdict(list)
    for key, record in items:
        groups[key].append(record)
    return groups


def total(records: Iterable[Wire], *names: str) -> int:
    return sum(record[name] for record in records for name in names)


def sent_at(record: Wire) -> Any:
    return from_millis(record["mailSendDate"])


def open_rate_by_week(said: Told) -> Answer:
    def monday(record: Wire) -> datetime.date:
        year, week, _ = sent_at(record).isocalendar()
        return datetime.date.fromisocalendar(year, week, 1)

    weeks = grouped(((who, monday(r)), r) for (who, _), r in said.latest().items() if sent_at(r))
    return ("mail_conn_id", "week_begins", "campaigns", "sent", "open_rate", "open_rate_delivered"), [
        (
            *week,
            len(records),
            sent := total(records, "sentCount"),
            percent(opens := total(records, "openCount"), sent),
            percent(opens, sum(max(r["sentCount"] - r["hardBounce"] - r["softBounce"], 0) for r in records)),
        )
        for week, records in sorted(weeks.items())
    ]


def open_curve(said: Told) -> Answer:
    days = sorted(said.by_day()["mail_default", "spring-sale"].items())
    most = max(record["openCount"] for _, record in days)
    rows = []
    before = None
    for day, record in days:
        sent, opens = record["sentCount"], record["openCount"]
        new = None if before is None else opens - before
        rows.append((day, sent, opens, new, percent(opens, sent), percent(opens, most)))
        before = opens
    return ("observed_day", "sent_count", "open_count", "new_opens", "open_rate", "percent_of_opens"), rows


def subject_lines(said: Told) -> Answer:
    subjects = []
    for (account, name), record in said.latest().items():
        teams = {TEAMS[account]} if TEAMS[account] else {task["teamName"] for task in said.tasks[account]}
        tasks = [t for t in said.tasks[account] if t["mailName"] == name and t["teamName"] in teams]
        if len(tasks) == 1 and tasks[0]["taskType"] != "ABTest" and tasks[0]["subject"]:
            subjects.append(((account, tasks[0]["subject"]), record))
    rows = [
        (
            *subject,
            len(records),
            sent,
            percent(total(records, "openCount"), sent),
            percent(total(records, "clickCount"), sent),
        )
        for subject, records in grouped(subjects).items()
        if (sent := total(records, "sentCount")) >= 1000
    ]
    return ("mail_conn_id", "subject", "campaigns", "sent", "open_rate", "click_rate"), sorted(
        rows, key=lambda row: (-rounded(row[4]), -row[3])
    )


def send_time(said: Told) -> Answer:
    times = grouped(
        ((who, sent_at(r).isoweekday(), sent_at(r).hour), r) for (who, _), r in said.latest().items() if sent_at(r)
    )
    rows = [
        (
            *time,
            len(records),
            sent,
            percent(total(records, "openCount"), sent),
            percent(total(records, "clickCount"), sent),
        )
        for time, records in times.items()
        if (sent := total(records, "sentCount")) >= 1000
    ]
    return ("mail_conn_id", "send_weekday", "send_hour", "campaigns", "sent", "open_rate", "click_rate"), sorted(
        rows, key=lambda row: (-rounded(row[6]), -row[4])
    )


def worse_than_usual(said: Told) -> Answer:
    rows = []
    for account in sorted(TEAMS):
        records = [r for (who, _), r in said.latest().items() if who == account and sent_at(r) and r["sentCount"]]
        records.sort(key=lambda record: (sent_at(record), record["mailName"]))
        of_account = []
        for number, record in enumerate(records):
            earlier = records[max(number - 10, 0) : number]
            sent, earlier_sent = record["sentCount"], total(earlier, "sentCount")
            of_account.append(
                (
                    account,
                    sent_at(record),
                    record["mailName"],
                    sent,
                    percent(total([record], "hardBounce", "softBounce"), sent),
                    percent(total(earlier, "hardBounce", "softBounce"), earlier_sent),
                    percent(record["unsubscribeCount"], sent),
                    percent(total(earlier, "unsubscribeCount"), earlier_sent),
                )
            )
        rows += reversed(of_account)
    return (
        "mail_conn_id",
        "mail_send_date",
        "mail_name",
        "sent_count",
        "bounce_rate",
        "usual_bounce_rate",
        "unsubscribe_rate",
        "usual_unsubscribe_rate",
    ), rows


def list_growth(said: Told) -> Answer:
    rows = []
    for of_list, contacts in sorted(said.lists.items()):
        months: dict[str, int] = defaultdict(int)
        for contact in contacts:
            months[(contact["createDate"] or "unknown")[:7]] += 1
        so_far = 0
        for month, count in sorted(months.items()):
            so_far += count
            rows.append((*of_list, month, count, so_far))
    return ("mail_conn_id", "team", "list_name", "created_month", "contacts", "contacts_so_far"), rows


def list_churn(said: Told) -> Answer:
    left = len(said.left)
    rows = [
        (*of_list, LISTS_READ_AT[-1], len(contacts), JOINED, left, percent(left, len(contacts) - JOINED + left))
        for of_list, contacts in sorted(said.lists.items())
    ]
    return (
        "mail_conn_id",
        "team",
        "list_name",
        "read_at",
        "contacts",
        "joined",
        "departed",
        "churn_rate",
    ), rows


def list_overlap(said: Told) -> Answer:
    rows = []
    for (one, one_contacts), (other, other_contacts) in combinations(sorted(said.lists.items()), 2):
        ids, other_ids = ({contact["id"] for contact in contacts} for contacts in (one_contacts, other_contacts))
        if one[:2] == other[:2] and (both := len(ids & other_ids)):
            rows.append((*one, other[2], both, percent(both, len(ids)), percent(both, len(other_ids))))
    return (
        "mail_conn_id",
        "team",
        "one_list",
        "other_list",
        "in_both_lists",
        "percent_of_one",
        "percent_of_other",
    ), sorted(rows, key=lambda row: (-row[4], row[2], row[3]))


def still_moving(said: Told) -> Answer:
    counts = (("openCount",), ("clickCount",), ("hardBounce", "softBounce"), ("unsubscribeCount",))
    rows = []
    for (account, name), days in said.by_day().items():
        if len(days) > 1 and (account, name) != GONE:
            before, last = sorted(days)[-2:]
            news = tuple(total([days[last]], *names) - total([days[before]], *names) for names in counts)
            if any(news):
                rows.append((account, name, sent_at(days[last]), before, last, *news))
    return (
        "mail_conn_id",
        "mail_name",
        "mail_send_date",
        "day_before",
        "last_day",
        "new_opens",
        "new_clicks",
        "new_bounces",
        "new_unsubscribes",
    ), sorted(rows, key=lambda row: (row[4], -row[5], row[0], row[1]))


def transactional_days(said: Told) -> Answer:
    rows: list[tuple[Any, ...]] = []
    for account, records in sorted(said.days.items()):
        days = {datetime.date.fromisoformat(record["statsDate"]): record for record in records}
        for number in range(90):
            day = max(days) - datetime.timedelta(days=number)
            if day < min(days):
                break
            if record := days.get(day):
                sent = record["sentCount"]
                state = "sent" if sent else "none sent"
                bounces = record["bounceCount"]
                rows.append((account, day, state, sent, record["unsentCount"], bounces, percent(bounces, sent)))
            else:
                rows.append((account, day, "missing", None, None, None, None))
    return (
        "mail_conn_id",
        "stats_date",
        "state",
        "sent_count",
        "unsent_count",
        "soft_bounces",
        "soft_bounce_rate",
    ), rows


def freshness(said: Told) -> Answer:
    rows: list[tuple[Any, ...]] = []
    for account in TEAMS:
        looked = max(look.asked_at for look in said.looks if look.account == account)
        # Those looks that saw no campaign left nothing in the history.
        seen = max(look.asked_at for look in said.looks if look.account == account and look.records)
        rows += [
            ("mail_campaign_stats", account, "", looked),
            ("mail_campaign_stats_snapshots", account, "", seen),
            ("mail_campaigns", account, "", TASKS_READ_AT),
            ("mail_transactional_stats", account, "", DAYS_READ_AT[-1]),
        ]
    for account, team, name in said.lists:
        rows.append(("mail_contacts", account, f"{team}/{name}" if team else name, LISTS_READ_AT[-1]))
    return ("table_name", "mail_conn_id", "contact_list", "last_asked"), sorted(
        rows, key=lambda row: (row[3], row[0], row[1], row[2])
    )


def spam_reports(said: Told) -> Answer:
    rows: list[tuple[Any, ...]] = []
    for account, events in said.events.items():
        for guid in {event["Guid"] for event in events if "Guid" in event}:
            of_campaign = [event for event in events if event.get("Guid") == guid]
            codes = Counter(event["EventCode"] for event in of_campaign)
            if delivered := codes["Delivered"]:
                spam, left = codes["SpamReport"], codes["Unsubscribed"]
                rates = Fraction(1000 * spam, delivered), Fraction(1000 * left, delivered)
                rows.append((account, of_campaign[0]["MailName"], delivered, spam, left, *rates))
    return (
        "mail_conn_id",
        "mail_name",
        "delivered",
        "spam_reports",
        "unsubscribed",
        "spam_reports_per_1000",
        "unsubscribed_per_1000",
    ), sorted(rows, key=lambda row: (-row[5], -row[2], row[0], row[1]))


def suppressed(said: Told) -> Answer:
    """The first of the reasons counts; a bounce is one if three mails bounced since the last delivery."""
    found: Counter[tuple[str, str]] = Counter()
    for account, events in said.events.items():
        people: dict[str, list[Wire]] = grouped((event["Email"].lower(), event) for event in events if "Email" in event)
        for mails in people.values():
            bounced: set[str] = set()
            for event in sorted(mails, key=lambda event: event["TriggeredDateTimeV2"]):
                if event["EventCode"] == "Delivered":
                    bounced.clear()
                if event["EventCode"] == "Bounced":
                    bounced.add(event["UniqueMsgID"])
            codes = {event["EventCode"] for event in mails} | ({"three"} if len(bounced) >= 3 else set())
            reasons = {
                "SpamReport": "spam report",
                "Unsubscribed": "unsubscribed",
                "Dropped": "dropped",
                "three": "bounced",
            }
            if reason := next((reason for code, reason in reasons.items() if code in codes), None):
                found[account, reason] += 1
    return ("mail_conn_id", "reason", "addresses"), [(*key, count) for key, count in sorted(found.items())]


QUESTIONS: Mapping[str, Callable[[Told], Answer]] = {
    answer.__name__: answer
    for answer in (
        open_rate_by_week,
        open_curve,
        subject_lines,
        send_time,
        worse_than_usual,
        list_growth,
        list_overlap,
        still_moving,
        transactional_days,
        freshness,
        spam_reports,
        suppressed,
        list_churn,
    )
}


def file_of(question: str, database: str) -> Path:
    """The file for this database, else the one for all that have none."""
    own = FOLDER / f"{question}.{database}.sql"
    return own if own.exists() else FOLDER / f"{question}.sql"


def asked(warehouse: Warehouse, sql: str) -> Answer:
    """Names and values of what the database answers."""
    with closing(warehouse.hook.get_conn()) as connection, closing(connection.cursor()) as cursor:
        for statement in SESSION.get(warehouse.kind, []):
            cursor.execute(statement)
        cursor.execute(sql)
        return [column[0] for column in cursor.description], [tuple(row) for row in cursor.fetchall()]


def agree(actual: Any, expected: Any) -> bool:
    """Whether a database's value is the one that was worked out; SQLite writes days and times as text."""
    if isinstance(expected, Fraction):
        hundredths = float(actual) * 100
        return abs(hundredths - round(hundredths)) < 1e-6 and abs(float(actual) - expected) < Fraction("0.00501")
    if isinstance(expected, datetime.datetime):
        when = datetime.datetime.fromisoformat(actual) if isinstance(actual, str) else actual
        return bool((when if when.tzinfo else when.replace(tzinfo=datetime.UTC)) == expected)
    if isinstance(expected, datetime.date):
        day = datetime.date.fromisoformat(actual) if isinstance(actual, str) else actual
        return type(day) is datetime.date and day == expected
    if isinstance(expected, int):
        return isinstance(actual, int | Decimal | float) and actual == expected
    return type(actual) is type(expected) and bool(actual == expected)


@pytest.mark.parametrize("kind", DATABASES)
def test_the_answers_are_right(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    said = told()
    warehouse = make_warehouse(kind)
    load_all(warehouse, said)
    for question, answer in QUESTIONS.items():
        file = file_of(question, DATABASES[kind])
        expected_names, expected = answer(said)
        names, rows = asked(warehouse, file.read_text())
        assert names == list(expected_names), file.name
        assert len(expected) > 1, f"{question}: the data asks nothing"
        wrong = [(row, wanted) for row, wanted in zip(rows, expected, strict=False) if not all(map(agree, row, wanted))]
        assert not wrong, f"{file.name}: {wrong[:3]}"
        assert len(rows) == len(expected), file.name
        assert "@" not in str(rows), f"{file.name}: addresses"


def test_the_data_holds_the_traps() -> None:
    """What the answers above would not notice if it were not there."""
    said = told()
    assert {state for _, _, state, *_ in transactional_days(said)[1]} == {"missing", "none sent", "sent"}
    assert len(said.days["mail_default"]) > 90 > (LAST_DAY - FIRST_DAY).days / 2
    subjects = {row[1] for row in subject_lines(said)[1]}
    assert subjects.isdisjoint({None, "For the ten of us", "What it was called at first", "Not the shop's"})
    latest = said.latest()
    assert any(record["sentCount"] == 0 for record in latest.values())
    assert any(sent_at(record) is None for record in latest.values())
    moving = [name for _, name, *_ in still_moving(said)[1]]
    assert 0 < len(moving) < len(said.by_day())
    assert len(said.by_day()[GONE]) > 1
    assert "Of a deleted task" not in subjects
    assert len({reason for _, reason, _ in suppressed(said)[1]}) == 4
    assert {name for _, name, *_ in spam_reports(said)[1]} == {"spring-sale", "tiny"}


def test_every_file_is_a_question() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for path in FOLDER.iterdir():
        question, _, database = path.name.removesuffix(".sql").partition(".")
        found[question].add(database)
    assert found.keys() == QUESTIONS.keys()
    for question, databases in found.items():
        assert databases <= {"", *DATABASES.values()}, question
        assert "" in databases or databases == set(DATABASES.values()), f"{question}: not for every database"


@pytest.mark.parametrize("question", QUESTIONS)
def test_databases_differ_in_the_first_part_only(question: str) -> None:
    """What `WITH` begins with is where a database may have its own way; the rest is the question."""
    texts = {path.name: path.read_text() for path in FOLDER.glob(f"{question}*.sql")}
    rests = {re.split(r"^\)\n", text, maxsplit=1, flags=re.MULTILINE)[-1] for text in texts.values()}
    assert len(rests) == 1


def test_the_page_shows_every_file_once() -> None:
    shown = re.findall(r"<!-- sql: (\S+) -->", PAGE.read_text())
    assert sorted(shown) == sorted(path.name for path in FOLDER.iterdir())
    # That the text below is the file's is what tests/test_docs.py checks of all that is embedded.


def test_the_picture_is_as_declared() -> None:
    page = PAGE.read_text()
    assert page == er.filled(page), "run: python docs/er.py"
    assert er.diagram() in page
    for relation in er.RELATIONS:
        for table in (relation.one, relation.other):
            assert set(relation.columns) <= set(er.TABLES[table].names)
