"""The table of campaigns: the send tasks (specification, "Campaign send task"), without their content."""

from __future__ import annotations

import datetime
from typing import Any

from airflow_provider_mail.api._core.fields import MAX_MAIL_NAME_BYTES
from airflow_provider_mail.api.campaigns import Campaign, MailStats
from airflow_provider_mail.warehouse.table import INTEGER, JSON, TEXT, TIMESTAMP, Column, Table, text
from airflow_provider_mail.warehouse.tables.columns import (
    CONNECTION,
    GONE,
    LAST_SEEN,
    OTHER_FIELDS,
    count_columns,
    other_fields,
)

_COUNTS = count_columns(MailStats, suffix="; only when mail_status is 2")

CAMPAIGNS = Table(
    comment="Campaign send tasks, as the mail service has them",
    key=("mail_conn_id", "guid"),
    by_day="send_by_date_time",
    columns=(
        CONNECTION,
        Column("guid", text(250), "Task unique identifier"),
        Column("team_name", TEXT, "Owning team", nullable=True),
        Column("mail_name", text(MAX_MAIL_NAME_BYTES), "Task name, unique within the team"),
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
        *_COUNTS,
        OTHER_FIELDS,
        LAST_SEEN,
        GONE,
    ),
)

_TASK_FIELDS = CAMPAIGNS.names[1 : CAMPAIGNS.names.index(_COUNTS[0].name)]
_LEFT_OUT = (
    "mail_content",  # a whole page of HTML
    "rcpt_emails",  # addresses are personal data
    "repel_emails",
    "mail_stats",  # its counts have columns
)
_STORED = frozenset((*CAMPAIGNS.names, *_LEFT_OUT))
_LISTS = ("rcpt_list_names", "repel_list_names")  # empty if the service has none


def campaign_row(campaign: Campaign, *, mail_conn_id: str, observed_at: datetime.datetime) -> tuple[Any, ...]:
    """Build a row of `CAMPAIGNS`.

    :param observed_at: the time at which reading began, with a zone.
    """
    return (
        mail_conn_id,
        *(getattr(campaign, name) or [] if name in _LISTS else getattr(campaign, name) for name in _TASK_FIELDS),
        *(getattr(campaign.mail_stats, column.name, None) for column in _COUNTS),
        _other_fields(campaign),
        observed_at,
        None,
    )


def _other_fields(campaign: Campaign) -> dict[str, Any] | None:
    fields = other_fields(campaign, _STORED)
    counts = campaign.mail_stats.other_fields if campaign.mail_stats else None
    return {**(fields or {}), "mailStats": counts} if counts else fields
