"""Who gets the campaigns of an import: everybody on its list, or exactly the people whom the source returned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_provider_mail._audience.rows import Identity, Rows
from airflow_provider_mail._audience.suppression import suppressed_people
from airflow_provider_mail._task.import_rows import numbered, selected
from airflow_provider_mail._task.storage import Spool
from airflow_provider_mail.api.flows.import_contacts import SelectedRows
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api.flows.import_contacts import ImportPlan, Progress
    from airflow_provider_mail.api.flows.validate_rows import Reject

PASS_BRAKES = "pass_brakes"
"""The parameter of a DAG run that lets the brakes pass."""

SUPPRESSED_KEY = "mail_suppressed"
"""The key of the XCom with the number of people in the user's tables whom the task has left out."""

DEFAULT_FRACTION = 0.1
MIN_REMOVED = 10
MIN_ALL = 3
"""Without an argument, a run is stopped when more than a tenth would leave, and these are more than so many people, or
all of an audience of at least so many."""

MAX_EXAMPLES = 5


Send: TypeAlias = Callable[..., None]
"""Imports rows for a task by a plan. Optional: what is called for each rejected row, and told what was accepted."""


class Audience:
    """The rows of one try of a task, added to the list that the user named.

    :param task: the operator, with the arguments that all imports share.
    """

    def __init__(self, task: Any, context: Context, progress: Progress) -> None:
        self.task = task
        self.context = context
        self.progress = progress
        self.sandbox = bool(task.sandbox_mode or task.hook.config.sandbox)
        self.division = task.division and task.division.rendered(lambda text: task.render_template(text, context))
        self.suppressed: int | None = None
        """Number of rows of people who are left out, if rows are selected."""
        self.suppressed_people = 0
        """Number of people whom the user's tables leave out."""
        self.not_sent = set[int]()
        """Hashes of the keys of people in the source whose rows say no, or were rejected."""
        self.braked = ""
        """Which brake stopped the run, or was let pass; empty if none did."""
        self.is_stopped = False
        """Whether a brake stopped the run."""

    @property
    def list_name(self) -> str | None:
        """The name of the list that rows are added to."""
        name: str | None = self.task.list_name
        return name

    def running(self) -> AbstractContextManager[None]:
        """Return a context manager around the reading of the source."""
        return nullcontext()

    def import_rows(self, rows: Rows, plan: ImportPlan, send: Send, on_reject: Callable[[Reject], None]) -> None:
        """Import the rows of the source.

        :param rows: with the values that ``plan`` maps.
        """
        if self.is_plain:
            send(rows, plan, spell=Identity(plan.properties).spelled)
            return
        selected = (batch for batch, _ in self.selected(rows, plan))
        if self.task.is_dry_run:
            self._only_check(selected, plan, on_reject)
        elif self.task.brakes.max_rows is None:
            send(selected, plan)
        else:
            with closing(Spool[SelectedRows]()) as spool:
                for batch in selected:
                    spool.add(batch)
                send(spool, plan)

    @property
    def is_plain(self) -> bool:
        """Whether all rows of the source are imported as they are read."""
        task = self.task
        selects = (task.limit, task.brakes.max_rows, task.suppress)
        return not task.is_dry_run and all(value is None for value in selects)

    def finish(self) -> dict[str, Any]:
        """Complete the audience after all rows were accepted or rejected, and return its values for XCom."""
        values: dict[str, Any] = self.lists()
        if self.suppressed is not None:
            values["suppressed"] = self.suppressed
        if self.task.suppress and not (self.task.is_dry_run or self.sandbox):
            self.context["ti"].xcom_push(key=SUPPRESSED_KEY, value=self.suppressed_people)
        return values | ({"dry_run": True} if self.task.is_dry_run else {})

    def lists(self) -> dict[str, list[str]]:
        """Return the lists that a campaign to this audience needs."""
        name = None if self.task.is_dry_run else self.list_name
        return {"send_list_names": [name] if name else [], "repel_list_names": []}

    def selected(
        self, rows: Rows, plan: ImportPlan, on_suppressed: Callable[[bytes], object] = bool
    ) -> Iterator[tuple[SelectedRows, Sequence[bytes]]]:
        """Yield the rows that are not left out, and the keys of their people; all rows that are read are counted.

        :param on_suppressed: called with the key of each person whom the user's tables leave out.
        """
        identity = Identity(plan.properties)
        people, self.suppressed = self._suppressed(identity), 0

        def is_selected(key: bytes) -> bool:
            text = key.decode() or None
            if text is not None and hash(text) in people:
                self.suppressed = (self.suppressed or 0) + 1
                on_suppressed(key)
                return False
            return True

        most = self.task.brakes.max_rows
        for batch in numbered(rows, self.progress, self.task.limit):
            if most is not None and self.progress.read > most:
                self.brake("max_rows", f"there are more than {most:,} rows")
            spelled, keys = identity.keyed(batch)
            if spelled is not batch:
                batch = SelectedRows(spelled, batch.numbers, batch.lines)
            if people:
                kept = list(map(is_selected, keys))
                batch, keys = selected(batch, kept), list(compress(keys, kept))
            yield batch, keys

    def _suppressed(self, identity: Identity) -> frozenset[int]:
        suppress = self.task.suppress
        if suppress is None or not suppress.reads_tables:
            return frozenset()
        if identity.email is None and (suppress.sql or suppress.table or suppress.events_table):
            raise AirflowFailException(
                "suppress: people are left out by their address: add email to columns. Nothing was sent"
            )
        hook = self.task.audience_hook(suppress.sql_conn_id)
        people = suppressed_people(hook, suppress, self.task.mail_conn_id)
        self.suppressed_people, before = len(people), earlier(self.context, SUPPRESSED_KEY) or 0
        fewer = before - self.suppressed_people
        self.check_fraction("max_removed_fraction", fewer, before, "would be left out no longer", all_of=1)
        if suppress.audiences:
            from airflow_provider_mail._audience.people import members
            from airflow_provider_mail._audience.store import StateStore

            try:
                people |= set(map(hash, members(StateStore(hook, suppress.audiences_table), suppress.audiences)))
            except ValueError as error:
                raise AirflowFailException(f"suppress: {error}") from None
        self.task.log.info("%s addresses must be left out.", f"{len(people):,}")
        return people

    def brake(self, argument: str, numbers: str) -> None:
        """Fail the task, unless the run was triggered to let it pass.

        :raises AirflowFailException: with the numbers, and what to do.
        """
        self.braked = f"{argument}: {numbers}"
        if not (self.context.get("params") or {}).get(PASS_BRAKES):
            self.is_stopped = True
            raise AirflowFailException(
                f"{self.braked}. Nothing was sent and nobody was removed. If that is right, let it pass once: trigger "
                f'the DAG with the parameter "{PASS_BRAKES}": true, which the DAG declares as '
                f'params={{"{PASS_BRAKES}": Param(False, type="boolean")}}'
            )
        self.task.log.warning("%s: %s; it passes, as the parameter %s says.", argument, numbers, PASS_BRAKES)

    def check_fraction(self, name: str, count: int, size: int, what: str, *, all_of: int = MIN_ALL) -> None:
        """Stop the run if a share is too large; by default, only with many people, or with all of at least some."""
        most: float | None = getattr(self.task.brakes, name)
        fraction = DEFAULT_FRACTION if most is None else most
        is_enough = most is not None or count > MIN_REMOVED or count >= max(size, all_of)
        if size and is_enough and count / size > fraction:
            self.brake(name, f"{count:,} of {size:,} people {what}, more than {fraction:g} of them")

    def _only_check(self, rows: Iterable[SelectedRows], plan: ImportPlan, on_reject: Callable[[Reject], None]) -> None:
        """Check the rows as an import does, and send nothing."""
        from airflow_provider_mail.api.flows.validate_rows import RowChecker

        identity, checker = Identity(plan.properties), RowChecker(plan.properties, plan.null_value)
        examples: list[str] = []
        for batch in rows:
            checked = checker.check(batch, 1)
            for reject in checked.rejects:
                on_reject(replace(reject, row_number=batch.numbers[reject.row_number - 1]))
            self.progress.rejected += len(checked.rejects)
            keys = map(identity.key, batch[: MAX_EXAMPLES - len(examples)])
            examples += [masked(key) for key in keys if key]
        would = self.progress.read - self.progress.rejected - (self.suppressed or 0)
        self.task.log.info("Dry run: %s rows would be sent, such as %s.", f"{would:,}", ", ".join(examples) or "none")


def earlier(context: Context, key: str) -> Any:
    """Return what a task has pushed in the last run; of a mapped one, what its first task has."""
    ti = context["ti"]
    first = -1 if ti.map_index in (None, -1) else 0
    return ti.xcom_pull(task_ids=ti.task_id, key=key, map_indexes=first, include_prior_dates=True)


def masked(key: str) -> str:
    """Return an example that shows what kind of rows there are, and not who."""
    local, at, domain = key.partition("@")
    return f"{local[:1]}***@{domain[:1]}***" if at else f"{key[:7]}***"
