"""The rows that each question of `docs/questions.md` must give, worked out from responses of the service without SQL.

Percentages are not rounded.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from typing import Any

from airflow_provider_mail.warehouse.tables.contacts import list_part
from tests.warehouse.questions_data import (
    DAY,
    DAYS_READ_AT,
    GONE,
    LISTS_READ_AT,
    TASKS_READ_AT,
    TEAMS,
    Responses,
    Wire,
    from_millis,
)

Row = tuple[Any, ...]
QUESTIONS: dict[str, tuple[list[str], Callable[[Responses], Iterable[Row]]]] = {}
"""By the name of the file of a question: the columns, and what gives the rows."""


def question(columns: str) -> Callable[[Any], Any]:
    def add(rows: Any) -> Any:
        QUESTIONS[rows.__name__] = columns.split(), rows
        return rows

    return add


def percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def total(records: Iterable[Wire], *counts: str) -> int:
    return sum(record[count] for record in records for count in counts)


def grouped(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    groups = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


def sends(data: Responses) -> Iterator[tuple[str, datetime.datetime, Wire]]:
    """The last record of each campaign that has a send date."""
    for (account, _), record in data.latest().items():
        if sent_at := from_millis(record["mailSendDate"]):
            yield account, sent_at, record


def observed(data: Responses) -> dict[tuple[str, str], list[tuple[datetime.date, Wire]]]:
    """The last record of each campaign on each day."""
    days: dict[tuple[str, str], dict[datetime.date, Wire]] = defaultdict(dict)
    for look in data.looks:
        for record in look.records:
            days[look.account, record["mailName"]][look.asked_at.date()] = record
    return {campaign: sorted(records.items()) for campaign, records in days.items()}


@question("mail_conn_id week_begins campaigns sent open_rate open_rate_delivered")
def open_rate_by_week(data: Responses) -> Iterator[Row]:
    weeks = grouped(((of, at.date() - at.weekday() * DAY), record) for of, at, record in sends(data))
    for (account, week), records in sorted(weeks.items()):
        opens, sent = total(records, "openCount"), total(records, "sentCount")
        delivered = sum(max(r["sentCount"] - r["hardBounce"] - r["softBounce"], 0) for r in records)
        yield account, week, len(records), sent, percent(opens, sent), percent(opens, delivered)


@question("observed_day sent_count open_count new_opens open_rate percent_of_opens")
def open_curve(data: Responses) -> Iterator[Row]:
    days = observed(data)["mail_default", "spring-sale"]
    most, before = max(record["openCount"] for _, record in days), None
    for day, record in days:
        opens, sent = record["openCount"], record["sentCount"]
        yield day, sent, opens, before and opens - before, percent(opens, sent), percent(opens, most)
        before = opens


def rates(groups: dict[Any, list[Wire]]) -> Iterator[Row]:
    """Key, number, mails, rates of opens and clicks of the groups with a thousand mails."""
    for key, records in groups.items():
        if (sent := total(records, "sentCount")) >= 1000:
            clicks, opens = total(records, "clickCount"), total(records, "openCount")
            yield *key, len(records), sent, percent(opens, sent), percent(clicks, sent)


@question("mail_conn_id subject campaigns sent open_rate click_rate")
def subject_lines(data: Responses) -> list[Row]:
    subjects = []
    for (account, name), record in data.latest().items():
        tasks = [task for task in data.tasks[account] if task["mailName"] == name]
        tasks = [task for task in tasks if TEAMS[account] in (None, task["teamName"])]
        if len(tasks) == 1 and tasks[0]["taskType"] != "ABTest" and tasks[0]["subject"]:
            subjects.append(((account, tasks[0]["subject"]), record))
    return sorted(rates(grouped(subjects)), key=lambda row: (-round(row[4], 2), -row[3]))[:20]


@question("mail_conn_id send_weekday send_hour campaigns sent open_rate click_rate")
def send_time(data: Responses) -> list[Row]:
    hours = grouped(((of, at.isoweekday(), at.hour), record) for of, at, record in sends(data))
    return sorted(rates(hours), key=lambda row: (-round(row[6], 2), -row[4]))


@question(
    "mail_conn_id mail_send_date mail_name sent_count bounce_rate usual_bounce_rate unsubscribe_rate "
    "usual_unsubscribe_rate"
)
def worse_than_usual(data: Responses) -> Iterator[Row]:
    for account in TEAMS:
        campaigns = [(at, record["mailName"], record) for of, at, record in sends(data) if of == account]
        campaigns = sorted(campaign for campaign in campaigns if campaign[2]["sentCount"])
        for number, (sent_at, name, record) in reversed([*enumerate(campaigns)]):
            both = [[record], [earlier for *_, earlier in campaigns[max(number - 10, 0) : number]]]
            bounces = [percent(total(some, "hardBounce", "softBounce"), total(some, "sentCount")) for some in both]
            unsubscribes = [percent(total(some, "unsubscribeCount"), total(some, "sentCount")) for some in both]
            yield account, sent_at, name, record["sentCount"], *bounces, *unsubscribes


@question("mail_conn_id team list_name created_month contacts contacts_so_far")
def list_growth(data: Responses) -> Iterator[Row]:
    for of_list, contacts in sorted(data.lists.items()):
        months, so_far = grouped(((one["createDate"] or "unknown")[:7], one) for one in contacts), 0
        for month, created in sorted(months.items()):
            so_far += len(created)
            yield *of_list, month, len(created), so_far


@question("mail_conn_id team one_list other_list in_both_lists percent_of_one percent_of_other")
def list_overlap(data: Responses) -> list[Row]:
    rows = []
    for (one, contacts), (other, others) in combinations(sorted(data.lists.items()), 2):
        both = len({contact["id"] for contact in contacts} & {contact["id"] for contact in others})
        if one[:2] == other[:2] and both:
            rows.append((*one, other[2], both, percent(both, len(contacts)), percent(both, len(others))))
    return sorted(rows, key=lambda row: (-row[4], row[2:4]))


@question("mail_conn_id mail_name mail_send_date day_before last_day new_opens new_clicks new_bounces new_unsubscribes")
def still_moving(data: Responses) -> list[Row]:
    rows = []
    counts = (["openCount"], ["clickCount"], ["hardBounce", "softBounce"], ["unsubscribeCount"])
    for campaign, [*_, (day_before, before), (last_day, last)] in (
        (campaign, days) for campaign, days in observed(data).items() if len(days) > 1 and campaign != GONE
    ):
        new = [total([last], *names) - total([before], *names) for names in counts]
        if any(new):
            rows.append((*campaign, from_millis(last["mailSendDate"]), day_before, last_day, *new))
    return sorted(rows, key=lambda row: (row[4], -row[5], row[:2]))


@question("mail_conn_id stats_date state sent_count unsent_count soft_bounces soft_bounce_rate")
def transactional_days(data: Responses) -> Iterator[Row]:
    for account, records in sorted(data.days.items()):
        by_day = {datetime.date.fromisoformat(record["statsDate"]): record for record in records}
        day = max(by_day)
        for _ in range(min((day - min(by_day)).days + 1, 90)):
            if record := by_day.get(day):
                sent, bounces = record["sentCount"], record["bounceCount"]
                state = "sent" if sent else "none sent"
                yield account, day, state, sent, record["unsentCount"], bounces, percent(bounces, sent)
            else:
                yield account, day, "missing", None, None, None, None
            day -= DAY


@question("table_name mail_conn_id contact_list last_asked")
def freshness(data: Responses) -> list[Row]:
    asked = {("mail_campaign_stats", look.account, ""): look.asked_at for look in data.looks}
    asked |= {("mail_campaign_stats_snapshots", look.account, ""): look.asked_at for look in data.looks if look.records}
    asked |= {("mail_campaigns", account, ""): TASKS_READ_AT for account in data.tasks}
    asked |= {("mail_transactional_stats", account, ""): DAYS_READ_AT[-1] for account in data.days}
    asked |= {("mail_contacts", of, list_part(team, name)): LISTS_READ_AT[-1] for of, team, name in data.lists}
    return sorted(((*what, at) for what, at in asked.items()), key=lambda row: (row[-1], row))


@question("mail_conn_id mail_name delivered spam_reports unsubscribed spam_reports_per_1000 unsubscribed_per_1000")
def spam_reports(data: Responses) -> list[Row]:
    rows: list[Row] = []
    for account, events in data.events.items():
        campaigns = grouped((event["MailName"], event["EventCode"]) for event in events if "Guid" in event)
        for name, codes in campaigns.items():
            delivered, reports, left = map(codes.count, ("Delivered", "SpamReport", "Unsubscribed"))
            if delivered:
                rows.append(
                    (account, name, delivered, reports, left, 1000 * reports / delivered, 1000 * left / delivered)
                )
    return sorted(rows, key=lambda row: (-row[5], -row[2], row[:2]))


@question("mail_conn_id reason addresses")
def suppressed(data: Responses) -> list[Row]:
    rows = []
    for account, events in data.events.items():
        reasons = []
        by_address = grouped((event["Email"].lower(), event) for event in events if "Email" in event)
        for of_one in by_address.values():
            codes = {event["EventCode"] for event in of_one}
            delivered = [event["TriggeredDateTimeV2"] for event in of_one if event["EventCode"] == "Delivered"]
            bounces = [event for event in of_one if event["EventCode"] == "Bounced"]
            since = [event for event in bounces if event["TriggeredDateTimeV2"] > max(delivered, default="")]
            is_bounced = len({event["UniqueMsgID"] for event in since}) >= 3
            wanted = {"SpamReport": "spam report", "Unsubscribed": "unsubscribed", "Dropped": "dropped"}
            reasons += ([wanted[code] for code in wanted if code in codes] + ["bounced"] * is_bounced)[:1]
        rows += [(account, reason, reasons.count(reason)) for reason in {*reasons}]
    return sorted(rows)


@question("mail_conn_id team list_name read_at contacts joined departed churn_rate")
def list_churn(data: Responses) -> Iterator[Row]:
    for of_list, (before, now) in sorted((of_list, data.readings(of_list)) for of_list in data.lists):
        ids, ids_before = ({contact["id"] for contact in contacts} for contacts in (now, before))
        joined, left = len(ids - ids_before), len(ids_before - ids)
        yield *of_list, LISTS_READ_AT[-1], len(now), joined, left, percent(left, len(before))
