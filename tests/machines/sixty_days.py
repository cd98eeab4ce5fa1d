"""Days of a service with all that goes wrong with numbers, and an independent loader of what it says.

The loader is plain SQL over DB-API; it shares no code with the package. After each load, every number of the tables
equals that of the loader, or the load has failed and changed nothing.
"""

from __future__ import annotations

import datetime
import json
import random
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail._task.import_rows import UnstorableRecords
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.transfers.mail_to_object_storage import (
    MailContactsToObjectStorageOperator,
    MailStatsToObjectStorageOperator,
)
from airflow_provider_mail.version_compat import AirflowException
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.tables.events import EVENTS
from mail_emulator import Emulator
from tests.support.changes import around_requests, post
from tests.support.clock import Clock
from tests.tasks.loading import CAMPAIGN_STATS, LIST, TRANSACTIONAL_STATS, UTC, delete, executed, load_task
from tests.warehouse.conftest import Warehouse
from tests.warehouse.test_questions import shown

START = datetime.datetime(2026, 1, 1, 8, tzinfo=UTC)
DAY, MINUTE = datetime.timedelta(days=1), datetime.timedelta(minutes=1)
BACK = 10
"""Days that are read again."""
LIES = (0.0, 0.0, 0.05, -0.05, 24.0, -1.0, -15.0, -48.0, -400 * 24.0)
"""Hours by which a clock may be ahead."""
STATS, SNAPSHOTS, DAYS = "mail_campaign_stats", "mail_campaign_stats_snapshots", "mail_transactional_stats"
CAMPAIGNS = "mail_campaigns"

COUNTS = ("sent_count", "open_count", "click_count", "hard_bounce", "soft_bounce", "unsubscribe_count")
SUBJECTS = ("Sale", "News", "Hello", "Winter", "Shoes")
SCHEMA = f"""
CREATE TABLE stats (conn, team, name, sent_at, {", ".join(COUNTS)}, seen, gone, PRIMARY KEY (conn, team, name));
CREATE TABLE days (conn, team, day, seen, PRIMARY KEY (conn, team, day));
CREATE TABLE snapshots (
    conn, team, name, day, sent_at, {", ".join(COUNTS)}, seen, PRIMARY KEY (conn, team, name, day)
);
CREATE TABLE mails (conn, team, day, sent, seen, PRIMARY KEY (conn, team, day));
CREATE TABLE campaigns (conn, guid, team, name, subject, kind, gone, PRIMARY KEY (conn, guid));
CREATE TABLE people (conn, team, list, id, created);
CREATE TABLE stays (conn, team, list_id, id, since, until);
CREATE TABLE readings (conn, team, list_id, list, at, contacts);
"""


