"""The options of the page in the section ``[mail]``. The provider information imports this module: keep it cheap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_mail._task.audience_key import AUDIENCE_OPTIONS
from airflow_provider_mail._task.import_record import IMPORT_OPTIONS
from airflow_provider_mail._task.name_prefix import NAME_OPTIONS
from airflow_provider_mail.webhook.settings import OPTIONS, SECTION, setting

PAGE_PREFIX = "/mail"
"""Where the API server mounts the page, below its base path."""


def _table(holds: str, default: str) -> dict[str, Any]:
    description = f"The table of {holds}, optionally with its schema."
    return {"description": description, "type": "string", "default": default, "example": None}


PAGE_OPTIONS: dict[str, dict[str, Any]] = {
    "page_conn_id": {
        "description": "The connection of the database whose tables the page shows. Empty: there is no page.",
        "type": "string",
        "default": "",
        "example": "warehouse",
    },
    "page_campaign_stats_table": _table("the statistics of campaigns", "mail_campaign_stats"),
    "page_snapshots_table": {
        **_table("their snapshots", ""),
        "description": "The table of their snapshots. Empty: the name of ``page_campaign_stats_table``, followed by "
        "``_snapshots``.",
    },
    "page_campaigns_table": _table("campaign send tasks", "mail_campaigns"),
    "page_contacts_table": _table("contacts", "mail_contacts"),
    "page_transactional_stats_table": _table("the daily statistics of transactional mail", "mail_transactional_stats"),
    "page_events_table": _table("events", "mail_events"),
    "page_dead_letters_table": _table("events that could not be read", "mail_dead_letters"),
    "page_event_differences_table": _table("differences between events and statistics", "mail_event_differences"),
    "page_rejects_table": {
        **_table("rows that imports rejected", ""),
        "description": "The table of rows that imports rejected: their ``rejects_table``. Empty: none is shown.",
        "example": "newsletter_rejects",
    },
    "page_rejects_conn_id": {
        "description": "The connection of the database with ``page_rejects_table``. Empty: ``page_conn_id``.",
        "type": "string",
        "default": "",
        "example": "crm",
    },
}


@dataclass(frozen=True)
class PageSettings:
    """Connections and tables of the page.

    :param conn_id: the connection of the database.
    :param rejects_conn_id: the connection of the database with the rejected rows.
    :param tables: the names of the tables, by what they hold; empty where there is none.
    """

    conn_id: str
    rejects_conn_id: str
    tables: dict[str, str]

    @classmethod
    def from_airflow(cls) -> PageSettings:
        """Read the section.

        :raises WarehouseError: the name of a table is not valid.
        """
        from airflow_provider_mail.warehouse.tables.stats import snapshots_name

        values = {name: setting(name, PAGE_OPTIONS) for name in PAGE_OPTIONS}
        tables = {
            name.removeprefix("page_").removesuffix("_table"): value
            for name, value in values.items()
            if name.endswith("_table")
        }
        tables["imports"] = setting("imports_table", IMPORT_OPTIONS)
        tables["snapshots"] = snapshots_name(tables["campaign_stats"], tables["snapshots"])
        conn_id = values["page_conn_id"]
        return cls(conn_id, values["page_rejects_conn_id"] or conn_id, tables)


def has_page() -> bool:
    """Return whether there is a page; cheap, since every part of Airflow may ask."""
    return bool(setting("page_conn_id", PAGE_OPTIONS))


def base_path() -> str:
    """Return the path of Airflow's base URL, without a slash at its end."""
    from airflow_provider_mail.version_compat import conf

    return urlsplit(str(conf.get("api", "base_url", fallback=""))).path.rstrip("/")


def config() -> dict[str, Any]:
    """Return the section for the provider information."""
    declared = {**NAME_OPTIONS, **AUDIENCE_OPTIONS, **OPTIONS, **IMPORT_OPTIONS, **PAGE_OPTIONS}
    options = {name: {"version_added": "0.1.0", **option} for name, option in declared.items()}
    description = "Default names, events that the email service pushes, the counts of imports, and Airflow's page."
    return {SECTION: {"description": description, "options": options}}
