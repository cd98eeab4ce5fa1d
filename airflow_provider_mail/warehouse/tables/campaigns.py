"""The table of campaigns: the tasks themselves (document, "Campaign send task"), without their content.

Individual addresses (``rcptEmails``, ``repelEmails``) are left out too: they are people's.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.warehouse.table import BIGINT, INTEGER, JSON, TEXT, TIMESTAMP, Column, Table, text
from airflow_provider_mail.warehouse.tables.columns import CONNECTION, GONE, LAST_SEEN

if TYPE_CHECKING:
    from airflow_provider_mail.api.campaigns import Campaign

_ONLY_COMPLETE = "only when mail_status is 2"

CAMPAIGNS = Table(
    comment="Campaign send tasks, as the mail service has them",
    key=("mail_conn_id", "guid"),
    columns=(
        CONNECTION,
        Column("guid", text(250), "Task unique identifier"),
        Column("team_name", TEXT, "Owning team", nullable=True),
        Column("mail_name", text(200), "Task name, unique within the team"),
        Column("subject", TEXT, "Subject", nullable=True),
        Column("sender_name", TEXT, "Sender display name", nullable=True),
        Column("sender_mail", TEXT, "Sender address", nullable=True),
        Column("reply_to", TEXT, "Reply-to address", nullable=True),
        Column("rcpt_list_names", JSON, "Target lists: an array of names"),
        Column("repel_list_names", JSON, "Exclusion lists: an array of names"),
        Column("send_by_date_time", TIMESTAMP, "Scheduled or actual send time", nullable=True),
        Column("task_type", TEXT, "MailList (ordinary) or ABTest", nullable=True),
        Column("mail_status", INTEGER, "-1 draft, 1 sending, 2 send complete, 4 send failed"),
        Column("language_code", TEXT, "As given at creation", nullable=True),
        Column("market_name", TEXT, "As given at creation", nullable=True),
        Column("subscript_name", TEXT, "As given at creation", nullable=True),
        Column("project_code", TEXT, "As given at creation", nullable=True),
        Column("reviewer_name", TEXT, "Reviewer who approved the task, if any", nullable=True),
        Column("sent_count", BIGINT, f"Mails sent; {_ONLY_COMPLETE}", nullable=True, least=0),
        Column("delivered_count", BIGINT, f"Mails delivered; {_ONLY_COMPLETE}", nullable=True, least=0),
        Column("open_count", BIGINT, f"Opens; {_ONLY_COMPLETE}", nullable=True, least=0),
        Column("click_count", BIGINT, f"Clicks; {_ONLY_COMPLETE}", nullable=True, least=0),
        Column("hard_bounce", BIGINT, f"Permanent failures; {_ONLY_COMPLETE}", nullable=True, least=0),
        Column("soft_bounce", BIGINT, f"Temporary failures; {_ONLY_COMPLETE}", nullable=True, least=0),
        Column("unsent_count", BIGINT, f"Contacts filtered out; {_ONLY_COMPLETE}", nullable=True, least=0),
        Column("unsubscribe_count", BIGINT, f"Unsubscribes; {_ONLY_COMPLETE}", nullable=True, least=0),
        LAST_SEEN,
        GONE,
    ),
)

_STATS = CAMPAIGNS.names[CAMPAIGNS.names.index("sent_count") : -2]


def campaign_row(campaign: Campaign, *, mail_conn_id: str, observed_at: datetime.datetime) -> tuple[Any, ...]:
    """A row of `CAMPAIGNS`; `observed_at` is when the reading began, with a zone."""
    return (
        mail_conn_id,
        campaign.guid,
        campaign.team_name,
        campaign.mail_name,
        campaign.subject,
        campaign.sender_name,
        campaign.sender_mail,
        campaign.reply_to,
        campaign.rcpt_list_names or [],
        campaign.repel_list_names or [],
        campaign.send_by_date_time,
        campaign.task_type,
        campaign.mail_status,
        campaign.language_code,
        campaign.market_name,
        campaign.subscript_name,
        campaign.project_code,
        campaign.reviewer_name,
        *(getattr(campaign.mail_stats, name, None) for name in _STATS),
        observed_at,
        None,
    )
