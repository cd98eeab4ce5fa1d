"""Days of a service with all that goes wrong with numbers, and an independent loader of what it says.

The loader is plain SQL over DB-API; it shares no code with the package. After each load, every number of the tables
equals that of the loader, or the load has failed and changed nothing.
"""

from __future__ import annotations

import datetime
import json
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail._task.rejects import UnstorableRecords
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.transfers.mail_to_object_storage import (
    MailContactsToObjectStorageOperator,
    MailStatsToObjectStorageOperator,
)
from airflow_provider_mail.version_compat import AirflowException
from airflow_provider_mail.warehouse.errors import WarehouseError
from mail_emulator import Emulator
from tests.support.changes import around_requests
from tests.support.clock import Clock
from tests.support.env import ROOT
from tests.tasks.loading import CAMPAIGN_STATS, LIST, TRANSACTIONAL_STATS, UTC, delete, executed, load_task
from tests.warehouse.conftest import Warehouse

START = datetime.datetime(2026, 1, 1, 8, tzinfo=UTC)
DAY, MINUTE = datetime.timedelta(days=1), datetime.timedelta(minutes=1)
BACK = 10
"""Days that are read again."""
LIES = (0.0, 0.0, 0.05, -0.05, 24.0, -1.0, -15.0, -48.0, -400 * 24.0)
"""Hours by which a clock may be ahead."""
STATS, SNAPSHOTS, DAYS = "mail_campaign_stats", "mail_campaign_stats_snapshots", "mail_transactional_stats"

SCHEMA = """
CREATE TABLE stats (conn, team, name, sent_at, sent, opens, seen, gone, PRIMARY KEY (conn, team, name));
CREATE TABLE days (conn, team, day, seen, PRIMARY KEY (conn, team, day));
CREATE TABLE snapshots (conn, team, name, day, sent_at, sent, opens, seen, PRIMARY KEY (conn, team, name, day));
CREATE TABLE mails (conn, team, day, sent, seen, PRIMARY KEY (conn, team, day));
CREATE TABLE stays (conn, team, id, since, until);
CREATE TABLE readings (conn, team, at, contacts, joined, departed);
"""