class Loader:
    """Keeps what the service said, row by row, by the time at which it was asked."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.connection.executescript(SCHEMA)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, values).fetchall()

    def stats(self, account: tuple[str, str], at: str, first: str, last: str, answer: list[tuple[Any, ...]]) -> None:
        """Rows of names, send times and counts, which are whole between the first and the last day."""
        read = dict(self.rows("SELECT day, seen FROM days WHERE conn = ? AND team = ?", *account))
        whole = {f"{day}" for day in between(first, last)}
        open_days = {day for day in whole if read.get(day, "") <= at}
        self.snapshots(account, at, answer)
        sets = ", ".join(f"{name} = excluded.{name}" for name in ("sent_at", *COUNTS, "seen"))
        for name, sent_at, *counts in answer:
            if sent_at[:10] in whole - open_days:
                continue
            self.rows(
                f"INSERT INTO stats VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL) ON CONFLICT DO UPDATE SET {sets}, "
                "gone = NULL WHERE coalesce(gone, seen) <= excluded.seen",
                *account, name, sent_at, *counts, at,
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
        sets = ", ".join(f"{name} = excluded.{name}" for name in ("sent_at", *COUNTS, "seen"))
        for name, sent_at, *counts in answer:
            self.rows(
                f"INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET {sets} "
                "WHERE seen <= excluded.seen",
                *account, name, at[:10], sent_at, *counts, at,
            )  # fmt: skip

    def mails(self, account: tuple[str, str], at: str, answer: dict[str, int]) -> None:
        for day, sent in answer.items():
            self.rows("INSERT OR REPLACE INTO mails VALUES (?, ?, ?, ?, ?)", *account, day, sent, at)

    def all_campaigns(self, conn_id: str, team: str, at: str, answer: list[tuple[Any, ...]]) -> None:
        """Rows of identifiers, names, subjects and types."""
        for guid, *values in answer:
            self.rows("INSERT OR REPLACE INTO campaigns VALUES (?, ?, ?, ?, ?, ?, NULL)", conn_id, guid, team, *values)
        for (guid,) in self.rows(
            "SELECT guid FROM campaigns WHERE conn = ? AND team = ? AND gone IS NULL", conn_id, team
        ):
            if guid not in {guid for guid, *_ in answer}:
                self.rows("UPDATE campaigns SET gone = ? WHERE conn = ? AND guid = ?", at, conn_id, guid)

    def contacts(
        self, account: tuple[str, str], at: str, name: str, list_id: str, people: dict[str, Any], alive: set[str]
    ) -> None:
        """People with the times of their creation, and the identifiers of all lists of the service."""
        self.rows("DELETE FROM people WHERE conn = ? AND team = ? AND list = ?", *account, name)
        for identifier, created in people.items():
            self.rows("INSERT INTO people VALUES (?, ?, ?, ?, ?)", *account, name, identifier, created)
        known = self.rows(
            "SELECT list_id, list, contacts, max(at) FROM readings WHERE conn = ? AND team = ? GROUP BY 1", *account
        )
        for other, its_name, size, _ in known:
            if its_name == name and size and other not in {*alive, list_id}:
                self._stays(account, at, name, other, set())
        if list_id in alive:
            self._stays(account, at, name, list_id, set(people))

    def _stays(self, account: tuple[str, str], at: str, name: str, list_id: str, ids: set[str]) -> None:
        of_list = (*account, list_id)
        open_stays = self.rows(
            "SELECT id FROM stays WHERE conn = ? AND team = ? AND list_id = ? AND until IS NULL", *of_list
        )
        here = {identifier for (identifier,) in open_stays}
        for identifier in here - ids:
            self.rows(
                "UPDATE stays SET until = ? WHERE conn = ? AND team = ? AND list_id = ? AND id = ? AND until IS NULL",
                at, *of_list, identifier,
            )  # fmt: skip
        for identifier in ids - here:
            self.rows("INSERT INTO stays VALUES (?, ?, ?, ?, ?, NULL)", *of_list, identifier, at)
        self.rows("INSERT INTO readings VALUES (?, ?, ?, ?, ?, ?)", *of_list, name, at, len(ids))


def between(first: str, last: str) -> Iterator[datetime.date]:
    """The days after the first and before the last one."""
    day = datetime.date.fromisoformat(first) + DAY
    while day < datetime.date.fromisoformat(last):
        yield day
        day += DAY


@dataclass
class Campaign:
    """What the service has of one."""

    sent_at: datetime.datetime
    counts: tuple[int, ...]
    subject: str
    kind: str
    guid: str = ""


@dataclass
class Account:
    """A team's account, with what its service has."""

    conn_id: str
    team: str
    service: Emulator
    campaigns: dict[str, Campaign] = field(default_factory=dict)
    used: list[str] = field(default_factory=list)
    lists: list[str] = field(default_factory=lambda: ["news", "vip"])
    left: set[str] = field(default_factory=set)
    """Names that no list has any more."""
    moved: set[str] = field(default_factory=set)
    """Names that belong to another list than before."""
    mails: dict[str, int] = field(default_factory=dict)
    files: dict[str, set[tuple[Any, ...]]] = field(default_factory=dict)
    """Campaigns of each day's file."""
    filed: dict[str, set[str]] = field(default_factory=dict)
    """Contacts of the last load of files, by list."""
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str]:
        return self.conn_id, self.team

    def run(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        """Run a statement in the database of the service, for what no operation does."""
        return self.service.service.store.rows(sql, values)

    def list_ids(self) -> dict[str, str]:
        return {row["name"]: f"{row['id']}" for row in self.run("SELECT name, id FROM lists")}

    def people(self, name: str) -> dict[str, str]:
        """The contacts of a list, with the times of their creation."""
        return {contact["id"]: contact["createDate"] for contact in self.service.contacts(name)}


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
            account.service.settings.team_name = account.team or "Marketing"
            account.service.add_list("news", count=60)
            account.service.add_list("vip", [f"news-{number}@example.com" for number in range(20)], count=40)

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
        self._live_campaigns(account)
        for day in range(self.chance.randint(0, 3)):
            key = f"{(self.now() - day * DAY).date()}"
            account.mails[key] = account.mails.get(key, 0) + self.chance.randint(1, 50)
            account.service.set_transactional_day(key, sentCount=account.mails[key])
        self._live_lists(account)
        self._live_events(account)

    def _live_campaigns(self, account: Account) -> None:
        chance, service, now = self.chance, account.service, self.now()
        for name, campaign in account.campaigns.items():
            if chance.random() < 0.5:  # late opens, and corrections down
                sent, opens, clicks, *rest = campaign.counts
                counts = sent, max(0, opens + chance.randint(-3, 40)), clicks + chance.randint(0, 5), *rest
                self._count(account, name, replace(campaign, counts=counts))
        if account.campaigns and chance.random() < 0.25:  # one is deleted, or renamed
            name = chance.choice(sorted(account.campaigns))
            campaign = account.campaigns.pop(name)
            told = service.clock.now()
            # By every clock that lies later, it is gone: the service lists what it deletes later.
            service.clock.set(START - 500 * DAY)
            service.set_campaign_state(name, "removed")
            service.clock.set(told)
            service.clock.freeze()
            # Names are unique.
            if chance.random() < 0.4 and f"{name} renamed" not in account.campaigns:
                self._send(account, f"{name} renamed", campaign)
        for _ in range(chance.randint(0, 3)):
            free = [name for name in account.used if name not in account.campaigns]
            again = free and chance.random() < 0.3
            name = chance.choice(free) if again else f"week {now:%m-%d} {chance.randrange(10**6)}"
            sent_at = (now - chance.randint(1, 20) * 60 * MINUTE).replace(microsecond=0)
            counts = chance.randint(100, 999), 0, 0, *(chance.randint(0, 9) for _ in range(3))
            kind = "ABTest" if chance.random() < 0.1 else "MailList"
            self._send(account, name, Campaign(sent_at, counts, chance.choice(SUBJECTS), kind))

    def _send(self, account: Account, name: str, campaign: Campaign) -> None:
        account.service.add_campaign(
            name, send_date=campaign.sent_at, sent=campaign.counts[0], subject=campaign.subject, type=campaign.kind
        )
        account.used.append(name)
        found = account.service.find_campaign(name)
        assert found
        self._count(account, name, replace(campaign, guid=found["guid"]))

    def _count(self, account: Account, name: str, campaign: Campaign) -> None:
        counters = "sentCount", "openCount", "clickCount", "hardBounce", "softBounce", "unsubscribeCount"
        account.service.set_campaign_stats(name, **dict(zip(counters, campaign.counts, strict=True)))
        account.campaigns[name] = campaign

    def _live_lists(self, account: Account) -> None:
        chance, service = self.chance, account.service
        for _ in range(chance.randint(0, 2)):
            lists = chance.choice([account.lists[:1], account.lists[1:], account.lists])
            service.add_contact(f"c{chance.randrange(10**9)}@example.com", lists=lists)
        if chance.random() < 0.5:
            delete(service, chance.choice(service.contacts(chance.choice(account.lists))))
        kind, name = chance.random(), chance.choice(account.lists)
        if kind < 0.06:  # renamed
            new = f"list {chance.randrange(10**6)}"
            account.run("UPDATE lists SET name = ? WHERE name = ?", new, name)
            account.lists[account.lists.index(name)] = new
            account.left.add(name)
        elif kind < 0.09:  # two swap their names
            first, second = account.lists
            for old, new in ((first, "between"), (second, first), ("between", second)):
                account.run("UPDATE lists SET name = ? WHERE name = ?", new, old)
            account.moved |= {first, second}
        elif kind < 0.13:  # made again, with some of its contacts
            kept = [contact["email"] for contact in service.contacts(name) if chance.random() < 0.8]
            post(service, "lists/delete", listName=name)
            service.add_list(name, kept)
            account.moved.add(name)

    def _live_events(self, account: Account) -> None:
        chance = self.chance
        codes = ("Delivered", "Bounced", "SpamReport", "Unsubscribed", "Dropped")
        guid = chance.choice([campaign.guid for campaign in account.campaigns.values()] or [None])
        people = [f"p{chance.randrange(12)}@Example.com" for _ in range(4)]
        for code, email in ((chance.choice(codes), email) for email in people):
            account.events.append({"event_code": code, "email": email, "guid": guid})
        if guid and chance.random() < 0.2:
            account.events += [{"event_code": "Delivered", "email": f"q{n}@x.com", "guid": guid} for n in range(120)]
        for number, event in enumerate(account.events):
            event.setdefault("triggered_time", self.now() + datetime.timedelta(seconds=number % 977))
            event.setdefault("unique_msg_id", f"{event['email'].lower()} {number // 2}")

    def load_events(self) -> None:
        common = {"raw": {}, "received_at": self.now(), "push_id": 1, "push_index": 0}
        for number, account in enumerate(self.accounts):
            common["mail_conn_id"] = account.conn_id
            rows = [
                {
                    **common,
                    "event_id": f"{number} {place}",
                    "mail_name": event["guid"] and f"of {event['guid']}",
                    **event,
                }
                for place, event in enumerate(account.events)
            ]
            self.warehouse.load(EVENTS, [tuple(map(row.get, EVENTS.names)) for row in rows], "mail_events")

    # Loads

    def load_all(self, account: Account) -> None:
        self.connect(account.conn_id, account.service, account.team)
        for load in (self.load_stats, self.load_mails, self.load_campaigns, self.load_lists):
            self.lie()
            load(account)
            self.compare()
            self.pass_time(MINUTE)
        if self.chance.random() < 0.4:
            for write in (self.write_days, self.write_contacts):
                self.lie()
                write(account)
                self.pass_time(MINUTE)

    def _run(self, table: str, disturbance: Any, **arguments: Any) -> bool:
        """Run a load; return whether it was green."""
        return self.executed(disturbance, lambda: executed(load_task(table, **arguments)))

    def executed(self, disturbance: Any, task: Callable[[], Any]) -> bool:
        self.loads += 1
        try:
            with disturbance:
                self._connecting(task)
        except (MailError, WarehouseError, AirflowException, *self.more_errors) as error:
            self.failed, self.error = self.failed + 1, error
            return False
        return True

    def _connecting(self, task: Callable[[], Any]) -> Any:
        """Do it again if the machine was too slow to connect to the database: that says nothing about numbers."""
        for _ in range(9):
            try:
                return task()
            except Exception as error:
                if not re.search("connect to|connection timeout", f"{error}", re.IGNORECASE):
                    raise
        return task()

    more_errors: tuple[type[Exception], ...] = ()

    def _window(self) -> dict[str, str]:
        today = self.now().date()
        return {"start_day": f"{today - BACK * DAY}", "end_day": f"{today + DAY}"}

    def answer(self, account: Account, first: str, last: str) -> list[tuple[Any, ...]]:
        return [
            (name, campaign.sent_at.isoformat(), *campaign.counts)
            for name, campaign in account.campaigns.items()
            if first <= f"{campaign.sent_at.date()}" <= last
        ]

    def load_stats(self, account: Account) -> None:
        window, kind = self._window(), self.chance.random()
        days = window["start_day"], window["end_day"]
        answer, at = self.answer(account, *days), self.text()
        disturbance: Any = nullcontext()
        if kind < 0.15:
            disturbance = self.short(account, CAMPAIGN_STATS, self.stored_names(self.loader, account, *days))
        elif kind < 0.35 and not self.overtaking:  # another run overtakes this one
            disturbance = self._overtaken(account)
        if self._run(SNAPSHOTS, disturbance, **window, mail_conn_id=account.conn_id):
            if self.loader.lacking(account.key, at, *days, answer):  # then it has read again, and adds what came since
                answer += [row for row in self.answer(account, *days) if row[0] not in {name for name, *_ in answer}]
            self.loader.stats(account.key, at, *days, answer)
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
                    self._live_campaigns(account)
                    self.load_stats(account)
                    self.pass_time(MINUTE)
                return store(*arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(UnstorableRecords, "load", overtaken)
            yield
        self.overtaking = False

    def stored_names(self, loader: Loader, account: Account, first: str, last: str) -> set[str]:
        """The campaigns that the service has as a loader has stored them."""
        days = {f"{day}" for day in between(first, last)}
        stored = loader.rows("SELECT name, sent_at FROM stats WHERE conn = ? AND team = ?", *account.key)
        return {name for name, sent_at in stored if sent_at[:10] in days and name in account.campaigns
                and account.campaigns[name].sent_at.isoformat() == sent_at}  # fmt: skip

    @contextmanager
    def short(self, account: Account, path: str, names: set[str]) -> Iterator[None]:
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

    def mails_of(self, account: Account, days: Iterable[datetime.date]) -> dict[str, int]:
        shown_until = f"{account.service.clock.now().date()}"  # the service lists no empty day that is ahead
        answer = {f"{day}": account.mails.get(f"{day}", 0) for day in days}
        return {day: sent for day, sent in answer.items() if day <= shown_until or day in account.mails}

    def zeros(self, account: Account, loader: Loader, answer: Iterable[str]) -> Any:
        """Now and then, the service forgets what was sent on the days that are stored; ``None`` otherwise."""
        stored = dict(loader.rows("SELECT day, sent FROM mails WHERE conn = ? AND team = ?", *account.key))
        zeros = [day for day in answer if stored.get(day)] if self.chance.random() < 0.15 else []

        def around(perform: Callable[[], Any]) -> Any:
            response = perform()
            for record in response.payload["mailStatsList"]:
                if record["statsDate"] in zeros:
                    record["sentCount"] = 0
            return response

        return around_requests(account.service, TRANSACTIONAL_STATS, around) if zeros else None

    def load_mails(self, account: Account) -> None:
        window = self._window()
        first, last = (datetime.date.fromisoformat(day) for day in window.values())
        answer, at = self.mails_of(account, [first, *between(*window.values()), last]), self.text()
        zeros = self.zeros(account, self.loader, answer)
        if self._run(DAYS, zeros or nullcontext(), **window, mail_conn_id=account.conn_id):
            self.loader.mails(account.key, at, answer)
        elif not zeros:
            raise AssertionError("a load of whole days has failed") from self.error

    def load_campaigns(self, account: Account) -> None:
        conn_id, team, at = account.conn_id, account.service.settings.team_name, self.text()
        answer = self.campaigns_of(account)
        if not self._run(CAMPAIGNS, nullcontext(), mail_conn_id=conn_id):
            assert self.is_large_loss(self.loader, conn_id, team, answer), self.error
            if not answer:  # no permission: the team is not known
                return
            permission = {"max_removed_fraction": 1, "allow_empty": True}
            assert self._run(CAMPAIGNS, nullcontext(), mail_conn_id=conn_id, **permission), self.error
        self.loader.all_campaigns(conn_id, team, at, answer)

    def campaigns_of(self, account: Account) -> list[tuple[Any, ...]]:
        return [(one.guid, name, one.subject, one.kind) for name, one in account.campaigns.items()]

    def is_large_loss(self, loader: Loader, conn_id: str, team: str, answer: list[tuple[Any, ...]]) -> bool:
        known = loader.rows("SELECT guid FROM campaigns WHERE conn = ? AND team = ? AND gone IS NULL", conn_id, team)
        return not answer or (len(known) >= 10 and len({*known} - {row[:1] for row in answer}) > len(known) / 10)

    def load_lists(self, account: Account) -> None:
        for name in [*account.lists]:
            self.load_contacts(account, name)
        for name in sorted(account.left):
            if self.load_contacts(account, name, allow_empty=True):
                account.left.discard(name)

    def load_contacts(self, account: Account, name: str, **arguments: Any) -> bool:
        people, ids = account.people(name), account.list_ids()
        stored = self.loader.rows("SELECT id FROM people WHERE conn = ? AND team = ? AND list = ?", *account.key, name)
        known = {identifier for (identifier,) in stored} & people.keys()
        is_short = bool(known) and name not in account.moved and self.chance.random() < 0.15
        disturbance: Any = self.short(account, LIST, known) if is_short else nullcontext()
        if name in account.moved:
            arguments["max_removed_fraction"] = 1
        at = self.text()
        given = {"mail_conn_id": account.conn_id, "list_name": name, "history": True, **arguments}
        if not self._run("mail_contacts", disturbance, **given):
            if not is_short:
                raise AssertionError("a load of a whole list has failed") from self.error
            return False
        self.loader.contacts(account.key, at, name, ids.get(name, ""), people, set(ids.values()))
        account.moved.discard(name)
        return True

    # Files

    def write_days(self, account: Account) -> None:
        """Write the last days; a failed task leaves each file as it was, or as it should be."""
        days = [f"{(self.now() - back * DAY).date()}" for back in range(4)]
        answer = {
            day: {(name, *one.counts) for name, one in account.campaigns.items() if f"{one.sent_at.date()}" == day}
            for day in days
        }
        here = {name for rows in answer.values() for name, *_ in rows}
        names = {name for day in days for name, *_ in account.files.get(day, ())} & here
        is_short = self.chance.random() < 0.3 and names
        disturbance: Any = self.short(account, CAMPAIGN_STATS, names) if is_short else nullcontext()
        folder = self.folder / f"{account.conn_id}-{account.team}" / "days"
        is_green = self.executed(
            disturbance,
            lambda: executed(MailStatsToObjectStorageOperator(
                task_id="write", mail_conn_id=account.conn_id, path=f"file://{folder}", file_format="jsonl",
                start_day=days[-1], end_day=days[0], allow_empty=True,
            )),
        )  # fmt: skip
        if not is_green and not is_short:
            raise AssertionError("files of a whole answer have failed") from self.error
        for day in days:
            lines = [line for file in folder.glob(f"*={day}/*.jsonl") for line in file.read_text().splitlines()]
            found = {(row["mail_name"], *(row[name] for name in COUNTS)) for row in map(json.loads, lines)}
            right = [answer[day]] if is_green else [answer[day], account.files.get(day, set())]
            assert found in right, (day, found, right)
            account.files[day] = found

    def write_contacts(self, account: Account) -> None:
        for name in account.lists:
            ids, filed = {*account.people(name)}, account.filed.get(name, set())
            is_short = self.chance.random() < 0.3 and filed & ids
            disturbance: Any = self.short(account, LIST, filed & ids) if is_short else nullcontext()
            folder = self.folder / f"{account.conn_id}-{account.team}" / name
            # Those of a list that was made again still exist.
            is_other = len(filed - ids) > 1
            given: dict[str, Any] = {"max_removed_fraction": 1} if is_other and not is_short else {}
            is_green = self.executed(
                disturbance,
                lambda name=name, folder=folder, given=given: executed(MailContactsToObjectStorageOperator(
                    task_id="write", mail_conn_id=account.conn_id, path=f"file://{folder}", file_format="jsonl",
                    list_name=name, **given,
                )),
            )  # fmt: skip
            if is_green:
                account.filed[name] = ids
            elif not is_short and not filed - ids:
                raise AssertionError("a file of a whole list has failed") from self.error
            if loads := sorted(file.parent for file in folder.glob("*/_SUCCESS")):
                lines = [line for file in loads[-1].glob("*.jsonl") for line in file.read_text().splitlines()]
                assert {json.loads(line)["id"] for line in lines} == account.filed[name]

    # Comparison

    def _same(self, ours: str, theirs: str) -> None:
        expected, found = self.loader.rows(theirs), []
        try:
            found = self._connecting(lambda: self.warehouse.query(ours))
        except Exception:
            if expected:  # otherwise the table is not there before the first load
                raise
        ours_, theirs_ = ({tuple(map(shown, row)) for row in rows} for rows in (found, expected))
        assert (len(found), ours_) == (len(expected), theirs_), (
            f"{ours}: the tables have {ours_ - theirs_}, and should have {theirs_ - ours_}"
        )

    def compare(self) -> None:
        account, counts = "mail_conn_id, team_name", ", ".join(COUNTS)
        gone = "CASE WHEN gone_at IS NULL THEN 0 ELSE 1 END"
        self._same(
            f"SELECT {account}, mail_name, mail_send_date, {counts}, {gone} FROM {STATS}",
            f"SELECT conn, team, name, sent_at, {counts}, gone IS NOT NULL FROM stats",
        )
        self._same(
            f"SELECT {account}, mail_name, observed_day, mail_send_date, {counts} FROM {SNAPSHOTS}",
            f"SELECT conn, team, name, day, sent_at, {counts} FROM snapshots",
        )
        self._same(f"SELECT {account}, stats_date, sent_count FROM {DAYS}", "SELECT conn, team, day, sent FROM mails")
        self._same(
            f"SELECT {account}, guid, mail_name, subject, task_type, {gone} FROM {CAMPAIGNS}",
            "SELECT conn, team, guid, name, subject, kind, gone IS NOT NULL FROM campaigns",
        )
        self._same(
            f"SELECT {account}, list_name, id, create_date FROM mail_contacts",
            "SELECT conn, team, list, id, created FROM people",
        )
        self._same(
            f"SELECT {account}, list_id, list_name, contacts FROM mail_contacts_history_readings",
            "SELECT conn, team, list_id, list, contacts FROM readings",
        )
        self._same(
            f"SELECT {account}, list_id, COUNT(DISTINCT valid_from), COUNT(DISTINCT valid_to) "
            f"FROM mail_contacts_history GROUP BY {account}, list_id",
            "SELECT conn, team, list_id, count(DISTINCT since), count(DISTINCT until) FROM stays "
            "GROUP BY conn, team, list_id",
        )
        self._same(
            f"SELECT {account}, list_id, id, COUNT(*), SUM(CASE WHEN valid_to IS NULL THEN 1 ELSE 0 END) "
            f"FROM mail_contacts_history GROUP BY {account}, list_id, id",
            "SELECT conn, team, list_id, id, count(*), sum(until IS NULL) FROM stays GROUP BY conn, team, list_id, id",
        )
        self._same(
            f"SELECT {account}, part FROM mail_loads WHERE table_name = '{STATS}'", "SELECT conn, team, day FROM days"
        )


def live(
    world: World,
    days: int,
    beside: Callable[[Account], None] = lambda account: None,
    halfway: Callable[[World], object] = lambda world: None,
) -> None:
    """Runs that are skipped, repeated and overtaken, for so many days.

    :param beside: called after the loads of an account.
    :param halfway: called after half of the days.
    """
    for day in range(days):
        if day == days // 2:
            halfway(world)
        for account in world.accounts:
            world.live(account)
            if world.chance.random() < 0.8:
                for _ in range(world.chance.choice((1, 1, 2))):
                    world.load_all(account)
                beside(account)
        world.pass_time(DAY)
    assert world.loads > days
    assert world.failed
