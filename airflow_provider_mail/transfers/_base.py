"""Base classes of the transfers from the service: they read lists completely, and load tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar

from airflow_provider_mail._task.mixin import MailTaskMixin
from airflow_provider_mail._task.storage import SqlTask, check_tables
from airflow_provider_mail.lineage import MailLineage, SqlTable
from airflow_provider_mail.operators._base import BaseInterruptibleOperator, BaseMailOperator
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.sdk import Context

    from airflow_provider_mail._task.import_rows import UnstorableRecords
    from airflow_provider_mail._task.statistics import Observation, Statistics
    from airflow_provider_mail.api._core.requests import PagedRequest
    from airflow_provider_mail.warehouse.request import Coverage, History, LoadResult, MarkGone, RemovalRule
    from airflow_provider_mail.warehouse.table import Table

READINGS = 3
"""The maximum number of times that one try of a task reads a list that changes while it is read."""

OnChange: TypeAlias = Literal["retry", "fail", "accept"]
"""What to do when a list changes while it is read."""

CampaignStatus: TypeAlias = Literal["draft", "sending", "complete", "failed"]
"""The states of campaigns (``mailStatus``)."""

T = TypeVar("T")
Rows: TypeAlias = Iterator[tuple[Any, ...]]


class RemovesRows(MailTaskMixin):
    """Mixin for transfers that delete rows, mark them as gone or end them in a history."""

    allow_empty: bool
    max_removed_fraction: float | None

    def removal_rule(self, read_again: Callable[[], Iterable[Sequence[Any]]] | None = None) -> RemovalRule:
        from airflow_provider_mail.warehouse.request import MAX_REMOVED_FRACTION, RemovalRule

        fraction = MAX_REMOVED_FRACTION if self.max_removed_fraction is None else self.max_removed_fraction
        return RemovalRule(allow_empty=self.allow_empty, max_fraction=fraction, read_again=read_again)


class BaseTransferOperator(MailLineage, BaseMailOperator):
    """Transfer records of the service; those that the target cannot store fail the task or are rejected."""

    # Its templates are rendered when the task runs.
    rejects: Any
    lock_timeout = 600.0

    @property
    @abstractmethod
    def resource(self) -> str:
        """The resource that is read, for lineage, such as ``campaigns/stats``."""

    @abstractmethod
    def declared_table(self) -> Table:
        """Return the declared table whose columns the target has."""

    @property
    def database(self) -> DbApiHook | None:
        """The hook of the database that is loaded; ``None`` for a transfer to files."""
        return self.sql_hook if isinstance(self, SqlTask) else None

    @cached_property
    def unstorable(self) -> UnstorableRecords:
        from airflow_provider_mail._task.import_rows import UnstorableRecords

        return UnstorableRecords(self._rejects_hook(), self.rejects, self.database, lock_timeout=self.lock_timeout)

    def _rejects_hook(self) -> DbApiHook | None:
        """Return the hook of the database with the table of rejects; by default, the one that is loaded."""
        from airflow_provider_mail._task.storage import sql_hook

        if self.rejects is None or self.rejects.sql_conn_id is None:
            return self.database
        return sql_hook(self.rejects.sql_conn_id)

    def keep_rejects(self, context: Context, records: int) -> dict[str, int]:
        """Store the rejects, and report them to metrics; return the number of rejects for XCom.

        :param records: the number of records, with the rejected ones.
        :raises AirflowFailException: when too many were rejected; the others are stored.
        """
        from airflow_provider_mail._metrics import RECORDS_REJECTED, emit, task_tags

        kept = self.unstorable.store(context, self.log)
        rejected = kept.get("rejected", 0)
        emit({RECORDS_REJECTED: rejected}, task_tags(self))
        if rejected and rejected / max(records, rejected) > self.rejects.max_fraction:
            raise AirflowFailException(
                f"rejects: {rejected} of {records} records were rejected, more than "
                f"Rejects(max_fraction={self.rejects.max_fraction}) allows; the others are stored"
            )
        return kept


@dataclass(frozen=True)
class Reading:
    """A list that is read.

    :param rows: the rows; an empty list is read twice.
    :param again: reads the list a second time, unless it was already read twice; yields the rows that ``rows`` lacks.
    :param missing: for each identity of a record, whether no reading has it.
    """

    observation: Observation
    rows: Rows
    again: Callable[[], Rows]
    missing: Callable[[Iterable[object]], list[bool]]


class Conditions(TypedDict, total=False):
    """What a list is complete for, and its history: fields of a ``LoadRequest``."""

    replace_where: Mapping[str, Any]
    covers: Coverage
    mark_gone: MarkGone
    history: History


class BaseListReader(RemovesRows, BaseInterruptibleOperator, BaseTransferOperator):
    """Read a whole list, page by page in constant memory, completely even if the list changes meanwhile.

    A sign that the list changed while it was read (a different total, repeated records) is never ignored.
    """

    page_size: int
    max_in_flight: int
    on_change: OnChange

    readings = 0
    """The number of times that the list was read."""

    @abstractmethod
    def request(self) -> PagedRequest[Any]:
        """Build the request for the first page."""

    @abstractmethod
    def rows(self, records: Sequence[Any], observed_at: datetime) -> list[tuple[Any, ...]]:
        """Build the rows of a page."""

    @abstractmethod
    def conditions(self, observed_at: datetime) -> Conditions:
        """Return what the list is complete for; called before the rows of each reading are built."""

    def first_page(self, pages: Iterator[list[Any]]) -> list[Any] | None:
        """Return the first page of a list; ``None`` without one."""
        return next(pages, None)

    def check_empty(self) -> None:
        """Verify that a list that was empty in two readings exists."""

    looked_up_by: tuple[str, ...]
    """The columns that `look_up` gets."""

    @abstractmethod
    def look_up(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Ask another operation for some of the rows that were stored, and that two readings lack.

        :param rows: the values of ``looked_up_by``.
        :raises MailIncompleteError: the service still has some of them.
        """

    @contextmanager
    def reading(self, context: Context, database: DbApiHook | None = None) -> Iterator[Reading]:
        from airflow_provider_mail._task.progress import ProgressLog
        from airflow_provider_mail._task.statistics import Observation
        from airflow_provider_mail.api._core.pagination import Changes, Pager, concurrent_pages

        changes = {"retry": Changes.ALLOW_GROWTH, "fail": Changes.REFUSE, "accept": Changes.ACCEPT}[self.on_change]
        client = self.hook.get_conn()
        observation = Observation(self.hook, database)
        progress = ProgressLog(self.log, context, "records")
        pager: Pager[Any] = Pager(self.request(), changes)

        def pages() -> Generator[list[Any], None, None]:
            self.readings += 1
            return concurrent_pages(client, pager, self.max_in_flight, self.new_interrupt(), on_total=progress.expect)

        def again() -> Rows:
            if pager.reading == 1 and pager.next_request is None:
                pager.read_again()
                with closing(pages()) as second_reading:
                    for page in second_reading:
                        yield from self.rows(page, observation.at)

        def rows() -> Rows:
            count = 0
            for page in chain([first_page] if first_page else [], pages_left):
                yield from self.rows(page, observation.at)
                count += len(page)
                progress.update(count)
            self.readings += pager.reading - 1  # a list that grew in the meantime was read twice
            if not count:
                for row in again():
                    count += 1
                    yield row
            if not count:
                self.check_empty()

        with closing(pages()) as pages_left, closing(progress):
            first_page = self.first_page(pages_left)
            yield Reading(observation, rows(), again, pager.missing)

    def read_completely(self, context: Context, work: Callable[[Reading], T]) -> T:
        """Call a function with a reading of the list, and again if the list changes meanwhile, up to three times."""
        from airflow_provider_mail.api.errors import MailIncompleteError

        self.readings = 0
        with self.mail_errors():
            for attempt in range(1, READINGS + 1):
                try:
                    with self.reading(context, self.database) as reading:
                        return work(reading)
                except MailIncompleteError as error:
                    if self.on_change == "fail" or attempt == READINGS:
                        error.add_note("Set on_change to decide how to handle a list that changes while it is read")
                        raise
                    self.log.warning("%s; reading the list again (%s of %s)", error, attempt + 1, READINGS)
        raise AssertionError("unreachable")


