"""Whatever faults the service has: what was read is complete, and tables are whole.

A workload is run once as it should be, and the service's journal says which requests there are for faults to strike:
Hypothesis draws them. Imports, audiences, campaigns and transactional mail have machines of their own in
`tests/machines`.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from airflow.sdk import BaseOperator
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from airflow_provider_mail import api
from airflow_provider_mail.api.flows.concurrent_pages import concurrent_pages
from airflow_provider_mail.api.flows.preflight import PreflightRules, preflight
from airflow_provider_mail.api.flows.statistics import campaign_stats, transactional_stats
from airflow_provider_mail.transfers.mail_to_sql import MailCampaignStatsToSqlOperator, MailContactsToSqlOperator
from airflow_provider_mail.version_compat import AirflowException
from mail_emulator import Emulator, EmulatorSettings
from mail_emulator.faults import FAULT_KINDS
from tests.api.driving import KINDS, Driver, SyncDriver, driver
from tests.support.clock import Clock
from tests.support.sampling import ALL_FAULTS, examples
from tests.support.tries import Tries

FOREVER = None


def _each(name: str, *values: Any) -> tuple[dict[str, Any], ...]:
    return tuple({name: value} for value in values)


# What is not named here strikes with its default parameters. Faults that only take time pass in real time.
PARAMETERS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "cut_body": ({"share": 0.0}, {"share": 0.5, "reset": True}, {"share": 0.98}),
    "too_many_requests": (*_each("retry_after", 0, 60, 3600, None), {"retry_after": 2, "form": "date"}),
    "http_error_before": _each("status", 404, 408, 500, 502, 503, 504),
    "http_error_after": _each("status", 500, 503),
    "code_before": (*_each("code", 500, 400, 404, 429), {"code": 401, "http_status": 401}, {"code": 403}),
    "code_after": ({"code": 500}, {"code": 502, "http_status": 502}),
    "html_before": _each("status", 200, 404, 503),
    "cut_json": _each("share", 0.5, 0.98),
    "wrong_total": _each("by", 1, -1),
}
VARIANTS = [
    (kind, params)
    for name, kind in FAULT_KINDS.items()
    if kind.outcome != "slow"
    for params in PARAMETERS.get(name, ({},))
]
SERVICES = st.fixed_dictionaries(
    {},
    optional={
        "errors_as_http_status": st.just(True),
        "not_found_code": st.sampled_from([400, 403]),
        "duplicate_code": st.sampled_from([403, 409]),
        "contact_not_found": st.sampled_from(["null", "absent"]),
        "list_name_key": st.just("listName"),
        "success_message": st.sampled_from([None, "ok"]),
        "newest_first": st.just(False),
        "list_sort_descending": st.just(False),
        "contains_ignores_case": st.just(False),
        "max_page_size": st.sampled_from([2, 3, 10]),
        "scheduled_status": st.just(-1),
        "wrong_state_code": st.just(400),
    },
)
DEFAULTS = {item.name: item.default for item in dataclasses.fields(EmulatorSettings)}


@dataclass(frozen=True)
class Fault:
    """A fault that strikes so many requests in a row, after so many that it lets pass.

    :param count: how many requests; `FOREVER` for all.
    """

    kind: str
    params: Mapping[str, Any]
    operation: str
    skip: int
    count: int | None

    def add(self, service: Emulator, where: Mapping[str, Any] | None = None) -> None:
        options: Any = {"count": self.count, "skip": self.skip, "where": where, **self.params}
        service.faults.add(self.kind, self.operation, **options)

    @property
    def passes_by(self) -> bool:
        """Whether who only reads, and repeats what got no clear response, comes through."""
        if FAULT_KINDS[self.kind].outcome == "odd":
            return True
        is_short = self.count is not FOREVER and self.count <= 2
        return is_short and (self.kind.startswith(("close", "reset", "cut", "empty")) or self.kind == "html_after")


@st.composite
def faults_at(draw: st.DrawFn, paths: Sequence[str]) -> Fault:
    """Draw a fault that strikes one of the requests, or those behind it that its effect makes necessary."""
    everywhere = [variant for variant in VARIANTS if variant[0].operations is None]
    here = [variant for variant in VARIANTS if {*(variant[0].operations or ())} & {*paths}]
    kind, params = draw(st.sampled_from(everywhere) | st.sampled_from(here or everywhere))
    count = draw(st.sampled_from([1, 1, 2, 6, FOREVER]))
    if kind.operations is None:
        return Fault(kind.name, params, "*", draw(st.integers(0, len(paths) + 2)), count)
    path = draw(st.sampled_from([path for path in kind.operations if path in paths]))
    return Fault(kind.name, params, path, draw(st.integers(0, list(paths).count(path) - 1)), count)


class Workload:
    """Something that is done to a service: it returns a result or raises an error, and what it says must be so."""

    name: str
    settings: ClassVar[Mapping[str, Any]] = {}
    reads = True
    """Whether it only reads."""
    most_requests = 40
    """The most that one run may send, for each request of a run without faults."""
    examples = 30

    def __str__(self) -> str:
        return self.name

    def prepare(self, service: Emulator) -> None:
        """Keep what was there before: called once."""

    def arrange(self, service: Emulator) -> None:
        """Put in place what the workload needs."""
        fill(service)

    def run(self, service: Emulator, client: str) -> Any:
        """Do it, again at the second call.

        :param client: the kind of client, where that is not the workload's.
        """

    def undecidable(self, faults: Sequence[Fault]) -> bool:
        """Whether who knows only the specification cannot tell these responses from true ones."""
        return False

    def check(self, service: Emulator, result: Any) -> None:
        """Compare what the service or the warehouse holds with the result, or the error."""


class Trial:
    """Runs workloads on one service."""

    def __init__(self, service: Emulator, clock: Clock) -> None:
        self.service, self.clock = service, clock

    def check(self, workload: Workload, count: int, seed_: object = None) -> None:
        """Try a workload with so many drawn sets of faults.

        :param seed_: draws other ones. Default: the same ones each time, unless all cases are wanted.
        """
        self._reset({})
        workload.prepare(self.service)
        self._begin(workload, {})
        workload.check(self.service, self._run(workload, KINDS[0]))
        paths = [entry["operation"] for entry in self.service.journal.entries()]

        @settings(max_examples=examples(count), deadline=None)
        @given(st.lists(faults_at(paths), min_size=1, max_size=3), SERVICES, st.sampled_from(KINDS))
        def try_one(faults: list[Fault], behavior: dict[str, Any], client: str) -> None:
            self._try(workload, faults, behavior, client, len(paths) + 3)

        (try_one if seed_ is None else seed(seed_)(try_one))()

    def _reset(self, behavior: Mapping[str, Any]) -> None:
        self.service.reset()
        self.service.change_settings(**{**DEFAULTS, **behavior})
        self.service.add_sender("news@example.com")

    def _begin(self, workload: Workload, behavior: Mapping[str, Any]) -> None:
        self._reset({**behavior, **workload.settings})
        workload.arrange(self.service)
        self.service.journal.clear()

    def _run(self, workload: Workload, client: str) -> Any:
        try:
            return workload.run(self.service, client)
        except (api.MailError, AirflowException) as error:
            return error

    def _try(self, workload: Workload, faults: list[Fault], behavior: Any, client: str, requests: int) -> None:
        self._begin(workload, behavior)
        for fault in faults:
            fault.add(self.service)
        began = self.clock.skipped
        result = self._run(workload, client)
        settle(self.service)
        self.service.faults.clear()
        assert self.service.journal.count() <= workload.most_requests * requests
        assert self.clock.skipped - began <= 900 * requests, "it takes long"
        if succeeded(result) and workload.undecidable(faults):
            return
        workload.check(self.service, result)
        if workload.reads and len(faults) == 1 and faults[0].passes_by:
            assert succeeded(result), f"the fault was over: {result}"
        if not succeeded(result):
            result = self._run(workload, client)
            assert succeeded(result), f"all was well again: {result}"
            workload.check(self.service, result)


def succeeded(result: Any) -> bool:
    return not isinstance(result, Exception)


def settle(service: Emulator) -> None:
    """Wait until the service is through with what the client has given up."""
    pause = threading.Event()
    while service.service.journal.in_flight:
        pause.wait(0.002)


# What is read.

FIRST, LAST = date(2024, 3, 2), date(2024, 3, 6)
COUNTERS = ("sentCount", "openCount", "clickCount", "hardBounce", "softBounce", "unsentCount", "unsubscribeCount")
TRUE_DAYS = [(FIRST + timedelta(days=number), 10 + number, number) for number in range(5)]


def fill(service: Emulator) -> None:
    """Some of everything that can be read."""
    service.clock.set("2024-03-09T00:00:00+00:00")
    service.clock.freeze()
    service.add_list("customers", [f"c{number}@example.com" for number in range(7)])
    for number in range(4):
        service.add_list(f"list {number}")
        service.add_template(f"template {number}", subject="Hi", content="<p>Hi</p>")
    service.add_campaigns(8, prefix="news", first_day=FIRST, per_day=2)
    for day, sent, opened in TRUE_DAYS:
        service.set_transactional_day(day, sentCount=sent, openCount=opened)
    service.add_sender("other@example.com", types=[2])


def names(things: Iterable[Any], key: str = "name") -> list[str]:
    return sorted(thing[key] for thing in things)


def true_stats(service: Emulator) -> list[tuple[Any, ...]]:
    """The counts of every campaign that was sent, by name."""
    return sorted(
        (campaign["mailName"], *(campaign["mailStats"][name] for name in COUNTERS))
        for campaign in service.campaigns()
        if campaign["mailStats"]
    )


class Read(Workload):
    """Something that is read with a client, and what it must be."""

    def __init__(self, what: str, act: Callable[[Driver], Any], truth: Callable[[Emulator], Any]) -> None:
        self.name, self._act, self._truth = what, act, truth

    def run(self, service: Emulator, client: str) -> Any:
        opened = driver(client, api.ClientConfig(base_url=service.base_url, api_key=service.api_key))
        try:
            return self._act(opened)
        finally:
            opened.close()

    def undecidable(self, faults: Sequence[Fault]) -> bool:
        # Days without mail may be left out: one that never comes is taken for such a day. And of a preflight, the
        # service is believed when it says how many contacts are in a list.
        return any(
            (fault.kind == "short_stats" and (fault.count != 1 or len(faults) > 1))
            or (fault.kind == "wrong_total" and self._act is look_before)
            for fault in faults
        )

    def check(self, service: Emulator, result: Any) -> None:
        assert not succeeded(result) or result == self._truth(service)


def read_all(request: Any, key: str, *, at_once: bool = False) -> Callable[[Driver], list[str]]:
    """Return what reads a list page by page to its end, perhaps several pages at once."""

    def act(client: Driver) -> list[str]:
        is_concurrent = at_once and isinstance(client, SyncDriver)
        pages = concurrent_pages(client.client, request, at_once=2) if is_concurrent else client.pages(request)
        return sorted(getattr(record, key) for page in pages for record in page)

    return act


def read_campaign_stats(client: Driver) -> list[tuple[Any, ...]]:
    records = client.run(campaign_stats(api.GetCampaignStats(start_date=FIRST, end_date=LAST)))
    wire = (record.model_dump(by_alias=True) for record in records)
    return sorted((record["mailName"], *(record[name] for name in COUNTERS)) for record in wire)


def read_transactional_stats(client: Driver) -> list[tuple[date, int, int]]:
    days = client.run(transactional_stats(api.GetTransactionalStats(start_date=FIRST, end_date=LAST)))
    return [(day.stats_date, day.sent_count, day.open_count) for day in days]


def look_before(client: Driver) -> set[str]:
    """The checks of a preflight that fail, but for the service's own."""
    request = api.CreateCampaign(
        mail_name="weekly", sender_mail="news@else.example", subject="News", content="<p>News, {{nome}}</p>",
        send_list_names=["customers", "list 0"], repel_list_names=["nobody"],
    )  # fmt: skip
    findings = client.run(preflight(request, PreflightRules(max_recipients=3, known_tags=["name"]))).findings
    return {finding.check for finding in findings if finding.level == "error"} - {"service"}


