"""What Airflow's API server mounts. Every part of Airflow imports the plugin, so its imports must stay cheap."""

from __future__ import annotations

from typing import Any

__all__ = ["MailPlugin"]


def __getattr__(name: str) -> Any:
    # On demand, since the provider information reads the options beside it before Airflow's plugins can be imported.
    if name == "MailPlugin":
        from airflow_provider_mail.plugin.mail_plugin import MailPlugin

        return MailPlugin
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
