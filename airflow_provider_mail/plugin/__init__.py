"""What Airflow's API server mounts. Every part of Airflow imports this module: its imports must stay cheap."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_mail._config import URL_PREFIX, receives_in_api_server, setting

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
    """Mounts the page of mail where ``[mail] page_conn_id`` is set, and the receiver where it is switched on."""

    name = "mail"

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]  # entry points are used as instances
        apps: list[dict[str, Any]] = []
        if receives_in_api_server():
            from airflow_provider_mail.webhook.app import app as receiver

            apps.append({"app": receiver, "url_prefix": URL_PREFIX, "name": "Events of the email service"})
        if has_page():
            from airflow_provider_mail.plugin.app import app as page

            apps.append({"app": page, "url_prefix": PAGE_PREFIX, "name": "Mail"})
        return apps

    @property
    def external_views(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The entry of the page in the menu, from Airflow 3.1."""
        if not has_page():
            return []
        page = {"name": "Mail", "href": f"{base_path()}{PAGE_PREFIX}/", "url_route": "mail"}
        return [{**page, "destination": "nav", "category": "browse"}]
