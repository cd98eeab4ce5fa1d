"""Who was mailed what: a table in the user's database that decides, before each request, who still may get a mail.

The row of a person and a key is written before the request and confirmed after it. Its key is unique, and transactions
take turns, so that of two tasks that mail one person at once only one does.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from logging import getLogger
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from airflow_provider_mail._audience.alerts import Alerts
from airflow_provider_mail._audience.sealing import AudienceKey
from airflow_provider_mail._config import setting
from airflow_provider_mail._task.at_most_once import Mailing
from airflow_provider_mail._task.state import TaskState
from airflow_provider_mail._task.storage import check_tables
from airflow_provider_mail.api._core.fields import address_key
from airflow_provider_mail.api.errors import MailAmbiguousSendError, MailConfigError, MailError
from airflow_provider_mail.api.transactional import Chunk, Delivery, unique_msg_id
from airflow_provider_mail.version_compat import knows_variables, store_variable, stored_variable
from airflow_provider_mail.warehouse.database import LoadRequest, Source, StoredTable, TableName, configured_hook, load
from airflow_provider_mail.warehouse.table import derived_name
from airflow_provider_mail.warehouse.tables.imports import MEMORY

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

log = getLogger(__name__)

VARIABLE = "mail_memory"

INTENDED, SENT, IN_DOUBT = "intended", "sent", "in doubt"

Verdict: TypeAlias = Literal["new", "sent", "doubt", "already", "capped"]
"""``new``: may be mailed; ``sent`` and ``doubt``: by an earlier try of this task; ``already``: by another task or run,
also if that is in doubt; ``capped``: had as many mails as ``at_most`` allows."""

Reserved: TypeAlias = tuple[str, str]
"""Person and key."""

_PAIRS = 100
"""So many people with a key each are in one condition."""

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


class Memory:
    """The table of one database.

    :param table: its name, optionally with its schema.
    """

    def __init__(self, hook: DbApiHook, table: str, key: AudienceKey) -> None:
        check_tables(hook, {"[mail] memory_table": table})
        self._hook, self._name, self._key = hook, table, key
        self._table = StoredTable(hook, MEMORY, table)
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
        rows = Source([("", "", 0, uuid.uuid4().hex[:10], self._key.people(b"")[0])])
        load(self._hook, LoadRequest(MEMORY, TableName.parse(self._name), rows))
        self.alerts.create()

    def check(self) -> None:
        """Check that the table can be trusted.

        :raises MailConfigError: it is missing, or its people are hidden by another secret.
        """
        problem = ""
        # Before the table is read: another task may use it meanwhile.
        turns = self._known_turns() if knows_variables() else {}
        if not self._table.existing_columns():
            problem = f"{self.place} does not exist. If it never did, create {CREATE}. If it was lost, restore it"
        elif not (rows := self._first_row()):
            problem = f"{self.place} lacks its first row. If rows were deleted by hand, restore them; create {CREATE}"
        elif rows[0][0] not in self._key.people(b""):
            problem = (
                f"the people in {self.place} are hidden by another secret: give [mail] audience_key, or [core] "
                "fernet_key, its former value, too"
            )
        elif rows[0][1] < turns.get(rows[0][2], 0):
            problem = (
                f"{self.place} is older than when a task last wrote it: a backup was restored. Restore a newer one, or "
                f"accept {CREATE}"
            )
        if problem:
            raise MailConfigError(f"[mail] memory_conn_id: {problem}. Nothing was sent")

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Use one connection; at the end, Airflow knows how new the table is at least."""
        with self._table.kept_open():
            try:
                yield
            finally:
                if knows_variables():
                    self.accept()

    def _first_row(self) -> list[Any]:
        """The row that all transactions change: a digest of the secret, their number, and the id of the table."""
        columns = ", ".join(map(self._table.column, ("task", "mailed_at", "state")))
        return list(self._table.select(columns, "person = '' AND mail_key = ''"))

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
            _, turns, table = self._first_row()[0]
            known = json.dumps(self._known_turns() | {table: int(turns)})
            store_variable(VARIABLE, known, "How new the memory of mails is at least")
        except Exception as error:
            log.warning("The Variable %r was not stored: %s", VARIABLE, type(error).__name__)

    def reserve(
        self,
        wanted: Sequence[tuple[str, str]],
        *,
        task: str,
        at: int | None = None,
        cap: Cap | None = None,
        confirmed: Mapping[str, Iterable[Reserved]] | None = None,
    ) -> list[tuple[Verdict, Reserved]]:
        """Decide about mails that are about to be sent, and write those that may be, in one transaction.

        :param wanted: the address and the key of each mail.
        :param task: who sends them.
        :param at: when they will be sent, in seconds since 1970. Default: now.
        :param confirmed: the new states of mails that were reserved before.
        """
        digests = {address: self._key.people(address.encode()) for address, _ in wanted}

        def work(execute: Callable[..., Any]) -> list[tuple[Verdict, Reserved]]:
            mark = self._hook.placeholder
            self._take_turn(execute)
            self._confirm(execute, confirmed or {})
            now = self._table.now(execute)
            moment = max(at or now, now)
            keys = list(dict.fromkeys(key for _, key in wanted))
            people, values = self._table.among("person", [person for own in digests.values() for person in own])
            condition = f"mail_key IN ({', '.join([mark] * len(keys))})"
            parameters: list[Any] = [*values, *keys]
            if cap is not None:
                condition += f" OR (mailed_at > {mark} AND mailed_at < {mark})"
                parameters += [moment - cap.seconds, moment + cap.seconds]
            found: dict[str, dict[str, tuple[int, str, str]]] = {}
            if wanted:
                for person, key, mailed_at, state, owner in execute(
                    f"SELECT person, mail_key, mailed_at, state, task FROM {self._table.spelled} "
                    f"WHERE {people} AND ({condition})",
                    parameters,
                    reads=True,
                ):
                    found.setdefault(person, {})[key] = int(mailed_at), state, owner
            verdicts: list[tuple[Verdict, Reserved]] = []
            new: list[Reserved] = []
            for address, key in wanted:
                known = {person: found[person] for person in digests[address] if person in found}
                holder = next((person for person in known if key in known[person]), digests[address][0])
                verdict: Verdict = "new"
                if known and key in known.get(holder, ()):
                    _, state, owner = known[holder][key]
                    verdict = "already" if owner != task else "sent" if state == SENT else "doubt"
                elif (
                    known
                    and cap
                    and not cap.allows((own[0] for rows in known.values() for own in rows.values()), moment)
                ):
                    verdict = "capped"
                else:
                    found.setdefault(holder, {})[key] = moment, SENT, ""  # for further mails to this person
                    new.append((holder, key))
                verdicts.append((verdict, (holder, key)))
            row = {"mailed_at": moment, "state": INTENDED, "task": task}
            if len({key for _, key in new}) > 1:
                self._table.insert(execute, new, row)
            elif new:
                self._table.insert(execute, [(holder,) for holder, _ in new], {"mail_key": new[0][1], **row})
            return verdicts

        return self._table.transaction(work)

    def confirm(self, states: Mapping[str, Iterable[Reserved]]) -> None:
        """Store what has become of mails that were reserved; an empty state deletes them: they were not sent."""
        self._table.transaction(lambda execute: self._confirm(execute, states))

    def _confirm(self, execute: Callable[..., Any], states: Mapping[str, Iterable[Reserved]]) -> None:
        mark = self._hook.placeholder
        for state, mails in states.items():
            by_key: dict[str, list[str]] = {}
            for person, key in mails:
                by_key.setdefault(key, []).append(person)
            change = (
                f"UPDATE {self._table.spelled} SET state = {mark}" if state else f"DELETE FROM {self._table.spelled}"
            )
            before = [state] if state else []
            if len(by_key) == 1:
                ((key, people),) = by_key.items()
                condition, digests = self._table.among("person", people)
                execute(f"{change} WHERE mail_key = {mark} AND {condition}", [*before, key, *digests])
                continue
            # Of a task mapped by content, each person has a key of its own.
            pairs = [(key, person) for key, people in by_key.items() for person in people]
            for start in range(0, len(pairs), _PAIRS):
                some = pairs[start : start + _PAIRS]
                condition = " OR ".join([f"(mail_key = {mark} AND person = {mark})"] * len(some))
                execute(f"{change} WHERE {condition}", [*before, *(value for pair in some for value in pair)])

    def schedule(self, imports: Mapping[str, Cap | None], *, at: int) -> None:
        """Store when the campaign goes out for which imports have reserved mails.

        :param imports: the cap by which each has decided, by its task and run.
        :raises MailConfigError: at that time people would get more than their cap; nothing is stored.
        """
        mark, table = self._hook.placeholder, self._table.spelled

        def work(execute: Callable[..., Any]) -> int:
            self._take_turn(execute)
            capped = 0
            for task, cap in imports.items():
                if cap is not None:
                    times: dict[str, list[int]] = {}
                    for person, time in execute(
                        f"SELECT other.person, other.mailed_at FROM {table} AS own "
                        f"JOIN {table} AS other ON other.person = own.person AND other.mail_key <> own.mail_key "
                        f"WHERE own.task = {mark} AND own.state = '{INTENDED}' "
                        f"AND other.mailed_at > {mark} AND other.mailed_at < {mark}",
                        [task, at - cap.seconds, at + cap.seconds],
                        reads=True,
                    ):
                        times.setdefault(person, []).append(int(time))
                    capped += sum(not cap.allows(others, at) for others in times.values())
            if not capped:
                for task in imports:
                    execute(
                        f"UPDATE {table} SET mailed_at = {mark} WHERE task = {mark} AND state = '{INTENDED}'",
                        [at, task],
                    )
            return capped

        if capped := self._table.transaction(work):
            raise MailConfigError(
                f"send_date: {capped} people of the audience have other mails around that time, so that they would get "
                "more than at_most of the import allows. Choose another send_date, then clear the task. No campaign "
                "was created"
            )

    def mark_sent(self, imports: Iterable[str]) -> None:
        """Store that the service has accepted the campaign for which imports, by their task and run, reserved mails."""
        for task in imports:
            self._table.update({"task": task, "state": INTENDED}, {"state": SENT})

    def _take_turn(self, execute: Callable[..., Any]) -> None:
        # All transactions that decide change this row, so that they take turns.
        execute(f"UPDATE {self._table.spelled} SET mailed_at = mailed_at + 1 WHERE person = '' AND mail_key = ''")

    def release(self, task: str) -> int:
        """Delete the mails of a task and its run, which were not sent; return their number."""
        return self._table.delete([{"task": task}])

    def of(self, email: str) -> list[dict[str, Any]]:
        """Return the mails of a person, the latest first."""
        columns = ("mail_key", "mailed_at", "state", "task")
        rows = [
            dict(zip(columns, row, strict=True))
            for person in self._key.people(address_key(email).encode())
            for row in self._table.rows(columns, {"person": person})
        ]
        return sorted(rows, key=lambda row: -int(row["mailed_at"]))

    def forget(self, email: str) -> int:
        """Delete the mails of a person, who may then get them again; return their number."""
        return self._table.delete([{"person": person} for person in self._key.people(address_key(email).encode())])

    def delete_before(self, moment: int) -> int:
        """Delete the mails before a time, in seconds since 1970; return their number."""
        mark = self._hook.placeholder
        statement = f"DELETE FROM {self._table.spelled} WHERE mailed_at < {mark} AND person <> ''"
        deleted: int = self._table.transaction(lambda execute: execute(statement, [moment]))
        return deleted


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
        self._mails: dict[int, list[Reserved]] = {}
        self._new: dict[int, list[Reserved]] = {}
        self._confirmed: dict[str, list[Reserved]] = {}
        self.memory.check()

    def send(self, chunks: Iterable[Chunk]) -> Any:
        self.state = self.state.parse(None)
        self.counts.update(already=0, capped=0)
        self._mails.clear()
        self._new.clear()
        with self.memory.kept_open():
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
        index = 0
        for chunk in chunks:
            self.is_empty = False
            if (left := self._permitted(chunk, index)) is not None:
                yield left
                index += 1

    def _permitted(self, chunk: Chunk, index: int) -> Chunk | None:
        """Return the request for those who may be mailed; ``None`` if nobody may."""
        request, messages = chunk.request, chunk.messages()
        people = [(place, person) for place, one in enumerate(messages) for person in _to(one)]
        keys = [self._key_of(request, one) for one in messages]
        wanted = [(address_key(person["email"]), keys[place]) for place, person in people]
        at = None if request.send_date is None else int(request.send_date.timestamp())
        verdicts = self.memory.reserve(wanted, task=self.task, at=at, cap=self.cap, confirmed=self._confirmed)
        self._confirmed = {}
        counts = Counter[str](verdict for verdict, _ in verdicts)
        new = [mail for verdict, mail in verdicts if verdict == "new"]
        if counts["doubt"] and self.on_ambiguous == "fail":
            self.memory.confirm({"": new})
            raise MailAmbiguousSendError(
                f"{counts['doubt']} recipients may have been sent this mail by an earlier try, which has not recorded "
                f"the outcome. Apart from them {self.state}. Check at the service; then clear the task with "
                "on_ambiguous='resend' to mail them again, or 'skip' to continue without them",
                operation=request.path,
            )
        self.state.recipients += counts["sent"]
        self.state.unknown_recipients += counts["doubt"] if self.on_ambiguous == "skip" else 0
        self.counts = {verdict: count + counts[verdict] for verdict, count in self.counts.items()}
        goes = {"new", "doubt"} if self.on_ambiguous == "resend" else {"new"}
        if not (mails := [mail for verdict, mail in verdicts if verdict in goes]):
            return None
        self._mails[index], self._new[index] = mails, new
        if len(mails) < len(people):
            kept: dict[int, list[Any]] = {}
            for (place, person), (verdict, _) in zip(people, verdicts, strict=True):
                if verdict in goes:
                    kept.setdefault(place, []).append(person)
            chunk = chunk.with_messages([{**messages[place], "to": to} for place, to in kept.items()])
        # By the people: their positions change with the messages.
        own_id = {"unique_msg_id": unique_msg_id(f"{self.task}/{sorted(mails)}", 0)} if self.own_ids else {}
        result = replace(chunk, index=index, request=chunk.request.model_copy(update=own_id))
        if counts["doubt"]:
            self.state.under_way[str(index)] = result.digest
        return result

    def _key_of(self, request: Delivery, message: Mapping[str, Any]) -> str:
        if self.once_per:
            return self.once_per
        if not self.by_content:
            return self.task
        content = [getattr(request, name, None) for name in ("subject", "content", "template_name", "params")]
        content += [bytes(message.get(name, b"")) for name in ("subject", "content", "templateName", "params")]
        return f"{self.task}/{hashlib.sha256(repr(content).encode()).hexdigest()[:16]}"

    def _begin(self, workers: Any, left: Iterator[Chunk]) -> None:
        try:
            super()._begin(workers, left)
        except BaseException:
            sent = {chunk.index for chunk, _ in self._in_flight.values()}
            self._confirmed.setdefault("", []).extend(
                mail for index, mails in self._new.items() if index not in sent for mail in mails
            )
            self.write()
            raise

    def write(self) -> None:
        if self._confirmed:
            self.memory.confirm(self._confirmed)
            self._confirmed = {}

    def _split(self, chunk: Chunk) -> tuple[list[Reserved], list[Reserved]]:
        """Return the mails of the part of a request that is sent next, and those of the further parts."""
        count = sum(len(_to(message)) for message in self.state.part(chunk).messages())
        mails = self._mails[chunk.index]
        return mails[:count], mails[count:]

    def _settled(self, chunk: Chunk, *, accepted: bool) -> None:
        mails, further = self._split(chunk)
        super()._settled(chunk, accepted=accepted)
        self._mails[chunk.index] = further
        self._new[chunk.index] = [mail for mail in self._new[chunk.index] if mail in further]
        if accepted:
            self._confirmed.setdefault(SENT, []).extend(mails)

    def _not_sent(self, chunk: Chunk, *, in_doubt: bool) -> None:
        super()._not_sent(chunk, in_doubt=in_doubt)
        del self._mails[chunk.index]
        self._confirmed.setdefault("", []).extend(self._new.pop(chunk.index))

    def _handle_unknown(self, chunks: Sequence[Chunk], problem: str, error: MailError | None = None) -> None:
        parts = [(chunk, *self._split(chunk)) for chunk in chunks]
        states = {IN_DOUBT: [mail for _, mails, _ in parts for mail in mails]}
        if self.on_ambiguous != "skip":
            states[""] = [mail for chunk, _, further in parts for mail in further if mail in self._new[chunk.index]]
        self.memory.confirm(states)
        super()._handle_unknown(chunks, problem, error)


def _to(message: Mapping[str, Any]) -> list[dict[str, str]]:
    people: list[dict[str, str]] = msgspec.json.decode(message["to"])
    return people
