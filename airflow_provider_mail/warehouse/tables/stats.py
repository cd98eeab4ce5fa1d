"""The statistics tables: campaigns, their history, and days of transactional mail (document, "Resources").

Rates are the document's derived metrics in percent; where nothing was sent they are 0.0.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.table import BIGINT, DATE, DOUBLE, TIMESTAMP, Column, Table, TableName, text
from airflow_provider_mail.warehouse.tables.columns import CONNECTION, GONE, LAST_SEEN, OBSERVED, TEAM

if TYPE_CHECKING:
    from airflow_provider_mail.api.campaigns import CampaignStats
    from airflow_provider_mail.api.transactional import TransactionalStats

CAMPAIGN_STATS = Table(
    comment="Latest statistics of each campaign, as the mail service counts them",
    key=("mail_conn_id", "mail_name"),
    columns=(
        CONNECTION,
        TEAM,
        # The document's limit is 200 bytes; characters are never more.
        Column("mail_name", text(200), "Name of the campaign, unique within its team"),
        Column("mail_send_date", TIMESTAMP, "When the campaign was sent", nullable=True),
        Column("sent_count", BIGINT, "Mails sent", least=0),
        Column("open_count", BIGINT, "Unique opens", least=0),
        Column("click_count", BIGINT, "Unique clicks", least=0),
        Column("hard_bounce", BIGINT, "Permanent failures", least=0),
        Column("soft_bounce", BIGINT, "Temporary failures", least=0),
        Column("unsent_count", BIGINT, "Contacts filtered out: duplicates, suppressed, excluded", least=0),
        Column("unsubscribe_count", BIGINT, "Unsubscribes", least=0),
        Column("open_rate", DOUBLE, "open_count / sent_count in percent; 0 when nothing was sent"),
        Column("click_rate", DOUBLE, "click_count / sent_count in percent; 0 when nothing was sent"),
        Column("bounce_rate", DOUBLE, "(hard_bounce + soft_bounce) / sent_count in percent; 0 when nothing was sent"),
        Column("unsubscribe_rate", DOUBLE, "unsubscribe_count / sent_count in percent; 0 when nothing was sent"),
        OBSERVED,
        GONE,
    ),
)

CAMPAIGN_SNAPSHOTS = Table(
    comment="What the mail service said of each campaign, day after day: how its counts grew",
    key=(*CAMPAIGN_STATS.key, "observed_day"),
    columns=(
        *CAMPAIGN_STATS.columns[:-2],
        Column("observed_day", DATE, "Day in UTC on which the service said so; the last word of each day is kept"),
        LAST_SEEN,
    ),
)

# There is no bounce rate: the document's needs hard bounces, which these statistics do not tell.
TRANSACTIONAL_STATS = Table(
    comment="Daily statistics of transactional mail, as the mail service counts them",
    key=("mail_conn_id", "stats_date"),
    columns=(
        CONNECTION,
        TEAM,
        Column("stats_date", DATE, "Calendar day of the service"),
        Column("sent_count", BIGINT, "Mails sent", least=0),
        Column("open_count", BIGINT, "Opens of mails sent with open tracking", least=0),
        Column("click_count", BIGINT, "Clicks in mails sent with click tracking", least=0),
        Column("bounce_count", BIGINT, "Soft bounces only; hard bounces are not reported", least=0),
        Column("unsent_count", BIGINT, "Mails filtered or suppressed", least=0),
        Column("unsubscribe_count", BIGINT, "Unsubscribes", least=0),
        Column("open_rate", DOUBLE, "open_count / sent_count in percent; 0 when nothing was sent"),
        Column("click_rate", DOUBLE, "click_count / sent_count in percent; 0 when nothing was sent"),
        Column("unsubscribe_rate", DOUBLE, "unsubscribe_count / sent_count in percent; 0 when nothing was sent"),
        OBSERVED,
    ),
)


def percent(count: int, sent: int) -> float:
    """``count / sent x 100`` (document, "Campaign statistics record"); 0.0 when nothing was sent."""
    return count / sent * 100 if sent else 0.0


def campaign_stats_row(
    stats: CampaignStats, *, mail_conn_id: str, team: str | None, observed_at: datetime.datetime
) -> tuple[Any, ...]:
    """A row of `CAMPAIGN_STATS`; `observed_at` is when the service was asked, with a zone."""
    sent = stats.sent_count
    return (
        mail_conn_id,
        team,
        stats.mail_name,
        stats.mail_send_date,
        sent,
        stats.open_count,
        stats.click_count,
        stats.hard_bounce,
        stats.soft_bounce,
        stats.unsent_count,
        stats.unsubscribe_count,
        percent(stats.open_count, sent),
        percent(stats.click_count, sent),
        percent(stats.hard_bounce + stats.soft_bounce, sent),
        percent(stats.unsubscribe_count, sent),
        observed_at,
        None,
    )


def snapshot_rows(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Rows of `CAMPAIGN_SNAPSHOTS`, from rows of `CAMPAIGN_STATS`."""
    for *values, observed_at, _ in rows:
        yield *values, observed_at.astimezone(datetime.UTC).date(), observed_at


def snapshots_name(table: str, chosen: str | None = None) -> str:
    """The name of the table of snapshots beside `table`: the chosen one, or that of `table` with ``_snapshots``.

    :raises WarehouseError: when it cannot be a name, or is that of `table`.
    """
    name = TableName.parse(table)
    last = replace(name.parts[-1], text=f"{name.parts[-1].text}_snapshots")
    snapshots = chosen or str(TableName((*name.parts[:-1], last)))
    try:
        if TableName.parse(snapshots) == name:
            raise WarehouseError("it is that of `table`")
    except WarehouseError as error:
        raise WarehouseError(f"snapshots_table: {snapshots!r} cannot be its name: {error}") from None
    return snapshots


def transactional_stats_row(
    stats: TransactionalStats, *, mail_conn_id: str, team: str | None, observed_at: datetime.datetime
) -> tuple[Any, ...]:
    """A row of `TRANSACTIONAL_STATS`; `observed_at` is when the service was asked, with a zone."""
    sent = stats.sent_count
    return (
        mail_conn_id,
        team,
        stats.stats_date,
        sent,
        stats.open_count,
        stats.click_count,
        stats.bounce_count,
        stats.unsent_count,
        stats.unsubscribe_count,
        percent(stats.open_count, sent),
        percent(stats.click_count, sent),
        percent(stats.unsubscribe_count, sent),
        observed_at,
    )
