"""The tables of statistics: campaigns, their history, and days of transactional mail (specification, "Resources").

The counts are the fields of the service's records. Rates are the specification's derived metrics in percent; without
sent mails they are 0.0.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

from airflow_provider_mail.api._core.fields import MAX_MAIL_NAME_BYTES
from airflow_provider_mail.api.campaigns import CampaignStats
from airflow_provider_mail.api.transactional import TransactionalStats
from airflow_provider_mail.warehouse.table import (
    CONNECTION,
    DATE,
    DOUBLE,
    GONE,
    LAST_SEEN,
    OBSERVED,
    OTHER_FIELDS,
    TEAM,
    TIMESTAMP,
    Column,
    Table,
    other_name,
    text,
)
from airflow_provider_mail.warehouse.tables.resources import count_columns


def _rate(name: str, counted: str) -> Column:
    return Column(name, DOUBLE, f"{counted} / sent_count in percent; 0 when nothing was sent")


_OPEN_RATE = _rate("open_rate", "open_count")
_CLICK_RATE = _rate("click_rate", "click_count")
_BOUNCE_RATE = _rate("bounce_rate", "(hard_bounce + soft_bounce)")
_UNSUBSCRIBE_RATE = _rate("unsubscribe_rate", "unsubscribe_count")

_CAMPAIGN_COUNTS = count_columns(CampaignStats, besides=("mail_name", "mail_send_date"))
_TRANSACTIONAL_COUNTS = count_columns(TransactionalStats, besides=("stats_date",))

CAMPAIGN_STATS = Table(
    comment="Latest statistics of each campaign, as the mail service counts them",
    key=("mail_conn_id", "team_name", "mail_name"),
    indexes=(("mail_conn_id", "team_name", "mail_send_date"), ("mail_send_date",)),
    columns=(
        CONNECTION,
        TEAM,
        # The limit in bytes is at most as many characters.
        Column("mail_name", text(MAX_MAIL_NAME_BYTES), "Name of the campaign, unique within its team"),
        Column("mail_send_date", TIMESTAMP, "When the campaign was sent", nullable=True),
        *_CAMPAIGN_COUNTS,
        _OPEN_RATE,
        _CLICK_RATE,
        _BOUNCE_RATE,
        _UNSUBSCRIBE_RATE,
        OTHER_FIELDS,
        OBSERVED,
        GONE,
    ),
)

CAMPAIGN_SNAPSHOTS = Table(
    comment="Statistics of each campaign by day: how its counts grew",
    key=(*CAMPAIGN_STATS.key, "observed_day"),
    columns=(
        *CAMPAIGN_STATS.columns[:-2],
        Column("observed_day", DATE, "Day of the observation in UTC; the last observation of each day is kept"),
        LAST_SEEN,
    ),
)

# Without a bounce rate: the specification's formula needs hard bounces, which these statistics do not have.
TRANSACTIONAL_STATS = Table(
    comment="Daily statistics of transactional mail, as the mail service counts them",
    key=("mail_conn_id", "team_name", "stats_date"),
    columns=(
        CONNECTION,
        TEAM,
        Column("stats_date", DATE, "Calendar day of the service"),
        *_TRANSACTIONAL_COUNTS,
        _OPEN_RATE,
        _CLICK_RATE,
        _UNSUBSCRIBE_RATE,
        OTHER_FIELDS,
        OBSERVED,
    ),
)

# One call each: rows are built by the hundred thousand.
_campaign_fields = attrgetter("mail_name", "mail_send_date", *(column.name for column in _CAMPAIGN_COUNTS))
_transactional_fields = attrgetter("stats_date", *(column.name for column in _TRANSACTIONAL_COUNTS))


def percent(count: int, sent: int) -> float:
    """Compute ``count / sent x 100`` (specification, "Campaign statistics record"); 0.0 when nothing was sent."""
    return count / sent * 100 if sent else 0.0


def campaign_stats_row(
    stats: CampaignStats, *, mail_conn_id: str, team_name: str, observed_at: datetime.datetime
) -> tuple[Any, ...]:
    sent = stats.sent_count
    return (
        mail_conn_id,
        team_name,
        *_campaign_fields(stats),
        percent(stats.open_count, sent),
        percent(stats.click_count, sent),
        percent(stats.hard_bounce + stats.soft_bounce, sent),
        percent(stats.unsubscribe_count, sent),
        stats.other_fields,
        observed_at,
        None,
    )


def transactional_stats_row(
    stats: TransactionalStats, *, mail_conn_id: str, team_name: str, observed_at: datetime.datetime
) -> tuple[Any, ...]:
    sent = stats.sent_count
    return (
        mail_conn_id,
        team_name,
        *_transactional_fields(stats),
        percent(stats.open_count, sent),
        percent(stats.click_count, sent),
        percent(stats.unsubscribe_count, sent),
        stats.other_fields,
        observed_at,
    )


def snapshot_rows(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    for *values, observed_at, _ in rows:
        yield *values, observed_at.astimezone(datetime.UTC).date(), observed_at


def snapshots_name(table: str, chosen: str | None = None) -> str:
    return other_name("snapshots_table", table, "_snapshots", chosen)
