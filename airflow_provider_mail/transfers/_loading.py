"""Base classes of the transfers from the service to a table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.arguments import MailTaskMixin, check_choice, check_keep_days, check_number
from airflow_provider_mail.lineage import MailLineage, SqlTable
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.sdk import Context

    from airflow_provider_mail._task.unstorable_rows import UnstorableRecords
    from airflow_provider_mail.api._core.interrupt import Interrupt
    from airflow_provider_mail.api._core.requests import PagedRequest
    from airflow_provider_mail.warehouse.coverage import Coverage, MarkGone
    from airflow_provider_mail.warehouse.load import FallLimit, LoadResult
    from airflow_provider_mail.warehouse.table import Table

OnUnstorable: TypeAlias = Literal["fail", "reject"]
"""What to do with a record that the database cannot store."""

OnChange: TypeAlias = Literal["retry", "fail", "accept"]
"""What to do when a list changes while it is read."""

READINGS = 3
"""How often one try of a task reads a list that changes while it is read."""


class BaseMailToSqlOperator(MailLineage, MailTaskMixin, BaseOperator):
    """Load records of the service into a table.

    A load is one transaction and can be repeated; a load that fails leaves the table as it was. The table is created if
    it does not exist, gets columns that a later version adds, and is never narrowed or dropped.
    """

    ui_color = "#e6f1f2"

    sql_conn_id: str
    table: str
    on_unstorable: OnUnstorable
    rejects_table: str | None
    rejects_path: str | None
    keep_days: float | None

    def set_arguments(self, arguments: Mapping[str, Any]) -> None:
        super().set_arguments(arguments)
        check_choice("on_unstorable", self.on_unstorable, OnUnstorable)
        check_keep_days(self.keep_days, self.rejects_table)

    @cached_property
    def unstorable(self) -> UnstorableRecords:
        """Handles records that cannot be stored."""
        from airflow_provider_mail._task.unstorable_rows import UnstorableRecords

        return UnstorableRecords(
            self.sql_hook, self.on_unstorable == "reject", self.rejects_table, self.rejects_path, self.keep_days
        )

    @cached_property
    def sql_hook(self) -> DbApiHook:
        """The hook of ``sql_conn_id``."""
        from airflow_provider_mail._task.sql import sql_hook

        return sql_hook(self.sql_conn_id)

    @property
    @abstractmethod
    def resource(self) -> str:
        """The resource that is loaded, for lineage, such as ``campaigns/stats``."""

    def record_lineage(self, rows: int) -> None:
        """Record the transfer for lineage.

        :param rows: number of rows that were read.
        """
        self.moved(self.resource, SqlTable(self.sql_hook, self.table), table=self.declared_table(), rows=rows)

    @abstractmethod
    def declared_table(self) -> Table:
        """The declared table."""

    def table_names(self) -> dict[str, str]:
        """The names of the loaded tables, by argument.

        :raises WarehouseError: for an invalid name.
        """
        from airflow_provider_mail.warehouse.table import TableName

        TableName.parse(self.table)
        if self.rejects_table:
            TableName.parse(self.rejects_table)
        return {"table": self.table}

    def counts(self, loaded: LoadResult) -> dict[str, int]:
        """The counts of a load that the database reports.

        :param loaded: the result of the load.
        """
        if loaded.outdated:
            self.log.warning(
                "%s of %s records were not stored: %s has newer ones, from a load that asked the service later",
                loaded.outdated,
                loaded.rows,
                self.table,
            )
        names = ("inserted", "changed", "unchanged", "outdated", "gone")
        return {name: count for name in names if (count := getattr(loaded, name)) is not None}

    def checked_table_names(self) -> dict[str, str]:
        """Check the database and the names of the tables, before the first request; return the names."""
        from airflow_provider_mail.warehouse.errors import WarehouseError
        from airflow_provider_mail.warehouse.load import check_database

        if self.on_unstorable == "fail" and (self.rejects_table or self.rejects_path):
            raise AirflowFailException("rejects_table, rejects_path: they need on_unstorable='reject'")
        try:
            check_database(self.sql_hook)
            return self.table_names()
        except WarehouseError as error:
            raise AirflowFailException(str(error)) from None


class BaseListToSqlOperator(BaseMailToSqlOperator):
    """Load a whole list, page by page in flat memory, completely although the list may change meanwhile.

    A sign that the list changed while it was read (a different total, repeated records) is never ignored.
    """

    page_size: int
    max_in_flight: int
    on_change: OnChange

    _interrupt: Interrupt | None = None

    def set_arguments(self, arguments: Mapping[str, Any]) -> None:
        super().set_arguments(arguments)
        check_number("page_size", self.page_size, least=1, most=1000, whole=True)
        check_number("max_in_flight", self.max_in_flight, least=1, whole=True)
        check_choice("on_change", self.on_change, OnChange)

    @abstractmethod
    def request(self) -> PagedRequest[Any]:
        """Build the request for the first page."""

    @abstractmethod
    def rows(self, records: Sequence[Any], observed_at: datetime) -> list[tuple[Any, ...]]:
        """Build the rows of a page.

        :param records: a page of records.
        :param observed_at: when the service was asked.
        """

    def replace_where(self) -> Mapping[str, Any] | None:
        """The rows that are deleted unless the service still has them, as conditions."""
        return None

    def covers(self, observed_at: datetime) -> Coverage | None:
        """The parts of the table for which the load is complete: their unchanged rows are not written again.

        :param observed_at: when the service was asked.
        """
        return None

    def mark_gone(self, observed_at: datetime) -> MarkGone | None:
        """The windows for which the load is complete, whose other rows are gone; called before each reading.

        :param observed_at: when the service was asked.
        """
        return None

    def check_empty(self) -> None:
        """Verify that a list that came back empty exists."""

    def fall_limit(self, *, confirmed: bool) -> FallLimit | None:
        """The limit for the fall of the number of rows.

        :param confirmed: whether the list has been read a second time because of a fall.
        """
        return None

    def execute(self, context: Context) -> dict[str, Any]:
        """Read the list and load it.

        :param context: the task's context.
        """
        from airflow_provider_mail.api.errors import MailIncompleteError
        from airflow_provider_mail.warehouse.errors import FallError

        tables = self.checked_table_names()
        is_fall_confirmed = False
        with self.mail_errors():
            for reading in range(1, READINGS + 1):
                try:
                    loaded = self._load(self.fall_limit(confirmed=is_fall_confirmed))
                    break
                except MailIncompleteError as error:
                    if self.on_change == "fail" or reading == READINGS:
                        error.add_note("Set on_change to decide how to handle a list that changes while it is read")
                        raise
                    self.log.warning("%s; reading the list again (%s of %s)", error, reading + 1, READINGS)
                except FallError as error:
                    if is_fall_confirmed or reading == READINGS:
                        permission = "max_removed_fraction" if error.after else "allow_empty=True"
                        error.args = (f"{error}. Nothing was changed; {permission} allows it",)
                        raise
                    is_fall_confirmed = True
                    self.log.warning("%s; reading the list a second time to confirm it", error)
        self.record_lineage(loaded.rows)
        counts = self.counts(loaded)
        if loaded.deleted is not None and self.replace_where():
            counts["deleted"] = loaded.deleted
        self.log.info("%s records in %s %s", loaded.rows, self.table, counts)
        rejected = self.unstorable.keep(context, self.log)
        return {**tables, "records": loaded.rows, "readings": reading, **counts, **rejected}

    def on_kill(self) -> None:
        """Stop reading: request no further page, and give running requests two seconds."""
        if self._interrupt is not None:
            self._interrupt.stop()

    def _load(self, fall_limit: FallLimit | None) -> LoadResult:
        from airflow_provider_mail._task.observation import Observation
        from airflow_provider_mail.api._core.interrupt import Interrupt
        from airflow_provider_mail.api._core.pagination import Changes
        from airflow_provider_mail.api.flows.concurrent_pages import concurrent_pages

        changes = {"retry": Changes.ALLOW_GROWTH, "fail": Changes.REFUSE, "accept": Changes.ACCEPT}[self.on_change]
        client = self.hook.get_conn()
        observation = Observation(client, self.sql_hook)
        self._interrupt = Interrupt()
        pages = concurrent_pages(client, self.request(), self.max_in_flight, changes, self._interrupt)
        with closing(pages):
            first = next(pages, None)
            return self.unstorable.load(
                self.declared_table(),
                self.table,
                self._streamed(first, pages, observation.at),
                replace_where=self.replace_where(),
                covers=self.covers(observation.at),
                mark_gone=self.mark_gone(observation.at),
                now=observation.now(),
                fall_limit=fall_limit,
            )

    def _streamed(
        self, first: list[Any] | None, pages: Iterator[list[Any]], observed_at: datetime
    ) -> Iterator[tuple[Any, ...]]:
        if first is None:
            self.check_empty()
            return
        yield from self.rows(first, observed_at)
        for page in pages:
            yield from self.rows(page, observed_at)


class BaseStatsToSqlOperator(BaseMailToSqlOperator):
    """Load the statistics of a window: whole days of the service, which are days in UTC."""

    start_day: str | None
    end_day: str | None
    lookback_days: int

    def set_arguments(self, arguments: Mapping[str, Any]) -> None:
        super().set_arguments(arguments)
        check_number("lookback_days", self.lookback_days, whole=True)

    @abstractmethod
    def transfer(self, start_day: date, end_day: date) -> tuple[LoadResult, dict[str, Any]]:
        """Read and load the statistics; return the result, and further values for XCom.

        :param start_day: first day of the window.
        :param end_day: its last day, included.
        """

    def execute(self, context: Context) -> dict[str, Any]:
        """Read and load the window.

        :param context: the task's context.
        """
        tables = self.checked_table_names()
        start_day, end_day = self.window(context)
        with self.mail_errors():
            loaded, more = self._transfer(start_day, end_day)
        self.record_lineage(loaded.rows)
        counts = self.counts(loaded)
        self.log.info("%s to %s: %s records in %s %s", start_day, end_day, loaded.rows, self.table, counts)
        return {
            **tables,
            "start_day": start_day.isoformat(),
            "end_day": end_day.isoformat(),
            "records": loaded.rows,
            **counts,
            **more,
            **self.unstorable.keep(context, self.log),
        }

    def window(self, context: Context) -> tuple[date, date]:
        """The first and last day of the window.

        :param context: the task's context.
        """
        from airflow_provider_mail._task.date_window import window

        return window(context, self.start_day, self.end_day, self.lookback_days)

    def _transfer(self, start_day: date, end_day: date) -> tuple[LoadResult, dict[str, Any]]:
        from airflow_provider_mail.api.errors import MailRejectedError

        try:
            return self.transfer(start_day, end_day)
        except MailRejectedError as error:
            # The document has no limit for the window, and no other reason for a rejection.
            days = (end_day - start_day).days + 1
            error.args = (f"{error}; start_day {start_day}, end_day {end_day}: {days} days may be too many",)
            raise
