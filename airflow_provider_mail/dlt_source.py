"""A `dlt <https://dlthub.com/docs>`_ source: everything that the service returns, for the destinations of dlt.

Needs the extra ``dlt``, and no Airflow. The tables have the names, columns and keys of the tables that the package's
own transfers load, and each row is built by the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal

import dlt
from dlt.common.configuration.specs import BaseConfiguration
from dlt.extract import DltResource

from airflow_provider_mail._dlt_resources import (
    DAY,
    DaysToRead,
    Form,
    OnTotal,
    Pages,
    Part,
    Parts,
    Row,
    Stored,
    days_to_read,
    declared,
    distinct,
    in_batches,
    merged,
    now,
    objects,
    replaced,
    span,
)
from airflow_provider_mail.api._core.pagination import SAMPLE, Changes, Pager, concurrent_pages
from airflow_provider_mail.api._core.requests import DateWindow, PagedRequest
from airflow_provider_mail.api._core.responses import compact_records
from airflow_provider_mail.api.campaigns import GetCampaigns, GetCampaignStats
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.contacts import GetListContacts
from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.api.flows.second_source import check_campaigns, check_contacts, existing_of
from airflow_provider_mail.api.flows.statistics import campaign_stats, transactional_stats
from airflow_provider_mail.api.lists import GetLists, find_list
from airflow_provider_mail.api.senders import GetSenders
from airflow_provider_mail.api.templates import GetTemplates
from airflow_provider_mail.api.transactional import GetTransactionalStats
from airflow_provider_mail.warehouse.files import arrow_table
from airflow_provider_mail.warehouse.request import MAX_REMOVED_FRACTION, RemovalRule
from airflow_provider_mail.warehouse.table import Table
from airflow_provider_mail.warehouse.tables.resources import (
    CAMPAIGNS,
    CONTACTS,
    LISTS,
    SENDERS,
    TEMPLATES,
    campaign_row,
    contact_row,
    resource_row,
    sender_row,
)
from airflow_provider_mail.warehouse.tables.stats import (
    CAMPAIGN_SNAPSHOTS,
    CAMPAIGN_STATS,
    TRANSACTIONAL_STATS,
    campaign_stats_row,
    snapshot_rows,
    transactional_stats_row,
)

__all__ = ["mail_source"]


# Without a configuration of its own: dlt fills in no argument.
@dlt.source(name="mail", max_table_nesting=0, spec=BaseConfiguration)
def mail_source(
    client: Any,
    *,
    start_day: date,
    end_day: date | None = None,
    lookback_days: int = 7,
    contact_lists: Sequence[str] | Literal["all"] = (),
    snapshots: bool = False,
    keep_gone: bool = False,
    allow_empty: bool = False,
    max_removed_fraction: float | None = None,
    arrow: bool = False,
    mail_conn_id: str = "mail_default",
    team_name: str | None = None,
    max_in_flight: int = 8,
) -> list[DltResource]:
    """Read campaigns, statistics, lists, contacts, templates and senders of an account.

    Resources are named like the tables: ``mail_campaigns``, ``mail_campaign_stats``, ``mail_transactional_stats``,
    ``mail_lists``, ``mail_contacts``, ``mail_templates``, ``mail_senders``; with ``snapshots`` also
    ``mail_campaign_stats_snapshots``. Select some with ``mail_source(...).with_resources("mail_campaigns")``.

    A list of the service is read completely, or the run fails before anything is loaded. A table of lists, contacts,
    templates or senders then holds what the service has, per account, and for contacts per list; rows of campaigns and
    statistics are merged by their keys. Several accounts can share a pipeline if each has its own ``mail_conn_id``. A
    list that has become shorter, or that is gone, is read twice.

    :param client: a :class:`~airflow_provider_mail.api.client.MailClient`: in Airflow ``MailHook(...).get_conn()``,
        elsewhere ``MailClient(ClientConfig(...))``.
    :param start_day: the first day of the first run's statistics, in UTC. Later runs begin ``lookback_days`` before the
        last day that was loaded into the table from this account, which dlt stores with the pipeline's state, and also
        read days for which the service has returned nothing, until a run at least ``lookback_days`` later confirms it.
    :param end_day: the last day of the statistics, included; the window is then exactly ``start_day`` to ``end_day``,
        and the state is neither used nor changed: for backfills. Default: today.
    :param lookback_days: days that are read again, since opens and clicks arrive late. Default: 7.
    :param contact_lists: the lists whose contacts are read (personal data), or ``"all"``, which also deletes the
        contacts of lists that this pipeline has loaded and the service does not have any more. Default: none.
    :param snapshots: also keep one row per campaign and day of observation. Default: false.
    :param keep_gone: keep rows of contacts, lists, templates and senders that the service does not have any more.
        Required where dlt deletes no rows: Iceberg tables, and files that are neither Iceberg nor Delta tables.
        Default: false.
    :param allow_empty: let a list that is empty in two readings delete or mark all its rows. If false, the run fails
        and the rows stay. Default: false.
    :param max_removed_fraction: the largest share of a list's rows, from 0 to 1, that one run may delete or mark; not
        applied below ten rows. Default: 0.1; and unless a list is dynamic, the run fails if the service still has one
        of up to twenty of the contacts that it would delete.
    :param arrow: give dlt Arrow tables instead of one object per row, which takes about a third of the time. Needs the
        extra ``parquet``; not for BigQuery. dlt adds no columns to these tables by itself. Default: false.
    :param mail_conn_id: the value of the column ``mail_conn_id``: what tells accounts apart in one table. Default:
        ``mail_default``.
    :param team_name: the value of the column ``team_name``, in Airflow ``MailHook(...).team_name``. Default: none.
    :param max_in_flight: pages requested at once, at most the client's own limit. Default: 8.
    :raises MailValidationError: an argument is invalid.
    :raises MailError: while the pipeline runs: a response is incomplete or an error, the destination deletes no rows
        and ``keep_gone`` is not set, or a table or column that was loaded is gone from a
        database.
    """
    if not isinstance(client, MailClient):
        raise MailValidationError(f"client: expected a MailClient, not {type(client).__name__}")
    if end_day is not None and end_day < start_day:
        raise MailValidationError(f"end_day: {end_day} is before start_day {start_day}")
    if lookback_days < 0:
        raise MailValidationError(f"lookback_days: {lookback_days} is negative")
    if isinstance(contact_lists, str) and contact_lists != "all":
        raise MailValidationError('contact_lists: expected names of lists, or "all"')
    if arrow and find_spec("pyarrow") is None:
        raise MailValidationError("arrow: needs pyarrow: pip install 'airflow-provider-mail[parquet]'")
    form: Form = arrow_table if arrow else objects
    fraction = MAX_REMOVED_FRACTION if max_removed_fraction is None else max_removed_fraction
    rule = RemovalRule(allow_empty=allow_empty, max_fraction=fraction)
    source = _Source(client, mail_conn_id, team_name or "", max_in_flight, rule)

    def days(day: str, stored: Stored, *tables: str) -> DaysToRead:
        if end_day is not None:
            return DaysToRead((), start_day, end_day, 0)
        rows = stored.rows([day])
        loaded = None if rows is None else [_day(value) for (value,) in rows if value is not None]
        return days_to_read(mail_conn_id, tables, start_day, now().date(), lookback_days, loaded)

    account = {"mail_conn_id": mail_conn_id}
    own_team = {**account, "team_name": team_name or ""}
    stored_stats = Stored("mail_campaign_stats", CAMPAIGN_STATS, own_team)
    stored_days = Stored("mail_transactional_stats", TRANSACTIONAL_STATS, own_team)

    def whole(name: str, table: Table, read: Callable[[OnTotal], Pages]) -> DltResource:
        parts = Parts(tuple(account), lambda: [account], lambda _, on_total: distinct(table, read(on_total)), rule)
        return replaced(name, table, form, parts, keep_gone=keep_gone)

    stats = merged(
        "mail_campaign_stats",
        CAMPAIGN_STATS,
        form,
        lambda: source.campaign_stats(
            days("mail_send_date", stored_stats, "mail_campaign_stats", "mail_campaign_stats_snapshots"), stored_stats
        ),
    )
    resources = [
        merged(
            "mail_campaigns",
            CAMPAIGNS,
            form,
            lambda: source.campaigns(Stored("mail_campaigns", CAMPAIGNS, account)),
        ),
        stats,
        merged(
            "mail_transactional_stats",
            TRANSACTIONAL_STATS,
            form,
            lambda: source.transactional_stats(
                days("stats_date", stored_days, "mail_transactional_stats"), stored_days
            ),
        ),
        whole("mail_lists", LISTS, source.lists),
        whole("mail_templates", TEMPLATES, source.templates),
        whole("mail_senders", SENDERS, source.senders),
    ]
    if contact_lists:
        parts = Parts(
            (*own_team, "list_name"),
            lambda: [{**own_team, "list_name": name} for name in source.names(contact_lists)],
            source.contacts,
            rule,
            look_up=source.check_contacts if max_removed_fraction is None else None,
            whole=own_team if contact_lists == "all" else None,
        )
        resources.append(replaced("mail_contacts", CONTACTS, form, parts, keep_gone=keep_gone))
    if snapshots:
        resources.append(
            dlt.transformer(
                _snapshots,
                data_from=stats,
                name="mail_campaign_stats_snapshots",
                write_disposition="merge",
                columns=declared(CAMPAIGN_SNAPSHOTS.columns, CAMPAIGN_SNAPSHOTS.key),
            )
        )
    return resources


class _Source:
    """Reads one account, and makes rows of what it returns."""

    def __init__(
        self, client: MailClient, mail_conn_id: str, team_name: str, max_in_flight: int, rule: RemovalRule
    ) -> None:
        self._rule = rule
        self._client = client
        self._mail_conn_id = mail_conn_id
        self._team_name = team_name
        self._max_in_flight = max_in_flight

    def campaigns(self, stored: Stored) -> Pages:
        """Yield all campaigns, and mark those that two readings lack: of the teams whose campaigns are returned."""
        at, team = CAMPAIGNS.names.index("guid"), CAMPAIGNS.names.index("team_name")
        known = stored.rows(["guid", "mail_name", "team_name"], {"gone_at": None}) or []
        guids: set[str] = set()
        teams: set[str] = set()
        observed_at, lacking = now(), known
        for reading in (1, 2):
            # Each campaign is returned with its whole content.
            for page in self._pages(GetCampaigns(page_size=100), campaign_row) if lacking or reading == 1 else ():
                yield [row for row in page if row[at] not in guids]
                guids.update(row[at] for row in page)
                teams.update(row[team] for row in page)
            known = [row for row in known if not teams or row[2] in teams]
            lacking = [row for row in known if row[0] not in guids]
        if lacking:
            check_campaigns(self._client, [row[:2] for row in lacking[:SAMPLE]])
            self._rule.check(len(known), len(known) - len(lacking), "mail_campaigns: ", is_looked_up=True)
            yield stored.gone((guid for guid, *_ in lacking), observed_at)

    def lists(self, on_total: OnTotal) -> Pages:
        return self._pages(GetLists(page_size=100), partial(resource_row, LISTS), on_total)

    def templates(self, on_total: OnTotal) -> Pages:
        return self._pages(GetTemplates(page_size=100), partial(resource_row, TEMPLATES), on_total)

    def senders(self, on_total: OnTotal) -> Pages:
        values: Part = {"mail_conn_id": self._mail_conn_id, "observed_at": now()}
        records = self._client.send(GetSenders()).mail_from_domains or []
        on_total(len(records))
        if records:
            yield [sender_row(record, **values) for record in records]

    def contacts(self, part: Part, on_total: OnTotal) -> Pages:
        # The pager has proved that no contact is repeated.
        place = {name: part[name] for name in ("team_name", "list_name")}
        request = compact_records(GetListContacts(list_name=part["list_name"], page_size=1000))
        return in_batches(self._pages(request, partial(contact_row, **place), on_total))

    def names(self, lists: Sequence[str]) -> list[str]:
        if lists == "all":
            pager = Pager(GetLists(page_size=100), Changes.ALLOW_GROWTH)
            pages = concurrent_pages(self._client, pager, self._max_in_flight)
            return list(dict.fromkeys(record.list_name for page in pages for record in page))
        for name in lists:
            # The service may return no contacts for a wrong name.
            if find_list(self._client, name) is None:
                raise MailValidationError(
                    f"contact_lists: there is no list {name!r}. If it was deleted, remove the name and its rows, or "
                    'use "all", which deletes them'
                )
        return list(dict.fromkeys(lists))

    def check_contacts(self, part: Part, found: set[Any]) -> None:
        """Ask the service for contacts of a list that were loaded, and that two readings lack."""
        stored = Stored("mail_contacts", CONTACTS, part).rows(["id", "email"]) or []
        lacking = [row for row in stored if row[0] not in found]
        check_contacts(self._client, part["list_name"], lacking[:SAMPLE])

    def campaign_stats(self, days: DaysToRead, stored: Stored) -> Pages:
        name, day = (CAMPAIGN_STATS.names.index(column) for column in ("mail_name", "mail_send_date"))
        known = stored.rows(["mail_name", "mail_send_date", "sent_count"], {"gone_at": None}) or []
        sent = {row[:2] for row in known if row[2]}
        for first, last in days.windows():
            request = GetCampaignStats(start_date=first, end_date=last)
            read = partial(self._window, partial(campaign_stats, compact=True), request, campaign_stats_row)
            rows = read()
            # The service's first and last day may not be whole days in UTC.
            inside = {row[0] for row in known if row[1] is not None and first < _day(row[1]) < last}
            if lacking := inside - {row[name] for row in rows}:
                rows += [row for row in read() if row[name] in lacking]
                lacking -= {row[name] for row in rows}
            if lacking:
                gone = lacking - {*existing_of(self._client, request, len(rows), lacking, first + DAY, last - DAY)}
                self._rule.check(
                    len(inside), len(inside) - len(gone), f"mail_campaign_stats {first} to {last}: ", is_looked_up=True
                )
                rows += stored.gone(gone, now())
            self._check_zeros(CAMPAIGN_STATS, rows, ("mail_name", "mail_send_date"), sent)
            days.answered(span(first, last) if rows else ())
            days.loaded(row[day].date() for row in rows if row[day] is not None)
            yield rows
        days.save()

    def transactional_stats(self, days: DaysToRead, stored: Stored) -> Pages:
        at = TRANSACTIONAL_STATS.names.index("stats_date")
        sent = {(_day(day),) for day, count in stored.rows(["stats_date", "sent_count"]) or [] if count}
        for first, last in days.windows():
            request = GetTransactionalStats(start_date=first, end_date=last)
            rows = self._window(transactional_stats, request, transactional_stats_row)
            self._check_zeros(TRANSACTIONAL_STATS, rows, ("stats_date",), sent)
            days.answered(row[at] for row in rows)
            days.loaded(row[at] for row in rows)
            yield rows
        days.save()

    def _window(self, flow: Callable[..., list[Any]], request: DateWindow, row: Callable[..., Row]) -> list[Row]:
        values = {"mail_conn_id": self._mail_conn_id, "team_name": self._team_name, "observed_at": now()}
        return [row(record, **values) for record in flow(self._client, request)]

    def _check_zeros(self, table: Table, rows: list[Row], identity: tuple[str, ...], sent: set[Row]) -> None:
        """Check that no number of sent mails falls to zero: sent mails remain sent.

        :param sent: the identities of the rows that the destination has with sent mails.
        """
        places, count = [table.names.index(name) for name in identity], table.names.index("sent_count")
        fallen = sum(not row[count] and tuple(row[place] for place in places) in sent for row in rows)
        self._rule.check_sent(fallen, "")

    def _pages(
        self, request: PagedRequest[Any], row: Callable[..., Row], on_total: OnTotal = lambda total: None
    ) -> Pages:
        # One time for all rows: it tells which of them are of the same reading.
        values: Part = {"mail_conn_id": self._mail_conn_id, "observed_at": now()}
        # A list that grew in the meantime is read again; its records are yielded once.
        pager = Pager(request, Changes.ALLOW_GROWTH)
        pages = concurrent_pages(self._client, pager, self._max_in_flight, on_total=on_total)
        for records in pages:
            yield [row(record, **values) for record in records]


def _day(value: Any) -> date:
    """Return the day of a value of a table; some databases have days as text or times."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return value.date() if isinstance(value, datetime) else value


def _snapshots(page: Any) -> Any:
    """Turn a page of `CAMPAIGN_STATS`, as dlt has it, into one of `CAMPAIGN_SNAPSHOTS`."""
    if isinstance(page, list):
        return objects(CAMPAIGN_SNAPSHOTS, snapshot_rows(tuple(row.values()) for row in page if not row["gone_at"]))
    page = page.filter(page["gone_at"].is_null())
    days = page["observed_at"].cast("date32")
    return page.append_column("observed_day", days).select(CAMPAIGN_SNAPSHOTS.names)
