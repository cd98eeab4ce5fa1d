"""The pages of campaigns."""

from __future__ import annotations

import csv
import datetime
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlencode, urljoin, urlsplit

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from airflow_provider_mail.plugin import campaigns, reader
from airflow_provider_mail.warehouse import database
from tests.plugin.conftest import DOCUMENTATION, Page, Visitor, may_read_only
from tests.plugin.data import ACCOUNT, DAY, HOSTILE, TASK_NAME, UTC, load_stats, load_tasks, stats, task
from tests.plugin.data import FIRST as FIRST_SENDING
from tests.support.clock import StillClock
from tests.support.dags import RunResult
from tests.warehouse.conftest import Warehouse

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

pytestmark = pytest.mark.not_unit


def names(text: str) -> list[str]:
    """The campaigns of a page, in their order."""
    return [parse_qs(urlsplit(link).query)["name"][0] for link in Page(text).links() if link.startswith("campaign?")]


def test_campaigns_are_found_and_sorted(visitor: Visitor, filled: Warehouse) -> None:
    everything = visitor.get("campaigns")
    assert "16 campaigns" in everything
    assert names(everything)[0] == "planned", "the latest first"
    assert set(names(everything)) == {
        *(f"week-{number}" for number in range(7)), TASK_NAME, "planned", "broken", "draft", *HOSTILE,
    }  # fmt: skip
    assert names(visitor.get("campaigns", q="WEEK-", sort="mail_name")) == [f"week-{number}" for number in range(7)]
    for sort, direction in (("mail_name", "ascending"), ("open_rate", "descending")):
        assert f'aria-sort="{direction}"' in visitor.get("campaigns", sort=sort)
    assert '<a id="own-window" href="campaigns?q=week"' in visitor.get("campaigns", q="week")
    by_opens = names(visitor.get("campaigns", q="week", sort="open_rate"))
    assert by_opens == [f"week-{number}" for number in reversed(range(7))]
    assert names(visitor.get("campaigns", q="%")) == [HOSTILE[2]], "the text is not a pattern"
    assert names(visitor.get("campaigns", q="_")) == [TASK_NAME]
    assert "No campaign matches" in visitor.get("campaigns", q="nothing")
    assert set(names(visitor.get("campaigns", account="mail_shop"))) == set(HOSTILE)
    # A column that there is not is no part of a statement.
    assert names(visitor.get("campaigns", sort="1; DROP TABLE x")) == names(everything)
    for state in ("scheduled", "failed", "draft", "sent"):
        assert f'<span class="state {state}">{state}</span>' in everything
    later = FIRST_SENDING + 30 * DAY
    load_stats(filled, [stats("week-rare", later, 3, 100_000)], later, ACCOUNT)
    assert names(visitor.get("campaigns", q="week", sort="open_rate")) == [*by_opens, "week-rare"], "0.00003 is no text"


def test_filters_are_in_the_address(visitor: Visitor, filled: Warehouse) -> None:
    """Part of the name or the subject, a list, days, a state; alone and together."""
    lists = r'["VIP", "Caf\u00e9 100% \"new\""]'
    filled.execute(
        f"UPDATE mail_campaigns SET rcpt_list_names = '{lists}' WHERE mail_name = 'broken'",
        "UPDATE mail_campaigns SET subject = 'Spring SALE' WHERE mail_name = 'week-6'",
        "UPDATE mail_campaigns SET subject = NULL, send_by_date_time = NULL WHERE mail_name = 'draft'",
    )
    assert names(visitor.get("campaigns"))[-1] == "draft", "it has no time"
    assert ">draft</a>" in visitor.get("campaigns"), "nor a subject"
    listed = 'Caf\u00e9 100% "new"'
    cases: list[tuple[dict[str, str], set[str]]] = [
        ({"q": "ring sal"}, {"week-6"}),
        ({"q": "WEEK-6"}, {"week-6"}),
        ({"list": "Shop"}, {"week-6", "planned", "draft"}),
        ({"list": "Sho"}, set()),
        ({"list": listed}, {"broken"}),
        ({"list": "new"}, set()),
        ({"list": "Shop", "state": "sent"}, {"week-6"}),
        ({"state": "scheduled"}, {"planned"}),
        ({"state": "sending"}, set()),
        ({"state": "failed", "list": "VIP", "q": "about"}, {"broken"}),
        ({"from": "2026-03-02", "to": "2026-03-04", "q": "week"}, {"week-1", "week-2", "week-3"}),
        ({"from": "2026-03-07", "to": "2026-03-07", "account": ACCOUNT}, {"week-6"}),
        ({"to": "2026-02-28"}, set()),
    ]
    for query, expected in cases:
        assert set(names(visitor.get("campaigns", **query))) == expected, query
        assert len(visitor.get("campaigns", csv="campaigns", **query).splitlines()) == 1 + len(expected)
    text = visitor.get("campaigns", list=listed)
    assert [attributes for tag, attributes in Page(text).elements if tag == "option" and "selected" in attributes]
    assert "Café 100% &#34;new&#34;</option>" in text
    # What a form sends of fields that are empty; other pages keep the filter.
    assert set(names(visitor.get("campaigns?q=&list=&from=&to=&state=&account="))) >= {"week-0", "draft"}
    every = f"campaigns?q=week&list=Shop&from=2026-03-01&to=2026-03-09&state=sent&account={ACCOUNT}"
    assert f"{every}&sort=open_rate" in Page(visitor.get(every)).links()