class Loader:
    """Keeps what the service said, row by row, by the time at which it was asked."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.connection.executescript(SCHEMA)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, values).fetchall()

    def stats(self, account: tuple[str, str], at: str, first: str, last: str, answer: list[tuple[Any, ...]]) -> None:
        """Rows of names, send times, sent mails and opens, which are whole between the first and the last day."""
        read = dict(self.rows("SELECT day, seen FROM days WHERE conn = ? AND team = ?", *account))
        whole = {f"{day}" for day in between(first, last)}
        open_days = {day for day in whole if read.get(day, "") <= at}
        self.snapshots(account, at, answer)
        for name, sent_at, sent, opens in answer:
            if sent_at[:10] in whole - open_days:
                continue
            self.rows(
                "INSERT INTO stats VALUES (?, ?, ?, ?, ?, ?, ?, NULL) ON CONFLICT DO UPDATE SET sent_at = "
                "excluded.sent_at, sent = excluded.sent, opens = excluded.opens, seen = excluded.seen, gone = NULL "
                "WHERE coalesce(gone, seen) <= excluded.seen",
                *account, name, sent_at, sent, opens, at,
            )  # fmt: skip
        for name in self.lacking(account, at, first, last, answer):
            self.rows("UPDATE stats SET gone = ? WHERE conn = ? AND team = ? AND name = ?", at, *account, name)
        for day in open_days if answer else ():  # an empty answer may be an error
            self.rows("INSERT OR REPLACE INTO days VALUES (?, ?, ?, ?)", *account, day, at)

    def lacking(
        self, account: tuple[str, str], at: str, first: str, last: str, answer: list[tuple[Any, ...]]
    ) -> list[str]:
        """The names of stored rows that an answer shows to be gone."""
        read = dict(self.rows("SELECT day, seen FROM days WHERE conn = ? AND team = ?", *account))
        open_days = {f"{day}" for day in between(first, last) if read.get(f"{day}", "") <= at}
        names = {name for name, *_ in answer}
        stored = self.rows(
            "SELECT name, sent_at FROM stats WHERE conn = ? AND team = ? AND gone IS NULL AND seen <= ?", *account, at
        )
        return [name for name, sent_at in stored if sent_at[:10] in open_days and name not in names]

    def snapshots(self, account: tuple[str, str], at: str, answer: list[tuple[Any, ...]]) -> None:
        for name, sent_at, sent, opens in answer:
            self.rows(
                "INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET sent_at = "
                "excluded.sent_at, sent = excluded.sent, opens = excluded.opens, seen = excluded.seen "
                "WHERE seen <= excluded.seen",
                *account, name, at[:10], sent_at, sent, opens, at,
            )  # fmt: skip

    def mails(self, account: tuple[str, str], at: str, answer: dict[str, int]) -> None:
        for day, sent in answer.items():
            self.rows("INSERT OR REPLACE INTO mails VALUES (?, ?, ?, ?, ?)", *account, day, sent, at)

    def contacts(self, account: tuple[str, str], at: str, ids: set[str]) -> None:
        here = {
            identifier
            for (identifier,) in self.rows(
                "SELECT id FROM stays WHERE conn = ? AND team = ? AND until IS NULL", *account
            )
        }
        for identifier in here - ids:
            self.rows(
                "UPDATE stays SET until = ? WHERE conn = ? AND team = ? AND id = ? AND until IS NULL",
                at, *account, identifier,
            )  # fmt: skip
        for identifier in ids - here:
            self.rows("INSERT INTO stays VALUES (?, ?, ?, ?, NULL)", *account, identifier, at)
        self.rows(
            "INSERT INTO readings VALUES (?, ?, ?, ?, ?, ?)", *account, at, len(ids), len(ids - here), len(here - ids)
        )


def between(first: str, last: str) -> Iterator[datetime.date]:
    """The days after the first and before the last one."""
    day = datetime.date.fromisoformat(first) + DAY
    while day < datetime.date.fromisoformat(last):
        yield day
        day += DAY


@dataclass
class Account:
    """A team's account, with what its service has."""

    conn_id: str
    team: str
    service: Emulator
    campaigns: dict[str, tuple[datetime.datetime, int, int]] = field(default_factory=dict)
    used: list[str] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    """Contacts that some load has stored."""
    mails: dict[str, int] = field(default_factory=dict)
    files: dict[str, set[tuple[Any, ...]]] = field(default_factory=dict)
    """Campaigns of each day's file."""
    filed: set[str] = field(default_factory=set)
    """Contacts of the last load of files."""

    @property
    def key(self) -> tuple[str, str]:
        return self.conn_id, self.team


