"""Who gets the campaigns of an import: everybody on its list, or exactly the people whom the source returned."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider_mail._task.audience_rows import (
    MAX_EXAMPLES,
    PASS_BRAKES,
    Identity,
    Rows,
    RowSpool,
    Selection,
    Suppressed,
    brake_error,
    masked,
    suppressed_addresses,
)
from airflow_provider_mail.api.flows.audience import AudienceList, delete_old_lists

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api.flows.import_contacts import ImportCheckpoint, Progress, SelectedRows
    from airflow_provider_mail.api.flows.upload_chunks import ImportPlan
    from airflow_provider_mail.api.flows.validate_rows import Reject

DEFAULT_EVENTS = "mail_events"
"""The table of events where none is named."""


class Send(Protocol):
    """Imports rows for a task, and reports progress and rejected rows as it does."""

    def __call__(self, rows: Rows, plan: ImportPlan, memory: ImportCheckpoint | None = ...) -> None:
        """Import rows.

        :param memory: the checkpoint. Default: that of the task.
        """


class Audience:
    """The rows of one try of a task, added to the list that the user named.

    :param task: the operator, with the arguments that all imports share.
    :param import_id: identifies the task instance in all its tries.
    """

    def __init__(self, task: Any, context: Context, progress: Progress) -> None:
        self.task = task
        self.context = context
        self.progress = progress
        self.sandbox = bool(task.sandbox_mode or task.hook.config.sandbox)
        self._selection: Selection | None = None
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
            send(rows, plan)
            return
        selected = self.selected(rows, plan)
        if self.task.is_dry_run:
            self._only_check(selected, plan, on_reject)
            return
        if self.task.max_rows is None:
            send(selected, plan)
            return
        spool = RowSpool()
        try:
            self.fill(spool, selected)
            send(spool, plan)
        finally:
            spool.close()

    @property
    def is_plain(self) -> bool:
        """Whether all rows of the source are imported as they are read."""
        task = self.task
        selects = (task.limit, task.max_rows, task.stage, task.suppress, task.suppress_sql, task.suppress_table)
        return not task.is_dry_run and all(value is None for value in selects)

    def finish(self) -> dict[str, Any]:
        """Complete the audience after all rows were accepted or rejected, and return its values for XCom."""
        return {
            **self.lists(),
            **({"suppressed": self._selection.suppressed} if self._selection else {}),
            **({"other_stages": self._selection.other_stages} if self._selection and self.task.stage else {}),
            **({"dry_run": True} if self.task.is_dry_run else {}),
        }

    def lists(self) -> dict[str, list[str]]:
        """Return the lists that a campaign to this audience needs."""
        name = None if self.task.is_dry_run else self.list_name
        return {"send_list_names": [name] if name else [], "repel_list_names": []}

    def selected(
        self, rows: Rows, plan: ImportPlan, on_suppressed: Callable[[str], object] = bool
    ) -> Iterator[SelectedRows]:
        """Return the rows that are not left out, with their numbers in the source."""
        task = self.task
        self._selection = Selection(
            Identity(plan.properties),
            self.progress,
            limit=task.limit,
            stage=task.stage and task.stage.seeded(task.render_template(task.stage.seed, self.context)),
            suppressed=self._suppressed(),
            on_suppressed=on_suppressed,
        )
        return self._selection.of(rows)

    def _suppressed(self) -> Suppressed:
        task = self.task
        events = (task.suppress_table or DEFAULT_EVENTS) if task.suppress == "events" else None
        table = None if events else task.suppress_table
        if not (events or table or task.suppress_sql):
            return Suppressed()
        addresses = suppressed_addresses(
            task.audience_hook("suppress_conn_id"), events=events, sql=task.suppress_sql, table=table
        )
        suppressed = Suppressed(addresses)
        task.log.info("%s addresses must be left out.", f"{len(suppressed):,}")
        return suppressed

    def fill(self, spool: RowSpool, rows: Iterable[SelectedRows]) -> None:
        """Read all rows, and fail before the first request when there are too many."""
        most = self.task.max_rows
        for batch in rows:
            spool.add(batch)
            if most is not None and self.progress.read > most:
                self.brake("max_rows", f"there are more than {most:,} rows")

    def brake(self, argument: str, numbers: str) -> None:
        """Fail the task, unless the run was triggered to let it pass.

        :raises AirflowFailException: with the numbers, and what to do.
        """
        self.braked = f"{argument}: {numbers}"
        if not (self.context.get("params") or {}).get(PASS_BRAKES):
            self.is_stopped = True
            raise brake_error(argument, numbers)
        self.task.log.warning("%s: %s; it passes, as the parameter %s says.", argument, numbers, PASS_BRAKES)

    def _only_check(self, rows: Iterable[SelectedRows], plan: ImportPlan, on_reject: Callable[[Reject], None]) -> None:
        """Check the rows as an import does, and send nothing."""
        from dataclasses import replace

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
        would = self.progress.read - self.progress.rejected - (self._selection.suppressed if self._selection else 0)
        self.task.log.info("Dry run: %s rows would be sent, such as %s.", f"{would:,}", ", ".join(examples) or "none")


class RunAudience(Audience):
    """An audience whose lists are made anew by every try, so that nobody is on them whom another one has returned.

    A retry does not continue with the list of the try before it: that may hold people whom the source no longer
    returns, and a request that was lost may still be carried out.
    """

    lists_last = False
    """Whether later runs use the same lists."""

    def __init__(self, task: Any, context: Context, progress: Progress) -> None:
        super().__init__(task, context, progress)
        self.new_list = audience_list(task, context)

    @property
    def list_name(self) -> str:
        return str(self.new_list)

    def finish(self) -> dict[str, Any]:
        if not (self.task.is_dry_run or self.sandbox):
            self.create_if_empty()
            self.delete_old({self.list_name})
        return super().finish()

    def create_if_empty(self) -> None:
        """Create the list if no row was accepted: an import creates it otherwise, and a campaign needs it."""
        from airflow_provider_mail.api.flows.create_once import create
        from airflow_provider_mail.api.lists import AddList

        if not self.progress.accepted:
            description = self.task.list_description
            self.task.hook.run(create(AddList(list_name=self.list_name, list_description=description)))

    def delete_old(self, needed: set[str]) -> None:
        """Delete the lists of earlier runs; an error is only logged, since the audience is complete."""
        from airflow_provider_mail.api.errors import MailError

        task = self.task
        flow = delete_old_lists(
            self.new_list,
            needed=needed,
            keep=task.keep_lists,
            clock=task.hook.get_conn().service_clock,
            own_part=self.lists_last,
        )
        try:
            deleted = task.hook.run(flow)
        except MailError as error:
            task.log.warning("Lists of earlier runs could not be deleted; the next run tries again: %s", error)
            return
        for name in deleted:
            task.log.info("List %r of an earlier run was deleted.", name)


def audience_list(task: Any, context: Context) -> AudienceList:
    """Return the name of a new list of this try."""
    from airflow_provider_mail._config import name_prefix

    ti = context["ti"]
    return AudienceList.of(
        task.list_name,
        task=f"{ti.dag_id}/{ti.task_id}",
        run_id=ti.run_id,
        begun_at=datetime.fromtimestamp(time.time(), UTC),
        part=None if ti.map_index in (None, -1) else ti.map_index,
        prefix=name_prefix(),
    )