class BaseContactReader(BaseListReader):
    list_name: str
    team_name: str | None

    looked_up_by = ("id", "email")

    def look_up(self, rows: Sequence[tuple[Any, ...]]) -> None:
        from airflow_provider_mail.api.flows.second_source import check_contacts

        if self.max_removed_fraction is None and not self.team_name:
            check_contacts(self.hook.get_conn(), self.list_name, rows)

    @property
    def resource(self) -> str:
        return f"lists/{self.list_name}"

    def declared_table(self) -> Table:
        from airflow_provider_mail.warehouse.tables.resources import CONTACTS

        return CONTACTS

    def request(self) -> PagedRequest[Any]:
        from airflow_provider_mail.api._core.responses import compact_records
        from airflow_provider_mail.api.contacts import GetListContacts

        team_name = self.team_name or None
        return compact_records(GetListContacts(list_name=self.list_name, page_size=self.page_size, team_name=team_name))

    @cached_property
    def list_key(self) -> dict[str, str]:
        """The values that all rows of this list share."""
        team_name = self.team_name or self.hook.team_name or ""
        return {"mail_conn_id": self.mail_conn_id, "team_name": team_name, "list_name": self.list_name}

    def rows(self, records: Sequence[Any], observed_at: datetime) -> list[tuple[Any, ...]]:
        from airflow_provider_mail.warehouse.tables.resources import contact_row

        return [contact_row(contact, **self.list_key, observed_at=observed_at) for contact in records]

    def conditions(self, observed_at: datetime) -> Conditions:
        # The whole list, unless some of its rows may be missing.
        if self.on_change == "accept":
            return {}
        from airflow_provider_mail.warehouse.request import Coverage

        account = {name: self.list_key[name] for name in ("mail_conn_id", "team_name")}
        covers = Coverage.one(self.list_name, self.list_key, **account, observed_at=observed_at)
        return {"replace_where": self.list_key, "covers": covers}

    def first_page(self, pages: Iterator[list[Any]]) -> list[Any] | None:
        from airflow_provider_mail.api.errors import MailRejectedError

        try:
            return super().first_page(pages)
        except MailRejectedError:
            # A list that is gone is an empty one, which `check_empty` judges.
            if self.team_name or self._exists():
                raise
            return None

    def _exists(self) -> bool:
        from airflow_provider_mail.api.lists import find_list

        return find_list(self.hook.get_conn(), self.list_name) is not None

    def check_empty(self) -> None:
        """Verify that the list exists: a service may return no contacts for a wrong name."""
        if self.team_name:
            if not self.allow_empty:
                raise AirflowFailException(
                    f"list_name, team_name: list {self.list_name!r} of team {self.team_name!r} returned no contacts, "
                    "and lists of other teams cannot be looked up: check both names. If it is empty, allow_empty=True"
                )
        elif not self._exists():
            if self.allow_empty:
                self.log.warning("There is no list %r: it is ended, as an empty one", self.list_name)
                return
            raise AirflowFailException(
                f"list_name: there is no list {self.list_name!r}. If it was deleted or renamed, allow_empty=True ends "
                "it: set it for one run, which removes the contacts of the list, and ends their stays in a history"
            )


