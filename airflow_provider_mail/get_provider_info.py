"""What Airflow reads about this provider. Imported by every Airflow command: keep it light."""

from __future__ import annotations

from typing import Any

from airflow_provider_mail.hooks.connection import CONN_TYPE, HOOK_NAME, UI_FIELD_BEHAVIOUR, conn_fields


def get_provider_info() -> dict[str, Any]:
    """The provider information (entry point ``apache_airflow_provider``)."""
    return {
        "package-name": "airflow-provider-mail",
        "name": "Mail",
        "description": "Run a company's email from DAGs: contacts, campaigns, statistics, transactional mail.",
        "integrations": [{"integration-name": "Mail", "tags": ["service"]}],
        "connection-types": [
            {
                "connection-type": CONN_TYPE,
                "hook-name": HOOK_NAME,
                "hook-class-name": "airflow_provider_mail.hooks.mail.MailHook",
                "conn-fields": conn_fields(),
                "ui-field-behaviour": UI_FIELD_BEHAVIOUR,
            }
        ],
        "hooks": [{"integration-name": "Mail", "python-modules": ["airflow_provider_mail.hooks.mail"]}],
        "operators": [
            {
                "integration-name": "Mail",
                "python-modules": [
                    "airflow_provider_mail.operators.campaigns",
                    "airflow_provider_mail.operators.contacts",
                    "airflow_provider_mail.operators.transactional",
                ],
            }
        ],
        "sensors": [{"integration-name": "Mail", "python-modules": ["airflow_provider_mail.sensors.campaigns"]}],
        "triggers": [{"integration-name": "Mail", "python-modules": ["airflow_provider_mail.triggers.campaigns"]}],
        "transfers": [
            {
                "source-integration-name": "SQL",
                "target-integration-name": "Mail",
                "python-module": "airflow_provider_mail.transfers.sql_to_mail",
            },
            {
                "source-integration-name": "Mail",
                "target-integration-name": "SQL",
                "python-module": "airflow_provider_mail.transfers.mail_to_sql",
            },
        ],
    }
