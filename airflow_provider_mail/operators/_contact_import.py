"""Base class of all imports of contacts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.checks import argument_error, declared, is_known
from airflow_provider_mail._task.mixin import SendGuardMixin, task_instance_name
from airflow_provider_mail.api.errors import MailRejectedError
from airflow_provider_mail.arguments import Brakes, Consent, Rejects
from airflow_provider_mail.lineage import MailLineage
from airflow_provider_mail.operators._base import BaseInterruptibleOperator
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.sdk import Context

    from airflow_provider_mail._audience.audience import Audience
    from airflow_provider_mail._audience.rows import Rows
    from airflow_provider_mail._task.division import Stages, TimeZones
    from airflow_provider_mail._task.import_rows import RejectSpool, Source
    from airflow_provider_mail._task.imports import ImportProgress, StoredImportCheckpoint
    from airflow_provider_mail.api.flows.import_contacts import ImportCheckpoint, ImportPlan, Progress, SelectedRows
    from airflow_provider_mail.api.flows.validate_rows import Reject, Spell
    from airflow_provider_mail.lineage import Data

PROPERTIES = {"email": "email", "name": "name", "phonenumber": "phoneNumber"}
"""Columns that need no mapping: their names, without underscores and in lower case, and the properties."""

UpdateMode: TypeAlias = Literal["create_and_update", "create_only", "update_only"]
"""Whether an import creates contacts, updates existing ones, or both."""


MAX_IMPORT_ID_BYTES = 250
"""Maximum bytes in the ``import_id`` of a table of rejected rows."""


class DryRun:
    """The argument ``dry_run``, beside the method of that name with which Airflow renders a task for people to see."""

    NAME = "_dry_run"

    def __get__(self, operator: Any, owner: type) -> Any:
        return BaseOperator.dry_run if operator is None else BaseOperator.dry_run.__get__(operator)

    def __set__(self, operator: Any, value: bool) -> None:
        vars(operator)[self.NAME] = value


class BaseContactImportOperator(MailLineage, SendGuardMixin, BaseInterruptibleOperator):
    """Import contacts; a subclass defines the source of the rows.

    An import can be repeated: the service identifies contacts. If Airflow has a task state store (3.3), a retried task
    reads all rows again and sends only those that were not accepted in earlier tries.
    """

    list_name: str | None
    list_description: str | None
    columns: Mapping[str, str] | None
    update_mode: str
    chunk_size: int
    max_in_flight: int
    null_value: str | None
    # Templates in groups are rendered when the task runs.
    rejects: Any
    division: Stages | TimeZones | None = None
    """Which people are on lists of their own; ``staged_send`` and its kind set it. Default: all are on one list."""
    exact_audience: bool
    keep_lists: int
    limit: int | None
    suppress: Any
    changes_only: Any
    brakes: Any
    consent: Consent | Sequence[Consent] | None = None
    keeps_all_rows = False
    """Whether the source itself leaves out people, as a query does: a row without an address is rejected then."""
    dry_run = DryRun()

    def set_arguments(self, /, **arguments: Any) -> None:
        super().set_arguments(**arguments)
        # Airflow shows no default.
        self.rejects = self.rejects or Rejects()
        self.brakes = self.brakes or Brakes()

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any], *, mapped: bool = False) -> None:
        super().check_arguments(arguments, mapped=mapped)
        columns = arguments.get("columns")
        # `ImportPlan` checks more, but importing it would slow down the parsing of DAG files.
        properties = set(columns.values()) if isinstance(columns, Mapping) else {"email"}
        if not properties & {"email", "phoneNumber"} and all(
            isinstance(name, str) and "{" not in name for name in properties
        ):
            raise argument_error("columns: neither email nor phoneNumber is among the properties", mapped=mapped)
        known = {name: value for name, value in arguments.items() if is_known(value)}
        if problem := audience_problem(known, has_database="sql_conn_id" in declared(cls)):
            raise argument_error(problem, mapped=mapped)

    @abstractmethod
    def source(self) -> AbstractContextManager[Source]:
        """Open the rows."""

    def reject_place(self, row_number: int) -> tuple[str | None, int]:
        """Return the file of a row, if the source has several, and its number there."""
        return None, row_number

    def _keep_rejects(self, spool: RejectSpool, import_id: str) -> None:
        rejects = self.rejects
        spool.keep(rejects, import_id, self.audience_hook(rejects.sql_conn_id) if rejects.table else None)

    def _audience(self, context: Context, progress: Progress) -> Audience:
        from airflow_provider_mail._audience.audience import Audience

        if self.changes_only or self.exact_audience:
            from airflow_provider_mail._audience.compared import ComparedAudience

            return ComparedAudience(self, context, progress)
        return Audience(self, context, progress)

    def audience_hook(self, sql_conn_id: str | None) -> DbApiHook:
        """Return the hook of a database with tables about people; by default, that of the source."""
        from airflow_provider_mail._task.storage import sql_hook

        return sql_hook(sql_conn_id or vars(self)["sql_conn_id"])

    def lineage_source(self) -> Data | None:
        """Return the dataset that is imported; ``None`` if it has no name."""
        return None

    @property
    def is_dry_run(self) -> bool:
        return bool(vars(self)[DryRun.NAME])

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_mail._task.import_rows import RejectSpool
        from airflow_provider_mail._task.imports import ImportProgress, import_checkpoint

        if problem := audience_problem(vars(self), has_database="sql_conn_id" in declared(type(self))):
            raise AirflowFailException(problem)
        import_id = task_instance_name(context, MAX_IMPORT_ID_BYTES)
        progress = ImportProgress(self, context)
        # A list that is made anew gets all rows, and a state says more than a checkpoint.
        plain = not (self.exact_audience or self.changes_only)
        checkpoint = import_checkpoint(context, self.log) if plain else None
        with self.mail_errors(), RejectSpool() as spool:
            audience = self._audience(context, progress)
            sandbox = audience.sandbox
            with progress.recorded(import_id, spool, sandbox=sandbox):
                try:
                    with audience.running(), self.source() as source:
                        self._import(source, spool, audience, progress, checkpoint)
                except BaseException:
                    self._rescue_rejects(spool, import_id)
                    raise
                self._keep_rejects(spool, import_id)
                self._check_result(progress, spool, sandbox)
                if checkpoint is not None:
                    # If a successful task is cleared, it must import everything again.
                    checkpoint.clear()
                if not progress.read:
                    self.on_nothing("there was no row to import")
                lists = audience.finish()
        if not sandbox and not self.is_dry_run:
            target = f"lists/{audience.list_name}" if audience.list_name else "contacts"
            self.moved(self.lineage_source(), target, rows=progress.accepted)
        return {
            "list_name": audience.list_name,
            **progress.result(),
            "sandbox": sandbox,
            **(self.rejects.places if progress.rejected else {}),
            **lists,
        }

    def _import(
        self,
        source: Source,
        spool: RejectSpool,
        audience: Audience,
        progress: ImportProgress,
        checkpoint: StoredImportCheckpoint | None,
    ) -> None:
        from airflow_provider_mail._task.import_rows import numbered, pick
        from airflow_provider_mail.api.flows.import_contacts import import_contacts
        from airflow_provider_mail.api.flows.validate_rows import unchanged

        mapping = self._mapping(source.columns)
        spool.place_of = self.reject_place
        positions, plan = self._plan(source.columns, mapping, audience.list_name)
        spool.columns = [source.columns[position] for position in positions]
        if checkpoint is not None:
            checkpoint.load(plan, self.hook.config, lambda: not audience.sandbox and self._is_list_empty())
        progress.expect(source.total)
        batches = source.batches
        if not self.keeps_all_rows:
            batches = self._filtered(source, mapping, progress, audience.not_sent)
        if audience.division is not None and audience.division.column is not None:
            batches = audience.division.noted(numbered(batches, progress, self.limit), source.columns)
        rows = pick(batches, positions, len(source.columns))

        def send(
            rows: Rows,
            plan: ImportPlan,
            on_reject: Callable[[Reject], None] = spool.add,
            checkpoint: ImportCheckpoint | None = checkpoint,
            spell: Spell = unchanged,
        ) -> None:
            import_contacts(
                self.hook.get_conn(),
                rows,
                plan,
                on_reject=on_reject,
                on_progress=progress.show,
                progress=progress,
                checkpoint=checkpoint,
                interrupt=self.new_interrupt(),
                spell=spell,
            )

        complete = False
        try:
            audience.import_rows(rows, plan, send, spool.add)
            complete = not progress.rejected
        except BaseException:
            self.log.error(
                "Import ended early: %s rows read, %s accepted, %s rejected. The next try %s.",
                *(progress.read, progress.accepted, progress.rejected),
                "continues after what was accepted" if checkpoint or self.changes_only else "imports everything",
            )
            raise
        finally:
            progress.close()
            if checkpoint is not None:
                # Also when all rows are sent: storing rejected rows may fail.
                checkpoint.save(complete=complete)

    def _is_list_empty(self) -> bool:
        """Ask whether the list has nobody, such as one that was deleted since the try before."""
        from airflow_provider_mail.api.contacts import GetListContacts

        if self.list_name is None:
            return False
        try:
            return self.hook.send(GetListContacts(list_name=self.list_name, page_size=1)).total_records == 0
        except MailRejectedError:
            return True

    def _rescue_rejects(self, spool: RejectSpool, import_id: str) -> None:
        """Store the rejected rows of a failed import; a failure to do so must not hide the import's own error."""
        if not spool.count:
            return
        try:
            self._keep_rejects(spool, import_id)
        except Exception:
            self.log.exception("%s rejected rows could not be stored", spool.count)

    def _filtered(
        self, source: Source, mapping: Mapping[str, str], progress: Progress, opted_out: set[int]
    ) -> Iterator[SelectedRows]:
        """Return the rows of people who did not say no, and have an address.

        :raises AirflowFailException: when an exact audience would ignore a column that looks like a consent.
        """
        from airflow_provider_mail._task.import_rows import RowFilter, unused_consent

        def checked() -> Iterator[Sequence[Sequence[Any]]]:
            known = 0
            for batch in source.batches:
                seen = source.all_columns or source.columns
                new, known = source._replace(all_columns=seen[known:]), len(seen)
                if new.all_columns and self.consent is None and (argument := unused_consent(new, batch)):
                    problem = (
                        "consent: a column that seems to say who wants no mail is not used. Write "
                        f"{argument}, with the values that mean so, or consent=[] to import everybody"
                    )
                    if self.exact_audience:
                        raise AirflowFailException(problem)
                    self.log.warning("%s", problem)
                yield batch

        batches = checked()
        first = next(batches, None)  # before anything is sent
        batches = batches if first is None else chain([first], batches)
        return RowFilter(source, mapping, self._consents(), progress, self.limit, opted_out).rows(batches)

    def _plan(
        self, columns: Sequence[str], mapping: Mapping[str, str], list_name: str | None
    ) -> tuple[list[int], ImportPlan]:
        """Return the positions of the values that are sent, and the plan with their properties."""
        from airflow_provider_mail.api import contacts
        from airflow_provider_mail.api.flows.import_contacts import ImportPlan

        twice = [column for column in mapping if columns.count(column) > 1]
        if twice:
            raise AirflowFailException(f"columns: the source has more than one {', '.join(map(repr, twice))}")
        try:
            contacts.check_mapping(list(mapping.values()))
        except ValueError as error:
            raise AirflowFailException(f"columns: {str(error).partition(': ')[2]}") from None
        self._log_properties(mapping.values())
        return [columns.index(column) for column in mapping], ImportPlan(
            properties=tuple(mapping.values()),
            update_mode=contacts.UpdateMode[self.update_mode.upper()],
            list_name=list_name,
            list_description=self.list_description,
            chunk_size=self.chunk_size,
            max_in_flight=self.max_in_flight,
            null_value=self.null_value,
            sandbox_mode=self.sandbox_mode or None,
        )

    def _log_properties(self, properties: Collection[str]) -> None:
        """Log the properties that the specification does not list: the service cannot be asked which ones it knows."""
        from difflib import get_close_matches

        new = [name for name in properties if name not in PROPERTIES.values()]
        for name in new:
            if similar := get_close_matches(name.lower(), list(PROPERTIES), cutoff=0.7):
                self.log.warning("columns: is property %r a misspelled %r?", name, PROPERTIES[similar[0]])
        if new:
            known = ", ".join(PROPERTIES.values())
            self.log.info("columns: properties that may be new to the service (not %s): %s", known, ", ".join(new))

    def _mapping(self, columns: Sequence[str]) -> Mapping[str, str]:
        if self.columns is not None:
            unknown = [column for column in self.columns if column not in columns]
            if unknown:
                raise AirflowFailException(
                    f"columns: the source has no {', '.join(map(repr, unknown))}; it has {', '.join(columns)}"
                )
            return self.columns
        used = self._unsent_columns()
        names = [column for column in columns if column and column not in used]
        properties = {column: PROPERTIES.get(column.replace("_", "").lower()) for column in names}
        unmapped = [column for column, name in properties.items() if name is None]
        if unmapped:
            raise AirflowFailException(
                f"columns: which property do {', '.join(map(repr, unmapped))} belong to? Say it with "
                'columns={"<column>": "<property>"}; columns left out there are not sent'
            )
        return {column: name for column, name in properties.items() if name is not None}

    def _consents(self) -> Sequence[Consent]:
        return [self.consent] if isinstance(self.consent, Consent) else self.consent or ()

    def _unsent_columns(self) -> list[str]:
        """Return the columns that say who wants mail, and in which time zone."""
        columns = [consent.column for consent in self._consents()]
        return [*columns, self.division.column] if self.division and self.division.column else columns

    def _check_result(self, progress: Progress, spool: RejectSpool, sandbox: bool) -> None:
        """Log the result, and fail the task if too many rows were rejected."""
        if not progress.read:
            return
        earlier = f" ({progress.accepted_earlier} of them in earlier tries)" if progress.accepted_earlier else ""
        self.log.info(
            "Import done: %s rows read, %s accepted%s, %s rejected, in %s requests and %.1f s%s.",
            *(progress.read, progress.accepted, earlier, progress.rejected, progress.requests, progress.seconds),
            "; sandbox: nothing was changed" if sandbox else "",
        )
        if progress.opted_out or progress.without_address:
            self.log.info(
                "%s rows were left out because of consent, %s because they have no address.",
                *(progress.opted_out, progress.without_address),
            )
        if progress.without_address and progress.without_address == progress.read:
            raise AirflowFailException("columns: no row has an address; is the right column mapped to email?")
        if progress.requests_with_message:
            self.log.warning(
                "The service accepted %s of the requests with a message (logged above): it may have left out rows.",
                progress.requests_with_message,
            )
        if not progress.rejected:
            return
        kept = ", ".join(self.rejects.places.values())
        message = f"{progress.rejected} of {progress.read} rows were rejected: {spool.summary()}. " + (
            f"They are kept in {kept}" if kept else "Set rejects=Rejects(path=...) to keep them with all reasons"
        )
        if progress.rejected / progress.read > self.rejects.max_fraction:
            raise AirflowFailException(
                f"{message}. That is more than Rejects(max_fraction={self.rejects.max_fraction}) allows; "
                f"the other {progress.accepted} rows were accepted"
            )
        self.log.warning("%s", message)