class BaseCampaignReader(BaseListReader):
    mail_name: str | None
    subject: str | None
    sender_mail: str | None
    type: str | None
    mail_status: Sequence[CampaignStatus] | None
    all_team: bool
    _teams: set[str]

    looked_up_by = ("guid", "mail_name")

    def look_up(self, rows: Sequence[tuple[Any, ...]]) -> None:
        from airflow_provider_mail.api.flows.second_source import check_campaigns

        check_campaigns(self.hook.get_conn(), rows)

    def declared_table(self) -> Table:
        from airflow_provider_mail.warehouse.tables.resources import CAMPAIGNS

        return CAMPAIGNS

    def request(self) -> PagedRequest[Any]:
        from airflow_provider_mail.api.campaigns import GetCampaigns

        self._teams = set()
        return GetCampaigns(page_size=self.page_size, all_team=self.all_team or None, **self._filters())

    def _filters(self) -> dict[str, Any]:
        return {
            "mail_name": self.mail_name or None,
            "subject": self.subject or None,
            "sender_mail": self.sender_mail or None,
            "type": self.type or None,
            "mail_status": list(self.mail_status) if self.mail_status else None,
        }

    def conditions(self, observed_at: datetime) -> Conditions:
        # The campaigns of all teams, or of the teams of the returned campaigns: only these show the account's own team.
        # If no campaign is returned, all campaigns of the account are gone, which needs `allow_empty`.
        if self.on_change == "accept" or any(self._filters().values()):
            return {}
        from airflow_provider_mail.warehouse.request import MarkGone

        account = {"mail_conn_id": self.mail_conn_id}

        def windows() -> list[Mapping[str, Any]]:
            if self.all_team or not self._teams:
                return [account]
            return [{**account, "team_name": team} for team in self._teams]

        return {"mark_gone": MarkGone(observed_at, windows)}

    def rows(self, records: Sequence[Any], observed_at: datetime) -> list[tuple[Any, ...]]:
        from airflow_provider_mail.warehouse.tables.resources import campaign_row

        conn_id = self.mail_conn_id
        self._teams.update(campaign.team_name or "" for campaign in records)
        return [campaign_row(campaign, mail_conn_id=conn_id, observed_at=observed_at) for campaign in records]


