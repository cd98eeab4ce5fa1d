"""The plugin (entry point ``airflow.plugins``). Every part of Airflow imports it, so its imports must stay cheap."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_mail.webhook.settings import URL_PREFIX, receives_in_api_server

__all__ = ["MailPlugin"]


class MailPlugin(AirflowPlugin):
    """Mounts the receiver of events in the API server when ``[mail] receive_in_api_server`` is on."""

    name = "mail"

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]  # entry points are used as instances
        """What the API server mounts."""
        if not receives_in_api_server():
            return []
        from airflow_provider_mail.webhook.app import app

        return [{"app": app, "url_prefix": URL_PREFIX, "name": "Events of the email service"}]
