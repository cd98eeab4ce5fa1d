"""What the loads of ``mail_to_sql`` share: a table in a database, windows of days, and lists that are read whole."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.arguments import MailTaskMixin, check_keep_days, check_number
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

READINGS = 3
"""So many times a list that changes while it is read is read in one try of a task."""


class BaseMailToSqlOperator(MailLineage, MailTaskMixin, BaseOperator):
    """What all loads share: a connection of the service, and a table in a database.

    A load is one transaction and can be repeated; when it fails, the table is what it was. The table is made when
    missing, gets columns that a later version adds, and is never narrowed or dropped.

    :param mail_conn_id: the connection.
    :param sql_conn_id: the database's connection.
    :param table: the table, perhaps with its schema; made when missing.
    :param on_unstorable: what to do with a record that the database cannot keep or that cannot be true (a character
        that it does not know, a number that is too large, a negative count, a missing identifier). ``fail`` (default):
        the load fails, and the error names record, column and cause; ``reject``: the record is set aside and counted as
        ``rejected``, up to 1,000, and the others are loaded. Such a load deletes nothing and marks nothing as gone.
    :param rejects_table: with ``reject``, a table in the same database that keeps these records with their reasons;
        made when missing. It may hold personal data. Default: none.
    :param rejects_path: with ``reject``, where to keep them as JSON Lines: a path or URL as Airflow's
        ``ObjectStoragePath`` takes it. Default: nowhere.
    :param keep_days: rows of ``rejects_table`` that were set aside more than so many days ago, by whatever task, are
        deleted whenever this one stores its own, in the same transaction. Default: all are kept.
    """

    template_fields: Sequence[str] = ("mail_conn_id", "sql_conn_id", "table", "rejects_table", "rejects_path")
    ui_color = "#e6f1f2"

    def __init__(
        self,
        *,
        mail_conn_id: str = "mail_default",
        sql_conn_id: str,
        table: str,
        on_unstorable: Literal["fail", "reject"] = "fail",
        rejects_table: str | None = None,
        rejects_path: str | None = None,
        keep_days: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if on_unstorable not in ("fail", "reject"):
            raise ValueError(f"on_unstorable: {on_unstorable!r} is none of fail, reject")
        self.mail_conn_id = mail_conn_id
        self.sql_conn_id = sql_conn_id
        self.table = table
        self.on_unstorable = on_unstorable
        self.rejects_table = rejects_table
        self.rejects_path = rejects_path
        check_keep_days(keep_days, rejects_table)
        self.keep_days = keep_days

    @cached_property
    def unstorable(self) -> UnstorableRecords:
        """What becomes of records that cannot be stored."""
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
        """What of the service is loaded, for lineage, such as ``campaigns/stats``."""

    def note_lineage(self, rows: int) -> None:
        """Remember what was loaded into what."""
        self.moved(self.resource, SqlTable(self.sql_hook, self.table), table=self.declared_table(), rows=rows)

    @abstractmethod
    def declared_table(self) -> Table:
        """The table's columns and key."""

    def table_names(self) -> dict[str, str]:
        """The tables that are loaded, by argument.

        :raises WarehouseError: for one that cannot be a name.
        """
        from airflow_provider_mail.warehouse.table import TableName

        TableName.parse(self.table)
        if self.rejects_table:
            TableName.parse(self.rejects_table)
        return {"table": self.table}

    def counts(self, loaded: LoadResult) -> dict[str, int]:
        """What a load did, as far as the database tells."""
        if loaded.outdated:
            self.log.warning(
                "%s of %s records were not taken: %s has newer ones, from a load that asked the service later",
                loaded.outdated,
                loaded.rows,
                self.table,
            )
        names = ("inserted", "changed", "unchanged", "outdated", "gone")
        return {name: count for name in names if (count := getattr(loaded, name)) is not None}

    def checked_table_names(self) -> dict[str, str]:
        """The tables that are loaded, in a database that can be; called before the service is asked for anything."""
        from airflow_provider_mail.warehouse.errors import WarehouseError
        from airflow_provider_mail.warehouse.load import check_database

        if self.on_unstorable == "fail" and (self.rejects_table or self.rejects_path):
            raise AirflowFailException("rejects_table, rejects_path: they need on_unstorable='reject'")
        try:
            check_database(self.sql_hook)
            return self.table_names()
        except WarehouseError as error:
            raise AirflowFailException(str(error)) from None


