"""Transfers from the service to a database."""

from airflow_provider_mail.transfers._lists_to_sql import MailCampaignsToSqlOperator, MailContactsToSqlOperator
from airflow_provider_mail.transfers._stats_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)

__all__ = [
    "MailCampaignStatsToSqlOperator",
    "MailCampaignsToSqlOperator",
    "MailContactsToSqlOperator",
    "MailTransactionalStatsToSqlOperator",
]
