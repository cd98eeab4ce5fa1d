"""From the service to a database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_mail._task.arguments import check_flags, check_number
from airflow_provider_mail.transfers._loading import (
    BaseListToSqlOperator,
    BaseMailToSqlOperator,
    BaseStatsToSqlOperator,
)
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.observation import Observation
    from airflow_provider_mail.api._core.requests import PagedRequest
    from airflow_provider_mail.warehouse.coverage import Coverage, MarkGone
    from airflow_provider_mail.warehouse.load import FallLimit, LoadResult
    from airflow_provider_mail.warehouse.table import Table

MAX_REMOVED_FRACTION = 0.5
"""A list that loses more of its contacts between two loads is read a second time."""


class MailCampaignStatsToSqlOperator(BaseStatsToSqlOperator):
    """Loads the statistics of the campaigns that were sent in a window: one row a campaign, its latest state.

    The days between the first and the last of the window are noted in ``mail_loads``, unless ``mail_name`` or ``type``
    leave campaigns out. The zone of the service's days is not shown in the document, so of the first and the last it
    may not have told everything: their rows say themselves when they were last seen.

    A campaign of one of these days that the service does not have any more (deleted, renamed or moved to another day)
    is marked with ``gone_at``; the mark is cleared when it is there again. When no campaign comes at all, none is
    marked.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/statistics.md``.

    :param mail_name: only campaigns whose name the service finds by this. The window then goes on until today, since a
        campaign may go out long after its run began; ``end_day`` still ends it.
    :param type: only ``MailList`` (ordinary) or ``ABTest`` campaigns.
    :param snapshots: keep a second table with one row per campaign and day of observation: how the counts grew, which
        the service forgets. It is loaded first, in a transaction of its own.
    :param snapshots_table: its name, which asks for it too. Default: that of ``table`` with ``_snapshots`` at the end.
    """

    template_fields: Sequence[str] = (*BaseStatsToSqlOperator.template_fields, "mail_name", "type", "snapshots_table")

    resource = "campaigns/stats"

    def __init__(
        self,
        *,
        table: str = "mail_campaign_stats",
        mail_name: str | None = None,
        type: str | None = None,
        snapshots: bool = False,
        snapshots_table: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(table=table, **kwargs)
        check_flags(snapshots=snapshots)
        self.mail_name = mail_name
        self.type = type
        self.snapshots = snapshots
        self.snapshots_table = snapshots_table

    def window(self, context: Context) -> tuple[date, date]:
        """First and last day to ask for."""
        from airflow_provider_mail._task.date_window import today

        start_day, end_day = super().window(context)
        return start_day, max(end_day, today()) if self.mail_name and not self.end_day else end_day

    def declared_table(self) -> Table:
        """One row per connection and campaign."""
        from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_STATS

        return CAMPAIGN_STATS

    def table_names(self) -> dict[str, str]:
        """The tables that are loaded, by argument."""
        from airflow_provider_mail.warehouse.tables.stats import snapshots_name

        names = super().table_names()
        if self.snapshots or self.snapshots_table:
            names["snapshots_table"] = snapshots_name(self.table, self.snapshots_table)
        return names

    def transfer(self, start_day: date, end_day: date) -> tuple[LoadResult, dict[str, Any]]:
        """Load the history, then the latest state."""
        from airflow_provider_mail._task.observation import Observation
        from airflow_provider_mail.api.campaigns import GetCampaignStats
        from airflow_provider_mail.api.flows.stored_statistics import StatsInDoubt, StoredStats

        fields: dict[str, Any] = {"mail_name": self.mail_name or None, "type": self.type or None}
        request = GetCampaignStats(start_date=start_day, end_date=end_day, **fields)
        client = self.hook.get_conn()
        observation = Observation(client, self.sql_hook)
        with closing(StoredStats(client, request)) as stats:
            covers = self._covers(start_day, end_day, observation.at)
            with suppress(StatsInDoubt):
                return self._load(stats, observation, covers), {}
            stats.make_whole()
            return self._load(stats, observation, covers), {}

    def _load(self, stats: Iterable[Iterable[Any]], observation: Observation, covers: Coverage | None) -> LoadResult:
        from airflow_provider_mail.warehouse.load import MarkGone
        from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_SNAPSHOTS, campaign_stats_row, snapshot_rows

        conn_id, team, asked_at = self.mail_conn_id, self.hook.team_name, observation.at
        none = True

        def rows() -> Iterator[tuple[Any, ...]]:
            nonlocal none
            for records in stats:
                for record in records:
                    none = False
                    yield campaign_stats_row(record, mail_conn_id=conn_id, team=team, observed_at=asked_at)

        if snapshots_table := self.table_names().get("snapshots_table"):
            # The history first: a latest state can be asked for again tomorrow, today's cannot.
            self.unstorable.load(CAMPAIGN_SNAPSHOTS, snapshots_table, snapshot_rows(rows()), now=observation.now())
        mark_gone = MarkGone(asked_at, lambda: [] if none else [covers.whole]) if covers else None
        return self.unstorable.load(
            self.declared_table(),
            self.table,
            rows(),
            covers=covers,
            mark_gone=mark_gone,
            now=observation.now(),
        )

    def _covers(self, start_day: date, end_day: date, asked_at: datetime) -> Coverage | None:
        day = timedelta(days=1)
        if self.mail_name or self.type or end_day - start_day <= day:
            return None
        from airflow_provider_mail.warehouse.coverage import Coverage

        sent_at = self.declared_table()["mail_send_date"]
        return Coverage.days(
            sent_at, start_day + day, end_day - day, mail_conn_id=self.mail_conn_id, observed_at=asked_at
        )


class MailTransactionalStatsToSqlOperator(BaseStatsToSqlOperator):
    """Loads the daily statistics of transactional mail: one row a day.

    A day that the service's answer leaves out gets no row, and one that is there stays as it is: missing is not zero.
    Returns ``missing_days`` too, how many those were.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/statistics.md``.
    """

    resource = "transactional/stats"

    def __init__(self, *, table: str = "mail_transactional_stats", **kwargs: Any) -> None:
        super().__init__(table=table, **kwargs)

    def declared_table(self) -> Table:
        """One row per connection and day."""
        from airflow_provider_mail.warehouse.tables.stats import TRANSACTIONAL_STATS

        return TRANSACTIONAL_STATS

    def transfer(self, start_day: date, end_day: date) -> tuple[LoadResult, dict[str, Any]]:
        """Ask for the days, and once more for those that were left out."""
        from airflow_provider_mail._task.date_window import today
        from airflow_provider_mail._task.observation import Observation
        from airflow_provider_mail.api.flows.statistics import missing_days, transactional_stats
        from airflow_provider_mail.api.transactional import GetTransactionalStats
        from airflow_provider_mail.warehouse.load import Coverage
        from airflow_provider_mail.warehouse.tables.stats import transactional_stats_row

        request = GetTransactionalStats(start_date=start_day, end_date=end_day)
        observation = Observation(self.hook.get_conn(), self.sql_hook)
        records = self.hook.run(transactional_stats(request))
        asked_at = observation.at
        missing = missing_days(request, records, today())
        if missing:
            some = ", ".join(map(str, missing[:10])) + (" ..." if len(missing) > 10 else "")
            self.log.warning("The service tells nothing of %s days, which stay as they are: %s", len(missing), some)
        team = self.hook.team_name
        rows = [
            transactional_stats_row(record, mail_conn_id=self.mail_conn_id, team=team, observed_at=asked_at)
            for record in records
        ]
        table = self.declared_table()
        covers = Coverage.days(
            table["stats_date"],
            start_day,
            end_day,
            mail_conn_id=self.mail_conn_id,
            observed_at=asked_at,
            only={record.stats_date for record in records},
        )
        loaded = self.unstorable.load(table, self.table, rows, covers=covers, now=observation.now())
        return loaded, {"missing_days": len(missing)}


class MailContactsToSqlOperator(BaseListToSqlOperator):
    """Loads the contacts of a list: one row a contact, with all properties. The table holds personal data.

    Rows of which nothing changed are not written again: when the list was last read stands in ``mail_loads``, a table
    beside this one. Where ``mode`` or ``on_change`` may leave rows of the list that were not seen, each row says itself
    when it was last seen.

    Returns ``table``, ``list_name``, ``records``, ``readings`` and, where the database tells, ``inserted``,
    ``changed``, ``unchanged``, ``outdated`` and ``deleted``; never rows or addresses.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/warehouse.md``.

    :param list_name: the list.
    :param mode: ``replace`` (default): rows of this list that are not in it any more are deleted, in the transaction
        that brings the others; ``upsert``: they stay, with the ``observed_at`` at which they were last seen.
    :param team_name: the team that the list belongs to. Default: the current one; others need a permission.
    :param allow_empty: with ``mode="replace"``, whether a list that has become empty may empty its rows in the table.
        Default: no; the task fails, and the rows stay. A list of another team (``team_name``), whose name cannot be
        looked up, may only be empty with it.
    :param max_removed_fraction: with ``mode="replace"``, the largest part of the list's rows, from 0 to 1, that one
        load may remove on balance; not applied below ten rows. Default: 0.5. A load that would remove more, or that
        finds the list empty, reads the list a second time before it fails or goes ahead.
    """

    template_fields: Sequence[str] = (*BaseMailToSqlOperator.template_fields, "list_name", "team_name")

    def __init__(
        self,
        *,
        list_name: str,
        table: str = "mail_contacts",
        mode: Literal["replace", "upsert"] = "replace",
        team_name: str | None = None,
        allow_empty: bool = False,
        max_removed_fraction: float = MAX_REMOVED_FRACTION,
        page_size: int = 1000,
        max_in_flight: int = 8,
        **kwargs: Any,
    ) -> None:
        super().__init__(table=table, page_size=page_size, max_in_flight=max_in_flight, **kwargs)
        check_flags(allow_empty=allow_empty)
        check_number("max_removed_fraction", max_removed_fraction, most=1)
        if mode not in ("replace", "upsert"):
            raise ValueError(f"mode: {mode!r} is none of replace, upsert")
        self.list_name = list_name
        self.mode = mode
        self.team_name = team_name
        self.allow_empty = allow_empty
        self.max_removed_fraction = max_removed_fraction

    @property
    def resource(self) -> str:
        """The list."""
        return f"lists/{self.list_name}"

    def declared_table(self) -> Table:
        """One row per connection, team, list and contact."""
        from airflow_provider_mail.warehouse.tables.contacts import CONTACTS

        return CONTACTS

    def request(self) -> PagedRequest[Any]:
        """The first page of the list."""
        from airflow_provider_mail.api.contacts import GetListContacts

        return GetListContacts(list_name=self.list_name, page_size=self.page_size, team_name=self.team_name or None)

    @cached_property
    def _list(self) -> dict[str, str]:
        team = self.team_name or self.hook.team_name or ""
        return {"mail_conn_id": self.mail_conn_id, "team": team, "list_name": self.list_name}

    def rows(self, records: Sequence[Any], observed_at: datetime) -> list[tuple[Any, ...]]:
        """The rows of contacts."""
        from airflow_provider_mail.warehouse.tables.contacts import contact_row

        return [contact_row(contact, **self._list, observed_at=observed_at) for contact in records]

    def replace_where(self) -> Mapping[str, Any] | None:
        """This list's rows, of this connection and team."""
        return self._list if self.mode == "replace" else None

    def covers(self, observed_at: datetime) -> Coverage | None:
        """The list, where no row of it stays that has not been seen."""
        if self.mode == "upsert" or self.on_change == "accept":
            return None
        from airflow_provider_mail.warehouse.coverage import Coverage
        from airflow_provider_mail.warehouse.tables.contacts import list_part

        part = list_part(self._list["team"], self.list_name)
        return Coverage.one(part, self._list, mail_conn_id=self.mail_conn_id, observed_at=observed_at)

    def fall_limit(self, *, confirmed: bool) -> FallLimit | None:
        """What the arguments allow; until the list was read a second time, what is usual."""
        from airflow_provider_mail.warehouse.load import FallLimit

        if confirmed:
            return FallLimit(allow_empty=self.allow_empty, max_fraction=self.max_removed_fraction)
        return FallLimit(allow_empty=False, max_fraction=min(self.max_removed_fraction, MAX_REMOVED_FRACTION))

    def check_empty(self) -> None:
        """Make sure that there is such a list: a service may answer a wrong name with no contacts."""
        from airflow_provider_mail.api.lists import find_list

        if self.team_name:
            if not self.allow_empty:
                raise AirflowFailException(
                    f"list_name, team_name: no contacts came of list {self.list_name!r} of team {self.team_name!r}, "
                    "and lists of other teams cannot be looked up: check both names. If it is empty, allow_empty=True"
                )
        elif self.hook.run(find_list(self.list_name)) is None:
            raise AirflowFailException(f"list_name: there is no list {self.list_name!r}")

    def execute(self, context: Context) -> dict[str, Any]:
        """Read the list and load it."""
        return {"list_name": self.list_name, **super().execute(context)}


