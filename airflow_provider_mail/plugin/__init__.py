"""What Airflow's API server mounts. Every part of Airflow imports this module: its imports must stay cheap."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_mail._config import setting

__all__ = ["MailPlugin"]

PAGE_PREFIX = "/mail"
"""Where the API server mounts the page, below its base path."""


def base_path() -> str:
    from airflow_provider_mail.version_compat import conf

    return urlsplit(str(conf.get("api", "base_url", fallback=""))).path.rstrip("/")


def has_page() -> bool:
    """Return whether there is a page; cheap, since every part of Airflow may ask."""
    return bool(setting("page_conn_id"))


class MailPlugin(AirflowPlugin):
    """Mounts the page of mail where ``[mail] page_conn_id`` is set."""

    name = "mail"

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]  # entry points are used as instances
        if not has_page():
            return []
        from airflow_provider_mail.plugin.app import app

        return [{"app": app, "url_prefix": PAGE_PREFIX, "name": "Mail"}]

    @property
    def external_views(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The entry of the page in the menu, from Airflow 3.1."""
        if not has_page():
            return []
        page = {"name": "Mail", "href": f"{base_path()}{PAGE_PREFIX}/", "url_route": "mail"}
        return [{**page, "destination": "nav", "category": "browse"}]
