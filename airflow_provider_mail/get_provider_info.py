"""The provider information. Every Airflow command imports this module, so its imports must stay cheap."""

from __future__ import annotations

from typing import Any

from airflow_provider_mail._config import config
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
        "operators": [
            {
                "integration-name": "Mail",
                "python-modules": [
                    "airflow_provider_mail.operators.campaigns",
                    "airflow_provider_mail.operators.compare",
                    "airflow_provider_mail.operators.contacts",
                    "airflow_provider_mail.operators.events",
                    "airflow_provider_mail.operators.lists",
                    "airflow_provider_mail.operators.preflight",
                    "airflow_provider_mail.operators.seed_test",
                    "airflow_provider_mail.operators.senders",
                    "airflow_provider_mail.operators.templates",
                    "airflow_provider_mail.operators.transactional",
                    "airflow_provider_mail.operators.webhooks",
                ],
            }
        ],
        "sensors": [
            {
                "integration-name": "Mail",
                "python-modules": [
                    "airflow_provider_mail.sensors.campaigns",
                    "airflow_provider_mail.sensors.events",
                    "airflow_provider_mail.sensors.gate",
                    "airflow_provider_mail.sensors.senders",
                    "airflow_provider_mail.sensors.stats",
                ],
            }
        ],
        "triggers": [
            {
                "integration-name": "Mail",
                "python-modules": [
                    "airflow_provider_mail.triggers.campaigns",
                    "airflow_provider_mail.triggers.events",
                    "airflow_provider_mail.triggers.senders",
                    "airflow_provider_mail.triggers.stats",
                ],
            }
        ],
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
                "source-integration-name": "SQL",
                "target-integration-name": "Mail",
                "how-to-guide": "/docs/contacts.md",
                "python-module": "airflow_provider_mail.transfers.sql_to_mail",
            },
            {
                "source-integration-name": "Object Storage",
                "target-integration-name": "Mail",
                "how-to-guide": "/docs/contacts.md",
                "python-module": "airflow_provider_mail.transfers.object_storage_to_mail",
            },
            {
                "source-integration-name": "Mail",
                "target-integration-name": "SQL",
                "how-to-guide": "/docs/statistics.md",
                "python-module": "airflow_provider_mail.transfers.mail_to_sql",
            },
            {
                "source-integration-name": "Mail",
                "target-integration-name": "SQL",
                "how-to-guide": "/docs/events.md",
                "python-module": "airflow_provider_mail.transfers.events_to_sql",
            },
            {
                "source-integration-name": "Mail",
                "target-integration-name": "Object Storage",
                "how-to-guide": "/docs/object-storage.md",
                "python-module": "airflow_provider_mail.transfers.mail_to_object_storage",
            },
            {
                "source-integration-name": "Object Storage",
                "target-integration-name": "SQL",
                "how-to-guide": "/docs/warehouses.md",
                "python-module": "airflow_provider_mail.transfers.object_storage_to_sql",
            },
        ],
    }