MISTAKES = {"sender", "lists", "excluded lists", "recipients", "unsubscribe", "tags"}
CUSTOMERS = api.GetListContacts(list_name="customers", page_size=3)


class Find(Read):
    """Something of exactly this name, among others whose names contain it."""

    settings = {"max_page_size": 2, "newest_first": False}  # noqa: RUF012

    def __init__(self, flow: Callable[[str], Any], *, exists: bool) -> None:
        name = f"{flow.__name__}, which {'exists' if exists else 'does not exist'}"
        super().__init__(name, lambda client: client.run(flow("weekly")) is not None, lambda service: exists)
        self._names = ["0 weekly", "1 weekly", "2 weekly", *(["weekly"] if exists else [])]

    def arrange(self, service: Emulator) -> None:
        for name in self._names:
            service.add_template(name, subject="Hi", content="<p>Hi</p>")
            service.add_campaign(name)


class Preflight(Read):
    reads = False  # code 500 is how the service says that the check of a campaign failed


READS = (
    Read("contacts", read_all(CUSTOMERS, "email"), lambda service: names(service.contacts("customers"), "email")),
    Read(
        "contacts, pages at once",
        read_all(CUSTOMERS, "email", at_once=True),
        lambda service: names(service.contacts("customers"), "email"),
    ),
    Read("lists", read_all(api.GetLists(page_size=2), "list_name"), lambda service: names(service.lists())),
    Read("campaign statistics", read_campaign_stats, true_stats),
    Read("transactional statistics", read_transactional_stats, lambda service: TRUE_DAYS),
    Find(api.find_campaign, exists=True),
    Find(api.find_template, exists=False),
    Preflight("preflight", look_before, lambda service: MISTAKES),
)

