"""The source for dlt: the tables of the operators in dlt's destinations, and what its state says has been read."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dlt
import duckdb
import pytest
from dlt.pipeline.exceptions import PipelineStepFailed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_mail import dlt_source
from airflow_provider_mail.api import (
    AddTemplate,
    ClientConfig,
    DeleteCampaign,
    DeleteList,
    DeleteSender,
    DeleteTemplate,
    MailClient,
    MailError,
)
from airflow_provider_mail.dlt_source import mail_source
from mail_emulator import Emulator
from tests.support.changes import around_requests
from tests.tasks.conftest import Run, SqlDatabase
from tests.tasks.dlt_loads import (  # noqa: F401 - some are fixtures
    IGNORED,
    START,
    TABLES,
    TODAY,
    DaysToRead,
    Duck,
    by_operators,
    dlt_client,
    dlt_duck,
    dlt_settings,
    fill,
    noon,
    rows_of,
    span,
)
from tests.tasks.loading import CAMPAIGN_STATS as STATS
from tests.tasks.loading import LIST, LISTS, TRANSACTIONAL_STATS, delete, windows
from tests.tasks.test_example_dags import example

pytestmark = pytest.mark.filterwarnings(*IGNORED)
DAY = datetime.timedelta(days=1)
TEMPLATES = "campaign/mail/template/get"
COUNTS, SNAPSHOTS, DAYS = "mail_campaign_stats", "mail_campaign_stats_snapshots", "mail_transactional_stats"


class Account:
    """An account of the service, and the client that reads it into the same warehouse as the others."""

    def __init__(self, name: str, duck: Duck, stack: ExitStack) -> None:
        self.name, self._duck = name, duck
        self.service = stack.enter_context(Emulator())
        config = ClientConfig(base_url=self.service.base_url, api_key=self.service.api_key)
        self.client = stack.enter_context(MailClient(config))

    def source(self, *resources: str, **options: Any) -> Any:
        source = mail_source(self.client, **{"start_day": START, "mail_conn_id": self.name, **options})
        return source.with_resources(*resources)

    def load(self, *resources: str, **options: Any) -> None:
        self._duck.pipeline.run(self.source(*resources, **options))

    def asked(self, operation: str = STATS) -> list[tuple[str, str]]:
        """The windows that were requested since the last call."""
        found = windows(self.service, operation)
        self.service.journal.clear()
        return found


@pytest.fixture
def accounts(duck: Duck) -> Iterator[tuple[Account, Account]]:
    with ExitStack() as stack:
        yield Account("first", duck, stack), Account("second", duck, stack)


@pytest.fixture
def account(accounts: tuple[Account, Account]) -> Account:
    return accounts[0]


def campaigns(duck: Duck, table: str = COUNTS) -> dict[str, int]:
    """The number of campaigns of each account."""
    return dict(duck.query(f"SELECT mail_conn_id, count(DISTINCT mail_name) FROM {table} GROUP BY ALL"))


@pytest.mark.parametrize("arrow", [False, True])
def test_the_tables_equal_those_of_the_operators(
    emulator: Emulator, client: MailClient, make_database: Callable[[str, str], SqlDatabase], tmp_path: Path,
    arrow: bool,
) -> None:  # fmt: skip
    fill(emulator)
    warehouse = make_database("postgres", "warehouse")
    connection = warehouse.hook.get_connection("warehouse")
    host = quote(connection.host, safe="")
    to: Any = dlt.destinations.postgres(f"postgresql://{connection.login}:unused@{host}/{connection.schema}")
    by_operators()
    pipeline = dlt.pipeline("mail", pipelines_dir=str(tmp_path), destination=to, dataset_name="by_dlt")
    options: dict[str, Any] = {"contact_lists": "all", "snapshots": True, "arrow": arrow}
    pipeline.run(mail_source(client, start_day=START, end_day=TODAY, **options).with_resources(*TABLES))
    for name, table in TABLES.items():
        assert rows_of(warehouse.query, f"by_dlt.{name}", table) == rows_of(warehouse.query, name, table) != []


def test_the_example(run: Run, emulator: Emulator, duck: Duck, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(emulator, contacts=10)
    monkeypatch.setenv("DESTINATION__DUCKDB__CREDENTIALS", duck.file)
    assert run(example("mail_dlt")).result.state == "success"
    # Of the last 30 days.
    assert duck.query(f"SELECT count(*) FROM {DAYS}") == [(31,)]
    assert duck.query(f"SELECT count(*) FROM {COUNTS}") == [(40,)]


@pytest.mark.parametrize(("destination", "form"), [("snowflake", "parquet"), ("bigquery", "jsonl")])
def test_the_example_up_to_the_load_into_a_cloud(
    run: Run, emulator: Emulator, client: MailClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    destination: str, form: str,
) -> None:  # fmt: skip
    """The variable chooses it, and without its credentials nothing is read; dlt makes the files that it would load."""
    fill(emulator, contacts=10)
    monkeypatch.setenv("AIRFLOW_VAR_MAIL_DLT_DESTINATION", destination)
    dag = example("mail_dlt")
    dag.get_task("load").retries = 0
    done = run(dag)
    assert done.result.state == "failed"
    assert f"DESTINATION__{destination.upper()}__CREDENTIALS" in done.log
    assert emulator.journal.entries() == []

    pipeline = dlt.pipeline("mail", pipelines_dir=str(tmp_path), destination=destination, dataset_name="mail_service")
    pipeline.extract(mail_source(client, start_day=START, snapshots=True, arrow=destination != "bigquery"))
    pipeline.normalize()
    (package,) = pipeline.list_normalized_load_packages()
    jobs = [job.job_file_info for job in pipeline.get_load_package_info(package).jobs["new_jobs"]]
    assert {job.table_name for job in jobs} >= {COUNTS, SNAPSHOTS, DAYS, "mail_campaigns"}
    assert {job.file_format for job in jobs if job.table_name.startswith("mail_")} == {form}


def test_an_incomplete_response_loads_nothing(duck: Duck, account: Account) -> None:
    account.service.add_campaigns(30, first_day=START)
    account.service.faults.add("short_stats", STATS, count=None)
    with pytest.raises(PipelineStepFailed) as failure:
        account.load(COUNTS)
    cause: Any = failure.value.__cause__
    assert isinstance(cause.__cause__, MailError)
    assert "sources" not in duck.pipeline.state
    with pytest.raises(PipelineStepFailed, match="there is no list 'unknown'"):
        account.load("mail_contacts", contact_lists=["unknown"])


def test_a_dropped_table_is_named_and_loaded_again_as_the_error_says(duck: Duck, account: Account) -> None:
    account.service.add_campaigns(5, first_day=START)
    tables = (COUNTS, SNAPSHOTS, "mail_templates")
    account.load(*tables, snapshots=True)
    before = campaigns(duck)
    for table in tables:
        with closing(duckdb.connect(duck.file)) as connection:
            connection.execute(f"DROP TABLE mail_service.{table}")
        account.asked()
        with pytest.raises(PipelineStepFailed, match=rf"{table}: .*refresh=\"drop_resources\""):
            account.load(*tables, snapshots=True)
        assert account.asked() == []
        duck.pipeline.run(account.source(*tables, snapshots=True), refresh="drop_resources")
        account.load(*tables, snapshots=True)
        assert campaigns(duck) == campaigns(duck, SNAPSHOTS) == before
    with closing(duckdb.connect(duck.file)) as connection:
        connection.execute(f"ALTER TABLE mail_service.{COUNTS} DROP COLUMN gone_at")
        with pytest.raises(PipelineStepFailed, match=rf"{COUNTS}.gone_at: an earlier run has loaded this"):
            account.load(*tables, snapshots=True)
        connection.execute(f"ALTER TABLE mail_service.{COUNTS} ADD COLUMN gone_at TIMESTAMPTZ")
    account.load(*tables, snapshots=True)
    assert campaigns(duck) == before


@pytest.mark.parametrize(("arguments", "words"), [
    ({"end_day": START - DAY}, "end_day"),
    ({"lookback_days": -1}, "lookback_days"),
    ({"contact_lists": "newsletter"}, "contact_lists"),
    ({"arrow": True}, r"arrow: needs pyarrow: pip .*\[parquet\]"),
])  # fmt: skip
def test_wrong_arguments(
    client: MailClient, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(dlt_source, "find_spec", lambda name: None)
    with pytest.raises(MailError, match=words):
        mail_source(client, **{"start_day": START, **arguments})


def test_a_later_run_begins_before_the_last_day(duck: Duck, account: Account) -> None:
    account.service.add_campaigns(41, first_day=START)
    account.service.clock.freeze()  # opens arrive with time
    account.load(COUNTS, lookback_days=3)
    stats = f"SELECT mail_name, open_count FROM {COUNTS} ORDER BY 1"
    before = duck.query(stats)
    account.asked()
    account.service.add_campaign("spring", state="done")
    account.service.set_campaign_stats("spring", openCount=7)
    account.load(COUNTS, lookback_days=3)
    assert set(account.asked()) == {(f"{TODAY - 3 * DAY}", f"{TODAY}")}
    assert duck.query(stats) == [*before, ("spring", 7)]
    # A backfill neither uses nor changes the state.
    state = duck.pipeline.state["sources"]
    account.load(COUNTS, end_day=START + DAY)
    assert account.asked() == [(f"{START}", f"{START + DAY}")]
    assert duck.pipeline.state["sources"] == state


def test_each_account_and_each_table_has_its_own_days(duck: Duck, accounts: tuple[Account, Account]) -> None:
    first, second = accounts
    first.service.add_campaigns(41, first_day=START)
    second.service.add_campaigns(9, first_day=START)
    first.load(SNAPSHOTS, snapshots=True)
    first.load(COUNTS)
    assert campaigns(duck) == campaigns(duck, SNAPSHOTS) == {"first": 41}
    duck.pipeline.run(first.source(COUNTS), write_disposition="replace")
    assert campaigns(duck) == {"first": 41}

    # The second one fails, and then has all of its days.
    second.service.faults.add("code_before", STATS, count=None)
    with pytest.raises(PipelineStepFailed):
        duck.pipeline.run([first.source(COUNTS), second.source(COUNTS)])
    second.service.faults.clear()
    duck.pipeline.run([first.source(COUNTS), second.source(COUNTS)])
    assert campaigns(duck) == {"first": 41, "second": 9}
    assert second.asked()[0][0] == f"{START}"
    assert first.asked()[-1][0] == f"{TODAY - 7 * DAY}"


@pytest.mark.parametrize(("table", "operation", "fault", "params", "days"), [
    (COUNTS, STATS, "empty_page", {"keep": 0, "total": 0}, 31),
    (DAYS, TRANSACTIONAL_STATS, "short_stats", {"missing": 10}, 10),
])  # fmt: skip
def test_an_empty_window_is_read_again(
    duck: Duck, account: Account, table: str, operation: str, fault: str, params: dict[str, Any], days: int
) -> None:
    account.service.add_campaigns(41, first_day=START)
    # In the first window, however often it or its end is requested.
    account.service.faults.add(fault, operation, count=None, where={"endDate": f"{START + 30 * DAY}"}, **params)
    for missing in (days, 0):
        account.load(table)
        assert duck.query(f"SELECT count(*) FROM {table}") == [((TODAY - START).days + 1 - missing,)]
        account.service.faults.clear()
    account.asked(operation)
    account.load(table)
    assert account.asked(operation) == [(f"{TODAY - 7 * DAY}", f"{TODAY}")]


@pytest.mark.parametrize(
    ("fault", "params", "arrow"), [("empty_page", {"keep": 0, "total": 0}, True), ("wrong_total", {"by": None}, False)]
)
def test_one_short_response_deletes_nothing(
    duck: Duck, accounts: tuple[Account, Account], fault: str, params: dict[str, Any], arrow: bool
) -> None:
    account, _ = accounts

    def load(one: Account, **options: Any) -> None:
        one.load("mail_contacts", "mail_lists", "mail_templates", contact_lists="all", arrow=arrow, **options)

    for one in accounts:
        one.service.add_list("newsletter", count=12)
        for number in range(11):
            one.service.add_list(f"list {number}", count=1)
            one.service.add_template(f"template {number}", subject="x", content="x")
        one.service.add_template("welcome", subject="Hello", content="<p>Hello</p>")
        load(one)

    def counts() -> list[int]:
        own = "SELECT count(*) FROM {} WHERE mail_conn_id = 'first' AND {}"
        tables = {"mail_contacts": "list_name = 'newsletter'", "mail_lists": "true", "mail_templates": "true"}
        return [duck.query(own.format(name, condition))[0][0] for name, condition in tables.items()]

    once = 1 if fault == "empty_page" else None
    for operation, where in {LIST: {"listName": "newsletter"}, LISTS: None, TEMPLATES: None}.items():
        account.service.faults.add(fault, operation, count=once, where=where, **params)
    with nullcontext() if once else pytest.raises(PipelineStepFailed, match="totalRecords"):
        load(account)
    assert counts() == [12, 12, 12]
    # What two readings say is believed, and concerns no other account.
    account.service.faults.clear()
    delete(account.service, *account.service.contacts("newsletter")[1:])
    account.client.send(DeleteTemplate(template_name="welcome"))
    with pytest.raises(PipelineStepFailed, match=r"newsletter: 12 rows would become 1\..*max_removed_fraction"):
        load(account)
    load(account, max_removed_fraction=1)
    assert counts() == [1, 12, 11]
    assert duck.query("SELECT count(*) FROM mail_contacts WHERE mail_conn_id = 'second'") == [(23,)]


def test_senders_and_all_templates_that_are_gone_are_deleted(duck: Duck, account: Account) -> None:
    """The service reports no total of senders, so fewer of them are read twice."""
    account.service.add_sender("news@example.com")
    account.service.add_sender("shop@example.com")
    account.service.add_template("welcome", subject="Hello", content="<p>Hello</p>")
    account.load("mail_senders", "mail_templates")
    account.client.send(DeleteSender(sender_email="shop@example.com"))
    account.client.send(DeleteTemplate(template_name="welcome"))
    with pytest.raises(PipelineStepFailed, match=r"mail_templates/first: 1 rows would become 0\..*allow_empty=True"):
        account.load("mail_templates")
    account.load("mail_senders", "mail_templates", allow_empty=True)
    assert len(account.service.journal.entries("verified_senders/get")) == 1 + 2
    assert duck.query("SELECT DISTINCT from_domain FROM mail_senders") == [("news@example.com",)]
    assert duck.query("SELECT * FROM mail_templates") == []
    account.client.send(AddTemplate(template_name="new", template_content="<p>x</p>", template_subject="x"))
    account.load("mail_templates")
    assert duck.query("SELECT template_name FROM mail_templates") == [("new",)]


@pytest.mark.parametrize("keep_gone", [False, True])
def test_contacts_of_a_deleted_list_are_deleted(duck: Duck, accounts: tuple[Account, Account], keep_gone: bool) -> None:
    account, other = accounts
    every = {"customers": 3, "news 'n' more": 3, "partners": 3}
    for one in accounts:
        for name, count in every.items():
            one.service.add_list(name, count=count)
    lists = (
        "SELECT list_name, count(*) FROM (SELECT * FROM mail_contacts "
        "QUALIFY observed_at = max(observed_at) OVER (PARTITION BY mail_conn_id, team_name, list_name)) "
        "WHERE is_removed IS NULL AND mail_conn_id = '{}' GROUP BY ALL ORDER BY ALL"
    )

    def load(one: Account, contact_lists: Any = "all") -> dict[str, int]:
        one.load("mail_contacts", contact_lists=contact_lists, keep_gone=keep_gone, allow_empty=True)
        return dict(duck.query(lists.format(one.name)))

    load(account)
    load(other)
    # One list of lists without it does not delete it.
    account.service.faults.add("empty_page", LISTS, keep=1, total=1)
    assert load(account) == every
    account.client.send(DeleteList(list_name="news 'n' more"))
    assert load(account, ["partners"]) == every
    delete(account.service, *account.service.contacts("partners"))
    assert load(account) == {"customers": 3}
    for name in ("customers", "partners"):
        account.client.send(DeleteList(list_name=name))
    assert load(account) == {}
    account.service.add_list("customers", count=1)
    assert load(account) == {"customers": 1}
    assert dict(duck.query(lists.format("second"))) == every


@pytest.mark.parametrize("arrow", [False, True])
def test_a_campaign_that_is_gone_is_marked_until_it_is_back(duck: Duck, account: Account, arrow: bool) -> None:
    account.service.add_campaigns(41, first_day=START)
    tables = (COUNTS, SNAPSHOTS, "mail_campaigns")
    account.load(*tables, snapshots=True, arrow=arrow)
    (name,) = duck.query(f"SELECT mail_name FROM {COUNTS} WHERE mail_send_date::DATE = DATE '{TODAY - 3 * DAY}'")[0]
    account.client.send(DeleteCampaign(mail_name=name))

    def load() -> tuple[int, list[Any], list[Any], list[Any]]:
        account.load(*tables, snapshots=True, arrow=arrow)
        marked = [duck.query(f"SELECT mail_name FROM {table} WHERE gone_at IS NOT NULL") for table in tables[::2]]
        counts = duck.query(f"SELECT sent_count > 0, open_rate >= 0, count(*) FROM {COUNTS} GROUP BY ALL")
        return duck.query(f"SELECT count(*) FROM {SNAPSHOTS} WHERE observed_day IS NULL")[0][0], *marked, counts

    assert load() == load() == (0, [(name,)], [(name,)], [(True, True, 41)])
    account.service.add_campaign(name, state="done", send_date=f"{TODAY - 3 * DAY}T08:00:00Z")
    # A campaign of its name is another one of `mail_campaigns`.
    assert load()[1:3] == ([], [(name,)])


@pytest.mark.parametrize("table", [COUNTS, "mail_campaigns", "mail_contacts"])
def test_an_answer_that_is_short_twice_is_disproved(duck: Duck, account: Account, table: str) -> None:
    account.service.add_campaigns(41, first_day=START)
    account.service.add_list("newsletter", count=20)
    account.load(table, contact_lists="all")
    before = duck.query(f"SELECT * EXCLUDE (_dlt_load_id, _dlt_id, observed_at) FROM {table} ORDER BY ALL")
    operation = {COUNTS: STATS, "mail_campaigns": "campaign/mail/get"}.get(table, LIST)

    def without_one(perform: Callable[[], Any]) -> Any:
        response = perform()
        if response.payload["totalRecords"] > 5:  # not the look-up of one name
            response.payload["totalRecords"] -= 1
            for records in response.payload.values():
                if isinstance(records, list):
                    records[3:4] = []
        return response

    disproved = pytest.raises(PipelineStepFailed, match="missing that the service returns elsewhere")
    with around_requests(account.service, operation, without_one), disproved:
        account.load(table, contact_lists="all")
    assert duck.query(f"SELECT * EXCLUDE (_dlt_load_id, _dlt_id, observed_at) FROM {table} ORDER BY ALL") == before


@pytest.mark.parametrize("table", [COUNTS, DAYS])
def test_sent_mails_remain_sent(duck: Duck, account: Account, table: str) -> None:
    account.service.add_campaign("spring", send_date=f"{TODAY - DAY}T08:00:00Z")
    account.service.set_transactional_day(TODAY - DAY, sentCount=50)
    account.load(table)
    account.service.set_campaign_stats("spring", sentCount=0)
    account.service.set_transactional_day(TODAY - DAY, sentCount=0)
    with pytest.raises(PipelineStepFailed, match="sent mails of 1 records would fall to zero"):
        account.load(table)
    assert duck.query(f"SELECT max(sent_count) > 0 FROM {table}") == [(True,)]
    account.load(table, allow_empty=True)
    assert duck.query(f"SELECT max(sent_count) > 0 FROM {table}") == [(False,)]


@pytest.mark.parametrize("hours", [-400 * 24, -48, -15, 48])
def test_a_wrong_clock_of_the_service_moves_no_row(duck: Duck, account: Account, hours: int) -> None:
    account.service.add_campaign("spring", send_date=f"{TODAY - 2 * DAY}T08:00:00Z")
    account.load(COUNTS, SNAPSHOTS, snapshots=True)
    account.service.clock.advance(hours=hours)
    account.service.clock.freeze()
    account.service.set_campaign_stats("spring", sentCount=1000, openCount=31)
    account.load(COUNTS, SNAPSHOTS, snapshots=True)
    assert duck.query(f"SELECT observed_day, open_count FROM {SNAPSHOTS}") == [(TODAY, 31)]
    assert duck.query(f"SELECT open_count FROM {COUNTS}") == [(31,)]


def test_a_list_is_what_has_its_name_now(duck: Duck, account: Account) -> None:
    """Renamed, and made again under the name: no contact counts twice."""
    account.service.add_list("old", count=20)

    def load(**options: Any) -> dict[str, int]:
        account.load("mail_contacts", contact_lists="all", **options)
        return dict(duck.query("SELECT list_name, count(DISTINCT id) FROM mail_contacts GROUP BY ALL"))

    assert load() == {"old": 20}
    account.service.service.store.run("UPDATE lists SET name = 'new' WHERE name = 'old'")
    assert load() == {"new": 20}
    account.service.add_list("old", count=5)
    assert load() == {"new": 20, "old": 5}
    account.client.send(DeleteList(list_name="new"))
    account.service.add_list("new", count=12)
    assert load(max_removed_fraction=1) == {"new": 12, "old": 5}


def test_rows_that_were_deleted_from_the_destination_come_back(duck: Duck, account: Account) -> None:
    account.service.add_campaigns(41, first_day=START)
    tables = (COUNTS, DAYS, "mail_campaigns")
    account.load(*tables)
    counts = [duck.query(f"SELECT count(*) FROM {table}") for table in tables]
    with closing(duckdb.connect(duck.file)) as connection:
        for table, column in zip(tables, ("mail_send_date", "stats_date", "send_by_date_time"), strict=True):
            connection.execute(f"DELETE FROM mail_service.{table} WHERE {column} < DATE '{START + 5 * DAY}'")
    account.load(*tables)
    assert [duck.query(f"SELECT count(*) FROM {table}") for table in tables] == counts
    account.asked()
    account.load(*tables)
    assert account.asked() == [(f"{TODAY - 7 * DAY}", f"{TODAY}")]


class Service:
    """The days with campaigns of one account, and what a table has of them; a model of a run."""

    def __init__(self, days: frozenset[int]) -> None:
        self.days = days
        self.loaded: set[int] = set()
        self.state: dict[str, Any] = {}

    def run(self, start: datetime.date, now: datetime.date, lookback: int, reply: Callable[[], str]) -> bool:
        state = dict(self.state)
        days = DaysToRead([state], start, now, lookback)
        found: set[int] = set()
        for first, last in days.windows():
            assert first <= last <= now
            assert (last - first).days < 31
            response = reply()
            if response == "fails":
                return False
            there = {day.toordinal() for day in span(first, last)} & self.days if response == "full" else set()
            found |= there
            days.answered(span(first, last) if there else ())
        days.save()
        self.loaded |= found
        self.state = state
        return True


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_two_accounts_in_any_history(data: st.DataObject) -> None:
    """Runs that fail, and windows that come back empty for less than the look-back, lose no day of either account."""
    start = datetime.date(2024, 1, 1)
    lookback = data.draw(st.integers(2, 9), "lookback")
    first = start.toordinal()
    days = st.frozensets(st.integers(first, first + 150), max_size=12)
    services = [Service(data.draw(days)), Service(data.draw(days))]
    now = start + data.draw(st.integers(0, 90)) * DAY
    whole = [now, now]
    for _ in range(data.draw(st.integers(1, 6), "runs")):
        now += data.draw(st.integers(0, lookback), "days") * DAY
        for at, service in enumerate(services):
            replies = st.sampled_from(["full", "fails", "empty"][: 3 if now - whole[at] < lookback * DAY else 2])
            service.run(start, now, lookback, lambda replies=replies: data.draw(replies))
            if data.draw(st.booleans(), "whole run"):
                # A clock that is ahead once moves nothing for good.
                ahead = data.draw(st.sampled_from([0, 0, 20]))
                assert service.run(start, now + ahead * DAY, lookback, lambda: "full")
                assert service.loaded >= {day for day in service.days if day <= now.toordinal()}
                whole[at] = now
