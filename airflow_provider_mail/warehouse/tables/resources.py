"""The tables of campaigns, lists, templates and senders (specification, "Resources").

Campaigns are the send tasks, without their content.
"""

from __future__ import annotations

import datetime
from typing import Any

from airflow_provider_mail.api._core.fields import MAX_MAIL_NAME_BYTES
from airflow_provider_mail.api.campaigns import Campaign, MailStats
from airflow_provider_mail.api.senders import Sender
from airflow_provider_mail.warehouse.table import BIGINT, INTEGER, JSON, TEXT, TIMESTAMP, Column, Table, text
from airflow_provider_mail.warehouse.tables.columns import (
    CONNECTION,
    GONE,
    LAST_SEEN,
    OTHER_FIELDS,
    count_columns,
    other_fields,
    resource_row,
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
    fields = {name: getattr(campaign, name) for name in _TASK_FIELDS}
    for name in _LISTS:
        fields[name] = fields[name] or []
    # Only a campaign that was sent has counts.
    counts = [getattr(campaign.mail_stats, column.name, None) for column in _COUNTS]
    return (
        mail_conn_id,
        *fields.values(),
        *counts,
        _other_fields(campaign),
        observed_at,
        None,
    )


def _other_fields(campaign: Campaign) -> dict[str, Any] | None:
    fields = other_fields(campaign, _STORED)
    counts = campaign.mail_stats.other_fields if campaign.mail_stats else None
    return {**(fields or {}), "mailStats": counts} if counts else fields


LISTS = Table(
    comment="Contact lists, as the mail service has them",
    key=("mail_conn_id", "list_name"),
    columns=(
        CONNECTION,
        Column("list_name", text(250), "Name of the list"),
        Column("id", BIGINT, "Number of the list", nullable=True),
        Column("team_id", BIGINT, "Number of the owning team", nullable=True),
        Column("list_status", INTEGER, "As the service has it", nullable=True),
        Column("list_type", INTEGER, "0 dynamic, 1 static", nullable=True),
        Column("list_filters", TEXT, "Filters of a dynamic list", nullable=True),
        Column("create_user_id", BIGINT, "Id of the creating user", nullable=True),
        Column("create_date", TIMESTAMP, "When the list was created", nullable=True),
        Column("modify_date", TIMESTAMP, "When the list was last changed", nullable=True),
        OTHER_FIELDS,
        LAST_SEEN,
    ),
    load_columns=(),  # dlt has its own
)

TEMPLATES = Table(
    comment="Stored templates, as the mail service has them",
    key=("mail_conn_id", "template_name"),
    columns=(
        CONNECTION,
        Column("template_name", text(250), "Name of the template"),
        Column("template_subject", TEXT, "Default subject", nullable=True),
        Column("template_content", TEXT, "HTML, with {{tags}}", nullable=True),
        Column("create_date", TIMESTAMP, "When the template was created", nullable=True),
        OTHER_FIELDS,
        LAST_SEEN,
    ),
    load_columns=(),  # dlt has its own
)

UNKNOWN_TYPE = 0
"""Stored as `sender_type` where the service does not return one, since a column of the key cannot be null."""


def _check(name: str) -> Column:
    return Column(f"{name}_status", INTEGER, f"Result of the {name.upper()} check: 1 normal, 0 abnormal", nullable=True)


SENDERS = Table(
    comment="Senders with the results of their DNS checks, as the mail service has them",
    key=("mail_conn_id", "from_domain", "sender_type"),
    columns=(
        CONNECTION,
        Column("from_domain", text(250), "The registered address or domain"),
        Column("sender_type", INTEGER, "1 marketing, 2 transactional, 0 where the service does not return it"),
        _check("mx"),
        _check("spf"),
        _check("dkim"),
        _check("dmarc"),
        Column("is_validate", INTEGER, "As the service has it", nullable=True),
        Column("is_service_domain", INTEGER, "As the service has it", nullable=True),
        OTHER_FIELDS,
        LAST_SEEN,
    ),
    load_columns=(),  # dlt has its own
)


def sender_row(record: Sender, *, mail_conn_id: str, observed_at: datetime.datetime) -> tuple[Any, ...]:
    if record.sender_type is None:
        record = record.model_copy(update={"sender_type": UNKNOWN_TYPE})
    return resource_row(SENDERS, record, mail_conn_id=mail_conn_id, observed_at=observed_at)