# What is loaded: the rows from before, or exactly the service's.

FOLDER = tempfile.TemporaryDirectory(prefix="any-faults-")
DAYS: dict[str, Any] = {"start_day": str(FIRST), "end_day": str(LAST), "sql_conn_id": "warehouse"}
STATS = "mail_name, sent_count, open_count, click_count, hard_bounce, soft_bounce, unsent_count, unsubscribe_count"


class Load(Workload):
    """A task, with its tries, that loads an SQLite table; each begins with the one that an earlier load has left."""

    most_requests = 120
    examples = 12

    def __init__(
        self, what: str, make: Callable[..., BaseOperator], query: str, truth: Callable[..., Any], **arguments: Any
    ) -> None:
        self.name = f"load {what}"
        self._make, self._query, self._truth, self._arguments = make, query, truth, arguments
        self._path, self._first = (Path(FOLDER.name) / f"{what} {name}" for name in ("now", "first"))

    def prepare(self, service: Emulator) -> None:
        """Load other counts, and what is gone now."""
        fill(service)
        service.set_campaign_stats("news-000000", sentCount=1)
        service.add_contact("gone@example.com", lists=["customers"])
        self._path.unlink(missing_ok=True)
        self.task = Tries(service)
        self.run(service, "")
        shutil.copy(self._path, self._first)
        self._before = self._rows()

    def arrange(self, service: Emulator) -> None:
        fill(service)
        service.set_campaign_stats("news-000001", sentCount=100, openCount=50)
        service.add_contact("late@example.com", lists=["customers"])
        self.task = Tries(service)
        for suffix in ("-wal", "-shm", "-journal"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        shutil.copy(self._first, self._path)

    def run(self, service: Emulator, client: str) -> Any:
        connection = {"conn_type": "sqlite", "host": str(self._path)}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(connection))
            self.task.run_all(lambda: self._make(task_id="task", **self._arguments))
        if self.task.error is not None:
            raise self.task.error
        return self.task.returned

    def _rows(self) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._path)) as connection:
            return sorted(connection.execute(self._query))

    def check(self, service: Emulator, result: Any) -> None:
        rows, truth = self._rows(), self._truth(service)
        assert rows == truth or (not succeeded(result) and rows == self._before)
        assert not succeeded(result) or result["records"] == len(truth)


def true_contacts(service: Emulator) -> list[tuple[Any, ...]]:
    return sorted((contact["email"],) for contact in service.contacts("customers"))


LISTED: dict[str, Any] = {"list_name": "customers", "page_size": 3, "max_in_flight": 2, "sql_conn_id": "warehouse"}
LOADS = (
    Load("statistics", MailCampaignStatsToSqlOperator, f"SELECT {STATS} FROM mail_campaign_stats", true_stats, **DAYS),
    Load("contacts", MailContactsToSqlOperator, "SELECT email FROM mail_contacts", true_contacts, **LISTED),
)
WORKLOADS: tuple[Workload, ...] = (*READS, *LOADS)
MORE = 20 if ALL_FAULTS else 1


@pytest.mark.timeout(300 * MORE)
@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_what_is_said_is_so(workload: Workload, emulator: Emulator, clock: Clock) -> None:
    Trial(emulator, clock).check(workload, workload.examples * MORE)
