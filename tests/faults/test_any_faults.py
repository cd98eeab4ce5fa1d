"""Whatever faults the service has, what is loaded is complete: the rows from before, or exactly the service's.

A load is run once as it should be, and the service's journal says which requests there are for faults to strike:
Hypothesis draws them. What else is done to the service has machines of its own in `tests/machines`.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseOperator
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailContactsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)
from airflow_provider_mail.version_compat import AirflowException
from mail_emulator import Emulator, EmulatorSettings
from mail_emulator.faults import FAULT_KINDS
from tests.support.clock import Clock
from tests.support.sampling import ALL_FAULTS, examples
from tests.support.tries import Tries

FOREVER = None


# What is not named here strikes with its default parameters. Faults that only take time pass in real time.
PARAMETERS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "cut_body": ({"share": 0.0}, {"share": 0.5, "reset": True}, {"share": 0.98}),
    "too_many_requests": (
        *({"retry_after": seconds} for seconds in (0, 60, 3600, None)),
        {"retry_after": 2, "form": "date"},
    ),
    "http_error_before": tuple({"status": value} for value in (404, 408, 500, 502, 503, 504)),
    "http_error_after": tuple({"status": value} for value in (500, 503)),
    "code_before": (
        *({"code": value} for value in (500, 400, 404, 429)),
        {"code": 401, "http_status": 401},
        {"code": 403},
    ),
    "code_after": ({"code": 500}, {"code": 502, "http_status": 502}),
    "html_before": tuple({"status": value} for value in (200, 404, 503)),
    "cut_json": tuple({"share": value} for value in (0.5, 0.98)),
    "wrong_total": tuple({"by": value} for value in (1, -1)),
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
        "success_message": st.sampled_from([None, "ok"]),
        "newest_first": st.just(False),
        "contains_ignores_case": st.just(False),
        "max_page_size": st.sampled_from([2, 3, 10]),
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


class Trial:
    """Runs loads on one service."""

    def __init__(self, service: Emulator, clock: Clock) -> None:
        self.service, self.clock = service, clock

    def check(self, load: Load, count: int, seed_: object = None) -> None:
        """Try a load with so many drawn sets of faults.

        :param seed_: draws other ones. Default: the same ones each time, unless all cases are wanted.
        """
        self._reset({})
        load.prepare(self.service)
        self._begin(load, {})
        load.check(self.service, load.run())
        paths = [entry["operation"] for entry in self.service.journal.entries()]

        @settings(max_examples=examples(count), deadline=None)
        @given(st.lists(faults_at(paths), min_size=1, max_size=3), SERVICES)
        def try_one(faults: list[Fault], behavior: dict[str, Any]) -> None:
            self._try(load, faults, behavior, len(paths) + 3)

        (try_one if seed_ is None else seed(seed_)(try_one))()

    def _reset(self, behavior: Mapping[str, Any]) -> None:
        self.service.reset()
        self.service.change_settings(**{**DEFAULTS, **behavior})
        self.service.add_sender("news@example.com")

    def _begin(self, load: Load, behavior: Mapping[str, Any]) -> None:
        self._reset(behavior)
        load.arrange(self.service)
        self.service.journal.clear()

    def _try(self, load: Load, faults: list[Fault], behavior: Any, requests: int) -> None:
        self._begin(load, behavior)
        for fault in faults:
            fault.add(self.service)
        began = self.clock.skipped
        result = load.run()
        settle(self.service)
        self.service.faults.clear()
        assert self.service.journal.count() <= 120 * requests
        assert self.clock.skipped - began <= 900 * requests, "it takes long"
        # Days without mail may be left out: one that never comes is taken for such a day.
        if succeeded(result) and any(
            fault.kind == "short_stats" and (fault.count != 1 or len(faults) > 1) for fault in faults
        ):
            return
        load.check(self.service, result)
        if len(faults) == 1 and faults[0].passes_by:
            assert succeeded(result), f"the fault was over: {result}"
        if not succeeded(result):
            result = load.run()
            assert succeeded(result), f"all was well again: {result}"
            load.check(self.service, result)


def succeeded(result: Any) -> bool:
    return not isinstance(result, Exception)


def settle(service: Emulator) -> None:
    """Wait until the service is through with what the client has given up."""
    pause = threading.Event()
    while service.service.journal.in_flight:
        pause.wait(0.002)


# What is loaded.

FIRST, LAST = date(2024, 3, 2), date(2024, 3, 6)
COUNTERS = ("sentCount", "openCount", "clickCount", "hardBounce", "softBounce", "unsentCount", "unsubscribeCount")
TRUE_DAYS = [(FIRST + timedelta(days=number), 10 + number, number) for number in range(5)]


def fill(service: Emulator) -> None:
    """Some of everything that is loaded."""
    service.clock.set("2024-03-09T00:00:00+00:00")
    service.clock.freeze()
    service.add_list("customers", [f"c{number}@example.com" for number in range(7)])
    service.add_campaigns(8, prefix="news", first_day=FIRST, per_day=2)
    for day, sent, opened in TRUE_DAYS:
        service.set_transactional_day(day, sentCount=sent, openCount=opened)


def true_stats(service: Emulator) -> list[tuple[Any, ...]]:
    """The counts of every campaign that was sent, by name."""
    return sorted(
        (campaign["mailName"], *(campaign["mailStats"][name] for name in COUNTERS))
        for campaign in service.campaigns()
        if campaign["mailStats"]
    )


FOLDER = tempfile.TemporaryDirectory(prefix="any-faults-")
DAYS: dict[str, Any] = {"start_day": str(FIRST), "end_day": str(LAST), "sql_conn_id": "warehouse"}
STATS_SQL = (
    "SELECT mail_name, sent_count, open_count, click_count, hard_bounce, soft_bounce, unsent_count, unsubscribe_count "
    "FROM mail_campaign_stats"
)


class Load:
    """A task, with its tries, that loads an SQLite table; each begins with the one that an earlier load has left."""

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
        self.run()
        shutil.copy(self._path, self._first)
        self._before = self._rows()

    def arrange(self, service: Emulator) -> None:
        fill(service)
        service.set_campaign_stats("news-000001", sentCount=100, openCount=50)
        service.set_transactional_day(FIRST, sentCount=77)
        service.add_contact("late@example.com", lists=["customers"])
        self.task = Tries(service)
        for suffix in ("-wal", "-shm", "-journal"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        shutil.copy(self._first, self._path)

    def __str__(self) -> str:
        return self.name

    def run(self) -> Any:
        """Do it, again at the second call; return what was returned, or raised."""
        connection = {"conn_type": "sqlite", "host": str(self._path)}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(connection))
            self.task.run_all(lambda: self._make(task_id="task", **self._arguments))
        error = self.task.error
        assert error is None or isinstance(error, MailError | AirflowException), f"{type(error).__name__}: {error}"
        return error or self.task.returned

    def _rows(self) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._path)) as connection:
            return sorted(connection.execute(self._query))

    def check(self, service: Emulator, result: Any) -> None:
        rows, truth = self._rows(), self._truth(service)
        if succeeded(result) and result.get("missing_days"):  # they are reported, and stay as they were
            assert {day for day, _ in rows} == {day for day, _ in truth}
            assert set(rows) <= {*self._before, *truth}
            return
        assert rows == truth or (not succeeded(result) and rows == self._before)
        assert not succeeded(result) or result["records"] == len(truth)


def true_contacts(service: Emulator) -> list[tuple[Any, ...]]:
    return sorted((contact["email"],) for contact in service.contacts("customers"))


def true_days(service: Emulator) -> list[tuple[Any, ...]]:
    return [(str(day), 77 if day == FIRST else sent) for day, sent, _ in TRUE_DAYS]


LISTED: dict[str, Any] = {"list_name": "customers", "page_size": 3, "max_in_flight": 2, "sql_conn_id": "warehouse"}
DAYS_SQL = "SELECT stats_date, sent_count FROM mail_transactional_stats"
WORKLOADS = (
    Load("statistics", MailCampaignStatsToSqlOperator, STATS_SQL, true_stats, **DAYS),
    Load("days", MailTransactionalStatsToSqlOperator, DAYS_SQL, true_days, **DAYS),
    Load("contacts", MailContactsToSqlOperator, "SELECT email FROM mail_contacts", true_contacts, **LISTED),
)
MORE = 20 if ALL_FAULTS else 1


@pytest.mark.timeout(300 * MORE)
@pytest.mark.parametrize("load", WORKLOADS, ids=str)
def test_a_table_is_as_before_or_as_the_service_says(load: Load, emulator: Emulator, clock: Clock) -> None:
    Trial(emulator, clock).check(load, 20 * MORE)
