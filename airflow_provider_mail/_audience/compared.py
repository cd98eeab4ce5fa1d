"""An audience whose rows are all read before the first one is sent: an exact one, and one of which changes are sent.

The order of the steps is what makes a crash harmless. Before the first request, the state says that a run has begun; it
is believed again when the run has stored what it did, also after an error. The lists are the truth: a state that does
not have as many people as they have is not repaired, everybody is sent to a new list.
"""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, compress, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._audience.audience import MAX_EXAMPLES, MIN_REMOVED, Audience, Send, earlier, masked
from airflow_provider_mail._audience.comparison import CHANGED, JOINED, LEFT, RETURNED, Comparison, operation_of
from airflow_provider_mail._audience.people import states
from airflow_provider_mail._audience.removal import Removal, deletes_contacts
from airflow_provider_mail._audience.rows import ACCEPTED, LEFT_OUT, REJECTED, TO_SEND, People, Rows
from airflow_provider_mail._audience.state import (
    EXCLUDED,
    GONE,
    HISTORY_SECONDS,
    IN_DOUBT,
    MAX_RUNS,
    AudienceState,
    Changes,
    DamagedStateError,
    Ledger,
    is_imported,
    mapping_of,
)
from airflow_provider_mail._audience.store import Header, StateChangedError, StateStore
from airflow_provider_mail._config import name_prefix
from airflow_provider_mail._task.mixin import mailing_name, task_instance_name
from airflow_provider_mail._task.progress import store_run
from airflow_provider_mail._task.storage import current_task_run
from airflow_provider_mail.api._core.fields import address_key
from airflow_provider_mail.api._core.pacing import infrequent_gc
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.flows.audience import (
    MAX_READ,
    AudienceList,
    delete_old_lists,
    digest,
    is_version,
    last_size,
    list_totals,
    list_versions,
    lists_in_use,
    settled_totals,
    strangers,
)
from airflow_provider_mail.api.flows.create_once import create
from airflow_provider_mail.api.lists import AddList
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException
from airflow_provider_mail.warehouse.database import LoadRequest, Source, TableName, load
from airflow_provider_mail.warehouse.table import derived_name
from airflow_provider_mail.warehouse.tables.imports import AUDIENCE_CHANGES, AUDIENCE_RUNS

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.sdk import Context

    from airflow_provider_mail._audience.memory import Cap
    from airflow_provider_mail._task.division import Stages, TimeZones
    from airflow_provider_mail.api.flows.import_contacts import ImportPlan, Progress
    from airflow_provider_mail.api.flows.validate_rows import Reject

DUE = "everybody is due"
"""The beginning of the reasons to send everybody although the people of the state are known."""
NO_STATE = "there is no state yet"

UNUSUAL_RATIO = 3
"""How many times the changes of the last runs are unusual."""
RECENT_RUNS = 10
JUDGED_AT_ONCE = 1_000
"""People in one transaction of the memory, in which others wait."""


STORE_KEY = "mail_list_store"
"""The key of the XCom by which Airflow recognizes the lists that it has made."""


def list_owner(dag_id: str, task_id: str) -> str:
    """Return the owner of a task's lists: see `AudienceList`."""
    return digest(f"{name_prefix()}{dag_id}/{task_id}")


def list_store(context: Context) -> str:
    """Return what this Airflow's lists of a task have in their names: the XComs of the runs before know it.

    A copy of the configuration, the secrets or the state does not have these. The first run decides it by its version
    of the DAG and its start, so that its tries and mapped tasks agree.
    """
    ti = context["ti"]
    store: str = earlier(context, STORE_KEY) or digest(
        f"{getattr(ti, 'dag_version_id', None)}/{context['dag_run'].start_date}"
    )
    ti.xcom_push(key=STORE_KEY, value=store)
    return store


