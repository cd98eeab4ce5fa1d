"""What runs again and again reads what it needs of a table that grows, not all of it: SQLite tells how it searches."""

from __future__ import annotations

import datetime
import re
import sqlite3
from typing import Any

import pytest

from airflow_provider_mail.plugin import overview, views
from airflow_provider_mail.plugin.reader import Reader, forget
from airflow_provider_mail.warehouse.database import StoredTable
from airflow_provider_mail.warehouse.event_counts import campaign_event_counts, event_counts
from airflow_provider_mail.warehouse.request import Coverage, MarkGone, RemovalRule
from airflow_provider_mail.warehouse.tables.events import DEAD_LETTERS, EVENTS
from airflow_provider_mail.warehouse.tables.imports import AUDIENCE_RUNS, IMPORTS
from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_SNAPSHOTS, CAMPAIGN_STATS, snapshot_rows
from airflow_provider_mail.webhook.inbox import Inbox, Push
from tests.support.memory_parts import AudienceKey, Cap, Memory
from tests.warehouse.conftest import Warehouse

NOON = datetime.datetime(2026, 3, 10, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)

WHOLE = re.compile(
    r"SCAN (\w+)\b(?! USING INDEX mail_(?:inbox_waiting|imports_by|audience_runs_by))|"
    r"SEARCH (\w+) USING .*\(mail_conn_id=\?(?: AND team_name=\?)?\)"
)
"""All rows of a table, or all of an account."""
FEW = {
    "a",
    "b",
    "s",
    "airflow_provider_mail_stage",
    "airflow_provider_mail_loads",
    "mail_inbox_counts",
    "2",
    "CONSTANT",
    "json_each",
    "pragma_table_info",
    "mails",
}
"""What one load stages, the counter of the inbox, and what a statement has limited before."""


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The plans of all statements, for the tables of which all rows are read."""
    found: list[str] = []

    class Cursor(sqlite3.Cursor):
        def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
            if re.match(r"\s*(SELECT (?!name|file|lower)|WITH|UPDATE|DELETE|INSERT)", sql):
                steps = super().execute(f"EXPLAIN QUERY PLAN {sql}", parameters).fetchall()
                names = {
                    name for *_, step in steps for match in WHOLE.finditer(step) for name in match.groups() if name
                }
                found.extend(f"{name}: {sql} {steps}" for name in names - FEW)
            return super().execute(sql, parameters)

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: connect(*args, **{"factory": Connection, **kwargs}))
    return found


def test_a_load_of_statistics(sqlite: Warehouse, plans: list[str]) -> None:
    def campaign(name: str, sent_at: datetime.datetime, observed_at: datetime.datetime) -> tuple[Any, ...]:
        return ("mail", "", name, sent_at, *[1] * 7, *[0.0] * 4, None, observed_at, None)

    for at, names in ((NOON, ("kept", "gone")), (NOON + DAY, ("kept",))):
        account = {"mail_conn_id": "mail", "team_name": ""}
        first = (NOON - 3 * DAY).date()
        covers = Coverage.days(CAMPAIGN_STATS["mail_send_date"], first, NOON.date(), **account, observed_at=at)
        rows = [campaign(name, NOON - DAY, at) for name in names]
        sqlite.load(CAMPAIGN_SNAPSHOTS, snapshot_rows(rows), "snapshots", now=at)
        loaded = sqlite.load(
            CAMPAIGN_STATS,
            rows,
            "stats",
            now=at,
            covers=covers,
            mark_gone=MarkGone(at, lambda covers=covers: [covers.whole], lambda names: ()),
            removal=RemovalRule(allow_empty=False, max_fraction=1, read_again=lambda: ()),
        )
    assert (loaded.gone, plans) == (1, [])


def test_the_comparisons_of_events(sqlite: Warehouse, plans: list[str]) -> None:
    sqlite.load(EVENTS, [], "mail_events")
    event_counts(sqlite.hook, "mail_events", mail_conn_id="mail", begin=NOON, end=NOON + DAY, counted_on="event")
    campaign_event_counts(sqlite.hook, "mail_events", ["Opened"], mail_conn_id="mail", mail_name="news", since=NOON)
    # The mails of these events are looked up among all that were delivered, which are read once: a further index would
    # cost each drain more than it saves.
    assert [plan.partition(":")[0] for plan in plans] == ["mail_events"]


def test_the_inbox(sqlite: Warehouse, plans: list[str]) -> None:
    inbox = Inbox(sqlite.hook)
    inbox.create()
    plans.clear()  # it counts what waits, once
    with inbox.connection() as connection:
        inbox.insert(connection, [Push(b"[]", NOON, "mail", True)])
        (push,) = inbox.take(connection, max_pushes=10, max_bytes=1000)
        inbox.finish(connection, [push.id], NOON)
        inbox.scan(connection, after=0, max_pushes=10)
        inbox.check_counter(connection)
    inbox.state(), inbox.waiting(), inbox.task_status_pushes()
    inbox.delete_drained(NOON + DAY)
    assert [plan for plan in plans if " LIMIT 10000" not in plan] == []


def test_the_memory(sqlite: Warehouse, plans: list[str]) -> None:
    memory = Memory(sqlite.hook, "mail_memory", AudienceKey(["a secret"]))
    memory.create()
    memory.check()
    groups = [[("a@example.com", "news")], [("b@example.com", "news")]]
    (first, ((_, mail),)), (second, _) = memory.reserve(groups, task="import", cap=(cap := Cap(2, 60)))
    assert memory.begin([second], [(first, "in doubt", [mail])])
    memory.schedule({"import": cap}, at=2_000_000_000)
    memory.mark_sent(["import"])
    assert (len(memory.of("a@example.com")), memory.release("import")) == (1, 2)
    memory.forget("a@example.com")
    assert plans == []


def test_the_page(sqlite: Warehouse, plans: list[str]) -> None:
    tables = {"imports": IMPORTS, "audience_runs": AUDIENCE_RUNS, "events": EVENTS, "dead_letters": DEAD_LETTERS}
    for name, table in tables.items():
        sqlite.load(table, [], f"mail_{name}")
    forget()
    reader = Reader(sqlite.hook, {name: f"mail_{name}" for name in tables})
    assert all(map(reader.has, tables))
    plans.clear()  # of the empty loads
    overview.findings(reader, ())
    views.imports(reader), views.audiences(reader)
    StoredTable(sqlite.hook, DEAD_LETTERS, "mail_dead_letters").page(["letter_id"], "letter_id", "", 10)
    assert plans == []
    views.events(reader)
    # Letters of any age are counted, every ten minutes at most; mostly there are few.
    assert [plan.partition(":")[0] for plan in plans] == ["mail_dead_letters"]
