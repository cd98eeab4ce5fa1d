"""Read the statistics of a window, for the transfers to tables and to files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._task.date_window import today
from airflow_provider_mail.api.campaigns import GetCampaignStats, existing_campaigns
from airflow_provider_mail.api.flows.statistics import campaign_stats, missing_days, transactional_stats
from airflow_provider_mail.api.transactional import GetTransactionalStats
from airflow_provider_mail.warehouse.coverage import Coverage, MarkGone
from airflow_provider_mail.warehouse.table import Table
from airflow_provider_mail.warehouse.tables.stats import (
    CAMPAIGN_STATS,
    TRANSACTIONAL_STATS,
    campaign_stats_row,
    transactional_stats_row,
)

if TYPE_CHECKING:
    from airflow_provider_mail._task.observation import Observation
    from airflow_provider_mail.hooks.mail import MailHook


@dataclass(frozen=True)
class Statistics:
    """The statistics of a window.

    :param rows: returns the rows; may be called repeatedly.
    :param covers: the parts of the table for which the rows are complete.
    :param mark_gone: the windows whose other rows are gone.
    :param missing_days: days that are missing in the response.
    :param read_again: reads a second time, and yields the rows that the first reading lacks; from then on, ``rows``
        has them, too.
    """

    table: Table
    rows: Callable[[], Iterator[tuple[Any, ...]]]
    covers: Coverage | None = None
    mark_gone: MarkGone | None = None
    missing_days: tuple[date, ...] = ()
    read_again: Callable[[], Iterator[tuple[Any, ...]]] | None = None


def read_campaign_stats(
    hook: MailHook,
    observation: Observation,
    start_day: date,
    end_day: date,
    mail_name: str | None = None,
    type: str | None = None,
) -> Statistics:
    """Read the statistics of the campaigns sent in a window.

    :param end_day: its last day, included.
    :param mail_name: only campaigns that the service finds by this name. Default: all.
    :param type: only campaigns of this type. Default: all.
    """
    fields: dict[str, Any] = {"mail_name": mail_name or None, "type": type or None}
    request = GetCampaignStats(start_date=start_day, end_date=end_day, **fields)
    records = hook.run(campaign_stats(request, compact=True))
    origin: dict[str, Any] = {
        "mail_conn_id": hook.mail_conn_id,
        "team": hook.team_name,
        "observed_at": observation.at,
    }

    def rows(selected: Sequence[Any] = records) -> Iterator[tuple[Any, ...]]:
        for record in selected:
            yield campaign_stats_row(record, **origin)

    def read_again() -> Iterator[tuple[Any, ...]]:
        known = {record.mail_name for record in records}
        more = [record for record in hook.run(campaign_stats(request, compact=True)) if record.mail_name not in known]
        records.extend(more)
        yield from rows(more)

    def exists(names: Sequence[str]) -> Collection[str]:
        known = {record.mail_name for record in records}
        return hook.run(existing_campaigns([name for name in names if name not in known]))

    day = timedelta(days=1)
    if mail_name or type or end_day - start_day <= day:
        return Statistics(CAMPAIGN_STATS, rows, read_again=read_again)
    covers = Coverage.days(
        CAMPAIGN_STATS["mail_send_date"],
        start_day + day,
        end_day - day,
        mail_conn_id=hook.mail_conn_id,
        observed_at=observation.at,
    )
    mark_gone = MarkGone(observation.at, lambda: [covers.whole], exists)
    return Statistics(CAMPAIGN_STATS, rows, covers, mark_gone, read_again=read_again)


def read_transactional_stats(hook: MailHook, observation: Observation, start_day: date, end_day: date) -> Statistics:
    """Read the daily statistics of transactional mail.

    :param end_day: its last day, included.
    """
    request = GetTransactionalStats(start_date=start_day, end_date=end_day)
    records = hook.run(transactional_stats(request))
    origin: dict[str, Any] = {
        "mail_conn_id": hook.mail_conn_id,
        "team": hook.team_name,
        "observed_at": observation.at,
    }
    covers = Coverage.days(
        TRANSACTIONAL_STATS["stats_date"],
        start_day,
        end_day,
        mail_conn_id=hook.mail_conn_id,
        observed_at=observation.at,
        only={record.stats_date for record in records},
    )
    return Statistics(
        TRANSACTIONAL_STATS,
        lambda: (transactional_stats_row(record, **origin) for record in records),
        covers,
        missing_days=tuple(missing_days(request, records, today())),
    )