class ComparedAudience(Audience):
    """An exact audience, or one of which only changes are sent.

    Without a state, every try has a list of its own: that of the try before it may hold people whom the source no
    longer returns, and a request that was lost may still be carried out. With a state, the list lasts until everybody
    is sent again, and people who left the source are on its exclusion list.
    """

    def __init__(self, task: Any, context: Context, progress: Progress) -> None:
        super().__init__(task, context, progress)
        ti = context["ti"]
        self._exact = task.exact_audience
        self._name_list = partial(
            AudienceList.of,
            task.list_name or "",
            owner=list_owner(ti.dag_id, ti.task_id),
            store=list_store(context),
            # Runs of several DAGs may have one id.
            run=digest(f"{ti.dag_id}/{ti.run_id}"),
            begun_at=datetime.fromtimestamp(time.time(), UTC),
            part=None if ti.map_index in (None, -1) else ti.map_index,
            plan=self.division.plan if self.division else None,
            prefix=name_prefix(),
        )
        self.new_list = self._name_list()
        self._parts: list[dict[str, Any]] = []
        """For the result: the list of each part of the people, and how many of them the service accepted."""
        self._mapped = self.new_list.part is not None
        if self._mapped and deletes_contacts(task):
            raise AirflowFailException(
                "on_removed: not 'delete_contact' in a mapped task: people who move to the rows of another one would "
                "be deleted. Nothing was sent"
            )
        self._state = AudienceState(None, self._header)
        self._new_list = self._exact and not task.changes_only
        self._new_exclusion = False
        self._reason = ""
        """Why everybody is sent; empty if only changes are."""
        self._counts = dict.fromkeys((JOINED, CHANGED, LEFT), 0)
        self._repeated = 0
        self._totals: dict[str, int] = {}
        self._accepted: set[bytes] | None = set()
        """The people on new lists; ``None`` if there are too many to look at the lists for others."""
        self._others: list[tuple[AudienceState, int]] = []
        """Other audiences that may have changed the values of this one's people since a version of theirs."""
        self._seen: dict[str, tuple[str, int]] = {}
        self._cap: Cap | None = None
        self.mailed: dict[str, int] = {}
        """How many people the memory leaves out, and why."""
        self.suppressed_keys = set[bytes]()
        """People of the source whom the user's tables leave out."""

    @property
    def _writes(self) -> bool:
        return not (self.task.is_dry_run or self.sandbox)

    @property
    def list_name(self) -> str | None:
        if self.division:
            return None
        if not self._exact:
            name: str | None = self.task.list_name
            return name
        return str(self.new_list) if self._new_list else self._state.ledger.send_list_name or str(self.new_list)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep other runs from the audience. The state is written before the source is opened or after it was read.

        SQLite has either one writer or readers, and the state may be beside the source.
        """
        with ExitStack() as self._files:
            if not self.task.changes_only:
                yield
                return
            started, outcome = time.monotonic(), "failed"
            self._state = state = self._open()
            try:
                state.claim()
                try:
                    yield
                    outcome = "success"
                finally:
                    state.release(self.task.log)
                    self._store_log("stopped" if self.is_stopped else outcome, time.monotonic() - started)
            except StateChangedError:
                raise AirflowException(
                    f"another run has changed the state of this audience in {state.store.name}. The next try reads it "
                    "again"
                ) from None

    def import_rows(self, rows: Rows, plan: ImportPlan, send: Send, on_reject: Callable[[Reject], None]) -> None:
        if self.task.is_dry_run and not self.task.changes_only:
            self._only_check((rows for rows, _ in self.selected(rows, plan)), plan, on_reject)
            return
        self._plan, self._values = plan, mapping_of(plan, self.task.hook.config)
        with infrequent_gc():
            self._people = self._files.enter_context(closing(People(self._values)))
            for batch, keys in self.selected(rows, plan, self.suppressed_keys.add):
                self._people.add(batch, keys)
            if not self.progress.read:
                self.task.log.warning("The source is empty: nobody is removed from the audience.")
                # A campaign reaches nobody, whom the source returned: it may be empty by mistake.
                self._new_list = self._exact
                if not self.division:
                    return
            self._reason = self._why_everybody()
            self._compare(is_known=not self._reason or self._reason.startswith(DUE))
            if self._reason and self.task.changes_only:
                is_expected = self._reason.startswith((DUE, NO_STATE))
                log = self.task.log.info if is_expected else self.task.log.warning
                log("Everybody is sent: %s (%s).", self._reason, self._state.store.name)
            self._check_brakes()
            if self.task.is_dry_run:
                self._log_dry_run()
                return
            if not self.division:
                self._leave_out_mailed(lambda number: "")
            if not self._reason and (reason := self._why_new_list()):
                self._reason = reason
                self._compare(is_known=True)
            self._new_list = self._exact and bool(self._reason)
            self._send(send, on_reject)

    def finish(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if self._writes:
            self._create_if_empty()
            if self._exact and not self.task.changes_only:
                versions = self._check_new_lists()
            if self._new_list or self._new_exclusion:
                self._delete_old()
        if self.task.changes_only:
            values |= self._counts | {"size": self._state.ledger.size}
        if self._exact and self._writes:
            values["totals"] = self._totals
            # People who join later may make up for a contact that was deleted.
            values["versions"] = self._state.ledger.versions if self.task.changes_only else versions
        if self.mailed:
            values |= self.mailed
            values["memory_at_most"] = self._cap and [self._cap.count, self._cap.seconds]
            if not self.division:
                values["memory_tasks"] = [mailing_name(self.context)]
        if self.division:
            # A list: a database may reorder the keys of a dictionary.
            values["parts"] = self._parts
        return super().finish() | values | {"repeated": self._repeated}

    def _new_lists(self) -> dict[str, int]:
        """Return how many people the service accepted on each new list."""
        if self.division:
            return {part["list"]: part["people"] for part in self._parts}
        return {str(self.new_list): self.progress.accepted}

    def lists(self) -> dict[str, list[str]]:
        if self.division:
            return {"send_list_names": [*self._new_lists()], "repel_list_names": []}
        named = self._exact and not self._new_list and not self.task.is_dry_run
        excluded = self._state.ledger.repel_list_names if named else ()
        return super().lists() | {"repel_list_names": [name for name in excluded if name]}

    # --- the source and the state ---

    @property
    def _logs(self) -> bool:
        return bool(self.task.changes_only and self.task.changes_only.log_table and self._writes)

    def _open(self) -> AudienceState:
        ti, changes_only = self.context["ti"], self.task.changes_only
        store = StateStore(self.task.audience_hook(changes_only.sql_conn_id), changes_only.table)
        claimant = json.dumps([ti.dag_id, ti.task_id, ti.run_id, ti.map_index])
        return AudienceState(store, self._header, claimant, writes=self._writes)

    @property
    def _header(self) -> Header:
        ti, part = self.context["ti"], self.new_list.part
        return Header.new(f"{name_prefix()}{ti.dag_id}/{ti.task_id}{'' if part is None else f'/{part}'}")

    def _why_everybody(self) -> str:
        """Return why everybody must be sent; empty if changes are enough."""
        task, state = self.task, self._state
        if not task.changes_only:
            return NO_STATE
        # The lists of an exact audience keep the name that they have. Of a copied state, the lists are another one's.
        list_name = self.new_list.store if self._exact else task.list_name
        mode = f"{self._exact}/{task.changes_only.on_removed}/{list_name}"
        self._settings = f"{mode}/{self._plan.update_mode}/{task.hook.config.sandbox}"
        problem, others = state.open(), self._look_at_others(state)
        ledger, every = state.ledger, task.changes_only.full_every
        if problem:
            return problem
        if (ledger.settings, ledger.mapping) != (self._settings, self._values):
            return "the state is that of another Airflow, list, service, mapping or mode"
        if not ledger.complete:
            return f"{DUE}: a run did not end"
        if reason := self._how_lists_differ(ledger):
            return reason
        if ledger.excluded > ledger.size:
            return f"{DUE}: more people have left than are there"
        if others:
            return others
        every = every.total_seconds() if isinstance(every, timedelta) else every
        return f"{DUE} (full_every)" if every is not None and time.time() - ledger.full_at >= every else ""

    def _how_lists_differ(self, ledger: Ledger) -> str:
        """Return why the lists at the service are not those of the state; empty if they may be."""
        client, ranges = self.task.hook.get_conn(), ledger.expected()
        totals = list_totals(client, ranges)
        for name, (least, most) in ranges.items():
            total = totals[name]
            if total is None:
                return f"list {name!r} cannot be read"
            if total < least or (self._exact and total > most):
                known = f"{least:,}" if least == most else f"{least:,} to {most:,}"
                return f"list {name!r} has {total:,} contacts, and the state {known}"
        versions = list_versions(client, ledger.versions, by_date=self._exact) if ledger.versions else {}
        for name, version in ledger.versions.items():
            if not is_version(version, versions.get(name)):
                return f"list {name!r} was changed by others, or the state is an older one"
        return ""

    def _compare(self, *, is_known: bool) -> None:
        everybody, others = bool(self._reason), () if self._reason else self._others
        try:
            comparison = Comparison(self._people, self._state, others, is_known=is_known, everybody=everybody)
        except DamagedStateError as error:
            self._reason = f"the state is damaged: {error}"
            comparison = Comparison(self._people, self._state, (), is_known=False, everybody=True)
        self._comparison = self._files.enter_context(closing(comparison))

    def _look_at_others(self, state: AudienceState) -> str:
        """Look which audiences of the store have sent since the last run; return why that is not known, or nothing."""
        ti, ledger, reasons = self.context["ti"], state.ledger, list[str]()
        mapped = f"{name_prefix()}{ti.dag_id}/{ti.task_id}/"
        looked_at, (service, _, *values) = max(map(itemgetter(0), ledger.runs), default=state.began_at), self._values
        missing, state.keeps_gone = {*ledger.seen}, False
        for other, problem in states(state.store, writes=False):
            header, known = other.header, other.ledger.mapping
            missing.discard(header.audience_id)
            if header.audience_id == state.header.audience_id:
                continue
            state.keeps_gone = True
            seen = ledger.seen.get(header.audience_id)
            version = seen[1] if seen and seen[0] == header.generation else -1
            # Of parts of one import, each has its own people, but for those with rows in several.
            is_part = header.audience.startswith(mapped)
            if not problem and (known[0] != service or not {*known[2:]} & {*values} - {"email"}):
                continue
            if seen and (header.version <= version or is_imported(header)):
                self._seen[header.audience_id] = seen
            if header.version <= version:
                continue
            if not is_imported(header):
                self._seen[header.audience_id] = header.generation, header.version
                if header.claimed_by and not is_part:
                    reasons.append(f"a run of audience {header.audience!r}, which has the same contacts, did not end")
                if problem and header.generation:
                    reasons.append(f"what audience {header.audience!r} has sent is not known: {problem}")
            if not problem:
                self._others.append((other, version))
                if seen and other.ledger.history_from > looked_at and not is_part:
                    reasons.append(f"audience {header.audience!r} has lost its state, and may have sent them")
        if missing:
            reasons.append("an audience that may have sent them has no state any more")
        if self._others and looked_at < state.began_at - HISTORY_SECONDS:
            reasons.append("the last run was long ago, and other audiences may have sent them")
        return f"{DUE}: {reasons[0]}" if reasons else ""

    def _why_new_list(self) -> str:
        """Return why the lasting list will not do, although the state is right; empty if it will."""
        state, counts = self._state, self._comparison.counts
        if not self._exact:
            return ""
        if self._mapped and (counts[LEFT] or counts[RETURNED] or state.ledger.excluded):
            # People may move between ranges: one would exclude whom another one has.
            return "people left or came back in this range of the key"
        names = {*state.ledger.list_names}
        moves = counts[JOINED] or counts[RETURNED] or counts[LEFT]
        if moves and names & lists_in_use(self.task.hook.get_conn(), only_scheduled=True):
            return "a campaign is still to be sent to the lists"
        return ""

    # --- brakes ---

    def _check_brakes(self) -> None:
        """Compare the changes with the size of the audience before, if there was one."""
        state, counts = self._state, self._comparison.counts
        if not self.task.changes_only:
            return
        self._counts = {
            JOINED: counts[JOINED] + counts[RETURNED],
            CHANGED: counts[CHANGED],
            LEFT: counts[LEFT],
        }
        size, removed = self._comparison.size_before, counts[LEFT]
        if not size and (size := state.header.size or (self._exact and self._last_size())):
            # The people are not known any more, but how many they were.
            removed = max(0, size - counts[JOINED])
        changed = removed if not self._comparison.size_before else sum(self._counts.values())
        self.check_fraction("max_removed_fraction", removed, size, "would leave the audience")
        if self.task.brakes.max_change_fraction is not None:
            self.check_fraction("max_change_fraction", changed, size, "would change")
        recent = state.ledger.recent
        if len(recent) > 2 and changed > MIN_REMOVED and changed > UNUSUAL_RATIO * max(recent):
            self.task.log.warning(
                "%s people join, change or leave; in the last %s runs these were at most %s.",
                f"{changed:,}", len(recent), f"{max(recent):,}",
            )  # fmt: skip

    def _last_size(self) -> int:
        return last_size(self.task.hook.get_conn(), self.new_list)

    def _log_dry_run(self) -> None:
        examples: dict[str, list[str]] = {}
        for key, operation in self._operations():
            people = examples.setdefault(operation, [])
            if len(people) < MAX_EXAMPLES:
                people.append(masked(key.decode()))
        named = "; ".join(f"{operation}: {', '.join(people)}" for operation, people in examples.items())
        counts = ", ".join(f"{count:,} {name}" for name, count in self._counts.items())
        self.task.log.info("Dry run: %s. Such as %s. Nothing was sent.", counts, named or "none")

    def _operations(self) -> Iterator[tuple[bytes, str]]:
        """Yield what becomes of each person who differs."""
        marks = self._people.marks
        for each in self._comparison.changes():
            for key, number, before, value in zip(each.keys, each.numbers, each.befores, each.digests, strict=True):
                if before != value or not self._reason:
                    yield key, "rejected" if marks[number] == REJECTED else operation_of(before)
            yield from zip(each.left, repeat(LEFT), strict=False)

    def _leave_out_mailed(self, part_of: Callable[[int], str]) -> None:
        """Leave out who has had this mail, or as many as ``at_most`` allows; reserve the mails of the others.

        :param part_of: returns what is behind the name of the mailing for a row, whose campaign is one of several.
        """
        task, people, suppress = self.task, self._people, self.task.suppress
        if suppress is None or not suppress.needs_memory or not self._writes:
            return
        # The models that it imports take as long as 40,000 rows.
        from airflow_provider_mail._audience.memory import Cap, Memory

        memory, name = Memory.needed_by(suppress), mailing_name(self.context)
        self._cap = cap = Cap.of(suppress.at_most)
        assert memory is not None
        memory.check()
        self.mailed = {"already": 0, "capped": 0}
        waiting: dict[str, list[tuple[str, int]]] = {}

        def judge(part: str) -> None:
            some = waiting.pop(part)
            wanted = [(address, suppress.once_per or name) for address, _ in some]
            ((_, verdicts),) = memory.reserve([wanted], task=f"{name}{part}", cap=cap)
            for (_, number), (verdict, _) in zip(some, verdicts, strict=True):
                if verdict in self.mailed:
                    people.marks[number] = LEFT_OUT
                    self.mailed[verdict] += 1

        with memory.kept_open():
            for key, number in people.people():
                if b"@" in key:
                    part = part_of(number)
                    waiting.setdefault(part, []).append((key.decode(), number))
                    if len(waiting[part]) == JUDGED_AT_ONCE:
                        judge(part)
            for part in list(waiting):
                judge(part)
        self.suppressed = (self.suppressed or 0) + sum(self.mailed.values())
        task.log.info(
            "Left out: %s people who have had this mail, %s who have had as many as at_most allows.",
            *self.mailed.values(),
        )

    # --- what is sent and stored ---

    def _send(self, send: Send, on_reject: Callable[[Reject], None]) -> None:
        """Send rows, to a new list or to that of the state, remove who left, and store what the service has."""
        state, people, comparison = self._state, self._people, self._comparison

        def reject(row: Reject) -> None:
            people.marks[row.row_number] = REJECTED
            # Also of rows whose address is no key, such as one that ends with a space.
            self.not_sent.update(hash(address_key(value)) for value in row.row if isinstance(value, str))
            on_reject(row)

        def send_rows(list_name: str | None = None) -> None:
            if TO_SEND in people.marks:
                plan = replace(self._plan, list_name=list_name or self.list_name)
                send(people.to_send(plan.chunk_size), plan, reject, people)

        if self.division is not None:
            self._send_parts(self.division, send_rows)
            return
        if not self._reason:
            people.send_only(chain((each.numbers for each in comparison.changes()), [people.unknown]))
        if not state.writes:
            send_rows()
            self._note_accepted()
            return
        if state.ledger.settings and (TO_SEND in people.marks or comparison.counts[LEFT]):
            # If this process ends, others may change the lists before the next run, which could not tell.
            state.ledger.complete = False
            joining = comparison.changes() if deletes_contacts(self.task) and not self._reason else ()
            # Their contacts are deleted, too, if this process ends and the source does not return them again.
            new = ((each.bucket, [*compress(each.keys, map(GONE.__eq__, each.befores))]) for each in joining)
            state.write(
                Changes(bucket, keys, [GONE] * len(keys), [IN_DOUBT] * len(keys)) for bucket, keys in new if keys
            )
        removal = Removal(self, state, people, comparison, excludes=self._exact and not self._reason)
        try:
            send_rows()
            removal.run()
        except Exception:
            # If this fails, too, or nothing shows what the service has, the next try sends everybody.
            with suppress(Exception):
                if not self._reason or ACCEPTED in people.marks:
                    self._store(state, removal)
                    self._store_versions(state)
                    state.ledger.complete = True
                    state.save()
            raise
        self._new_exclusion = removal.has_new_list
        if not comparison.size_before:
            self._counts = {JOINED: self.progress.accepted, CHANGED: 0, LEFT: 0}
        self._store(state, removal)
        self._create_if_empty()
        self._complete(state)
        self.task.log.info("Audience: %s joined, %s changed, %s left.", *(f"{n:,}" for n in self._counts.values()))

    def _send_parts(self, division: Stages | TimeZones, send_rows: Callable[[str], None]) -> None:
        """Send each part of the people to a list of its own."""
        people = self._people
        parts = division.divide(people.people())
        names = list(parts)
        part_of = array("H", bytes(2 * len(people.marks)))
        for index, numbers in enumerate(parts.values()):
            for number in numbers:
                part_of[number] = index
        self._leave_out_mailed(lambda number: f" {names[part_of[number]]}")
        marks = people.marks
        # The service would reject them, or the import does; they are counted once.
        list(parts.values())[-1].extend(people.unknown)
        for name, numbers in parts.items():
            list_name, before = str(self._name_list(of_part=name)), self.progress.accepted
            people.send_only([[number for number in numbers if marks[number] != LEFT_OUT]])
            send_rows(list_name)
            self._note_accepted()
            part = {"name": name, "list": list_name, "people": self.progress.accepted - before}
            memory = {"memory_task": f"{mailing_name(self.context)} {name}"} if self.mailed else {}
            self._parts.append(part | memory)

    def _note_accepted(self) -> None:
        people = self._people
        if people.count > MAX_READ or self._accepted is None:
            self._accepted = None
        else:
            self._accepted.update(key for key, number in people.people() if people.marks[number] == ACCEPTED)

    def _store(self, state: AudienceState, removal: Removal) -> None:
        """Store where everybody is now."""
        if not self._reason:
            state.write(self._changes(state, removal))
            return
        ledger = Ledger(
            settings=self._settings,
            mail_conn_id=self.task.mail_conn_id,
            mapping=self._values,
            send_list_name=self.list_name or "",
            full_at=int(time.time()),
            runs=state.ledger.runs,
            recent=state.ledger.recent,
            seen=state.ledger.seen,
        )
        state.write(self._changes(state, removal), ledger)

    def _changes(self, state: AudienceState, removal: Removal) -> Iterator[Changes]:
        """Yield the new values of people; of all, if everybody was sent."""
        marks = self._people.marks
        # They are in the state since before they were sent.
        joined = IN_DOUBT if deletes_contacts(self.task) and not self._reason else GONE
        all_accepted = removal.is_done and REJECTED not in marks
        for each in self._comparison.changes():
            keys: list[bytes] = each.keys
            values: Iterable[int | None] = each.digests
            if not all_accepted:
                of_rows = map(marks.__getitem__, each.numbers)
                values = map(removal.value_of, keys, each.befores, each.digests, of_rows)
            befores: Sequence[int] = each.befores
            if joined != GONE:
                befores = [joined if before == GONE else before for before in befores]
            columns: list[list[Any]] = [
                [*keys, *each.left],
                [*befores, *each.left_values],
                [*values, *map(removal.value_of_left, each.left)],
            ]
            if None in columns[2]:
                is_new = [value is not None for value in columns[2]]
                columns = [list(compress(column, is_new)) for column in columns]
            if columns[0]:
                yield Changes(each.bucket, *columns)

    def new_exclusion(self, number: int) -> str:
        """Return the name of a new exclusion list."""
        return str(replace(self._name_list(of_part=f"{number + 1}"), role="excluded"))

    # --- the end ---

    def _complete(self, state: AudienceState) -> None:
        """Compare the lists with the state, and store what the next run compares them with."""
        ledger = state.ledger
        differs = self._settle({name: least for name, (least, _) in ledger.expected().items()}) if self._exact else ""
        if self._reason or self.progress.requests or self._counts[LEFT]:
            # Of a run that has changed nothing, others' changes meanwhile would count as its own.
            self._store_versions(state)
        if self._exact:
            try:
                self._check_people(differs, self._people_of(state))
            except AirflowException:
                ledger.settings = ""
                state.save()
                raise
        ledger.complete = True
        ledger.seen = self._seen
        ledger.runs = [*ledger.runs, (state.began_at, self.context["ti"].run_id)][-MAX_RUNS:]
        if not self._reason:
            ledger.recent = [*ledger.recent, sum(self._counts.values())][-RECENT_RUNS:]
        state.save()

    def _store_versions(self, state: AudienceState) -> None:
        names = state.ledger.expected()
        state.ledger.versions = list_versions(self.task.hook.get_conn(), names, by_date=self._exact)

    def _settle(self, expected: dict[str, int]) -> str:
        """Wait until the lists have as many contacts as expected; return how they differ, or empty text.

        A new list may have fewer: the service may have taken two people for one, or have left out some.
        """
        totals = settled_totals(self.task.hook.get_conn(), expected)
        self._totals = {name: total for name, total in totals.items() if total is not None}
        different = {
            name: f"list {name!r} should have {count:,} contacts and has {totals[name]}"
            for name, count in expected.items()
            if totals[name] != count
        }
        if different:
            self.task.log.warning("%s: with a state, the next run sends everybody.", "; ".join(different.values()))
        wrong = [
            text for name, text in different.items() if not self._new_list or self._totals.get(name, 0) > expected[name]
        ]
        return "; ".join(wrong)

    def _check_new_lists(self) -> dict[str, str]:
        """Compare new lists with the people whom the service has accepted; return their versions."""
        lists = self._new_lists()
        differs = self._settle(lists)
        # Before the people, so that a later change is seen.
        versions = list_versions(self.task.hook.get_conn(), self._totals)
        self._check_people(differs, None if self._accepted is None else dict.fromkeys(lists, self._accepted))
        return versions

    def _people_of(self, state: AudienceState) -> dict[str, set[bytes]] | None:
        """Return the people whom the state has on each list; ``None`` if there are too many to look at them."""
        ledger = state.ledger
        if ledger.size + ledger.excluded > MAX_READ:
            return None
        people: dict[str, set[bytes]] = {name: set() for name in ledger.list_names}
        for bucket in state.buckets():
            for key, value in bucket.values.items():
                people[ledger.send_list_name].add(key)
                if value <= EXCLUDED:
                    people[ledger.repel_list_names[EXCLUDED - value]].add(key)
        return people

    def _check_people(self, differs: str, people: Mapping[str, set[bytes]] | None) -> None:
        """Check that others have not changed the lists meanwhile.

        :param differs: how the lists differ in their numbers, if that may not be.
        :param people: who is on each list. Default: that is not asked, only their numbers are compared.
        :raises AirflowException: they have.
        """
        lists = {name: known for name, known in (people or {}).items() if 0 < self._totals.get(name, 0) <= MAX_READ}
        if differs := differs or strangers(self.task.hook.get_conn(), lists):
            raise AirflowException(
                f"{differs}. Others have changed it, or the service has not added a contact. The next try sends "
                "everybody, to a new list"
            )

    def create_list(self, list_name: str) -> None:
        """Create a list that no row was added to, and that a campaign needs."""
        create(self.task.hook.get_conn(), AddList(list_name=list_name, list_description=self.task.list_description))

    def _create_if_empty(self) -> None:
        if self._new_list:
            for name, accepted in self._new_lists().items():
                if not accepted:
                    self.create_list(name)

    def _delete_old(self) -> None:
        """Delete the lists of earlier runs; an error is only logged, since the audience is complete."""
        task, needed = self.task, {self.list_name or "", *self._state.ledger.list_names}
        try:
            client, own_part = task.hook.get_conn(), bool(task.changes_only)
            deleted, others = delete_old_lists(
                client, self.new_list, needed=needed, keep=task.keep_lists, own_part=own_part
            )
        except MailError as error:
            task.log.warning("Lists of earlier runs could not be deleted; the next run tries again: %s", error)
            return
        for name in deleted:
            task.log.info("List %r of an earlier run was deleted.", name)
        if others:
            task.log.warning(
                "%s lists of this task stay, such as %r: no XCom shows that this Airflow has made them. If another "
                "deployment has the same DAG, give each a [mail] name_prefix. If nobody needs the lists: airflow mail "
                "audience prune %s",
                len(others), str(others[-1]), " ".join(sorted({name.store for name in others})),
            )  # fmt: skip

    def _store_log(self, outcome: str, seconds: float) -> None:
        """Store the log of this run, if the user wants one: a row for it, and one for each person that changed."""
        task, progress, state = self.task, self.progress, self._state
        if not self._logs:
            return
        import_id = task_instance_name(self.context, 250)
        values = {
            "import_id": import_id,
            "audience": state.header.audience,
            "mail_conn_id": task.mail_conn_id,
            "send_list_name": self.list_name or "",
            "repel_list_name": ", ".join(self.lists()["repel_list_names"]) or None,
            "state": outcome,
            "everybody": bool(self._reason),
            "reason": self.braked or self._reason or None,
            "size": state.ledger.size,
            "rows_read": progress.read,
            "joined_count": self._counts[JOINED],
            "changed_count": self._counts[CHANGED],
            "left_count": self._counts[LEFT],
            "rows_suppressed": self.suppressed or 0,
            "rows_rejected": progress.rejected,
            "requests": progress.requests,
            "seconds": seconds,
        }
        people: Iterable[tuple[bytes, str]] = ()
        if outcome == "success":
            operations = self._operations() if progress.read else ()
            people = chain(zip(self.suppressed_keys, repeat("suppressed"), strict=False), operations)

        def store_changes(hook: DbApiHook, now: datetime) -> None:
            rows = ((import_id, state.key.people(key)[0], operation, now) for key, operation in people)
            table = derived_name(task.changes_only.log_table, "_changes")
            of_import, task_run = {"import_id": import_id}, current_task_run()
            name, source = TableName.parse(table), Source(rows)
            load(hook, LoadRequest(AUDIENCE_CHANGES, name, source, replace_where=of_import, task_run=task_run))

        connect = lambda: task.audience_hook(task.changes_only.sql_conn_id)  # noqa: E731
        store_run(task.log, connect, AUDIENCE_RUNS, task.changes_only.log_table, values, store_changes)