def audience_problem(arguments: Mapping[str, Any], *, has_database: bool) -> str | None:
    """Return why the arguments of an audience do not go together; ``None`` if they do.

    :param arguments: by name; not all need to be given.
    :param has_database: whether the source is a database.
    """
    exact = arguments.get("exact_audience")
    if exact and arguments.get("list_name", ...) is None:
        return "list_name: needed by exact_audience=True: the lists of the runs are named after it"
    if exact and arguments.get("update_mode", "create_and_update") in ("create_only", "update_only"):
        return "update_mode: exact_audience=True needs 'create_and_update': the others may leave people off the list"
    rejects = arguments.get("rejects")
    if rejects is not None and rejects.table and not rejects.sql_conn_id and not has_database:
        return "rejects: table needs Rejects(sql_conn_id=...): the connection of the database"
    suppress = arguments.get("suppress")
    if suppress is not None and suppress.reads_tables and suppress.sql_conn_id is None and not has_database:
        return "suppress: Suppress(sql_conn_id=...) is needed: the connection of the database"
    if suppress is not None and suppress.needs_memory:
        name = "at_most" if suppress.once_per is None else "once_per"
        if exact is False:
            return (
                f"suppress: {name} needs exact_audience=True: a campaign to a list that grows mails who was left out, "
                "too"
            )
        if arguments.get("changes_only") is not None:
            return f"suppress: {name}: not with changes_only: each run has other people, who are no changes"
    return _state_problem(arguments, has_database=has_database)


