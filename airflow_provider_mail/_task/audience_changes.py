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
    JOINED,
    RETURNED,
    UNCHANGED,
    AudienceIndex,
    AudienceRows,
    packed,
)
from airflow_provider_mail._task.audience_key import AudienceKey
from airflow_provider_mail._task.audience_lines import Matcher, checksum, checksums, decoded, encoded
from airflow_provider_mail._task.audience_members import (
    DOUBTFUL,
    LEAVING,
    LEFT,
    MEMBER,
    Line,
    Members,
    Part,
    changes,
    parts_of,
)
from airflow_provider_mail._task.audience_new import Everybody
from airflow_provider_mail._task.audience_rows import MAX_EXAMPLES, Identity, Rows, RowSpool, masked, picked_rows
from airflow_provider_mail._task.audience_state import NO_MEMBERS, Header, StateChangedError, StateStore
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.audience_state import StoredPart
    from airflow_provider_mail.api.flows.import_contacts import Progress, SelectedRows
    from airflow_provider_mail.api.flows.upload_chunks import ImportPlan
    from airflow_provider_mail.api.flows.validate_rows import Reject

MIN_MEMBERS_TO_COMPARE = 10
"""Below this size of an audience, a fraction is not meaningful."""

_NONE, _DUE = "there is no state yet", "everybody is due"
"""The beginnings of expected reasons to send everybody."""

UNRESOLVED = "unresolved"
"""The operation of a row that is not yet compared with all members."""

GONE = ""
"""Where people are who are on no list any more."""

_LISTED = (MEMBER, DOUBTFUL, LEAVING)
"""The memberships of people who may be on the list and not excluded."""

