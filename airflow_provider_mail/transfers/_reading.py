"""Read lists of the service completely, for the transfers to tables and to files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.mixin import MailTaskMixin
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.sdk import Context

    from airflow_provider_mail._task.statistics import Observation
    from airflow_provider_mail.api._core.interrupt import Interrupt
    from airflow_provider_mail.api._core.requests import PagedRequest
    from airflow_provider_mail.warehouse.request import Coverage, MarkGone
    from airflow_provider_mail.warehouse.table import Table

OnChange: TypeAlias = Literal["retry", "fail", "accept"]
"""What to do when a list changes while it is read."""

READINGS = 3
"""The maximum number of times that one try of a task reads a list that changes while it is read."""

T = TypeVar("T")
Rows: TypeAlias = Iterator[tuple[Any, ...]]


@dataclass(frozen=True)
class Reading:
    """A list that is read.

    :param observation: the time of the reading.
    :param rows: the rows; an empty list is read twice.
    :param again: reads the list a second time, unless it was already read twice; yields the rows that ``rows`` lacks.
    """

    observation: Observation
    rows: Rows
    again: Callable[[], Rows]


class BaseListReader(MailTaskMixin, BaseOperator):
    """Read a whole list, page by page in constant memory, completely even if the list changes meanwhile.

    A sign that the list changed while it was read (a different total, repeated records) is never ignored.
    """

    page_size: int
    max_in_flight: int
    on_change: OnChange

    readings = 0
    """The number of times that the list was read."""
    _interrupt: Interrupt | None = None
    _killed = False

    @abstractmethod
    def request(self) -> PagedRequest[Any]:
        """Build the request for the first page."""

    @abstractmethod
    def rows(self, records: Sequence[Any], observed_at: datetime) -> list[tuple[Any, ...]]:
        """Build the rows of a page.

        :param observed_at: the time of the reading.
        """

    def replace_where(self) -> Mapping[str, Any] | None:
        return None

    def covers(self, observed_at: datetime) -> Coverage | None:
        """Return the parts of the table for which the load is complete: their unchanged rows are not written again.

        :param observed_at: the time of the reading.
        """
        return None

    def mark_gone(self, observed_at: datetime) -> MarkGone | None:
        """Return the windows for which the load is complete, whose other rows are gone; called before each reading.

        :param observed_at: the time of the reading.
        """
        return None

    def check_empty(self) -> None:
        """Verify that a list that was empty in two readings exists."""

    def on_kill(self) -> None:
        """Stop reading: request no further page, and give running requests two seconds."""
        self._killed = True
        if self._interrupt is not None:
            self._interrupt.stop()

    @contextmanager
    def reading(self, context: Context, sql_hook: DbApiHook | None = None) -> Iterator[Reading]:
        """Begin to read the list.

        :param sql_hook: the hook of the database, whose clock is used if the service has none.
        """
        from airflow_provider_mail._task.progress import ProgressLog
        from airflow_provider_mail._task.statistics import Observation
        from airflow_provider_mail.api._core.interrupt import Interrupt
        from airflow_provider_mail.api._core.pagination import Changes, Pager
        from airflow_provider_mail.api.flows.concurrent_pages import concurrent_pages

        changes = {"retry": Changes.ALLOW_GROWTH, "fail": Changes.REFUSE, "accept": Changes.ACCEPT}[self.on_change]
        client = self.hook.get_conn()
        observation = Observation(client, sql_hook)
        progress = ProgressLog(self.log, context, "records")
        pager: Pager[Any] = Pager(self.request(), changes)

        def pages() -> Generator[list[Any], None, None]:
            self.readings += 1
            self._interrupt = interrupt = Interrupt()
            if self._killed:
                interrupt.stop()
            return concurrent_pages(client, pager, self.max_in_flight, interrupt, on_total=progress.expect)

        def again() -> Rows:
            if pager.reading == 1:
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
            if not count:
                for row in again():
                    count += 1
                    yield row
            if not count:
                self.check_empty()

        with closing(pages()) as pages_left, closing(progress):
            first_page = next(pages_left, None)
            yield Reading(observation, rows(), again)

    def read_completely(self, work: Callable[[], T]) -> T:
        """Run a function that reads the list; if the list changes meanwhile, run it again, up to three times in all."""
        from airflow_provider_mail.api.errors import MailIncompleteError

        self.readings = 0
        with self.mail_errors():
            for attempt in range(1, READINGS + 1):
                try:
                    return work()
                except MailIncompleteError as error:
                    if self.on_change == "fail" or attempt == READINGS:
                        error.add_note("Set on_change to decide how to handle a list that changes while it is read")
                        raise
                    self.log.warning("%s; reading the list again (%s of %s)", error, attempt + 1, READINGS)
        raise AssertionError("unreachable")


class BaseContactReader(BaseListReader):
    list_name: str
    team_name: str | None
    allow_empty: bool

    @property
    def resource(self) -> str:
        return f"lists/{self.list_name}"

    def declared_table(self) -> Table:
        from airflow_provider_mail.warehouse.tables.resources import CONTACTS

        return CONTACTS

    def request(self) -> PagedRequest[Any]:
        from airflow_provider_mail.api._core.compact import compact_records
        from airflow_provider_mail.api.contacts import GetListContacts

        team_name = self.team_name or None
        return compact_records(GetListContacts(list_name=self.list_name, page_size=self.page_size, team_name=team_name))

    @cached_property
    def list_key(self) -> dict[str, str]:
        """The values that all rows of this list share."""
        team = self.team_name or self.hook.team_name or ""
        return {"mail_conn_id": self.mail_conn_id, "team": team, "list_name": self.list_name}

    def rows(self, records: Sequence[Any], observed_at: datetime) -> list[tuple[Any, ...]]:
        from airflow_provider_mail.warehouse.tables.resources import contact_row

        return [contact_row(contact, **self.list_key, observed_at=observed_at) for contact in records]

    def covers(self, observed_at: datetime) -> Coverage | None:
        # The whole list, unless rows may remain that the load has not seen.
        if self.on_change == "accept":
            return None
        from airflow_provider_mail.warehouse.request import Coverage
        from airflow_provider_mail.warehouse.tables.resources import list_part

        part = list_part(self.list_key["team"], self.list_name)
        return Coverage.one(part, self.list_key, mail_conn_id=self.mail_conn_id, observed_at=observed_at)

    def check_empty(self) -> None:
        """Verify that the list exists: a service may return no contacts for a wrong name."""
        from airflow_provider_mail.api.lists import find_list

        if self.team_name:
            if not self.allow_empty:
                raise AirflowFailException(
                    f"list_name, team_name: list {self.list_name!r} of team {self.team_name!r} returned no contacts, "
                    "and lists of other teams cannot be looked up: check both names. If it is empty, allow_empty=True"
                )
        elif self.hook.run(find_list(self.list_name)) is None:
            raise AirflowFailException(f"list_name: there is no list {self.list_name!r}")


class BaseCampaignReader(BaseListReader):
    mail_name: str | None
    subject: str | None
    sender_mail: str | None
    type: str | None
    mail_status: Sequence[int] | None
    all_team: bool

    def set_arguments(self, **arguments: Any) -> None:
        super().set_arguments(**arguments)
        self._teams: set[str | None] = set()

    def declared_table(self) -> Table:
        from airflow_provider_mail.warehouse.tables.resources import CAMPAIGNS

        return CAMPAIGNS

    def request(self) -> PagedRequest[Any]:
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
        # The campaigns of all teams, or of the teams of the returned campaigns: only these show the account's own team.
        # If no campaign is returned, all campaigns of the account are gone, which needs `allow_empty`.
        self._teams.clear()
        if self.on_change == "accept" or any(self._filters().values()):
            return None
        from airflow_provider_mail.warehouse.request import MarkGone

        account = {"mail_conn_id": self.mail_conn_id}

        def windows() -> list[Mapping[str, Any]]:
            if self.all_team or not self._teams:
                return [account]
            return [{**account, "team_name": team} for team in self._teams]

        return MarkGone(observed_at, windows)

    def rows(self, records: Sequence[Any], observed_at: datetime) -> list[tuple[Any, ...]]:
        from airflow_provider_mail.warehouse.tables.resources import campaign_row

        conn_id = self.mail_conn_id
        self._teams.update(campaign.team_name for campaign in records)
        return [campaign_row(campaign, mail_conn_id=conn_id, observed_at=observed_at) for campaign in records]