def test_no_value_in_an_address_breaks_a_page(visitor: Visitor, filled: Warehouse) -> None:
    """The ends of the calendar are days like others, in each time zone; what is not a day is rejected by its name."""
    login = visitor.cookies
    for zone in ("UTC", "Pacific/Kiritimati", "Pacific/Midway"):
        visitor.cookies = {**login, "mail_zone": zone}
        everything = visitor.get("campaigns", q="week")
        for first in ("", "0001-01-01", "0999-12-31", "1000-01-01"):
            for last in ("", "9999-12-31", "9999-12-30"):
                assert names(visitor.get("campaigns", q="week", **{"from": first, "to": last})) == names(everything)
        assert names(visitor.get("campaigns", to="0001-01-01")) == []
        assert names(visitor.get("campaigns", **{"from": "9999-12-31"})) == []
    not_days = (
        "2026-13-01",
        "x",
        "0",
        "1e9",
        "-1",
        "inf",
        "10000-01-01",
        "2026-03-01T00:00",
        "٢٠٢٦-03-01",
        "0000-01-01",
    )
    for name in ("from", "to"):
        for value in not_days:
            assert f"not possible: {name}" in visitor.get("campaigns", status=400, **{name: value})
    for text in ("\ud7ff", "\U0010ffff", "\n", "'", '"', "\\", "%", "_", "!", ";--", "{{1}}", " " * 400):
        for name in ("q", "list", "state", "account", "sort"):
            visitor.get("campaigns", **{name: text})
        visitor.get("transactional", account=text)
        visitor.get("compare", c=text)


def test_times_at_the_ends_of_the_calendar(visitor: Visitor, filled: Warehouse) -> None:
    """What the service has stored there is shown in UTC, where the chosen zone has no such time."""
    login = visitor.cookies
    for time, zone in (("9999-12-31 23:30:00", "Asia/Tokyo"), ("0001-01-01 00:30:00", "America/New_York")):
        filled.execute(f"UPDATE mail_campaign_stats SET mail_send_date = '{time}' WHERE mail_name = 'week-6'")
        visitor.cookies = {**login, "mail_zone": zone}
        for path in ("campaigns", "campaigns?csv=campaigns", "campaign?account=mail_default&name=week-6", ""):
            visitor.get(path)