MAX_SHARE_VOID = 0.1
"""The share of lines that no longer count from which a state is written anew."""

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
                "on_removed: not 'delete_contact' in a mapped task: people who move to the rows of another one would "
                "be deleted. Nothing was sent"
            )
        self._writes = not (task.is_dry_run or self.sandbox)
        ti = context["ti"]
        part = "" if self.new_list.part is None else f"/{self.new_list.part}"
        self._header = Header.new(f"{_prefix()}{ti.dag_id}/{ti.task_id}{part}")
        self._claimant = json.dumps([ti.dag_id, ti.task_id, ti.run_id, ti.map_index])
        self._new_list = self._new_exclusion = False
        self._expected = NO_MEMBERS
        self._everybody: Everybody | None = None
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
        self._key, self._store = AudienceKey.of_deployment(), self._open()
        self._index, self._members = AudienceIndex(), Members()
        try:
            self._claim()
            try:
                yield
                state = "success"
            except Exception:
                if self._everybody is not None:
                    # What was sent is on the new list, so the next try can continue with that.
                    self._replace_state(self._everybody, doubtful=True)
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
            self._members.close()

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
        audience, self._header, self._expected = self._header.audience, header, header.members
        if self._writes:
            # With the name, which a damaged row does not have.
            values = {"audience": audience, "claimed_by": self._claimant, "members": NO_MEMBERS}
            self._header = self._store.update(header, **values)

    def _decide(self) -> None:
        """Decide whether everybody must be sent."""
        self._reason = self._distrust(self._header)
        if self._reason:
            if not self._reason.startswith(_DUE):
                self._members.close()
                self._members = Members()
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
            self._load(header.generation)
        except (ValueError, TypeError) as error:
            return f"the state is damaged: {error}"
        members = self._members
        if len(members) < header.parts:
            return "the state is damaged: a part is missing"
        if self._expected not in (NO_MEMBERS, members.count()):
            return f"the state is damaged: it has {members.count():,} of {self._expected:,} rows"
        if reason := self._lists_differ(header):
            return reason
        if members.count(LEFT, LEAVING) > members.count(MEMBER, DOUBTFUL):
            return f"{_DUE}: more people have left than are there"
        if not header.full_at:
            return f"{_DUE}: a run that sent everybody did not end"
        every = self.task.full_every
        if every is not None and time.time() - header.full_at >= every:
            return f"{_DUE} (full_every)"
        return ""

    def _load(self, generation: str) -> None:
        """Read the members.

        :raises ValueError: when something is missing or was changed.
        """
        for number, membership, rows, voids, sealed in self._store.parts(generation):
            if number != len(self._members):
                raise ValueError("a part is missing")
            content = self._key.unseal(sealed, _place(generation, number, membership, rows, voids))
            self._members.add(Part(membership, int(rows), voids, content))

    def _lists_differ(self, header: Header) -> str:
        """Return why the lists at the service are not those of the state; empty if they may be."""
        from airflow_provider_mail.api.contacts import GetListContacts
        from airflow_provider_mail.api.errors import MailRejectedError

        members = self._members
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
        changed = self._index.changes() if state == "success" else ()
        people = ((self._key.person(key), operation) for key, operation in changed)
        log_run(task.audience_hook("state_conn_id"), task.log_table, values, people, task.log)

    # --- the run ---

    def _import(self, rows: Rows, send: Send) -> None:
        everybody = bool(self._reason)
        selected = self.selected(rows, self._plan, on_suppressed=lambda key: self._index.suppress([key]))
        if everybody and not self._header.generation and self.task.max_rows is None and not self.task.is_dry_run:
            # There is no state to compare with or to give up, so rows are sent as they are read.
            self._send_everybody(selected, send)
            return
        compacts = self._members.share_void > MAX_SHARE_VOID
        keeps_all = everybody or compacts or (self._exact and self._mapped)
        unresolved, spool = RowSpool(), RowSpool()
        try:
            self.fill(unresolved, self._compared(selected, keeps_all=keeps_all))
            if not self.progress.read:
                self._keep_all()
                return
            self._resolve(unresolved, spool)
            unresolved.close()
            self._check_brakes()
            if self.task.is_dry_run:
                self._log_dry_run(spool)
            elif everybody or (self._mapped and self._exact and self._people_moved()):
                self._reason = self._reason or "people left or came back in this range of the key"
                self._send_everybody(spool, send)
            else:
                self._send_changes(spool, send)
                if compacts:
                    self._compact(spool)
        finally:
            unresolved.close()
            spool.close()

    def _compared(self, rows: Iterable[SelectedRows], *, keeps_all: bool) -> Iterator[AudienceRows]:
        """Yield the rows that are not lines of the state, or all; the operation of each is still unknown."""
        index, identity, has_members = self._index, self._identity, bool(len(self._members))
        uncertain = (DOUBTFUL, LEAVING, LEFT) if self._deletes else (DOUBTFUL, LEAVING)
        unmatched: list[tuple[int, int, bytes]] = list(self._members.active(*uncertain))

        def note() -> None:
            index.add_known(
                (identity.key(decoded(line)), line, self._members.membership(number), number, place)
                for number, place, line in unmatched
            )
            unmatched.clear()

        matcher = Matcher(self._members, lambda *line: unmatched.append(line))
        for batch in rows:
            places = matcher.unmatched(encoded(batch), len(batch))
            note()
            picked = [batch[place] for place in places]
            keys, texts = [identity.key(row) or "" for row in picked], [encoded([row]) for row in picked]
            if has_members:
                index.see(keys)
            operations = [UNRESOLVED if has_members else JOINED] * len(places)
            if keeps_all:
                yield AudienceRows.among(batch, places, keys, texts, operations)
            else:
                chosen = picked_rows(batch, places, batch.numbers, batch.lines)
                yield AudienceRows(chosen, chosen.numbers, chosen.lines, keys, texts, operations)
        matcher.rest()
        note()

    def _resolve(self, unresolved: RowSpool, spool: RowSpool) -> None:
        """Find out what each row is, beside the members before."""
        self._index.complete(self._members, self._identity)
        self._operations = dict.fromkeys((UNCHANGED, JOINED, RETURNED, CHANGED), 0)
        for batch in unresolved:
            assert isinstance(batch, AudienceRows)
            places = [place for place, operation in enumerate(batch.operations) if operation == UNRESOLVED]
            operations = self._index.operations(
                [batch.keys[place] for place in places], [batch.texts[place] for place in places]
            )
            resolved = list(batch.operations)
            for place, operation in zip(places, operations, strict=True):
                resolved[place] = operation
            for operation in resolved:
                self._operations[operation] += 1
            batch.operations = resolved
            spool.add(batch)

    def _keep_all(self) -> None:
        """Remove nobody: the source may be empty by mistake. A campaign reaches nobody, whom it returned."""
        self.task.log.warning("The source is empty: nobody is removed from the audience.")
        self._new_list = self._exact

    def _people_moved(self) -> bool:
        # Also when a person was excluded for a row that was rejected: another range may have them now.
        returned, had_left = self._operations[RETURNED], self._members.count(LEFT)
        return bool(returned or had_left) or any(True for _ in self._index.absent(*_LISTED))

    def _check_brakes(self) -> None:
        """Compare the changes with the size of the audience before, if there was one."""
        size = self._members.count(MEMBER, DOUBTFUL)
        removed = sum(1 for _ in self._index.absent(MEMBER, DOUBTFUL))
        operations = self._operations
        self.counts = {
            "joined": operations[JOINED] + operations[RETURNED],
            "changed": operations[CHANGED],
            "left": removed,
        }
        if size < MIN_MEMBERS_TO_COMPARE:
            return
        changed = sum(self.counts.values())
        # Those who were left out before, and are deleted now.
        removed += sum(1 for _ in self._leavers(LEAVING, LEFT))
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

    def _send_everybody(self, rows: Iterable[SelectedRows], send: Send) -> None:
        """Send everybody to a new list, and then replace the state."""
        self._new_list = self._exact
        plan = replace(self._plan, list_name=self.list_name)
        if self._writes and self._header.generation:
            # Until the state is replaced, the values at the service are not those that it has.
            unusable: dict[str, Any] = {"full_at": 0} if len(self._members) else {"settings": ""}
            self._header = self._store.update(self._header, **unusable)
        everybody = self._everybody = Everybody(self._identity, self._index if self.task.log_table else None)
        send(everybody.sending(rows), plan, everybody)
        self._everybody = None
        if not self.progress.read:
            self._keep_all()
            return
        if not len(self._members):
            self.counts["joined"] = self.progress.accepted
        self._replace_state(everybody)
        if self._writes and self._deletes:
            self._index.remove(self._leavers(), GONE)
            self._delete_contacts()
            self._write([line[:2] for line in self._members.active(LEAVING)], ())
            self._header = self._store.update(self._header, **self._counts())

    def _replace_state(self, everybody: Everybody, *, doubtful: bool = False) -> None:
        self._members.close()
        self._members = everybody.complete()
        # Those who are still to be deleted stay in the state.
        for part in changes({}, _of(LEAVING, self._leavers())):
            self._members.add(part)
        # The list exists if a row was accepted.
        if self._writes and (self.progress.accepted if doubtful else self.progress.requests):
            self._write_generation(
                send_list_name=self.list_name or "", repel_list_name="", full_at=int(time.time()), doubtful=doubtful
            )

    def _write_generation(self, *, doubtful: bool = False, **values: Any) -> None:
        """Write all members, and let the row of the audience say that they are the current ones."""
        from secrets import token_hex

        old, generation = self._header.generation, token_hex(8)
        self._store.write(generation, self._sealed(generation, 0))
        counts = self._counts() | ({"members": NO_MEMBERS} if doubtful else {})
        self._header = self._store.update(
            self._header, settings=self._settings, generation=generation, **values, **counts
        )
        if old:
            self._store.drop(old)

    def _sealed(self, generation: str, first: int) -> Iterator[StoredPart]:
        """Yield the parts from one on as the state stores them."""
        for number in range(first, len(self._members)):
            membership, rows, voids, content = self._members.part(number)
            place = _place(generation, number, membership, rows, voids)
            yield number, membership, rows, voids, self._key.seal(content, place)

    def _write(self, voids: Iterable[tuple[int, int]], lines: Iterable[Line], since: int = -1) -> None:
        """Add to the state in one step.

        :param voids: part and place of the lines that no longer count.
        :param since: the first part of which no line counts any more. Default: none.
        """
        first, ended = len(self._members), dict[int, list[int] | None]()
        for number, place in voids:
            places = ended.setdefault(number, [])
            assert places is not None
            places.append(place)
        if since >= 0:
            ended |= dict.fromkeys(range(since, first))
        for part in changes(ended, lines):
            self._members.add(part)
        if len(self._members) > first:
            # Fails if another run, which believes that this one has ended, has taken the audience.
            self._header = self._store.update(self._header)
            self._store.write(self._header.generation, self._sealed(self._header.generation, first))

    def _counts(self) -> dict[str, int]:
        """Return what the row of the audience says of the members, and note how many are in the audience."""
        self.size = self._members.count(MEMBER, DOUBTFUL)
        excluded = self._members.count(LEFT, LEAVING)
        return {
            "members": self._members.count(), "parts": len(self._members), "size": self.size, "excluded": excluded
        }  # fmt: skip

    def _send_changes(self, spool: RowSpool, send: Send) -> None:
        """Send what changed to the list of the state, exclude who left, and then complete the state."""
        index, first = self._index, len(self._members)
        plan = replace(self._plan, list_name=self.list_name)
        if any(count for operation, count in self._operations.items() if operation):
            if self._writes:
                self._write(index.ended_of("seen"), self._before_sending(spool))
            batches: Any = spool
            try:
                send(index.sending(packed(batches, plan.chunk_size)), plan, index)
            except Exception:
                if self._writes:
                    self._settle(first)
                raise
        index.finish_sending()
        if not self._writes:
            return
        self._remove()
        self._write(index.ended(), self._after_sending(), since=first)
        self._header = self._store.update(self._header, **self._counts())
        self.task.log.info(
            "Audience: %s joined, %s changed, %s left.", *(f"{self.counts[name]:,}" for name in self.counts)
        )

    def _before_sending(self, spool: RowSpool) -> Iterator[Line]:
        """Yield the rows of people who may be on the list with the values that are sent, or with those before."""
        for membership in (DOUBTFUL, LEAVING):
            for batch in spool:
                assert isinstance(batch, AudienceRows)
                for key, text, operation in zip(batch.keys, batch.texts, batch.operations, strict=True):
                    if key and operation and (operation == RETURNED) == (membership == LEAVING):
                        yield membership, text, checksum(key)

    def _settle(self, first: int) -> None:
        """Note what was accepted before an error. People who came back are still excluded.

        :param first: the first part of this run.
        """
        self._index.finish_sending()
        settled = [
            (number, place)
            for number, place, line in self._members.active(DOUBTFUL)
            if number >= first and self._index.was_accepted(self._identity.key(decoded(line)), line)
        ]
        self._write(settled, _of(MEMBER, self._index.accepted_lines(returned=False)))

    def _after_sending(self) -> Iterator[Line]:
        """Yield the rows of people whose place is certain now, or who must be sent again."""
        index = self._index
        yield from _of(MEMBER, index.accepted_lines())
        if not self._exact:
            yield from _of(DOUBTFUL, index.rejected(MEMBER, DOUBTFUL))
        yield from _of(LEFT, index.rejected(LEFT))
        yield from _of(LEFT, index.removed(LEFT))

    def _compact(self, spool: RowSpool) -> None:
        """Write the state anew, in the order of the source, without what no longer counts."""
        if not self._writes:
            return
        members, was_accepted = Members(), self._index.was_accepted
        for batch in spool:
            assert isinstance(batch, AudienceRows)
            places = [
                place
                for place, operation in enumerate(batch.operations)
                if not operation or was_accepted(batch.keys[place], batch.texts[place])
            ]
            rows = batch.pick(places)
            for part in parts_of(MEMBER, encoded(rows), checksums(rows, self._identity)):
                members.add(part)
        key = self._identity.key
        for membership in (DOUBTFUL, LEFT):
            others = ((key(decoded(line)), line) for _, _, line in self._members.active(membership))
            for part in changes({}, _of(membership, others)):
                members.add(part)
        self._members.close()
        self._members = members
        self._write_generation()

    def _remove(self) -> None:
        """Exclude those who left, delete them, or forget them, as ``on_removed`` says."""
        index = self._index
        if self._deletes:
            index.remove(self._leavers(), GONE)
            # Before the first one is deleted: people who come back then are sent.
            self._write(index.ended_of("removed"), _of(LEAVING, index.removed(GONE)))
            self._delete_contacts()
        if not self._exact:
            index.remove(index.absent(*_LISTED), GONE)
            return
        index.remove(index.absent(*_LISTED), LEFT)
        index.remove(index.rejected(*_LISTED), LEFT)
        returned = bool(self._header.repel_list_name and index.has_returned())
        if not returned and not any(True for _ in index.removed(LEFT)):
            return
        self._write(index.ended_of("removed"), _of(LEAVING, index.removed(LEFT)))
        if returned or not self._header.repel_list_name:
            repelled = str(replace(self.new_list, role="excluded"))
            self._send_excluded(self._all_excluded(), repelled)
            # Before the state says that they are back: the earlier list excludes them.
            self._header = self._store.update(self._header, repel_list_name=repelled)
            self._new_exclusion = True
        else:
            self._send_excluded((line for _, line in index.removed(LEFT)), self._header.repel_list_name)

    def _all_excluded(self) -> Iterator[bytes]:
        """Yield the rows of people who left before and did not come back, and of those who leave now."""
        for _, _, line in self._members.active(LEFT):
            key = self._identity.key(decoded(line))
            if not self._index.was_accepted(key) and not self._index.is_removed(key):
                yield line
        yield from (line for _, line in self._index.removed(LEFT))

    def _send_excluded(self, lines: Iterable[bytes], list_name: str) -> None:
        """Add people to an exclusion list.

        :raises AirflowException: the service rejects one of them.
        """
        from airflow_provider_mail.api.flows.create_once import create
        from airflow_provider_mail.api.flows.import_contacts import Progress, import_contacts
        from airflow_provider_mail.api.lists import AddList
        from airflow_provider_mail.warehouse.rows import batched

        places = self._identifying
        properties = tuple(self._plan.properties[place] for place in places)
        plan = replace(self._plan, properties=properties, list_name=list_name, list_description="Left the audience")
        rejected: list[Reject] = []
        rows = ([row[place] for place in places] for row in map(decoded, lines))
        progress = import_contacts(
            self.task.hook.get_conn(),
            batched(rows, plan.chunk_size),
            plan,
            on_reject=rejected.append,
            progress=Progress(),
            interrupt=self.task.new_interrupt(),
        )
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

    def _leavers(self, *memberships: str) -> Iterator[tuple[str, bytes]]:
        """Yield those whose contacts are to be deleted; not people whose rows are left out.

        :param memberships: where they were before. Default: anywhere.
        """
        if self._deletes:
            yield from self._index.absent(*(memberships or (*_LISTED, LEFT)), suppressed=False)

    def _delete_contacts(self) -> None:
        from airflow_provider_mail.api.contacts import DeleteContact
        from airflow_provider_mail.api.flows.create_once import delete

        deleted = 0
        for _, line in self._index.removed(GONE):
            if email := decoded(line)[self._identifying[0]]:
                self.task.hook.run(delete(DeleteContact(email=email)))
                deleted += 1
        if deleted:
            self.task.log.info("%s contacts were deleted, as on_removed says.", f"{deleted:,}")


def _of(membership: str, people: Iterable[tuple[str | None, bytes]]) -> Iterator[Line]:
    """Return the lines of people, from key and line of each."""
    return ((membership, line, checksum(key)) for key, line in people)


def _place(generation: str, number: int, membership: str, rows: int, voids: str) -> str:
    """Return what a part is encrypted with, so that none can be exchanged."""
    return f"{generation}/{number}/{membership}/{rows}/{voids}"


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
