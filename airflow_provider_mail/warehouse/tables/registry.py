"""All tables that tasks write."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_mail.warehouse.request import LOADS
from airflow_provider_mail.warehouse.table import Table
from airflow_provider_mail.warehouse.tables import events, imports, resources, stats

TABLES: Mapping[str, Table] = {
    "mail_campaign_stats": stats.CAMPAIGN_STATS,
    "mail_campaign_stats_snapshots": stats.CAMPAIGN_SNAPSHOTS,
    "mail_transactional_stats": stats.TRANSACTIONAL_STATS,
    "mail_contacts": resources.CONTACTS,
    "mail_contacts_history": resources.CONTACTS_HISTORY,
    "mail_contacts_history_readings": resources.LIST_READINGS,
    "mail_campaigns": resources.CAMPAIGNS,
    "mail_events": events.EVENTS,
    "mail_dead_letters": events.DEAD_LETTERS,
    "mail_event_differences": events.EVENT_DIFFERENCES,
    "mail_imports": imports.IMPORTS,
    "mail_audiences": imports.AUDIENCES,
    "mail_audiences_members": imports.MEMBERS,
    "mail_audience_runs": imports.AUDIENCE_RUNS,
    "mail_audience_runs_changes": imports.AUDIENCE_CHANGES,
    "mail_memory": imports.MEMORY,
    "mail_memory_requests": imports.MEMORY_REQUESTS,
    "mail_memory_alerts": imports.ALERTS,
    "mail_loads": LOADS,
}
"""The tables that tasks write, by their default names."""