def test_days_begin_in_the_zone_of_the_visitor(visitor: Visitor, empty: Warehouse) -> None:
    late = datetime.datetime(2026, 3, 1, 23, 30, tzinfo=datetime.UTC)
    midnight, later = (late + datetime.timedelta(minutes=minutes) for minutes in (30, 60))
    records = [stats("late", late, 1), stats("midnight", midnight, 1), stats("later", later, 1)]
    load_stats(empty, records, late, ACCOUNT)
    assert names(visitor.get("campaigns", to="2026-03-01")) == ["late"]
    assert names(visitor.get("campaigns", **{"from": "2026-03-02"})) == ["later", "midnight"]
    login = visitor.cookies
    for zone in ("Europe/Berlin", "Europe%2FBerlin"):
        visitor.cookies = {**login, "mail_zone": zone}
        assert names(visitor.get("campaigns", to="2026-03-01")) == []
        text = visitor.get("campaigns", **{"from": "2026-03-02"})
        assert names(text) == ["later", "midnight", "late"]
        assert ">2026-03-02 01:30<" in text
        assert "Times are in Europe/Berlin" in text
        assert "2026-03-02T00:30:00+01:00" in visitor.get("campaigns?csv=campaigns")
    for zone in ("../../etc/passwd", "/etc/localtime", "Europe", "No/Where", "x" * 300, "%00", ""):
        visitor.cookies = {**login, "mail_zone": zone}
        assert "Times are in UTC" in visitor.get("campaigns")


def test_totals_are_of_all_that_match(visitor: Visitor, empty: Warehouse) -> None:
    records = [stats(f"letter {number:03}", FIRST_SENDING, 200 if number else 800) for number in range(60)]
    load_stats(empty, records, FIRST_SENDING, ACCOUNT)
    page = Page(visitor.get("campaigns"))
    assert "All 60 60,000 21.0 % 4.2 % 20.0 % 1.0 % 0.2 %" in page.text
    assert "All" not in Page(visitor.get("campaigns", q="letter 000")).text
    assert "?sort=mail_name&csv=campaigns" in Page(visitor.get("campaigns?sort=mail_name&page=2")).links()
    lines = visitor.get("campaigns?csv=campaigns&sort=mail_name&page=2").splitlines()
    assert len(lines) == 61, "the CSV has all pages"
    assert lines[0].startswith("Campaign,Name,Lists,Date,State,Sent,Opened,Clicked,Click to open,Bounced")
    assert lines[1] == "letter 000,,,2026-03-01T08:00:00+00:00,sent,1000,80.00,16.00,20.00,1.00,0.20"
    empty.execute("DELETE FROM mail_campaign_stats WHERE mail_name = 'letter 059'")
    assert "59 campaigns" in visitor.get("campaigns"), "of few campaigns, the totals are those of now"


def test_campaigns_side_by_side(visitor: Visitor, filled: Warehouse) -> None:
    chosen = [
        "mail_default//week-6",
        "mail_default//week-2",
        "mail_default//planned",
        "mail_shop//javascript%3Aalert%281%29%2F%2F%250a%27",
    ]
    address = f"compare?{urlencode([('c', value) for value in [*chosen, chosen[0], 'mail_default//gone', 'x', '']])}"
    page = Page(visitor.get(address))
    assert (
        "About week-6 Name: week-6 2026-03-07 08:00 1,000 99.0 % 36.0 % 7.2 % 0.2 % 0.7 % 0.3 % 0.0 % 20.0 %"
        in page.text
    )
    assert "week-2 2026-03-03 08:00 1,000" in page.text
    drawn = [attributes for tag, attributes in page.elements if tag in ("polyline", "circle")]
    assert [attributes["class"] for attributes in drawn] == ["line-1", "line-2", "line-3", "line-3"]
    opens = visitor.get(f"{address}&csv=opens").splitlines()
    assert opens[0] == "Days since the sending,About week-6 (week-6),week-2,javascript:alert(1)//%0a'"
    assert opens[-1] == "5,36.00,32.00,"
    assert "None of the chosen campaigns is known here" in visitor.get("compare")
    many = [("c", f"mail_default//week-{number}") for number in range(7)]
    text = visitor.get(f"compare?{urlencode(many)}")
    assert names(text) == [f"week-{number}" for number in range(6)]
    assert "The first 6 of the chosen ones" in text
    # The boxes in the table choose what the page compares.
    boxes = [attributes for tag, attributes in Page(visitor.get("campaigns")).elements if tag == "input"]
    assert {"mail_default//week-6", chosen[3]} < {box["value"] for box in boxes if box.get("name") == "c"}


