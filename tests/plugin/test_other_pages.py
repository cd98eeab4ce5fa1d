"""The pages of lists, transactional mail, loads, imports, audiences, events and waits."""

from __future__ import annotations

import csv
import datetime
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from sqlalchemy.exc import OperationalError

from airflow_provider_mail.hold import RELEASE, release_hold, set_hold
from airflow_provider_mail.plugin import access, render
from airflow_provider_mail.plugin.reader import TABLES, Reader, forget
from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger
from airflow_provider_mail.triggers.senders import MailSenderTrigger
from airflow_provider_mail.version_compat import AIRFLOW_V_3_1_PLUS
from airflow_provider_mail.warehouse.tables.imports import IMPORTS
from airflow_provider_mail.warehouse.tables.stats import TRANSACTIONAL_STATS
from airflow_provider_mail.webhook.inbox import Inbox
from airflow_provider_mail.webhook.tokens import TokenOwner, Tokens
from tests.plugin.conftest import DOCUMENTATION, Page, Visitor, may_read_only
from tests.plugin.data import DAY, FIRST, fill, import_row, load_tasks, task
from tests.support.clock import StillClock
from tests.support.dags import RunResult
from tests.support.env import ROOT
from tests.warehouse.conftest import Warehouse
from tests.webhook.pushes import push, receive

pytestmark = pytest.mark.not_unit

PAGES = (
    "",
    "campaigns",
    "lists",
    "transactional",
    "loads",
    "imports",
    "audiences",
    "events",
    "waits",
    "more",
)
CAMPAIGN = "campaign?account=mail_default&name=week-6"


def text_of(visitor: Visitor, path: str, **query: str) -> str:
    """The text of a page, its parts separated by single spaces."""
    return Page(visitor.get(path, **query)).text


def run_of(run_dag: Callable[..., RunResult], dag_id: str, task_id: str) -> str:
    """The run of a DAG with one task."""
    with DAG(dag_id, schedule=None) as dag:
        EmptyOperator(task_id=task_id)
    # With a date: without one, `dag.test()` first clears the other runs of the DAG.
    return run_dag(dag, logical_date=datetime.datetime.now(datetime.UTC)).run_id


def assert_shows(visitor: Visitor, path: str, *texts: str) -> None:
    shown = text_of(visitor, path)
    assert [text for text in texts if text not in shown] == []


def test_without_tables_they_lead_to_what_makes_them(visitor: Visitor, empty: Warehouse) -> None:
    for path in PAGES:
        links = [urlsplit(link) for link in Page(visitor.get(path)).links() if link.startswith(DOCUMENTATION)]
        assert links, path
        for link in links:
            text = (ROOT / "docs" / link.path.strip("/").replace(".html", ".md")).read_text()
            headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            assert link.fragment in {"", *(re.sub(r"\W+", "-", heading.lower()) for heading in headings)}


def test_lists(visitor: Visitor, filled: Warehouse) -> None:
    # Of twelve contacts, one has no date of creation, and four were created in March.
    assert_shows(visitor, "lists", "Newsletter 12 4 2026-03 mail_default Shop <b> 6 2 2026-03 mail_default")
    drawn = re.findall(r'<polyline[^>]* points="([^"]+)"', visitor.get("lists"))
    assert [len(points.split()) for points in drawn] == [3, 3], "three months"
    filled.execute("DELETE FROM mail_contacts WHERE id = '1'")
    assert "Newsletter 12 4" in text_of(visitor, "lists"), "counted once in ten minutes"
    forget()
    assert_shows(visitor, "lists", "Newsletter 11 4 2026-03")
    filled.execute("UPDATE mail_contacts SET list_name = 'Zebra' WHERE list_name = 'Newsletter'")
    forget()
    for path in ("", "lists"):
        assert_shows(visitor, path, "Zebra 11 4 2026-03 mail_default Shop <b> 6 2 2026-03")


def test_transactional_mail_by_day(visitor: Visitor, filled: Warehouse) -> None:
    text = visitor.get("transactional")
    assert "2026-03-10 108 37.0 % 3.7 % 10.0 % 2 1 0" in Page(text).text
    assert "2026-03-04 missing" in Page(text).text
    assert text.count('class="unknown"') == 1
    assert text_of(visitor, "transactional", account="no_such") == Page(text).text
    names = ", ".join(TRANSACTIONAL_STATS.names)
    for of_other in (names.replace("team_name", "'Red'"), names.replace("mail_conn_id", "'z_mail'")):
        filled.execute(
            f"INSERT INTO mail_transactional_stats ({names}) SELECT {of_other} FROM mail_transactional_stats"
        )
    page = Page(visitor.get("transactional"))
    assert "2026-03-10 216 37.0 % 3.7 % 10.0 % 4 2 0" in page.text, "of two teams, and of one account"
    assert "transactional?account=z_mail" in page.links()


