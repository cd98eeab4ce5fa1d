"""An audience of which only changes are sent, by a state that says what the service has accepted.

The order of the steps is what makes a crash harmless. Before rows are sent, the state says that their people may be on
the list with unknown values; before people are excluded, it says that they may be excluded. So whatever the service has
carried out, the next run knows who may be where, and sends again what is in doubt. A state that cannot be trusted is
not repaired: everybody is sent to a new list.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._audience.audience import MAX_EXAMPLES, RunAudience, Send, masked
from airflow_provider_mail._audience.comparison import Comparison
from airflow_provider_mail._audience.index import AudienceIndex
from airflow_provider_mail._audience.members import (
    DOUBTFUL,
    LEAVING,
    LEFT,
    MEMBER,
    Everybody,
    Members,
    changes,
    compacted,
)
from airflow_provider_mail._audience.removal import LISTED, Removal
from airflow_provider_mail._audience.rows import (
    CHANGED,
    JOINED,
    RETURNED,
    UNCHANGED,
    AudienceRows,
    Identity,
    Line,
    Rows,
    checksum,
    decoded,
    lines_of,
    packed,
)
from airflow_provider_mail._audience.state import NO_STATE, AudienceKey, AudienceState
from airflow_provider_mail._audience.store import FileStateStore, Header, SqlStateStore, StateChangedError, StateStore
from airflow_provider_mail._config import name_prefix
from airflow_provider_mail._task.mixin import task_instance_name
from airflow_provider_mail._task.progress import store_run
from airflow_provider_mail._task.storage import Spool
from airflow_provider_mail.api.contacts import GetListContacts
from airflow_provider_mail.api.errors import MailRejectedError
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException
from airflow_provider_mail.warehouse.load import load
from airflow_provider_mail.warehouse.table import derived_name
from airflow_provider_mail.warehouse.tables.imports import AUDIENCE_CHANGES, AUDIENCE_RUNS

if TYPE_CHECKING:
    from datetime import datetime

    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.sdk import Context

    from airflow_provider_mail.api.flows.import_contacts import Progress, SelectedRows
    from airflow_provider_mail.api.flows.upload_chunks import ImportPlan
    from airflow_provider_mail.api.flows.validate_rows import Reject

MIN_MEMBERS_TO_COMPARE = 10
"""Below this size of an audience, a fraction is not meaningful."""

DUE = "everybody is due"
"""The beginning of the reasons to send everybody although the state can be trusted."""

MAX_SHARE_VOID = 0.1
"""The share of lines that no longer count from which a state is written anew."""


class TrackedAudience(RunAudience):
    """An audience with a state.

    The people of an exact audience are on a list that lasts until everybody is sent again. People who left the source
    are on an exclusion list, which is created again, under another name, when one of them comes back.
    """

    def __init__(self, task: Any, context: Context, progress: Progress) -> None:
        super().__init__(task, context, progress)
        self._exact = task.audience == "exact"
        self._mapped = self.new_list.part is not None
        if self._mapped and task.changes_only.on_removed == "delete_contact":
            raise AirflowFailException(
                "on_removed: not 'delete_contact' in a mapped task: people who move to the rows of another one would "
                "be deleted. Nothing was sent"
            )
        self._new_list = self._new_exclusion = False
        self._everybody: Everybody | None = None
        self._reason = ""
        """Why everybody is sent; empty if only changes are."""
        self._counts = dict.fromkeys(("joined", "changed", "left"), 0)

    @property
    def list_name(self) -> str | None:  # type: ignore[override]
        if not self._exact:
            name: str | None = self.task.list_name
            return name
        return str(self.new_list) if self._new_list else self._state.header.send_list_name or str(self.new_list)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep other runs from the audience. The state is written before the source is opened or after it was read.

        SQLite has either one writer or readers, and the state may be beside the source.
        """
        started, outcome = time.monotonic(), "failed"
        with closing(self._open()) as self._state, closing(AudienceIndex()) as self._index:
            try:
                self._state.claim()
                try:
                    yield
                    outcome = "success"
                except Exception:
                    if self._everybody is not None:
                        # What was sent is on the new list, so the next try can continue with that.
                        self._replace_state(self._everybody, doubtful=True)
                    raise
                finally:
                    self._state.release(self.task.log)
                    self._log("stopped" if self.is_stopped else outcome, time.monotonic() - started)
            except StateChangedError:
                raise AirflowException(
                    f"another run has changed the state of this audience in {self._state.store.name}. The next try "
                    "reads it again"
                ) from None

    def import_rows(self, rows: Rows, plan: ImportPlan, send: Send, on_reject: Callable[[Reject], None]) -> None:
        task, state = self.task, self._state
        self._identity, self._plan = Identity(plan.properties), plan
        self._removal = Removal(task, state, self._index, plan, self.progress)
        mode = f"{task.audience}/{task.changes_only.on_removed}/{task.list_name}"
        settings = state.key.settings(state.header.audience_id, plan, task.hook.config, mode)
        self._reason = self._why_everybody(settings)
        if self._reason:
            is_expected = self._reason.startswith((DUE, NO_STATE))
            if not is_expected:
                state.replace_members(Members())
            state.forget_lists()
            log = task.log.info if is_expected else task.log.warning
            log("Everybody is sent: %s (%s).", self._reason, state.store.name)
        self._import(rows, send)

    def finish(self) -> dict[str, Any]:
        if self._new_list and self._state.writes:
            self.create_if_empty()
        if (self._new_list or self._new_exclusion) and self._state.writes:
            header = self._state.header
            needed = {self.list_name, header.send_list_name, header.repel_list_name}
            self.delete_old({name for name in needed if name}, own_part=True)
        return {**super(RunAudience, self).finish(), **self._counts, "size": self._state.size}

    def lists(self) -> dict[str, list[str]]:
        repelled = self._state.header.repel_list_name if self._exact and not self._new_list else ""
        excluded = [repelled] if repelled and not self.task.is_dry_run else []
        return super().lists() | {"repel_list_names": excluded}

    # --- the state ---

    def _open(self) -> AudienceState:
        task, ti, part = self.task, self.context["ti"], self.new_list.part
        key = AudienceKey.of_deployment()
        header = Header.new(f"{name_prefix()}{ti.dag_id}/{ti.task_id}{'' if part is None else f'/{part}'}")
        store: StateStore
        place = task.changes_only
        if place.path:
            store = FileStateStore(place.path, header.audience_id)
        else:
            store = SqlStateStore(task.audience_hook(place.sql_conn_id), place.table, header.audience_id)
        claimant = json.dumps([ti.dag_id, ti.task_id, ti.run_id, ti.map_index])
        return AudienceState(store, key, header, claimant, writes=not (task.is_dry_run or self.sandbox))

    def _why_everybody(self, settings: str) -> str:
        """Return why everybody must be sent; empty if changes are enough. Loads the members."""
        state, every = self._state, self.task.changes_only.full_every
        if reason := state.load(settings) or self._how_lists_differ():
            return reason
        if state.members.count(LEFT, LEAVING) > state.members.count(MEMBER, DOUBTFUL):
            return f"{DUE}: more people have left than are there"
        if not state.header.full_at:
            return f"{DUE}: a run that sent everybody did not end"
        if every is not None and time.time() - state.header.full_at >= every:
            return f"{DUE} (full_every)"
        return ""

    def _how_lists_differ(self) -> str:
        """Return why the lists at the service are not those of the state; empty if they may be."""
        header, members = self._state.header, self._state.members
        lists = {header.send_list_name: (), header.repel_list_name: (LEAVING, LEFT)}
        for list_name, memberships in lists.items():
            if not list_name:
                continue
            try:
                total = self.task.hook.send(GetListContacts(list_name=list_name, page_size=1)).total_records
            except MailRejectedError as error:
                return f"list {list_name!r} cannot be read: {error}"
            if total == 0 and list_name == header.send_list_name and members.count(MEMBER):
                return f"nobody is on list {list_name!r} any more"
            # Before a row is sent, the state has its person: it never has fewer than a list of its own.
            if total is not None and self._exact and total > (known := members.count(*memberships)):
                return f"list {list_name!r} has {total:,} contacts, and the state {known:,}"
        return ""

    def _log(self, outcome: str, seconds: float) -> None:
        """Store the log of this run, if the user wants one: a row for it, and one for each person that changed."""
        task, progress, counts = self.task, self.progress, self._counts
        if not (log_table := task.changes_only.log_table) or not self._state.writes:
            return
        import_id = task_instance_name(self.context, 250)
        values = {
            "import_id": import_id,
            "audience": self._state.header.audience,
            "mail_conn_id": task.mail_conn_id,
            "send_list_name": self.list_name or "",
            "repel_list_name": next(iter(self.lists()["repel_list_names"]), None),
            "state": outcome,
            "everybody": bool(self._reason),
            "reason": self.braked or self._reason or None,
            "size": self._state.size or 0,
            "rows_read": progress.read,
            "joined": counts["joined"],
            "changed": counts["changed"],
            "left_count": counts["left"],
            "suppressed": self.suppressed or 0,
            "rejected": progress.rejected,
            "requests": progress.requests,
            "seconds": seconds,
        }
        people = self._index.changes() if outcome == "success" else ()

        def store_changes(hook: DbApiHook, now: datetime) -> None:
            rows = ((import_id, self._state.key.person(key), operation, now) for key, operation in people)
            table = derived_name(log_table, "_changes")
            load(hook, AUDIENCE_CHANGES, table, rows, replace_where={"import_id": import_id})

        store_run(
            task.log,
            lambda: task.audience_hook(task.changes_only.sql_conn_id),
            AUDIENCE_RUNS,
            log_table,
            values,
            store_changes,
        )

    # --- the run ---

    def _import(self, rows: Rows, send: Send) -> None:
        task, state, everybody = self.task, self._state, bool(self._reason)
        selected = self.selected(rows, self._plan, on_suppressed=lambda key: self._index.suppress([key]))
        if everybody and not state.header.generation and task.brakes.max_rows is None and not task.is_dry_run:
            # There is no state to compare with or to give up, so rows are sent as they are read.
            self._send_everybody(selected, send)
            return
        compacts = state.members.share_void > MAX_SHARE_VOID
        keeps_all = everybody or compacts or (self._exact and self._mapped)
        uncertain = (DOUBTFUL, LEAVING, LEFT) if self._removal.deletes else (DOUBTFUL, LEAVING)
        comparison = Comparison(state.members, self._index, self._identity)
        with closing(Spool[AudienceRows]()) as spool:
            with closing(Spool[AudienceRows]()) as unresolved:
                self.fill(unresolved, comparison.changed(selected, uncertain, keeps_all=keeps_all))
                if not self.progress.read:
                    self._keep_all()
                    return
                operations = comparison.resolve(unresolved, spool)
            self._check_brakes(operations)
            if task.is_dry_run:
                self._log_dry_run(spool)
            elif everybody or (self._mapped and self._exact and self._people_moved(operations)):
                self._reason = self._reason or "people left or came back in this range of the key"
                self._send_everybody(spool, send)
            else:
                self._send_changes(spool, operations, send)
                if compacts and state.writes:
                    # In the order of the source, without what no longer counts.
                    state.replace_members(compacted(spool, state.members, self._index, self._identity))
                    state.rewrite()

    def _keep_all(self) -> None:
        """Remove nobody: the source may be empty by mistake. A campaign reaches nobody, whom it returned."""
        self.task.log.warning("The source is empty: nobody is removed from the audience.")
        self._new_list = self._exact

    def _people_moved(self, operations: Counter[str]) -> bool:
        # Also when a person was excluded for a row that was rejected: another range may have them now.
        returned, had_left = operations[RETURNED], self._state.members.count(LEFT)
        return bool(returned or had_left) or any(True for _ in self._index.absent(*LISTED))

    def _check_brakes(self, operations: Counter[str]) -> None:
        """Compare the changes with the size of the audience before, if there was one."""
        size = self._state.members.count(MEMBER, DOUBTFUL)
        removed = sum(1 for _ in self._index.absent(MEMBER, DOUBTFUL))
        self._counts = {
            "joined": operations[JOINED] + operations[RETURNED],
            "changed": operations[CHANGED],
            "left": removed,
        }
        if size < MIN_MEMBERS_TO_COMPARE:
            return
        # Those who were left out before, and are deleted now.
        removed += sum(1 for _ in self._removal.to_delete(LEAVING, LEFT))
        for argument, count, what in (
            ("max_removed_fraction", removed, "would leave the audience"),
            ("max_change_fraction", sum(self._counts.values()), "would change"),
        ):
            most = getattr(self.task.brakes, argument)
            if most is not None and count / size > most:
                self.brake(argument, f"{count:,} of {size:,} people {what}, more than {most:g} of them")

    def _log_dry_run(self, spool: Iterable[AudienceRows]) -> None:
        examples: dict[str, list[str]] = {}
        for rows in spool:
            for row, operation in zip(rows, rows.operations, strict=True):
                people = examples.setdefault(operation, [])
                if operation and len(people) < MAX_EXAMPLES and (key := self._identity.key(row)):
                    people.append(masked(key))
        named = "; ".join(f"{operation}: {', '.join(people)}" for operation, people in examples.items() if people)
        counts = ", ".join(f"{count:,} {name}" for name, count in self._counts.items())
        self.task.log.info("Dry run: %s. Such as %s. Nothing was sent.", counts, named or "none")

    def _send_everybody(self, rows: Iterable[SelectedRows], send: Send) -> None:
        """Send everybody to a new list, and then replace the state."""
        state = self._state
        self._new_list = self._exact
        if state.header.generation:
            # Until the state is replaced, the values at the service are not those that it has.
            unusable: dict[str, Any] = {"full_at": 0} if len(state.members) else {"settings": ""}
            state.update(**unusable)
        index = self._index if self.task.changes_only.log_table else None
        everybody = self._everybody = Everybody(self._identity, index)
        send(everybody.sending(rows), replace(self._plan, list_name=self.list_name), everybody)
        self._everybody = None
        if not self.progress.read:
            self._keep_all()
            return
        if not len(state.members):
            self._counts["joined"] = self.progress.accepted
        self._replace_state(everybody)
        if state.writes and self._removal.deletes:
            self._removal.delete(noted=True)
            state.add([(number, place) for number, place, _ in state.members.active(LEAVING)], ())
            state.complete()

    def _replace_state(self, everybody: Everybody, *, doubtful: bool = False) -> None:
        members = everybody.complete()
        # Those who are still to be deleted stay in the state.
        for part in changes({}, lines_of(LEAVING, self._removal.to_delete())):
            members.add(part)
        self._state.replace_members(members)
        # The list exists if a row was accepted.
        is_sent = self.progress.accepted if doubtful else self.progress.requests
        if is_sent:
            self._state.rewrite(
                send_list_name=self.list_name or "", repel_list_name="", full_at=int(time.time()), doubtful=doubtful
            )

    def _send_changes(self, spool: Spool[AudienceRows], operations: Counter[str], send: Send) -> None:
        """Send what changed to the list of the state, exclude who left, and then complete the state."""
        index, state, first = self._index, self._state, len(self._state.members)
        if operations.total() > operations[UNCHANGED]:
            state.add(index.ended_of("seen"), self._before_sending(spool))
            plan = replace(self._plan, list_name=self.list_name)
            try:
                send(index.sending(packed(spool, plan.chunk_size)), plan, index)
            except Exception:
                self._settle(first)
                raise
        index.finish_sending()
        if not state.writes:
            return
        if self._removal.deletes:
            self._removal.delete()
        if self._exact:
            self._new_exclusion = self._removal.exclude(str(replace(self.new_list, role="excluded")))
        else:
            self._removal.forget()
        state.add(index.ended(), self._after_sending(), since=first)
        state.complete()
        self.task.log.info("Audience: %s joined, %s changed, %s left.", *(f"{n:,}" for n in self._counts.values()))

    def _before_sending(self, spool: Iterable[AudienceRows]) -> Iterator[Line]:
        """Yield the rows of people who may be on the list with the values that are sent, or with those before."""
        for membership in (DOUBTFUL, LEAVING):
            for rows in spool:
                for key, text, operation in zip(rows.keys, rows.texts, rows.operations, strict=True):
                    # Those who came back are still excluded.
                    if key and operation and (operation == RETURNED) == (membership == LEAVING):
                        yield membership, text, checksum(key)

    def _settle(self, first: int) -> None:
        """Note what was accepted before an error. People who came back are still excluded.

        :param first: the first part of this run.
        """
        self._index.finish_sending()
        settled = [
            (number, place)
            for number, place, line in self._state.members.active(DOUBTFUL)
            if number >= first and self._index.was_accepted(self._identity.key(decoded(line)), line)
        ]
        self._state.add(settled, lines_of(MEMBER, self._index.accepted_lines(returned=False)))

    def _after_sending(self) -> Iterator[Line]:
        """Yield the rows of people whose place is certain now, or who must be sent again."""
        index = self._index
        yield from lines_of(MEMBER, index.accepted_lines())
        if not self._exact:
            yield from lines_of(DOUBTFUL, index.rejected(MEMBER, DOUBTFUL))
        yield from lines_of(LEFT, index.rejected(LEFT))
        yield from lines_of(LEFT, index.removed(LEFT))