def _state_problem(arguments: Mapping[str, Any], *, has_database: bool) -> str | None:
    """Return why the arguments of a state do not go together."""
    changes_only, brakes = arguments.get("changes_only", ...), arguments.get("brakes") or Brakes()
    if changes_only is None:
        names = ("max_change_fraction", *(["max_removed_fraction"] if arguments.get("suppress", ...) is None else []))
        useless = next((name for name in names if getattr(brakes, name) is not None), None)
        return useless and f"brakes: {useless} needs changes_only: without a state, nothing is compared"
    if changes_only is ...:
        return None
    if changes_only.sql_conn_id is None and not has_database:
        return "changes_only: ChangesOnly(sql_conn_id=...) is needed: the connection of a database, where the state is"
    if arguments.get("limit") is not None:
        return "limit: not with changes_only: people behind the limit would count as having left; use dry_run"
    on_removed = changes_only.on_removed
    if arguments.get("exact_audience") and on_removed == "ignore":
        return "changes_only: on_removed='ignore' would leave people on an audience that is to be exact"
    if arguments.get("exact_audience") is False and on_removed == "exclude":
        return "changes_only: on_removed='exclude' needs exact_audience=True: nobody is excluded from a list of others"
    if on_removed == "delete_contact" and "brakes" in arguments and brakes.max_removed_fraction is None:
        return (
            "brakes: Brakes(max_removed_fraction=...) is needed by on_removed='delete_contact': how many may be deleted"
        )
    return None
