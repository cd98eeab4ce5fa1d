"""The statistics tables: one row per campaign, one row per day of transactional mail (document, "Resources").

Rates are the document's derived metrics in percent; where nothing was sent they are 0.0.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.warehouse.table import BIGINT, DATE, DOUBLE, TEXT, TIMESTAMP, Column, Table, text

if TYPE_CHECKING:
    from airflow_provider_mail.api.campaigns import CampaignStats
    from airflow_provider_mail.api.transactional import TransactionalStats

_CONNECTION = Column("mail_conn_id", text(250), "Airflow connection of the account that the row came from")
_TEAM = Column("team", TEXT, "Team name as set on that connection", nullable=True)
_OBSERVED = Column("observed_at", TIMESTAMP, "When the service last said so", observed=True)

CAMPAIGN_STATS = Table(
    comment="Latest statistics of each campaign, as the mail service counts them",
    key=("mail_conn_id", "mail_name"),
    columns=(
        _CONNECTION,
        _TEAM,
        # The document's limit is 200 bytes; characters are never more.
        Column("mail_name", text(200), "Name of the campaign, unique within its team"),
        Column("mail_send_date", TIMESTAMP, "When the campaign was sent", nullable=True),
        Column("sent_count", BIGINT, "Mails sent"),
        Column("open_count", BIGINT, "Unique opens"),
        Column("click_count", BIGINT, "Unique clicks"),
        Column("hard_bounce", BIGINT, "Permanent failures"),
        Column("soft_bounce", BIGINT, "Temporary failures"),
        Column("unsent_count", BIGINT, "Contacts filtered out: duplicates, suppressed, excluded"),
        Column("unsubscribe_count", BIGINT, "Unsubscribes"),
        Column("open_rate", DOUBLE, "open_count / sent_count in percent; 0 when nothing was sent"),
        Column("click_rate", DOUBLE, "click_count / sent_count in percent; 0 when nothing was sent"),
        Column("bounce_rate", DOUBLE, "(hard_bounce + soft_bounce) / sent_count in percent; 0 when nothing was sent"),
        Column("unsubscribe_rate", DOUBLE, "unsubscribe_count / sent_count in percent; 0 when nothing was sent"),
        _OBSERVED,
    ),
)

# There is no bounce rate: the document's needs hard bounces, which these statistics do not tell.
TRANSACTIONAL_STATS = Table(
    comment="Daily statistics of transactional mail, as the mail service counts them",
    key=("mail_conn_id", "stats_date"),
    columns=(
        _CONNECTION,
        _TEAM,
        Column("stats_date", DATE, "Calendar day of the service"),
        Column("sent_count", BIGINT, "Mails sent"),
        Column("open_count", BIGINT, "Opens of mails sent with open tracking"),
        Column("click_count", BIGINT, "Clicks in mails sent with click tracking"),
        Column("bounce_count", BIGINT, "Soft bounces only; hard bounces are not reported"),
        Column("unsent_count", BIGINT, "Mails filtered or suppressed"),
        Column("unsubscribe_count", BIGINT, "Unsubscribes"),
        Column("open_rate", DOUBLE, "open_count / sent_count in percent; 0 when nothing was sent"),
        Column("click_rate", DOUBLE, "click_count / sent_count in percent; 0 when nothing was sent"),
        Column("unsubscribe_rate", DOUBLE, "unsubscribe_count / sent_count in percent; 0 when nothing was sent"),
        _OBSERVED,
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
    )


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
