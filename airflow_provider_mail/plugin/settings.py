"""The settings of the page."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from airflow_provider_mail._config import OPTIONS, setting

PAGE_PREFIX = "/mail"
"""Where the API server mounts the page, below its base path."""


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

        values = {name: setting(name) for name in OPTIONS if name.startswith("page_")}
        tables = {
            name.removeprefix("page_").removesuffix("_table"): value
            for name, value in values.items()
            if name.endswith("_table")
        }
        tables["imports"] = setting("imports_table")
        tables["snapshots"] = snapshots_name(tables["campaign_stats"], tables["snapshots"])
        conn_id = values["page_conn_id"]
        return cls(conn_id, values["page_rejects_conn_id"] or conn_id, tables)


def has_page() -> bool:
    """Return whether there is a page; cheap, since every part of Airflow may ask."""
    return bool(setting("page_conn_id"))


def base_path() -> str:
    from airflow_provider_mail.version_compat import conf

    return urlsplit(str(conf.get("api", "base_url", fallback=""))).path.rstrip("/")