def test_loads_and_missing_days(visitor: Visitor, filled: Warehouse) -> None:
    assert_shows(
        visitor,
        "loads",
        "Results of transactional mail mail_default old 2026-03-11 08:00 2026-03-13",
        "Missing days Day Numbers Account 2026-03-04 Results of transactional mail mail_default",
        "Campaigns and their schedule mail_default old 2026-03-31 08:00 2026-04-02 08:00",
        "Contacts List: Newsletter mail_default old 2026-03-11 08:00 2026-03-13 08:00",
    )


@pytest.mark.parametrize("name", ["2026-03-01", "2026-02-30", "\u0662\u0660\u0662\u0666-03-01"])
def test_a_list_may_be_named_as_a_day(visitor: Visitor, filled: Warehouse, name: str) -> None:
    filled.execute(f"UPDATE mail_loads SET part = '{name}' WHERE part = 'Newsletter'")
    assert f"Contacts List: {name} mail_default old 2026-03-11 08:00" in text_of(visitor, "loads")
    assert "Contacts: 1 day" not in text_of(visitor, "")


def test_loads_lead_to_the_runs_that_wrote_them(
    visitor: Visitor, filled: Warehouse, run_dag: Callable[..., RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Airflow still has the run, and the visitor may read its DAG."""
    run_id = run_of(run_dag, "statistics", "load")
    for run, where in ((run_id, "table_name = 'mail_contacts'"), ("manual__gone", "mail_conn_id = 'mail_shop'")):
        by_run = f"dag_id = 'statistics', task_id = 'load', run_id = '{run}', map_index = -1"
        filled.execute(f"UPDATE mail_loads SET {by_run} WHERE {where}")
    page = Page(visitor.get("loads"))
    assert page.text.count("load of statistics") == 3
    link = f"/team/airflow/dags/statistics/runs/{quote(run_id, safe='')}/tasks/load"
    assert [each for each in page.links() if "/dags/" in each] == [link] * 2
    filled.execute("UPDATE mail_loads SET map_index = NULL")
    assert visitor.get("loads").count(f'href="{link}"') == 2
    may_read_only(monkeypatch, "another")
    assert "/dags/" not in visitor.get("loads")


def test_every_table_is_a_csv(visitor: Visitor, filled: Warehouse) -> None:
    """Its first line has the names of the columns that the page shows, and each other line as many values."""
    for path in (*PAGES, CAMPAIGN, "compare?c=mail_default//week-6"):
        page = Page(visitor.get(path))
        links = [link for link in page.links() if "csv=" in link]
        assert links or path in ("waits", "more"), path
        for link in links:
            heads, *lines = csv.reader(visitor.get(urljoin(path, link)).splitlines())
            assert [head for head in heads if head not in page.text] == [], link
            assert {len(line) for line in lines} == {len(heads)}, link


def test_tables_beside_others_of_their_names(visitor: Visitor, make_warehouse: Callable[..., Warehouse]) -> None:
    """What belongs to the statistics of campaigns is in the schema in which the database finds these."""
    warehouse = make_warehouse("psycopg3", options="-c search_path=other,public")
    fill(warehouse)

    def seen() -> tuple[str, str]:
        forget()
        return text_of(visitor, "loads"), visitor.get(CAMPAIGN)

    before = seen()
    copies = ("mail_loads", "mail_campaign_stats_snapshots")
    warehouse.execute("CREATE SCHEMA other", *(f"CREATE TABLE other.{name} (LIKE public.{name})" for name in copies))
    assert seen() == before


def test_imports_and_why_rows_were_rejected(visitor: Visitor, filled: Warehouse) -> None:
    assert_shows(
        visitor,
        "imports",
        "crm/contacts/<u>2</u> failed 1,234 1,232 2 0.2 % 2026-03-01 08:00 Shop <b> mail_default",
        "files of crm Run: manual__3 success only checked 1,234 1,234 0 0.0 % 2026-03-01 08:00 mail_default",
        "crm/contacts/<u>2</u> email is <i>no</i> address 2 2026-03-01 08:00",
    )
    filled.load(IMPORTS, [import_row(number, "success", FIRST + number * DAY) for number in range(60)], "mail_imports")
    lines = visitor.get("imports?csv=imports").splitlines()
    assert (len(lines), lines[1][:9]) == (51, "t of d,59"), "the latest 50"
    filled.execute("DELETE FROM mail_imports")
    assert_shows(visitor, "imports", "Nobody was imported yet.")


def test_audiences_and_what_their_runs_changed(
    visitor: Visitor, filled: Warehouse, run_dag: Callable[..., RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size is that of the last successful run; a run leads to its task instance."""
    run_id = run_of(run_dag, "crm", "people")
    id_of_run = f"import_id = 'crm/people/{run_id}'"
    filled.execute(f"UPDATE mail_audience_runs SET {id_of_run} WHERE import_id = 'crm/people/manual__1'")
    dash = "\N{EN DASH}"
    assert_shows(
        visitor,
        "audiences",
        "people of crm 1,190 2026-03-02 08:00 newsletter 1 newsletter left <b> mail_default",
        "load of shop 7 2026-02-28 08:00 shop mail_default",
        "people of crm Run: manual__2 Reason: 900 leave "
        f"stopped {dash} 0 3 900 5 4 2026-03-03 08:00 people of crm Run: {run_id} "
        "success 1,190 10 3 20 5 4 2026-03-02 08:00",
        "Reason: there is <i>no</i> state yet success everybody 1,200 1,200 3 0 5 4 2026-03-01 08:00 shop/load/<u>1",
        "The latest 4 imports of audiences",
    )
    (link,) = (link for link in Page(visitor.get("audiences")).links() if "/dags/" in link)
    assert link == f"/team/airflow/dags/crm/runs/{quote(run_id, safe='')}/tasks/people"
    assert visitor.get("audiences?csv=audience-runs").splitlines()[1] == (
        "people of crm,manual__2,900 leave,stopped,,0,3,900,5,4,2026-03-03T08:00:00+00:00"
    )

    filled.execute("DELETE FROM mail_audience_runs WHERE state = 'success'")
    assert "Last success" not in text_of(visitor, "audiences")
    filled.execute("DELETE FROM mail_audience_runs")
    assert_shows(visitor, "audiences", "There is no audience yet.")
    monkeypatch.setenv("AIRFLOW__MAIL__PAGE_AUDIENCE_RUNS_TABLE", "newsletter_runs")
    assert_shows(visitor, "audiences", "Audiences How many people a campaign is for")


def test_events_and_their_differences(visitor: Visitor, filled: Warehouse) -> None:
    differences = (
        "2026-03-01 sent differs 5 105 100 100 mail_default",
        "2026-03-01 open agrees 0 9 8 10 mail_default",
    )
    assert_shows(visitor, "events", "Delivered 6", "Other 3", "no EventCode 1", *differences)
    assert "Bounced" not in text_of(visitor, "events"), "it was received long ago"
    filled.execute(
        "DROP TABLE mail_event_differences", "UPDATE mail_events SET mail_conn_id = 'z_mail' WHERE event_id LIKE '%01'"
    )
    forget()
    text = text_of(visitor, "events")
    assert ("agrees" in text, text.count("z_mail")) == (False, 1)


def test_the_inbox(visitor: Visitor, filled: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Not counted yet" not in text_of(visitor, "events")
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "warehouse")
    with monkeypatch.context() as patch:
        patch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "ada@planted.example")
        assert ("ada@" in text_of(visitor, "events"), "***@" in text_of(visitor, "events")) == (False, True)
    assert_shows(visitor, "events", "Not counted yet not known For your engineers: there is no table")
    inbox = Inbox(filled.hook)
    inbox.create()
    Tokens(inbox, TokenOwner("mail_default", "", "")).add("x")
    assert_shows(visitor, "events", "0 messages of the email service.")
    receive(inbox, [push(at=datetime.datetime.now(datetime.UTC))])
    assert "more than a day ago" not in text_of(visitor, "events")
    receive(inbox, [push()])
    with inbox.connected() as cursor:
        cursor.execute("UPDATE mail_inbox SET received_at = '2026-03-01 12:00:00+00:00'")
        cursor.connection.commit()
    waiting = "2 messages of the email service. The oldest arrived at 2026-03-01 12:00"
    assert_shows(visitor, "events", waiting, "more than a day ago", "Delivered 6")


def test_pages_show_no_personal_data_and_write_nothing(visitor: Visitor, filled: Warehouse) -> None:
    file = Path(filled.hook.get_connection("warehouse").host or "")
    before = file.read_bytes()
    for path in (*PAGES, CAMPAIGN):
        text = visitor.get(path)
        assert [word for word in ("planted", "Planted", "203.0.113.77") if word in text] == [], path
    assert file.read_bytes() == before


MARKS = "\u202e\u2066\u200f\u200b\u00ad\ufeff\u3164\x07\u2028\U000e0041"
JOINED = "\u06a9\u062a\u0627\u0628\u200c\u0647\u0627 \U0001f468\u200d\U0001f4bb"


def test_no_invisible_character_is_shown(visitor: Visitor, filled: Warehouse) -> None:
    """Every text of every table ends with marks that turn or hide what is beside them; joiners of letters stay."""
    names = Reader.of_page().names
    for table, column in [(name, column) for name, declared in TABLES.items() for column in declared.columns]:
        if column.type.name == "text":
            new = f"{column.name} || '{JOINED}{MARKS}'"
        elif column.type.name == "json":
            new = f"replace({column.name}, 'Shop', 'Shop{JOINED}{MARKS[:4]}')"
        else:
            continue
        filled.execute(f"UPDATE {names[table]} SET {column.name} = {new} WHERE {column.name} <> ''")
    forget()
    campaigns = Page(visitor.get("campaigns")).links()
    details = next(link for link in campaigns if link.startswith("campaign?"))
    everywhere = [path for path in PAGES if path not in ("transactional", "waits", "more")]
    for path in [*everywhere, details, f"campaigns?q={quote(JOINED + MARKS)}"]:
        page = Page(visitor.get(path))
        # The values of forms are sent back as they are.
        attributes = [(name, str(value)) for _, all_of_one in page.elements for name, value in all_of_one.items()]
        shown = [*page.words, *(value for name, value in attributes if name != "value")]
        assert not [(mark, text) for mark in MARKS for text in shown if mark in text], path
        assert any(JOINED in text and "\u2039U+202E\u203a" in text for text in shown), path
    (box,) = [values for tag, values in page.elements if tag == "input" and values.get("name") == "q"]
    assert box["value"] == JOINED + MARKS
    assert any(link.startswith("campaign?") for link in page.links())


def test_joiners_are_shown_between_letters_of_ascii() -> None:
    assert [render.visible(text) for text in ("a\u200db", JOINED, "\u06a9\u200d")] == [
        "a\u2039U+200D\u203ab", JOINED, "\u06a9\u2039U+200D\u203a",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["psycopg3", "duckdb", "mysql"])
def test_pages_are_the_same_in_every_database(
    visitor: Visitor, filled: Warehouse, make_warehouse: Callable[..., Warehouse], kind: str
) -> None:
    pages = (
        *PAGES, "campaigns?q=WEEK-&sort=open_rate", "campaigns?sort=mail_name&account=mail_shop", "campaigns?q=_",
        CAMPAIGN, "campaigns?list=Shop&state=failed", "campaigns?q=about&state=sent&from=2026-03-01&to=2026-03-02",
        "compare?c=mail_default//week-6&c=mail_default//week-2", "campaign?account=mail_default&name=planned",
    )  # fmt: skip

    def texts() -> dict[str, str]:
        return {path: re.sub(r"\d\d\d\d-\d\d-\d\d \d\d:\d\d", "TIME", text_of(visitor, path)) for path in pages}

    expected = texts()
    forget()
    fill(make_warehouse(kind))
    assert texts() == expected


def test_waits_of_dags_that_one_may_read(
    visitor: Visitor, empty: Warehouse, run_dag: Callable[..., RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks of three DAGs, one of which the user may not read, and a task that waits for something else."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import Trigger
    from airflow.utils.session import create_session
    from sqlalchemy import update

    end = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC).timestamp()
    campaign = MailCampaignTrigger(mail_conn_id="mail_default", mail_name="<b>spring</b>", end_time=end)
    sender = MailSenderTrigger(mail_conn_id="mail_default", sender_email="sender@planted.example")
    runs = {}
    with create_session() as session:
        for dag_id, trigger in (("read", campaign), ("unreadable", campaign), ("read_else", None), ("senders", sender)):
            runs[dag_id] = run_of(run_dag, dag_id, "waits")
            row = Trigger.from_object(trigger or campaign)
            if trigger is None:
                row.classpath = "airflow_provider.mail.MailCampaignTrigger"
            session.add(row)
            session.flush()
            is_it = (TaskInstance.dag_id == dag_id) & (TaskInstance.run_id == runs[dag_id])
            state = {"trigger_id": row.id, "state": "deferred"}
            session.execute(update(TaskInstance).where(is_it).values(map_index=1 if dag_id == "read" else -1, **state))
    text = text_of(visitor, "waits")
    assert "Each of these steps continues without help as soon as the email service" in text
    assert f"waits of unreadable Run: {runs['unreadable']} the campaign has been sent <b>spring</b>" in text
    assert f"waits of senders Run: {runs['senders']} the sender's address is confirmed" in text
    assert "read_else" not in text
    tasks = [task("<b>spring</b>", 1, FIRST, subject="Spring <i>sale</i>"), task("<b>spring</b>", 4, FIRST, guid="2")]
    load_tasks(empty, tasks[:1])
    forget()
    assert "has been sent Spring <i>sale</i> (<b>spring</b>)" in text_of(visitor, "waits")
    load_tasks(empty, tasks)
    assert "has been sent <b>spring</b>" in text_of(visitor, "waits"), "of two campaigns, it may be either"
    empty.execute("DELETE FROM mail_campaigns WHERE guid = '2'", "UPDATE mail_campaigns SET mail_conn_id = 'mail_shop'")
    assert "has been sent <b>spring</b>" in text_of(visitor, "waits"), "that of another account is none of it"
    may_read_only(monkeypatch, "read")
    page = visitor.get("waits")
    assert f"waits [1] of read Run: {runs['read']} the campaign has been sent <b>spring</b>" in Page(page).text
    assert "2026-12-01 00:00" in page
    assert re.search(r'href="/team/airflow/dags/read/runs/[^/]+/tasks/waits/mapped/1"', page)
    assert not [word for word in ("unreadable", "senders", "planted") if word in page]
    assert "planted" not in text
    # What cannot be read hides no step: a time beyond the calendar, and arguments that another key has encrypted.
    for arguments in (Trigger.encrypt_kwargs({"mail_name": "spring", "end_time": 1e20}), "another key"):
        with create_session() as session:
            session.execute(update(Trigger).values(encrypted_kwargs=arguments))
        page = visitor.get("waits")
        assert f"waits [1] of read Run: {runs['read']} the campaign has been sent" in Page(page).text
        assert "state failed" not in page, "a step without an end is never late"


def test_many_waits_of_others_hide_none(
    visitor: Visitor, empty: Warehouse, run_dag: Callable[..., RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a task count that has ended, whose trigger is still there."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import Trigger
    from airflow.utils.session import create_session
    from sqlalchemy import update

    monkeypatch.setattr(access, "WAITS_LIMIT", 2)
    campaign = MailCampaignTrigger(mail_conn_id="mail_default", mail_name="spring", end_time=1.0)

    def defer(dag_id: str, state: str) -> None:
        run_id = run_of(run_dag, dag_id, "waits")
        with create_session() as session:
            row = Trigger.from_object(campaign)
            session.add(row)
            session.flush()
            is_it = (TaskInstance.dag_id == dag_id) & (TaskInstance.run_id == run_id)
            session.execute(update(TaskInstance).where(is_it).values(trigger_id=row.id, state=state))

    for _ in range(3):
        defer("others", "deferred")
    for state in ("deferred", "success", "deferred", "failed", "deferred"):
        defer("mine", state)
    may_read_only(monkeypatch, "mine")
    text = text_of(visitor, "waits")
    assert text.count("waits of mine Run: ") == 2
    assert "of 3" in text
    assert "3 automatic steps wait" in text_of(visitor, "")
    may_read_only(monkeypatch, "none")
    assert "Nothing waits" in text_of(visitor, "waits")


def test_tables_that_were_dropped_a_minute_ago(visitor: Visitor, filled: Warehouse) -> None:
    """Known from the page before: after an error, they are looked for again."""
    for path in (*PAGES, CAMPAIGN):
        visitor.get(path)
    for (table,) in filled.query("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'sqlite_sequence'"):
        filled.execute(f"DROP TABLE {table}")
    visitor.get("", status=503)
    for path in PAGES:
        assert "These parts have no numbers yet." in visitor.get(path) or path in ("", "waits")
    visitor.get(CAMPAIGN, status=404)


def test_every_page_says_that_mail_is_held_and_by_whom(
    visitor: Visitor, filled: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    set_hold(set_by="ada on laptop", reason="wrong price")
    for path in (*PAGES, CAMPAIGN):
        assert_shows(
            visitor,
            path,
            "All mass mail is stopped by ada on laptop since 2",
            "wrong price",
            RELEASE,
            "Details",
        )
    release_hold()
    assert "mass mail is stopped" not in text_of(visitor, "")

    def unreadable() -> None:
        raise OperationalError("", {}, Exception())

    monkeypatch.setattr(render, "stored_holds", unreadable)
    assert '<p class="hold" role="alert">It is not known whether mass mail is stopped' in visitor.get("")


def test_parts_without_data_are_on_one_page(visitor: Visitor, empty: Warehouse, still_clock: StillClock) -> None:
    """They are not in the menu, until ten seconds after there are data."""

    def menu(text: str) -> list[str]:
        return re.findall(r">([\w ]+)</a>", text.partition("<nav")[2].partition("</nav>")[0])

    assert menu(visitor.get("")) == ["Overview", "Waiting", "More"]
    more = text_of(visitor, "more")
    assert "Lists How many people are on each list" in more
    fill(empty)
    still_clock.move(10)
    whole = "Overview,Campaigns,Lists,Transactional mail,Data age,Imports,Audiences,Activity,Waiting"
    assert menu(visitor.get("")) == whole.split(",")
    assert "All parts have numbers." in text_of(visitor, "more")


@pytest.mark.skipif(not AIRFLOW_V_3_1_PLUS, reason="Airflow 3.0 asks no person")
@pytest.mark.parametrize("state", ["deferred", "awaiting_input"])
def test_a_decision_has_its_button(
    visitor: Visitor, empty: Warehouse, run_dag: Callable[..., RunResult], monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """Of a run that has tasks of mail; the page leads to the task in Airflow, where a person decides.

    :param state: that of the task up to Airflow 3.2, and from 3.3.
    """
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select, update

    def ask(dag_id: str, *, operator: str = "MailCreateCampaignOperator", state: str = state) -> str:
        with DAG(dag_id, schedule=None) as dag:
            EmptyOperator(task_id="approve"), EmptyOperator(task_id="send")
        run_id = run_dag(dag, logical_date=datetime.datetime.now(datetime.UTC)).run_id
        of_run = (TaskInstance.dag_id == dag_id) & (TaskInstance.run_id == run_id)
        approves, sends = (of_run & (TaskInstance.task_id == task_id) for task_id in ("approve", "send"))
        with create_session() as session:
            session.execute(update(TaskInstance).where(approves).values(state=state))
            session.execute(update(TaskInstance).where(sends).values(operator=operator))
            asked = session.scalars(select(TaskInstance.id).where(approves)).one()
            session.add(HITLDetail(ti_id=asked, options=["Approve", "Reject"], subject="Send <b>it</b>?", params={}))
        return run_id

    unreadable, run_id = ask("unreadable"), ask("newsletter")
    # Neither a run without mail, of this DAG or another one, nor a task that has ended without a response.
    (
        ask("newsletter", operator="EmptyOperator"),
        ask("other", operator="EmptyOperator"),
        ask("newsletter", state="failed"),
    )

    def buttons(path: str = "") -> list[str]:
        return [link for link in Page(visitor.get(path)).links() if link.endswith("/required_actions")]

    address = "/team/airflow/dags/{}/runs/{}/tasks/approve/required_actions"
    both = [
        address.format("unreadable", quote(unreadable, safe="")),
        address.format("newsletter", quote(run_id, safe="")),
    ]
    for path in ("", "waits"):
        assert "decide Send <b>it</b>? asked by the step approve of newsletter, since 20" in text_of(visitor, path)
        assert buttons(path) == both
    with monkeypatch.context() as patch:
        may_read_only(patch, "newsletter")
        patch.setattr(access, "WAITS_LIMIT", 1)
        assert buttons() == both[1:]
    with create_session() as session:
        session.execute(update(HITLDetail).values(responded_at=datetime.datetime.now(datetime.UTC)))
    assert buttons() == []
