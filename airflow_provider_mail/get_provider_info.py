"""The provider information. Every Airflow command imports this module, so its imports must stay cheap."""

from __future__ import annotations

from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from airflow_provider_mail._config import config, documentation_url
from airflow_provider_mail.hooks.connection import CONN_TYPE, HOOK_NAME, UI_FIELD_BEHAVIOUR, conn_fields

HOW_TO_GUIDES = (
    "quickstart",
    "contacts",
    "campaigns",
    "preflight",
    "waiting",
    "transactional",
    "statistics",
    "events",
    "object-storage",
    "notifications",
    "resources",
)

TRANSFERS = (
    ("SQL", "Mail", "contacts", "sql_to_mail"),
    ("SQL", "Mail", "how-to/report", "sql_to_mail_report"),
    ("Object Storage", "Mail", "contacts", "object_storage_to_mail"),
    ("Mail", "SQL", "statistics", "mail_to_sql"),
    ("Mail", "SQL", "events", "events_to_sql"),
    ("Mail", "Object Storage", "object-storage", "mail_to_object_storage"),
)
"""From where, to where, the guide, and the module in `transfers`."""


def get_provider_info() -> dict[str, Any]:
    """Return the provider information (entry point ``apache_airflow_provider``)."""
    return {
        "package-name": "airflow-provider-mail",
        "name": "Mail",
        "description": "Run a company's email from DAGs: contacts, campaigns, statistics, transactional mail.",
        # Paths below the package in an installation, below the root in the repository.
        "integrations": [
            {
                "integration-name": "Mail",
                "external-doc-url": documentation_url(),
                "how-to-guide": [f"/docs/{page}.md" for page in HOW_TO_GUIDES],
                "logo": "/docs/integration-logos/mail.svg",
                "tags": ["service"],
            }
        ],
        "connection-types": [
            {
                "connection-type": CONN_TYPE,
                "hook-name": HOOK_NAME,
                "hook-class-name": "airflow_provider_mail.hooks.mail.MailHook",
                "conn-fields": conn_fields(),
                "ui-field-behaviour": UI_FIELD_BEHAVIOUR,
            }
        ],
        "config": config(),
        "cli": ["airflow_provider_mail.cli.definition.get_cli_commands"],
        "hooks": [{"integration-name": "Mail", "python-modules": ["airflow_provider_mail.hooks.mail"]}],
        **{package: _modules(package) for package in ("operators", "sensors", "triggers")},
        "asset-uris": [
            {
                "schemes": ["mail"],
                "handler": "airflow_provider_mail.assets.sanitize_uri",
                "factory": "airflow_provider_mail.assets.create_asset",
                "to_openlineage_converter": "airflow_provider_mail.assets.convert_asset_to_openlineage",
            }
        ],
        "extra-links": ["airflow_provider_mail.links.MailCampaignLink"],
        "notifications": ["airflow_provider_mail.notifications.mail.MailNotifier"],
        "email-backends": ["airflow_provider_mail.utils.emailer.send_email"],
        "transfers": [
            {
                "source-integration-name": source,
                "target-integration-name": target,
                "how-to-guide": f"/docs/{guide}.md",
                "python-module": f"airflow_provider_mail.transfers.{module}",
            }
            for source, target, guide, module in TRANSFERS
        ],
    }


def _modules(package: str) -> list[dict[str, Any]]:
    """Return the public modules of a package."""
    names = [module.name for module in iter_modules([str(Path(__file__).parent / package)])]
    public = [f"airflow_provider_mail.{package}.{name}" for name in names if not name.startswith("_")]
    return [{"integration-name": "Mail", "python-modules": public}]