class World:
    """Accounts in one warehouse, whose days pass."""

    def __init__(
        self,
        warehouse: Warehouse,
        accounts: list[Account],
        clock: Clock,
        connect: Callable[..., None],
        seed: int,
        folder: Path,
    ) -> None:
        self.folder = folder
        self.warehouse, self.accounts, self.clock, self.connect = warehouse, accounts, clock, connect
        self.loader, self.chance = Loader(), random.Random(seed)
        self._began, self._worker = time.monotonic(), 0.0
        self.loads = self.failed = 0
        self.error: Exception | None = None
        self.left_out: set[str] = set()
        self.overtaking = False
        for account in accounts:
            account.service.add_list("news", count=60)

    def now(self) -> datetime.datetime:
        """The true time, which is the database's."""
        return START + datetime.timedelta(seconds=time.monotonic() - self._began)

    def text(self) -> str:
        return self.now().isoformat()

    def pass_time(self, length: datetime.timedelta) -> None:
        self.clock.sleep(length.total_seconds())

    def lie(self) -> None:
        """The clocks of the services and of the worker step, or are right for once."""
        worker = self.chance.choice(LIES[:-1]) * 3600
        self.clock.set_wall_clock(worker - self._worker)
        self._worker = worker
        for account in self.accounts:
            account.service.clock.set(self.now() + datetime.timedelta(hours=self.chance.choice(LIES)))
            account.service.clock.freeze()

    # What happens at a service

    def live(self, account: Account) -> None:
        chance, service, now = self.chance, account.service, self.now()
        for name, (sent_at, sent, opens) in account.campaigns.items():
            if chance.random() < 0.5:  # late opens, and corrections down
                self._count(account, name, sent_at, sent, max(0, opens + chance.randint(-3, 40)))
        if account.campaigns and chance.random() < 0.25:  # one is deleted, or renamed
            name = chance.choice(sorted(account.campaigns))
            sent_at, sent, opens = account.campaigns.pop(name)
            told = service.clock.now()
            # By every clock that lies later, it is gone: the service lists what it deletes later.
            service.clock.set(START - 500 * DAY)
            service.set_campaign_state(name, "removed")
            service.clock.set(told)
            service.clock.freeze()
            # Names are unique.
            if chance.random() < 0.4 and f"{name} renamed" not in account.campaigns:
                self._send(account, f"{name} renamed", sent_at, sent, opens)
        for _ in range(chance.randint(0, 3)):
            free = [name for name in account.used if name not in account.campaigns]
            again = free and chance.random() < 0.3
            name = chance.choice(free) if again else f"week {now:%m-%d} {chance.randrange(10**6)}"
            self._send(account, name, now - chance.randint(1, 20) * 60 * MINUTE, chance.randint(100, 999), 0)
        for day in range(chance.randint(0, 3)):
            key = f"{(now - day * DAY).date()}"
            account.mails[key] = account.mails.get(key, 0) + chance.randint(1, 50)
            service.set_transactional_day(key, sentCount=account.mails[key])
        for _ in range(chance.randint(0, 2)):
            service.add_contact(f"c{chance.randrange(10**9)}@example.com", lists=["news"])
        if chance.random() < 0.5:
            contact = chance.choice(service.contacts("news"))
            delete(service, contact)

    def _send(self, account: Account, name: str, sent_at: datetime.datetime, sent: int, opens: int) -> None:
        account.service.add_campaign(name, send_date=sent_at, sent=sent)
        account.used.append(name)
        self._count(account, name, sent_at.replace(microsecond=0), sent, opens)

    def _count(self, account: Account, name: str, sent_at: datetime.datetime, sent: int, opens: int) -> None:
        account.service.set_campaign_stats(name, sentCount=sent, openCount=opens)
        account.campaigns[name] = sent_at, sent, opens

    # Loads

    def load_all(self, account: Account) -> None:
        self.connect(account.conn_id, account.service, account.team)
        for load in (self.load_stats, self.load_mails, self.load_contacts):
            self.lie()
            load(account)
            self.compare()
            self.pass_time(MINUTE)
        if self.chance.random() < 0.4:
            for load in (self.write_days, self.write_contacts):
                self.lie()
                load(account)
                self.pass_time(MINUTE)

    def _run(self, table: str, disturbance: Any, **arguments: Any) -> bool:
        """Run a load; return whether it was green."""
        return self._executed(disturbance, lambda: load_task(table, **arguments))

    def _executed(self, disturbance: Any, task: Callable[[], Any]) -> bool:
        self.loads += 1
        try:
            with disturbance:
                executed(task())
        except (MailError, WarehouseError, AirflowException) as error:
            self.failed, self.error = self.failed + 1, error
            return False
        return True

    def _window(self) -> dict[str, str]:
        today = self.now().date()
        return {"start_day": f"{today - BACK * DAY}", "end_day": f"{today + DAY}"}

    def _answer(self, account: Account, window: dict[str, str]) -> list[tuple[Any, ...]]:
        return [
            (name, sent_at.isoformat(), sent, opens)
            for name, (sent_at, sent, opens) in account.campaigns.items()
            if window["start_day"] <= f"{sent_at.date()}" <= window["end_day"]
        ]

    def load_stats(self, account: Account) -> None:
        window, kind = self._window(), self.chance.random()
        answer, at = self._answer(account, window), self.text()
        disturbance: Any = nullcontext()
        if kind < 0.15:
            disturbance = self._short(account, CAMPAIGN_STATS, self._stored_names(account, window))
        elif kind < 0.35 and not self.overtaking:  # another run overtakes this one
            disturbance = self._overtaken(account)
        if self._run(SNAPSHOTS, disturbance, **window, mail_conn_id=account.conn_id):
            days = window["start_day"], window["end_day"]
            if self.loader.lacking(account.key, at, *days, answer):  # then it has read again, and adds what came since
                answer += [row for row in self._answer(account, window) if row[0] not in {name for name, *_ in answer}]
            self.loader.stats(account.key, at, window["start_day"], window["end_day"], answer)
        elif kind < 0.15:  # today's counts of those that came are true, and tomorrow nobody has them
            self.loader.snapshots(account.key, at, [row for row in answer if row[0] not in self.left_out])
        else:
            raise AssertionError("a load of a whole answer has failed") from self.error

    @contextmanager
    def _overtaken(self, account: Account) -> Iterator[None]:
        """When the answer has been read, another run reads a later one and stores it first."""
        store = UnstorableRecords.load

        def overtaken(*arguments: Any, **options: Any) -> Any:
            with pytest.MonkeyPatch.context() as inner:
                inner.setattr(UnstorableRecords, "load", store)
                if not self.overtaking:
                    self.overtaking = True
                    self.pass_time(MINUTE)
                    self.live(account)
                    self.load_stats(account)
                    self.pass_time(MINUTE)
                return store(*arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(UnstorableRecords, "load", overtaken)
            yield
        self.overtaking = False

    def _stored_names(self, account: Account, window: dict[str, str]) -> set[str]:
        days = {f"{day}" for day in between(window["start_day"], window["end_day"])}
        stored = self.loader.rows("SELECT name, sent_at FROM stats WHERE conn = ? AND team = ?", *account.key)
        return {name for name, sent_at in stored if sent_at[:10] in days and name in account.campaigns
                and account.campaigns[name][0].isoformat() == sent_at}  # fmt: skip

    @contextmanager
    def _short(self, account: Account, path: str, names: set[str]) -> Iterator[None]:
        """Every answer lacks some records that are stored, with totals that match."""
        count = self.chance.randint(1, max(1, len(names)))
        left_out = self.left_out = set(self.chance.sample(sorted(names), min(count, len(names))))

        def around(perform: Callable[[], Any]) -> Any:
            response = perform()
            for records in [value for value in response.payload.values() if isinstance(value, list)]:
                kept = [record for record in records if record.get("mailName", record.get("id")) not in left_out]
                if "totalRecords" in response.payload:
                    lacking = len(left_out) if path == LIST else len(records) - len(kept)
                    response.payload["totalRecords"] -= lacking
                records[:] = kept
            return response

        with around_requests(account.service, path, around):
            yield

    def load_mails(self, account: Account) -> None:
        window = self._window()
        days = [datetime.date.fromisoformat(day) for day in window.values()]
        answer = {f"{day}": account.mails.get(f"{day}", 0) for day in [days[0], *between(*window.values()), days[1]]}
        shown_until = f"{account.service.clock.now().date()}"  # the service lists no empty day that is ahead
        answer = {day: sent for day, sent in answer.items() if day <= shown_until or day in account.mails}
        stored = dict(self.loader.rows("SELECT day, sent FROM mails WHERE conn = ? AND team = ?", *account.key))
        zeros = [day for day in answer if stored.get(day)] if self.chance.random() < 0.15 else []

        def around(perform: Callable[[], Any]) -> Any:
            response = perform()
            for record in response.payload["mailStatsList"]:
                if record["statsDate"] in zeros:
                    record["sentCount"] = 0
            return response

        disturbance: Any = around_requests(account.service, TRANSACTIONAL_STATS, around) if zeros else nullcontext()
        at = self.text()
        if self._run(DAYS, disturbance, **window, mail_conn_id=account.conn_id):
            self.loader.mails(account.key, at, answer)
        elif not zeros:
            raise AssertionError("a load of whole days has failed") from self.error

    def load_contacts(self, account: Account) -> None:
        ids = {contact["id"] for contact in account.service.contacts("news")}
        disturbance: Any = nullcontext()
        is_short = self.chance.random() < 0.15 and account.known & ids
        if is_short:
            disturbance = self._short(account, LIST, account.known & ids)
        at = self.text()
        if self._run("mail_contacts", disturbance, mail_conn_id=account.conn_id, history=True):
            self.loader.contacts(account.key, at, ids)
            account.known = set(ids)
        elif not is_short:
            raise AssertionError("a load of a whole list has failed") from self.error

    # Files

    def write_days(self, account: Account) -> None:
        """Write the last days; a failed task leaves each file as it was, or as it should be."""
        days = [f"{(self.now() - back * DAY).date()}" for back in range(4)]
        answer = {
            day: {(name, sent, opens) for name, (at, sent, opens) in account.campaigns.items() if f"{at.date()}" == day}
            for day in days
        }
        here = {name for rows in answer.values() for name, *_ in rows}
        names = {name for day in days for name, *_ in account.files.get(day, ())} & here
        is_short = self.chance.random() < 0.3 and names
        disturbance: Any = self._short(account, CAMPAIGN_STATS, names) if is_short else nullcontext()
        folder = self.folder / f"{account.conn_id}-{account.team}" / "days"
        is_green = self._executed(
            disturbance,
            lambda: MailStatsToObjectStorageOperator(
                task_id="write", mail_conn_id=account.conn_id, path=f"file://{folder}", file_format="jsonl",
                start_day=days[-1], end_day=days[0], allow_empty=True,
            ),
        )  # fmt: skip
        if not is_green and not is_short:
            raise AssertionError("files of a whole answer have failed") from self.error
        for day in days:
            lines = [line for file in folder.glob(f"*={day}/*.jsonl") for line in file.read_text().splitlines()]
            found = {(row["mail_name"], row["sent_count"], row["open_count"]) for row in map(json.loads, lines)}
            right = [answer[day]] if is_green else [answer[day], account.files.get(day, set())]
            assert found in right, (day, found, right)
            account.files[day] = found

    def write_contacts(self, account: Account) -> None:
        ids = {contact["id"] for contact in account.service.contacts("news")}
        is_short = self.chance.random() < 0.3 and account.filed & ids
        disturbance: Any = self._short(account, LIST, account.filed & ids) if is_short else nullcontext()
        folder = self.folder / f"{account.conn_id}-{account.team}" / "contacts"
        is_green = self._executed(
            disturbance,
            lambda: MailContactsToObjectStorageOperator(
                task_id="write", mail_conn_id=account.conn_id, path=f"file://{folder}", file_format="jsonl",
                list_name="news",
            ),
        )  # fmt: skip
        if is_green:
            account.filed = ids
        elif not is_short:
            raise AssertionError("a file of a whole list has failed") from self.error
        if loads := sorted(file.parent for file in folder.glob("*/_SUCCESS")):
            lines = [line for file in loads[-1].glob("*.jsonl") for line in file.read_text().splitlines()]
            assert {json.loads(line)["id"] for line in lines} == account.filed

    # Comparison

    def _same(self, ours: str, theirs: str) -> None:
        problem = None
        try:
            found = self.warehouse.query(ours)
        except Exception as error:  # the table is not there before the first load
            found, problem = [], error
        expected = self.loader.rows(theirs)
        ours_, theirs_ = ({tuple(map(str, row)) for row in rows} for rows in (found, expected))
        if (len(found), ours_) != (len(expected), theirs_):
            raise AssertionError(
                f"{ours}: the tables have {ours_ - theirs_}, and should have {theirs_ - ours_}"
            ) from problem

    def compare(self) -> None:
        account = "mail_conn_id, team_name"
        gone = "CASE WHEN gone_at IS NULL THEN 0 ELSE 1 END"
        self._same(
            f"SELECT {account}, mail_name, sent_count, open_count, {gone} FROM {STATS}",
            "SELECT conn, team, name, sent, opens, gone IS NOT NULL FROM stats",
        )
        self._same(
            f"SELECT {account}, mail_name, observed_day, sent_count, open_count FROM {SNAPSHOTS}",
            "SELECT conn, team, name, day, sent, opens FROM snapshots",
        )
        self._same(f"SELECT {account}, stats_date, sent_count FROM {DAYS}", "SELECT conn, team, day, sent FROM mails")
        self._same(f"SELECT {account}, id FROM mail_contacts", "SELECT conn, team, id FROM stays WHERE until IS NULL")
        self._same(
            f"SELECT {account}, id, COUNT(*), SUM(CASE WHEN valid_to IS NULL THEN 1 ELSE 0 END) "
            f"FROM mail_contacts_history GROUP BY {account}, id",
            "SELECT conn, team, id, count(*), sum(until IS NULL) FROM stays GROUP BY conn, team, id",
        )
        self._same(
            f"SELECT {account}, part FROM mail_loads WHERE table_name = '{STATS}'", "SELECT conn, team, day FROM days"
        )

    def compare_questions(self) -> None:
        """Two readings of each campaign that follow each other, and of each list, calculated by hand."""
        growth: list[tuple[str, ...]] = []
        moving: list[tuple[str, ...]] = []
        before: Any = None
        living = {row[:4] for row in self.loader.rows("SELECT conn, team, name, sent_at FROM stats WHERE gone IS NULL")}
        ordered = self.loader.rows(
            "SELECT conn, team, name, sent_at, day, sent, opens FROM snapshots ORDER BY conn, team, name, sent_at, day"
        )
        for row, following in zip(ordered, [*ordered[1:], None], strict=True):
            new = row[6] - before[6] if before and before[:4] == row[:4] else None
            growth.append((row[1], row[4], f"{row[6]}", f"{new}"))
            if new and (following is None or following[:4] != row[:4]) and row[:4] in living:
                moving.append((*row[:3], row[4], f"{new}"))
            before = row
        sql = (ROOT / "docs" / "sql" / "still_moving.sql").read_text()
        found = [(*map(str, (row[0], row[1], row[2], row[5])), f"{row[6]}") for row in self.warehouse.query(sql)]
        assert sorted(found) == sorted(moving)
        template = (ROOT / "docs" / "sql" / "open_curve.sql").read_text()
        curves = []
        for conn_id, name in {(row[0], row[2]) for row in ordered}:
            asked = template.replace("mail_default", conn_id).replace("spring-sale", name)
            curves += [(row[0], f"{row[2]}", f"{row[4]}", f"{row[5]}") for row in self.warehouse.query(asked)]
        assert sorted(curves) == sorted(growth)
        churn = self.warehouse.query((ROOT / "docs" / "sql" / "list_churn.sql").read_text())
        expected = self.loader.rows(
            "SELECT conn, team, contacts, joined, departed FROM readings ORDER BY conn, team, at"
        )
        first = {(conn, team): index for index, (conn, team, *_) in reversed([*enumerate(expected)])}
        expected = [row for index, row in enumerate(expected) if index not in first.values()]
        assert sorted((*row[:2], *row[4:7]) for row in churn) == sorted(expected)
        mails = self.warehouse.query((ROOT / "docs" / "sql" / self._own("transactional_days")).read_text())
        counted = self.loader.rows("SELECT conn, team, day, sent FROM mails")
        assert {(*row[:2], f"{row[2]}", row[4]) for row in mails if row[3] != "missing"} == set(counted)

    def _own(self, question: str) -> str:
        kind = {"sqlite": "sqlite", "psycopg3": "postgres", "duckdb": "duckdb", "mysql": "mysql"}[self.warehouse.kind]
        own = f"{question}.{kind}.sql"
        return own if (ROOT / "docs" / "sql" / own).exists() else f"{question}.sql"


def live(world: World, days: int) -> None:
    """Runs that are skipped, repeated and overtaken, for so many days."""
    for _ in range(days):
        for account in world.accounts:
            world.live(account)
            if world.chance.random() < 0.8:
                for _ in range(world.chance.choice((1, 1, 2))):
                    world.load_all(account)
        world.pass_time(DAY)
    world.compare_questions()
    assert world.loads > days
    assert world.failed
