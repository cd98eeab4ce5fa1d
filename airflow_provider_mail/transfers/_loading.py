"""Base classes of the transfers from the service to a table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.checks import check_keep_days
from airflow_provider_mail._task.mixin import MailTaskMixin
from airflow_provider_mail._task.storage import SqlTask, check_tables
from airflow_provider_mail.lineage import MailLineage, SqlTable
from airflow_provider_mail.transfers._reading import BaseListReader
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.rejects import UnstorableRecords
    from airflow_provider_mail.warehouse.load import History, LoadResult, RemovalRule
    from airflow_provider_mail.warehouse.table import Table

MAX_REMOVED_FRACTION = 0.5
"""The largest fraction of the rows that one load removes by default."""

OnUnstorable: TypeAlias = Literal["fail", "reject"]
"""What to do with a record that the database cannot store."""


class RemovesRows(MailTaskMixin):
    """Mixin for transfers that delete rows, mark them as gone or end them in a history."""

    allow_empty: bool
    max_removed_fraction: float

    def removal_rule(self, read_again: Callable[[], Iterable[Sequence[Any]]] | None = None) -> RemovalRule:
        """Return the rule that limits which rows a load may remove.

        :param read_again: see :class:`~airflow_provider_mail.warehouse.request.RemovalRule`.
        """
        from airflow_provider_mail.warehouse.request import RemovalRule

        return RemovalRule(allow_empty=self.allow_empty, max_fraction=self.max_removed_fraction, read_again=read_again)


class BaseMailToSqlOperator(MailLineage, SqlTask, MailTaskMixin, BaseOperator):
    """Load records of the service into a table.

    A load is one transaction and can be repeated; a load that fails leaves the table unchanged. The table is created if
    it does not exist, gets columns that later versions add, and no column or table is ever dropped.
    """

    ui_color = "#e6f1f2"

    table: str
    on_unstorable: OnUnstorable
    rejects_table: str | None
    rejects_path: str | None
    keep_days: float | None
    lock_timeout: float

    def set_arguments(self, **arguments: Any) -> None:
        super().set_arguments(**arguments)
        check_keep_days(self)

    @cached_property
    def unstorable(self) -> UnstorableRecords:
        """Handles records that cannot be stored."""
        from airflow_provider_mail._task.rejects import UnstorableRecords

        return UnstorableRecords(
            self.sql_hook,
            self.on_unstorable == "reject",
            self.rejects_table,
            self.rejects_path,
            self.keep_days,
            lock_timeout=self.lock_timeout,
        )

    @property
    @abstractmethod
    def resource(self) -> str:
        """The resource that is loaded, for lineage, such as ``campaigns/stats``."""

    def finish(self, context: Context, loaded: LoadResult) -> dict[str, int]:
        """Store the rejects, and report the load to lineage and metrics; return the number of rejects for XCom."""
        from airflow_provider_mail._metrics import RECORDS_REJECTED, emit, task_tags

        self.moved(self.resource, SqlTable(self.sql_hook, self.table), table=self.declared_table(), rows=loaded.rows)
        rejected = self.unstorable.keep(context, self.log)
        emit({RECORDS_REJECTED: rejected.get("rejected", 0)}, task_tags(self))
        return rejected

    @abstractmethod
    def declared_table(self) -> Table:
        """Return the declared table."""

    def table_names(self) -> dict[str, str]:
        """Return the names of the loaded tables, by argument.

        :raises WarehouseError: for an invalid name.
        """
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

        if self.on_unstorable == "fail" and (self.rejects_table or self.rejects_path):
            raise AirflowFailException("rejects_table, rejects_path: they need on_unstorable='reject'")
        check_tables(self.sql_hook, {"table": self.table, "rejects_table": self.rejects_table or None})
        try:
            return self.table_names()
        except WarehouseError as error:
            raise AirflowFailException(str(error)) from None


class BaseListToSqlOperator(BaseListReader, RemovesRows, BaseMailToSqlOperator):
    """Load a whole list."""

    def recorded_in(self, observed_at: datetime) -> History | None:
        """Return the history in which the list is recorded; ``None`` for no history.

        :param observed_at: the time of the reading.
        """
        return None

    def execute(self, context: Context) -> dict[str, Any]:
        tables = self.checked_table_names()
        loaded = self.read_completely(lambda: self._load(context))
        counts = self.counts(loaded)
        if loaded.deleted is not None and self.replace_where():
            counts["deleted"] = loaded.deleted
        self.log.info("%s records in %s %s", loaded.rows, self.table, counts)
        return {**tables, "records": loaded.rows, "readings": self.readings, **counts, **self.finish(context, loaded)}

    def _load(self, context: Context) -> LoadResult:
        with self.reading(context, self.sql_hook) as reading:
            observed_at = reading.observation.at
            return self.unstorable.load(
                self.declared_table(),
                self.table,
                reading.rows,
                replace_where=self.replace_where(),
                covers=self.covers(observed_at),
                mark_gone=self.mark_gone(observed_at),
                history=self.recorded_in(observed_at),
                now=reading.observation.now(),
                removal=self.removal_rule(reading.again),
            )


class BaseStatsToSqlOperator(BaseMailToSqlOperator):
    """Load the statistics of a window of whole days in UTC."""

    start_day: str | None
    end_day: str | None
    lookback_days: int

    @abstractmethod
    def transfer(self, start_day: date, end_day: date) -> tuple[LoadResult, dict[str, Any]]:
        """Read and load the statistics; return the result, and further values for XCom.

        :param end_day: the last day of the window, included.
        """

    def execute(self, context: Context) -> dict[str, Any]:
        tables = self.checked_table_names()
        start_day, end_day = self.window(context)
        with self.mail_errors():
            loaded, further_values = self._transfer(start_day, end_day)
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

    def _transfer(self, start_day: date, end_day: date) -> tuple[LoadResult, dict[str, Any]]:
        from airflow_provider_mail.api.errors import MailRejectedError

        try:
            return self.transfer(start_day, end_day)
        except MailRejectedError as error:
            # The specification has no limit for the window, and no other reason for a rejection.
            days = (end_day - start_day).days + 1
            error.args = (f"{error}; start_day {start_day}, end_day {end_day}: {days} days may be too many",)
            raise
