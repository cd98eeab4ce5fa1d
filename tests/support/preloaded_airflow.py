"""`airflow ...` in a process that has imported what tasks need: its forks run DAG files and tasks at once."""

from __future__ import annotations

import importlib
import sys

from airflow.__main__ import main

MODULES = (
    "airflow.providers.common.sql.hooks.sql",
    "airflow.providers.postgres.hooks.postgres",
    "airflow.providers.standard.operators.python",
    "airflow.sdk.execution_time.task_runner",
    "airflow_provider_mail.notifications.mail",
    "airflow_provider_mail.operators.campaigns",
    "airflow_provider_mail.operators.transactional",
    "airflow_provider_mail.sensors.stats",
    "airflow_provider_mail.transfers.mail_to_object_storage",
    "airflow_provider_mail.transfers.mail_to_sql",
    "airflow_provider_mail.transfers.object_storage_to_mail",
    "airflow_provider_mail.transfers.sql_to_mail",
)

if __name__ == "__main__":
    for name in MODULES:
        importlib.import_module(name)
    sys.argv[0] = "airflow"
    main()