class BaseStatsToSqlOperator(BaseMailToSqlOperator):
    """What the loads of statistics share: the window.

    The window is whole days of the service, which are days in UTC. Without ``start_day`` and ``end_day`` it comes from
    the run's data interval: ``[D, D+1)`` is day D. A run without an interval (manual, by an asset, or by a cron
    schedule that Airflow 3 makes no intervals for) takes its own day, as far as it is, and the day before.

    The same window twice, out of order or in two runs at once leaves the same rows. Opens and clicks still arrive for
    days, so ``lookback_days`` reads earlier days again and restates them. Rows of which nothing changed are not written
    again: when a day was last asked for stands in ``mail_loads``, a table beside this one.

    Returns ``table``, ``start_day``, ``end_day``, ``records`` and, where the database tells, ``inserted``, ``changed``,
    ``unchanged``, ``outdated`` (rows that were not taken because the table has newer ones) and, of campaigns, ``gone``.

    :param start_day: first day, ``YYYY-MM-DD``.
    :param end_day: last day, included.
    :param lookback_days: so many days before the window are read again. Not applied to a given ``start_day``.
    """

    template_fields: Sequence[str] = (*BaseMailToSqlOperator.template_fields, "start_day", "end_day")

    def __init__(
        self,
        *,
        start_day: str | None = None,
        end_day: str | None = None,
        lookback_days: int = 7,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_number("lookback_days", lookback_days, whole=True)
        self.start_day = start_day
        self.end_day = end_day
        self.lookback_days = lookback_days

    @abstractmethod
    def transfer(self, start_day: date, end_day: date) -> tuple[LoadResult, dict[str, Any]]:
        """Ask the service and load what it says; what became of that, and what else there is to tell in XCom."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Read the window and load it."""
        tables = self.checked_table_names()
        start_day, end_day = self.window(context)
        with self.mail_errors():
            loaded, told = self._transfer(start_day, end_day)
        self.note_lineage(loaded.rows)
        counts = self.counts(loaded)
        self.log.info("%s to %s: %s records in %s %s", start_day, end_day, loaded.rows, self.table, counts)
        return {
            **tables,
            "start_day": start_day.isoformat(),
            "end_day": end_day.isoformat(),
            "records": loaded.rows,
            **counts,
            **told,
            **self.unstorable.keep(context, self.log),
        }

    def window(self, context: Context) -> tuple[date, date]:
        """First and last day to ask for."""
        from airflow_provider_mail._task.date_window import window

        return window(context, self.start_day, self.end_day, self.lookback_days)

    def _transfer(self, start_day: date, end_day: date) -> tuple[LoadResult, dict[str, Any]]:
        from airflow_provider_mail.api.errors import MailRejectedError

        try:
            return self.transfer(start_day, end_day)
        except MailRejectedError as error:
            # The document shows no longest window, and no reason why else the statistics could be refused.
            days = (end_day - start_day).days + 1
            asked = f"start_day {start_day}, end_day {end_day}: {days} days were asked for, perhaps too many"
            error.args = (f"{error}; {asked}",)
            raise


class BaseListToSqlOperator(BaseMailToSqlOperator):
    """What the loads of whole lists share: reading page by page, complete although the list may change meanwhile.

    Pages stream into the table in flat memory. A sign that the list changed while it was read (another total, records
    that come again) is never ignored.

    :param page_size: records in a page, at most 1,000; a service that gives fewer is read all the same.
    :param max_in_flight: pages asked for at once; no more than the connection's own limit.
    :param on_change: what to do when the list changes while it is read. ``retry`` (default): a list that only grows is
        read twice, which proves that nothing was missed; otherwise start again, up to three times in all, then fail;
        ``fail``: fail at once; ``accept``: take what came if it is at least as many different records as the lowest
        total that the service said, otherwise read it again.
    """

    _interrupt: Interrupt | None = None

    def __init__(
        self,
        *,
        page_size: int,
        max_in_flight: int,
        on_change: Literal["retry", "fail", "accept"] = "retry",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_number("page_size", page_size, least=1, most=1000, whole=True)
        check_number("max_in_flight", max_in_flight, least=1, whole=True)
        if on_change not in ("retry", "fail", "accept"):
            raise ValueError(f"on_change: {on_change!r} is none of retry, fail, accept")
        self.page_size = page_size
        self.max_in_flight = max_in_flight
        self.on_change = on_change

    @abstractmethod
    def request(self) -> PagedRequest[Any]:
        """The request for the first page."""

    @abstractmethod
    def rows(self, records: Sequence[Any], observed_at: datetime) -> list[tuple[Any, ...]]:
        """The rows of a page."""

    def replace_where(self) -> Mapping[str, Any] | None:
        """The rows that are gone unless the service still has them."""
        return None

    def covers(self, observed_at: datetime) -> Coverage | None:
        """What the load brings the whole of, so that rows that did not change need not be written again."""
        return None

    def mark_gone(self, observed_at: datetime) -> MarkGone | None:
        """What the load brings the whole of, so that other rows are marked as gone; called before each reading."""
        return None

    def check_empty(self) -> None:
        """Called when the list has no record, before that is believed."""

    def fall_limit(self, *, confirmed: bool) -> FallLimit | None:
        """How far the number of rows may fall.

        :param confirmed: whether the list has been read a second time because of such a fall.
        """
        return None

    def execute(self, context: Context) -> dict[str, Any]:
        """Read the list and load it."""
        from airflow_provider_mail.api.errors import MailIncompleteError
        from airflow_provider_mail.warehouse.errors import FallError

        tables = self.checked_table_names()
        fallen = False
        with self.mail_errors():
            for reading in range(1, READINGS + 1):
                try:
                    loaded = self._load(self.fall_limit(confirmed=fallen))
                    break
                except MailIncompleteError as error:
                    if self.on_change == "fail" or reading == READINGS:
                        error.add_note("on_change says what to do with a list that changes while it is read")
                        raise
                    self.log.warning("%s; it is read again (%s of %s)", error, reading + 1, READINGS)
                except FallError as error:
                    if fallen or reading == READINGS:
                        permission = "max_removed_fraction" if error.after else "allow_empty=True"
                        error.args = (f"{error}. Nothing was changed; {permission} allows it",)
                        raise
                    fallen = True
                    self.log.warning("%s; the list is read a second time before that is believed", error)
        self.note_lineage(loaded.rows)
        counts = self.counts(loaded)
        if loaded.deleted is not None and self.replace_where():
            counts["deleted"] = loaded.deleted
        self.log.info("%s records in %s %s", loaded.rows, self.table, counts)
        rejected = self.unstorable.keep(context, self.log)
        return {**tables, "records": loaded.rows, "readings": reading, **counts, **rejected}

    def on_kill(self) -> None:
        """Let the reading end: no further page is asked for, and what is under way gets two seconds."""
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
        self, first: list[Any] | None, pages: Iterator[list[Any]], asked_at: datetime
    ) -> Iterator[tuple[Any, ...]]:
        if first is None:
            self.check_empty()
            return
        yield from self.rows(first, asked_at)
        for page in pages:
            yield from self.rows(page, asked_at)
