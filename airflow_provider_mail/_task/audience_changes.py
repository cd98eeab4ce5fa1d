"""An audience of which only changes are sent, by a state that says what the service has accepted.

The order of the steps is what makes a crash harmless. Before rows are sent, the state says that their people may be on
the list with unknown values; before people are excluded, it says that they may be excluded. So whatever the service has
carried out, the next run knows who may be where, and sends again what is in doubt. A state that cannot be trusted is
not repaired: everybody is sent to a new list.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._task.audience import RunAudience, Send
from airflow_provider_mail._task.audience_index import (
    CHANGED,
    GONE,
    JOINED,
    LEAVING,
    LEFT,
    MEMBER,
    RETURNED,
    UNCHANGED,
    AudienceIndex,
    AudienceRows,
    packed,
)
from airflow_provider_mail._task.audience_key import AudienceKey
from airflow_provider_mail._task.audience_rows import MAX_EXAMPLES, Identity, Rows, RowSpool, masked
from airflow_provider_mail._task.audience_state import (
    NO_MEMBERS,
    DamagedStateError,
    Header,
    StateChangedError,
    StateStore,
)
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.audience_state import Member
    from airflow_provider_mail.api.flows.import_contacts import Progress, SelectedRows
    from airflow_provider_mail.api.flows.upload_chunks import ImportPlan
    from airflow_provider_mail.api.flows.validate_rows import Reject

MIN_MEMBERS_TO_COMPARE = 10
"""Below this size of an audience, a fraction is not meaningful."""

_NONE, _DUE = "there is no state yet", "everybody is due"
"""The beginnings of expected reasons to send everybody."""

CLAIM_SECONDS = 24 * 3600
"""Seconds after which a run that Airflow does not know any more has ended."""


class TrackedAudience(RunAudience):
    """An audience with a state.

    The people of an exact audience are on a list that lasts until everybody is sent again. People who left the source
    are on an exclusion list, which is created again, under another name, when one of them comes back.
    """

    lists_last = True

    def __init__(self, task: Any, context: Context, progress: Progress) -> None:
        super().__init__(task, context, progress)
        self._exact = task.audience == "exact"
        self._deletes = task.on_removed == "delete_contact"
        self._mapped = self.new_list.part is not None
        if self._mapped and self._deletes:
            raise AirflowFailException(
                "on_removed: not 'delete_contact' in a mapped task: whoever moves to the rows of another one would be "
                "deleted. Nothing was sent"
            )
        self._writes = not (task.is_dry_run or self.sandbox)
        ti = context["ti"]
        part = "" if self.new_list.part is None else f"/{self.new_list.part}"
        self._header = Header.new(f"{_prefix()}{ti.dag_id}/{ti.task_id}{part}")
        self._claimant = json.dumps([ti.dag_id, ti.task_id, ti.run_id, ti.map_index])
        self._new_list = self._new_exclusion = self._unfinished = False
        self._members = NO_MEMBERS
        self._reason = ""
        self.counts: dict[str, int] = dict.fromkeys(("joined", "changed", "left"), 0)
        self.size: int | None = None

    @property
    def list_name(self) -> str | None:  # type: ignore[override]
        if not self._exact:
            name: str | None = self.task.list_name
            return name
        return str(self.new_list) if self._new_list else self._header.send_list_name or str(self.new_list)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep other runs from the audience. The state is written before the source is opened or after it was read.

        SQLite has either one writer or readers, and the state may be beside the source.
        """
        started, state = time.monotonic(), "failed"
        self._key, self._store, self._index = AudienceKey.of_deployment(), self._open(), AudienceIndex()
        try:
            self._claim()
            try:
                yield
                state = "success"
            except Exception:
                if self._unfinished:
                    # What was sent is on the new list, so the next try can continue with that.
                    self._replace_state(doubtful=True)
                raise
            finally:
                self._release()
                self._log("stopped" if self.is_stopped else state, time.monotonic() - started)
        except StateChangedError:
            raise AirflowException(
                f"another run has changed the state of this audience in {self._store.name}. The next try reads it again"
            ) from None
        finally:
            self._index.close()

    def import_rows(self, rows: Rows, plan: ImportPlan, send: Send, on_reject: Callable[[Reject], None]) -> None:
        self._identity, self._plan = Identity(plan.properties), plan
        properties = plan.properties
        if self._deletes and "email" not in properties:
            raise AirflowFailException(
                "columns: on_removed='delete_contact' needs email, by which contacts are deleted"
            )
        # With the name: an import without one would reset it.
        self._identifying = [properties.index(name) for name in ("email", "phoneNumber", "name") if name in properties]
        mode = f"{self.task.audience}/{self.task.on_removed}/{self.task.list_name}"
        self._settings = self._key.settings(self._header.audience_id, plan, self.task.hook.config, mode)
        self._decide()
        self._import(rows, send)

    def finish(self) -> dict[str, Any]:
        if self._new_list and self._writes:
            self.create_if_empty()
        if (self._new_list or self._new_exclusion) and self._writes:
            self.delete_old(set(self._current_lists()))
        return {**super(RunAudience, self).finish(), **self.counts, "size": self.size}

    def lists(self) -> dict[str, list[str]]:
        if self.task.is_dry_run:
            return {"send_list_names": [], "repel_list_names": []}
        repelled = self._header.repel_list_name if self._exact and not self._new_list else ""
        return {
            "send_list_names": [self.list_name] if self.list_name else [],
            "repel_list_names": [repelled] if repelled else [],
        }

    def _current_lists(self) -> Iterator[str]:
        yield from filter(None, (self.list_name, self._header.send_list_name, self._header.repel_list_name))

    # --- the state ---

    def _open(self) -> StateStore:
        from airflow_provider_mail._task.audience_state import SqlStateStore

        task = self.task
        if task.state_path:
            from airflow_provider_mail._task.audience_files import FileStateStore

            return FileStateStore(task.state_path, self._header.audience_id)
        return SqlStateStore(task.audience_hook("state_conn_id"), task.state_table, self._header.audience_id)

    def _claim(self) -> None:
        """Read the row of the audience, and keep other runs from it.

        :raises AirflowException: when another run is importing the audience.
        """
        header = self._store.read()
        if header is None:
            if not self._writes:
                return
            self._store.create(self._header)
            header = self._store.read() or self._header
        if header.claimed_by not in ("", self._claimant) and not _has_ended(header):
            dag_id, task_id, run_id, _ = json.loads(header.claimed_by)
            raise AirflowException(
                f"run {run_id!r} of task {dag_id}.{task_id} is importing this audience now: try again when it has ended"
            )
        audience, self._header, self._members = self._header.audience, header, header.members
        if self._writes:
            # With the name, which a damaged row does not have.
            values = {"audience": audience, "claimed_by": self._claimant, "members": NO_MEMBERS}
            self._header = self._store.update(header, **values)

    def _decide(self) -> None:
        """Decide whether everybody must be sent."""
        self._reason = self._distrust(self._header)
        if self._reason:
            if not self._reason.startswith(_DUE):
                self._index.close()
                self._index = AudienceIndex()
            self._header = replace(self._header, send_list_name="", repel_list_name="")
            expected = self._reason.startswith((_DUE, _NONE))
            log = self.task.log.info if expected else self.task.log.warning
            log("Everybody is sent: %s (%s).", self._reason, self._store.name)

    def _distrust(self, header: Header) -> str:
        """Return why everybody must be sent; empty if the state can be trusted. Loads the members."""
        if not header.generation:
            return _NONE
        if header.settings != self._settings:
            return "the state is that of another list, account, mapping or key"
        try:
            self._index.load(self._store.members(header.generation), distinct=self._store.distinct)
        except DamagedStateError as error:
            return f"the state is damaged: {error}"
        stored = self._index.stored
        if self._members not in (NO_MEMBERS, stored):
            return f"the state is damaged: it has {stored:,} of {self._members:,} members"
        if reason := self._lists_differ(header):
            return reason
        if self._index.count(LEFT, LEAVING) > self._index.count(MEMBER):
            return f"{_DUE}: more people have left than are there"
        if not header.full_at:
            return f"{_DUE}: a run that sent everybody did not end"
        every = self.task.full_every
        if every is not None and time.time() - header.full_at >= every:
            return f"{_DUE} (full_every)"
        return ""

    def _lists_differ(self, header: Header) -> str:
        """Return why the lists at the service are not those of the state; empty if they may be."""
        from airflow_provider_mail.api.contacts import GetListContacts
        from airflow_provider_mail.api.errors import MailRejectedError

        index = self._index
        lists = {header.send_list_name: (MEMBER, LEAVING, LEFT), header.repel_list_name: (LEAVING, LEFT)}
        for list_name, memberships in lists.items():
            if not list_name:
                continue
            try:
                total = self.task.hook.send(GetListContacts(list_name=list_name, page_size=1)).total_records
            except MailRejectedError as error:
                return f"list {list_name!r} cannot be read: {error}"
            if total == 0 and list_name == header.send_list_name and index.count(MEMBER):
                return f"nobody is on list {list_name!r} any more"
            # Before a row is sent, the state has its person: it never has fewer than a list of its own.
            if total is not None and self._exact and total > (known := index.count(*memberships)):
                return f"list {list_name!r} has {total:,} contacts, and the state {known:,}"
        return ""

    def _release(self) -> None:
        """Let other runs import the audience, unless one has taken it already."""
        if self._writes and self._header.claimed_by == self._claimant:
            try:
                self._header = self._store.update(self._header, claimed_by="")
            except StateChangedError:
                self.task.log.warning("Another run has changed the state of this audience meanwhile.")

    def _log(self, state: str, seconds: float) -> None:
        """Store the log of this run, if the user wants one."""
        from airflow_provider_mail._task.audience_log import log_run
        from airflow_provider_mail._task.mixin import task_instance_name

        task = self.task
        if not task.log_table or not self._writes:
            return
        values = {
            "import_id": task_instance_name(self.context, 250),
            "audience": self._header.audience,
            "mail_conn_id": task.mail_conn_id,
            "send_list_name": self.list_name or "",
            "repel_list_name": next(iter(self.lists()["repel_list_names"]), None),
            "state": state,
            "everybody": bool(self._reason),
            "reason": self.braked or self._reason or None,
            "size": self.size or 0,
            "rows_read": self.progress.read,
            "joined": self.counts["joined"],
            "changed": self.counts["changed"],
            "left_count": self.counts["left"],
            "suppressed": self._selection.suppressed if self._selection else 0,
            "rejected": self.progress.rejected,
            "requests": self.progress.requests,
            "seconds": seconds,
        }
        changes = self._index.changes() if state == "success" else ()
        log_run(task.audience_hook("state_conn_id"), task.log_table, values, changes, task.log)

    # --- the run ---

    def _import(self, rows: Rows, send: Send) -> None:
        everybody = bool(self._reason)
        suppressed: list[str] = []
        selected = self.selected(rows, self._plan, on_suppressed=lambda key: suppressed.append(self._key.person(key)))
        compared = self._compared(selected, suppressed, keep_all=everybody or (self._exact and self._mapped))
        if everybody and not self._header.generation and self.task.max_rows is None and not self.task.is_dry_run:
            # There is no state to compare with or to give up, so rows are sent as they are read.
            self._send_everybody(compared, send)
            return
        spool = RowSpool()
        try:
            self.fill(spool, compared)
            if not self.progress.read:
                self._keep_all()
                return
            self._check_brakes()
            if self.task.is_dry_run:
                self._log_dry_run(spool)
            elif everybody or (self._mapped and self._exact and self._people_moved()):
                self._reason = self._reason or "people left or came back in this range of the key"
                self._send_everybody(spool, send)  # type: ignore[arg-type]
            else:
                self._send_changes(spool, send)
        finally:
            spool.close()

    def _compared(
        self, rows: Iterable[SelectedRows], suppressed: list[str], *, keep_all: bool
    ) -> Iterator[AudienceRows]:
        """Yield the rows that are new or whose values changed, or all, with what the state stores of them."""
        identity, key = self._identity, self._key
        counts = dict.fromkeys((UNCHANGED, JOINED, RETURNED, CHANGED), 0)
        self._operations = counts
        for batch in rows:
            keys = [identity.key(row) for row in batch]
            persons = [key.person(text) if text else "" for text in keys]
            contents = list(map(key.content, batch))
            operations = self._index.compare(persons, contents) if self._index.stored else [JOINED] * len(batch)
            if suppressed:
                self._index.suppress(suppressed)
                suppressed.clear()
            for operation in operations:
                counts[operation] += 1
            places = [place for place, operation in enumerate(operations) if operation or keep_all]
            selected = AudienceRows(
                batch,
                batch.numbers,
                batch.lines,
                persons,
                contents,
                contents,
                operations,
            )
            if len(places) < len(operations):
                selected = selected.pick(places)
            selected.sealed = key.seal(
                [row[place] if place < len(row) else None for place in self._identifying] for row in selected
            )
            yield selected
        if suppressed:
            self._index.suppress(suppressed)

    def _keep_all(self) -> None:
        """Remove nobody: the source may be empty by mistake. A campaign reaches nobody, whom it returned."""
        self.task.log.warning("The source is empty: nobody is removed from the audience.")
        self._new_list = self._exact

    def _people_moved(self) -> bool:
        # Also when somebody was excluded for a row that was rejected: another range may have them now.
        return bool(self._operations[RETURNED]) or any(True for _ in self._index.absent(MEMBER, LEAVING, LEFT))

    def _check_brakes(self) -> None:
        """Compare the changes with the size of the audience before, if there was one."""
        size, operations = self._index.count(MEMBER), self._operations
        removed = sum(1 for _ in self._index.absent(MEMBER))
        self.counts = {
            "joined": operations[JOINED] + operations[RETURNED],
            "changed": operations[CHANGED],
            "left": removed,
        }
        if size < MIN_MEMBERS_TO_COMPARE:
            return
        changed = sum(self.counts.values())
        # Those who were left out before, and are deleted now.
        removed += sum(1 for member in self._leavers() if member[3] != MEMBER)
        for argument, count, what in (
            ("max_removed_fraction", removed, "would leave the audience"),
            ("max_change_fraction", changed, "would change"),
        ):
            most = getattr(self.task, argument)
            if most is not None and count / size > most:
                self.brake(argument, f"{count:,} of {size:,} people {what}, more than {most:g} of them")

    def _log_dry_run(self, spool: RowSpool) -> None:
        examples: dict[str, list[str]] = {}
        for batch in spool:
            assert isinstance(batch, AudienceRows)
            for row, operation in zip(batch, batch.operations, strict=True):
                of_operation = examples.setdefault(operation, [])
                if operation and len(of_operation) < MAX_EXAMPLES and (key := self._identity.key(row)):
                    of_operation.append(masked(key))
        named = "; ".join(f"{operation}: {', '.join(people)}" for operation, people in examples.items() if people)
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        self.task.log.info("Dry run: %s. Such as %s. Nothing was sent.", counts, named or "none")

    def _send_everybody(self, rows: Iterable[AudienceRows], send: Send) -> None:
        """Send everybody to a new list, and then replace the state."""
        index = self._index
        self._new_list = self._exact
        plan = replace(self._plan, list_name=self.list_name)
        if self._writes and self._header.generation:
            # Until the state is replaced, the values at the service are not those that it has.
            unusable: dict[str, Any] = {"full_at": 0} if index.stored else {"settings": ""}
            self._header = self._store.update(self._header, **unusable)
        self._unfinished = True
        send(index.sending(packed(_everybody(rows), plan.chunk_size)), plan, index)
        self._unfinished = False
        if not self.progress.read:
            self._keep_all()
            return
        if not self._index.stored:
            self.counts["joined"] = self.progress.accepted
        self._replace_state()
        if self._writes and self._deletes:
            self._delete_contacts()
            index.remove(self._leavers(), GONE)
            self._store.write(self._header.generation, index.removed())

    def _replace_state(self, *, doubtful: bool = False) -> None:
        from secrets import token_hex

        # The list exists if a row was accepted.
        if not (self._writes and (self.progress.accepted if doubtful else self.progress.requests)):
            return
        index, store, old = self._index, self._store, self._header.generation
        index.finish_sending()
        generation = token_hex(8)
        doubts = index.doubtful_members() if doubtful else ()
        # Those who are still to be deleted stay in the state.
        store.write(generation, _chained(self._leaving(), doubts, index.accepted_members()))
        self._header = store.update(
            self._header,
            settings=self._settings,
            generation=generation,
            send_list_name=self.list_name or "",
            repel_list_name="",
            members=NO_MEMBERS if doubtful else self._count_stored(generation),
            full_at=int(time.time()),
        )
        if old:
            store.drop(old)

    def _send_changes(self, spool: RowSpool, send: Send) -> None:
        """Send what changed to the list of the state, exclude who left, and then complete the state."""
        index, store, generation = self._index, self._store, self._header.generation
        changes = any(count for operation, count in self._operations.items() if operation)
        if self._writes and changes:
            store.write(generation, self._before_sending(spool))
        plan = replace(self._plan, list_name=self.list_name)
        if changes:
            batches: Any = spool
            try:
                send(index.sending(packed(batches, plan.chunk_size)), plan, index)
            except Exception:
                if self._writes:
                    index.finish_sending()
                    # Those who came back are still excluded.
                    store.write(generation, index.accepted_members(returned=False))
                raise
        index.finish_sending()
        if not self._writes:
            return
        self._remove()
        store.write(generation, self._after_sending())
        self._header = store.update(self._header, members=self._count_stored(generation))
        self.task.log.info(
            "Audience: %s joined, %s changed, %s left.", *(f"{self.counts[name]:,}" for name in self.counts)
        )

    def _count_stored(self, generation: str) -> int:
        """Return the number of members that the state has, of all kinds, and note how many are in the audience."""
        counts = self._store.counts(generation)
        self.size = counts.get(MEMBER, 0)
        return sum(counts.values())

    def _before_sending(self, spool: RowSpool) -> Iterator[Member]:
        """Yield the people who may be on the list with the values that are sent, or with those before."""
        for batch in spool:
            assert isinstance(batch, AudienceRows)
            for person, sealed, operation in zip(batch.persons, batch.sealed, batch.operations, strict=True):
                if person and operation:
                    yield person, "", sealed, LEAVING if operation == RETURNED else MEMBER

    def _after_sending(self) -> Iterator[Member]:
        """Yield the people whose place is certain now."""
        index = self._index
        yield from ((person, "", "", GONE) for person in index.rejected_persons())
        yield from index.rejected_members(LEFT)
        yield from index.accepted_members()
        yield from index.removed()

    def _remove(self) -> None:
        """Exclude those who left, delete them, or forget them, as ``on_removed`` says."""
        index = self._index
        if self._deletes:
            if any(True for _ in self._leavers()):
                # Before the first one is deleted: whoever comes back then is sent.
                self._store.write(self._header.generation, self._leaving())
            self._delete_contacts()
            index.remove(self._leavers(), GONE)
        if not self._exact:
            index.remove(index.absent(MEMBER, LEAVING), GONE)
            return
        index.remove(index.absent(MEMBER, LEAVING), LEFT)
        index.remove(index.rejected_members(MEMBER, LEAVING), LEFT)
        returned = bool(self._header.repel_list_name and index.returned())
        if not returned and not index.counts_removed(LEFT):
            return
        self._store.write(self._header.generation, index.excluding())
        if returned or not self._header.repel_list_name:
            repelled = str(replace(self.new_list, role="excluded"))
            self._send_excluded(index.all_excluded(), repelled)
            # Before the state says that they are back: the earlier list excludes them.
            self._header = self._store.update(self._header, repel_list_name=repelled)
            self._new_exclusion = True
        else:
            self._send_excluded(index.excluding(), self._header.repel_list_name)

    def _send_excluded(self, members: Iterable[Member], list_name: str) -> None:
        """Add people to an exclusion list.

        :raises AirflowException: the service rejects one of them.
        """
        from airflow_provider_mail.api.flows.create_once import create
        from airflow_provider_mail.api.flows.import_contacts import Progress, batches, import_contacts
        from airflow_provider_mail.api.lists import AddList

        properties = tuple(self._plan.properties[place] for place in self._identifying)
        plan = replace(self._plan, properties=properties, list_name=list_name, list_description="Left the audience")
        rejected: list[Reject] = []
        rows = (self._key.unseal(member[2]) for member in members)
        try:
            progress = import_contacts(
                self.task.hook.get_conn(),
                batches(rows, plan.chunk_size),
                plan,
                on_reject=rejected.append,
                progress=Progress(),
                interrupt=self.task.new_interrupt(),
            )
        except ValueError as error:
            raise self._give_up(f"the state is damaged: {error}") from None
        self.progress.requests += progress.requests
        if rejected:
            # Without the service's message, which may quote an address.
            reason = rejected[0].reason.partition(":")[0]
            raise self._give_up(f"{len(rejected)} people who left cannot be excluded: {reason}")
        if not progress.accepted:
            self.task.hook.run(create(AddList(list_name=list_name)))
        self.task.log.info("%s people were added to exclusion list %r.", f"{progress.accepted:,}", list_name)

    def _give_up(self, reason: str) -> AirflowException:
        """Distrust the state from now on, and return the error of this try."""
        self._header = self._store.update(self._header, settings="")
        return AirflowException(f"{reason}. The next try sends everybody, to a new list")

    def _leavers(self) -> Iterator[Member]:
        """Yield those whose contacts are to be deleted; not people whose rows are left out."""
        members = self._index.absent(MEMBER, LEAVING, LEFT, suppressed=False) if self._deletes else ()
        yield from members

    def _leaving(self) -> Iterator[Member]:
        yield from ((*member[:3], LEAVING) for member in self._leavers())

    def _delete_contacts(self) -> None:
        from airflow_provider_mail.api.contacts import DeleteContact
        from airflow_provider_mail.api.flows.create_once import delete

        deleted = 0
        for member in self._leavers():
            try:
                email = self._key.unseal(member[2])[0]
            except ValueError as error:
                raise self._give_up(f"the state is damaged: {error}") from None
            if email:
                self.task.hook.run(delete(DeleteContact(email=email)))
                deleted += 1
        if deleted:
            self.task.log.info("%s contacts were deleted, as on_removed says.", f"{deleted:,}")


def _everybody(batches: Iterable[AudienceRows]) -> Iterator[AudienceRows]:
    """Yield rows as such that are to be sent, whether or not they changed."""
    for batch in batches:
        batch.operations = [operation or CHANGED for operation in batch.operations]
        yield batch


def _chained(*parts: Iterable[Member]) -> Iterator[Member]:
    for part in parts:
        yield from part


def _prefix() -> str:
    from airflow_provider_mail._config import name_prefix

    return name_prefix()


def _has_ended(header: Header) -> bool:
    """Return whether the task instance that imports an audience has ended without saying so."""
    from airflow_provider_mail._task.on_kill import ENDED, task_state

    dag_id, task_id, run_id, map_index = json.loads(header.claimed_by)
    try:
        state = task_state(SimpleNamespace(dag_id=dag_id, task_id=task_id, run_id=run_id, map_index=map_index))
    except Exception:
        # Airflow cannot be asked, for example outside of a task.
        state = None
    # A run that Airflow does not know may still be going on while its claim is young.
    return state in ENDED or (state is None and time.time() - header.updated_at >= CLAIM_SECONDS)