def test_a_csv_computes_nothing(visitor: Visitor, empty: Warehouse) -> None:
    formulas = ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "=HYPERLINK(A1,that is longer than a name)"]
    load_stats(empty, [stats(name, FIRST_SENDING, 1) for name in formulas], FIRST_SENDING, ACCOUNT)
    response = visitor.response("campaigns?csv=campaigns")
    assert {row[0] for row in csv.reader(response.text.splitlines()[1:])} == {f"'{name}" for name in formulas}
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    assert response.headers["content-disposition"] == 'attachment; filename="mail-campaigns.csv"'
    visitor.get("campaigns?csv=nothing", status=404)
    compared = visitor.get("compare?c=mail_default%2F%2F%253D1%252B1&csv=opens")
    assert compared.splitlines()[0] == "Days since the sending,'=1+1"


def test_pages_lead_to_each_other(visitor: Visitor, empty: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [stats(f"letter {number:03}", FIRST_SENDING, 1) for number in range(120)]
    load_stats(empty, records, FIRST_SENDING, ACCOUNT)
    seen: list[str] = []
    path = "campaigns?sort=mail_name"
    while path:
        text = visitor.get(path)
        assert "campaigns?sort=open_rate" in Page(text).links(), "another order begins at its first page"
        seen += names(text)
        following = re.search(r'<a href="([^"]+)" rel="next">', text)
        path = following[1].replace("&amp;", "&") if following else ""
    assert seen == [f"letter {number:03}" for number in range(120)]
    assert "Choose days" not in text
    assert "There is no campaign" in visitor.get("campaigns", page="4")
    assert "Page 2 of 2" in visitor.get("campaigns?q=letter+0&page=2"), "of 100 campaigns"
    most = campaigns.MOST_PAGES
    monkeypatch.setattr(campaigns, "MOST_PAGES", 2)
    text = visitor.get("campaigns?sort=mail_name&page=2")
    assert "Page 2 of 2. Choose days above to see other campaigns" in Page(text).text
    assert 'rel="next"' not in text
    # The latest first: what no page shows is left out.
    assert [len(names(visitor.get("campaigns", page=str(page)))) for page in (1, 2)] == [50, 50]
    for bad in ("0", "-1", "x", str(most + 1)):
        visitor.get("campaigns", status=400, page=bad)


def test_a_campaign_and_the_median_of_earlier_ones(visitor: Visitor, filled: Warehouse) -> None:
    page = Page(visitor.get("campaign", account=ACCOUNT, name="week-6"))
    assert "About week-6" in page.text
    assert "Newsletter , Shop" in page.text
    assert "Delivered 990 99.0 %" in page.text
    assert "Opened 360 36.0 %" in page.text
    assert "Median of the 6 campaigns before it" in page.text
    filled.execute("UPDATE mail_campaign_stats SET team_name = 'Red' WHERE mail_name = 'week-5'")
    assert "Median of the 5 campaigns before it" in visitor.get("campaign", account=ACCOUNT, name="week-6")
    # By the sixth day: week-0 has 30.0 %, week-5 has 35.0 %; their median is between week-2 and week-3.
    assert "5 36.0 % 32.5 %" in page.text
    assert [attributes["class"] for tag, attributes in page.elements if tag == "polyline"] == ["line-1", "median"]
    assert "planted.example" not in page.text, "addresses of the sender are left out"
    visitor.get("campaign", status=404, account=ACCOUNT, name="nothing")
    visitor.get("campaign", status=404, account="mail_shop", name="week-6")
    assert "It has no results yet" in visitor.get("campaign", account=ACCOUNT, name="planned")
    assert "The median of earlier campaigns is shown when three of them" in visitor.get(
        "campaign", account=ACCOUNT, name="week-0"
    )


def test_hostile_names_are_text(visitor: Visitor, filled: Warehouse) -> None:
    filled.execute("UPDATE mail_campaign_stats SET team_name = mail_name WHERE mail_conn_id = 'mail_shop'")
    whole = visitor.get("campaigns", account="mail_shop")
    boxes = [("c", box["value"]) for tag, box in Page(whole).elements if tag == "input" and box.get("name") == "c"]
    texts = [whole, visitor.get("campaigns"), visitor.get(f"compare?{urlencode(boxes)}")]
    for link in [link for link in Page(whole).links() if link.startswith("campaign?")]:
        address = urlsplit(urljoin("http://airflow.example/mail/", link))
        assert (address.netloc, address.path) == ("airflow.example", "/mail/campaign")
        name = parse_qs(address.query)["name"][0]
        text = visitor.get(link)
        assert name in Page(text).text
        texts.append(text)
    texts += [visitor.get("campaigns", q=name, account=name) for name in HOSTILE]
    for text in texts:
        page = Page(text)
        assert [attributes for tag, attributes in page.elements if tag == "script"] == [{}]
        assert not [tag for tag, attributes in page.elements for name in attributes if name.startswith(("on", "style"))]
        assert not [
            link
            for link in page.links()
            if (urlsplit(link).scheme or link.startswith("//")) and not link.startswith(DOCUMENTATION)
        ]
        assert "95053" not in page.text


def test_links_to_tasks_that_there_are_and_one_may_read(
    visitor: Visitor, empty: Warehouse, run_dag: Callable[..., RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name may look like that of a task instance."""
    runs = {}
    for dag_id in ("readable", "unreadable"):
        with DAG(dag_id, schedule=None) as dag:
            EmptyOperator(task_id="newsletter")
        runs[dag_id] = run_dag(dag).run_id
    names = [f"{dag_id}/newsletter/{run_id}" for dag_id, run_id in runs.items()]
    names += [f"readable/other/{runs['readable']}", "2026/spring/sale"]
    load_stats(empty, [stats(name, FIRST_SENDING, 1) for name in names], FIRST_SENDING, ACCOUNT)

    def links() -> list[list[str]]:
        pages = [Page(visitor.get("campaign", account=ACCOUNT, name=name)) for name in names]
        return [[link for link in page.links() if "/dags/" in link] for page in pages]

    addresses = [
        [f"/team/airflow/dags/{dag_id}/runs/{quote(run_id, safe='')}/tasks/newsletter"]
        for dag_id, run_id in runs.items()
    ]
    assert links() == [*addresses, [], []]
    may_read_only(monkeypatch, "readable")
    assert links() == [addresses[0], [], [], []]


def test_campaigns_of_another_account_change_nothing(visitor: Visitor, filled: Warehouse) -> None:
    """They have the same names, were sent at the same times, and were opened by everybody."""
    path = "campaign?account=mail_default&name=week-6"
    pages = [visitor.get(path), visitor.get("campaigns", account=ACCOUNT)]
    for number in range(7):
        sent_at = FIRST_SENDING + datetime.timedelta(days=number)
        for age in range(6):
            record = stats(f"week-{number}", sent_at, 1000)
            load_stats(filled, [record], FIRST_SENDING + datetime.timedelta(days=number + age, hours=7), "mail_other")
    # More than a median is of, and none of them counts into it.
    sent_at = FIRST_SENDING + datetime.timedelta(days=5, hours=23)
    load_stats(filled, [stats(f"other {number}", sent_at, 1000) for number in range(20)], sent_at, "mail_third")
    filled.execute("UPDATE mail_campaigns SET mail_conn_id = 'mail_other', subject = 'x' WHERE mail_name = 'broken'")
    assert visitor.get(path) == pages[0]
    assert names(visitor.get("campaigns", account=ACCOUNT)) == [each for each in names(pages[1]) if each != "broken"]
    visitor.get("campaign", status=404, account=ACCOUNT, name="broken")
    visitor.get("campaign", status=404, account=ACCOUNT, name="other 0")
    load_tasks(filled, [task("week-3", 4, FIRST_SENDING)], account="mail_other")
    for account, failed in ((ACCOUNT, []), ("mail_other", ["week-3", "broken"])):
        assert names(visitor.get("campaigns", account=account, state="failed")) == failed
    assert "About week-3" not in visitor.get("campaigns", account=ACCOUNT)
    visitor.get("campaign", account="mail_third", name="other 0")
    assert "1,000 100.0 %" in Page(visitor.get("campaign", account="mail_other", name="week-6")).text


def test_deleted_campaigns_are_not_in_the_median(visitor: Visitor, filled: Warehouse) -> None:
    path = "campaign?account=mail_default&name=week-6"
    assert "Median of the 6 campaigns before it" in visitor.get(path)
    filled.execute(
        "UPDATE mail_campaign_stats SET gone_at = observed_at WHERE mail_name IN ('week-3', 'week-4', 'week-5')"
    )
    filled.execute("UPDATE mail_campaigns SET gone_at = observed_at WHERE mail_name = 'planned'")
    page = Page(visitor.get(path))
    assert "Median of the 3 campaigns before it" in page.text
    # By the sixth day: 30.0 %, 31.0 % and 32.0 %.
    assert "5 36.0 % 31.0 %" in page.text
    assert set(names(visitor.get("campaigns"))).isdisjoint({"week-3", "week-4", "week-5", "planned"})
    visitor.get("campaign", status=404, account=ACCOUNT, name="week-3")
    visitor.get("campaign", status=404, account=ACCOUNT, name="planned")
    filled.execute("UPDATE mail_campaigns SET gone_at = observed_at WHERE mail_name = 'week-6'")
    assert names(visitor.get("campaigns", q="about week-6")) == []


def test_two_tasks_of_one_name_are_two_campaigns(visitor: Visitor, empty: Warehouse) -> None:
    """Red sent `spring`, and that of Blue failed or is on its way: each is found, and neither has the other's state."""
    load_stats(empty, [stats("spring", FIRST_SENDING, 300)], FIRST_SENDING, ACCOUNT)
    tasks = [
        task("spring", 2, FIRST_SENDING, guid="red", teamName="Red", subject="From Red"),
        task("spring", 4, FIRST_SENDING, guid="blue", teamName="Blue", subject="From Blue"),
    ]
    load_tasks(empty, tasks)
    # The connection names a team, or none: then the statistics are those of the task that was sent.
    for team in ("", "Red"):
        empty.execute(f"UPDATE mail_campaign_stats SET team_name = '{team}'")
        everything = Page(visitor.get("campaigns"))
        assert "2 campaigns" in everything.text
        for state, of, other, mails in (
            ("failed", "Blue", "Red", "failed \N{EN DASH}"),
            ("sent", "Red", "Blue", "sent 1,000"),
        ):
            page = Page(visitor.get("campaigns", state=state))
            assert f"From {of}" in page.text, (team, state)
            assert f"From {other}" not in page.text, (team, state)
            assert mails in page.text
            (link,) = [link for link in page.links() if link.startswith("campaign?")]
            details = Page(visitor.get(link)).text
            assert f"From {of} State {state}" in details
            assert f"From {other}" not in details
    empty.execute("UPDATE mail_campaigns SET mail_status = 1 WHERE guid = 'blue'")
    sending = Page(visitor.get("campaigns", state="sending")).text
    assert ("From Blue" in sending, "From Red" in sending) == (True, False)
    assert names(visitor.get("campaigns", state="scheduled")) == []
    # Sent by both: each has its own statistics; without statistics, a name without a team is none of them.
    empty.execute("UPDATE mail_campaigns SET mail_status = 2", "UPDATE mail_campaign_stats SET team_name = ''")
    for path in ("campaigns", f"campaign?account={ACCOUNT}&name=spring"):
        assert "From" not in re.sub("From <input", "", visitor.get(path)), "statistics without a team may be of either"
    empty.execute("UPDATE mail_campaign_stats SET team_name = 'Red'")
    load_stats(empty, [stats("spring", FIRST_SENDING, 700)], FIRST_SENDING, ACCOUNT)
    empty.execute("UPDATE mail_campaign_stats SET team_name = 'Blue' WHERE team_name = ''")
    for of, opened in (("Red", "30.0 %"), ("Blue", "70.0 %")):
        details = Page(visitor.get("campaign", account=ACCOUNT, name="spring", team=of)).text
        assert (f"From {of} State sent" in details, f"Opened {opened[:2]}0 {opened}" in details) == (True, True)
        links = Page(visitor.get(f"compare?c=mail_default%2F{of}%2Fspring")).links()
        assert f"campaign?account=mail_default&team={of}&name=spring" in links
    boxes = [values["value"] for tag, values in Page(visitor.get("campaigns")).elements if values.get("name") == "c"]
    assert sorted(map(str, boxes)) == ["mail_default/Blue/spring", "mail_default/Red/spring"]
    visitor.get("campaign", account=ACCOUNT, name="spring", status=404)
    visitor.get("campaign", account=ACCOUNT, name="spring", team="Green", status=404)


def test_a_task_alone_has_the_statistics_of_its_name(visitor: Visitor, empty: Warehouse) -> None:
    """Of a connection that names no team; they have its state and its subject, and it is not counted twice.

    Another account has sent a campaign of that name.
    """
    other = task("spring", 2, FIRST_SENDING, guid="z", subject="From Z", teamName="Red")
    load_tasks(empty, [other], account="z_mail")
    load_stats(empty, [stats("spring", FIRST_SENDING, 300)], FIRST_SENDING, ACCOUNT)
    only = task("spring", 1, FIRST_SENDING, teamName="Red", subject="From Red")
    load_tasks(empty, [only])
    text = Page(visitor.get("campaigns", state="sending", q="from red", list="Shop")).text
    assert "1 campaign" in text
    assert "From Red" in text
    assert "1,000 30.0 %" in text
    assert names(visitor.get("campaigns", state="sent", account=ACCOUNT)) == []
    assert "1 campaign" in Page(visitor.get("campaigns", q="from z")).text
    assert names(visitor.get("campaigns", account="z_mail")) == ["spring"]
    visitor.get("campaign", account="z_mail", name="spring", team="Red")
    visitor.get("campaign", status=404, account="z_mail", name="spring")
    # Another one of its team was sent: then they are its statistics.
    load_tasks(empty, [task("spring", 2, FIRST_SENDING, guid="sent", teamName="Red")])
    empty.execute("UPDATE mail_campaign_stats SET team_name = 'Red'")
    for state, mails in (("sent", "1,000 30.0 %"), ("sending", "\N{EN DASH}")):
        text = Page(visitor.get("campaigns", state=state, account=ACCOUNT)).text
        assert ("1 campaign" in text, f"{state} {mails}" in text) == (True, True)


def test_of_many_tasks_those_without_statistics_are_known_for_a_minute(
    visitor: Visitor, empty: Warehouse, monkeypatch: pytest.MonkeyPatch, still_clock: StillClock
) -> None:
    """What has statistics by now is not shown twice; what was not sent yet is shown at once."""
    monkeypatch.setattr(campaigns, "MANY", 2)
    counts = dict.fromkeys(("sentCount", "deliveredCount", "openCount", "clickCount", "hardBounce"), 9)
    counts |= dict.fromkeys(("softBounce", "unsentCount", "unsubscribeCount"), 0)
    load_tasks(empty, [task(name, 2, FIRST_SENDING, mailStats=counts) for name in ("a", "b", "it's")])
    load_stats(empty, [stats("a", FIRST_SENDING, 100)], FIRST_SENDING, ACCOUNT)
    assert sorted(names(visitor.get("campaigns"))) == ["a", "b", "it's"]
    assert "All 3 1,018" in Page(visitor.get("campaigns")).text
    load_stats(empty, [stats("b", FIRST_SENDING, 100)], FIRST_SENDING, ACCOUNT)
    load_tasks(empty, [task("c", 2, FIRST_SENDING), task("next", 1, datetime.datetime.now(UTC) + DAY)])
    # A guid with a quotation mark: all are compared.
    assert sorted(names(visitor.get("campaigns"))) == ["a", "b", "c", "it's", "next"]
    assert "3 campaigns" in visitor.get("campaigns"), "the totals, too, are those of up to a minute ago"
    assert "1 campaign" in visitor.get("campaigns", q="next"), "but not those of a filter"
    empty.execute("UPDATE mail_campaigns SET guid = 'plain' WHERE mail_name = 'it''s'")
    still_clock.move(60)
    assert "5 campaigns" in visitor.get("campaigns")
    assert sorted(names(visitor.get("campaigns"))) == ["a", "b", "c", "it's", "next"]
    load_tasks(empty, [task("d", 2, FIRST_SENDING), task("draft", -1, FIRST_SENDING)])
    load_stats(empty, [stats("c", FIRST_SENDING, 100)], FIRST_SENDING, ACCOUNT)
    assert sorted(names(visitor.get("campaigns"))) == ["a", "b", "c", "draft", "it's", "next"]
    still_clock.move(60)
    assert sorted(names(visitor.get("campaigns"))) == ["a", "b", "c", "d", "draft", "it's", "next"]


@pytest.mark.parametrize("kind", ["sqlite", "psycopg2", "psycopg3"])
def test_a_page_needs_one_connection(visitor: Visitor, make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    """Opening one for each statement takes longer than most statements; a page after an error needs a new one."""
    warehouse = make_warehouse(kind)
    load_stats(warehouse, [stats("a", FIRST_SENDING, 100)], FIRST_SENDING, ACCOUNT)
    load_tasks(warehouse, [task("b", 1, FIRST_SENDING)])
    visitor.get("campaigns")
    opened: list[object] = []
    connect = database.connected

    def connected(hook: DbApiHook) -> AbstractContextManager[Any]:
        opened.append(hook)
        return connect(hook)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "connected", connected)
        patch.setattr(database, "connected", None)  # which statements with a connection of their own use
        assert "2 campaigns" in visitor.get("campaigns")
    assert len(opened) == 1
    warehouse.execute("DROP TABLE mail_campaigns")
    visitor.get("campaigns", status=503)
    assert "1 campaign" in Page(visitor.get("campaigns")).text


@pytest.mark.parametrize(
    ("kind", "indexes"),
    [
        ("sqlite", "SELECT tbl_name, name FROM sqlite_master WHERE type = 'index'"),
        ("psycopg3", "SELECT tablename, indexname FROM pg_indexes"),
        ("mysql", "SELECT table_name, index_name FROM information_schema.statistics"),
    ],
)
def test_campaigns_are_found_by_indexes(make_warehouse: Callable[..., Warehouse], kind: str, indexes: str) -> None:
    warehouse = make_warehouse(kind)
    load_stats(warehouse, [], FIRST_SENDING, ACCOUNT)
    load_tasks(warehouse, [])
    named = {
        (table, name.removeprefix(f"{table}_").removeprefix("by_").removesuffix("_idx"))
        for table, name in warehouse.query(indexes)
    }
    assert named >= {
        ("mail_campaign_stats", "mail_send_date"), ("mail_campaigns", "mail_name"), ("mail_campaigns", "mail_status"),
    }  # fmt: skip


def test_pages_from_either_end_are_the_same(visitor: Visitor, empty: Warehouse) -> None:
    """A page in the second half is read from the end; each campaign is on one page, in the order of the CSV."""
    tied = [stats(f"letter {n:03}", FIRST_SENDING + n // 40 * DAY, n % 7) for n in reversed(range(137))]
    for number, account in enumerate((ACCOUNT, "a_mail")):
        load_stats(empty, tied[number::2], FIRST_SENDING + 4 * DAY, account)
    for sort in campaigns.SORTS:
        pages = [names(visitor.get("campaigns", sort=sort, page=str(number))) for number in (1, 2, 3)]
        whole = visitor.get("campaigns", csv="campaigns", sort=sort).splitlines()[1:]
        assert [name for page in pages for name in page] == [line.split(",")[0] for line in whole]
        assert [len(page) for page in pages] == [50, 50, 37]
        assert sort != "sent_count" or pages[0][:2] == ["letter 000", "letter 001"]
    assert names(visitor.get("campaigns", page="4")) == []
    filtered = [
        names(visitor.get("campaigns", q="letter", sort="mail_name", page=str(number))) for number in (1, 2, 3, 4)
    ]
    assert [name for page in filtered for name in page] == [f"letter {number:03}" for number in range(137)]


def test_a_csv_has_all_campaigns(visitor: Visitor, empty: Warehouse) -> None:
    """More than a statement or a page takes at a time, each with its own subject."""
    tasks = [task(f"letter {number:05}", 2, FIRST_SENDING) for number in range(11_000)]
    load_tasks(empty, tasks)
    lines = visitor.get("campaigns?csv=campaigns&sort=mail_name").splitlines()
    assert len(lines) == 11_001
    assert lines[1].startswith("About letter 00000,letter 00000,")
    assert lines[-1].startswith("About letter 10999,letter 10999,")