class BaseMailToSqlOperator(SqlTask, BaseTransferOperator):
    """Load records of the service into a table.

    A load is one transaction and can be repeated; a load that fails leaves the table unchanged. The table is created if
    it does not exist, gets columns that later versions add, and no column or table is ever dropped.
    """

    table: str

    def finish(self, context: Context, loaded: LoadResult) -> dict[str, int]:
        """Report the load to lineage, and store the rejects; return the number of rejects for XCom."""
        self.moved(self.resource, SqlTable(self.sql_hook, self.table), table=self.declared_table(), rows=loaded.rows)
        return self.keep_rejects(context, loaded.rows)

    def table_names(self) -> dict[str, str]:
        return {"table": self.table}

    def counts(self, loaded: LoadResult) -> dict[str, int]:
        if loaded.outdated:
            self.log.warning(
                "%s of %s records were not stored: %s has newer ones, from a load that asked the service later",
                loaded.outdated,
                loaded.rows,
                self.table,
            )
        names = ("inserted", "changed", "unchanged", "outdated", "gone", "joined", "left")
        return {name: count for name in names if (count := getattr(loaded, name)) is not None}

    def checked_table_names(self) -> dict[str, str]:
        from airflow_provider_mail.warehouse.errors import WarehouseError

        rejects = self.rejects and self.rejects.table
        if rejects and self.rejects.sql_conn_id and (hook := self._rejects_hook()) is not None:
            check_tables(hook, {"rejects.table": rejects})
            rejects = None
        check_tables(self.sql_hook, {"table": self.table, "rejects.table": rejects})
        try:
            return self.table_names()
        except WarehouseError as error:
            raise AirflowFailException(str(error)) from None


class BaseListToSqlOperator(BaseListReader, BaseMailToSqlOperator):
    """Load a whole list."""

    def execute(self, context: Context) -> dict[str, Any]:
        tables = self.checked_table_names()
        loaded = self.read_completely(context, self._load)
        counts = self.counts(loaded)
        self.log.info("%s records in %s %s", loaded.rows, self.table, counts)
        return {**tables, "records": loaded.rows, "readings": self.readings, **counts, **self.finish(context, loaded)}

    def _load(self, reading: Reading) -> LoadResult:
        return self.unstorable.load(
            self.declared_table(),
            self.table,
            reading.rows,
            **self.conditions(reading.observation.at),
            now=reading.observation.now(),
            removal=replace(self.removal_rule(reading.again), look_up=self.look_up, look_up_by=self.looked_up_by),
        )


class BaseStatsToSqlOperator(BaseMailToSqlOperator):
    """Load the statistics of a window of whole days in UTC."""

    start_day: str | None
    end_day: str | None
    lookback_days: int
    allow_empty: bool

    def check_zeros(self, statistics: Statistics) -> None:
        """Check that no number of sent mails falls to zero, unless an argument allows it: sent mails remain sent.

        :raises UnconfirmedError: with the number of records.
        """
        from airflow_provider_mail._task.statistics import fallen_to_zero
        from airflow_provider_mail.warehouse.request import RemovalRule

        if not self.allow_empty:
            fallen = fallen_to_zero(self.sql_hook, statistics, self.table)
            RemovalRule(allow_empty=False, max_fraction=0).check_sent(fallen, f"table {self.table}: ")

    @abstractmethod
    def transfer(self, start_day: date, end_day: date) -> tuple[LoadResult, dict[str, Any]]:
        """Read and load the statistics; return the result, and further values for XCom."""

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_mail.api.errors import MailRejectedError

        tables = self.checked_table_names()
        start_day, end_day = self.window(context)
        with self.mail_errors():
            try:
                loaded, further_values = self.transfer(start_day, end_day)
            except MailRejectedError as error:
                # The specification has no limit for the window, and no other reason for a rejection.
                days = (end_day - start_day).days + 1
                text = f"{error}; start_day {start_day}, end_day {end_day}: {days} days may be too many"
                raise error.with_text(text) from None
        counts = self.counts(loaded)
        self.log.info("%s to %s: %s records in %s %s", start_day, end_day, loaded.rows, self.table, counts)
        return {
            **tables,
            "start_day": start_day.isoformat(),
            "end_day": end_day.isoformat(),
            "records": loaded.rows,
            **counts,
            **further_values,
            **self.finish(context, loaded),
        }

    def window(self, context: Context) -> tuple[date, date]:
        from airflow_provider_mail._task.statistics import window

        return window(context, self.start_day, self.end_day, self.lookback_days)
