"""Who was mailed what: tables in the user's database that decide, before each request, who still may get a mail.

A mail belongs to a request, whose row tells whether it was sent. Requests are reserved many at once, which few
statements do; each is begun right before it is sent, and until then its people are free, so that nobody is left out
after a crash. The key of a mail is unique, and transactions take turns, so that of two tasks that mail one person at
once only one does.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import compress, count, groupby, repeat
from logging import getLogger
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from airflow_provider_mail._audience.alerts import Alerts
from airflow_provider_mail._audience.sealing import AudienceKey
from airflow_provider_mail._config import setting
from airflow_provider_mail._task.at_most_once import Mailing
from airflow_provider_mail._task.state import TaskState
from airflow_provider_mail._task.storage import check_tables
from airflow_provider_mail.api._core.fields import address_key
from airflow_provider_mail.api._core.pacing import infrequent_gc
from airflow_provider_mail.api.errors import MailAmbiguousSendError, MailConfigError, MailError
from airflow_provider_mail.api.transactional import Chunk, unique_msg_id
from airflow_provider_mail.version_compat import knows_variables, store_variable, stored_variable
from airflow_provider_mail.warehouse.database import (
    LoadRequest,
    Source,
    StoredTable,
    TableName,
    configured_hook,
    load,
    stream_rows,
)
from airflow_provider_mail.warehouse.table import derived_name
from airflow_provider_mail.warehouse.tables.imports import MEMORY, MEMORY_REQUESTS

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

log = getLogger(__name__)

T = TypeVar("T")

VARIABLE = "mail_memory"

RESERVED, INTENDED, SENT, IN_DOUBT, NOT_SENT = "reserved", "intended", "sent", "in doubt", "not sent"
FREE = (RESERVED, NOT_SENT)
"""The states of requests whose people have had no mail; others may mail them."""

Verdict: TypeAlias = Literal["new", "sent", "doubt", "already", "capped"]
"""``new``: may be mailed; ``sent`` and ``doubt``: by an earlier try of this task; ``already``: by another task or run,
also if that is in doubt, or by this try; ``capped``: had as many mails as ``at_most`` allows."""

Reserved: TypeAlias = tuple[str, str]
"""Person and key."""

Change: TypeAlias = tuple[int, str, list[Reserved] | None]
"""The new state of a request; or of some of its mails, which become a request of their own."""

_PAIRS = 100
"""So many people with a key each are in one condition."""

_NUMBERS = 1_000
"""So many requests may be reserved in one transaction."""

_MAX_AHEAD = 200
"""So many requests are reserved at once: their people are found and stored in few statements."""

_MAX_AHEAD_RECIPIENTS, _MAX_AHEAD_BYTES = 20_000, 8_000_000

_AHEAD_SECONDS = 60
"""How long before its request a mail may have been reserved."""

CREATE = "it with `airflow mail memory create` (before Airflow 3.2: python -m airflow_provider_mail ...)"


@dataclass(frozen=True, slots=True)
class Cap:
    """At most so many mails in any window of so many seconds."""

    count: int
    seconds: int

    @classmethod
    def of(cls, at_most: tuple[int, timedelta] | None) -> Cap | None:
        return at_most and cls(at_most[0], int(at_most[1].total_seconds()))

    def allows(self, times: Iterable[int], at: int) -> bool:
        inside = sorted([at, *(time for time in times if abs(time - at) < self.seconds)])
        return all(last - first >= self.seconds for first, last in zip(inside, inside[self.count :], strict=False))


class _Mail(NamedTuple):
    """A mail to a person, as the memory has it."""

    request: int
    at: int
    state: str
    task: str

    @property
    def counts(self) -> bool:
        return self.state not in FREE


class Memory:
    """The tables of one database.

    :param table: its name, optionally with its schema.
    """

    def __init__(self, hook: DbApiHook, table: str, key: AudienceKey) -> None:
        check_tables(hook, {"[mail] memory_table": table})
        self._hook, self._key = hook, key
        self._names = {MEMORY: table, MEMORY_REQUESTS: derived_name(table, "_requests")}
        tables = [StoredTable(hook, declared, name) for declared, name in self._names.items()]
        self._tables, (self._people, self._requests) = tables, (each.spelled for each in tables)
        self.place = f"table {table} of connection {hook.get_conn_id()!r}"
        self.alerts = Alerts(hook, derived_name(table, "_alerts"), key)

    @classmethod
    def configured(cls) -> Memory | None:
        """Return the memory of Airflow's configuration; ``None`` if none is configured.

        :raises MailConfigError: there is no such database.
        """
        if not (conn_id := setting("memory_conn_id")):
            return None
        hook = configured_hook("memory_conn_id", conn_id)
        return cls(hook, setting("memory_table"), AudienceKey.of_deployment())

    @classmethod
    def needed_by(cls, task: Any) -> Memory | None:
        """Return the memory of a task with the arguments ``once_per`` and ``at_most``.

        :raises MailConfigError: none is configured, and one of them is given.
        """
        memory = cls.configured()
        for name in ("once_per", "at_most"):
            if memory is None and getattr(task, name) is not None:
                raise MailConfigError(
                    f"{name}: there is no memory of who was mailed what; set [mail] memory_conn_id to the "
                    "connection of a database (AIRFLOW__MAIL__MEMORY_CONN_ID). Nothing was sent"
                )
        return memory

    def create(self) -> None:
        """Create the tables, unless they exist. Tasks do not: a table that was lost would mail everybody again."""
        first = {MEMORY: ("", "", 0), MEMORY_REQUESTS: (0, self._key.people(b"")[0], 0, uuid.uuid4().hex[:10])}
        for table, name in self._names.items():
            load(self._hook, LoadRequest(table, TableName.parse(name), Source([first[table]])))
        self.alerts.create()

        def work(execute: Callable[..., Any]) -> None:
            # A backup of one of them: what one lacks is not numbered again.
            turns, of_people, newest = self._turns(lambda sql: execute(sql, reads=True))
            turn, mark = max(turns, of_people, newest), self._hook.placeholder
            execute(f"UPDATE {self._requests} SET mailed_at = {mark} WHERE request = 0", [turn])
            execute(f"UPDATE {self._people} SET request = {mark} WHERE person = '' AND mail_key = ''", [turn])

        self._transaction(work)

    def check(self) -> None:
        """Check that the tables can be trusted.

        :raises MailConfigError: one is missing, or the people are hidden by another secret.
        """
        problem = ""
        # Before the table is read: another task may use it meanwhile.
        known = self._known_turns() if knows_variables() else {}
        if not all(table.existing_columns() for table in self._tables):
            problem = f"{self.place} does not exist. If it never did, create {CREATE}. If it was lost, restore it"
        elif not (rows := self._first_row()) or not (turns := self._turns(self._read)):
            problem = f"{self.place} lacks its first row. If rows were deleted by hand, restore them; create {CREATE}"
        elif rows[0][0] not in self._key.people(b""):
            problem = (
                f"the people in {self.place} are hidden by another secret: give [mail] audience_key, or [core] "
                "fernet_key, its former value, too"
            )
        elif turns[0] < max(turns[1], known.get(rows[0][1], 0)) or turns[1] < turns[2]:
            problem = (
                f"{self.place} is older than when a task last wrote it: a backup was restored. Restore a newer one, or "
                f"accept {CREATE}"
            )
        if problem:
            raise MailConfigError(f"[mail] memory_conn_id: {problem}. Nothing was sent")

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Use one connection; at the end, Airflow knows how new the table is at least."""
        with self._tables[0].kept_open():
            try:
                yield
            finally:
                if knows_variables():
                    self.accept()

    def _transaction(self, work: Callable[[Callable[..., Any]], T]) -> T:
        return self._tables[0].transaction(work)

    def _read(self, sql: str, parameters: Sequence[Any] | None = None) -> list[Any]:
        with stream_rows(self._hook, sql, parameters) as (_, batches):
            return [row for batch in batches for row in batch]

    def _first_row(self) -> list[Any]:
        """A digest of the secret, and the id of the table."""
        return self._read(f"SELECT task, state FROM {self._requests} WHERE request = 0")

    def _turns(self, read: Callable[[str], list[Any]]) -> list[int]:
        """Return the numbers of transactions by the first rows of both tables, and that of the newest request; empty if
        a first row is missing."""
        rows = read(
            f"SELECT locked.mailed_at, people.request, (SELECT MAX(request) FROM {self._requests}) "
            f"FROM {self._requests} AS locked, {self._people} AS people "
            "WHERE locked.request = 0 AND people.person = '' AND people.mail_key = ''"
        )
        return [number for turns, of_people, newest in rows for number in (turns, of_people, newest // _NUMBERS)]

    def _known_turns(self) -> dict[str, int]:
        """By the id of each table, its transactions when a task last used it; empty if that cannot be read."""
        try:
            known = json.loads(stored_variable(VARIABLE) or "{}")
            return {table: int(turns) for table, turns in known.items()}
        except Exception as error:
            log.warning("The Variable %r could not be read: %s", VARIABLE, type(error).__name__)
            return {}

    def accept(self) -> None:
        """Store that the table is not older than it should be."""
        try:
            turns, *_ = self._turns(self._read)
            known = json.dumps(self._known_turns() | {self._first_row()[0][1]: turns})
            store_variable(VARIABLE, known, "How new the memory of mails is at least")
        except Exception as error:
            log.warning("The Variable %r was not stored: %s", VARIABLE, type(error).__name__)

    def reserve(
        self,
        groups: Sequence[Sequence[tuple[str, str]]],
        *,
        task: str,
        at: int | None = None,
        cap: Cap | None = None,
        changes: Sequence[Change] = (),
        own: Container[int] = (),
        begun: int = 1,
    ) -> list[tuple[int, list[tuple[Verdict, Reserved]]]]:
        """Decide about the mails of requests, and store those that may be sent, in one transaction.

        The first requests with such mails are begun; for the further ones, call :meth:`begin` right before them. Until
        then their people are free: who mails one of them takes all of the request away.

        :param groups: for each request, the address and the key of each mail.
        :param task: who sends them.
        :param at: when they will be sent, in seconds since 1970. Default: now.
        :param changes: what has become of earlier requests.
        :param own: earlier requests of this try.
        :param begun: how many of those with such mails are begun.
        :return: for each request, its number, and the verdict about each mail.
        """
        digests = {address: self._key.people(address.encode()) for group in groups for address, _ in group}

        def work(execute: Callable[..., Any]) -> list[tuple[int, list[tuple[Verdict, Reserved]]]]:
            numbers = self._take_turn(execute)
            self._apply(execute, changes, numbers)
            now = self._tables[0].now(execute)
            moment = max(at or now, now)
            keys = {key for group in groups for _, key in group}
            found = self._found(execute, [person for each in digests.values() for person in each], keys, cap, moment)
            repeats = len(digests) < sum(map(len, groups))
            result: list[tuple[int, list[tuple[Verdict, Reserved]]]] = []
            requests: list[tuple[int, str, int, str]] = []
            inserted: list[tuple[str, str, int]] = []
            moved: dict[int, list[Reserved]] = {}
            taken: set[int] = set()
            for group, number in zip(groups, numbers, strict=False):
                verdicts: list[tuple[Verdict, Reserved]] = []
                new = _Mail(number, moment, INTENDED, "")
                for address, key in group:
                    people = digests[address]
                    holder, before, known = people[0], None, {}
                    verdict: Verdict = "new"
                    if found and (known := {person: found[person] for person in people if person in found}):
                        holder = next((person for person in known if key in known[person]), holder)
                        before = known.get(holder, {}).get(key)
                        others = [mail for each in known.values() for mail in each.values()]
                        if before and before.counts:
                            verdict = "sent" if before.state == SENT else "doubt"
                            if before.task != task or before.request in own:
                                verdict = "already"
                        elif cap and not cap.allows((mail.at for mail in others if mail.counts), moment):
                            verdict = "capped"
                        else:
                            taken.update(mail.request for mail in others if mail.state == RESERVED)
                    if verdict == "new":
                        if before:
                            moved.setdefault(number, []).append((holder, key))
                        else:
                            inserted.append((holder, key, number))
                        if repeats:
                            found.setdefault(holder, {})[key] = new
                    verdicts.append((verdict, (holder, key)))
                result.append((number, verdicts))
                if _may_go(verdicts):
                    requests.append((number, task, moment, INTENDED if len(requests) < begun else RESERVED))
            self._set_state(execute, taken, NOT_SENT, RESERVED)
            self._tables[1].insert(execute, requests)
            self._insert(execute, inserted)
            for number, mails in moved.items():
                self._move(execute, mails, number)
            return result

        return self._transaction(work)

    def _found(
        self, execute: Callable[..., Any], people: Sequence[str], keys: Collection[str], cap: Cap | None, moment: int
    ) -> dict[str, dict[str, _Mail]]:
        """Return the mails to people that matter for a decision, by person and key."""
        if not people:
            return {}
        mark = self._hook.placeholder
        among, values = self._tables[0].among("mails.person", people)
        # In a task mapped by content, each mail has a key of its own.
        key = commonprefix([*keys])  # noqa: RUF071 - of characters
        condition = f"mails.mail_key = {mark}"
        if len(keys) > 1:
            condition = f"SUBSTR(mails.mail_key, 1, {len(key)}) = {mark}"
        parameters: list[Any] = [*values, key]
        condition += f" OR requests.state = '{RESERVED}'"
        if cap is not None:
            condition += f" OR (requests.mailed_at > {mark} AND requests.mailed_at < {mark})"
            parameters += [moment - cap.seconds, moment + cap.seconds]
        found: dict[str, dict[str, _Mail]] = {}
        for person, mail_key, request, at, state, task in execute(
            "SELECT mails.person, mails.mail_key, mails.request, requests.mailed_at, requests.state, requests.task "
            f"FROM {self._people} AS mails LEFT JOIN {self._requests} AS requests "
            f"ON requests.request = mails.request WHERE {among} AND ({condition})",
            parameters,
            reads=True,
        ):
            # Without its request, as after a backup of one table, it was sent.
            found.setdefault(person, {})[mail_key] = _Mail(request, int(at or 0), state or SENT, task or "")
        return found

    def _insert(self, execute: Callable[..., Any], mails: Sequence[tuple[str, str, int]]) -> None:
        if len({key for _, key, _ in mails}) > 1 or not self._tables[0].knows_words:
            self._tables[0].insert(execute, sorted(mails))
        elif mails:
            digits = len(mails[0][0])
            columns = {
                "person": f"SUBSTR(word, 1, {digits})",
                "mail_key": self._hook.placeholder,
                "request": f"CAST(SUBSTR(word, {digits + 1}) AS BIGINT)",
            }
            words = sorted([f"{person}{request}" for person, _, request in mails])
            self._tables[0].insert_words(execute, columns, [mails[0][1]], words)

    def begin(self, requests: Collection[int], changes: Sequence[Change] = ()) -> bool:
        """Store that reserved requests are sent now; if some mails are no longer reserved for them, release them all.

        :param changes: what has become of earlier requests; stored in any case.
        :return: whether they may be sent.
        """

        def work(execute: Callable[..., Any]) -> bool:
            self._apply(execute, changes, self._take_turn(execute))
            if self._set_state(execute, requests, INTENDED, RESERVED) == len(requests):
                return True
            self._set_state(execute, requests, NOT_SENT)
            return False

        return self._transaction(work)

    def write(self, changes: Sequence[Change]) -> None:
        """Store what has become of requests."""
        self._transaction(lambda execute: self._apply(execute, changes, self._take_turn(execute)))

    def _apply(self, execute: Callable[..., Any], changes: Sequence[Change], numbers: Iterator[int]) -> None:
        mark = self._hook.placeholder
        for (state, is_whole), some in groupby(changes, key=lambda change: (change[1], change[2] is None)):
            if is_whole:
                self._set_state(execute, [request for request, _, _ in some], state)
                continue
            for request, _, mails in some:
                number = next(numbers)
                execute(
                    f"INSERT INTO {self._requests} (request, task, mailed_at, state) SELECT {number}, task, mailed_at, "
                    f"'{state}' FROM {self._requests} WHERE request = {mark}",
                    [request],
                )
                self._move(execute, mails or (), number)

    def _set_state(self, execute: Callable[..., Any], requests: Collection[int], state: str, before: str = "") -> int:
        if not requests:
            return 0
        condition = f"request IN ({', '.join(map(str, requests))})" + (f" AND state = '{before}'" if before else "")
        return int(execute(f"UPDATE {self._requests} SET state = '{state}' WHERE {condition}"))

    def _move(self, execute: Callable[..., Any], mails: Sequence[Reserved], request: int) -> None:
        """Store that mails belong to another request."""
        mark, change = self._hook.placeholder, f"UPDATE {self._people} SET request = {request} WHERE"
        if len(keys := {key for _, key in mails}) == 1:
            among, people = self._tables[0].among("person", [person for person, _ in mails])
            execute(f"{change} mail_key = {mark} AND {among}", [*keys, *people])
            return
        for start in range(0, len(mails), _PAIRS):
            some = mails[start : start + _PAIRS]
            condition = " OR ".join([f"(person = {mark} AND mail_key = {mark})"] * len(some))
            execute(f"{change} {condition}", [value for mail in some for value in mail])

    def schedule(self, imports: Mapping[str, Cap | None], *, at: int) -> None:
        """Store when the campaign goes out for which imports have reserved mails.

        :param imports: the cap by which each has decided, by its task and run.
        :raises MailConfigError: at that time people would get more than their cap; nothing is stored.
        """
        mark = self._hook.placeholder

        def work(execute: Callable[..., Any]) -> int:
            self._take_turn(execute)
            capped = 0
            reserved: set[int] = set()
            for task, cap in imports.items():
                times: dict[str, list[int]] = {}
                seconds = cap.seconds if cap else 0
                for person, request, state, mailed_at in execute(
                    f"SELECT other.person, other.request, others.state, others.mailed_at FROM {self._requests} AS owns "
                    f"JOIN {self._people} AS own ON own.request = owns.request "
                    f"JOIN {self._people} AS other ON other.person = own.person AND other.mail_key <> own.mail_key "
                    f"JOIN {self._requests} AS others ON others.request = other.request "
                    f"WHERE owns.task = {mark} AND owns.state = '{INTENDED}' AND (others.state = '{RESERVED}' OR "
                    f"others.state <> '{NOT_SENT}' AND others.mailed_at > {mark} AND others.mailed_at < {mark})",
                    [task, at - seconds, at + seconds],
                    reads=True,
                ):
                    if state == RESERVED:
                        reserved.add(request)
                    else:
                        times.setdefault(person, []).append(int(mailed_at))
                capped += sum(cap is not None and not cap.allows(others, at) for others in times.values())
            if not capped:
                # The mails were reserved because this campaign had another time.
                self._set_state(execute, reserved, NOT_SENT, RESERVED)
                for task in imports:
                    execute(
                        f"UPDATE {self._requests} SET mailed_at = {mark} WHERE task = {mark} AND state = '{INTENDED}'",
                        [at, task],
                    )
            return capped

        if capped := self._transaction(work):
            raise MailConfigError(
                f"send_date: {capped} people of the audience have other mails around that time, so that they would get "
                "more than at_most of the import allows. Choose another send_date, then clear the task. No campaign "
                "was created"
            )

    def mark_sent(self, imports: Iterable[str]) -> None:
        """Store that the service has accepted the campaign for which imports, by their task and run, reserved mails."""
        for task in imports:
            self._tables[1].update({"task": task, "state": INTENDED}, {"state": SENT})

    def _take_turn(self, execute: Callable[..., Any]) -> Iterator[int]:
        """Wait for other transactions; return numbers for new requests."""
        # All transactions that decide change this row, so that they take turns.
        execute(f"UPDATE {self._requests} SET mailed_at = mailed_at + 1 WHERE request = 0")

        def numbers() -> Iterator[int]:
            ((turn,),) = execute(f"SELECT mailed_at FROM {self._requests} WHERE request = 0", reads=True)
            execute(f"UPDATE {self._people} SET request = {turn} WHERE person = '' AND mail_key = ''")
            yield from count(_NUMBERS * int(turn))

        return numbers()

    def release(self, task: str) -> int:
        """Delete the mails of a task and its run, which were not sent; return their number."""
        return self._delete("task =", task)

    def of(self, email: str) -> list[dict[str, Any]]:
        """Return the mails of a person, the latest first."""
        columns = ("mail_key", "mailed_at", "state", "task")
        rows = [
            dict(zip(columns, row, strict=True))
            for person in self._key.people(address_key(email).encode())
            for row in self._read(
                f"SELECT {', '.join(columns)} FROM {self._people} AS mails JOIN {self._requests} AS requests "
                f"ON requests.request = mails.request WHERE person = {self._hook.placeholder} AND state NOT IN {FREE}",
                [person],
            )
        ]
        return sorted(rows, key=lambda row: -int(row["mailed_at"]))

    def forget(self, email: str) -> int:
        """Delete the mails of a person, who may then get them again; return their number."""
        people = self._key.people(address_key(email).encode())
        return self._tables[0].delete([{"person": person} for person in people])

    def delete_before(self, moment: int) -> int:
        """Delete the mails before a time, in seconds since 1970; return their number."""
        return self._delete("mailed_at <", moment)

    def _delete(self, condition: str, value: Any) -> int:
        which = f"{condition} {self._hook.placeholder} AND request > 0"

        def work(execute: Callable[..., Any]) -> int:
            self._take_turn(execute)
            selected = f"SELECT request FROM {self._requests} WHERE {which}"
            mails = execute(f"DELETE FROM {self._people} WHERE person <> '' AND request IN ({selected})", [value])
            execute(f"DELETE FROM {self._requests} WHERE {which}", [value])
            return int(mails)

        return self._transaction(work)


_Wanted: TypeAlias = tuple[Chunk, list[tuple[str, str]]]
"""A request, and the address and the key of each of its mails."""


@dataclass
class _Sent:
    """A request that was begun.

    :param mails: that were not settled yet.
    :param doubtful: those that an earlier try may have sent, by a request of its own.
    """

    request: int
    mails: list[Reserved]
    doubtful: list[Reserved]


@dataclass
class RememberedMailing(Mailing):
    """A mailing whose record is the memory: who gets a mail is decided for each person, right before the request.

    :param task: who sends: the task and its run.
    :param once_per: the key under which a person gets one mail. Default: ``task``.
    :param by_content: whether one person may get several mails under one key, if their contents differ.
    """

    memory: Memory = field(kw_only=True)
    task: str = field(kw_only=True)
    once_per: str | None = None
    by_content: bool = False
    cap: Cap | None = None

    def __post_init__(self) -> None:
        self.task_state = TaskState(None, "")
        super().__post_init__()
        self.counts = {"already": 0, "capped": 0}
        self._sent: dict[int, _Sent] = {}
        self._own: set[int] = set()
        self._begun: set[int] = set()
        self._changes: list[Change] = []
        self.memory.check()

    def send(self, chunks: Iterable[Chunk]) -> Any:
        self.state = self.state.parse(None)
        self.counts.update(already=0, capped=0)
        self._sent.clear()
        self._own.clear()
        with self.memory.kept_open(), infrequent_gc():
            try:
                return super().send(chunks)
            finally:
                if any(self.counts.values()):
                    log.warning(
                        "Not mailed: %s recipients who have had this mail, and %s who have had as many as at_most "
                        "allows.",
                        *self.counts.values(),
                    )

    @property
    def durable(self) -> bool:
        return True

    def _remaining(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        source, most, index = iter(chunks), _MAX_AHEAD, 0
        goes = {"new", "doubt"} if self.on_ambiguous == "resend" else {"new"}
        rest: list[_Wanted] = []
        while block := rest or self._next(source):
            self.is_empty = False
            block, rest = block[:most], block[most:]
            end, reserved = time.monotonic() + _AHEAD_SECONDS, self._reserve(block)
            left = [number for number, verdicts in reserved if any(verdict in goes for verdict, _ in verdicts)]
            for place, ((chunk, _), (number, verdicts)) in enumerate(zip(block, reserved, strict=True)):
                self._check_doubt(chunk, verdicts)
                mails = [mail for verdict, mail in verdicts if verdict in goes]
                if mails and number not in self._begun and (time.monotonic() > end or not self._begin_some(left)):
                    # Others have mailed some of these people; or, by now, some would be judged otherwise.
                    rest, most = [*block[place:], *rest], max(1, most // 2)
                    break
                counts = Counter[str](verdict for verdict, _ in verdicts)
                self.state.recipients += counts["sent"]
                self.state.unknown_recipients += counts["doubt"] if self.on_ambiguous == "skip" else 0
                self.counts = {verdict: count + counts[verdict] for verdict, count in self.counts.items()}
                if mails:
                    left.remove(number)
                    self._begun.discard(number)
                    self._own.add(number)
                    doubtful = [mail for verdict, mail in verdicts if verdict == "doubt" and verdict in goes]
                    self._sent[index] = _Sent(number, mails, doubtful)
                    yield self._request(index, chunk, [verdict in goes for verdict, _ in verdicts])
                    index += 1
            else:
                most = min(2 * most, _MAX_AHEAD)

    def _next(self, source: Iterator[Chunk]) -> list[_Wanted]:
        """Return the next requests, with the address and the key of each mail."""
        block: list[_Wanted] = []
        recipients = size = 0
        while len(block) < _MAX_AHEAD and recipients < _MAX_AHEAD_RECIPIENTS and size < _MAX_AHEAD_BYTES:
            if (chunk := next(source, None)) is None:
                break
            keys = self._keys(chunk)
            wanted = [(address_key(one), key) for key, to in zip(keys, chunk.addresses(), strict=False) for one in to]
            block.append((chunk, wanted))
            recipients += len(wanted)
            size += len(getattr(chunk.request, "encoded", b""))
        return block

    @property
    def _room(self) -> int:
        """How many requests are begun now."""
        return max(1, self.max_in_flight - len(self._sent))

    def _reserve(self, block: Sequence[_Wanted]) -> list[tuple[int, list[tuple[Verdict, Reserved]]]]:
        send_date = block[0][0].request.send_date
        reserved = self.memory.reserve(
            [wanted for _, wanted in block],
            task=self.task,
            at=None if send_date is None else int(send_date.timestamp()),
            cap=self.cap,
            changes=self._changes,
            own=self._own,
            begun=self._room,
        )
        self._changes = []
        self._begun = set([number for number, verdicts in reserved if _may_go(verdicts)][: self._room])
        return reserved

    def _begin_some(self, numbers: Sequence[int]) -> bool:
        begun = numbers[: self._room]
        is_begun = self.memory.begin(begun, self._changes)
        self._changes = []
        self._begun = {*begun} if is_begun else set()
        return is_begun

    def _check_doubt(self, chunk: Chunk, verdicts: Sequence[tuple[Verdict, Reserved]]) -> None:
        count = sum(verdict == "doubt" for verdict, _ in verdicts)
        if count and self.on_ambiguous == "fail":
            raise MailAmbiguousSendError(
                f"{count} recipients may have been sent this mail by an earlier try, which has not recorded the "
                f"outcome. Apart from them {self.state}. Check at the service; then clear the task with "
                "on_ambiguous='resend' to mail them again, or 'skip' to continue without them",
                operation=chunk.request.path,
            )

    def _request(self, index: int, chunk: Chunk, goes: Sequence[bool]) -> Chunk:
        """Return the request to those who may be mailed."""
        sent = self._sent[index]
        if not all(goes):
            messages = chunk.messages()
            people = (
                (place, person)
                for place, one in enumerate(messages)
                for person in msgspec.json.decode(one["to"], type=list[msgspec.Raw])
            )
            kept: dict[int, list[Any]] = {}
            for place, person in compress(people, goes):
                kept.setdefault(place, []).append(person)
            chunk = chunk.with_messages([{**messages[place], "to": to} for place, to in kept.items()])
        # By the people: their positions change with the messages.
        own_id = {"unique_msg_id": unique_msg_id(f"{self.task}/{sorted(sent.mails)}", 0)} if self.own_ids else {}
        result = replace(chunk, index=index, request=chunk.request.model_copy(update=own_id))
        if sent.doubtful:
            self.state.under_way[str(index)] = result.digest
        return result

    def _keys(self, chunk: Chunk) -> Iterable[str]:
        """Return the key of each message."""
        if self.once_per or not self.by_content:
            return repeat(self.once_per or self.task)
        shared = [getattr(chunk.request, name, None) for name in ("subject", "content", "template_name", "params")]
        contents = [
            [*shared, *(bytes(message.get(name, b"")) for name in ("subject", "content", "templateName", "params"))]
            for message in chunk.messages()
        ]
        return [f"{self.task}/{hashlib.sha256(repr(one).encode()).hexdigest()[:16]}" for one in contents]

    def _begin(self, workers: Any, left: Iterator[Chunk]) -> None:
        try:
            super()._begin(workers, left)
        except BaseException:
            in_flight = {chunk.index for chunk, _ in self._in_flight.values()}
            waiting = [sent.request for index, sent in self._sent.items() if index not in in_flight]
            self._changes += [(request, NOT_SENT, None) for request in (*waiting, *self._begun)]
            self._begun.clear()
            self.write()
            raise

    def write(self) -> None:
        if self._changes:
            self.memory.write(self._changes)
            self._changes = []

    def _split(self, chunk: Chunk) -> tuple[list[Reserved], list[Reserved]]:
        """Return the mails of the part of a request that is sent next, and those of the further parts."""
        mails, count = self._sent[chunk.index].mails, None
        if str(chunk.index) in self.state.halved:
            count = sum(map(len, self.state.part(chunk).addresses()))
        return mails[:count], [] if count is None else mails[count:]

    def _settled(self, chunk: Chunk, *, accepted: bool) -> None:
        sent = self._sent[chunk.index]
        mails, sent.mails = self._split(chunk)
        super()._settled(chunk, accepted=accepted)
        if accepted and sent.mails:
            self._changes.append((sent.request, SENT, mails))
        elif accepted:
            self._changes.append((sent.request, SENT, None))
            if sent.doubtful:
                self._changes.append((sent.request, SENT, sent.doubtful))
        if not sent.mails:
            del self._sent[chunk.index]

    def _not_sent(self, chunk: Chunk, *, in_doubt: bool) -> None:
        super()._not_sent(chunk, in_doubt=in_doubt)
        self._changes.append((self._sent.pop(chunk.index).request, NOT_SENT, None))

    def _handle_unknown(self, chunks: Sequence[Chunk], problem: str, error: MailError | None = None) -> None:
        for chunk in chunks:
            request = self._sent[chunk.index].request
            mails, further = self._split(chunk)
            self._changes.append((request, IN_DOUBT, mails if further else None))
            if further and self.on_ambiguous != "skip":
                self._changes.append((request, NOT_SENT, None))
        self.write()
        super()._handle_unknown(chunks, problem, error)


def _may_go(verdicts: Iterable[tuple[Verdict, Reserved]]) -> bool:
    return any(verdict in ("new", "doubt") for verdict, _ in verdicts)