class MailCampaignsToSqlOperator(BaseListToSqlOperator):
    """Loads the campaigns themselves: one row a task, in whatever state, without its content.

    Tasks that the service has deleted stay in the table, with the ``observed_at`` at which they were last seen. A load
    without a filter marks them with ``gone_at``: with ``all_team`` those of all teams, otherwise those of the teams
    whose tasks came. The mark is cleared when they are there again. When no task comes at all, or with
    ``on_change="accept"``, none is marked.

    Returns ``table``, ``records``, ``readings`` and, where the database tells, ``inserted``, ``changed``,
    ``unchanged``, ``outdated`` and ``gone``.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/warehouse.md``.

    :param mail_name: only tasks whose name contains this.
    :param subject: only tasks whose subject contains this.
    :param sender_mail: only tasks of this sender.
    :param type: only ``MailList`` (ordinary) or ``ABTest`` tasks.
    :param all_team: the tasks of all teams; needs a permission.
    :param mail_status: only tasks in these states: -1 draft, 1 sending, 2 send complete, 4 send failed.
    """

    template_fields: Sequence[str] = (
        *BaseMailToSqlOperator.template_fields,
        "mail_name",
        "subject",
        "sender_mail",
        "type",
        "mail_status",
    )

    resource = "campaigns"

    def __init__(
        self,
        *,
        table: str = "mail_campaigns",
        mail_name: str | None = None,
        subject: str | None = None,
        sender_mail: str | None = None,
        type: str | None = None,
        all_team: bool = False,
        mail_status: Sequence[int] | None = None,
        # Each task comes with its whole content: pages of 1,000 could be 50 MB.
        page_size: int = 100,
        max_in_flight: int = 2,
        **kwargs: Any,
    ) -> None:
        super().__init__(table=table, page_size=page_size, max_in_flight=max_in_flight, **kwargs)
        check_flags(all_team=all_team)
        self.mail_name = mail_name
        self.subject = subject
        self.sender_mail = sender_mail
        self.type = type
        self.all_team = all_team
        self.mail_status = mail_status
        self._teams: set[str | None] = set()

    def declared_table(self) -> Table:
        """One row per connection and task."""
        from airflow_provider_mail.warehouse.tables.campaigns import CAMPAIGNS

        return CAMPAIGNS

    def request(self) -> PagedRequest[Any]:
        """The first page of the tasks."""
        from airflow_provider_mail.api.campaigns import GetCampaigns

        return GetCampaigns(page_size=self.page_size, all_team=self.all_team or None, **self._filters())

    def _filters(self) -> dict[str, Any]:
        return {
            "mail_name": self.mail_name or None,
            "subject": self.subject or None,
            "sender_mail": self.sender_mail or None,
            "type": self.type or None,
            "mail_status": list(self.mail_status) if self.mail_status else None,
        }

    def mark_gone(self, observed_at: datetime) -> MarkGone | None:
        """The tasks of all teams, or of those whose tasks came: an account's own team is known by nothing else."""
        self._teams.clear()
        if self.on_change == "accept" or any(self._filters().values()):
            return None
        from airflow_provider_mail.warehouse.coverage import MarkGone

        account = {"mail_conn_id": self.mail_conn_id}

        def windows() -> list[Mapping[str, Any]]:
            if self.all_team and self._teams:
                return [account]
            return [{**account, "team_name": team} for team in self._teams]

        return MarkGone(observed_at, windows)

    def rows(self, records: Sequence[Any], observed_at: datetime) -> list[tuple[Any, ...]]:
        """The rows of tasks."""
        from airflow_provider_mail.warehouse.tables.campaigns import campaign_row

        conn_id = self.mail_conn_id
        self._teams.update(campaign.team_name for campaign in records)
        return [campaign_row(campaign, mail_conn_id=conn_id, observed_at=observed_at) for campaign in records]
