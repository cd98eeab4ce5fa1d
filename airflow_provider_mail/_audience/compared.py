"""An audience whose rows are all read before the first one is sent: an exact one, and one of which changes are sent.

The order of the steps is what makes a crash harmless. Before rows are sent, the state says that their people may be on
the list with unknown values; before people are excluded, that they may be excluded. So whatever the service has carried
out, the next run knows who may be where, and sends again what is in doubt. The lists are the truth: a state that does
not have as many people as they have is not repaired, everybody is sent to a new list.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._audience.audience import MAX_EXAMPLES, Audience, Send, masked
from airflow_provider_mail._audience.comparison import CHANGED, JOINED, LEFT, RETURNED, Absent, Change, Comparison
from airflow_provider_mail._audience.people import states
from airflow_provider_mail._audience.removal import Final, Removal, deletes_contacts
from airflow_provider_mail._audience.rows import BUCKETS, Identity, People, Rows, bucket_of, digests
from airflow_provider_mail._audience.sealing import AudienceKey, deployment_digest
from airflow_provider_mail._audience.state import (
    GONE,
    MAX_RUNS,
    NEW,
    AudienceState,
    DamagedStateError,
    Entry,
    Ledger,
    Step,
    is_member,
    mapping_of,
    settings_of,
)
from airflow_provider_mail._audience.store import Header, StateChangedError, StateStore
from airflow_provider_mail._config import name_prefix
from airflow_provider_mail._task.mixin import task_instance_name
from airflow_provider_mail._task.progress import store_run
from airflow_provider_mail._task.storage import Spool, current_task_run
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.flows.audience import (
    AudienceList,
    delete_old_lists,
    last_size,
    list_totals,
    lists_in_use,
    modify_dates,
    settled_totals,
)
from airflow_provider_mail.api.flows.create_once import create
from airflow_provider_mail.api.lists import AddList
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException
from airflow_provider_mail.warehouse.load import load
from airflow_provider_mail.warehouse.table import derived_name
from airflow_provider_mail.warehouse.tables.imports import AUDIENCE_CHANGES, AUDIENCE_RUNS

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.sdk import Context

    from airflow_provider_mail.api.flows.import_contacts import Progress, SelectedRows
    from airflow_provider_mail.api.flows.upload_chunks import ImportPlan
    from airflow_provider_mail.api.flows.validate_rows import Reject

DUE = "everybody is due"
"""The beginning of the reasons to send everybody although the people of the state are known."""
NO_STATE = "there is no state yet"

DEFAULT_FRACTION = 0.1
MIN_REMOVED = 10
MIN_ALL = 3
"""Without an argument, a run is stopped when more than a tenth would leave, and these are more than so many people, or
all of an audience of at least so many."""

UNUSUAL_RATIO = 3
"""How many times the changes of the last runs are unusual."""
RECENT_RUNS = 10


class ComparedAudience(Audience):
    """An exact audience, or one of which only changes are sent.

    Without a state, every try has a list of its own: that of the try before it may hold people whom the source no
    longer returns, and a request that was lost may still be carried out. With a state, the list lasts until everybody
    is sent again, and people who left the source are on exclusion lists.
    """

    def __init__(self, task: Any, context: Context, progress: Progress) -> None:
        super().__init__(task, context, progress)
        ti = context["ti"]
        self._exact = task.audience == "exact"
        self.new_list = AudienceList.of(
            task.list_name or "",
            task=f"{deployment_digest()}/{ti.dag_id}/{ti.task_id}",
            run_id=ti.run_id,
            begun_at=datetime.fromtimestamp(time.time(), UTC),
            part=None if ti.map_index in (None, -1) else ti.map_index,
            plan=self.stage.plan if self.stage else None,
            prefix=name_prefix(),
        )
        self._mapped = self.new_list.part is not None
        if self._mapped and deletes_contacts(task):
            raise AirflowFailException(
                "on_removed: not 'delete_contact' in a mapped task: people who move to the rows of another one would "
                "be deleted. Nothing was sent"
            )
        self._state: AudienceState | None = None
        self._new_list = self._exact and not task.changes_only
        self._new_exclusion = False
        self._is_changing = False
        """Whether changes are being sent."""
        self._reason = ""
        """Why everybody is sent; empty if only changes are."""
        self._counts = dict.fromkeys((JOINED, CHANGED, LEFT), 0)
        self._repeated = 0
        self._totals: dict[str, int] = {}
        self._log: Spool[list[tuple[bytes, str]]] = Spool()
        """What became of people, for the log."""
        self._accepted_people = 0
        self.suppressed_keys = set[bytes]()
        """People of the source whom the user's tables leave out."""

    @property
    def _writes(self) -> bool:
        return not (self.task.is_dry_run or self.sandbox)

    @property
    def list_name(self) -> str | None:
        if not self._exact:
            name: str | None = self.task.list_name
            return name
        stored = self._state.ledger.send_list_name if self._state is not None else ""
        return str(self.new_list) if self._new_list else stored or str(self.new_list)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep other runs from the audience. The state is written before the source is opened or after it was read.

        SQLite has either one writer or readers, and the state may be beside the source.
        """
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
            except Exception:
                self._keep_trust(state)
                raise
            finally:
                state.release(self.task.log)
                self._store_log("stopped" if self.is_stopped else outcome, time.monotonic() - started)
        except StateChangedError:
            raise AirflowException(
                f"another run has changed the state of this audience in {state.store.name}. The next try reads it again"
            ) from None

    def _keep_trust(self, state: AudienceState) -> None:
        """After an error, store when the lists were changed, so that the next try sends only what is in doubt."""
        if self._is_changing:
            # If that fails, too, the next try sends everybody.
            with suppress(MailError, StateChangedError):
                self._store_dates(state)
                state.save()

    def import_rows(self, rows: Rows, plan: ImportPlan, send: Send, on_reject: Callable[[Reject], None]) -> None:
        if self.task.is_dry_run and self._state is None:
            self._only_check(self.selected(rows, plan), plan, on_reject)
            return
        self._identity, self._plan = Identity(plan.properties), plan
        with closing(People()) as self._people:
            self._read(rows)
            if not self.progress.read:
                self._keep_all()
                return
            state = self._state
            if state is not None:
                self._reason = self._why_everybody(state)
            with closing(self._compare()) as self._comparison:
                self._repeated = self._people.repeated
                self._check_brakes()
                if self.task.is_dry_run:
                    self._log_dry_run()
                elif state is None or self._reason or self._must_be_new():
                    self._send_everybody(send, on_reject)
                else:
                    self._send_changes(state, send, on_reject)

    def finish(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if self._writes:
            if self._new_list and not self._accepted_people:
                self._create(str(self.new_list))
            if self._exact and self._state is None:
                self._settle({str(self.new_list): self._accepted_people})
            if self._new_list or self._new_exclusion:
                self._delete_old()
        if self._state is not None:
            values |= self._counts | {"size": self._state.ledger.size}
        if self._exact and self._writes:
            values["totals"] = self._totals
            if self._state is not None and deletes_contacts(self.task):
                # People who join later may make up for a contact that was deleted.
                values["modified"] = self._state.ledger.modified
        return super().finish() | values | {"repeated": self._repeated}

    def lists(self) -> dict[str, list[str]]:
        named = self._exact and not self._new_list and not self.task.is_dry_run and self._state is not None
        excluded = [each.name for each in self._state.ledger.exclusions if each.name] if named and self._state else []
        return super().lists() | {"repel_list_names": excluded}

    # --- the source and the state ---

    def _read(self, rows: Rows) -> None:
        most = self.task.brakes.max_rows
        for batch in self.selected(rows, self._plan, lambda key: self.suppressed_keys.add(key.encode())):
            _, keys = self._identity.keyed(batch)
            self._people.add(batch, keys)
            if most is not None and self.progress.read > most:
                self.brake("max_rows", f"there are more than {most:,} rows")

    @property
    def _logs(self) -> bool:
        return bool(self.task.changes_only and self.task.changes_only.log_table and self._writes)

    def _open(self) -> AudienceState:
        ti, part, changes_only = self.context["ti"], self.new_list.part, self.task.changes_only
        header = Header.new(f"{name_prefix()}{ti.dag_id}/{ti.task_id}{'' if part is None else f'/{part}'}")
        store = StateStore(self.task.audience_hook(changes_only.sql_conn_id), changes_only.table)
        claimant = json.dumps([ti.dag_id, ti.task_id, ti.run_id, ti.map_index])
        return AudienceState(store, AudienceKey.of_deployment(), header, claimant, writes=self._writes)

    def _why_everybody(self, state: AudienceState) -> str:
        """Return why everybody must be sent; empty if changes are enough."""
        task = self.task
        mode = f"{task.audience}/{task.changes_only.on_removed}/{task.list_name}"
        self._settings = settings_of(state.header.audience_id, self._plan, task.hook.config, mode)
        if reason := state.open():
            return reason
        ledger, every = state.ledger, task.changes_only.full_every
        if ledger.settings != self._settings:
            return "the state is that of another list, service, mapping or mode"
        if not ledger.complete:
            return f"{DUE}: a run did not end"
        if reason := self._how_lists_differ(ledger):
            return reason
        if ledger.excluded > ledger.size:
            return f"{DUE}: more people have left than are there"
        if every is not None and time.time() - ledger.full_at >= _seconds(every):
            return f"{DUE} (full_every)"
        return ""

    def _how_lists_differ(self, ledger: Ledger) -> str:
        """Return why the lists at the service are not those of the state; empty if they may be."""
        if not ledger.send_list_name:
            return ""
        client = self.task.hook.get_conn()
        ranges = {ledger.send_list_name: (ledger.listed, ledger.listed + ledger.doubtful)}
        if self._exact:
            used = (each for each in ledger.exclusions if each.name)
            ranges |= {each.name: (each.sure, each.sure + each.doubtful) for each in used}
        totals = list_totals(client, ranges)
        for name, (least, most) in ranges.items():
            total = totals[name]
            if total is None:
                return f"list {name!r} cannot be read"
            if total < least or (self._exact and total > most):
                known = f"{least:,}" if least == most else f"{least:,} to {most:,}"
                return f"list {name!r} has {total:,} contacts, and the state {known}"
        if self._exact and ledger.modified:
            dates = modify_dates(client, ledger.modified)
            for name, date in ledger.modified.items():
                if dates.get(name) != date:
                    return f"list {name!r} was changed by others, or the state is an older one"
        return ""

    def _compare(self) -> Comparison:
        state, log = self._state, self.task.log
        knows_people = state is not None and (not self._reason or self._reason.startswith(DUE))
        others = self._other_audiences(state) if state is not None and not self._reason else []
        try:
            comparison = Comparison(self._people, state if knows_people else None, others)
        except DamagedStateError as error:
            self._reason = f"the state is damaged: {error}"
            self._people.repeated = 0
            comparison = Comparison(self._people, None)
        if state is not None and self._reason:
            is_expected = self._reason.startswith((DUE, NO_STATE))
            (log.info if is_expected else log.warning)("Everybody is sent: %s (%s).", self._reason, state.store.name)
        return comparison

    def _other_audiences(self, state: AudienceState) -> list[AudienceState]:
        """Return audiences of the store that may have sent the same properties since the last run of this one."""
        ti = self.context["ti"]
        mapped = f"{name_prefix()}{ti.dag_id}/{ti.task_id}/"
        return [
            other
            for other, problem in states(state.store, writes=False)
            if not problem
            and other.header.audience_id != state.header.audience_id
            and other.header.updated_at >= state.ledger.last_began
            and other.ledger.mapping == state.ledger.mapping
            and not other.header.audience.startswith(mapped)
        ]

    def _must_be_new(self) -> bool:
        """Return whether the lasting list will not do, although the state is right."""
        state, counts = self._state, self._comparison.counts
        assert state is not None
        if self._exact and self._mapped and (counts[LEFT] or counts[RETURNED] or state.ledger.excluded):
            # People may move between ranges: one would exclude whom another one has.
            self._reason = "people left or came back in this range of the key"
            return True
        if not self._exact or not (counts[JOINED] or counts[RETURNED] or counts[LEFT]):
            return False
        names = {state.ledger.send_list_name, *(each.name for each in state.ledger.exclusions)}
        if names & lists_in_use(self.task.hook.get_conn(), only_scheduled=True):
            self._reason = "a campaign is still to be sent to the lists"
        return bool(self._reason)

    def _keep_all(self) -> None:
        """Remove nobody: the source may be empty by mistake. A campaign reaches nobody, whom it returned."""
        self.task.log.warning("The source is empty: nobody is removed from the audience.")
        self._new_list = self._exact

    # --- brakes ---

    def _check_brakes(self) -> None:
        """Compare the changes with the size of the audience before, if there was one."""
        state, counts = self._state, self._comparison.counts
        if state is None:
            return
        self._counts = {
            JOINED: counts[JOINED] + counts[RETURNED],
            CHANGED: counts[CHANGED],
            LEFT: counts[LEFT],
        }
        size, removed = self._comparison.size_before, counts[LEFT]
        if not size and (size := self._known_size(state)):
            # The people are not known any more, but how many they were.
            removed = max(0, size - counts[JOINED])
        brakes = self.task.brakes
        changed = removed if not self._comparison.size_before else sum(self._counts.values())
        most = brakes.max_removed_fraction
        self._check_fraction("max_removed_fraction", most, removed, size, "would leave the audience")
        if brakes.max_change_fraction is not None:
            self._check_fraction("max_change_fraction", brakes.max_change_fraction, changed, size, "would change")
        before = state.ledger.suppressed
        if before and self.task.suppress:
            fewer = before - self.suppressed_people
            self._check_fraction("max_removed_fraction", most, fewer, before, "would be left out no longer", 1)
        recent = state.ledger.recent
        if len(recent) > 2 and changed > MIN_REMOVED and changed > UNUSUAL_RATIO * max(recent):
            self.task.log.warning(
                "%s people join, change or leave; in the last %s runs these were at most %s.",
                f"{changed:,}", len(recent), f"{max(recent):,}",
            )  # fmt: skip

    def _known_size(self, state: AudienceState) -> int:
        """Return how many people were in the audience, though its state is lost: by its row, or by its lists."""
        if state.known_size or not self._exact:
            return state.known_size
        return last_size(self.task.hook.get_conn(), self.new_list)

    def _check_fraction(
        self, name: str, most: float | None, count: int, size: int, what: str, all_of: int = MIN_ALL
    ) -> None:
        """Stop the run if a share is too large; by default, only with many people, or with all of at least some."""
        fraction = DEFAULT_FRACTION if most is None else most
        is_enough = most is not None or count > MIN_REMOVED or count >= max(size, all_of)
        if size and is_enough and count / size > fraction:
            self.brake(name, f"{count:,} of {size:,} people {what}, more than {fraction:g} of them")

    def _log_dry_run(self) -> None:
        examples: dict[str, list[str]] = {}
        for _, changes in self._comparison.changes():
            for change in changes:
                people = examples.setdefault(change.operation, [])
                if len(people) < MAX_EXAMPLES:
                    people.append(masked(change.key.decode()))
        named = "; ".join(f"{operation}: {', '.join(people)}" for operation, people in examples.items() if people)
        counts = ", ".join(f"{count:,} {name}" for name, count in self._counts.items())
        self.task.log.info("Dry run: %s. Such as %s. Nothing was sent.", counts, named or "none")

    # --- everybody ---

    def _send_everybody(self, send: Send, on_reject: Callable[[Reject], None]) -> None:
        """Send everybody to a new list, and then replace the state."""
        state, ledger = self._state, Ledger()
        self._new_list = self._exact
        if state is not None and state.header.generation and state.ledger.settings:
            # Until the state is replaced, the values at the service are not those that it has.
            state.ledger.complete = False
            state.save()
        rejected: set[int] = set()
        plan = replace(self._plan, list_name=self.list_name)
        send(self._everybody(plan.chunk_size), plan, _noting(rejected, on_reject))
        if state is None:
            self._accepted_people = self.progress.accepted
            return
        if self._logs:
            for _, changes in self._comparison.changes():
                self._note_changes(changes, rejected)
        if not self._comparison.size_before:
            self._counts = {JOINED: self.progress.accepted, CHANGED: 0, LEFT: 0}
        self._accepted_people = self.progress.accepted
        if not state.writes:
            return
        sinces = {} if not self._comparison.size_before else dict(self._old_sinces(state))
        removal = Removal(self, state, self._comparison)
        ledger.settings, ledger.full_at = self._settings, int(time.time())
        ledger.mapping = mapping_of(self._plan, self.task.hook.config)
        ledger.send_list_name = self.list_name or ""
        if self._exact and not self.progress.accepted:
            self._create(ledger.send_list_name)
        ledger.runs, ledger.recent = state.ledger.runs, state.ledger.recent
        to_delete = list(removal.absent_people()) if removal.deletes else []
        # They stay in the state until they are deleted.
        state.replace(self._entries(state, rejected, sinces, set(to_delete)), ledger)
        self._is_changing = True
        if to_delete:
            removal.delete_absent(to_delete)
        self._complete(state)

    def _everybody(self, size: int) -> Iterator[SelectedRows]:
        pending: list[tuple[bytes, int]] = []
        for number in range(BUCKETS):
            pending += self._people.bucket(number).values()
            while len(pending) >= size:
                yield self._people.selected(pending[:size])
                del pending[:size]
        if pending:
            yield self._people.selected(pending)
        yield from self._people.without_person(size)

    def _old_sinces(self, state: AudienceState) -> Iterator[tuple[bytes, int]]:
        for _, bucket in state.buckets():
            since = bucket.since()
            yield from ((key, since.get(key, 0)) for key, value in bucket.values.items() if is_member(value))

    def _entries(
        self, state: AudienceState, rejected: set[int], sinces: dict[bytes, int], absent: set[bytes]
    ) -> Iterator[tuple[int, list[Entry]]]:
        for number in range(BUCKETS):
            rows = self._people.bucket(number)
            current = digests([line for line, _ in rows.values()])
            began = [sinces.get(key) or state.began_at for key in rows] if sinces else repeat(state.began_at)
            entries = list(zip(rows, current, began, strict=False))
            if rejected:
                places = (place for _, place in rows.values())
                numbers = map(self._people.number, places)
                entries = [entry for entry, number in zip(entries, numbers, strict=True) if number not in rejected]
            yield number, entries + [(key, NEW, 0) for key in absent if bucket_of(key) == number]

    # --- changes ---

    def _send_changes(self, state: AudienceState, send: Send, on_reject: Callable[[Reject], None]) -> None:
        """Send what changed to the list of the state, exclude who left, and then complete the state."""
        comparison, people = self._comparison, self._people
        rejected: set[int] = set()
        # If this process ends, others may change the lists before the next run, which could not tell.
        self._is_changing = True
        state.ledger.complete = not self._exact
        if comparison.counts[JOINED] or comparison.counts[CHANGED] or comparison.counts[RETURNED] or people.unknown:
            state.change(
                (number, [(each.key, each.before, each.doubt, 0) for each in changes if each.operation != RETURNED])
                for number, changes in comparison.changes()
            )
            plan = replace(self._plan, list_name=self.list_name)
            send(self._changed(plan.chunk_size), plan, _noting(rejected, on_reject))
        if not state.writes:
            return
        removal = Removal(self, state, comparison)
        leaving: dict[int, list[Absent]] = {number: list(absent) for number, absent in comparison.absent()}
        final: Final = {}
        returned: list[Change] = []
        for number, changes in comparison.changes() if rejected or self._logs or comparison.counts[RETURNED] else ():
            self._note_changes(changes, rejected)
            for change in changes:
                is_return = change.operation == RETURNED
                if people.number(change.place) not in rejected:
                    if is_return:
                        returned.append(change)
                elif not is_return and change.before is None:
                    final.setdefault(number, []).append((change.key, NEW, GONE, 0))
                elif not is_return and self._exact:
                    leaving.setdefault(number, []).append(Absent(change.key, change.doubt))

        def accepted() -> Iterator[tuple[int, list[Step]]]:
            for number, changes in comparison.changes():
                kept = changes
                if rejected:
                    kept = [each for each in changes if people.number(each.place) not in rejected]
                began = state.began_at
                yield (
                    number,
                    [(each.key, each.doubt, each.digest, 0 if each.operation == CHANGED else began) for each in kept],
                )

        removal.remove(leaving, returned, final, accepted())
        self._new_exclusion = removal.made_list
        self._accepted_people = state.ledger.size
        self._complete(state)
        self.task.log.info("Audience: %s joined, %s changed, %s left.", *(f"{n:,}" for n in self._counts.values()))

    def _changed(self, size: int) -> Iterator[SelectedRows]:
        pending: list[tuple[bytes, int]] = []
        for _, changes in self._comparison.changes():
            pending += [(change.line, change.place) for change in changes]
            while len(pending) >= size:
                yield self._people.selected(pending[:size])
                del pending[:size]
        if pending:
            yield self._people.selected(pending)
        yield from self._people.without_person(size)

    def _note_changes(self, changes: Iterable[Change], rejected: set[int]) -> None:
        if self._logs:
            number = self._people.number
            self._log.add(
                [(each.key, "rejected" if number(each.place) in rejected else each.operation) for each in changes]
            )

    def note_left(self, keys: Iterable[bytes]) -> None:
        """Note people who left, for the log."""
        if self._logs:
            self._log.add([(key, LEFT) for key in keys])

    def new_exclusion(self, number: int) -> str:
        """Return the name of a new exclusion list."""
        begun_at = self.new_list.begun_at + timedelta(microseconds=number)
        return str(replace(self.new_list, role="excluded", begun_at=begun_at))

    # --- the end ---

    def _complete(self, state: AudienceState) -> None:
        """Compare the lists with the state, and store what the next run compares them with."""
        ledger = state.ledger
        if self._exact and ledger.send_list_name:
            expected = {ledger.send_list_name: ledger.listed}
            expected |= {each.name: each.sure for each in ledger.exclusions if each.name}
            differs = self._settle(expected)
            if differs and not self._new_list:
                ledger.settings = ""
                state.save()
                raise AirflowException(
                    f"{differs}. Others have changed it, or the service has not added a contact. The next try sends "
                    "everybody, to a new list"
                )
            self._store_dates(state)
        ledger.complete = True
        ledger.suppressed = self.suppressed_people if self.task.suppress else None
        ledger.runs = [*ledger.runs, (state.began_at, self.context["ti"].run_id)][-MAX_RUNS:]
        if not self._reason:
            ledger.recent = [*ledger.recent, sum(self._counts.values())][-RECENT_RUNS:]
        state.save()

    def _store_dates(self, state: AudienceState) -> None:
        ledger = state.ledger
        names = [ledger.send_list_name, *(each.name for each in ledger.exclusions if each.name)]
        ledger.modified, ledger.complete = modify_dates(self.task.hook.get_conn(), names), True

    def _settle(self, expected: dict[str, int]) -> str:
        """Wait until the lists have as many contacts as expected; return how they differ, or empty text."""
        totals = settled_totals(self.task.hook.get_conn(), expected)
        self._totals = {name: total for name, total in totals.items() if total is not None}
        different = [
            f"list {name!r} should have {count:,} contacts and has {totals[name]}"
            for name, count in expected.items()
            if totals[name] != count
        ]
        if different:
            self.task.log.warning("%s: with a state, the next run sends everybody.", "; ".join(different))
        return "; ".join(different)

    def _create(self, list_name: str) -> None:
        """Create a list that no row was added to, and that a campaign needs."""
        create(self.task.hook.get_conn(), AddList(list_name=list_name, list_description=self.task.list_description))

    def _delete_old(self) -> None:
        """Delete the lists of earlier runs; an error is only logged, since the audience is complete."""
        task, needed, state = self.task, {self.list_name or ""}, self._state
        if state is not None:
            needed |= {state.ledger.send_list_name, *(each.name for each in state.ledger.exclusions)}
        try:
            deleted = delete_old_lists(
                task.hook.get_conn(), self.new_list, needed=needed, keep=task.keep_lists, own_part=state is not None
            )
        except MailError as error:
            task.log.warning("Lists of earlier runs could not be deleted; the next run tries again: %s", error)
            return
        for name in deleted:
            task.log.info("List %r of an earlier run was deleted.", name)

    def _store_log(self, outcome: str, seconds: float) -> None:
        """Store the log of this run, if the user wants one: a row for it, and one for each person that changed."""
        task, progress, state = self.task, self.progress, self._state
        if not self._logs or state is None:
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
            "joined": self._counts[JOINED],
            "changed": self._counts[CHANGED],
            "left_count": self._counts[LEFT],
            "suppressed": self.suppressed or 0,
            "rejected": progress.rejected,
            "requests": progress.requests,
            "seconds": seconds,
        }
        suppressed = [(key, "suppressed") for key in self.suppressed_keys]
        people = chain(suppressed, chain.from_iterable(self._log)) if outcome == "success" else ()

        def store_changes(hook: DbApiHook, now: datetime) -> None:
            rows = ((import_id, state.key.people(key)[0], operation, now) for key, operation in people)
            table = derived_name(task.changes_only.log_table, "_changes")
            load(
                hook, AUDIENCE_CHANGES, table, rows, replace_where={"import_id": import_id}, task_run=current_task_run()
            )

        connect = lambda: task.audience_hook(task.changes_only.sql_conn_id)  # noqa: E731
        store_run(task.log, connect, AUDIENCE_RUNS, task.changes_only.log_table, values, store_changes)


def _noting(rejected: set[int], on_reject: Callable[[Reject], None]) -> Callable[[Reject], None]:
    """Return what is called with each rejected row, and notes its number."""

    def reject(row: Reject) -> None:
        rejected.add(row.row_number)
        on_reject(row)

    return reject


def _seconds(duration: float | timedelta) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else duration
