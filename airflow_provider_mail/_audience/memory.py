"""Who was mailed what: tables in the user's database that decide, before each request, who still may get a mail.

A mail belongs to a request, whose row tells whether it was sent. Requests are reserved many at once, which few
statements do; each is begun right before it is sent, and until then its people are free, so that nobody is left out
after a crash. The key of a mail is unique, and transactions take turns, so that of two tasks that mail one person at
once only one does.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count, groupby
from logging import getLogger
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

from airflow_provider_mail._audience.alerts import Alerts
from airflow_provider_mail._audience.sealing import AudienceKey
from airflow_provider_mail._config import setting
from airflow_provider_mail._task.storage import check_tables
from airflow_provider_mail.api._core.fields import address_key
from airflow_provider_mail.api.errors import MailConfigError
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


class _FirstRows(NamedTuple):
    """What the first rows of both tables say.

    :param secret: a digest of the secret that hides people.
    :param table: the id of the memory.
    :param turns: the number of transactions, in the table of requests; `of_people`: in that of people.
    :param newest: the number of the newest request.
    """

    secret: str
    table: str
    turns: int
    of_people: int
    newest: int

    @property
    def of_newest(self) -> int:
        """The transaction of the newest request."""
        return self.newest // _NUMBERS


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
    def needed_by(cls, arguments: Any) -> Memory | None:
        """Return the memory for the arguments ``once_per`` and ``at_most``, of a task or of what an import leaves out.

        :raises MailConfigError: none is configured, and one of them is given.
        """
        memory = cls.configured()
        for name in ("once_per", "at_most"):
            if memory is None and getattr(arguments, name) is not None:
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
            rows = self._first_rows(lambda sql: execute(sql, reads=True))
            assert rows
            turn, mark = max(rows.turns, rows.of_people, rows.of_newest), self._hook.placeholder
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
        elif not (rows := self._first_rows(self._read)):
            problem = f"{self.place} lacks its first row. If rows were deleted by hand, restore them; create {CREATE}"
        elif rows.secret not in self._key.people(b""):
            problem = (
                f"the people in {self.place} are hidden by another secret: give [mail] audience_key, or [core] "
                "fernet_key, its former value, too"
            )
        elif rows.turns < max(rows.of_people, known.get(rows.table, 0)) or rows.of_people < rows.of_newest:
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

    def _first_rows(self, read: Callable[[str], list[Any]]) -> _FirstRows | None:
        rows = read(
            "SELECT locked.task, locked.state, locked.mailed_at, people.request, "
            f"(SELECT MAX(request) FROM {self._requests}) FROM {self._requests} AS locked, {self._people} AS people "
            "WHERE locked.request = 0 AND people.person = '' AND people.mail_key = ''"
        )
        return _FirstRows(*rows[0]) if rows else None

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
            rows = self._first_rows(self._read)
            assert rows
            known = json.dumps(self._known_turns() | {rows.table: rows.turns})
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
                if may_go(verdicts):
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


def may_go(verdicts: Iterable[tuple[Verdict, Reserved]]) -> bool:
    return any(verdict in ("new", "doubt") for verdict, _ in verdicts)
